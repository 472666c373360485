/* SPDX-License-Identifier: Apache-2.0 */
/* The exchange: how a finished bucket of gradients becomes new weights everywhere. There is one
 * table and six kinds of exchange behind it; a step calls the table and never asks which kind it
 * has.
 *
 *   exchange_threads.c     DataParallel, lanes that share memory: the workers sum, update, publish
 *   exchange_nodes.c       the same on several memory nodes: first within each node
 *   exchange_queued.c      devices with streams: the same, queued on the communication streams, or
 *                          DDP over NCCL
 *   exchange_all_reduce.c  DDP on CPU devices: all-reduce, then every rank updates itself
 *   exchange_shared.c      DDP's sharded schedule over shared memory: ranks update as threads do
 *   exchange_custom.c      DataParallel whose sums the host program makes */
#ifndef PARALLEL_EXCHANGE_H
#define PARALLEL_EXCHANGE_H

#include <stdatomic.h>

#include "parallel/step/step.h"

typedef struct yoke_bucket_times yoke_bucket_times; /* exchange_links.c */

/* What a step has done to the weights of participant 0, or of this rank. */
typedef enum yoke_change { YOKE_CHANGED_NOTHING, YOKE_CHANGED_PART, YOKE_CHANGED_ALL } yoke_change;

/* NULL: nothing to do. In the order in which a step calls them. */
typedef struct yoke_exchange_kind {
    size_t bytes;       /* of the exchange, whose first member is a yoke_exchange */
    bool joins_ranks;   /* its participants are the ranks, not the lanes */
    bool times_itself;  /* on modelled links; exchange_links.c does so for the others */
    bool takes_factors; /* it sums by exchange_memory.c, where every lane reads all replicas */
    yoke_status (*check)(const yoke_step *step); /* whether the options allow it; NULL: they do */
    bool (*fits)(const yoke_step *step);         /* NULL: exchange_kinds.c says where */

    /* Where the root's flat buffers of `bytes` lie; what stays NULL is allocated on the device. */
    yoke_status (*place)(yoke_exchange *exchange, size_t bytes, float **parameters,
                         float **gradients);
    yoke_status (*open)(yoke_exchange *exchange); /* the replicas exist */
    void (*close)(yoke_exchange *exchange);       /* takes half-built ones */

    void (*begin)(yoke_exchange *exchange);
    /* On lane 0, before bucket 0: the loss of this process so far. */
    yoke_status (*loss)(yoke_exchange *exchange, double loss);
    /* On every lane's worker: its gradients of the bucket are complete. The lane then advances,
     * without waiting, through the buckets that are complete everywhere. NULL is_complete: `ready`
     * itself exchanges what it can. */
    yoke_status (*ready)(yoke_exchange *exchange, int lane, int bucket);
    bool (*is_complete)(const yoke_exchange *exchange, int bucket);
    /* On every lane's worker, after its last bucket: waits for the others, exchanges the rest. */
    yoke_status (*finish)(yoke_exchange *exchange, int lane);
    /* Waits for the norm of the gradient where the devices compute it, and with ranks for their
     * check of the gradient. */
    yoke_status (*norm)(yoke_exchange *exchange);
    /* Reads what the devices found in steps before number `step` that answered OK before the
     * devices had checked their gradients. *bad: the first that changed nothing, with all behind
     * it; untouched where each of them did. */
    yoke_status (*settle)(yoke_exchange *exchange, uint64_t step, uint64_t *bad);
    /* On lane 0's worker: a recording has run that holds all that ready and finish queue. NULL: no
     * recording does. */
    void (*replayed)(yoke_exchange *exchange);
    void (*drop)(yoke_exchange *exchange); /* the step failed: nothing of it is left to settle */
    /* For an exchange that can undo the weights published to participant 0: the old ones of this
     * participant's slice up to flat element `end` lie where participant 0's gradients were. */
    void (*kept)(yoke_exchange *exchange, int bucket, size_t end);
    /* The step failed: makes the root's weights those of a whole step again where it can. NULL:
     * they are what the exchange says. */
    yoke_change (*recover)(yoke_exchange *exchange);

    /* The stages by hand: the whole gradient on the root; the root's weights from it; what `stale`
     * says of the root's parameters and running statistics to every stale replica. */
    yoke_status (*reduce)(yoke_exchange *exchange);
    yoke_status (*update)(yoke_exchange *exchange);
    yoke_status (*replicate)(yoke_exchange *exchange);
    /* Makes the root's weights in float32 whole, before anything but a step reads or writes them.
     */
    yoke_status (*collect)(yoke_exchange *exchange);
} yoke_exchange_kind;

