/* SPDX-License-Identifier: Apache-2.0 */
/* Devices that train apart: an asynchronous run is repeated from its order of pushes, bit for bit,
 * and keeps its bound; corrections of stale gradients and the means of local SGD are those of a
 * reference in double. */
#include "trainer_check.h"

#include "data/data.h"
#include "train/trainer_parts.h"
#include "yoke/preset.h"
#include "yoke/stages.h"

enum { BATCH = 10, RUN_STEPS = 24, WORKERS = 3, VALUES = 4096 };

static const yoke_optimizer_options plain = {
    .struct_size = sizeof plain, .learning_rate = 0.2, .momentum = 0};

static yoke_trainer_options apart(log_of_run *run, yoke_mode mode, int devices) {
    yoke_trainer_options options = small(run);
    memset(run, 0, sizeof *run);
    options.model = "mlp:width=16";
    options.mode = mode;
    options.devices = devices_of(devices);
    options.batch = BATCH;
    options.steps = RUN_STEPS;
    options.optimizer = &plain;
    options.drop_last = true;
    return options;
}

/* All weights of a run that has ended. */
static size_t read_weights(const log_of_run *run, float *values) {
    const yoke_model *model = yoke_trainer_model(run->trainer);
    size_t count = 0;
    for (int i = 0; i < yoke_model_tensor_count(model); i++) {
        yoke_tensor_info info = {.struct_size = sizeof info};
        EXPECT_OK(yoke_model_tensor(model, i, &info));
        assert_in_range(count + info.count, 1, VALUES);
        EXPECT_OK(yoke_data_parallel_read(yoke_trainer_engine(run->trainer), info.name,
                                          values + count, info.count));
        count += info.count;
    }
    return count;
}

static uint64_t hash_of_run(log_of_run *run) {
    uint64_t hash;
    EXPECT_OK(yoke_data_parallel_hash(yoke_trainer_engine(run->trainer), &hash));
    return hash;
}

static uint64_t train_to_hash(log_of_run *run, const yoke_trainer_options *options) {
    EXPECT_OK(train(run, options));
    assert_int_equal(run->steps, RUN_STEPS);
    uint64_t hash = hash_of_run(run);
    yoke_trainer_destroy(run->trainer);
    return hash;
}

/* Asynchronous. */

static void one_worker_is_sequential(void **state) {
    (void)state;
    log_of_run one, other;
    yoke_trainer_options options = apart(&one, YOKE_MODE_ASYNC, 1);
    uint64_t alone = train_to_hash(&one, &options);
    options = apart(&other, YOKE_MODE_SINGLE, 1);
    assert_true(alone == train_to_hash(&other, &options));
    assert_memory_equal(one.losses, other.losses, sizeof one.losses);
}

static void a_run_is_replayed_bit_for_bit(void **state) {
    (void)state;
    char place[128];
    yoke_async_options async = YOKE_ASYNC_OPTIONS_INIT;
    log_of_run run, again;
    async.compensation = 0.5;
    async.divide_rate = true;
    for (int round = 0; round < 4; round++) {
        yoke_trainer_options options = apart(&run, YOKE_MODE_ASYNC, WORKERS);
        small_engine.straggler = round % WORKERS;
        small_engine.straggler_factor = 3;
        options.asynchronous = &async;
        async.record_order = in_folder("order", place);
        async.replay_order = NULL;
        uint64_t hash = train_to_hash(&run, &options);
        async.record_order = NULL;
        async.replay_order = place;
        for (int i = 0; i < 5; i++) {
            options = apart(&again, YOKE_MODE_ASYNC, WORKERS);
            options.asynchronous = &async;
            assert_true(train_to_hash(&again, &options) == hash);
            assert_memory_equal(run.losses, again.losses, sizeof run.losses);
        }
        unlink(place);
    }
}

