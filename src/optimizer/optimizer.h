/* SPDX-License-Identifier: Apache-2.0 */
/* The door of optimizer: updates parameters from gradients, by ranges of flat buffers. It knows no
 * layers. */
#ifndef OPTIMIZER_OPTIMIZER_H
#define OPTIMIZER_OPTIMIZER_H

#include "device/device.h"
#include "yoke/optimizer.h"

typedef struct yoke_optimizer yoke_optimizer;

/* Copies and checks. NULL `given`: YOKE_SGD_OPTIONS_INIT. */
yoke_status yoke_optimizer_options_load(yoke_optimizer_options *own,
                                        const yoke_optimizer_options *given);

/* What a kind of optimizer is. */
enum {
    YOKE_READS_MOMENTUM = 1,
    YOKE_READS_NESTEROV = 2,
    YOKE_READS_BETAS = 4,
    YOKE_READS_ALPHA = 8,
    YOKE_READS_EPSILON = 16
};
/* What a rule looks at to change a weight: its gradient, its whole tensor, or its matrix; tensors
 * that are no matrices then follow `plain`. */
typedef enum yoke_optimizer_sees {
    YOKE_SEES_ELEMENTS,
    YOKE_SEES_TENSORS,
    YOKE_SEES_MATRICES,
    YOKE_SEES_FILTERS /* matrices of convolutions: a filter is a row */
} yoke_optimizer_sees;
typedef struct yoke_optimizer_rule {
    const char *name, *title, *init; /* "adamw", "AdamW", the macro of its defaults */
    unsigned reads;                  /* YOKE_READS_..., beside the options that all kinds read */
    yoke_update_rule plain, with_momentum;
    const char *states[YOKE_UPDATE_STATES]; /* PyTorch's names of what it keeps for a parameter */
    yoke_optimizer_sees sees;
} yoke_optimizer_rule;
/* NULL: there is no such kind. */
const yoke_optimizer_rule *yoke_optimizer_rule_of(yoke_optimizer_kind kind);

/* Steps of Newton and Schulz. */
int yoke_muon_steps(yoke_optimizer_kind kind);
/* What Muon multiplies the learning rate of a matrix by. */
double yoke_muon_rate(size_t rows, size_t columns);

/* The rule of loaded options, and the scalars of its formula; step counts from 0. */
yoke_update_rule yoke_optimizer_update_rule(const yoke_optimizer_options *options);
yoke_update_scalars yoke_optimizer_scalars(const yoke_optimizer_options *options, uint64_t step,
                                           double learning_rate, double weight_decay);

/* A parameter of two dimensions that a layer multiplies by. */
typedef struct yoke_matrix {
    size_t rows, columns;
    const yoke_layout *layout,
        *plain; /* as it lies in memory; row-major. On GPUs they are equal. */
} yoke_matrix;

/* A range of the flat buffer with settings of its own; it ends where the next one begins. For a
 * rule that sees more than elements it is one tensor. */
typedef struct yoke_optimizer_range {
    size_t offset; /* floats */
    double learning_rate_scale, weight_decay;
    unsigned trained_by; /* as bits, the models of the engine whose steps update it; 0: all */
    unsigned reached_by; /* as bits, the outputs that the range changes: weight decay rests in a
                            step whose gradient comes from none of them; 0: it never does */
    size_t elements;     /* of the tensor */
    yoke_matrix matrix;  /* Muon's; rows 0: the tensor is none */
    int slot;            /* of its scalars in a recorded step; 0: there is none */
    double momentum;     /* 0: the options' */
    uint64_t steps;      /* the range rests from this step on; 0: it never does */
} yoke_optimizer_range;

/* The settings of a whole flat buffer: sorted, the first range begins at 0. */
typedef struct yoke_optimizer_ranges {
    yoke_optimizer_range *items;
    int count;
} yoke_optimizer_ranges;

/* The state for flat elements [offset, offset + elements), in `device`'s memory: those of a bucket,
 * or of the part of a bucket that a device owns. `ranges` outlives the optimizer; NULL: the options
 * hold everywhere. */
yoke_status yoke_optimizer_create(yoke_optimizer **optimizer, const yoke_optimizer_options *options,
                                  const yoke_optimizer_ranges *ranges, yoke_device *device,
                                  size_t offset, size_t elements);
void yoke_optimizer_destroy(yoke_optimizer *optimizer);
size_t yoke_optimizer_bytes(const yoke_optimizer *optimizer);
/* Allocates a second copy of the state, where updates with `kept` keep the old one. Not on devices
 * that share memory. */
yoke_status yoke_optimizer_keep(yoke_optimizer *optimizer);

/* Device memory that an update needs beside the state; 0: none. */
size_t yoke_optimizer_work_bytes(const yoke_optimizer_options *options,
                                 const yoke_optimizer_ranges *ranges);

/* The values that all ranges of one step share. step counts from 0. */
typedef struct yoke_optimizer_step {
    uint64_t step;
    double learning_rate;
    float gradient_scale;        /* from clipping; 1: none */
    unsigned unreached;          /* as bits, outputs that the gradient does not come from */
    int model;                   /* the engine's model of this step */
    const uint64_t *model_steps; /* [models] updates before this one; NULL: models train alike */
    yoke_stream stream;
    const yoke_gate *gate; /* on the updating device; NULL: open */
    float *kept; /* [elements of the update] gets the old weights, while the optimizer keeps its old
                    state; may be the update's gradients. NULL: nothing is kept */
    uint16_t *shadow; /* [elements of the update] gets the new weights, too; NULL: nothing does */
    yoke_precision shadow_precision; /* bfloat16 or float16 */
    void *work; /* [yoke_optimizer_work_bytes], for this update alone; NULL: it needs none */
} yoke_optimizer_step;

/* Scalars of a recorded step: ranges whose settings are the same share a slot. number gives every
 * range its own and returns how many there are; 0: more than YOKE_UPDATE_SLOTS. NULL ranges have
 * one. scalars: of all slots, for a step. */
int yoke_optimizer_number_slots(const yoke_optimizer_options *options,
                                yoke_optimizer_ranges *ranges);
void yoke_optimizer_slot_scalars(const yoke_optimizer_options *options,
                                 const yoke_optimizer_ranges *ranges,
                                 const yoke_optimizer_step *step,
                                 yoke_float_scalars scalars[YOKE_UPDATE_SLOTS]);

/* Updates weights[0 .. elements); weights[0] is flat element `offset`, which lies inside the
 * optimizer's range; where the rule sees more than elements, whole tensors. Several threads may
 * update different ranges of one step at once, each on its own `device`, if the devices share
 * memory. */
yoke_status yoke_optimizer_update(yoke_optimizer *optimizer, const yoke_optimizer_step *step,
                                  yoke_device *device, size_t offset, size_t elements,
                                  float *weights, const float *gradients);

/* Where the gate is closed, the state becomes that before the latest update, which has kept it. */
yoke_status yoke_optimizer_undo(yoke_optimizer *optimizer, yoke_stream stream,
                                const yoke_gate *gate);

/* The values that the rule keeps for each parameter, under PyTorch's names. */
int yoke_optimizer_state_count(const yoke_optimizer_options *options);
const char *yoke_optimizer_state_name(const yoke_optimizer_options *options, int state);
/* [elements of the optimizer], in its device's memory; NULL for an optimizer of no elements. */
float *yoke_optimizer_state(const yoke_optimizer *optimizer, int state);

/* torch.nn.utils.clip_grad_norm_: min(1, clip / (norm + 1e-6)). */
float yoke_clip_scale(double clip_norm, double norm);

#endif
