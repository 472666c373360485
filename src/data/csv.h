/* SPDX-License-Identifier: Apache-2.0 */
/* Text with commas (RFC 4180). For this room only. */
#ifndef DATA_CSV_H
#define DATA_CSV_H

#include "data/data.h"

/* A file, and the line of it that was read last. Fields lie in the file's text, which reading
 * changes: quotes and blanks around fields are gone, and each field ends with a NUL. */
typedef struct yoke_csv {
    const char *path;
    unsigned char *text; /* owned */
    size_t bytes, next;
    size_t line;       /* where the fields begin, counted from 1 */
    size_t lines_done; /* lines read */
    char **fields;     /* [count]; owned */
    size_t count, capacity;
} yoke_csv;

/* close takes a zeroed csv. next: *more is false at the end; empty lines are skipped. DATA: the
 * text names file and line. */
yoke_status yoke_csv_read(yoke_csv *csv, const char *path);
yoke_status yoke_csv_next(yoke_csv *csv, bool *more);
void yoke_csv_close(yoke_csv *csv);

/* The names of classes, sorted as numbers if all are whole numbers, else by their bytes. */
typedef struct yoke_label_names {
    char **names; /* [count], each in the text of a csv */
    size_t count;
    bool numbers;
} yoke_label_names;

/* Makes "07", "7." and "7.00" one: cuts zeros at both ends off a whole number. */
char *yoke_label_clean(char *text);
/* labels: [rows], after yoke_label_clean. The caller frees names->names. */
yoke_status yoke_label_names_collect(yoke_label_names *names, char *const *labels, size_t rows);
/* -1: none of the names. */
int32_t yoke_label_names_find(const yoke_label_names *names, const char *label);

#endif
