/* SPDX-License-Identifier: Apache-2.0 */
#include "train/rank_shares.h"

#include <math.h>
#include <stdio.h>

#include "train/record.h"
#include "train/resize.h"
#include "train/trainer_parts.h"

#define EVERY 16 /* steps between two comparisons */
/* A new deal has to be so much faster: noise moves no shards. */
#define CLEARLY 0.95

bool yoke_rank_shares_are_due(const yoke_run *run) {
    return run->ranks != NULL && run->engine.auto_shares && run->at.step > 0 &&
           run->at.step % EVERY == 0;
}

void yoke_rank_shares_forget(yoke_run *run) {
    if (!run->engine.auto_shares) return;
    run->engine.shares = NULL;
    run->engine.share_count = 0;
}

/* How long the slowest rank takes with these options, where rank k computes speeds[k] shards in a
 * second. counts: the shards of each. */
static double slowest(const yoke_data_parallel_options *options, int world, const double *speeds,
                      double *counts) {
    double most = 0;
    for (int rank = 0; rank < world; rank++) {
        counts[rank] = yoke_shards_dealt(options, world, rank).rows;
        most = fmax(most, counts[rank] / speeds[rank]);
    }
    return most;
}

/* better: whether the counts of shards that the speeds ask for are clearly faster than these. */
static yoke_status weigh(const yoke_run *run, double *counts, bool *better) {
    int world = yoke_process_group_world(run->ranks);
    double own = yoke_data_parallel_seconds(run->parallel);
    double seconds[YOKE_PEERS_LIMIT], speeds[YOKE_PEERS_LIMIT];
    *better = false;
    TRY(yoke_process_group_all_gather(run->ranks, seconds, &own, 1, YOKE_ELEMENT_FLOAT64));
    for (int rank = 0; rank < world; rank++) {
        if (!(seconds[rank] > 0)) return YOKE_OK; /* its steps are too few */
        speeds[rank] = yoke_shards_dealt(&run->engine, world, rank).rows / seconds[rank];
    }
    yoke_data_parallel_options next = run->engine;
    next.shares = speeds;
    next.share_count = world;
    double now = slowest(&run->engine, world, speeds, counts);
    *better = slowest(&next, world, speeds, counts) < CLEARLY * now;
    return YOKE_OK;
}

/* "shards of the ranks from step 32, by measured speed: 6 + 2" */
static void report(yoke_trainer *trainer) {
    const yoke_run *run = &trainer->run;
    char text[80 + YOKE_PEERS_LIMIT * 8];
    int length =
        snprintf(text, sizeof text, "shards of the ranks from step %llu, by measured speed: ",
                 (unsigned long long)run->at.step);
    for (int rank = 0; rank < run->engine.share_count; rank++)
        length += snprintf(text + length, sizeof text - (size_t)length, "%s%g",
                           rank == 0 ? "" : " + ", run->rank_shares[rank]);
    yoke_event event = {.kind = YOKE_EVENT_RESIZED, .accuracy = -1, .text = text};
    yoke_trainer_record(trainer, &event);
}

yoke_status yoke_rank_shares_compare(yoke_trainer *trainer, bool *dealt) {
    yoke_run *run = &trainer->run;
    double counts[YOKE_PEERS_LIMIT];
    TRY(weigh(run, counts, dealt));
    if (!*dealt) return YOKE_OK;
    run->engine.shares = run->rank_shares;
    run->engine.share_count = yoke_process_group_world(run->ranks);
    for (int rank = 0; rank < run->engine.share_count; rank++)
        run->rank_shares[rank] = counts[rank];
    TRY(yoke_resize_engine(trainer));
    report(trainer);
    return YOKE_OK;
}
