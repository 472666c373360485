/* DDP's sharded schedule over shared memory: ranks share the update as threads do. Each rank sums
 * its slice of a bucket, updates it with the optimizer's state that it alone holds, and publishes
 * it to all: ZeRO's first stage (Rajbhandari et al. 2020). */
#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "parallel/engine.h"
#include "parallel/exchange_links.h"

/* How far a rank is, in memory that all ranks see. */
typedef struct progress_flags {
    _Atomic uint32_t found_nonfinite; /* its loss is not finite; set before the first arrival */
    _Atomic uint64_t first_bad;       /* of the gradients it has summed */
    _Atomic uint32_t arrivals[];      /* [buckets] the round whose gradients are complete */
} progress_flags;

typedef struct shared_exchange {
    yoke_exchange base;
    progress_flags **flags; /* [ranks] */
    double *own_squares;    /* this rank's part of the square_sums, to send */
    uint32_t round;         /* steps begun */
} shared_exchange;

static yoke_status shared_place(yoke_exchange *exchange, size_t bytes, float **parameters,
                                float **gradients) {
    void *first = NULL, *second = NULL;
    TRY(yoke_process_group_allocate(exchange->process_group, bytes, &first));
    TRY(yoke_process_group_allocate(exchange->process_group, bytes, &second));
    *parameters = first;
    *gradients = second;
    return YOKE_OK;
}

/* Finds every rank's flat buffers and flags in this process's address space. */
static yoke_status shared_open(yoke_exchange *exchange) {
    shared_exchange *shared = (shared_exchange *)exchange;
    const yoke_replica_memory *memory = exchange->parallel->lanes[0].memory;
    yoke_process_group *group = exchange->process_group;
    size_t ranks = (size_t)exchange->participants;
    size_t buckets = (size_t)exchange->parallel->flat->bucket_count;
    void *own = NULL;
    shared->flags = calloc(ranks, sizeof *shared->flags);
    if (shared->flags == NULL) return FAIL_MEMORY(ranks * sizeof own, "the ranks' flags");
    size_t squares = (size_t)yoke_exchange_norm_part(exchange, 1) * buckets;
    shared->own_squares = calloc(squares, sizeof *shared->own_squares);
    if (shared->own_squares == NULL)
        return FAIL_MEMORY(squares * sizeof *shared->own_squares, "the norm's parts");
    TRY(yoke_process_group_allocate(group, sizeof(progress_flags) + buckets * sizeof(uint32_t),
                                    &own));
    TRY(yoke_process_group_peers(group, own, (void **)shared->flags));
    TRY(yoke_process_group_peers(group, memory->gradients, (void **)exchange->gradients));
    return yoke_process_group_peers(group, memory->parameters, (void **)exchange->parameters);
}

static void shared_close(yoke_exchange *exchange) {
    free(((shared_exchange *)exchange)->own_squares);
    free(((shared_exchange *)exchange)->flags);
}

static void shared_begin(yoke_exchange *exchange) {
    ((shared_exchange *)exchange)->round++;
    exchange->parallel->flight.contributors = exchange->participants;
}

static yoke_status shared_loss(yoke_exchange *exchange, double loss) {
    progress_flags *own = ((shared_exchange *)exchange)->flags[exchange->first];
    atomic_store_explicit(&own->found_nonfinite, isfinite(loss) ? 0u : 1u, memory_order_relaxed);
    return YOKE_OK;
}

static bool all_arrived(const shared_exchange *shared, int bucket) {
    for (int rank = 0; rank < shared->base.participants; rank++) {
        _Atomic uint32_t *arrived = &shared->flags[rank]->arrivals[bucket];
        if (atomic_load_explicit(arrived, memory_order_acquire) != shared->round) return false;
    }
    return true;
}

/* Complete once all ranks have arrived at bucket 0. */
static bool any_found_nonfinite(const shared_exchange *shared) {
    for (int rank = 0; rank < shared->base.participants; rank++)
        if (atomic_load_explicit(&shared->flags[rank]->found_nonfinite, memory_order_relaxed) != 0)
            return true;
    return false;
}

