/* SPDX-License-Identifier: Apache-2.0 */
/* In placeholders, lower case is what a user types and upper case is what stands for it. */
#include "cli/completion_words.h"

#include <stdio.h>
#include <string.h>

#include "cli/cli.h"

static void add(completion_words *to, const char *word, size_t length) {
    size_t used = strlen(to->words);
    snprintf(to->words + used, sizeof to->words - used, "%s%.*s", used > 0 ? " " : "", (int)length,
             word);
}

static bool is_word(const char *text, size_t length) {
    static const char typed[] = "abcdefghijklmnopqrstuvwxyz0123456789-";
    return length > 0 && text[0] >= 'a' && strspn(text, typed) >= length;
}

static bool is_file(const char *text, size_t length) {
    static const char *const names[] = {"FILE", "FILE...", "DIR", "IMAGE...", "PROFILE", "PROGRAM"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (strlen(names[i]) == length && strncmp(names[i], text, length) == 0) return true;
    return false;
}

/* Takes the words of "[VERB | exit-codes]" or "measured|direct", up to `end`. */
static void read_placeholder(const char *text, const char *end, completion_words *to) {
    while (text < end) {
        size_t length = strcspn(text, " |[]");
        if (text + length > end) length = (size_t)(end - text);
        if (is_word(text, length)) add(to, text, length);
        if (is_file(text, length)) to->files = true;
        if (length == strlen("VERB") && strncmp(text, "VERB", length) == 0)
            completion_of_verbs(false, to);
        text += length + 1;
    }
}

void completion_of_option(const cli_option *option, completion_words *to) {
    *to = (completion_words){0};
    if (option->value == NULL) return;
    if (strcmp(option->name, "model") == 0) {
        const char *name;
        for (int i = 0; (name = yoke_model_preset_name(i)) != NULL; i++)
            add(to, name, strlen(name));
    } else { /* brackets hold parts of a word: N[s|m|steps|epochs] */
        read_placeholder(option->value, option->value + strcspn(option->value, "["), to);
    }
}

void completion_of_operands(const cli_verb *verb, completion_words *to) {
    *to = (completion_words){0};
    if (verb->operands != NULL)
        read_placeholder(verb->operands, verb->operands + strlen(verb->operands), to);
}

bool completion_takes_value(const cli_option *option) {
    return option->value != NULL && option->value[0] != '[';
}

void completion_of_verbs(bool commands, completion_words *to) {
    const cli_verb *verb;
    for (int i = 0; (verb = cli_verb_at(i)) != NULL; i++)
        if (verb->command || !commands) add(to, verb->name, strlen(verb->name));
}
