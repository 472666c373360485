/* Winograd's convolution equals a plain one in double: every pass, layouts of values and weights,
 * padding, heights and widths that no tile divides, bias, one thread and more; and the same bits
 * again. */
#include <dnnl.h>
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device/cpu/winograd.h"

typedef struct shape {
    int rows, in, height, width, out, padding;
    bool bias;
} shape;

static const shape shapes[] = {
    {2, 16, 32, 32, 16, 1, false}, {3, 32, 16, 16, 32, 1, true}, {5, 64, 8, 8, 64, 1, false},
    {4, 64, 32, 32, 64, 1, false}, {3, 128, 16, 16, 128, 1, false}, {4, 256, 8, 8, 256, 1, false},
    {32, 512, 4, 4, 512, 1, false}, {3, 64, 28, 28, 64, 1, true}, {3, 32, 14, 14, 64, 1, false},
    {5, 64, 7, 7, 32, 1, false}, {3, 256, 2, 2, 256, 1, true}, {2, 16, 9, 5, 32, 0, true},
    {2, 32, 5, 6, 16, 2, false}, {1, 128, 3, 11, 64, 1, true}, {2, 48, 10, 10, 80, 1, true},
    {1, 16, 1, 1, 16, 1, false}, {40, 64, 16, 16, 192, 1, false}};

static const char *const passes[3] = {"forward", "backward data", "backward weights"};

static cpu_winograd_layout blocked_values(int channels, int height, int width) {
    return (cpu_winograd_layout){
        .strides = {channels * height * width, height * width * 16, width * 16, 16},
        .block_count = 1,
        .block_dimensions = {1},
        .block_sizes = {16}};
}

static cpu_winograd_layout channels_last(int channels, int height, int width) {
    return (cpu_winograd_layout){
        .strides = {channels * height * width, 1, width * channels, channels}};
}

/* OIhw16i16o, OIhw16o16i, oihw, Ohwi16o, OIhw4i16o4i */
static cpu_winograd_layout weights_layout(int kind, int out, int in) {
    switch (kind) {
    case 0:
        return (cpu_winograd_layout){{in * 9 * 16, 9 * 256, 3 * 256, 256}, 2, {1, 0}, {16, 16}};
    case 1:
        return (cpu_winograd_layout){{in * 9 * 16, 9 * 256, 3 * 256, 256}, 2, {0, 1}, {16, 16}};
    case 2:
        return (cpu_winograd_layout){.strides = {in * 9, 9, 3, 1}};
    case 3:
        return (cpu_winograd_layout){{in * 9 * 16, 16, in * 48, in * 16}, 1, {0}, {16}};
    default:
        (void)out;
        return (cpu_winograd_layout){
            {in * 9 * 16, 9 * 256, 3 * 256, 256}, 3, {1, 0, 1}, {4, 16, 4}};
    }
}

/* Written out once more, by the definition. */
static size_t place(const cpu_winograd_layout *layout, int a, int b, int h, int w) {
    int index[2] = {a, b};
    ptrdiff_t offset = h * layout->strides[2] + w * layout->strides[3], inner = 1;
    for (int i = layout->block_count; i-- > 0;) {
        int d = layout->block_dimensions[i], size = layout->block_sizes[i];
        offset += (index[d] % size) * inner;
        index[d] /= size;
        inner *= size;
    }
    return (size_t)(offset + index[0] * layout->strides[0] + index[1] * layout->strides[1]);
}

static float *random_floats(size_t count, uint64_t seed) {
    float *to = aligned_alloc(64, (count * sizeof *to + 63) / 64 * 64);
    for (size_t i = 0; i < count; i++) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        to[i] = (float)((double)(seed >> 40) / (1 << 23) - 1);
    }
    return to;
}

typedef struct tensors {
    float *x, *w, *b, *y;
    size_t counts[4]; /* x, w, b, y */
} tensors;

/* Plain in double, into `exact` with the layout of what the pass writes; and the bias's gradient. */
static void reference(const cpu_winograd_problem *p, const tensors *t, double *exact,
                      double *bias) {
    int high = p->height + 2 * p->padding - 2, wide = p->width + 2 * p->padding - 2;
    memset(exact, 0, sizeof *exact * t->counts[p->direction == 0 ? 3 : p->direction == 1 ? 0 : 1]);
    memset(bias, 0, sizeof *bias * (size_t)p->output_channels);
    for (int n = 0; n < p->rows; n++)
        for (int o = 0; o < p->output_channels; o++)
            for (int h = 0; h < high; h++)
                for (int w = 0; w < wide; w++) {
                    size_t at_y = place(&p->output, n, o, h, w);
                    double sum = t->b != NULL ? (double)t->b[o] : 0;
                    if (p->direction == 2) bias[o] += (double)t->y[at_y];
                    for (int tap = 0; tap < 9; tap++) {
                        int row = h + tap / 3 - p->padding, column = w + tap % 3 - p->padding;
                        if (row < 0 || row >= p->height || column < 0 || column >= p->width)
                            continue;
                        size_t x = place(&p->input, n, 0, row, column);
                        size_t filter = place(&p->weights, o, 0, tap / 3, tap % 3);
                        for (int i = 0; i < p->input_channels; i++) {
                            if (i % 16 == 0) x = place(&p->input, n, i, row, column);
                            filter = place(&p->weights, o, i, tap / 3, tap % 3);
                            size_t at_x = x + (size_t)(i % 16);
                            if (p->direction == 0)
                                sum += (double)t->x[at_x] * (double)t->w[filter];
                            else if (p->direction == 1)
                                exact[at_x] += (double)t->y[at_y] * (double)t->w[filter];
                            else
                                exact[filter] += (double)t->y[at_y] * (double)t->x[at_x];
                        }
                    }
                    if (p->direction == 0) exact[at_y] = sum;
                }
}

