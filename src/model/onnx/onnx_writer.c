/* SPDX-License-Identifier: Apache-2.0 */
/* A model as a file of ONNX: inputs, a few nodes for each layer, initializers, outputs. */
#include "model/onnx/onnx_writer.h"

#include <stdlib.h>
#include <string.h>

#include "model/onnx/onnx_file.h"
#include "yoke/onnx.h"

enum { OPSET = 17, IR_VERSION = 8 };
#define FILE_BYTES (((size_t)1 << 31) - ((size_t)1 << 20)) /* protobuf's limit, and some nodes */

/* What the tables ask for. */

const char *yoke_onnx_tensor_of(const yoke_onnx_writer *writer, int index) {
    return writer->model->tensors[index].name;
}

const char *yoke_onnx_input_of(const yoke_onnx_writer *writer, const yoke_node *layer, int k) {
    return layer->input_count > k ? writer->values[layer->inputs[k]] : "";
}

int yoke_onnx_row_sizes(yoke_shape shape, int64_t sizes[3]) {
    if (shape.flat) {
        sizes[0] = shape.channels;
        return 1;
    }
    sizes[0] = shape.sequence ? shape.height : shape.channels;
    sizes[1] = shape.sequence ? shape.channels : shape.height;
    sizes[2] = shape.width;
    return shape.sequence ? 2 : 3;
}

const char *yoke_onnx_with_batch(yoke_onnx_writer *writer, const char *from, const int64_t *row,
                                 int rank) {
    const yoke_onnx_given begin[] = {{.name = "end", .i = 1}, {0}},
                          axis[] = {{.name = "axis"}, {0}};
    const char *const input[] = {writer->values[0], NULL};
    const char *const parts[] = {yoke_onnx_emit(writer, "Shape", input, begin),
                                 yoke_onnx_wholes(writer, row, rank), NULL};
    return yoke_onnx_one(writer, "Expand", from, yoke_onnx_emit(writer, "Concat", parts, axis));
}

/* Inputs and outputs. */

static Yoke__Onnx__Dimension *dimension(yoke_onnx_writer *w, int64_t size) {
    Yoke__Onnx__Dimension *made = yoke_onnx_keep(w, sizeof *made);
    if (made == NULL) return NULL;
    yoke__onnx__dimension__init(made);
    made->has_dim_value = size > 0;
    made->dim_value = size;
    if (size == 0) made->dim_param = (char *)yoke_onnx_name_of(w, "batch");
    return made;
}

static Yoke__Onnx__ValueInfo *describe(yoke_onnx_writer *w, const char *name, yoke_shape row,
                                       int type) {
    int64_t sizes[3];
    int rank = yoke_onnx_row_sizes(row, sizes);
    Yoke__Onnx__ValueInfo *info = yoke_onnx_keep(w, sizeof *info);
    Yoke__Onnx__Type *outer = yoke_onnx_keep(w, sizeof *outer);
    Yoke__Onnx__TensorType *inner = yoke_onnx_keep(w, sizeof *inner);
    Yoke__Onnx__Shape *shape = yoke_onnx_keep(w, sizeof *shape);
    Yoke__Onnx__Dimension **dims = yoke_onnx_keep(w, 4 * sizeof *dims);
    if (dims == NULL) return NULL;
    yoke__onnx__value_info__init(info);
    yoke__onnx__type__init(outer);
    yoke__onnx__tensor_type__init(inner);
    yoke__onnx__shape__init(shape);
    info->name = (char *)name;
    info->type = outer;
    outer->tensor_type = inner;
    inner->has_elem_type = true;
    inner->elem_type = type;
    inner->shape = shape;
    shape->dim = dims;
    shape->n_dim = (size_t)rank + 1;
    for (int i = 0; i <= rank; i++)
        dims[i] = dimension(w, i == 0 ? 0 : sizes[i - 1]);
    return info;
}

/* Whether only embeddings read an input: then it is one of ids. */
static bool reads_ids(const yoke_model *model, int value) {
    bool any = false;
    for (int i = 0; i < model->layer_count; i++)
        for (int k = 0; k < model->layers[i].input_count; k++) {
            if (model->layers[i].inputs[k] != value) continue;
            if (model->layers[i].operation.kind != YOKE_OP_EMBEDDING) return false;
            any = true;
        }
    return any && !yoke_is_output(model, value);
}

