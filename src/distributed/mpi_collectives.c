/* MPI's collectives for a group's. bfloat16 is summed as float32; a minimum and a maximum are our
 * own, which keep a NaN; a mean is a sum, divided. */
#include "distributed/call.h"

#ifdef YOKE_HAS_MPI

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "distributed/mpi_group.h"
#include "distributed/reduce_kernels.h"

/* MPI counts in int; where ranks have parts, all of them together. */
yoke_status yoke_mpi_check_count(const mpi_group *mpi, const yoke_call *call) {
    bool whole = call->kind == CALL_BROADCAST || call->kind == CALL_REDUCE ||
                 call->kind == CALL_ALL_REDUCE || call->kind == CALL_START;
    uint64_t limit = INT_MAX / (whole ? 1u : (unsigned)mpi->group.world);
    if (call->count <= limit) return YOKE_OK;
    return FAIL(YOKE_ERROR_ARGUMENT, "count is %llu: over MPI this %s moves at most %llu elements",
                (unsigned long long)call->count, yoke_call_name(call->kind),
                (unsigned long long)limit);
}

static yoke_status begin(mpi_group *mpi, yoke_call_kind kind, const yoke_reduce_call *call) {
    const yoke_call what = yoke_call_of(kind, call);
    TRY(yoke_mpi_agree(mpi, &what));
    return yoke_mpi_check_count(mpi, &what);
}

static yoke_status end(mpi_group *mpi, yoke_status status) {
    return status == YOKE_OK ? YOKE_OK : yoke_watch_break(&mpi->watch, status);
}

static MPI_Datatype type_of(yoke_element element) {
    return element == YOKE_ELEMENT_INT64     ? MPI_INT64_T
           : element == YOKE_ELEMENT_FLOAT32 ? MPI_FLOAT
                                             : MPI_UINT16_T;
}

yoke_status yoke_mpi_barrier(yoke_process_group *group) {
    const yoke_call call = {.kind = CALL_BARRIER, .root = -1};
    return end(mpi_of(group), yoke_mpi_agree(mpi_of(group), &call));
}

static yoke_status broadcast(mpi_group *mpi, void *buffer, const yoke_reduce_call *call) {
    MPI_Request request;
    TRY(begin(mpi, CALL_BROADCAST, call));
    if (call->count == 0) return YOKE_OK;
    TRY_MPI(mpi, MPI_Ibcast(buffer, (int)call->count, type_of(call->element), call->root, mpi->data,
                            &request));
    return yoke_mpi_wait(mpi, &request);
}

yoke_status yoke_mpi_broadcast(yoke_process_group *group, void *buffer,
                               const yoke_reduce_call *call) {
    return end(mpi_of(group), broadcast(mpi_of(group), buffer, call));
}

static yoke_status gather(mpi_group *mpi, void *to, const void *from,
                          const yoke_reduce_call *call) {
    MPI_Request request;
    MPI_Datatype type = type_of(call->element);
    int count = (int)call->count;
    TRY(begin(mpi, call->root < 0 ? CALL_ALL_GATHER : CALL_GATHER, call));
    if (count == 0) return YOKE_OK;
    if (call->root < 0)
        TRY_MPI(mpi, MPI_Iallgather(from, count, type, to, count, type, mpi->data, &request));
    else
        TRY_MPI(mpi,
                MPI_Igather(from, count, type, to, count, type, call->root, mpi->data, &request));
    return yoke_mpi_wait(mpi, &request);
}

yoke_status yoke_mpi_all_gather(yoke_process_group *group, void *to, const void *from,
                                const yoke_reduce_call *call) {
    return end(mpi_of(group), gather(mpi_of(group), to, from, call));
}

static yoke_status scatter(mpi_group *mpi, void *to, const void *from,
                           const yoke_reduce_call *call) {
    MPI_Request request;
    MPI_Datatype type = type_of(call->element);
    int count = (int)call->count;
    TRY(begin(mpi, CALL_SCATTER, call));
    if (count == 0) return YOKE_OK;
    TRY_MPI(mpi, MPI_Iscatter(from, count, type, to, count, type, call->root, mpi->data, &request));
    return yoke_mpi_wait(mpi, &request);
}

yoke_status yoke_mpi_scatter(yoke_process_group *group, void *to, const void *from,
                             const yoke_reduce_call *call) {
    return end(mpi_of(group), scatter(mpi_of(group), to, from, call));
}

/* Reductions. */

/* Numbers as they are summed: the caller's, or bfloat16 made wide. */
typedef struct sum_operands {
    const void *from;
    void *to;
    size_t from_count, to_count;
    int root; /* -1: all */
    MPI_Datatype type;
    MPI_Op operation;
} sum_operands;

static MPI_Op operation_of(const mpi_group *mpi, const yoke_reduce_call *call) {
    if (call->reduction == YOKE_SUM || call->reduction == YOKE_MEAN) return MPI_SUM;
    return mpi->extreme[call->element == YOKE_ELEMENT_INT64][call->reduction == YOKE_MAX];
}

