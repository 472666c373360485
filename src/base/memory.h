/* SPDX-License-Identifier: Apache-2.0 */
/* Host memory: malloc's, or that of the host program's allocator (yoke/allocator.h). The library
 * allocates by these functions alone; tests/house/symbols.py checks it. */
#ifndef BASE_MEMORY_H
#define BASE_MEMORY_H

#include <stddef.h>
#include <stdio.h>

#include "yoke/allocator.h"

/* As those of the C library. */
void *yoke_malloc(size_t bytes) __attribute__((malloc));
void *yoke_calloc(size_t count, size_t size) __attribute__((malloc));
void *yoke_realloc(void *memory, size_t bytes);
void *yoke_aligned_alloc(size_t alignment, size_t bytes) __attribute__((malloc));
char *yoke_strdup(const char *text);
char *yoke_strndup(const char *text, size_t most);
void yoke_free(void *memory);

/* The text that printf would write; NULL: there is no memory. */
char *yoke_format(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* As open_memstream: *text and *bytes are set when the stream is flushed or closed. NULL: there is
 * no memory. Where memory for a part was missing, fclose fails, *text is NULL,
 * and *bytes what was missing. */
FILE *yoke_memory_stream(char **text, size_t *bytes);

#endif
