/* SPDX-License-Identifier: Apache-2.0 */
/* GPT-2's words, by PCRE2: its letters and numbers are Unicode's. The spaces are those of Unicode's
 * White_Space, as in `tokenizers`; PCRE2's \s has one character more. */
#include "tokenizer/tokenizer.h"

#ifdef YOKE_HAS_PCRE2
#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <stdlib.h>

#define SPACE                                                                                      \
    "\\x{09}-\\x{0d}\\x{20}\\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{202f}"  \
    "\\x{205f}\\x{3000}"
#define PATTERN                                                                                    \
    "'(?:[stmd]|re|ve|ll)| ?\\p{L}+| ?\\p{N}+| ?[^" SPACE "\\p{L}\\p{N}]+|[" SPACE "]+(?![^" SPACE \
    "])|[" SPACE "]+"

struct yoke_splitter {
    pcre2_code *code;
};

static yoke_status pcre2_failed(int code, const char *call) {
    PCRE2_UCHAR text[128] = "";
    pcre2_get_error_message(code, text, sizeof text);
    if (code == PCRE2_ERROR_NOMEMORY) return FAIL(YOKE_ERROR_MEMORY, "%s: no memory", call);
    return FAIL(YOKE_ERROR_DATA, "%s: %s", call, (const char *)text);
}

yoke_status yoke_splitter_open(yoke_splitter **splitter) {
    int error = 0;
    PCRE2_SIZE at = 0;
    *splitter = yoke_calloc(1, sizeof **splitter);
    if (*splitter == NULL) return FAIL_MEMORY(sizeof **splitter, "a tokenizer");
    (*splitter)->code =
        pcre2_compile((PCRE2_SPTR)PATTERN, PCRE2_ZERO_TERMINATED,
                      PCRE2_UTF | PCRE2_UCP | PCRE2_MATCH_INVALID_UTF, &error, &at, NULL);
    if ((*splitter)->code == NULL) return pcre2_failed(error, "pcre2_compile");
    pcre2_jit_compile((*splitter)->code, PCRE2_JIT_COMPLETE); /* without it matching is slower */
    return YOKE_OK;
}

void yoke_splitter_close(yoke_splitter *splitter) {
    if (splitter == NULL) return;
    pcre2_code_free(splitter->code);
    yoke_free(splitter);
}

yoke_status yoke_split_begin(yoke_split *split, const yoke_splitter *splitter, const char *text,
                             size_t bytes) {
    *split = (yoke_split){.splitter = splitter, .text = text, .bytes = bytes};
    split->match = pcre2_match_data_create_from_pattern(splitter->code, NULL);
    return split->match != NULL ? YOKE_OK : FAIL_MEMORY(0, "a match");
}

/* The match from `at` on; none: an empty one at the end. */
static yoke_status find(yoke_split *split) {
    int found = pcre2_match(split->splitter->code, (PCRE2_SPTR)split->text, split->bytes, split->at,
                            0, split->match, NULL);
    split->next_begin = split->next_end = split->bytes;
    if (found == PCRE2_ERROR_NOMATCH) return YOKE_OK;
    if (found < 0) return pcre2_failed(found, "pcre2_match");
    const PCRE2_SIZE *places = pcre2_get_ovector_pointer(split->match);
    split->next_begin = places[0];
    split->next_end = places[1];
    return YOKE_OK;
}

bool yoke_split_next(yoke_split *split, size_t *begin, size_t *end, yoke_status *status) {
    *status = YOKE_OK;
    if (split->at == split->bytes) return false;
    if (split->at >= split->next_end) *status = find(split);
    if (*status != YOKE_OK) return false;
    bool gap = split->at < split->next_begin; /* bytes that are not UTF-8 */
    *begin = split->at;
    *end = split->at = gap ? split->next_begin : split->next_end;
    return true;
}

void yoke_split_end(yoke_split *split) {
    pcre2_match_data_free(split->match);
}

#else

yoke_status yoke_splitter_open(yoke_splitter **splitter) {
    *splitter = NULL; /* tokens still become texts */
    return YOKE_OK;
}

void yoke_splitter_close(yoke_splitter *splitter) {
    (void)splitter;
}

yoke_status yoke_split_begin(yoke_split *split, const yoke_splitter *splitter, const char *text,
                             size_t bytes) {
    (void)split, (void)splitter, (void)text, (void)bytes;
    return FAIL(
        YOKE_ERROR_ARGUMENT,
        "this build makes no tokens of texts: it lacks PCRE2, which knows Unicode's letters. "
        "Install it (scripts/install-deps.sh --text, or Debian's libpcre2-dev), configure "
        "again and build");
}

bool yoke_split_next(yoke_split *split, size_t *begin, size_t *end, yoke_status *status) {
    (void)split, (void)begin, (void)end;
    *status = YOKE_OK;
    return false;
}

void yoke_split_end(yoke_split *split) {
    (void)split;
}

#endif
