/* SPDX-License-Identifier: Apache-2.0 */
/* The words of a command line, by the tables of all verbs, and those options of `yoke train` that
 * have a grammar of their own. Nothing runs. The first line is a verb; each other line is a word.
 */
#define main tool_main
int tool_main(int argc, char **argv);
#include "cli/main.c"
#undef main

#include "cli/parameter_groups.h"
#include "fuzz/fuzz.h"

enum { WORDS = 64 };

/* The bytes of the verb's struct as far as its options reach: one more is outside. */
static size_t values_bytes(const cli_verb *verb) {
    size_t bytes = 1;
    for (int i = 0; i < verb->option_count; i++) {
        size_t end = verb->options[i].offset + cli_value_bytes(verb->options[i].kind);
        if (end > bytes) bytes = end;
    }
    return bytes;
}

static void parse_words(const cli_verb *verb, int count, char **words) {
    int operands = 0;
    void *values = calloc(1, values_bytes(verb));
    if (values == NULL) abort();
    if (cli_parse(verb, count, words, values, &operands) == -1 && operands >= count) abort();
    free(values);
}

static void read_grammars(const char *text) {
    group_list list = {0};
    (void)group_list_read(&list, &(group_flags){.freeze = text});
    group_list_free(&list);
    (void)group_list_read(&list, &(group_flags){.group = text, .no_decay = "norms-and-biases"});
    group_list_free(&list);
    for (cli_kind kind = CLI_THREADS; kind <= CLI_LABEL; kind++) {
        const char **value = calloc(1, cli_value_bytes(kind));
        if (value == NULL) abort();
        *value = text;
        (void)option_value_read(kind, "train", value);
        free(value);
    }
}

/* Messages and help go nowhere meanwhile; a sanitizer writes to the descriptor. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static FILE *nowhere;
    FILE *kept[2] = {stdout, stderr};
    char *words[WORDS + 1] = {NULL};
    int count = 0;
    if (nowhere == NULL && (nowhere = fopen("/dev/null", "w")) == NULL) abort();
    stdout = stderr = nowhere;
    char *text = fuzz_copy(data, size), *rest = text;
    for (char *word; count < WORDS && (word = strsep(&rest, "\n")) != NULL;)
        words[count++] = word;
    const cli_verb *verb = cli_find_verb(words[0]);
    if (verb == NULL) verb = verbs[(unsigned char)words[0][0] % VERB_COUNT].verb;
    read_grammars(words[count - 1]);
    parse_words(verb, count, words);
    free(text);
    stdout = kept[0], stderr = kept[1];
    return 0;
}
