/* SPDX-License-Identifier: Apache-2.0 */
/* yoke checkpoint: what a folder of checkpoints holds, and what a checkpoint says. */
#include "cli/checkpoint_verb.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "cli/shared_options.h"

typedef struct checkpoint_flags {
    bool json;
} checkpoint_flags;

static const cli_option options[] = {
    CLI_OPTION_JSON(CLI_FIELD(checkpoint_flags, json)),
};

const cli_verb checkpoint_verb = {
    .name = "checkpoint",
    .operands = "list DIR | show FILE | verify FILE... | diff FILE FILE",
    .summary = "list, show, verify and compare checkpoints",
    .options = options,
    .option_count = CLI_OPTION_COUNT(options),
    .more = "list verifies every checkpoint of a folder, show prints facts and tensors, verify "
            "compares\n"
            "all digests (exit code 65: damaged), diff names the facts and tensors that differ,\n"
            "with the largest absolute difference and the largest distance in units in the last\n"
            "place of float32 (exit code 1: tensors differ).\n"};

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

/* Files of a folder, or of the command line. */
typedef struct file_list {
    const char *folder; /* of the names; NULL: none */
    const char **names;
    int count;
    bool as_json;
} file_list;

/* The epoch of the checkpoint's last step, counted from 1. The file counts from 0, and goes on to
 * the next epoch when one is over. 0: the checkpoint does not state it. */
static long long epoch_of(const yoke_checkpoint *checkpoint) {
    const char *epoch = checkpoint_fact(checkpoint, "epoch");
    const char *batches = checkpoint_fact(checkpoint, "epoch_batches");
    if (epoch == NULL) return 0;
    bool is_over = batches == NULL || strcmp(batches, "0") == 0;
    return atoll(epoch) + (is_over && atoll(epoch) > 0 ? 0 : 1);
}

static void print_entry(yoke_json *json, const char *name, const yoke_checkpoint *checkpoint,
                        long long bytes) {
    static const char *const facts[] = {"step", "config.model", "best"};
    yoke_json_open(json, NULL, '{');
    yoke_json_text(json, "file", name);
    yoke_json_boolean(json, "valid", checkpoint != NULL);
    yoke_json_integer(json, "bytes", bytes);
    for (size_t i = 0; checkpoint != NULL && i < sizeof facts / sizeof facts[0]; i++) {
        const char *value = checkpoint_fact(checkpoint, facts[i]);
        if (value != NULL) yoke_json_text(json, facts[i], value);
    }
    if (checkpoint != NULL) yoke_json_integer(json, "epoch", epoch_of(checkpoint));
    if (checkpoint == NULL) yoke_json_text(json, "error", yoke_last_error());
    yoke_json_close(json, '}');
}

static const char *or_dash(const char *text) {
    return text != NULL ? text : "-";
}

/* A row of list. */
static void print_row(const char *name, const yoke_checkpoint *checkpoint, long long bytes) {
    cli_print_text(stdout, name, 28);
    if (checkpoint == NULL) {
        printf("  %s\n", yoke_last_error());
        return;
    }
    fputs("  ", stdout);
    cli_print_text(stdout, or_dash(checkpoint_fact(checkpoint, "step")), 10);
    printf("%-7lld", epoch_of(checkpoint));
    cli_print_text(stdout, or_dash(checkpoint_fact(checkpoint, "config.model")), 24);
    printf("  %9.1f\n", (double)bytes / 1048576);
}

static yoke_status report_file(const file_list *files, const char *name, yoke_json *json) {
    char path[PATH_MAX];
    struct stat file;
    yoke_checkpoint *checkpoint = NULL;
    snprintf(path, sizeof path, "%s%s%s", files->folder != NULL ? files->folder : "",
             files->folder != NULL ? "/" : "", name);
    long long bytes = stat(path, &file) == 0 ? (long long)file.st_size : 0;
    yoke_status status = yoke_checkpoint_open(&checkpoint, path);
    if (files->as_json)
        print_entry(json, name, checkpoint, bytes);
    else if (files->folder != NULL)
        print_row(name, checkpoint, bytes);
    else if (status == YOKE_OK)
        printf("%s: valid\n", name);
    else
        fprintf(stderr, "yoke: %s\n", yoke_last_error());
    yoke_checkpoint_close(checkpoint);
    return status;
}

/* list and verify: opens the files one by one. *first: the status of the first that is no whole
 * checkpoint. */
static yoke_status report_files(const file_list *files, yoke_status *first) {
    yoke_json json;
    *first = YOKE_OK;
    yoke_json_begin(&json);
    yoke_json_open(&json, NULL, '{');
    yoke_json_open(&json, files->folder != NULL ? "checkpoints" : "files", '[');
    for (int i = 0; i < files->count; i++) {
        yoke_status status = report_file(files, files->names[i], &json);
        if (*first == YOKE_OK) *first = status;
    }
    yoke_json_close(&json, ']');
    yoke_json_close(&json, '}');
    if (files->as_json) return cli_print_json(&json, stdout);
    yoke_json_end(&json);
    return YOKE_OK;
}

static yoke_status list_entries(const char *folder, struct dirent **entries, int count,
                                bool as_json) {
    yoke_status first;
    const char **names = calloc((size_t)count + 1, sizeof *names);
    if (names == NULL) return cli_refuse(YOKE_ERROR_MEMORY, "no memory for %d names", count);
    for (int i = 0; i < count; i++)
        names[i] = entries[i]->d_name;
    if (!as_json && count > 0)
        printf("%-28s  %-8s  %-5s  %-24s  %9s\n", "file", "step", "epoch", "model", "MiB");
    if (!as_json && count == 0) printf("%s has no checkpoints\n", folder);
    yoke_status status = report_files(
        &(file_list){.folder = folder, .names = names, .count = count, .as_json = as_json}, &first);
    free(names);
    return status;
}

static int list(const char *folder, bool as_json) {
    struct dirent **entries;
    int count = scandir(folder, &entries, is_checkpoint, alphasort);
    if (count < 0)
        return cli_fail(cli_refuse(errno == ENOENT ? YOKE_ERROR_MISSING : YOKE_ERROR_IO,
                                   "%s: cannot list: %s", folder, strerror(errno)));
    yoke_status status = list_entries(folder, entries, count, as_json);
    for (int i = 0; i < count; i++)
        free(entries[i]);
    free(entries);
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
    for (int i = 0; yoke_checkpoint_fact(checkpoint, i, &key, &value); i++) {
        if (!checkpoint_is_told(key)) continue;
        cli_print_text(stdout, key, 26);
        cli_print_text(stdout, value, 0);
        putchar('\n');
    }
    printf("\n%-52s  %-5s  %-20s  %s\n", "tensor", "dtype", "shape", "xxh3");
    for (int i = 0; next_tensor(checkpoint, i, &info); i++) {
        cli_print_text(stdout, info.name, 54);
        printf("%-5s  %-20s  ", info.dtype, checkpoint_shape(&info, shape));
        cli_print_text(stdout, or_dash(info.digest), 0);
        putchar('\n');
    }
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

static int verify(char **paths, int count, bool as_json) {
    yoke_status first;
    yoke_status status = report_files(
        &(file_list){.names = (const char **)paths, .count = count, .as_json = as_json}, &first);
    return status == YOKE_OK ? yoke_status_exit_code(first) : cli_fail(status);
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
