/* SPDX-License-Identifier: Apache-2.0 */
/* With options.shards the weights do not depend on the number of devices and ranks, nor on the
 * schedule: to the bit. */
#include "support/ddp_check.h"

#include "base/tree.h"
#include "optimizer/optimizer.h"
#include "parallel/parallel.h"

enum { SHARDS = 8, STEPS_HERE = 5, BATCH = 19 }; /* shards of 3 rows */

typedef struct shard_case {
    const char *name;
    yoke_optimizer_kind kind;
    bool norm, clip, composed, own;
    double dropout, momentum;
    int rows[STEPS_HERE]; /* of the batches */
} shard_case;

/* 19 rows are shards of 3, the last ones of 1 and of none; 16 are shards of 2; 5 leave three shards
 * idle. Batch norm sees 36 values of a channel in a row, so one row is enough. */
static const shard_case cases[] = {
    {.name = "momentum", .momentum = 0.9, .rows = {19, 16, 19, 5, 1}},
    {.name = "batch norm", .norm = true, .momentum = 0.9, .rows = {19, 16, 5, 19, 2}},
    {.name = "dropout", .dropout = 0.4, .momentum = 0.9, .rows = {19, 16, 5, 19, 7}},
    {.name = "clipping", .clip = true, .norm = true, .momentum = 0.9, .rows = {19, 19, 16, 5, 3}},
    {.name = "composed", .composed = true, .momentum = 0.9, .rows = {19, 16, 5, 19, 2}},
    {.name = "own operation", .own = true, .momentum = 0.9, .rows = {19, 16, 5, 19, 2}},
    {.name = "adamw",
     .kind = YOKE_ADAMW,
     .norm = true,
     .clip = true,
     .dropout = 0.2,
     .rows = {16, 19, 5, 1, 19}},
    {.name = "rmsprop", .kind = YOKE_RMSPROP, .momentum = 0.5, .rows = {16, 19, 5, 1, 19}},
    {.name = "lion", .kind = YOKE_LION, .clip = true, .rows = {16, 19, 5, 1, 19}},
    {.name = "lamb", .kind = YOKE_LAMB, .clip = true, .rows = {16, 19, 5, 1, 19}},
    {.name = "muon", .kind = YOKE_MUON, .momentum = 0.9, .rows = {16, 19, 5, 1, 19}},
};
enum { CASES = sizeof cases / sizeof cases[0] };

static yoke_model *model_of(const shard_case *one) {
    static own_fault right = OWN_RIGHT;
    if (one->own) return check_own(devices_are_cpus() ? &right : NULL);
    return one->composed ? check_composed(NULL) : check_model(one->norm, one->dropout);
}

static yoke_optimizer_options optimizer_for(const shard_case *one) {
    return (yoke_optimizer_options){.struct_size = sizeof(yoke_optimizer_options),
                                    .kind = one->kind,
                                    .learning_rate = one->kind == YOKE_SGD     ? 0.05
                                                     : one->kind == YOKE_ADAMW ? 0.01
                                                                               : 0.001,
                                    .momentum = one->momentum,
                                    .weight_decay = 1e-3,
                                    .beta1 = 0.9,
                                    .beta2 = 0.999,
                                    .epsilon = 1e-8,
                                    .clip_norm = one->clip ? 0.3 : 0,
                                    .alpha = 0.9};
}

static yoke_data_parallel_options options_for(yoke_schedule schedule, int shards) {
    return (yoke_data_parallel_options){.struct_size = sizeof(yoke_data_parallel_options),
                                        .schedule = schedule,
                                        .algorithm = YOKE_ALGORITHM_DIRECT,
                                        .batch = BATCH,
                                        .seed = 7,
                                        .first_bucket_bytes = 2048,
                                        .bucket_bytes = 4096,
                                        .shards = shards};
}

/* A rank's rows are those of its shards. */
static yoke_batch shards_of(const check_batch *whole, int world, int rank) {
    yoke_chunk spread = yoke_chunk_spread(SHARDS, world, rank);
    yoke_chunk part = yoke_chunk_span(whole->batch.rows, SHARDS, spread.first, spread.rows);
    yoke_batch batch = whole->batch;
    batch.rows = part.rows;
    batch.inputs += (size_t)part.first * CHECK_ROW;
    batch.labels += part.first;
    if (world == 1) return batch;
    batch.first_row = part.first;
    batch.whole_rows = whole->batch.rows;
    return batch;
}

