/* SPDX-License-Identifier: Apache-2.0 */
/* Two-dimensional convolution: a matrix product where possible, cuDNN, or im2col. */
#include <stdio.h>

#include "device/cuda/stem.h"
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

static bool lacks_cudnn(const cuda_device *device) {
#ifdef YOKE_HAS_CUDNN
    return cuda_cudnn() != NULL && device->cudnn == NULL;
#else
    (void)device;
    return false;
#endif
}

/* A cuDNN that does not start leaves no trace in the algorithms of runs where it does. */
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

static yoke_status plan_as(yoke_plan **plan, cuda_device *device, const yoke_plan_request *request,
                           int padded) {
    const yoke_operation *operation = request->operation;
    yoke_dims input = operation->input, output = operation->output;
    int64_t kernel = operation->kernel, in = input.channels / operation->groups;
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

static yoke_status choose_channels(cuda_device *device, const yoke_plan_request *request,
                                   int *padded) {
    char key[128];
    write_key(key, sizeof key, device, request->operation, 0);
    return cuda_stem_choose(device, request, key, plan_as, padded);
}

/* Decode may have laid images out with more channels than they have. */
yoke_status cuda_plan_convolution(yoke_plan **plan, cuda_device *device,
                                  const yoke_plan_request *request) {
    int own = request->operation->input.channels;
    const cuda_layout *layout = cuda_layout_of(&request->inputs[0]);
    int given = (int)layout->dims[1];
    int padded = given > own ? given : 0;
    bool is_plain = layout->type == CUDA_FLOAT32 && !layout->channels_last;
    if (is_plain && !request->input_gradient) /* it copies its input in any case */
        TRY(choose_channels(device, request, &padded));
    return plan_as(plan, device, request, padded);
}

yoke_status cuda_image_layout(yoke_device *device, const yoke_plan_request *reader,
                              yoke_layout *layout) {
    const yoke_operation *operation = reader->operation;
    if (!cuda_takes(cuda_of(device), YOKE_VARIANT_DECODE) || reader->precision != YOKE_BFLOAT16 ||
        operation->kind != YOKE_OP_CONV2D)
        return YOKE_OK;
    yoke_dims image = operation->input;
    int padded;
    TRY(choose_channels(cuda_of(device), reader, &padded));
    if (padded > 0) image.channels = padded;
    cuda_layout own = cuda_value_layout(reader->rows, image, reader->precision);
    cuda_layout_store(layout, &own);
    return YOKE_OK;
}
