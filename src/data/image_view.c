/* SPDX-License-Identifier: Apache-2.0 */
/* From a file of any size to the pixels of a row: which part, at which size. */
#include <math.h>
#include <stdlib.h>

#include "data/images.h"

#define TRIES 10
#define NARROWEST (3.0 / 4.0) /* width / height */
#define RANDOM_BLOCKS 2       /* of yoke_augment_place */

yoke_image_view yoke_image_center(int width, int height, int resize, int size) {
    bool wide = width > height;
    int shorter = wide ? height : width, longer = wide ? width : height;
    int scaled = (int)((double)resize * longer / shorter);
    yoke_image_view view = {.box_width = width, .box_height = height};
    view.width = wide ? scaled : resize;
    view.height = wide ? resize : scaled;
    view.window_left = (int)nearbyint((view.width - size) / 2.0);
    view.window_top = (int)nearbyint((view.height - size) / 2.0);
    return view;
}

/* The largest box of an allowed shape, where no random one lies within the image. */
static yoke_image_view largest(int width, int height, int size) {
    double ratio = (double)width / height;
    yoke_image_view view = {
        .box_width = width, .box_height = height, .width = size, .height = size};
    if (ratio < NARROWEST) view.box_height = (int)nearbyint(width / NARROWEST);
    if (ratio > 1 / NARROWEST) view.box_width = (int)nearbyint(height / NARROWEST);
    view.left = (width - view.box_width) / 2;
    view.top = (height - view.box_height) / 2;
    return view;
}

yoke_image_view yoke_image_random(int width, int height, int size,
                                  const yoke_augmentation *augmentation, size_t row) {
    static const yoke_sides range = {0.08, 1, NARROWEST, 1 / NARROWEST};
    for (uint32_t i = 0; i < TRIES; i++) {
        uint32_t words[4];
        yoke_random_words(augmentation->seed, YOKE_RANDOM_AUGMENT, augmentation->epoch,
                          (uint32_t)row, RANDOM_BLOCKS + i, words);
        yoke_image_view view = {.width = size, .height = size};
        yoke_draw_sides(words, (double)width * height, &range, &view.box_width, &view.box_height);
        if (view.box_width < 1 || view.box_width > width) continue;
        if (view.box_height < 1 || view.box_height > height) continue;
        view.left = yoke_random_below(words[2], width - view.box_width + 1);
        view.top = yoke_random_below(words[3], height - view.box_height + 1);
        return view;
    }
    return largest(width, height, size);
}

/* One axis, in pixels of the decoded image: the box, and the pixels that it touches. Beyond the
 * box there is nothing, as in an image that was cut to it. */
typedef struct axis {
    double begin, end;
    int first, inputs;
} axis;

static axis scale_axis(int begin, int length, int denominator) {
    axis scaled = {.begin = (double)begin / denominator,
                   .end = (double)(begin + length) / denominator};
    scaled.first = (int)floor(scaled.begin);
    scaled.inputs = (int)ceil(scaled.end) - scaled.first;
    scaled.begin -= scaled.first;
    scaled.end -= scaled.first;
    return scaled;
}

/* Lines of the box, each scaled to the output's width as it is decoded. */
typedef struct scaled_lines {
    yoke_resampling across;
    int left, top;
    uint8_t *bytes; /* [inputs down, size, 3] */
} scaled_lines;

static void take_line(void *context, int y, const uint8_t *rgb) {
    scaled_lines *lines = context;
    size_t line = 3 * (size_t)lines->across.outputs * (size_t)(y - lines->top);
    yoke_resample_line(&lines->across, rgb + 3 * (size_t)lines->left, lines->bytes + line);
}

static yoke_status scale_down(const scaled_lines *lines, const yoke_resampling_span *span,
                              uint8_t *pixels) {
    size_t size = (size_t)span->outputs, values = 3 * size, plane = size * size;
    yoke_resampling down;
    TRY(yoke_resampling_plan(&down, span));
    int32_t *sums = yoke_malloc(values * (sizeof *sums + 1));
    uint8_t *line = (uint8_t *)(sums + values);
    for (size_t y = 0; sums != NULL && y < size; y++) {
        yoke_resample_lines(&down, (int)y, lines->bytes, values, sums, line);
        for (size_t x = 0; x < size; x++)
            for (size_t channel = 0; channel < 3; channel++)
                pixels[channel * plane + y * size + x] = line[3 * x + channel];
    }
    yoke_resampling_clear(&down);
    if (sums == NULL) return FAIL_MEMORY(values * (sizeof *sums + 1), "a line of an image");
    yoke_free(sums);
    return YOKE_OK;
}

