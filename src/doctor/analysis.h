/* SPDX-License-Identifier: Apache-2.0 */
/* From spans to the stages of steps. For the files of this room only. */
#ifndef DOCTOR_ANALYSIS_H
#define DOCTOR_ANALYSIS_H

#include "doctor/kineto_trace.h"

#define NO_STAGE YOKE_STAGE_COUNT
#define NEVER INT64_MAX

/* A part of a span in which none of those within it runs. */
typedef struct lane_piece {
    int64_t begin_ns, end_ns;
    size_t span;
} lane_piece;

/* A step by the host's clock, and what happens in it. */
typedef struct step_window {
    int64_t begin_ns, end_ns;
    int64_t device_begin_ns, device_end_ns;   /* when the devices have done what came before */
    int64_t forward_begin_ns, forward_end_ns; /* as annotated; NEVER, 0: it is not */
    int64_t backward_begin_ns, backward_last_ns, backward_end_ns; /* NEVER, 0, 0: none */
    int64_t optimizer_end_ns;                                     /* 0: none */
} step_window;

typedef struct lane_range {
    size_t begin, end; /* of its pieces */
} lane_range;

typedef struct analysis {
    kineto_trace *trace;
    uint8_t *stages;    /* [trace->count] of each span; NO_STAGE: none, or not known yet */
    int64_t *launch_ns; /* [trace->count] of work: when the host asked for it */
    lane_piece *pieces; /* in the order of time, lane by lane */
    size_t piece_count, piece_capacity;
    lane_range *lanes; /* [trace->lane_count] */
    step_window *windows;
    int window_count;
    const char *windows_from;
    int main_lane; /* the thread that trains */
    bool gpu;
    int *devices; /* [device_count], the root first; a run without GPUs has one, 0 */
    int device_count;
} analysis;

/* MEMORY; DATA: no steps. Reorders the spans. */
yoke_status analysis_open(analysis *found, kineto_trace *trace, const char *name);
void analysis_close(analysis *found); /* takes a zeroed struct */

/* lane_pieces.c: the pieces of the host's lanes, or of the GPUs'. */
yoke_status analysis_cut_lanes(analysis *found, bool gpu);
/* The stage of a lane of the host at a time; NO_STAGE. */
yoke_stage analysis_stage_at(const analysis *found, int lane, int64_t at_ns);

/* step_windows.c */
yoke_status analysis_find_windows(analysis *found, const char *name);
/* NULL: between steps. */
step_window *analysis_window_at(const analysis *found, int64_t at_ns);
/* The stage of what no annotation surrounds. */
yoke_stage analysis_phase_at(const analysis *found, int64_t at_ns);
void analysis_resolve_operations(analysis *found);

/* gpu_work.c: the stage of each kernel and copy is that of the place that launched it. */
yoke_status analysis_resolve_work(analysis *found);

/* stage_times.c: means over the steps, of one device. */
typedef struct device_times {
    double stage_ms[YOKE_ACCOUNT_STAGES], step_ms, shortest_ms, longest_ms;
    double travel_ms, hidden_ms; /* all-reduces that ran; behind computation */
} device_times;
yoke_status analysis_times(const analysis *found, int device, device_times *times);

/* Events in the order of time: backward's work, buckets, gradients. */
typedef struct timed_list {
    struct timed_value {
        int64_t at_ns;
        double value;
    } * values;
    size_t count, capacity;
} timed_list;
yoke_status timed_add(timed_list *list, int64_t at_ns, double value);
void timed_sort(timed_list *list);

/* trace_profile.c: profile, link and mode. */
yoke_status analysis_profile(const analysis *found, const device_times *times, /* [devices] */
                             const yoke_doctor_options *options, yoke_doctor *doctor);

#endif
