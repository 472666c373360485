/* SPDX-License-Identifier: Apache-2.0 */
/* Memory spaces: a range of addresses per device. Every allocation ends at a page that no file
 * backs, as does a freed one: a touch raises SIGBUS. The seeded scheduler opens a range only while
 * work that may reach it runs: any other touch raises SIGSEGV. */
#ifndef SIMCUDA_MEMORY_H
#define SIMCUDA_MEMORY_H

#include <cstddef>
#include <cstdint>
#include <string>

#include "simcuda/sim.h"

namespace sim {

constexpr int DEVICES_LIMIT = 64; /* bits of a set of devices */
inline uint64_t device_bit(int device) {
    return (uint64_t)1 << device;
}

/* In an Entry. */
void *allocate_device(int device, size_t bytes); /* NULL: over the device's limit */
void free_device(void *pointer);                 /* a violation unless it was allocated */
void *allocate_pinned(size_t bytes);
void free_pinned(void *pointer);
size_t device_memory_used(int device);

/* Whose memory an address is. Pageable: nobody's but the program's. */
enum class Place { pageable, pinned, device };
struct Address {
    Place place;
    int device; /* -1 for host memory */
};
Address find_address(const void *pointer);
/* Of one live allocation or piece of pinned memory; a violation naming `what` otherwise. */
void check_bounds(const void *pointer, size_t bytes, const char *what);
std::string describe_address(const void *pointer); /* of device memory, for reports */

/* Of all its allocations, from a page to a page behind. */
void device_memory_range(int device, uintptr_t *from, uintptr_t *end);

/* Peer access, and what `device` may touch. */
bool set_peer_access(int device, int peer, bool enabled); /* false: it was so before */
bool has_peer_access(int device, int peer);
uint64_t reach_of(int device);

/* The part of an allocation around `pointer`; false: there is none. */
bool open_memory(void *pointer);
/* What lies on none of these devices, everything. */
void close_memory_but(uint64_t devices);
void close_memory();

} // namespace sim

#endif
