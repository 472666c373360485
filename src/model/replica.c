/* SPDX-License-Identifier: Apache-2.0 */
/* One device's copy of the model: its flat buffers, its shard of the batch, and a program for every
 * prepared number of rows. */
#include <stdlib.h>
#include <string.h>

#include "model/program.h"

/* Memory. */

static yoke_status allocate_floats(yoke_replica *replica, size_t count, const char *what,
                                   float **floats) {
    void *pointer = NULL;
    TRY(yoke_device_allocate(replica->options.device, count * sizeof **floats, what, &pointer));
    *floats = pointer;
    return YOKE_OK;
}

/* A flat buffer, of elements of `size` bytes. */
static yoke_status allocate_buffer(const yoke_replica *replica, size_t size, const char *what,
                                   void **buffer) {
    size_t bytes = replica->flat->elements * size;
    yoke_device *device = replica->options.device;
    return replica->options.exchanges ? yoke_device_allocate_collective(device, bytes, what, buffer)
                                      : yoke_device_allocate(device, bytes, what, buffer);
}

static yoke_status allocate_flat(yoke_replica *replica, float *parameters, float *gradients) {
    const yoke_flat *flat = replica->flat;
    yoke_replica_memory *memory = &replica->memory;
    memory->parameters = parameters;
    memory->gradients = gradients;
    replica->borrows_parameters = parameters != NULL;
    replica->borrows_gradients = gradients != NULL;
    size_t size = sizeof(float);
    if (parameters == NULL)
        TRY(allocate_buffer(replica, size, "parameters", (void **)&memory->parameters));
    if (gradients == NULL && !replica->options.inference)
        TRY(allocate_buffer(replica, size, "gradients", (void **)&memory->gradients));
    if (flat->buffer_elements == 0) return YOKE_OK;
    return allocate_floats(replica, flat->buffer_elements, "running statistics", &memory->buffers);
}

/* Output k and its gradient. */
static yoke_status allocate_output(yoke_replica *replica, int k) {
    yoke_replica_memory *memory = &replica->memory;
    size_t rows = (size_t)replica->options.rows;
    size_t count = rows * yoke_model_output_elements(replica->model, k);
    TRY(allocate_floats(replica, count, "the outputs of a shard", &memory->outputs[k]));
    memory->batch_bytes += count * sizeof(float);
    if (replica->options.inference) return YOKE_OK;
    TRY(allocate_floats(replica, count, "output gradients", &memory->output_gradients[k]));
    memory->batch_bytes += count * sizeof(float);
    return YOKE_OK;
}

static yoke_status allocate_batch(yoke_replica *replica) {
    yoke_device *device = replica->options.device;
    yoke_replica_memory *memory = &replica->memory;
    const yoke_model *model = replica->model;
    size_t rows = (size_t)replica->options.rows;
    size_t floats = 0;
    size_t label_bytes = rows * yoke_model_positions(model) * sizeof(int32_t);
    size_t mix_bytes = rows * sizeof *memory->mixes;
    void *labels = NULL, *mixes = NULL, *scalars = NULL, *on_host = NULL;
    for (int k = 0; k < model->input_count; k++) {
        size_t count = rows * yoke_model_input_elements(model, k);
        TRY(allocate_floats(replica, count, "the inputs of a shard", &memory->inputs[k]));
        floats += count;
    }
    if (yoke_model_reads_targets(model)) {
        floats += rows * yoke_model_output_elements(model, 0);
        TRY(allocate_floats(replica, rows * yoke_model_output_elements(model, 0),
                            "the targets of a shard", &memory->targets));
    }
    TRY(yoke_device_allocate(device, label_bytes, "the labels of a shard", &labels));
    memory->labels = labels;
    TRY(yoke_device_allocate(device, mix_bytes, "the second labels of a shard", &mixes));
    memory->mixes = mixes;
    TRY(yoke_device_allocate(device, sizeof *memory->scalars, "a loss", &scalars));
    memory->scalars = scalars;
    TRY(yoke_device_allocate_host(device, sizeof *memory->on_host, "a loss", &on_host));
    memory->on_host = on_host;
    memory->batch_bytes = floats * sizeof(float) + label_bytes + mix_bytes;
    for (int k = 1; k < model->output_count; k++)
        TRY(allocate_output(replica, k));
    return YOKE_OK;
}

