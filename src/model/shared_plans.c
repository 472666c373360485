/* SPDX-License-Identifier: Apache-2.0 */
/* The plans of predictors: for each number of rows that one of them computes, plans that nobody
 * runs, which tell what is to be packed of the weights. */
#include <string.h>

#include "model/shared_plans.h"

#define FORMS_A_NODE 8 /* numbers of rows can ask for; a plan beyond them packs for itself */

/* Planning. */

yoke_status yoke_shared_plan_program(yoke_shared_plans *shared, yoke_device *device, int rows,
                                     yoke_program **program) {
    const yoke_shared_plans_options *options = &shared->options;
    const yoke_program_request request = {
        .model = options->model,
        .device = device,
        .precision = options->precision,
        .algorithm = options->algorithm,
        .rows = rows,
        .most_rows = rows == 1 ? 1 : options->rows, /* one row has algorithms of its own */
        .inference = true,
        .outputs_only = true,
        .flat = shared->flat,
        .algorithms = options->algorithms,
    };
    yoke_status status = yoke_program_create(program, &request);
    /* In any case: it gives the lock of the file of algorithms back. */
    yoke_error error = yoke_error_take(status);
    yoke_status kept = yoke_algorithms_commit(options->algorithms);
    if (status != YOKE_OK) return yoke_error_restore(&error);
    if (kept == YOKE_OK) return YOKE_OK;
    yoke_program_destroy(*program);
    *program = NULL;
    return kept;
}

static yoke_status decide_flat(yoke_shared_plans *shared, const yoke_program *program) {
    const yoke_flat_request request = {
        .model = shared->options.model,
        .device = shared->options.planner,
        .layouts = program->parameters,
        .forms = program->forms,
    };
    shared->reads_shadow = yoke_program_reads_shadow(program);
    return yoke_flat_create(&shared->flat, &request);
}

/* Forms. */

static int find_form(const yoke_shared_plans *shared, const yoke_packed_form *like) {
    for (int i = 0; i < shared->form_limit; i++) {
        const yoke_packed_form *at = &shared->forms[i];
        if (at->users > 0 && at->node == like->node && at->form == like->form &&
            at->bytes == like->bytes)
            return i;
    }
    return YOKE_NONE;
}

static int free_form(const yoke_shared_plans *shared) {
    for (int i = 0; i < shared->form_limit; i++)
        if (shared->forms[i].users == 0) return i;
    return YOKE_NONE;
}

/* All published sets get it; who fills a set looks for what it lacks. */
static yoke_status pack_for_sets(yoke_shared_plans *shared, const yoke_shared_plan *plan,
                                 int form) {
    for (yoke_weight_set *set = shared->sets; set != NULL; set = set->next) {
        if (set->number == 0) continue;
        void *memory = NULL;
        TRY(yoke_weight_set_add(set, form, &memory));
        set->packed[form] = memory;
        TRY(yoke_program_pack(plan->program, shared->flat, &set->memory, shared->forms[form].node,
                              memory));
    }
    return YOKE_OK;
}

static yoke_status take_form(yoke_shared_plans *shared, yoke_shared_plan *plan, int node) {
    const yoke_plan_needs *needs = yoke_plan_describe(plan->program->plans[node]);
    const yoke_packed_form own = {node, needs->packed_form, needs->packed_bytes, 1};
    if (needs->packed_bytes == 0) return YOKE_OK;
    int form = find_form(shared, &own);
    if (form != YOKE_NONE) {
        shared->forms[form].users++;
        plan->forms[node] = form;
        return YOKE_OK;
    }
    form = free_form(shared);
    if (form == YOKE_NONE) return YOKE_OK;
    shared->forms[form] = own;
    plan->forms[node] = form;
    return pack_for_sets(shared, plan, form);
}

static void leave_form(yoke_shared_plans *shared, int form) {
    if (form == YOKE_NONE || --shared->forms[form].users > 0) return;
    for (yoke_weight_set *set = shared->sets; set != NULL; set = set->next)
        yoke_weight_set_forget(set, form);
}

/* Life of a plan. */

static yoke_shared_plan *find_plan(yoke_shared_plans *shared, int rows) {
    yoke_shared_plan *at = shared->plans;
    while (at != NULL && at->rows != rows)
        at = at->next;
    if (at != NULL) at->users++;
    return at;
}

yoke_shared_plan *yoke_shared_plan_with(const yoke_shared_plans *shared, int form) {
    int node = shared->forms[form].node;
    yoke_shared_plan *at = shared->plans;
    while (at->forms[node] != form)
        at = at->next;
    return at;
}

static void destroy_plan(yoke_shared_plans *shared, yoke_shared_plan *plan) {
    for (int i = 0; plan->forms != NULL && i < shared->options.model->node_count; i++)
        leave_form(shared, plan->forms[i]);
    yoke_program_destroy(plan->program);
    yoke_free(plan->forms);
    yoke_free(plan);
}

void yoke_shared_plan_drop(yoke_shared_plans *shared, yoke_shared_plan *plan) {
    if (--plan->users > 0) return;
    yoke_shared_plan **link = &shared->plans;
    while (*link != plan)
        link = &(*link)->next;
    *link = plan->next;
    destroy_plan(shared, plan);
}

void yoke_shared_plan_release(yoke_shared_plans *shared, yoke_shared_plan *plan) {
    yoke_shared_lock(shared);
    yoke_shared_plan_drop(shared, plan);
    yoke_shared_unlock(shared);
}

