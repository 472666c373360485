/* Losses over plain float32 rows: torch.nn.CrossEntropyLoss with label smoothing, class weights and
 * ignore_index, MSELoss, BCEWithLogitsLoss with pos_weight, and HuberLoss. All sum over rows in
 * double, in order. Backward multiplies the gradient by the step's loss_scale. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "device/cpu/cpu.h"

/* What backward needs of one row's softmax: p_j = exp(x_j - largest) / sum. */
typedef struct saved_row {
    float largest, reciprocal_sum;
} saved_row;

typedef struct loss_plan {
    yoke_plan base;
    size_t rows, outputs; /* rows: with labels all positions; outputs of one: classes or targets */
    double smoothing, delta;
    float *weights; /* [outputs], or NULL */
    double weight_sum;
    bool ignores;
    int32_t ignored;
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

/* As PyTorch weights it: sum_j q_j * -log p_j, with q_j = (1 - s) w_label [j = label] + s / classes
 * * w_j. The caller divides by the sum of w_label over the batch. */
static double weighted_row(const loss_plan *loss, const float *logits, size_t label,
                           saved_row *saved) {
    float largest = logits[first_largest(logits, loss->outputs)];
    double sum = 0, distance = 0;
    for (size_t j = 0; j < loss->outputs; j++) {
        float below = logits[j] - largest;
        sum += (double)expf(below);
        if (loss->smoothing > 0) distance -= (double)loss->weights[j] * (double)below;
    }
    double log_sum = log(sum);
    double label_loss =
        (double)loss->weights[label] * (log_sum - (double)(logits[label] - largest));
    if (saved != NULL) *saved = (saved_row){.largest = largest, .reciprocal_sum = (float)(1 / sum)};
    if (loss->smoothing == 0) return label_loss;
    double mean_loss = (loss->weight_sum * log_sum + distance) / (double)loss->outputs;
    return (1 - loss->smoothing) * label_loss + loss->smoothing * mean_loss;
}

static bool is_ignored(const loss_plan *loss, size_t row) {
    return loss->ignores && loss->binding.labels[row] == loss->ignored;
}

static yoke_status cross_entropy_forward(yoke_plan *plan, const yoke_plan_step *step) {
    (void)step;
    const loss_plan *loss = (const loss_plan *)plan;
    const float *logits = loss->binding.inputs[0];
    saved_row *saved = plan->backward != NULL ? loss->binding.saved : NULL;
    double sum = 0;
    int32_t correct = 0;
    for (size_t row = 0; row < loss->rows; row++, logits += loss->outputs) {
        if (is_ignored(loss, row)) continue;
        size_t label = (size_t)loss->binding.labels[row];
        saved_row *kept = saved != NULL ? saved + row : NULL;
        sum += loss->weights != NULL ? weighted_row(loss, logits, label, kept)
                                     : cross_entropy_row(loss, logits, label, kept);
        if (first_largest(logits, loss->outputs) == label) correct++;
    }
    *loss->binding.loss_sum = sum;
    *loss->binding.correct = correct;
    return YOKE_OK;
}

/* d loss / d x_j = p_j - (1 - s) [j = label] - s / classes. */
static void plain_slopes(const loss_plan *loss, size_t row, float scale, float *gradient) {
    const float *logits = (const float *)loss->binding.inputs[0] + row * loss->outputs;
    const saved_row *saved = (const saved_row *)loss->binding.saved + row;
    size_t label = (size_t)loss->binding.labels[row];
    float everywhere = (float)(loss->smoothing / (double)loss->outputs);
    float at_label = (float)(1 - loss->smoothing);
    for (size_t j = 0; j < loss->outputs; j++) {
        float p = expf(logits[j] - saved->largest) * saved->reciprocal_sum;
        float target = j == label ? at_label + everywhere : everywhere;
        gradient[j] = (p - target) * scale;
    }
}

/* d loss / d x_j = p_j * sum_k q_k - q_j, with the q of weighted_row. */
static void weighted_slopes(const loss_plan *loss, size_t row, float scale, float *gradient) {
    const float *logits = (const float *)loss->binding.inputs[0] + row * loss->outputs;
    const saved_row *saved = (const saved_row *)loss->binding.saved + row;
    size_t label = (size_t)loss->binding.labels[row];
    double share = loss->smoothing / (double)loss->outputs;
    double at_label = (1 - loss->smoothing) * (double)loss->weights[label];
    float all = (float)(at_label + share * loss->weight_sum);
    for (size_t j = 0; j < loss->outputs; j++) {
        float p = expf(logits[j] - saved->largest) * saved->reciprocal_sum;
        double target = share * (double)loss->weights[j] + (j == label ? at_label : 0);
        gradient[j] = (p * all - (float)target) * scale;
    }
}

static yoke_status cross_entropy_backward(yoke_plan *plan, const yoke_plan_step *step) {
    const loss_plan *loss = (const loss_plan *)plan;
    float *gradient = loss->binding.input_gradients[0];
    for (size_t row = 0; row < loss->rows; row++, gradient += loss->outputs) {
        if (is_ignored(loss, row))
            memset(gradient, 0, loss->outputs * sizeof *gradient);
        else if (loss->weights != NULL)
            weighted_slopes(loss, row, step->loss_scale, gradient);
        else
            plain_slopes(loss, row, step->loss_scale, gradient);
    }
    return YOKE_OK;
}

/* Losses of targets: the mean over a row's outputs of a function of each. */
typedef double term_function(const loss_plan *loss, size_t output, double value, double target);
typedef float slope_function(const loss_plan *loss, size_t output, float value, float target);

static inline __attribute__((always_inline)) yoke_status sum_terms(const loss_plan *loss,
                                                                   term_function *term) {
    const float *values = loss->binding.inputs[0], *targets = loss->binding.targets;
    double sum = 0;
    for (size_t row = 0; row < loss->rows; row++) {
        double row_sum = 0;
        for (size_t j = 0; j < loss->outputs; j++)
            row_sum += term(loss, j, (double)values[j], (double)targets[j]);
        sum += row_sum / (double)loss->outputs;
        values += loss->outputs;
        targets += loss->outputs;
    }
    *loss->binding.loss_sum = sum;
    *loss->binding.correct = 0;
    return YOKE_OK;
}

static inline __attribute__((always_inline)) yoke_status
write_slopes(const loss_plan *loss, slope_function *slope, float factor) {
    const float *values = loss->binding.inputs[0], *targets = loss->binding.targets;
    float *gradient = loss->binding.input_gradients[0];
    for (size_t row = 0; row < loss->rows; row++)
        for (size_t j = 0; j < loss->outputs; j++, values++, targets++)
            *gradient++ = slope(loss, j, *values, *targets) * factor;
    return YOKE_OK;
}

static double mse_term(const loss_plan *loss, size_t output, double value, double target) {
    (void)loss, (void)output;
    return (value - target) * (value - target);
}

/* Half of it: the factor has the 2. */
static float mse_slope(const loss_plan *loss, size_t output, float value, float target) {
    (void)loss, (void)output;
    return value - target;
}

static double weight_of(const loss_plan *loss, size_t output) {
    return loss->weights != NULL ? (double)loss->weights[output] : 1;
}

/* (1 - t) x + (1 + (w - 1) t) log(1 + exp(-x)), without overflow. */
static double bce_term(const loss_plan *loss, size_t output, double value, double target) {
    double softplus = log1p(exp(-fabs(value))) + (value < 0 ? -value : 0);
    return (1 - target) * value + (1 + (weight_of(loss, output) - 1) * target) * softplus;
}

/* (1 - t) sigmoid(x) - w t sigmoid(-x). */
static float bce_slope(const loss_plan *loss, size_t output, float value, float target) {
    float small = expf(-fabsf(value)), large = 1 / (1 + small);
    float up = value < 0 ? small * large : large, down = value < 0 ? large : small * large;
    return (1 - target) * up - (float)weight_of(loss, output) * target * down;
}

static double huber_term(const loss_plan *loss, size_t output, double value, double target) {
    (void)output;
    double error = value - target, size = fabs(error);
    return size < loss->delta ? 0.5 * error * error : loss->delta * (size - 0.5 * loss->delta);
}

/* NaN stays NaN. */
static float huber_slope(const loss_plan *loss, size_t output, float value, float target) {
    (void)output;
    float error = value - target, delta = (float)loss->delta;
    return error > delta ? delta : error < -delta ? -delta : error;
}

static yoke_status mse_forward(yoke_plan *plan, const yoke_plan_step *step) {
    (void)step;
    return sum_terms((const loss_plan *)plan, mse_term);
}

static yoke_status bce_forward(yoke_plan *plan, const yoke_plan_step *step) {
    (void)step;
    return sum_terms((const loss_plan *)plan, bce_term);
}

static yoke_status huber_forward(yoke_plan *plan, const yoke_plan_step *step) {
    (void)step;
    return sum_terms((const loss_plan *)plan, huber_term);
}

static yoke_status mse_backward(yoke_plan *plan, const yoke_plan_step *step) {
    const loss_plan *loss = (const loss_plan *)plan;
    return write_slopes(loss, mse_slope, 2 * step->loss_scale / (float)loss->outputs);
}

static yoke_status bce_backward(yoke_plan *plan, const yoke_plan_step *step) {
    const loss_plan *loss = (const loss_plan *)plan;
    return write_slopes(loss, bce_slope, step->loss_scale / (float)loss->outputs);
}

static yoke_status huber_backward(yoke_plan *plan, const yoke_plan_step *step) {
    const loss_plan *loss = (const loss_plan *)plan;
    return write_slopes(loss, huber_slope, step->loss_scale / (float)loss->outputs);
}

static void destroy(yoke_plan *plan) {
    free(((loss_plan *)plan)->weights);
    free(plan);
}

static yoke_status keep_weights(loss_plan *loss, const float *weights) {
    size_t bytes = loss->outputs * sizeof *weights;
    if (weights == NULL) return YOKE_OK;
    loss->weights = malloc(bytes);
    if (loss->weights == NULL) return FAIL_MEMORY(bytes, "the weights of a loss");
    memcpy(loss->weights, weights, bytes);
    for (size_t j = 0; j < loss->outputs; j++)
        loss->weight_sum += (double)weights[j];
    return YOKE_OK;
}

static const yoke_plan_calls *calls_of(yoke_operation_kind kind) {
    static const yoke_plan_calls cross_entropy = {bind, cross_entropy_forward,
                                                  cross_entropy_backward, destroy};
    static const yoke_plan_calls mse = {bind, mse_forward, mse_backward, destroy};
    static const yoke_plan_calls bce = {bind, bce_forward, bce_backward, destroy};
    static const yoke_plan_calls huber = {bind, huber_forward, huber_backward, destroy};
    switch (kind) {
    case YOKE_OP_MSE:
        return &mse;
    case YOKE_OP_BCE:
        return &bce;
    case YOKE_OP_HUBER:
        return &huber;
    default:
        return &cross_entropy;
    }
}

/* On failure the caller destroys what *plan holds. */
yoke_status cpu_plan_loss(yoke_plan **plan, cpu_device *device, const yoke_plan_request *request) {
    const yoke_operation *operation = request->operation;
    TRY(yoke_plan_allocate(plan, sizeof(loss_plan), &device->base, request,
                           calls_of(operation->kind)));
    loss_plan *loss = (loss_plan *)*plan;
    yoke_dims dims = operation->input;
    bool by_position = operation->kind == YOKE_OP_CROSS_ENTROPY && dims.sequence;
    loss->rows = (size_t)request->rows * (size_t)(by_position ? dims.height : 1);
    loss->outputs = (size_t)dims.channels * (size_t)(by_position ? 1 : dims.height * dims.width);
    loss->smoothing = operation->label_smoothing;
    loss->delta = operation->delta;
    loss->ignores = operation->ignores;
    loss->ignored = operation->ignored;
    loss->base.needs.backward_reads_input = request->training;
    if (request->training && operation->kind == YOKE_OP_CROSS_ENTROPY)
        loss->base.needs.saved_bytes = loss->rows * sizeof(saved_row);
    return keep_weights(loss, operation->weights);
}
