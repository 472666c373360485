/* SPDX-License-Identifier: Apache-2.0 */
/* The loads and stores of some blocks of a launch. Kernels are compiled with the calls that
 * -fsanitize=thread makes around memory accesses; this file is what they call. */
#include <algorithm>
#include <cstring>
#include <link.h>

#include "simcuda/count.h"
#include "simcuda/kernel.h"
#include "simcuda/memory.h"
#include "simcuda/schedule.h"

namespace sim::count {
namespace {

constexpr unsigned SECTOR = 32, ALL_UP_TO = 64, RUNS = 8, RUN = 4; /* blocks of a sample */
constexpr unsigned HEAVY_RUNS = 5, HEAVY_RUN = 2;                  /* of a kernel of long blocks */
constexpr size_t HEAVY = 20000;                                    /* accesses of a block */
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
    size_t touched = 0; /* loads and stores of any memory */
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
    tracer->touched++;
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

/* A number for each sector. */
class Sectors {
  public:
    struct Slot {
        uintptr_t sector; /* 0: none */
        uint64_t value;
    };
    /* The sector's; `value` where it had none. */
    Slot &find(uintptr_t sector, uint64_t value, bool *is_new) {
        if (2 * count_ >= slots_.size()) grow();
        Slot &slot = place(sector);
        *is_new = slot.sector == 0;
        if (*is_new) {
            slot = {sector, value};
            count_++;
        }
        return slot;
    }
    bool empty() const { return count_ == 0; }
    template <typename Use> void each(Use use) const {
        for (const Slot &slot : slots_)
            if (slot.sector != 0) use(slot);
    }

  private:
    Slot &place(uintptr_t sector) {
        size_t mask = slots_.size() - 1, at = (sector * 0x9e3779b97f4a7c15u >> 20) & mask;
        while (slots_[at].sector != 0 && slots_[at].sector != sector)
            at = (at + 1) & mask;
        return slots_[at];
    }
    void grow() {
        std::vector<Slot> old(std::max<size_t>(64, 4 * slots_.size()));
        old.swap(slots_);
        for (const Slot &slot : old)
            if (slot.sector != 0) place(slot.sector) = slot;
    }
    std::vector<Slot> slots_;
    size_t count_ = 0;
};

/* A cache of so many sectors that lets the least recently used go, about: a hit renews. */
class Window {
  public:
    explicit Window(double bytes) : sectors_(std::max(1.0, bytes / SECTOR)) {}
    enum Result { first, again, hit };
    Result touch(uintptr_t sector) {
        bool is_new;
        Sectors::Slot &slot = at_.find(sector, misses_, &is_new);
        bool held = !is_new && (double)(misses_ - slot.value) < sectors_;
        if (!held) misses_++;
        slot.value = misses_;
        return is_new ? first : held ? hit : again;
    }

