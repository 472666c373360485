/* SPDX-License-Identifier: Apache-2.0 */
/* The trainer with parts of the host program: a model, a loss, metrics, rows, and words for errors.
 */
#include "host_rows.h"

#include "data/data.h"
#include "yoke/preset.h"

static void a_model_of_the_host_trains_as_the_preset_of_its_layers(void **state) {
    (void)state;
    host_rows *rows = make_rows();
    log_of_run run = {0};
    yoke_model *model = NULL;
    yoke_trainer_options options = on_rows(&run, rows);
    uint64_t preset = run_to_the_end(&run, &options);
    EXPECT_OK(yoke_model_preset(&model, MODEL, (yoke_shape){FEATURES, 1, 1, true}, CLASSES, NULL));
    options.model = NULL;
    options.custom_model = model;
    assert_true(run_to_the_end(&run, &options) == preset);
    yoke_trainer_summary summary = {.struct_size = sizeof summary};
    EXPECT_OK(yoke_trainer_create(&run.trainer, &options));
    EXPECT_OK(yoke_trainer_summarize(run.trainer, &summary));
    assert_string_equal(summary.model, MODEL);
    assert_ptr_equal(yoke_trainer_model(run.trainer), model);
    yoke_trainer_destroy(run.trainer);
    yoke_model_destroy(model); /* the trainer borrowed it */
    free_rows(rows);
}

static void a_model_that_does_not_fit_the_rows_is_refused(void **state) {
    (void)state;
    host_rows *rows = make_rows();
    log_of_run run = {0};
    yoke_loss_options mse = {.struct_size = sizeof mse, .kind = YOKE_LOSS_MSE};
    yoke_model *model = make_model("own", CLASSES, NULL), *wide = make_model("wide", 5, NULL);
    yoke_model *regression = make_model("regression", CLASSES, &mse);
    yoke_trainer_options options = on_rows(&run, rows);
    options.custom_model = model;
    expect_refused(&options, "model " MODEL " and custom_model are both set");
    options.model = NULL;
    options.label_smoothing = 0.1;
    expect_refused(&options, "custom_model has a loss");
    options.label_smoothing = 0;
    options.custom_model = wide;
    expect_refused(&options, "model 'wide' has 5 outputs, arrays has 3 classes");
    options.custom_model = regression;
    expect_refused(&options, "the MSE loss of model 'regression' compares with targets, arrays");
    options.custom_model = model;
    options.training_rows = options.test_rows = NULL;
    options.dataset = SMALL;
    expect_refused(&options, "model 'own' reads 12x1x1, rows of synthetic are 1x8x8");
    yoke_model_destroy(model);
    yoke_model_destroy(wide);
    yoke_model_destroy(regression);
    free_rows(rows);
}

/* Losses. */

static void the_options_of_the_loss_are_those_of_the_preset(void **state) {
    (void)state;
    host_rows *rows = make_rows();
    log_of_run run = {0};
    yoke_trainer_options options = on_rows(&run, rows);
    uint64_t plain = run_to_the_end(&run, &options);
    int counts[CLASSES] = {0};
    float weights[CLASSES];
    for (int row = 0; row < ROWS; row++)
        counts[rows->labels[row]]++;
    for (int c = 0; c < CLASSES; c++)
        weights[c] = (float)((double)ROWS / (CLASSES * counts[c]));
    yoke_loss_options loss = YOKE_LOSS_OPTIONS_INIT;
    loss.class_weights = weights;
    loss.weight_count = CLASSES;
    options.loss = &loss;
    uint64_t weighted = run_to_the_end(&run, &options);
    options.loss = NULL;
    options.balanced_class_weights = true;
    assert_true(run_to_the_end(&run, &options) == weighted);
    assert_true(weighted != plain);
    options.loss = &loss;
    expect_refused(&options, "class_weights are set, too");
    options.balanced_class_weights = false;
    options.label_smoothing = 0.1;
    expect_refused(&options, "give it in loss->label_smoothing");
    options.label_smoothing = 0;
    loss = (yoke_loss_options){.struct_size = sizeof loss, .kind = YOKE_LOSS_BCE};
    expect_refused(&options, "arrays has labels: its loss is cross-entropy");
    free_rows(rows);
}