extern const yoke_exchange_kind yoke_exchange_threads, yoke_exchange_nodes, yoke_exchange_queued,
    yoke_exchange_all_reduce, yoke_exchange_shared, yoke_exchange_custom;

/* What replicate is to send. */
typedef struct yoke_stale {
    size_t weights; /* the first floats of the flat buffer; 0: no replica is behind */
    bool buffers;   /* the running statistics */
} yoke_stale;

#define YOKE_LINE_FLOATS (64 / sizeof(float)) /* of a cache line */

/* Participants are those whose flat buffers this exchange reads and writes: lanes, or ranks that
 * share memory; in DDP's all-reduce the rank itself. Owners hold the optimizer's state: participant
 * 0, or in the sharded schedule every participant, each for its slice of every bucket. */
struct yoke_exchange {
    const yoke_exchange_kind *kind;
    yoke_step *step;
    yoke_process_group *process_group; /* of DDP's ranks; NULL: one process */
    int participants, owners;
    int first;                       /* lane k is participant first + k */
    int block;                       /* of yoke_exchange_block; 0 as 1 */
    _Atomic yoke_change change;      /* by this process, in this step */
    bool keeps;                      /* a step may undo its updates: optimizers keep old state */
    bool sees_tensors;               /* the optimizer's rule; slices are cut between tensors */
    void **works;                    /* [lanes] memory of the optimizer's updates; or NULL */
    size_t placed_bytes;             /* of the root's flat buffers, in memory of the ranks */
    float **gradients, **parameters; /* [participants] flat buffers */
    uint16_t **shadows;  /* [participants] the flat weights in the compute precision, where the
                            exchange writes or moves them; NULL: nothing reads them, or forward
                            writes them */
    float **accumulated; /* [participants] sums of shards beside the gradients; NULL: none */
    yoke_optimizer **optimizers; /* [owners][buckets]; NULL: another process has it */
    uint32_t *arrivals;          /* [buckets] lanes whose gradients are complete */
    int *next;                   /* [lanes] the bucket it exchanges next */
    int norm_parts;      /* of a bucket, squared one by one: with shards not by the participants */
    double *square_sums; /* [norm_parts][buckets] of the summed gradient, for clipping */
    uint64_t *first_bad; /* [lanes] flat element, as yoke_device_check_finite's */
    yoke_optimizer_step update; /* of this step */
    int slots; /* a lane's recording of a step holds the exchange, too, and reads so many
                  scalars; 0: no recording does */
    yoke_float_scalars scalars[YOKE_UPDATE_SLOTS]; /* of this step */
    bool replayed;                                 /* this step's was in a recording */
    uint64_t model_steps[YOKE_MODELS_LIMIT];       /* before it, of each of the engine's models */
    yoke_stale stale;
    /* yoke_shadow_choose decides: updates write the owner's shadow, too; publish moves it in place
     * of weights that plans read in no other form, which the other lanes then do not have. */
    bool writes_shadow, publishes_shadow;
    bool summed;              /* participant 0 has the sum of a step in place of its gradient */
    bool root_is_behind;      /* so the root does not have other owners' new weights in float32 */
    yoke_bucket_times *times; /* on modelled links; NULL: there are none */
};

/* create counts the participants; open, after the replicas, makes the optimizers. */
const yoke_exchange_kind *yoke_exchange_kind_for(const yoke_step *step); /* exchange_kinds.c */
yoke_status yoke_exchange_create(yoke_step *step, const yoke_exchange_kind *kind);
yoke_status yoke_exchange_open(yoke_exchange *exchange);
void yoke_exchange_destroy(yoke_exchange *exchange); /* takes NULL */
/* How much memory the sums of shards take that a lane keeps beside its gradients. */
size_t yoke_exchange_sums_bytes(const yoke_step *step);
size_t yoke_exchange_optimizer_bytes(const yoke_exchange *exchange, int lane);

/* Begins a step; set_rate alone begins an update by hand. learning_rate < 0: the optimizer's own.
 * ARGUMENT when it is not finite. */
yoke_status yoke_exchange_begin(yoke_exchange *exchange, double learning_rate);
/* Queues the exchange of a step for a recording, behind its only lane's backward, and leaves the
 * step in flight alone. */
yoke_status yoke_exchange_record(yoke_exchange *exchange);
/* How many scalars such a recording reads; 0: too many. */
int yoke_exchange_slots(yoke_step *step);
yoke_status yoke_exchange_set_rate(yoke_exchange *exchange, double learning_rate);
/* On a lane's worker, before its bucket 0: the loss so far. NULL exchange: nothing to do. */
yoke_status yoke_exchange_loss(yoke_exchange *exchange, int lane);
/* Whether lanes may keep factors in place of gradients in this micro-batch: it is the step's only
 * one, several lanes have rows, and neither modelled links nor planned faults need every lane's
 * gradient. */
