/* SPDX-License-Identifier: Apache-2.0 */
/* Mixup: torchvision's bits, shares from Beta(alpha, alpha) for each row, and the row before as the
 * partner, whatever threads and ranks load. */
#include "data/data.h"
#include "fixtures/fixture.h"

#include <stdlib.h>
#include <string.h>

#define ROWS 37
#define VALUES 12
#define DRAWS 20000

static float float_at(const json_t *object, const char *key, size_t index) {
    uint32_t bits =
        (uint32_t)json_integer_value(json_array_get(json_object_get(object, key), index));
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static void mixtures_are_torchvisions_bit_for_bit(void **state) {
    (void)state;
    json_t *fixture = read_fixture("mixup"), *given = json_object_get(fixture, "rows");
    size_t rows = json_array_size(json_object_get(given, "shares"));
    size_t values = json_array_size(json_object_get(given, "inputs")) / rows;
    assert_in_range(rows, 11, 11);
    assert_in_range(values, 6, 6);
    for (size_t row = 0; row < rows; row++) {
        float mixed[6], partner[6];
        for (size_t i = 0; i < values; i++) {
            mixed[i] = float_at(given, "inputs", row * values + i);
            partner[i] = float_at(given, "inputs", (row + rows - 1) % rows * values + i);
        }
        yoke_mixup_values(mixed, partner, values, float_at(given, "shares", row));
        for (size_t i = 0; i < values; i++) {
            float wanted = float_at(given, "mixed", row * values + i);
            if (memcmp(&mixed[i], &wanted, sizeof wanted) != 0)
                fail_msg("row %zu, value %zu: %.9g, torchvision has %.9g", row, i, (double)mixed[i],
                         (double)wanted);
        }
    }
    json_decref(fixture);
}

static int ascending(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* [DRAWS], in ascending order; the caller frees them. */
static double *draw_shares(double alpha, uint64_t epoch) {
    yoke_augmentation augmentation = {.mixup = alpha, .seed = 7, .epoch = epoch};
    double *shares = malloc(DRAWS * sizeof *shares);
    assert_non_null(shares);
    for (size_t row = 0; row < DRAWS; row++) {
        shares[row] = (double)yoke_mixup_share(&augmentation, row);
        assert_true(shares[row] >= 0 && shares[row] <= 1);
    }
    qsort(shares, DRAWS, sizeof *shares, ascending);
    return shares;
}

static double arcsine(double x) {
    return 2 / acos(-1) * asin(sqrt(x));
}

static double uniform(double x) {
    return x;
}

static double parabola(double x) {
    return x * x * (3 - 2 * x);
}

static double quintic(double x) {
    return x * x * x * (10 - 15 * x + 6 * x * x);
}

/* Kolmogorov and Smirnov's distance to the distributions that have a closed form; one sample in
 * 1000 of a true one is further away than 1.95 / sqrt(n). */
static void shares_are_distributed_as_beta(void **state) {
    (void)state;
    static const struct {
        double alpha, (*cumulated)(double x);
    } cases[] = {{0.5, arcsine}, {1, uniform}, {2, parabola}, {3, quintic}};
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        double *shares = draw_shares(cases[c].alpha, c), distance = 0;
        for (size_t i = 0; i < DRAWS; i++) {
            double expected = cases[c].cumulated(shares[i]);
            distance = fmax(distance, fabs(expected - (double)i / DRAWS));
            distance = fmax(distance, fabs(expected - (double)(i + 1) / DRAWS));
        }
        if (distance > 1.95 / sqrt(DRAWS))
            fail_msg("alpha %g: %g from its distribution", cases[c].alpha, distance);
        free(shares);
    }
}

/* E (x - 1/2)^2 = 1 / (4 (2a + 1)) and E (x - 1/2)^4 = 3 / (16 (2a + 1) (2a + 3)), within five
 * standard errors. */
static void shares_have_the_moments_of_beta(void **state) {
    (void)state;
    static const double alphas[] = {0.02, 0.2, 0.4, 8, 1000};
    for (size_t c = 0; c < sizeof alphas / sizeof *alphas; c++) {
        double a = alphas[c], *shares = draw_shares(a, 9), sums[3] = {0};
        for (size_t i = 0; i < DRAWS; i++) {
            double off = shares[i] - 0.5;
            sums[0] += off / DRAWS;
            sums[1] += off * off / DRAWS;
            sums[2] += off * off * off * off / DRAWS;
        }
        double second = 1 / (4 * (2 * a + 1)), fourth = 3 / (16 * (2 * a + 1) * (2 * a + 3));
        double eighth = fourth * 35 / (16 * (2 * a + 5) * (2 * a + 7));
        near(sums[0], 0, 5 * sqrt(second / DRAWS), 1, "mean");
        near(sums[1], second, 5 * sqrt((fourth - second * second) / DRAWS), 1, "variance");
        near(sums[2], fourth, 5 * sqrt((eighth - fourth * fourth) / DRAWS), 1, "fourth moment");
        free(shares);
    }
}

static void the_ends_of_the_random_words_give_shares(void **state) {
    (void)state;
    static const double alphas[] = {0.001, 0.2, 1, 1000};
    static const uint32_t ends[] = {0, 1, UINT32_MAX / 4 + 1, UINT32_MAX - 1, UINT32_MAX};
    for (int i = 0; i < 4 * 5 * 5; i++) {
        const uint32_t words[2] = {ends[i % 5], ends[i / 5 % 5]};
        float share = yoke_mixup_beta(words, alphas[i / 25]);
        if (!(share >= 0 && share <= 1) || (words[0] == UINT32_MAX && share != 0.5f))
            fail_msg("alpha %g, words %u and %u: %g", alphas[i / 25], words[0], words[1],
                     (double)share);
    }
}

static void shares_depend_on_seed_epoch_and_row_alone(void **state) {
    (void)state;
    yoke_augmentation one = {.mixup = 1, .seed = 3, .epoch = 2}, other = one;
    float share = yoke_mixup_share(&one, 5);
    other.kind = YOKE_AUGMENT_CROP_FLIP;
    assert_true(yoke_mixup_share(&other, 5) == share);
    assert_true(yoke_mixup_share(&one, 6) != share);
    other.epoch = 3;
    assert_true(yoke_mixup_share(&other, 5) != share);
    other = one;
    other.seed = 4;
    assert_true(yoke_mixup_share(&other, 5) != share);
}

/* Rows. */

static float inputs[ROWS * VALUES], targets[ROWS * 2];
static int32_t labels[ROWS];

static yoke_dataset *open_rows(bool classifies) {
    for (size_t i = 0; i < ROWS * VALUES; i++)
        inputs[i] = (float)(i * 37 % 101) / 7;
    for (size_t i = 0; i < ROWS; i++) {
        labels[i] = (int32_t)(i * 5 % 7);
        targets[2 * i] = (float)i / 3;
        targets[2 * i + 1] = -(float)i;
    }
    yoke_arrays arrays = {.struct_size = sizeof arrays,
                          .rows = ROWS,
                          .shape = {3, 2, 2, false},
                          .inputs = inputs,
                          .classes = classifies ? 7 : 0,
                          .labels = classifies ? labels : NULL,
                          .targets = classifies ? NULL : targets,
                          .target_count = classifies ? 0 : 2};
    yoke_dataset *dataset = NULL;
    must(yoke_dataset_from_arrays(&dataset, &arrays));
    return dataset;
}

static yoke_loader *open_loader(const yoke_dataset *dataset, yoke_loader_options options) {
    yoke_loader *loader = NULL;
    options.struct_size = sizeof options;
    options.seed = 11;
    must(yoke_loader_create(&loader, dataset, &options));
    must(yoke_loader_begin(loader, 4));
    return loader;
}

static yoke_batch next(yoke_loader *loader) {
    yoke_batch batch = {.struct_size = sizeof batch};
    must(yoke_loader_next(loader, &batch, NULL));
    return batch;
}

static void expect_mixed(const float *mixed, const float *row, const float *partner, size_t count,
                         float share) {
    float wanted[VALUES];
    assert_in_range(count, 1, VALUES);
    memcpy(wanted, row, count * sizeof *wanted);
    yoke_mixup_values(wanted, partner, count, share);
    assert_memory_equal(mixed, wanted, count * sizeof *wanted);
}

/* `part` of an epoch's batch whose rows are order[whole]. */
static void expect_part(const yoke_batch *part, int first, const int64_t *order, int whole) {
    const yoke_augmentation augmentation = {.mixup = 0.7, .seed = 11, .epoch = 4};
    for (int i = 0; i < part->rows; i++) {
        size_t row = (size_t)order[first + i];
        size_t partner = (size_t)order[(first + i + whole - 1) % whole];
        float share = yoke_mixup_share(&augmentation, row);
        expect_mixed(part->inputs + i * VALUES, inputs + row * VALUES, inputs + partner * VALUES,
                     VALUES, share);
        if (part->labels == NULL) {
            expect_mixed(part->targets + 2 * i, targets + 2 * row, targets + 2 * partner, 2, share);
            continue;
        }
        assert_int_equal(part->labels[i], labels[row]);
        assert_int_equal(part->mixes[i].label, labels[partner]);
        assert_true(part->mixes[i].share == share);
    }
}

/* Batches of 9 leave one of 1 row, of 10 one of 7: both have ranks without rows among 5. */
static void rows_mix_with_the_row_before_in_the_whole_batch(void **state) {
    (void)state;
    for (int way = 0; way < 16; way++) {
        int batch = way & 1 ? 9 : 10, world = way & 2 ? 5 : 1, threads = way & 4 ? 3 : 1;
        yoke_dataset *dataset = open_rows(way & 8);
        int64_t order[ROWS];
        yoke_sampler sampler = {.struct_size = sizeof sampler,
                                .rows = ROWS,
                                .world = 1,
                                .shuffle = true,
                                .seed = 11,
                                .epoch = 4};
        must(yoke_sampler_indices(&sampler, order));
        for (int rank = 0; rank < world; rank++) {
            yoke_loader *loader = open_loader(dataset, (yoke_loader_options){.batch = batch,
                                                                             .shuffle = true,
                                                                             .mixup = 0.7,
                                                                             .threads = threads,
                                                                             .world = world,
                                                                             .rank = rank});
            for (int at = 0; at < ROWS; at += batch) {
                int whole = ROWS - at < batch ? ROWS - at : batch;
                yoke_batch part = next(loader);
                assert_true((part.mixes != NULL) == ((way & 8) != 0));
                expect_part(&part, part.first_row, order + at, whole);
            }
            yoke_loader_destroy(loader);
        }
        yoke_dataset_close(dataset);
    }
}

/* Bytes, cropped and mirrored before they are mixed; an epoch that begins in its middle. */
static void augmented_rows_are_mixed_behind_all_others(void **state) {
    (void)state;
    yoke_dataset *dataset = NULL;
    must(yoke_dataset_open(&dataset, "synthetic:3x8x8,rows=30,classes=4", YOKE_SPLIT_TRAIN));
    yoke_loader_options options = {.batch = 8, .augment = YOKE_AUGMENT_CROP_FLIP, .erasing = 0.5};
    yoke_loader *plain = open_loader(dataset, options);
    options.mixup = 0.7;
    yoke_loader *mixing = open_loader(dataset, options);
    must(yoke_loader_begin_at(plain, 4, 2));
    must(yoke_loader_begin_at(mixing, 4, 2));
    yoke_batch rows = next(plain), mixed = next(mixing);
    assert_int_equal(mixed.rows, 8);
    for (int i = 0; i < 8; i++)
        for (size_t k = 0; k < 192; k += VALUES)
            expect_mixed(mixed.inputs + (size_t)i * 192 + k, rows.inputs + (size_t)i * 192 + k,
                         rows.inputs + (size_t)(i + 7) % 8 * 192 + k, VALUES, mixed.mixes[i].share);
    yoke_loader_destroy(mixing);
    yoke_loader_destroy(plain);
    yoke_dataset_close(dataset);
}

static void expect_refused(const yoke_dataset *dataset, double alpha, const char *words) {
    yoke_loader *loader = NULL;
    yoke_loader_options options = {.struct_size = sizeof options, .batch = 4, .mixup = alpha};
    assert_int_equal(yoke_loader_create(&loader, dataset, &options), YOKE_ERROR_ARGUMENT);
    assert_null(loader);
    if (strstr(yoke_last_error(), words) == NULL)
        fail_msg("'%s' does not say '%s'", yoke_last_error(), words);
}

static yoke_status read_rows(void *payload, const int64_t *rows, int count, float *to,
                             int32_t *to_labels, float *to_targets) {
    (void)payload, (void)rows, (void)count, (void)to, (void)to_labels, (void)to_targets;
    return YOKE_OK;
}

static yoke_status next_rows(void *payload, int room, float *to, int32_t *to_labels,
                             float *to_targets, int *count) {
    (void)payload, (void)room, (void)to, (void)to_labels, (void)to_targets;
    *count = 0;
    return YOKE_OK;
}

static void what_cannot_be_mixed_is_refused(void **state) {
    (void)state;
    yoke_dataset *dataset = open_rows(true);
    expect_refused(dataset, -0.5, "mixup with alpha -0.5: must be finite and at least 0");
    expect_refused(dataset, NAN, "mixup with alpha nan");
    expect_refused(dataset, INFINITY, "mixup with alpha inf");
    yoke_dataset_close(dataset);
    dataset = open_rows(false);
    dataset->target_count = 0; /* as rows to predict */
    expect_refused(dataset, 0.2, "has neither: leave mixup out");
    yoke_dataset_close(dataset);
    yoke_arrays arrays = {.struct_size = sizeof arrays,
                          .rows = 4,
                          .shape = {3, 2, 2, false},
                          .inputs = inputs,
                          .classes = 7,
                          .labels = labels,
                          .label_count = 3};
    must(yoke_dataset_from_arrays(&dataset, &arrays));
    expect_refused(dataset, 0.2, "has 3 labels a row");
    yoke_dataset_close(dataset);
    yoke_row_source source = {.struct_size = sizeof source,
                              .rows = 8,
                              .shape = {3, 2, 2, false},
                              .classes = 7,
                              .read_batch = read_rows};
    must(yoke_dataset_from_callback(&dataset, &source));
    expect_refused(dataset, 0.2, "mixup is not for rows of read_batch: set read");
    yoke_dataset_close(dataset);
    yoke_row_stream stream = {
        .struct_size = sizeof stream, .shape = {3, 2, 2, false}, .classes = 7, .next = next_rows};
    must(yoke_dataset_from_stream(&dataset, &stream));
    expect_refused(dataset, 0.2, "mixup is not for a row stream");
    yoke_dataset_close(dataset);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(mixtures_are_torchvisions_bit_for_bit),
        cmocka_unit_test(shares_are_distributed_as_beta),
        cmocka_unit_test(shares_have_the_moments_of_beta),
        cmocka_unit_test(the_ends_of_the_random_words_give_shares),
        cmocka_unit_test(shares_depend_on_seed_epoch_and_row_alone),
        cmocka_unit_test(rows_mix_with_the_row_before_in_the_whole_batch),
        cmocka_unit_test(augmented_rows_are_mixed_behind_all_others),
        cmocka_unit_test(what_cannot_be_mixed_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