/* All programs read it in the layout that the first has chosen. */
static yoke_status allocate_image(yoke_replica *replica) {
    const yoke_program *program = replica->programs[0];
    yoke_replica_memory *memory = &replica->memory;
    if (!program->reads_image) return YOKE_OK;
    memory->image_layout = program->layouts[replica->model->inputs[0].value];
    memory->batch_bytes += memory->image_layout.bytes;
    return yoke_device_allocate(replica->options.device, memory->image_layout.bytes,
                                "the images of a shard", &memory->image);
}

/* All programs that fit share the first program's region; the others have their own. */
static yoke_status find_region(yoke_device *device, yoke_region *shared, size_t bytes,
                               const char *what, yoke_region *own) {
    *own = (yoke_region){0};
    if (bytes <= shared->bytes) return YOKE_OK;
    yoke_region *region = shared->address == NULL ? shared : own;
    TRY(yoke_device_allocate(device, bytes, what, &region->address));
    region->bytes = bytes;
    return YOKE_OK;
}

/* Programs. */

static yoke_status decide_flat(yoke_replica *replica, const yoke_program *program) {
    yoke_flat_request request = {
        .model = replica->model,
        .device = replica->options.device,
        .layouts = program->parameters,
        .forms = program->forms,
        .first_bucket_bytes = replica->options.first_bucket_bytes,
        .bucket_bytes = replica->options.bucket_bytes,
        .bucket_parts = replica->options.bucket_parts,
        .frozen = replica->options.frozen,
    };
    TRY(yoke_flat_create(&replica->own_flat, &request));
    replica->flat = replica->own_flat;
    return YOKE_OK;
}

static yoke_status find_regions(yoke_replica *replica, yoke_program *program) {
    yoke_device *device = replica->options.device;
    TRY(find_region(device, &replica->arena, program->arena.bytes, "activations",
                    &program->own_arena));
    return find_region(device, &replica->scratch, program->scratch_bytes, "scratch",
                       &program->own_scratch);
}

/* What the plans of a layer keep is one for all programs: models of a replica have the same layers
 * that keep something, in the same order. The first program is the largest. */
static yoke_status find_kept(yoke_replica *replica, yoke_program *program) {
    int count = 0, nodes = program->model->node_count;
    for (int i = 0; i < nodes; i++)
        count += yoke_plan_describe(program->plans[i])->kept_bytes > 0;
    if (replica->kept == NULL && count > 0) {
        replica->kept = yoke_calloc((size_t)count, sizeof *replica->kept);
        if (replica->kept == NULL) return FAIL_MEMORY(sizeof *replica->kept, "what layers keep");
        replica->kept_count = count;
    }
    bool fits = count == 0 || count == replica->kept_count;
    for (int i = 0, k = 0; i < nodes && fits; i++) {
        size_t bytes = yoke_plan_describe(program->plans[i])->kept_bytes;
        if (bytes == 0) continue;
        yoke_region *region = &replica->kept[k++];
        if (region->address == NULL) {
            TRY(yoke_device_allocate(replica->options.device, bytes, "keys and values",
                                     &region->address));
            region->bytes = bytes;
        }
        fits = bytes <= region->bytes;
    }
    program->kept = replica->kept;
    if (fits) return YOKE_OK;
    return FAIL(YOKE_ERROR_INTERNAL, "model '%s': its layers keep more than those of '%s'",
                program->model->name, replica->model->name);
}

