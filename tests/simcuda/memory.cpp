/* SPDX-License-Identifier: Apache-2.0 */
/* Arenas: where device memory lies, what is live, freed and open. */
#include "simcuda/memory.h"

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <sys/mman.h>
#include <unistd.h>

#include "simcuda/fault_signal.h"
#include "simcuda/handles.h"
#include "simcuda/lock.h"

extern "C" {
__attribute__((weak)) void __asan_poison_memory_region(const volatile void *address, size_t bytes);
__attribute__((weak)) void __asan_unpoison_memory_region(const volatile void *address,
                                                         size_t bytes);
}

namespace sim {
namespace {

constexpr size_t PAGE = 4096, ALIGNMENT = 256, PIECE = (size_t)2 << 20;
/* A NaN when read as float, bfloat16 and double, and an index far out of range. */
constexpr uint16_t UNSET = 0x7ff4;

struct Allocation {
    uintptr_t pages; /* the first */
    size_t bytes;    /* asked for */
    size_t padded;   /* up to the closed page behind */
    size_t end(uintptr_t start) const { return start + padded + PAGE; }
};
using Allocations = std::map<uintptr_t, Allocation>; /* by start */

struct Pages {
    int device;
    uintptr_t from;
    size_t bytes;
};

struct Arena {
    char *base = nullptr; /* NULL: nothing allocated so far */
    size_t bytes = 0, used = 0;
    uintptr_t next = 0; /* where to look first */
    Allocations live, freed;
    uint64_t peers = 0; /* whose memory this device may touch */
};

struct Memory {
    Arena arenas[DEVICES_LIMIT];
    std::map<uintptr_t, size_t> pinned;
    std::vector<Pages> open; /* under the seeded scheduler */
    int unset = -1;          /* a file full of UNSET */
};

Memory &memory() {
    static Memory *const all = new Memory;
    return *all;
}

size_t round_up(size_t value, size_t to) {
    return (value + to - 1) / to * to;
}

[[noreturn]] void out_of_host(const char *what, size_t bytes) {
    violation("the host has no %zu bytes for %s: %s", bytes, what, strerror(errno));
}

void *map(void *at, size_t bytes, int protection, int flags, int file) {
    void *got = mmap(at, bytes, protection, flags | MAP_NORESERVE, file, 0);
    if (got == MAP_FAILED) out_of_host("a device's memory", bytes);
    return got;
}

int open_unset() {
    int file = memfd_create("simcuda-unset", MFD_CLOEXEC);
    if (file < 0 || ftruncate(file, PIECE) != 0) out_of_host("a file in memory", PIECE);
    uint16_t *values = (uint16_t *)map(nullptr, PIECE, PROT_READ | PROT_WRITE, MAP_SHARED, file);
    for (size_t i = 0; i < PIECE / sizeof *values; i++)
        values[i] = UNSET;
    munmap(values, PIECE);
    return file;
}

void *map_nothing(void *at, size_t bytes) {
    int fixed = at != nullptr ? MAP_FIXED : 0;
    return map(at, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | fixed, -1);
}

Pages pages_of(int device, const Allocation &allocation) {
    return {device, allocation.pages, round_up(allocation.padded, PAGE)};
}

/* Opening and closing all pages of a large allocation takes long: a part of it. */
Pages window_of(const Pages &all, uintptr_t address) {
    size_t offset = (address - all.from) / PIECE * PIECE;
    return {all.device, all.from + offset, std::min(PIECE, all.bytes - offset)};
}

void protect(const Pages &pages, int protection) {
    if (mprotect((void *)pages.from, pages.bytes, protection) != 0)
        violation("mprotect of device memory: %s", strerror(errno));
}

/* Four times what the device may hold, so that freed addresses are not soon given out again. */
void reserve(Arena &arena) {
    if (arena.base != nullptr) return;
    if (memory().unset < 0) memory().unset = open_unset();
    arena.bytes = round_up(4 * settings().memory_bytes, PIECE) + PIECE;
    arena.base = (char *)map_nothing(nullptr, arena.bytes);
    arena.next = (uintptr_t)arena.base;
}

/* First gap of so many bytes from `at` on; 0: none. */
uintptr_t find_gap(const Arena &arena, uintptr_t at, size_t bytes) {
    auto behind = arena.live.lower_bound(at);
    if (behind != arena.live.begin()) {
        auto before = std::prev(behind);
        at = std::max(at, (uintptr_t)before->second.end(before->first));
    }
    for (; behind != arena.live.end() && behind->second.pages < at + bytes; ++behind)
        at = behind->second.end(behind->first);
    return at + bytes <= (uintptr_t)arena.base + arena.bytes ? at : 0;
}

void forget_freed(Arena &arena, uintptr_t from, uintptr_t to) {
    auto at = arena.freed.lower_bound(from);
    if (at != arena.freed.begin() && std::prev(at)->second.end(std::prev(at)->first) > from) --at;
    while (at != arena.freed.end() && at->second.pages < to)
        at = arena.freed.erase(at);
}

/* Private pages of the file of UNSET: nothing is written, nor takes memory, before the device does.
 */
void map_unset(uintptr_t from, size_t bytes) {
    if (settings().count) { /* zeros, which no kernel goes astray with, and open */
        map((void *)from, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED,
            -1);
        return;
    }
    int protection = settings().threads ? PROT_READ | PROT_WRITE : PROT_NONE;
    for (size_t done = 0; done < bytes; done += PIECE) {
        size_t piece = bytes - done < PIECE ? bytes - done : PIECE;
        map((void *)(from + done), piece, protection, MAP_PRIVATE | MAP_FIXED, memory().unset);
    }
}

uintptr_t place(Arena &arena, Allocation &allocation) {
    size_t pages = round_up(allocation.padded, PAGE);
    uintptr_t at = find_gap(arena, arena.next, pages + PAGE);
    if (at == 0) at = find_gap(arena, (uintptr_t)arena.base, pages + PAGE);
    if (at == 0) return 0;
    allocation.pages = at;
    forget_freed(arena, at, at + pages + PAGE);
    map_unset(at, pages);
    arena.next = at + pages + PAGE;
    return at + pages - allocation.padded;
}

const Allocations::value_type *containing(const Allocations &allocations, uintptr_t address) {
    auto behind = allocations.upper_bound(address);
    if (behind == allocations.begin()) return nullptr;
    const auto &found = *std::prev(behind);
    return address < found.second.end(found.first) ? &found : nullptr;
}

bool holds(const Arena &arena, uintptr_t address) {
    return address >= (uintptr_t)arena.base && address < (uintptr_t)arena.base + arena.bytes;
}

/* What lies between the end that was asked for and the closed page. */
void check_padding(uintptr_t start, const Allocation &allocation) {
    if (__asan_poison_memory_region != nullptr || settings().count) return;
    const unsigned char *bytes = (const unsigned char *)start;
    for (size_t i = allocation.bytes; i < allocation.padded; i++)
        if (bytes[i] != (i % 2 == 0 ? UNSET & 0xff : UNSET >> 8))
            violation("byte %zu was written behind the %zu bytes of cudaMalloc'ed %p", i,
                      allocation.bytes, (const void *)start);
}

} // namespace

void *allocate_device(int device, size_t bytes) {
    Arena &arena = memory().arenas[device];
    reserve(arena);
    watch_for_faults();
    size_t padded = round_up(bytes, ALIGNMENT), limit = settings().memory_bytes;
    if (bytes > limit || arena.used + padded > limit) return nullptr;
    Allocation allocation = {0, bytes, padded};
    uintptr_t start = place(arena, allocation);
    if (start == 0) return nullptr;
    arena.live[start] = allocation;
    arena.used += padded;
    if (__asan_poison_memory_region != nullptr)
        __asan_poison_memory_region((void *)(start + bytes), padded - bytes);
    char kind[80];
    snprintf(kind, sizeof kind, "%zu bytes of device %d", bytes, device);
    adopt((void *)start, kind);
    return (void *)start;
}

void free_device(void *pointer) {
    Address address = find_address(pointer);
    if (address.place != Place::device)
        violation("cudaFree of %p, which cudaMalloc never gave", pointer);
    Arena &arena = memory().arenas[address.device];
    auto found = arena.live.find((uintptr_t)pointer);
    if (found == arena.live.end()) {
        if (arena.freed.count((uintptr_t)pointer))
            violation("cudaFree of %p, which is free already", pointer);
        violation("cudaFree of %p, which lies within memory of device %d but is the start of no "
                  "allocation",
                  pointer, address.device);
    }
    Allocation allocation = found->second;
    close_memory();
    protect(pages_of(address.device, allocation), PROT_READ | PROT_WRITE);
    check_padding(found->first, allocation);
    if (__asan_unpoison_memory_region != nullptr)
        __asan_unpoison_memory_region(pointer, allocation.padded);
    map_nothing((void *)allocation.pages, round_up(allocation.padded, PAGE));
    arena.used -= allocation.padded;
    arena.freed[found->first] = allocation;
    arena.live.erase(found);
    disown(pointer);
}

void *allocate_pinned(size_t bytes) {
    void *pointer = nullptr;
    if (posix_memalign(&pointer, PAGE, bytes) != 0) return nullptr;
    for (size_t i = 0; i < bytes; i++)
        ((unsigned char *)pointer)[i] = (unsigned char)(i % 2 == 0 ? UNSET & 0xff : UNSET >> 8);
    memory().pinned[(uintptr_t)pointer] = bytes;
    adopt(pointer, "pinned host memory");
    return pointer;
}

void free_pinned(void *pointer) {
    if (memory().pinned.erase((uintptr_t)pointer) == 0)
        violation("cudaFreeHost of %p, which is no pinned memory, or was freed before", pointer);
    disown(pointer);
    free(pointer);
}

size_t device_memory_used(int device) {
    return memory().arenas[device].used;
}

Address find_address(const void *pointer) {
    uintptr_t address = (uintptr_t)pointer;
    for (int device = 0; device < DEVICES_LIMIT; device++) /* and contexts of the driver */
        if (holds(memory().arenas[device], address)) return {Place::device, device};
    const auto &pinned = memory().pinned;
    auto behind = pinned.upper_bound(address);
    if (behind != pinned.begin() && address < std::prev(behind)->first + std::prev(behind)->second)
        return {Place::pinned, -1};
    return {Place::pageable, -1};
}

void device_memory_range(int device, uintptr_t *from, uintptr_t *end) {
    const Arena &arena = memory().arenas[device];
    *from = (uintptr_t)arena.base;
    *end = *from + arena.bytes;
}

void check_bounds(const void *pointer, size_t bytes, const char *what) {
    Address address = find_address(pointer);
    if (address.place == Place::pageable || bytes == 0) return;
    if (address.place == Place::pinned) {
        const auto &found = *std::prev(memory().pinned.upper_bound((uintptr_t)pointer));
        if ((uintptr_t)pointer + bytes > found.first + found.second)
            violation("%s: %zu bytes at %p overrun the %zu bytes of pinned memory at %p", what,
                      bytes, pointer, found.second, (void *)found.first);
        return;
    }
    const Arena &arena = memory().arenas[address.device];
    const auto *live = containing(arena.live, (uintptr_t)pointer);
    if (live == nullptr)
        violation("%s: %p is %s memory of device %d", what, pointer,
                  containing(arena.freed, (uintptr_t)pointer) ? "freed" : "unallocated",
                  address.device);
    if ((uintptr_t)pointer + bytes > live->first + live->second.bytes)
        violation("%s: %zu bytes at %p overrun the %zu bytes of device %d at %p", what, bytes,
                  pointer, live->second.bytes, address.device, (void *)live->first);
}

int pointer_device(const void *pointer) {
    Entry entry;
    return find_address(pointer).device;
}

void check_range(int device, const void *pointer, size_t bytes, const char *what) {
    Entry entry;
    Address address = find_address(pointer);
    if (address.place == Place::pageable && bytes > 0)
        violation("%s: device %d is to touch %p, which is pageable host memory", what, device,
                  pointer);
    check_bounds(pointer, bytes, what);
    if (address.place == Place::device && !(reach_of(device) & device_bit(address.device)))
        violation("%s: device %d is to touch %p of device %d without peer access", what, device,
                  pointer, address.device);
}

std::string describe_address(const void *pointer) {
    Address address = find_address(pointer);
    if (address.place != Place::device) return "";
    const Arena &arena = memory().arenas[address.device];
    const auto *found = containing(arena.live, (uintptr_t)pointer);
    const char *state = "live";
    if (found == nullptr) {
        found = containing(arena.freed, (uintptr_t)pointer);
        state = "freed";
    }
    char text[160];
    if (found == nullptr)
        snprintf(text, sizeof text, "never allocated");
    else
        snprintf(text, sizeof text, "%zu bytes behind the start of %zu %s ones",
                 (uintptr_t)pointer - found->first, found->second.bytes, state);
    return text;
}

bool set_peer_access(int device, int peer, bool enabled) {
    uint64_t &peers = memory().arenas[device].peers, before = peers;
    peers = enabled ? peers | device_bit(peer) : peers & ~device_bit(peer);
    return peers != before;
}

bool has_peer_access(int device, int peer) {
    return memory().arenas[device].peers & device_bit(peer);
}

uint64_t reach_of(int device) {
    return device_bit(device) | memory().arenas[device].peers;
}

bool open_memory(void *pointer) {
    Address address = find_address(pointer);
    if (address.place != Place::device) return false;
    const auto *live = containing(memory().arenas[address.device].live, (uintptr_t)pointer);
    if (live == nullptr || (uintptr_t)pointer >= live->first + live->second.padded) return false;
    Pages window = window_of(pages_of(address.device, live->second), (uintptr_t)pointer);
    protect(window, PROT_READ | PROT_WRITE);
    memory().open.push_back(window);
    return true;
}

void close_memory_but(uint64_t devices) {
    auto &open = memory().open;
    auto closed = [devices](const Pages &one) {
        if (devices & device_bit(one.device)) return false;
        protect(one, PROT_NONE);
        return true;
    };
    open.erase(std::remove_if(open.begin(), open.end(), closed), open.end());
}

void close_memory() {
    if (!memory().open.empty()) close_memory_but(0);
}

} // namespace sim
