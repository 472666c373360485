/* SPDX-License-Identifier: Apache-2.0 */
/* Parameter groups in every mode: what a group says holds on any number of devices and in every
 * schedule, and no step touches, sums or sends a frozen parameter. */
#include "support/engine_check.h"

static const yoke_optimizer_options sgd = {.struct_size = sizeof sgd,
                                           .kind = YOKE_SGD,
                                           .learning_rate = 0.1,
                                           .momentum = 0.9,
                                           .weight_decay = 1e-2};
static const yoke_optimizer_options adamw = {.struct_size = sizeof adamw,
                                             .kind = YOKE_ADAMW,
                                             .learning_rate = 1e-2,
                                             .weight_decay = 0.1,
                                             .beta1 = 0.9,
                                             .beta2 = 0.999,
                                             .epsilon = 1e-8,
                                             .clip_norm = 0.5};

#define GROUP(name, scale)                                                                         \
    .struct_size = sizeof(yoke_parameter_group), .pattern = (name), .learning_rate_scale = (scale)

/* A frozen layer in the middle, half of a frozen layer, a slow one, and one without decay. */
static const yoke_parameter_group groups[] = {
    {GROUP("conv2.*", 1), .frozen = true},
    {GROUP("conv1.bias", 1), .frozen = true},
    {GROUP("*.bias", 0.5), .set_weight_decay = true},
    {GROUP("conv1.*", 0.1)},
};
enum { GROUPS = sizeof groups / sizeof groups[0] };
static const char *const frozen_names[] = {"conv2.weight", "conv1.bias"};

static yoke_data_parallel_options options_of(yoke_schedule schedule) {
    yoke_data_parallel_options options = check_options(CHECK_BATCH, schedule);
    options.groups = groups;
    options.group_count = GROUPS;
    return options;
}

static void groups_mean_the_same_on_any_number_of_devices(void **state) {
    (void)state;
    yoke_model *model = check_model(false, 0.25);
    check_devices_agree(model, options_of(YOKE_SCHEDULE_OVERLAP), &sgd);
    check_devices_agree(model, options_of(YOKE_SCHEDULE_OVERLAP), &adamw);
    yoke_model_destroy(model);
}

static void schedules_and_accumulation_agree(void **state) {
    (void)state;
    yoke_model *model = check_model(true, 0), *plain = check_model(false, 0);
    float *weights[2];
    size_t count;
    check_schedules_agree(model, 3, options_of(YOKE_SCHEDULE_OVERLAP), &sgd);
    for (int cut = 0; cut < 2; cut++) {
        yoke_data_parallel_options options = options_of(YOKE_SCHEDULE_OVERLAP);
        options.accumulate = cut ? 3 : 1;
        weights[cut] = check_weights_after(plain, 2, options, &sgd, &count);
    }
    assert_true(check_relative(weights[1], weights[0], count) < 2e-6);
    free(weights[0]);
    free(weights[1]);
    yoke_model_destroy(plain);
    yoke_model_destroy(model);
}

/* Groups that say what the optimizer says anyway change no bit. */
static void groups_that_change_nothing_change_nothing(void **state) {
    (void)state;
    const yoke_parameter_group idle[] = {
        {GROUP("*.bias", 1), .set_weight_decay = true, .weight_decay = sgd.weight_decay},
        {GROUP("conv?.*", 1)}};
    yoke_model *model = check_model(true, 0);
    yoke_data_parallel_options options = options_of(YOKE_SCHEDULE_OVERLAP);
    size_t count;
    options.groups = idle;
    options.group_count = 2;
    float *with = check_weights_after(model, 2, options, &sgd, &count);
    options.group_count = 0;
    float *without = check_weights_after(model, 2, options, &sgd, &count);
    assert_memory_equal(with, without, count * sizeof *with);
    free(with);
    free(without);
    yoke_model_destroy(model);
}

/* Frozen parameters. */

