/* SHA-256 (FIPS 180-4) and HMAC with it (RFC 2104): the proofs of the store's handshake. */
#ifndef DISTRIBUTED_SHA256_H
#define DISTRIBUTED_SHA256_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define YOKE_SHA256_BYTES 32
#define YOKE_SHA256_BLOCK 64

typedef struct yoke_sha256 {
    uint32_t words[8];
    uint64_t bytes;
    uint8_t block[YOKE_SHA256_BLOCK];
} yoke_sha256;

void yoke_sha256_begin(yoke_sha256 *hash);
void yoke_sha256_add(yoke_sha256 *hash, const void *data, size_t bytes);
void yoke_sha256_end(yoke_sha256 *hash, uint8_t digest[YOKE_SHA256_BYTES]);

typedef struct yoke_hmac {
    yoke_sha256 inner, outer;
} yoke_hmac;

void yoke_hmac_begin(yoke_hmac *hmac, const void *key, size_t bytes);
void yoke_hmac_add(yoke_hmac *hmac, const void *data, size_t bytes);
void yoke_hmac_end(yoke_hmac *hmac, uint8_t digest[YOKE_SHA256_BYTES]);

/* Constant time: the duration does not show how many bytes agree. */
bool yoke_digest_equal(const uint8_t a[YOKE_SHA256_BYTES], const uint8_t b[YOKE_SHA256_BYTES]);

#endif
