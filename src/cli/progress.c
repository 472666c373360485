/* SPDX-License-Identifier: Apache-2.0 */
/* A line like tqdm's, drawn at most ten times a second over itself:
 * epoch 3/15  42%|####      | 131/391 [00:41<00:57, 412 img/s, loss 1.93] */
#include "cli/progress.h"

#include <langinfo.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#define DRAW_SECONDS 0.1
#define LINE_SECONDS 5.0
#define SMOOTHING 0.3 /* of the rate, as tqdm's */
#define BAR_CELLS_MAX 40

void progress_begin(progress *view, int epochs, int log_every, bool silent) {
    const char *terminal = getenv("TERM");
    bool draws = isatty(STDERR_FILENO) && terminal != NULL && strcmp(terminal, "dumb") != 0;
    *view = (progress){.bar = draws && !silent,
                       .unicode = strcmp(nl_langinfo(CODESET), "UTF-8") == 0,
                       .silent = silent,
                       .log_every = log_every,
                       .unit = "img/s",
                       .epochs = epochs};
}

void progress_note(progress *view, const char *text) {
    if (!view->bar) return;
    fputs(text, stderr);
    view->drawn = true;
}

/* Below a drawer's picture the cursor is on an empty line; a note may be there instead. */
void progress_clear(progress *view) {
    if (view->drawn) fputs("\r\033[K", stderr);
    if (view->drawn && view->drawer.erase != NULL) view->drawer.erase(view->drawer.context);
    view->drawn = false;
}

const char *progress_clock_text(double seconds, char text[16]) {
    unsigned whole = seconds > 0 && seconds < 3.6e6 ? (unsigned)(seconds + 0.5) : 0;
    if (whole >= 3600)
        snprintf(text, 16, "%u:%02u:%02u", whole / 3600 % 1000, whole / 60 % 60, whole % 60);
    else
        snprintf(text, 16, "%02u:%02u", whole / 60, whole % 60);
    return text;
}

progress_part progress_part_of(const progress *view, const yoke_event *event) {
    progress_part here = {.name = "step ", .done = event->step, .all = event->steps};
    if (view->epochs == 0) return here;
    here.all = event->steps / (uint64_t)view->epochs;
    /* A run resumed with another batch size counts steps that no epoch of this run has. */
    uint64_t before = event->epoch * here.all;
    here.done = event->step > before ? event->step - before : 0;
    if (here.done > here.all) here.done = here.all;
    snprintf(here.name, sizeof here.name, "epoch %llu/%d ", (unsigned long long)event->epoch + 1,
             view->epochs);
    return here;
}

double progress_seconds_left(const progress *view, const yoke_event *event) {
    return event->seconds_elapsed / (double)(event->step - view->first) *
           (double)(event->steps - event->step);
}

static void tail_text(const progress *view, const yoke_event *event, char *text, size_t size) {
    char elapsed[16], left[16], scale[48] = "";
    if (event->loss_scale > 0)
        snprintf(scale, sizeof scale, ", scale %.4g, %llu skipped", event->loss_scale,
                 (unsigned long long)event->skipped_steps);
    snprintf(text, size, "[%s<%s, %.0f %s, loss %.3g%s]",
             progress_clock_text(event->seconds_elapsed, elapsed),
             progress_clock_text(progress_seconds_left(view, event), left), view->rate, view->unit,
             event->loss, scale);
}

/* The bar. */

static int terminal_columns(void) {
    struct winsize window = {0};
    if (ioctl(STDERR_FILENO, TIOCGWINSZ, &window) != 0 || window.ws_col == 0) return 80;
    return window.ws_col;
}

/* Cells, filled in eighths where the locale has block characters. */
static void print_cells(const progress *view, int cells, double share) {
    static const char *const eighths[] = {"", "▏", "▎", "▍", "▌", "▋", "▊", "▉"};
    int filled = (int)(share * cells * 8);
    int whole = filled / 8, eighth = view->unicode ? filled % 8 : 0;
    for (int i = 0; i < whole; i++)
        fputs(view->unicode ? "█" : "#", stderr);
    fputs(eighths[eighth], stderr);
    for (int i = whole + (eighth > 0); i < cells; i++)
        fputc(' ', stderr);
}

