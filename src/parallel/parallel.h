/* SPDX-License-Identifier: Apache-2.0 */
/* The door of parallel: nn.DataParallel, one file per stage. */
#ifndef PARALLEL_PARALLEL_H
#define PARALLEL_PARALLEL_H

#include "model/model.h"
#include "optimizer/optimizer.h"
#include "trace/trace.h"
#include "yoke/data_parallel.h"
#include "yoke/host_parts.h"
#include "yoke/stages.h"

/* What train needs beyond the public calls. */

/* Of the loss scale. Without a dynamic one a state has the scale and count of another run. */
typedef struct yoke_scale_state {
    double scale;
    uint64_t good, skipped; /* steps since the scale changed; all that changed nothing */
} yoke_scale_state;

/* Makes one public call of several: no other thread comes between. ARGUMENT as yoke_enter
 * (engine/entry.h), NUMERIC as yoke_settle. After OK, leave ends it and returns `status`. */
yoke_status yoke_enter_settled(yoke_data_parallel *parallel, const char *call);
yoke_status yoke_leave(yoke_data_parallel *parallel, yoke_status status);
const yoke_model *yoke_data_parallel_model(const yoke_data_parallel *parallel);
uint64_t yoke_data_parallel_batches_tracked(const yoke_data_parallel *parallel);
void yoke_data_parallel_set_batches_tracked(yoke_data_parallel *parallel, uint64_t count);
uint64_t yoke_data_parallel_steps(const yoke_data_parallel *parallel);
/* Whether the root's weights and running statistics are those after `steps` whole steps. A step
 * that failed in its update may leave neither those before nor those after it. */
bool yoke_data_parallel_is_whole(const yoke_data_parallel *parallel);
/* The engine's trace, which is the caller's from now on: the engine records no more. */
yoke_trace *yoke_data_parallel_take_trace(yoke_data_parallel *parallel);
/* The trace to record spans in. yoke_data_parallel_trace waits for the devices, this does not. */
yoke_trace *yoke_data_parallel_recorder(const yoke_data_parallel *parallel);
/* What is known of the loss scale without waiting for a device. dynamic may be NULL. */
yoke_scale_state yoke_data_parallel_scale(const yoke_data_parallel *parallel, bool *dynamic);
/* Waits until the devices have checked the gradients of all steps. NUMERIC: one was not finite, and
 * its step changed nothing; no later call reports it again. */
yoke_status yoke_data_parallel_settle(yoke_data_parallel *parallel);
/* Host memory for a batch of every output: [rows of the batch, output shape] each. */
typedef struct yoke_output_rows {
    float *outputs[YOKE_OUTPUTS_LIMIT], *gradients[YOKE_OUTPUTS_LIMIT]; /* NULL: not wanted */
} yoke_output_rows;
/* yoke_data_parallel_evaluate, and the outputs of the rows of `batch`, in their order. loss: the
 * host's, which takes the place of the model's; it needs all outputs. NULL: the model's. */
yoke_status yoke_data_parallel_evaluate_outputs(yoke_data_parallel *parallel,
                                                const yoke_batch *batch, yoke_step_result *result,
                                                const yoke_output_rows *rows,
                                                const yoke_custom_loss *loss);
/* yoke_data_parallel_step with a loss of the host, phase by phase in every schedule. `rows` has
 * room for all outputs and gradients. */
yoke_status yoke_data_parallel_step_own(yoke_data_parallel *parallel, const yoke_batch *batch,
                                        double learning_rate, const yoke_custom_loss *loss,
                                        const yoke_output_rows *rows, yoke_step_result *result);
/* The flat memory of an engine of one CPU device. Engines of the same options and model have the
 * same layout. */
typedef struct yoke_flat_view {
    float *parameters, *gradients, *buffers; /* gradients: of the latest backward by hand */
    size_t elements, trainable, buffer_elements;
} yoke_flat_view;
yoke_status yoke_data_parallel_flat(yoke_data_parallel *parallel, yoke_flat_view *view);
/* The caller has written parameters and buffers; or the gradient, for yoke_data_parallel_update. */
yoke_status yoke_data_parallel_wrote_weights(yoke_data_parallel *parallel);
void yoke_data_parallel_wrote_gradient(yoke_data_parallel *parallel);
/* Steps that others have taken for it. */
void yoke_data_parallel_count_steps(yoke_data_parallel *parallel, uint64_t steps);

/* What the engine was made with, defaults filled in. */
const yoke_data_parallel_options *yoke_data_parallel_options_of(const yoke_data_parallel *parallel);
/* Which of options.shards a rank computes. */
yoke_chunk yoke_shards_dealt(const yoke_data_parallel_options *options, int world, int rank);
/* With auto_shares in a rank: the mean time that it computes in a step, of the steps since the last
 * call; 0: these are too few. */
double yoke_data_parallel_seconds(yoke_data_parallel *parallel);
/* The device whose own work was the latest failure of a call, counted as in the list; -1: none, or
 * no device's own. */
int yoke_data_parallel_failed_device(const yoke_data_parallel *parallel);
/* options.audit: two devices computed different gradients of one shard. */
typedef struct yoke_suspicion {
    uint64_t step;
    int shard, devices[2]; /* their numbers when the list was opened */
    uint64_t digests[2];
} yoke_suspicion;
/* Whether the latest step failed so. judge: in that step, when it is done again, all devices
 * compute the shard, and the step fails with the device that computes wrong, or without one. */
