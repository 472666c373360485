/* SPDX-License-Identifier: Apache-2.0 */
/* A graph of ONNX on its way into a model; for this folder's files only. Every tensor of the graph
 * has sizes, where the batch is so many rows that it can be found again in every shape; a value of
 * the model is one row of it. */
#ifndef MODEL_ONNX_READER_H
#define MODEL_ONNX_READER_H

#include "model/graph.h"
#include "model/onnx/onnx_file.h"
#include "yoke/elementary.h"
#include "yoke/onnx.h"

#define YOKE_ONNX_RANK 8 /* dimensions of a tensor, at most */
#define YOKE_ONNX_NAME_BYTES 200
#define YOKE_ONNX_ELEMENTS ((size_t)1 << 27) /* of all constants that a graph computes, at most */
#define YOKE_ONNX_INFINITY 1e30 /* stands for infinity, which would make gradients NaN */

/* Sizes of a tensor, or of a row: there the batch may have left two. */
typedef struct yoke_onnx_sizes {
    int rank;
    int64_t at[YOKE_ONNX_RANK + 2];
} yoke_onnx_sizes;

/* Where the batch is: dimension `at` has before * rows * after elements. at -1: nowhere. */
typedef struct yoke_onnx_batch {
    int at;
    int64_t before, after;
} yoke_onnx_batch;

typedef enum yoke_onnx_kind {
    YOKE_ONNX_ABSENT,    /* not yet, or an input that the node leaves out */
    YOKE_ONNX_CONSTANT,  /* `elements`: known on the host */
    YOKE_ONNX_PARAMETER, /* an initializer that trains; transposed: its transpose */
    YOKE_ONNX_COMPUTED   /* `node` */
} yoke_onnx_kind;

typedef struct yoke_onnx_value {
    yoke_onnx_kind kind;
    yoke_onnx_sizes sizes;
    yoke_onnx_batch batch;
    bool whole;             /* of whole numbers */
    bool raw_input;         /* an input of the model as it came */
    bool transposed;        /* of a parameter */
    int parameter;          /* its place in the reader's table */
    const double *elements; /* of a constant */
    yoke_value node;        /* a row; index -1: nobody has asked for it yet */
} yoke_onnx_value;

/* An initializer of real numbers. */
typedef struct yoke_onnx_parameter {
    const Yoke__Onnx__Tensor *tensor;
    const char *name;       /* the tensor's, or that of an Identity behind it */
    bool generated;         /* the exporter made the name: in arithmetic it is a constant */
    bool turned;            /* the model has its transpose */
    char *layer;            /* the layer that has it; NULL: none */
    yoke_value node;        /* it as a value; index -1: it is none */
    const double *elements; /* once somebody wants them */
} yoke_onnx_parameter;

/* A name of the graph. */
typedef struct yoke_onnx_name {
    const char *text; /* borrowed from the file */
    int uses;         /* by nodes that the outputs need, and by the outputs */
    int reader;       /* the last such node; -1: none */
    yoke_onnx_value value;
} yoke_onnx_name;

typedef struct yoke_onnx_reader {
    const yoke_onnx_file *file;
    const Yoke__Onnx__Graph *graph;
    yoke_model *model;
    int64_t rows, opset;
    yoke_onnx_name *names; /* [name_count], sorted */
    int name_count;
    yoke_onnx_parameter *parameters;
    int parameter_count, parameter_capacity;
    bool *done;      /* [nodes] not needed, or computed together with another */
    bool *host;      /* [nodes] makes weights of a recurrent layer out of initializers */
    size_t elements; /* of constants so far */
    void **memory;   /* what destroy frees */
    int memory_count, memory_capacity;
} yoke_onnx_reader;

/* An operator at work. */
typedef struct yoke_onnx_call {
    yoke_onnx_reader *reader;
    yoke_model *model;
    const Yoke__Onnx__Node *node;
    int index;            /* of the node */
    int word;             /* what the operator's row of the table says */
    yoke_onnx_value **in; /* [in_count]; NULL: left out */
    int in_count;
    yoke_onnx_value **out; /* [out_count]; NULL: nobody reads it */
    int out_count;
} yoke_onnx_call;

typedef struct yoke_onnx_operator {
    const char *name;
    yoke_status (*read)(yoke_onnx_call *call);
    int word;
} yoke_onnx_operator;

/* The tables of operators, each a file; the last row has no name. */
extern const yoke_onnx_operator yoke_onnx_folded[],
    yoke_onnx_folded_moves[]; /* where all inputs are constants */
extern const yoke_onnx_operator yoke_onnx_arithmetic[], yoke_onnx_views[], yoke_onnx_layers[],
    yoke_onnx_products[], yoke_onnx_pools[], yoke_onnx_recurrent[];

/* onnx_reader.c: the model of a file that was read already. */
yoke_status yoke_onnx_build(yoke_model **model, const yoke_onnx_file *file,
                            const yoke_onnx_options *options);

