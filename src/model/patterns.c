/* SPDX-License-Identifier: Apache-2.0 */
/* Lists of patterns of tensor names: the shell's, with commas between them, as in
 * "layer1.*,*.bias". The names are sorted: a pattern is compared with those alone that begin and
 * end as it does. */
#include <fnmatch.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/graph.h"

#define PATTERN_BYTES 256
#define PIECE_BYTES 64
#define SPECIAL "*?[]\\"
#define TRIES_LIMIT ((size_t)1 << 24) /* some seconds */

/* Names. */

yoke_status yoke_names_create(yoke_names *names, int capacity) {
    size_t bytes = ((size_t)capacity + 1) * sizeof *names->sorted;
    *names = (yoke_names){.sorted = yoke_malloc(bytes)};
    return names->sorted != NULL ? YOKE_OK : FAIL_MEMORY(bytes, "names to compare with patterns");
}

void yoke_names_destroy(yoke_names *names) {
    yoke_free(names->sorted);
}

void yoke_names_add(yoke_names *names, const char *text, int index) {
    names->sorted[names->count++] = (yoke_name){text, strlen(text), index};
}

static int compare_names(const void *a, const void *b) {
    return strcmp(((const yoke_name *)a)->text, ((const yoke_name *)b)->text);
}

void yoke_names_sort(yoke_names *names) {
    qsort(names->sorted, (size_t)names->count, sizeof *names->sorted, compare_names);
}

