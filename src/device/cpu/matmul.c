/* SPDX-License-Identifier: Apache-2.0 */
/* Products of the matrices of each row. A matrix is one thread's, so that the bits do not depend on
 * the threads. In bfloat16 it is widened first. */
#include <omp.h>

#include "device/cpu/plain.h"
#include "device/cpu/sgemm.h"

typedef struct matmul_plan {
    cpu_plain_plan plain;
    yoke_matrices size;
} matmul_plan;

enum { LEFT, RIGHT, OUTPUT, MATRICES };

static size_t matrix_elements(const matmul_plan *self, int which) {
    const yoke_matrices *size = &self->size;
    return which == LEFT    ? size->m * size->k
           : which == RIGHT ? size->k * size->n
                            : size->m * size->n;
}

/* Matrix `index` of all rows as float32: in place, or widened into `copy`. */
static const float *read_matrix(const matmul_plan *self, int which, const void *values,
                                size_t index, float *copy) {
    size_t elements = matrix_elements(self, which);
    if (!self->plain.half) return (const float *)values + index * elements;
    for (size_t i = 0; i < elements; i++)
        copy[i] = cpu_load(values, index * elements + i, true);
    return copy;
}

static float *place_matrix(const matmul_plan *self, int which, void *values, size_t index,
                           float *copy) {
    return self->plain.half ? copy : (float *)values + index * matrix_elements(self, which);
}

static void write_matrix(const matmul_plan *self, int which, void *values, size_t index,
                         const float *copy) {
    size_t elements = matrix_elements(self, which);
    for (size_t i = 0; self->plain.half && i < elements; i++)
        cpu_store(values, index * elements + i, true, copy[i]);
}

/* The rows of every matrix follow each other. */
static dnnl_status_t multiply(cpu_sgemm p) {
    p.a_row = p.transpose_a ? p.rows : p.depth;
    p.b_row = p.transpose_b ? p.depth : p.columns;
    p.to_row = p.columns;
    return cpu_sgemm_run(&p);
}

static dnnl_status_t forward_matrix(const matmul_plan *self, size_t index,
                                    float *copies[MATRICES]) {
    const yoke_operation *operation = &self->plain.base.operation;
    const yoke_plan_binding *at = &self->plain.base.binding;
    const cpu_sgemm p = {.rows = self->size.m,
                         .depth = self->size.k,
                         .columns = self->size.n,
                         .a = read_matrix(self, LEFT, at->inputs[0], index, copies[LEFT]),
                         .b = read_matrix(self, RIGHT, at->inputs[1], index, copies[RIGHT]),
                         .transpose_a = operation->transpose_left,
                         .transpose_b = operation->transpose_right,
                         .to = place_matrix(self, OUTPUT, at->output, index, copies[OUTPUT])};
    dnnl_status_t status = multiply(p);
    write_matrix(self, OUTPUT, at->output, index, copies[OUTPUT]);
    return status;
}

/* The gradient of left: dy right^T, or, of a transposed left, right dy^T. */
static dnnl_status_t left_gradient(const matmul_plan *self, size_t index, float *copies[MATRICES]) {
    const yoke_operation *operation = &self->plain.base.operation;
    const yoke_plan_binding *at = &self->plain.base.binding;
    const float *right = read_matrix(self, RIGHT, at->inputs[1], index, copies[RIGHT]);
    const float *dy = read_matrix(self, OUTPUT, at->output_gradient, index, copies[OUTPUT]);
    bool swapped = operation->transpose_left;
    const cpu_sgemm p = {.rows = swapped ? self->size.k : self->size.m,
                         .depth = self->size.n,
                         .columns = swapped ? self->size.m : self->size.k,
                         .a = swapped ? right : dy,
                         .b = swapped ? dy : right,
                         .transpose_a = swapped && operation->transpose_right,
                         .transpose_b = swapped || !operation->transpose_right,
                         .to =
                             place_matrix(self, LEFT, at->input_gradients[0], index, copies[LEFT])};
    dnnl_status_t status = multiply(p);
    write_matrix(self, LEFT, at->input_gradients[0], index, copies[LEFT]);
    return status;
}

