/* SPDX-License-Identifier: Apache-2.0 */
/* yoke lesson exchange FILE: grades an exchange that a student wrote. */
#ifndef CLI_LESSON_EXCHANGE_H
#define CLI_LESSON_EXCHANGE_H

#include "cli/lesson/lesson_ask.h"

/* Returns the exit code: 0 right, 1 wrong. */
int lesson_exchange(const char *path, const lesson_flags *flags);

#endif
