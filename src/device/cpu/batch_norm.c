/* Batch normalisation with an optional ReLU behind it, one oneDNN primitive a pass, in the layout
 * of its input. Mean, variance and the ReLU's mask are kept for backward; running statistics follow
 * torch.nn.BatchNorm2d. */
#include <math.h>
#include <stdlib.h>

#include "device/cpu/primitive.h"

typedef struct batch_norm_plan {
    cpu_primitive_plan plan;
    bool training;
    size_t channels;
    double momentum;
    double unbiased; /* n / (n - 1): what torch's running variance has over the batch's */
    size_t mean_offset, variance_offset, mask_offset; /* in `saved` */
    size_t unused_gradient_offset; /* in scratch: oneDNN writes an input gradient, wanted or not */
    bool input_gradient;
    float *mean, *variance, *running_mean, *running_variance;
} batch_norm_plan;

static size_t aligned(size_t bytes) {
    return (bytes + 63) / 64 * 64;
}

static void update_running(const batch_norm_plan *norm) {
    double keep = 1 - norm->momentum, take = norm->momentum;
    for (size_t c = 0; c < norm->channels; c++) {
        double mean = (double)norm->mean[c];
        double variance = (double)norm->variance[c] * norm->unbiased;
        norm->running_mean[c] = (float)(keep * (double)norm->running_mean[c] + take * mean);
        norm->running_variance[c] =
            (float)(keep * (double)norm->running_variance[c] + take * variance);
    }
}

/* A ReLU behind turns NaN into 0: what went wrong before this layer would never reach the loss. */
static yoke_status check_statistics(const batch_norm_plan *norm) {
    for (size_t c = 0; c < norm->channels; c++)
        if (!isfinite(norm->mean[c]) || !isfinite(norm->variance[c]))
            return FAIL(YOKE_ERROR_NUMERIC, "the statistics of channel %zu are not finite", c);
    return YOKE_OK;
}

static yoke_status forward(yoke_plan *plan, const yoke_plan_step *step) {
    batch_norm_plan *norm = (batch_norm_plan *)plan;
    TRY(cpu_primitive_plan_forward(plan, step));
    if (!norm->training) return YOKE_OK;
    TRY(check_statistics(norm));
    update_running(norm);
    return YOKE_OK;
}

static yoke_status bind_backward(batch_norm_plan *norm, const yoke_plan_binding *binding,
                                 void *mask) {
    void *input_gradient = binding->input_gradients[0];
    if (!norm->input_gradient)
        input_gradient = (char *)binding->scratch + norm->unused_gradient_offset;
    const cpu_address addresses[] = {{DNNL_ARG_SRC, binding->inputs[0]},
                                     {DNNL_ARG_MEAN, norm->mean},
                                     {DNNL_ARG_VARIANCE, norm->variance},
                                     {DNNL_ARG_SCALE, binding->parameters[0]},
                                     {cpu_norm_backward_shift, binding->parameters[1]},
                                     {DNNL_ARG_DIFF_DST, binding->output_gradient},
                                     {DNNL_ARG_DIFF_SRC, input_gradient},
                                     {DNNL_ARG_DIFF_SCALE, binding->parameter_gradients[0]},
                                     {DNNL_ARG_DIFF_SHIFT, binding->parameter_gradients[1]},
                                     {mask != NULL ? DNNL_ARG_WORKSPACE : 0, mask},
                                     CPU_LAST_ADDRESS};
    return cpu_primitive_bind(&norm->plan.backward, cpu_of(norm->plan.base.device), addresses,
                              binding->scratch);
}

static yoke_status bind(yoke_plan *plan, const yoke_plan_binding *binding) {
    batch_norm_plan *norm = (batch_norm_plan *)plan;
    char *saved = binding->saved;
    norm->running_mean = binding->buffers[0];
    norm->running_variance = binding->buffers[1];
    norm->mean = norm->running_mean;
    norm->variance = norm->running_variance;
    void *mask = NULL;
    if (norm->training) {
        norm->mean = (float *)(saved + norm->mean_offset);
        norm->variance = (float *)(saved + norm->variance_offset);
        if (norm->mask_offset > 0) mask = saved + norm->mask_offset;
    }
    const cpu_address addresses[] = {{DNNL_ARG_SRC, binding->inputs[0]},
                                     {DNNL_ARG_DST, binding->output},
                                     {DNNL_ARG_MEAN, norm->mean},
                                     {DNNL_ARG_VARIANCE, norm->variance},
                                     {DNNL_ARG_SCALE, binding->parameters[0]},
                                     {DNNL_ARG_SHIFT, binding->parameters[1]},
                                     {mask != NULL ? DNNL_ARG_WORKSPACE : 0, mask},
                                     CPU_LAST_ADDRESS};
    TRY(cpu_primitive_bind(&norm->plan.forward, cpu_of(plan->device), addresses, binding->scratch));
    return norm->training ? bind_backward(norm, binding, mask) : YOKE_OK;
}

