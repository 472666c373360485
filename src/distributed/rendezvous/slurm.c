/* SPDX-License-Identifier: Apache-2.0 */
/* Both parsers read left to right and expand SLURM's repeats. */
#include "distributed/rendezvous/slurm.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#define TASKS_LIMIT 1000000

/* Parses 1 to TASKS_LIMIT and returns the rest of the text; NULL: no such number. */
static const char *parse_count(const char *text, int *count) {
    if (!isdigit((unsigned char)*text)) return NULL;
    char *end;
    unsigned long value = strtoul(text, &end, 10);
    if (value < 1 || value > TASKS_LIMIT) return NULL;
    *count = (int)value;
    return end;
}

/* "4" or "4(x2)". */
static const char *parse_entry(const char *text, int *tasks, int *nodes) {
    *nodes = 1;
    text = parse_count(text, tasks);
    if (text == NULL || *text != '(') return text;
    if (text[1] != 'x') return NULL;
    text = parse_count(text + 2, nodes);
    return text != NULL && *text == ')' ? text + 1 : NULL;
}

bool yoke_slurm_tasks_parse(const char *text, int node, yoke_slurm_tasks *tasks) {
    *tasks = (yoke_slurm_tasks){0};
    for (;; text++) {
        int each, count;
        text = parse_entry(text, &each, &count);
        if (text == NULL || tasks->nodes + count > TASKS_LIMIT) return false;
        if ((long long)each * count + tasks->tasks > TASKS_LIMIT) return false;
        if (node >= tasks->nodes && node < tasks->nodes + count) tasks->on_node = each;
        tasks->nodes += count;
        tasks->tasks += each * count;
        if (*text == '\0') return true;
        if (*text != ',') return false;
    }
}

bool yoke_slurm_first_host(const char *list, char *host, size_t size) {
    size_t used = 0;
    while (*list != '\0' && *list != ',') {
        size_t part = strcspn(list, "[,"), rest = 0;
        if (*list == '[') {
            part = strcspn(++list, "-,]");
            rest = strcspn(list, "]");
            if (list[rest] == '\0') return false;
            rest += 1 - part;
        }
        if (part >= size - used) return false;
        memcpy(host + used, list, part);
        used += part;
        list += part + rest;
    }
    host[used] = '\0';
    return used > 0;
}
