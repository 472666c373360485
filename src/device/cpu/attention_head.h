/* SPDX-License-Identifier: Apache-2.0 */
/* Attention of one head over one row: softmax(q k^T / sqrt(size)) v. A block of queries reads all
 * its keys at a time, so that the weights of all pairs of positions are never in memory at once;
 * backward computes them again (Dao 2023, FlashAttention-2). The products are dnnl_sgemm's, on the
 * features where they lie. Arithmetic is float32, in an order that depends on the shape alone. */
#ifndef DEVICE_CPU_ATTENTION_HEAD_H
#define DEVICE_CPU_ATTENTION_HEAD_H

#include <stdbool.h>
#include <stddef.h>

#include "device/cpu/onednn.h"

/* A head's features at every position. */
typedef struct cpu_head_values {
    void *at;
    size_t stride; /* elements from one position to the next */
    bool half;     /* bfloat16 in memory */
} cpu_head_values;

typedef struct cpu_head {
    size_t positions, size; /* size: features of the head */
    bool causal;            /* a position reads itself and those before it */
    /* Forward computes the queries of one of so many parts; 0: of all. Values are float32 then. */
    size_t part, parts;
    cpu_head_values query, key, value;
    cpu_head_values output, output_gradient;
    cpu_head_values query_gradient, key_gradient, value_gradient;
    float *log_sum; /* [positions]: of the exponentials of a position's scores, from forward to
                       backward; forward writes none where it is NULL */
    float *scratch; /* [cpu_head_scratch_floats] of the pass, aligned to a cache line */
} cpu_head;

/* Of a head of this shape and these types; addresses do not matter. */
size_t cpu_head_scratch_floats(const cpu_head *head, bool backward);
/* Called by one thread of a team; the products run in that thread. */
dnnl_status_t cpu_head_forward(const cpu_head *head);
dnnl_status_t cpu_head_backward(const cpu_head *head); /* overwrites the three gradients */

#endif
