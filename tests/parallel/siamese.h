/* SPDX-License-Identifier: Apache-2.0 */
/* The model that fixtures/make_several_fixture.py trained, its batches and its loss: two images go
 * through one tower with the same weights; a class of the pair, and three numbers beside it. */
#ifndef TESTS_SIAMESE_H
#define TESTS_SIAMESE_H

#include "base/chunk.h"
#include "parallel/pytorch_rig.h"
#include "support/engine_check.h"

enum { PAIR_CLASSES = 4, PAIR_SIDE = 3, PAIR_ROW = 2 * 6 * 6, PAIR_HIDDEN = 8 };

typedef struct siamese_options {
    double dropout;
    bool norm;
    bool regression; /* of the head's four values; false: classes */
} siamese_options;

static inline yoke_value siamese_tower(yoke_model *model, yoke_value value, bool again) {
    yoke_conv2d_options convolution = {.struct_size = sizeof convolution,
                                       .name = again ? "conv_again" : "conv",
                                       .out_channels = 6,
                                       .kernel = 3,
                                       .padding = 1,
                                       .shared_with = again ? "conv" : NULL};
    value = yoke_relu(model, yoke_conv2d(model, value, &convolution));
    value = yoke_flatten(model, yoke_global_average_pool(model, value));
    return linear(model, value, again ? "fc_again" : "fc", PAIR_HIDDEN, again ? "fc" : NULL);
}

static inline yoke_model *siamese_model(siamese_options options) {
    const yoke_shape image = {2, 6, 6, false};
    yoke_model *model = NULL;
    must(yoke_model_create(&model, "siamese", image));
    yoke_value right = yoke_model_add_input(model, "right", image);
    yoke_value left = yoke_model_input(model);
    if (options.norm) right = norm(model, right, "bn");
    left = siamese_tower(model, left, false);
    yoke_value pair = yoke_relu(model, yoke_add(model, left, siamese_tower(model, right, true)));
    if (options.dropout > 0) pair = yoke_dropout(model, pair, options.dropout);
    yoke_value head = linear(model, pair, "head", PAIR_CLASSES, NULL);
    yoke_model_add_output(model, "side", linear(model, pair, "side", PAIR_SIDE, NULL));
    yoke_loss_options loss = {.struct_size = sizeof loss,
                              .kind = options.regression ? YOKE_LOSS_MSE : YOKE_LOSS_CROSS_ENTROPY};
    must(yoke_model_finish(model, head, &loss));
    return model;
}

/* Rows of the fixture's formula; `batch` points into the struct. */
typedef struct pair_batch {
    yoke_batch batch;
    float left[MAX_ROWS * PAIR_ROW], right[MAX_ROWS * PAIR_ROW], targets[MAX_ROWS * PAIR_SIDE];
    int32_t labels[MAX_ROWS];
    const float *more[1];
} pair_batch;

static inline void pair_batch_make(pair_batch *made, int rows, uint32_t stream) {
    fill(made->left, (size_t)rows * PAIR_ROW, INPUT_STREAM + stream, 1, 0);
    fill(made->right, (size_t)rows * PAIR_ROW, INPUT_STREAM + 100 + stream, 1, 0);
    fill(made->targets, (size_t)rows * PAIR_SIDE, TARGET_STREAM + stream, 1, 0);
    for (int row = 0; row < rows; row++)
        made->labels[row] = (7 * row + (int)stream) % PAIR_CLASSES;
    made->more[0] = made->right;
    made->batch = (yoke_batch){.struct_size = sizeof made->batch,
                               .rows = rows,
                               .inputs = made->left,
                               .labels = made->labels,
                               .more_inputs = made->more,
                               .more_input_count = 1};
}

/* The rank's rows; the batch says where they lie in the whole. */
static inline void pair_batch_cut(pair_batch *whole, int world, int rank) {
    yoke_chunk part = yoke_chunk_of(whole->batch.rows, world, rank);
    whole->batch.whole_rows = whole->batch.rows;
    whole->batch.rows = part.rows;
    whole->batch.first_row = part.first;
    whole->batch.inputs += (size_t)part.first * PAIR_ROW;
    whole->batch.labels += part.first;
    whole->more[0] += (size_t)part.first * PAIR_ROW;
}

/* Of steps, by turns: 5 rows on 4 devices are 2, 2, 1 and none. */
static inline int pair_rows(int step) {
    return step % 2 == 0 ? MAX_ROWS : MAX_ROWS - 3;
}

static inline yoke_data_parallel_options pair_options(yoke_schedule schedule) {
    return (yoke_data_parallel_options){.struct_size = sizeof(yoke_data_parallel_options),
                                        .schedule = schedule,
                                        .algorithm = YOKE_ALGORITHM_DIRECT,
                                        .batch = MAX_ROWS,
                                        .seed = 3,
                                        .first_bucket_bytes = 256,
                                        .bucket_bytes = 512};
}

typedef struct pair_outputs {
    float head[MAX_ROWS * PAIR_CLASSES], side[MAX_ROWS * PAIR_SIDE];
} pair_outputs;

/* cross_entropy(head, labels) + 0.5 * mse(side, targets), and its gradients. */
static inline double pair_loss(const pair_batch *batch, const pair_outputs *outputs,
                               pair_outputs *gradients) {
    int rows = batch->batch.rows;
    double loss = 0;
    for (int row = 0; row < rows; row++) {
        const float *x = outputs->head + row * PAIR_CLASSES;
        double sum = 0;
        for (int j = 0; j < PAIR_CLASSES; j++)
            sum += exp((double)x[j]);
        for (int j = 0; j < PAIR_CLASSES; j++) {
            bool wanted = j == batch->labels[row];
            gradients->head[row * PAIR_CLASSES + j] =
                (float)((exp((double)x[j]) / sum - wanted) / rows);
            if (wanted) loss -= ((double)x[j] - log(sum)) / rows;
        }
    }
    for (int i = 0; i < rows * PAIR_SIDE; i++) {
        double error = (double)outputs->side[i] - (double)batch->targets[i];
        loss += 0.5 * error * error / (rows * PAIR_SIDE);
        gradients->side[i] = (float)(error / (rows * PAIR_SIDE));
    }
    return loss;
}

/* Forward, the loss above and backward of the outputs that the bits name; the gradient is on the
 * root then. */
static inline double pair_backward(yoke_data_parallel *parallel, const pair_batch *batch,
                                   unsigned named) {
    pair_outputs outputs, gradients;
    must(yoke_data_parallel_forward_outputs(parallel, &batch->batch, true,
                                            (float *const[]){outputs.head, outputs.side}));
    double loss = pair_loss(batch, &outputs, &gradients);
    must(yoke_data_parallel_backward_outputs(
        parallel, (const float *const[]){named & 1 ? gradients.head : NULL,
                                         named & 2 ? gradients.side : NULL}));
    return loss;
}

static inline double pair_gradient(yoke_data_parallel *parallel, const pair_batch *batch) {
    return pair_backward(parallel, batch, 3);
}

#endif
