/* SPDX-License-Identifier: Apache-2.0 */
/* An exchange in Python: all_reduce(bucket) of a file, run by python3 in a process of its own. */
#ifndef CLI_OWN_PYTHON_H
#define CLI_OWN_PYTHON_H

#include "yoke/yoke.h"

typedef struct own_python own_python;

/* MISSING: there is no python3. DATA: the file is no Python, or has no all_reduce; the text says
 * what Python says. */
yoke_status own_python_open(own_python **python, const char *path);
void own_python_close(own_python *python); /* takes NULL */
/* A yoke_custom_exchange.all_reduce, whose payload is an own_python. */
yoke_status own_python_all_reduce(void *payload, const yoke_bucket_gradients *bucket);

#endif
