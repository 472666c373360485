/* SPDX-License-Identifier: Apache-2.0 */
/* Losses over plain float32 rows: torch.nn.CrossEntropyLoss with label smoothing, class weights,
 * ignore_index and mixed labels, MSELoss, BCEWithLogitsLoss with pos_weight, and HuberLoss. All sum
 * over rows in double, in order. Backward multiplies the gradient by the step's loss_scale. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "device/cpu/clones.h"
#include "device/cpu/cpu.h"
#include "device/cpu/functions.h"
#include "device/cpu/loss.h"

/* What backward needs of one row's softmax: p_j = exp(x_j - largest) / sum. */
typedef struct saved_row {
    float largest, reciprocal_sum;
} saved_row;

typedef struct loss_plan {
    yoke_plan base;
    size_t rows, outputs; /* rows: with labels all positions; outputs of one: classes or targets */
    double smoothing;
    float *weights; /* [outputs], or NULL */
    double weight_sum;
} loss_plan;

enum { LANES = 16 };

/* A first NaN stays the largest; others are none. */
CPU_CLONES static size_t first_largest(const float *logits, size_t classes) {
    float lanes[LANES], largest = logits[0];
    size_t whole = classes / LANES * LANES, best = 0;
    for (size_t l = 0; l < LANES; l++)
        lanes[l] = largest;
    for (size_t j = 0; j < whole; j += LANES)
#pragma omp simd
        for (size_t l = 0; l < LANES; l++)
            lanes[l] = logits[j + l] > lanes[l] ? logits[j + l] : lanes[l];
    for (size_t l = 0; l < LANES; l++)
        largest = lanes[l] > largest ? lanes[l] : largest;
    for (size_t j = whole; j < classes; j++)
        largest = logits[j] > largest ? logits[j] : largest;
    while (best < classes && logits[best] != largest)
        best++;
    return best < classes ? best : 0;
}

/* The sum over a row of exp(x - largest): LANES partial sums, so that their order does not depend
 * on the processor's vectors. */
CPU_CLONES static double sum_exponentials(const float *logits, size_t classes, float largest) {
    double sums[LANES] = {0}, sum = 0;
    size_t whole = classes / LANES * LANES;
    for (size_t j = 0; j < whole; j += LANES)
#pragma omp simd
        for (size_t l = 0; l < LANES; l++)
            sums[l] += (double)cpu_exp_below_zero(logits[j + l] - largest);
    for (size_t j = whole; j < classes; j++)
        sums[j - whole] += (double)cpu_exp_below_zero(logits[j] - largest);
    for (size_t l = 0; l < LANES; l++)
        sum += sums[l];
    return sum;
}

static double weight_of(const loss_plan *loss, size_t output) {
    return loss->weights != NULL ? (double)loss->weights[output] : 1;
}

/* The labels of a row; the second has no share unless the step is mixed. */
typedef struct row_labels {
    size_t own, second;
    float share, rest;
} row_labels;

static row_labels labels_of(const loss_plan *loss, const yoke_plan_step *step, size_t row) {
    size_t own = (size_t)loss->base.binding.labels[row];
    if (!step->mixed) return (row_labels){own, own, 1, 0};
    const yoke_label_mix *mix = &loss->base.binding.mixes[row];
    return (row_labels){own, (size_t)mix->label, mix->share, 1 - mix->share};
}

/* w_label * -log p_label, with -log p_j = log_sum - (x_j - largest): of both labels, by their
 * shares. A label without a share is no loss, even where its logit is -infinity. */
static double label_loss_of(const loss_plan *loss, const float *logits, const row_labels *labels,
                            double log_sum, float largest) {
    double own = weight_of(loss, labels->own) * (log_sum - (double)(logits[labels->own] - largest));
    if (labels->rest == 0) return own;
    double second =
        weight_of(loss, labels->second) * (log_sum - (double)(logits[labels->second] - largest));
    if (labels->share == 0) return second;
    return (double)labels->share * own + (double)labels->rest * second;
}

/* (1 - s) * the labels' loss + s / classes * sum_j -log p_j. */
static double cross_entropy_row(const loss_plan *loss, const float *logits, float largest,
                                const row_labels *labels, saved_row *saved) {
    double sum = sum_exponentials(logits, loss->outputs, largest), distance = 0;
    for (size_t j = 0; loss->smoothing > 0 && j < loss->outputs; j++)
        distance -= (double)(logits[j] - largest);
    double log_sum = log(sum);
    double label_loss = label_loss_of(loss, logits, labels, log_sum, largest);
    if (saved != NULL) *saved = (saved_row){.largest = largest, .reciprocal_sum = (float)(1 / sum)};
    if (loss->smoothing == 0) return label_loss; /* a logit of -infinity is then no loss */
    double mean_loss = log_sum + distance / (double)loss->outputs;
    return (1 - loss->smoothing) * label_loss + loss->smoothing * mean_loss;
}

