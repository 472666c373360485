/* SPDX-License-Identifier: Apache-2.0 */
/* Calls that fail one after the other while a convolution is planned and run that may compute parts
 * of the batch norms beside it: an error, or the norms apart; nothing leaks. On a simulated GPU. */
#include "device/device.h"
#include "gpu_rig.h"
#include "simcuda/control.h"

enum { ROWS = 2, CHANNELS = 8, SIDE = 4, BYTES = 1 << 16, EVERY = 401 };

typedef struct fault_run {
    yoke_status status;
    bool failed; /* a call did */
    bool joined;
} fault_run;

static yoke_status use_plan(yoke_plan *plan, char *memory) {
    const yoke_plan_step step = {.loss_scale = 1};
    yoke_plan_binding binding = {.inputs = {memory},
                                 .output = memory + BYTES,
                                 .output_gradient = memory + 2 * BYTES,
                                 .input_gradients = {memory + 3 * BYTES},
                                 .norm_before = memory + 4 * BYTES,
                                 .norm_behind = memory + 5 * BYTES,
                                 .shadows = {memory + 6 * BYTES},
                                 .parameter_gradients = {(float *)(void *)(memory + 7 * BYTES)},
                                 .scratch = memory + 8 * BYTES};
    TRY(yoke_plan_bind(plan, &binding));
    TRY(yoke_plan_forward(plan, &step));
    return yoke_plan_backward(plan, &step);
}

static fault_run fail_call(cuda_device *device, uint64_t fail) {
    const yoke_operation operation = {.kind = YOKE_OP_CONV2D,
                                      .name = "conv",
                                      .input = {CHANNELS, SIDE, SIDE, false},
                                      .output = {CHANNELS, SIDE, SIDE, false},
                                      .kernel = 3,
                                      .stride = 1,
                                      .padding = 1,
                                      .groups = 1,
                                      .dilation = 1};
    yoke_plan_request request = {.operation = &operation,
                                 .rows = ROWS,
                                 .training = true,
                                 .input_gradient = true,
                                 .norm_behind = true,
                                 .norm_before = true,
                                 .precision = YOKE_FLOAT16};
    const cuda_layout input = cuda_value_layout(ROWS, operation.input, YOKE_FLOAT16);
    cuda_layout_store(&request.inputs[0], &input);
    yoke_plan *plan = NULL;
    void *memory;
    CHECK(yoke_device_allocate(&device->base, 16 * BYTES, "a test", &memory));
    CHECK(yoke_algorithms_create(&request.algorithms));
    simcuda_fail_call(fail);
    fault_run of = {.status = yoke_plan_create(&plan, &device->base, &request)};
    of.joined = of.status == YOKE_OK && yoke_plan_describe(plan)->applies_norm;
    if (of.status == YOKE_OK) of.status = use_plan(plan, memory);
    of.failed = simcuda_failed_call() != NULL;
    simcuda_fail_call(0);
    if (!cuda_poisoned(device)) CHECK(yoke_device_synchronize(&device->base));
    yoke_plan_destroy(plan);
    yoke_algorithms_destroy(request.algorithms);
    yoke_device_free(&device->base, memory);
    return of;
}

/* The contest makes and times some dozens of plans: every 401st of its calls fails. */
static void failing_calls_are_errors_or_leave_norms_apart(void **state) {
    (void)state;
    int errors = 0, apart = 0;
    size_t before = simcuda_outstanding();
    for (uint64_t call = 0;; call += call == 0 ? 1 : EVERY) {
        void *opened;
        open_rig(&opened); /* a failed launch poisons a device */
        fault_run of = fail_call(((rig *)opened)->device, call);
        close_rig(&opened);
        if (simcuda_outstanding() > before) simcuda_print_outstanding();
        assert_int_equal(simcuda_outstanding(), before);
        if (call == 0) assert_int_equal(of.status, YOKE_OK);
        if (call > 0 && !of.failed) break;
        errors += of.status != YOKE_OK;
        apart += of.status == YOKE_OK && !of.joined;
    }
    print_message("%d errors, %d times apart\n", errors, apart);
    assert_true(errors > 0 && apart > 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(failing_calls_are_errors_or_leave_norms_apart),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
