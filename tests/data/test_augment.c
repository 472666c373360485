/* SPDX-License-Identifier: Apache-2.0 */
/* What the model reads of a row: torchvision's crop, flip and normalisation, and cutout. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "data/data.h"
#include "device/device.h"

#define CHANNELS 3
#define HEIGHT 12
#define WIDTH 10
#define PLANE (HEIGHT * WIDTH)
#define VALUES (CHANNELS * PLANE)
#define ROWS 2000

static uint8_t bytes[ROWS * VALUES];
static float floats[ROWS * VALUES];

/* No two pixels of a row are alike enough to be mistaken for each other; none is black. */
static void augment_row(const yoke_dataset *dataset, size_t row,
                        const yoke_augmentation *augmentation, float *output) {
    yoke_stored_row stored = yoke_dataset_row(dataset, row);
    yoke_augment_row(dataset, row, &stored, augmentation, output);
}

static yoke_dataset make_dataset(void) {
    for (size_t i = 0; i < ROWS * VALUES; i++) {
        uint32_t mixed = (uint32_t)i * 2654435761u;
        bytes[i] = (uint8_t)(1 + (mixed >> 24) % 255);
        floats[i] = (float)bytes[i] / 255.0f;
    }
    return (yoke_dataset){.rows = ROWS,
                          .shape = {CHANNELS, HEIGHT, WIDTH, false},
                          .classes = 10,
                          .mean = {0.5f, 0.4f, 0.3f},
                          .std = {0.25f, 0.2f, 0.3f},
                          .bytes = bytes};
}

static float normalised(const yoke_dataset *dataset, size_t channel, uint8_t byte) {
    return ((float)byte / 255.0f - dataset->mean[channel]) / dataset->std[channel];
}

static void without_augmentation_rows_are_only_normalised(void **state) {
    (void)state;
    yoke_dataset dataset = make_dataset();
    yoke_augmentation augmentation = {.kind = YOKE_AUGMENT_NONE, .seed = 3, .epoch = 7};
    float output[VALUES];
    augment_row(&dataset, 5, &augmentation, output);
    for (size_t i = 0; i < VALUES; i++)
        assert_true(output[i] == normalised(&dataset, i / PLANE, bytes[5 * VALUES + i]));
    augmentation.raw = true;
    augment_row(&dataset, 5, &augmentation, output);
    for (size_t i = 0; i < VALUES; i++)
        assert_true(output[i] == (float)bytes[5 * VALUES + i] / 255.0f);
}

/* RandomCrop(padding=4) of the raw picture, then the flip, then Normalize: pixel by pixel. */
static bool shows(const yoke_dataset *dataset, size_t row, int placement, const float *output) {
    int down = placement / 2 / 9 - 4, right = placement / 2 % 9 - 4;
    for (int i = 0; i < VALUES; i++) {
        int channel = i / PLANE, y = i / WIDTH % HEIGHT, x = i % WIDTH;
        int from_y = y + down, from_x = (placement % 2 ? WIDTH - 1 - x : x) + right;
        bool outside = from_y < 0 || from_y >= HEIGHT || from_x < 0 || from_x >= WIDTH;
        size_t from = row * VALUES + (size_t)(channel * PLANE + from_y * WIDTH + from_x);
        uint8_t pixel = outside ? 0 : bytes[from];
        if (output[i] != normalised(dataset, (size_t)channel, pixel)) return false;
    }
    return true;
}

static void crop_and_flip_reach_every_placement_and_nothing_else(void **state) {
    (void)state;
    yoke_dataset dataset = make_dataset();
    yoke_augmentation augmentation = {.kind = YOKE_AUGMENT_CROP_FLIP, .seed = 1};
    int counts[162] = {0}, flips = 0;
    for (size_t row = 0; row < ROWS; row++) {
        float output[VALUES];
        int placement = 0;
        augment_row(&dataset, row, &augmentation, output);
        while (placement < 162 && !shows(&dataset, row, placement, output))
            placement++;
        assert_in_range(placement, 0, 161);
        counts[placement]++;
        flips += placement % 2;
    }
    /* 2000 draws of 162: 12.3 expected each, none missing; flips within five standard deviations.
     */
    for (int i = 0; i < 162; i++)
        assert_in_range(counts[i], 1, 40);
    assert_in_range(flips, ROWS / 2 - 112, ROWS / 2 + 112);
}

