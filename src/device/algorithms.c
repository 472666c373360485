/* SPDX-License-Identifier: Apache-2.0 */
/* The record of measured algorithms: a short list. The search is linear, since only planning reads
 * it. */
#include <assert.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device/algorithm_cache_file.h"

typedef struct entry {
    char *key, *name;
    int candidate;
    double milliseconds;
    bool used;    /* by a plan of this record's engine */
    bool saved;   /* the file has it */
    bool assumed; /* for lack of time: not for the file */
} entry;

#define PREFERRED_LIMIT 8

struct yoke_algorithms {
    entry *rows;
    int count, capacity;
    const char *preferred[PREFERRED_LIMIT];
    int preferred_count;
    yoke_algorithm_cache_file *file; /* NULL: none */
    yoke_algorithms_hook hook;       /* NULL: none */
    void *context;                   /* of the hook */
    yoke_error failure;              /* of the hook */
    double limit_seconds;            /* 0: none */
    uint64_t first_ns;               /* when a key was unknown first, since commit; 0: none was */
    uint64_t spent_ns;               /* measuring, before the last commit */
    bool sent;                       /* by rank 0: this record follows it */
    pthread_mutex_t lock;            /* of what follows: devices plan at once */
    int gone_count;                  /* rows whose algorithm does not exist here */
    char gone[400];                  /* the first of them */
    char warning[3 * YOKE_ERROR_TEXT_BYTES];
};

yoke_status yoke_algorithms_create(yoke_algorithms **algorithms) {
    *algorithms = yoke_calloc(1, sizeof **algorithms);
    if (*algorithms == NULL) return FAIL_MEMORY(sizeof **algorithms, "the record of algorithms");
    pthread_mutex_init(&(*algorithms)->lock, NULL);
    return YOKE_OK;
}

void yoke_algorithms_destroy(yoke_algorithms *algorithms) {
    if (algorithms == NULL) return;
    for (int i = 0; i < algorithms->count; i++) {
        yoke_free(algorithms->rows[i].key);
        yoke_free(algorithms->rows[i].name);
    }
    yoke_algorithm_cache_file_close(algorithms->file);
    pthread_mutex_destroy(&algorithms->lock);
    yoke_free(algorithms->rows);
    yoke_free(algorithms);
}

static entry *row_of(const yoke_algorithms *algorithms, const char *key) {
    for (int i = 0; i < algorithms->count; i++) {
        if (strcmp(algorithms->rows[i].key, key) == 0) return &algorithms->rows[i];
    }
    return NULL;
}

static void forget(yoke_algorithms *algorithms, entry *row) {
    yoke_free(row->key);
    yoke_free(row->name);
    algorithms->count--;
    memmove(row, row + 1, (size_t)(algorithms->rows + algorithms->count - row) * sizeof *row);
}

/* A yoke_algorithm_taker. A later line with the same key replaces the earlier one, whose algorithm
 * did not exist. */
static yoke_status add_saved(void *record, const yoke_algorithm_line *line) {
    yoke_algorithms *algorithms = record;
    entry *known = row_of(algorithms, line->key);
    if (known != NULL && known->used) return YOKE_OK;
    if (known != NULL) forget(algorithms, known);
    TRY(yoke_algorithms_add(algorithms, line->key, line->candidate, line->name,
                            line->milliseconds));
    algorithms->rows[algorithms->count - 1].used = false;
    algorithms->rows[algorithms->count - 1].saved = true;
    return YOKE_OK;
}

yoke_status yoke_algorithms_keep(yoke_algorithms *algorithms,
                                 const yoke_algorithm_cache_place *place) {
    TRY(yoke_algorithm_cache_file_open(&algorithms->file, place));
    return yoke_algorithm_cache_file_read(algorithms->file, add_saved, algorithms);
}

void yoke_algorithms_watch(yoke_algorithms *algorithms, yoke_algorithms_hook hook, void *context) {
    algorithms->hook = hook;
    algorithms->context = context;
}