static float *read_tensor(yoke_data_parallel *parallel, const yoke_model *model, const char *name,
                          size_t *count) {
    for (int i = 0; i < yoke_model_tensor_count(model); i++) {
        yoke_tensor_info info = {.struct_size = sizeof info};
        EXPECT_OK(yoke_model_tensor(model, i, &info));
        if (strcmp(info.name, name) != 0) continue;
        float *values = malloc(info.count * sizeof *values);
        EXPECT_OK(yoke_data_parallel_read(parallel, name, values, info.count));
        *count = info.count;
        return values;
    }
    fail_msg("no %s", name);
    return NULL;
}

/* Decay and momentum would move them, too. */
static void frozen_parameters_keep_their_bits(void **state) {
    (void)state;
    yoke_model *model = check_model(true, 0);
    for (int schedule = 0; schedule < 3; schedule++) {
        check_engine engine =
            check_engine_make(model, 3, options_of((yoke_schedule)schedule), &sgd);
        size_t count = 0;
        for (int i = 0; i < 2; i++) {
            float *before = read_tensor(engine.parallel, model, frozen_names[i], &count);
            check_train(engine.parallel, CHECK_STEPS);
            float *after = read_tensor(engine.parallel, model, frozen_names[i], &count);
            assert_memory_equal(before, after, count * sizeof *before);
            free(before);
            free(after);
        }
        check_engine_free(&engine);
    }
    yoke_model_destroy(model);
}

/* As in PyTorch, requires_grad stops the weights of a batch norm and not its statistics. */
static void a_frozen_batch_norm_updates_its_running_statistics(void **state) {
    (void)state;
    const yoke_parameter_group norm = {GROUP("bn1.*", 1), .frozen = true};
    yoke_model *model = check_model(true, 0);
    yoke_data_parallel_options options = options_of(YOKE_SCHEDULE_OVERLAP);
    options.groups = &norm;
    options.group_count = 1;
    check_engine engine = check_engine_make(model, 2, options, &sgd);
    check_train(engine.parallel, 1);
    size_t count = 0;
    float *mean = read_tensor(engine.parallel, model, "bn1.running_mean", &count);
    float *weight = read_tensor(engine.parallel, model, "bn1.weight", &count);
    for (size_t i = 0; i < count; i++)
        assert_true(mean[i] != 0 && weight[i] == 1);
    free(mean);
    free(weight);
    check_engine_free(&engine);
    yoke_model_destroy(model);
}

static void a_frozen_parameter_has_no_gradient(void **state) {
    (void)state;
    yoke_model *model = check_model(false, 0);
    check_batch batch = check_batch_make(8, 1);
    float values[8 * 8 * 9] = {0};
    check_engine engine = check_engine_make(model, 2, options_of(YOKE_SCHEDULE_OVERLAP), &sgd);
    EXPECT_OK(yoke_data_parallel_forward(engine.parallel, &batch.batch, true, NULL));
    EXPECT_OK(yoke_data_parallel_backward(engine.parallel, NULL));
    assert_int_equal(
        yoke_data_parallel_read_gradient(engine.parallel, "conv2.weight", values, 8 * 8 * 9),
        YOKE_ERROR_ARGUMENT);
    assert_string_equal(yoke_last_error(), "conv2.weight is frozen: it has no gradient");
    assert_int_equal(yoke_data_parallel_write_gradient(engine.parallel, "conv1.bias", values, 8),
                     YOKE_ERROR_ARGUMENT);
    EXPECT_OK(yoke_data_parallel_read_gradient(engine.parallel, "fc.bias", values, CHECK_CLASSES));
    check_engine_free(&engine);
    check_batch_free(&batch);
    yoke_model_destroy(model);
}

/* The bytes that one step reduces, updates and publishes, or replicates. */
static double step_bytes(const yoke_model *model, yoke_schedule schedule, yoke_stage stage,
                         bool frozen) {
    const yoke_parameter_group rest = {GROUP("*[!s]", 1), .frozen = true};
    yoke_data_parallel_options options = options_of(schedule);
    options.groups = &rest;
    options.group_count = frozen;
    check_engine engine = check_engine_make(model, 3, options, &sgd);
    check_train(engine.parallel, 1);
    yoke_trace_reset(yoke_data_parallel_trace(engine.parallel));
    check_train(engine.parallel, 1);
    double bytes = check_bytes(engine.parallel, stage);
    check_engine_free(&engine);
    return bytes;
}

