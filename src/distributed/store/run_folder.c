/* yoke-run names the run, its owner and a nonce. The owner holds the lock of yoke-owner-NONCE, the
 * other ranks share the lock of yoke-members, and a rank that changes a file holds yoke-guard. */
#include "distributed/store/run_folder.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#define LINGER_MS 1000
#define RETRY_MS 2
#define PREFIX "yoke-"

char *yoke_run_folder_file(const yoke_run_folder *folder, const char *name) {
    char *path;
    return asprintf(&path, "%s/%s", folder->path, name) < 0 ? NULL : path;
}

/* -1 with errno. */
static int open_file(const yoke_run_folder *folder, const char *name, int flags) {
    char *path = yoke_run_folder_file(folder, name);
    if (path == NULL) return -1;
    int descriptor = open(path, flags | O_CLOEXEC | O_NOFOLLOW, 0600);
    int cause = errno;
    free(path);
    errno = cause;
    return descriptor;
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
    snprintf(temporary, sizeof temporary, PREFIX "tmp-%016llx", (unsigned long long)word);
    int descriptor = open_file(folder, temporary, O_WRONLY | O_CREAT | O_EXCL);
    if (descriptor < 0) return errno;
    int cause = write_all(descriptor, parts[0]);
    if (cause == 0) cause = write_all(descriptor, parts[1]);
    if (close(descriptor) != 0 && cause == 0) cause = errno;
    char *from = yoke_run_folder_file(folder, temporary), *to = yoke_run_folder_file(folder, name);
    if (cause == 0 && (from == NULL || to == NULL)) cause = ENOMEM;
    /* rename would replace a file that another rank published in between. */
    if (cause == 0 && (once ? link(from, to) : rename(from, to)) != 0) cause = errno;
    if (from != NULL) unlink(from);
    free(from);
    free(to);
    return cause;
}

typedef struct run_record {
    char run_id[YOKE_RUN_ID_LIMIT], nonce[YOKE_NONCE_TEXT], owner[128];
} run_record;

/* False: there is no record, or not one of this version. */
static bool read_record(const yoke_run_folder *folder, run_record *record) {
    char text[512];
    int descriptor = open_file(folder, PREFIX "run", O_RDONLY);
    if (descriptor < 0) return false;
    ssize_t got = read(descriptor, text, sizeof text - 1);
    close(descriptor);
    if (got <= 0) return false;
    text[got] = '\0';
    *record = (run_record){0};
    return sscanf(text, "yoke store 2\nnonce %64[0-9a-f]\nowner %127[^\n]\nrun %63[^\n]",
                  record->nonce, record->owner, record->run_id) >= 2;
}

static void name_owner_file(char *name, size_t size, const char *nonce) {
    snprintf(name, size, PREFIX "owner-%s", nonce);
}

/* Whether a process holds the owner's lock of this nonce. */
static bool owner_runs(const yoke_run_folder *folder, const char *nonce) {
    char name[YOKE_NONCE_TEXT + 16];
    name_owner_file(name, sizeof name, nonce);
    int descriptor = open_file(folder, name, O_RDONLY);
    if (descriptor < 0) return false;
    bool locked = flock(descriptor, LOCK_SH | LOCK_NB) != 0;
    close(descriptor);
    return locked;
}

bool yoke_run_folder_owner_runs(const yoke_run_folder *folder) {
    return owner_runs(folder, folder->nonce);
}

/* Only files with the prefix: the user may have made the folder. */
static void remove_files(const yoke_run_folder *folder, bool guard_too) {
    DIR *directory = opendir(folder->path);
    if (directory == NULL) return;
    for (struct dirent *each; (each = readdir(directory)) != NULL;) {
        if (strncmp(each->d_name, PREFIX, strlen(PREFIX)) != 0) continue;
        if (!guard_too && strcmp(each->d_name, PREFIX "guard") == 0) continue;
        unlinkat(dirfd(directory), each->d_name, 0);
    }
    closedir(directory);
}

