/* SPDX-License-Identifier: Apache-2.0 */
/** @file
 * How gradients change parameters: SGD, Adam and others with PyTorch's arithmetic, and the learning
 * rate over a run.
 */
#ifndef YOKE_OPTIMIZER_H
#define YOKE_OPTIMIZER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "yoke/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/** The update rule. */
typedef enum yoke_optimizer_kind {
    YOKE_SGD,     /**< torch.optim.SGD */
    YOKE_ADAMW,   /**< torch.optim.AdamW */
    YOKE_ADAM,    /**< torch.optim.Adam: weight decay is part of the gradient */
    YOKE_RMSPROP, /**< torch.optim.RMSprop, not centered */
    YOKE_LION,    /**< Lion of Chen et al. 2023: the sign of an interpolation between momentum and
                       gradient; weight decay decoupled */
    YOKE_ADAGRAD, /**< torch.optim.Adagrad, without its lr_decay */
    YOKE_LAMB,    /**< LAMB of You et al. 2020: AdamW's direction, in each parameter as long as the
                       parameter's norm; a parameter without weight decay goes AdamW's way */
    YOKE_MUON,    /**< Muon of Jordan et al. 2024, torch.optim.Muon with adjust_lr_fn
                       "match_rms_adamw" and its products in float32, for the matrices of linear and
                       recurrent layers; AdamW, at the same learning rate, for all others */
    YOKE_MUON_FILTERS /**< Muon of Jordan's airbench for the filters of convolutions: each step
                           scales them to the norm sqrt(filters), and goes the rate's length in a
                           direction that three steps made orthogonal, without weight decay;
                           torch.optim.SGD for all others */
} yoke_optimizer_kind;

/** The word of a kind, as `yoke train --optimizer` has it.
 *
 * @param kind  The rule.
 * @return "sgd", ..., static; NULL: there is no such kind.
 */
YOKE_API const char *yoke_optimizer_name(yoke_optimizer_kind kind);

/** Begin with the INIT macro of the kind, such as YOKE_SGD_OPTIONS_INIT: here 0 means 0, never a
 * default. An option that the kind does not read counts for nothing. */
typedef struct yoke_optimizer_options {
    size_t struct_size;       /**< sizeof(yoke_optimizer_options). */
    yoke_optimizer_kind kind; /**< The rule. */
    double learning_rate;     /**< At least 0. */
    double momentum;          /**< SGD, RMSprop, both Muons: 0 <= momentum < 1. */
    bool nesterov;            /**< SGD, both Muons: Nesterov's momentum; needs momentum > 0. */
    /** At least 0. AdamW, Lion, LAMB and Muon decouple it; the others add it to the gradient. It
     * leaves alone the parameters that the step's loss does not reach
     * (yoke_data_parallel_unreached). */
    double weight_decay;
    /** Adam, AdamW, LAMB, Muon's AdamW: decay of the first moment; Lion: the momentum's share of
     * the direction; 0 <= beta1 < 1. */
    double beta1;
    /** Adam, AdamW, LAMB, Muon's AdamW: decay of the second moment; Lion: of the momentum; 0 <=
     * beta2 < 1. */
    double beta2;
    double epsilon;   /**< All but SGD and Lion: added to the denominator; at least 0. */
    double clip_norm; /**< Scale the gradient down to this norm over all parameters, as
                           torch.nn.utils.clip_grad_norm_ does; 0: do not clip. */
    double alpha;     /**< RMSprop: decay of the mean square; 0 <= alpha < 1. */
} yoke_optimizer_options;

/** torch.optim.SGD's defaults, with a learning rate of 0.1 (PyTorch's has no default). */
#define YOKE_SGD_OPTIONS_INIT                                                                      \
    {                                                                                              \
        sizeof(yoke_optimizer_options), YOKE_SGD, 0.1 /* learning_rate */, 0 /* momentum */,       \
            false /* nesterov */, 0 /* weight_decay */, 0, 0, 0 /* AdamW's */, 0 /* clip_norm */,  \
            0                                                                                      \
    }

/** torch.optim.AdamW's defaults. */
#define YOKE_ADAMW_OPTIONS_INIT                                                                    \
    {                                                                                              \
        sizeof(yoke_optimizer_options), YOKE_ADAMW, 1e-3 /* learning_rate */, 0,                   \
            false /* SGD's */, 0.01 /* weight_decay */, 0.9 /* beta1 */, 0.999 /* beta2 */,        \
            1e-8 /* epsilon */, 0 /* clip_norm */, 0                                               \
    }