/* With everything frozen but the biases, which take a line or two of over a hundred. GPUs do not
 * report the bytes of an exchange. */
static void no_step_reduces_or_sends_frozen_parameters(void **state) {
    (void)state;
    static const struct {
        yoke_schedule schedule;
        yoke_stage stage;
    } cases[] = {{YOKE_SCHEDULE_OVERLAP, YOKE_STAGE_EXCHANGE},
                 {YOKE_SCHEDULE_SHARDED, YOKE_STAGE_EXCHANGE},
                 {YOKE_SCHEDULE_CLASSIC, YOKE_STAGE_REDUCE},
                 {YOKE_SCHEDULE_CLASSIC, YOKE_STAGE_UPDATE},
                 {YOKE_SCHEDULE_CLASSIC, YOKE_STAGE_REPLICATE}};
    yoke_model *model = check_model(false, 0);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        double all = step_bytes(model, cases[i].schedule, cases[i].stage, false);
        double some = step_bytes(model, cases[i].schedule, cases[i].stage, true);
        if (!(some <= all / 8))
            fail_msg("stage %d moves %g bytes with frozen weights, %g without", (int)cases[i].stage,
                     some, all);
        if (strncmp(devices_of(1), "cpu", 3) == 0) assert_true(all > 0 && some > 0);
    }
    yoke_model_destroy(model);
}

/* Only a write replicates them: the other replicas compute with the new values. */
static void a_written_frozen_parameter_reaches_every_replica(void **state) {
    (void)state;
    yoke_model *model = check_model(false, 0);
    float losses[2];
    for (int devices = 1; devices <= 3; devices += 2) {
        check_engine engine =
            check_engine_make(model, devices, options_of(YOKE_SCHEDULE_CLASSIC), &sgd);
        check_batch batch = check_batch_make(12, 2);
        yoke_step_result result = {.struct_size = sizeof result};
        float values[8 * 8 * 9];
        check_train(engine.parallel, 2);
        for (int i = 0; i < 8 * 8 * 9; i++)
            values[i] = (float)check_noise((uint32_t)i);
        EXPECT_OK(yoke_data_parallel_write(engine.parallel, "conv2.weight", values, 8 * 8 * 9));
        EXPECT_OK(yoke_data_parallel_step(engine.parallel, &batch.batch, 0, &result));
        losses[devices / 2] = (float)result.loss;
        check_batch_free(&batch);
        check_engine_free(&engine);
    }
    assert_true(fabsf(losses[0] - losses[1]) < 1e-5f * fabsf(losses[0]));
    yoke_model_destroy(model);
}

static size_t optimizer_bytes(const yoke_model *model, int group_count) {
    yoke_memory_report report = {.struct_size = sizeof report};
    yoke_data_parallel_options options = options_of(YOKE_SCHEDULE_OVERLAP);
    options.group_count = group_count;
    check_engine engine = check_engine_make(model, 1, options, &adamw);
    EXPECT_OK(yoke_data_parallel_memory(engine.parallel, 0, &report));
    check_engine_free(&engine);
    return report.optimizer;
}

/* AdamW's two moments of conv2.weight, 8 x 8 x 3 x 3, at least. */
static void frozen_parameters_have_no_optimizer_state(void **state) {
    (void)state;
    yoke_model *model = check_model(false, 0);
    assert_true(optimizer_bytes(model, 0) - optimizer_bytes(model, GROUPS) >=
                2 * 576 * sizeof(float));
    yoke_model_destroy(model);
}

/* Of conv1 and conv2, 8 channels each, and fc; fc.weight is in no group. */
static void a_group_counts_its_parameters(void **state) {
    (void)state;
    static const struct {
        int group, tensors;
        size_t elements;
    } cases[] = {{-1, 1, 40}, {0, 1, 576}, {1, 1, 8}, {2, 1, 5}, {3, 1, 144}};
    yoke_model *model = check_model(false, 0);
    check_engine engine = check_engine_make(model, 1, options_of(YOKE_SCHEDULE_OVERLAP), &sgd);
    yoke_group_report report = {.struct_size = sizeof report};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        EXPECT_OK(yoke_data_parallel_group(engine.parallel, cases[i].group, &report));
        assert_int_equal(report.tensors, cases[i].tensors);
        assert_int_equal(report.elements, cases[i].elements);
    }
    assert_int_equal(yoke_data_parallel_group(engine.parallel, GROUPS, &report),
                     YOKE_ERROR_ARGUMENT);
    assert_int_equal(yoke_data_parallel_group(engine.parallel, -2, &report), YOKE_ERROR_ARGUMENT);
    check_engine_free(&engine);
    yoke_model_destroy(model);
}

