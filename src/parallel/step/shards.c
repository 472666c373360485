/* SPDX-License-Identifier: Apache-2.0 */
/* Shards that do not depend on the devices: which rows, in what order gradients and losses add up,
 * and whose running statistics remain. */
#include "parallel/step/shards.h"

#include <stdlib.h>

#include "parallel/step/flight.h"

/* Options. */

static bool is_power_of_two(int number) {
    return number > 0 && (number & (number - 1)) == 0;
}

static yoke_status check_counts(const yoke_step *step) {
    int shards = step->options.shards, devices = step->count * step->ranks.world;
    if (shards < 0 || shards > YOKE_SHARDS_LIMIT || !is_power_of_two(shards))
        return FAIL(YOKE_ERROR_ARGUMENT,
                    "shards is %d: a power of two up to %d, or 0 for as many "
                    "shards as devices",
                    shards, YOKE_SHARDS_LIMIT);
    if (is_power_of_two(devices) && devices <= shards) return YOKE_OK;
    return FAIL(YOKE_ERROR_ARGUMENT,
                "%d shards on %d devices: every device computes equally many shards; choose 1, 2, "
                "4, ... devices, at most %d",
                shards, devices, shards);
}

/* What would make the result depend on the number of devices after all. */
static yoke_status check_order(const yoke_step *step) {
    const yoke_data_parallel_options *options = &step->options;
    if (options->accumulate > 1)
        return FAIL(YOKE_ERROR_ARGUMENT,
                    "accumulate %d with %d shards: devices compute a batch in pieces already, a "
                    "shard at a time; leave accumulate at 1",
                    options->accumulate, options->shards);
    if (options->synchronize_batch_norm)
        return FAIL(
            YOKE_ERROR_ARGUMENT,
            "synchronize_batch_norm joins the rows of all devices, but each of %d shards is "
            "computed alone: leave one of the two out",
            options->shards);
    if (options->mean_of_ranks)
        return FAIL(YOKE_ERROR_ARGUMENT,
                    "mean_of_ranks depends on the number of ranks, %d shards "
                    "do not: choose the mean over rows",
                    options->shards);
    if (options->collectives == YOKE_COLLECTIVES_NCCL)
        return FAIL(YOKE_ERROR_ARGUMENT,
                    "NCCL picks the order of its sums, so %d shards need the collectives auto or "
                    "copy",
                    options->shards);
    if (step->queued && options->process_group != NULL)
        return FAIL(YOKE_ERROR_ARGUMENT,
                    "NCCL picks the order of its sums, so %d shards need one process for all GPUs, "
                    "or ranks with CPU devices",
                    options->shards);
    return YOKE_OK;
}

yoke_status yoke_shards_check(yoke_step *step) {
    yoke_data_parallel_options *options = &step->options;
    step->shards.rounds = 1;
    if (options->shards == 0) return YOKE_OK;
    TRY(check_counts(step));
    TRY(check_order(step));
    step->shards.rounds = options->shards / (step->count * step->ranks.world);
    if (options->input_gradients && step->shards.rounds > 1)
        return FAIL(YOKE_ERROR_ARGUMENT,
                    "input_gradients with %d shards on %d devices: they are those of one shard a "
                    "device",
                    options->shards, step->count);
    options->collectives = YOKE_COLLECTIVES_COPY;
    return step->ranks.world > 1 ? yoke_process_group_fix_order(options->process_group) : YOKE_OK;
}

/* Life. */

yoke_status yoke_shards_create(yoke_step *step) {
    yoke_shards *shards = &step->shards;
    size_t count = (size_t)step->count * (size_t)shards->rounds;
    shards->losses = calloc(count, sizeof *shards->losses);
    if (shards->losses == NULL) return FAIL_MEMORY(count * sizeof *shards->losses, "losses");
    size_t bytes = step->flat->buffer_elements * sizeof(float);
    if (shards->rounds == 1 || bytes == 0) return YOKE_OK;
    return yoke_memory_advice(yoke_device_allocate(step->lanes[0].device, bytes,
                                                   "running statistics",
                                                   (void **)&shards->statistics),
                              YOKE_ADVICE_MODEL);
}