yoke_status yoke_algorithms_go_on(yoke_algorithms *algorithms) {
    yoke_signals_serve(); /* measuring takes seconds */
    TRY(yoke_check_cancelled());
    if (algorithms == NULL || algorithms->hook == NULL) return YOKE_OK;
    if (algorithms->failure.status == YOKE_OK)
        algorithms->failure = yoke_error_take(algorithms->hook(algorithms->context));
    return algorithms->failure.status == YOKE_OK ? YOKE_OK
                                                 : yoke_error_restore(&algorithms->failure);
}

static bool may_wait(void *record) {
    return yoke_algorithms_go_on(record) == YOKE_OK;
}

/* Reads what other processes have written, once nobody else measures. */
static bool hold(yoke_algorithms *algorithms) {
    const yoke_algorithm_cache_holder holder = {add_saved, may_wait, algorithms};
    return yoke_algorithm_cache_file_hold(algorithms->file, &holder);
}

/* A record adds details to the algorithm's name: "winograd (jit:avx2, 1 reordered)". */
static bool fits(const entry *row, const char *name) {
    size_t length = name != NULL ? strlen(name) : 0;
    const char *rest = row->name + length;
    return name != NULL && strncmp(row->name, name, length) == 0 &&
           (*rest == '\0' || strncmp(rest, " (", 2) == 0);
}

/* *candidate: -1 where no algorithm has the recorded name. Several may have it: then the number
 * counts. */
static yoke_status read_row(const entry *row, const yoke_algorithm_names *names, int *candidate) {
    *candidate = row->candidate;
    if (names == NULL) return YOKE_OK;
    if (names->take != NULL) return names->take(names->taker, row->name, candidate);
    if (fits(row, names->name_of(names->context, row->candidate))) return YOKE_OK;
    const char *name;
    for (int i = 0; (name = names->name_of(names->context, i)) != NULL; i++) {
        *candidate = i;
        if (fits(row, name)) return YOKE_OK;
    }
    *candidate = -1;
    return YOKE_OK;
}

static void name_gone(yoke_algorithms *algorithms, const entry *row, const char *instead) {
    const char *path =
        algorithms->file != NULL ? yoke_algorithm_cache_file_path(algorithms->file) : NULL;
    pthread_mutex_lock(&algorithms->lock);
    if (algorithms->gone_count++ == 0)
        snprintf(algorithms->gone, sizeof algorithms->gone,
                 "%.150s%sthe algorithm of '%.100s' was '%.60s', which does not exist here; %s",
                 path != NULL ? path : "", path != NULL ? ": " : "", row->key, row->name, instead);
    pthread_mutex_unlock(&algorithms->lock);
}

/* A follower neither measures nor changes the record: other devices read it now. */
static yoke_status replace_gone(yoke_algorithms *algorithms, entry *row,
                                const yoke_algorithm_names *names, int *candidate) {
    if (names->follows) {
        *candidate = YOKE_ALGORITHM_GONE;
        name_gone(algorithms, row, "the first algorithm that does exist takes its place");
        return YOKE_OK;
    }
    if (!algorithms->sent) {
        /* Forgets the row, so that it is measured anew, unless another process has done so
         * meanwhile. */
        const entry gone = *row;
        row->key = row->name = NULL;
        forget(algorithms, row);
        (void)hold(algorithms);
        row = row_of(algorithms, gone.key);
        yoke_status status = row != NULL ? read_row(row, names, candidate) : YOKE_OK;
        if (status == YOKE_OK && row != NULL && *candidate < 0) forget(algorithms, row);
        if (status == YOKE_OK && *candidate < 0)
            name_gone(algorithms, &gone, "it is measured anew");
        yoke_free(gone.key);
        yoke_free(gone.name);
        return status;
    }
    return FAIL(YOKE_ERROR_DATA,
                "rank 0 chose '%s' for '%s', which does not exist on this rank's device; give all "
                "ranks devices and libraries of one kind, or choose by the fixed rule (algorithm "
                "direct)",
                row->name, row->key);
}

