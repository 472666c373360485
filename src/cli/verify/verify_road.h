/* SPDX-License-Identifier: Apache-2.0 */
/* A road: one way to train the configuration, or a file that holds such a run. */
#ifndef CLI_VERIFY_ROAD_H
#define CLI_VERIFY_ROAD_H

#include "cli/compare/compare_ranks.h"

typedef enum verify_kind {
    VERIFY_REFERENCE, /* float64 */
    VERIFY_SINGLE,    /* one device */
    VERIFY_CLASSIC,   /* DataParallel in its three schedules */
    VERIFY_OVERLAP,
    VERIFY_SHARDED,
    VERIFY_DDP, /* ranks */
    VERIFY_FILE /* --against */
} verify_kind;

typedef struct verify_road {
    verify_kind kind;
    int devices;
    /* One of these. */
    compare_engine *engine;
    compare_ranks *ranks;
    yoke_reference *reference;
    const yoke_tensor_file *file;     /* not the road's to close */
    const struct verify_road *leader; /* of a reference: the road it starts from */
    /* After the latest step: all tensors of the model but the integer ones, in their order. */
    double *weights, *gradients; /* [count] */
    bool has_gradients;          /* of that step */
    float *narrow;               /* [count]; on their way from an engine */
    size_t count;
} verify_road;

/* "reference", "overlap", ... */
const char *verify_road_name(const verify_road *road);

/* The caller sets kind and devices. `model` gives the tensors; meeting is for DDP. */
yoke_status verify_road_open(verify_road *road, const compare_setup *setup,
                             const compare_meeting *meeting, const yoke_model *model);
void verify_road_close(verify_road *road);
/* Gives a reference the weights and statistics that its leader had when it was last read. */
yoke_status verify_road_follow(verify_road *road, const yoke_model *model);
/* One step. Engines load their batches themselves; a reference gets the same one. */
yoke_status verify_road_step(verify_road *road, const yoke_batch *batch);
/* Fills in weights and gradients; step 0: before the first one. */
yoke_status verify_road_read(verify_road *road, const yoke_model *model, int step);

/* Names of a run's tensors in a file. */
#define VERIFY_NAME_BYTES 160
const char *verify_weight_name(char text[VERIFY_NAME_BYTES], int step, const char *tensor);
const char *verify_gradient_name(char text[VERIFY_NAME_BYTES], int step, const char *tensor);

#endif
