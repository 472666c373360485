/* SPDX-License-Identifier: Apache-2.0 */
/* What versions 2 and 3 of oneDNN share: unique descriptors, and descriptions of primitives. */
#include "device/cpu/onednn.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <xxhash.h>

#include "base/base.h"

/* Prints. A build of oneDNN without them refuses, and is silent anyway. */

static void be_silent(void) {
    (void)dnnl_set_verbose(0);
}

void cpu_onednn_be_silent(void) {
    static pthread_once_t first = PTHREAD_ONCE_INIT;
    pthread_once(&first, be_silent);
}

/* Descriptors. */

void cpu_descs_clear(cpu_descs *descs) {
    while (descs->first != NULL) {
        cpu_desc *desc = descs->first;
        descs->first = desc->next;
        cpu_md_destroy(desc->onednn);
        yoke_free(desc);
    }
}

static dnnl_status_t add_desc(const cpu_desc **desc, cpu_descs *descs, void *md) {
    cpu_desc *added = yoke_calloc(1, sizeof *added);
    if (added == NULL) return dnnl_out_of_memory;
    cpu_md_read(added, md);
    size_t fields = offsetof(cpu_desc, ndims);
    added->digest = XXH3_64bits((const char *)added + fields, sizeof *added - fields);
    added->onednn = md;
    added->next = descs->first;
    descs->first = added;
    *desc = added;
    return dnnl_success;
}

static const cpu_desc *find(const cpu_descs *descs, const void *md) {
    const cpu_desc *known = descs->first;
    while (known != NULL && !dnnl_memory_desc_equal(known->onednn, md))
        known = known->next;
    return known;
}

/* Takes ownership of a new md: adds it to the list, or destroys it if the list has an equal one. */
static dnnl_status_t keep(const cpu_desc **desc, cpu_descs *descs, dnnl_status_t made, void *md) {
    *desc = NULL;
    if (made != dnnl_success) return made;
    pthread_mutex_lock(&descs->turn);
    *desc = find(descs, md);
    bool is_new = *desc == NULL;
    dnnl_status_t status = is_new ? add_desc(desc, descs, md) : dnnl_success;
    pthread_mutex_unlock(&descs->turn);
    if (!is_new || status != dnnl_success) cpu_md_destroy(md);
    return status;
}

dnnl_status_t cpu_desc_by_tag(const cpu_desc **desc, cpu_descs *descs, int ndims,
                              const dnnl_dims_t dims, dnnl_data_type_t type,
                              dnnl_format_tag_t tag) {
    void *md = NULL;
    dnnl_status_t made = cpu_md_by_tag(&md, ndims, dims, type, tag);
    return keep(desc, descs, made, md);
}

dnnl_status_t cpu_desc_by_strides(const cpu_desc **desc, cpu_descs *descs, int ndims,
                                  const dnnl_dims_t dims, dnnl_data_type_t type,
                                  const dnnl_dims_t strides) {
    void *md = NULL;
    dnnl_status_t made = cpu_md_by_strides(&md, ndims, dims, type, strides);
    return keep(desc, descs, made, md);
}

dnnl_status_t cpu_desc_reshape(const cpu_desc **desc, cpu_descs *descs, const cpu_desc *from,
                               int ndims, const dnnl_dims_t dims) {
    void *md = NULL;
    dnnl_status_t made = cpu_md_reshape(&md, from->onednn, ndims, dims);
    return keep(desc, descs, made, md);
}

dnnl_status_t cpu_desc_exchange(const cpu_desc **desc, cpu_descs *descs, const cpu_desc *from,
                                int first, int second) {
    int order[DNNL_MAX_NDIMS];
    for (int i = 0; i < from->ndims; i++)
        order[i] = i == first ? second : i == second ? first : i;
    void *md = NULL;
    dnnl_status_t made = cpu_md_permute(&md, from->onednn, order);
    return keep(desc, descs, made, md);
}

dnnl_status_t cpu_desc_part(const cpu_desc **desc, cpu_descs *descs, const cpu_desc *whole,
                            const dnnl_dims_t dims, const dnnl_dims_t offsets) {
    void *md = NULL;
    dnnl_status_t made = cpu_md_part(&md, whole->onednn, dims, offsets);
    return keep(desc, descs, made, md);
}

dnnl_status_t cpu_desc_copy(const cpu_desc **desc, cpu_descs *descs, const cpu_desc *from) {
    void *md = NULL;
    pthread_mutex_lock(&descs->turn);
    *desc = find(descs, from->onednn);
    pthread_mutex_unlock(&descs->turn);
    if (*desc != NULL) return dnnl_success;
    dnnl_status_t made = cpu_md_copy(&md, from->onednn);
    return keep(desc, descs, made, md);
}

