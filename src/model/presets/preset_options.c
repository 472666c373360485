/* SPDX-License-Identifier: Apache-2.0 */
/* The options behind a preset's name: "mlp:width=256,dropout=0.1". */
#include <stdio.h>
#include <string.h>

#include "model/presets/preset.h"

#define WORD_BYTES 64

static int option_count(const yoke_preset *preset) {
    int count = 0;
    while (preset->options != NULL && preset->options[count].name != NULL)
        count++;
    return count;
}

static yoke_status unknown_option(const yoke_preset *preset, const char *name) {
    const char *names[YOKE_PRESET_OPTIONS_LIMIT];
    char known[256] = "";
    int count = option_count(preset);
    if (count == 0)
        return FAIL(YOKE_ERROR_ARGUMENT, "%s has no options, but got '%s'", preset->name, name);
    for (int i = 0; i < count; i++) {
        names[i] = preset->options[i].name;
        strncat(known, i > 0 ? ", " : "", sizeof known - strlen(known) - 1);
        strncat(known, names[i], sizeof known - strlen(known) - 1);
    }
    const char *near = yoke_text_nearest(name, names, (size_t)count);
    if (near != NULL)
        return FAIL(YOKE_ERROR_ARGUMENT, "%s has no option '%s'; did you mean '%s'?", preset->name,
                    name, near);
    return FAIL(YOKE_ERROR_ARGUMENT, "%s has no option '%s'; known: %s", preset->name, name, known);
}

static yoke_status read_value(const yoke_preset *preset, const yoke_preset_option *option,
                              const char *text, double *value) {
    int64_t whole = 0;
    bool good = option->real
                    ? yoke_text_real(text, option->low, option->high, value)
                    : yoke_text_integer(text, (int64_t)option->low, (int64_t)option->high, &whole);
    if (!good)
        return FAIL(YOKE_ERROR_ARGUMENT, "%s: %s=%s, must be a %s from %g to %.15g", preset->name,
                    option->name, text, option->real ? "number" : "whole number", option->low,
                    option->high);
    if (!option->real) *value = (double)whole;
    return YOKE_OK;
}

/* One "name=value". */
static yoke_status read_option(const yoke_preset *preset, char *word, double *values, bool *given) {
    char *equal = strchr(word, '=');
    if (equal != NULL) *equal = '\0';
    int index = 0, count = option_count(preset);
    while (index < count && strcmp(preset->options[index].name, word) != 0)
        index++;
    if (index == count) return unknown_option(preset, word);
    if (equal == NULL)
        return FAIL(YOKE_ERROR_ARGUMENT, "%s: option '%s' needs a value: %s=%g", preset->name, word,
                    word, preset->options[index].otherwise);
    if (given[index])
        return FAIL(YOKE_ERROR_ARGUMENT, "%s: option '%s' is given twice", preset->name, word);
    given[index] = true;
    return read_value(preset, &preset->options[index], equal + 1, &values[index]);
}

yoke_status yoke_preset_options_read(const yoke_preset *preset, const char *text, double *values) {
    bool given[YOKE_PRESET_OPTIONS_LIMIT] = {false};
    int count = option_count(preset);
    for (int i = 0; i < count; i++)
        values[i] = preset->options[i].otherwise;
    while (text != NULL) {
        char word[WORD_BYTES];
        size_t length = strcspn(text, ",");
        snprintf(word, sizeof word, "%.*s", (int)length, text);
        TRY(read_option(preset, word, values, given));
        text = text[length] == ',' ? text + length + 1 : NULL;
    }
    return YOKE_OK;
}
