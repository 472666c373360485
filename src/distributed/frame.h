/* The store's frames and the proofs that open a connection. The keeper challenges, the newcomer
 * says hello with its proof, the keeper welcomes it with its own: both have shown that they know
 * token and run without sending the token. The proofs guard who may speak; what is said afterwards
 * is not encrypted. */
#ifndef DISTRIBUTED_FRAME_H
#define DISTRIBUTED_FRAME_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "distributed/sha256.h"

#define YOKE_FRAME_VERSION 1
#define YOKE_FRAME_LIMIT 65536u
#define YOKE_FRAME_HEADER_BYTES 16
#define YOKE_NONCE_BYTES 32
#define YOKE_RUN_ID_LIMIT 64

typedef enum yoke_frame_type {
    YOKE_FRAME_CHALLENGE = 1, /* nonce */
    YOKE_FRAME_HELLO,         /* nonce, proof, run id */
    YOKE_FRAME_WELCOME,       /* proof */
    YOKE_FRAME_SET,           /* key, 0, value */
    YOKE_FRAME_WAIT,          /* key, 0; answered when the key is set */
    YOKE_FRAME_LOOK,          /* key, 0; answered at once */
    YOKE_FRAME_ADD,           /* key, 0, int64 */
    YOKE_FRAME_VALUE,         /* the answer */
    YOKE_FRAME_ABSENT,
    YOKE_FRAME_REFUSED /* why */
} yoke_frame_type;

/* Big-endian on the wire: magic, version, type, sequence, length. An answer bears the sequence of
 * its question. */
typedef struct yoke_frame {
    uint16_t version, type;
    uint32_t sequence, length;
} yoke_frame;

void yoke_frame_write(uint8_t header[YOKE_FRAME_HEADER_BYTES], yoke_frame frame);
/* False for what does not begin like a frame. */
bool yoke_frame_read(const uint8_t header[YOKE_FRAME_HEADER_BYTES], yoke_frame *frame);

void yoke_int64_write(uint8_t bytes[8], int64_t value);
int64_t yoke_int64_read(const uint8_t bytes[8]);

/* Both nonces: the keeper's, the newcomer's. */
typedef struct yoke_greeting {
    const char *token, *run_id; /* token: NULL for none */
    uint8_t nonces[2 * YOKE_NONCE_BYTES];
} yoke_greeting;

bool yoke_nonce_make(uint8_t nonce[YOKE_NONCE_BYTES]);
/* A keeper's proof is no newcomer's: neither can be sent back. */
void yoke_proof_make(const yoke_greeting *greeting, bool keeper, uint8_t proof[YOKE_SHA256_BYTES]);

#endif
