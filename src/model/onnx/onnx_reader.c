/* SPDX-License-Identifier: Apache-2.0 */
/* From a graph of ONNX to a model: finds what the outputs need, gives every name a value, node by
 * node, and finishes the model. */
#include "model/onnx/onnx_reader.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "yoke/onnx.h"

#define OPSET 13

static void release(yoke_onnx_reader *reader) {
    for (int i = 0; i < reader->parameter_count; i++)
        yoke_free(reader->parameters[i].layer);
    yoke_free(reader->parameters);
    for (int i = 0; i < reader->memory_count; i++)
        yoke_free(reader->memory[i]);
    yoke_free(reader->memory);
    yoke_model_destroy(reader->model);
}

/* Names. */

static void add_name(yoke_onnx_reader *reader, const char *text) {
    if (text == NULL || text[0] == '\0') return;
    yoke_onnx_name *name = &reader->names[reader->name_count++];
    *name = (yoke_onnx_name){.text = text, .reader = -1};
    name->value.node.index = YOKE_NONE;
    name->value.batch = yoke_onnx_no_batch();
}

static bool is_initializer(const yoke_onnx_reader *reader, const char *text) {
    const yoke_onnx_name *name = yoke_onnx_find(reader, text);
    return name != NULL && name->value.kind != YOKE_ONNX_ABSENT;
}

static yoke_status collect_names(yoke_onnx_reader *reader) {
    const Yoke__Onnx__Graph *graph = reader->graph;
    size_t count = graph->n_input + graph->n_initializer;
    void *memory;
    for (size_t i = 0; i < graph->n_node; i++)
        count += graph->node[i]->n_output;
    if (count > INT_MAX / 2) return FAIL(YOKE_ERROR_DATA, "%zu names", count);
    TRY(yoke_onnx_take(reader, count * sizeof *reader->names, "names of tensors", &memory));
    reader->names = memory;
    for (size_t i = 0; i < graph->n_initializer; i++)
        add_name(reader, graph->initializer[i]->name);
    int initializers = reader->name_count;
    qsort(reader->names, (size_t)initializers, sizeof *reader->names, yoke_onnx_by_text);
    for (size_t i = 0; i < graph->n_input; i++) { /* old files name initializers as inputs, too */
        const yoke_onnx_name wanted = {.text = graph->input[i]->name};
        if (wanted.text != NULL && bsearch(&wanted, reader->names, (size_t)initializers,
                                           sizeof wanted, yoke_onnx_by_text) == NULL)
            add_name(reader, wanted.text);
    }
    for (size_t i = 0; i < graph->n_node; i++)
        for (size_t k = 0; k < graph->node[i]->n_output; k++)
            add_name(reader, graph->node[i]->output[k]);
    qsort(reader->names, (size_t)reader->name_count, sizeof *reader->names, yoke_onnx_by_text);
    for (int i = 1; i < reader->name_count; i++)
        if (strcmp(reader->names[i].text, reader->names[i - 1].text) == 0)
            return FAIL(YOKE_ERROR_DATA, "two tensors are called '%s'", reader->names[i].text);
    return YOKE_OK;
}

/* Counts who reads what, from the end: a node that no output needs is done. */
static yoke_status count_uses(yoke_onnx_reader *reader) {
    const Yoke__Onnx__Graph *graph = reader->graph;
    void *memory;
    TRY(yoke_onnx_take(reader, graph->n_node, "nodes", &memory));
    reader->done = memory;
    for (size_t i = 0; i < graph->n_output; i++) {
        yoke_onnx_name *name = yoke_onnx_find(reader, graph->output[i]->name);
        if (name == NULL)
            return FAIL(YOKE_ERROR_DATA, "no node writes output %zu, '%s'", i,
                        graph->output[i]->name != NULL ? graph->output[i]->name : "");
        name->uses++;
    }
    for (size_t i = graph->n_node; i-- > 0;) {
        const Yoke__Onnx__Node *node = graph->node[i];
        reader->done[i] = true;
        for (size_t k = 0; k < node->n_output; k++) {
            const yoke_onnx_name *name = yoke_onnx_find(reader, node->output[k]);
            if (name != NULL && name->uses > 0) reader->done[i] = false;
        }
        for (size_t k = 0; k < node->n_input && !reader->done[i]; k++) {
            yoke_onnx_name *name = yoke_onnx_find(reader, node->input[k]);
            if (name == NULL) continue;
            name->uses++;
            name->reader = (int)i;
        }
    }
    return YOKE_OK;
}