typedef struct course_result {
    uint64_t hash;
    double losses[STEPS_HERE], norms[STEPS_HERE];
} course_result;

static yoke_status learn(yoke_data_parallel *parallel, const shard_case *one, int world, int rank,
                         course_result *result) {
    for (int step = 0; step < STEPS_HERE; step++) {
        check_batch whole = check_batch_make(one->rows[step], (uint32_t)step);
        yoke_batch batch = shards_of(&whole, world, rank);
        yoke_step_result gave = {.struct_size = sizeof gave};
        yoke_status status =
            yoke_data_parallel_step(parallel, &batch, YOKE_OPTIMIZER_LEARNING_RATE, &gave);
        check_batch_free(&whole);
        TRY(status);
        if (gave.rows != one->rows[step]) return FAIL(YOKE_ERROR_INTERNAL, "%d rows", gave.rows);
        result->losses[step] = gave.loss;
        result->norms[step] = gave.gradient_norm;
    }
    /* A rank without rows computes no batch norm; rank 0 always has some. */
    if (rank == 0 && yoke_data_parallel_batches_tracked(parallel) != STEPS_HERE)
        return FAIL(YOKE_ERROR_INTERNAL, "num_batches_tracked is not the number of steps");
    return yoke_data_parallel_hash(parallel, &result->hash);
}

static course_result learn_on_devices(const shard_case *one, const yoke_model *model, int devices,
                                      yoke_schedule schedule) {
    course_result result = {0};
    yoke_optimizer_options optimizer = optimizer_for(one);
    check_engine engine =
        check_engine_make(model, devices, options_for(schedule, SHARDS), &optimizer);
    EXPECT_OK(learn(engine.parallel, one, 1, 0, &result));
    check_engine_free(&engine);
    return result;
}

/* classic takes the loss over the gathered rows of a round, in another order of the sum. */
static void expect_equal(const char *what, const shard_case *one, int count,
                         const course_result *found, const course_result *expected,
                         bool same_losses) {
    if (found->hash != expected->hash)
        fail_msg("%s, %s on %d: other weights", one->name, what, count);
    for (int step = 0; step < STEPS_HERE; step++) {
        if (found->norms[step] != expected->norms[step])
            fail_msg("%s, %s on %d, step %d: norm %.17g, not %.17g", one->name, what, count, step,
                     found->norms[step], expected->norms[step]);
        double apart = fabs(found->losses[step] - expected->losses[step]);
        if (apart > (same_losses ? 0 : 1e-12))
            fail_msg("%s, %s on %d, step %d: loss %.17g, not %.17g", one->name, what, count, step,
                     found->losses[step], expected->losses[step]);
    }
}

/* Sharded GPUs take no rule that sees whole tensors. */
static bool is_refused(const shard_case *one, yoke_schedule schedule, int devices) {
    return !devices_are_cpus() && schedule == YOKE_SCHEDULE_SHARDED && devices > 1 &&
           yoke_optimizer_rule_of(one->kind)->sees != YOKE_SEES_ELEMENTS;
}

static void expect_refusal(const shard_case *one, const yoke_model *model, int devices) {
    yoke_optimizer_options optimizer = optimizer_for(one);
    yoke_data_parallel_options options = options_for(YOKE_SCHEDULE_SHARDED, SHARDS);
    yoke_devices *opened = NULL;
    yoke_data_parallel *parallel = NULL;
    yoke_devices_options open = {.struct_size = sizeof open, .list = devices_of(devices)};
    EXPECT_OK(yoke_devices_open(&opened, &open));
    assert_int_equal(yoke_data_parallel_create(&parallel, model, opened, &optimizer, &options),
                     YOKE_ERROR_ARGUMENT);
    assert_non_null(strstr(yoke_last_error(), "needs whole tensors"));
    yoke_devices_close(opened);
}

