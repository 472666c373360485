/* SPDX-License-Identifier: Apache-2.0 */
/* A transposed convolution's passes: those of the convolution of which it is backward, with input
 * and output exchanged. Forward is the convolution's gradient of the data, and that its forward. */
#include <stdlib.h>
#include <string.h>

#include "device/cuda/weighted.h"

typedef struct transposed_pass {
    cuda_pass base;
    cuda_pass *convolution;
} transposed_pass;

static yoke_status run_transposed(const cuda_pass *pass, const cuda_operands *operands) {
    const cuda_pass *convolution = ((const transposed_pass *)pass)->convolution;
    cuda_operands exchanged = *operands;
    exchanged.input = operands->output;
    exchanged.output = operands->input;
    exchanged.beside.bias = NULL; /* the plan adds it */
    return convolution->run(convolution, &exchanged);
}

static void transposed_destroy(cuda_pass *pass) {
    transposed_pass *self = (transposed_pass *)pass;
    if (self->convolution != NULL) self->convolution->destroy(self->convolution);
    yoke_free(self);
}

yoke_status cuda_transposed_pass(cuda_pass **pass, const cuda_problem *problem,
                                 cuda_direction direction, const cuda_algorithm *algorithm) {
    static const cuda_direction directions[CUDA_DIRECTIONS] = {[CUDA_FORWARD] = CUDA_BACKWARD_DATA,
                                                               [CUDA_BACKWARD_DATA] = CUDA_FORWARD,
                                                               [CUDA_BACKWARD_WEIGHTS] =
                                                                   CUDA_BACKWARD_WEIGHTS};
    *pass = NULL;
    transposed_pass *self = yoke_calloc(1, sizeof *self);
    if (self == NULL) return FAIL_MEMORY(sizeof *self, "a pass");
    self->base.device = problem->device;
    self->base.run = run_transposed;
    self->base.destroy = transposed_destroy;
    const yoke_operation convolution = yoke_transposed_convolution(problem->operation);
    cuda_problem turned = *problem;
    turned.operation = &convolution;
    yoke_status status =
        algorithm->create(&self->convolution, &turned, directions[direction], algorithm->variant);
    if (status != YOKE_OK || self->convolution == NULL) {
        transposed_destroy(&self->base);
        return status;
    }
    self->base.scratch_bytes = self->convolution->scratch_bytes;
    memcpy(self->base.configuration, self->convolution->configuration,
           sizeof self->base.configuration);
    *pass = &self->base;
    return YOKE_OK;
}
