/* SPDX-License-Identifier: Apache-2.0 */
/* The door of device: the only way to hardware. Rooms above see devices, operations and plans; only
 * device.c knows the backends. */
#ifndef DEVICE_DEVICE_H
#define DEVICE_DEVICE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/base.h"
#include "device/algorithms.h"
#include "device/decode.h"
#include "device/elementary.h"
#include "device/gate.h"
#include "device/left_out.h"
#include "device/node.h"
#include "device/norm_group.h"
#include "device/operation.h"
#include "device/plan_factors.h"
#include "device/plan_step.h"
#include "device/resample.h"
#include "device/update.h"
#include "device/variants.h"
#include "device/window.h"
#include "yoke/decoding.h"
#include "yoke/device.h"
#include "yoke/function.h"
#include "yoke/host_call.h"

typedef struct yoke_device yoke_device;
typedef struct yoke_plan yoke_plan;

/* Devices. */
#define YOKE_DEVICES_LIMIT 64 /* in one list */

yoke_device *yoke_devices_at(const yoke_devices *devices, int index);
const char *yoke_device_name(const yoke_device *device);
int yoke_device_threads(const yoke_device *device); /* its compute threads */
int yoke_device_number(const yoke_device *device);  /* its position when the list was opened */
bool yoke_device_supports(const yoke_device *device, yoke_precision precision);
unsigned yoke_device_variants(const yoke_device *device); /* of the list; 0 on CPU devices */
/* Cores online minus all devices' threads; negative when threads share cores. */
int yoke_devices_spare_cores(const yoke_devices *devices);

/* How many cores the devices may use; NULL: as many as the calling thread. keep_thread keeps the
 * calling thread on those that the host program has named, if any; `devices` may be NULL. */
int yoke_devices_cores(const yoke_devices *devices);
void yoke_devices_keep_thread(const yoke_devices *devices);

/* Makes the calling thread `device`'s worker: binds it to the device's cores (unless unbound) and
 * sets its number of compute threads. Without `bind` it takes any of these cores where the host
 * program has named some, and otherwise stays where it is. leave restores what was; pairs may not
 * be nested. */
typedef struct yoke_device_scope {
    uint64_t opaque[20];
} yoke_device_scope;
yoke_status yoke_device_enter(yoke_device *device, bool bind, yoke_device_scope *scope);
void yoke_device_leave(yoke_device *device, const yoke_device_scope *scope);
/* Before the calling thread enters: starts its compute threads unless they run. SYSTEM: it got
 * none, or a fork's parent had some. end_team ends all that OpenMP keeps for the calling thread.
 * Between hold and release (all that computes, callbacks not) they take no signal. */
yoke_status yoke_device_start_team(yoke_device *device);
void yoke_device_end_team(yoke_device *device);
void yoke_device_hold_signals(yoke_device *device);
void yoke_device_release_signals(yoke_device *device);
/* Returns to the own device from others, or after step_out, which leaves but stays bound. */
yoke_status yoke_device_use(yoke_device *device);
void yoke_device_step_out(yoke_device *device, const yoke_device_scope *scope);
const char *yoke_precision_name(yoke_precision precision); /* "float32" */

/* Whether every worker may access every device's memory and calls finish before they return (CPU
 * devices). Otherwise calls queue work in streams, and only calls access memory. All devices of a
 * list are of one kind. */
bool yoke_devices_share_memory(const yoke_devices *devices);
bool yoke_device_shares_memory(const yoke_device *device);
bool yoke_devices_continue(const yoke_devices *devices); /* they plan CONTINUED operations */

/* Order. Each device has three streams. A stream runs its work in order; different streams run
 * concurrently unless an event orders them. Where memory is shared calls already run in order, and
 * these functions do nothing. */

