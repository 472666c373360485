/* Links that CPU devices do not have: the time at which a transfer would be over. The data lie in
 * memory that all devices share, so nothing moves here and nobody waits here: whoever needs the
 * data sleeps until that time, and workers compute meanwhile.
 *
 * A transfer of n bytes takes alpha + n / beta (Hockney 1994): alpha the latency, beta the
 * bandwidth. Every device has a link of its own, full duplex: what it sends does not slow down what
 * it receives. A transfer occupies the sender's outgoing and the receiver's incoming direction for
 * n / beta; transfers that share a direction follow each other. */
#ifndef PARALLEL_LINKS_H
#define PARALLEL_LINKS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/base.h"

typedef struct yoke_link {
    double bytes_per_ns; /* beta, of each direction: GB/s */
    double latency_ns;   /* alpha */
    bool bridge;         /* all transfers also pass one port of the same bandwidth; otherwise the
                            links end in a switch that never blocks */
} yoke_link;

/* Reads "pcie3", "nvlink4,switch", "12.5,3" or "12.5,3,bridge": GB/s and microseconds. ARGUMENT:
 * the text says what is wrong and what is known. */
yoke_status yoke_link_parse(yoke_link *link, const char *text);

typedef struct yoke_links yoke_links;

yoke_status yoke_links_create(yoke_links **links, const yoke_link *link, int devices);
void yoke_links_destroy(yoke_links *links); /* takes NULL */

/* Calls of one thread at a time; times in ns of yoke_now_ns. Each returns when the transfer, which
 * does not begin before earliest_ns, is over. */

uint64_t yoke_links_transfer(yoke_links *links, int from, int to, size_t bytes,
                             uint64_t earliest_ns);
/* The time that the bytes occupy a link. */
uint64_t yoke_links_span(const yoke_links *links, size_t bytes);

/* Collectives of N devices, of which every device takes part in one at a time, as in one stream:
 *
 *   chain  reduce to the root, or broadcast from it: N - 1 hops; a device passes on what has
 *          arrived so far: (N - 1) alpha + n / beta
 *   ring   reduce-scatter, or all-gather: N - 1 steps, in each of which every device passes n / N
 *          on: (N - 1) (alpha + n / (N beta)). An all-reduce is one after the other.
 *
 * All (N - 1) n bytes of either share a bridge: (N - 1) (alpha + n / beta). */
uint64_t yoke_links_chain(yoke_links *links, size_t bytes, uint64_t earliest_ns);
uint64_t yoke_links_ring(yoke_links *links, size_t bytes, uint64_t earliest_ns);

/* Sleeps until then. */
void yoke_links_await(uint64_t until_ns);

#endif
