/* SPDX-License-Identifier: Apache-2.0 */
/* What convolution and linear need besides their products: biases, their gradients, type
 * conversion. */
#include "device/cuda/kernel.h"
#include "device/cuda/kernels.h"

/* Bias. */

template <typename T>
static __global__ void add_bias(T *values, const float *bias, cuda_columns shape) {
    GRID_STRIDE(i, shape.rows * shape.columns) {
        size_t column = i % shape.columns;
        T *value = values + i / shape.columns * shape.stride + column;
        cuda_narrow(cuda_widen(*value) + bias[column], value);
    }
}

extern "C" cudaError_t cuda_run_add_bias(void *values, cuda_type type, const float *bias,
                                         cuda_columns shape, cudaStream_t stream) {
    unsigned blocks = cuda_blocks(shape.rows * shape.columns);
    cuda_by_type(type, [&](auto of) {
        using T = typename decltype(of)::type;
        LAUNCH(add_bias<T>, blocks, CUDA_THREADS, stream, (T *)values, bias, shape);
    });
    return cudaGetLastError();
}

/* Sums of columns. A block sums CUDA_WARP columns over one part of the rows: a warp reads
 * neighbouring columns of a row, and each warp of the block reads every eighth row. */

#define WARPS (CUDA_THREADS / CUDA_WARP)
#define LEAST_ROWS 128 /* of a part */

typedef struct column_parts {
    size_t tiles, parts, rows; /* tiles of columns; parts of `rows` rows each */
} column_parts;

static column_parts divide(const cuda_columns *shape) {
    size_t rows = (shape->rows + CUDA_COLUMN_PARTS - 1) / CUDA_COLUMN_PARTS;
    if (rows < LEAST_ROWS) rows = LEAST_ROWS;
    column_parts parts;
    parts.tiles = (shape->columns + CUDA_WARP - 1) / CUDA_WARP;
    parts.parts = (shape->rows + rows - 1) / rows;
    parts.rows = rows;
    return parts;
}

template <typename T>
static __global__ void sum_columns(float *sums, const T *values, cuda_columns shape,
                                   column_parts parts) {
    __shared__ float warp_sums[CUDA_THREADS];
    size_t part = blockIdx.x / parts.tiles;
    size_t column = blockIdx.x % parts.tiles * CUDA_WARP + threadIdx.x % CUDA_WARP;
    size_t first = part * parts.rows, end = first + parts.rows;
    if (end > shape.rows) end = shape.rows;
    float sum = 0;
    if (column < shape.columns)
        for (size_t row = first + threadIdx.x / CUDA_WARP; row < end; row += WARPS)
            sum += cuda_widen(values[row * shape.stride + column]);
    warp_sums[threadIdx.x] = sum;
    __syncthreads();
    if (threadIdx.x >= CUDA_WARP || column >= shape.columns) return;
    for (unsigned warp = 1; warp < WARPS; warp++)
        sum += warp_sums[warp * CUDA_WARP + threadIdx.x];
    sums[part * shape.columns + column] = sum;
}

template <typename T>
static void launch_sums(float *sums, const T *values, cuda_columns shape, cudaStream_t stream) {
    column_parts parts = divide(&shape);
    LAUNCH_BLOCK(sum_columns<T>, (unsigned)(parts.tiles * parts.parts), CUDA_THREADS, stream, sums,
                 values, shape, parts);
}

extern "C" cudaError_t cuda_run_column_sums(const cuda_column_sums *job, cudaStream_t stream) {
    column_parts parts = divide(&job->shape);
    float *sums = parts.parts > 1 ? job->partial : job->sums;
    cuda_by_type(job->type, [&](auto of) {
        launch_sums(sums, (const typename decltype(of)::type *)job->values, job->shape, stream);
    });
    cudaError_t error = cudaGetLastError();
    if (error != cudaSuccess || parts.parts == 1) return error;
    cuda_columns partial = {parts.parts, job->shape.columns, job->shape.columns};
    launch_sums(job->sums, (const float *)job->partial, partial, stream);
    return cudaGetLastError();
}

/* Types and values. */

template <typename T> static __global__ void widen(float *to, const T *from, size_t count) {
    GRID_STRIDE(i, count) to[i] = cuda_widen(from[i]);
}

extern "C" cudaError_t cuda_run_widen(float *to, const void *from, cuda_type type, size_t count,
                                      cudaStream_t stream) {
    cuda_by_type(type, [&](auto of) {
        using T = typename decltype(of)::type;
        LAUNCH(widen<T>, cuda_blocks(count), CUDA_THREADS, stream, to, (const T *)from, count);
    });
    return cudaGetLastError();
}

template <typename T> static __global__ void probe(T *values, size_t count) {
    GRID_STRIDE(i, count) {
        uint32_t bits = (uint32_t)i * 2654435761u;
        bits = (bits ^ bits >> 15) * 2246822519u;
        cuda_narrow((float)(bits >> 8) / 16777216.0f - 0.5f, &values[i]);
    }
}

extern "C" cudaError_t cuda_run_probe(void *values, cuda_type type, size_t count,
                                      cudaStream_t stream) {
    cuda_by_type(type, [&](auto of) {
        using T = typename decltype(of)::type;
        LAUNCH(probe<T>, cuda_blocks(count), CUDA_THREADS, stream, (T *)values, count);
    });
    return cudaGetLastError();
}
