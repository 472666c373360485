/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/option_values.h"

#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"

#define MOST 1e15 /* of an interval */

static int read_thread_count(const char *verb, void *field) {
    thread_count *read = field;
    int64_t count = 0;
    if (strcmp(read->text, "auto") != 0 && !yoke_text_integer(read->text, 1, 64, &count))
        return cli_usage_error(verb, "--loader-threads: '%s' is neither auto nor 1 to 64",
                               read->text);
    read->count = (int)count;
    return -1;
}

static int read_straggler(const char *verb, void *field) {
    straggler *read = field;
    const char *text = read->text;
    char *colon, *end = NULL;
    long index = strtol(text, &colon, 10);
    double factor = *colon == ':' ? strtod(colon + 1, &end) : 0;
    bool whole = text[0] >= '0' && text[0] <= '9' && end != NULL && end > colon + 1 && *end == '\0';
    if (!whole || index > INT_MAX || !(factor >= 1 && factor <= 1e6))
        return cli_usage_error(verb,
                               "--straggler %s: K:X, a device or rank from 0 and a factor of 1 "
                               "to 1e6, as in 1:2.0",
                               text);
    read->index = (int)index;
    read->factor = factor;
    return -1;
}

/* The next number of "1,0.5,2"; moves *text to the mark, a comma there, or to the end. */
static bool next_of(const char **text, const char *mark, double high, double *number) {
    char one[32];
    size_t length = strcspn(*text, mark);
    snprintf(one, sizeof one, "%.*s", (int)(length < sizeof one ? length : sizeof one), *text);
    *text += length;
    return yoke_text_real(one, 0, high, number);
}

static bool next_number(const char **text, double high, double *number) {
    return next_of(text, ",", high, number);
}

static int read_device_shares(const char *verb, void *field) {
    device_shares *read = field;
    const char *text = read->text;
    double share;
    read->count = 0;
    read->measured = strcmp(text, "auto") == 0;
    if (read->measured) return -1;
    while (read->count < DEVICE_SHARES_MAX && next_of(&text, ":", 1e9, &share) && share > 0) {
        read->shares[read->count++] = share;
        if (*text++ == '\0') return -1;
    }
    return cli_usage_error(verb,
                           "--shares: '%s' is neither auto nor a number above 0 for each device, "
                           "as in 2:1:1",
                           read->text);
}

static int read_text_list(const char *verb, void *field) {
    text_list *read = field;
    if (read->count == TEXT_LIST_MAX)
        return cli_usage_error(verb, "'%.40s' is one text too many: at most %d", read->text,
                               TEXT_LIST_MAX);
    read->all[read->count++] = read->text;
    return -1;
}

static int read_color_jitter(const char *verb, void *field) {
    color_jitter *read = field;
    yoke_color_jitter *strengths = &read->strengths;
    double *const numbers[] = {&strengths->brightness, &strengths->contrast, &strengths->saturation,
                               &strengths->hue};
    const char *text = read->text;
    *strengths = (yoke_color_jitter){0};
    for (int i = 0; i < 4 && next_number(&text, i < 3 ? 10 : 0.5, numbers[i]); i++)
        if (*text++ == '\0') return -1;
    return cli_usage_error(verb,
                           "--color-jitter: '%s' is not BRIGHTNESS[,CONTRAST[,SATURATION[,HUE]]], "
                           "from 0 to 10 each and hue to 0.5, as in 0.4,0.4,0.4,0.1",
                           read->text);
}

static int read_save_interval(const char *verb, void *field) {
    save_interval *read = field;
    static const struct {
        const char *suffix;
        yoke_checkpoint_unit unit;
        double scale;
    } units[] = {{"", YOKE_CHECKPOINT_STEPS, 1},
                 {"steps", YOKE_CHECKPOINT_STEPS, 1},
                 {"epochs", YOKE_CHECKPOINT_EPOCHS, 1},
                 {"s", YOKE_CHECKPOINT_SECONDS, 1},
                 {"m", YOKE_CHECKPOINT_SECONDS, 60}};
    const char *text = read->text;
    char number[32];
    double amount;
    size_t length = strspn(text, "0123456789."), unit = 0, count = sizeof units / sizeof units[0];
    snprintf(number, sizeof number, "%.*s", (int)length, text);
    while (unit < count && strcmp(text + length, units[unit].suffix) != 0)
        unit++;
    if (unit == count || !yoke_text_real(number, 0, MOST, &amount) || amount == 0)
        return cli_usage_error(verb,
                               "--checkpoint-every: '%s' is not a number above 0 with s, m, steps "
                               "or epochs behind it, as in 10m or 500steps",
                               text);
    if (units[unit].unit != YOKE_CHECKPOINT_SECONDS && strchr(number, '.') != NULL)
        return cli_usage_error(verb,
                               "--checkpoint-every: '%s' is not a whole number; only seconds (s) "
                               "and minutes (m) may have a fraction",
                               text);
    read->amount = amount * units[unit].scale;
    read->unit = units[unit].unit;
    return -1;
}

static int read_class_weights(const char *verb, void *field) {
    class_weights *read = field;
    const char *text = read->text;
    double weight;
    read->count = 0;
    read->balanced = strcmp(text, "balanced") == 0;
    if (read->balanced) return -1;
    while (read->count < CLASS_WEIGHTS_MAX && next_number(&text, 1e30, &weight)) {
        read->weights[read->count++] = (float)weight;
        if (*text++ == '\0') return -1;
    }
    return cli_usage_error(verb,
                           "--class-weights: '%s' is neither balanced nor a number for each "
                           "class, as in 1,0.5,2",
                           read->text);
}

static int read_ignored_label(const char *verb, void *field) {
    ignored_label *read = field;
    int64_t number;
    if (!yoke_text_integer(read->text, INT32_MIN, INT32_MAX, &number))
        return cli_usage_error(verb, "--ignore-index: '%s' is no label, as in -100", read->text);
    read->number = (int)number;
    return -1;
}

static int read_loss_scale(const char *verb, void *field) {
    loss_scale *read = field;
    int exponent;
    read->value = YOKE_LOSS_SCALE_DYNAMIC;
    if (strcmp(read->text, "dynamic") == 0) return -1;
    if (yoke_text_real(read->text, 1, 0x1p32, &read->value) && frexp(read->value, &exponent) == 0.5)
        return -1;
    return cli_usage_error(
        verb, "--loss-scale: '%s' is neither dynamic nor a power of two, as in 1024", read->text);
}

int option_value_read(unsigned kind, const char *verb, void *value) {
    static int (*const readers[])(const char *verb, void *field) = {
        [CLI_THREADS] = read_thread_count,  [CLI_STRAGGLER] = read_straggler,
        [CLI_JITTER] = read_color_jitter,   [CLI_INTERVAL] = read_save_interval,
        [CLI_WEIGHTS] = read_class_weights, [CLI_LABEL] = read_ignored_label,
        [CLI_SHARES] = read_device_shares,  [CLI_TEXTS] = read_text_list,
        [CLI_SCALE] = read_loss_scale};
    return kind > CLI_GROUP ? readers[kind](verb, value) : -1;
}
