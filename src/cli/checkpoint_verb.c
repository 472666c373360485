/* yoke checkpoint: what a folder of checkpoints holds, and what a checkpoint says. */
#include "cli/checkpoint_verb.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

typedef struct checkpoint_flags {
    bool json;
} checkpoint_flags;

static const cli_option options[] = {
    {"json", NULL, "print the result as one JSON object", CLI_FLAG,
     offsetof(checkpoint_flags, json), 0, 0},
};

const cli_verb checkpoint_verb = {
    .name = "checkpoint",
    .operands = "list DIR | show FILE | verify FILE... | diff FILE FILE",
    .summary = "list, show, verify and compare checkpoints",
    .options = options,
    .option_count = CLI_OPTION_COUNT(options),
    .more =
        "list verifies every checkpoint of a folder, show prints what one says, verify compares\n"
        "all digests (exit code 65: damaged), diff names the tensors that differ, with the\n"
        "largest absolute difference and the largest distance in units in the last place\n"
        "(exit code 1: they differ).\n"};

const char *checkpoint_fact(const yoke_checkpoint *checkpoint, const char *key) {
    const char *found, *value;
    for (int i = 0; yoke_checkpoint_fact(checkpoint, i, &found, &value); i++)
        if (strcmp(found, key) == 0) return value;
    return NULL;
}

bool checkpoint_is_told(const char *key) {
    return strncmp(key, "xxh3.", 5) != 0 && strcmp(key, "format") != 0;
}

const char *checkpoint_shape(const yoke_checkpoint_tensor_info *info, char text[128]) {
    int used = snprintf(text, 128, "[");
    for (int i = 0; i < info->ndim && used < 100; i++)
        used += snprintf(text + used, 128 - (size_t)used, "%s%lld", i > 0 ? ", " : "",
                         (long long)info->shape[i]);
    snprintf(text + used, 128 - (size_t)used, "]");
    return text;
}

/* list. */

static int is_checkpoint(const struct dirent *entry) {
    static const char suffix[] = ".safetensors";
    size_t length = strlen(entry->d_name);
    return length >= sizeof suffix &&
           strcmp(entry->d_name + length - (sizeof suffix - 1), suffix) == 0;
}

static void list_json(yoke_json *json, const char *name, const yoke_checkpoint *checkpoint,
                      long long bytes) {
    static const char *const facts[] = {"step", "epoch", "config.model", "best"};
    yoke_json_open(json, NULL, '{');
    yoke_json_text(json, "file", name);
    yoke_json_boolean(json, "valid", checkpoint != NULL);
    yoke_json_integer(json, "bytes", bytes);
    for (size_t i = 0; checkpoint != NULL && i < sizeof facts / sizeof facts[0]; i++) {
        const char *value = checkpoint_fact(checkpoint, facts[i]);
        if (value != NULL) yoke_json_text(json, facts[i], value);
    }
    if (checkpoint == NULL) yoke_json_text(json, "error", yoke_last_error());
    yoke_json_close(json, '}');
}

static const char *or_dash(const char *text) {
    return text != NULL ? text : "-";
}

static void list_file(const char *folder, const char *name, yoke_json *json) {
    char path[PATH_MAX];
    struct stat file;
    yoke_checkpoint *checkpoint = NULL;
    snprintf(path, sizeof path, "%s/%s", folder, name);
    long long bytes = stat(path, &file) == 0 ? (long long)file.st_size : 0;
    (void)yoke_checkpoint_open(&checkpoint, path);
    if (json != NULL)
        list_json(json, name, checkpoint, bytes);
    else if (checkpoint == NULL)
        printf("%-28s  %s\n", name, yoke_last_error());
    else
        printf("%-28s  %8s  %5s  %-24.24s  %9.1f\n", name,
               or_dash(checkpoint_fact(checkpoint, "step")),
               or_dash(checkpoint_fact(checkpoint, "epoch")),
               or_dash(checkpoint_fact(checkpoint, "config.model")), (double)bytes / 1048576);
    yoke_checkpoint_close(checkpoint);
}

static int list(const char *folder, bool as_json) {
    struct dirent **entries;
    int count = scandir(folder, &entries, is_checkpoint, alphasort);
    if (count < 0)
        return cli_fail(cli_refuse(errno == ENOENT ? YOKE_ERROR_MISSING : YOKE_ERROR_IO,
                                   "%s: cannot list: %s", folder, strerror(errno)));
    yoke_json json;
    yoke_json_begin(&json);
    yoke_json_open(&json, NULL, '{');
    yoke_json_open(&json, "checkpoints", '[');
    if (!as_json && count > 0)
        printf("%-28s  %8s  %5s  %-24s  %9s\n", "file", "step", "epoch", "model", "MiB");
    if (!as_json && count == 0) printf("%s has no checkpoints\n", folder);
    for (int i = 0; i < count; i++) {
        list_file(folder, entries[i]->d_name, as_json ? &json : NULL);
        free(entries[i]);
    }
    free(entries);
    yoke_json_close(&json, ']');
    yoke_json_close(&json, '}');
    yoke_status status = YOKE_OK;
    if (as_json)
        status = cli_print_json(&json, stdout);
    else
        yoke_json_end(&json);
    return status == YOKE_OK ? 0 : cli_fail(status);
}

