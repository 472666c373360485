/* SPDX-License-Identifier: Apache-2.0 */
/* oneDNN 3: opaque descriptors, descriptions in one call. onednn_2.c implements the same
 * functions. */
#include "device/cpu/onednn.h"

#include <string.h>

/* Descriptors. */

dnnl_status_t cpu_md_by_tag(void **md, int ndims, const dnnl_dims_t dims, dnnl_data_type_t type,
                            dnnl_format_tag_t tag) {
    return dnnl_memory_desc_create_with_tag((dnnl_memory_desc_t *)md, ndims, dims, type, tag);
}

dnnl_status_t cpu_md_by_strides(void **md, int ndims, const dnnl_dims_t dims, dnnl_data_type_t type,
                                const dnnl_dims_t strides) {
    return dnnl_memory_desc_create_with_strides((dnnl_memory_desc_t *)md, ndims, dims, type,
                                                strides);
}

dnnl_status_t cpu_md_reshape(void **md, const void *from, int ndims, const dnnl_dims_t dims) {
    return dnnl_memory_desc_reshape((dnnl_memory_desc_t *)md, from, ndims, dims);
}

dnnl_status_t cpu_md_permute(void **md, const void *from, const int *order) {
    return dnnl_memory_desc_permute_axes((dnnl_memory_desc_t *)md, from, order);
}

dnnl_status_t cpu_md_part(void **md, const void *whole, const dnnl_dims_t dims,
                          const dnnl_dims_t offsets) {
    return dnnl_memory_desc_create_submemory((dnnl_memory_desc_t *)md, whole, dims, offsets);
}

dnnl_status_t cpu_md_copy(void **md, const void *from) {
    return dnnl_memory_desc_clone((dnnl_memory_desc_t *)md, from);
}

void cpu_md_destroy(void *md) {
    dnnl_memory_desc_destroy(md);
}

static void read_dims(dnnl_dims_t to, const void *md, dnnl_query_t what, int count) {
    const dnnl_dims_t *from = NULL;
    if (dnnl_memory_desc_query(md, what, (void *)&from) == dnnl_success)
        memcpy(to, *from, (size_t)count * sizeof to[0]);
}

void cpu_md_read(cpu_desc *desc, const void *md) {
    dnnl_format_kind_t kind = dnnl_format_kind_undef;
    dnnl_memory_desc_query(md, dnnl_query_format_kind, &kind);
    dnnl_memory_desc_query(md, dnnl_query_ndims_s32, &desc->ndims);
    dnnl_memory_desc_query(md, dnnl_query_data_type, &desc->type);
    read_dims(desc->dims, md, dnnl_query_dims, desc->ndims);
    read_dims(desc->padded_dims, md, dnnl_query_padded_dims, desc->ndims);
    desc->is_blocked = kind == dnnl_blocked;
    if (desc->is_blocked) {
        dnnl_memory_desc_query(md, dnnl_query_submemory_offset_s64, &desc->offset);
        dnnl_memory_desc_query(md, dnnl_query_inner_nblks_s32, &desc->inner_count);
        read_dims(desc->strides, md, dnnl_query_strides, desc->ndims);
        read_dims(desc->inner_blocks, md, dnnl_query_inner_blks, desc->inner_count);
        read_dims(desc->inner_dims, md, dnnl_query_inner_idxs, desc->inner_count);
    }
    desc->bytes = dnnl_memory_desc_get_size(md);
}

/* Descriptions. */

typedef struct recipe {
    dnnl_primitive_desc_t *description;
    dnnl_engine_t engine;
    const cpu_operation *operation;
    const_dnnl_primitive_attr_t attributes;
    const_dnnl_memory_desc_t source, weights, bias, destination;
} recipe;

static dnnl_status_t convolution(const recipe *r) {
    const cpu_operation *o = r->operation;
    switch (o->direction) {
    case CPU_FORWARD:
        return dnnl_convolution_forward_primitive_desc_create(
            r->description, r->engine, cpu_propagation(o), o->algorithm, r->source, r->weights,
            r->bias, r->destination, o->strides, o->dilation, o->padding, o->padding_end,
            r->attributes);
    case CPU_BACKWARD_DATA:
        return dnnl_convolution_backward_data_primitive_desc_create(
            r->description, r->engine, o->algorithm, r->source, r->weights, r->destination,
            o->strides, o->dilation, o->padding, o->padding_end, o->hint, r->attributes);
    default:
        return dnnl_convolution_backward_weights_primitive_desc_create(
            r->description, r->engine, o->algorithm, r->source, r->weights, r->bias, r->destination,
            o->strides, o->dilation, o->padding, o->padding_end, o->hint, r->attributes);
    }
}

static dnnl_status_t deconvolution(const recipe *r) {
    const cpu_operation *o = r->operation;
    switch (o->direction) {
    case CPU_FORWARD:
        return dnnl_deconvolution_forward_primitive_desc_create(
            r->description, r->engine, cpu_propagation(o), o->algorithm, r->source, r->weights,
            r->bias, r->destination, o->strides, o->dilation, o->padding, o->padding_end,
            r->attributes);
    case CPU_BACKWARD_DATA:
        return dnnl_deconvolution_backward_data_primitive_desc_create(
            r->description, r->engine, o->algorithm, r->source, r->weights, r->destination,
            o->strides, o->dilation, o->padding, o->padding_end, o->hint, r->attributes);
    default:
        return dnnl_deconvolution_backward_weights_primitive_desc_create(
            r->description, r->engine, o->algorithm, r->source, r->weights, r->bias, r->destination,
            o->strides, o->dilation, o->padding, o->padding_end, o->hint, r->attributes);
    }
}