/* Mistakes. */

static void expect_refusal(const yoke_parameter_group *given, int count, const char *text) {
    yoke_model *model = check_model(true, 0);
    yoke_devices *devices = NULL;
    yoke_data_parallel *parallel = NULL;
    yoke_devices_options open = {
        .struct_size = sizeof open, .list = devices_of(1), .threads = 1, .unbound = true};
    yoke_data_parallel_options options = options_of(YOKE_SCHEDULE_OVERLAP);
    options.struct_size = sizeof options;
    options.groups = given;
    options.group_count = count;
    EXPECT_OK(yoke_devices_open(&devices, &open));
    assert_int_equal(yoke_data_parallel_create(&parallel, model, devices, &sgd, &options),
                     YOKE_ERROR_ARGUMENT);
    if (strstr(yoke_last_error(), text) == NULL)
        fail_msg("\"%s\" does not say \"%s\"", yoke_last_error(), text);
    assert_null(parallel);
    yoke_devices_close(devices);
    yoke_model_destroy(model);
}

static void a_group_that_cannot_be_meant_is_refused_with_its_reason(void **state) {
    (void)state;
    const struct {
        yoke_parameter_group groups[2];
        int count;
        const char *text;
    } cases[] = {
        {{{GROUP("cnv2.*", 1)}}, 1, "\"cnv2.*\" matches no name of small"},
        {{{GROUP("cnv2.*", 1)}}, 1, "did you mean \"conv2\"?"},
        {{{GROUP("*.bais", 1)}}, 1, "did you mean \"bias\"?"},
        {{{GROUP("conv1.wieght", 1)}}, 1, "did you mean \"conv1.weight\"?"},
        {{{GROUP("bn1.running_*", 1)}}, 1, "\"bn1.running_*\" matches no name of small"},
        {{{GROUP("*", 1)}, {GROUP("fc.*", 1)}}, 2, "\"*\" has fc.weight; the first match counts"},
        {{{GROUP("*", 1), .frozen = true}}, 1, "freeze every parameter of small"},
        {{{GROUP(NULL, 1)}}, 1, "groups[0] has no pattern"},
        {{{GROUP("*", -1)}}, 1, "learning_rate_scale is -1: it must be 0 or more"},
        {{{GROUP("*", 1), .weight_decay = NAN}}, 1, "weight_decay is nan: it must be 0 or more"},
        {{{.pattern = "*"}}, 1, "yoke_parameter_group.struct_size is 0"},
        {{{GROUP("*", 1)}}, -1, "group_count is -1"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        expect_refusal(cases[i].groups, cases[i].count, cases[i].text);
    expect_refusal(NULL, 1, "group_count is 1, and groups is NULL");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(groups_mean_the_same_on_any_number_of_devices),
        cmocka_unit_test(schedules_and_accumulation_agree),
        cmocka_unit_test(groups_that_change_nothing_change_nothing),
        cmocka_unit_test(frozen_parameters_keep_their_bits),
        cmocka_unit_test(a_frozen_batch_norm_updates_its_running_statistics),
        cmocka_unit_test(a_frozen_parameter_has_no_gradient),
        cmocka_unit_test(no_step_reduces_or_sends_frozen_parameters),
        cmocka_unit_test(a_written_frozen_parameter_reaches_every_replica),
        cmocka_unit_test(frozen_parameters_have_no_optimizer_state),
        cmocka_unit_test(a_group_counts_its_parameters),
        cmocka_unit_test(a_group_that_cannot_be_meant_is_refused_with_its_reason),
    };
    return RUN_ON_DEVICES(tests, NULL, NULL);
}
