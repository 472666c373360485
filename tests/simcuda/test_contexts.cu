/* SPDX-License-Identifier: Apache-2.0 */
/* Contexts: one that a trap has poisoned answers errors for ever, and no other one does. */
#include <cuda.h>

#include "device/cuda/kernel.h"
#include "simcuda/rig.h"

using rig::check;
using rig::make_stream;

extern "C" CUresult CUDAAPI cuCtxCreate_v2(CUcontext *context, unsigned flags, CUdevice device);
extern "C" CUresult CUDAAPI cuCtxDestroy_v2(CUcontext context);

static __global__ void add(int *counter) {
    *counter += 1;
}

static __global__ void trap(int *counter) {
    *counter += 1;
    __trap();
}

struct Place {
    cudaStream_t stream = make_stream();
    int *counter = nullptr;
    Place() {
        check(cudaMalloc((void **)&counter, sizeof *counter));
        /* The default stream has no order with this one. */
        check(cudaMemsetAsync(counter, 0, sizeof *counter, stream));
    }
    /* What it gives back it gives back, whatever it answers. */
    cudaError_t close() const {
        cudaError_t freed = cudaFree(counter), destroyed = cudaStreamDestroy(stream);
        return freed != cudaSuccess ? freed : destroyed;
    }
};

static int count_in(const Place &place) {
    int counted = 0;
    LAUNCH(add, 1, 1, place.stream, place.counter);
    check(cudaGetLastError());
    check(cudaStreamSynchronize(place.stream));
    check(cudaMemcpy(&counted, place.counter, sizeof counted, cudaMemcpyDeviceToHost));
    return counted;
}

/* A process poisons a context for ever, so each test poisons one of its own GPUs. */
static void spring(const Place &place) {
    LAUNCH(trap, 1, 1, place.stream, place.counter);
    check(cudaGetLastError());
    assert_int_equal(cudaStreamSynchronize(place.stream), cudaErrorLaunchFailure);
}

/* A thread remembers the error until it asks in another context. */
static void leave_it(void) {
    assert_int_equal(cudaGetLastError(), cudaErrorLaunchFailure);
    assert_int_equal(cudaGetLastError(), cudaSuccess);
}

static void every_call_of_a_poisoned_context_answers_its_error(void **) {
    check(cudaSetDevice(1));
    Place place;
    cudaStream_t other = make_stream();
    cudaEvent_t event = rig::make_event();
    void *memory = nullptr;
    check(cudaEventRecord(event, other));
    spring(place);
    assert_int_equal(cudaGetLastError(), cudaErrorLaunchFailure);
    assert_int_equal(cudaGetLastError(), cudaErrorLaunchFailure);
    assert_int_equal(cudaEventQuery(event), cudaErrorLaunchFailure);
    assert_int_equal(cudaStreamSynchronize(other), cudaErrorLaunchFailure);
    assert_int_equal(cudaMalloc(&memory, 4), cudaErrorLaunchFailure);
    assert_int_equal(cudaDeviceReset(), cudaErrorLaunchFailure);
    assert_int_equal(cudaMalloc(&memory, 4), cudaErrorLaunchFailure);
    assert_int_equal(cudaEventDestroy(event), cudaErrorLaunchFailure);
    assert_int_equal(cudaStreamDestroy(other), cudaErrorLaunchFailure);
    assert_int_equal(place.close(), cudaErrorLaunchFailure);
    check(cudaSetDevice(0));
    cudaGetLastError();
}

static void work_queued_behind_a_trap_does_not_run(void **) {
    check(cudaSetDevice(2));
    Place place;
    bool ran = false;
    LAUNCH(trap, 1, 1, place.stream, place.counter);
    check(cudaGetLastError());
    sim::enqueue(place.stream, "behind the trap", 1, [&ran] { ran = true; });
    assert_int_equal(cudaStreamSynchronize(place.stream), cudaErrorLaunchFailure);
    assert_false(ran);
    place.close();
    check(cudaSetDevice(0));
    cudaGetLastError();
}

static void another_gpu_and_another_context_of_the_same_go_on(void **) {
    CUcontext before, after;
    Place other;
    assert_int_equal(cuCtxCreate_v2(&before, 0, 3), CUDA_SUCCESS);
    Place beside;
    int gpu = -1;
    check(cudaGetDevice(&gpu));
    assert_int_equal(gpu, 3);
    check(cudaSetDevice(3));
    Place place;
    spring(place);
    assert_int_equal(cuCtxSetCurrent(before), CUDA_SUCCESS);
    leave_it();
    assert_int_equal(count_in(beside), 1);
    check(beside.close());
    assert_int_equal(cuCtxDestroy_v2(before), CUDA_SUCCESS);
    assert_int_equal(cuCtxCreate_v2(&after, 0, 3), CUDA_SUCCESS);
    Place made_after;
    assert_int_equal(count_in(made_after), 1);
    check(made_after.close());
    assert_int_equal(cuCtxDestroy_v2(after), CUDA_SUCCESS);
    assert_int_equal(place.close(), cudaErrorLaunchFailure);
    check(cudaSetDevice(0));
    cudaGetLastError();
    assert_int_equal(count_in(other), 1);
    check(other.close());
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_call_of_a_poisoned_context_answers_its_error),
        cmocka_unit_test(work_queued_behind_a_trap_does_not_run),
        cmocka_unit_test(another_gpu_and_another_context_of_the_same_go_on),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
