/* SPDX-License-Identifier: Apache-2.0 */
/* Modelled links: steps of every schedule and of ranks against the formulas of docs/ddp.md. The
 * linker wraps backward's segments (-Wl,--wrap), so that they take a known time on any machine. */
#include <pthread.h>
#include <time.h>

#include "parallel/engine/engine.h"
#include "support/clock.h"
#include "support/ddp_check.h"

/* Whole cache lines, and no rows that a linear layer pads: the flat buffer has no gaps. 1.2 MB of
 * parameters. */
enum { IN = 16, HIDDEN = 528, OUT = 16, LINK_ROWS = 8, LINK_STEPS = 5 };
enum { PARAMETERS = IN * HIDDEN + HIDDEN * HIDDEN + HIDDEN * OUT };

#define SLOW "0.05,100"
static const double beta = 0.05e9, alpha = 100e-6; /* bytes a second, seconds */

static yoke_model *wide_model(void) {
    yoke_model *model = NULL;
    yoke_linear_options layer = YOKE_LINEAR_OPTIONS_INIT;
    layer.no_bias = true;
    EXPECT_OK(yoke_model_create(&model, "wide", (yoke_shape){IN, 1, 1, true}));
    yoke_value value = yoke_model_input(model);
    const int widths[] = {HIDDEN, HIDDEN, OUT};
    for (int i = 0; i < 3; i++) {
        char name[8];
        snprintf(name, sizeof name, "fc%d", i);
        layer.name = name;
        layer.out_features = widths[i];
        value = yoke_linear(model, i > 0 ? yoke_relu(model, value) : value, &layer);
    }
    EXPECT_OK(yoke_model_finish(model, value, NULL));
    assert_int_equal(yoke_model_parameter_count(model), PARAMETERS);
    return model;
}

typedef struct journey {
    const yoke_model *model;
    const char *link; /* NULL: none */
    yoke_schedule schedule;
    int devices;
    bool ranks, clips, skips_check;
} journey;

/* What a run gave; times in seconds, each the shortest of all steps. */
typedef struct measured {
    double step, replicate, reduce, wait_bytes;
    int buckets;
    uint64_t hash;
} measured;

/* Backward's segments sleep for so long. */
static long segment_ns;

yoke_status __real_yoke_replica_backward_segment(yoke_replica *replica, int segment,
                                                 const yoke_plan_step *step);
yoke_status __wrap_yoke_replica_backward_segment(yoke_replica *replica, int segment,
                                                 const yoke_plan_step *step);
yoke_status __wrap_yoke_replica_backward_segment(yoke_replica *replica, int segment,
                                                 const yoke_plan_step *step) {
    nanosleep(&(struct timespec){.tv_nsec = segment_ns}, NULL);
    return __real_yoke_replica_backward_segment(replica, segment, step);
}

static double stage_seconds(yoke_data_parallel *parallel, yoke_stage stage) {
    yoke_stage_summary rows[YOKE_STAGE_COUNT] = {{.struct_size = sizeof rows[0]}};
    int count = yoke_trace_summarize(yoke_data_parallel_trace(parallel), rows, YOKE_STAGE_COUNT);
    for (int i = 0; i < count; i++)
        if (rows[i].stage == stage) return rows[i].median_ms / 1e3;
    return 0;
}

static void keep_shortest(double *shortest, double seconds) {
    if (*shortest == 0 || seconds < *shortest) *shortest = seconds;
}

static yoke_data_parallel_options journey_options(const journey *plan) {
    return (yoke_data_parallel_options){.struct_size = sizeof(yoke_data_parallel_options),
                                        .schedule = plan->schedule,
                                        .algorithm = YOKE_ALGORITHM_DIRECT,
                                        .batch = LINK_ROWS,
                                        .skip_finite_check = plan->skips_check,
                                        .first_bucket_bytes = 32768,
                                        .bucket_bytes = 262144,
                                        .link = plan->link};
}

