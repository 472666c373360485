/* SPDX-License-Identifier: Apache-2.0 */
#include "train/run.h"

#include <inttypes.h>
#include <stdio.h>

void yoke_run_emit(yoke_run *run, yoke_event *event) {
    if (run->options.on_event == NULL) return;
    event->struct_size = sizeof *event;
    event->step = run->at.step;
    event->steps = run->at.steps < UINT64_MAX ? run->at.steps : 0;
    event->epoch = run->at.epoch;
    event->rank = run->ranks != NULL ? yoke_process_group_rank(run->ranks) : 0;
    if (run->begin_ns > 0) event->seconds_elapsed = (double)(yoke_now_ns() - run->begin_ns) * 1e-9;
    yoke_outside outside = yoke_step_out(run->parallel);
    run->options.on_event(event, run->options.payload);
    (void)yoke_step_in(run->parallel, &outside, YOKE_OK); /* the next step reports a failure */
}

void yoke_run_say(yoke_run *run, yoke_event_kind kind, const char *text) {
    yoke_event event = {.kind = kind, .accuracy = -1, .text = text};
    if (text != NULL) yoke_run_emit(run, &event);
}

void yoke_run_warn(yoke_run *run) {
    yoke_run_say(run, YOKE_EVENT_WARNING, yoke_last_error());
}

bool yoke_run_writes(const yoke_run *run) {
    if (run->ranks != NULL) return yoke_process_group_rank(run->ranks) == 0;
    return run->seat == 0; /* has not met the others yet, or has lost them */
}

yoke_status yoke_run_any(const yoke_run *run, bool *value) {
    int64_t any = *value;
    if (run->ranks == NULL) return YOKE_OK;
    TRY(yoke_process_group_all_reduce(run->ranks, &any, 1, YOKE_ELEMENT_INT64, YOKE_MAX));
    *value = any != 0;
    return YOKE_OK;
}

yoke_status yoke_run_poll(const yoke_run *run, yoke_requests *asked) {
    int64_t any[] = {atomic_load(&run->stopping), asked->save, asked->keep, asked->grow};
    yoke_status status = YOKE_OK;
    if (run->ranks != NULL)
        status = yoke_process_group_all_reduce(run->ranks, any, 4, YOKE_ELEMENT_INT64, YOKE_MAX);
    *asked = (yoke_requests){
        .stop = any[0] != 0, .save = any[1] != 0, .keep = any[2] != 0, .grow = any[3] != 0};
    return status;
}

/* A launcher ends the other ranks when one exits with a failure, so ranks with these results wait
 * for each other. */
bool yoke_status_is_common(yoke_status status) {
    return status == YOKE_OK || status == YOKE_ERROR_CANCELLED || status == YOKE_ERROR_NUMERIC;
}

bool yoke_run_is_over(const yoke_run *run) {
    return run->at.step >= run->at.steps || run->at.epoch >= run->at.epochs;
}

bool yoke_run_epoch_is_done(const yoke_run *run) {
    return run->at.batches >= yoke_loader_batch_count(run->training.loader);
}

bool yoke_run_evaluation_is_due(const yoke_run *run) {
    int every = run->options.evaluate_every;
    if (every < 0) return false;
    if (run->at.step >= run->at.steps) return true;
    if (run->at.epoch + yoke_run_epoch_is_done(run) >= run->at.epochs) return true;
    return every > 0 && (run->at.epoch + 1) % (uint64_t)every == 0;
}

bool yoke_run_evaluates_first(const yoke_run *run) {
    return (yoke_run_is_over(run) || yoke_run_epoch_is_done(run)) &&
           yoke_run_evaluation_is_due(run);
}

const char *yoke_run_of_steps(const yoke_run *run, char text[32]) {
    text[0] = '\0';
    if (run->at.steps < UINT64_MAX) snprintf(text, 32, " of %" PRIu64, run->at.steps);
    return text;
}

double yoke_step_accuracy(const yoke_step_result *result) {
    if (result->correct < 0 || result->labels == 0) return -1;
    return (double)result->correct / result->labels;
}
