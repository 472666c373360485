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
    {2, 16, 32, 32, 16, 1, false},  {3, 32, 16, 16, 32, 1, true},    {5, 64, 8, 8, 64, 1, false},
    {4, 64, 32, 32, 64, 1, false},  {3, 128, 16, 16, 128, 1, false}, {4, 256, 8, 8, 256, 1, false},
    {32, 512, 4, 4, 512, 1, false}, {3, 64, 28, 28, 64, 1, true},    {3, 32, 14, 14, 64, 1, false},
    {5, 64, 7, 7, 32, 1, false},    {3, 256, 2, 2, 256, 1, true},    {2, 16, 9, 5, 32, 0, true},
    {2, 32, 5, 6, 16, 2, false},    {1, 128, 3, 11, 64, 1, true},    {2, 48, 10, 10, 80, 1, true},
    {1, 16, 1, 1, 16, 1, false},    {40, 64, 16, 16, 192, 1, false}};

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

/* A tensor [dims[0], ...] in double, without a layout. */
static double *plain(const cpu_winograd_layout *layout, const int *dims, const float *from) {
    size_t count = (size_t)dims[0] * (size_t)dims[1] * (size_t)dims[2] * (size_t)dims[3], at = 0;
    double *to = calloc(count, sizeof *to);
    for (int a = 0; a < dims[0]; a++)
        for (int b = 0; b < dims[1]; b++)
            for (int h = 0; h < dims[2]; h++)
                for (int w = 0; w < dims[3]; w++)
                    to[at++] = from == NULL ? 0 : (double)from[place(layout, a, b, h, w)];
    return to;
}

/* One output plane, one input plane and the filter between them, by the definition. */
static void convolve(const cpu_winograd_problem *p, double *x, double *taps, double *y) {
    int high = p->height + 2 * p->padding - 2, wide = p->width + 2 * p->padding - 2;
    for (int tap = 0; tap < 9; tap++) {
        int down = tap / 3 - p->padding, right = tap % 3 - p->padding;
        for (int h = down < 0 ? -down : 0; h < high && h + down < p->height; h++)
            for (int w = right < 0 ? -right : 0; w < wide && w + right < p->width; w++) {
                double *input = &x[(h + down) * p->width + w + right], *output = &y[h * wide + w];
                if (p->direction == CPU_WINOGRAD_FORWARD) *output += *input * taps[tap];
                if (p->direction == CPU_WINOGRAD_BACKWARD_DATA) *input += *output * taps[tap];
                if (p->direction == CPU_WINOGRAD_BACKWARD_WEIGHTS) taps[tap] += *output * *input;
            }
    }
}

typedef struct tensors {
    int dims[3][4]; /* of x, w, y */
    size_t counts[3];
    float *floats[3], *bias;
    double *exact[3]; /* plain; the one written zeroed */
} tensors;

static void compute_exact(const cpu_winograd_problem *p, const tensors *t) {
    const int *w = t->dims[1], *y = t->dims[2];
    int x_plane = p->height * p->width, y_plane = y[2] * y[3];
    for (int n = 0; n < p->rows; n++)
        for (int o = 0; o < w[0]; o++) {
            double *plane = t->exact[2] + (ptrdiff_t)(n * w[0] + o) * y_plane;
            if (p->direction == CPU_WINOGRAD_FORWARD && t->bias != NULL)
                for (int i = 0; i < y_plane; i++)
                    plane[i] = (double)t->bias[o];
            for (int i = 0; i < w[1]; i++)
                convolve(p, t->exact[0] + (ptrdiff_t)(n * w[1] + i) * x_plane,
                         t->exact[1] + (o * w[1] + i) * 9, plane);
        }
}

/* The largest error beside the root of the mean square of the exact values. */
static double relative_error(const cpu_winograd_layout *layout, const int *dims, const float *got,
                             const double *exact) {
    double *values = plain(layout, dims, got), worst = 0, squares = 0;
    size_t count = (size_t)dims[0] * (size_t)dims[1] * (size_t)dims[2] * (size_t)dims[3];
    for (size_t i = 0; i < count; i++) {
        double error = fabs(values[i] - exact[i]);
        if (!(error <= worst)) worst = error;
        squares += exact[i] * exact[i];
    }
    free(values);
    return worst / sqrt(squares / (double)count + 1e-30);
}

