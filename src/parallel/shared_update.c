/* The sharded schedule of DDP over shared memory: ranks share the update as devices do. Each sums
 * its slice of a bucket, updates it with the optimizer's state that it alone has, and publishes it
 * to all: ZeRO's first stage (Rajbhandari et al. 2020). A rank tells on its board how far it is. */
#include <math.h>
#include <stdlib.h>

#include "parallel/engine.h"

/* Where every rank's flat buffers and board are for this process. */
yoke_status yoke_shared_update_create(yoke_data_parallel *parallel) {
    const yoke_replica_memory *memory = yoke_replica_memory_of(parallel->replicas[0]);
    size_t world = (size_t)parallel->world, buckets = (size_t)parallel->flat->bucket_count;
    void *board = NULL;
    parallel->boards = calloc(world, sizeof *parallel->boards);
    if (parallel->boards == NULL) return FAIL_MEMORY(world * sizeof board, "the ranks' boards");
    TRY(yoke_process_group_allocate(parallel->ranks,
                                    sizeof(yoke_board) + buckets * sizeof(uint32_t), &board));
    TRY(yoke_process_group_peers(parallel->ranks, board, (void **)parallel->boards));
    TRY(yoke_process_group_peers(parallel->ranks, memory->gradients,
                                 (void **)parallel->party_gradients));
    return yoke_process_group_peers(parallel->ranks, memory->parameters,
                                    (void **)parallel->party_parameters);
}

void yoke_shared_update_begin(yoke_data_parallel *parallel) {
    parallel->round++;
    parallel->contributors = parallel->world;
}

void yoke_shared_update_loss(yoke_data_parallel *parallel, double loss) {
    atomic_store_explicit(&parallel->boards[parallel->rank]->found_nonfinite,
                          isfinite(loss) ? 0u : 1u, memory_order_relaxed);
}

static bool all_have(const yoke_data_parallel *parallel, int bucket) {
    for (int rank = 0; rank < parallel->world; rank++) {
        _Atomic uint32_t *arrived = &parallel->boards[rank]->arrivals[bucket];
        if (atomic_load_explicit(arrived, memory_order_acquire) != parallel->round) return false;
    }
    return true;
}

/* Known once all have bucket 0. */
static bool anybody_doubts(const yoke_data_parallel *parallel) {
    for (int rank = 0; rank < parallel->world; rank++)
        if (atomic_load_explicit(&parallel->boards[rank]->found_nonfinite, memory_order_relaxed) !=
            0)
            return true;
    return false;
}

static yoke_status exchange_ready(yoke_data_parallel *parallel) {
    if (parallel->optimizer_options.clip_norm > 0) return YOKE_OK;
    for (int *next = &parallel->exchanged[0]; *next < parallel->flat->bucket_count; ++*next) {
        if (!all_have(parallel, *next) || anybody_doubts(parallel)) return YOKE_OK;
        TRY(yoke_exchange_slice(parallel, *next));
    }
    return YOKE_OK;
}

yoke_status yoke_shared_update_ready(yoke_data_parallel *parallel, int bucket) {
    atomic_store_explicit(&parallel->boards[parallel->rank]->arrivals[bucket], parallel->round,
                          memory_order_release);
    return exchange_ready(parallel);
}

/* The squares of all ranks' slices, in their order. */
static yoke_status clip(yoke_data_parallel *parallel) {
    double squares[YOKE_DEVICES_LIMIT], own;
    TRY(yoke_exchange_sums(parallel));
    own = parallel->square_sums[0];
    TRY(yoke_process_group_all_gather(parallel->ranks, squares, &own, 1, YOKE_ELEMENT_INT64));
    parallel->square_sums[0] = 0;
    for (int rank = 0; rank < parallel->world; rank++)
        parallel->square_sums[0] += squares[rank];
    yoke_clip(parallel);
    return yoke_exchange_updates(parallel);
}

static yoke_status await_all(yoke_data_parallel *parallel) {
    uint64_t begin = yoke_trace_now();
    TRY(yoke_process_group_barrier(parallel->ranks));
    yoke_trace_span(parallel->trace, 0, YOKE_STAGE_WAIT, parallel->steps, begin, 0);
    return YOKE_OK;
}

/* Behind the first barrier everybody's gradients are complete, behind the other the weights. */
yoke_status yoke_shared_update_finish(yoke_data_parallel *parallel) {
    TRY(await_all(parallel));
    if (anybody_doubts(parallel)) return YOKE_OK;
    TRY(parallel->optimizer_options.clip_norm > 0 ? clip(parallel) : exchange_ready(parallel));
    return await_all(parallel);
}
