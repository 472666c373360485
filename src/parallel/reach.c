/* SPDX-License-Identifier: Apache-2.0 */
/* Which parameters the losses reach: bits of outputs, from the model to the optimizer. */
#include "parallel/reach.h"

#include <stdio.h>
#include <stdlib.h>

#include "parallel/engine.h"

#define NAMED 4 /* parameters that a text names, at most */

yoke_status yoke_reach_create(yoke_data_parallel *parallel) {
    size_t tensors = (size_t)yoke_model_tensor_count(parallel->model);
    if (yoke_model_output_count(parallel->model) < 2) return YOKE_OK;
    unsigned *outputs = parallel->reach.outputs = calloc(tensors, sizeof *outputs);
    if (outputs == NULL) return FAIL_MEMORY(tensors * sizeof *outputs, "what a loss reaches");
    return yoke_model_reach(parallel->model, outputs);
}

void yoke_reach_destroy(yoke_reach *reach) {
    free(reach->text);
    free(reach->outputs);
}

unsigned yoke_reach_of(const yoke_reach *reach, int tensor) {
    return reach->outputs != NULL ? reach->outputs[tensor] : 0;
}

void yoke_reach_add(yoke_data_parallel *parallel) {
    const yoke_flight *flight = &parallel->flight;
    bool begins = flight->micro == 0 && !parallel->unsynced.holds;
    parallel->reach.gradient = (begins ? 0 : parallel->reach.gradient) | flight->reached;
}

yoke_status yoke_reach_agree(yoke_data_parallel *parallel) {
    const yoke_ranks *ranks = &parallel->ranks;
    int64_t own = parallel->reach.gradient, all[YOKE_AGREE_RANKS];
    if (ranks->world == 1 || parallel->reach.outputs == NULL) return YOKE_OK;
    TRY(yoke_process_group_all_gather(ranks->process_group, all, &own, 1, YOKE_ELEMENT_INT64));
    for (int rank = 0; rank < ranks->world; rank++)
        parallel->reach.gradient |= (unsigned)all[rank];
    return YOKE_OK;
}

bool yoke_is_zero(const float *values, size_t count) {
    for (size_t i = 0; i < count; i++)
        if (values[i] != 0) return false;
    return true;
}

void yoke_reach_written(yoke_reach *reach, int tensor, const float *values, size_t count) {
    unsigned outputs = yoke_reach_of(reach, tensor);
    if ((outputs & reach->gradient) == 0 && !yoke_is_zero(values, count))
        reach->gradient |= outputs;
}

unsigned yoke_reach_use(yoke_reach *reach) {
    reach->so_far |= reach->gradient;
    return ~reach->gradient;
}

/* The text. */

static bool is_unreached(const yoke_data_parallel *parallel, int tensor) {
    yoke_tensor_info info = {.struct_size = sizeof info};
    return yoke_model_tensor(parallel->model, tensor, &info) == YOKE_OK && info.trainable &&
           (yoke_reach_of(&parallel->reach, tensor) & parallel->reach.so_far) == 0 &&
           !yoke_groups_freeze(&parallel->groups, tensor) &&
           !yoke_groups_ask_decay(&parallel->groups, tensor);
}

static void write_unreached(FILE *text, const yoke_data_parallel *parallel) {
    int found = 0;
    size_t elements = 0;
    fprintf(text, "no loss has reached ");
    for (int i = 0; i < yoke_model_tensor_count(parallel->model); i++) {
        yoke_tensor_info info = {.struct_size = sizeof info};
        if (!is_unreached(parallel, i) || yoke_model_tensor(parallel->model, i, &info) != YOKE_OK)
            continue;
        if (found < NAMED) fprintf(text, "%s%s", found > 0 ? ", " : "", info.name);
        elements += info.count;
        found++;
    }
    if (found > NAMED) fprintf(text, " and %d more", found - NAMED);
    fprintf(text,
            " (%d parameter%s, %zu values): the gradients are zero, and weight decay leaves them "
            "alone; freeze them, or set weight_decay in a group of theirs to let it move them",
            found, found == 1 ? "" : "s", elements);
}

const char *yoke_data_parallel_unreached(yoke_data_parallel *parallel) {
    if (parallel == NULL || parallel->reach.outputs == NULL || parallel->reach.so_far == 0)
        return NULL;
    size_t bytes = 0;
    bool any = false;
    for (int i = 0; i < yoke_model_tensor_count(parallel->model); i++)
        any = any || is_unreached(parallel, i);
    if (!any) return NULL;
    free(parallel->reach.text);
    parallel->reach.text = NULL;
    FILE *text = open_memstream(&parallel->reach.text, &bytes);
    if (text == NULL) return NULL;
    write_unreached(text, parallel);
    return fclose(text) == 0 ? parallel->reach.text : NULL;
}