/* CPU devices in any number, GPUs in powers of two. */
static int more_than(int devices) {
    return devices_are_cpus() ? devices + 1 : 2 * devices;
}

static void devices_and_schedules_learn_the_same(void **state) {
    (void)state;
    static const yoke_schedule schedules[] = {YOKE_SCHEDULE_OVERLAP, YOKE_SCHEDULE_CLASSIC,
                                              YOKE_SCHEDULE_SHARDED};
    static const char *const names[] = {"overlap", "classic", "sharded"};
    for (int i = 0; i < CASES; i++) {
        const shard_case *one = &cases[i];
        yoke_model *model = model_of(one);
        course_result expected = learn_on_devices(one, model, 1, YOKE_SCHEDULE_OVERLAP);
        for (int devices = 1; devices <= SHARDS; devices = more_than(devices))
            for (int s = 0; s < 3; s++) {
                if (is_refused(one, schedules[s], devices)) {
                    expect_refusal(one, model, devices);
                    continue;
                }
                course_result found = learn_on_devices(one, model, devices, schedules[s]);
                expect_equal(names[s], one, devices, &found, &expected,
                             schedules[s] != YOKE_SCHEDULE_CLASSIC);
            }
        yoke_model_destroy(model);
    }
}

/* Shares of whole shards: each device adds up its own in the order of the tree. */
static void shares_change_no_bit(void **state) {
    (void)state;
    if (!devices_are_cpus()) skip(); /* GPUs refuse them: test_shares */
    static const struct {
        int devices;
        double shares[6];
    } deals[] = {{2, {3, 1}},    {2, {1, 7}},       {2, {5, 3}},          {3, {1, 6, 1}},
                 {3, {3, 2, 3}}, {4, {1, 1, 5, 1}}, {5, {2, 1, 1, 1, 3}}, {6, {1, 2, 1, 2, 1, 1}}};
    static const yoke_schedule schedules[] = {YOKE_SCHEDULE_OVERLAP, YOKE_SCHEDULE_CLASSIC,
                                              YOKE_SCHEDULE_SHARDED};
    for (int i = 0; i < CASES; i++) {
        const shard_case *one = &cases[i];
        yoke_model *model = model_of(one);
        yoke_optimizer_options optimizer = optimizer_for(one);
        course_result expected = learn_on_devices(one, model, 1, YOKE_SCHEDULE_OVERLAP);
        for (size_t d = 0; d < sizeof deals / sizeof deals[0]; d++) {
            yoke_schedule schedule = schedules[(d + (size_t)i) % 3];
            yoke_data_parallel_options options = options_for(schedule, SHARDS);
            course_result found = {0};
            options.shares = deals[d].shares;
            options.share_count = deals[d].devices;
            check_engine engine = check_engine_make(model, deals[d].devices, options, &optimizer);
            EXPECT_OK(learn(engine.parallel, one, 1, 0, &found));
            expect_equal("shares", one, deals[d].devices, &found, &expected,
                         schedule != YOKE_SCHEDULE_CLASSIC);
            check_engine_free(&engine);
        }
        yoke_model_destroy(model);
    }
}

/* Ranks. */

typedef struct rank_plan {
    const shard_case *one;
    const yoke_model *model;
    yoke_schedule schedule;
    course_result *results; /* [world] */
} rank_plan;

static yoke_status learn_as_rank(yoke_process_group *group, const script *play) {
    const rank_plan *plan = play->detail;
    rank_rig rig = {0};
    yoke_devices_options open = {
        .struct_size = sizeof open, .list = "cpu", .threads = 1, .unbound = true};
    yoke_optimizer_options optimizer = optimizer_for(plan->one);
    yoke_data_parallel_options options = options_for(plan->schedule, SHARDS);
    options.process_group = group;
    TRY(yoke_devices_open(&rig.own, &open));
    yoke_status status =
        yoke_data_parallel_create(&rig.parallel, plan->model, rig.own, &optimizer, &options);
    if (status == YOKE_OK)
        status =
            learn(rig.parallel, plan->one, group->world, group->rank, &plan->results[group->rank]);
    return end_rank(&rig, status);
}

