/* How gradients change parameters: SGD and AdamW with PyTorch's arithmetic, and the learning rate
 * over time. */
#ifndef YOKE_OPTIMIZER_H
#define YOKE_OPTIMIZER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "yoke/status.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum yoke_optimizer_kind { YOKE_SGD, YOKE_ADAMW } yoke_optimizer_kind;

typedef struct yoke_optimizer_options {
    size_t struct_size;
    yoke_optimizer_kind kind;
    double learning_rate; /* > 0; 0: 0.1 for SGD, 1e-3 for AdamW */
    double momentum;      /* SGD */
    bool nesterov;        /* SGD; needs momentum */
    double weight_decay;  /* SGD: added to the gradient; AdamW: decoupled */
    double beta1, beta2;  /* AdamW; 0: 0.9, 0.999 */
    double epsilon;       /* AdamW; 0: 1e-8 */
    double clip_norm;     /* global gradient norm is cut to this; 0: off (torch clip_grad_norm_) */
} yoke_optimizer_options;

typedef enum yoke_lr_schedule_kind {
    YOKE_LR_CONSTANT,
    YOKE_LR_STEP,    /* x 0.1 at 1/2 and 3/4 of the run */
    YOKE_LR_COSINE,  /* to 0 */
    YOKE_LR_ONECYCLE /* torch.optim.lr_scheduler.OneCycleLR with its defaults, max_lr = learning
                        rate */
} yoke_lr_schedule_kind;

typedef struct yoke_lr_schedule {
    size_t struct_size;
    yoke_lr_schedule_kind kind;
    double learning_rate;  /* the peak */
    uint64_t steps;        /* of the whole run */
    uint64_t warmup_steps; /* linear from learning_rate / warmup_steps; not with one-cycle */
} yoke_lr_schedule;

/* Learning rate of step `step` (0-based). Pure. */
YOKE_API double yoke_learning_rate(const yoke_lr_schedule *schedule, uint64_t step);

#ifdef __cplusplus
}
#endif

#endif
