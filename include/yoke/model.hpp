/* SPDX-License-Identifier: Apache-2.0 */
/** @file
 * Models in C++: each layer is a method of the value that it reads.
 *
 *     yoke::model model("mlp", yoke::vector_shape(784));
 *     model.finish(model.input().linear("fc1", 128).relu().linear("fc2", 10));
 */
#ifndef YOKE_MODEL_HPP
#define YOKE_MODEL_HPP

#include <string>
#include <vector>

#include "yoke/attention.h"
#include "yoke/composed.h"
#include "yoke/convolution.h"
#include "yoke/lengths.h"
#include "yoke/losses.h"
#include "yoke/onnx.h"
#include "yoke/preset.h"
#include "yoke/recurrent.h"
#include "yoke/result.hpp"
#include "yoke/transformer.h"

namespace yoke {
inline namespace YOKE_INLINE_NAMESPACE {

/** The shape of an image. */
inline yoke_shape image_shape(int channels, int height, int width) {
    return yoke_shape_image(channels, height, width);
}
/** The shape of a vector. */
inline yoke_shape vector_shape(int features) {
    return yoke_shape_vector(features);
}
/** The shape of a sequence. */
inline yoke_shape sequence_shape(int positions, int features) {
    return yoke_shape_sequence(positions, features);
}

/** yoke_conv2d_options without what the call gets as an argument. */
struct conv2d_options {
    int stride = 1;
    int padding = 0;
    int groups = 1;
    bool no_bias = false;
    const char *shared_with = nullptr;
    bool kaiming_fan_out = false;
    int dilation = 1;
    int kernel_width = 0;
    int stride_width = 0;
    int padding_width = 0;
    int dilation_width = 0;
};

/** yoke_linear_options without what the call gets as an argument. */
struct linear_options {
    bool no_bias = false;
    const char *shared_with = nullptr;
    bool transposed = false;
    double std = 0;
};

/** yoke_pool_options without what the call gets as an argument. */
struct pool_options {
    int stride = 0;
    int padding = 0;
    int kernel_width = 0;
    int stride_width = 0;
    int padding_width = 0;
};

/** yoke_conv1d_options without what the call gets as an argument. */
struct conv1d_options {
    int stride = 1;
    int padding = 0;
    int groups = 1;
    bool no_bias = false;
    const char *shared_with = nullptr;
    int dilation = 1;
};

/** yoke_recurrent_options without what the call gets as an argument. */
struct recurrent_options {
    int layers = 1;
    bool bidirectional = false;
    bool no_bias = false;
    double dropout = 0;
    const yoke_value *lengths = nullptr;
};

/** yoke_loss_options. */
struct loss_options {
    yoke_loss_kind kind = YOKE_LOSS_CROSS_ENTROPY;
    double label_smoothing = 0;
    std::vector<float> class_weights = {};
    std::vector<float> positive_weights = {};
    bool set_ignore_index = false;
    int ignore_index = -100;
    double huber_delta = 1;
};

/** A value of a model under construction: what a layer has computed. It refers to the model and is
 * copied freely. The model keeps the first error of its layers; model::finish reports it. */
class value {
  public:
    value() = default;
    value(yoke_model *model, yoke_value index) noexcept : model_(model), value_(index) {}
    yoke_model *model() const noexcept { return model_; }
    yoke_value get() const noexcept { return value_; }
    /** Of one row; all 0 after an error. */
    yoke_shape shape() const { return yoke_model_value_shape(model_, value_); }

    /** torch.nn.Conv2d. */
    value conv2d(const std::string &name, int out_channels, int kernel,
                 const conv2d_options &options = {}) const {
        yoke_conv2d_options all = YOKE_CONV2D_OPTIONS_INIT;
        all.name = name.c_str();
        all.out_channels = out_channels;
        all.kernel = kernel;
        all.stride = options.stride;
        all.padding = options.padding;
        all.groups = options.groups;
        all.no_bias = options.no_bias;
        all.shared_with = options.shared_with;
        all.kaiming_fan_out = options.kaiming_fan_out;
        all.dilation = options.dilation;
        all.kernel_width = options.kernel_width;
        all.stride_width = options.stride_width;
        all.padding_width = options.padding_width;
        all.dilation_width = options.dilation_width;
        return with(yoke_conv2d, &all);
    }
    /** torch.nn.Conv1d. */
    value conv1d(const std::string &name, int out_channels, int kernel,
                 const conv1d_options &options = {}) const {
        yoke_conv1d_options all = YOKE_CONV1D_OPTIONS_INIT;
        all.name = name.c_str();
        all.out_channels = out_channels;
        all.kernel = kernel;
        all.stride = options.stride;
        all.padding = options.padding;
        all.groups = options.groups;
        all.no_bias = options.no_bias;
        all.shared_with = options.shared_with;
        all.dilation = options.dilation;
        return with(yoke_conv1d, &all);
    }
    /** torch.nn.Linear. */
    value linear(const std::string &name, int out_features,
                 const linear_options &options = {}) const {
        yoke_linear_options all = YOKE_LINEAR_OPTIONS_INIT;
        all.name = name.c_str();
        all.out_features = out_features;
        all.no_bias = options.no_bias;
        all.shared_with = options.shared_with;
        all.transposed = options.transposed;
        all.std = options.std;
        return with(yoke_linear, &all);
    }
    /** torch.nn.BatchNorm2d. */
    value batch_norm(const std::string &name, double epsilon = 1e-5, double momentum = 0.1) const {
        yoke_batch_norm_options all = YOKE_BATCH_NORM_OPTIONS_INIT;
        all.name = name.c_str();
        all.epsilon = epsilon;
        all.momentum = momentum;
        return with(yoke_batch_norm, &all);
    }
    /** torch.nn.LayerNorm over the channels. */
    value layer_norm(const std::string &name, double epsilon = 1e-5) const {
        yoke_layer_norm_options all = YOKE_LAYER_NORM_OPTIONS_INIT;
        all.name = name.c_str();
        all.epsilon = epsilon;
        return with(yoke_layer_norm, &all);
    }
    /** torch.nn.GroupNorm. */
    value group_norm(const std::string &name, int groups, double epsilon = 1e-5) const {
        yoke_group_norm_options all = YOKE_GROUP_NORM_OPTIONS_INIT;
        all.name = name.c_str();
        all.groups = groups;
        all.epsilon = epsilon;
        return with(yoke_group_norm, &all);
    }
    /** torch.nn.RMSNorm. */
    value rms_norm(const std::string &name, double epsilon = 1e-5) const {
        return with(yoke_rms_norm, name.c_str(), epsilon);
    }

    value relu() const { return with(yoke_relu); }
    value relu6() const { return with(yoke_relu6); }
    value gelu() const { return with(yoke_gelu); }
    value gelu_tanh() const { return with(yoke_gelu_tanh); }
    value silu() const { return with(yoke_silu); }
    value sigmoid() const { return with(yoke_sigmoid); }
    value tanh() const { return with(yoke_tanh); }
    value softmax() const { return with(yoke_softmax); }
    value dropout(double probability) const { return with(yoke_dropout, probability); }
    /** Any function of one argument, with its constants. */
    value map(yoke_function function, double p = 0, double q = 0) const {
        return value(model_, yoke_map_with(model_, function, value_, p, q));
    }

    /** torch.nn.MaxPool2d. */
    value max_pool(int kernel, const pool_options &options = {}) const {
        const yoke_pool_options all = complete(kernel, options);
        return with(yoke_max_pool, &all);
    }
    /** torch.nn.AvgPool2d. */
    value average_pool(int kernel, const pool_options &options = {}) const {
        const yoke_pool_options all = complete(kernel, options);
        return with(yoke_average_pool, &all);
    }
    value adaptive_average_pool(int height, int width) const {
        return with(yoke_adaptive_average_pool, height, width);
    }
    value global_average_pool() const { return with(yoke_global_average_pool); }
    value upsample(int height, int width, yoke_upsample_mode mode = YOKE_UPSAMPLE_NEAREST) const {
        return with(yoke_upsample, height, width, mode);
    }
    value flatten() const { return with(yoke_flatten); }
    value reshape(yoke_shape to) const { return with(yoke_reshape, to); }
    value transpose(yoke_axis first, yoke_axis second) const {
        return with(yoke_transpose, first, second);
    }
    value slice(yoke_axis axis, int begin, int end, double fill = 0) const {
        return with(yoke_slice, axis, begin, end, fill);
    }
    value reduce(yoke_reduce_kind kind, unsigned axes) const {
        return with(yoke_reduce_axes, kind, axes);
    }

    /** Pixels of an image as the positions of a sequence. */
    value sequence() const { return with(yoke_sequence); }
    /** torch.nn.Embedding of the tokens of an input. std 0: nn.Embedding's 1. */
    value embedding(const std::string &name, int count, int features, double std = 0) const {
        yoke_embedding_options all = YOKE_EMBEDDING_OPTIONS_INIT;
        all.name = name.c_str();
        all.count = count;
        all.features = features;
        all.std = std;
        return with(yoke_embedding, &all);
    }
    /** Adds to each of at most `count` positions a row of its own. std 0: 1. */
    value positional_embedding(const std::string &name, int count, double std = 0) const {
        yoke_embedding_options all = YOKE_EMBEDDING_OPTIONS_INIT;
        all.name = name.c_str();
        all.count = count;
        all.std = std;
        return with(yoke_positional_embedding, &all);
    }
    value class_token(const std::string &name) const {
        return with(yoke_class_token, name.c_str());
    }
    value select(int position) const { return with(yoke_select, position); }
    /** Multi-head attention of a sequence [positions, 3 * channels]: q, k and v. */
    value attention(int heads, bool causal = false) const {
        yoke_attention_options all = YOKE_ATTENTION_OPTIONS_INIT;
        all.heads = heads;
        all.causal = causal;
        return with(yoke_attention, &all);
    }
    value split_heads(int heads) const { return with(yoke_split_heads, heads); }
    value merge_heads() const { return with(yoke_merge_heads); }
    value rotary(double base = 10000) const { return with(yoke_rotary, base); }
    /** Attention of these queries over other positions. */
    value attend(value keys, value values) const {
        return with(yoke_attend, keys.value_, values.value_, yoke_no_mask());
    }
    value attend(value keys, value values, value mask) const {
        return with(yoke_attend, keys.value_, values.value_, mask.value_);
    }
    /** torch.nn.LSTM. */
    value lstm(const std::string &name, int hidden, const recurrent_options &options = {}) const {
        const yoke_recurrent_options all = complete(name, hidden, options);
        return with(yoke_lstm, &all);
    }
    /** torch.nn.GRU. */
    value gru(const std::string &name, int hidden, const recurrent_options &options = {}) const {
        const yoke_recurrent_options all = complete(name, hidden, options);
        return with(yoke_gru, &all);
    }

    /** torch.cat over the channels. */
    value concat(value right) const { return with(yoke_concat, right.value_); }
    value matmul(value right, bool transpose_left = false, bool transpose_right = false) const {
        return with(yoke_matmul, right.value_, transpose_left, transpose_right);
    }
    /** The residual connection: x + f(x), of the same shape. */
    friend value operator+(value left, value right) { return left.with(yoke_add, right.value_); }
    friend value operator*(value left, value right) {
        return left.with(yoke_multiply, right.value_);
    }
    friend value operator-(value left, value right) {
        return left.with(yoke_subtract, right.value_);
    }
    friend value operator/(value left, value right) { return left.with(yoke_divide, right.value_); }
    friend value operator*(double factor, value right) { return right.map(YOKE_FN_SCALE, factor); }

    /** Any layer call of the C API whose first arguments are model and input. */
    template <class Layer, class... Arguments>
    value with(Layer layer, Arguments... arguments) const {
        return value(model_, layer(model_, value_, arguments...));
    }

  private:
    static yoke_pool_options complete(int kernel, const pool_options &options) {
        yoke_pool_options all = YOKE_POOL_OPTIONS_INIT;
        all.kernel = kernel;
        all.stride = options.stride;
        all.padding = options.padding;
        all.kernel_width = options.kernel_width;
        all.stride_width = options.stride_width;
        all.padding_width = options.padding_width;
        return all;
    }
    static yoke_recurrent_options complete(const std::string &name, int hidden,
                                           const recurrent_options &options) {
        yoke_recurrent_options all = YOKE_RECURRENT_OPTIONS_INIT;
        all.name = name.c_str();
        all.hidden = hidden;
        all.layers = options.layers;
        all.bidirectional = options.bidirectional;
        all.no_bias = options.no_bias;
        all.dropout = options.dropout;
        all.lengths = options.lengths;
        return all;
    }

    yoke_model *model_ = nullptr;
    yoke_value value_ = {-1};
};

/** A model. Nets and engines that use it must be closed first. */
class model {
  public:
    model() = default;
    explicit model(yoke_model *owned) noexcept : handle_(owned) {}
    model(const std::string &name, yoke_shape input) : model(try_create(name, input).value()) {}

    static result<model> try_create(const std::string &name, yoke_shape input) {
        yoke_model *made = nullptr;
        const yoke_status status = yoke_model_create(&made, name.c_str(), input);
        return own(status, made);
    }
    /** yoke_model_preset. */
    static result<model> try_preset(const std::string &name, yoke_shape input, int classes) {
        yoke_model *made = nullptr;
        const yoke_status status = yoke_model_preset(&made, name.c_str(), input, classes, nullptr);
        return own(status, made);
    }
    static model preset(const std::string &name, yoke_shape input, int classes) {
        return try_preset(name, input, classes).value();
    }
    /** yoke_model_load_onnx. */
    static result<model> try_read_onnx(const std::string &path) {
        yoke_model *made = nullptr;
        const yoke_status status = yoke_model_load_onnx(&made, path.c_str(), nullptr);
        return own(status, made);
    }
    static model read_onnx(const std::string &path) { return try_read_onnx(path).value(); }

    value input() { return value(get(), yoke_model_input(get())); }
    value add_input(const std::string &name, yoke_shape shape) {
        return value(get(), yoke_model_add_input(get(), name.c_str(), shape));
    }
    void add_output(const std::string &name, value output) {
        yoke_model_add_output(get(), name.c_str(), output.get());
    }
    value parameter(const std::string &name, yoke_shape shape, double first = 0, double std = 0) {
        yoke_parameter_options all = YOKE_PARAMETER_OPTIONS_INIT;
        all.name = name.c_str();
        all.shape = shape;
        all.value = first;
        all.std = std;
        return value(get(), yoke_parameter_value(get(), &all));
    }
    value causal_mask(int positions) { return value(get(), yoke_causal_mask(get(), positions)); }

    /** Names the output and the loss, and reports the first error of all layers. */
    result<void> try_finish(value output, const loss_options &loss = {}) {
        yoke_loss_options all = YOKE_LOSS_OPTIONS_INIT;
        const std::vector<float> &classes = loss.class_weights, &positive = loss.positive_weights;
        all.kind = loss.kind;
        all.label_smoothing = loss.label_smoothing;
        all.class_weights = classes.empty() ? nullptr : classes.data();
        all.positive_weights = positive.empty() ? nullptr : positive.data();
        all.weight_count = static_cast<int>(classes.empty() ? positive.size() : classes.size());
        all.set_ignore_index = loss.set_ignore_index;
        all.ignore_index = loss.ignore_index;
        all.huber_delta = loss.huber_delta;
        return result<void>(yoke_model_finish(get(), output.get(), &all));
    }
    void finish(value output, const loss_options &loss = {}) { try_finish(output, loss).value(); }

    std::string name() const { return yoke_model_name(get()); }
    std::size_t parameter_count() const noexcept { return yoke_model_parameter_count(get()); }
    int input_count() const noexcept { return yoke_model_input_count(get()); }
    int output_count() const noexcept { return yoke_model_output_count(get()); }
    yoke_shape input_shape() const noexcept { return yoke_model_input_shape(get()); }
    yoke_shape output_shape() const noexcept { return yoke_model_output_shape(get()); }

    yoke_model *get() const noexcept { return handle_.get(); }
    explicit operator bool() const noexcept { return static_cast<bool>(handle_); }
    yoke_model *release() noexcept { return handle_.release(); }

  private:
    static result<model> own(yoke_status status, yoke_model *made) {
        if (status != YOKE_OK) return failure(status);
        return model(made);
    }
    handle<yoke_model, yoke_model_destroy> handle_;
};

} // namespace YOKE_INLINE_NAMESPACE
} // namespace yoke

#endif
