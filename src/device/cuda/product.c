/* SPDX-License-Identifier: Apache-2.0 */
/* Matrix products by cuBLASLt, which is column-major. A row-major matrix is the transpose of a
 * column-major one, so the call computes output^T = b^T * a^T, with b first. */
#include <assert.h>
#include <stdlib.h>

#include "device/cuda/product_algorithm.h"

#define ALIGNMENT_BYTES 16 /* of operands by default: that of the widest loads */

struct cuda_product {
    cuda_device *device;
    cuda_product_shape shape;
    cublasLtMatmulDesc_t description;
    cublasLtMatrixLayout_t a, b, output;
    cublasLtMatmulPreference_t preference; /* while planning */
    cublasLtMatmulAlgo_t algorithm;
    bool own_bias; /* Yoke's kernel adds the bias: cuBLASLt has no epilogue for these types */
};

void cuda_product_destroy(cuda_product *product) {
    if (product == NULL) return;
    const cuda_lt_calls *lt = cuda_lt();
    if (product->preference != NULL) lt->cublasLtMatmulPreferenceDestroy(product->preference);
    if (product->output != NULL) lt->cublasLtMatrixLayoutDestroy(product->output);
    if (product->b != NULL) lt->cublasLtMatrixLayoutDestroy(product->b);
    if (product->a != NULL) lt->cublasLtMatrixLayoutDestroy(product->a);
    if (product->description != NULL) lt->cublasLtMatmulDescDestroy(product->description);
    yoke_free(product);
}

/* Descriptions. */

static cudaDataType_t data_type(cuda_type type) {
    static const cudaDataType_t types[] = {
        [CUDA_FLOAT32] = CUDA_R_32F, [CUDA_BFLOAT16] = CUDA_R_16BF, [CUDA_FLOAT16] = CUDA_R_16F};
    return types[type];
}

typedef struct matrix_extent {
    int64_t rows, columns, step;
} matrix_extent;

static yoke_status describe_matrix(const cuda_product *product, cublasLtMatrixLayout_t *layout,
                                   const cuda_matrix *matrix, matrix_extent extent) {
    int64_t rows = matrix->transposed ? extent.columns : extent.rows;
    int64_t columns = matrix->transposed ? extent.rows : extent.columns;
    int64_t stride = matrix->stride > 0 ? matrix->stride : columns;
    TRY_LT(product->device,
           cuda_lt()->cublasLtMatrixLayoutCreate(layout, data_type(matrix->type), (uint64_t)columns,
                                                 (uint64_t)rows, stride));
    int32_t batch = product->shape.batch;
    if (batch <= 1) return YOKE_OK;
    TRY_LT(product->device, cuda_lt()->cublasLtMatrixLayoutSetAttribute(
                                *layout, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &batch, sizeof batch));
    TRY_LT(product->device, cuda_lt()->cublasLtMatrixLayoutSetAttribute(
                                *layout, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &extent.step,
                                sizeof extent.step));
    return YOKE_OK;
}

static yoke_status set_attribute(const cuda_product *product,
                                 cublasLtMatmulDescAttributes_t attribute, const void *value,
                                 size_t bytes) {
    TRY_LT(product->device, cuda_lt()->cublasLtMatmulDescSetAttribute(product->description,
                                                                      attribute, value, bytes));
    return YOKE_OK;
}

static yoke_status set_transpose(const cuda_product *product,
                                 cublasLtMatmulDescAttributes_t attribute,
                                 const cuda_matrix *matrix) {
    int32_t operation = matrix->transposed ? CUBLAS_OP_T : CUBLAS_OP_N;
    return set_attribute(product, attribute, &operation, sizeof operation);
}

static yoke_status set_epilogue(const cuda_product *product, cublasLtEpilogue_t epilogue) {
    uint32_t value = epilogue;
    return set_attribute(product, CUBLASLT_MATMUL_DESC_EPILOGUE, &value, sizeof value);
}

/* Bias and aux have no address yet while planning, but the library reads their alignment from it:
 * 64 bytes, or 32 of a bias of 2 bytes, which lies in the shadow. */
static const void *example_of(const cuda_product *product, size_t alignment) {
    return (const char *)product->device->workspace + alignment;
}

static cublasComputeType_t compute_type(const cuda_product_shape *shape) {
    return shape->tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
}

/* Algorithms. */

static yoke_status prefer(const cuda_product *product,
                          cublasLtMatmulPreferenceAttributes_t attribute, const void *value,
                          size_t bytes) {
    TRY_LT(product->device, cuda_lt()->cublasLtMatmulPreferenceSetAttribute(
                                product->preference, attribute, value, bytes));
    return YOKE_OK;
}

/* Sets *count to the number of the library's algorithms, and product->algorithm to number
 * shape.algorithm. */
