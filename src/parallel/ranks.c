/* SPDX-License-Identifier: Apache-2.0 */
/* The ranks of DDP: comparing, following rank 0, placing batches, adding results. */
#include "parallel/ranks.h"

#include <stdio.h>
#include <stdlib.h>

#include "parallel/engine.h"

/* What must be alike. */

static void write_options(FILE *facts, const yoke_data_parallel *parallel) {
    char ways[YOKE_WAYS_BYTES];
    yoke_ways_write(yoke_device_ways(yoke_devices_at(parallel->devices, 0)), ways, sizeof ways);
    yoke_options_write_agreed(facts, &yoke_engine_options, parallel);
    fprintf(facts, "ways \"%s\"\n", ways);
    yoke_groups_write(facts, &parallel->groups);
}

static void write_tensors(FILE *facts, const yoke_model *model) {
    char loss[YOKE_LOSS_TEXT_BYTES];
    yoke_operation operation = {0};
    (void)yoke_model_loss_operation(model, &operation); /* the model is finished */
    fprintf(facts, "loss %s, label smoothing %.17g\n", yoke_model_loss_text(model, loss),
            operation.label_smoothing);
    for (int i = 0; i < yoke_model_tensor_count(model); i++) {
        yoke_tensor_info info = {.struct_size = sizeof info};
        if (yoke_model_tensor(model, i, &info) != YOKE_OK) continue;
        fprintf(facts, "%s [", info.name);
        for (int d = 0; d < info.ndim; d++)
            fprintf(facts, "%s%lld", d > 0 ? ", " : "", (long long)info.shape[d]);
        fprintf(facts, "]\n");
    }
}

/* Another processor may prefer another layout: its gradients could not be added to ours. */
static void write_layouts(FILE *facts, const yoke_data_parallel *parallel) {
    for (int i = 0; i < parallel->flat->parameter_count; i++) {
        const yoke_parameter *parameter = &parallel->flat->parameters[i];
        fprintf(facts, "parameter %d at %zu in layout %016llx\n", parameter->tensor,
                parameter->offset, (unsigned long long)yoke_layout_digest(&parameter->layout));
    }
}

static yoke_status compare(const yoke_data_parallel *parallel, bool layouts) {
    char *text = NULL;
    size_t bytes = 0;
    FILE *facts = open_memstream(&text, &bytes);
    if (facts == NULL) return FAIL_MEMORY(4096, "what the ranks must agree on");
    if (layouts) {
        write_layouts(facts, parallel);
    } else {
        write_options(facts, parallel);
        write_tensors(facts, parallel->model);
    }
    bool complete = fclose(facts) == 0;
    yoke_status status = complete ? yoke_ranks_agree(parallel->ranks.process_group, text)
                                  : FAIL_MEMORY(bytes, "what the ranks must agree on");
    free(text);
    return status;
}

yoke_status yoke_ranks_compare_layouts(const yoke_data_parallel *parallel) {
    return parallel->ranks.world > 1 ? compare(parallel, true) : YOKE_OK;
}

yoke_status yoke_ranks_join(yoke_data_parallel *parallel) {
    const yoke_data_parallel_options *options = &parallel->options;
    yoke_ranks *ranks = &parallel->ranks;
    *ranks = (yoke_ranks){
        .process_group = options->process_group, .world = 1, .buffers_are_equal = true};
    if (ranks->process_group == NULL) return YOKE_OK;
    ranks->rank = yoke_process_group_rank(ranks->process_group);
    ranks->world = yoke_process_group_world(ranks->process_group);
    if (parallel->count > 1)
        return FAIL(YOKE_ERROR_ARGUMENT,
                    "%d devices in rank %d: a rank of DDP has one device; start more ranks",
                    parallel->count, ranks->rank);
    if (yoke_steps_by_phases(parallel))
        return FAIL(YOKE_ERROR_ARGUMENT,
                    "the %s schedule is nn.DataParallel's: DDP has overlap and sharded",
                    options->schedule == YOKE_SCHEDULE_CLASSIC ? "classic" : "python");
    if (options->schedule == YOKE_SCHEDULE_SHARDED && parallel->queued)
        return FAIL(YOKE_ERROR_ARGUMENT,
                    "DDP's sharded schedule is for CPU devices of one machine");
    return compare(parallel, false);
}

/* Rank 0 decides. It measures while the others wait, and says so between its measurements: each of
 * their waits is short, and rank 0 notices a rank that has stopped. */

enum { MEASURING, MEASURED };