/* The first plan chooses the layouts. */
static yoke_status plan_rows(yoke_shared_plans *shared, int rows, yoke_shared_plan *plan) {
    int nodes = shared->options.model->node_count;
    plan->rows = rows;
    plan->users = 1;
    plan->forms = yoke_malloc((size_t)nodes * sizeof *plan->forms);
    if (plan->forms == NULL)
        return FAIL_MEMORY((size_t)nodes * sizeof *plan->forms, "the plans of a model");
    for (int i = 0; i < nodes; i++)
        plan->forms[i] = YOKE_NONE;
    TRY(yoke_shared_plan_program(shared, shared->options.planner, rows, &plan->program));
    return shared->flat == NULL ? decide_flat(shared, plan->program) : YOKE_OK;
}

static yoke_status enlist(yoke_shared_plans *shared, yoke_shared_plan *plan) {
    yoke_status status = YOKE_OK;
    for (int i = 0; i < shared->options.model->node_count && status == YOKE_OK; i++)
        status = take_form(shared, plan, i);
    if (status != YOKE_OK) return status;
    plan->next = shared->plans;
    shared->plans = plan;
    return YOKE_OK;
}

/* By the thread that plans. */
static yoke_status make_plan(yoke_shared_plans *shared, int rows, yoke_shared_plan **plan) {
    yoke_shared_plan *made = yoke_calloc(1, sizeof *made);
    if (made == NULL) return FAIL_MEMORY(sizeof *made, "the plans of a model");
    yoke_status status = plan_rows(shared, rows, made);
    yoke_shared_lock(shared);
    if (status == YOKE_OK) status = enlist(shared, made);
    if (status == YOKE_OK)
        *plan = made;
    else
        destroy_plan(shared, made);
    yoke_shared_unlock(shared);
    return status;
}

yoke_status yoke_shared_plan_take(yoke_shared_plans *shared, int rows, yoke_shared_plan **plan) {
    yoke_shared_lock(shared);
    *plan = find_plan(shared, rows);
    yoke_shared_unlock(shared);
    if (*plan != NULL) return YOKE_OK;
    return make_plan(shared, rows, plan);
}

/* Life. */

static yoke_status check(const yoke_shared_plans_options *options) {
    const yoke_model *model = options->model;
    if (!model->finished)
        return FAIL(YOKE_ERROR_ARGUMENT, "model '%s' is not finished; call yoke_model_finish",
                    model->name);
    if (model->error.status != YOKE_OK) return yoke_error_restore(&model->error);
    if (yoke_device_supports(options->planner, options->precision)) return YOKE_OK;
    return FAIL(YOKE_ERROR_DEVICE, "%s does not compute in %s", yoke_device_name(options->planner),
                yoke_precision_name(options->precision));
}

static yoke_status build(yoke_shared_plans *shared) {
    yoke_shared_plan *first = NULL, *single = NULL;
    shared->form_limit = shared->options.model->node_count * FORMS_A_NODE;
    size_t forms = (size_t)shared->form_limit;
    shared->forms = yoke_calloc(forms, sizeof *shared->forms);
    if (shared->forms == NULL) return FAIL_MEMORY(forms * sizeof *shared->forms, "plans");
    TRY(yoke_shared_plan_take(shared, shared->options.rows, &first));
    TRY(yoke_shared_plan_take(shared, 1, &single));
    for (int i = 0; i < shared->options.model->node_count; i++)
        if (yoke_plan_describe(first->program->plans[i])->kept_bytes > 0)
            return FAIL(YOKE_ERROR_ARGUMENT,
                        "model '%s' keeps values from row to row: it cannot "
                        "predict for several threads",
                        shared->options.model->name);
    return YOKE_OK;
}

yoke_status yoke_shared_plans_create(yoke_shared_plans **shared,
                                     const yoke_shared_plans_options *options) {
    *shared = NULL;
    TRY(check(options));
    yoke_shared_plans *made = yoke_calloc(1, sizeof *made);
    if (made == NULL) return FAIL_MEMORY(sizeof *made, "plans");
    made->options = *options;
    pthread_mutex_init(&made->planning, NULL); /* cannot fail on Linux */
    pthread_mutex_init(&made->turn, NULL);
    yoke_status status = build(made);
    if (status != YOKE_OK) {
        yoke_shared_plans_destroy(made);
        return status;
    }
    *shared = made;
    return YOKE_OK;
}

void yoke_shared_plans_destroy(yoke_shared_plans *shared) {
    if (shared == NULL) return;
    atomic_store(&shared->newest, NULL);
    yoke_weight_sets_sweep(shared);
    while (shared->plans != NULL) { /* those that create has taken */
        yoke_shared_plan *plan = shared->plans;
        shared->plans = plan->next;
        destroy_plan(shared, plan);
    }
    yoke_flat_destroy(shared->flat);
    yoke_free(shared->forms);
    pthread_mutex_destroy(&shared->turn);
    pthread_mutex_destroy(&shared->planning);
    yoke_free(shared);
}

void yoke_shared_plans_describe(yoke_shared_plans *shared, yoke_shared_plans_report *report) {
    *report = (yoke_shared_plans_report){0};
    yoke_shared_lock(shared);
    for (const yoke_weight_set *set = shared->sets; set != NULL; set = set->next) {
        report->weights += set->bytes;
        report->packed += set->packed_bytes;
        report->sets += set->number > 0;
    }
    for (const yoke_shared_plan *plan = shared->plans; plan != NULL; plan = plan->next)
        report->plans++;
    report->published = shared->published;
    yoke_shared_unlock(shared);
}
