/* SPDX-License-Identifier: Apache-2.0 */
#include "train/record.h"

#include <math.h>
#include <string.h>

#include "train/trainer_parts.h"

void yoke_trainer_publish(yoke_trainer *trainer) {
    const yoke_run *run = &trainer->run;
    const yoke_step_result *step = &trainer->sums.last, *test = &trainer->test.last;
    yoke_progress now = {.struct_size = sizeof now,
                         .running = trainer->running,
                         .step = run->at.step,
                         .steps = run->at.steps < UINT64_MAX ? run->at.steps : 0,
                         .epoch = run->at.epoch,
                         .seconds =
                             run->begin_ns > 0 ? (double)(yoke_now_ns() - run->begin_ns) * 1e-9 : 0,
                         .loss = step->rows > 0 ? step->loss : (double)NAN,
                         .test_loss = test->rows > 0 ? test->loss : (double)NAN,
                         .test_accuracy = test->rows > 0 ? yoke_step_accuracy(test) : -1};
    YOKE_PUBLISH(&trainer->progress, &now);
}

/* For the trace: it holds several engines then, or no steps before. */
static yoke_status keep_mark(yoke_run *run, const char *text) {
    size_t bytes = ((size_t)run->mark_count + 1) * sizeof *run->marks;
    yoke_trace_mark *marks = yoke_realloc(run->marks, bytes);
    if (marks == NULL) return FAIL_MEMORY(bytes, "the marks of a trace");
    run->marks = marks;
    marks[run->mark_count] = (yoke_trace_mark){yoke_now_ns(), yoke_strdup(text)};
    if (marks[run->mark_count].text == NULL) return FAIL_MEMORY(strlen(text) + 1, "a mark's text");
    run->mark_count++;
    return YOKE_OK;
}

static bool is_mark(yoke_event_kind kind) {
    return kind == YOKE_EVENT_LOST || kind == YOKE_EVENT_JOINED || kind == YOKE_EVENT_RESIZED;
}

void yoke_trainer_record(yoke_trainer *trainer, yoke_event *event) {
    event->step = trainer->run.at.step;
    event->epoch = trainer->run.at.epoch;
    yoke_status status = yoke_metrics_write(&trainer->metrics, event);
    if (status != YOKE_OK && !trainer->metrics.warned) {
        trainer->metrics.warned = true;
        yoke_run_warn(&trainer->run);
    }
    if (trainer->run.options.trace != NULL && is_mark(event->kind) &&
        keep_mark(&trainer->run, event->text) != YOKE_OK)
        yoke_run_warn(&trainer->run);
    yoke_run_emit(&trainer->run, event);
}
