/* SPDX-License-Identifier: Apache-2.0 */
/* An operation of the host program on GPUs: what its callbacks queue on the stream belongs to every
 * step, in float32 and, converted, in bfloat16. */
#include <cuda_runtime_api.h>

#include "support/engine_check.h"

/* The output is input 0; input 1 and beta have no part in it. */

static yoke_status checked(cudaError_t error) {
    if (error == cudaSuccess) return YOKE_OK;
    return yoke_error_raise(YOKE_ERROR_DEVICE, "%s", cudaGetErrorString(error));
}

static size_t bytes_of(const yoke_host_call *call) {
    return (size_t)call->rows * call->output_elements * sizeof(float);
}

static yoke_status keep_forward(void *payload, const yoke_host_call *call) {
    ++*(int *)payload;
    return checked(cudaMemcpyAsync(call->output, call->inputs[0].values, bytes_of(call),
                                   cudaMemcpyDeviceToDevice, call->stream));
}

static yoke_status keep_backward(void *payload, const yoke_host_call *call) {
    float *beta = call->parameters[0].gradient;
    size_t bytes = bytes_of(call), beta_bytes = call->parameters[0].elements * sizeof(float);
    (void)payload;
    yoke_status status = checked(cudaMemcpyAsync(call->inputs[0].gradient, call->output_gradient,
                                                 bytes, cudaMemcpyDeviceToDevice, call->stream));
    if (status == YOKE_OK)
        status = checked(cudaMemsetAsync(call->inputs[1].gradient, 0, bytes, call->stream));
    if (status == YOKE_OK) status = checked(cudaMemsetAsync(beta, 0, beta_bytes, call->stream));
    return status;
}

static yoke_status fails(void *payload, const yoke_host_call *call) {
    (void)payload, (void)call;
    return yoke_error_raise(YOKE_ERROR_DEVICE, "no kernel image");
}

typedef yoke_status (*callback)(void *payload, const yoke_host_call *call);

static yoke_value keep(yoke_model *model, yoke_value a, yoke_value b, callback forward,
                       int *calls) {
    yoke_parameter_options beta = YOKE_PARAMETER_OPTIONS_INIT;
    yoke_operation_options own = YOKE_OPERATION_OPTIONS_INIT;
    beta.name = "beta";
    beta.shape = yoke_shape_vector(8);
    beta.value = 1;
    own.name = "own";
    own.shape = yoke_shape_image(8, CHECK_SIDE, CHECK_SIDE);
    own.inputs = (yoke_value[]){a, b};
    own.input_count = 2;
    own.parameters = (const yoke_parameter_options *[]){&beta};
    own.parameter_count = 1;
    own.forward = forward;
    own.backward = keep_backward;
    own.payload = calls;
    return yoke_model_add_operation(model, &own);
}

/* forward NULL: the twin, of operations of the library. */
static yoke_model *network(callback forward, int *calls) {
    yoke_model *model = NULL;
    EXPECT_OK(
        yoke_model_create(&model, "own", yoke_shape_image(CHECK_CHANNELS, CHECK_SIDE, CHECK_SIDE)));
    yoke_conv2d_options conv = {
        .struct_size = sizeof conv, .name = "conv1", .out_channels = 8, .kernel = 3, .padding = 1};
    yoke_value a = yoke_conv2d(model, yoke_model_input(model), &conv), x;
    conv.name = "conv2";
    yoke_value b = yoke_conv2d(model, yoke_model_input(model), &conv);
    yoke_parameter_options beta = YOKE_PARAMETER_OPTIONS_INIT;
    beta.name = "own.beta";
    beta.shape = yoke_shape_image(8, 1, 1);
    beta.value = 1;
    if (forward != NULL)
        x = keep(model, a, b, forward, calls);
    else
        x = yoke_add(model, a,
                     yoke_map_with(model, YOKE_FN_SCALE,
                                   yoke_combine(model, YOKE_FN_MULTIPLY, b,
                                                yoke_parameter_value(model, &beta)),
                                   0, 0));
    yoke_linear_options fc = {
        .struct_size = sizeof fc, .name = "fc", .out_features = CHECK_CLASSES};
    EXPECT_OK(yoke_model_finish(model, yoke_linear(model, yoke_flatten(model, x), &fc), NULL));
    return model;
}

static void gpus_learn_what_its_twin_learns(void **state) {
    (void)state;
    int calls = 0;
    yoke_model *own = network(keep_forward, &calls), *twin = network(NULL, NULL);
    for (int precision = 0; precision < 2; precision++) {
        yoke_data_parallel_options options = check_options(CHECK_BATCH, YOKE_SCHEDULE_OVERLAP);
        options.precision = precision == 0 ? YOKE_FLOAT32 : YOKE_BFLOAT16;
        double tolerance = precision == 0 ? 1e-5 : 1e-2;
        size_t count;
        float *expected = check_weights_after(twin, 1, options, NULL, &count);
        for (int devices = 1; devices <= 3; devices++)
            for (int schedule = 0; schedule < 3; schedule++) {
                options.schedule = (yoke_schedule)schedule;
                float *found = check_weights_after(own, devices, options, NULL, &count);
                double apart = check_relative(found, expected, count);
                if (!(apart < tolerance))
                    fail_msg("%d GPUs, schedule %d, precision %d: %g", devices, schedule, precision,
                             apart);
                free(found);
            }
        free(expected);
    }
    assert_true(calls > 0);
    yoke_model_destroy(twin);
    yoke_model_destroy(own);
}

static void a_failure_is_named(void **state) {
    (void)state;
    yoke_model *model = network(fails, NULL);
    yoke_devices *devices = NULL;
    yoke_data_parallel *parallel = NULL;
    yoke_devices_options open = {.struct_size = sizeof open, .list = devices_of(2)};
    yoke_data_parallel_options options = check_options(CHECK_BATCH, YOKE_SCHEDULE_OVERLAP);
    options.struct_size = sizeof options;
    EXPECT_OK(yoke_devices_open(&devices, &open));
    assert_int_equal(yoke_data_parallel_create(&parallel, model, devices, NULL, &options),
                     YOKE_ERROR_DEVICE);
    if (strstr(yoke_last_error(), "own: its forward: no kernel image") == NULL)
        fail_msg("%s", yoke_last_error());
    yoke_devices_close(devices);
    yoke_model_destroy(model);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gpus_learn_what_its_twin_learns),
        cmocka_unit_test(a_failure_is_named),
    };
    return RUN_ON_DEVICES(tests, NULL, NULL);
}