static bool shared_is_complete(const yoke_exchange *exchange, int bucket) {
    const shared_exchange *shared = (const shared_exchange *)exchange;
    return all_arrived(shared, bucket) && !any_found_nonfinite(shared) &&
           yoke_exchange_links_summed(exchange, bucket);
}

static yoke_status shared_ready(yoke_exchange *exchange, int lane, int bucket) {
    shared_exchange *shared = (shared_exchange *)exchange;
    atomic_store_explicit(&shared->flags[exchange->first]->arrivals[bucket], shared->round,
                          memory_order_release);
    return yoke_exchange_advance(exchange, lane);
}

/* awaited: what the ranks do before it. */
static yoke_status barrier(yoke_exchange *exchange, yoke_stage awaited) {
    yoke_wait wait = {yoke_trace_now(), awaited, YOKE_NO_BUCKET};
    TRY(yoke_process_group_barrier(exchange->process_group));
    yoke_wait_end(exchange->parallel, 0, &wait);
    return YOKE_OK;
}

/* The norm over all ranks' slices. */
static yoke_status clip(yoke_exchange *exchange) {
    size_t buckets = (size_t)exchange->parallel->flat->bucket_count;
    size_t count = (size_t)yoke_exchange_norm_part(exchange, 1) * buckets;
    double *own = ((shared_exchange *)exchange)->own_squares;
    memcpy(own, exchange->square_sums + (size_t)exchange->first * count, count * sizeof *own);
    yoke_wait wait = {yoke_trace_now(), YOKE_STAGE_EXCHANGE, YOKE_NO_BUCKET};
    TRY(yoke_process_group_all_gather(exchange->process_group, exchange->square_sums, own, count,
                                      YOKE_ELEMENT_FLOAT64));
    yoke_wait_end(exchange->parallel, 0, &wait);
    yoke_exchange_clip(exchange);
    return YOKE_OK;
}

/* Every rank learns what any rank has found in the gradients that it summed. */
static yoke_status share_check(yoke_exchange *exchange, int lane) {
    const shared_exchange *shared = (shared_exchange *)exchange;
    atomic_store_explicit(&shared->flags[exchange->first]->first_bad, exchange->first_bad[lane],
                          memory_order_release);
    TRY(yoke_exchange_clips(exchange) ? clip(exchange) : barrier(exchange, YOKE_STAGE_EXCHANGE));
    for (int rank = 0; rank < exchange->participants; rank++) {
        uint64_t bad = atomic_load_explicit(&shared->flags[rank]->first_bad, memory_order_acquire);
        if (bad < exchange->first_bad[lane]) exchange->first_bad[lane] = bad;
    }
    return YOKE_OK;
}

/* After the first barrier every rank's gradients are complete, after share_check their sums, and
 * after the last barrier the weights. */
static yoke_status shared_finish(yoke_exchange *exchange, int lane) {
    TRY(barrier(exchange, YOKE_STAGE_BACKWARD));
    if (any_found_nonfinite((shared_exchange *)exchange)) return YOKE_OK;
    yoke_exchange_links_await(exchange, lane, exchange->parallel->flat->bucket_count - 1);
    TRY(yoke_exchange_advance(exchange, lane));
    if (yoke_exchange_waits(exchange)) {
        TRY(share_check(exchange, lane));
        TRY(yoke_exchange_update_slices(exchange, lane));
    }
    yoke_exchange_links_finish(exchange, lane);
    return barrier(exchange, YOKE_STAGE_EXCHANGE);
}

static yoke_status shared_update(yoke_exchange *exchange) {
    (void)exchange;
    return FAIL(YOKE_ERROR_ARGUMENT, "yoke_update: in DDP's sharded schedule the ranks share the "
                                     "update; call yoke_data_parallel_step");
}

const yoke_exchange_kind yoke_exchange_shared = {
    .bytes = sizeof(shared_exchange),
    .place = shared_place,
    .open = shared_open,
    .close = shared_close,
    .begin = shared_begin,
    .loss = shared_loss,
    .ready = shared_ready,
    .is_complete = shared_is_complete,
    .finish = shared_finish,
    .reduce = yoke_exchange_all_reduce_gradient,
    .update = shared_update,
};
