/* SPDX-License-Identifier: Apache-2.0 */
/* cuBLASLt: handles, descriptors and algorithms over product.h. It checks them as the real
 * library does and refuses what the real one refuses on a GPU. */
#include <cstring>

#include "simcuda/product.h"

struct cublasLtContext {
    int device;
};

using namespace sim::lt;

namespace {

struct Preference {
    uint64_t workspace_bytes;
    uint32_t search_mode, alignments[4], reduction_schemes;
};
static_assert(sizeof(Descriptor) <= sizeof(cublasLtMatmulDescOpaque_t), "fits");
static_assert(sizeof(Layout) <= sizeof(cublasLtMatrixLayoutOpaque_t), "fits");
static_assert(sizeof(Preference) <= sizeof(cublasLtMatmulPreferenceOpaque_t), "fits");

/* One algorithm with the sum over k in 1 to 3 parts, which differ in their last bits. From two parts
 * on they lie in the workspace and are added in their order; "in place" adds them as they finish. */
constexpr int32_t NUMBER = 21;
constexpr int SETTINGS = 9; /* of CUBLASLT_ALGO_CONFIG_... */
constexpr int32_t MOST_PARTS = 3;
struct Algorithm {
    int32_t settings[SETTINGS];
    int32_t compute, types; /* that it was made for */
};
static_assert(sizeof(Algorithm) <= sizeof(cublasLtMatmulAlgo_t), "fits");

#define FAULT(name, natural)                                                                       \
    if (int code_ = sim::fault(name, natural)) return (cublasStatus_t)code_

template <typename Own, typename Opaque> const Own &own(const Opaque *opaque) {
    return *reinterpret_cast<const Own *>(opaque);
}

template <typename Own, typename Opaque>
cublasStatus_t create(Opaque **to, const char *kind, const Own &value) {
    if (to == nullptr) return CUBLAS_STATUS_INVALID_VALUE;
    *to = new Opaque();
    std::memcpy((void *)*to, &value, sizeof value);
    sim::adopt(*to, kind);
    return CUBLAS_STATUS_SUCCESS;
}

/* A destroy that fails has destroyed all the same: what else could its caller do. */
template <typename Opaque> cublasStatus_t destroy(const char *call, Opaque *opaque) {
    int code = sim::fault(call, CUBLAS_STATUS_INTERNAL_ERROR);
    if (opaque != nullptr) sim::disown(opaque);
    delete opaque;
    return (cublasStatus_t)code;
}

/* The bytes must be as many as the attribute has. */
cublasStatus_t assign(void *field, size_t field_bytes, const void *value, size_t bytes) {
    if (field == nullptr || value == nullptr || bytes != field_bytes)
        return CUBLAS_STATUS_INVALID_VALUE;
    std::memcpy(field, value, bytes);
    return CUBLAS_STATUS_SUCCESS;
}

Algorithm &algorithm_in(cublasLtMatmulAlgo_t *algo) {
    return *reinterpret_cast<Algorithm *>(algo);
}

int32_t types_of(int32_t a, int32_t b, int32_t c, int32_t d) {
    return ((a * 64 + b) * 64 + c) * 64 + d;
}

Algorithm algorithm_for(const Problem &p, int32_t parts, cublasLtReductionScheme_t scheme) {
    Algorithm made{};
    made.settings[CUBLASLT_ALGO_CONFIG_ID] = NUMBER;
    made.settings[CUBLASLT_ALGO_CONFIG_TILE_ID] = 20;
    made.settings[CUBLASLT_ALGO_CONFIG_SPLITK_NUM] = parts;
    made.settings[CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME] = scheme;
    made.settings[CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID] = 2;
    made.compute = p.descriptor.compute;
    made.types = types_of(p.a.type, p.b.type, p.c.type, p.d.type);
    return made;
}

bool in_place(const Algorithm &algorithm) {
    return algorithm.settings[CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME] ==
           CUBLASLT_REDUCTION_SCHEME_INPLACE;
}

uint64_t parts_of(const Algorithm &algorithm) {
    return (uint64_t)algorithm.settings[CUBLASLT_ALGO_CONFIG_SPLITK_NUM];
}

/* Whether the algorithm computes the problem: settings that belong together, for these types. */
cublasStatus_t check_algorithm(const Problem &p, const Algorithm &algorithm) {
    int32_t parts = algorithm.settings[CUBLASLT_ALGO_CONFIG_SPLITK_NUM];
    int32_t scheme = algorithm.settings[CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME];
    if (algorithm.settings[CUBLASLT_ALGO_CONFIG_ID] != NUMBER ||
        algorithm.compute != p.descriptor.compute ||
        algorithm.types != types_of(p.a.type, p.b.type, p.c.type, p.d.type))
        return CUBLAS_STATUS_INVALID_VALUE;
    bool whole = parts == 1 && scheme == CUBLASLT_REDUCTION_SCHEME_NONE;
    bool cut = parts > 1 && parts <= MOST_PARTS && (uint64_t)parts <= p.k &&
               (scheme == CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE ||
                scheme == CUBLASLT_REDUCTION_SCHEME_INPLACE);
    return whole || cut ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_NOT_SUPPORTED;
}

/* The list for a problem: its order depends on the shape, as the library's does. */
std::vector<Algorithm> algorithms_for(const Problem &p) {
    auto cut = [&p](int32_t parts) {
        return algorithm_for(p, parts, CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE);
    };
    std::vector<Algorithm> list = {algorithm_for(p, 1, CUBLASLT_REDUCTION_SCHEME_NONE)};
    bool small = p.m * p.n < 4096;
    for (int32_t parts : {small ? 2 : 3, small ? 3 : 2})
        list.push_back(cut(parts));
    list.push_back(algorithm_for(p, 2, CUBLASLT_REDUCTION_SCHEME_INPLACE));
    return list;
}

bool same(const Layout &one, const Layout &other) {
    return std::memcmp(&one, &other, sizeof one) == 0;
}

struct Descriptors {
    cublasLtMatmulDesc_t descriptor;
    cublasLtMatrixLayout_t a, b, c, d;
};

cublasStatus_t read_problem(Problem &p, const Descriptors &from) {
    if (!from.descriptor || !from.a || !from.b || !from.c || !from.d)
        return CUBLAS_STATUS_INVALID_VALUE;
    p = Problem();
    p.descriptor = own<Descriptor>(from.descriptor);
    p.a = own<Layout>(from.a);
    p.b = own<Layout>(from.b);
    p.c = own<Layout>(from.c);
    p.d = own<Layout>(from.d);
    return check(p);
}

simcuda_arithmetic arithmetic_of(const Problem &p) {
    if (p.a.type == CUDA_R_16BF || p.a.type == CUDA_R_16F) return SIMCUDA_BFLOAT16;
    bool tf32 = p.descriptor.compute == CUBLAS_COMPUTE_32F_FAST_TF32;
    return tf32 ? SIMCUDA_TF32 : SIMCUDA_FLOAT32;
}

void check_device(cublasLtHandle_t handle, cudaStream_t stream) {
    int device = stream == nullptr ? sim::current_device() : sim::stream_device(stream);
    if (device != handle->device || sim::current_device() != device)
        sim::violation("cublasLtMatmul with the handle of device %d on a stream of device %d while "
                       "device %d is current",
                       handle->device, device, sim::current_device());
}

} // namespace

