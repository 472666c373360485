/* SPDX-License-Identifier: Apache-2.0 */
/* Names from a trace, so that they steer no terminal. For the files of this room only. */
#ifndef DOCTOR_PRINTABLE_H
#define DOCTOR_PRINTABLE_H

#include <stddef.h>

/* Copies `name`; control characters, marks that change the direction of writing and bytes that are
 * not UTF-8 become \u202e. Cuts off what does not fit. */
void doctor_copy_printable(char *to, size_t size, const char *name);

#endif