void yoke_shards_destroy(yoke_step *step) {
    free(step->shards.losses);
    if (step->shards.statistics != NULL)
        yoke_device_free(step->lanes[0].device, step->shards.statistics);
}

/* Rows. */

int yoke_shard_rows(int rows, int devices, int index) {
    return yoke_chunk_of(rows, devices, index).rows;
}

yoke_chunk yoke_shards_of_rank(const yoke_step *step, int rows) {
    const yoke_ranks *ranks = &step->ranks;
    int shards = step->options.shards;
    if (shards == 0) return yoke_chunk_of(rows, ranks->world, ranks->rank);
    return yoke_chunk_span(rows, shards, ranks->rank * (shards / ranks->world),
                           shards / ranks->world);
}

yoke_chunk yoke_shard_of_lane(const yoke_step *step, int rows, int lane, int round) {
    const yoke_ranks *ranks = &step->ranks;
    int own = lane * step->shards.rounds + round;
    int all = ranks->rank * step->count * step->shards.rounds;
    yoke_chunk shard = yoke_chunk_of(rows, step->options.shards, all + own);
    shard.first -= yoke_shards_of_rank(step, rows).first;
    return shard;
}

/* Gradients: a binary counter. Level l holds the sum of 2^l shards or nothing. A new gradient is
 * added to level 0, that sum to level 1, and so on, up to the first empty level, which keeps it.
 * The lane's sum is then the subtree over its shards (base/tree.h). */

int yoke_shards_sums(const yoke_step *step) {
    int levels = 0;
    while (step->shards.rounds >> (levels + 1) > 0)
        levels++;
    return levels;
}

/* Up to two levels in one pass: large networks read and write them in memory, not in the cache. */
yoke_status yoke_shards_merge(yoke_step *step, int index, yoke_bucket bucket) {
    const yoke_lane *lane = &step->lanes[index];
    const yoke_flight *flight = &step->flight;
    size_t elements = step->flat->trainable_elements;
    float *gradient = lane->memory->gradients + bucket.offset;
    float *level = lane->accumulated + bucket.offset, *to = NULL;
    int round = flight->micro;
    while ((round & 1) != 0) {
        int full = (round & 2) != 0 ? 2 : 1;
        const float *from[] = {gradient, level, full == 2 ? level + elements : NULL};
        round >>= full;
        level += (size_t)full * elements;
        bool is_partial = (round & 1) != 0 || yoke_flight_is_last(flight);
        to = is_partial ? gradient : level;
        TRY(yoke_device_sum(lane->device, YOKE_STREAM_COMPUTE, to, from, full + 1,
                            bucket.elements));
    }
    if (to != NULL || yoke_flight_is_last(flight)) return YOKE_OK;
    return yoke_device_copy(lane->device, YOKE_STREAM_COMPUTE, level, lane->device, gradient,
                            bucket.elements * sizeof *level);
}

/* Statistics and losses. */

yoke_status yoke_shards_keep_statistics(yoke_step *step) {
    const yoke_flight *flight = &step->flight;
    float *kept = step->shards.statistics, *own = step->lanes[0].memory->buffers;
    yoke_device *root = step->lanes[0].device;
    size_t bytes = step->flat->buffer_elements * sizeof *own;
    if (kept == NULL || !flight->by_shards) return YOKE_OK;
    if (flight->micro == 0)
        return yoke_device_copy(root, YOKE_STREAM_COMPUTE, kept, root, own, bytes);
    if (!yoke_flight_is_last(flight)) return YOKE_OK;
    return yoke_device_copy(root, YOKE_STREAM_COMPUTE, own, root, kept, bytes);
}

void yoke_shards_add_losses(yoke_step *step, const double *losses) {
    const yoke_flight *flight = &step->flight;
    int rounds = step->shards.rounds;
    if (!flight->by_shards) return;
    for (int k = 0; k < step->count; k++)
        step->shards.losses[k * rounds + flight->micro] = losses[k];
    if (yoke_flight_is_last(flight))
        step->flight.result.loss = yoke_tree_sum(step->shards.losses, step->count * rounds);
}