/* The rectangle where two outputs differ: top, bottom, left, right (ends excluded). */
static void changed_box(const float *a, const float *b, int box[4]) {
    box[0] = HEIGHT, box[1] = 0, box[2] = WIDTH, box[3] = 0;
    for (int i = 0; i < PLANE; i++) {
        if (a[i] == b[i]) continue;
        int y = i / WIDTH, x = i % WIDTH;
        if (y < box[0]) box[0] = y;
        if (y >= box[1]) box[1] = y + 1;
        if (x < box[2]) box[2] = x;
        if (x >= box[3]) box[3] = x + 1;
    }
}

/* torch.nn.functional.pad(mode="reflect") of a line of three pixels by two: 2 1 [0 1 2] 1 0. */
static void reflection_leaves_the_edge_out(void **state) {
    (void)state;
    static const int padded[] = {2, 1, 0, 1, 2, 1, 0};
    for (int at = -2; at < 5; at++)
        assert_int_equal(yoke_decode_source(at, 3, true), padded[at + 2]);
    assert_int_equal(yoke_decode_source(-2, 3, false), -2);
    assert_int_equal(yoke_decode_source(4, 3, false), 4);
}

/* Pads the raw picture by two as torch does, crops, then flips. */
static bool shows_reflected(const yoke_dataset *dataset, size_t row, int placement,
                            const float *output) {
    int down = placement / 2 / 5, right = placement / 2 % 5;
    for (int i = 0; i < VALUES; i++) {
        int y = i / WIDTH % HEIGHT + down - 2;
        int x = (placement % 2 ? WIDTH - 1 - i % WIDTH : i % WIDTH) + right - 2;
        int line = abs(y) < HEIGHT ? abs(y) : 2 * HEIGHT - 2 - y;
        int column = abs(x) < WIDTH ? abs(x) : 2 * WIDTH - 2 - x;
        size_t from = row * VALUES + (size_t)(i / PLANE * PLANE + line * WIDTH + column);
        if (output[i] != normalised(dataset, (size_t)(i / PLANE), bytes[from])) return false;
    }
    return true;
}

static void a_reflected_crop_reaches_every_placement_and_no_black(void **state) {
    (void)state;
    yoke_dataset dataset = make_dataset();
    yoke_augmentation augmentation = {
        .kind = YOKE_AUGMENT_CROP_FLIP, .seed = 1, .crop_flip = {.padding = 2, .reflect = true}};
    int counts[50] = {0};
    for (size_t row = 0; row < ROWS; row++) {
        float output[VALUES], of_floats[VALUES];
        int placement = 0;
        augment_row(&dataset, row, &augmentation, output);
        while (placement < 50 && !shows_reflected(&dataset, row, placement, output))
            placement++;
        assert_in_range(placement, 0, 49);
        counts[placement]++;
        yoke_stored_row stored = {.floats = floats + row * VALUES};
        yoke_augment_row(&dataset, row, &stored, &augmentation, of_floats);
        assert_memory_equal(of_floats, output, sizeof output);
    }
    for (int i = 0; i < 50; i++) /* 40 expected each */
        assert_in_range(counts[i], 12, 75);
}

/* Half of the rows come mirrored in even epochs, the others in odd ones. */
static void mirrored_in_turn_a_row_is_mirrored_in_every_other_epoch(void **state) {
    (void)state;
    yoke_dataset dataset = make_dataset();
    yoke_augmentation augmentation = {
        .kind = YOKE_AUGMENT_CROP_FLIP, .seed = 5, .crop_flip = {.alternate = true}};
    yoke_augmentation random = {.kind = YOKE_AUGMENT_CROP_FLIP, .seed = 5};
    int first = 0, moved = 0;
    for (size_t row = 0; row < ROWS; row++) {
        augmentation.epoch = random.epoch = 0;
        yoke_placement begin = yoke_augment_place(&augmentation, &dataset.shape, row);
        yoke_placement plain = yoke_augment_place(&random, &dataset.shape, row);
        assert_int_equal(begin.flip, plain.flip);
        first += begin.flip;
        for (uint64_t epoch = 1; epoch < 6; epoch++) {
            augmentation.epoch = random.epoch = epoch;
            yoke_placement placed = yoke_augment_place(&augmentation, &dataset.shape, row);
            plain = yoke_augment_place(&random, &dataset.shape, row);
            assert_int_equal(placed.flip, begin.flip != (epoch % 2 == 1));
            assert_int_equal(placed.down, plain.down);
            moved += placed.down != begin.down;
        }
    }
    assert_in_range(first, ROWS / 2 - 112, ROWS / 2 + 112);
    assert_in_range(moved, 4 * ROWS, 5 * ROWS); /* crops are new in each epoch */
}

