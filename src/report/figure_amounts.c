/* SPDX-License-Identifier: Apache-2.0 */
/* Bytes: in each device's memory by category, over each device's link, and moved in memory. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "report/figures.h"

#define ROWS_MAX 96
#define PARTS_MAX YOKE_STAGE_COUNT
#define SAID_MAX 6

/* What one of the figures is about. */
typedef struct subject {
    const char *id, *title, *description, *x_name, *meaning, *source;
    const char *subject, *verb; /* "the link of " a device "carries" */
    bool names_link;
    const yoke_report_amounts *(*amounts_of)(const yoke_report_mode *mode);
    void (*say)(yoke_markup *out, const struct subject *of, const char *label,
                const yoke_report_amounts *amounts);
} subject;

/* A bar for each place of each mode, a part for each kind. */
typedef struct amount_rows {
    char labels[ROWS_MAX][YOKE_LABEL_BYTES]; /* of groups */
    const char *rows[ROWS_MAX], *groups[ROWS_MAX];
    yoke_svg_part parts[PARTS_MAX];
    double values[ROWS_MAX * PARTS_MAX];
    int row_count, part_count;
} amount_rows;

/* What bytes are of, besides stages; each has a colour. */
static const char *const kinds[] = {"weights",     "gradients",     "optimizer",
                                    "activations", YOKE_REPORT_OUT, YOKE_REPORT_IN};

static int find_part(amount_rows *all, const char *what) {
    for (int i = 0; i < all->part_count; i++)
        if (strcmp(all->parts[i].name, what) == 0) return i;
    if (all->part_count == PARTS_MAX) return -1;
    yoke_svg_part *part = &all->parts[all->part_count];
    *part = (yoke_svg_part){.name = what, .style = "s-other"};
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++)
        if (strcmp(what, kinds[i]) == 0) snprintf(part->style, sizeof part->style, "b-%.20s", what);
    for (int stage = 0; stage < YOKE_STAGE_COUNT; stage++)
        if (strcmp(what, yoke_stage_name((yoke_stage)stage)) == 0) *part = yoke_stage_part(stage);
    return all->part_count++;
}

/* Finds a place among the rows of one mode, which begin at `first`. */
static int find_row(amount_rows *all, int first, const char *where) {
    for (int i = first; i < all->row_count; i++)
        if (strcmp(all->rows[i], where) == 0) return i;
    if (all->row_count == ROWS_MAX) return -1;
    all->rows[all->row_count] = where;
    return all->row_count++;
}

