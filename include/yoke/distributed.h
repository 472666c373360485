/* SPDX-License-Identifier: Apache-2.0 */
/** @file
 * Processes that train together: who they are, how they meet, and their collectives. Each process
 * is a rank; the ranks of one run form a process group, as in torch.distributed.
 */
#ifndef YOKE_DISTRIBUTED_H
#define YOKE_DISTRIBUTED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "yoke/device.h"
#include "yoke/element.h"
#include "yoke/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/** Which process of which run this is. A launcher decides it. */
typedef struct yoke_rank_info {
    size_t struct_size; /**< sizeof(yoke_rank_info). */
    char source[32];    /**< The launcher: "yoke launch", "torchrun", "Open MPI", "PMIx", "Hydra",
                             "SLURM", "Flux", "PALS" or "LSF"; "" without one. */
    int rank;           /**< 0 <= rank < world. */
    int world;          /**< The number of ranks; 0: 1. */
    int local_rank;     /**< This rank among those of its machine. */
    int local_world;    /**< Ranks on this machine; 0: all ranks are on it. */
    int node_rank;      /**< This machine among those of the run. */
    int nodes;          /**< Machines of the run. */
    char address[256];  /**< Where the store is: host name, IP address or file:///path; "": this
                           machine. */
    int port;           /**< The store's port; 0: not given. */
    char run_id[64];    /**< Separates runs that meet in one place. */
} yoke_rank_info;

/** All zero but the size. */
#define YOKE_RANK_INFO_INIT                                                                        \
    {                                                                                              \
        sizeof(yoke_rank_info), {0}, 0, 0, 0, 0, 0, 0, {0}, 0, {                                   \
            0                                                                                      \
        }                                                                                          \
    }

/** Looks a variable up; the library itself reads no environment.
 *
 * @param name     The variable's name.
 * @param payload  What the caller passed to yoke_rank_detect.
 * @return Its text, or NULL.
 */
typedef const char *(*yoke_lookup)(const char *name, void *payload);

/** Reads a launcher's variables, in the order YOKE_*, torchrun, Open MPI, PMIx, Hydra, SLURM step,
 * Flux, PALS, LSF; without any, this is a single process. It computes what a launcher leaves out
 * as if the ranks were placed node by node.
 *
 * @param[out] info  Set struct_size first.
 * @param lookup     Finds a variable: getenv, for example.
 * @param payload    Passed to `lookup`.
 * @return ARGUMENT: a variable is missing beside others, is not a number, or contradicts another;
 *         or a batch script forgot srun. The text names the variable.
 */
YOKE_API yoke_status yoke_rank_detect(yoke_rank_info *info, yoke_lookup lookup, void *payload);

/** The ranks of one run, seen from one of them. One thread at a time may use it. */
typedef struct yoke_process_group yoke_process_group;

/** What carries values between ranks. */
typedef enum yoke_transport {
    YOKE_TRANSPORT_AUTO, /**< NCCL for GPUs, shared memory on one machine, MPI on several. */
    YOKE_TRANSPORT_SHARED_MEMORY, /**< Memory that the ranks of one machine share. */
    YOKE_TRANSPORT_MPI,           /**< MPI, in libyoke_mpi.so beside the library. */
    YOKE_TRANSPORT_NCCL           /**< NCCL, one GPU a rank. */
} yoke_transport;

/** How to form a group. yoke_process_group_create reads it, and what it points to, during the call
 * only; `devices` must outlive the group. */
typedef struct yoke_process_group_options {
    size_t struct_size;         /**< sizeof(yoke_process_group_options). */
    const yoke_rank_info *rank; /**< Who this process is; NULL: alone, rank 0 of 1. */
    yoke_transport transport;   /**< Which transport. */
    const char *store;          /**< "tcp://host:port" or "file:///path"; NULL: ranks of one machine
                                     meet in a private folder, and others, or those with a token, at
                                     rank->address and rank->port. */
    const char *token;     /**< The secret of a store with a port; NULL: such a store listens to
                                this machine only. */
    int timeout_ms;        /**< Deadline of every wait; 0: 60000. */
    yoke_devices *devices; /**< NCCL (AUTO: GPUs): the one GPU of this rank; NULL: none. */
    const char *roll; /**< A file that the ranks of this run alone can write, on one machine: in
                           it they agree, without a coordinator, on who goes on when one fails,
                           and take in others (yoke_trainer_options.survive). It may be empty,
                           and replaces the store. A rank that hangs is left out and killed.
                           rank->rank is then this process's seat, of 64. NULL: the group
                           ends with its first failure. */
    int min_ranks;    /**< With a roll: fewer ranks end the run; 0: 1. */
} yoke_process_group_options;