static void balanced_weights_count_the_rows_that_are_left(void **state) {
    (void)state;
    host_rows *rows = make_rows();
    log_of_run run = {0};
    enum { LEFT = 33 };
    EXPECT_OK(yoke_dataset_limit(rows->dataset, LEFT));
    yoke_trainer_options options = on_rows(&run, rows);
    int counts[CLASSES] = {0}, of_first[CLASSES] = {0};
    float weights[CLASSES];
    for (size_t row = 0; row < LEFT; row++) {
        counts[rows->labels[yoke_dataset_stored(rows->dataset, row)]]++;
        of_first[rows->labels[row]]++;
    }
    assert_true(memcmp(counts, of_first, sizeof counts) != 0);
    for (int c = 0; c < CLASSES; c++)
        weights[c] = (float)((double)LEFT / (CLASSES * (double)counts[c]));
    yoke_loss_options loss = YOKE_LOSS_OPTIONS_INIT;
    loss.class_weights = weights;
    loss.weight_count = CLASSES;
    options.loss = &loss;
    uint64_t weighted = run_to_the_end(&run, &options);
    options.loss = NULL;
    options.balanced_class_weights = true;
    assert_true(run_to_the_end(&run, &options) == weighted);
    free_rows(rows);
}

static void what_a_callback_says_reaches_the_caller(void **state) {
    (void)state;
    host_rows *rows = make_rows();
    log_of_run run = {0};
    custom_loss own = {.fails_at = 3};
    const yoke_custom_loss loss = {sizeof loss, compute, &own};
    yoke_trainer_options options = on_rows(&run, rows);
    options.custom_loss = &loss;
    assert_int_equal(train(&run, &options), YOKE_ERROR_DATA);
    assert_non_null(strstr(yoke_last_error(), "custom_loss: 16 rows are too few"));
    assert_int_equal(run.steps, 2);
    yoke_trainer_destroy(run.trainer);

    own = (custom_loss){.fails_at = 1, .wordless = true};
    run = (log_of_run){0};
    assert_int_equal(train(&run, &options), YOKE_ERROR_DATA);
    assert_non_null(strstr(yoke_last_error(), "custom_loss returned YOKE_ERROR_DATA"));
    yoke_trainer_destroy(run.trainer);

    own = (custom_loss){.not_finite = true};
    run = (log_of_run){0};
    EXPECT_OK(yoke_trainer_create(&run.trainer, &options));
    uint64_t before = hash_of(run.trainer);
    assert_int_equal(yoke_trainer_run(run.trainer), YOKE_ERROR_NUMERIC);
    assert_non_null(strstr(yoke_last_error(), "the loss is not finite"));
    assert_true(hash_of(run.trainer) == before);
    yoke_trainer_destroy(run.trainer);
    free_rows(rows);
}

/* Metrics. */

static yoke_status add_accuracy(void *payload, const yoke_outputs *rows, double *sums) {
    (void)payload;
    assert_null(rows->gradients);
    for (int row = 0; row < rows->batch->rows; row++) {
        const float *x = rows->outputs[0] + (size_t)row * CLASSES;
        int best = 0;
        for (int j = 1; j < CLASSES; j++)
            if (x[j] > x[best]) best = j;
        sums[0] += best == rows->batch->labels[row];
        sums[1]++;
    }
    return YOKE_OK;
}

static double errors(void *payload, const double *sums) {
    return *(const double *)payload * (sums[1] - sums[0]);
}

