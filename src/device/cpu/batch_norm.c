/* SPDX-License-Identifier: Apache-2.0 */
/* Batch normalisation with an optional ReLU: one oneDNN primitive for each pass, in the layout of
 * its input. oneDNN sums many float32 values in long chains, so their statistics come from
 * channel_statistics.c. Forward saves mean, variance and the ReLU's mask for backward. Running
 * statistics follow torch.nn.BatchNorm2d. With a norm group, as torch.nn.SyncBatchNorm, sync_norm.c
 * computes the statistics. */
#include <math.h>
#include <stdlib.h>

#include "device/cpu/sync_norm.h"

#define FEW_VALUES 512 /* of a channel, whose sums in float32 are exact enough */

typedef struct batch_norm_plan {
    cpu_primitive_plan plan;
    bool training;
    bool fixed; /* training computes with the running statistics, which stay */
    size_t channels;
    double momentum;
    double unbiased; /* n / (n - 1): torch's running variance over the batch's */
    size_t mean_offset, variance_offset, mask_offset; /* in `saved` */
    size_t unused_gradient_offset; /* in scratch: oneDNN always writes an input gradient */
    bool input_gradient;
    bool own; /* `statistics` computes mean and variance */
    cpu_channel_statistics statistics;
    size_t moments_offset; /* in scratch: means and squared deviations as doubles */
    double *moments;
    cpu_sync_norm sync;
    float *mean, *variance, *running_mean, *running_variance;
} batch_norm_plan;

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

/* A ReLU turns NaN into 0, so a NaN from an earlier layer would never reach the loss: report it
 * here. */
static yoke_status check_statistics(const batch_norm_plan *norm) {
    for (size_t c = 0; c < norm->channels; c++)
        if (!isfinite(norm->mean[c]) || !isfinite(norm->variance[c]))
            return FAIL(YOKE_ERROR_NUMERIC, "the statistics of channel %zu are not finite", c);
    return YOKE_OK;
}

static void compute_statistics(const batch_norm_plan *norm) {
    const cpu_channel_statistics *statistics = &norm->statistics;
    double inverse = 1 / ((double)statistics->rows * (double)statistics->geometry.pixels);
    double *deviations = norm->moments + norm->channels;
    cpu_channel_statistics_run(statistics, norm->moments, deviations);
    for (size_t c = 0; c < norm->channels; c++) {
        norm->mean[c] = (float)norm->moments[c];
        norm->variance[c] = (float)(deviations[c] * inverse);
    }
}

static yoke_status batch_norm_forward(yoke_plan *plan, const yoke_plan_step *step) {
    batch_norm_plan *norm = (batch_norm_plan *)plan;
    if (norm->own) compute_statistics(norm);
    TRY(cpu_primitive_plan_forward(plan, step));
    if (!norm->training || norm->fixed || step->again) return YOKE_OK;
    TRY(check_statistics(norm));
    update_running(norm);
    return YOKE_OK;
}

/* Statistics that are not finite do not end forward: the other participants wait at the next batch
 * norm. Without rows anywhere the running statistics stay. */
static yoke_status synchronized_forward(yoke_plan *plan, const yoke_plan_step *step) {
    batch_norm_plan *norm = (batch_norm_plan *)plan;
    TRY(cpu_sync_norm_statistics(&norm->sync, step));
    if (!step->idle) TRY(cpu_primitive_plan_forward(plan, step));
    double values = norm->sync.total;
    if (values == 0) return YOKE_OK;
    yoke_status status = check_statistics(norm);
    if (status != YOKE_OK && step->alone) return status;
    if (status != YOKE_OK) norm->sync.group->found_nonfinite = true;
    norm->unbiased = values > 1 ? values / (values - 1) : 0;
    update_running(norm);
    return YOKE_OK;
}

static yoke_status synchronized_backward(yoke_plan *plan, const yoke_plan_step *step) {
    batch_norm_plan *norm = (batch_norm_plan *)plan;
    if (!step->idle) TRY(cpu_primitive_plan_backward(plan, step));
    return cpu_sync_norm_correct(&norm->sync, step);
}