static void no_push_is_staler_than_the_bound(void **state) {
    (void)state;
    for (int bound = WORKERS - 1; bound < WORKERS + 3; bound++) {
        yoke_async_options async = YOKE_ASYNC_OPTIONS_INIT;
        log_of_run run;
        uint64_t counts[YOKE_STALENESS_LIMIT], all = 0;
        yoke_trainer_options options = apart(&run, YOKE_MODE_ASYNC, WORKERS);
        small_engine.straggler_factor = 8;
        async.max_staleness = bound;
        options.asynchronous = &async;
        EXPECT_OK(train(&run, &options));
        EXPECT_OK(yoke_trainer_staleness(run.trainer, counts));
        for (int i = 0; i < YOKE_STALENESS_LIMIT; i++) {
            all += counts[i];
            if (i > bound) assert_int_equal(counts[i], 0);
        }
        assert_int_equal(all, RUN_STEPS);
        yoke_trainer_destroy(run.trainer);
    }
}

/* The other workers had batches when the run was stopped; it goes on behind those that count. */
static void nobody_computes_behind_a_run_that_was_stopped(void **state) {
    (void)state;
    log_of_run run;
    uint64_t counts[YOKE_STALENESS_LIMIT], all = 0;
    yoke_trainer_options options = apart(&run, YOKE_MODE_ASYNC, WORKERS);
    small_engine.straggler_factor = 8;
    run.stop_after = 7;
    assert_int_equal(train(&run, &options), YOKE_ERROR_CANCELLED);
    assert_int_equal(yoke_crew_busy(run.trainer->apart.crew), 0);
    run.first_step = run.steps;
    EXPECT_OK(yoke_trainer_run(run.trainer));
    EXPECT_OK(yoke_trainer_staleness(run.trainer, counts));
    for (int i = 0; i < YOKE_STALENESS_LIMIT; i++)
        all += counts[i];
    assert_int_equal(all, RUN_STEPS);
    yoke_trainer_destroy(run.trainer);
}

/* The same in double, with one engine for the gradients. */
typedef struct reference {
    yoke_devices *devices;
    yoke_model *model;
    yoke_data_parallel *engine;
    yoke_dataset *rows;
    yoke_loader *loader;
    double weights[VALUES], pulled[WORKERS][VALUES], gradient[VALUES];
    size_t count;
} reference;

static void read_all(reference *own, bool gradient, double *to) {
    float values[VALUES];
    own->count = 0;
    for (int i = 0; i < yoke_model_tensor_count(own->model); i++) {
        yoke_tensor_info info = {.struct_size = sizeof info};
        EXPECT_OK(yoke_model_tensor(own->model, i, &info));
        EXPECT_OK(gradient
                      ? yoke_data_parallel_read_gradient(own->engine, info.name, values, info.count)
                      : yoke_data_parallel_read(own->engine, info.name, values, info.count));
        for (size_t k = 0; k < info.count; k++)
            to[own->count++] = (double)values[k];
    }
}

static void write_all(const reference *own, const double *from) {
    float values[VALUES];
    size_t at = 0;
    for (int i = 0; i < yoke_model_tensor_count(own->model); i++) {
        yoke_tensor_info info = {.struct_size = sizeof info};
        EXPECT_OK(yoke_model_tensor(own->model, i, &info));
        for (size_t k = 0; k < info.count; k++)
            values[k] = (float)from[at++];
        EXPECT_OK(yoke_data_parallel_write(own->engine, info.name, values, info.count));
    }
}

static void reference_open(reference *own, const yoke_trainer_options *options) {
    yoke_devices_options one = {.struct_size = sizeof one, .list = "cpu", .threads = 1};
    yoke_data_parallel_options engine = small_engine;
    yoke_dataset_info info = {.struct_size = sizeof info};
    EXPECT_OK(yoke_devices_open(&own->devices, &one));
    EXPECT_OK(yoke_dataset_open(&own->rows, options->dataset, YOKE_SPLIT_TRAIN));
    EXPECT_OK(yoke_dataset_describe(own->rows, &info));
    EXPECT_OK(yoke_model_preset(&own->model, options->model, info.shape, info.classes, NULL));
    engine.batch = BATCH;
    engine.seed = options->seed;
    EXPECT_OK(yoke_data_parallel_create(&own->engine, own->model, own->devices, &plain, &engine));
    const yoke_loader_options loader = {.struct_size = sizeof loader,
                                        .batch = BATCH,
                                        .seed = options->seed,
                                        .shuffle = true,
                                        .drop_last = true};
    EXPECT_OK(yoke_loader_create(&own->loader, own->rows, &loader));
    EXPECT_OK(yoke_loader_begin_at(own->loader, 0, 0));
    read_all(own, false, own->weights);
}

