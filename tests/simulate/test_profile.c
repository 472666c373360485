/* SPDX-License-Identifier: Apache-2.0 */
/* Profiles as files, and what is none. */
#include <unistd.h>

#include "simulate/bare_profile.h"

#define HEAD                                                                                       \
    "{\"yoke_profile\": 1, \"model\": \"m\", \"device\": \"d\", \"precision\": \"float32\", "      \
    "\"source\": \"s\", \"input_bytes\": 4, \"output_bytes\": 4, \"layers\": 1, \"host_ms\": 0, "  \
    "\"loss_ms\": 0, \"update_ns_per_byte\": 0, "
static const char good[] =
    HEAD "\"rows\": 2, \"forward_ms\": 1, \"segments\": [{\"backward_ms\": 1, \"bytes\": 8}]}";

static void expect_no_profile(const char *text, size_t bytes, const char *word) {
    yoke_profile profile;
    if (yoke_profile_parse(&profile, "file.json", text, bytes) != YOKE_ERROR_DATA)
        fail_msg("taken: %.*s", (int)bytes, text);
    if (strstr(yoke_last_error(), "file.json") == NULL || strstr(yoke_last_error(), word) == NULL)
        fail_msg("\"%s\" lacks \"%s\"", yoke_last_error(), word);
}

static void a_profile_cut_anywhere_is_refused(void **state) {
    (void)state;
    yoke_profile profile;
    EXPECT_OK(yoke_profile_parse(&profile, "file.json", good, strlen(good)));
    yoke_profile_clear(&profile);
    for (size_t bytes = 0; bytes < strlen(good); bytes++)
        expect_no_profile(good, bytes, "no complete JSON");
}

static void what_is_no_profile_is_refused(void **state) {
    (void)state;
    static const struct {
        const char *text, *word;
    } cases[] = {
        {"[]", "no profile"},
        {"{\"traceEvents\": []}", "no profile"},
        {"{\"yoke_profile\": 2}", "format 2"},
        {"{\"yoke_profile\": 1}", "\"model\""},
        {HEAD "\"forward_ms\": 1}", "\"rows\""},
        {HEAD "\"rows\": 0, \"forward_ms\": 1}", "\"rows\""},
        {HEAD "\"rows\": 2, \"forward_ms\": -1}", "\"forward_ms\""},
        {HEAD "\"rows\": 2, \"forward_ms\": \"1\"}", "\"forward_ms\""},
        {HEAD "\"rows\": 2, \"forward_ms\": 1, \"segments\": []}", "\"segments\""},
        {HEAD "\"rows\": 2, \"forward_ms\": 1, \"segments\": [3]}", "\"backward_ms\""},
        {HEAD "\"rows\": 2, \"forward_ms\": 1, \"segments\": [{\"backward_ms\": 1}]}", "\"bytes\""},
        {HEAD "\"rows\": 2, \"forward_ms\": 0, \"segments\": [{\"backward_ms\": 0, \"bytes\": 8}]}",
         "0 ms"},
        {HEAD
         "\"rows\": 2, \"forward_ms\": 1e-9, \"segments\": [{\"backward_ms\": 0, \"bytes\": 8}]}",
         "1e-09 ms in 5 parts; 0.0005 to 1e+09"},
        {HEAD
         "\"rows\": 2, \"forward_ms\": 9e8, \"segments\": [{\"backward_ms\": 9e8, \"bytes\": 8}]}",
         "1.8e+09 ms"},
        {HEAD "\"rows\": 2, \"rows\": 3}", "no complete JSON"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        expect_no_profile(cases[i].text, strlen(cases[i].text), cases[i].word);
}

static void a_written_profile_reads_back(void **state) {
    (void)state;
    char path[] = "/tmp/yoke-profile-XXXXXX";
    yoke_profile_segment own[1] = {{0.1 + 0.2, 12345}};
    yoke_profile profile = bare_profile(), found;
    profile.segments = own;
    profile.segment_count = 1;
    profile.forward_ms = 1.0 / 3;
    snprintf(profile.device, sizeof profile.device, "a \"device\"");
    int file = mkstemp(path);
    assert_true(file >= 0);
    close(file);
    EXPECT_OK(yoke_profile_write(&profile, path));
    EXPECT_OK(yoke_profile_read(&found, path));
    unlink(path);
    assert_string_equal(found.device, profile.device);
    assert_true(found.forward_ms == profile.forward_ms);
    assert_true(found.segments[0].backward_ms == own[0].backward_ms);
    assert_int_equal(found.segments[0].bytes, 12345);
    assert_int_equal(found.rows, ROWS);
    yoke_profile_clear(&found);
    assert_int_equal(yoke_profile_read(&found, "/nonexistent"), YOKE_ERROR_MISSING);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_profile_cut_anywhere_is_refused),
        cmocka_unit_test(what_is_no_profile_is_refused),
        cmocka_unit_test(a_written_profile_reads_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
