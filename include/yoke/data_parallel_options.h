/* SPDX-License-Identifier: Apache-2.0 */
/** @file
 * The options of an engine (data_parallel.h).
 */
#ifndef YOKE_DATA_PARALLEL_OPTIONS_H
#define YOKE_DATA_PARALLEL_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "yoke/custom_exchange.h"
#include "yoke/device.h"
#include "yoke/distributed.h"
#include "yoke/model.h"
#include "yoke/optimizer.h"

#ifdef __cplusplus
extern "C" {
#endif

/** The order in which the stages of a step run. All compute the same numbers. */
typedef enum yoke_schedule {
    YOKE_SCHEDULE_OVERLAP, /**< Reduce, update and publish each bucket behind backward. */
    YOKE_SCHEDULE_CLASSIC, /**< nn.DataParallel's phases: the loss on the root, weights broadcast in
                                every step. */
    YOKE_SCHEDULE_SHARDED, /**< Like overlap; device k owns 1/N of the optimizer and publishes its
                                part. */
    YOKE_SCHEDULE_PYTHON   /**< Like classic, with what Python adds to nn.DataParallel: every
                                forward, also without training, copies all weights and starts a
                                thread for each replica, and these share one lock. CPU devices. */
} yoke_schedule;

/** How to train. yoke_data_parallel_create copies it; the process group must outlive the engine. */
typedef struct yoke_data_parallel_options {
    size_t struct_size;       /**< sizeof(yoke_data_parallel_options). */
    yoke_schedule schedule;   /**< Order of the stages. */
    yoke_precision precision; /**< What devices compute in. */
    yoke_algorithm algorithm; /**< How to choose algorithms. */
    int batch;      /**< Rows of the whole batch, over all devices and ranks; required. The
                         engine refuses larger batches. */
    int accumulate; /**< Micro-batches that a batch is computed in; 0: 1. The result changes
                         only where batch norm sees fewer rows at a time. */
    uint64_t seed;  /**< Seeds initial weights and dropout. */
    size_t first_bucket_bytes;    /**< Size of the first bucket; 0: 1 MiB, as in DDP. */
    size_t bucket_bytes;          /**< Size of the others; 0: on CPU devices 4 MiB, which the cache
                                       still holds after backward; on GPUs 25 MiB, as in DDP. */
    yoke_collectives collectives; /**< Between GPUs. With `link`, YOKE_COLLECTIVES_NCCL models the
                                       chains by which NCCL replicates and reduces. */
    /** DDP: the ranks that train this model together, one device each; NULL: this process alone.
     * Schedule overlap: ranks all-reduce gradients and each updates its weights; sharded, over
     * shared memory: each rank updates and publishes its part. All ranks call create, broadcast,
     * step, evaluate and yoke_data_parallel_reduce together, and yoke_data_parallel_scatter where
     * whole_rows is 0. A rank that fails in one of these, or in forward or backward by hand, ends
     * the group: the others return its error. */
    yoke_process_group *process_group;
    /** DDP: evaluate with each rank's own running statistics; false: with rank 0's, as PyTorch with
     * its default, broadcast_buffers = true. */
    bool own_buffers;
    /** DDP: the gradient is PyTorch's, the mean over ranks of their means; false: the mean over
     * rows. They differ where ranks have unequal numbers of rows. */
    bool mean_of_ranks;
    /** Batches come as pixels (yoke_loader_pixels): GPUs keep a quarter of the memory for the next
     * one. A batch of inputs still works, but its copy waits for the computation; one with crops
     * does not. */
    bool pixels;
    /** Continue backward to the inputs, for yoke_data_parallel_read_input_gradients; needs
     * accumulate 1. */
    bool input_gradients;
    /** Learning rate, weight decay and frozen parameters by name, the first match counts; NULL: the
     * optimizer's options hold for all. Alike on all ranks. create reads it during the call only.
     */
    const yoke_parameter_group *groups;
    int group_count; /**< The length of `groups`. */
    /** Update each bucket without a check of the whole gradient: then NaN in a gradient shows in
     * the next loss only, with the weights gone. GPUs save the second copy of the optimizer's state
     * that undoes a step. Clipping checks all the same. */
    bool skip_finite_check;
    /** A file that keeps which algorithms were measured to be the fastest, so that every run on
     * this machine computes the same bits; create makes it, in a folder that exists. In DDP rank 0
     * alone uses it. Read during create only. NULL: measure anew in every engine. */
    const char *algorithm_cache;
    /** Cut the batch into so many shards whatever the number of devices and ranks; GPUs, and
     * ranks without shared memory, must be a power of two that divides it. Each shard is computed
     * alone, and gradients add up in a fixed binary tree: the weights do not depend on the number
     * of devices and ranks if all devices have as many threads and take the same algorithms. Needs
     * accumulate 1. 0: as many as devices, in rank order. */
    int shards;
    /** Batch norm in training normalises the rows of the whole micro-batch, over all devices and
     * ranks, as torch.nn.SyncBatchNorm does, and all have the same running statistics; false: the
     * rows of each shard, as in nn.DataParallel. In DDP all ranks then also call every forward and
     * backward in training together. Not with shards, each of which is computed alone. */
    bool synchronize_batch_norm;
    /** To study waits: after each forward and each part of backward, this CPU device (with a
     * process group: this rank) sleeps until it has taken `straggler_factor` times as long. The
     * weights stay the same, bit for bit. Counted from 0; GPUs are refused. */
    int straggler;
    double straggler_factor; /**< 1 to 1e6; 0: no straggler. */
    /** Links that CPU devices do not have: "pcie3", "pcie4", "pcie5", "nvlink2" to "nvlink4", or
     * GB/s and microseconds, "12.5,3"; behind either perhaps ",switch", the default, or ",bridge".
     * Each device, or rank, then has one, full duplex. Transfers take their time while the devices
     * compute, and a stage that needs the data waits; no number changes. In DDP it needs the
     * shared memory transport and is alike on all ranks. Refused for GPUs, which have links of
     * their own; one device alone has nothing to transfer. create reads it during the call only;
     * NULL: devices exchange data as fast as memory does. */
    const char *link;
    /** Schedule python: microseconds for which a thread holds the interpreter's lock to call one
     * layer, or to rebuild one layer of one replica; 0 to 1e6. The INIT macro sets what
     * bench/pytorch_interpreter.py measured in PyTorch. Other schedules do not read it. */
    double interpreter_us;
    /** The engine only predicts: no gradients, no optimizer; what trains, and bind, is refused.
     * Threads may call forward and evaluate at once: they take turns, each on all devices. */
    bool inference;
    /** Average the weights after every step, as torch.optim.swa_utils.get_ema_multi_avg_fn does;
     * below 1; 0: do not. On GPUs each step then waits for the devices. */
    double ema_decay;
    /** `algorithm_cache` is the program's own file: where it is broken, of another kind or
     * unreadable, the engine measures anew, replaces it and says so in
     * yoke_data_parallel_algorithms_warning. false: that is DATA or IO, since another file may be
     * what the user's exact bits depend on. */
    bool replace_broken_cache;
    /** Begin no measurement of an algorithm so many seconds after the first unknown shape: what is
     * still unknown takes the first algorithm (of a convolution on CPU devices, that of DIRECT) and
     * is not kept in `algorithm_cache`; yoke_data_parallel_algorithms_warning says so. In DDP rank
     * 0's counts. 0: no limit. */
    double measure_seconds;
    /** [other_model_count] models of the same parameters and inputs, of which yoke_batch.model says
     * which one a batch is for: models of fewer positions, so that padding which no row of the
     * batch needs is not computed; or models with another loss, which read all inputs or the first
     * ones. Each has plans of its own, made for its first batch; memory is that of the engine's
     * model, so no input or output may be larger. The models must outlive the engine; create reads
     * the list during the call only. NULL: none. */
    const yoke_model *const *other_models;
    int other_model_count; /**< The length of `other_models`. */
    /** Batch norms that compute with their running statistics in training, too, and leave them as
     * they are, as after PyTorch's bn.eval(): shell patterns of the names of their tensors, with
     * commas between them, "layer1.*,bn1.*" or "*". To freeze their weights, too, takes a group.
     * NULL: none. create reads it during the call only. */
    const char *freeze_statistics;
    /** Activation checkpointing: a model without yoke_activation_checkpoint_begin is cut into about
     * as many ranges as the root of its operations, between blocks where it can, as if marked so.
     * Not with synchronize_batch_norm, whose statistics take all devices. */
    bool activation_checkpointing;
    /** [1 + other_model_count] shell patterns, with commas between them, of the parameters that a
     * step of each model updates, this engine's first: the two networks of a GAN, trained in turn
     * on the same batch. To the others no gradient goes; their weights, the optimizer's state and
     * their count of steps stay, as with an optimizer of PyTorch for each part. A NULL entry, or
     * NULL: all parameters. create reads it during the call only. Not with clip_norm, which needs
     * the norm of a part, nor with yoke_state_save. */
    const char *const *trained;
    /** [share_count] How much of each batch the devices compute: {2, 1, 1} gives the first one half
     * of the rows. With shards, whole shards are dealt, and the weights stay the same, bit for bit,
     * on CPU devices; GPUs share rows alone. In DDP the shares of the ranks, with shards and over
     * shared memory. Read during create only. NULL: all as much. */
    const double *shares;
    int share_count; /**< The length of `shares`. */
    /** Deal in proportion to measured speed, beginning with `shares`, and again whenever it
     * changes. Each device has memory for twice an equal share of the rows. An engine in a rank
     * only measures: yoke_trainer_run deals among ranks. */
    bool auto_shares;
    /** To study failures: "KIND:DEVICE@STEP:STAGE", with commas between several and ":STAGE" left
     * out for backward. Where the device with that number in the list, or the rank, enters the
     * stage after STEP updates it fails with DEVICE (KIND error) or MEMORY (memory), never comes
     * back (hang), or kills its process (kill). flip and flip-once change the lowest bit of an
     * element of each gradient it computes, from that step on or in it alone. Read during create
     * only. NULL: none. */
    const char *fault;
    /** Seconds in which every device has to be done with a stage of a step; otherwise the call
     * returns TIMEOUT and names it. The device's thread cannot be stopped: it is left behind, with
     * all memory of the engine, which destroy then keeps. The root's is the calling thread, which
     * only a trainer with `survive` leaves behind. A process group has a deadline of its own. 0:
     * wait for ever. */
    double deadline;
    /** With shards on CPU devices, schedule overlap or sharded: in every so manyeth step a second
     * device computes one shard again, each in turn, and the gradients must have the same bits. If
     * not the step returns DEVICE and names both. A trainer then finds out which is wrong, with its
     * own kept states. 0: never. */
    int audit;
    /** Time what GPUs do, for yoke_data_parallel_trace: without, it has what the host's clock
     * measures. Each bar then takes two events in a stream, and calls that read them. CPU devices
     * are timed in any case. */
    bool time_devices;
    /** The loss's gradient is multiplied by it, and updates divide it out, so that small gradients
     * in float16 do not become zero: a power of two from 1 to 2^32, which changes no other bit.
     * YOKE_LOSS_SCALE_DYNAMIC: torch.amp.GradScaler's. It begins at 65536. A gradient that is not
     * finite is then no error: the step changes nothing, and the scale halves. After
     * loss_scale_interval steps without one it doubles. 0: dynamic with YOKE_FLOAT16, otherwise 1.
     * Gradients that the engine gives or takes are always without it. */
    double loss_scale;
    int loss_scale_interval; /**< Steps; 0: 2000. */
    /** How gradients become sums, in place of the built-in exchange: CPU devices of one process,
     * schedule overlap or classic, without shards. Copied; its payload must outlive the engine.
     * NULL: the built-in one. */
    const yoke_custom_exchange *custom_exchange;
} yoke_data_parallel_options;

/** For yoke_data_parallel_options.loss_scale. */
#define YOKE_LOSS_SCALE_DYNAMIC (-1.0)

/** Microseconds: see yoke_data_parallel_options.interpreter_us. */
#define YOKE_INTERPRETER_US 13.0

/** The most that yoke_data_parallel_options.shards may be. */
#define YOKE_SHARDS_LIMIT 1024

/** The defaults; set batch. */
#define YOKE_DATA_PARALLEL_OPTIONS_INIT                                                            \
    {                                                                                              \
        sizeof(yoke_data_parallel_options), YOKE_SCHEDULE_OVERLAP, YOKE_FLOAT32,                   \
            YOKE_ALGORITHM_MEASURED, 0, 0, 0, 0, 0, YOKE_COLLECTIVES_AUTO, NULL, false, false,     \
            false, false, NULL, 0, false, NULL, 0, false, 0, 0, NULL, YOKE_INTERPRETER_US, false,  \
            0, false, 0, NULL, 0, NULL, false, NULL, NULL, 0, false, NULL, 0, 0, false, 0, 0, NULL \
    }

#ifdef __cplusplus
}
#endif

#endif
