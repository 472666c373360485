/* SPDX-License-Identifier: Apache-2.0 */
/* Plans the order of backward and the places of gradients. Nodes run in reverse order. The first
 * reader to contribute to a value's gradient writes it; later contributions are accumulated, by an
 * action of their own unless the plan can add. The two inputs of an add share one gradient, which
 * may not change while the other input needs it. */
#include <stdlib.h>

#include "model/program.h"

struct backward {
    yoke_program *program;
    yoke_place *gradients; /* [values]: the sum of the contributions so far */
    int *references;       /* [storages]: how many values have their gradient there */
    bool *contributed;     /* [tensors] */
    int node, step;        /* being planned */
};

bool yoke_program_trains(const yoke_program *program, const yoke_node *node) {
    for (int k = 0; k < node->tensor_count; k++)
        if (!yoke_is_frozen(program->frozen, node->tensors[k])) return true;
    return false;
}

bool yoke_program_requires_input_gradient(const yoke_program *program, const yoke_node *node) {
    bool wanted = false;
    for (int k = 0; k < node->input_count; k++)
        wanted = wanted || program->requires_gradient[node->inputs[k]];
    return wanted;
}

/* Backward goes from the last node to the first. */
bool yoke_program_shares_input(const yoke_program *program, int index) {
    const yoke_model *model = program->model;
    for (int i = index + 1; i < model->node_count; i++)
        for (int k = 0; k < model->nodes[i].input_count; k++)
            if (model->nodes[i].inputs[k] == model->nodes[index].inputs[0]) return true;
    return false;
}

/* Nodes are in topological order. */
void yoke_program_mark_gradients(yoke_program *program) {
    const yoke_model *model = program->model;
    for (int k = 0; k < model->input_count; k++)
        program->requires_gradient[model->inputs[k].value] = program->input_gradients;
    for (int i = 0; i < model->node_count; i++) {
        const yoke_node *node = &model->nodes[i];
        program->requires_gradient[node->output] =
            yoke_program_trains(program, node) ||
            yoke_program_requires_input_gradient(program, node);
    }
}

bool yoke_program_runs_backward(const yoke_program *program, const yoke_node *node) {
    return program->training && program->requires_gradient[node->output];
}

static void emit(struct backward *backward, yoke_action action) {
    action.node = backward->node;
    backward->program->actions[backward->program->action_count++] = action;
}

static size_t value_bytes(const struct backward *backward, int value) {
    return backward->program->layouts[value].bytes;
}

static yoke_place add_storage(const struct backward *backward, size_t bytes) {
    return yoke_arena_add(&backward->program->arena, bytes, backward->step);
}

static void use(const struct backward *backward, yoke_place place) {
    yoke_arena_use(&backward->program->arena, place, backward->step);
}

static void set_gradient(struct backward *backward, int value, yoke_place place) {
    yoke_place *gradient = &backward->gradients[value];
    if (*gradient >= 0) backward->references[*gradient]--;
    *gradient = place;
    backward->references[place]++;
    use(backward, place);
}

static void emit_accumulate(struct backward *backward, int value, yoke_place to, yoke_place from) {
    emit(backward,
         (yoke_action){.kind = YOKE_ACTION_ACCUMULATE, .value = value, .to = to, .from = from});
}

/* Adds another contribution to a value's gradient. `disposable`: the contribution's memory may be
 * overwritten. */
static void contribute(struct backward *backward, int value, yoke_place contribution,
                       bool disposable) {
    yoke_place own = backward->gradients[value];
    use(backward, own);
    if (backward->references[own] == 1 && own != contribution) {
        emit_accumulate(backward, value, own, contribution);
    } else if (disposable && backward->references[contribution] == 0) {
        emit_accumulate(backward, value, contribution, own);
        set_gradient(backward, value, contribution);
    } else {
        yoke_place sum = add_storage(backward, value_bytes(backward, value));
        emit(backward,
             (yoke_action){.kind = YOKE_ACTION_COPY, .value = value, .to = sum, .from = own});
        emit_accumulate(backward, value, sum, contribution);
        set_gradient(backward, value, sum);
    }
}

/* For a tensor that several nodes use: the first node in backward order writes the flat gradient,
 * the others write to storages of their own, which are added to it. */