static yoke_status create_primitives(batch_norm_plan *norm, const yoke_plan_request *request) {
    cpu_device *device = cpu_of(norm->plan.base.device);
    cpu_operation operation = {.kind = CPU_NORM,
                               .inference = !norm->training,
                               .source = cpu_layout_desc(&request->inputs[0]),
                               .epsilon = (float)request->operation->epsilon,
                               .flags = dnnl_use_scale | dnnl_use_shift};
    if (request->operation->relu) operation.flags |= dnnl_fuse_norm_relu;
    if (!norm->training) operation.flags |= dnnl_use_global_stats;
    TRY(cpu_primitive_create(&norm->plan.forward, device, &operation));
    if (!norm->training) return YOKE_OK;
    operation.direction = CPU_BACKWARD_DATA;
    operation.hint = norm->plan.forward.description;
    return cpu_primitive_create(&norm->plan.backward, device, &operation);
}

static void place_saved(batch_norm_plan *norm, yoke_plan_needs *needs) {
    size_t vector = aligned(norm->channels * sizeof(float));
    norm->variance_offset = norm->mean_offset + vector;
    needs->saved_bytes = norm->variance_offset + vector;
    size_t mask_bytes = cpu_primitive_bytes(&norm->plan.forward, DNNL_ARG_WORKSPACE);
    if (mask_bytes == 0) return;
    norm->mask_offset = needs->saved_bytes;
    needs->saved_bytes += mask_bytes;
}

static void place_scratch(batch_norm_plan *norm, yoke_plan_needs *needs) {
    needs->scratch_bytes = cpu_primitive_plan_scratch(&norm->plan);
    if (!norm->training || norm->input_gradient) return;
    norm->unused_gradient_offset = aligned(needs->scratch_bytes);
    needs->scratch_bytes = norm->unused_gradient_offset + needs->output.bytes;
}

static yoke_status build(batch_norm_plan *norm, const yoke_plan_request *request) {
    const yoke_operation *operation = request->operation;
    int64_t channels = operation->input.channels;
    size_t values =
        (size_t)request->rows * (size_t)operation->input.height * (size_t)operation->input.width;
    if (request->training && values == 1)
        return FAIL(YOKE_ERROR_ARGUMENT,
                    "batch norm in training needs more than 1 value per channel, got 1 row of "
                    "[%d, 1, 1]; give every device at least 2 rows",
                    operation->input.channels);
    norm->training = request->training;
    norm->input_gradient = request->input_gradient;
    norm->channels = (size_t)channels;
    norm->momentum = operation->momentum;
    if (values > 1) norm->unbiased = (double)values / (double)(values - 1);
    TRY(create_primitives(norm, request));
    yoke_plan_needs *needs = &norm->plan.base.needs;
    needs->output = request->inputs[0];
    for (int i = 0; i < YOKE_PLAN_PARAMETERS; i++) {
        TRY(yoke_layout_plain(norm->plan.base.device, &channels, 1, &needs->parameters[i]));
    }
    if (norm->training) place_saved(norm, needs);
    place_scratch(norm, needs);
    needs->backward_reads_input = request->training;
    needs->backward_in_place = request->training;
    return YOKE_OK;
}

yoke_status cpu_plan_batch_norm(yoke_plan **plan, cpu_device *device,
                                const yoke_plan_request *request) {
    batch_norm_plan *norm = calloc(1, sizeof *norm);
    if (norm == NULL) return FAIL_MEMORY(sizeof *norm, request->operation->name);
    norm->plan.base =
        (yoke_plan){.device = &device->base,
                    .bind = bind,
                    .forward = forward,
                    .backward = request->training ? cpu_primitive_plan_backward : NULL,
                    .destroy = cpu_primitive_plan_destroy};
    yoke_status status = build(norm, request);
    if (status == YOKE_OK)
        *plan = &norm->plan.base;
    else
        cpu_primitive_plan_destroy(&norm->plan.base);
    return status;
}
