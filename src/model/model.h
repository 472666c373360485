/* SPDX-License-Identifier: Apache-2.0 */
/* The door of model: the list of layers, the flat layout of their tensors, and the replica, which
 * is one device's copy of the model with its plans. */
#ifndef MODEL_MODEL_H
#define MODEL_MODEL_H

#include "device/device.h"
#include "model/continue_model.h"
#include "model/predictor.h"
#include "yoke/model.h"
#include "yoke/preset.h"

/* The flat layout. */

/* One parameter in the flat buffers. Parameters lie in the order in which backward completes their
 * gradients (last layer first), each aligned to 64 bytes; gradients have the same offsets. Frozen
 * parameters lie behind all others and in no bucket. */
typedef struct yoke_parameter {
    int tensor;      /* index in the model's tensor table (state_dict order) */
    size_t offset;   /* floats */
    size_t elements; /* floats, padding included */
    bool frozen;
    unsigned forms; /* in which plans read it: YOKE_FORM_ bits */
    yoke_layout layout, plain;
} yoke_parameter;

/* A bucket: a range of the flat buffer that is reduced as one. Backward runs in segments; segment s
 * ends when bucket s is complete. By DDP's rule, a bucket is full when it reaches its limit, and
 * the first limit is smaller. */
typedef struct yoke_bucket {
    size_t offset, elements; /* floats */
} yoke_bucket;

/* The root's first plans choose the layouts; replicas, optimizer and checkpoints share them.
 * Immutable afterwards. */
typedef struct yoke_flat {
    yoke_parameter *parameters;
    int parameter_count;
    int trainable_count;       /* parameters[0 .. trainable_count) are not frozen */
    size_t trainable_elements; /* floats up to the first frozen parameter */
    size_t elements;           /* floats of the parameter (and the gradient) buffer */
    size_t buffer_elements;    /* floats of the running statistics */
    yoke_bucket *buckets;
    int bucket_count;
} yoke_flat;

/* DDP's rule on a list of sizes: bucket[i] gets the bucket of tensor i; returns the number of
 * buckets. limits[limit_count] bytes: the last one repeats. (torch
 * _compute_bucket_assignment_by_size for one dtype.) */
int yoke_bucket_assign(const size_t *bytes, int count, const size_t *limits, int limit_count,
                       int *bucket);

/* The replica. */

typedef struct yoke_replica yoke_replica;

/* Ends a MEMORY text about memory that does not grow with the rows. */
#define YOKE_ADVICE_MODEL                                                                          \
    "the model does not fit, whatever the rows: take a smaller one, or a device with more memory"

/* Called before each operation of a forward, where the host queues or runs it: not in a recording
 * that is replayed. layers: those of the model that were fused into the operation. */
typedef struct yoke_operation_hook {
    void (*call)(void *context, int layers); /* NULL: none */
    void *context;
} yoke_operation_hook;

typedef struct yoke_replica_options {
    yoke_device *device;
    yoke_precision precision;
    yoke_algorithm algorithm;
    int rows;              /* of the largest shard: its plans are made (and measured) first */
    bool inference;        /* it has no gradients and no plan of training */
    const yoke_flat *flat; /* NULL: this is the root and chooses the layout; otherwise the root's */
    yoke_algorithms *algorithms; /* shared; required */
    size_t first_bucket_bytes, bucket_bytes;
    const bool *frozen;    /* [tensors] parameters without a gradient; outlives the replica. NULL:
                              none */
    const bool *untrained; /* [tensors] those without a gradient in steps of this model, frozen ones
                              among them; outlives the replica */
    const bool *fixed_statistics; /* [tensors] running means of batch norms that use them in
                                     training; outlives the replica. NULL: none */
    bool input_gradients;         /* backward also computes the gradients of the model's inputs */
    int bucket_parts; /* every bucket divides into this many equal parts of whole cache lines; 0: 1
                       */
    yoke_norm_group *norm_group; /* of its batch norms in training; NULL: none */
    yoke_operation_hook before_operation;
    bool exchanges;  /* collectives move its flat buffers: yoke_device_allocate_collective */
    bool recomputes; /* activation checkpointing, also of models without marks */
    const char *rows_advice; /* ends a MEMORY text about memory that grows with them; may
                                be NULL */
} yoke_replica_options;

/* Plans the replica: plans for `rows` rows and the flat layout, without memory. Call create and
 * allocate on the device's own worker. */
yoke_status yoke_replica_create(yoke_replica **replica, const yoke_model *model,
                                const yoke_replica_options *options);
/* Allocates parameters, gradients and running statistics, zeroed, and the memory of a shard. Given
 * parameters or gradients are zeroed memory of flat->elements floats that outlives the replica;
 * NULL: the device's own. */
