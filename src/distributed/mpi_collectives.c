/* MPI's collectives for a group's. bfloat16 is summed as float32; a mean is a sum, divided. */
#include <limits.h>
#include <stdlib.h>

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

static yoke_mpi_transfer transfer_of(yoke_mpi_collective collective, void *to, const void *from,
                                     const yoke_reduce_call *call) {
    bool mean = call->reduction == YOKE_MEAN;
    return (yoke_mpi_transfer){.collective = collective,
                               .channel = YOKE_MPI_DATA,
                               .from = from,
                               .to = to,
                               .count = call->count,
                               .element = call->element,
                               .reduction = mean ? YOKE_SUM : call->reduction,
                               .root = call->root};
}

static yoke_status move(mpi_group *mpi, const yoke_mpi_transfer *transfer) {
    yoke_mpi_request request;
    TRY_MPI(mpi, post(mpi->world, transfer, &request));
    return yoke_mpi_wait(mpi, &request);
}

yoke_status yoke_mpi_barrier(yoke_process_group *group) {
    const yoke_call call = {.kind = CALL_BARRIER, .root = -1};
    return end(mpi_of(group), yoke_mpi_agree(mpi_of(group), &call));
}

static yoke_status broadcast(mpi_group *mpi, void *buffer, const yoke_reduce_call *call) {
    const yoke_mpi_transfer transfer = transfer_of(YOKE_MPI_BROADCAST, buffer, NULL, call);
    TRY(begin(mpi, CALL_BROADCAST, call));
    return move(mpi, &transfer);
}

yoke_status yoke_mpi_broadcast(yoke_process_group *group, void *buffer,
                               const yoke_reduce_call *call) {
    return end(mpi_of(group), broadcast(mpi_of(group), buffer, call));
}

static yoke_status gather(mpi_group *mpi, void *to, const void *from,
                          const yoke_reduce_call *call) {
    bool all = call->root < 0;
    const yoke_mpi_transfer transfer =
        transfer_of(all ? YOKE_MPI_ALL_GATHER : YOKE_MPI_GATHER, to, from, call);
    TRY(begin(mpi, all ? CALL_ALL_GATHER : CALL_GATHER, call));
    return move(mpi, &transfer);
}

yoke_status yoke_mpi_all_gather(yoke_process_group *group, void *to, const void *from,
                                const yoke_reduce_call *call) {
    return end(mpi_of(group), gather(mpi_of(group), to, from, call));
}

static yoke_status scatter(mpi_group *mpi, void *to, const void *from,
                           const yoke_reduce_call *call) {
    const yoke_mpi_transfer transfer = transfer_of(YOKE_MPI_SCATTER, to, from, call);
    TRY(begin(mpi, CALL_SCATTER, call));
    return move(mpi, &transfer);
}

yoke_status yoke_mpi_scatter(yoke_process_group *group, void *to, const void *from,
                             const yoke_reduce_call *call) {
    return end(mpi_of(group), scatter(mpi_of(group), to, from, call));
}

/* Reductions. */

/* bfloat16 made wide, with room behind it for what comes out. */
static yoke_status widen(mpi_group *mpi, const uint16_t *values, size_t count, size_t room) {
    if (count + room > mpi->wide_count) {
        free(mpi->wide);
        mpi->wide_count = 0;
        mpi->wide = malloc((count + room) * sizeof *mpi->wide);
        if (mpi->wide == NULL)
            return FAIL_MEMORY((count + room) * sizeof *mpi->wide, "bfloat16 on its way");
        mpi->wide_count = count + room;
    }
    for (size_t i = 0; i < count; i++)
        mpi->wide[i] = yoke_bfloat16_widen(values[i]);
    return YOKE_OK;
}

/* `given` with `count` elements of its own; those of bfloat16 travel wide. */
static yoke_status sum_up(mpi_group *mpi, const yoke_mpi_transfer *given, size_t count,
                          const yoke_reduce_call *call) {
    yoke_mpi_transfer sum = *given;
    bool small = call->element == YOKE_ELEMENT_BFLOAT16;
    bool takes = call->root < 0 || call->root == mpi->group.rank;
    if (given->count == 0) return YOKE_OK;
    if (small) {
        TRY(widen(mpi, given->from, count, given->count));
        sum.from = mpi->wide;
        sum.to = mpi->wide + count;
        sum.element = YOKE_ELEMENT_FLOAT32;
    } else if (given->from == given->to && takes) {
        sum.from = NULL;
    }
    if (!takes) sum.to = NULL;
    TRY(move(mpi, &sum));
    if (!takes) return YOKE_OK;
    if (call->reduction == YOKE_MEAN)
        yoke_fold_divide(sum.to, call->element, sum.count, mpi->group.world);
    for (size_t i = 0; small && i < sum.count; i++)
        ((uint16_t *)given->to)[i] = yoke_bfloat16_round(((const float *)sum.to)[i]);
    return YOKE_OK;
}

static yoke_status reduce(mpi_group *mpi, void *buffer, const yoke_reduce_call *call) {
    bool all = call->root < 0;
    const yoke_mpi_transfer transfer =
        transfer_of(all ? YOKE_MPI_ALL_REDUCE : YOKE_MPI_REDUCE, buffer, buffer, call);
    TRY(begin(mpi, all ? CALL_ALL_REDUCE : CALL_REDUCE, call));
    return sum_up(mpi, &transfer, call->count, call);
}

yoke_status yoke_mpi_reduce(yoke_process_group *group, void *buffer, const yoke_reduce_call *call) {
    return end(mpi_of(group), reduce(mpi_of(group), buffer, call));
}

static yoke_status reduce_scatter(mpi_group *mpi, void *to, const void *from,
                                  const yoke_reduce_call *call) {
    const yoke_mpi_transfer transfer = transfer_of(YOKE_MPI_REDUCE_SCATTER, to, from, call);
    TRY(begin(mpi, CALL_REDUCE_SCATTER, call));
    return sum_up(mpi, &transfer, call->count * (size_t)mpi->group.world, call);
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