typedef enum yoke_stream {
    YOKE_STREAM_COMPUTE,      /* plans run here */
    YOKE_STREAM_COPY,         /* uploads of the next batch */
    YOKE_STREAM_COMMUNICATION /* collectives and the updates between them */
} yoke_stream;
#define YOKE_STREAMS 3

typedef struct yoke_device_event yoke_device_event;
/* *event is NULL where memory is shared; the other functions take NULL. */
yoke_status yoke_device_event_create(yoke_device_event **event, yoke_device *device);
/* With a time stamp, for elapsed. */
yoke_status yoke_device_event_create_timed(yoke_device_event **event, yoke_device *device);
/* The time between two completed events of one device; 0 for NULL. */
yoke_status yoke_device_event_elapsed(yoke_device_event *from, yoke_device_event *to,
                                      double *milliseconds);
void yoke_device_event_destroy(yoke_device_event *event);
/* Records the event behind the work queued so far on a stream of its own device. */
yoke_status yoke_device_event_record(yoke_device_event *event, yoke_stream stream);
/* Work queued from now on, on a stream of any device, waits for the event; an event that was never
 * recorded counts as complete. */
yoke_status yoke_device_event_wait(yoke_device_event *event, yoke_device *device,
                                   yoke_stream stream);
yoke_status
yoke_device_event_synchronize(yoke_device_event *event);  /* the host waits for the event */
yoke_status yoke_device_synchronize(yoke_device *device); /* the host waits for all streams */
/* Streams of the host program. Records the event of `device` behind what the stream holds;
 * ARGUMENT: it is no stream of this device, or memory is shared. wait: what the host program queues
 * from now on in a stream of `device` waits for the event of any device. */
yoke_status yoke_device_event_record_host(yoke_device_event *event, yoke_device *device,
                                          void *stream);
yoke_status yoke_device_event_wait_host(yoke_device_event *event, yoke_device *device,
                                        void *stream);

/* Recordings (CUDA graphs): the compute stream's work between begin and end becomes one call, where
 * yoke_device_records says so. In between, use no other stream, and wait for no event. Every run
 * records its events again. yoke_device_begin_step is not part of it: call that before each run. */
typedef struct yoke_recording yoke_recording;
bool yoke_device_records(const yoke_device *device);
bool yoke_device_is_recording(const yoke_device *device);
yoke_status yoke_recording_begin(yoke_device *device);
/* Always ends the recording. A `status` other than OK discards it and is returned. */
yoke_status yoke_recording_end(yoke_device *device, yoke_status status, yoke_recording **recording);
yoke_status yoke_recording_run(yoke_recording *recording);
void yoke_recording_destroy(yoke_recording *recording);

/* Memory. */

/* Zeroed memory, aligned to at least 64 bytes (large buffers: 2 MiB). Call it on the device's
 * worker, so that its cores touch the pages first. MEMORY names the device, the size and `what`. */
yoke_status yoke_device_allocate(yoke_device *device, size_t bytes, const char *what,
                                 void **pointer);
/* The same, for what collectives move most: their library may have memory of its own. */
yoke_status yoke_device_allocate_collective(yoke_device *device, size_t bytes, const char *what,
                                            void **pointer);
void yoke_device_free(yoke_device *device, void *pointer);
size_t yoke_device_allocated(const yoke_device *device);  /* bytes held now */
size_t yoke_device_free_bytes(const yoke_device *device); /* 0: unknown */

/* Whether the pointer is memory of this device, which the host may not access. ARGUMENT when it is
 * memory of another device. */
yoke_status yoke_device_owns(yoke_device *device, const void *pointer, bool *owns);

/* Zeroed, pinned host memory: copies between it and the device run while the host continues, and
 * kernels of every device of the list reach it at the same address. */
yoke_status yoke_device_allocate_host(yoke_device *device, size_t bytes, const char *what,
                                      void **pointer);
void yoke_device_free_host(yoke_device *device, void *pointer);

/* Host <-> device. With memory of yoke_device_allocate_host the copy is only queued. With any other
 * host memory it finishes before the call returns. */
