/* SPDX-License-Identifier: Apache-2.0 */
/* Convolutions equal a plain reference in every shape and by every algorithm; the library
 * refuses bad ones. */
#include <cudnn.h>

#include "simcuda/environment.h"
#include "simcuda/rig.h"

#pragma GCC diagnostic ignored "-Wdeprecated-declarations" /* the whole legacy API is */

using rig::Array;
using rig::Values;

static void check(cudnnStatus_t status) {
    char why[256];
    cudnnGetLastErrorString(why, sizeof why);
    if (status != CUDNN_STATUS_SUCCESS) fail_msg("%s: %s", cudnnGetErrorString(status), why);
}

struct Case {
    int n, c, h, w, k, r, s, pad, stride, dilation, groups;
    bool last, bf16, strict; /* channels last; bfloat16; no TF32 */
    float alpha, beta;
};

enum { X, WEIGHTS, Y };

/* Four dimensions and where an element lies. */
struct Shape {
    int dims[4];
    bool last;
    size_t size() const {
        return (size_t)dims[0] * (size_t)dims[1] * (size_t)dims[2] * (size_t)dims[3];
    }
    size_t at(int n, int c, int h, int w) const {
        int i = last ? ((n * dims[2] + h) * dims[3] + w) * dims[1] + c
                     : ((n * dims[1] + c) * dims[2] + h) * dims[3] + w;
        return (size_t)i;
    }
};

static int output(const Case &c, int in, int taps) {
    return (in + 2 * c.pad - c.dilation * (taps - 1) - 1) / c.stride + 1;
}

static Shape shape(const Case &c, int which) {
    if (which == X) return {{c.n, c.c, c.h, c.w}, c.last};
    if (which == WEIGHTS) return {{c.k, c.c / c.groups, c.r, c.s}, c.last};
    return {{c.n, c.k, output(c, c.h, c.r), output(c, c.w, c.s)}, c.last};
}

struct Objects {
    cudnnHandle_t handle = nullptr;
    cudnnTensorDescriptor_t x = nullptr, y = nullptr;
    cudnnFilterDescriptor_t w = nullptr;
    cudnnConvolutionDescriptor_t convolution = nullptr;

    explicit Objects(const Case &c) {
        cudnnDataType_t type = c.bf16 ? CUDNN_DATA_BFLOAT16 : CUDNN_DATA_FLOAT;
        cudnnTensorFormat_t format = c.last ? CUDNN_TENSOR_NHWC : CUDNN_TENSOR_NCHW;
        check(cudnnCreate(&handle));
        check(cudnnCreateTensorDescriptor(&x));
        check(cudnnCreateTensorDescriptor(&y));
        check(cudnnCreateFilterDescriptor(&w));
        check(cudnnCreateConvolutionDescriptor(&convolution));
        Shape xs = shape(c, X), ws = shape(c, WEIGHTS), ys = shape(c, Y);
        const int *d = xs.dims;
        check(cudnnSetTensor4dDescriptor(x, format, type, d[0], d[1], d[2], d[3]));
        d = ys.dims;
        check(cudnnSetTensor4dDescriptor(y, format, type, d[0], d[1], d[2], d[3]));
        d = ws.dims;
        check(cudnnSetFilter4dDescriptor(w, type, format, d[0], d[1], d[2], d[3]));
        check(cudnnSetConvolution2dDescriptor(convolution, c.pad, c.pad, c.stride, c.stride,
                                              c.dilation, c.dilation, CUDNN_CROSS_CORRELATION,
                                              CUDNN_DATA_FLOAT));
        check(cudnnSetConvolutionGroupCount(convolution, c.groups));
        check(cudnnSetConvolutionMathType(convolution,
                                          c.strict ? CUDNN_FMA_MATH : CUDNN_DEFAULT_MATH));
    }
    ~Objects() {
        cudnnDestroyConvolutionDescriptor(convolution);
        cudnnDestroyFilterDescriptor(w);
        cudnnDestroyTensorDescriptor(y);
        cudnnDestroyTensorDescriptor(x);
        cudnnDestroy(handle);
    }
};

