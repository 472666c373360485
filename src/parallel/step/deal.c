/* SPDX-License-Identifier: Apache-2.0 */
/* Which rows, or shards, each device computes. */
#include "parallel/step/deal.h"

#include <math.h>
#include <string.h>

/* A share that is measured is at most so many times an equal one: replicas have memory for it. */
#define MOST_SHARE 2
/* A new deal has to be so much faster: noise moves no rows. */
#define CLEARLY 0.95

static int most(int a, int b) {
    return a > b ? a : b;
}

static int least(int a, int b) {
    return a < b ? a : b;
}

/* Shards. */

int yoke_deal_participants(const yoke_step *step) {
    return step->ranks.world > 1 ? step->ranks.world : step->count;
}

bool yoke_deal_changes(const yoke_step *step) {
    return step->options.auto_shares && step->ranks.world == 1;
}

/* Every participant has one; each further shard goes to the one that would be done with it first.
 * weights: NULL: equal ones. begins[participants + 1]: the first shard of each. */
static void deal_shards(int shards, int participants, const double *weights, int *begins) {
    int counts[YOKE_DEVICES_LIMIT];
    for (int k = 0; k < participants; k++)
        counts[k] = 1;
    for (int dealt = participants; dealt < shards; dealt++) {
        int first = 0;
        for (int k = 1; weights != NULL && k < participants; k++)
            if ((counts[k] + 1) / weights[k] < (counts[first] + 1) / weights[first]) first = k;
        counts[weights != NULL ? first : dealt % participants]++;
    }
    begins[0] = 0;
    for (int k = 0; k < participants; k++)
        begins[k + 1] = begins[k] + counts[k];
}

yoke_chunk yoke_shards_dealt(const yoke_data_parallel_options *options, int world, int rank) {
    int begins[YOKE_DEVICES_LIMIT + 1];
    bool can = world <= YOKE_DEVICES_LIMIT && world <= options->shards;
    if (!can) return (yoke_chunk){0, 0}; /* no engine can be made of these options */
    deal_shards(options->shards, world, options->share_count == world ? options->shares : NULL,
                begins);
    return (yoke_chunk){.first = begins[rank], .rows = begins[rank + 1] - begins[rank]};
}

int yoke_deal_shards(const yoke_step *step, int lane) {
    int participant = step->ranks.rank + lane;
    return step->deal.shards[participant + 1] - step->deal.shards[participant];
}

int yoke_deal_first_shard(const yoke_step *step, int lane) {
    return step->deal.shards[step->ranks.rank + lane];
}

int yoke_deal_rounds(const yoke_step *step) {
    int rounds = 1;
    for (int k = 0; step->options.shards > 0 && k < step->count; k++)
        rounds = most(rounds, yoke_deal_shards(step, k));
    return rounds;
}

/* Rows. */

/* Where the lane's rows begin. Every lane has one before any has two, so that lanes with rows come
 * first. */
static int begin_of(const yoke_deal *deal, int count, int rows, int lane) {
    int begin = 0;
    if (rows < count) return least(lane, rows);
    for (int k = 1; k <= lane; k++) {
        int wanted = (int)lround(rows * deal->begins[k]);
        begin = least(most(wanted, begin + 1), rows - (count - k));
    }
    return begin;
}

static yoke_chunk rows_of(const yoke_deal *deal, int count, int rows, int lane) {
    if (deal->is_equal) return yoke_chunk_of(rows, count, lane);
    int first = begin_of(deal, count, rows, lane);
    return (yoke_chunk){.first = first, .rows = begin_of(deal, count, rows, lane + 1) - first};
}

yoke_chunk yoke_deal_rows(const yoke_step *step, int rows, int lane) {
    return rows_of(&step->deal, step->count, rows, lane);
}

int yoke_deal_most_rows(const yoke_step *step) {
    int rows = step->limits.micro_rows, found = yoke_chunk_of(rows, step->count, 0).rows;
    if (step->options.shards > 0) return found; /* one shard at a time */
    if (yoke_deal_changes(step)) found = least(rows, MOST_SHARE * found);
    /* A batch of fewer rows rounds in another way, by a row at most. */
    for (int k = 0; !step->deal.is_equal && k < step->count; k++)
        found = most(found, least(rows, yoke_deal_rows(step, rows, k).rows + 1));
    return found;
}

/* Dealing. */

/* Lowers the weights that are above the limit, and raises the others by as much, in proportion.
 * Whether one of those is above it now. weights[count] add up to 1. */
static bool lower_weights(int count, double limit, double *weights) {
    double over = 0, rest = 0;
    bool again = false;
    for (int k = 0; k < count; k++) {
        over += weights[k] > limit ? weights[k] - limit : 0;
        rest += weights[k] < limit ? weights[k] : 0;
    }
    if (over == 0 || rest == 0) return false;
    for (int k = 0; k < count; k++) {
        if (weights[k] < limit) {
            weights[k] *= 1 + over / rest;
            again |= weights[k] > limit;
        } else {
            weights[k] = limit;
        }
    }
    return again;
}

static void limit_weights(int count, double *weights) {
    double sum = 0;
    for (int k = 0; k < count; k++)
        sum += weights[k];
    for (int k = 0; k < count; k++)
        weights[k] /= sum;
    while (lower_weights(count, MOST_SHARE / (double)count, weights))
        continue;
}

