/* The trainer with parts of the host program: a model, a loss, metrics, rows, and words for errors.
 */
#include "rank_runs.h"

#include "data/data.h"
#include "yoke/preset.h"

enum { ROWS = 50, FEATURES = 12, CLASSES = 3 };

/* Rows of three clouds, the second of them rare. */
typedef struct host_rows {
    float inputs[ROWS][FEATURES];
    int32_t labels[ROWS];
    yoke_dataset *dataset;
} host_rows;

static host_rows *make_rows(void) {
    host_rows *rows = calloc(1, sizeof *rows);
    assert_non_null(rows);
    for (int row = 0; row < ROWS; row++) {
        rows->labels[row] = row % 7 == 0 ? 1 : row % 2 * 2;
        for (int i = 0; i < FEATURES; i++)
            rows->inputs[row][i] =
                (float)(sin(1.7 * row + 0.9 * i * i) + (i % CLASSES == rows->labels[row]));
    }
    yoke_arrays arrays = {.struct_size = sizeof arrays,
                          .rows = ROWS,
                          .shape = {FEATURES, 1, 1, true},
                          .inputs = rows->inputs[0],
                          .classes = CLASSES,
                          .labels = rows->labels};
    EXPECT_OK(yoke_dataset_from_arrays(&rows->dataset, &arrays));
    return rows;
}

static void free_rows(host_rows *rows) {
    yoke_dataset_close(rows->dataset);
    free(rows);
}

static yoke_trainer_options on_rows(log_of_run *run, const host_rows *rows) {
    yoke_trainer_options options = small(run);
    options.dataset = NULL;
    options.training_rows = options.test_rows = rows->dataset;
    options.epochs = 2;
    return options;
}

/* Runs to the end; returns the hash of the weights. */
static uint64_t run_to_the_end(log_of_run *run, const yoke_trainer_options *options) {
    *run = (log_of_run){0};
    EXPECT_OK(train(run, options));
    uint64_t hash = hash_of(run->trainer);
    yoke_trainer_destroy(run->trainer);
    return hash;
}

static void expect_refused(const yoke_trainer_options *options, const char *words) {
    yoke_trainer *trainer = NULL;
    assert_int_equal(yoke_trainer_create(&trainer, options), YOKE_ERROR_ARGUMENT);
    if (strstr(yoke_last_error(), words) == NULL)
        fail_msg("\"%s\" lacks \"%s\"", yoke_last_error(), words);
}

/* A model of the host. */

static yoke_model *make_model(const char *name, int outputs, const yoke_loss_options *loss) {
    yoke_model *model = NULL;
    yoke_linear_options fc1 = YOKE_LINEAR_OPTIONS_INIT, fc2 = YOKE_LINEAR_OPTIONS_INIT;
    fc1.name = "fc1";
    fc1.out_features = 16;
    fc2.name = "fc2";
    fc2.out_features = outputs;
    EXPECT_OK(yoke_model_create(&model, name, (yoke_shape){FEATURES, 1, 1, true}));
    yoke_value value = yoke_relu(model, yoke_linear(model, yoke_model_input(model), &fc1));
    EXPECT_OK(yoke_model_finish(model, yoke_linear(model, value, &fc2), loss));
    return model;
}

