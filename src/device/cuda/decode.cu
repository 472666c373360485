/* From stored images to the model's inputs: scale a crop of an image, or take a stored one; shift,
 * flip, normalise and cut out in one pass over the output. data/augment.c and data/image_view.c do
 * the same on the host. */
#include "device/cuda/kernel.h"
#include "device/cuda/kernels.h"
#include "device/device.h"

/* One line of the output. Fields are unsigned, so that one comparison catches values below 0 as
 * well. */
struct output_line {
    unsigned source, height, width; /* the line of the image that it shows */
    unsigned right, cut_left, cut_width;
    bool flip;
    float cut_value;
    yoke_scaling scale;
};

static __device__ output_line line_of(const yoke_decode_request &job, size_t row, unsigned channel,
                                      unsigned y) {
    yoke_placement placed = {};
    if (job.placements != NULL) placed = job.placements[row];
    unsigned entry = channel < 4 ? channel : 3;
    bool cut = y - (unsigned)placed.cut_top < (unsigned)placed.cut_height;
    return {y + (unsigned)placed.down,
            (unsigned)job.image.height,
            (unsigned)job.image.width,
            (unsigned)placed.right,
            (unsigned)placed.cut_left,
            cut ? (unsigned)placed.cut_width : 0,
            placed.flip,
            job.decoding.cut_value[entry],
            {job.decoding.mean[entry], job.decoding.deviation[entry]}};
}

/* The column of the image that the output shows at x. */
static __device__ unsigned column_of(const output_line &line, unsigned x) {
    return (line.flip ? line.width - 1 - x : x) + line.right;
}

static __device__ bool is_inside(const output_line &line, unsigned x) {
    return line.source < line.height && column_of(line, x) < line.width;
}

static __device__ float value_of(const output_line &line, unsigned x, uint8_t pixel) {
    if (x - line.cut_left < line.cut_width) return line.cut_value;
    return yoke_decode_pixel(pixel, line.scale);
}

/* Stored images. A warp for each line: it computes the line's source once, and neighbouring threads
 * write neighbouring values. */
static __global__ void decode(const __grid_constant__ yoke_decode_request job, size_t lines) {
    unsigned width = (unsigned)job.image.width, height = (unsigned)job.image.height;
    GRID_STRIDE(i, lines * CUDA_WARP) {
        size_t index = i / CUDA_WARP, plane = index / height;
        output_line line =
            line_of(job, plane / (unsigned)job.image.channels,
                    (unsigned)(plane % (unsigned)job.image.channels), (unsigned)(index % height));
        size_t first = (plane * height + line.source) * width;
        for (unsigned x = (unsigned)(i % CUDA_WARP); x < width; x += CUDA_WARP)
            job.inputs[index * width + x] =
                value_of(line, x, is_inside(line, x) ? job.pixels[first + column_of(line, x)] : 0);
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
static __global__ void decode_crops(const __grid_constant__ yoke_decode_request job, size_t tiles) {
    __shared__ crop_taps across[TILE_WIDTH], down[TILE_HEIGHT];
    unsigned columns = tiles_of(job.image.width, TILE_WIDTH);
    unsigned rows = tiles_of(job.image.height, TILE_HEIGHT), thread = threadIdx.x;
    unsigned channels = (unsigned)job.image.channels;
    for (size_t tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
        size_t row = tile / columns / rows;
        const yoke_crop &crop = job.crops[row];
        unsigned left = (unsigned)(tile % columns) * TILE_WIDTH, x = left + thread % TILE_WIDTH;
        unsigned top = (unsigned)(tile / columns % rows) * TILE_HEIGHT;
        unsigned y = top + thread / TILE_WIDTH;
        output_line line = line_of(job, row, 0, y);
        __syncthreads(); /* the last tile's weights have been read */
        if (y == top) set_taps(&across[thread], crop.across, column_of(line, x), crop.left);
        if (thread % TILE_WIDTH == 0)
            set_taps(&down[thread / TILE_WIDTH], crop.down, line.source, crop.top);
        __syncthreads();
        if (x >= line.width || y >= line.height) continue;
        const uint8_t *plane = job.pixels + (crop.offset - job.crops[0].offset);
        for (unsigned channel = 0; channel < channels; channel++) {
            line = line_of(job, row, channel, y);
            uint8_t pixel = 0;
            if (is_inside(line, x))
                pixel = scaled_pixel(plane, (size_t)crop.width, across[thread % TILE_WIDTH],
                                     down[thread / TILE_WIDTH]);
            job.inputs[((row * channels + channel) * line.height + y) * line.width + x] =
                value_of(line, x, pixel);
            plane += (size_t)crop.width * (size_t)crop.height;
        }
    }
}

static cudaError_t run_crops(const yoke_decode_request *request, cudaStream_t stream) {
    size_t tiles = (size_t)request->rows * tiles_of(request->image.width, TILE_WIDTH) *
                   tiles_of(request->image.height, TILE_HEIGHT);
    LAUNCH_BLOCK(decode_crops, cuda_blocks(tiles * CUDA_THREADS), CUDA_THREADS, stream, *request,
                 tiles);
    return cudaGetLastError();
}

extern "C" cudaError_t cuda_run_decode(const yoke_decode_request *request, cudaStream_t stream) {
    if (request->crops != NULL) return run_crops(request, stream);
    size_t lines =
        (size_t)request->rows * (size_t)request->image.channels * (size_t)request->image.height;
    LAUNCH(decode, cuda_blocks(lines * CUDA_WARP), CUDA_THREADS, stream, *request, lines);
    return cudaGetLastError();
}