/* As PyTorch weights it: sum_j q_j * -log p_j, with q_j = (1 - s) w_label [j = label] + s / classes
 * * w_j. The caller divides by the sum of w_label over the batch, of mixed rows by their number. */
static double weighted_row(const loss_plan *loss, const float *logits, float largest,
                           const row_labels *labels, saved_row *saved) {
    double sum = sum_exponentials(logits, loss->outputs, largest), distance = 0;
    for (size_t j = 0; loss->smoothing > 0 && j < loss->outputs; j++)
        distance -= (double)loss->weights[j] * (double)(logits[j] - largest);
    double log_sum = log(sum);
    double label_loss = label_loss_of(loss, logits, labels, log_sum, largest);
    if (saved != NULL) *saved = (saved_row){.largest = largest, .reciprocal_sum = (float)(1 / sum)};
    if (loss->smoothing == 0) return label_loss;
    double mean_loss = (loss->weight_sum * log_sum + distance) / (double)loss->outputs;
    return (1 - loss->smoothing) * label_loss + loss->smoothing * mean_loss;
}

static bool is_ignored(const loss_plan *loss, size_t row) {
    const yoke_operation *operation = &loss->base.operation;
    return operation->ignores && loss->base.binding.labels[row] == operation->ignored;
}

/* What a row adds to the scalars. */
typedef struct row_loss {
    double loss;
    bool counts, correct;
} row_loss;

static row_loss loss_of_row(const loss_plan *loss, const yoke_plan_step *step, size_t row,
                            const float *logits) {
    if (is_ignored(loss, row)) return (row_loss){0};
    row_labels labels = labels_of(loss, step, row);
    size_t larger = labels.share >= labels.rest ? labels.own : labels.second;
    saved_row *saved = loss->base.binding.saved;
    saved_row *kept = loss->base.backward != NULL && saved != NULL ? saved + row : NULL;
    size_t best = first_largest(logits, loss->outputs);
    float largest = logits[best];
    return (row_loss){loss->weights != NULL
                          ? weighted_row(loss, logits, largest, &labels, kept)
                          : cross_entropy_row(loss, logits, largest, &labels, kept),
                      true, best == larger};
}

/* Every row has a place of its own for its loss, and one thread adds them up: the bits do not
 * depend on the number of threads. */
static void cross_entropy_of_rows(const loss_plan *loss, const yoke_plan_step *step,
                                  const cpu_loss_rows *rows) {
    row_loss *losses = loss->base.binding.scratch;
    yoke_loss_scalars *sum = loss->base.binding.scalars;
    int threads = loss->base.device->threads;
#pragma omp parallel for num_threads(                                                              \
    threads) if (cpu_is_parallel(threads, rows->count * loss->outputs))
    for (size_t i = 0; i < rows->count; i++)
        losses[i] = loss_of_row(loss, step, rows->first + i, rows->logits + i * loss->outputs);
    if (rows->first == 0) *sum = (yoke_loss_scalars){0};
    for (size_t i = 0; i < rows->count; i++) {
        if (!losses[i].counts) continue;
        sum->loss_sum += losses[i].loss;
        sum->correct += losses[i].correct;
    }
}

static yoke_status cross_entropy_forward(yoke_plan *plan, const yoke_plan_step *step) {
    const loss_plan *loss = (const loss_plan *)plan;
    const cpu_loss_rows rows = {.count = loss->rows, .logits = plan->binding.inputs[0]};
    cross_entropy_of_rows(loss, step, &rows);
    return YOKE_OK;
}

/* p_j, from what forward saved of the row. */
static inline __attribute__((always_inline)) float probability(float logit, saved_row saved) {
    return cpu_exp_below_zero(logit - saved.largest) * saved.reciprocal_sum;
}

/* gradient[j] = (p_j - target) * scale */
CPU_CLONES static void subtract_target(const float *logits, size_t classes, saved_row saved,
                                       float target, float scale, float *gradient) {
#pragma omp simd
    for (size_t j = 0; j < classes; j++)
        gradient[j] = (probability(logits[j], saved) - target) * scale;
}

