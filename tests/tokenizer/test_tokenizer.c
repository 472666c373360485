/* SPDX-License-Identifier: Apache-2.0 */
/* Texts become the tokens that Hugging Face's `tokenizers` makes of them
 * (fixtures/make_tokenizer_fixture.py), and tokens the same bytes again; files of another kind, and
 * hostile ones, are refused in words. */
#include "support/engine_check.h"

#include <jansson.h>
#include <unistd.h>

#include "yoke/tokenizer.h"

#define FOLDER YOKE_SOURCE_DIR "/tests/fixtures/tokenizer"

static yoke_tokenizer *open_fixture(const char *path) {
    yoke_tokenizer *tokenizer = NULL;
    EXPECT_OK(yoke_tokenizer_open(&tokenizer, path));
    return tokenizer;
}

/* A build without PCRE2 decodes alone, and says so. */
static bool cannot_encode(void) {
    yoke_tokenizer *tokenizer = open_fixture(FOLDER);
    int tokens[2];
    size_t count = 0;
    yoke_status status = yoke_tokenizer_encode(tokenizer, "a", 1, tokens, &count);
    yoke_tokenizer_close(tokenizer);
    if (status == YOKE_OK) return false;
    assert_int_equal(status, YOKE_ERROR_ARGUMENT);
    assert_non_null(strstr(yoke_last_error(), "install-deps.sh --text"));
    print_message("skipped: this build has no PCRE2\n");
    return true;
}

static void goes_round(const yoke_tokenizer *tokenizer, const char *text, size_t bytes) {
    int *tokens = malloc((bytes + 1) * sizeof *tokens);
    char *again = malloc(bytes + 1);
    size_t count = 0, length = 0;
    assert_true(tokens != NULL && again != NULL);
    EXPECT_OK(yoke_tokenizer_encode(tokenizer, text, bytes, tokens, &count));
    assert_true(count <= bytes);
    EXPECT_OK(yoke_tokenizer_decode(tokenizer, tokens, count, again, bytes, &length));
    assert_int_equal(length, bytes);
    assert_memory_equal(again, text, bytes);
    free(again);
    free(tokens);
}

static void compare_row(const yoke_tokenizer *tokenizer, json_t *row, bool specials_apart) {
    json_t *text = json_object_get(row, "text"), *ids = json_object_get(row, "ids");
    const char *bytes = json_string_value(text);
    size_t length = json_string_length(text), count = 0;
    if (specials_apart && strstr(bytes, "<|end|>") != NULL)
        return; /* vocab.json has no such token */
    int *tokens = malloc((length + 1) * sizeof *tokens);
    assert_non_null(tokens);
    EXPECT_OK(yoke_tokenizer_encode(tokenizer, bytes, length, tokens, &count));
    if (count != json_array_size(ids))
        fail_msg("'%.60s': %zu tokens, not %zu", bytes, count, json_array_size(ids));
    for (size_t i = 0; i < count; i++)
        assert_int_equal(tokens[i], json_integer_value(json_array_get(ids, i)));
    free(tokens);
    goes_round(tokenizer, bytes, length);
}

static void texts_have_the_tokens_of_hugging_face(void **state) {
    (void)state;
    static const char *const paths[] = {FOLDER "/tokenizer.json", FOLDER, FOLDER "/vocab.json"};
    size_t index;
    json_t *row, *rows = json_load_file(FOLDER "/texts.json", JSON_ALLOW_NUL, NULL);
    assert_non_null(rows);
    assert_true(json_array_size(rows) > 40);
    for (int i = 0; i < 3 && !cannot_encode(); i++) {
        yoke_tokenizer *tokenizer = open_fixture(paths[i]);
        assert_int_equal(yoke_tokenizer_count(tokenizer), i < 2 ? 701 : 700);
        json_array_foreach(rows, index, row) compare_row(tokenizer, row, i == 2);
        yoke_tokenizer_close(tokenizer);
    }
    json_decref(rows);
}

static void any_bytes_come_back(void **state) {
    (void)state;
    if (cannot_encode()) return;
    yoke_tokenizer *tokenizer = open_fixture(FOLDER);
    static const char *const wrong[] = {"\xff", "a\x80 b",      " \xe4\xbd x",
                                        "\xc3", "\xed\xa0\x80", "\xf5\x80\x80\x80 1"};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++)
        goes_round(tokenizer, wrong[i], strlen(wrong[i]));
    char bytes[4096];
    uint32_t words[4];
    for (uint32_t round = 0; round < 40; round++) {
        for (uint32_t i = 0; i < sizeof bytes; i++) {
            yoke_random_words(3, YOKE_RANDOM_TEXT, round, i, 0, words);
            bytes[i] = (char)(round % 2 == 0 ? words[0] : words[0] % 3 + 31 + words[1] % 2 * 66);
        }
        goes_round(tokenizer, bytes, sizeof bytes);
    }
    size_t long_word = 1 << 20;
    char *text = malloc(long_word);
    assert_non_null(text);
    memset(text, 'e', long_word);
    goes_round(tokenizer, text, long_word);
    memset(text, ' ', long_word - 1);
    goes_round(tokenizer, text, long_word);
    free(text);
    yoke_tokenizer_close(tokenizer);
}

