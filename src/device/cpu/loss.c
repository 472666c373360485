/* Losses over plain float32 rows: torch.nn.CrossEntropyLoss with label smoothing, and
 * torch.nn.MSELoss. Both sum over rows in double, in order. Backward multiplies the gradient by the
 * step's loss_scale. */
#include <math.h>

#include "device/cpu/cpu.h"

/* What backward needs of one row's softmax: p_j = exp(x_j - largest) / sum. */
typedef struct saved_row {
    float largest, reciprocal_sum;
} saved_row;

typedef struct loss_plan {
    yoke_plan base;
    size_t rows, outputs; /* outputs of one row: classes or targets */
    double smoothing;
    yoke_plan_binding binding;
} loss_plan;

static yoke_status bind(yoke_plan *plan, const yoke_plan_binding *binding) {
    ((loss_plan *)plan)->binding = *binding;
    return YOKE_OK;
}

static size_t first_largest(const float *logits, size_t classes) {
    size_t best = 0;
    for (size_t j = 1; j < classes; j++) {
        if (logits[j] > logits[best]) best = j;
    }
    return best;
}

/* (1 - s) * -log p_label + s / classes * sum_j -log p_j, with -log p_j = log_sum - (x_j - largest).
 */
static double cross_entropy_row(const loss_plan *loss, const float *logits, size_t label,
                                saved_row *saved) {
    float largest = logits[first_largest(logits, loss->outputs)];
    double sum = 0, distance = 0;
    for (size_t j = 0; j < loss->outputs; j++) {
        float below = logits[j] - largest;
        sum += (double)expf(below);
        distance -= (double)below;
    }
    double log_sum = log(sum);
    double label_loss = log_sum - (double)(logits[label] - largest);
    if (saved != NULL) *saved = (saved_row){.largest = largest, .reciprocal_sum = (float)(1 / sum)};
    if (loss->smoothing == 0) return label_loss; /* a logit of -infinity is then no loss */
    double mean_loss = log_sum + distance / (double)loss->outputs;
    return (1 - loss->smoothing) * label_loss + loss->smoothing * mean_loss;
}

static yoke_status cross_entropy_forward(yoke_plan *plan, const yoke_plan_step *step) {
    (void)step;
    const loss_plan *loss = (const loss_plan *)plan;
    const float *logits = loss->binding.inputs[0];
    saved_row *saved = plan->backward != NULL ? loss->binding.saved : NULL;
    double sum = 0;
    int32_t correct = 0;
    for (size_t row = 0; row < loss->rows; row++) {
        size_t label = (size_t)loss->binding.labels[row];
        sum += cross_entropy_row(loss, logits, label, saved != NULL ? saved + row : NULL);
        if (first_largest(logits, loss->outputs) == label) correct++;
        logits += loss->outputs;
    }
    *loss->binding.loss_sum = sum;
    *loss->binding.correct = correct;
    return YOKE_OK;
}

/* d loss / d x_j = p_j - (1 - s) [j = label] - s / classes. */
static yoke_status cross_entropy_backward(yoke_plan *plan, const yoke_plan_step *step) {
    const loss_plan *loss = (const loss_plan *)plan;
    const float *logits = loss->binding.inputs[0];
    const saved_row *saved = loss->binding.saved;
    float *gradient = loss->binding.input_gradients[0];
    float everywhere = (float)(loss->smoothing / (double)loss->outputs);
    float at_label = (float)(1 - loss->smoothing);
    for (size_t row = 0; row < loss->rows; row++) {
        size_t label = (size_t)loss->binding.labels[row];
        for (size_t j = 0; j < loss->outputs; j++) {
            float p = expf(logits[j] - saved[row].largest) * saved[row].reciprocal_sum;
            float target = j == label ? at_label + everywhere : everywhere;
            gradient[j] = (p - target) * step->loss_scale;
        }
        logits += loss->outputs;
        gradient += loss->outputs;
    }
    return YOKE_OK;
}

static yoke_status mse_forward(yoke_plan *plan, const yoke_plan_step *step) {
    (void)step;
    const loss_plan *loss = (const loss_plan *)plan;
    const float *outputs = loss->binding.inputs[0];
    const float *targets = loss->binding.targets;
    double sum = 0;
    for (size_t row = 0; row < loss->rows; row++) {
        double row_sum = 0;
        for (size_t j = 0; j < loss->outputs; j++) {
            double error = (double)outputs[j] - (double)targets[j];
            row_sum += error * error;
        }
        sum += row_sum / (double)loss->outputs;
        outputs += loss->outputs;
        targets += loss->outputs;
    }
    *loss->binding.loss_sum = sum;
    *loss->binding.correct = 0;
    return YOKE_OK;
}

static yoke_status mse_backward(yoke_plan *plan, const yoke_plan_step *step) {
    const loss_plan *loss = (const loss_plan *)plan;
    const float *outputs = loss->binding.inputs[0];
    const float *targets = loss->binding.targets;
    float *gradient = loss->binding.input_gradients[0];
    float factor = 2 * step->loss_scale / (float)loss->outputs;
    for (size_t i = 0; i < loss->rows * loss->outputs; i++) {
        gradient[i] = (outputs[i] - targets[i]) * factor;
    }
    return YOKE_OK;
}

yoke_status cpu_plan_loss(yoke_plan **plan, cpu_device *device, const yoke_plan_request *request) {
    static const yoke_plan_calls cross_entropy = {bind, cross_entropy_forward,
                                                  cross_entropy_backward, NULL};
    static const yoke_plan_calls mse = {bind, mse_forward, mse_backward, NULL};
    const yoke_operation *operation = request->operation;
    bool entropy = operation->kind == YOKE_OP_CROSS_ENTROPY;
    TRY(yoke_plan_allocate(plan, sizeof(loss_plan), &device->base, request,
                           entropy ? &cross_entropy : &mse));
    loss_plan *loss = (loss_plan *)*plan;
    loss->rows = (size_t)request->rows;
    loss->outputs = (size_t)operation->input.channels * (size_t)operation->input.height *
                    (size_t)operation->input.width;
    loss->smoothing = operation->label_smoothing;
    loss->base.needs.backward_reads_input = request->training;
    if (request->training && entropy) loss->base.needs.saved_bytes = loss->rows * sizeof(saved_row);
    return YOKE_OK;
}
