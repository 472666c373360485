/* SPDX-License-Identifier: Apache-2.0 */
/* Max and average pooling on the CPU against torch.nn's formulas in double. */
#include "operation_check.h"

/* The taps of window `place` along one direction; with a kernel of 0 those of
 * torch.nn.AdaptiveAvgPool2d: floor(place * in / out) to ceil((place + 1) * in / out). */
typedef struct window {
    int begin, end;
} window;

static window window_of(yoke_taps taps, int place, int outputs, int inputs) {
    int begin = place * taps.stride - taps.padding;
    if (taps.kernel > 0) return (window){begin, begin + taps.kernel};
    return (window){(int)floor((double)place * inputs / outputs),
                    (int)ceil((double)(place + 1) * inputs / outputs)};
}

static double pooled(const operation_check *check, const double *image, window down,
                     window across) {
    const yoke_operation *operation = &check->operation;
    int high = down.end - down.begin, wide = across.end - across.begin;
    double largest = -INFINITY, sum = 0;
    for (int y = down.begin; y < down.end; y++) {
        for (int x = across.begin; x < across.end; x++) {
            if (y < 0 || x < 0 || y >= operation->input.height || x >= operation->input.width)
                continue;
            double value = image[y * operation->input.width + x];
            largest = fmax(largest, value);
            sum += value;
        }
    }
    return operation->kind == YOKE_OP_MAX_POOL ? largest : sum / (double)(high * wide);
}

static void reference(const operation_check *check, double *const inputs[],
                      double *const parameters[], double *output) {
    (void)parameters;
    const yoke_operation *operation = &check->operation;
    const double *image = inputs[0];
    for (int i = 0; i < check->rows * operation->input.channels; i++) {
        for (int y = 0; y < operation->output.height; y++) {
            for (int x = 0; x < operation->output.width; x++) {
                *output++ = pooled(check, image,
                                   window_of(yoke_taps_down(operation), y, operation->output.height,
                                             operation->input.height),
                                   window_of(yoke_taps_across(operation), x,
                                             operation->output.width, operation->input.width));
            }
        }
        image += operation->input.height * operation->input.width;
    }
}

typedef struct pool {
    int rows, channels, height, width, kernel, stride, padding;
    int out_height, out_width; /* with a kernel of 0 */
    yoke_taps across;          /* kernel 0: square */
} pooling_case;

static int pooled_size(int size, yoke_taps taps, int adaptive) {
    return taps.kernel == 0 ? adaptive : (size + 2 * taps.padding - taps.kernel) / taps.stride + 1;
}

/* Every value differs by more than the differences' step, so that each maximum is one value. */
static double *draw_distinct(size_t count) {
    double *values = check_random(count, -1, 1, 1);
    for (size_t i = 0; i < count; i++) {
        size_t shuffled = i * 7919 % 251;
        values[i] = ((double)shuffled - 125) / 128;
    }
    return values;
}

static void run(yoke_operation_kind kind, const pooling_case *pool, dnnl_format_tag_t tag,
                yoke_precision precision, bool training) {
    yoke_devices *devices = check_devices(1);
    const yoke_taps down = {pool->kernel, pool->stride, pool->padding, 1};
    const yoke_taps across = pool->across.kernel > 0 ? pool->across : down;
    operation_check check = {
        .operation = {.kind = kind,
                      .input = {pool->channels, pool->height, pool->width},
                      .output = {pool->channels, pooled_size(pool->height, down, pool->out_height),
                                 pooled_size(pool->width, across, pool->out_width)},
                      .kernel = pool->kernel,
                      .stride = pool->stride,
                      .padding = pool->padding,
                      .across = pool->across},
        .rows = pool->rows,
        .training = training,
        .precision = precision,
        .tags = {tag}};
    check_open(&check, yoke_devices_at(devices, 0));
    check_bind(&check);
    assert_false(check.needs->backward_reads[0]);
    check_values values = {.inputs = {draw_distinct(check_count(&check.inputs[0]))},
                           .output_gradient =
                               check_random(check_count(&check.needs->output), -1, 1, 4)};
    check_passes(&check, reference, &values, precision == YOKE_BFLOAT16 ? 2e-2 : 1e-5);
    check_values_free(&values);
    check_close(&check);
    yoke_devices_close(devices);
}

