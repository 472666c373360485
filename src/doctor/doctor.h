/* SPDX-License-Identifier: Apache-2.0 */
/* The door of doctor: reads a trace of PyTorch's profiler, of nn.DataParallel, of
 * DistributedDataParallel or of one device, and says which stage of a step costs what. From these
 * times and bytes it makes a profile and a link for the simulator. */
#ifndef DOCTOR_DOCTOR_H
#define DOCTOR_DOCTOR_H

#include "simulate/simulate.h"

#define YOKE_DOCTOR_TEXT_BYTES 128
#define YOKE_DOCTOR_NOTES 12

typedef enum yoke_doctor_run {
    YOKE_DOCTOR_SINGLE,
    YOKE_DOCTOR_DP,
    YOKE_DOCTOR_DDP
} yoke_doctor_run;

/* What the caller knows better than the trace; zeroed: nothing. */
typedef struct yoke_doctor_options {
    const char *link; /* as yoke_link_parse takes it */
    double bytes;     /* of all gradients */
    int devices, rows;
} yoke_doctor_options;

/* A figure of the profile, and where it comes from. */
typedef enum yoke_doctor_origin {
    YOKE_DOCTOR_MEASURED, /* the trace says so */
    YOKE_DOCTOR_STATED,   /* by the caller */
    YOKE_DOCTOR_ASSUMED
} yoke_doctor_origin;

typedef struct yoke_doctor_figure {
    yoke_doctor_origin origin;
    char text[YOKE_DOCTOR_TEXT_BYTES]; /* "1597480 bytes in 2 buckets, from all-reduces" */
} yoke_doctor_figure;

typedef struct yoke_doctor {
    yoke_doctor_run run;
    char device[YOKE_DOCTOR_TEXT_BYTES], backend[YOKE_DOCTOR_TEXT_BYTES]; /* printable */
    bool gpu;
    int devices, traced_devices; /* of the run; in the trace */
    int rank;                    /* -1: none */
    /* Steps: means in milliseconds. */
    int steps;
    const char *steps_from; /* "ProfilerStep", for example */
    double step_ms, shortest_ms, longest_ms;
    /* What the root, or the rank, spends in each stage; their sum is step_ms. PYTHON is on a CPU
     * the time that no span covers, on GPUs the idle time within nn.DataParallel's forward. */
    double stage_ms[YOKE_ACCOUNT_STAGES];
    double travel_ms, hidden_ms; /* all-reduces that ran; behind computation */
    /* For the simulator; segment_count 0: the bytes are unknown. */
    yoke_profile profile;
    yoke_topology topology; /* the link alone: Python's costs are the caller's */
    bool has_mode;
    yoke_simulated_mode mode; /* that ran */
    bool unknown_schedule;    /* the simulator does not have it */
    double outside_ms;        /* Python's time that the mode does not simulate */
    yoke_doctor_figure bytes, link, rows, count;
    const char *notes[YOKE_DOCTOR_NOTES];
    char cut[YOKE_DOCTOR_TEXT_BYTES]; /* why the file was not read to its end; "": it was */
    uint64_t events, spans;           /* in the file; kept */
    int note_count;
} yoke_doctor;

/* Reads the trace, plain or .gz. DATA: it is none, another tool's, or has no steps; the text says
 * what to do. MISSING, IO, MEMORY; ARGUMENT: of the options. After a failure the struct is clear.
 */
yoke_status yoke_doctor_read(yoke_doctor *doctor, const char *path,
                             const yoke_doctor_options *options);
yoke_status yoke_doctor_read_bytes(yoke_doctor *doctor, const char *name, const char *bytes,
                                   size_t count, const yoke_doctor_options *options);
void yoke_doctor_clear(yoke_doctor *doctor); /* takes a zeroed struct */

#endif
