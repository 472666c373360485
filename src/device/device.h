/* The door of device: the only way to hardware. Rooms above see devices, operations and plans;
 * which backend serves them is device.c's secret. */
#ifndef DEVICE_DEVICE_H
#define DEVICE_DEVICE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/base.h"
#include "device/decode.h"
#include "yoke/decoding.h"
#include "yoke/device.h"

typedef struct yoke_device yoke_device;
typedef struct yoke_plan yoke_plan;
typedef struct yoke_choices yoke_choices;

/* Devices. */

#define YOKE_DEVICES_LIMIT 64 /* in one list */

yoke_device *yoke_devices_at(const yoke_devices *devices, int index);
const char *yoke_device_name(const yoke_device *device);
bool yoke_device_supports(const yoke_device *device, yoke_precision precision);
/* Cores nobody computes on: cores online minus all devices' threads; negative when
 * oversubscribed. */
int yoke_devices_spare_cores(const yoke_devices *devices);

/* Makes the calling thread `device`'s worker: bound to its cores (unless unbound) with its number
 * of compute threads. leave restores what the thread had before; pairs may not be nested. */
typedef struct yoke_device_scope {
    uint64_t opaque[20];
} yoke_device_scope;
yoke_status yoke_device_enter(yoke_device *device, bool bind, yoke_device_scope *scope);
void yoke_device_leave(yoke_device *device, const yoke_device_scope *scope);
/* A worker that has queued on other devices comes back to its own with it. */
yoke_status yoke_device_use(yoke_device *device);
const char *yoke_precision_name(yoke_precision precision); /* "float32" */

/* Whether every worker may load and store in every device's memory, and calls finish before they
 * return (CPU devices). Otherwise calls queue work in streams, and memory is reached through calls
 * only. All devices of a list answer the same. */
bool yoke_devices_share_memory(const yoke_devices *devices);

/* Order. Each device has three streams: work of one runs in its order, streams run side by side
 * unless an event orders them. Where memory is shared there is one order and these do nothing. */

typedef enum yoke_stream {
    YOKE_STREAM_COMPUTE,      /* plans run here */
    YOKE_STREAM_COPY,         /* the next batch comes in */
    YOKE_STREAM_COMMUNICATION /* collectives and the updates between them */
} yoke_stream;
#define YOKE_STREAMS 3

typedef struct yoke_device_event yoke_device_event;
/* *event is NULL where memory is shared; the other three take NULL. */
yoke_status yoke_device_event_create(yoke_device_event **event, yoke_device *device);
/* One that tells time, for yoke_device_event_elapsed. */
yoke_status yoke_device_event_create_timed(yoke_device_event **event, yoke_device *device);
/* Between two marks of one device that have passed; 0 for NULL. */
yoke_status yoke_device_event_elapsed(yoke_device_event *from, yoke_device_event *to,
                                      double *milliseconds);
void yoke_device_event_destroy(yoke_device_event *event);
/* Marks what its own device's stream has been given so far. */
yoke_status yoke_device_event_record(yoke_device_event *event, yoke_stream stream);
/* What the stream of any device is given from now on waits for the mark; one never recorded has
 * passed. */
yoke_status yoke_device_event_wait(yoke_device_event *event, yoke_device *device,
                                   yoke_stream stream);
yoke_status yoke_device_event_synchronize(yoke_device_event *event); /* the host waits */
yoke_status yoke_device_synchronize(yoke_device *device);            /* for all streams */

/* Recordings: what is queued on the compute stream between begin and end becomes one call. Only
 * where yoke_device_records says so. In between, nothing else is asked of the device, and it waits
 * for no event. An event recorded in between is recorded by every run, for whoever waits after that
 * run was queued; a step begun in between is not part of it: one is begun before each run. */
typedef struct yoke_recording yoke_recording;
bool yoke_device_records(const yoke_device *device);
bool yoke_device_is_recording(const yoke_device *device);
yoke_status yoke_recording_begin(yoke_device *device);
/* Always ends it; `status` other than OK throws away what was recorded and is passed on. */
yoke_status yoke_recording_end(yoke_device *device, yoke_status status, yoke_recording **recording);
yoke_status yoke_recording_run(yoke_recording *recording);
void yoke_recording_destroy(yoke_recording *recording);

/* Memory. */

/* 64-byte aligned at least (2 MiB for large buffers), zeroed by the device's own worker's cores.
 * MEMORY names the device, the size and `what`. */
yoke_status yoke_device_allocate(yoke_device *device, size_t bytes, const char *what,
                                 void **pointer);