static std::vector<float> random_values(const Case &c, int which) {
    std::vector<float> made = rig::values(shape(c, which).size(), (uint32_t)which + 1);
    for (float &value : made) /* bfloat16 loses nothing to TF32 either */
        value = rig::rounded_to_bfloat16(value);
    return made;
}

/* Calls use(x, w, y) with the places of every product of the convolution. */
template <typename Use> static void each_product(const Case &c, Use use) {
    Shape x = shape(c, X), w = shape(c, WEIGHTS), y = shape(c, Y);
    for (int n = 0; n < c.n; n++)
        for (int k = 0; k < c.k; k++)
            for (int p = 0; p < y.dims[2] * y.dims[3]; p++)
                for (int tap = 0; tap < c.r * c.s * w.dims[1]; tap++) {
                    int row = p / y.dims[3], column = p % y.dims[3];
                    int channel = tap / (c.r * c.s), r = tap / c.s % c.r, s = tap % c.s;
                    int h = row * c.stride - c.pad + r * c.dilation;
                    int v = column * c.stride - c.pad + s * c.dilation;
                    if (h < 0 || v < 0 || h >= c.h || v >= c.w) continue;
                    int in = k / (c.k / c.groups) * w.dims[1] + channel;
                    use(x.at(n, in, h, v), w.at(k, channel, r, s), y.at(n, k, row, column));
                }
}

/* What a pass that writes `which` must give. */
static std::vector<double> expected(const Case &c, int which) {
    std::vector<float> values[] = {random_values(c, X), random_values(c, WEIGHTS),
                                   random_values(c, Y)};
    std::vector<double> sums(values[which].size());
    each_product(c, [&](size_t x, size_t w, size_t y) {
        size_t at[] = {x, w, y};
        double product = 1;
        for (int i = 0; i < 3; i++)
            if (i != which) product *= (double)values[i][at[i]];
        sums[at[which]] += product;
    });
    for (size_t i = 0; i < sums.size(); i++)
        sums[i] = (double)c.alpha * sums[i] + (double)c.beta * (double)values[which][i];
    return sums;
}

constexpr size_t WORKSPACE = 1 << 20;

struct Buffers {
    Values x, w, y;
    Array<char> workspace;
    explicit Buffers(const Case &c)
        : x(random_values(c, X), c.bf16), w(random_values(c, WEIGHTS), c.bf16),
          y(random_values(c, Y), c.bf16), workspace(WORKSPACE) {}
    const Values &of(int which) const { return which == X ? x : which == WEIGHTS ? w : y; }
};

static cudnnStatus_t run(const Case &c, const Objects &o, const Buffers &b, int which, int algo) {
    void *space = b.workspace.get();
    if (which == Y)
        return cudnnConvolutionForward(o.handle, &c.alpha, o.x, b.x.get(), o.w, b.w.get(),
                                       o.convolution, (cudnnConvolutionFwdAlgo_t)algo, space,
                                       WORKSPACE, &c.beta, o.y, b.y.get());
    if (which == X)
        return cudnnConvolutionBackwardData(o.handle, &c.alpha, o.w, b.w.get(), o.y, b.y.get(),
                                            o.convolution, (cudnnConvolutionBwdDataAlgo_t)algo,
                                            space, WORKSPACE, &c.beta, o.x, b.x.get());
    return cudnnConvolutionBackwardFilter(o.handle, &c.alpha, o.x, b.x.get(), o.y, b.y.get(),
                                          o.convolution, (cudnnConvolutionBwdFilterAlgo_t)algo,
                                          space, WORKSPACE, &c.beta, o.w, b.w.get());
}

struct Found {
    int algorithm;
    size_t workspace;
    bool deterministic;
};

