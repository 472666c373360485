/* SPDX-License-Identifier: Apache-2.0 */
/* The shadow in the update: it writes the weights in bfloat16, which the products of the next
 * forward read, so that no pass of its own does. Every bit is that of a run with the pass, whoever
 * writes the weights between two steps. Skipped without a GPU. */
#include "bench/floor/floor.h"
#include "device/backend.h"
#include "support/preferring.h"
#include "support/unrecorded.h"
#undef EXPECT_OK
#include "gpu_ranks.h"

enum { ROWS = 12, CALLS = 5 };
#define COUNT(array) (sizeof(array) / sizeof(array)[0])

/* The devices' backend; a copy of it counts passes, and spoils the gradient of a step. */
static const yoke_backend *whole;
static yoke_backend watched;
static int passes;
static enum { NOTHING, FIRST, LAST } spoils; /* of each range of gradients */

static yoke_status watched_shadow(yoke_device *device, yoke_precision precision, uint16_t *shadow,
                                  const float *parameters, size_t elements) {
    passes++;
    return whole->shadow(device, precision, shadow, parameters, elements);
}

static yoke_status watched_check(yoke_device *device, yoke_stream stream, const float *values,
                                 size_t elements, size_t offset, uint64_t *first_bad) {
    const float nan = NAN;
    float *spoiled = (float *)values + (spoils == LAST ? elements - 1 : 0);
    if (spoils != NOTHING) TRY(yoke_device_upload(device, stream, spoiled, &nan, sizeof nan));
    return whole->check_finite(device, stream, values, elements, offset, first_bad);
}

static void watch(yoke_devices *devices) {
    whole = yoke_devices_at(devices, 0)->backend;
    watched = *whole;
    watched.shadow = watched_shadow;
    watched.check_finite = watched_check;
    for (int k = 0; k < yoke_devices_count(devices); k++)
        yoke_devices_at(devices, k)->backend = &watched;
}

static const char *const in_update[] = {"shadow in the update", NULL};
static const char *const in_pass[] = {"shadow in a pass", NULL};

/* Engines. */

typedef struct course {
    const char *list;
    yoke_schedule schedule;
    int accumulate, shards;
    bool adamw;
    double clip_norm;
    bool frozen; /* the last layer */
    bool averages;
    bool float16;
} course;

static const yoke_parameter_group frozen_layer = {
    .struct_size = sizeof frozen_layer, .pattern = "fc.*", .frozen = true};

static check_engine open_engine(const yoke_model *model, const course *of, bool by_update) {
    yoke_optimizer_options adamw = YOKE_ADAMW_OPTIONS_INIT, sgd = YOKE_SGD_OPTIONS_INIT;
    yoke_optimizer_options optimizer = of->adamw ? adamw : sgd;
    yoke_data_parallel_options options = {.schedule = of->schedule,
                                          .precision = of->float16 ? YOKE_FLOAT16 : YOKE_BFLOAT16,
                                          .loss_scale = 1,
                                          .algorithm = YOKE_ALGORITHM_DIRECT,
                                          .collectives = YOKE_COLLECTIVES_COPY,
                                          .batch = ROWS,
                                          .accumulate = of->accumulate,
                                          .shards = of->shards,
                                          .ema_decay = of->averages ? 0.9 : 0,
                                          .first_bucket_bytes = 1,
                                          .bucket_bytes = 1,
                                          .groups = &frozen_layer,
                                          .group_count = of->frozen};
    optimizer.learning_rate = 0.05;
    optimizer.clip_norm = of->clip_norm;
    if (!of->adamw) optimizer.momentum = 0.9;
    check_engine engine = check_engine_preferring(model, of->list, options, &optimizer,
                                                  by_update ? in_update : in_pass);
    watch(engine.devices);
    return engine;
}

static double step(const check_engine *engine, uint32_t seed, int rows) {
    check_batch batch = check_batch_make(rows, seed);
    yoke_step_result result = {.struct_size = sizeof result};
    EXPECT_OK(yoke_data_parallel_step(engine->parallel, &batch.batch, YOKE_OPTIMIZER_LEARNING_RATE,
                                      &result));
    check_batch_free(&batch);
    return result.loss;
}