yoke_status yoke_replica_allocate(yoke_replica *replica, float *parameters, float *gradients);
void yoke_replica_destroy(yoke_replica *replica);

/* The replica's buffers on the device; borrowed. */
typedef struct yoke_replica_memory {
    float *parameters, *gradients, *buffers; /* flat */
    uint16_t *shadow; /* the parameters in the compute precision, if plans read such; or NULL */
    bool updates_write_shadow;
    bool receives_shadow;             /* of weights whose values in float32 are not here */
    float *inputs[YOKE_INPUTS_LIMIT]; /* [rows, input shape], float32; scatter writes them */
    void *image;              /* input 0 as its reader wants it; NULL: that reads inputs[0] */
    yoke_layout image_layout; /* for options.rows */
    int32_t *labels;          /* [rows, positions] */
    yoke_label_mix *mixes;    /* [rows] */
    float *targets;           /* [rows, shape of output 0]; NULL: the loss reads none */
    /* [rows, output shape], float32: of the latest forward, but for output 0 in a step with
     * loss_only, which may not have been computed; NULL: no step has wanted it yet. */
    float *outputs[YOKE_OUTPUTS_LIMIT];
    /* The same shapes. The loss writes the first, or scatter in the classic schedule. */
    float *output_gradients[YOKE_OUTPUTS_LIMIT];
    yoke_loss_scalars *scalars, *on_host;                /* of the latest loss; on_host: pinned */
    size_t activation_bytes, scratch_bytes, batch_bytes; /* for the memory report */
} yoke_replica_memory;
/* inputs, labels and targets have room for options.rows. */
const yoke_replica_memory *yoke_replica_memory_of(const yoke_replica *replica);
const yoke_flat *yoke_replica_flat(const yoke_replica *replica);
/* The parameter in whose elements, or in the padding behind them, this one lies. */
int yoke_flat_at(const yoke_flat *flat, size_t element);
/* Where the elements from `begin` on end that plans read in the same forms, at most at `end`. */
size_t yoke_flat_alike(const yoke_flat *flat, size_t begin, size_t end, unsigned *forms);

/* Makes the plans for this number of rows unless they exist (0 rows: nothing). After create only
 * this call allocates; call it before the first step for every shard size. */
yoke_status yoke_replica_prepare(yoke_replica *replica, int rows, bool training);
/* The steps to come are those of `model`: the replica's own, or one of the same tensors whose rows
 * have no more values; untrained: as in the options. */
void yoke_replica_select(yoke_replica *replica, const yoke_model *model, const bool *untrained);

/* Writes input 0 of request->rows rows for its reader, once for each batch: from pixels, from
 * decoded values, or with neither from inputs[0]. The replica fills in image, inputs and layout. */
yoke_status yoke_replica_decode(const yoke_replica *replica, const yoke_decode_request *request);
/* Forward over the scattered rows; prepares `rows` if necessary. */
yoke_status yoke_replica_forward(yoke_replica *replica, int rows, bool training,
                                 const yoke_plan_step *step);
/* The part of forward that precedes its queued work, for a caller that then runs its own
 * recording. */
yoke_status yoke_replica_begin(yoke_replica *replica, int rows, bool training,
                               const yoke_plan_step *step);
/* Whether plans read a shadow. Forward writes it, unless the caller's updates do: leave_shadow, to
 * be called before allocate, says so; where memory is shared they always do. Then forward writes it
 * after renew_shadow alone: the weights are not those of which an update wrote the shadow.
 * yoke_replica_write calls renew_shadow. wrote_shadow: the caller has written the shadow of all
 * weights, whether the replica has these in float32 or not. receives: on a device with streams, the
 * caller writes that of weights which plans read as such alone, and forward always the rest. */
bool yoke_replica_reads_shadow(const yoke_replica *replica);
void yoke_replica_leave_shadow(yoke_replica *replica, bool receives);
void yoke_replica_renew_shadow(yoke_replica *replica);
void yoke_replica_wrote_shadow(yoke_replica *replica);
bool yoke_replica_has_shadow(const yoke_replica *replica); /* the current one */
/* Whether steps with loss_only compute the loss in another way than others. */
bool yoke_replica_joins_loss(const yoke_replica *replica);
/* Records what `queue` calls on the replica, for `rows`, and on its device, with steps that are
 * loss_only or not; the caller owns the recording. Nothing runs, and the results of the latest
 * forward stay valid. */
yoke_status yoke_replica_record(yoke_replica *replica, int rows, bool training, bool loss_only,
                                yoke_status (*queue)(void *), void *context,
                                yoke_recording **recording);
/* Computes loss sum, number of correct rows and, when training, the gradients of the outputs. */
yoke_status yoke_replica_loss(yoke_replica *replica, const yoke_plan_step *step);
/* The gradients of outputs 1, 2, ... that a loss gives which reads output 0 alone: zeros. */
yoke_status yoke_replica_clear_more_gradients(yoke_replica *replica);
/* Call it for segments 0 .. bucket_count - 1 in order. After segment s the gradients of bucket s
 * are complete, and no later segment changes them. */
