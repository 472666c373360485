/* SPDX-License-Identifier: Apache-2.0 */
/* In inference a convolution computes the batch norm, the add and the activation behind it, and a
 * linear layer the last two: the batch norm folded into its weights and bias, the rest as the
 * epilogue of its kernel. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "device/cpu/weighted.h"

/* Planning. */

/* The kernel that oneDNN takes for the direct forward pass, and the output's layout. DEVICE: there
 * is none. */
static yoke_status query_kernel(const cpu_problem *problem, cpu_device *device, const char **name,
                                const cpu_desc **output) {
    cpu_operation operation = problem->operation;
    operation.algorithm = problem->algorithms[0].kind;
    operation.source = problem->free[CPU_INPUT];
    operation.weights = problem->free[CPU_WEIGHTS];
    operation.bias = problem->free[CPU_BIAS];
    operation.destination = problem->free[CPU_OUTPUT];
    cpu_pass pass = {0};
    yoke_status status = cpu_primitive_create(&pass.primitive, device, &operation);
    if (status == YOKE_OK) {
        *name = cpu_pass_implementation(&pass);
        *output = cpu_primitive_desc(&pass.primitive, DNNL_ARG_DST);
    }
    cpu_pass_destroy(&pass);
    return status;
}

/* Whether the epilogue has this activation now. */
static bool take_activation(cpu_epilogue *epilogue, yoke_activation activation) {
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

static yoke_status take_norm(cpu_problem *problem, cpu_device *device, const yoke_operation *norm) {
    problem->fold = (cpu_fold){.channels = (size_t)norm->input.channels,
                               .epsilon = (float)norm->epsilon,
                               .bias = problem->free[CPU_BIAS] != NULL};
    return problem->fold.bias ? YOKE_OK : cpu_bias_desc(problem, device, norm->input.channels);
}

/* Whether the problem takes the first `count` offered operations. */
static yoke_status take(cpu_problem *problem, cpu_device *device, const yoke_plan_request *request,
                        int count, bool may_add, bool *taken) {
    cpu_epilogue *epilogue = &problem->operation.epilogue;
    problem->computes_next = count;
    *taken = true;
    for (int i = 0; i < count && *taken; i++) {
        const yoke_operation *next = request->next[i];
        bool is_norm = next->kind == YOKE_OP_BATCH_NORM;
        if (is_norm) TRY(take_norm(problem, device, next));
        if (next->kind == YOKE_OP_ADD || next->add) epilogue->adds = *taken = may_add;
        if (next->kind == YOKE_OP_ACTIVATION)
            *taken = *taken && take_activation(epilogue, next->activation);
        else if (next->relu)
            *taken = *taken && take_activation(epilogue, YOKE_RELU);
    }
    return YOKE_OK;
}

yoke_status cpu_join_next(cpu_problem *problem, cpu_device *device,
                          const yoke_plan_request *request, const cpu_desc *added) {
    int count = 0;
    while (count < YOKE_PLAN_NEXT && request->next[count] != NULL)
        count++;
    if (count == 0 || request->precision != YOKE_FLOAT32) return YOKE_OK;
    const char *alone = NULL, *joined = NULL;
    const cpu_desc *output = NULL, *same = NULL;
    TRY(query_kernel(problem, device, &alone, &output));
    /* oneDNN 2.6 forgets channels where an epilogue meets padded ones. */
    if (output->padded_dims[1] != output->dims[1]) return YOKE_OK;
    bool stays = problem->stored[CPU_OUTPUT] == NULL || problem->stored[CPU_OUTPUT] == output;
    for (; count > 0; count--) {
        cpu_problem with = *problem;
        bool taken = false;
        TRY(take(&with, device, request, count, stays && added == output, &taken));
        if (!taken) continue;
        yoke_status status = query_kernel(&with, device, &joined, &same);
        if (status != YOKE_OK && status != YOKE_ERROR_DEVICE) return status;
        if (status != YOKE_OK || same != output || strcmp(alone, joined) != 0) continue;
        *problem = with;
        return YOKE_OK;
    }
    return YOKE_OK;
}

/* Folding. */

/* The weights of one filter. */
static void scale_filter(const cpu_desc *desc, const float *from, float *to, int dimension,
                         float scale) {
    if (dimension == desc->ndims) {
        *to = *from * scale;
        return;
    }
    for (int i = 0; i < (int)desc->dims[dimension]; i++) {
        ptrdiff_t offset = cpu_desc_offset(desc, dimension, i);
        scale_filter(desc, from + offset, to + offset, dimension + 1, scale);
    }
}

yoke_status cpu_fold_norm(const cpu_fold *fold, cpu_device *device,
                          const yoke_plan_binding *binding, const cpu_folded *to) {
    const cpu_desc *desc = fold->weights;
    const float *weight = binding->next_parameters[0], *bias = binding->next_parameters[1];
    const float *mean = binding->next_buffers[0], *variance = binding->next_buffers[1];
    int threads = device->base.threads;
    /* [groups, out / groups, ...] where there are groups. */
    bool grouped = desc->ndims == 5;
    size_t in_group = grouped ? (size_t)desc->dims[1] : fold->channels;
#pragma omp parallel for num_threads(threads) if (threads > 1)
    for (size_t c = 0; c < fold->channels; c++) {
        float scale = weight[c] / sqrtf(variance[c] + fold->epsilon);
        float own = fold->bias ? binding->parameters[1][c] : 0;
        to->bias[c] = bias[c] + (own - mean[c]) * scale;
        ptrdiff_t first = desc->offset;
        if (grouped) first += cpu_desc_offset(desc, 0, (int)(c / in_group));
        first += cpu_desc_offset(desc, grouped, (int)(c % in_group));
        scale_filter(desc, binding->parameters[0] + first, to->weights + first, grouped + 1, scale);
    }
    return YOKE_OK;
}
