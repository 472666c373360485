/* What a person, or with --json a script, reads of a run. */
#ifndef CLI_RESULT_H
#define CLI_RESULT_H

#include <stdio.h>

#include "yoke/yoke.h"

/* How the devices of a list look. */
#define CLI_DEVICES_MAX 64
typedef struct device_view {
    int count;
    yoke_device_info devices[CLI_DEVICES_MAX]; /* the first ones */
    bool automatic;                            /* nobody chose them */
} device_view;
yoke_status device_view_read(device_view *view, const yoke_devices *devices);
/* Of devices opened and closed at once. */
yoke_status device_view_open(device_view *view, const yoke_devices_options *options);

/* "1.5 GiB". Returns buffer. */
const char *bytes_text(double bytes, char buffer[16]);

/* The run before it begins: model, devices, memory, batch. */
void print_plan(FILE *out, yoke_trainer *trainer, const device_view *view);
/* Stages, then one line. */
void print_stages(FILE *out, const yoke_trace *trace);
void print_result(FILE *out, const yoke_trainer_summary *summary);
void emit_result(FILE *out, yoke_trainer *trainer, const yoke_trainer_summary *summary);

#endif
