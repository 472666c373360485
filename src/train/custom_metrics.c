/* SPDX-License-Identifier: Apache-2.0 */
#include "train/custom_metrics.h"

#include <stdlib.h>
#include <string.h>

#include "base/base.h"

/* The array may come from other headers: its own struct_size is the distance between two metrics.
 */
static yoke_status load(yoke_custom_metrics *metrics, const yoke_metric *given, int count) {
    size_t stride = given->struct_size;
    for (int i = 0; i < count; i++) {
        yoke_metric *metric = &metrics->list[i];
        TRY(yoke_options_load(metric, sizeof *metric, (const char *)given + (size_t)i * stride,
                              "yoke_metric"));
        if (metric->name == NULL || metric->name[0] == '\0' || metric->add == NULL)
            return FAIL(YOKE_ERROR_ARGUMENT, "custom_metrics[%d]: set its name and `add`", i);
        for (int k = 0; k < i; k++)
            if (strcmp(metrics->list[k].name, metric->name) == 0)
                return FAIL(YOKE_ERROR_ARGUMENT, "custom_metrics[%d] and [%d] are both named '%s'",
                            k, i, metric->name);
        const char *name = metric->name;
        metric->name = yoke_strdup(name);
        metrics->count = i + 1; /* close frees the name */
        if (metric->name == NULL) return FAIL_MEMORY(strlen(name) + 1, "a metric's name");
        metrics->values[i].name = metric->name;
    }
    return YOKE_OK;
}

yoke_status yoke_custom_metrics_open(yoke_custom_metrics *metrics, const yoke_metric *given,
                                     int count) {
    size_t sums = (size_t)count * YOKE_METRIC_SUMS;
    if (count == 0) return YOKE_OK;
    if (count < 0 || given == NULL)
        return FAIL(YOKE_ERROR_ARGUMENT, "metric_count is %d and custom_metrics is %s", count,
                    given != NULL ? "set: the count is at least 0" : "NULL: set it");
    metrics->list = yoke_calloc((size_t)count, sizeof *metrics->list);
    metrics->values = yoke_calloc((size_t)count, sizeof *metrics->values);
    metrics->sums = yoke_calloc(sums, sizeof *metrics->sums);
    if (metrics->list == NULL || metrics->values == NULL || metrics->sums == NULL)
        return FAIL_MEMORY(sums * sizeof *metrics->sums, "metrics");
    return load(metrics, given, count);
}

void yoke_custom_metrics_close(yoke_custom_metrics *metrics) {
    for (int i = 0; i < metrics->count; i++)
        yoke_free((char *)metrics->list[i].name);
    yoke_free(metrics->list);
    yoke_free(metrics->values);
    yoke_free(metrics->sums);
    *metrics = (yoke_custom_metrics){0};
}

void yoke_custom_metrics_begin(yoke_custom_metrics *metrics) {
    for (int i = 0; i < metrics->count * YOKE_METRIC_SUMS; i++)
        metrics->sums[i] = 0;
}

yoke_status yoke_custom_metrics_add(yoke_custom_metrics *metrics, const yoke_outputs *rows) {
    for (int i = 0; i < metrics->count && rows->batch->rows > 0; i++) {
        const yoke_metric *metric = &metrics->list[i];
        yoke_error_forget();
        TRY(yoke_error_of_host(
            metric->add(metric->payload, rows, metrics->sums + (size_t)i * YOKE_METRIC_SUMS),
            metric->name));
    }
    return YOKE_OK;
}

yoke_status yoke_custom_metrics_end(yoke_custom_metrics *metrics, yoke_process_group *ranks) {
    size_t count = (size_t)metrics->count * YOKE_METRIC_SUMS;
    if (ranks != NULL && count > 0)
        TRY(yoke_process_group_all_reduce(ranks, metrics->sums, count, YOKE_ELEMENT_FLOAT64,
                                          YOKE_SUM));
    for (int i = 0; i < metrics->count; i++) {
        const yoke_metric *metric = &metrics->list[i];
        const double *sums = metrics->sums + (size_t)i * YOKE_METRIC_SUMS;
        metrics->values[i].value =
            metric->value != NULL ? metric->value(metric->payload, sums) : sums[0] / sums[1];
    }
    return YOKE_OK;
}
