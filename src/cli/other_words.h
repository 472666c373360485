/* SPDX-License-Identifier: Apache-2.0 */
/* What the options of other tools, and their values, are called here. */
#ifndef CLI_OTHER_WORDS_H
#define CLI_OTHER_WORDS_H

#include "cli/arguments.h"

#define OTHER_WORDS_BYTES 256

/* What to say behind "has no option X": which option does this, ": use --batch (...)", or looks
 * like it, "; did you mean --epochs?"; or "". `given` ends at its end or at an equals sign, and may
 * write - as _. */
const char *other_option_hint(const cli_verb *verb, const char *given,
                              char text[OTHER_WORDS_BYTES]);

/* What to say behind "X is not one of ...": ": use adamw (...)"; "" for no such word. */
const char *other_value_hint(const char *option, const char *given, char text[OTHER_WORDS_BYTES]);

#endif
