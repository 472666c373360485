/* SPDX-License-Identifier: Apache-2.0 */
/* For the tests of the simulated cuDNN's backend: a layer's convolution with its neighbours as one
 * graph. Values are [n, c, h, w], in memory channels last. */
#ifndef SIMCUDA_CUDNN_LAYER_GRAPHS_H
#define SIMCUDA_CUDNN_LAYER_GRAPHS_H

#include "simcuda/cudnn_rig.h"

namespace rig {

/* Square images [n, c, size, size] to [n, k, ..], square filters. */
struct Layer {
    int64_t n, c, size, k, kernel, stride, padding;
    int64_t dilation = 1, groups = 1;
    int64_t out() const { return (size + 2 * padding - dilation * (kernel - 1) - 1) / stride + 1; }
};

/* Where a graph differs from those that engines serve. */
struct Wish {
    cudnnDataType_t type = CUDNN_DATA_HALF, scale = CUDNN_DATA_HALF;
    bool channels_last = true;
    bool relu = true, sums = true; /* the graph has the node */
    bool keeps = true;             /* the result that is summed is in memory */
    int64_t mean = 0;              /* the tensor of BN_BWD_WEIGHTS; 0: the one of the ReLU */
    bool adds = false;             /* the convolution adds to its result */
};

enum {
    X = 1,
    W,
    Y, /* of a graph of backward, its gradient */
    SCALE,
    SHIFT,
    SUMS,
    SQUARES,
    MEAN,
    INVSTD,
    MASKED,
    DSCALE,
    DSHIFT,
    EQ_DY_SCALE,
    EQ_X_SCALE,
    EQ_BIAS,
    OTHER,
    BETWEEN /* numbered on */
};

class LayerGraph {
  public:
    LayerGraph(const Layer &layer, const Wish &wish = Wish()) : layer_(layer), wish_(wish) {}
    const Handle &handle() const { return handle_; }
    Objects &objects() { return objects_; }

    /* y = conv(x), or of the ReLU of x * scale + shift, and sums of y. */
    Descriptor forward(bool prologue) {
        Descriptor x = prologue ? rectified() : image(X, wish_.type);
        Descriptor y = result(Y, wish_.type, !wish_.keeps);
        convolve(CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
                 CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA, {filter(), x, y});
        if (wish_.sums) sum(y, channels(SUMS, layer_.k), channels(SQUARES, layer_.k));
        return finish();
    }

    /* The filter's gradient, where the convolution reads the ReLU of x * scale + shift. */
    Descriptor filter_gradient() {
        Descriptor x = rectified(), dy = result(Y, wish_.type, false);
        convolve(CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR,
                 CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA, {filter(), x, dy});
        return finish();
    }

    /* The gradient of the ReLU of batch norm of x, and what that norm's backward needs of it. */
    Descriptor image_gradient() {
        Descriptor dx = between(CUDNN_DATA_FLOAT), x = image(X, wish_.type);
        convolve(CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
                 CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA,
                 {filter(), dx, result(Y, wish_.type, false)});
        Descriptor mean = channels(MEAN, layer_.c), invstd = channels(INVSTD, layer_.c);
        Descriptor scale = channels(SCALE, layer_.c), shift = channels(SHIFT, layer_.c);
        Descriptor of = apply(CUDNN_POINTWISE_SUB, x, mean, CUDNN_DATA_FLOAT);
        of = apply(CUDNN_POINTWISE_MUL, of, invstd, CUDNN_DATA_FLOAT);
        of = apply(CUDNN_POINTWISE_MUL, of, scale, CUDNN_DATA_FLOAT);
        of = apply(CUDNN_POINTWISE_ADD, of, shift, CUDNN_DATA_FLOAT);
        Descriptor masked = image(MASKED, wish_.type, !wish_.keeps);
        nodes_.push_back(pointwise(objects_, CUDNN_POINTWISE_RELU_BWD, of, dx, masked));
        if (wish_.mean != 0) mean = channels(wish_.mean, layer_.c);
        if (wish_.sums) sum_backward({mean, invstd, scale, x, masked});
        return finish();
    }

    Descriptor image(int64_t uid, cudnnDataType_t type, bool is_virtual = false) {
        return values(uid, type, {layer_.n, layer_.c, layer_.size, layer_.size}, is_virtual);
    }
    Descriptor channels(int64_t uid, int64_t count, cudnnDataType_t type = CUDNN_DATA_FLOAT) {
        return values(uid, type, {1, count, 1, 1}, false);
    }
    /* One node that nothing else surrounds: the status of its end. */
    cudnnStatus_t try_sum(cudnnDataType_t math, Descriptor x, Descriptor sums, Descriptor squares) {
        Descriptor node = objects_.create(CUDNN_BACKEND_OPERATION_GEN_STATS_DESCRIPTOR);
        set(node, CUDNN_ATTR_OPERATION_GENSTATS_MODE, CUDNN_TYPE_GENSTATS_MODE,
            std::vector<cudnnGenStatsMode_t>{CUDNN_GENSTATS_SUM_SQSUM});
        set(node, CUDNN_ATTR_OPERATION_GENSTATS_MATH_PREC, CUDNN_TYPE_DATA_TYPE,
            std::vector<cudnnDataType_t>{math});
        refer(node, CUDNN_ATTR_OPERATION_GENSTATS_XDESC, {x});
        refer(node, CUDNN_ATTR_OPERATION_GENSTATS_SUMDESC, {sums});
        refer(node, CUDNN_ATTR_OPERATION_GENSTATS_SQSUMDESC, {squares});
        nodes_.push_back(node);
        return cudnnBackendFinalize(node);
    }
    /* Of mean, invstd, scale, x, dy; the results have this type. */
    cudnnStatus_t try_sum_backward(const std::vector<Descriptor> &reads, cudnnDataType_t math,
                                   cudnnDataType_t type) {
        Descriptor node = objects_.create(CUDNN_BACKEND_OPERATION_BN_BWD_WEIGHTS_DESCRIPTOR);
        set(node, CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_MATH_PREC, CUDNN_TYPE_DATA_TYPE,
            std::vector<cudnnDataType_t>{math});
        for (size_t i = 0; i < 10; i++)
            refer(node,
                  (cudnnBackendAttributeName_t)(CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_MEAN_DESC + i),
                  {i < 5 ? reads[i] : channels(DSCALE + (int64_t)i - 5, layer_.c, type)});
        nodes_.push_back(node);
        return cudnnBackendFinalize(node);
    }

