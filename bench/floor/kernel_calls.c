/* SPDX-License-Identifier: Apache-2.0 */
/* What a call of a training step is: its layer, shape and algorithm, and the bytes and operations
 * that it cannot do without. */
#include <stdio.h>

#include "bench/floor/kernel_time.h"

static double value_bytes(const yoke_program *program, int value) {
    return (double)program->layouts[value].bytes;
}

static double input_bytes(const yoke_program *program, const yoke_node *node) {
    double bytes = 0;
    for (int k = 0; k < node->input_count; k++)
        bytes += value_bytes(program, node->inputs[k]);
    return bytes;
}

/* As the plan reads them. */
static double parameter_bytes(const yoke_program *program, const yoke_node *node,
                              const yoke_plan_needs *needs) {
    double bytes = 0;
    for (int k = 0; k < node->tensor_count; k++) {
        double whole = (double)program->parameters[node->tensors[k]].bytes;
        bytes += needs->reads_shadow[k] ? whole / 2 : whole;
    }
    return bytes;
}

static double gradient_bytes(const yoke_program *program, const yoke_node *node) {
    double bytes = 0;
    for (int k = 0; k < node->tensor_count; k++)
        if (!yoke_is_frozen(program->frozen, node->tensors[k]))
            bytes += (double)program->parameters[node->tensors[k]].bytes;
    return bytes;
}

/* What the pass of the input's gradient reads to add to it, or for backward of the activation
 * before. */
static double added_bytes(const yoke_program *program, const yoke_node *node,
                          const bench_call_subject *subject) {
    const yoke_node_places *places = &program->places[subject->node];
    if (subject->part == YOKE_BACKWARD_WEIGHTS) return 0;
    if (places->previous != YOKE_NONE) {
        const yoke_plan_needs *before = yoke_plan_describe(program->plans[places->previous]);
        return before->keeps_output ? value_bytes(program, node->inputs[0])
                                    : (double)before->mask_bytes;
    }
    return places->adds_input_gradient ? value_bytes(program, node->inputs[0]) : 0;
}

static double backward_bytes(const yoke_program *program, const yoke_node *node,
                             const yoke_plan_needs *needs, yoke_direction part) {
    double output = value_bytes(program, node->output);
    double gradients = 0;
    for (int k = 0; k < node->input_count; k++)
        if (program->requires_gradient[node->inputs[k]] && !(k > 0 && needs->shared_input_gradient))
            gradients += value_bytes(program, node->inputs[k]);
    if (part == YOKE_BACKWARD_WEIGHTS)
        return input_bytes(program, node) + output + gradient_bytes(program, node);
    if (part == YOKE_BACKWARD_DATA)
        return output + parameter_bytes(program, node, needs) + gradients;
    double bytes = output + gradients + (double)needs->saved_bytes +
                   parameter_bytes(program, node, needs) + gradient_bytes(program, node);
    for (int k = 0; k < node->input_count; k++)
        if (needs->backward_reads[k]) bytes += value_bytes(program, node->inputs[k]);
    return needs->backward_reads_output ? bytes + output : bytes;
}

static double node_bytes(const yoke_program *program, const bench_call_subject *subject) {
    const yoke_node *node = &program->model->nodes[subject->node];
    const yoke_plan_needs *needs = yoke_plan_describe(program->plans[subject->node]);
    if (subject->backward)
        return backward_bytes(program, node, needs, subject->part) +
               added_bytes(program, node, subject);
    double bytes = input_bytes(program, node) + value_bytes(program, node->output);
    /* What convolution and linear save is a copy in another layout, which others do without. */
    if (!yoke_plan_has_parts(program->plans[subject->node])) bytes += (double)needs->saved_bytes;
    if (needs->keeps_output) bytes += value_bytes(program, node->output); /* and next[0]'s */
    if (needs->computes_sum) bytes += 2 * value_bytes(program, node->inputs[0]);
    return bytes + parameter_bytes(program, node, needs) + (double)needs->mask_bytes;
}

static void describe_node(const yoke_program *program, const bench_call_subject *subject,
                          bench_kernel_call *call) {
    static const char *const parts[] = {"backward", "backward data", "backward weights"};
    const yoke_operation *operation = &program->model->nodes[subject->node].operation;
    call->layer = operation->name;
    call->operation = operation->kind == YOKE_OP_ACTIVATION
                          ? yoke_activation_name(operation->activation)
                          : yoke_kind_name(operation->kind);
    call->direction = subject->backward ? parts[subject->part] : "forward";
    bool whole = subject->backward && subject->part == YOKE_FORWARD;
    call->algorithm = yoke_plan_algorithm(program->plans[subject->node],
                                          whole ? YOKE_BACKWARD_DATA : subject->part);
    call->bytes = node_bytes(program, subject);
    const yoke_node *node = &program->model->nodes[subject->node];
    double forward = 2 * yoke_layer_work(program->model, node) * program->rows;
    if (operation->kind == YOKE_OP_ATTENTION && operation->causal) /* pairs that count */
        forward *= (1 + 1.0 / operation->input.height) / 2;
    call->operations = subject->backward && subject->part == YOKE_FORWARD ? 2 * forward : forward;
    yoke_dims from = operation->input, to = operation->output;
    int length = snprintf(call->shape, sizeof call->shape, "%dx%dx%d to %dx%dx%d", from.channels,
                          from.height, from.width, to.channels, to.height, to.width);
    if (operation->kernel > 0 && length > 0 && (size_t)length < sizeof call->shape)
        snprintf(call->shape + length, sizeof call->shape - (size_t)length, ", kernel %d/%d",
                 operation->kernel, operation->stride);
}

/* Sums of gradients. */
static void describe_action(const yoke_program *program, const yoke_action *action,
                            bench_kernel_call *call) {
    static const char *const names[] = {[YOKE_ACTION_ACCUMULATE] = "accumulate",
                                        [YOKE_ACTION_COPY] = "copy",
                                        [YOKE_ACTION_SUM] = "sum"};
    bool sum = action->kind == YOKE_ACTION_SUM;
    double bytes =
        sum ? (double)(action->elements * sizeof(float)) : value_bytes(program, action->value);
    call->layer = program->model->nodes[action->node].operation.name;
    call->operation = names[action->kind];
    call->direction = "backward";
    call->bytes = (action->kind == YOKE_ACTION_COPY ? 2 : 3) * bytes;
    snprintf(call->shape, sizeof call->shape, "%.0f bytes", bytes);
}

/* It reads output 0; backward writes its gradient as well, or forward, where backward does not read
 * output 0 again. */
static void describe_loss(const yoke_program *program, bool backward, bench_kernel_call *call) {
    const yoke_model *model = program->model;
    double output = value_bytes(program, model->outputs[0].value);
    call->layer = call->operation = "loss";
    call->direction = backward ? "backward" : "forward";
    bool joined = !yoke_plan_describe(program->loss)->backward_reads[0];
    call->bytes = backward == joined ? output : 2 * output;
    if (joined && backward) call->bytes = 0;
    call->algorithm = yoke_plan_algorithm(program->loss, YOKE_FORWARD);
    snprintf(call->shape, sizeof call->shape, "%.0f bytes", output);
}

void bench_call_describe(const yoke_program *program, const bench_call_subject *subject,
                         bench_kernel_call *call) {
    *call = (bench_kernel_call){0};
    if (subject->action != NULL)
        describe_action(program, subject->action, call);
    else if (subject->node == YOKE_NONE)
        describe_loss(program, subject->backward, call);
    else
        describe_node(program, subject, call);
}
