/* SPDX-License-Identifier: Apache-2.0 */
/* yoke-run names the run, its owner and a nonce; the owner holds the lock of yoke-owner-NONCE. */
#include "distributed/store/run_record.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#define PREFIX "yoke-"

int yoke_run_file_open(int directory, const char *name, int flags) {
    struct stat found;
    int descriptor =
        openat(directory, name, flags | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY, 0600);
    if (descriptor < 0) return -1;
    if (fstat(descriptor, &found) == 0 && S_ISREG(found.st_mode) && found.st_uid == geteuid())
        return descriptor;
    close(descriptor);
    errno = EPERM;
    return -1;
}

void yoke_run_owner_file(char name[YOKE_OWNER_FILE_BYTES], const char *nonce) {
    snprintf(name, YOKE_OWNER_FILE_BYTES, PREFIX "owner-%s", nonce);
}

bool yoke_run_owner_runs(int directory, const char *nonce) {
    char name[YOKE_OWNER_FILE_BYTES];
    yoke_run_owner_file(name, nonce);
    int descriptor = yoke_run_file_open(directory, name, O_RDONLY);
    if (descriptor < 0) return false;
    bool locked = flock(descriptor, LOCK_SH | LOCK_NB) != 0;
    close(descriptor);
    return locked;
}

static bool read_text(int directory, yoke_run_record *record) {
    char text[512];
    int descriptor = yoke_run_file_open(directory, YOKE_RUN_FILE, O_RDONLY);
    if (descriptor < 0) return false;
    ssize_t got = read(descriptor, text, sizeof text - 1);
    close(descriptor);
    if (got <= 0) return false;
    text[got] = '\0';
    *record = (yoke_run_record){0};
    return sscanf(text, "yoke store 2\nnonce %64[0-9a-f]\nowner %127[^\n]\nrun %63[^\n]",
                  record->nonce, record->owner, record->run_id) >= 2;
}

/* An owner takes its lock before it writes its nonce, so a record never names a lock that is about
 * to be taken. */
bool yoke_run_record_read(int directory, yoke_run_record *record, bool *found) {
    *found = read_text(directory, record);
    return *found && yoke_run_owner_runs(directory, record->nonce);
}

void yoke_run_files_remove(int directory, bool guard_too) {
    int again = openat(directory, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *list = again < 0 ? NULL : fdopendir(again);
    if (list == NULL) {
        if (again >= 0) close(again);
        return;
    }
    for (struct dirent *each; (each = readdir(list)) != NULL;) {
        if (strncmp(each->d_name, PREFIX, strlen(PREFIX)) != 0) continue;
        if (!guard_too && strcmp(each->d_name, PREFIX "guard") == 0) continue;
        unlinkat(directory, each->d_name, 0);
    }
    closedir(list);
}
