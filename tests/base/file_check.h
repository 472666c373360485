/* SPDX-License-Identifier: Apache-2.0 */
/* What the tests of files share: a folder of their own with one target in it. */
#ifndef TESTS_BASE_FILE_CHECK_H
#define TESTS_BASE_FILE_CHECK_H

#include <dirent.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/base.h"

static char folder[64], target[128];

static int make_folder(void **state) {
    (void)state;
    strcpy(folder, "/tmp/yoke-file-XXXXXX");
    if (mkdtemp(folder) == NULL) return -1;
    snprintf(target, sizeof target, "%s/weights", folder);
    return 0;
}

static int remove_folder(void **state) {
    char command[128];
    (void)state;
    snprintf(command, sizeof command, "rm -rf %s", folder);
    return system(command);
}

/* Hidden ones do not count. */
static int entries(void) {
    int count = 0;
    DIR *directory = opendir(folder);
    assert_non_null(directory);
    for (struct dirent *entry; (entry = readdir(directory)) != NULL;)
        count += entry->d_name[0] != '.';
    closedir(directory);
    return count;
}

static void save(const char *path, const char *text) {
    yoke_file_writer writer;
    assert_int_equal(yoke_file_create(&writer, path), YOKE_OK);
    assert_int_equal(yoke_file_write(&writer, text, strlen(text)), YOKE_OK);
    assert_int_equal(yoke_file_commit(&writer), YOKE_OK);
}

static void assert_content(const char *path, const char *text) {
    unsigned char *data = NULL;
    size_t bytes = 0;
    assert_int_equal(yoke_file_read(path, 1 << 20, &data, &bytes), YOKE_OK);
    assert_int_equal(bytes, strlen(text));
    assert_string_equal((char *)data, text);
    free(data);
}

#endif