/* Activations and scratch grow with the rows; a tenth of the memory is left for everything else. */
static yoke_status suggest_rows(const yoke_replica *replica, const yoke_program *program,
                                size_t free_bytes, yoke_status status) {
    const char *advice = replica->options.rows_advice;
    if (status != YOKE_ERROR_MEMORY || free_bytes == 0) return yoke_memory_advice(status, advice);
    double needed = (double)(program->arena.bytes + program->scratch_bytes);
    int rows = (int)(0.9 * (double)free_bytes / needed * program->rows);
    yoke_error cause = yoke_error_take(status);
    if (rows < 1) return FAIL(status, "%s; not even one row would fit", cause.text);
    return FAIL(status, "%s; %s: about %d at a time would fit", cause.text, advice, rows);
}

static void *scratch_of(const yoke_replica *replica, const yoke_program *program) {
    return program->own_scratch.bytes > 0 ? program->own_scratch.address : replica->scratch.address;
}

/* A host gathers the statistics of batch norms in the middle of a pass. */
static yoke_status record_program(const yoke_replica *replica, yoke_program *program) {
    const yoke_replica_options *options = &replica->options;
    if (!yoke_device_records(options->device) || options->norm_group != NULL) return YOKE_OK;
    return yoke_program_record(program, replica->flat, &replica->memory);
}

/* Output 0 has memory once a program computes it apart from the loss, or a step wants it. */
static yoke_status provide_output(yoke_replica *replica) {
    if (replica->memory.outputs[0] != NULL) return YOKE_OK;
    TRY(yoke_memory_advice(allocate_output(replica, 0), replica->options.rows_advice));
    for (int i = 0; i < replica->program_count; i++)
        TRY(yoke_program_bind_outputs(replica->programs[i], replica->flat, &replica->memory,
                                      scratch_of(replica, replica->programs[i])));
    for (int i = 0; i < replica->program_count; i++)
        if (replica->programs[i]->loss_node != YOKE_NONE)
            TRY(record_program(replica, replica->programs[i]));
    return YOKE_OK;
}

static yoke_status place_program(yoke_replica *replica, yoke_program *program) {
    yoke_device *device = replica->options.device;
    yoke_replica_memory *memory = &replica->memory;
    TRY(yoke_program_schedule(program, replica->flat));
    size_t free_bytes = yoke_device_free_bytes(device);
    TRY(suggest_rows(replica, program, free_bytes, find_regions(replica, program)));
    TRY(yoke_memory_advice(find_kept(replica, program), replica->options.rows_advice));
    yoke_region *arena = program->own_arena.bytes > 0 ? &program->own_arena : &replica->arena;
    if (program->loss_node == YOKE_NONE) TRY(provide_output(replica));
    if (memory->shadow == NULL && yoke_program_reads_shadow(program))
        TRY(yoke_memory_advice(allocate_buffer(replica, sizeof *memory->shadow,
                                               "parameters of 2 bytes", (void **)&memory->shadow),
                               YOKE_ADVICE_MODEL));
    TRY(yoke_program_bind(program, replica->flat, memory, arena->address,
                          scratch_of(replica, program)));
    return record_program(replica, program);
}

static yoke_status plan_program(yoke_replica *replica, int rows, bool training,
                                yoke_program **program) {
    const yoke_replica_options *options = &replica->options;
    yoke_program_request request = {
        .model = replica->selected,
        .device = options->device,
        .precision = options->precision,
        .algorithm = options->algorithm,
        .rows = rows,
        .most_rows = options->rows,
        .training = training,
        .inference = options->inference,
        .input_gradients = options->input_gradients,
        .recomputes = options->recomputes,
        .frozen = replica->untrained,
        .fixed_statistics = options->fixed_statistics,
        .flat = replica->flat,
        .algorithms = options->algorithms,
        .norm_group = training ? options->norm_group : NULL,
        .before_operation = options->before_operation,
    };
    TRY(yoke_program_create(program, &request));
    return replica->flat == NULL ? decide_flat(replica, *program) : YOKE_OK;
}

