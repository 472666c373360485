/* SPDX-License-Identifier: Apache-2.0 */
/* Matrix products equal a plain reference in every layout, type and epilogue; the library
 * refuses bad ones. */
#include <cublasLt.h>

#include "simcuda/rig.h"

using rig::Array;
using rig::Values;

static void check(cublasStatus_t status) {
    if (status != CUBLAS_STATUS_SUCCESS) fail_msg("%s", cublasLtGetStatusName(status));
}

/* op(A)[m, k] op(B)[k, n] as asked for; matrices are stored by columns unless said otherwise. */
struct Case {
    size_t m, n, k;
    bool transpose_a, transpose_b, rows_first, bf16, bf16_output, tf32;
    float alpha, beta;
    uint32_t epilogue;
    size_t extra; /* between one line and the next */
};

struct Matrix {
    size_t rows, cols, ld;
    bool rows_first;
    size_t at(size_t i, size_t j) const { return rows_first ? i * ld + j : i + j * ld; }
    size_t size() const { return ld * (rows_first ? rows : cols); }
};

static Matrix matrix(const Case &c, size_t rows, size_t cols) {
    return {rows, cols, (c.rows_first ? cols : rows) + c.extra, c.rows_first};
}

/* The library's objects of one product. */
struct Objects {
    cublasLtHandle_t handle = nullptr;
    cublasLtMatmulDesc_t descriptor = nullptr;
    cublasLtMatrixLayout_t a = nullptr, b = nullptr, d = nullptr;
    cublasLtMatmulPreference_t preference = nullptr;

    explicit Objects(const Case &c) {
        check(cublasLtCreate(&handle));
        check(cublasLtMatmulDescCreate(
            &descriptor, c.tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F, CUDA_R_32F));
        int32_t ta = c.transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N;
        int32_t tb = c.transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N;
        set(CUBLASLT_MATMUL_DESC_TRANSA, ta);
        set(CUBLASLT_MATMUL_DESC_TRANSB, tb);
        set(CUBLASLT_MATMUL_DESC_EPILOGUE, c.epilogue);
        cudaDataType in = c.bf16 ? CUDA_R_16BF : CUDA_R_32F;
        a = layout(c.transpose_a ? matrix(c, c.k, c.m) : matrix(c, c.m, c.k), in);
        b = layout(c.transpose_b ? matrix(c, c.n, c.k) : matrix(c, c.k, c.n), in);
        d = layout(matrix(c, c.m, c.n), c.bf16_output ? CUDA_R_16BF : CUDA_R_32F);
        check(cublasLtMatmulPreferenceCreate(&preference));
        allow((uint64_t)1 << 20);
    }
    ~Objects() {
        cublasLtMatmulPreferenceDestroy(preference);
        for (cublasLtMatrixLayout_t each : {a, b, d})
            cublasLtMatrixLayoutDestroy(each);
        cublasLtMatmulDescDestroy(descriptor);
        cublasLtDestroy(handle);
    }
    static cublasLtMatrixLayout_t layout(const Matrix &m, cudaDataType type) {
        cublasLtMatrixLayout_t made = nullptr;
        check(cublasLtMatrixLayoutCreate(&made, type, m.rows, m.cols, (int64_t)m.ld));
        int32_t order = m.rows_first ? CUBLASLT_ORDER_ROW : CUBLASLT_ORDER_COL;
        check(cublasLtMatrixLayoutSetAttribute(made, CUBLASLT_MATRIX_LAYOUT_ORDER, &order,
                                               sizeof order));
        return made;
    }
    template <typename T> void set(cublasLtMatmulDescAttributes_t attribute, const T &value) {
        check(cublasLtMatmulDescSetAttribute(descriptor, attribute, &value, sizeof value));
    }
    void allow(uint64_t bytes) {
        check(cublasLtMatmulPreferenceSetAttribute(
            preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &bytes, sizeof bytes));
    }
    cublasStatus_t heuristic(std::vector<cublasLtMatmulHeuristicResult_t> &found) {
        found.resize(8);
        int count = 0;
        cublasStatus_t status = cublasLtMatmulAlgoGetHeuristic(handle, descriptor, a, b, d, d,
                                                               preference, 8, found.data(), &count);
        found.resize((size_t)count);
        return status;
    }
};

