/* SPDX-License-Identifier: Apache-2.0 */
/* A flip of any byte of a sealed header changes its digest: the seal covers every byte but its own
 * value, which must equal the digest digit by digit. */
#include "train/digest.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#define DIGITS (YOKE_DIGEST_TEXT - 1)

static void write_digits(uint64_t digest, char text[YOKE_DIGEST_TEXT]) {
    snprintf(text, YOKE_DIGEST_TEXT, "%016" PRIx64, digest);
}

void yoke_digest_text(const void *data, size_t bytes, char text[YOKE_DIGEST_TEXT]) {
    write_digits(XXH3_64bits(data, bytes), text);
}

_Static_assert(sizeof(XXH3_state_t) <= sizeof(yoke_digest), "room for the state");

static XXH3_state_t *state_of(const yoke_digest *digest) {
    return (XXH3_state_t *)(void *)digest->state;
}

void yoke_digest_begin(yoke_digest *digest) {
    XXH3_INITSTATE(state_of(digest));
    XXH3_64bits_reset(state_of(digest));
}

void yoke_digest_add(yoke_digest *digest, const void *data, size_t bytes) {
    XXH3_64bits_update(state_of(digest), data, bytes);
}

void yoke_digest_end(const yoke_digest *digest, char text[YOKE_DIGEST_TEXT]) {
    write_digits(XXH3_64bits_digest(state_of(digest)), text);
}

/* Where the digits of the seal begin; 0: there is none. In JSON text no name or value can hold the
 * quotes of this pattern. */
static size_t find_seal(const char *header, size_t bytes) {
    static const char pattern[] = "\"" YOKE_SEAL "\":\"";
    const char *found = memmem(header, bytes, pattern, sizeof pattern - 1);
    if (found == NULL) return 0;
    size_t begin = (size_t)(found - header) + sizeof pattern - 1;
    return bytes - begin > DIGITS ? begin : 0;
}

static uint64_t digest_without_seal(const char *header, size_t bytes, size_t seal) {
    XXH3_state_t state;
    XXH3_64bits_reset(&state);
    XXH3_64bits_update(&state, header, seal);
    XXH3_64bits_update(&state, YOKE_SEAL_BLANK, DIGITS);
    XXH3_64bits_update(&state, header + seal + DIGITS, bytes - seal - DIGITS);
    return XXH3_64bits_digest(&state);
}

void yoke_seal(char *header, size_t bytes) {
    char text[YOKE_DIGEST_TEXT];
    size_t seal = find_seal(header, bytes);
    if (seal == 0) return;
    write_digits(digest_without_seal(header, bytes, seal), text);
    memcpy(header + seal, text, DIGITS);
}

bool yoke_seal_matches(const char *header, size_t bytes) {
    char text[YOKE_DIGEST_TEXT];
    size_t seal = find_seal(header, bytes);
    if (seal == 0) return false;
    write_digits(digest_without_seal(header, bytes, seal), text);
    return memcmp(header + seal, text, DIGITS) == 0;
}
