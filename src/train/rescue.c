/* SPDX-License-Identifier: Apache-2.0 */
/* Places for a result that cannot be written where it should be. */
#include "train/rescue.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *name_of(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash != NULL ? slash + 1 : path;
}

/* Into a new folder in `parent`, whose first `length` bytes count. */
static bool write_in(const yoke_rescue_options *options, const char *parent, int length,
                     char where[PATH_MAX]) {
    char folder[PATH_MAX];
    int bytes = snprintf(folder, sizeof folder, "%.*s/yoke-rescued-XXXXXX", length, parent);
    if (bytes >= PATH_MAX || mkdtemp(folder) == NULL) return false;
    bytes = snprintf(where, PATH_MAX, "%s/%s", folder, name_of(options->path));
    if (bytes < PATH_MAX && options->write(options->context, where) == YOKE_OK) {
        (void)yoke_file_sync_name(folder);
        return true;
    }
    (void)rmdir(folder);
    return false;
}

yoke_status yoke_rescue(yoke_status failed, const yoke_rescue_options *options,
                        char where[PATH_MAX]) {
    static const char *const folders[] = {".", "/tmp", "/var/tmp", "/dev/shm"};
    yoke_error error = yoke_error_take(failed);
    int length = (int)(name_of(options->path) - options->path);
    bool saved = length > 0 ? write_in(options, options->path, length - 1, where)
                            : write_in(options, ".", 1, where);
    for (size_t i = 0; !saved && i < sizeof folders / sizeof folders[0]; i++)
        saved = write_in(options, folders[i], (int)strlen(folders[i]), where);
    size_t used = strlen(error.text);
    if (saved)
        snprintf(error.text + used, sizeof error.text - used, "; %s are in %s", options->what,
                 where);
    else
        snprintf(error.text + used, sizeof error.text - used,
                 "; %s could be written neither beside it nor in the working directory, /tmp, "
                 "/var/tmp or /dev/shm",
                 options->what);
    if (!saved) where[0] = '\0';
    return yoke_error_restore(&error);
}
