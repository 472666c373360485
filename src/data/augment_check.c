/* SPDX-License-Identifier: Apache-2.0 */
/* What augmentation is for, and which numbers it takes. */
#include <math.h>

#include "data/data.h"

static yoke_status check_color_jitter(const yoke_dataset *dataset,
                                      const yoke_color_jitter *jitter) {
    const double strengths[] = {jitter->brightness, jitter->contrast, jitter->saturation,
                                jitter->hue};
    for (int i = 0; i < 4; i++) {
        double most = i == YOKE_COLOR_HUE ? 0.5 : 10;
        if (!(strengths[i] >= 0 && strengths[i] <= most))
            return FAIL(YOKE_ERROR_ARGUMENT,
                        "color jitter %g: brightness, contrast and saturation are 0 to 10, hue 0 "
                        "to 0.5",
                        strengths[i]);
    }
    bool colored = (dataset->bytes || dataset->images) && dataset->shape.channels == 3;
    if (!colored && yoke_color_jitter_on(jitter))
        return FAIL(YOKE_ERROR_ARGUMENT,
                    "color jitter is for images of bytes in three channels, which dataset '%s' "
                    "has not",
                    dataset->name);
    return YOKE_OK;
}

static yoke_status check_mixup(const yoke_dataset *dataset, double alpha) {
    if (!(alpha >= 0) || isinf(alpha))
        return FAIL(YOKE_ERROR_ARGUMENT, "mixup with alpha %g: must be finite and at least 0",
                    alpha);
    if (alpha == 0) return YOKE_OK;
    if (dataset->source.read_batch || dataset->stream)
        return FAIL(YOKE_ERROR_ARGUMENT, "mixup is not for %s",
                    dataset->stream ? "a row stream, whose rows have no number to draw a share by"
                                    : "rows of read_batch: set read");
    if (dataset->more_count > 0)
        return FAIL(YOKE_ERROR_ARGUMENT,
                    "mixup is for rows with one input; those of dataset '%s' have %d: leave mixup "
                    "out",
                    dataset->name, dataset->more_count + 1);
    if (dataset->classes == 0 && dataset->target_count == 0)
        return FAIL(YOKE_ERROR_ARGUMENT,
                    "mixup is for rows with labels or targets; dataset '%s' has neither: leave "
                    "mixup out",
                    dataset->name);
    if (dataset->text || yoke_dataset_labels(dataset) > 1)
        return FAIL(YOKE_ERROR_ARGUMENT,
                    "mixup is for rows with one label or with targets; dataset '%s' has %zu labels "
                    "a row: leave mixup out",
                    dataset->name, yoke_dataset_labels(dataset));
    return YOKE_OK;
}

static yoke_status check_crop_flip(const yoke_dataset *dataset,
                                   const yoke_loader_options *options) {
    const yoke_crop_flip *how = &options->crop_flip;
    const yoke_shape *shape = &dataset->shape;
    bool crops = options->augment == YOKE_AUGMENT_CROP_FLIP ||
                 options->augment == YOKE_AUGMENT_CROP_FLIP_CUTOUT;
    int padding = how->padding != 0 ? how->padding : YOKE_CROP_PADDING;
    if ((how->padding != 0 || how->reflect) && !crops)
        return FAIL(YOKE_ERROR_ARGUMENT,
                    "crop_flip pads images for a random crop: set augment to one that crops");
    if (how->alternate && options->augment == YOKE_AUGMENT_NONE)
        return FAIL(YOKE_ERROR_ARGUMENT,
                    "crop_flip mirrors images in turn: set augment to one that mirrors");
    if (crops && (padding < 0 || (how->reflect && padding >= shape->height) ||
                  (how->reflect && padding >= shape->width) || padding > YOKE_CROP_PADDING_LIMIT))
        return FAIL(YOKE_ERROR_ARGUMENT,
                    "a padding of %d for images of %d x %d: it must be 0 to %d, and below both "
                    "sides to reflect them",
                    padding, shape->height, shape->width, YOKE_CROP_PADDING_LIMIT);
    return YOKE_OK;
}

yoke_status yoke_augment_check(const yoke_dataset *dataset, const yoke_loader_options *options) {
    if (options->augment < YOKE_AUGMENT_NONE || options->augment > YOKE_AUGMENT_RESIZED_CROP_FLIP)
        return FAIL(YOKE_ERROR_ARGUMENT, "augmentation %d is unknown", (int)options->augment);
    if (options->augment == YOKE_AUGMENT_RESIZED_CROP_FLIP && !dataset->images)
        return FAIL(YOKE_ERROR_ARGUMENT,
                    "YOKE_AUGMENT_RESIZED_CROP_FLIP is for images:DIR; dataset '%s' has rows of "
                    "one size: use YOKE_AUGMENT_CROP_FLIP",
                    dataset->name);
    if (!(options->erasing >= 0 && options->erasing <= 1))
        return FAIL(YOKE_ERROR_ARGUMENT, "erasing with probability %g: must be 0 to 1",
                    options->erasing);
    if (options->erasing > 0 && options->augment == YOKE_AUGMENT_CROP_FLIP_CUTOUT)
        return FAIL(YOKE_ERROR_ARGUMENT, "an image has one box to fill: either cutout or erasing");
    bool changes = options->augment != YOKE_AUGMENT_NONE || options->erasing > 0;
    if (changes && dataset->source.read_batch)
        return FAIL(YOKE_ERROR_ARGUMENT, "augmentation is not for rows of read_batch: set read");
    if (changes && dataset->stream)
        return FAIL(YOKE_ERROR_ARGUMENT,
                    "augmentation is not for a row stream: `next` may change its images itself");
    if (changes && (dataset->shape.flat || dataset->classes == 0))
        return FAIL(YOKE_ERROR_ARGUMENT,
                    "augmentation is for images with labels; dataset '%s' has "
                    "%s: use YOKE_AUGMENT_NONE",
                    dataset->name, dataset->shape.flat ? "flat rows" : "regression targets");
    TRY(check_crop_flip(dataset, options));
    TRY(check_mixup(dataset, options->mixup));
    return check_color_jitter(dataset, &options->color_jitter);
}
