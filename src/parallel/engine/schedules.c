/* SPDX-License-Identifier: Apache-2.0 */
/* The schedules: each is a list of stages. classic is nn.DataParallel phase by phase, also in the
 * schedule python, whose stages cost what Python's do (interpreter.c); overlap is the same
 * arithmetic without the waits, and it is DistributedDataParallel, too: only what the exchange does
 * with a finished bucket differs. */
#include "parallel/engine/schedules.h"

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
    step->reach.gradient = YOKE_LOSS_OUTPUT;
    return yoke_exchange_begin(step->exchange, step->flight.learning_rate);
}

static yoke_status begin_lanes(yoke_step *step) {
    TRY(yoke_record_lanes(step, step->flight.batch.rows, true));
    yoke_count_forward(step);
    return YOKE_OK;
}

/* Only the last micro-batch has an exchange; the others accumulate (DDP's no_sync). */
static yoke_exchange *exchange_of(const yoke_step *step) {
    return yoke_flight_is_last(&step->flight) ? step->exchange : NULL;
}

static yoke_status announce_loss(yoke_step *step, int lane) {
    return yoke_exchange_loss(exchange_of(step), lane);
}

static yoke_status backward_and_exchange(yoke_step *step, int lane) {
    return yoke_lane_backward(step, lane, exchange_of(step));
}

static yoke_status finish_exchange(yoke_step *step, int lane) {
    yoke_exchange *exchange = exchange_of(step);
    return exchange != NULL ? exchange->kind->finish(exchange, lane) : YOKE_OK;
}

/* Every lane, in DataParallel as in DDP. DataParallel reduces a finished bucket to the root,
 * updates it there and publishes it; DDP all-reduces it, and every rank updates itself. */
static const yoke_lane_stage lane_of_overlap[] = {
    {YOKE_STAGE_FORWARD, yoke_lane_forward_or_nan, true},
    {YOKE_STAGE_LOSS, yoke_lane_loss, true},
    {YOKE_STAGE_LOSS, announce_loss, true},
    {YOKE_STAGE_BACKWARD, backward_and_exchange, true},
    {YOKE_STAGE_EXCHANGE, finish_exchange, false},
    {YOKE_NO_STAGE, NULL, false},
};

static yoke_status train_lane(yoke_step *step, int lane) {
    return yoke_lane_run(step, lane, lane_of_overlap, exchange_of(step));
}

static yoke_status settle(yoke_step *step) {
    return yoke_settle(step, step->steps);
}

static yoke_status end_exchange(yoke_step *step) {
    yoke_exchange_complete(step->exchange);
    return yoke_ranks_add_results(step);
}

static yoke_status check_gradient(yoke_step *step) {
    TRY(yoke_exchange_check(step->exchange));
    yoke_count_update(step);
    return YOKE_OK;
}

static const yoke_stage_def begins = {.stage = YOKE_NO_STAGE, .work = begin_exchange};
static const yoke_stage_def train = {.stage = YOKE_STAGE_BACKWARD,
                                     .what = "step",
                                     .place = YOKE_ON_LANES,
                                     .begin = begin_lanes,
                                     .lane = train_lane,
                                     .lane_stages = lane_of_overlap};
static const yoke_stage_def settles = {.stage = YOKE_NO_STAGE, .work = settle};
static const yoke_stage_def ends = {.stage = YOKE_NO_STAGE, .work = end_exchange};
static const yoke_stage_def checks = {.stage = YOKE_NO_STAGE, .work = check_gradient};

static const yoke_schedule_def overlap = {
    .begin = STAGES{&begins, NULL},
    .micro_batch = STAGES{&yoke_stage_scatter, &yoke_stage_replicate_weights, &train,
                          &yoke_stage_keep_statistics, &yoke_stage_gather, &settles, NULL},
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
    return yoke_record_lanes(step, step->flight.batch.rows, false);
}

static const yoke_lane_stage lane_of_evaluation[] = {
    {YOKE_STAGE_FORWARD, yoke_lane_forward, true},
    {YOKE_STAGE_LOSS, yoke_lane_loss, true},
    {YOKE_NO_STAGE, NULL, false},
};

static yoke_status evaluate_lane(yoke_step *step, int lane) {
    return yoke_lane_run(step, lane, lane_of_evaluation, NULL);
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

static int add_stage(yoke_stage stage, yoke_stage *stages, int capacity, int count) {
    if (stage == YOKE_NO_STAGE) return count;
    if (count < capacity) stages[count] = stage;
    return count + 1;
}

static int add_lane_stages(const yoke_lane_stage *list, yoke_stage *stages, int capacity,
                           int count) {
    for (int i = 0; list[i].work != NULL; i++)
        if (i == 0 || list[i].stage != list[i - 1].stage)
            count = add_stage(list[i].stage, stages, capacity, count);
    return count;
}

int yoke_schedule_stages(yoke_schedule schedule, yoke_stage *stages, int capacity) {
    if ((int)schedule < 0 || schedule > YOKE_SCHEDULE_PYTHON || (stages == NULL && capacity > 0))
        return 0;
    const yoke_schedule_def *of = schedules[schedule];
    const yoke_stage_def *const *lists[] = {of->begin, of->micro_batch, of->end};
    int count = 0;
    for (int i = 0; i < 3; i++)
        for (const yoke_stage_def *const *stage = lists[i]; *stage != NULL; stage++)
            count = (*stage)->lane_stages != NULL
                        ? add_lane_stages((*stage)->lane_stages, stages, capacity, count)
                        : add_stage((*stage)->stage, stages, capacity, count);
    return count;
}

const yoke_schedule_def *yoke_training_schedule(const yoke_step *step, bool by_host) {
    return by_host ? &custom_loss : schedules[step->options.schedule];
}

const yoke_schedule_def *yoke_evaluation_schedule(bool by_host) {
    return by_host ? &evaluation_by_host : &evaluation;
}
