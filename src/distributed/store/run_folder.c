/* SPDX-License-Identifier: Apache-2.0 */
/* The owner holds the lock of yoke-owner-NONCE, the other ranks share the lock of yoke-members, and
 * a rank that changes a file holds yoke-guard. */
#include "distributed/store/run_folder.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "distributed/store/meeting.h"
#include "distributed/store/run_record.h"

#define LINGER_MS 1000
#define RETRY_MS 2
#define GUARD "yoke-guard"
#define MEMBERS "yoke-members"

char *yoke_run_folder_file(const yoke_run_folder *folder, const char *name) {
    return yoke_format("%s/%s", folder->path, name);
}

static bool lock_until(int descriptor, int kind, uint64_t deadline) {
    while (flock(descriptor, kind | LOCK_NB) != 0) {
        if (errno != EWOULDBLOCK && errno != EINTR) return false;
        if (yoke_now_ns() >= deadline) return false;
        poll(NULL, 0, RETRY_MS);
    }
    return true;
}

bool yoke_run_folder_lock(const yoke_run_folder *folder, uint64_t deadline) {
    return lock_until(folder->change_lock, LOCK_EX, deadline);
}

void yoke_run_folder_unlock(const yoke_run_folder *folder) {
    flock(folder->change_lock, LOCK_UN);
}

static int write_all(int descriptor, yoke_bytes part) {
    const char *next = part.data;
    while (part.bytes > 0) {
        ssize_t written = write(descriptor, next, part.bytes);
        if (written < 0 && errno == EINTR) continue;
        if (written < 0) return errno;
        next += written;
        part.bytes -= (size_t)written;
    }
    return 0;
}

int yoke_run_folder_publish(const yoke_run_folder *folder, const char *name,
                            const yoke_bytes parts[2], bool once) {
    uint8_t nonce[YOKE_NONCE_BYTES];
    uint64_t word;
    char temporary[64];
    if (!yoke_nonce_make(nonce)) return EAGAIN;
    memcpy(&word, nonce, sizeof word);
    snprintf(temporary, sizeof temporary, "yoke-tmp-%016llx", (unsigned long long)word);
    int folder_at = folder->directory;
    int descriptor = yoke_run_file_open(folder_at, temporary, O_WRONLY | O_CREAT | O_EXCL);
    if (descriptor < 0) return errno;
    int cause = write_all(descriptor, parts[0]);
    if (cause == 0) cause = write_all(descriptor, parts[1]);
    if (close(descriptor) != 0 && cause == 0) cause = errno;
    /* rename would replace a file that another rank published in between. */
    if (cause == 0 && (once ? linkat(folder_at, temporary, folder_at, name, 0)
                            : renameat(folder_at, temporary, folder_at, name)) != 0)
        cause = errno;
    unlinkat(folder_at, temporary, 0);
    return cause;
}

bool yoke_run_folder_owner_runs(const yoke_run_folder *folder) {
    return yoke_run_owner_runs(folder->directory, folder->nonce);
}

static void close_descriptor(int *descriptor) {
    if (*descriptor >= 0) close(*descriptor);
    *descriptor = -1;
}

static int open_directory(const char *path) {
    return open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
}

/* Checks what open_directory opened, for a folder that the user named. */
static yoke_status check_named(const yoke_run_folder *folder) {
    struct stat found;
    if (folder->directory < 0 && (errno == ENOTDIR || errno == ELOOP))
        return FAIL(YOKE_ERROR_ARGUMENT, "%s is not a folder: name one that only this run uses",
                    folder->path);
    if (folder->directory < 0 || fstat(folder->directory, &found) != 0)
        return FAIL(YOKE_ERROR_IO, "%s: cannot open the store's folder: %s", folder->path,
                    strerror(errno));
    if (found.st_uid != geteuid() || (found.st_mode & 022) != 0)
        return FAIL(
            YOKE_ERROR_ARGUMENT,
            "%s belongs to another user, or other users may write there: name a folder that only "
            "you can write",
            folder->path);
    return YOKE_OK;
}

static yoke_status fail_taken(const yoke_run_folder *folder, const yoke_run_record *record) {
    return FAIL(YOKE_ERROR_ARGUMENT, "%s belongs to the run \"%s\" of %s: name another folder",
                folder->path, record->run_id, record->owner);
}

