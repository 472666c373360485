/* SPDX-License-Identifier: Apache-2.0 */
/* Two-dimensional convolution and transposed convolution: direct, or Winograd's F(4x4, 3x3) (Lavin
 * and Gray 2016), by oneDNN 2, by winograd.c or, in inference, by winograd_inference.c, F(2x2, 3x3)
 * as well; depthwise.c serves small images with a channel a group. */
#include "device/cpu/weighted.h"

static const cpu_algorithm algorithms[] = {
    {"direct", dnnl_convolution_direct, NULL},
    {"winograd", dnnl_convolution_winograd, NULL}, /* only in oneDNN 2, with AVX-512 */
    {"winograd", dnnl_alg_kind_undef, cpu_pass_create_winograd},
    {"depthwise", dnnl_alg_kind_undef, cpu_pass_create_depthwise},
    {"winograd 4x4 by tiles", dnnl_alg_kind_undef, cpu_pass_create_winograd_4_tiles},
    {"winograd 4x4 by filters", dnnl_alg_kind_undef, cpu_pass_create_winograd_4_filters},
    {"winograd 2x2 by tiles", dnnl_alg_kind_undef, cpu_pass_create_winograd_2_tiles},
    {"winograd 2x2 by filters", dnnl_alg_kind_undef, cpu_pass_create_winograd_2_filters},
    {"few pixels", dnnl_alg_kind_undef, cpu_pass_create_few_pixels},
    {"depthwise wide", dnnl_alg_kind_undef, cpu_pass_create_depthwise_wide},
    {NULL, dnnl_alg_kind_undef, NULL}};
static const cpu_algorithm transposed_algorithms[] = {{"direct", dnnl_deconvolution_direct, NULL},
                                                      {NULL, dnnl_alg_kind_undef, NULL}};

/* [out, in / groups, kh, kw]; with groups oneDNN expects [groups, out / groups, in / groups, kh,
 * kw]. The weight of a transposed convolution is [in, out / groups, kh, kw]: stored, it has these
 * two dimensions exchanged. */
static yoke_status describe_weights(const cpu_desc **desc, cpu_device *device,
                                    const yoke_operation *operation, dnnl_data_type_t type) {
    int groups = operation->groups;
    int height = yoke_taps_down(operation).kernel, width = yoke_taps_across(operation).kernel;
    int in = operation->input.channels / groups, out = operation->output.channels / groups;
    const dnnl_dims_t single = {out, in, height, width};
    const dnnl_dims_t grouped = {groups, out, in, height, width};
    TRY_DNNL(cpu_desc_by_tag(desc, &device->descs, groups > 1 ? 5 : 4,
                             groups > 1 ? grouped : single, type, dnnl_format_tag_any));
    return YOKE_OK;
}

/* The weight in oneDNN's order of dimensions and in PyTorch's; the exchange is its own inverse. */
static yoke_status exchange(const cpu_desc **desc, cpu_device *device, const cpu_desc *weights) {
    int first = weights->ndims == 5 ? 1 : 0;
    TRY_DNNL(cpu_desc_exchange(desc, &device->descs, weights, first, first + 1));
    return YOKE_OK;
}

/* Of a transposed convolution the padding at the end follows from the output's size. */
static void place_window(cpu_operation *to, const yoke_operation *operation) {
    const yoke_taps taps[] = {yoke_taps_down(operation), yoke_taps_across(operation)};
    const int in[] = {operation->input.height, operation->input.width};
    const int out[] = {operation->output.height, operation->output.width};
    bool transposed = operation->kind == YOKE_OP_CONV_TRANSPOSE2D;
    for (int i = 0; i < 2; i++) {
        int side = yoke_taps_side(taps[i]);
        to->strides[i] = taps[i].stride;
        to->dilation[i] = taps[i].dilation - 1;
        to->padding[i] = to->padding_end[i] = taps[i].padding;
        if (transposed)
            to->padding_end[i] = (in[i] - 1) * taps[i].stride + side - taps[i].padding - out[i];
    }
}

static yoke_status describe(cpu_problem *problem, cpu_device *device,
                            const yoke_plan_request *request) {
    const yoke_operation *operation = request->operation;
    dnnl_data_type_t type = cpu_data_type(request->precision);
    place_window(&problem->operation, operation);
    TRY(cpu_value_desc(&problem->free[CPU_INPUT], device, request->rows, operation->input, type,
                       dnnl_format_tag_any));
    TRY(cpu_value_desc(&problem->free[CPU_OUTPUT], device, request->rows, operation->output, type,
                       dnnl_format_tag_any));
    TRY(describe_weights(&problem->free[CPU_WEIGHTS], device, operation, type));
    if (operation->bias) TRY(cpu_bias_desc(problem, device, operation->output.channels));
    yoke_convolution_key(operation, problem->key);
    return YOKE_OK;
}

/* Evaluation uses training's kernels: the same bits, and the weights keep their layout. */
yoke_status cpu_plan_convolution(yoke_plan **plan, cpu_device *device,
                                 const yoke_plan_request *request) {
    cpu_problem problem = {.operation = {.kind = CPU_CONVOLUTION, .inference = request->inference},
                           .algorithms = algorithms};
    TRY(describe(&problem, device, request));
    if (cpu_is_one_pixel(request->operation))
        return cpu_plan_one_pixel(plan, device, request, &problem);
    problem.stored[CPU_INPUT] = cpu_layout_desc(&request->inputs[0]);
    problem.stored[CPU_WEIGHTS] = cpu_layout_desc(&request->parameters[0]);
    TRY(cpu_join_next(&problem, device, request, cpu_layout_desc(&request->added)));
    return cpu_weighted_create(plan, device, request, &problem);
}

yoke_status cpu_plan_transposed_convolution(yoke_plan **plan, cpu_device *device,
                                            const yoke_plan_request *request) {
    cpu_problem problem = {.operation = {.kind = CPU_DECONVOLUTION},
                           .algorithms = transposed_algorithms,
                           .bias_apart = true};
    const cpu_desc *weights = cpu_layout_desc(&request->parameters[0]);
    TRY(describe(&problem, device, request));
    problem.stored[CPU_INPUT] = cpu_layout_desc(&request->inputs[0]);
    if (weights != NULL) TRY(exchange(&problem.stored[CPU_WEIGHTS], device, weights));
    TRY(cpu_weighted_create(plan, device, request, &problem));
    TRY(exchange(&weights, device, problem.stored[CPU_WEIGHTS]));
    cpu_layout_store(&(*plan)->needs.parameters[0], weights);
    return YOKE_OK;
}