/** The defaults: a group of one. Set rank. */
#define YOKE_PROCESS_GROUP_OPTIONS_INIT                                                            \
    { sizeof(yoke_process_group_options), NULL, YOKE_TRANSPORT_AUTO, NULL, NULL, 0, NULL, NULL, 0 }

/** Meets the other ranks and opens a transport to them. Rank 0, or the launcher, keeps the store.
 *
 * @param[out] group  The group; destroy it with yoke_process_group_destroy. NULL on failure.
 * @param options     NULL: a group of one.
 * @return TIMEOUT: the text names the ranks that did not come. PEER: a rank came twice; the text
 *         names both as host:pid. ARGUMENT: an option is invalid, or a token is wrong. DEVICE: this
 *         build or machine lacks the transport. SYSTEM: a port is taken; the text names its owner.
 */
YOKE_API yoke_status yoke_process_group_create(yoke_process_group **group,
                                               const yoke_process_group_options *options);

/** Leaves the group, and leaves no file, shared memory or process behind.
 *
 * @param group  May be NULL. In a forked child of the process that made it, nothing happens.
 */
YOKE_API void yoke_process_group_destroy(yoke_process_group *group);

/** This process's rank.
 *
 * @param group  The group. NULL: -1.
 * @return 0 <= rank < world.
 */
YOKE_API int yoke_process_group_rank(const yoke_process_group *group);

/** The number of ranks.
 *
 * @param group  The group. NULL: 0.
 * @return At least 1.
 */
YOKE_API int yoke_process_group_world(const yoke_process_group *group);

/** The name of the transport.
 *
 * @param group  The group. NULL: "".
 * @return "shared memory", for example; borrowed.
 */
YOKE_API const char *yoke_process_group_transport(const yoke_process_group *group);

/** @defgroup collectives Collectives
 *
 * Every rank calls the same collectives in the same order, with the same count and element. Counts
 * are elements. Buffers are host memory; over NCCL also memory of the rank's GPU: the call then
 * waits for the GPU's communication stream, and the caller orders any other stream.
 *
 * Over shared memory a sum adds ranks in a fixed binary tree, ((0 + 1) + (2 + 3)) + 4, in float32
 * for bfloat16. NCCL has its own
 * order and rounding.
 *
 * Every collective returns, on failure: ARGUMENT on every rank when ranks call different things,
 * with both sides in the text; TIMEOUT after the deadline, naming the ranks that did not come; PEER
 * when a rank has left. After any failure the group is broken, and every later call says so.
 * @{
 */

/** Waits until every rank has come here.
 *
 * @param group  The group.
 * @return See above.
 */
YOKE_API yoke_status yoke_process_group_barrier(yoke_process_group *group);

/** Copies the root's buffer to every rank.
 *
 * @param group           The group.
 * @param[in,out] buffer  [count]
 * @param count           Elements.
 * @param element         Their type.
 * @param root            The rank whose values everyone gets.
 * @return See above.
 */
YOKE_API yoke_status yoke_process_group_broadcast(yoke_process_group *group, void *buffer,
                                                  size_t count, yoke_element element, int root);

/** Reduces over all ranks; every rank gets the result.
 *
 * @param group           The group.
 * @param[in,out] buffer  [count]
 * @param count           Elements.
 * @param element         Their type.
 * @param reduction       What to compute.
 * @return See above.
 */
YOKE_API yoke_status yoke_process_group_all_reduce(yoke_process_group *group, void *buffer,
                                                   size_t count, yoke_element element,
                                                   yoke_reduction reduction);