static void a_model_of_the_host_trains_as_the_preset_of_its_layers(void **state) {
    (void)state;
    host_rows *rows = make_rows();
    log_of_run run = {0};
    yoke_model *model = NULL;
    yoke_trainer_options options = on_rows(&run, rows);
    uint64_t preset = run_to_the_end(&run, &options);
    EXPECT_OK(yoke_model_preset(&model, "mlp", (yoke_shape){FEATURES, 1, 1, true}, CLASSES, NULL));
    options.model = NULL;
    options.own_model = model;
    assert_true(run_to_the_end(&run, &options) == preset);
    yoke_trainer_summary summary = {.struct_size = sizeof summary};
    EXPECT_OK(yoke_trainer_create(&run.trainer, &options));
    EXPECT_OK(yoke_trainer_summarize(run.trainer, &summary));
    assert_string_equal(summary.model, "mlp");
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
    options.own_model = model;
    expect_refused(&options, "model mlp and own_model are both set");
    options.model = NULL;
    options.label_smoothing = 0.1;
    expect_refused(&options, "own_model has a loss");
    options.label_smoothing = 0;
    options.own_model = wide;
    expect_refused(&options, "model 'wide' has 5 outputs, arrays has 3 classes");
    options.own_model = regression;
    expect_refused(&options, "the MSE loss of model 'regression' compares with targets, arrays");
    options.own_model = model;
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

/* torch.nn.functional.cross_entropy, by hand. */
typedef struct own_loss {
    int calls, evaluations, fails_at; /* fails_at 0: never */
    bool not_finite, wordless;
} own_loss;

static yoke_status compute(void *payload, const yoke_outputs *rows, double *loss) {
    own_loss *own = payload;
    int count = rows->batch->rows;
    assert_int_equal(rows->count, 1);
    own->calls++;
    if (rows->gradients == NULL) own->evaluations++;
    if (own->calls == own->fails_at && own->wordless) return YOKE_ERROR_DATA;
    if (own->calls == own->fails_at)
        return yoke_error_raise(YOKE_ERROR_DATA, "%d rows are too few", count);
    *loss = 0;
    for (int row = 0; row < count; row++) {
        const float *x = rows->outputs[0] + (size_t)row * CLASSES;
        int label = rows->batch->labels[row];
        double sum = 0;
        for (int j = 0; j < CLASSES; j++)
            sum += exp((double)x[j]);
        *loss += (log(sum) - (double)x[label]) / count;
        for (int j = 0; j < CLASSES && rows->gradients != NULL; j++)
            rows->gradients[0][row * CLASSES + j] =
                (float)((exp((double)x[j]) / sum - (j == label)) / count);
    }
    if (own->not_finite) *loss = NAN;
    return YOKE_OK;
}

/* On one to three devices, in micro-batches, in every schedule. */
static void a_loss_of_the_host_trains_as_the_models_own(void **state) {
    (void)state;
    host_rows *rows = make_rows();
    log_of_run wanted = {0}, run = {0};
    yoke_trainer_options options = on_rows(&wanted, rows);
    run_to_the_end(&wanted, &options);
    own_loss own = {0};
    const yoke_own_loss loss = {sizeof loss, compute, &own};
    options.own_loss = &loss;
    options.payload = &run;
    for (int i = 0; i < 12; i++) {
        options.devices = devices_of(1 + i % 3);
        options.accumulate = 1 + i % 2;
        options.schedule = (yoke_schedule)(i / 4);
        run_to_the_end(&run, &options);
        assert_int_equal(run.steps, wanted.steps);
        for (int step = 0; step < run.steps; step++)
            assert_true(fabs(run.losses[step] - wanted.losses[step]) <= 1e-5);
        assert_true(fabs(run.evaluation.loss - wanted.evaluation.loss) <= 1e-5);
        assert_true(run.evaluation.accuracy == -1 && run.evaluation.rows == ROWS);
    }
    assert_true(own.evaluations > 0 && own.evaluations < own.calls);
    options.shards = 2;
    expect_refused(&options, "own_loss with 2 shards");
    free_rows(rows);
}

/* YOKE_LOSS_MSE with targets that are all the row's label. */
static yoke_status pull_to_label(void *payload, const yoke_outputs *rows, double *loss) {
    int count = rows->batch->rows, width = *(const int *)payload;
    *loss = 0;
    assert_true(rows->batch->labels_count % (size_t)count == 0);
    size_t each = rows->batch->labels_count / (size_t)count;
    for (int i = 0; i < count * width; i++) {
        size_t row = (size_t)(i / width);
        double off = (double)rows->outputs[0][i] - rows->batch->labels[(row + 1) * each - 1];
        *loss += off * off / (count * width);
        if (rows->gradients != NULL) rows->gradients[0][i] = (float)(2 * off / (count * width));
    }
    return YOKE_OK;
}

/* labels_each: labels of a row, of which the last one is the row's. */
static yoke_dataset *labelled(const host_rows *rows, int labels_each) {
    static int32_t labels[ROWS * 4];
    yoke_dataset *dataset = NULL;
    for (int i = 0; i < ROWS * labels_each; i++)
        labels[i] =
            i % labels_each == labels_each - 1 ? rows->labels[i / labels_each] : i % CLASSES;
    yoke_arrays arrays = {.struct_size = sizeof arrays,
                          .rows = ROWS,
                          .shape = {FEATURES, 1, 1, true},
                          .inputs = rows->inputs[0],
                          .classes = CLASSES,
                          .label_count = labels_each,
                          .labels = labels};
    EXPECT_OK(yoke_dataset_from_arrays(&dataset, &arrays));
    return dataset;
}

/* The same with targets, which the model's own loss reads. */
static yoke_dataset *with_targets(const host_rows *rows, int width) {
    static float targets[ROWS * CLASSES];
    yoke_dataset *dataset = NULL;
    for (int i = 0; i < ROWS * width; i++)
        targets[i] = (float)rows->labels[i / width];
    yoke_arrays arrays = {.struct_size = sizeof arrays,
                          .rows = ROWS,
                          .shape = {FEATURES, 1, 1, true},
                          .inputs = rows->inputs[0],
                          .target_count = width,
                          .targets = targets};
    EXPECT_OK(yoke_dataset_from_arrays(&dataset, &arrays));
    return dataset;
}

/* Labels of more classes than the first output has channels, and several of them a row; the class
 * weights of the model's own loss do not count. */
static void a_loss_of_the_host_reads_labels_that_the_models_own_would_refuse(void **state) {
    (void)state;
    int width = CLASSES - 1;
    static const float class_weights[] = {2, 3};
    yoke_loss_options mse = {.struct_size = sizeof mse, .kind = YOKE_LOSS_MSE};
    yoke_loss_options weighted = {.struct_size = sizeof weighted,
                                  .kind = YOKE_LOSS_CROSS_ENTROPY,
                                  .class_weights = class_weights,
                                  .weight_count = 2};
    host_rows *rows = make_rows();
    yoke_dataset *targets = with_targets(rows, width);
    yoke_model *regression = make_model("regression", width, &mse);
    yoke_model *embedding = make_model("embedding", width, &weighted);
    log_of_run wanted = {0}, run = {0};
    yoke_trainer_options options = on_rows(&wanted, rows);
    options.training_rows = options.test_rows = targets;
    options.model = NULL;
    options.own_model = regression;
    run_to_the_end(&wanted, &options);
    const yoke_own_loss loss = {sizeof loss, pull_to_label, &width};
    options.own_model = embedding;
    options.own_loss = &loss;
    options.payload = &run;
    options.mistakes = 4; /* of outputs that are no classes: none */
    for (int labels = 1; labels <= 4; labels += 3) {
        yoke_dataset *dataset = labelled(rows, labels);
        options.training_rows = options.test_rows = dataset;
        for (int i = 0; i < 4; i++) {
            options.devices = devices_of(1 + i % 2);
            options.accumulate = 1 + i / 2;
            run_to_the_end(&run, &options);
            assert_int_equal(run.steps, wanted.steps);
            for (int step = 0; step < run.steps; step++)
                assert_true(fabs(run.losses[step] - wanted.losses[step]) <= 1e-5);
            assert_true(fabs(run.evaluation.loss - wanted.evaluation.loss) <= 1e-5);
        }
        yoke_dataset_close(dataset);
    }
    yoke_model_destroy(regression);
    yoke_model_destroy(embedding);
    yoke_dataset_close(targets);
    free_rows(rows);
}

static void what_a_callback_says_reaches_the_caller(void **state) {
    (void)state;
    host_rows *rows = make_rows();
    log_of_run run = {0};
    own_loss own = {.fails_at = 3};
    const yoke_own_loss loss = {sizeof loss, compute, &own};
    yoke_trainer_options options = on_rows(&run, rows);
    options.own_loss = &loss;
    assert_int_equal(train(&run, &options), YOKE_ERROR_DATA);
    assert_non_null(strstr(yoke_last_error(), "own_loss: 16 rows are too few"));
    assert_int_equal(run.steps, 2);
    yoke_trainer_destroy(run.trainer);

    own = (own_loss){.fails_at = 1, .wordless = true};
    run = (log_of_run){0};
    assert_int_equal(train(&run, &options), YOKE_ERROR_DATA);
    assert_non_null(strstr(yoke_last_error(), "own_loss returned YOKE_ERROR_DATA"));
    yoke_trainer_destroy(run.trainer);

    own = (own_loss){.not_finite = true};
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
    options.own_metrics = two_metrics;
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
    own_loss own[RANK_RUNS] = {{0}, {0}};
    yoke_own_loss losses[RANK_RUNS];
    rank_run *ranks = calloc(RANK_RUNS, sizeof *ranks);
    measured seen[RANK_RUNS] = {{0}, {0}};
    yoke_trainer_options options = on_rows(&one, rows);
    options.batch = 15; /* 8 and 7 rows, and a batch of 5: 3 and 2 */
    run_to_the_end(&one, &options);
    for (int k = 0; k < RANK_RUNS; k++) {
        losses[k] = (yoke_own_loss){sizeof losses[k], compute, &own[k]};
        ranks[k].options = options;
        ranks[k].options.devices = "cpu";
        ranks[k].options.own_loss = &losses[k];
        ranks[k].options.payload = &ranks[k].run;
    }
    run_ranks(ranks);
    expect_all_well(ranks);
    for (int step = 0; step < one.steps; step++)
        assert_true(fabs(ranks[0].run.losses[step] - one.losses[step]) <= 1e-5);
    assert_true(fabs(ranks[1].run.evaluation.loss - one.evaluation.loss) <= 1e-5);
    for (int k = 0; k < RANK_RUNS; k++) {
        ranks[k].options.own_loss = NULL;
        ranks[k].options.evaluate_every = 1;
        ranks[k].options.own_metrics = two_metrics;
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
            ranks[k].options.own_metrics = two_metrics;
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
    options.own_metrics = &metric;
    options.metric_count = 1;
    assert_int_equal(train(&run, &options), YOKE_ERROR_IO);
    assert_non_null(strstr(yoke_last_error(), "score: the file of scores is gone"));
    yoke_trainer_destroy(run.trainer);
    options.own_metrics = twice;
    options.metric_count = 2;
    expect_refused(&options, "both named 'accuracy'");
    options.own_metrics = NULL;
    expect_refused(&options, "metric_count is 2 and own_metrics is NULL");
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
        cmocka_unit_test(a_loss_of_the_host_trains_as_the_models_own),
        cmocka_unit_test(a_loss_of_the_host_reads_labels_that_the_models_own_would_refuse),
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
