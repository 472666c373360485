/* The XDG Base Directory Specification's folder for what a program can make again. */
#include "cli/choices_place.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

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

const char *choices_place(choices_path *path, const char *given, bool speaks) {
    if (given != NULL) return strcmp(given, "none") == 0 ? NULL : given;
    const char *cache = folder_in("XDG_CACHE_HOME"), *home = folder_in("HOME");
    const char *folder = cache != NULL ? cache : home;
    if (folder == NULL) {
        if (speaks)
            fprintf(stderr, "yoke: warning: neither XDG_CACHE_HOME nor HOME names a folder, so "
                            "another run may choose other algorithms and get other bits; --choices "
                            "FILE keeps them\n");
        return NULL;
    }
    int length = snprintf(path->text, sizeof path->text, "%s%s/yoke/choices-1.txt", folder,
                          cache != NULL ? "" : "/.cache");
    if (length >= (int)sizeof path->text) return NULL;
    make_folders(path->text);
    return path->text;
}
