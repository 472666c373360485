/* SPDX-License-Identifier: Apache-2.0 */
/* Reads "auto", "4xcpu", "cpu,cpu", "cpu:0,cpu:1" and "2xcuda+mapped". */
#include "device/device_list.h"

#include <ctype.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "base/base.h"

#define FORMS "a list reads \"auto\", \"cpu\", \"4xcpu\", \"cuda\", \"2xcuda\" or \"cuda:0,cuda:1\""
#define ITEM_BYTES 64
#define UNNUMBERED (-1)

typedef struct list_reader {
    yoke_device_list *parsed;
    const char *list;
    const char *const *names;
    int name_count;
    int continued; /* the backend of a following bare number; -1: none */
} list_reader;

static yoke_status add_devices(list_reader *reader, int backend, int ordinal, int64_t count) {
    yoke_device_list *parsed = reader->parsed;
    if (count < 1 || count > YOKE_DEVICES_LIMIT - parsed->count)
        return FAIL(YOKE_ERROR_ARGUMENT, "device list \"%s\": %lld devices; 1 to %d are possible",
                    reader->list, (long long)count + parsed->count, YOKE_DEVICES_LIMIT);
    for (int64_t i = 0; i < count; i++) {
        parsed->entries[parsed->count].backend = backend;
        parsed->entries[parsed->count++].ordinal = ordinal;
    }
    return YOKE_OK;
}

static yoke_status read_number(const list_reader *reader, const char *text, const char *what,
                               int64_t *value) {
    if (isdigit((unsigned char)text[0]) && yoke_text_integer(text, 0, 1000000, value))
        return YOKE_OK;
    return FAIL(YOKE_ERROR_ARGUMENT, "device list \"%s\": \"%s\" is not a %s; " FORMS, reader->list,
                text, what);
}

/* What other tools call a GPU; NULL: no such word. */
static const char *other_name(const char *name) {
    static const char *const gpu[] = {"gpu", "gpus", "nvidia", "CUDA", "GPU"};
    for (size_t i = 0; i < sizeof gpu / sizeof gpu[0]; i++)
        if (strcmp(name, gpu[i]) == 0) return "cuda";
    return strcmp(name, "-1") == 0 || strcmp(name, "all") == 0 ? "auto" : NULL;
}

static yoke_status find_name(const list_reader *reader, const char *name, int *backend) {
    for (*backend = 0; *backend < reader->name_count; (*backend)++) {
        if (strcmp(name, reader->names[*backend]) == 0) return YOKE_OK;
    }
    if (strcmp(name, "auto") == 0)
        return FAIL(YOKE_ERROR_ARGUMENT, "device list \"%s\": \"auto\" cannot be combined; " FORMS,
                    reader->list);
    const char *known[YOKE_BACKENDS_LIMIT + 1] = {"auto"};
    for (int i = 0; i < reader->name_count; i++)
        known[i + 1] = reader->names[i];
    if (name[0] != '\0' && strspn(name, "0123456789") == strlen(name))
        return FAIL(YOKE_ERROR_ARGUMENT,
                    "device list \"%s\": \"%s\" is not a device; \"cuda:%s\" names GPUs by their "
                    "numbers, \"2xcuda\" are two GPUs, \"2xcpu\" two CPU devices",
                    reader->list, name, reader->list);
    const char *nearest = other_name(name);
    if (nearest == NULL) nearest = yoke_text_nearest(name, known, (size_t)reader->name_count + 1);
    if (nearest == NULL)
        return FAIL(YOKE_ERROR_ARGUMENT, "device list \"%s\": \"%s\" is not a device; " FORMS,
                    reader->list, name);
    return FAIL(YOKE_ERROR_ARGUMENT,
                "device list \"%s\": \"%s\" is not a device, did you mean \"%s\"? " FORMS,
                reader->list, name, nearest);
}

/* `item` is a copy that this function may modify. */
static yoke_status read_item(list_reader *reader, char *item) {
    int64_t count = 1, ordinal = UNNUMBERED;
    size_t digits = strspn(item, "0123456789");
    if (digits > 0 && item[digits] == '\0' && reader->continued >= 0) {
        TRY(read_number(reader, item, "device number", &ordinal));
        return add_devices(reader, reader->continued, (int)ordinal, 1);
    }
    char *name = item;
    if (digits > 0 && item[digits] == 'x') {
        item[digits] = '\0';
        TRY(read_number(reader, item, "number of devices", &count));
        name = item + digits + 1;
    }
    char *colon = strchr(name, ':');
    if (colon != NULL) {
        *colon = '\0';
        TRY(read_number(reader, colon + 1, "device number", &ordinal));
    }
    int backend = 0;
    TRY(find_name(reader, name, &backend));
    reader->continued = colon != NULL ? backend : -1;
    return add_devices(reader, backend, (int)ordinal, count);
}

static bool is_taken(const yoke_device_list *parsed, int backend, int ordinal) {
    for (int i = 0; i < parsed->count; i++) {
        if (parsed->entries[i].backend == backend && parsed->entries[i].ordinal == ordinal)
            return true;
    }
    return false;
}

/* The items end where the list does, or at its first variant. */
static yoke_status read_items(list_reader *reader) {
    const char *list = reader->list;
    for (const char *at = list;; at++) {
        size_t length = strcspn(at, ",+");
        char item[ITEM_BYTES];
        if (length == 0)
            return FAIL(YOKE_ERROR_ARGUMENT, "device list \"%s\": nothing at position %td; " FORMS,
                        list, at - list);
        snprintf(item, sizeof item, "%.*s", (int)(length < sizeof item ? length : sizeof item - 1),
                 at);
        TRY(read_item(reader, item));
        at += length;
        if (*at != ',') return YOKE_OK;
    }
}

yoke_status yoke_device_list_parse(yoke_device_list *parsed, const char *list,
                                   const char *const *names, int name_count) {
    *parsed = (yoke_device_list){0};
    list_reader reader = {parsed, list, names, name_count, -1};
    size_t length = strcspn(list, "+");
    parsed->automatic = length == strlen("auto") && strncmp(list, "auto", length) == 0;
    if (list[length] == '+') TRY(yoke_variants_parse(&parsed->variants, list + length + 1, list));
    if (parsed->automatic)
        parsed->count = 1;
    else
        TRY(read_items(&reader));
    for (int i = 0; i < parsed->count; i++) {
        if (parsed->entries[i].ordinal != UNNUMBERED) continue;
        int ordinal = 0;
        while (is_taken(parsed, parsed->entries[i].backend, ordinal))
            ordinal++;
        parsed->entries[i].ordinal = ordinal;
    }
    return YOKE_OK;
}