/* Marks nodes that make weights of recurrent layers out of initializers alone, as an exporter that
 * folds nothing leaves them: from the end, what such a node reads is marked, too. */
static yoke_status mark_host(yoke_onnx_reader *reader) {
    const Yoke__Onnx__Graph *graph = reader->graph;
    void *memory, *marks;
    TRY(yoke_onnx_take(reader, graph->n_node, "nodes", &memory));
    TRY(yoke_onnx_take(reader, (size_t)reader->name_count, "names of tensors", &marks));
    reader->host = memory;
    bool *wanted = marks;
    for (size_t i = graph->n_node; i-- > 0;) {
        const Yoke__Onnx__Node *node = graph->node[i];
        bool cell = strcmp(node->op_type, "LSTM") == 0 || strcmp(node->op_type, "GRU") == 0;
        for (size_t k = 0; k < node->n_output; k++) {
            const yoke_onnx_name *name = yoke_onnx_find(reader, node->output[k]);
            if (name != NULL && wanted[name - reader->names]) reader->host[i] = true;
        }
        for (size_t k = 0; k < node->n_input && (cell || reader->host[i]); k++) {
            const yoke_onnx_name *name = yoke_onnx_find(reader, node->input[k]);
            if (name != NULL && (reader->host[i] || (k >= 1 && k <= 3)))
                wanted[name - reader->names] = true;
        }
    }
    return YOKE_OK;
}

/* Initializers. */

/* Names of constants: "/blocks/0/Constant_output_0". */
static bool is_constant(const char *name) {
    return name[0] == '/' || strstr(name, "onstant") != NULL;
}

/* Names that exporters make up for what they have computed, of weights too: "onnx::MatMul_77",
 * "val_3". */
static bool is_generated(const char *name) {
    return strstr(name, "::") != NULL || strncmp(name, "val_", 4) == 0 ||
           strncmp(name, "_val_", 5) == 0 || (name[0] >= '0' && name[0] <= '9') ||
           strncmp(name, "scalar_tensor", 13) == 0 || strncmp(name, "_to_copy", 8) == 0 ||
           strncmp(name, "lifted_tensor", 13) == 0;
}

static yoke_status add_initializer(yoke_onnx_reader *reader, const Yoke__Onnx__Tensor *tensor) {
    size_t count;
    yoke_onnx_name *name = yoke_onnx_find(reader, tensor->name);
    if (name == NULL) return FAIL(YOKE_ERROR_DATA, "an initializer has no name");
    if (name->uses == 0) return YOKE_OK;
    TRY(yoke_onnx_tensor_count(tensor, &count));
    if (tensor->n_dims > YOKE_ONNX_RANK)
        return FAIL(YOKE_ERROR_DATA, "%s has %zu dimensions, Yoke takes at most %d", tensor->name,
                    tensor->n_dims, YOKE_ONNX_RANK);
    TRY(yoke_onnx_tensor_check(reader->file, tensor, count));
    yoke_onnx_value *value = &name->value;
    yoke_onnx_sizes sizes = {(int)tensor->n_dims, {0}};
    for (int i = 0; i < sizes.rank; i++)
        sizes.at[i] = tensor->dims[i];
    TRY(yoke_onnx_sizes_check(&sizes));
    if (yoke_onnx_type_whole(tensor->data_type) || count == 0 || is_constant(tensor->name)) {
        double *elements;
        TRY(yoke_onnx_constant(reader, &sizes, value, &elements));
        value->whole = yoke_onnx_type_whole(tensor->data_type);
        return yoke_onnx_tensor_doubles(reader->file, tensor, count, elements);
    }
    yoke_onnx_parameter *grown =
        yoke_grow(reader->parameters, &reader->parameter_capacity, reader->parameter_count,
                  sizeof *grown, "a table of parameters");
    if (grown == NULL) return YOKE_ERROR_MEMORY;
    reader->parameters = grown;
    value->kind = YOKE_ONNX_PARAMETER;
    value->sizes = sizes;
    value->parameter = reader->parameter_count;
    reader->parameters[reader->parameter_count++] =
        (yoke_onnx_parameter){.tensor = tensor,
                              .name = tensor->name,
                              .generated = is_generated(tensor->name),
                              .node = {YOKE_NONE}};
    return YOKE_OK;
}

