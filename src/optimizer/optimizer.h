/* The door of optimizer: gradients change parameters, by ranges of flat buffers. It never meets a
 * layer. */
#ifndef OPTIMIZER_OPTIMIZER_H
#define OPTIMIZER_OPTIMIZER_H

#include "device/device.h"
#include "yoke/optimizer.h"

typedef struct yoke_optimizer yoke_optimizer;

/* Copies and checks. NULL `given`: YOKE_SGD_OPTIONS_INIT. */
yoke_status yoke_optimizer_options_load(yoke_optimizer_options *own,
                                        const yoke_optimizer_options *given);

/* State for flat elements [offset, offset + elements) in `device`'s memory: of a bucket, or of the
 * part of one that a device owns. */
yoke_status yoke_optimizer_create(yoke_optimizer **optimizer, const yoke_optimizer_options *options,
                                  yoke_device *device, size_t offset, size_t elements);
void yoke_optimizer_destroy(yoke_optimizer *optimizer);
size_t yoke_optimizer_bytes(const yoke_optimizer *optimizer);

/* What all ranges of one step share. step counts from 0. */
typedef struct yoke_optimizer_step {
    uint64_t step;
    double learning_rate;
    float gradient_scale; /* from clipping; 1: none */
    yoke_stream stream;
    const yoke_gate *gate; /* on the updating device; NULL: open */
} yoke_optimizer_step;

/* Updates weights[0 .. elements) whose first element is flat element `offset`, inside the
 * optimizer's range. Ranges of one step may be updated by different threads at once, each on
 * `device` (the worker that runs it; state is host-visible among CPU devices). */
yoke_status yoke_optimizer_update(yoke_optimizer *optimizer, const yoke_optimizer_step *step,
                                  yoke_device *device, size_t offset, size_t elements,
                                  float *weights, const float *gradients);

/* torch.nn.utils.clip_grad_norm_: min(1, clip / (norm + 1e-6)). */
float yoke_clip_scale(double clip_norm, double norm);

#endif
