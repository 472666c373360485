/* SPDX-License-Identifier: Apache-2.0 */
/* The door of links. Links that CPU devices do not have: the time at which a transfer would be
 * over. The data lie in memory that all devices share, so nothing moves here and nobody waits here:
 * whoever needs the data sleeps until that time, and workers compute meanwhile.
 *
 * A transfer of n bytes takes alpha + n / beta (Hockney 1994): alpha the latency, beta the
 * bandwidth. Every device has a link of its own, full duplex: what it sends does not slow down what
 * it receives. A transfer occupies the sender's outgoing and the receiver's incoming direction for
 * n / beta; transfers that share a direction follow each other. */
#ifndef LINKS_LINKS_H
#define LINKS_LINKS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/base.h"
#include "yoke/custom_exchange.h"

typedef struct yoke_link {
    double bytes_per_ns; /* beta, of each direction: GB/s */
    double latency_ns;   /* alpha */
    bool bridge;         /* all transfers also pass one port of the same bandwidth; otherwise the
                            links end in a switch that never blocks */
} yoke_link;

/* Reads "pcie3", "nvlink4,switch", "12.5,3" or "12.5,3,bridge": GB/s and microseconds. ARGUMENT:
 * the text says what is wrong and what is known. */
yoke_status yoke_link_parse(yoke_link *link, const char *text);
/* "12.3 GB/s, 5 us, switch". */
#define YOKE_LINK_BYTES 64
const char *yoke_link_describe(const yoke_link *link, char text[YOKE_LINK_BYTES]);

typedef struct yoke_links yoke_links;

yoke_status yoke_links_create(yoke_links **links, const yoke_link *link, int devices);
void yoke_links_destroy(yoke_links *links); /* takes NULL */

/* What a link has carried, in bytes: those that its device sent and received. */
typedef struct yoke_link_bytes {
    uint64_t sent, received;
} yoke_link_bytes;

/* Calls of one thread at a time; times in ns of yoke_now_ns. Each returns when the transfer, which
 * does not begin before earliest_ns, is over. */

uint64_t yoke_links_transfer(yoke_links *links, int from, int to, size_t bytes,
                             uint64_t earliest_ns);
/* The time that the bytes occupy a link. */
uint64_t yoke_links_span(const yoke_links *links, size_t bytes);

/* One stage between the root, device 0, and each other device, in the order of devices: scatter,
 * replicate, gather, reduce. bytes[devices]: 0 where nothing travels; ends_ns[devices] gets the end
 * of each transfer. Returns the last end, at least begin_ns. */
uint64_t yoke_links_root_stage(yoke_links *links, bool to_root, const size_t *bytes,
                               uint64_t begin_ns, uint64_t *ends_ns);

/* Collectives of N devices, of which every device takes part in one at a time, as in one stream:
 *
 *   chain  reduce to the root, or broadcast from it: N - 1 hops; a device passes on what has
 *          arrived so far: (N - 1) alpha + n / beta
 *   ring   reduce-scatter, or all-gather: N - 1 steps, in each of which every device passes n / N
 *          on: (N - 1) (alpha + n / (N beta)). An all-reduce is one after the other.
 *
 * All (N - 1) n bytes of any of them share a bridge: (N - 1) (alpha + n / beta). A bridge is for
 * one node.
 *
 * Between M nodes of D = N / M devices each, a_nic + n / b_nic is the time of one transfer through
 * a node's network card, which all devices of the node share, full duplex:
 *
 *   ring          the ring passes every node once: its steps are as slow as the slower hop
 *   tree          two binary trees, each of half the bytes, reduce to their roots, or broadcast
 *                 from them (Sanders, Speck and Traeff 2009; NCCL): over M nodes, then over D
 *                 devices: ceil(log2 D) alpha + ceil(log2 M) a_nic + n / min(beta, b_nic)
 *   hierarchical  a ring inside each node, then D rings between the nodes, which share the card:
 *                 (D - 1) (alpha + n / (D beta)) + (M - 1) (a_nic + n / (M b_nic))
 *
 * Where D = 1 every transfer passes cards only: alpha and beta drop out of all three. */
typedef enum yoke_route {
    YOKE_ROUTE_CHAIN,
    YOKE_ROUTE_RING,
    YOKE_ROUTE_TREE,
    YOKE_ROUTE_HIERARCHICAL
} yoke_route;
/* The half of an exchange that a collective is. */
typedef enum yoke_half {
    YOKE_HALF_SUM,    /* reduce to the root, or reduce-scatter */
    YOKE_HALF_PUBLISH /* broadcast from the root, or all-gather */
} yoke_half;
uint64_t yoke_links_collective(yoke_links *links, yoke_route route, yoke_half half, size_t bytes,
                               uint64_t earliest_ns);

/* The bytes of the device's link since the last call for it. A ring passes (N - 1) n / N over every
 * link, and so does hierarchical, over link and card; a tree's devices pass this much on average,
 * and each one is counted so. */
yoke_link_bytes yoke_links_take(yoke_links *links, int device);

/* Puts the devices, in their order, into nodes of so many. All devices are in one node otherwise.
 */
void yoke_links_set_nodes(yoke_links *links, int devices_per_node, const yoke_link *nic);

/* The buckets of a step. Their collectives run in the order of buckets, as in one communication
 * stream. A bucket travels twice: to be summed, and to be published; those are the halves of an
 * all-reduce, too. */
typedef struct yoke_bucket_clock {
    yoke_links *links; /* borrowed */
    yoke_route route;
    bool all_reduces; /* a sum is where it is needed only when it is published */
    bool late;        /* with clipping no weight travels before all gradients are summed */
    int count;
    const size_t *bytes;                /* [count] */
    uint64_t *summed_ns, *published_ns; /* [count] */
} yoke_bucket_clock;

/* The gradients of the bucket are complete on every device at arrived_ns: sets its times; with
 * `late` the last bucket sets all published_ns. Call it in the order of buckets. */
void yoke_bucket_clock_run(const yoke_bucket_clock *clock, int bucket, uint64_t arrived_ns);

/* Sleeps until then. */
void yoke_links_await(uint64_t until_ns);

/* What an exchange of the host program sends by: copies between devices' arrays, and when each
 * would be over. An element may travel on as soon as it has arrived. */
typedef struct yoke_wire {
    yoke_bucket_gradients view; /* what the exchange sees of the bucket */
    yoke_links *links;          /* borrowed; NULL: no time passes */
    uint64_t *ready_ns;         /* [devices][blocks]: when these elements have arrived */
    size_t most, block;         /* elements of the largest bucket, and of a block */
    uint64_t begin_ns, end_ns;  /* of the bucket; the last arrival */
    uint64_t bytes, elements;   /* sent since it was made */
} yoke_wire;

/* For buckets of at most `most` elements. */
yoke_status yoke_wire_create(yoke_wire **wire, yoke_links *links, int devices, size_t most);
void yoke_wire_destroy(yoke_wire *wire); /* takes NULL */
/* A bucket of `count` elements, complete on all devices at begin_ns. The arrays outlive the sends.
 */
const yoke_bucket_gradients *yoke_wire_begin(yoke_wire *wire, int bucket, size_t count,
                                             float *const *gradients, float *const *inboxes,
                                             uint64_t begin_ns);

#endif
