/* SPDX-License-Identifier: Apache-2.0 */
/* The order in which the buckets of a step travel. The exchange's clock and the simulator's. */
#include "links/links.h"

static uint64_t travel(const yoke_bucket_clock *clock, yoke_half half, int bucket,
                       uint64_t earliest_ns) {
    return yoke_links_collective(clock->links, clock->route, half, clock->bytes[bucket],
                                 earliest_ns);
}

void yoke_bucket_clock_run(const yoke_bucket_clock *clock, int bucket, uint64_t arrived_ns) {
    bool late = clock->late && !clock->all_reduces, last = bucket == clock->count - 1;
    uint64_t summed_ns = clock->summed_ns[bucket] =
        travel(clock, YOKE_HALF_SUM, bucket, arrived_ns);
    int first = late ? 0 : bucket, end = late && !last ? 0 : bucket + 1;
    for (int b = first; b < end; b++)
        clock->published_ns[b] = travel(clock, YOKE_HALF_PUBLISH, b, summed_ns);
    if (clock->all_reduces) clock->summed_ns[bucket] = clock->published_ns[bucket];
}
