/* SPDX-License-Identifier: Apache-2.0 */
/* How many plans predictors keep, and the memory of 1,000 numbers of rows: the host program's
 * allocator counts all of it. */
#include <stdatomic.h>

#include "serve/serve_rig.h"

/* The allocator: memory of devices is aligned to cache lines at least. */

enum { HEAD = 64, LINE = 64 };

typedef struct head {
    size_t bytes, alignment, offset;
} head;

static atomic_long all_bytes, device_bytes;

static void count(const head *at, long sign) {
    atomic_fetch_add(&all_bytes, sign * (long)at->bytes);
    if (at->alignment >= LINE) atomic_fetch_add(&device_bytes, sign * (long)at->bytes);
}

static void *allocate(void *payload, size_t alignment, size_t bytes) {
    (void)payload;
    size_t offset = alignment > HEAD ? alignment : HEAD;
    char *memory = aligned_alloc(offset, (offset + bytes + offset - 1) / offset * offset);
    if (memory == NULL) return NULL;
    head *at = (head *)(memory + offset - HEAD);
    *at = (head){bytes, alignment, offset};
    count(at, 1);
    return memory + offset;
}

static void release(void *payload, void *memory) {
    (void)payload;
    const head *at = (const head *)((char *)memory - HEAD);
    count(at, -1);
    free((char *)memory - at->offset);
}

static void *resize(void *payload, void *memory, size_t bytes) {
    const head *at = (const head *)((char *)memory - HEAD);
    void *moved = allocate(payload, at->alignment, bytes);
    if (moved == NULL) return NULL;
    memcpy(moved, memory, at->bytes < bytes ? at->bytes : bytes);
    release(payload, memory);
    return moved;
}

static int set_up(void **state) {
    (void)state;
    const yoke_allocator own = {sizeof own, allocate, resize, release, NULL};
    return yoke_set_allocator(&own) == YOKE_OK ? 0 : -1;
}

static size_t reported(yoke_predictors *predictors) {
    yoke_predictors_report report = rig_report(predictors);
    return report.weights + report.packed + report.values;
}

static void run(yoke_predictors *predictors, const yoke_model *model, int rows) {
    rig_rows own = rig_rows_make(model, rows, 1);
    EXPECT_OK(rig_run(predictors, &own));
    rig_rows_free(&own);
}

enum { LEAST = 1, MOST = 1000 };

/* From one pass over all sizes to the next not a byte changes; within one nothing piles up. */
static void test_memory_of_a_thousand_numbers_of_rows(void **state) {
    (void)state;
    yoke_model *model = rig_preset("mlp:width=16", yoke_shape_image(1, 4, 4), 10);
    yoke_predictors *predictors =
        rig_predictors(model, (yoke_predictors_options){.slots = 1, .plans = 4, .rows = 128});
    rig_publish(predictors, model, 0.25f);
    long all = 0;
    size_t device = 0, least = SIZE_MAX, most = 0;
    for (int pass = 0; pass < 2; pass++) {
        for (int rows = LEAST; rows <= MOST; rows++) {
            run(predictors, model, rows);
            yoke_predictors_report report = rig_report(predictors);
            assert_true(report.plans <= 5 && report.programs <= 4);
            size_t now = reported(predictors);
            least = pass > 0 && now < least ? now : least;
            most = pass > 0 && now > most ? now : most;
        }
        if (pass == 0) {
            all = atomic_load(&all_bytes);
            device = reported(predictors);
        }
    }
    assert_int_equal(atomic_load(&all_bytes), all);
    assert_int_equal(reported(predictors), device);
    assert_true(most - least < least / 4);
    yoke_predictors_destroy(predictors);
    yoke_model_destroy(model);
}

/* The report is what the allocator counts, up to the padding of each piece to a line. */
static void test_the_report_is_exact(void **state) {
    (void)state;
    long before = atomic_load(&device_bytes);
    yoke_model *model = check_model(true, 0);
    yoke_predictors *predictors = rig_predictors(
        model, (yoke_predictors_options){
                   .algorithm = YOKE_ALGORITHM_DIRECT, .slots = 3, .plans = 3, .rows = 16});
    long slots = atomic_load(&device_bytes) - before - (long)reported(predictors);
    assert_in_range(slots, 0, 64 * 1024); /* theirs are aligned, too */
    size_t last = reported(predictors);
    for (int i = 0; i < 40; i++) {
        if (i % 8 == 0) rig_publish(predictors, model, (float)i);
        run(predictors, model, 1 + i * 5 % 17);
        size_t now = reported(predictors);
        long differs = atomic_load(&device_bytes) - before - (long)now - slots;
        assert_in_range(differs + 64 * LINE, 0, 128 * LINE);
        last = now;
    }
    assert_true(last > 0);
    yoke_predictors_destroy(predictors);
    yoke_model_destroy(model);
    assert_int_equal(atomic_load(&device_bytes), before);
}

/* Slots add values and plans, and no weights. */
static void test_slots_share_weights_and_what_is_packed(void **state) {
    (void)state;
    yoke_model *model = rig_preset("resnet20", yoke_shape_image(3, 32, 32), 10);
    yoke_predictors_report of[2];
    for (int i = 0; i < 2; i++) {
        yoke_predictors *predictors = rig_predictors(
            model, (yoke_predictors_options){
                       .algorithm = YOKE_ALGORITHM_DIRECT, .slots = 1 + 3 * i, .rows = 4});
        rig_publish(predictors, model, 0.25f);
        of[i] = rig_report(predictors);
        yoke_predictors_destroy(predictors);
    }
    assert_int_equal(of[0].slots, 1);
    assert_int_equal(of[1].slots, 4);
    assert_int_equal(of[1].programs, 4);
    assert_true(of[0].packed > 0); /* folded batch norms */
    assert_int_equal(of[1].weights, of[0].weights);
    assert_int_equal(of[1].packed, of[0].packed);
    assert_int_equal(of[1].values, 4 * of[0].values);
    yoke_model_destroy(model);
}

/* Those longest unused go. */
static void test_plans_are_bounded(void **state) {
    (void)state;
    yoke_model *model = rig_preset("mlp:width=16", yoke_shape_image(1, 4, 4), 10);
    yoke_predictors *predictors =
        rig_predictors(model, (yoke_predictors_options){.slots = 1, .plans = 3, .rows = 8});
    rig_publish(predictors, model, 0.25f);
    static const int programs[] = {1, 2, 3, 3, 3, 3};
    static const int rows[] = {8, 1, 2, 3, 4, 6};
    for (int i = 0; i < 6; i++) {
        run(predictors, model, rows[i]);
        assert_int_equal(rig_report(predictors).programs, programs[i]);
    }
    yoke_predictors_destroy(predictors);
    yoke_model_destroy(model);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_memory_of_a_thousand_numbers_of_rows),
        cmocka_unit_test(test_the_report_is_exact),
        cmocka_unit_test(test_slots_share_weights_and_what_is_packed),
        cmocka_unit_test(test_plans_are_bounded),
    };
    return cmocka_run_group_tests(tests, set_up, NULL);
}
