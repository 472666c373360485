/* SPDX-License-Identifier: Apache-2.0 */
/* A loss of the host program: what it reads, and that a run with it is one with the model's own. */
#include "host_rows.h"

/* On one to three devices, in micro-batches, in every schedule. */
static void trains_as_the_models_own(double mixup) {
    host_rows *rows = make_rows();
    log_of_run wanted = {0}, run = {0};
    yoke_trainer_options options = on_rows(&wanted, rows);
    options.mixup = mixup;
    run_to_the_end(&wanted, &options);
    custom_loss own = {0};
    const yoke_custom_loss loss = {sizeof loss, compute, &own};
    options.custom_loss = &loss;
    options.payload = &run;
    for (int i = 0; i < 12; i++) {
        options.devices = devices_of(1 + i % 3);
        small_engine.accumulate = 1 + i % 2;
        small_engine.schedule = (yoke_schedule)(i / 4);
        run_to_the_end(&run, &options);
        assert_int_equal(run.steps, wanted.steps);
        for (int step = 0; step < run.steps; step++)
            assert_true(fabs(run.losses[step] - wanted.losses[step]) <= 1e-5);
        assert_true(fabs(run.evaluation.loss - wanted.evaluation.loss) <= 1e-5);
        assert_true(run.evaluation.accuracy == -1 && run.evaluation.rows == ROWS);
    }
    assert_true(own.evaluations > 0 && own.evaluations < own.calls);
    small_engine.shards = 2;
    expect_refused(&options, "custom_loss with 2 shards");
    free_rows(rows);
}

static void a_loss_of_the_host_trains_as_the_models_own(void **state) {
    (void)state;
    trains_as_the_models_own(0);
}

static void a_loss_of_the_host_reads_second_labels(void **state) {
    (void)state;
    trains_as_the_models_own(0.5);
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
    options.custom_model = regression;
    run_to_the_end(&wanted, &options);
    const yoke_custom_loss loss = {sizeof loss, pull_to_label, &width};
    options.custom_model = embedding;
    options.custom_loss = &loss;
    options.payload = &run;
    options.misclassified = 4; /* of outputs that are no classes: none */
    for (int labels = 1; labels <= 4; labels += 3) {
        yoke_dataset *dataset = labelled(rows, labels);
        options.training_rows = options.test_rows = dataset;
        for (int i = 0; i < 4; i++) {
            options.devices = devices_of(1 + i % 2);
            small_engine.accumulate = 1 + i / 2;
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

/* Its loss reads the first head. */
static yoke_model *two_heads(void) {
    yoke_model *model = NULL;
    yoke_linear_options fc = YOKE_LINEAR_OPTIONS_INIT, aside = YOKE_LINEAR_OPTIONS_INIT;
    fc.name = "fc";
    fc.out_features = CLASSES;
    aside.name = "aside";
    aside.out_features = 2;
    EXPECT_OK(yoke_model_create(&model, "two_heads", (yoke_shape){FEATURES, 1, 1, true}));
    yoke_value input = yoke_model_input(model);
    yoke_model_add_output(model, "aside", yoke_linear(model, input, &aside));
    EXPECT_OK(yoke_model_finish(model, yoke_linear(model, input, &fc), NULL));
    return model;
}

static yoke_status pull_both(void *payload, const yoke_outputs *rows, double *loss) {
    (void)payload;
    *loss = 1;
    for (int k = 0; k < 2 && rows->gradients != NULL; k++)
        rows->gradients[k][0] = 1e-3f;
    return YOKE_OK;
}

/* One warning, after the first step of the run. */
static void the_first_step_names_what_no_loss_has_reached(void **state) {
    (void)state;
    host_rows *rows = make_rows();
    yoke_model *model = two_heads();
    log_of_run run = {0};
    yoke_trainer_options options = on_rows(&run, rows);
    options.model = NULL;
    options.custom_model = model;
    run_to_the_end(&run, &options);
    assert_int_equal(run.warnings, 1);
    assert_true(run.steps > 2);
    if (strstr(run.warning,
               "no loss has reached aside.weight, aside.bias (2 parameters, 26 values"
               "): the gradients are zero, and weight decay leaves them alone") == NULL)
        fail_msg("%s", run.warning);
    const yoke_custom_loss both = {sizeof both, pull_both, NULL};
    options.custom_loss = &both;
    options.payload = &run;
    run_to_the_end(&run, &options);
    assert_int_equal(run.warnings, 0);
    yoke_model_destroy(model);
    free_rows(rows);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_loss_of_the_host_trains_as_the_models_own),
        cmocka_unit_test(a_loss_of_the_host_reads_second_labels),
        cmocka_unit_test(a_loss_of_the_host_reads_labels_that_the_models_own_would_refuse),
        cmocka_unit_test(the_first_step_names_what_no_loss_has_reached),
    };
    return RUN_ON_DEVICES(tests, make_folder, remove_folder);
}
