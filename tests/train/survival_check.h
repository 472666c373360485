/* SPDX-License-Identifier: Apache-2.0 */
/* Runs in which a device fails, and the same run without a failure. */
#ifndef SURVIVAL_CHECK_H
#define SURVIVAL_CHECK_H

#include "trainer_check.h"

enum { STEPS = 7, SHARDS = 8, DEVICES = 4, FAULT_STEP = 2 };

/* Events may come from a thread of the trainer. */
typedef struct survivor {
    double losses[STEPS + 1];
    int events[STEPS + 1]; /* of each step */
    double test_losses[4];
    int evaluations, epochs, lost;
    char text[1600];
    uint64_t hash;
    int devices; /* at the end */
} survivor;

static inline void on_survivor(const yoke_event *event, void *payload) {
    survivor *run = payload;
    if (event->kind == YOKE_EVENT_STEP && event->step <= STEPS) {
        run->losses[event->step] = event->loss;
        run->events[event->step]++;
    }
    if (event->kind == YOKE_EVENT_EVALUATION && run->evaluations < 4)
        run->test_losses[run->evaluations++] = event->loss;
    run->epochs += event->kind == YOKE_EVENT_EPOCH;
    if (event->kind != YOKE_EVENT_LOST) return;
    run->lost++;
    snprintf(run->text, sizeof run->text, "%s", event->text);
}

static inline yoke_status run_with(survivor *run, yoke_trainer_options *options,
                                   const char *fault) {
    yoke_trainer *trainer = NULL;
    memset(run, 0, sizeof *run);
    options->on_event = on_survivor;
    options->payload = run;
    small_engine.fault = fault;
    yoke_status status = yoke_trainer_create(&trainer, options);
    if (status == YOKE_OK) status = yoke_trainer_run(trainer);
    if (status == YOKE_OK) {
        run->hash = hash_of(trainer);
        run->devices = yoke_data_parallel_device_count(yoke_trainer_engine(trainer));
    }
    yoke_error error = yoke_error_take(status);
    yoke_trainer_destroy(trainer);
    return yoke_error_restore(&error);
}

static inline yoke_trainer_options surviving(int devices, yoke_schedule schedule) {
    yoke_trainer_options options = small(NULL);
    options.model = "mlp:width=32";
    options.steps = STEPS;
    options.evaluate_every = 1;
    options.survive = true;
    options.devices = devices_of(devices);
    small_engine.shards = SHARDS;
    small_engine.schedule = schedule;
    return options;
}

/* The reported loss of classic is added up on the root, shard by shard of each device. */
static inline bool is_same(double one, double other) {
    bool by_phases = small_engine.schedule == YOKE_SCHEDULE_CLASSIC;
    return one == other || (by_phases && fabs(one - other) < 1e-12);
}

static inline void expect_as_without(const survivor *run, const survivor *without) {
    if (run->hash != without->hash || run->evaluations != without->evaluations ||
        run->epochs != without->epochs)
        fail_msg("other weights than without a failure: %s", run->text);
    for (int step = 1; step <= STEPS; step++)
        if (run->events[step] != 1 || !is_same(run->losses[step], without->losses[step]))
            fail_msg("step %d has %d events, loss %.17g, not %.17g: %s", step, run->events[step],
                     run->losses[step], without->losses[step], run->text);
    for (int i = 0; i < run->evaluations; i++)
        assert_true(is_same(run->test_losses[i], without->test_losses[i]));
}

/* Runs with the fault; whether the device met it. */
static inline bool survives(yoke_trainer_options *options, const survivor *without,
                            const char *fault, int devices) {
    survivor run;
    yoke_status status = run_with(&run, options, fault);
    if (status != YOKE_OK) fail_msg("%s: %s", fault, yoke_last_error());
    expect_as_without(&run, without);
    if (devices_are_cpus()) assert_int_equal(run.devices, devices - run.lost);
    assert_true(run.lost <= 1);
    return run.lost == 1;
}

/* How many of the stages and devices met the fault. */
static inline int try_all(const char *kind, int devices, yoke_schedule schedule) {
    yoke_trainer_options options = surviving(devices, schedule);
    survivor without;
    int met = 0;
    char fault[64];
    EXPECT_OK(run_with(&without, &options, NULL));
    if (strcmp(kind, "hang") == 0) small_engine.deadline = 1.5;
    for (int stage = 0; stage < YOKE_STAGE_COUNT; stage++)
        for (int device = 0; device < devices; device += devices_are_cpus() ? 1 : devices - 1) {
            snprintf(fault, sizeof fault, "%s:%d@%d:%s", kind, device, FAULT_STEP,
                     yoke_stage_name((yoke_stage)stage));
            met += survives(&options, &without, fault, devices);
        }
    return met;
}

#endif
