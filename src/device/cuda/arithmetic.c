/* SPDX-License-Identifier: Apache-2.0 */
/* The backend table's arithmetic and images: fills in the kernels' jobs. The scalars have the CPU's
 * bits. */
#include <string.h>

#include "device/cuda/cuda.h"

_Static_assert(CUDA_SOURCES >= YOKE_DEVICES_LIMIT, "a sum reads the buffers of all devices");

static cudaStream_t stream_of(yoke_device *device, yoke_stream stream) {
    return cuda_of(device)->streams[stream];
}

yoke_status cuda_sum(yoke_device *device, yoke_stream stream, float *to, const float *const *from,
                     int count, size_t elements) {
    TRY(cuda_use(device));
    cuda_sum_job job = {.to = to, .count = count, .elements = elements};
    for (int k = 0; k < count; k++)
        job.from[k] = from[k];
    TRY_CUDA(cuda_of(device), cuda_run_sum(&job, stream_of(device, stream)));
    return YOKE_OK;
}

yoke_status cuda_square_sum(yoke_device *device, yoke_stream stream, const float *values,
                            size_t elements, double *sum) {
    TRY(cuda_use(device));
    TRY_CUDA(cuda_of(device),
             cuda_run_square_sum(values, elements, sum, stream_of(device, stream)));
    return YOKE_OK;
}

yoke_status cuda_check_finite(yoke_device *device, yoke_stream stream, const float *values,
                              size_t elements, size_t offset, uint64_t *first_bad) {
    TRY(cuda_use(device));
    TRY_CUDA(cuda_of(device),
             cuda_run_check_finite(values, elements, offset, first_bad, stream_of(device, stream)));
    return YOKE_OK;
}

yoke_status cuda_gate(yoke_device *device, yoke_stream stream, yoke_gate *gate,
                      const yoke_gate_request *request) {
    TRY(cuda_use(device));
    const cuda_step *step = device->recording ? cuda_of(device)->step : NULL;
    TRY_CUDA(cuda_of(device), cuda_run_gate(gate, request, step, stream_of(device, stream)));
    return YOKE_OK;
}

yoke_status cuda_undo(yoke_device *device, yoke_stream stream, const yoke_gate *gate, float *values,
                      const float *kept, size_t elements) {
    TRY(cuda_use(device));
    TRY_CUDA(cuda_of(device),
             cuda_run_undo(gate, values, kept, elements, stream_of(device, stream)));
    return YOKE_OK;
}

yoke_status cuda_update(yoke_device *device, yoke_stream stream, const yoke_update_step *step,
                        float *weights, const float *gradients,
                        float *const states[YOKE_UPDATE_STATES], size_t elements) {
    cuda_update_job job = {.rule = step->rule,
                           .scalars = yoke_update_round(&step->scalars),
                           .gradient_scale = step->gradient_scale,
                           .gate = step->gate,
                           .applies = step->applies,
                           .weights = weights,
                           .gradients = gradients,
                           .to = step->direction != NULL ? step->direction : weights,
                           .kept_weights = step->kept_weights,
                           .shadow = step->shadow,
                           .shadow_type = cuda_compute_type(step->shadow_precision),
                           .elements = elements};
    if (device->recording && step->slot > 0)
        job.in_memory = &cuda_of(device)->step->scalars[step->slot - 1];
    memcpy(job.states, states, sizeof job.states);
    memcpy(job.kept_states, step->kept_states, sizeof job.kept_states);
    TRY(cuda_use(device));
    TRY_CUDA(cuda_of(device), cuda_run_update(&job, stream_of(device, stream)));
    return YOKE_OK;
}

yoke_status cuda_rescale(yoke_device *device, yoke_stream stream, float *values, size_t elements,
                         const double *numerator, const double *denominator, double epsilon) {
    TRY(cuda_use(device));
    TRY_CUDA(cuda_of(device), cuda_run_rescale(values, elements, numerator, denominator, epsilon,
                                               stream_of(device, stream)));
    return YOKE_OK;
}

yoke_status cuda_shadow(yoke_device *device, yoke_precision precision, uint16_t *shadow,
                        const float *parameters, size_t elements) {
    cuda_layout from = {.type = CUDA_FLOAT32, .ndim = 1, .dims = {(int64_t)elements}}, to = from;
    to.type = cuda_compute_type(precision);
    TRY(cuda_use(device));
    return cuda_reorder(cuda_of(device), &to, shadow, &from, parameters);
}

yoke_status cuda_accumulate(yoke_device *device, const yoke_layout *layout, void *to,
                            const void *from) {
    const cuda_layout *own = cuda_layout_of(layout);
    size_t elements = cuda_elements(own);
    if (elements == 0) return YOKE_OK;
    TRY(cuda_use(device));
    TRY_CUDA(cuda_of(device), cuda_run_accumulate(to, from, own->type, elements,
                                                  stream_of(device, YOKE_STREAM_COMPUTE)));
    return YOKE_OK;
}

yoke_status cuda_decode(yoke_device *device, const yoke_decode_request *request) {
    cudaStream_t stream = stream_of(device, YOKE_STREAM_COMPUTE);
    TRY(cuda_use(device));
    if (request->layout == NULL) {
        TRY_CUDA(cuda_of(device), cuda_run_decode(request, 0, stream));
        return YOKE_OK;
    }
    cuda_layout layout = *cuda_layout_of(request->layout);
    layout.dims[0] = request->rows;
    cuda_layout plain = {.type = CUDA_FLOAT32, .ndim = 4};
    yoke_dims_shape(request->image, request->rows, plain.dims);
    if (request->decoded != NULL)
        return cuda_reorder(cuda_of(device), &layout, request->inputs, &plain, request->decoded);
    TRY_CUDA(cuda_of(device), cuda_run_decode(request, (int)layout.dims[1], stream));
    return YOKE_OK;
}