yoke_status yoke_device_upload(yoke_device *device, yoke_stream stream, void *to, const void *from,
                               size_t bytes);
yoke_status yoke_device_download(yoke_device *device, yoke_stream stream, void *to,
                                 const void *from, size_t bytes);
/* The open device whose memory the pointer is; NULL: host memory, as everything is where memory is
 * shared, and *pinned says which. ARGUMENT: memory of a GPU that the list has not. */
yoke_status yoke_devices_locate(const yoke_devices *devices, const void *pointer,
                                yoke_device **location, bool *pinned);
/* As upload, without the wait for ordinary memory: finish_uploads waits for a stream's. */
yoke_status yoke_device_queue_upload(yoke_device *device, yoke_stream stream, void *to,
                                     const void *from, size_t bytes);
yoke_status yoke_device_finish_uploads(yoke_device *device, yoke_stream stream);
/* As upload, from memory of `location`, which is complete; NULL: from host memory. */
yoke_status yoke_device_receive(yoke_device *device, yoke_stream stream, void *to,
                                yoke_device *location, const void *from, size_t bytes);
/* Device <-> device, queued on a stream of to_device. */
yoke_status yoke_device_copy(yoke_device *to_device, yoke_stream stream, void *to,
                             yoke_device *from_device, const void *from, size_t bytes);
yoke_status yoke_device_clear(yoke_device *device, yoke_stream stream, void *to, size_t bytes);
/* Whether kernels of `device` can read memory of `other` in place. */
bool yoke_device_reaches(const yoke_device *device, const yoke_device *other);

/* Flat arithmetic: float32 ranges in memory that the device can read. */

/* to[i] = the sum of from[count][i] by the tree of base/tree.h: ((0 + 1) + (2 + 3)) + 4. The bits
 * do not depend on how a range is cut. `from` may be memory of other devices that this one reaches;
 * `to` may be from[0], and on GPUs any of `from`. */
yoke_status yoke_device_sum(yoke_device *device, yoke_stream stream, float *to,
                            const float *const *from, int count, size_t elements);
/* The same for sums of several contributors each, whose numbers `sizes` are powers of two, as their
 * sum is: each is a subtree. Where memory is shared; `to` may be any of `from`. */
yoke_status yoke_device_sum_subtrees(yoke_device *device, yoke_stream stream, float *to,
                                     const float *const *from, const int *sizes, int count,
                                     size_t elements);
/* Sum of squares in double: over blocks of 4096 elements, whose sums are added in order. `sum` is
 * device memory, [yoke_square_sum_doubles(elements)]: the sum, then scratch. */
yoke_status yoke_device_square_sum(yoke_device *device, yoke_stream stream, const float *values,
                                   size_t elements, double *sum);
size_t yoke_square_sum_doubles(size_t elements);
/* Lowers *first_bad, device memory, to offset + i where values[i] is the first that is not finite;
 * where all are finite it stays. It begins a step at YOKE_ALL_FINITE. */
#define YOKE_ALL_FINITE UINT64_MAX
yoke_status yoke_device_check_finite(yoke_device *device, yoke_stream stream, const float *values,
                                     size_t elements, size_t offset, uint64_t *first_bad);

/* Sets a gate; gate.h says how. Not where memory is shared. */
yoke_status yoke_device_gate(yoke_device *device, yoke_stream stream, yoke_gate *gate,
                             const yoke_gate_request *request);

/* values[i] = kept[i] where the gate is closed. Not where memory is shared. */
yoke_status yoke_device_undo(yoke_device *device, yoke_stream stream, const yoke_gate *gate,
                             float *values, const float *kept, size_t elements);

