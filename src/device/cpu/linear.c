/* SPDX-License-Identifier: Apache-2.0 */
/* Linear: [rows, in] times [out, in] transposed; of a sequence, all positions are rows. Here by
 * oneDNN's inner product, which chooses layouts for its fastest kernels. These add all products of
 * an output one after the other; dnnl_sgemm adds blocks of a few hundred, so that the rounding
 * error of 1024 products is 0.6 times as large. A transposed weight is plain, in x out, by every
 * rule. */
#include <stdio.h>

#include "device/cpu/factors.h"
#include "device/cpu/few_rows.h"
#include "device/cpu/linear_loss.h"
#include "device/cpu/sgemm_linear.h"
#include "device/cpu/weighted.h"

#define SHADOW_ROWS 384

const cpu_algorithm cpu_product_algorithms[] = {
    {"matrix product", dnnl_alg_kind_undef, NULL},
    {"few pixels", dnnl_alg_kind_undef, cpu_pass_create_few_pixels},
    {NULL, dnnl_alg_kind_undef, NULL}};

static yoke_status matrix(const cpu_desc **desc, cpu_device *device, int rows, int columns,
                          dnnl_data_type_t type, dnnl_format_tag_t tag) {
    const dnnl_dims_t shape = {rows, columns};
    TRY_DNNL(cpu_desc_by_tag(desc, &device->descs, 2, shape, type, tag));
    return YOKE_OK;
}

/* A product of few rows in bfloat16 reads its weight in bfloat16, plain: rounding and reordering a
 * weight takes as long as the product of some hundred rows. The first plan of a weight decides. */
static bool reads_shadow(const yoke_plan_request *request) {
    unsigned forms = request->forms[0];
    if (request->precision != YOKE_BFLOAT16 || request->inference) return false;
    if (forms == YOKE_FORM_FLOAT32 || forms == YOKE_FORM_SHADOW) return forms == YOKE_FORM_SHADOW;
    return cpu_most_rows(request) <= SHADOW_ROWS;
}

yoke_status cpu_plan_linear(yoke_plan **plan, cpu_device *device,
                            const yoke_plan_request *request) {
    bool by_sgemm = false, with_loss = false;
    TRY(cpu_takes_linear_loss(&with_loss, device, request));
    if (with_loss) return cpu_plan_linear_loss(plan, device, request);
    if (cpu_takes_few_rows(request)) return cpu_plan_few_rows(plan, device, request);
    TRY(cpu_takes_sgemm_linear(&by_sgemm, device, request));
    if (by_sgemm) return cpu_plan_sgemm_linear(plan, device, request);
    const yoke_operation *operation = request->operation;
    dnnl_data_type_t type = cpu_data_type(request->precision);
    yoke_dims input = operation->input;
    int rows = request->rows * input.height;
    int in = input.channels, out = operation->output.channels;
    cpu_problem problem = {.operation = {.kind = CPU_PRODUCT, .inference = request->inference},
                           .algorithms = cpu_product_algorithms,
                           .by_factors = cpu_takes_factors(request)};
    TRY(matrix(&problem.free[CPU_INPUT], device, rows, in, type, dnnl_format_tag_any));
    TRY(matrix(&problem.free[CPU_OUTPUT], device, rows, out, type, dnnl_format_tag_any));
    TRY(matrix(&problem.free[CPU_WEIGHTS], device, out, in, type, dnnl_format_tag_any));
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
    bool shadow = reads_shadow(request);
    dnnl_format_tag_t plain = operation->transposed ? dnnl_ba : dnnl_ab;
    if (shadow || operation->plain_weight || operation->transposed)
        TRY(matrix(&problem.stored[CPU_WEIGHTS], device, out, in, dnnl_f32, plain));
    if (shadow) TRY(matrix(&problem.shadow, device, out, in, dnnl_bf16, plain));
    int length = snprintf(problem.key, sizeof problem.key, "linear %d to %d%s%s", in, out,
                          operation->transposed ? " transposed" : "", shadow ? " shadow" : "");
    if (input.sequence)
        snprintf(problem.key + length, sizeof problem.key - (size_t)length, " at %d positions",
                 input.height);
    if (request->inference && request->loss == NULL) /* otherwise next[0] is not for here */
        TRY(cpu_join_next(&problem, device, request,
                          cpu_layout_desc(&request->added) == output ? problem.stored[CPU_OUTPUT]
                                                                     : NULL));
    TRY(cpu_weighted_create(plan, device, request, &problem));
    cpu_layout_store(&(*plan)->needs.output, output);
    const int64_t shape[] = {in, out};
    if (!operation->transposed) return YOKE_OK;
    return yoke_layout_plain(&device->base, shape, 2, &(*plan)->needs.parameters[0]);
}
