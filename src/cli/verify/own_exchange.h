/* SPDX-License-Identifier: Apache-2.0 */
/* An exchange from a C file: its function all_reduce, as include/yoke/custom_exchange.h has it. */
#ifndef CLI_OWN_EXCHANGE_H
#define CLI_OWN_EXCHANGE_H

#include "yoke/yoke.h"

typedef struct own_exchange {
    yoke_custom_exchange exchange;
    void *library; /* NULL: none is open */
} own_exchange;

/* Compiles the file with cc, or $CC, into a folder that goes again, and opens it; or opens a shared
 * object, *.so. DATA: it does not compile, and the compiler has said why; or it has no all_reduce.
 * MISSING: there is no such file, no compiler or no header. */
yoke_status own_exchange_open(own_exchange *own, const char *path);
void own_exchange_close(own_exchange *own);

#endif
