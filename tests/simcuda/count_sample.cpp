/* SPDX-License-Identifier: Apache-2.0 */
/* The loads and stores of some blocks of a launch. Kernels are compiled with the calls that
 * -fsanitize=thread makes around memory accesses; this file is what they call. */
#include <algorithm>
#include <cstring>
#include <link.h>
#include <unordered_map>

#include "simcuda/count.h"
#include "simcuda/kernel.h"
#include "simcuda/memory.h"
#include "simcuda/schedule.h"

namespace sim::count {
namespace {

constexpr unsigned SECTOR = 32, ALL_UP_TO = 64, RUNS = 8, RUN = 4; /* blocks of a sample */
constexpr double L1_BYTES = 192 << 10, MOST_THREADS = 2048;

/* An access of a block: its number among its thread's, which orders those of different threads. */
struct Access {
    uint32_t number;
    bool written;
    uintptr_t sector;
};

struct Tracer {
    uintptr_t base = 0, end = 0;               /* device memory */
    uintptr_t shared_from = 0, shared_end = 0; /* of this thread, 0: none */
    uint32_t numbers[1024];
    std::vector<Access> accesses;
    double requested = 0, shared = 0;
};

__thread Tracer *tracing;

} // namespace

/* Registers of a GPU. */
static bool is_index(const void *pointer) {
    return pointer == &threadIdx.x || pointer == &blockIdx.x || pointer == &blockDim.x ||
           pointer == &gridDim.x;
}

static void access(const void *pointer, size_t bytes, bool written) {
    Tracer *tracer = tracing;
    if (tracer == nullptr) return;
    uintptr_t at = (uintptr_t)pointer;
    double counted = (double)(bytes < 4 ? 4 : bytes);
    if (at >= tracer->base && at < tracer->end) {
        tracer->requested += (double)bytes;
        uint32_t number = tracer->numbers[threadIdx.x]++;
        for (uintptr_t sector = at / SECTOR; sector <= (at + bytes - 1) / SECTOR; sector++)
            tracer->accesses.push_back({number, written, sector});
    } else if (at >= tracer->shared_from && at < tracer->shared_end && !is_index(pointer)) {
        tracer->shared += counted;
    }
}

namespace {

/* Where this thread's shared memory lies: among its thread-local variables. */
int find_shared(struct dl_phdr_info *info, size_t, void *context) {
    Tracer &tracer = *(Tracer *)context;
    for (int i = 0; i < info->dlpi_phnum; i++)
        if (info->dlpi_phdr[i].p_type == PT_TLS && info->dlpi_tls_data != nullptr) {
            tracer.shared_from = (uintptr_t)info->dlpi_tls_data;
            tracer.shared_end = tracer.shared_from + info->dlpi_phdr[i].p_memsz;
        }
    return 1; /* the program alone, which comes first */
}

/* A cache of so many sectors that lets the least recently used go, about: a hit renews. */
class Window {
  public:
    explicit Window(double bytes) : sectors_(std::max(1.0, bytes / SECTOR)) {}
    enum Result { first, again, hit };
    Result touch(uintptr_t sector) {
        auto [found, is_new] = at_.try_emplace(sector, misses_);
        bool held = !is_new && (double)(misses_ - found->second) < sectors_;
        if (!held) misses_++;
        found->second = misses_;
        return is_new ? first : held ? hit : again;
    }

