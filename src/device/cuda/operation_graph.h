/* SPDX-License-Identifier: Apache-2.0 */
/* Operations that cuDNN's backend computes as one graph. A graph is tensors and nodes; a plan
 * computes it by one engine of the library with a choice for each of the engine's knobs.
 *
 *     cuda_graph *graph;
 *     TRY(cuda_graph_create(&graph, device));
 *     cuda_graph_object x = cuda_graph_tensor(graph, &(cuda_graph_values){...});
 *     ...
 *     cuda_graph_node(graph, CUDNN_BACKEND_OPERATION_..., attributes, count);
 *     TRY(cuda_graph_finish(graph, &serves));
 *     TRY(cuda_graph_offers(graph, &rules, 8, &list));
 *     TRY(cuda_graph_plan_create(&plan, graph, &rules, list.texts[0]));
 *     cuda_graph_destroy(graph);   plans live on
 *     TRY(cuda_graph_plan_run(plan, uids, pointers, count, workspace));
 *
 * A step that the library refuses makes the later ones do nothing; cuda_graph_finish reports it. So
 * a description needs no checks between its steps. Whoever makes a graph has entered its device. */
#ifndef DEVICE_CUDA_OPERATION_GRAPH_H
#define DEVICE_CUDA_OPERATION_GRAPH_H

#include "device/cuda/cuda.h"

/* A plan's own description: the engine's number and the choices of its knobs in ascending order,
 * "eng34_k2=9_k6=0". It means the same for every shape and run; a rank in a heuristic's list does
 * not. */
#define CUDA_GRAPH_TEXT_BYTES 192
bool cuda_is_graph_text(const char *text);

#ifdef YOKE_HAS_CUDNN

static inline cudnnDataType_t cuda_cudnn_type(cuda_type type) {
    static const cudnnDataType_t types[] = {[CUDA_FLOAT32] = CUDNN_DATA_FLOAT,
                                            [CUDA_BFLOAT16] = CUDNN_DATA_BFLOAT16,
                                            [CUDA_FLOAT16] = CUDNN_DATA_HALF};
    return types[type];
}

typedef struct cuda_graph cuda_graph;
typedef struct cuda_graph_plan cuda_graph_plan;
/* A descriptor of the library's; the graph owns it. NULL after a refusal. */
typedef cudnnBackendDescriptor_t cuda_graph_object;

/* An attribute of a descriptor: `count` values of the type. A descriptor as value is given by its
 * address, as all values are. */
typedef struct cuda_graph_attribute {
    cudnnBackendAttributeName_t name;
    cudnnBackendAttributeType_t type;
    int64_t count;
    const void *values;
} cuda_graph_attribute;

#define CUDA_GRAPH_DIMS 8
/* Plain tensors need type, ndim, dims, strides and a uid of their own above 0. */
typedef struct cuda_graph_values {
    int64_t uid;
    cudnnDataType_t type;
    int ndim;
    int64_t dims[CUDA_GRAPH_DIMS], strides[CUDA_GRAPH_DIMS]; /* in elements */
    int64_t alignment;                                       /* of the address, in bytes; 0: 16 */
    bool is_virtual; /* between two nodes, never in memory: it takes no pointer */
    bool by_value;   /* a scalar: the pointer that a run gives is the host's */
} cuda_graph_values;

/* *graph is NULL, without an error, where the device has no cuDNN or that has no backend. */
yoke_status cuda_graph_create(cuda_graph **graph, cuda_device *device);
void cuda_graph_destroy(cuda_graph *graph); /* NULL allowed */
cuda_graph_object cuda_graph_tensor(cuda_graph *graph, const cuda_graph_values *values);
/* Any descriptor that a node refers to: of a convolution, a pointwise operation, a tensor with
 * attributes that cuda_graph_values lacks. */
cuda_graph_object cuda_graph_part(cuda_graph *graph, cudnnBackendDescriptorType_t type,
                                  const cuda_graph_attribute *attributes, size_t count);
/* A node, of an OPERATION descriptor. */
void cuda_graph_node(cuda_graph *graph, cudnnBackendDescriptorType_t type,
                     const cuda_graph_attribute *attributes, size_t count);
/* A node of one element: y = mode(x), mode(x, b), or what else the mode reads. The index of an
 * element is that along `axis`. Backward of an activation: x is its input, b the gradient of its
 * output, y that of its input. Computed in float32, comparisons as truth values. */
typedef struct cuda_graph_operands {
    cuda_graph_object x, b, t; /* NULL: the mode has none */
    int64_t axis;
} cuda_graph_operands;
cuda_graph_object cuda_graph_pointwise(cuda_graph *graph, cudnnPointwiseMode_t mode,
                                       cuda_graph_operands from, cuda_graph_object y);
/* Makes the graph of all nodes. *serves is false, without an error, where the library says that it
 * does not support what was described; another refusal is DEVICE or MEMORY. */
yoke_status cuda_graph_finish(cuda_graph *graph, bool *serves);

/* What a plan may be. */
typedef struct cuda_graph_rules {
    size_t workspace_limit; /* in bytes */
    bool atomics;           /* the bits may differ from run to run */
    bool float32;           /* operands are float32: none may be rounded to a shorter type, but */
    bool tf32;              /* to TF32 */
} cuda_graph_rules;

#define CUDA_GRAPH_PLANS 16
typedef struct cuda_graph_list {
    int count;
    char texts[CUDA_GRAPH_PLANS][CUDA_GRAPH_TEXT_BYTES];
} cuda_graph_list;
/* The plans that the library's heuristics A and B recommend, and then those it falls back to, that
 * follow the rules about numbers; each once, best guess first. Once there are `enough` it asks no
 * further heuristic. Making a plan may still show that it does not serve. */
yoke_status cuda_graph_offers(const cuda_graph *graph, const cuda_graph_rules *rules, int enough,
                              cuda_graph_list *list);
/* *plan is NULL, without an error, where the library does not compute the graph by this text, or
 * only against the rules. */
yoke_status cuda_graph_plan_create(cuda_graph_plan **plan, const cuda_graph *graph,
                                   const cuda_graph_rules *rules, const char *text);
void cuda_graph_plan_destroy(cuda_graph_plan *plan); /* NULL allowed */
const char *cuda_graph_plan_text(const cuda_graph_plan *plan);
size_t cuda_graph_plan_workspace(const cuda_graph_plan *plan);
/* Queues the plan on the compute stream. Pointers in the order of the uids, of all tensors that are
 * not virtual. A recording of a run needs the plan as long as it is replayed: the library frees
 * code that it compiled for a plan with the plan. */
yoke_status cuda_graph_plan_run(const cuda_graph_plan *plan, const int64_t *uids,
                                void *const *pointers, int count, void *workspace);

/* For graph*.c only. */
cuda_device *cuda_graph_device(const cuda_graph *graph);
cuda_graph_object cuda_graph_operations(const cuda_graph *graph);
/* Makes a descriptor with its attributes and finalizes it; a refused one is destroyed. *call names
 * the call that failed. */
cudnnStatus_t cuda_graph_make(cudnnBackendDescriptorType_t type,
                              const cuda_graph_attribute *attributes, size_t count,
                              cuda_graph_object *made, const char **call);
/* The library's answers that mean "not this one". */
static inline bool cuda_graph_refuses(cudnnStatus_t status) {
    return CUDNN_STATUS_CATEGORY(status) == CUDNN_STATUS_NOT_SUPPORTED;
}

#endif
#endif
