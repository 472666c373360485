/* SPDX-License-Identifier: Apache-2.0 */
/* The layers of a model and the operations that finish makes of them; for this room's files
 * only. */
#ifndef MODEL_GRAPH_H
#define MODEL_GRAPH_H

#include "device/view.h"
#include "model/model.h"

#define YOKE_NONE (-1) /* no value, no tensor */

struct yoke_parameter_options;

/* A layer as the user added it, or an operation after fusing. */
typedef struct yoke_node {
    yoke_operation operation; /* has the layer's name */
    yoke_shape shape;         /* of the output */
    int inputs[YOKE_PLAN_INPUTS],
        input_count; /* values: 0 is the model's input 0, layer i writes i + 1 */
    int output;
    int tensors[YOKE_PLAN_PARAMETERS], tensor_count; /* weight, bias */
    int buffers[2];                                  /* running mean, running variance or NONE */
    int recomputed; /* the number of its activation checkpoint; 0: its value is kept */
} yoke_node;

/* How PyTorch initialises a tensor. */
typedef enum yoke_fill_kind {
    YOKE_FILL_CONSTANT,
    YOKE_FILL_UNIFORM,
    YOKE_FILL_NORMAL
} yoke_fill_kind;
typedef struct yoke_fill {
    yoke_fill_kind kind;
    double value; /* the constant, the bound of U(-bound, bound), the std of N(0, std) */
    bool dirac;   /* then filter i of a convolution, for each input channel i, hands it on:
                     torch.nn.init.dirac_(weight[:weight.size(1)]) */
} yoke_fill;

typedef struct yoke_tensor {
    char *name;
    int ndim;
    int64_t shape[4];
    size_t count;
    bool trainable, integer;
    int groups; /* of a convolution's weight; otherwise 1 */
    bool line;  /* of a convolution over sequences: devices see [out, in / groups, 1, kernel] */
    yoke_fill fill;
    float *given;         /* [count] the first values instead, as of a file; NULL: by `fill` */
    size_t buffer_offset; /* running statistics: floats into the flat buffer */
} yoke_tensor;

/* An input or an output of the model. */
typedef struct yoke_named_value {
    char *name;
    int value;
} yoke_named_value;

struct yoke_model {
    char *name;
    int recomputing, recompute_count; /* the activation checkpoint that layers are added to, 0:
                                         none; and how many there are */
    yoke_shape input;                 /* of input 0 */
    /* Input 0 is value 0, a further one the value of a layer INPUT. Output 0 is what the loss
     * reads; finish sets its value. */
    yoke_named_value inputs[YOKE_INPUTS_LIMIT], outputs[YOKE_OUTPUTS_LIMIT];
    int input_count, output_count;
    yoke_node *layers;
    int layer_count, layer_capacity;
    yoke_tensor *tensors;
    int tensor_count, tensor_capacity;
    size_t buffer_elements;
    yoke_error error; /* the first error; YOKE_OK: none */

    /* Set by finish. */
    bool finished;
    yoke_loss_options loss; /* its weights are `loss_weights` */
    float *loss_weights;    /* [outputs], or NULL */
    yoke_node *nodes; /* fused operations; the last ones are OUTPUTs; `layers` own the names */
    int node_count, value_count;
};

/* builder.c: a new layer is appended at once. After a failure the model is in error, and nothing
 * but destroy uses the half-built layer. */
const char *yoke_kind_name(yoke_operation_kind kind);
bool yoke_builder_stopped(const yoke_model *model);
yoke_value yoke_builder_result(yoke_model *model, yoke_status status);
/* name: of a layer with parameters; of another the word before its position, NULL: its kind's. */
yoke_status yoke_builder_layer(yoke_model *model, yoke_operation_kind kind, const char *name,
                               yoke_node **layer);
yoke_status yoke_builder_read(yoke_model *model, yoke_node *layer, yoke_value value);
/* ARGUMENT unless input 0 is an image. */
yoke_status yoke_builder_image(const yoke_model *model, const yoke_node *layer);
/* Sets a window by a layer's options: a stride or dilation of 0 is 1, and a number of the width
 * that is 0 that of the height, but no padding where the width has a kernel. */
