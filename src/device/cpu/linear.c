/* Linear: [rows, in] times [out, in] transposed. */
#include <stdio.h>

#include "device/cpu/weighted.h"

const char *const cpu_product_algorithms[] = {"matrix product", NULL};

dnnl_status_t cpu_describe_product(cpu_operation_desc *desc, const cpu_problem *problem,
                                   cpu_direction direction, int algorithm,
                                   const dnnl_memory_desc_t *descs) {
    (void)problem, (void)algorithm;
    const dnnl_memory_desc_t *input = &descs[CPU_INPUT], *output = &descs[CPU_OUTPUT];
    const dnnl_memory_desc_t *weights = &descs[CPU_WEIGHTS];
    const dnnl_memory_desc_t *bias = descs[CPU_BIAS].ndims > 0 ? &descs[CPU_BIAS] : NULL;
    dnnl_inner_product_desc_t *to = &desc->inner_product;
    switch (direction) {
    case CPU_FORWARD:
        return dnnl_inner_product_forward_desc_init(to, dnnl_forward_training, input, weights, bias,
                                                    output);
    case CPU_BACKWARD_DATA:
        return dnnl_inner_product_backward_data_desc_init(to, input, weights, output);
    default:
        return dnnl_inner_product_backward_weights_desc_init(to, input, weights, bias, output);
    }
}

static int features(yoke_dims dims) {
    return dims.channels * dims.height * dims.width;
}

static yoke_status matrix(dnnl_memory_desc_t *desc, int rows, int columns, dnnl_data_type_t type) {
    const dnnl_dims_t shape = {rows, columns};
    TRY_DNNL(dnnl_memory_desc_init_by_tag(desc, 2, shape, type, dnnl_format_tag_any));
    return YOKE_OK;
}

yoke_status cpu_plan_linear(yoke_plan **plan, cpu_device *device,
                            const yoke_plan_request *request) {
    const yoke_operation *operation = request->operation;
    dnnl_data_type_t type = cpu_data_type(request->precision);
    int in = features(operation->input), out = operation->output.channels;
    cpu_problem problem = {.operation = operation,
                           .algorithms = cpu_product_algorithms,
                           .describe = cpu_describe_product};
    TRY(matrix(&problem.free[CPU_INPUT], request->rows, in, type));
    TRY(matrix(&problem.free[CPU_OUTPUT], request->rows, out, type));
    TRY(matrix(&problem.free[CPU_WEIGHTS], out, in, type));
    if (operation->bias) TRY(cpu_bias_desc(&problem, out));
    TRY_DNNL(dnnl_memory_desc_reshape(&problem.stored[CPU_INPUT],
                                      cpu_layout_desc(&request->inputs[0]), 2,
                                      problem.free[CPU_INPUT].dims));
    /* Values are four-dimensional outside; a plain one looks the same in two. */
    dnnl_memory_desc_t output;
    TRY(cpu_value_desc(&output, request->rows, operation->output, type, dnnl_nchw));
    TRY_DNNL(dnnl_memory_desc_reshape(&problem.stored[CPU_OUTPUT], &output, 2,
                                      problem.free[CPU_OUTPUT].dims));
    if (request->parameters[0].bytes > 0)
        problem.stored[CPU_WEIGHTS] = *cpu_layout_desc(&request->parameters[0]);
    snprintf(problem.key, sizeof problem.key, "linear %d to %d", in, out);
    TRY(cpu_weighted_create(plan, device, request, &problem));
    cpu_layout_store(&(*plan)->needs.output, &output);
    return YOKE_OK;
}
