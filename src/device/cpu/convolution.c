/* SPDX-License-Identifier: Apache-2.0 */
/* Two-dimensional convolution: direct, or Winograd's F(4x4, 3x3) (Lavin and Gray 2016), by oneDNN 2
 * or by winograd.c; depthwise.c serves small images with a channel a group. */
#include <stdio.h>

#include "device/cpu/weighted.h"

static const cpu_algorithm algorithms[] = {
    {"direct", dnnl_convolution_direct, NULL},
    {"winograd", dnnl_convolution_winograd, NULL}, /* only in oneDNN 2, with AVX-512 */
    {"winograd", dnnl_alg_kind_undef, cpu_pass_create_winograd},
    {"depthwise", dnnl_alg_kind_undef, cpu_pass_create_depthwise},
    {NULL, dnnl_alg_kind_undef, NULL}};

/* [out, in / groups, k, k]; with groups oneDNN expects [groups, out / groups, in / groups, k,
 * k]. */
static yoke_status describe_weights(const cpu_desc **desc, cpu_device *device,
                                    const yoke_operation *operation, dnnl_data_type_t type) {
    int groups = operation->groups, k = operation->kernel;
    int in = operation->input.channels / groups, out = operation->output.channels / groups;
    const dnnl_dims_t single = {out, in, k, k}, grouped = {groups, out, in, k, k};
    TRY_DNNL(cpu_desc_by_tag(desc, &device->descs, groups > 1 ? 5 : 4,
                             groups > 1 ? grouped : single, type, dnnl_format_tag_any));
    return YOKE_OK;
}

yoke_status cpu_plan_convolution(yoke_plan **plan, cpu_device *device,
                                 const yoke_plan_request *request) {
    const yoke_operation *operation = request->operation;
    dnnl_data_type_t type = cpu_data_type(request->precision);
    int stride = operation->stride, padding = operation->padding;
    int between = operation->dilation - 1;
    /* Evaluation uses training's kernels: the same bits, and the weights keep their layout. */
    cpu_problem problem = {.operation = {.kind = CPU_CONVOLUTION,
                                         .strides = {stride, stride},
                                         .dilation = {between, between},
                                         .padding = {padding, padding},
                                         .padding_end = {padding, padding}},
                           .algorithms = algorithms};
    TRY(cpu_value_desc(&problem.free[CPU_INPUT], device, request->rows, operation->input, type,
                       dnnl_format_tag_any));
    TRY(cpu_value_desc(&problem.free[CPU_OUTPUT], device, request->rows, operation->output, type,
                       dnnl_format_tag_any));
    TRY(describe_weights(&problem.free[CPU_WEIGHTS], device, operation, type));
    if (operation->bias) TRY(cpu_bias_desc(&problem, device, operation->output.channels));
    int length = snprintf(
        problem.key, sizeof problem.key, "conv %dx%dx%d to %d, kernel %d/%d pad %d groups %d",
        operation->input.channels, operation->input.height, operation->input.width,
        operation->output.channels, operation->kernel, stride, padding, operation->groups);
    if (between > 0)
        snprintf(problem.key + length, sizeof problem.key - (size_t)length, " dilation %d",
                 operation->dilation);
    if (cpu_is_one_pixel(operation)) return cpu_plan_one_pixel(plan, device, request, &problem);
    problem.stored[CPU_INPUT] = cpu_layout_desc(&request->inputs[0]);
    problem.stored[CPU_WEIGHTS] = cpu_layout_desc(&request->parameters[0]);
    return cpu_weighted_create(plan, device, request, &problem);
}
