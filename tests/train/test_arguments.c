/* SPDX-License-Identifier: Apache-2.0 */
/* Every public call of engine, trainer and devices refuses arguments that make no sense and
 * names them: a caller's mistake ends in a status, not in a crash. */
#include "support/engine_check.h"

static yoke_model *model;
static check_engine engine;
static check_batch batch;
static yoke_step_result result = {.struct_size = sizeof result};

static int set_up(void **state) {
    (void)state;
    yoke_optimizer_options sgd = YOKE_SGD_OPTIONS_INIT;
    model = check_model(false, 0);
    engine = check_engine_make(model, 2, (yoke_data_parallel_options){.batch = 4}, &sgd);
    batch = check_batch_make(4, 1);
    return 0;
}

static int tear_down(void **state) {
    (void)state;
    check_batch_free(&batch);
    check_engine_free(&engine);
    yoke_model_destroy(model);
    return 0;
}

/* The text holds `words`. */
static void expect_refused(yoke_status status, const char *words, int line) {
    if (status != YOKE_ERROR_ARGUMENT || strstr(yoke_last_error(), words) == NULL)
        fail_msg("line %d: %s, \"%s\": ARGUMENT with \"%s\" was expected", line,
                 yoke_status_name(status), yoke_last_error(), words);
}

#define REFUSED(call, words) expect_refused((call), (words), __LINE__)

static void an_engine_names_what_is_null(void **state) {
    (void)state;
    yoke_data_parallel *parallel = engine.parallel;
    uint64_t hash;
    yoke_memory_report report = {.struct_size = sizeof report};
    float values[CHECK_CLASSES] = {0};
    REFUSED(yoke_data_parallel_replicate(NULL), "engine is NULL");
    REFUSED(yoke_data_parallel_forward_replicas(NULL, true), "engine is NULL");
    REFUSED(yoke_data_parallel_update(NULL, YOKE_OPTIMIZER_LEARNING_RATE), "engine is NULL");
    REFUSED(yoke_data_parallel_gather(NULL, &result), "engine is NULL");
    REFUSED(yoke_data_parallel_step(parallel, NULL, YOKE_OPTIMIZER_LEARNING_RATE, &result),
            "batch is NULL");
    REFUSED(yoke_data_parallel_read(NULL, "fc.bias", values, CHECK_CLASSES), "engine is NULL");
    REFUSED(yoke_data_parallel_read(parallel, NULL, values, CHECK_CLASSES), "name is NULL");
    REFUSED(yoke_data_parallel_read(parallel, "fc.bias", NULL, CHECK_CLASSES), "values is NULL");
    REFUSED(yoke_data_parallel_write(parallel, "fc.bias", NULL, CHECK_CLASSES), "values is NULL");
    REFUSED(yoke_data_parallel_hash(NULL, &hash), "engine is NULL");
    REFUSED(yoke_data_parallel_hash(parallel, NULL), "hash is NULL");
    REFUSED(yoke_data_parallel_memory(NULL, 0, &report), "parallel is NULL");
    REFUSED(yoke_data_parallel_memory(parallel, 0, NULL), "yoke_memory_report is NULL");
    REFUSED(yoke_data_parallel_memory(parallel, -1, &report), "replica -1");
    REFUSED(yoke_data_parallel_bind(NULL), "engine is NULL");
    REFUSED(yoke_data_parallel_prepare(NULL, 1, true), "engine is NULL");
}

