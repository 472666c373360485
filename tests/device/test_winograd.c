/* SPDX-License-Identifier: Apache-2.0 */
/* Winograd's convolution equals a plain one in double, for every pass, layout of values and
 * weights, padding, bias, number of threads, and for sizes that no tile divides; a second run gives
 * the same bits. */
#include "operation_check.h"

#include "device/cpu/winograd.h"

typedef struct shape {
    int rows, in, height, width, out, padding;
    bool bias;
} shape;

enum { X, W, Y, TENSORS };

typedef struct tensors {
    const cpu_desc *descs[TENSORS];
    yoke_layout layouts[TENSORS];
    double *exact[TENSORS]; /* in logical order */
    void *memory[TENSORS];
    float *bias;
} tensors;

static size_t count_of(const cpu_desc *desc) {
    return (size_t)(desc->dims[0] * desc->dims[1] * desc->dims[2] * desc->dims[3]);
}

static void make(tensors *t, cpu_device *device, const shape *s, dnnl_data_type_t type,
                 dnnl_format_tag_t values, dnnl_format_tag_t weights) {
    int high = s->height + 2 * s->padding - 2, wide = s->width + 2 * s->padding - 2;
    const dnnl_dims_t dims[TENSORS] = {{s->rows, s->in, s->height, s->width},
                                       {s->out, s->in, 3, 3},
                                       {s->rows, s->out, high, wide}};
    for (int i = 0; i < TENSORS; i++) {
        assert_int_equal(cpu_desc_by_tag(&t->descs[i], &device->descs, 4, dims[i],
                                         i == W ? dnnl_f32 : type, i == W ? weights : values),
                         dnnl_success);
        cpu_layout_store(&t->layouts[i], t->descs[i]);
        t->exact[i] = check_random(count_of(t->descs[i]), -1, 1, (uint64_t)i);
        t->memory[i] = aligned_alloc(64, (t->layouts[i].bytes + 63) / 64 * 64);
        check_store(&t->layouts[i], t->memory[i], t->exact[i]);
    }
    t->bias = test_calloc((size_t)s->out, sizeof *t->bias);
    for (int i = 0; i < s->out; i++)
        t->bias[i] = (float)(i % 7) - 3;
}

static void drop(tensors *t) {
    for (int i = 0; i < TENSORS; i++) {
        test_free(t->exact[i]);
        free(t->memory[i]);
    }
    test_free(t->bias);
}

/* One input plane, one filter and one output plane, by the definition. */
static void convolve(const tensors *t, const shape *s, cpu_direction direction, size_t plane[3]) {
    ptrdiff_t high = t->descs[Y]->dims[2], wide = t->descs[Y]->dims[3];
    double *x = t->exact[X] + plane[X] * (size_t)(s->height * s->width);
    double *w = t->exact[W] + plane[W] * 9, *y = t->exact[Y] + plane[Y] * (size_t)(high * wide);
    for (ptrdiff_t pixel = 0; pixel < high * wide; pixel++) {
        ptrdiff_t top = pixel / wide - s->padding, left = pixel % wide - s->padding;
        for (ptrdiff_t tap = 0; tap < 9; tap++) {
            ptrdiff_t h = top + tap / 3, v = left + tap % 3;
            if (h < 0 || v < 0 || h >= s->height || v >= s->width) continue;
            double *input = &x[h * s->width + v], *output = &y[pixel];
            if (direction == CPU_FORWARD) *output += *input * w[tap];
            if (direction == CPU_BACKWARD_DATA) *input += *output * w[tap];
            if (direction == CPU_BACKWARD_WEIGHTS) w[tap] += *output * *input;
        }
    }
}

static const int written[CPU_DIRECTIONS] = {Y, X, W};

static void compute_exact(tensors *t, const shape *s, cpu_direction direction) {
    double *to = t->exact[written[direction]];
    size_t count = count_of(t->descs[written[direction]]), pixels = count_of(t->descs[Y]);
    pixels /= (size_t)(s->rows * s->out);
    for (size_t i = 0; i < count; i++)
        to[i] =
            direction == CPU_FORWARD && s->bias ? (double)t->bias[i / pixels % (size_t)s->out] : 0;
    for (size_t n = 0; n < (size_t)s->rows; n++)
        for (size_t o = 0; o < (size_t)s->out; o++)
            for (size_t i = 0; i < (size_t)s->in; i++)
                convolve(t, s, direction,
                         (size_t[3]){n * (size_t)s->in + i, o * (size_t)s->in + i,
                                     n * (size_t)s->out + o});
}

/* The gradient of the bias: the sum of the output's over rows and pixels. */
static void check_bias(const tensors *t, const shape *s) {
    size_t pixels = count_of(t->descs[Y]) / (size_t)(s->rows * s->out);
    double *sums = test_calloc((size_t)s->out, sizeof *sums), *got = test_calloc((size_t)s->out, 8);
    for (size_t i = 0; i < count_of(t->descs[Y]); i++)
        sums[i / pixels % (size_t)s->out] += t->exact[Y][i];
    for (int o = 0; o < s->out; o++)
        got[o] = (double)t->bias[o];
    check_close_values("gradient of the bias", got, sums, (size_t)s->out, 1e-5);
    test_free(sums);
    test_free(got);
}

static cpu_operation describe(const tensors *t, const shape *s, cpu_direction direction) {
    return (cpu_operation){.kind = CPU_CONVOLUTION,
                           .direction = direction,
                           .source = t->descs[X],
                           .weights = t->descs[W],
                           .destination = t->descs[Y],
                           .strides = {1, 1},
                           .padding = {s->padding, s->padding}};
}

