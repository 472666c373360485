/* SPDX-License-Identifier: Apache-2.0 */
/* A loss of the host program beside a model that reads labels: its targets are of any width. */
#include "trainer_check.h"

#include "yoke/preset.h"

enum { ROWS = 50, FEATURES = 12, CLASSES = 3 };

/* The two targets of a row are its first and its last feature. */
static yoke_status compare_pairs(void *payload, const yoke_outputs *rows, double *loss) {
    const yoke_batch *batch = rows->batch;
    assert_int_equal(batch->inputs_count, batch->rows * FEATURES);
    assert_int_equal(batch->targets_count, batch->rows * 2);
    for (int row = 0; row < batch->rows; row++) {
        const float *inputs = batch->inputs + (size_t)row * FEATURES;
        assert_true(batch->targets[2 * row] == inputs[0]);
        assert_true(batch->targets[2 * row + 1] == inputs[FEATURES - 1]);
    }
    *(int *)payload += batch->rows;
    *loss = 1;
    return YOKE_OK;
}

static yoke_dataset *make_pairs(void) {
    static float inputs[ROWS][FEATURES], targets[ROWS][2];
    yoke_dataset *dataset = NULL;
    for (int row = 0; row < ROWS; row++) {
        for (int i = 0; i < FEATURES; i++)
            inputs[row][i] = (float)(row * FEATURES + i);
        targets[row][0] = inputs[row][0];
        targets[row][1] = inputs[row][FEATURES - 1];
    }
    yoke_arrays arrays = {.struct_size = sizeof arrays,
                          .rows = ROWS,
                          .shape = {FEATURES, 1, 1, true},
                          .inputs = inputs[0],
                          .target_count = 2,
                          .targets = targets[0]};
    EXPECT_OK(yoke_dataset_from_arrays(&dataset, &arrays));
    return dataset;
}

static void micro_batches_begin_with_the_targets_of_their_rows(void **state) {
    (void)state;
    log_of_run run = {0};
    int seen = 0;
    const yoke_custom_loss loss = {sizeof loss, compare_pairs, &seen};
    yoke_model *model = NULL;
    yoke_dataset *dataset = make_pairs();
    EXPECT_OK(yoke_model_preset(&model, MODEL, (yoke_shape){FEATURES, 1, 1, true}, CLASSES, NULL));
    yoke_trainer_options options = small(&run);
    options.dataset = NULL;
    options.model = NULL;
    options.custom_model = model;
    options.custom_loss = &loss;
    options.training_rows = options.test_rows = dataset;
    small_engine.accumulate = 2;
    options.epochs = 1;
    EXPECT_OK(train(&run, &options));
    assert_int_equal(seen, 2 * ROWS); /* trained and evaluated */
    yoke_trainer_destroy(run.trainer);
    yoke_dataset_close(dataset);
    yoke_model_destroy(model);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(micro_batches_begin_with_the_targets_of_their_rows),
    };
    return RUN_ON_DEVICES(tests, make_folder, remove_folder);
}
