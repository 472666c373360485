/* Yoke computes what PyTorch computes: models, optimizers, nn.DataParallel and samplers, against
 * values that fixtures/make_fixtures.py took from PyTorch. */
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
                     yoke_schedule schedule) {
    test_rig *rig = calloc(1, sizeof *rig);
    assert_non_null(rig);
    rig->subject = subject;
    open_engine(rig, json_object_get(fixture, "tensors"), test_case,
                devices_of(integer(test_case, "devices")),
                (yoke_data_parallel_options){.schedule = schedule});
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
        if (step == 0 && schedule == YOKE_SCHEDULE_CLASSIC && !clipped)
            compare_tensors(rig, json_object_get(test_case, "gradients"),
                            yoke_data_parallel_read_gradient);
    }
    compare_tensors(rig, json_object_get(test_case, "tensors"), yoke_data_parallel_read);
    evaluate(rig, json_object_get(test_case, "evaluation"));
    close_engine(rig);
    free(rig);
}

static void run_subject(const subject_model *subject) {
    json_t *fixture = read_fixture(subject->name);
    size_t index;
    const json_t *test_case;
    json_array_foreach(json_object_get(fixture, "cases"), index, test_case) {
        run_case(subject, fixture, test_case, YOKE_SCHEDULE_CLASSIC);
        run_case(subject, fixture, test_case, YOKE_SCHEDULE_OVERLAP);
        run_case(subject, fixture, test_case, YOKE_SCHEDULE_SHARDED);
    }
    assert_true(index > 0);
    json_decref(fixture);
}

static void a_convnet_trains_as_in_pytorch_on_one_to_four_devices(void **state) {
    (void)state;
    run_subject(&convnet);
}

static void a_resnet_trains_as_under_nn_data_parallel(void **state) {
    (void)state;
    run_subject(&resnet);
}

static void a_regression_with_a_shared_layer_trains_as_in_pytorch(void **state) {
    (void)state;
    run_subject(&mlp);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_convnet_trains_as_in_pytorch_on_one_to_four_devices),
        cmocka_unit_test(a_resnet_trains_as_under_nn_data_parallel),
        cmocka_unit_test(a_regression_with_a_shared_layer_trains_as_in_pytorch),
    };
    return RUN_ON_DEVICES(tests, NULL, NULL);
}