/* The first step is left out: it begins with equal replicas. */
static yoke_status take_steps(yoke_data_parallel *parallel, int world, int rank, measured *found) {
    float inputs[LINK_ROWS * IN];
    int32_t labels[LINK_ROWS];
    yoke_chunk part = yoke_chunk_of(LINK_ROWS, world, rank);
    for (uint32_t i = 0; i < LINK_ROWS * IN; i++)
        inputs[i] = (float)check_noise(i);
    for (int i = 0; i < LINK_ROWS; i++)
        labels[i] = i % OUT;
    yoke_batch batch = {.struct_size = sizeof batch,
                        .rows = part.rows,
                        .inputs = inputs + part.first * IN,
                        .labels = labels + part.first,
                        .first_row = part.first,
                        .whole_rows = world > 1 ? LINK_ROWS : 0};
    for (int step = 0; step <= LINK_STEPS; step++) {
        yoke_trace_reset(yoke_data_parallel_trace(parallel));
        uint64_t begin = yoke_now_ns();
        TRY(yoke_data_parallel_step(parallel, &batch, YOKE_OPTIMIZER_LEARNING_RATE, NULL));
        if (step == 0) continue;
        keep_shortest(&found->step, (double)(yoke_now_ns() - begin) / 1e9);
        keep_shortest(&found->replicate, stage_seconds(parallel, YOKE_STAGE_REPLICATE));
        keep_shortest(&found->reduce, stage_seconds(parallel, YOKE_STAGE_REDUCE));
    }
    found->wait_bytes = check_bytes(parallel, YOKE_STAGE_WAIT);
    found->buckets = parallel->step.flat->bucket_count;
    return yoke_data_parallel_hash(parallel, &found->hash);
}

static const yoke_optimizer_options plain = {
    .struct_size = sizeof plain, .kind = YOKE_SGD, .learning_rate = 0.1, .momentum = 0.9};

static yoke_optimizer_options journey_optimizer(const journey *plan) {
    yoke_optimizer_options optimizer = plain;
    optimizer.clip_norm = plan->clips ? 0.1 : 0;
    return optimizer;
}

typedef struct rank_journey {
    const journey *plan;
    measured *found; /* [devices] */
} rank_journey;

static yoke_status travel_rank(yoke_process_group *group, const script *play) {
    const rank_journey *own = play->detail;
    rank_rig rig = {0};
    yoke_devices_options open = {
        .struct_size = sizeof open, .list = "cpu", .threads = 1, .unbound = true};
    yoke_optimizer_options optimizer = journey_optimizer(own->plan);
    yoke_data_parallel_options options = journey_options(own->plan);
    options.process_group = group;
    yoke_status status = yoke_devices_open(&rig.own, &open);
    if (status == YOKE_OK)
        status = yoke_data_parallel_create(&rig.parallel, own->plan->model, rig.own, &optimizer,
                                           &options);
    if (status == YOKE_OK)
        status = take_steps(rig.parallel, group->world, group->rank, &own->found[group->rank]);
    return end_rank(&rig, status);
}

/* The result of device or rank 0. */
static measured travel(const journey *plan) {
    measured found[RANKS] = {{0}};
    if (plan->ranks) {
        rank_journey own = {plan, found};
        script play = {
            .world = plan->devices, .timeout_ms = TIMEOUT_MS, .scene = travel_rank, .detail = &own};
        outcome *outcomes = play_threads(&play);
        expect_all_well(outcomes, plan->devices);
        free(outcomes);
        return found[0];
    }
    yoke_optimizer_options optimizer = journey_optimizer(plan);
    check_engine engine =
        check_engine_on(plan->model, devices_of(plan->devices), journey_options(plan), &optimizer);
    EXPECT_OK(take_steps(engine.parallel, 1, 0, &found[0]));
    check_engine_free(&engine);
    return found[0];
}

