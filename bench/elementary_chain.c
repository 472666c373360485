/* SPDX-License-Identifier: Apache-2.0 */
/* A chain of eight elementary functions beside memcpy of as many bytes, turn by turn, on one CPU
 * device. Forward reads and writes each element once; backward reads two and writes one.
 *
 * usage: elementary_chain [THREADS [MEBIBYTES]]   (1, 64) */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "device/device.h"

enum { ROUNDS = 15 };

static void must(yoke_status status) {
    if (status == YOKE_OK) return;
    fprintf(stderr, "elementary_chain: %s\n", yoke_last_error());
    exit(1);
}

static const yoke_expression chain = {
    .inputs = 1,
    .count = 8,
    .terms = {{YOKE_FN_SCALE, {0}, 0.5f, 0},
              {YOKE_FN_OFFSET, {YOKE_EXPRESSION_INPUTS}, 0.1f, 0},
              {YOKE_FN_SQUARE, {YOKE_EXPRESSION_INPUTS + 1}, 0, 0},
              {YOKE_FN_NEGATE, {YOKE_EXPRESSION_INPUTS + 2}, 0, 0},
              {YOKE_FN_ADD, {YOKE_EXPRESSION_INPUTS + 3, 0}, 0, 0},
              {YOKE_FN_CLAMP, {YOKE_EXPRESSION_INPUTS + 4}, -2, 2},
              {YOKE_FN_LEAKY_RELU, {YOKE_EXPRESSION_INPUTS + 5}, 0.1f, 0},
              {YOKE_FN_MULTIPLY, {YOKE_EXPRESSION_INPUTS + 6, 0}, 0, 0}},
};

typedef struct bench {
    yoke_device *device;
    yoke_plan *plan;
    size_t elements;
    float *values[4]; /* input, output, output gradient, input gradient */
} bench;

static void prepare(bench *b, size_t rows) {
    yoke_dims row = {.channels = 1 << 16, .height = 1, .width = 1};
    yoke_operation operation = {.kind = YOKE_OP_EXPRESSION,
                                .name = "chain",
                                .input = row,
                                .output = row,
                                .expression = chain};
    yoke_plan_request request = {
        .operation = &operation, .rows = (int)rows, .training = true, .input_gradient = true};
    const int64_t shape[] = {(int64_t)rows, row.channels, 1, 1};
    must(yoke_layout_plain(b->device, shape, 4, &request.inputs[0]));
    must(yoke_plan_create(&b->plan, b->device, &request));
    b->elements = rows * (size_t)row.channels;
    void *scratch = NULL;
    for (int i = 0; i < 4; i++) {
        must(yoke_device_allocate(b->device, b->elements * sizeof(float), "values",
                                  (void **)&b->values[i]));
        for (size_t k = 0; k < b->elements; k++)
            b->values[i][k] = (float)((k * 37) % 1001) / 500 - 1;
    }
    must(yoke_device_allocate(b->device, yoke_plan_describe(b->plan)->scratch_bytes + 64, "scratch",
                              &scratch));
    const yoke_plan_binding binding = {.inputs = {b->values[0]},
                                       .output = b->values[1],
                                       .output_gradient = b->values[2],
                                       .input_gradients = {b->values[3]},
                                       .scratch = scratch};
    must(yoke_plan_bind(b->plan, &binding));
}

static double seconds_of(bench *b, int what) {
    const yoke_plan_step step = {0};
    uint64_t start = yoke_now_ns();
    if (what == 0) memcpy(b->values[1], b->values[0], b->elements * sizeof(float));
    if (what == 1) must(yoke_plan_forward(b->plan, &step));
    if (what == 2) must(yoke_plan_backward(b->plan, &step));
    return (double)(yoke_now_ns() - start) * 1e-9;
}

int main(int argc, char **argv) {
    int threads = argc > 1 ? atoi(argv[1]) : 1;
    size_t rows = argc > 2 ? (size_t)atoi(argv[2]) * 4 : 256;
    static const char *const names[] = {"memcpy", "forward", "backward"};
    static const double passes[] = {2, 2, 3}; /* elements read and written */
    yoke_devices_options options = {
        .struct_size = sizeof options, .list = "cpu", .threads = threads};
    yoke_devices *devices = NULL;
    yoke_device_scope scope;
    bench b = {0};
    must(yoke_devices_open(&devices, &options));
    b.device = yoke_devices_at(devices, 0);
    must(yoke_device_enter(b.device, true, &scope));
    prepare(&b, rows);
    double best[3] = {1e9, 1e9, 1e9};
    for (int round = 0; round < ROUNDS; round++)
        for (int what = 0; what < 3; what++) {
            double seconds = seconds_of(&b, what);
            if (seconds < best[what]) best[what] = seconds;
        }
    for (int what = 0; what < 3; what++) {
        double bytes = passes[what] * (double)b.elements * sizeof(float);
        printf("%-9s %6.2f GB/s, %.2f times memcpy's time for its bytes\n", names[what],
               bytes / best[what] * 1e-9, best[what] / passes[what] / (best[0] / passes[0]));
    }
    return 0;
}
