/* The record of measured choices: a short list. The search is linear, since only planning reads
 * it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device/device.h"

typedef struct choice {
    char *key, *name;
    int candidate;
    double milliseconds;
} choice;

struct yoke_choices {
    choice *rows;
    int count, capacity;
};

yoke_status yoke_choices_create(yoke_choices **choices) {
    *choices = calloc(1, sizeof **choices);
    if (*choices == NULL) return FAIL_MEMORY(sizeof **choices, "the record of choices");
    return YOKE_OK;
}

void yoke_choices_destroy(yoke_choices *choices) {
    if (choices == NULL) return;
    for (int i = 0; i < choices->count; i++) {
        free(choices->rows[i].key);
        free(choices->rows[i].name);
    }
    free(choices->rows);
    free(choices);
}

int yoke_choices_find(const yoke_choices *choices, const char *key) {
    for (int i = 0; i < choices->count; i++) {
        if (strcmp(choices->rows[i].key, key) == 0) return choices->rows[i].candidate;
    }
    return -1;
}

static yoke_status grow(yoke_choices *choices) {
    int capacity = choices->capacity > 0 ? 2 * choices->capacity : 32;
    choice *rows = realloc(choices->rows, (size_t)capacity * sizeof *rows);
    if (rows == NULL) return FAIL_MEMORY((size_t)capacity * sizeof *rows, "the record of choices");
    choices->rows = rows;
    choices->capacity = capacity;
    return YOKE_OK;
}

yoke_status yoke_choices_add(yoke_choices *choices, const char *key, int candidate,
                             const char *candidate_name, double milliseconds) {
    if (choices->count == choices->capacity) TRY(grow(choices));
    choice row = {strdup(key), strdup(candidate_name), candidate, milliseconds};
    if (row.key == NULL || row.name == NULL) {
        free(row.key);
        free(row.name);
        return FAIL_MEMORY(strlen(key) + strlen(candidate_name) + 2, "the record of choices");
    }
    choices->rows[choices->count++] = row;
    return YOKE_OK;
}

bool yoke_choices_at(const yoke_choices *choices, int index, const char **key, const char **name,
                     double *milliseconds) {
    if (index < 0 || index >= choices->count) return false;
    const choice *row = &choices->rows[index];
    *key = row->key;
    *name = row->name;
    *milliseconds = row->milliseconds;
    return true;
}

yoke_status yoke_choices_write(const yoke_choices *choices, char **text) {
    size_t bytes;
    FILE *file = open_memstream(text, &bytes);
    if (file == NULL) return FAIL_MEMORY(4096, "the record of choices");
    for (int i = 0; i < choices->count; i++) {
        const choice *row = &choices->rows[i];
        fprintf(file, "%d\t%.9g\t%s\t%s\n", row->candidate, row->milliseconds, row->name, row->key);
    }
    return fclose(file) == 0 ? YOKE_OK : FAIL_MEMORY(bytes, "the record of choices");
}

yoke_status yoke_choices_read(yoke_choices *choices, char *text) {
    char *rest = NULL;
    for (char *line = strtok_r(text, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
        char *at = line, *fields[4] = {NULL};
        for (int i = 0; i < 4; i++)
            fields[i] = strsep(&at, "\t");
        if (fields[3] == NULL) return FAIL(YOKE_ERROR_PEER, "a record of choices has no key");
        TRY(yoke_choices_add(choices, fields[3], atoi(fields[0]), fields[2], atof(fields[1])));
    }
    return YOKE_OK;
}
