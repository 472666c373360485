/* SPDX-License-Identifier: Apache-2.0 */
/* A mode: one way to train the configuration, or a file that holds such a run. */
#ifndef CLI_VERIFY_MODE_H
#define CLI_VERIFY_MODE_H

#include "cli/compare/compare_ranks.h"

typedef enum verify_kind {
    VERIFY_REFERENCE, /* float64 */
    VERIFY_SINGLE,    /* one device */
    VERIFY_CLASSIC,   /* DataParallel in its three schedules */
    VERIFY_OVERLAP,
    VERIFY_SHARDED,
    VERIFY_DDP, /* ranks */
    VERIFY_OWN, /* classic, with an exchange of the user */
    VERIFY_FILE /* --against */
} verify_kind;

typedef struct verify_mode {
    verify_kind kind;
    int devices;
    /* One of these. */
    compare_engine *engine;
    compare_ranks *ranks;
    yoke_reference *reference;
    const yoke_tensor_file *file;         /* not the mode's to close */
    const struct verify_mode *leader;     /* of a reference: the mode it starts from */
    const yoke_custom_exchange *exchange; /* of VERIFY_OWN */
    /* After the latest step: all tensors of the model but the integer ones, in their order. */
    double *weights, *gradients; /* [count] */
    bool has_gradients;          /* of that step */
    float *narrow;               /* [count]; on their way from an engine */
    size_t count;
} verify_mode;

/* "reference", "overlap", ... */
const char *verify_mode_name(const verify_mode *mode);

/* The caller sets kind and devices. `model` gives the tensors; meeting is for DDP. */
yoke_status verify_mode_open(verify_mode *mode, const compare_setup *setup,
                             const compare_meeting *meeting, const yoke_model *model);
void verify_mode_close(verify_mode *mode);
/* Gives a reference the weights and statistics that its leader had when it was last read. */
yoke_status verify_mode_follow(verify_mode *mode, const yoke_model *model);
/* One step. Engines load their batches themselves; a reference gets the same one. */
yoke_status verify_mode_step(verify_mode *mode, const yoke_batch *batch);
/* Fills in weights and gradients; step 0: before the first one. */
yoke_status verify_mode_read(verify_mode *mode, const yoke_model *model, int step);

/* Names of a run's tensors in a file. */
#define VERIFY_NAME_BYTES 160
const char *verify_weight_name(char text[VERIFY_NAME_BYTES], int step, const char *tensor);
const char *verify_gradient_name(char text[VERIFY_NAME_BYTES], int step, const char *tensor);

#endif
