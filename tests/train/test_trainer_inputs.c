/* SPDX-License-Identifier: Apache-2.0 */
/* A trainer gives a model of several inputs the rows' inputs of the same names, on any number of
 * devices; its loss may be one that the model computes. */
#include "trainer_check.h"

#include "yoke/composed.h"

enum { ROWS = 40, FEATURES = 6 };

/* What a row should become is an input, not a target; others than the model's are there, too. */
static yoke_dataset *make_rows(void) {
    static float inputs[ROWS * FEATURES], scales[ROWS], wanted[ROWS * 2], unused[ROWS];
    yoke_dataset *dataset = NULL;
    for (int row = 0; row < ROWS; row++) {
        scales[row] = (float)(row % 5 + 1) / 4;
        for (int i = 0; i < FEATURES; i++)
            inputs[row * FEATURES + i] = (float)((row * 7 + i * 3) % 11) / 11;
        for (int k = 0; k < 2; k++)
            wanted[row * 2 + k] = scales[row] * (inputs[row * FEATURES + k] - (float)k / 2);
    }
    const yoke_row_input more[] = {{sizeof *more, "unused", yoke_shape_vector(1), unused},
                                   {sizeof *more, "wanted", yoke_shape_vector(2), wanted},
                                   {sizeof *more, "scale", yoke_shape_vector(1), scales}};
    yoke_arrays arrays = {.struct_size = sizeof arrays,
                          .rows = ROWS,
                          .shape = yoke_shape_vector(FEATURES),
                          .inputs = inputs,
                          .more_inputs = more,
                          .more_input_count = 3};
    EXPECT_OK(yoke_dataset_from_arrays(&dataset, &arrays));
    return dataset;
}

static yoke_model *make_model(const char *scale) {
    yoke_model *model = NULL;
    yoke_linear_options linear = YOKE_LINEAR_OPTIONS_INIT;
    yoke_loss_options loss = YOKE_LOSS_OPTIONS_INIT;
    linear.name = "fc";
    linear.out_features = 2;
    loss.kind = YOKE_LOSS_OUTPUT;
    EXPECT_OK(yoke_model_create(&model, "scaled", yoke_shape_vector(FEATURES)));
    yoke_value factor = yoke_model_add_input(model, scale, yoke_shape_vector(1));
    yoke_value wanted = yoke_model_add_input(model, "wanted", yoke_shape_vector(2));
    yoke_value value = yoke_linear(model, yoke_model_input(model), &linear);
    value = yoke_subtract(model, yoke_multiply(model, value, factor), wanted);
    value = yoke_reduce_axes(model, yoke_map(model, YOKE_FN_SQUARE, value), YOKE_REDUCE_MEAN,
                             YOKE_AXIS_ALL);
    EXPECT_OK(yoke_model_finish(model, value, &loss));
    return model;
}

static yoke_trainer_options options_of(log_of_run *run, const yoke_dataset *rows,
                                       const yoke_model *model) {
    yoke_trainer_options options = small(run);
    options.dataset = NULL;
    options.model = NULL;
    options.custom_model = model;
    options.training_rows = options.test_rows = rows;
    options.epochs = 40;
    return options;
}

static double train_on(const char *devices, const yoke_dataset *rows, const yoke_model *model) {
    log_of_run run = {0};
    yoke_trainer_options options = options_of(&run, rows, model);
    options.devices = devices;
    EXPECT_OK(yoke_trainer_create(&run.trainer, &options));
    EXPECT_OK(yoke_trainer_run(run.trainer));
    yoke_trainer_destroy(run.trainer);
    return run.evaluation.loss;
}

static void inputs_find_their_names_on_any_devices(void **state) {
    (void)state;
    yoke_dataset *rows = make_rows();
    yoke_model *model = make_model("scale");
    double one = train_on(devices_of(1), rows, model), three = train_on(devices_of(3), rows, model);
    assert_true(one < 0.01); /* it begins at 0.3: the numbers can be had exactly */
    assert_true(fabs(one - three) <= 1e-5);
    yoke_model_destroy(model);
    yoke_dataset_close(rows);
}

static void a_missing_input_is_named_before_the_first_step(void **state) {
    (void)state;
    log_of_run run = {0};
    yoke_dataset *rows = make_rows();
    yoke_model *model = make_model("factor");
    yoke_trainer_options options = options_of(&run, rows, model);
    assert_int_equal(yoke_trainer_create(&run.trainer, &options), YOKE_ERROR_ARGUMENT);
    if (strstr(yoke_last_error(), "reads an input 'factor' (1x1x1) of each row") == NULL)
        fail_msg("it says: %s", yoke_last_error());
    yoke_model_destroy(model);
    yoke_dataset_close(rows);
}

static void a_preset_needs_labels_or_targets(void **state) {
    (void)state;
    log_of_run run = {0};
    yoke_dataset *rows = make_rows();
    yoke_trainer_options options = options_of(&run, rows, NULL);
    options.model = "mlp";
    assert_int_equal(yoke_trainer_create(&run.trainer, &options), YOKE_ERROR_ARGUMENT);
    if (strstr(yoke_last_error(), "has neither labels nor targets to train with") == NULL)
        fail_msg("it says: %s", yoke_last_error());
    yoke_dataset_close(rows);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(inputs_find_their_names_on_any_devices),
        cmocka_unit_test(a_missing_input_is_named_before_the_first_step),
        cmocka_unit_test(a_preset_needs_labels_or_targets),
    };
    return RUN_ON_DEVICES(tests, make_folder, remove_folder);
}