/* The first name that is not before `text`, by bisection. */
static int lower_bound(const yoke_names *names, const char *text, size_t length) {
    int low = 0, high = names->count;
    while (low < high) {
        int middle = low + (high - low) / 2;
        if (strncmp(names->sorted[middle].text, text, length) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* Patterns. */

/* The first pattern of a list, cut where it is longer than any name; returns what follows its
 * comma, or NULL behind the last. */
static const char *next_pattern(const char *list, char pattern[PATTERN_BYTES]) {
    size_t length = strcspn(list, ",");
    snprintf(pattern, PATTERN_BYTES, "%.*s", (int)(length < PATTERN_BYTES ? length : PATTERN_BYTES),
             list);
    return list[length] == ',' ? list + length + 1 : NULL;
}

/* A pattern and the plain text that every name begins or ends with that it matches. */
typedef struct split_pattern {
    const char *text, *end;
    size_t front, back; /* bytes */
    bool plain;         /* it is a name */
} split_pattern;

static split_pattern split(const char *pattern) {
    size_t length = strlen(pattern);
    split_pattern parts = {pattern, pattern + length, strcspn(pattern, SPECIAL), 0, false};
    parts.plain = parts.front == length;
    while (parts.back < length && strchr(SPECIAL, parts.end[-1 - (ptrdiff_t)parts.back]) == NULL)
        parts.back++;
    return parts;
}

static bool matches(yoke_names *names, const split_pattern *pattern, const yoke_name *name) {
    if (pattern->plain) return name->length == pattern->front; /* it begins so */
    if (name->length < pattern->back || memcmp(name->text + name->length - pattern->back,
                                               pattern->end - pattern->back, pattern->back) != 0)
        return false;
    names->tries++;
    return fnmatch(pattern->text, name->text, 0) == 0;
}

/* Marks what the pattern matches and nobody has marked; whether it matches anything. */
static bool mark_names(yoke_names *names, const char *text, int mark, int *marks) {
    split_pattern pattern = split(text);
    bool found = false;
    for (int i = lower_bound(names, text, pattern.front); i < names->count; i++) {
        const yoke_name *name = &names->sorted[i];
        bool marked = marks[name->index] >= 0;
        if (strncmp(name->text, text, pattern.front) != 0) break;
        if ((pattern.plain && name->length > pattern.front) || names->tries > TRIES_LIMIT) break;
        if ((marked && found) || !matches(names, &pattern, name)) continue;
        found = true;
        if (!marked) marks[name->index] = mark;
    }
    return found;
}

yoke_status yoke_patterns_mark(yoke_names *names, const char *list, int mark, int *marks,
                               const char **unmatched) {
    char pattern[PATTERN_BYTES];
    *unmatched = NULL;
    for (const char *begin = list; begin != NULL; begin = list) {
        list = next_pattern(begin, pattern);
        bool found = strcspn(begin, ",") < PATTERN_BYTES && mark_names(names, pattern, mark, marks);
        if (names->tries > TRIES_LIMIT)
            return FAIL(YOKE_ERROR_ARGUMENT,
                        "pattern \"%.64s\": it and those before it have been compared with more "
                        "than %zu names; begin or end patterns with plain text, as \"layer1.*\" "
                        "and \"*.bias\" do, or make fewer of them",
                        pattern, TRIES_LIMIT);
        if (!found && *unmatched == NULL) *unmatched = begin;
    }
    return YOKE_OK;
}

/* A pattern that matches nothing. */

static size_t count_dots(const char *text) {
    size_t dots = 0;
    for (; *text != '\0'; text++)
        dots += *text == '.';
    return dots;
}

/* The first `dots` + 1 parts of a name, or the last ones. */
static void copy_parts(const char *name, bool front, size_t dots, char parts[PIECE_BYTES]) {
    size_t skipped = count_dots(name);
    skipped = front || skipped < dots ? 0 : skipped - dots;
    for (; skipped > 0; skipped--)
        name = strchr(name, '.') + 1;
    size_t length = 0;
    for (; name[length] != '\0' && length < PIECE_BYTES - 1; length++)
        if (name[length] == '.' && front && dots-- == 0) break;
    memcpy(parts, name, length);
    parts[length] = '\0';
}

yoke_status yoke_patterns_fail(const yoke_model *model, const char *what, const char *list) {
    char pattern[PATTERN_BYTES], plain[PIECE_BYTES];
    next_pattern(list, pattern);
    if (model->tensor_count == 0)
        return FAIL(YOKE_ERROR_ARGUMENT, "%s \"%s\": %s has no tensors", what, pattern,
                    model->name);
    bool front = strcspn(pattern, "*?[") > 0;
    size_t count = (size_t)model->tensor_count;
    char(*parts)[PIECE_BYTES] = yoke_calloc(count + 1, sizeof *parts);
    const char **names = yoke_calloc(count + 1, sizeof *names);
    const char *near = NULL;
    /* The plain text that a pattern begins with, or ends with: "layer1" of "layer1.*", "bias" of
     * "*.bias". */
    const char *begin = pattern, *wild;
    size_t length = strcspn(pattern, "*?[");
    if (!front) {
        while ((wild = strpbrk(begin, "*?[]")) != NULL)
            begin = wild + 1;
        begin += *begin == '.';
        length = strlen(begin);
    }
    if (length > 0 && begin[length - 1] == '.') length--;
    if (length >= PIECE_BYTES) length = PIECE_BYTES - 1;
    memcpy(plain, begin, length);
    plain[length] = '\0';
    if (parts != NULL && names != NULL) {
        for (size_t i = 0; i < count; i++) {
            copy_parts(model->tensors[i].name, front, count_dots(plain), parts[i]);
            names[i] = parts[i];
        }
        near = yoke_text_nearest(plain, names, count);
    }
    yoke_status status = FAIL(
        YOKE_ERROR_ARGUMENT, "%s \"%s\" matches no name of %s, whose names go from %s to %s%s%s%s",
        what, pattern, model->name, model->tensors[0].name,
        model->tensors[model->tensor_count - 1].name, near != NULL ? "; did you mean \"" : "",
        near != NULL ? near : "", near != NULL ? "\"?" : "");
    yoke_free(names);
    yoke_free(parts);
    return status;
}

/* Batch norms. */

/* A batch norm has several names, and an index: that of its running mean. */
static void add_norms(yoke_names *names, const yoke_model *model) {
    for (int i = 0; i < model->layer_count; i++) {
        const yoke_node *layer = &model->layers[i];
        if (layer->operation.kind != YOKE_OP_BATCH_NORM) continue;
        for (int k = 0; k < 2; k++) {
            yoke_names_add(names, model->tensors[layer->tensors[k]].name, layer->buffers[0]);
            yoke_names_add(names, model->tensors[layer->buffers[k]].name, layer->buffers[0]);
        }
    }
    yoke_names_sort(names);
}

static yoke_status mark_norms(const yoke_model *model, const char *list, yoke_names *names,
                              int *marks) {
    const char *unmatched = NULL;
    for (int i = 0; i < model->tensor_count; i++)
        marks[i] = -1;
    add_norms(names, model);
    TRY(yoke_patterns_mark(names, list, 1, marks, &unmatched));
    return unmatched == NULL ? YOKE_OK
                             : yoke_patterns_fail(model, "batch norm to freeze", unmatched);
}

yoke_status yoke_statistics_mark(const yoke_model *model, const char *list, bool **marked) {
    yoke_names names = {0};
    size_t tensors = (size_t)model->tensor_count;
    *marked = NULL;
    if (list == NULL) return YOKE_OK;
    int *marks = yoke_calloc(tensors + 1, sizeof *marks);
    bool *found = yoke_calloc(tensors + 1, sizeof *found);
    yoke_status status = yoke_names_create(&names, 2 * model->tensor_count);
    if (marks == NULL || found == NULL) status = FAIL_MEMORY(tensors, "frozen statistics");
    if (status == YOKE_OK) status = mark_norms(model, list, &names, marks);
    for (size_t i = 0; i < tensors && status == YOKE_OK; i++)
        found[i] = marks[i] >= 0;
    yoke_names_destroy(&names);
    yoke_free(marks);
    if (status == YOKE_OK)
        *marked = found;
    else
        yoke_free(found);
    return status;
}