static yoke_status batch_norm_bind(yoke_plan *plan, const yoke_plan_binding *binding) {
    batch_norm_plan *norm = (batch_norm_plan *)plan;
    char *saved = binding->saved;
    norm->running_mean = binding->buffers[0];
    norm->running_variance = binding->buffers[1];
    norm->mean = norm->running_mean;
    norm->variance = norm->running_variance;
    void *mask = NULL;
    if (norm->training && !norm->fixed) {
        norm->mean = (float *)(saved + norm->mean_offset);
        norm->variance = (float *)(saved + norm->variance_offset);
    }
    if (norm->mask_offset > 0) mask = saved + norm->mask_offset;
    if (norm->own) {
        norm->moments = (double *)(void *)((char *)binding->scratch + norm->moments_offset);
        cpu_channel_statistics_bind(&norm->statistics, binding->inputs[0], binding->scratch);
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
    if (norm->sync.group != NULL)
        cpu_sync_norm_bind(&norm->sync,
                           &(cpu_sync_operands){.input = binding->inputs[0],
                                                .input_gradient = norm->input_gradient
                                                                      ? binding->input_gradients[0]
                                                                      : NULL,
                                                .mean = norm->mean,
                                                .variance = norm->variance,
                                                .scale = binding->parameters[0],
                                                .scale_gradient = binding->parameter_gradients[0],
                                                .shift_gradient = binding->parameter_gradients[1]},
                           binding->scratch);
    if (!norm->training) return YOKE_OK;
    void *input_gradient = binding->input_gradients[0];
    if (!norm->input_gradient)
        input_gradient = (char *)binding->scratch + norm->unused_gradient_offset;
    const cpu_address gradients[] = {{DNNL_ARG_SRC, binding->inputs[0]},
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
    return cpu_primitive_bind(&norm->plan.backward, cpu_of(plan->device), gradients,
                              binding->scratch);
}

static yoke_status plan_norm(yoke_plan **plan, cpu_device *device,
                             const yoke_plan_request *request) {
    enum { FLAGS = YOKE_BACKWARD_IN_PLACE | YOKE_READS_INPUT | YOKE_HAS_PARAMETERS };
    static const yoke_plan_calls own_rows = {batch_norm_bind, batch_norm_forward,
                                             cpu_primitive_plan_backward,
                                             cpu_primitive_plan_destroy, FLAGS};
    static const yoke_plan_calls all_rows = {batch_norm_bind, synchronized_forward,
                                             synchronized_backward, cpu_primitive_plan_destroy,
                                             FLAGS};
    bool synchronized = request->training && request->norm_group != NULL;
    TRY(yoke_plan_allocate(plan, sizeof(batch_norm_plan), &device->base, request,
                           synchronized ? &all_rows : &own_rows));
    batch_norm_plan *norm = (batch_norm_plan *)*plan;
    const yoke_operation *operation = request->operation;
    int64_t channels = operation->input.channels;
    size_t values =
        (size_t)request->rows * (size_t)operation->input.height * (size_t)operation->input.width;
    norm->training = request->training;
    norm->fixed = request->fixed_statistics;
    norm->input_gradient = request->input_gradient;
    norm->channels = (size_t)channels;
    norm->momentum = operation->momentum;
    if (values > 1) norm->unbiased = (double)values / (double)(values - 1);
    if (synchronized) norm->sync.group = request->norm_group;
    cpu_operation primitive = {.kind = CPU_NORM,
                               .inference = !norm->training,
                               .source = cpu_layout_desc(&request->inputs[0]),
                               .epsilon = (float)operation->epsilon,
                               .flags = dnnl_use_scale | dnnl_use_shift};
    if (operation->relu) primitive.flags |= dnnl_fuse_norm_relu;
    bool given = !norm->training || norm->fixed || synchronized;
    norm->own = !given && values > FEW_VALUES && primitive.source->type == dnnl_f32;
    /* Forward reads mean and variance instead of computing them; backward takes them for constants.
     */
    if (given || norm->own) primitive.flags |= dnnl_use_global_stats;
    TRY(cpu_primitive_create(&norm->plan.forward, device, &primitive));
    if (norm->own) primitive.flags &= ~(unsigned)dnnl_use_global_stats;
    primitive.direction = CPU_BACKWARD_DATA;
    primitive.hint = norm->plan.forward.description;
    if (norm->training) TRY(cpu_primitive_create(&norm->plan.backward, device, &primitive));
    yoke_plan_needs *needs = &norm->plan.base.needs;
    needs->output = request->inputs[0];
    for (int i = 0; i < YOKE_PLAN_PARAMETERS; i++) {
        TRY(yoke_layout_plain(norm->plan.base.device, &channels, 1, &needs->parameters[i]));
    }
    if (norm->training) {
        size_t vector = cpu_align(norm->channels * sizeof(float), CPU_LINE);
        size_t mask_bytes = cpu_primitive_bytes(&norm->plan.forward, DNNL_ARG_WORKSPACE);
        norm->variance_offset = norm->mean_offset + vector;
        needs->saved_bytes = norm->variance_offset + vector;
        if (mask_bytes > 0) norm->mask_offset = needs->saved_bytes;
        needs->saved_bytes += mask_bytes;
    }
    needs->scratch_bytes = cpu_primitive_plan_scratch(&norm->plan);
    if (norm->training && !norm->input_gradient) {
        norm->unused_gradient_offset = cpu_align(needs->scratch_bytes, CPU_LINE);
        needs->scratch_bytes = norm->unused_gradient_offset + needs->output.bytes;
    }
    if (norm->own) {
        TRY(cpu_channel_statistics_plan(&norm->statistics, request, device->base.threads,
                                        &needs->scratch_bytes));
        norm->moments_offset = cpu_align(needs->scratch_bytes, CPU_LINE);
        needs->scratch_bytes = norm->moments_offset + 2 * norm->channels * sizeof(double);
    }
    if (synchronized)
        TRY(cpu_sync_norm_plan(&norm->sync, request, device->base.threads, &needs->scratch_bytes));
    return YOKE_OK;
}

/* Batch norm, then the sum with a second value and its ReLU: one plan after the other. The value
 * between them does not outlive a pass: forward stores it where the output will be, backward stores
 * the gradient before the ReLU where input 1's gradient will be. */

typedef struct batch_norm_add_plan {
    yoke_plan base;
    yoke_plan *norm, *add;
    size_t between_offset; /* in scratch: the value between the two, where no operand can hold it */
} batch_norm_add_plan;

static void both_destroy(yoke_plan *plan) {
    batch_norm_add_plan *both = (batch_norm_add_plan *)plan;
    yoke_plan_destroy(both->norm);
    yoke_plan_destroy(both->add);
    yoke_free(both);
}

static yoke_status both_forward(yoke_plan *plan, const yoke_plan_step *step) {
    const batch_norm_add_plan *both = (const batch_norm_add_plan *)plan;
    TRY(yoke_plan_forward(both->norm, step));
    if (step->idle) return YOKE_OK;
    return yoke_plan_forward(both->add, step);
}

static yoke_status both_backward(yoke_plan *plan, const yoke_plan_step *step) {
    const batch_norm_add_plan *both = (const batch_norm_add_plan *)plan;
    if (!step->idle) TRY(yoke_plan_backward(both->add, step));
    return yoke_plan_backward(both->norm, step);
}

static yoke_status both_bind(yoke_plan *plan, const yoke_plan_binding *binding) {
    const batch_norm_add_plan *both = (const batch_norm_add_plan *)plan;
    void *between = (char *)binding->scratch + both->between_offset;
    void *gradient_of_1 = binding->input_gradients[1];
    bool shared = both->add->needs.shared_input_gradient && gradient_of_1 != NULL;
    yoke_plan_binding norm = *binding;
    norm.output = both->add->needs.forward_in_place ? binding->output : between;
    norm.output_gradient = shared ? gradient_of_1 : between;
    TRY(yoke_plan_bind(both->norm, &norm));
    const yoke_plan_binding add = {.inputs = {norm.output, binding->inputs[1]},
                                   .output = binding->output,
                                   .output_gradient = binding->output_gradient,
                                   .input_gradients = {norm.output_gradient, gradient_of_1},
                                   .scratch = binding->scratch};
    return yoke_plan_bind(both->add, &add);
}

static yoke_status plan_norm_and_add(yoke_plan **plan, cpu_device *device,
                                     const yoke_plan_request *request) {
    static const yoke_plan_calls calls = {both_bind, both_forward, both_backward, both_destroy};
    TRY(yoke_plan_allocate(plan, sizeof(batch_norm_add_plan), &device->base, request, &calls));
    batch_norm_add_plan *both = (batch_norm_add_plan *)*plan;
    yoke_operation alone = *request->operation, sum = alone;
    alone.add = alone.relu = false;
    sum.kind = YOKE_OP_ADD;
    yoke_plan_request part = *request;
    part.operation = &alone;
    TRY(plan_norm(&both->norm, device, &part));
    part.operation = &sum;
    part.inputs[0] = both->norm->needs.output;
    part.input_gradient = true; /* the gradients of the batch norm's parameters need it */
    TRY(cpu_plan_add(&both->add, device, &part));

    const yoke_plan_needs *norm = &both->norm->needs, *add = &both->add->needs;
    yoke_plan_needs *needs = &both->base.needs;
    bool in_place = add->forward_in_place &&
                    (!request->training || (request->input_gradient && add->shared_input_gradient));
    *needs = *norm;
    needs->output = add->output;
    needs->backward_reads_output = add->backward_reads_output;
    needs->backward_in_place = false;
    needs->joined_in_place = add->shared_input_gradient;
    if (needs->scratch_bytes < add->scratch_bytes) needs->scratch_bytes = add->scratch_bytes;
    both->between_offset = cpu_align(needs->scratch_bytes, CPU_LINE);
    if (!in_place) needs->scratch_bytes = both->between_offset + norm->output.bytes;
    return YOKE_OK;
}

yoke_status cpu_plan_batch_norm(yoke_plan **plan, cpu_device *device,
                                const yoke_plan_request *request) {
    return request->operation->add ? plan_norm_and_add(plan, device, request)
                                   : plan_norm(plan, device, request);
}