void yoke_device_free(yoke_device *device, void *pointer);
size_t yoke_device_allocated(const yoke_device *device);  /* bytes held now */
size_t yoke_device_free_bytes(const yoke_device *device); /* 0: not known */

/* Whether the pointer is memory of the device, which the host may not touch. ARGUMENT when it is
 * memory of another one. */
yoke_status yoke_device_owns(yoke_device *device, const void *pointer, bool *owns);

/* Host memory that copies to and from the device may use while the host goes on (pinned), zeroed.
 */
yoke_status yoke_device_allocate_host(yoke_device *device, size_t bytes, const char *what,
                                      void **pointer);
void yoke_device_free_host(yoke_device *device, void *pointer);

/* Host <-> device. With host memory of yoke_device_allocate_host they only queue; any other is read
 * before upload returns, and written before download returns. */
yoke_status yoke_device_upload(yoke_device *device, yoke_stream stream, void *to, const void *from,
                               size_t bytes);
yoke_status yoke_device_download(yoke_device *device, yoke_stream stream, void *to,
                                 const void *from, size_t bytes);
/* Device <-> device, in a stream of to_device: it pulls. */
yoke_status yoke_device_copy(yoke_device *to_device, yoke_stream stream, void *to,
                             yoke_device *from_device, const void *from, size_t bytes);
yoke_status yoke_device_clear(yoke_device *device, yoke_stream stream, void *to, size_t bytes);
/* Whether sums on `device` may read memory of `other` in place. */
bool yoke_device_reaches(const yoke_device *device, const yoke_device *other);

/* Flat arithmetic: float32 ranges, all on memory of the device (or within its reach). */

/* to[i] = ((from[0][i] + from[1][i]) + from[2][i]) + ... : a left fold in the order given, the bits
 * independent of how a range is cut. `from` may lie on other devices; `to` may be from[0], and any
 * of them where memory is not shared. */
yoke_status yoke_device_sum(yoke_device *device, yoke_stream stream, float *to,
                            const float *const *from, int count, size_t elements);
/* Sum of squares in double over fixed blocks of 4096 elements, blocks added in order; `sum` is
 * device memory, [yoke_square_sum_doubles(elements)]: the sum, then room to work in. */
yoke_status yoke_device_square_sum(yoke_device *device, yoke_stream stream, const float *values,
                                   size_t elements, double *sum);
size_t yoke_square_sum_doubles(size_t elements);

/* What the updates of a step read on the device, because the host goes on before it is known. */
typedef struct yoke_gate {
    float gradient_scale;  /* of clipping; 1: none */
    int32_t closed;        /* a loss or the norm is not finite: updates change nothing */
    float found_nonfinite; /* 0, or NaN when closed: a sum of several tells of all */
    double norm;           /* of the gradient; 0 without clipping */
} yoke_gate;
/* gate = { min(1, clip_norm / (norm + 1e-6)), ... } with norm = sqrt(square_sums[0] + [1] + ...),
 * clip_norm 0: no clipping; closed when one of losses[0 .. count) or the norm is not finite or
 * there is a found_nonfinite. All in device memory. Not where memory is shared. */
typedef struct yoke_gate_request {
    const double *losses, *square_sums;
    const float *found_nonfinite; /* closes it unless 0; may be the gate's own. NULL: none */
    int loss_count, square_sum_count;
    double clip_norm;
    bool closed; /* the host has found a loss that is not finite */
} yoke_gate_request;
yoke_status yoke_device_gate(yoke_device *device, yoke_stream stream, yoke_gate *gate,
                             const yoke_gate_request *request);

/* One step of torch.optim.SGD (dampening 0) on a range:
 *   g = gradient * gradient_scale + weight_decay * w;  v = first ? g : momentum * v + g;
 *   w -= learning_rate * (nesterov ? g + momentum * v : v)          (v unused when momentum = 0) */
typedef struct yoke_sgd_step {
    float learning_rate, momentum, weight_decay, gradient_scale;
    bool nesterov, first;
    const yoke_gate *gate; /* on the device; its gradient_scale multiplies. NULL: open, 1 */
} yoke_sgd_step;
yoke_status yoke_device_sgd(yoke_device *device, yoke_stream stream, const yoke_sgd_step *step,
                            float *weights, const float *gradients, float *velocity,
                            size_t elements);

/* One step of torch.optim.AdamW: w *= 1 - lr * weight_decay; m, v; bias corrections given;
 *   w -= learning_rate / correction1 * m / (sqrt(v) / sqrt(correction2) + epsilon)
 * The scalars are double, as in Python: 1 - beta2 taken from a float is wrong in the fifth
 * digit. */
