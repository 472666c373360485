/* SPDX-License-Identifier: Apache-2.0 */
/* Pools and images in another size. */
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "model/onnx/onnx_reader.h"
#include "yoke/composed.h"

/* A pool along height and width; of a sequence [batch, channels, positions] along one line. */
typedef struct pool {
    int64_t size[2], kernel[2], stride[2], before[2], after[2], out[2];
    int64_t counted[2]; /* padding of the file on each side, before ceil_mode adds to it */
    bool average, counts_padding;
} pool;

static yoke_status read_pair(yoke_onnx_call *call, const char *name, int spaces, int64_t otherwise,
                             int64_t least, int64_t numbers[2]) {
    yoke_onnx_sizes given;
    TRY(yoke_onnx_ints(call, name, &given));
    if (given.rank >= 0 && given.rank != spaces)
        return FAIL(YOKE_ERROR_DATA, "its %s are %d numbers, expected %d", name, given.rank,
                    spaces);
    for (int i = 0; i < 2; i++) {
        int place = i - (2 - spaces);
        numbers[i] = given.rank < 0 || place < 0 ? otherwise : given.at[place];
        if (numbers[i] < least || numbers[i] > 1 << 20)
            return FAIL(YOKE_ERROR_DATA, "its %s have %lld", name, (long long)numbers[i]);
    }
    return YOKE_OK;
}

/* The places of the output along a direction, and what is read behind the edge for them. */
static yoke_status measure(pool *p, int i, bool ceil_mode) {
    int64_t reach = p->size[i] + p->before[i] + p->after[i] - p->kernel[i];
    if (reach < 0) return FAIL(YOKE_ERROR_DATA, "a window larger than the image");
    p->out[i] = reach / p->stride[i] + 1;
    p->counted[i] = p->after[i];
    if (!ceil_mode || reach % p->stride[i] == 0) return YOKE_OK;
    /* One more, unless its window would begin in the padding behind. */
    if (p->out[i] * p->stride[i] < p->size[i] + p->before[i]) {
        p->after[i] +=
            (p->out[i] * p->stride[i] + p->kernel[i]) - (p->size[i] + p->before[i] + p->after[i]);
        p->out[i]++;
    }
    return YOKE_OK;
}

static yoke_status read_pool(yoke_onnx_call *call, pool *p, int spaces) {
    const yoke_onnx_sizes *sizes = &call->in[0]->sizes;
    yoke_onnx_sizes pads;
    int64_t dilation[2];
    char text[32];
    const char *mode = yoke_onnx_text(call, "auto_pad", "NOTSET", text);
    TRY(read_pair(call, "kernel_shape", spaces, 1, 1, p->kernel));
    TRY(read_pair(call, "strides", spaces, 1, 1, p->stride));
    TRY(read_pair(call, "dilations", spaces, 1, 1, dilation));
    TRY(yoke_onnx_ints(call, "pads", &pads));
    if (dilation[0] != 1 || dilation[1] != 1) return FAIL(YOKE_ERROR_ARGUMENT, "it is dilated");
    if (pads.rank >= 0 && pads.rank != 2 * spaces)
        return FAIL(YOKE_ERROR_DATA, "its pads are %d numbers", pads.rank);
    if (spaces == 1) p->kernel[0] = p->stride[0] = 1;
    for (int i = 0; i < 2; i++) {
        int place = i - (2 - spaces);
        p->size[i] = place < 0 ? 1 : sizes->at[2 + place];
        if (place >= 0 && pads.rank >= 0) {
            p->before[i] = pads.at[place];
            p->after[i] = pads.at[spaces + place];
        }
        int64_t outputs = (p->size[i] + p->stride[i] - 1) / p->stride[i];
        int64_t missing = (outputs - 1) * p->stride[i] + p->kernel[i] - p->size[i];
        if (strncmp(mode, "SAME_", 5) == 0 && place >= 0 && missing > 0) {
            p->before[i] = strcmp(mode, "SAME_LOWER") == 0 ? (missing + 1) / 2 : missing / 2;
            p->after[i] = missing - p->before[i];
        }
        if (p->before[i] < 0 || p->after[i] < 0 || p->before[i] > 1 << 20 || p->after[i] > 1 << 20)
            return FAIL(YOKE_ERROR_DATA, "its pads are %lld and %lld", (long long)p->before[i],
                        (long long)p->after[i]);
        TRY(measure(p, i, yoke_onnx_int(call, "ceil_mode", 0) != 0));
    }
    return YOKE_OK;
}

/* How many places of the file's padded line, or of the image alone, the window of an output has. */
static int64_t places_of(const pool *p, int i, int64_t out) {
    int64_t begin = out * p->stride[i] - p->before[i], end = begin + p->kernel[i];
    int64_t low = p->counts_padding ? -p->before[i] : 0;
    int64_t high = p->size[i] + (p->counts_padding ? p->counted[i] : 0);
    begin = begin < low ? low : begin;
    end = end > high ? high : end;
    return end > begin ? end - begin : 1;
}