void yoke_algorithms_prefer(yoke_algorithms *algorithms, const char *name) {
    assert(algorithms->preferred_count < PREFERRED_LIMIT);
    algorithms->preferred[algorithms->preferred_count++] = name;
}

int yoke_algorithms_preferred(const yoke_algorithms *algorithms,
                              const yoke_algorithm_names *names) {
    const char *name;
    if (algorithms == NULL || algorithms->preferred_count == 0) return -1;
    for (int i = 0; (name = names->name_of(names->context, i)) != NULL; i++)
        for (int k = 0; k < algorithms->preferred_count; k++)
            if (strcmp(algorithms->preferred[k], name) == 0) return i;
    return -1;
}

/* An unknown key: another process may have measured it since this one read the file, or measure it
 * now. */
yoke_status yoke_algorithms_find(yoke_algorithms *algorithms, const char *key,
                                 const yoke_algorithm_names *names, int *candidate) {
    entry *row = row_of(algorithms, key);
    *candidate = -1;
    if (row == NULL && hold(algorithms)) row = row_of(algorithms, key);
    if (row != NULL) {
        TRY(read_row(row, names, candidate));
        if (*candidate < 0) TRY(replace_gone(algorithms, row, names, candidate));
        row = row_of(algorithms, key);
    }
    if (row == NULL && names != NULL) {
        *candidate = yoke_algorithms_preferred(algorithms, names);
        if (*candidate >= 0)
            TRY(yoke_algorithms_add(algorithms, key, *candidate,
                                    names->name_of(names->context, *candidate), 0));
    }
    if (row == NULL && *candidate < 0 && algorithms->first_ns == 0)
        algorithms->first_ns = yoke_now_ns();
    if (row != NULL && !row->used) row->used = true; /* devices only read while they plan at once */
    return YOKE_OK;
}

static uint64_t measured_ns(const yoke_algorithms *algorithms) {
    return algorithms->spent_ns +
           (algorithms->first_ns > 0 ? yoke_now_ns() - algorithms->first_ns : 0);
}

/* A broken cache is replaced even where this run measured nothing. */
yoke_status yoke_algorithms_commit(yoke_algorithms *algorithms) {
    yoke_algorithm_cache_file *file = algorithms->file;
    algorithms->spent_ns = measured_ns(algorithms);
    algorithms->first_ns = 0;
    if (file == NULL) return YOKE_OK;
    if (yoke_algorithm_cache_file_is_broken(file)) (void)hold(algorithms);
    bool whole = yoke_algorithm_cache_file_is_broken(file);
    for (int i = 0; i < algorithms->count; i++) {
        entry *row = &algorithms->rows[i];
        if (row->assumed || (row->saved && !whole)) continue;
        yoke_algorithm_cache_file_add(
            file, &(yoke_algorithm_line){row->candidate, row->milliseconds, row->name, row->key});
        row->saved = true;
    }
    return yoke_algorithm_cache_file_commit(file);
}

const char *yoke_algorithms_warning(yoke_algorithms *algorithms) {
    const char *of_file = yoke_algorithm_cache_file_warning(algorithms->file);
    int assumed = 0;
    algorithms->warning[0] = '\0';
    for (int i = 0; i < algorithms->count; i++)
        assumed += algorithms->rows[i].assumed;
    FILE *to = fmemopen(algorithms->warning, sizeof algorithms->warning, "w");
    if (to == NULL) return of_file;
    if (of_file != NULL) fputs(of_file, to);
    if (algorithms->gone_count > 0)
        fprintf(to, "%s%s", ftell(to) > 0 ? "; " : "", algorithms->gone);
    if (algorithms->gone_count > 1) fprintf(to, "; and %d more", algorithms->gone_count - 1);
    if (assumed > 0)
        fprintf(to,
                "%smeasuring algorithms took %g s, the limit: %d passes run unmeasured; another "
                "run measures them and may get other bits",
                ftell(to) > 0 ? "; " : "", algorithms->limit_seconds, assumed);
    fclose(to);
    return algorithms->warning[0] != '\0' ? algorithms->warning : NULL;
}

