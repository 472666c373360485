/* SPDX-License-Identifier: Apache-2.0 */
/* --straggler K:X of yoke train and yoke compare. */
#ifndef CLI_STRAGGLER_FLAG_H
#define CLI_STRAGGLER_FLAG_H

typedef struct straggler {
    int index;
    double factor; /* 0: none */
} straggler;

/* text: the option's, or NULL. -1, or the exit code behind a printed error. */
int straggler_read(straggler *read, const char *verb, const char *text);

#endif
