/* SPDX-License-Identifier: Apache-2.0 */
/* A linear layer that computes the activation behind it, or the loss, and one that computes
 * backward of the activation before it and the bias's gradient of the layer before that; in
 * inference a convolution or a linear layer that computes the batch norm, the add and the
 * activation behind it: where nobody else reads the values between them, and the plans can. And a
 * layer norm that computes the sum that it reads. */
#include "model/program.h"

static bool is_linear(const yoke_model *model, int node) {
    return node != YOKE_NONE && model->nodes[node].operation.kind == YOKE_OP_LINEAR;
}

static bool is_activation(const yoke_model *model, int node) {
    return node != YOKE_NONE && model->nodes[node].operation.kind == YOKE_OP_ACTIVATION;
}

/* The linear layer that computes the activation that this node alone reads, and keeps what backward
 * of it reads; or NONE. */
static int keeper_before(const yoke_program *program, int node) {
    const yoke_model *model = program->model;
    int activation = yoke_writing_node(model, model->nodes[node].inputs[0]);
    if (!is_activation(model, activation) ||
        yoke_reading_node(model, model->nodes[activation].output) != node)
        return YOKE_NONE;
    int before = yoke_writing_node(model, model->nodes[activation].inputs[0]);
    if (!is_linear(model, before)) return YOKE_NONE;
    const yoke_plan_needs *needs = yoke_plan_describe(program->plans[before]);
    bool keeps = needs->mask_bytes > 0 || needs->keeps_output;
    return program->training && needs->computes_next == 1 && keeps ? before : YOKE_NONE;
}

/* Whether the node alone writes a gradient of its bias. */
static bool has_own_bias(const yoke_program *program, int node) {
    const yoke_model *model = program->model;
    if (model->nodes[node].tensor_count < 2) return false;
    int bias = model->nodes[node].tensors[1], users = 0;
    for (int i = 0; i < model->node_count; i++)
        for (int k = 0; k < model->nodes[i].tensor_count; k++)
            users += model->nodes[i].tensors[k] == bias;
    return users == 1 && !yoke_is_frozen(program->frozen, bias);
}

/* The input of an add, or of a batch norm that adds, beside `value`; NONE: it adds nothing. */
static int added_to(const yoke_node *node, int value) {
    bool adds = node->operation.kind == YOKE_OP_ADD || node->operation.add;
    return !adds ? YOKE_NONE : node->inputs[0] == value ? node->inputs[1] : node->inputs[0];
}

/* 0, 1, 2, ...: operations that a plan may compute behind its own come in this order; -1: none. */
static int place_behind(const yoke_operation *operation) {
    static const yoke_operation_kind kinds[YOKE_PLAN_NEXT] = {YOKE_OP_BATCH_NORM, YOKE_OP_ADD,
                                                              YOKE_OP_ACTIVATION};
    for (int i = 0; i < YOKE_PLAN_NEXT; i++)
        if (operation->kind == kinds[i]) return i;
    return -1;
}

/* What is added must be there when the plan runs. */
static void offer_next(const yoke_program *program, int node, yoke_plan_request *request) {
    const yoke_model *model = program->model;
    int value = model->nodes[node].output, last = -1;
    for (int count = 0; count < YOKE_PLAN_NEXT; count++) {
        int reader = yoke_reading_node(model, value);
        const yoke_node *next = reader != YOKE_NONE ? &model->nodes[reader] : NULL;
        if (next == NULL || place_behind(&next->operation) <= last) return;
        last = place_behind(&next->operation);
        int added = added_to(next, value);
        bool adds_twice = added != YOKE_NONE && request->added.bytes > 0;
        if (adds_twice || (added != YOKE_NONE && program->layouts[added].bytes == 0)) return;
        if (added != YOKE_NONE) request->added = program->layouts[added];
        request->next[count] = &next->operation;
        value = next->output;
    }
}

/* The last node is the OUTPUT that the loss reads. */
static void offer_loss(const yoke_program *program, int node, yoke_plan_request *request) {
    const yoke_model *model = program->model;
    int last = model->node_count - 1;
    if (yoke_reading_node(model, model->nodes[node].output) != last) return;
    request->next[0] = &model->nodes[last].operation;
    request->loss = &program->loss_operation;
}

yoke_next_nodes yoke_nodes_behind(const yoke_program *program, int node) {
    const yoke_model *model = program->model;
    yoke_next_nodes found = {.count = yoke_plan_describe(program->plans[node])->computes_next,
                             .norm = YOKE_NONE,
                             .added = YOKE_NONE,
                             .adder = YOKE_NONE};
    for (int i = 0, value = model->nodes[node].output; i < found.count; i++) {
        int next = found.nodes[i] = yoke_reading_node(model, value);
        int added = added_to(&model->nodes[next], value);
        if (model->nodes[next].operation.kind == YOKE_OP_BATCH_NORM) found.norm = next;
        if (added != YOKE_NONE) found.added = added, found.adder = next;
        value = model->nodes[next].output;
    }
    return found;
}

