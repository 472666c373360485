/* SPDX-License-Identifier: Apache-2.0 */
/* What an exchange of the host program sends by: copies between devices' arrays, and when each
 * would be over on modelled links. An element may travel on as soon as it has arrived. */
#ifndef LINKS_WIRE_H
#define LINKS_WIRE_H

#include "links/links.h"
#include "yoke/custom_exchange.h"

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