typedef struct yoke_adamw_step {
    double learning_rate, beta1, beta2, epsilon, weight_decay;
    double correction1, correction2_root; /* 1 - beta1^t, sqrt(1 - beta2^t) */
    float gradient_scale;
    const yoke_gate *gate;
} yoke_adamw_step;
/* moments: the first and the second. */
yoke_status yoke_device_adamw(yoke_device *device, yoke_stream stream, const yoke_adamw_step *step,
                              float *weights, const float *gradients, float *const moments[2],
                              size_t elements);

/* Layouts. */

/* How a backend lays a tensor out in memory; the words are the backend's. bytes includes padding;
 * padding is zero and stays zero. */
typedef struct yoke_layout {
    size_t bytes;
    uint64_t opaque[8]; /* the same for equal layouts, on every device and in every process */
    const void *kept;   /* the backend's own, while the device that made it is open */
} yoke_layout;

/* Row-major float32 of `rank` <= 5 dimensions. */
yoke_status yoke_layout_plain(yoke_device *device, const int64_t *shape, int rank,
                              yoke_layout *layout);
bool yoke_layout_equal(const yoke_layout *a, const yoke_layout *b);
uint64_t yoke_layout_digest(const yoke_layout *layout);
/* Host copies of values and parameters at the edges: either end may be host memory or memory of
 * `device`. Slow: the host waits. */
yoke_status yoke_layout_convert(yoke_device *device, const yoke_layout *to_layout, void *to,
                                const yoke_layout *from_layout, const void *from);

/* Operations and plans. */

typedef enum yoke_operation_kind {
    YOKE_OP_CONV2D,     /* parameters: weight [out, in / groups, k, k], bias [out] */
    YOKE_OP_LINEAR,     /* weight [out, in], bias [out] */
    YOKE_OP_BATCH_NORM, /* weight, bias [channels]; buffers: running mean, running variance;
                           relu: ReLU fused behind; add: input 1 is added before the ReLU */
    YOKE_OP_RELU,
    YOKE_OP_ADD, /* two inputs; relu: ReLU fused behind */
    YOKE_OP_MAX_POOL,
    YOKE_OP_AVERAGE_POOL, /* count_include_pad */
    YOKE_OP_FLATTEN,      /* [channels, height, width] -> [features], row-major order */
    YOKE_OP_DROPOUT,
    YOKE_OP_OUTPUT, /* any layout and precision -> plain float32: the model's last operation */
    YOKE_OP_CROSS_ENTROPY, /* input plain float32 [rows, classes]; sums over rows; no output value
                            */
    YOKE_OP_MSE
} yoke_operation_kind;

typedef struct yoke_dims {
    int channels, height, width; /* of one row; flat values: height = width = 1 */
} yoke_dims;

typedef struct yoke_operation {
    yoke_operation_kind kind;
    const char *name; /* for messages and the record of choices; borrowed while planning */
    yoke_dims input, output;
    int kernel, stride, padding, groups; /* convolution, pooling */
    bool relu;                           /* batch norm, add: fused */
    bool add;                            /* batch norm: fused, always with relu */
    bool bias;                           /* convolution, linear */
    double epsilon, momentum;            /* batch norm */
    double probability;                  /* dropout */
    double label_smoothing;              /* cross-entropy */
    uint32_t layer;                      /* key of dropout's random numbers */
} yoke_operation;

#define YOKE_PLAN_INPUTS 2
#define YOKE_PLAN_PARAMETERS 2

typedef struct yoke_plan_request {
    const yoke_operation *operation;
    int rows;
    bool training;
    yoke_precision precision;
    yoke_algorithm algorithm;
    bool input_gradient;                  /* backward must produce gradients of the inputs */
    yoke_layout inputs[YOKE_PLAN_INPUTS]; /* as their producers write them */
    /* bytes = 0: the plan chooses (the model's first plan); otherwise given and kept. Parameters
     * and their gradients share one layout, float32, whatever the precision. */
    yoke_layout parameters[YOKE_PLAN_PARAMETERS];
    yoke_choices *choices; /* consulted and, for a shape not yet in it, measured into */
} yoke_plan_request;

