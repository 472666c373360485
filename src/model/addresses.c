/* SPDX-License-Identifier: Apache-2.0 */
/* Where the values of a program lie, and the operands of its plans. */
#include "model/program.h"

void *yoke_program_address(const yoke_program *program, const yoke_replica_memory *memory,
                           yoke_place place) {
    if (place >= 0) return (char *)program->arena_base + program->arena.storages[place].offset;
    if (place == YOKE_PLACE_NOWHERE) return NULL;
    if (place == YOKE_PLACE_INPUTS && program->reads_image) return memory->image;
    if (place > YOKE_PLACE_OUTPUTS) return memory->inputs[YOKE_PLACE_INPUTS - place];
    if (place > YOKE_PLACE_OUTPUT_GRADIENTS) return memory->outputs[YOKE_PLACE_OUTPUTS - place];
    return memory->output_gradients[YOKE_PLACE_OUTPUT_GRADIENTS - place];
}

/* What backward of the activation before reads, and the gradient of the bias before that. */
static void bind_previous(const yoke_program *program, const yoke_flat *flat,
                          const yoke_replica_memory *memory, int index,
                          yoke_plan_binding *binding) {
    const yoke_node_places *places = &program->places[index];
    if (places->skips_bias) binding->parameter_gradients[1] = NULL;
    if (places->previous == YOKE_NONE) return;
    const yoke_node_places *before = &program->places[places->previous];
    const yoke_node *node = &program->model->nodes[places->previous];
    bool input = yoke_plan_describe(program->plans[places->previous])->keeps_output;
    binding->input_aux = yoke_program_address(
        program, memory, input ? program->values[node->output] : before->saved);
    if (before->skips_bias)
        binding->input_bias_gradient =
            memory->gradients + yoke_flat_parameter(flat, node->tensors[1])->offset;
}

/* What the plan computes before and behind its own operation reads and writes. */
static void bind_neighbours(const yoke_program *program, const yoke_replica_memory *memory,
                            int index, yoke_plan_binding *binding) {
    const yoke_next_nodes next = yoke_nodes_behind(program, index);
    const yoke_model *model = program->model;
    const yoke_plan_needs *needs = yoke_plan_describe(program->plans[index]);
    for (int i = 0; i < index && needs->computes_sum; i++)
        for (int k = 0; k < 2 && program->places[i].computed_by == index; k++)
            binding->summands[k] =
                yoke_program_address(program, memory, program->values[model->nodes[i].inputs[k]]);
    if (needs->keeps_output)
        binding->next_output = yoke_program_address(
            program, memory, program->values[model->nodes[next.nodes[0]].output]);
    if (next.added != YOKE_NONE)
        binding->added = yoke_program_address(program, memory, program->values[next.added]);
}

/* The parameters and running statistics that the plan reads. */
static void bind_weights(const yoke_program *program, const yoke_flat *flat,
                         const yoke_replica_memory *memory, int index, yoke_plan_binding *binding) {
    const yoke_model *model = program->model;
    const yoke_node *node = &model->nodes[index];
    int norm = yoke_nodes_behind(program, index).norm;
    for (int k = 0; k < node->tensor_count; k++) {
        size_t offset = yoke_flat_parameter(flat, node->tensors[k])->offset;
        binding->parameters[k] = memory->parameters + offset;
        if (memory->shadow != NULL) binding->shadows[k] = memory->shadow + offset;
    }
    for (int k = 0; k < 2; k++) {
        if (node->buffers[k] != YOKE_NONE)
            binding->buffers[k] = memory->buffers + model->tensors[node->buffers[k]].buffer_offset;
        if (norm == YOKE_NONE) continue;
        const yoke_node *next = &model->nodes[norm];
        binding->next_parameters[k] =
            memory->parameters + yoke_flat_parameter(flat, next->tensors[k])->offset;
        binding->next_buffers[k] = memory->buffers + model->tensors[next->buffers[k]].buffer_offset;
    }
}

static void bind_norms(const yoke_program *program, const yoke_replica_memory *memory, int index,
                       yoke_plan_binding *binding) {
    int behind = program->places[index].norm_behind, before = program->places[index].norm_before;
    if (behind != YOKE_NONE)
        binding->norm_behind = yoke_program_address(program, memory, program->places[behind].saved);
    if (before != YOKE_NONE)
        binding->norm_before = yoke_program_address(program, memory, program->places[before].saved);
}