static const double p = 4.0 * PARAMETERS;

/* From the root to all others, or back. */
static double root_seconds(int devices) {
    return alpha + (devices - 1) * p / beta;
}

static double formula_of(const journey *plan, int buckets) {
    double n = plan->devices, shard = 4 * LINK_ROWS / n;
    if (plan->schedule == YOKE_SCHEDULE_CLASSIC)
        return 2 * root_seconds(plan->devices) + 3 * alpha +
               (n - 1) * shard * (IN + 2 * OUT) / beta;
    if (plan->ranks || plan->schedule == YOKE_SCHEDULE_SHARDED)
        return 2 * (n - 1) * (buckets * alpha + p / (n * beta));
    return 2 * (buckets * (n - 1) * alpha + p / beta);
}

/* Without links: what the formulas leave out, and a sanitizer makes long. */
static double computation(const journey *plan) {
    journey bare = *plan;
    bare.link = NULL;
    return travel(&bare).step;
}

/* No earlier than the formula and, by the clock, up to a tenth later. Other programs may delay
 * every step of a run: then up to four more runs follow. */
static measured expect_step(const char *what, const journey *plan) {
    measured found = {0};
    double formula = 0, longest = 0;
    for (int run = 0; run == 0 || (run < 5 && found.step > longest); run++) {
        found = travel(plan);
        formula = formula_of(plan, found.buckets);
        longest = judges_clock() ? 1.1 * formula + computation(plan) : INFINITY;
    }
    if (found.step < 0.999 * formula || found.step > longest)
        fail_msg("%s on %d devices: %.2f ms, the formula says %.2f to %.2f", what, plan->devices,
                 1e3 * found.step, 1e3 * formula, 1e3 * longest);
    return found;
}

/* The root's span, which holds no computation but copies in memory. */
static void expect_stage(const char *what, int devices, double found) {
    double formula = root_seconds(devices);
    if (found < 0.999 * formula || (judges_clock() && found > 1.1 * formula))
        fail_msg("%s on %d devices: %.2f ms, the formula says %.2f", what, devices, 1e3 * found,
                 1e3 * formula);
}

static void classic_takes_its_formula(void **state) {
    (void)state;
    journey plan = {.model = wide_model(), .link = SLOW, .schedule = YOKE_SCHEDULE_CLASSIC};
    for (plan.devices = 2; plan.devices <= 4; plan.devices += 2) {
        measured found = expect_step("classic", &plan);
        double longest = judges_clock() ? 1.1 * root_seconds(plan.devices) : INFINITY;
        for (int again = 0; again < 4 && fmax(found.replicate, found.reduce) > longest; again++)
            found = travel(&plan);
        expect_stage("replicate", plan.devices, found.replicate);
        expect_stage("reduce", plan.devices, found.reduce);
    }
    yoke_model_destroy((yoke_model *)plan.model);
}

static void expect_formula(journey plan, const char *what) {
    double n = plan.devices;
    measured found = expect_step(what, &plan);
    bool ring = plan.ranks || plan.schedule == YOKE_SCHEDULE_SHARDED;
    assert_true(found.buckets > 2);
    double sent = ring ? 2 * p * (n - 1) / n : p; /* by device 0 */
    double all = plan.ranks ? sent : ring ? n * sent : 2 * p * (n - 1);
    if (fabs(found.wait_bytes - all) > 1e-3 * all) /* slices end on cache lines */
        fail_msg("%s: %.0f bytes, not %.0f", what, found.wait_bytes, all);
}

static void overlap_sharded_and_ranks_take_their_formulas(void **state) {
    (void)state;
    yoke_model *model = wide_model();
    for (int devices = 2; devices <= 4; devices += 2)
        for (int way = 0; way < 4; way++)
            expect_formula(
                (journey){.model = model,
                          .link = SLOW,
                          .schedule = way % 2 == 0 ? YOKE_SCHEDULE_OVERLAP : YOKE_SCHEDULE_SHARDED,
                          .devices = devices,
                          .ranks = way > 1},
                way > 1 ? "a rank" : "a lane");
    yoke_model_destroy(model);
}