static void add_inputs(yoke_onnx_writer *w) {
    const yoke_model *model = w->model;
    w->graph->input = yoke_onnx_keep(w, YOKE_INPUTS_LIMIT * sizeof *w->graph->input);
    for (int i = 0; i < model->input_count && w->status == YOKE_OK; i++) {
        int value = model->inputs[i].value;
        w->ids[value] = reads_ids(model, value);
        w->values[value] = model->inputs[i].name;
        w->graph->input[w->graph->n_input++] =
            describe(w, model->inputs[i].name, yoke_value_shape(model, value),
                     w->ids[value] ? YOKE_ONNX_INT64 : YOKE_ONNX_FLOAT);
    }
}

static void add_outputs(yoke_onnx_writer *w) {
    const yoke_model *model = w->model;
    w->graph->output = yoke_onnx_keep(w, YOKE_OUTPUTS_LIMIT * sizeof *w->graph->output);
    for (int i = 0; i < model->output_count && w->status == YOKE_OK; i++) {
        int value = model->outputs[i].value;
        const char *name = model->outputs[i].name, *from = w->values[value];
        int64_t row[3];
        int rank = yoke_onnx_row_sizes(yoke_value_shape(model, value), row);
        if (w->alone[value]) from = yoke_onnx_with_batch(w, from, row, rank);
        yoke_onnx_one(w, "Identity", from, NULL);
        yoke_onnx_call_it(w, name);
        w->graph->output[w->graph->n_output++] =
            describe(w, name, yoke_value_shape(model, value), YOKE_ONNX_FLOAT);
    }
}

/* Layers. */

/* A linear layer that recurrences alone read is a part of theirs. */
static bool is_absorbed(const yoke_model *model, const yoke_node *layer) {
    bool any = false;
    if (layer->operation.kind != YOKE_OP_LINEAR || yoke_is_output(model, layer->output))
        return false;
    for (int i = layer->output; i < model->layer_count; i++)
        for (int k = 0; k < model->layers[i].input_count; k++) {
            if (model->layers[i].inputs[k] != layer->output) continue;
            if (model->layers[i].operation.kind != YOKE_OP_RECURRENCE || k > 0) return false;
            any = true;
        }
    return any && !layer->operation.transposed;
}

static void add_layer(yoke_onnx_writer *w, const yoke_node *layer) {
    if (layer->operation.kind == YOKE_OP_INPUT) return;
    bool alone = true;
    for (int k = 0; k < layer->input_count; k++)
        alone = alone && w->alone[layer->inputs[k]];
    w->alone[layer->output] = alone;
    w->values[layer->output] = "";
    if (is_absorbed(w->model, layer)) return;
    size_t nodes = w->graph->n_node;
    const char *made = yoke_onnx_write_layer(w, layer);
    if (made == NULL) made = yoke_onnx_write_sequence(w, layer);
    if (w->status != YOKE_OK) return;
    if (made == NULL) {
        w->status = FAIL(YOKE_ERROR_ARGUMENT, "%s: an operation %s has no form in ONNX",
                         layer->operation.name, yoke_kind_name(layer->operation.kind));
        return;
    }
    if (w->graph->n_node == nodes) { /* it moves nothing, and its output has a name */
        const char *const same[] = {made, NULL};
        yoke_onnx_emit(w, "Identity", same, NULL);
    }
    const char *name = yoke_onnx_name_of(w, "/%s", layer->operation.name);
    yoke_onnx_call_it(w, name);
    w->values[layer->output] = name;
}

/* Weights. */

/* Whether the graph reads the tensor: one that a bare device keeps for itself is left out. */
static void add_tensor(yoke_onnx_writer *w, int index, yoke_onnx_weights weights, void *payload) {
    const yoke_tensor *tensor = &w->model->tensors[index];
    if (tensor->integer || w->status != YOKE_OK) return;
    if (w->bytes + tensor->count * sizeof(float) > FILE_BYTES) {
        w->status = FAIL(YOKE_ERROR_ARGUMENT,
                         "model '%s' has more than 2 GB of weights, which no single file of ONNX "
                         "takes",
                         w->model->name);
        return;
    }
    float *values = yoke_malloc((tensor->count + 1) * sizeof *values);
    if (values == NULL) {
        w->status = FAIL_MEMORY(tensor->count * sizeof *values, "weights");
        return;
    }
    if (weights != NULL)
        w->status = weights(payload, index, values, tensor->count);
    else if (tensor->given != NULL)
        memcpy(values, tensor->given, tensor->count * sizeof *values);
    else
        w->status = FAIL(YOKE_ERROR_ARGUMENT,
                         "model '%s' has no weights of its own: yoke_weights_save_onnx writes an "
                         "engine's",
                         w->model->name);
    if (w->status == YOKE_OK) yoke_onnx_reals(w, tensor->name, tensor->shape, tensor->ndim, values);
    yoke_free(values);
}

