/* SPDX-License-Identifier: Apache-2.0 */
/* The XDG Base Directory Specification's folder for what a program can make again. */
#include "cli/choices_place.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "cli/cli.h"

/* Relative paths are invalid there, says the specification. */
static const char *folder_in(const char *variable) {
    const char *folder = getenv(variable);
    return folder != NULL && folder[0] == '/' ? folder : NULL;
}

/* mkdir -p of the path's folders; what cannot be made shows when the file is written. */
static void make_folders(char *path) {
    for (char *slash = strchr(path + 1, '/'); slash != NULL; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        (void)mkdir(path, 0777);
        *slash = '/';
    }
}

int choices_flags_check(const choices_flags *flags, const char *verb) {
    if (flags->file == NULL || !flags->no_cache) return -1;
    return cli_usage_error(verb,
                           "--choices names a file, and --no-cache keeps none; leave one out");
}

void choices_note_fastest(int algorithm) {
    if (algorithm == YOKE_ALGORITHM_FASTEST)
        fprintf(stderr, "yoke: --algorithm fastest: on GPUs two runs may differ, because some "
                        "algorithms add in another order in each run\n");
}

void choices_place_find(choices_place *place, const choices_flags *flags, bool speaks) {
    place->path = flags->file;
    place->cache = flags->file == NULL;
    if (flags->file != NULL || flags->no_cache) return;
    const char *cache = folder_in("XDG_CACHE_HOME"), *home = folder_in("HOME");
    const char *folder = cache != NULL ? cache : home;
    if (folder == NULL) {
        if (speaks)
            fprintf(stderr, "yoke: warning: neither XDG_CACHE_HOME nor HOME names a folder, so "
                            "another run may choose other algorithms and get other bits; --choices "
                            "FILE keeps them\n");
        return;
    }
    int length = snprintf(place->text, sizeof place->text, "%s%s/yoke/choices-1.txt", folder,
                          cache != NULL ? "" : "/.cache");
    if (length >= (int)sizeof place->text) return;
    make_folders(place->text);
    place->path = place->text;
}