  private:
    double sectors_;
    uint64_t misses_ = 0;
    std::unordered_map<uintptr_t, uint64_t> at_;
};

/* Sectors of one parameter, read or written, by run of consecutive blocks. */
struct Operand {
    std::unordered_map<uintptr_t, unsigned> runs; /* 1 + the run that alone has it; 0: several */
};

struct Sums {
    double l2 = 0, again = 0;
    std::vector<Operand> operands[2]; /* read, written */
};

size_t parameter_of(const std::vector<uintptr_t> &pointers, uintptr_t address) {
    auto behind = std::upper_bound(pointers.begin(), pointers.end(), address + SECTOR - 1);
    return behind == pointers.begin() ? 0 : (size_t)(behind - pointers.begin()) - 1;
}

void add_block(Sums &sums, Tracer &tracer, const std::vector<uintptr_t> &pointers, unsigned run,
               double l1_share, double l2_share) {
    auto &list = tracer.accesses;
    std::stable_sort(list.begin(), list.end(),
                     [](const Access &a, const Access &b) { return a.number < b.number; });
    Window l1(l1_share), l2(l2_share), stores(l1_share);
    for (const Access &access : list) {
        if (access.written) {
            if (stores.touch(access.sector) != Window::hit) sums.l2 += SECTOR;
        } else {
            if (l1.touch(access.sector) != Window::hit) sums.l2 += SECTOR;
            if (l2.touch(access.sector) == Window::again) sums.again += SECTOR;
        }
        size_t parameter = parameter_of(pointers, access.sector * SECTOR);
        auto [found, is_new] =
            sums.operands[access.written][parameter].runs.try_emplace(access.sector, run + 1);
        if (!is_new && found->second != run + 1) found->second = 0;
    }
    list.clear();
}

/* All sectors of a parameter, from those of the sample: what several runs share is there once. */
void add_part(Sampled &sampled, const Operand &operand, size_t pointer, uintptr_t address,
              bool written, double scale) {
    if (operand.runs.empty()) return;
    uintptr_t least = UINTPTR_MAX, most = 0;
    double own = 0, common = 0;
    for (const auto &[sector, run] : operand.runs) {
        least = std::min(least, sector);
        most = std::max(most, sector);
        (run == 0 ? common : own) += SECTOR;
    }
    double extent = (double)((most - least + 1) * SECTOR);
    double bytes = std::min(common + own * scale, extent);
    sampled.parts.push_back(
        {pointer, (double)(least * SECTOR) - (double)address, bytes, written});
    sampled.unique += bytes;
}

/* Runs of consecutive blocks all over the grid, the first and the last block among them. */
std::vector<std::vector<unsigned>> choose(unsigned blocks) {
    std::vector<std::vector<unsigned>> runs;
    if (blocks <= ALL_UP_TO) {
        for (unsigned block = 0; block < blocks; block++)
            runs.push_back({block});
        return runs;
    }
    double room = (double)(blocks - RUN) / (RUNS - 1);
    for (unsigned i = 0; i < RUNS; i++) {
        double jitter = i == 0 || i == RUNS - 1 ? 0 : 0.618034 * i - (unsigned)(0.618034 * i) - 0.5;
        unsigned first = (unsigned)(((double)i + jitter) * room);
        std::vector<unsigned> run;
        for (unsigned k = 0; k < RUN; k++)
            run.push_back(std::min(first + k, blocks - 1));
        runs.push_back(run);
    }
    return runs;
}

} // namespace

Sampled sample(const Kernel &kernel, const std::vector<uintptr_t> &pointers,
               const std::function<void()> &body) {
    Tracer tracer;
    std::memset(tracer.numbers, 0, sizeof tracer.numbers);
    device_memory_range(running_device(), &tracer.base, &tracer.end);
    if (kernel.launch.barriers) dl_iterate_phdr(find_shared, &tracer);
    const Launch &launch = kernel.launch;
    double resident = std::max(1.0, MOST_THREADS / launch.threads);
    double together = std::min((double)launch.blocks, resident * MULTIPROCESSORS);
    Sums sums;
    for (auto &operands : sums.operands)
        operands.resize(std::max<size_t>(1, pointers.size()));
    Sampled sampled;
    auto runs = choose(launch.blocks);
    for (unsigned run = 0; run < runs.size(); run++)
        for (unsigned block : runs[run]) {
            tracing = &tracer;
            run_block_of(launch, block, body);
            tracing = nullptr;
            add_block(sums, tracer, pointers, run, L1_BYTES / resident, L2_BYTES / together);
            std::memset(tracer.numbers, 0, sizeof tracer.numbers);
            sampled.blocks++;
        }
    double scale = (double)launch.blocks / sampled.blocks;
    sampled.requested = tracer.requested * scale;
    sampled.shared = tracer.shared * scale;
    sampled.l2 = sums.l2 * scale;
    for (int written = 0; written < 2; written++)
        for (size_t i = 0; i < sums.operands[written].size(); i++)
            add_part(sampled, sums.operands[written][i], i, pointers.empty() ? 0 : pointers[i],
                     written, scale);
    /* What fits the cache is read from memory once, however often blocks come back to it. */
    sampled.again = sampled.unique > L2_BYTES ? sums.again * scale : 0;
    return sampled;
}

} // namespace sim::count

