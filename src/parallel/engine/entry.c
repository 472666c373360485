/* SPDX-License-Identifier: Apache-2.0 */
/* Who may be inside an engine. */
#include "parallel/engine/entry.h"

#include <unistd.h>

#include "parallel/stages/stages.h"

void yoke_entry_begin(yoke_data_parallel *parallel) {
    parallel->entry.process = getpid();
    pthread_mutex_init(&parallel->entry.turn, NULL); /* cannot fail on Linux */
}

void yoke_entry_end(yoke_data_parallel *parallel) {
    pthread_mutex_destroy(&parallel->entry.turn);
}

yoke_status yoke_claim(yoke_data_parallel *parallel, const char *call) {
    if (parallel == NULL) return FAIL(YOKE_ERROR_ARGUMENT, "%s: the engine is NULL", call);
    yoke_entry *entry = &parallel->entry;
    pthread_t self = pthread_self();
    /* First: a fork made inside a callback has the owner's number. */
    TRY(yoke_process_check(entry->process, "this engine"));
    if (atomic_load_explicit(&entry->owner, memory_order_relaxed) == self) {
        if (parallel->step.host_exchanges)
            return FAIL(YOKE_ERROR_ARGUMENT,
                        "%s: custom_exchange runs in this engine's step, which waits for it; call "
                        "the engine between steps",
                        call);
        entry->depth++;
        return YOKE_OK;
    }
    pthread_t binder = atomic_load(&entry->binder);
    if (binder != 0 && binder != self)
        return FAIL(YOKE_ERROR_ARGUMENT,
                    "%s: another thread trains with this engine, until yoke_trainer_run returns or "
                    "yoke_data_parallel_unbind; ask that thread, as in on_event, or afterwards",
                    call);
    bool waits = parallel->step.options.inference || binder == self;
    if (waits)
        pthread_mutex_lock(&entry->turn);
    else if (pthread_mutex_trylock(&entry->turn) != 0)
        return FAIL(YOKE_ERROR_ARGUMENT,
                    "%s: another thread is inside this engine; let one thread at a time call it, "
                    "or create an engine for each",
                    call);
    atomic_store(&entry->owner, self);
    entry->depth = 1;
    return YOKE_OK;
}

/* The root's compute threads belong to the calling thread, which takes no signal while it has them;
 * where the engine is bound, it has them for longer. */
static yoke_status enter_root(yoke_data_parallel *parallel) {
    yoke_entry *entry = &parallel->entry;
    yoke_device *root = parallel->step.lanes[0].device;
    if (!parallel->bound) {
        TRY(yoke_device_start_team(root));
        TRY(yoke_device_enter(root, false, &entry->scope));
        entry->is_scoped = true;
    }
    yoke_device_hold_signals(root);
    entry->root_depth = entry->depth;
    return YOKE_OK;
}

static void leave_root(yoke_data_parallel *parallel) {
    yoke_entry *entry = &parallel->entry;
    yoke_device *root = parallel->step.lanes[0].device;
    if (entry->is_scoped) yoke_device_leave(root, &entry->scope);
    entry->is_scoped = false;
    entry->root_depth = 0;
    yoke_device_release_signals(root);
}

yoke_status yoke_enter(yoke_data_parallel *parallel, const char *call) {
    TRY(yoke_claim(parallel, call));
    if (parallel->entry.root_depth > 0) return YOKE_OK;
    yoke_status status = enter_root(parallel);
    return status == YOKE_OK ? YOKE_OK : yoke_leave(parallel, status);
}

yoke_status yoke_leave(yoke_data_parallel *parallel, yoke_status status) {
    yoke_entry *entry = &parallel->entry;
    if (entry->root_depth == entry->depth) leave_root(parallel);
    if (--entry->depth > 0) return status;
    atomic_store(&entry->owner, 0);
    pthread_mutex_unlock(&entry->turn);
    return status;
}

yoke_status yoke_enter_settled(yoke_data_parallel *parallel, const char *call) {
    TRY(yoke_enter(parallel, call));
    yoke_status status = yoke_settle(&parallel->step, UINT64_MAX);
    if (status == YOKE_OK) status = yoke_exchange_collect(parallel->step.exchange);
    return status == YOKE_OK ? YOKE_OK : yoke_leave(parallel, status);
}

yoke_status yoke_engine_check_trains(const yoke_data_parallel *parallel, bool training) {
    if (!training || !parallel->step.options.inference) return YOKE_OK;
    return FAIL(YOKE_ERROR_ARGUMENT,
                "this engine only predicts: create one without options.inference to train");
}

/* Bound to a thread. */

/* Its compute threads stay bound to the root's cores between calls, too. */
static yoke_status bind(yoke_data_parallel *parallel) {
    yoke_lane *root = &parallel->step.lanes[0];
    if (parallel->bound) return YOKE_OK;
    TRY(yoke_engine_check_trains(parallel, true)); /* threads that predict take turns */
    TRY(yoke_device_start_team(root->device));
    TRY(yoke_device_enter(root->device, true, &root->scope));
    parallel->bound = true;
    return YOKE_OK;
}

/* Waits for the call of another thread that is inside; later ones are refused. */
yoke_status yoke_data_parallel_bind(yoke_data_parallel *parallel) {
    pthread_t nobody = 0;
    if (parallel == NULL) return yoke_claim(parallel, "yoke_data_parallel_bind");
    TRY(yoke_process_check(parallel->entry.process, "this engine"));
    bool first = atomic_compare_exchange_strong(&parallel->entry.binder, &nobody, pthread_self());
    yoke_status status = yoke_claim(parallel, "yoke_data_parallel_bind");
    if (status == YOKE_OK) status = yoke_leave(parallel, bind(parallel));
    if (first && status != YOKE_OK) atomic_store(&parallel->entry.binder, 0);
    return status;
}

void yoke_data_parallel_unbind(yoke_data_parallel *parallel) {
    if (parallel == NULL || !parallel->bound) return;
    yoke_device_leave(parallel->step.lanes[0].device, &parallel->step.lanes[0].scope);
    parallel->bound = false;
    atomic_store(&parallel->entry.binder, 0);
}

yoke_outside yoke_step_out(yoke_data_parallel *parallel) {
    if (parallel == NULL) return (yoke_outside){0};
    yoke_lane *root = &parallel->step.lanes[0];
    yoke_outside outside = {.root_depth = parallel->entry.root_depth, .bound = parallel->bound};
    if (outside.root_depth > 0) leave_root(parallel);
    if (outside.bound) yoke_device_step_out(root->device, &root->scope);
    parallel->bound = false;
    return outside;
}

static yoke_status return_to_root(yoke_data_parallel *parallel, const yoke_outside *outside) {
    if (outside->bound) {
        TRY(yoke_device_use(parallel->step.lanes[0].device));
        parallel->bound = true;
    }
    if (outside->root_depth == 0) return YOKE_OK; /* the engine may be NULL */
    TRY(enter_root(parallel));
    parallel->entry.root_depth = outside->root_depth;
    return YOKE_OK;
}

yoke_status yoke_step_in(yoke_data_parallel *parallel, const yoke_outside *outside,
                         yoke_status status) {
    yoke_error error = yoke_error_take(status);
    TRY(return_to_root(parallel, outside));
    return yoke_error_restore(&error);
}
