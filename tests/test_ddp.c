/* DDP over threads as ranks: n ranks are n devices are one device. */
#include "base/chunk.h"
#include "engine_check.h"
#include "process_ranks.h"

enum { STEPS = 20, RAGGED = 3 };

typedef struct setting {
    bool norm, clip, adamw;
    double dropout;
    int batch, accumulate, steps;
    bool own_buffers, mean_of_ranks, uncounted; /* uncounted: batches do not tell whole_rows */
} setting;

/* What a run gave: weights, and the losses of its steps. */
typedef struct record {
    float *weights;
    size_t count;
    double losses[STEPS], evaluation;
    int correct;
    uint64_t hash;
} record;

typedef struct course {
    const setting *setting;
    const yoke_model *model;
    record *records; /* [world] */
} course;

static yoke_optimizer_options optimizer_of(const setting *s) {
    return (yoke_optimizer_options){.struct_size = sizeof(yoke_optimizer_options),
                                    .kind = s->adamw ? YOKE_ADAMW : YOKE_SGD,
                                    .learning_rate = s->adamw ? 0.01 : 0.02,
                                    .momentum = s->adamw ? 0 : 0.9,
                                    .clip_norm = s->clip ? 0.5 : 0};
}

static yoke_data_parallel_options options_of(const setting *s) {
    return (yoke_data_parallel_options){.struct_size = sizeof(yoke_data_parallel_options),
                                        .algorithm = YOKE_ALGORITHM_DIRECT,
                                        .batch = s->batch,
                                        .accumulate = s->accumulate,
                                        .seed = 7,
                                        .first_bucket_bytes = 256,
                                        .bucket_bytes = 1024,
                                        .own_buffers = s->own_buffers,
                                        .mean_of_ranks = s->mean_of_ranks};
}

/* Every third batch is short. */
static int rows_of(const setting *s, int step) {
    return step % 3 == 2 ? s->batch - RAGGED : s->batch;
}

static yoke_batch part_of(const setting *s, const check_batch *whole, int world, int rank) {
    yoke_chunk part = yoke_chunk_of(whole->batch.rows, world, rank);
    yoke_batch batch = whole->batch;
    batch.rows = part.rows;
    batch.inputs += (size_t)part.first * CHECK_ROW;
    batch.labels += part.first;
    if (world == 1 || s->uncounted) return batch;
    batch.first_row = part.first;
    batch.whole_rows = whole->batch.rows;
    return batch;
}

static yoke_status train(yoke_data_parallel *parallel, const setting *s, int world, int rank,
                         record *result) {
    for (int step = 0; step < s->steps; step++) {
        check_batch whole = check_batch_make(rows_of(s, step), (uint32_t)step);
        yoke_batch batch = part_of(s, &whole, world, rank);
        yoke_step_result gave = {.struct_size = sizeof gave};
        yoke_status status = yoke_data_parallel_step(parallel, &batch, 0, &gave);
        check_batch_free(&whole);
        TRY(status);
        result->losses[step] = gave.loss;
        if (gave.rows != rows_of(s, step)) return FAIL(YOKE_ERROR_INTERNAL, "%d rows", gave.rows);
    }
    check_batch whole = check_batch_make(s->batch, 99);
    yoke_batch batch = part_of(s, &whole, world, rank);
    yoke_step_result gave = {.struct_size = sizeof gave};
    yoke_status status = yoke_data_parallel_evaluate(parallel, &batch, &gave);
    check_batch_free(&whole);
    result->evaluation = gave.loss;
    result->correct = gave.correct;
    return status;
}

static yoke_status create_rank(yoke_devices **devices, yoke_data_parallel **parallel,
                               const course *plan, yoke_process_group *group) {
    yoke_devices_options open = {
        .struct_size = sizeof open, .list = "cpu", .threads = 1, .unbound = true};
    yoke_optimizer_options optimizer = optimizer_of(plan->setting);
    yoke_data_parallel_options options = options_of(plan->setting);
    options.group = group;
    TRY(yoke_devices_open(devices, &open));
    return yoke_data_parallel_create(parallel, plan->model, *devices, &optimizer, &options);
}

