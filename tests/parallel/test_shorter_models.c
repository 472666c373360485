/* SPDX-License-Identifier: Apache-2.0 */
/* One engine trains models of the same parameters whose rows have fewer positions: padding that is
 * not computed changes nothing, in every schedule and on any number of devices. */
#include "pytorch_rig.h"

#include "yoke/lengths.h"
#include "yoke/transformer.h"

enum { ROWS = 6, LONG = 9, SHORT = 4, VOCABULARY = 8, STEPS = 6, FEATURES = 6 };

/* Step s has rows of at most SHORT tokens if s is even. */
typedef struct rows_of_step {
    float ids[ROWS * LONG], lengths[ROWS];
    int32_t labels[ROWS * LONG];
    const float *more_inputs[1];
    yoke_batch batch;
} rows_of_step;

static void make_rows(rows_of_step *made, int step, int positions) {
    int most = step % 2 == 0 ? SHORT : LONG;
    for (int row = 0; row < ROWS; row++) {
        int length = 1 + (row * 5 + step) % most;
        made->lengths[row] = (float)length;
        for (int i = 0; i < positions; i++) {
            bool own = i < length;
            made->ids[row * positions + i] =
                own ? (float)((row * 3 + i * 5 + step) % VOCABULARY) : 0;
            made->labels[row * positions + i] =
                own ? (row + i * i + step) % VOCABULARY : YOKE_NO_LABEL;
        }
    }
    made->more_inputs[0] = made->lengths;
    made->batch = (yoke_batch){.struct_size = sizeof made->batch,
                               .rows = ROWS,
                               .inputs = made->ids,
                               .labels = made->labels,
                               .more_inputs = made->more_inputs,
                               .more_input_count = 1,
                               .model = positions < LONG};
}

/* Each position sees the mean of its row. */
static yoke_model *model_of(int positions, int features) {
    yoke_model *model = NULL;
    yoke_embedding_options embedding = YOKE_EMBEDDING_OPTIONS_INIT;
    yoke_loss_options loss = YOKE_LOSS_OPTIONS_INIT;
    loss.set_ignore_index = true;
    embedding.name = "embedding";
    embedding.count = VOCABULARY;
    embedding.features = features;
    must(yoke_model_create(&model, "means", yoke_shape_vector(positions)));
    yoke_value length = yoke_model_add_input(model, "length", yoke_shape_vector(1));
    yoke_value value = yoke_embedding(model, yoke_model_input(model), &embedding);
    value = yoke_add(model, value, yoke_mean_of_length(model, value, length));
    value = yoke_tanh(model, linear(model, value, "fc1", features, NULL));
    must(yoke_model_finish(model, linear(model, value, "fc2", VOCABULARY, NULL), &loss));
    return model;
}

typedef struct trained {
    double losses[STEPS];
    float embedding[VOCABULARY * FEATURES], fc2[VOCABULARY * FEATURES];
} trained;

/* cuts: even steps give rows of SHORT positions to the second model. */
static void train(int devices, yoke_schedule schedule, int shards, bool cuts, trained *result) {
    test_rig *rig = calloc(1, sizeof *rig);
    yoke_model *shorter = model_of(SHORT, FEATURES);
    const yoke_model *const list[] = {shorter};
    yoke_devices_options open = {
        .struct_size = sizeof open, .list = devices_of(devices), .threads = 1, .unbound = true};
    yoke_data_parallel_options options = {.struct_size = sizeof options,
                                          .schedule = schedule,
                                          .algorithm = YOKE_ALGORITHM_DIRECT,
                                          .batch = ROWS,
                                          .shards = shards,
                                          .first_bucket_bytes = 256,
                                          .bucket_bytes = 512,
                                          .other_models = list,
                                          .other_model_count = 1};
    rig->model = model_of(LONG, FEATURES);
    must(yoke_devices_open(&rig->devices, &open));
    must(yoke_data_parallel_create(&rig->parallel, rig->model, rig->devices, NULL, &options));
    for (int step = 0; step < STEPS; step++) {
        rows_of_step given;
        yoke_step_result done = {.struct_size = sizeof done};
        make_rows(&given, step, cuts && step % 2 == 0 ? SHORT : LONG);
        must(yoke_data_parallel_step(rig->parallel, &given.batch, 0.1, &done));
        result->losses[step] = done.loss;
    }
    must(yoke_data_parallel_read(rig->parallel, "embedding.weight", result->embedding,
                                 VOCABULARY * FEATURES));
    must(yoke_data_parallel_read(rig->parallel, "fc2.weight", result->fc2, VOCABULARY * FEATURES));
    close_engine(rig);
    free(rig);
    yoke_model_destroy(shorter);
}

static void compare(const trained *one, const trained *other) {
    for (int step = 0; step < STEPS; step++)
        assert_true(fabs(one->losses[step] - other->losses[step]) <= 1e-6 * one->losses[step]);
    for (int i = 0; i < VOCABULARY * FEATURES; i++) {
        assert_true(fabsf(one->embedding[i] - other->embedding[i]) <= 2e-6f);
        assert_true(fabsf(one->fc2[i] - other->fc2[i]) <= 2e-6f);
    }
}

