/* SPDX-License-Identifier: Apache-2.0 */
/* Batch norm of sequences, and bags of tokens, against sums written out here. */
#include <math.h>

#include "fixtures/fixture.h"
#include "support/devices.h"
#include "yoke/attention.h"
#include "yoke/composed.h"
#include "yoke/losses.h"

enum { ROWS = 5, POSITIONS = 4, FEATURES = 3, VOCABULARY = 7 };

/* An engine of one model on one device. */
typedef struct rig {
    yoke_devices *devices;
    yoke_model *model;
    yoke_data_parallel *parallel;
} rig;

static void open_rig(rig *made, yoke_value output) {
    yoke_devices_options open = {.struct_size = sizeof open, .list = devices_of(1)};
    yoke_data_parallel_options options = YOKE_DATA_PARALLEL_OPTIONS_INIT;
    yoke_loss_options loss = YOKE_LOSS_OPTIONS_INIT;
    loss.kind = YOKE_LOSS_OUTPUT;
    options.batch = ROWS;
    must(yoke_model_finish(made->model, output, &loss));
    must(yoke_devices_open(&made->devices, &open));
    must(yoke_data_parallel_create(&made->parallel, made->model, made->devices, NULL, &options));
}

static void close_rig(rig *made) {
    yoke_data_parallel_destroy(made->parallel);
    yoke_model_destroy(made->model);
    yoke_devices_close(made->devices);
}

/* torch.nn.BatchNorm1d of [rows, channels, positions]. */
static void batch_norm_takes_features_of_all_positions_together(void **state) {
    (void)state;
    enum { COUNT = ROWS * POSITIONS * FEATURES, EACH = ROWS * POSITIONS };
    float inputs[COUNT], outputs[COUNT], running[FEATURES];
    rig made = {NULL, NULL, NULL};
    yoke_batch_norm_options norm = YOKE_BATCH_NORM_OPTIONS_INIT;
    norm.name = "bn";
    must(yoke_model_create(&made.model, "norm", yoke_shape_sequence(POSITIONS, FEATURES)));
    yoke_value value = yoke_batch_norm(made.model, yoke_model_input(made.model), &norm);
    open_rig(&made, value);
    for (int i = 0; i < COUNT; i++)
        inputs[i] = sinf((float)(i * i)) * (float)(1 + i % FEATURES);
    yoke_batch batch = {.struct_size = sizeof batch, .rows = ROWS, .inputs = inputs};
    must(yoke_data_parallel_forward(made.parallel, &batch, true, outputs));
    must(yoke_data_parallel_read(made.parallel, "bn.running_mean", running, FEATURES));
    for (int k = 0; k < FEATURES; k++) {
        double mean = 0, variance = 0;
        for (int i = k; i < COUNT; i += FEATURES)
            mean += (double)inputs[i] / EACH;
        for (int i = k; i < COUNT; i += FEATURES)
            variance += pow((double)inputs[i] - mean, 2) / EACH;
        assert_true(fabs((double)running[k] - 0.1 * mean) < 1e-6);
        for (int i = k; i < COUNT; i += FEATURES) {
            double wanted = ((double)inputs[i] - mean) / sqrt(variance + 1e-5);
            assert_true(fabs((double)outputs[i] - wanted) < 1e-5);
        }
    }
    close_rig(&made);
}

static void a_bag_reduces_the_embeddings_of_its_tokens(void **state) {
    (void)state;
    float ids[ROWS * POSITIONS], outputs[ROWS * FEATURES], table[VOCABULARY * FEATURES];
    for (int i = 0; i < ROWS * POSITIONS; i++)
        ids[i] = (float)(i * i % VOCABULARY);
    for (int reduction = YOKE_REDUCE_SUM; reduction <= YOKE_REDUCE_MAX; reduction++) {
        rig made = {NULL, NULL, NULL};
        yoke_embedding_options bag = YOKE_EMBEDDING_OPTIONS_INIT;
        bag.name = "bag";
        bag.count = VOCABULARY;
        bag.features = FEATURES;
        must(yoke_model_create(&made.model, "bags", yoke_shape_vector(POSITIONS)));
        open_rig(&made, yoke_embedding_bag(made.model, yoke_model_input(made.model), &bag,
                                           (yoke_reduce_kind)reduction));
        yoke_batch batch = {.struct_size = sizeof batch, .rows = ROWS, .inputs = ids};
        must(yoke_data_parallel_forward(made.parallel, &batch, false, outputs));
        must(yoke_data_parallel_read(made.parallel, "bag.weight", table, VOCABULARY * FEATURES));
        for (int row = 0; row < ROWS; row++)
            for (int k = 0; k < FEATURES; k++) {
                double sum = 0, most = -INFINITY;
                for (int i = 0; i < POSITIONS; i++) {
                    double one = (double)table[(int)ids[row * POSITIONS + i] * FEATURES + k];
                    sum += one;
                    most = fmax(most, one);
                }
                double wanted = reduction == YOKE_REDUCE_SUM    ? sum
                                : reduction == YOKE_REDUCE_MEAN ? sum / POSITIONS
                                                                : most;
                assert_true(fabs((double)outputs[row * FEATURES + k] - wanted) < 1e-6);
            }
        close_rig(&made);
    }
}

static void expect_refused(yoke_model *model, yoke_value value, const char *words) {
    assert_int_equal(yoke_model_finish(model, value, NULL), YOKE_ERROR_ARGUMENT);
    if (strstr(yoke_last_error(), words) == NULL)
        fail_msg("'%s' should contain '%s'", yoke_last_error(), words);
    yoke_model_destroy(model);
}

static yoke_model *image(void) {
    yoke_model *model = NULL;
    must(yoke_model_create(&model, "image", yoke_shape_image(6, 4, 4)));
    return model;
}

static void what_does_not_fit_is_refused(void **state) {
    (void)state;
    yoke_model *model = image();
    expect_refused(model, yoke_one_hot(model, yoke_model_input(model), 3), "needs a vector of ids");
    model = image();
    expect_refused(
        model,
        yoke_layer_norm_along(model, yoke_model_input(model), YOKE_AXIS_HEIGHT, "norm", 1e-5),
        "needs a name, the last axes of a row");
    model = image();
    yoke_value keys = yoke_slice(model, yoke_model_input(model), YOKE_AXIS_CHANNELS, 0, 4, 0);
    expect_refused(model, yoke_attend(model, yoke_model_input(model), keys, keys, yoke_no_mask()),
                   "4 heads of keys for 6 of queries");
    model = image();
    expect_refused(model, yoke_nll_loss(model, yoke_model_input(model), yoke_model_input(model)),
                   "nll_loss: 6 classes for probabilities of 6 x 4 x 4");
    model = image();
    yoke_value input = yoke_model_input(model);
    expect_refused(model, yoke_ctc_loss(model, input, input, NULL),
                   "ctc_loss: probabilities of 6 x 4 x 4");
    model = image();
    expect_refused(model,
                   yoke_focal_loss(model, yoke_model_input(model), yoke_model_input(model), 2, 0),
                   "gamma is at least 1");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(batch_norm_takes_features_of_all_positions_together),
        cmocka_unit_test(a_bag_reduces_the_embeddings_of_its_tokens),
        cmocka_unit_test(what_does_not_fit_is_refused),
    };
    return RUN_ON_DEVICES(tests, NULL, NULL);
}