/* Running statistics are each rank's own until an evaluation: rank 0's count. */
static void ranks_learn_what_one_device_learns(void **state) {
    (void)state;
    if (!devices_are_cpus()) skip();
    for (int i = 0; i < CASES; i++) {
        const shard_case *one = &cases[i];
        yoke_model *model = model_of(one);
        course_result expected = learn_on_devices(one, model, 1, YOKE_SCHEDULE_OVERLAP);
        for (int world = 1; world <= SHARDS; world++)
            for (int sharded = 0; sharded < 2; sharded++) {
                course_result results[SHARDS] = {{0}};
                rank_plan plan = {one, model,
                                  sharded ? YOKE_SCHEDULE_SHARDED : YOKE_SCHEDULE_OVERLAP, results};
                script play = {.world = world,
                               .timeout_ms = TIMEOUT_MS,
                               .scene = learn_as_rank,
                               .detail = &plan};
                outcome *outcomes = play_threads(&play);
                expect_all_well(outcomes, world);
                free(outcomes);
                expect_equal(sharded ? "ranks, sharded" : "ranks", one, world, &results[0],
                             &expected, true);
            }
        yoke_model_destroy(model);
    }
}

/* The tree is the one over the shards, and it changes what a left fold would give. */
static void shards_change_the_bits_and_no_more(void **state) {
    (void)state;
    yoke_model *model = check_model(false, 0);
    yoke_optimizer_options optimizer = optimizer_for(&cases[0]);
    check_engine plain =
        check_engine_make(model, 1, options_for(YOKE_SCHEDULE_OVERLAP, 0), &optimizer);
    check_engine engine =
        check_engine_make(model, 1, options_for(YOKE_SCHEDULE_OVERLAP, SHARDS), &optimizer);
    check_batch whole = check_batch_make(BATCH, 1);
    for (int step = 0; step < 3; step++) {
        EXPECT_OK(yoke_data_parallel_step(plain.parallel, &whole.batch, -1, NULL));
        EXPECT_OK(yoke_data_parallel_step(engine.parallel, &whole.batch, -1, NULL));
    }
    size_t count;
    float *a = check_read_all(plain.parallel, model, false, &count);
    float *b = check_read_all(engine.parallel, model, false, &count);
    assert_true(check_relative(a, b, count) < 1e-5);
    assert_memory_not_equal(a, b, count * sizeof *a);
    free(a);
    free(b);
    check_batch_free(&whole);
    check_engine_free(&engine);
    check_engine_free(&plain);
    yoke_model_destroy(model);
}

static void an_evaluation_counts_every_row_once(void **state) {
    (void)state;
    yoke_model *model = check_model(true, 0.3);
    double expected = 0;
    for (int devices = 1; devices <= SHARDS; devices *= 2) {
        check_engine engine =
            check_engine_make(model, devices, options_for(YOKE_SCHEDULE_OVERLAP, SHARDS), NULL);
        check_batch whole = check_batch_make(13, 4);
        yoke_step_result gave = {.struct_size = sizeof gave};
        EXPECT_OK(yoke_data_parallel_evaluate(engine.parallel, &whole.batch, &gave));
        assert_int_equal(gave.rows, 13);
        if (devices == 1) expected = gave.loss;
        assert_true(gave.loss == expected);
        check_batch_free(&whole);
        check_engine_free(&engine);
    }
    yoke_model_destroy(model);
}

/* The weights stay those before, and the next step learns as if nothing had been. */
static void a_loss_that_is_not_finite_changes_nothing(void **state) {
    (void)state;
    yoke_model *model = check_model(true, 0);
    yoke_optimizer_options optimizer = optimizer_for(&cases[1]);
    uint64_t hashes[2];
    for (int spoiled = 0; spoiled < 2; spoiled++) {
        check_engine engine =
            check_engine_make(model, 2, options_for(YOKE_SCHEDULE_OVERLAP, SHARDS), &optimizer);
        check_batch whole = check_batch_make(BATCH, 4);
        EXPECT_OK(yoke_data_parallel_step(engine.parallel, &whole.batch, -1, NULL));
        float kept = whole.inputs[10 * CHECK_ROW];
        if (spoiled) {
            whole.inputs[10 * CHECK_ROW] = NAN;
            assert_int_equal(yoke_data_parallel_step(engine.parallel, &whole.batch, -1, NULL),
                             YOKE_ERROR_NUMERIC);
            whole.inputs[10 * CHECK_ROW] = kept;
        }
        EXPECT_OK(yoke_data_parallel_step(engine.parallel, &whole.batch, -1, NULL));
        EXPECT_OK(yoke_data_parallel_hash(engine.parallel, &hashes[spoiled]));
        check_batch_free(&whole);
        check_engine_free(&engine);
    }
    assert_true(hashes[0] == hashes[1]);
    yoke_model_destroy(model);
}