/* The gradient of right: left^T dy, or, of a transposed right, dy^T left. */
static dnnl_status_t right_gradient(const matmul_plan *self, size_t index,
                                    float *copies[MATRICES]) {
    const yoke_operation *operation = &self->plain.base.operation;
    const yoke_plan_binding *at = &self->plain.base.binding;
    const float *left = read_matrix(self, LEFT, at->inputs[0], index, copies[LEFT]);
    const float *dy = read_matrix(self, OUTPUT, at->output_gradient, index, copies[OUTPUT]);
    bool swapped = operation->transpose_right;
    const cpu_sgemm p = {
        .rows = swapped ? self->size.n : self->size.k,
        .depth = self->size.m,
        .columns = swapped ? self->size.k : self->size.n,
        .a = swapped ? dy : left,
        .b = swapped ? left : dy,
        .transpose_a = swapped || !operation->transpose_left,
        .transpose_b = swapped && operation->transpose_left,
        .to = place_matrix(self, RIGHT, at->input_gradients[1], index, copies[RIGHT])};
    dnnl_status_t status = multiply(p);
    write_matrix(self, RIGHT, at->input_gradients[1], index, copies[RIGHT]);
    return status;
}

static size_t copy_elements(const matmul_plan *self) {
    size_t elements = 0;
    for (int i = LEFT; self->plain.half && i < MATRICES; i++)
        elements += matrix_elements(self, i);
    return elements;
}

static void place_copies(const matmul_plan *self, float *copies[MATRICES]) {
    float *scratch = self->plain.base.binding.scratch;
    copies[LEFT] = scratch + (size_t)omp_get_thread_num() * copy_elements(self);
    copies[RIGHT] = copies[LEFT] + matrix_elements(self, LEFT);
    copies[OUTPUT] = copies[RIGHT] + matrix_elements(self, RIGHT);
}

static dnnl_status_t run_matrix(const matmul_plan *self, size_t index, bool backward) {
    const yoke_plan_binding *at = &self->plain.base.binding;
    float *copies[MATRICES] = {NULL};
    dnnl_status_t left = dnnl_success, right = dnnl_success;
    if (self->plain.half) place_copies(self, copies);
    if (!backward) return forward_matrix(self, index, copies);
    if (at->input_gradients[0] != NULL) left = left_gradient(self, index, copies);
    if (at->input_gradients[1] != NULL) right = right_gradient(self, index, copies);
    return left != dnnl_success ? left : right;
}

static yoke_status matmul_call(const cpu_plain_plan *plain, bool backward) {
    const matmul_plan *self = (const matmul_plan *)plain;
    dnnl_status_t status = dnnl_success;
#pragma omp parallel for num_threads(plain->base.device->threads)
    for (size_t i = 0; i < plain->base.rows * self->size.count; i++) {
        cpu_keep_failure(&status, run_matrix(self, i, backward));
    }
    TRY_DNNL(status);
    return YOKE_OK;
}

static yoke_status matmul_prepare(cpu_plain_plan *plain, const yoke_plan_request *request) {
    matmul_plan *self = (matmul_plan *)plain;
    self->size = yoke_matmul_matrices(request->operation);
    plain->base.needs.scratch_bytes +=
        (size_t)plain->base.device->threads * copy_elements(self) * sizeof(float);
    return YOKE_OK;
}

yoke_status cpu_plan_matmul(yoke_plan **plan, cpu_device *device,
                            const yoke_plan_request *request) {
    static const cpu_plain_operation calls = {.flags = YOKE_READS_INPUTS,
                                              .bytes = sizeof(matmul_plan),
                                              .prepare = matmul_prepare,
                                              .call = matmul_call};
    return cpu_plain_plan_create(plan, device, request, &calls, 2);
}