template <typename Perf>
static std::vector<Found> serving(const std::vector<Perf> &results, int count) {
    std::vector<Found> found;
    for (int i = 0; i < count; i++) {
        const Perf &one = results[(size_t)i];
        if (one.status == CUDNN_STATUS_SUCCESS)
            found.push_back({one.algo, one.memory, one.determinism == CUDNN_DETERMINISTIC});
    }
    return found;
}

static std::vector<Found> algorithms(const Objects &o, int which) {
    std::vector<cudnnConvolutionFwdAlgoPerf_t> forward(8);
    std::vector<cudnnConvolutionBwdDataAlgoPerf_t> data(8);
    std::vector<cudnnConvolutionBwdFilterAlgoPerf_t> filter(8);
    int count = 0;
    if (which == Y) {
        check(cudnnGetConvolutionForwardAlgorithm_v7(o.handle, o.x, o.w, o.convolution, o.y, 8,
                                                     &count, forward.data()));
        return serving(forward, count);
    }
    if (which == X) {
        check(cudnnGetConvolutionBackwardDataAlgorithm_v7(o.handle, o.w, o.y, o.convolution, o.x, 8,
                                                          &count, data.data()));
        return serving(data, count);
    }
    check(cudnnGetConvolutionBackwardFilterAlgorithm_v7(o.handle, o.x, o.y, o.convolution, o.w, 8,
                                                        &count, filter.data()));
    return serving(filter, count);
}

/* Every pass by every algorithm that serves it. */
static void assert_convolution(const Case &c) {
    Objects objects(c);
    for (int which : {X, WEIGHTS, Y})
        for (const Found &found : algorithms(objects, which)) {
            Buffers buffers(c);
            check(run(c, objects, buffers, which, found.algorithm));
            rig::assert_close(buffers.of(which).read(), expected(c, which), c.bf16 ? 4e-3 : 1e-5);
        }
}

static const Case PLAIN = {2, 4, 7, 6, 6, 3, 3, 1, 1, 1, 1, true, false, true, 1, 0};

static void passes_equal_the_sums_for_every_shape(void **) {
    for (bool last : {true, false})
        for (int kernel : {1, 2, 3, 5})
            for (int pad = 0; pad <= kernel / 2; pad++)
                for (int stride : {1, 2, 3}) {
                    Case c = PLAIN;
                    c.last = last;
                    c.r = c.s = kernel;
                    c.pad = pad;
                    c.stride = stride;
                    assert_convolution(c);
                }
}

static void many_images_of_one_pixel_are_as_right(void **) {
    Case c = PLAIN;
    c.n = 9;
    c.h = c.w = 1;
    assert_convolution(c);
    c.h = c.w = 2;
    c.stride = 2;
    assert_convolution(c);
}

static void taps_may_lie_apart_and_the_filter_need_not_be_square(void **) {
    Case c = PLAIN;
    c.last = false;
    c.dilation = 2;
    assert_convolution(c);
    c.last = true;
    c.dilation = 1;
    c.s = 1;
    c.pad = 0;
    assert_convolution(c);
}

static void groups_see_their_own_channels(void **) {
    Case c = PLAIN;
    c.groups = 2;
    assert_convolution(c);
    c.c = c.k = c.groups = 4; /* depthwise */
    assert_convolution(c);
    c.last = false;
    assert_convolution(c);
}

static void results_are_scaled_and_added(void **) {
    Case c = PLAIN;
    c.alpha = 0.5f;
    c.beta = -2;
    assert_convolution(c);
}

static void bfloat16_is_summed_in_float(void **) {
    Case c = PLAIN;
    c.bf16 = true;
    c.c = 40;
    assert_convolution(c);
}

