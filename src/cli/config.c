/* SPDX-License-Identifier: Apache-2.0 */
/* Reads and writes the options of a verb by its table: what a command can say, a file can. */
#include "cli/config.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/other_words.h"

#define NUMBER_BYTES 32
#define FILE_LIMIT ((size_t)1 << 20)

#define RECIPE_WORDS 48
typedef struct recipe {
    const char *name;
    const char *needs[3];            /* options that the command must bring; NULL ends them */
    const char *words[RECIPE_WORDS]; /* what it stands for in a command; likewise */
} recipe;

static const recipe recipes[] = {
    {"cifar10",
     {NULL},
     {"--dataset", "cifar10:data/cifar-10-batches-bin", "--model", "resnet18-cifar", "--epochs",
      "30", "--batch", "128", "--lr", "0.1", "--lr-schedule", "onecycle", "--augment",
      "crop-flip"}},
    /* airbench94_muon.py of Keller Jordan's cifar10-airbench. It sums the losses of 2,000 rows: its
     * rates of 0.053 for biases and 0.67 for the head are 106 and 1,340 for a mean, and the groups
     * name them as multiples of the filters' 0.24. */
    {"cifar10-94",
     {NULL},
     {"--dataset",
      "cifar10:data/cifar-10-batches-bin",
      "--model",
      "airbench94",
      "--whiten",
      "whiten",
      "--freeze",
      "whiten.weight,*norm?.weight",
      "--epochs",
      "8",
      "--batch",
      "2000",
      "--drop-last",
      "--optimizer",
      "muon-filters",
      "--lr",
      "0.24",
      "--lr-schedule",
      "linear",
      "--group",
      "whiten.bias:lr=441.66667,decay=3.7735849e-5,momentum=0.85,steps=75;"
      "*.bias:lr=441.66667,decay=3.7735849e-5,momentum=0.85;"
      "head.*:lr=5583.33333,decay=2.9850746e-6,momentum=0.85",
      "--label-smoothing",
      "0.2",
      "--augment",
      "crop-flip",
      "--crop-padding",
      "2",
      "--crop-edge",
      "reflect",
      "--flip",
      "alternate",
      "--test-views",
      "6",
      "--evaluate-every",
      "0"}},
    {"imagefolder-finetune",
     {"dataset", "init"},
     {"--model", "resnet18", "--new-head", "--epochs", "10", "--lr", "0.01", "--lr-schedule",
      "cosine", "--no-decay", "norms-and-biases", "--augment", "resized-crop-flip"}},
    {"gpt-char",
     {"dataset"},
     {"--model", "gpt2:layers=4,width=128,heads=4", "--epochs", "10", "--batch", "32",
      "--optimizer", "adamw", "--lr", "0.002", "--lr-schedule", "cosine", "--warmup-steps", "100",
      "--no-decay", "norms-and-biases", "--clip-norm", "1"}},
};
#define RECIPE_COUNT (sizeof recipes / sizeof recipes[0])

static const recipe *find_recipe(const char *name) {
    for (size_t i = 0; i < RECIPE_COUNT; i++)
        if (strcmp(recipes[i].name, name) == 0) return &recipes[i];
    return NULL;
}

static int unknown_recipe(const config_place *place) {
    const char *names[RECIPE_COUNT], *given = place->flags->recipe;
    for (size_t i = 0; i < RECIPE_COUNT; i++)
        names[i] = recipes[i].name;
    const char *near = yoke_text_nearest(given, names, RECIPE_COUNT);
    return cli_usage_error(place->verb->name, "--recipe: '%s' is not one of %s%s%s%s", given,
                           CONFIG_RECIPES, near != NULL ? "; did you mean '" : "",
                           near != NULL ? near : "", near != NULL ? "'?" : "");
}