static yoke_status check_folder(const yoke_run_folder *folder) {
    struct stat found;
    if (lstat(folder->path, &found) != 0)
        return FAIL(YOKE_ERROR_IO, "%s: cannot create the store's folder: %s", folder->path,
                    strerror(errno));
    if (!S_ISDIR(found.st_mode))
        return FAIL(YOKE_ERROR_ARGUMENT, "%s is not a folder: name one that only this run uses",
                    folder->path);
    if (found.st_uid != geteuid() || (found.st_mode & 022) != 0)
        return FAIL(
            YOKE_ERROR_ARGUMENT,
            "%s belongs to another user, or other users may write there: name a folder that only "
            "you can write",
            folder->path);
    return YOKE_OK;
}

static yoke_status fail_taken(const yoke_run_folder *folder, const run_record *record) {
    return FAIL(YOKE_ERROR_ARGUMENT, "%s belongs to the run \"%s\" of %s: name another folder",
                folder->path, record->run_id, record->owner);
}

static yoke_status write_record(const yoke_run_folder *folder, const char *run_id) {
    char text[512], host[64] = "";
    gethostname(host, sizeof host - 1);
    int length = snprintf(text, sizeof text, "yoke store 2\nnonce %s\nowner %s:%ld\nrun %s\n",
                          folder->nonce, host, (long)getpid(), run_id);
    const yoke_bytes parts[2] = {{.data = text, .bytes = (size_t)length}, {0}};
    int cause = yoke_run_folder_publish(folder, PREFIX "run", parts, false);
    if (cause == 0) return YOKE_OK;
    return FAIL(YOKE_ERROR_IO, "%s: cannot write: %s", folder->path, strerror(cause));
}

static yoke_status make_nonce(yoke_run_folder *folder) {
    uint8_t nonce[YOKE_NONCE_BYTES];
    if (!yoke_nonce_make(nonce))
        return FAIL(YOKE_ERROR_SYSTEM, "cannot make a nonce: getrandom failed");
    for (int i = 0; i < YOKE_NONCE_BYTES; i++)
        snprintf(folder->nonce + 2 * i, 3, "%02x", nonce[i]);
    return YOKE_OK;
}

/* The caller holds the lock, so the files belong to a running run or are stale. */
static yoke_status take_folder(yoke_run_folder *folder, const char *run_id) {
    run_record record;
    char name[YOKE_NONCE_TEXT + 16];
    if (read_record(folder, &record) && owner_runs(folder, record.nonce))
        return fail_taken(folder, &record);
    remove_files(folder, false);
    TRY(make_nonce(folder));
    name_owner_file(name, sizeof name, folder->nonce);
    folder->owner_lock = open_file(folder, name, O_RDWR | O_CREAT | O_EXCL);
    folder->member_lock = open_file(folder, PREFIX "members", O_RDWR | O_CREAT);
    if (folder->owner_lock < 0 || folder->member_lock < 0 ||
        flock(folder->owner_lock, LOCK_EX | LOCK_NB) != 0)
        return FAIL(YOKE_ERROR_IO, "%s: cannot lock a file: %s", folder->path, strerror(errno));
    return write_record(folder, run_id);
}

static yoke_status open_owner(yoke_run_folder *folder, const char *run_id, uint64_t deadline) {
    if (mkdir(folder->path, 0700) != 0 && errno != EEXIST)
        return FAIL(YOKE_ERROR_IO, "%s: cannot create the store's folder: %s", folder->path,
                    strerror(errno));
    TRY(check_folder(folder));
    folder->change_lock = open_file(folder, PREFIX "guard", O_RDWR | O_CREAT);
    if (folder->change_lock < 0 || !yoke_run_folder_lock(folder, deadline))
        return FAIL(YOKE_ERROR_IO, "%s: cannot lock a file: %s", folder->path, strerror(errno));
    yoke_status status = take_folder(folder, run_id);
    yoke_run_folder_unlock(folder);
    return status;
}

/* Finds the record of a running owner. An owner takes its lock before it writes its nonce, so a
 * record never names a lock that is about to be taken. */
