/* SPDX-License-Identifier: Apache-2.0 */
/* cuBLASLt's epilogues by type: which exist, whether they are right, and what they cost beside the
 * bare product. Column-major: D[m, n] = A[k, m] transposed times B[k, n]; m are the features. */
#include <math.h>
#include <stdlib.h>

#include "probe/probe.h"

#define SAMPLES 64

typedef struct kind_of_type {
    const char *name;
    cuda_type operands, output;
    bool tf32;
    double tolerance;
} kind_of_type;

static const kind_of_type types[] = {
    {"bfloat16", CUDA_BFLOAT16, CUDA_BFLOAT16, false, 2e-2},
    {"bfloat16 to float32", CUDA_BFLOAT16, CUDA_FLOAT32, false, 1e-3},
    {"tf32", CUDA_FLOAT32, CUDA_FLOAT32, true, 2e-3},
    {"float32", CUDA_FLOAT32, CUDA_FLOAT32, false, 1e-4}};

typedef struct lt_epilogue {
    const char *name;
    cublasLtEpilogue_t number;
    bool adds_bias, clips, masks;
    enum { NO_SUM, SUM_OF_A, SUM_OF_B, SUM_OF_D } sums; /* into the bias's memory */
    bool has_mask;                                      /* reads or writes one */
} lt_epilogue;

/* RELU_AUX writes the mask that the later ones read. */
static const lt_epilogue epilogues[] = {
    {"DEFAULT", CUBLASLT_EPILOGUE_DEFAULT, false, false, false, NO_SUM, false},
    {"BIAS", CUBLASLT_EPILOGUE_BIAS, true, false, false, NO_SUM, false},
    {"RELU", CUBLASLT_EPILOGUE_RELU, false, true, false, NO_SUM, false},
    {"RELU_BIAS", CUBLASLT_EPILOGUE_RELU_BIAS, true, true, false, NO_SUM, false},
    {"RELU_AUX_BIAS", CUBLASLT_EPILOGUE_RELU_AUX_BIAS, true, true, false, NO_SUM, true},
    {"RELU_AUX", CUBLASLT_EPILOGUE_RELU_AUX, false, true, false, NO_SUM, true},
    {"DRELU", CUBLASLT_EPILOGUE_DRELU, false, false, true, NO_SUM, true},
    {"DRELU_BGRAD", CUBLASLT_EPILOGUE_DRELU_BGRAD, false, false, true, SUM_OF_D, true},
    {"BGRADA", CUBLASLT_EPILOGUE_BGRADA, false, false, false, SUM_OF_A, false},
    {"BGRADB", CUBLASLT_EPILOGUE_BGRADB, false, false, false, SUM_OF_B, false}};

typedef struct lt_stage {
    gpu_probe *probe;
    cuda_device *device;
    const kind_of_type *type;
    const lt_epilogue *epilogue;
    cuda_type bias_type;
    int64_t m, n, k;
    void *a, *b, *d, *bias, *mask;
    float *host_a, *host_b, *host_d, *host_bias; /* widened */
    bool masked; /* RELU_AUX has written the mask of this type's products */
    cublasLtMatmulDesc_t description;
    cublasLtMatrixLayout_t layouts[3];
    cublasLtMatmulPreference_t preference;
    cublasLtMatmulAlgo_t algorithm;
} lt_stage;

/* Memory. */

static yoke_status allocate(lt_stage *stage, gpu_probe *probe) {
    int64_t shrink = probe->tiny ? 16 : 1;
    yoke_device *device = &probe->device->base;
    stage->probe = probe;
    stage->device = probe->device;
    stage->m = 1024 / shrink, stage->n = 4096 / shrink / shrink * (probe->tiny ? 2 : 1);
    stage->k = 1024 / shrink;
    size_t m = (size_t)stage->m, n = (size_t)stage->n, k = (size_t)stage->k, f = sizeof(float);
    size_t mask = (m + 127) / 128 * 16 * n;
    TRY(yoke_device_allocate(device, m * k * f, "the probe", &stage->a));
    TRY(yoke_device_allocate(device, n * k * f, "the probe", &stage->b));
    TRY(yoke_device_allocate(device, m * n * f, "the probe", &stage->d));
    TRY(yoke_device_allocate(device, (m + n) * f, "the probe", &stage->bias));
    TRY(yoke_device_allocate(device, mask, "the probe", &stage->mask));
    stage->host_a = malloc(m * k * f);
    stage->host_b = malloc(n * k * f);
    stage->host_d = malloc(m * n * f);
    stage->host_bias = malloc((m + n) * f);
    if (stage->host_a && stage->host_b && stage->host_d && stage->host_bias) return YOKE_OK;
    return FAIL_MEMORY((m * k + n * k + m * n) * f, "the probe");
}