static void reference_close(reference *own) {
    yoke_data_parallel_destroy(own->engine);
    yoke_loader_destroy(own->loader);
    yoke_dataset_close(own->rows);
    yoke_model_destroy(own->model);
    yoke_devices_close(own->devices);
}

/* The next batch, of whichever epoch. */
static yoke_batch next_batch(reference *own, uint64_t *epoch) {
    yoke_batch batch = {.struct_size = sizeof batch};
    EXPECT_OK(yoke_loader_next(own->loader, &batch, NULL));
    if (batch.rows > 0) return batch;
    EXPECT_OK(yoke_loader_begin_at(own->loader, ++*epoch, 0));
    EXPECT_OK(yoke_loader_next(own->loader, &batch, NULL));
    return batch;
}

static void gradient_at(reference *own, const double *weights, const yoke_batch *batch) {
    write_all(own, weights);
    EXPECT_OK(yoke_data_parallel_scatter(own->engine, batch));
    EXPECT_OK(yoke_data_parallel_forward_replicas(own->engine, true));
    EXPECT_OK(yoke_data_parallel_loss_replicas(own->engine));
    EXPECT_OK(yoke_data_parallel_backward_replicas(own->engine));
    EXPECT_OK(yoke_data_parallel_reduce(own->engine));
    read_all(own, true, own->gradient);
}

static void expect_weights(const reference *own, const log_of_run *run) {
    float values[VALUES];
    assert_int_equal(read_weights(run, values), own->count);
    for (size_t i = 0; i < own->count; i++)
        assert_true(fabs((double)values[i] - own->weights[i]) < 2e-5);
}

/* Two workers take turns in one epoch: after the first push each is one update behind. */
static void stale_gradients_are_corrected(void **state) {
    (void)state;
    char place[128];
    log_of_run run;
    yoke_async_options async = YOKE_ASYNC_OPTIONS_INIT;
    yoke_trainer_options options = apart(&run, YOKE_MODE_ASYNC, 2);
    static reference own;
    uint64_t epoch = 0;
    enum { PUSHES = 5 }; /* batches of an epoch */
    options.steps = PUSHES;
    options.asynchronous = &async;
    async.compensation = 3;
    async.divide_rate = true;
    async.record_order = in_folder("order", place);
    EXPECT_OK(train(&run, &options)); /* for the lines before the order */
    yoke_trainer_destroy(run.trainer);
    char text[8192];
    FILE *file = fopen(place, "r+");
    assert_non_null(file);
    size_t bytes = fread(text, 1, sizeof text - 1, file);
    text[bytes] = '\0';
    char *pushes = strstr(text, "\npushes\n");
    assert_non_null(pushes);
    rewind(file);
    assert_int_equal(ftruncate(fileno(file), 0), 0);
    fprintf(file, "%.*s0\n0\n1\n0\n1\n", (int)(pushes + 8 - text), text);
    fclose(file);
    async.record_order = NULL;
    async.replay_order = place;
    options = apart(&run, YOKE_MODE_ASYNC, 2);
    options.steps = PUSHES;
    options.asynchronous = &async;
    EXPECT_OK(train(&run, &options));
    reference_open(&own, &options);
    /* Both pull version 0, for batches 0 and 1. Then 0 pushes batch 0 (0 updates behind), batch 2
     * (0), 1 its batch 1 (2 behind), 0 its batch 3 (1), 1 its batch 4 (1). */
    static const struct {
        int worker, batch, staleness;
    } order[PUSHES] = {{0, 0, 0}, {0, 2, 0}, {1, 1, 2}, {0, 3, 1}, {1, 4, 1}};
    static float inputs[PUSHES][BATCH * 64];
    static int32_t labels[PUSHES][BATCH];
    for (int i = 0; i < PUSHES; i++) {
        yoke_batch batch = next_batch(&own, &epoch);
        memcpy(inputs[i], batch.inputs, sizeof inputs[i]);
        memcpy(labels[i], batch.labels, sizeof labels[i]);
    }
    memcpy(own.pulled[0], own.weights, sizeof own.weights);
    memcpy(own.pulled[1], own.weights, sizeof own.weights);
    for (int i = 0; i < PUSHES; i++) {
        const double *then = own.pulled[order[i].worker];
        yoke_batch batch = {.struct_size = sizeof batch,
                            .rows = BATCH,
                            .inputs = inputs[order[i].batch],
                            .labels = labels[order[i].batch]};
        double rate = plain.learning_rate / (order[i].staleness > 1 ? order[i].staleness : 1);
        gradient_at(&own, then, &batch);
        for (size_t k = 0; k < own.count; k++) {
            double g = own.gradient[k];
            own.weights[k] -= rate * (g + 3 * g * g * (own.weights[k] - then[k]));
        }
        memcpy(own.pulled[order[i].worker], own.weights, sizeof own.weights);
    }
    expect_weights(&own, &run);
    reference_close(&own);
    yoke_trainer_destroy(run.trainer);
    unlink(place);
}