static void sum_memory(yoke_replica *replica) {
    yoke_replica_memory *memory = &replica->memory;
    memory->activation_bytes = replica->arena.bytes;
    memory->scratch_bytes = replica->scratch.bytes;
    for (int i = 0; i < replica->program_count; i++) {
        memory->activation_bytes += replica->programs[i]->own_arena.bytes;
        memory->scratch_bytes += replica->programs[i]->own_scratch.bytes;
    }
}

yoke_program *yoke_replica_program(const yoke_replica *replica, int rows, bool training) {
    for (int i = 0; i < replica->program_count; i++) {
        yoke_program *program = replica->programs[i];
        if (program->model == replica->selected && program->rows == rows &&
            program->training == training)
            return program;
    }
    return NULL;
}

yoke_status yoke_replica_prepare(yoke_replica *replica, int rows, bool training) {
    if (rows == 0 || yoke_replica_program(replica, rows, training) != NULL) return YOKE_OK;
    if (rows < 0 || rows > replica->options.rows)
        return FAIL(YOKE_ERROR_ARGUMENT, "%d rows on %s: its buffers hold 1 to %d", rows,
                    yoke_device_name(replica->options.device), replica->options.rows);
    yoke_program **programs =
        yoke_grow(replica->programs, &replica->program_capacity, replica->program_count,
                  sizeof *programs, "a list of programs");
    if (programs == NULL) return YOKE_ERROR_MEMORY;
    replica->programs = programs;
    yoke_program *program = NULL;
    bool is_allocated = replica->memory.parameters != NULL;
    yoke_status status = plan_program(replica, rows, training, &program);
    if (status == YOKE_OK && is_allocated) status = place_program(replica, program);
    if (status != YOKE_OK) {
        yoke_program_destroy(program);
        return status;
    }
    replica->programs[replica->program_count++] = program;
    sum_memory(replica);
    return YOKE_OK;
}

void yoke_replica_select(yoke_replica *replica, const yoke_model *model, const bool *untrained) {
    replica->selected = model;
    replica->untrained = untrained;
}

/* Life. */

static yoke_status check_options(const yoke_model *model, const yoke_replica_options *options) {
    if (!model->finished)
        return FAIL(YOKE_ERROR_ARGUMENT, "model '%s' is not finished; call yoke_model_finish",
                    model->name);
    if (model->error.status != YOKE_OK) return yoke_error_restore(&model->error);
    if (options->rows < 1)
        return FAIL(YOKE_ERROR_ARGUMENT, "a replica of %d rows: needs at least 1", options->rows);
    if (!yoke_device_supports(options->device, options->precision))
        return FAIL(YOKE_ERROR_DEVICE, "%s does not compute in %s",
                    yoke_device_name(options->device), yoke_precision_name(options->precision));
    return YOKE_OK;
}

yoke_status yoke_replica_create(yoke_replica **replica, const yoke_model *model,
                                const yoke_replica_options *options) {
    *replica = NULL;
    TRY(check_options(model, options));
    yoke_replica *made = yoke_calloc(1, sizeof *made);
    if (made == NULL) return FAIL_MEMORY(sizeof *made, "a replica");
    made->model = made->selected = model;
    made->options = *options;
    made->flat = options->flat;
    made->memory.updates_write_shadow = yoke_device_shares_memory(options->device);
    made->untrained = options->untrained != NULL ? options->untrained : options->frozen;
    if (made->options.rows_advice == NULL) made->options.rows_advice = "use fewer rows";
    yoke_status status = yoke_replica_prepare(made, options->rows, !options->inference);
    if (status != YOKE_OK) {
        yoke_replica_destroy(made);
        return status;
    }
    *replica = made;
    return YOKE_OK;
}

yoke_status yoke_replica_allocate(yoke_replica *replica, float *parameters, float *gradients) {
    TRY(yoke_memory_advice(allocate_flat(replica, parameters, gradients), YOKE_ADVICE_MODEL));
    TRY(yoke_memory_advice(allocate_batch(replica), replica->options.rows_advice));
    TRY(yoke_memory_advice(allocate_image(replica), replica->options.rows_advice));
    TRY(place_program(replica, replica->programs[0]));
    sum_memory(replica);
    return YOKE_OK;
}