static double evaluate(const check_engine *engine) {
    check_batch batch = check_batch_make(ROWS, 77);
    yoke_step_result result = {.struct_size = sizeof result};
    EXPECT_OK(yoke_data_parallel_evaluate(engine->parallel, &batch.batch, &result));
    check_batch_free(&batch);
    return result.loss;
}

/* Everybody else who writes weights. A step follows each; the answer is a loss, or 0. */

static void write_tensor(const check_engine *engine, const char *name) {
    float values[CHECK_CLASSES * 8];
    for (size_t i = 0; i < COUNT(values); i++)
        values[i] = (float)check_noise((uint32_t)i);
    EXPECT_OK(yoke_data_parallel_write(engine->parallel, name, values, COUNT(values)));
}

static double write_by_name(const check_engine *engine) {
    write_tensor(engine, "fc.weight");
    return 0;
}

static double give_state(const check_engine *engine) {
    yoke_state *state = NULL;
    EXPECT_OK(yoke_state_create(&state, engine->parallel, false));
    EXPECT_OK(yoke_state_take(state, engine->parallel));
    step(engine, 40, ROWS);
    EXPECT_OK(yoke_state_give(engine->parallel, state));
    yoke_state_destroy(state);
    return 0;
}

static double use_average(const check_engine *engine) {
    if (engine->parallel->step.options.ema_decay == 0) return 0;
    EXPECT_OK(yoke_data_parallel_use_average(engine->parallel, true));
    double loss = evaluate(engine);
    EXPECT_OK(yoke_data_parallel_use_average(engine->parallel, false));
    return loss;
}

static void reduce_by_hand(const check_engine *engine) {
    EXPECT_OK(yoke_data_parallel_loss_replicas(engine->parallel));
    EXPECT_OK(yoke_data_parallel_backward_replicas(engine->parallel));
    EXPECT_OK(yoke_data_parallel_reduce(engine->parallel));
}

static double update_by_hand(const check_engine *engine) {
    check_batch batch = check_batch_make(3, 50); /* no more than a micro-batch */
    EXPECT_OK(yoke_data_parallel_forward(engine->parallel, &batch.batch, true, NULL));
    reduce_by_hand(engine);
    EXPECT_OK(yoke_data_parallel_update(engine->parallel, YOKE_OPTIMIZER_LEARNING_RATE));
    check_batch_free(&batch);
    return 0;
}

/* Between a forward and its backward, which belong to the weights before the update. */
static double update_before_backward(const check_engine *engine) {
    check_batch batch = check_batch_make(3, 51);
    EXPECT_OK(yoke_data_parallel_forward(engine->parallel, &batch.batch, true, NULL));
    reduce_by_hand(engine);
    EXPECT_OK(yoke_data_parallel_forward(engine->parallel, &batch.batch, true, NULL));
    EXPECT_OK(yoke_data_parallel_update(engine->parallel, YOKE_OPTIMIZER_LEARNING_RATE));
    reduce_by_hand(engine);
    EXPECT_OK(yoke_data_parallel_update(engine->parallel, YOKE_OPTIMIZER_LEARNING_RATE));
    check_batch_free(&batch);
    return 0;
}

/* The update is behind the device, which undoes it; the host learns of it later. */
static double undo_a_step(const check_engine *engine) {
    check_batch batch = check_batch_make(ROWS, 60);
    uint64_t hash;
    check_engine_unrecorded(engine->parallel);
    spoils = FIRST;
    yoke_status status = yoke_data_parallel_step(engine->parallel, &batch.batch, 0.05, NULL);
    spoils = NOTHING;
    if (status == YOKE_OK) status = yoke_data_parallel_hash(engine->parallel, &hash);
    assert_int_equal(status, YOKE_ERROR_NUMERIC);
    check_batch_free(&batch);
    return 0;
}

static double read_weights(const check_engine *engine) {
    return evaluate(engine);
}

