/* Losses over plain float32 rows: torch.nn.CrossEntropyLoss with label smoothing, and
 * torch.nn.MSELoss. Sums are in double. Backward multiplies the gradient by the step's loss_scale
 * in device memory. */
#include "device/cuda/kernel_plan.h"

typedef struct loss_plan {
    yoke_plan base;
    bool entropy;
    size_t parts;
    cuda_loss_job job;
} loss_plan;

static yoke_status forward(yoke_plan *plan, const yoke_plan_step *step) {
    (void)step;
    const loss_plan *loss = (const loss_plan *)plan;
    cuda_device *device = cuda_of(plan->device);
    if (loss->entropy)
        TRY_CUDA(device, cuda_run_cross_entropy(&loss->job, cuda_compute(plan)));
    else
        TRY_CUDA(device, cuda_run_mean_square(&loss->job, cuda_compute(plan)));
    return YOKE_OK;
}

static yoke_status backward(yoke_plan *plan, const yoke_plan_step *step) {
    (void)step;
    const loss_plan *loss = (const loss_plan *)plan;
    cuda_device *device = cuda_of(plan->device);
    if (loss->entropy)
        TRY_CUDA(device, cuda_run_cross_entropy_backward(&loss->job, cuda_compute(plan)));
    else
        TRY_CUDA(device, cuda_run_mean_square_backward(&loss->job, cuda_compute(plan)));
    return YOKE_OK;
}

static yoke_status bind(yoke_plan *plan, const yoke_plan_binding *binding) {
    loss_plan *loss = (loss_plan *)plan;
    cuda_loss_job *job = &loss->job;
    job->values = binding->inputs[0];
    job->labels = binding->labels;
    job->targets = binding->targets;
    job->saved = plan->needs.saved_bytes > 0 ? binding->saved : NULL;
    job->loss_sum = binding->loss_sum;
    job->correct = binding->correct;
    job->loss_parts = binding->scratch;
    job->correct_parts = (int32_t *)(job->loss_parts + loss->parts);
    job->gradient = binding->input_gradients[0];
    return YOKE_OK;
}

yoke_status cuda_plan_loss(yoke_plan **plan, cuda_device *device,
                           const yoke_plan_request *request) {
    static const yoke_plan_calls calls = {bind, forward, backward, NULL};
    const yoke_operation *operation = request->operation;
    TRY(yoke_plan_allocate(plan, sizeof(loss_plan), &device->base, request, &calls));
    loss_plan *loss = (loss_plan *)*plan;
    loss->entropy = operation->kind == YOKE_OP_CROSS_ENTROPY;
    loss->job = (cuda_loss_job){.rows = (size_t)request->rows,
                                .outputs = operation->input.channels * operation->input.height *
                                           operation->input.width,
                                .smoothing = operation->label_smoothing,
                                .step = device->step};
    loss->parts = cuda_loss_parts(loss->job.rows, loss->job.outputs);
    yoke_plan_needs *needs = &loss->base.needs;
    needs->scratch_bytes = loss->parts * (sizeof(double) + sizeof(int32_t));
    needs->backward_reads_input = request->training;
    if (request->training && loss->entropy)
        needs->saved_bytes = loss->job.rows * sizeof(cuda_loss_row);
    return YOKE_OK;
}
