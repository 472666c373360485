/* SPDX-License-Identifier: Apache-2.0 */
/* The launchers of this room's kernels: C functions with the stream last that return the launch
 * error. Sizes are in elements. `type`: of the values; arithmetic is
 * always float32. */
#ifndef DEVICE_CUDA_KERNELS_H
#define DEVICE_CUDA_KERNELS_H

#include <cuda_runtime_api.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "device/cuda/cuda_type.h"
#include "device/device.h"
#include "yoke/decoding.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The values that change from step to step, in device memory, so that a recorded step can read
 * them. */
typedef struct cuda_step {
    uint64_t seed, step, first_row;
    float loss_scale, unscale;
    bool mixed;                                    /* rows have second labels */
    bool settled;                                  /* yoke_plan_step's, as are the scalars */
    yoke_float_scalars scalars[YOKE_UPDATE_SLOTS]; /* of updates */
} cuda_step;
/* Of the scalars, the first `count`. */
cudaError_t cuda_set_step(cuda_step *step, const cuda_step *values, int count, cudaStream_t stream);
/* Fails where this build has neither code nor PTX for the current GPU. */
cudaError_t cuda_find_code(void);
const char *cuda_architectures(void); /* those this build has code for: "750,900" */

/* Flat arithmetic (arithmetic.cu). Ranges may begin anywhere; if all are aligned to 16 bytes the
 * kernels use packs. `to` may be any of `from`. */
#define CUDA_SOURCES 64
typedef struct cuda_sum_job {
    float *to;
    const float *from[CUDA_SOURCES];
    int count;
    size_t elements;
} cuda_sum_job;
cudaError_t cuda_run_sum(const cuda_sum_job *job, cudaStream_t stream);
/* sum: [yoke_square_sum_doubles(elements)]. */
cudaError_t cuda_run_square_sum(const float *values, size_t elements, double *sum,
                                cudaStream_t stream);
/* Lowers *first_bad to offset + i of the first value that is not finite. */
cudaError_t cuda_run_check_finite(const float *values, size_t elements, size_t offset,
                                  uint64_t *first_bad, cudaStream_t stream);
/* step: NULL outside of recordings. */
cudaError_t cuda_run_gate(struct yoke_gate *gate, const struct yoke_gate_request *request,
                          const cuda_step *step, cudaStream_t stream);
/* values = kept where the gate is closed. */
cudaError_t cuda_run_undo(const struct yoke_gate *gate, float *values, const float *kept,
                          size_t elements, cudaStream_t stream);
/* An update writes what it overwrites to `kept` ranges, also behind a closed gate. NULL: nothing is
 * kept. kept_weights may be the gradients. `shadow` gets the new weights in its type; NULL: nothing
 * does. */
typedef struct cuda_update_job {
    yoke_update_rule rule;
    yoke_float_scalars scalars;
    const yoke_float_scalars *in_memory; /* of the device, in place of those; NULL: those count */
    float gradient_scale;
    const struct yoke_gate *gate; /* device memory; NULL: open */
    bool applies;                 /* the gate's scale is no factor */
    const float *weights, *gradients;
    float *to;                         /* the weights, or a direction */
    float *states[YOKE_UPDATE_STATES]; /* as many as the rule has */
    float *kept_weights, *kept_states[YOKE_UPDATE_STATES];
    void *shadow;
    cuda_type shadow_type;
    size_t elements;
} cuda_update_job;
cudaError_t cuda_run_update(const cuda_update_job *job, cudaStream_t stream);
cudaError_t cuda_run_rescale(float *values, size_t elements, const double *numerator,
                             const double *denominator, double epsilon, cudaStream_t stream);
cudaError_t cuda_run_accumulate(void *to, const void *from, cuda_type type, size_t elements,
                                cudaStream_t stream);

/* Images (decode.cu). */
/* channels: of a pixel in bfloat16, channels last, those that an image lacks being zero; 0: float32
 * in a plane for each channel. */
cudaError_t cuda_run_decode(const struct yoke_decode_request *request, int channels,
                            cudaStream_t stream);

/* [outer, rows, columns] -> the same order in another type (arithmetic.cu), or [outer, columns,
 * rows] (reorder.cu). */
typedef struct cuda_reorder_job {
    void *to;
    const void *from;
    cuda_type to_type, from_type;
    size_t outer, rows, columns;
} cuda_reorder_job;
cudaError_t cuda_run_convert(const cuda_reorder_job *job, cudaStream_t stream);
cudaError_t cuda_run_transpose(const cuda_reorder_job *job, cudaStream_t stream);

