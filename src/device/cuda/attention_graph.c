/* SPDX-License-Identifier: Apache-2.0 */
/* The pattern is that of NVIDIA's cudnn-frontend for versions without descriptors of attention:
 * engines recognise it node by node. Its statistics are those of Yoke's own kernels, the logarithm
 * of each query's sum, so that a pass of one may follow a pass of the other. In backward the
 * gradient of the queries is written by its product alone, which asks for an engine that adds in
 * one order. */
#include "device/cuda/attention_graph.h"

#ifndef YOKE_HAS_CUDNN

bool cuda_attention_graph_serves(const cuda_device *device, const cuda_attention_job *job,
                                 bool backward) {
    (void)device, (void)job, (void)backward;
    return false;
}

#else

#include <float.h>
#include <math.h>

enum { HOPPER = 90, BLACKWELL = 100 };

/* What cudnn-frontend excludes: versions with known errors, sequences that older ones want padded,
 * and backward in one order on GPUs for which the library had none. */
bool cuda_attention_graph_serves(const cuda_device *device, const cuda_attention_job *job,
                                 bool backward) {
    if (device->cudnn == NULL || cuda_cudnn_graph() == NULL || device->capability < 80)
        return false;
    size_t version = cuda_cudnn()->cudnnGetVersion();
    int most = device->capability / 10 == HOPPER / 10 ? 256 : 128;
    if (job->type == CUDA_FLOAT32 || job->size % 8 != 0 || job->size > most) return false;
    if (version < 90000 || version == 91000 || version == 91001 || job->positions < 2) return false;
    if (!backward) return true;
    if (device->capability / 10 == BLACKWELL / 10 && version < 91800) return false;
    return version > 91500 || job->positions % 128 == 0;
}

/* Tensors. Those between two nodes are numbered from INNER on. */
enum { Q = 1, K, V, O, STATISTICS, DQ, DK, DV, DO, PRODUCT, SCALE, HIDDEN, ONE, INNER };

typedef struct description {
    cuda_graph *graph;
    const cuda_attention_job *job;
    int64_t next;
} description;

static cuda_graph_object add(description *to, int64_t uid, cudnnDataType_t type,
                             const int64_t dims[4], const int64_t strides[4]) {
    cuda_graph_values values = {.uid = uid, .type = type, .ndim = 4};
    for (int i = 0; i < 4; i++) {
        values.dims[i] = dims[i];
        values.strides[i] = strides[i];
    }
    values.is_virtual = uid >= INNER;
    values.by_value = uid >= SCALE && uid < INNER;
    return cuda_graph_tensor(to->graph, &values);
}

/* A head's values [rows, heads, positions, size], or turned: [.., size, positions]. */
static cuda_graph_object add_values(description *to, int64_t uid, int sequences, bool turned) {
    const cuda_attention_job *job = to->job;
    int64_t width = (int64_t)job->heads * job->size, stride = sequences * width;
    int64_t dims[] = {job->rows, job->heads, job->positions, job->size};
    int64_t strides[] = {job->positions * stride, job->size, stride, 1};
    const int64_t turned_dims[] = {dims[0], dims[1], dims[3], dims[2]};
    const int64_t turned_strides[] = {strides[0], strides[1], strides[3], strides[2]};
    return add(to, uid, cuda_cudnn_type(job->type), turned ? turned_dims : dims,
               turned ? turned_strides : strides);
}

/* Float32: [rows, heads, positions, columns]. */
static cuda_graph_object add_rows(description *to, int64_t uid, cudnnDataType_t type,
                                  int64_t columns) {
    const cuda_attention_job *job = to->job;
    int64_t positions = job->positions;
    const int64_t dims[] = {job->rows, job->heads, positions, columns};
    const int64_t strides[] = {job->heads * positions * columns, positions * columns, columns, 1};
    return add(to, uid, type, dims, strides);
}
static cuda_graph_object scores(description *to, cudnnDataType_t type) {
    return add_rows(to, to->next++, type, to->job->positions);
}
static cuda_graph_object column(description *to) {
    return add_rows(to, to->next++, CUDNN_DATA_FLOAT, 1);
}
static cuda_graph_object value(description *to, int64_t uid) {
    static const int64_t ones[] = {1, 1, 1, 1};
    return add(to, uid, CUDNN_DATA_FLOAT, ones, ones);
}

/* Nodes. */

#define COUNT(array) (sizeof(array) / sizeof(array)[0])
#define ONE_OF(name, type, value)                                                                  \
    { name, type, 1, value }

static cuda_graph_object multiply(description *to, cuda_graph_object a, cuda_graph_object b,
                                  cuda_graph_object c) {
    const cudnnDataType_t sums = CUDNN_DATA_FLOAT;
    const cuda_graph_attribute of[] = {
        ONE_OF(CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, &sums)};
    const cuda_graph_object product =
        cuda_graph_part(to->graph, CUDNN_BACKEND_MATMUL_DESCRIPTOR, of, COUNT(of));
    const cuda_graph_attribute attributes[] = {
        ONE_OF(CUDNN_ATTR_OPERATION_MATMUL_ADESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, &a),
        ONE_OF(CUDNN_ATTR_OPERATION_MATMUL_BDESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, &b),
        ONE_OF(CUDNN_ATTR_OPERATION_MATMUL_CDESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, &c),
        ONE_OF(CUDNN_ATTR_OPERATION_MATMUL_DESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, &product)};
    cuda_graph_node(to->graph, CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR, attributes,
                    COUNT(attributes));
    return c;
}

