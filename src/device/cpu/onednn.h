/* SPDX-License-Identifier: Apache-2.0 */
/* oneDNN for the CPU room and its benchmarks, the same in versions 2 and 3. onednn.c holds the
 * common part; CMake compiles onednn_2.c or onednn_3.c, which implement the same functions. No
 * dnnl_ name leaves this folder. */
#ifndef DEVICE_CPU_ONEDNN_H
#define DEVICE_CPU_ONEDNN_H

#include <dnnl.h>
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Ends oneDNN's prints, which go to the host program's stdout; once in a process, so that the
 * program may have them again. */
void cpu_onednn_be_silent(void);

/* A memory descriptor: oneDNN's own, and its fields for reading. */
typedef struct cpu_desc {
    struct cpu_desc *next;
    void *onednn;    /* version 2: dnnl_memory_desc_t *; version 3: dnnl_memory_desc_t */
    uint64_t digest; /* of the fields below */
    int ndims;
    dnnl_data_type_t type;
    dnnl_dims_t dims, padded_dims;
    bool is_blocked; /* the fields below describe the whole layout */
    dnnl_dims_t strides;
    dnnl_dim_t offset; /* of the first element, in elements */
    int inner_count;   /* blocks inside the strides, the outermost first */
    dnnl_dims_t inner_blocks, inner_dims;
    size_t bytes; /* 0: layout not chosen yet, or a part of a tensor */
} cpu_desc;

/* Owns descriptors until cpu_descs_clear. Equal descriptors are one object: compare pointers.
 * Zeroed: empty. Threads may share it. */
typedef struct cpu_descs {
    pthread_mutex_t turn;
    cpu_desc *first;
} cpu_descs;

void cpu_descs_clear(cpu_descs *descs);

/* [dims] in the layout `tag`; dnnl_format_tag_any lets the primitive choose. */
dnnl_status_t cpu_desc_by_tag(const cpu_desc **desc, cpu_descs *descs, int ndims,
                              const dnnl_dims_t dims, dnnl_data_type_t type, dnnl_format_tag_t tag);
/* strides NULL: row-major. */
dnnl_status_t cpu_desc_by_strides(const cpu_desc **desc, cpu_descs *descs, int ndims,
                                  const dnnl_dims_t dims, dnnl_data_type_t type,
                                  const dnnl_dims_t strides);
/* The same memory seen with other dimensions. */
dnnl_status_t cpu_desc_reshape(const cpu_desc **desc, cpu_descs *descs, const cpu_desc *from,
                               int ndims, const dnnl_dims_t dims);
/* The same memory seen with two dimensions exchanged. */
dnnl_status_t cpu_desc_exchange(const cpu_desc **desc, cpu_descs *descs, const cpu_desc *from,
                                int first, int second);
/* The part of `whole` that begins at `offsets`. */
dnnl_status_t cpu_desc_part(const cpu_desc **desc, cpu_descs *descs, const cpu_desc *whole,
                            const dnnl_dims_t dims, const dnnl_dims_t offsets);

/* This list's equal of another list's descriptor; allocates only where it has none. */
dnnl_status_t cpu_desc_copy(const cpu_desc **desc, cpu_descs *descs, const cpu_desc *from);

/* From the whole tensor's first byte to the end of what `desc` covers. */
size_t cpu_desc_span(const cpu_desc *desc);
/* The elements from index 0 of a dimension to `index`. The offset of an element is the sum of those
 * of its indices, in blocked layouts, too. */
ptrdiff_t cpu_desc_offset(const cpu_desc *desc, int dimension, int index);

/* One operation in one direction. A gradient has the descriptor of its value. */
typedef enum cpu_operation_kind {
    CPU_CONVOLUTION,   /* source, weights, bias (NULL: none), destination, strides, dilation,
                          padding */
    CPU_DECONVOLUTION, /* likewise; the padding takes away from the destination */
    CPU_PRODUCT,       /* inner product: source, weights, bias, destination */
    CPU_MATMUL,        /* source times weights, forward only */
    CPU_POOLING,       /* source, destination, kernel, strides, padding */
    CPU_ELTWISE,       /* source, alpha, beta */
    CPU_NORM,          /* source, epsilon, flags */
    CPU_MULTIPLY,      /* source * source, forward only */
    CPU_SOFTMAX,       /* source, axis */
    CPU_SUM            /* source + source; relu: followed by a ReLU, forward only */
} cpu_operation_kind;