void yoke_algorithms_limit(yoke_algorithms *algorithms, double seconds) {
    algorithms->limit_seconds = seconds;
}

bool yoke_algorithms_late(const yoke_algorithms *algorithms) {
    return algorithms->limit_seconds > 0 && algorithms->first_ns > 0 &&
           (double)measured_ns(algorithms) >= algorithms->limit_seconds * 1e9;
}

yoke_status yoke_algorithms_add(yoke_algorithms *algorithms, const char *key, int candidate,
                                const char *candidate_name, double milliseconds) {
    if (algorithms->count == algorithms->capacity) {
        int capacity = algorithms->capacity > 0 ? 2 * algorithms->capacity : 32;
        entry *rows = yoke_realloc(algorithms->rows, (size_t)capacity * sizeof *rows);
        if (rows == NULL)
            return FAIL_MEMORY((size_t)capacity * sizeof *rows, "the record of algorithms");
        algorithms->rows = rows;
        algorithms->capacity = capacity;
    }
    entry row = {.key = yoke_strdup(key),
                 .name = yoke_strdup(candidate_name),
                 .candidate = candidate,
                 .milliseconds = milliseconds,
                 .used = true};
    if (row.key == NULL || row.name == NULL) {
        yoke_free(row.key);
        yoke_free(row.name);
        return FAIL_MEMORY(strlen(key) + strlen(candidate_name) + 2, "the record of algorithms");
    }
    algorithms->rows[algorithms->count++] = row;
    return YOKE_OK;
}

yoke_status yoke_algorithms_assume(yoke_algorithms *algorithms, const char *key, int candidate,
                                   const char *candidate_name) {
    char name[320];
    snprintf(name, sizeof name, "%.300s (not measured)", candidate_name);
    TRY(yoke_algorithms_add(algorithms, key, candidate, name, 0));
    algorithms->rows[algorithms->count - 1].assumed = true;
    return YOKE_OK;
}

bool yoke_algorithms_at(const yoke_algorithms *algorithms, int index, const char **key,
                        const char **name, double *milliseconds) {
    for (int i = 0; index >= 0 && i < algorithms->count; i++) {
        const entry *row = &algorithms->rows[i];
        if (!row->used || index-- > 0) continue;
        *key = row->key;
        *name = row->name;
        *milliseconds = row->milliseconds;
        return true;
    }
    return false;
}

yoke_status yoke_algorithms_write(const yoke_algorithms *algorithms, char **text) {
    size_t bytes;
    FILE *file = yoke_memory_stream(text, &bytes);
    if (file == NULL) return FAIL_MEMORY(4096, "the record of algorithms");
    for (int i = 0; i < algorithms->count; i++) {
        const entry *row = &algorithms->rows[i];
        if (!row->used) continue;
        char time[32];
        fprintf(file, "%d\t%s\t%s\t%s\n", row->candidate,
                yoke_text_of_real(row->milliseconds, time, sizeof time), row->name, row->key);
    }
    return fclose(file) == 0 ? YOKE_OK : FAIL_MEMORY(bytes, "the record of algorithms");
}

yoke_status yoke_algorithms_read(yoke_algorithms *algorithms, char *text) {
    char *rest = NULL;
    algorithms->sent = true;
    for (char *line = strtok_r(text, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
        char *at = line, *fields[4] = {NULL};
        for (int i = 0; i < 4; i++)
            fields[i] = strsep(&at, "\t");
        if (fields[3] == NULL) return FAIL(YOKE_ERROR_PEER, "a record of algorithms has no key");
        int64_t candidate;
        double milliseconds;
        if (!yoke_text_integer(fields[0], 0, INT_MAX, &candidate) ||
            !yoke_text_real(fields[1], 0, 1e12, &milliseconds))
            return FAIL(YOKE_ERROR_PEER, "a record of algorithms has no number for '%s'",
                        fields[3]);
        TRY(yoke_algorithms_add(algorithms, fields[3], (int)candidate, fields[2], milliseconds));
    }
    return YOKE_OK;
}
