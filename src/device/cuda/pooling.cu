/* SPDX-License-Identifier: Apache-2.0 */
/* Pooling, channels last. Forward, a block computes one row of output pixels. Backward, a block
 * computes one row of input pixels: each gathers from the windows that cover it, so no two threads
 * write to one place. */
#include "device/cuda/columns.h"
#include "device/cuda/kernels.h"

constexpr int WHOLE_LANES = 32; /* packs of channels that a block averages over a whole image */

struct span {
    int begin, end;
};

static __device__ int larger(int a, int b) {
    return a > b ? a : b;
}

static __device__ int smaller(int a, int b) {
    return a < b ? a : b;
}

/* Along one direction: the taps inside the image of the window at `place`. */
static __device__ span taps_of(int place, const yoke_taps &taps, int size) {
    int first = place * taps.stride - taps.padding;
    return {larger(0, -first), smaller(taps.kernel, size - first)};
}

/* Along one direction: the windows that cover `pixel`. */
static __device__ span windows_over(int pixel, const yoke_taps &taps, int windows) {
    int padded = pixel + taps.padding;
    int begin = padded < taps.kernel ? 0 : (padded - taps.kernel) / taps.stride + 1;
    return {begin, smaller(windows, padded / taps.stride + 1)};
}

/* Where a pack of channels lies in values of `width` pixels a line. */
static __device__ size_t offset(const cuda_pooling_job &job, size_t line, int width, int x,
                                int channel) {
    return (line * (size_t)width + (size_t)x) * (size_t)job.channels + (size_t)channel;
}

/* Calls use(pack, tap), in order, for every tap of the window at out_x that lies inside the
 * image. */
template <typename T, int N, typename Use>
static __device__ void scan(const cuda_pooling_job &job, int out_x, int channel, Use use) {
    size_t row = blockIdx.x / (unsigned)job.out_height;
    int out_y = (int)(blockIdx.x % (unsigned)job.out_height);
    span down = taps_of(out_y, job.down, job.height);
    span across = taps_of(out_x, job.across, job.width);
    int top = out_y * job.down.stride - job.down.padding;
    int left = out_x * job.across.stride - job.across.padding;
    for (int y = down.begin; y < down.end; y++) {
        size_t line = row * (size_t)job.height + (size_t)(top + y);
        for (int x = across.begin; x < across.end; x++) {
            size_t at = offset(job, line, job.width, left + x, channel);
            use(cuda_load<N>((const T *)job.input + at), y * job.across.kernel + x);
        }
    }
}

/* As in PyTorch the first of equal values is the maximum, and NaN is larger than all numbers. */
template <typename T, int N, typename Winner>
static __global__ void max_forward(cuda_pooling_job job) {
    unsigned packs = (unsigned)job.channels / N;
    for (unsigned i = threadIdx.x; i < (unsigned)job.out_width * packs; i += blockDim.x) {
        int out_x = (int)(i / packs), channel = (int)(i % packs) * N;
        float best[N] = {};
        cuda_pack<Winner, N> winner = {};
        bool first = true;
        scan<T, N>(job, out_x, channel, [&](const cuda_pack<T, N> &values, int tap) {
            for (int k = 0; k < N; k++) {
                float value = cuda_widen(values.at[k]);
                bool wins = first || value > best[k] || value != value;
                if (!wins) continue;
                best[k] = value;
                winner.at[k] = (Winner)tap;
            }
            first = false;
        });
        size_t at = offset(job, blockIdx.x, job.out_width, out_x, channel);
        cuda_store<T, N>((T *)job.output + at, best);
        if (job.winners != NULL)
            *reinterpret_cast<cuda_pack<Winner, N> *>((Winner *)job.winners + at) = winner;
    }
}