static yoke_status refuse(void *payload, const yoke_outputs *rows, double *sums) {
    (void)payload, (void)rows, (void)sums;
    return yoke_error_raise(YOKE_ERROR_IO, "the file of scores is gone");
}

typedef struct measured {
    int evaluations;
    double accuracy, errors, event_accuracy;
    int rows;
} measured;

static void on_measured(const yoke_event *event, void *payload) {
    measured *seen = payload;
    if (event->kind != YOKE_EVENT_EVALUATION) {
        assert_int_equal(event->metric_count, 0);
        return;
    }
    assert_int_equal(event->metric_count, 2);
    assert_string_equal(event->metrics[0].name, "accuracy");
    assert_string_equal(event->metrics[1].name, "errors");
    *seen = (measured){seen->evaluations + 1, event->metrics[0].value, event->metrics[1].value,
                       event->accuracy, event->rows};
}

static double two = 2;

/* NAME's list is static: the trainer copies it. */
static const yoke_metric two_metrics[] = {
    {sizeof(yoke_metric), "accuracy", add_accuracy, NULL, NULL},
    {sizeof(yoke_metric), "errors", add_accuracy, errors, &two}};

static void expect_measured(const measured *seen) {
    assert_int_equal(seen->evaluations, 2);
    assert_int_equal(seen->rows, ROWS);
    assert_true(seen->accuracy == seen->event_accuracy && seen->accuracy > 0);
    assert_true(fabs(seen->errors - 2 * ROWS * (1 - seen->accuracy)) < 1e-9);
}

static void metrics_are_of_all_rows_and_come_with_each_evaluation(void **state) {
    (void)state;
    char path[128], line[512] = "";
    host_rows *rows = make_rows();
    measured seen = {0};
    yoke_trainer_options options = on_rows(NULL, rows);
    options.devices = devices_of(3);
    options.evaluate_every = 1;
    options.custom_metrics = two_metrics;
    options.metric_count = 2;
    options.on_event = on_measured;
    options.payload = &seen;
    options.metrics = in_folder("metrics", path);
    yoke_trainer *trainer = NULL;
    EXPECT_OK(yoke_trainer_create(&trainer, &options));
    EXPECT_OK(yoke_trainer_run(trainer));
    yoke_trainer_destroy(trainer);
    expect_measured(&seen);
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    for (char next[512]; fgets(next, sizeof next, file) != NULL;)
        snprintf(line, sizeof line, "%s", next);
    fclose(file);
    assert_non_null(strstr(line, "\"metrics\":{\"accuracy\":"));
    assert_non_null(strstr(line, "\"errors\":"));
    remove(path);
    free_rows(rows);
}

static void ranks_add_up_metrics_and_weigh_a_loss_of_the_host_by_rows(void **state) {
    (void)state;
    host_rows *rows = make_rows();
    log_of_run one = {0};
    custom_loss own[RANK_RUNS] = {{0}, {0}};
    yoke_custom_loss losses[RANK_RUNS];
    rank_run *ranks = calloc(RANK_RUNS, sizeof *ranks);
    measured seen[RANK_RUNS] = {{0}, {0}};
    yoke_trainer_options options = on_rows(&one, rows);
    options.batch = 15; /* 8 and 7 rows, and a batch of 5: 3 and 2 */
    run_to_the_end(&one, &options);
    for (int k = 0; k < RANK_RUNS; k++) {
        losses[k] = (yoke_custom_loss){sizeof losses[k], compute, &own[k]};
        ranks[k].options = options;
        ranks[k].options.devices = "cpu";
        ranks[k].options.custom_loss = &losses[k];
        ranks[k].options.payload = &ranks[k].run;
    }
    run_ranks(ranks);
    expect_all_well(ranks);
    for (int step = 0; step < one.steps; step++)
        assert_true(fabs(ranks[0].run.losses[step] - one.losses[step]) <= 1e-5);
    assert_true(fabs(ranks[1].run.evaluation.loss - one.evaluation.loss) <= 1e-5);
    for (int k = 0; k < RANK_RUNS; k++) {
        ranks[k].options.custom_loss = NULL;
        ranks[k].options.evaluate_every = 1;
        ranks[k].options.custom_metrics = two_metrics;
        ranks[k].options.metric_count = 2;
        ranks[k].options.on_event = on_measured;
        ranks[k].options.payload = &seen[k];
    }
    run_ranks(ranks);
    expect_all_well(ranks);
    for (int k = 0; k < RANK_RUNS; k++)
        expect_measured(&seen[k]);
    free(ranks);
    free_rows(rows);
}

