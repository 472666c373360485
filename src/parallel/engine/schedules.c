/* SPDX-License-Identifier: Apache-2.0 */
/* The schedules: each is a list of stages. classic is nn.DataParallel phase by phase, also in the
 * schedule python, whose stages cost what Python's do (interpreter.c); overlap is the same
 * arithmetic without the waits, and it is DistributedDataParallel, too: only what the exchange does
 * with a finished bucket differs. */
#include "parallel/engine/schedules.h"

#include "parallel/observers/observers.h"
#include "parallel/stages/stages.h"

#define STAGES (const yoke_stage_def *const[])

static const yoke_schedule_def classic = {
    .begin = STAGES{NULL},
    .micro_batch = STAGES{&yoke_stage_scatter, &yoke_stage_replicate, &yoke_stage_forward,
                          &yoke_stage_gather_to_root, &yoke_stage_loss_on_root, &yoke_stage_gather,
                          &yoke_stage_check_loss, &yoke_stage_scatter_back, &yoke_stage_backward,
                          &yoke_stage_keep_statistics, NULL},
    .end = STAGES{&yoke_stage_reduce, &yoke_stage_update, NULL},
};

/* overlap, sharded and DDP. */

static yoke_status begin_exchange(yoke_step *step) {
    step->reach.gradient = YOKE_OUTPUT_0;
    return yoke_exchange_begin(step->exchange, step->flight.learning_rate);
}

static yoke_status begin_lanes(yoke_step *step) {
    step->flight.loss_only = true;
    step->flight.factors_only = yoke_exchange_takes_factors(step->exchange);
    TRY(yoke_record_lanes(step, true));
    yoke_count_forward(step);
    return YOKE_OK;
}

/* Every lane, in DataParallel as in DDP. DataParallel reduces a finished bucket to the root,
 * updates it there and publishes it; DDP all-reduces it, and every rank updates itself. Only the
 * last micro-batch has an exchange; the others accumulate (DDP's no_sync). */
static yoke_status compute_shard(yoke_step *step, int lane, yoke_exchange *exchange) {
    bool replayed = false;
    TRY(yoke_lane_replay(step, lane, exchange, &replayed));
    if (replayed) return YOKE_OK;
    TRY(yoke_lane_forward_or_nan(step, lane));
    TRY(yoke_lane_loss(lane, step));
    TRY(yoke_exchange_loss(exchange, lane));
    return yoke_lane_backward(step, lane, exchange);
}

static yoke_status train_lane(int lane, void *context) {
    yoke_step *step = context;
    yoke_exchange *exchange = yoke_flight_is_last(&step->flight) ? step->exchange : NULL;
    TRY(compute_shard(step, lane, exchange));
    return exchange != NULL ? exchange->kind->finish(exchange, lane) : YOKE_OK;
}

/* An update by hand that follows sums gradients. */
static yoke_status end_lanes(yoke_step *step) {
    step->flight.factors_only = false;
    return YOKE_OK;
}

static const yoke_stage lane_stages[] = {YOKE_STAGE_FORWARD, YOKE_STAGE_LOSS, YOKE_STAGE_BACKWARD,
                                         YOKE_STAGE_EXCHANGE, YOKE_NO_STAGE};

/* Where the step before this one turns out to be left out, it is undone with all that this one has
 * queued: this one begins again, with the scale and the count of updates that follow. */
static yoke_status settle(yoke_step *step) {
    TRY(yoke_settle(step, step->steps));
    if (!step->flight.left_out) return YOKE_OK;
    TRY(yoke_flight_begin_again(step));
    TRY(yoke_guard_begin(step, yoke_steps_are_recorded(step)));
    return begin_exchange(step);
}

static yoke_status end_exchange(yoke_step *step) {
    yoke_exchange_complete(step->exchange);
    return yoke_ranks_add_results(step);
}

