/* SPDX-License-Identifier: Apache-2.0 */
/* The CPU room, for its own files only: the device, and the oneDNN calls its operations share. */
#ifndef DEVICE_CPU_CPU_H
#define DEVICE_CPU_CPU_H

#include <pthread.h>
#include <sched.h>

#include "device/backend.h"
#include "device/cpu/onednn.h"

/* The conversions that this device has made, for the next tensor of the same layouts. Engines share
 * a device, so a thread takes its turn. */
typedef struct cpu_conversions {
    pthread_mutex_t turn;
    struct cpu_conversion *first;
} cpu_conversions;

typedef struct cpu_device {
    yoke_device base;
    dnnl_engine_t engine;
    dnnl_stream_t stream;
    cpu_descs descs; /* the descriptors of all its plans and layouts */
    cpu_conversions conversions;
    cpu_set_t cores; /* the cores it is bound to; empty: unbound */
    bool limited;    /* no thread that works for it may leave them */
    bool spread;     /* a bound thread takes one of them; otherwise all */
    bool bound;      /* its worker is, between enter and leave */
    char nodes[32];  /* the memory nodes of its cores; "": there is one, or it is unbound */
} cpu_device;

static inline cpu_device *cpu_of(yoke_device *device) {
    return (cpu_device *)device;
}

#define CPU_LINE ((size_t)64) /* bytes of a cache line */

/* The smallest multiple of `alignment` that holds `bytes`. */
static inline size_t cpu_align(size_t bytes, size_t alignment) {
    return (bytes + alignment - 1) / alignment * alignment;
}

/* The compute threads of the calling thread. */
yoke_status cpu_start_team(yoke_device *device);
void cpu_end_team(yoke_device *device);
void cpu_hold_signals(yoke_device *device);
void cpu_release_signals(yoke_device *device);

/* Whether a loop over so many elements is worth a team. */
static inline bool cpu_is_parallel(int threads, size_t elements) {
    return threads > 1 && elements >= (size_t)1 << 14;
}

/* Zeroes memory with the device's threads. */
void cpu_clear(cpu_device *device, void *memory, size_t bytes);

