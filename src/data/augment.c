/* SPDX-License-Identifier: Apache-2.0 */
/* From a stored row to the model's input: crop, flip, normalise and cut out in one pass over the
 * output. The arithmetic is torchvision's. device/cuda/decode.cu does the same on a GPU. */
#include <math.h>

#include "data/data.h"
#include "device/device.h"

#define CUTOUT_SIDE 8
#define ERASE_TRIES 10
#define ERASE_BLOCK 18 /* of the row's random numbers; color_jitter.c uses those before */

void yoke_draw_sides(const uint32_t words[2], double area, const yoke_sides *range, int *with,
                     int *against) {
    double part =
        area * (range->smallest + (range->largest - range->smallest) * yoke_random_unit(words[0]));
    double low = log(range->least_ratio), high = log(range->most_ratio);
    double ratio = exp(low + (high - low) * yoke_random_unit(words[1]));
    *with = (int)nearbyint(sqrt(part * ratio));
    *against = (int)nearbyint(sqrt(part / ratio));
}

/* torchvision's RandomErasing, with its default sizes. */
static void place_erasing(const yoke_augmentation *augmentation, const yoke_shape *shape,
                          size_t row, yoke_placement *placed) {
    static const yoke_sides range = {0.02, 0.33, 0.3, 3.3};
    uint32_t words[4];
    yoke_random_words(augmentation->seed, YOKE_RANDOM_AUGMENT, augmentation->epoch, (uint32_t)row,
                      ERASE_BLOCK, words);
    if (yoke_random_unit(words[0]) >= augmentation->erasing) return;
    for (uint32_t i = 1; i <= ERASE_TRIES; i++) {
        int height, width;
        yoke_random_words(augmentation->seed, YOKE_RANDOM_AUGMENT, augmentation->epoch,
                          (uint32_t)row, ERASE_BLOCK + i, words);
        yoke_draw_sides(words, (double)shape->height * shape->width, &range, &height, &width);
        if (height >= shape->height || width >= shape->width) continue;
        placed->cut_height = height;
        placed->cut_width = width;
        placed->cut_top = yoke_random_below(words[2], shape->height - height + 1);
        placed->cut_left = yoke_random_below(words[3], shape->width - width + 1);
        return;
    }
}

static void place_cutout(const yoke_augmentation *augmentation, const yoke_shape *shape, size_t row,
                         yoke_placement *placed) {
    uint32_t words[4];
    yoke_random_words(augmentation->seed, YOKE_RANDOM_AUGMENT, augmentation->epoch, (uint32_t)row,
                      1, words);
    placed->cut_height = placed->cut_width = CUTOUT_SIDE;
    placed->cut_top = yoke_random_below(words[0], shape->height) - CUTOUT_SIDE / 2;
    placed->cut_left = yoke_random_below(words[1], shape->width) - CUTOUT_SIDE / 2;
}

/* word: the row's, of this epoch. In turn: by the word of epoch 0, and the other way round in every
 * second epoch. */
static bool mirrors(const yoke_augmentation *augmentation, size_t row, uint32_t word) {
    uint32_t first[4];
    if (!augmentation->crop_flip.alternate) return word >> 31;
    yoke_random_words(augmentation->seed, YOKE_RANDOM_AUGMENT, 0, (uint32_t)row, 0, first);
    return (first[2] >> 31) != (augmentation->epoch & 1);
}

yoke_placement yoke_augment_place(const yoke_augmentation *augmentation, const yoke_shape *shape,
                                  size_t row) {
    yoke_placement placed = {0};
    if (augmentation->erasing > 0) place_erasing(augmentation, shape, row, &placed);
    if (augmentation->kind == YOKE_AUGMENT_NONE) return placed;
    uint32_t words[4];
    yoke_random_words(augmentation->seed, YOKE_RANDOM_AUGMENT, augmentation->epoch, (uint32_t)row,
                      0, words);
    placed.flip = mirrors(augmentation, row, words[2]);
    if (augmentation->kind == YOKE_AUGMENT_RESIZED_CROP_FLIP) return placed;
    const yoke_crop_flip *how = &augmentation->crop_flip;
    int padding = how->padding > 0 ? how->padding : YOKE_CROP_PADDING;
    placed.reflect = how->reflect;
    placed.down = yoke_random_below(words[0], 2 * padding + 1) - padding;
    placed.right = yoke_random_below(words[1], 2 * padding + 1) - padding;
    if (augmentation->kind == YOKE_AUGMENT_CROP_FLIP_CUTOUT)
        place_cutout(augmentation, shape, row, &placed);
    return placed;
}

