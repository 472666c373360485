/* SPDX-License-Identifier: Apache-2.0 */
/* Sends of one bucket after the other. */
#include <string.h>

#include "links/links.h"

#define BLOCKS ((size_t)1 << 16) /* of a device: times are exact for buckets that are no larger */

yoke_status yoke_wire_create(yoke_wire **wire, yoke_links *links, int devices, size_t most) {
    yoke_wire *created = *wire = yoke_calloc(1, sizeof *created);
    if (created == NULL) return FAIL_MEMORY(sizeof *created, "a wire");
    created->links = links;
    created->most = most;
    created->block = most / BLOCKS + 1;
    created->view.devices = devices;
    size_t blocks = (size_t)devices * (most / created->block + 1);
    created->ready_ns = yoke_calloc(blocks, sizeof *created->ready_ns);
    if (created->ready_ns != NULL) return YOKE_OK;
    yoke_wire_destroy(created);
    *wire = NULL;
    return FAIL_MEMORY(blocks * sizeof(uint64_t), "a wire");
}

void yoke_wire_destroy(yoke_wire *wire) {
    if (wire == NULL) return;
    yoke_free(wire->ready_ns);
    yoke_free(wire);
}

static uint64_t *ready_of(const yoke_wire *wire, int device) {
    return wire->ready_ns + (size_t)device * (wire->most / wire->block + 1);
}

static yoke_status check(const yoke_wire *wire, int from, int to, size_t first, size_t count) {
    const yoke_bucket_gradients *view = &wire->view;
    if (from < 0 || to < 0 || from >= view->devices || to >= view->devices || from == to)
        return FAIL(YOKE_ERROR_ARGUMENT, "send from device %d to device %d: there are 0 to %d",
                    from, to, view->devices - 1);
    if (first <= view->count && count <= view->count - first) return YOKE_OK;
    return FAIL(YOKE_ERROR_ARGUMENT, "send of elements %zu .. %zu: bucket %d has %zu", first,
                first + count, view->bucket, view->count);
}

/* The blocks that begin in a range; of a range without one, the block that it lies in. Ranges that
 * do not overlap have no block in common, where each begins a block. */
static void find_blocks(const yoke_wire *wire, size_t first, size_t count, size_t *begin,
                        size_t *end) {
    *begin = (first + wire->block - 1) / wire->block;
    *end = (first + count + wire->block - 1) / wire->block;
    if (*begin < *end) return;
    *begin = first / wire->block;
    *end = *begin + 1;
}

/* The transfer begins when all that it sends has arrived. */
static void time_transfer(yoke_wire *wire, int from, int to, size_t first, size_t count,
                          size_t bytes) {
    uint64_t begin_ns = wire->begin_ns, end_ns = begin_ns;
    uint64_t *out = ready_of(wire, from), *in = ready_of(wire, to);
    size_t begin, end;
    find_blocks(wire, first, count, &begin, &end);
    for (size_t b = begin; b < end; b++)
        if (out[b] > begin_ns) begin_ns = out[b];
    if (wire->links != NULL) end_ns = yoke_links_transfer(wire->links, from, to, bytes, begin_ns);
    for (size_t b = begin; b < end; b++)
        if (end_ns > in[b]) in[b] = end_ns;
    if (end_ns > wire->end_ns) wire->end_ns = end_ns;
}

static yoke_status send_as(const yoke_bucket_gradients *view, int from, int to, size_t first,
                           size_t count, bool narrow) {
    yoke_wire *wire = view->wire;
    size_t bytes = count * (narrow ? sizeof(uint16_t) : sizeof(float));
    TRY(check(wire, from, to, first, count));
    if (count == 0) return YOKE_OK;
    float *inbox = wire->view.inboxes[to] + first;
    memcpy(inbox, wire->view.gradients[from] + first, count * sizeof(float));
    for (size_t i = 0; narrow && i < count; i++)
        inbox[i] = yoke_bfloat16_widen(yoke_bfloat16_round(inbox[i]));
    time_transfer(wire, from, to, first, count, bytes);
    wire->bytes += bytes;
    wire->elements += count;
    return YOKE_OK;
}

static yoke_status send_whole(const yoke_bucket_gradients *view, int from, int to, size_t first,
                              size_t count) {
    return send_as(view, from, to, first, count, false);
}

static yoke_status send_narrow(const yoke_bucket_gradients *view, int from, int to, size_t first,
                               size_t count) {
    return send_as(view, from, to, first, count, true);
}

const yoke_bucket_gradients *yoke_wire_begin(yoke_wire *wire, int bucket, size_t count,
                                             float *const *gradients, float *const *inboxes,
                                             uint64_t begin_ns) {
    wire->view = (yoke_bucket_gradients){.struct_size = sizeof wire->view,
                                         .devices = wire->view.devices,
                                         .bucket = bucket,
                                         .count = count,
                                         .gradients = gradients,
                                         .inboxes = inboxes,
                                         .send = send_whole,
                                         .send_bfloat16 = send_narrow,
                                         .wire = wire};
    wire->begin_ns = begin_ns;
    if (begin_ns > wire->end_ns) wire->end_ns = begin_ns;
    for (int k = 0; k < wire->view.devices; k++)
        memset(ready_of(wire, k), 0, (wire->most / wire->block + 1) * sizeof(uint64_t));
    return &wire->view;
}
