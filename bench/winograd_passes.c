/* Winograd's convolution against oneDNN's direct one, and against oneDNN's own Winograd where there
 * is one: milliseconds a pass, runs interleaved, the median of each.
 *     winograd_passes [ROWS [THREADS [FIRST END]]]; NHWC=1 for channels last */
#include <dnnl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "device/cpu/winograd.h"

typedef struct shape {
    const char *model;
    int channels, size, out;
} shape;

static const shape shapes[] = {{"resnet18-cifar", 64, 32, 64},  {"resnet18-cifar", 128, 16, 128},
                               {"resnet18-cifar", 256, 8, 256}, {"resnet18-cifar", 512, 4, 512},
                               {"resnet20", 16, 32, 16},        {"resnet20", 32, 16, 32},
                               {"resnet20", 64, 8, 64},         {"resnet50 at 32", 128, 4, 128},
                               {"resnet50 at 32", 256, 2, 256}, {"resnet50", 64, 56, 64},
                               {"resnet50", 128, 28, 128},      {"resnet50", 256, 14, 256},
                               {"resnet50", 512, 7, 512}};

enum { RUNS = 15, WAYS = 3 };

static dnnl_engine_t engine;
static dnnl_stream_t stream;

static double now_ms(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec * 1e3 + (double)time.tv_nsec * 1e-6;
}

static float *floats(size_t bytes) {
    size_t rounded = (bytes + 4095) / 4096 * 4096 + 4096;
    float *to = aligned_alloc(4096, rounded);
    for (size_t i = 0; i < rounded / sizeof *to; i++)
        to[i] = (float)(i * 2654435761u % 1000) * 0.001f - 0.5f;
    return to;
}

/* One pass of oneDNN's, with the layouts it likes. */
typedef struct native {
    dnnl_primitive_t primitive;
    dnnl_exec_arg_t arguments[4];
} native;

static dnnl_primitive_desc_t describe(const shape *s, int rows, int direction,
                                      dnnl_alg_kind_t algorithm, dnnl_primitive_desc_t hint) {
    const dnnl_dims_t in = {rows, s->channels, s->size, s->size}, strides = {1, 1};
    const dnnl_dims_t out = {rows, s->out, s->size, s->size}, taps = {s->out, s->channels, 3, 3};
    dnnl_primitive_desc_t to = NULL;
    dnnl_primitive_attr_t attributes;
    dnnl_primitive_attr_create(&attributes);
    dnnl_primitive_attr_set_scratchpad_mode(attributes, dnnl_scratchpad_mode_user);
    const dnnl_format_tag_t any = dnnl_format_tag_any;
    const dnnl_format_tag_t fixed = getenv("NHWC") ? dnnl_nhwc : any;
#if DNNL_VERSION_MAJOR >= 3
    dnnl_memory_desc_t x, w, y;
    const dnnl_dims_t dilation = {0, 0};
    dnnl_memory_desc_create_with_tag(&x, 4, in, dnnl_f32, fixed);
    dnnl_memory_desc_create_with_tag(&w, 4, taps, dnnl_f32, any);
    dnnl_memory_desc_create_with_tag(&y, 4, out, dnnl_f32, fixed);
    if (direction == 0)
        dnnl_convolution_forward_primitive_desc_create(&to, engine, dnnl_forward_training,
                                                       algorithm, x, w, NULL, y, strides, dilation,
                                                       strides, strides, attributes);
    if (direction == 1)
        dnnl_convolution_backward_data_primitive_desc_create(
            &to, engine, algorithm, x, w, y, strides, dilation, strides, strides, hint, attributes);
    if (direction == 2)
        dnnl_convolution_backward_weights_primitive_desc_create(&to, engine, algorithm, x, w, NULL,
                                                                y, strides, dilation, strides,
                                                                strides, hint, attributes);
    dnnl_memory_desc_destroy(x);
    dnnl_memory_desc_destroy(w);
    dnnl_memory_desc_destroy(y);
#else
    dnnl_memory_desc_t x, w, y;
    dnnl_convolution_desc_t desc;
    dnnl_memory_desc_init_by_tag(&x, 4, in, dnnl_f32, fixed);
    dnnl_memory_desc_init_by_tag(&w, 4, taps, dnnl_f32, any);
    dnnl_memory_desc_init_by_tag(&y, 4, out, dnnl_f32, fixed);
    if (direction == 0)
        dnnl_convolution_forward_desc_init(&desc, dnnl_forward_training, algorithm, &x, &w, NULL,
                                           &y, strides, strides, strides);
    if (direction == 1)
        dnnl_convolution_backward_data_desc_init(&desc, algorithm, &x, &w, &y, strides, strides,
                                                 strides);
    if (direction == 2)
        dnnl_convolution_backward_weights_desc_init(&desc, algorithm, &x, &w, NULL, &y, strides,
                                                    strides, strides);
    dnnl_primitive_desc_create(&to, &desc, attributes, engine, hint);
#endif
    dnnl_primitive_attr_destroy(attributes);
    return to;
}

