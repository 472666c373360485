/* Two-dimensional convolution: direct, or Winograd's F(4x4, 3x3) (Lavin and Gray 2016) where oneDNN
 * has it. */
#include <stdio.h>

#include "device/cpu/weighted.h"

static const char *const algorithms[] = {"direct", "winograd", NULL};
static const dnnl_alg_kind_t algorithm_kinds[] = {dnnl_convolution_direct,
                                                  dnnl_convolution_winograd};

static dnnl_status_t describe(cpu_operation_desc *desc, const cpu_problem *problem,
                              cpu_direction direction, int algorithm,
                              const dnnl_memory_desc_t *descs) {
    const yoke_operation *operation = problem->operation;
    const dnnl_dims_t strides = {operation->stride, operation->stride};
    const dnnl_dims_t padding = {operation->padding, operation->padding};
    const dnnl_memory_desc_t *input = &descs[CPU_INPUT], *output = &descs[CPU_OUTPUT];
    const dnnl_memory_desc_t *weights = &descs[CPU_WEIGHTS];
    const dnnl_memory_desc_t *bias = descs[CPU_BIAS].ndims > 0 ? &descs[CPU_BIAS] : NULL;
    dnnl_convolution_desc_t *to = &desc->convolution;
    dnnl_alg_kind_t kind = algorithm_kinds[algorithm];
    switch (direction) {
    case CPU_FORWARD:
        /* Training's kernels serve evaluation too: the same bits, and weights never transformed. */
        return dnnl_convolution_forward_desc_init(to, dnnl_forward_training, kind, input, weights,
                                                  bias, output, strides, padding, padding);
    case CPU_BACKWARD_DATA:
        return dnnl_convolution_backward_data_desc_init(to, kind, input, weights, output, strides,
                                                        padding, padding);
    default:
        return dnnl_convolution_backward_weights_desc_init(to, kind, input, weights, bias, output,
                                                           strides, padding, padding);
    }
}

/* [out, in / groups, k, k]; with groups oneDNN wants [groups, out / groups, in / groups, k, k]. */
static yoke_status describe_weights(dnnl_memory_desc_t *desc, const yoke_operation *operation,
                                    dnnl_data_type_t type) {
    int groups = operation->groups, k = operation->kernel;
    int in = operation->input.channels / groups, out = operation->output.channels / groups;
    const dnnl_dims_t single = {out, in, k, k}, grouped = {groups, out, in, k, k};
    TRY_DNNL(dnnl_memory_desc_init_by_tag(desc, groups > 1 ? 5 : 4, groups > 1 ? grouped : single,
                                          type, dnnl_format_tag_any));
    return YOKE_OK;
}

static void name_shape(cpu_problem *problem, const yoke_operation *operation) {
    snprintf(problem->key, sizeof problem->key,
             "conv %dx%dx%d to %d, kernel %d/%d pad %d groups %d", operation->input.channels,
             operation->input.height, operation->input.width, operation->output.channels,
             operation->kernel, operation->stride, operation->padding, operation->groups);
}

yoke_status cpu_plan_convolution(yoke_plan **plan, cpu_device *device,
                                 const yoke_plan_request *request) {
    const yoke_operation *operation = request->operation;
    dnnl_data_type_t type = cpu_data_type(request->precision);
    cpu_problem problem = {.operation = operation, .algorithms = algorithms, .describe = describe};
    TRY(cpu_value_desc(&problem.free[CPU_INPUT], request->rows, operation->input, type,
                       dnnl_format_tag_any));
    TRY(cpu_value_desc(&problem.free[CPU_OUTPUT], request->rows, operation->output, type,
                       dnnl_format_tag_any));
    TRY(describe_weights(&problem.free[CPU_WEIGHTS], operation, type));
    if (operation->bias) TRY(cpu_bias_desc(&problem, operation->output.channels));
    name_shape(&problem, operation);
    if (cpu_is_one_pixel(operation)) return cpu_plan_one_pixel(plan, device, request, &problem);
    problem.stored[CPU_INPUT] = *cpu_layout_desc(&request->inputs[0]);
    if (request->parameters[0].bytes > 0)
        problem.stored[CPU_WEIGHTS] = *cpu_layout_desc(&request->parameters[0]);
    return cpu_weighted_create(plan, device, request, &problem);
}
