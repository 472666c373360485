/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/train_curves.h"

#include <stdlib.h>

#include "base/base.h"

static void add_sums(train_point *to, const train_point *from) {
    to->step = from->step;
    to->steps += from->steps;
    to->loss += from->loss;
    to->accuracy += from->accuracy;
    to->learning_rate += from->learning_rate;
    to->rows += from->rows;
    to->ms += from->ms;
}

static void halve(train_curves *curves) {
    for (int i = 0; i < TRAIN_POINTS / 2; i++) {
        train_point both = curves->points[2 * i];
        add_sums(&both, &curves->points[2 * i + 1]);
        curves->points[i] = both;
    }
    curves->count = TRAIN_POINTS / 2;
    curves->point_steps *= 2;
}

static void add_step(train_curves *curves, const yoke_event *event) {
    train_point step = {event->step,          1,           event->loss,   event->accuracy,
                        event->learning_rate, event->rows, event->step_ms};
    if (curves->point_steps == 0) {
        curves->point_steps = 1;
        curves->first_step = event->step;
    }
    bool full =
        curves->count == 0 || curves->points[curves->count - 1].steps == curves->point_steps;
    if (full && curves->count == TRAIN_POINTS) halve(curves);
    if (full) curves->points[curves->count++] = (train_point){0};
    add_sums(&curves->points[curves->count - 1], &step);
}

static void add_evaluation(train_curves *curves, const yoke_event *event) {
    double step = (double)event->step;
    yoke_status status = yoke_report_add_point(&curves->test_loss, step, event->loss);
    if (status == YOKE_OK && event->accuracy >= 0)
        status = yoke_report_add_point(&curves->test_accuracy, step, 100 * event->accuracy);
    if (status != YOKE_OK) curves->no_memory = true;
}

void train_curves_add(train_curves *curves, const yoke_event *event) {
    if (event->kind == YOKE_EVENT_STEP) add_step(curves, event);
    if (event->kind == YOKE_EVENT_EVALUATION) add_evaluation(curves, event);
}

static yoke_status fill_point(yoke_report_points *curves, const train_point *point) {
    double step = (double)point->step, steps = (double)point->steps;
    TRY(yoke_report_add_point(&curves[YOKE_REPORT_LOSS], step, point->loss / steps));
    if (point->accuracy >= 0)
        TRY(yoke_report_add_point(&curves[YOKE_REPORT_TRAINING_ACCURACY], step,
                                  100 * point->accuracy / steps));
    TRY(yoke_report_add_point(&curves[YOKE_REPORT_LEARNING_RATE], step,
                              point->learning_rate / steps));
    if (!(point->ms > 0)) return YOKE_OK;
    return yoke_report_add_point(&curves[YOKE_REPORT_IMAGES], step, 1e3 * point->rows / point->ms);
}

static yoke_status copy_points(yoke_report_points *to, const yoke_report_points *from) {
    for (int i = 0; i < from->count; i++)
        TRY(yoke_report_add_point(to, from->points[i].step, from->points[i].value));
    return YOKE_OK;
}

yoke_status train_curves_fill(const train_curves *curves, yoke_report_mode *mode) {
    if (curves->no_memory) return FAIL(YOKE_ERROR_MEMORY, "out of memory for a run's curves");
    for (int i = 0; i < curves->count; i++)
        TRY(fill_point(mode->curves, &curves->points[i]));
    mode->point_steps = curves->point_steps;
    TRY(copy_points(&mode->curves[YOKE_REPORT_TEST_LOSS], &curves->test_loss));
    return copy_points(&mode->curves[YOKE_REPORT_ACCURACY], &curves->test_accuracy);
}

void train_curves_clear(train_curves *curves) {
    free(curves->test_loss.points);
    free(curves->test_accuracy.points);
    *curves = (train_curves){.count = 0};
}
