/* SPDX-License-Identifier: Apache-2.0 */
/* Reading, locking and replacing the algorithm cache. A lock file beside it orders the processes;
 * the file itself is replaced as a whole, so a reader needs no lock and no crash leaves a part of a
 * line. */
#include "device/algorithm_cache_file.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define HEADER "yoke choices 1\n" /* and the version of the format */
#define LIMIT_BYTES ((size_t)64 << 20)
#define LOCK_SECONDS 120 /* longer than a process measures a large model */
#define POLL_NS 10000000L

struct yoke_algorithm_cache_file {
    char *path, *lock_path, *machine;
    bool replace_broken, broken;
    int lock;     /* -1: not held */
    bool gave_up; /* the lock cannot be had: do not wait again */
    char *added;  /* lines for commit; grows through open_memstream */
    size_t added_bytes;
    FILE *lines;
    yoke_error failure; /* of hold, for commit */
    char warning[YOKE_ERROR_TEXT_BYTES];
};

/* Life. */

yoke_status yoke_algorithm_cache_file_open(yoke_algorithm_cache_file **file,
                                           const yoke_algorithm_cache_place *place) {
    const char *path = place->path, *machine = place->machine;
    *file = NULL;
    yoke_algorithm_cache_file *made = yoke_calloc(1, sizeof *made);
    if (made == NULL) return FAIL_MEMORY(sizeof *made, "the algorithm cache");
    made->replace_broken = place->replace_broken;
    made->lock = -1;
    made->path = yoke_strdup(path);
    made->machine = yoke_strdup(machine);
    made->lock_path = yoke_format("%s.lock", path);
    if (made->path == NULL || made->machine == NULL || made->lock_path == NULL) {
        yoke_algorithm_cache_file_close(made);
        return FAIL_MEMORY(2 * strlen(path) + strlen(machine), "the algorithm cache");
    }
    *file = made;
    return YOKE_OK;
}

static void drop_lines(yoke_algorithm_cache_file *file) {
    if (file->lines != NULL) fclose(file->lines);
    yoke_free(file->added);
    file->lines = NULL;
    file->added = NULL;
}

static void unlock(yoke_algorithm_cache_file *file) {
    if (file->lock >= 0) close(file->lock);
    file->lock = -1;
}

void yoke_algorithm_cache_file_close(yoke_algorithm_cache_file *file) {
    if (file == NULL) return;
    drop_lines(file);
    unlock(file);
    yoke_free(file->machine);
    yoke_free(file->lock_path);
    yoke_free(file->path);
    yoke_free(file);
}

const char *yoke_algorithm_cache_file_path(const yoke_algorithm_cache_file *file) {
    return file->path;
}

const char *yoke_algorithm_cache_file_warning(const yoke_algorithm_cache_file *file) {
    return file != NULL && file->warning[0] != '\0' ? file->warning : NULL;
}

static void warn(yoke_algorithm_cache_file *file, const char *cause) {
    if (file->gave_up) return;
    file->gave_up = true;
    snprintf(file->warning, sizeof file->warning,
             "%.300s; the algorithms that this run measures are not kept: another run may choose "
             "others and get other bits",
             cause);
}

bool yoke_algorithm_cache_file_is_broken(const yoke_algorithm_cache_file *file) {
    return file->broken;
}

/* Reading. */

/* machine, candidate, milliseconds, name, key. Changes `text`. */
static bool parse_line(char *text, const char **machine, yoke_algorithm_line *line) {
    char *fields[5] = {NULL};
    int64_t candidate;
    for (int i = 0; i < 5; i++)
        fields[i] = strsep(&text, "\t");
    if (fields[4] == NULL || text != NULL || fields[4][0] == '\0') return false;
    if (!yoke_text_integer(fields[1], 0, INT_MAX, &candidate)) return false;
    if (!yoke_text_real(fields[2], 0, 1e12, &line->milliseconds)) return false;
    *machine = fields[0];
    line->candidate = (int)candidate;
    line->name = fields[3];
    line->key = fields[4];
    return true;
}

static yoke_status take_lines(const yoke_algorithm_cache_file *file, char *text,
                              yoke_algorithm_taker take, void *context) {
    size_t header = strlen(HEADER);
    if (strncmp(text, HEADER, header) != 0)
        return FAIL(YOKE_ERROR_DATA, "%s: line 1 is not \"%.*s\"", file->path, (int)header - 1,
                    HEADER);
    char *rest = text + header;
    for (int number = 2; *rest != '\0'; number++) {
        char *line = rest, *end = strchr(rest, '\n');
        const char *machine;
        yoke_algorithm_line found;
        rest = end != NULL ? end + 1 : rest + strlen(rest);
        if (end != NULL) *end = '\0';
        if (end == NULL || !parse_line(line, &machine, &found))
            return FAIL(YOKE_ERROR_DATA, "%s: line %d is %s", file->path, number,
                        end == NULL ? "cut off" : "not an algorithm");
        if (strcmp(machine, file->machine) == 0) TRY(take(context, &found));
    }
    return YOKE_OK;
}

/* *text is NULL where there is no file. An empty file is one that a program made for this purpose.
 */
static yoke_status read_text(const yoke_algorithm_cache_file *file, char **text, size_t *bytes) {
    unsigned char *data = NULL;
    *text = NULL;
    yoke_status status = yoke_file_read_regular(file->path, LIMIT_BYTES, &data, bytes);
    if (status == YOKE_ERROR_MISSING) return YOKE_OK;
    TRY(status);
    if (*bytes > 0 && memchr(data, '\0', *bytes) == NULL) {
        *text = (char *)data;
        return YOKE_OK;
    }
    yoke_free(data);
    if (*bytes == 0) return YOKE_OK;
    return FAIL(YOKE_ERROR_DATA, "%s: no text file", file->path);
}

