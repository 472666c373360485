/* SPDX-License-Identifier: Apache-2.0 */
/* An exchange from a file of C or Python: its function all_reduce, as
 * include/yoke/custom_exchange.h has it. */
#ifndef CLI_OWN_EXCHANGE_H
#define CLI_OWN_EXCHANGE_H

#include "cli/verify/own_python.h"

typedef struct own_exchange {
    yoke_custom_exchange exchange; /* all_reduce NULL: none is open */
    void *library;                 /* NULL: none */
    own_python *python;            /* likewise */
} own_exchange;

/* *.py: own_python.h. Otherwise it compiles the file with cc, or $CC, into a folder that goes
 * again, and opens it; or opens a shared object, *.so. DATA: it does not compile, and the compiler
 * has said why; or it has no all_reduce. MISSING: there is no such file, no compiler or no header.
 */
yoke_status own_exchange_open(own_exchange *own, const char *path);
bool own_exchange_is_python(const char *path);
void own_exchange_close(own_exchange *own);

#endif
