/* SPDX-License-Identifier: Apache-2.0 */
/* The proofs of the store's handshake and the digests of texts equal those of Python's hmac and
 * hashlib. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "distributed/store/proof.h"

_Static_assert(YOKE_PROOF_BYTES == YOKE_DIGEST_BYTES, "one comparison serves both");

static void assert_hex(const uint8_t bytes[YOKE_PROOF_BYTES], const char *wanted) {
    char text[2 * YOKE_PROOF_BYTES + 1];
    for (int i = 0; i < YOKE_PROOF_BYTES; i++)
        snprintf(text + 2 * i, 3, "%02x", bytes[i]);
    assert_string_equal(text, wanted);
}

static yoke_handshake shake(const char *token) {
    yoke_handshake made = {.token = token, .run_id = "run 7"};
    for (int i = 0; i < 2 * YOKE_NONCE_BYTES; i++)
        made.nonces[i] = (uint8_t)(4 * i);
    return made;
}

/* hmac.digest(token, role + b"\0" + bytes(range(0, 256, 4)) + b"run 7", "sha256"). The last token
 * is longer than a block of the hash. */
static void a_proof_is_the_hmac_of_role_nonces_and_run_id(void **state) {
    (void)state;
    static const struct {
        const char *token, *client, *server;
    } rows[] = {
        {NULL, "f8965fc57681afcb056287e17b31c58fb738086ac5fef20c682edc0db4bac107",
         "a99d020bd53167056aa9b01b07ae263a63aa8b3ef684d51e42ce819b5cad87f6"},
        {"secret", "97ea968a372c499e59560ead7fd2c38cc47ca71fb39de94635d4c3142cd808da",
         "37262bbfa1863c867dea9cb2a191a72c4a1a9f33974c54bb907f3c9d0c478f63"},
        {"01234567890123456789012345678901234567890123456789012345678901234567890123456789",
         "38416fd0c22b7e5c9086d51ea7a45d4eac1412fbffa2999c7064acd719bac9f1",
         "d8fd74efb267b14b25390a28ac418b5f9a6d12170c37ad78de606fec799f3bc6"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        yoke_handshake handshake = shake(rows[i].token);
        uint8_t proof[YOKE_PROOF_BYTES];
        yoke_proof_make(&handshake, false, proof);
        assert_hex(proof, rows[i].client);
        yoke_proof_make(&handshake, true, proof);
        assert_hex(proof, rows[i].server);
    }
}

static void proofs_differ_in_any_bit(void **state) {
    (void)state;
    uint8_t one[YOKE_PROOF_BYTES] = {0}, other[YOKE_PROOF_BYTES] = {0};
    assert_true(yoke_proof_equal(one, other));
    for (int bit = 0; bit < 8 * YOKE_PROOF_BYTES; bit++) {
        other[bit / 8] ^= (uint8_t)(1 << bit % 8);
        assert_false(yoke_proof_equal(one, other));
        other[bit / 8] = 0;
    }
}

static void a_digest_is_the_sha256_of_the_text(void **state) {
    (void)state;
    uint8_t digest[YOKE_DIGEST_BYTES];
    yoke_name_digest(digest, "");
    assert_hex(digest, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    yoke_name_digest(digest, "abc");
    assert_hex(digest, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_proof_is_the_hmac_of_role_nonces_and_run_id),
        cmocka_unit_test(proofs_differ_in_any_bit),
        cmocka_unit_test(a_digest_is_the_sha256_of_the_text),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
