/* SPDX-License-Identifier: Apache-2.0 */
/* cuDNN's backend: convolutions as nodes of a graph. */
#include "simcuda/cudnn_backend.h"

namespace sim::backend {
namespace {

/* The attributes of the three nodes have one order. */
enum { ALPHA, BETA, CONVOLUTION, W, X, Y };
constexpr int FORWARD = CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA,
              DATA = CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA,
              FILTER = CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA;

bool read_values(const Tensor &from, conv::Tensor *to) {
    if (from.dims.size() != 4 ||
        (from.type != CUDNN_DATA_FLOAT && from.type != CUDNN_DATA_BFLOAT16 &&
         from.type != CUDNN_DATA_HALF))
        return false;
    to->type = from.type == CUDNN_DATA_BFLOAT16 ? Type::bfloat16
               : from.type == CUDNN_DATA_HALF   ? Type::float16
                                                : Type::float32;
    for (size_t i = 0; i < 4; i++) {
        to->dims[i] = (size_t)from.dims[i];
        to->strides[i] = (size_t)from.strides[i];
    }
    return true;
}

cudnnStatus_t read_window(const Backend &convolution, conv::Shape *shape) {
    struct {
        int name;
        int *to;
    } const members[] = {{CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, shape->pad},
                         {CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, shape->stride},
                         {CUDNN_ATTR_CONVOLUTION_DILATIONS, shape->dilation}};
    for (const auto &member : members) {
        std::vector<int64_t> values = read_all<int64_t>(convolution, member.name);
        if (values.size() != 2)
            return cudnn_refuse(CUDNN_STATUS_NOT_SUPPORTED, "convolutions have two dimensions");
        member.to[0] = (int)values[0], member.to[1] = (int)values[1];
    }
    return CUDNN_STATUS_SUCCESS;
}

/* Groups show in the filter's channels. */
cudnnStatus_t read_shape(const Backend &backend, int first, const Tensor tensors[3],
                         conv::Shape *shape) {
    const Backend *convolution = follow(backend, first + CONVOLUTION);
    size_t dims[4];
    if (convolution->type != CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR)
        return cudnn_refuse(CUDNN_STATUS_BAD_PARAM_DESCRIPTOR_TYPE, "not a convolution");
    if (cudnnStatus_t status = read_window(*convolution, shape)) return status;
    if (!read_values(tensors[0], &shape->w) || !read_values(tensors[1], &shape->x) ||
        !read_values(tensors[2], &shape->y))
        return cudnn_refuse(CUDNN_STATUS_NOT_SUPPORTED, "not images in float or bfloat16");
    if (shape->x.dims[conv::C] % shape->w.dims[conv::C] != 0)
        return cudnn_refuse(CUDNN_STATUS_BAD_PARAM, "the channels make no groups");
    shape->groups = shape->x.dims[conv::C] / shape->w.dims[conv::C];
    if (!conv::output_dims(*shape, dims) || std::memcmp(dims, shape->y.dims, sizeof dims) != 0)
        return cudnn_refuse(CUDNN_STATUS_BAD_PARAM_SHAPE_MISMATCH,
                            "the shapes of x, w and y do not belong together");
    return CUDNN_STATUS_SUCCESS;
}

void run(int first, conv::Shape shape, conv::Scale scale, const int64_t uids[3],
         const Memory &memory, const Arithmetic &arithmetic) {
    void *w = memory.at(uids[0]), *x = memory.at(uids[1]), *y = memory.at(uids[2]);
    shape.tf32 = arithmetic.tf32;
    if (first == FORWARD)
        conv::forward(shape, scale, x, w, y);
    else if (first == DATA)
        conv::backward_data(shape, scale, w, y, x, arithmetic.order);
    else
        conv::backward_filter(shape, scale, x, y, w, arithmetic.order);
}

/* Which of w, x and y the node writes. */
size_t written_by(int first) {
    return first == FORWARD ? 2 : first == DATA ? 1 : 0;
}

template <int FIRST> cudnnStatus_t complete(Backend &backend) {
    Tensor tensors[3];
    conv::Shape shape = conv::Shape();
    for (int i = 0; i < 3; i++)
        if (cudnnStatus_t status = read_tensor(backend, FIRST + W + i, &tensors[i])) return status;
    if (cudnnStatus_t status = read_shape(backend, FIRST, tensors, &shape)) return status;
    const conv::Scale scale{read(backend, FIRST + ALPHA, 1.0f), read(backend, FIRST + BETA, 0.0f)};
    Node node = Node();
    node.type = backend.type;
    const size_t written = written_by(FIRST);
    for (size_t i = 0; i < 3; i++) {
        if (i != written || scale.beta != 0) node.reads.push_back(tensors[i]);
        if (i == written) node.writes.push_back(tensors[i]);
    }
    if (tensors[written == 0 ? 1 : 0].type != tensors[written == 2 ? 1 : 2].type)
        return cudnn_refuse(CUDNN_STATUS_NOT_SUPPORTED_DATA_TYPE, "the operands differ in type");
    const size_t *w = shape.w.dims, *y = shape.y.dims;
    node.operations = 2.0 * (double)(y[0] * y[2] * y[3] * w[0] * w[1] * w[2] * w[3]);
    node.mixed = !tensors[written].is_virtual &&
                 tensors[written].type != tensors[written == 0 ? 1 : 0].type;
    node.dilated = shape.dilation[0] * shape.dilation[1] > 1;
    node.reordered = FIRST != FORWARD;
    const std::vector<int64_t> uids{tensors[0].uid, tensors[1].uid, tensors[2].uid};
    node.compute = [=](const Memory &memory, const Arithmetic &arithmetic) {
        run(FIRST, shape, scale, uids.data(), memory, arithmetic);
    };
    backend.node = std::make_shared<const Node>(node);
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t complete_convolution(Backend &backend) {
    if (read(backend, CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_CONVOLUTION) !=
            CUDNN_CROSS_CORRELATION ||
        read(backend, CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_DATA_HALF) != CUDNN_DATA_FLOAT)
        return cudnn_refuse(CUDNN_STATUS_NOT_SUPPORTED, "not a cross-correlation with float sums");
    if (read_all<int64_t>(backend, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS) !=
        read_all<int64_t>(backend, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS))
        return cudnn_refuse(CUDNN_STATUS_NOT_SUPPORTED, "paddings differ on the two sides");
    return CUDNN_STATUS_SUCCESS;
}

template <int FIRST> Kind node_kind(cudnnBackendDescriptorType_t type) {
    auto name = [](int i) { return (cudnnBackendAttributeName_t)(FIRST + i); };
    return {type,
            {{name(ALPHA), CUDNN_TYPE_FLOAT, 1, 1},
             {name(BETA), CUDNN_TYPE_FLOAT, 1, 1},
             {name(CONVOLUTION), CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, 1},
             {name(W), CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, 1},
             {name(X), CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, 1},
             {name(Y), CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, 1}},
            complete<FIRST>};
}

} // namespace

std::vector<Kind> convolution_kinds() {
    return {{CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR,
             {{CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, CUDNN_TYPE_INT64, 1, 1},
              {CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, 1},
              {CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE, 1, 1},
              {CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, CUDNN_TYPE_INT64, 1, 3},
              {CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, CUDNN_TYPE_INT64, 1, 3},
              {CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, CUDNN_TYPE_INT64, 1, 3},
              {CUDNN_ATTR_CONVOLUTION_DILATIONS, CUDNN_TYPE_INT64, 1, 3}},
             complete_convolution},
            node_kind<FORWARD>(CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR),
            node_kind<DATA>(CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR),
            node_kind<FILTER>(CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR)};
}

} // namespace sim::backend
