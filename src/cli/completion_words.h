/* SPDX-License-Identifier: Apache-2.0 */
/* What a shell offers as the value of an option and as the operands of a verb: read from the
 * placeholders of help, "auto|FILE", so that no second list exists. */
#ifndef CLI_COMPLETION_WORDS_H
#define CLI_COMPLETION_WORDS_H

#include "cli/arguments.h"

typedef struct completion_words {
    char words[1024]; /* with a space between two; "" for none */
    bool files;       /* names of files, too */
} completion_words;

void completion_of_option(const cli_option *option, completion_words *to);
void completion_of_operands(const cli_verb *verb, completion_words *to);

/* Whether the next word of a command is the option's value in any case. */
bool completion_takes_value(const cli_option *option);

/* The names of all verbs; of those only whose operands are a command. */
void completion_of_verbs(bool commands, completion_words *to);

#endif