/* The file. */

/* Protobuf gives a few bytes at a time. */
typedef struct appender {
    ProtobufCBuffer base;
    yoke_file_writer *file;
    yoke_status status;
    size_t waiting;
    uint8_t bytes[4096];
} appender;

static void flush(appender *to) {
    if (to->status == YOKE_OK) to->status = yoke_file_write(to->file, to->bytes, to->waiting);
    to->waiting = 0;
}

static void append(ProtobufCBuffer *buffer, size_t bytes, const uint8_t *data) {
    appender *to = (appender *)buffer;
    if (bytes > sizeof to->bytes - to->waiting) flush(to);
    if (bytes > sizeof to->bytes) {
        if (to->status == YOKE_OK) to->status = yoke_file_write(to->file, data, bytes);
        return;
    }
    if (bytes > 0) memcpy(to->bytes + to->waiting, data, bytes);
    to->waiting += bytes;
}

static yoke_status write_file(const Yoke__Onnx__Model *model, const yoke_file_target *target) {
    yoke_file_writer file = {0};
    TRY(yoke_file_create_target(&file, target));
    appender to = {.base = {append}, .file = &file};
    yoke__onnx__model__pack_to_buffer(model, &to.base);
    flush(&to);
    if (to.status == YOKE_OK) return yoke_file_commit(&file);
    yoke_file_abort(&file);
    return to.status;
}

static yoke_status write_graph(yoke_onnx_writer *w, const yoke_file_target *target) {
    Yoke__Onnx__Model model = YOKE__ONNX__MODEL__INIT;
    Yoke__Onnx__OperatorSet set = YOKE__ONNX__OPERATOR_SET__INIT, *sets[] = {&set};
    TRY(w->status);
    set.domain = (char *)"";
    set.has_version = true;
    set.version = OPSET;
    model.has_ir_version = true;
    model.ir_version = IR_VERSION;
    model.producer_name = (char *)"yoke";
    model.producer_version = (char *)yoke_version();
    model.graph = w->graph;
    model.n_opset_import = 1;
    model.opset_import = sets;
    return write_file(&model, target);
}

static yoke_status write_model(yoke_onnx_writer *w, yoke_onnx_weights weights, void *payload,
                               const yoke_file_target *target) {
    const yoke_model *model = w->model;
    size_t values = (size_t)model->layer_count + 1;
    w->values = yoke_onnx_keep(w, values * sizeof *w->values);
    w->alone = yoke_onnx_keep(w, values * sizeof *w->alone);
    w->ids = yoke_onnx_keep(w, values * sizeof *w->ids);
    add_inputs(w);
    for (int i = 0; i < model->layer_count && w->status == YOKE_OK; i++)
        add_layer(w, &model->layers[i]);
    if (w->status == YOKE_OK) add_outputs(w);
    for (int i = 0; i < model->tensor_count && w->status == YOKE_OK; i++)
        add_tensor(w, i, weights, payload);
    return write_graph(w, target);
}

static yoke_status write_to(const yoke_model *model, yoke_onnx_weights weights, void *payload,
                            const yoke_file_target *target) {
    Yoke__Onnx__Graph graph = YOKE__ONNX__GRAPH__INIT;
    yoke_onnx_writer writer = {.model = model, .graph = &graph};
    if (!model->finished)
        return FAIL(YOKE_ERROR_ARGUMENT, "model '%s' is not finished", model->name);
    graph.name = model->name;
    yoke_status status = write_model(&writer, weights, payload, target);
    for (int i = 0; i < writer.memory_count; i++)
        yoke_free(writer.memory[i]);
    yoke_free(writer.memory);
    yoke_free(graph.node);
    yoke_free(graph.initializer);
    return status;
}

yoke_status yoke_model_save_onnx(const yoke_model *model, yoke_onnx_weights weights, void *payload,
                                 const char *path) {
    const yoke_file_target target = yoke_target_path(path);
    TRY(yoke_pointer_check(model, "model"));
    TRY(yoke_pointer_check(path, "path"));
    return write_to(model, weights, payload, &target);
}

yoke_status yoke_model_write_onnx(const yoke_model *model, yoke_onnx_weights weights, void *payload,
                                  const yoke_sink *sink) {
    yoke_sink own;
    const yoke_file_target target = {.sink = &own};
    TRY(yoke_pointer_check(model, "model"));
    TRY(yoke_sink_load(&own, sink));
    return write_to(model, weights, payload, &target);
}
