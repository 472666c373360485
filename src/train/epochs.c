/* SPDX-License-Identifier: Apache-2.0 */
/* What a run learned in an epoch: means over the labels that it trained on. */
#include <math.h>

#include "train/run.h"

void yoke_epoch_add(yoke_epoch_sums *sums, const yoke_step_result *step, double rate, uint64_t ns) {
    if (sums->is_over) *sums = (yoke_epoch_sums){0};
    sums->loss += step->loss * step->weight;
    sums->weight += step->weight;
    sums->rows += step->rows;
    sums->labels += step->labels;
    sums->correct = step->correct < 0 ? -1 : sums->correct + step->correct;
    sums->ns += ns;
    sums->learning_rate = rate;
}

double yoke_epoch_loss(const yoke_epoch_sums *sums) {
    return sums->weight > 0 ? sums->loss / sums->weight : (double)NAN;
}

double yoke_epoch_accuracy(const yoke_epoch_sums *sums) {
    if (sums->labels == 0 || sums->correct < 0) return -1;
    return (double)sums->correct / (double)sums->labels;
}

void yoke_trainer_report_epoch(yoke_trainer *trainer, bool evaluated) {
    yoke_epoch_sums *sums = &trainer->sums;
    const yoke_step_result *test = &trainer->last_evaluation;
    if (sums->is_over) *sums = (yoke_epoch_sums){0}; /* the run took no step in this epoch */
    yoke_event event = {.kind = YOKE_EVENT_EPOCH,
                        .loss = yoke_epoch_loss(sums),
                        .accuracy = yoke_epoch_accuracy(sums),
                        .learning_rate = sums->learning_rate,
                        .rows = (int)sums->rows,
                        .test_loss = evaluated ? test->loss : (double)NAN,
                        .test_accuracy = evaluated ? yoke_trainer_accuracy(test) : -1};
    if (sums->ns > 0) event.images_per_second = 1e9 * (double)sums->rows / (double)sums->ns;
    sums->is_over = true;
    yoke_trainer_emit(trainer, &event);
}
