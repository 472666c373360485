/* SPDX-License-Identifier: Apache-2.0 */
/* Words that one thread writes and any thread, and any signal handler, reads at any time. The
 * writer writes one of two copies, then says which is the newest: it never waits for a reader, and
 * a signal handler on its own thread reads the older one. */
#ifndef BASE_SHOWN_STRUCT_H
#define BASE_SHOWN_STRUCT_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

/* The two copies of a struct of `bytes` bytes; zeroed, the struct is. */
#define YOKE_PUBLISHED(bytes)                                                                      \
    struct {                                                                                       \
        _Atomic uint32_t newest; /* modulo 2, the copy to read */                                  \
        _Atomic uint64_t copies[2][(bytes) / sizeof(uint64_t)];                                    \
        _Static_assert((bytes) % sizeof(uint64_t) == 0, "a whole number of words");                \
    }
#define YOKE_PUBLISH(own, now)                                                                     \
    yoke_published_write(&(own)->newest, (own)->copies[0], sizeof(own)->copies[0], (now))
#define YOKE_PUBLISHED_READ(own, now)                                                              \
    yoke_published_read(&(own)->newest, (own)->copies[0], sizeof(own)->copies[0], (now))

/* copies: [2 * bytes]. */
void yoke_published_write(_Atomic uint32_t *newest, _Atomic uint64_t *copies, size_t bytes,
                          const void *now);
void yoke_published_read(const _Atomic uint32_t *newest, const _Atomic uint64_t *copies,
                         size_t bytes, void *now);

#endif
