/* The door of distributed: store, rendezvous and the process group with its transports. It knows
 * devices only where NCCL needs one, and neither models nor training. */
#ifndef DISTRIBUTED_DISTRIBUTED_H
#define DISTRIBUTED_DISTRIBUTED_H

#include "base/base.h"
#include "yoke/distributed.h"

/* The store: small values by key, set once, kept by one process (TCP) or a folder (file). */

typedef struct yoke_store yoke_store;

typedef struct yoke_store_options {
    const char *address; /* "tcp://host:port", "file:///path" */
    bool serve;          /* TCP: this process keeps it; port 0 takes a free one */
    const char *run_id;  /* a stranger's or another run's connection is dropped */
    const char *token;   /* shared secret, proven both ways by a nonce challenge; never sent */
    int timeout_ms;
} yoke_store_options;

#define YOKE_STORE_KEY_LIMIT 256
#define YOKE_STORE_VALUE_LIMIT ((size_t)65536 - YOKE_STORE_KEY_LIMIT) /* a frame holds both */

/* Serving binds first: yoke_store_port tells the port that others are then given. The store ends
 * with the process that serves it. One thread at a time. */
yoke_status yoke_store_create(yoke_store **store, const yoke_store_options *options);
void yoke_store_destroy(yoke_store *store);
int yoke_store_port(const yoke_store *store);
/* The deadline of later calls; 0: yoke_store_wait only looks. Returns the one before. */
int yoke_store_timeout(yoke_store *store, int timeout_ms);
/* ARGUMENT when the key has another value already. */
yoke_status yoke_store_set(yoke_store *store, const char *key, const void *value, size_t bytes);
/* Waits for the key until the deadline: TIMEOUT, naming it. */
yoke_status yoke_store_wait(yoke_store *store, const char *key, void *value, size_t capacity,
                            size_t *bytes);
/* Adds and answers the new sum. */
yoke_status yoke_store_add(yoke_store *store, const char *key, int64_t value, int64_t *sum);

/* Rendezvous: every rank says who it is (host, pid, local rank) and learns who the others are. */

typedef struct yoke_peer {
    char host[64];
    int pid, local_rank;
} yoke_peer;

/* peers[world]. A rank that comes twice is refused with both host:pid; a world that never fills
 * names the ranks missing. */
yoke_status yoke_rendezvous(yoke_store *store, const yoke_rank_info *rank, yoke_peer *peers,
                            int timeout_ms);
/* The first rank that is on another machine than rank 0; 0: all are on one. */
int yoke_peers_elsewhere(const yoke_peer *peers, int world);

/* Transports: what a process group is made of. */

typedef struct yoke_transport_request {
    const yoke_process_group_options *options; /* loaded, with defaults */
    yoke_store *store;
    const yoke_peer *peers;
} yoke_transport_request;

typedef struct yoke_reduce_call {
    size_t count;
    yoke_element element;
    yoke_reduction reduction;
    int root; /* -1: all */
} yoke_reduce_call;

struct yoke_process_group {
    char transport[32];
    int rank, world, timeout_ms;
    bool broken; /* by a failure: every later call says so */
    char cause[256];
    yoke_store *store;
    yoke_peer *peers; /* [world] */

    yoke_status (*barrier)(yoke_process_group *group);
    yoke_status (*broadcast)(yoke_process_group *group, void *buffer, const yoke_reduce_call *call);
    yoke_status (*reduce)(yoke_process_group *group, void *buffer, const yoke_reduce_call *call);
    yoke_status (*all_gather)(yoke_process_group *group, void *to, const void *from,
                              const yoke_reduce_call *call); /* root >= 0: gather */
    yoke_status (*reduce_scatter)(yoke_process_group *group, void *to, const void *from,
                                  const yoke_reduce_call *call);
    yoke_status (*scatter)(yoke_process_group *group, void *to, const void *from,
                           const yoke_reduce_call *call);
    yoke_status (*allocate)(yoke_process_group *group, size_t bytes, void **memory);
    yoke_status (*start)(yoke_process_group *group, float *buffer, size_t count);
    yoke_status (*progress)(yoke_process_group *group, bool wait);
    yoke_status (*synchronize)(yoke_process_group *group); /* NULL: progress waits for all */
    /* Tells the others this thread's error, unless somebody was first. */
    yoke_status (*abandon)(yoke_process_group *group, yoke_status status);
    /* NULL: no memory is seen by all. */
    yoke_status (*peers_of)(yoke_process_group *group, const void *memory, void **peers);
    yoke_process_group *host; /* what carries host memory, where that is another; NULL: itself */
    void (*destroy)(yoke_process_group *group); /* takes half-built groups */
};

yoke_status yoke_shared_memory_group(yoke_process_group **group,
                                     const yoke_transport_request *request);
/* check: whether it can be, before anybody is met. What it takes is then loaded. */
yoke_status yoke_mpi_check(void);
yoke_status yoke_mpi_group(yoke_process_group **group, const yoke_transport_request *request);
/* Whether this process is one of several that MPI knows, and MPI can be opened. */
bool yoke_mpi_launched(const yoke_rank_info *rank);
yoke_status yoke_nccl_check(const yoke_process_group_options *options);
yoke_status yoke_nccl_group(yoke_process_group **group, const yoke_transport_request *request);

/* Finishes, and over NCCL waits with the group's deadline until the rank's GPU has done all that
 * its communication stream was given: the one wait that ends when another rank does not come. */
yoke_status yoke_process_group_synchronize(yoke_process_group *group);

/* Where the memory of yoke_process_group_allocate that is `memory` here lies for this process in
 * every rank: peers[world]. DEVICE: this transport has no memory that all see. */
yoke_status yoke_process_group_peers(yoke_process_group *group, const void *memory, void **peers);

/* The deadline of waits from now on, in ms; returns the one before. For what one rank does while
 * the others have nothing to do. */
int yoke_process_group_timeout(yoke_process_group *group, int timeout_ms);

/* This rank has failed by itself and will not call what the others wait for in: breaks the group,
 * telling them this thread's error at once. Answers `status`, with its text. Takes NULL. */
yoke_status yoke_process_group_abort(yoke_process_group *group, yoke_status status);

/* Agreement. */

#define YOKE_AGREE_RANKS 1024
/* Every rank calls it with its facts, one a line, each line ended. PEER on every rank when they
 * differ, with the first line in which some rank differs from rank 0. */
yoke_status yoke_ranks_agree(yoke_process_group *group, const char *facts);

#endif