static void every_case(yoke_operation_kind kind, const pooling_case *pools, size_t count,
                       yoke_precision precision) {
    const dnnl_format_tag_t tags[] = {dnnl_nchw, dnnl_nChw16c};
    for (size_t i = 0; i < count; i++) {
        for (size_t t = 0; t < sizeof tags / sizeof tags[0]; t++) {
            run(kind, &pools[i], tags[t], precision, true);
            run(kind, &pools[i], tags[t], precision, false);
        }
    }
}

static const pooling_case windows[] = {{2, 16, 7, 5, 3, 2, 1, 0, 0},
                                       {1, 5, 6, 6, 2, 2, 0, 0, 0},
                                       {3, 20, 4, 5, 3, 1, 1, 0, 0},
                                       {2, 3, 7, 8, 2, 2, 0, 0, 0},
                                       {2, 16, 7, 9, 3, 2, 1, 0, 0, {2, 3, 0, 1}},
                                       {2, 5, 1, 12, 1, 1, 0, 0, 0, {4, 3, 2, 1}}};
static const pooling_case images[] = {
    {2, 20, 4, 4, 0, 1, 0, 1, 1}, {1, 16, 3, 5, 0, 1, 0, 1, 1}, {3, 7, 1, 1, 0, 1, 0, 1, 1}};
/* Windows of one size, of two sizes, overlapping ones, and more windows than pixels. */
static const pooling_case sizes[] = {{2, 20, 6, 4, 0, 1, 0, 3, 2}, {1, 16, 7, 10, 0, 1, 0, 3, 7},
                                     {2, 5, 5, 5, 0, 1, 0, 4, 3},  {2, 17, 1, 1, 0, 1, 0, 7, 7},
                                     {1, 3, 2, 3, 0, 1, 0, 7, 2},  {2, 16, 3, 3, 0, 1, 0, 3, 3}};

static void max_pool_takes_the_largest_and_returns_its_gradient_there(void **state) {
    (void)state;
    every_case(YOKE_OP_MAX_POOL, windows, sizeof windows / sizeof windows[0], YOKE_FLOAT32);
}

static void average_pool_counts_padding(void **state) {
    (void)state;
    every_case(YOKE_OP_AVERAGE_POOL, windows, sizeof windows / sizeof windows[0], YOKE_FLOAT32);
}

static void kernel_zero_is_the_whole_image(void **state) {
    (void)state;
    every_case(YOKE_OP_AVERAGE_POOL, images, sizeof images / sizeof images[0], YOKE_FLOAT32);
}

static void adaptive_windows_are_pytorchs(void **state) {
    (void)state;
    every_case(YOKE_OP_AVERAGE_POOL, sizes, sizeof sizes / sizeof sizes[0], YOKE_FLOAT32);
}

static void pools_in_bfloat16(void **state) {
    (void)state;
    if (check_no_bfloat16()) skip();
    every_case(YOKE_OP_MAX_POOL, windows, sizeof windows / sizeof windows[0], YOKE_BFLOAT16);
    every_case(YOKE_OP_AVERAGE_POOL, windows, sizeof windows / sizeof windows[0], YOKE_BFLOAT16);
    every_case(YOKE_OP_AVERAGE_POOL, images, sizeof images / sizeof images[0], YOKE_BFLOAT16);
    every_case(YOKE_OP_AVERAGE_POOL, sizes, sizeof sizes / sizeof sizes[0], YOKE_BFLOAT16);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(max_pool_takes_the_largest_and_returns_its_gradient_there),
        cmocka_unit_test(average_pool_counts_padding),
        cmocka_unit_test(kernel_zero_is_the_whole_image),
        cmocka_unit_test(adaptive_windows_are_pytorchs),
        cmocka_unit_test(pools_in_bfloat16),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
