/* SPDX-License-Identifier: Apache-2.0 */
/* Libraries of simulated GPUs that fail: a cuDNN that does not start, that says why it fails, that
 * serves few convolutions, and that loses the GPU. */
#include "device/cuda/cuda.h"
#include "operation_parity.h"
#include "simcuda/control.h"
#include "with_setting.h"

#define NO_CUDNN "no cuDNN: CUDNN_STATUS_"

/* 3x3 over 4 channels. */
static parity_case convolution(int dilation) {
    return (parity_case){.operation = {.kind = YOKE_OP_CONV2D,
                                       .name = "layer",
                                       .input = {4, 7, 6},
                                       .output = {6, 9 - 2 * dilation, 8 - 2 * dilation},
                                       .kernel = 3,
                                       .stride = 1,
                                       .padding = 1,
                                       .groups = 1,
                                       .dilation = dilation},
                         .rows = 3};
}

/* It won the contests for forward and both gradients, and the results equal the CPU's. */
static void expect_winner(parity_rig *rig, const parity_case *c, const char *winner) {
    const char *key, *name;
    double milliseconds;
    int passes = 0;
    parity_check(rig, c);
    bool without = cuda_of(yoke_devices_at(rig->devices, 0))->cudnn == NULL;
    for (; yoke_algorithms_at(rig->algorithms, passes, &key, &name, &milliseconds); passes++) {
        if (strcmp(name, winner) != 0) fail_msg("%s: %s, not %s", key, name, winner);
        assert_int_equal(strstr(key, " without cuDNN") != NULL, without);
    }
    assert_int_equal(passes, 3);
}

static void expect_im2col_and_a_note(void) {
    size_t before = simcuda_outstanding();
    parity_rig rig;
    parity_rig_open(&rig, "2xcuda");
    for (int i = 0; i < 2; i++) {
        yoke_device_info info = {.struct_size = sizeof info};
        PARITY_OK(yoke_devices_describe(rig.devices, i, &info));
        if (strncmp(info.note, NO_CUDNN, strlen(NO_CUDNN)) != 0) fail_msg("note: %s", info.note);
    }
    parity_case c = convolution(1);
    expect_winner(&rig, &c, "im2col");
    parity_rig_close(&rig);
    assert_int_equal(simcuda_outstanding(), before);
}

static void a_cudnn_that_does_not_start_leaves_convolutions_to_im2col_with_a_note(void **state) {
    WITH("SIMCUDA_FAULT", "cudnnCreate@*=1001");
    expect_im2col_and_a_note();
}

static void a_cudnn_that_takes_no_stream_is_closed_and_left_out(void **state) {
    WITH("SIMCUDA_FAULT", "cudnnSetStream@*=x");
    expect_im2col_and_a_note();
}

static void expect_end(const char *text, const char *end) {
    size_t length = strlen(text), wanted = strlen(end);
    if (length < wanted || strcmp(text + length - wanted, end) != 0) fail_msg("note: %s", text);
}

/* Devices that convolved in different ways would compute different bits. */
static void all_gpus_do_without_a_cudnn_that_fails_on_one_and_have_both_notes(void **state) {
    WITH("SIMCUDA_FAULT", "cudnnCreate@1=1001");
    setenv("SIMCUDA_PEERS", "corrupt", 1);
    yoke_devices *devices = NULL;
    yoke_devices_options options = {.struct_size = sizeof options, .list = "2xcuda"};
    yoke_device_info first = {.struct_size = sizeof first}, second = {.struct_size = sizeof second};
    PARITY_OK(yoke_devices_open(&devices, &options));
    PARITY_OK(yoke_devices_describe(devices, 0, &first));
    PARITY_OK(yoke_devices_describe(devices, 1, &second));
    const char *text = NO_CUDNN "NOT_INITIALIZED; through host memory";
    assert_memory_equal(first.note, text, strlen(text));
    expect_end(first.note, "copies from cuda:1");
    text = "no cuDNN: it fails on another GPU; through host memory";
    assert_memory_equal(second.note, text, strlen(text));
    expect_end(second.note, "copies from cuda:0");
    for (int k = 0; k < 2; k++)
        assert_null(cuda_of(yoke_devices_at(devices, k))->cudnn);
    yoke_devices_close(devices);
}

/* Next time there may be memory. */
static void a_cudnn_without_memory_is_an_error(void **state) {
    WITH("SIMCUDA_FAULT", "cudnnCreate@1=4003");
    size_t before = simcuda_outstanding();
    yoke_devices *devices = NULL;
    yoke_devices_options options = {.struct_size = sizeof options, .list = "2xcuda"};
    assert_int_equal(yoke_devices_open(&devices, &options), YOKE_ERROR_MEMORY);
    assert_int_equal(simcuda_outstanding(), before);
}

