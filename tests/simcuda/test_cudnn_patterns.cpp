/* SPDX-License-Identifier: Apache-2.0 */
/* cuDNN's backend: graphs of a convolution and its neighbours equal float64's, and engines serve
 * these alone. */
#include <functional>

#include <cuda_fp16.h>

#include "simcuda/cudnn_layer_graphs.h"

using namespace rig;

namespace {

constexpr int64_t ENGINES = 8, FUSING = 6, FUSING_BACKWARD = 7;

/* More than one part of the sums, channels that differ, strides that leave pixels out. */
const Layer layers[] = {{2, 16, 13, 8, 1, 1, 0},
                        {2, 8, 13, 24, 3, 1, 1},
                        {3, 16, 12, 8, 1, 2, 0},
                        {2, 8, 24, 16, 3, 2, 1}};

/* Values. */

float half(float value) {
    return __half2float(__float2half_rn(value));
}

/* In float16 on the device. */
class Halves {
  public:
    explicit Halves(const std::vector<float> &from) : array_(narrow(from)) {}
    void *get() const { return array_.get(); }
    std::vector<float> read() const {
        std::vector<float> to;
        for (__half value : array_.read())
            to.push_back(__half2float(value));
        return to;
    }

  private:
    static std::vector<__half> narrow(const std::vector<float> &from) {
        std::vector<__half> to;
        for (float value : from)
            to.push_back(__float2half_rn(value));
        return to;
    }
    Array<__half> array_;
};

std::vector<float> halves(int64_t count, uint32_t seed) {
    std::vector<float> made = values((size_t)count, seed);
    for (float &value : made)
        value = half(value);
    return made;
}
std::vector<float> nothing(int64_t count) {
    return std::vector<float>((size_t)count, NAN);
}

int64_t input_count(const Layer &l) {
    return l.n * l.size * l.size * l.c;
}
int64_t output_count(const Layer &l) {
    return l.n * l.out() * l.out() * l.k;
}
int64_t filter_count(const Layer &l) {
    return l.k * l.kernel * l.kernel * l.c;
}

/* Calls use(x, w, y) with the places of each product of the convolution. */
template <typename Use> void each_product(const Layer &l, Use use) {
    int64_t out = l.out();
    for (int64_t at = 0; at < l.n * out * out * l.kernel * l.kernel; at++) {
        int64_t s = at % l.kernel, r = at / l.kernel % l.kernel, pixel = at / l.kernel / l.kernel;
        int64_t column = pixel % out * l.stride + s * l.dilation - l.padding;
        int64_t row = pixel / out % out * l.stride + r * l.dilation - l.padding;
        if (row < 0 || row >= l.size || column < 0 || column >= l.size) continue;
        int64_t x = ((pixel / out / out * l.size + row) * l.size + column) * l.c;
        for (int64_t k = 0; k < l.k; k++)
            for (int64_t c = 0; c < l.c; c++)
                use((size_t)(x + c), (size_t)(((k * l.kernel + r) * l.kernel + s) * l.c + c),
                    (size_t)(pixel * l.k + k));
    }
}

std::vector<double> zeros(int64_t count) {
    return std::vector<double>((size_t)count);
}

std::vector<double> convolved(const Layer &l, const std::vector<float> &x,
                              const std::vector<float> &w) {
    std::vector<double> y = zeros(output_count(l));
    each_product(l, [&](size_t i, size_t j, size_t k) { y[k] += (double)x[i] * (double)w[j]; });
    return y;
}

/* As float32 and float16 hold it between the nodes. */
std::vector<float> rectified(const std::vector<float> &x, const std::vector<float> &scale,
                             const std::vector<float> &shift) {
    std::vector<float> y;
    for (size_t i = 0; i < x.size(); i++) {
        float scaled = x[i] * scale[i % scale.size()];
        y.push_back(half(std::max(0.0f, scaled + shift[i % scale.size()])));
    }
    return y;
}

/* Sums over each channel of value(i, channel). */
template <typename Value>
std::vector<double> summed(size_t count, int64_t channels, Value value) {
    std::vector<double> sums = zeros(channels);
    for (size_t i = 0; i < count; i++)
        sums[i % (size_t)channels] += value(i, i % (size_t)channels);
    return sums;
}

/* Running. */

struct Pointer {
    int64_t uid;
    void *pointer;
};

int64_t workspace_of(Descriptor running) {
    int64_t bytes = -1, count = 0;
    check(cudnnBackendGetAttribute(running, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE,
                                   CUDNN_TYPE_INT64, 1, &count, &bytes));
    assert_int_equal(count, 1);
    return bytes;
}

/* Two sums of a part of 256 pixels, for each channel. */
int64_t partial_bytes(int64_t pixels, int64_t channels) {
    return (pixels + 255) / 256 * channels * 8;
}

void run(LayerGraph &of, Descriptor graph, int64_t engine, const std::vector<Pointer> &pointers,
         int64_t workspace_bytes) {
    Descriptor running = plan(of.objects(), of.handle(), graph, engine);
    assert_int_equal(workspace_of(running), workspace_bytes);
    Dims uids;
    std::vector<void *> given;
    for (const Pointer &one : pointers) {
        uids.push_back(one.uid);
        given.push_back(one.pointer);
    }
    if (workspace_bytes > 0)
        refused(cudnnBackendExecute(of.handle().handle, running,
                                    pack(of.objects(), uids, given, nullptr)),
                CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "no workspace");
    Array<char> workspace((size_t)workspace_bytes + 1);
    void *room = workspace_bytes > 0 ? workspace.get() : nullptr;
    check(cudnnBackendExecute(of.handle().handle, running, pack(of.objects(), uids, given, room)));
    rig::check(cudaDeviceSynchronize());
}

constexpr double HALF_ERROR = 1.0 / 2048, FLOAT_ERROR = 1e-6;

/* Of y as it lies in memory. */
void expect_sums(const Layer &layer, const std::vector<float> &y, const Array<float> &sums,
                 const Array<float> &squares) {
    auto value = [&](size_t i, size_t) { return (double)y[i]; };
    auto square = [&](size_t i, size_t) { return (double)y[i] * (double)y[i]; };
    assert_close(sums.read(), summed(y.size(), layer.k, value), 4 * FLOAT_ERROR);
    assert_close(squares.read(), summed(y.size(), layer.k, square), 4 * FLOAT_ERROR);
}

/* Tests. */

void a_convolution_and_the_sums_of_its_result(void **) {
    for (const Layer &layer : layers) {
        const std::vector<float> x = halves(input_count(layer), 1);
        const std::vector<float> w = halves(filter_count(layer), 2);
        Halves xs(x), ws(w), ys(nothing(output_count(layer)));
        Array<float> sums(nothing(layer.k)), squares(nothing(layer.k));
        LayerGraph of(layer);
        run(of, of.forward(false), FUSING,
            {{X, xs.get()}, {W, ws.get()}, {Y, ys.get()}, {SUMS, sums.get()}, {SQUARES, squares.get()}},
            partial_bytes(layer.n * layer.out() * layer.out(), layer.k));
        assert_close(ys.read(), convolved(layer, x, w), HALF_ERROR);
        expect_sums(layer, ys.read(), sums, squares);
    }
}

void a_batch_norm_and_relu_before_a_convolution(void **) {
    for (const Layer &layer : layers) {
        const std::vector<float> x = halves(input_count(layer), 1);
        const std::vector<float> w = halves(filter_count(layer), 2);
        const std::vector<float> scale = halves(layer.c, 3), shift = halves(layer.c, 4);
        Halves xs(x), ws(w), ys(nothing(output_count(layer))), scales(scale), shifts(shift);
        Array<float> sums(nothing(layer.k)), squares(nothing(layer.k));
        LayerGraph of(layer);
        run(of, of.forward(true), FUSING,
            {{SHIFT, shifts.get()},
             {SCALE, scales.get()},
             {X, xs.get()},
             {W, ws.get()},
             {Y, ys.get()},
             {SUMS, sums.get()},
             {SQUARES, squares.get()}},
            partial_bytes(layer.n * layer.out() * layer.out(), layer.k));
        assert_close(ys.read(), convolved(layer, rectified(x, scale, shift), w), HALF_ERROR);
        expect_sums(layer, ys.read(), sums, squares);
    }
}

void a_batch_norm_and_relu_before_a_gradient_of_filters(void **) {
    for (const Layer &layer : layers) {
        const std::vector<float> x = halves(input_count(layer), 1);
        const std::vector<float> dy = halves(output_count(layer), 2);
        const std::vector<float> scale = halves(layer.c, 3), shift = halves(layer.c, 4);
        Halves xs(x), dws(nothing(filter_count(layer))), dys(dy), scales(scale), shifts(shift);
        LayerGraph of(layer);
        run(of, of.filter_gradient(), FUSING,
            {{X, xs.get()},
             {SCALE, scales.get()},
             {SHIFT, shifts.get()},
             {W, dws.get()},
             {Y, dys.get()}},
            0);
        const std::vector<float> in = rectified(x, scale, shift);
        std::vector<double> dw = zeros(filter_count(layer));
        each_product(layer, [&](size_t i, size_t j, size_t k) {
            dw[j] += (double)in[i] * (double)dy[k];
        });
        assert_close(dws.read(), dw, HALF_ERROR);
    }
}

/* x = 1 + 2^-10 by a scale of 1 + 2^-10 is 1 + 2^-9 + 2^-20. Float16 has no room for the last bit:
 * less 1 + 2^-9, from the next channel, nothing is left of it. */
void what_a_convolution_reads_is_rounded_to_float16(void **) {
    const Layer layer{1, 8, 1, 8, 1, 1, 0};
    const float step = 1.0f / 1024;
    std::vector<float> x(8), w(64), scale(8, 1);
    x[0] = scale[0] = 1 + step;
    x[1] = 1 + 2 * step;
    w[0] = 1, w[1] = -1;
    Halves xs(x), ws(w), ys(nothing(8)), scales(scale), shifts(std::vector<float>(8));
    Array<float> sums(nothing(8)), squares(nothing(8));
    LayerGraph of(layer);
    run(of, of.forward(true), FUSING,
        {{SHIFT, shifts.get()},
         {SCALE, scales.get()},
         {X, xs.get()},
         {W, ws.get()},
         {Y, ys.get()},
         {SUMS, sums.get()},
         {SQUARES, squares.get()}},
        partial_bytes(1, 8));
    for (float value : ys.read())
        if (value != 0) fail_msg("%g is left", (double)value);
}

/* A batch norm of x in float64: mean and 1 / sqrt(variance + EPSILON) of each channel. */
constexpr double EPSILON = 1e-3;
struct Norm {
    std::vector<double> mean, invstd;
};
Norm norm_of(const std::vector<double> &x, int64_t channels) {
    const double count = (double)x.size() / (double)channels;
    Norm norm;
    norm.mean = summed(x.size(), channels, [&](size_t i, size_t) { return x[i] / count; });
    norm.invstd = summed(x.size(), channels, [&](size_t i, size_t c) {
        return (x[i] - norm.mean[c]) * (x[i] - norm.mean[c]) / count;
    });
    for (double &value : norm.invstd)
        value = 1 / std::sqrt(value + EPSILON);
    return norm;
}

/* The sum of dy times the batch norm of x. Its derivative by x is the gradient. */
double loss(const std::vector<double> &x, const std::vector<float> &dy,
            const std::vector<float> &scale) {
    const Norm norm = norm_of(x, (int64_t)scale.size());
    double sum = 0;
    for (size_t i = 0; i < x.size(); i++) {
        size_t c = i % scale.size();
        sum += (double)dy[i] * (double)scale[c] * (x[i] - norm.mean[c]) * norm.invstd[c];
    }
    return sum;
}

/* Every tensor of an image's gradient. */
struct ImageGradient {
    explicit ImageGradient(const Layer &layer)
        : x(halves(input_count(layer), 1)), w(halves(filter_count(layer), 2)),
          dy(halves(output_count(layer), 3)), scale(values((size_t)layer.c, 4)),
          shift(values((size_t)layer.c, 5)), xs(x), ws(w), dys(dy), masked(nothing(input_count(layer))),
          scales(scale), shifts(shift), means(narrow(norm(layer).mean)),
          invstds(narrow(norm(layer).invstd)), results(nothing(5 * 64)) {}
    Norm norm(const Layer &layer) const {
        return norm_of(std::vector<double>(x.begin(), x.end()), layer.c);
    }
    static std::vector<float> narrow(const std::vector<double> &from) {
        return std::vector<float>(from.begin(), from.end());
    }
    /* DSCALE to EQ_BIAS. */
    float *result(int64_t uid) const { return results.get() + 64 * (uid - DSCALE); }
    std::vector<float> read(int64_t uid) const {
        const std::vector<float> all = results.read();
        auto from = all.begin() + 64 * (uid - DSCALE);
        return std::vector<float>(from, from + (std::ptrdiff_t)scale.size());
    }
    std::vector<Pointer> pointers() const {
        std::vector<Pointer> all{{X, xs.get()},         {W, ws.get()},          {Y, dys.get()},
                                 {MASKED, masked.get()}, {SCALE, scales.get()}, {SHIFT, shifts.get()},
                                 {MEAN, means.get()},   {INVSTD, invstds.get()}};
        for (int64_t uid = DSCALE; uid <= EQ_BIAS; uid++)
            all.push_back({uid, result(uid)});
        return all;
    }