/* Inputs. */

static const Yoke__Onnx__TensorType *type_of(const Yoke__Onnx__ValueInfo *info) {
    return info->type != NULL ? info->type->tensor_type : NULL;
}

/* The rows that the file's shapes are for: a fixed number, or a prime that no size shares. */
static yoke_status choose_rows(yoke_onnx_reader *reader) {
    static const int64_t primes[] = {101, 103, 107, 109, 113, 127, 131, 137, 139, 149, 151, 157};
    const Yoke__Onnx__Graph *graph = reader->graph;
    for (size_t i = 0; i < graph->n_input; i++) {
        if (is_initializer(reader, graph->input[i]->name)) continue;
        const Yoke__Onnx__TensorType *type = type_of(graph->input[i]);
        if (type == NULL || type->shape == NULL || type->shape->n_dim == 0)
            return FAIL(YOKE_ERROR_ARGUMENT, "input '%s' is no tensor with a batch as dimension 0",
                        graph->input[i]->name);
        const Yoke__Onnx__Dimension *dim = type->shape->dim[0];
        if (!dim->has_dim_value || dim->dim_value < 1) continue;
        if (reader->rows != 0 && dim->dim_value != reader->rows)
            return FAIL(YOKE_ERROR_ARGUMENT, "inputs have %lld and %lld rows",
                        (long long)reader->rows, (long long)dim->dim_value);
        reader->rows = dim->dim_value;
    }
    for (size_t k = 0; k < sizeof primes / sizeof *primes && reader->rows == 0; k++) {
        bool shared = false;
        for (int i = 0; i < reader->parameter_count && !shared; i++)
            for (size_t d = 0; d < reader->parameters[i].tensor->n_dims; d++)
                shared = shared || reader->parameters[i].tensor->dims[d] % primes[k] == 0;
        if (!shared) reader->rows = primes[k];
    }
    if (reader->rows == 0) reader->rows = primes[0];
    return reader->rows <= 1 << 16
               ? YOKE_OK
               : FAIL(YOKE_ERROR_ARGUMENT, "a batch of %lld rows", (long long)reader->rows);
}

/* The sizes of an input; what the file leaves open comes from `given`, or is an error. */
static yoke_status input_sizes(const yoke_onnx_reader *reader, const Yoke__Onnx__ValueInfo *info,
                               yoke_shape given, yoke_onnx_sizes *sizes) {
    const Yoke__Onnx__Shape *shape = type_of(info)->shape;
    const int64_t images[] = {given.channels, given.height, given.width};
    const int64_t lines[] = {given.height, given.channels}, vectors[] = {given.channels};
    const int64_t *known = given.flat ? vectors : given.sequence ? lines : images;
    size_t own = given.flat ? 1 : given.sequence ? 2 : 3;
    if (shape->n_dim > YOKE_ONNX_RANK)
        return FAIL(YOKE_ERROR_ARGUMENT, "input '%s' has %zu dimensions", info->name, shape->n_dim);
    *sizes = (yoke_onnx_sizes){(int)shape->n_dim, {reader->rows}};
    for (size_t i = 1; i < shape->n_dim; i++) {
        sizes->at[i] = shape->dim[i]->has_dim_value ? shape->dim[i]->dim_value : 0;
        if (sizes->at[i] == 0 && given.channels > 0 && shape->n_dim == own + 1)
            sizes->at[i] = known[i - 1];
        if (sizes->at[i] < 1 || sizes->at[i] > INT_MAX)
            return FAIL(YOKE_ERROR_ARGUMENT,
                        "dimension %zu of input '%s' is %s: give the shape of a row, as rows of "
                        "data or --input do, or export the model with a size",
                        i, info->name, sizes->at[i] == 0 ? "open" : "no size");
    }
    return yoke_onnx_sizes_check(sizes);
}

