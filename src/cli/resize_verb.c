/* SPDX-License-Identifier: Apache-2.0 */
/* yoke resize: asks a run for other devices, or a launcher for another number of ranks. */
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/control.h"
#include "cli/shared_options.h"

typedef struct resize_flags {
    const char *devices;
    int ranks;
    bool json;
} resize_flags;

#define AT(field) CLI_FIELD(resize_flags, field)

static const cli_option options[] = {
    {"devices", "LIST", "of a yoke train: the devices to go on with, 3xcpu or cuda:0,cuda:1",
     AT(devices)},
    {"ranks", "N", "of a yoke launch --min-ranks: how many ranks are to run", AT(ranks), 1, 1024},
    CLI_OPTION_JSON(AT(json)),
};

const cli_verb resize_verb = {
    .name = "resize",
    .operands = "PID",
    .summary = "give a run that trains other devices, or another number of ranks",
    .options = options,
    .option_count = CLI_OPTION_COUNT(options),
    .more = "  yoke resize 4711 --devices 3xcpu    the run of process 4711 goes on with 3 devices\n"
            "  yoke resize 4711 --ranks 4          launcher 4711 starts, or ends, ranks\n\n"
            "With --shards the run ends with the same bits as without the change. More ranks than\n"
            "the launcher started need its --max-ranks.\n"};

static int check(const resize_flags *flags, int words, const char *pid, int *number) {
    char *end;
    if (words != 1) return cli_usage_error("resize", "resize needs the number of one process");
    long value = strtol(pid, &end, 10);
    if (end == pid || *end != '\0' || value < 1 || value > 1L << 30)
        return cli_usage_error("resize", "'%s' is not the number of a process", pid);
    *number = (int)value;
    if ((flags->devices != NULL) == (flags->ranks > 0))
        return cli_usage_error("resize", "give either --devices or --ranks");
    if (flags->devices == NULL || strlen(flags->devices) < CONTROL_BYTES / 2) return -1;
    return cli_usage_error("resize", "--devices has %zu bytes; at most %d are allowed",
                           strlen(flags->devices), CONTROL_BYTES / 2 - 1);
}

static int print(const resize_flags *flags, int pid, const char *text) {
    yoke_json json = {0};
    if (!flags->json) {
        printf("%s\n", text);
        return 0;
    }
    yoke_json_open(&json, NULL, '{');
    yoke_json_integer(&json, "pid", pid);
    yoke_json_text(&json, "answer", text);
    yoke_json_close(&json, '}');
    yoke_status status = cli_print_json(&json, stdout);
    return status == YOKE_OK ? 0 : cli_fail(status);
}

int resize_main(int argc, char **argv) {
    resize_flags flags = {.ranks = 0};
    char request[CONTROL_BYTES], text[CONTROL_BYTES];
    int words = 0, pid = 0, code = cli_parse(&resize_verb, argc, argv, &flags, &words);
    if (code < 0) code = check(&flags, words, argv[1], &pid);
    if (code >= 0) return code;
    if (flags.devices != NULL)
        snprintf(request, sizeof request, "devices %s", flags.devices);
    else
        snprintf(request, sizeof request, "ranks %d", flags.ranks);
    code = control_ask(pid, request, text);
    if (code == 0) return print(&flags, pid, text);
    if (text[0] != '\0') fprintf(stderr, "yoke: process %d: %s\n", pid, text);
    return code;
}
