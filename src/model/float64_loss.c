/* SPDX-License-Identifier: Apache-2.0 */
/* The float64 reference of the losses. */
#include <math.h>
#include <string.h>

#include "model/float64.h"

/* The weight of output j. */
static double weight_of(const yoke_float64_model *r, int j) {
    return r->model->loss_weights != NULL ? (double)r->model->loss_weights[j] : 1;
}

static void cross_entropy_row(yoke_float64_model *r, int row, const double *x, double *gradient) {
    int classes = yoke_model_output_shape(r->model).channels, best = 0, label = r->labels[row];
    int second = r->mixes != NULL ? r->mixes[row].label : label;
    double share = r->mixes != NULL ? (double)r->mixes[row].share : 1;
    double smoothing = r->model->loss.label_smoothing, sum = 0, targets = 0;
    if (yoke_model_ignores(r->model, label)) return;
    for (int j = 0; j < classes; j++)
        if (x[j] > x[best]) best = j;
    for (int j = 0; j < classes; j++)
        sum += exp(x[j] - x[best]);
    for (int j = 0; j < classes; j++) {
        double log_p = x[j] - x[best] - log(sum);
        double hard = (j == label ? share : 0) + (j == second ? 1 - share : 0);
        double target = weight_of(r, j) * (hard * (1 - smoothing) + smoothing / classes);
        r->loss_sum -= target * log_p;
        gradient[j] = -target * r->loss_scale;
        targets += target;
    }
    for (int j = 0; j < classes; j++)
        gradient[j] += targets * exp(x[j] - x[best] - log(sum)) * r->loss_scale;
    r->correct += best == (share >= 0.5 ? label : second);
}

/* One output and its target: the loss and its slope. */
static double target_loss(const yoke_float64_model *r, int j, double x, double target,
                          double *slope) {
    double error = x - target, delta = r->model->loss.huber_delta, weight = weight_of(r, j);
    switch (r->model->loss.kind) {
    case YOKE_LOSS_BCE: /* -w t log(sigmoid(x)) - (1 - t) log(sigmoid(-x)) */
        *slope = (1 - target) / (1 + exp(-x)) - weight * target / (1 + exp(x));
        return weight * target * (log1p(exp(-fabs(x))) + fmax(-x, 0)) +
               (1 - target) * (log1p(exp(-fabs(x))) + fmax(x, 0));
    case YOKE_LOSS_HUBER:
        *slope = fabs(error) < delta ? error : copysign(delta, error);
        return fabs(error) < delta ? error * error / 2 : delta * (fabs(error) - delta / 2);
    case YOKE_LOSS_OUTPUT:
        *slope = 1;
        return x;
    default:
        *slope = 2 * error;
        return error * error;
    }
}

static void targets_row(yoke_float64_model *r, const double *x, const float *targets,
                        double *gradient) {
    int outputs = (int)yoke_model_output_elements(r->model, 0);
    for (int j = 0; j < outputs; j++) {
        double slope = 0;
        r->loss_sum +=
            target_loss(r, j, x[j], targets != NULL ? (double)targets[j] : 0, &slope) / outputs;
        gradient[j] = slope / outputs * r->loss_scale;
    }
}

void yoke_float64_loss(yoke_float64_model *r) {
    bool entropy = yoke_model_reads_labels(r->model);
    int positions = (int)yoke_model_positions(r->model);
    int channels = (int)yoke_model_output_elements(r->model, 0) / positions;
    int value = r->model->outputs[0].value;
    const double *outputs = r->values[value];
    double *gradients = r->gradients[value];
    for (int i = 0; i <= r->model->layer_count; i++)
        memset(r->gradients[i], 0, (size_t)r->rows * yoke_float64_row(r, i) * sizeof(double));
    r->loss_sum = 0;
    r->correct = 0;
    for (int row = 0; row < r->rows * positions; row++) {
        size_t at = (size_t)row * (size_t)channels;
        if (entropy)
            cross_entropy_row(r, row, outputs + at, gradients + at);
        else
            targets_row(r, outputs + at, r->targets != NULL ? r->targets + at : NULL,
                        gradients + at);
    }
}
