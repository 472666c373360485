/* SPDX-License-Identifier: Apache-2.0 */
/* Creates and runs programs. First it creates the plans in forward order, since a plan needs its
 * inputs' layouts; then it places all values; then it binds the plans to the addresses. */
#include <stdlib.h>

#include "model/program.h"

/* Plans. */

static yoke_plan_request request_of(const yoke_program *program, const yoke_program_request *from,
                                    int index) {
    const yoke_node *node = &program->model->nodes[index];
    yoke_plan_request request = {
        .operation = &node->operation,
        .rows = from->rows,
        .most_rows = from->most_rows,
        .training = from->training,
        .inference = from->inference,
        .precision = from->precision,
        .algorithm = from->algorithm,
        .input_gradient = yoke_program_requires_input_gradient(program, node),
        .frozen = !yoke_program_trains(program, node),
        .algorithms = from->algorithms,
        .fixed_statistics = yoke_program_fixes_norm(program, index),
        .norm_group = yoke_program_fixes_norm(program, index) ? NULL : from->norm_group,
    };
    for (int k = 0; k < node->input_count; k++)
        request.inputs[k] = program->layouts[node->inputs[k]];
    for (int k = 0; k < node->tensor_count; k++) {
        request.parameters[k] = program->parameters[node->tensors[k]];
        if (from->flat != NULL) request.forms[k] = program->forms[node->tensors[k]];
    }
    return request;
}

/* Whether one node alone has this tensor. */
static bool is_sole(const yoke_model *model, int tensor) {
    int nodes = 0;
    for (int i = 0; i < model->node_count; i++)
        for (int k = 0; k < model->nodes[i].tensor_count; k++)
            nodes += model->nodes[i].tensors[k] == tensor;
    return nodes == 1;
}

static yoke_status plan_node(yoke_program *program, const yoke_program_request *from, int index) {
    const yoke_node *node = &program->model->nodes[index];
    yoke_plan_request request = request_of(program, from, index);
    yoke_offer_joins(program, index, &request);
    yoke_offer_norms(program, index, &request);
    request.input_shared = program->training && yoke_program_shares_input(program, index);
    request.sole_weight = is_sole(program->model, node->tensors[0]);
    TRY(yoke_algorithms_go_on(from->algorithms));
    TRY(yoke_check_cancelled());
    TRY(yoke_plan_create(&program->plans[index], from->device, &request));
    const yoke_plan_needs *needs = yoke_plan_describe(program->plans[index]);
    program->layouts[node->output] = needs->output;
    for (int k = 0; k < node->tensor_count; k++) {
        int tensor = node->tensors[k];
        program->parameters[tensor] = needs->parameters[k];
        program->forms[tensor] |= needs->reads_shadow[k] ? YOKE_FORM_SHADOW : YOKE_FORM_FLOAT32;
        /* Each plan of a layer chooses the pass that adds the bias, and so the bias's form. */
        if (k > 0) program->forms[tensor] |= YOKE_FORM_FLOAT32;
    }
    if (needs->scratch_bytes > program->scratch_bytes)
        program->scratch_bytes = needs->scratch_bytes;
    if (needs->computes_loss) program->loss_node = index;
    if (yoke_plan_factors(program->plans[index]) != NULL)
        program->factored[node->tensors[0]] = program->plans[index];
    return YOKE_OK;
}

/* Input 0, where its one reader takes images in a layout of its own. Every program of a replica
 * decides alike. */
static yoke_status choose_image_layout(yoke_program *program, const yoke_program_request *from) {
    int value = program->model->inputs[0].value, reader = yoke_reading_node(program->model, value);
    if (reader == YOKE_NONE || from->input_gradients) return YOKE_OK;
    yoke_plan_request request = request_of(program, from, reader);
    yoke_layout layout;
    TRY(yoke_algorithms_go_on(from->algorithms));
    TRY(yoke_device_image_layout(program->device, &request, &layout));
    program->reads_image = layout.bytes > 0;
    if (program->reads_image) program->layouts[value] = layout;
    return YOKE_OK;
}