static double (*const writers[])(const check_engine *) = {
    write_by_name,          give_state,  use_average, update_by_hand,
    update_before_backward, undo_a_step, read_weights};

/* losses[] of steps and evaluations; their weights' hash. */
typedef struct record {
    double losses[3 * COUNT(writers) + 2];
    uint64_t hash;
} record;

static record train(const yoke_model *model, const course *of, bool by_update) {
    check_engine engine = open_engine(model, of, by_update);
    record gave = {{0}, 0};
    int count = 0;
    gave.losses[count++] = step(&engine, 1, ROWS);
    for (size_t i = 0; i < COUNT(writers); i++) {
        gave.losses[count++] = writers[i](&engine);
        gave.losses[count++] = step(&engine, (uint32_t)i + 2, i % 2 == 0 ? ROWS : ROWS - 5);
        gave.losses[count++] = step(&engine, (uint32_t)i + 20, ROWS);
    }
    gave.losses[count++] = evaluate(&engine);
    EXPECT_OK(yoke_data_parallel_hash(engine.parallel, &gave.hash));
    check_engine_free(&engine);
    return gave;
}

static void a_run_has_the_bits_of_one_with_a_pass(void **state) {
    (void)state;
    static const course courses[] = {
        {"cuda:0", YOKE_SCHEDULE_OVERLAP, 1, 0, false, 0, false, false},
        {"cuda:0", YOKE_SCHEDULE_OVERLAP, 2, 0, true, 0, true, true},
        {"cuda:0", YOKE_SCHEDULE_CLASSIC, 1, 0, true, 0, false, true},
        {"cuda:0", YOKE_SCHEDULE_OVERLAP, 1, 4, false, 0.5, false, false},
        {"3xcuda:0", YOKE_SCHEDULE_OVERLAP, 1, 0, true, 0, true, false},
        {"2xcuda:0", YOKE_SCHEDULE_CLASSIC, 1, 0, false, 0.5, false, true},
        {"2xcuda:0", YOKE_SCHEDULE_SHARDED, 1, 0, true, 0, false, false},
        {"cuda:0", YOKE_SCHEDULE_OVERLAP, 1, 0, true, 0, false, false, true},
        {"2xcuda:0", YOKE_SCHEDULE_OVERLAP, 1, 0, false, 0.5, false, false, true},
    };
    yoke_model *model = check_model(true, 0.2);
    for (size_t i = 0; i < COUNT(courses); i++) {
        record without = train(model, &courses[i], false);
        record with = train(model, &courses[i], true);
        for (size_t k = 0; k < COUNT(with.losses); k++)
            if (with.losses[k] != without.losses[k])
                fail_msg("course %zu, loss %zu: %.17g, with a pass %.17g", i, k, with.losses[k],
                         without.losses[k]);
        assert_true(with.hash == without.hash);
    }
    yoke_model_destroy(model);
}

/* Ranks. Rank 0 writes a tensor, which the other one receives. */

typedef struct rank_task {
    record *records;
    const char *const *names;
} rank_task;

static yoke_status open_rank(check_engine *engine, const yoke_model *model,
                             yoke_process_group *group, const script *play) {
    const rank_task *task = play->detail;
    yoke_data_parallel_options options = {.struct_size = sizeof options,
                                          .precision = YOKE_BFLOAT16,
                                          .algorithm = YOKE_ALGORITHM_DIRECT,
                                          .batch = 2 * ROWS,
                                          .process_group = group};
    return yoke_engine_create(&engine->parallel, model, play->devices[group->rank], NULL, &options,
                              preferring(task->names));
}

