/* SPDX-License-Identifier: Apache-2.0 */
/* Collectives over MPI. Before any data move the ranks compare their calls, because MPI itself
 * would mix up, truncate or hang where they differ. bfloat16 is summed as float32; a mean is a sum,
 * then a division. */
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "distributed/mpi/mpi_group.h"
#include "distributed/shared_memory/reduce_kernels.h"

yoke_status yoke_mpi_check_code(const mpi_group *mpi, int code) {
    char text[256];
    if (code == 0) return YOKE_OK;
    mpi->calls->explain(code, text, sizeof text);
    return FAIL(YOKE_ERROR_SYSTEM, "rank %d: %s over MPI: %s", mpi->group.rank,
                yoke_call_name(mpi->watchdog.kind), text);
}

yoke_status yoke_mpi_wait(mpi_group *mpi, yoke_mpi_request *request) {
    for (;;) {
        int over = 0;
        TRY_MPI(mpi, test(request, &over));
        if (over) return YOKE_OK;
        TRY(yoke_watchdog_wait(&mpi->watchdog));
    }
}

static void pack_call(const yoke_call *call, int64_t *words) {
    words[0] = call->kind;
    words[1] = call->element;
    words[2] = call->reduction;
    words[3] = call->root;
    words[4] = (int64_t)call->count;
}

static yoke_call unpack_call(const int64_t *words) {
    return (yoke_call){.kind = (yoke_call_kind)words[0],
                       .element = (yoke_element)words[1],
                       .reduction = (yoke_reduction)words[2],
                       .root = (int)words[3],
                       .count = (uint64_t)words[4]};
}

static yoke_status compare_calls(const mpi_group *mpi, const int64_t *all) {
    const yoke_call first = unpack_call(all);
    for (int rank = 1; rank < mpi->group.world; rank++) {
        const yoke_call other = unpack_call(all + (size_t)rank * CALL_WORDS);
        TRY(yoke_call_compare(&first, &other, rank));
    }
    return YOKE_OK;
}

/* MPI's counts are int; where each rank has a part, the parts of all ranks together. */
static yoke_status check_count(const mpi_group *mpi, const yoke_call *call) {
    bool whole = call->kind == CALL_BROADCAST || call->kind == CALL_REDUCE ||
                 call->kind == CALL_ALL_REDUCE || call->kind == CALL_ALL_REDUCE_ASYNC;
    uint64_t limit = INT_MAX / (whole ? 1u : (unsigned)mpi->group.world);
    if (call->count <= limit) return YOKE_OK;
    return FAIL(YOKE_ERROR_ARGUMENT, "count is %llu: over MPI %s moves at most %llu elements",
                (unsigned long long)call->count, yoke_call_name(call->kind),
                (unsigned long long)limit);
}

/* Asynchronous all-reduces: they compare and move in the order of the calls, and MPI makes progress
 * whenever this process calls it. */

static mpi_pending *at(mpi_group *mpi, int index) {
    return &mpi->pending[(mpi->first + index) % PENDING_LIMIT];
}

static yoke_status post_data(mpi_group *mpi, mpi_pending *one, yoke_mpi_collective collective,
                             yoke_mpi_transfer transfer) {
    transfer.collective = collective;
    transfer.channel = YOKE_MPI_DATA;
    TRY_MPI(mpi, post(mpi->world, &transfer, &one->request));
    return YOKE_OK;
}

/* Floats of a rank's slice; the last ones are short or empty, and padded. */
static size_t slice_of(const mpi_group *mpi, const mpi_pending *one) {
    size_t world = (size_t)mpi->group.world;
    return ((size_t)one->call.count + world - 1) / world;
}

static yoke_status reserve_slices(mpi_group *mpi, size_t count) {
    if (count <= mpi->slices_count) return YOKE_OK;
    yoke_free(mpi->slices);
    yoke_free(mpi->collected);
    mpi->slices = yoke_calloc(count, sizeof *mpi->slices);
    mpi->collected = yoke_calloc(count, sizeof *mpi->collected);
    mpi->slices_count = mpi->slices != NULL && mpi->collected != NULL ? count : 0;
    return mpi->slices_count > 0 ? YOKE_OK
                                 : FAIL_MEMORY(2 * count * sizeof(float), "slices of gradients");
}