static yoke_status make_plans(yoke_program *program, const yoke_program_request *request) {
    const yoke_model *model = program->model;
    const yoke_flat *flat = request->flat;
    for (int k = 0; k < model->input_count; k++) {
        int value = model->inputs[k].value;
        int64_t shape[4];
        yoke_dims_shape(yoke_dims_of(yoke_value_shape(model, value)), request->rows, shape);
        TRY(yoke_layout_plain(program->device, shape, 4, &program->layouts[value]));
    }
    for (int i = 0; flat != NULL && i < flat->parameter_count; i++) {
        const yoke_parameter *parameter = &flat->parameters[i];
        program->parameters[parameter->tensor] = parameter->layout;
        program->forms[parameter->tensor] = parameter->forms;
    }
    TRY(choose_image_layout(program, request));
    TRY(yoke_model_loss_operation(program->model, &program->loss_operation));
    for (int i = 0; i < model->node_count; i++)
        TRY(plan_node(program, request, i));
    const yoke_plan_request loss = {
        .operation = &program->loss_operation,
        .rows = request->rows,
        .most_rows = request->most_rows,
        .training = request->training,
        .precision = YOKE_FLOAT32,
        .algorithm = request->algorithm,
        .input_gradient = request->training,
        .inputs = {program->layouts[model->value_count - 1]},
        .algorithms = request->algorithms,
    };
    TRY(yoke_plan_create(&program->loss, request->device, &loss));
    size_t scratch_bytes = yoke_plan_describe(program->loss)->scratch_bytes;
    if (scratch_bytes > program->scratch_bytes) program->scratch_bytes = scratch_bytes;
    return YOKE_OK;
}

/* Storages: one for each value, one for what each node saves, a contribution for each of its inputs
 * and tensors, a copy for each input, and one for what the loss saves. Actions: for each node one
 * backward, a sum for each tensor, and a copy with an accumulate for each input. */
enum { MOST = 2 + YOKE_PLAN_PARAMETERS + 2 * YOKE_PLAN_INPUTS };

static yoke_status allocate_lists(yoke_program *program) {
    const yoke_model *model = program->model;
    size_t nodes = (size_t)model->node_count, values = (size_t)model->value_count;
    program->plans = yoke_calloc(nodes, sizeof(yoke_plan *));
    program->layouts = yoke_calloc(values, sizeof *program->layouts);
    program->parameters = yoke_calloc((size_t)model->tensor_count, sizeof *program->parameters);
    program->forms = yoke_calloc((size_t)model->tensor_count, sizeof *program->forms);
    program->factored = yoke_calloc((size_t)model->tensor_count, sizeof *program->factored);
    program->requires_gradient = yoke_calloc(values, sizeof *program->requires_gradient);
    program->values = yoke_calloc(values, sizeof *program->values);
    program->again = yoke_calloc(nodes, sizeof *program->again);
    program->backward = yoke_calloc(nodes, sizeof *program->backward);
    program->places = yoke_calloc(nodes, sizeof *program->places);
    program->actions = yoke_calloc(MOST * nodes, sizeof *program->actions);
    program->segment_ends = yoke_calloc((size_t)model->tensor_count, sizeof *program->segment_ends);
    if (program->plans == NULL || program->layouts == NULL || program->parameters == NULL ||
        program->forms == NULL || program->factored == NULL || program->requires_gradient == NULL ||
        program->values == NULL || program->places == NULL || program->again == NULL ||
        program->backward == NULL || program->actions == NULL || program->segment_ends == NULL)
        return FAIL_MEMORY(values * sizeof *program->layouts, "the plans of a model");
    return yoke_arena_create(&program->arena, model->value_count + MOST * model->node_count + 1);
}

static yoke_status build_program(yoke_program *program, const yoke_program_request *request) {
    program->model = request->model;
    program->device = request->device;
    program->rows = request->rows;
    program->precision = request->precision;
    program->training = request->training;
    program->input_gradients = request->input_gradients;
    program->recomputes = request->recomputes;
    program->outputs_only = request->outputs_only;
    program->frozen = request->frozen;
    program->fixed_statistics = request->fixed_statistics;
    program->before_operation = request->before_operation;
    program->loss_node = YOKE_NONE;
    TRY(allocate_lists(program));
    yoke_program_mark_gradients(program);
    return make_plans(program, request);
}

