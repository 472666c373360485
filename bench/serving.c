/* SPDX-License-Identifier: Apache-2.0 */
/* Predictions by several threads that share one copy of the weights: rows in a second by one thread
 * and by several, one row a call; beside them, what the machine gives as many threads that share
 * nothing, and the processor's time for a row.
 *
 * usage: serving [THREADS] [SECONDS] [SLOTS] */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "serve/predictors.h"
#include "yoke/yoke.h"

enum { MOST_THREADS = 64, ROUNDS = 3 };

static void must(yoke_status status) {
    if (status == YOKE_OK) return;
    fprintf(stderr, "serving: %s\n", yoke_last_error());
    exit(1);
}

static void nap(double seconds) {
    const struct timespec time = {(time_t)seconds, (long)(1e9 * (seconds - (double)(long)seconds))};
    nanosleep(&time, NULL);
}

typedef struct load {
    yoke_predictors *predictors;
    size_t inputs, outputs; /* of a row */
    bool spins;             /* it shares nothing, and counts loops */
    atomic_bool stop;
    atomic_ullong calls;
} load;

static void *spin(load *self) {
    volatile float sum = 0;
    while (!atomic_load_explicit(&self->stop, memory_order_relaxed)) {
        for (int i = 0; i < 1 << 16; i++)
            sum = 0.5f * sum + 1;
        atomic_fetch_add_explicit(&self->calls, 1, memory_order_relaxed);
    }
    return NULL;
}

static void *predict(void *context) {
    load *self = context;
    if (self->spins) return spin(self);
    float *input = calloc(self->inputs, sizeof *input);
    float *output = calloc(self->outputs, sizeof *output);
    const float *const inputs[] = {input};
    float *const outputs[] = {output};
    if (input == NULL || output == NULL) exit(1);
    for (size_t i = 0; i < self->inputs; i++)
        input[i] = (float)(i % 17) / 17;
    while (!atomic_load_explicit(&self->stop, memory_order_relaxed)) {
        must(yoke_predictors_run(self->predictors, inputs, 1, outputs));
        atomic_fetch_add_explicit(&self->calls, 1, memory_order_relaxed);
    }
    free(input);
    free(output);
    return NULL;
}

static double seconds_of(clockid_t clock) {
    struct timespec time;
    clock_gettime(clock, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

typedef struct rate {
    double calls, cost; /* in a second; seconds of the processor for one */
} rate;

static rate rate_of(load *self, int threads, double seconds) {
    pthread_t ids[MOST_THREADS];
    atomic_store(&self->stop, false);
    for (int i = 0; i < threads; i++)
        if (pthread_create(&ids[i], NULL, predict, self) != 0) exit(1);
    nap(0.1 * seconds); /* plans */
    double from = seconds_of(CLOCK_MONOTONIC), spent = seconds_of(CLOCK_PROCESS_CPUTIME_ID);
    unsigned long long before = atomic_load(&self->calls);
    nap(seconds);
    double calls = (double)(atomic_load(&self->calls) - before);
    spent = seconds_of(CLOCK_PROCESS_CPUTIME_ID) - spent;
    rate found = {calls / (seconds_of(CLOCK_MONOTONIC) - from), spent / calls};
    atomic_store(&self->stop, true);
    for (int i = 0; i < threads; i++)
        pthread_join(ids[i], NULL);
    return found;
}

/* The weights of a new engine. */
static void publish(yoke_predictors *predictors, const yoke_model *model) {
    yoke_devices *devices = NULL;
    yoke_data_parallel *engine = NULL;
    yoke_devices_options open = YOKE_DEVICES_OPTIONS_INIT;
    yoke_data_parallel_options options = YOKE_DATA_PARALLEL_OPTIONS_INIT;
    open.list = "cpu";
    options.batch = 1;
    options.inference = true;
    options.algorithm = YOKE_ALGORITHM_DIRECT;
    must(yoke_devices_open(&devices, &open));
    must(yoke_data_parallel_create(&engine, model, devices, NULL, &options));
    must(yoke_predictors_publish_engine(predictors, engine));
    yoke_data_parallel_destroy(engine);
    yoke_devices_close(devices);
}

static void measure(const char *name, int threads, double seconds, int slots) {
    yoke_model *model = NULL;
    yoke_devices_options devices = YOKE_DEVICES_OPTIONS_INIT;
    load self = {0};
    devices.list = "cpu";
    must(yoke_model_preset(&model, name, yoke_shape_image(3, 32, 32), 10, NULL));
    const yoke_predictors_options options = {
        .model = model, .devices = &devices, .slots = slots, .rows = 1};
    must(yoke_predictors_create(&self.predictors, &options));
    publish(self.predictors, model);
    self.inputs = yoke_model_input_elements(model, 0);
    self.outputs = yoke_model_output_elements(model, 0);
    for (int round = 0; round < ROUNDS; round++) {
        load machine = {.spins = true};
        rate alone = rate_of(&machine, 1, 0.5 * seconds), one = rate_of(&self, 1, seconds);
        rate many = rate_of(&self, threads, seconds);
        rate together = rate_of(&machine, threads, 0.5 * seconds);
        printf("%-15s 1 thread %7.1f rows/s, %.3f ms a row; %d threads %7.1f, %.3f ms; ratio %.2f, "
               "of the machine %.2f\n",
               name, one.calls, 1e3 * one.cost, threads, many.calls, 1e3 * many.cost,
               many.calls / one.calls, together.calls / alone.calls);
    }
    yoke_predictors_report report;
    yoke_predictors_describe(self.predictors, &report);
    printf("%-15s %d slots: weights %.1f MB, packed %.1f MB, values %.1f MB\n", name, report.slots,
           1e-6 * (double)report.weights, 1e-6 * (double)report.packed,
           1e-6 * (double)report.values);
    yoke_predictors_destroy(self.predictors);
    yoke_model_destroy(model);
}

int main(int argc, char **argv) {
    int threads = argc > 1 ? atoi(argv[1]) : 4, slots = argc > 3 ? atoi(argv[3]) : threads;
    double seconds = argc > 2 ? atof(argv[2]) : 2;
    if (threads < 1 || threads > MOST_THREADS || !(seconds > 0)) return 2;
    measure("resnet20", threads, seconds, slots);
    measure("resnet18-cifar", threads, seconds, slots);
    return 0;
}
