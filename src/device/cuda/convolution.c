/* SPDX-License-Identifier: Apache-2.0 */
/* Two-dimensional convolution: a matrix product where possible, cuDNN, or im2col. */
#include <stdio.h>

#include "device/cuda/weighted.h"

/* cuDNN's algorithm 1 is deterministic in all directions, so the fixed rule chooses it where the
 * convolution is no matrix product; im2col supports every shape. */
static const cuda_algorithm algorithms[] = {CUDA_PRODUCT_ROWS(""),
                                            {"cuDNN 1", cuda_cudnn_pass, 1},
                                            {CUDA_IM2COL, cuda_im2col_pass, 0},
                                            {"cuDNN 0", cuda_cudnn_pass, 0},
                                            {"cuDNN 2", cuda_cudnn_pass, 2},
                                            {"cuDNN 3", cuda_cudnn_pass, 3},
                                            {"cuDNN 4", cuda_cudnn_pass, 4},
                                            {"cuDNN 5", cuda_cudnn_pass, 5},
                                            {"cuDNN 6", cuda_cudnn_pass, 6},
                                            {"cuDNN 7", cuda_cudnn_pass, 7}};
_Static_assert(sizeof algorithms / sizeof algorithms[0] <= CUDA_ALGORITHMS_LIMIT,
               "a trial has room for all");

/* The channels that the passes of a model's first convolution read; 0: those it has. */
static int padded_channels(const cuda_device *device, const yoke_operation *operation) {
    int padded = cuda_takes(device, YOKE_WAY_STEM8)   ? 8
                 : cuda_takes(device, YOKE_WAY_STEM4) ? 4
                                                      : 0;
    bool few = operation->input.channels > 1 && operation->input.channels < padded;
    return few && operation->groups == 1 ? padded : 0;
}

/* The model's first convolution copies its input in any case, or reads what decode has laid out. */
static bool reads_images(const yoke_plan_request *request) {
    const cuda_layout *given = cuda_layout_of(&request->inputs[0]);
    bool plain = given->type == CUDA_FLOAT32 && !given->channels_last;
    bool padded = given->dims[1] > request->operation->input.channels;
    return (plain || padded) && !request->input_gradient;
}

bool cuda_image_layout(yoke_device *device, const yoke_plan_request *reader, yoke_layout *layout) {
    const yoke_operation *operation = reader->operation;
    if (!cuda_takes(cuda_of(device), YOKE_WAY_DECODE) || reader->precision != YOKE_BFLOAT16 ||
        operation->kind != YOKE_OP_CONV2D)
        return false;
    yoke_dims image = operation->input;
    int padded = padded_channels(cuda_of(device), operation);
    if (padded > 0) image.channels = padded;
    cuda_layout own = cuda_value_layout(reader->rows, image, reader->precision);
    cuda_layout_store(layout, &own);
    return true;
}

static bool lacks_cudnn(const cuda_device *device) {
#ifdef YOKE_HAS_CUDNN
    return cuda_cudnn() != NULL && device->cudnn == NULL;
#else
    (void)device;
    return false;
#endif
}

/* A cuDNN that does not start leaves no trace in the choices of runs where it does. */
static void write_key(char *key, size_t size, const cuda_device *device,
                      const yoke_operation *operation, int padded) {
    yoke_dims input = operation->input;
    int length =
        snprintf(key, size, "conv %dx%dx%d to %d, kernel %d/%d pad %d groups %d", input.channels,
                 input.height, input.width, operation->output.channels, operation->kernel,
                 operation->stride, operation->padding, operation->groups);
    if (operation->dilation > 1)
        length +=
            snprintf(key + length, size - (size_t)length, " dilation %d", operation->dilation);
    if (padded > 0)
        length += snprintf(key + length, size - (size_t)length, " as %d channels", padded);
    if (lacks_cudnn(device)) snprintf(key + length, size - (size_t)length, " without cuDNN");
}

yoke_status cuda_plan_convolution(yoke_plan **plan, cuda_device *device,
                                  const yoke_plan_request *request) {
    const yoke_operation *operation = request->operation;
    yoke_dims input = operation->input, output = operation->output;
    int64_t kernel = operation->kernel, in = input.channels / operation->groups;
    int padded = reads_images(request) ? padded_channels(device, operation) : 0;
    char key[128];
    write_key(key, sizeof key, device, operation, padded);
    if (padded > 0) input.channels = padded;
    cuda_weighted_request weighted = {
        .plan = request,
        .key = key,
        .input = cuda_value_layout(request->rows, input, request->precision),
        .padded = padded,
        .weights = {CUDA_FLOAT32, kernel > 1 && in > 1, 4, {output.channels, in, kernel, kernel}},
        .algorithms = algorithms,
        .algorithm_count = sizeof algorithms / sizeof algorithms[0]};
    return cuda_weighted_create(plan, device, &weighted);
}
