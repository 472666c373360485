/* SPDX-License-Identifier: Apache-2.0 */
/* The XDG Base Directory Specification's folder for what a program can make again. */
#include "cli/algorithm_cache.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "cli/cli.h"

#define LOOK_NS 50000000L
#define LOOKS 40 /* 2 s */

/* Relative paths are invalid there, says the specification. */
static const char *folder_in(const char *variable) {
    const char *folder = getenv(variable);
    return folder != NULL && folder[0] == '/' ? folder : NULL;
}

/* mkdir -p of the path's folders; what cannot be made shows when the file is written. */
static void make_folders(char *path) {
    for (char *slash = strchr(path + 1, '/'); slash != NULL; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        (void)mkdir(path, 0700);
        *slash = '/';
    }
}

int algorithm_cache_check(const algorithm_cache_flags *flags, const char *verb) {
    if (flags->file == NULL || !flags->no_cache) return -1;
    return cli_usage_error(
        verb, "--algorithm-cache names a file, and --no-cache keeps none; leave one out");
}

void algorithm_note_fastest(yoke_algorithm algorithm) {
    if (algorithm == YOKE_ALGORITHM_FASTEST)
        fprintf(stderr, "yoke: --algorithm fastest: on GPUs two runs may differ, because some "
                        "algorithms add in another order in each run\n");
}

/* The library waits for the lock in silence, so the tool says which file it waits for. A run that
 * measures lets go of the lock within seconds; one that is stopped keeps it. */
void algorithm_cache_say_held(const algorithm_cache_place *place) {
    const struct timespec pause = {.tv_nsec = LOOK_NS};
    char lock[sizeof place->text + 8];
    if (place->path == NULL) return;
    snprintf(lock, sizeof lock, "%s.lock", place->path);
    int descriptor = open(lock, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    int looks = 0;
    while (descriptor >= 0 && looks < LOOKS && flock(descriptor, LOCK_SH | LOCK_NB) != 0 &&
           errno == EWOULDBLOCK) {
        nanosleep(&pause, NULL);
        looks++;
    }
    if (descriptor >= 0) close(descriptor);
    if (looks == LOOKS)
        fprintf(stderr,
                "yoke: another run holds %s while it measures: this one waits for it up to 120 s; "
                "--no-cache waits for nobody\n",
                lock);
}

void algorithm_cache_find(algorithm_cache_place *place, const algorithm_cache_flags *flags,
                          bool speaks) {
    place->path = flags->file;
    place->replace_broken = flags->file == NULL;
    if (flags->file != NULL && speaks) algorithm_cache_say_held(place);
    if (flags->file != NULL || flags->no_cache) return;
    const char *cache = folder_in("XDG_CACHE_HOME"), *home = folder_in("HOME");
    const char *folder = cache != NULL ? cache : home;
    if (folder == NULL) {
        if (speaks)
            fprintf(stderr,
                    "yoke: warning: neither XDG_CACHE_HOME nor HOME names a folder, so "
                    "another run may choose other algorithms and get other bits; --algorithm-cache "
                    "FILE keeps them\n");
        return;
    }
    int length = snprintf(place->text, sizeof place->text, "%s%s/yoke/choices-1.txt", folder,
                          cache != NULL ? "" : "/.cache");
    if (length >= (int)sizeof place->text) {
        if (speaks)
            fprintf(
                stderr,
                "yoke: warning: %s names a folder of %zu bytes, too long for a path, so another "
                "run may choose other algorithms and get other bits; --algorithm-cache FILE keeps "
                "them\n",
                cache != NULL ? "XDG_CACHE_HOME" : "HOME", strlen(folder));
        return;
    }
    make_folders(place->text);
    place->path = place->text;
    if (speaks) algorithm_cache_say_held(place);
}
