/* SPDX-License-Identifier: Apache-2.0 */
/* Names are compared as they stand in the text: what is looked for has no escapes. */
#include "doctor/kineto_event.h"

#include <stdlib.h>
#include <string.h>

#define NS_MOST 4000000000000000000 /* two of them fit into 64 bits */

bool json_slice_is(json_slice slice, const char *word) {
    return slice.count == strlen(word) && json_slice_begins(slice, word);
}

bool json_slice_begins(json_slice slice, const char *word) {
    size_t length = strlen(word);
    return length == 0 || (slice.count >= length && memcmp(slice.text, word, length) == 0);
}

bool json_slice_contains(json_slice slice, const char *word) {
    return slice.count > 0 && memmem(slice.text, slice.count, word, strlen(word)) != NULL;
}

/* Tokens. */

typedef struct cursor {
    const char *at, *end;
} cursor;

static void skip_blanks(cursor *in) {
    while (in->at < in->end && strchr(" \t\n\r", *in->at) != NULL && *in->at != '\0')
        in->at++;
}

static bool take(cursor *in, char mark) {
    skip_blanks(in);
    if (in->at == in->end || *in->at != mark) return false;
    in->at++;
    return true;
}

/* What stands between the quotes. */
static bool take_text(cursor *in, json_slice *slice) {
    if (!take(in, '"')) return false;
    const char *begin = in->at;
    for (; in->at < in->end && *in->at != '"'; in->at++)
        if (*in->at == '\\' && in->at + 1 < in->end) in->at++;
    if (in->at >= in->end) return false;
    *slice = (json_slice){begin, (size_t)(in->at - begin)};
    in->at++;
    return true;
}

/* Any value; the slice has its quotes or brackets. */
static bool take_value(cursor *in, json_slice *slice) {
    json_slice text;
    int64_t depth = 0;
    skip_blanks(in);
    const char *begin = in->at;
    do {
        if (in->at == in->end) return false;
        char byte = *in->at;
        if (byte == '"') {
            if (!take_text(in, &text)) return false;
            continue;
        }
        if (depth == 0 && (byte == ',' || byte == '}' || byte == ']')) break;
        if (byte == '{' || byte == '[') depth++;
        if (byte == '}' || byte == ']') depth--;
        in->at++;
    } while (in->at < in->end && (depth > 0 || (*begin != '{' && *begin != '[' && *begin != '"')));
    *slice = (json_slice){begin, (size_t)(in->at - begin)};
    return slice->count > 0 && depth == 0;
}

static bool take_key(cursor *in, json_slice *key) {
    (void)take(in, ',');
    return take_text(in, key) && take(in, ':');
}

/* Numbers. */

/* `scale` digits of the fraction count as whole ones: 3 reads microseconds as nanoseconds. */
static bool read_scaled(json_slice slice, int scale, int64_t *value) {
    size_t at = 0;
    bool negative = slice.count > 0 && slice.text[0] == '-';
    int64_t whole = 0;
    for (at = negative; at < slice.count && slice.text[at] >= '0' && slice.text[at] <= '9'; at++) {
        if (whole > NS_MOST / 10) return false;
        whole = 10 * whole + (slice.text[at] - '0');
    }
    if (at == (size_t)negative) return false;
    bool fraction = at < slice.count && slice.text[at] == '.';
    if (fraction) at++;
    for (int digit = 0; digit < scale; digit++) {
        bool has = fraction && at < slice.count && slice.text[at] >= '0' && slice.text[at] <= '9';
        if (whole > NS_MOST / 10) return false;
        whole = 10 * whole + (has ? slice.text[at++] - '0' : 0);
    }
    while (fraction && at < slice.count && slice.text[at] >= '0' && slice.text[at] <= '9')
        at++;
    while (at < slice.count && strchr(" \t\n\r", slice.text[at]) != NULL)
        at++;
    if (at < slice.count || whole > NS_MOST) return false; /* an exponent: no profiler writes one */
    *value = negative ? -whole : whole;
    return true;
}

static int64_t integer_of(json_slice slice) {
    int64_t value;
    /* Some versions write numbers as texts. */
    if (slice.count >= 2 && slice.text[0] == '"')
        slice = (json_slice){slice.text + 1, slice.count - 2};
    return read_scaled(slice, 0, &value) ? value : -1;
}

static json_slice inside_quotes(json_slice slice) {
    if (slice.count < 2 || slice.text[0] != '"') return (json_slice){0};
    return (json_slice){slice.text + 1, slice.count - 2};
}

/* Events. */