static bool alike(yoke_shape a, yoke_shape b) {
    return a.channels == b.channels && a.height == b.height && a.width == b.width &&
           a.flat == b.flat && a.sequence == b.sequence;
}

static double elements_of(yoke_shape shape) {
    return (double)shape.channels * (double)shape.height * (double)shape.width;
}

/* The model with its first input, which reads rows as they are given. */
static yoke_status begin_model(yoke_onnx_reader *reader, const char *name, yoke_shape wanted,
                               yoke_shape given, yoke_value *node) {
    yoke_shape shape = given.channels > 0 ? given : wanted;
    if (!alike(shape, wanted) &&
        (elements_of(shape) != elements_of(wanted) || !(shape.flat || wanted.flat)))
        return FAIL(YOKE_ERROR_ARGUMENT,
                    "it reads rows of %d x %d x %d%s, these are %d x %d x %d%s", wanted.channels,
                    wanted.height, wanted.width, yoke_shape_kind(wanted), shape.channels,
                    shape.height, shape.width, yoke_shape_kind(shape));
    TRY(yoke_model_create(&reader->model, name, shape));
    *node = yoke_model_input(reader->model);
    if (!alike(shape, wanted)) *node = yoke_reshape(reader->model, *node, wanted);
    return YOKE_OK;
}

static yoke_status add_inputs(yoke_onnx_reader *reader, const char *name, yoke_shape given) {
    const Yoke__Onnx__Graph *graph = reader->graph;
    for (size_t i = 0; i < graph->n_input; i++) {
        const Yoke__Onnx__ValueInfo *info = graph->input[i];
        if (is_initializer(reader, info->name)) continue;
        yoke_onnx_name *found = yoke_onnx_find(reader, info->name);
        if (found == NULL) return FAIL(YOKE_ERROR_DATA, "input %zu has no name", i);
        yoke_onnx_value *value = &found->value;
        bool first = reader->model == NULL;
        TRY(input_sizes(reader, info, first ? given : (yoke_shape){0}, &value->sizes));
        value->kind = YOKE_ONNX_COMPUTED;
        value->batch = (yoke_onnx_batch){0, 1, 1};
        value->whole = yoke_onnx_type_whole(type_of(info)->elem_type);
        value->raw_input = true;
        yoke_onnx_sizes row = yoke_onnx_row(&value->sizes, value->batch);
        if (value->whole) row = (yoke_onnx_sizes){1, {(int64_t)yoke_onnx_whole(&row)}};
        yoke_shape shape = yoke_onnx_natural(&row);
        if (first)
            TRY(begin_model(reader, name, shape, given, &value->node));
        else
            value->node = yoke_model_add_input(reader->model, info->name, shape);
        if (value->node.index < 0) return yoke_error_restore(&reader->model->error);
    }
    return reader->model != NULL ? YOKE_OK : FAIL(YOKE_ERROR_DATA, "its graph has no input");
}

/* Nodes. */

static const yoke_onnx_operator *const tables[] = {yoke_onnx_arithmetic, yoke_onnx_views,
                                                   yoke_onnx_layers,     yoke_onnx_products,
                                                   yoke_onnx_pools,      NULL};

static const yoke_onnx_operator *find_operator(const yoke_onnx_operator *rows, const char *name) {
    for (; rows->name != NULL; rows++)
        if (strcmp(rows->name, name) == 0) return rows;
    return NULL;
}

/* Whether the node can be computed on the host. A transposed parameter stays one. */
static bool can_fold(const yoke_onnx_call *call, const yoke_onnx_operator *row) {
    if (row->read == NULL) return false;
    bool moves = strcmp(row->name, "Transpose") == 0 || strcmp(row->name, "Cast") == 0;
    for (int i = 0; i < call->in_count; i++) {
        if (call->in[i] == NULL) continue;
        if (!yoke_onnx_known(call, call->in[i])) return false;
        if (moves && call->in[i]->kind == YOKE_ONNX_PARAMETER) return false;
    }
    return true;
}

