/* The float64 reference of the losses. */
#include <math.h>
#include <string.h>

#include "model/float64.h"

static void cross_entropy_row(yoke_float64_model *r, int row, const double *x, double *gradient) {
    int classes = yoke_model_output_shape(r->model).channels, best = 0, label = r->labels[row];
    double smoothing = r->model->loss.label_smoothing, sum = 0;
    for (int j = 0; j < classes; j++)
        if (x[j] > x[best]) best = j;
    for (int j = 0; j < classes; j++)
        sum += exp(x[j] - x[best]);
    for (int j = 0; j < classes; j++) {
        double log_p = x[j] - x[best] - log(sum);
        double target = (j == label ? 1 - smoothing : 0) + smoothing / classes;
        r->loss_sum -= target * log_p;
        gradient[j] = (exp(log_p) - target) * r->loss_scale;
    }
    r->correct += best == label;
}

void yoke_float64_loss(yoke_float64_model *r) {
    int channels = yoke_model_output_shape(r->model).channels;
    int value = r->model->outputs[0].value;
    const double *outputs = r->values[value];
    double *gradients = r->gradients[value];
    for (int i = 0; i <= r->model->layer_count; i++)
        memset(r->gradients[i], 0, (size_t)r->rows * yoke_float64_row(r, i) * sizeof(double));
    r->loss_sum = 0;
    r->correct = 0;
    for (int row = 0; row < r->rows; row++) {
        size_t at = (size_t)row * (size_t)channels;
        if (r->model->loss.kind == YOKE_LOSS_CROSS_ENTROPY)
            cross_entropy_row(r, row, outputs + at, gradients + at);
        for (int j = 0; r->model->loss.kind == YOKE_LOSS_MSE && j < channels; j++) {
            double error = outputs[at + (size_t)j] - (double)r->targets[at + (size_t)j];
            r->loss_sum += error * error / channels;
            gradients[at + (size_t)j] = 2 * error / channels * r->loss_scale;
        }
    }
}