yoke_status yoke_program_create(yoke_program **program, const yoke_program_request *request) {
    yoke_program *made = yoke_calloc(1, sizeof *made);
    if (made == NULL) return FAIL_MEMORY(sizeof *made, "the plans of a model");
    yoke_status status = build_program(made, request);
    if (status != YOKE_OK) {
        yoke_program_destroy(made);
        return status;
    }
    *program = made;
    return YOKE_OK;
}

static void destroy_recordings(yoke_program_recordings *recorded) {
    for (int i = 0; i < recorded->segment_count; i++)
        yoke_recording_destroy(recorded->segments[i]);
    yoke_free(recorded->segments);
    yoke_recording_destroy(recorded->loss);
    yoke_recording_destroy(recorded->forward);
}

void yoke_program_destroy(yoke_program *program) {
    if (program == NULL) return;
    for (int i = 0; i < 2; i++)
        destroy_recordings(&program->recorded[i]);
    yoke_plan_destroy(program->loss);
    for (int i = 0; program->plans != NULL && i < program->model->node_count; i++)
        yoke_plan_destroy(program->plans[i]);
    yoke_device_free(program->device, program->own_scratch.address);
    yoke_device_free(program->device, program->own_arena.address);
    yoke_arena_destroy(&program->arena);
    yoke_free(program->segment_ends);
    yoke_free(program->actions);
    yoke_free(program->places);
    yoke_free(program->values);
    yoke_free(program->again);
    yoke_free(program->backward);
    yoke_free(program->requires_gradient);
    yoke_free(program->parameters);
    yoke_free(program->forms);
    yoke_free(program->factored);
    yoke_free(program->layouts);
    yoke_free(program->plans);
    yoke_free(program);
}

/* Places and addresses. */

yoke_status yoke_program_schedule(yoke_program *program, const yoke_flat *flat) {
    const yoke_model *model = program->model;
    program->loss_saved = YOKE_PLACE_NOWHERE;
    for (int k = 0; k < model->input_count; k++)
        program->gradients_of_inputs[k] = YOKE_PLACE_NOWHERE;
    for (int i = 0; i < model->node_count; i++)
        program->places[i] = (yoke_node_places){
            .saved = YOKE_PLACE_NOWHERE,
            .output_gradient = YOKE_PLACE_NOWHERE,
            .contributions = {YOKE_PLACE_NOWHERE, YOKE_PLACE_NOWHERE},
            .previous = YOKE_NONE,
            .computed_by = YOKE_NONE,
            .summed_by = YOKE_NONE,
            .applied_by = YOKE_NONE,
        };
    for (int i = 0; i < model->node_count; i++)
        for (int k = 0; k < YOKE_PLAN_INPUTS; k++)
            program->places[i].input_gradients[k] = YOKE_PLACE_NOWHERE;
    TRY(yoke_plan_steps(program, program->recomputes));
    yoke_place_norms(program);
    yoke_place_joins(program);
    TRY(yoke_place_values(program));
    if (program->training) TRY(yoke_plan_backward_actions(program, flat));
    return yoke_arena_place(&program->arena);
}

/* Running. */

bool yoke_program_computes(const yoke_program *program, int node) {
    return program->places[node].computed_by == YOKE_NONE;
}

/* Whether a node's plan runs in the loss's place. */
static bool joins_loss(const yoke_program *program, const yoke_plan_step *step) {
    return step->loss_only && program->loss_node != YOKE_NONE;
}

static yoke_status round_weights(const yoke_program *program, const yoke_replica_memory *memory,
                                 size_t offset, size_t elements) {
    return yoke_device_shadow(program->device, program->precision, memory->shadow + offset,
                              memory->parameters + offset, elements);
}

/* Forward's part of the shadow: all of it, none, or what came in float32 and is read in 16 bits,
 * too. */
