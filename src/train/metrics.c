/* SPDX-License-Identifier: Apache-2.0 */
/* Writes a line with one call and truncates the file if the write fails, so that it never ends with
 * a part of a line. */
#include "train/metrics.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Whether the run writes this line again. Only the line of an evaluation has an accuracy, which
 * older files call "accuracy". */
static bool comes_again(const char *line, const yoke_metrics_place *place) {
    unsigned long long step;
    if (sscanf(line, "{\"step\":%llu,", &step) != 1 || step > place->step) return true;
    return place->evaluates && step == place->step && strstr(line, "accuracy\":") != NULL;
}

/* The bytes of the whole lines before the first that comes again. */
static off_t measure_lines(FILE *file, const yoke_metrics_place *place) {
    char *line = NULL;
    size_t capacity = 0;
    off_t whole = 0;
    for (ssize_t bytes; (bytes = getline(&line, &capacity, file)) > 0; whole += bytes)
        if (line[bytes - 1] != '\n' || comes_again(line, place)) break;
    yoke_free(line); /* getline has allocated it */
    return whole;
}

static yoke_status fail(const char *path, int cause) {
    return FAIL(YOKE_ERROR_IO, "%s: cannot write metrics: %s%s", path, strerror(cause),
                cause == ENXIO ? " (a pipe needs its reader first)" : "");
}

yoke_status yoke_metrics_open(yoke_metrics *metrics, const char *path) {
    struct stat file;
    *metrics = (yoke_metrics){0};
    if (path == NULL) return YOKE_OK;
    char *copy = yoke_strdup(path);
    if (copy == NULL) return FAIL_MEMORY(strlen(path) + 1, "a file's name");
    int descriptor = yoke_file_append(path), cause = errno;
    if (descriptor >= 0) {
        /* O_NONBLOCK kept open from waiting for the reader of a pipe. Writes do wait for a slow
         * reader. */
        int flags = fcntl(descriptor, F_GETFL);
        if (flags >= 0 && fcntl(descriptor, F_SETFL, flags & ~O_NONBLOCK) == 0) {
            bool is_file = fstat(descriptor, &file) == 0 && S_ISREG(file.st_mode);
            *metrics = (yoke_metrics){.path = copy, .descriptor = descriptor, .is_file = is_file};
            return YOKE_OK;
        }
        cause = errno;
        close(descriptor);
    }
    yoke_free(copy);
    return fail(path, cause);
}

/* A pipe or a device keeps nothing, and reading it would wait or take what others want to read. */
yoke_status yoke_metrics_go_on(yoke_metrics *metrics, const yoke_metrics_place *place) {
    if (metrics->path == NULL || !metrics->is_file) return YOKE_OK;
    errno = 0;
    FILE *file = fopen(metrics->path, "re");
    if (file != NULL) metrics->whole = measure_lines(file, place);
    int cause = file == NULL || ferror(file) ? errno : 0;
    if (file != NULL) fclose(file);
    if (cause == 0) return YOKE_OK;
    return FAIL(YOKE_ERROR_IO,
                "%s: cannot read the metrics that this run goes on with: %s; choose another file",
                metrics->path, strerror(cause));
}

void yoke_metrics_close(yoke_metrics *metrics) {
    if (metrics->path != NULL) close(metrics->descriptor);
    yoke_free(metrics->path);
    yoke_json_end(&metrics->line);
    *metrics = (yoke_metrics){0};
}

/* The key of an event that changes who trains; NULL: another event. */
static const char *name_change(yoke_event_kind kind) {
    switch (kind) {
    case YOKE_EVENT_LOST:
        return "lost";
    case YOKE_EVENT_JOINED:
        return "joined";
    case YOKE_EVENT_RESIZED:
        return "resized";
    default:
        return NULL;
    }
}