static void collect(const yoke_report *report, const subject *of, amount_rows *all) {
    for (int m = 0; m < report->mode_count; m++) {
        const yoke_report_amounts *from = of->amounts_of(&report->modes[m]);
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

/* what NULL: of every kind. */
static double bytes_at(const yoke_report_amounts *amounts, const char *where, const char *what) {
    double sum = 0;
    for (int i = 0; i < amounts->count; i++)
        if (strcmp(amounts->rows[i].where, where) == 0 &&
            (what == NULL || strcmp(amounts->rows[i].what, what) == 0))
            sum += amounts->rows[i].bytes;
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

/* Sentences. */

#define ALIKE 0.02 /* a difference below this share is not worth a word */

/* The place with the most bytes apart from `but`. */
static const char *most_of(const yoke_report_amounts *amounts, const char *but) {
    const char *most = NULL;
    for (int i = 0; i < amounts->count; i++) {
        const char *where = amounts->rows[i].where;
        if (but != NULL && strcmp(where, but) == 0) continue;
        if (most == NULL || bytes_at(amounts, where, NULL) > bytes_at(amounts, most, NULL))
            most = where;
    }
    return most;
}

static const char *least_of(const yoke_report_amounts *amounts) {
    const char *least = NULL;
    for (int i = 0; i < amounts->count; i++) {
        const char *where = amounts->rows[i].where;
        if (least == NULL || bytes_at(amounts, where, NULL) < bytes_at(amounts, least, NULL))
            least = where;
    }
    return least;
}

/* The places with the most and the fewest bytes. */
static void say_extremes(yoke_markup *out, const subject *of, const char *label,
                         const yoke_report_amounts *amounts) {
    char text[2][64];
    const char *most = most_of(amounts, NULL), *least = least_of(amounts);
    double high = bytes_at(amounts, most, NULL), low = bytes_at(amounts, least, NULL);
    yoke_text_bytes(high, text[0], sizeof text[0]);
    if (high - low < ALIKE * high)
        yoke_figure_say(out, NULL, "%s: every device %s about %s.", label, of->verb, text[0]);
    else
        yoke_figure_say(out, NULL, "%s: %s %s most, %s; %s the least, %s.", label, most, of->verb,
                        text[0], least, yoke_text_bytes(low, text[1], sizeof text[1]));
}

/* The first place is the root's. In DDP no rank is one, and then all links carry the same. */
static void say_links(yoke_markup *out, const subject *of, const char *label,
                      const yoke_report_amounts *amounts) {
    (void)of;
    char text[2][64], times[YOKE_NUMBER_BYTES];
    const char *root = amounts->rows[0].where, *other = most_of(amounts, root);
    double own = bytes_at(amounts, root, NULL), others = bytes_at(amounts, other, NULL);
    yoke_text_bytes(bytes_at(amounts, root, YOKE_REPORT_OUT), text[0], sizeof text[0]);
    yoke_text_bytes(bytes_at(amounts, root, YOKE_REPORT_IN), text[1], sizeof text[1]);
    double least = bytes_at(amounts, least_of(amounts), NULL);
    if (fmax(own, others) - least < ALIKE * fmax(own, others))
        yoke_figure_say(out, NULL, "%s: every link carries about %s out of its device and %s in.",
                        label, text[0], text[1]);
    else if (own > others)
        yoke_figure_say(out, NULL,
                        "%s: the link of %s, the root, carries %s out and %s in: %s times as much "
                        "as that of %s, the busiest of the others.",
                        label, root, text[0], text[1], yoke_decimal(own / others, 1, times), other);
    else
        yoke_figure_say(
            out, NULL,
            "%s: the link of %s, the root, carries %s out and %s in; that of %s carries "
            "most, %s times as much.",
            label, root, text[0], text[1], other, yoke_decimal(others / own, 1, times));
}

/* Figures. */

/* The mode whose devices differ most, "In dp classic cpu:0 holds 2.1 times as much as cpu:1";
 * where all are alike, the subject. */
static void write_title(const yoke_report *report, const subject *of, char text[YOKE_TITLE_BYTES]) {
    double most = 1 + ALIKE;
    snprintf(text, YOKE_TITLE_BYTES, "%s", of->title);
    for (int m = 0; m < report->mode_count; m++) {
        const yoke_report_amounts *amounts = of->amounts_of(&report->modes[m]);
        char label[YOKE_LABEL_BYTES], times[YOKE_NUMBER_BYTES];
        if (count_places(amounts) < 2) continue;
        const char *high = most_of(amounts, NULL), *low = least_of(amounts);
        double least = bytes_at(amounts, low, NULL), ratio = bytes_at(amounts, high, NULL) / least;
        if (!(least > 0) || ratio <= most) continue;
        most = ratio;
        snprintf(text, YOKE_TITLE_BYTES, "In %s %s%s %s %s times as much as %s%s",
                 yoke_mode_label(report, &report->modes[m], label), of->subject, high, of->verb,
                 yoke_decimal(ratio, 2, times), of->subject[0] != '\0' ? "that of " : "", low);
    }
}

static void say(yoke_markup *out, const yoke_report *report, const subject *of) {
    int said = 0;
    for (int m = 0; m < report->mode_count; m++) {
        const yoke_report_amounts *amounts = of->amounts_of(&report->modes[m]);
        char label[YOKE_LABEL_BYTES];
        if (count_places(amounts) < 2 || said++ >= SAID_MAX) continue;
        of->say(out, of, yoke_mode_label(report, &report->modes[m], label), amounts);
    }
}

static void draw(yoke_markup *out, const yoke_report *report, const subject *of) {
    char chart_id[32], title[YOKE_TITLE_BYTES];
    amount_rows *all = yoke_figure_memory_for(out, 1, sizeof *all);
    if (all == NULL) return;
    collect(report, of, all);
    if (all->row_count > 0) {
        write_title(report, of, title);
        yoke_html_figure_begin(out, of->id, title, false);
        say(out, report, of);
        snprintf(chart_id, sizeof chart_id, "%s-chart", of->id);
        yoke_svg_bars chart = {.head = {chart_id, of->title, of->description},
                               .x_name = of->x_name,
                               .rows = all->rows,
                               .groups = all->groups,
                               .parts = all->parts,
                               .values = all->values,
                               .row_count = all->row_count,
                               .part_count = all->part_count,
                               .unit = YOKE_SVG_BYTES};
        yoke_figure_bars(out, &chart);
        int rows = 0;
        for (int m = 0; m < report->mode_count; m++)
            rows += count_places(of->amounts_of(&report->modes[m]));
        yoke_figure_say_left_out(out, all->row_count, rows, "devices");
        if (of->names_link && report->link[0] != '\0')
            yoke_figure_say(out, "meaning", "The link of each device: %s, modelled.", report->link);
        yoke_figure_say(out, "meaning", "%s", of->meaning);
        yoke_figure_sources(out, &of->source, 1);
        yoke_html_figure_end(out);
    }
    yoke_free(all);
}

static const yoke_report_amounts *memory_of(const yoke_report_mode *mode) {
    return &mode->memory;
}

static const yoke_report_amounts *links_of(const yoke_report_mode *mode) {
    return &mode->links;
}

static const yoke_report_amounts *moved_of(const yoke_report_mode *mode) {
    return &mode->moved;
}

void yoke_figure_memory(yoke_markup *out, const yoke_report *report) {
    static const subject memory = {
        .id = "memory",
        .title = "Memory of each device",
        .description = "A bar for each device of each mode, in parts by category: bytes of its "
                       "memory. The data follow as a table.",
        .x_name = "bytes at the peak",
        .meaning = "Bytes that an engine allocates on the device before the first step; no step "
                   "allocates more.",
        .source = "src/model/arena.c",
        .subject = "",
        .verb = "holds",
        .amounts_of = memory_of,
        .say = say_extremes};
    draw(out, report, &memory);
}

void yoke_figure_links(yoke_markup *out, const yoke_report *report) {
    static const subject links = {
        .id = "links",
        .title = "Bytes over each link",
        .description = "A bar for each device of each mode: bytes that its link carries in a step, "
                       "out of the device and in. The data follow as a table.",
        .x_name = "bytes in a step",
        .meaning = "Out: rows, gradients and weights that the device sends in one step; in: those "
                   "that it receives. A link is full duplex, so that the larger of the two decides "
                   "how long it is busy.",
        .source = "src/links/links.c",
        .subject = "the link of ",
        .verb = "carries",
        .names_link = true,
        .amounts_of = links_of,
        .say = say_links};
    draw(out, report, &links);
}

void yoke_figure_moved(yoke_markup *out, const yoke_report *report) {
    static const subject moved = {
        .id = "moved",
        .title = "Bytes moved in memory",
        .description = "A bar for each device of each mode, in parts by stage: bytes that it reads "
                       "and writes in a step. The data follow as a table.",
        .x_name = "bytes in a step",
        .meaning = "Bytes that a device reads and writes in one step outside forward, loss and "
                   "backward. They say nothing about links: CPU devices share one memory, unless "
                   "--link models links between them, and between GPUs the driver or NCCL chooses "
                   "the way.",
        .source = "src/parallel/exchange/exchange.c",
        .subject = "",
        .verb = "moves",
        .amounts_of = moved_of,
        .say = say_extremes};
    draw(out, report, &moved);
}
