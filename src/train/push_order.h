/* SPDX-License-Identifier: Apache-2.0 */
/* The order of the pushes of an asynchronous run, in a file: first the options on which it depends,
 * a line each, then the worker of each push. */
#ifndef TRAIN_PUSH_ORDER_H
#define TRAIN_PUSH_ORDER_H

#include <stdio.h>

#include "train/run.h"

typedef struct yoke_push_order {
    FILE *record; /* NULL: not recorded */
    const char *record_path, *replay_path;
    char *replay, *next; /* the file's text; NULL: not replayed */
} yoke_push_order;

/* ARGUMENT: the file to replay is of a run of other options; the text names both. */
yoke_status yoke_push_order_open(yoke_push_order *order, const yoke_run *run, int workers);
void yoke_push_order_close(yoke_push_order *order);
void yoke_push_order_add(yoke_push_order *order, int worker);
/* IO: the file does not have all pushes so far. */
yoke_status yoke_push_order_check(yoke_push_order *order);
/* The worker of the next push; -1: whoever comes first. DATA: the file ends, or is damaged. */
yoke_status yoke_push_order_next(yoke_push_order *order, int workers, int *worker);

#endif