static yoke_status write_shadow(const yoke_program *program, const yoke_flat *flat,
                                const yoke_replica_memory *memory) {
    const unsigned both = YOKE_FORM_FLOAT32 | YOKE_FORM_SHADOW;
    unsigned forms;
    if (memory->shadow == NULL) return YOKE_OK;
    if (!memory->updates_write_shadow) return round_weights(program, memory, 0, flat->elements);
    if (!memory->receives_shadow) return YOKE_OK;
    for (size_t at = 0, end; at < flat->trainable_elements; at = end) {
        end = yoke_flat_alike(flat, at, flat->trainable_elements, &forms);
        if (forms == both) TRY(round_weights(program, memory, at, end - at));
    }
    return YOKE_OK;
}

/* CANCELLED where an operation is done when its call returns; on other devices nothing waits that
 * a program could end. */
static yoke_status go_on(const yoke_program *program) {
    return yoke_device_shares_memory(program->device) ? yoke_check_cancelled() : YOKE_OK;
}

static yoke_status queue_forward(yoke_program *program, const yoke_flat *flat,
                                 const yoke_replica_memory *memory, const yoke_plan_step *step) {
    TRY(write_shadow(program, flat, memory));
    const yoke_operation_hook *hook = &program->before_operation;
    for (int i = 0; i < program->model->node_count; i++) {
        int layers = yoke_fused_layers(&program->model->nodes[i]);
        if (hook->call != NULL && layers > 0) hook->call(hook->context, layers);
        bool waits = joins_loss(program, step) && i == program->loss_node;
        if (!yoke_program_computes(program, i) || waits) continue;
        TRY(go_on(program));
        TRY(yoke_plan_forward(program->plans[i], step));
    }
    return YOKE_OK;
}

static yoke_status queue_loss(yoke_program *program, const yoke_plan_step *step) {
    if (joins_loss(program, step))
        return yoke_plan_forward(program->plans[program->loss_node], step);
    TRY(yoke_plan_forward(program->loss, step));
    return program->training ? yoke_plan_backward(program->loss, step) : YOKE_OK;
}

static const yoke_program_recordings *recorded_of(const yoke_program *program,
                                                  const yoke_plan_step *step) {
    return &program->recorded[joins_loss(program, step)];
}

/* Inside a caller's recording the plans are queued instead of replayed. */
static bool replays(const yoke_program *program, const yoke_recording *recording) {
    return recording != NULL && !yoke_device_is_recording(program->device);
}

yoke_status yoke_program_forward(yoke_program *program, const yoke_flat *flat,
                                 const yoke_replica_memory *memory, const yoke_plan_step *step) {
    yoke_recording *recording = recorded_of(program, step)->forward;
    if (replays(program, recording)) return yoke_recording_run(recording);
    return queue_forward(program, flat, memory, step);
}

yoke_status yoke_program_loss(yoke_program *program, const yoke_plan_step *step) {
    yoke_recording *recording = recorded_of(program, step)->loss;
    if (replays(program, recording)) return yoke_recording_run(recording);
    return queue_loss(program, step);
}

static yoke_status run_again(const yoke_program *program, int node, const yoke_plan_step *step) {
    yoke_plan_step own = *step;
    own.again = true;
    return yoke_program_computes(program, node) ? yoke_plan_forward(program->plans[node], &own)
                                                : YOKE_OK;
}

yoke_status yoke_program_action(yoke_program *program, const yoke_action *action,
                                const yoke_plan_step *step) {
    yoke_device *device = program->device;
    const yoke_layout *layout = &program->layouts[action->value];
    switch (action->kind) {
    case YOKE_ACTION_BACKWARD:
        return yoke_plan_backward(program->plans[action->node], step);
    case YOKE_ACTION_AGAIN:
        return run_again(program, action->again, step);
    case YOKE_ACTION_ACCUMULATE:
        return yoke_device_accumulate(device, layout, action->to_address, action->from_address);
    case YOKE_ACTION_COPY:
        return yoke_device_copy(device, YOKE_STREAM_COMPUTE, action->to_address, device,
                                action->from_address, layout->bytes);
    case YOKE_ACTION_SUM: {
        const float *both[] = {action->to_address, action->from_address};
        return yoke_device_sum(device, YOKE_STREAM_COMPUTE, action->to_address, both, 2,
                               action->elements);
    }
    }
    return YOKE_OK;
}

