/* SPDX-License-Identifier: Apache-2.0 */
/* Reads lines of fields with commas between them (RFC 4180): a field in quotes may hold commas,
 * doubled quotes and line ends. */
#include "data/csv.h"

#include <stdlib.h>
#include <string.h>

#define FILE_LIMIT ((size_t)8 << 30)
#define FIELDS_LIMIT ((size_t)1 << 20)

yoke_status yoke_csv_read(yoke_csv *csv, const char *path) {
    *csv = (yoke_csv){.path = path};
    TRY(yoke_file_read(path, FILE_LIMIT, &csv->text, &csv->bytes)); /* with a closing NUL */
    if (csv->bytes >= 3 && memcmp(csv->text, "\xef\xbb\xbf", 3) == 0) csv->next = 3; /* UTF-8 */
    const unsigned char *nul = memchr(csv->text, '\0', csv->bytes);
    bool returns = memchr(csv->text, '\r', csv->bytes) != NULL;
    if (returns && memchr(csv->text, '\n', csv->bytes) == NULL)
        return FAIL(YOKE_ERROR_DATA,
                    "%s: its lines end in CR, as on old Macs; save it with LF or CR LF", path);
    if (nul == NULL) return YOKE_OK;
    return FAIL(YOKE_ERROR_DATA,
                "%s: byte %zu is 0: no text in UTF-8; save the table as \"CSV UTF-8\"", path,
                (size_t)(nul - csv->text));
}

void yoke_csv_close(yoke_csv *csv) {
    yoke_free(csv->fields);
    yoke_free(csv->text);
    *csv = (yoke_csv){0};
}

static bool is_blank(char c) {
    return c == ' ' || c == '\t' || c == '\r';
}

static yoke_status add_field(yoke_csv *csv, char *field) {
    if (csv->count == csv->capacity) {
        size_t capacity = csv->capacity > 0 ? 2 * csv->capacity : 64;
        char **fields = yoke_realloc(csv->fields, capacity * sizeof *fields);
        if (fields == NULL) return FAIL_MEMORY(capacity * sizeof *fields, "the fields of a line");
        csv->fields = fields;
        csv->capacity = capacity;
    }
    if (csv->count == FIELDS_LIMIT)
        return FAIL(YOKE_ERROR_DATA, "%s: line %zu has more than %zu fields", csv->path, csv->line,
                    FIELDS_LIMIT);
    csv->fields[csv->count++] = field;
    return YOKE_OK;
}

/* Both read a field that begins at *at, end it with a NUL, and move *at to what ends it: a comma, a
 * line end or the end of the text. */

static void read_plain(char **at) {
    char *begin = *at, *end = begin + strcspn(begin, ",\n");
    *at = end;
    while (end > begin && is_blank(end[-1]))
        end--;
    if (end < *at) *end = '\0';
}

static yoke_status read_quoted(yoke_csv *csv, char **at) {
    char *to = *at, *from = *at + 1;
    size_t first = csv->lines_done + 1;
    for (; from[0] != '"' || from[1] == '"'; from++) {
        if (*from == '\0')
            return FAIL(YOKE_ERROR_DATA, "%s: line %zu: a quote that is never closed", csv->path,
                        first);
        from += from[0] == '"';
        csv->lines_done += *from == '\n';
        *to++ = *from;
    }
    for (from++; is_blank(*from);)
        from++;
    if (*from != ',' && *from != '\n' && *from != '\0')
        return FAIL(YOKE_ERROR_DATA,
                    "%s: line %zu: '%c' behind a closing quote, expected a comma; a quote inside a "
                    "field is doubled",
                    csv->path, csv->lines_done + 1, *from);
    *to = '\0';
    *at = from;
    return YOKE_OK;
}

/* *blank: the line has nothing but blanks. */
static yoke_status read_line(yoke_csv *csv, bool *blank) {
    char *at = (char *)csv->text + csv->next;
    csv->line = csv->lines_done + 1;
    csv->count = 0;
    *blank = false;
    for (char ended_by = ','; ended_by == ',';) {
        while (is_blank(*at))
            at++;
        bool quoted = *at == '"';
        TRY(add_field(csv, at));
        char *begin = at;
        if (quoted)
            TRY(read_quoted(csv, &at));
        else
            read_plain(&at);
        ended_by = *at;
        *blank = !quoted && csv->count == 1 && ended_by != ',' && at == begin;
        if (ended_by != '\0') *at++ = '\0';
    }
    csv->next = (size_t)(at - (char *)csv->text);
    csv->lines_done++;
    return YOKE_OK;
}

yoke_status yoke_csv_next(yoke_csv *csv, bool *more) {
    bool blank = true;
    while (blank && csv->next < csv->bytes)
        TRY(read_line(csv, &blank));
    *more = !blank;
    return YOKE_OK;
}
