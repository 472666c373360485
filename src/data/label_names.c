/* SPDX-License-Identifier: Apache-2.0 */
/* The classes of a column of labels. */
#include <stdlib.h>
#include <string.h>

#include "data/csv.h"

char *yoke_label_clean(char *text) {
    bool negative = *text == '-';
    char *digits = text + negative;
    size_t length = strspn(digits, "0123456789");
    char *behind = digits + length;
    if (length == 0) return text;
    if (*behind == '.' && behind[1 + strspn(behind + 1, "0")] == '\0') *behind = '\0';
    if (*behind != '\0') return text;
    while (digits[0] == '0' && digits[1] != '\0')
        digits++;
    if (!negative || digits[0] == '0') return digits;
    digits[-1] = '-';
    return digits - 1;
}

static bool is_number(const char *text) {
    const char *digits = text + (*text == '-');
    return *digits != '\0' && digits[strspn(digits, "0123456789")] == '\0';
}

static int by_bytes(const void *a, const void *b) {
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* Compares whole numbers of any length, written without leading zeros. */
static int by_number(const void *a, const void *b) {
    const char *one = *(char *const *)a, *other = *(char *const *)b;
    bool negative = *one == '-';
    if (negative != (*other == '-')) return negative ? -1 : 1;
    size_t length = strlen(one), other_length = strlen(other);
    int order = length != other_length ? (length < other_length ? -1 : 1) : strcmp(one, other);
    return negative ? -order : order;
}

yoke_status yoke_label_names_collect(yoke_label_names *names, char *const *labels, size_t rows) {
    *names = (yoke_label_names){.numbers = true};
    names->names = yoke_malloc((rows > 0 ? rows : 1) * sizeof *names->names);
    if (names->names == NULL) return FAIL_MEMORY(rows * sizeof *names->names, "names of classes");
    memcpy(names->names, labels, rows * sizeof *labels);
    qsort(names->names, rows, sizeof *names->names, by_bytes);
    for (size_t row = 0; row < rows; row++) {
        char *label = names->names[row];
        if (names->count > 0 && strcmp(names->names[names->count - 1], label) == 0) continue;
        names->names[names->count++] = label;
        names->numbers = names->numbers && is_number(label);
    }
    if (names->numbers) qsort(names->names, names->count, sizeof *names->names, by_number);
    return YOKE_OK;
}

int32_t yoke_label_names_find(const yoke_label_names *names, const char *label) {
    if (names->numbers && !is_number(label)) return -1;
    char **found = bsearch(&label, names->names, names->count, sizeof *names->names,
                           names->numbers ? by_number : by_bytes);
    return found != NULL ? (int32_t)(found - names->names) : -1;
}