/* onnx_names.c: a comparison for sorting names; the one with a text, or NULL. */
int yoke_onnx_by_text(const void *a, const void *b);
yoke_onnx_name *yoke_onnx_find(const yoke_onnx_reader *reader, const char *text);
/* Memory that lives as long as the reader, zeroed. */
yoke_status yoke_onnx_take(yoke_onnx_reader *reader, size_t bytes, const char *what, void **memory);

/* onnx_call.c: what operators ask of a node. */
int64_t yoke_onnx_int(const yoke_onnx_call *call, const char *name, int64_t otherwise);
double yoke_onnx_real(const yoke_onnx_call *call, const char *name, double otherwise);
const char *yoke_onnx_text(const yoke_onnx_call *call, const char *name, const char *otherwise,
                           char text[32]);
/* Whether a list of texts is left out, or repeats these. */
bool yoke_onnx_texts_are(const yoke_onnx_call *call, const char *name, const char *const *texts,
                         size_t count);
/* Numbers of an attribute, YOKE_ONNX_RANK + 2 at most; rank -1: there is none. */
yoke_status yoke_onnx_ints(const yoke_onnx_call *call, const char *name, yoke_onnx_sizes *numbers);
/* Those of input `index`, which must be known, or of an attribute. */
yoke_status yoke_onnx_numbers(yoke_onnx_call *call, int index, const char *name,
                              yoke_onnx_sizes *numbers);
/* Whole axes 0 <= axis < rank of numbers that may count from the end. */
yoke_status yoke_onnx_axis(int64_t given, int rank, int *axis);
bool yoke_onnx_has(const yoke_onnx_call *call, int index);
yoke_status yoke_onnx_need(const yoke_onnx_call *call, int count);
/* Whether the elements are known on the host: of a constant, and of a parameter whose name an
 * exporter made. elements_of makes them so. */
bool yoke_onnx_known(const yoke_onnx_call *call, const yoke_onnx_value *value);
yoke_status yoke_onnx_elements_of(yoke_onnx_call *call, yoke_onnx_value *value,
                                  const double **elements);
/* A known value of one element; NaN: it is none. */
yoke_status yoke_onnx_number(yoke_onnx_call *call, yoke_onnx_value *value, double *number);
/* A result: computed by a node; or elements of a constant, to fill. */
yoke_status yoke_onnx_result(yoke_onnx_call *call, int index, const yoke_onnx_sizes *sizes,
                             yoke_onnx_batch batch, yoke_value node);
/* Counts elements of constants that a small file could ask for in any number. ARGUMENT: too many.
 */
yoke_status yoke_onnx_spend(yoke_onnx_reader *reader, size_t count);
yoke_status yoke_onnx_constant(yoke_onnx_reader *reader, const yoke_onnx_sizes *sizes,
                               yoke_onnx_value *value, double **elements);

/* onnx_folded.c: elements of a result to fill; the sizes that input `index` lists; where element i
 * of a tensor lies in one that repeats to it. */
yoke_status yoke_onnx_made(yoke_onnx_call *call, const yoke_onnx_sizes *sizes, bool whole,
                           double **elements);
yoke_status yoke_onnx_listed(yoke_onnx_call *call, int index, yoke_onnx_sizes *sizes);
size_t yoke_onnx_place_of(const yoke_onnx_sizes *sizes, const yoke_onnx_sizes *own, size_t i);

/* onnx_sizes.c: arithmetic of sizes and batches. */
size_t yoke_onnx_count(const yoke_onnx_sizes *sizes, int begin, int end);
static inline size_t yoke_onnx_whole(const yoke_onnx_sizes *sizes) {
    return yoke_onnx_count(sizes, 0, sizes->rank);
}
bool yoke_onnx_same(const yoke_onnx_sizes *a, const yoke_onnx_sizes *b);
/* ARGUMENT: more elements than a tensor may have, or a size below 1. */
yoke_status yoke_onnx_sizes_check(const yoke_onnx_sizes *sizes);
static inline yoke_onnx_batch yoke_onnx_no_batch(void) {
    return (yoke_onnx_batch){-1, 1, 1};
}
yoke_onnx_sizes yoke_onnx_row(const yoke_onnx_sizes *sizes, yoke_onnx_batch batch);
/* Where dimension `dim` of the tensor lies in its row. */
yoke_status yoke_onnx_row_axis(const yoke_onnx_value *value, int dim, int *axis);
/* The batch of a value in another shape. */
yoke_status yoke_onnx_reshaped_batch(const yoke_onnx_reader *reader, const yoke_onnx_value *value,
                                     const yoke_onnx_sizes *sizes, yoke_onnx_batch *batch);
yoke_status yoke_onnx_broadcast_sizes(const yoke_onnx_sizes *a, const yoke_onnx_sizes *b,
                                      yoke_onnx_sizes *sizes);
yoke_shape yoke_onnx_natural(const yoke_onnx_sizes *row);

