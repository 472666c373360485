/* SPDX-License-Identifier: Apache-2.0 */
/** @file
 * Memory from the host program.
 */
#ifndef YOKE_ALLOCATOR_H
#define YOKE_ALLOCATOR_H

#include <stddef.h>

#include "yoke/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/** Where the library's host memory comes from: that of CPU devices, and all that it keeps itself.
 * Any thread calls these functions, several at once. They must not call the library.
 *
 * oneDNN, NCCL, cuDNN, the C library (streams, threads) and the decoders of images and archives
 * allocate by themselves. */
typedef struct yoke_allocator {
    size_t struct_size; /**< sizeof(yoke_allocator). */
    /** Returns `bytes` bytes, at least 1, at a multiple of `alignment`, a power of two from 16 up;
     * NULL: there is no memory, and the call of the library returns MEMORY. */
    void *(*allocate)(void *payload, size_t alignment, size_t bytes);
    /** Resizes memory of `allocate` with alignment 16, which may move, as realloc does; NULL: there
     * is no memory, and the old memory stays. */
    void *(*resize)(void *payload, void *memory, size_t bytes);
    /** Frees memory of either, never NULL. */
    void (*release)(void *payload, void *memory);
    void *payload; /**< Passed to all three; must outlive the process's use of the library. */
} yoke_allocator;

/** Nothing is set; set the three functions. */
#define YOKE_ALLOCATOR_INIT                                                                        \
    { sizeof(yoke_allocator), NULL, NULL, NULL, NULL }

/** Gives the library an allocator, for the rest of the process. Call it before every other call of
 * the library but those of status.h: an allocator must free what it allocated. Without it the
 * library uses malloc.
 *
 * @param allocator  Copied; every function must be set.
 * @return ARGUMENT: a function is NULL, struct_size is wrong, or the library has allocated memory
 *         already.
 */
YOKE_API yoke_status yoke_set_allocator(const yoke_allocator *allocator);

#ifdef __cplusplus
}
#endif

#endif