dnnl_status_t cpu_desc_of_argument(const cpu_desc **desc, cpu_descs *descs,
                                   const_dnnl_primitive_desc_t description, int argument) {
    const void *from = dnnl_primitive_desc_query_md(description, dnnl_query_exec_arg_md, argument);
    *desc = NULL;
    if (from == NULL) return dnnl_success;
    cpu_desc fields = {0};
    cpu_md_read(&fields, from);
    if (fields.ndims == 0) return dnnl_success;
    void *md = NULL;
    dnnl_status_t made = cpu_md_copy(&md, from);
    return keep(desc, descs, made, md);
}

/* oneDNN reports 0 bytes for a part with an offset. */
size_t cpu_desc_span(const cpu_desc *desc) {
    if (!desc->is_blocked || desc->offset == 0) return desc->bytes;
    dnnl_dim_t end = desc->offset, inner = 1;
    for (int i = 0; i < desc->ndims; i++) {
        dnnl_dim_t block = 1;
        for (int k = 0; k < desc->inner_count; k++)
            if (desc->inner_dims[k] == i) block *= desc->inner_blocks[k];
        end += (desc->padded_dims[i] / block - 1) * desc->strides[i];
    }
    for (int i = 0; i < desc->inner_count; i++)
        inner *= desc->inner_blocks[i];
    return (size_t)(end + inner) * (desc->type == dnnl_bf16 ? 2 : 4);
}

ptrdiff_t cpu_desc_offset(const cpu_desc *desc, int dimension, int index) {
    ptrdiff_t offset = 0, stride = 1;
    for (int i = desc->inner_count - 1; i >= 0; i--) {
        int size = (int)desc->inner_blocks[i];
        if (desc->inner_dims[i] == dimension) {
            offset += index % size * stride;
            index /= size;
        }
        stride *= size;
    }
    return offset + index * (ptrdiff_t)desc->strides[dimension];
}

/* Descriptions. */

dnnl_prop_kind_t cpu_propagation(const cpu_operation *operation) {
    if (operation->direction != CPU_FORWARD) return dnnl_backward;
    return operation->inference ? dnnl_forward_inference : dnnl_forward_training;
}

bool cpu_epilogue_bounds(const cpu_epilogue *epilogue, float *low, float *high) {
    bool relu = epilogue->activation == dnnl_eltwise_relu;
    bool clip = epilogue->activation == dnnl_eltwise_clip_v2;
    *low = relu ? 0 : clip ? epilogue->alpha : -INFINITY;
    *high = clip ? epilogue->beta : INFINITY;
    return relu || clip || epilogue->activation == dnnl_alg_kind_undef;
}

static dnnl_status_t fill_attributes(dnnl_primitive_attr_t attributes,
                                     const cpu_operation *operation) {
    dnnl_post_ops_t post_ops = NULL;
    dnnl_status_t status =
        dnnl_primitive_attr_set_scratchpad_mode(attributes, dnnl_scratchpad_mode_user);
    if (status != dnnl_success) return status;
    status = dnnl_post_ops_create(&post_ops);
    if (status != dnnl_success) return status;
    if (operation->relu) status = cpu_append_eltwise(post_ops, dnnl_eltwise_relu, 0, 0);
    bool adds = operation->accumulate || operation->epilogue.adds;
    if (status == dnnl_success && adds) status = cpu_append_sum(post_ops);
    const cpu_epilogue *epilogue = &operation->epilogue;
    if (status == dnnl_success && epilogue->activation != dnnl_alg_kind_undef)
        status =
            cpu_append_eltwise(post_ops, epilogue->activation, epilogue->alpha, epilogue->beta);
    if (status == dnnl_success) status = dnnl_primitive_attr_set_post_ops(attributes, post_ops);
    dnnl_post_ops_destroy(post_ops);
    return status;
}

dnnl_status_t cpu_operation_describe(dnnl_primitive_desc_t *description, dnnl_engine_t engine,
                                     const cpu_operation *operation) {
    dnnl_primitive_attr_t attributes = NULL;
    dnnl_status_t status = dnnl_primitive_attr_create(&attributes);
    if (status != dnnl_success) return status;
    status = fill_attributes(attributes, operation);
    if (status == dnnl_success)
        status = cpu_describe_primitive(description, engine, operation, attributes);
    dnnl_primitive_attr_destroy(attributes);
    return status;
}

dnnl_status_t cpu_reorder_describe(dnnl_primitive_desc_t *description, dnnl_engine_t engine,
                                   const cpu_desc *from, const cpu_desc *to) {
    dnnl_primitive_attr_t attributes = NULL;
    dnnl_status_t status = dnnl_primitive_attr_create(&attributes);
    if (status != dnnl_success) return status;
    status = dnnl_primitive_attr_set_scratchpad_mode(attributes, dnnl_scratchpad_mode_user);
    if (status == dnnl_success)
        status = dnnl_reorder_primitive_desc_create(description, from->onednn, engine, to->onednn,
                                                    engine, attributes);
    dnnl_primitive_attr_destroy(attributes);
    return status;
}