/* Every rank sends slice k to rank k. */
static yoke_status collect_slices(mpi_group *mpi, mpi_pending *one) {
    size_t slice = slice_of(mpi, one);
    TRY(reserve_slices(mpi, slice * (size_t)mpi->group.world));
    memcpy(mpi->slices, one->buffer, (size_t)one->call.count * sizeof(float));
    one->progress = SUM_COLLECTS;
    return post_data(
        mpi, one, YOKE_MPI_ALL_TO_ALL,
        (yoke_mpi_transfer){.from = mpi->slices, .to = mpi->collected, .count = slice});
}

/* Adds all ranks' parts of the own slice in the order of base/tree.h, and sends the sum to all. */
static yoke_status return_slices(mpi_group *mpi, mpi_pending *one) {
    size_t slice = slice_of(mpi, one);
    yoke_fold_set fold = {
        .element = YOKE_ELEMENT_FLOAT32, .ranks = mpi->group.world, .parts = mpi->group.world};
    for (int rank = 0; rank < mpi->group.world; rank++)
        fold.from[rank] = (char *)(mpi->collected + (size_t)rank * slice);
    yoke_fold(mpi->collected, &fold, 0, slice);
    one->progress = SUM_RETURNS;
    return post_data(
        mpi, one, YOKE_MPI_ALL_GATHER,
        (yoke_mpi_transfer){.from = mpi->collected, .to = mpi->slices, .count = slice});
}

/* Takes the next step of a sum whose last one is over. */
static yoke_status advance_one(mpi_group *mpi, mpi_pending *one) {
    switch (one->progress) {
    case SUM_COMPARES: /* every rank's call is here */
        TRY(compare_calls(mpi, one->all));
        TRY(check_count(mpi, &one->call));
        if (mpi->group.fixed_order && one->call.count > 0) return collect_slices(mpi, one);
        one->progress = SUM_ADDS;
        return post_data(mpi, one, YOKE_MPI_ALL_REDUCE,
                         (yoke_mpi_transfer){.to = one->buffer, .count = one->call.count});
    case SUM_COLLECTS:
        return return_slices(mpi, one);
    case SUM_RETURNS:
        memcpy(one->buffer, mpi->slices, (size_t)one->call.count * sizeof(float));
        break;
    case SUM_ADDS:
    case SUM_IS_OVER:
        break;
    }
    one->progress = SUM_IS_OVER;
    return YOKE_OK;
}

/* Sums begin to move in order. Those in a fixed order share their memory: one moves at a time. */
static yoke_status advance(mpi_group *mpi) {
    bool in_order = true; /* every earlier sum moves, or is over */
    for (int i = 0; i < mpi->pending_count && in_order; i++) {
        mpi_pending *one = at(mpi, i);
        int over = 0;
        TRY_MPI(mpi, test(&one->request, &over));
        if (over != 0) TRY(advance_one(mpi, one));
        in_order =
            mpi->group.fixed_order ? one->progress == SUM_IS_OVER : one->progress != SUM_COMPARES;
    }
    return YOKE_OK;
}

static void retire(mpi_group *mpi) {
    while (mpi->pending_count > 0 && at(mpi, 0)->progress == SUM_IS_OVER) {
        mpi->first = (mpi->first + 1) % PENDING_LIMIT;
        mpi->pending_count--;
    }
}

/* Waits until the oldest is complete. */
static yoke_status wait_oldest(mpi_group *mpi) {
    int64_t operation = at(mpi, 0)->operation;
    yoke_watchdog_await(&mpi->watchdog, CALL_ALL_REDUCE_ASYNC, operation);
    for (;;) {
        TRY(advance(mpi));
        retire(mpi);
        if (mpi->pending_count == 0 || at(mpi, 0)->operation != operation) return YOKE_OK;
        TRY(yoke_watchdog_wait(&mpi->watchdog));
    }
}

static yoke_status advance_all(mpi_group *mpi, bool wait) {
    while (wait && mpi->pending_count > 0)
        TRY(wait_oldest(mpi));
    TRY(advance(mpi));
    retire(mpi);
    return YOKE_OK;
}

yoke_status yoke_mpi_progress(yoke_process_group *group, bool wait) {
    mpi_group *mpi = mpi_of(group);
    yoke_status status = advance_all(mpi, wait);
    return status == YOKE_OK ? YOKE_OK : yoke_watchdog_fail(&mpi->watchdog, status);
}

