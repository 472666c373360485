/* SPDX-License-Identifier: Apache-2.0 */
/* Communicators of three ranks for the tests of NCCL, and values on their devices. */
#ifndef SIMCUDA_RING_H
#define SIMCUDA_RING_H

#include <memory>

#include <nccl.h>

#include "simcuda/rig.h"

namespace rig {

inline void check(ncclResult_t result) {
    if (result != ncclSuccess)
        fail_msg("%s: %s", ncclGetErrorString(result), ncclGetLastError(nullptr));
}

constexpr int RANKS = 3;

/* A device, its communicator and stream. Values of rank r begin with those of seed r + 1. */
struct Rank {
    ncclComm_t comm = nullptr;
    cudaStream_t stream = nullptr;
    int device;

    explicit Rank(int given_device) : device(given_device) {
        use();
        check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    }
    ~Rank() {
        use();
        cudaStreamDestroy(stream);
        if (comm != nullptr) ncclCommDestroy(comm);
    }
    Rank(const Rank &) = delete;
    void operator=(const Rank &) = delete;
    void use() const { check(cudaSetDevice(device)); }
};

/* Ranks 0, 1 and 2 lie on devices 2, 0 and 1. */
struct Ring {
    std::vector<std::unique_ptr<Rank>> ranks;

    Ring() {
        const int devices[RANKS] = {2, 0, 1};
        ncclComm_t comms[RANKS];
        check(ncclCommInitAll(comms, RANKS, devices));
        for (int r = 0; r < RANKS; r++) {
            ranks.push_back(std::make_unique<Rank>(devices[r]));
            ranks.back()->comm = comms[r];
        }
    }
    Rank &operator[](int r) { return *ranks[(size_t)r]; }
    void synchronize() {
        for (auto &rank : ranks)
            check(cudaStreamSynchronize(rank->stream));
    }
};

/* Arrays, one a rank, on its device. */
template <typename T> struct Buffers {
    std::vector<std::vector<T>> given;
    std::vector<std::unique_ptr<Array<T>>> arrays;

    Buffers(Ring &ring, size_t count) {
        for (int r = 0; r < RANKS; r++) {
            std::vector<T> values;
            for (float value : rig::values(count, (uint32_t)r + 1))
                values.push_back(convert(value));
            ring[r].use();
            arrays.push_back(std::make_unique<Array<T>>(values));
            given.push_back(values);
        }
    }
    static T convert(float value) {
        if constexpr (std::is_same<T, __nv_bfloat16>::value)
            return __float2bfloat16_rn(value);
        else
            return std::is_integral<T>::value ? (T)(value * 100) : (T)value;
    }
    T *operator[](int r) const { return arrays[(size_t)r]->get(); }
    double at(int r, size_t i) const { return widen(given[(size_t)r][i]); }
    double now(int r, size_t i) const { return widen(arrays[(size_t)r]->read()[i]); }
    static double widen(T value) {
        if constexpr (std::is_same<T, __nv_bfloat16>::value)
            return (double)__bfloat162float(value);
        else
            return (double)value;
    }
};

} // namespace rig

#endif