static cuda_graph_object apply(description *to, cudnnPointwiseMode_t mode, cuda_graph_operands from,
                               cuda_graph_object y) {
    return cuda_graph_pointwise(to->graph, mode, from, y);
}

static cuda_graph_object reduce(description *to, cudnnReduceTensorOp_t how, cuda_graph_object x,
                                cuda_graph_object y) {
    const cudnnDataType_t sums = CUDNN_DATA_FLOAT;
    const cuda_graph_attribute of[] = {
        ONE_OF(CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, &sums),
        ONE_OF(CUDNN_ATTR_REDUCTION_OPERATOR, CUDNN_TYPE_REDUCTION_OPERATOR_TYPE, &how)};
    const cuda_graph_object reduction =
        cuda_graph_part(to->graph, CUDNN_BACKEND_REDUCTION_DESCRIPTOR, of, COUNT(of));
    const cuda_graph_attribute attributes[] = {
        ONE_OF(CUDNN_ATTR_OPERATION_REDUCTION_DESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, &reduction),
        ONE_OF(CUDNN_ATTR_OPERATION_REDUCTION_XDESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, &x),
        ONE_OF(CUDNN_ATTR_OPERATION_REDUCTION_YDESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, &y)};
    cuda_graph_node(to->graph, CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR, attributes,
                    COUNT(attributes));
    return y;
}

/* The same memory in other dimensions. */
static cuda_graph_object reshape(description *to, cuda_graph_object x, cuda_graph_object y) {
    const cuda_graph_attribute attributes[] = {
        ONE_OF(CUDNN_ATTR_OPERATION_RESHAPE_XDESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, &x),
        ONE_OF(CUDNN_ATTR_OPERATION_RESHAPE_YDESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, &y)};
    cuda_graph_node(to->graph, CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR, attributes,
                    COUNT(attributes));
    return y;
}

/* Graphs. */

static cuda_graph_object mask(description *to, cuda_graph_object from) {
    const cuda_graph_object row =
        apply(to, CUDNN_POINTWISE_GEN_INDEX, (cuda_graph_operands){from, .axis = 2},
              scores(to, CUDNN_DATA_INT32));
    const cuda_graph_object key =
        apply(to, CUDNN_POINTWISE_GEN_INDEX, (cuda_graph_operands){from, .axis = 3},
              scores(to, CUDNN_DATA_INT32));
    const cuda_graph_object reads =
        apply(to, CUDNN_POINTWISE_CMP_GE, (cuda_graph_operands){row, key},
              scores(to, CUDNN_DATA_BOOLEAN));
    return apply(to, CUDNN_POINTWISE_BINARY_SELECT,
                 (cuda_graph_operands){from, value(to, HIDDEN), reads},
                 scores(to, CUDNN_DATA_FLOAT));
}

/* Scaled, and -infinity where a query does not read a key. */
static cuda_graph_object add_scores(description *to, cuda_graph_object q, cuda_graph_object k,
                                    cuda_graph_object scale) {
    cuda_graph_object of = multiply(to, q, k, scores(to, CUDNN_DATA_FLOAT));
    of = apply(to, CUDNN_POINTWISE_MUL, (cuda_graph_operands){of, scale},
               scores(to, CUDNN_DATA_FLOAT));
    return to->job->causal ? mask(to, of) : of;
}

static void describe_forward(description *to, bool statistics) {
    const cuda_graph_object q = add_values(to, Q, 3, false), k = add_values(to, K, 3, true);
    const cuda_graph_object of = add_scores(to, q, k, value(to, SCALE));
    const cuda_graph_object largest = reduce(to, CUDNN_REDUCE_TENSOR_MAX, of, column(to));
    cuda_graph_object weights = apply(to, CUDNN_POINTWISE_SUB, (cuda_graph_operands){of, largest},
                                      scores(to, CUDNN_DATA_FLOAT));
    weights = apply(to, CUDNN_POINTWISE_EXP, (cuda_graph_operands){weights},
                    scores(to, CUDNN_DATA_FLOAT));
    const cuda_graph_object sum = reduce(to, CUDNN_REDUCE_TENSOR_ADD, weights, column(to));
    if (statistics) {
        const cuda_graph_object log =
            apply(to, CUDNN_POINTWISE_LOG, (cuda_graph_operands){sum}, column(to));
        apply(to, CUDNN_POINTWISE_ADD, (cuda_graph_operands){largest, log},
              add_rows(to, STATISTICS, CUDNN_DATA_FLOAT, 1));
    }
    weights = apply(to, CUDNN_POINTWISE_DIV, (cuda_graph_operands){weights, sum},
                    scores(to, cuda_cudnn_type(to->job->type)));
    multiply(to, weights, add_values(to, V, 3, false), add_values(to, O, 1, false));
}

