/* SPDX-License-Identifier: Apache-2.0 */
/* Collectives by copies, sums and events alone. They work on any backend, for any order of devices,
 * and for several devices on one GPU. Sums are trees in the order of the devices, so the bits
 * never change.
 *
 * A device that reads another's range first waits for that device's stream, which continues only
 * after the read. Both waits go through the root's stream: 2 events a device instead of one for
 * each pair. */
#include <stdlib.h>
#include <string.h>

#include "device/backend.h"

enum {
    CHUNK_ELEMENTS = 1 << 18, /* 1 MiB: large enough for a link's full speed, small enough to keep
                                 one for each peer */
    LINE_ELEMENTS = 16
};

typedef struct copy_member {
    yoke_device *device;
    yoke_device_event *mark; /* recorded behind the latest work of its communication stream */
    float *scratch;          /* [peers out of reach, chunk] */
} copy_member;

typedef struct copy_group {
    yoke_device_group base;
    size_t chunk; /* elements */
    copy_member members[];
} copy_group;

static copy_group *copy_of(yoke_device_group *group) {
    return (copy_group *)group;
}

/* Order. */

static yoke_status wait_for(copy_member *member, copy_member *ahead) {
    return yoke_device_event_wait(ahead->mark, member->device, YOKE_STREAM_COMMUNICATION);
}

static yoke_status mark(copy_member *member) {
    return yoke_device_event_record(member->mark, YOKE_STREAM_COMMUNICATION);
}

/* The root's stream waits for those of devices 1 .. count - 1. */
static yoke_status root_waits(copy_group *group, int count) {
    for (int k = 1; k < count; k++) {
        TRY(mark(&group->members[k]));
        TRY(wait_for(&group->members[0], &group->members[k]));
    }
    return YOKE_OK;
}

/* The streams of devices 1 .. count - 1 wait for the root's. */
static yoke_status others_wait(copy_group *group, int count) {
    TRY(mark(&group->members[0]));
    for (int k = 1; k < count; k++)
        TRY(wait_for(&group->members[k], &group->members[0]));
    return YOKE_OK;
}

static yoke_status join_all(copy_group *group) {
    TRY(root_waits(group, group->base.count));
    return others_wait(group, group->base.count);
}

/* Sums. */

static bool reads(const copy_member *reader, const copy_member *owner) {
    return reader == owner || yoke_device_reaches(reader->device, owner->device);
}

static yoke_status sum_range(copy_group *group, int reader, const yoke_range *range,
                             int contributors) {
    size_t step = group->members[reader].scratch != NULL ? group->chunk : range->elements;
    for (size_t at = 0; at < range->elements; at += step) {
        size_t left = range->elements - at;
        yoke_range chunk = {.buffers = range->buffers,
                            .offset = range->offset + at,
                            .elements = left < step ? left : step};
        /* Sums the chunk over all contributors on the reader. It reads a contributor's memory in
         * place where it can, otherwise it copies the chunk to its scratch first. */
        copy_member *own = &group->members[reader];
        const float *from[YOKE_DEVICES_LIMIT];
        float *scratch = own->scratch;
        for (int k = 0; k < contributors; k++) {
            from[k] = chunk.buffers[k] + chunk.offset;
            if (reads(own, &group->members[k])) continue;
            TRY(yoke_device_copy(own->device, YOKE_STREAM_COMMUNICATION, scratch,
                                 group->members[k].device, from[k],
                                 chunk.elements * sizeof(float)));
            from[k] = scratch;
            scratch += group->chunk;
        }
        TRY(yoke_device_sum(own->device, YOKE_STREAM_COMMUNICATION,
                            chunk.buffers[reader] + chunk.offset, from, contributors,
                            chunk.elements));
    }
    return YOKE_OK;
}

/* Device k's part of a range. */
static yoke_range part_of(const copy_group *group, const yoke_range *range, int k) {
    size_t equal = range->elements / (size_t)group->base.count;
    size_t begin = range->cuts != NULL ? range->cuts[k] : (size_t)k * equal;
    size_t end = range->cuts != NULL ? range->cuts[k + 1] : begin + equal;
    return (yoke_range){
        .buffers = range->buffers, .offset = range->offset + begin, .elements = end - begin};
}

