/* SPDX-License-Identifier: Apache-2.0 */
/* A file that exists is its device and inode; one that does not exist yet is its name in the device
 * and inode of its folder. */
#include "base/same_file.h"

#include <fnmatch.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"

#define LINKS_MOST 40 /* as the kernel follows */

typedef struct identity {
    dev_t device;
    ino_t inode;             /* of the file, or of the folder where it will be */
    char name[NAME_MAX + 1]; /* in that folder; "": the file exists */
} identity;

/* Replaces path by what the symbolic link at it names. False: there is no link. */
static bool follow(char path[PATH_MAX]) {
    char target[PATH_MAX], joined[2 * PATH_MAX];
    ssize_t length = readlink(path, target, sizeof target - 1);
    if (length < 0) return false;
    target[length] = '\0';
    const char *slash = strrchr(path, '/');
    int folder = slash != NULL && target[0] != '/' ? (int)(slash - path) + 1 : 0;
    int bytes = snprintf(joined, sizeof joined, "%.*s%s", folder, path, target);
    if (bytes >= PATH_MAX) return false;
    memcpy(path, joined, (size_t)bytes + 1);
    return true;
}

/* Identifies a file that does not exist yet, at the end of the path's links. */
static bool identify_new(const char *path, identity *found) {
    char own[PATH_MAX];
    struct stat folder;
    if (snprintf(own, sizeof own, "%s", path) >= (int)sizeof own) return false;
    for (int i = 0; i < LINKS_MOST && follow(own); i++)
        continue;
    char *slash = strrchr(own, '/');
    const char *name = slash != NULL ? slash + 1 : own;
    if (snprintf(found->name, sizeof found->name, "%s", name) >= (int)sizeof found->name)
        return false;
    if (slash != NULL) slash[1] = '\0';
    if (stat(slash != NULL ? own : ".", &folder) != 0) return false;
    found->device = folder.st_dev;
    found->inode = folder.st_ino;
    return true;
}

/* False: nobody can write to this path, or several programs can at a time. */
static bool identify(const char *path, identity *found) {
    struct stat file;
    *found = (identity){0};
    if (stat(path, &file) != 0) return identify_new(path, found);
    found->device = file.st_dev;
    found->inode = file.st_ino;
    return S_ISREG(file.st_mode);
}

bool yoke_file_is_same(const char *one, const char *other) {
    identity a, b;
    return identify(one, &a) && identify(other, &b) && a.device == b.device && a.inode == b.inode &&
           strcmp(a.name, b.name) == 0;
}

/* "csv:train.csv,test=more.csv,label=name" reads train.csv and more.csv; what does not exist yet is
 * no file of the dataset, even if it has the name of an option or a column. */
static bool reads(const char *spec, const char *path) {
    static const char test[] = "test=";
    char part[PATH_MAX];
    const char *next = strchr(spec, ':');
    while (next != NULL && access(path, F_OK) == 0) {
        size_t length = strcspn(++next, ","), skipped = sizeof test - 1;
        snprintf(part, sizeof part, "%.*s", (int)length, next);
        if (yoke_file_is_same(part, path)) return true;
        if (strncmp(part, test, skipped) == 0 && yoke_file_is_same(part + skipped, path))
            return true;
        next = next[length] == ',' ? next + length : NULL;
    }
    return false;
}

/* Whether a checkpoint in the folder may get the name of this file. */
static bool takes(const char *folder, const char *path) {
    char checkpoint[PATH_MAX];
    const char *slash = strrchr(path, '/'), *name = slash != NULL ? slash + 1 : path;
    bool is_checkpoint =
        fnmatch("step-*.safetensors", name, 0) == 0 || strcmp(name, "best.safetensors") == 0;
    snprintf(checkpoint, sizeof checkpoint, "%s/%s", folder, name);
    return is_checkpoint && yoke_file_is_same(checkpoint, path);
}

static bool meets(const yoke_used_file *written, const yoke_used_file *other) {
    if (other->use == YOKE_FILE_SPEC) return reads(other->path, written->path);
    if (other->use == YOKE_FILE_CHECKPOINTS) return takes(other->path, written->path);
    return yoke_file_is_same(other->path, written->path);
}

static yoke_status refuse(const yoke_used_file *written, const yoke_used_file *other) {
    if (other->use == YOKE_FILE_CHECKPOINTS)
        return FAIL(YOKE_ERROR_ARGUMENT,
                    "%s %s has the name of a checkpoint in %s %s; choose another name",
                    written->name, written->path, other->name, other->path);
    if (other->use == YOKE_FILE_WRITTEN)
        return FAIL(YOKE_ERROR_ARGUMENT,
                    "%s %s and %s %s are one file, which both would write; choose another name for "
                    "one of them",
                    written->name, written->path, other->name, other->path);
    return FAIL(YOKE_ERROR_ARGUMENT,
                "%s %s would overwrite what %s %s reads: they are one file; choose another name",
                written->name, written->path, other->name, other->path);
}

yoke_status yoke_files_check_apart(const yoke_used_file *files, int count) {
    for (int i = 0; i < count; i++) {
        const yoke_used_file *written = &files[i];
        if (written->path == NULL || written->use != YOKE_FILE_WRITTEN) continue;
        for (int k = 0; k < count; k++)
            if (k != i && files[k].path != NULL && meets(written, &files[k]))
                return refuse(written, &files[k]);
    }
    return YOKE_OK;
}
