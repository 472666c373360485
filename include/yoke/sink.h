/* SPDX-License-Identifier: Apache-2.0 */
/** @file
 * Where the library writes a file that has no path: memory of the host program, a socket, a
 * database. The counterpart for reading is the whole file's bytes in memory.
 */
#ifndef YOKE_SINK_H
#define YOKE_SINK_H

#include <stddef.h>

#include "yoke/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/** Takes the bytes of a file. */
typedef struct yoke_sink {
    size_t struct_size; /**< sizeof(yoke_sink). */
    /** Gets the file's next `count` bytes, 1 or more; they are gone when it returns. The calling
     * thread calls it, as often as needed, and it must not use the engine. A status other than OK
     * ends the library's call with that status; yoke_error_raise gives it a text. What came before
     * is not a whole file then: keep nothing unless the library's call returns OK. */
    yoke_status (*write)(void *payload, const void *bytes, size_t count);
    void *payload; /**< Passed to write. */
} yoke_sink;

/** Nothing is set; set write. */
#define YOKE_SINK_INIT                                                                             \
    { sizeof(yoke_sink), NULL, NULL }

#ifdef __cplusplus
}
#endif

#endif