/* The largest error beside the root of the mean square of the exact values. */
static double relative_error(const float *got, const double *exact, size_t count) {
    double worst = 0, squares = 0;
    for (size_t i = 0; i < count; i++) {
        double error = fabs((double)got[i] - exact[i]);
        if (!(error <= worst)) worst = error;
        squares += exact[i] * exact[i];
    }
    return worst / sqrt(squares / (double)count + 1e-30);
}

static dnnl_engine_t engine;
static dnnl_stream_t stream;

static double check(const shape *s, int direction, int values, int weights, int threads) {
    int high = s->height + 2 * s->padding - 2, wide = s->width + 2 * s->padding - 2;
    cpu_winograd_problem p = {
        .direction = (cpu_winograd_direction)direction,
        .rows = s->rows,
        .padding = s->padding,
        .input_channels = s->in,
        .height = s->height,
        .width = s->width,
        .output_channels = s->out,
        .input = values ? channels_last(s->in, s->height, s->width)
                        : blocked_values(s->in, s->height, s->width),
        .output = values ? channels_last(s->out, high, wide) : blocked_values(s->out, high, wide),
        .weights = weights_layout(weights, s->out, s->in),
        .threads = threads};
    tensors t = {.counts = {(size_t)(s->rows * s->in * s->height * s->width),
                            (size_t)(s->out * s->in * 9), (size_t)s->out,
                            (size_t)(s->rows * s->out * high * wide)}};
    t.x = random_floats(t.counts[0], 1);
    t.w = random_floats(t.counts[1], 2);
    t.b = s->bias ? random_floats(t.counts[2], 3) : NULL;
    t.y = random_floats(t.counts[3], 4);
    size_t count = t.counts[direction == 0 ? 3 : direction == 1 ? 0 : 1];
    float *written = direction == 0 ? t.y : direction == 1 ? t.x : t.w;
    double *exact = malloc(count * sizeof *exact), *bias = malloc((size_t)s->out * sizeof *bias);
    reference(&p, &t, exact, bias);
    cpu_winograd *winograd = NULL;
    double error = INFINITY;
    if (cpu_winograd_create(&winograd, engine, &p) == dnnl_success) {
        size_t bytes = (cpu_winograd_scratch_bytes(winograd) + 4095) / 4096 * 4096;
        void *scratch = aligned_alloc(4096, bytes);
        memset(scratch, 0xff, bytes); /* NaN */
        memset(written, 0xff, count * sizeof *written);
        cpu_winograd_bind(winograd, &(cpu_winograd_addresses){t.x, t.w, t.b, t.y, scratch});
        bool ran = cpu_winograd_run(winograd, stream) == dnnl_success;
        float *once = malloc(count * sizeof *once);
        memcpy(once, written, count * sizeof *once);
        ran = ran && cpu_winograd_run(winograd, stream) == dnnl_success;
        if (ran && memcmp(once, written, count * sizeof *once) == 0)
            error = relative_error(written, exact, count);
        if (ran && s->bias && direction == 2) {
            double of_bias = relative_error(t.b, bias, (size_t)s->out);
            if (!(of_bias < 1e-5)) printf("bias gradient: %g\n", of_bias), error = INFINITY;
        }
        free(once);
        free(scratch);
    }
    cpu_winograd_destroy(winograd);
    free(t.x), free(t.w), free(t.b), free(t.y), free(exact), free(bias);
    return error;
}

int main(int argc, char **argv) {
    int threads = argc > 1 ? atoi(argv[1]) : 1, failures = 0;
    dnnl_engine_create(&engine, dnnl_cpu, 0);
    dnnl_stream_create(&stream, engine, dnnl_stream_default_flags);
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        const shape *s = &shapes[i];
        for (int direction = 0; direction < 3; direction++) {
            double worst = 0;
            bool large = (long)s->in * s->out * s->rows * s->height * s->width > 40000000;
            for (int values = 0; values < 2; values++)
                for (int weights = 0; weights < 5; weights++) {
                    if (large && weights != values) continue;
                    double error = check(s, direction, values, weights, threads);
                    if (!(error <= worst)) worst = error;
                }
            bool good = worst < 1e-4;
            failures += !good;
            printf("%-16s rows %2d, %3d x %2d x %2d to %3d, padding %d: %.2g%s\n",
                   passes[direction], s->rows, s->in, s->height, s->width, s->out, s->padding,
                   worst, good ? "" : "  FAILED");
            fflush(stdout);
        }
    }
    dnnl_stream_destroy(stream);
    dnnl_engine_destroy(engine);
    return failures != 0;
}
