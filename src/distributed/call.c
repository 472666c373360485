/* Calls of ranks beside each other. */
#include "distributed/call.h"

#include <stdio.h>

const char *yoke_call_name(yoke_call_kind kind) {
    static const char *const names[] = {
        [CALL_JOIN] = "joining",          [CALL_BARRIER] = "barrier",
        [CALL_BROADCAST] = "broadcast",   [CALL_REDUCE] = "reduce",
        [CALL_ALL_REDUCE] = "all_reduce", [CALL_GATHER] = "gather",
        [CALL_ALL_GATHER] = "all_gather", [CALL_REDUCE_SCATTER] = "reduce_scatter",
        [CALL_SCATTER] = "scatter",       [CALL_ALLOCATE] = "allocate",
        [CALL_START] = "start",
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
           kind == CALL_START;
}

static bool has_element(yoke_call_kind kind) {
    return kind != CALL_JOIN && kind != CALL_BARRIER && kind != CALL_ALLOCATE;
}

/* "reduce of 100 float32, sum, root 2" */
static void describe(const yoke_call *call, char *text, size_t size) {
    static const char *const elements[] = {"float32", "bfloat16", "int64"};
    static const char *const reductions[] = {"sum", "mean", "min", "max"};
    char detail[96] = "", root[32] = "";
    if (call->root >= 0) snprintf(root, sizeof root, ", root %d", call->root);
    if (has_element(call->kind))
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