static yoke_status check_gradient(yoke_step *step) {
    return yoke_guard_end(step, yoke_exchange_check(step->exchange), true);
}

static const yoke_stage_def begins = {.stage = YOKE_NO_STAGE, .work = begin_exchange};
static const yoke_stage_def train = {.stage = YOKE_STAGE_BACKWARD,
                                     .what = "step",
                                     .place = YOKE_ON_LANES,
                                     .begin = begin_lanes,
                                     .lane = train_lane,
                                     .end = end_lanes,
                                     .lane_stages = lane_stages};
static const yoke_stage_def settles = {.stage = YOKE_NO_STAGE, .work = settle};
static const yoke_stage_def ends = {.stage = YOKE_NO_STAGE, .work = end_exchange};
static const yoke_stage_def checks = {.stage = YOKE_NO_STAGE, .work = check_gradient};

static const yoke_schedule_def overlap = {
    .begin = STAGES{&begins, NULL},
    .micro_batch = STAGES{&yoke_stage_scatter, &yoke_stage_replicate_weights, &train,
                          &yoke_stage_keep_statistics, &yoke_stage_gather, &settles, NULL},
    .end = STAGES{&ends, &yoke_stage_check_loss, &checks, NULL},
};

/* overlap and sharded with shards, where lanes share memory: each goes through its own shards
 * without a wait for the others, so that a lane may have more of them. On devices that queue, a
 * round is a micro-batch of all lanes: their clock has room for one. */

static yoke_status begin_rounds(yoke_step *step) {
    yoke_flight_begin_rounds(step);
    step->flight.loss_only = true;
    yoke_count_forward(step);
    return YOKE_OK;
}

/* Computes another lane's shard before the own ones, while nobody reads this lane's gradients. */
static yoke_status audit(yoke_step *step, int index) {
    yoke_lane *lane = &step->lanes[index];
    int shard = yoke_audited_shard(step, index);
    if (shard < 0) return YOKE_OK;
    lane->audits = true;
    lane->shard = yoke_shard_at(step, step->flight.rows, shard);
    yoke_status status = yoke_lane_scatter(index, step);
    if (status == YOKE_OK) status = compute_shard(step, index, NULL);
    lane->audits = false; /* also after a failure: the next step's gradients count */
    TRY(status);
    return index == 0 ? yoke_guard_give_statistics(step) : YOKE_OK;
}

static yoke_status train_rounds(int lane, void *context) {
    yoke_step *step = context;
    yoke_exchange *exchange = step->exchange;
    TRY(audit(step, lane));
    for (int round = 0; round < yoke_deal_shards(step, lane); round++) {
        step->lanes[lane].round = round;
        yoke_flight_cut_round(step, lane);
        TRY(yoke_lane_scatter(lane, step));
        TRY(compute_shard(step, lane, yoke_lane_is_last(step, lane) ? exchange : NULL));
        if (lane == 0) TRY(yoke_shards_keep_statistics(step));
        if (!yoke_lane_is_last(step, lane)) yoke_shards_end_round(step, lane);
    }
    return exchange->kind->finish(exchange, lane);
}

static const yoke_stage_def rounds = {.stage = YOKE_STAGE_BACKWARD,
                                      .what = "step",
                                      .place = YOKE_ON_LANES,
                                      .begin = begin_rounds,
                                      .lane = train_rounds,
                                      .lane_stages = lane_stages};

static const yoke_schedule_def overlap_of_shards = {
    .begin = STAGES{&begins, NULL},
    .micro_batch =
        STAGES{&yoke_stage_replicate_weights, &rounds, &yoke_stage_gather_rounds, &settles, NULL},
    .end = STAGES{&ends, &yoke_stage_check_loss, &checks, NULL},
};

/* classic with the loss on the host. All ranks learn of a loss that is not finite before they
 * reduce. */
static const yoke_stage_def adds_results = {.stage = YOKE_NO_STAGE, .work = yoke_ranks_add_results};

