/* SPDX-License-Identifier: Apache-2.0 */
/* The library reads no environment, and two ranks of one run may have different ones: so all look
 * through the same places. /run/user comes last because a logout empties it, and a run may go on.
 */
#include "distributed/store/meeting.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#define PLACES 4
#define PLACE_BYTES 32
#define RANDOM "-XXXXXX"
#define TRIES 100 /* of making a folder that no other run's rank 0 takes for a dead run's */

static void list_places(char places[PLACES][PLACE_BYTES]) {
    strcpy(places[0], "/tmp");
    strcpy(places[1], "/var/tmp");
    strcpy(places[2], "/dev/shm");
    snprintf(places[3], PLACE_BYTES, "/run/user/%ld", (long)geteuid());
}

void yoke_meeting_name(char name[YOKE_MEETING_NAME_BYTES], uint64_t hash) {
    snprintf(name, YOKE_MEETING_NAME_BYTES, "yoke-%ld-%016llx", (long)geteuid(),
             (unsigned long long)hash);
}

/* Opens a folder that this user owns and nobody else may enter. -1 with errno. */
static int open_private(int place, const char *name) {
    struct stat found;
    int directory =
        openat(place, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (directory < 0) return -1;
    if (fstat(directory, &found) == 0 && found.st_uid == geteuid() && (found.st_mode & 077) == 0)
        return directory;
    close(directory);
    errno = EPERM;
    return -1;
}

/* Making a folder. */

/* Where others may write, only the sticky bit keeps them from moving this user's folders. */
static int check_place(const char *place) {
    struct stat found;
    if (stat(place, &found) != 0) return errno;
    if (!S_ISDIR(found.st_mode)) return ENOTDIR;
    return (found.st_mode & 022) != 0 && (found.st_mode & S_ISVTX) == 0 ? EPERM : 0;
}

/* Another run's rank 0 may find the folder before its lock is taken, and remove it. */
static bool lock_folder(int directory) {
    struct stat found;
    if (flock(directory, LOCK_SH | LOCK_NB) != 0) return errno != EWOULDBLOCK;
    return fstat(directory, &found) == 0 && found.st_nlink > 0;
}

/* Returns 0 or an errno. */
static int make_in(yoke_meeting *meeting, const char *place, const char *name) {
    int cause = check_place(place);
    for (int i = 0; i < TRIES && cause == 0; i++) {
        if ((meeting->path = yoke_format("%s/%s" RANDOM, place, name)) == NULL) return ENOMEM;
        if (mkdtemp(meeting->path) != NULL) {
            meeting->directory = open_private(AT_FDCWD, meeting->path);
            if (meeting->directory < 0 && errno != ENOENT) cause = errno;
            if (meeting->directory >= 0 && lock_folder(meeting->directory)) return 0;
            if (meeting->directory >= 0) close(meeting->directory);
            rmdir(meeting->path);
        } else {
            cause = errno;
        }
        yoke_free(meeting->path);
    }
    return cause == 0 ? EBUSY : cause;
}

yoke_status yoke_meeting_make(yoke_meeting *meeting, const char *name) {
    char places[PLACES][PLACE_BYTES];
    int causes[PLACES];
    list_places(places);
    for (int i = 0; i < PLACES; i++) {
        causes[i] = make_in(meeting, places[i], name);
        if (causes[i] == 0) return YOKE_OK;
    }
    *meeting = (yoke_meeting){.directory = -1};
    return FAIL(YOKE_ERROR_IO,
                "cannot create a folder for the ranks of this machine in %s (%s), %s (%s), %s (%s) "
                "or %s (%s): name one, as file:///path, in place of rank 0's address",
                places[0], strerror(causes[0]), places[1], strerror(causes[1]), places[2],
                strerror(causes[2]), places[3], strerror(causes[3]));
}

/* Looking through the folders. */

typedef struct visitor {
    const char *name, *run_id;
    const struct stat *own; /* skip this folder; NULL: none */
    yoke_meeting *found;
    yoke_run_record record;
} visitor;

typedef struct entry {
    const char *place, *name;
    int in, directory; /* the open place and folder */
} entry;

/* Returns true to end the search. May take the directory and set it to -1. */
typedef bool (*visit)(visitor *self, entry *each);

static bool begins(const char *text, const char *start) {
    return strncmp(text, start, strlen(start)) == 0;
}

static bool visit_entry(visitor *self, visit look, entry *each) {
    struct stat found;
    each->directory = open_private(each->in, each->name);
    if (each->directory < 0) return false;
    bool is_own = self->own != NULL && fstat(each->directory, &found) == 0 &&
                  found.st_ino == self->own->st_ino && found.st_dev == self->own->st_dev;
    bool ends = !is_own && look(self, each);
    if (each->directory >= 0) close(each->directory);
    return ends;
}

/* Visits each private folder that has such a name. */
static bool visit_place(visitor *self, visit look, const char *place, const char *start) {
    size_t length = strlen(self->name) + strlen(RANDOM);
    DIR *list = opendir(place);
    bool ends = false;
    if (list == NULL) return false;
    for (struct dirent *each; !ends && (each = readdir(list)) != NULL;) {
        if (strlen(each->d_name) != length || !begins(each->d_name, start)) continue;
        entry one = {.place = place, .name = each->d_name, .in = dirfd(list)};
        ends = visit_entry(self, look, &one);
    }
    closedir(list);
    return ends;
}

static bool visit_all(visitor *self, visit look, const char *start) {
    char places[PLACES][PLACE_BYTES];
    bool ends = false;
    list_places(places);
    for (int i = 0; i < PLACES && !ends; i++)
        ends = visit_place(self, look, places[i], start);
    return ends;
}

static bool is_this_run(visitor *self, const entry *each) {
    bool found;
    return begins(each->name, self->name) &&
           yoke_run_record_read(each->directory, &self->record, &found) &&
           strcmp(self->record.run_id, self->run_id) == 0;
}

static bool take_if_this_run(visitor *self, entry *each) {
    if (!is_this_run(self, each) || !lock_folder(each->directory)) return false;
    if ((self->found->path = yoke_format("%s/%s", each->place, each->name)) == NULL) return false;
    self->found->directory = each->directory;
    each->directory = -1;
    return true;
}

bool yoke_meeting_find(yoke_meeting *meeting, yoke_run_record *record, const char *name,
                       const char *run_id) {
    visitor self = {.name = name, .run_id = run_id, .found = meeting};
    if (!visit_all(&self, take_if_this_run, name)) return false;
    *record = self.record;
    return true;
}

static bool remove_if_dead(visitor *self, entry *each) {
    if (flock(each->directory, LOCK_EX | LOCK_NB) != 0) return is_this_run(self, each);
    yoke_run_files_remove(each->directory, true);
    unlinkat(each->in, each->name, AT_REMOVEDIR);
    return false;
}

yoke_status yoke_meeting_clear(const yoke_meeting *meeting, const char *name, const char *run_id) {
    char start[32];
    struct stat own;
    visitor self = {.name = name, .run_id = run_id, .own = &own};
    snprintf(start, sizeof start, "yoke-%ld-", (long)geteuid());
    if (fstat(meeting->directory, &own) != 0 || !visit_all(&self, remove_if_dead, start))
        return YOKE_OK;
    return FAIL(YOKE_ERROR_ARGUMENT,
                "rank 0 of the run \"%s\" is %s already: end that run, or give this one another "
                "run id or port",
                run_id, self.record.owner);
}

yoke_status yoke_meeting_fail_absent(const char *name, int timeout_ms) {
    char places[PLACES][PLACE_BYTES];
    list_places(places);
    return FAIL(YOKE_ERROR_TIMEOUT,
                "rank 0 did not come within %d ms: it makes %s-* in %s, %s, %s or %s; is it "
                "running on this machine, as this user? Ranks that share none of these folders "
                "need file:///path as rank 0's address, or its host and port with a token",
                timeout_ms, name, places[0], places[1], places[2], places[3]);
}