template <typename T, int N> static __global__ void average_forward(cuda_pooling_job job) {
    unsigned packs = (unsigned)job.channels / N;
    for (unsigned i = threadIdx.x; i < (unsigned)job.out_width * packs; i += blockDim.x) {
        int out_x = (int)(i / packs), channel = (int)(i % packs) * N;
        float sum[N] = {};
        scan<T, N>(job, out_x, channel, [&](const cuda_pack<T, N> &values, int) {
            for (int k = 0; k < N; k++)
                sum[k] += cuda_widen(values.at[k]);
        });
        for (int k = 0; k < N; k++)
            sum[k] /= (float)(job.down.kernel * job.across.kernel);
        size_t at = offset(job, blockIdx.x, job.out_width, out_x, channel);
        cuda_store<T, N>((T *)job.output + at, sum);
    }
}

/* The window is the whole image: all threads of a block share it. */
template <typename T, int N> static __global__ void average_whole(cuda_pooling_job job) {
    __shared__ float room[CUDA_COLUMN_ROOM(N, WHOLE_LANES)];
    int packs = job.channels / N, groups = (packs + WHOLE_LANES - 1) / WHOLE_LANES;
    size_t row = blockIdx.x / (unsigned)groups, pixels = (size_t)job.height * (size_t)job.width;
    int pack = (int)(blockIdx.x % (unsigned)groups) * WHOLE_LANES + (int)threadIdx.x % WHOLE_LANES;
    float sum[N] = {};
    if (pack < packs) {
        const T *values = (const T *)job.input + row * pixels * (size_t)job.channels + pack * N;
#pragma unroll 4
        for (size_t i = threadIdx.x / WHOLE_LANES; i < pixels; i += blockDim.x / WHOLE_LANES) {
            cuda_pack<T, N> next = cuda_load<N>(values + i * (size_t)job.channels);
            for (int k = 0; k < N; k++)
                sum[k] += cuda_widen(next.at[k]);
        }
    }
    cuda_sum_columns<N, WHOLE_LANES>(sum, room);
    if (threadIdx.x >= WHOLE_LANES || pack >= packs) return;
    for (int k = 0; k < N; k++)
        sum[k] /= (float)pixels;
    cuda_store<T, N>((T *)job.output + row * (size_t)job.channels + pack * N, sum);
}

/* Calls add(sum, at, tap) for every window over the pixel, with the window's offset and the tap
 * over the pixel. */
template <int N, typename Add>
static __device__ void gather(const cuda_pooling_job &job, int y, int x, int channel,
                              float (&sum)[N], Add add) {
    size_t row = blockIdx.x / (unsigned)job.height;
    span down = windows_over(y, job.down, job.out_height);
    span across = windows_over(x, job.across, job.out_width);
    int lower = y + job.down.padding;
    int right = x + job.across.padding - across.begin * job.across.stride;
    for (int out_y = down.begin; out_y < down.end; out_y++) {
        size_t line = row * (size_t)job.out_height + (size_t)out_y;
        size_t at = offset(job, line, job.out_width, across.begin, channel);
        int tap = (lower - out_y * job.down.stride) * job.across.kernel + right;
        for (int rest = across.end - across.begin; rest > 0; rest--) {
            add(sum, at, tap);
            tap -= job.across.stride;
            at += (size_t)job.channels;
        }
    }
}

template <typename T, int N, typename Winner>
static __global__ void max_backward(cuda_pooling_job job) {
    unsigned packs = (unsigned)job.channels / N;
    int y = (int)(blockIdx.x % (unsigned)job.height);
    for (unsigned i = threadIdx.x; i < (unsigned)job.width * packs; i += blockDim.x) {
        int x = (int)(i / packs), channel = (int)(i % packs) * N;
        float sum[N] = {};
        gather(job, y, x, channel, sum, [&](float(&to)[N], size_t at, int tap) {
            cuda_pack<T, N> gradient = cuda_load<N>((const T *)job.output_gradient + at);
            cuda_pack<Winner, N> winner = cuda_load<N>((const Winner *)job.winners + at);
            for (int k = 0; k < N; k++)
                if (winner.at[k] == (Winner)tap) to[k] += cuda_widen(gradient.at[k]);
        });
        cuda_store<T, N>((T *)job.input_gradient + offset(job, blockIdx.x, job.width, x, channel),
                         sum);
    }
}

