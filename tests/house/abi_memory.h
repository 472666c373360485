/* SPDX-License-Identifier: Apache-2.0 */
/* abi_host.c's own memory for the library. */
#include <stdlib.h>

static size_t abi_allocations;

static void *abi_allocate(void *payload, size_t alignment, size_t bytes) {
    (void)payload;
    abi_allocations++;
    return aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
}

static void *abi_resize(void *payload, void *memory, size_t bytes) {
    (void)payload;
    return realloc(memory, bytes);
}

static void abi_release(void *payload, void *memory) {
    (void)payload;
    free(memory);
}

static void use_allocator(void) {
    yoke_allocator allocator = YOKE_ALLOCATOR_INIT;
    allocator.allocate = abi_allocate;
    allocator.resize = abi_resize;
    allocator.release = abi_release;
    must(yoke_set_allocator(&allocator));
}
