/* SPDX-License-Identifier: Apache-2.0 */
#include "train/save_place.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SUFFIX ".safetensors"
#define ADDED_BYTES 64 /* more than ".step-", two numbers and the suffix */

void yoke_loss_trend_add(yoke_loss_trend *trend, double loss) {
    if (trend->steps == 0) trend->first = loss;
    trend->last[trend->steps++ % YOKE_LAST_LOSSES] = loss;
}

static int by_value(const void *left, const void *right) {
    double a = *(const double *)left, b = *(const double *)right;
    return (a > b) - (a < b);
}

/* The median of the last losses, at most half of all: one batch of outliers does not count. */
static double last_of(const yoke_loss_trend *trend) {
    double sorted[YOKE_LAST_LOSSES];
    uint64_t half = trend->steps / 2, count = half < YOKE_LAST_LOSSES ? half : YOKE_LAST_LOSSES;
    for (uint64_t i = 0; i < count; i++)
        sorted[i] = trend->last[(trend->steps - 1 - i) % YOKE_LAST_LOSSES];
    qsort(sorted, count, sizeof sorted[0], by_value);
    return count > 0 ? sorted[count / 2] : trend->first;
}

/* The last losses are ten times the first one and worse than guessing; where no loss of guessing is
 * known, a hundred times: fine-tuning begins with a loss near 0, of which a few times more is no
 * harm. A loss of the host program may begin at 0 or below, which no multiple compares with. */
static bool diverged(const yoke_ending *ending) {
    double first = ending->trend->first, last = last_of(ending->trend);
    double guessing = 0; /* the loss of a model that knows nothing and says so; 0: unknown */
    if (ending->run->options.custom_loss == NULL) {
        const yoke_model *model = ending->run->model;
        yoke_loss_kind kind = yoke_model_loss_kind(model);
        if (kind == YOKE_LOSS_BCE) guessing = log(2);
        if (kind == YOKE_LOSS_CROSS_ENTROPY)
            guessing = log((double)yoke_model_output_shape(model).channels);
    }
    if (guessing <= 0 && first <= 0) return false;
    return last > (guessing > 0 ? 10 : 100) * first && last > guessing;
}

/* The first free of "weights.step-40.safetensors", "weights.step-40-2.safetensors", ...; a long
 * name is cut. */
static void name_beside(char beside[PATH_MAX], const char *path, uint64_t step) {
    size_t length = strlen(path), suffix = strlen(SUFFIX);
    const char *slash = strrchr(path, '/');
    size_t folder = slash != NULL ? (size_t)(slash - path) + 1 : 0;
    size_t most = folder + NAME_MAX < PATH_MAX ? folder + NAME_MAX : PATH_MAX;
    if (length > suffix && strcmp(path + length - suffix, SUFFIX) == 0) length -= suffix;
    int stem = (int)(length + ADDED_BYTES < most ? length : most - ADDED_BYTES);
    snprintf(beside, PATH_MAX, "%.*s.step-%llu" SUFFIX, stem, path, (unsigned long long)step);
    for (int i = 2; access(beside, F_OK) == 0; i++)
        snprintf(beside, PATH_MAX, "%.*s.step-%llu-%d" SUFFIX, stem, path, (unsigned long long)step,
                 i);
}

const char *yoke_save_place(const yoke_ending *ending, yoke_status ended, char beside[PATH_MAX]) {
    const char *path = ending->run->options.save;
    /* The best weights are of before the losses rose. */
    bool spoiled = ended == YOKE_ERROR_NUMERIC || (!ending->keeps_best && diverged(ending));
    if (!spoiled || !yoke_file_exists(path)) return path;
    name_beside(beside, path, ending->run->at.step);
    return beside;
}

yoke_status yoke_save_place_report(const yoke_ending *ending, const char *place,
                                   yoke_error *ended) {
    const char *path = ending->run->options.save;
    unsigned long long step = ending->run->at.step;
    char *end = ended->text + strlen(ended->text);
    size_t room = sizeof ended->text - strlen(ended->text);
    if (place == path) return YOKE_OK;
    if (ended->status != YOKE_OK && ending->keeps_best) { /* the error names the place */
        snprintf(end, room, "; %s is as it was", path);
        return YOKE_OK;
    }
    if (ended->status == YOKE_ERROR_NUMERIC) {
        snprintf(end, room, "; %s is as it was, and the weights of step %llu are in %s", path, step,
                 place);
        return YOKE_OK;
    }
    return FAIL(YOKE_ERROR_NUMERIC,
                "the loss rose from %.4g to %.4g: %s is as it was, and the weights of step %llu "
                "are in %s; try a smaller learning rate",
                ending->trend->first, last_of(ending->trend), path, step, place);
}