/* Convolution and linear. */

/* values [rows, columns], `stride` elements from row to row. */
typedef struct cuda_columns {
    size_t rows, columns, stride;
} cuda_columns;
/* Adds bias[column] to every row. */
cudaError_t cuda_run_add_bias(void *values, cuda_type type, const float *bias, cuda_columns shape,
                              cudaStream_t stream);
/* sums[column]; the order of the rows depends only on the shape. partial: [CUDA_COLUMN_PARTS,
 * columns]. */
#define CUDA_COLUMN_PARTS 64
typedef struct cuda_column_sums {
    const void *values;
    cuda_type type;
    cuda_columns shape;
    float *sums, *partial;
} cuda_column_sums;
cudaError_t cuda_run_column_sums(const cuda_column_sums *job, cudaStream_t stream);
/* to[i] = from[i]: values of a type become float32. */
cudaError_t cuda_run_widen(float *to, const void *from, cuda_type type, size_t count,
                           cudaStream_t stream);
/* Values for measuring, in [-0.5, 0.5): with zeros a GPU draws less power and runs faster than with
 * data. */
cudaError_t cuda_run_probe(void *values, cuda_type type, size_t count, cudaStream_t stream);

/* Channels that are few: `padded` of them, 4 or 8, the last ones zero. Pixels: plain [outer,
 * channels, pixels] in float32 becomes [outer, pixels, padded] in either type. Weights: [outer,
 * channels] becomes [outer, padded]. Cut is the other way round, of weights in float32. */
typedef struct cuda_pad_job {
    void *to;
    const void *from;
    cuda_type type;
    size_t outer, pixels;
    int channels, padded;
} cuda_pad_job;
cudaError_t cuda_run_pad_pixels(const cuda_pad_job *job, cudaStream_t stream);
cudaError_t cuda_run_cut_pixels(const cuda_pad_job *job, cudaStream_t stream);
cudaError_t cuda_run_pad_weights(const cuda_pad_job *job, cudaStream_t stream);
cudaError_t cuda_run_cut_weights(const cuda_pad_job *job, cudaStream_t stream);

/* The windows of a convolution over images [rows, height, width, groups * channels]: columns
 * [groups, rows * out_height * out_width, kernel, kernel, channels], zero where a tap meets
 * padding. */
typedef struct cuda_window {
    int rows, height, width, channels, groups; /* channels: of one group */
    yoke_taps down, across;
    int out_height, out_width;
} cuda_window;
cudaError_t cuda_run_im2col(void *columns, const void *images, cuda_type type,
                            const cuda_window *window, cudaStream_t stream);
/* images = the sum of all columns' entries for a pixel, taps in order; `add`: images += it. */
typedef struct cuda_images {
    void *at;
    cuda_type type;
    bool add;
} cuda_images;
cudaError_t cuda_run_col2im(const cuda_images *images, const void *columns,
                            const cuda_window *window, cudaStream_t stream);

/* Operations. Values are channels last and aligned to 16 bytes. */

/* Counters of a device for kernels whose last block combines; 0 between kernels. */
enum { CUDA_ARRIVALS = 16384 };

/* Batch norm sums up to so many pixels in one launch, more in two. */
enum { CUDA_NORM_WHOLE_FORWARD = 2048, CUDA_NORM_WHOLE_BACKWARD = 1024 };
/* How many blocks the GPU runs at once of a pass's two kernels: of the one that sums and the one
 * that writes values. Its launches have no more. The first number decides the order of the sums. */
typedef struct cuda_batch_norm_resident {
    unsigned sums, values;
} cuda_batch_norm_resident;

/* What a batch norm saves in training: rows of [channels] floats, and the mask of a sum behind
 * them. The rows from the third on serve plans beside it that compute parts of it: a convolution
 * before it writes the sums of the input and of its squares; a plan that applies it reads mean,
 * reciprocal, weight and bias, or, in the compute type, what to multiply by and to add, and writes
 * the gradients of bias and weight, and three rows that nobody reads. */
