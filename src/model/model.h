/* The door of model: the layer list, the flat layout of its tensors, and the replica: one device's
 * copy of the model with its plans. */
#ifndef MODEL_MODEL_H
#define MODEL_MODEL_H

#include "device/device.h"
#include "yoke/bench.h"
#include "yoke/model.h"

/* The flat layout. */

/* One parameter in the flat buffers. Parameters lie in the order in which backward completes their
 * gradients (last layer first), each aligned to 64 bytes; gradients have the same offsets. */
typedef struct yoke_parameter {
    int tensor;      /* index in the model's tensor table (state_dict order) */
    size_t offset;   /* floats */
    size_t elements; /* floats, padding included */
    yoke_layout layout, plain;
} yoke_parameter;

/* A bucket: the range of the flat buffer that travels as one. Backward runs in segments, segment s
 * ending where bucket s is complete. Cut as DDP does: a bucket closes when it reaches its limit,
 * the first limit being smaller. */
typedef struct yoke_bucket {
    size_t offset, elements; /* floats */
} yoke_bucket;

/* Layouts are decided by the root's first plan; replicas, optimizer and checkpoints share them.
 * Immutable afterwards. */
typedef struct yoke_flat {
    yoke_parameter *parameters;
    int parameter_count;
    size_t elements;        /* floats of the parameter (and the gradient) buffer */
    size_t buffer_elements; /* floats of the running statistics */
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

typedef struct yoke_replica_options {
    yoke_device *device;
    yoke_precision precision;
    yoke_algorithm algorithm;
    int rows;              /* of the primary shard: plans for it are made (and measured) first */
    const yoke_flat *flat; /* NULL: this is the root, it decides; otherwise the root's */
    yoke_choices *choices; /* shared; required */
    size_t first_bucket_bytes, bucket_bytes;
    bool input_gradients; /* backward goes on to the inputs and leaves their gradients */
    int bucket_parts; /* every bucket can be cut in as many equal parts of whole cache lines; 0: 1
                       */
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

/* Where things lie on the device; borrowed. */
typedef struct yoke_replica_memory {
    float *parameters, *gradients, *buffers; /* flat */
    uint16_t *shadow; /* the parameters in bfloat16, where plans read them so; NULL otherwise */
    float *inputs;    /* [rows, input shape], float32: scatter writes here */
    int32_t *labels;  /* [rows] */
    float *targets;   /* [rows, output channels] */
    float *outputs;   /* [rows, output channels], float32: of the program last run forward */
    float *output_gradients; /* the same shape: loss writes it, or classic's scatter does */
    double *loss_sum;
    int32_t *correct;
    size_t activation_bytes, scratch_bytes, batch_bytes; /* for the memory report */
} yoke_replica_memory;
/* inputs/labels/targets hold `rows` of the primary shard at most. */
const yoke_replica_memory *yoke_replica_memory_of(const yoke_replica *replica);
const yoke_flat *yoke_replica_flat(const yoke_replica *replica);

/* Makes the plans for this many rows unless they exist (0 rows: nothing). The only call that
 * allocates after create; call it before the first step for every shard size to come. */
yoke_status yoke_replica_prepare(yoke_replica *replica, int rows, bool training);

/* Forward over the rows last scattered. Programs for `rows` are prepared when missing. */
yoke_status yoke_replica_forward(yoke_replica *replica, int rows, bool training,
                                 const yoke_plan_step *step);
/* What forward does before it queues anything, for a caller that then runs a recording of its own.
 */
yoke_status yoke_replica_begin(yoke_replica *replica, int rows, bool training,
                               const yoke_plan_step *step);
/* What `queue` asks of the replica, over `rows`, and of its device becomes one recording, which is
 * the caller's. Nothing runs, and what the last forward left stays the last forward's. */
yoke_status yoke_replica_record(yoke_replica *replica, int rows, bool training,
                                yoke_status (*queue)(void *), void *context,
                                yoke_recording **recording);
/* Loss sum, correct count and, when training, the gradient of the outputs. */
yoke_status yoke_replica_loss(yoke_replica *replica, const yoke_plan_step *step);
/* Segments run in order 0 .. bucket_count - 1; after segment s the gradients of bucket s are
 * complete and no later segment touches them. */
yoke_status yoke_replica_backward_segment(yoke_replica *replica, int segment,
                                          const yoke_plan_step *step);

/* [rows of the last forward, input shape], after all segments of its backward. ARGUMENT unless the
 * options asked for them. */
yoke_status yoke_replica_read_input_gradients(yoke_replica *replica, float *gradients);

/* The first value of the last forward that is not finite: its layer's name, or NULL. Slow; for the
 * message after a bad loss. */
const char *yoke_replica_first_nonfinite(yoke_replica *replica);

/* Every plan call of a training step (forward, loss, backward) as `timing` says, `repeat` times:
 * the kernel time `yoke bench` compares a step with. Overwrites gradients and outputs. */
yoke_status yoke_replica_kernel_time(yoke_replica *replica, int rows, yoke_kernel_timing timing,
                                     int repeat, double *milliseconds);
/* Records what `queue` queues and replays it: the fastest replay by the device's clock. Only on
 * devices that record. */
yoke_status yoke_time_recorded(yoke_device *device, yoke_status (*queue)(void *), void *context,
                               int replays, double *best_ms);

/* Values of parameters. */

/* Fills the root's parameters and buffers by PyTorch's rules from the seed. Host arithmetic,
 * independent of the number of devices and of layouts. */
yoke_status yoke_replica_initialize(yoke_replica *replica, uint64_t seed);

/* One tensor of the table, parameter or buffer, or the gradient of a parameter, to or from plain
 * float32 on the host. num_batches_tracked is not here. */
yoke_status yoke_replica_read(yoke_replica *replica, int tensor, bool gradient, float *values);
yoke_status yoke_replica_write(yoke_replica *replica, int tensor, bool gradient,
                               const float *values);

/* Index in the tensor table or -1; `near` gets the closest name for the message (may be NULL). */
int yoke_model_find_tensor(const yoke_model *model, const char *name, const char **near);

yoke_loss_kind yoke_model_loss_kind(const yoke_model *model);

/* Makes the loss plan alone, for classic's root: over `rows` outputs of the whole batch. */
yoke_status yoke_model_loss_operation(const yoke_model *model, yoke_operation *operation);

#endif