void yoke_builder_set_window(yoke_operation *window, yoke_taps down, yoke_taps across);
/* Checks the numbers of a window; then also that it fits the image, and the output's size. */
yoke_status yoke_builder_taps(const yoke_node *layer);
yoke_status yoke_builder_window(const yoke_node *layer, int *height, int *width);
/* "kernel of 3 x 5, dilated," for messages. */
#define YOKE_WINDOW_TEXT_BYTES 48
void yoke_window_text(const yoke_operation *window, char text[YOKE_WINDOW_TEXT_BYTES]);
/* The shape of its output. ARGUMENT: too large. */
yoke_status yoke_builder_shape(yoke_node *layer, yoke_shape shape);
/* A layer that reads `input` and writes its shape. */
yoke_status yoke_builder_elementwise(yoke_model *model, yoke_operation_kind kind, const char *name,
                                     yoke_value input, yoke_node **layer);
yoke_shape yoke_value_shape(const yoke_model *model, int value);
/* All 0 where the model holds an error or has no such value. */
yoke_shape yoke_shape_of(const yoke_model *model, yoke_value value);
const yoke_node *yoke_builder_find(const yoke_model *model, const char *name);
/* Takes out layers that neither `output` nor a named output needs, unless they have tensors. Values
 * that the caller knows are others afterwards, but for *output. */
void yoke_builder_drop_unread(yoke_model *model, yoke_value *output);
/* `array` with room for element `count`, perhaps at another address. NULL: no memory, and the error
 * names `what`. */
void *yoke_grow(void *array, int *capacity, int count, size_t size, const char *what);

/* tensors.c: appends NAME.SUFFIX, or NAME where the suffix is NULL, to the table; *index gets its
 * row. */
yoke_status yoke_tensor_add(yoke_model *model, const char *layer, const char *suffix,
                            const yoke_tensor *description, int *index);
/* A parameter by the caller's options, loaded, as LAYER.NAME; layer NULL: as NAME. */
yoke_status yoke_parameter_add(yoke_model *model, const char *layer,
                               const struct yoke_parameter_options *options, int *index);
/* PyTorch's name of a tensor where it is not LAYER.SUFFIX; copied. The model keeps an error.
 * Nothing happens to a model in error. */
void yoke_tensor_rename(yoke_model *model, yoke_tensor *tensor, const char *name);
void yoke_tensor_release(yoke_tensor *tensor);

/* layer_tensors.c: the weight and, if the layer has one, the bias; those of the earlier layer
 * `shared_with` unless that is NULL. A weight without a fill of its own gets PyTorch's: uniform, by
 * fan_in. The output's shape is known. */
yoke_status yoke_layer_tensors(yoke_model *model, yoke_node *layer, const yoke_tensor *weight,
                               size_t fan_in, const char *shared_with);

/* model_loss.c: checks and keeps the options, NULL: the defaults. Output 0 is known. */
yoke_status yoke_model_set_loss(yoke_model *model, const yoke_loss_options *given);

/* inputs_outputs.c: the first input and the first output, which every model has. */
yoke_status yoke_inputs_outputs_begin(yoke_model *model, yoke_shape input);
void yoke_inputs_outputs_release(yoke_model *model);
bool yoke_is_output(const yoke_model *model, int value);
/* The name of the input that holds this value; NULL: a layer writes it. */
const char *yoke_input_name(const yoke_model *model, int value);

/* ARGUMENT: no row can have this shape; the message begins with `what`. */
yoke_status yoke_shape_check(yoke_shape shape, const char *what);

/* expressions.c: what a layer computes together with the layers before it that it alone reads. */
typedef struct yoke_joined {
    yoke_expression expression; /* count 0: the layer stays as it is */
    int inputs[YOKE_PLAN_INPUTS];
    bool absorbed; /* a later layer computes it */
} yoke_joined;
/* joined: [layers], zeroed. */
void yoke_join_expressions(const yoke_model *model, yoke_joined *joined);
/* The only layer that reads `value`; NULL when several do or the value is an output. */
const yoke_node *yoke_only_reader(const yoke_model *model, int value);

/* fuse.c: layers -> nodes. OUTPUT of output k is the k-th node from the end, and
 * writes the k-th value from the end. */
yoke_status yoke_fuse(yoke_model *model);
/* Layers that became this operation; 0: an OUTPUT, which no user wrote. */
int yoke_fused_layers(const yoke_node *node);

/* The multiplications of a layer's forward of one row, in convolutions, linear layers and
 * attention. */
double yoke_layer_work(const yoke_model *model, const yoke_node *layer);

yoke_dims yoke_dims_of(yoke_shape shape);
/* " (flat)", " (a sequence)", or nothing, for messages. */
const char *yoke_shape_kind(yoke_shape shape);

#endif
