/* SPDX-License-Identifier: Apache-2.0 */
/* Metrics of the host program: sums over the rows of an evaluation. */
#ifndef TRAIN_CUSTOM_METRICS_H
#define TRAIN_CUSTOM_METRICS_H

#include "distributed/distributed.h"
#include "yoke/trainer.h"

typedef struct yoke_custom_metrics {
    int count;
    yoke_metric *list;         /* [count], with names of their own */
    double *sums;              /* [count, YOKE_METRIC_SUMS] */
    yoke_metric_value *values; /* [count] of the last evaluation */
} yoke_custom_metrics;

/* Copies the host's. After a failure close frees what there is. */
yoke_status yoke_custom_metrics_open(yoke_custom_metrics *metrics, const yoke_metric *given,
                                     int count);
void yoke_custom_metrics_close(yoke_custom_metrics *metrics);
void yoke_custom_metrics_begin(yoke_custom_metrics *metrics);
yoke_status yoke_custom_metrics_add(yoke_custom_metrics *metrics, const yoke_outputs *rows);
/* Adds up the ranks' sums, by all ranks together; ranks NULL: this process has all rows. */
yoke_status yoke_custom_metrics_end(yoke_custom_metrics *metrics, yoke_process_group *ranks);

#endif