/* onnx_values.c: rows as values of the model. */
yoke_status yoke_onnx_node(yoke_onnx_call *call, yoke_onnx_value *value, yoke_value *node);
/* The row as three axes, of as many elements: before `axis`, along it, behind it. */
yoke_status yoke_onnx_around(yoke_onnx_call *call, yoke_onnx_value *value, int axis,
                             yoke_value *node);
yoke_status yoke_onnx_as(yoke_onnx_call *call, yoke_onnx_value *value, yoke_shape shape,
                         yoke_value *node);
yoke_value yoke_onnx_reshape(yoke_onnx_call *call, yoke_value node, yoke_shape shape);
/* An image [a, b, c] of a node. */
yoke_value yoke_onnx_image(yoke_onnx_call *call, yoke_value node, size_t a, size_t b, size_t c);
/* A row of these sizes with its axes in another order. */
yoke_value yoke_onnx_permuted(yoke_onnx_call *call, yoke_value node, const yoke_onnx_sizes *row,
                              const int *order);
/* Sizes, batch and nodes of values that a function of elements combines. */
#define YOKE_ONNX_SIDES 3
typedef struct yoke_onnx_sides {
    yoke_onnx_sizes sizes;
    yoke_onnx_batch batch;
    yoke_value nodes[YOKE_ONNX_SIDES];
} yoke_onnx_sides;
yoke_status yoke_onnx_broadcast(yoke_onnx_call *call, yoke_onnx_value *const *values, int count,
                                yoke_onnx_sides *sides);
/* The row of a value that repeats to these sizes, written out. */
yoke_status yoke_onnx_expanded(yoke_onnx_call *call, yoke_onnx_value *value,
                               const yoke_onnx_sizes *sizes, yoke_onnx_batch batch,
                               yoke_value *node);
/* A constant with a batch, all rows of which are alike, as one of a row; others stay. */
yoke_status yoke_onnx_one_row(yoke_onnx_call *call, yoke_onnx_value *value,
                              const yoke_onnx_sizes *sizes, yoke_onnx_batch batch,
                              yoke_onnx_value *row);

/* onnx_arithmetic.c */
yoke_status yoke_onnx_combine(yoke_onnx_call *call, yoke_function function,
                              yoke_onnx_value *const *values, int count, yoke_onnx_value *result);
/* onnx_views.c */
yoke_status yoke_onnx_reshape_value(yoke_onnx_call *call, yoke_onnx_value *value,
                                    const yoke_onnx_sizes *sizes, yoke_onnx_value *result);
yoke_status yoke_onnx_permute_value(yoke_onnx_call *call, yoke_onnx_value *value, const int *order,
                                    yoke_onnx_value *result);
/* Places begin .. end - 1 of a dimension. */
yoke_status yoke_onnx_part(yoke_onnx_call *call, yoke_onnx_value *value, int dim, int64_t begin,
                           int64_t end, double fill, yoke_onnx_value *result);
yoke_status yoke_onnx_gather_part(yoke_onnx_call *call);

/* onnx_parameters.c: parameters of layers. */
yoke_status yoke_onnx_is_layer_parameter(const yoke_onnx_call *call, const yoke_onnx_value *value,
                                         const char *what);
/* A free layer name for the layer of this parameter. */
yoke_status yoke_onnx_layer_name(yoke_onnx_call *call, const yoke_onnx_value *weight,
                                 const char *suffix, char name[YOKE_ONNX_NAME_BYTES]);
/* PyTorch's name of the module that the node is of: "blocks.0.ln_1"; false: nobody knows. */
bool yoke_onnx_module_name(const yoke_onnx_call *call, char name[YOKE_ONNX_NAME_BYTES]);
/* Exporters merge initializers with equal elements, as those of new norms and biases are, which
 * train apart. A parameter that is used already, all of whose elements are one number, becomes one
 * of its own, MODULE.word; one whose name was made up gets that name. Tensors that really are one
 * have elements that differ. named_apart: likewise, with this name, used or not. */
yoke_status yoke_onnx_apart(yoke_onnx_call *call, yoke_onnx_value *value, const char *word);
yoke_status yoke_onnx_named_apart(yoke_onnx_call *call, yoke_onnx_value *value, const char *name);
/* Exporters write transposes of weights. One whose original another layer has becomes that one's.
 */
yoke_status yoke_onnx_original(yoke_onnx_call *call, yoke_onnx_value *matrix);
/* Tensor `index` of the model is this parameter: it gets its name, sizes and elements. */
yoke_status yoke_onnx_own(yoke_onnx_call *call, int tensor, const yoke_onnx_value *value,
                          const char *layer);
/* Tensor `index` begins with these values, which become the model's. */
void yoke_onnx_give(yoke_model *model, int tensor, float *values);
/* The first values of a tensor of the graph: floats [count], which the caller frees. */
yoke_status yoke_onnx_floats(const yoke_onnx_call *call, const yoke_onnx_value *value,
                             float **values);

/* The model's error, if it has one. */
yoke_status yoke_onnx_check(const yoke_onnx_call *call);

#endif
