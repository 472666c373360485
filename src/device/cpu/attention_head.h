/* SPDX-License-Identifier: Apache-2.0 */
/* Attention of one head over one row: softmax(q k^T / sqrt(size)) v, tile by tile, so that the
 * weights of all pairs of positions are never in memory at once (Dao 2023, FlashAttention-2).
 * Arithmetic is float32, in an order that depends on the shape alone. */
#ifndef DEVICE_CPU_ATTENTION_HEAD_H
#define DEVICE_CPU_ATTENTION_HEAD_H

#include <stdbool.h>
#include <stddef.h>

/* A head's features at every position. */
typedef struct cpu_head_values {
    void *at;
    size_t stride; /* elements from one position to the next */
    bool half;     /* bfloat16 in memory */
} cpu_head_values;

typedef struct cpu_head {
    size_t positions, size; /* size: features of the head */
    bool causal;            /* a position reads itself and those before it */
    cpu_head_values query, key, value;
    cpu_head_values output, output_gradient;
    cpu_head_values query_gradient, key_gradient, value_gradient;
    float *log_sum; /* [positions]: of the exponentials of a position's scores, from forward to
                       backward; forward writes none where it is NULL */
    float *scratch; /* [cpu_head_scratch_floats] of the pass, aligned to a cache line */
} cpu_head;

size_t cpu_head_scratch_floats(size_t positions, size_t size, bool backward);
void cpu_head_forward(const cpu_head *head);
void cpu_head_backward(const cpu_head *head); /* overwrites the three gradients */

#endif
