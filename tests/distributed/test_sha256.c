/* SHA-256 and HMAC equal the standards' vectors, in whatever pieces the data comes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "distributed/store/sha256.h"

static void assert_hex(const uint8_t digest[YOKE_SHA256_BYTES], const char *wanted) {
    char text[2 * YOKE_SHA256_BYTES + 1];
    for (int i = 0; i < YOKE_SHA256_BYTES; i++)
        snprintf(text + 2 * i, 3, "%02x", digest[i]);
    assert_string_equal(text, wanted);
}

static void assert_sha256(const void *data, size_t bytes, const char *wanted) {
    yoke_sha256 hash;
    uint8_t digest[YOKE_SHA256_BYTES];
    for (size_t piece = 1; piece <= bytes + 1; piece += 7) {
        yoke_sha256_begin(&hash);
        for (size_t at = 0; at < bytes; at += piece)
            yoke_sha256_add(&hash, (const char *)data + at,
                            bytes - at < piece ? bytes - at : piece);
        yoke_sha256_end(&hash, digest);
        assert_hex(digest, wanted);
    }
}

/* FIPS 180-4's examples. */
static void sha256_equals_the_published_vectors(void **state) {
    (void)state;
    assert_sha256("", 0, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    assert_sha256("abc", 3, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    assert_sha256("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq", 56,
                  "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
}

static void sha256_of_a_million_letters_is_known(void **state) {
    (void)state;
    char *letters = malloc(1000000);
    assert_non_null(letters);
    memset(letters, 'a', 1000000);
    yoke_sha256 hash;
    uint8_t digest[YOKE_SHA256_BYTES];
    yoke_sha256_begin(&hash);
    yoke_sha256_add(&hash, letters, 1000000);
    yoke_sha256_end(&hash, digest);
    free(letters);
    assert_hex(digest, "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

static void assert_hmac(const void *key, size_t key_bytes, const char *data, const char *wanted) {
    yoke_hmac hmac;
    uint8_t digest[YOKE_SHA256_BYTES];
    yoke_hmac_begin(&hmac, key, key_bytes);
    yoke_hmac_add(&hmac, data, strlen(data));
    yoke_hmac_end(&hmac, digest);
    assert_hex(digest, wanted);
}

/* RFC 4231, cases 1, 2 and 6 (a key longer than a block). */
static void hmac_equals_the_published_vectors(void **state) {
    (void)state;
    uint8_t key[131];
    memset(key, 0x0b, sizeof key);
    assert_hmac(key, 20, "Hi There",
                "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7");
    assert_hmac("Jefe", 4, "what do ya want for nothing?",
                "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
    memset(key, 0xaa, sizeof key);
    assert_hmac(key, sizeof key, "Test Using Larger Than Block-Size Key - Hash Key First",
                "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54");
}

static void digests_differ_by_any_bit(void **state) {
    (void)state;
    uint8_t a[YOKE_SHA256_BYTES] = {0}, b[YOKE_SHA256_BYTES] = {0};
    assert_true(yoke_digest_equal(a, b));
    for (int bit = 0; bit < 8 * YOKE_SHA256_BYTES; bit++) {
        b[bit / 8] ^= (uint8_t)(1 << bit % 8);
        assert_false(yoke_digest_equal(a, b));
        b[bit / 8] = 0;
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sha256_equals_the_published_vectors),
        cmocka_unit_test(sha256_of_a_million_letters_is_known),
        cmocka_unit_test(hmac_equals_the_published_vectors),
        cmocka_unit_test(digests_differ_by_any_bit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
