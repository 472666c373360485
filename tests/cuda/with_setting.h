/* SPDX-License-Identifier: Apache-2.0 */
/* The simulator reads its settings when a process begins, so a test with a setting of its own runs
 * its program again, in a process that has it. */
#ifndef TESTS_WITH_SETTING_H
#define TESTS_WITH_SETTING_H

#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "support/devices.h"

/* Whether this is the process that has `setting`; otherwise it has run, and all went well. */
static inline bool with_setting(const char *setting, const char *value, const char *test) {
    if (getenv("YOKE_TEST_ALONE") != NULL) return true;
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        setenv("YOKE_TEST_ALONE", test, 1);
        setenv(setting, value, 1);
        execl("/proc/self/exe", test, (char *)NULL);
        _exit(127);
    }
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
        fail_msg("%s with %s=%s: see above", test, setting, value);
    return false;
}

/* The first line of a test. */
#define WITH(setting, value)                                                                       \
    (void)state;                                                                                   \
    if (!with_setting(setting, value, __func__)) return

/* For main: in a process that has a setting, its test alone runs. */
static inline void with_setting_filter(void) {
    if (getenv("YOKE_TEST_ALONE") != NULL) cmocka_set_test_filter(getenv("YOKE_TEST_ALONE"));
}

#endif