/* Room for what goes in and, behind it, what comes out. */
static yoke_status widen(mpi_group *mpi, const sum_operands *given, sum_operands *wide) {
    size_t count = given->from_count + given->to_count;
    const uint16_t *values = given->from;
    if (count > mpi->wide_count) {
        free(mpi->wide);
        mpi->wide_count = 0;
        mpi->wide = malloc(count * sizeof *mpi->wide);
        if (mpi->wide == NULL) return FAIL_MEMORY(count * sizeof *mpi->wide, "bfloat16 on its way");
        mpi->wide_count = count;
    }
    for (size_t i = 0; i < given->from_count; i++)
        mpi->wide[i] = yoke_bfloat16_widen(values[i]);
    *wide = *given;
    wide->from = mpi->wide;
    wide->to = mpi->wide + given->from_count;
    return YOKE_OK;
}

static void narrow(const sum_operands *wide, uint16_t *to) {
    const float *values = wide->to;
    for (size_t i = 0; i < wide->to_count; i++)
        to[i] = yoke_bfloat16_round(values[i]);
}

static yoke_status post(mpi_group *mpi, const sum_operands *sum, MPI_Request *request) {
    bool takes = sum->root < 0 || sum->root == mpi->group.rank;
    const void *from = sum->from == sum->to && takes ? MPI_IN_PLACE : sum->from;
    if (sum->from_count != sum->to_count)
        TRY_MPI(mpi, MPI_Ireduce_scatter_block(from, sum->to, (int)sum->to_count, sum->type,
                                               sum->operation, mpi->data, request));
    else if (sum->root < 0)
        TRY_MPI(mpi, MPI_Iallreduce(from, sum->to, (int)sum->to_count, sum->type, sum->operation,
                                    mpi->data, request));
    else
        TRY_MPI(mpi, MPI_Ireduce(from, takes ? sum->to : NULL, (int)sum->to_count, sum->type,
                                 sum->operation, sum->root, mpi->data, request));
    return YOKE_OK;
}

static yoke_status sum_up(mpi_group *mpi, const sum_operands *given, const yoke_reduce_call *call) {
    MPI_Request request;
    sum_operands sum = *given;
    bool small = call->element == YOKE_ELEMENT_BFLOAT16;
    bool takes = call->root < 0 || call->root == mpi->group.rank;
    sum.type = small ? MPI_FLOAT : type_of(call->element);
    sum.operation = operation_of(mpi, call);
    if (small) TRY(widen(mpi, &sum, &sum));
    TRY(post(mpi, &sum, &request));
    TRY(yoke_mpi_wait(mpi, &request));
    if (!takes) return YOKE_OK;
    if (call->reduction == YOKE_MEAN)
        yoke_fold_divide(sum.to, call->element, sum.to_count, mpi->group.world);
    if (small) narrow(&sum, given->to);
    return YOKE_OK;
}

static yoke_status reduce(mpi_group *mpi, void *buffer, const yoke_reduce_call *call) {
    TRY(begin(mpi, call->root < 0 ? CALL_ALL_REDUCE : CALL_REDUCE, call));
    const sum_operands sum = {.from = buffer,
                              .to = buffer,
                              .from_count = call->count,
                              .to_count = call->count,
                              .root = call->root};
    return call->count > 0 ? sum_up(mpi, &sum, call) : YOKE_OK;
}

yoke_status yoke_mpi_reduce(yoke_process_group *group, void *buffer, const yoke_reduce_call *call) {
    return end(mpi_of(group), reduce(mpi_of(group), buffer, call));
}

static yoke_status reduce_scatter(mpi_group *mpi, void *to, const void *from,
                                  const yoke_reduce_call *call) {
    TRY(begin(mpi, CALL_REDUCE_SCATTER, call));
    const sum_operands sum = {.from = from,
                              .to = to,
                              .from_count = call->count * (size_t)mpi->group.world,
                              .to_count = call->count,
                              .root = -1};
    return call->count > 0 ? sum_up(mpi, &sum, call) : YOKE_OK;
}

yoke_status yoke_mpi_reduce_scatter(yoke_process_group *group, void *to, const void *from,
                                    const yoke_reduce_call *call) {
    return end(mpi_of(group), reduce_scatter(mpi_of(group), to, from, call));
}

static yoke_status allocate(mpi_group *mpi, size_t bytes, void **memory) {
    const yoke_call call = {.kind = CALL_ALLOCATE, .root = -1, .count = bytes};
    TRY(yoke_mpi_agree(mpi, &call));
    return yoke_plain_memory_add(&mpi->memory, bytes, memory);
}

yoke_status yoke_mpi_allocate(yoke_process_group *group, size_t bytes, void **memory) {
    return end(mpi_of(group), allocate(mpi_of(group), bytes, memory));
}

#endif