static bool find_running(const yoke_run_folder *folder, run_record *record, bool *stale) {
    bool found = read_record(folder, record), runs = found && owner_runs(folder, record->nonce);
    *stale = found && !runs;
    return runs;
}

static yoke_status wait_for_owner(yoke_run_folder *folder, run_record *record, uint64_t deadline) {
    bool stale = false;
    while (!find_running(folder, record, &stale)) {
        if (yoke_now_ns() >= deadline)
            return stale ? FAIL(YOKE_ERROR_TIMEOUT,
                                "%s holds only the files of the run \"%s\" of %s, which has ended: "
                                "rank 0 "
                                "of this run did not come",
                                folder->path, record->run_id, record->owner)
                         : FAIL(YOKE_ERROR_TIMEOUT, "%s: rank 0 did not open a store there in time",
                                folder->path);
        poll(NULL, 0, 5 * RETRY_MS);
    }
    return YOKE_OK;
}

static yoke_status open_member(yoke_run_folder *folder, const char *run_id, uint64_t deadline) {
    run_record record = {0};
    TRY(wait_for_owner(folder, &record, deadline));
    TRY(check_folder(folder));
    if (strcmp(record.run_id, run_id) != 0) return fail_taken(folder, &record);
    memcpy(folder->nonce, record.nonce, sizeof folder->nonce);
    folder->change_lock = open_file(folder, PREFIX "guard", O_RDWR);
    folder->member_lock = open_file(folder, PREFIX "members", O_RDWR);
    if (folder->change_lock >= 0 && folder->member_lock >= 0 &&
        flock(folder->member_lock, LOCK_SH | LOCK_NB) == 0)
        return YOKE_OK;
    return FAIL(YOKE_ERROR_PEER, "%s: rank 0, which owns the store, has left", folder->path);
}

yoke_status yoke_run_folder_open(yoke_run_folder *folder, const yoke_store_options *options) {
    const char *path = options->address + strlen("file://");
    *folder = (yoke_run_folder){
        .owner = options->serve, .change_lock = -1, .owner_lock = -1, .member_lock = -1};
    if (path[0] != '/')
        return FAIL(YOKE_ERROR_ARGUMENT,
                    "the store's address is \"%s\": file:// and an absolute path is expected",
                    options->address);
    if (strlen(options->run_id) >= YOKE_RUN_ID_LIMIT || strchr(options->run_id, '\n') != NULL)
        return FAIL(YOKE_ERROR_ARGUMENT,
                    "the run id has %zu bytes: one line of at most %d is expected",
                    strlen(options->run_id), YOKE_RUN_ID_LIMIT - 1);
    folder->path = strdup(path);
    if (folder->path == NULL) return FAIL_MEMORY(strlen(path) + 1, "a store folder");
    uint64_t deadline = yoke_now_ns() + (uint64_t)options->timeout_ms * 1000000u;
    TRY(options->serve ? open_owner(folder, options->run_id, deadline)
                       : open_member(folder, options->run_id, deadline));
    folder->is_open = true;
    return YOKE_OK;
}

static void close_descriptor(int *descriptor) {
    if (*descriptor >= 0) close(*descriptor);
    *descriptor = -1;
}

/* Whether this rank must remove the folder. */
static bool is_last(yoke_run_folder *folder) {
    if (folder->owner) {
        lock_until(folder->member_lock, LOCK_EX, yoke_now_ns() + LINGER_MS * 1000000u);
        return true;
    }
    run_record record;
    if (yoke_run_folder_owner_runs(folder) || flock(folder->member_lock, LOCK_EX | LOCK_NB) != 0)
        return false;
    return read_record(folder, &record) && strcmp(record.nonce, folder->nonce) == 0;
}

void yoke_run_folder_close(yoke_run_folder *folder) {
    if (folder->path == NULL) return;
    if (folder->is_open && is_last(folder)) {
        remove_files(folder, true);
        rmdir(folder->path);
    }
    close_descriptor(&folder->owner_lock);
    close_descriptor(&folder->member_lock);
    close_descriptor(&folder->change_lock);
    free(folder->path);
    folder->path = NULL;
}