/* Refusals. */

static void expect_refused(yoke_data_parallel_options options, int devices, const char *first,
                           const char *second) {
    yoke_model *model = check_model(false, 0);
    yoke_devices_options open = {
        .struct_size = sizeof open, .list = devices_of(devices), .threads = 1};
    yoke_devices *list = NULL;
    yoke_data_parallel *parallel = NULL;
    EXPECT_OK(yoke_devices_open(&list, &open));
    assert_int_equal(yoke_data_parallel_create(&parallel, model, list, NULL, &options),
                     YOKE_ERROR_ARGUMENT);
    if (strstr(yoke_last_error(), first) == NULL || strstr(yoke_last_error(), second) == NULL)
        fail_msg("'%s' has not both '%s' and '%s'", yoke_last_error(), first, second);
    yoke_devices_close(list);
    yoke_model_destroy(model);
}

static void what_shards_cannot_do_is_refused_with_both_numbers(void **state) {
    (void)state;
    yoke_data_parallel_options options = options_for(YOKE_SCHEDULE_OVERLAP, SHARDS);
    if (devices_are_cpus())
        expect_refused(options, 9, "8 shards", "9 devices");
    else
        expect_refused(options, 3, "8 shards", "3 GPUs");
    options.shards = 2;
    expect_refused(options, 4, "2 shards", devices_are_cpus() ? "4 devices" : "4 GPUs");
    options.shards = 6;
    expect_refused(options, 2, "shards is 6", "power of two");
    options.shards = -8;
    expect_refused(options, 1, "shards is -8", "power of two");
    options.shards = 2 * YOKE_SHARDS_LIMIT;
    expect_refused(options, 1, "shards is 2048", "1024");
    options = options_for(YOKE_SCHEDULE_OVERLAP, SHARDS);
    options.accumulate = 2;
    expect_refused(options, 2, "accumulate 2", "8 shards");
    options = options_for(YOKE_SCHEDULE_OVERLAP, SHARDS);
    options.mean_of_ranks = true;
    expect_refused(options, 2, "mean_of_ranks", "8 shards");
    options = options_for(YOKE_SCHEDULE_OVERLAP, SHARDS);
    options.synchronize_batch_norm = true;
    expect_refused(options, 2, "synchronize_batch_norm", "8 shards");
    options = options_for(YOKE_SCHEDULE_OVERLAP, SHARDS);
    options.collectives = YOKE_COLLECTIVES_NCCL;
    expect_refused(options, 2, "NCCL", "8 shards");
    options = options_for(YOKE_SCHEDULE_OVERLAP, SHARDS);
    options.input_gradients = true;
    expect_refused(options, 2, "input_gradients", "8 shards");
}

/* Rows cut as for DDP without shards would put one shard on two ranks: 10 rows are 5 and 5, but the
 * shards of 8 are 2, 2, 2, 2, 2, 0, 0, 0. */
static yoke_status give_wrong_rows(yoke_process_group *group, const script *play) {
    const rank_plan *plan = play->detail;
    rank_rig rig = {0};
    yoke_devices_options open = {
        .struct_size = sizeof open, .list = "cpu", .threads = 1, .unbound = true};
    yoke_data_parallel_options options = options_for(YOKE_SCHEDULE_OVERLAP, SHARDS);
    options.process_group = group;
    TRY(yoke_devices_open(&rig.own, &open));
    yoke_status status =
        yoke_data_parallel_create(&rig.parallel, plan->model, rig.own, NULL, &options);
    check_batch whole = check_batch_make(10, 0);
    yoke_batch batch = whole.batch;
    batch.rows = 5;
    batch.whole_rows = 10;
    batch.first_row = 5 * group->rank;
    if (status == YOKE_OK) status = yoke_data_parallel_step(rig.parallel, &batch, -1, NULL);
    check_batch_free(&whole);
    return end_rank(&rig, status);
}

