/* SPDX-License-Identifier: Apache-2.0 */
/* Values that backward computes again instead of keeping them change no bit of the weights, of the
 * running statistics, or of dropout, in any schedule and on any number of devices; memory shrinks.
 */
#include "support/engine_check.h"

enum { ROWS = 6, STEPS = 3, BLOCKS = 6, CHANNELS = 8 };

static const yoke_optimizer_options optimizer = {
    .struct_size = sizeof optimizer, .kind = YOKE_SGD, .learning_rate = 0.05, .momentum = 0.9};

static yoke_value add_block(yoke_model *model, yoke_value value, int index) {
    yoke_conv2d_options conv = YOKE_CONV2D_OPTIONS_INIT;
    yoke_batch_norm_options norm = YOKE_BATCH_NORM_OPTIONS_INIT;
    char names[2][16];
    snprintf(names[0], sizeof names[0], "conv%d", index);
    snprintf(names[1], sizeof names[1], "bn%d", index);
    conv.name = names[0];
    conv.out_channels = CHANNELS;
    conv.kernel = 3;
    conv.padding = 1;
    conv.no_bias = true;
    norm.name = names[1];
    yoke_value made = yoke_batch_norm(model, yoke_conv2d(model, value, &conv), &norm);
    made = yoke_dropout(model, yoke_gelu(model, made), 0.25);
    return index == 0 ? made : yoke_relu(model, yoke_add(model, made, value));
}

/* marks: blocks 1 and 2 are one range, block 4 another. */
static yoke_model *make_model(bool marks) {
    yoke_model *model = NULL;
    yoke_pool_options pool = YOKE_POOL_OPTIONS_INIT;
    yoke_linear_options fc = YOKE_LINEAR_OPTIONS_INIT;
    pool.kernel = 2;
    fc.name = "fc";
    fc.out_features = CHECK_CLASSES;
    EXPECT_OK(yoke_model_create(&model, "blocks",
                                yoke_shape_image(CHECK_CHANNELS, CHECK_SIDE, CHECK_SIDE)));
    yoke_value value = yoke_model_input(model);
    for (int i = 0; i < BLOCKS; i++) {
        if (marks && (i == 1 || i == 4)) yoke_activation_checkpoint_begin(model);
        value = add_block(model, value, i);
        if (marks && (i == 2 || i == 4)) yoke_activation_checkpoint_end(model);
    }
    value = yoke_flatten(model, yoke_max_pool(model, value, &pool));
    EXPECT_OK(yoke_model_finish(model, yoke_linear(model, value, &fc), NULL));
    return model;
}

typedef struct trained {
    float *weights;
    size_t count, activations;
    float mean[CHANNELS], variance[CHANNELS];
    double loss;
} trained;

static trained train(const yoke_model *model, int devices, yoke_schedule schedule, bool automatic,
                     int accumulate) {
    trained made = {0};
    yoke_data_parallel_options options = {.struct_size = sizeof options,
                                          .schedule = schedule,
                                          .algorithm = YOKE_ALGORITHM_DIRECT,
                                          .batch = ROWS,
                                          .seed = 3,
                                          .accumulate = accumulate,
                                          .first_bucket_bytes = 1024,
                                          .bucket_bytes = 2048,
                                          .activation_checkpointing = automatic};
    check_engine engine = check_engine_make(model, devices, options, &optimizer);
    yoke_memory_report memory = {.struct_size = sizeof memory};
    for (int step = 0; step < STEPS; step++) {
        check_batch batch = check_batch_make(ROWS, (uint32_t)step);
        yoke_step_result result = {.struct_size = sizeof result};
        EXPECT_OK(yoke_data_parallel_step(engine.parallel, &batch.batch, -1, &result));
        made.loss = result.loss;
        check_batch_free(&batch);
    }
    made.weights = check_read_all(engine.parallel, model, false, &made.count);
    EXPECT_OK(yoke_data_parallel_read(engine.parallel, "bn2.running_mean", made.mean, CHANNELS));
    EXPECT_OK(yoke_data_parallel_read(engine.parallel, "bn2.running_var", made.variance, CHANNELS));
    EXPECT_OK(yoke_data_parallel_memory(engine.parallel, 0, &memory));
    made.activations = memory.activations;
    check_engine_free(&engine);
    return made;
}