  private:
    double sectors_;
    uint64_t misses_ = 0;
    Sectors at_;
};

/* Sectors of one parameter, read or written: 1 + the run of blocks that alone has it, 0: several.
 */
using Operand = Sectors;

struct Sums {
    double l2 = 0, again = 0;
    std::vector<Operand> operands[2]; /* read, written */
};

size_t parameter_of(const std::vector<uintptr_t> &pointers, uintptr_t address) {
    auto behind = std::upper_bound(pointers.begin(), pointers.end(), address + SECTOR - 1);
    return behind == pointers.begin() ? 0 : (size_t)(behind - pointers.begin()) - 1;
}

/* As if all threads went side by side: the first accesses of all, then their second ones. */
std::vector<Access> in_order(const std::vector<Access> &list) {
    uint32_t most = 0;
    for (const Access &access : list)
        most = std::max(most, access.number);
    std::vector<size_t> next((size_t)most + 2);
    for (const Access &access : list)
        next[access.number + 1]++;
    for (size_t i = 1; i < next.size(); i++)
        next[i] += next[i - 1];
    std::vector<Access> sorted(list.size());
    for (const Access &access : list)
        sorted[next[access.number]++] = access;
    return sorted;
}

void add_block(Sums &sums, Tracer &tracer, const std::vector<uintptr_t> &pointers, unsigned run,
               double l1_share, double l2_share) {
    Window l1(l1_share), l2(l2_share), stores(l1_share);
    for (const Access &access : in_order(tracer.accesses)) {
        if (access.written) {
            if (stores.touch(access.sector) != Window::hit) sums.l2 += SECTOR;
        } else {
            if (l1.touch(access.sector) != Window::hit) sums.l2 += SECTOR;
            if (l2.touch(access.sector) == Window::again) sums.again += SECTOR;
        }
        size_t parameter = parameter_of(pointers, access.sector * SECTOR);
        bool is_new;
        Sectors::Slot &slot =
            sums.operands[access.written][parameter].find(access.sector, run + 1, &is_new);
        if (slot.value != run + 1) slot.value = 0;
    }
    tracer.accesses.clear();
}

/* All sectors of a parameter, from those of the sample: what several runs share is there once. */
void add_part(Sampled &sampled, const Operand &operand, size_t pointer, uintptr_t address,
              bool written, double scale) {
    if (operand.empty()) return;
    uintptr_t least = UINTPTR_MAX, most = 0;
    double own = 0, common = 0;
    operand.each([&](const Sectors::Slot &slot) {
        least = std::min(least, slot.sector);
        most = std::max(most, slot.sector);
        (slot.value == 0 ? common : own) += SECTOR;
    });
    double extent = (double)((most - least + 1) * SECTOR);
    double bytes = std::min(common + own * scale, extent);
    sampled.parts.push_back({pointer, (double)(least * SECTOR) - (double)address, bytes, written});
    sampled.unique += bytes;
}

using Run = std::vector<unsigned>;

/* Runs of consecutive blocks all over the grid, the first and the last block among them. Of long
 * blocks, few: the first, the last, and pairs. */
std::vector<Run> choose(unsigned blocks, bool heavy) {
    std::vector<Run> runs;
    unsigned count = heavy ? HEAVY_RUNS : RUNS, length = heavy ? HEAVY_RUN : RUN;
    if (blocks <= (heavy ? HEAVY_RUNS * HEAVY_RUN : ALL_UP_TO)) {
        for (unsigned block = 0; block < blocks; block++)
            runs.push_back({block});
        return runs;
    }
    double room = (double)(blocks - length) / (count - 1);
    for (unsigned i = 0; i < count; i++) {
        bool at_end = i == 0 || i == count - 1;
        double jitter = at_end ? 0 : 0.618034 * i - (unsigned)(0.618034 * i) - 0.5;
        unsigned first = (unsigned)(((double)i + jitter) * room);
        Run run;
        for (unsigned k = 0; k < (heavy && at_end ? 1 : length); k++)
            run.push_back(heavy && i == count - 1 ? blocks - 1 : first + k);
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
    auto run_one = [&](unsigned run, unsigned block) {
        tracing = &tracer;
        run_block_of(launch, block, body);
        tracing = nullptr;
        add_block(sums, tracer, pointers, run, L1_BYTES / resident, L2_BYTES / together);
        std::memset(tracer.numbers, 0, sizeof tracer.numbers);
        sampled.blocks++;
    };
    run_one(0, 0); /* the first block is part of every choice */
    auto runs = choose(launch.blocks, tracer.touched > HEAVY);
    for (unsigned run = 0; run < runs.size(); run++)
        for (unsigned block : runs[run])
            if (block > 0) run_one(run, block);
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

template <typename T> static T counted_load(const T *address) {
    sim::count::access(address, sizeof *address, false);
    return __atomic_load_n(address, __ATOMIC_RELAXED);
}

template <typename T> static int counted_exchange(T *address, T *known, T value) {
    sim::count::access(address, sizeof *address, true);
    return __atomic_compare_exchange_n(address, known, value, false, __ATOMIC_RELAXED,
                                       __ATOMIC_RELAXED);
}

extern "C" {
void count_read_range(const void *pointer, unsigned long bytes) __asm__("__tsan_read_range");
void count_write_range(const void *pointer, unsigned long bytes) __asm__("__tsan_write_range");
int count_add(int *address, int value, int order) __asm__("__tsan_atomic32_fetch_add");
unsigned long long count_load(const unsigned long long *address,
                              int order) __asm__("__tsan_atomic64_load");
int count_exchange(unsigned long long *address, unsigned long long *known, unsigned long long value,
                   int succeeded, int failed) __asm__("__tsan_atomic64_compare_exchange_strong");
int count_exchange_weakly(unsigned long long *address, unsigned long long *known,
                          unsigned long long value, int succeeded,
                          int failed) __asm__("__tsan_atomic64_compare_exchange_weak");
unsigned count_load_32(const unsigned *address, int order) __asm__("__tsan_atomic32_load");
int count_exchange_32(unsigned *address, unsigned *known, unsigned value, int succeeded,
                      int failed) __asm__("__tsan_atomic32_compare_exchange_strong");
int count_exchange_weakly_32(unsigned *address, unsigned *known, unsigned value, int succeeded,
                             int failed) __asm__("__tsan_atomic32_compare_exchange_weak");
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
    return counted_load(address);
}
/* The product's check for values that are not finite alone exchanges 64 bits. Where some blocks run,
 * values mean nothing: what it finds must not stop the step. */
int count_exchange(unsigned long long *address, unsigned long long *, unsigned long long, int,
                   int) {
    sim::count::access(address, sizeof *address, true);
    return 1;
}
int count_exchange_weakly(unsigned long long *address, unsigned long long *known,
                          unsigned long long value, int succeeded, int failed) {
    return count_exchange(address, known, value, succeeded, failed);
}
unsigned count_load_32(const unsigned *address, int) {
    return counted_load(address);
}
int count_exchange_32(unsigned *address, unsigned *known, unsigned value, int, int) {
    return counted_exchange(address, known, value);
}
int count_exchange_weakly_32(unsigned *address, unsigned *known, unsigned value, int, int) {
    return counted_exchange(address, known, value);
}
unsigned char count_guard(const unsigned char *guard, int) { /* of a static variable */
    return __atomic_load_n(guard, __ATOMIC_ACQUIRE);
}
void count_nothing(void) {}
void count_entry(void *) {}
void count_exit(void) {}
}
