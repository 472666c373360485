/* SPDX-License-Identifier: Apache-2.0 */
/* Batch norms whose statistics are frozen compute in training as in evaluation, with the gradients
 * of that, in every schedule and on any number of devices; the others stay as they are. */
#include "support/engine_check.h"
#include "yoke/verify.h"

enum { ROWS = 6, STEPS = 3 };

static const yoke_optimizer_options optimizer = {
    .struct_size = sizeof optimizer, .kind = YOKE_SGD, .learning_rate = 0.05, .momentum = 0.9};

/* Convolution, frozen norm, ReLU; convolution, norm that trains, sum with the former, ReLU. */
static yoke_model *make_model(void) {
    yoke_model *model = NULL;
    yoke_conv2d_options conv = YOKE_CONV2D_OPTIONS_INIT;
    yoke_batch_norm_options norm = YOKE_BATCH_NORM_OPTIONS_INIT;
    yoke_linear_options fc = YOKE_LINEAR_OPTIONS_INIT;
    conv.out_channels = 8;
    conv.kernel = 3;
    conv.padding = 1;
    conv.no_bias = true;
    fc.name = "fc";
    fc.out_features = CHECK_CLASSES;
    EXPECT_OK(yoke_model_create(&model, "norms",
                                yoke_shape_image(CHECK_CHANNELS, CHECK_SIDE, CHECK_SIDE)));
    static const char *const convs[] = {"conv1", "layer1.conv", "layer2.conv"};
    static const char *const norms[] = {"bn1", "layer1.bn", "layer2.bn"};
    yoke_value value = yoke_model_input(model);
    for (int i = 0; i < 3; i++) {
        yoke_value shortcut = value;
        conv.name = convs[i];
        norm.name = norms[i];
        value = yoke_batch_norm(model, yoke_conv2d(model, value, &conv), &norm);
        if (i > 0) value = yoke_add(model, value, shortcut);
        value = yoke_relu(model, value);
    }
    value = yoke_flatten(model, yoke_global_average_pool(model, value));
    EXPECT_OK(yoke_model_finish(model, yoke_linear(model, value, &fc), NULL));
    return model;
}

static yoke_data_parallel_options options_for(yoke_schedule schedule, const char *patterns) {
    return (yoke_data_parallel_options){.struct_size = sizeof(yoke_data_parallel_options),
                                        .schedule = schedule,
                                        .algorithm = YOKE_ALGORITHM_DIRECT,
                                        .batch = ROWS,
                                        .seed = 3,
                                        .first_bucket_bytes = 1024,
                                        .bucket_bytes = 2048,
                                        .freeze_statistics = patterns};
}

/* Running statistics that are not those of the batches. */
static void write_statistics(yoke_data_parallel *parallel) {
    static const char *const names[] = {"bn1", "layer1.bn", "layer2.bn"};
    float mean[8], variance[8];
    char name[32];
    for (int i = 0; i < 3; i++) {
        for (int c = 0; c < 8; c++) {
            mean[c] = 0.1f * (float)(c - 3 + i);
            variance[c] = 0.5f + 0.2f * (float)((c + i) % 5);
        }
        snprintf(name, sizeof name, "%s.running_mean", names[i]);
        EXPECT_OK(yoke_data_parallel_write(parallel, name, mean, 8));
        snprintf(name, sizeof name, "%s.running_var", names[i]);
        EXPECT_OK(yoke_data_parallel_write(parallel, name, variance, 8));
    }
}

static bool is_kept(const char *name, const char *patterns) {
    bool running = strstr(name, "running") != NULL;
    return running && (strcmp(patterns, "*") == 0 || strncmp(name, "layer1", 6) == 0);
}

/* Every tensor of the engine against the reference's, which begins with the engine's. */
static void copy_to_reference(yoke_data_parallel *parallel, const yoke_model *model,
                              yoke_reference *reference) {
    for (int i = 0; i < yoke_model_tensor_count(model); i++) {
        yoke_tensor_info info = {.struct_size = sizeof info};
        EXPECT_OK(yoke_model_tensor(model, i, &info));
        if (info.integer) continue;
        float *values = malloc(info.count * sizeof *values);
        double *copies = malloc(info.count * sizeof *copies);
        EXPECT_OK(yoke_data_parallel_read(parallel, info.name, values, info.count));
        for (size_t k = 0; k < info.count; k++)
            copies[k] = (double)values[k];
        EXPECT_OK(yoke_reference_write(reference, info.name, copies, info.count));
        free(copies);
        free(values);
    }
}