/* Clipping needs the whole gradient, and skip_finite_check does not wait for it: the same bytes
 * travel. */
static void clipping_and_skipped_checks_take_the_same_time(void **state) {
    (void)state;
    yoke_model *model = wide_model();
    for (int ranks = 0; ranks < 2; ranks++)
        for (int way = 0; way < 4; way++)
            expect_formula(
                (journey){.model = model,
                          .link = SLOW,
                          .schedule = way < 2 ? YOKE_SCHEDULE_OVERLAP : YOKE_SCHEDULE_SHARDED,
                          .devices = 3,
                          .ranks = ranks > 0,
                          .clips = way % 2 == 0,
                          .skips_check = way % 2 == 1},
                way % 2 == 0 ? "with clipping" : "without check");
    yoke_model_destroy(model);
}

/* Of the transfers, beside a step without links. */
static double hidden_share(const journey *plan) {
    double all = 2 * p / beta;
    if (plan->ranks || plan->schedule == YOKE_SCHEDULE_SHARDED) all /= 2;
    double without = computation(plan);
    return 1 - (travel(plan).step - without) / all;
}

/* A segment computes for 50 ms, and the largest bucket travels for 21 ms in each of two passes:
 * only the last bucket's transfers show. In classic all of them follow backward. */
static void transfers_run_while_workers_compute(void **state) {
    (void)state;
    journey plan = {.model = wide_model(), .link = "0.05,0", .devices = 2};
    segment_ns = 50000000;
    for (int way = 0; way < 4 && judges_clock(); way++) {
        plan.schedule = way % 2 == 0 ? YOKE_SCHEDULE_OVERLAP : YOKE_SCHEDULE_SHARDED;
        plan.ranks = way > 1;
        double hidden = hidden_share(&plan);
        for (int again = 0; again < 4 && hidden < 0.5; again++)
            hidden = hidden_share(&plan);
        if (hidden < 0.5) fail_msg("way %d hides %.0f %% of the transfers", way, 100 * hidden);
    }
    plan.schedule = YOKE_SCHEDULE_CLASSIC;
    plan.ranks = false;
    measured classic = travel(&plan);
    assert_true(classic.step > classic.buckets * 50e-3 + 2 * p / beta);
    segment_ns = 0;
    yoke_model_destroy((yoke_model *)plan.model);
}

#define SPANS 512

typedef size_t (*span_reader)(const yoke_trace *trace, yoke_span_info *spans, size_t capacity);

/* What `read` finds of a step on two devices. */
static size_t spans_of_step(const journey *plan, span_reader read, yoke_span_info spans[SPANS]) {
    measured found = {0};
    yoke_optimizer_options optimizer = journey_optimizer(plan);
    check_engine engine =
        check_engine_on(plan->model, devices_of(2), journey_options(plan), &optimizer);
    EXPECT_OK(take_steps(engine.parallel, 1, 0, &found));
    spans[0].struct_size = sizeof spans[0];
    size_t count = read(yoke_data_parallel_trace(engine.parallel), spans, SPANS);
    assert_true(count <= SPANS);
    check_engine_free(&engine);
    return count;
}

static size_t record_step(const journey *plan, yoke_span_info spans[SPANS]) {
    return spans_of_step(plan, yoke_trace_read, spans);
}

static size_t read_links(const yoke_trace *trace, yoke_span_info *spans, size_t capacity) {
    return yoke_trace_read_links(trace, UINT64_MAX, spans, capacity);
}

