/* SPDX-License-Identifier: Apache-2.0 */
/* --recipe, --config and --print-config: options that a name or a file stands for. What the command
 * line says wins over the file, and the file over the recipe. */
#ifndef CLI_CONFIG_H
#define CLI_CONFIG_H

#include <stddef.h>

#include "cli/arguments.h"

typedef struct config_flags {
    const char *recipe, *file; /* NULL: not given */
    bool print;
    void *texts; /* the file's, which options point to */
} config_flags;

#define CONFIG_RECIPES "cifar10, cifar10-94, imagefolder-finetune, gpt-char"

/* Where options lie. */
typedef struct config_place {
    const cli_verb *verb;
    void *values;         /* [bytes], with `flags` inside */
    const void *defaults; /* [bytes] */
    size_t bytes;
    config_flags *flags;
} config_place;

/* After cli_parse has read the command into the values: puts the recipe's and the file's options
 * below the command's. -1 to go on; otherwise the exit code. */
int config_apply(const config_place *place, int argc, char **argv);
/* What the recipe stands for, as flags. Without a recipe: nothing. */
void config_print_recipe(const config_place *place, FILE *out);
/* The options that differ from their defaults, as JSON. Returns the exit code. */
int config_print(const config_place *place);
void config_close(config_flags *flags);

#endif
