/* SPDX-License-Identifier: Apache-2.0 */
/* Changes of colour: torchvision's bytes, random order and factors, and which rows have colours. */
#include "data_folder.h"

#include "data/data.h"
#include "fixtures/fixture.h"

#define LARGEST 1024 /* bytes of the fixture's image */

static size_t read_hex(const json_t *object, const char *key, uint8_t *bytes) {
    const char *hex = json_string_value(json_object_get(object, key));
    size_t count = strlen(hex) / 2;
    assert_in_range(count, 3, LARGEST);
    for (size_t i = 0; i < count; i++) {
        unsigned byte;
        assert_int_equal(sscanf(hex + 2 * i, "%2x", &byte), 1);
        bytes[i] = (uint8_t)byte;
    }
    return count;
}

static yoke_color_property property_of(const char *name) {
    static const char *const names[] = {"brightness", "contrast", "saturation", "hue"};
    int i = 0;
    while (strcmp(names[i], name) != 0)
        assert_in_range(++i, 0, 3);
    return (yoke_color_property)i;
}

static void changes_are_torchvisions_bit_for_bit(void **state) {
    (void)state;
    json_t *fixture = read_fixture("color"), *test_case;
    uint8_t image[LARGEST], changed[LARGEST], wanted[LARGEST];
    size_t index, count = read_hex(fixture, "pixels", image);
    json_array_foreach(json_object_get(fixture, "cases"), index, test_case) {
        const char *name = json_string_value(json_object_get(test_case, "change"));
        assert_int_equal(read_hex(test_case, "pixels", wanted), count);
        memcpy(changed, image, count);
        yoke_color_adjust(changed, count / 3, property_of(name), real(test_case, "factor"));
        for (size_t i = 0; i < count; i++)
            if (changed[i] != wanted[i])
                fail_msg("%s %g: value %zu is %d, torchvision has %d", name,
                         real(test_case, "factor"), i, changed[i], wanted[i]);
    }
    assert_int_equal(index, 21);
    json_decref(fixture);
}

#define SIDE 6
#define PIXELS (SIDE * SIDE)
#define VALUES (3 * PIXELS)
#define ROWS 400

static uint8_t pixels[ROWS * VALUES];
static int32_t labels[ROWS];

/* Every row is the same image, so that only the random numbers differ. */
static yoke_dataset *open_rows(int channels) {
    for (size_t i = 0; i < sizeof pixels; i++)
        pixels[i] = (uint8_t)(40 + i % VALUES * 37 % 150);
    yoke_arrays arrays = {.struct_size = sizeof arrays,
                          .rows = ROWS,
                          .shape = {channels, SIDE, SIDE, false, false},
                          .pixels = pixels,
                          .classes = 2,
                          .labels = labels};
    yoke_dataset *dataset = NULL;
    must(yoke_dataset_from_arrays(&dataset, &arrays));
    return dataset;
}

/* The brightness that a row was multiplied by, from its largest change. */
static double factor_of(const uint8_t *changed) {
    uint64_t before = 0, after = 0;
    for (size_t i = 0; i < VALUES; i++)
        before += pixels[i], after += changed[i];
    return (double)after / (double)before;
}

static void factors_are_uniform_and_belong_to_seed_epoch_and_row(void **state) {
    (void)state;
    yoke_dataset_close(open_rows(3));
    yoke_augmentation bright = {.color_jitter = {.brightness = 0.3}, .seed = 5, .epoch = 1};
    yoke_augmentation other = bright;
    other.epoch = 2;
    int below = 0, same = 0;
    for (size_t row = 0; row < ROWS; row++) {
        uint8_t first[VALUES], second[VALUES];
        memcpy(first, pixels, VALUES);
        memcpy(second, pixels, VALUES);
        yoke_color_jitter_row(first, PIXELS, &bright, row);
        yoke_color_jitter_row(second, PIXELS, &other, row);
        double factor = factor_of(first);
        assert_true(factor > 0.69 && factor < 1.31);
        below += factor < 1;
        same += memcmp(first, second, VALUES) == 0;
    }
    assert_in_range(below, ROWS / 2 - 50, ROWS / 2 + 50);
    assert_in_range(same, 0, 20);
}

/* Contrast and brightness do not commute: with both, some rows get the one order and some the
 * other. */
