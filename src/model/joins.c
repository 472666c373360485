/* A linear layer that computes the ReLU behind it, where nobody else reads the value between them
 * and the plan can. */
#include "model/program.h"

/* The only node that reads `value`; NONE when several do. */
static int only_reader(const yoke_model *model, int value) {
    int reader = YOKE_NONE;
    for (int i = 0; i < model->node_count; i++)
        for (int k = 0; k < model->nodes[i].input_count; k++) {
            if (model->nodes[i].inputs[k] != value) continue;
            if (reader != YOKE_NONE) return YOKE_NONE;
            reader = i;
        }
    return reader;
}

static bool is_relu(const yoke_model *model, int node) {
    if (node == YOKE_NONE) return false;
    const yoke_operation *operation = &model->nodes[node].operation;
    return operation->kind == YOKE_OP_ACTIVATION && operation->activation == YOKE_RELU;
}

void yoke_offer_joins(const yoke_program *program, int node, yoke_plan_request *request) {
    const yoke_model *model = program->model;
    if (request->operation->kind != YOKE_OP_LINEAR) return;
    request->relu = is_relu(model, only_reader(model, model->nodes[node].output));
}

void yoke_place_joins(yoke_program *program) {
    const yoke_model *model = program->model;
    for (int i = 0; i < model->node_count; i++) {
        if (!yoke_plan_describe(program->plans[i])->applies_relu) continue;
        int from = model->nodes[i].output, relu = only_reader(model, from);
        int to = model->nodes[relu].output;
        /* Elsewhere the ReLU copies the value: applied twice it is the same. */
        program->places[relu].skips_forward = program->values[to] == program->values[from];
    }
}