/* One step of a rule of device/update.h on a range: g = gradient * gradient_scale, then its
 * formula. For yoke_device_undo the old weights and states go to kept_weights, which may be the
 * gradients, and kept_states, even if the gate is closed. NULL: they are not kept, as where memory
 * is shared. A new weight also goes to `shadow`. NULL: nowhere, as where memory is shared. What
 * LAMB and MUON make of a weight goes to `direction`, and the weight stays; for APPLY the direction
 * is the gradient, which nothing scales. */
typedef struct yoke_update_step {
    yoke_update_rule rule;
    yoke_update_scalars scalars;
    float gradient_scale;
    const yoke_gate
        *gate; /* device memory; its gradient_scale is one more factor. NULL: always open */
    float *kept_weights, *kept_states[YOKE_UPDATE_STATES];
    uint16_t *shadow;
    yoke_precision shadow_precision; /* bfloat16 or float16 */
    float *direction;                /* NULL: the rule changes the weights */
    bool applies;                    /* the gradients are such a direction */
    int slot; /* in a recording yoke_plan_step.scalars[slot - 1] count, not `scalars`; 0: these */
} yoke_update_step;
/* states: as many as the rule has. */
yoke_status yoke_device_update(yoke_device *device, yoke_stream stream,
                               const yoke_update_step *step, float *weights, const float *gradients,
                               float *const states[YOKE_UPDATE_STATES], size_t elements);

/* values[i] *= sqrt(*numerator) / max(sqrt(*denominator), epsilon), both sums of squares in device
 * memory; nothing changes where one of them is 0. numerator NULL: 1. */
yoke_status yoke_device_rescale(yoke_device *device, yoke_stream stream, float *values,
                                size_t elements, const double *numerator, const double *denominator,
                                double epsilon);

/* to [rows, columns] = alpha a b + beta c, all plain float32: a is [rows, inner], b [inner,
 * columns], or stored transposed; c NULL: there is none. `to` is none of the others. The bits do
 * not depend on the device's threads. */
typedef struct yoke_product {
    size_t rows, inner, columns;
    const float *a, *b, *c;
    bool transpose_a, transpose_b;
    float alpha, beta;
    float *to;
} yoke_product;
yoke_status yoke_device_product(yoke_device *device, yoke_stream stream,
                                const yoke_product *product);

/* Layouts. */

/* How a tensor lies in memory. bytes includes padding, which is zero and stays so. */
typedef struct yoke_layout {
    size_t bytes;
    uint64_t opaque[8];     /* equal for equal layouts, on every device and in every process */
    const void *descriptor; /* the backend's; valid while the device that made it is open */
} yoke_layout;

/* Row-major float32 of `ndim` <= 5 dimensions. */
yoke_status yoke_layout_plain(yoke_device *device, const int64_t *shape, int ndim,
                              yoke_layout *layout);
bool yoke_layout_equal(const yoke_layout *a, const yoke_layout *b);
uint64_t yoke_layout_digest(const yoke_layout *layout);
/* Converts between layouts, for loading and saving: both ends may be host memory or memory of
 * `device`. Slow, because the host waits. */
yoke_status yoke_layout_convert(yoke_device *device, const yoke_layout *to_layout, void *to,
                                const yoke_layout *from_layout, const void *from);

/* Plans of operations. */

/* In which forms the plans of an engine read a parameter: only those are current on replicas. */
enum { YOKE_FORM_FLOAT32 = 1, YOKE_FORM_SHADOW = 2 };

