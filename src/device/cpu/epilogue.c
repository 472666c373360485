/* SPDX-License-Identifier: Apache-2.0 */
/* A batch norm with running statistics, what it adds and an activation as the epilogue of the
 * convolution before them: no pass of their own. The batch norm is a scale and a shift of each
 * channel, computed anew in each forward, so that nobody has to say when weights or statistics
 * change. */
#include <math.h>
#include <string.h>

#include "device/cpu/weighted.h"

static cpu_operation direct_forward(const cpu_problem *problem) {
    cpu_operation operation = problem->operation;
    operation.inference = false; /* as the plan's candidates */
    operation.algorithm = problem->algorithms[0].kind;
    operation.source = problem->free[CPU_INPUT];
    operation.weights = problem->free[CPU_WEIGHTS];
    operation.bias = problem->free[CPU_BIAS];
    operation.destination = problem->free[CPU_OUTPUT];
    return operation;
}

/* The kernel that oneDNN takes for the direct forward pass, and the output's layout. DEVICE: none. */
static yoke_status query_kernel(const cpu_problem *problem, cpu_device *device, const char **name,
                                const cpu_desc **output) {
    const cpu_operation operation = direct_forward(problem);
    cpu_pass pass = {0};
    yoke_status status = cpu_primitive_create(&pass.primitive, device, &operation);
    if (status == YOKE_OK) {
        *name = cpu_pass_implementation(&pass);
        *output = cpu_primitive_desc(&pass.primitive, DNNL_ARG_DST);
    }
    cpu_pass_destroy(&pass);
    return status;
}

static void add_norm(cpu_problem *problem, const yoke_operation *norm, const cpu_desc *channel,
                     const cpu_desc *added) {
    cpu_epilogue *epilogue = &problem->operation.epilogue;
    problem->factors = (cpu_factors){(size_t)norm->input.channels, (float)norm->epsilon};
    epilogue->channel = channel;
    problem->free[CPU_SCALE] = problem->stored[CPU_SCALE] = channel;
    problem->free[CPU_SHIFT] = problem->stored[CPU_SHIFT] = channel;
    if (norm->add) {
        epilogue->added = added;
        problem->free[CPU_ADDED] = problem->stored[CPU_ADDED] = added;
    }
    if (norm->relu) epilogue->activation = dnnl_eltwise_relu;
}

/* Whether the epilogue has this activation now. */
static bool add_activation(cpu_problem *problem, yoke_activation activation) {
    cpu_epilogue *epilogue = &problem->operation.epilogue;
    if (epilogue->activation != dnnl_alg_kind_undef) return false;
    if (activation == YOKE_RELU) {
        epilogue->activation = dnnl_eltwise_relu;
    } else if (activation == YOKE_RELU6) {
        epilogue->activation = dnnl_eltwise_clip_v2;
        epilogue->beta = 6;
    } else if (activation == YOKE_SILU) {
        epilogue->activation = dnnl_eltwise_swish;
        epilogue->alpha = 1;
    }
    return epilogue->activation != dnnl_alg_kind_undef;
}

/* The problem with the first `count` offered operations as its epilogue; false: it takes fewer. */
static bool take(cpu_problem *problem, const yoke_plan_request *request, int count,
                 const cpu_desc *channel, const cpu_desc *output) {
    const cpu_desc *added = cpu_layout_desc(&request->added);
    for (int i = 0; i < count; i++) {
        const yoke_operation *next = request->next[i];
        if (next->kind == YOKE_OP_BATCH_NORM) {
            if (next->add && added != output) return false;
            add_norm(problem, next, channel, added);
        } else if (!add_activation(problem, next->activation)) {
            return false;
        }
    }
    problem->computes_next = count;
    return true;
}

yoke_status cpu_join_next(cpu_problem *problem, cpu_device *device,
                          const yoke_plan_request *request) {
    int count = 0;
    while (count < YOKE_PLAN_NEXT && request->next[count] != NULL)
        count++;
    if (count == 0 || request->precision != YOKE_FLOAT32) return YOKE_OK;
    const char *plain = NULL, *joined = NULL;
    const cpu_desc *output = NULL, *same = NULL, *channel = NULL;
    TRY(query_kernel(problem, device, &plain, &output));
    /* oneDNN 2.6 forgets channels where a post-op meets padded ones. */
    if (output->padded_dims[1] != output->dims[1]) return YOKE_OK;
    const dnnl_dims_t one_each = {1, output->dims[1], 1, 1};
    TRY_DNNL(cpu_desc_by_tag(&channel, &device->descs, 4, one_each, dnnl_f32, dnnl_nchw));
    for (; count > 0; count--) {
        cpu_problem with = *problem;
        if (!take(&with, request, count, channel, output)) continue;
        yoke_status status = query_kernel(&with, device, &joined, &same);
        if (status != YOKE_OK && status != YOKE_ERROR_DEVICE) return status;
        if (status != YOKE_OK || same != output || strcmp(plain, joined) != 0) continue;
        *problem = with;
        return YOKE_OK;
    }
    return YOKE_OK;
}

void cpu_fill_factors(const cpu_factors *factors, const yoke_plan_binding *binding, float *scale,
                      float *shift) {
    const float *weight = binding->next_parameters[0], *bias = binding->next_parameters[1];
    const float *mean = binding->next_buffers[0], *variance = binding->next_buffers[1];
    for (size_t c = 0; c < factors->channels; c++) {
        scale[c] = weight[c] / sqrtf(variance[c] + factors->epsilon);
        shift[c] = bias[c] - mean[c] * scale[c];
    }
}
