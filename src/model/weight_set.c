/* SPDX-License-Identifier: Apache-2.0 */
/* Sets of weights that predictors read: how one comes, is read, and goes. A predictor says which
 * set it reads, and looks again whether that is still the newest; who publishes puts the new set in
 * place, and then looks who reads the old one. So nobody waits for another, and no set goes while
 * it is read. */
#include <string.h>

#include "model/shared_plans.h"

/* Life. */

static yoke_device *device_of(const yoke_weight_set *set) {
    return set->shared->options.weights;
}

static yoke_status allocate(yoke_weight_set *set, size_t bytes, const char *what, void **memory) {
    TRY(yoke_memory_advice(yoke_device_allocate(device_of(set), bytes, what, memory),
                           YOKE_ADVICE_MODEL));
    set->bytes += bytes;
    return YOKE_OK;
}

static yoke_status allocate_weights(yoke_weight_set *set) {
    const yoke_shared_plans *shared = set->shared;
    yoke_replica_memory *memory = &set->memory;
    size_t elements = shared->flat->elements, buffers = shared->flat->buffer_elements;
    size_t forms = (size_t)shared->form_limit;
    set->packed = yoke_calloc(forms > 0 ? forms : 1, sizeof *set->packed);
    if (set->packed == NULL) return FAIL_MEMORY(forms * sizeof *set->packed, "a set of weights");
    TRY(allocate(set, elements * sizeof(float), "parameters", (void **)&memory->parameters));
    memory->updates_write_shadow = true; /* no forward does */
    if (shared->reads_shadow)
        TRY(allocate(set, elements * sizeof *memory->shadow, "parameters of 2 bytes",
                     (void **)&memory->shadow));
    if (buffers == 0) return YOKE_OK;
    return allocate(set, buffers * sizeof(float), "running statistics", (void **)&memory->buffers);
}

/* By a thread that has the turn. */
static void destroy(yoke_weight_set *set) {
    yoke_shared_plans *shared = set->shared;
    yoke_weight_set **link = &shared->sets;
    while (*link != NULL && *link != set)
        link = &(*link)->next;
    if (*link != NULL) *link = set->next;
    for (int i = 0; set->packed != NULL && i < shared->form_limit; i++)
        yoke_weight_set_forget(set, i);
    yoke_device_free(device_of(set), set->memory.buffers);
    yoke_device_free(device_of(set), set->memory.shadow);
    yoke_device_free(device_of(set), set->memory.parameters);
    yoke_free(set->packed);
    yoke_free(set);
}

yoke_status yoke_weight_set_create(yoke_weight_set **set, yoke_shared_plans *shared) {
    *set = NULL;
    yoke_weight_set *made = yoke_calloc(1, sizeof *made);
    if (made == NULL) return FAIL_MEMORY(sizeof *made, "a set of weights");
    made->shared = shared;
    yoke_shared_lock(shared);
    yoke_status status = allocate_weights(made);
    if (status == YOKE_OK) {
        made->next = shared->sets;
        *set = shared->sets = made;
    } else {
        destroy(made);
    }
    yoke_shared_unlock(shared);
    return status;
}

void yoke_weight_set_discard(yoke_weight_set *set) {
    if (set == NULL) return;
    yoke_shared_plans *shared = set->shared;
    yoke_shared_lock(shared);
    destroy(set);
    yoke_shared_unlock(shared);
}

yoke_status yoke_weight_set_write(yoke_weight_set *set, int tensor, const float *values) {
    const yoke_tensor *to = &set->shared->options.model->tensors[tensor];
    const yoke_parameter *parameter = yoke_flat_parameter(set->shared->flat, tensor);
    if (parameter != NULL)
        return yoke_layout_convert(device_of(set), &parameter->layout,
                                   set->memory.parameters + parameter->offset, &parameter->plain,
                                   values);
    memcpy(set->memory.buffers + to->buffer_offset, values, to->count * sizeof(float));
    return YOKE_OK;
}

/* What plans make of the weights. */

yoke_status yoke_weight_set_add(yoke_weight_set *set, int form, void **memory) {
    const yoke_packed_form *packed = &set->shared->forms[form];
    const char *name = set->shared->options.model->nodes[packed->node].operation.name;
    TRY(yoke_memory_advice(yoke_device_allocate(device_of(set), packed->bytes,
                                                name != NULL ? name : "weights", memory),
                           YOKE_ADVICE_MODEL));
    set->packed_bytes += packed->bytes;
    return YOKE_OK;
}