yoke_status yoke_replica_backward_segment(yoke_replica *replica, int segment,
                                          const yoke_plan_step *step);

/* The factors that a backward with factors_only has kept in place of the gradient of this entry of
 * flat->parameters. NULL: it has written that gradient. */
const yoke_factors *yoke_replica_factors(const yoke_replica *replica, int parameter);

/* With options.norm_group, for a replica without rows: its batch norms take part in the
 * all-gathers of forward, except for the first `done`, or of a segment. */
yoke_status yoke_replica_idle_forward(yoke_replica *replica, int done);
yoke_status yoke_replica_idle_segment(yoke_replica *replica, int segment);

/* On the device, [rows of the latest forward, shape of this input], once all segments of backward
 * have run; borrowed. ARGUMENT unless options.input_gradients is set. */
yoke_status yoke_replica_input_gradients(const yoke_replica *replica, int input,
                                         const float **gradients);

/* The layer whose output is the first value of the latest forward that is not finite, or NULL.
 * Slow; for the message after a loss that is not finite. */
const char *yoke_replica_first_nonfinite(yoke_replica *replica);

/* Whether a tensor belongs to the head alone: the linear layer that writes output 0. */
bool yoke_model_is_head(const yoke_model *model, int tensor);

/* The shape of a matrix that a linear or recurrent layer multiplies by, or, with `filters`, of the
 * weight of a convolution, whose rows are its filters; 0 x 0 for any other tensor, a table of
 * embeddings for example. */
void yoke_model_matrix(const yoke_model *model, int tensor, bool filters, size_t *rows,
                       size_t *columns);

/* A convolution that reads the rows themselves: [filters, channels, height, width] is its weight,
 * of that name. ARGUMENT: there is no such layer, or it reads something else. */
typedef struct yoke_stem {
    const char *weight;
    int filters, channels, height, width;
} yoke_stem;
yoke_status yoke_model_stem(const yoke_model *model, const char *layer, yoke_stem *stem);

/* The float64 reference. */

/* A model in float64, to compare replicas with: forward, loss and backward of the layers as the
 * user wrote them, before any fusing, as plain loops in PyTorch's layouts. The caller sets `rows`
 * and what follows it before each pass. */
typedef struct yoke_float64_model {
    const yoke_model *model;
    double **values, **gradients; /* [layers + 1]: the input first; each [rows, channels, h, w] */
    double **tensors, **tensor_gradients; /* [tensors of the model's table] */
    double *scratch;                      /* of recurrences */
    double loss_sum;                      /* over rows and their positions */
    int correct;
    int rows; /* of the next pass, at most those given to create */
    bool training;
    bool keeps_statistics;        /* training leaves the running statistics as they are */
    const bool *fixed_statistics; /* [tensors] of running means that training reads; NULL: none */
    yoke_plan_step step;          /* its loss_scale is not read */
    double loss_scale; /* of the loss gradient: 1 / what divides the whole batch's loss */
    const int32_t *labels;
    const yoke_label_mix *mixes; /* NULL: each row has one label */
    const float *targets;
} yoke_float64_model;

/* Tensors are zero, `training` is true. The model must outlive it. */
yoke_status yoke_float64_create(yoke_float64_model **reference, const yoke_model *model, int rows);
void yoke_float64_destroy(yoke_float64_model *reference);
/* inputs: [inputs of the model], each [rows, its shape]. In training it updates the running
 * statistics. */
void yoke_float64_forward(yoke_float64_model *reference, const float *const *inputs);
/* loss_sum and correct of the latest forward, and the gradient of output 0; a caller that has
 * gradients of others adds them to those of their values. */
void yoke_float64_loss(yoke_float64_model *reference);
/* Backward of the latest loss; adds to tensor_gradients. */
void yoke_float64_backward(yoke_float64_model *reference);
/* The elements of one row of a value: 0 is input 0, layer i writes i + 1. */
size_t yoke_value_elements(const yoke_model *model, int value);
static inline size_t yoke_float64_row(const yoke_float64_model *reference, int value) {
    return yoke_value_elements(reference->model, value);
}
/* The multiplications of one training step, in convolutions, linear layers and
 * attention. */
double yoke_float64_work(const yoke_model *model, int rows);

/* Values of parameters. */

/* Initialises the root's parameters and buffers from the seed by PyTorch's rules, on the host: the
 * values do not depend on the number of devices or on layouts. */
yoke_status yoke_replica_initialize(yoke_replica *replica, uint64_t seed);

/* Copies one tensor of the table, a parameter or buffer, or the gradient of a parameter, to or from
 * plain float32 on the host. Not for num_batches_tracked, which the engine counts. */
