/* SPDX-License-Identifier: Apache-2.0 */
/* The trainer: a run from synthetic images to its summary. */
#include "trainer_check.h"

#include "train/metrics.h"
#include "train/trainer_parts.h"

/* Learning. */

static void the_loss_falls(void **state) {
    (void)state;
    log_of_run run = {0};
    yoke_trainer_options options = small(&run);
    options.epochs = 12;
    EXPECT_OK(train(&run, &options));
    assert_int_equal(run.ready, 1);
    assert_int_equal(run.steps, 12 * 4);
    assert_true(run.losses[47] < 0.7 * run.losses[0]);
    yoke_trainer_destroy(run.trainer);
}

static void a_short_last_batch_is_trained_on(void **state) {
    (void)state;
    log_of_run run = {0};
    yoke_trainer_options options = small(&run);
    EXPECT_OK(train(&run, &options));
    static const int rows[4] = {16, 16, 16, 2};
    assert_int_equal(run.steps, 4);
    assert_memory_equal(run.rows, rows, sizeof rows);
    yoke_trainer_destroy(run.trainer);
}

static void steps_end_a_run_within_an_epoch_or_after_several(void **state) {
    (void)state;
    static const uint64_t wanted[] = {3, 9};
    for (int i = 0; i < 2; i++) {
        log_of_run run = {0};
        yoke_trainer_options options = small(&run);
        options.steps = wanted[i];
        options.epochs = 100;
        EXPECT_OK(train(&run, &options));
        assert_int_equal(run.steps, wanted[i]);
        assert_int_equal(run.evaluations, 1);
        yoke_trainer_destroy(run.trainer);
    }
}

static void any_number_of_devices_and_any_schedule_gives_the_same_losses(void **state) {
    (void)state;
    static const struct {
        int devices;
        yoke_schedule schedule;
    } others[] = {
        {2, YOKE_SCHEDULE_OVERLAP}, {2, YOKE_SCHEDULE_CLASSIC}, {3, YOKE_SCHEDULE_SHARDED}};
    log_of_run one = {0};
    yoke_trainer_options options = small(&one);
    options.epochs = 2;
    EXPECT_OK(train(&one, &options));
    yoke_trainer_destroy(one.trainer);
    for (int i = 0; i < 3; i++) {
        log_of_run several = {0};
        options.devices = devices_of(others[i].devices);
        small_engine.schedule = others[i].schedule;
        options.payload = &several;
        EXPECT_OK(train(&several, &options));
        assert_int_equal(several.steps, one.steps);
        for (int s = 0; s < one.steps; s++)
            assert_true(fabs(several.losses[s] - one.losses[s]) < 1e-5 * one.losses[s]);
        yoke_trainer_destroy(several.trainer);
    }
}

static void mode_single_keeps_the_first_device_alone(void **state) {
    (void)state;
    log_of_run run = {0};
    yoke_trainer_options options = small(&run);
    char list[64], first[16] = "cuda:0";
    bool several = devices_are_cpus() || devices_gpus() > 1;
    if (several) snprintf(first, sizeof first, "%s:1", devices_backend());
    snprintf(list, sizeof list, "%s%s%s", several ? first : "2x", several ? "," : first,
             several ? devices_backend() : "");
    options.devices = list;
    options.mode = YOKE_MODE_SINGLE;
    options.steps = 1;
    EXPECT_OK(train(&run, &options));
    yoke_device_info device = {.struct_size = sizeof device};
    EXPECT_OK(yoke_devices_describe(run.trainer->run.devices, 0, &device));
    assert_string_equal(device.name, first);
    yoke_trainer_summary summary = {.struct_size = sizeof summary};
    EXPECT_OK(yoke_trainer_summarize(run.trainer, &summary));
    assert_int_equal(summary.devices, 1);
    assert_string_equal(summary.mode, "single");
    yoke_trainer_destroy(run.trainer);
}