/* Local. */

static void local_steps_end_in_their_mean(void **state) {
    (void)state;
    static const yoke_local_options cases[] = {
        {sizeof(yoke_local_options), 1, 0, 1, 0},
        {sizeof(yoke_local_options), 4, 0, 1, 0},
        {sizeof(yoke_local_options), 4, 9, 1, 0},
        {sizeof(yoke_local_options), 3, 0, 0.7, 0.9},
    };
    for (size_t c = 0; c < sizeof cases / sizeof cases[0]; c++) {
        const yoke_local_options *local = &cases[c];
        log_of_run run;
        static reference own;
        static double own_weights[2][VALUES], outer[VALUES];
        uint64_t epoch = 0, met = 0;
        yoke_trainer_options options = apart(&run, YOKE_MODE_LOCAL, 2);
        options.steps = 12;
        options.local = local;
        options.evaluate_every = -1;
        EXPECT_OK(train(&run, &options));
        reference_open(&own, &options);
        memset(outer, 0, sizeof outer);
        for (int k = 0; k < 2; k++)
            memcpy(own_weights[k], own.weights, sizeof own.weights);
        for (uint64_t step = 1; step <= 12; step++) {
            uint64_t before = epoch;
            yoke_batch batch = next_batch(&own, &epoch);
            bool ends = epoch != before; /* the epoch before ended with a mean */
            for (int mean = ends; mean >= 0; mean--) {
                uint64_t done = mean ? step - 1 : step;
                if (!mean) {
                    for (int k = 0; k < 2; k++) {
                        yoke_batch half = batch;
                        half.rows = BATCH / 2;
                        half.inputs += (size_t)k * (BATCH / 2) * 64;
                        half.labels += (size_t)k * (BATCH / 2);
                        half.inputs_count = half.labels_count = 0;
                        gradient_at(&own, own_weights[k], &half);
                        for (size_t i = 0; i < own.count; i++)
                            own_weights[k][i] -= plain.learning_rate * own.gradient[i];
                    }
                }
                uint64_t every = step <= local->from ? 1 : (uint64_t)local->every;
                if (done == met || (!mean && done - met < every && step < 12)) continue;
                met = done;
                for (size_t i = 0; i < own.count; i++) {
                    double g = own.weights[i] - (own_weights[0][i] + own_weights[1][i]) / 2;
                    outer[i] = local->outer_momentum * outer[i] + g;
                    own.weights[i] -= local->outer_rate * (g + local->outer_momentum * outer[i]);
                    own_weights[0][i] = own_weights[1][i] = own.weights[i];
                }
            }
        }
        expect_weights(&own, &run);
        reference_close(&own);
        yoke_trainer_destroy(run.trainer);
    }
}

/* Bad input. */

static void expect_failure(const yoke_trainer_options *options, yoke_status status,
                           const char *words) {
    log_of_run *run = options->payload;
    yoke_status found = train(run, options);
    if (found != status || strstr(yoke_last_error(), words) == NULL)
        fail_msg("%s: %s, but '%s' was expected", yoke_status_name(found), yoke_last_error(),
                 words);
    yoke_trainer_destroy(run->trainer);
    run->trainer = NULL;
}

