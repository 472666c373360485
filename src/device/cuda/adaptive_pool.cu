/* SPDX-License-Identifier: Apache-2.0 */
/* Average pooling to a given size, channels last, with PyTorch's windows. A thread computes a pack
 * of channels of one pixel; backward gathers from the windows over an input pixel. */
#include "device/cuda/kernel.h"
#include "device/cuda/kernels.h"

struct window {
    int begin, end;
};

/* yoke_adaptive_window on the device. */
static __device__ window window_of(int place, int outputs, int inputs) {
    long long begin = (long long)place * inputs, end = begin + inputs;
    return {(int)(begin / outputs), (int)((end + outputs - 1) / outputs)};
}

static __device__ int length(window w) {
    return w.end - w.begin;
}

/* One pack of channels of one pixel of values [rows, height, width, channels]. */
struct place {
    size_t row;
    int y, x, channel;
};

static __device__ place place_of(size_t index, int height, int width, int channels, int pack) {
    size_t packs = (size_t)(channels / pack), pixel = index / packs;
    size_t line = pixel / (size_t)width;
    return {line / (size_t)height, (int)(line % (size_t)height), (int)(pixel % (size_t)width),
            (int)(index % packs) * pack};
}

static __device__ size_t offset(const place &p, int y, int x, int height, int width, int channels) {
    return ((p.row * (size_t)height + (size_t)y) * (size_t)width + (size_t)x) * (size_t)channels +
           (size_t)p.channel;
}

template <typename T, int N>
static __global__ void adaptive_forward(cuda_pooling_job job, size_t count) {
    GRID_STRIDE(i, count) {
        place p = place_of(i, job.out_height, job.out_width, job.channels, N);
        window down = window_of(p.y, job.out_height, job.height);
        window across = window_of(p.x, job.out_width, job.width);
        float sum[N] = {};
        for (int tap = 0; tap < length(down) * length(across); tap++) {
            int y = down.begin + tap / length(across), x = across.begin + tap % length(across);
            cuda_pack<T, N> values = cuda_load<N>(
                (const T *)job.input + offset(p, y, x, job.height, job.width, job.channels));
            for (int k = 0; k < N; k++)
                sum[k] += cuda_widen(values.at[k]);
        }
        for (int k = 0; k < N; k++)
            sum[k] /= (float)(length(down) * length(across));
        cuda_store<T, N>((T *)job.output + i * N, sum);
    }
}

/* Window i reads pixel y where pixel y, as a window over the outputs, reads output i. */
template <typename T, int N>
static __global__ void adaptive_backward(cuda_pooling_job job, size_t count) {
    GRID_STRIDE(i, count) {
        place p = place_of(i, job.height, job.width, job.channels, N);
        window rows = window_of(p.y, job.height, job.out_height);
        window columns = window_of(p.x, job.width, job.out_width);
        float sum[N] = {};
        for (int over = 0; over < length(rows) * length(columns); over++) {
            int y = rows.begin + over / length(columns), x = columns.begin + over % length(columns);
            int taps = length(window_of(y, job.out_height, job.height)) *
                       length(window_of(x, job.out_width, job.width));
            cuda_pack<T, N> gradient =
                cuda_load<N>((const T *)job.output_gradient +
                             offset(p, y, x, job.out_height, job.out_width, job.channels));
            for (int k = 0; k < N; k++)
                sum[k] += cuda_widen(gradient.at[k]) / (float)taps;
        }
        cuda_store<T, N>((T *)job.input_gradient + i * N, sum);
    }
}

template <typename T, int N> static void forward(const cuda_pooling_job *job, cudaStream_t stream) {
    size_t count = (size_t)job->rows * (size_t)job->out_height * (size_t)job->out_width *
                   (size_t)(job->channels / N);
    LAUNCH((adaptive_forward<T, N>), cuda_blocks(count), CUDA_THREADS, stream, *job, count);
}

template <typename T, int N>
static void backward(const cuda_pooling_job *job, cudaStream_t stream) {
    size_t count =
        (size_t)job->rows * (size_t)job->height * (size_t)job->width * (size_t)(job->channels / N);
    LAUNCH((adaptive_backward<T, N>), cuda_blocks(count), CUDA_THREADS, stream, *job, count);
}

extern "C" cudaError_t cuda_run_adaptive_pool(const cuda_pooling_job *job, cudaStream_t stream) {
    CUDA_BY_PACK(forward, job->type, job->channels, job, stream);
    return cudaGetLastError();
}

extern "C" cudaError_t cuda_run_adaptive_pool_backward(const cuda_pooling_job *job,
                                                       cudaStream_t stream) {
    CUDA_BY_PACK(backward, job->type, job->channels, job, stream);
    return cudaGetLastError();
}
