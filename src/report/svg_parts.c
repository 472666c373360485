/* SPDX-License-Identifier: Apache-2.0 */
#include "report/svg_parts.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/base.h"

#define TICKS_MAX 40 /* where a tick is less than the rounding error of its place */

double yoke_svg_place(const svg_scale *scale, double value) {
    double low = scale->low, high = scale->high;
    if (scale->log) {
        low = log10(low);
        high = log10(high);
        value = log10(value);
    }
    double share = high > low ? (value - low) / (high - low) : 0;
    return scale->begin + share * (scale->end - scale->begin);
}

double yoke_svg_tick(double range, int count) {
    if (!(range > 0)) return 1;
    double rough = range / count, power = pow(10, floor(log10(rough)));
    return rough <= power       ? power
           : rough <= 2 * power ? 2 * power
           : rough <= 5 * power ? 5 * power
                                : 10 * power;
}

void yoke_svg_begin(yoke_markup *out, const yoke_svg_head *head, double width, double height) {
    char text[128], number[2][YOKE_NUMBER_BYTES];
    yoke_markup_open(out, "svg");
    yoke_markup_attribute(out, "xmlns", "http://www.w3.org/2000/svg");
    snprintf(text, sizeof text, "0 0 %s %s", yoke_decimal(width, 2, number[0]),
             yoke_decimal(height, 2, number[1]));
    yoke_markup_attribute(out, "viewBox", text);
    yoke_markup_attribute(out, "role", "img");
    snprintf(text, sizeof text, "%s-title %s-text", head->id, head->id);
    yoke_markup_attribute(out, "aria-labelledby", text);
    yoke_markup_open(out, "title");
    snprintf(text, sizeof text, "%s-title", head->id);
    yoke_markup_attribute(out, "id", text);
    yoke_markup_text(out, head->title);
    yoke_markup_close(out);
    yoke_markup_open(out, "desc");
    snprintf(text, sizeof text, "%s-text", head->id);
    yoke_markup_attribute(out, "id", text);
    yoke_markup_text(out, head->description);
    yoke_markup_close(out);
}

void yoke_svg_finish(yoke_markup *out) {
    yoke_markup_close(out);
}

void yoke_svg_line(yoke_markup *out, const char *style, double x1, double y1, double x2,
                   double y2) {
    yoke_markup_open(out, "line");
    yoke_markup_attribute(out, "class", style);
    yoke_markup_number(out, "x1", x1);
    yoke_markup_number(out, "y1", y1);
    yoke_markup_number(out, "x2", x2);
    yoke_markup_number(out, "y2", y2);
    yoke_markup_close(out);
}

void yoke_svg_rect(yoke_markup *out, const char *style, svg_box box, const char *title) {
    yoke_markup_open(out, "rect");
    yoke_markup_attribute(out, "class", style);
    yoke_markup_number(out, "x", box.x);
    yoke_markup_number(out, "y", box.y);
    yoke_markup_number(out, "width", box.width);
    yoke_markup_number(out, "height", box.height);
    if (title != NULL) yoke_markup_element(out, "title", NULL, title);
    yoke_markup_close(out);
}

void yoke_svg_marker(yoke_markup *out, const char *style, double x, double y, const char *title) {
    static const char *const shapes[] = {"m-4 0a4 4 0 1 0 8 0a4 4 0 1 0 -8 0z", /* circle */
                                         "m-3.6 -3.6h7.2v7.2h-7.2z", "m0 -5l5 5l-5 5l-5 -5z",
                                         "m0 -4.6l4.6 8.2h-9.2z", "m0 4.6l4.6 -8.2h-9.2z"};
    char number[2][YOKE_NUMBER_BYTES], begin[80];
    size_t length = strlen(style);
    int digit =
        length > 0 && isdigit((unsigned char)style[length - 1]) ? style[length - 1] - '0' : 0;
    snprintf(begin, sizeof begin, "M%s %s", yoke_decimal(x, 1, number[0]),
             yoke_decimal(y, 1, number[1]));
    yoke_markup_open(out, "path");
    yoke_markup_attribute(out, "class", style);
    yoke_markup_path_begin(out);
    yoke_markup_path_add(out, begin);
    yoke_markup_path_add(out, shapes[digit % 5]);
    yoke_markup_path_end(out);
    if (title != NULL) yoke_markup_element(out, "title", NULL, title);
    yoke_markup_close(out);
}

int yoke_svg_letters(const char *text) {
    int count = 0;
    for (; *text != '\0'; text++)
        count += ((unsigned char)*text & 0xC0) != 0x80;
    return count;
}

/* Copies the first `letters` characters. */
static void cut(const char *text, int letters, char *copy, size_t size) {
    size_t used = 0;
    for (; *text != '\0' && used + 8 < size; text++) {
        bool begins = ((unsigned char)*text & 0xC0) != 0x80;
        if (begins && letters-- == 0) break;
        copy[used++] = *text;
    }
    copy[used] = '\0';
}

void yoke_svg_label(yoke_markup *out, const char *anchor, double x, double y, const char *text,
                    int letters) {
    char copy[256];
    bool whole = yoke_svg_letters(text) <= letters;
    cut(text, whole ? letters : letters - 1, copy, sizeof copy);
    yoke_markup_open(out, "text");
    yoke_markup_number(out, "x", x);
    yoke_markup_number(out, "y", y);
    if (strcmp(anchor, "start") != 0) yoke_markup_attribute(out, "text-anchor", anchor);
    yoke_markup_text(out, copy);
    if (!whole) yoke_markup_text(out, "\xE2\x80\xA6");
    yoke_markup_close(out);
}