static void special_tokens_are_found(void **state) {
    (void)state;
    yoke_tokenizer *tokenizer = open_fixture(FOLDER);
    const int tokens[] = {0, 700}, none[] = {701}, negative[] = {-1};
    char text[32];
    size_t bytes = 0;
    assert_int_equal(yoke_tokenizer_special(tokenizer, "<|endoftext|>"), 0);
    assert_int_equal(yoke_tokenizer_special(tokenizer, "<|end|>"), 700);
    assert_int_equal(yoke_tokenizer_special(tokenizer, "the"), -1);
    EXPECT_OK(yoke_tokenizer_decode(tokenizer, tokens, 2, text, sizeof text, &bytes));
    assert_int_equal(bytes, 20);
    assert_memory_equal(text, "<|endoftext|><|end|>", 20);
    EXPECT_OK(yoke_tokenizer_decode(tokenizer, tokens, 2, NULL, 0, &bytes));
    assert_int_equal(bytes, 20);
    assert_int_equal(yoke_tokenizer_decode(tokenizer, tokens, 2, text, 19, &bytes),
                     YOKE_ERROR_ARGUMENT);
    assert_int_equal(yoke_tokenizer_decode(tokenizer, none, 1, text, 9, &bytes),
                     YOKE_ERROR_ARGUMENT);
    assert_int_equal(yoke_tokenizer_decode(tokenizer, negative, 1, text, 9, &bytes),
                     YOKE_ERROR_ARGUMENT);
    yoke_tokenizer_close(tokenizer);
}

/* Hostile files. */

static char folder[] = "/tmp/yoke-tokenizer-XXXXXX";

static const char *write_file(const char *name, const char *text) {
    static char path[64];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
    return path;
}

static void expect_refused(const char *path, yoke_status wanted, const char *words) {
    yoke_tokenizer *tokenizer = NULL;
    yoke_status status = yoke_tokenizer_open(&tokenizer, path);
    assert_null(tokenizer);
    if (status != wanted || strstr(yoke_last_error(), words) == NULL)
        fail_msg("%s for '%s': %s", yoke_status_name(status), words, yoke_last_error());
}

#define LEVEL                                                                                      \
    "\"pre_tokenizer\":{\"type\":\"ByteLevel\",\"add_prefix_space\":false},\"decoder\":{\"type\":" \
    "\"ByteLevel\"},"
#define FILE_OF(model) "{" LEVEL "\"model\":" model "}"

