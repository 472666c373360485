/* SPDX-License-Identifier: Apache-2.0 */
/* libsodium's HMAC-SHA-256 (RFC 2104) and SHA-256 (FIPS 180-4). */
#include "distributed/store/proof.h"

#include <sodium.h>
#include <string.h>
#include <sys/random.h>

bool yoke_nonce_make(uint8_t nonce[YOKE_NONCE_BYTES]) {
    return getrandom(nonce, YOKE_NONCE_BYTES, 0) == YOKE_NONCE_BYTES;
}

/* Any thread may repeat this. It can fail for want of random numbers, and nothing here takes any.
 */
static void begin_sodium(void) {
    int failed = sodium_init();
    (void)failed;
}

static void cover(crypto_auth_hmacsha256_state *state, const void *data, size_t bytes) {
    crypto_auth_hmacsha256_update(state, data, bytes);
}

void yoke_proof_make(const yoke_handshake *handshake, bool server,
                     uint8_t proof[YOKE_PROOF_BYTES]) {
    static const char server_role[] = "yoke store: server", client_role[] = "yoke store: client";
    _Static_assert(sizeof server_role == sizeof client_role, "one length serves both");
    _Static_assert(YOKE_PROOF_BYTES == crypto_auth_hmacsha256_BYTES, "a proof is an HMAC");
    const char *token = handshake->token == NULL ? "" : handshake->token;
    crypto_auth_hmacsha256_state state;
    begin_sodium();
    /* Fixed lengths first: no two handshakes give the same bytes. */
    crypto_auth_hmacsha256_init(&state, (const uint8_t *)token, strlen(token));
    cover(&state, server ? server_role : client_role, sizeof server_role);
    cover(&state, handshake->nonces, sizeof handshake->nonces);
    cover(&state, handshake->run_id, strlen(handshake->run_id));
    crypto_auth_hmacsha256_final(&state, proof);
    sodium_memzero(&state, sizeof state);
}

bool yoke_proof_equal(const uint8_t a[YOKE_PROOF_BYTES], const uint8_t b[YOKE_PROOF_BYTES]) {
    return sodium_memcmp(a, b, YOKE_PROOF_BYTES) == 0;
}

void yoke_name_digest(uint8_t digest[YOKE_DIGEST_BYTES], const char *text) {
    _Static_assert(YOKE_DIGEST_BYTES == crypto_hash_sha256_BYTES, "a digest is a SHA-256");
    begin_sodium();
    crypto_hash_sha256(digest, (const uint8_t *)text, strlen(text));
}
