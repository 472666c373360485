/* SPDX-License-Identifier: Apache-2.0 */
#include "train/step_sums.h"

#include <math.h>

void yoke_step_sums_add(yoke_step_sums *sums, const yoke_step_result *step, double rate,
                        yoke_step_cost cost) {
    yoke_epoch_sums *epoch = &sums->epoch;
    sums->last = *step;
    sums->computed_ns += cost.computed_ns;
    sums->waited_ns += cost.waited_ns;
    if (epoch->is_over) *epoch = (yoke_epoch_sums){0};
    epoch->loss += step->loss * step->weight;
    epoch->weight += step->weight;
    epoch->rows += step->rows;
    epoch->labels += step->labels;
    epoch->correct = step->correct < 0 ? -1 : epoch->correct + step->correct;
    epoch->ns += cost.computed_ns + cost.waited_ns;
    epoch->learning_rate = rate;
}

double yoke_epoch_loss(const yoke_epoch_sums *epoch) {
    return epoch->weight > 0 ? epoch->loss / epoch->weight : (double)NAN;
}

double yoke_epoch_accuracy(const yoke_epoch_sums *epoch) {
    if (epoch->labels == 0 || epoch->correct < 0) return -1;
    return (double)epoch->correct / (double)epoch->labels;
}
