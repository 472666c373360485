/* Several processes that train together: who they are, how they meet, and what they say to each
 * other. A process is a rank; its group is the ranks of one run. */
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

/* Which process of which run this is, as a launcher told it. */
typedef struct yoke_rank_info {
    size_t struct_size;
    char source[32]; /* "yoke launch", "torchrun", "Open MPI", "PMIx", "Hydra", "SLURM", "Flux",
                        "PALS", "LSF"; "" alone */
    int rank, world;
    int local_rank, local_world; /* on this machine */
    int node_rank, nodes;
    char address[256]; /* of the store: host, IP or file:///path; empty: this machine */
    int port;          /* 0: none was named */
    char run_id[64];   /* keeps two runs apart that meet at one place */
} yoke_rank_info;

/* Reads a launcher's variables through `lookup` (the library reads no environment itself), in the
 * order YOKE_*, torchrun, Open MPI, PMIx, Hydra, SLURM step, Flux, PALS, LSF; a single process
 * otherwise. What a launcher leaves out is computed as if ranks were laid node by node. ARGUMENT
 * names a variable that is missing beside those given, is no number or contradicts another, and
 * tells when srun was forgotten in a batch script. */
typedef const char *(*yoke_lookup)(const char *name, void *payload);
YOKE_API yoke_status yoke_rank_detect(yoke_rank_info *info, yoke_lookup lookup, void *payload);

typedef struct yoke_process_group yoke_process_group;

typedef enum yoke_transport {
    YOKE_TRANSPORT_AUTO, /* NCCL for GPUs; shared memory on one machine; MPI on several */
    YOKE_TRANSPORT_SHARED_MEMORY,
    YOKE_TRANSPORT_MPI, /* libyoke_mpi.so, which lies with the library, is opened for it */
    YOKE_TRANSPORT_NCCL
} yoke_transport;

typedef struct yoke_process_group_options {
    size_t struct_size;
    yoke_rank_info rank;
    yoke_transport transport;
    const char *store;     /* "tcp://host:port", "file:///path"; NULL: from rank.address and port */
    const char *token;     /* guards a store that others can reach; NULL: loopback only */
    int timeout_ms;        /* of every wait; 0: 60000 */
    yoke_devices *devices; /* NCCL (AUTO: GPUs): this rank's one GPU; must outlive the group */
} yoke_process_group_options;

/* Meets the other ranks: rank 0 (or the launcher) keeps the store. Errors say who did not come,
 * which rank came twice (both host:pid), which port is taken and by whom, whose token is wrong. */
YOKE_API yoke_status yoke_process_group_create(yoke_process_group **group,
                                               const yoke_process_group_options *options);
/* Leaves: nothing of the group is left behind, on no path. Takes NULL. */
YOKE_API void yoke_process_group_destroy(yoke_process_group *group);
YOKE_API int yoke_process_group_rank(const yoke_process_group *group);
YOKE_API int yoke_process_group_world(const yoke_process_group *group);
YOKE_API const char *yoke_process_group_transport(const yoke_process_group *group);

/* Collectives: every rank calls the same ones in the same order with the same count and element;
 * otherwise ARGUMENT on every rank, naming both sides. Counts are elements. A wait that exceeds the
 * deadline is TIMEOUT with the ranks that did not come, a rank that has left is PEER; after any
 * failure the group is broken and says so. Sums are left folds in rank order over shared memory;
 * float32 inside for bfloat16, but NCCL has its own order and rounding. Buffers may be any host
 * memory; over NCCL memory of the rank's GPU, too: then the call waits for what the GPU's
 * communication stream was given, and any other stream is the caller's to order. */
YOKE_API yoke_status yoke_process_group_barrier(yoke_process_group *group);
YOKE_API yoke_status yoke_process_group_broadcast(yoke_process_group *group, void *buffer,
                                                  size_t count, yoke_element element, int root);
YOKE_API yoke_status yoke_process_group_all_reduce(yoke_process_group *group, void *buffer,
                                                   size_t count, yoke_element element,
                                                   yoke_reduction reduction);
/* The root's `buffer` gets the result; the others' keep their values. */
YOKE_API yoke_status yoke_process_group_reduce(yoke_process_group *group, void *buffer,
                                               size_t count, yoke_element element,
                                               yoke_reduction reduction, int root);
/* to [world x count] of every rank's from [count]. */
YOKE_API yoke_status yoke_process_group_all_gather(yoke_process_group *group, void *to,
                                                   const void *from, size_t count,
                                                   yoke_element element);
/* to [count]: this rank's part of the reduction of from [world x count]. */
YOKE_API yoke_status yoke_process_group_reduce_scatter(yoke_process_group *group, void *to,
                                                       const void *from, size_t count,
                                                       yoke_element element,
                                                       yoke_reduction reduction);
/* to [world x count] on the root; unused elsewhere. */
YOKE_API yoke_status yoke_process_group_gather(yoke_process_group *group, void *to,
                                               const void *from, size_t count, yoke_element element,
                                               int root);
/* from [world x count] on the root; unused elsewhere. */
YOKE_API yoke_status yoke_process_group_scatter(yoke_process_group *group, void *to,
                                                const void *from, size_t count,
                                                yoke_element element, int root);

/* Memory that all ranks of a machine can read: all_reduce on it moves nothing twice. Every rank
 * asks for the same number of bytes at the same time. Zeroed; freed with the group. Plain memory
 * where the transport has no use for it. */
YOKE_API yoke_status yoke_process_group_allocate(yoke_process_group *group, size_t bytes,
                                                 void **memory);

/* An all-reduce that goes on while the caller computes. start announces this rank's part of
 * `buffer` (float32 sum, memory of yoke_process_group_allocate); progress does what can be done by
 * now without waiting, for all that were started, in order; finish waits for the first `started` of
 * them. Over NCCL `buffer` is memory of the rank's GPU, start puts the sum into the GPU's
 * communication stream, progress and finish look for errors, and nothing waits for the GPU. */
YOKE_API yoke_status yoke_process_group_all_reduce_async(yoke_process_group *group, float *buffer,
                                                         size_t count);
YOKE_API yoke_status yoke_process_group_progress(yoke_process_group *group);
YOKE_API yoke_status yoke_process_group_wait(yoke_process_group *group);

#ifdef __cplusplus
}
#endif

#endif
