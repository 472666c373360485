/* SPDX-License-Identifier: Apache-2.0 */
/* Reads "auto" or a number. */
#include "cli/data_flags.h"

#include <stdio.h>
#include <string.h>

#include "cli/cli.h"

int data_flags_check(const data_flags *flags, const char *verb) {
    if (loader_threads_read(flags->loader_threads) >= 0) return -1;
    return cli_usage_error(verb, "--loader-threads: '%s' is neither auto nor 1 to 64",
                           flags->loader_threads);
}

int loader_threads_read(const char *text) {
    int64_t count;
    if (text == NULL || strcmp(text, "auto") == 0) return 0;
    return yoke_text_integer(text, 1, 64, &count) ? (int)count : -1;
}

void data_flags_fill(yoke_trainer_options *run, const data_flags *flags) {
    run->limit_rows = flags->limit_rows;
    run->drop_last = flags->drop_last;
    run->sampling = (yoke_sampling)flags->sampling;
    run->loader_threads = loader_threads_read(flags->loader_threads);
    run->skip_bad = flags->skip_bad;
}

void data_flags_name_bad(const yoke_bad_row *bad, void *payload) {
    (void)payload;
    fprintf(stderr, "yoke: warning: %s\n", bad->text);
}

yoke_status data_flags_open(yoke_dataset **dataset, const char *spec, yoke_split split,
                            const data_flags *flags, data_flags_on_bad *on_bad, void *payload) {
    yoke_status status = yoke_dataset_open(dataset, spec, split);
    if (status == YOKE_OK && flags->limit_rows > 0)
        status = yoke_dataset_limit(*dataset, flags->limit_rows);
    if (status == YOKE_OK && flags->skip_bad)
        status = yoke_dataset_skip_bad(*dataset, loader_threads_read(flags->loader_threads), on_bad,
                                       payload);
    return status;
}
