/* SPDX-License-Identifier: Apache-2.0 */
/* One operation under test on the CPU device: a plan with its own memory, values of any layout
 * read as doubles in logical order, and a finite-difference check against a reference in double. */
#ifndef OPERATION_CHECK_H
#define OPERATION_CHECK_H

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <omp.h>

#include "base/base.h"
#include "device/cpu/cpu.h"

/* Any failing call of the library ends the test with its text. */
#define CHECK(call)                                                                                \
    do {                                                                                           \
        if ((call) != YOKE_OK) fail_msg("%s: %s", #call, yoke_last_error());                       \
    } while (0)

typedef struct operation_check {
    yoke_operation operation;
    int rows;
    bool training, inference, in_place, no_input_gradient;
    yoke_precision precision;
    dnnl_format_tag_t tags[YOKE_PLAN_INPUTS]; /* of the inputs; 0: nchw */
    int input_count;                          /* 0: 1 */
    yoke_norm_group *norm_group;
    double range; /* of the inputs; 0: 1 */
    /* filled by check_open */
    yoke_device *device;
    yoke_layout inputs[YOKE_PLAN_INPUTS];
    const yoke_plan_needs *needs;
    yoke_plan *plan;
    yoke_plan_binding binding;
    void *owned[24];
    int owned_count;
} operation_check;

static inline yoke_devices *check_devices(int threads) {
#ifdef __SANITIZE_THREAD__
    threads = 1; /* ThreadSanitizer does not see libgomp's barriers and reports every loop */
    omp_set_num_threads(1);
#endif
    yoke_devices_options options = {
        .struct_size = sizeof options, .list = "cpu", .threads = threads, .unbound = true};
    yoke_devices *devices = NULL;
    CHECK(yoke_devices_open(&devices, &options));
    return devices;
}

/* Says so when it answers true. */
static inline bool check_no_bfloat16(void) {
    yoke_devices *devices = check_devices(1);
    bool supported = yoke_device_supports(yoke_devices_at(devices, 0), YOKE_BFLOAT16);
    yoke_devices_close(devices);
    if (!supported) print_message("skipped: this processor does not compute in bfloat16\n");
    return !supported;
}

/* Values. */

static inline size_t check_count(const yoke_layout *layout) {
    const cpu_desc *desc = cpu_layout_desc(layout);
    size_t count = 1;
    for (int i = 0; i < desc->ndims; i++) {
        count *= (size_t)desc->dims[i];
    }
    return count;
}

/* Where logical element `index` lies, in elements. */
static inline size_t check_offset(const cpu_desc *desc, size_t index) {
    dnnl_dim_t position[DNNL_MAX_NDIMS], rest = (dnnl_dim_t)index;
    for (int i = desc->ndims - 1; i >= 0; i--) {
        position[i] = rest % desc->dims[i];
        rest /= desc->dims[i];
    }
    dnnl_dim_t offset = 0, inner = 1;
    for (int b = desc->inner_count - 1; b >= 0; b--) {
        dnnl_dim_t *at = &position[desc->inner_dims[b]];
        offset += *at % desc->inner_blocks[b] * inner;
        inner *= desc->inner_blocks[b];
        *at /= desc->inner_blocks[b];
    }
    for (int i = 0; i < desc->ndims; i++) {
        offset += position[i] * desc->strides[i];
    }
    return (size_t)offset;
}

static inline void check_store(const yoke_layout *layout, void *memory, const double *values) {
    const cpu_desc *desc = cpu_layout_desc(layout);
    memset(memory, 0, layout->bytes);
    for (size_t i = 0; i < check_count(layout); i++) {
        size_t at = check_offset(desc, i);
        if (desc->type == dnnl_bf16)
            ((uint16_t *)memory)[at] = yoke_bfloat16_round((float)values[i]);
        else
            ((float *)memory)[at] = (float)values[i];
    }
}

/* The values of a layout in logical order; padding must be zero. The caller frees them. */
static inline double *check_load(const yoke_layout *layout, const void *memory) {
    const cpu_desc *desc = cpu_layout_desc(layout);
    size_t bytes = desc->type == dnnl_bf16 ? sizeof(uint16_t) : sizeof(float);
    double *values = test_calloc(check_count(layout), sizeof *values);
    char *padding = test_malloc(layout->bytes);
    memcpy(padding, memory, layout->bytes);
    for (size_t i = 0; i < check_count(layout); i++) {
        size_t at = check_offset(desc, i);
        values[i] = desc->type == dnnl_bf16
                        ? (double)yoke_bfloat16_widen(((const uint16_t *)memory)[at])
                        : (double)((const float *)memory)[at];
        memset(padding + at * bytes, 0, bytes);
    }
    for (size_t i = 0; i < layout->bytes; i++) {
        assert_int_equal(padding[i], 0);
    }
    test_free(padding);
    return values;
}

/* Numbers in [low, high) that are exact in bfloat16, the same for the same seed. */
static inline double *check_random(size_t count, double low, double high, uint64_t seed) {
    double *values = test_calloc(count, sizeof *values);
    uint64_t state = seed * 0x9e3779b97f4a7c15u + 1;
    for (size_t i = 0; i < count; i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        double unit = (double)(state >> 11) * 0x1p-53;
        float value = (float)(low + (high - low) * unit);
        values[i] = (double)yoke_bfloat16_widen(yoke_bfloat16_round(value));
    }
    return values;
}

/* Largest difference over the largest expected magnitude (at least 1). */
static inline double check_error(const double *actual, const double *expected, size_t count) {
    double error = 0, magnitude = 1;
    for (size_t i = 0; i < count; i++) {
        if (!(fabs(actual[i]) <= 1e300)) return INFINITY;
        error = fmax(error, fabs(actual[i] - expected[i]));
        magnitude = fmax(magnitude, fabs(expected[i]));
    }
    return error / magnitude;
}

static inline void check_close_values(const char *what, const double *actual,
                                      const double *expected, size_t count, double tolerance) {
    double error = check_error(actual, expected, count);
    if (!(error <= tolerance)) fail_msg("%s: error %g, allowed %g", what, error, tolerance);
}

static inline void check_memory(const char *what, const yoke_layout *layout, const void *memory,
                                const double *expected, double tolerance) {
    double *actual = check_load(layout, memory);
    check_close_values(what, actual, expected, check_count(layout), tolerance);
    test_free(actual);
}

/* The plan. */

/* Filled with NaN of either precision: what a plan forgets to write is seen. */
static inline void *check_allocate(operation_check *check, size_t bytes) {
    assert_true(check->owned_count < (int)(sizeof check->owned / sizeof check->owned[0]));
    void *memory = aligned_alloc(64, (bytes / 64 + 1) * 64);
    assert_non_null(memory);
    memset(memory, 0xff, (bytes / 64 + 1) * 64);
    check->owned[check->owned_count++] = memory;
    return memory;
}

static inline yoke_plan_request check_request(operation_check *check) {
    yoke_plan_request request = {.operation = &check->operation,
                                 .rows = check->rows,
                                 .training = check->training,
                                 .inference = check->inference,
                                 .precision = check->precision,
                                 .algorithm = YOKE_ALGORITHM_DIRECT,
                                 .input_gradient = !check->no_input_gradient,
                                 .norm_group = check->norm_group};
    if (check->input_count == 0) check->input_count = 1;
    for (int i = 0; i < check->input_count; i++) {
        const cpu_desc *desc = NULL;
        yoke_dims dims = check->operation.input;
        if (check->operation.kind == YOKE_OP_CONCAT && i == 1)
            dims.channels = check->operation.output.channels - dims.channels;
        if (i > 0 && check->operation.others[i - 1].height > 0)
            dims = check->operation.others[i - 1];
        if (check->operation.by_channel && i == 1) dims.height = dims.width = 1;
        CHECK(cpu_value_desc(&desc, cpu_of(check->device), check->rows, dims,
                             cpu_data_type(check->precision),
                             check->tags[i] != 0 ? check->tags[i] : dnnl_nchw));
        cpu_layout_store(&check->inputs[i], desc);
        request.inputs[i] = check->inputs[i];
    }
    return request;
}

static inline void check_allocate_gradients(operation_check *check) {
    yoke_plan_binding *binding = &check->binding;
    size_t output_bytes = check->needs->output.bytes;
    if (output_bytes > 0) binding->output_gradient = check_allocate(check, output_bytes);
    if (check->no_input_gradient) return;
    const yoke_plan_needs *needs = check->needs;
    bool in_place = check->in_place && needs->backward_in_place;
    bool joined = check->in_place && needs->joined_in_place;
    binding->input_gradients[0] = in_place ? binding->output_gradient
                                  : joined ? binding->output
                                           : check_allocate(check, check->inputs[0].bytes);
    if (check->input_count > 1 && !needs->shared_input_gradient)
        binding->input_gradients[1] =
            joined ? binding->output_gradient : check_allocate(check, check->inputs[1].bytes);
}

/* Makes the plan and binds it to memory of exactly the size it asked for. */
static inline void check_open(operation_check *check, yoke_device *device) {
    check->device = device;
    check->operation.name = "layer";
    yoke_plan_request request = check_request(check);
    CHECK(yoke_plan_create(&check->plan, device, &request));
    check->needs = yoke_plan_describe(check->plan);
    yoke_plan_binding *binding = &check->binding;
    for (int i = 0; i < check->input_count; i++) {
        binding->inputs[i] = check_allocate(check, check->inputs[i].bytes);
    }
    bool in_place = check->in_place && check->needs->forward_in_place &&
                    !(check->training && check->needs->backward_reads[0]);
    if (check->needs->output.bytes > 0)
        binding->output =
            in_place ? binding->inputs[0] : check_allocate(check, check->needs->output.bytes);
    for (int i = 0; i < YOKE_PLAN_PARAMETERS; i++) {
        size_t bytes = check->needs->parameters[i].bytes;
        if (bytes == 0) continue;
        binding->parameters[i] = check_allocate(check, bytes);
        binding->buffers[i] = check_allocate(check, bytes);
        if (check->training) binding->parameter_gradients[i] = check_allocate(check, bytes);
    }
    if (check->training) check_allocate_gradients(check);
    binding->saved = check_allocate(check, check->needs->saved_bytes);
    binding->scratch = check_allocate(check, check->needs->scratch_bytes);
}

static inline void check_bind(operation_check *check) {
    CHECK(yoke_plan_bind(check->plan, &check->binding));
}

static inline void check_close(operation_check *check) {
    yoke_plan_destroy(check->plan);
    for (int i = 0; i < check->owned_count; i++) {
        free(check->owned[i]);
    }
}

/* Gradients. */

/* output[...] of an operation in double, from inputs and parameters in logical order. */
typedef void (*check_reference)(const operation_check *check, double *const inputs[],
                                double *const parameters[], double *output);

typedef struct check_values {
    double *inputs[YOKE_PLAN_INPUTS], *parameters[YOKE_PLAN_PARAMETERS];
    double *output_gradient; /* the loss is its dot product with the output */
} check_values;

static inline double check_dot(const operation_check *check, check_reference reference,
                               const check_values *values) {
    size_t count = check_count(&check->needs->output);
    double *output = test_calloc(count, sizeof *output), sum = 0;
    reference(check, values->inputs, values->parameters, output);
    for (size_t i = 0; i < count; i++) {
        sum += output[i] * values->output_gradient[i];
    }
    test_free(output);
    return sum;
}

/* d loss / d variable by central differences of the reference. */
static inline double *check_differences(const operation_check *check, check_reference reference,
                                        const check_values *values, double *variable,
                                        size_t count) {
    const double h = 1e-5;
    double *gradient = test_calloc(count, sizeof *gradient);
    for (size_t i = 0; i < count; i++) {
        double kept = variable[i];
        variable[i] = kept + h;
        double above = check_dot(check, reference, values);
        variable[i] = kept - h;
        double below = check_dot(check, reference, values);
        variable[i] = kept;
        gradient[i] = (above - below) / (2 * h);
    }
    return gradient;
}

/* Forward against the reference, backward against its differences. */
static inline void check_passes(operation_check *check, check_reference reference,
                                check_values *values, double tolerance) {
    const yoke_plan_needs *needs = check->needs;
    yoke_plan_binding *binding = &check->binding;
    yoke_plan_step step = {.loss_scale = 1};
    for (int i = 0; i < check->input_count; i++) {
        check_store(&check->inputs[i], binding->inputs[i], values->inputs[i]);
    }
    for (int i = 0; i < YOKE_PLAN_PARAMETERS; i++) {
        if (needs->parameters[i].bytes > 0)
            check_store(&needs->parameters[i], binding->parameters[i], values->parameters[i]);
    }
    size_t count = check_count(&needs->output);
    double *expected = test_calloc(count, sizeof *expected);
    reference(check, values->inputs, values->parameters, expected);
    CHECK(yoke_plan_forward(check->plan, &step));
    check_memory("output", &needs->output, binding->output, expected, tolerance);
    test_free(expected);
    if (!check->training) return;
    check_store(&needs->output, binding->output_gradient, values->output_gradient);
    CHECK(yoke_plan_backward(check->plan, &step));
    for (int i = 0; i < check->input_count; i++) {
        if (binding->input_gradients[i] == NULL) continue;
        double *gradient = check_differences(check, reference, values, values->inputs[i],
                                             check_count(&check->inputs[i]));
        check_memory(i == 0 ? "gradient of input 0" : "gradient of input 1", &check->inputs[i],
                     binding->input_gradients[i], gradient, tolerance);
        test_free(gradient);
    }
    for (int i = 0; i < YOKE_PLAN_PARAMETERS; i++) {
        if (needs->parameters[i].bytes == 0) continue;
        double *gradient = check_differences(check, reference, values, values->parameters[i],
                                             check_count(&needs->parameters[i]));
        check_memory(i == 0 ? "gradient of parameter 0" : "gradient of parameter 1",
                     &needs->parameters[i], binding->parameter_gradients[i], gradient, tolerance);
        test_free(gradient);
    }
}

static inline void check_values_free(check_values *values) {
    for (int i = 0; i < YOKE_PLAN_INPUTS; i++) {
        test_free(values->inputs[i]);
    }
    for (int i = 0; i < YOKE_PLAN_PARAMETERS; i++) {
        test_free(values->parameters[i]);
    }
    test_free(values->output_gradient);
}

#endif