/** torch.optim.Adam's defaults. */
#define YOKE_ADAM_OPTIONS_INIT                                                                     \
    {                                                                                              \
        sizeof(yoke_optimizer_options), YOKE_ADAM, 1e-3 /* learning_rate */, 0, false,             \
            0 /* weight_decay */, 0.9 /* beta1 */, 0.999 /* beta2 */, 1e-8 /* epsilon */,          \
            0 /* clip_norm */, 0                                                                   \
    }

/** torch.optim.RMSprop's defaults. */
#define YOKE_RMSPROP_OPTIONS_INIT                                                                  \
    {                                                                                              \
        sizeof(yoke_optimizer_options), YOKE_RMSPROP, 1e-2 /* learning_rate */, 0 /* momentum */,  \
            false, 0 /* weight_decay */, 0, 0, 1e-8 /* epsilon */, 0 /* clip_norm */,              \
            0.99 /* alpha */                                                                       \
    }

/** Lion's defaults, those of the paper's program. */
#define YOKE_LION_OPTIONS_INIT                                                                     \
    {                                                                                              \
        sizeof(yoke_optimizer_options), YOKE_LION, 1e-4 /* learning_rate */, 0, false,             \
            0 /* weight_decay */, 0.9 /* beta1 */, 0.99 /* beta2 */, 0, 0 /* clip_norm */, 0       \
    }

/** torch.optim.Adagrad's defaults. */
#define YOKE_ADAGRAD_OPTIONS_INIT                                                                  \
    {                                                                                              \
        sizeof(yoke_optimizer_options), YOKE_ADAGRAD, 1e-2 /* learning_rate */, 0, false,          \
            0 /* weight_decay */, 0, 0, 1e-10 /* epsilon */, 0 /* clip_norm */, 0                  \
    }

/** LAMB's defaults, those of the paper's program. */
#define YOKE_LAMB_OPTIONS_INIT                                                                     \
    {                                                                                              \
        sizeof(yoke_optimizer_options), YOKE_LAMB, 1e-3 /* learning_rate */, 0, false,             \
            0.01 /* weight_decay */, 0.9 /* beta1 */, 0.999 /* beta2 */, 1e-6 /* epsilon */,       \
            0 /* clip_norm */, 0                                                                   \
    }

/** torch.optim.Muon's defaults, and torch.optim.AdamW's. */
#define YOKE_MUON_OPTIONS_INIT                                                                     \
    {                                                                                              \
        sizeof(yoke_optimizer_options), YOKE_MUON, 1e-3 /* learning_rate */, 0.95 /* momentum */,  \
            true /* nesterov */, 0.1 /* weight_decay */, 0.9 /* beta1 */, 0.999 /* beta2 */,       \
            1e-8 /* epsilon */, 0 /* clip_norm */, 0                                               \
    }

/** airbench94_muon's: momentum of 0.6 for filters; a group gives the others SGD's of 0.85. */
#define YOKE_MUON_FILTERS_OPTIONS_INIT                                                             \
    {                                                                                              \
        sizeof(yoke_optimizer_options), YOKE_MUON_FILTERS, 0.24 /* learning_rate */,               \
            0.6 /* momentum */, true /* nesterov */, 0 /* weight_decay */, 0, 0, 0,                \
            0 /* clip_norm */, 0                                                                   \
    }

/** What holds for the parameters whose names match a pattern, as a parameter group of torch.optim.
 * Begin with YOKE_PARAMETER_GROUP_INIT. Of several groups that match a name, the first counts; what
 * no group matches follows the optimizer's options. */
typedef struct yoke_parameter_group {
    size_t struct_size;         /**< sizeof(yoke_parameter_group). */
    const char *pattern;        /**< Shell patterns of PyTorch's names, with commas between them:
                                     "layer1.*,layer2.*", "*.bias,*bn?.*". `*` matches dots, too. */
    double learning_rate_scale; /**< Multiplies the learning rate of every step; at least 0. */
    double weight_decay;        /**< Instead of the optimizer's, if set_weight_decay; at least 0.
                                     Above 0 it holds in every step, also for parameters that no
                                     loss reaches. */
    bool set_weight_decay;      /**< Whether weight_decay counts. */
    bool frozen; /**< PyTorch's requires_grad = False: these parameters never change, have no
                      gradient and no optimizer state, and no step reduces or sends them. A frozen
                      batch norm still computes with the statistics of the batch when training, and
                      updates its running statistics. */
    bool one_dimensional; /**< Only parameters of one dimension match: biases, and the weights of
                               norms. */
    double momentum;      /**< Instead of the optimizer's, above 0 and below 1; for an optimizer
                               with momentum above 0. 0: the optimizer's. */
    uint64_t steps;       /**< These parameters rest, with their optimizer state, from this step of
                               the engine on. 0: they never do. */
} yoke_parameter_group;

