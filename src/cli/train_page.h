/* SPDX-License-Identifier: Apache-2.0 */
/* yoke train --report: the page of one run. */
#ifndef CLI_TRAIN_PAGE_H
#define CLI_TRAIN_PAGE_H

#include "cli/result.h"
#include "cli/train_curves.h"
#include "cli/train_options.h"
#include "yoke/lr_find.h"

/* The trainer's option, for the page. */
#define TRAIN_PAGE_MISCLASSIFIED 24

typedef struct train_page {
    yoke_trainer *trainer; /* not running any more */
    const device_view *view;
    const train_curves *curves;
    char *const *command;             /* the words that started the run; NULL ends them */
    const train_setup *setup;         /* complete */
    uint64_t steps;                   /* of the whole run */
    double seconds;                   /* from the begin of training to its last event */
    const char *ended;                /* why the run ended early; NULL: it did not */
    const yoke_lr_find_result *found; /* of a range test; NULL: a run */
} train_page;

/* IO: the file is as it was before. */
yoke_status train_page_write(const char *path, const train_page *page);

#endif
