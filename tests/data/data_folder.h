/* SPDX-License-Identifier: Apache-2.0 */
/* A folder of small dataset files for one test program. */
#ifndef DATA_FOLDER_H
#define DATA_FOLDER_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "data/data.h"

static char data_folder[64];

static inline const char *in_folder(const char *name) {
    static char path[512];
    snprintf(path, sizeof path, "%s/%s", data_folder, name);
    return path;
}

static inline int make_folder(void **state) {
    (void)state;
    snprintf(data_folder, sizeof data_folder, "%s/yoke-data-XXXXXX", P_tmpdir);
    return mkdtemp(data_folder) ? 0 : -1;
}

static inline int empty_folder(void **state) {
    (void)state;
    DIR *listing = opendir(data_folder);
    if (!listing) return -1;
    for (struct dirent *entry; (entry = readdir(listing));)
        if (entry->d_name[0] != '.') unlink(in_folder(entry->d_name));
    return closedir(listing);
}

static inline int remove_folder(void **state) {
    return empty_folder(state) == 0 ? rmdir(data_folder) : -1;
}

static inline void write_file(const char *name, const uint8_t *data, size_t bytes) {
    unlink(in_folder(name)); /* overwriting would be flushed to disk at once */
    FILE *file = fopen(in_folder(name), "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(data, 1, bytes, file), bytes);
    assert_int_equal(fclose(file), 0);
}

static inline yoke_status open_spec(yoke_dataset **dataset, const char *format, yoke_split split) {
    char spec[128];
    snprintf(spec, sizeof spec, "%s:%s", format, data_folder);
    return yoke_dataset_open(dataset, spec, split);
}

static inline void expect_error(const char *format, yoke_split split, yoke_status expected,
                                const char *words) {
    yoke_dataset *dataset = NULL;
    yoke_status status = open_spec(&dataset, format, split);
    if (status != expected || !strstr(yoke_last_error(), words))
        print_error("%s: %s, '%s' should contain '%s'\n", format, yoke_status_name(status),
                    yoke_last_error(), words);
    assert_int_equal(status, expected);
    assert_null(dataset);
    assert_non_null(strstr(yoke_last_error(), words));
}

#endif