enum {
    CUDA_NORM_MEAN,
    CUDA_NORM_RECIPROCAL,
    CUDA_NORM_SUMS,
    CUDA_NORM_SQUARES,
    CUDA_NORM_WEIGHT,
    CUDA_NORM_BIAS,
    CUDA_NORM_SCALE,
    CUDA_NORM_SHIFT,
    CUDA_NORM_BIAS_GRADIENT,
    CUDA_NORM_WEIGHT_GRADIENT,
    CUDA_NORM_UNREAD,
    CUDA_NORM_ROWS = CUDA_NORM_UNREAD + 3
};
#define CUDA_NORM_ROW(saved, row, channels) ((float *)(saved) + (size_t)(row) * (size_t)(channels))

/* Values [pixels, channels]. With `added` the output is ReLU(norm + added), whose mask backward
 * reads. */
typedef struct cuda_batch_norm_job {
    size_t pixels; /* of all rows */
    int channels;
    cuda_type type;
    bool relu;
    bool fixed;                        /* training with the running statistics, which stay */
    cuda_batch_norm_resident resident; /* of this pass */
    bool summed;        /* a convolution has written the input's sums to `mean`'s rows */
    bool applied;       /* another plan applies the norm: there is no output */
    unsigned *arrivals; /* [CUDA_ARRIVALS] */
    float epsilon;
    double momentum;
    const void *input, *added, *output_gradient;
    void *output, *input_gradient, *added_gradient; /* a NULL gradient is not computed */
    const float *weight, *bias;
    float *weight_gradient, *bias_gradient;
    float *mean, *reciprocal; /* [channels], from forward to backward; 1 / std: rows of CUDA_NORM */
    unsigned char *mask;      /* [cuda_batch_norm_mask_bytes], likewise; NULL: nobody reads it */
    float *second; /* rows of CUDA_NORM: `added` is the input of another norm, which this one
                      applies to it before it adds; NULL: it is what to add */
    float *running_mean, *running_variance;
    float *partial; /* [cuda_batch_norm_partial_bytes], scratch of one pass */
} cuda_batch_norm_job;
size_t cuda_batch_norm_partial_bytes(const cuda_batch_norm_job *job);
size_t cuda_batch_norm_mask_bytes(const cuda_batch_norm_job *job); /* if something is added */
/* Whether both passes take two launches. Others are never `applied` unless `summed`, and have no
 * `second`. */
bool cuda_batch_norm_is_large(const cuda_batch_norm_job *job);
/* Sets job->resident, on the current GPU with so many multiprocessors: of forward and evaluation,
 * and of backward. Whether something is added must be known. */
cudaError_t cuda_fit_batch_norm(cuda_batch_norm_job *job, int processors);
cudaError_t cuda_fit_batch_norm_backward(cuda_batch_norm_job *job, int processors);
cudaError_t cuda_run_batch_norm(const cuda_batch_norm_job *job, cudaStream_t stream);
cudaError_t cuda_run_batch_norm_evaluation(const cuda_batch_norm_job *job, cudaStream_t stream);
cudaError_t cuda_run_batch_norm_backward(const cuda_batch_norm_job *job, cudaStream_t stream);

/* Values [positions, features]. */
typedef struct cuda_layer_norm_moments {
    float mean, reciprocal; /* 1 / sqrt(variance + epsilon) */
} cuda_layer_norm_moments;
typedef struct cuda_layer_norm_job {
    size_t positions;
    int features, processors;
    cuda_type type;
    float epsilon;
    const void *input, *output_gradient;
    const void *summands[2]; /* forward writes `input` as their sum; it may be the first one */
    void *sum;               /* input; NULL: it is there */
    void *output, *input_gradient; /* a NULL gradient is not computed */
    bool adds;                     /* to what input_gradient holds; it is then no output_gradient */
    const float *weight, *bias;
    float *weight_gradient, *bias_gradient;
    cuda_layer_norm_moments *saved; /* [positions], from forward to backward; NULL: inference */
    float *partial;                 /* [cuda_layer_norm_partial_bytes], scratch of backward */
} cuda_layer_norm_job;
size_t cuda_layer_norm_partial_bytes(const cuda_layer_norm_job *job);
cudaError_t cuda_run_layer_norm(const cuda_layer_norm_job *job, cudaStream_t stream);
cudaError_t cuda_run_layer_norm_backward(const cuda_layer_norm_job *job, cudaStream_t stream);

/* `to` may be `from`. */
typedef struct cuda_activation_job {
    void *to;
    const void *from, *kept; /* kept: backward: the output or the input */
    int activation;          /* a yoke_activation */
    cuda_type type;
    size_t elements;
} cuda_activation_job;
/* Whether its backward reads the output; otherwise the input. */
bool cuda_activation_reads_output(int activation);
cudaError_t cuda_run_activation(const cuda_activation_job *job, cudaStream_t stream);
cudaError_t cuda_run_activation_backward(const cuda_activation_job *job, cudaStream_t stream);