/* A rank that stopped earlier, or had fewer metrics, would leave the others waiting. */
static void ranks_that_would_stop_or_measure_differently_are_refused(void **state) {
    (void)state;
    host_rows *rows = make_rows();
    log_of_run one = {0};
    for (int metrics = 0; metrics < 2; metrics++) {
        rank_run *ranks = calloc(RANK_RUNS, sizeof *ranks);
        for (int k = 0; k < RANK_RUNS; k++) {
            ranks[k].options = on_rows(&one, rows);
            ranks[k].options.devices = "cpu";
            ranks[k].options.evaluate_every = 1;
            ranks[k].options.payload = &ranks[k].run;
            ranks[k].options.custom_metrics = two_metrics;
            ranks[k].options.metric_count = metrics ? k + 1 : 2;
            ranks[k].options.patience = metrics ? 0 : k + 1;
        }
        run_ranks(ranks);
        for (int k = 0; k < RANK_RUNS; k++) {
            assert_int_equal(ranks[k].error.status, YOKE_ERROR_PEER);
            assert_non_null(strstr(ranks[k].error.text, metrics ? "metric_count 1" : "patience 1"));
        }
        free(ranks);
    }
    free_rows(rows);
}

static void a_metric_that_fails_ends_the_run_in_its_words(void **state) {
    (void)state;
    host_rows *rows = make_rows();
    log_of_run run = {0};
    const yoke_metric metric = {sizeof metric, "score", refuse, NULL, NULL};
    const yoke_metric twice[] = {two_metrics[0], two_metrics[0]};
    yoke_trainer_options options = on_rows(&run, rows);
    options.custom_metrics = &metric;
    options.metric_count = 1;
    assert_int_equal(train(&run, &options), YOKE_ERROR_IO);
    assert_non_null(strstr(yoke_last_error(), "score: the file of scores is gone"));
    yoke_trainer_destroy(run.trainer);
    options.custom_metrics = twice;
    options.metric_count = 2;
    expect_refused(&options, "both named 'accuracy'");
    options.custom_metrics = NULL;
    expect_refused(&options, "metric_count is 2 and custom_metrics is NULL");
    free_rows(rows);
}

/* Rows, a batch at a time. */

typedef struct row_maker {
    const host_rows *rows;
    int calls, most, fails_at; /* fails_at 0: never */
} row_maker;

static yoke_status read_rows(void *payload, const int64_t *rows, int count, float *inputs,
                             int32_t *labels, float *targets) {
    row_maker *own = payload;
    assert_null(targets);
    own->calls++;
    if (count > own->most) own->most = count;
    if (own->calls == own->fails_at) return yoke_error_raise(YOKE_ERROR_IO, "the camera is off");
    for (int i = 0; i < count; i++) {
        memcpy(inputs + (size_t)i * FEATURES, own->rows->inputs[rows[i]],
               sizeof own->rows->inputs[0]);
        labels[i] = own->rows->labels[rows[i]];
    }
    return YOKE_OK;
}

static yoke_dataset *dataset_of(row_maker *maker) {
    yoke_row_source source = {.struct_size = sizeof source,
                              .rows = ROWS,
                              .shape = {FEATURES, 1, 1, true},
                              .classes = CLASSES,
                              .payload = maker,
                              .read_batch = read_rows};
    yoke_dataset *dataset = NULL;
    EXPECT_OK(yoke_dataset_from_callback(&dataset, &source));
    return dataset;
}

