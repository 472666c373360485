/* SPDX-License-Identifier: Apache-2.0 */
/* A model on its way into a graph of ONNX; for this folder's files only. Value i of the model is a
 * tensor [batch, row...]; where nothing of a batch goes into it, [1, row...]. */
#ifndef MODEL_ONNX_WRITER_H
#define MODEL_ONNX_WRITER_H

#include "model/graph.h"
#include "model/onnx/onnx.pb-c.h"

typedef struct yoke_onnx_writer {
    const yoke_model *model;
    Yoke__Onnx__Graph *graph;
    const char **values; /* [layers + 1] names of tensors */
    bool *alone;         /* [layers + 1] it has no batch */
    bool *ids;           /* [layers + 1] token ids, which are int64 */
    size_t bytes;        /* of elements so far */
    int counted;         /* tensors whose names are numbers */
    int node_capacity, initializer_capacity;
    void **memory; /* what destroy frees */
    int memory_count, memory_capacity;
    yoke_status status; /* the first failure; then calls do nothing */
} yoke_onnx_writer;

/* An attribute: its name, and numbers or a text. */
typedef struct yoke_onnx_given {
    const char *name;
    const int64_t *ints;
    int count; /* 0: `i`, unless it is a real number or a text */
    int64_t i;
    double f;
    bool is_real;
    const char *text;
} yoke_onnx_given;
#define YOKE_ONNX_GIVEN 8 /* attributes of a node, at most */

/* onnx_graph.c: they return names of tensors, which live as long as the writer; "" in failure. */
void *yoke_onnx_keep(yoke_onnx_writer *writer, size_t bytes);
const char *yoke_onnx_name_of(yoke_onnx_writer *writer, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* A node with one output, whose name is made up; inputs end with NULL, attributes without a name.
 */
const char *yoke_onnx_emit(yoke_onnx_writer *writer, const char *kind, const char *const *inputs,
                           const yoke_onnx_given *attributes);
/* The same with inputs and no attributes. */
const char *yoke_onnx_one(yoke_onnx_writer *writer, const char *kind, const char *a, const char *b);
/* The latest node's only output gets this name. */
void yoke_onnx_call_it(yoke_onnx_writer *writer, const char *name);
/* Initializers: copies of numbers; a real one of no dimension. */
const char *yoke_onnx_wholes(yoke_onnx_writer *writer, const int64_t *numbers, int count);
const char *yoke_onnx_reals(yoke_onnx_writer *writer, const char *name, const int64_t *sizes,
                            int rank, const float *numbers);
const char *yoke_onnx_scalar(yoke_onnx_writer *writer, double number);
const char *yoke_onnx_to_shape(yoke_onnx_writer *writer, const char *from, const int64_t *sizes,
                               int rank);
const char *yoke_onnx_turn(yoke_onnx_writer *writer, const char *from, const int64_t *order,
                           int rank);
/* Places begin .. end - 1 along an axis. */
const char *yoke_onnx_cut(yoke_onnx_writer *writer, const char *from, int axis, int64_t begin,
                          int64_t end);

/* onnx_nodes.c and onnx_sequences.c: the tables, by kinds of operations. They return the tensor of
 * a layer; NULL: the kind is not theirs. */
const char *yoke_onnx_write_layer(yoke_onnx_writer *writer, const yoke_node *layer);
const char *yoke_onnx_write_sequence(yoke_onnx_writer *writer, const yoke_node *layer);
/* The name of a tensor of the model. */
const char *yoke_onnx_tensor_of(const yoke_onnx_writer *writer, int index);
/* Input k of a layer; with_batch: with the batch of the first value that has one. */
const char *yoke_onnx_input_of(const yoke_onnx_writer *writer, const yoke_node *layer, int k);
const char *yoke_onnx_with_batch(yoke_onnx_writer *writer, const char *from, const int64_t *row,
                                 int rank);
/* The sizes of a row in row-major order; returns how many there are. */
int yoke_onnx_row_sizes(yoke_shape shape, int64_t sizes[3]);

#endif