/* `to` may be `from` or `second`. */
typedef struct cuda_elementwise_job {
    void *to;
    const void *from, *second;
    cuda_type type;
    bool relu; /* relu: after an addition */
    size_t elements;
} cuda_elementwise_job;
cudaError_t cuda_run_add(const cuda_elementwise_job *job, cudaStream_t stream);
cudaError_t cuda_run_multiply(const cuda_elementwise_job *job, cudaStream_t stream);

/* Values [rows, pixels, channels], factors [rows, channels]. Forward and the image's gradient: to =
 * from times the factors, where `to` may be `from`. The factors' gradient: factors_gradient = the
 * sum over the pixels of from times image. */
typedef struct cuda_channel_scale_job {
    size_t rows, pixels, channels;
    cuda_type type;
    void *to;
    const void *from, *factors, *image;
    void *factors_gradient;
} cuda_channel_scale_job;
cudaError_t cuda_run_channel_scale(const cuda_channel_scale_job *job, cudaStream_t stream);
cudaError_t cuda_run_channel_scale_sums(const cuda_channel_scale_job *job, cudaStream_t stream);

/* Values [positions, features]; `to` may be `from`. */
typedef struct cuda_softmax_job {
    size_t positions;
    int features;
    cuda_type type;
    const void *from, *output; /* output: backward; from is then its gradient */
    void *to;
} cuda_softmax_job;
cudaError_t cuda_run_softmax(const cuda_softmax_job *job, cudaStream_t stream);
cudaError_t cuda_run_softmax_backward(const cuda_softmax_job *job, cudaStream_t stream);

/* to[row][column] = from[row][column] for all of `rows` and `columns`. */
typedef struct cuda_columns_job {
    void *to;
    const void *from;
    size_t to_stride, from_stride; /* elements from row to row */
    size_t rows, columns;
    cuda_type type;
} cuda_columns_job;
cudaError_t cuda_run_copy_columns(const cuda_columns_job *job, cudaStream_t stream);

typedef struct cuda_pooling_job {
    int rows, channels, height, width, out_height, out_width;
    yoke_taps down, across; /* the window */
    cuda_type type;
    bool maximum;  /* otherwise the average, padding counted */
    bool adaptive; /* the average over PyTorch's adaptive windows; no window, stride, padding */
    const void *input, *output_gradient;
    void *output, *input_gradient;
    void *winners; /* [output elements, cuda_pooling_winner_bytes]: the tap of the maximum */
} cuda_pooling_job;
size_t cuda_pooling_winner_bytes(const cuda_pooling_job *job);
/* Does not write winners where they are NULL. */
cudaError_t cuda_run_pooling(const cuda_pooling_job *job, cudaStream_t stream);
cudaError_t cuda_run_pooling_backward(const cuda_pooling_job *job, cudaStream_t stream);
cudaError_t cuda_run_adaptive_pool(const cuda_pooling_job *job, cudaStream_t stream);
cudaError_t cuda_run_adaptive_pool_backward(const cuda_pooling_job *job, cudaStream_t stream);

/* Values [rows, pixels, channels]. Forward and backward are the same: to = kept ? from * scale :
 * 0. */
typedef struct cuda_dropout_job {
    size_t rows;
    uint32_t channels, pixels; /* of one row; together less than 2^32 elements */
    cuda_type type;
    uint32_t layer, threshold; /* a word below it drops its element */
    float scale;
    const cuda_step *step;
    const void *from;
    void *to;
} cuda_dropout_job;
cudaError_t cuda_run_dropout(const cuda_dropout_job *job, cudaStream_t stream);

/* Values [rows, positions, features]; weight [table, features]. A token id is a float; one
 * that is no integer from 0 to table - 1 gives NaN. Backward writes the whole weight gradient. */