static yoke_status train_rank(yoke_process_group *group, const script *play) {
    const rank_task *task = play->detail;
    record *gave = &task->records[group->rank];
    yoke_model *model = check_model(false, 0);
    check_engine engine = {0};
    yoke_status status = open_rank(&engine, model, group, play);
    for (int i = 0; i < CALLS && status == YOKE_OK; i++) {
        if (i == 2 && group->rank == 0) write_by_name(&engine);
        if (i == 2) status = yoke_data_parallel_broadcast(engine.parallel);
        if (status == YOKE_OK) gave->losses[i] = step(&engine, (uint32_t)i, ROWS);
    }
    if (status == YOKE_OK) status = yoke_data_parallel_hash(engine.parallel, &gave->hash);
    yoke_error error = yoke_error_take(status);
    yoke_data_parallel_destroy(engine.parallel);
    yoke_model_destroy(model);
    return yoke_error_restore(&error);
}

static outcome *play_ranks(scene plays, rank_task *task) {
    gpu_ranks ranks = {.world = 2};
    for (int rank = 0; rank < ranks.world; rank++) {
        char list[24];
        snprintf(list, sizeof list, "cuda:%d", rank);
        yoke_devices_options options = {.struct_size = sizeof options, .list = list};
        EXPECT_OK(yoke_devices_open(&ranks.devices[rank], &options));
        watch(ranks.devices[rank]);
    }
    outcome *outcomes = play_threads(&(script){.world = ranks.world,
                                               .timeout_ms = TIMEOUT_MS,
                                               .scene = plays,
                                               .detail = task,
                                               .devices = ranks.devices});
    close_gpus(&ranks);
    return outcomes;
}

static void train_ranks(record *records, const char *const *names) {
    outcome *outcomes = play_ranks(train_rank, &(rank_task){records, names});
    expect_all_well(outcomes, 2);
    free(outcomes);
}

/* A gradient that is not finite, of a batch whose values are. */
static yoke_status spoil_rank(yoke_process_group *group, const script *play) {
    yoke_model *model = check_model(false, 0);
    check_engine engine = {0};
    check_batch batch = check_batch_make(ROWS, 60);
    yoke_status status = open_rank(&engine, model, group, play);
    if (status == YOKE_OK)
        status = yoke_data_parallel_step(engine.parallel, &batch.batch, 0.05, NULL);
    yoke_error error = yoke_error_take(status);
    yoke_data_parallel_destroy(engine.parallel);
    yoke_model_destroy(model);
    check_batch_free(&batch);
    return yoke_error_restore(&error);
}

static void ranks_have_the_bits_of_ranks_with_a_pass(void **state) {
    (void)state;
    record with[2] = {0}, without[2] = {0};
    if (most_gpu_ranks() < 2) skip();
    train_ranks(with, in_update);
    train_ranks(without, in_pass);
    assert_true(with[0].losses[CALLS - 1] != 0);
    assert_memory_equal(with, without, sizeof with);
}

/* Ranks know of it in the step itself, behind the update: its weights are undone, and so must be
 * the shadow that the search for the layer reads. */
static void a_bad_gradient_of_a_rank_blames_no_layer(void **state) {
    (void)state;
    if (most_gpu_ranks() < 2) skip();
    spoils = LAST; /* a weight, which the shadow has, too */
    outcome *outcomes = play_ranks(spoil_rank, &(rank_task){.names = in_update});
    spoils = NOTHING;
    for (int rank = 0; rank < 2; rank++) {
        assert_int_equal(outcomes[rank].error.status, YOKE_ERROR_NUMERIC);
        assert_null(strstr(outcomes[rank].error.text, "first at"));
    }
    free(outcomes);
}

/* Passes. Where updates write the shadow, those are no part of a recording. */

