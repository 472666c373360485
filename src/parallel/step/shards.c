/* SPDX-License-Identifier: Apache-2.0 */
/* Shards that do not depend on the devices: which rows, in what order gradients and losses add up,
 * and whose running statistics remain. */
#include "parallel/step/shards.h"

#include <stdlib.h>
#include <string.h>

#include "parallel/step/deal.h"
#include "parallel/step/flight.h"

/* Options. */

static bool is_power_of_two(int number) {
    return number > 0 && (number & (number - 1)) == 0;
}

static yoke_status check_counts(const yoke_step *step) {
    int shards = step->options.shards, devices = step->count * step->ranks.world;
    const char *who = step->ranks.world > 1 ? "rank" : step->queued ? "GPU" : "device";
    if (shards < 0 || shards > YOKE_SHARDS_LIMIT || !is_power_of_two(shards))
        return FAIL(YOKE_ERROR_ARGUMENT,
                    "shards is %d: a power of two up to %d, or 0 for as many "
                    "shards as devices",
                    shards, YOKE_SHARDS_LIMIT);
    bool may_differ = step->ranks.world > 1
                          ? yoke_process_group_takes_blocks(step->options.process_group)
                          : !step->queued;
    bool by_shares = step->options.shares != NULL || step->options.auto_shares;
    if (by_shares && !may_differ && step->ranks.world > 1)
        return FAIL(YOKE_ERROR_ARGUMENT, "shares of ranks need shared memory, which adds up "
                                         "unequal blocks of shards: put all ranks on one machine");
    if ((may_differ || is_power_of_two(devices)) && devices <= shards) return YOKE_OK;
    if (may_differ)
        return FAIL(YOKE_ERROR_ARGUMENT, "%d shards on %d %ss: every %s needs one", shards, devices,
                    who, who);
    return FAIL(YOKE_ERROR_ARGUMENT,
                "%d shards on %d %ss%s: each computes equally many; choose 1, 2, 4, ... of them, "
                "at most %d",
                shards, devices, who, step->ranks.world > 1 ? " without shared memory" : "",
                shards);
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
                    "NCCL picks the order of its sums, and %d shards promise the same bits on any "
                    "number of GPUs: choose the collectives copy, which add in the order of the "
                    "shards, or auto, which are then copies",
                    options->shards);
    if (step->queued && options->process_group != NULL)
        return FAIL(YOKE_ERROR_ARGUMENT,
                    "NCCL picks the order of its sums, and %d shards promise the same bits on any "
                    "number of GPUs: train in one process (mode dp), whose GPUs copy gradients and "
                    "add them in the order of the shards, or with ranks of CPU devices",
                    options->shards);
    return YOKE_OK;
}

yoke_status yoke_shards_check(yoke_step *step) {
    yoke_data_parallel_options *options = &step->options;
    if (options->shards == 0) return YOKE_OK;
    TRY(check_counts(step));
    TRY(check_order(step));
    if (options->input_gradients && options->shards > step->count * step->ranks.world)
        return FAIL(YOKE_ERROR_ARGUMENT,
                    "input_gradients with %d shards on %d devices: they are those of one shard a "
                    "device",
                    options->shards, step->count);
    options->collectives = YOKE_COLLECTIVES_COPY;
    return step->ranks.world > 1 ? yoke_process_group_fix_order(options->process_group) : YOKE_OK;
}

/* Life. */

/* How many shards this process computes. */
static int shards_here(const yoke_step *step) {
    return step->ranks.world > 1 ? yoke_deal_shards(step, 0) : step->options.shards;
}

yoke_status yoke_shards_create(yoke_step *step) {
    yoke_shards *shards = &step->shards;
    size_t count = (size_t)shards_here(step) + 1; /* none: without shards */
    shards->losses = yoke_calloc(count, sizeof *shards->losses);
    if (shards->losses == NULL) return FAIL_MEMORY(count * sizeof *shards->losses, "losses");
    size_t bytes = step->flat->buffer_elements * sizeof(float);
    bool one_each = shards->rounds == 1 && !yoke_deal_changes(step);
    if (one_each || bytes == 0) return YOKE_OK;
    return yoke_memory_advice(yoke_device_allocate(step->lanes[0].device, bytes,
                                                   "running statistics",
                                                   (void **)&shards->statistics),
                              YOKE_ADVICE_MODEL);
}

void yoke_shards_destroy(yoke_step *step) {
    yoke_free(step->shards.losses);
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
    return yoke_chunk_span(rows, shards, yoke_deal_first_shard(step, 0), shards_here(step));
}