yoke_status yoke_algorithm_cache_file_read(yoke_algorithm_cache_file *file,
                                           yoke_algorithm_taker take, void *context) {
    char *text = NULL;
    size_t bytes;
    yoke_status status = read_text(file, &text, &bytes);
    if (text != NULL) status = take_lines(file, text, take, context);
    yoke_free(text);
    bool was_broken = file->broken;
    file->broken = false;
    if (was_broken && !file->gave_up) file->warning[0] = '\0'; /* another process replaced it */
    if (file->replace_broken && (status == YOKE_ERROR_DATA || status == YOKE_ERROR_IO)) {
        file->broken = true;
        if (!file->gave_up)
            snprintf(file->warning, sizeof file->warning, "%.300s; this run writes the file anew",
                     yoke_last_error());
        return YOKE_OK;
    }
    if (status != YOKE_ERROR_DATA) return status;
    yoke_error error = yoke_error_take(status);
    return FAIL(status, "%.900s; delete the file, and the next run measures anew", error.text);
}

/* Locking. */

/* Whoever may open a file may lock it: this one is for its owner alone. An older version made it
 * for all readers. */
static int open_lock(const char *path) {
    struct stat found;
    int flags = O_RDWR | O_CREAT | O_CLOEXEC | O_NONBLOCK | O_NOCTTY;
    int descriptor = open(path, flags, 0600);
    if (descriptor >= 0 && fstat(descriptor, &found) == 0 && found.st_uid == geteuid() &&
        S_ISREG(found.st_mode) && (found.st_mode & 077) != 0)
        (void)fchmod(descriptor, 0600);
    return descriptor;
}

static bool lock(yoke_algorithm_cache_file *file, const yoke_algorithm_cache_holder *holder) {
    char cause[YOKE_ERROR_TEXT_BYTES];
    int descriptor = open_lock(file->lock_path);
    int failed = descriptor < 0 ? errno : 0;
    for (long polls = 0; failed == 0 && flock(descriptor, LOCK_EX | LOCK_NB) != 0; polls++) {
        const struct timespec pause = {.tv_nsec = POLL_NS};
        if (errno != EWOULDBLOCK && errno != EINTR)
            failed = errno;
        else if (polls > LOCK_SECONDS * (1000000000L / POLL_NS))
            failed = ETIMEDOUT;
        else if (!holder->may_wait(holder->context))
            failed = ECANCELED;
        else
            nanosleep(&pause, NULL);
    }
    file->lock = descriptor;
    if (failed == 0) return true;
    unlock(file);
    snprintf(cause, sizeof cause, "%.300s: cannot lock: %s", file->lock_path, strerror(failed));
    warn(file, cause);
    return false;
}

bool yoke_algorithm_cache_file_hold(yoke_algorithm_cache_file *file,
                                    const yoke_algorithm_cache_holder *holder) {
    if (file == NULL || file->lock >= 0 || file->gave_up || !lock(file, holder)) return false;
    yoke_status status = yoke_algorithm_cache_file_read(file, holder->take, holder->context);
    if (status != YOKE_OK) file->failure = yoke_error_take(status);
    return true;
}

/* Writing. */

void yoke_algorithm_cache_file_add(yoke_algorithm_cache_file *file,
                                   const yoke_algorithm_line *line) {
    if (file->lock < 0) return;
    if (file->lines == NULL) file->lines = yoke_memory_stream(&file->added, &file->added_bytes);
    if (file->lines == NULL) {
        warn(file, "out of memory for the algorithm cache");
        return;
    }
    char text[32];
    fprintf(file->lines, "%s\t%d\t%s\t%s\t%s\n", file->machine, line->candidate,
            yoke_text_of_real(line->milliseconds, text, sizeof text), line->name, line->key);
}

/* Without unlink the file in place of a broken one would have its permissions. */
static yoke_status write_all(const yoke_algorithm_cache_file *file, const char *text,
                             size_t bytes) {
    yoke_file_writer writer;
    if (file->broken) (void)unlink(file->path);
    TRY(yoke_file_create_whole(&writer, file->path));
    if (text == NULL) TRY(yoke_file_write(&writer, HEADER, strlen(HEADER)));
    if (text != NULL) TRY(yoke_file_write(&writer, text, bytes));
    if (file->added != NULL) TRY(yoke_file_write(&writer, file->added, file->added_bytes));
    return yoke_file_commit(&writer);
}

static yoke_status append_algorithms(yoke_algorithm_cache_file *file) {
    char *text = NULL;
    size_t bytes = 0;
    if (file->lines != NULL && (fflush(file->lines) != 0 || file->added == NULL))
        return FAIL_MEMORY(file->added_bytes, "the algorithm cache");
    if (!file->broken) TRY(read_text(file, &text, &bytes));
    yoke_status status = write_all(file, text, bytes);
    yoke_free(text);
    return status;
}

yoke_status yoke_algorithm_cache_file_commit(yoke_algorithm_cache_file *file) {
    yoke_error failure = file->failure;
    file->failure = (yoke_error){0};
    bool writes = file->lines != NULL || (file->broken && file->lock >= 0);
    if (failure.status == YOKE_OK && writes && append_algorithms(file) != YOKE_OK)
        warn(file, yoke_last_error());
    else if (writes)
        file->broken = false;
    drop_lines(file);
    unlock(file);
    return failure.status == YOKE_OK ? YOKE_OK : yoke_error_restore(&failure);
}
