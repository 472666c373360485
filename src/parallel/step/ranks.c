/* SPDX-License-Identifier: Apache-2.0 */
/* The ranks in a step: where each one's rows lie in the whole batch, and the sum of their results.
 */
#include "parallel/step/ranks.h"

#include "parallel/step/flight.h"
#include "parallel/step/lanes.h"
#include "parallel/step/runner.h"
#include "parallel/step/shards.h"

yoke_status yoke_ranks_share_floats(yoke_step *step, float *values, size_t count) {
    if (count == 0) return YOKE_OK;
    TRY(yoke_lanes_synchronize(step));
    return yoke_process_group_broadcast(step->ranks.process_group, values, count,
                                        YOKE_ELEMENT_FLOAT32, 0);
}

/* In evaluation rank 0's running statistics stand for all, as in a forward of DDP. */
yoke_status yoke_ranks_share_buffers(yoke_step *step) {
    yoke_ranks *ranks = &step->ranks;
    if (ranks->buffers_are_equal || step->options.own_buffers) return YOKE_OK;
    TRY(yoke_ranks_share_floats(step, step->lanes[0].memory->buffers, step->flat->buffer_elements));
    ranks->buffers_are_equal = true;
    return YOKE_OK;
}

yoke_status yoke_ranks_report(const yoke_step *step, yoke_status status) {
    if (step == NULL || status == YOKE_ERROR_NUMERIC) return status;
    return yoke_process_group_abort(step->ranks.process_group, status);
}

/* A batch. */

/* Where this rank's rows begin in the whole batch, by all ranks' rows. */
static yoke_status place_by_rows(yoke_step *step, const int64_t *rows) {
    const yoke_ranks *ranks = &step->ranks;
    int64_t before = 0, all = 0;
    for (int rank = 0; rank < ranks->world; rank++) {
        if (rank == ranks->rank) before = all;
        all += rows[rank];
    }
    if (all < 1 || all > step->options.batch)
        return FAIL(YOKE_ERROR_ARGUMENT,
                    "a batch of %lld rows over %d ranks: these engines were made for 1 to %d",
                    (long long)all, ranks->world, step->options.batch);
    step->flight.first_row = (int)before;
    step->flight.whole_rows = (int)all;
    return YOKE_OK;
}

/* The batch says where this rank's rows begin, or the ranks gather their counts. With
 * synchronised batch norm a rank goes through as many micro-batches as the others, the last ones
 * without rows. */
static yoke_status place_rows(yoke_step *step, const yoke_batch *batch) {
    const yoke_ranks *ranks = &step->ranks;
    yoke_flight *flight = &step->flight;
    flight->first_row = batch->first_row;
    flight->whole_rows = batch->whole_rows > 0 ? batch->whole_rows : batch->rows;
    bool is_placed = batch->whole_rows > 0;
    bool counts = step->sync_norm != NULL && flight->training && flight->parts > 1;
    if (ranks->world == 1 || (is_placed && !counts)) return YOKE_OK;
    int64_t own = batch->rows, rows[YOKE_AGREE_RANKS];
    TRY(yoke_process_group_all_gather(ranks->process_group, rows, &own, 1, YOKE_ELEMENT_INT64));
    for (int rank = 0; counts && rank < ranks->world; rank++) {
        int micros = yoke_flight_micros((int)rows[rank], flight->parts);
        if (micros > flight->micros) flight->micros = micros;
    }
    return is_placed ? YOKE_OK : place_by_rows(step, rows);
}

/* What divides the loss: the rows of the whole batch, or the weights of its labels, of which each
 * rank knows its own. Sums of float32 weights in double are exact unless weights differ by many
 * orders of magnitude, so the number of ranks does not matter. */
static yoke_status weigh_batch(yoke_step *step, const yoke_batch *batch) {
    const yoke_ranks *ranks = &step->ranks;
    yoke_flight *flight = &step->flight;
    double weights[YOKE_AGREE_RANKS];
    bool weighs = yoke_model_weighs_labels(step->model) && batch->mixes == NULL;
    double labels = (double)flight->whole_rows * (double)step->limits.positions;
    flight->whole_weight = batch->whole_weight > 0 ? batch->whole_weight : labels;
    flight->is_weighed = batch->whole_weight > 0 || !weighs || flight->training;
    if (batch->whole_weight > 0 || !weighs || !flight->training) return YOKE_OK;
    flight->whole_weight = flight->own.weight;
    if (ranks->world == 1) {
        if (flight->whole_rows == flight->rows || batch->labels == NULL) return YOKE_OK;
        return FAIL(YOKE_ERROR_ARGUMENT,
                    "%d rows of a batch of %d: labels weigh differently here, so whole_weight must "
                    "say what the labels of the whole batch weigh",
                    flight->rows, flight->whole_rows);
    }
    TRY(yoke_process_group_all_gather(ranks->process_group, weights, &flight->own.weight, 1,
                                      YOKE_ELEMENT_FLOAT64));
    flight->whole_weight = 0;
    for (int rank = 0; rank < ranks->world; rank++)
        flight->whole_weight += weights[rank];
    return YOKE_OK;
}

yoke_status yoke_ranks_place_batch(yoke_step *step, const yoke_batch *batch) {
    TRY(place_rows(step, batch));
    return weigh_batch(step, batch);
}

/* Counts travel as doubles, exactly. */
enum { LOSS, ROWS, CORRECT, WEIGHT, LABELS, RESULT_NUMBERS };

yoke_status yoke_ranks_add_results(yoke_step *step) {
    const yoke_ranks *ranks = &step->ranks;
    yoke_step_result *sum = &step->flight.result;
    double own[RESULT_NUMBERS] = {sum->loss, sum->rows, sum->correct, sum->weight, sum->labels};
    double all[YOKE_AGREE_RANKS][RESULT_NUMBERS], losses[YOKE_AGREE_RANKS];
    if (ranks->world == 1) return YOKE_OK;
    yoke_span wait = yoke_wait_begin(YOKE_STAGE_LOAD, YOKE_NO_BUCKET);
    TRY(yoke_process_group_all_gather(ranks->process_group, all, own, RESULT_NUMBERS,
                                      YOKE_ELEMENT_FLOAT64));
    yoke_wait_end(step, 0, &wait);
    *sum = (yoke_step_result){.struct_size = sizeof *sum};
    for (int rank = 0; rank < ranks->world; rank++) {
        losses[rank] = all[rank][LOSS];
        sum->rows += (int)all[rank][ROWS];
        sum->correct += (int)all[rank][CORRECT];
        sum->weight += all[rank][WEIGHT];
        sum->labels += (int)all[rank][LABELS];
    }
    sum->loss = yoke_tree_sum(losses, ranks->world);
    bool blocks = step->flight.by_shards && !step->shards.plain && !step->flight.loss_on_root;
    return blocks ? yoke_shards_gather_losses(step, &sum->loss) : YOKE_OK;
}
