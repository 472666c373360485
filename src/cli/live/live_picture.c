/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/live/live_picture.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "cli/progress.h"

#define LABEL_COLUMNS 9
#define BAR_COLUMNS_MAX 60
#define CURVE_ROWS_MAX 8
#define WIDE_COLUMNS 78 /* from here on, devices show all three shares */

bool live_picture_fits(const live_canvas *canvas) {
    return canvas->columns >= LIVE_COLUMNS_LEAST && canvas->rows >= LIVE_ROWS_LEAST;
}

static int columns_of(const live_canvas *canvas) {
    return canvas->columns > LIVE_COLUMNS_MAX ? LIVE_COLUMNS_MAX : canvas->columns - 1;
}

live_line live_picture_line(live_picture *picture, const live_canvas *canvas) {
    return live_line_begin(picture->lines[picture->count++], columns_of(canvas), canvas->style);
}

static live_line labelled(live_picture *picture, const live_canvas *canvas, const char *label) {
    live_line line = live_picture_line(picture, canvas);
    live_line_set(&line, LIVE_BOLD);
    live_line_field(&line, label, LABEL_COLUMNS);
    live_line_set(&line, LIVE_PLAIN);
    return line;
}

/* A number without its digits when it is not known. */
static const char *number_text(double value, int decimals, char text[32]) {
    if (isnan(value))
        snprintf(text, 32, "-");
    else if (fabs(value) < 1e7)
        snprintf(text, 32, "%.*f", decimals, value);
    else
        snprintf(text, 32, "%.3g", value);
    return text;
}

/* Cells that are full up to `share`, in eighths where the style has them. */
static void put_share(live_line *line, double share, int cells) {
    static const char *const eighths[] = {"", "▏", "▎", "▍", "▌", "▋", "▊", "▉"};
    double inside = share > 0 ? (share < 1 ? share : 1) : 0; /* NaN is 0 */
    int filled = (int)(inside * cells * 8 + 1e-9);
    int eighth = line->style.unicode ? filled % 8 : 0;
    live_line_repeat(line, line->style.unicode ? "█" : "#", filled / 8);
    live_line_put(line, eighths[eighth]);
    live_line_repeat(line, " ", cells - filled / 8 - (eighth > 0));
}

/* Head. */

static void draw_title(const live_numbers *numbers, const live_canvas *canvas,
                       live_picture *picture) {
    live_line line = live_picture_line(picture, canvas);
    live_line_set(&line, LIVE_BOLD);
    live_line_put(&line, numbers->title);
    live_line_end(&line);
}

typedef struct part {
    const char *label;
    uint64_t done, all;
    char text[128]; /* behind the bar */
} part;

static void draw_part(const part *shown, int cells, const live_canvas *canvas,
                      live_picture *picture) {
    live_line line = labelled(picture, canvas, shown->label);
    double share = shown->all > 0 ? (double)shown->done / (double)shown->all : 1;
    if (cells >= 4) {
        live_line_set(&line, LIVE_CYAN);
        put_share(&line, share, cells);
        live_line_set(&line, LIVE_PLAIN);
        live_line_put(&line, " ");
    }
    live_line_print(&line, "%3d %% %s", (int)(100 * share), shown->text);
    live_line_end(&line);
}

/* Both bars have the length for which the longer text leaves room. */
static void draw_progress(const live_numbers *numbers, const live_canvas *canvas,
                          live_picture *picture) {
    char gone[16], left[16];
    part epoch = {"epoch", numbers->epoch_done, numbers->epoch_steps, ""};
    part run = {"run", numbers->done, numbers->steps, ""};
    snprintf(epoch.text, sizeof epoch.text, "%d of %d, %llu/%llu", numbers->epoch, numbers->epochs,
             (unsigned long long)epoch.done, (unsigned long long)epoch.all);
    int used = snprintf(run.text, sizeof run.text, "%llu/%llu, ", (unsigned long long)run.done,
                        (unsigned long long)run.all);
    if (canvas->columns >= 60)
        used += snprintf(run.text + used, sizeof run.text - (size_t)used, "%s gone, ",
                         progress_clock_text(numbers->elapsed_s, gone));
    snprintf(run.text + used, sizeof run.text - (size_t)used, "%s left",
             progress_clock_text(numbers->left_s, left));
    size_t longest = strlen(run.text);
    if (numbers->epochs > 0 && strlen(epoch.text) > longest) longest = strlen(epoch.text);
    int cells = columns_of(canvas) - LABEL_COLUMNS - 7 - (int)longest;
    cells = cells < BAR_COLUMNS_MAX ? cells : BAR_COLUMNS_MAX;
    if (numbers->epochs > 0) draw_part(&epoch, cells, canvas, picture);
    draw_part(&run, cells, canvas, picture);
}

