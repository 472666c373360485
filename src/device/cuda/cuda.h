/* SPDX-License-Identifier: Apache-2.0 */
/* The CUDA room, for its own .c files only: the device and what the operations share. No CUDA name
 * leaves this folder. Kernels are in .cu files; kernels.h declares their launchers. */
#ifndef DEVICE_CUDA_CUDA_H
#define DEVICE_CUDA_CUDA_H

#include <cuda_runtime_api.h>
#include <sched.h>

#include "device/backend.h"
#include "device/cuda/kernels.h"
#include "device/cuda/library.h"
#include "device/cuda/product_epilogue.h"

/* cuBLASLt's workspace, one for each device. Simulated products need none, and tests open many
 * devices. */
#ifdef YOKE_SIMCUDA
#define CUDA_WORKSPACE_BYTES ((size_t)64 << 10)
#else
#define CUDA_WORKSPACE_BYTES ((size_t)32 << 20)
#endif

typedef struct cuda_device {
    yoke_device base;
    int ordinal;    /* of the GPU, as CUDA counts; several devices may share one */
    int capability; /* 90: 9.0 */
    int processors; /* streaming multiprocessors */
    cpu_set_t near; /* cores to queue its work from; none: any (near.h) */
    bool limited;   /* no thread that works for it may leave them */
    cudaStream_t streams[YOKE_STREAMS];
    cublasLtHandle_t lt;
    cudnnHandle_t cudnn;       /* NULL: not in this build, not on this machine, or it fails */
    void *workspace;           /* CUDA_WORKSPACE_BYTES, for the compute stream */
    cuda_step *step;           /* device memory: the values that change from step to step */
    unsigned *arrivals;        /* [CUDA_ARRIVALS] device memory, for the compute stream */
    uint64_t reach;            /* bit i: memory of GPU i can be read in place */
    uint64_t contest_ended_ns; /* the latest of choose.c; 0: none yet */
    struct cuda_kept_product *products; /* of cuda_multiply; NULL: none yet */
    struct cuda_staging *stagings;      /* for GPUs whose direct copies are wrong; NULL: none */
    char note[128];                     /* a remark about it for yoke devices */
    /* The sticky error that made this GPU unusable, and the call that returned it; written once.
     * The process continues. */
    _Atomic(cudaError_t) poison;
    _Atomic(const char *) poison_call;
} cuda_device;

static inline cuda_device *cuda_of(yoke_device *device) {
    return (cuda_device *)device;
}

static inline bool cuda_takes(const cuda_device *device, yoke_variant variant) {
    return (device->base.variants & (unsigned)variant) != 0;
}

static inline cudaStream_t cuda_compute(const yoke_plan *plan) {
    return cuda_of(plan->device)->streams[YOKE_STREAM_COMPUTE];
}

/* current.c: the thread's current GPU. cuda_use sets it: entries that a worker calls for any device
 * begin with it; plans run on their device's worker, which has entered it. Entries that any thread
 * may call visit, and return to what was current before. */
yoke_status cuda_use(yoke_device *device);
yoke_status cuda_visit(yoke_device *device, int *before);
int cuda_current(void);
cudaError_t cuda_set_current(int ordinal);
void cuda_return_to(int ordinal);
void cuda_forget_current(void); /* code of the host program has run on this thread */
yoke_status cuda_enter(yoke_device *device, bool bind, yoke_device_scope *scope);
void cuda_step_out(yoke_device *device, const yoke_device_scope *scope);
void cuda_leave(yoke_device *device, const yoke_device_scope *scope);
yoke_status cuda_come_back(yoke_device *device);

bool cuda_poisoned(const cuda_device *device);
yoke_status cuda_check_poison(cuda_device *device); /* DEVICE: a sticky error came before */

/* Runs a call. A failure returns a yoke_status and one line with device, call, and CUDA's name and
 * text of the error. Sticky errors poison the device. `device` may be NULL. */
