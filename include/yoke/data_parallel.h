/* SPDX-License-Identifier: Apache-2.0 */
/** @file
 * torch.nn.DataParallel in C: one process, one worker thread per device, stage by stage.
 *
 *     scatter -> [replicate] -> parallel_apply -> reduce -> update -> gather
 *
 * With a process group the same engine is torch.nn.parallel.DistributedDataParallel: each rank has
 * one device and its rows of the batch, ranks all-reduce gradients behind backward, and each rank
 * updates its own weights.
 *
 * The calling thread is the root device's worker. One thread at a time may use an engine, or the
 * devices that several engines share; engines with devices of their own run side by side. A second
 * thread inside an engine that trains and a forked child get ARGUMENT; so does every other thread
 * while the engine is bound to one (yoke_data_parallel_bind, yoke_trainer_run), which itself waits
 * for the call of another thread that is inside. SYSTEM means that the system refused a compute
 * thread. What signals find: yoke.h.
 *
 * On GPUs of one process a call may find that the gradient of the step before it was not finite. It
 * then returns NUMERIC, once, and that step has changed nothing (see yoke_data_parallel_step).
 */
#ifndef YOKE_DATA_PARALLEL_H
#define YOKE_DATA_PARALLEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "yoke/data_parallel_options.h"
#include "yoke/dataset.h"
#include "yoke/status.h"
#include "yoke/trace.h"

