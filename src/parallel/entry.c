/* SPDX-License-Identifier: Apache-2.0 */
/* Who may be inside an engine. */
#include "parallel/entry.h"

#include <unistd.h>

#include "parallel/engine.h"

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
    pthread_t self = pthread_self(), nobody = 0;
    /* First: a fork made inside a callback has the owner's number. */
    TRY(yoke_process_check(entry->process, "this engine"));
    if (atomic_load_explicit(&entry->owner, memory_order_relaxed) == self) {
        entry->depth++;
        return YOKE_OK;
    }
    if (parallel->options.inference) pthread_mutex_lock(&entry->turn);
    if (!atomic_compare_exchange_strong(&entry->owner, &nobody, self))
        return FAIL(YOKE_ERROR_ARGUMENT,
                    "%s: another thread is inside this engine; let one thread at a time call it, "
                    "or create an engine for each",
                    call);
    entry->depth = 1;
    return YOKE_OK;
}

/* The root's compute threads belong to the calling thread. */
static yoke_status enter_root(yoke_data_parallel *parallel) {
    yoke_entry *entry = &parallel->entry;
    yoke_device *root = parallel->lanes[0].device;
    TRY(yoke_device_start_team(root));
    TRY(yoke_device_enter(root, false, &entry->scope));
    entry->is_scoped = true;
    return YOKE_OK;
}

yoke_status yoke_enter(yoke_data_parallel *parallel, const char *call) {
    TRY(yoke_claim(parallel, call));
    if (parallel->entry.depth > 1 || parallel->bound) return YOKE_OK;
    yoke_status status = enter_root(parallel);
    return status == YOKE_OK ? YOKE_OK : yoke_leave(parallel, status);
}

yoke_status yoke_leave(yoke_data_parallel *parallel, yoke_status status) {
    yoke_entry *entry = &parallel->entry;
    if (--entry->depth > 0) return status;
    if (entry->is_scoped) yoke_device_leave(parallel->lanes[0].device, &entry->scope);
    entry->is_scoped = false;
    atomic_store(&entry->owner, 0);
    if (parallel->options.inference) pthread_mutex_unlock(&entry->turn);
    return status;
}

yoke_status yoke_enter_settled(yoke_data_parallel *parallel, const char *call) {
    TRY(yoke_enter(parallel, call));
    yoke_status status = yoke_exchange_settle(parallel->exchange, UINT64_MAX);
    return status == YOKE_OK ? YOKE_OK : yoke_leave(parallel, status);
}
