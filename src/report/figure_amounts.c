/* Bytes: in each device's memory by category, and over each link. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "report/figures.h"

#define ROWS_MAX 96
#define PARTS_MAX 12
#define SAID_MAX 6

/* A bar for each place of each mode, a part for each kind. */
typedef struct amount_rows {
    bool links;                              /* otherwise memory */
    char labels[ROWS_MAX][YOKE_LABEL_BYTES]; /* of groups */
    const char *rows[ROWS_MAX], *groups[ROWS_MAX];
    yoke_svg_part parts[PARTS_MAX];
    double values[ROWS_MAX * PARTS_MAX];
    int row_count, part_count;
} amount_rows;

static const yoke_report_amounts *amounts_of(const yoke_report_mode *mode, bool links) {
    return links ? &mode->links : &mode->memory;
}

static int find_part(amount_rows *all, const char *what) {
    for (int i = 0; i < all->part_count; i++)
        if (strcmp(all->parts[i].name, what) == 0) return i;
    if (all->part_count == PARTS_MAX) return -1;
    yoke_svg_part *part = &all->parts[all->part_count];
    part->name = what;
    snprintf(part->style, sizeof part->style, "m%d", all->part_count % 8);
    for (int stage = 0; stage < YOKE_STAGE_COUNT; stage++)
        if (strcmp(what, yoke_stage_name((yoke_stage)stage)) == 0) *part = yoke_stage_part(stage);
    part->name = what;
    return all->part_count++;
}

/* Among the rows of one mode, which begin at `first`. */
static int find_row(amount_rows *all, int first, const char *where) {
    for (int i = first; i < all->row_count; i++)
        if (strcmp(all->rows[i], where) == 0) return i;
    if (all->row_count == ROWS_MAX) return -1;
    all->rows[all->row_count] = where;
    return all->row_count++;
}

static void collect(const yoke_report *report, amount_rows *all) {
    for (int m = 0; m < report->mode_count; m++) {
        const yoke_report_amounts *from = amounts_of(&report->modes[m], all->links);
        int first = all->row_count;
        for (int i = 0; i < from->count; i++) {
            int row = find_row(all, first, from->rows[i].where);
            int part = find_part(all, from->rows[i].what);
            if (row >= 0 && part >= 0) all->values[row * PARTS_MAX + part] += from->rows[i].bytes;
        }
        if (all->row_count > first)
            all->groups[first] = yoke_mode_label(report, &report->modes[m], all->labels[first]);
    }
    /* The table and the drawing have rows of part_count values. */
    for (int row = 0; row < all->row_count; row++)
        memmove(&all->values[row * all->part_count], &all->values[row * PARTS_MAX],
                (size_t)all->part_count * sizeof all->values[0]);
}

static double bytes_at(const yoke_report_amounts *amounts, const char *where) {
    double sum = 0;
    for (int i = 0; i < amounts->count; i++)
        if (strcmp(amounts->rows[i].where, where) == 0) sum += amounts->rows[i].bytes;
    return sum;
}

static int count_places(const yoke_report_amounts *amounts) {
    int count = 0;
    for (int i = 0; i < amounts->count; i++) {
        bool first = true;
        for (int j = 0; j < i; j++)
            first &= strcmp(amounts->rows[j].where, amounts->rows[i].where) != 0;
        count += first;
    }
    return count;
}

/* The places with the most and the fewest bytes. */
static void say_mode(yoke_markup *out, const yoke_report *report, const yoke_report_mode *mode,
                     bool links) {
    const yoke_report_amounts *amounts = amounts_of(mode, links);
    char label[YOKE_LABEL_BYTES], text[2][64];
    const char *most = NULL, *least = NULL;
    for (int i = 0; i < amounts->count; i++) {
        const char *where = amounts->rows[i].where;
        if (most == NULL || bytes_at(amounts, where) > bytes_at(amounts, most)) most = where;
        if (least == NULL || bytes_at(amounts, where) < bytes_at(amounts, least)) least = where;
    }
    if (most == NULL || count_places(amounts) < 2) return;
    const char *verb = links ? "moves" : "holds";
    double high = bytes_at(amounts, most), low = bytes_at(amounts, least);
    yoke_mode_label(report, mode, label);
    yoke_text_bytes(high, text[0], sizeof text[0]);
    if (high - low < 0.02 * high)
        yoke_figure_say(out, NULL, "%s: every device %s about %s.", label, verb, text[0]);
    else
        yoke_figure_say(out, NULL, "%s: %s %s most, %s; %s the least, %s.", label, most, verb,
                        text[0], least, yoke_text_bytes(low, text[1], sizeof text[1]));
}

static void draw(yoke_markup *out, const yoke_report *report, bool links) {
    const char *title = links ? "Bytes moved" : "Memory of each device";
    amount_rows *all = yoke_figure_memory_for(out, 1, sizeof *all);
    if (all == NULL) return;
    all->links = links;
    collect(report, all);
    if (all->row_count > 0) {
        int said = 0;
        yoke_html_figure_begin(out, links ? "links" : "memory", title, false);
        for (int m = 0; m < report->mode_count; m++)
            if (amounts_of(&report->modes[m], links)->count > 0 && said++ < SAID_MAX)
                say_mode(out, report, &report->modes[m], links);
        yoke_svg_bars chart = {
            .head = {links ? "links-chart" : "memory-chart", title,
                     links ? "A bar for each device or link of each mode, in parts by stage: "
                             "bytes moved in a step. The data follow as a table."
                           : "A bar for each device of each mode, in parts by category: bytes of "
                             "its memory. The data follow as a table."},
            .x_name = links ? "bytes in a step" : "bytes at the peak",
            .rows = all->rows,
            .groups = all->groups,
            .parts = all->parts,
            .values = all->values,
            .row_count = all->row_count,
            .part_count = all->part_count,
            .bytes = true};
        yoke_figure_bars(out, &chart);
        yoke_figure_say(out, "meaning", "%s",
                        links ? "Bytes that a device, or a link in one direction, moves in one "
                                "step to bring rows, gradients and weights where they are needed."
                              : "Bytes that an engine allocates on the device before the first "
                                "step; no step allocates more.");
        const char *source = links ? "src/parallel/exchange.c" : "src/model/arena.c";
        yoke_figure_sources(out, &source, 1);
        yoke_html_figure_end(out);
    }
    free(all);
}

void yoke_figure_memory(yoke_markup *out, const yoke_report *report) {
    draw(out, report, false);
}

void yoke_figure_links(yoke_markup *out, const yoke_report *report) {
    draw(out, report, true);
}