static void contribute_tensors(struct backward *backward, int index) {
    yoke_program *program = backward->program;
    const yoke_node *node = &program->model->nodes[index];
    yoke_place *contributions = program->places[index].contributions;
    for (int k = 0; k < node->tensor_count; k++) {
        int tensor = node->tensors[k];
        if (yoke_is_frozen(program->frozen, tensor)) continue;
        if (backward->contributed[tensor]) {
            contributions[k] = add_storage(backward, program->parameters[tensor].bytes);
            emit(
                backward,
                (yoke_action){.kind = YOKE_ACTION_SUM, .tensor = tensor, .from = contributions[k]});
        }
        backward->contributed[tensor] = true;
    }
}

/* An input's gradient may overwrite something that the plan reads in backward and no later step
 * needs: the output gradient, the output or the input. */
static yoke_place free_place(const struct backward *backward, int index, int input) {
    const yoke_program *program = backward->program;
    const yoke_plan_needs *needs = yoke_plan_describe(program->plans[index]);
    yoke_place gradient = program->places[index].output_gradient;
    const yoke_node *node = &program->model->nodes[index];
    yoke_place output = program->values[node->output], own = program->values[node->inputs[0]];
    bool over_gradient = input == 0 ? needs->backward_in_place : needs->joined_in_place;
    bool over_output = input == 0 && needs->joined_in_place && output >= 0;
    bool over_input = input == 0 && needs->backward_over_input && own >= 0;
    if (over_gradient && gradient >= 0 && backward->references[gradient] == 0) return gradient;
    if (over_output && program->arena.storages[output].end == backward->step) return output;
    if (over_input && program->arena.storages[own].end == backward->step) return own;
    return YOKE_PLACE_NOWHERE;
}

static yoke_place place_gradient(struct backward *backward, int index, int input) {
    const yoke_node *node = &backward->program->model->nodes[index];
    size_t bytes = value_bytes(backward, node->inputs[input]);
    yoke_place place = free_place(backward, index, input);
    bool fits = place != YOKE_PLACE_NOWHERE && value_bytes(backward, node->output) == bytes;
    return fits ? place : add_storage(backward, bytes);
}

/* Whether the plan itself adds its contribution to what the value's gradient holds. It reads the
 * output's gradient while it writes, so that must lie elsewhere. */
static bool plan_adds(const struct backward *backward, int index) {
    const yoke_program *program = backward->program;
    const yoke_node *node = &program->model->nodes[index];
    const yoke_plan_needs *needs = yoke_plan_describe(program->plans[index]);
    yoke_place own = backward->gradients[node->inputs[0]];
    return needs->adds_input_gradient && node->input_count == 1 && own >= 0 &&
           backward->references[own] == 1 && own != program->places[index].output_gradient;
}

/* Values without a gradient take the contribution itself; others add it to theirs, after all values
 * have taken theirs. */
static void distribute(struct backward *backward, const yoke_node *node,
                       const yoke_place *contributions) {
    bool later[YOKE_PLAN_INPUTS] = {false};
    for (int k = 0; k < node->input_count; k++) {
        int value = node->inputs[k];
        if (!backward->program->requires_gradient[value]) continue;
        later[k] = backward->gradients[value] != YOKE_PLACE_NOWHERE;
        if (!later[k]) set_gradient(backward, value, contributions[k]);
    }
    for (int k = 0; k < node->input_count; k++) {
        bool needed_again =
            k == 0 && node->input_count == 2 && later[1] && contributions[0] == contributions[1];
        if (later[k]) contribute(backward, node->inputs[k], contributions[k], !needed_again);
    }
}

