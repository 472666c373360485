/* SPDX-License-Identifier: Apache-2.0 */
/* Where the weights go at the end of a run: to the file that the options name, or beside it, where
 * an earlier run's file is worth more than what this run ended with. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "train/run.h"

#define SUFFIX ".safetensors"
#define ADDED_BYTES 64 /* more than ".step-", two numbers and the suffix */

void yoke_course_add(yoke_course *course, double loss) {
    if (course->steps == 0) course->first = loss;
    course->last[course->steps++ % YOKE_COURSE_STEPS] = loss;
}

static int by_value(const void *left, const void *right) {
    double a = *(const double *)left, b = *(const double *)right;
    return (a > b) - (a < b);
}

/* The median of the last losses, at most half of all: one batch of outliers does not count. */
static double last_of(const yoke_course *course) {
    double sorted[YOKE_COURSE_STEPS];
    uint64_t half = course->steps / 2, count = half < YOKE_COURSE_STEPS ? half : YOKE_COURSE_STEPS;
    for (uint64_t i = 0; i < count; i++)
        sorted[i] = course->last[(course->steps - 1 - i) % YOKE_COURSE_STEPS];
    qsort(sorted, count, sizeof sorted[0], by_value);
    return count > 0 ? sorted[count / 2] : course->first;
}

/* The loss of a model that knows nothing and says so; 0 where no such number is known. */
static double loss_of_guessing(const yoke_trainer *trainer) {
    if (trainer->own_loss.compute != NULL) return 0;
    yoke_loss_kind kind = yoke_model_loss_kind(trainer->model);
    if (kind == YOKE_LOSS_BCE) return log(2);
    return kind == YOKE_LOSS_CROSS_ENTROPY
               ? log((double)yoke_model_output_shape(trainer->model).channels)
               : 0;
}

/* The last losses are ten times the first one and worse than guessing; where no loss of guessing is
 * known, a hundred times: fine-tuning begins with a loss near 0, of which a few times more is no
 * harm. A loss of the host program may begin at 0 or below, which no multiple compares with. */
static bool diverged(const yoke_trainer *trainer) {
    double last = last_of(&trainer->course), guessing = loss_of_guessing(trainer);
    if (guessing <= 0 && trainer->course.first <= 0) return false;
    return last > (guessing > 0 ? 10 : 100) * trainer->course.first && last > guessing;
}

/* How much of a path can stay where ADDED_BYTES follow. */
static int measure_stem(const char *path, size_t length) {
    const char *slash = strrchr(path, '/');
    size_t folder = slash != NULL ? (size_t)(slash - path) + 1 : 0;
    size_t most = folder + NAME_MAX < PATH_MAX ? folder + NAME_MAX : PATH_MAX;
    return (int)(length + ADDED_BYTES < most ? length : most - ADDED_BYTES);
}

/* The first free of "weights.step-40.safetensors", "weights.step-40-2.safetensors", ...; a long
 * name is cut. */
static void name_beside(char beside[PATH_MAX], const char *path, uint64_t step) {
    size_t length = strlen(path), suffix = strlen(SUFFIX);
    bool has_suffix = length > suffix && strcmp(path + length - suffix, SUFFIX) == 0;
    int stem = measure_stem(path, has_suffix ? length - suffix : length);
    snprintf(beside, PATH_MAX, "%.*s.step-%llu" SUFFIX, stem, path, (unsigned long long)step);
    for (int i = 2; access(beside, F_OK) == 0; i++)
        snprintf(beside, PATH_MAX, "%.*s.step-%llu-%d" SUFFIX, stem, path, (unsigned long long)step,
                 i);
}

const char *yoke_trainer_save_place(const yoke_trainer *trainer, yoke_status ended,
                                    char beside[PATH_MAX]) {
    const char *path = trainer->options.save;
    bool keeps_best = trainer->watch.has_best; /* those are of before the losses rose */
    bool spoiled = ended == YOKE_ERROR_NUMERIC || (!keeps_best && diverged(trainer));
    if (!spoiled || !yoke_file_exists(path)) return path;
    name_beside(beside, path, trainer->step);
    return beside;
}

yoke_status yoke_trainer_report_place(const yoke_trainer *trainer, const char *place,
                                      yoke_error *ended) {
    const char *path = trainer->options.save;
    size_t used = strlen(ended->text);
    if (place == path) return YOKE_OK;
    if (ended->status != YOKE_OK && trainer->watch.has_best) { /* the error names the place */
        snprintf(ended->text + used, sizeof ended->text - used, "; %s is as it was", path);
        return YOKE_OK;
    }
    if (ended->status == YOKE_ERROR_NUMERIC) {
        snprintf(ended->text + used, sizeof ended->text - used,
                 "; %s is as it was, and the weights of step %llu are in %s", path,
                 (unsigned long long)trainer->step, place);
        return YOKE_OK;
    }
    return FAIL(YOKE_ERROR_NUMERIC,
                "the loss rose from %.4g to %.4g: %s is as it was, and the weights of step %llu "
                "are in %s; try a smaller learning rate",
                trainer->course.first, last_of(&trainer->course), path,
                (unsigned long long)trainer->step, place);
}
