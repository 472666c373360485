/* SPDX-License-Identifier: Apache-2.0 */
/* Products of float32, bfloat16 and float16 with float sums. */
#include "simcuda/product.h"

#include <algorithm>
#include <cmath>
#include <cstdint>

namespace sim::lt {
namespace {

constexpr uint32_t AUX = 128; /* the epilogues that write or read an aux */

/* Whether it is `epilogue`, or that with bits for a bias or an aux. */
bool has(const Descriptor &descriptor, cublasLtEpilogue_t epilogue) {
    return (descriptor.epilogue & epilogue) == (uint32_t)epilogue;
}

/* DRELU and DRELU_BGRAD; DGELU and DGELU_BGRAD. */
bool masks(const Descriptor &descriptor) {
    return has(descriptor, CUBLASLT_EPILOGUE_DRELU);
}
bool differentiates_gelu(const Descriptor &descriptor) {
    return has(descriptor, CUBLASLT_EPILOGUE_DGELU);
}
bool aux_is_mask(const Descriptor &descriptor) {
    return masks(descriptor) || has(descriptor, CUBLASLT_EPILOGUE_RELU);
}

bool known_type(int32_t type) {
    return type == CUDA_R_32F || type == CUDA_R_16BF || type == CUDA_R_16F;
}

Type type_of(int32_t type) {
    return type == CUDA_R_16BF  ? Type::bfloat16
           : type == CUDA_R_16F ? Type::float16
                                : Type::float32;
}

/* Elements from the first to behind the last of one matrix. */
size_t span(const Layout &layout) {
    bool columns = layout.order == CUBLASLT_ORDER_COL;
    uint64_t lines = columns ? layout.cols : layout.rows;
    uint64_t line = columns ? layout.rows : layout.cols;
    return (size_t)((lines - 1) * (uint64_t)layout.ld + line);
}

bool valid(const Layout &layout, size_t batch) {
    int64_t line = (int64_t)(layout.order == CUBLASLT_ORDER_COL ? layout.rows : layout.cols);
    return layout.rows > 0 && layout.cols > 0 && layout.ld >= line && layout.batch == (int)batch &&
           (layout.order == CUBLASLT_ORDER_COL || layout.order == CUBLASLT_ORDER_ROW);
}

bool transposed(int32_t operation) {
    return operation != CUBLAS_OP_N;
}

/* Numbers that contradict each other. */
bool shapes_agree(Problem &p) {
    const Descriptor &descriptor = p.descriptor;
    bool ta = transposed(descriptor.transpose_a), tb = transposed(descriptor.transpose_b);
    p.m = ta ? p.a.cols : p.a.rows;
    p.k = ta ? p.a.rows : p.a.cols;
    p.n = tb ? p.b.rows : p.b.cols;
    p.batch = (size_t)p.d.batch;
    for (const Layout *layout : {&p.a, &p.b, &p.c, &p.d})
        if (!valid(*layout, p.batch)) return false;
    return (tb ? p.b.cols : p.b.rows) == p.k && p.d.rows == p.m && p.d.cols == p.n &&
           p.c.rows == p.m && p.c.cols == p.n;
}

bool aux_agrees(const Problem &p) {
    int64_t ld = p.descriptor.aux_ld;
    return !wants_aux(p.descriptor) ||
           (ld % (aux_is_mask(p.descriptor) ? 128 : 8) == 0 && ld >= (int64_t)p.d.rows);
}

/* Rows are whole bytes of a mask, and an aux lies at 16 bytes. The library says which distances it
 * wants, and not which rows: these are a guess, so that some are refused. */
bool aux_supported(const Problem &p) {
    return p.batch == 1 && p.d.rows % 8 == 0 && (uintptr_t)p.descriptor.aux % 16 == 0;
}

/* Combinations a GPU has no kernel for. */
bool supported(const Problem &p) {
    const Descriptor &descriptor = p.descriptor;
    bool strict = descriptor.compute == CUBLAS_COMPUTE_32F ||
                  descriptor.compute == CUBLAS_COMPUTE_32F_PEDANTIC;
    if (!strict && descriptor.compute != CUBLAS_COMPUTE_32F_FAST_TF32) return false;
    if (descriptor.scale != CUDA_R_32F || descriptor.pointer_mode != CUBLASLT_POINTER_MODE_HOST)
        return false;
    if (p.a.type != p.b.type || p.c.type != p.d.type || !known_type(p.a.type)) return false;
    if (!known_type(p.d.type) || (p.d.type != p.a.type && p.d.type != CUDA_R_32F)) return false;
    if (descriptor.transpose_a == CUBLAS_OP_C || descriptor.transpose_b == CUBLAS_OP_C)
        return false;
    switch (descriptor.epilogue) {
    case CUBLASLT_EPILOGUE_DEFAULT:
    case CUBLASLT_EPILOGUE_RELU:
    case CUBLASLT_EPILOGUE_GELU:
        return true;
    case CUBLASLT_EPILOGUE_BIAS:
    case CUBLASLT_EPILOGUE_RELU_BIAS:
    case CUBLASLT_EPILOGUE_BGRADA:
    case CUBLASLT_EPILOGUE_BGRADB:
    case CUBLASLT_EPILOGUE_RELU_AUX:
    case CUBLASLT_EPILOGUE_RELU_AUX_BIAS:
    case CUBLASLT_EPILOGUE_DRELU:
    case CUBLASLT_EPILOGUE_DRELU_BGRAD:
    case CUBLASLT_EPILOGUE_GELU_BIAS:
    case CUBLASLT_EPILOGUE_GELU_AUX:
    case CUBLASLT_EPILOGUE_GELU_AUX_BIAS:
    case CUBLASLT_EPILOGUE_DGELU:
    case CUBLASLT_EPILOGUE_DGELU_BGRAD:
        break;
    default:
        return false;
    }
    if (wants_aux(descriptor) && !aux_supported(p)) return false;
    if (p.batch > 1 && !(descriptor.epilogue & CUBLASLT_EPILOGUE_BIAS)) return false;
    int32_t bias_type = descriptor.bias_type == -1 ? p.d.type : descriptor.bias_type;
    return bias_type == p.d.type && p.d.order == CUBLASLT_ORDER_COL;
}

/* One operand as rows of floats: op(matrix)[lines, columns]. */
void widen(const Layout &layout, bool transpose, bool tf32, const void *from, float *to) {
    size_t rows = transpose ? layout.cols : layout.rows,
           cols = transpose ? layout.rows : layout.cols;
    bool by_column = (layout.order == CUBLASLT_ORDER_COL) != transpose;
    size_t ld = (size_t)layout.ld, row = by_column ? 1 : ld, column = by_column ? ld : 1;
    Type type = type_of(layout.type);
    for (size_t i = 0; i < rows; i++)
        for (size_t j = 0; j < cols; j++) {
            float value = load(type, from, i * row + j * column);
            to[i * cols + j] = tf32 ? round_to_tf32(value) : value;
        }
}

const void *at(const void *base, const Layout &layout, size_t batch) {
    return (const char *)base +
           (ptrdiff_t)batch * layout.stride * (ptrdiff_t)type_bytes(type_of(layout.type));
}

/* The library does not say which bit is whose: here those of a byte are turned round. */
struct Bit {
    uint8_t &byte;
    uint8_t mask;
};
Bit bit_of(const Descriptor &descriptor, size_t i, size_t j) {
    size_t at = i + j * (size_t)descriptor.aux_ld;
    return {((uint8_t *)descriptor.aux)[at / 8], (uint8_t)(128u >> at % 8)};
}

float clip(const Descriptor &descriptor, size_t i, size_t j, float value) {
    if (descriptor.epilogue & AUX) {
        Bit bit = bit_of(descriptor, i, j);
        bit.byte = (uint8_t)(value > 0 ? bit.byte | bit.mask : bit.byte & ~bit.mask);
    }
    bool keeps = settings().relu_keeps_nan; /* users of the library report that it does not */
    return value > 0 || (keeps && value != value) ? value : 0;
}

/* The inner function of GELU's form with tanh, and its slope. */
constexpr float ROOT = 0.7978845608f, CUBE = 0.044715f; /* sqrt(2 / pi) */

float gelu(float x) {
    return 0.5f * x * (1 + std::tanh(ROOT * (x + CUBE * x * x * x)));
}

float gelu_slope(float x) {
    float t = std::tanh(ROOT * (x + CUBE * x * x * x));
    return 0.5f * (1 + t) + 0.5f * x * (1 - t * t) * ROOT * (1 + 3 * CUBE * x * x);
}

/* What the activation makes of an element of D, or its backward. */
float activated(const Problem &p, size_t i, size_t j, float value) {
    const Descriptor &descriptor = p.descriptor;
    Type type = type_of(p.d.type);
    size_t place = i + j * (size_t)descriptor.aux_ld;
    if (masks(descriptor)) {
        Bit bit = bit_of(descriptor, i, j);
        return bit.byte & bit.mask ? value : 0;
    }
    if (differentiates_gelu(descriptor))
        return value * gelu_slope(load(type, descriptor.aux, place));
    if (has(descriptor, CUBLASLT_EPILOGUE_RELU)) return clip(descriptor, i, j, value);
    if (!has(descriptor, CUBLASLT_EPILOGUE_GELU)) return value;
    if (descriptor.epilogue & AUX) store(type, descriptor.aux, place, value);
    return gelu(value);
}

void finish_element(const Problem &p, const Pointers &pointers, size_t batch, size_t i, size_t j,
                    float &sum) {
    const Descriptor &descriptor = p.descriptor;
    auto place = [&](const Layout &layout) {
        return layout.order == CUBLASLT_ORDER_COL ? i + j * (size_t)layout.ld
                                                  : i * (size_t)layout.ld + j;
    };
    Type type = type_of(p.d.type);
    float value = pointers.alpha * sum;
    if (pointers.beta != 0)
        value += pointers.beta * load(type, at(pointers.c, p.c, batch), place(p.c));
    if (descriptor.epilogue & CUBLASLT_EPILOGUE_BIAS) value += load(type, descriptor.bias, i);
    value = activated(p, i, j, value);
    sum = value;
    store(type, (void *)at(pointers.d, p.d, batch), place(p.d), value);
}

bool sums_columns(const Descriptor &descriptor) {
    return descriptor.epilogue == CUBLASLT_EPILOGUE_DRELU_BGRAD ||
           descriptor.epilogue == CUBLASLT_EPILOGUE_DGELU_BGRAD;
}

/* The sums over the columns of D: the gradient of the bias before the activation. */
void sum_columns(const Problem &p, const float *values) {
    if (!sums_columns(p.descriptor)) return;
    for (size_t i = 0; i < p.m; i++) {
        float sum = 0;
        for (size_t j = 0; j < p.n; j++)
            sum += values[i * p.n + j];
        store(type_of(p.d.type), p.descriptor.bias, i, sum);
    }
}

/* The sums over k of op(A) rows or op(B) columns: the gradient of a bias. */
void bias_gradient(const Problem &p, const float *a, const float *b) {
    bool of_a = p.descriptor.epilogue == CUBLASLT_EPILOGUE_BGRADA;
    if (!of_a && p.descriptor.epilogue != CUBLASLT_EPILOGUE_BGRADB) return;
    for (size_t i = 0; i < (of_a ? p.m : p.n); i++) {
        float sum = 0;
        for (size_t k = 0; k < p.k; k++)
            sum += of_a ? a[i * p.k + k] : b[k * p.n + i];
        store(type_of(p.d.type), p.descriptor.bias, i, sum);
    }
}

void add_operand(std::vector<Operand> &operands, const Layout &layout, const void *pointer,
                 bool written, const char *what) {
    size_t bytes = type_bytes(type_of(layout.type));
    for (int batch = 0; batch < layout.batch; batch++)
        operands.push_back(
            {at(pointer, layout, (size_t)batch), span(layout) * bytes, written, what});
}

} // namespace

bool wants_bias(const Descriptor &descriptor) {
    return (descriptor.epilogue &
            (CUBLASLT_EPILOGUE_BIAS | CUBLASLT_EPILOGUE_BGRADA | CUBLASLT_EPILOGUE_BGRADB)) ||
           sums_columns(descriptor);
}

bool wants_aux(const Descriptor &descriptor) {
    return descriptor.epilogue & AUX;
}

cublasStatus_t check(Problem &p) {
    if (!shapes_agree(p) || !aux_agrees(p)) return CUBLAS_STATUS_INVALID_VALUE;
    return supported(p) ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_NOT_SUPPORTED;
}

size_t workspace_bytes(const Problem &p, uint64_t parts) {
    return parts < 2 ? 0 : parts * p.batch * p.m * p.n * sizeof(float);
}

void run(const Problem &p, const Pointers &pointers, uint64_t first_part) {
    bool tf32 = p.descriptor.compute == CUBLAS_COMPUTE_32F_FAST_TF32;
    std::vector<float> a(p.m * p.k), b(p.k * p.n), sums(p.m * p.n), own_part(p.m * p.n);
    for (size_t batch = 0; batch < p.batch; batch++) {
        widen(p.a, transposed(p.descriptor.transpose_a), tf32, at(pointers.a, p.a, batch),
              a.data());
        widen(p.b, transposed(p.descriptor.transpose_b), tf32, at(pointers.b, p.b, batch),
              b.data());
        std::fill(sums.begin(), sums.end(), 0.0f);
        for (uint64_t i = 0; i < pointers.parts; i++) {
            uint64_t part = (first_part + i) % pointers.parts;
            size_t first = p.k * part / pointers.parts, end = p.k * (part + 1) / pointers.parts;
            float *to = own_part.data();
            if (pointers.parts > 1)
                to = (float *)pointers.workspace + (batch * pointers.parts + part) * p.m * p.n;
            std::fill(to, to + p.m * p.n, 0.0f);
            multiply({p.m, p.n, end - first, a.data() + first, p.k, 1, b.data() + first * p.n, p.n,
                      to, p.n});
            for (size_t at = 0; at < p.m * p.n; at++)
                sums[at] += to[at];
        }
        for (size_t i = 0; i < p.m; i++)
            for (size_t j = 0; j < p.n; j++)
                finish_element(p, pointers, batch, i, j, sums[i * p.n + j]);
        bias_gradient(p, a.data(), b.data());
        sum_columns(p, sums.data());
    }
}

std::vector<Operand> operands(const Problem &p, const Pointers &pointers) {
    std::vector<Operand> list;
    add_operand(list, p.a, pointers.a, false, "cublasLtMatmul A");
    add_operand(list, p.b, pointers.b, false, "cublasLtMatmul B");
    if (pointers.beta != 0) add_operand(list, p.c, pointers.c, false, "cublasLtMatmul C");
    add_operand(list, p.d, pointers.d, true, "cublasLtMatmul D");
    if (size_t bytes = workspace_bytes(p, pointers.parts))
        list.push_back({pointers.workspace, bytes, true, "cublasLtMatmul workspace"});
    if (wants_bias(p.descriptor)) {
        bool reads = p.descriptor.epilogue & CUBLASLT_EPILOGUE_BIAS;
        size_t count = p.descriptor.epilogue == CUBLASLT_EPILOGUE_BGRADB ? p.n : p.m;
        list.push_back({p.descriptor.bias, count * type_bytes(type_of(p.d.type)), !reads,
                        "cublasLtMatmul bias"});
    }
    if (wants_aux(p.descriptor)) {
        size_t elements = (p.n - 1) * (size_t)p.descriptor.aux_ld + p.m;
        bool mask = aux_is_mask(p.descriptor);
        size_t bytes = mask ? (elements + 7) / 8 : elements * type_bytes(type_of(p.d.type));
        bool reads = masks(p.descriptor) || differentiates_gelu(p.descriptor);
        list.push_back({p.descriptor.aux, bytes, !reads,
                        mask ? "cublasLtMatmul mask" : "cublasLtMatmul aux"});
    }
    return list;
}

} // namespace sim::lt
