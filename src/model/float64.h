/* SPDX-License-Identifier: Apache-2.0 */
/* The layers of the float64 reference; for its own files only. */
#ifndef MODEL_FLOAT64_H
#define MODEL_FLOAT64_H

#include "model/graph.h"

/* One layer's channels and the pixels of a channel. */
typedef struct yoke_planes {
    size_t channels, pixels;
} yoke_planes;
static inline yoke_planes yoke_planes_of(yoke_shape shape) {
    return (yoke_planes){(size_t)shape.channels, (size_t)shape.height * (size_t)shape.width};
}

/* Forward writes the layer's output, which is zero before. Backward adds to the gradients of the
 * layer's inputs and of its tensors. Values are [rows, channels, height, width]; a sequence is
 * [rows, positions, features]. */
typedef void (*yoke_float64_layer)(yoke_float64_model *reference, const yoke_node *layer,
                                   bool backward);
void yoke_float64_convolution(yoke_float64_model *r, const yoke_node *layer, bool backward);
void yoke_float64_linear(yoke_float64_model *r, const yoke_node *layer, bool backward);
void yoke_float64_batch_norm(yoke_float64_model *r, const yoke_node *layer, bool backward);
void yoke_float64_layer_norm(yoke_float64_model *r, const yoke_node *layer, bool backward);
void yoke_float64_pooling(yoke_float64_model *r, const yoke_node *layer, bool backward);
void yoke_float64_class_token(yoke_float64_model *r, const yoke_node *layer, bool backward);
void yoke_float64_select(yoke_float64_model *r, const yoke_node *layer, bool backward);
void yoke_float64_recurrence(yoke_float64_model *r, const yoke_node *layer, bool backward);
size_t yoke_float64_recurrence_scratch(const yoke_node *layer); /* in doubles; others need none */
void yoke_float64_attention(yoke_float64_model *r, const yoke_node *layer, bool backward);
void yoke_float64_sequence(yoke_float64_model *r, const yoke_node *layer, bool backward);
void yoke_float64_embedding(yoke_float64_model *r, const yoke_node *layer, bool backward);
void yoke_float64_positions(yoke_float64_model *r, const yoke_node *layer, bool backward);
void yoke_float64_activation(yoke_float64_model *r, const yoke_node *layer, bool backward);
void yoke_float64_softmax(yoke_float64_model *r, const yoke_node *layer, bool backward);
void yoke_float64_concat(yoke_float64_model *r, const yoke_node *layer, bool backward);
void yoke_float64_multiply(yoke_float64_model *r, const yoke_node *layer, bool backward);
void yoke_float64_function(yoke_float64_model *r, const yoke_node *layer, bool backward);
void yoke_float64_reduction(yoke_float64_model *r, const yoke_node *layer, bool backward);
void yoke_float64_move(yoke_float64_model *r, const yoke_node *layer, bool backward);
void yoke_float64_matmul(yoke_float64_model *r, const yoke_node *layer, bool backward);
void yoke_float64_constant(yoke_float64_model *r, const yoke_node *layer, bool backward);
void yoke_float64_parameter(yoke_float64_model *r, const yoke_node *layer, bool backward);
/* Add, flatten, reshape, dropout. */
void yoke_float64_elementwise(yoke_float64_model *r, const yoke_node *layer, bool backward);

/* The bias of a convolution or linear layer, if it has one; its last act in both passes. */
void yoke_float64_bias(yoke_float64_model *r, const yoke_node *layer, bool backward);

#endif
