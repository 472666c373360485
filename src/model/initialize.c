/* SPDX-License-Identifier: Apache-2.0 */
/* Initial values: those that the model was given, otherwise by PyTorch's rules. Tensor i of the
 * table draws from stream i of the seed, in plain element order, so the values do not depend on
 * layouts or devices. */
#include <stdlib.h>
#include <string.h>

#include "model/program.h"

static void fill_values(const yoke_tensor *tensor, uint64_t seed, uint64_t stream, float *values) {
    double value = tensor->fill.value;
    switch (tensor->fill.kind) {
    case YOKE_FILL_UNIFORM:
        yoke_random_uniform(values, tensor->count, -value, value, seed, YOKE_RANDOM_INIT, stream);
        break;
    case YOKE_FILL_NORMAL:
        yoke_random_normal(values, tensor->count, value, seed, YOKE_RANDOM_INIT, stream);
        break;
    case YOKE_FILL_CONSTANT:
        for (size_t i = 0; i < tensor->count; i++)
            values[i] = (float)value;
        break;
    }
}

/* [out, in, height, width] */
static void put_dirac(const yoke_tensor *tensor, float *values) {
    int64_t out = tensor->shape[0], in = tensor->shape[1], width = tensor->shape[3];
    size_t taps = (size_t)(tensor->shape[2] * width), filter = (size_t)in * taps;
    size_t center = (size_t)(tensor->shape[2] / 2 * width + width / 2);
    for (size_t i = 0; i < (size_t)(out < in ? out : in); i++) {
        memset(values + i * filter, 0, filter * sizeof *values);
        values[i * filter + i * taps + center] = 1;
    }
}

yoke_status yoke_replica_initialize(yoke_replica *replica, uint64_t seed) {
    const yoke_model *model = replica->model;
    size_t largest = 0;
    for (int i = 0; i < model->tensor_count; i++)
        if (model->tensors[i].count > largest) largest = model->tensors[i].count;
    float *values = yoke_malloc(largest * sizeof *values);
    if (values == NULL) return FAIL_MEMORY(largest * sizeof *values, "initial values");
    yoke_status status = YOKE_OK;
    for (int i = 0; i < model->tensor_count && status == YOKE_OK; i++) {
        if (model->tensors[i].integer) continue;
        const float *given = model->tensors[i].given;
        if (given == NULL) fill_values(&model->tensors[i], seed, (uint64_t)i, values);
        if (given == NULL && model->tensors[i].fill.dirac) put_dirac(&model->tensors[i], values);
        status = yoke_replica_write(replica, i, false, given != NULL ? given : values);
        if (status == YOKE_OK) status = yoke_check_cancelled();
    }
    yoke_free(values);
    return status;
}
