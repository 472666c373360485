/* SPDX-License-Identifier: Apache-2.0 */
/* What makes the processes of a group train one model: they compare what must be alike, and follow
 * rank 0's algorithms and its weights. */
#include "parallel/engine/agreement.h"

#include <stdio.h>
#include <stdlib.h>

#include "parallel/engine/entry.h"

/* What must be alike. */

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

static yoke_status compare(const yoke_step *step, bool layouts) {
    char *text = NULL, variants[YOKE_VARIANTS_BYTES];
    size_t bytes = 0;
    FILE *facts = yoke_memory_stream(&text, &bytes);
    if (facts == NULL) return FAIL_MEMORY(4096, "what the ranks must agree on");
    /* Another processor may prefer another layout: its gradients could not be added to ours. */
    for (int i = 0; layouts && i < step->flat->parameter_count; i++) {
        const yoke_parameter *parameter = &step->flat->parameters[i];
        fprintf(facts, "parameter %d at %zu in layout %016llx\n", parameter->tensor,
                parameter->offset, (unsigned long long)yoke_layout_digest(&parameter->layout));
    }
    if (!layouts) {
        yoke_variants_write(yoke_device_variants(yoke_devices_at(step->devices, 0)), variants,
                            sizeof variants);
        yoke_options_write_agreed(facts, &yoke_engine_options, step);
        fprintf(facts, "variants \"%s\"\n", variants);
        yoke_groups_write(facts, &step->groups);
        for (int i = 0; step->options.shares != NULL && i < step->options.share_count; i++)
            fprintf(facts, "share %d is %.17g\n", i, step->options.shares[i]);
        write_tensors(facts, step->model);
    }
    bool complete = fclose(facts) == 0;
    yoke_status status = complete ? yoke_ranks_agree(step->ranks.process_group, text)
                                  : FAIL_MEMORY(bytes, "what the ranks must agree on");
    yoke_free(text);
    return status;
}

yoke_status yoke_ranks_compare_layouts(const yoke_step *step) {
    return step->ranks.world > 1 ? compare(step, true) : YOKE_OK;
}

yoke_status yoke_ranks_join(yoke_step *step) {
    const yoke_data_parallel_options *options = &step->options;
    yoke_ranks *ranks = &step->ranks;
    *ranks = (yoke_ranks){
        .process_group = options->process_group, .world = 1, .buffers_are_equal = true};
    if (ranks->process_group == NULL) return YOKE_OK;
    ranks->rank = yoke_process_group_rank(ranks->process_group);
    ranks->world = yoke_process_group_world(ranks->process_group);
    ranks->seat = yoke_process_group_seat(ranks->process_group);
    bool others_come = yoke_process_group_goes_on(ranks->process_group);
    ranks->seats = others_come ? YOKE_PEERS_LIMIT : ranks->world;
    ranks->is_newcomer = yoke_process_group_is_newcomer(ranks->process_group);
    if (step->count > 1)
        return FAIL(YOKE_ERROR_ARGUMENT,
                    "%d devices in rank %d: a rank of DDP has one device; start more ranks",
                    step->count, ranks->rank);
    if (yoke_steps_by_phases(step))
        return FAIL(YOKE_ERROR_ARGUMENT,
                    "the %s schedule is nn.DataParallel's: DDP has overlap and sharded",
                    options->schedule == YOKE_SCHEDULE_CLASSIC ? "classic" : "python");
    if (options->schedule == YOKE_SCHEDULE_SHARDED && step->queued)
        return FAIL(YOKE_ERROR_ARGUMENT,
                    "DDP's sharded schedule is for CPU devices of one machine");
    return compare(step, false);
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

/* A yoke_algorithms_hook. */
static yoke_status say_measuring(void *context) {
    yoke_ranks *ranks = context;
    int64_t word = MEASURING;
    if (yoke_now_ns() - ranks->said_ns < pause_ns(ranks->process_group)) return YOKE_OK;
    return share_word(ranks, &word);
}

yoke_status yoke_ranks_await_algorithms(yoke_step *step) {
    yoke_ranks *ranks = &step->ranks;
    int64_t word = MEASURING;
    char *text = NULL;
    if (ranks->process_group == NULL) return YOKE_OK;
    if (ranks->rank == 0) {
        ranks->said_ns = yoke_now_ns();
        yoke_algorithms_watch(step->algorithms, say_measuring, ranks);
        return YOKE_OK;
    }
    yoke_process_group_patience(ranks->process_group, true);
    yoke_status status = YOKE_OK;
    while (status == YOKE_OK && word == MEASURING)
        status = share_word(ranks, &word);
    yoke_process_group_patience(ranks->process_group, false);
    if (status == YOKE_OK) status = yoke_ranks_share_text(ranks->process_group, &text);
    if (status == YOKE_OK) status = yoke_algorithms_read(step->algorithms, text);
    yoke_free(text);
    return status;
}

yoke_status yoke_ranks_send_algorithms(yoke_step *step) {
    yoke_ranks *ranks = &step->ranks;
    int64_t word = MEASURED;
    char *text = NULL;
    if (ranks->process_group == NULL || ranks->rank > 0) return YOKE_OK;
    yoke_algorithms_watch(step->algorithms, NULL, NULL);
    TRY(share_word(ranks, &word));
    yoke_status status = yoke_algorithms_write(step->algorithms, &text);
    if (status == YOKE_OK) status = yoke_ranks_share_text(ranks->process_group, &text);
    yoke_free(text);
    return status;
}

/* The weights. */

static yoke_status share_state(yoke_step *step) {
    const yoke_replica_memory *memory = step->lanes[0].memory;
    int64_t tracked = (int64_t)step->batches_tracked;
    yoke_replica_renew_shadow(step->lanes[0].replica);
    TRY(yoke_ranks_share_floats(step, memory->parameters, step->flat->elements));
    TRY(yoke_ranks_share_floats(step, memory->buffers, step->flat->buffer_elements));
    TRY(yoke_process_group_broadcast(step->ranks.process_group, &tracked, 1, YOKE_ELEMENT_INT64,
                                     0));
    step->batches_tracked = (uint64_t)tracked;
    step->versions.weights++;
    step->versions.buffers++;
    step->ranks.buffers_are_equal = true;
    return YOKE_OK;
}

yoke_status yoke_data_parallel_broadcast(yoke_data_parallel *parallel) {
    TRY(yoke_enter_settled(parallel, "yoke_data_parallel_broadcast"));
    yoke_step *step = &parallel->step;
    if (step->ranks.world == 1) return yoke_leave(parallel, YOKE_OK);
    return yoke_leave(parallel, yoke_ranks_report(step, share_state(step)));
}