static void no_pass_follows_an_update_of_the_root(void **state) {
    (void)state;
    static const course alone = {.list = "cuda:0",
                                 .schedule = YOKE_SCHEDULE_OVERLAP,
                                 .accumulate = 1},
                        two = {
                            .list = "2xcuda:0", .schedule = YOKE_SCHEDULE_OVERLAP, .accumulate = 1};
    yoke_model *model = check_model(true, 0);
    check_engine engine = open_engine(model, &alone, true);
    passes = 0;
    step(&engine, 1, ROWS);
    assert_int_equal(passes, 1);
    for (uint32_t i = 0; i < CALLS; i++)
        step(&engine, i, ROWS - (int)i % 2);
    evaluate(&engine);
    assert_int_equal(passes, 1);
    write_by_name(&engine);
    for (uint32_t i = 0; i < CALLS; i++)
        step(&engine, i, ROWS);
    assert_int_equal(passes, 2);
    check_engine_free(&engine);

    engine = open_engine(model, &two, true); /* create has sent the weights, and the shadow */
    passes = 0;
    for (uint32_t i = 0; i < CALLS; i++)
        step(&engine, i, ROWS);
    assert_int_equal(passes, 1);
    write_by_name(&engine);
    for (uint32_t i = 0; i < CALLS; i++)
        step(&engine, i, ROWS);
    assert_int_equal(passes, 3);
    check_engine_free(&engine);
    yoke_model_destroy(model);
}

/* Choosing. */

/* The choice of who writes the shadow; NULL: there was none. */
static const char *chosen_algorithm(const check_engine *engine) {
    const char *key, *name;
    double milliseconds;
    for (int i = 0; yoke_data_parallel_algorithm(engine->parallel, i, &key, &name, &milliseconds);
         i++)
        if (strncmp(key, "update of ", 10) == 0) return name;
    return NULL;
}

static const char *listed_algorithm(const check_engine *engine) {
    static bench_kernel_call calls[128];
    int count = 0;
    EXPECT_OK(bench_kernel_calls(engine->parallel, 1, calls, (int)COUNT(calls), &count));
    assert_in_range(count, 1, COUNT(calls));
    assert_string_equal(calls[count - 1].operation, "update");
    return calls[count - 1].algorithm;
}

static void who_writes_the_shadow_is_measured_and_listed(void **state) {
    (void)state;
    static const struct {
        const char *list;
        yoke_precision precision;
        yoke_schedule schedule;
        double ema_decay;
        bool chosen, listed;
    } rows[] = {{"cuda:0", YOKE_BFLOAT16, YOKE_SCHEDULE_OVERLAP, 0.9, true, true},
                {"2xcuda:0", YOKE_BFLOAT16, YOKE_SCHEDULE_CLASSIC, 0, false, true},
                {"2xcuda:0", YOKE_BFLOAT16, YOKE_SCHEDULE_OVERLAP, 0.9, false, true},
                {"2xcuda:0", YOKE_BFLOAT16, YOKE_SCHEDULE_SHARDED, 0, false, true},
                {"2xcuda:0", YOKE_BFLOAT16, YOKE_SCHEDULE_SHARDED, 0.9, false, false},
                {"cuda:0", YOKE_FLOAT32, YOKE_SCHEDULE_OVERLAP, 0, false, false}};
    yoke_model *model = check_model(true, 0);
    for (size_t i = 0; i < COUNT(rows); i++) {
        yoke_data_parallel_options options = {.precision = rows[i].precision,
                                              .schedule = rows[i].schedule,
                                              .ema_decay = rows[i].ema_decay,
                                              .batch = ROWS};
        check_engine engine = check_engine_on(model, rows[i].list, options, NULL);
        const char *algorithm = chosen_algorithm(&engine), *listed = listed_algorithm(&engine);
        assert_int_equal(algorithm != NULL, rows[i].chosen);
        assert_int_equal(listed != NULL, rows[i].listed);
        if (algorithm != NULL) assert_string_equal(listed, algorithm);
        if (algorithm == NULL && listed != NULL) assert_string_equal(listed, in_update[0]);
        check_engine_free(&engine);
    }
    yoke_model_destroy(model);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(who_writes_the_shadow_is_measured_and_listed),
        cmocka_unit_test(a_run_has_the_bits_of_one_with_a_pass),
        cmocka_unit_test(ranks_have_the_bits_of_ranks_with_a_pass),
        cmocka_unit_test(a_bad_gradient_of_a_rank_blames_no_layer),
        cmocka_unit_test(no_pass_follows_an_update_of_the_root),
    };
    setenv("YOKE_TEST_BACKEND", "cuda", 1);
    return RUN_ON_DEVICES(tests, NULL, NULL);
}
