/* SPDX-License-Identifier: Apache-2.0 */
/* Yoke computes what PyTorch computes: models and optimizers, against values that
 * fixtures/make_fixtures.py took from PyTorch. Several devices are compared with its imitation of
 * nn.DataParallel, which computes one part of the batch after the other on a CPU. */
#include "pytorch_rig.h"

static void evaluate(test_rig *rig, const json_t *wanted) {
    yoke_batch batch = make_batch(rig, integer(wanted, "rows"), EVALUATION_STREAM);
    yoke_step_result result = {.struct_size = sizeof result};
    must(yoke_data_parallel_evaluate(rig->parallel, &batch, &result));
    near(result.loss, real(wanted, "loss"), LOSS_TOLERANCE, 0, "evaluation loss");
    assert_int_equal(result.correct, integer(wanted, "correct"));
    float outputs[MAX_ROWS * 5];
    must(yoke_data_parallel_forward(rig->parallel, &batch, false, outputs));
    size_t i;
    const json_t *entry;
    json_array_foreach(json_object_get(wanted, "outputs"), i, entry) {
        size_t at = (size_t)json_integer_value(json_array_get(entry, 0));
        near((double)outputs[at], json_number_value(json_array_get(entry, 1)), VALUE_TOLERANCE, 1,
             "evaluation output");
    }
}

static void run_case(const subject_model *subject, const json_t *fixture, const json_t *test_case,
                     int devices, yoke_data_parallel_options options) {
    test_rig *rig = calloc(1, sizeof *rig);
    assert_non_null(rig);
    rig->subject = subject;
    open_engine(rig, json_object_get(fixture, "tensors"), test_case, devices_of(devices), options);
    bool clipped = json_object_get(test_case, "clip_norm") != NULL;
    size_t steps = json_array_size(json_object_get(test_case, "losses"));
    assert_in_range(steps, 10, 10);
    for (size_t step = 0; step < steps; step++) {
        yoke_batch batch = make_batch(rig, (int)real_at(test_case, "rows", step), (uint32_t)step);
        yoke_step_result result = {.struct_size = sizeof result};
        must(yoke_data_parallel_step(rig->parallel, &batch,
                                     real_at(test_case, "learning_rates", step), &result));
        near(result.loss, real_at(test_case, "losses", step), LOSS_TOLERANCE, 0, "loss");
        assert_int_equal(result.correct, (int)real_at(test_case, "correct", step));
        if (clipped)
            near(result.gradient_norm, real_at(test_case, "norms", step), LOSS_TOLERANCE, 0,
                 "gradient norm");
        if (step == 0 && options.schedule == YOKE_SCHEDULE_CLASSIC && !clipped)
            compare_tensors(rig, json_object_get(test_case, "gradients"),
                            yoke_data_parallel_read_gradient);
    }
    compare_tensors(rig, json_object_get(test_case, "tensors"), yoke_data_parallel_read);
    evaluate(rig, json_object_get(test_case, "evaluation"));
    close_engine(rig);
    free(rig);
}

/* Sharded GPUs take no rule that sees whole tensors. */
static bool is_refused(const json_t *test_case, int schedule) {
    yoke_optimizer_options optimizer = optimizer_of(test_case);
    return !devices_are_cpus() && schedule == YOKE_SCHEDULE_SHARDED &&
           (optimizer.kind == YOKE_LAMB || optimizer.kind == YOKE_MUON ||
            optimizer.kind == YOKE_MUON_FILTERS);
}

static void run_subject(const subject_model *subject) {
    json_t *fixture = read_fixture(subject->name);
    size_t index;
    const json_t *test_case;
    json_array_foreach(json_object_get(fixture, "cases"), index, test_case) {
        for (int schedule = YOKE_SCHEDULE_OVERLAP; schedule <= YOKE_SCHEDULE_SHARDED; schedule++)
            if (!is_refused(test_case, schedule))
                run_case(subject, fixture, test_case, integer(test_case, "devices"),
                         (yoke_data_parallel_options){.schedule = (yoke_schedule)schedule});
    }
    assert_true(index > 0);
    json_decref(fixture);
}

static void a_convnet_trains_as_in_pytorch_on_one_to_four_devices(void **state) {
    (void)state;
    run_subject(&convnet);
}

static void every_optimizer_trains_as_in_pytorch(void **state) {
    (void)state;
    run_subject(&optimizers);
}

static void dilated_and_depthwise_convolutions_train_as_in_pytorch(void **state) {
    (void)state;
    run_subject(&windows);
}

static void a_vision_transformer_trains_as_in_torchvision(void **state) {
    (void)state;
    run_subject(&vit);
}

static void airbench94_trains_as_its_script_does(void **state) {
    (void)state;
    run_subject(&airbench);
}

static void a_resnet_trains_as_in_pytorch_with_a_batch_norm_a_shard(void **state) {
    (void)state;
    run_subject(&resnet);
}

/* PyTorch's SyncBatchNorm refuses CPUs, but by its definition it is the batch norm of one device
 * over the whole batch. */
static void devices_that_synchronise_batch_norm_train_as_one_in_pytorch(void **state) {
    (void)state;
    if (!devices_are_cpus()) skip(); /* GPUs refuse */
    json_t *fixture = read_fixture(resnet.name);
    size_t index;
    int cases = 0;
    const json_t *test_case;
    json_array_foreach(json_object_get(fixture, "cases"), index, test_case) {
        if (integer(test_case, "devices") > 1) continue;
        for (int devices = 2; devices <= 4; devices++)
            for (int schedule = YOKE_SCHEDULE_OVERLAP; schedule <= YOKE_SCHEDULE_SHARDED;
                 schedule++)
                run_case(&resnet, fixture, test_case, devices,
                         (yoke_data_parallel_options){.schedule = (yoke_schedule)schedule,
                                                      .synchronize_batch_norm = true});
        cases++;
    }
    assert_int_equal(cases, 3);
    json_decref(fixture);
}

static void activations_norms_and_gates_train_as_in_pytorch(void **state) {
    (void)state;
    run_subject(&gates);
}

static void squeeze_and_excitation_trains_as_in_pytorch(void **state) {
    (void)state;
    run_subject(&excitation);
}

static void a_regression_with_a_shared_layer_trains_as_in_pytorch(void **state) {
    (void)state;
    run_subject(&mlp);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_convnet_trains_as_in_pytorch_on_one_to_four_devices),
        cmocka_unit_test(every_optimizer_trains_as_in_pytorch),
        cmocka_unit_test(dilated_and_depthwise_convolutions_train_as_in_pytorch),
        cmocka_unit_test(a_vision_transformer_trains_as_in_torchvision),
        cmocka_unit_test(airbench94_trains_as_its_script_does),
        cmocka_unit_test(a_resnet_trains_as_in_pytorch_with_a_batch_norm_a_shard),
        cmocka_unit_test(devices_that_synchronise_batch_norm_train_as_one_in_pytorch),
        cmocka_unit_test(activations_norms_and_gates_train_as_in_pytorch),
        cmocka_unit_test(squeeze_and_excitation_trains_as_in_pytorch),
        cmocka_unit_test(a_regression_with_a_shared_layer_trains_as_in_pytorch),
    };
    return RUN_ON_DEVICES(tests, NULL, NULL);
}
