/* SPDX-License-Identifier: Apache-2.0 */
/* Attention as a graph of cuDNN's backend: products of matrices with the softmax between them, in
 * the pattern that the library knows as scaled dot-product attention. Values of 16 bits. */
#ifndef DEVICE_CUDA_ATTENTION_GRAPH_H
#define DEVICE_CUDA_ATTENTION_GRAPH_H

#include "device/cuda/operation_graph.h"

/* Whether cuDNN is known to compute such a pass. */
bool cuda_attention_graph_serves(const cuda_device *device, const cuda_attention_job *job,
                                 bool backward);

#ifdef YOKE_HAS_CUDNN
/* statistics: forward writes log_sum. *graph is NULL, without an error, where the library does not
 * support it. */
yoke_status cuda_attention_graph_create(cuda_graph **graph, cuda_device *device,
                                        const cuda_attention_job *job, bool backward,
                                        bool statistics);
yoke_status cuda_attention_graph_run(const cuda_graph_plan *plan, const cuda_attention_job *job,
                                     bool backward, void *workspace);
#endif

#endif