static yoke_status query_heuristic(cuda_product *product, int *count) {
    cublasLtMatmulHeuristicResult_t results[CUDA_PRODUCT_ALGORITHMS];
    *count = 0;
    cublasStatus_t status = cuda_lt()->cublasLtMatmulAlgoGetHeuristic(
        product->device->lt, product->description, product->b, product->a, product->output,
        product->output, product->preference, CUDA_PRODUCT_ALGORITHMS, results, count);
    if (status == CUBLAS_STATUS_NOT_SUPPORTED || status == CUBLAS_STATUS_INVALID_VALUE)
        *count = 0; /* cuBLASLt returns either for types without an epilogue */
    else if (status != CUBLAS_STATUS_SUCCESS)
        return cuda_lt_failed(product->device, status, "cublasLtMatmulAlgoGetHeuristic");
    int known = 0;
    for (int i = 0; i < *count; i++) {
        if (results[i].state != CUBLAS_STATUS_SUCCESS) continue;
        if (known == product->shape.algorithm) product->algorithm = results[i].algo;
        known++;
    }
    *count = known;
    return YOKE_OK;
}

/* Sets *count to 1 where the library computes the shape by shape.configuration. */
static yoke_status query_configuration(cuda_product *product, int *count) {
    const cuda_product_shape *shape = &product->shape;
    const product_call call = {.device = product->device,
                               .description = product->description,
                               .first = product->b,
                               .second = product->a,
                               .output = product->output,
                               .compute = compute_type(shape),
                               .operand_type = data_type(shape->b.type),
                               .output_type = data_type(shape->output.type),
                               .atomics = shape->atomics};
    bool made;
    TRY(cuda_algorithm_make(&call, shape->configuration, &product->algorithm, &made));
    *count = made;
    return YOKE_OK;
}

static yoke_status query_algorithms(cuda_product *product, int *count) {
    return product->shape.configuration != NULL ? query_configuration(product, count)
                                                : query_heuristic(product, count);
}

static yoke_status find_algorithm(cuda_product *product, bool *found) {
    int count = 0;
    static const cublasLtMatmulPreferenceAttributes_t alignments[] = {
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES};
    TRY_LT(product->device, cuda_lt()->cublasLtMatmulPreferenceCreate(&product->preference));
    uint64_t workspace = product->shape.beside ? 0 : CUDA_WORKSPACE_BYTES;
    uint32_t schemes = cuda_reduction_schemes(product->shape.atomics);
    TRY(prefer(product, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace, sizeof workspace));
    TRY(prefer(product, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &schemes, sizeof schemes));
    int wanted = product->shape.alignment;
    uint32_t alignment = wanted > 0 ? (uint32_t)wanted : ALIGNMENT_BYTES;
    for (size_t i = 0; i < sizeof alignments / sizeof alignments[0]; i++)
        TRY(prefer(product, alignments[i], &alignment, sizeof alignment));
    TRY(query_algorithms(product, &count));
    bool bare = product->shape.epilogue == CUDA_NO_EPILOGUE;
    if (count == 0 && product->shape.bias && bare) {
        product->own_bias = true;
        TRY(set_epilogue(product, CUBLASLT_EPILOGUE_DEFAULT));
        TRY(query_algorithms(product, &count));
    }
    cuda_lt()->cublasLtMatmulPreferenceDestroy(product->preference);
    product->preference = NULL;
    *found = product->shape.algorithm < count;
    bool optional = product->shape.algorithm > 0 || product->shape.configuration != NULL || !bare;
    product->shape.configuration = NULL; /* borrowed */
    if (*found || optional) return YOKE_OK;
    const cuda_product_shape *shape = &product->shape;
    return FAIL(YOKE_ERROR_DEVICE,
                "%s: cuBLASLt has no algorithm for a product [%lld, %lld] x [%lld, %lld]",
                product->device->base.name, (long long)shape->m, (long long)shape->k,
                (long long)shape->k, (long long)shape->n);
}

static yoke_status product_build(cuda_product *product, bool *found) {
    const cuda_product_shape *shape = &product->shape;
    TRY_LT(product->device, cuda_lt()->cublasLtMatmulDescCreate(&product->description,
                                                                compute_type(shape), CUDA_R_32F));
    TRY(set_transpose(product, CUBLASLT_MATMUL_DESC_TRANSA, &shape->b));
    TRY(set_transpose(product, CUBLASLT_MATMUL_DESC_TRANSB, &shape->a));
    const cuda_epilogue_traits *epilogue = &cuda_epilogues[shape->epilogue];
    TRY(set_epilogue(product, epilogue->number[shape->bias]));
    if (shape->bias || epilogue->sums) {
        cudaDataType_t type =
            shape->epilogue == CUDA_NO_EPILOGUE ? CUDA_R_32F : data_type(shape->output.type);
        const void *example = example_of(product, type == CUDA_R_32F ? 64 : 32);
        TRY(set_attribute(product, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, &type, sizeof type));
        TRY(set_attribute(product, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &example, sizeof example));
    }
    if (epilogue->aux != CUDA_NO_AUX) {
        int64_t stride = cuda_aux_stride(epilogue->aux, (size_t)shape->n);
        const void *example = example_of(product, 64);
        TRY(set_attribute(product, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, &stride, sizeof stride));
        TRY(set_attribute(product, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, &example,
                          sizeof example));
    }
    assert(!shape->output.transposed);
    TRY(describe_matrix(product, &product->a, &shape->a,
                        (matrix_extent){shape->m, shape->k, shape->a_step}));
    TRY(describe_matrix(product, &product->b, &shape->b,
                        (matrix_extent){shape->k, shape->n, shape->b_step}));
    TRY(describe_matrix(product, &product->output, &shape->output,
                        (matrix_extent){shape->m, shape->n, shape->output_step}));
    return find_algorithm(product, found);
}

