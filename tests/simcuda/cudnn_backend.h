/* SPDX-License-Identifier: Apache-2.0 */
/* cuDNN's backend: descriptors with attributes (cudnn_backend.cpp), graphs of nodes
 * (cudnn_graph.cpp) and the engines that compute them (cudnn_engines.cpp). A kind of node is an
 * entry of a table: a file describes its attributes and makes a Node of them, as cudnn_nodes.cpp
 * does for convolutions.
 */
#ifndef SIMCUDA_CUDNN_BACKEND_H
#define SIMCUDA_CUDNN_BACKEND_H

#include <cstring>
#include <map>
#include <memory>

#include "simcuda/cudnn_objects.h"

namespace sim::backend {

/* A tensor of a graph. */
struct Tensor {
    int64_t uid;
    cudnnDataType_t type;
    std::vector<int64_t> dims, strides;
    int64_t alignment;
    bool is_virtual, by_value;
};
size_t type_bytes(cudnnDataType_t type);
size_t bytes(const Tensor &tensor); /* from the first element to behind the last */

/* Elements, whatever the type: a number, as float; one of several bytes lies at `index`. */
bool has_values(const Tensor &tensor);
float get_value(const Tensor &tensor, const void *values, size_t index);
void put_value(const Tensor &tensor, void *values, size_t index, float value);
int64_t elements(const Tensor &tensor);
/* Where element `index` of `over` lies in a tensor whose dimensions of 1 are repeated over it. */
size_t place(const Tensor &tensor, const Tensor &over, int64_t index);

/* How an engine computes. */
struct Arithmetic {
    bool tf32;      /* float32 operands are rounded to TF32 */
    unsigned order; /* turns the order of the sums; 0: the usual one */
};
/* Where the tensors lie, by their uid. */
using Memory = std::map<int64_t, void *>;

/* An operation. */
struct Node {
    cudnnBackendDescriptorType_t type;
    cudnnPointwiseMode_t mode;         /* of a pointwise operation */
    std::vector<Tensor> reads, writes; /* a tensor that is added to is in both */
    double operations;                 /* of arithmetic */
    /* What engines look at. */
    bool mixed;     /* results in memory that are wider than the operands: no engine serves these */
    bool dilated;   /* a filter's taps lie apart: nor these */
    bool reordered; /* the sums may take another order */
    std::function<void(const Memory &, const Arithmetic &)> compute;
};

/* Graphs that engines know as a whole (cudnn_patterns.cpp). */
enum class Pattern {
    any,     /* no convolution and its neighbours, so that general engines try it */
    unknown, /* no engine computes it */
    forward, /* [scale, shift, ReLU,] convolution, sums of its result */
    filter,  /* scale, shift, ReLU, gradient of a filter */
    data     /* gradient of an image, backward of a ReLU, sums for batch norm's backward */
};

struct Graph {
    std::vector<Node> nodes; /* in the order that computes them */
    std::map<int64_t, Tensor> tensors;
    Pattern pattern;
    size_t partial_bytes; /* of the partial sums that engines keep in the workspace for a pattern */
};
Pattern pattern_of(const Graph &graph);
size_t partial_bytes(const Graph &graph); /* whose pattern is set */
bool is_convolution(const Node &node);
/* The pixels of a channel whose values make one partial sum. */
constexpr int64_t PART = 256;

struct Choice {
    int64_t type, value;
};

struct Attribute {
    cudnnBackendAttributeType_t type;
    int64_t count;
    std::vector<char> bytes;
};

/* A descriptor. What finalizing makes of its attributes does not refer to other descriptors. */
struct Backend {
    cudnnBackendDescriptorType_t type;
    bool final = false;
    std::map<int, Attribute> attributes;
    std::shared_ptr<const Tensor> tensor;
    std::shared_ptr<const Node> node;
    std::shared_ptr<const Graph> graph; /* of a graph and of all that is made for one */
    int64_t engine = -1;                /* of an engine, a configuration or a plan */
    std::vector<Choice> choices;        /* of a configuration or a plan; of a choice, itself */
    std::shared_ptr<int> code;          /* of a plan: what the library compiled for it */
};

/* An attribute that a descriptor takes: `least` to `most` values of a type; without those that have
 * least 0 it may be finalized. */
struct Rule {
    cudnnBackendAttributeName_t name;
    cudnnBackendAttributeType_t type;
    int64_t least, most;
};
/* A kind of descriptor, and what finalizing makes of it. */
struct Kind {
    cudnnBackendDescriptorType_t type;
    std::vector<Rule> rules;
    cudnnStatus_t (*complete)(Backend &);
};
std::vector<Kind> graph_kinds(), engine_kinds(), convolution_kinds(), pointwise_kinds();
std::vector<Kind> product_kinds(), statistics_kinds();

/* Attributes, of a finalized descriptor or one that is being finalized. `otherwise`: it has none.
 */
template <typename T> T read(const Backend &from, int name, T otherwise) {
    auto found = from.attributes.find(name);
    if (found != from.attributes.end())
        std::memcpy(&otherwise, found->second.bytes.data(), sizeof otherwise);
    return otherwise;
}
template <typename T> std::vector<T> read_all(const Backend &from, int name) {
    auto found = from.attributes.find(name);
    std::vector<T> values(found == from.attributes.end() ? 0 : (size_t)found->second.count);
    if (!values.empty())
        std::memcpy(values.data(), found->second.bytes.data(), values.size() * sizeof(T));
    return values;
}
/* A descriptor that this one refers to; NULL: none. */
const Backend *follow(const Backend &from, int name);
/* The tensor that it refers to; refused: it has none, or refers to something else. */
cudnnStatus_t read_tensor(const Backend &from, int name, Tensor *tensor);

/* cudnn_engines.cpp. */
cudnnStatus_t get(Backend &from, cudnnBackendAttributeName_t name, int64_t most, int64_t *count,
                  void *values);
cudnnStatus_t execute(const cudnnContext &handle, const Backend &plan, const Backend &pack);

} // namespace sim::backend

#endif
