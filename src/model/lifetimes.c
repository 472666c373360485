/* SPDX-License-Identifier: Apache-2.0 */
/* The places and lifetimes of values: a value lives from the forward step that writes it to the
 * last step, forward or backward, that reads it. */
#include <stdlib.h>

#include "model/program.h"

/* When a value is read: in forward last, in backward first and last; NONE: never. A forward that
 * runs again counts as backward. */
typedef struct reads {
    int forward, first, last;
} reads;

static void read_in_backward(reads *value, int step) {
    if (value->first == YOKE_NONE || step < value->first) value->first = step;
    if (step > value->last) value->last = step;
}

/* The node whose forward reads what this one's operation reads: a later one may compute it, too. */
static int reader_for(const yoke_program *program, int index) {
    int by = program->places[index].computed_by;
    return by > index ? by : index;
}

/* Of node `index`. */
static void count_reads(const yoke_program *program, int index, reads *values) {
    const yoke_node *node = &program->model->nodes[index];
    const yoke_plan_needs *needs = yoke_plan_describe(program->plans[index]);
    const yoke_node_places *places = &program->places[index];
    bool backward = yoke_program_runs_backward(program, node) && !places->skips_backward;
    for (int k = 0; k < node->input_count; k++) {
        reads *input = &values[yoke_program_reads(program, index, k)];
        int reader = reader_for(program, index);
        if (reader > input->forward) input->forward = reader;
        if (program->again[index] != YOKE_NONE) read_in_backward(input, program->again[index]);
        if (backward && needs->backward_reads[k]) read_in_backward(input, program->backward[index]);
    }
    reads *output = &values[node->output];
    if (index > output->forward) output->forward = index;
    if (backward && needs->backward_reads_output)
        read_in_backward(output, program->backward[index]);
    if (places->previous != YOKE_NONE &&
        yoke_plan_describe(program->plans[places->previous])->keeps_output)
        read_in_backward(&values[program->model->nodes[places->previous].output],
                         program->backward[index]);
}

/* Whether forward makes the value again before backward first reads it. */
static bool is_made_again(const yoke_program *program, int writer, const reads *value) {
    int again = writer == YOKE_NONE ? YOKE_NONE : program->again[writer];
    return again != YOKE_NONE && (value->first == YOKE_NONE || value->first >= again);
}

/* Whether node `index` is the last one that reads the value, also where both run again. */
static bool is_last_reader(const yoke_program *program, int index, int value, const reads *of) {
    if (of->forward != index) return false;
    if (of->last == YOKE_NONE) return true;
    return of->last == program->again[index] &&
           is_made_again(program, yoke_writing_node(program->model, value), of);
}

/* The output may take the place of input 0 if no later step reads that input. */
static bool may_overwrite(const yoke_program *program, int index, const reads *values) {
    const yoke_node *node = &program->model->nodes[index];
    const yoke_plan_needs *needs = yoke_plan_describe(program->plans[index]);
    if (node->input_count == 0) return false;
    int input = node->inputs[0];
    bool twice = false; /* it reads the input a second time */
    for (int k = 1; k < node->input_count; k++)
        twice = twice || node->inputs[k] == input;
    return needs->forward_in_place && !twice && program->values[input] >= 0 &&
           is_last_reader(program, reader_for(program, index), input, &values[input]) &&
           needs->output.bytes == program->layouts[input].bytes;
}

/* Where an earlier plan writes the value: in the place of that plan's own output, unless it keeps
 * that, too. */
static yoke_place place_computed(yoke_program *program, int index) {
    int by = program->places[index].computed_by;
    const yoke_plan_needs *needs = yoke_plan_describe(program->plans[by]);
    if (!needs->keeps_output) return program->values[program->model->nodes[by].output];
    return yoke_arena_add(&program->arena, needs->output.bytes, by);
}

/* A node that runs again fills what it saves again. */
static void place_saved(yoke_program *program, int index) {
    size_t bytes = yoke_plan_describe(program->plans[index])->saved_bytes;
    if (bytes == 0) return;
    yoke_place saved = yoke_arena_add(&program->arena, bytes, index);
    program->places[index].saved = saved;
    if (program->places[index].summed_by != YOKE_NONE)
        program->arena.storages[saved].begin = program->places[index].summed_by;
    int again = program->again[index];
    if (yoke_program_runs_backward(program, &program->model->nodes[index]))
        yoke_arena_use(&program->arena, saved, program->backward[index]);
    yoke_arena_use(&program->arena, saved, again);
    if (again != YOKE_NONE) yoke_arena_rest(&program->arena, saved, index, again);
}

/* Lengthens the life of the value's storage. The storage of several values rests where all of them
 * do. */
static void use_value(yoke_program *program, int index, const reads *value) {
    yoke_place place = program->values[program->model->nodes[index].output];
    if (place < 0) return;
    yoke_storage *storage = &program->arena.storages[place];
    int again = program->again[index];
    bool rests = is_made_again(program, index, value);
    int pause = rests || value->last == YOKE_NONE ? value->forward : value->last;
    yoke_arena_use(&program->arena, place, value->forward);
    yoke_arena_use(&program->arena, place, value->last);
    yoke_arena_use(&program->arena, place, again);
    if (pause > storage->pause) storage->pause = pause;
    if (again != YOKE_NONE && (storage->resume == 0 || again < storage->resume))
        storage->resume = again;
}

yoke_status yoke_place_values(yoke_program *program) {
    const yoke_model *model = program->model;
    size_t count = (size_t)model->value_count;
    reads *values = yoke_malloc(count * sizeof *values);
    if (values == NULL) return FAIL_MEMORY(count * sizeof *values, "the lifetimes of values");
    for (int i = 0; i < model->value_count; i++) {
        values[i] = (reads){YOKE_NONE, YOKE_NONE, YOKE_NONE};
        program->values[i] = YOKE_PLACE_NOWHERE;
    }
    for (int i = 0; i < model->node_count; i++)
        count_reads(program, i, values);
    for (int k = 0; k < model->input_count; k++)
        program->values[model->inputs[k].value] = YOKE_PLACE_INPUTS - k;
    for (int i = 0; i < model->node_count; i++) {
        const yoke_node *node = &model->nodes[i];
        const yoke_plan_needs *needs = yoke_plan_describe(program->plans[i]);
        yoke_place *place = &program->values[node->output];
        int output = model->node_count - 1 - i;
        if (output < model->output_count)
            *place = YOKE_PLACE_OUTPUTS - output;
        else if (needs->computes_loss)
            *place = YOKE_PLACE_OUTPUTS;
        else if (program->places[i].applied_by != YOKE_NONE)
            *place = YOKE_PLACE_NOWHERE;
        else if (program->places[i].computed_by != YOKE_NONE && program->places[i].computed_by < i)
            *place = place_computed(program, i);
        else if (yoke_adds_in_place(program, i))
            *place = program->values[yoke_nodes_behind(program, i).added];
        else if (may_overwrite(program, i, values))
            *place = program->values[node->inputs[0]];
        else
            *place = yoke_arena_add(&program->arena, needs->output.bytes, i);
        use_value(program, i, &values[node->output]);
        place_saved(program, i);
    }
    size_t loss_bytes = yoke_plan_describe(program->loss)->saved_bytes;
    if (loss_bytes > 0)
        program->loss_saved = yoke_arena_add(&program->arena, loss_bytes, model->node_count);
    yoke_free(values);
    return YOKE_OK;
}