static yoke_status compute(yoke_onnx_call *call) {
    const char *name = call->node->op_type, *domain = call->node->domain;
    bool own = domain == NULL || domain[0] == '\0' || strcmp(domain, "ai.onnx") == 0;
    const yoke_onnx_operator *row = own ? find_operator(yoke_onnx_folded, name) : NULL;
    if (own && row == NULL) row = find_operator(yoke_onnx_folded_moves, name);
    /* A shape does not depend on the elements. */
    bool looks = row != NULL && (strcmp(name, "Shape") == 0 || strcmp(name, "Size") == 0);
    if (row != NULL && !looks && !can_fold(call, row)) row = NULL;
    for (int i = 0; own && row == NULL && tables[i] != NULL; i++)
        row = find_operator(tables[i], name);
    if (own && row == NULL) row = find_operator(yoke_onnx_recurrent, name);
    if (row == NULL)
        return FAIL(YOKE_ERROR_ARGUMENT, "Yoke has no such operator%s%s", own ? "" : " of ",
                    own ? "" : domain);
    call->word = row->word;
    return row->read(call);
}

/* Parameters that a node of the host reads, as constants. */
static yoke_status make_known(yoke_onnx_call *call) {
    for (int i = 0; i < call->in_count; i++) {
        const yoke_onnx_value *value = call->in[i];
        void *memory;
        double *elements;
        if (value == NULL || value->kind != YOKE_ONNX_PARAMETER || value->transposed) continue;
        TRY(yoke_onnx_take(call->reader, sizeof *value, "a value", &memory));
        TRY(yoke_onnx_constant(call->reader, &value->sizes, memory, &elements));
        TRY(yoke_onnx_tensor_doubles(call->reader->file,
                                     call->reader->parameters[value->parameter].tensor,
                                     yoke_onnx_whole(&value->sizes), elements));
        call->in[i] = memory;
    }
    return YOKE_OK;
}

/* The values that the node reads and writes. */
static yoke_status begin_call(yoke_onnx_call *call) {
    const Yoke__Onnx__Node *node = call->node;
    call->in_count = (int)node->n_input;
    call->out_count = (int)node->n_output;
    for (int i = 0; i < call->in_count; i++) {
        yoke_onnx_name *name = yoke_onnx_find(call->reader, node->input[i]);
        call->in[i] = name != NULL ? &name->value : NULL;
        if (node->input[i][0] != '\0' && (name == NULL || name->value.kind == YOKE_ONNX_ABSENT))
            return FAIL(YOKE_ERROR_DATA,
                        "it reads '%s', which no node before it writes: the graph has a cycle, or "
                        "lacks a part",
                        node->input[i]);
    }
    if (call->reader->host[call->index]) TRY(make_known(call));
    for (int i = 0; i < call->out_count; i++) {
        yoke_onnx_name *name = yoke_onnx_find(call->reader, node->output[i]);
        call->out[i] = name != NULL && name->uses > 0 ? &name->value : NULL;
    }
    return YOKE_OK;
}

/* A value's sizes, its batch and its node say the same. */
static yoke_status check_value(const yoke_onnx_call *call, const yoke_onnx_value *value) {
    if (value->kind != YOKE_ONNX_COMPUTED) return YOKE_OK;
    yoke_onnx_batch batch = value->batch;
    yoke_onnx_sizes row = yoke_onnx_row(&value->sizes, batch);
    yoke_shape shape = yoke_model_value_shape(call->model, value->node);
    bool alike = batch.at < value->sizes.rank &&
                 (double)yoke_onnx_whole(&row) == elements_of(shape) &&
                 (batch.at < 0 ||
                  value->sizes.at[batch.at] == batch.before * call->reader->rows * batch.after);
    if (alike) return YOKE_OK;
    return FAIL(YOKE_ERROR_ARGUMENT,
                "its result has %zu elements for each row of the batch, and %d x %d x %d were made",
                yoke_onnx_whole(&row), shape.channels, shape.height, shape.width);
}