typedef struct cuda_embedding_job {
    size_t rows, positions, features, table;
    cuda_type type;
    const void *input; /* tokens: float32 ids [rows, positions]; positions: values */
    void *output;
    const float *weight;
    const void *output_gradient;
    float *weight_gradient;
    int *order; /* [cuda_token_order_bytes], scratch of backward of tokens */
} cuda_embedding_job;
size_t cuda_token_order_bytes(size_t positions, size_t table); /* positions: of all rows */
cudaError_t cuda_run_embedding(const cuda_embedding_job *job, cudaStream_t stream);
cudaError_t cuda_run_embedding_backward(const cuda_embedding_job *job, cudaStream_t stream);
cudaError_t cuda_run_positions(const cuda_embedding_job *job, cudaStream_t stream);
cudaError_t cuda_run_positions_backward(const cuda_embedding_job *job, cudaStream_t stream);

/* to [rows, count] = from [rows, count], in rows of these strides. A float32 `from` may become
 * bfloat16. */
typedef struct cuda_rows_job {
    void *to;
    const void *from;
    size_t rows, count, to_stride, from_stride;
    cuda_type to_type, from_type;
} cuda_rows_job;
cudaError_t cuda_run_copy_rows(const cuda_rows_job *job, cudaStream_t stream);

/* Values [rows, positions, 3, heads, size] and [rows, positions, heads, size]. */
#define CUDA_ATTENTION_SIZE 256 /* of a head, at most */
typedef struct cuda_attention_job {
    int rows, heads, positions, size;
    cuda_type type;
    bool causal;
    const void *input, *output_gradient;
    void *output, *input_gradient;
    float *log_sum; /* [rows, heads, positions], from forward to backward; NULL: no backward */
    float *product; /* the same shape, scratch of backward */
} cuda_attention_job;
cudaError_t cuda_run_attention(const cuda_attention_job *job, cudaStream_t stream);
cudaError_t cuda_run_attention_backward(const cuda_attention_job *job, cudaStream_t stream);

/* What backward needs of one row's softmax: p_j = exp(x_j - largest) / sum. */
typedef struct cuda_loss_row {
    float largest, reciprocal_sum;
} cuda_loss_row;
typedef enum cuda_loss_kind {
    CUDA_LOSS_CROSS_ENTROPY,
    CUDA_LOSS_WEIGHTED_CROSS_ENTROPY, /* with weights, or rows that are ignored */
    CUDA_LOSS_MSE,
    CUDA_LOSS_BCE,
    CUDA_LOSS_HUBER,
    CUDA_LOSS_OUTPUT
} cuda_loss_kind;
typedef struct cuda_loss_job {
    cuda_loss_kind kind;
    size_t rows;
    int outputs; /* of one row */
    double smoothing, delta;
    const float *weights; /* [outputs], or NULL: 1 each */
    double weight_sum;
    bool ignores;
    int32_t ignored;
    const void *values; /* [rows, outputs], as are targets and gradient, all float32; of many
                           classes [rows, stride] in this type, as is the gradient */
    cuda_type type;
    size_t stride;         /* elements from row to row; a gradient there is 0 behind the last */
    const int32_t *labels; /* cross-entropy */
    const yoke_label_mix *mixes; /* [rows], read where the step is mixed */
    const float *targets;        /* the others */
    cuda_loss_row *saved;        /* [rows], cross-entropy; NULL: no backward, or joined */
    struct yoke_loss_scalars *scalars, *on_host; /* on_host: the same; NULL: nowhere */
    double *loss_parts;                          /* [cuda_loss_parts], scratch of forward */
    int32_t *correct_parts;
    const cuda_step *step; /* its loss_scale, and whether it is mixed */
    void *gradient;        /* of many classes it may be the values */
    bool joined;           /* cross-entropy: cuda_run_loss writes the gradient, too */
} cuda_loss_job;
size_t cuda_loss_parts(const cuda_loss_job *job);
cudaError_t cuda_run_loss(const cuda_loss_job *job, cudaStream_t stream);
cudaError_t cuda_run_loss_backward(const cuda_loss_job *job, cudaStream_t stream);
/* So many classes are many. */
#define CUDA_CLASSIFIER_OUTPUTS 512

/* logits [rows, stride], of which the first `outputs` of a row count. Read: plain = logits. Write:
 * logits = plain, and 0 behind the last. */
typedef struct cuda_logits_job {
    void *logits;
    cuda_type type;
    size_t rows, outputs, stride;
    float *plain; /* [rows, outputs] */
} cuda_logits_job;
cudaError_t cuda_run_read_logits(const cuda_logits_job *job, cudaStream_t stream);
cudaError_t cuda_run_write_logits(const cuda_logits_job *job, cudaStream_t stream);

#ifdef __cplusplus
}
#endif

#endif
