/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of the oneDNN loop share: a network as a list of operations, and the device that
 * runs it. */
#ifndef BENCH_ONEDNN_LOOP_PARTS_H
#define BENCH_ONEDNN_LOOP_PARTS_H

#include "device/cpu/onednn.h" /* one face of oneDNN 2 and 3 */
#include "onednn_loop.h"

#define LOOP_CLASSES 10
#define LOOP_IMAGE 32

/* Ends the program when a oneDNN call fails. */
#define MUST(call) loop_must((call), #call)
void loop_must(dnnl_status_t status, const char *call);

/* A primitive with its arguments bound. */
typedef struct loop_call {
    dnnl_primitive_t primitive; /* NULL: nothing to run */
    int count;
    dnnl_exec_arg_t arguments[12];
} loop_call;

/* One activation [rows, channels, size, size] in nChw16c, or nchw for the input. gradients: the
 * buffers whose sum is its gradient; one for each reader. */
typedef struct loop_value {
    int channels, size;
    const cpu_desc *desc;
    size_t elements, bytes;
    void *data;
    int gradient_count;
    int gradients[2]; /* indices into loop_device.buffers */
} loop_value;

/* A tensor of the flat parameter buffer. desc is the layout its gradient is computed in. */
typedef struct loop_parameter {
    char name[48];
    const cpu_desc *plain, *desc;
    size_t offset, bytes;
    float initial; /* what a vector starts from; matrices and filters are drawn */
} loop_parameter;

typedef enum loop_kind { LOOP_CONV, LOOP_NORM, LOOP_ADD, LOOP_MAX_POOL, LOOP_HEAD } loop_kind;

typedef struct loop_op {
    loop_kind kind;
    int input, other, output; /* values; other: the shortcut of an addition */
    int parameter;            /* the first of this operation's */
    int kernel, stride, padding;
    bool relu;
    dnnl_alg_kind_t algorithms[CPU_DIRECTIONS];
    loop_call forward, backward, backward_weights;
    loop_call forward_reorder, backward_reorder; /* weights from the flat buffer's layout */
    void *forward_weights, *backward_weights_copy;
    float *mean, *variance, *running; /* running: mean then variance */
    void *workspace;
} loop_op;

/* A gradient buffer; passes from value to value as backward goes on. */
typedef struct loop_buffer {
    void *data;
    size_t bytes;
    int users;
} loop_buffer;

#define LOOP_VALUES 256
#define LOOP_OPS 192
#define LOOP_PARAMETERS 192
#define LOOP_ALLOCATIONS 1024

typedef struct loop_device {
    const onednn_loop_options *options;
    const struct loop_device *root; /* whose algorithms this one uses; NULL: measure */
    dnnl_engine_t engine;
    dnnl_stream_t stream;
    cpu_descs descs;
    dnnl_data_type_t type;
    loop_value values[LOOP_VALUES];
    loop_op ops[LOOP_OPS];
    loop_parameter parameters[LOOP_PARAMETERS];
    loop_buffer buffers[LOOP_VALUES];
    int value_count, op_count, parameter_count, buffer_count;
    float *weights, *gradients; /* flat, the same offsets on every device */
    size_t flat_elements;
    void *scratch;
    size_t scratch_bytes;
    float *input; /* nchw float32, as the batch gives it */
    int32_t *labels;
    loop_call upload; /* input to the input value */
    float *pooled, *pooled_gradient, *logits;
    double loss; /* sum over this device's rows */
    void *allocations[LOOP_ALLOCATIONS];
    int allocation_count;
} loop_device;

/* onednn_device.c: memory and calls. Memory is zeroed, 64-byte aligned and freed with the device.
 */
void *loop_allocate(loop_device *device, size_t bytes);
void loop_bind(loop_device *device, loop_call *call, int argument, const cpu_desc *desc,
               void *data);
/* The descriptor a primitive uses for an argument; NULL: it has none. */
const cpu_desc *loop_desc(loop_device *device, const_dnnl_primitive_desc_t description,
                          int argument);
/* Makes the primitive, remembers its scratchpad and frees the description. */
void loop_make(loop_device *device, loop_call *call, dnnl_primitive_desc_t description);
void loop_reorder(loop_device *device, loop_call *call, const cpu_desc *from, void *from_data,
                  const cpu_desc *to, void *to_data);
void loop_execute(const loop_device *device, const loop_call *call);
void loop_call_destroy(loop_call *call); /* takes zeroed ones */
/* Points every call at the device's scratchpad, once its size is known. */
void loop_bind_scratch(loop_device *device);
void loop_device_create(loop_device *device);
void loop_device_destroy(loop_device *device);

/* What the stride leaves over at the end is not padding. */
static inline dnnl_dim_t loop_padding_end(const loop_op *op, dnnl_dim_t in, dnnl_dim_t out) {
    return (out - 1) * op->stride + op->kernel - in - op->padding;
}

/* onednn_network.c: the list of operations. */
bool loop_network_build(loop_device *device, const char *name);

/* onednn_convolution.c, onednn_layers.c: the primitives of one operation. */
void loop_conv_choose(loop_device *device, loop_op *op);
void loop_conv_build(loop_device *device, loop_op *op);
void loop_conv_build_backward(loop_device *device, loop_op *op, void *output_gradient,
                              void *input_gradient);
void loop_norm_build(loop_device *device, loop_op *op);
void loop_norm_build_backward(loop_device *device, loop_op *op, void *output_gradient,
                              void *input_gradient);
void loop_pool_build(loop_device *device, loop_op *op);
void loop_pool_build_backward(loop_device *device, loop_op *op, void *output_gradient,
                              void *input_gradient);

/* onednn_kernels.c: what oneDNN does not fuse. All run with the calling thread's OpenMP threads. */
/* out = max(0, out + other) */
void loop_add_relu(void *out, const void *other, size_t count, bool narrow);
/* gradient = (gradient + extra) * (out > 0); extra may be NULL */
void loop_relu_gradient(void *gradient, const void *extra, const void *out, size_t count,
                        bool narrow);
void loop_accumulate(void *to, const void *from, size_t count, bool narrow);
/* Average over the image, linear layer, softmax cross-entropy, and all the way back to the gradient
 * of the last activation. */
void loop_head(loop_device *device, const loop_op *op, int whole_rows);
void loop_running_statistics(const loop_device *device, const loop_op *op);
/* weights[0..device_count) -= rate * (velocity = momentum * velocity + sum of gradients + decay) */
typedef struct loop_update {
    float *weights[2], *gradients[2], *velocity;
    int devices;
    float learning_rate, momentum, weight_decay;
} loop_update;
void loop_exchange(const loop_update *update, size_t begin, size_t end);

/* One forward and backward pass. */
void loop_forward_backward(loop_device *device, int whole_rows);

#endif
