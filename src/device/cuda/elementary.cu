/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels of elementary operations: one for expressions, whose functions a thread runs one after
 * the other on its element, one for reductions, one for moves. */
#include <math.h>

#include "device/cuda/elementary_kernels.h"
#include "device/cuda/kernel.h"

#define REAL float
#define FN(name) name##f
#define FIRST_TERM YOKE_EXPRESSION_INPUTS
#define SLOTS (FIRST_TERM + YOKE_TERMS_LIMIT)

/* Expressions. */

#define FORWARD(NAME, name, arguments, linear, value, da, db, dc)                                  \
    case YOKE_FN_##NAME:                                                                           \
        return (value);

static __device__ float value_of(const yoke_term *term, const float *slots) {
    float a = slots[term->arguments[0]], b = slots[term->arguments[1]];
    float c = slots[term->arguments[2]], p = term->p, q = term->q;
    switch (term->function) { YOKE_ELEMENTARY(FORWARD) }
    return 0;
}

#define BACKWARD(NAME, name, arity, linear, value, da, db, dc)                                     \
    case YOKE_FN_##NAME:                                                                           \
        gradients[term->arguments[0]] += (da);                                                     \
        if (arity > 1) gradients[term->arguments[1]] += (db);                                      \
        if (arity > 2) gradients[term->arguments[2]] += (dc);                                      \
        break;

static __device__ void add_slopes(const yoke_term *term, const float *slots, int slot,
                                  float *gradients) {
    float a = slots[term->arguments[0]], b = slots[term->arguments[1]];
    [[maybe_unused]] float c = slots[term->arguments[2]];
    float p = term->p, q = term->q, y = slots[slot], dy = gradients[slot];
    switch (term->function) { YOKE_ELEMENTARY(BACKWARD) }
}

/* Where element `index` of the view lies in operand k. */
static __device__ size_t place_of(const yoke_view *view, int k, size_t index) {
    size_t inner = index % view->lengths[2], outer = index / view->lengths[2];
    const size_t *steps = view->steps[k];
    return outer / view->lengths[1] * steps[0] + outer % view->lengths[1] * steps[1] +
           inner * steps[2];
}

/* The values of all terms for one element of a row. */
template <typename T>
static __device__ void run_terms(const cuda_expression_job &job, size_t row, size_t element,
                                 float *slots) {
    const yoke_expression *expression = &job.expression;
    for (int k = 0; k < expression->inputs; k++) {
        size_t at = row * job.elements[k] + place_of(&job.view, k, element);
        slots[k] = cuda_widen(((const T *)job.inputs[k])[at]);
    }
    for (int t = 0; t < expression->count; t++)
        slots[FIRST_TERM + t] = value_of(&expression->terms[t], slots);
}

template <typename T>
static __global__ void run_expression(const __grid_constant__ cuda_expression_job job) {
    GRID_STRIDE(i, job.rows * job.view.elements) {
        float slots[SLOTS];
        run_terms<T>(job, i / job.view.elements, i % job.view.elements, slots);
        cuda_narrow(slots[FIRST_TERM + job.expression.count - 1], (T *)job.output + i);
    }
}

/* A thread reads its element of the output's gradient before it writes: input 0's may overwrite
 * it. */
template <typename T>
static __global__ void run_slopes(const __grid_constant__ cuda_expression_job job) {
    const yoke_expression *expression = &job.expression;
    int last = FIRST_TERM + expression->count - 1;
    GRID_STRIDE(i, job.rows * job.view.elements) {
        float slots[SLOTS], gradients[SLOTS];
        run_terms<T>(job, i / job.view.elements, i % job.view.elements, slots);
        for (int slot = 0; slot < last; slot++)
            gradients[slot] = 0;
        gradients[last] = cuda_widen(((const T *)job.output_gradient)[i]);
        for (int t = expression->count - 1; t >= 0; t--)
            add_slopes(&expression->terms[t], slots, FIRST_TERM + t, gradients);
        for (int k = 0; k < expression->inputs; k++) {
            if (job.shares[k] != NULL)
                job.shares[k][i] = gradients[k];
            else if (job.input_gradients[k] != NULL)
                cuda_narrow(gradients[k], (T *)job.input_gradients[k] + i);
        }
    }
}

extern "C" cudaError_t cuda_run_expression(const cuda_expression_job *job, cudaStream_t stream) {
    unsigned blocks = cuda_blocks(job->rows * job->view.elements);
    LAUNCH_BY_TYPE(LAUNCH, run_expression, job->type, blocks, CUDA_THREADS, stream, *job);
    return cudaGetLastError();
}

extern "C" cudaError_t cuda_run_expression_backward(const cuda_expression_job *job,
                                                    cudaStream_t stream) {
    unsigned blocks = cuda_blocks(job->rows * job->view.elements);
    LAUNCH_BY_TYPE(LAUNCH, run_slopes, job->type, blocks, CUDA_THREADS, stream, *job);
    return cudaGetLastError();
}

