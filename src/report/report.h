/* SPDX-License-Identifier: Apache-2.0 */
/* The door of report: what a person looks at. A report is one model of the data, filled by a
 * comparison or from files; yoke_report_write makes one HTML page of it. */
#ifndef REPORT_REPORT_H
#define REPORT_REPORT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "trace/trace.h"
#include "yoke/lr_find.h"
#include "yoke/trainer.h"

#define YOKE_REPORT_NAME_BYTES YOKE_TRACE_NAME_BYTES

/* value <= 0: not measured; low == high: one measurement, without an interval. */
typedef struct yoke_report_interval {
    double value, low, high;
} yoke_report_interval;

/* Those of a lane of a report do not overlap, begin with the step at 0 ns, and may have the stage
 * YOKE_STAGE_IDLE. */
typedef yoke_caused_span yoke_report_span;
double yoke_report_span_ms(const yoke_report_span *span);

/* Only devices have stages and bars; the timeline shows all lanes. */
typedef enum yoke_lane_kind {
    YOKE_LANE_DEVICE,
    YOKE_LANE_BESIDE, /* copies, communication or the host of a GPU, which has a lane of its own */
    YOKE_LANE_LINK    /* the times at which a device's link carries something */
} yoke_lane_kind;

/* One device of a run, or what runs beside it. */
typedef struct yoke_report_lane {
    char name[YOKE_REPORT_NAME_BYTES];
    yoke_lane_kind kind;
    double stage_ms[YOKE_ACCOUNT_STAGES]; /* of the mean step, by trace/account.h; their sum is the
                                             mode's step; 0 beside a device */
    yoke_report_span *spans;              /* [span_count], of one step, in order of time */
    int span_count;
} yoke_report_lane;

/* Bytes of one kind at one place: "cpu:0", "parameters". */
typedef struct yoke_report_amount {
    char where[YOKE_REPORT_NAME_BYTES], what[YOKE_REPORT_NAME_BYTES];
    double bytes;
} yoke_report_amount;

typedef struct yoke_report_amounts {
    yoke_report_amount *rows; /* [count] */
    int count;
} yoke_report_amounts;

typedef enum yoke_report_curve {
    YOKE_REPORT_LOSS,              /* of a batch */
    YOKE_REPORT_TEST_LOSS,         /* of an evaluation */
    YOKE_REPORT_TRAINING_ACCURACY, /* of a batch, percent */
    YOKE_REPORT_ACCURACY,          /* of an evaluation, percent */
    YOKE_REPORT_LEARNING_RATE,     /* of a step */
    YOKE_REPORT_STEP_MS,           /* milliseconds of a step */
    YOKE_REPORT_IMAGES,            /* a second, in a step */
    YOKE_REPORT_CURVES
} yoke_report_curve;

typedef struct yoke_report_point {
    double step, value;
} yoke_report_point;

typedef struct yoke_report_points {
    yoke_report_point *points; /* [count] */
    int count;
} yoke_report_points;

/* A way to train on a number of devices, or one file. */
typedef struct yoke_report_mode {
    char name[YOKE_REPORT_NAME_BYTES];
    int devices; /* 0: unknown */
    bool first;  /* one of those that the first picture of the page compares */
    bool unlike; /* it raced under other conditions: no sentence compares it */
    yoke_report_interval step_ms, images_per_second, speedup; /* the first two: both, or neither */
    double mean_step_ms; /* of the steps behind lanes[].stage_ms; 0: no lanes */
    int steps;           /* number of those */
    double median_ms;    /* of the measured steps; 0: unknown */
    double shown_ms;     /* the step whose spans the lanes have: the one closest to the median */
    yoke_report_lane *lanes;
    int lane_count;
    yoke_report_amounts memory; /* bytes in a device's memory, by category */
    yoke_report_amounts links;  /* bytes that the link of each device, the root first, carries in a
                                   step: what it sends, "out", and receives, "in" */
    yoke_report_amounts moved;  /* of a mode without links: bytes that a device reads and writes in
                                   memory in a step, by stage */
    yoke_report_points curves[YOKE_REPORT_CURVES];
    uint64_t point_steps;  /* a point of a curve of steps is the mean of so many; 0: of one */
    char weights_hash[24]; /* "": unknown */
} yoke_report_mode;

typedef struct yoke_report_fact {
    char key[YOKE_REPORT_NAME_BYTES], value[1024];
} yoke_report_fact;

