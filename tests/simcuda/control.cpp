/* SPDX-License-Identifier: Apache-2.0 */
/* The simulator's controls, for tests in C. */
#include "simcuda/control.h"

#include <atomic>
#include <cstdio>

#include "simcuda/sim.h"

static std::atomic<uint64_t> collective_bytes{0};

void sim::count_collective(size_t bytes) {
    collective_bytes += bytes;
}

uint64_t simcuda_collective_bytes(void) {
    return collective_bytes;
}

void simcuda_fail_call(uint64_t index) {
    sim::fail_call(index);
}

uint64_t simcuda_calls_so_far(void) {
    return sim::calls_so_far();
}

uint64_t simcuda_calls_of(const char *call) {
    return sim::calls_of(call);
}

void simcuda_print_calls(void) {
    std::fputs(sim::calls_list().c_str(), stderr);
}

const char *simcuda_failed_call(void) {
    return sim::failed_call();
}

uint64_t simcuda_works_so_far(void) {
    return sim::works_so_far();
}

size_t simcuda_outstanding(void) {
    return sim::outstanding();
}

void simcuda_print_outstanding(void) {
    std::fputs(sim::outstanding_list().c_str(), stderr);
}