/* Reductions: a block for each result. */

#define REDUCTION_THREADS 128

static __device__ float read_value(const void *values, size_t at, cuda_type type) {
    return type == CUDA_BFLOAT16  ? cuda_widen(((const __nv_bfloat16 *)values)[at])
           : type == CUDA_FLOAT16 ? cuda_widen(((const __half *)values)[at])
                                  : ((const float *)values)[at];
}

static __device__ void write_value(void *values, size_t at, cuda_type type, float value) {
    if (type == CUDA_BFLOAT16)
        cuda_narrow(value, (__nv_bfloat16 *)values + at);
    else if (type == CUDA_FLOAT16)
        cuda_narrow(value, (__half *)values + at);
    else
        ((float *)values)[at] = value;
}

/* A result's first element in a row of the input, and the axes that it combines. */
typedef struct combined {
    size_t first, lengths[YOKE_AXES], steps[YOKE_AXES], count;
} combined;

static __device__ combined combined_by(const yoke_view *view, size_t result) {
    combined own = {0, {1, 1, 1}, {0, 0, 0}, 1};
    for (int axis = YOKE_AXES - 1; axis >= 0; axis--) {
        size_t length = view->lengths[axis];
        if (view->steps[1][axis] != 0) {
            own.first += result % length * view->steps[0][axis];
            result /= length;
        } else {
            own.lengths[axis] = length;
            own.steps[axis] = view->steps[0][axis];
            own.count *= length;
        }
    }
    return own;
}

static __device__ size_t place_in(const combined &own, size_t index) {
    size_t inner = index % own.lengths[2], outer = index / own.lengths[2];
    return own.first + outer / own.lengths[1] * own.steps[0] +
           outer % own.lengths[1] * own.steps[1] + inner * own.steps[2];
}

/* The larger one; NaN is larger than every number. */
static __device__ float larger(float a, float b) {
    return a > b || a != a ? a : b;
}

/* As cuda_block_sum. */
static __device__ float block_max(float value, float *part) {
    for (int lane = CUDA_WARP / 2; lane > 0; lane /= 2)
        value = larger(value, __shfl_xor_sync(0xffffffffu, value, lane));
    __syncthreads();
    if (threadIdx.x % CUDA_WARP == 0) part[threadIdx.x / CUDA_WARP] = value;
    __syncthreads();
    float all = part[0];
    for (unsigned warp = 1; warp < blockDim.x / CUDA_WARP; warp++)
        all = larger(all, part[warp]);
    return all;
}

static __global__ void reduce(const __grid_constant__ cuda_reduction_job job) {
    __shared__ float part[CUDA_WARP];
    bool maximum = job.kind == YOKE_REDUCE_MAX;
    for (size_t unit = blockIdx.x; unit < job.rows * job.results; unit += gridDim.x) {
        combined own = combined_by(&job.view, unit % job.results);
        size_t row = unit / job.results * job.view.elements;
        float value = maximum ? -INFINITY : 0;
        for (size_t i = threadIdx.x; i < own.count; i += blockDim.x) {
            float other = read_value(job.from, row + place_in(own, i), job.from_type);
            value = maximum ? larger(other, value) : value + other;
        }
        value = maximum ? block_max(value, part) : cuda_block_sum(value, part);
        if (job.kind == YOKE_REDUCE_MEAN) value /= (float)own.count;
        if (threadIdx.x == 0) write_value(job.to, unit, job.to_type, value);
    }
}

static __global__ void reduce_backward(const __grid_constant__ cuda_reduction_job job) {
    __shared__ float part[CUDA_WARP];
    bool maximum = job.kind == YOKE_REDUCE_MAX;
    for (size_t unit = blockIdx.x; unit < job.rows * job.results; unit += gridDim.x) {
        combined own = combined_by(&job.view, unit % job.results);
        size_t row = unit / job.results * job.view.elements;
        float dy = read_value(job.gradient, unit, job.to_type), ties = 0;
        float largest = maximum ? read_value(job.to, unit, job.to_type) : 0;
        for (size_t i = threadIdx.x; maximum && i < own.count; i += blockDim.x)
            ties += read_value(job.from, row + place_in(own, i), job.from_type) == largest;
        if (maximum) dy /= cuda_block_sum(ties, part);
        if (job.kind == YOKE_REDUCE_MEAN) dy /= (float)own.count;
        for (size_t i = threadIdx.x; i < own.count; i += blockDim.x) {
            size_t at = row + place_in(own, i);
            bool takes = !maximum || read_value(job.from, at, job.from_type) == largest;
            write_value(job.from_gradient, at, job.from_type, takes ? dy : 0);
        }
    }
}

