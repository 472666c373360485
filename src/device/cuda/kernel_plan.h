/* SPDX-License-Identifier: Apache-2.0 */
/* Plans that run Yoke's own kernels read values channels last in the compute type. An input in
 * another layout (the model's input) is first reordered into scratch, and its gradient back. */
#ifndef DEVICE_CUDA_KERNEL_PLAN_H
#define DEVICE_CUDA_KERNEL_PLAN_H

#include "device/cuda/cuda.h"

typedef struct cuda_kernel_input {
    cuda_layout given, own; /* the producer's layout, the kernels' layout */
    bool reordered;         /* the two differ */
    size_t bytes;           /* of one copy in scratch; 0: none is needed */
    const void *given_value;
    void *given_gradient, *value, *gradient; /* value, gradient: for the kernels */
} cuda_kernel_input;

/* Input `index` of the request. */
cuda_kernel_input cuda_kernel_input_of(const yoke_plan_request *request, int index);
/* Copies of value and gradient take 2 * bytes of scratch; gradient is NULL where none is bound. */
void cuda_kernel_input_bind(cuda_kernel_input *input, const yoke_plan_binding *binding, int index,
                            void *scratch);
/* Call read before kernels read value, and return after they wrote gradient. Both do nothing unless
 * the input is reordered. */
yoke_status cuda_kernel_input_read(const cuda_kernel_input *input, cuda_device *device);
yoke_status cuda_kernel_input_return(const cuda_kernel_input *input, cuda_device *device);

/* The layout in which Yoke's kernels write operation->output. */
void cuda_kernel_output(yoke_layout *output, const yoke_plan_request *request);
static inline bool cuda_is_half(const yoke_plan_request *request) {
    return cuda_compute_type(request->precision) == CUDA_BFLOAT16;
}

#endif