static yoke_status train_rank(yoke_process_group *group, const script *play) {
    const course *plan = play->detail;
    record *result = &plan->records[group->rank];
    yoke_devices *devices = NULL;
    yoke_data_parallel *parallel = NULL;
    yoke_status status = create_rank(&devices, &parallel, plan, group);
    if (status == YOKE_OK)
        status = train(parallel, plan->setting, group->world, group->rank, result);
    if (status == YOKE_OK) status = yoke_data_parallel_hash(parallel, &result->hash);
    if (status == YOKE_OK)
        result->weights = check_read_all(parallel, plan->model, false, &result->count);
    yoke_error error = yoke_error_take(status);
    yoke_data_parallel_destroy(parallel);
    yoke_devices_close(devices);
    return yoke_error_restore(&error);
}

static void run_ranks(const setting *s, const yoke_model *model, int world, record *records) {
    course plan = {.setting = s, .model = model, .records = records};
    script play = {.world = world, .timeout_ms = TIMEOUT_MS, .scene = train_rank, .detail = &plan};
    outcome *outcomes = play_threads(&play);
    expect_all_well(outcomes, world);
    free(outcomes);
}

static record run_devices(const setting *s, const yoke_model *model, int devices) {
    record result = {0};
    yoke_optimizer_options optimizer = optimizer_of(s);
    check_engine engine = check_engine_make(model, devices, options_of(s), &optimizer);
    EXPECT_OK(train(engine.parallel, s, 1, 0, &result));
    EXPECT_OK(yoke_data_parallel_hash(engine.parallel, &result.hash));
    result.weights = check_read_all(engine.parallel, model, false, &result.count);
    check_engine_free(&engine);
    return result;
}

static void expect_near(const record *a, const record *b, double tolerance, int steps) {
    double largest = 0, distance = 0;
    assert_int_equal(a->count, b->count);
    for (size_t i = 0; i < a->count; i++) {
        largest = fmax(largest, fabs((double)a->weights[i]));
        distance = fmax(distance, fabs((double)a->weights[i] - (double)b->weights[i]));
    }
    if (!(distance <= tolerance * largest)) fail_msg("weights differ by %g", distance / largest);
    for (int step = 0; step < steps; step++)
        if (!(fabs(a->losses[step] - b->losses[step]) <= tolerance * fabs(a->losses[step])))
            fail_msg("step %d: loss %.9g and %.9g", step, a->losses[step], b->losses[step]);
    if (!(fabs(a->evaluation - b->evaluation) <= tolerance * fabs(a->evaluation)))
        fail_msg("evaluation %.9g and %.9g", a->evaluation, b->evaluation);
    assert_int_equal(a->correct, b->correct);
}

static void expect_same(const record *a, const record *b, int steps) {
    assert_int_equal(a->count, b->count);
    assert_memory_equal(a->weights, b->weights, a->count * sizeof *a->weights);
    assert_memory_equal(a->losses, b->losses, (size_t)steps * sizeof *a->losses);
    assert_int_equal(a->hash, b->hash);
}

static void free_records(record *records, int count) {
    for (int i = 0; i < count; i++)
        free(records[i].weights);
}

/* DDP(n) = DP(n) to the bit; = one device to rounding, unless batch norm sees each shard. */
static void check_equality(const setting *s, int world) {
    record ranks[RANKS] = {0};
    yoke_model *model = check_model(s->norm, s->dropout);
    run_ranks(s, model, world, ranks);
    record several = run_devices(s, model, world), one = run_devices(s, model, 1);
    for (int rank = 1; rank < world; rank++)
        expect_same(&ranks[0], &ranks[rank], s->steps);
    expect_same(&ranks[0], &several, s->steps);
    if (!s->norm) expect_near(&ranks[0], &one, 1e-6, s->steps);
    free_records(ranks, world);
    free_records(&several, 1);
    free_records(&one, 1);
    yoke_model_destroy(model);
}

static void ranks_learn_what_as_many_devices_and_one_alone_learn(void **state) {
    (void)state;
    const setting plain = {.batch = 16, .accumulate = 1, .steps = STEPS};
    for (int world = 1; world <= 8; world++)
        check_equality(&plain, world);
}

static void ranks_without_rows_take_part(void **state) {
    (void)state;
    const setting few = {.batch = 5, .accumulate = 1, .steps = 6};
    for (int world = 3; world <= 7; world += 2)
        check_equality(&few, world);
}

static void batch_norm_dropout_clipping_and_accumulation_change_nothing_about_it(void **state) {
    (void)state;
    const setting settings[] = {
        {.batch = 16, .accumulate = 1, .steps = 6, .norm = true},
        {.batch = 16, .accumulate = 1, .steps = 6, .dropout = 0.4},
        {.batch = 16, .accumulate = 1, .steps = 6, .clip = true},
        {.batch = 16, .accumulate = 1, .steps = 6, .adamw = true},
        {.batch = 16, .accumulate = 1, .steps = 6, .uncounted = true},
    };
    for (size_t i = 0; i < sizeof settings / sizeof settings[0]; i++)
        check_equality(&settings[i], 2 + (int)i % 3);
}