void yoke_replica_destroy(yoke_replica *replica) {
    if (replica == NULL) return;
    yoke_device *device = replica->options.device;
    for (int i = 0; i < replica->program_count; i++)
        yoke_program_destroy(replica->programs[i]);
    yoke_free(replica->programs);
    for (int k = 0; k < replica->kept_count; k++)
        yoke_device_free(device, replica->kept[k].address);
    yoke_free(replica->kept);
    if (replica->borrows_parameters) replica->memory.parameters = NULL;
    if (replica->borrows_gradients) replica->memory.gradients = NULL;
    yoke_replica_memory *memory = &replica->memory;
    for (int k = 0; k < YOKE_OUTPUTS_LIMIT; k++) {
        yoke_device_free(device, memory->output_gradients[k]);
        yoke_device_free(device, memory->outputs[k]);
    }
    for (int k = 0; k < YOKE_INPUTS_LIMIT; k++)
        yoke_device_free(device, memory->inputs[k]);
    void *const owned[] = {
        memory->shadow,         replica->scratch.address,
        replica->arena.address, memory->scalars,
        memory->targets,        memory->mixes,
        memory->labels,         memory->image,
        memory->buffers,        memory->gradients,
        memory->parameters,
    };
    for (size_t i = 0; i < sizeof owned / sizeof owned[0]; i++)
        yoke_device_free(device, owned[i]);
    yoke_device_free_host(device, memory->on_host);
    yoke_flat_destroy(replica->own_flat);
    yoke_free(replica);
}

const yoke_replica_memory *yoke_replica_memory_of(const yoke_replica *replica) {
    return &replica->memory;
}

const yoke_flat *yoke_replica_flat(const yoke_replica *replica) {
    return replica->flat;
}

/* Running. */

bool yoke_replica_joins_loss(const yoke_replica *replica) {
    return replica->programs[0]->loss_node != YOKE_NONE;
}

bool yoke_replica_reads_shadow(const yoke_replica *replica) {
    return yoke_program_reads_shadow(replica->programs[0]);
}

void yoke_replica_leave_shadow(yoke_replica *replica, bool receives) {
    replica->memory.updates_write_shadow = true;
    replica->memory.receives_shadow = receives;
}

void yoke_replica_renew_shadow(yoke_replica *replica) {
    replica->shadow_is_current = false;
}

void yoke_replica_wrote_shadow(yoke_replica *replica) {
    replica->shadow_is_current = true;
}

bool yoke_replica_has_shadow(const yoke_replica *replica) {
    return replica->shadow_is_current;
}

yoke_status yoke_replica_decode(const yoke_replica *replica, const yoke_decode_request *request) {
    const yoke_replica_memory *memory = &replica->memory;
    yoke_decode_request own = *request;
    own.image = yoke_dims_of(yoke_model_input_shape(replica->model));
    own.inputs = memory->inputs[0];
    if (memory->image != NULL) {
        own.inputs = memory->image;
        own.layout = &memory->image_layout;
    }
    if (own.pixels == NULL && own.decoded == NULL) own.decoded = memory->inputs[0];
    if (own.inputs == own.decoded) return YOKE_OK;
    return yoke_device_decode(replica->options.device, &own);
}

/* Gradients that this step does not write are those of an earlier one, which reductions would add
 * up again and again. */
static yoke_status clear_untrained(const yoke_replica *replica) {
    if (replica->untrained == replica->options.frozen) return YOKE_OK;
    return yoke_device_clear(replica->options.device, YOKE_STREAM_COMPUTE,
                             replica->memory.gradients,
                             replica->flat->trainable_elements * sizeof(float));
}