static void draw_speed(const live_numbers *numbers, const live_canvas *canvas,
                       live_picture *picture) {
    char now[32], mean[32];
    live_line line = labelled(picture, canvas, "speed");
    live_line_print(&line, "%s %s now, %s mean", number_text(numbers->images_now, 0, now),
                    numbers->unit, number_text(numbers->images_mean, 0, mean));
    live_line_end(&line);
}

/* Devices. */

typedef struct shade {
    const char *unicode, *ascii;
    live_attribute attribute;
} shade;
static const shade work_shade = {"█", "#", LIVE_GREEN};
static const shade wait_shade = {"▒", "=", LIVE_YELLOW};
static const shade idle_shade = {"·", ".", LIVE_FAINT};

static void put_shade(live_line *line, const shade *in, int cells) {
    live_line_set(line, in->attribute);
    live_line_repeat(line, line->style.unicode ? in->unicode : in->ascii, cells);
    live_line_set(line, LIVE_PLAIN);
}

static void draw_device(const live_device *device, int name_columns, const live_canvas *canvas,
                        live_picture *picture) {
    live_line line = live_picture_line(picture, canvas);
    bool wide = canvas->columns >= WIDE_COLUMNS;
    live_line_put(&line, " ");
    live_line_field(&line, device->name, name_columns - 1);
    int cells = line.left - (wide ? 42 : 14);
    cells = cells < BAR_COLUMNS_MAX ? cells : BAR_COLUMNS_MAX;
    int work = (int)(device->work * cells + 0.5);
    int busy = (int)((device->work + device->wait) * cells + 0.5);
    put_shade(&line, &work_shade, work);
    put_shade(&line, &wait_shade, busy - work);
    put_shade(&line, &idle_shade, cells - busy);
    live_line_print(&line, "  work %5.1f %%", 100 * device->work);
    if (wide)
        live_line_print(&line, "  wait %5.1f %%  idle %5.1f %%", 100 * device->wait,
                        100 * device->idle);
    live_line_end(&line);
}

/* The mean of the devices that have no line of their own. */
static live_device mean_from(const live_numbers *numbers, int first) {
    live_device mean = {.work = 0};
    int count = numbers->device_count - first;
    for (int i = first; i < numbers->device_count; i++) {
        mean.work += numbers->devices[i].work / count;
        mean.wait += numbers->devices[i].wait / count;
        mean.idle += numbers->devices[i].idle / count;
    }
    snprintf(mean.name, sizeof mean.name, "%s %d", first == 0 ? "all" : "other", count);
    return mean;
}

static void draw_devices(const live_numbers *numbers, const live_canvas *canvas, int rows,
                         live_picture *picture) {
    bool unicode = canvas->style.unicode;
    int name_columns = LABEL_COLUMNS;
    int alone = numbers->device_count <= rows ? numbers->device_count : rows - 1;
    live_line line = labelled(picture, canvas, "devices");
    live_line_print(&line, "%s work  %s wait  %s idle  %s",
                    unicode ? work_shade.unicode : work_shade.ascii,
                    unicode ? wait_shade.unicode : wait_shade.ascii,
                    unicode ? idle_shade.unicode : idle_shade.ascii, numbers->devices_note);
    live_line_end(&line);
    for (int i = 0; i < numbers->device_count; i++) {
        int length = (int)strlen(numbers->devices[i].name) + 2;
        if (length > name_columns) name_columns = length < 17 ? length : 17;
    }
    for (int i = 0; i < alone; i++)
        draw_device(&numbers->devices[i], name_columns, canvas, picture);
    if (alone == numbers->device_count) return;
    live_device mean = mean_from(numbers, alone);
    draw_device(&mean, name_columns, canvas, picture);
}

/* Stages. */

static void draw_stage(const live_stage *stage, double step_ms, const live_canvas *canvas,
                       live_picture *picture) {
    char ms[32];
    double share = step_ms > 0 ? stage->ms / step_ms : 0;
    live_line line = live_picture_line(picture, canvas);
    live_line_put(&line, " ");
    live_line_field(&line, stage->name, LABEL_COLUMNS + 1);
    live_line_print(&line, "%9s ms %5.1f %%", number_text(stage->ms, 2, ms), 100 * share);
    int cells = line.left - 2 < BAR_COLUMNS_MAX ? line.left - 2 : BAR_COLUMNS_MAX;
    if (cells >= 8) {
        live_line_put(&line, "  ");
        live_line_set(&line, LIVE_CYAN);
        put_share(&line, share, cells);
    }
    live_line_end(&line);
}