static yoke_status queue_segment(yoke_program *program, int segment, const yoke_plan_step *step) {
    int begin = segment > 0 ? program->segment_ends[segment - 1] : 0;
    for (int i = begin; i < program->segment_ends[segment]; i++) {
        TRY(go_on(program));
        TRY(yoke_program_action(program, &program->actions[i], step));
    }
    return YOKE_OK;
}

yoke_status yoke_program_segment(yoke_program *program, int segment, const yoke_plan_step *step) {
    const yoke_program_recordings *recorded = recorded_of(program, step);
    bool known = segment < recorded->segment_count;
    if (known && replays(program, recorded->segments[segment]))
        return yoke_recording_run(recorded->segments[segment]);
    return queue_segment(program, segment, step);
}

/* A replica without rows takes part in the batch norms alone. */

static bool is_norm(const yoke_program *program, int index) {
    const yoke_node *node = &program->model->nodes[index];
    return node->operation.kind == YOKE_OP_BATCH_NORM && !yoke_program_fixes_norm(program, index);
}

yoke_status yoke_program_idle_forward(yoke_program *program, int done) {
    const yoke_plan_step step = {.idle = true};
    for (int i = 0, norms = 0; i < program->model->node_count; i++)
        if (is_norm(program, i) && norms++ >= done)
            TRY(yoke_plan_forward(program->plans[i], &step));
    return YOKE_OK;
}

yoke_status yoke_program_idle_segment(yoke_program *program, int segment) {
    const yoke_plan_step step = {.idle = true};
    int begin = segment > 0 ? program->segment_ends[segment - 1] : 0;
    for (int i = begin; i < program->segment_ends[segment]; i++) {
        const yoke_action *action = &program->actions[i];
        if (action->kind == YOKE_ACTION_BACKWARD && is_norm(program, action->node))
            TRY(yoke_plan_backward(program->plans[action->node], &step));
    }
    return YOKE_OK;
}

/* Recording: queues each plan once. On devices that record, plans read nothing of their `step` but
 * loss_only. */

bool yoke_program_reads_shadow(const yoke_program *program) {
    for (int i = 0; i < program->model->node_count; i++)
        for (int k = 0; k < YOKE_PLAN_PARAMETERS; k++)
            if (yoke_plan_describe(program->plans[i])->reads_shadow[k]) return true;
    return false;
}

static yoke_status record_segments(yoke_program *program, const yoke_flat *flat,
                                   const yoke_plan_step *step, yoke_program_recordings *to) {
    size_t buckets = (size_t)flat->bucket_count;
    to->segments = yoke_calloc(buckets, sizeof(yoke_recording *));
    if (to->segments == NULL) return FAIL_MEMORY(buckets * sizeof(yoke_recording *), "recordings");
    for (int segment = 0; segment < flat->bucket_count; segment++) {
        TRY(yoke_recording_begin(program->device));
        TRY(yoke_recording_end(program->device, queue_segment(program, segment, step),
                               &to->segments[segment]));
        to->segment_count++;
    }
    return YOKE_OK;
}

static yoke_status record_steps(yoke_program *program, const yoke_flat *flat,
                                const yoke_replica_memory *memory, bool loss_only) {
    yoke_device *device = program->device;
    const yoke_plan_step step = {.loss_scale = 1, .loss_only = loss_only};
    yoke_program_recordings *to = &program->recorded[loss_only];
    if (to->forward != NULL) return YOKE_OK;
    TRY(yoke_recording_begin(device));
    TRY(yoke_recording_end(device, queue_forward(program, flat, memory, &step), &to->forward));
    TRY(yoke_recording_begin(device));
    TRY(yoke_recording_end(device, queue_loss(program, &step), &to->loss));
    return program->training ? record_segments(program, flat, &step, to) : YOKE_OK;
}

yoke_status yoke_program_record(yoke_program *program, const yoke_flat *flat,
                                const yoke_replica_memory *memory) {
    if (program->loss_node != YOKE_NONE) TRY(record_steps(program, flat, memory, true));
    return memory->outputs[0] != NULL ? record_steps(program, flat, memory, false) : YOKE_OK;
}