static void expect_equal(const trained *one, const trained *other) {
    assert_memory_equal(one->weights, other->weights, one->count * sizeof *one->weights);
    assert_memory_equal(one->mean, other->mean, sizeof one->mean);
    assert_memory_equal(one->variance, other->variance, sizeof one->variance);
    assert_true(one->loss == other->loss);
}

static void bits_stay_and_memory_shrinks(void **state) {
    (void)state;
    yoke_model *plain = make_model(false), *marked = make_model(true);
    for (int devices = 1; devices <= 3; devices++)
        for (int schedule = YOKE_SCHEDULE_OVERLAP; schedule <= YOKE_SCHEDULE_SHARDED; schedule++) {
            trained whole = train(plain, devices, (yoke_schedule)schedule, false, 1);
            trained cut = train(plain, devices, (yoke_schedule)schedule, true, 1);
            trained by_marks = train(marked, devices, (yoke_schedule)schedule, false, 1);
            expect_equal(&whole, &cut);
            expect_equal(&whole, &by_marks);
            assert_true((double)cut.activations < 0.75 * (double)whole.activations);
            assert_true(by_marks.activations < whole.activations);
            free(whole.weights);
            free(cut.weights);
            free(by_marks.weights);
        }
    yoke_model_destroy(plain);
    yoke_model_destroy(marked);
}

static void micro_batches_keep_their_bits_too(void **state) {
    (void)state;
    yoke_model *plain = make_model(false);
    trained whole = train(plain, 1, YOKE_SCHEDULE_OVERLAP, false, 2);
    trained cut = train(plain, 1, YOKE_SCHEDULE_OVERLAP, true, 2);
    expect_equal(&whole, &cut);
    free(whole.weights);
    free(cut.weights);
    yoke_model_destroy(plain);
}

static void expect_refused(yoke_status status, const char *words) {
    assert_int_equal(status, YOKE_ERROR_ARGUMENT);
    if (strstr(yoke_last_error(), words) == NULL)
        fail_msg("'%s' should contain '%s'", yoke_last_error(), words);
}

static void ranges_that_cannot_be_are_refused(void **state) {
    (void)state;
    yoke_model *model = NULL;
    yoke_data_parallel *parallel = NULL;
    yoke_devices *devices = NULL;
    EXPECT_OK(yoke_model_create(&model, "nested", yoke_shape_vector(4)));
    yoke_activation_checkpoint_begin(model);
    yoke_activation_checkpoint_begin(model);
    expect_refused(yoke_model_finish(model, yoke_model_input(model), NULL),
                   "the one before it has not ended");
    yoke_model_destroy(model);
    EXPECT_OK(yoke_model_create(&model, "open", yoke_shape_vector(4)));
    yoke_activation_checkpoint_end(model);
    expect_refused(yoke_model_finish(model, yoke_model_input(model), NULL), "none has begun");
    yoke_model_destroy(model);
    model = make_model(false);
    yoke_devices_options open = {.struct_size = sizeof open, .list = devices_of(1)};
    yoke_data_parallel_options options = YOKE_DATA_PARALLEL_OPTIONS_INIT;
    options.batch = ROWS;
    options.activation_checkpointing = options.synchronize_batch_norm = true;
    EXPECT_OK(yoke_devices_open(&devices, &open));
    expect_refused(yoke_data_parallel_create(&parallel, model, devices, NULL, &options),
                   "activation_checkpointing with synchronize_batch_norm");
    yoke_devices_close(devices);
    yoke_model_destroy(model);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bits_stay_and_memory_shrinks),
        cmocka_unit_test(micro_batches_keep_their_bits_too),
        cmocka_unit_test(ranges_that_cannot_be_are_refused),
    };
    return RUN_ON_DEVICES(tests, NULL, NULL);
}