yoke_chunk yoke_shard_at(const yoke_step *step, int rows, int index) {
    yoke_chunk shard = yoke_chunk_of(rows, step->options.shards, index);
    shard.first -= yoke_shards_of_rank(step, rows).first;
    return shard;
}

yoke_chunk yoke_shard_of_lane(const yoke_step *step, int rows, int lane, int round) {
    if (round >= yoke_deal_shards(step, lane)) return (yoke_chunk){0, 0};
    return yoke_shard_at(step, rows, yoke_deal_first_shard(step, lane) + round);
}

int yoke_device_rows(const yoke_step *step, int lane) {
    int rows = 0;
    if (step->options.shards == 0) return yoke_deal_rows(step, step->options.batch, lane).rows;
    for (int round = 0; round < yoke_deal_shards(step, lane); round++)
        rows += yoke_shard_of_lane(step, step->options.batch, lane, round).rows;
    return rows;
}

/* Gradients. The sum over all shards is a tree (base/tree.h) whose subtrees are blocks of 2^l
 * shards that begin at a multiple of 2^l. A lane adds up the largest blocks that its shards make:
 * the last one in the replica's gradients, the others in `accumulated`. That is a binary counter:
 * buffer l waits with a block of 2^l shards for the next one, which completes a block of twice as
 * many. A block whose left neighbour is another lane's completes nothing: it lies behind those
 * buffers. */

/* How many waiting blocks shard `shard` completes for a lane whose first one is `first`. */
static int merges_of(int first, int shard) {
    int merges = 0;
    while ((shard >> merges & 1) != 0 && ((shard >> merges) - 1) << merges >= first)
        merges++;
    return merges;
}

/* Where a block of 2^level shards that ends with shard `last` lies: behind those that wait if its
 * left neighbour is another lane's. */
static int buffer_of(const yoke_step *step, int last, int level) {
    bool is_right = (last >> level & 1) != 0;
    return is_right ? step->shards.waiting + level : level;
}

static int larger(int a, int b) {
    return a > b ? a : b;
}

/* Buffers of a participant's blocks but the last one: those that wait, and those that cannot. */
static void count_buffers(const yoke_step *step, int participant, int *waiting, int *others) {
    int first = step->deal.shards[participant], end = step->deal.shards[participant + 1];
    for (int shard = first; shard < end - 1; shard++) {
        int level = merges_of(first, shard);
        int *count = (shard >> level & 1) != 0 ? others : waiting;
        *count = larger(*count, level + 1);
    }
}

/* The participant's blocks, in their order. */
static void list_blocks_of(const yoke_step *step, int participant, yoke_blocks *blocks) {
    int at = step->deal.shards[participant], end = step->deal.shards[participant + 1];
    while (at < end) {
        int level = 0, next = blocks->count++;
        while ((at >> level & 1) == 0 && at + (2 << level) <= end)
            level++;
        int size = 1 << level;
        blocks->participants[next] = participant;
        blocks->sizes[next] = size;
        blocks->buffers[next] = at + size == end ? -1 : buffer_of(step, at + size - 1, level);
        at += size;
    }
}

void yoke_shards_blocks(const yoke_step *step, yoke_blocks *blocks) {
    blocks->count = 0;
    for (int k = 0; k < yoke_deal_participants(step); k++)
        list_blocks_of(step, k, blocks);
}

int yoke_shards_sums(const yoke_step *step) {
    int waiting = 0, others = 0;
    if (yoke_deal_changes(step)) return 2 * step->shards.levels; /* whatever the deal */
    for (int k = 0; k < yoke_deal_participants(step); k++)
        count_buffers(step, k, &waiting, &others);
    return waiting + others;
}

void yoke_shards_deal(yoke_step *step) {
    yoke_shards *shards = &step->shards;
    int shards_of_all = step->options.shards, others = 0;
    yoke_blocks blocks;
    shards->rounds = yoke_deal_rounds(step);
    shards->levels = shards->waiting = 0;
    if (step->options.shards == 0) return;
    while (shards_of_all >> (shards->levels + 1) > 0)
        shards->levels++;
    for (int k = 0; k < yoke_deal_participants(step); k++)
        count_buffers(step, k, &shards->waiting, &others);
    if (yoke_deal_changes(step)) shards->waiting = shards->levels;
    yoke_shards_blocks(step, &blocks);
    shards->plain = blocks.count == yoke_deal_participants(step);
    for (int i = 1; i < blocks.count; i++)
        shards->plain &= blocks.sizes[i] == blocks.sizes[0];
}