bool yoke_adds_in_place(const yoke_program *program, int node) {
    const yoke_model *model = program->model;
    const yoke_next_nodes next = yoke_nodes_behind(program, node);
    if (next.added == YOKE_NONE || program->values[next.added] < 0) return false;
    for (int i = node; i < model->node_count; i++)
        for (int k = 0; k < model->nodes[i].input_count; k++)
            if (model->nodes[i].inputs[k] == next.added && i != next.adder) return false;
    return true;
}

/* Whether a forward may run again, and write its values without those of its neighbours. */
static bool may_run_again(const yoke_program *program, int node) {
    return program->recomputes || program->model->nodes[node].recomputed > 0;
}

/* In evaluation as in training: its plans, which devices make at once, need no key of the record
 * that the root has not filled. */
static void offer_activation(const yoke_program *program, int node, yoke_plan_request *request) {
    const yoke_model *model = program->model;
    int next = yoke_reading_node(model, model->nodes[node].output);
    if (!is_activation(model, next) || may_run_again(program, node) || may_run_again(program, next))
        return;
    request->next[0] = &model->nodes[next].operation;
    request->next_backward = program->requires_gradient[model->nodes[next].output];
    request->next_linear = request->next_backward &&
                           is_linear(model, yoke_reading_node(model, model->nodes[next].output));
}

/* Whether the plan of an earlier node computes this one. */
static bool is_computed(const yoke_program *program, int node) {
    for (int i = 0; i < node; i++) {
        const yoke_next_nodes next = yoke_nodes_behind(program, i);
        for (int k = 0; k < next.count; k++)
            if (next.nodes[k] == node) return true;
    }
    return false;
}

/* The add whose sum the layer norm may compute, in whose place nobody reads it; or NONE. */
static int sum_before(const yoke_program *program, int node) {
    const yoke_model *model = program->model;
    const yoke_layout *layouts = program->layouts;
    int value = model->nodes[node].inputs[0], add = yoke_writing_node(model, value);
    if (add == YOKE_NONE || may_run_again(program, node) || may_run_again(program, add))
        return YOKE_NONE;
    const yoke_node *from = &model->nodes[add];
    for (int i = add + 1; i < node; i++)
        for (int k = 0; k < model->nodes[i].input_count; k++)
            if (model->nodes[i].inputs[k] == value) return YOKE_NONE;
    bool plain = from->operation.kind == YOKE_OP_ADD && !from->operation.relu;
    return plain && !is_computed(program, add) &&
                   yoke_layout_equal(&layouts[from->inputs[0]], &layouts[value]) &&
                   yoke_layout_equal(&layouts[from->inputs[1]], &layouts[value])
               ? add
               : YOKE_NONE;
}

void yoke_offer_joins(const yoke_program *program, int node, yoke_plan_request *request) {
    const yoke_model *model = program->model;
    request->input_summed =
        request->operation->kind == YOKE_OP_LAYER_NORM && sum_before(program, node) != YOKE_NONE;
    bool linear = request->operation->kind == YOKE_OP_LINEAR;
    if (request->inference && (linear || request->operation->kind == YOKE_OP_CONV2D))
        offer_next(program, node, request);
    if (!linear) return;
    if (!request->inference) offer_activation(program, node, request);
    if (!program->outputs_only) offer_loss(program, node, request);
    int before = keeper_before(program, node);
    if (before == YOKE_NONE) return;
    int activation = yoke_writing_node(model, model->nodes[node].inputs[0]);
    request->previous = &model->nodes[activation].operation;
    request->input_bias = has_own_bias(program, before);
}

static void place_next(yoke_program *program, int node) {
    const yoke_next_nodes next = yoke_nodes_behind(program, node);
    for (int k = 0; k < next.count; k++)
        program->places[next.nodes[k]].computed_by = node;
    if (!yoke_plan_describe(program->plans[node])->computes_sum) return;
    const yoke_model *model = program->model;
    program->places[yoke_writing_node(model, model->nodes[node].inputs[0])].computed_by = node;
}

/* What the plan of this node does in place of the activation before it. */
static void place_previous(yoke_program *program, int node) {
    const yoke_model *model = program->model;
    const yoke_plan_needs *needs = yoke_plan_describe(program->plans[node]);
    if (!needs->computes_previous) return;
    int before = keeper_before(program, node);
    program->places[node].previous = before;
    program->places[before].skips_bias = needs->sums_input_bias;
    program->places[yoke_writing_node(model, model->nodes[node].inputs[0])].skips_backward = true;
}

void yoke_place_joins(yoke_program *program) {
    for (int i = 0; i < program->model->node_count; i++) {
        place_next(program, i);
        place_previous(program, i);
    }
}
