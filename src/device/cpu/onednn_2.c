/* SPDX-License-Identifier: Apache-2.0 */
/* oneDNN 2: descriptors by value, an operation descriptor for each description. onednn_3.c
 * implements the same functions. */
#include "base/base.h"
#include "device/cpu/onednn.h"

#include <stdlib.h>
#include <string.h>

/* Descriptors. */

static dnnl_status_t copy(void **md, dnnl_status_t made, const dnnl_memory_desc_t *from) {
    *md = NULL;
    if (made != dnnl_success) return made;
    *md = yoke_malloc(sizeof *from);
    if (*md == NULL) return dnnl_out_of_memory;
    memcpy(*md, from, sizeof *from);
    return dnnl_success;
}

dnnl_status_t cpu_md_by_tag(void **md, int ndims, const dnnl_dims_t dims, dnnl_data_type_t type,
                            dnnl_format_tag_t tag) {
    dnnl_memory_desc_t desc;
    dnnl_status_t made = dnnl_memory_desc_init_by_tag(&desc, ndims, dims, type, tag);
    return copy(md, made, &desc);
}

dnnl_status_t cpu_md_by_strides(void **md, int ndims, const dnnl_dims_t dims, dnnl_data_type_t type,
                                const dnnl_dims_t strides) {
    dnnl_memory_desc_t desc;
    dnnl_status_t made = dnnl_memory_desc_init_by_strides(&desc, ndims, dims, type, strides);
    return copy(md, made, &desc);
}

dnnl_status_t cpu_md_reshape(void **md, const void *from, int ndims, const dnnl_dims_t dims) {
    dnnl_memory_desc_t desc;
    dnnl_status_t made = dnnl_memory_desc_reshape(&desc, from, ndims, dims);
    return copy(md, made, &desc);
}

dnnl_status_t cpu_md_permute(void **md, const void *from, const int *order) {
    dnnl_memory_desc_t desc;
    dnnl_status_t made = dnnl_memory_desc_permute_axes(&desc, from, order);
    return copy(md, made, &desc);
}

dnnl_status_t cpu_md_part(void **md, const void *whole, const dnnl_dims_t dims,
                          const dnnl_dims_t offsets) {
    dnnl_memory_desc_t desc;
    dnnl_status_t made = dnnl_memory_desc_init_submemory(&desc, whole, dims, offsets);
    return copy(md, made, &desc);
}

dnnl_status_t cpu_md_copy(void **md, const void *from) {
    return copy(md, dnnl_success, from);
}

void cpu_md_destroy(void *md) {
    yoke_free(md);
}

void cpu_md_read(cpu_desc *desc, const void *from) {
    const dnnl_memory_desc_t *md = from;
    size_t dims_bytes = (size_t)md->ndims * sizeof md->dims[0];
    desc->ndims = md->ndims;
    desc->type = md->data_type;
    memcpy(desc->dims, md->dims, dims_bytes);
    memcpy(desc->padded_dims, md->padded_dims, dims_bytes);
    desc->is_blocked = md->format_kind == dnnl_blocked;
    desc->bytes = dnnl_memory_desc_get_size(md);
    if (!desc->is_blocked) return;
    const dnnl_blocking_desc_t *blocking = &md->format_desc.blocking;
    size_t inner_bytes = (size_t)blocking->inner_nblks * sizeof blocking->inner_blks[0];
    desc->offset = md->offset0;
    desc->inner_count = blocking->inner_nblks;
    memcpy(desc->strides, blocking->strides, (size_t)md->ndims * sizeof blocking->strides[0]);
    memcpy(desc->inner_blocks, blocking->inner_blks, inner_bytes);
    memcpy(desc->inner_dims, blocking->inner_idxs, inner_bytes);
}

/* Descriptions. */

typedef union operation_desc {
    dnnl_convolution_desc_t convolution;
    dnnl_inner_product_desc_t product;
    dnnl_matmul_desc_t matmul;
    dnnl_pooling_desc_t pooling;
    dnnl_eltwise_desc_t eltwise;
    dnnl_batch_normalization_desc_t norm;
    dnnl_binary_desc_t binary;
    dnnl_softmax_desc_t softmax;
} operation_desc;

typedef struct recipe {
    const cpu_operation *operation;
    const dnnl_memory_desc_t *source, *weights, *bias, *destination;
} recipe;

static dnnl_status_t convolution(dnnl_convolution_desc_t *desc, const recipe *r) {
    const cpu_operation *o = r->operation;
    switch (o->direction) {
    case CPU_FORWARD:
        return dnnl_dilated_convolution_forward_desc_init(
            desc, cpu_propagation(o), o->algorithm, r->source, r->weights, r->bias, r->destination,
            o->strides, o->dilation, o->padding, o->padding_end);
    case CPU_BACKWARD_DATA:
        return dnnl_dilated_convolution_backward_data_desc_init(
            desc, o->algorithm, r->source, r->weights, r->destination, o->strides, o->dilation,
            o->padding, o->padding_end);
    default:
        return dnnl_dilated_convolution_backward_weights_desc_init(
            desc, o->algorithm, r->source, r->weights, r->bias, r->destination, o->strides,
            o->dilation, o->padding, o->padding_end);
    }
}