static yoke_status run_node(yoke_onnx_call *call) {
    TRY(begin_call(call));
    if (call->out_count == 0) return YOKE_OK;
    yoke_status status = compute(call);
    if (status != YOKE_OK) return status;
    for (int i = 0; i < call->out_count; i++)
        if (call->out[i] != NULL && call->out[i]->kind == YOKE_ONNX_ABSENT)
            return FAIL(YOKE_ERROR_ARGUMENT, "its output %d is read, which Yoke does not compute",
                        i);
    for (int i = 0; i < call->out_count; i++)
        if (call->out[i] != NULL) TRY(check_value(call, call->out[i]));
    return YOKE_OK;
}

static yoke_status run_nodes(yoke_onnx_reader *reader) {
    const Yoke__Onnx__Graph *graph = reader->graph;
    size_t most_in = 1, most_out = 1;
    void *in, *out;
    for (size_t i = 0; i < graph->n_node; i++) {
        if (graph->node[i]->n_input > most_in) most_in = graph->node[i]->n_input;
        if (graph->node[i]->n_output > most_out) most_out = graph->node[i]->n_output;
    }
    TRY(yoke_onnx_take(reader, most_in * sizeof(yoke_onnx_value *), "a node's inputs", &in));
    TRY(yoke_onnx_take(reader, most_out * sizeof(yoke_onnx_value *), "a node's outputs", &out));
    for (size_t i = 0; i < graph->n_node; i++) {
        const Yoke__Onnx__Node *node = graph->node[i];
        yoke_onnx_call call = {.reader = reader,
                               .model = reader->model,
                               .node = node,
                               .index = (int)i,
                               .in = in,
                               .out = out};
        if (reader->done[i]) continue;
        yoke_status status = run_node(&call);
        if (status == YOKE_OK) continue;
        if (node->name != NULL && node->name[0] != '\0')
            yoke_error_prefix("%s '%.200s'", node->op_type, node->name);
        else
            yoke_error_prefix("%s, node %zu", node->op_type, i);
        return status;
    }
    return YOKE_OK;
}

/* Outputs. */

/* The row of an output in a shape that a loss reads. classes: cross-entropy reads it, so that the
 * classes, PyTorch's dimension 1, become the last one. */
static yoke_status output_node(yoke_onnx_call *call, yoke_onnx_value *value, bool classes,
                               yoke_value *node) {
    yoke_onnx_value turned = *value;
    if (value->batch.at < 0)
        return FAIL(YOKE_ERROR_ARGUMENT, "an output does not depend on the inputs");
    yoke_onnx_sizes row = yoke_onnx_row(&value->sizes, value->batch);
    if (classes && row.rank > 2 && value->batch.at == 0 && row.rank == value->sizes.rank - 1) {
        int order[YOKE_ONNX_RANK] = {0};
        for (int i = 1; i < value->sizes.rank - 1; i++)
            order[i] = i + 1;
        order[value->sizes.rank - 1] = 1;
        TRY(yoke_onnx_permute_value(call, value, order, &turned));
        row = (yoke_onnx_sizes){2, {(int64_t)yoke_onnx_count(&row, 1, row.rank), row.at[0]}};
    }
    if (row.rank > 2) row = (yoke_onnx_sizes){1, {(int64_t)yoke_onnx_whole(&row)}};
    return yoke_onnx_as(call, &turned, yoke_onnx_natural(&row), node);
}

static yoke_status add_outputs(yoke_onnx_reader *reader, const yoke_onnx_options *options) {
    const Yoke__Onnx__Graph *graph = reader->graph;
    yoke_onnx_call call = {.reader = reader, .model = reader->model};
    yoke_value nodes[YOKE_OUTPUTS_LIMIT];
    bool classes = options->loss == NULL || options->loss->kind == YOKE_LOSS_CROSS_ENTROPY;
    if (graph->n_output < 1 || graph->n_output > YOKE_OUTPUTS_LIMIT)
        return FAIL(YOKE_ERROR_ARGUMENT, "%zu outputs, Yoke takes 1 to %d", graph->n_output,
                    YOKE_OUTPUTS_LIMIT);
    for (size_t i = 0; i < graph->n_output; i++) {
        yoke_onnx_name *name = yoke_onnx_find(reader, graph->output[i]->name);
        if (name->value.kind == YOKE_ONNX_ABSENT)
            return FAIL(YOKE_ERROR_DATA, "no node writes output '%s'", name->text);
        TRY(output_node(&call, &name->value, classes && i == 0, &nodes[i]));
        if (i > 0) yoke_model_add_output(reader->model, name->text, nodes[i]);
    }
    yoke_shape shape = yoke_model_value_shape(reader->model, nodes[0]);
    if (options->outputs > 0 && shape.channels != options->outputs)
        return FAIL(YOKE_ERROR_ARGUMENT,
                    "it computes %d outputs, and the data has %d: replace its last layer before "
                    "it is exported",
                    shape.channels, options->outputs);
    yoke_builder_drop_unread(reader->model, &nodes[0]);
    return yoke_model_finish(reader->model, nodes[0], options->loss);
}