static void cutout_sets_one_square_to_the_mean_and_keeps_the_crop(void **state) {
    (void)state;
    yoke_dataset dataset = make_dataset();
    yoke_augmentation crop = {.kind = YOKE_AUGMENT_CROP_FLIP, .seed = 4, .epoch = 2};
    yoke_augmentation cutout = crop;
    cutout.kind = YOKE_AUGMENT_CROP_FLIP_CUTOUT;
    int whole = 0, reaching_out = 0;
    for (size_t row = 0; row < 500; row++) {
        float plain[VALUES], cut[VALUES];
        int box[4];
        augment_row(&dataset, row, &crop, plain);
        augment_row(&dataset, row, &cutout, cut);
        changed_box(plain, cut, box);
        int height = box[1] - box[0], width = box[3] - box[2];
        assert_in_range(height, 4, 8);
        assert_in_range(width, 4, 8);
        assert_true(height == 8 || box[0] == 0 || box[1] == HEIGHT);
        assert_true(width == 8 || box[2] == 0 || box[3] == WIDTH);
        for (int i = 0; i < VALUES; i++) {
            int y = i / WIDTH % HEIGHT, x = i % WIDTH;
            bool inside = y >= box[0] && y < box[1] && x >= box[2] && x < box[3];
            assert_true(cut[i] == (inside ? 0 : plain[i]));
        }
        whole += height == 8 && width == 8;
        reaching_out += height < 8 || width < 8;
    }
    assert_true(whole > 50 && reaching_out > 50);
}

/* torchvision's RandomErasing: half of the rows, boxes of 2 to 33 % of the image with sides in a
 * ratio of 0.3 to 3.3, rounded, and not as long as the image's. */
static void erasing_sets_a_box_to_the_mean_in_its_share_of_rows(void **state) {
    (void)state;
    yoke_dataset dataset = make_dataset();
    yoke_augmentation plain = {.kind = YOKE_AUGMENT_CROP_FLIP, .seed = 4, .epoch = 2};
    yoke_augmentation erasing = plain;
    erasing.erasing = 0.5;
    int erased = 0, widest = 0, smallest = PLANE, largest = 0;
    for (size_t row = 0; row < ROWS; row++) {
        float kept[VALUES], cut[VALUES];
        int box[4];
        augment_row(&dataset, row, &plain, kept);
        augment_row(&dataset, row, &erasing, cut);
        changed_box(kept, cut, box);
        if (box[1] == 0) {
            assert_memory_equal(kept, cut, sizeof kept);
            continue;
        }
        int height = box[1] - box[0], width = box[3] - box[2], area = height * width;
        erased++;
        assert_in_range(height, 1, HEIGHT - 1);
        assert_in_range(width, 1, WIDTH - 1);
        for (int i = 0; i < VALUES; i++) {
            int y = i / WIDTH % HEIGHT, x = i % WIDTH;
            bool inside = y >= box[0] && y < box[1] && x >= box[2] && x < box[3];
            assert_true(cut[i] == (inside ? 0 : kept[i]));
        }
        widest = width > widest ? width : widest;
        smallest = area < smallest ? area : smallest;
        largest = area > largest ? area : largest;
    }
    assert_in_range(erased, ROWS / 2 - 112, ROWS / 2 + 112);
    assert_int_equal(widest, WIDTH - 1);
    assert_in_range(smallest, 1, 4);
    assert_in_range(largest, 36, 48);
    erasing.erasing = 0;
    float kept[VALUES], cut[VALUES];
    augment_row(&dataset, 3, &plain, kept);
    augment_row(&dataset, 3, &erasing, cut);
    assert_memory_equal(kept, cut, sizeof kept);
}