static int apply_recipe(const config_place *place) {
    char *argv[1 + RECIPE_WORDS] = {NULL};
    int argc = 1;
    if (place->flags->recipe == NULL) return -1;
    const recipe *found = find_recipe(place->flags->recipe);
    if (found == NULL) return unknown_recipe(place);
    memcpy(argv + 1, found->words, sizeof found->words);
    while (argc <= RECIPE_WORDS && argv[argc] != NULL)
        argc++;
    return cli_parse(place->verb, argc, argv, place->values, NULL);
}

/* Whether an option has another value than its default. */
static bool differs(const config_place *place, const cli_option *option) {
    const char *own = (const char *)place->values + option->offset;
    const char *usual = (const char *)place->defaults + option->offset;
    if (!cli_keeps_text(option)) return memcmp(own, usual, cli_value_bytes(option->kind)) != 0;
    const char *text = *(const char *const *)(const void *)own;
    const char *other = *(const char *const *)(const void *)usual;
    return text != NULL && (other == NULL || strcmp(text, other) != 0);
}

static int check_needs(const config_place *place) {
    const recipe *found = place->flags->recipe != NULL ? find_recipe(place->flags->recipe) : NULL;
    for (size_t i = 0; found != NULL && found->needs[i] != NULL; i++) {
        const cli_option *option = cli_find_option(place->verb, found->needs[i]);
        if (!differs(place, option))
            return cli_usage_error(place->verb->name, "--recipe %s needs --%s %s", found->name,
                                   option->name, option->value);
    }
    return -1;
}

void config_print_recipe(const config_place *place, FILE *out) {
    const recipe *found = place->flags->recipe != NULL ? find_recipe(place->flags->recipe) : NULL;
    if (found == NULL) return;
    fprintf(out, "recipe   %s:", found->name);
    for (size_t i = 0; i < RECIPE_WORDS && found->words[i] != NULL; i++)
        fprintf(out, " %s", found->words[i]);
    fputc('\n', out);
}

/* The file. */

static int open_file(const config_place *place) {
    const char *path = place->flags->file;
    json_error_t error;
    unsigned char *text = NULL;
    size_t bytes = 0;
    yoke_status status = yoke_file_read(path, FILE_LIMIT, &text, &bytes);
    if (status != YOKE_OK) {
        yoke_error_prefix("cannot read the options");
        return cli_fail(status);
    }
    json_t *root = json_loadb((const char *)text, bytes, JSON_REJECT_DUPLICATES, &error);
    free(text);
    if (root == NULL)
        return cli_usage_error(place->verb->name, "%s: line %d, column %d: %s", path, error.line,
                               error.column, error.text);
    place->flags->texts = root;
    if (json_is_object(root)) return -1;
    return cli_usage_error(place->verb->name, "%s: not an object, as in {\"lr\": 0.1}", path);
}

/* A value as a command says it; NULL: it is no text, number, true or false. */
static const char *text_of(const json_t *value, char number[NUMBER_BYTES]) {
    if (json_is_string(value)) return json_string_value(value);
    if (json_is_boolean(value)) return json_is_true(value) ? "true" : "false";
    if (json_is_real(value)) return yoke_text_of_real(json_real_value(value), number, NUMBER_BYTES);
    if (!json_is_integer(value)) return NULL;
    snprintf(number, NUMBER_BYTES, "%" JSON_INTEGER_FORMAT, json_integer_value(value));
    return number;
}

/* A file names no other file, and says neither what becomes of it nor what to test. */
static bool is_for_commands(const config_place *place, const cli_option *option) {
    const char *field = (const char *)place->values + option->offset;
    return strcmp(option->name, "lr-find") == 0 || field == (const char *)&place->flags->file ||
           field == (const char *)&place->flags->print;
}