yoke_status yoke_replica_begin(yoke_replica *replica, int rows, bool training,
                               const yoke_plan_step *step) {
    if (rows < 1) return FAIL(YOKE_ERROR_ARGUMENT, "forward over %d rows: needs at least 1", rows);
    TRY(yoke_replica_prepare(replica, rows, training));
    replica->current = yoke_replica_program(replica, rows, training);
    replica->last_step = *step;
    if (!step->loss_only) TRY(provide_output(replica));
    TRY(yoke_device_begin_step(replica->options.device, step));
    if (training) TRY(clear_untrained(replica));
    /* Where updates write the shadow, no recording does. */
    const yoke_replica_memory *memory = &replica->memory;
    yoke_device *device = replica->options.device;
    if (!memory->updates_write_shadow || memory->shadow == NULL) return YOKE_OK;
    if (replica->shadow_is_current || yoke_device_is_recording(device)) return YOKE_OK;
    TRY(yoke_device_shadow(device, replica->options.precision, memory->shadow, memory->parameters,
                           replica->flat->elements));
    replica->shadow_is_current = true;
    return YOKE_OK;
}

yoke_status yoke_replica_forward(yoke_replica *replica, int rows, bool training,
                                 const yoke_plan_step *step) {
    TRY(yoke_replica_begin(replica, rows, training, step));
    return yoke_program_forward(replica->current, replica->flat, &replica->memory, step);
}

yoke_status yoke_replica_record(yoke_replica *replica, int rows, bool training, bool loss_only,
                                yoke_status (*queue)(void *), void *context,
                                yoke_recording **recording) {
    yoke_device *device = replica->options.device;
    yoke_program *last = replica->current;
    yoke_plan_step last_step = replica->last_step;
    TRY(yoke_replica_prepare(replica, rows, training));
    if (!loss_only) TRY(provide_output(replica));
    TRY(yoke_recording_begin(device));
    yoke_status status = yoke_recording_end(device, queue(context), recording);
    replica->current = last;
    replica->last_step = last_step;
    return status;
}

yoke_status yoke_replica_clear_more_gradients(yoke_replica *replica) {
    const yoke_model *model = replica->current->model;
    size_t rows = (size_t)replica->current->rows;
    for (int k = 1; k < model->output_count; k++)
        TRY(yoke_device_clear(replica->options.device, YOKE_STREAM_COMPUTE,
                              replica->memory.output_gradients[k],
                              rows * yoke_model_output_elements(model, k) * sizeof(float)));
    return YOKE_OK;
}

yoke_status yoke_replica_loss(yoke_replica *replica, const yoke_plan_step *step) {
    if (replica->current == NULL)
        return FAIL(YOKE_ERROR_ARGUMENT, "yoke_replica_loss before any forward");
    TRY(yoke_program_loss(replica->current, step));
    return replica->current->training ? yoke_replica_clear_more_gradients(replica) : YOKE_OK;
}

yoke_status yoke_replica_backward_segment(yoke_replica *replica, int segment,
                                          const yoke_plan_step *step) {
    if (replica->current == NULL || !replica->current->training)
        return FAIL(YOKE_ERROR_ARGUMENT, "backward without a training forward");
    if (segment < 0 || segment >= replica->flat->bucket_count)
        return FAIL(YOKE_ERROR_ARGUMENT, "backward segment %d, there are 0 to %d", segment,
                    replica->flat->bucket_count - 1);
    return yoke_program_segment(replica->current, segment, step);
}

const yoke_factors *yoke_replica_factors(const yoke_replica *replica, int parameter) {
    const yoke_plan *plan = replica->current->factored[replica->flat->parameters[parameter].tensor];
    return plan != NULL ? yoke_plan_factors(plan) : NULL;
}

/* The first program has all batch norms, whatever the rows, and a replica without rows has no other
 * use for its memory. */
yoke_status yoke_replica_idle_forward(yoke_replica *replica, int done) {
    return yoke_program_idle_forward(replica->programs[0], done);
}

yoke_status yoke_replica_idle_segment(yoke_replica *replica, int segment) {
    return yoke_program_idle_segment(replica->programs[0], segment);
}

