/* SPDX-License-Identifier: Apache-2.0 */
/* The models of an engine: the one that it was made of, and those of the same parameters that read
 * shorter rows. Memory is that of the first; each has programs of its own. */
#ifndef PARALLEL_STEP_MODELS_H
#define PARALLEL_STEP_MODELS_H

#include "parallel/step/parts.h"

/* Copies the list of the options and compares each of its models with step->model. */
yoke_status yoke_models_open(yoke_step *step);
void yoke_models_close(yoke_step *step);
/* The one that the engine was made of. */
static inline const yoke_model *yoke_models_first(const yoke_step *step) {
    return step->models != NULL ? step->models[0].model : step->model;
}
/* From now on the step and its replicas take model `index`, 0: the first. ARGUMENT: there is none.
 */
yoke_status yoke_models_select(yoke_step *step, int index);
/* Parameters that a step of the first model does not update; NULL: the frozen ones. */
const bool *yoke_models_untrained(const yoke_step *step);
/* As bits, the models that update a tensor; 0: all. */
unsigned yoke_models_training(const yoke_step *step, int tensor);
/* Counts an update by the selected model; takes those back that came after step `number`. */
void yoke_models_count(yoke_step *step);
void yoke_models_uncount(yoke_step *step, uint64_t number);
/* Sets what step->limits says of the rows of step->model. */
void yoke_models_set_limits(yoke_step *step);

#endif
