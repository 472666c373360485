/* SPDX-License-Identifier: Apache-2.0 */
/* A predictor: a program for each number of rows that it has computed lately, bound to the weights
 * that it reads. */
#include <string.h>

#include "model/shared_plans.h"

typedef struct yoke_predictor_program {
    yoke_program *program;
    yoke_shared_plan *plan;
    void **packed;    /* [nodes] */
    uint64_t weights; /* number of the set that it is bound to; 0: none */
    uint64_t used;    /* the call that used it last */
} entry;

/* Memory. */

static yoke_status allocate_floats(yoke_predictor *predictor, size_t row, const char *what,
                                   float **floats) {
    size_t count = (size_t)predictor->shared->options.rows * row;
    return yoke_device_allocate(predictor->device, count * sizeof **floats, what, (void **)floats);
}

static yoke_status allocate_values(yoke_predictor *predictor) {
    const yoke_model *model = predictor->shared->options.model;
    yoke_replica_memory *memory = &predictor->memory;
    for (int k = 0; k < model->input_count; k++)
        TRY(allocate_floats(predictor, yoke_model_input_elements(model, k),
                            "the inputs of a prediction", &memory->inputs[k]));
    for (int k = 0; k < model->output_count; k++)
        TRY(allocate_floats(predictor, yoke_model_output_elements(model, k),
                            "the outputs of a prediction", &memory->outputs[k]));
    return YOKE_OK;
}

static void count_memory(yoke_predictor *predictor) {
    atomic_store(&predictor->bytes, yoke_device_allocated(predictor->device));
    atomic_store(&predictor->plans, predictor->count);
}

/* The first program is the largest: others that fit use its memory. */
static yoke_status find_region(yoke_device *device, yoke_region *first, size_t bytes,
                               const char *what, yoke_region *own) {
    if (bytes <= first->bytes) return YOKE_OK;
    yoke_region *region = first->address == NULL ? first : own;
    TRY(yoke_device_allocate(device, bytes, what, &region->address));
    region->bytes = bytes;
    return YOKE_OK;
}

/* Programs. */

static void drop(yoke_predictor *predictor, int index) {
    entry *at = &predictor->programs[index];
    yoke_program_destroy(at->program);
    if (at->plan != NULL) yoke_shared_plan_release(predictor->shared, at->plan);
    yoke_free(at->packed);
    predictor->programs[index] = predictor->programs[--predictor->count];
    count_memory(predictor);
}

static void make_room(yoke_predictor *predictor) {
    int oldest = 0;
    if (predictor->count < predictor->shared->options.plans) return;
    for (int i = 1; i < predictor->count; i++)
        if (predictor->programs[i].used < predictor->programs[oldest].used) oldest = i;
    drop(predictor, oldest);
}

static yoke_status place(yoke_predictor *predictor, entry *made) {
    yoke_program *program = made->program;
    TRY(yoke_program_schedule(program, predictor->shared->flat));
    TRY(find_region(predictor->device, &predictor->arena, program->arena.bytes, "activations",
                    &program->own_arena));
    return find_region(predictor->device, &predictor->scratch, program->scratch_bytes, "scratch",
                       &program->own_scratch);
}

static yoke_status plan(yoke_predictor *predictor, int rows, entry *made) {
    yoke_shared_plans *shared = predictor->shared;
    size_t nodes = (size_t)shared->options.model->node_count;
    made->packed = yoke_calloc(nodes, sizeof *made->packed);
    if (made->packed == NULL) return FAIL_MEMORY(nodes * sizeof *made->packed, "a plan");
    pthread_mutex_lock(&shared->planning);
    yoke_status status = yoke_shared_plan_take(shared, rows, &made->plan);
    if (status == YOKE_OK)
        status = yoke_shared_plan_program(shared, predictor->device, rows, &made->program);
    pthread_mutex_unlock(&shared->planning);
    TRY(status);
    TRY(yoke_memory_advice(place(predictor, made), "use fewer rows, or fewer predictors"));
    return YOKE_OK;
}

static yoke_status find_program(yoke_predictor *predictor, int rows, entry **found) {
    for (int i = 0; i < predictor->count; i++) {
        *found = &predictor->programs[i];
        if ((*found)->program->rows == rows) return YOKE_OK;
    }
    make_room(predictor);
    *found = &predictor->programs[predictor->count++];
    **found = (entry){0};
    yoke_status status = plan(predictor, rows, *found);
    if (status != YOKE_OK) {
        yoke_error error = yoke_error_take(status);
        drop(predictor, predictor->count - 1);
        return yoke_error_restore(&error);
    }
    count_memory(predictor);
    return YOKE_OK;
}