/* Reuses the memory of the line's text. */
static void format(yoke_json *line, const yoke_event *event) {
    line->length = 0;
    line->comma[0] = false;
    yoke_json_open(line, NULL, '{');
    yoke_json_integer(line, "step", (int64_t)event->step);
    yoke_json_integer(line, "epoch", (int64_t)event->epoch + 1);
    bool trains = event->kind == YOKE_EVENT_STEP;
    const char *change = name_change(event->kind);
    if (change != NULL) {
        yoke_json_text(line, change, event->text);
        yoke_json_close(line, '}');
        return;
    }
    yoke_json_real(line, trains ? "train_loss" : "test_loss", event->loss);
    if (!trains && event->accuracy < 0) yoke_json_null(line, "test_accuracy"); /* regression */
    if (!trains && event->accuracy >= 0) yoke_json_real(line, "test_accuracy", event->accuracy);
    if (trains) yoke_json_real(line, "lr", event->learning_rate);
    if (event->loss_scale > 0) {
        yoke_json_real(line, "loss_scale", event->loss_scale);
        yoke_json_integer(line, "skipped_steps", (int64_t)event->skipped_steps);
    }
    yoke_json_integer(line, "rows", event->rows);
    if (trains) yoke_json_real(line, "step_ms", event->step_ms);
    if (event->metric_count > 0) yoke_json_open(line, "metrics", '{');
    for (int i = 0; i < event->metric_count; i++)
        yoke_json_real(line, event->metrics[i].name, event->metrics[i].value);
    if (event->metric_count > 0) yoke_json_close(line, '}');
    yoke_json_close(line, '}');
}

/* Writes all of it, or returns errno. */
static int write_all(int descriptor, const char *text, size_t bytes) {
    while (bytes > 0) {
        ssize_t written = write(descriptor, text, bytes);
        if (written < 0 && errno == EINTR) continue;
        if (written < 0) return errno;
        text += written;
        bytes -= (size_t)written;
    }
    return 0;
}

yoke_status yoke_metrics_write(yoke_metrics *metrics, const yoke_event *event) {
    if (metrics->path == NULL) return YOKE_OK;
    yoke_json *line = &metrics->line;
    format(line, event);
    if (line->failed) return FAIL_MEMORY(line->capacity, "a line of metrics");
    line->text[line->length] = '\n'; /* replaces the closing NUL */
    int cause = 0;
    /* What an earlier run left gives way now, when there is something to put in its place. */
    if (!metrics->begun && metrics->is_file && ftruncate(metrics->descriptor, metrics->whole) != 0)
        cause = errno;
    else
        metrics->begun = true;
    if (cause == 0) cause = write_all(metrics->descriptor, line->text, line->length + 1);
    if (cause == 0) {
        metrics->whole += (off_t)(line->length + 1);
        return YOKE_OK;
    }
    if (metrics->begun && metrics->is_file) (void)!ftruncate(metrics->descriptor, metrics->whole);
    return fail(metrics->path, cause);
}

/* Step times. */

void yoke_step_times_add(yoke_step_times *times, double milliseconds) {
    if (times->stride == 0) times->stride = 1;
    if (times->seen++ % times->stride != 0) return;
    if (times->count == YOKE_STEP_TIMES) {
        times->count /= 2;
        for (size_t i = 0; i < (size_t)times->count; i++)
            times->milliseconds[i] = times->milliseconds[2 * i];
        times->stride *= 2;
    }
    times->milliseconds[times->count++] = (float)milliseconds;
}

static int by_value(const void *left, const void *right) {
    float a = *(const float *)left, b = *(const float *)right;
    return (a > b) - (a < b);
}

double yoke_step_times_quantile(const yoke_step_times *times, double share) {
    float sorted[YOKE_STEP_TIMES];
    if (times->count == 0) return 0;
    size_t count = (size_t)times->count;
    memcpy(sorted, times->milliseconds, count * sizeof sorted[0]);
    qsort(sorted, count, sizeof sorted[0], by_value);
    double place = share * (double)(count - 1);
    size_t below = (size_t)place;
    if (below + 1 == count) return (double)sorted[below];
    double part = place - (double)below;
    return (1 - part) * (double)sorted[below] + part * (double)sorted[below + 1];
}