/* float32 is TF32 unless the math type forbids it, as on a GPU. */
static void default_math_rounds_to_tf32(void **) {
    Case c = PLAIN;
    c.r = c.s = c.c = c.n = c.h = c.w = c.k = 1;
    c.pad = 0;
    for (bool strict : {true, false}) {
        c.strict = strict;
        Objects objects(c);
        Buffers buffers(c);
        float fine = 1 + 1.0f / 4096, one = 1;
        rig::check(cudaMemcpy(buffers.x.get(), &fine, sizeof fine, cudaMemcpyHostToDevice));
        rig::check(cudaMemcpy(buffers.w.get(), &one, sizeof one, cudaMemcpyHostToDevice));
        check(run(c, objects, buffers, Y, CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM));
        assert_true(buffers.y.read()[0] == (strict ? fine : 1));
    }
}

static bool same_bits_twice(const Case &c, const Objects &objects, int which, int algorithm) {
    std::vector<float> results[2];
    for (std::vector<float> &result : results) {
        Buffers buffers(c);
        check(run(c, objects, buffers, which, algorithm));
        result = buffers.of(which).read();
    }
    return results[0] == results[1];
}

static void deterministic_algorithms_repeat_and_the_others_do_not(void **) {
    Case c = PLAIN;
    c.n = 6;
    c.h = c.w = 9;
    for (bool last : {true, false}) {
        c.last = last;
        Objects objects(c);
        for (int which : {X, WEIGHTS, Y})
            for (const Found &found : algorithms(objects, which))
                assert_int_equal(same_bits_twice(c, objects, which, found.algorithm),
                                 found.deterministic);
    }
}

static void winograd_serves_plain_three_by_three_only(void **) {
    Case c = PLAIN;
    c.last = false;
    assert_int_equal(algorithms(Objects(c), Y).size(), 3);
    c.stride = 2;
    Objects objects(c);
    assert_int_equal(algorithms(objects, Y).size(), 2);
    Buffers buffers(c);
    assert_int_equal(run(c, objects, buffers, Y, CUDNN_CONVOLUTION_FWD_ALGO_WINOGRAD_NONFUSED),
                     CUDNN_STATUS_NOT_SUPPORTED);
}

static std::vector<int> numbers(const Case &c, int which) {
    std::vector<int> all;
    for (const Found &found : algorithms(Objects(c), which))
        all.push_back(found.algorithm);
    std::sort(all.begin(), all.end());
    return all;
}

static void channels_last_has_the_documented_algorithms_alone(void **) {
    for (bool bf16 : {false, true}) {
        Case c = PLAIN;
        c.bf16 = bf16;
        assert_true(numbers(c, Y) == std::vector<int>{1});
        assert_true(numbers(c, X) == std::vector<int>{1});
        assert_true(numbers(c, WEIGHTS) == std::vector<int>({0, 1}));
        Buffers buffers(c);
        assert_int_equal(run(c, Objects(c), buffers, X, CUDNN_CONVOLUTION_BWD_DATA_ALGO_0),
                         CUDNN_STATUS_NOT_SUPPORTED);
        c.dilation = 2;
        for (int which : {X, WEIGHTS, Y})
            assert_true(numbers(c, which).empty());
    }
}

static void contradicting_parameters_are_refused(void **) {
    Case c = PLAIN;
    Objects objects(c);
    Buffers b(c);
    const cudnnConvolutionFwdAlgo_t algo = CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM;
    auto forward = [&](const void *x, size_t bytes) {
        return cudnnConvolutionForward(objects.handle, &c.alpha, objects.x, x, objects.w, b.w.get(),
                                       objects.convolution, algo, b.workspace.get(), bytes, &c.beta,
                                       objects.y, b.y.get());
    };
    assert_int_equal(forward(nullptr, WORKSPACE), CUDNN_STATUS_BAD_PARAM_NULL_POINTER);
    assert_int_equal(forward(b.x.get(), 1), CUDNN_STATUS_BAD_PARAM);
    check(cudnnSetConvolutionGroupCount(objects.convolution, 2));
    assert_int_equal(forward(b.x.get(), WORKSPACE), CUDNN_STATUS_BAD_PARAM);
    check(cudnnSetConvolutionGroupCount(objects.convolution, 1));
    check(cudnnSetFilter4dDescriptor(objects.w, CUDNN_DATA_FLOAT, CUDNN_TENSOR_NCHW, 6, 4, 3, 3));
    assert_int_equal(forward(b.x.get(), WORKSPACE), CUDNN_STATUS_NOT_SUPPORTED);
    assert_int_equal(
        cudnnSetTensor4dDescriptor(objects.x, CUDNN_TENSOR_NHWC, CUDNN_DATA_FLOAT, 0, 1, 1, 1),
        CUDNN_STATUS_BAD_PARAM);
}