bool yoke_data_parallel_suspects(const yoke_data_parallel *parallel, yoke_suspicion *suspicion);
void yoke_data_parallel_judge(yoke_data_parallel *parallel, const yoke_suspicion *suspicion);
/* From another thread than the one that the engine is bound to: whether that one has been at the
 * same work for longer than options.deadline. Then it is left behind; it ends if that work ever
 * does, before it returns from the engine. */
bool yoke_data_parallel_leave_thread(yoke_data_parallel *parallel);
/* The same lists as the options point to, kept for other engines: groups, shares,
 * freeze_statistics, fault. create makes the options point to the copies; leave_out takes a device
 * out of what they say of devices. destroy takes NULL. */
typedef struct yoke_kept_lists yoke_kept_lists;
yoke_status yoke_kept_lists_create(yoke_kept_lists **lists, yoke_data_parallel_options *options);
void yoke_kept_lists_leave_out(yoke_kept_lists *lists, yoke_data_parallel_options *options,
                               int device);
void yoke_kept_lists_destroy(yoke_kept_lists *lists);
/* The options as a table, whose owner is the engine. */
extern const yoke_option_table yoke_engine_options;
/* The group's rank 0, or the only process: it reads and writes files. */
bool yoke_data_parallel_is_first(const yoke_data_parallel *parallel);
/* Returns `status`; a failure ends the process group, so that no other rank waits for this one. */
yoke_status yoke_data_parallel_report(const yoke_data_parallel *parallel, yoke_status status);

/* Around a callback of the host program on the calling thread, inside the engine or where the
 * engine is bound to it: the callback, and what it starts, gets the host's own signals, cores and
 * number of threads, and may itself call the engine. NULL: there is no engine yet. step_in returns
 * `status`, or why the thread cannot go on as the root's worker. */
typedef struct yoke_outside {
    int root_depth;
    bool bound;
} yoke_outside;
yoke_outside yoke_step_out(yoke_data_parallel *parallel);
yoke_status yoke_step_in(yoke_data_parallel *parallel, const yoke_outside *outside,
                         yoke_status status);

typedef enum yoke_state_part {
    YOKE_STATE_MODEL,     /* weights, running statistics */
    YOKE_STATE_OPTIMIZER, /* what its rule keeps */
    YOKE_STATE_AVERAGE,   /* of the weights, with ema_decay */
    YOKE_STATE_BEST       /* the model of the best evaluation */
} yoke_state_part;

/* The state of an engine on the host: all that another engine needs to go on bit for bit. */
typedef struct yoke_state_tensor {
    yoke_tensor_info info; /* "fc.weight", "optimizer.fc.weight.exp_avg" */
    float *values;         /* [info.count] in PyTorch's order; NULL: integer, or not on this rank */
    yoke_state_part part;
    int tensor;         /* of the model; -1: another part */
    int copy_of;        /* average, best: the model's tensor */
    int parameter;      /* optimizer, average: whose state, in the flat layout of the
                           engine that takes or gives; -1: another part */
    int slot;           /* and which; the average's is behind the optimizer's */
    char *own_name;     /* of another part than the model, or NULL */
    yoke_layout layout; /* of `values`, where the state keeps layouts; bytes 0: PyTorch's order */
} yoke_state_tensor;

typedef struct yoke_state {
    yoke_state_tensor *tensors;
    int count, slots;                /* slots: states of the optimizer for each parameter */
    uint64_t steps, batches_tracked; /* the step is also the state of the random numbers */
    yoke_scale_state scale;
    float *values; /* of all tensors; NULL on ranks that keep none */
    float *flat;   /* one slot in the engine's own layout, on its way */
    size_t flat_elements;
    bool keeps_layouts; /* takes values as they lie in the engine: faster, and for engines only */
} yoke_state;

/* Allocates all memory that take and give need. Rank 0 keeps the values. best: with room for the
 * model of the best evaluation. */
yoke_status yoke_state_create(yoke_state **state, const yoke_data_parallel *parallel, bool best);
void yoke_state_destroy(yoke_state *state); /* takes NULL */
/* Between steps, by all ranks together: take copies the engine's state, give makes it the engine's.
 * Schedules and numbers of devices may differ between the two engines, and between either and the
 * one that the state was created for; the model and the options of its parameters may not. */
yoke_status yoke_state_take(yoke_state *state, yoke_data_parallel *parallel);
yoke_status yoke_state_give(yoke_data_parallel *parallel, yoke_state *state);
/* Likewise the model alone, to and from the room for the best. */
yoke_status yoke_state_keep_best(yoke_state *state, yoke_data_parallel *parallel);
yoke_status yoke_state_give_best(yoke_data_parallel *parallel, yoke_state *state);
/* Rank 0's best goes to all, which keep values. */
yoke_status yoke_state_share_best(yoke_state *state, yoke_data_parallel *parallel);
/* Where a state keeps layouts: converts all values, before the device that made the layouts is
 * closed. */
yoke_status yoke_state_make_plain(yoke_state *state, yoke_data_parallel *parallel);
/* A digest of the steps and all values; the state has values. */
uint64_t yoke_state_digest(const yoke_state *state);

#endif
