/* SPDX-License-Identifier: Apache-2.0 */
#include "train/record.h"

#include <math.h>

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

void yoke_trainer_record(yoke_trainer *trainer, yoke_event *event) {
    event->step = trainer->run.at.step;
    event->epoch = trainer->run.at.epoch;
    yoke_status status = yoke_metrics_write(&trainer->metrics, event);
    if (status != YOKE_OK && !trainer->metrics.warned) {
        trainer->metrics.warned = true;
        yoke_run_warn(&trainer->run);
    }
    yoke_run_emit(&trainer->run, event);
}
