/* SPDX-License-Identifier: Apache-2.0 */
/* One position of an LSTM's or a GRU's layer, between its products with the weight: a thread has
 * one feature of one row. */
#include "device/cuda/kernel.h"
#include "device/cuda/recurrence.h"

/* With a constant end, so that gates lie in registers. */
#define FOR_GATES(g, job) _Pragma("unroll") for (int g = 0; g < 4; g++) if (g < 3 || !(job).gru)

static __device__ float sigmoid(float x) {
    return 1 / (1 + expf(-x));
}

static __device__ bool is_valid(const cuda_recurrence_job &job, size_t site) {
    return job.valid == NULL || job.valid[site] != 0;
}

static __global__ void visit(const __grid_constant__ cuda_recurrence_job job) {
    GRID_STRIDE(i, job.rows * job.hidden) {
        size_t row = i / job.hidden, k = i % job.hidden, site = row * job.positions + job.position;
        size_t h = job.hidden;
        const float *input = job.input + site * job.gates, *share = job.gate + row * job.gates;
        float gates[4], state = job.state[i], cell = job.cell[i];
        if (job.kept_states != NULL) job.kept_states[site * h + k] = state;
        if (job.kept_cells != NULL) job.kept_cells[site * h + k] = cell;
        if (!is_valid(job, site)) {
            job.output[site * h + k] = 0;
            continue;
        }
        FOR_GATES(g, job)
        gates[g] = share[g * h + k] + (job.bias != NULL ? job.bias[g * h + k] : 0);
        gates[0] = sigmoid(input[k] + gates[0]);
        gates[1] = sigmoid(input[h + k] + gates[1]);
        if (job.gru) {
            gates[3] = gates[2];
            gates[2] = tanhf(input[2 * h + k] + gates[0] * gates[3]);
            state = gates[2] + gates[1] * (state - gates[2]);
        } else {
            gates[2] = tanhf(input[2 * h + k] + gates[2]);
            gates[3] = sigmoid(input[3 * h + k] + gates[3]);
            cell = gates[1] * cell + gates[0] * gates[2];
            state = gates[3] * tanhf(cell);
        }
#pragma unroll
        for (int g = 0; g < 4; g++)
            if (job.kept_gates != NULL) job.kept_gates[(site * 4 + g) * h + k] = gates[g];
        job.cell[i] = cell;
        job.state[i] = state;
        job.output[site * h + k] = state;
    }
}

/* `state` and `cell` are gradients of what the position wrote, and then of what it read, but for
 * what comes through the weight. */
static __global__ void visit_back(const __grid_constant__ cuda_recurrence_job job) {
    GRID_STRIDE(i, job.rows * job.hidden) {
        size_t row = i / job.hidden, k = i % job.hidden, site = row * job.positions + job.position;
        size_t h = job.hidden;
        float slopes[4] = {0, 0, 0, 0}, news = 0;
        if (is_valid(job, site)) {
            float dstate = job.state[i] + job.output_gradient[site * h + k], gates[4];
#pragma unroll
            for (int g = 0; g < 4; g++)
                gates[g] = job.kept_gates[(site * 4 + g) * h + k];
            if (job.gru) {
                float state = job.kept_states[site * h + k];
                news = dstate * (1 - gates[1]) * (1 - gates[2] * gates[2]);
                slopes[0] = news * gates[3] * gates[0] * (1 - gates[0]);
                slopes[1] = dstate * (state - gates[2]) * gates[1] * (1 - gates[1]);
                slopes[2] = news * gates[0];
                job.state[i] = dstate * gates[1];
            } else {
                float cell = job.kept_cells[site * h + k];
                float shown = tanhf(gates[1] * cell + gates[0] * gates[2]);
                float dcell = job.cell[i] + dstate * gates[3] * (1 - shown * shown);
                slopes[0] = dcell * gates[2] * gates[0] * (1 - gates[0]);
                slopes[1] = dcell * cell * gates[1] * (1 - gates[1]);
                slopes[2] = news = dcell * gates[0] * (1 - gates[2] * gates[2]);
                slopes[3] = dstate * shown * gates[3] * (1 - gates[3]);
                job.cell[i] = dcell * gates[1];
                job.state[i] = 0;
            }
        }
        FOR_GATES(g, job) {
            job.gate[row * job.gates + g * h + k] = slopes[g];
            job.slopes[site * job.gates + g * h + k] = slopes[g];
            if (job.input_gradient != NULL)
                job.input_gradient[site * job.gates + g * h + k] = g == 2 ? news : slopes[g];
        }
    }
}

extern "C" cudaError_t cuda_run_recurrence(const cuda_recurrence_job *job, cudaStream_t stream) {
    LAUNCH(visit, cuda_blocks(job->rows * job->hidden), CUDA_THREADS, stream, *job);
    return cudaGetLastError();
}

extern "C" cudaError_t cuda_run_recurrence_backward(const cuda_recurrence_job *job,
                                                    cudaStream_t stream) {
    LAUNCH(visit_back, cuda_blocks(job->rows * job->hidden), CUDA_THREADS, stream, *job);
    return cudaGetLastError();
}
