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

/* PyTorch's layout of a tensor. For a grouped convolution the groups are a dimension of their own;
 * the bytes are the same. */
static yoke_status plain_layout(yoke_device *device, const yoke_tensor *tensor,
                                yoke_layout *layout) {
    if (tensor->groups == 1) return yoke_layout_plain(device, tensor->shape, tensor->ndim, layout);
    const int64_t *shape = tensor->shape;
    int64_t grouped[5] = {tensor->groups, shape[0] / tensor->groups, shape[1], shape[2], shape[3]};
    return yoke_layout_plain(device, grouped, 5, layout);
}

static yoke_status append(yoke_flat *flat, const yoke_flat_request *request, int tensor) {
    yoke_parameter *parameter = &flat->parameters[flat->parameter_count++];
    size_t line = LINE_FLOATS * sizeof(float);
    parameter->tensor = tensor;
    parameter->frozen = yoke_is_frozen(request->frozen, tensor);
    parameter->offset = flat->elements;
    parameter->layout = request->layouts[tensor];
    parameter->elements = (parameter->layout.bytes + line - 1) / line * LINE_FLOATS;
    flat->elements += parameter->elements;
    return plain_layout(request->device, &request->model->tensors[tensor], &parameter->plain);
}

static yoke_status append_parameters(yoke_flat *flat, const yoke_flat_request *request,
                                     bool frozen) {
    const yoke_model *model = request->model;
    for (int i = model->node_count - 1; i >= 0; i--) {
        const yoke_node *node = &model->nodes[i];
        for (int k = node->tensor_count - 1; k >= 0; k--)
            if (yoke_completing_node(model, node->tensors[k]) == i &&
                yoke_is_frozen(request->frozen, node->tensors[k]) == frozen)
                TRY(append(flat, request, node->tensors[k]));
    }
    return YOKE_OK;
}

static size_t rounded_up(size_t elements, size_t unit) {
    return (elements + unit - 1) / unit * unit;
}

/* Buckets begin and end at multiples of `unit`. */
static void fill_buckets(yoke_flat *flat, const int *assigned, size_t unit) {
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

static void place_frozen(yoke_flat *flat) {
    flat->elements = flat->trainable_elements;
    for (int i = flat->trainable_count; i < flat->parameter_count; i++) {
        flat->parameters[i].offset = flat->elements;
        flat->elements += flat->parameters[i].elements;
    }
}

static yoke_status cut_buckets(yoke_flat *flat, const yoke_flat_request *request) {
    size_t count = (size_t)flat->trainable_count;
    size_t first = request->first_bucket_bytes, rest = request->bucket_bytes;
    size_t limits[] = {first > 0 ? first : FIRST_BUCKET_BYTES, rest > 0 ? rest : BUCKET_BYTES};
    size_t *bytes = calloc(count, sizeof *bytes);
    int *assigned = calloc(count, sizeof *assigned);
    flat->buckets = calloc(count, sizeof *flat->buckets);
    bool enough = bytes != NULL && assigned != NULL && flat->buckets != NULL;
    if (enough) {
        for (size_t i = 0; i < count; i++)
            bytes[i] = flat->parameters[i].elements * sizeof(float);
        flat->bucket_count = yoke_bucket_assign(bytes, (int)count, limits, 2, assigned);
        size_t parts = request->bucket_parts > 1 ? (size_t)request->bucket_parts : 1;
        fill_buckets(flat, assigned, LINE_FLOATS * parts);
    }
    free(bytes);
    free(assigned);
    return enough ? YOKE_OK : FAIL_MEMORY(count * sizeof *flat->buckets, "the list of buckets");
}

static yoke_status build_flat(yoke_flat *flat, const yoke_flat_request *request) {
    size_t tensors = (size_t)request->model->tensor_count;
    flat->buffer_elements = request->model->buffer_elements;
    flat->parameters = calloc(tensors, sizeof *flat->parameters);
    if (flat->parameters == NULL)
        return FAIL_MEMORY(tensors * sizeof *flat->parameters, "the list of parameters");
    TRY(append_parameters(flat, request, false));
    flat->trainable_count = flat->parameter_count;
    TRY(append_parameters(flat, request, true));
    TRY(cut_buckets(flat, request));
    place_frozen(flat);
    return YOKE_OK;
}

yoke_status yoke_flat_create(yoke_flat **flat, const yoke_flat_request *request) {
    yoke_flat *made = calloc(1, sizeof *made);
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
    free(flat->buckets);
    free(flat->parameters);
    free(flat);
}