/* Up to two levels in one pass: large networks read and write them in memory, not in the cache. */
yoke_status yoke_shards_merge(yoke_step *step, int index, yoke_bucket bucket) {
    const yoke_lane *lane = &step->lanes[index];
    size_t elements = step->flat->trainable_elements;
    int first = yoke_deal_first_shard(step, index), shard = first + lane->round;
    int merges = merges_of(first, shard);
    bool last = yoke_lane_is_last(step, index);
    float *gradient = lane->memory->gradients + bucket.offset;
    float *buffers = lane->accumulated + bucket.offset, *to = gradient;
    if (lane->audits) return YOKE_OK;
    for (int level = 0; level < merges;) {
        int full = merges - level > 1 ? 2 : 1;
        const float *from[] = {gradient, buffers + (size_t)level * elements,
                               full == 2 ? buffers + (size_t)(level + 1) * elements : NULL};
        level += full;
        if (level == merges && !last)
            to = buffers + (size_t)buffer_of(step, shard, merges) * elements;
        TRY(yoke_device_sum(lane->device, YOKE_STREAM_COMPUTE, to, from, full + 1,
                            bucket.elements));
    }
    if (merges > 0 || last) return YOKE_OK;
    return yoke_device_copy(lane->device, YOKE_STREAM_COMPUTE,
                            buffers + (size_t)buffer_of(step, shard, 0) * elements, lane->device,
                            gradient, bucket.elements * sizeof *gradient);
}

/* Statistics and losses. */

/* In the root's first round, and after its last one. */
yoke_status yoke_shards_keep_statistics(yoke_step *step) {
    const yoke_lane *root = &step->lanes[0];
    float *kept = step->shards.statistics, *own = root->memory->buffers;
    size_t bytes = step->flat->buffer_elements * sizeof *own;
    int last = step->flight.by_shards ? yoke_deal_shards(step, 0) - 1 : 0;
    if (kept == NULL || last == 0 || root->round > last) return YOKE_OK;
    if (root->round == 0)
        return yoke_device_copy(root->device, YOKE_STREAM_COMPUTE, kept, root->device, own, bytes);
    if (root->round < last) return YOKE_OK;
    return yoke_device_copy(root->device, YOKE_STREAM_COMPUTE, own, root->device, kept, bytes);
}

static double *loss_of(const yoke_step *step, int lane) {
    int index = yoke_deal_first_shard(step, lane) - yoke_deal_first_shard(step, 0);
    return &step->shards.losses[index + step->lanes[lane].round];
}

static double loss_of_all(const yoke_step *step) {
    return yoke_tree_sum(step->shards.losses, shards_here(step));
}

/* Where ranks have unequally many shards, the sum of a rank's is no subtree of the whole one. */
yoke_status yoke_shards_gather_losses(yoke_step *step, double *loss) {
    double losses[YOKE_SHARDS_LIMIT] = {0}; /* those of other ranks: a sum with 0 is exact */
    memcpy(losses + yoke_deal_first_shard(step, 0), step->shards.losses,
           (size_t)shards_here(step) * sizeof *losses);
    TRY(yoke_process_group_all_reduce(step->ranks.process_group, losses,
                                      (size_t)step->options.shards, YOKE_ELEMENT_FLOAT64,
                                      YOKE_SUM));
    *loss = yoke_tree_sum(losses, step->options.shards);
    return YOKE_OK;
}

void yoke_shards_add_losses(yoke_step *step, const double *losses) {
    if (!step->flight.by_shards || step->flight.loss_on_root) return;
    for (int k = 0; k < step->count; k++)
        if (step->lanes[k].round < yoke_deal_shards(step, k)) *loss_of(step, k) = losses[k];
    if (yoke_flight_is_last(&step->flight)) step->flight.result.loss = loss_of_all(step);
}

/* In the last round the other lanes read `done` already. */
void yoke_shards_end_round(yoke_step *step, int index) {
    yoke_lane *lane = &step->lanes[index];
    const yoke_loss_scalars *scalars = lane->memory->on_host;
    bool has_rows = lane->shard.rows > 0;
    *loss_of(step, index) = has_rows ? scalars->loss_sum : 0;
    lane->done.loss += *loss_of(step, index);
    lane->done.correct += has_rows ? (int)scalars->correct : 0;
    lane->done.rows += lane->shard.rows;
}

void yoke_shards_add_lanes(yoke_step *step) {
    yoke_step_result *sum = &step->flight.result;
    for (int k = 0; k < step->count; k++) {
        yoke_shards_end_round(step, k);
        sum->correct += step->lanes[k].done.correct;
        sum->rows += step->lanes[k].done.rows;
    }
    sum->loss = loss_of_all(step);
}