static void compare(yoke_data_parallel *parallel, const yoke_model *model,
                    yoke_reference *reference) {
    for (int i = 0; i < yoke_model_tensor_count(model); i++) {
        yoke_tensor_info info = {.struct_size = sizeof info};
        EXPECT_OK(yoke_model_tensor(model, i, &info));
        if (info.integer) continue;
        float *values = malloc(info.count * sizeof *values);
        double *wanted = malloc(info.count * sizeof *wanted);
        EXPECT_OK(yoke_data_parallel_read(parallel, info.name, values, info.count));
        EXPECT_OK(yoke_reference_read(reference, info.name, wanted, info.count));
        for (size_t k = 0; k < info.count; k++)
            if (!(fabs((double)values[k] - wanted[k]) <= 2e-5 * (1 + fabs(wanted[k]))))
                fail_msg("%s[%zu] is %g, wanted %g", info.name, k, (double)values[k], wanted[k]);
        free(wanted);
        free(values);
    }
}

static void train(int devices, yoke_schedule schedule, const char *patterns) {
    yoke_model *model = make_model();
    check_engine engine =
        check_engine_make(model, devices, options_for(schedule, patterns), &optimizer);
    yoke_reference_options how = {
        .struct_size = sizeof how, .batch = ROWS, .shards = devices, .freeze_statistics = patterns};
    yoke_reference *reference = NULL;
    float before[8], after[8];
    EXPECT_OK(yoke_reference_create(&reference, model, &optimizer, &how));
    write_statistics(engine.parallel);
    copy_to_reference(engine.parallel, model, reference);
    EXPECT_OK(yoke_data_parallel_read(engine.parallel, "layer1.bn.running_mean", before, 8));
    for (int step = 0; step < STEPS; step++) {
        check_batch batch = check_batch_make(ROWS, (uint32_t)step);
        yoke_step_result one = {.struct_size = sizeof one}, two = one;
        EXPECT_OK(yoke_data_parallel_step(engine.parallel, &batch.batch, -1, &one));
        EXPECT_OK(yoke_reference_step(reference, &batch.batch, -1, &two));
        assert_true(fabs(one.loss - two.loss) <= 1e-5 * two.loss);
        check_batch_free(&batch);
    }
    compare(engine.parallel, model, reference);
    EXPECT_OK(yoke_data_parallel_read(engine.parallel, "layer1.bn.running_mean", after, 8));
    assert_true(is_kept("layer1.bn.running_mean", patterns));
    assert_memory_equal(before, after, sizeof before);
    yoke_reference_destroy(reference);
    check_engine_free(&engine);
    yoke_model_destroy(model);
}

static void training_equals_the_reference(void **state) {
    (void)state;
    for (int devices = 1; devices <= 3; devices++)
        for (int schedule = YOKE_SCHEDULE_OVERLAP; schedule <= YOKE_SCHEDULE_SHARDED; schedule++) {
            train(devices, (yoke_schedule)schedule, "*");
            train(devices, (yoke_schedule)schedule, "layer1.*");
        }
}

/* With all of them frozen a row's gradient does not depend on the others, so neither do weights on
 * the number of devices; and a single row will do. */
static void frozen_statistics_make_rows_independent(void **state) {
    (void)state;
    float *weights[2];
    size_t count = 0;
    for (int devices = 1; devices <= 2; devices++) {
        yoke_model *model = make_model();
        yoke_data_parallel_options options = options_for(YOKE_SCHEDULE_OVERLAP, "*");
        options.shards = 2;
        check_engine engine = check_engine_make(model, devices, options, &optimizer);
        for (int step = 0; step < STEPS; step++) {
            check_batch batch = check_batch_make(step == 1 ? 2 : ROWS, (uint32_t)step);
            EXPECT_OK(yoke_data_parallel_step(engine.parallel, &batch.batch, -1, NULL));
            check_batch_free(&batch);
        }
        weights[devices - 1] = check_read_all(engine.parallel, model, false, &count);
        check_engine_free(&engine);
        yoke_model_destroy(model);
    }
    assert_memory_equal(weights[0], weights[1], count * sizeof **weights);
    free(weights[0]);
    free(weights[1]);
}

static void a_pattern_without_a_batch_norm_is_refused(void **state) {
    (void)state;
    yoke_model *model = make_model();
    yoke_devices *devices = NULL;
    yoke_data_parallel *parallel = NULL;
    yoke_devices_options open = {.struct_size = sizeof open, .list = devices_of(1)};
    yoke_data_parallel_options options = options_for(YOKE_SCHEDULE_OVERLAP, "bn1.*,fc.*");
    EXPECT_OK(yoke_devices_open(&devices, &open));
    assert_int_equal(yoke_data_parallel_create(&parallel, model, devices, NULL, &options),
                     YOKE_ERROR_ARGUMENT);
    if (strstr(yoke_last_error(), "batch norm to freeze \"fc.*\"") == NULL)
        fail_msg("it says: %s", yoke_last_error());
    yoke_devices_close(devices);
    yoke_model_destroy(model);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(training_equals_the_reference),
        cmocka_unit_test(frozen_statistics_make_rows_independent),
        cmocka_unit_test(a_pattern_without_a_batch_norm_is_refused),
    };
    return RUN_ON_DEVICES(tests, NULL, NULL);
}
