/* SPDX-License-Identifier: Apache-2.0 */
/* How long a call goes on behind yoke_cancel: at random moments of opening a net that measures its
 * algorithms, of a fit, an evaluation and a prediction; of one more fit, whose rows take
 * 20 ms each. No call ends inside an operation, or inside a callback.
 *
 * usage: cancel [CANCELLATIONS] [SEED] */
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "yoke/yoke.h"

enum { ROWS = 512, BATCH = 64, SIDE = 32, CLASSES = 10, KINDS = 5 };
#define ROW_NS 20000000

static void must(yoke_status status) {
    if (status == YOKE_OK) return;
    fprintf(stderr, "cancel: %s\n", yoke_last_error());
    exit(1);
}

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

typedef struct rig {
    yoke_model *model;
    yoke_net *net;
    yoke_net_options options;
    yoke_cancellation cancellation;
    yoke_dataset *slow;
    yoke_array inputs, labels, outputs;
    double after, cancelled; /* seconds; when yoke_cancel was called */
} rig;

static void *cancel_later(void *payload) {
    rig *own = payload;
    const struct timespec pause = {(time_t)own->after, (long)(1e9 * fmod(own->after, 1))};
    nanosleep(&pause, NULL);
    own->cancelled = now();
    yoke_cancel(&own->cancellation);
    return NULL;
}

static yoke_status read_slowly(void *payload, size_t row, float *input, int32_t *label,
                               float *targets) {
    const struct timespec pause = {.tv_nsec = ROW_NS};
    (void)payload, (void)targets;
    nanosleep(&pause, NULL);
    memset(input, 0, 3 * SIDE * SIDE * sizeof *input);
    *label = (int32_t)(row % CLASSES);
    return YOKE_OK;
}

/* Calls, each until it is cancelled. */

static yoke_status open_nets(rig *own) {
    yoke_status status = YOKE_OK;
    while (status == YOKE_OK) {
        yoke_net *net = NULL;
        status = yoke_net_open(&net, own->model, &own->options);
        yoke_net_close(net);
    }
    return status;
}

static yoke_status fit(rig *own) {
    yoke_fit_options options = {.struct_size = sizeof options, .epochs = 1000000};
    return yoke_net_fit(own->net, &own->inputs, &own->labels, &options, NULL);
}

static yoke_status fit_slowly(rig *own) {
    yoke_fit_options options = {.struct_size = sizeof options, .epochs = 1000000};
    return yoke_net_fit_rows(own->net, own->slow, &options, NULL);
}

static yoke_status evaluate(rig *own) {
    yoke_step_result result = {.struct_size = sizeof result};
    yoke_status status = YOKE_OK;
    while (status == YOKE_OK)
        status = yoke_net_evaluate(own->net, &own->inputs, &own->labels, &result);
    return status;
}

static yoke_status predict(rig *own) {
    yoke_status status = YOKE_OK;
    const yoke_cancellation *before = yoke_cancellation_use(&own->cancellation);
    while (status == YOKE_OK)
        status = yoke_net_predict(own->net, &own->inputs, &own->outputs);
    (void)yoke_cancellation_use(before);
    return status;
}

static const struct {
    const char *name;
    yoke_status (*run)(rig *own);
    double most; /* seconds until the request */
} kinds[KINDS] = {{"open", open_nets, 1.0},
                  {"fit", fit, 0.6},
                  {"fit, slow rows", fit_slowly, 0.6},
                  {"evaluate", evaluate, 0.4},
                  {"predict", predict, 0.4}};

static double cancel_once(rig *own, int kind) {
    pthread_t thread;
    own->after = kinds[kind].most * ((double)rand() / RAND_MAX);
    if (pthread_create(&thread, NULL, cancel_later, own) != 0) exit(1);
    yoke_status status = kinds[kind].run(own);
    double ended = now();
    pthread_join(thread, NULL);
    if (status != YOKE_ERROR_CANCELLED) must(status);
    yoke_cancellation_reset(&own->cancellation);
    return 1e3 * (ended - own->cancelled);
}

static int by_size(const void *left, const void *right) {
    double a = *(const double *)left, b = *(const double *)right;
    return (a > b) - (a < b);
}

static void print(const char *name, double *ms, int count) {
    qsort(ms, (size_t)count, sizeof *ms, by_size);
    printf("%-16s %4d  median %6.1f  p99 %6.1f  longest %6.1f ms\n", name, count, ms[count / 2],
           ms[(int)ceil(0.99 * count) - 1], ms[count - 1]);
}

static void open_rig(rig *own) {
    static float inputs[ROWS * 3 * SIDE * SIDE], outputs[ROWS * CLASSES];
    static int32_t labels[ROWS];
    yoke_shape shape = yoke_shape_image(3, SIDE, SIDE);
    yoke_row_source source = {.struct_size = sizeof source,
                              .rows = ROWS,
                              .shape = shape,
                              .classes = CLASSES,
                              .read = read_slowly};
    for (int i = 0; i < ROWS; i++)
        labels[i] = i % CLASSES, inputs[i * 3] = 1;
    own->options = (yoke_net_options){.struct_size = sizeof own->options,
                                      .devices = "2xcpu",
                                      .threads = 1,
                                      .batch = BATCH,
                                      .cancellation = &own->cancellation};
    own->inputs = yoke_array_of_rows(inputs, YOKE_ELEMENT_FLOAT32, ROWS, shape);
    own->labels = yoke_array_of_numbers(labels, YOKE_ELEMENT_INT32, ROWS);
    own->outputs =
        yoke_array_of_rows(outputs, YOKE_ELEMENT_FLOAT32, ROWS, yoke_shape_vector(CLASSES));
    must(yoke_model_preset(&own->model, "resnet20", shape, CLASSES, NULL));
    must(yoke_dataset_from_callback(&own->slow, &source));
    must(yoke_net_open(&own->net, own->model, &own->options));
    must(yoke_net_predict(own->net, &own->inputs, &own->outputs));
}

int main(int count, char **words) {
    int cancellations = count > 1 ? atoi(words[1]) : 200, done[KINDS] = {0};
    rig own = {0};
    if (cancellations < KINDS || cancellations > 100000) return 2;
    double *all = calloc((size_t)cancellations, sizeof *all);
    double *each[KINDS];
    for (int kind = 0; kind < KINDS; kind++)
        each[kind] = calloc((size_t)cancellations, sizeof *all);
    srand(count > 2 ? (unsigned)atoi(words[2]) : 1);
    open_rig(&own);
    for (int i = 0; i < cancellations; i++) {
        int kind = i % KINDS;
        all[i] = each[kind][done[kind]++] = cancel_once(&own, kind);
    }
    for (int kind = 0; kind < KINDS; kind++)
        print(kinds[kind].name, each[kind], done[kind]);
    print("all", all, cancellations);
    for (int kind = 0; kind < KINDS; kind++)
        free(each[kind]);
    free(all);
    yoke_net_close(own.net);
    yoke_dataset_close(own.slow);
    yoke_model_destroy(own.model);
    return 0;
}