typedef struct yoke_plan_request {
    const yoke_operation *operation;
    int rows;
    int most_rows; /* of all plans of this operation in an engine, which keys of algorithms name; 0:
                      `rows` */
    bool training;
    bool inference; /* no plan of this model trains: its algorithms are keyed apart, since the
                       parameters have another layout */
    yoke_precision precision;
    yoke_algorithm algorithm;
    bool input_gradient;   /* backward must compute the gradients of the inputs */
    bool frozen;           /* no parameter needs a gradient: convolution and linear compute none */
    bool fixed_statistics; /* batch norm: training computes with the running statistics, too, and
                              leaves them as they are */
    /* Linear: an activation that the plan before computes; it keeps what backward of it reads. This
     * plan may compute that; with input_bias, the gradient of the bias before it, too. */
    const yoke_operation *previous;
    bool input_bias;
    bool input_summed; /* layer norm: the plan may compute input 0, a sum of two in its layout */
    bool input_shared; /* the plan may add the gradient of input 0 to another reader's */
    /* Training. norm_behind: convolution: a batch norm alone reads the output, and the plan may sum
     * up what its statistics need; that norm's plan gets sums_given. norm_before: a norm whose
     * plan shares_saved wrote a convolution's input, and has a ReLU, or what a norm adds, and has
     * none; the plan may read that norm's input instead, and apply the norm. */
    bool norm_behind, norm_before, sums_given;
    bool sole_weight; /* linear: no other plan contributes to the weight's gradient */
    /* Convolution, linear, in inference: operations of which each alone reads the value before it,
     * up to the first NULL: a batch norm, an add, an activation; some may be missing. The plan may
     * compute the first ones, too. `added`: the layout of what the add, or a batch norm that adds,
     * reads beside that value. */
    const yoke_operation *next[YOKE_PLAN_NEXT];
    yoke_layout added;
    /* Linear, elsewhere: next[0] may be an activation. next_backward: in training its backward
     * runs. next_linear: a linear layer alone reads it, whose plan may compute that. */
    bool next_backward, next_linear;
    /* Linear: next[0] is an OUTPUT that alone reads the value, and this is the loss, which reads
     * that; the plan may compute both. NULL: it may not. */
    const yoke_operation *loss;
    yoke_layout
        inputs[YOKE_PLAN_INPUTS]; /* the layouts in which the inputs' producers write them */
    /* bytes = 0: the plan chooses the layout (the model's first plan); otherwise it must use this
     * one. A parameter and its gradient share one layout, in float32 for every precision. */
    yoke_layout parameters[YOKE_PLAN_PARAMETERS];
    unsigned forms[YOKE_PLAN_PARAMETERS]; /* the plan reads one of these; 0: it chooses */
    yoke_algorithms *algorithms; /* the plan measures an unknown shape and adds its algorithm */
    yoke_norm_group *norm_group; /* of a batch norm in training; NULL: it normalises its own rows.
                                    Only where memory is shared */
} yoke_plan_request;

/* What a plan needs; yoke_plan_create fills it in. The gradient of a value has the value's
 * layout. */
typedef struct yoke_plan_needs {
    yoke_layout output;
    yoke_layout parameters[YOKE_PLAN_PARAMETERS];
    size_t saved_bytes;   /* from forward to backward */
    size_t scratch_bytes; /* only while one of the two runs */
    size_t kept_bytes;    /* between forwards, for this layer in all models of a replica */
    /* What forward in inference makes of the parameters, and of the running statistics of the norm
     * that it computes, before it reads them: yoke_plan_pack. Plans of a layer make the same of
     * them where the form is the same, too. 0: nothing. */
    size_t packed_bytes;
    uint64_t packed_form;
    bool backward_reads[YOKE_PLAN_INPUTS]; /* input k must stay intact until backward */
    bool backward_reads_output;            /* and the output */
    /* The output may overwrite input 0; input 0's gradient may overwrite the output gradient. */
    bool forward_in_place, backward_in_place;
    /* With two inputs: input 1's gradient may overwrite the output gradient, input 0's the
     * output. */
    bool joined_in_place;
    bool backward_over_input; /* input 0's gradient may overwrite input 0 */
    /* Both inputs have the same gradient (add): the plan writes input_gradients[0] only. */
    bool shared_input_gradient;
    /* Backward can add input 0's gradient to what is in its place. */
    bool adds_input_gradient;
    /* And in steps that say so those of the parameters. */
    bool adds_parameter_gradients;
    int computes_next; /* so many operations of request.next: the output is that of the last */
    bool keeps_output; /* but its own: next[0]'s is next_output */
    /* The plan computes request.next[0] and the loss. In a step with loss_only, forward runs in the
     * place of the loss's, writes no output, and keeps the gradients for backward in `saved`. In
     * others the two passes are those of the operation and the OUTPUT. */
    bool computes_loss;
    bool computes_sum; /* as the request offers: forward writes input 0 */
    size_t mask_bytes; /* `saved` begins with a mask of what the ReLU let through; 0: none */
    bool computes_previous, sums_input_bias; /* in backward, as the request offers */
    /* As the request offers: the plan sums up its output for the norm behind; it computes the norm
     * before: forward applies it, backward writes the gradient before its ReLU and sums that up. */
    bool sums_output, applies_norm;
    bool shares_saved; /* batch norm: another plan may apply it, by what it saves */
    /* The plan reads parameter k from the binding's `shadows`, not in float32. */
    bool reads_shadow[YOKE_PLAN_PARAMETERS];
} yoke_plan_needs;

