/* SPDX-License-Identifier: Apache-2.0 */
/* The caller's structs. They begin with struct_size, and fields are only appended: a field whose
 * default is not zero gets it from the struct's INIT macro. */
#ifndef BASE_OPTIONS_H
#define BASE_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <sys/types.h>

#include "yoke/status.h"

/* Copies the caller's options over zeroed `own`: min(caller, library) bytes. ARGUMENT when
 * struct_size is 0 or when a newer caller sets a field this library does not know. NULL `given`
 * leaves all zero. Likewise yoke_options_store writes into a caller's struct: never beyond what
 * this library knows of it, since struct_size may be there by chance. */
yoke_status yoke_options_load(void *own, size_t own_size, const void *given, const char *type_name);
yoke_status yoke_options_store(void *given, const void *own, size_t own_size,
                               const char *type_name);

/* A row of a table of options, or of what options led to: its text in checkpoints, their comparison
 * and the agreement of ranks. */
typedef enum yoke_option_kind {
    YOKE_OPTION_FLAG,     /* bool: yes, no */
    YOKE_OPTION_INTEGER,  /* int */
    YOKE_OPTION_UNSIGNED, /* uint64_t or size_t */
    YOKE_OPTION_REAL,     /* double */
    YOKE_OPTION_TEXT,     /* const char *; NULL: none */
    YOKE_OPTION_GIVEN,    /* a pointer: yes, no */
    YOKE_OPTION_WORD,     /* an enum: one of `words` */
    YOKE_OPTION_WRITTEN   /* what `write` of the table says */
} yoke_option_kind;

enum {
    YOKE_OPTION_AGREES = 1,   /* all ranks must have it alike */
    YOKE_OPTION_COMPARED = 2, /* a checkpoint's must be alike, unless `resume anyway` names it */
    YOKE_OPTION_RECORDED = 4  /* a checkpoint states it */
};

#define YOKE_OPTION_BYTES 216 /* of a text */
typedef struct yoke_option {
    const char *name;
    unsigned uses;
    yoke_option_kind kind;
    size_t offset; /* in the owner of the table; WRITTEN: which text */
    const char *const *words;
    bool (*applies)(const void *owner); /* false: not in this run; NULL: in every run */
} yoke_option;

typedef struct yoke_option_table {
    const yoke_option *rows;
    int count;
    void (*write)(const void *owner, size_t which, char text[YOKE_OPTION_BYTES]);
} yoke_option_table;

/* The text of a row; false: it is not in this run. */
bool yoke_option_text(const yoke_option_table *table, int row, const void *owner,
                      char text[YOKE_OPTION_BYTES]);
/* A line for each row that the ranks must have alike: "batch 64". */
void yoke_options_write_agreed(FILE *out, const yoke_option_table *table, const void *owner);

/* ARGUMENT when a pointer that must be given is NULL; `name` as the header calls it. */
yoke_status yoke_pointer_check(const void *given, const char *name);
/* ARGUMENT: this process is a fork of `process`, which made `what` and has its threads. */
yoke_status yoke_process_check(pid_t process, const char *what);

#endif
