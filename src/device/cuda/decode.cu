/* From stored images to the model's inputs: crop, flip, normalise and cut out in one pass over the
 * output. data/augment.c does the same on the host. */
#include "device/cuda/kernel.h"
#include "device/cuda/kernels.h"
#include "device/device.h"

/* One line of the output. Fields are unsigned, so that one comparison catches values below 0 as
 * well. */
struct output_line {
    const uint8_t *pixels; /* the stored line that it shows; NULL: outside the image */
    unsigned width, right, cut_left, cut_width;
    bool flip;
    float cut_value;
    yoke_scaling scale;
};

static __device__ float value_at(const output_line &line, unsigned x) {
    if (x - line.cut_left < line.cut_width) return line.cut_value;
    unsigned column = (line.flip ? line.width - 1 - x : x) + line.right;
    bool inside = line.pixels != NULL && column < line.width;
    return yoke_decode_pixel(inside ? line.pixels[column] : 0, line.scale);
}

static __device__ output_line line_of(const yoke_decode_request &job, size_t index) {
    unsigned height = (unsigned)job.image.height, width = (unsigned)job.image.width;
    size_t plane = index / height, row = plane / (unsigned)job.image.channels;
    unsigned y = (unsigned)(index % height), channel = (unsigned)(plane % job.image.channels);
    yoke_placement placed = {};
    if (job.placements != NULL) placed = job.placements[row];
    unsigned source = y + (unsigned)placed.down, entry = channel < 4 ? channel : 3;
    bool cut = y - (unsigned)placed.cut_top < (unsigned)placed.cut_height;
    return {source < height ? job.pixels + (plane * height + source) * width : NULL,
            width,
            (unsigned)placed.right,
            (unsigned)placed.cut_left,
            cut ? (unsigned)placed.cut_width : 0,
            placed.flip,
            job.decoding.cut_value[entry],
            {job.decoding.mean[entry], job.decoding.deviation[entry]}};
}

/* A warp for each line: it computes the line's source once, and neighbouring threads write
 * neighbouring values. */
static __global__ void decode(const __grid_constant__ yoke_decode_request job, size_t lines) {
    unsigned width = (unsigned)job.image.width;
    GRID_STRIDE(i, lines * CUDA_WARP) {
        output_line line = line_of(job, i / CUDA_WARP);
        for (unsigned x = (unsigned)(i % CUDA_WARP); x < width; x += CUDA_WARP)
            job.inputs[i / CUDA_WARP * width + x] = value_at(line, x);
    }
}

extern "C" cudaError_t cuda_run_decode(const yoke_decode_request *request, cudaStream_t stream) {
    size_t lines =
        (size_t)request->rows * (size_t)request->image.channels * (size_t)request->image.height;
    LAUNCH(decode, cuda_blocks(lines * CUDA_WARP), CUDA_THREADS, stream, *request, lines);
    return cudaGetLastError();
}