static void an_engine_refuses_numbers_without_a_meaning(void **state) {
    (void)state;
    yoke_data_parallel *made = NULL;
    yoke_batch unsized = batch.batch;
    unsized.struct_size = 0;
    REFUSED(
        yoke_data_parallel_step(engine.parallel, &unsized, YOKE_OPTIMIZER_LEARNING_RATE, &result),
        "struct_size");
    REFUSED(yoke_data_parallel_step(engine.parallel, &batch.batch, INFINITY, &result),
            "learning_rate");
    yoke_batch stored = batch.batch;
    stored.inputs = NULL;
    REFUSED(
        yoke_data_parallel_step(engine.parallel, &stored, YOKE_OPTIMIZER_LEARNING_RATE, &result),
        "neither inputs nor");
    stored.pixels = (const uint8_t *)batch.inputs;
    REFUSED(
        yoke_data_parallel_step(engine.parallel, &stored, YOKE_OPTIMIZER_LEARNING_RATE, &result),
        "does not decode");
    yoke_batch placed = batch.batch;
    placed.placements = &(yoke_placement){0};
    REFUSED(
        yoke_data_parallel_step(engine.parallel, &placed, YOKE_OPTIMIZER_LEARNING_RATE, &result),
        "placements or crops");
    yoke_data_parallel_options bad = {
        .struct_size = sizeof bad, .batch = 4, .precision = (yoke_precision)7};
    REFUSED(yoke_data_parallel_create(&made, model, engine.devices, NULL, &bad), "precision is 7");
    bad.precision = YOKE_FLOAT32;
    bad.algorithm = (yoke_algorithm)9;
    REFUSED(yoke_data_parallel_create(&made, model, engine.devices, NULL, &bad), "algorithm is 9");
    assert_null(made);
}

static void trainer_files_and_devices_name_what_is_null(void **state) {
    (void)state;
    yoke_trainer *trainer = NULL;
    yoke_device_info device = {.struct_size = sizeof device};
    yoke_tensor_info tensor = {.struct_size = sizeof tensor};
    yoke_trace *trace = yoke_data_parallel_trace(engine.parallel);
    yoke_trainer_options options = {.struct_size = sizeof options,
                                    .lr_schedule = (yoke_lr_schedule_kind)9};
    REFUSED(yoke_trainer_create(NULL, &options), "trainer is NULL");
    REFUSED(yoke_trainer_create(&trainer, &options), "lr_schedule is 9");
    REFUSED(yoke_trainer_run(NULL), "trainer is NULL");
    REFUSED(yoke_trainer_evaluate(NULL, &result), "trainer is NULL");
    REFUSED(yoke_trainer_summarize(NULL, NULL), "trainer is NULL");
    REFUSED(yoke_weights_save(NULL, model, "file"), "parallel is NULL");
    REFUSED(yoke_weights_save(engine.parallel, NULL, "file"), "model is NULL");
    REFUSED(yoke_weights_load(engine.parallel, model, NULL), "path is NULL");
    REFUSED(yoke_devices_open(NULL, NULL), "devices is NULL");
    REFUSED(yoke_devices_describe(NULL, 0, &device), "devices is NULL");
    REFUSED(yoke_devices_describe(engine.devices, 0, NULL), "yoke_device_info is NULL");
    REFUSED(yoke_model_tensor(NULL, 0, &tensor), "model is NULL");
    REFUSED(yoke_trace_save(NULL, "file"), "trace is NULL");
    REFUSED(yoke_trace_save(trace, NULL), "path is NULL");
    assert_false(yoke_backend_describe(0, NULL));
}

/* Static, so that padding is zero: memcmp sees a value in the wrong place. */
#define EXPECT_INIT(type, init, ...)                                                               \
    do {                                                                                           \
        static const type macro = init, expected = {.struct_size = sizeof(type), __VA_ARGS__};     \
        assert_memory_equal(&macro, &expected, sizeof(type));                                      \
    } while (0)

