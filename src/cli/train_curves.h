/* SPDX-License-Identifier: Apache-2.0 */
/* The curves of a run that goes on, in memory that does not grow with its steps. */
#ifndef CLI_TRAIN_CURVES_H
#define CLI_TRAIN_CURVES_H

#include "report/report.h"
#include "yoke/trainer.h"

#define TRAIN_POINTS 300

/* Sums over as many steps as a point has. */
typedef struct train_point {
    uint64_t step, steps; /* the last one; how many */
    double loss, accuracy, learning_rate, rows, ms;
} train_point;

/* Zeroed: no event yet. Evaluations have a point each, and so have steps until the points are used
 * up; then two become one, and later ones hold twice as many steps. */
typedef struct train_curves {
    train_point points[TRAIN_POINTS];
    int count;
    uint64_t point_steps; /* of a full point; 0: no step yet */
    uint64_t first_step;
    yoke_report_points test_loss, test_accuracy;
    bool no_memory; /* an evaluation is missing */
} train_curves;

void train_curves_add(train_curves *curves, const yoke_event *event);
/* Fills the curves of a mode. MEMORY. */
yoke_status train_curves_fill(const train_curves *curves, yoke_report_mode *mode);
void train_curves_clear(train_curves *curves);

#endif