/* Plans the case for the GPU and runs it forward. */
static yoke_status run_forward(yoke_device *device, const parity_case *c,
                               yoke_algorithms *algorithms) {
    parity_side side = {.c = c, .device = device};
    const yoke_plan_step step = {.loss_scale = 1};
    yoke_device_scope scope;
    PARITY_OK(yoke_device_enter(device, false, &scope));
    side.inputs[0] = parity_produced(&side, c->operation.input);
    yoke_plan_request request = {.operation = &c->operation,
                                 .rows = c->rows,
                                 .algorithm = c->algorithm,
                                 .inputs = {side.inputs[0]},
                                 .algorithms = algorithms};
    yoke_status status = yoke_plan_create(&side.plan, device, &request);
    if (status == YOKE_OK) {
        side.needs = yoke_plan_describe(side.plan);
        parity_bind(&side);
        status = yoke_plan_forward(side.plan, &step);
    }
    yoke_device_leave(device, &scope);
    parity_close(&side);
    return status;
}

static void a_failing_cudnn_gives_its_own_reason(void **state) {
    WITH("SIMCUDA_FAULT", "cudnnConvolutionForward@1=x");
    parity_rig rig;
    parity_rig_open(&rig, "cuda:0");
    parity_case c = convolution(1);
    c.evaluation = true;
    c.algorithm = YOKE_ALGORITHM_DIRECT;
    yoke_device *device = yoke_devices_at(rig.devices, 0);
    assert_int_equal(run_forward(device, &c, NULL), YOKE_ERROR_DEVICE);
    assert_string_equal(yoke_last_error(),
                        "cuda:0: cudnnConvolutionForward: CUDNN_STATUS_EXECUTION_FAILED: "
                        "cudnnConvolutionForward was made to fail");
    PARITY_OK(run_forward(device, &c, NULL));
    parity_rig_close(&rig);
}

/* The runtime of this room did not see the error: it must ask. */
static void a_gpu_that_a_library_loses_is_poisoned_with_cudas_reason(void **state) {
    WITH("SIMCUDA_FAULT", "cudnnConvolutionForward@2=700!");
    parity_rig rig;
    parity_rig_open(&rig, "cuda:0");
    parity_case c = convolution(1);
    c.evaluation = true;
    yoke_device *device = yoke_devices_at(rig.devices, 0);
    assert_int_equal(run_forward(device, &c, rig.algorithms), YOKE_ERROR_DEVICE);
    const char *text = "layer: cuda:0: cudnnConvolutionForward: cudaErrorIllegalAddress (";
    assert_memory_equal(yoke_last_error(), text, strlen(text));
    assert_int_equal(yoke_device_synchronize(device), YOKE_ERROR_DEVICE);
    text = "cuda:0: poisoned by cudaErrorIllegalAddress of cudnnConvolutionForward; ";
    assert_memory_equal(yoke_last_error(), text, strlen(text));
    parity_rig_close(&rig);
}

/* In NHWC the simulated cuDNN has no algorithm for taps that lie apart. */
static void dilated_convolutions_are_im2cols_in_every_precision(void **state) {
    (void)state;
    for (yoke_precision precision = YOKE_FLOAT32; precision <= YOKE_BFLOAT16; precision++) {
        parity_rig rig;
        parity_rig_open(&rig, "cuda:0");
        parity_case c = convolution(2);
        c.precision = precision;
        expect_winner(&rig, &c, "im2col");
        parity_rig_close(&rig);
    }
}

int main(void) {
#ifndef YOKE_HAS_CUDNN
    return DEVICES_SKIPPED;
#endif
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_cudnn_that_does_not_start_leaves_convolutions_to_im2col_with_a_note),
        cmocka_unit_test(a_cudnn_that_takes_no_stream_is_closed_and_left_out),
        cmocka_unit_test(all_gpus_do_without_a_cudnn_that_fails_on_one_and_have_both_notes),
        cmocka_unit_test(a_cudnn_without_memory_is_an_error),
        cmocka_unit_test(a_failing_cudnn_gives_its_own_reason),
        cmocka_unit_test(a_gpu_that_a_library_loses_is_poisoned_with_cudas_reason),
        cmocka_unit_test(dilated_convolutions_are_im2cols_in_every_precision),
    };
    with_setting_filter();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