static float seen(const Case &c, float value) {
    if (c.bf16) return rig::rounded_to_bfloat16(value);
    if (!c.tf32) return value;
    int exponent;
    float fraction = std::frexp(value, &exponent);
    return std::ldexp(std::round(std::ldexp(fraction, 11)), exponent - 11);
}

static double gelu(double x) {
    return x / 2 * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
}

struct Data {
    Matrix a, b, d;
    std::vector<float> a_values, b_values, d_values, bias;

    explicit Data(const Case &c)
        : a(c.transpose_a ? matrix(c, c.k, c.m) : matrix(c, c.m, c.k)),
          b(c.transpose_b ? matrix(c, c.n, c.k) : matrix(c, c.k, c.n)), d(matrix(c, c.m, c.n)),
          a_values(rig::values(a.size(), 1)), b_values(rig::values(b.size(), 2)),
          d_values(rig::values(d.size(), 3)), bias(rig::values(std::max(c.m, c.n), 4)) {
        for (float &value : a_values)
            value = seen(c, value);
        for (float &value : b_values)
            value = seen(c, value);
        for (std::vector<float> *each : {&d_values, &bias})
            for (float &value : *each)
                value = c.bf16_output ? rig::rounded_to_bfloat16(value) : value;
    }
    double left(const Case &c, size_t i, size_t p) const {
        return (double)a_values[c.transpose_a ? a.at(p, i) : a.at(i, p)];
    }
    double right(const Case &c, size_t p, size_t j) const {
        return (double)b_values[c.transpose_b ? b.at(j, p) : b.at(p, j)];
    }
    std::vector<double> result(const Case &c) const {
        std::vector<double> wanted(d_values.begin(), d_values.end());
        for (size_t i = 0; i < c.m; i++)
            for (size_t j = 0; j < c.n; j++) {
                double sum = 0;
                for (size_t p = 0; p < c.k; p++)
                    sum += left(c, i, p) * right(c, p, j);
                double value = (double)c.alpha * sum + (double)c.beta * wanted[d.at(i, j)];
                if (c.epilogue & CUBLASLT_EPILOGUE_BIAS) value += (double)bias[i];
                if (c.epilogue & CUBLASLT_EPILOGUE_RELU) value = std::max(value, 0.0);
                if (c.epilogue & CUBLASLT_EPILOGUE_GELU) value = gelu(value);
                wanted[d.at(i, j)] = value;
            }
        return wanted;
    }
    std::vector<double> bias_gradient(const Case &c) const {
        bool of_a = c.epilogue == CUBLASLT_EPILOGUE_BGRADA;
        std::vector<double> wanted(bias.begin(), bias.end());
        for (size_t i = 0; i < (of_a ? c.m : c.n); i++) {
            wanted[i] = 0;
            for (size_t p = 0; p < c.k; p++)
                wanted[i] += of_a ? left(c, i, p) : right(c, p, i);
        }
        return wanted;
    }
};

/* With every algorithm on offer. */
static void assert_product(const Case &c) {
    Objects objects(c);
    Data data(c);
    Values bias(data.bias, c.bf16_output);
    if (c.epilogue >= CUBLASLT_EPILOGUE_BIAS)
        objects.set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias.get());
    std::vector<cublasLtMatmulHeuristicResult_t> found;
    check(objects.heuristic(found));
    assert_in_range(found.size(), 1, 4);
    Values a(data.a_values, c.bf16), b(data.b_values, c.bf16);
    Array<char> workspace((size_t)1 << 20);
    for (const cublasLtMatmulHeuristicResult_t &one : found) {
        Values d(data.d_values, c.bf16_output);
        check(cublasLtMatmul(objects.handle, objects.descriptor, &c.alpha, a.get(), objects.a,
                             b.get(), objects.b, &c.beta, d.get(), objects.d, d.get(), objects.d,
                             &one.algo, workspace.get(), one.workspaceSize, nullptr));
        double tolerance = c.bf16_output ? 4e-3 : 1e-6 * (double)(c.k + 8);
        rig::assert_close(d.read(), data.result(c), tolerance);
        bool gradient = c.epilogue >= CUBLASLT_EPILOGUE_BGRADA;
        if (gradient) rig::assert_close(bias.read(), data.bias_gradient(c), tolerance);
    }
}