/* What a link carries follows each other and takes the link's time: n / beta, each way. */
static void expect_link_time(const journey *plan, int lane, double seconds) {
    yoke_span_info spans[SPANS];
    const yoke_span_info *before = NULL;
    double busy = 0;
    size_t count = spans_of_step(plan, read_links, spans);
    for (size_t i = 0; i < count; i++) {
        if (spans[i].lane != lane) continue;
        assert_true(before == NULL || before->end_ns <= spans[i].begin_ns);
        busy += 1e-9 * (double)(spans[i].end_ns - spans[i].begin_ns);
        before = &spans[i];
    }
    assert_true(fabs(busy - seconds) < 1e-3 * seconds);
}

/* In overlap each bucket passes one hop twice. In classic the second device gets the weights and
 * sends its gradients; its rows are a few hundred bytes. */
static void the_timeline_has_what_each_link_carries(void **state) {
    (void)state;
    journey plan = {.model = wide_model(), .link = SLOW, .schedule = YOKE_SCHEDULE_OVERLAP};
    int buckets = travel(&(journey){.model = plan.model,
                                    .link = SLOW,
                                    .devices = 2,
                                    .schedule = YOKE_SCHEDULE_OVERLAP})
                      .buckets;
    for (int lane = 0; lane < 2; lane++)
        expect_link_time(&plan, lane, 2 * (buckets * alpha + p / beta));
    plan.clips = true;
    expect_link_time(&plan, 1, 2 * (buckets * alpha + p / beta));
    plan = (journey){.model = plan.model, .link = SLOW, .schedule = YOKE_SCHEDULE_CLASSIC};
    expect_link_time(&plan, 1, 2 * p / beta);
    yoke_model_destroy((yoke_model *)plan.model);
}

/* A span that begins during a transfer ends in it: otherwise the file of the timeline cuts the
 * transfer short. Without latency a transfer begins before the copies in memory end. */
static void expect_whole_transfers(journey plan) {
    yoke_span_info spans[SPANS];
    int transfers = 0;
    size_t count = record_step(&plan, spans);
    for (size_t i = 0; i < count; i++) {
        const yoke_span_info *one = &spans[i];
        bool travels = one->stage == YOKE_STAGE_REPLICATE || one->stage == YOKE_STAGE_REDUCE;
        if (one->lane != 1 || !travels) continue;
        transfers++;
        assert_int_equal(one->bucket, -1);
        for (size_t k = 0; k < count; k++)
            if (spans[k].lane == 1 && spans[k].begin_ns > one->begin_ns &&
                spans[k].begin_ns < one->end_ns)
                assert_true(spans[k].end_ns <= one->end_ns);
    }
    assert_int_equal(transfers, 2);
}

/* On links slower than the copies in memory, about as fast, and faster. */
static void transfers_stay_whole_in_the_timeline(void **state) {
    (void)state;
    static const char *const links[] = {"0.05,0", "1,0", "2,0", "4,0", "8,0", "16,0", "100,0"};
    journey plan = {.model = wide_model(), .schedule = YOKE_SCHEDULE_CLASSIC};
    for (size_t i = 0; i < 5 * sizeof links / sizeof *links; i++) {
        plan.link = links[i % (sizeof links / sizeof *links)];
        expect_whole_transfers(plan);
    }
    yoke_model_destroy((yoke_model *)plan.model);
}

static void a_wait_for_a_link_blames_no_device(void **state) {
    (void)state;
    journey plan = {.model = wide_model(), .link = SLOW, .schedule = YOKE_SCHEDULE_OVERLAP};
    yoke_span_info spans[SPANS];
    int waits = 0;
    size_t count = record_step(&plan, spans);
    for (size_t i = 0; i < count; i++) {
        if (spans[i].stage != YOKE_STAGE_WAIT || spans[i].bytes == 0) continue;
        assert_int_equal(spans[i].awaits, YOKE_STAGE_COUNT);
        waits++;
    }
    assert_int_equal(waits, 2);
    yoke_model_destroy((yoke_model *)plan.model);
}