static void release(lt_stage *stage) {
    void *const memory[] = {stage->mask, stage->bias, stage->d, stage->b, stage->a};
    free(stage->host_bias);
    free(stage->host_d);
    free(stage->host_b);
    free(stage->host_a);
    for (size_t i = 0; i < sizeof memory / sizeof memory[0]; i++)
        yoke_device_free(&stage->device->base, memory[i]);
}

static float widened(uint16_t half) {
    union {
        uint32_t bits;
        float value;
    } both = {.bits = (uint32_t)half << 16};
    return both.value;
}

/* Narrow values are read into the upper half, then widened from the front. */
static yoke_status download(const lt_stage *stage, float *to, const void *from, size_t count,
                            cuda_type type) {
    size_t bytes = count * cuda_type_bytes(type);
    uint16_t *narrow = (uint16_t *)(void *)to + (type == CUDA_BFLOAT16 ? count : 0);
    TRY_CUDA(stage->device, cudaStreamSynchronize(stage->device->streams[YOKE_STREAM_COMPUTE]));
    TRY_CUDA(stage->device, cudaMemcpy(narrow, from, bytes, cudaMemcpyDeviceToHost));
    for (size_t i = 0; type == CUDA_BFLOAT16 && i < count; i++)
        to[i] = widened(narrow[i]);
    return YOKE_OK;
}

static yoke_status fill(const lt_stage *stage, void *values, float *host, size_t count,
                        cuda_type type) {
    TRY_CUDA(stage->device, cuda_run_probe(values, type == CUDA_BFLOAT16, count,
                                           stage->device->streams[YOKE_STREAM_COMPUTE]));
    return download(stage, host, values, count, type);
}

/* Descriptions. */

static cudaDataType_t data_type(cuda_type type) {
    return type == CUDA_BFLOAT16 ? CUDA_R_16BF : CUDA_R_32F;
}

static cublasStatus_t set(const lt_stage *stage, cublasLtMatmulDescAttributes_t name,
                          const void *value, size_t bytes) {
    return cuda_lt()->cublasLtMatmulDescSetAttribute(stage->description, name, value, bytes);
}

static cublasStatus_t set_epilogue(const lt_stage *stage) {
    const lt_epilogue *epilogue = stage->epilogue;
    const uint32_t number = epilogue->number;
    const int32_t type = (int32_t)data_type(stage->bias_type);
    const int64_t mask_step = (stage->m + 127) / 128 * 128;
    cublasStatus_t status = set(stage, CUBLASLT_MATMUL_DESC_EPILOGUE, &number, sizeof number);
    if (status == CUBLAS_STATUS_SUCCESS && (epilogue->adds_bias || epilogue->sums != NO_SUM)) {
        status = set(stage, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, &type, sizeof type);
        if (status == CUBLAS_STATUS_SUCCESS)
            status =
                set(stage, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &stage->bias, sizeof stage->bias);
    }
    if (status != CUBLAS_STATUS_SUCCESS || !epilogue->has_mask) return status;
    status =
        set(stage, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, &stage->mask, sizeof stage->mask);
    return status != CUBLAS_STATUS_SUCCESS
               ? status
               : set(stage, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, &mask_step, sizeof mask_step);
}

static cublasStatus_t describe(lt_stage *stage) {
    const int32_t transposed = CUBLAS_OP_T;
    const uint64_t workspace = CUDA_WORKSPACE_BYTES;
    const cuda_lt_calls *lt = cuda_lt();
    cudaDataType_t in = data_type(stage->type->operands), out = data_type(stage->type->output);
    uint64_t m = (uint64_t)stage->m, n = (uint64_t)stage->n, k = (uint64_t)stage->k;
    cublasStatus_t status = lt->cublasLtMatmulDescCreate(
        &stage->description, stage->type->tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F,
        CUDA_R_32F);
    if (status == CUBLAS_STATUS_SUCCESS)
        status = set(stage, CUBLASLT_MATMUL_DESC_TRANSA, &transposed, sizeof transposed);
    if (status == CUBLAS_STATUS_SUCCESS) status = set_epilogue(stage);
    if (status == CUBLAS_STATUS_SUCCESS)
        status = lt->cublasLtMatrixLayoutCreate(&stage->layouts[0], in, k, m, stage->k);
    if (status == CUBLAS_STATUS_SUCCESS)
        status = lt->cublasLtMatrixLayoutCreate(&stage->layouts[1], in, k, n, stage->k);
    if (status == CUBLAS_STATUS_SUCCESS)
        status = lt->cublasLtMatrixLayoutCreate(&stage->layouts[2], out, m, n, stage->m);
    if (status == CUBLAS_STATUS_SUCCESS)
        status = lt->cublasLtMatmulPreferenceCreate(&stage->preference);
    if (status != CUBLAS_STATUS_SUCCESS) return status;
    return lt->cublasLtMatmulPreferenceSetAttribute(
        stage->preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace, sizeof workspace);
}