/* One row; the gradient may lie where the logits do. */
typedef struct row_slopes {
    const float *logits;
    saved_row saved;
    row_labels labels;
    float scale;
    float *gradient;
} row_slopes;

/* d loss / d x_j = p_j - (1 - s) [j = label] - s / classes, the label's part by the shares of
 * both. */
static void plain_slopes(const loss_plan *loss, const row_slopes *row) {
    const row_labels *labels = &row->labels;
    float everywhere = (float)(loss->smoothing / (double)loss->outputs);
    float at_label = (float)(1 - loss->smoothing), at_own = at_label * labels->share;
    float at_second = at_label * labels->rest;
    const size_t targets[] = {labels->own, labels->second};
    const float chosen[] = {probability(row->logits[labels->own], row->saved),
                            probability(row->logits[labels->second], row->saved)};
    subtract_target(row->logits, loss->outputs, row->saved, everywhere, row->scale, row->gradient);
    for (size_t k = 0; k < 2; k++) {
        size_t j = targets[k];
        float target = (j == labels->own ? at_own : 0) + (j == labels->second ? at_second : 0);
        row->gradient[j] = (chosen[k] - (target + everywhere)) * row->scale;
    }
}

/* d loss / d x_j = p_j * sum_k q_k - q_j, with the q of weighted_row. */
static void weighted_slopes(const loss_plan *loss, const row_slopes *row) {
    const row_labels *labels = &row->labels;
    double each = loss->smoothing / (double)loss->outputs, at_label = 1 - loss->smoothing;
    double at_own = at_label * weight_of(loss, labels->own) * (double)labels->share;
    double at_second = at_label * weight_of(loss, labels->second) * (double)labels->rest;
    float all = (float)(at_own + at_second + each * loss->weight_sum);
    for (size_t j = 0; j < loss->outputs; j++) {
        float p = probability(row->logits[j], row->saved);
        double target = (j == labels->own ? at_own : 0) + (j == labels->second ? at_second : 0);
        target += each * (double)loss->weights[j];
        row->gradient[j] = (p * all - (float)target) * row->scale;
    }
}

static void slopes_of_row(const loss_plan *loss, const yoke_plan_step *step, size_t index,
                          const float *logits, float *gradient) {
    if (is_ignored(loss, index)) {
        memset(gradient, 0, loss->outputs * sizeof *gradient);
        return;
    }
    const row_slopes row = {logits, ((const saved_row *)loss->base.binding.saved)[index],
                            labels_of(loss, step, index), step->loss_scale, gradient};
    (loss->weights != NULL ? weighted_slopes : plain_slopes)(loss, &row);
}

static void slopes_of_rows(const loss_plan *loss, const yoke_plan_step *step,
                           const cpu_loss_rows *rows) {
    size_t outputs = loss->outputs;
    int threads = loss->base.device->threads;
#pragma omp parallel for num_threads(threads) if (cpu_is_parallel(threads, rows->count * outputs))
    for (size_t i = 0; i < rows->count; i++)
        slopes_of_row(loss, step, rows->first + i, rows->logits + i * outputs,
                      rows->gradient + i * outputs);
}

static yoke_status cross_entropy_backward(yoke_plan *plan, const yoke_plan_step *step) {
    const loss_plan *loss = (const loss_plan *)plan;
    const cpu_loss_rows rows = {.count = loss->rows,
                                .logits = plan->binding.inputs[0],
                                .gradient = plan->binding.input_gradients[0]};
    slopes_of_rows(loss, step, &rows);
    return YOKE_OK;
}

void cpu_cross_entropy_of_rows(yoke_plan *plan, const yoke_plan_step *step,
                               const cpu_loss_rows *rows) {
    const loss_plan *loss = (const loss_plan *)plan;
    cross_entropy_of_rows(loss, step, rows);
    if (rows->gradient != NULL) slopes_of_rows(loss, step, rows);
}

/* Losses of targets: the mean over a row's outputs of a function of each. */
typedef double term_function(const loss_plan *loss, size_t output, double value, double target);
typedef float slope_function(const loss_plan *loss, size_t output, float value, float target);

/* A model whose output is the loss has none: its functions ignore what they get. */
static const float *targets_of(const loss_plan *loss) {
    const yoke_plan_binding *at = &loss->base.binding;
    return at->targets != NULL ? at->targets : at->inputs[0];
}