static void files_that_are_no_such_tokenizer_are_refused(void **state) {
    (void)state;
    static const struct {
        const char *text, *words;
    } files[] = {
        {"", "not JSON"},
        {"{", "not JSON"},
        {"[]", "not an object"},
        {"{}", "no model"},
        {"{\"model\":{\"type\":\"WordPiece\"}}", "the model is WordPiece"},
        {"{\"model\":{\"type\":\"BPE\",\"vocab\":{},\"merges\":[]}}", "no pre_tokenizer"},
        {"{\"model\":{\"vocab\":{}},\"pre_tokenizer\":{\"type\":\"Sequence\"}}",
         "pre_tokenizer is Sequence"},
        {"{\"normalizer\":{\"type\":\"NFC\"}," LEVEL "\"model\":{\"vocab\":{}}}", "normalizer"},
        {"{\"pre_tokenizer\":{\"type\":\"ByteLevel\",\"add_prefix_space\":true},\"decoder\":{"
         "\"type\":\"ByteLevel\"},"
         "\"model\":{\"vocab\":{}}}",
         "add_prefix_space"},
        {FILE_OF("{\"byte_fallback\":true,\"vocab\":{}}"), "byte_fallback"},
        {FILE_OF("{\"dropout\":0.1,\"vocab\":{}}"), "dropout"},
        {FILE_OF("{\"merges\":[]}"), "no vocab"},
        {FILE_OF("{\"vocab\":{},\"merges\":[]}"), "no token"},
        {FILE_OF("{\"vocab\":{\"a\":0}}"), "no list of merges"},
        {FILE_OF("{\"vocab\":{\"a\":\"0\"},\"merges\":[]}"), "no whole number"},
        {FILE_OF("{\"vocab\":{\"a\":-1},\"merges\":[]}"), "has the id -1"},
        {FILE_OF("{\"vocab\":{\"a\":99999999999},\"merges\":[]}"), "has the id 99999999999"},
        {FILE_OF("{\"vocab\":{\"a\":0,\"b\":0},\"merges\":[]}"), "two tokens have the id 0"},
        {FILE_OF("{\"vocab\":{\"a\":0,\"a\":1},\"merges\":[]}"), "not JSON"},
        {FILE_OF("{\"vocab\":{\"a b\":0},\"merges\":[]}"), "stands for no byte"},
        {FILE_OF("{\"vocab\":{\"\\u4f60\":0},\"merges\":[]}"), "stands for no byte"},
        {FILE_OF("{\"vocab\":{\"a\":0,\"b\":1,\"ab\":2},\"merges\":[\"a c\"]}"), "merge 0 has 'c'"},
        {FILE_OF("{\"vocab\":{\"a\":0,\"b\":1},\"merges\":[\"a b\"]}"), "merge 0 has 'ab'"},
        {FILE_OF("{\"vocab\":{\"a\":0,\"b\":1,\"ab\":2},\"merges\":[\"a b\",\"a b\"]}"),
         "merge 1 is merge 0 again"},
        {FILE_OF("{\"vocab\":{\"a\":0},\"merges\":[\"a\"]}"), "is not two tokens"},
        {FILE_OF("{\"vocab\":{\"a\":0},\"merges\":[\"a  a\"]}"), "is not two tokens"},
        {FILE_OF("{\"vocab\":{\"a\":0},\"merges\":[[\"a\"]]}"), "is not two tokens"},
        {FILE_OF("{\"vocab\":{\"a\":0},\"merges\":[7]}"), "is not two tokens"},
        {"{\"added_tokens\":[{\"id\":0}]," LEVEL "\"model\":{\"vocab\":{\"a\":1},\"merges\":[]}}",
         "added token 0"},
        {"{\"added_tokens\":[{\"id\":0,\"content\":\"x\",\"lstrip\":true}]," LEVEL
         "\"model\":{\"vocab\":{\"a\":1},\"merges\":[]}}",
         "lstrip"},
    };
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++)
        expect_refused(write_file("tokenizer.json", files[i].text), YOKE_ERROR_DATA,
                       files[i].words);
    expect_refused("/nowhere/tokenizer.json", YOKE_ERROR_MISSING, "/nowhere");
    write_file("vocab.json", "{\"a\":0}");
    char vocabulary[64], json[64];
    snprintf(vocabulary, sizeof vocabulary, "%s/vocab.json", folder);
    snprintf(json, sizeof json, "%s/tokenizer.json", folder);
    expect_refused(vocabulary, YOKE_ERROR_MISSING, "merges.txt");
    unlink(json);
    write_file("merges.txt", "#version: 0.2\na b c\n");
    expect_refused(folder, YOKE_ERROR_DATA, "merge 0, 'a b c', is not two tokens");
    unlink(vocabulary);
    expect_refused(folder, YOKE_ERROR_MISSING, "neither a tokenizer.json");
}

static void a_byte_without_a_token_is_named(void **state) {
    (void)state;
    if (cannot_encode()) return;
    int tokens[8];
    size_t count = 0;
    const char *text = FILE_OF("{\"vocab\":{\"a\":5,\"b\":1,\"ab\":2},\"merges\":[[\"a\",\"b\"]]}");
    yoke_tokenizer *tokenizer = open_fixture(write_file("tokenizer.json", text));
    assert_int_equal(yoke_tokenizer_count(tokenizer), 6); /* ids may have gaps */
    EXPECT_OK(yoke_tokenizer_encode(tokenizer, "abba", 4, tokens, &count));
    assert_int_equal(count, 3);
    assert_true(tokens[0] == 2 && tokens[1] == 1 && tokens[2] == 5);
    assert_int_equal(yoke_tokenizer_encode(tokenizer, "abc", 3, tokens, &count), YOKE_ERROR_DATA);
    assert_non_null(strstr(yoke_last_error(), "0x63"));
    tokens[0] = 3;
    assert_int_equal(yoke_tokenizer_decode(tokenizer, tokens, 1, NULL, 0, &count),
                     YOKE_ERROR_ARGUMENT);
    yoke_tokenizer_close(tokenizer);
}

static int make_folder(void **state) {
    (void)state;
    return mkdtemp(folder) != NULL ? 0 : -1;
}

static int remove_folder(void **state) {
    (void)state;
    static const char *const names[] = {"tokenizer.json", "vocab.json", "merges.txt"};
    char path[64];
    for (int i = 0; i < 3; i++) {
        snprintf(path, sizeof path, "%s/%s", folder, names[i]);
        unlink(path);
    }
    return rmdir(folder);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(texts_have_the_tokens_of_hugging_face),
        cmocka_unit_test(any_bytes_come_back),
        cmocka_unit_test(special_tokens_are_found),
        cmocka_unit_test(files_that_are_no_such_tokenizer_are_refused),
        cmocka_unit_test(a_byte_without_a_token_is_named),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
