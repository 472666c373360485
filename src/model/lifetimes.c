/* SPDX-License-Identifier: Apache-2.0 */
/* The places and lifetimes of values: a value lives from the forward step that writes it to the
 * last step, forward or backward, that reads it. */
#include <stdlib.h>

#include "model/program.h"

int yoke_backward_step(const yoke_program *program, int node) {
    return 2 * program->model->node_count - node;
}

static void raise_to(int *last_use, int step) {
    if (step > *last_use) *last_use = step;
}

/* The output may take the place of input 0 if no later step reads that input. */
static bool may_overwrite(const yoke_program *program, int index, const int *last_use) {
    const yoke_node *node = &program->model->nodes[index];
    const yoke_plan_needs *needs = yoke_plan_describe(program->plans[index]);
    if (node->input_count == 0) return false;
    int input = node->inputs[0];
    bool twice = false; /* it reads the input a second time */
    for (int k = 1; k < node->input_count; k++)
        twice = twice || node->inputs[k] == input;
    return needs->forward_in_place && !twice && program->values[input] >= 0 &&
           last_use[input] == index && needs->output.bytes == program->layouts[input].bytes;
}

static void place_saved(yoke_program *program, int index) {
    size_t bytes = yoke_plan_describe(program->plans[index])->saved_bytes;
    if (bytes == 0) return;
    yoke_place saved = yoke_arena_add(&program->arena, bytes, index);
    if (yoke_program_runs_backward(program, &program->model->nodes[index]))
        yoke_arena_use(&program->arena, saved, yoke_backward_step(program, index));
    program->places[index].saved = saved;
}

yoke_status yoke_place_values(yoke_program *program) {
    const yoke_model *model = program->model;
    size_t values = (size_t)model->value_count;
    int *last_use = malloc(values * sizeof *last_use);
    if (last_use == NULL) return FAIL_MEMORY(values * sizeof *last_use, "the lifetimes of values");
    /* last_use[value]: the last step that reads the value. */
    for (int i = 0; i < model->value_count; i++)
        last_use[i] = YOKE_NONE;
    for (int i = 0; i < model->node_count; i++) {
        const yoke_node *node = &model->nodes[i];
        const yoke_plan_needs *needs = yoke_plan_describe(program->plans[i]);
        bool backward = yoke_program_runs_backward(program, node);
        for (int k = 0; k < node->input_count; k++) {
            bool again = needs->backward_reads[k] && backward;
            raise_to(&last_use[node->inputs[k]], again ? yoke_backward_step(program, i) : i);
        }
        bool output_again = backward && needs->backward_reads_output;
        raise_to(&last_use[node->output], output_again ? yoke_backward_step(program, i) : i);
    }
    for (int i = 0; i < model->value_count; i++)
        program->values[i] = YOKE_PLACE_NOWHERE;
    for (int k = 0; k < model->input_count; k++)
        program->values[model->inputs[k].value] = YOKE_PLACE_INPUTS - k;
    for (int i = 0; i < model->node_count; i++) {
        const yoke_node *node = &model->nodes[i];
        const yoke_plan_needs *needs = yoke_plan_describe(program->plans[i]);
        yoke_place *place = &program->values[node->output];
        int output = model->node_count - 1 - i;
        if (output < model->output_count)
            *place = YOKE_PLACE_OUTPUTS - output;
        else if (may_overwrite(program, i, last_use))
            *place = program->values[node->inputs[0]];
        else
            *place = yoke_arena_add(&program->arena, needs->output.bytes, i);
        yoke_arena_use(&program->arena, *place, last_use[node->output]);
        place_saved(program, i);
    }
    size_t loss_bytes = yoke_plan_describe(program->loss)->saved_bytes;
    if (loss_bytes > 0)
        program->loss_saved = yoke_arena_add(&program->arena, loss_bytes, model->node_count);
    free(last_use);
    return YOKE_OK;
}