static void raw_cutout_shows_the_mean_colour(void **state) {
    (void)state;
    yoke_dataset dataset = make_dataset();
    yoke_augmentation augmentation = {.kind = YOKE_AUGMENT_CROP_FLIP_CUTOUT, .raw = true};
    float output[VALUES];
    augment_row(&dataset, 0, &augmentation, output);
    int mean = 0;
    for (size_t i = 0; i < PLANE; i++)
        mean += output[PLANE + i] == dataset.mean[1];
    assert_in_range(mean, 16, 64);
}

static void the_key_is_seed_epoch_and_row(void **state) {
    (void)state;
    yoke_dataset dataset = make_dataset();
    int same_seed = 0, same_epoch = 0;
    for (size_t row = 0; row < 200; row++) {
        float first[VALUES], again[VALUES];
        yoke_augmentation augmentation = {.kind = YOKE_AUGMENT_CROP_FLIP, .seed = 1, .epoch = 1};
        augment_row(&dataset, row, &augmentation, first);
        augment_row(&dataset, row, &augmentation, again);
        assert_memory_equal(first, again, sizeof first);
        augmentation.seed = 2;
        augment_row(&dataset, row, &augmentation, again);
        same_seed += memcmp(first, again, sizeof first) == 0;
        augmentation.seed = 1, augmentation.epoch = 2;
        augment_row(&dataset, row, &augmentation, again);
        same_epoch += memcmp(first, again, sizeof first) == 0;
    }
    assert_in_range(same_seed, 0, 10);
    assert_in_range(same_epoch, 0, 10);
}

static void floats_and_rows_made_on_demand_are_treated_as_bytes_are(void **state) {
    (void)state;
    yoke_dataset stored = make_dataset(), real = stored, made = stored;
    real.bytes = NULL, real.floats = floats;
    made.bytes = NULL;
    yoke_augmentation augmentation = {.kind = YOKE_AUGMENT_CROP_FLIP_CUTOUT, .seed = 8};
    for (size_t row = 0; row < 100; row++) {
        float a[VALUES], b[VALUES], c[VALUES];
        augment_row(&stored, row, &augmentation, a);
        augment_row(&real, row, &augmentation, b);
        yoke_stored_row generated = {.floats = floats + row * VALUES};
        yoke_augment_row(&made, row, &generated, &augmentation, c);
        assert_memory_equal(a, b, sizeof a);
        assert_memory_equal(a, c, sizeof a);
    }
}

static void images_smaller_than_the_shift_survive_it(void **state) {
    (void)state;
    static const uint8_t dot[2] = {255, 255};
    yoke_dataset dataset = {.rows = 2,
                            .shape = {1, 1, 1, false},
                            .classes = 2,
                            .mean = {0.5f},
                            .std = {0.5f},
                            .bytes = dot};
    for (uint64_t epoch = 0; epoch < 500; epoch++) {
        yoke_augmentation augmentation = {.kind = YOKE_AUGMENT_CROP_FLIP, .epoch = epoch};
        float output[1];
        augment_row(&dataset, 1, &augmentation, output);
        assert_true(output[0] == -1.0f || output[0] == 1.0f);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(without_augmentation_rows_are_only_normalised),
        cmocka_unit_test(crop_and_flip_reach_every_placement_and_nothing_else),
        cmocka_unit_test(reflection_leaves_the_edge_out),
        cmocka_unit_test(a_reflected_crop_reaches_every_placement_and_no_black),
        cmocka_unit_test(mirrored_in_turn_a_row_is_mirrored_in_every_other_epoch),
        cmocka_unit_test(cutout_sets_one_square_to_the_mean_and_keeps_the_crop),
        cmocka_unit_test(erasing_sets_a_box_to_the_mean_in_its_share_of_rows),
        cmocka_unit_test(raw_cutout_shows_the_mean_colour),
        cmocka_unit_test(the_key_is_seed_epoch_and_row),
        cmocka_unit_test(floats_and_rows_made_on_demand_are_treated_as_bytes_are),
        cmocka_unit_test(images_smaller_than_the_shift_survive_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