static void rows_made_a_batch_at_a_time_train_as_arrays(void **state) {
    (void)state;
    host_rows *rows = make_rows();
    log_of_run run = {0};
    row_maker maker = {.rows = rows};
    yoke_trainer_options options = on_rows(&run, rows);
    uint64_t arrays = run_to_the_end(&run, &options);
    yoke_dataset *dataset = dataset_of(&maker);
    options.training_rows = options.test_rows = dataset;
    assert_true(run_to_the_end(&run, &options) == arrays);
    assert_int_equal(maker.most, 16);
    options.balanced_class_weights = true;
    expect_refused(&options, "its labels are not known before they are read");
    options.balanced_class_weights = false;
    maker = (row_maker){.rows = rows, .fails_at = 1};
    run = (log_of_run){0};
    assert_int_equal(train(&run, &options), YOKE_ERROR_IO);
    assert_non_null(strstr(yoke_last_error(), "16 rows of the row source, the first "));
    assert_non_null(strstr(yoke_last_error(), ": the camera is off"));
    yoke_trainer_destroy(run.trainer);
    yoke_dataset_close(dataset);
    free_rows(rows);
}

/* Weights in mid-run. */

typedef struct saver {
    yoke_trainer *trainer;
    const char *path;
    uint64_t hash;
} saver;

static void save_after_three(const yoke_event *event, void *payload) {
    saver *own = payload;
    if (event->kind != YOKE_EVENT_STEP || event->step != 3) return;
    EXPECT_OK(yoke_weights_save(yoke_trainer_engine(own->trainer), yoke_trainer_model(own->trainer),
                                own->path));
    own->hash = hash_of(own->trainer);
}

static void weights_can_be_saved_from_an_event_and_change_nothing(void **state) {
    (void)state;
    char path[128];
    host_rows *rows = make_rows();
    log_of_run run = {0};
    saver own = {.path = in_folder("three", path)};
    yoke_trainer_options options = on_rows(&run, rows);
    options.devices = devices_of(2);
    uint64_t plain = run_to_the_end(&run, &options);
    options.on_event = save_after_three;
    options.payload = &own;
    EXPECT_OK(yoke_trainer_create(&own.trainer, &options));
    EXPECT_OK(yoke_trainer_run(own.trainer));
    assert_true(hash_of(own.trainer) == plain);
    EXPECT_OK(
        yoke_weights_load(yoke_trainer_engine(own.trainer), yoke_trainer_model(own.trainer), path));
    assert_true(hash_of(own.trainer) == own.hash && own.hash != plain);
    yoke_trainer_destroy(own.trainer);
    remove(path);
    free_rows(rows);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_model_of_the_host_trains_as_the_preset_of_its_layers),
        cmocka_unit_test(a_model_that_does_not_fit_the_rows_is_refused),
        cmocka_unit_test(the_options_of_the_loss_are_those_of_the_preset),
        cmocka_unit_test(balanced_weights_count_the_rows_that_are_left),
        cmocka_unit_test(what_a_callback_says_reaches_the_caller),
        cmocka_unit_test(metrics_are_of_all_rows_and_come_with_each_evaluation),
        cmocka_unit_test(ranks_add_up_metrics_and_weigh_a_loss_of_the_host_by_rows),
        cmocka_unit_test(ranks_that_would_stop_or_measure_differently_are_refused),
        cmocka_unit_test(a_metric_that_fails_ends_the_run_in_its_words),
        cmocka_unit_test(rows_made_a_batch_at_a_time_train_as_arrays),
        cmocka_unit_test(weights_can_be_saved_from_an_event_and_change_nothing),
    };
    return RUN_ON_DEVICES(tests, make_folder, remove_folder);
}