SCENARIO(loses_the_gpu) {
    cudnnHandle_t handle = nullptr;
    assert_int_equal(cudnnCreate(&handle), CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED);
    assert_int_equal(cudaGetLastError(), cudaSuccess);
    assert_int_equal(cudaStreamQuery(nullptr), cudaErrorIllegalAddress);
    assert_int_equal(cudaGetLastError(), cudaErrorIllegalAddress);
    assert_int_equal(cudaGetLastError(), cudaErrorIllegalAddress);
}

SCENARIO(small_input) {
    Case large = PLAIN, small = PLAIN;
    small.n = 1;
    run(large, Objects(large), Buffers(small), Y, CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM);
}

SCENARIO(foreign_handle) {
    Objects objects(PLAIN);
    cudaSetDevice(1);
    run(PLAIN, objects, Buffers(PLAIN), Y, CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM);
}

static void operands_outside_their_allocation_and_foreign_handles_are_violations(void **) {
    rig::assert_violation("cudnnConvolutionForward x", "small_input");
    rig::assert_violation("handle of device 0", "foreign_handle");
}

/* The real one has a CUDA runtime of its own. */
static void its_errors_are_unknown_to_the_runtime(void **) {
    cudnnHandle_t handle = nullptr;
    sim::fail_call(1);
    assert_int_not_equal(cudnnCreate(&handle), CUDNN_STATUS_SUCCESS);
    sim::fail_call(0);
    assert_int_equal(cudaPeekAtLastError(), cudaSuccess);
    rig::Outcome lost = rig::run_with("SIMCUDA_FAULT", "cudnnCreate@1=700!", "loses_the_gpu");
    if (lost.status != 0) fail_msg("%s", lost.text.c_str());
}

static void every_call_can_fail_and_leaks_nothing(void **) {
    size_t before = sim::outstanding();
    cudnnHandle_t handle = nullptr;
    sim::fail_call(1);
    assert_int_not_equal(cudnnCreate(&handle), CUDNN_STATUS_SUCCESS);
    assert_null(handle);
    sim::fail_call(2);
    check(cudnnCreate(&handle));
    assert_int_not_equal(cudnnDestroy(handle), CUDNN_STATUS_SUCCESS);
    sim::fail_call(0);
    assert_int_equal(sim::outstanding(), before);
}

int main(int count, char **arguments) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(passes_equal_the_sums_for_every_shape),
        cmocka_unit_test(many_images_of_one_pixel_are_as_right),
        cmocka_unit_test(taps_may_lie_apart_and_the_filter_need_not_be_square),
        cmocka_unit_test(groups_see_their_own_channels),
        cmocka_unit_test(results_are_scaled_and_added),
        cmocka_unit_test(bfloat16_is_summed_in_float),
        cmocka_unit_test(default_math_rounds_to_tf32),
        cmocka_unit_test(deterministic_algorithms_repeat_and_the_others_do_not),
        cmocka_unit_test(winograd_serves_plain_three_by_three_only),
        cmocka_unit_test(channels_last_has_the_documented_algorithms_alone),
        cmocka_unit_test(contradicting_parameters_are_refused),
        cmocka_unit_test(operands_outside_their_allocation_and_foreign_handles_are_violations),
        cmocka_unit_test(its_errors_are_unknown_to_the_runtime),
        cmocka_unit_test(every_call_can_fail_and_leaks_nothing),
    };
    return RUN_TESTS(count, arguments, tests);
}
