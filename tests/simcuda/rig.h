/* SPDX-License-Identifier: Apache-2.0 */
/* For the simulator's own tests: buffers on a device, references, and scenarios that must break
 * a rule. */
#ifndef SIMCUDA_RIG_H
#define SIMCUDA_RIG_H

#include <algorithm>
#include <cmath>
#include <csetjmp>
#include <csignal>
#include <cstdarg>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

extern "C" {
#include <cmocka.h>
}
#include <cuda_bf16.h>
#include <cuda_runtime_api.h>
#include <sys/wait.h>
#include <unistd.h>

#include "simcuda/sim.h"

namespace rig {

inline void check(cudaError_t error) {
    if (error != cudaSuccess) fail_msg("%s", cudaGetErrorString(error));
}

inline cudaStream_t make_stream() {
    cudaStream_t stream;
    check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    return stream;
}

inline cudaEvent_t make_event(unsigned flags = cudaEventDisableTiming) {
    cudaEvent_t event;
    check(cudaEventCreateWithFlags(&event, flags));
    return event;
}

/* An array in the memory of the device that is current. */
template <typename T> class Array {
  public:
    explicit Array(const std::vector<T> &values) : count_(values.size()) {
        check(cudaMalloc((void **)&pointer_, bytes() + sizeof(T)));
        check(cudaMemcpy(pointer_, values.data(), bytes(), cudaMemcpyHostToDevice));
    }
    explicit Array(size_t count) : Array(std::vector<T>(count)) {}
    ~Array() { cudaFree(pointer_); }
    Array(const Array &) = delete;
    void operator=(const Array &) = delete;
    T *get() const { return pointer_; }
    size_t bytes() const { return count_ * sizeof(T); }
    std::vector<T> read() const {
        std::vector<T> values(count_);
        check(cudaDeviceSynchronize());
        check(cudaMemcpy(values.data(), pointer_, bytes(), cudaMemcpyDeviceToHost));
        return values;
    }

  private:
    T *pointer_ = nullptr;
    size_t count_;
};

/* Values between -1 and 1, the same in every run. */
inline std::vector<float> values(size_t count, uint32_t seed) {
    std::vector<float> result(count);
    for (float &value : result) {
        seed = seed * 1664525u + 1013904223u;
        value = (float)(seed >> 8) / (float)(1 << 23) - 1;
    }
    return result;
}

inline float rounded_to_bfloat16(float value) {
    return __bfloat162float(__float2bfloat16_rn(value));
}

inline std::vector<__nv_bfloat16> to_bfloat16(const std::vector<float> &from) {
    std::vector<__nv_bfloat16> to;
    for (float value : from)
        to.push_back(__float2bfloat16_rn(value));
    return to;
}

inline std::vector<float> to_float(const std::vector<__nv_bfloat16> &from) {
    std::vector<float> to;
    for (__nv_bfloat16 value : from)
        to.push_back(__bfloat162float(value));
    return to;
}

/* An array of float or bfloat16, seen as float. */
class Values {
  public:
    Values(const std::vector<float> &from, bool bf16)
        : bf16_(bf16), floats_(bf16 ? std::vector<float>(1) : from),
          narrow_(bf16 ? to_bfloat16(from) : std::vector<__nv_bfloat16>(1)) {}
    void *get() const { return bf16_ ? (void *)narrow_.get() : (void *)floats_.get(); }
    std::vector<float> read() const { return bf16_ ? to_float(narrow_.read()) : floats_.read(); }

  private:
    bool bf16_;
    Array<float> floats_;
    Array<__nv_bfloat16> narrow_;
};

/* Every element within `relative` of the scale of the whole. */
inline void assert_close(const std::vector<float> &is, const std::vector<double> &wanted,
                         double relative) {
    assert_int_equal(is.size(), wanted.size());
    double scale = 0;
    for (double value : wanted)
        scale = std::max(scale, value < 0 ? -value : value);
    for (size_t i = 0; i < is.size(); i++)
        if (!(std::abs((double)is[i] - wanted[i]) <= relative * scale))
            fail_msg("element %zu is %g, expected %g", i, (double)is[i], wanted[i]);
}

/* What runs in a process of its own: `SCENARIO(name) { ... }`. */
struct Scenario {
    const char *name;
    void (*run)();
    Scenario(const char *given_name, void (*given_run)()) : name(given_name), run(given_run) {
        all().push_back(this);
    }
    static std::vector<const Scenario *> &all() {
        static std::vector<const Scenario *> scenarios;
        return scenarios;
    }
};
#define SCENARIO(name)                                                                             \
    static void name();                                                                            \
    static const rig::Scenario scenario_##name(#name, name);                                       \
    static void name()

struct Outcome {
    int status; /* of waitpid */
    std::string text;
};

/* This program again, for one scenario: its end, and what it writes to stderr. */
inline Outcome run(const char *scenario) {
    int ends[2];
    if (pipe(ends) != 0) fail_msg("pipe");
    fflush(nullptr);
    pid_t child = fork();
    if (child == 0) {
        dup2(ends[1], 2);
        close(ends[0]);
        close(ends[1]);
        execl("/proc/self/exe", scenario, scenario, nullptr);
        _exit(127);
    }
    close(ends[1]);
    Outcome outcome{0, ""};
    char buffer[4096];
    for (ssize_t got; (got = read(ends[0], buffer, sizeof buffer)) > 0;)
        outcome.text.append(buffer, (size_t)got);
    close(ends[0]);
    waitpid(child, &outcome.status, 0);
    return outcome;
}

/* The rule must fire, and say so. */
inline void assert_violation(const char *says, const char *scenario) {
    Outcome outcome = run(scenario);
    if (!WIFSIGNALED(outcome.status) || WTERMSIG(outcome.status) != SIGABRT)
        fail_msg("no violation \"%s\": status %#x, \"%s\"", says, outcome.status,
                 outcome.text.c_str());
    if (outcome.text.find(says) == std::string::npos)
        fail_msg("\"%s\" does not say \"%s\"", outcome.text.c_str(), says);
}

inline int run_scenario(const char *name) {
    for (const Scenario *scenario : Scenario::all())
        if (strcmp(scenario->name, name) == 0) {
            scenario->run();
            return 0;
        }
    return 127;
}

/* The whole of main. */
#define RUN_TESTS(count, arguments, tests)                                                         \
    (count > 1 ? rig::run_scenario(arguments[1]) : cmocka_run_group_tests(tests, nullptr, nullptr))

} // namespace rig

#endif
