/* Linear: [rows, in] times [out, in] transposed. */
#include <stdio.h>

#include "device/cuda/weighted.h"

static const cuda_algorithm algorithms[] = {CUDA_PRODUCT_ROWS};

yoke_status cuda_plan_linear(yoke_plan **plan, cuda_device *device,
                             const yoke_plan_request *request) {
    const yoke_operation *operation = request->operation;
    int64_t in = (int64_t)cuda_dims_count(operation->input), out = operation->output.channels;
    char key[64];
    snprintf(key, sizeof key, "linear %lld to %lld", (long long)in, (long long)out);
    cuda_weighted_request weighted = {.plan = request,
                                      .key = key,
                                      .input = *cuda_layout_of(&request->inputs[0]),
                                      .weights = {CUDA_FLOAT32, false, 2, {out, in}},
                                      .algorithms = algorithms,
                                      .algorithm_count = sizeof algorithms / sizeof algorithms[0]};
    weighted.input.type = cuda_compute_type(request->precision);
    weighted.input.channels_last = false;
    return cuda_weighted_create(plan, device, &weighted);
}