/* An average over all taps becomes one over the places that count. */
static yoke_status correct(yoke_onnx_call *call, const pool *p, yoke_value *node) {
    size_t count = (size_t)(p->out[0] * p->out[1]);
    TRY(yoke_onnx_spend(call->reader, count));
    float *factors = yoke_malloc(count * sizeof *factors);
    if (factors == NULL) return FAIL_MEMORY(count * sizeof *factors, "a pool");
    bool same = true;
    for (int64_t y = 0; y < p->out[0]; y++)
        for (int64_t x = 0; x < p->out[1]; x++) {
            int64_t places = places_of(p, 0, y) * places_of(p, 1, x);
            int64_t taps = p->kernel[0] * p->kernel[1];
            factors[y * p->out[1] + x] = (float)((double)taps / (double)places);
            same = same && places == taps;
        }
    if (!same)
        *node = yoke_multiply(call->model, *node,
                              yoke_constant(call->model,
                                            yoke_shape_image(1, (int)p->out[0], (int)p->out[1]),
                                            factors));
    yoke_free(factors);
    return yoke_onnx_check(call);
}

static yoke_status need_images(const yoke_onnx_value *value) {
    int spaces = value->sizes.rank - 2;
    if ((spaces == 1 || spaces == 2) && value->batch.at == 0 &&
        value->batch.before * value->batch.after == 1)
        return YOKE_OK;
    return FAIL(YOKE_ERROR_ARGUMENT,
                "it reads a tensor of %d dimensions, expected [batch, channels, height, width] or "
                "[batch, channels, positions]",
                value->sizes.rank);
}

static yoke_status image_of(yoke_onnx_call *call, yoke_onnx_value *value, yoke_value *node) {
    const int64_t *at = value->sizes.at;
    TRY(yoke_onnx_node(call, value, node));
    if (value->sizes.rank == 3)
        *node = yoke_onnx_image(call, *node, (size_t)at[1], 1, (size_t)at[2]);
    else
        *node = yoke_onnx_image(call, *node, (size_t)at[1], (size_t)at[2], (size_t)at[3]);
    return yoke_onnx_check(call);
}

static yoke_status pooled(yoke_onnx_call *call) {
    TRY(yoke_onnx_need(call, 1));
    yoke_onnx_value *input = call->in[0];
    pool p = {.average = call->word != 0,
              .counts_padding = yoke_onnx_int(call, "count_include_pad", 0) != 0};
    yoke_value node;
    TRY(need_images(input));
    int spaces = input->sizes.rank - 2;
    TRY(read_pool(call, &p, spaces));
    if (call->out_count > 1 && call->out[1] != NULL)
        return FAIL(YOKE_ERROR_ARGUMENT, "the places of its maxima are read");
    TRY(image_of(call, input, &node));
    static const yoke_axis axes[] = {YOKE_AXIS_HEIGHT, YOKE_AXIS_WIDTH};
    bool written = p.before[0] != p.after[0] || p.before[1] != p.after[1];
    if ((p.out[0] - 1) * p.stride[0] + p.kernel[0] > INT_MAX / 2 ||
        (p.out[1] - 1) * p.stride[1] + p.kernel[1] > INT_MAX / 2)
        return FAIL(YOKE_ERROR_ARGUMENT, "its image is too large");
    for (int i = 0; i < 2 && written; i++)
        if (p.before[i] > 0 || p.after[i] > 0)
            node = yoke_slice(call->model, node, axes[i], (int)-p.before[i],
                              (int)(p.size[i] + p.after[i]), p.average ? 0 : -3e38);
    yoke_pool_options options = {.struct_size = sizeof options,
                                 .kernel = (int)p.kernel[0],
                                 .stride = (int)p.stride[0],
                                 .padding = written ? 0 : (int)p.before[0],
                                 .kernel_width = (int)p.kernel[1],
                                 .stride_width = (int)p.stride[1],
                                 .padding_width = written ? 0 : (int)p.before[1]};
    node = p.average ? yoke_average_pool(call->model, node, &options)
                     : yoke_max_pool(call->model, node, &options);
    if (p.average) TRY(correct(call, &p, &node));
    yoke_onnx_sizes sizes = {2 + spaces,
                             {input->sizes.at[0], input->sizes.at[1], p.out[0], p.out[1]}};
    if (spaces == 1) sizes.at[2] = p.out[1];
    return yoke_onnx_result(call, 0, &sizes, input->batch, node);
}