/* How a view is read: decoded at 1 / denominator, where the box begins at (left, top). */
typedef struct reading {
    int denominator, left, top;
    yoke_resampling_span across, down;
} reading;

static reading read_view(const yoke_image *image, const yoke_image_view *view, int size,
                         bool scaled) {
    /* The largest denominator that leaves at least as many pixels as are needed. */
    int denominator = 1;
    while (scaled && image->jpeg && denominator < 8 &&
           view->box_width >= 2 * denominator * view->width &&
           view->box_height >= 2 * denominator * view->height)
        denominator *= 2;
    axis x = scale_axis(view->left, view->box_width, denominator);
    axis y = scale_axis(view->top, view->box_height, denominator);
    return (reading){.denominator = denominator,
                     .left = x.first,
                     .top = y.first,
                     .across = {x.begin, x.end, x.inputs, view->width, view->window_left, size},
                     .down = {y.begin, y.end, y.inputs, view->height, view->window_top, size}};
}

yoke_status yoke_image_render(const yoke_image *image, const yoke_image_view *view, int size,
                              bool scaled, uint8_t *pixels) {
    reading plan = read_view(image, view, size, scaled);
    size_t bytes = 3 * (size_t)size * (size_t)plan.down.inputs;
    scaled_lines lines = {.left = plan.left, .top = plan.top};
    TRY(yoke_resampling_plan(&lines.across, &plan.across));
    lines.bytes = yoke_malloc(bytes);
    yoke_image_part part = {plan.denominator, plan.top, plan.top + plan.down.inputs, take_line,
                            &lines};
    yoke_status status = lines.bytes != NULL ? yoke_image_decode(image, &part)
                                             : FAIL_MEMORY(bytes, "lines of an image");
    if (status == YOKE_OK) status = scale_down(&lines, &plan.down, pixels);
    yoke_free(lines.bytes);
    yoke_resampling_clear(&lines.across);
    return status;
}

/* For a device. */

/* The inputs that the outputs of a span read, from *first on. */
static int read_by(const yoke_resampling_span *span, int *first) {
    int32_t weights[YOKE_CROP_TAPS];
    int last;
    (void)yoke_resampling_weights(span, 0, first, weights);
    return yoke_resampling_weights(span, span->outputs - 1, &last, weights) + last - *first;
}

/* Describes the crop that a device scales; false: none of its bounds. */
static bool fits(const reading *plan, int size, yoke_crop *crop) {
    if (yoke_resampling_stretch(&plan->across) > YOKE_CROP_STRETCH) return false;
    if (yoke_resampling_stretch(&plan->down) > YOKE_CROP_STRETCH) return false;
    crop->across = plan->across;
    crop->down = plan->down;
    crop->width = read_by(&plan->across, &crop->left);
    crop->height = read_by(&plan->down, &crop->top);
    return yoke_crop_bytes(crop, 3) <= 3 * sizeof(float) * (size_t)size * (size_t)size;
}

/* Lines of a crop. */
typedef struct crop_lines {
    const yoke_crop *crop;
    int left, top; /* of the crop in the decoded image */
    uint8_t *pixels;
} crop_lines;

static void take_planes(void *context, int y, const uint8_t *rgb) {
    const crop_lines *lines = context;
    size_t width = (size_t)lines->crop->width, plane = width * (size_t)lines->crop->height;
    if (y < lines->top || y >= lines->top + lines->crop->height) return;
    uint8_t *red = lines->pixels + width * (size_t)(y - lines->top);
    uint8_t *green = red + plane, *blue = green + plane;
    rgb += 3 * (size_t)lines->left;
    for (size_t x = 0; x < width; x++) {
        red[x] = rgb[3 * x];
        green[x] = rgb[3 * x + 1];
        blue[x] = rgb[3 * x + 2];
    }
}

yoke_status yoke_image_cut(const yoke_image *image, const yoke_image_view *view, int size,
                           bool scaled, yoke_crop *crop, uint8_t *pixels) {
    reading plan = read_view(image, view, size, scaled);
    if (!fits(&plan, size, crop)) {
        crop->width = crop->height = size;
        crop->left = crop->top = 0;
        crop->across = crop->down = (yoke_resampling_span){0, size, size, size, 0, size};
        return yoke_image_render(image, view, size, scaled, pixels);
    }
    crop_lines lines = {crop, plan.left + crop->left, plan.top + crop->top, pixels};
    /* Reads as far as the host would, so that the same files count as damaged. */
    yoke_image_part part = {plan.denominator, plan.top, plan.top + plan.down.inputs, take_planes,
                            &lines};
    return yoke_image_decode(image, &part);
}
