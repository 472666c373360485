/* SPDX-License-Identifier: Apache-2.0 */
/* The page of a comparison that holds more than the page shows. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/base.h"
#include "cli/compare/compare.h"

/* The tool's names come with the engines and ranks of its contenders. */
const char *compare_kind_name(compare_kind kind) {
    return kind == COMPARE_PYTHON ? "dp python" : "single";
}

static void spans_that_are_left_out_get_a_note(void **state) {
    (void)state;
    char path[] = "/tmp/yoke-page-XXXXXX";
    unsigned char *text;
    size_t bytes;
    compare_device part = {.name = "cpu:0"};
    compare_mode mode = {
        .kind = COMPARE_PYTHON, .devices = 4, .parts = &part, .spans_left_out = 77};
    compare_result result = {.setup = {.device_count = 8}, .modes = &mode, .mode_count = 1};
    close(mkstemp(path));
    for (int round = 0; round < 2; round++) {
        assert_int_equal(compare_write_page(path, &result), YOKE_OK);
        assert_int_equal(yoke_file_read(path, 1 << 20, &text, &bytes), YOKE_OK);
        const char *note = memmem(text, bytes, "dp python on 4: the timeline leaves out 77 spans",
                                  strlen("dp python on 4: the timeline leaves out 77 spans"));
        assert_int_equal(note != NULL, round == 0);
        mode.spans_left_out = 0;
        free(text);
    }
    unlink(path);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(spans_that_are_left_out_get_a_note)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