static const Case PLAIN = {7, 5, 11, false, false, false, false, false, false, 1, 0, 1, 0};

static void products_equal_the_sums_for_every_layout(void **) {
    for (int bits = 0; bits < 16; bits++)
        for (size_t m : {1u, 4u, 33u}) {
            Case c = PLAIN;
            c.m = m;
            c.transpose_a = bits & 1;
            c.transpose_b = bits & 2;
            c.rows_first = bits & 4;
            c.extra = bits & 8 ? 3 : 0;
            assert_product(c);
        }
}

static void results_are_scaled_and_added(void **) {
    Case c = PLAIN;
    c.alpha = 0.5f;
    c.beta = -2;
    assert_product(c);
    c.bf16 = c.bf16_output = true;
    assert_product(c);
}

static void bfloat16_is_summed_in_float(void **) {
    Case c = PLAIN;
    c.k = 300;
    c.bf16 = true;
    assert_product(c);
    c.bf16_output = true;
    assert_product(c);
}

static void tf32_rounds_the_operands_to_ten_bits(void **) {
    Case c = PLAIN;
    c.tf32 = true;
    assert_product(c); /* of operands that are rounded already */
    Objects objects(c);
    float exact = 1 + 1.0f / 4096, one = 1, zero = 0;
    Array<float> a(std::vector<float>(77, exact)), b(std::vector<float>(55, 1)), d((size_t)35);
    check(cublasLtMatmul(objects.handle, objects.descriptor, &one, a.get(), objects.a, b.get(),
                         objects.b, &zero, d.get(), objects.d, d.get(), objects.d, nullptr, nullptr,
                         0, nullptr));
    assert_true(d.read()[0] == 11);
}

static void epilogues_add_bias_activate_and_sum_its_gradient(void **) {
    Case c = PLAIN;
    for (bool bf16 : {false, true})
        for (uint32_t epilogue :
             {CUBLASLT_EPILOGUE_RELU, CUBLASLT_EPILOGUE_BIAS, CUBLASLT_EPILOGUE_RELU_BIAS,
              CUBLASLT_EPILOGUE_GELU, CUBLASLT_EPILOGUE_GELU_BIAS, CUBLASLT_EPILOGUE_BGRADA,
              CUBLASLT_EPILOGUE_BGRADB}) {
            c.bf16 = c.bf16_output = bf16;
            c.epilogue = epilogue;
            c.transpose_a = !c.transpose_a;
            assert_product(c);
        }
}

/* A product whose activation writes an aux, and one of the same shape that reads it. */

static void set_aux(Objects &objects, const void *aux, int64_t ld) {
    objects.set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, aux);
    objects.set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, ld);
}

/* Returns D. */
static std::vector<float> multiply(Objects &objects, const Case &c, const Data &data) {
    Values a(data.a_values, c.bf16), b(data.b_values, c.bf16), d(data.d_values, c.bf16_output);
    check(cublasLtMatmul(objects.handle, objects.descriptor, &c.alpha, a.get(), objects.a, b.get(),
                         objects.b, &c.beta, d.get(), objects.d, d.get(), objects.d, nullptr,
                         nullptr, 0, nullptr));
    return d.read();
}

/* D and its sums along the columns, where the mask of the ReLU keeps only what is above 0. */
static void assert_masked(const Case &c, const Data &data, const std::vector<float> &clipped,
                          const std::vector<float> &got, const std::vector<float> &sums) {
    std::vector<double> wanted = data.result(c), wanted_sums(sums.begin(), sums.end());
    for (size_t i = 0; i < c.m; i++) {
        if (c.epilogue == CUBLASLT_EPILOGUE_DRELU_BGRAD) wanted_sums[i] = 0;
        for (size_t j = 0; j < c.n; j++) {
            double &value = wanted[data.d.at(i, j)];
            value = clipped[data.d.at(i, j)] > 0 ? value : 0;
            if (c.epilogue == CUBLASLT_EPILOGUE_DRELU_BGRAD) wanted_sums[i] += value;
        }
    }
    double tolerance = c.bf16_output ? 8e-3 : 2e-6 * (double)(c.k + c.n);
    rig::assert_close(got, wanted, tolerance);
    rig::assert_close(sums, wanted_sums, tolerance);
}

