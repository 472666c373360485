/* SPDX-License-Identifier: Apache-2.0 */
/* What one pass over a split finds: counts, means, files that cannot be read, pictures. */
#ifndef CLI_DATA_SURVEY_H
#define CLI_DATA_SURVEY_H

#include "cli/dataset_rows.h"
#include "yoke/yoke.h"

/* Sums of the values of a channel, or of a target. */
typedef struct data_sums {
    double first, sum, squares; /* of value - first: sums of large values would cancel */
    size_t count, not_finite;
} data_sums;
double data_mean(const data_sums *sums);
double data_std(const data_sums *sums);

/* Pictures of a contact sheet: a row for each class, or rows of any pictures without classes. */
#define SHEET_COLUMNS 10
#define SHEET_LINES 50

typedef struct data_survey {
    yoke_dataset *dataset;
    yoke_dataset_info info;
    char **bad; /* [bad_count]: "file: what is wrong"; owned */
    size_t bad_count;
    bool no_memory;      /* for one of them */
    size_t *class_rows;  /* [classes]: labels of each; a sequence has one for each position */
    data_sums *channels; /* [channels] */
    data_sums *targets;  /* [target_count] */
    uint8_t **pictures;  /* [SHEET_LINES * SHEET_COLUMNS]: [channels, height, width] or
                            NULL; owned */
    bool with_pictures;  /* of images: to be set */
} data_survey;

/* Opens the split and reads every row once. clear takes a zeroed survey. */
yoke_status data_survey_take(data_survey *survey, const char *spec, yoke_split split,
                             const dataset_rows *rows);
void data_survey_clear(data_survey *survey);

#endif
