/* SPDX-License-Identifier: Apache-2.0 */
/* What modelled links add to a step. An engine without links, or with one device, skips it all. */
#ifndef PARALLEL_EXCHANGE_LINKS_H
#define PARALLEL_EXCHANGE_LINKS_H

#include "links/links.h"
#include "parallel/exchange.h"

/* Reads options.link. ARGUMENT: it is malformed, or the devices are GPUs. */
yoke_status yoke_engine_links_create(yoke_data_parallel *parallel);

/* A stage between the root and every other lane: scatter, replicate, gather, reduce. */
typedef struct yoke_root_stage {
    yoke_stage stage;
    bool to_root;
    uint64_t begin_ns; /* of the stage, when all its transfers are queued, in the order of lanes */
    size_t bytes[YOKE_DEVICES_LIMIT]; /* of each lane's transfer; the root's, or none: 0 */
} yoke_root_stage;

/* Whether links carry what such a stage moves. The timeline then shows it in place of the copies
 * in memory: run does so, and the stage records no spans of its own. */
bool yoke_links_carry(const yoke_data_parallel *parallel);
/* Called at the end of the stage, between two jobs: sleeps until the last transfer is over. On the
 * timeline every lane has its transfer, with its bytes, and the root the whole stage. */
void yoke_links_run(yoke_data_parallel *parallel, const yoke_root_stage *stage);

/* Buckets. The collectives of a step run in the order of buckets, each from the moment in which its
 * gradients are complete on every device: DataParallel reduces over a chain and broadcasts over
 * one, the sharded schedule reduce-scatters and all-gathers over a ring, DDP all-reduces over a
 * ring. Lanes and ranks each compute all times themselves, from the same arrivals. */

yoke_status yoke_exchange_links_open(yoke_exchange *exchange);
void yoke_exchange_links_close(yoke_exchange *exchange);
void yoke_exchange_links_begin(yoke_exchange *exchange);
/* The lane's gradients of the bucket are complete; before any other lane or rank learns it. */
void yoke_exchange_links_arrive(yoke_exchange *exchange, int lane, int bucket);

/* The rest only after all lanes, or ranks, have arrived at the bucket. */

/* Whether the bucket's sum would be where it is updated. await: sleeps until then. */
bool yoke_exchange_links_summed(const yoke_exchange *exchange, int bucket);
void yoke_exchange_links_await(const yoke_exchange *exchange, int lane, int bucket);
/* Sleeps until all devices would have their new weights. */
void yoke_exchange_links_finish(const yoke_exchange *exchange, int lane);

#endif
