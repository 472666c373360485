/* SPDX-License-Identifier: Apache-2.0 */
/* Parses `--devices LIST`. It knows the grammar, not the machine. */
#ifndef DEVICE_DEVICE_LIST_H
#define DEVICE_DEVICE_LIST_H

#include "device/device.h"

#define YOKE_BACKENDS_LIMIT 8

typedef struct yoke_device_list {
    int count;
    bool automatic;    /* "auto" */
    unsigned variants; /* device/variants.h */
    struct {
        int backend; /* index in the names given to parse */
        int ordinal; /* "cpu:1" is 1; unnumbered devices get the lowest numbers not yet taken */
    } entries[YOKE_DEVICES_LIMIT];
} yoke_device_list;

/* list = ("auto" | item {"," item}) {"+" variant}; item = [count "x"] name [":" number] | number. A
 * bare number is one more device of the numbered item before it ("cuda:0,2"). `names` are the
 * backends' names; "auto" gives one device of the first, which the caller replaces. ARGUMENT names
 * the part that is wrong. */
yoke_status yoke_device_list_parse(yoke_device_list *parsed, const char *list,
                                   const char *const *names, int name_count);

#endif