static dnnl_status_t product(const recipe *r) {
    const cpu_operation *o = r->operation;
    switch (o->direction) {
    case CPU_FORWARD:
        return dnnl_inner_product_forward_primitive_desc_create(
            r->description, r->engine, cpu_propagation(o), r->source, r->weights, r->bias,
            r->destination, r->attributes);
    case CPU_BACKWARD_DATA:
        return dnnl_inner_product_backward_data_primitive_desc_create(
            r->description, r->engine, r->source, r->weights, r->destination, o->hint,
            r->attributes);
    default:
        return dnnl_inner_product_backward_weights_primitive_desc_create(
            r->description, r->engine, r->source, r->weights, r->bias, r->destination, o->hint,
            r->attributes);
    }
}

static dnnl_status_t pooling(const recipe *r) {
    static const dnnl_dims_t dense = {0};
    const cpu_operation *o = r->operation;
    if (o->direction == CPU_FORWARD)
        return dnnl_pooling_forward_primitive_desc_create(
            r->description, r->engine, cpu_propagation(o), o->algorithm, r->source, r->destination,
            o->strides, o->kernel, dense, o->padding, o->padding_end, r->attributes);
    return dnnl_pooling_backward_primitive_desc_create(
        r->description, r->engine, o->algorithm, r->source, r->destination, o->strides, o->kernel,
        dense, o->padding, o->padding_end, o->hint, r->attributes);
}

static dnnl_status_t eltwise(const recipe *r) {
    const cpu_operation *o = r->operation;
    if (o->direction == CPU_FORWARD)
        return dnnl_eltwise_forward_primitive_desc_create(
            r->description, r->engine, cpu_propagation(o), o->algorithm, r->source, r->source,
            o->alpha, o->beta, r->attributes);
    return dnnl_eltwise_backward_primitive_desc_create(r->description, r->engine, o->algorithm,
                                                       r->source, r->source, r->source, o->alpha,
                                                       o->beta, o->hint, r->attributes);
}

const int cpu_norm_backward_shift = 0;

static dnnl_status_t norm(const recipe *r) {
    const cpu_operation *o = r->operation;
    if (o->direction == CPU_FORWARD)
        return dnnl_batch_normalization_forward_primitive_desc_create(
            r->description, r->engine, cpu_propagation(o), r->source, r->source, o->epsilon,
            o->flags, r->attributes);
    return dnnl_batch_normalization_backward_primitive_desc_create(
        r->description, r->engine, cpu_propagation(o), r->source, r->source, r->source, o->epsilon,
        o->flags, o->hint, r->attributes);
}

static dnnl_status_t softmax(const recipe *r) {
    const cpu_operation *o = r->operation;
    if (o->direction == CPU_FORWARD)
        return dnnl_softmax_forward_primitive_desc_create(
            r->description, r->engine, cpu_propagation(o), dnnl_softmax_accurate, r->source,
            r->source, o->axis, r->attributes);
    return dnnl_softmax_backward_primitive_desc_create(r->description, r->engine,
                                                       dnnl_softmax_accurate, r->source, r->source,
                                                       r->source, o->axis, o->hint, r->attributes);
}

static dnnl_status_t binary(const recipe *r, dnnl_alg_kind_t algorithm) {
    return dnnl_binary_primitive_desc_create(r->description, r->engine, algorithm, r->source,
                                             r->source, r->source, r->attributes);
}

static const_dnnl_memory_desc_t md_of(const cpu_desc *desc) {
    return desc != NULL ? desc->onednn : NULL;
}

dnnl_status_t cpu_describe_primitive(dnnl_primitive_desc_t *description, dnnl_engine_t engine,
                                     const cpu_operation *operation,
                                     const_dnnl_primitive_attr_t attributes) {
    const recipe r = {.description = description,
                      .engine = engine,
                      .operation = operation,
                      .attributes = attributes,
                      .source = md_of(operation->source),
                      .weights = md_of(operation->weights),
                      .bias = md_of(operation->bias),
                      .destination = md_of(operation->destination)};
    switch (operation->kind) {
    case CPU_CONVOLUTION:
        return convolution(&r);
    case CPU_DECONVOLUTION:
        return deconvolution(&r);
    case CPU_PRODUCT:
        return product(&r);
    case CPU_MATMUL:
        return dnnl_matmul_primitive_desc_create(description, engine, r.source, r.weights, r.bias,
                                                 r.destination, attributes);
    case CPU_POOLING:
        return pooling(&r);
    case CPU_ELTWISE:
        return eltwise(&r);
    case CPU_NORM:
        return norm(&r);
    case CPU_MULTIPLY:
        return binary(&r, dnnl_binary_mul);
    case CPU_SOFTMAX:
        return softmax(&r);
    case CPU_SUM:
        return binary(&r, dnnl_binary_add);
    }
    return dnnl_invalid_arguments;
}

dnnl_status_t cpu_append_eltwise(dnnl_post_ops_t post_ops, dnnl_alg_kind_t algorithm, float alpha,
                                 float beta) {
    return dnnl_post_ops_append_eltwise(post_ops, algorithm, alpha, beta);
}

dnnl_status_t cpu_append_sum(dnnl_post_ops_t post_ops) {
    return dnnl_post_ops_append_sum(post_ops, 1, 0, dnnl_data_type_undef);
}
