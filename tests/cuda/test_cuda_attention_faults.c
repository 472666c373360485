/* SPDX-License-Identifier: Apache-2.0 */
/* Each call that planning and running attention by cuDNN's graph makes fails in turn: an error, or
 * Yoke's own kernels instead; nothing leaks. On a simulated GPU. */
#include "device/device.h"
#include "gpu_rig.h"
#include "simcuda/control.h"

enum { POSITIONS = 4, SIZE = 8, BYTES = 1 << 16 };

typedef struct fault_run {
    yoke_status status;
    bool failed; /* a call did */
    char call[64];
} fault_run;

static yoke_status use_plan(yoke_plan *plan, char *memory) {
    const yoke_plan_step step = {.loss_scale = 1};
    yoke_plan_binding binding = {.inputs = {memory},
                                 .output = memory + BYTES,
                                 .output_gradient = memory + 2 * BYTES,
                                 .input_gradients = {memory + 3 * BYTES},
                                 .saved = memory + 4 * BYTES,
                                 .scratch = memory + 5 * BYTES};
    TRY(yoke_plan_bind(plan, &binding));
    TRY(yoke_plan_forward(plan, &step));
    return yoke_plan_backward(plan, &step);
}

static fault_run fail_call(cuda_device *device, char *memory, uint64_t fail) {
    const yoke_operation operation = {.kind = YOKE_OP_ATTENTION,
                                      .name = "attention",
                                      .input = {3 * SIZE, POSITIONS, 1, true},
                                      .output = {SIZE, POSITIONS, 1, true},
                                      .heads = 1,
                                      .causal = true};
    yoke_plan_request request = {.operation = &operation,
                                 .rows = 1,
                                 .training = true,
                                 .input_gradient = true,
                                 .precision = YOKE_BFLOAT16};
    const cuda_layout input = cuda_value_layout(1, operation.input, YOKE_BFLOAT16);
    cuda_layout_store(&request.inputs[0], &input);
    yoke_plan *plan = NULL;
    fault_run of = {.failed = false};
    CHECK(yoke_algorithms_create(&request.algorithms));
    yoke_algorithms_prefer(request.algorithms, "cuDNN plan");
    simcuda_fail_call(fail);
    of.status = yoke_plan_create(&plan, &device->base, &request);
    if (of.status == YOKE_OK) of.status = use_plan(plan, memory);
    if (simcuda_failed_call() != NULL) {
        of.failed = true;
        snprintf(of.call, sizeof of.call, "%s", simcuda_failed_call());
    }
    simcuda_fail_call(0);
    CHECK(yoke_device_synchronize(&device->base));
    yoke_plan_destroy(plan);
    yoke_algorithms_destroy(request.algorithms);
    return of;
}

static void every_failing_call_is_an_error_or_takes_own_kernels(void **state) {
    cuda_device *device = ((rig *)*state)->device;
    void *memory;
    int errors = 0, others = 0;
    CHECK(yoke_device_allocate(&device->base, 8 * BYTES, "a test", &memory));
    assert_int_equal(fail_call(device, memory, 0).status, YOKE_OK);
    size_t before = simcuda_outstanding();
    for (uint64_t call = 1;; call++) {
        fault_run of = fail_call(device, memory, call);
        if (simcuda_outstanding() > before) simcuda_print_outstanding();
        assert_int_equal(simcuda_outstanding(), before);
        if (!of.failed) break;
        if (strcmp(of.call, "cudnnBackendExecute") == 0)
            assert_int_equal(of.status, YOKE_ERROR_DEVICE);
        errors += of.status != YOKE_OK;
        others += of.status == YOKE_OK;
    }
    assert_true(errors > 0 && others > 100);
    yoke_device_free(&device->base, memory);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_failing_call_is_an_error_or_takes_own_kernels),
    };
    return cmocka_run_group_tests(tests, open_rig, close_rig);
}