static dnnl_status_t deconvolution(dnnl_deconvolution_desc_t *desc, const recipe *r) {
    const cpu_operation *o = r->operation;
    switch (o->direction) {
    case CPU_FORWARD:
        return dnnl_dilated_deconvolution_forward_desc_init(
            desc, cpu_propagation(o), o->algorithm, r->source, r->weights, r->bias, r->destination,
            o->strides, o->dilation, o->padding, o->padding_end);
    case CPU_BACKWARD_DATA:
        return dnnl_dilated_deconvolution_backward_data_desc_init(
            desc, o->algorithm, r->source, r->weights, r->destination, o->strides, o->dilation,
            o->padding, o->padding_end);
    default:
        return dnnl_dilated_deconvolution_backward_weights_desc_init(
            desc, o->algorithm, r->source, r->weights, r->bias, r->destination, o->strides,
            o->dilation, o->padding, o->padding_end);
    }
}

static dnnl_status_t product(dnnl_inner_product_desc_t *desc, const recipe *r) {
    switch (r->operation->direction) {
    case CPU_FORWARD:
        return dnnl_inner_product_forward_desc_init(desc, cpu_propagation(r->operation), r->source,
                                                    r->weights, r->bias, r->destination);
    case CPU_BACKWARD_DATA:
        return dnnl_inner_product_backward_data_desc_init(desc, r->source, r->weights,
                                                          r->destination);
    default:
        return dnnl_inner_product_backward_weights_desc_init(desc, r->source, r->weights, r->bias,
                                                             r->destination);
    }
}

static dnnl_status_t pooling(dnnl_pooling_desc_t *desc, const recipe *r) {
    const cpu_operation *o = r->operation;
    if (o->direction == CPU_FORWARD)
        return dnnl_pooling_forward_desc_init(desc, cpu_propagation(o), o->algorithm, r->source,
                                              r->destination, o->strides, o->kernel, o->padding,
                                              o->padding_end);
    return dnnl_pooling_backward_desc_init(desc, o->algorithm, r->source, r->destination,
                                           o->strides, o->kernel, o->padding, o->padding_end);
}

static dnnl_status_t eltwise(dnnl_eltwise_desc_t *desc, const recipe *r) {
    const cpu_operation *o = r->operation;
    if (o->direction == CPU_FORWARD)
        return dnnl_eltwise_forward_desc_init(desc, cpu_propagation(o), o->algorithm, r->source,
                                              o->alpha, o->beta);
    return dnnl_eltwise_backward_desc_init(desc, o->algorithm, r->source, r->source, o->alpha,
                                           o->beta);
}

const int cpu_norm_backward_shift = DNNL_ARG_SHIFT;

static dnnl_status_t norm(dnnl_batch_normalization_desc_t *desc, const recipe *r) {
    const cpu_operation *o = r->operation;
    if (o->direction == CPU_FORWARD)
        return dnnl_batch_normalization_forward_desc_init(desc, cpu_propagation(o), r->source,
                                                          o->epsilon, o->flags);
    return dnnl_batch_normalization_backward_desc_init(desc, cpu_propagation(o), r->source,
                                                       r->source, o->epsilon, o->flags);
}

static dnnl_status_t softmax(dnnl_softmax_desc_t *desc, const recipe *r) {
    const cpu_operation *o = r->operation;
    if (o->direction == CPU_FORWARD)
        return dnnl_softmax_forward_desc_init(desc, cpu_propagation(o), r->source, o->axis);
    return dnnl_softmax_backward_desc_init(desc, r->source, r->source, o->axis);
}

static dnnl_status_t binary(dnnl_binary_desc_t *desc, const recipe *r, dnnl_alg_kind_t algorithm) {
    return dnnl_binary_desc_init(desc, algorithm, r->source, r->source, r->source);
}

static const dnnl_memory_desc_t *md_of(const cpu_desc *desc) {
    return desc != NULL ? desc->onednn : NULL;
}

static dnnl_status_t fill(operation_desc *desc, const cpu_operation *operation) {
    const recipe r = {.operation = operation,
                      .source = md_of(operation->source),
                      .weights = md_of(operation->weights),
                      .bias = md_of(operation->bias),
                      .destination = md_of(operation->destination)};
    switch (operation->kind) {
    case CPU_CONVOLUTION:
        return convolution(&desc->convolution, &r);
    case CPU_DECONVOLUTION: /* its descriptor is of the same type */
        return deconvolution(&desc->convolution, &r);
    case CPU_PRODUCT:
        return product(&desc->product, &r);
    case CPU_MATMUL:
        return dnnl_matmul_desc_init(&desc->matmul, r.source, r.weights, r.bias, r.destination);
    case CPU_POOLING:
        return pooling(&desc->pooling, &r);
    case CPU_ELTWISE:
        return eltwise(&desc->eltwise, &r);
    case CPU_NORM:
        return norm(&desc->norm, &r);
    case CPU_MULTIPLY:
        return binary(&desc->binary, &r, dnnl_binary_mul);
    case CPU_SOFTMAX:
        return softmax(&desc->softmax, &r);
    case CPU_SUM:
        return binary(&desc->binary, &r, dnnl_binary_add);
    }
    return dnnl_invalid_arguments;
}

dnnl_status_t cpu_describe_primitive(dnnl_primitive_desc_t *description, dnnl_engine_t engine,
                                     const cpu_operation *operation,
                                     const_dnnl_primitive_attr_t attributes) {
    operation_desc desc;
    dnnl_status_t status = fill(&desc, operation);
    if (status != dnnl_success) return status;
    return dnnl_primitive_desc_create(description, &desc, attributes, engine, operation->hint);
}

dnnl_status_t cpu_append_eltwise(dnnl_post_ops_t post_ops, dnnl_alg_kind_t algorithm, float alpha,
                                 float beta) {
    return dnnl_post_ops_append_eltwise(post_ops, 1, algorithm, alpha, beta);
}

dnnl_status_t cpu_append_sum(dnnl_post_ops_t post_ops) {
    return dnnl_post_ops_append_sum(post_ops, 1);
}
