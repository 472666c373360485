/* SPDX-License-Identifier: Apache-2.0 */
/* Finds the first value of a replica that is not finite: runs the plans one by one and restores the
 * running statistics. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "model/program.h"

/* Saving the running statistics. */

yoke_status yoke_replica_save_buffers(const yoke_replica *replica, float **saved) {
    size_t bytes = replica->flat->buffer_elements * sizeof **saved;
    *saved = yoke_malloc(bytes + 1);
    if (*saved == NULL) return FAIL_MEMORY(bytes, "a copy of the running statistics");
    if (bytes == 0) return YOKE_OK;
    return yoke_device_download(replica->options.device, YOKE_STREAM_COMPUTE, *saved,
                                replica->memory.buffers, bytes);
}

yoke_status yoke_replica_restore_buffers(const yoke_replica *replica, const float *saved) {
    size_t bytes = replica->flat->buffer_elements * sizeof *saved;
    if (bytes == 0) return YOKE_OK;
    return yoke_device_upload(replica->options.device, YOKE_STREAM_COMPUTE, replica->memory.buffers,
                              saved, bytes);
}

/* The first value that is not finite. */

struct probe {
    const yoke_replica *replica;
    void *plain; /* on the device */
    float *host;
};

static size_t value_elements(const yoke_replica *replica, yoke_dims dims) {
    return (size_t)replica->current->rows * (size_t)dims.channels * (size_t)dims.height *
           (size_t)dims.width;
}

static yoke_status is_finite(const struct probe *probe, int value, yoke_dims dims, bool *finite) {
    const yoke_replica *replica = probe->replica;
    const yoke_program *program = replica->current;
    int64_t shape[4];
    yoke_dims_shape(dims, program->rows, shape);
    size_t count = value_elements(replica, dims);
    const void *from = yoke_program_address(program, &replica->memory, program->values[value]);
    yoke_layout plain;
    TRY(yoke_layout_plain(program->device, shape, 4, &plain));
    TRY(yoke_layout_convert(program->device, &plain, probe->plain, &program->layouts[value], from));
    TRY(yoke_device_download(program->device, YOKE_STREAM_COMPUTE, probe->host, probe->plain,
                             count * sizeof(float)));
    *finite = true;
    for (size_t i = 0; i < count; i++)
        *finite = *finite && isfinite(probe->host[i]);
    return YOKE_OK;
}

/* The loss of the latest step, whose plan kept no logits: all before them are finite. */
static yoke_status loss_is_finite(const struct probe *probe, bool *finite) {
    const yoke_replica *replica = probe->replica;
    yoke_loss_scalars scalars;
    TRY(yoke_device_download(replica->options.device, YOKE_STREAM_COMPUTE, &scalars,
                             replica->memory.scalars, sizeof scalars));
    *finite = isfinite(scalars.loss_sum);
    return YOKE_OK;
}

/* Runs forward again, since the arena holds an activation only until its last reader. */
static yoke_status search(const struct probe *probe, const char **name) {
    const yoke_replica *replica = probe->replica;
    const yoke_program *program = replica->current;
    const yoke_model *model = replica->model;
    yoke_plan_step step = replica->last_step;
    step.alone = true; /* each replica searches at its own pace */
    bool finite;
    /* It may be that of an update since undone, of which only devices with streams have any. What
     * was received stays: no step of such an engine fails here behind an update. */
    if (replica->memory.shadow != NULL && !replica->memory.receives_shadow &&
        !yoke_device_shares_memory(program->device))
        TRY(yoke_device_shadow(program->device, program->precision, replica->memory.shadow,
                               replica->memory.parameters, replica->flat->elements));
    for (int k = 0; k < model->input_count && *name == NULL; k++) {
        int value = model->inputs[k].value;
        TRY(is_finite(probe, value, yoke_dims_of(yoke_value_shape(model, value)), &finite));
        if (!finite) *name = model->inputs[k].name;
    }
    for (int i = 0; i < model->node_count && *name == NULL; i++) {
        const yoke_node *node = &model->nodes[i];
        if (!yoke_program_computes(program, i)) continue;
        if (step.loss_only && i == program->loss_node) {
            TRY(loss_is_finite(probe, &finite));
            if (!finite) *name = node->operation.name;
            continue;
        }
        yoke_status status = yoke_plan_forward(program->plans[i], &step);
        finite =
            status !=
            YOKE_ERROR_NUMERIC; /* the CPU's batch norm reports statistics that are not finite */
        for (int k = 0; k < i && finite && status == YOKE_OK; k++) /* the sum that it reads */
            if (program->places[k].computed_by == i) {
                const yoke_node *sum = &model->nodes[k];
                status = is_finite(probe, sum->output, sum->operation.output, &finite);
                if (!finite) node = sum;
            }
        if (status == YOKE_OK && finite && program->values[node->output] != YOKE_PLACE_NOWHERE)
            status = is_finite(probe, node->output, node->operation.output, &finite);
        if (!finite)
            *name = node->operation.name;
        else if (status != YOKE_OK)
            return status;
    }
    return YOKE_OK;
}

static size_t largest_value(const yoke_replica *replica) {
    const yoke_model *model = replica->model;
    size_t largest = 0, rows = (size_t)replica->current->rows;
    for (int k = 0; k < model->input_count; k++) {
        size_t elements = rows * yoke_model_input_elements(model, k);
        if (elements > largest) largest = elements;
    }
    for (int i = 0; i < model->node_count; i++) {
        bool computed = replica->current->places[i].computed_by == YOKE_NONE ||
                        replica->current->places[i].computed_by > i;
        if (!computed || (replica->last_step.loss_only && i == replica->current->loss_node))
            continue;
        size_t elements = value_elements(replica, model->nodes[i].operation.output);
        if (elements > largest) largest = elements;
    }
    return largest;
}

const char *yoke_replica_first_nonfinite(yoke_replica *replica) {
    if (replica->current == NULL) return NULL;
    const char *name = NULL;
    float *saved = NULL;
    struct probe probe = {.replica = replica};
    size_t bytes = largest_value(replica) * sizeof(float);
    probe.host = yoke_malloc(bytes);
    yoke_status status =
        yoke_device_allocate(replica->options.device, bytes, "checking values", &probe.plain);
    if (status == YOKE_OK) status = yoke_replica_save_buffers(replica, &saved);
    if (status == YOKE_OK && probe.host != NULL) {
        if (search(&probe, &name) != YOKE_OK) name = NULL;
        yoke_replica_restore_buffers(replica, saved);
    }
    yoke_free(saved);
    yoke_device_free(replica->options.device, probe.plain);
    yoke_free(probe.host);
    return name;
}
