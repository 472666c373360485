/* SPDX-License-Identifier: Apache-2.0 */
/* Linear: [rows, in] times [out, in] transposed; of a sequence, all positions are rows. */
#include <stdio.h>

#include "device/cuda/classifier.h"
#include "device/cuda/weighted.h"

static const cuda_algorithm algorithms[] = {CUDA_PRODUCT_ROWS("")};
static const cuda_algorithm with_bias[] = {CUDA_PRODUCT_ROWS(" with bias")};
static const cuda_algorithm with_relu[] = {CUDA_PRODUCT_ROWS(" with ReLU")};
static const cuda_algorithm with_mask[] = {CUDA_PRODUCT_ROWS(" with ReLU and mask")};
static const cuda_algorithm with_gelu[] = {CUDA_PRODUCT_ROWS(" with GELU")};
static const cuda_algorithm with_input[] = {CUDA_PRODUCT_ROWS(" with GELU and its input")};
static const cuda_algorithm masked[] = {CUDA_PRODUCT_ROWS(", masked")};
static const cuda_algorithm summed[] = {CUDA_PRODUCT_ROWS(", masked and summed")};
static const cuda_algorithm of_gelu[] = {CUDA_PRODUCT_ROWS(", gradient of GELU")};
static const cuda_algorithm of_gelu_summed[] = {CUDA_PRODUCT_ROWS(", gradient of GELU and summed")};

cuda_layout cuda_linear_weight(const yoke_operation *operation) {
    int64_t in = operation->input.channels, out = operation->output.channels;
    if (operation->transposed) return (cuda_layout){CUDA_FLOAT32, false, 2, {in, out}};
    return (cuda_layout){CUDA_FLOAT32, false, 2, {out, in}};
}

yoke_status cuda_plan_linear(yoke_plan **plan, cuda_device *device,
                             const yoke_plan_request *request) {
    const yoke_operation *operation = request->operation;
    int64_t in = operation->input.channels, out = operation->output.channels;
    if (cuda_takes_classifier(request)) return cuda_plan_classifier(plan, device, request);
    int rows = request->most_rows > 0 ? request->most_rows : request->rows;
    char key[96];
    int length = snprintf(key, sizeof key, "linear %lld to %lld%s, %d rows", (long long)in,
                          (long long)out, operation->transposed ? " transposed" : "", rows);
    if (operation->input.sequence)
        snprintf(key + length, sizeof key - (size_t)length, " at %d positions",
                 operation->input.height);
    cuda_weighted_request weighted = {.plan = request,
                                      .key = key,
                                      .input = *cuda_layout_of(&request->inputs[0]),
                                      .weights = cuda_linear_weight(operation),
                                      .algorithms = algorithms,
                                      .algorithm_count = sizeof algorithms / sizeof algorithms[0],
                                      .joined = {[CUDA_BIAS] = with_bias,
                                                 [CUDA_RELU] = with_relu,
                                                 [CUDA_RELU_MASK] = with_mask,
                                                 [CUDA_GELU] = with_gelu,
                                                 [CUDA_GELU_INPUT] = with_input,
                                                 [CUDA_MASKED] = masked,
                                                 [CUDA_MASKED_SUMS] = summed,
                                                 [CUDA_GELU_GRADIENT] = of_gelu,
                                                 [CUDA_GELU_GRADIENT_SUMS] = of_gelu_summed}};
    weighted.input.type = cuda_compute_type(request->precision);
    weighted.input.channels_last = false;
    return cuda_weighted_create(plan, device, &weighted);
}