/* To the weights that this predictor reads now. */
static yoke_status bind_program(yoke_predictor *predictor, entry *at) {
    yoke_program *program = at->program;
    const yoke_weight_set *set = atomic_load_explicit(&predictor->reads, memory_order_relaxed);
    const yoke_region *arena =
        program->own_arena.bytes > 0 ? &program->own_arena : &predictor->arena;
    const yoke_region *scratch =
        program->own_scratch.bytes > 0 ? &program->own_scratch : &predictor->scratch;
    yoke_replica_memory *memory = &predictor->memory;
    if (at->weights == set->number) return YOKE_OK;
    at->weights = 0;
    memory->parameters = set->memory.parameters;
    memory->buffers = set->memory.buffers;
    memory->shadow = set->memory.shadow;
    memory->updates_write_shadow = true; /* no forward does */
    for (int i = 0; i < program->model->node_count; i++) {
        int form = at->plan->forms[i];
        at->packed[i] = form != YOKE_NONE ? set->packed[form] : NULL;
    }
    program->packed = at->packed;
    TRY(yoke_program_bind(program, predictor->shared->flat, memory, arena->address,
                          scratch->address));
    at->weights = set->number;
    count_memory(predictor); /* plans that nobody packs for have allocated */
    return YOKE_OK;
}

yoke_status yoke_predictor_forward(yoke_predictor *predictor, int rows) {
    entry *at = NULL;
    TRY(find_program(predictor, rows, &at));
    at->used = ++predictor->calls;
    TRY(bind_program(predictor, at));
    const yoke_plan_step step = {.weights_version = at->weights};
    TRY(yoke_device_begin_step(predictor->device, &step));
    return yoke_program_forward(at->program, predictor->shared->flat, &predictor->memory, &step);
}

/* Life. */

static yoke_status build(yoke_predictor *predictor) {
    const yoke_shared_plans_options *options = &predictor->shared->options;
    size_t plans = (size_t)options->plans;
    entry *first = NULL;
    predictor->programs = yoke_calloc(plans, sizeof *predictor->programs);
    if (predictor->programs == NULL)
        return FAIL_MEMORY(plans * sizeof *predictor->programs, "a predictor");
    TRY(yoke_memory_advice(allocate_values(predictor), "use fewer rows, or fewer predictors"));
    TRY(find_program(predictor, options->rows, &first));
    return find_program(predictor, 1, &first);
}

yoke_status yoke_predictor_create(yoke_predictor **predictor, yoke_shared_plans *shared,
                                  yoke_device *device) {
    *predictor = NULL;
    yoke_predictor *made = yoke_calloc(1, sizeof *made);
    if (made == NULL) return FAIL_MEMORY(sizeof *made, "a predictor");
    made->shared = shared;
    made->device = device;
    yoke_shared_lock(shared);
    made->next = shared->predictors;
    shared->predictors = made;
    yoke_shared_unlock(shared);
    yoke_status status = build(made);
    if (status != YOKE_OK) {
        yoke_error error = yoke_error_take(status);
        yoke_predictor_destroy(made);
        return yoke_error_restore(&error);
    }
    *predictor = made;
    return YOKE_OK;
}

void yoke_predictor_destroy(yoke_predictor *predictor) {
    if (predictor == NULL) return;
    yoke_shared_plans *shared = predictor->shared;
    yoke_device *device = predictor->device;
    while (predictor->count > 0)
        drop(predictor, predictor->count - 1);
    yoke_shared_lock(shared);
    yoke_predictor **link = &shared->predictors;
    while (*link != predictor)
        link = &(*link)->next;
    *link = predictor->next;
    yoke_shared_unlock(shared);
    yoke_device_free(device, predictor->scratch.address);
    yoke_device_free(device, predictor->arena.address);
    for (int k = 0; k < YOKE_OUTPUTS_LIMIT; k++)
        yoke_device_free(device, predictor->memory.outputs[k]);
    for (int k = 0; k < YOKE_INPUTS_LIMIT; k++)
        yoke_device_free(device, predictor->memory.inputs[k]);
    yoke_free(predictor->programs);
    yoke_free(predictor);
}

float *yoke_predictor_input(const yoke_predictor *predictor, int input) {
    return predictor->memory.inputs[input];
}

const float *yoke_predictor_output(const yoke_predictor *predictor, int output) {
    return predictor->memory.outputs[output];
}

size_t yoke_predictor_bytes(const yoke_predictor *predictor) {
    return atomic_load(&predictor->bytes);
}

int yoke_predictor_plans(const yoke_predictor *predictor) {
    return atomic_load(&predictor->plans);
}