/* For a terminal too narrow for the tail: what fits of loss, time left and the part's name. */
static void print_short(const progress *view, const yoke_event *event, const progress_part *here,
                        int columns) {
    char left[16], time[32], loss[32];
    int percent = here->all > 0 ? (int)(100 * here->done / here->all) : 100;
    int room = columns - 5; /* "100%", and the last column, where some terminals wrap */
    int time_width = snprintf(time, sizeof time, " %s left",
                              progress_clock_text(progress_seconds_left(view, event), left));
    int loss_width = snprintf(loss, sizeof loss, " loss %.3g", event->loss);
    bool shows_loss = room >= loss_width, shows_time = room >= loss_width + time_width;
    bool shows_name = room >= loss_width + time_width + (int)strlen(here->name);
    fprintf(stderr, "\r%s%3d%%%s%s\033[K", shows_name ? here->name : "", percent,
            shows_time ? time : "", shows_loss ? loss : "");
}

static void draw_bar(progress *view, const yoke_event *event) {
    progress_part here = progress_part_of(view, event);
    char count[48], tail[160];
    double share = here.all > 0 ? (double)here.done / (double)here.all : 1;
    snprintf(count, sizeof count, "%llu/%llu", (unsigned long long)here.done,
             (unsigned long long)here.all);
    tail_text(view, event, tail, sizeof tail);
    int columns = terminal_columns();
    int cells = columns - (int)(strlen(here.name) + strlen(count) + strlen(tail)) - 10;
    if (cells > BAR_CELLS_MAX) cells = BAR_CELLS_MAX;
    if (cells < 0) {
        print_short(view, event, &here, columns);
    } else {
        fprintf(stderr, "\r%s%3d%%", here.name, (int)(100 * share));
        if (cells >= 4) {
            fputc('|', stderr);
            print_cells(view, cells, share);
            fputc('|', stderr);
        }
        fprintf(stderr, " %s %s\033[K", count, tail);
    }
    fflush(stderr);
}

/* Plain lines. */

static bool line_is_due(const progress *view, const yoke_event *event) {
    if (view->log_every > 0) return event->step % (uint64_t)view->log_every == 0;
    return (!view->bar || view->no_room) &&
           event->seconds_elapsed - view->last_line >= LINE_SECONDS;
}

static bool picture_is_due(const progress *view, const yoke_event *event) {
    double seconds = view->drawer.draw != NULL ? view->drawer.seconds : DRAW_SECONDS;
    bool has_picture = view->drawn || view->no_room;
    return !has_picture || event->seconds_elapsed - view->last_drawn >= seconds ||
           event->step >= event->steps;
}

static void draw(progress *view, const yoke_event *event) {
    if (view->drawer.draw != NULL)
        view->no_room = !view->drawer.draw(view->drawer.context, view, event);
    else
        draw_bar(view, event);
    view->drawn = !view->no_room;
    view->last_drawn = event->seconds_elapsed;
}

void progress_step(progress *view, const yoke_event *event) {
    double rate = event->step_ms > 0 ? 1e3 * event->rows / event->step_ms : 0;
    if (!view->begun) view->first = event->step - 1;
    view->begun = true;
    view->rate = view->rate > 0 ? view->rate + SMOOTHING * (rate - view->rate) : rate;
    view->last = *event;
    if (view->silent) return;
    if (line_is_due(view, event)) {
        progress_part here = progress_part_of(view, event);
        char tail[160];
        tail_text(view, event, tail, sizeof tail);
        progress_clear(view);
        fprintf(stderr, "%sstep %llu/%llu %s\n", view->epochs == 0 ? "" : here.name,
                (unsigned long long)here.done, (unsigned long long)here.all, tail);
        view->last_line = event->seconds_elapsed;
    }
    if (view->bar && picture_is_due(view, event)) draw(view, event);
}

void progress_end(progress *view, bool is_whole) {
    if (view->drawer.draw == NULL)
        progress_clear(view);
    else if (is_whole && view->begun)
        draw(view, &view->last);
}