/* The caller holds the lock, so the files belong to a running run or are stale. */
static yoke_status take_folder(yoke_run_folder *folder, const char *run_id) {
    yoke_run_record record;
    bool found;
    char name[YOKE_OWNER_FILE_BYTES];
    if (yoke_run_record_read(folder->directory, &record, &found))
        return fail_taken(folder, &record);
    yoke_run_files_remove(folder->directory, false);
    uint8_t nonce[YOKE_NONCE_BYTES];
    if (!yoke_nonce_make(nonce))
        return FAIL(YOKE_ERROR_SYSTEM, "cannot make a nonce: getrandom failed");
    for (int i = 0; i < YOKE_NONCE_BYTES; i++)
        snprintf(folder->nonce + 2 * i, 3, "%02x", nonce[i]);
    yoke_run_owner_file(name, folder->nonce);
    folder->owner_lock = yoke_run_file_open(folder->directory, name, O_RDWR | O_CREAT | O_EXCL);
    folder->member_lock = yoke_run_file_open(folder->directory, MEMBERS, O_RDWR | O_CREAT);
    if (folder->owner_lock < 0 || folder->member_lock < 0 ||
        flock(folder->owner_lock, LOCK_EX | LOCK_NB) != 0)
        return FAIL(YOKE_ERROR_IO, "%s: cannot lock a file: %s", folder->path, strerror(errno));
    char text[512], host[64] = "";
    gethostname(host, sizeof host - 1);
    int length = snprintf(text, sizeof text, "yoke store 2\nnonce %s\nowner %s:%ld\nrun %s\n",
                          folder->nonce, host, (long)getpid(), run_id);
    const yoke_bytes parts[2] = {{.data = text, .bytes = (size_t)length}, {0}};
    int cause = yoke_run_folder_publish(folder, YOKE_RUN_FILE, parts, false);
    if (cause == 0) return YOKE_OK;
    return FAIL(YOKE_ERROR_IO, "%s: cannot write: %s", folder->path, strerror(cause));
}

static void take_meeting(yoke_run_folder *folder, const yoke_meeting *meeting) {
    folder->path = meeting->path;
    folder->directory = meeting->directory;
}

static yoke_status open_owner(yoke_run_folder *folder, const yoke_store_options *options,
                              uint64_t deadline) {
    if (mkdir(folder->path, 0700) != 0 && errno != EEXIST)
        return FAIL(YOKE_ERROR_IO, "%s: cannot create the store's folder: %s", folder->path,
                    strerror(errno));
    folder->directory = open_directory(folder->path);
    TRY(check_named(folder));
    folder->change_lock = yoke_run_file_open(folder->directory, GUARD, O_RDWR | O_CREAT);
    if (folder->change_lock < 0 || !yoke_run_folder_lock(folder, deadline))
        return FAIL(YOKE_ERROR_IO, "%s: cannot lock a file: %s", folder->path, strerror(errno));
    yoke_status status = take_folder(folder, options->run_id);
    yoke_run_folder_unlock(folder);
    return status;
}

static yoke_status open_meeting_owner(yoke_run_folder *folder, const char *name,
                                      const char *run_id) {
    yoke_meeting meeting;
    TRY(yoke_meeting_make(&meeting, name));
    take_meeting(folder, &meeting);
    folder->is_open = true; /* to be removed, even half-built */
    folder->change_lock = yoke_run_file_open(folder->directory, GUARD, O_RDWR | O_CREAT);
    if (folder->change_lock < 0)
        return FAIL(YOKE_ERROR_IO, "%s: cannot create a file: %s", folder->path, strerror(errno));
    TRY(take_folder(folder, run_id));
    return yoke_meeting_clear(&meeting, name, run_id);
}

static yoke_status fail_no_owner(const yoke_run_folder *folder, bool stale,
                                 const yoke_run_record *record) {
    if (!stale)
        return FAIL(YOKE_ERROR_TIMEOUT, "%s: rank 0 did not open a store there in time",
                    folder->path);
    return FAIL(YOKE_ERROR_TIMEOUT,
                "%s holds only the files of the run \"%s\" of %s, which has ended: rank 0 of this "
                "run did not come",
                folder->path, record->run_id, record->owner);
}

static yoke_status await_owner(yoke_run_folder *folder, yoke_run_record *record,
                               uint64_t deadline) {
    for (bool stale = false;;) {
        folder->directory = open_directory(folder->path);
        if (folder->directory >= 0 || errno != ENOENT) {
            TRY(check_named(folder));
            if (yoke_run_record_read(folder->directory, record, &stale)) return YOKE_OK;
            close_descriptor(&folder->directory);
        }
        if (yoke_now_ns() >= deadline) return fail_no_owner(folder, stale, record);
        poll(NULL, 0, 5 * RETRY_MS);
    }
}