/* The addresses of a plan's operands, fixed for the life of the plan. Unused ones are NULL. */
typedef struct yoke_plan_binding {
    void *inputs[YOKE_PLAN_INPUTS];
    void *output;
    float *parameters[YOKE_PLAN_PARAMETERS];
    const void *shadows[YOKE_PLAN_PARAMETERS];         /* the parameters in the compute precision */
    float *parameter_gradients[YOKE_PLAN_PARAMETERS];  /* overwritten by backward */
    float *buffers[2];                                 /* running mean, running variance */
    const float *next_parameters[2], *next_buffers[2]; /* of the batch norm that it computes */
    const void *added; /* and what it adds; it may be the output's place */
    void *output_gradient;
    void *input_gradients[YOKE_PLAN_INPUTS]; /* overwritten by backward */
    bool adds_input_gradient;                /* but input 0's is added to; where the plan can */
    const void *summands[2];    /* of input 0, which may lie in the first one's place */
    void *next_output;          /* where the plan keeps its own output */
    const void *input_aux;      /* of request.previous: its mask, or its input */
    float *input_bias_gradient; /* where it sums that up; the plan before gets NULL for it */
    /* `saved` of the batch norms of which the plan computes a part. The norm before then has no
     * output: NULL. */
    void *norm_behind, *norm_before;
    void *saved, *scratch, *kept;
    /* Written by yoke_plan_pack of such a plan, from the same parameters; forward only reads it.
     * NULL: the plan has its own, and renews it. A plan that had one has one in later bindings. */
    void *packed;
    /* A loss reads and writes these, and so does a plan that computes it. */
    const int32_t *labels;       /* [rows, positions]; cross-entropy */
    const yoke_label_mix *mixes; /* [rows]; cross-entropy, read where the step is mixed */
    const float *targets;        /* [rows, shape of a row]; losses without labels */
    yoke_loss_scalars *scalars;  /* device memory */
    yoke_loss_scalars *on_host;  /* pinned: the loss writes them there, too, where the device takes
                                    the variant "mapped" */
} yoke_plan_binding;

/* create chooses algorithms and may measure them, for which it allocates and runs; bind fixes
 * addresses and may allocate descriptors; forward and backward only queue work and allocate
 * nothing. */
yoke_status yoke_plan_create(yoke_plan **plan, yoke_device *device,
                             const yoke_plan_request *request);
void yoke_plan_destroy(yoke_plan *plan);
const yoke_plan_needs *yoke_plan_describe(const yoke_plan *plan);
yoke_status yoke_plan_bind(yoke_plan *plan, const yoke_plan_binding *binding);
/* Writes packed_bytes, from parameters, shadows, buffers, next_parameters and next_buffers of
 * `from`, all in host memory. The plan stays as it is, so that it may run meanwhile. */
