/* SPDX-License-Identifier: Apache-2.0 */
/* What ran between begin and end. Equal launches are sampled once: they differ in the addresses of
 * their parameters alone. */
#include "simcuda/count.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <map>

#include "simcuda/lock.h"
#include "simcuda/memory.h"

namespace sim::count {
namespace {

constexpr size_t SMALL = 1 << 20; /* copies up to here are made */
constexpr unsigned FEW = 4;       /* blocks of a kernel that runs outside the count */

struct Label {
    const char *operation = "", *direction = "";
};

struct Counter {
    bool open = false;
    std::vector<simcuda_counted> list;
    std::map<std::string, Sampled> sampled; /* by kernel, size and what is no address */
};

Counter &counter() {
    static Counter *const all = new Counter;
    return *all;
}

thread_local Label label;

simcuda_counted entry_of(const char *what, simcuda_kind kind, const Label &of) {
    simcuda_counted entry{};
    entry.operation = of.operation;
    entry.direction = of.direction;
    entry.what = what;
    entry.kind = kind;
    return entry;
}

/* Addresses of device memory among a kernel's parameters, ascending; where they stood, 0 to n. */
std::vector<uintptr_t> take_pointers(std::string &parameters) {
    std::vector<uintptr_t> found;
    std::vector<size_t> places;
    for (size_t at = 0; at + sizeof(uintptr_t) <= parameters.size(); at += sizeof(uintptr_t)) {
        uintptr_t value;
        std::memcpy(&value, &parameters[at], sizeof value);
        if (find_address((const void *)value).place != Place::device) continue;
        found.push_back(value);
        places.push_back(at);
    }
    std::vector<uintptr_t> pointers = found;
    std::sort(pointers.begin(), pointers.end());
    pointers.erase(std::unique(pointers.begin(), pointers.end()), pointers.end());
    for (size_t i = 0; i < places.size(); i++) {
        uintptr_t rank = (uintptr_t)(std::lower_bound(pointers.begin(), pointers.end(), found[i]) -
                                     pointers.begin()) +
                         1;
        std::memcpy(&parameters[places[i]], &rank, sizeof rank);
    }
    return pointers;
}

const Sampled &sampled_of(const Kernel &kernel, const std::vector<uintptr_t> &pointers,
                          const std::string &rest, const std::function<void()> &body) {
    char size[96];
    snprintf(size, sizeof size, "%p %u %u ", (void *)kernel.code, kernel.launch.blocks,
             kernel.launch.threads);
    auto [found, is_new] = counter().sampled.try_emplace(size + rest);
    if (is_new) found->second = sample(kernel, pointers, body);
    return found->second;
}

void count_launch(const Kernel &kernel, const Label &of, const std::function<void()> &body) {
    std::string rest = kernel.parameters;
    std::vector<uintptr_t> pointers = take_pointers(rest);
    const Sampled &sampled = sampled_of(kernel, pointers, rest, body);
    simcuda_counted entry = entry_of(kernel.name, SIMCUDA_KERNEL, of);
    entry.blocks = kernel.launch.blocks;
    entry.threads = kernel.launch.threads;
    entry.sampled = sampled.blocks;
    entry.requested_bytes = sampled.requested;
    entry.shared_bytes = sampled.shared;
    entry.l2_bytes = sampled.l2;
    entry.unique_bytes = sampled.unique;
    std::vector<Range> ranges;
    for (const Sampled::Part &part : sampled.parts)
        ranges.push_back(
            {(uintptr_t)((double)pointers[part.pointer] + part.offset), part.bytes, part.written});
    entry.memory_bytes = through_cache(ranges) + sampled.again;
    counter().list.push_back(entry);
}

} // namespace

Work launch(Kernel kernel, std::function<void()> body) {
    Label of = label;
    return [kernel = std::move(kernel), body = std::move(body), of] {
        bool small = kernel.launch.blocks <= FEW; /* a gate or a sum, whose value others need */
        if (counter().open)
            count_launch(kernel, of, body);
        else if (small)
            run_kernel(kernel.launch, body);
    };
}

Work library(const char *what, std::vector<Operand> operands, Arithmetic arithmetic) {
    Label of = label;
    return [=] {
        if (!counter().open) return;
        simcuda_counted entry = entry_of(what, SIMCUDA_LIBRARY, of);
        entry.operations = arithmetic.operations;
        entry.arithmetic = arithmetic.type;
        std::vector<Range> ranges;
        for (const Operand &operand : operands) {
            if (std::strstr(operand.what, "workspace") != nullptr)
                continue; /* the simulator's own */
            ranges.push_back({(uintptr_t)operand.pointer, (double)operand.bytes, operand.written});
            entry.unique_bytes += (double)operand.bytes;
        }
        entry.requested_bytes = entry.l2_bytes = entry.unique_bytes;
        entry.memory_bytes = through_cache(ranges);
        counter().list.push_back(entry);
    };
}

Work copy(const char *what, void *to, const void *from, size_t bytes, Work work) {
    Label of = label;
    bool fill = from == nullptr, local = find_address(to).place == Place::device &&
                                         (fill || find_address(from).place == Place::device);
    return [=] {
        if (!local || bytes <= SMALL) work();
        if (!counter().open) return;
        simcuda_counted entry = entry_of(what, local ? SIMCUDA_COPY : SIMCUDA_TRANSFER, of);
        entry.unique_bytes = (double)bytes * (local && !fill ? 2 : 1);
        entry.requested_bytes = entry.l2_bytes = entry.unique_bytes;
        std::vector<Range> ranges;
        if (find_address(to).place == Place::device)
            ranges.push_back({(uintptr_t)to, (double)bytes, true});
        if (!fill && find_address(from).place == Place::device)
            ranges.push_back({(uintptr_t)from, (double)bytes, false});
        entry.memory_bytes = through_cache(ranges);
        counter().list.push_back(entry);
    };
}

} // namespace sim::count

using sim::count::counter;

bool simcuda_count_open(void) {
    setenv("SIMCUDA_COUNT", "1", 1);
    setenv("SIMCUDA_DEVICES", "1", 0);
    setenv("SIMCUDA_MEMORY", "85899345920", 0); /* 80 GiB, an H100's */
    return sim::settings().count;
}

void simcuda_count_begin(void) {
    sim::Entry entry;
    counter().list.clear();
    counter().open = true;
}

int simcuda_count_end(const simcuda_counted **list) {
    sim::Entry entry;
    counter().open = false;
    *list = counter().list.data();
    return (int)counter().list.size();
}

void simcuda_count_label(const char *operation, const char *direction) {
    sim::count::label = {operation, direction};
}

void simcuda_count_labels(const char **operation, const char **direction) {
    *operation = sim::count::label.operation;
    *direction = sim::count::label.direction;
}
