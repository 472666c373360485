/* SPDX-License-Identifier: Apache-2.0 */
/* Conversions between layouts: the first prepares what the next ones need, in both directions. */
#include "support/failing_allocator.h"

#include <pthread.h>

#include "weighted_check.h"

#define THREADS 2
#define ROUNDS 200

static const check_case convolution = {.operation = {.kind = YOKE_OP_CONV2D,
                                                     .name = "conv",
                                                     .input = {32, 8, 8},
                                                     .output = {24, 8, 8},
                                                     .kernel = 3,
                                                     .stride = 1,
                                                     .padding = 1,
                                                     .groups = 1,
                                                     .dilation = 1},
                                       .rows = 4,
                                       .algorithm = YOKE_ALGORITHM_DIRECT};

typedef struct fixture {
    check_rig rig;
    check_sizes sizes;
    yoke_plan *plan;
    yoke_layout plain;
    const yoke_layout *blocked;
} fixture;

static void open_fixture(fixture *f) {
    yoke_layout input;
    check_rig_open(&f->rig, "cpu");
    f->sizes = check_sizes_of(&convolution);
    f->plan = check_plan(f->rig.device, &convolution, f->rig.algorithms, NULL, true, &input);
    f->plain = check_plain(f->rig.device, f->sizes.weight_shape);
    f->blocked = &yoke_plan_describe(f->plan)->parameters[0];
    assert_false(yoke_layout_equal(&f->plain, f->blocked));
}

static void close_fixture(fixture *f) {
    yoke_plan_destroy(f->plan);
    check_rig_close(&f->rig);
}

static void a_weight_once_written_is_read_without_an_allocation(void **state) {
    (void)state;
    if (!COUNTS) skip();
    fixture f;
    open_fixture(&f);
    float *values = check_values(f.sizes.weights, 1), *back = check_values(f.sizes.weights, 2);
    float *memory = check_memory(f.rig.device, f.blocked->bytes);
    EXPECT_OK(yoke_layout_convert(f.rig.device, f.blocked, memory, &f.plain, values));
    unsigned long before = counted(&own_allocations);
    EXPECT_OK(yoke_layout_convert(f.rig.device, &f.plain, back, f.blocked, memory));
    EXPECT_OK(yoke_layout_convert(f.rig.device, f.blocked, memory, &f.plain, back));
    assert_int_equal(counted(&own_allocations) - before, 0);
    unsigned long foreign = counted(&foreign_allocations);
    EXPECT_OK(yoke_layout_convert(f.rig.device, &f.plain, back, f.blocked, memory));
    print_message("%lu allocations by oneDNN, for its arguments\n",
                  counted(&foreign_allocations) - foreign);
    assert_true(counted(&foreign_allocations) - foreign <= 12); /* making a reorder takes more */
    assert_memory_equal(back, values, f.sizes.weights * sizeof *values);
    yoke_device_free(f.rig.device, memory);
    free(back);
    free(values);
    close_fixture(&f);
}

typedef struct converter {
    pthread_t thread;
    const fixture *f;
    float *values, *back, *memory;
    int failures;
} converter;

static void *convert(void *context) {
    converter *self = context;
    yoke_device *device = self->f->rig.device;
    size_t bytes = self->f->sizes.weights * sizeof(float);
    for (int round = 0; round < ROUNDS; round++) {
        memset(self->back, 0, bytes);
        if (yoke_layout_convert(device, self->f->blocked, self->memory, &self->f->plain,
                                self->values) != YOKE_OK ||
            yoke_layout_convert(device, &self->f->plain, self->back, self->f->blocked,
                                self->memory) != YOKE_OK ||
            memcmp(self->back, self->values, bytes) != 0)
            self->failures++;
    }
    return NULL;
}

static void threads_that_convert_at_once_on_a_device_get_their_own_values(void **state) {
    (void)state;
    fixture f;
    open_fixture(&f);
    converter converters[THREADS];
    for (int i = 0; i < THREADS; i++)
        converters[i] = (converter){.f = &f,
                                    .values = check_values(f.sizes.weights, 1 + (uint32_t)i),
                                    .back = check_values(f.sizes.weights, 0),
                                    .memory = check_memory(f.rig.device, f.blocked->bytes)};
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&converters[i].thread, NULL, convert, &converters[i]), 0);
    for (int i = 0; i < THREADS; i++) {
        pthread_join(converters[i].thread, NULL);
        assert_int_equal(converters[i].failures, 0);
        yoke_device_free(f.rig.device, converters[i].memory);
        free(converters[i].back);
        free(converters[i].values);
    }
    close_fixture(&f);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_weight_once_written_is_read_without_an_allocation),
        cmocka_unit_test(threads_that_convert_at_once_on_a_device_get_their_own_values),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
