/* SPDX-License-Identifier: Apache-2.0 */
/* The layout of the flat buffers: parameters in the order in which backward completes their
 * gradients, in buckets by DDP's rule. */
#include <stdlib.h>

#include "model/program.h"

#define LINE_FLOATS 16 /* every parameter begins on a cache line */
#define FIRST_BUCKET_BYTES ((size_t)1 << 20)
#define BUCKET_BYTES ((size_t)4 << 20)

int yoke_bucket_assign(const size_t *bytes, int count, const size_t *limits, int limit_count,
                       int *bucket) {
    int buckets = 0, limit = 0;
    size_t filled = 0;
    bool open = false;
    for (int i = 0; i < count; i++) {
        bucket[i] = buckets;
        filled += bytes[i];
        open = true;
        if (filled < limits[limit]) continue;
        buckets++;
        filled = 0;
        open = false;
        if (limit < limit_count - 1) limit++;
    }
    return buckets + (open ? 1 : 0);
}

int yoke_completing_node(const yoke_model *model, int tensor) {
    for (int i = 0; i < model->node_count; i++)
        for (int k = 0; k < model->nodes[i].tensor_count; k++)
            if (model->nodes[i].tensors[k] == tensor) return i;
    return YOKE_NONE;
}

bool yoke_is_frozen(const bool *frozen, int tensor) {
    return frozen != NULL && frozen[tensor];
}

const yoke_parameter *yoke_flat_parameter(const yoke_flat *flat, int tensor) {
    for (int i = 0; i < flat->parameter_count; i++)
        if (flat->parameters[i].tensor == tensor) return &flat->parameters[i];
    return NULL;
}

int yoke_flat_at(const yoke_flat *flat, size_t element) {
    int first = 0, behind = flat->parameter_count;
    while (behind - first > 1) {
        int middle = first + (behind - first) / 2;
        if (flat->parameters[middle].offset <= element)
            first = middle;
        else
            behind = middle;
    }
    return first;
}

size_t yoke_flat_alike(const yoke_flat *flat, size_t begin, size_t end, unsigned *forms) {
    int first = yoke_flat_at(flat, begin), behind = first + 1;
    *forms = flat->parameters[first].forms;
    for (; behind < flat->parameter_count && flat->parameters[behind].offset < end; behind++)
        if (flat->parameters[behind].forms != *forms) return flat->parameters[behind].offset;
    return end;
}

/* PyTorch's layout of a tensor. For a grouped convolution the groups are a dimension of their own,
 * and a kernel over sequences has a height of 1; the bytes are the same. */
static yoke_status plain_layout(yoke_device *device, const yoke_tensor *tensor,
                                yoke_layout *layout) {
    bool grouped = tensor->groups > 1;
    int64_t shape[5] = {tensor->groups, tensor->shape[0] / tensor->groups};
    if (!grouped && !tensor->line)
        return yoke_layout_plain(device, tensor->shape, tensor->ndim, layout);
    shape[2] = tensor->shape[1];
    shape[3] = tensor->line ? 1 : tensor->shape[2];
    shape[4] = tensor->shape[tensor->line ? 2 : 3];
    return yoke_layout_plain(device, grouped ? shape : shape + 1, grouped ? 5 : 4, layout);
}

static size_t rounded_up(size_t elements, size_t unit) {
    return (elements + unit - 1) / unit * unit;
}

static yoke_status append_parameter(yoke_flat *flat, const yoke_flat_request *request, int tensor) {
    yoke_parameter *parameter = &flat->parameters[flat->parameter_count++];
    parameter->tensor = tensor;
    parameter->frozen = yoke_is_frozen(request->frozen, tensor);
    parameter->offset = flat->elements;
    parameter->layout = request->layouts[tensor];
    parameter->forms = request->forms[tensor];
    parameter->elements = rounded_up(parameter->layout.bytes / sizeof(float), LINE_FLOATS);
    flat->elements += parameter->elements;
    return plain_layout(request->device, &request->model->tensors[tensor], &parameter->plain);
}

