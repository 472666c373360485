/* SPDX-License-Identifier: Apache-2.0 */
/* Names of classes, as the archives of CIFAR bring them: a line for each class. */
#include <stdlib.h>
#include <string.h>

#include "data/data.h"

#define NAMES_FILE_LIMIT ((size_t)1 << 20)

/* Ends the line at `line` without the spaces behind it; returns the next one. */
static char *cut_line(char *line) {
    char *end = line + strcspn(line, "\n"), *next = *end == '\n' ? end + 1 : end;
    while (end > line && (end[-1] == ' ' || end[-1] == '\r'))
        end--;
    *end = '\0';
    return next;
}

/* Whether the text has a name for each class and no more; empty lines do not count. */
static bool cut_names(char *text, const char **names, int classes) {
    int count = 0;
    for (char *line = text, *next; *line != '\0'; line = next) {
        next = cut_line(line);
        if (line[0] == '\0') continue;
        if (count == classes) return false;
        names[count++] = line;
    }
    return count == classes;
}

yoke_status yoke_class_names_read(yoke_dataset *dataset, const char *directory, const char *name) {
    char path[YOKE_DATA_PATH_BYTES];
    unsigned char *text;
    size_t bytes;
    TRY(yoke_data_path(path, directory, name));
    if (!yoke_file_exists(path)) return YOKE_OK;
    TRY(yoke_file_read(path, NAMES_FILE_LIMIT, &text, &bytes)); /* with a closing NUL */
    dataset->owned[2] = text;
    const char **names = yoke_calloc((size_t)dataset->classes, sizeof *names);
    if (names == NULL) return FAIL_MEMORY((size_t)dataset->classes * sizeof *names, path);
    dataset->owned[3] = names;
    if (cut_names((char *)text, names, dataset->classes)) dataset->class_names = names;
    return YOKE_OK;
}
