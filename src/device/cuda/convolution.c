/* SPDX-License-Identifier: Apache-2.0 */
/* Two-dimensional convolution: a matrix product where possible, cuDNN, or im2col. */
#include <stdio.h>
#include <string.h>

#include "device/cuda/stem.h"
#include "device/cuda/weighted.h"

#define PLAN_ROW(rank)                                                                             \
    { "cuDNN plan", cuda_graph_pass, rank }

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
                                            {"cuDNN 7", cuda_cudnn_pass, 7},
                                            PLAN_ROW(0),
                                            PLAN_ROW(1),
                                            PLAN_ROW(2),
                                            PLAN_ROW(3),
                                            PLAN_ROW(4),
                                            PLAN_ROW(5),
                                            PLAN_ROW(6),
                                            PLAN_ROW(7)};
enum { ALGORITHMS = sizeof algorithms / sizeof algorithms[0] };
_Static_assert(ALGORITHMS <= CUDA_ALGORITHMS_LIMIT, "a trial has room for all");

static bool lacks_cudnn(const cuda_device *device) {
#ifdef YOKE_HAS_CUDNN
    return cuda_cudnn() != NULL && device->cudnn == NULL;
#else
    (void)device;
    return false;
#endif
}

#define KEY_BYTES (YOKE_CONVOLUTION_KEY_BYTES + 40)

/* A cuDNN that does not start leaves no trace in the algorithms of runs where it does. */
static void write_key(char key[KEY_BYTES], const cuda_device *device,
                      const yoke_operation *operation, int padded) {
    char channels[24] = "";
    yoke_convolution_key(operation, key);
    size_t length = strlen(key);
    if (padded > 0) snprintf(channels, sizeof channels, " as %d channels", padded);
    snprintf(key + length, KEY_BYTES - length, "%s%s", channels,
             lacks_cudnn(device) ? " without cuDNN" : "");
}

/* The weight of a convolution, channels last where that is another order. */
static cuda_layout weights_of(const yoke_operation *convolution) {
    int64_t height = yoke_taps_down(convolution).kernel;
    int64_t width = yoke_taps_across(convolution).kernel;
    int64_t out = convolution->output.channels;
    int64_t in = convolution->input.channels / convolution->groups;
    return (cuda_layout){CUDA_FLOAT32, height * width > 1 && in > 1, 4, {out, in, height, width}};
}

static yoke_status plan_as(yoke_plan **plan, cuda_device *device, const yoke_plan_request *request,
                           int padded) {
    const yoke_operation *operation = request->operation;
    yoke_dims input = operation->input;
    char key[KEY_BYTES];
    write_key(key, device, operation, padded);
    if (padded > 0) input.channels = padded;
    cuda_weighted_request weighted = {
        .plan = request,
        .key = key,
        .input = cuda_value_layout(request->rows, input, request->precision),
        .padded = padded,
        .weights = weights_of(operation),
        .algorithms = algorithms,
        .algorithm_count = ALGORITHMS};
    return cuda_weighted_create(plan, device, &weighted);
}

static yoke_status choose_channels(cuda_device *device, const yoke_plan_request *request,
                                   int *padded) {
    char key[KEY_BYTES];
    write_key(key, device, request->operation, 0);
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

static yoke_status create_transposed(cuda_pass **pass, const cuda_problem *problem,
                                     cuda_direction direction, int variant) {
    return cuda_transposed_pass(pass, problem, direction, &algorithms[variant]);
}

yoke_status cuda_plan_transposed_convolution(yoke_plan **plan, cuda_device *device,
                                             const yoke_plan_request *request) {
    const yoke_operation *operation = request->operation;
    const yoke_operation convolution = yoke_transposed_convolution(operation);
    cuda_algorithm transposed[ALGORITHMS];
    char key[KEY_BYTES];
    write_key(key, device, operation, 0);
    for (int i = 0; i < ALGORITHMS; i++)
        transposed[i] = (cuda_algorithm){algorithms[i].name, create_transposed, i};
    cuda_weighted_request weighted = {
        .plan = request,
        .key = key,
        .input = cuda_value_layout(request->rows, operation->input, request->precision),
        .weights = weights_of(&convolution),
        .algorithms = transposed,
        .algorithm_count = ALGORITHMS};
    return cuda_weighted_create(plan, device, &weighted);
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
