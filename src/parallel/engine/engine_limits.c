/* SPDX-License-Identifier: Apache-2.0 */
/* The options of an engine, and the sizes that follow from them. */
#include <stdlib.h>

#include "parallel/engine/engine_parts.h"

#define QUEUED_BUCKET_BYTES ((size_t)25 << 20)
#define DEADLINE_MOST 1e6

/* An enumeration of the options, whose values are 0 to `last`. */
static yoke_status check_choice(const char *name, int value, int last) {
    if (value >= 0 && value <= last) return YOKE_OK;
    return FAIL(YOKE_ERROR_ARGUMENT, "%s is %d: it is one of yoke_%s", name, value, name);
}

/* What an engine that only predicts leaves out. */
static yoke_status check_inference(const yoke_data_parallel_options *own) {
    const char *other = own->schedule != YOKE_SCHEDULE_OVERLAP ? "schedule"
                        : own->accumulate > 1                  ? "accumulate"
                        : own->input_gradients                 ? "input_gradients"
                        : own->group_count > 0                 ? "groups"
                        : own->shards > 0                      ? "shards"
                        : own->process_group != NULL           ? "process_group"
                        : own->ema_decay != 0                  ? "ema_decay"
                                                               : NULL;
    if (!own->inference || other == NULL) return YOKE_OK;
    return FAIL(YOKE_ERROR_ARGUMENT,
                "inference with %s: an engine that only predicts has no use for it; leave it out",
                other);
}

yoke_status yoke_engine_load_options(yoke_step *step, const yoke_data_parallel_options *options,
                                     const yoke_optimizer_options *optimizer) {
    yoke_data_parallel_options *own = &step->options;
    TRY(yoke_options_load(own, sizeof *own, options, "yoke_data_parallel_options"));
    TRY(yoke_optimizer_options_load(&step->optimizer_options, optimizer));
    if (own->accumulate == 0) own->accumulate = 1;
    if (own->batch < 1)
        return FAIL(YOKE_ERROR_ARGUMENT, "batch is %d: it must be at least 1", own->batch);
    if (own->accumulate < 1 || own->accumulate > own->batch)
        return FAIL(YOKE_ERROR_ARGUMENT, "accumulate is %d: 1 to the batch's %d rows",
                    own->accumulate, own->batch);
    if (own->input_gradients && own->accumulate > 1)
        return FAIL(YOKE_ERROR_ARGUMENT,
                    "input_gradients with accumulate %d: they are those of one micro-batch; leave "
                    "accumulate at 1",
                    own->accumulate);
    if (!(own->measure_seconds >= 0))
        return FAIL(YOKE_ERROR_ARGUMENT,
                    "measure_seconds is %g: it must be at least 0; 0: no limit",
                    own->measure_seconds);
    if (!(own->deadline >= 0 && own->deadline <= DEADLINE_MOST))
        return FAIL(YOKE_ERROR_ARGUMENT, "deadline is %g s: above 0, or 0 for none; %g at most",
                    own->deadline, DEADLINE_MOST);
    if (own->activation_checkpointing && own->synchronize_batch_norm)
        return FAIL(YOKE_ERROR_ARGUMENT,
                    "activation_checkpointing with synchronize_batch_norm: statistics of all "
                    "devices would be taken twice; leave one of the two out");
    TRY(check_inference(own));
    TRY(check_choice("schedule", (int)own->schedule, YOKE_SCHEDULE_PYTHON));
    TRY(check_choice("precision", (int)own->precision, YOKE_FLOAT16));
    TRY(check_choice("algorithm", (int)own->algorithm, YOKE_ALGORITHM_FASTEST));
    return yoke_loss_scaler_open(step);
}

/* On devices that queue, a segment costs launches: buckets are DDP's there, and one device alone
 * needs no more than one. With shards they do not depend on the number of devices. */
static void set_buckets(yoke_step *step) {
    yoke_data_parallel_options *own = &step->options;
    if (!step->queued || own->bucket_bytes > 0) return;
    bool alone = step->count * step->ranks.world == 1 && own->shards == 0;
    own->bucket_bytes = alone ? SIZE_MAX : QUEUED_BUCKET_BYTES;
    if (alone && own->first_bucket_bytes == 0) own->first_bucket_bytes = SIZE_MAX;
}

/* This process's rows of the largest batch. */
yoke_status yoke_engine_set_limits(yoke_step *step) {
    const yoke_data_parallel_options *options = &step->options;
    yoke_batch_limits *limits = &step->limits;
    bool shards = options->shards > 0;
    int own = step->ranks.world > 1 ? yoke_deal_shards(step, 0) : options->shards;
    limits->rows = shards ? yoke_chunk_span(options->batch, options->shards, 0, own).rows
                          : yoke_shard_rows(options->batch, step->ranks.world, 0);
    if (options->accumulate > limits->rows)
        return FAIL(YOKE_ERROR_ARGUMENT, "accumulate is %d: a rank has %d of the batch's %d rows",
                    options->accumulate, limits->rows, options->batch);
    limits->micro_rows = shards ? yoke_shard_rows(options->batch, options->shards, 0) * step->count
                                : yoke_shard_rows(limits->rows, options->accumulate, 0);
    yoke_operation loss;
    TRY(yoke_model_loss_operation(step->model, &loss)); /* ARGUMENT: it is not finished */
    TRY(yoke_models_open(step));
    yoke_models_set_limits(step);
    set_buckets(step);
    if (!step->queued) return YOKE_OK;
    size_t labels = (size_t)limits->rows * limits->positions;
    step->labels = yoke_calloc(labels, sizeof *step->labels);
    return step->labels != NULL ? YOKE_OK : FAIL_MEMORY(labels * sizeof *step->labels, "labels");
}
