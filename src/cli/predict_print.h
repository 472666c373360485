/* SPDX-License-Identifier: Apache-2.0 */
/* Predictions as text, JSON or CSV, in the order of the rows. */
#ifndef CLI_PREDICT_PRINT_H
#define CLI_PREDICT_PRINT_H

#include "cli/trained.h"

typedef enum predict_format { PREDICT_TEXT, PREDICT_JSON, PREDICT_CSV } predict_format;

typedef struct predict_printer {
    const trained *of;
    predict_format format;
    int top; /* classes of each row */
    yoke_json json;
} predict_printer;

/* Before the first row; after the last one. begin: what of the JSON comes before the rows. */
void predict_print_begin(predict_printer *printer, const char *weights);
yoke_status predict_print_end(predict_printer *printer);
/* outputs: of one row, [classes] or [target_count]. MEMORY. */
yoke_status predict_print_row(predict_printer *printer, const char *name, const float *outputs);

#endif
