/* SPDX-License-Identifier: Apache-2.0 */
/* Batch norms in training of which plans beside them compute parts. The convolution before a norm
 * may sum up its output while it writes it, so that the norm need not read it for its statistics.
 * Where a second convolution alone reads the norm, that one may also read the norm's input and
 * apply the norm to it; backward it writes the gradient before the norm's ReLU, and sums that up.
 * So may a norm that adds, for the norm of what it adds. The norm's output then is in no memory. */
#include "model/program.h"

static const yoke_operation *operation_of(const yoke_program *program, int node) {
    return &program->model->nodes[node].operation;
}

static bool recomputes(const yoke_program *program) {
    bool any = program->recomputes;
    for (int i = 0; i < program->model->node_count; i++)
        any = any || program->model->nodes[i].recomputed;
    return any;
}

/* The batch norm that alone reads the convolution's output, as its input 0; or NONE. */
static int norm_behind(const yoke_program *program, int node) {
    const yoke_model *model = program->model;
    int norm = yoke_reading_node(model, model->nodes[node].output);
    if (norm == YOKE_NONE || operation_of(program, norm)->kind != YOKE_OP_BATCH_NORM ||
        model->nodes[norm].inputs[0] != model->nodes[node].output)
        return YOKE_NONE;
    return norm;
}

/* The convolution that sums up what this norm reads; or NONE. */
static int summer_of(const yoke_program *program, int norm) {
    int before = yoke_writing_node(program->model, program->model->nodes[norm].inputs[0]);
    bool sums = before != YOKE_NONE && yoke_plan_describe(program->plans[before])->sums_output &&
                norm_behind(program, before) == norm;
    return sums ? before : YOKE_NONE;
}

/* The batch norm that the node may apply to what that reads: it writes the input of a convolution,
 * and has a ReLU, or what a norm adds, and has none; the node alone reads it, and its plan shares
 * what it saves. Or NONE. */
static int norm_before(const yoke_program *program, int node) {
    const yoke_model *model = program->model;
    const yoke_operation *operation = operation_of(program, node);
    bool adds = operation->kind == YOKE_OP_BATCH_NORM && operation->add;
    if (!adds && operation->kind != YOKE_OP_CONV2D) return YOKE_NONE;
    int norm = yoke_writing_node(model, model->nodes[node].inputs[adds]);
    bool shares = norm != YOKE_NONE && yoke_plan_describe(program->plans[norm])->shares_saved &&
                  operation_of(program, norm)->relu != adds &&
                  yoke_reading_node(model, model->nodes[norm].output) == node;
    return shares ? norm : YOKE_NONE;
}

bool yoke_program_fixes_norm(const yoke_program *program, int index) {
    const yoke_node *node = &program->model->nodes[index];
    return node->operation.kind == YOKE_OP_BATCH_NORM && program->fixed_statistics != NULL &&
           program->fixed_statistics[node->buffers[0]];
}

void yoke_offer_norms(const yoke_program *program, int node, yoke_plan_request *request) {
    yoke_operation_kind kind = request->operation->kind;
    if (!program->training || request->norm_group != NULL || recomputes(program)) return;
    int behind = kind == YOKE_OP_CONV2D ? norm_behind(program, node) : YOKE_NONE;
    request->norm_behind = behind != YOKE_NONE && !yoke_program_fixes_norm(program, behind);
    request->norm_before =
        request->input_gradient && !request->frozen && norm_before(program, node) != YOKE_NONE;
    if (kind == YOKE_OP_BATCH_NORM && !request->fixed_statistics)
        request->sums_given = summer_of(program, node) != YOKE_NONE;
}

void yoke_place_norms(yoke_program *program) {
    for (int i = 0; i < program->model->node_count; i++) {
        const yoke_plan_needs *needs = yoke_plan_describe(program->plans[i]);
        yoke_node_places *places = &program->places[i];
        places->norm_behind = needs->sums_output ? norm_behind(program, i) : YOKE_NONE;
        places->norm_before = needs->applies_norm ? norm_before(program, i) : YOKE_NONE;
        if (places->norm_behind != YOKE_NONE) program->places[places->norm_behind].summed_by = i;
        if (places->norm_before != YOKE_NONE) program->places[places->norm_before].applied_by = i;
    }
}

int yoke_program_reads(const yoke_program *program, int node, int input) {
    const yoke_model *model = program->model;
    int value = model->nodes[node].inputs[input], norm = program->places[node].norm_before;
    bool applies = norm != YOKE_NONE && model->nodes[norm].output == value;
    return applies ? model->nodes[norm].inputs[0] : value;
}
