/* SPDX-License-Identifier: Apache-2.0 */
/* Operations of the host program: their callbacks queue work on the compute stream. */
#include "device/cuda/kernel_plan.h"

static yoke_status host_prepare(cuda_kernel_plan *plan, const yoke_plan_request *request) {
    (void)request;
    return yoke_plan_host_parameters(&plan->base);
}

/* The callback may have made another GPU current. */
static yoke_status call_host(const cuda_kernel_plan *plan, bool backward, cudaStream_t stream) {
    TRY(yoke_plan_call_host(&plan->base, &plan->base.binding, backward, stream));
    cuda_forget_current();
    return cuda_use(plan->base.device);
}

static yoke_status host_forward(const cuda_kernel_plan *plan, cudaStream_t stream) {
    return call_host(plan, false, stream);
}

static yoke_status host_backward(const cuda_kernel_plan *plan, cudaStream_t stream) {
    return call_host(plan, true, stream);
}

const cuda_kernel_operation cuda_host = {
    YOKE_HOST_INPUTS, YOKE_READS_INPUTS | YOKE_READS_OUTPUT | YOKE_HAS_PARAMETERS,
    host_prepare,     host_forward,
    host_backward,    .plain = true,
    .float32 = true};
