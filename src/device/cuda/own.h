/* Plans with kernels of our own read values channels last in the compute type. An input that comes
 * otherwise (the model's own) is reordered into scratch first, and its gradient back. */
#ifndef DEVICE_CUDA_OWN_H
#define DEVICE_CUDA_OWN_H

#include "device/cuda/cuda.h"

typedef struct cuda_own_input {
    cuda_layout given, own; /* as the producer writes it, as the kernels read it */
    bool reordered;         /* the two differ */
    size_t bytes;           /* of one copy in scratch; 0: none is needed */
    const void *given_value;
    void *given_gradient, *value, *gradient; /* value, gradient: for the kernels */
} cuda_own_input;

/* Input `index` of the request. */
cuda_own_input cuda_own_input_of(const yoke_plan_request *request, int index);
/* Copies of value and gradient lie in scratch, 2 * bytes; gradient is NULL where none is bound. */
void cuda_own_input_bind(cuda_own_input *input, const yoke_plan_binding *binding, int index,
                         void *scratch);
/* Before kernels read value; after they wrote gradient. Nothing where nothing is reordered. */
yoke_status cuda_own_input_read(const cuda_own_input *input, cuda_device *device);
yoke_status cuda_own_input_return(const cuda_own_input *input, cuda_device *device);

/* Zeroed but for base; it owns nothing but itself. backward is dropped where the plan does not
 * train. */
typedef struct cuda_own_calls {
    yoke_status (*bind)(yoke_plan *plan, const yoke_plan_binding *binding);
    yoke_status (*forward)(yoke_plan *plan, const yoke_plan_step *step);
    yoke_status (*backward)(yoke_plan *plan, const yoke_plan_step *step);
} cuda_own_calls;
yoke_status cuda_own_plan_create(yoke_plan **plan, size_t bytes, cuda_device *device,
                                 const yoke_plan_request *request, const cuda_own_calls *calls);

/* What operation->output looks like when a kernel of our own wrote it. */
void cuda_own_output(yoke_layout *output, const yoke_plan_request *request);
static inline bool cuda_is_half(const yoke_plan_request *request) {
    return cuda_compute_type(request->precision) == CUDA_BFLOAT16;
}

#endif
