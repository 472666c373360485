/* SPDX-License-Identifier: Apache-2.0 */
/* A file of an image: refused, or decoded in whole and in part, within limits of memory and
 * processor time. */
#include "data/images.h"
#include "fuzz/fuzz.h"

#define SIDE 12

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    uint8_t pixels[3 * SIDE * SIDE];
    yoke_image image = {.name = "fuzzed", .data = data, .bytes = size};
    yoke_augmentation augmentation = {.seed = size};
    fuzz_cost before = fuzz_cost_now();
    if (yoke_image_open(&image) != YOKE_OK) return 0;
    yoke_image_view whole = yoke_image_center(image.width, image.height, SIDE + 2, SIDE);
    yoke_image_view part = yoke_image_random(image.width, image.height, SIDE, &augmentation, 0);
    (void)yoke_image_render(&image, &whole, SIDE, false, pixels);
    (void)yoke_image_render(&image, &part, SIDE, true, pixels);
    fuzz_cost_check(&before, (fuzz_cost){.mb = 640, .s = 30});
    return 0;
}
