/* SPDX-License-Identifier: Apache-2.0 */
/* Each of Yoke's own kernels of convolutions for inference equals a plain convolution in double,
 * with bias, add and activation, for every layout of values and weights, and for sizes that no tile
 * divides; a second run with other weights has nothing of the first. */
#include "operation_check.h"

#include "device/cpu/pass.h"
#include "device/cpu/winograd_wide.h"

typedef struct shape {
    int rows, in, height, width, out, kernel, stride, padding;
    bool bias, adds;
    dnnl_alg_kind_t activation;
} shape;

static const struct {
    const char *name;
    yoke_status (*create)(cpu_pass *pass, cpu_device *device, const cpu_operation *operation);
    double tolerance; /* of the largest output */
} kernels[] = {{"winograd", cpu_pass_create_winograd, 2e-5},
               {"winograd 4x4 by tiles", cpu_pass_create_winograd_4_tiles, 2e-5},
               {"winograd 4x4 by filters", cpu_pass_create_winograd_4_filters, 2e-5},
               {"winograd 2x2 by tiles", cpu_pass_create_winograd_2_tiles, 2e-5},
               {"winograd 2x2 by filters", cpu_pass_create_winograd_2_filters, 2e-5},
               {"few pixels", cpu_pass_create_few_pixels, 1e-5}};
enum { KERNELS = sizeof kernels / sizeof kernels[0] };

enum { X, W, Y, TENSORS };

typedef struct tensors {
    const cpu_desc *descs[TENSORS];
    yoke_layout layouts[TENSORS];
    double *exact[TENSORS]; /* in logical order; Y: what is there before */
    void *memory[TENSORS];
    float *bias;
} tensors;

static size_t count_of(const cpu_desc *desc) {
    return (size_t)(desc->dims[0] * desc->dims[1] * desc->dims[2] * desc->dims[3]);
}

static int output_edge(const shape *s, int input) {
    return (input + 2 * s->padding - s->kernel) / s->stride + 1;
}

