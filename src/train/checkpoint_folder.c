/* SPDX-License-Identifier: Apache-2.0 */
/* Which checkpoints a folder holds: by name, newest first. */
#include "train/checkpoint_folder.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#define LOCK_NAME ".lock"
#define STEP_FORMAT "step-%08" PRIu64 ".safetensors"

static void join(char path[PATH_MAX], const char *folder, const char *name) {
    snprintf(path, PATH_MAX, "%s/%s", folder, name);
}

void yoke_folder_path(char path[PATH_MAX], const char *folder, uint64_t step) {
    char name[64];
    snprintf(name, sizeof name, STEP_FORMAT, step);
    join(path, folder, name);
}

void yoke_folder_best_path(char path[PATH_MAX], const char *folder) {
    join(path, folder, YOKE_BEST_NAME);
}

/* Only names that yoke_folder_path makes. */
static bool read_step(const char *name, uint64_t *step) {
    char again[64];
    if (sscanf(name, "step-%" SCNu64, step) != 1) return false;
    snprintf(again, sizeof again, STEP_FORMAT, *step);
    return strcmp(name, again) == 0;
}

static int newest_first(const void *left, const void *right) {
    uint64_t a = *(const uint64_t *)left, b = *(const uint64_t *)right;
    return (a < b) - (a > b);
}

/* The steps of all files, newest first; the caller frees *steps. */
static yoke_status list_steps(const char *folder, uint64_t **steps, size_t *count) {
    size_t capacity = 0;
    *steps = NULL;
    *count = 0;
    DIR *directory = opendir(folder);
    if (directory == NULL) {
        yoke_status status = errno == ENOENT   ? YOKE_ERROR_MISSING
                             : errno == ENOMEM ? YOKE_ERROR_MEMORY
                                               : YOKE_ERROR_IO;
        return FAIL(status, "%s: cannot list: %s", folder, strerror(errno));
    }
    for (struct dirent *entry; (entry = readdir(directory)) != NULL;) {
        uint64_t step;
        if (!read_step(entry->d_name, &step)) continue;
        if (*count == capacity) {
            capacity = 2 * capacity + 16;
            uint64_t *grown = yoke_realloc(*steps, capacity * sizeof *grown);
            if (grown == NULL) {
                closedir(directory);
                yoke_free(*steps);
                *steps = NULL;
                return FAIL_MEMORY(capacity * sizeof *grown, "a list of checkpoints");
            }
            *steps = grown;
        }
        (*steps)[(*count)++] = step;
    }
    closedir(directory);
    if (*count > 0) qsort(*steps, *count, sizeof **steps, newest_first);
    return YOKE_OK;
}

/* Opening. */

static yoke_status make(const char *path) {
    struct stat about;
    if (mkdir(path, 0777) == 0) {
        int cause = yoke_file_sync_name(path);
        if (cause == 0) return YOKE_OK;
        (void)rmdir(path);
        return FAIL(YOKE_ERROR_IO, "%s: cannot write the new folder to the disk: %s", path,
                    strerror(cause));
    }
    int cause = errno;
    if (cause != EEXIST)
        return FAIL(YOKE_ERROR_IO, "%s: cannot make the folder of checkpoints: %s", path,
                    strerror(cause));
    if (stat(path, &about) == 0 && !S_ISDIR(about.st_mode))
        return FAIL(YOKE_ERROR_ARGUMENT,
                    "%s: is a file; checkpoints need a folder: choose another name", path);
    return YOKE_OK;
}

/* Another run may remove the file between open and flock: such a lock is void. */
static bool is_in_place(const yoke_folder *folder) {
    struct stat file, named;
    return fstat(folder->lock, &file) == 0 &&
           fstatat(folder->place, LOCK_NAME, &named, AT_SYMLINK_NOFOLLOW) == 0 &&
           file.st_dev == named.st_dev && file.st_ino == named.st_ino;
}

/* Whoever may open a file may lock it: this one is for its owner alone. Every open has a lock of
 * its own: two runs of one process exclude each other, too. */
