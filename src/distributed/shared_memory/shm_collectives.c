/* SPDX-License-Identifier: Apache-2.0 */
/* Collectives over shared memory. Every rank packs what the others need into one of its two slots,
 * waits until all have packed, and reads what it needs from the others' slots; a buffer larger than
 * a slot goes chunk by chunk. Large buffers in shared memory need neither slots nor chunks: the
 * others read them in place.
 *
 * Two slots are enough: a rank that packs a chunk has waited for all ranks at the chunk before, so
 * all have read the chunk before that one, and its slot is free. */
#include <string.h>

#include "distributed/shared_memory/shared_memory.h"

enum {
    SMALL_BYTES = 2048, /* of a buffer: reading in place would cost a second wait */
    REDUNDANT_BYTES =
        32768,         /* of all ranks' chunks: below, each rank reduces the whole chunk itself */
    FOLD_BYTES = 8192, /* the part of a slice that stays in the first-level cache while it is
                          copied */
};

typedef struct shm_transfer shm_transfer;

/* The range of elements under way, and where each rank's data for it are. A source may hold one
 * piece per rank, piece_bytes apart. */
typedef struct shm_view {
    size_t at, count;
    size_t piece_bytes;
    yoke_fold_set fold;
    char *own_slot; /* NULL: the sources are the ranks' buffers, read in place */
} shm_view;

typedef yoke_status (*shm_take)(const shm_transfer *transfer, const shm_view *view);

struct shm_transfer {
    shm_group *shm;
    shm_call call;
    void *to;
    const void *from;
    size_t element_bytes;
    int pieces; /* in a source: 1 or world */
    int source; /* the only rank that has data; -1: all have */
    shm_take take;
};

static bool is_source(const shm_transfer *transfer, int rank) {
    return transfer->source < 0 || transfer->source == rank;
}

static bool is_target(const shm_transfer *transfer) {
    return transfer->call.what.root < 0 || transfer->call.what.root == transfer->shm->group.rank;
}

static char *slot_of(const shm_group *shm, int rank) {
    return shm_part(&shm->first, rank) + (shm->staged % 2) * shm->slot_bytes;
}

static void pack(const shm_transfer *transfer, const shm_view *view) {
    if (view->count == 0 || !is_source(transfer, transfer->shm->group.rank)) return;
    size_t bytes = view->count * transfer->element_bytes;
    size_t apart = transfer->call.what.count * transfer->element_bytes;
    const char *from = (const char *)transfer->from + view->at * transfer->element_bytes;
    for (int piece = 0; piece < transfer->pieces; piece++)
        memcpy(view->own_slot + (size_t)piece * view->piece_bytes, from + (size_t)piece * apart,
               bytes);
}

/* The view of the elements from `at` on that fit into a slot, in whole cache lines. */
static void view_slots(const shm_transfer *transfer, size_t at, shm_view *view) {
    shm_group *shm = transfer->shm;
    size_t lines = shm->slot_bytes / (size_t)transfer->pieces / SHM_LINE;
    size_t fit = lines * SHM_LINE / transfer->element_bytes, left = transfer->call.what.count - at;
    view->at = at;
    view->count = left < fit ? left : fit;
    view->piece_bytes =
        (view->count * transfer->element_bytes + SHM_LINE - 1) / SHM_LINE * SHM_LINE;
    for (int rank = 0; rank < shm->group.world; rank++)
        view->fold.from[rank] = slot_of(shm, rank);
    view->own_slot = slot_of(shm, shm->group.rank);
}

/* The view of whole buffers, in place. */
static void view_buffers(const shm_transfer *transfer, uint32_t operation, shm_view *view) {
    shm_group *shm = transfer->shm;
    view->at = 0;
    view->count = transfer->call.what.count;
    view->piece_bytes = view->count * transfer->element_bytes;
    for (int rank = 0; rank < shm->group.world; rank++) {
        if (is_source(transfer, rank))
            view->fold.from[rank] = shm_data_of(shm, shm_call_of(shm, rank, operation), rank);
    }
    view->own_slot = NULL;
}

