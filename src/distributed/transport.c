/* SPDX-License-Identifier: Apache-2.0 */
/* What the transports share: the comparison of the ranks' calls, and private memory. */
#include "distributed/transport.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *yoke_call_name(yoke_call_kind kind) {
    static const char *const names[] = {
        [CALL_JOIN] = "joining",
        [CALL_BARRIER] = "barrier",
        [CALL_BROADCAST] = "broadcast",
        [CALL_REDUCE] = "reduce",
        [CALL_ALL_REDUCE] = "all_reduce",
        [CALL_GATHER] = "gather",
        [CALL_ALL_GATHER] = "all_gather",
        [CALL_REDUCE_SCATTER] = "reduce_scatter",
        [CALL_SCATTER] = "scatter",
        [CALL_ALLOCATE] = "allocate",
        [CALL_ALL_REDUCE_ASYNC] = "all_reduce_async",
    };
    return names[kind];
}

yoke_call yoke_call_of(yoke_call_kind kind, const yoke_reduce_call *call) {
    return (yoke_call){.kind = kind,
                       .element = call->element,
                       .reduction = call->reduction,
                       .root = call->root,
                       .count = call->count};
}

static bool has_reduction(yoke_call_kind kind) {
    return kind == CALL_REDUCE || kind == CALL_ALL_REDUCE || kind == CALL_REDUCE_SCATTER ||
           kind == CALL_ALL_REDUCE_ASYNC;
}

/* "reduce of 100 float32, sum, root 2" */
static void describe(const yoke_call *call, char *text, size_t size) {
    static const char *const elements[] = {"float32", "bfloat16", "int64", "float64"};
    static const char *const reductions[] = {"sum", "mean", "min", "max"};
    char detail[96] = "", root[32] = "";
    if (call->root >= 0) snprintf(root, sizeof root, ", root %d", call->root);
    if (call->kind != CALL_JOIN && call->kind != CALL_BARRIER && call->kind != CALL_ALLOCATE)
        snprintf(detail, sizeof detail, " of %llu %s%s%s%s", (unsigned long long)call->count,
                 elements[call->element], has_reduction(call->kind) ? ", " : "",
                 has_reduction(call->kind) ? reductions[call->reduction] : "", root);
    else if (call->kind != CALL_BARRIER)
        snprintf(detail, sizeof detail, " of %llu bytes", (unsigned long long)call->count);
    snprintf(text, size, "%s%s", yoke_call_name(call->kind), detail);
}

yoke_status yoke_call_compare(const yoke_call *first, const yoke_call *other, int rank) {
    if (first->kind == other->kind && first->count == other->count && first->root == other->root &&
        first->element == other->element && first->reduction == other->reduction)
        return YOKE_OK;
    char left[160], right[160];
    describe(first, left, sizeof left);
    describe(other, right, sizeof right);
    return FAIL(YOKE_ERROR_ARGUMENT, "rank 0 called %s; rank %d called %s", left, rank, right);
}

/* Private memory: each allocation begins with a cache line that holds the list's link. */

enum { LINE = 64 };

struct yoke_private_memory {
    yoke_private_memory *next;
};

yoke_status yoke_private_memory_add(yoke_private_memory **list, size_t bytes, void **memory) {
    *memory = NULL;
    if (bytes > SIZE_MAX / 2) return FAIL_MEMORY(bytes, "a group's memory");
    size_t whole = LINE + (bytes + LINE - 1) / LINE * LINE;
    yoke_private_memory *added = yoke_aligned_alloc(LINE, whole);
    if (added == NULL) return FAIL_MEMORY(bytes, "a group's memory");
    memset(added, 0, whole);
    added->next = *list;
    *list = added;
    *memory = (char *)added + LINE;
    return YOKE_OK;
}

void yoke_private_memory_free(yoke_private_memory *list) {
    while (list != NULL) {
        yoke_private_memory *next = list->next;
        yoke_free(list);
        list = next;
    }
}