    const std::vector<float> x, w, dy, scale, shift;
    Halves xs, ws, dys, masked;
    Array<float> scales, shifts, means, invstds, results;
};

/* The image's gradient where the ReLU let its input through. */
std::vector<double> masked_gradient(const Layer &layer, const ImageGradient &of) {
    std::vector<double> dx = zeros(input_count(layer));
    each_product(layer, [&](size_t i, size_t j, size_t k) {
        dx[i] += (double)of.w[j] * (double)of.dy[k];
    });
    const std::vector<float> mean = of.means.read(), invstd = of.invstds.read();
    for (size_t i = 0; i < dx.size(); i++) {
        size_t c = i % of.scale.size();
        float normal = (of.x[i] - mean[c]) * invstd[c] * of.scale[c];
        if (normal + of.shift[c] <= 0) dx[i] = 0;
    }
    return dx;
}

/* dx = eq_dy_scale dy + eq_x_scale x + eq_bias is the derivative of the loss. */
void expect_batch_norm_gradient(const ImageGradient &of, const std::vector<float> &dy) {
    const std::vector<float> by_dy = of.read(EQ_DY_SCALE), by_x = of.read(EQ_X_SCALE);
    const std::vector<float> bias = of.read(EQ_BIAS);
    std::vector<double> x(of.x.begin(), of.x.end()), wanted;
    std::vector<float> is;
    for (size_t i = 0; i < x.size(); i += x.size() / 40 + 1) {
        const double step = 1e-4, before = x[i];
        x[i] = before + step;
        double above = loss(x, dy, of.scale);
        x[i] = before - step;
        wanted.push_back((above - loss(x, dy, of.scale)) / (2 * step));
        x[i] = before;
        size_t c = i % of.scale.size();
        is.push_back(by_dy[c] * dy[i] + by_x[c] * of.x[i] + bias[c]);
    }
    assert_true(is.size() >= 30);
    assert_close(is, wanted, 1e-5);
}

void a_gradient_of_images_and_a_batch_norms_backward(void **) {
    for (const Layer &layer : layers) {
        const ImageGradient with(layer);
        LayerGraph of(layer);
        run(of, of.image_gradient(), FUSING_BACKWARD, with.pointers(),
            partial_bytes(layer.n * layer.size * layer.size, layer.c));
        const std::vector<float> dy = with.masked.read();
        assert_close(dy, masked_gradient(layer, with), HALF_ERROR);
        assert_true(std::count(dy.begin(), dy.end(), 0.0f) > 10);
        const Norm norm = with.norm(layer);
        auto gradient = [&](size_t i, size_t) { return (double)dy[i]; };
        auto scaled = [&](size_t i, size_t c) {
            return (double)dy[i] * ((double)with.x[i] - norm.mean[c]) * norm.invstd[c];
        };
        assert_close(with.read(DSHIFT), summed(dy.size(), layer.c, gradient), 4 * FLOAT_ERROR);
        assert_close(with.read(DSCALE), summed(dy.size(), layer.c, scaled), 4 * FLOAT_ERROR);
        expect_batch_norm_gradient(with, dy);
    }
}

void runs_repeat_their_bits(void **) {
    const Layer layer = layers[1];
    const ImageGradient with(layer);
    std::vector<float> first;
    for (int i = 0; i < 2; i++) {
        LayerGraph of(layer);
        run(of, of.image_gradient(), FUSING_BACKWARD, with.pointers(),
            partial_bytes(layer.n * layer.size * layer.size, layer.c));
        std::vector<float> is = with.masked.read();
        for (int64_t uid = DSCALE; uid <= EQ_BIAS; uid++)
            for (float value : with.read(uid))
                is.push_back(value);
        if (i == 0) first = is;
        assert_memory_equal(is.data(), first.data(), is.size() * sizeof(float));
    }
}

/* Rules. */

/* The engines that serve a graph, as bits. */
unsigned served(LayerGraph &of, Descriptor graph) {
    unsigned by = 0;
    for (int64_t engine = 0; engine < ENGINES; engine++) {
        cudnnStatus_t status = cudnnBackendFinalize(engine_of(of.objects(), graph, engine));
        if (status == CUDNN_STATUS_SUCCESS)
            by |= 1u << engine;
        else
            assert_int_equal(status, CUDNN_STATUS_NOT_SUPPORTED_GRAPH_PATTERN);
    }
    return by;
}

/* How many configurations a heuristic recommends; each is of an engine that serves. */
int64_t recommended(LayerGraph &of, Descriptor graph, cudnnBackendHeurMode_t mode, unsigned by) {
    Descriptor heuristics = of.objects().create(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
    refer(heuristics, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, {graph});
    set(heuristics, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE,
        std::vector<cudnnBackendHeurMode_t>{mode});
    check(cudnnBackendFinalize(heuristics));
    std::vector<Descriptor> found;
    for (int i = 0; i < 8; i++)
        found.push_back(of.objects().create(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR));
    int64_t count = 0;
    check(cudnnBackendGetAttribute(heuristics, CUDNN_ATTR_ENGINEHEUR_RESULTS,
                                   CUDNN_TYPE_BACKEND_DESCRIPTOR, 8, &count, found.data()));
    for (int64_t i = 0; i < count; i++) {
        Descriptor engine = of.objects().create(CUDNN_BACKEND_ENGINE_DESCRIPTOR);
        int64_t one = 0, number = -1;
        check(cudnnBackendGetAttribute(found[(size_t)i], CUDNN_ATTR_ENGINECFG_ENGINE,
                                       CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &one, &engine));
        check(cudnnBackendGetAttribute(engine, CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64, 1,
                                       &one, &number));
        assert_true(by >> number & 1);
    }
    return count;
}

enum Kind { FORWARD, NORMED_FORWARD, FILTER_GRADIENT, IMAGE_GRADIENT, KINDS };
void expect_served(Kind kind, const Layer &layer, const Wish &wish, bool serves) {
    LayerGraph of(layer, wish);
    Descriptor graph = kind == IMAGE_GRADIENT    ? of.image_gradient()
                       : kind == FILTER_GRADIENT ? of.filter_gradient()
                                                 : of.forward(kind == NORMED_FORWARD);
    unsigned wanted = !serves                  ? 0
                      : kind == IMAGE_GRADIENT ? 1u << FUSING_BACKWARD
                                               : 1u << FUSING;
    assert_int_equal(served(of, graph), wanted);
    for (auto mode : {CUDNN_HEUR_MODE_A, CUDNN_HEUR_MODE_B, CUDNN_HEUR_MODE_FALLBACK})
        assert_true((recommended(of, graph, mode, wanted) > 0) == serves);
}

void engines_serve_channels_in_eights_and_small_filters(void **) {
    const struct {
        Layer layer;
        bool serves;
    } cases[] = {{{2, 8, 6, 8, 1, 1, 0}, true},       {{2, 24, 6, 40, 3, 2, 1}, true},
                 {{2, 8, 6, 8, 5, 1, 2}, true},       {{2, 8, 7, 8, 3, 1, 2, 2}, true},
                 {{2, 4, 6, 8, 3, 1, 1}, false},      {{2, 12, 6, 8, 3, 1, 1}, false},
                 {{2, 8, 6, 4, 3, 1, 1}, false},      {{2, 8, 6, 12, 3, 1, 1}, false},
                 {{2, 8, 6, 8, 6, 1, 3}, false},      {{2, 16, 6, 16, 3, 1, 1, 1, 2}, false}};
    for (const auto &one : cases)
        for (int kind = 0; kind < KINDS; kind++)
            expect_served((Kind)kind, one.layer, Wish(), one.serves);
}

Wish wish(std::function<void(Wish &)> change) {
    Wish made;
    change(made);
    return made;
}

void engines_serve_float16_channels_last_alone(void **) {
    const Layer layer{2, 16, 6, 8, 3, 1, 1};
    const Wish wishes[] = {wish([](Wish &w) { w.type = w.scale = CUDNN_DATA_BFLOAT16; }),
                           wish([](Wish &w) { w.type = w.scale = CUDNN_DATA_FLOAT; }),
                           wish([](Wish &w) { w.channels_last = false; }),
                           wish([](Wish &w) { w.adds = true; })};
    for (const Wish &one : wishes)
        for (int kind = 0; kind < KINDS; kind++)
            if (!one.adds || kind != IMAGE_GRADIENT) /* whose result is in no memory */
                expect_served((Kind)kind, layer, one, false);
    const Wish wide = wish([](Wish &w) { w.scale = CUDNN_DATA_FLOAT; });
    expect_served(NORMED_FORWARD, layer, wide, false);
    expect_served(FILTER_GRADIENT, layer, wide, false);
}

void engines_serve_whole_patterns_alone(void **) {
    const Layer layer{2, 16, 6, 8, 3, 1, 1};
    const Wish no_sums = wish([](Wish &w) { w.sums = false; });
    expect_served(NORMED_FORWARD, layer, no_sums, false);
    expect_served(IMAGE_GRADIENT, layer, no_sums, false);
    const Wish no_relu = wish([](Wish &w) { w.relu = false; });
    expect_served(NORMED_FORWARD, layer, no_relu, false);
    expect_served(FILTER_GRADIENT, layer, no_relu, false);
    const Wish forgets = wish([](Wish &w) { w.keeps = false; });
    expect_served(FORWARD, layer, forgets, false);
    expect_served(NORMED_FORWARD, layer, forgets, false);
    expect_served(IMAGE_GRADIENT, layer, forgets, false);
    expect_served(IMAGE_GRADIENT, layer, wish([](Wish &w) { w.mean = OTHER; }), false);
}

/* A convolution without neighbours is served as ever. */
void other_engines_serve_a_convolution_alone(void **) {
    LayerGraph of({2, 16, 6, 8, 3, 1, 1}, wish([](Wish &w) { w.sums = false; }));
    unsigned by = served(of, of.forward(false));
    assert_true((by & 2) != 0);
    assert_int_equal(by & (1u << FUSING | 1u << FUSING_BACKWARD), 0);
}

void sums_are_float_and_for_each_channel(void **) {
    LayerGraph of({2, 16, 6, 8, 3, 1, 1});
    Descriptor x = of.image(X, CUDNN_DATA_HALF), sums = of.channels(SUMS, 16);
    Descriptor fewer = of.channels(SQUARES, 8);
    Descriptor narrow = of.channels(SQUARES, 16, CUDNN_DATA_HALF);
    refused(of.try_sum(CUDNN_DATA_FLOAT, x, sums, fewer), CUDNN_STATUS_BAD_PARAM_SHAPE_MISMATCH,
            "each channel");
    refused(of.try_sum(CUDNN_DATA_FLOAT, x, narrow, sums), CUDNN_STATUS_NOT_SUPPORTED_DATA_TYPE,
            "not float");
    refused(of.try_sum(CUDNN_DATA_HALF, x, sums, sums), CUDNN_STATUS_NOT_SUPPORTED, "not float");
    auto backward = [&](Descriptor mean, Descriptor dy, cudnnDataType_t math, cudnnDataType_t type) {
        return of.try_sum_backward({mean, sums, sums, x, dy}, math, type);
    };
    refused(backward(fewer, x, CUDNN_DATA_FLOAT, CUDNN_DATA_FLOAT),
            CUDNN_STATUS_BAD_PARAM_SHAPE_MISMATCH, "each channel");
    refused(backward(sums, sums, CUDNN_DATA_FLOAT, CUDNN_DATA_FLOAT),
            CUDNN_STATUS_BAD_PARAM_SHAPE_MISMATCH, "one shape");
    refused(backward(sums, x, CUDNN_DATA_FLOAT, CUDNN_DATA_HALF),
            CUDNN_STATUS_NOT_SUPPORTED_DATA_TYPE, "not float");
    refused(backward(sums, x, CUDNN_DATA_HALF, CUDNN_DATA_FLOAT), CUDNN_STATUS_NOT_SUPPORTED,
            "not float");
    check(backward(sums, x, CUDNN_DATA_FLOAT, CUDNN_DATA_FLOAT));
}

} // namespace

int main(int count, char **arguments) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_convolution_and_the_sums_of_its_result),
        cmocka_unit_test(a_batch_norm_and_relu_before_a_convolution),
        cmocka_unit_test(a_batch_norm_and_relu_before_a_gradient_of_filters),
        cmocka_unit_test(what_a_convolution_reads_is_rounded_to_float16),
        cmocka_unit_test(a_gradient_of_images_and_a_batch_norms_backward),
        cmocka_unit_test(runs_repeat_their_bits),
        cmocka_unit_test(engines_serve_channels_in_eights_and_small_filters),
        cmocka_unit_test(engines_serve_float16_channels_last_alone),
        cmocka_unit_test(engines_serve_whole_patterns_alone),
        cmocka_unit_test(other_engines_serve_a_convolution_alone),
        cmocka_unit_test(sums_are_float_and_for_each_channel),
    };
    return RUN_TESTS(count, arguments, tests);
}