/* All parameters in the order of the buffer: backward completes the last layer's first. Returns
 * their number; order[tensors]. */
static int order_parameters(const yoke_model *model, int *order) {
    int count = 0;
    for (int i = model->node_count - 1; i >= 0; i--) {
        const yoke_node *node = &model->nodes[i];
        for (int k = node->tensor_count - 1; k >= 0; k--)
            if (yoke_completing_node(model, node->tensors[k]) == i)
                order[count++] = node->tensors[k];
    }
    return count;
}

static yoke_status append_all(yoke_flat *flat, const yoke_flat_request *request, const int *order,
                              int count) {
    for (int i = 0; i < count; i++)
        if (!yoke_is_frozen(request->frozen, order[i]))
            TRY(append_parameter(flat, request, order[i]));
    flat->trainable_count = flat->parameter_count;
    for (int i = 0; i < count; i++)
        if (yoke_is_frozen(request->frozen, order[i]))
            TRY(append_parameter(flat, request, order[i]));
    return YOKE_OK;
}

static int assign(const size_t *bytes, int count, size_t first, size_t rest, int *assigned) {
    size_t limits[] = {first > 0 ? first : FIRST_BUCKET_BYTES, rest > 0 ? rest : BUCKET_BYTES};
    return yoke_bucket_assign(bytes, count, limits, 2, assigned);
}

/* Weights that plans read in 16 bits alone come first in their bucket, those that they read in
 * float32 alone last: a collective then moves those of one form as one range. */
static void sort_by_forms(yoke_flat *flat, const int *assigned) {
    static const int order[] = {[YOKE_FORM_SHADOW] = 0,
                                [YOKE_FORM_SHADOW | YOKE_FORM_FLOAT32] = 1,
                                [YOKE_FORM_FLOAT32] = 2};
    for (int i = 1; i < flat->trainable_count; i++) {
        const yoke_parameter moved = flat->parameters[i];
        int at = i;
        for (; at > 0 && assigned[at - 1] == assigned[i] &&
               order[flat->parameters[at - 1].forms] > order[moved.forms];
             at--)
            flat->parameters[at] = flat->parameters[at - 1];
        flat->parameters[at] = moved;
    }
}

static yoke_status build_flat(yoke_flat *flat, const yoke_flat_request *request) {
    size_t tensors = (size_t)request->model->tensor_count;
    flat->buffer_elements = request->model->buffer_elements;
    flat->parameters = yoke_calloc(tensors, sizeof *flat->parameters);
    if (flat->parameters == NULL)
        return FAIL_MEMORY(tensors * sizeof *flat->parameters, "the list of parameters");
    int *order = yoke_calloc(tensors, sizeof *order);
    if (order == NULL) return FAIL_MEMORY(tensors * sizeof *order, "the order of parameters");
    yoke_status status = append_all(flat, request, order, order_parameters(request->model, order));
    yoke_free(order);
    TRY(status);
    size_t count = (size_t)flat->trainable_count;
    size_t *bytes = yoke_calloc(count + 1, sizeof *bytes); /* count 0: all are frozen */
    int *assigned = yoke_calloc(count + 1, sizeof *assigned);
    flat->buckets = yoke_calloc(count + 1, sizeof *flat->buckets);
    bool enough = bytes != NULL && assigned != NULL && flat->buckets != NULL;
    if (enough) {
        for (size_t i = 0; i < count; i++)
            bytes[i] = flat->parameters[i].elements * sizeof(float);
        flat->bucket_count =
            assign(bytes, (int)count, request->first_bucket_bytes, request->bucket_bytes, assigned);
        if (!yoke_device_shares_memory(request->device)) sort_by_forms(flat, assigned);
        size_t parts = request->bucket_parts > 1 ? (size_t)request->bucket_parts : 1;
        /* Buckets begin and end at multiples of `unit`. */
        size_t unit = LINE_FLOATS * parts;
        flat->elements = 0;
        for (int i = 0; i < flat->trainable_count; i++) {
            yoke_parameter *parameter = &flat->parameters[i];
            yoke_bucket *bucket = &flat->buckets[assigned[i]];
            if (bucket->elements == 0) {
                flat->elements = rounded_up(flat->elements, unit);
                bucket->offset = flat->elements;
            }
            parameter->offset = flat->elements;
            flat->elements += parameter->elements;
            bucket->elements = rounded_up(flat->elements - bucket->offset, unit);
        }
        flat->trainable_elements = rounded_up(flat->elements, unit);
    }
    yoke_free(bytes);
    yoke_free(assigned);
    if (!enough) return FAIL_MEMORY(count * sizeof *flat->buckets, "the list of buckets");
    flat->elements = flat->trainable_elements;
    for (int i = flat->trainable_count; i < flat->parameter_count; i++) {
        flat->parameters[i].offset = flat->elements;
        flat->elements += flat->parameters[i].elements;
    }
    return YOKE_OK;
}