static void init_macros_set_the_defaults_of_their_structs(void **state) {
    (void)state;
    EXPECT_INIT(yoke_optimizer_options, YOKE_SGD_OPTIONS_INIT, .learning_rate = 0.1);
    EXPECT_INIT(yoke_optimizer_options, YOKE_ADAMW_OPTIONS_INIT, .kind = YOKE_ADAMW,
                .learning_rate = 1e-3, .weight_decay = 0.01, .beta1 = 0.9, .beta2 = 0.999,
                .epsilon = 1e-8);
    EXPECT_INIT(yoke_optimizer_options, YOKE_ADAM_OPTIONS_INIT, .kind = YOKE_ADAM,
                .learning_rate = 1e-3, .beta1 = 0.9, .beta2 = 0.999, .epsilon = 1e-8);
    EXPECT_INIT(yoke_optimizer_options, YOKE_RMSPROP_OPTIONS_INIT, .kind = YOKE_RMSPROP,
                .learning_rate = 1e-2, .epsilon = 1e-8, .alpha = 0.99);
    EXPECT_INIT(yoke_optimizer_options, YOKE_LION_OPTIONS_INIT, .kind = YOKE_LION,
                .learning_rate = 1e-4, .beta1 = 0.9, .beta2 = 0.99);
    EXPECT_INIT(yoke_optimizer_options, YOKE_ADAGRAD_OPTIONS_INIT, .kind = YOKE_ADAGRAD,
                .learning_rate = 1e-2, .epsilon = 1e-10);
    EXPECT_INIT(yoke_optimizer_options, YOKE_LAMB_OPTIONS_INIT, .kind = YOKE_LAMB,
                .learning_rate = 1e-3, .weight_decay = 0.01, .beta1 = 0.9, .beta2 = 0.999,
                .epsilon = 1e-6);
    EXPECT_INIT(yoke_optimizer_options, YOKE_MUON_OPTIONS_INIT, .kind = YOKE_MUON,
                .learning_rate = 1e-3, .momentum = 0.95, .nesterov = true, .weight_decay = 0.1,
                .beta1 = 0.9, .beta2 = 0.999, .epsilon = 1e-8);
    EXPECT_INIT(yoke_optimizer_options, YOKE_MUON_FILTERS_OPTIONS_INIT, .kind = YOKE_MUON_FILTERS,
                .learning_rate = 0.24, .momentum = 0.6, .nesterov = true);
    EXPECT_INIT(yoke_batch_norm_options, YOKE_BATCH_NORM_OPTIONS_INIT, .epsilon = 1e-5,
                .momentum = 0.1);
    EXPECT_INIT(yoke_loss_options, YOKE_LOSS_OPTIONS_INIT, .ignore_index = -100);
    EXPECT_INIT(yoke_data_parallel_options, YOKE_DATA_PARALLEL_OPTIONS_INIT, .interpreter_us = 13);
    EXPECT_INIT(yoke_trainer_options, YOKE_TRAINER_OPTIONS_INIT, .lr_patience = 10);
    EXPECT_INIT(yoke_parameter_group, YOKE_PARAMETER_GROUP_INIT, .learning_rate_scale = 1);
    EXPECT_INIT(yoke_lr_plateau, YOKE_LR_PLATEAU_INIT, .factor = 0.1, .patience = 10,
                .threshold = 1e-4);
}

static void an_engine_needs_a_finished_model(void **state) {
    (void)state;
    yoke_model *half = NULL;
    yoke_data_parallel *parallel = NULL;
    yoke_data_parallel_options options = YOKE_DATA_PARALLEL_OPTIONS_INIT;
    options.batch = 4;
    EXPECT_OK(yoke_model_create(&half, "half", (yoke_shape){4, 1, 1, true}));
    REFUSED(yoke_data_parallel_create(&parallel, half, engine.devices, NULL, &options),
            "model 'half' is not finished");
    assert_null(parallel);
    yoke_model_destroy(half);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(init_macros_set_the_defaults_of_their_structs),
        cmocka_unit_test(an_engine_names_what_is_null),
        cmocka_unit_test(an_engine_needs_a_finished_model),
        cmocka_unit_test(an_engine_refuses_numbers_without_a_meaning),
        cmocka_unit_test(trainer_files_and_devices_name_what_is_null),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
