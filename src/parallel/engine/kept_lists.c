/* SPDX-License-Identifier: Apache-2.0 */
/* Copies of the lists that an engine's options point to, for a caller who makes another engine
 * later. */
#include <stdlib.h>
#include <string.h>

#include "parallel/step/step.h"

struct yoke_kept_lists {
    yoke_groups groups;
    double *shares;
    char *freeze_statistics, *fault;
};

static yoke_status keep_text(char **copy, const char **text) {
    if (*text == NULL) return YOKE_OK;
    *copy = yoke_strdup(*text);
    if (*copy == NULL) return FAIL_MEMORY(strlen(*text) + 1, "an option");
    *text = *copy;
    return YOKE_OK;
}

static yoke_status keep(yoke_kept_lists *lists, yoke_data_parallel_options *options) {
    size_t bytes = (size_t)options->share_count * sizeof *lists->shares;
    TRY(keep_text(&lists->freeze_statistics, &options->freeze_statistics));
    TRY(keep_text(&lists->fault, &options->fault));
    if (options->groups != NULL && options->group_count > 0) {
        TRY(yoke_groups_load(&lists->groups, options->groups, options->group_count));
        options->groups = lists->groups.list;
    }
    if (options->shares == NULL || options->share_count <= 0) return YOKE_OK;
    lists->shares = yoke_malloc(bytes);
    if (lists->shares == NULL) return FAIL_MEMORY(bytes, "shares");
    options->shares = memcpy(lists->shares, options->shares, bytes);
    return YOKE_OK;
}

yoke_status yoke_kept_lists_create(yoke_kept_lists **lists, yoke_data_parallel_options *options) {
    *lists = yoke_calloc(1, sizeof **lists);
    if (*lists == NULL) return FAIL_MEMORY(sizeof **lists, "the options of the engine");
    return keep(*lists, options);
}

void yoke_kept_lists_leave_out(yoke_kept_lists *lists, yoke_data_parallel_options *options,
                               int device) {
    if (lists->shares != NULL && device < options->share_count)
        memmove(&lists->shares[device], &lists->shares[device + 1],
                (size_t)(--options->share_count - device) * sizeof *lists->shares);
    if (options->straggler == device) options->straggler_factor = 0;
    if (options->straggler >= device && options->straggler > 0) options->straggler--;
}

void yoke_kept_lists_destroy(yoke_kept_lists *lists) {
    if (lists == NULL) return;
    yoke_groups_destroy(&lists->groups);
    yoke_free(lists->shares);
    yoke_free(lists->freeze_statistics);
    yoke_free(lists->fault);
    yoke_free(lists);
}