/* What the plan of the loss compares with and writes, or that of a node that computes it. */
static void bind_labels(const yoke_replica_memory *memory, yoke_plan_binding *binding) {
    binding->labels = memory->labels;
    binding->mixes = memory->mixes;
    binding->targets = memory->targets;
    binding->scalars = memory->scalars;
    binding->on_host = memory->on_host;
}

/* How many plans before this one keep something. */
static int kept_before(const yoke_program *program, int index) {
    int count = 0;
    for (int i = 0; i < index; i++)
        count += yoke_plan_describe(program->plans[i])->kept_bytes > 0;
    return count;
}

static yoke_status bind_node(const yoke_program *program, const yoke_flat *flat,
                             const yoke_replica_memory *memory, void *scratch, int index) {
    const yoke_node *node = &program->model->nodes[index];
    const yoke_node_places *places = &program->places[index];
    yoke_plan_binding binding = {
        .output = yoke_program_address(program, memory, program->values[node->output]),
        .output_gradient = yoke_program_address(program, memory, places->output_gradient),
        .adds_input_gradient = places->adds_input_gradient,
        .saved = yoke_program_address(program, memory, places->saved),
        .scratch = scratch,
    };
    for (int k = 0; k < node->input_count; k++) {
        int value = yoke_program_reads(program, index, k);
        binding.inputs[k] = yoke_program_address(program, memory, program->values[value]);
        binding.input_gradients[k] =
            yoke_program_address(program, memory, places->input_gradients[k]);
    }
    for (int k = 0; k < node->tensor_count; k++) {
        const yoke_parameter *parameter = yoke_flat_parameter(flat, node->tensors[k]);
        yoke_place beside = program->places[index].contributions[k];
        if (memory->gradients != NULL)
            binding.parameter_gradients[k] = memory->gradients + parameter->offset;
        if (beside != YOKE_PLACE_NOWHERE)
            binding.parameter_gradients[k] = yoke_program_address(program, memory, beside);
    }
    bind_weights(program, flat, memory, index, &binding);
    bind_previous(program, flat, memory, index, &binding);
    bind_neighbours(program, memory, index, &binding);
    bind_norms(program, memory, index, &binding);
    if (index == program->loss_node) bind_labels(memory, &binding);
    if (yoke_plan_describe(program->plans[index])->kept_bytes > 0)
        binding.kept = program->kept[kept_before(program, index)].address;
    if (program->packed != NULL) binding.packed = program->packed[index];
    return yoke_plan_bind(program->plans[index], &binding);
}

yoke_status yoke_program_pack(const yoke_program *program, const yoke_flat *flat,
                              const yoke_replica_memory *memory, int node, void *packed) {
    yoke_plan_binding from = {0};
    bind_weights(program, flat, memory, node, &from);
    return yoke_plan_pack(program->plans[node], &from, packed);
}

static yoke_status bind_loss(const yoke_program *program, const yoke_replica_memory *memory,
                             void *scratch) {
    yoke_plan_binding binding = {
        .inputs = {memory->outputs[0]},
        .input_gradients = {memory->output_gradients[0]},
        .saved = yoke_program_address(program, memory, program->loss_saved),
        .scratch = scratch,
    };
    bind_labels(memory, &binding);
    return yoke_plan_bind(program->loss, &binding);
}

yoke_status yoke_program_bind_outputs(const yoke_program *program, const yoke_flat *flat,
                                      const yoke_replica_memory *memory, void *scratch) {
    if (program->loss_node == YOKE_NONE) return YOKE_OK;
    TRY(bind_node(program, flat, memory, scratch, program->loss_node));
    return bind_loss(program, memory, scratch);
}

yoke_status yoke_program_bind(yoke_program *program, const yoke_flat *flat,
                              const yoke_replica_memory *memory, void *arena, void *scratch) {
    program->arena_base = arena;
    for (int i = 0; i < program->model->node_count; i++)
        TRY(bind_node(program, flat, memory, scratch, i));
    for (int i = 0; i < program->action_count; i++) {
        yoke_action *action = &program->actions[i];
        if (action->kind == YOKE_ACTION_BACKWARD || action->kind == YOKE_ACTION_AGAIN) continue;
        action->from_address = yoke_program_address(program, memory, action->from);
        if (action->kind != YOKE_ACTION_SUM) {
            action->to_address = yoke_program_address(program, memory, action->to);
            continue;
        }
        const yoke_parameter *parameter = yoke_flat_parameter(flat, action->tensor);
        action->to_address = memory->gradients + parameter->offset;
        action->elements = parameter->layout.bytes / sizeof(float);
    }
    return bind_loss(program, memory, scratch);
}