/* show. */

static bool next_tensor(const yoke_checkpoint *checkpoint, int index,
                        yoke_checkpoint_tensor_info *info) {
    info->struct_size = sizeof *info;
    return yoke_checkpoint_tensor(checkpoint, index, info) == YOKE_OK;
}

static void show_words(const yoke_checkpoint *checkpoint) {
    const char *key, *value;
    char shape[128];
    yoke_checkpoint_tensor_info info;
    for (int i = 0; yoke_checkpoint_fact(checkpoint, i, &key, &value); i++)
        if (checkpoint_is_told(key)) printf("%-24s  %s\n", key, value);
    printf("\n%-52s  %-5s  %-20s  %s\n", "tensor", "dtype", "shape", "xxh3");
    for (int i = 0; next_tensor(checkpoint, i, &info); i++)
        printf("%-52s  %-5s  %-20s  %s\n", info.name, info.dtype, checkpoint_shape(&info, shape),
               info.digest != NULL ? info.digest : "-");
}

static yoke_status show_json(const yoke_checkpoint *checkpoint) {
    const char *key, *value;
    yoke_checkpoint_tensor_info info;
    yoke_json json;
    yoke_json_begin(&json);
    yoke_json_open(&json, NULL, '{');
    yoke_json_open(&json, "facts", '{');
    for (int i = 0; yoke_checkpoint_fact(checkpoint, i, &key, &value); i++)
        if (checkpoint_is_told(key)) yoke_json_text(&json, key, value);
    yoke_json_close(&json, '}');
    yoke_json_open(&json, "tensors", '[');
    for (int i = 0; next_tensor(checkpoint, i, &info); i++) {
        yoke_json_open(&json, NULL, '{');
        yoke_json_text(&json, "name", info.name);
        yoke_json_text(&json, "dtype", info.dtype);
        yoke_json_open(&json, "shape", '[');
        for (int d = 0; d < info.ndim; d++)
            yoke_json_integer(&json, NULL, info.shape[d]);
        yoke_json_close(&json, ']');
        yoke_json_integer(&json, "offset", (int64_t)info.offset);
        yoke_json_integer(&json, "bytes", (int64_t)info.bytes);
        if (info.digest != NULL) yoke_json_text(&json, "xxh3", info.digest);
        yoke_json_close(&json, '}');
    }
    yoke_json_close(&json, ']');
    yoke_json_close(&json, '}');
    return cli_print_json(&json, stdout);
}

static int show(const char *path, bool as_json) {
    yoke_checkpoint *checkpoint;
    yoke_status status = yoke_checkpoint_open(&checkpoint, path);
    if (status != YOKE_OK) return cli_fail(status);
    if (as_json)
        status = show_json(checkpoint);
    else
        show_words(checkpoint);
    yoke_checkpoint_close(checkpoint);
    return status == YOKE_OK ? 0 : cli_fail(status);
}

/* verify. */

static int verify(char *const *paths, int count, bool as_json) {
    int code = 0;
    yoke_json json;
    yoke_json_begin(&json);
    yoke_json_open(&json, NULL, '{');
    yoke_json_open(&json, "files", '[');
    for (int i = 0; i < count; i++) {
        yoke_checkpoint *checkpoint;
        yoke_status status = yoke_checkpoint_open(&checkpoint, paths[i]);
        if (code == 0) code = yoke_status_exit_code(status);
        yoke_json_open(&json, NULL, '{');
        yoke_json_text(&json, "file", paths[i]);
        yoke_json_boolean(&json, "valid", status == YOKE_OK);
        if (status != YOKE_OK) yoke_json_text(&json, "error", yoke_last_error());
        yoke_json_close(&json, '}');
        if (!as_json && status == YOKE_OK) printf("%s: valid\n", paths[i]);
        if (!as_json && status != YOKE_OK) fprintf(stderr, "yoke: %s\n", yoke_last_error());
        yoke_checkpoint_close(checkpoint);
    }
    yoke_json_close(&json, ']');
    yoke_json_close(&json, '}');
    yoke_status status = YOKE_OK;
    if (as_json)
        status = cli_print_json(&json, stdout);
    else
        yoke_json_end(&json);
    return status == YOKE_OK ? code : cli_fail(status);
}

int checkpoint_main(int argc, char **argv) {
    checkpoint_flags flags = {0};
    int operands = 0, code = cli_parse(&checkpoint_verb, argc, argv, &flags, &operands);
    if (code >= 0) return code;
    const char *action = operands > 0 ? argv[1] : "";
    char **rest = argv + 2;
    if (strcmp(action, "list") == 0 && operands == 2) return list(rest[0], flags.json);
    if (strcmp(action, "show") == 0 && operands == 2) return show(rest[0], flags.json);
    if (strcmp(action, "verify") == 0 && operands > 1)
        return verify(rest, operands - 1, flags.json);
    if (strcmp(action, "diff") == 0 && operands == 3)
        return checkpoint_diff(rest[0], rest[1], flags.json);
    return cli_usage_error("checkpoint", "checkpoint takes %s", checkpoint_verb.operands);
}