/* The stages that get a line, in their order: the longest ones, and what is left of the step. */
static int choose_stages(const live_numbers *numbers, int rows, live_stage *chosen) {
    bool has_line[LIVE_STAGES_MAX] = {false};
    int lines = numbers->stage_count <= rows ? numbers->stage_count : rows - 1, count = 0;
    for (int i = 0; i < lines; i++) {
        int longest = -1;
        for (int k = 0; k < numbers->stage_count; k++)
            if (!has_line[k] &&
                (longest < 0 || numbers->stages[k].ms > numbers->stages[longest].ms))
                longest = k;
        has_line[longest] = true;
    }
    live_stage others = {.name = "others"};
    for (int k = 0; k < numbers->stage_count; k++) {
        if (has_line[k])
            chosen[count++] = numbers->stages[k];
        else
            others.ms += numbers->stages[k].ms;
    }
    if (lines < numbers->stage_count) chosen[count++] = others;
    return count;
}

static void draw_stages(const live_numbers *numbers, const live_canvas *canvas, int rows,
                        live_picture *picture) {
    live_stage chosen[LIVE_STAGES_MAX + 1];
    char text[32];
    live_line line = labelled(picture, canvas, "step");
    live_line_print(&line, "  %9s ms 100.0 %%", number_text(numbers->step_ms, 2, text));
    snprintf(text, sizeof text, "  mean of %d step%s", numbers->measured_steps,
             numbers->measured_steps == 1 ? "" : "s");
    live_line_add(&line, text);
    snprintf(text, sizeof text, " and %d devices", numbers->device_count);
    if (numbers->device_count > 1) live_line_add(&line, text);
    live_line_end(&line);
    int count = choose_stages(numbers, rows, chosen);
    for (int i = 0; i < count; i++)
        draw_stage(&chosen[i], numbers->step_ms, canvas, picture);
}

/* Losses. */

static void draw_losses(const live_numbers *numbers, const live_canvas *canvas,
                        live_picture *picture) {
    char number[32], text[64];
    live_line line = labelled(picture, canvas, "loss");
    live_line_print(&line, "train %s", number_text(numbers->loss, 4, number));
    snprintf(text, sizeof text, ", test %s (o)", number_text(numbers->test_loss, 4, number));
    if (!isnan(numbers->test_loss)) live_line_add(&line, text);
    snprintf(text, sizeof text, ", accuracy %.2f %%", 100 * numbers->test_accuracy);
    if (!isnan(numbers->test_accuracy)) live_line_add(&line, text);
    snprintf(text, sizeof text, "; last %d steps", numbers->loss_count);
    if (numbers->loss_count > 0 && (uint64_t)numbers->loss_count < numbers->done)
        live_line_add(&line, text);
    live_line_end(&line);
}

/* The rest of the rows, in this order: devices and stages with a title each, the curve. */
typedef struct shares {
    int devices, stages, curve; /* without titles; 0: left out */
} shares;

static int least(int a, int b) {
    return a < b ? a : b;
}

static shares share_rows(const live_numbers *numbers, int rows) {
    shares given = {0};
    if (numbers->measured_steps == 0) return (shares){.curve = least(rows, CURVE_ROWS_MAX)};
    int third = rows / 3 > 1 ? rows / 3 : 1;
    if (rows >= 2) given.devices = least(numbers->device_count, third);
    rows -= given.devices + 1;
    int for_curve = rows >= 6 ? 3 : 0;
    if (rows - for_curve >= 2) given.stages = least(numbers->stage_count, rows - for_curve - 1);
    if (given.stages > 0) rows -= given.stages + 1;
    given.curve = rows >= 2 ? least(rows, CURVE_ROWS_MAX) : 0;
    return given;
}

void live_picture_draw(const live_numbers *numbers, const live_canvas *canvas,
                       live_picture *picture) {
    picture->count = 0;
    if (!live_picture_fits(canvas)) return;
    int rows = least(canvas->rows - 1, LIVE_LINES_MAX);
    draw_title(numbers, canvas, picture);
    draw_progress(numbers, canvas, picture);
    draw_speed(numbers, canvas, picture);
    shares given = share_rows(numbers, rows - picture->count - 1);
    if (given.devices > 0) draw_devices(numbers, canvas, given.devices, picture);
    if (given.stages > 0) draw_stages(numbers, canvas, given.stages, picture);
    draw_losses(numbers, canvas, picture);
    if (given.curve > 0) live_curve_draw(numbers, canvas, given.curve, picture);
}
