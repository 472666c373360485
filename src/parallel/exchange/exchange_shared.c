/* SPDX-License-Identifier: Apache-2.0 */
/* DDP's sharded schedule over shared memory: ranks share the update as threads do. Each rank sums
 * its slice of a bucket, updates it with the optimizer's state that it alone holds, and publishes
 * it to all: ZeRO's first stage (Rajbhandari et al. 2020). */
#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "parallel/exchange/exchange.h"
#include "parallel/exchange/exchange_links.h"

/* For ranks that still update, after a failure: for those that run, and while one is stopped. */
#define UNDO_RUNNING_NS 10000000000u
#define UNDO_STOPPED_NS 1000000000u

/* How far a rank is with a bucket, by rounds. */
typedef struct bucket_flags {
    _Atomic uint32_t arrived;    /* its gradients are complete */
    _Atomic uint32_t kept_round; /* set before `kept` */
    _Atomic uint64_t kept;       /* elements of its slice whose old weights are kept */
} bucket_flags;

/* How far a rank is, in memory that all ranks see. */
typedef struct progress_flags {
    _Atomic uint32_t found_nonfinite; /* its loss is not finite; set before the first arrival */
    _Atomic uint32_t updated;         /* the round whose weights it has published */
    _Atomic uint32_t ended;           /* the round in which it writes no more weights */
    _Atomic uint64_t first_bad;       /* of the gradients it has summed */
    bucket_flags buckets[];
} progress_flags;

typedef struct shared_exchange {
    yoke_exchange base;
    progress_flags **flags; /* [ranks] */
    uint32_t round;         /* steps begun */
    bool summed;            /* this rank has summed its slices: the others may update theirs */
} shared_exchange;

static yoke_status shared_place(yoke_exchange *exchange, size_t bytes, float **parameters,
                                float **gradients) {
    void *first = NULL, *second = NULL;
    TRY(yoke_process_group_allocate(exchange->process_group, bytes, &first));
    TRY(yoke_process_group_allocate(exchange->process_group, bytes, &second));
    *parameters = first;
    *gradients = second;
    if (exchange->step->options.shards == 0 || exchange->step->shards.plain) return YOKE_OK;
    TRY(yoke_process_group_allocate(exchange->process_group,
                                    yoke_exchange_sums_bytes(exchange->step), &first));
    exchange->step->shards.placed = first;
    return YOKE_OK;
}

/* Finds every rank's flat buffers and flags in this process's address space. */
static yoke_status shared_open(yoke_exchange *exchange) {
    shared_exchange *shared = (shared_exchange *)exchange;
    const yoke_replica_memory *memory = exchange->step->lanes[0].memory;
    yoke_process_group *group = exchange->process_group;
    size_t ranks = (size_t)exchange->participants;
    size_t buckets = (size_t)exchange->step->flat->bucket_count;
    void *own = NULL;
    shared->flags = yoke_calloc(ranks, sizeof *shared->flags);
    if (shared->flags == NULL) return FAIL_MEMORY(ranks * sizeof own, "the ranks' flags");
    TRY(yoke_process_group_allocate(group, sizeof(progress_flags) + buckets * sizeof(bucket_flags),
                                    &own));
    TRY(yoke_process_group_peers(group, own, (void **)shared->flags));
    TRY(yoke_process_group_peers(group, memory->gradients, (void **)exchange->gradients));
    if (exchange->step->shards.placed != NULL)
        TRY(yoke_process_group_peers(group, exchange->step->shards.placed,
                                     (void **)exchange->accumulated));
    return yoke_process_group_peers(group, memory->parameters, (void **)exchange->parameters);
}

static void shared_close(yoke_exchange *exchange) {
    yoke_free(((shared_exchange *)exchange)->flags);
}

static void shared_begin(yoke_exchange *exchange) {
    shared_exchange *shared = (shared_exchange *)exchange;
    shared->round++;
    yoke_replica_renew_shadow(exchange->step->lanes[0].replica);
    shared->summed = !yoke_exchange_waits(exchange); /* updates bucket by bucket */
    exchange->step->flight.contributors = exchange->participants;
}

