/* SPDX-License-Identifier: Apache-2.0 */
/* Counting instead of computing, for the simulator's own files: SIMCUDA_COUNT=1. */
#ifndef SIMCUDA_COUNT_H
#define SIMCUDA_COUNT_H

#include "simcuda/counted.h"
#include "simcuda/library.h"

namespace sim::count {

/* A launch: `parameters` are the bytes of the kernel's parameters, in which pointers are found. */
struct Kernel {
    const char *name;
    void (*code)();
    Launch launch;
    std::string parameters;
};

/* What the calling thread queues becomes work that counts. */
Work launch(Kernel kernel, std::function<void()> body);
Work library(const char *what, std::vector<Operand> operands, Arithmetic arithmetic);
Work copy(const char *what, void *to, const void *from, size_t bytes, Work work);

/* A range of device memory that work reads or writes. */
struct Range {
    uintptr_t from;
    double bytes;
    bool written;
};

/* What some blocks of a launch did, for all of its blocks. Ranges begin at a parameter. */
struct Sampled {
    struct Part {
        size_t pointer; /* which of the parameters' pointers */
        double offset, bytes;
        bool written;
    };
    unsigned blocks = 0;
    double requested = 0, shared = 0, l2 = 0, again = 0, unique = 0;
    std::vector<Part> parts;
};
/* Runs blocks of the launch. `pointers`: ascending addresses. */
Sampled sample(const Kernel &kernel, const std::vector<uintptr_t> &pointers,
               const std::function<void()> &body);

/* The second-level cache: what of these ranges it does not hold. It holds them afterwards. */
constexpr double L2_BYTES = 50e6;
constexpr unsigned MULTIPROCESSORS = 132;
double through_cache(const std::vector<Range> &ranges);
void forget_cache();

} // namespace sim::count

#endif