#define TRY_CUDA(device, call)                                                                     \
    do {                                                                                           \
        cudaError_t cuda_error_ = (call);                                                          \
        if (cuda_error_ != cudaSuccess) return cuda_failed(device, cuda_error_, #call);            \
    } while (0)
#define TRY_LT(device, call)                                                                       \
    do {                                                                                           \
        cublasStatus_t lt_status_ = (call);                                                        \
        if (lt_status_ != CUBLAS_STATUS_SUCCESS) return cuda_lt_failed(device, lt_status_, #call); \
    } while (0)
#define TRY_CUDNN(device, call)                                                                    \
    do {                                                                                           \
        cudnnStatus_t cudnn_status_ = (call);                                                      \
        if (cudnn_status_ != CUDNN_STATUS_SUCCESS)                                                 \
            return cuda_cudnn_failed(device, cudnn_status_, #call);                                \
    } while (0)
/* `call` is a literal: a poisoned device keeps it. */
yoke_status cuda_failed(cuda_device *device, cudaError_t error, const char *call);
yoke_status cuda_lt_failed(cuda_device *device, cublasStatus_t status, const char *call);
yoke_status cuda_cudnn_failed(cuda_device *device, cudnnStatus_t status, const char *call);

/* Layouts: logical dimensions are PyTorch's ([rows, channels, height, width]; weights [out, in /
 * groups, k, k]; a plain grouped weight [groups, out / groups, in / groups, k, k] means the same
 * bytes). In memory, values and weights are channels last (NHWC; [out, k, k, in / groups]). Where
 * both orders are the same (one pixel, or one channel) the layout is plain. */
typedef struct cuda_layout {
    cuda_type type;
    bool channels_last;
    int ndim;
    int64_t dims[5];
} cuda_layout;
_Static_assert(sizeof(cuda_layout) <= sizeof((yoke_layout *)0)->opaque, "a layout fits");

void cuda_layout_store(yoke_layout *layout, const cuda_layout *own); /* bytes included */
const cuda_layout *cuda_layout_of(const yoke_layout *layout);
/* [rows, dims], channels last (a sequence: plain), in the compute type of a precision. */
cuda_layout cuda_value_layout(int rows, yoke_dims dims, yoke_precision precision);
size_t cuda_elements(const cuda_layout *layout);
cuda_type cuda_compute_type(yoke_precision precision);
/* Queues to = from in the order and type of `to` (values or weights of the same dims). Channels
 * last may have more channels than plain float32 images, the last ones zero. */
yoke_status cuda_reorder(cuda_device *device, const cuda_layout *to_layout, void *to,
                         const cuda_layout *from_layout, const void *from);
yoke_status cuda_layout_plain(yoke_device *device, const int64_t *shape, int ndim,
                              yoke_layout *layout);
yoke_status cuda_layout_convert(yoke_device *device, const yoke_layout *to_layout, void *to,
                                const yoke_layout *from_layout, const void *from);

static inline size_t cuda_aligned(size_t bytes) {
    return (bytes + 255) / 256 * 256;
}

/* Matrix products, row-major: output[m, n] = a[m, k] * b[k, n] + bias[n], where a and b may be
 * stored transposed; sums are float32. product.c plans them for linear, one-pixel and 1x1
 * convolutions, and im2col. */
typedef struct cuda_matrix {
    cuda_type type;
    bool transposed; /* stored [columns, rows] */
    int64_t stride;  /* elements from row to row as stored; 0: dense */
} cuda_matrix;
/* The library's own description of an algorithm, as text: id, tile, stages, splits of k, reduction
 * scheme, swizzling, custom option, inner shape and cluster shape, "21:20:35:1:0:0:0:0:0". It means
 * the same kernel for every shape that the kernel serves; a rank in the library's list does not. */
#define CUDA_CONFIGURATION_BYTES 64
typedef struct cuda_product_shape {
    int64_t m, n, k;
    int batch;                           /* 0 or 1: one product */
    int64_t a_step, b_step, output_step; /* elements from one of the batch to the next */
    cuda_matrix a, b, output;
    cuda_epilogue epilogue;
    bool bias;                 /* [n], added to every row; float32 without an epilogue */
    bool add;                  /* output += */
    bool tf32;                 /* may round float32 operands to TF32 */
    bool atomics;              /* may add in another order in each run */
    bool beside;               /* runs on any stream, without the compute stream's workspace */
    int algorithm;             /* rank in the library's list: 0 is its best guess */
    const char *configuration; /* instead of a rank, while planning; NULL: the rank */
    int alignment;             /* of operand addresses, in bytes; 0: 16 */
} cuda_product_shape;
#define CUDA_PRODUCT_ALGORITHMS 8
typedef struct cuda_product cuda_product;
/* *product is NULL, without an error, where shape->algorithm > 0 and the library has fewer
 * algorithms, or has none with this epilogue, or does not compute this shape by the configuration.
 */
yoke_status cuda_product_create(cuda_product **product, cuda_device *device,
                                const cuda_product_shape *shape);
/* The configuration of its algorithm. */
yoke_status cuda_product_configuration(const cuda_product *product,
                                       char text[CUDA_CONFIGURATION_BYTES]);
/* Whether a text is a configuration. */
bool cuda_is_configuration(const char *text);
void cuda_product_destroy(cuda_product *product);
yoke_status cuda_product_run(const cuda_product *product, const void *a, const void *b,
                             const void *bias, void *output);
/* With an epilogue; of these operands those that it has. */
typedef struct cuda_beside {
    const void *bias; /* [n], of the output's type */
    void *aux;        /* aligned to 16 bytes */
    float *sums;      /* [n] */
} cuda_beside;
yoke_status cuda_product_run_beside(const cuda_product *product, const void *a, const void *b,
                                    const cuda_beside *beside, void *output);
/* output += a * b, of a shape without bias. */
yoke_status cuda_product_add(const cuda_product *product, const void *a, const void *b,
                             void *output);
/* output = alpha a b + beta c, of a shape `beside` without bias. */
typedef struct cuda_combination {
    float alpha, beta;
    const void *a, *b, *c;
} cuda_combination;
yoke_status cuda_product_combine(const cuda_product *product, yoke_stream stream,
                                 const cuda_combination *of, void *output);
void cuda_products_clear(cuda_device *device); /* those that cuda_multiply keeps */

/* Tuning: times the candidates for one pass on probe data and chooses the fastest. With
 * YOKE_ALGORITHM_DIRECT it chooses the first; a key known to `algorithms` is not measured again. */
typedef struct cuda_candidate {
    const char *name; /* means the same for every shape and device: the record holds it */
    /* NULL: does not exist for this shape. DEVICE: it fails for this shape. */
    yoke_status (*run)(void *context, int candidate);
} cuda_candidate;
typedef struct cuda_tuning {
    cuda_device *device;
    const yoke_plan_request *request;
    const char *key; /* shape and pass */
    const cuda_candidate *candidates;
    int count;
    void *context;
    /* yoke_algorithm_names's, for candidates whose names are known only once they are made; NULL:
     * they have their names. */
    yoke_status (*take)(void *taker, const char *name, int *candidate);
    void *taker;
} cuda_tuning;
yoke_status cuda_choose(const cuda_tuning *tuning, int *best);
/* Whether the choice is known without timing; of the candidates it reads only the names. *best is 0
 * where a fixed rule decides. DATA: rank 0 chose what this device lacks. */
yoke_status cuda_chosen(const cuda_tuning *tuning, bool *chosen, int *best);
/* What cuda_choose does with an unknown key: times the candidates, or, once the time for measuring
 * is over, records what a fixed rule chose. */
yoke_status cuda_measure(const cuda_tuning *tuning, int *best);
yoke_status cuda_assume(const cuda_tuning *tuning, const char *name);
/* cuda_choose up to cuda_measure: a plan then makes no operands that nobody measures. */
yoke_status cuda_settled(const cuda_tuning *tuning, bool *settled, int *best);
yoke_status cuda_choose_for(yoke_device *device, const yoke_contest *contest, int *best);

/* Planners: of operations that choose among algorithms, and in operations.c of all others. */
typedef yoke_status cuda_planner(yoke_plan **plan, cuda_device *device,
                                 const yoke_plan_request *request);
cuda_planner cuda_plan_convolution, cuda_plan_transposed_convolution, cuda_plan_linear,
    cuda_plan_batch_norm, cuda_plan_loss;
cuda_planner cuda_plan_recurrence, cuda_plan_constant, cuda_plan_attention;
cuda_planner cuda_plan_kernels;

/* arithmetic.c */
yoke_status cuda_sum(yoke_device *device, yoke_stream stream, float *to, const float *const *from,
                     int count, size_t elements);
yoke_status cuda_square_sum(yoke_device *device, yoke_stream stream, const float *values,
                            size_t elements, double *sum);
yoke_status cuda_check_finite(yoke_device *device, yoke_stream stream, const float *values,
                              size_t elements, size_t offset, uint64_t *first_bad);
yoke_status cuda_gate(yoke_device *device, yoke_stream stream, yoke_gate *gate,
                      const yoke_gate_request *request);
yoke_status cuda_undo(yoke_device *device, yoke_stream stream, const yoke_gate *gate, float *values,
                      const float *kept, size_t elements);
yoke_status cuda_update(yoke_device *device, yoke_stream stream, const yoke_update_step *step,
                        float *weights, const float *gradients,
                        float *const states[YOKE_UPDATE_STATES], size_t elements);
yoke_status cuda_rescale(yoke_device *device, yoke_stream stream, float *values, size_t elements,
                         const double *numerator, const double *denominator, double epsilon);
yoke_status cuda_multiply(yoke_device *device, yoke_stream stream, const yoke_product *product);
yoke_status cuda_shadow(yoke_device *device, yoke_precision precision, uint16_t *shadow,
                        const float *parameters, size_t elements);
yoke_status cuda_accumulate(yoke_device *device, const yoke_layout *layout, void *to,
                            const void *from);
yoke_status cuda_decode(yoke_device *device, const yoke_decode_request *request);
/* convolution.c: it says how its plans read images. */
yoke_status cuda_image_layout(yoke_device *device, const yoke_plan_request *reader,
                              yoke_layout *layout);

/* order.c: events and recordings. peers.c: access, self test, copies. nccl.c, communicator.c.
 * describe.c. */
yoke_status cuda_event_create(yoke_device_event **event, yoke_device *device, bool timed);
yoke_status cuda_event_elapsed(yoke_device_event *from, yoke_device_event *to,
                               double *milliseconds);
void cuda_event_destroy(yoke_device_event *event);
yoke_status cuda_event_record(yoke_device_event *event, yoke_stream stream);
yoke_status cuda_event_wait(yoke_device_event *event, yoke_device *device, yoke_stream stream);
yoke_status cuda_event_synchronize(yoke_device_event *event);
yoke_status cuda_event_record_host(yoke_device_event *event, void *stream);
yoke_status cuda_event_wait_host(yoke_device_event *event, yoke_device *device, void *stream);
yoke_status cuda_begin_step(yoke_device *device, const yoke_plan_step *step);
yoke_status cuda_record_begin(yoke_device *device);
yoke_status cuda_record_end(yoke_device *device, yoke_recording **recording);
yoke_status cuda_record_run(yoke_recording *recording);
void cuda_record_destroy(yoke_recording *recording);
yoke_status cuda_connect(yoke_device *const *devices, int count);
yoke_peer_path cuda_path(const yoke_device *device, const yoke_device *other);
void cuda_close_staging(cuda_device *device);
yoke_status cuda_copy(yoke_device *to_device, yoke_stream stream, void *to,
                      yoke_device *from_device, const void *from, size_t bytes);
yoke_status cuda_allocate_collective(yoke_device *device, size_t bytes, void **memory);
void cuda_release_collective(yoke_device *device, void *pointer);
yoke_status cuda_nccl_group(yoke_device_group **group, const yoke_device_group_request *request);
yoke_status cuda_communicator_check(void);
yoke_status cuda_communicator_id(yoke_device *device, uint8_t *id);
yoke_status cuda_communicator(yoke_communicator **communicator,
                              const yoke_communicator_request *request);
void cuda_describe(const yoke_device *device, yoke_device_info *info);
/* The number of GPUs; DEVICE, with reason and cure, when none is usable. */
yoke_status cuda_count(int *count);
/* DEVICE, with the option to build for it, when this build has no code for the current GPU. */
yoke_status cuda_check_code(cuda_device *device);

#endif
