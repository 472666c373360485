/* SPDX-License-Identifier: Apache-2.0 */
/* The record of measured choices: a short list. The search is linear, since only planning reads
 * it. */
#include <assert.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device/backend.h"
#include "device/choices_file.h"

typedef struct choice {
    char *key, *name;
    int candidate;
    double milliseconds;
    bool used;    /* by a plan of this record's engine */
    bool saved;   /* the file has it */
    bool assumed; /* for lack of time: not for the file */
} choice;

#define PREFERRED_LIMIT 8

struct yoke_choices {
    choice *rows;
    int count, capacity;
    const char *preferred[PREFERRED_LIMIT];
    int preferred_count;
    yoke_choices_file *file; /* NULL: none */
    yoke_choices_hook hook;  /* NULL: none */
    void *context;           /* of the hook */
    yoke_error failure;      /* of the hook */
    double limit_seconds;    /* 0: none */
    uint64_t first_ns;       /* when a key was unknown first, since commit; 0: none was */
    uint64_t spent_ns;       /* measuring, before the last commit */
    bool sent;               /* by rank 0: this record follows it */
    pthread_mutex_t lock;    /* of what follows: devices plan at once */
    int gone_count;          /* choices whose algorithm does not exist here */
    char gone[400];          /* the first of them */
    char warning[3 * YOKE_ERROR_TEXT_BYTES];
};

yoke_status yoke_choices_create(yoke_choices **choices) {
    *choices = calloc(1, sizeof **choices);
    if (*choices == NULL) return FAIL_MEMORY(sizeof **choices, "the record of choices");
    pthread_mutex_init(&(*choices)->lock, NULL);
    return YOKE_OK;
}

void yoke_choices_destroy(yoke_choices *choices) {
    if (choices == NULL) return;
    for (int i = 0; i < choices->count; i++) {
        free(choices->rows[i].key);
        free(choices->rows[i].name);
    }
    yoke_choices_file_close(choices->file);
    pthread_mutex_destroy(&choices->lock);
    free(choices->rows);
    free(choices);
}

static choice *row_of(const yoke_choices *choices, const char *key) {
    for (int i = 0; i < choices->count; i++) {
        if (strcmp(choices->rows[i].key, key) == 0) return &choices->rows[i];
    }
    return NULL;
}

static void forget(yoke_choices *choices, choice *row) {
    free(row->key);
    free(row->name);
    choices->count--;
    memmove(row, row + 1, (size_t)(choices->rows + choices->count - row) * sizeof *row);
}

/* A yoke_choice_taker. A later line with the same key replaces the earlier one, whose algorithm did
 * not exist. */
static yoke_status add_saved(void *record, const yoke_choice_line *line) {
    yoke_choices *choices = record;
    choice *known = row_of(choices, line->key);
    if (known != NULL && known->used) return YOKE_OK;
    if (known != NULL) forget(choices, known);
    TRY(yoke_choices_add(choices, line->key, line->candidate, line->name, line->milliseconds));
    choices->rows[choices->count - 1].used = false;
    choices->rows[choices->count - 1].saved = true;
    return YOKE_OK;
}

yoke_status yoke_choices_keep(yoke_choices *choices, const yoke_choices_place *place) {
    TRY(yoke_choices_file_open(&choices->file, place));
    return yoke_choices_file_read(choices->file, add_saved, choices);
}

void yoke_choices_watch(yoke_choices *choices, yoke_choices_hook hook, void *context) {
    choices->hook = hook;
    choices->context = context;
}

yoke_status yoke_choices_go_on(yoke_choices *choices) {
    yoke_signals_serve(); /* measuring takes seconds */
    if (choices == NULL || choices->hook == NULL) return YOKE_OK;
    if (choices->failure.status == YOKE_OK)
        choices->failure = yoke_error_take(choices->hook(choices->context));
    return choices->failure.status == YOKE_OK ? YOKE_OK : yoke_error_restore(&choices->failure);
}

static bool may_wait(void *record) {
    return yoke_choices_go_on(record) == YOKE_OK;
}

/* Reads what other processes have written, once nobody else measures. */
static bool hold(yoke_choices *choices) {
    const yoke_choices_holder holder = {add_saved, may_wait, choices};
    return yoke_choices_file_hold(choices->file, &holder);
}

/* A record adds details to the algorithm's name: "winograd (jit:avx2, 1 reordered)". */
static bool fits(const choice *row, const char *name) {
    size_t length = name != NULL ? strlen(name) : 0;
    const char *rest = row->name + length;
    return name != NULL && strncmp(row->name, name, length) == 0 &&
           (*rest == '\0' || strncmp(rest, " (", 2) == 0);
}

