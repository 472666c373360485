/* SPDX-License-Identifier: Apache-2.0 */
/* Collects the names of tensors as the trainer reports them. */
#include "cli/skipped.h"

#include <stdlib.h>
#include <string.h>

void skipped_add(skipped_list *list, const yoke_weights_skip *skip) {
    size_t bytes = ((size_t)list->count + 1) * sizeof *list->tensors;
    skipped_tensor *tensors = realloc(list->tensors, bytes);
    char *name = strdup(skip->name);
    if (tensors != NULL) list->tensors = tensors;
    if (tensors == NULL || name == NULL) {
        free(name);
        list->incomplete = true;
        return;
    }
    list->tensors[list->count++] = (skipped_tensor){skip->reason, name};
}

void skipped_free(skipped_list *list) {
    for (int i = 0; i < list->count; i++)
        free(list->tensors[i].name);
    free(list->tensors);
}

static void json_names(yoke_json *json, const char *key, const skipped_list *list, bool unknown) {
    yoke_json_open(json, key, '[');
    for (int i = 0; i < list->count; i++)
        if ((list->tensors[i].reason == YOKE_SKIP_UNKNOWN) == unknown)
            yoke_json_text(json, NULL, list->tensors[i].name);
    yoke_json_close(json, ']');
}

void skipped_json(yoke_json *json, const skipped_list *list) {
    json_names(json, "init_missing", list, false);
    json_names(json, "init_unknown", list, true);
    json->failed |= list->incomplete;
}
