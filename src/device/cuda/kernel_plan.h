/* SPDX-License-Identifier: Apache-2.0 */
/* Operations that run Yoke's own kernels. A cuda_kernel_operation describes one of them, and
 * kernel_plan.c makes, binds and runs the plans of all. Kernels read and write values channels last
 * in the compute type. The plan copies an input in another layout (the model's input) to scratch
 * before kernels read it, and the input's gradient back after they wrote it. */
#ifndef DEVICE_CUDA_KERNEL_PLAN_H
#define DEVICE_CUDA_KERNEL_PLAN_H

#include "device/cuda/cuda.h"

typedef struct cuda_kernel_plan cuda_kernel_plan;

typedef struct cuda_kernel_operation {
    int inputs; /* so many are read channels last; 0: they are read as given. Of an expression, a
                   recurrence and the host program: at most */
    /* YOKE_READS_INPUT and others. In place: only over an input that is not reordered. */
    unsigned flags;
    /* Adds to the plan's needs what the flags do not say: parameters, saved and scratch bytes.
     * NULL: there is nothing more. */
    yoke_status (*prepare)(cuda_kernel_plan *plan, const yoke_plan_request *request);
    yoke_status (*forward)(const cuda_kernel_plan *plan, cudaStream_t stream);
    yoke_status (*backward)(const cuda_kernel_plan *plan, cudaStream_t stream);
    bool plain;   /* kernels read and write plain rows instead, in the compute type, too */
    bool float32; /* in float32, also where the compute type is another; plain */
} cuda_kernel_operation;

/* An input or the output. */
typedef struct cuda_kernel_value {
    cuda_layout given, own; /* the neighbours' layout, the kernels' layout */
    bool reordered;         /* the two differ */
    void *given_value, *given_gradient;
} cuda_kernel_value;

struct cuda_kernel_plan {
    yoke_plan base; /* binding: values and gradients in the kernels' layouts, and free scratch */
    const cuda_kernel_operation *calls;
    cuda_device *device;
    int input_count;
    cuda_type type;
    bool again; /* forward runs a second time in this step */
    cuda_kernel_value inputs[YOKE_PLAN_INPUTS], output;
};

/* A plan of `bytes`, zero behind the cuda_kernel_plan that it begins with. */
yoke_status cuda_kernel_plan_create(yoke_plan **plan, size_t bytes, cuda_device *device,
                                    const yoke_plan_request *request,
                                    const cuda_kernel_operation *calls);

/* Rows in sequences.c and elementary_operations.c; operations.c has the others, and their table. */
extern const cuda_kernel_operation cuda_embedding, cuda_positions, cuda_class_token, cuda_select;
extern const cuda_kernel_operation cuda_expression, cuda_reduction, cuda_row_shape, cuda_move;
extern const cuda_kernel_operation cuda_matmul, cuda_parameter, cuda_host;

#endif
