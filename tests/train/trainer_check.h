/* SPDX-License-Identifier: Apache-2.0 */
/* A small run, the events it reported, and a folder for its files. */
#ifndef TRAINER_CHECK_H
#define TRAINER_CHECK_H

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "support/devices.h"
#include "train/train.h"

/* A quarter of the parameters that mlp has by itself, and as many buckets. */
#define WIDTH 512
#define MODEL "mlp:width=512"
#define SMALL "synthetic:1x8x8,classes=3,rows=50"
#define STEPS_KEPT 64

#define EXPECT_OK(call)                                                                            \
    do {                                                                                           \
        yoke_status expect_status_ = (call);                                                       \
        if (expect_status_ != YOKE_OK)                                                             \
            fail_msg("%s: %s: %s", #call, yoke_status_name(expect_status_), yoke_last_error());    \
    } while (0)

/* What a run told. */
typedef struct log {
    yoke_trainer *trainer;
    int ready, steps, evaluations, saved, warnings, skipped, resumed, epochs;
    double losses[STEPS_KEPT];
    int rows[STEPS_KEPT];
    yoke_event evaluation, epoch;
    char warning[512], resumed_from[512], stopped[160];
    uint64_t stop_after; /* 0: never */
    int first_step;      /* of a resumed run */
    bool stop_when_saved;
} log_of_run;

static char folder[] = "/tmp/yoke-trainer-XXXXXX";

static inline int make_folder(void **state) {
    (void)state;
    return mkdtemp(folder) == NULL;
}

static inline int remove_folder(void **state) {
    (void)state;
    return rmdir(folder); /* fails when a test, or a failed write, left something behind */
}

static inline const char *in_folder(const char *name, char text[128]) {
    snprintf(text, 128, "%s/%s", folder, name);
    return text;
}

static inline void on_event(const yoke_event *event, void *payload) {
    log_of_run *run = payload;
    assert_int_equal(event->struct_size, sizeof *event);
    switch (event->kind) {
    case YOKE_EVENT_READY:
        assert_int_equal(run->steps, run->first_step);
        run->ready++;
        break;
    case YOKE_EVENT_STEP:
        assert_int_equal(event->step, run->steps + 1);
        if (run->steps < STEPS_KEPT) {
            run->losses[run->steps] = event->loss;
            run->rows[run->steps] = event->rows;
        }
        run->steps++;
        if (event->step == run->stop_after) yoke_trainer_stop(run->trainer);
        break;
    case YOKE_EVENT_EVALUATION:
        run->evaluation = *event;
        run->evaluations++;
        break;
    case YOKE_EVENT_SAVED:
        run->saved++;
        if (run->stop_when_saved) yoke_trainer_stop(run->trainer);
        break;
    case YOKE_EVENT_WARNING:
        snprintf(run->warning, sizeof run->warning, "%s", event->text);
        run->warnings++;
        break;
    case YOKE_EVENT_SKIPPED:
        assert_string_equal(event->text, event->skip->text);
        snprintf(run->warning, sizeof run->warning, "%s", event->text);
        run->skipped++;
        break;
    case YOKE_EVENT_RESUMED:
        snprintf(run->resumed_from, sizeof run->resumed_from, "%s", event->text);
        run->steps = run->first_step = (int)event->step;
        run->resumed++;
        break;
    case YOKE_EVENT_LOST:
    case YOKE_EVENT_JOINED:
    case YOKE_EVENT_RESIZED:
        break;
    case YOKE_EVENT_STOPPED:
        snprintf(run->stopped, sizeof run->stopped, "%s", event->text);
        break;
    case YOKE_EVENT_EPOCH:
        run->epoch = *event;
        run->epochs++;
        break;
    }
}

/* The engine of the options that small() made last; a test may change it. */
static yoke_data_parallel_options small_engine;

/* mlp has no batch norm: any number of devices computes the same. */
static inline yoke_trainer_options small(log_of_run *run) {
    static const yoke_optimizer_options sgd = {
        .struct_size = sizeof sgd, .learning_rate = 0.05, .momentum = 0.9};
    small_engine = (yoke_data_parallel_options){.struct_size = sizeof small_engine,
                                                .algorithm = YOKE_ALGORITHM_DIRECT};
    return (yoke_trainer_options){.struct_size = sizeof(yoke_trainer_options),
                                  .model = MODEL,
                                  .dataset = SMALL,
                                  .devices = devices_of(1),
                                  .threads = 1,
                                  .engine = &small_engine,
                                  .batch = 16,
                                  .optimizer = &sgd,
                                  .seed = 7,
                                  .on_event = on_event,
                                  .payload = run};
}

/* Creates and runs; the caller destroys run->trainer. */
static inline yoke_status train(log_of_run *run, const yoke_trainer_options *options) {
    yoke_status status = yoke_trainer_create(&run->trainer, options);
    return status == YOKE_OK ? yoke_trainer_run(run->trainer) : status;
}

static inline uint64_t hash_of(yoke_trainer *trainer) {
    uint64_t hash;
    EXPECT_OK(yoke_data_parallel_hash(yoke_trainer_engine(trainer), &hash));
    return hash;
}

#endif
