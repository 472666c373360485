/* SPDX-License-Identifier: Apache-2.0 */
/* From stored images to the model's inputs: scale a crop of an image, or take a stored one; shift,
 * flip, normalise and cut out in one pass over the output. data/augment.c and data/image_view.c do
 * the same on the host. */
#include "device/cuda/kernel.h"
#include "device/cuda/kernels.h"
#include "device/device.h"

/* One line of the output, in all channels. Fields are unsigned, so that one comparison catches
 * values below 0 as well. */
struct output_line {
    unsigned source, height, width; /* the line of the image that it shows */
    unsigned right, cut_left, cut_width;
    bool flip, reflect;
};

static __device__ output_line line_of(const yoke_decode_request &job, size_t row, unsigned y) {
    yoke_placement placed = {};
    if (job.placements != NULL) placed = job.placements[row];
    bool cut = y - (unsigned)placed.cut_top < (unsigned)placed.cut_height;
    return {(unsigned)yoke_decode_source((int)(y + (unsigned)placed.down), job.image.height,
                                         placed.reflect),
            (unsigned)job.image.height,
            (unsigned)job.image.width,
            (unsigned)placed.right,
            (unsigned)placed.cut_left,
            cut ? (unsigned)placed.cut_width : 0,
            placed.flip,
            placed.reflect};
}

/* The column of the image that the output shows at x. */
static __device__ unsigned column_of(const output_line &line, unsigned x) {
    unsigned at = (line.flip ? line.width - 1 - x : x) + line.right;
    return (unsigned)yoke_decode_source((int)at, (int)line.width, line.reflect);
}

static __device__ bool is_inside(const output_line &line, unsigned x) {
    return line.source < line.height && column_of(line, x) < line.width;
}

static __device__ float value_of(const yoke_decode_request &job, const output_line &line,
                                 unsigned x, unsigned channel, uint8_t pixel) {
    const yoke_decoding &decoding = job.decoding;
    unsigned entry = channel < 4 ? channel : 3;
    if (x - line.cut_left < line.cut_width) return decoding.cut_value[entry];
    return yoke_decode_pixel(pixel, {decoding.mean[entry], decoding.std[entry]});
}

/* Outputs: where the values of one pixel go, which value(channel) computes. */

/* float32, in a plane for each channel. */
struct planes {
    template <typename Value>
    static __device__ void write(const yoke_decode_request &job, size_t row, size_t pixel,
                                 Value value) {
        unsigned channels = (unsigned)job.image.channels;
        size_t plane = (size_t)job.image.height * (size_t)job.image.width;
        float *to = (float *)job.inputs + row * channels * plane + pixel;
        for (unsigned channel = 0; channel < channels; channel++, to += plane)
            *to = value(channel);
    }
};

/* bfloat16, side by side: COUNT channels in one store, zero behind those of the image. 0: those
 * of the image. */
template <unsigned COUNT> struct pixels {
    template <typename Value>
    static __device__ void write(const yoke_decode_request &job, size_t row, size_t pixel,
                                 Value value) {
        size_t index = row * (size_t)job.image.height * (size_t)job.image.width + pixel;
        float values[COUNT];
#pragma unroll
        for (unsigned channel = 0; channel < COUNT; channel++)
            values[channel] = channel < (unsigned)job.image.channels ? value(channel) : 0;
        cuda_store((__nv_bfloat16 *)job.inputs + index * COUNT, values);
    }
};

template <> struct pixels<0> {
    template <typename Value>
    static __device__ void write(const yoke_decode_request &job, size_t row, size_t pixel,
                                 Value value) {
        size_t index = row * (size_t)job.image.height * (size_t)job.image.width + pixel;
        unsigned channels = (unsigned)job.image.channels;
        for (unsigned channel = 0; channel < channels; channel++)
            cuda_narrow(value(channel), (__nv_bfloat16 *)job.inputs + index * channels + channel);
    }
};

/* Stored images. A warp for each line: it computes the line's source once, and neighbouring threads
 * write neighbouring pixels. */
template <typename Output>
static __global__ void decode(const __grid_constant__ yoke_decode_request job, size_t lines) {
    unsigned width = (unsigned)job.image.width, height = (unsigned)job.image.height;
    size_t plane = (size_t)height * width;
    GRID_STRIDE(i, lines * CUDA_WARP) {
        size_t row = i / CUDA_WARP / height;
        unsigned y = (unsigned)(i / CUDA_WARP % height);
        output_line line = line_of(job, row, y);
        const uint8_t *image = job.pixels + row * (size_t)job.image.channels * plane;
        for (unsigned x = (unsigned)(i % CUDA_WARP); x < width; x += CUDA_WARP) {
            bool inside = is_inside(line, x);
            size_t from = (size_t)line.source * width + column_of(line, x);
            Output::write(job, row, (size_t)y * width + x, [&](unsigned channel) {
                return value_of(job, line, x, channel, inside ? image[channel * plane + from] : 0);
            });
        }
    }
}