static yoke_status shared_loss(yoke_exchange *exchange, double loss) {
    progress_flags *own = ((shared_exchange *)exchange)->flags[exchange->first];
    atomic_store_explicit(&own->found_nonfinite, isfinite(loss) ? 0u : 1u, memory_order_relaxed);
    return YOKE_OK;
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
    for (int rank = 0; rank < exchange->participants; rank++) {
        _Atomic uint32_t *arrived = &shared->flags[rank]->buckets[bucket].arrived;
        if (atomic_load_explicit(arrived, memory_order_acquire) != shared->round) return false;
    }
    return !any_found_nonfinite(shared) && yoke_exchange_links_summed(exchange, bucket);
}

static yoke_status shared_ready(yoke_exchange *exchange, int lane, int bucket) {
    shared_exchange *shared = (shared_exchange *)exchange;
    atomic_store_explicit(&shared->flags[exchange->first]->buckets[bucket].arrived, shared->round,
                          memory_order_release);
    (void)lane;
    return YOKE_OK;
}

/* awaited: what the ranks do before it. */
static yoke_status barrier(yoke_exchange *exchange, yoke_stage awaited) {
    yoke_span wait = yoke_wait_begin(awaited, YOKE_NO_BUCKET);
    TRY(yoke_process_group_barrier(exchange->process_group));
    yoke_wait_end(exchange->step, 0, &wait);
    return YOKE_OK;
}

/* The norm over all ranks' slices. Each part has one owner and is 0 elsewhere: sums are exact. */
static yoke_status clip(yoke_exchange *exchange) {
    size_t buckets = (size_t)exchange->step->flat->bucket_count;
    size_t begin = (size_t)yoke_exchange_norm_part(exchange, exchange->first) * buckets;
    size_t end = (size_t)yoke_exchange_norm_part(exchange, exchange->first + 1) * buckets;
    size_t count = (size_t)exchange->norm_parts * buckets;
    double *squares = exchange->square_sums;
    memset(squares, 0, begin * sizeof *squares);
    memset(squares + end, 0, (count - end) * sizeof *squares);
    yoke_span wait = yoke_wait_begin(YOKE_STAGE_EXCHANGE, YOKE_NO_BUCKET);
    TRY(yoke_process_group_all_reduce(exchange->process_group, squares, count, YOKE_ELEMENT_FLOAT64,
                                      YOKE_SUM));
    yoke_wait_end(exchange->step, 0, &wait);
    yoke_exchange_clip(exchange);
    return YOKE_OK;
}

/* Every rank learns what any rank has found in the gradients that it summed. */
static yoke_status share_check(yoke_exchange *exchange, int lane) {
    shared_exchange *shared = (shared_exchange *)exchange;
    shared->summed = true;
    atomic_store_explicit(&shared->flags[exchange->first]->first_bad, exchange->first_bad[lane],
                          memory_order_release);
    TRY(yoke_exchange_clips(exchange) ? clip(exchange) : barrier(exchange, YOKE_STAGE_EXCHANGE));
    for (int rank = 0; rank < exchange->participants; rank++) {
        uint64_t bad = atomic_load_explicit(&shared->flags[rank]->first_bad, memory_order_acquire);
        if (bad < exchange->first_bad[lane]) exchange->first_bad[lane] = bad;
    }
    return YOKE_OK;
}

static void end_round(yoke_exchange *exchange) {
    const shared_exchange *shared = (shared_exchange *)exchange;
    atomic_store_explicit(&shared->flags[exchange->first]->ended, shared->round,
                          memory_order_release);
}

/* After the first barrier every rank's gradients are complete, after share_check their sums, and
 * after the last barrier the weights. */
static yoke_status shared_finish(yoke_exchange *exchange, int lane) {
    const shared_exchange *shared = (shared_exchange *)exchange;
    TRY(barrier(exchange, YOKE_STAGE_BACKWARD));
    if (any_found_nonfinite(shared)) return YOKE_OK;
    yoke_exchange_links_await(exchange, lane, exchange->step->flat->bucket_count - 1);
    TRY(yoke_exchange_advance(exchange, lane));
    if (yoke_exchange_waits(exchange)) {
        TRY(share_check(exchange, lane));
        TRY(yoke_exchange_update_slices(exchange, lane));
    }
    yoke_exchange_links_finish(exchange, lane);
    if (atomic_load(&exchange->change) != YOKE_CHANGED_NOTHING) /* the gradient is finite */
        atomic_store_explicit(&shared->flags[exchange->first]->updated, shared->round,
                              memory_order_release);
    end_round(exchange);
    return barrier(exchange, YOKE_STAGE_EXCHANGE);
}

