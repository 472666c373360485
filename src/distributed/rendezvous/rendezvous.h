/* SPDX-License-Identifier: Apache-2.0 */
/* Rendezvous: where the ranks of a run find the store, and how each learns who the others are. */
#ifndef DISTRIBUTED_RENDEZVOUS_H
#define DISTRIBUTED_RENDEZVOUS_H

#include "distributed/store/store.h"
#include "yoke/distributed.h"

typedef struct yoke_store_place {
    char address[300]; /* as yoke_store_options.address */
    char run_id[64];
} yoke_store_place;

/* Takes the address in the options, else the launcher's, else one that every rank of this run, and
 * of no other run, computes alike: a meeting (meeting.h) on one machine, a port on several. */
yoke_status yoke_store_place_choose(yoke_store_place *place,
                                    const yoke_process_group_options *options);

typedef struct yoke_peer {
    char host[64];
    int pid, local_rank;
} yoke_peer;

/* Fills peers[world]. If two processes claim one rank, every rank fails and the text names both as
 * host:pid; at the deadline the text names the missing ranks. */
yoke_status yoke_rendezvous(yoke_store *store, const yoke_rank_info *rank, yoke_peer *peers,
                            int timeout_ms);
/* The first rank on another machine than rank 0; 0: all ranks are on one. */
int yoke_peers_elsewhere(const yoke_peer *peers, int world);

#endif
