/* SPDX-License-Identifier: Apache-2.0 */
/* An algorithm of cuBLASLt is a number and a few settings. Yoke records these, since the library
 * lists its algorithms in another order for each shape. */
#include "device/cuda/product_algorithm.h"

#include <stdio.h>
#include <string.h>

typedef struct setting {
    cublasLtMatmulAlgoConfigAttributes_t attribute;
    size_t bytes;
} setting;

/* In the order of the text; the first is the algorithm's number. */
static const setting settings[] = {
    {CUBLASLT_ALGO_CONFIG_ID, 4},
    {CUBLASLT_ALGO_CONFIG_TILE_ID, 4},
    {CUBLASLT_ALGO_CONFIG_STAGES_ID, 4},
    {CUBLASLT_ALGO_CONFIG_SPLITK_NUM, 4},
    {CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME, 4},
    {CUBLASLT_ALGO_CONFIG_CTA_SWIZZLING, 4},
    {CUBLASLT_ALGO_CONFIG_CUSTOM_OPTION, 4},
    {CUBLASLT_ALGO_CONFIG_INNER_SHAPE_ID, 2},
    {CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID, 2},
};
#define SETTINGS ((int)(sizeof settings / sizeof settings[0]))
#define SCHEME 4 /* its place */

/* Two bytes or four, as the library stores a setting. */
typedef union stored {
    uint16_t two;
    uint32_t four;
} stored;

/* How the parts of a split of k are added. "In place" adds them to the output as they finish: the
 * library promises that they take turns, and not in which order. "Output type" would round each
 * part to bfloat16, but sums are float32. */
uint32_t cuda_reduction_schemes(bool atomics) {
    return atomics ? CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE | CUBLASLT_REDUCTION_SCHEME_INPLACE
                   : CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
}

yoke_status cuda_algorithm_write(cuda_device *device, const cublasLtMatmulAlgo_t *algorithm,
                                 char text[CUDA_CONFIGURATION_BYTES]) {
    int length = 0;
    for (int i = 0; i < SETTINGS && length < CUDA_CONFIGURATION_BYTES; i++) {
        stored value = {.four = 0};
        size_t written;
        TRY_LT(device, cuda_lt()->cublasLtMatmulAlgoConfigGetAttribute(
                           algorithm, settings[i].attribute, &value, settings[i].bytes, &written));
        length += snprintf(text + length, CUDA_CONFIGURATION_BYTES - (size_t)length, "%s%u",
                           i > 0 ? ":" : "", settings[i].bytes == 2 ? value.two : value.four);
    }
    if (length < CUDA_CONFIGURATION_BYTES) return YOKE_OK;
    return FAIL(YOKE_ERROR_INTERNAL, "%s: an algorithm of cuBLASLt has too large numbers: %s",
                device->base.name, text);
}

static bool parse(const char *text, uint32_t values[SETTINGS]) {
    char copy[CUDA_CONFIGURATION_BYTES], *rest = copy;
    if (strlen(text) >= sizeof copy) return false;
    memcpy(copy, text, strlen(text) + 1);
    for (int i = 0; i < SETTINGS; i++) {
        const char *field = strsep(&rest, ":");
        int64_t value, most = settings[i].bytes == 2 ? UINT16_MAX : INT32_MAX;
        if (field == NULL || !yoke_text_integer(field, 0, most, &value)) return false;
        values[i] = (uint32_t)value;
    }
    return rest == NULL;
}

bool cuda_is_configuration(const char *text) {
    uint32_t values[SETTINGS];
    return parse(text, values);
}

/* A setting that this version of the library does not take is one that another version wrote. */
static bool configure(cublasLtMatmulAlgo_t *algorithm, const uint32_t values[SETTINGS]) {
    for (int i = 1; i < SETTINGS; i++) {
        stored value = {.four = values[i]};
        if (settings[i].bytes == 2) value.two = (uint16_t)values[i];
        if (cuda_lt()->cublasLtMatmulAlgoConfigSetAttribute(algorithm, settings[i].attribute,
                                                            &value, settings[i].bytes) !=
            CUBLAS_STATUS_SUCCESS)
            return false;
    }
    return true;
}

/* The library's answers that mean "not this one". */
static bool is_refusal(cublasStatus_t status) {
    return status == CUBLAS_STATUS_NOT_SUPPORTED || status == CUBLAS_STATUS_INVALID_VALUE ||
           status == CUBLAS_STATUS_ARCH_MISMATCH;
}

yoke_status cuda_algorithm_make(const product_call *call, const char *text,
                                cublasLtMatmulAlgo_t *algorithm, bool *made) {
    uint32_t values[SETTINGS];
    cuda_device *device = call->device;
    *made = false;
    if (!parse(text, values) || (values[SCHEME] & ~cuda_reduction_schemes(call->atomics)) != 0)
        return YOKE_OK;
    cublasStatus_t status = cuda_lt()->cublasLtMatmulAlgoInit(
        device->lt, call->compute, CUDA_R_32F, call->operand_type, call->operand_type,
        call->output_type, call->output_type, (int)values[0], algorithm);
    if (is_refusal(status)) return YOKE_OK;
    if (status != CUBLAS_STATUS_SUCCESS)
        return cuda_lt_failed(device, status, "cublasLtMatmulAlgoInit");
    if (!configure(algorithm, values)) return YOKE_OK;
    cublasLtMatmulHeuristicResult_t result;
    status =
        cuda_lt()->cublasLtMatmulAlgoCheck(device->lt, call->description, call->first, call->second,
                                           call->output, call->output, algorithm, &result);
    if (is_refusal(status)) return YOKE_OK;
    if (status != CUBLAS_STATUS_SUCCESS)
        return cuda_lt_failed(device, status, "cublasLtMatmulAlgoCheck");
    *made = result.workspaceSize <= CUDA_WORKSPACE_BYTES;
    return YOKE_OK;
}