static void check_mask(const Case &like, uint32_t writing, uint32_t reading) {
    Case c = like;
    Array<uint8_t> mask((size_t)128 / 8 * c.n);
    c.epilogue = writing;
    Objects forward(c);
    Data data(c);
    Values bias(data.bias, c.bf16_output);
    set_aux(forward, mask.get(), 128);
    if (c.epilogue & CUBLASLT_EPILOGUE_BIAS)
        forward.set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias.get());
    std::vector<float> clipped = multiply(forward, c, data);
    rig::assert_close(clipped, data.result(c), c.bf16_output ? 4e-3 : 1e-5);
    c.epilogue = reading;
    c.beta = 0.5f;
    Objects backward(c);
    set_aux(backward, mask.get(), 128);
    backward.set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias.get());
    std::vector<float> masked = multiply(backward, c, data);
    assert_masked(c, data, clipped, masked, bias.read());
}

static void a_mask_tells_what_the_relu_let_through(void **) {
    Case c = PLAIN;
    for (size_t m : {8u, 40u})
        for (bool bf16 : {false, true}) {
            c.m = m;
            c.bf16 = c.bf16_output = bf16;
            check_mask(c, CUBLASLT_EPILOGUE_RELU_AUX, CUBLASLT_EPILOGUE_DRELU);
            check_mask(c, CUBLASLT_EPILOGUE_RELU_AUX_BIAS, CUBLASLT_EPILOGUE_DRELU_BGRAD);
        }
}

/* The product of a GELU's gradient multiplies D by the slope at what the other one has kept. */
static void check_gelu(const Case &like, uint32_t writing, uint32_t reading) {
    constexpr size_t LD = 48;
    constexpr double STEP = 1e-5;
    Case c = like;
    Values kept(std::vector<float>(LD * c.n, 7), c.bf16_output);
    c.epilogue = writing;
    Objects forward(c);
    Data data(c);
    Values bias(data.bias, c.bf16_output);
    set_aux(forward, kept.get(), (int64_t)LD);
    if (c.epilogue & CUBLASLT_EPILOGUE_BIAS)
        forward.set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias.get());
    double tolerance = c.bf16_output ? 8e-3 : 2e-6 * (double)(c.k + c.n);
    rig::assert_close(multiply(forward, c, data), data.result(c), tolerance);
    Case bare = c;
    bare.epilogue &= CUBLASLT_EPILOGUE_BIAS;
    std::vector<double> inputs = data.result(bare);
    std::vector<float> read = kept.read();
    for (size_t at = 0; at < read.size(); at++) {
        bool real = at % LD < c.m;
        double wanted = real ? inputs[data.d.at(at % LD, at / LD)] : 7;
        assert_true(std::fabs((double)read[at] - wanted) <= tolerance * (1 + std::fabs(wanted)));
    }
    c.epilogue = reading;
    c.beta = 0.5f;
    Objects backward(c);
    set_aux(backward, kept.get(), (int64_t)LD);
    backward.set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias.get());
    std::vector<float> got = multiply(backward, c, data);
    std::vector<double> wanted = data.result(c), sums(data.bias.begin(), data.bias.end());
    for (size_t i = 0; i < c.m; i++) {
        if (reading == CUBLASLT_EPILOGUE_DGELU_BGRAD) sums[i] = 0;
        for (size_t j = 0; j < c.n; j++) {
            double x = (double)read[i + j * LD];
            double &value = wanted[data.d.at(i, j)];
            value *= (gelu(x + STEP) - gelu(x - STEP)) / (2 * STEP);
            if (reading == CUBLASLT_EPILOGUE_DGELU_BGRAD) sums[i] += value;
        }
    }
    rig::assert_close(got, wanted, tolerance);
    rig::assert_close(bias.read(), sums, tolerance);
}

