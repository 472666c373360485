/* From a stored row to what the model reads: crop, flip, normalise and cutout in one pass over the
 * output. The arithmetic is torchvision's. */
#include "data/data.h"

#define PADDING 4
#define CUTOUT_SIDE 8

/* Where a row's pixels come from. Shifts of 0, no flip and no cut copy it straight. */
typedef struct placement {
    int down, right; /* output (y, x) shows input (y + down, x + right), before the flip */
    bool flip, cut;
    int cut_y, cut_x; /* centre of the square */
} placement;

/* value = (pixel - mean) / deviation */
typedef struct scaling {
    float mean, deviation;
} scaling;

/* Uniform in 0 .. count - 1, by multiplication: no modulo bias worth the name. */
static int below(uint32_t word, int count) {
    return (int)((uint64_t)word * (uint64_t)count >> 32);
}

static placement place(const yoke_augmentation *augmentation, const yoke_shape *shape, size_t row) {
    placement placed = {0};
    if (augmentation->kind == YOKE_AUGMENT_NONE) return placed;
    uint32_t words[4];
    yoke_random_words(augmentation->seed, YOKE_RANDOM_AUGMENT, augmentation->epoch, (uint32_t)row,
                      0, words);
    placed.down = below(words[0], 2 * PADDING + 1) - PADDING;
    placed.right = below(words[1], 2 * PADDING + 1) - PADDING;
    placed.flip = words[2] >> 31;
    if (augmentation->kind != YOKE_AUGMENT_CROP_FLIP_CUTOUT) return placed;
    yoke_random_words(augmentation->seed, YOKE_RANDOM_AUGMENT, augmentation->epoch, (uint32_t)row,
                      1, words);
    placed.cut = true;
    placed.cut_y = below(words[0], shape->height);
    placed.cut_x = below(words[1], shape->width);
    return placed;
}

static void fill(float *output, int count, float value) {
    for (int i = 0; i < count; i++)
        output[i] = value;
}

/* Division, not multiplication by the inverse: ToTensor and Normalize to the last bit. */
static void scale_bytes(const uint8_t *input, int count, scaling scale, float *output) {
    for (int i = 0; i < count; i++)
        output[i] = ((float)input[i] / 255.0f - scale.mean) / scale.deviation;
}

static void scale_floats(const float *input, int count, scaling scale, float *output) {
    for (int i = 0; i < count; i++)
        output[i] = (input[i] - scale.mean) / scale.deviation;
}

static void mirror(float *line, int count) {
    for (int i = 0; i < count / 2; i++) {
        float kept = line[i];
        line[i] = line[count - 1 - i];
        line[count - 1 - i] = kept;
    }
}

static int clamp(int value, int low, int high) {
    return value < low ? low : value > high ? high : value;
}

/* A plane of a stored row; exactly one of bytes and floats is set. */
typedef struct plane {
    const uint8_t *bytes;
    const float *floats;
    int height, width;
    scaling scale;
} plane;

/* One line of the output: what lies outside the picture is black. */
static void write_line(const plane *in, const placement *placed, int y, float *output) {
    float black = (0.0f - in->scale.mean) / in->scale.deviation;
    int source = y + placed->down;
    if (source < 0 || source >= in->height) {
        fill(output, in->width, black);
        return;
    }
    int first = clamp(-placed->right, 0, in->width);
    int end = clamp(in->width - placed->right, first, in->width);
    size_t offset = (size_t)source * (size_t)in->width + (size_t)(first + placed->right);
    fill(output, first, black);
    if (in->bytes)
        scale_bytes(in->bytes + offset, end - first, in->scale, output + first);
    else
        scale_floats(in->floats + offset, end - first, in->scale, output + first);
    fill(output + end, in->width - end, black);
    if (placed->flip) mirror(output, in->width);
}

/* Cutout (DeVries and Taylor 2017): the square may reach over the edge, and shows the mean. */
static void cut(const plane *in, const placement *placed, float mean, float *output) {
    int half = CUTOUT_SIDE / 2;
    int top = clamp(placed->cut_y - half, 0, in->height);
    int bottom = clamp(placed->cut_y + half, 0, in->height);
    int left = clamp(placed->cut_x - half, 0, in->width);
    int right = clamp(placed->cut_x + half, 0, in->width);
    for (int y = top; y < bottom; y++)
        fill(output + (size_t)y * (size_t)in->width + left, right - left, mean);
}

void yoke_augment_row(const yoke_dataset *dataset, size_t row,
                      const yoke_augmentation *augmentation, const float *made, float *output) {
    const yoke_shape *shape = &dataset->shape;
    size_t pixels = (size_t)shape->height * (size_t)shape->width;
    size_t start = row * yoke_dataset_values(dataset);
    placement placed = place(augmentation, shape, row);
    plane in = {.height = shape->height, .width = shape->width};
    for (int channel = 0; channel < shape->channels; channel++) {
        int entry = channel < 4 ? channel : 3;
        size_t offset = (size_t)channel * pixels;
        float mean = dataset->mean[entry];
        in.bytes = dataset->bytes ? dataset->bytes + start + offset : NULL;
        in.floats = made              ? made + offset
                    : dataset->floats ? dataset->floats + start + offset
                                      : NULL;
        in.scale = augmentation->raw ? (scaling){0, 1} : (scaling){mean, dataset->deviation[entry]};
        for (int y = 0; y < shape->height; y++)
            write_line(&in, &placed, y, output + offset + (size_t)y * (size_t)shape->width);
        if (placed.cut) cut(&in, &placed, augmentation->raw ? mean : 0, output + offset);
    }
}