static yoke_status announce(mpi_group *mpi, mpi_pending *one) {
    const yoke_mpi_transfer transfer = {.collective = YOKE_MPI_ALL_GATHER,
                                        .channel = YOKE_MPI_AGREEMENT,
                                        .from = one->own,
                                        .to = one->all,
                                        .count = CALL_WORDS,
                                        .element = YOKE_ELEMENT_INT64};
    pack_call(&one->call, one->own);
    yoke_watchdog_begin(&mpi->watchdog, CALL_ALL_REDUCE_ASYNC);
    one->operation = mpi->watchdog.operation;
    TRY_MPI(mpi, post(mpi->world, &transfer, &one->request));
    mpi->pending_count++;
    return advance_all(mpi, false);
}

static yoke_status all_reduce_async(yoke_process_group *group, float *buffer, size_t count,
                                    const yoke_rank_blocks *blocks) {
    (void)blocks;
    mpi_group *mpi = mpi_of(group);
    if (mpi->pending_count == PENDING_LIMIT) TRY(yoke_mpi_progress(group, true));
    mpi_pending *one = at(mpi, mpi->pending_count);
    one->buffer = buffer;
    one->call = (yoke_call){.kind = CALL_ALL_REDUCE_ASYNC, .root = -1, .count = count};
    one->progress = SUM_COMPARES;
    yoke_status status = announce(mpi, one);
    return status == YOKE_OK ? YOKE_OK : yoke_watchdog_fail(&mpi->watchdog, status);
}

/* Blocking collectives. */

/* Begins a blocking call: completes the asynchronous ones, then compares. ARGUMENT on every rank if
 * the calls differ. */
static yoke_status agree(mpi_group *mpi, const yoke_call *call) {
    yoke_mpi_request request;
    const yoke_mpi_transfer transfer = {.collective = YOKE_MPI_ALL_GATHER,
                                        .channel = YOKE_MPI_AGREEMENT,
                                        .to = mpi->headers,
                                        .count = CALL_WORDS,
                                        .element = YOKE_ELEMENT_INT64};
    TRY(yoke_mpi_progress(&mpi->group, true));
    pack_call(call, mpi->headers + mpi->group.rank * CALL_WORDS);
    yoke_watchdog_begin(&mpi->watchdog, call->kind);
    TRY_MPI(mpi, post(mpi->world, &transfer, &request));
    TRY(yoke_mpi_wait(mpi, &request));
    yoke_status status = compare_calls(mpi, mpi->headers);
    mpi->disagreed = status != YOKE_OK;
    return status;
}