static void a_gelu_keeps_what_it_reads_for_its_gradient(void **) {
    Case c = PLAIN;
    for (size_t m : {8u, 40u})
        for (bool bf16 : {false, true}) {
            c.m = m;
            c.bf16 = c.bf16_output = bf16;
            check_gelu(c, CUBLASLT_EPILOGUE_GELU_AUX, CUBLASLT_EPILOGUE_DGELU);
            check_gelu(c, CUBLASLT_EPILOGUE_GELU_AUX_BIAS, CUBLASLT_EPILOGUE_DGELU_BGRAD);
        }
}

static void an_input_of_a_gelu_that_does_not_fit_is_refused(void **) {
    std::vector<cublasLtMatmulHeuristicResult_t> found;
    Case c = PLAIN;
    c.m = 136;
    for (uint32_t epilogue :
         {CUBLASLT_EPILOGUE_GELU_AUX, CUBLASLT_EPILOGUE_GELU_AUX_BIAS, CUBLASLT_EPILOGUE_DGELU,
          CUBLASLT_EPILOGUE_DGELU_BGRAD}) {
        c.epilogue = epilogue;
        Objects objects(c);
        assert_int_equal(objects.heuristic(found), CUBLAS_STATUS_INVALID_VALUE); /* no distance */
        set_aux(objects, nullptr, 128); /* less than a column */
        assert_int_equal(objects.heuristic(found), CUBLAS_STATUS_INVALID_VALUE);
        set_aux(objects, nullptr, 140);
        assert_int_equal(objects.heuristic(found), CUBLAS_STATUS_INVALID_VALUE);
        set_aux(objects, (void *)8, 136);
        assert_int_equal(objects.heuristic(found), CUBLAS_STATUS_NOT_SUPPORTED);
        set_aux(objects, (void *)16, 136);
        check(objects.heuristic(found));
    }
}

static void a_mask_that_does_not_fit_is_refused(void **) {
    std::vector<cublasLtMatmulHeuristicResult_t> found;
    Case c = PLAIN;
    c.m = 136;
    for (uint32_t epilogue :
         {CUBLASLT_EPILOGUE_RELU_AUX, CUBLASLT_EPILOGUE_RELU_AUX_BIAS, CUBLASLT_EPILOGUE_DRELU,
          CUBLASLT_EPILOGUE_DRELU_BGRAD}) {
        c.epilogue = epilogue;
        Objects objects(c);
        assert_int_equal(objects.heuristic(found), CUBLAS_STATUS_INVALID_VALUE); /* no distance */
        set_aux(objects, nullptr, 128); /* less than a column */
        assert_int_equal(objects.heuristic(found), CUBLAS_STATUS_INVALID_VALUE);
        set_aux(objects, nullptr, 136);
        assert_int_equal(objects.heuristic(found), CUBLAS_STATUS_INVALID_VALUE);
        set_aux(objects, (void *)8, 256);
        assert_int_equal(objects.heuristic(found), CUBLAS_STATUS_NOT_SUPPORTED);
        set_aux(objects, (void *)16, 256);
        check(objects.heuristic(found));
        Case odd = c;
        odd.m = 135;
        Objects refused(odd);
        set_aux(refused, (void *)16, 256);
        assert_int_equal(refused.heuristic(found), CUBLAS_STATUS_NOT_SUPPORTED);
    }
    c.epilogue = CUBLASLT_EPILOGUE_DRELU_BGRAD; /* the sums have the type of D */
    c.bf16 = c.bf16_output = true;
    Objects objects(c);
    set_aux(objects, nullptr, 256);
    objects.set(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, (int32_t)CUDA_R_32F);
    assert_int_equal(objects.heuristic(found), CUBLAS_STATUS_NOT_SUPPORTED);
}