static void the_same_seed_gives_the_same_weights(void **state) {
    (void)state;
    uint64_t hashes[3];
    for (int i = 0; i < 3; i++) {
        log_of_run run = {0};
        yoke_trainer_options options = small(&run);
        options.seed = i == 2 ? 8 : 7;
        EXPECT_OK(train(&run, &options));
        yoke_trainer_summary summary = {.struct_size = sizeof summary};
        EXPECT_OK(yoke_trainer_summarize(run.trainer, &summary));
        hashes[i] = summary.weights_hash;
        yoke_trainer_destroy(run.trainer);
    }
    assert_true(hashes[0] == hashes[1]);
    assert_true(hashes[0] != hashes[2]);
}

/* Evaluation. */

/* Against the outputs of the whole test split at once, by the formula. */
static void evaluation_is_exact_over_every_test_row(void **state) {
    (void)state;
    log_of_run run = {0};
    yoke_trainer_options options = small(&run);
    options.devices = devices_of(3);
    options.batch = 4; /* 10 test rows: 4, 4, 2 */
    EXPECT_OK(train(&run, &options));
    assert_int_equal(run.evaluations, 1);
    assert_int_equal(run.evaluation.rows, 10);
    yoke_dataset *dataset;
    yoke_loader *loader;
    yoke_batch batch = {.struct_size = sizeof batch};
    yoke_loader_options loading = {.struct_size = sizeof loading, .batch = 1};
    EXPECT_OK(yoke_dataset_open(&dataset, SMALL, YOKE_SPLIT_TEST));
    EXPECT_OK(yoke_loader_create(&loader, dataset, &loading));
    EXPECT_OK(yoke_loader_begin(loader, 0));
    double loss = 0;
    int correct = 0;
    for (int row = 0; row < 10; row++) {
        float y[3];
        EXPECT_OK(yoke_loader_next(loader, &batch, NULL));
        assert_int_equal(batch.rows, 1);
        EXPECT_OK(yoke_data_parallel_forward(yoke_trainer_engine(run.trainer), &batch, false, y));
        int label = batch.labels[0], best = y[1] > y[0];
        if (y[2] > y[best]) best = 2;
        loss += log(exp(y[0]) + exp(y[1]) + exp(y[2])) - y[label];
        correct += best == label;
    }
    assert_true(fabs(run.evaluation.loss - loss / 10) < 1e-5 * loss);
    assert_true(fabs(run.evaluation.accuracy - correct / 10.0) < 1e-12);
    yoke_loader_destroy(loader);
    yoke_dataset_close(dataset);
    yoke_trainer_destroy(run.trainer);
}

static void evaluation_comes_when_it_was_asked_for(void **state) {
    (void)state;
    if (!devices_are_cpus()) skip(); /* the host decides */
    static const struct {
        int every, count;
    } cases[] = {{-1, 0}, {0, 1}, {1, 5}, {2, 3}}; /* 2: after epochs 2, 4 and the last */
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        log_of_run run = {0};
        yoke_trainer_options options = small(&run);
        options.epochs = 5;
        options.evaluate_every = cases[i].every;
        EXPECT_OK(train(&run, &options));
        assert_int_equal(run.evaluations, cases[i].count);
        yoke_trainer_summary summary = {.struct_size = sizeof summary};
        EXPECT_OK(yoke_trainer_summarize(run.trainer, &summary));
        assert_true((summary.accuracy < 0) == (cases[i].count == 0));
        yoke_trainer_destroy(run.trainer);
    }
}

/* Stopping and failing. */

static void stop_finishes_the_step_and_saves(void **state) {
    (void)state;
    char path[128];
    log_of_run run = {.stop_after = 3}, next = {0};
    yoke_trainer_options options = small(&run);
    options.epochs = 1000;
    options.save = in_folder("stopped", path);
    assert_int_equal(train(&run, &options), YOKE_ERROR_CANCELLED);
    assert_non_null(strstr(yoke_last_error(), "after step 3 of 4000"));
    assert_int_equal(run.steps, 3);
    assert_int_equal(run.saved, 1);
    assert_int_equal(run.evaluations, 0);
    uint64_t hash = hash_of(run.trainer);
    yoke_step_result result = {.struct_size = sizeof result};
    EXPECT_OK(yoke_trainer_evaluate(run.trainer, &result)); /* the stop has been heard */
    assert_int_equal(result.rows, 10);
    yoke_trainer_destroy(run.trainer);
    options.init = path;
    options.save = NULL;
    options.payload = &next;
    EXPECT_OK(yoke_trainer_create(&next.trainer, &options));
    assert_true(hash_of(next.trainer) == hash);
    yoke_trainer_destroy(next.trainer);
    assert_int_equal(unlink(path), 0);
}