void yoke_weight_set_forget(yoke_weight_set *set, int form) {
    if (set->packed[form] == NULL) return;
    yoke_device_free(device_of(set), set->packed[form]);
    set->packed[form] = NULL;
    set->packed_bytes -= set->shared->forms[form].bytes;
}

static int missing_form(const yoke_weight_set *set) {
    const yoke_shared_plans *shared = set->shared;
    for (int i = 0; i < shared->form_limit; i++)
        if (shared->forms[i].users > 0 && set->packed[i] == NULL) return i;
    return YOKE_NONE;
}

/* By a thread that has the turn, and gives it away meanwhile. */
static yoke_status pack_form(yoke_weight_set *set, int form) {
    yoke_shared_plans *shared = set->shared;
    yoke_shared_plan *plan = yoke_shared_plan_with(shared, form);
    int node = shared->forms[form].node;
    void *memory = NULL;
    TRY(yoke_weight_set_add(set, form, &memory));
    plan->users++;
    yoke_shared_unlock(shared);
    yoke_status status = yoke_program_pack(plan->program, shared->flat, &set->memory, node, memory);
    yoke_shared_lock(shared);
    set->packed[form] = memory;
    yoke_shared_plan_drop(shared, plan); /* which forgets the form where nobody else has it */
    return status;
}

/* Publishing. */

/* By a thread that has the turn. */
static void become_newest(yoke_weight_set *set) {
    yoke_shared_plans *shared = set->shared;
    set->number = ++shared->published;
    if (atomic_load(&shared->newest) != NULL) atomic_fetch_add(&shared->old, 1);
    atomic_store(&shared->newest, set);
    yoke_weight_sets_sweep(shared);
}

static yoke_status round_weights(yoke_weight_set *set) {
    const yoke_shared_plans_options *options = &set->shared->options;
    if (set->memory.shadow == NULL) return YOKE_OK;
    return yoke_device_shadow(options->weights, options->precision, set->memory.shadow,
                              set->memory.parameters, set->shared->flat->elements);
}

yoke_status yoke_weight_set_publish(yoke_weight_set *set) {
    yoke_shared_plans *shared = set->shared;
    yoke_status status = round_weights(set);
    yoke_shared_lock(shared);
    for (int form; status == YOKE_OK && (form = missing_form(set)) != YOKE_NONE;)
        status = pack_form(set, form);
    if (status == YOKE_OK)
        become_newest(set);
    else
        destroy(set);
    yoke_shared_unlock(shared);
    return status;
}

/* Reading. */

static bool is_read(const yoke_shared_plans *shared, const yoke_weight_set *set) {
    for (yoke_predictor *at = shared->predictors; at != NULL; at = at->next)
        if (atomic_load(&at->reads) == set) return true;
    return false;
}

void yoke_weight_sets_sweep(yoke_shared_plans *shared) {
    yoke_weight_set *next = NULL;
    for (yoke_weight_set *set = shared->sets; set != NULL; set = next) {
        next = set->next;
        if (set->number == 0 || set == atomic_load(&shared->newest) || is_read(shared, set))
            continue;
        destroy(set);
        atomic_fetch_sub(&shared->old, 1);
    }
}

yoke_status yoke_predictor_begin(yoke_predictor *predictor) {
    yoke_shared_plans *shared = predictor->shared;
    yoke_weight_set *set;
    do {
        set = atomic_load(&shared->newest);
        atomic_store(&predictor->reads, set);
    } while (set != atomic_load(&shared->newest));
    if (set != NULL) return YOKE_OK;
    return FAIL(YOKE_ERROR_ARGUMENT, "there are no weights yet to predict with");
}

/* Who has the turn looks for leavers after giving it away. */
void yoke_predictor_end(yoke_predictor *predictor) {
    yoke_shared_plans *shared = predictor->shared;
    atomic_store(&predictor->reads, NULL);
    if (atomic_load(&shared->old) == 0) return;
    atomic_store(&shared->leaver, true);
    if (pthread_mutex_trylock(&shared->turn) == 0) yoke_shared_unlock(shared);
}

void yoke_shared_lock(yoke_shared_plans *shared) {
    pthread_mutex_lock(&shared->turn);
}

void yoke_shared_unlock(yoke_shared_plans *shared) {
    do {
        if (atomic_exchange(&shared->leaver, false)) yoke_weight_sets_sweep(shared);
        pthread_mutex_unlock(&shared->turn);
    } while (atomic_load(&shared->leaver) && pthread_mutex_trylock(&shared->turn) == 0);
}