static void batches_step_by_their_strides(void **) {
    Objects objects(PLAIN);
    const int32_t batch = 3;
    const int64_t strides[] = {80, 55, 40};
    const cublasLtMatrixLayout_t layouts[] = {objects.a, objects.b, objects.d};
    for (int i = 0; i < 3; i++) {
        check(cublasLtMatrixLayoutSetAttribute(layouts[i], CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT,
                                               &batch, sizeof batch));
        check(cublasLtMatrixLayoutSetAttribute(layouts[i],
                                               CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET,
                                               &strides[i], sizeof strides[i]));
    }
    std::vector<float> a = rig::values(240, 1), b = rig::values(165, 2);
    Array<float> on_a(a), on_b(b), on_d((size_t)120);
    float one = 1, zero = 0;
    check(cublasLtMatmul(objects.handle, objects.descriptor, &one, on_a.get(), objects.a,
                         on_b.get(), objects.b, &zero, on_d.get(), objects.d, on_d.get(), objects.d,
                         nullptr, nullptr, 0, nullptr));
    std::vector<double> wanted(120);
    for (size_t s = 0; s < 3; s++)
        for (size_t i = 0; i < 7; i++)
            for (size_t j = 0; j < 5; j++)
                for (size_t p = 0; p < 11; p++)
                    wanted[s * 40 + i + j * 7] +=
                        (double)a[s * 80 + i + p * 7] * (double)b[s * 55 + p + j * 11];
    rig::assert_close(on_d.read(), wanted, 1e-5);
}

static void more_workspace_offers_more_algorithms(void **) {
    Objects objects(PLAIN);
    std::vector<cublasLtMatmulHeuristicResult_t> found;
    objects.allow(0);
    check(objects.heuristic(found));
    assert_int_equal(found.size(), 1);
    assert_int_equal(found[0].workspaceSize, 0);
    objects.allow((uint64_t)1 << 20);
    check(objects.heuristic(found));
    assert_int_equal(found.size(), 4);
}

static void what_has_no_kernel_is_not_supported(void **) {
    std::vector<cublasLtMatmulHeuristicResult_t> found;
    Case c = PLAIN;
    c.rows_first = true; /* a bias runs along the rows of a matrix stored by columns only */
    c.epilogue = CUBLASLT_EPILOGUE_BIAS;
    assert_int_equal(Objects(c).heuristic(found), CUBLAS_STATUS_NOT_SUPPORTED);
    c = PLAIN;
    c.bf16_output = true; /* of float32 operands */
    assert_int_equal(Objects(c).heuristic(found), CUBLAS_STATUS_NOT_SUPPORTED);
    c = PLAIN;
    c.epilogue = CUBLASLT_EPILOGUE_BIAS;
    Objects objects(c);
    objects.set(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, (int32_t)CUDA_R_16BF);
    assert_int_equal(objects.heuristic(found), CUBLAS_STATUS_NOT_SUPPORTED);
}

static void contradictions_are_invalid(void **) {
    Objects objects(PLAIN);
    Array<float> values((size_t)200);
    float one = 1, zero = 0, *v = values.get();
    auto call = [&](const void *a, const float *beta, const void *c,
                    const cublasLtMatmulAlgo_t *algo, size_t workspace) {
        return cublasLtMatmul(objects.handle, objects.descriptor, &one, a, objects.a, v, objects.b,
                              beta, c, objects.d, v, objects.d, algo, v, workspace, nullptr);
    };
    std::vector<cublasLtMatmulHeuristicResult_t> found;
    check(objects.heuristic(found));
    assert_int_equal(call(nullptr, &zero, v, nullptr, 0), CUBLAS_STATUS_INVALID_VALUE);
    assert_int_equal(call(v, nullptr, v, nullptr, 0), CUBLAS_STATUS_INVALID_VALUE);
    assert_int_equal(call(v, &one, nullptr, nullptr, 0), CUBLAS_STATUS_INVALID_VALUE);
    assert_int_equal(call(v, &zero, v, &found[2].algo, found[2].workspaceSize - 1),
                     CUBLAS_STATUS_INVALID_VALUE);
    objects.set(CUBLASLT_MATMUL_DESC_COMPUTE_TYPE, (int32_t)CUBLAS_COMPUTE_32F_FAST_TF32);
    assert_int_equal(call(v, &zero, v, &found[0].algo, 0), CUBLAS_STATUS_INVALID_VALUE);
    Case masking = PLAIN;
    masking.m = 8;
    masking.epilogue = CUBLASLT_EPILOGUE_RELU_AUX;
    Objects masked(masking);
    set_aux(masked, nullptr, 128);
    assert_int_equal(cublasLtMatmul(masked.handle, masked.descriptor, &one, v, masked.a, v,
                                    masked.b, &zero, v, masked.d, v, masked.d, nullptr, nullptr, 0,
                                    nullptr),
                     CUBLAS_STATUS_INVALID_VALUE);
    int64_t ld = 6;
    check(cublasLtMatrixLayoutSetAttribute(objects.a, CUBLASLT_MATRIX_LAYOUT_LD, &ld, sizeof ld));
    assert_int_equal(objects.heuristic(found), CUBLAS_STATUS_INVALID_VALUE);
    assert_int_equal(cublasLtMatrixLayoutSetAttribute(objects.a, CUBLASLT_MATRIX_LAYOUT_LD, &ld, 4),
                     CUBLAS_STATUS_INVALID_VALUE);
}