static void make(tensors *t, cpu_device *device, const shape *s, dnnl_format_tag_t values,
                 dnnl_format_tag_t weights) {
    const dnnl_dims_t dims[TENSORS] = {
        {s->rows, s->in, s->height, s->width},
        {s->out, s->in, s->kernel, s->kernel},
        {s->rows, s->out, output_edge(s, s->height), output_edge(s, s->width)}};
    for (int i = 0; i < TENSORS; i++) {
        assert_int_equal(cpu_desc_by_tag(&t->descs[i], &device->descs, 4, dims[i], dnnl_f32,
                                         i == W ? weights : values),
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

static double pixel_sum(const tensors *t, const shape *s, int n, int o, int row, int column) {
    double sum = s->bias ? (double)t->bias[o] : 0;
    for (int i = 0; i < s->in; i++)
        for (int tap = 0; tap < s->kernel * s->kernel; tap++) {
            int y = row * s->stride - s->padding + tap / s->kernel;
            int x = column * s->stride - s->padding + tap % s->kernel;
            if (y < 0 || x < 0 || y >= s->height || x >= s->width) continue;
            sum += t->exact[X][((n * s->in + i) * s->height + y) * s->width + x] *
                   t->exact[W][(o * s->in + i) * s->kernel * s->kernel + tap];
        }
    return sum;
}

static void compute_exact(tensors *t, const shape *s) {
    int high = (int)t->descs[Y]->dims[2], wide = (int)t->descs[Y]->dims[3];
    for (int plane = 0; plane < s->rows * s->out; plane++)
        for (int pixel = 0; pixel < high * wide; pixel++) {
            double *to = &t->exact[Y][plane * high * wide + pixel];
            double sum =
                pixel_sum(t, s, plane / s->out, plane % s->out, pixel / wide, pixel % wide);
            if (s->adds) sum += *to;
            bool bounded = s->activation != dnnl_alg_kind_undef;
            if (bounded && sum < 0) sum = 0;
            if (s->activation == dnnl_eltwise_clip_v2 && sum > 6) sum = 6;
            *to = sum;
        }
}

static cpu_operation describe(const tensors *t, const shape *s) {
    return (cpu_operation){.kind = CPU_CONVOLUTION,
                           .direction = CPU_FORWARD,
                           .inference = true,
                           .source = t->descs[X],
                           .weights = t->descs[W],
                           .destination = t->descs[Y],
                           .strides = {s->stride, s->stride},
                           .padding = {s->padding, s->padding},
                           .padding_end = {s->padding, s->padding},
                           .epilogue = {.adds = s->adds, .activation = s->activation, .beta = 6}};
}

static void *aligned(size_t bytes) {
    size_t whole = (bytes + 64) / 64 * 64;
    void *memory = aligned_alloc(64, whole);
    memset(memory, 0xff, whole);
    return memory;
}

/* First with weights that are all NaN, which the second preparation must leave nothing of. */
static void run(const tensors *t, const shape *s, cpu_own_kernel *kernel) {
    void *scratch = aligned(kernel->calls->scratch_bytes(kernel));
    void *kept = aligned(kernel->calls->kept_bytes(kernel));
    size_t bytes = t->layouts[W].bytes, output_bytes = t->layouts[Y].bytes;
    void *weights = test_malloc(bytes), *before = test_malloc(output_bytes);
    memcpy(before, t->memory[Y], output_bytes);
    memcpy(weights, t->memory[W], bytes);
    memset(t->memory[W], 0xff, bytes);
    const cpu_own_addresses at = {.input = t->memory[X],
                                  .output = t->memory[Y],
                                  .weights = t->memory[W],
                                  .bias = s->bias ? t->bias : NULL,
                                  .scratch = scratch,
                                  .kept = kept};
    CHECK(kernel->calls->bind(kernel, &at));
    kernel->calls->prepare(kernel, t->memory[W], kept);
    CHECK(kernel->calls->run(kernel));
    memcpy(t->memory[W], weights, bytes);
    memcpy(t->memory[Y], before, output_bytes);
    kernel->calls->prepare(kernel, t->memory[W], kept);
    CHECK(kernel->calls->run(kernel));
    test_free(weights);
    test_free(before);
    free(scratch);
    free(kept);
}

/* Answers which kernels took the shape. */
static unsigned check_shape(const shape *s, int threads) {
    static const dnnl_format_tag_t values[] = {dnnl_nChw16c, dnnl_nhwc};
    static const dnnl_format_tag_t weights[] = {dnnl_OIhw16i16o, dnnl_oihw, dnnl_Ohwi16o};
    yoke_devices *devices = check_devices(threads);
    cpu_device *device = cpu_of(yoke_devices_at(devices, 0));
    yoke_device_scope scope;
    unsigned taken = 0;
    CHECK(yoke_device_enter(&device->base, false, &scope));
    bool whole = s->in % 16 == 0 && s->out % 16 == 0;
    for (int i = whole ? 0 : KERNELS; i < 2 * KERNELS; i++) {
        int k = i % KERNELS;
        tensors t = {0};
        make(&t, device, s, values[i / KERNELS], weights[(i + s->in) % 3]);
        cpu_operation convolution = describe(&t, s);
        cpu_pass pass = {0};
        yoke_status status = kernels[k].create(&pass, device, &convolution);
        if (status == YOKE_OK) {
            run(&t, s, pass.own);
            compute_exact(&t, s);
            check_memory(kernels[k].name, &t.layouts[Y], t.memory[Y], t.exact[Y],
                         kernels[k].tolerance);
            taken |= 1u << k;
        } else {
            assert_int_equal(status, YOKE_ERROR_DEVICE);
            assert_null(pass.own);
        }
        cpu_pass_destroy(&pass);
        drop(&t);
    }
    yoke_device_leave(&device->base, &scope);
    yoke_devices_close(devices);
    return taken;
}

static bool has_avx512(void) {
#if defined(__x86_64__)
    int isa = (int)dnnl_get_effective_cpu_isa();
    return (isa & dnnl_cpu_isa_avx512_core) == dnnl_cpu_isa_avx512_core;
#else
    return false;
#endif
}

#define RELU dnnl_eltwise_relu
#define CLIP dnnl_eltwise_clip_v2
#define NONE dnnl_alg_kind_undef

enum { KEPT = 1, WINOGRAD = 15 << 1, FEW = 1 << 5 };

static void equal_a_plain_convolution(const shape *shapes, size_t count, unsigned taken) {
    for (size_t i = 0; i < count; i++)
        assert_int_equal(check_shape(&shapes[i], 1 + (int)(i % 2)),
                         has_avx512() ? taken : taken & KEPT);
}

/* Panels of one, two and four vectors, fewer tiles than threads, several blocks of tiles. */
static void winograd_equals_a_plain_convolution(void **state) {
    (void)state;
    static const shape few[] = {{1, 64, 7, 7, 64, 3, 1, 1, false, true, NONE},
                                {3, 64, 2, 2, 48, 3, 1, 1, true, true, RELU},
                                {2, 16, 9, 5, 32, 3, 1, 0, true, false, NONE},
                                {2, 32, 5, 6, 16, 3, 1, 2, false, false, RELU},
                                {1, 256, 4, 4, 128, 3, 1, 1, true, true, RELU},
                                {1, 16, 1, 1, 16, 3, 1, 1, false, false, NONE}};
    static const shape many[] = {{2, 16, 32, 32, 16, 3, 1, 1, true, true, RELU},
                                 {3, 32, 16, 16, 32, 3, 1, 1, true, false, CLIP},
                                 {40, 16, 16, 16, 80, 3, 1, 1, true, false, RELU}};
    equal_a_plain_convolution(few, sizeof few / sizeof *few, KEPT | WINOGRAD | FEW);
    equal_a_plain_convolution(many, sizeof many / sizeof *many, KEPT | WINOGRAD);
}

/* Other kernels and strides; pixels that lie in order and that do not; panels and pixels that
 * threads share; channels that fill no vector. */
static void few_pixels_equal_a_plain_convolution(void **state) {
    (void)state;
    static const shape shapes[] = {{1, 64, 8, 8, 128, 3, 2, 1, true, false, RELU},
                                   {1, 64, 8, 8, 128, 3, 2, 1, true, false, RELU},
                                   {2, 16, 9, 7, 32, 5, 3, 2, false, true, CLIP},
                                   {2, 128, 6, 5, 16, 1, 1, 0, true, true, CLIP},
                                   {2, 32, 3, 3, 32, 1, 1, 1, true, true, RELU},
                                   {1, 32, 4, 3, 48, 1, 1, 2, false, true, NONE},
                                   {1, 96, 16, 16, 32, 1, 1, 0, true, false, NONE},
                                   {3, 32, 6, 6, 64, 1, 2, 0, false, false, NONE},
                                   {1, 512, 1, 1, 320, 1, 1, 0, true, true, RELU},
                                   {1, 512, 1, 1, 320, 1, 1, 0, true, true, RELU}};
    equal_a_plain_convolution(shapes, sizeof shapes / sizeof *shapes, FEW);
}

/* 20 and 24 channels, which only channels-last values have so. */
static void odd_channels_take_few_pixels_alone(void **state) {
    (void)state;
    static const shape shapes[] = {{2, 20, 5, 5, 24, 1, 1, 0, true, true, RELU},
                                   {1, 20, 6, 6, 44, 3, 1, 1, true, false, NONE}};
    equal_a_plain_convolution(shapes, sizeof shapes / sizeof *shapes, FEW);
}

static void all_refuse_what_they_do_not_compute(void **state) {
    (void)state;
    static const shape smooth = {2, 16, 8, 8, 16, 3, 1, 1, false, false, dnnl_eltwise_swish};
    static const shape large = {2, 16, 40, 40, 16, 5, 1, 2, false, false, NONE};
    assert_int_equal(check_shape(&smooth, 1), 0);
    assert_int_equal(check_shape(&large, 1), 0);
}

/* A product of matrices: of weights in either order, into columns that fill no vector. */
static void check_product(cpu_device *device, int rows, dnnl_format_tag_t order) {
    enum { IN = 100, OUT = 70 };
    const dnnl_dims_t dims[TENSORS] = {{rows, IN}, {OUT, IN}, {rows, OUT}};
    const size_t counts[TENSORS] = {(size_t)rows * IN, OUT * IN, (size_t)rows * OUT};
    const cpu_desc *descs[TENSORS];
    float *memory[TENSORS];
    for (int i = 0; i < TENSORS; i++) {
        assert_int_equal(cpu_desc_by_tag(&descs[i], &device->descs, 2, dims[i], dnnl_f32,
                                         i == W ? order : dnnl_ab),
                         dnnl_success);
        memory[i] = test_malloc(counts[i] * sizeof(float));
        for (size_t k = 0; k < counts[i]; k++)
            memory[i][k] = (float)(k * 37 % 101) / 50 - 1;
    }
    const cpu_operation product = {.kind = CPU_PRODUCT,
                                   .direction = CPU_FORWARD,
                                   .inference = true,
                                   .source = descs[X],
                                   .weights = descs[W],
                                   .destination = descs[Y]};
    cpu_pass pass = {0};
    CHECK(cpu_pass_create_few_pixels(&pass, device, &product));
    void *scratch = aligned(pass.scratch_bytes), *kept = aligned(pass.kept_bytes);
    const cpu_own_addresses at = {.input = memory[X],
                                  .output = memory[Y],
                                  .weights = memory[W],
                                  .scratch = scratch,
                                  .kept = kept};
    CHECK(pass.own->calls->bind(pass.own, &at));
    pass.own->calls->prepare(pass.own, memory[W], kept);
    CHECK(pass.own->calls->run(pass.own));
    for (int i = 0; i < rows * OUT; i++) {
        double sum = 0;
        for (int k = 0; k < IN; k++)
            sum += (double)memory[X][i / OUT * IN + k] *
                   (double)memory[W][order == dnnl_ab ? i % OUT * IN + k : k * OUT + i % OUT];
        assert_true(fabs((double)memory[Y][i] - sum) < 2e-5);
    }
    cpu_pass_destroy(&pass);
    for (int i = 0; i < TENSORS; i++)
        test_free(memory[i]);
    free(scratch);
    free(kept);
}

static void few_pixels_equal_a_plain_product(void **state) {
    (void)state;
    if (!has_avx512()) return;
    yoke_devices *devices = check_devices(2);
    cpu_device *device = cpu_of(yoke_devices_at(devices, 0));
    yoke_device_scope scope;
    CHECK(yoke_device_enter(&device->base, false, &scope));
    check_product(device, 1, dnnl_ab);
    check_product(device, 15, dnnl_ba);
    check_product(device, 29, dnnl_ab);
    yoke_device_leave(&device->base, &scope);
    yoke_devices_close(devices);
}

/* Its weights lie plain, or in blocks of 16 channels. */
static void fill_depthwise(float *to, const double *exact, const cpu_desc *desc, int taps) {
    bool blocked = desc->inner_count > 0;
    for (int c = 0; c < (int)desc->dims[0]; c++)
        for (int tap = 0; tap < taps; tap++)
            to[blocked ? (c / 16 * taps + tap) * 16 + c % 16 : c * taps + tap] =
                (float)exact[c * taps + tap];
}

static double depthwise_sum(const tensors *t, const shape *s, int n, int c, int row, int column) {
    double sum = s->bias ? (double)t->bias[c] : 0;
    for (int tap = 0; tap < s->kernel * s->kernel; tap++) {
        int y = row * s->stride - s->padding + tap / s->kernel;
        int x = column * s->stride - s->padding + tap % s->kernel;
        if (y < 0 || x < 0 || y >= s->height || x >= s->width) continue;
        sum += t->exact[X][((n * s->in + c) * s->height + y) * s->width + x] *
               t->exact[W][c * s->kernel * s->kernel + tap];
    }
    return s->activation == RELU && sum < 0 ? 0 : sum;
}

static void check_depthwise(const shape *s, int threads, bool blocked) {
    yoke_devices *devices = check_devices(threads);
    cpu_device *device = cpu_of(yoke_devices_at(devices, 0));
    yoke_device_scope scope;
    CHECK(yoke_device_enter(&device->base, false, &scope));
    tensors t = {0};
    shape flat = *s;
    flat.in = 1; /* as many weights as a depthwise convolution has */
    make(&t, device, &flat, dnnl_nhwc, dnnl_oihw);
    double *weights = t.exact[W];
    t.exact[W] = check_random((size_t)(s->out * s->kernel * s->kernel), -1, 1, 5);
    test_free(weights);
    test_free(t.exact[X]);
    free(t.memory[X]);
    const dnnl_dims_t from = {s->rows, s->in, s->height, s->width};
    const dnnl_dims_t grouped = {s->in, 1, 1, s->kernel, s->kernel};
    assert_int_equal(cpu_desc_by_tag(&t.descs[X], &device->descs, 4, from, dnnl_f32,
                                     blocked ? dnnl_nChw16c : dnnl_nhwc),
                     dnnl_success);
    assert_int_equal(cpu_desc_by_tag(&t.descs[W], &device->descs, 5, grouped, dnnl_f32,
                                     blocked ? dnnl_Goihw16g : dnnl_goihw),
                     dnnl_success);
    cpu_layout_store(&t.layouts[X], t.descs[X]);
    cpu_layout_store(&t.layouts[W], t.descs[W]);
    t.exact[X] = check_random(count_of(t.descs[X]), -1, 1, 6);
    t.memory[X] = aligned_alloc(64, (t.layouts[X].bytes + 63) / 64 * 64);
    check_store(&t.layouts[X], t.memory[X], t.exact[X]);
    fill_depthwise(t.memory[W], t.exact[W], t.descs[W], s->kernel * s->kernel);
    const cpu_operation convolution = describe(&t, s);
    cpu_pass pass = {0};
    CHECK(cpu_pass_create_depthwise_wide(&pass, device, &convolution));
    run(&t, s, pass.own);
    int high = (int)t.descs[Y]->dims[2], wide = (int)t.descs[Y]->dims[3];
    for (int i = 0; i < s->rows * s->out * high * wide; i++) {
        int plane = i / (high * wide), pixel = i % (high * wide);
        t.exact[Y][i] =
            depthwise_sum(&t, s, plane / s->out, plane % s->out, pixel / wide, pixel % wide);
    }
    check_memory("depthwise", &t.layouts[Y], t.memory[Y], t.exact[Y], 1e-6);
    cpu_pass_destroy(&pass);
    drop(&t);
    yoke_device_leave(&device->base, &scope);
    yoke_devices_close(devices);
}

static void depthwise_equals_a_plain_one(void **state) {
    (void)state;
    if (!has_avx512()) return;
    static const shape small = {2, 32, 5, 6, 32, 3, 2, 1, true, false, RELU};
    static const shape pixel = {1, 64, 1, 1, 64, 3, 1, 1, false, false, NONE};
    static const shape large = {3, 48, 17, 12, 48, 5, 1, 2, true, false, NONE};
    check_depthwise(&small, 2, false);
    check_depthwise(&small, 2, true);
    check_depthwise(&pixel, 1, false);
    check_depthwise(&large, 2, true);
}

/* A NaN in a pixel reaches all outputs that read it, through every activation. */
static void nan_stays_nan(void **state) {
    (void)state;
    if (!has_avx512()) return;
    static const cpu_finish finish = {.low = 0, .high = 6};
    const float sums[3] = {NAN, -1, 7};
    float to[4] = {9, 9, 9, 9};
    cpu_finish_sums(&finish, sums, to, 3);
    assert_true(isnan(to[0]));
    assert_true(to[1] == 0 && to[2] == 6 && to[3] == 9);
    float tile[36][16] = {{NAN}}, output[16][16];
    const winograd_epilogue epilogue = {.low = 0, .high = 6};
    const winograd_window window = {
        .origin = (char *)output, .line = 64, .pixel = 16, .rows = {0, 4}, .columns = {0, 4}};
    winograd_large.transform_output(tile[0], 16, &epilogue, &window);
    assert_true(isnan(output[0][0]));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(winograd_equals_a_plain_convolution),
        cmocka_unit_test(few_pixels_equal_a_plain_convolution),
        cmocka_unit_test(odd_channels_take_few_pixels_alone),
        cmocka_unit_test(all_refuse_what_they_do_not_compute),
        cmocka_unit_test(few_pixels_equal_a_plain_product),
        cmocka_unit_test(depthwise_equals_a_plain_one),
        cmocka_unit_test(nan_stays_nan),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