static int count_located(const shm_transfer *transfer, uint32_t operation, int *sources) {
    int located = 0;
    *sources = 0;
    for (int rank = 0; rank < transfer->shm->group.world; rank++) {
        if (!is_source(transfer, rank)) continue;
        ++*sources;
        located += shm_call_of(transfer->shm, rank, operation)->segment != 0;
    }
    return located;
}

static yoke_status exchange(shm_transfer *transfer) {
    shm_group *shm = transfer->shm;
    size_t bytes = transfer->call.what.count * transfer->element_bytes * (size_t)transfer->pieces;
    shm_view view;
    view.fold.element = transfer->call.what.element;
    view.fold.reduction = transfer->call.what.reduction;
    view.fold.ranks = view.fold.parts = shm->group.world;
    view.fold.sizes = NULL;
    TRY(shm_progress(&shm->group, true));
    if (bytes > SMALL_BYTES && is_source(transfer, shm->group.rank))
        shm_locate(shm, &transfer->call, transfer->from, bytes);
    bool located = transfer->call.segment != 0;
    view_slots(transfer, 0, &view);
    if (!located) pack(transfer, &view);
    uint32_t operation = shm_announce(shm, &transfer->call);
    TRY(shm_agree(shm, operation));
    if (transfer->call.what.count == 0) return YOKE_OK;
    int sources, readable = count_located(transfer, operation, &sources);
    if (readable == sources) {
        /* Read all sources in place; the step keeps every rank from changing what another still
         * reads. */
        view_buffers(transfer, operation, &view);
        TRY(transfer->take(transfer, &view));
        return shm_step(transfer->shm);
    }
    if (readable != 0) { /* only some in shared memory: all go through slots */
        if (located) pack(transfer, &view);
        TRY(shm_step(shm));
    }
    /* All ranks have packed the first chunk. */
    for (;;) {
        transfer->shm->staged++;
        TRY(transfer->take(transfer, &view));
        if (view.at + view.count == transfer->call.what.count) return YOKE_OK;
        view_slots(transfer, view.at + view.count, &view);
        pack(transfer, &view);
        TRY(shm_step(transfer->shm));
    }
}

static void copy(void *to, const void *from, size_t bytes) {
    if (to != from) memcpy(to, from, bytes);
}

static char *place_of(const shm_transfer *transfer, const shm_view *view) {
    return (char *)transfer->to + view->at * transfer->element_bytes;
}

static yoke_status take_root(const shm_transfer *transfer, const shm_view *view) {
    if (transfer->shm->group.rank == transfer->source) return YOKE_OK;
    copy(place_of(transfer, view), view->fold.from[transfer->source],
         view->count * transfer->element_bytes);
    return YOKE_OK;
}

static yoke_status take_own_piece(const shm_transfer *transfer, const shm_view *view) {
    size_t piece = (size_t)transfer->shm->group.rank * view->piece_bytes;
    copy(place_of(transfer, view), view->fold.from[transfer->source] + piece,
         view->count * transfer->element_bytes);
    return YOKE_OK;
}

static yoke_status take_all(const shm_transfer *transfer, const shm_view *view) {
    if (!is_target(transfer)) return YOKE_OK;
    size_t apart = transfer->call.what.count * transfer->element_bytes;
    for (int rank = 0; rank < view->fold.ranks; rank++)
        copy(place_of(transfer, view) + (size_t)rank * apart, view->fold.from[rank],
             view->count * transfer->element_bytes);
    return YOKE_OK;
}

static yoke_status take_reduced_piece(const shm_transfer *transfer, const shm_view *view) {
    yoke_fold_set fold = view->fold;
    for (int rank = 0; rank < fold.ranks; rank++)
        fold.from[rank] += (size_t)transfer->shm->group.rank * view->piece_bytes;
    yoke_fold(place_of(transfer, view), &fold, 0, view->count);
    return YOKE_OK;
}

size_t shm_slice_begin(const yoke_fold_set *fold, int rank, size_t count) {
    return yoke_line_cut(count, SHM_LINE / yoke_element_bytes(fold->element), fold->ranks, rank);
}