yoke_status yoke_flat_create(yoke_flat **flat, const yoke_flat_request *request) {
    yoke_flat *made = yoke_calloc(1, sizeof *made);
    if (made == NULL) return FAIL_MEMORY(sizeof *made, "the flat layout");
    yoke_status status = build_flat(made, request);
    if (status != YOKE_OK) {
        yoke_flat_destroy(made);
        return status;
    }
    *flat = made;
    return YOKE_OK;
}

void yoke_flat_destroy(yoke_flat *flat) {
    if (flat == NULL) return;
    yoke_free(flat->buckets);
    yoke_free(flat->parameters);
    yoke_free(flat);
}

/* Segments, from the model alone. */

/* Sums the multiplications of the layers that read the tensor as their weight. */
static double work_of(const yoke_model *model, int tensor) {
    double work = 0;
    for (int i = 0; i < model->layer_count; i++)
        if (model->layers[i].tensor_count > 0 && model->layers[i].tensors[0] == tensor)
            work += yoke_layer_work(model, &model->layers[i]);
    return work;
}

static int fill_segments(const yoke_model *model, size_t bucket_bytes, int *order, int *assigned,
                         size_t *bytes, yoke_model_segment *segments, int capacity) {
    int count = order_parameters(model, order);
    for (int i = 0; i < count; i++)
        bytes[i] = rounded_up(model->tensors[order[i]].count, LINE_FLOATS) * sizeof(float);
    int buckets = assign(bytes, count, 0, bucket_bytes, assigned);
    for (int s = 0; s < buckets && s < capacity; s++)
        segments[s] = (yoke_model_segment){0};
    for (int i = 0; i < count; i++) {
        if (assigned[i] >= capacity) continue;
        segments[assigned[i]].bytes += bytes[i];
        segments[assigned[i]].multiplications += work_of(model, order[i]);
    }
    return buckets;
}

yoke_status yoke_model_segments(const yoke_model *model, size_t bucket_bytes,
                                yoke_model_segment *segments, int capacity, int *count) {
    if (model == NULL || count == NULL || (segments == NULL && capacity > 0))
        return FAIL(YOKE_ERROR_ARGUMENT, "yoke_model_segments needs a model, segments and a count");
    size_t tensors = (size_t)model->tensor_count;
    int *order = yoke_calloc(2 * tensors + 1, sizeof *order);
    size_t *bytes = yoke_calloc(tensors + 1, sizeof *bytes);
    bool enough = order != NULL && bytes != NULL;
    if (enough)
        *count =
            fill_segments(model, bucket_bytes, order, order + tensors, bytes, segments, capacity);
    yoke_free(bytes);
    yoke_free(order);
    return enough ? YOKE_OK : FAIL_MEMORY(tensors * sizeof *bytes, "the segments of a model");
}
