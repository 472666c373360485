/* SPDX-License-Identifier: Apache-2.0 */
/* The probe's lines: what it prints, what it writes, and what an earlier run has written. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/json.h"
#include "base/json_scan.h"
#include "probe/probe.h"

#define ANSWERED "asked"
#define KNOWN_LIMIT ((size_t)64 << 20)

double probe_seconds(const gpu_probe *probe) {
    return (double)(yoke_now_ns() - probe->begin_ns) * 1e-9;
}

bool probe_late(const gpu_probe *probe) {
    return probe_seconds(probe) > probe->seconds;
}

/* Writing. */

static void json_text(yoke_json *json, const char *key, const char *value) {
    if (value != NULL) yoke_json_text(json, key, value);
}

/* One write a line: other processes append to the file, too. */
static void append(const gpu_probe *probe, const char *text, size_t bytes) {
    if (write(probe->json, text, bytes) != (ssize_t)bytes)
        fprintf(stderr, "gpu_probe: a line could not be written to the file of --json\n");
}

static void write_json(const gpu_probe *probe, const probe_row *row) {
    yoke_json json;
    yoke_json_begin(&json);
    yoke_json_open(&json, NULL, '{');
    json_text(&json, "section", row->section);
    json_text(&json, "what", row->what);
    json_text(&json, "direction", row->direction);
    json_text(&json, "variant", row->variant);
    json_text(&json, "detail", row->detail);
    json_text(&json, "expected", row->expected);
    json_text(&json, "found", row->found);
    json_text(&json, "verdict", row->verdict);
    if (row->milliseconds >= 0) yoke_json_real(&json, "ms", row->milliseconds);
    if (row->error >= 0) yoke_json_real(&json, "error", row->error);
    if (row->value >= 0) yoke_json_real(&json, "value", row->value);
    json_text(&json, "unit", row->unit);
    yoke_json_close(&json, '}');
    if (!json.failed) {
        json.text[json.length] = '\n'; /* in the place of the NUL */
        append(probe, json.text, json.length + 1);
    }
    yoke_json_end(&json);
}

void probe_print(const gpu_probe *probe, const probe_row *row) {
    const char *const words[] = {row->section, row->what,   row->direction,
                                 row->variant, row->detail, row->verdict};
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
        if (words[i] != NULL) printf("%s%s", i > 0 ? " | " : "", words[i]);
    if (row->expected != NULL) printf(" | expected %s", row->expected);
    if (row->found != NULL) printf(" | found %s", row->found);
    if (row->milliseconds >= 0) printf(" | %.4f ms", row->milliseconds);
    if (row->error >= 0) printf(" | error %.1e", row->error);
    if (row->value >= 0) printf(" | %.4g %s", row->value, row->unit != NULL ? row->unit : "");
    printf("\n");
    fflush(stdout);
    if (probe->json >= 0) write_json(probe, row);
}

/* Items. */

typedef struct item {
    const char *section, *what, *direction, *verdict; /* in the line */
} item;

/* Unescapes the line in place. false: it is no line of the probe. */
static bool read_item(char *line, size_t bytes, item *of) {
    yoke_json_scan scan = {.text = line, .bytes = bytes};
    const char *key = NULL, *text = NULL;
    int64_t integer;
    double real;
    *of = (item){0};
    if (!yoke_json_scan_mark(&scan, '{')) return false;
    for (size_t i = 0; yoke_json_scan_more(&scan, i, '}'); i++) {
        if (!yoke_json_scan_key(&scan, &key)) return false;
        if (yoke_json_scan_number(&scan, &integer, &real) != YOKE_JSON_NO_NUMBER) continue;
        if (!yoke_json_scan_text(&scan, &text)) return false;
        if (strcmp(key, "section") == 0) of->section = text;
        if (strcmp(key, "what") == 0) of->what = text;
        if (strcmp(key, "direction") == 0) of->direction = text;
        if (strcmp(key, "verdict") == 0) of->verdict = text;
    }
    return scan.error == NULL && of->section != NULL && of->what != NULL;
}

static bool same(const char *a, const char *b) {
    return a == NULL || b == NULL ? a == b : strcmp(a, b) == 0;
}

/* A copy of the next line of the known ones, for read_item; NULL: none is left, or no memory. */
static char *next_line(const gpu_probe *probe, size_t *at, size_t *bytes) {
    if (*at >= probe->known_bytes) return NULL;
    const char *line = probe->known + *at;
    *bytes = strlen(line);
    *at += *bytes + 1;
    return strdup(line);
}

bool probe_is_known(const gpu_probe *probe, const char *section, const char *what,
                    const char *direction) {
    size_t at = 0, bytes;
    char *line;
    bool found = false;
    while (!found && (line = next_line(probe, &at, &bytes)) != NULL) {
        item of;
        found = read_item(line, bytes, &of) && same(of.verdict, ANSWERED) &&
                same(of.section, section) && same(of.what, what) && same(of.direction, direction);
        free(line);
    }
    return found;
}

bool probe_ask(gpu_probe *probe, const char *section, const char *what, const char *direction) {
    if (probe_is_known(probe, section, what, direction)) return false;
    if (!probe_late(probe)) return true;
    probe_row row = PROBE_ROW_INIT;
    row.section = section;
    row.what = what;
    row.direction = direction;
    row.verdict = "no time";
    probe_print(probe, &row);
    probe->left_out++;
    return false;
}

void probe_answered(const gpu_probe *probe, const char *section, const char *what,
                    const char *direction) {
    probe_row row = PROBE_ROW_INIT;
    row.section = section;
    row.what = what;
    row.direction = direction;
    row.verdict = ANSWERED;
    if (probe->json >= 0) write_json(probe, &row);
}

/* An earlier run. */

yoke_status probe_read_known(gpu_probe *probe, const char *path) {
    unsigned char *data;
    size_t bytes;
    TRY(yoke_file_read(path, KNOWN_LIMIT, &data, &bytes));
    while (bytes > 0 && data[bytes - 1] != '\n')
        bytes--;
    for (size_t i = 0; i < bytes; i++)
        if (data[i] == '\n') data[i] = '\0';
    probe->known = (char *)data;
    probe->known_bytes = bytes;
    return YOKE_OK;
}

/* A wrong result stays one in the completed file. */
static bool belongs(gpu_probe *probe, char *line, size_t bytes) {
    item of;
    if (!read_item(line, bytes, &of) || !probe_is_known(probe, of.section, of.what, of.direction))
        return false;
    probe->wrong += same(of.verdict, PROBE_WRONG) || same(of.verdict, PROBE_NO);
    return true;
}

yoke_status probe_write_known(gpu_probe *probe, const char *path) {
    yoke_file_writer writer;
    TRY(yoke_file_create(&writer, path));
    yoke_status status = YOKE_OK;
    size_t at = 0, from = 0, bytes;
    char *line;
    for (; status == YOKE_OK && (line = next_line(probe, &at, &bytes)) != NULL; from = at) {
        if (belongs(probe, line, bytes)) {
            status = yoke_file_write(&writer, probe->known + from, bytes);
            if (status == YOKE_OK) status = yoke_file_write(&writer, "\n", 1);
        }
        free(line);
    }
    if (status == YOKE_OK) return yoke_file_commit(&writer);
    yoke_file_abort(&writer);
    return status;
}