/* What g++ calls under -fsanitize=thread, whose names it knows as built in. */
#define ACCESS(name, symbol, bytes, written)                                                       \
    extern "C" {                                                                                   \
    void name(const void *pointer) __asm__(symbol);                                                \
    void name(const void *pointer) {                                                               \
        sim::count::access(pointer, bytes, written);                                               \
    }                                                                                              \
    }
#define SIZES(name, symbol, written)                                                               \
    ACCESS(name##1, symbol "1", 1, written)                                                        \
    ACCESS(name##2, symbol "2", 2, written)                                                        \
    ACCESS(name##4, symbol "4", 4, written)                                                        \
    ACCESS(name##8, symbol "8", 8, written)                                                        \
    ACCESS(name##16, symbol "16", 16, written)
SIZES(count_read, "__tsan_read", false)
SIZES(count_write, "__tsan_write", true)
SIZES(count_unaligned_read, "__tsan_unaligned_read", false)
SIZES(count_unaligned_write, "__tsan_unaligned_write", true)
SIZES(count_volatile_read, "__tsan_volatile_read", false)
SIZES(count_volatile_write, "__tsan_volatile_write", true)

extern "C" {
void count_read_range(const void *pointer, unsigned long bytes) __asm__("__tsan_read_range");
void count_write_range(const void *pointer, unsigned long bytes) __asm__("__tsan_write_range");
int count_add(int *address, int value, int order) __asm__("__tsan_atomic32_fetch_add");
unsigned long long count_load(const unsigned long long *address,
                              int order) __asm__("__tsan_atomic64_load");
int count_exchange(unsigned long long *address, unsigned long long *known,
                   unsigned long long value, int succeeded,
                   int failed) __asm__("__tsan_atomic64_compare_exchange_strong");
int count_exchange_weakly(unsigned long long *address, unsigned long long *known,
                          unsigned long long value, int succeeded,
                          int failed) __asm__("__tsan_atomic64_compare_exchange_weak");
unsigned char count_guard(const unsigned char *guard, int order) __asm__("__tsan_atomic8_load");
void count_nothing(void) __asm__("__tsan_init");
void count_entry(void *) __asm__("__tsan_func_entry");
void count_exit(void) __asm__("__tsan_func_exit");

void count_read_range(const void *pointer, unsigned long bytes) {
    if (bytes > 0) sim::count::access(pointer, bytes, false);
}
void count_write_range(const void *pointer, unsigned long bytes) {
    if (bytes > 0) sim::count::access(pointer, bytes, true);
}
int count_add(int *address, int value, int) {
    sim::count::access(address, sizeof *address, false);
    sim::count::access(address, sizeof *address, true);
    return __atomic_fetch_add(address, value, __ATOMIC_RELAXED);
}
unsigned long long count_load(const unsigned long long *address, int) {
    sim::count::access(address, sizeof *address, false);
    return __atomic_load_n(address, __ATOMIC_RELAXED);
}
int count_exchange(unsigned long long *address, unsigned long long *known, unsigned long long value,
                   int, int) {
    sim::count::access(address, sizeof *address, true);
    return __atomic_compare_exchange_n(address, known, value, false, __ATOMIC_RELAXED,
                                       __ATOMIC_RELAXED);
}
int count_exchange_weakly(unsigned long long *address, unsigned long long *known,
                          unsigned long long value, int succeeded, int failed) {
    return count_exchange(address, known, value, succeeded, failed);
}
unsigned char count_guard(const unsigned char *guard, int) { /* of a static variable */
    return __atomic_load_n(guard, __ATOMIC_ACQUIRE);
}
void count_nothing(void) {}
void count_entry(void *) {}
void count_exit(void) {}
}
