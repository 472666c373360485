/* SPDX-License-Identifier: Apache-2.0 */
/* Masks and means of rows of different length, against sums written out here. */
#include <math.h>

#include "fixtures/fixture.h"
#include "support/devices.h"
#include "yoke/attention.h"
#include "yoke/lengths.h"

enum { ROWS = 6, POSITIONS = 5, FEATURES = 4 };

/* Of 0 positions, of some, of all, and of more than there are. */
static const float lengths[ROWS] = {0, 1, 3, 4, 5, 9};

typedef struct rows_of_lengths {
    float inputs[ROWS * POSITIONS * FEATURES];
    const float *more_inputs[1];
    yoke_batch batch;
} rows_of_lengths;

static void make_rows(rows_of_lengths *made, float padding) {
    for (int row = 0; row < ROWS; row++)
        for (int i = 0; i < POSITIONS; i++)
            for (int k = 0; k < FEATURES; k++)
                made->inputs[(row * POSITIONS + i) * FEATURES + k] =
                    (float)i < lengths[row] ? sinf((float)(row * 31 + i * 7 + k)) : padding;
    made->more_inputs[0] = lengths;
    made->batch = (yoke_batch){.struct_size = sizeof made->batch,
                               .rows = ROWS,
                               .inputs = made->inputs,
                               .more_inputs = made->more_inputs,
                               .more_input_count = 1};
}

/* The padding of a row is 5, which a mean or an attention would show. */
static void run(yoke_value (*build)(yoke_model *model, yoke_value input, yoke_value lengths),
                float *outputs) {
    yoke_devices *devices = NULL;
    yoke_model *model = NULL;
    yoke_data_parallel *parallel = NULL;
    rows_of_lengths given;
    yoke_devices_options open = {.struct_size = sizeof open, .list = devices_of(2)};
    yoke_data_parallel_options options = YOKE_DATA_PARALLEL_OPTIONS_INIT;
    yoke_loss_options loss = YOKE_LOSS_OPTIONS_INIT;
    loss.kind = YOKE_LOSS_OUTPUT;
    options.batch = ROWS;
    make_rows(&given, 5);
    must(yoke_devices_open(&devices, &open));
    must(yoke_model_create(&model, "lengths", yoke_shape_sequence(POSITIONS, FEATURES)));
    yoke_value length = yoke_model_add_input(model, "length", yoke_shape_vector(1));
    yoke_parameter_options unit = YOKE_PARAMETER_OPTIONS_INIT;
    unit.name = "unit"; /* a model has something to train */
    unit.shape = yoke_shape_vector(1);
    unit.value = 1;
    yoke_value value = build(model, yoke_model_input(model), length);
    value = yoke_multiply(model, yoke_flatten(model, value), yoke_parameter_value(model, &unit));
    must(yoke_model_finish(model, value, &loss));
    must(yoke_data_parallel_create(&parallel, model, devices, NULL, &options));
    must(yoke_data_parallel_forward(parallel, &given.batch, false, outputs));
    yoke_data_parallel_destroy(parallel);
    yoke_model_destroy(model);
    yoke_devices_close(devices);
}

static int valid(int row) {
    return (int)fminf(lengths[row], POSITIONS);
}

static double input_at(int row, int position, int feature) {
    return (double)sinf((float)(row * 31 + position * 7 + feature));
}

static yoke_value build_mean(yoke_model *model, yoke_value input, yoke_value length) {
    return yoke_mean_of_length(model, input, length);
}

static void a_mean_leaves_padding_out(void **state) {
    (void)state;
    float outputs[ROWS * FEATURES];
    run(build_mean, outputs);
    for (int row = 0; row < ROWS; row++)
        for (int k = 0; k < FEATURES; k++) {
            double sum = 0;
            for (int i = 0; i < valid(row); i++)
                sum += input_at(row, i, k);
            double mean = valid(row) > 0 ? sum / valid(row) : 0;
            assert_true(fabs((double)outputs[row * FEATURES + k] - mean) < 1e-6);
        }
}

static yoke_value build_attention(yoke_model *model, yoke_value input, yoke_value length) {
    yoke_value heads = yoke_split_heads(model, input, 1);
    yoke_value mask = yoke_padding_mask(model, length, POSITIONS);
    return yoke_merge_heads(model, yoke_attend(model, heads, heads, heads, mask));
}

static double score(int row, int query, int key) {
    double sum = 0;
    for (int k = 0; k < FEATURES; k++)
        sum += input_at(row, query, k) * input_at(row, key, k);
    return sum / sqrt(FEATURES);
}

static void no_query_looks_at_padding(void **state) {
    (void)state;
    float outputs[ROWS * POSITIONS * FEATURES];
    run(build_attention, outputs);
    for (int row = 1; row < ROWS; row++) /* in row 0 every key counts alike */
        for (int query = 0; query < valid(row); query++)
            for (int k = 0; k < FEATURES; k++) {
                double sum = 0, all = 0;
                for (int key = 0; key < valid(row); key++) {
                    double weight = exp(score(row, query, key));
                    sum += weight * input_at(row, key, k);
                    all += weight;
                }
                float output = outputs[(row * POSITIONS + query) * FEATURES + k];
                assert_true(fabs((double)output - sum / all) < 2e-6);
            }
    for (int i = 0; i < POSITIONS * FEATURES; i++)
        assert_true(outputs[i] == 5);
}

static void lengths_of_another_shape_are_refused(void **state) {
    (void)state;
    yoke_model *model = NULL;
    must(yoke_model_create(&model, "lengths", yoke_shape_sequence(POSITIONS, FEATURES)));
    yoke_value input = yoke_model_input(model);
    yoke_value value = yoke_mean_of_length(model, input, input);
    assert_int_equal(yoke_model_finish(model, value, NULL), YOKE_ERROR_ARGUMENT);
    if (strstr(yoke_last_error(), "a row has one length") == NULL)
        fail_msg("it says: %s", yoke_last_error());
    yoke_model_destroy(model);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_mean_leaves_padding_out),
        cmocka_unit_test(no_query_looks_at_padding),
        cmocka_unit_test(lengths_of_another_shape_are_refused),
    };
    return RUN_ON_DEVICES(tests, NULL, NULL);
}