static yoke_status join(yoke_run_folder *folder, const yoke_run_record *record) {
    memcpy(folder->nonce, record->nonce, sizeof folder->nonce);
    folder->change_lock = yoke_run_file_open(folder->directory, GUARD, O_RDWR);
    folder->member_lock = yoke_run_file_open(folder->directory, MEMBERS, O_RDWR);
    if (folder->change_lock < 0 || folder->member_lock < 0 ||
        flock(folder->member_lock, LOCK_SH | LOCK_NB) != 0)
        return FAIL(YOKE_ERROR_PEER, "%s: rank 0, which owns the store, has left", folder->path);
    return YOKE_OK;
}

static yoke_status open_member(yoke_run_folder *folder, const char *run_id, uint64_t deadline) {
    yoke_run_record record = {0};
    TRY(await_owner(folder, &record, deadline));
    if (strcmp(record.run_id, run_id) != 0) return fail_taken(folder, &record);
    return join(folder, &record);
}

static yoke_status open_meeting_member(yoke_run_folder *folder, const char *name,
                                       const yoke_store_options *options, uint64_t deadline) {
    yoke_meeting meeting;
    yoke_run_record record;
    while (!yoke_meeting_find(&meeting, &record, name, options->run_id)) {
        if (yoke_now_ns() >= deadline) return yoke_meeting_fail_absent(name, options->timeout_ms);
        poll(NULL, 0, 5 * RETRY_MS);
    }
    take_meeting(folder, &meeting);
    return join(folder, &record);
}

static yoke_status open_named(yoke_run_folder *folder, const yoke_store_options *options,
                              uint64_t deadline) {
    const char *path = options->address + strlen("file://");
    if (path[0] != '/')
        return FAIL(YOKE_ERROR_ARGUMENT,
                    "the store's address is \"%s\": file:// and an absolute path is expected",
                    options->address);
    folder->path = yoke_strdup(path);
    if (folder->path == NULL) return FAIL_MEMORY(strlen(path) + 1, "a store folder");
    return options->serve ? open_owner(folder, options, deadline)
                          : open_member(folder, options->run_id, deadline);
}

static yoke_status open_meeting(yoke_run_folder *folder, const yoke_store_options *options,
                                uint64_t deadline) {
    const char *name = options->address + strlen(YOKE_MEETING);
    folder->is_private = true;
    return options->serve ? open_meeting_owner(folder, name, options->run_id)
                          : open_meeting_member(folder, name, options, deadline);
}

yoke_status yoke_run_folder_open(yoke_run_folder *folder, const yoke_store_options *options) {
    *folder = (yoke_run_folder){.owner = options->serve,
                                .directory = -1,
                                .change_lock = -1,
                                .owner_lock = -1,
                                .member_lock = -1};
    if (strlen(options->run_id) >= YOKE_RUN_ID_LIMIT || strchr(options->run_id, '\n') != NULL)
        return FAIL(YOKE_ERROR_ARGUMENT,
                    "the run id has %zu bytes: one line of at most %d is expected",
                    strlen(options->run_id), YOKE_RUN_ID_LIMIT - 1);
    uint64_t deadline = yoke_now_ns() + (uint64_t)options->timeout_ms * 1000000u;
    bool meets = strncmp(options->address, YOKE_MEETING, strlen(YOKE_MEETING)) == 0;
    TRY(meets ? open_meeting(folder, options, deadline) : open_named(folder, options, deadline));
    folder->is_open = true;
    return YOKE_OK;
}

/* Whether this rank must remove the folder. */
static bool is_last(yoke_run_folder *folder) {
    if (folder->owner) {
        lock_until(folder->member_lock, LOCK_EX, yoke_now_ns() + LINGER_MS * 1000000u);
        return true;
    }
    yoke_run_record record;
    bool found;
    if (yoke_run_folder_owner_runs(folder) || flock(folder->member_lock, LOCK_EX | LOCK_NB) != 0)
        return false;
    if (folder->is_private) return true;
    yoke_run_record_read(folder->directory, &record, &found);
    return found && strcmp(record.nonce, folder->nonce) == 0;
}

void yoke_run_folder_close(yoke_run_folder *folder) {
    if (folder->path == NULL) return;
    /* From here on the ranks of the next run must not find this one. */
    if (folder->is_private && folder->owner) unlinkat(folder->directory, YOKE_RUN_FILE, 0);
    if (folder->is_open && is_last(folder)) {
        yoke_run_files_remove(folder->directory, true);
        rmdir(folder->path);
    }
    close_descriptor(&folder->owner_lock);
    close_descriptor(&folder->member_lock);
    close_descriptor(&folder->change_lock);
    close_descriptor(&folder->directory);
    yoke_free(folder->path);
    folder->path = NULL;
}