static int create_native(native *to, const shape *s, int rows, int direction,
                         dnnl_alg_kind_t algorithm) {
    static const int names[3][3] = {{DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DST},
                                    {DNNL_ARG_DIFF_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DIFF_DST},
                                    {DNNL_ARG_SRC, DNNL_ARG_DIFF_WEIGHTS, DNNL_ARG_DIFF_DST}};
    memset(to, 0, sizeof *to);
    dnnl_primitive_desc_t hint = describe(s, rows, 0, dnnl_convolution_direct, NULL);
    dnnl_primitive_desc_t own = describe(s, rows, direction, algorithm, hint);
    dnnl_primitive_desc_destroy(hint);
    if (own == NULL) return 0;
    dnnl_primitive_create(&to->primitive, own);
    for (int i = 0; i < 4; i++) {
        int name = i < 3 ? names[direction][i] : DNNL_ARG_SCRATCHPAD;
#if DNNL_VERSION_MAJOR >= 3
        const_dnnl_memory_desc_t desc =
            dnnl_primitive_desc_query_md(own, dnnl_query_exec_arg_md, name);
#else
        const dnnl_memory_desc_t *desc =
            dnnl_primitive_desc_query_md(own, dnnl_query_exec_arg_md, name);
#endif
        to->arguments[i].arg = name;
        dnnl_memory_create(&to->arguments[i].memory, desc, engine,
                           floats(dnnl_memory_desc_get_size(desc)));
    }
    dnnl_primitive_desc_destroy(own);
    return 1;
}

static void destroy_native(native *of) {
    if (of->primitive == NULL) return;
    for (int i = 0; i < 4; i++) {
        void *handle;
        dnnl_memory_get_data_handle(of->arguments[i].memory, &handle);
        free(handle);
        dnnl_memory_destroy(of->arguments[i].memory);
    }
    dnnl_primitive_destroy(of->primitive);
}

static cpu_winograd *create_own(const shape *s, int rows, int direction, int threads,
                                cpu_winograd_addresses *at) {
    int size = s->size, in = s->channels;
    cpu_winograd_layout values = {
        {in * size * size, size * size * 16, size * 16, 16}, 1, {1}, {16}};
    if (getenv("NHWC"))
        values = (cpu_winograd_layout){.strides = {in * size * size, 1, size * in, in}};
    cpu_winograd_problem problem = {
        .direction = (cpu_winograd_direction)direction,
        .rows = rows,
        .padding = 1,
        .input_channels = in,
        .height = size,
        .width = size,
        .output_channels = s->out,
        .input = values,
        .output = values,
        .weights = {{in * 9 * 16, 9 * 256, 3 * 256, 256}, 2, {1, 0}, {16, 16}},
        .threads = threads};
    cpu_winograd *own = NULL;
    if (cpu_winograd_create(&own, engine, &problem) != dnnl_success) return NULL;
    size_t bytes = sizeof(float) * (size_t)(rows * in * size * size);
    *at = (cpu_winograd_addresses){floats(bytes), floats(sizeof(float) * (size_t)(in * s->out * 9)),
                                   NULL, floats(bytes), floats(cpu_winograd_scratch_bytes(own))};
    cpu_winograd_bind(own, at);
    return own;
}

static int ascending(const void *a, const void *b) {
    double difference = *(const double *)a - *(const double *)b;
    return (difference > 0) - (difference < 0);
}

static void compare(const shape *s, int rows, int direction, int threads) {
    static const char *const names[3] = {"forward", "data", "weights"};
    native natives[2];
    cpu_winograd_addresses at = {0};
    create_native(&natives[0], s, rows, direction, dnnl_convolution_direct);
    create_native(&natives[1], s, rows, direction, dnnl_convolution_winograd);
    cpu_winograd *own = create_own(s, rows, direction, threads, &at);
    double times[WAYS][RUNS] = {{0}};
    for (int run = -3; run < RUNS; run++) {
        for (int way = 0; way < WAYS; way++) {
            double start = now_ms();
            if (way < 2 && natives[way].primitive != NULL)
                dnnl_primitive_execute(natives[way].primitive, stream, 4, natives[way].arguments);
            if (way == 2) cpu_winograd_run(own, stream);
            if (run >= 0) times[way][run] = now_ms() - start;
        }
    }
    for (int way = 0; way < WAYS; way++)
        qsort(times[way], RUNS, sizeof(double), ascending);
    double direct = times[0][RUNS / 2], theirs = times[1][RUNS / 2], ours = times[2][RUNS / 2];
    printf("%-14s %3dx%-2d %-8s direct %7.3f  own %7.3f  %5.2f x direct", s->model, s->channels,
           s->size, names[direction], direct, ours, direct / ours);
    if (natives[1].primitive != NULL)
        printf("   oneDNN's %7.3f  own %5.2f x oneDNN's", theirs, theirs / ours);
    printf("\n");
    fflush(stdout);
    destroy_native(&natives[0]);
    destroy_native(&natives[1]);
    cpu_winograd_destroy(own);
    free(at.input), free(at.weights), free(at.output), free(at.scratch);
}

int main(int argc, char **argv) {
    int rows = argc > 1 ? atoi(argv[1]) : 32, threads = argc > 2 ? atoi(argv[2]) : 1;
    size_t first = argc > 3 ? (size_t)atoi(argv[3]) : 0;
    size_t end = argc > 4 ? (size_t)atoi(argv[4]) : sizeof shapes / sizeof shapes[0];
    dnnl_engine_create(&engine, dnnl_cpu, 0);
    dnnl_stream_create(&stream, engine, dnnl_stream_default_flags);
    for (size_t i = first; i < end; i++)
        for (int direction = 0; direction < 3; direction++)
            compare(&shapes[i], rows, direction, threads);
    dnnl_stream_destroy(stream);
    dnnl_engine_destroy(engine);
    return 0;
}