static void plan_node(struct backward *backward, int index) {
    yoke_program *program = backward->program;
    const yoke_node *node = &program->model->nodes[index];
    yoke_node_places *places = &program->places[index];
    backward->node = index;
    backward->step = program->backward[index];
    places->output_gradient = backward->gradients[node->output];
    if (places->output_gradient >= 0) {
        backward->references[places->output_gradient]--;
        backward->gradients[node->output] = YOKE_PLACE_NOWHERE;
        use(backward, places->output_gradient);
    }
    if (places->skips_backward) {
        set_gradient(backward, node->inputs[0], places->output_gradient);
        return;
    }
    emit(backward, (yoke_action){.kind = YOKE_ACTION_BACKWARD});
    contribute_tensors(backward, index);
    if (!yoke_program_requires_input_gradient(program, node)) return;

    if (plan_adds(backward, index)) {
        places->adds_input_gradient = true;
        places->input_gradients[0] = backward->gradients[node->inputs[0]];
        use(backward, places->input_gradients[0]);
        return;
    }
    bool shared = yoke_plan_describe(program->plans[index])->shared_input_gradient;
    yoke_place contributions[YOKE_PLAN_INPUTS];
    for (int k = 0; k < node->input_count; k++) {
        bool shares = k > 0 && shared;
        contributions[k] = shares ? contributions[0] : place_gradient(backward, index, k);
        if (!shares) places->input_gradients[k] = contributions[k];
    }
    distribute(backward, node, contributions);
}

/* The plan that computes the loss has computed this OUTPUT: its gradient, which has no storage, is
 * that of its input. */
static void pass_on(const struct backward *backward, int index) {
    const yoke_node *node = &backward->program->model->nodes[index];
    backward->gradients[node->inputs[0]] = backward->gradients[node->output];
}

/* The nodes whose forward runs again right before this node's backward. */
static void run_again_before(struct backward *backward, int index) {
    const yoke_program *program = backward->program;
    int behind = index + 1 < program->model->node_count ? program->backward[index + 1]
                                                        : program->model->node_count;
    backward->node = index;
    for (int i = 0; i <= index; i++)
        if (program->again[i] > behind && program->again[i] < program->backward[index])
            emit(backward, (yoke_action){.kind = YOKE_ACTION_AGAIN, .again = i});
}

/* The number of actions up to and including this node's. */
static int actions_through(const yoke_program *program, int node) {
    int count = 0;
    while (count < program->action_count && program->actions[count].node >= node)
        count++;
    return count;
}

yoke_status yoke_plan_backward_actions(yoke_program *program, const yoke_flat *flat) {
    const yoke_model *model = program->model;
    struct backward backward = {
        .program = program,
        .gradients = yoke_calloc((size_t)model->value_count, sizeof *backward.gradients),
        .references = yoke_calloc((size_t)program->arena.capacity, sizeof *backward.references),
        .contributed = yoke_calloc((size_t)model->tensor_count, sizeof *backward.contributed),
    };
    bool enough =
        backward.gradients != NULL && backward.references != NULL && backward.contributed != NULL;
    if (enough) {
        for (int i = 0; i < model->value_count; i++)
            backward.gradients[i] = YOKE_PLACE_NOWHERE;
        for (int k = 0; k < model->output_count; k++)
            backward.gradients[model->value_count - 1 - k] = YOKE_PLACE_OUTPUT_GRADIENTS - k;
        for (int i = model->node_count - 1; i >= 0; i--) {
            run_again_before(&backward, i);
            if (!yoke_program_runs_backward(program, &model->nodes[i])) continue;
            if (program->loss_node != YOKE_NONE &&
                program->places[i].computed_by == program->loss_node)
                pass_on(&backward, i);
            else
                plan_node(&backward, i);
        }
        for (int k = 0; k < model->input_count; k++) {
            program->gradients_of_inputs[k] = backward.gradients[model->inputs[k].value];
            use(&backward, program->gradients_of_inputs[k]);
        }
        /* Segment s ends with the node that completes the last parameter of bucket s. The last
         * segment also has the actions behind it, which lead to the gradients of the model's
         * inputs. */
        int s = 0;
        for (int i = 0; i < flat->trainable_count; i++) {
            const yoke_parameter *parameter = &flat->parameters[i];
            if (parameter->offset >= flat->buckets[s].offset + flat->buckets[s].elements) s++;
            int node = yoke_completing_node(program->model, parameter->tensor);
            int end = actions_through(program, node);
            if (end > program->segment_ends[s]) program->segment_ends[s] = end;
        }
        program->segment_ends[s] = program->action_count;
    }
    yoke_free(backward.gradients);
    yoke_free(backward.references);
    yoke_free(backward.contributed);
    size_t bytes = (size_t)program->arena.capacity * sizeof *backward.references;
    return enough ? YOKE_OK : FAIL_MEMORY(bytes, "the plan of backward");
}
