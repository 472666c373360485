/* SPDX-License-Identifier: Apache-2.0 */
/* Dropout. The mask of an element depends only on seed, step, layer, global row and the element's
 * index in its row in plain order, as on every device. Backward draws it again, which costs less
 * than saving it. */
#include <Random123/philox.h>

#include "base/base.h"
#include "device/cuda/kernel.h"
#include "device/cuda/kernels.h"

constexpr uint32_t WORDS = 4; /* of one draw */

/* yoke_random_words on the device. */
static __device__ philox4x32_ctr_t draw(const cuda_step &step, uint64_t row, uint32_t layer,
                                        uint32_t block) {
    uint64_t mixed = step.seed ^ ((uint64_t)YOKE_RANDOM_DROPOUT << 56);
    uint64_t row_and_step = (step.first_row + row) << 40 ^ step.step;
    philox4x32_key_t key = {{(uint32_t)mixed, (uint32_t)(mixed >> 32)}};
    philox4x32_ctr_t counter = {
        {(uint32_t)row_and_step, (uint32_t)(row_and_step >> 32), layer, block}};
    return philox4x32_R(10, counter, key);
}

/* Thread i of a row draws for elements 4 b ... 4 b + 3. Where these are pixels of one channel,
 * neighbouring threads have neighbouring channels, which are adjacent in memory. */
static __device__ uint32_t block_of(const cuda_dropout_job &job, uint32_t i) {
    if (job.pixels % WORDS != 0) return i;
    return i % job.channels * (job.pixels / WORDS) + i / job.channels;
}

template <typename T> static __global__ void drop(cuda_dropout_job job, uint32_t blocks) {
    uint32_t elements = job.channels * job.pixels;
    GRID_STRIDE(i, job.rows * blocks) {
        size_t row = i / blocks, begin = row * elements;
        uint32_t block = block_of(job, (uint32_t)(i - row * blocks));
        philox4x32_ctr_t words = draw(*job.step, row, job.layer, block);
        for (uint32_t k = 0; k < WORDS && block * WORDS + k < elements; k++) {
            uint32_t element = block * WORDS + k;
            size_t at = begin + element % job.pixels * job.channels + element / job.pixels;
            float value = cuda_widen(((const T *)job.from)[at]) * job.scale;
            cuda_narrow(words.v[k] >= job.threshold ? value : 0, &((T *)job.to)[at]);
        }
    }
}

extern "C" cudaError_t cuda_run_dropout(const cuda_dropout_job *job, cudaStream_t stream) {
    uint32_t blocks = (job->channels * job->pixels + WORDS - 1) / WORDS;
    size_t count = job->rows * blocks;
    LAUNCH_BY_TYPE(LAUNCH, drop, job->type, cuda_blocks(count), CUDA_THREADS, stream, *job, blocks);
    return cudaGetLastError();
}