static void links_change_no_bit(void **state) {
    (void)state;
    yoke_model *model = wide_model();
    for (int way = 0; way < 5; way++) {
        journey plan = {.model = model,
                        .schedule = way == 4  ? YOKE_SCHEDULE_CLASSIC
                                    : way % 2 ? YOKE_SCHEDULE_SHARDED
                                              : YOKE_SCHEDULE_OVERLAP,
                        .devices = 3,
                        .ranks = way == 2 || way == 3};
        measured without = travel(&plan);
        plan.link = "1,10,bridge";
        assert_int_equal(travel(&plan).hash, without.hash);
    }
    yoke_model_destroy(model);
}

static void a_loss_that_is_not_finite_fails_as_without_links(void **state) {
    (void)state;
    yoke_model *model = check_model(false, 0);
    check_batch rows = check_batch_make(8, 3);
    uint64_t before = 0, after = 1;
    check_engine engine = check_engine_make(
        model, 2, (yoke_data_parallel_options){.batch = 8, .link = "0.05,100"}, &plain);
    rows.inputs[5 * CHECK_ROW + 3] = NAN;
    EXPECT_OK(yoke_data_parallel_hash(engine.parallel, &before));
    assert_int_equal(
        yoke_data_parallel_step(engine.parallel, &rows.batch, YOKE_OPTIMIZER_LEARNING_RATE, NULL),
        YOKE_ERROR_NUMERIC);
    EXPECT_OK(yoke_data_parallel_hash(engine.parallel, &after));
    assert_int_equal(after, before);
    rows.inputs[5 * CHECK_ROW + 3] = 0;
    EXPECT_OK(
        yoke_data_parallel_step(engine.parallel, &rows.batch, YOKE_OPTIMIZER_LEARNING_RATE, NULL));
    check_engine_free(&engine);
    check_batch_free(&rows);
    yoke_model_destroy(model);
}

/* Each rank has a link of its own kind. */
static yoke_status differ(yoke_process_group *group, const script *play) {
    rank_rig rig = {0};
    yoke_devices_options open = {
        .struct_size = sizeof open, .list = "cpu", .threads = 1, .unbound = true};
    yoke_data_parallel_options options = {.struct_size = sizeof options,
                                          .batch = 8,
                                          .process_group = group,
                                          .link = group->rank == 0 ? "pcie3" : "pcie4"};
    yoke_status status = yoke_devices_open(&rig.own, &open);
    if (status == YOKE_OK)
        status = yoke_data_parallel_create(&rig.parallel, play->detail, rig.own, NULL, &options);
    return end_rank(&rig, status);
}

static void ranks_with_unequal_links_are_refused(void **state) {
    (void)state;
    yoke_model *model = check_model(false, 0);
    script play = {.world = 2, .timeout_ms = TIMEOUT_MS, .scene = differ, .detail = model};
    outcome *outcomes = play_threads(&play);
    for (int rank = 0; rank < 2; rank++) {
        assert_int_equal(outcomes[rank].error.status, YOKE_ERROR_PEER);
        assert_non_null(strstr(outcomes[rank].error.text, "pcie4"));
    }
    free(outcomes);
    yoke_model_destroy(model);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(classic_takes_its_formula),
        cmocka_unit_test(overlap_sharded_and_ranks_take_their_formulas),
        cmocka_unit_test(clipping_and_skipped_checks_take_the_same_time),
        cmocka_unit_test(transfers_run_while_workers_compute),
        cmocka_unit_test(transfers_stay_whole_in_the_timeline),
        cmocka_unit_test(a_wait_for_a_link_blames_no_device),
        cmocka_unit_test(the_timeline_has_what_each_link_carries),
        cmocka_unit_test(links_change_no_bit),
        cmocka_unit_test(a_loss_that_is_not_finite_fails_as_without_links),
        cmocka_unit_test(ranks_with_unequal_links_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