/* *candidate: -1 where no algorithm has the recorded name. Several may have it: then the number
 * counts. */
static yoke_status read_row(const choice *row, const yoke_choice_names *names, int *candidate) {
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

static void name_gone(yoke_choices *choices, const choice *row, const char *instead) {
    const char *path = choices->file != NULL ? yoke_choices_file_path(choices->file) : NULL;
    pthread_mutex_lock(&choices->lock);
    if (choices->gone_count++ == 0)
        snprintf(choices->gone, sizeof choices->gone,
                 "%.150s%sthe choice of '%.100s' was '%.60s', which does not exist here; %s",
                 path != NULL ? path : "", path != NULL ? ": " : "", row->key, row->name, instead);
    pthread_mutex_unlock(&choices->lock);
}

/* A follower neither measures nor changes the record: other devices read it now. */
static yoke_status replace_gone(yoke_choices *choices, choice *row, const yoke_choice_names *names,
                                int *candidate) {
    if (names->follows) {
        *candidate = YOKE_CHOICE_GONE;
        name_gone(choices, row, "the first algorithm that does exist takes its place");
        return YOKE_OK;
    }
    if (!choices->sent) {
        /* Forgets the row, so that it is measured anew, unless another process has done so
         * meanwhile. */
        const choice gone = *row;
        row->key = row->name = NULL;
        forget(choices, row);
        (void)hold(choices);
        row = row_of(choices, gone.key);
        yoke_status status = row != NULL ? read_row(row, names, candidate) : YOKE_OK;
        if (status == YOKE_OK && row != NULL && *candidate < 0) forget(choices, row);
        if (status == YOKE_OK && *candidate < 0) name_gone(choices, &gone, "it is measured anew");
        free(gone.key);
        free(gone.name);
        return status;
    }
    return FAIL(YOKE_ERROR_DATA,
                "rank 0 chose '%s' for '%s', which does not exist on this rank's device; give all "
                "ranks devices and libraries of one kind, or choose by the fixed rule (algorithm "
                "direct)",
                row->name, row->key);
}

void yoke_choices_prefer(yoke_choices *choices, const char *name) {
    assert(choices->preferred_count < PREFERRED_LIMIT);
    choices->preferred[choices->preferred_count++] = name;
}

int yoke_choices_preferred(const yoke_choices *choices, const yoke_choice_names *names) {
    const char *name;
    if (choices == NULL || choices->preferred_count == 0) return -1;
    for (int i = 0; (name = names->name_of(names->context, i)) != NULL; i++)
        for (int k = 0; k < choices->preferred_count; k++)
            if (strcmp(choices->preferred[k], name) == 0) return i;
    return -1;
}

/* An unknown key: another process may have measured it since this one read the file, or measure it
 * now. */
yoke_status yoke_choices_find(yoke_choices *choices, const char *key,
                              const yoke_choice_names *names, int *candidate) {
    choice *row = row_of(choices, key);
    *candidate = -1;
    if (row == NULL && hold(choices)) row = row_of(choices, key);
    if (row != NULL) {
        TRY(read_row(row, names, candidate));
        if (*candidate < 0) TRY(replace_gone(choices, row, names, candidate));
        row = row_of(choices, key);
    }
    if (row == NULL && names != NULL) {
        *candidate = yoke_choices_preferred(choices, names);
        if (*candidate >= 0)
            TRY(yoke_choices_add(choices, key, *candidate,
                                 names->name_of(names->context, *candidate), 0));
    }
    if (row == NULL && *candidate < 0 && choices->first_ns == 0) choices->first_ns = yoke_now_ns();
    if (row != NULL && !row->used) row->used = true; /* devices only read while they plan at once */
    return YOKE_OK;
}

static uint64_t measured_ns(const yoke_choices *choices) {
    return choices->spent_ns + (choices->first_ns > 0 ? yoke_now_ns() - choices->first_ns : 0);
}

/* A broken cache is replaced even where this run measured nothing. */
yoke_status yoke_choices_commit(yoke_choices *choices) {
    yoke_choices_file *file = choices->file;
    choices->spent_ns = measured_ns(choices);
    choices->first_ns = 0;
    if (file == NULL) return YOKE_OK;
    if (yoke_choices_file_is_broken(file)) (void)hold(choices);
    bool whole = yoke_choices_file_is_broken(file);
    for (int i = 0; i < choices->count; i++) {
        choice *row = &choices->rows[i];
        if (row->assumed || (row->saved && !whole)) continue;
        yoke_choices_file_add(
            file, &(yoke_choice_line){row->candidate, row->milliseconds, row->name, row->key});
        row->saved = true;
    }
    return yoke_choices_file_commit(file);
}

const char *yoke_choices_warning(yoke_choices *choices) {
    const char *of_file = yoke_choices_file_warning(choices->file);
    int assumed = 0;
    choices->warning[0] = '\0';
    for (int i = 0; i < choices->count; i++)
        assumed += choices->rows[i].assumed;
    FILE *to = fmemopen(choices->warning, sizeof choices->warning, "w");
    if (to == NULL) return of_file;
    if (of_file != NULL) fputs(of_file, to);
    if (choices->gone_count > 0) fprintf(to, "%s%s", ftell(to) > 0 ? "; " : "", choices->gone);
    if (choices->gone_count > 1) fprintf(to, "; and %d choices more", choices->gone_count - 1);
    if (assumed > 0)
        fprintf(to,
                "%smeasuring algorithms took %g s, the limit: %d passes run unmeasured; another "
                "run measures them and may get other bits",
                ftell(to) > 0 ? "; " : "", choices->limit_seconds, assumed);
    fclose(to);
    return choices->warning[0] != '\0' ? choices->warning : NULL;
}

void yoke_choices_limit(yoke_choices *choices, double seconds) {
    choices->limit_seconds = seconds;
}

bool yoke_choices_late(const yoke_choices *choices) {
    return choices->limit_seconds > 0 && choices->first_ns > 0 &&
           (double)measured_ns(choices) >= choices->limit_seconds * 1e9;
}

yoke_status yoke_choices_add(yoke_choices *choices, const char *key, int candidate,
                             const char *candidate_name, double milliseconds) {
    if (choices->count == choices->capacity) {
        int capacity = choices->capacity > 0 ? 2 * choices->capacity : 32;
        choice *rows = realloc(choices->rows, (size_t)capacity * sizeof *rows);
        if (rows == NULL)
            return FAIL_MEMORY((size_t)capacity * sizeof *rows, "the record of choices");
        choices->rows = rows;
        choices->capacity = capacity;
    }
    choice row = {.key = strdup(key),
                  .name = strdup(candidate_name),
                  .candidate = candidate,
                  .milliseconds = milliseconds,
                  .used = true};
    if (row.key == NULL || row.name == NULL) {
        free(row.key);
        free(row.name);
        return FAIL_MEMORY(strlen(key) + strlen(candidate_name) + 2, "the record of choices");
    }
    choices->rows[choices->count++] = row;
    return YOKE_OK;
}

yoke_status yoke_choices_assume(yoke_choices *choices, const char *key, int candidate,
                                const char *candidate_name) {
    char name[96];
    snprintf(name, sizeof name, "%.80s (not measured)", candidate_name);
    TRY(yoke_choices_add(choices, key, candidate, name, 0));
    choices->rows[choices->count - 1].assumed = true;
    return YOKE_OK;
}

bool yoke_choices_at(const yoke_choices *choices, int index, const char **key, const char **name,
                     double *milliseconds) {
    for (int i = 0; index >= 0 && i < choices->count; i++) {
        const choice *row = &choices->rows[i];
        if (!row->used || index-- > 0) continue;
        *key = row->key;
        *name = row->name;
        *milliseconds = row->milliseconds;
        return true;
    }
    return false;
}

yoke_status yoke_choices_write(const yoke_choices *choices, char **text) {
    size_t bytes;
    FILE *file = open_memstream(text, &bytes);
    if (file == NULL) return FAIL_MEMORY(4096, "the record of choices");
    for (int i = 0; i < choices->count; i++) {
        const choice *row = &choices->rows[i];
        if (!row->used) continue;
        char time[32];
        fprintf(file, "%d\t%s\t%s\t%s\n", row->candidate,
                yoke_text_of_real(row->milliseconds, time, sizeof time), row->name, row->key);
    }
    return fclose(file) == 0 ? YOKE_OK : FAIL_MEMORY(bytes, "the record of choices");
}

yoke_status yoke_choices_read(yoke_choices *choices, char *text) {
    char *rest = NULL;
    choices->sent = true;
    for (char *line = strtok_r(text, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
        char *at = line, *fields[4] = {NULL};
        for (int i = 0; i < 4; i++)
            fields[i] = strsep(&at, "\t");
        if (fields[3] == NULL) return FAIL(YOKE_ERROR_PEER, "a record of choices has no key");
        int64_t candidate;
        double milliseconds;
        if (!yoke_text_integer(fields[0], 0, INT_MAX, &candidate) ||
            !yoke_text_real(fields[1], 0, 1e12, &milliseconds))
            return FAIL(YOKE_ERROR_PEER, "a record of choices has no number for '%s'", fields[3]);
        TRY(yoke_choices_add(choices, fields[3], (int)candidate, fields[2], milliseconds));
    }
    return YOKE_OK;
}
