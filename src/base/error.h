/* SPDX-License-Identifier: Apache-2.0 */
/* Errors: a status and one thread-local line. The function that knows the cause writes; its callers
 * pass it on. */
#ifndef BASE_ERROR_H
#define BASE_ERROR_H

#include "yoke/status.h"

#define YOKE_ERROR_TEXT_BYTES 1024

/* An error by value, to carry a failure from one thread to another. */
typedef struct yoke_error {
    yoke_status status;
    char text[YOKE_ERROR_TEXT_BYTES];
} yoke_error;

/* Writes the calling thread's line and returns `status`. */
yoke_status yoke_error_set(yoke_status status, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* A counter of the texts that the calling thread has written. Compare it before and after a call to
 * learn whether the call wrote one. */
unsigned yoke_error_serial(void);

/* Puts "prefix: " before the calling thread's line. */
void yoke_error_prefix(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Returns `status`; after MEMORY the calling thread's line ends with what may help. */
yoke_status yoke_memory_advice(yoke_status status, const char *advice);

/* Around a callback of the host program, WHO: forget drops the text, so that the text after the
 * call is the callback's. of_host returns `status`; a failure's text becomes "WHO: text", or "WHO
 * returned YOKE_ERROR_..." where the callback wrote none. */
void yoke_error_forget(void);
yoke_status yoke_error_of_host(yoke_status status, const char *who);

/* The calling thread's error as a value, and back (cleaning up may fail too and overwrite the
 * line). */
yoke_error yoke_error_take(yoke_status status);
yoke_status yoke_error_restore(const yoke_error *error);

/* return FAIL(YOKE_ERROR_DATA, "%s: 17 bytes at offset %zu, a record has 3073", path, offset); */
#define FAIL(status, ...) yoke_error_set((status), __VA_ARGS__)

#define FAIL_MEMORY(bytes, what)                                                                   \
    yoke_error_set(YOKE_ERROR_MEMORY, "out of memory: %zu bytes for %s", (size_t)(bytes), (what))

#define TRY(call)                                                                                  \
    do {                                                                                           \
        yoke_status try_status_ = (call);                                                          \
        if (try_status_ != YOKE_OK) return try_status_;                                            \
    } while (0)

#endif