/** Reduces over all ranks; the root gets the result, and the others' buffers keep their values.
 *
 * @param group           The group.
 * @param[in,out] buffer  [count]
 * @param count           Elements.
 * @param element         Their type.
 * @param reduction       What to compute.
 * @param root            The rank that gets the result.
 * @return See above.
 */
YOKE_API yoke_status yoke_process_group_reduce(yoke_process_group *group, void *buffer,
                                               size_t count, yoke_element element,
                                               yoke_reduction reduction, int root);

/** Gathers every rank's values, in the order of ranks, on every rank.
 *
 * @param group    The group.
 * @param[out] to  [world, count]
 * @param from     [count]
 * @param count    Elements of each rank.
 * @param element  Their type.
 * @return See above.
 */
YOKE_API yoke_status yoke_process_group_all_gather(yoke_process_group *group, void *to,
                                                   const void *from, size_t count,
                                                   yoke_element element);

/** Reduces over all ranks; rank k gets part k of the result.
 *
 * @param group      The group.
 * @param[out] to    [count]
 * @param from       [world, count]
 * @param count      Elements of one part.
 * @param element    Their type.
 * @param reduction  What to compute.
 * @return See above.
 */
YOKE_API yoke_status yoke_process_group_reduce_scatter(yoke_process_group *group, void *to,
                                                       const void *from, size_t count,
                                                       yoke_element element,
                                                       yoke_reduction reduction);

/** Gathers every rank's values, in the order of ranks, on the root.
 *
 * @param group    The group.
 * @param[out] to  [world, count] on the root; unused elsewhere.
 * @param from     [count]
 * @param count    Elements of each rank.
 * @param element  Their type.
 * @param root     The rank that gets them.
 * @return See above.
 */
YOKE_API yoke_status yoke_process_group_gather(yoke_process_group *group, void *to,
                                               const void *from, size_t count, yoke_element element,
                                               int root);

/** Gives rank k part k of the root's values.
 *
 * @param group    The group.
 * @param[out] to  [count]
 * @param from     [world, count] on the root; unused elsewhere.
 * @param count    Elements of one part.
 * @param element  Their type.
 * @param root     The rank that has them.
 * @return See above.
 */
YOKE_API yoke_status yoke_process_group_scatter(yoke_process_group *group, void *to,
                                                const void *from, size_t count,
                                                yoke_element element, int root);

/** Allocates memory that all ranks of a machine can read, so that an all-reduce on it copies
 * nothing twice; ordinary memory where the transport has no use for it. Every rank asks for the
 * same number of bytes at the same time.
 *
 * @param group        The group.
 * @param bytes        The size.
 * @param[out] memory  Zeroed; the group frees it.
 * @return See above.
 */
YOKE_API yoke_status yoke_process_group_allocate(yoke_process_group *group, size_t bytes,
                                                 void **memory);

/** Begins an all-reduce (sum, float32) that goes on while the caller computes: announces this
 * rank's values. Several may be pending; they complete in their order. Over NCCL `buffer` is memory
 * of the rank's GPU, and the call queues the sum in the GPU's communication stream.
 *
 * @param group           The group.
 * @param[in,out] buffer  [count], from yoke_process_group_allocate. Do not touch it before
 *                        yoke_process_group_wait.
 * @param count           Elements.
 * @return See above.
 */
YOKE_API yoke_status yoke_process_group_all_reduce_async(yoke_process_group *group, float *buffer,
                                                         size_t count);

/** Does what can be done for pending all-reduces without waiting. Over NCCL it only looks for
 * errors.
 *
 * @param group  The group.
 * @return See above.
 */
YOKE_API yoke_status yoke_process_group_progress(yoke_process_group *group);

/** Completes all pending all-reduces. Over NCCL it only looks for errors: order later work behind
 * the communication stream.
 *
 * @param group  The group.
 * @return See above.
 */
YOKE_API yoke_status yoke_process_group_wait(yoke_process_group *group);

/** @} */

#ifdef __cplusplus
}
#endif

#endif