static void ranks_that_hold_other_rows_than_their_shards_are_refused(void **state) {
    (void)state;
    if (!devices_are_cpus()) skip();
    yoke_model *model = check_model(false, 0);
    rank_plan plan = {.model = model};
    script play = {.world = 2, .timeout_ms = TIMEOUT_MS, .scene = give_wrong_rows, .detail = &plan};
    outcome *outcomes = play_threads(&play);
    for (int rank = 0; rank < 2; rank++) {
        assert_int_not_equal(outcomes[rank].error.status, YOKE_OK);
        assert_non_null(strstr(outcomes[rank].error.text, "with 8 shards rank"));
    }
    free(outcomes);
    yoke_model_destroy(model);
}

static void the_tree_over_pairs_is_the_tree_over_all(void **state) {
    (void)state;
    double values[64], pairs[32];
    for (int i = 0; i < 64; i++)
        values[i] = check_noise((uint32_t)i) * pow(10, i % 7);
    for (int i = 0; i < 32; i++)
        pairs[i] = values[2 * i] + values[2 * i + 1];
    assert_true(yoke_tree_sum(values, 64) == yoke_tree_sum(pairs, 32));
    for (int i = 0; i < 4; i++)
        pairs[i] = yoke_tree_sum(values + 16 * i, 16);
    assert_true(yoke_tree_sum(values, 64) == yoke_tree_sum(pairs, 4));
    assert_true(yoke_tree_sum(values, 3) == (values[0] + values[1]) + values[2]);
    assert_true(yoke_tree_sum(values, 0) == 0);
}

/* They are no step: the audit of the step before them does not go on. */
static void an_audit_leaves_stages_by_hand_alone(void **state) {
    (void)state;
    if (!devices_are_cpus()) skip();
    yoke_model *model = check_model(true, 0);
    yoke_data_parallel_options options = YOKE_DATA_PARALLEL_OPTIONS_INIT;
    options.batch = 16;
    options.shards = SHARDS;
    options.audit = 1;
    check_engine engine = check_engine_make(model, 2, options, NULL);
    check_batch whole = check_batch_make(16, 1), part = check_batch_make(4, 2);
    for (int i = 0; i < 2 * SHARDS; i++) {
        EXPECT_OK(yoke_data_parallel_forward(engine.parallel, &part.batch, true, NULL));
        EXPECT_OK(yoke_data_parallel_backward(engine.parallel, NULL));
        EXPECT_OK(yoke_data_parallel_update(engine.parallel, YOKE_OPTIMIZER_LEARNING_RATE));
        for (int k = 0; k < 2; k++) /* and one update by hand: each shard is the last one audited */
            EXPECT_OK(yoke_data_parallel_step(engine.parallel, &whole.batch,
                                              YOKE_OPTIMIZER_LEARNING_RATE, NULL));
    }
    check_batch_free(&part);
    check_batch_free(&whole);
    check_engine_free(&engine);
    yoke_model_destroy(model);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_tree_over_pairs_is_the_tree_over_all),
        cmocka_unit_test(devices_and_schedules_learn_the_same),
        cmocka_unit_test(shares_change_no_bit),
        cmocka_unit_test(ranks_learn_what_one_device_learns),
        cmocka_unit_test(shards_change_the_bits_and_no_more),
        cmocka_unit_test(an_evaluation_counts_every_row_once),
        cmocka_unit_test(a_loss_that_is_not_finite_changes_nothing),
        cmocka_unit_test(what_shards_cannot_do_is_refused_with_both_numbers),
        cmocka_unit_test(an_audit_leaves_stages_by_hand_alone),
        cmocka_unit_test(ranks_that_hold_other_rows_than_their_shards_are_refused),
    };
    return RUN_ON_DEVICES(tests, NULL, NULL);
}
