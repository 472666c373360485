/* SPDX-License-Identifier: Apache-2.0 */
#include "train/survival.h"

#include <stdio.h>
#include <string.h>

#include "train/rank_survival.h"
#include "train/record.h"
#include "train/run_engine.h"
#include "train/trainer_parts.h"

/* Keeping takes less than 1 / SPARINGLY of the time. */
#define SPARINGLY 150

/* Keeping. */

static yoke_status check_ranks(const yoke_run *run) {
    if (run->ranks == NULL) return YOKE_OK;
    if (!yoke_process_group_goes_on(run->ranks))
        return FAIL(YOKE_ERROR_ARGUMENT, "survive: ranks need a place in which they agree who goes "
                                         "on: process_group->roll, which yoke launch --min-ranks "
                                         "sets");
    if (run->engine.shares != NULL)
        return FAIL(YOKE_ERROR_ARGUMENT, "survive: the ranks' shares are those of these ranks, by "
                                         "number: give auto_shares, or none");
    if (run->engine.own_buffers)
        return FAIL(YOKE_ERROR_ARGUMENT, "survive with own_buffers: each rank would have running "
                                         "statistics of its own, which are lost with it");
    return YOKE_OK;
}

yoke_status yoke_survival_open(yoke_survival *survival, const yoke_run *run) {
    survival->newest = -1;
    survival->devices = yoke_devices_count(run->devices);
    pthread_mutex_init(&survival->engine, NULL); /* cannot fail on Linux */
    if (!run->options.survive && run->engine.audit == 0) return YOKE_OK;
    survival->writes = yoke_run_writes(run);
    TRY(check_ranks(run));
    for (int i = 0; i < 2; i++) {
        TRY(yoke_state_create(&survival->kept[i].state, run->parallel, false));
        survival->kept[i].state->keeps_layouts = true;
        /* The first copy is slow, and would make the second one late. */
        if (run->ranks == NULL) TRY(yoke_state_take(survival->kept[i].state, run->parallel));
    }
    return YOKE_OK;
}

void yoke_survival_close(yoke_survival *survival) {
    pthread_mutex_destroy(&survival->engine);
    for (int i = 0; i < 2; i++)
        yoke_state_destroy(survival->kept[i].state);
}

static bool is_on(const yoke_survival *survival) {
    return survival->kept[1].state != NULL;
}

bool yoke_survival_is_due(const yoke_survival *survival) {
    if (!is_on(survival)) return false;
    return yoke_now_ns() - survival->kept_ns >= SPARINGLY * survival->spent_ns;
}

yoke_status yoke_survival_keep(yoke_trainer *trainer) {
    yoke_survival *survival = &trainer->survival;
    int next = survival->newest == 0;
    yoke_kept *kept = &survival->kept[next];
    uint64_t begin = yoke_now_ns();
    if (!is_on(survival)) return YOKE_OK;
    /* Rank 0 has written what comes before the kept step: another rank may have to go on there. */
    if (trainer->run.ranks != NULL) TRY(yoke_process_group_barrier(trainer->run.ranks));
    kept->is_whole = false;
    TRY(yoke_state_take(kept->state, trainer->run.parallel));
    kept->at = trainer->run.at;
    kept->epoch = trainer->sums.epoch;
    kept->trend = trainer->trend;
    kept->is_whole = true;
    survival->newest = next;
    survival->kept_ns = yoke_now_ns();
    survival->spent_ns = survival->kept_ns - begin;
    survival->all_ns += survival->spent_ns;
    return YOKE_OK;
}

yoke_status yoke_survival_let_go(yoke_survival *survival, yoke_data_parallel *parallel) {
    for (int i = 0; i < 2 && is_on(survival); i++)
        TRY(yoke_state_make_plain(survival->kept[i].state, parallel));
    return YOKE_OK;
}

bool yoke_survival_repeats(yoke_survival *survival, uint64_t step) {
    if (!is_on(survival)) return false;
    if (step >= survival->reported && survival->failed_ns > 0) {
        survival->lost_ns += yoke_now_ns() - survival->failed_ns;
        survival->failed_ns = 0;
    }
    bool repeats = step <= survival->reported;
    survival->reported = repeats ? survival->reported : step;
    return repeats;
}

