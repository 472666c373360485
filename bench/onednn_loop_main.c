/* SPDX-License-Identifier: Apache-2.0 */
/* The oneDNN loop alone: images per second, and with --check the proof that it trains. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "onednn_loop.h"

#define ROW (3 * 32 * 32)

static double now_s(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

/* So few rows may jump at the end: the lowest loss counts. */
static bool has_learned(double first, double lowest) {
    return lowest < first * 0.8;
}

/* Trains on one random batch. Returns the exit code: a check stops when the loss has fallen, and
 * fails if it never falls. */
static int race(const onednn_loop_options *options, int steps, bool check) {
    int rows = options->rows * options->devices;
    float *inputs = malloc((size_t)rows * ROW * sizeof *inputs);
    int32_t *labels = malloc((size_t)rows * sizeof *labels);
    if (!inputs || !labels) return 71;
    srand(7);
    for (int i = 0; i < rows * ROW; i++)
        inputs[i] = (float)rand() / (float)RAND_MAX * 2 - 1;
    for (int i = 0; i < rows; i++)
        labels[i] = rand() % 10;
    double begin = now_s();
    onednn_loop *loop = onednn_loop_create(options);
    onednn_loop_batch(loop, inputs, labels);
    double built = now_s(), first = onednn_loop_run(loop, 1), best = 1e30, last = 0;
    double lowest = first;
    int step = 0;
    for (; step < steps && !(check && has_learned(first, lowest)); step++) {
        double start = now_s();
        last = onednn_loop_run(loop, 1);
        double took = now_s() - start;
        if (took < best) best = took;
        if (last < lowest) lowest = last;
    }
    printf(
        "%-14s %s %d x %d thread(s): %7.1f img/s best of %d, loss %.4f -> %.4f, built in %.1f s\n",
        options->network, options->bfloat16 ? "bf16" : "f32 ", options->devices, options->threads,
        rows / best, step, first, last, built - begin);
    onednn_loop_destroy(loop);
    free(inputs);
    free(labels);
    if (!check || has_learned(first, lowest)) return 0;
    fprintf(stderr, "loss of a fixed batch did not fall\n");
    return 1;
}

int main(int argc, char **argv) {
    bool check = argc > 1 && strcmp(argv[1], "--check") == 0;
    static const char *const networks[] = {"resnet18-cifar", "resnet50"};
    int failed = 0, rows = check ? 8 : 32, steps = check ? 16 : 5;
    if (argc > 2) steps = atoi(argv[2]);
    for (int network = 0; network < 2; network++)
        for (int variant = 0; variant < 4; variant++) {
            onednn_loop_options options = {.network = networks[network],
                                           .rows = rows,
                                           .devices = variant / 2 + 1,
                                           .threads = 1,
                                           .bfloat16 = variant % 2,
                                           .learning_rate = network == 0 ? 1e-2f : 1e-3f,
                                           .momentum = 0.9f,
                                           .weight_decay = 5e-4f};
            failed |= race(&options, steps, check);
        }
    return failed;
}