static const yoke_schedule_def custom_loss = {
    .begin = STAGES{NULL},
    .micro_batch =
        STAGES{&yoke_stage_scatter, &yoke_stage_replicate, &yoke_stage_forward,
               &yoke_stage_custom_loss, &yoke_stage_scatter_custom, &yoke_stage_backward, NULL},
    .end =
        STAGES{&adds_results, &yoke_stage_check_loss, &yoke_stage_reduce, &yoke_stage_update, NULL},
};

/* Without learning. */

static yoke_status prepare_lanes(yoke_step *step) {
    const yoke_host_loss *host = step->flight.host;
    step->flight.loss_only = host == NULL || host->rows == NULL || host->rows->outputs[0] == NULL;
    return yoke_record_lanes(step, false);
}

static yoke_status evaluate_lane(int lane, void *context) {
    yoke_step *step = context;
    bool replayed = false;
    TRY(yoke_lane_replay(step, lane, NULL, &replayed));
    if (!replayed) TRY(yoke_lane_forward(lane, step));
    return replayed ? YOKE_OK : yoke_lane_loss(lane, step);
}

static const yoke_stage_def shares_buffers = {.stage = YOKE_NO_STAGE,
                                              .work = yoke_ranks_share_buffers};
static const yoke_stage_def evaluates = {.stage = YOKE_STAGE_EVALUATE,
                                         .place = YOKE_ON_REPLICAS,
                                         .begin = prepare_lanes,
                                         .lane = evaluate_lane};

static const yoke_schedule_def evaluation = {
    .begin = STAGES{&shares_buffers, NULL},
    .micro_batch = STAGES{&yoke_stage_scatter, &yoke_stage_replicate, &evaluates,
                          &yoke_stage_gather, &yoke_stage_gather_wanted, NULL},
    .end = STAGES{&adds_results, NULL},
};

static const yoke_schedule_def evaluation_by_host = {
    .begin = STAGES{&shares_buffers, NULL},
    .micro_batch = STAGES{&yoke_stage_scatter, &yoke_stage_replicate, &yoke_stage_forward,
                          &yoke_stage_custom_loss, NULL},
    .end = STAGES{&adds_results, NULL},
};

/* By name. */

static const yoke_schedule_def *const schedules[] = {[YOKE_SCHEDULE_OVERLAP] = &overlap,
                                                     [YOKE_SCHEDULE_CLASSIC] = &classic,
                                                     [YOKE_SCHEDULE_SHARDED] = &overlap,
                                                     [YOKE_SCHEDULE_PYTHON] = &classic};

int yoke_schedule_stages(yoke_schedule schedule, yoke_stage *stages, int capacity) {
    if ((int)schedule < 0 || schedule > YOKE_SCHEDULE_PYTHON || (stages == NULL && capacity > 0))
        return 0;
    const yoke_schedule_def *of = schedules[schedule];
    const yoke_stage_def *const *lists[] = {of->begin, of->micro_batch, of->end};
    int count = 0;
    for (int i = 0; i < 3; i++)
        for (const yoke_stage_def *const *stage = lists[i]; *stage != NULL; stage++) {
            const yoke_stage alone[] = {(*stage)->stage, YOKE_NO_STAGE};
            const yoke_stage *name = (*stage)->lane_stages;
            for (name = name != NULL ? name : alone; *name != YOKE_NO_STAGE; name++, count++)
                if (count < capacity) stages[count] = *name;
        }
    return count;
}

const yoke_schedule_def *yoke_training_schedule(const yoke_step *step, bool by_host) {
    bool by_rounds = step->options.shards > 0 && !step->queued && !yoke_steps_by_phases(step);
    if (by_host) return &custom_loss;
    return by_rounds ? &overlap_of_shards : schedules[step->options.schedule];
}

const yoke_schedule_def *yoke_evaluation_schedule(bool by_host) {
    return by_host ? &evaluation_by_host : &evaluation;
}
