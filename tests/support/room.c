/* SPDX-License-Identifier: Apache-2.0 */
/* A folder's program: runs the test of one subject, `tests_data loader`. CMake writes groups.h, a
 * GROUP for each. */
#include <stdio.h>
#include <string.h>

#define GROUP(subject) int main_of_##subject(void);
#include "groups.h"
#undef GROUP

static const struct {
    const char *subject;
    int (*run)(void);
} groups[] = {
#define GROUP(subject) {#subject, main_of_##subject},
#include "groups.h"
};

int main(int count, char **words) {
    for (size_t i = 0; count == 2 && i < sizeof groups / sizeof *groups; i++)
        if (strcmp(words[1], groups[i].subject) == 0) return groups[i].run();
    fprintf(stderr, "usage: %s SUBJECT, one of these:", words[0]);
    for (size_t i = 0; i < sizeof groups / sizeof *groups; i++)
        fprintf(stderr, " %s", groups[i].subject);
    fputc('\n', stderr);
    return 2;
}