/* With arrays large enough, or not, on a device that is the handle's, or not. */
static void multiply_amiss(size_t a_count, size_t d_count, int device) {
    Objects objects(PLAIN);
    rig::check(cudaSetDevice(device));
    Array<float> a(a_count), b((size_t)200), d(d_count);
    float one = 1, zero = 0;
    cublasLtMatmul(objects.handle, objects.descriptor, &one, a.get(), objects.a, b.get(), objects.b,
                   &zero, d.get(), objects.d, d.get(), objects.d, nullptr, nullptr, 0, nullptr);
}

SCENARIO(small_a) {
    multiply_amiss(20, 200, 0);
}
SCENARIO(small_d) {
    multiply_amiss(200, 20, 0);
}
SCENARIO(foreign_handle) {
    multiply_amiss(200, 200, 1);
}

static void multiply_with_aux(uint32_t epilogue, int64_t ld) {
    Case c = PLAIN;
    c.m = 8;
    c.n = 40;
    c.epilogue = epilogue;
    Objects objects(c);
    Array<uint8_t> aux((size_t)128);
    set_aux(objects, aux.get(), ld);
    multiply(objects, c, Data(c));
}

SCENARIO(small_mask) {
    multiply_with_aux(CUBLASLT_EPILOGUE_RELU_AUX, 128);
}
SCENARIO(small_aux) {
    multiply_with_aux(CUBLASLT_EPILOGUE_GELU_AUX, 8);
}

static void operands_outside_their_allocation_and_foreign_handles_are_violations(void **) {
    rig::assert_violation("cublasLtMatmul A", "small_a");
    rig::assert_violation("cublasLtMatmul D", "small_d");
    rig::assert_violation("cublasLtMatmul mask", "small_mask");
    rig::assert_violation("cublasLtMatmul aux", "small_aux");
    rig::assert_violation("handle of device 0", "foreign_handle");
}

static void every_call_can_fail_and_leaks_nothing(void **) {
    size_t before = sim::outstanding();
    sim::fail_call(1);
    cublasLtHandle_t handle = nullptr;
    assert_int_equal(cublasLtCreate(&handle), CUBLAS_STATUS_ALLOC_FAILED);
    assert_null(handle);
    sim::fail_call(2);
    check(cublasLtCreate(&handle));
    assert_int_not_equal(cublasLtDestroy(handle), CUBLAS_STATUS_SUCCESS);
    sim::fail_call(0);
    assert_int_equal(sim::outstanding(), before);
}

int main(int count, char **arguments) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(products_equal_the_sums_for_every_layout),
        cmocka_unit_test(results_are_scaled_and_added),
        cmocka_unit_test(bfloat16_is_summed_in_float),
        cmocka_unit_test(tf32_rounds_the_operands_to_ten_bits),
        cmocka_unit_test(epilogues_add_bias_activate_and_sum_its_gradient),
        cmocka_unit_test(a_mask_tells_what_the_relu_let_through),
        cmocka_unit_test(a_mask_that_does_not_fit_is_refused),
        cmocka_unit_test(a_gelu_keeps_what_it_reads_for_its_gradient),
        cmocka_unit_test(an_input_of_a_gelu_that_does_not_fit_is_refused),
        cmocka_unit_test(batches_step_by_their_strides),
        cmocka_unit_test(more_workspace_offers_more_algorithms),
        cmocka_unit_test(what_has_no_kernel_is_not_supported),
        cmocka_unit_test(contradictions_are_invalid),
        cmocka_unit_test(operands_outside_their_allocation_and_foreign_handles_are_violations),
        cmocka_unit_test(every_call_can_fail_and_leaks_nothing),
    };
    return RUN_TESTS(count, arguments, tests);
}