typedef enum cpu_direction {
    CPU_FORWARD,
    CPU_BACKWARD_DATA,
    CPU_BACKWARD_WEIGHTS,
    CPU_DIRECTIONS
} cpu_direction;

/* What a forward convolution or product does with its sums (and bias) in the same pass: it adds
 * them to the destination, then comes an activation. */
typedef struct cpu_epilogue {
    bool adds;
    dnnl_alg_kind_t activation; /* an eltwise algorithm; undef: none */
    float alpha, beta;
} cpu_epilogue;
/* low, high: what the activation does, for Yoke's own kernels; false: something else. */
bool cpu_epilogue_bounds(const cpu_epilogue *epilogue, float *low, float *high);

typedef struct cpu_operation {
    cpu_operation_kind kind;
    cpu_direction direction; /* norm: backward data computes both gradients */
    bool inference;
    dnnl_alg_kind_t algorithm;
    const cpu_desc *source, *weights, *bias, *destination;
    dnnl_dims_t strides, kernel, padding, padding_end;
    dnnl_dims_t dilation; /* pixels between neighbouring taps: 0 where these touch */
    int axis;
    float alpha, beta; /* of an eltwise algorithm */
    float epsilon;
    unsigned flags;
    bool relu;
    bool accumulate;                  /* matmul: adds to the destination */
    cpu_epilogue epilogue;            /* convolution, product */
    const_dnnl_primitive_desc_t hint; /* backward: the forward description */
} cpu_operation;

/* Describes the operation's primitive; the caller provides the scratchpad. dnnl_unimplemented:
 * oneDNN has no such primitive on this processor. */
dnnl_status_t cpu_operation_describe(dnnl_primitive_desc_t *description, dnnl_engine_t engine,
                                     const cpu_operation *operation);

/* Describes a reorder; the caller provides the scratchpad. */
dnnl_status_t cpu_reorder_describe(dnnl_primitive_desc_t *description, dnnl_engine_t engine,
                                   const cpu_desc *from, const cpu_desc *to);

/* The descriptor a primitive uses for an execution argument (DNNL_ARG_SRC, ...); NULL when it has
 * no such argument. */
dnnl_status_t cpu_desc_of_argument(const cpu_desc **desc, cpu_descs *descs,
                                   const_dnnl_primitive_desc_t description, int argument);

dnnl_prop_kind_t cpu_propagation(const cpu_operation *operation);

/* In onednn_2.c and onednn_3.c. `md` stands for the type of cpu_desc.onednn; its maker destroys
 * it. */
dnnl_status_t cpu_md_by_tag(void **md, int ndims, const dnnl_dims_t dims, dnnl_data_type_t type,
                            dnnl_format_tag_t tag);
dnnl_status_t cpu_md_by_strides(void **md, int ndims, const dnnl_dims_t dims, dnnl_data_type_t type,
                                const dnnl_dims_t strides);
dnnl_status_t cpu_md_reshape(void **md, const void *from, int ndims, const dnnl_dims_t dims);
dnnl_status_t cpu_md_permute(void **md, const void *from, const int *order);
dnnl_status_t cpu_md_part(void **md, const void *whole, const dnnl_dims_t dims,
                          const dnnl_dims_t offsets);
dnnl_status_t cpu_md_copy(void **md, const void *from);
void cpu_md_destroy(void *md);
void cpu_md_read(cpu_desc *desc, const void *md); /* fills the fields from ndims to bytes */
extern const int
    cpu_norm_backward_shift; /* DNNL_ARG_SHIFT if batch norm's backward reads it, else 0 */
dnnl_status_t cpu_append_eltwise(dnnl_post_ops_t post_ops, dnnl_alg_kind_t algorithm, float alpha,
                                 float beta);
dnnl_status_t cpu_append_sum(dnnl_post_ops_t post_ops);
dnnl_status_t cpu_describe_primitive(dnnl_primitive_desc_t *description, dnnl_engine_t engine,
                                     const cpu_operation *operation,
                                     const_dnnl_primitive_attr_t attributes);

#endif