static void forget(lt_stage *stage) {
    const cuda_lt_calls *lt = cuda_lt();
    if (stage->preference != NULL) lt->cublasLtMatmulPreferenceDestroy(stage->preference);
    for (int i = 0; i < 3; i++)
        if (stage->layouts[i] != NULL) lt->cublasLtMatrixLayoutDestroy(stage->layouts[i]);
    if (stage->description != NULL) lt->cublasLtMatmulDescDestroy(stage->description);
    stage->preference = NULL;
    stage->layouts[0] = stage->layouts[1] = stage->layouts[2] = NULL;
    stage->description = NULL;
}

static cublasStatus_t find(lt_stage *stage) {
    cublasLtMatmulHeuristicResult_t found;
    int count = 0;
    cublasStatus_t status = cuda_lt()->cublasLtMatmulAlgoGetHeuristic(
        stage->device->lt, stage->description, stage->layouts[0], stage->layouts[1],
        stage->layouts[2], stage->layouts[2], stage->preference, 1, &found, &count);
    if (status == CUBLAS_STATUS_SUCCESS && count == 0) status = CUBLAS_STATUS_NOT_SUPPORTED;
    if (status == CUBLAS_STATUS_SUCCESS) stage->algorithm = found.algo;
    return status;
}

static yoke_status run(void *context) {
    const lt_stage *stage = context;
    const float one = 1, zero = 0;
    TRY_LT(stage->device,
           cuda_lt()->cublasLtMatmul(
               stage->device->lt, stage->description, &one, stage->a, stage->layouts[0], stage->b,
               stage->layouts[1], &zero, stage->d, stage->layouts[2], stage->d, stage->layouts[2],
               &stage->algorithm, stage->device->workspace, CUDA_WORKSPACE_BYTES,
               stage->device->streams[YOKE_STREAM_COMPUTE]));
    return YOKE_OK;
}

/* References on the host. */

static double product_at(const lt_stage *stage, int64_t i, int64_t j) {
    double sum = 0;
    for (int64_t p = 0; p < stage->k; p++)
        sum += (double)stage->host_a[i * stage->k + p] * (double)stage->host_b[j * stage->k + p];
    return sum;
}

/* The mask is that of RELU_AUX, which keeps what is above 0. */
static double element_at(const lt_stage *stage, int64_t i, int64_t j, double bias) {
    double value = product_at(stage, i, j) + (stage->epilogue->adds_bias ? bias : 0);
    bool positive = value > 0;
    return stage->epilogue->clips && !positive ? 0 : value;
}

typedef struct deviation {
    double errors, squares;
} deviation;

static void note(deviation *sum, double wanted, double got) {
    sum->errors += (got - wanted) * (got - wanted);
    sum->squares += wanted * wanted;
}

/* `sums`: what the run left in the bias's memory. */
static void compare_sums(const lt_stage *stage, const float *sums, deviation *sum) {
    const float *matrix = stage->epilogue->sums == SUM_OF_A   ? stage->host_a
                          : stage->epilogue->sums == SUM_OF_B ? stage->host_b
                                                              : stage->host_d;
    bool of_d = stage->epilogue->sums == SUM_OF_D;
    int64_t count = stage->epilogue->sums == SUM_OF_B ? stage->n : stage->m;
    int64_t terms = of_d ? stage->n : stage->k, step = of_d ? stage->m : 1;
    for (int64_t i = 0; i < count && i < SAMPLES; i++) {
        double wanted = 0;
        for (int64_t p = 0; p < terms; p++)
            wanted += (double)matrix[of_d ? p * step + i : i * terms + p];
        note(sum, wanted, (double)sums[i]);
    }
}