/* Micro-batches are cut from each rank's rows, DP's from the whole batch: equal to rounding. */
static void accumulated_gradients_travel_once(void **state) {
    (void)state;
    const setting s = {.batch = 17, .accumulate = 3, .steps = 9};
    yoke_model *model = check_model(false, 0);
    record ranks[3] = {0};
    run_ranks(&s, model, 3, ranks);
    record one = run_devices(&s, model, 1);
    expect_same(&ranks[0], &ranks[2], s.steps);
    expect_near(&ranks[0], &one, 1e-6, s.steps);
    free_records(ranks, 3);
    free_records(&one, 1);
    yoke_model_destroy(model);
}

/* 5 rows on 2 ranks are 3 and 2: a mean of means weighs the two more. */
static void the_mean_of_rank_means_is_pytorchs(void **state) {
    (void)state;
    setting s = {.batch = 5 + RAGGED, .accumulate = 1, .steps = 3};
    yoke_model *model = check_model(false, 0);
    record rows[2] = {0}, means[2] = {0};
    run_ranks(&s, model, 2, rows);
    s.mean_of_ranks = true;
    run_ranks(&s, model, 2, means);
    assert_true(rows[0].losses[1] == means[0].losses[1]); /* 4 and 4 rows: no difference yet */
    assert_true(rows[0].hash != means[0].hash);
    expect_same(&means[0], &means[1], s.steps);
    free_records(rows, 2);
    free_records(means, 2);
    yoke_model_destroy(model);
}

static void running_statistics_are_rank_0s_unless_kept_apart(void **state) {
    (void)state;
    setting s = {.batch = 16, .accumulate = 1, .steps = 3, .norm = true};
    yoke_model *model = check_model(true, 0);
    record shared[2] = {0}, own[2] = {0};
    run_ranks(&s, model, 2, shared);
    s.own_buffers = true;
    run_ranks(&s, model, 2, own);
    assert_int_equal(shared[0].hash, shared[1].hash);
    assert_true(own[0].hash != own[1].hash);
    assert_memory_equal(own[0].weights, own[1].weights, own[0].count * sizeof(float));
    assert_true(shared[0].evaluation != own[0].evaluation);
    free_records(shared, 2);
    free_records(own, 2);
    yoke_model_destroy(model);
}

/* What must not be trained together. */

typedef struct quarrel {
    setting settings[2];
    const yoke_model *models[2]; /* of rank 0 and of the others */
    const char *expected;
} quarrel;

static yoke_status disagree(yoke_process_group *group, const script *play) {
    const quarrel *two = play->detail;
    int side = group->rank == 1;
    course plan = {.setting = &two->settings[side], .model = two->models[side]};
    yoke_devices *devices = NULL;
    yoke_data_parallel *parallel = NULL;
    yoke_status status = create_rank(&devices, &parallel, &plan, group);
    yoke_error error = yoke_error_take(status);
    yoke_data_parallel_destroy(parallel);
    yoke_devices_close(devices);
    return yoke_error_restore(&error);
}

static void expect_quarrel(const quarrel *two) {
    script play = {.world = 3, .timeout_ms = TIMEOUT_MS, .scene = disagree, .detail = two};
    outcome *outcomes = play_threads(&play);
    for (int rank = 0; rank < play.world; rank++) {
        assert_int_equal(outcomes[rank].error.status, YOKE_ERROR_PEER);
        if (strstr(outcomes[rank].error.text, two->expected) == NULL)
            fail_msg("\"%s\" does not tell \"%s\"", outcomes[rank].error.text, two->expected);
    }
    free(outcomes);
}

static void ranks_that_differ_are_refused_with_both_sides_named(void **state) {
    (void)state;
    yoke_model *plain = check_model(false, 0), *other = check_model(true, 0);
    const setting s = {.batch = 16, .accumulate = 1};
    quarrel options = {{s, s}, {plain, plain}, "rank 0 has \"batch 16\", rank 1 has \"batch 24\""};
    options.settings[1].batch = 24;
    expect_quarrel(&options);
    const quarrel models = {
        {s, s}, {plain, other}, "rank 0 has \"conv2.weight [8, 8, 3, 3]\", rank 1 has \"bn1."};
    expect_quarrel(&models);
    yoke_model_destroy(other);
    yoke_model_destroy(plain);
}

