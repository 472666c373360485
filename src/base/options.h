/* SPDX-License-Identifier: Apache-2.0 */
/* The caller's structs. They begin with struct_size, and fields are only appended: a field whose
 * default is not zero gets it from the struct's INIT macro. */
#ifndef BASE_OPTIONS_H
#define BASE_OPTIONS_H

#include <stddef.h>
#include <sys/types.h>

#include "yoke/status.h"

/* Copies the caller's options over zeroed `own`: min(caller, library) bytes. ARGUMENT when
 * struct_size is 0 or when a newer caller sets a field this library does not know. NULL `given`
 * leaves all zero. Likewise yoke_options_store writes into a caller's struct: never beyond what
 * this library knows of it, since struct_size may be there by chance. */
yoke_status yoke_options_load(void *own, size_t own_size, const void *given, const char *type_name);
yoke_status yoke_options_store(void *given, const void *own, size_t own_size,
                               const char *type_name);

/* ARGUMENT when a pointer that must be given is NULL; `name` as the header calls it. */
yoke_status yoke_pointer_check(const void *given, const char *name);
/* ARGUMENT: this process is a fork of `process`, which made `what` and has its threads. */
yoke_status yoke_process_check(pid_t process, const char *what);

#endif