yoke_status cuda_product_create(cuda_product **product, cuda_device *device,
                                const cuda_product_shape *shape) {
    *product = NULL;
    cuda_product *made = yoke_calloc(1, sizeof *made);
    if (made == NULL) return FAIL_MEMORY(sizeof *made, "a matrix product");
    made->device = device;
    made->shape = *shape;
    bool found = false;
    yoke_status status = product_build(made, &found);
    if (status == YOKE_OK && found)
        *product = made;
    else
        cuda_product_destroy(made);
    return status;
}

yoke_status cuda_product_configuration(const cuda_product *product,
                                       char text[CUDA_CONFIGURATION_BYTES]) {
    return cuda_algorithm_write(product->device, &product->algorithm, text);
}

/* Running. */

static yoke_status add_bias(const cuda_product *product, const float *bias, void *output) {
    const cuda_product_shape *shape = &product->shape;
    int64_t stride = shape->output.stride > 0 ? shape->output.stride : shape->n;
    cuda_columns columns = {(size_t)shape->m, (size_t)shape->n, (size_t)stride};
    size_t step_bytes = (size_t)shape->output_step * cuda_type_bytes(shape->output.type);
    for (int i = 0; i < (shape->batch > 1 ? shape->batch : 1); i++) {
        void *to = (char *)output + (size_t)i * step_bytes;
        TRY_CUDA(product->device, cuda_run_add_bias(to, shape->output.type, bias, columns,
                                                    product->device->streams[YOKE_STREAM_COMPUTE]));
    }
    return YOKE_OK;
}

static yoke_status multiply(const cuda_product *product, const void *a, const void *b, float beta,
                            void *output) {
    cuda_device *device = product->device;
    const float alpha = 1;
    TRY_LT(device,
           cuda_lt()->cublasLtMatmul(device->lt, product->description, &alpha, b, product->b, a,
                                     product->a, &beta, output, product->output, output,
                                     product->output, &product->algorithm, device->workspace,
                                     CUDA_WORKSPACE_BYTES, device->streams[YOKE_STREAM_COMPUTE]));
    return YOKE_OK;
}

yoke_status cuda_product_combine(const cuda_product *product, yoke_stream stream,
                                 const cuda_combination *of, void *output) {
    cuda_device *device = product->device;
    assert(product->shape.beside && !product->shape.bias);
    TRY_LT(device, cuda_lt()->cublasLtMatmul(
                       device->lt, product->description, &of->alpha, of->b, product->b, of->a,
                       product->a, &of->beta, of->c, product->output, output, product->output,
                       &product->algorithm, NULL, 0, device->streams[stream]));
    return YOKE_OK;
}

yoke_status cuda_product_run(const cuda_product *product, const void *a, const void *b,
                             const void *bias, void *output) {
    if (product->shape.bias && !product->own_bias)
        TRY(set_attribute(product, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias, sizeof bias));
    TRY(multiply(product, a, b, product->shape.add ? 1 : 0, output));
    return product->own_bias ? add_bias(product, bias, output) : YOKE_OK;
}

yoke_status cuda_product_run_beside(const cuda_product *product, const void *a, const void *b,
                                    const cuda_beside *beside, void *output) {
    const cuda_epilogue_traits *epilogue = &cuda_epilogues[product->shape.epilogue];
    const void *vector = epilogue->sums ? beside->sums : beside->bias;
    assert(product->shape.epilogue != CUDA_NO_EPILOGUE && !product->shape.add);
    if (vector != NULL)
        TRY(set_attribute(product, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &vector, sizeof vector));
    if (epilogue->aux != CUDA_NO_AUX)
        TRY(set_attribute(product, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, &beside->aux,
                          sizeof beside->aux));
    return multiply(product, a, b, 0, output);
}

yoke_status cuda_product_add(const cuda_product *product, const void *a, const void *b,
                             void *output) {
    assert(!product->shape.bias);
    return multiply(product, a, b, 1, output);
}