/* Crops. */

/* The pixels of a crop that make one output of a span. */
struct crop_taps {
    int first, count;
    int32_t weights[YOKE_CROP_TAPS];
};

static __device__ void set_taps(crop_taps *taps, const yoke_resampling_span &span, unsigned i,
                                int held) {
    if (i >= (unsigned)span.outputs) return; /* black */
    taps->count = yoke_resampling_weights(&span, (int)i, &taps->first, taps->weights);
    taps->first -= held;
}

/* Each line is rounded to eight bits before the lines add up, as on the host. */
static __device__ uint8_t scaled_pixel(const uint8_t *plane, size_t width, const crop_taps &across,
                                       const crop_taps &down) {
    const uint8_t *line = plane + (size_t)down.first * width + (size_t)across.first;
    int32_t sum = YOKE_WEIGHT_HALF;
    for (int k = 0; k < down.count; k++, line += width) {
        int32_t part = YOKE_WEIGHT_HALF;
        for (int i = 0; i < across.count; i++)
            part += line[i] * across.weights[i];
        sum += yoke_resampling_pixel(part) * down.weights[k];
    }
    return yoke_resampling_pixel(sum);
}

constexpr unsigned TILE_WIDTH = 32, TILE_HEIGHT = CUDA_THREADS / TILE_WIDTH;

static __host__ __device__ unsigned tiles_of(int outputs, unsigned each) {
    return ((unsigned)outputs + each - 1) / each;
}

/* A block for each tile of the output, in all channels: a thread for each pixel, after some of them
 * have computed the weights of the tile's columns and lines. */
template <typename Output>
static __global__ void decode_crops(const __grid_constant__ yoke_decode_request job, size_t tiles) {
    __shared__ crop_taps across[TILE_WIDTH], down[TILE_HEIGHT];
    unsigned columns = tiles_of(job.image.width, TILE_WIDTH);
    unsigned rows = tiles_of(job.image.height, TILE_HEIGHT), thread = threadIdx.x;
    for (size_t tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
        size_t row = tile / columns / rows;
        const yoke_crop &crop = job.crops[row];
        unsigned left = (unsigned)(tile % columns) * TILE_WIDTH, x = left + thread % TILE_WIDTH;
        unsigned top = (unsigned)(tile / columns % rows) * TILE_HEIGHT;
        unsigned y = top + thread / TILE_WIDTH;
        output_line line = line_of(job, row, y);
        __syncthreads(); /* the last tile's weights have been read */
        if (y == top) set_taps(&across[thread], crop.across, column_of(line, x), crop.left);
        if (thread % TILE_WIDTH == 0)
            set_taps(&down[thread / TILE_WIDTH], crop.down, line.source, crop.top);
        __syncthreads();
        if (x >= line.width || y >= line.height) continue;
        const uint8_t *image = job.pixels + (crop.offset - job.crops[0].offset);
        size_t width = (size_t)crop.width, plane = width * (size_t)crop.height;
        bool inside = is_inside(line, x);
        Output::write(job, row, (size_t)y * line.width + x, [&](unsigned channel) {
            uint8_t pixel = 0;
            if (inside)
                pixel = scaled_pixel(image + channel * plane, width, across[thread % TILE_WIDTH],
                                     down[thread / TILE_WIDTH]);
            return value_of(job, line, x, channel, pixel);
        });
    }
}

template <typename Output>
static cudaError_t run(const yoke_decode_request *request, cudaStream_t stream) {
    size_t rows = (size_t)request->rows, lines = rows * (size_t)request->image.height;
    size_t tiles = rows * tiles_of(request->image.width, TILE_WIDTH) *
                   tiles_of(request->image.height, TILE_HEIGHT);
    if (request->crops != NULL)
        LAUNCH_BLOCK(decode_crops<Output>, cuda_blocks(tiles * CUDA_THREADS), CUDA_THREADS, stream,
                     *request, tiles);
    else
        LAUNCH(decode<Output>, cuda_blocks(lines * CUDA_WARP), CUDA_THREADS, stream, *request,
               lines);
    return cudaGetLastError();
}

extern "C" cudaError_t cuda_run_decode(const yoke_decode_request *request, int channels,
                                       cudaStream_t stream) {
    switch (channels) {
    case 0:
        return run<planes>(request, stream);
    case 4:
        return run<pixels<4>>(request, stream);
    case 8:
        return run<pixels<8>>(request, stream);
    default:
        return run<pixels<0>>(request, stream);
    }
}