/* A bad batch. */

static yoke_status spoil_a_batch(yoke_process_group *group, const script *play) {
    const course *plan = play->detail;
    yoke_devices *devices = NULL;
    yoke_data_parallel *parallel = NULL;
    uint64_t before = 0, after = 1;
    check_batch rows = check_batch_make(8, 3);
    yoke_status status = create_rank(&devices, &parallel, plan, group);
    if (status == YOKE_OK) status = yoke_data_parallel_hash(parallel, &before);
    if (group->rank == 1) rows.inputs[5 * CHECK_ROW + 3] = NAN;
    yoke_batch batch = part_of(plan->setting, &rows, group->world, group->rank);
    yoke_error error = {.status = YOKE_OK};
    if (status == YOKE_OK)
        error = yoke_error_take(yoke_data_parallel_step(parallel, &batch, 0, NULL));
    if (status == YOKE_OK) status = yoke_data_parallel_hash(parallel, &after);
    rows.inputs[5 * CHECK_ROW + 3] = 0;
    if (status == YOKE_OK) status = yoke_data_parallel_step(parallel, &batch, 0, NULL);
    yoke_data_parallel_destroy(parallel);
    yoke_devices_close(devices);
    check_batch_free(&rows);
    TRY(status);
    if (before != after) return FAIL(YOKE_ERROR_INTERNAL, "the weights moved");
    return yoke_error_restore(&error);
}

static void a_loss_that_is_not_finite_on_one_rank_is_learnt_from_by_none(void **state) {
    (void)state;
    yoke_model *model = check_model(true, 0);
    const setting s = {.batch = 8, .accumulate = 1};
    course plan = {.setting = &s, .model = model};
    script play = {.world = 2, .timeout_ms = TIMEOUT_MS, .scene = spoil_a_batch, .detail = &plan};
    outcome *outcomes = play_threads(&play);
    for (int rank = 0; rank < play.world; rank++)
        if (outcomes[rank].error.status != YOKE_ERROR_NUMERIC)
            fail_msg("rank 0: %s; rank 1: %s", outcomes[0].error.text, outcomes[1].error.text);
    assert_non_null(strstr(outcomes[1].error.text, "first at "));
    free(outcomes);
    yoke_model_destroy(model);
}

/* A group has one device a rank and one schedule. */

static yoke_status ask_for_too_much(yoke_process_group *group, const script *play) {
    const course *plan = play->detail;
    yoke_devices *devices = NULL;
    yoke_data_parallel *parallel = NULL;
    yoke_devices_options open = {.struct_size = sizeof open, .list = "2xcpu", .threads = 1};
    yoke_data_parallel_options options = options_of(plan->setting);
    options.group = group;
    TRY(yoke_devices_open(&devices, &open));
    yoke_status status = yoke_data_parallel_create(&parallel, plan->model, devices, NULL, &options);
    yoke_error error = yoke_error_take(status);
    yoke_devices_close(devices);
    return yoke_error_restore(&error);
}

static void a_rank_has_one_device(void **state) {
    (void)state;
    yoke_model *model = check_model(false, 0);
    const setting s = {.batch = 8, .accumulate = 1};
    course plan = {.setting = &s, .model = model};
    script play = {
        .world = 1, .timeout_ms = TIMEOUT_MS, .scene = ask_for_too_much, .detail = &plan};
    outcome *outcomes = play_threads(&play);
    assert_int_equal(outcomes[0].error.status, YOKE_ERROR_ARGUMENT);
    assert_non_null(strstr(outcomes[0].error.text, "2 devices in rank 0"));
    free(outcomes);
    yoke_model_destroy(model);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranks_learn_what_as_many_devices_and_one_alone_learn),
        cmocka_unit_test(ranks_without_rows_take_part),
        cmocka_unit_test(batch_norm_dropout_clipping_and_accumulation_change_nothing_about_it),
        cmocka_unit_test(accumulated_gradients_travel_once),
        cmocka_unit_test(the_mean_of_rank_means_is_pytorchs),
        cmocka_unit_test(running_statistics_are_rank_0s_unless_kept_apart),
        cmocka_unit_test(ranks_that_differ_are_refused_with_both_sides_named),
        cmocka_unit_test(a_loss_that_is_not_finite_on_one_rank_is_learnt_from_by_none),
        cmocka_unit_test(a_rank_has_one_device),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