extern "C" cudaError_t cuda_run_reduction(const cuda_reduction_job *job, cudaStream_t stream) {
    unsigned blocks = cuda_position_blocks(job->rows * job->results);
    LAUNCH_BLOCK(reduce, blocks, REDUCTION_THREADS, stream, *job);
    return cudaGetLastError();
}

extern "C" cudaError_t cuda_run_reduction_backward(const cuda_reduction_job *job,
                                                   cudaStream_t stream) {
    unsigned blocks = cuda_position_blocks(job->rows * job->results);
    LAUNCH_BLOCK(reduce_backward, blocks, REDUCTION_THREADS, stream, *job);
    return cudaGetLastError();
}

/* Moves. */

static __device__ size_t box_place(const yoke_box *box, size_t first, const size_t *steps,
                                   size_t index) {
    size_t inner = index % box->lengths[2], outer = index / box->lengths[2];
    return first + outer / box->lengths[1] * steps[0] + outer % box->lengths[1] * steps[1] +
           inner * steps[2];
}

template <typename T>
static __global__ void move_box(const __grid_constant__ cuda_move_job job, size_t elements) {
    GRID_STRIDE(i, job.rows * elements) {
        size_t row = i / elements;
        size_t f = row * job.from_elements +
                   box_place(&job.box, job.box.from_first, job.box.from_steps, i % elements);
        size_t t = row * job.to_elements +
                   box_place(&job.box, job.box.to_first, job.box.to_steps, i % elements);
        if (job.backward)
            ((T *)job.to)[f] = ((const T *)job.from)[t];
        else
            ((T *)job.to)[t] = ((const T *)job.from)[f];
    }
}

template <typename T> static __global__ void fill_values(T *to, float value, size_t count) {
    GRID_STRIDE(i, count) cuda_narrow(value, to + i);
}

template <typename T> static void launch_move(const cuda_move_job *job, cudaStream_t stream) {
    const yoke_box *box = &job->box;
    size_t elements = box->lengths[0] * box->lengths[1] * box->lengths[2];
    size_t count = job->rows * (job->backward ? job->from_elements : job->to_elements);
    if (job->backward ? box->leaves : box->fills)
        LAUNCH(fill_values<T>, cuda_blocks(count), CUDA_THREADS, stream, (T *)job->to,
               job->backward ? 0 : job->fill, count);
    LAUNCH(move_box<T>, cuda_blocks(job->rows * elements), CUDA_THREADS, stream, *job, elements);
}

extern "C" cudaError_t cuda_run_move(const cuda_move_job *job, cudaStream_t stream) {
    cuda_by_type(job->type,
                 [&](auto of) { launch_move<typename decltype(of)::type>(job, stream); });
    return cudaGetLastError();
}

/* Matrices: a block for each tile of TILE x TILE results. */

#define TILE 16

template <typename T>
static __global__ void multiply_matrices(const __grid_constant__ cuda_matrices_job job, size_t down,
                                         size_t across) {
    __shared__ float left[TILE][TILE + 1], right[TILE][TILE + 1];
    size_t x = threadIdx.x % TILE, y = threadIdx.x / TILE;
    for (size_t unit = blockIdx.x; unit < job.count * down * across; unit += gridDim.x) {
        size_t matrix = unit / (down * across), tile = unit % (down * across);
        size_t row = tile / across * TILE + y, column = tile % across * TILE + x;
        const T *a = (const T *)job.a + matrix * job.rows * job.inner;
        const T *b = (const T *)job.b + matrix * job.inner * job.columns;
        float sum = 0;
        for (size_t k = 0; k < job.inner; k += TILE) {
            bool in_a = row < job.rows && k + x < job.inner;
            bool in_b = column < job.columns && k + y < job.inner;
            size_t at_a = job.transpose_a ? (k + x) * job.rows + row : row * job.inner + k + x;
            size_t at_b =
                job.transpose_b ? column * job.inner + k + y : (k + y) * job.columns + column;
            left[y][x] = in_a ? cuda_widen(a[at_a]) : 0;
            right[y][x] = in_b ? cuda_widen(b[at_b]) : 0;
            __syncthreads();
            for (int i = 0; i < TILE; i++)
                sum += left[y][i] * right[i][x];
            __syncthreads();
        }
        if (row < job.rows && column < job.columns)
            cuda_narrow(sum, (T *)job.to + (matrix * job.rows + row) * job.columns + column);
    }
}

extern "C" cudaError_t cuda_run_matrices(const cuda_matrices_job *job, cudaStream_t stream) {
    size_t down = (job->rows + TILE - 1) / TILE, across = (job->columns + TILE - 1) / TILE;
    unsigned blocks = cuda_position_blocks(job->count * down * across);
    LAUNCH_BY_TYPE(LAUNCH_BLOCK, multiply_matrices, job->type, blocks, TILE * TILE, stream, *job,
                   down, across);
    return cudaGetLastError();
}