/* Twice: scratch full of NaN, then of what the first run left. */
static void run_twice(tensors *t, const shape *s, cpu_device *device, cpu_direction direction) {
    cpu_operation convolution = describe(t, s, direction);
    cpu_own_kernel *winograd = NULL;
    CHECK(cpu_winograd_create(&winograd, device, &convolution));
    size_t scratch_bytes = (winograd->calls->scratch_bytes(winograd) + 63) / 64 * 64;
    size_t bytes = t->layouts[written[direction]].bytes;
    void *to = t->memory[written[direction]], *once = test_malloc(bytes);
    void *scratch = aligned_alloc(64, scratch_bytes);
    memset(scratch, 0xff, scratch_bytes);
    memset(to, 0xff, bytes);
    const cpu_own_addresses at = {.input = t->memory[X],
                                  .output = t->memory[Y],
                                  .weights = t->memory[W],
                                  .bias = s->bias ? t->bias : NULL,
                                  .scratch = scratch};
    CHECK(winograd->calls->bind(winograd, &at));
    CHECK(winograd->calls->run(winograd));
    memcpy(once, to, bytes);
    CHECK(winograd->calls->run(winograd));
    assert_memory_equal(once, to, bytes);
    test_free(once);
    free(scratch);
    winograd->calls->destroy(winograd);
}

static void check_shape(const shape *s, int threads, dnnl_data_type_t type) {
    static const dnnl_format_tag_t values[] = {dnnl_nChw16c, dnnl_nhwc, dnnl_nChw8c};
    static const dnnl_format_tag_t weights[] = {dnnl_OIhw16i16o, dnnl_OIhw16o16i, dnnl_oihw,
                                                dnnl_Ohwi16o, dnnl_OIhw4i16o4i};
    yoke_devices *devices = check_devices(threads);
    cpu_device *device = cpu_of(yoke_devices_at(devices, 0));
    yoke_device_scope scope;
    CHECK(yoke_device_enter(&device->base, false, &scope));
    for (int direction = 0; direction < CPU_DIRECTIONS; direction++)
        for (int i = 0; i < 5; i++) {
            tensors t = {0};
            bool pads = s->in % 16 != 0 || s->out % 16 != 0; /* blocks of 16 channels */
            make(&t, device, s, type, values[pads ? 1 + i % 2 : i % 3],
                 pads ? dnnl_oihw : weights[(i + direction) % 5]);
            compute_exact(&t, s, (cpu_direction)direction);
            run_twice(&t, s, device, (cpu_direction)direction);
            int to = written[direction];
            check_memory("a pass", &t.layouts[to], t.memory[to], t.exact[to],
                         to != W && type == dnnl_bf16 ? 0.004 : 2e-5);
            if (s->bias && direction == CPU_BACKWARD_WEIGHTS) check_bias(&t, s);
            drop(&t);
        }
    yoke_device_leave(&device->base, &scope);
    yoke_devices_close(devices);
}

static void equals_a_plain_convolution(void **state) {
    (void)state;
    static const shape shapes[] = {
        {2, 16, 32, 32, 16, 1, false}, {3, 32, 16, 16, 32, 1, true}, {5, 64, 7, 7, 32, 1, false},
        {3, 32, 14, 14, 64, 1, false}, {3, 64, 2, 2, 64, 1, true},   {2, 16, 9, 5, 32, 0, true},
        {2, 32, 5, 6, 16, 2, false},   {1, 32, 3, 11, 64, 1, true},  {2, 48, 10, 10, 80, 1, true},
        {1, 16, 1, 1, 16, 1, false},   {2, 24, 9, 6, 40, 1, true}};
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++)
        check_shape(&shapes[i], 1 + (int)(i % 2), i % 3 == 2 ? dnnl_bf16 : dnnl_f32);
}

/* Sums over several chunks of tiles, and filters in slices. */
static void equals_it_where_the_cache_does_not_hold_all(void **state) {
    (void)state;
    static const shape shapes[] = {{6, 64, 16, 16, 96, 1, false}, {4, 256, 4, 4, 160, 1, true}};
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++)
        check_shape(&shapes[i], 1, i == 0 ? dnnl_f32 : dnnl_bf16);
}

static void refuses_what_does_not_fit(void **state) {
    (void)state;
    static const shape odd = {2, 12, 8, 8, 16, 1, false}, good = {2, 16, 8, 8, 16, 1, false};
    yoke_devices *devices = check_devices(1);
    cpu_device *device = cpu_of(yoke_devices_at(devices, 0));
    for (int i = 0; i < 4; i++) {
        tensors t = {0};
        make(&t, device, i == 0 ? &odd : &good, dnnl_f32, i == 1 ? dnnl_nchw : dnnl_nhwc,
             dnnl_oihw);
        cpu_operation convolution = describe(&t, &good, CPU_FORWARD);
        if (i == 2) convolution.strides[0] = 2;
        if (i == 3) convolution.padding[0] = convolution.padding[1] = 3;
        cpu_own_kernel *winograd = NULL;
        assert_int_equal(cpu_winograd_create(&winograd, device, &convolution), YOKE_ERROR_DEVICE);
        assert_null(winograd);
        drop(&t);
    }
    yoke_devices_close(devices);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(equals_a_plain_convolution),
        cmocka_unit_test(equals_it_where_the_cache_does_not_hold_all),
        cmocka_unit_test(refuses_what_does_not_fit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