/* Transposed scores, as operand of a product. */
static cuda_graph_object turn(description *to, cuda_graph_object from) {
    const cuda_attention_job *job = to->job;
    int64_t n = job->positions;
    const int64_t dims[] = {job->rows, job->heads, n, n},
                  strides[] = {job->heads * n * n, n * n, 1, n};
    return reshape(to, from, add(to, to->next++, cuda_cudnn_type(job->type), dims, strides));
}

static void describe_backward(description *to) {
    const cuda_attention_job *job = to->job;
    const cuda_graph_object q = add_values(to, Q, 3, false), k = add_values(to, K, 3, true),
                            v = add_values(to, V, 3, true), o = add_values(to, O, 1, false),
                            gradient = add_values(to, DO, 1, false), scale = value(to, SCALE);
    cuda_graph_object product = add_rows(to, to->next++, CUDNN_DATA_FLOAT, job->size);
    apply(to, CUDNN_POINTWISE_MUL, (cuda_graph_operands){gradient, o}, product);
    product = reduce(to, CUDNN_REDUCE_TENSOR_ADD, product, column(to));
    product = apply(to, CUDNN_POINTWISE_MUL, (cuda_graph_operands){product, value(to, ONE)},
                    add_rows(to, PRODUCT, CUDNN_DATA_FLOAT, 1));
    cuda_graph_object weights = add_scores(to, q, k, scale);
    weights = apply(to, CUDNN_POINTWISE_SUB,
                    (cuda_graph_operands){weights, add_rows(to, STATISTICS, CUDNN_DATA_FLOAT, 1)},
                    scores(to, CUDNN_DATA_FLOAT));
    weights = apply(to, CUDNN_POINTWISE_EXP, (cuda_graph_operands){weights},
                    scores(to, CUDNN_DATA_FLOAT));
    multiply(to, turn(to, weights), gradient, add_values(to, DV, 3, false));
    cuda_graph_object change = multiply(to, gradient, v, scores(to, CUDNN_DATA_FLOAT));
    change = apply(to, CUDNN_POINTWISE_SUB, (cuda_graph_operands){change, product},
                   scores(to, CUDNN_DATA_FLOAT));
    change = apply(to, CUDNN_POINTWISE_MUL, (cuda_graph_operands){change, weights},
                   scores(to, CUDNN_DATA_FLOAT));
    change = apply(to, CUDNN_POINTWISE_MUL, (cuda_graph_operands){change, scale},
                   scores(to, CUDNN_DATA_FLOAT));
    multiply(to, turn(to, change), q, add_values(to, DK, 3, false));
    multiply(to, change, reshape(to, k, add_values(to, to->next++, 3, false)),
             add_values(to, DQ, 3, false));
}

yoke_status cuda_attention_graph_create(cuda_graph **graph, cuda_device *device,
                                        const cuda_attention_job *job, bool backward,
                                        bool statistics) {
    bool serves = false;
    TRY(cuda_graph_create(graph, device));
    if (*graph == NULL) return YOKE_OK;
    description to = {*graph, job, INNER};
    if (backward)
        describe_backward(&to);
    else
        describe_forward(&to, statistics);
    yoke_status status = cuda_graph_finish(*graph, &serves);
    if (status == YOKE_OK && serves) return YOKE_OK;
    cuda_graph_destroy(*graph);
    *graph = NULL;
    return status;
}

/* Versions before 9.10 want the lowest number for -infinity. */
static float hidden(void) {
    return cuda_cudnn()->cudnnGetVersion() < 91000 ? -FLT_MAX : -INFINITY;
}

typedef struct pack {
    int64_t uids[INNER];
    void *pointers[INNER];
    int count;
} pack;

static void put(pack *to, int64_t uid, const void *pointer) {
    to->uids[to->count] = uid;
    to->pointers[to->count++] = (void *)(uintptr_t)pointer;
}

/* q, k and v in the input, or their gradients. */
static void put_three(pack *to, int64_t first, const void *values, const cuda_attention_job *job) {
    size_t bytes = (size_t)job->heads * (size_t)job->size * cuda_type_bytes(job->type);
    for (int i = 0; i < 3; i++)
        put(to, first + i, (const char *)values + (size_t)i * bytes);
}

yoke_status cuda_attention_graph_run(const cuda_graph_plan *plan, const cuda_attention_job *job,
                                     bool backward, void *workspace) {
    const float scale = 1 / sqrtf((float)job->size), minus = hidden(), one = 1;
    pack to = {.count = 0};
    put_three(&to, Q, job->input, job);
    put(&to, O, job->output);
    put(&to, SCALE, &scale);
    if (job->causal) put(&to, HIDDEN, &minus);
    if (job->log_sum != NULL) put(&to, STATISTICS, job->log_sum);
    if (backward) {
        put_three(&to, DQ, job->input_gradient, job);
        put(&to, DO, job->output_gradient);
        put(&to, PRODUCT, job->product);
        put(&to, ONE, &one);
    }
    return cuda_graph_plan_run(plan, to.uids, to.pointers, to.count, workspace);
}

#endif