void shm_fold_slice(const yoke_fold_set *fold, int rank, size_t count, char *const *to,
                    int count_to) {
    size_t element_bytes = yoke_element_bytes(fold->element), block = FOLD_BYTES / element_bytes;
    size_t end = shm_slice_begin(fold, rank + 1, count);
    for (size_t at = shm_slice_begin(fold, rank, count); at < end; at += block) {
        size_t elements = end - at < block ? end - at : block;
        yoke_fold(to[0] + at * element_bytes, fold, at, elements);
        for (int i = 1; i < count_to; i++)
            memcpy(to[i] + at * element_bytes, to[0] + at * element_bytes,
                   elements * element_bytes);
    }
}

/* Each rank reduces its slice into its own slot, then collects the other slices. */
static yoke_status collect_slices(const shm_transfer *transfer, const shm_view *view) {
    shm_group *shm = transfer->shm;
    char *own = view->own_slot;
    shm_fold_slice(&view->fold, shm->group.rank, view->count, &own, 1);
    TRY(shm_step(shm));
    if (!is_target(transfer)) return YOKE_OK;
    for (int rank = 0; rank < view->fold.ranks; rank++) {
        size_t begin = shm_slice_begin(&view->fold, rank, view->count) * transfer->element_bytes;
        size_t end = shm_slice_begin(&view->fold, rank + 1, view->count) * transfer->element_bytes;
        copy(place_of(transfer, view) + begin, view->fold.from[rank] + begin, end - begin);
    }
    return YOKE_OK;
}

static yoke_status take_reduced(const shm_transfer *transfer, const shm_view *view) {
    shm_group *shm = transfer->shm;
    int ranks = view->fold.ranks;
    if (view->own_slot == NULL) {
        char *const *to = view->fold.from;
        bool rooted = transfer->call.what.root >= 0;
        shm_fold_slice(&view->fold, shm->group.rank, view->count,
                       rooted ? to + transfer->call.what.root : to, rooted ? 1 : ranks);
        return YOKE_OK;
    }
    size_t bytes = view->count * transfer->element_bytes * (size_t)ranks;
    if (ranks > 2 && bytes > REDUNDANT_BYTES) return collect_slices(transfer, view);
    if (is_target(transfer)) yoke_fold(place_of(transfer, view), &view->fold, 0, view->count);
    return YOKE_OK;
}

static shm_transfer begin(yoke_process_group *group, yoke_call_kind kind, void *to,
                          const void *from, const yoke_reduce_call *call) {
    return (shm_transfer){.shm = shm_of(group),
                          .call = {.what = yoke_call_of(kind, call)},
                          .to = to,
                          .from = from,
                          .element_bytes = yoke_element_bytes(call->element),
                          .pieces = 1,
                          .source = -1};
}

yoke_status shm_broadcast(yoke_process_group *group, void *buffer, const yoke_reduce_call *call) {
    shm_transfer transfer = begin(group, CALL_BROADCAST, buffer, buffer, call);
    transfer.source = call->root;
    transfer.take = take_root;
    return exchange(&transfer);
}

yoke_status shm_reduce(yoke_process_group *group, void *buffer, const yoke_reduce_call *call) {
    shm_transfer transfer =
        begin(group, call->root < 0 ? CALL_ALL_REDUCE : CALL_REDUCE, buffer, buffer, call);
    transfer.take = take_reduced;
    return exchange(&transfer);
}

yoke_status shm_all_gather(yoke_process_group *group, void *to, const void *from,
                           const yoke_reduce_call *call) {
    shm_transfer transfer =
        begin(group, call->root < 0 ? CALL_ALL_GATHER : CALL_GATHER, to, from, call);
    transfer.take = take_all;
    return exchange(&transfer);
}

yoke_status shm_reduce_scatter(yoke_process_group *group, void *to, const void *from,
                               const yoke_reduce_call *call) {
    shm_transfer transfer = begin(group, CALL_REDUCE_SCATTER, to, from, call);
    transfer.pieces = group->world;
    transfer.take = take_reduced_piece;
    return exchange(&transfer);
}

yoke_status shm_scatter(yoke_process_group *group, void *to, const void *from,
                        const yoke_reduce_call *call) {
    shm_transfer transfer = begin(group, CALL_SCATTER, to, from, call);
    transfer.pieces = group->world;
    transfer.source = call->root;
    transfer.take = take_own_piece;
    return exchange(&transfer);
}