static void what_does_not_go_together_is_refused(void **state) {
    (void)state;
    char place[128];
    log_of_run run;
    yoke_async_options async = YOKE_ASYNC_OPTIONS_INIT;
    yoke_local_options local = YOKE_LOCAL_OPTIONS_INIT;
    yoke_trainer_options options = apart(&run, YOKE_MODE_ASYNC, WORKERS);
    options.asynchronous = &async;
    async.max_staleness = 1;
    expect_failure(&options, YOKE_ERROR_ARGUMENT, "max_staleness is 1");
    async.max_staleness = 0;
    options.survive = true;
    expect_failure(&options, YOKE_ERROR_ARGUMENT, "mode async does not go together with survive");
    options.survive = false;
    small_engine.shards = 4;
    expect_failure(&options, YOKE_ERROR_ARGUMENT, "with shards");
    small_engine.shards = 0;
    async.replay_order = in_folder("nothing", place);
    expect_failure(&options, YOKE_ERROR_MISSING, "nothing");
    async.replay_order = NULL;
    async.record_order = in_folder("order", place);
    train_to_hash(&run, &options);
    async.record_order = NULL;
    async.replay_order = place;
    options = apart(&run, YOKE_MODE_ASYNC, WORKERS - 1);
    options.asynchronous = &async;
    expect_failure(&options, YOKE_ERROR_ARGUMENT,
                   "is the order of another run: it has \"workers 3\"");
    options = apart(&run, YOKE_MODE_ASYNC, WORKERS);
    options.asynchronous = &async;
    assert_int_equal(truncate(place, 0), 0);
    expect_failure(&options, YOKE_ERROR_ARGUMENT, "is the order of another run");
    unlink(place);
    options = apart(&run, YOKE_MODE_LOCAL, 2);
    options.local = &local;
    local.outer_momentum = 1;
    expect_failure(&options, YOKE_ERROR_ARGUMENT, "outer_momentum 1");
}

static void an_order_that_ends_early_is_an_error(void **state) {
    (void)state;
    char place[128];
    log_of_run run;
    struct stat file;
    yoke_async_options async = YOKE_ASYNC_OPTIONS_INIT;
    yoke_trainer_options options = apart(&run, YOKE_MODE_ASYNC, WORKERS);
    options.asynchronous = &async;
    async.record_order = in_folder("order", place);
    train_to_hash(&run, &options);
    async.record_order = NULL;
    async.replay_order = place;
    assert_int_equal(stat(place, &file), 0);
    assert_int_equal(truncate(place, file.st_size - 8), 0);
    options = apart(&run, YOKE_MODE_ASYNC, WORKERS);
    options.asynchronous = &async;
    expect_failure(&options, YOKE_ERROR_DATA, "ends, and this run has another push");
    unlink(place);
}

static void an_order_that_cannot_be_written_is_an_error(void **state) {
    (void)state;
    char place[128];
    log_of_run run;
    yoke_async_options async = YOKE_ASYNC_OPTIONS_INIT;
    yoke_trainer_options options = apart(&run, YOKE_MODE_ASYNC, WORKERS);
    options.asynchronous = &async;
    async.record_order = "/dev/full";
    expect_failure(&options, YOKE_ERROR_IO, "/dev/full: cannot write the order of the pushes");
    async.record_order = options.metrics = in_folder("order", place);
    expect_failure(&options, YOKE_ERROR_ARGUMENT, "order");
    assert_int_not_equal(access(place, F_OK), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_worker_is_sequential),
        cmocka_unit_test(a_run_is_replayed_bit_for_bit),
        cmocka_unit_test(no_push_is_staler_than_the_bound),
        cmocka_unit_test(nobody_computes_behind_a_run_that_was_stopped),
        cmocka_unit_test(stale_gradients_are_corrected),
        cmocka_unit_test(local_steps_end_in_their_mean),
        cmocka_unit_test(what_does_not_go_together_is_refused),
        cmocka_unit_test(an_order_that_ends_early_is_an_error),
        cmocka_unit_test(an_order_that_cannot_be_written_is_an_error),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