  private:
    Descriptor values(int64_t uid, cudnnDataType_t type, const Dims &dims, bool is_virtual) {
        Descriptor made = objects_.create(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
        Dims strides{dims[1] * dims[2] * dims[3], 1, dims[1] * dims[3], dims[1]};
        if (!wish_.channels_last)
            strides = {dims[1] * dims[2] * dims[3], dims[2] * dims[3], dims[3], 1};
        describe(made, uid, type, dims, strides);
        if (is_virtual) flag(made, CUDNN_ATTR_TENSOR_IS_VIRTUAL);
        check(cudnnBackendFinalize(made));
        return made;
    }
    Descriptor between(cudnnDataType_t type) { return image(next_++, type, true); }
    Descriptor result(int64_t uid, cudnnDataType_t type, bool is_virtual) {
        return values(uid, type, {layer_.n, layer_.k, layer_.out(), layer_.out()}, is_virtual);
    }
    Descriptor filter() {
        return values(W, wish_.type,
                      {layer_.k, layer_.c / layer_.groups, layer_.kernel, layer_.kernel}, false);
    }
    Descriptor apply(cudnnPointwiseMode_t mode, Descriptor x, Descriptor b, cudnnDataType_t type) {
        Descriptor y = between(type);
        nodes_.push_back(pointwise(objects_, mode, x, b, y));
        return y;
    }
    Descriptor rectified() {
        Descriptor scale = channels(SCALE, layer_.c, wish_.scale);
        Descriptor shift = channels(SHIFT, layer_.c, wish_.scale);
        Descriptor of = apply(CUDNN_POINTWISE_MUL, image(X, wish_.type), scale, CUDNN_DATA_FLOAT);
        of = apply(CUDNN_POINTWISE_ADD, of, shift, wish_.relu ? CUDNN_DATA_FLOAT : wish_.type);
        return wish_.relu ? apply(CUDNN_POINTWISE_RELU_FWD, of, nullptr, wish_.type) : of;
    }
    /* The nodes' attributes have one order: alpha, beta, the convolution, w, x, y. */
    void convolve(cudnnBackendDescriptorType_t type, cudnnBackendAttributeName_t alpha,
                  const std::vector<Descriptor> &tensors) {
        auto name = [&](size_t i) { return (cudnnBackendAttributeName_t)(alpha + i); };
        Descriptor node = objects_.create(type);
        set(node, name(0), CUDNN_TYPE_FLOAT, std::vector<float>{1});
        set(node, name(1), CUDNN_TYPE_FLOAT, std::vector<float>{wish_.adds ? 1.0f : 0.0f});
        refer(node, name(2), {window()});
        for (size_t i = 0; i < 3; i++)
            refer(node, name(3 + i), {tensors[i]});
        check(cudnnBackendFinalize(node));
        nodes_.push_back(node);
    }
    Descriptor window() {
        Descriptor made = objects_.create(CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);
        set(made, CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, CUDNN_TYPE_INT64, Dims{2});
        set(made, CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE,
            std::vector<cudnnDataType_t>{CUDNN_DATA_FLOAT});
        set(made, CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE,
            std::vector<cudnnConvolutionMode_t>{CUDNN_CROSS_CORRELATION});
        const struct {
            cudnnBackendAttributeName_t name;
            int64_t value;
        } all[] = {{CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, layer_.padding},
                   {CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, layer_.padding},
                   {CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, layer_.stride},
                   {CUDNN_ATTR_CONVOLUTION_DILATIONS, layer_.dilation}};
        for (const auto &one : all)
            set(made, one.name, CUDNN_TYPE_INT64, Dims{one.value, one.value});
        check(cudnnBackendFinalize(made));
        return made;
    }
    void sum(Descriptor x, Descriptor sums, Descriptor squares) {
        check(try_sum(CUDNN_DATA_FLOAT, x, sums, squares));
    }
    void sum_backward(const std::vector<Descriptor> &reads) {
        check(try_sum_backward(reads, CUDNN_DATA_FLOAT, CUDNN_DATA_FLOAT));
    }
    Descriptor finish() {
        Descriptor graph = open_graph(objects_, handle_, nodes_);
        check(cudnnBackendFinalize(graph));
        return graph;
    }

    Layer layer_;
    Wish wish_;
    Objects objects_;
    Handle handle_;
    std::vector<Descriptor> nodes_;
    int64_t next_ = BETWEEN;
};

} // namespace rig

#endif
