/* SPDX-License-Identifier: Apache-2.0 */
/* cuDNN's backend: graphs of a convolution and its neighbours that ready engines know as a whole.
 * The rules are those of cuDNN 9.19 for an H100, as far as it was asked: float16, channels in
 * eights, channels last, and the same nodes in the same places. */
#include <algorithm>

#include "simcuda/cudnn_backend.h"

namespace sim::backend {
namespace {

constexpr auto FORWARD = CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
               DATA = CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
               FILTER = CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR,
               SUMS = CUDNN_BACKEND_OPERATION_GEN_STATS_DESCRIPTOR,
               BACKWARD_SUMS = CUDNN_BACKEND_OPERATION_BN_BWD_WEIGHTS_DESCRIPTOR;

const Node *find(const Graph &graph, cudnnBackendDescriptorType_t type) {
    for (const Node &node : graph.nodes)
        if (node.type == type) return &node;
    return nullptr;
}

/* The pointwise operation that writes a tensor. */
const Node *writer(const Graph &graph, const Tensor &of, cudnnPointwiseMode_t mode) {
    for (const Node &node : graph.nodes)
        if (node.type == CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR && node.mode == mode &&
            node.writes[0].uid == of.uid)
            return &node;
    return nullptr;
}

bool lies_channels_last(const Tensor &t) {
    const std::vector<int64_t> strides{t.dims[1] * t.dims[2] * t.dims[3], 1, t.dims[1] * t.dims[3],
                                       t.dims[1]};
    for (size_t i = 0; i < 4; i++)
        if (t.dims[i] > 1 && t.strides[i] != strides[i]) return false;
    return true;
}

/* An image or a filter. */
bool is_image(const Tensor &t) {
    return t.dims.size() == 4 && !t.by_value && t.dims[1] % 8 == 0 && lies_channels_last(t);
}
bool is_half(const Tensor &t) {
    return is_image(t) && t.type == CUDNN_DATA_HALF && !t.is_virtual;
}
bool is_between(const Tensor &t) {
    return is_image(t) && (t.type == CUDNN_DATA_FLOAT || t.type == CUDNN_DATA_HALF) && t.is_virtual;
}

/* A value for each channel of an image. */
bool is_channels(const Tensor &t, cudnnDataType_t type, const Tensor &image) {
    return t.dims == std::vector<int64_t>{1, image.dims[1], 1, 1} && t.strides[1] == 1 &&
           t.type == type && !t.is_virtual && !t.by_value;
}

/* The taps of a filter are bits of a word. */
constexpr int64_t TAPS = 32;
/* Of one group; nothing is added to a result. Image and result have channels in eights. */
bool is_plain(const Node &convolution, const Tensor &w, const Tensor &x) {
    return convolution.reads.size() == 2 && w.dims[1] == x.dims[1] && w.dims[0] % 8 == 0 &&
           w.dims[2] * w.dims[3] <= TAPS;
}

/* `in` is the ReLU of x * scale + shift, with scale and shift in float16. */
bool is_prologue(const Graph &graph, const Tensor &in) {
    const Node *relu = writer(graph, in, CUDNN_POINTWISE_RELU_FWD);
    const Node *add = relu ? writer(graph, relu->reads[0], CUDNN_POINTWISE_ADD) : nullptr;
    const Node *multiply = add ? writer(graph, add->reads[0], CUDNN_POINTWISE_MUL) : nullptr;
    return multiply != nullptr && is_between(in) && in.type == CUDNN_DATA_HALF &&
           is_between(relu->reads[0]) && is_between(add->reads[0]) && is_half(multiply->reads[0]) &&
           is_channels(multiply->reads[1], CUDNN_DATA_HALF, in) &&
           is_channels(add->reads[1], CUDNN_DATA_HALF, in);
}

bool is_forward(const Graph &graph) {
    const Node *convolution = find(graph, FORWARD), *sums = find(graph, SUMS);
    if (convolution == nullptr || sums == nullptr) return false;
    const Tensor &w = convolution->reads[0], &x = convolution->reads[1], &y = convolution->writes[0];
    if (!is_plain(*convolution, w, x) || !is_half(w) || !is_half(y) || sums->reads[0].uid != y.uid ||
        !is_channels(sums->writes[0], CUDNN_DATA_FLOAT, y) ||
        !is_channels(sums->writes[1], CUDNN_DATA_FLOAT, y))
        return false;
    return graph.nodes.size() == 2 ? is_half(x) : graph.nodes.size() == 5 && is_prologue(graph, x);
}

bool is_filter(const Graph &graph) {
    const Node *convolution = find(graph, FILTER);
    if (convolution == nullptr || graph.nodes.size() != 4) return false;
    const Tensor &x = convolution->reads[0], &dy = convolution->reads[1];
    const Tensor &dw = convolution->writes[0];
    return is_plain(*convolution, dw, x) && is_half(dw) && is_half(dy) && is_prologue(graph, x);
}

/* (x - mean) * invstd * scale + bias, of the tensors that the batch norm's backward reads. */
bool is_batch_norm(const Graph &graph, const Tensor &y, const Node &backward) {
    const Node *add = writer(graph, y, CUDNN_POINTWISE_ADD);
    const Node *scale = add ? writer(graph, add->reads[0], CUDNN_POINTWISE_MUL) : nullptr;
    const Node *divide = scale ? writer(graph, scale->reads[0], CUDNN_POINTWISE_MUL) : nullptr;
    const Node *center = divide ? writer(graph, divide->reads[0], CUDNN_POINTWISE_SUB) : nullptr;
    if (center == nullptr || !is_channels(add->reads[1], CUDNN_DATA_FLOAT, y)) return false;
    for (const Node *node : {add, scale, divide, center})
        if (!is_between(node->writes[0])) return false;
    const Tensor *const read[] = {&center->reads[0], &center->reads[1], &divide->reads[1],
                                  &scale->reads[1]};
    const size_t same[] = {0, 2, 3, 4}; /* x, mean, invstd, scale */
    for (size_t i = 0; i < 4; i++)
        if (read[i]->uid != backward.reads[same[i]].uid ||
            (i > 0 && !is_channels(*read[i], CUDNN_DATA_FLOAT, y)))
            return false;
    return is_half(center->reads[0]);
}

bool is_data(const Graph &graph) {
    const Node *convolution = find(graph, DATA), *backward = find(graph, BACKWARD_SUMS);
    if (convolution == nullptr || backward == nullptr || graph.nodes.size() != 7) return false;
    const Tensor &w = convolution->reads[0], &dy = convolution->reads[1];
    const Tensor &dx = convolution->writes[0], &masked = backward->reads[1];
    const Node *relu = writer(graph, masked, CUDNN_POINTWISE_RELU_BWD);
    if (relu == nullptr || relu->reads[0].uid != dx.uid || !is_plain(*convolution, w, dx))
        return false;
    for (const Tensor &tensor : backward->writes)
        if (!is_channels(tensor, CUDNN_DATA_FLOAT, masked)) return false;
    return is_half(w) && is_half(dy) && is_half(masked) && is_between(dx) &&
           is_batch_norm(graph, relu->reads[1], *backward);
}

} // namespace

bool is_convolution(const Node &node) {
    return node.type == FORWARD || node.type == DATA || node.type == FILTER;
}

Pattern pattern_of(const Graph &graph) {
    auto convolutions = std::count_if(graph.nodes.begin(), graph.nodes.end(), is_convolution);
    bool alone = convolutions == 0 || convolutions == (std::ptrdiff_t)graph.nodes.size();
    if (alone && find(graph, SUMS) == nullptr && find(graph, BACKWARD_SUMS) == nullptr)
        return Pattern::any;
    return is_forward(graph)  ? Pattern::forward
           : is_filter(graph) ? Pattern::filter
           : is_data(graph)   ? Pattern::data
                              : Pattern::unknown;
}

/* Two sums of each part's channels, as the real library's plans take for most shapes. */
size_t partial_bytes(const Graph &graph) {
    if (graph.pattern != Pattern::forward && graph.pattern != Pattern::data) return 0;
    const Tensor &over = graph.pattern == Pattern::forward ? find(graph, SUMS)->reads[0]
                                                           : find(graph, BACKWARD_SUMS)->reads[0];
    int64_t parts = (over.dims[0] * over.dims[2] * over.dims[3] + PART - 1) / PART;
    return (size_t)(parts * over.dims[1]) * 2 * sizeof(float);
}

} // namespace sim::backend