static yoke_status compare(const lt_stage *stage, double *error) {
    size_t count = (size_t)(stage->m * stage->n);
    deviation sum = {0, 0}, vector = {0, 0};
    float sums[SAMPLES];
    TRY(download(stage, stage->host_d, stage->d, count, stage->type->output));
    for (int64_t s = 0; s < SAMPLES; s++) {
        int64_t i = s * 7919 % stage->m, j = s * 104729 % stage->n;
        double wanted = element_at(stage, i, j, (double)stage->host_bias[i]);
        double got = (double)stage->host_d[j * stage->m + i];
        if (stage->epilogue->masks && wanted <= 0) wanted = 0;
        note(&sum, wanted, got);
    }
    if (stage->epilogue->sums != NO_SUM) {
        int64_t room = stage->epilogue->sums == SUM_OF_B ? stage->n : stage->m;
        size_t read = (size_t)(room < SAMPLES ? room : SAMPLES);
        TRY(download(stage, sums, stage->bias, read, stage->bias_type));
        compare_sums(stage, sums, &vector);
    }
    double of_vector = vector.squares > 0 ? sqrt(vector.errors / vector.squares) : 0;
    *error = fmax(sqrt(sum.errors / (sum.squares > 0 ? sum.squares : 1)), of_vector);
    return YOKE_OK;
}

/* Measuring. */

static void name_item(const lt_stage *stage, char *what, size_t bytes) {
    snprintf(what, bytes, "%s, bias %s, %lldx%lldx%lld", stage->type->name,
             stage->bias_type == CUDA_BFLOAT16 ? "bfloat16" : "float32", (long long)stage->m,
             (long long)stage->n, (long long)stage->k);
}

static void print(const lt_stage *stage, const char *detail, const char *verdict,
                  const double numbers[2]) {
    probe_row row = PROBE_ROW_INIT;
    char what[96];
    name_item(stage, what, sizeof what);
    row.section = "epilogue";
    row.what = what;
    row.variant = stage->epilogue->name;
    row.detail = detail;
    row.verdict = verdict;
    row.milliseconds = numbers[0], row.error = numbers[1];
    probe_print(stage->probe, &row);
}

static yoke_status run_and_time(lt_stage *stage) {
    double numbers[2] = {-1, -1};
    size_t biases = (size_t)(stage->m + stage->n);
    TRY(fill(stage, stage->bias, stage->host_bias, biases, stage->bias_type));
    TRY(run(stage));
    TRY(compare(stage, &numbers[1]));
    bool right = numbers[1] <= stage->type->tolerance;
    stage->probe->wrong += !right;
    if (right) TRY(probe_time(stage->probe, run, stage, false, &numbers[0]));
    if (right && stage->epilogue->number == CUBLASLT_EPILOGUE_RELU_AUX) stage->masked = true;
    print(stage, NULL, right ? NULL : PROBE_WRONG, numbers);
    return YOKE_OK;
}

static yoke_status probe_epilogue(lt_stage *stage) {
    const double none[2] = {-1, -1};
    if (stage->epilogue->masks && !stage->masked) {
        print(stage, "no mask, since RELU_AUX gave none", "not run", none);
        return YOKE_OK;
    }
    cublasStatus_t status = describe(stage);
    if (status == CUBLAS_STATUS_SUCCESS) status = find(stage);
    if (status != CUBLAS_STATUS_SUCCESS)
        print(stage, cuda_lt()->cublasLtGetStatusString(status), "not offered", none);
    yoke_status done = status == CUBLAS_STATUS_SUCCESS ? run_and_time(stage) : YOKE_OK;
    forget(stage);
    if (done != YOKE_ERROR_DEVICE || cuda_poisoned(stage->device)) return done;
    print(stage, yoke_last_error(), "does not serve", none);
    return YOKE_OK;
}

static yoke_status probe_type(lt_stage *stage) {
    static const cuda_type biases[] = {CUDA_FLOAT32, CUDA_BFLOAT16};
    size_t m = (size_t)stage->m, n = (size_t)stage->n, k = (size_t)stage->k;
    TRY(fill(stage, stage->a, stage->host_a, m * k, stage->type->operands));
    TRY(fill(stage, stage->b, stage->host_b, n * k, stage->type->operands));
    int kinds = stage->type->operands == CUDA_BFLOAT16 ? 2 : 1;
    for (int bias = 0; bias < kinds; bias++) {
        char what[96];
        stage->bias_type = biases[bias];
        stage->masked = false;
        name_item(stage, what, sizeof what);
        if (!probe_ask(stage->probe, "epilogue", what, NULL)) continue;
        for (size_t i = 0; i < sizeof epilogues / sizeof epilogues[0]; i++) {
            stage->epilogue = &epilogues[i];
            TRY(probe_epilogue(stage));
        }
        probe_answered(stage->probe, "epilogue", what, NULL);
    }
    return YOKE_OK;
}

yoke_status probe_epilogues(gpu_probe *probe) {
    lt_stage stage = {.device = probe->device};
    yoke_status status = allocate(&stage, probe);
    for (size_t i = 0; i < sizeof types / sizeof types[0] && status == YOKE_OK; i++) {
        stage.type = &types[i];
        status = probe_type(&stage);
    }
    release(&stage);
    return status;
}