static yoke_status lock(yoke_folder *folder) {
    const int flags = O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC;
    folder->place = open(folder->path, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (folder->place < 0) return YOKE_OK; /* shows when a file is written */
    while ((folder->lock = openat(folder->place, LOCK_NAME, flags, 0600)) >= 0) {
        int cause = flock(folder->lock, LOCK_EX | LOCK_NB) == 0 ? 0 : errno;
        if (cause == 0 && is_in_place(folder)) return YOKE_OK;
        close(folder->lock);
        folder->lock = -1;
        if (cause == EWOULDBLOCK)
            return FAIL(YOKE_ERROR_ARGUMENT,
                        "%s: another run writes its checkpoints here: wait for its end, or choose "
                        "another folder",
                        folder->path);
        if (cause != 0) return YOKE_OK; /* no locks here, as on some network file systems */
    }
    bool other = errno == EACCES && faccessat(folder->place, LOCK_NAME, F_OK, 0) == 0;
    if (!other) return YOKE_OK;
    return FAIL(YOKE_ERROR_ARGUMENT,
                "%s: another user's run writes its checkpoints here, or was killed: choose another "
                "folder, or remove " LOCK_NAME,
                folder->path);
}

/* Also while a forked child of the host program has the descriptor. */
static void unlock(yoke_folder *folder) {
    if (folder->lock >= 0) {
        if (is_in_place(folder)) (void)unlinkat(folder->place, LOCK_NAME, 0);
        (void)flock(folder->lock, LOCK_UN);
        close(folder->lock);
    }
    if (folder->place >= 0) close(folder->place);
    folder->lock = folder->place = -1;
}

/* A killed writer leaves a temporary file. */
static void remove_leftovers(const char *folder) {
    char path[PATH_MAX];
    DIR *directory = opendir(folder);
    if (directory == NULL) return;
    for (struct dirent *entry; (entry = readdir(directory)) != NULL;) {
        const char *name = entry->d_name;
        bool own = strncmp(name, "step-", 5) == 0 || strncmp(name, "best.", 5) == 0;
        if (!own || strstr(name, ".safetensors.tmp.") == NULL) continue;
        join(path, folder, name);
        (void)unlink(path);
    }
    closedir(directory);
}

yoke_status yoke_folder_open(yoke_folder *folder, const char *path) {
    *folder = (yoke_folder){0};
    if (strlen(path) + 64 > PATH_MAX)
        return FAIL(YOKE_ERROR_ARGUMENT, "a folder's name of %zu bytes: at most %d fit a path",
                    strlen(path), PATH_MAX - 64);
    *folder = (yoke_folder){.path = path, .place = -1, .lock = -1};
    char best[PATH_MAX];
    yoke_folder_best_path(best, path);
    yoke_status status = make(path);
    if (status == YOKE_OK) status = lock(folder);
    /* Without a lock they may belong to a run that is alive. */
    if (status == YOKE_OK && folder->lock >= 0) remove_leftovers(path);
    if (status == YOKE_OK) status = yoke_file_check_whole(best);
    if (status != YOKE_OK) yoke_folder_close(folder);
    return status;
}

void yoke_folder_close(yoke_folder *folder) {
    if (folder->path != NULL) unlock(folder);
    *folder = (yoke_folder){0};
}

/* Another run would take the files of this one for its own, and lose its own to prune. */
static yoke_status refuse_used(const char *folder) {
    char best[PATH_MAX];
    uint64_t *steps;
    size_t count;
    TRY(list_steps(folder, &steps, &count));
    yoke_free(steps);
    yoke_folder_best_path(best, folder);
    if (count == 0 && !yoke_file_exists(best)) return YOKE_OK;
    return FAIL(YOKE_ERROR_ARGUMENT,
                "%s: was moved or removed, and the new folder of this name has checkpoints of "
                "another run: move those away",
                folder);
}

yoke_status yoke_folder_restore(yoke_folder *folder) {
    struct stat now, held;
    bool exists = stat(folder->path, &now) == 0, own = !folder->is_lost;
    if (folder->place >= 0)
        own = exists && fstat(folder->place, &held) == 0 && now.st_dev == held.st_dev &&
              now.st_ino == held.st_ino;
    if (exists && own) return YOKE_OK;
    unlock(folder);
    folder->is_lost = true;
    TRY(make(folder->path));
    yoke_status status = lock(folder);
    if (status == YOKE_OK) status = refuse_used(folder->path);
    folder->is_lost = status != YOKE_OK;
    if (status != YOKE_OK) unlock(folder);
    return status;
}

/* Later steps. */

static yoke_status refuse_later(const char *path, uint64_t found, uint64_t step) {
    if (found <= step) return YOKE_OK;
    return FAIL(YOKE_ERROR_ARGUMENT,
                "%s is a checkpoint of step %" PRIu64 ", and this run begins after step %" PRIu64
                ": go on from the newest with --resume auto, or choose another folder",
                path, found, step);
}

yoke_status yoke_folder_check_newest(const char *folder, uint64_t step) {
    char path[PATH_MAX];
    uint64_t *steps, of_best = 0;
    size_t count;
    yoke_checkpoint *best;
    TRY(list_steps(folder, &steps, &count));
    uint64_t newest = count > 0 ? steps[0] : 0;
    yoke_free(steps);
    yoke_folder_path(path, folder, newest);
    TRY(refuse_later(path, newest, step));
    yoke_folder_best_path(path, folder);
    if (!yoke_file_exists(path)) return YOKE_OK;
    yoke_status status = yoke_checkpoint_open(&best, path);
    if (status == YOKE_OK)
        status = yoke_checkpoint_number(best, "step", YOKE_STEPS_LIMIT, &of_best);
    yoke_checkpoint_close(best);
    if (status == YOKE_OK) return refuse_later(path, of_best, step);
    yoke_error_prefix("this run would overwrite it; remove it, or choose another folder");
    return status;
}

void yoke_folder_prune(const char *folder, uint64_t step, int keep) {
    char path[PATH_MAX];
    uint64_t *steps;
    size_t count;
    int kept = 0;
    if (list_steps(folder, &steps, &count) != YOKE_OK) return; /* too many files do no harm */
    for (size_t i = 0; i < count; i++) {
        if (steps[i] > step || ++kept <= keep) continue;
        yoke_folder_path(path, folder, steps[i]);
        (void)unlink(path);
    }
    yoke_free(steps);
}

/* Only damage: a file that this run cannot read now may be the one to go on from. */
static yoke_status pass_over(const char *path, yoke_status status,
                             void (*passed)(void *payload, const char *text), void *payload) {
    char text[YOKE_ERROR_TEXT_BYTES + 16];
    if (status == YOKE_ERROR_MISSING) return YOKE_OK; /* removed since it was listed */
    if (status != YOKE_ERROR_DATA) return status;
    yoke_error error = yoke_error_take(status);
    if (yoke_checkpoint_is_other_format(path)) return yoke_error_restore(&error);
    (void)yoke_error_restore(&error);
    snprintf(text, sizeof text, "passed over %s", yoke_last_error());
    passed(payload, text);
    return YOKE_OK;
}

yoke_status yoke_folder_open_newest(yoke_checkpoint **checkpoint, const char *folder,
                                    void (*passed)(void *payload, const char *text),
                                    void *payload) {
    char path[PATH_MAX];
    uint64_t *steps;
    size_t count;
    *checkpoint = NULL;
    TRY(list_steps(folder, &steps, &count));
    yoke_status status = YOKE_OK;
    for (size_t i = 0; i <= count && status == YOKE_OK && *checkpoint == NULL; i++) {
        if (i < count)
            yoke_folder_path(path, folder, steps[i]);
        else
            yoke_folder_best_path(path, folder);
        if (i == count && !yoke_file_exists(path)) break;
        yoke_status opened = yoke_checkpoint_open(checkpoint, path);
        if (opened != YOKE_OK) status = pass_over(path, opened, passed, payload);
    }
    yoke_free(steps);
    TRY(status);
    if (*checkpoint != NULL) return YOKE_OK;
    if (count == 0 && !yoke_file_exists(path))
        return FAIL(YOKE_ERROR_MISSING, "%s has no checkpoint", folder);
    return FAIL(YOKE_ERROR_DATA,
                "%s: every checkpoint is damaged; to begin from scratch, remove them or choose "
                "another folder",
                folder);
}