static yoke_status pull(copy_group *group, int to, int from, const yoke_range *range) {
    if (to == from || range->elements == 0) return YOKE_OK;
    return yoke_device_copy(group->members[to].device, YOKE_STREAM_COMMUNICATION,
                            range->buffers[to] + range->offset, group->members[from].device,
                            range->buffers[from] + range->offset, range->elements * sizeof(float));
}

/* The four collectives. */

static yoke_status reduce(yoke_device_group *base, const yoke_range *range, int contributors) {
    copy_group *group = copy_of(base);
    if (contributors == 1) return YOKE_OK;
    TRY(root_waits(group, contributors));
    TRY(sum_range(group, 0, range, contributors));
    return others_wait(group, contributors);
}

static yoke_status broadcast(yoke_device_group *base, const yoke_range *range) {
    copy_group *group = copy_of(base);
    TRY(others_wait(group, base->count));
    for (int k = 1; k < base->count; k++)
        TRY(pull(group, k, 0, range));
    return root_waits(group, base->count);
}

static yoke_status reduce_scatter(yoke_device_group *base, const yoke_range *range,
                                  int contributors) {
    copy_group *group = copy_of(base);
    TRY(join_all(group));
    for (int k = 0; k < base->count; k++) {
        yoke_range part = part_of(group, range, k);
        TRY(sum_range(group, k, &part, contributors));
    }
    return join_all(group);
}

/* Each device begins with another neighbour, so that not all read from one device at a time. */
static yoke_status all_gather(yoke_device_group *base, const yoke_range *range) {
    copy_group *group = copy_of(base);
    TRY(join_all(group));
    for (int ahead = 1; ahead < base->count; ahead++)
        for (int to = 0; to < base->count; to++) {
            int from = (to + ahead) % base->count;
            yoke_range part = part_of(group, range, from);
            TRY(pull(group, to, from, &part));
        }
    return join_all(group);
}

/* Life. */

static void copy_group_destroy(yoke_device_group *base) {
    copy_group *group = copy_of(base);
    for (int k = 0; k < base->count; k++) {
        copy_member *member = &group->members[k];
        if (member->scratch != NULL) yoke_device_free(member->device, member->scratch);
        yoke_device_event_destroy(member->mark);
    }
    yoke_free(group);
}

static yoke_status build_member(copy_group *group, copy_member *member) {
    size_t out_of_reach = 0;
    for (int k = 0; k < group->base.count; k++)
        out_of_reach += !reads(member, &group->members[k]);
    TRY(yoke_device_event_create(&member->mark, member->device));
    if (out_of_reach == 0) return YOKE_OK;
    return yoke_device_allocate(member->device, out_of_reach * group->chunk * sizeof(float),
                                "gradients of other devices", (void **)&member->scratch);
}

static yoke_status copy_group_build(copy_group *group, const yoke_device_group_request *request) {
    size_t lines = (request->scratch_elements + LINE_ELEMENTS - 1) / LINE_ELEMENTS;
    group->chunk = lines * LINE_ELEMENTS;
    if (group->chunk == 0 || group->chunk > CHUNK_ELEMENTS) group->chunk = CHUNK_ELEMENTS;
    for (int k = 0; k < request->count; k++)
        group->members[k].device = request->devices[k];
    for (int k = 0; k < request->count; k++)
        TRY(build_member(group, &group->members[k]));
    return YOKE_OK;
}

yoke_status yoke_copy_group_create(yoke_device_group **group,
                                   const yoke_device_group_request *request) {
    *group = NULL;
    size_t bytes = sizeof(copy_group) + (size_t)request->count * sizeof(copy_member);
    copy_group *created = yoke_calloc(1, bytes);
    if (created == NULL) return FAIL_MEMORY(bytes, "a group of devices");
    created->base = (yoke_device_group){.name = "copy",
                                        .count = request->count,
                                        .reduce = reduce,
                                        .broadcast = broadcast,
                                        .reduce_scatter = reduce_scatter,
                                        .all_gather = all_gather,
                                        .destroy = copy_group_destroy};
    yoke_status status = copy_group_build(created, request);
    if (status == YOKE_OK)
        *group = &created->base;
    else
        copy_group_destroy(&created->base);
    return status;
}