typedef struct yoke_report {
    char subject[YOKE_REPORT_NAME_BYTES];      /* the page's title where it has no result */
    char interval[2 * YOKE_REPORT_NAME_BYTES]; /* what low and high are */
    char link[YOKE_REPORT_NAME_BYTES];         /* of each device: "12.3 GB/s, 5 us, switch"; "":
                                                  unknown */
    bool failed;                               /* out of memory for a fact or a note: no page */
    bool simulated;          /* predicted by a model: no rounds, and devices wait for links */
    bool no_verdict;         /* too short: the figures do not say which mode is faster */
    yoke_report_fact *facts; /* model, dataset, processor ... */
    int fact_count;
    char (*notes)[1280]; /* what the reader must know: a file that is cut short */
    int note_count;
    yoke_report_mode *modes;
    int mode_count;
    /* A training run or a range test has these; the report borrows them. */
    const yoke_predictions *predictions;     /* NULL: no training run */
    const yoke_misclassified *misclassified; /* [predictions->misclassified] */
    const char *no_counts;                   /* why predictions->counts is NULL, a sentence */
    const yoke_lr_find_result *rates;        /* NULL: no range test */
} yoke_report;

/* Takes a zeroed struct. */
void yoke_report_clear(yoke_report *report);

/* They append, and cut texts that are too long. A fact without a value is left out. */
void yoke_report_add_fact(yoke_report *report, const char *key, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
void yoke_report_add_note(yoke_report *report, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* MEMORY. A returned mode is borrowed until the next call adds one. */
yoke_status yoke_report_add_mode(yoke_report *report, const char *name, yoke_report_mode **mode);
yoke_status yoke_report_add_lane(yoke_report_mode *mode, const char *name, yoke_report_lane **lane);
yoke_status yoke_report_add_span(yoke_report_lane *lane, const yoke_report_span *span);
/* Lets the first picture compare the slowest and the fastest mode on most devices. */
void yoke_report_mark_ends(yoke_report *report);
/* Fills an empty lane's spans from those of lane `number` in a step, which may overlap: they are
 * cut by the rule of trace/account.h. Behind the last lane, find_causes finds the causes of waits
 * and idle times that are not known yet. */
yoke_status yoke_report_cut(yoke_report_lane *lane, const yoke_span_info *spans, size_t count,
                            int number, uint64_t begin_ns, uint64_t end_ns);
void yoke_report_find_causes(yoke_report_mode *mode);
/* Makes the lane that of a link, and adds what the link carries by this span in the step. */
yoke_status yoke_report_add_carried(yoke_report_lane *link, const yoke_span_info *span,
                                    uint64_t begin_ns, uint64_t end_ns);
/* Adds a lane "link of WHOSE" of the spans of lane `number` in the step, if there are any. */
yoke_status yoke_report_add_link_lane(yoke_report_mode *mode, const char *whose,
                                      const yoke_span_info *spans, int count, int number,
                                      uint64_t begin_ns, uint64_t end_ns);
/* Adds to the amount of this kind at this place. */
yoke_status yoke_report_add_amount(yoke_report_amounts *amounts, const char *where,
                                   const char *what, double bytes);
/* What the link of this device carries in the step. */
yoke_status yoke_report_add_link(yoke_report_mode *mode, const char *where, double sent,
                                 double received);
void yoke_report_clear_amounts(yoke_report_amounts *amounts);
yoke_status yoke_report_add_point(yoke_report_points *points, double step, double value);

/* Adds a mode from the text of a file: a Chrome trace or lines of metrics, as Yoke writes them.
 * What is cut short is read as far as it goes, with a note. DATA: the text is neither, or holds no
 * complete step; `name` begins the error's text. */
yoke_status yoke_report_read(yoke_report *report, const char *name, const char *text, size_t bytes);
yoke_status yoke_report_read_file(yoke_report *report, const char *path);

/* Writes the page; the file is complete, or it is not there. IO. */
yoke_status yoke_report_write(const yoke_report *report, const char *path);
/* Writes it only if the report could be filled; clears the report. */
yoke_status yoke_report_finish(yoke_report *report, yoke_status filled, const char *path);
/* The page as text, which the caller frees. */
yoke_status yoke_report_page(const yoke_report *report, char **page, size_t *bytes);

#endif