static void padding_that_is_not_computed_changes_nothing(void **state) {
    (void)state;
    trained whole, cut, sharded[2];
    train(1, YOKE_SCHEDULE_CLASSIC, 0, false, &whole);
    for (int devices = 1; devices <= 3; devices++)
        for (int schedule = YOKE_SCHEDULE_OVERLAP; schedule <= YOKE_SCHEDULE_SHARDED; schedule++) {
            train(devices, (yoke_schedule)schedule, 0, true, &cut);
            compare(&whole, &cut);
        }
    for (int k = 0; k < 2; k++)
        train(1 + k, YOKE_SCHEDULE_OVERLAP, 2, true, &sharded[k]);
    compare(&whole, &sharded[0]);
    assert_memory_equal(&sharded[0], &sharded[1], sizeof sharded[0]);
}

static void outputs_have_the_positions_of_the_batch(void **state) {
    (void)state;
    yoke_model *model = model_of(LONG, FEATURES), *shorter = model_of(SHORT, FEATURES);
    const yoke_model *const list[] = {shorter};
    yoke_devices *devices = NULL;
    yoke_data_parallel *parallel = NULL;
    rows_of_step given;
    float long_outputs[ROWS * LONG * VOCABULARY], short_outputs[ROWS * LONG * VOCABULARY];
    yoke_devices_options open = {.struct_size = sizeof open, .list = devices_of(2)};
    yoke_data_parallel_options options = YOKE_DATA_PARALLEL_OPTIONS_INIT;
    options.batch = ROWS;
    options.other_models = list, options.other_model_count = 1;
    must(yoke_devices_open(&devices, &open));
    must(yoke_data_parallel_create(&parallel, model, devices, NULL, &options));
    for (int again = 0; again < 2; again++) {
        make_rows(&given, 0, SHORT);
        must(yoke_data_parallel_forward(parallel, &given.batch, false, short_outputs));
        make_rows(&given, 0, LONG);
        must(yoke_data_parallel_forward(parallel, &given.batch, false, long_outputs));
        for (int row = 0; row < ROWS; row++)
            for (int i = 0; i < (int)given.lengths[row]; i++)
                for (int k = 0; k < VOCABULARY; k++) {
                    float one = long_outputs[(row * LONG + i) * VOCABULARY + k];
                    float other = short_outputs[(row * SHORT + i) * VOCABULARY + k];
                    assert_true(fabsf(one - other) <= 1e-6f);
                }
    }
    yoke_data_parallel_destroy(parallel);
    yoke_devices_close(devices);
    yoke_model_destroy(model);
    yoke_model_destroy(shorter);
}

static void expect_refused(yoke_status status, const char *words) {
    assert_int_equal(status, YOKE_ERROR_ARGUMENT);
    if (strstr(yoke_last_error(), words) == NULL)
        fail_msg("'%s' should contain '%s'", yoke_last_error(), words);
}

static void models_and_batches_that_do_not_fit_are_refused(void **state) {
    (void)state;
    yoke_model *model = model_of(LONG, FEATURES), *wider = model_of(SHORT, FEATURES + 1);
    yoke_model *longer = model_of(LONG + 1, FEATURES), *shorter = model_of(SHORT, FEATURES);
    const yoke_model *list[] = {wider};
    yoke_devices *devices = NULL;
    yoke_data_parallel *parallel = NULL;
    rows_of_step given;
    yoke_devices_options open = {.struct_size = sizeof open, .list = devices_of(1)};
    yoke_data_parallel_options options = YOKE_DATA_PARALLEL_OPTIONS_INIT;
    options.batch = ROWS;
    options.other_models = list;
    must(yoke_devices_open(&devices, &open));
    expect_refused(yoke_data_parallel_create(&parallel, model, devices, NULL, &options),
                   "other_model_count is 0 and other_models is set");
    options.other_model_count = 1;
    expect_refused(yoke_data_parallel_create(&parallel, model, devices, NULL, &options),
                   "models of one engine share their parameters");
    list[0] = longer;
    expect_refused(yoke_data_parallel_create(&parallel, model, devices, NULL, &options),
                   "it must have the same name and kind, and no more values");
    list[0] = shorter;
    must(yoke_data_parallel_create(&parallel, model, devices, NULL, &options));
    make_rows(&given, 0, SHORT);
    given.batch.model = 2;
    expect_refused(yoke_data_parallel_step(parallel, &given.batch, 0.1, NULL),
                   "the batch is for model 2: this engine has 0 to 1");
    given.batch.model = 0;
    given.batch.inputs_count = ROWS * SHORT;
    expect_refused(yoke_data_parallel_step(parallel, &given.batch, 0.1, NULL),
                   "the batch's inputs hold 24 values");
    yoke_data_parallel_destroy(parallel);
    yoke_devices_close(devices);
    yoke_model_destroy(model);
    yoke_model_destroy(wider);
    yoke_model_destroy(longer);
    yoke_model_destroy(shorter);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(padding_that_is_not_computed_changes_nothing),
        cmocka_unit_test(outputs_have_the_positions_of_the_batch),
        cmocka_unit_test(models_and_batches_that_do_not_fit_are_refused),
    };
    return RUN_ON_DEVICES(tests, NULL, NULL);
}
