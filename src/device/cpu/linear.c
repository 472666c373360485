/* Linear: [rows, in] times [out, in] transposed. */
#include <stdio.h>

#include "device/cpu/weighted.h"

const cpu_algorithm cpu_product_algorithms[] = {{"matrix product", dnnl_alg_kind_undef, false},
                                                {NULL, dnnl_alg_kind_undef, false}};

static yoke_status matrix(const cpu_desc **desc, cpu_device *device, int rows, int columns,
                          dnnl_data_type_t type) {
    const dnnl_dims_t shape = {rows, columns};
    TRY_DNNL(cpu_desc_by_tag(desc, &device->descs, 2, shape, type, dnnl_format_tag_any));
    return YOKE_OK;
}

yoke_status cpu_plan_linear(yoke_plan **plan, cpu_device *device,
                            const yoke_plan_request *request) {
    const yoke_operation *operation = request->operation;
    dnnl_data_type_t type = cpu_data_type(request->precision);
    yoke_dims input = operation->input;
    int in = input.channels * input.height * input.width, out = operation->output.channels;
    cpu_problem problem = {.operation = {.kind = CPU_PRODUCT},
                           .algorithms = cpu_product_algorithms};
    TRY(matrix(&problem.free[CPU_INPUT], device, request->rows, in, type));
    TRY(matrix(&problem.free[CPU_OUTPUT], device, request->rows, out, type));
    TRY(matrix(&problem.free[CPU_WEIGHTS], device, out, in, type));
    if (operation->bias) TRY(cpu_bias_desc(&problem, device, out));
    TRY_DNNL(cpu_desc_reshape(&problem.stored[CPU_INPUT], &device->descs,
                              cpu_layout_desc(&request->inputs[0]), 2,
                              problem.free[CPU_INPUT]->dims));
    /* Values are four-dimensional outside; a plain one looks the same in two. */
    const cpu_desc *output = NULL;
    TRY(cpu_value_desc(&output, device, request->rows, operation->output, type, dnnl_nchw));
    TRY_DNNL(cpu_desc_reshape(&problem.stored[CPU_OUTPUT], &device->descs, output, 2,
                              problem.free[CPU_OUTPUT]->dims));
    problem.stored[CPU_WEIGHTS] = cpu_layout_desc(&request->parameters[0]);
    snprintf(problem.key, sizeof problem.key, "linear %d to %d", in, out);
    TRY(cpu_weighted_create(plan, device, request, &problem));
    cpu_layout_store(&(*plan)->needs.output, output);
    return YOKE_OK;
}