bool kineto_event_read(kineto_event *event, const char *text, size_t bytes) {
    cursor in = {text, text + bytes};
    json_slice key, value;
    int64_t duration_ns = 0;
    *event = (kineto_event){.process = -1, .thread = -1};
    if (!take(&in, '{')) return false;
    while (!take(&in, '}')) {
        if (!take_key(&in, &key) || !take_value(&in, &value)) return false;
        if (json_slice_is(key, "ph"))
            event->phase = inside_quotes(value);
        else if (json_slice_is(key, "cat"))
            event->category = inside_quotes(value);
        else if (json_slice_is(key, "name"))
            event->name = inside_quotes(value);
        else if (json_slice_is(key, "pid"))
            event->process = integer_of(value);
        else if (json_slice_is(key, "tid"))
            event->thread = integer_of(value);
        else if (json_slice_is(key, "args"))
            event->arguments = value;
        else if (json_slice_is(key, "ts")) {
            if (!read_scaled(value, 3, &event->begin_ns) || event->begin_ns < 0) return false;
        } else if (json_slice_is(key, "dur")) {
            if (!read_scaled(value, 3, &duration_ns) || duration_ns < 0) return false;
        }
    }
    event->end_ns = event->begin_ns + duration_ns;
    return true;
}

/* Arguments. */

/* The last name that the type contains counts: "long int" is long. */
static double element_bytes(json_slice type) {
    static const struct {
        const char *name;
        double bytes;
    } types[] = {
        {"int", 4},      {"Int", 4},      {"long", 8},    {"Long", 8},   {"double", 8},
        {"Double", 8},   {"float", 4},    {"Float", 4},   {"half", 2},   {"Half", 2},
        {"BFloat16", 2}, {"bfloat16", 2}, {"float16", 2}, {"Float8", 1}, {"float8", 1},
        {"short", 2},    {"Short", 2},    {"char", 1},    {"Char", 1},   {"Byte", 1},
        {"bool", 1},     {"Bool", 1},
    };
    double found = 0;
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (json_slice_contains(type, types[i].name)) found = types[i].bytes;
    return found;
}

/* "[[64, 256], [512, 256], []]", or with a list of tensors in the place of one. */
static void read_dimensions(kineto_operand operands[KINETO_OPERANDS], json_slice text) {
    double product = 1, first = 0;
    int depth = 0, operand = -1, numbers = 0;
    for (size_t at = 0; at < text.count; at++) {
        char byte = text.text[at];
        if (byte == '[') {
            depth++;
            product = 1;
            numbers = 0;
            if (depth == 2) operand++;
        } else if (byte == ']') {
            if (numbers > 0 && operand >= 0 && operand < KINETO_OPERANDS) {
                operands[operand].elements += product;
                operands[operand].rows = first;
            }
            numbers = 0;
            depth--;
        } else if (byte >= '0' && byte <= '9') {
            double value = 0;
            for (; at < text.count && text.text[at] >= '0' && text.text[at] <= '9'; at++)
                value = 10 * value + (text.text[at] - '0');
            at--;
            product *= value;
            if (numbers++ == 0) first = value;
        } else if (byte == ',' && depth == 1 && at > 0 && text.text[at - 1] == '"') {
            operand++; /* an operand without dimensions, written as a text */
        }
    }
}

void kineto_arguments_read(kineto_arguments *arguments, json_slice text) {
    json_slice key, value;
    *arguments = (kineto_arguments){
        .correlation = -1, .device = -1, .bytes = -1, .group_size = -1, .elements = -1};
    if (text.count == 0) return;
    cursor in = {text.text, text.text + text.count};
    if (!take(&in, '{')) return;
    while (!take(&in, '}')) {
        if (!take_key(&in, &key) || !take_value(&in, &value)) return;
        if (json_slice_is(key, "correlation"))
            arguments->correlation = integer_of(value);
        else if (json_slice_is(key, "device"))
            arguments->device = integer_of(value);
        else if (json_slice_is(key, "bytes"))
            arguments->bytes = integer_of(value);
        else if (json_slice_is(key, "Group size"))
            arguments->group_size = integer_of(value);
        else if (json_slice_is(key, "In msg nelems"))
            arguments->elements = integer_of(value);
        else if (json_slice_is(key, "dtype"))
            arguments->element_bytes = element_bytes(value);
        else if (json_slice_is(key, "Collective name"))
            arguments->collective = inside_quotes(value);
        else if (json_slice_is(key, "name"))
            arguments->label = inside_quotes(value);
        else if (json_slice_is(key, "Input Dims"))
            read_dimensions(arguments->operands, value);
        else if (json_slice_is(key, "Input type")) {
            cursor list = {value.text, value.text + value.count};
            if (take(&list, '[') && take_text(&list, &key))
                arguments->element_bytes = element_bytes(key);
        }
    }
}
