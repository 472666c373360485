/* SPDX-License-Identifier: Apache-2.0 */
/* How ranks prove to each other that they know a run's token, and digests that name files. */
#ifndef DISTRIBUTED_PROOF_H
#define DISTRIBUTED_PROOF_H

#include <stdbool.h>
#include <stdint.h>

#define YOKE_NONCE_BYTES 32
#define YOKE_PROOF_BYTES 32
#define YOKE_DIGEST_BYTES 32

/* What both proofs cover. */
typedef struct yoke_handshake {
    const char *token, *run_id;           /* token: NULL for none */
    uint8_t nonces[2 * YOKE_NONCE_BYTES]; /* the server's, the client's */
} yoke_handshake;

bool yoke_nonce_make(uint8_t nonce[YOKE_NONCE_BYTES]);
/* HMAC-SHA-256 with the token as its key. The proof covers the role, so that neither side can send
 * the other's proof back. */
void yoke_proof_make(const yoke_handshake *handshake, bool server, uint8_t proof[YOKE_PROOF_BYTES]);
/* Takes the same time for all proofs. */
bool yoke_proof_equal(const uint8_t a[YOKE_PROOF_BYTES], const uint8_t b[YOKE_PROOF_BYTES]);

/* The SHA-256 of a text. */
void yoke_name_digest(uint8_t digest[YOKE_DIGEST_BYTES], const char *text);

#endif
