/* SPDX-License-Identifier: Apache-2.0 */
/* Each of Yoke's own kernels of convolutions for inference equals a plain convolution in double,
 * with bias, add and activation, for every layout of values and weights, and for sizes that no tile
 * divides; a second run with other weights has nothing of the first. */
#include "operation_check.h"

#include "device/cpu/pass.h"

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
               {"winograd 2x2 by filters", cpu_pass_create_winograd_2_filters, 2e-5}};
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
    kernel->calls->prepare(kernel);
    CHECK(kernel->calls->run(kernel));
    memcpy(t->memory[W], weights, bytes);
    memcpy(t->memory[Y], before, output_bytes);
    kernel->calls->prepare(kernel);
    CHECK(kernel->calls->run(kernel));
    test_free(weights);
    test_free(before);
    free(scratch);
    free(kept);
}

/* Answers how many kernels took the shape. */
static int check_shape(const shape *s, int threads) {
    static const dnnl_format_tag_t values[] = {dnnl_nChw16c, dnnl_nhwc};
    static const dnnl_format_tag_t weights[] = {dnnl_OIhw16i16o, dnnl_oihw, dnnl_Ohwi16o};
    yoke_devices *devices = check_devices(threads);
    cpu_device *device = cpu_of(yoke_devices_at(devices, 0));
    yoke_device_scope scope;
    int taken = 0;
    CHECK(yoke_device_enter(&device->base, false, &scope));
    for (int k = 0; k < KERNELS; k++) {
        tensors t = {0};
        make(&t, device, s, values[k % 2], weights[(k + s->in) % 3]);
        cpu_operation convolution = describe(&t, s);
        cpu_pass pass = {0};
        yoke_status status = kernels[k].create(&pass, device, &convolution);
        if (status == YOKE_OK) {
            run(&t, s, pass.own);
            compute_exact(&t, s);
            check_memory(kernels[k].name, &t.layouts[Y], t.memory[Y], t.exact[Y],
                         kernels[k].tolerance);
            taken++;
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

/* Panels of one, two and four vectors, fewer tiles than threads, several blocks of tiles. */
static void equals_a_plain_convolution(void **state) {
    (void)state;
    static const shape shapes[] = {{2, 16, 32, 32, 16, 3, 1, 1, true, true, RELU},
                                   {3, 32, 16, 16, 32, 3, 1, 1, true, false, CLIP},
                                   {1, 64, 7, 7, 64, 3, 1, 1, false, true, NONE},
                                   {3, 64, 2, 2, 48, 3, 1, 1, true, true, RELU},
                                   {2, 16, 9, 5, 32, 3, 1, 0, true, false, NONE},
                                   {2, 32, 5, 6, 16, 3, 1, 2, false, false, RELU},
                                   {1, 256, 4, 4, 128, 3, 1, 1, true, true, RELU},
                                   {40, 16, 16, 16, 80, 3, 1, 1, true, false, RELU},
                                   {1, 16, 1, 1, 16, 3, 1, 1, false, false, NONE}};
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++)
        assert_int_equal(check_shape(&shapes[i], 1 + (int)(i % 2)), has_avx512() ? KERNELS : 1);
}

static void refuse_what_does_not_fit(void **state) {
    (void)state;
    static const shape odd = {2, 12, 8, 8, 16, 3, 1, 1, false, false, NONE};
    static const shape wide = {2, 16, 8, 8, 16, 5, 1, 2, false, false, NONE};
    static const shape smooth = {2, 16, 8, 8, 16, 3, 1, 1, false, false, dnnl_eltwise_swish};
    assert_int_equal(check_shape(&odd, 1), 0);
    assert_int_equal(check_shape(&wide, 1), 0);
    assert_int_equal(check_shape(&smooth, 1), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(equals_a_plain_convolution),
        cmocka_unit_test(refuse_what_does_not_fit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