#ifdef __cplusplus
extern "C" {
#endif

/** An engine: replicas of a model, their workers and the optimizer's state. */
typedef struct yoke_data_parallel yoke_data_parallel;

/** The stages of a training step in a schedule, in their order: the list that the engine runs.
 * In DDP the stage EXCHANGE is ALL_REDUCE and UPDATE, except in the sharded schedule.
 *
 * @param schedule     The schedule.
 * @param[out] stages  May be NULL with capacity 0.
 * @param capacity     The number of stages there is space for.
 * @return The number of stages; the first `capacity` of them were written. 0: no such schedule.
 */
YOKE_API int yoke_schedule_stages(yoke_schedule schedule, yoke_stage *stages, int capacity);

/** Builds replicas, plans and workers, measures algorithms, and gives the replicas initial weights.
 * With a process group, rank 0's algorithms, weights and running statistics become every rank's.
 *
 * @param[out] parallel  The engine; destroy it with yoke_data_parallel_destroy. NULL on failure.
 * @param model          A finished model; must outlive the engine.
 * @param devices        Must outlive the engine.
 * @param optimizer      Copied. NULL: YOKE_SGD_OPTIONS_INIT.
 * @param options        Copied; not NULL.
 * @return ARGUMENT: the text names the offending option. MEMORY: it names the device, what was
 *         requested, what the device holds and what may help. SYSTEM: a thread could not start.
 *         PEER: the ranks disagree; it quotes both sides. DATA: options.algorithm_cache is another
 * kind of file, or damaged; it names the line.
 */
YOKE_API yoke_status yoke_data_parallel_create(yoke_data_parallel **parallel,
                                               const yoke_model *model, yoke_devices *devices,
                                               const yoke_optimizer_options *optimizer,
                                               const yoke_data_parallel_options *options);

/** The parameters of a group. */
typedef struct yoke_group_report {
    size_t struct_size; /**< sizeof(yoke_group_report). */
    int tensors;        /**< Parameters that the group has. */
    size_t elements;    /**< Their scalars. */
} yoke_group_report;

/** All zero but the size. */
#define YOKE_GROUP_REPORT_INIT                                                                     \
    { sizeof(yoke_group_report), 0, 0 }

/** Counts the parameters of a group.
 *
 * @param parallel     The engine.
 * @param group        Index in yoke_data_parallel_options.groups; -1: parameters of no group.
 * @param[out] report  Set struct_size first.
 * @return ARGUMENT: there is no such group.
 */
YOKE_API yoke_status yoke_data_parallel_group(const yoke_data_parallel *parallel, int group,
                                              yoke_group_report *report);

/** Destroys an engine and stops its workers. With several threads per device it also ends all
 * OpenMP threads of the calling thread; OpenMP starts them again when a program needs them.
 *
 * @param parallel  May be NULL.
 */
YOKE_API void yoke_data_parallel_destroy(yoke_data_parallel *parallel);

/** DDP: gives every rank rank 0's weights and running statistics, after rank 0 loaded a file, for
 * example. PyTorch's init_sync. Without a process group it does nothing.
 *
 * @param parallel  The engine.
 * @return TIMEOUT, PEER: as a collective.
 */
YOKE_API yoke_status yoke_data_parallel_broadcast(yoke_data_parallel *parallel);

/** The result of one batch: sums over the replicas, and over the ranks, in a fixed order. */
typedef struct yoke_step_result {
    size_t struct_size; /**< sizeof(yoke_step_result). */
    double loss;        /**< The labels' losses, summed and divided by `weight`; 0 over weight 0. */
    int rows;    /**< In the whole batch; after yoke_data_parallel_gather in this rank's part. */
    int correct; /**< Labels whose output is the largest; -1 for regression. */
    double gradient_norm; /**< Before clipping; -1 without clipping. */
    double weight; /**< `labels`; with class_weights or ignore_index the sum of the weights of
                        the labels that count. Regression: `rows`. */
    int labels;    /**< Labels that count: without ignore_index `rows`, or with a sequence
                        rows x positions. The accuracy is correct / labels. */
} yoke_step_result;

/** All zero but the size. */
#define YOKE_STEP_RESULT_INIT                                                                      \
    { sizeof(yoke_step_result), 0, 0, 0, 0, 0, 0 }

/** One update in the engine's schedule, from scatter to gather.
 *
 * @param parallel       The engine.
 * @param batch          At most options.batch rows; in DDP this rank's part.
 * @param learning_rate  Of this step; 0 changes no weight. YOKE_OPTIMIZER_LEARNING_RATE, or any
 *                       negative number: the optimizer's own.
 * @param[out] result    Set struct_size first. May be NULL.
 * @return NUMERIC: the loss is not finite, and the text names the first layer whose output is not;
 *         or the gradient is not, and the text names the parameter. (With a dynamic loss scale a
 *         step whose gradient is not finite answers OK and changes nothing.) Weights, running
 *         statistics, optimizer's state and the count of steps are those before the step, on every
 *         replica and rank. On GPUs of one process the report of a gradient may come one call late,
 *         from the next step or any call that reads the engine: the step before it changed nothing,
 *         and neither did that call. In DDP it comes from the step itself, on every rank. After any
 *         other failure some weights may be new, but all replicas agree with the root. In DDP the
 *         other ranks report this rank's error, and the group is broken: they may have finished the
 *         step.
 */
YOKE_API yoke_status yoke_data_parallel_step(yoke_data_parallel *parallel, const yoke_batch *batch,
                                             double learning_rate, yoke_step_result *result);

/** Exchanges the weights with their average (options.ema_decay), to evaluate, predict or save with
 * it; running statistics stay. Gradients are lost. In DDP all ranks call it.
 * @param parallel  The engine.
 * @param use       true: the engine has the average until a call with false. Steps,
 *                  yoke_state_save and yoke_state_load return ARGUMENT meanwhile. Before the first
 *                  step, and where it is so already, nothing happens.
 * @return ARGUMENT: ema_decay is 0.
 */
YOKE_API yoke_status yoke_data_parallel_use_average(yoke_data_parallel *parallel, bool use);

/** Loss and accuracy without learning: running statistics, no dropout. Only replicas that are
 * behind the root's version get its weights.
 *
 * @param parallel     The engine.
 * @param batch        At most options.batch rows; in DDP this rank's part.
 * @param[out] result  Set struct_size first. May be NULL.
 * @return ARGUMENT: the batch is too large or incomplete. A loss that is not finite is a result. In
 *         DDP the other ranks report this rank's error, and the group is broken.
 */
YOKE_API yoke_status yoke_data_parallel_evaluate(yoke_data_parallel *parallel,
                                                 const yoke_batch *batch, yoke_step_result *result);

/** Forward alone, for programs with a loss of their own.
 *
 * @param parallel      The engine.
 * @param batch         At most options.batch rows; with accumulate > 1 at most a micro-batch, and
 *                      with options.shards at most the rows of one shard for each device.
 * @param training      true: batch statistics and dropout; false: running statistics.
 * @param[out] outputs  [rows, output shape], in the order of the batch: host memory, or memory of a
 *                      GPU of this engine, like output_device. Complete when the call returns, on a
 *                      GPU for the batch's stream if it has one. May be NULL.
 * @return ARGUMENT: the batch is too large or incomplete, or an array lies on a GPU that is not in
 *         this engine. NUMERIC: in training, a batch norm on the CPU met statistics that are not
 *         finite; the running statistics may be new.
 */
YOKE_API yoke_status yoke_data_parallel_forward(yoke_data_parallel *parallel,
                                                const yoke_batch *batch, bool training,
                                                float *outputs);

/** Forward alone, with every output of a model that has several.
 *
 * @param parallel      The engine.
 * @param batch         As in yoke_data_parallel_forward.
 * @param training      As there.
 * @param[out] outputs  [yoke_model_output_count] arrays, each [rows, shape of its output], in the
 *                      order of the batch and where yoke_data_parallel_forward may write; NULL:
 *                      this one is not wanted.
 * @return As yoke_data_parallel_forward.
 */
YOKE_API yoke_status yoke_data_parallel_forward_outputs(yoke_data_parallel *parallel,
                                                        const yoke_batch *batch, bool training,
                                                        float *const *outputs);

/** Backward alone, once after each forward in training mode. It leaves the summed gradient on the
 * root, for yoke_data_parallel_update; while yoke_data_parallel_no_sync is on, the gradients add up
 * in the replicas instead.
 *
 * @param parallel          The engine.
 * @param output_gradients  d loss / d outputs, [rows, output shape]; NULL: of the model's loss with
 *                          the batch's labels or targets. Further outputs have gradient 0. Host
 *                          memory, or memory of a GPU of this engine, written before the call or by
 *                          the batch's stream, which may write there again behind the call.
 * @return ARGUMENT: no forward in training mode came before.
 */
YOKE_API yoke_status yoke_data_parallel_backward(yoke_data_parallel *parallel,
                                                 const float *output_gradients);

/** Backward alone from every output of a model that has several: torch.autograd.backward of their
 * list.
 *
 * @param parallel          The engine.
 * @param output_gradients  [yoke_model_output_count] arrays, each d loss / d output, of the shape
 *                          of that output; NULL: zeros, of an output that the loss does not use.
 * @return As yoke_data_parallel_backward.
 */
YOKE_API yoke_status yoke_data_parallel_backward_outputs(yoke_data_parallel *parallel,
                                                         const float *const *output_gradients);

/** A job for one device's worker. It must not call the engine.
 *
 * @param replica  The worker's replica.
 * @param context  The same for all workers.
 * @return Its status; a failure's text crosses to the calling thread.
 */
typedef yoke_status (*yoke_replica_job)(int replica, void *context);

/** Runs the same job on every device's worker at once and waits for all.
 *
 * @param parallel  The engine.
 * @param job       The job.
 * @param context   Passed to each call of `job`.
 * @return The earliest failure; its text names replica, device and stage.
 */
YOKE_API yoke_status yoke_parallel_apply(yoke_data_parallel *parallel, yoke_replica_job job,
                                         void *context);

/** torch.chunk's rule: the rows of one shard.
 *
 * @param rows     Rows of the batch.
 * @param devices  Shards to cut.
 * @param index    The shard, counted from 0.
 * @return The count; 0: this device is idle.
 */
YOKE_API int yoke_shard_rows(int rows, int devices, int index);

/** Reads a tensor of the root, in PyTorch's layout.
 *
 * @param parallel     The engine.
 * @param name         Its name in PyTorch's state_dict.
 * @param[out] values  [count]
 * @param count        yoke_tensor_info.count.
 * @return ARGUMENT: there is no such tensor, or the count is wrong. NUMERIC: on GPUs, the gradient
 * of the step before was not finite.
 */
YOKE_API yoke_status yoke_data_parallel_read(yoke_data_parallel *parallel, const char *name,
                                             float *values, size_t count);

/** Writes a tensor of the root, in PyTorch's layout; the other replicas become stale.
 *
 * @param parallel  The engine.
 * @param name      Its name in PyTorch's state_dict.
 * @param values    [count]
 * @param count     yoke_tensor_info.count.
 * @return As yoke_data_parallel_read.
 */
YOKE_API yoke_status yoke_data_parallel_write(yoke_data_parallel *parallel, const char *name,
                                              const float *values, size_t count);

/** Copies weights and running statistics. Threads that predict see the old ones or the new ones.
 *
 * @param parallel  The engine to write; in DDP, call yoke_data_parallel_broadcast afterwards.
 * @param from      Not changed.
 * @return ARGUMENT: `from` lacks the tensor that the text names, or has it in another size.
 */
YOKE_API yoke_status yoke_data_parallel_copy_weights(yoke_data_parallel *parallel,
                                                     yoke_data_parallel *from);

/** Reads the last backward's gradient of a parameter on the root. Only the classic schedule and the
 * stages by hand keep gradients; the other schedules reduce into the update.
 *
 * @param parallel     The engine.
 * @param name         The parameter's name in PyTorch's state_dict.
 * @param[out] values  [count], in PyTorch's layout.
 * @param count        yoke_tensor_info.count.
 * @return ARGUMENT: there is no such parameter, the count is wrong, or there is no gradient; a
 * frozen parameter never has one.
 */
YOKE_API yoke_status yoke_data_parallel_read_gradient(yoke_data_parallel *parallel,
                                                      const char *name, float *values,
                                                      size_t count);

/** Writes the gradient of a parameter on the root, which yoke_data_parallel_update will use.
 *
 * @param parallel  The engine.
 * @param name      The parameter's name in PyTorch's state_dict.
 * @param values    [count], in PyTorch's layout.
 * @param count     yoke_tensor_info.count.
 * @return As yoke_data_parallel_read_gradient.
 */
YOKE_API yoke_status yoke_data_parallel_write_gradient(yoke_data_parallel *parallel,
                                                       const char *name, const float *values,
                                                       size_t count);

/** Reads d loss / d inputs of the last batch, after a step or a backward and before the next
 * forward.
 *
 * @param parallel        The engine.
 * @param[out] gradients  [rows, input shape]: host memory, or memory of a GPU of this engine.
 * @return ARGUMENT: options.input_gradients is false, or no backward came before.
 */
YOKE_API yoke_status yoke_data_parallel_read_input_gradients(yoke_data_parallel *parallel,
                                                             float *gradients);

/** The same of any input of a model that has several.
 *
 * @param parallel        The engine.
 * @param input           Counted from 0.
 * @param[out] gradients  [rows, shape of this input]
 * @return As yoke_data_parallel_read_input_gradients; also ARGUMENT: there is no such input.
 */
YOKE_API yoke_status yoke_data_parallel_read_input_gradients_of(yoke_data_parallel *parallel,
                                                                int input, float *gradients);

/** Hashes all parameters and buffers: XXH3-64 of their float32 values in PyTorch's layout and
 * state_dict order.
 *
 * @param parallel   The engine.
 * @param[out] hash  Equal for equal weights, whatever the devices and the schedule.
 * @return ARGUMENT: a pointer is NULL. NUMERIC: on GPUs, the gradient of the step before was not
 *         finite.
 */
YOKE_API yoke_status yoke_data_parallel_hash(yoke_data_parallel *parallel, uint64_t *hash);

/** The scale of the loss (yoke_data_parallel_options.loss_scale). */
typedef struct yoke_loss_scale_report {
    size_t struct_size;     /**< sizeof(yoke_loss_scale_report). */
    bool dynamic;           /**< Steps change it; false: the counts below are 0. */
    double scale;           /**< Of the next step. */
    uint64_t good_steps;    /**< Since the scale changed, or a step was skipped. */
    uint64_t skipped_steps; /**< All steps whose gradient was not finite, which changed nothing. */
} yoke_loss_scale_report;

/** All zero but the size. */
#define YOKE_LOSS_SCALE_REPORT_INIT                                                                \
    { sizeof(yoke_loss_scale_report), false, 0, 0, 0 }

/** Reports the scale of the loss.
 *
 * @param parallel     The engine.
 * @param[out] report  Set struct_size first.
 * @return ARGUMENT: a pointer is NULL, or struct_size is wrong. NUMERIC: on GPUs, the gradient of
 *         the step before was not finite, and the scale is not dynamic.
 */
YOKE_API yoke_status yoke_data_parallel_loss_scale(yoke_data_parallel *parallel,
                                                   yoke_loss_scale_report *report);

/** The bytes of one device by what they hold. */
typedef struct yoke_memory_report {
    size_t struct_size; /**< sizeof(yoke_memory_report). */
    size_t parameters;  /**< Master weights and their copies in other formats. */
    size_t gradients;   /**< Gradients, with accumulated ones. */
    size_t optimizer;   /**< Momenta or moments; on GPUs twice where a step may be undone: with the
                             check of gradients, without clipping, not in the classic schedule. */
    size_t buffers;     /**< Running statistics. */
    size_t activations; /**< Values of forward and backward. */
    size_t scratch;     /**< Workspace of plans. */
    size_t batch;       /**< The shard's rows and labels. */
    size_t total;       /**< All that is allocated; more than the sum on GPUs. */
} yoke_memory_report;

/** All zero but the size. */
#define YOKE_MEMORY_REPORT_INIT                                                                    \
    { sizeof(yoke_memory_report), 0, 0, 0, 0, 0, 0, 0, 0 }

/** Reports the memory of one replica's device.
 *
 * @param parallel     The engine.
 * @param replica      0 is the root.
 * @param[out] report  Set struct_size first.
 * @return ARGUMENT: there is no such replica, or a pointer or struct_size is wrong.
 */
YOKE_API yoke_status yoke_data_parallel_memory(const yoke_data_parallel *parallel, int replica,
                                               yoke_memory_report *report);

/** Binds the calling thread, as the root's worker, to the root's cores. Without it the system
 * places the thread. yoke_trainer_run binds by itself.
 *
 * @param parallel  The engine.
 * @return ARGUMENT: `parallel` is NULL.
 */
YOKE_API yoke_status yoke_data_parallel_bind(yoke_data_parallel *parallel);

/** Undoes yoke_data_parallel_bind, on the same thread.
 *
 * @param parallel  The engine.
 */
YOKE_API void yoke_data_parallel_unbind(yoke_data_parallel *parallel);

/** Makes every plan for one size of the whole batch now, so that no later step allocates: for a
 * short last batch and for evaluation.
 *
 * @param parallel  The engine.
 * @param rows      1 to options.batch.
 * @param training  Plans of training, or of evaluation.
 * @return ARGUMENT: `rows` is out of range.
 */
YOKE_API yoke_status yoke_data_parallel_prepare(yoke_data_parallel *parallel, int rows,
                                                bool training);

/** Lists which algorithm computes which layer and pass; part of a run's record.
 *
 * @param parallel             The engine. NULL: false.
 * @param index                Row of the list, counted from 0.
 * @param[out] layer_and_pass  Borrowed from the engine.
 * @param[out] algorithm       Borrowed from the engine.
 * @param[out] milliseconds    The time measured; 0: none was.
 * @return false past the end.
 */
YOKE_API bool yoke_data_parallel_algorithm(const yoke_data_parallel *parallel, int index,
                                           const char **layer_and_pass, const char **algorithm,
                                           double *milliseconds);

/** Why algorithms of this engine are not in options.algorithm_cache, so that another run may
 * measure others, or were not measured (options.measure_seconds), or why the engine replaced that
 * file (options.replace_broken_cache).
 *
 * @param parallel  The engine. NULL: NULL.
 * @return NULL: none of these. Borrowed from the engine, until the next call.
 */
YOKE_API const char *yoke_data_parallel_algorithms_warning(const yoke_data_parallel *parallel);

/** The rows of a batch of yoke_data_parallel_options.batch rows that a device computes: its share.
 *
 * @param parallel  The engine, between steps. NULL: 0.
 * @param device    From 0, in this process.
 * @return The rows, which change between steps with auto_shares; 0: there is no such device.
 */
YOKE_API int yoke_data_parallel_device_rows(const yoke_data_parallel *parallel, int device);

/** The name of one of the engine's devices, as yoke_device_info.name.
 *
 * @param parallel  The engine. NULL: "".
 * @param device    From 0, in this process.
 * @return "cpu:1", for example, for as long as the devices are open; "": there is no such device.
 */
YOKE_API const char *yoke_data_parallel_device_name(const yoke_data_parallel *parallel, int device);

/** Names the parameters that no loss has reached, of a model with several outputs: the gradients of
 * all updates so far were zero for them, so they have not moved. Weight decay rests for a parameter
 * in each step whose loss does not use an output that the parameter changes, unless a parameter
 * group of its own sets weight_decay above 0. A loss uses the outputs for which it gives gradients:
 * the model's own loss output 0, a yoke_custom_loss those whose gradients are not all zero, a
 * backward by hand those that are not NULL; with ranks, those of any rank. Momentum of earlier
 * steps moves such a parameter on.
 *
 * @param parallel  The engine, between steps. NULL: NULL.
 * @return NULL: there is none, or no update yet. Borrowed from the engine, until the next call.
 */
YOKE_API const char *yoke_data_parallel_unreached(yoke_data_parallel *parallel);

/** The engine's trace.
 *
 * @param parallel  The engine. NULL: NULL.
 * @return Borrowed from the engine.
 */
YOKE_API yoke_trace *yoke_data_parallel_trace(yoke_data_parallel *parallel);

/** The number of this process's devices.
 *
 * @param parallel  The engine. NULL: 0.
 * @return At least 1.
 */
YOKE_API int yoke_data_parallel_device_count(const yoke_data_parallel *parallel);

#ifdef __cplusplus
}
#endif

#endif
