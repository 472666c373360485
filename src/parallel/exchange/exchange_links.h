/* SPDX-License-Identifier: Apache-2.0 */
/* What modelled links add to the exchange of buckets. Without links, or with one device, nothing.
 */
#ifndef PARALLEL_EXCHANGE_LINKS_H
#define PARALLEL_EXCHANGE_LINKS_H

#include "links/links.h"
#include "parallel/exchange/exchange.h"

/* The collectives of a step run in the order of buckets, each from the moment in which its
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
void yoke_exchange_links_await(yoke_exchange *exchange, int lane, int bucket);
/* Sleeps until all devices would have their new weights. */
void yoke_exchange_links_finish(yoke_exchange *exchange, int lane);

/* Sleeps until then, as a wait of the timeline that names what the lane's link has carried. */
void yoke_exchange_links_sleep(yoke_step *step, int lane, uint64_t until_ns,
                               yoke_link_bytes carried);

#endif
