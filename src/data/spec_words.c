/* SPDX-License-Identifier: Apache-2.0 */
/* The words of a SPEC that names files: "FILE,FILE,name=value". */
#include <string.h>

#include "data/arrays.h"

/* The length of the name in "name=value"; 0: the word has no name. */
static size_t name_length(const char *text) {
    size_t letters = strspn(text, "abcdefghijklmnopqrstuvwxyz");
    return text[letters] == '=' ? letters : 0;
}

bool yoke_spec_next(char **rest, yoke_spec_word *word) {
    if (*rest == NULL) return false;
    char *text = strsep(rest, ",");
    size_t letters = name_length(text);
    *word = (yoke_spec_word){.value = text};
    if (letters > 0) {
        text[letters] = '\0';
        *word = (yoke_spec_word){.name = text, .value = text + letters + 1};
    }
    return true;
}

static const char *word_behind(const char *word) {
    const char *comma = strchr(word, ',');
    return comma != NULL ? comma + 1 : NULL;
}

yoke_status yoke_spec_check_repeats(const char *format, const char *text) {
    for (const char *word = text; word != NULL; word = word_behind(word)) {
        size_t length = name_length(word);
        if (length == 0 || strncmp(word, "ignore=", 7) == 0 || strncmp(word, "input=", 6) == 0)
            continue;
        for (const char *other = word_behind(word); other != NULL; other = word_behind(other))
            if (strncmp(other, word, length + 1) == 0)
                return FAIL(YOKE_ERROR_ARGUMENT, "%s: %.*s is set twice", format, (int)length,
                            word);
    }
    return YOKE_OK;
}

yoke_status yoke_spec_unknown(const char *format, const yoke_spec_word *word,
                              const char *const *names, size_t count, const char *help) {
    if (word->name == NULL)
        return FAIL(YOKE_ERROR_ARGUMENT, "%s: '%s' is one file too many; write %s", format,
                    word->value, help);
    const char *near = yoke_text_nearest(word->name, names, count);
    return FAIL(YOKE_ERROR_ARGUMENT, "%s: unknown setting '%s'%s%s%s; write %s", format, word->name,
                near != NULL ? ", did you mean '" : "", near != NULL ? near : "",
                near != NULL ? "'" : "", help);
}

yoke_status yoke_spec_validation(const char *format, const yoke_spec_word *word, double *part) {
    if (yoke_text_real(word->value, 0.001, 0.9, part)) return YOKE_OK;
    return FAIL(YOKE_ERROR_ARGUMENT, "%s: validation=%s: expected 0.001..0.9", format, word->value);
}
