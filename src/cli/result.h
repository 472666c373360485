/* SPDX-License-Identifier: Apache-2.0 */
/* What a person, or with --json a script, reads of a run. */
#ifndef CLI_RESULT_H
#define CLI_RESULT_H

#include <stdio.h>

#include "cli/skipped.h"
#include "yoke/yoke.h"

/* The devices of a list. */
#define CLI_DEVICES_MAX 64
typedef struct device_view {
    int count;
    yoke_device_info devices[CLI_DEVICES_MAX]; /* the first ones */
    bool automatic;                            /* the user named none */
    char imbalance[192];                       /* "": the devices are equal enough */
} device_view;
yoke_status device_view_read(device_view *view, const yoke_devices *devices);
/* Opens the devices, reads them and closes them. */
yoke_status device_view_open(device_view *view, const yoke_devices_options *options);
/* Likewise, and where options->list is NULL sets it: to every GPU, or to the CPU, as two devices if
 * it has at least `cores` cores; -1: as one. */
yoke_status device_view_choose(device_view *view, yoke_devices_options *options, int cores);

/* What a model's speed counts: "img/s", or "rows/s" for tables and texts. */
const char *rate_unit(const yoke_model *model);

/* Before the run: model, devices, memory, batch. */
void print_plan(FILE *out, yoke_trainer *trainer, const device_view *view);
/* A row of the table of epochs: means of training, then of the test rows if `tests`. head: the unit
 * of speed in the heads of the columns; NULL: no heads. */
void print_epoch(FILE *out, const yoke_event *epoch, bool tests, const char *head);
/* After it: the stages of a step, then speed and loss. */
void print_stages(FILE *out, const yoke_trace *trace);
/* The rows of a batch that each device computes now: "48 + 16". */
void print_rows(FILE *out, const yoke_data_parallel *engine);
void print_result(FILE *out, const yoke_trainer_summary *summary, const char *unit);
/* On stderr, where new rows cost many times what guessing their class does. */
void warn_of_result(const yoke_trainer *trainer, const yoke_trainer_summary *summary);
yoke_status print_result_json(FILE *out, yoke_trainer *trainer, const yoke_trainer_summary *summary,
                              const skipped_list *skipped);

#endif