static inline __attribute__((always_inline)) yoke_status sum_terms(const loss_plan *loss,
                                                                   term_function *term) {
    const float *values = loss->base.binding.inputs[0], *targets = targets_of(loss);
    double sum = 0;
    for (size_t row = 0; row < loss->rows; row++) {
        double row_sum = 0;
        for (size_t j = 0; j < loss->outputs; j++)
            row_sum += term(loss, j, (double)values[j], (double)targets[j]);
        sum += row_sum / (double)loss->outputs;
        values += loss->outputs;
        targets += loss->outputs;
    }
    *loss->base.binding.scalars = (yoke_loss_scalars){.loss_sum = sum};
    return YOKE_OK;
}

static inline __attribute__((always_inline)) yoke_status
write_slopes(const loss_plan *loss, slope_function *slope, float factor) {
    const float *values = loss->base.binding.inputs[0], *targets = targets_of(loss);
    float *gradient = loss->base.binding.input_gradients[0];
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
    double error = value - target, size = fabs(error), delta = loss->base.operation.delta;
    return size < delta ? 0.5 * error * error : delta * (size - 0.5 * delta);
}

/* NaN stays NaN. */
static float huber_slope(const loss_plan *loss, size_t output, float value, float target) {
    (void)output;
    float error = value - target, delta = (float)loss->base.operation.delta;
    return error > delta ? delta : error < -delta ? -delta : error;
}

static double output_term(const loss_plan *loss, size_t output, double value, double target) {
    (void)loss, (void)output, (void)target;
    return value;
}

static float output_slope(const loss_plan *loss, size_t output, float value, float target) {
    (void)loss, (void)output, (void)value, (void)target;
    return 1;
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

static yoke_status output_forward(yoke_plan *plan, const yoke_plan_step *step) {
    (void)step;
    return sum_terms((const loss_plan *)plan, output_term);
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

static yoke_status output_backward(yoke_plan *plan, const yoke_plan_step *step) {
    const loss_plan *loss = (const loss_plan *)plan;
    return write_slopes(loss, output_slope, step->loss_scale / (float)loss->outputs);
}

static void loss_destroy(yoke_plan *plan) {
    yoke_free(((loss_plan *)plan)->weights);
    yoke_free(plan);
}

/* On failure the caller destroys what *plan holds. */
yoke_status cpu_plan_loss(yoke_plan **plan, cpu_device *device, const yoke_plan_request *request) {
    const yoke_operation *operation = request->operation;
    enum { FLAGS = YOKE_READS_INPUT | YOKE_HAS_PARAMETERS };
    static const yoke_plan_calls calls[] = {
        [YOKE_OP_CROSS_ENTROPY] = {NULL, cross_entropy_forward, cross_entropy_backward,
                                   loss_destroy, FLAGS},
        [YOKE_OP_MSE] = {NULL, mse_forward, mse_backward, loss_destroy, FLAGS},
        [YOKE_OP_BCE] = {NULL, bce_forward, bce_backward, loss_destroy, FLAGS},
        [YOKE_OP_HUBER] = {NULL, huber_forward, huber_backward, loss_destroy, FLAGS},
        [YOKE_OP_OUTPUT_LOSS] = {NULL, output_forward, output_backward, loss_destroy, FLAGS}};
    TRY(yoke_plan_allocate(plan, sizeof(loss_plan), &device->base, request,
                           &calls[operation->kind]));
    loss_plan *loss = (loss_plan *)*plan;
    yoke_dims dims = operation->input;
    bool by_position = operation->kind == YOKE_OP_CROSS_ENTROPY && dims.sequence;
    loss->rows = (size_t)request->rows * (size_t)(by_position ? dims.height : 1);
    loss->outputs = (size_t)dims.channels * (size_t)(by_position ? 1 : dims.height * dims.width);
    loss->smoothing = operation->label_smoothing;
    bool entropy = operation->kind == YOKE_OP_CROSS_ENTROPY;
    if (entropy) loss->base.needs.scratch_bytes = loss->rows * sizeof(row_loss);
    if (entropy && request->training) loss->base.needs.saved_bytes = loss->rows * sizeof(saved_row);
    if (operation->weights == NULL) return YOKE_OK;
    size_t bytes = loss->outputs * sizeof *operation->weights;
    loss->weights = yoke_malloc(bytes);
    if (loss->weights == NULL) return FAIL_MEMORY(bytes, "the weights of a loss");
    memcpy(loss->weights, operation->weights, bytes);
    for (size_t j = 0; j < loss->outputs; j++)
        loss->weight_sum += (double)operation->weights[j];
    return YOKE_OK;
}
