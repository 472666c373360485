/* SPDX-License-Identifier: Apache-2.0 */
/* Files that are not PyTorch's traces: what they are, and what reads them. For the files of this
 * room only. */
#ifndef DOCTOR_FOREIGN_FILES_H
#define DOCTOR_FOREIGN_FILES_H

#include <stddef.h>

#include "base/base.h"

/* By the first bytes of the file, unpacked. OK: they may be a trace. */
yoke_status foreign_bytes_check(const char *name, const char *text, size_t bytes);
/* By a member of the outermost object and its value. */
yoke_status foreign_member_check(const char *name, const char *key, const char *value,
                                 size_t bytes);

#endif
