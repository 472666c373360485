/* torch.nn.DataParallel in C: one process, one worker per device, stage by stage.
 *
 *   scatter -> [replicate] -> parallel_apply -> reduce -> update -> gather
 *
 * With a process group the same engine is DistributedDataParallel: every rank has one device and
 * its rows of the batch, gradients are all-reduced behind backward, and every rank updates itself.
 *
 * The calling thread is the root device's worker. An engine is used by one thread at a time, and so
 * are devices that engines share; engines with devices of their own run side by side. */
#ifndef YOKE_DATA_PARALLEL_H
#define YOKE_DATA_PARALLEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "yoke/dataset.h"
#include "yoke/device.h"
#include "yoke/distributed.h"
#include "yoke/model.h"
#include "yoke/optimizer.h"
#include "yoke/status.h"
#include "yoke/trace.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct yoke_data_parallel yoke_data_parallel;

typedef enum yoke_schedule {
    YOKE_SCHEDULE_OVERLAP, /* buckets are reduced, updated and published behind backward (default)
                            */
    YOKE_SCHEDULE_CLASSIC, /* nn.DataParallel phase by phase: loss on the root, broadcast every step
                            */
    YOKE_SCHEDULE_SHARDED  /* device k owns 1/N of the optimizer and publishes its part */
} yoke_schedule;

typedef struct yoke_data_parallel_options {
    size_t struct_size;
    yoke_schedule schedule;
    yoke_precision precision;
    yoke_algorithm algorithm;
    int batch;      /* rows of the whole batch, of all devices and ranks; required. Larger batches
                       are refused */
    int accumulate; /* micro-batches a batch is computed in; 0: 1. Changes the result only where
                       batch norm does, which normalises each replica's part of each */
    uint64_t seed;  /* initial weights and dropout */
    size_t first_bucket_bytes; /* 0: 1 MiB, DDP's first bucket */
    size_t bucket_bytes;       /* 0: on CPU devices 4 MiB: what backward has just left is still in
                                  the cache; on GPUs DDP's 25 MiB */
    yoke_collectives collectives; /* between GPUs */
    /* DDP: the ranks that train this model together; must outlive the engine. One device a rank.
     * overlap: gradients are all-reduced and every rank updates itself; sharded: over shared memory
     * each rank updates and publishes its part. create, synchronize, step, evaluate, yoke_reduce,
     * and yoke_scatter of a batch without whole_rows, are then called by all ranks together. */
    yoke_process_group *group;
    bool own_buffers;   /* DDP(broadcast_buffers=False): each rank evaluates with its own running
                           statistics instead of rank 0's */
    bool mean_of_ranks; /* the gradient is PyTorch's mean over ranks of their mean losses; differs
                           from the mean over rows where ranks have unequal shares */
    bool pixels; /* batches come as pixels (yoke_loader_pixels): GPUs keep a quarter of the memory
                    for the next one; a batch of inputs is brought in only when the last is computed
                  */
    bool input_gradients; /* backward goes on to the inputs: yoke_data_parallel_read_input_gradients
                             has what the part of a model before this one needs */
} yoke_data_parallel_options;

/* Builds replicas, plans and workers, measures, and gives the root initial weights. The devices and
 * the model must outlive the engine. MEMORY names the device, what was asked and what it holds.
 * With a group: PEER names what the ranks do not agree on, in the words of both sides; rank 0's
 * choices, weights and running statistics are everybody's. */
YOKE_API yoke_status yoke_data_parallel_create(yoke_data_parallel **parallel,
                                               const yoke_model *model, yoke_devices *devices,
                                               const yoke_optimizer_options *optimizer,
                                               const yoke_data_parallel_options *options);
YOKE_API void yoke_data_parallel_destroy(yoke_data_parallel *parallel);

/* DDP's init_sync: rank 0's weights and running statistics become everybody's, after a file was
 * loaded on rank 0, say. Nothing to do alone. */
YOKE_API yoke_status yoke_data_parallel_synchronize(yoke_data_parallel *parallel);

/* What one batch gave; sums of the replicas, and of the ranks, in their order. */
typedef struct yoke_step_result {
    size_t struct_size;
    double loss; /* mean over the rows of the whole batch */
    int rows;
    int correct;          /* rows whose largest output is the label; -1 for regression */
    double gradient_norm; /* before clipping; -1 when clipping is off */
} yoke_step_result;

/* One update in the engine's schedule: scatter to gather. learning_rate overrides the optimizer's
 * for this step when > 0; result may be NULL. NUMERIC when the loss is not finite: weights are then
 * those before the step and the text names the first layer whose output is not finite. After any
 * other failure part of the weights may be new; the replicas agree with the root again. With a
 * group such a failure is told to the other ranks, and the group is broken: they may have gone on.
 */
YOKE_API yoke_status yoke_data_parallel_step(yoke_data_parallel *parallel, const yoke_batch *batch,
                                             double learning_rate, yoke_step_result *result);

/* Loss and accuracy without learning (running statistics, no dropout). Weights are broadcast only
 * to replicas behind the root's version. Any number of rows up to `batch`. */
YOKE_API yoke_status yoke_data_parallel_evaluate(yoke_data_parallel *parallel,
                                                 const yoke_batch *batch, yoke_step_result *result);