/* Between two words: short beside a deadline, long beside a measurement. */
static uint64_t pause_ns(const yoke_process_group *group) {
    const uint64_t least = 100000000u, most = 1000000000u;
    uint64_t pause = (uint64_t)yoke_process_group_timeout(group) * 1000000u / 20;
    return pause < least ? least : pause > most ? most : pause;
}

static yoke_status share_word(yoke_ranks *ranks, int64_t *word) {
    TRY(yoke_process_group_broadcast(ranks->process_group, word, 1, YOKE_ELEMENT_INT64, 0));
    ranks->said_ns = yoke_now_ns();
    return YOKE_OK;
}

/* A yoke_choices_hook. */
static yoke_status say_measuring(void *context) {
    yoke_ranks *ranks = context;
    int64_t word = MEASURING;
    if (yoke_now_ns() - ranks->said_ns < pause_ns(ranks->process_group)) return YOKE_OK;
    return share_word(ranks, &word);
}

static yoke_status hear_measured(yoke_ranks *ranks) {
    int64_t word = MEASURING;
    while (word == MEASURING)
        TRY(share_word(ranks, &word));
    return YOKE_OK;
}

yoke_status yoke_ranks_await_choices(yoke_data_parallel *parallel) {
    yoke_ranks *ranks = &parallel->ranks;
    char *text = NULL;
    if (ranks->process_group == NULL) return YOKE_OK;
    if (ranks->rank == 0) {
        ranks->said_ns = yoke_now_ns();
        yoke_choices_watch(parallel->choices, say_measuring, ranks);
        return YOKE_OK;
    }
    yoke_process_group_patience(ranks->process_group, true);
    yoke_status status = hear_measured(ranks);
    yoke_process_group_patience(ranks->process_group, false);
    if (status == YOKE_OK) status = yoke_ranks_share_text(ranks->process_group, &text);
    if (status == YOKE_OK) status = yoke_choices_read(parallel->choices, text);
    free(text);
    return status;
}

yoke_status yoke_ranks_send_choices(yoke_data_parallel *parallel) {
    yoke_ranks *ranks = &parallel->ranks;
    int64_t word = MEASURED;
    char *text = NULL;
    if (ranks->process_group == NULL || ranks->rank > 0) return YOKE_OK;
    yoke_choices_watch(parallel->choices, NULL, NULL);
    TRY(share_word(ranks, &word));
    yoke_status status = yoke_choices_write(parallel->choices, &text);
    if (status == YOKE_OK) status = yoke_ranks_share_text(ranks->process_group, &text);
    free(text);
    return status;
}

static yoke_status share_floats(yoke_data_parallel *parallel, float *values, size_t count) {
    if (count == 0) return YOKE_OK;
    TRY(yoke_lanes_synchronize(parallel));
    return yoke_process_group_broadcast(parallel->ranks.process_group, values, count,
                                        YOKE_ELEMENT_FLOAT32, 0);
}

/* In evaluation rank 0's running statistics stand for all, as in a forward of DDP. */
yoke_status yoke_ranks_share_buffers(yoke_data_parallel *parallel) {
    yoke_ranks *ranks = &parallel->ranks;
    if (ranks->buffers_are_equal || !parallel->options.broadcast_buffers) return YOKE_OK;
    TRY(share_floats(parallel, parallel->lanes[0].memory->buffers,
                     parallel->flat->buffer_elements));
    ranks->buffers_are_equal = true;
    return YOKE_OK;
}

static yoke_status share_state(yoke_data_parallel *parallel) {
    const yoke_replica_memory *memory = parallel->lanes[0].memory;
    int64_t tracked = (int64_t)parallel->batches_tracked;
    yoke_replica_renew_shadow(parallel->lanes[0].replica);
    TRY(share_floats(parallel, memory->parameters, parallel->flat->elements));
    TRY(share_floats(parallel, memory->buffers, parallel->flat->buffer_elements));
    TRY(yoke_process_group_broadcast(parallel->ranks.process_group, &tracked, 1, YOKE_ELEMENT_INT64,
                                     0));
    parallel->batches_tracked = (uint64_t)tracked;
    parallel->weights_version++;
    parallel->buffers_version++;
    parallel->ranks.buffers_are_equal = true;
    return YOKE_OK;
}

yoke_status yoke_data_parallel_synchronize(yoke_data_parallel *parallel) {
    TRY(yoke_enter_settled(parallel, "yoke_data_parallel_synchronize"));
    if (parallel->ranks.world == 1) return yoke_leave(parallel, YOKE_OK);
    return yoke_leave(parallel, yoke_ranks_report(parallel, share_state(parallel)));
}