/** A group that changes nothing; set pattern, and what differs. */
#define YOKE_PARAMETER_GROUP_INIT                                                                  \
    {                                                                                              \
        sizeof(yoke_parameter_group), NULL, 1 /* learning_rate_scale */, 0, false, false, false,   \
            0 /* momentum */, 0                                                                    \
    }

/** Pass it as the learning rate of a step to use yoke_optimizer_options.learning_rate. Any negative
 * number does the same; 0 is a rate of 0. */
#define YOKE_OPTIMIZER_LEARNING_RATE (-1.0)

/** The shape of the learning rate over a run. */
typedef enum yoke_lr_schedule_kind {
    YOKE_LR_CONSTANT, /**< The peak throughout. */
    YOKE_LR_STEP,   /**< The peak times 0.1 from half of the run, times 0.01 from three quarters. */
    YOKE_LR_COSINE, /**< Half a cosine wave from the peak to 0. */
    YOKE_LR_ONECYCLE,    /**< torch.optim.lr_scheduler.OneCycleLR with its defaults; max_lr is the
                              peak. */
    YOKE_LR_EXPONENTIAL, /**< torch.optim.lr_scheduler.ExponentialLR: the peak times gamma in every
                              further epoch. */
    YOKE_LR_PLATEAU,     /**< The peak, which the caller lowers with yoke_lr_plateau_update. */
    YOKE_LR_LINEAR       /**< A straight line from the peak to 0; with a warm-up a triangle. */
} yoke_lr_schedule_kind;

/** A learning rate over a run. */
typedef struct yoke_lr_schedule {
    size_t struct_size;         /**< sizeof(yoke_lr_schedule). */
    yoke_lr_schedule_kind kind; /**< The shape. */
    double learning_rate;       /**< The peak. */
    uint64_t steps; /**< The length of the whole run; 0: unknown, the rate stays at the peak. */
    uint64_t warmup_steps; /**< Grow linearly from learning_rate / warmup_steps to the peak over
                                this many steps; one-cycle ignores it. */
    double gamma;          /**< EXPONENTIAL: factor of an epoch. */
    uint64_t epoch_steps;  /**< EXPONENTIAL: steps of an epoch; 0: gamma does nothing. */
} yoke_lr_schedule;

/** All zero but the size. */
#define YOKE_LR_SCHEDULE_INIT                                                                      \
    { sizeof(yoke_lr_schedule), YOKE_LR_CONSTANT, 0, 0, 0, 0, 0 }

/** torch.optim.lr_scheduler.ReduceLROnPlateau with mode "min": lowers a learning rate when a loss
 * stops falling. Begin with YOKE_LR_PLATEAU_INIT and set learning_rate. */
typedef struct yoke_lr_plateau {
    size_t struct_size;   /**< sizeof(yoke_lr_plateau). */
    double factor;        /**< Each reduction multiplies the rate by it; below 1. */
    int patience;         /**< Evaluations without a better loss before a reduction. */
    double threshold;     /**< A loss is better below (1 - threshold) times the best one. */
    double minimum;       /**< The lowest rate. */
    double learning_rate; /**< The rate now. */
    uint64_t evaluations; /**< How many losses it has seen, from the first finite one on. */
    double best;          /**< The best of them. */
    int bad;              /**< Evaluations since the best one or the last reduction. */
} yoke_lr_plateau;

/** PyTorch's defaults. */
#define YOKE_LR_PLATEAU_INIT                                                                       \
    {                                                                                              \
        sizeof(yoke_lr_plateau), 0.1 /* factor */, 10 /* patience */, 1e-4 /* threshold */, 0, 0,  \
            0, 0, 0                                                                                \
    }

/** Takes the loss of an evaluation into account.
 *
 * @param plateau  The schedule. NULL: 0.
 * @param loss     Of the evaluation. NaN is never better.
 * @return learning_rate, lowered if it was time; NaN: struct_size is wrong, and yoke_last_error
 *         says so.
 */
YOKE_API double yoke_lr_plateau_update(yoke_lr_plateau *plateau, double loss);

/** Computes the learning rate of one step. A pure function.
 *
 * @param schedule  The schedule. NULL: 0.
 * @param step      The step, counted from 0.
 * @return The rate, at least 0; NaN: struct_size is wrong, and yoke_last_error says so.
 */
YOKE_API double yoke_lr_schedule_rate(const yoke_lr_schedule *schedule, uint64_t step);

#ifdef __cplusplus
}
#endif

#endif