static void stop_twice(const yoke_event *event, void *payload) {
    log_of_run *run = payload;
    if (event->kind != YOKE_EVENT_STEP) return;
    run->steps++;
    /* Within an epoch of 4 steps, and at the end of one. */
    if (event->step == 3 || event->step == 8) yoke_trainer_stop(run->trainer);
}

static void a_resumed_run_equals_an_uninterrupted_one(void **state) {
    (void)state;
    log_of_run whole = {0}, stopped = {0};
    yoke_trainer_options options = small(&whole);
    options.epochs = 3;
    EXPECT_OK(train(&whole, &options));
    options.payload = &stopped;
    options.on_event = stop_twice;
    assert_int_equal(train(&stopped, &options), YOKE_ERROR_CANCELLED);
    assert_int_equal(yoke_trainer_run(stopped.trainer), YOKE_ERROR_CANCELLED);
    assert_int_equal(stopped.steps, 8);
    EXPECT_OK(yoke_trainer_run(stopped.trainer));
    assert_int_equal(stopped.steps, whole.steps);
    assert_true(hash_of(stopped.trainer) == hash_of(whole.trainer));
    yoke_trainer_destroy(whole.trainer);
    yoke_trainer_destroy(stopped.trainer);
}

static void a_stop_that_comes_too_late_stops_nothing_later(void **state) {
    (void)state;
    char path[128];
    log_of_run run = {.stop_when_saved = true};
    yoke_step_result result = {.struct_size = sizeof result};
    yoke_trainer_options options = small(&run);
    options.save = in_folder("late", path);
    EXPECT_OK(train(&run, &options));
    EXPECT_OK(yoke_trainer_evaluate(run.trainer, &result));
    yoke_trainer_destroy(run.trainer);
    assert_int_equal(unlink(path), 0);
}

static void a_learning_rate_of_zero_learns_nothing(void **state) {
    (void)state;
    log_of_run run = {0};
    yoke_trainer_options options = small(&run);
    const yoke_optimizer_options still = {.struct_size = sizeof still, .momentum = 0.9};
    options.optimizer = &still;
    EXPECT_OK(yoke_trainer_create(&run.trainer, &options));
    uint64_t before = hash_of(run.trainer);
    EXPECT_OK(yoke_trainer_run(run.trainer));
    assert_true(run.steps > 0);
    assert_true(hash_of(run.trainer) == before);
    yoke_trainer_destroy(run.trainer);
}

static void a_loss_that_is_not_finite_names_a_layer_and_saves_the_weights_before(void **state) {
    (void)state;
    char path[128];
    log_of_run run = {0};
    yoke_trainer_options options = small(&run);
    const yoke_optimizer_options steep = {
        .struct_size = sizeof steep, .learning_rate = 1e30, .momentum = 0.9};
    options.optimizer = &steep;
    options.epochs = 100;
    options.save = in_folder("last", path);
    assert_int_equal(train(&run, &options), YOKE_ERROR_NUMERIC);
    assert_non_null(strstr(yoke_last_error(), "fc"));
    assert_true(run.steps > 0 && run.steps < 400);
    assert_int_equal(run.saved, 1);
    assert_int_equal(access(path, R_OK), 0);
    yoke_trainer_destroy(run.trainer);
    assert_int_equal(unlink(path), 0);
}

