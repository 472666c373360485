/* SPDX-License-Identifier: Apache-2.0 */
/* Settings from the environment, the count of calls, and planted failures. */
#include <cstdlib>
#include <cstring>
#include <unistd.h>
#include <unordered_map>

#include "simcuda/lock.h"
#include "simcuda/memory.h"
#include "simcuda/schedule.h"

namespace sim {
namespace {

/* "cudaMalloc@17=2", "*@40=x", "cudaGetDeviceCount@*=35", "cudaStreamSynchronize@3=719!",
 * "cudnnConvolutionForward@1=700!" */
struct Fault {
    std::string call; /* "*": any */
    uint64_t index;   /* 0: always */
    int code;         /* 0: the natural one */
    bool sticky;
};

struct Faults {
    std::vector<Fault> planted;
    std::unordered_map<std::string, uint64_t> calls;
    uint64_t total = 0;                /* of the whole process */
    uint64_t counted = 0, failing = 0; /* since fail_call, and what it asked for */
    const char *failed = nullptr;
    int sticky = 0;
};

[[noreturn]] void bad_setting(const char *name, const char *value, const char *expected) {
    fprintf(stderr, "simcuda: %s=%s: expected %s\n", name, value, expected);
    fflush(nullptr);
    Outside outside(false); /* for ThreadSanitizer, which looks at how a program ends */
    _exit(2);
}

uint64_t read_number(const char *name, uint64_t otherwise, uint64_t least, uint64_t most) {
    const char *text = getenv(name);
    if (text == nullptr || *text == '\0') return otherwise;
    char *end;
    unsigned long long value = strtoull(text, &end, 10);
    char expected[80];
    snprintf(expected, sizeof expected, "a number from %llu to %llu", (unsigned long long)least,
             (unsigned long long)most);
    if (*end != '\0' || value < least || value > most) bad_setting(name, text, expected);
    return value;
}

/* Which of the words; the first when unset. */
int read_word(const char *name, const std::vector<const char *> &words) {
    const char *text = getenv(name);
    if (text == nullptr || *text == '\0') return 0;
    std::string expected;
    for (size_t i = 0; i < words.size(); i++) {
        if (strcmp(text, words[i]) == 0) return (int)i;
        expected += std::string(i > 0 ? " or " : "") + words[i];
    }
    bad_setting(name, text, expected.c_str());
}

Settings read_settings() {
    Settings read = {};
    read.devices = (int)read_number("SIMCUDA_DEVICES", 8, 0, DEVICES_LIMIT);
    read.memory_bytes = read_number("SIMCUDA_MEMORY", (size_t)1 << 30, 0, (size_t)1 << 40);
    read.seed = read_number("SIMCUDA_SEED", 1, 0, UINT64_MAX);
    read.late = read_number("SIMCUDA_LATE", 0, 0, 1);
    read.relu_keeps_nan = read_number("SIMCUDA_RELU_KEEPS_NAN", 0, 0, 1);
    read.count = read_number("SIMCUDA_COUNT", 0, 0, 1);
    read.racecheck = read_number("SIMCUDA_RACECHECK", 0, 0, 1);
    read.deadlock_ms = (int)read_number("SIMCUDA_DEADLOCK_MS", 20000, 1, 3600000);
    int peers = read_word("SIMCUDA_PEERS", {"all", "none", "corrupt"});
    read.peers = peers != 1;
    read.corrupt_peers = peers == 2;
    const char *scheduler = getenv("SIMCUDA_SCHEDULER");
    bool chosen = scheduler != nullptr && *scheduler != '\0';
    read.threads = chosen ? read_word("SIMCUDA_SCHEDULER", {"seeded", "threads"}) == 1
                          : under_tsan(); /* one thread's works have an order */
    return read;
}

Fault parse_fault(const std::string &text) {
    static const char *const expected = "call@index=code, as in cudaMalloc@17=2;*@40=x";
    size_t at = text.find('@'), equals = text.find('=', at);
    if (at == std::string::npos || equals == std::string::npos || at == 0)
        bad_setting("SIMCUDA_FAULT", text.c_str(), expected);
    Fault fault = {text.substr(0, at), 0, 0, text.back() == '!'};
    std::string index = text.substr(at + 1, equals - at - 1), code = text.substr(equals + 1);
    if (fault.sticky) code.pop_back();
    fault.index = index == "*" ? 0 : strtoull(index.c_str(), nullptr, 10);
    fault.code = code == "x" ? 0 : atoi(code.c_str());
    if ((index != "*" && fault.index == 0) || (code != "x" && fault.code == 0))
        bad_setting("SIMCUDA_FAULT", text.c_str(), expected);
    return fault;
}

Faults &faults() {
    static Faults *const all = [] {
        Faults *read = new Faults;
        const char *text = getenv("SIMCUDA_FAULT");
        std::string rest = text != nullptr ? text : "";
        while (!rest.empty()) {
            size_t end = rest.find(';');
            std::string one = rest.substr(0, end);
            if (!one.empty()) read->planted.push_back(parse_fault(one));
            rest = end == std::string::npos ? "" : rest.substr(end + 1);
        }
        return read;
    }();
    return *all;
}

bool is_runtime(const char *call) {
    return strncmp(call, "cuda", 4) == 0;
}

/* How a program leaves a poisoned context. */
bool needs_no_context(const char *call) {
    static const char *const calls[] = {"cudaSetDevice", "cudaGetDevice", "cudaGetDeviceCount",
                                        "cuCtxCreate",   "cuCtxDestroy",  "cuCtxSetCurrent"};
    for (const char *one : calls)
        if (strcmp(call, one) == 0) return true;
    return false;
}

int lost(const char *call) {
    if (faults().sticky != 0) return faults().sticky;
    return needs_no_context(call) ? 0 : context_error(this_host().device);
}

/* A library answers a status of its own; the code is what the runtime answers from now on. */
int lose_gpus(const Fault &planted, const char *call, int natural) {
    int otherwise = is_runtime(call) ? natural : (int)cudaErrorLaunchFailure;
    faults().sticky = planted.code != 0 ? planted.code : otherwise;
    abandon_all();
    return is_runtime(call) ? faults().sticky : natural;
}

} // namespace

const Settings &settings() {
    static const Settings *const all = new Settings(read_settings());
    return *all;
}

int fault(const char *call, int natural) {
    Entry entry;
    Faults &all = faults();
    uint64_t of_call = ++all.calls[call];
    all.total++;
    if (++all.counted == all.failing) {
        all.failed = call;
        return natural;
    }
    if (int code = lost(call)) return is_runtime(call) ? code : natural;
    for (const Fault &planted : all.planted) {
        bool any = planted.call == "*";
        if (!any && planted.call != call) continue;
        if (planted.index != 0 && planted.index != (any ? all.total : of_call)) continue;
        all.failed = call;
        if (planted.sticky) return lose_gpus(planted, call, natural);
        return planted.code != 0 ? planted.code : natural;
    }
    return 0;
}

int sticky_error() {
    Entry entry;
    return faults().sticky != 0 ? faults().sticky : context_error(this_host().device);
}

uint64_t calls_so_far() {
    Entry entry;
    return faults().counted;
}

void fail_call(uint64_t index) {
    Entry entry;
    faults().counted = 0;
    faults().failing = index;
    faults().failed = nullptr;
}

const char *failed_call() {
    Entry entry;
    return faults().failed;
}

} // namespace sim