static double bias_error(const tensors *t) {
    const int *dims = t->dims[2];
    double worst = 0;
    for (int o = 0; o < dims[1]; o++) {
        double sum = 0;
        for (int n = 0; n < dims[0]; n++)
            for (int i = 0; i < dims[2] * dims[3]; i++)
                sum += t->exact[2][(ptrdiff_t)(n * dims[1] + o) * dims[2] * dims[3] + i];
        double error = fabs((double)t->bias[o] - sum);
        if (!(error <= worst)) worst = error;
    }
    return worst / sqrt((double)(dims[0] * dims[2] * dims[3]));
}

static dnnl_engine_t engine;
static dnnl_stream_t stream;

/* Twice: scratch full of NaN, then of what the first run left. */
static bool run_twice(const cpu_winograd_problem *p, const tensors *t, float *written,
                      size_t count) {
    cpu_winograd *winograd = NULL;
    if (cpu_winograd_create(&winograd, engine, p) != dnnl_success) return false;
    size_t bytes = (cpu_winograd_scratch_bytes(winograd) + 4095) / 4096 * 4096;
    void *scratch = aligned_alloc(4096, bytes);
    float *once = malloc(count * sizeof *once);
    memset(scratch, 0xff, bytes);
    memset(written, 0xff, count * sizeof *written);
    const cpu_winograd_addresses at = {t->floats[0], t->floats[1], t->bias, t->floats[2], scratch};
    bool ran = cpu_winograd_bind(winograd, &at) == dnnl_success &&
               cpu_winograd_run(winograd, stream) == dnnl_success;
    memcpy(once, written, count * sizeof *once);
    ran = ran && cpu_winograd_run(winograd, stream) == dnnl_success &&
          memcmp(once, written, count * sizeof *once) == 0;
    free(once);
    free(scratch);
    cpu_winograd_destroy(winograd);
    return ran;
}

static double check(const shape *s, int direction, int values, int weights, int threads) {
    int high = s->height + 2 * s->padding - 2, wide = s->width + 2 * s->padding - 2;
    cpu_winograd_problem p = {.direction = (cpu_winograd_direction)direction,
                              .rows = s->rows,
                              .padding = s->padding,
                              .input_channels = s->in,
                              .height = s->height,
                              .width = s->width,
                              .output_channels = s->out,
                              .input = values ? channels_last(s->in, s->height, s->width)
                                              : blocked_values(s->in, s->height, s->width),
                              .output = values ? channels_last(s->out, high, wide)
                                               : blocked_values(s->out, high, wide),
                              .weights = weights_layout(weights, s->out, s->in),
                              .threads = threads};
    const cpu_winograd_layout *layouts[3] = {&p.input, &p.weights, &p.output};
    const int which = direction == 0 ? 2 : direction == 1 ? 0 : 1;
    tensors t = {.dims = {{s->rows, s->in, s->height, s->width},
                          {s->out, s->in, 3, 3},
                          {s->rows, s->out, high, wide}}};
    if (s->bias) t.bias = random_floats((size_t)s->out, 9);
    for (int i = 0; i < 3; i++) {
        const int *dims = t.dims[i];
        t.counts[i] = (size_t)dims[0] * (size_t)dims[1] * (size_t)(dims[2] * dims[3]);
        t.floats[i] = random_floats(t.counts[i], (uint64_t)i);
        t.exact[i] = plain(layouts[i], dims, i == which ? NULL : t.floats[i]);
    }
    compute_exact(&p, &t);
    double error = INFINITY;
    if (run_twice(&p, &t, t.floats[which], t.counts[which]))
        error = relative_error(layouts[which], t.dims[which], t.floats[which], t.exact[which]);
    if (s->bias && direction == 2 && !(bias_error(&t) < 1e-5)) error = INFINITY;
    for (int i = 0; i < 3; i++) {
        free(t.floats[i]);
        free(t.exact[i]);
    }
    free(t.bias);
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
            for (int values = 0; values < 2; values++)
                for (int weights = 0; weights < 5; weights++) {
                    if (s->in >= 256 && weights != values) continue;
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