static void impossible_options_are_refused_with_the_value(void **state) {
    (void)state;
    static const yoke_data_parallel_options sized = {.struct_size = sizeof sized, .batch = 4};
    static const struct {
        yoke_trainer_options options;
        yoke_status status;
        const char *word;
    } cases[] = {
        {{.batch = 51, .dataset = SMALL}, YOKE_ERROR_ARGUMENT, "51"},
        {{.batch = -1, .dataset = SMALL}, YOKE_ERROR_ARGUMENT, "-1"},
        {{.evaluate_every = -2, .dataset = SMALL}, YOKE_ERROR_ARGUMENT, "-2"},
        {{.model = "mpl", .dataset = SMALL, .batch = 10}, YOKE_ERROR_ARGUMENT, "mlp"},
        {{.devices = "2xcpo", .dataset = SMALL}, YOKE_ERROR_ARGUMENT, "cpo"},
        {{.dataset = "cifar10:/no-such-folder"}, YOKE_ERROR_MISSING, "/no-such-folder"},
        {{.dataset = SMALL, .model = "mlp", .batch = 10, .init = "/no-such-file"},
         YOKE_ERROR_MISSING,
         "/no-such-file"},
        {{.dataset = SMALL, .checkpoint_every = 1.5, .checkpoint_unit = YOKE_CHECKPOINT_STEPS},
         YOKE_ERROR_ARGUMENT,
         "1.5: a whole number"},
        {{.dataset = SMALL, .checkpoint_every = 0.5}, YOKE_ERROR_ARGUMENT, "0.5: a whole number"},
        {{.dataset = SMALL, .keep_best = true, .evaluate_every = -1},
         YOKE_ERROR_ARGUMENT,
         "keep_best needs evaluations"},
        {{.dataset = SMALL, .resume = "a", .init = "b"}, YOKE_ERROR_ARGUMENT, "a and init b"},
        {{.dataset = SMALL, .resume_anyway = "batch"}, YOKE_ERROR_ARGUMENT, "batch needs resume"},
        {{.dataset = SMALL, .engine = &sized}, YOKE_ERROR_ARGUMENT, "sets batch, seed"},
        {{.dataset = SMALL, .resume = "a", .resume_anyway = "batsch"},
         YOKE_ERROR_ARGUMENT,
         "'batsch' is no option that a resume compares"},
        {{.dataset = SMALL, .model = "mlp", .batch = 10, .label_smoothing = 1},
         YOKE_ERROR_ARGUMENT,
         "1"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        yoke_trainer *trainer;
        yoke_trainer_options options = cases[i].options;
        options.struct_size = sizeof options;
        options.threads = 1;
        assert_int_equal(yoke_trainer_create(&trainer, &options), cases[i].status);
        assert_null(trainer);
        if (strstr(yoke_last_error(), cases[i].word) == NULL)
            fail_msg("'%s' is not in: %s", cases[i].word, yoke_last_error());
    }
}

/* Summary. */

static void the_summary_says_what_happened(void **state) {
    (void)state;
    log_of_run run = {0};
    yoke_trainer_options options = small(&run);
    options.devices = devices_of(2);
    small_engine.schedule = YOKE_SCHEDULE_SHARDED;
    EXPECT_OK(train(&run, &options));
    yoke_trainer_summary summary = {.struct_size = sizeof summary};
    EXPECT_OK(yoke_trainer_summarize(run.trainer, &summary));
    assert_string_equal(summary.mode, "dp");
    assert_string_equal(summary.schedule, "sharded");
    assert_string_equal(summary.model, MODEL);
    assert_string_equal(summary.dataset, SMALL);
    assert_string_equal(summary.precision, "float32");
    assert_int_equal(summary.devices, 2);
    assert_int_equal(summary.batch, 16);
    assert_int_equal(summary.steps, 4);
    assert_true(summary.step_ms_median > 0 && summary.step_ms_p90 >= summary.step_ms_median);
    assert_true(fabs(summary.images_per_second * summary.step_ms_median / 16e3 - 1) < 1e-9);
    assert_true(summary.load_wait_share >= 0 && summary.load_wait_share <= 1);
    assert_true(summary.loss == run.evaluation.loss);
    assert_true(summary.accuracy == run.evaluation.accuracy);
    assert_true(summary.peak_bytes > 4 * summary.parameters);
    assert_true(summary.weights_hash == hash_of(run.trainer));
    yoke_trainer_destroy(run.trainer);
}

/* Rows of the host program. */

typedef struct host_rows {
    float inputs[50 * 64];
    int32_t labels[50];
    yoke_dataset *dataset;
} host_rows;

/* A split of SMALL, as a host program would bring it. */
static void read_rows(host_rows *rows, yoke_split split) {
    yoke_dataset *drawn;
    yoke_loader *loader;
    yoke_batch batch = {.struct_size = sizeof batch};
    EXPECT_OK(yoke_dataset_open(&drawn, SMALL, split));
    yoke_dataset_info info = {.struct_size = sizeof info};
    EXPECT_OK(yoke_dataset_describe(drawn, &info));
    yoke_loader_options loading = {.struct_size = sizeof loading, .batch = (int)info.rows};
    EXPECT_OK(yoke_loader_create(&loader, drawn, &loading));
    EXPECT_OK(yoke_loader_begin(loader, 0));
    EXPECT_OK(yoke_loader_next(loader, &batch, NULL));
    memcpy(rows->inputs, batch.inputs, info.rows * 64 * sizeof(float));
    memcpy(rows->labels, batch.labels, info.rows * sizeof(int32_t));
    yoke_loader_destroy(loader);
    yoke_dataset_close(drawn);
    yoke_arrays arrays = {.struct_size = sizeof arrays,
                          .rows = info.rows,
                          .shape = info.shape,
                          .inputs = rows->inputs,
                          .classes = info.classes,
                          .labels = rows->labels};
    EXPECT_OK(yoke_dataset_from_arrays(&rows->dataset, &arrays));
}

static void rows_of_the_host_train_to_the_weights_of_the_same_dataset(void **state) {
    (void)state;
    host_rows training, test;
    uint64_t hashes[2];
    double losses[2];
    read_rows(&training, YOKE_SPLIT_TRAIN);
    read_rows(&test, YOKE_SPLIT_TEST);
    for (int i = 0; i < 2; i++) {
        log_of_run run = {0};
        yoke_trainer_options options = small(&run);
        options.epochs = 2;
        options.dataset = i == 0 ? SMALL : NULL;
        options.training_rows = i == 0 ? NULL : training.dataset;
        options.test_rows = i == 0 ? NULL : test.dataset;
        EXPECT_OK(train(&run, &options));
        assert_int_equal(run.evaluation.rows, 10);
        hashes[i] = hash_of(run.trainer);
        losses[i] = run.evaluation.loss;
        yoke_trainer_summary summary = {.struct_size = sizeof summary};
        EXPECT_OK(yoke_trainer_summarize(run.trainer, &summary));
        assert_string_equal(summary.dataset, i == 0 ? SMALL : "arrays");
        assert_int_equal(yoke_model_parameter_count(yoke_trainer_model(run.trainer)),
                         summary.parameters);
        yoke_trainer_destroy(run.trainer);
    }
    assert_true(hashes[0] == hashes[1]);
    assert_true(losses[0] == losses[1]);
    yoke_dataset_close(test.dataset); /* borrowed: still the host's */
    yoke_dataset_close(training.dataset);
}

static void rows_of_the_host_that_do_not_fit_are_refused(void **state) {
    (void)state;
    host_rows training;
    log_of_run run = {0};
    yoke_trainer *trainer;
    yoke_dataset *other;
    yoke_step_result result = {.struct_size = sizeof result};
    read_rows(&training, YOKE_SPLIT_TRAIN);
    EXPECT_OK(yoke_dataset_open(&other, "synthetic:1x8x8,classes=4,rows=50", YOKE_SPLIT_TEST));
    yoke_trainer_options options = small(&run);
    options.training_rows = training.dataset;
    assert_int_equal(yoke_trainer_create(&trainer, &options), YOKE_ERROR_ARGUMENT);
    assert_non_null(strstr(yoke_last_error(), "both set"));
    options.dataset = NULL;
    assert_int_equal(yoke_trainer_create(&trainer, &options), YOKE_ERROR_ARGUMENT);
    assert_non_null(strstr(yoke_last_error(), "evaluate_every is 0 and test_rows is NULL"));
    options.test_rows = other;
    assert_int_equal(yoke_trainer_create(&trainer, &options), YOKE_ERROR_ARGUMENT);
    assert_non_null(strstr(yoke_last_error(), "with 4 classes"));
    options.training_rows = NULL;
    assert_int_equal(yoke_trainer_create(&trainer, &options), YOKE_ERROR_ARGUMENT);
    assert_non_null(strstr(yoke_last_error(), "training_rows is NULL"));
    options.training_rows = training.dataset;
    options.test_rows = NULL;
    options.evaluate_every = -1;
    EXPECT_OK(train(&run, &options));
    assert_int_equal(yoke_trainer_evaluate(run.trainer, &result), YOKE_ERROR_ARGUMENT);
    assert_non_null(strstr(yoke_last_error(), "test_rows is NULL"));
    yoke_trainer_destroy(run.trainer);
    yoke_dataset_close(other);
    yoke_dataset_close(training.dataset);
}

static void quantiles_of_a_long_run_stay_true_in_fixed_memory(void **state) {
    (void)state;
    static yoke_step_times times;
    assert_true(yoke_step_times_quantile(&times, 0.5) == 0);
    yoke_step_times_add(&times, 4);
    assert_true(yoke_step_times_quantile(&times, 0.9) == 4);
    times = (yoke_step_times){0};
    for (int i = 0; i < 100000; i++)
        yoke_step_times_add(&times, 1 + i % 100); /* 1 .. 100 */
    assert_true(times.count <= YOKE_STEP_TIMES && times.count >= YOKE_STEP_TIMES / 2);
    assert_true(fabs(yoke_step_times_quantile(&times, 0.5) - 50.5) < 3);
    assert_true(fabs(yoke_step_times_quantile(&times, 0.9) - 90.5) < 3);
}

/* It does nothing, so it leaves the last error to its caller, too. */
static void destroy_takes_null(void **state) {
    (void)state;
    assert_int_equal(yoke_trainer_create(NULL, NULL), YOKE_ERROR_ARGUMENT);
    char before[256];
    snprintf(before, sizeof before, "%s", yoke_last_error());
    yoke_trainer_destroy(NULL);
    assert_true(before[0] != '\0');
    assert_string_equal(yoke_last_error(), before);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_loss_falls),
        cmocka_unit_test(a_short_last_batch_is_trained_on),
        cmocka_unit_test(steps_end_a_run_within_an_epoch_or_after_several),
        cmocka_unit_test(any_number_of_devices_and_any_schedule_gives_the_same_losses),
        cmocka_unit_test(mode_single_keeps_the_first_device_alone),
        cmocka_unit_test(the_same_seed_gives_the_same_weights),
        cmocka_unit_test(evaluation_is_exact_over_every_test_row),
        cmocka_unit_test(evaluation_comes_when_it_was_asked_for),
        cmocka_unit_test(stop_finishes_the_step_and_saves),
        cmocka_unit_test(a_resumed_run_equals_an_uninterrupted_one),
        cmocka_unit_test(a_stop_that_comes_too_late_stops_nothing_later),
        cmocka_unit_test(a_learning_rate_of_zero_learns_nothing),
        cmocka_unit_test(a_loss_that_is_not_finite_names_a_layer_and_saves_the_weights_before),
        cmocka_unit_test(impossible_options_are_refused_with_the_value),
        cmocka_unit_test(the_summary_says_what_happened),
        cmocka_unit_test(rows_of_the_host_train_to_the_weights_of_the_same_dataset),
        cmocka_unit_test(rows_of_the_host_that_do_not_fit_are_refused),
        cmocka_unit_test(quantiles_of_a_long_run_stay_true_in_fixed_memory),
        cmocka_unit_test(destroy_takes_null),
    };
    return RUN_ON_DEVICES(tests, make_folder, remove_folder);
}