/* GlobalAveragePool; word: GlobalMaxPool. */
static yoke_status global(yoke_onnx_call *call) {
    TRY(yoke_onnx_need(call, 1));
    yoke_onnx_sizes sizes = call->in[0]->sizes;
    yoke_value node;
    TRY(need_images(call->in[0]));
    TRY(image_of(call, call->in[0], &node));
    node = call->word ? yoke_reduce_axes(call->model, node, YOKE_REDUCE_MAX,
                                         YOKE_AXIS_HEIGHT | YOKE_AXIS_WIDTH)
                      : yoke_global_average_pool(call->model, node);
    for (int i = 2; i < sizes.rank; i++)
        sizes.at[i] = 1;
    return yoke_onnx_result(call, 0, &sizes, call->in[0]->batch, node);
}

static yoke_status resize(yoke_onnx_call *call) {
    TRY(yoke_onnx_need(call, 1));
    yoke_onnx_value *input = call->in[0];
    yoke_onnx_sizes sizes = input->sizes, given;
    char mode[32], place[32], nearest[32];
    yoke_value node;
    TRY(need_images(input));
    if (yoke_onnx_has(call, 3) && yoke_onnx_whole(&call->in[3]->sizes) > 0) {
        TRY(yoke_onnx_numbers(call, 3, "sizes", &given));
        if (given.rank != sizes.rank)
            return FAIL(YOKE_ERROR_ARGUMENT, "%d sizes for %d dimensions", given.rank, sizes.rank);
        sizes = given;
    } else {
        const double *scales;
        if (!yoke_onnx_has(call, 2) || !yoke_onnx_known(call, call->in[2]) ||
            yoke_onnx_whole(&call->in[2]->sizes) != (size_t)sizes.rank)
            return FAIL(YOKE_ERROR_ARGUMENT, "it has neither known sizes nor scales");
        TRY(yoke_onnx_elements_of(call, call->in[2], &scales));
        for (int i = 0; i < sizes.rank; i++) {
            if (!(scales[i] > 0 && scales[i] < 1e6))
                return FAIL(YOKE_ERROR_DATA, "a scale of %g", scales[i]);
            sizes.at[i] = (int64_t)floor((double)sizes.at[i] * scales[i]);
        }
    }
    if (sizes.rank != 4 || sizes.at[0] != input->sizes.at[0] || sizes.at[1] != input->sizes.at[1])
        return FAIL(YOKE_ERROR_ARGUMENT, "it changes more than height and width of images");
    if (sizes.at[2] < 1 || sizes.at[3] < 1 || sizes.at[2] > 1 << 20 || sizes.at[3] > 1 << 20)
        return FAIL(YOKE_ERROR_DATA, "a size of %lld x %lld", (long long)sizes.at[2],
                    (long long)sizes.at[3]);
    const char *how = yoke_onnx_text(call, "mode", "nearest", mode);
    const char *where = yoke_onnx_text(call, "coordinate_transformation_mode", "half_pixel", place);
    const char *rounds = yoke_onnx_text(call, "nearest_mode", "round_prefer_floor", nearest);
    bool whole = sizes.at[2] % input->sizes.at[2] == 0 && sizes.at[3] % input->sizes.at[3] == 0;
    yoke_upsample_mode found = YOKE_UPSAMPLE_BILINEAR;
    bool known = strcmp(how, "linear") == 0 &&
                 (strcmp(where, "half_pixel") == 0 || strcmp(where, "pytorch_half_pixel") == 0);
    if (strcmp(how, "linear") == 0 && strcmp(where, "align_corners") == 0) {
        found = YOKE_UPSAMPLE_BILINEAR_CORNERS;
        known = true;
    } else if (strcmp(how, "nearest") == 0) {
        found = YOKE_UPSAMPLE_NEAREST;
        known = (strcmp(where, "asymmetric") == 0 && strcmp(rounds, "floor") == 0) ||
                (whole && strcmp(where, "half_pixel") == 0);
    }
    if (!known)
        return FAIL(YOKE_ERROR_ARGUMENT,
                    "Yoke lacks mode %s with coordinates %s and %s; it has those of PyTorch's "
                    "nearest and bilinear",
                    how, where, rounds);
    for (int i = 2; i < 4; i++)
        TRY(yoke_onnx_spend(call->reader, (size_t)(sizes.at[i] * input->sizes.at[i])));
    TRY(image_of(call, input, &node));
    node = yoke_upsample(call->model, node, (int)sizes.at[2], (int)sizes.at[3], found);
    return yoke_onnx_result(call, 0, &sizes, input->batch, node);
}

const yoke_onnx_operator yoke_onnx_pools[] = {
    {"AveragePool", pooled, 1},   {"GlobalAveragePool", global, 0},
    {"GlobalMaxPool", global, 1}, {"MaxPool", pooled, 0},
    {"Resize", resize, 0},        {NULL, NULL, 0},
};