/* Cutout (DeVries and Taylor 2017) and erasing fill the box with the mean. */
yoke_decoding yoke_augment_decoding(const yoke_dataset *dataset,
                                    const yoke_augmentation *augmentation) {
    yoke_decoding decoding = {.struct_size = sizeof decoding};
    for (int i = 0; i < 4; i++) {
        decoding.mean[i] = augmentation->raw ? 0 : dataset->mean[i];
        decoding.std[i] = augmentation->raw ? 1 : dataset->std[i];
        decoding.cut_value[i] = augmentation->raw ? dataset->mean[i] : 0;
    }
    return decoding;
}

static void fill(float *output, int count, float value) {
    for (int i = 0; i < count; i++)
        output[i] = value;
}

static void scale_bytes(const uint8_t *input, int count, yoke_scaling scale, float *output) {
    for (int i = 0; i < count; i++)
        output[i] = yoke_decode_pixel(input[i], scale);
}

static void scale_floats(const float *input, int count, yoke_scaling scale, float *output) {
    for (int i = 0; i < count; i++)
        output[i] = yoke_normalise(input[i], scale);
}

static int clamp(int value, int low, int high) {
    return value < low ? low : value > high ? high : value;
}

/* A plane of a stored row; exactly one of bytes and floats is set. */
typedef struct plane {
    const uint8_t *bytes;
    const float *floats;
    int height, width;
    yoke_scaling scale;
} plane;

/* The pixels [first, end) of a line that lie beyond its edges. */
static void reflect_line(const plane *in, const yoke_placement *placed, size_t line, int first,
                         int end, float *output) {
    for (int x = first; x < end; x++) {
        size_t at =
            line + (size_t)yoke_decode_source(x + placed->right, in->width, placed->reflect);
        output[x] = in->bytes ? yoke_decode_pixel(in->bytes[at], in->scale)
                              : yoke_normalise(in->floats[at], in->scale);
    }
}

/* Without reflection they are black. */
static void write_edge(const plane *in, const yoke_placement *placed, size_t line, int first,
                       int end, float *output) {
    if (placed->reflect)
        reflect_line(in, placed, line, first, end, output);
    else
        fill(output + first, end - first, yoke_decode_pixel(0, in->scale));
}

/* One line of the output. */
static void write_line(const plane *in, const yoke_placement *placed, int y, float *output) {
    float black = yoke_decode_pixel(0, in->scale);
    int source = yoke_decode_source(y + placed->down, in->height, placed->reflect);
    if (source < 0 || source >= in->height) {
        fill(output, in->width, black);
        return;
    }
    int first = clamp(-placed->right, 0, in->width);
    int end = clamp(in->width - placed->right, first, in->width);
    size_t line = (size_t)source * (size_t)in->width;
    size_t offset = line + (size_t)(first + placed->right);
    write_edge(in, placed, line, 0, first, output);
    if (in->bytes)
        scale_bytes(in->bytes + offset, end - first, in->scale, output + first);
    else
        scale_floats(in->floats + offset, end - first, in->scale, output + first);
    write_edge(in, placed, line, end, in->width, output);
    if (placed->flip) {
        int count = in->width;
        for (int i = 0; i < count / 2; i++) {
            float kept = output[i];
            output[i] = output[count - 1 - i];
            output[count - 1 - i] = kept;
        }
    }
}

static void cut(const plane *in, const yoke_placement *placed, float value, float *output) {
    int top = clamp(placed->cut_top, 0, in->height);
    int bottom = clamp(placed->cut_top + placed->cut_height, 0, in->height);
    int left = clamp(placed->cut_left, 0, in->width);
    int right = clamp(placed->cut_left + placed->cut_width, 0, in->width);
    for (int y = top; y < bottom; y++)
        fill(output + (size_t)y * (size_t)in->width + left, right - left, value);
}

void yoke_augment_row(const yoke_dataset *dataset, size_t row, const yoke_stored_row *stored,
                      const yoke_augmentation *augmentation, float *output) {
    const yoke_shape *shape = &dataset->shape;
    size_t pixels = (size_t)shape->height * (size_t)shape->width;
    yoke_placement placed = yoke_augment_place(augmentation, shape, row);
    yoke_decoding decoding = yoke_augment_decoding(dataset, augmentation);
    plane in = {.height = shape->height, .width = shape->width};
    for (int channel = 0; channel < shape->channels; channel++) {
        int entry = channel < 4 ? channel : 3;
        size_t offset = (size_t)channel * pixels;
        in.bytes = stored->bytes != NULL ? stored->bytes + offset : NULL;
        in.floats = stored->floats != NULL ? stored->floats + offset : NULL;
        in.scale = (yoke_scaling){decoding.mean[entry], decoding.std[entry]};
        if (dataset->means != NULL && !augmentation->raw)
            in.scale = (yoke_scaling){dataset->means[channel], dataset->stds[channel]};
        for (int y = 0; y < shape->height; y++)
            write_line(&in, &placed, y, output + offset + (size_t)y * (size_t)shape->width);
        cut(&in, &placed, decoding.cut_value[entry], output + offset);
    }
}