/* After a failure. A rank that dies in its update has published a part of its slices, and the state
 * of its optimizer is lost: rank 0, which saves, completes no update. Either every rank has
 * published all of its slices, or rank 0 goes back to the weights before the step. */

static void shared_kept(yoke_exchange *exchange, int bucket, size_t end) {
    const shared_exchange *shared = (shared_exchange *)exchange;
    bucket_flags *own = &shared->flags[exchange->first]->buckets[bucket];
    size_t begin = yoke_exchange_slice(exchange, exchange->first, bucket).offset;
    if (atomic_load_explicit(&own->kept_round, memory_order_relaxed) != shared->round) {
        atomic_store_explicit(&own->kept, 0, memory_order_relaxed);
        atomic_store_explicit(&own->kept_round, shared->round, memory_order_release);
    }
    atomic_store_explicit(&own->kept, end - begin, memory_order_release);
    atomic_thread_fence(memory_order_seq_cst); /* before the new weights reach rank 0 */
}

/* False: it may yet publish weights. A rank that runs ends its update, or finds the failure; one
 * that is stopped may stay so. */
static bool await_end(const shared_exchange *shared, int rank, uint64_t begin_ns) {
    _Atomic uint32_t *ended = &shared->flags[rank]->ended;
    while (atomic_load_explicit(ended, memory_order_acquire) != shared->round) {
        yoke_process_state state = yoke_process_group_state(shared->base.process_group, rank);
        if (state == YOKE_PROCESS_ENDED) return true;
        bool runs = state == YOKE_PROCESS_RUNNING;
        if (yoke_now_ns() - begin_ns >= (runs ? UNDO_RUNNING_NS : UNDO_STOPPED_NS)) return false;
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
    return true;
}

static bool all_updated(const shared_exchange *shared) {
    for (int rank = 0; rank < shared->base.participants; rank++) {
        _Atomic uint32_t *updated = &shared->flags[rank]->updated;
        if (atomic_load_explicit(updated, memory_order_acquire) != shared->round) return false;
    }
    return true;
}

static void undo_slice(const shared_exchange *shared, int rank, int bucket) {
    const yoke_exchange *exchange = &shared->base;
    bucket_flags *flags = &shared->flags[rank]->buckets[bucket];
    if (atomic_load_explicit(&flags->kept_round, memory_order_acquire) != shared->round) return;
    size_t elements = atomic_load_explicit(&flags->kept, memory_order_acquire);
    size_t begin = yoke_exchange_slice(exchange, rank, bucket).offset;
    memcpy(exchange->parameters[0] + begin, exchange->gradients[0] + begin,
           elements * sizeof(float));
}

static yoke_change shared_recover(yoke_exchange *exchange) {
    const shared_exchange *shared = (shared_exchange *)exchange;
    bool updated = atomic_load(&exchange->change) == YOKE_CHANGED_ALL;
    end_round(exchange);
    if (updated || exchange->first != 0) return updated ? YOKE_CHANGED_ALL : YOKE_CHANGED_PART;
    if (!shared->summed) return YOKE_CHANGED_NOTHING;
    uint64_t begin_ns = yoke_now_ns();
    for (int rank = 0; rank < exchange->participants; rank++)
        if (!await_end(shared, rank, begin_ns)) return YOKE_CHANGED_PART;
    if (all_updated(shared)) return YOKE_CHANGED_ALL;
    for (int rank = 0; rank < exchange->participants; rank++)
        for (int bucket = 0; bucket < exchange->step->flat->bucket_count; bucket++)
            undo_slice(shared, rank, bucket);
    return YOKE_CHANGED_NOTHING;
}

static yoke_status shared_update(yoke_exchange *exchange) {
    (void)exchange;
    return FAIL(YOKE_ERROR_ARGUMENT,
                "yoke_data_parallel_update: in DDP's sharded schedule the ranks share the "
                "update; call yoke_data_parallel_step");
}

const yoke_exchange_kind yoke_exchange_shared = {
    .bytes = sizeof(shared_exchange),
    .joins_ranks = true,
    .place = shared_place,
    .open = shared_open,
    .close = shared_close,
    .begin = shared_begin,
    .loss = shared_loss,
    .ready = shared_ready,
    .is_complete = shared_is_complete,
    .finish = shared_finish,
    .kept = shared_kept,
    .recover = shared_recover,
    .reduce = yoke_exchange_all_reduce_gradient,
    .update = shared_update,
};
