/* SPDX-License-Identifier: Apache-2.0 */
#include "train/push_order.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "train/run_options.h"

#define FORMAT "yoke push order 1\n"
#define FILE_LIMIT ((size_t)1 << 30)

static void write_compared(FILE *out, const yoke_option_table *table, const void *owner) {
    char text[YOKE_OPTION_BYTES];
    for (int i = 0; i < table->count; i++)
        if ((table->rows[i].uses & YOKE_OPTION_COMPARED) != 0 &&
            yoke_option_text(table, i, owner, text))
            fprintf(out, "%s %s\n", table->rows[i].name, text);
}

/* What two runs must have alike to push the same. */
static yoke_status write_facts(const yoke_run *run, int workers, char **text) {
    const yoke_async_options *options = run->options.asynchronous;
    size_t bytes = 0;
    *text = NULL;
    FILE *lines = yoke_memory_stream(text, &bytes);
    if (lines == NULL) return FAIL_MEMORY(4096, "the options of a run");
    fprintf(lines, FORMAT "model %s\n", run->options.model);
    fprintf(lines, "seed %llu\nworkers %d\nmax_staleness %d\ndivide_rate %d\n",
            (unsigned long long)run->options.seed, workers, options->max_staleness,
            options->divide_rate);
    fprintf(lines, "compensation %.17g\n", options->compensation);
    write_compared(lines, &yoke_engine_options, run->parallel);
    write_compared(lines, &yoke_run_options, run);
    fprintf(lines, "pushes\n");
    return fclose(lines) == 0 ? YOKE_OK : FAIL_MEMORY(bytes, "the options of a run");
}

/* It never waits for a pipe's reader; -1 and errno. */
static int open_record(const char *path) {
    int descriptor = yoke_file_append(path);
    if (descriptor < 0) return -1;
    int flags = fcntl(descriptor, F_GETFL);
    if (flags >= 0 && fcntl(descriptor, F_SETFL, flags & ~O_NONBLOCK) == 0 &&
        (ftruncate(descriptor, 0) == 0 || errno == EINVAL)) /* EINVAL: a pipe or a device */
        return descriptor;
    int cause = errno;
    close(descriptor);
    errno = cause;
    return -1;
}

static yoke_status start_record(yoke_push_order *order, const char *facts) {
    int descriptor = open_record(order->record_path), cause = errno;
    order->record = descriptor >= 0 ? fdopen(descriptor, "w") : NULL;
    if (order->record == NULL) {
        if (descriptor >= 0) cause = errno;
        if (descriptor >= 0) close(descriptor);
        return FAIL(YOKE_ERROR_IO, "%s: cannot write the order of the pushes: %s%s",
                    order->record_path, strerror(cause),
                    cause == ENXIO ? " (a pipe needs its reader first)" : "");
    }
    fputs(facts, order->record);
    return YOKE_OK;
}

/* The first line in which they differ. */
static yoke_status compare(const yoke_push_order *order, const char *facts) {
    const char *found = order->replay;
    while (*facts != '\0') {
        size_t own = strcspn(facts, "\n"), other = strcspn(found, "\n");
        if (own != other || memcmp(facts, found, own) != 0)
            return FAIL(YOKE_ERROR_ARGUMENT,
                        "%s is the order of another run: it has \"%.*s\", this run \"%.*s\"",
                        order->replay_path, (int)(other < 80 ? other : 80), found,
                        (int)(own < 80 ? own : 80), facts);
        facts += own + (facts[own] != '\0');
        found += other + (found[other] != '\0');
    }
    return YOKE_OK;
}

static yoke_status read_replay(yoke_push_order *order, const char *facts) {
    unsigned char *data;
    size_t bytes;
    TRY(yoke_file_read(order->replay_path, FILE_LIMIT, &data, &bytes));
    order->replay = yoke_malloc(bytes + 1);
    if (order->replay != NULL) {
        memcpy(order->replay, data, bytes);
        order->replay[bytes] = '\0';
    }
    yoke_free(data);
    if (order->replay == NULL) return FAIL_MEMORY(bytes + 1, "the order of the pushes");
    TRY(compare(order, facts));
    order->next = order->replay + strlen(facts);
    return YOKE_OK;
}

yoke_status yoke_push_order_open(yoke_push_order *order, const yoke_run *run, int workers) {
    char *facts;
    order->record_path = run->options.asynchronous->record_order;
    order->replay_path = run->options.asynchronous->replay_order;
    TRY(write_facts(run, workers, &facts));
    yoke_status status = YOKE_OK;
    if (order->replay_path != NULL) status = read_replay(order, facts);
    if (status == YOKE_OK && order->record_path != NULL) status = start_record(order, facts);
    yoke_free(facts);
    return status;
}

void yoke_push_order_close(yoke_push_order *order) {
    if (order->record != NULL) (void)fclose(order->record); /* yoke_push_order_check has looked */
    order->record = NULL;
    yoke_free(order->replay);
    order->replay = order->next = NULL;
}

yoke_status yoke_push_order_check(yoke_push_order *order) {
    if (order->record == NULL || (fflush(order->record) == 0 && ferror(order->record) == 0))
        return YOKE_OK;
    return FAIL(YOKE_ERROR_IO, "%s: cannot write the order of the pushes: %s", order->record_path,
                strerror(errno));
}

void yoke_push_order_add(yoke_push_order *order, int worker) {
    if (order->record != NULL) fprintf(order->record, "%d\n", worker);
}

yoke_status yoke_push_order_next(yoke_push_order *order, int workers, int *worker) {
    *worker = -1;
    if (order->next == NULL) return YOKE_OK;
    char *end;
    long number = strtol(order->next, &end, 10);
    if (end == order->next)
        return FAIL(YOKE_ERROR_DATA,
                    "%s ends, and this run has another push: the run that wrote it "
                    "was stopped",
                    order->replay_path);
    if (number < 0 || number >= workers || *end != '\n')
        return FAIL(YOKE_ERROR_DATA, "%s: '%.*s' is no worker: 0 to %d are", order->replay_path,
                    (int)strcspn(order->next, "\n"), order->next, workers - 1);
    order->next = end + 1;
    *worker = (int)number;
    return YOKE_OK;
}
