/* SPDX-License-Identifier: Apache-2.0 */
/* Lists of patterns of tensor names: the shell's, with commas between them, as in
 * "layer1.*,*.bias". */
#include <fnmatch.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/graph.h"

#define PATTERN_BYTES 256
#define PIECE_BYTES 64

/* The first pattern of a list; returns what follows its comma, or NULL behind the last. A pattern
 * longer than any name matches none. */
static const char *next_pattern(const char *list, char pattern[PATTERN_BYTES]) {
    size_t length = strcspn(list, ",");
    snprintf(pattern, PATTERN_BYTES, "%.*s", (int)(length < PATTERN_BYTES ? length : 0), list);
    return list[length] == ',' ? list + length + 1 : NULL;
}

bool yoke_patterns_match(const char *list, const char *name) {
    char pattern[PATTERN_BYTES];
    while (list != NULL) {
        list = next_pattern(list, pattern);
        if (fnmatch(pattern, name, 0) == 0) return true;
    }
    return false;
}

static size_t count_dots(const char *text) {
    size_t dots = 0;
    for (; *text != '\0'; text++)
        dots += *text == '.';
    return dots;
}

/* The plain text that a pattern begins with, or ends with: "layer1" of "layer1.*", "bias" of
 * "*.bias". */
static void copy_plain_text(const char *pattern, bool front, char text[PIECE_BYTES]) {
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
    memcpy(text, begin, length);
    text[length] = '\0';
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

/* ARGUMENT; the text names what the model has instead. */
static yoke_status fail(const yoke_model *model, const char *what, const char *pattern) {
    char plain[PIECE_BYTES];
    if (model->tensor_count == 0)
        return FAIL(YOKE_ERROR_ARGUMENT, "%s \"%s\": %s has no tensors", what, pattern,
                    model->name);
    bool front = strcspn(pattern, "*?[") > 0;
    size_t count = (size_t)model->tensor_count;
    char(*parts)[PIECE_BYTES] = calloc(count + 1, sizeof *parts);
    const char **names = calloc(count + 1, sizeof *names);
    const char *near = NULL;
    copy_plain_text(pattern, front, plain);
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
    free(names);
    free(parts);
    return status;
}

yoke_status yoke_patterns_check(const yoke_model *model, const char *what, const char *list,
                                bool parameters) {
    char pattern[PATTERN_BYTES];
    while (list != NULL) {
        bool found = false;
        list = next_pattern(list, pattern);
        for (int i = 0; i < model->tensor_count && !found; i++)
            found = (model->tensors[i].trainable || !parameters) &&
                    fnmatch(pattern, model->tensors[i].name, 0) == 0;
        if (!found) return fail(model, what, pattern);
    }
    return YOKE_OK;
}