yoke_status yoke_replica_read(yoke_replica *replica, int tensor, bool gradient, float *values);
yoke_status yoke_replica_write(yoke_replica *replica, int tensor, bool gradient,
                               const float *values);
/* The same as the values lie in the replica, with their layout; bytes 0: they are plain. Another
 * replica converts them, while the device that made the layout is open. */
yoke_status yoke_replica_copy(yoke_replica *replica, int tensor, float *values,
                              yoke_layout *layout);
yoke_status yoke_replica_put(yoke_replica *replica, int tensor, const float *values,
                             const yoke_layout *layout);

/* Index in the tensor table, or -1; then *near (`near` may be NULL) gets the closest name for a
 * message. */
int yoke_model_find_tensor(const yoke_model *model, const char *name, const char **near);

/* patterns.c: lists of the shell's patterns of tensor names, with commas between them. */
typedef struct yoke_name {
    const char *text; /* borrowed */
    size_t length;
    int index; /* the caller's number for it */
} yoke_name;
/* The names that patterns may match. Add them, then sort them. */
typedef struct yoke_names {
    yoke_name *sorted; /* [count] by text */
    int count;
    size_t tries; /* comparisons of a name with a pattern so far */
} yoke_names;
yoke_status yoke_names_create(yoke_names *names, int capacity);
void yoke_names_destroy(yoke_names *names);
void yoke_names_add(yoke_names *names, const char *text, int index);
void yoke_names_sort(yoke_names *names);
/* marks[index] becomes `mark` for every name that a pattern of the list matches, where it was
 * negative. unmatched: where the list's first pattern that matches no name begins, or NULL.
 * ARGUMENT: too many comparisons. */
yoke_status yoke_patterns_mark(yoke_names *names, const char *list, int mark, int *marks,
                               const char **unmatched);
/* ARGUMENT: the text begins with `what` and the list's first pattern, and names the model's nearest
 * tensor. */
yoke_status yoke_patterns_fail(const yoke_model *model, const char *what, const char *list);

/* *marks, [tensors], which the caller frees: true at the running mean of each batch norm that a
 * pattern of the list matches by the name of one of its tensors; NULL where `list` is. ARGUMENT: a
 * pattern matches none. */
yoke_status yoke_statistics_mark(const yoke_model *model, const char *list, bool **marks);

/* outputs[tensors] gets for each, as bits, the outputs that it changes. */
yoke_status yoke_model_reach(const yoke_model *model, unsigned *outputs);

/* The ids of an input that embeddings read are 0 to this - 1; 0: no embedding reads it. */
int yoke_model_tokens(const yoke_model *model, int input);
/* The elements of one row. */
size_t yoke_model_input_elements(const yoke_model *model, int input);
size_t yoke_model_output_elements(const yoke_model *model, int output);
/* The labels of one row: one for each position of output 0 if it is a sequence and the loss reads
 * labels, otherwise 1. */
size_t yoke_model_positions(const yoke_model *model);

yoke_loss_kind yoke_model_loss_kind(const yoke_model *model);
/* Needs a finished model; the weights live as long as the model. */
const yoke_loss_options *yoke_model_loss(const yoke_model *model);
const char *yoke_model_loss_name(const yoke_model *model); /* for messages; static */
/* "cross-entropy, ignore_index -100, weights 5f0c...", without the label smoothing. */
#define YOKE_LOSS_TEXT_BYTES 128
const char *yoke_model_loss_text(const yoke_model *model, char text[YOKE_LOSS_TEXT_BYTES]);
/* Whether the loss compares with labels; otherwise with targets. */
bool yoke_model_reads_labels(const yoke_model *model);
bool yoke_model_reads_targets(const yoke_model *model);
/* Whether labels count differently: by class weights, or not at all. Otherwise each weighs 1. */
bool yoke_model_weighs_labels(const yoke_model *model);
bool yoke_model_has_ignore_index(const yoke_model *model);
bool yoke_model_ignores(const yoke_model *model, int32_t label);
/* Valid labels of these rows that the loss does not ignore, and the sum of their weights, which
 * divides the sum of their losses; mixed labels weigh 1 a row. labels NULL: none, unless each
 * weighs 1. */
typedef struct yoke_label_count {
    double weight;
    int labels;
} yoke_label_count;
yoke_label_count yoke_model_count_labels(const yoke_model *model, const int32_t *labels, int rows,
                                         bool mixed);
/* The channels of the widest batch norm; 0: the model has none. */
int yoke_model_norm_channels(const yoke_model *model);

/* The operation of the loss alone, for the root in the classic schedule, which computes the loss of
 * the whole batch. */
yoke_status yoke_model_loss_operation(const yoke_model *model, yoke_operation *operation);

#endif