/* The whole. */

static yoke_status check_opset(yoke_onnx_reader *reader) {
    const Yoke__Onnx__Model *model = reader->file->model;
    for (size_t i = 0; i < model->n_opset_import; i++) {
        const char *domain = model->opset_import[i]->domain;
        if (domain == NULL || domain[0] == '\0' || strcmp(domain, "ai.onnx") == 0)
            reader->opset = model->opset_import[i]->version;
    }
    if (reader->opset >= OPSET) return YOKE_OK;
    return FAIL(YOKE_ERROR_ARGUMENT,
                "its operators are of set %lld, Yoke reads those of %d and newer: export it again, "
                "or convert it with onnx.version_converter",
                (long long)reader->opset, OPSET);
}

static yoke_status build(yoke_onnx_reader *reader, const yoke_onnx_options *options) {
    const Yoke__Onnx__Graph *graph = reader->graph;
    TRY(check_opset(reader));
    TRY(collect_names(reader));
    TRY(count_uses(reader));
    TRY(mark_host(reader));
    for (size_t i = 0; i < graph->n_initializer; i++)
        TRY(add_initializer(reader, graph->initializer[i]));
    TRY(choose_rows(reader));
    const char *name = reader->file->in_memory ? "model" : reader->file->path;
    TRY(add_inputs(reader, options->name != NULL ? options->name : name, options->input));
    TRY(run_nodes(reader));
    return add_outputs(reader, options);
}

yoke_status yoke_onnx_build(yoke_model **model, const yoke_onnx_file *file,
                            const yoke_onnx_options *options) {
    yoke_onnx_reader reader = {.file = file, .graph = file->model->graph};
    yoke_status status = build(&reader, options);
    if (status == YOKE_OK) {
        *model = reader.model;
        reader.model = NULL;
    } else if (status == YOKE_ERROR_ARGUMENT || status == YOKE_ERROR_DATA) {
        yoke_error_prefix("%s", file->path);
    }
    release(&reader);
    return status;
}

static yoke_status read_from(yoke_model **model, const yoke_file_source *from,
                             const yoke_onnx_options *given) {
    yoke_onnx_options options = {.struct_size = sizeof options};
    yoke_onnx_file file = {0};
    TRY(yoke_options_load(&options, sizeof options, given, "yoke_onnx_options"));
    yoke_status status = yoke_onnx_file_open(&file, from);
    if (status == YOKE_OK) status = yoke_onnx_build(model, &file, &options);
    yoke_onnx_file_close(&file);
    return status;
}

yoke_status yoke_model_load_onnx(yoke_model **model, const char *path,
                                 const yoke_onnx_options *options) {
    const yoke_file_source from = yoke_source_path(path);
    if (model == NULL) return FAIL(YOKE_ERROR_ARGUMENT, "yoke_model_load_onnx: `model` is NULL");
    *model = NULL;
    TRY(yoke_pointer_check(path, "path"));
    return read_from(model, &from, options);
}

yoke_status yoke_model_read_onnx(yoke_model **model, const void *bytes, size_t count,
                                 const yoke_onnx_options *options) {
    yoke_file_source from;
    TRY(yoke_pointer_check(model, "model"));
    *model = NULL;
    TRY(yoke_source_bytes(&from, bytes, count));
    return read_from(model, &from, options);
}