/* The pieces for host programs: forward in training or evaluation mode gathers the output rows in
 * order, outputs [rows, output shape], float32, may be NULL; with accumulate > 1 it takes a
 * micro-batch at most. backward, once after each forward in training mode, takes d loss / d outputs
 * of the same rows, or NULL to use the model's loss with the batch's labels, and leaves the summed
 * gradient on the root. */
YOKE_API yoke_status yoke_data_parallel_forward(yoke_data_parallel *parallel,
                                                const yoke_batch *batch, bool training,
                                                float *outputs);
YOKE_API yoke_status yoke_data_parallel_backward(yoke_data_parallel *parallel,
                                                 const float *output_gradients);

/* The stages by hand, one function each; samples/03 drives a step with them. Order: scatter,
 * replicate, forward_replicas, loss_replicas, backward_replicas, reduce, update, gather. A stage
 * whose forerunner has not run on this batch is refused with ARGUMENT. */
YOKE_API yoke_status yoke_scatter(yoke_data_parallel *parallel, const yoke_batch *batch);
YOKE_API yoke_status yoke_replicate(yoke_data_parallel *parallel);
YOKE_API yoke_status yoke_forward_replicas(yoke_data_parallel *parallel, bool training);
YOKE_API yoke_status yoke_loss_replicas(yoke_data_parallel *parallel);
YOKE_API yoke_status yoke_backward_replicas(yoke_data_parallel *parallel);
YOKE_API yoke_status yoke_reduce(yoke_data_parallel *parallel);
YOKE_API yoke_status yoke_update(yoke_data_parallel *parallel, double learning_rate);
YOKE_API yoke_status yoke_gather(yoke_data_parallel *parallel, yoke_step_result *result);

/* The same job on every device's worker at once; each answers by value. On failure: the first cause
 * in time, its text naming replica, device and stage. context is shared by all. A job calls nothing
 * of this engine. */
typedef yoke_status (*yoke_replica_job)(int replica, void *context);
YOKE_API yoke_status yoke_parallel_apply(yoke_data_parallel *parallel, yoke_replica_job job,
                                         void *context);

/* torch.chunk: rows of shard `index` when `rows` are cut for `devices`; 0: that device is idle. */
YOKE_API int yoke_shard_rows(int rows, int devices, int index);

/* Reads or writes a tensor of the root by its state_dict name, in PyTorch's layout, float32,
 * `count` elements as yoke_tensor_info says. A write makes the other replicas stale. */
YOKE_API yoke_status yoke_data_parallel_read(yoke_data_parallel *parallel, const char *name,
                                             float *values, size_t count);
YOKE_API yoke_status yoke_data_parallel_write(yoke_data_parallel *parallel, const char *name,
                                              const float *values, size_t count);
/* The gradient of the last backward on the root; classic schedule or the stages by hand only (the
 * others reduce into the update and keep none). ARGUMENT otherwise. What is written is what
 * yoke_update takes. */
YOKE_API yoke_status yoke_data_parallel_read_gradient(yoke_data_parallel *parallel,
                                                      const char *name, float *values,
                                                      size_t count);
YOKE_API yoke_status yoke_data_parallel_write_gradient(yoke_data_parallel *parallel,
                                                       const char *name, const float *values,
                                                       size_t count);
/* d loss / d inputs of the last batch, gradients [rows, input shape], float32: after a step or a
 * backward, until the next forward. ARGUMENT unless options.input_gradients. */
YOKE_API yoke_status yoke_data_parallel_read_input_gradients(yoke_data_parallel *parallel,
                                                             float *gradients);

/* XXH3-64 of parameters and buffers, float32, in state_dict order and PyTorch's layout. */
YOKE_API yoke_status yoke_data_parallel_hash(yoke_data_parallel *parallel, uint64_t *hash);

/* Bytes of one device by what holds them. */
typedef struct yoke_memory_report {
    size_t struct_size;
    size_t parameters, gradients, optimizer, buffers, activations, scratch, batch, total;
} yoke_memory_report;
YOKE_API yoke_status yoke_data_parallel_memory(const yoke_data_parallel *parallel, int replica,
                                               yoke_memory_report *report);

/* Makes the calling thread the root's worker, bound to its cores, until released; without it the
 * caller runs wherever the system puts it. yoke_trainer_run does this itself. */
YOKE_API yoke_status yoke_data_parallel_bind(yoke_data_parallel *parallel);
YOKE_API void yoke_data_parallel_release(yoke_data_parallel *parallel);

/* Makes every plan for this size of the whole batch now, so that no later step allocates: for a
 * short last batch and for evaluation. */
YOKE_API yoke_status yoke_data_parallel_prepare(yoke_data_parallel *parallel, int rows,
                                                bool training);

/* Which algorithm serves which layer and pass, with the time measured: row `index`, false past the
 * end. Part of a run's record. */
YOKE_API bool yoke_data_parallel_choice(const yoke_data_parallel *parallel, int index,
                                        const char **layer_and_pass, const char **algorithm,
                                        double *milliseconds);

/* The engine's trace; borrowed. */
YOKE_API yoke_trace *yoke_data_parallel_trace(yoke_data_parallel *parallel);
YOKE_API int yoke_data_parallel_device_count(const yoke_data_parallel *parallel);

#ifdef __cplusplus
}
#endif

#endif
