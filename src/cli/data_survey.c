/* SPDX-License-Identifier: Apache-2.0 */
/* Reads a split as training does, but without normalisation. */
#include "cli/data_survey.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"

#define BATCH 16

double data_mean(const data_sums *sums) {
    return sums->count > 0 ? sums->first + sums->sum / (double)sums->count : NAN;
}

double data_std(const data_sums *sums) {
    double count = (double)sums->count, mean = sums->sum / count;
    return sums->count > 0 ? sqrt(fmax(sums->squares / count - mean * mean, 0)) : NAN;
}

static void add_values(data_sums *sums, const float *values, size_t count) {
    for (size_t i = 0; i < count; i++) {
        double value = (double)values[i];
        if (!isfinite(value)) {
            sums->not_finite++;
            continue;
        }
        if (sums->count++ == 0) sums->first = value;
        sums->sum += value - sums->first;
        sums->squares += (value - sums->first) * (value - sums->first);
    }
}

static void add_bad(const yoke_bad_row *bad, void *payload) {
    data_survey *survey = payload;
    char **larger = realloc(survey->bad, (survey->bad_count + 1) * sizeof *larger);
    char *text = strdup(bad->text);
    if (larger != NULL) survey->bad = larger;
    if (larger == NULL || text == NULL) {
        free(text);
        survey->no_memory = true;
        return;
    }
    survey->bad[survey->bad_count++] = text;
}

/* Where the next picture of the class goes; -1: nowhere. */
static int find_place(const data_survey *survey, int label) {
    int first = survey->info.classes > 0 ? label * SHEET_COLUMNS : 0;
    int count = survey->info.classes > 0 ? SHEET_COLUMNS : SHEET_COLUMNS * SHEET_COLUMNS;
    if (first + count > SHEET_LINES * SHEET_COLUMNS) return -1;
    for (int i = first; i < first + count; i++)
        if (survey->pictures[i] == NULL) return i;
    return -1;
}

/* Bytes of 0 to 255 are what they were; floats outside 0 to 1 are scaled from the lowest to the
 * highest. */
static void keep_picture(data_survey *survey, const float *values, size_t count, int label) {
    int place = find_place(survey, label);
    if (place < 0) return;
    uint8_t *picture = survey->pictures[place] = malloc(count);
    float low = 0, high = 1;
    for (size_t i = 0; i < count; i++) {
        if (values[i] < low) low = values[i];
        if (values[i] > high) high = values[i];
    }
    for (size_t i = 0; picture != NULL && i < count; i++)
        picture[i] = (uint8_t)lrintf(fmaxf((values[i] - low) / (high - low), 0) * 255);
}

static void add_batch(data_survey *survey, const yoke_batch *batch) {
    const yoke_dataset_info *info = &survey->info;
    size_t channels = (size_t)info->shape.channels, targets = (size_t)info->target_count;
    size_t labels = (size_t)info->label_count; /* 0: targets */
    size_t plane = (size_t)info->shape.height * (size_t)info->shape.width;
    for (size_t row = 0; row < (size_t)batch->rows; row++) {
        const float *values = batch->inputs + row * channels * plane;
        for (size_t channel = 0; channel < channels; channel++)
            add_values(&survey->channels[channel], values + channel * plane, plane);
        for (size_t i = 0; i < targets; i++)
            add_values(&survey->targets[i], batch->targets + row * targets + i, 1);
        const int32_t *own = info->classes > 0 ? batch->labels + row * labels : NULL;
        for (size_t i = 0; i < labels; i++)
            if (own[i] != YOKE_NO_LABEL) survey->class_rows[own[i]]++;
        if (survey->with_pictures)
            keep_picture(survey, values, channels * plane, own != NULL ? own[0] : 0);
    }
}

static yoke_status read_rows(data_survey *survey, const dataset_rows *rows) {
    yoke_loader *loader = NULL;
    yoke_loader_options options = YOKE_LOADER_OPTIONS_INIT;
    yoke_batch batch = {.struct_size = sizeof batch};
    options.batch = BATCH;
    options.raw = true;
    options.threads = rows->loader_threads.count;
    yoke_status status = yoke_loader_create(&loader, survey->dataset, &options);
    if (status == YOKE_OK) status = yoke_loader_begin(loader, 0);
    while (status == YOKE_OK) {
        status = yoke_loader_next(loader, &batch, NULL);
        if (status != YOKE_OK || batch.rows == 0) break;
        add_batch(survey, &batch);
    }
    yoke_loader_destroy(loader);
    return status;
}

static yoke_status reserve(data_survey *survey) {
    const yoke_dataset_info *info = &survey->info;
    survey->class_rows = calloc((size_t)info->classes + 1, sizeof *survey->class_rows);
    survey->channels = calloc((size_t)info->shape.channels, sizeof *survey->channels);
    survey->targets = calloc((size_t)info->target_count + 1, sizeof *survey->targets);
    survey->pictures = calloc(SHEET_LINES * SHEET_COLUMNS, sizeof *survey->pictures);
    if (survey->class_rows != NULL && survey->channels != NULL && survey->targets != NULL &&
        survey->pictures != NULL)
        return YOKE_OK;
    return cli_refuse(YOKE_ERROR_MEMORY, "no memory for what a dataset holds");
}

yoke_status data_survey_take(data_survey *survey, const char *spec, yoke_split split,
                             const dataset_rows *rows) {
    survey->info.struct_size = sizeof survey->info;
    dataset_rows all = *rows;
    all.skip_bad = true;
    yoke_status status = dataset_rows_open(&survey->dataset, spec, split, &all, add_bad, survey);
    if (status == YOKE_OK && survey->no_memory)
        status = cli_refuse(YOKE_ERROR_MEMORY, "no memory for the names of damaged files");
    if (status == YOKE_OK) status = yoke_dataset_describe(survey->dataset, &survey->info);
    if (status == YOKE_OK) status = reserve(survey);
    if (survey->info.shape.flat || survey->info.shape.sequence) survey->with_pictures = false;
    return status == YOKE_OK ? read_rows(survey, rows) : status;
}

void data_survey_clear(data_survey *survey) {
    for (int i = 0; survey->pictures != NULL && i < SHEET_LINES * SHEET_COLUMNS; i++)
        free(survey->pictures[i]);
    free(survey->pictures);
    free(survey->targets);
    free(survey->channels);
    free(survey->class_rows);
    for (size_t i = 0; i < survey->bad_count; i++)
        free(survey->bad[i]);
    free(survey->bad);
    yoke_dataset_close(survey->dataset);
    *survey = (data_survey){0};
}
