/* SPDX-License-Identifier: Apache-2.0 */
/* One photograph as a row, outside any dataset: for predictions. */
#include <stdlib.h>

#include "data/images.h"
#include "device/device.h"

#define FILE_LIMIT ((size_t)256 << 20)

static yoke_status check_options(const yoke_image_options *options) {
    const yoke_shape *shape = &options->shape;
    bool colours = shape->channels == 1 || shape->channels == 3;
    if (!colours || shape->height != shape->width || shape->height < 1 || shape->height > 4096)
        return FAIL(
            YOKE_ERROR_ARGUMENT,
            "a photograph as %dx%dx%d: 1 or 3 channels of N x N pixels are possible, N 1 to "
            "4096",
            shape->channels, shape->height, shape->width);
    for (int i = 0; i < shape->channels; i++)
        if (!(options->std[i] > 0))
            return FAIL(YOKE_ERROR_ARGUMENT, "std[%d] is %g: it must be above 0", i,
                        (double)options->std[i]);
    if (options->resize == 0 || options->resize >= shape->height) return YOKE_OK;
    return FAIL(YOKE_ERROR_ARGUMENT,
                "resize is %d: it must be 0, or at least the %d pixels of a row", options->resize,
                shape->height);
}

static yoke_status render(const char *path, const yoke_image_options *options, uint8_t *pixels) {
    yoke_image image = {.name = path};
    unsigned char *data = NULL;
    int size = options->shape.height, resize = options->resize > 0 ? options->resize : size;
    TRY(yoke_file_read_regular(path, FILE_LIMIT, &data, &image.bytes));
    image.data = data;
    yoke_status status = yoke_image_open(&image);
    if (status == YOKE_OK) {
        yoke_image_view view = yoke_image_center(image.width, image.height, resize, size);
        status = yoke_image_render(&image, &view, size, !options->exact, pixels);
    }
    yoke_free(data);
    return status;
}

static void normalize(const yoke_image_options *options, const uint8_t *pixels, float *inputs) {
    size_t plane = (size_t)options->shape.height * (size_t)options->shape.width;
    for (int channel = 0; channel < options->shape.channels; channel++) {
        yoke_scaling scale = {options->mean[channel], options->std[channel]};
        for (size_t i = 0; i < plane; i++)
            inputs[(size_t)channel * plane + i] =
                yoke_decode_pixel(pixels[(size_t)channel * plane + i], scale);
    }
}

yoke_status yoke_image_read(const char *path, const yoke_image_options *options, float *inputs) {
    yoke_image_options own;
    TRY(yoke_pointer_check(path, "path"));
    TRY(yoke_pointer_check(inputs, "inputs"));
    TRY(yoke_options_load(&own, sizeof own, options, "yoke_image_options"));
    TRY(check_options(&own));
    size_t plane = (size_t)own.shape.height * (size_t)own.shape.width;
    uint8_t *pixels = yoke_malloc(3 * plane);
    if (pixels == NULL) return FAIL_MEMORY(3 * plane, "a photograph");
    yoke_status status = render(path, &own, pixels);
    if (status == YOKE_OK && own.shape.channels == 1) {
        /* Pillow's convert("L"). */
        for (size_t i = 0; i < plane; i++)
            pixels[i] = (uint8_t)((19595u * pixels[i] + 38470u * pixels[plane + i] +
                                   7471u * pixels[2 * plane + i] + 0x8000u) >>
                                  16);
    }
    if (status == YOKE_OK) normalize(&own, pixels, inputs);
    yoke_free(pixels);
    return status;
}