static yoke_status end(mpi_group *mpi, yoke_status status) {
    return status == YOKE_OK ? YOKE_OK : yoke_watchdog_fail(&mpi->watchdog, status);
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

static yoke_status barrier(yoke_process_group *group) {
    const yoke_call call = {.kind = CALL_BARRIER, .root = -1};
    return end(mpi_of(group), agree(mpi_of(group), &call));
}

static yoke_status allocate(yoke_process_group *group, size_t bytes, void **memory) {
    mpi_group *mpi = mpi_of(group);
    const yoke_call call = {.kind = CALL_ALLOCATE, .root = -1, .count = bytes};
    yoke_status status = agree(mpi, &call);
    if (status == YOKE_OK) status = yoke_private_memory_add(&mpi->memory, bytes, memory);
    return end(mpi, status);
}

/* A collective without arithmetic, from agreement to end. */
static yoke_status run(mpi_group *mpi, const yoke_call *call, const yoke_mpi_transfer *transfer) {
    yoke_status status = agree(mpi, call);
    if (status == YOKE_OK) status = check_count(mpi, call);
    if (status == YOKE_OK) status = move(mpi, transfer);
    return end(mpi, status);
}

static yoke_status broadcast(yoke_process_group *group, void *buffer,
                             const yoke_reduce_call *call) {
    const yoke_call what = yoke_call_of(CALL_BROADCAST, call);
    const yoke_mpi_transfer transfer = transfer_of(YOKE_MPI_BROADCAST, buffer, NULL, call);
    return run(mpi_of(group), &what, &transfer);
}

static yoke_status all_gather(yoke_process_group *group, void *to, const void *from,
                              const yoke_reduce_call *call) {
    bool all = call->root < 0;
    const yoke_call what = yoke_call_of(all ? CALL_ALL_GATHER : CALL_GATHER, call);
    const yoke_mpi_transfer transfer =
        transfer_of(all ? YOKE_MPI_ALL_GATHER : YOKE_MPI_GATHER, to, from, call);
    return run(mpi_of(group), &what, &transfer);
}

static yoke_status scatter(yoke_process_group *group, void *to, const void *from,
                           const yoke_reduce_call *call) {
    const yoke_call what = yoke_call_of(CALL_SCATTER, call);
    const yoke_mpi_transfer transfer = transfer_of(YOKE_MPI_SCATTER, to, from, call);
    return run(mpi_of(group), &what, &transfer);
}

/* Reduces `elements` values of each rank into given->to, on the ranks that receive. bfloat16 goes
 * through mpi->wide: MPI reduces it as float32. */
static yoke_status move_reduced(mpi_group *mpi, const yoke_mpi_transfer *given, size_t elements,
                                const yoke_reduce_call *call) {
    yoke_mpi_transfer wide = *given;
    bool bfloat16 = call->element == YOKE_ELEMENT_BFLOAT16;
    bool receives = call->root < 0 || call->root == mpi->group.rank;
    if (given->count == 0) return YOKE_OK;
    if (bfloat16) {
        /* Widen bfloat16 into mpi->wide, with room behind it for the sums. */
        const uint16_t *values = given->from;
        size_t room = given->count;
        if (elements + room > mpi->wide_count) {
            yoke_free(mpi->wide);
            mpi->wide_count = 0;
            mpi->wide = yoke_malloc((elements + room) * sizeof *mpi->wide);
            if (mpi->wide == NULL)
                return FAIL_MEMORY((elements + room) * sizeof *mpi->wide, "bfloat16 as float32");
            mpi->wide_count = elements + room;
        }
        for (size_t i = 0; i < elements; i++)
            mpi->wide[i] = yoke_bfloat16_widen(values[i]);
        wide.from = mpi->wide;
        wide.to = mpi->wide + elements;
        wide.element = YOKE_ELEMENT_FLOAT32;
    } else if (receives && given->from == given->to) {
        wide.from = NULL; /* in place */
    }
    if (!receives) wide.to = NULL;
    TRY(move(mpi, &wide));
    if (!receives) return YOKE_OK;
    if (call->reduction == YOKE_MEAN)
        yoke_fold_divide(wide.to, call->element, wide.count, mpi->group.world);
    for (size_t i = 0; bfloat16 && i < wide.count; i++)
        ((uint16_t *)given->to)[i] = yoke_bfloat16_round(((const float *)wide.to)[i]);
    return YOKE_OK;
}

static yoke_status reduce(yoke_process_group *group, void *buffer, const yoke_reduce_call *call) {
    mpi_group *mpi = mpi_of(group);
    bool all = call->root < 0;
    const yoke_call what = yoke_call_of(all ? CALL_ALL_REDUCE : CALL_REDUCE, call);
    const yoke_mpi_transfer transfer =
        transfer_of(all ? YOKE_MPI_ALL_REDUCE : YOKE_MPI_REDUCE, buffer, buffer, call);
    yoke_status status = agree(mpi, &what);
    if (status == YOKE_OK) status = check_count(mpi, &what);
    if (status == YOKE_OK) status = move_reduced(mpi, &transfer, call->count, call);
    return end(mpi, status);
}

static yoke_status reduce_scatter(yoke_process_group *group, void *to, const void *from,
                                  const yoke_reduce_call *call) {
    mpi_group *mpi = mpi_of(group);
    const yoke_call what = yoke_call_of(CALL_REDUCE_SCATTER, call);
    const yoke_mpi_transfer transfer = transfer_of(YOKE_MPI_REDUCE_SCATTER, to, from, call);
    size_t elements = call->count * (size_t)group->world;
    yoke_status status = agree(mpi, &what);
    if (status == YOKE_OK) status = check_count(mpi, &what);
    if (status == YOKE_OK) status = move_reduced(mpi, &transfer, elements, call);
    return end(mpi, status);
}

void yoke_mpi_set_collectives(yoke_process_group *group) {
    group->barrier = barrier;
    group->broadcast = broadcast;
    group->reduce = reduce;
    group->all_gather = all_gather;
    group->reduce_scatter = reduce_scatter;
    group->scatter = scatter;
    group->allocate = allocate;
    group->all_reduce_async = all_reduce_async;
    group->progress = yoke_mpi_progress;
}
