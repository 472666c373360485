/* SPDX-License-Identifier: Apache-2.0 */
/* The observers of a step, in the order in which they see it begin. */
#include "parallel/observers/observers.h"

#include <stdlib.h>

#include "links/links.h"

yoke_status yoke_observers_create(yoke_step *step) {
    TRY(yoke_straggler_check(step));
    TRY(yoke_faults_create(step));
    TRY(yoke_audit_create(step));
    TRY(yoke_speeds_create(step));
    TRY(yoke_modelled_links_create(step));
    return yoke_interpreter_create(step);
}

static void attach(yoke_step *step, const yoke_observer *observer, bool is_asked_for) {
    if (is_asked_for) step->watch.observers[step->watch.count++] = observer;
}

/* A straggler's bar ends when it has slept. A fault spoils a gradient before its audit. Python
 * forgets replicas before links count what is stale. */
void yoke_observers_attach(yoke_step *step) {
    attach(step, &yoke_observe_waits, !step->queued && step->count > 1);
    attach(step, &yoke_observe_timeline, step->queued);
    attach(step, &yoke_observe_interpreter, step->watch.interpreter != NULL);
    attach(step, &yoke_observe_links, step->watch.links != NULL && step->ranks.world == 1);
    attach(step, &yoke_observe_speeds, step->watch.speeds != NULL);
    attach(step, &yoke_observe_straggler, step->options.straggler_factor != 0);
    attach(step, &yoke_observe_audit, step->watch.audit != NULL);
    attach(step, &yoke_observe_faults, step->watch.faults != NULL);
}

void yoke_observers_destroy(yoke_step *step) {
    yoke_interpreter_destroy(step->watch.interpreter);
    yoke_links_destroy(step->watch.links);
    yoke_free(step->watch.speeds);
    yoke_free(step->watch.faults);
    yoke_free(step->watch.audit);
}