static int apply_key(const config_place *place, const char *key, const json_t *value) {
    char number[NUMBER_BYTES], hint[OTHER_WORDS_BYTES];
    const cli_option *option = cli_find_option(place->verb, key);
    const char *text = text_of(value, number);
    if (option == NULL)
        return cli_usage_error(place->verb->name, "%s: %s has no option '%s'%s", place->flags->file,
                               place->verb->name, key, other_option_hint(place->verb, key, hint));
    if (is_for_commands(place, option))
        return cli_usage_error(place->verb->name, "%s: '%s' is for the command line alone",
                               place->flags->file, key);
    bool fits = text != NULL && (option->kind == CLI_FLAG) == json_is_boolean(value) &&
                (!cli_keeps_text(option) || json_is_string(value));
    if (fits) return cli_store(place->verb, option, text, place->values);
    return cli_usage_error(place->verb->name, "%s: '%s' takes %s", place->flags->file, key,
                           option->kind == CLI_FLAG ? "true or false"
                           : cli_keeps_text(option) ? "a text"
                                                    : option->value);
}

static int apply_file(const config_place *place, json_t *root) {
    const char *key;
    json_t *value;
    int code = -1;
    json_object_foreach(root, key, value) {
        if (code < 0) code = apply_key(place, key, value);
    }
    return code;
}

/* Together. */

int config_apply(const config_place *place, int argc, char **argv) {
    config_flags given = *place->flags;
    int code = -1;
    if (given.recipe == NULL && given.file == NULL) return -1;
    memcpy(place->values, place->defaults, place->bytes);
    *place->flags = given;
    if (given.file != NULL) code = open_file(place);
    json_t *root = place->flags->texts;
    const char *named = json_string_value(json_object_get(root, "recipe"));
    if (given.recipe == NULL) place->flags->recipe = named;
    if (code < 0) code = apply_recipe(place);
    if (code < 0 && root != NULL) code = apply_file(place, root);
    if (code < 0) code = cli_parse(place->verb, argc, argv, place->values, NULL);
    return code < 0 ? check_needs(place) : code;
}

/* Readers of JSON take integers up to INT64_MAX; a larger one is a text. */
static void write_unsigned(yoke_json *json, const char *name, uint64_t value) {
    char text[NUMBER_BYTES];
    if (value <= INT64_MAX) {
        yoke_json_integer(json, name, (int64_t)value);
        return;
    }
    snprintf(text, sizeof text, "%" PRIu64, value);
    yoke_json_text(json, name, text);
}

static void write_value(yoke_json *json, const cli_option *option, const void *field) {
    char word[64];
    int choice = 0;
    switch (option->kind) {
    case CLI_FLAG:
        yoke_json_boolean(json, option->name, *(const bool *)field);
        break;
    case CLI_INTEGER:
        yoke_json_integer(json, option->name, *(const int *)field);
        break;
    case CLI_UNSIGNED:
        write_unsigned(json, option->name, *(const uint64_t *)field);
        break;
    case CLI_REAL:
        yoke_json_real(json, option->name, *(const double *)field);
        break;
    case CLI_CHOICE:
    case CLI_IF_SECOND:
        choice = option->kind == CLI_CHOICE ? *(const int *)field : *(const bool *)field;
        yoke_json_text(json, option->name, cli_choice_word(option, choice, word));
        break;
    default:
        yoke_json_text(json, option->name, *(const char *const *)field);
        break;
    }
}

int config_print(const config_place *place) {
    yoke_json json;
    yoke_json_begin(&json);
    yoke_json_open(&json, NULL, '{');
    for (int i = 0; i < place->verb->option_count; i++) {
        const cli_option *option = &place->verb->options[i];
        const char *field = (const char *)place->values + option->offset;
        bool is_own =
            field == (const char *)&place->flags->recipe || is_for_commands(place, option);
        if (!is_own && differs(place, option)) write_value(&json, option, field);
    }
    yoke_json_close(&json, '}');
    yoke_status status = cli_print_json(&json, stdout);
    return status == YOKE_OK ? 0 : cli_fail(status);
}

void config_close(config_flags *flags) {
    json_decref(flags->texts);
    flags->texts = NULL;
}
