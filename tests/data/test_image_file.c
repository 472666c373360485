/* SPDX-License-Identifier: Apache-2.0 */
/* One photograph as a row: options that cannot be are refused by name, and rows are finite. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "yoke/yoke.h"

#define PICTURE YOKE_SOURCE_DIR "/tests/fixtures/images/color.png"
#define SIDE 8

static yoke_image_options usual(void) {
    return (yoke_image_options){.struct_size = sizeof(yoke_image_options),
                                .shape = {.channels = 3, .height = SIDE, .width = SIDE},
                                .mean = {0.5f, 0.5f, 0.5f},
                                .std = {0.25f, 0.25f, 0.25f}};
}

static void a_row_has_the_scale_of_mean_and_std(void **state) {
    (void)state;
    yoke_image_options options = usual(), plain = usual();
    float row[3 * SIDE * SIDE], pixels[3 * SIDE * SIDE];
    for (int i = 0; i < 3; i++) {
        plain.mean[i] = 0;
        plain.std[i] = 1;
    }
    assert_int_equal(yoke_image_read(PICTURE, &options, row), YOKE_OK);
    assert_int_equal(yoke_image_read(PICTURE, &plain, pixels), YOKE_OK);
    for (int i = 0; i < 3 * SIDE * SIDE; i++) {
        assert_true(pixels[i] >= 0 && pixels[i] <= 1);
        assert_float_equal(row[i], (pixels[i] - 0.5f) / 0.25f, 1e-6f);
    }
}

static void options_that_cannot_be_are_refused_by_name(void **state) {
    (void)state;
    yoke_image_options wrong[] = {usual(), usual(), usual(), usual()};
    static const char *const words[] = {"2x8x8", "resize is 4", "std[1] is 0", "std[2] is nan"};
    float row[3 * SIDE * SIDE];
    wrong[0].shape.channels = 2;
    wrong[1].resize = SIDE / 2;
    wrong[2].std[1] = 0;
    wrong[3].std[2] = NAN;
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        assert_int_equal(yoke_image_read(PICTURE, &wrong[i], row), YOKE_ERROR_ARGUMENT);
        assert_non_null(strstr(yoke_last_error(), words[i]));
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_row_has_the_scale_of_mean_and_std),
        cmocka_unit_test(options_that_cannot_be_are_refused_by_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