bool yoke_exchange_takes_factors(const yoke_exchange *exchange);
/* As the kind's. */
yoke_status yoke_exchange_ready(yoke_exchange *exchange, int lane, int bucket);
/* Ends a step. NUMERIC: the gradient is not finite. */
yoke_status yoke_exchange_check(yoke_exchange *exchange);
yoke_status yoke_exchange_check_gradient(const yoke_exchange *exchange);
/* The parameter that holds a flat element. */
const char *yoke_exchange_parameter_at(const yoke_exchange *exchange, uint64_t element);
/* As the kind's. */
yoke_status yoke_exchange_collect(yoke_exchange *exchange);
yoke_status yoke_exchange_settle(yoke_exchange *exchange, uint64_t step, uint64_t *bad);

/* The update of a step, if it made one, is done. */
void yoke_exchange_complete(yoke_exchange *exchange);
/* After a step that failed. */
yoke_change yoke_exchange_recover(yoke_exchange *exchange);

/* A part of a bucket, and the owner whose weights and optimizer's state it is. */
typedef struct yoke_slice {
    int owner;
    size_t offset, elements; /* floats, in the flat buffers */
    yoke_optimizer *optimizer;
} yoke_slice;

/* The participant's slice of a bucket: whole cache lines, so that no two workers write to one. */
yoke_slice yoke_exchange_slice(const yoke_exchange *exchange, int participant, int bucket);
/* All of a bucket that `owner` updates: its slice, or the whole of it where there is one owner. */
yoke_slice yoke_exchange_owned(const yoke_exchange *exchange, int owner, int bucket);
/* Part `part` of the exchange's norm_parts: owners' and participants' slices are whole ones. */
yoke_bucket yoke_exchange_square_range(const yoke_exchange *exchange, int part, int bucket);

/* Participants k, k + block, k + 2 * block, ... hold the sums of `block` neighbours' gradients; the
 * owner of a slice publishes it to its own node and to those. 1: every participant holds its own,
 * and owners publish to all. */
int yoke_exchange_block(const yoke_exchange *exchange);
/* Whether the worker of `lane` itself publishes to participant `to`. */
bool yoke_exchange_publishes_to(const yoke_exchange *exchange, int lane, int to);

/* The participant's first norm part; those of the next one follow. */
int yoke_exchange_norm_part(const yoke_exchange *exchange, int participant);
/* The norm of the gradient and the scale that clips it, from the square_sums, added in order. */
bool yoke_exchange_clips(const yoke_exchange *exchange);
void yoke_exchange_clip(yoke_exchange *exchange);
/* Whether the gradient is checked or clipped: the update waits until the whole of it is summed. A
 * step of an exchange that keeps what it overwrites waits to clip only. Over shared memory a rule
 * that sees tensors waits, too. */
bool yoke_exchange_waits(const yoke_exchange *exchange);
/* Forgets what sums and checks of the last gradient have found. */
void yoke_exchange_forget(yoke_exchange *exchange);
/* The first flat element of the summed gradient that is not finite on any lane. */
uint64_t yoke_exchange_first_bad(const yoke_exchange *exchange);

/* to[elements] = the contributors' gradients from flat element `offset` on, summed in their order,
 * on the lane's worker. */
yoke_status yoke_exchange_sum(const yoke_exchange *exchange, int lane, float *to, size_t offset,
                              size_t elements);
/* exchange_memory.c, over memory that every participant reaches. advance: the lane's slice of every
 * bucket that is complete is summed to where participant 0's gradients were, and checked or
 * squared; where the update does not wait, it is updated and published in the same pass. sum_slices
 * does so for all buckets at once. update_slices: updates and publishes the summed slices, unless
 * the gradient is not finite. */
yoke_status yoke_exchange_advance(yoke_exchange *exchange, int lane);
yoke_status yoke_exchange_sum_slices(int lane, void *exchange);
yoke_status yoke_exchange_update_slices(yoke_exchange *exchange, int lane);

/* From the gradient on the root, or on a rank after its all-reduce: the owner updates participant
 * 0's weights with the optimizer's state it holds. update_root: all owners do, by hand. */
yoke_status yoke_exchange_update_owned(int owner, void *exchange);
yoke_status yoke_exchange_update_root(yoke_exchange *exchange);

/* DDP by hand: the ranks' gradients summed over host memory, the whole at once. */
yoke_status yoke_exchange_all_reduce_gradient(yoke_exchange *exchange);

#endif