yoke_status yoke_plan_pack(const yoke_plan *plan, const yoke_plan_binding *from, void *packed);
yoke_status yoke_plan_forward(yoke_plan *plan, const yoke_plan_step *step);

yoke_status yoke_plan_backward(yoke_plan *plan, const yoke_plan_step *step);

/* Backward of a convolution and a linear layer has two parts; that of others counts as data. */
typedef enum yoke_direction {
    YOKE_FORWARD,
    YOKE_BACKWARD_DATA,
    YOKE_BACKWARD_WEIGHTS,
    YOKE_DIRECTIONS
} yoke_direction;
/* The algorithm: "cuDNN 1", "im2col", "im2col, no other", "two kernels", oneDNN's name of
 * its own; a static text. NULL: nothing runs in this direction, or the plan has no choice. */
const char *yoke_plan_algorithm(const yoke_plan *plan, yoke_direction direction);
bool yoke_plan_has_parts(const yoke_plan *plan);
/* A part of backward that yoke_plan_algorithm names, alone; to be timed. */
yoke_status yoke_plan_backward_part(yoke_plan *plan, yoke_direction direction);

/* Copies the step's values to the device. Call it before the step's plans are queued or replayed:
 * plans on devices that record read the values there, others read their `step` argument. */
yoke_status yoke_device_begin_step(yoke_device *device, const yoke_plan_step *step);
/* shadow[i] = parameters[i] in bfloat16 or float16, on the compute stream. */
yoke_status yoke_device_shadow(yoke_device *device, yoke_precision precision, uint16_t *shadow,
                               const float *parameters, size_t elements);

/* to += from, elementwise, in this layout: the gradients of two readers of one value. */
yoke_status yoke_device_accumulate(yoke_device *device, const yoke_layout *layout, void *to,
                                   const void *from);

/* Images. */

/* The layout in which the plan of `reader` reads images without a copy of its own, where decode can
 * write it; reader->inputs[0] is plain. It may measure, as the plan does. bytes = 0: there is none,
 * the plan reads plain float32. */
yoke_status yoke_device_image_layout(yoke_device *device, const yoke_plan_request *reader,
                                     yoke_layout *layout);

/* Decodes stored pixels to inputs [rows, image], with the bits that the loader's decoding on the
 * host gives, rounded where `layout` has another type; queued on the compute stream. All pointers
 * but `layout` are device memory. Not where memory is shared. */
typedef struct yoke_decode_request {
    int rows;
    yoke_dims image;
    const uint8_t *pixels;
    const yoke_crop *crops;           /* [rows]: each is scaled to the image; the pixels begin with
                                         the first. NULL: pixels are [rows, image] */
    const yoke_placement *placements; /* NULL: none */
    yoke_decoding decoding;
    const float *decoded; /* NULL; or instead of pixels, inputs in plain float32 to be laid out */
    void *inputs;
    const yoke_layout *layout; /* of yoke_device_image_layout, for any rows; NULL: plain float32 */
} yoke_decode_request;
yoke_status yoke_device_decode(yoke_device *device, const yoke_decode_request *request);

/* Which algorithm is the fastest. */

/* What decides which algorithm is fastest and which bits it gives: the device, the libraries and
 * their versions, in one line. */
void yoke_device_facts(const yoke_device *device, char *text, size_t size);
/* A choice among computations of a room above, measured as a plan's are: candidate 0 by the fixed
 * rule, and on devices that measure none of these. prepare runs only where it is measured. */
typedef struct yoke_contest {
    const char *key;
    yoke_precision precision;
    yoke_algorithm algorithm;
    yoke_algorithms *algorithms;
    const char *const *names; /* [count] */
    int count;
    yoke_status (*prepare)(void *context);            /* the caller undoes it */
    yoke_status (*run)(void *context, int candidate); /* queues one on the compute stream */
    void *context;
} yoke_contest;
yoke_status yoke_device_choose(yoke_device *device, const yoke_contest *contest, int *best);

#endif
