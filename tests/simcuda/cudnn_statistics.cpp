/* SPDX-License-Identifier: Apache-2.0 */
/* cuDNN's backend: sums over each channel as nodes of a graph, of forward for a batch norm that
 * follows, and of its backward. */
#include <algorithm>

#include "simcuda/cudnn_backend.h"

namespace sim::backend {
namespace {

int64_t pixels(const Tensor &image) {
    return image.dims[0] * image.dims[2] * image.dims[3];
}

size_t place_of(const Tensor &image, int64_t channel, int64_t pixel) {
    int64_t column = pixel % image.dims[3], row = pixel / image.dims[3] % image.dims[2];
    int64_t n = pixel / image.dims[3] / image.dims[2];
    return (size_t)(n * image.strides[0] + channel * image.strides[1] + row * image.strides[2] +
                    column * image.strides[3]);
}

/* The sum of a channel's values, part by part: always the same order. */
template <typename Value> float sum(const Tensor &image, Value value) {
    float whole = 0;
    for (int64_t first = 0, count = pixels(image); first < count; first += PART) {
        float part = 0;
        for (int64_t pixel = first; pixel < std::min(first + PART, count); pixel++)
            part += value(pixel);
        whole += part;
    }
    return whole;
}

/* One float32 for each channel of the image. */
bool is_channels(const Tensor &tensor, const Tensor &image) {
    return tensor.dims == std::vector<int64_t>{1, image.dims[1], 1, 1};
}

/* Images with their float32 values for each channel. */
cudnnStatus_t check_tensors(const std::vector<Tensor> &images, const std::vector<Tensor> &channels) {
    for (const Tensor &image : images)
        if (image.dims.size() != 4 || image.dims != images[0].dims)
            return cudnn_refuse(CUDNN_STATUS_BAD_PARAM_SHAPE_MISMATCH, "not images of one shape");
    for (const Tensor &tensor : channels)
        if (!is_channels(tensor, images[0]))
            return cudnn_refuse(CUDNN_STATUS_BAD_PARAM_SHAPE_MISMATCH,
                                "not a value for each channel");
    for (const Tensor &image : images)
        if (!has_values(image))
            return cudnn_refuse(CUDNN_STATUS_NOT_SUPPORTED_DATA_TYPE, "not a type of numbers");
    for (const Tensor &tensor : channels)
        if (tensor.type != CUDNN_DATA_FLOAT)
            return cudnn_refuse(CUDNN_STATUS_NOT_SUPPORTED_DATA_TYPE,
                                "values of channels are not float");
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t read_tensors(const Backend &from, const std::vector<int> &names,
                           std::vector<Tensor> *tensors) {
    for (int name : names) {
        tensors->emplace_back();
        if (cudnnStatus_t status = read_tensor(from, name, &tensors->back())) return status;
    }
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t check_float(const Backend &backend, int name) {
    if (read(backend, name, CUDNN_DATA_HALF) == CUDNN_DATA_FLOAT) return CUDNN_STATUS_SUCCESS;
    return cudnn_refuse(CUDNN_STATUS_NOT_SUPPORTED, "sums are not float");
}

void finish(Backend &backend, const std::vector<Tensor> &reads, const std::vector<Tensor> &writes,
            std::function<void(const Memory &, const Arithmetic &)> compute) {
    Node node = Node();
    node.type = backend.type;
    node.reads = reads;
    node.writes = writes;
    node.operations = 2.0 * (double)elements(reads[0]);
    node.compute = compute;
    backend.node = std::make_shared<const Node>(node);
}

/* Sums, and sums of squares, of x as it lies in memory. */
void run_sums(const Tensor &x, const Tensor &sums, const Tensor &squares, const Memory &memory) {
    const void *xs = memory.at(x.uid);
    for (int64_t c = 0; c < x.dims[1]; c++) {
        auto value = [&](int64_t pixel) { return get_value(x, xs, place_of(x, c, pixel)); };
        put_value(sums, memory.at(sums.uid), (size_t)(c * sums.strides[1]), sum(x, value));
        put_value(squares, memory.at(squares.uid), (size_t)(c * squares.strides[1]),
                  sum(x, [&](int64_t pixel) { return value(pixel) * value(pixel); }));
    }
}

cudnnStatus_t complete_sums(Backend &backend) {
    std::vector<Tensor> of;
    if (read(backend, CUDNN_ATTR_OPERATION_GENSTATS_MODE, CUDNN_GENSTATS_SUM_SQSUM) !=
        CUDNN_GENSTATS_SUM_SQSUM)
        return cudnn_refuse(CUDNN_STATUS_BAD_PARAM, "there are no such statistics");
    if (cudnnStatus_t status = check_float(backend, CUDNN_ATTR_OPERATION_GENSTATS_MATH_PREC))
        return status;
    if (cudnnStatus_t status = read_tensors(backend,
                                            {CUDNN_ATTR_OPERATION_GENSTATS_XDESC,
                                             CUDNN_ATTR_OPERATION_GENSTATS_SUMDESC,
                                             CUDNN_ATTR_OPERATION_GENSTATS_SQSUMDESC},
                                            &of))
        return status;
    if (cudnnStatus_t status = check_tensors({of[0]}, {of[1], of[2]})) return status;
    finish(backend, {of[0]}, {of[1], of[2]}, [of](const Memory &memory, const Arithmetic &) {
        run_sums(of[0], of[1], of[2], memory);
    });
    return CUDNN_STATUS_SUCCESS;
}

/* Backward of y = scale h + bias, h = (x - mean) invstd, over N values of each channel:
 * dbias = sum dy, dscale = sum dy h, and, since mean and invstd depend on x,
 * dx = scale invstd (dy - dbias / N - h dscale / N)
 *    = [scale invstd] dy + [-scale invstd^2 dscale / N] x
 *      + [scale invstd (mean invstd dscale - dbias) / N].
 * The three brackets are the results' names: eq_dy_scale, eq_x_scale, eq_bias. */
enum { MEAN, INVSTD, SCALE, X, DY, DSCALE, DBIAS, EQ_DY_SCALE, EQ_X_SCALE, EQ_BIAS };

void run_backward(const std::vector<Tensor> &of, const Memory &memory) {
    const Tensor &x = of[X], &dy = of[DY];
    const void *xs = memory.at(x.uid), *dys = memory.at(dy.uid);
    const float count = (float)pixels(x);
    for (int64_t c = 0; c < x.dims[1]; c++) {
        auto get = [&](int which) {
            return get_value(of[(size_t)which], memory.at(of[(size_t)which].uid),
                             (size_t)(c * of[(size_t)which].strides[1]));
        };
        auto put = [&](int which, float value) {
            put_value(of[(size_t)which], memory.at(of[(size_t)which].uid),
                      (size_t)(c * of[(size_t)which].strides[1]), value);
        };
        const float mean = get(MEAN), invstd = get(INVSTD), factor = get(SCALE) * invstd;
        auto gradient = [&](int64_t pixel) { return get_value(dy, dys, place_of(dy, c, pixel)); };
        const float dbias = sum(dy, gradient);
        const float dscale = sum(x, [&](int64_t pixel) {
            return gradient(pixel) * (get_value(x, xs, place_of(x, c, pixel)) - mean) * invstd;
        });
        put(DSCALE, dscale);
        put(DBIAS, dbias);
        put(EQ_DY_SCALE, factor);
        put(EQ_X_SCALE, -factor * invstd * dscale / count);
        put(EQ_BIAS, factor * (mean * invstd * dscale - dbias) / count);
    }
}

cudnnStatus_t complete_backward(Backend &backend) {
    std::vector<Tensor> of;
    if (cudnnStatus_t status = check_float(backend, CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_MATH_PREC))
        return status;
    if (cudnnStatus_t status = read_tensors(backend,
                                            {CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_MEAN_DESC,
                                             CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_INVSTD_DESC,
                                             CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_BN_SCALE_DESC,
                                             CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_X_DESC,
                                             CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_DY_DESC,
                                             CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_DBN_SCALE_DESC,
                                             CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_DBN_BIAS_DESC,
                                             CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_EQ_DY_SCALE_DESC,
                                             CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_EQ_X_SCALE_DESC,
                                             CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_EQ_BIAS},
                                            &of))
        return status;
    std::vector<Tensor> channels(of.begin(), of.begin() + X);
    channels.insert(channels.end(), of.begin() + DSCALE, of.end());
    if (cudnnStatus_t status = check_tensors({of[X], of[DY]}, channels)) return status;
    finish(backend, {of[X], of[DY], of[MEAN], of[INVSTD], of[SCALE]}, {of.begin() + DSCALE, of.end()},
           [of](const Memory &memory, const Arithmetic &) { run_backward(of, memory); });
    return CUDNN_STATUS_SUCCESS;
}

} // namespace

std::vector<Kind> statistics_kinds() {
    auto one = [](cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type) {
        return Rule{name, type, 1, 1};
    };
    auto tensor = [](cudnnBackendAttributeName_t name) {
        return Rule{name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, 1};
    };
    return {{CUDNN_BACKEND_OPERATION_GEN_STATS_DESCRIPTOR,
             {one(CUDNN_ATTR_OPERATION_GENSTATS_MODE, CUDNN_TYPE_GENSTATS_MODE),
              one(CUDNN_ATTR_OPERATION_GENSTATS_MATH_PREC, CUDNN_TYPE_DATA_TYPE),
              tensor(CUDNN_ATTR_OPERATION_GENSTATS_XDESC),
              tensor(CUDNN_ATTR_OPERATION_GENSTATS_SUMDESC),
              tensor(CUDNN_ATTR_OPERATION_GENSTATS_SQSUMDESC)},
             complete_sums},
            {CUDNN_BACKEND_OPERATION_BN_BWD_WEIGHTS_DESCRIPTOR,
             {one(CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_MATH_PREC, CUDNN_TYPE_DATA_TYPE),
              tensor(CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_MEAN_DESC),
              tensor(CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_INVSTD_DESC),
              tensor(CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_BN_SCALE_DESC),
              tensor(CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_X_DESC),
              tensor(CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_DY_DESC),
              tensor(CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_DBN_SCALE_DESC),
              tensor(CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_DBN_BIAS_DESC),
              tensor(CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_EQ_DY_SCALE_DESC),
              tensor(CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_EQ_X_SCALE_DESC),
              tensor(CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_EQ_BIAS)},
             complete_backward}};
}

} // namespace sim::backend
