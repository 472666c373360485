/* Two-dimensional convolution: a matrix product where possible, cuDNN, or im2col. */
#include <stdio.h>

#include "device/cuda/weighted.h"

/* cuDNN's algorithm 1 is deterministic in all directions, so the fixed rule chooses it where the
 * convolution is no matrix product; im2col supports every shape. */
static const cuda_algorithm algorithms[] = {CUDA_PRODUCT_ROWS,
                                            {"cuDNN 1", cuda_cudnn_pass, 1},
                                            {"im2col", cuda_im2col_pass, 0},
                                            {"cuDNN 0", cuda_cudnn_pass, 0},
                                            {"cuDNN 2", cuda_cudnn_pass, 2},
                                            {"cuDNN 3", cuda_cudnn_pass, 3},
                                            {"cuDNN 4", cuda_cudnn_pass, 4},
                                            {"cuDNN 5", cuda_cudnn_pass, 5},
                                            {"cuDNN 6", cuda_cudnn_pass, 6},
                                            {"cuDNN 7", cuda_cudnn_pass, 7}};
_Static_assert(sizeof algorithms / sizeof algorithms[0] <= CUDA_ALGORITHMS_LIMIT,
               "a trial has room for all");

yoke_status cuda_plan_convolution(yoke_plan **plan, cuda_device *device,
                                  const yoke_plan_request *request) {
    const yoke_operation *operation = request->operation;
    yoke_dims input = operation->input, output = operation->output;
    int64_t kernel = operation->kernel, in = input.channels / operation->groups;
    char key[128];
    int length =
        snprintf(key, sizeof key, "conv %dx%dx%d to %d, kernel %d/%d pad %d groups %d",
                 input.channels, input.height, input.width, output.channels, operation->kernel,
                 operation->stride, operation->padding, operation->groups);
    if (operation->dilation > 1)
        snprintf(key + length, sizeof key - (size_t)length, " dilation %d", operation->dilation);
    cuda_weighted_request weighted = {
        .plan = request,
        .key = key,
        .input = cuda_value_layout(request->rows, input, request->precision),
        .weights = {CUDA_FLOAT32, kernel > 1 && in > 1, 4, {output.channels, in, kernel, kernel}},
        .algorithms = algorithms,
        .algorithm_count = sizeof algorithms / sizeof algorithms[0]};
    return cuda_weighted_create(plan, device, &weighted);
}
