/* SPDX-License-Identifier: Apache-2.0 */
/* Whatever goes in, what comes out is well-formed: texts cannot leave their place. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "report/html.h"

static void expect(yoke_html *out, const char *text) {
    assert_false(out->failed);
    assert_string_equal(out->text, text);
    assert_int_equal(out->length, strlen(text));
    yoke_html_end(out);
}

static void texts_and_attributes_are_escaped_and_markup_is_not(void **state) {
    (void)state;
    yoke_html out = {0};
    yoke_html_write(&out, "<p title=\"%s\">%s</p>%s", "\"><script>&",
                    "</p><script>alert('1')&amp;%s", "");
    expect(&out, "<p title=\"&quot;&gt;&lt;script&gt;&amp;\">"
                 "&lt;/p&gt;&lt;script&gt;alert('1')&amp;amp;%s</p>");
}

static void bytes_that_xml_forbids_become_replacement_characters(void **state) {
    (void)state;
    yoke_html out = {0};
    yoke_html_write(&out, "%s", "a\x01 \xff \xc3( \xEF\xBF\xBE \x7f \xc3\xa4\t.");
    expect(&out, "a\xEF\xBF\xBD \xEF\xBF\xBD \xEF\xBF\xBD( \xEF\xBF\xBD \xEF\xBF\xBD \xc3\xa4\t.");
}

/* Unicode's Bidi_Control, each of them, and its neighbours. */
static void controls_of_the_direction_show_as_text(void **state) {
    (void)state;
    yoke_html out = {0};
    yoke_html_shown(&out,
                    "\xD8\x9C \xE2\x80\x8E \xE2\x80\x8F \xE2\x80\xAA \xE2\x80\xAB \xE2\x80\xAC "
                    "\xE2\x80\xAD \xE2\x80\xAE \xE2\x81\xA6 \xE2\x81\xA7 \xE2\x81\xA8 "
                    "\xE2\x81\xA9 <");
    expect(&out, "\\u061C \\u200E \\u200F \\u202A \\u202B \\u202C \\u202D \\u202E \\u2066 \\u2067 "
                 "\\u2068 \\u2069 <");
    yoke_html_write(&out, "%s", "\xD8\x9B\xE2\x80\x8D\xE2\x80\xAF\xE2\x81\xA5\xF0\x9F\x98\x80");
    expect(&out, "\xD8\x9B\xE2\x80\x8D\xE2\x80\xAF\xE2\x81\xA5\xF0\x9F\x98\x80");
}

static void json_cannot_end_its_element(void **state) {
    (void)state;
    yoke_html out = {0};
    yoke_html_json(&out, "{\"</script>\":\"<!--&\xE2\x80\xA8\xE2\x80\xA9\xE2\x80\xAA\\\"\"}");
    expect(&out, "{\"\\u003c/"
                 "script\\u003e\":\"\\u003c!--\\u0026\xE2\x80\xA8\xE2\x80\xA9\xE2\x80\xAA\\\"\"}");
}

static void long_texts_have_room(void **state) {
    (void)state;
    static char text[100001], wanted[400001];
    yoke_html out = {0};
    memset(text, '<', sizeof text - 1);
    for (size_t i = 0; i < sizeof text - 1; i++)
        memcpy(wanted + 4 * i, "&lt;", 4);
    yoke_html_write(&out, "%s", text);
    expect(&out, wanted);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(texts_and_attributes_are_escaped_and_markup_is_not),
        cmocka_unit_test(bytes_that_xml_forbids_become_replacement_characters),
        cmocka_unit_test(controls_of_the_direction_show_as_text),
        cmocka_unit_test(json_cannot_end_its_element),
        cmocka_unit_test(long_texts_have_room),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