bool yoke_survival_repeats_evaluation(yoke_survival *survival, uint64_t step) {
    bool repeats = is_on(survival) && step < survival->evaluated;
    survival->evaluated = repeats ? survival->evaluated : step + 1;
    return repeats;
}

bool yoke_survival_repeats_epoch(yoke_survival *survival, uint64_t epoch) {
    bool repeats = is_on(survival) && epoch < survival->epochs;
    survival->epochs = repeats ? survival->epochs : epoch + 1;
    return repeats;
}

/* Going on. */

/* The device that a failure is about; -1: it is about none, or about the last one. */
static int lost_device(const yoke_run *run, yoke_status status) {
    bool of_device = status == YOKE_ERROR_DEVICE || status == YOKE_ERROR_MEMORY ||
                     status == YOKE_ERROR_TIMEOUT || status == YOKE_ERROR_SYSTEM;
    bool others = run->parallel != NULL && yoke_devices_count(run->devices) > 1;
    return of_device && others ? yoke_data_parallel_failed_device(run->parallel) : -1;
}

static void report(yoke_trainer *trainer, const char *name, const char *cause) {
    yoke_run *run = &trainer->run;
    const yoke_survival *survival = &trainer->survival;
    char text[1400];
    int left = yoke_devices_count(run->devices);
    snprintf(text, sizeof text,
             "lost %s after step %llu: %.900s. %d of %d devices go on from step %llu", name,
             (unsigned long long)survival->reported, cause, left, survival->devices,
             (unsigned long long)run->at.step);
    yoke_event event = {.kind = YOKE_EVENT_LOST, .accuracy = -1, .text = text};
    yoke_trainer_record(trainer, &event);
}

static yoke_status go_back(yoke_trainer *trainer) {
    const yoke_kept *kept = &trainer->survival.kept[trainer->survival.newest];
    yoke_run *run = &trainer->run;
    run->at = kept->at;
    run->in_step = true; /* until the state is given the weights are none of the run's */
    trainer->sums.epoch = kept->epoch;
    trainer->trend = kept->trend;
    TRY(yoke_state_give(run->parallel, kept->state));
    run->in_step = false;
    return YOKE_OK;
}

/* Back at the step in which two devices differed, all of them compute the shard. */
static yoke_status judge(yoke_trainer *trainer, const yoke_suspicion *suspicion) {
    yoke_run *run = &trainer->run;
    yoke_run_warn(run);
    TRY(go_back(trainer));
    yoke_data_parallel_judge(run->parallel, suspicion);
    return YOKE_OK;
}

/* Another device may fail meanwhile. */
yoke_status yoke_survive(yoke_trainer *trainer, yoke_status status) {
    yoke_run *run = &trainer->run;
    yoke_survival *survival = &trainer->survival;
    yoke_suspicion suspicion;
    if (status == YOKE_OK || !is_on(survival) || survival->newest < 0) return status;
    if (run->ranks != NULL) return yoke_ranks_survive(trainer, status);
    if (status == YOKE_ERROR_DEVICE && yoke_data_parallel_suspects(run->parallel, &suspicion))
        return judge(trainer, &suspicion);
    int device = lost_device(run, status);
    if (!run->options.survive) return status;
    if (survival->failed_ns == 0) survival->failed_ns = yoke_now_ns();
    while (device >= 0) {
        char name[32];
        yoke_error error = yoke_error_take(status);
        snprintf(name, sizeof name, "%s", yoke_device_name(yoke_devices_at(run->devices, device)));
        survival->lost++;
        pthread_mutex_lock(&survival->engine);
        status = yoke_run_leave_out(run, device);
        pthread_mutex_unlock(&survival->engine);
        if (status == YOKE_OK) status = go_back(trainer);
        if (status == YOKE_OK) report(trainer, name, error.text);
        if (status == YOKE_OK) return YOKE_OK;
        device = lost_device(run, status);
    }
    return status;
}

bool yoke_survival_leave_thread(yoke_survival *survival, const yoke_run *run) {
    pthread_mutex_lock(&survival->engine);
    bool left = run->parallel != NULL && yoke_data_parallel_leave_thread(run->parallel);
    pthread_mutex_unlock(&survival->engine);
    return left;
}
