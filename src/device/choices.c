/* The record of measured choices: a short list. The search is linear, since only planning reads
 * it. */
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