yoke_status yoke_replica_input_gradients(const yoke_replica *replica, int input,
                                         const float **gradients) {
    const yoke_program *program = replica->current;
    if (program == NULL || program->gradients_of_inputs[input] == YOKE_PLACE_NOWHERE)
        return FAIL(YOKE_ERROR_ARGUMENT, "no backward has computed the gradients of the inputs");
    *gradients =
        yoke_program_address(program, &replica->memory, program->gradients_of_inputs[input]);
    return YOKE_OK;
}

/* Values of tensors. */

/* One tensor in the flat buffers: a parameter has a layout, running statistics are plain. */
typedef struct located {
    float *values;
    const yoke_parameter *parameter; /* NULL: running statistics */
    size_t bytes;
} located;

static yoke_status locate(const yoke_replica *replica, int index, bool gradient, located *found) {
    const yoke_model *model = replica->model;
    if (index < 0 || index >= model->tensor_count)
        return FAIL(YOKE_ERROR_ARGUMENT, "tensor %d: model '%s' has 0 to %d", index, model->name,
                    model->tensor_count - 1);
    const yoke_tensor *tensor = &model->tensors[index];
    if (tensor->integer || (gradient && !tensor->trainable))
        return FAIL(YOKE_ERROR_ARGUMENT, "%s: %s", tensor->name,
                    tensor->integer ? "the engine counts it, not a replica"
                                    : "is a buffer and has no gradient");
    found->bytes = tensor->count * sizeof(float);
    found->parameter = yoke_flat_parameter(replica->flat, index);
    if (found->parameter == NULL) {
        found->values = replica->memory.buffers + tensor->buffer_offset;
        return YOKE_OK;
    }
    float *flat = gradient ? replica->memory.gradients : replica->memory.parameters;
    found->values = flat + found->parameter->offset;
    return YOKE_OK;
}

yoke_status yoke_replica_read(yoke_replica *replica, int tensor, bool gradient, float *values) {
    yoke_device *device = replica->options.device;
    located from = {0};
    TRY(locate(replica, tensor, gradient, &from));
    if (from.parameter == NULL)
        return yoke_device_download(device, YOKE_STREAM_COMPUTE, values, from.values, from.bytes);
    return yoke_layout_convert(device, &from.parameter->plain, values, &from.parameter->layout,
                               from.values);
}

yoke_status yoke_replica_copy(yoke_replica *replica, int tensor, float *values,
                              yoke_layout *layout) {
    yoke_device *device = replica->options.device;
    located from = {0};
    TRY(locate(replica, tensor, false, &from));
    bool fits = from.parameter != NULL && from.parameter->layout.bytes == from.bytes;
    layout->bytes = 0;
    if (!fits) return yoke_replica_read(replica, tensor, false, values);
    *layout = from.parameter->layout;
    return yoke_device_download(device, YOKE_STREAM_COMPUTE, values, from.values, from.bytes);
}

yoke_status yoke_replica_put(yoke_replica *replica, int tensor, const float *values,
                             const yoke_layout *layout) {
    yoke_device *device = replica->options.device;
    located to = {0};
    if (layout->bytes == 0) return yoke_replica_write(replica, tensor, false, values);
    TRY(locate(replica, tensor, false, &to));
    yoke_replica_renew_shadow(replica);
    return yoke_layout_convert(device, &to.parameter->layout, to.values, layout, values);
}

yoke_status yoke_replica_write(yoke_replica *replica, int tensor, bool gradient,
                               const float *values) {
    yoke_device *device = replica->options.device;
    located to = {0};
    TRY(locate(replica, tensor, gradient, &to));
    yoke_replica_renew_shadow(replica);
    if (to.parameter == NULL)
        return yoke_device_upload(device, YOKE_STREAM_COMPUTE, to.values, values, to.bytes);
    return yoke_layout_convert(device, &to.parameter->layout, to.values, &to.parameter->plain,
                               values);
}