template <typename T, int N> static __global__ void average_backward(cuda_pooling_job job) {
    unsigned packs = (unsigned)job.channels / N;
    int y = (int)(blockIdx.x % (unsigned)job.height);
    for (unsigned i = threadIdx.x; i < (unsigned)job.width * packs; i += blockDim.x) {
        int x = (int)(i / packs), channel = (int)(i % packs) * N;
        float sum[N] = {};
        gather(job, y, x, channel, sum, [&](float(&to)[N], size_t at, int) {
            cuda_pack<T, N> gradient = cuda_load<N>((const T *)job.output_gradient + at);
            for (int k = 0; k < N; k++)
                to[k] += cuda_widen(gradient.at[k]);
        });
        for (int k = 0; k < N; k++)
            sum[k] /= (float)(job.down.kernel * job.across.kernel);
        cuda_store<T, N>((T *)job.input_gradient + offset(job, blockIdx.x, job.width, x, channel),
                         sum);
    }
}

static unsigned threads_for(size_t packs) {
    unsigned threads = CUDA_WARP;
    while (threads < CUDA_THREADS && threads < packs)
        threads *= 2;
    return threads;
}

static bool is_whole(const cuda_pooling_job *job) {
    return job->out_height == 1 && job->out_width == 1 && job->down.padding == 0 &&
           job->across.padding == 0 && job->down.kernel == job->height &&
           job->across.kernel == job->width;
}

template <typename T, int N> static void forward(const cuda_pooling_job *job, cudaStream_t stream) {
    unsigned lines = (unsigned)(job->rows * job->out_height), packs = (unsigned)job->channels / N;
    unsigned threads = threads_for((size_t)job->out_width * packs);
    if (job->maximum && cuda_pooling_winner_bytes(job) == 1)
        LAUNCH((max_forward<T, N, uint8_t>), lines, threads, stream, *job);
    else if (job->maximum)
        LAUNCH((max_forward<T, N, int32_t>), lines, threads, stream, *job);
    else if (is_whole(job))
        LAUNCH_BLOCK((average_whole<T, N>),
                     (unsigned)job->rows * ((packs + WHOLE_LANES - 1) / WHOLE_LANES), CUDA_THREADS,
                     stream, *job);
    else
        LAUNCH((average_forward<T, N>), lines, threads, stream, *job);
}

template <typename T, int N>
static void backward(const cuda_pooling_job *job, cudaStream_t stream) {
    unsigned lines = (unsigned)(job->rows * job->height), packs = (unsigned)job->channels / N;
    unsigned threads = threads_for((size_t)job->width * packs);
    if (job->maximum && cuda_pooling_winner_bytes(job) == 1)
        LAUNCH((max_backward<T, N, uint8_t>), lines, threads, stream, *job);
    else if (job->maximum)
        LAUNCH((max_backward<T, N, int32_t>), lines, threads, stream, *job);
    else
        LAUNCH((average_backward<T, N>), lines, threads, stream, *job);
}

extern "C" size_t cuda_pooling_winner_bytes(const cuda_pooling_job *job) {
    return job->down.kernel * job->across.kernel <= 256 ? 1 : sizeof(int32_t);
}

extern "C" cudaError_t cuda_run_pooling(const cuda_pooling_job *job, cudaStream_t stream) {
    CUDA_BY_PACK(forward, job->type, job->channels, job, stream);
    return cudaGetLastError();
}

extern "C" cudaError_t cuda_run_pooling_backward(const cuda_pooling_job *job, cudaStream_t stream) {
    CUDA_BY_PACK(backward, job->type, job->channels, job, stream);
    return cudaGetLastError();
}