static void the_order_is_random(void **state) {
    (void)state;
    yoke_dataset_close(open_rows(3));
    int orders[2] = {0, 0};
    for (size_t row = 0; row < ROWS; row++) {
        yoke_augmentation both = {.color_jitter = {.brightness = 0.9, .contrast = 0.9}};
        yoke_augmentation only[2] = {{.color_jitter = {.brightness = 0.9}},
                                     {.color_jitter = {.contrast = 0.9}}};
        uint8_t found[VALUES], wanted[2][VALUES];
        memcpy(found, pixels, VALUES);
        yoke_color_jitter_row(found, PIXELS, &both, row);
        for (int first = 0; first < 2; first++) {
            memcpy(wanted[first], pixels, VALUES);
            yoke_color_jitter_row(wanted[first], PIXELS, &only[first], row);
            yoke_color_jitter_row(wanted[first], PIXELS, &only[1 - first], row);
        }
        bool differ = memcmp(wanted[0], wanted[1], VALUES) != 0;
        int order = memcmp(found, wanted[0], VALUES) != 0;
        assert_memory_equal(found, wanted[order], VALUES);
        if (differ) orders[order]++;
    }
    assert_true(orders[0] > ROWS / 4 && orders[1] > ROWS / 4);
}

static void the_loader_changes_stored_pixels_and_keeps_them(void **state) {
    (void)state;
    yoke_dataset *dataset = open_rows(3);
    yoke_loader_options options = {.struct_size = sizeof options,
                                   .batch = ROWS,
                                   .raw = true,
                                   .seed = 9,
                                   .color_jitter = {0.4, 0.4, 0.4, 0.1}};
    yoke_augmentation augmentation = {.color_jitter = options.color_jitter, .seed = 9};
    yoke_loader *loader = NULL;
    yoke_batch batch = {.struct_size = sizeof batch};
    must(yoke_loader_create(&loader, dataset, &options));
    must(yoke_loader_begin(loader, 0));
    must(yoke_loader_next(loader, &batch, NULL));
    for (size_t row = 0; row < ROWS; row++) {
        uint8_t wanted[VALUES];
        memcpy(wanted, pixels + row * VALUES, VALUES);
        yoke_color_jitter_row(wanted, PIXELS, &augmentation, row);
        for (size_t i = 0; i < VALUES; i++)
            assert_true(batch.inputs[row * VALUES + i] == (float)wanted[i] / 255.0f);
    }
    for (size_t i = 0; i < sizeof pixels; i++)
        assert_int_equal(pixels[i], 40 + i % VALUES * 37 % 150);
    yoke_loader_destroy(loader);
    yoke_dataset_close(dataset);
}

static void refuse(const yoke_dataset *dataset, yoke_loader_options options, const char *words) {
    yoke_loader *loader = NULL;
    options.struct_size = sizeof options;
    options.batch = 2;
    assert_int_equal(yoke_loader_create(&loader, dataset, &options), YOKE_ERROR_ARGUMENT);
    if (strstr(yoke_last_error(), words) == NULL) fail_msg("%s", yoke_last_error());
}

static void what_cannot_be_done_is_refused(void **state) {
    (void)state;
    yoke_dataset *colored = open_rows(3), *gray = open_rows(1);
    refuse(gray, (yoke_loader_options){.color_jitter = {.hue = 0.1}}, "in three channels");
    refuse(colored, (yoke_loader_options){.color_jitter = {.hue = 0.6}}, "color jitter 0.6");
    refuse(colored, (yoke_loader_options){.color_jitter = {.contrast = -1}}, "color jitter -1");
    refuse(colored, (yoke_loader_options){.color_jitter = {.brightness = NAN}}, "color jitter nan");
    refuse(colored, (yoke_loader_options){.erasing = 1.5}, "erasing with probability 1.5");
    refuse(colored, (yoke_loader_options){.erasing = 0.5, .augment = YOKE_AUGMENT_CROP_FLIP_CUTOUT},
           "either cutout or erasing");
    yoke_dataset_close(colored);
    yoke_dataset_close(gray);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(changes_are_torchvisions_bit_for_bit),
        cmocka_unit_test(factors_are_uniform_and_belong_to_seed_epoch_and_row),
        cmocka_unit_test(the_order_is_random),
        cmocka_unit_test(the_loader_changes_stored_pixels_and_keeps_them),
        cmocka_unit_test(what_cannot_be_done_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