static void deal_rows(yoke_step *step, const double *given) {
    yoke_deal *deal = &step->deal;
    double weights[YOKE_DEVICES_LIMIT], sum = 0, below = 0;
    memcpy(weights, given, (size_t)step->count * sizeof *weights);
    if (yoke_deal_changes(step)) limit_weights(step->count, weights);
    for (int k = 0; k < step->count; k++)
        sum += weights[k];
    for (int k = 0; k < step->count; k++) {
        deal->begins[k] = below / sum;
        below += weights[k];
    }
    deal->begins[step->count] = 1;
    deal->is_equal = false;
}

/* given: a weight of each participant; NULL: equal ones. With shards, rows by hand are equal: a
 * replica has room for a shard. */
static void deal_by(yoke_step *step, const double *given) {
    yoke_deal *deal = &step->deal;
    deal->is_equal = true;
    if (step->options.shards > 0)
        deal_shards(step->options.shards, yoke_deal_participants(step), given, deal->shards);
    else if (given != NULL)
        deal_rows(step, given);
}

/* A part of a batch: shards, or rows. */
static int part_of(const yoke_step *step, int lane) {
    if (step->options.shards > 0) return yoke_deal_shards(step, lane);
    return yoke_deal_rows(step, step->limits.micro_rows, lane).rows;
}

static double slowest(const yoke_step *step, const double *speeds) {
    double most = 0;
    for (int k = 0; k < step->count; k++)
        most = fmax(most, part_of(step, k) / speeds[k]);
    return most;
}

bool yoke_deal_improve(yoke_step *step, const double *seconds) {
    double speeds[YOKE_DEVICES_LIMIT] = {0};
    yoke_deal before = step->deal;
    for (int k = 0; k < step->count; k++) {
        if (!(seconds[k] > 0)) return false;
        speeds[k] = part_of(step, k) / seconds[k];
    }
    double now = slowest(step, speeds);
    deal_by(step, speeds);
    if (slowest(step, speeds) < CLEARLY * now) return true;
    step->deal = before;
    return false;
}

/* Options. */

static yoke_status check_shares(const yoke_step *step) {
    const yoke_data_parallel_options *options = &step->options;
    const char *who = step->ranks.world > 1 ? "rank" : "device";
    int count = yoke_deal_participants(step);
    if (options->share_count != count)
        return FAIL(YOKE_ERROR_ARGUMENT, "%d shares for %d %s%s: give one for each",
                    options->share_count, count, who, count == 1 ? "" : "s");
    double sum = 0;
    for (int k = 0; k < count; k++) {
        if (!(options->shares[k] > 0 && isfinite(options->shares[k])))
            return FAIL(YOKE_ERROR_ARGUMENT, "the share of %s %d is %g: it must be above 0", who, k,
                        options->shares[k]);
        sum += options->shares[k];
    }
    int parts = options->shards > 0 ? options->shards : options->batch / options->accumulate;
    for (int k = 0; k < count; k++)
        if (parts * options->shares[k] / sum < 0.5)
            return FAIL(YOKE_ERROR_ARGUMENT,
                        "the share of %s %d is %g of %g: it leaves the %s without %s of %d; leave "
                        "the %s out",
                        who, k, options->shares[k], sum, who,
                        options->shards > 0 ? "shards" : "rows", parts, who);
    return YOKE_OK;
}

static yoke_status check_options(const yoke_step *step) {
    const yoke_data_parallel_options *options = &step->options;
    if (options->process_group != NULL && options->shards == 0)
        return FAIL(YOKE_ERROR_ARGUMENT, "shares of ranks are whole shards: give shards, too. "
                                         "Without them each rank brings as many rows as its batch "
                                         "has, and yoke_batch.whole_rows says of how many");
    if (options->shards > 0 && step->queued)
        return FAIL(YOKE_ERROR_ARGUMENT, "shares of whole shards are for CPU devices: GPUs share "
                                         "rows, without shards");
    if (options->synchronize_batch_norm && options->auto_shares)
        return FAIL(YOKE_ERROR_ARGUMENT,
                    "auto_shares with synchronize_batch_norm: devices wait for each other in every "
                    "batch norm, so that none is measured alone; give shares");
    return YOKE_OK;
}

yoke_status yoke_deal_create(yoke_step *step) {
    yoke_data_parallel_options *options = &step->options;
    const double *shares = options->shares;
    double equal[YOKE_DEVICES_LIMIT]; /* torch.chunk's rule leaves devices without rows */
    for (int k = 0; k < YOKE_DEVICES_LIMIT; k++)
        equal[k] = 1;
    bool asked = shares != NULL || options->share_count != 0 || options->auto_shares;
    if (asked) TRY(check_options(step));
    if (shares != NULL || options->share_count != 0) {
        if (shares == NULL)
            return FAIL(YOKE_ERROR_ARGUMENT, "share_count is %d, and shares is NULL",
                        options->share_count);
        TRY(check_shares(step));
    }
    deal_by(step, shares == NULL && options->auto_shares ? equal : shares);
    options->shares = NULL; /* may be gone after create */
    return YOKE_OK;
}
