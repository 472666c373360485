/* SPDX-License-Identifier: Apache-2.0 */
/* Lists of cores, as the system writes them below /sys. */
#include "device/backend.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LIST_BYTES 4096
#define ITEM_BYTES 48 /* of two numbers, with space for what is wrong with them */

bool yoke_core_list_number(const char **at, long *number) {
    char *end;
    if (!isdigit((unsigned char)**at)) return false;
    *number = strtol(*at, &end, 10);
    *at = end;
    return *number >= 0;
}

/* Cores beyond CPU_SETSIZE are left out: no thread can be bound to them. */
bool yoke_core_list_parse(const char *text, cpu_set_t *cores) {
    CPU_ZERO(cores);
    if (text[strspn(text, " \t\n")] == '\0') return true;
    for (const char *at = text;; at++) {
        long first, last;
        if (!yoke_core_list_number(&at, &first)) return false;
        last = first;
        if (*at == '-' && (at++, !yoke_core_list_number(&at, &last) || last < first)) return false;
        for (long core = first; core <= last && core < CPU_SETSIZE; core++)
            CPU_SET((size_t)core, cores);
        if (*at != ',') return *at == '\0' || strcmp(at, "\n") == 0;
    }
}

static yoke_status choose_item(const char *list, const char *item, const cpu_set_t *allowed,
                               cpu_set_t *cores) {
    long first = 0, last = 0;
    const char *at = item;
    bool right = yoke_core_list_number(&at, &first);
    last = first;
    if (right && *at == '-') right = (at++, yoke_core_list_number(&at, &last) && first <= last);
    if (!right || *at != '\0')
        return FAIL(YOKE_ERROR_ARGUMENT,
                    "cores \"%s\": \"%s\" is neither a core nor a range; a list reads \"0-3,8\"",
                    list, item);
    for (long core = first; core <= last; core++) {
        char usable[128];
        if (core < CPU_SETSIZE && CPU_ISSET((size_t)core, allowed)) {
            CPU_SET((size_t)core, cores);
            continue;
        }
        yoke_core_list_write(allowed, usable, sizeof usable);
        return FAIL(YOKE_ERROR_ARGUMENT,
                    "cores \"%s\": the process may not run on core %ld; it may on %s", list, core,
                    usable);
    }
    return YOKE_OK;
}

yoke_status yoke_core_list_choose(const char *list, const cpu_set_t *allowed, cpu_set_t *cores) {
    CPU_ZERO(cores);
    for (const char *at = list;; at++) {
        char item[ITEM_BYTES];
        size_t length = strcspn(at, ",");
        snprintf(item, sizeof item, "%.*s", (int)(length < sizeof item ? length : sizeof item - 1),
                 at);
        TRY(choose_item(list, item, allowed, cores));
        at += length;
        if (*at == '\0') return YOKE_OK;
    }
}

void yoke_core_list_write(const cpu_set_t *cores, char *text, size_t size) {
    size_t length = 0;
    text[0] = '\0';
    for (size_t core = 0; core < CPU_SETSIZE; core++) {
        size_t last = core;
        char item[48];
        if (!CPU_ISSET(core, cores)) continue;
        while (last + 1 < CPU_SETSIZE && CPU_ISSET(last + 1, cores))
            last++;
        snprintf(item, sizeof item, last > core ? "%s%zu-%zu" : "%s%zu", length > 0 ? "," : "",
                 core, last);
        if (length + strlen(item) + strlen(",...") >= size) {
            snprintf(text + length, size - length, "%s...", length > 0 ? "," : "");
            return;
        }
        length += (size_t)snprintf(text + length, size - length, "%s", item);
        core = last;
    }
}

bool yoke_core_list_read(const char *path, cpu_set_t *cores) {
    char text[LIST_BYTES];
    FILE *file = fopen(path, "re");
    if (file == NULL) return false;
    size_t length = fread(text, 1, sizeof text - 1, file);
    bool whole = !ferror(file) && length < sizeof text - 1;
    fclose(file);
    text[length] = '\0';
    return whole && yoke_core_list_parse(text, cores);
}