extern "C" {

cublasStatus_t cublasLtCreate(cublasLtHandle_t *handle) {
    FAULT("cublasLtCreate", CUBLAS_STATUS_ALLOC_FAILED);
    if (handle == nullptr) return CUBLAS_STATUS_INVALID_VALUE;
    *handle = new cublasLtContext{sim::current_device()};
    sim::adopt(*handle, "cuBLASLt handle");
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) {
    if (handle == nullptr) return CUBLAS_STATUS_NOT_INITIALIZED;
    return destroy("cublasLtDestroy", handle);
}

size_t cublasLtGetVersion(void) {
    return CUBLAS_VERSION;
}

const char *cublasLtGetStatusName(cublasStatus_t status) {
    switch (status) {
    case CUBLAS_STATUS_SUCCESS:
        return "CUBLAS_STATUS_SUCCESS";
    case CUBLAS_STATUS_NOT_INITIALIZED:
        return "CUBLAS_STATUS_NOT_INITIALIZED";
    case CUBLAS_STATUS_ALLOC_FAILED:
        return "CUBLAS_STATUS_ALLOC_FAILED";
    case CUBLAS_STATUS_INVALID_VALUE:
        return "CUBLAS_STATUS_INVALID_VALUE";
    case CUBLAS_STATUS_ARCH_MISMATCH:
        return "CUBLAS_STATUS_ARCH_MISMATCH";
    case CUBLAS_STATUS_MAPPING_ERROR:
        return "CUBLAS_STATUS_MAPPING_ERROR";
    case CUBLAS_STATUS_EXECUTION_FAILED:
        return "CUBLAS_STATUS_EXECUTION_FAILED";
    case CUBLAS_STATUS_INTERNAL_ERROR:
        return "CUBLAS_STATUS_INTERNAL_ERROR";
    case CUBLAS_STATUS_NOT_SUPPORTED:
        return "CUBLAS_STATUS_NOT_SUPPORTED";
    case CUBLAS_STATUS_LICENSE_ERROR:
        return "CUBLAS_STATUS_LICENSE_ERROR";
    }
    return "CUBLAS_STATUS_UNKNOWN";
}

const char *cublasLtGetStatusString(cublasStatus_t status) {
    switch (status) {
    case CUBLAS_STATUS_SUCCESS:
        return "success";
    case CUBLAS_STATUS_NOT_INITIALIZED:
        return "the library was not initialized";
    case CUBLAS_STATUS_ALLOC_FAILED:
        return "the resource allocation failed";
    case CUBLAS_STATUS_INVALID_VALUE:
        return "an invalid value was used as input";
    case CUBLAS_STATUS_EXECUTION_FAILED:
        return "the function failed to launch on the GPU";
    case CUBLAS_STATUS_INTERNAL_ERROR:
        return "an internal operation failed";
    case CUBLAS_STATUS_NOT_SUPPORTED:
        return "the functionality is not supported";
    default:
        return cublasLtGetStatusName(status);
    }
}

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t *descriptor,
                                        cublasComputeType_t compute, cudaDataType_t scale) {
    FAULT("cublasLtMatmulDescCreate", CUBLAS_STATUS_ALLOC_FAILED);
    Descriptor value{};
    value.compute = compute;
    value.scale = scale;
    value.bias_type = -1;
    value.epilogue = CUBLASLT_EPILOGUE_DEFAULT;
    return create(descriptor, "cuBLASLt matmul descriptor", value);
}

cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t descriptor) {
    return destroy("cublasLtMatmulDescDestroy", descriptor);
}

cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t descriptor,
                                              cublasLtMatmulDescAttributes_t attribute,
                                              const void *value, size_t bytes) {
    FAULT("cublasLtMatmulDescSetAttribute", CUBLAS_STATUS_INVALID_VALUE);
    if (descriptor == nullptr) return CUBLAS_STATUS_INVALID_VALUE;
    Descriptor &to = const_cast<Descriptor &>(own<Descriptor>(descriptor));
    switch (attribute) {
    case CUBLASLT_MATMUL_DESC_COMPUTE_TYPE:
        return assign(&to.compute, 4, value, bytes);
    case CUBLASLT_MATMUL_DESC_SCALE_TYPE:
        return assign(&to.scale, 4, value, bytes);
    case CUBLASLT_MATMUL_DESC_POINTER_MODE:
        return assign(&to.pointer_mode, 4, value, bytes);
    case CUBLASLT_MATMUL_DESC_TRANSA:
        return assign(&to.transpose_a, 4, value, bytes);
    case CUBLASLT_MATMUL_DESC_TRANSB:
        return assign(&to.transpose_b, 4, value, bytes);
    case CUBLASLT_MATMUL_DESC_EPILOGUE:
        return assign(&to.epilogue, 4, value, bytes);
    case CUBLASLT_MATMUL_DESC_BIAS_POINTER:
        return assign(&to.bias, 8, value, bytes);
    case CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE:
        return assign(&to.bias_type, 4, value, bytes);
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER:
        return assign(&to.aux, 8, value, bytes);
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD:
        return assign(&to.aux_ld, 8, value, bytes);
    default:
        sim::violation("the simulated cuBLASLt has no matmul attribute %d", (int)attribute);
    }
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t *layout, cudaDataType type,
                                          uint64_t rows, uint64_t cols, int64_t ld) {
    FAULT("cublasLtMatrixLayoutCreate", CUBLAS_STATUS_ALLOC_FAILED);
    Layout value{};
    value.type = type;
    value.rows = rows;
    value.cols = cols;
    value.ld = ld;
    value.batch = 1;
    value.order = CUBLASLT_ORDER_COL;
    return create(layout, "cuBLASLt matrix layout", value);
}

cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout) {
    return destroy("cublasLtMatrixLayoutDestroy", layout);
}

cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t layout,
                                                cublasLtMatrixLayoutAttribute_t attribute,
                                                const void *value, size_t bytes) {
    FAULT("cublasLtMatrixLayoutSetAttribute", CUBLAS_STATUS_INVALID_VALUE);
    if (layout == nullptr) return CUBLAS_STATUS_INVALID_VALUE;
    Layout &to = const_cast<Layout &>(own<Layout>(layout));
    switch (attribute) {
    case CUBLASLT_MATRIX_LAYOUT_TYPE:
        return assign(&to.type, 4, value, bytes);
    case CUBLASLT_MATRIX_LAYOUT_ORDER:
        return assign(&to.order, 4, value, bytes);
    case CUBLASLT_MATRIX_LAYOUT_ROWS:
        return assign(&to.rows, 8, value, bytes);
    case CUBLASLT_MATRIX_LAYOUT_COLS:
        return assign(&to.cols, 8, value, bytes);
    case CUBLASLT_MATRIX_LAYOUT_LD:
        return assign(&to.ld, 8, value, bytes);
    case CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT:
        return assign(&to.batch, 4, value, bytes);
    case CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET:
        return assign(&to.stride, 8, value, bytes);
    default:
        sim::violation("the simulated cuBLASLt has no layout attribute %d", (int)attribute);
    }
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t *preference) {
    FAULT("cublasLtMatmulPreferenceCreate", CUBLAS_STATUS_ALLOC_FAILED);
    Preference value{};
    value.reduction_schemes = CUBLASLT_REDUCTION_SCHEME_MASK;
    return create(preference, "cuBLASLt preference", value);
}

cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference) {
    return destroy("cublasLtMatmulPreferenceDestroy", preference);
}

cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t preference,
                                                    cublasLtMatmulPreferenceAttributes_t attribute,
                                                    const void *value, size_t bytes) {
    FAULT("cublasLtMatmulPreferenceSetAttribute", CUBLAS_STATUS_INVALID_VALUE);
    if (preference == nullptr) return CUBLAS_STATUS_INVALID_VALUE;
    Preference &to = const_cast<Preference &>(own<Preference>(preference));
    switch (attribute) {
    case CUBLASLT_MATMUL_PREF_SEARCH_MODE:
        return assign(&to.search_mode, 4, value, bytes);
    case CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK:
        return assign(&to.reduction_schemes, 4, value, bytes);
    case CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES:
        return assign(&to.workspace_bytes, 8, value, bytes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES:
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES:
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES:
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES:
        return assign(&to.alignments[attribute - CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES], 4,
                      value, bytes);
    default:
        sim::violation("the simulated cuBLASLt has no preference %d", (int)attribute);
    }
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t handle,
                                              cublasLtMatmulDesc_t descriptor,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t preference, int most,
                                              cublasLtMatmulHeuristicResult_t results[],
                                              int *count) {
    FAULT("cublasLtMatmulAlgoGetHeuristic", CUBLAS_STATUS_NOT_SUPPORTED);
    if (handle == nullptr) return CUBLAS_STATUS_NOT_INITIALIZED;
    if (preference == nullptr || results == nullptr || count == nullptr || most < 1)
        return CUBLAS_STATUS_INVALID_VALUE;
    Problem p;
    *count = 0;
    cublasStatus_t status = read_problem(p, {descriptor, a, b, c, d});
    if (status != CUBLAS_STATUS_SUCCESS) return status;
    const Preference &wanted = own<Preference>(preference);
    for (const Algorithm &algorithm : algorithms_for(p)) {
        size_t bytes = workspace_bytes(p, parts_of(algorithm));
        auto scheme =
            (uint32_t)algorithm.settings[CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME];
        if (*count == most || bytes > wanted.workspace_bytes ||
            (scheme & ~wanted.reduction_schemes) != 0 ||
            check_algorithm(p, algorithm) != CUBLAS_STATUS_SUCCESS)
            continue;
        cublasLtMatmulHeuristicResult_t &result = results[(*count)++];
        result = cublasLtMatmulHeuristicResult_t();
        algorithm_in(&result.algo) = algorithm;
        result.workspaceSize = bytes;
        result.wavesCount = 1;
    }
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulAlgoInit(cublasLtHandle_t handle, cublasComputeType_t compute,
                                      cudaDataType_t scale, cudaDataType_t a, cudaDataType_t b,
                                      cudaDataType_t c, cudaDataType_t d, int number,
                                      cublasLtMatmulAlgo_t *algo) {
    FAULT("cublasLtMatmulAlgoInit", CUBLAS_STATUS_NOT_SUPPORTED);
    if (handle == nullptr) return CUBLAS_STATUS_NOT_INITIALIZED;
    if (algo == nullptr || number != NUMBER || scale != CUDA_R_32F)
        return CUBLAS_STATUS_INVALID_VALUE;
    Algorithm made{};
    made.settings[CUBLASLT_ALGO_CONFIG_ID] = number;
    made.settings[CUBLASLT_ALGO_CONFIG_SPLITK_NUM] = 1;
    made.compute = compute;
    made.types = types_of(a, b, c, d);
    algorithm_in(algo) = made;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulAlgoCheck(cublasLtHandle_t handle, cublasLtMatmulDesc_t descriptor,
                                       cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                       cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                       const cublasLtMatmulAlgo_t *algo,
                                       cublasLtMatmulHeuristicResult_t *result) {
    FAULT("cublasLtMatmulAlgoCheck", CUBLAS_STATUS_NOT_SUPPORTED);
    if (handle == nullptr) return CUBLAS_STATUS_NOT_INITIALIZED;
    if (algo == nullptr || result == nullptr) return CUBLAS_STATUS_INVALID_VALUE;
    Problem p;
    cublasStatus_t status = read_problem(p, {descriptor, a, b, c, d});
    if (status == CUBLAS_STATUS_SUCCESS) status = check_algorithm(p, own<Algorithm>(algo));
    if (status != CUBLAS_STATUS_SUCCESS) return status;
    result->workspaceSize = workspace_bytes(p, parts_of(own<Algorithm>(algo)));
    result->wavesCount = 1;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulAlgoConfigGetAttribute(const cublasLtMatmulAlgo_t *algo,
                                                    cublasLtMatmulAlgoConfigAttributes_t attribute,
                                                    void *value, size_t bytes, size_t *written) {
    FAULT("cublasLtMatmulAlgoConfigGetAttribute", CUBLAS_STATUS_INVALID_VALUE);
    size_t wanted = attribute < CUBLASLT_ALGO_CONFIG_INNER_SHAPE_ID ? 4 : 2;
    if (algo == nullptr || value == nullptr || attribute >= SETTINGS || bytes != wanted)
        return CUBLAS_STATUS_INVALID_VALUE;
    std::memcpy(value, &own<Algorithm>(algo).settings[attribute], bytes); /* little-endian */
    if (written != nullptr) *written = bytes;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulAlgoConfigSetAttribute(cublasLtMatmulAlgo_t *algo,
                                                    cublasLtMatmulAlgoConfigAttributes_t attribute,
                                                    const void *value, size_t bytes) {
    FAULT("cublasLtMatmulAlgoConfigSetAttribute", CUBLAS_STATUS_INVALID_VALUE);
    size_t wanted = attribute < CUBLASLT_ALGO_CONFIG_INNER_SHAPE_ID ? 4 : 2;
    if (algo == nullptr || value == nullptr || attribute == CUBLASLT_ALGO_CONFIG_ID ||
        attribute >= SETTINGS || bytes != wanted)
        return CUBLAS_STATUS_INVALID_VALUE;
    int32_t read = 0;
    std::memcpy(&read, value, bytes);
    algorithm_in(algo).settings[attribute] = read;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t descriptor,
                              const void *alpha, const void *a, cublasLtMatrixLayout_t a_layout,
                              const void *b, cublasLtMatrixLayout_t b_layout, const void *beta,
                              const void *c, cublasLtMatrixLayout_t c_layout, void *d,
                              cublasLtMatrixLayout_t d_layout, const cublasLtMatmulAlgo_t *algo,
                              void *workspace, size_t bytes, cudaStream_t stream) {
    FAULT("cublasLtMatmul", CUBLAS_STATUS_EXECUTION_FAILED);
    if (handle == nullptr) return CUBLAS_STATUS_NOT_INITIALIZED;
    Problem p;
    cublasStatus_t status = read_problem(p, {descriptor, a_layout, b_layout, c_layout, d_layout});
    if (status != CUBLAS_STATUS_SUCCESS) return status;
    if (!alpha || !beta || !a || !b || !d) return CUBLAS_STATUS_INVALID_VALUE;
    Pointers pointers{a, b, c, d, workspace, *(const float *)alpha, *(const float *)beta, 1};
    if (algo != nullptr) {
        const Algorithm &algorithm = own<Algorithm>(algo);
        status = check_algorithm(p, algorithm);
        if (status != CUBLAS_STATUS_SUCCESS) return status;
        pointers.parts = parts_of(algorithm);
    }
    if ((pointers.beta != 0 && c == nullptr) || (c == d && !same(p.c, p.d)) ||
        (wants_bias(p.descriptor) && p.descriptor.bias == nullptr) ||
        (wants_aux(p.descriptor) && p.descriptor.aux == nullptr) ||
        bytes < workspace_bytes(p, pointers.parts))
        return CUBLAS_STATUS_INVALID_VALUE;
    check_device(handle, stream);
    double operations = 2.0 * (double)(p.batch * p.m * p.n * p.k);
    bool atomics = algo != nullptr && in_place(own<Algorithm>(algo));
    double cost_ns = (double)sim::library_cost_ns(operations, 0);
    cudaError_t error = sim::enqueue_on(
        stream, "cublasLtMatmul", (uint64_t)(cost_ns * (atomics ? sim::ATOMICS_COST : 1)),
        operands(p, pointers), {operations, arithmetic_of(p)},
        [p, pointers, atomics] { run(p, pointers, atomics ? sim::any_order() : 0); });
    return error == cudaSuccess ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_EXECUTION_FAILED;
}
}
