/* SPDX-License-Identifier: Apache-2.0 */
/* Images to columns and back, channels last. */
#include <cuda_runtime_api.h>
#include <vector_types.h>

#include "device/cuda/kernel.h"
#include "device/cuda/kernels.h"

/* The input coordinate of a tap of the window at `place`. */
static __device__ int place_of(int place, int tap, const yoke_taps &taps) {
    return place * taps.stride - taps.padding + tap * taps.dilation;
}

/* Columns are copies, so a thread moves words of as many channels as their number allows. The
 * window counts its channels in words. */
template <typename Word>
static __global__ void im2col(Word *columns, const Word *images, cuda_window window, size_t count) {
    GRID_STRIDE(i, count) {
        int channel = (int)(i % (size_t)window.channels);
        size_t rest = i / (size_t)window.channels;
        int tap = (int)(rest % (size_t)(window.down.kernel * window.across.kernel));
        rest /= (size_t)(window.down.kernel * window.across.kernel);
        int out_x = (int)(rest % (size_t)window.out_width);
        rest /= (size_t)window.out_width;
        int out_y = (int)(rest % (size_t)window.out_height);
        rest /= (size_t)window.out_height;
        size_t row = rest % (size_t)window.rows, group = rest / (size_t)window.rows;
        int y = place_of(out_y, tap / window.across.kernel, window.down);
        int x = place_of(out_x, tap % window.across.kernel, window.across);
        Word word = {};
        if (y >= 0 && y < window.height && x >= 0 && x < window.width) {
            size_t pixel =
                (row * (size_t)window.height + (size_t)y) * (size_t)window.width + (size_t)x;
            word = images[(pixel * (size_t)window.groups + group) * (size_t)window.channels +
                          (size_t)channel];
        }
        columns[i] = word;
    }
}

template <typename Word>
static void launch_im2col(void *columns, const void *images, cuda_window window, int per_word,
                          cudaStream_t stream) {
    window.channels /= per_word;
    size_t taps = (size_t)window.down.kernel * (size_t)window.across.kernel;
    size_t count = (size_t)window.groups * (size_t)window.rows * (size_t)window.out_height *
                   (size_t)window.out_width * taps * (size_t)window.channels;
    LAUNCH(im2col<Word>, cuda_blocks(count), CUDA_THREADS, stream, (Word *)columns,
           (const Word *)images, window, count);
}

extern "C" cudaError_t cuda_run_im2col(void *columns, const void *images, cuda_type type,
                                       const cuda_window *window, cudaStream_t stream) {
    int value_bytes = (int)cuda_type_bytes(type), bytes = window->channels * value_bytes;
    if (bytes % 16 == 0)
        launch_im2col<uint4>(columns, images, *window, 16 / value_bytes, stream);
    else if (bytes % 8 == 0)
        launch_im2col<uint2>(columns, images, *window, 8 / value_bytes, stream);
    else if (bytes % 4 == 0)
        launch_im2col<uint32_t>(columns, images, *window, 4 / value_bytes, stream);
    else
        launch_im2col<uint16_t>(columns, images, *window, 2 / value_bytes, stream);
    return cudaGetLastError();
}

/* The output coordinate, of `count`, whose `tap` reads input coordinate `at`, or -1. */
static __device__ int met_by(int at, int tap, const yoke_taps &taps, int count) {
    int from = at + taps.padding - tap * taps.dilation;
    bool met = from >= 0 && from % taps.stride == 0 && from / taps.stride < count;
    return met ? from / taps.stride : -1;
}

template <typename T>
static __global__ void col2im(T *images, bool add, const T *columns, cuda_window window,
                              size_t count) {
    GRID_STRIDE(i, count) {
        size_t channel = i % (size_t)window.channels, rest = i / (size_t)window.channels;
        size_t group = rest % (size_t)window.groups;
        rest /= (size_t)window.groups;
        int x = (int)(rest % (size_t)window.width);
        rest /= (size_t)window.width;
        int y = (int)(rest % (size_t)window.height);
        size_t row = group * (size_t)window.rows + rest / (size_t)window.height;
        float sum = 0;
        for (int tap = 0; tap < window.down.kernel * window.across.kernel; tap++) {
            int out_y = met_by(y, tap / window.across.kernel, window.down, window.out_height);
            int out_x = met_by(x, tap % window.across.kernel, window.across, window.out_width);
            if (out_y < 0 || out_x < 0) continue;
            size_t pixel =
                (row * (size_t)window.out_height + (size_t)out_y) * (size_t)window.out_width +
                (size_t)out_x;
            size_t column =
                pixel * (size_t)(window.down.kernel * window.across.kernel) + (size_t)tap;
            sum += cuda_widen(columns[column * (size_t)window.channels + channel]);
        }
        cuda_narrow(add ? cuda_widen(images[i]) + sum : sum, &images[i]);
    }
}

extern "C" cudaError_t cuda_run_col2im(const cuda_images *images, const void *columns,
                                       const cuda_window *window, cudaStream_t stream) {
    size_t count = (size_t)window->rows * (size_t)window->height * (size_t)window->width *
                   (size_t)window->groups * (size_t)window->channels;
    cuda_by_type(images->type, [&](auto of) {
        using T = typename decltype(of)::type;
        LAUNCH(col2im<T>, cuda_blocks(count), CUDA_THREADS, stream, (T *)images->at, images->add,
               (const T *)columns, *window, count);
    });
    return cudaGetLastError();
}