/* Runs a oneDNN call. A failure returns a yoke_status and one line that names the call. */
#define TRY_DNNL(call)                                                                             \
    do {                                                                                           \
        dnnl_status_t dnnl_status_ = (call);                                                       \
        if (dnnl_status_ != dnnl_success) return cpu_dnnl_failed(dnnl_status_, #call);             \
    } while (0)
yoke_status cpu_dnnl_failed(dnnl_status_t status, const char *call);
/* A team's threads share `status`: one of their failures stays in it. */
static inline void cpu_keep_failure(dnnl_status_t *status, dnnl_status_t own) {
    if (own == dnnl_success) return;
#pragma omp atomic write
    *status = own;
}

/* A layout points to a descriptor of the device that made it. */
void cpu_layout_store(yoke_layout *layout, const cpu_desc *desc);
/* Replaces the descriptor by this device's equal one. Descriptors of one device are equal if their
 * pointers are. */
yoke_status cpu_layout_adopt(yoke_layout *layout, cpu_device *device);
const cpu_desc *cpu_layout_desc(const yoke_layout *layout); /* NULL: a zeroed layout */

/* A primitive with its arguments bound: executing it allocates nothing. */
#define CPU_CALL_ARGUMENTS 12
typedef struct cpu_call {
    dnnl_primitive_t primitive; /* NULL: nothing to run */
    int count;
    dnnl_exec_arg_t arguments[CPU_CALL_ARGUMENTS]; /* the call owns the memory objects */
    void *scratch;                                 /* a reorder's */
} cpu_call;

yoke_status cpu_call_run(const cpu_call *call, cpu_device *device);
void cpu_call_destroy(cpu_call *call); /* primitive and memories; takes zeroed calls */

/* Primitives. */

/* The DNNL_ARG_... that operations of this room use. */
#define CPU_PRIMITIVE_ARGUMENTS 17

typedef struct cpu_primitive {
    dnnl_primitive_desc_t description;              /* NULL: no such pass */
    const cpu_desc *descs[CPU_PRIMITIVE_ARGUMENTS]; /* see cpu_primitive_desc */
    cpu_call call;
} cpu_primitive;

/* DEVICE: oneDNN has no such primitive. The caller provides the scratchpad. */
yoke_status cpu_primitive_create(cpu_primitive *primitive, cpu_device *device,
                                 const cpu_operation *operation);
void cpu_primitive_destroy(cpu_primitive *primitive); /* accepts zeroed and half-built ones */

/* The descriptor the primitive chose for an execution argument (DNNL_ARG_DST, ...); NULL when it
 * has no such argument. */
const cpu_desc *cpu_primitive_desc(const cpu_primitive *primitive, int argument);
/* Bytes of an argument; 0 when there is none. */
size_t cpu_primitive_bytes(const cpu_primitive *primitive, int argument);
size_t cpu_primitive_scratch(const cpu_primitive *primitive); /* bytes; 0 for no pass */

typedef struct cpu_address {
    int argument;
    void *address;
} cpu_address;

#define CPU_LAST_ADDRESS                                                                           \
    { -1, NULL }

/* Binds every argument of the list with the descriptor that the primitive chose; skips entries with
 * argument 0. Replaces an earlier binding. */
yoke_status cpu_primitive_bind(cpu_primitive *primitive, cpu_device *device,
                               const cpu_address *addresses, void *scratch);

/* First member of a plan with one primitive for each pass, and the functions of such a plan. */
typedef struct cpu_primitive_plan {
    yoke_plan base;
    cpu_primitive forward, backward;
} cpu_primitive_plan;

yoke_status cpu_primitive_plan_forward(yoke_plan *plan, const yoke_plan_step *step);
yoke_status cpu_primitive_plan_backward(yoke_plan *plan, const yoke_plan_step *step);
void cpu_primitive_plan_destroy(yoke_plan *plan); /* also frees the plan */
/* The larger of the two passes' bytes. */
size_t cpu_primitive_plan_scratch(const cpu_primitive_plan *plan);

dnnl_data_type_t cpu_data_type(yoke_precision precision); /* f32 or bf16 */
/* values[at] of float32 values or, with `half`, of bfloat16. */
static inline float cpu_load(const void *values, size_t at, bool half) {
    return half ? yoke_bfloat16_widen(((const uint16_t *)values)[at]) : ((const float *)values)[at];
}
static inline void cpu_store(void *values, size_t at, bool half, float value) {
    if (half)
        ((uint16_t *)values)[at] = yoke_bfloat16_round(value);
    else
        ((float *)values)[at] = value;
}
/* A value's four dimensions (yoke_dims_shape) in `tag` (dnnl_format_tag_any allowed). */
yoke_status cpu_value_desc(const cpu_desc **desc, cpu_device *device, int rows, yoke_dims dims,
                           dnnl_data_type_t type, dnnl_format_tag_t tag);
/* Makes the output of a plan plain, in `type`. */
yoke_status cpu_plan_plain_output(yoke_plan *plan, const yoke_plan_request *request,
                                  dnnl_data_type_t type);
/* DEVICE: oneDNN cannot reorder one layout to the other. */
yoke_status cpu_reorder_check(cpu_device *device, const cpu_desc *from, const cpu_desc *to);
/* A reorder from one descriptor to another, with bound addresses: argument 0 and 1. If the two are
 * equal, the call stays empty and cpu_call_run does nothing. */
yoke_status cpu_reorder(cpu_call *call, cpu_device *device, const cpu_desc *from,
                        void *from_address, const cpu_desc *to, void *to_address);

/* yoke_layout_convert: only the first conversion between two layouts allocates. */
yoke_status cpu_layout_convert(yoke_device *device, const yoke_layout *to_layout, void *to,
                               const yoke_layout *from_layout, const void *from);
void cpu_conversions_clear(cpu_device *device);

/* Measuring: small random values, never zeros or denormals. */
void cpu_probe_fill(void *memory, const cpu_desc *desc);

/* One planner for each kind of operation; backend.c has their table. */
typedef yoke_status cpu_planner(yoke_plan **plan, cpu_device *device,
                                const yoke_plan_request *request);
cpu_planner cpu_plan_convolution, cpu_plan_transposed_convolution, cpu_plan_linear;
cpu_planner cpu_plan_batch_norm, cpu_plan_layer_norm;
cpu_planner cpu_plan_activation, cpu_plan_gelu, cpu_plan_softmax, cpu_plan_pooling,
    cpu_plan_adaptive_pool;
cpu_planner cpu_plan_add, cpu_plan_multiply, cpu_plan_channel_scale, cpu_plan_concat;
cpu_planner cpu_plan_embedding, cpu_plan_positions, cpu_plan_class_token, cpu_plan_select;
cpu_planner cpu_plan_recurrence, cpu_plan_attention, cpu_plan_dropout, cpu_plan_reshape,
    cpu_plan_loss;
cpu_planner cpu_plan_expression, cpu_plan_reduction, cpu_plan_row_shape, cpu_plan_move;
cpu_planner cpu_plan_matmul, cpu_plan_parameter, cpu_plan_constant, cpu_plan_host;
cpu_planner cpu_plan_continued_positions, cpu_plan_continued_attention;

/* Flat arithmetic, in arithmetic.c. */
yoke_status cpu_sum(yoke_device *device, yoke_stream stream, float *to, const float *const *from,
                    int count, size_t elements);
yoke_status cpu_sum_subtrees(yoke_device *device, yoke_stream stream, float *to,
                             const float *const *from, const int *sizes, int count,
                             size_t elements);
yoke_status cpu_square_sum(yoke_device *device, yoke_stream stream, const float *values,
                           size_t elements, double *sum);
yoke_status cpu_check_finite(yoke_device *device, yoke_stream stream, const float *values,
                             size_t elements, size_t offset, uint64_t *first_bad);
yoke_status cpu_update(yoke_device *device, yoke_stream stream, const yoke_update_step *step,
                       float *weights, const float *gradients,
                       float *const states[YOKE_UPDATE_STATES], size_t elements);
yoke_status cpu_rescale(yoke_device *device, yoke_stream stream, float *values, size_t elements,
                        const double *numerator, const double *denominator, double epsilon);
yoke_status cpu_product(yoke_device *device, yoke_stream stream, const yoke_product *product);
yoke_status cpu_shadow(yoke_device *device, yoke_precision precision, uint16_t *shadow,
                       const float *parameters, size_t elements);
yoke_status cpu_accumulate(yoke_device *device, const yoke_layout *layout, void *to,
                           const void *from);

#endif
