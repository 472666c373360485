/* SPDX-License-Identifier: Apache-2.0 */
/* An allocator for yoke_set_allocator that fails the chosen allocation, counts the blocks that
 * live, and ends the process where the library breaks the rules of allocator.h. */
#ifndef FAILING_HOOK_H
#define FAILING_HOOK_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "yoke/allocator.h"

/* Under a sanitizer: where the program is. */
extern void __sanitizer_print_stack_trace(void) __attribute__((weak));

typedef struct failing_hook {
    atomic_ulong count;  /* allocations since `failing_hook_arm` */
    atomic_ulong failed; /* how many of them failed */
    atomic_long living;  /* blocks */
    unsigned long at;    /* the one that fails; 0: none */
    bool onwards;        /* all after it fail, too */
    bool traced;         /* print where each failed */
} failing_hook;

static failing_hook hook;

enum { HOOK_ALIVE = 0x59416c69, HOOK_FREED = 0x59467265 };

/* Before each block, at the end of a gap as long as its alignment. */
typedef struct hook_header {
    size_t alignment, bytes;
    uint32_t state;
} hook_header;
enum { HOOK_GAP = 32 };
_Static_assert(sizeof(hook_header) <= HOOK_GAP, "a header fits its gap");

static inline void hook_expect(bool right, const char *rule) {
    if (right) return;
    fprintf(stderr, "the library breaks a rule of allocator.h: %s\n", rule);
    abort();
}

static inline size_t gap_of(size_t alignment) {
    return alignment > HOOK_GAP ? alignment : HOOK_GAP;
}

static inline hook_header *header_of(void *memory) {
    return (hook_header *)((char *)memory - HOOK_GAP);
}

static inline bool hook_fails(void) {
    unsigned long number = atomic_fetch_add(&hook.count, 1) + 1;
    if (hook.at == 0 || number < hook.at || (number > hook.at && !hook.onwards)) return false;
    atomic_fetch_add(&hook.failed, 1);
    if (hook.traced && __sanitizer_print_stack_trace != NULL) __sanitizer_print_stack_trace();
    return true;
}

static inline void *hook_take(size_t alignment, size_t bytes) {
    size_t gap = gap_of(alignment);
    char *start = NULL;
    if (posix_memalign((void **)&start, gap, gap + bytes) != 0) abort();
    *header_of(start + gap) = (hook_header){alignment, bytes, HOOK_ALIVE};
    memset(start + gap, 0xa5, bytes);
    atomic_fetch_add(&hook.living, 1);
    return start + gap;
}

static inline void hook_drop(void *memory) {
    hook_header *header = header_of(memory);
    size_t gap = gap_of(header->alignment);
    hook_expect(header->state == HOOK_ALIVE, "release: memory of allocate or resize");
    header->state = HOOK_FREED;
    atomic_fetch_sub(&hook.living, 1);
    free((char *)memory - gap);
}

static inline void *hook_allocate(void *payload, size_t alignment, size_t bytes) {
    hook_expect(payload == &hook, "the payload");
    hook_expect(bytes >= 1, "at least 1 byte");
    hook_expect(alignment >= 16 && (alignment & (alignment - 1)) == 0, "a power of two from 16 up");
    return hook_fails() ? NULL : hook_take(alignment, bytes);
}

static inline void *hook_resize(void *payload, void *memory, size_t bytes) {
    hook_expect(payload == &hook, "the payload");
    hook_expect(bytes >= 1, "at least 1 byte");
    hook_expect(memory != NULL && header_of(memory)->state == HOOK_ALIVE,
                "resize: memory of allocate or resize");
    hook_expect(header_of(memory)->alignment == 16, "resize: memory with alignment 16");
    if (hook_fails()) return NULL;
    size_t before = header_of(memory)->bytes;
    void *moved = hook_take(16, bytes);
    memcpy(moved, memory, before < bytes ? before : bytes);
    hook_drop(memory);
    return moved;
}

static inline void hook_release(void *payload, void *memory) {
    hook_expect(payload == &hook, "the payload");
    hook_expect(memory != NULL, "release: never NULL");
    hook_drop(memory);
}

static inline yoke_status failing_hook_install(void) {
    yoke_allocator allocator = {sizeof allocator, hook_allocate, hook_resize, hook_release, &hook};
    return yoke_set_allocator(&allocator);
}

/* Lets allocation `at` from now fail, and those after it, too, `onwards`; 0: none. */
static inline void failing_hook_arm(unsigned long at, bool onwards) {
    hook.at = 0;
    atomic_store(&hook.count, 0);
    atomic_store(&hook.failed, 0);
    hook.onwards = onwards;
    hook.at = at;
}

#endif