void yoke_svg_group(yoke_markup *out, const char *name, double y) {
    yoke_markup_open(out, "text");
    yoke_markup_attribute(out, "class", "group");
    yoke_markup_number(out, "x", 8);
    yoke_markup_number(out, "y", y + 18);
    yoke_markup_text(out, name);
    yoke_markup_close(out);
}

static const char *tick_text(double value, bool bytes, char text[YOKE_NUMBER_BYTES]) {
    return bytes ? yoke_text_bytes(value, text, YOKE_NUMBER_BYTES) : yoke_decimal(value, 6, text);
}

/* Adding 0 makes -0 a 0. */
static double tick_at(const svg_scale *scale, double tick, int i) {
    return tick * (ceil(scale->low / tick - 1e-9) + i) + 0.0;
}

void yoke_svg_x_tick(yoke_markup *out, const svg_scale *scale, svg_box box, double value,
                     const char *text) {
    double x = yoke_svg_place(scale, value), bottom = box.y + box.height;
    yoke_svg_line(out, "grid", x, box.y, x, bottom);
    if (text != NULL) yoke_svg_label(out, "middle", x, bottom + 17, text, 16);
}

void yoke_svg_x_line(yoke_markup *out, svg_box box, const char *name) {
    double bottom = box.y + box.height;
    yoke_svg_line(out, "axis", box.x, bottom, box.x + box.width, bottom);
    yoke_svg_label(out, "middle", box.x + box.width / 2, bottom + 33, name, 80);
}

void yoke_svg_log_axis(yoke_markup *out, const svg_scale *scale, svg_box box, const char *name) {
    static const int digits[] = {1, 2, 5};
    int first = (int)floor(log10(scale->low)), last = (int)floor(log10(scale->high) + 1e-9);
    int each = last - first < 3 ? 3 : 1, stride = 1 + (last - first) / 12;
    char text[YOKE_NUMBER_BYTES];
    for (int power = first; power <= last; power += stride) {
        for (int i = 0; i < each; i++) {
            double value = digits[i] * pow(10, power);
            if (value < scale->low * (1 - 1e-9) || value > scale->high * (1 + 1e-9)) continue;
            snprintf(text, sizeof text, "%de%d", digits[i], power);
            yoke_svg_x_tick(out, scale, box, value,
                            power < -2 || power > 3 ? text : tick_text(value, false, text));
        }
    }
    yoke_svg_x_line(out, box, name);
}

void yoke_svg_x_axis(yoke_markup *out, const svg_scale *scale, svg_box box, const char *name,
                     double tick, bool bytes) {
    char text[YOKE_NUMBER_BYTES];
    if (bytes) {
        /* The largest power of 1024 that is not above the range. */
        double range = scale->high;
        double unit = 1;
        while (range / unit >= 1024)
            unit *= 1024;
        tick = unit * yoke_svg_tick(scale->high / unit, 4);
    }
    for (int i = 0; i < TICKS_MAX && tick_at(scale, tick, i) <= scale->high + 1e-9 * tick; i++) {
        double value = tick_at(scale, tick, i);
        yoke_svg_x_tick(out, scale, box, value, tick_text(value, bytes, text));
    }
    yoke_svg_x_line(out, box, name);
}

void yoke_svg_y_axis(yoke_markup *out, const svg_scale *scale, svg_box box, const char *name,
                     double tick) {
    char text[YOKE_NUMBER_BYTES];
    for (int i = 0; i < TICKS_MAX && tick_at(scale, tick, i) <= scale->high + 1e-9 * tick; i++) {
        double value = tick_at(scale, tick, i), y = yoke_svg_place(scale, value);
        yoke_svg_line(out, "grid", box.x, y, box.x + box.width, y);
        yoke_svg_label(out, "end", box.x - 6, y + 4, yoke_decimal(value, 6, text), 10);
    }
    yoke_svg_line(out, "axis", box.x, box.y, box.x, box.y + box.height);
    yoke_svg_label(out, "start", 4, box.y - 10, name, 60);
}

/* Legends. */

static void draw_key(yoke_markup *out, const svg_key *key, double x, double y) {
    char style[2 * YOKE_CLASS_BYTES];
    if (key->line) {
        snprintf(style, sizeof style, "line %s%s", key->style, key->dashed ? " dashed" : "");
        yoke_svg_line(out, style, x, y + 6, x + 20, y + 6);
    }
    if (key->marker) yoke_svg_marker(out, key->style, x + 10, y + 6, NULL);
    if (!key->line && !key->marker) {
        yoke_svg_rect(out, key->style, (svg_box){x + 4, y, 14, 12}, NULL);
    }
    yoke_svg_label(out, "start", x + 24, y + 10, key->name, 48);
}

/* Places the keys in rows; draws them unless `out` is NULL. Returns the height. */
static double lay_keys(yoke_markup *out, const svg_key *keys, int count, svg_box box) {
    double x = 0, y = 0;
    for (int i = 0; i < count; i++) {
        const svg_key *key = &keys[i];
        double width = 34 + SVG_LETTER * yoke_svg_letters(key->name);
        if (x > 0 && x + width > box.width) {
            x = 0;
            y += SVG_LEGEND_ROW;
        }
        if (out != NULL) draw_key(out, &keys[i], box.x + x, box.y + y);
        x += width;
    }
    return count > 0 ? y + SVG_LEGEND_ROW : 0;
}

double yoke_svg_legend_height(const svg_key *keys, int count, double width) {
    return lay_keys(NULL, keys, count, (svg_box){.width = width});
}

void yoke_svg_legend(yoke_markup *out, const svg_key *keys, int count, svg_box box) {
    lay_keys(out, keys, count, box);
}