yoke_status yoke_ranks_report(const yoke_data_parallel *parallel, yoke_status status) {
    if (parallel == NULL || status == YOKE_ERROR_NUMERIC) return status;
    return yoke_process_group_abort(parallel->ranks.process_group, status);
}

/* A batch. */

/* Where this rank's rows begin in the whole batch, by all ranks' rows. */
static yoke_status place_by_rows(yoke_data_parallel *parallel, const int64_t *rows) {
    const yoke_ranks *ranks = &parallel->ranks;
    int64_t before = 0, all = 0;
    for (int rank = 0; rank < ranks->world; rank++) {
        if (rank == ranks->rank) before = all;
        all += rows[rank];
    }
    if (all < 1 || all > parallel->options.batch)
        return FAIL(YOKE_ERROR_ARGUMENT,
                    "a batch of %lld rows over %d ranks: these engines were made for 1 to %d",
                    (long long)all, ranks->world, parallel->options.batch);
    parallel->flight.first_row = (int)before;
    parallel->flight.whole_rows = (int)all;
    return YOKE_OK;
}

/* The batch says where this rank's rows begin, or the ranks gather their counts. With
 * synchronised batch norm a rank goes through as many micro-batches as the others, the last ones
 * without rows. */
static yoke_status place_rows(yoke_data_parallel *parallel, const yoke_batch *batch) {
    const yoke_ranks *ranks = &parallel->ranks;
    yoke_flight *flight = &parallel->flight;
    flight->first_row = batch->first_row;
    flight->whole_rows = batch->whole_rows > 0 ? batch->whole_rows : batch->rows;
    bool is_placed = batch->whole_rows > 0;
    bool counts = parallel->sync_norm != NULL && flight->training && flight->parts > 1;
    if (ranks->world == 1 || (is_placed && !counts)) return YOKE_OK;
    int64_t own = batch->rows, rows[YOKE_AGREE_RANKS];
    TRY(yoke_process_group_all_gather(ranks->process_group, rows, &own, 1, YOKE_ELEMENT_INT64));
    for (int rank = 0; counts && rank < ranks->world; rank++) {
        int micros = yoke_flight_micros((int)rows[rank], flight->parts);
        if (micros > flight->micros) flight->micros = micros;
    }
    return is_placed ? YOKE_OK : place_by_rows(parallel, rows);
}

/* What divides the loss: the rows of the whole batch, or the weights of its labels, of which each
 * rank knows its own. Sums of float32 weights in double are exact unless weights differ by many
 * orders of magnitude, so the number of ranks does not matter. */
static yoke_status weigh_batch(yoke_data_parallel *parallel, const yoke_batch *batch) {
    const yoke_ranks *ranks = &parallel->ranks;
    yoke_flight *flight = &parallel->flight;
    double weights[YOKE_AGREE_RANKS];
    bool weighs = yoke_model_weighs_labels(parallel->model) && batch->mixes == NULL;
    double labels = (double)flight->whole_rows * (double)parallel->limits.positions;
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

yoke_status yoke_ranks_place_batch(yoke_data_parallel *parallel, const yoke_batch *batch) {
    TRY(place_rows(parallel, batch));
    return weigh_batch(parallel, batch);
}

/* Counts travel as doubles, exactly. */
enum { LOSS, ROWS, CORRECT, WEIGHT, LABELS, RESULT_NUMBERS };

yoke_status yoke_ranks_add_results(yoke_data_parallel *parallel) {
    const yoke_ranks *ranks = &parallel->ranks;
    yoke_step_result *sum = &parallel->flight.result;
    double own[RESULT_NUMBERS] = {sum->loss, sum->rows, sum->correct, sum->weight, sum->labels};
    double all[YOKE_AGREE_RANKS][RESULT_NUMBERS], losses[YOKE_AGREE_RANKS];
    if (ranks->world == 1) return YOKE_OK;
    yoke_wait wait = {yoke_trace_now(), YOKE_STAGE_LOAD, YOKE_NO_BUCKET};
    TRY(yoke_process_group_all_gather(ranks->process_group, all, own, RESULT_NUMBERS,
                                      YOKE_ELEMENT_FLOAT64));
    yoke_wait_end(parallel, 0, &wait);
    *sum = (yoke_step_result){.struct_size = sizeof *sum};
    for (int rank = 0; rank < ranks->world; rank++) {
        losses[rank] = all[rank][LOSS];
        sum->rows += (int)all[rank][ROWS];
        sum->correct += (int)all[rank][CORRECT];
        sum->weight += all[rank][WEIGHT];
        sum->labels += (int)all[rank][LABELS];
    }
    sum->loss = yoke_tree_sum(losses, ranks->world);
    return YOKE_OK;
}