/* What a plan needs; filled by yoke_plan_create. The gradient of a value has the value's layout. */
typedef struct yoke_plan_needs {
    yoke_layout output;
    yoke_layout parameters[YOKE_PLAN_PARAMETERS];
    size_t saved_bytes;         /* kept from forward to backward */
    size_t scratch_bytes;       /* while one of the two runs */
    bool backward_reads_input;  /* input 0 must live until backward */
    bool backward_reads_output; /* and the output */
    /* The output may be written over input 0 / input 0's gradient over the output gradient. */
    bool forward_in_place, backward_in_place;
    /* Of two inputs: input 1's gradient may be written over the output gradient, input 0's over the
     * output. */
    bool joined_in_place;
    /* Both inputs' gradients equal the output gradient left by backward (add): the plan writes
     * input_gradients[0] only, and input 1 shares it. */
    bool shared_input_gradient;
    /* Parameter k is read in the compute precision (bindings' `shadows`), not in float32. */
    bool reads_shadow[YOKE_PLAN_PARAMETERS];
} yoke_plan_needs;

/* Where everything lies; addresses are fixed for the life of the plan. Unused ones are NULL. */
typedef struct yoke_plan_binding {
    void *inputs[YOKE_PLAN_INPUTS];
    void *output;
    float *parameters[YOKE_PLAN_PARAMETERS];
    const void *shadows[YOKE_PLAN_PARAMETERS]; /* the same in bfloat16, where a plan reads it */
    float *parameter_gradients[YOKE_PLAN_PARAMETERS]; /* overwritten by backward */
    float *buffers[2];                                /* running mean, running variance */
    void *output_gradient;
    void *input_gradients[YOKE_PLAN_INPUTS]; /* overwritten by backward */
    void *saved, *scratch;
    const int32_t *labels; /* [rows]; cross-entropy */
    const float *targets;  /* [rows, channels]; MSE */
    double *loss_sum;      /* device memory: sum over rows (MSE: of the row means) */
    int32_t *correct;      /* device memory: rows whose first largest output is the label */
} yoke_plan_binding;

/* What changes from step to step. */
typedef struct yoke_plan_step {
    uint64_t seed, step;
    uint64_t first_row; /* global row of this shard's row 0: keys dropout */
    float loss_scale;   /* 1 / rows of the whole batch, applied where the loss gradient is made */
} yoke_plan_step;

/* create plans and, when asked, measures (it allocates and runs); bind fixes addresses and may
 * allocate descriptors; forward and backward only queue work and allocate nothing. */
yoke_status yoke_plan_create(yoke_plan **plan, yoke_device *device,
                             const yoke_plan_request *request);
void yoke_plan_destroy(yoke_plan *plan);
const yoke_plan_needs *yoke_plan_describe(const yoke_plan *plan);
yoke_status yoke_plan_bind(yoke_plan *plan, const yoke_plan_binding *binding);
yoke_status yoke_plan_forward(yoke_plan *plan, const yoke_plan_step *step);
/* which: gradients of inputs, of parameters, or both. */
yoke_status yoke_plan_backward(yoke_plan *plan, const yoke_plan_step *step);

/* What changes from step to step reaches the device before the plans of the step are queued or
 * replayed; plans on devices that record read it there, others in their `step`. */
yoke_status yoke_device_begin_step(yoke_device *device, const yoke_plan_step *step);
/* shadow[i] = bfloat16(parameters[i]), on the compute stream, once a step. */
yoke_status yoke_device_shadow(yoke_device *device, uint16_t *shadow, const float *parameters,
                               size_t elements);

/* to += from, elementwise over a value of this layout and precision (two readers of one value). */
yoke_status yoke_device_accumulate(yoke_device *device, const yoke_layout *layout, void *to,
                                   const void *from);

/* Pictures. */

/* inputs [rows, picture], float32, as yoke_batch says and as the loader makes them on the host, bit
 * for bit; on the compute stream, and all in device memory. Not where memory is shared. */
typedef struct yoke_decode_request {
    int rows;
    yoke_dims picture;
    const uint8_t *pixels;
    const yoke_placement *placements; /* NULL: none */
    yoke_decoding decoding;
    float *inputs;
} yoke_decode_request;
yoke_status yoke_device_decode(yoke_device *device, const yoke_decode_request *request);

/* Choices. */

/* Which algorithm serves which shape and pass: measured once, on the root, shared by all replicas,
 * and part of a run's record. Not thread-safe: plans are made by one thread. */
yoke_status yoke_choices_create(yoke_choices **choices);
void yoke_choices_destroy(yoke_choices *choices);
/* `key` names shape, pass and precision, without the number of rows. Returns -1 when not yet known.
 */
int yoke_choices_find(const yoke_choices *choices, const char *key);
yoke_status yoke_choices_add(yoke_choices *choices, const char *key, int candidate,
                             const char *candidate_name, double milliseconds);
/* Row `index` of the record, false past the end. */
bool yoke_choices_at(const yoke_choices *choices, int index, const char **key, const char **name,
                     double *milliseconds);

#endif
