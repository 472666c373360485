/* SPDX-License-Identifier: Apache-2.0 */
/* An allocator that counts calls and fails the chosen one, over the C library's. It counts calls
 * of oneDNN and its libraries apart and never fails them: oneDNN 2 makes a small map of arguments
 * at every execution. Nor those of Jansson 2.14: where the buffer of its lexer cannot grow, it
 * loses a byte of the string and may then read past its end. For one file a program. */
#ifndef FAILING_ALLOCATOR_H
#define FAILING_ALLOCATOR_H

#include <dlfcn.h>
#include <errno.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

__attribute__((unused)) static unsigned long own_allocations, foreign_allocations;
__attribute__((unused)) static unsigned long fail_at; /* the own allocation that fails; 0: none */
__attribute__((unused)) static long own_living;

#ifndef __has_feature
#define __has_feature(name) 0
#endif
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) ||                               \
    __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define COUNTS 0 /* the sanitizer owns the allocator */
#else
#define COUNTS 1

void *__libc_malloc(size_t bytes);
void *__libc_calloc(size_t count, size_t bytes);
void *__libc_realloc(void *memory, size_t bytes);
void *__libc_memalign(size_t alignment, size_t bytes);
void __libc_free(void *memory);

/* Own blocks alive, by address: who frees one can't be told from the caller of free, which may be
 * whoever called the library that jumped there. */
enum { OWN_SLOTS = 1 << 16 };
static void *own_blocks[OWN_SLOTS];
static atomic_flag own_blocks_taken = ATOMIC_FLAG_INIT;

/* Puts `after` in the place of the first slot that holds `before`; false: no slot does. */
static bool exchange_block(void *before, void *after, const void *address) {
    bool found = false;
    while (atomic_flag_test_and_set(&own_blocks_taken)) {
    }
    size_t start = (uintptr_t)address / 16 * 2654435761u % OWN_SLOTS;
    for (size_t i = 0; i < 64 && !found; i++) {
        void **slot = &own_blocks[(start + i) % OWN_SLOTS];
        found = *slot == before;
        if (found) *slot = after;
    }
    atomic_flag_clear(&own_blocks_taken);
    return found;
}

static void *add_block(void *memory) {
    if (memory == NULL) return NULL;
    if (!exchange_block(NULL, memory, memory)) abort();
    __atomic_fetch_add(&own_living, 1, __ATOMIC_SEQ_CST);
    return memory;
}

static bool remove_block(void *memory) {
    bool own = memory != NULL && exchange_block(memory, NULL, memory);
    if (own) __atomic_fetch_sub(&own_living, 1, __ATOMIC_SEQ_CST);
    return own;
}

static bool is_foreign(const void *caller) {
    static const char *const foreign[] = {"libdnnl", "libstdc++", "libgomp", "ld-linux",
                                          "libjansson"};
    Dl_info info = {0};
    if (dladdr(caller, &info) == 0 || info.dli_fname == NULL) return false;
    for (size_t i = 0; i < sizeof foreign / sizeof foreign[0]; i++)
        if (strstr(info.dli_fname, foreign[i]) != NULL) return true;
    return false;
}

typedef enum verdict { FOREIGN, OWN, FAILS } verdict;

static verdict judge(const void *caller) {
    if (is_foreign(caller)) {
        __atomic_fetch_add(&foreign_allocations, 1, __ATOMIC_RELAXED);
        return FOREIGN;
    }
    unsigned long number = __atomic_add_fetch(&own_allocations, 1, __ATOMIC_RELAXED);
    if (number != __atomic_load_n(&fail_at, __ATOMIC_RELAXED)) return OWN;
    errno = ENOMEM; /* opendir and others report it */
    return FAILS;
}

void *malloc(size_t bytes) {
    verdict call = judge(__builtin_return_address(0));
    if (call == FAILS) return NULL;
    return call == OWN ? add_block(__libc_malloc(bytes)) : __libc_malloc(bytes);
}

void *calloc(size_t elements, size_t bytes) {
    verdict call = judge(__builtin_return_address(0));
    if (call == FAILS) return NULL;
    return call == OWN ? add_block(__libc_calloc(elements, bytes)) : __libc_calloc(elements, bytes);
}

void *realloc(void *memory, size_t bytes) {
    verdict call = judge(__builtin_return_address(0));
    if (call == FAILS) return NULL;
    bool own = memory == NULL ? call == OWN : remove_block(memory);
    void *moved = __libc_realloc(memory, bytes);
    return own ? add_block(moved) : moved;
}

void *aligned_alloc(size_t alignment, size_t bytes) {
    verdict call = judge(__builtin_return_address(0));
    if (call == FAILS) return NULL;
    return call == OWN ? add_block(__libc_memalign(alignment, bytes))
                       : __libc_memalign(alignment, bytes);
}

int posix_memalign(void **memory, size_t alignment, size_t bytes) {
    verdict call = judge(__builtin_return_address(0));
    *memory = call == FAILS ? NULL : __libc_memalign(alignment, bytes);
    if (call == OWN) add_block(*memory);
    return *memory != NULL ? 0 : ENOMEM;
}

void free(void *memory) {
    remove_block(memory);
    __libc_free(memory);
}
#endif

/* The compiler knows that malloc changes no variable; ours does. */
static inline unsigned long counted(const unsigned long *counter) {
    return __atomic_load_n(counter, __ATOMIC_SEQ_CST);
}

#endif
