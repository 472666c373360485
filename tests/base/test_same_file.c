/* SPDX-License-Identifier: Apache-2.0 */
/* Whether two paths are one file: by name, through links, and before the file exists. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/base.h"

static char folder[] = "/tmp/yoke-same-file-XXXXXX";

/* A folder to work in: "a" exists, "hard" and "link" are a; "dangling" names "new". */
static int make_folder(void **state) {
    (void)state;
    if (mkdtemp(folder) == NULL || chdir(folder) != 0) return -1;
    FILE *file = fopen("a", "w");
    if (file == NULL || fclose(file) != 0) return -1;
    return link("a", "hard") + symlink("a", "link") + symlink("new", "dangling") +
           mkdir("inner", 0700) + symlink("inner", "door") + symlink("../new", "inner/up") +
           symlink("loop", "loop") + mkfifo("pipe", 0600);
}

static int remove_folder(void **state) {
    (void)state;
    char command[64];
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    return chdir("/") + system(command);
}

static void one_file_is_found_behind_any_name(void **state) {
    (void)state;
    char absolute[64];
    snprintf(absolute, sizeof absolute, "%s/new", folder);
    const char *const pairs[][2] = {
        {"a", "./a"},        {"a", "hard"},         {"a", "link"},
        {"new", "./new"},    {"new", absolute},     {"new", "dangling"},
        {"new", "inner/up"}, {"inner/x", "door/x"}, {"new", "inner/../new"}};
    for (size_t i = 0; i < sizeof pairs / sizeof pairs[0]; i++)
        if (!yoke_file_is_same(pairs[i][0], pairs[i][1]) ||
            !yoke_file_is_same(pairs[i][1], pairs[i][0]))
            fail_msg("%s and %s are one file", pairs[i][0], pairs[i][1]);
}

static void different_files_and_what_many_may_write_are_apart(void **state) {
    (void)state;
    static const char *const pairs[][2] = {{"a", "new"},       {"new", "inner/new"},
                                           {"inner", "inner"}, {"/dev/null", "/dev/null"},
                                           {"pipe", "pipe"},   {"missing/x", "missing/y"},
                                           {"loop", "a"},      {"dangling", "a"}};
    for (size_t i = 0; i < sizeof pairs / sizeof pairs[0]; i++)
        if (yoke_file_is_same(pairs[i][0], pairs[i][1]))
            fail_msg("%s and %s are not one file", pairs[i][0], pairs[i][1]);
}

static void expect(const yoke_used_file *files, int count, const char *words) {
    yoke_status status = yoke_files_check_apart(files, count);
    if (words == NULL && status != YOKE_OK) fail_msg("%s", yoke_last_error());
    if (words == NULL) return;
    assert_int_equal(status, YOKE_ERROR_ARGUMENT);
    if (strstr(yoke_last_error(), words) == NULL) fail_msg("no '%s': %s", words, yoke_last_error());
}

static void a_file_is_written_once_and_never_one_that_is_read(void **state) {
    (void)state;
    expect((yoke_used_file[]){{"save", "a", YOKE_FILE_WRITTEN}, {"trace", NULL, YOKE_FILE_WRITTEN}},
           2, NULL);
    expect((yoke_used_file[]){{"init", "a", YOKE_FILE_READ}, {"resume", "a", YOKE_FILE_READ}}, 2,
           NULL);
    expect((yoke_used_file[]){{"save", "new", YOKE_FILE_WRITTEN},
                              {"trace", "dangling", YOKE_FILE_WRITTEN}},
           2, "save new and trace dangling are one file");
    expect((yoke_used_file[]){{"init", "hard", YOKE_FILE_READ}, {"save", "a", YOKE_FILE_WRITTEN}},
           2, "save a would overwrite what init hard reads");
    const yoke_used_file save = {"save", "a", YOKE_FILE_WRITTEN};
    expect((yoke_used_file[]){save, {"dataset", "csv:a,label=y", YOKE_FILE_SPEC}}, 2, "dataset");
    expect((yoke_used_file[]){save, {"dataset", "csv:b,test=link", YOKE_FILE_SPEC}}, 2, "dataset");
    expect((yoke_used_file[]){save, {"dataset", "a", YOKE_FILE_SPEC}}, 2, NULL);
    const yoke_used_file label = {"dataset", "csv:b,label=a", YOKE_FILE_SPEC};
    expect((yoke_used_file[]){save, label}, 2, NULL); /* a column, not the file */
    expect((yoke_used_file[]){{"save", "label=a", YOKE_FILE_WRITTEN}, label}, 2, NULL);
    expect((yoke_used_file[]){{"save", "8", YOKE_FILE_WRITTEN},
                              {"dataset", "synthetic:1x8x8,classes=8", YOKE_FILE_SPEC}},
           2, NULL);
    expect((yoke_used_file[]){{"trace", "inner/step-00000003.safetensors", YOKE_FILE_WRITTEN},
                              {"folder", "door", YOKE_FILE_CHECKPOINTS}},
           2, "name of a checkpoint");
    expect((yoke_used_file[]){{"trace", "inner/trace.json", YOKE_FILE_WRITTEN},
                              {"folder", "door", YOKE_FILE_CHECKPOINTS}},
           2, NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_file_is_found_behind_any_name),
        cmocka_unit_test(different_files_and_what_many_may_write_are_apart),
        cmocka_unit_test(a_file_is_written_once_and_never_one_that_is_read),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
