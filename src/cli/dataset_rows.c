/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/dataset_rows.h"

#include <stdio.h>

#include "cli/cli.h"

void dataset_rows_name_bad(const yoke_bad_row *bad, void *payload) {
    (void)payload;
    fprintf(stderr, "yoke: warning: %s\n", bad->text);
}

yoke_status dataset_rows_open(yoke_dataset **dataset, const char *spec, yoke_split split,
                              const dataset_rows *rows, dataset_rows_on_bad *on_bad,
                              void *payload) {
    TRY(yoke_dataset_open(dataset, spec, split));
    if (rows->limit > 0) TRY(yoke_dataset_limit(*dataset, rows->limit));
    if (!rows->skip_bad) return YOKE_OK;
    return yoke_dataset_skip_bad(*dataset, rows->loader_threads.count, on_bad, payload);
}
