/* Plain loops over 64-byte blocks: a handshake hashes a few of them. */
#include "distributed/store/sha256.h"

#include <string.h>

static const uint32_t constants[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

static uint32_t rotate(uint32_t word, int bits) {
    return word >> bits | word << (32 - bits);
}

static void expand(const uint8_t *block, uint32_t schedule[64]) {
    for (int i = 0; i < 16; i++, block += 4) {
        schedule[i] = (uint32_t)block[0] << 24 | (uint32_t)block[1] << 16 |
                      (uint32_t)block[2] << 8 | block[3];
    }
    for (int i = 16; i < 64; i++) {
        uint32_t before = schedule[i - 15], late = schedule[i - 2];
        uint32_t small0 = rotate(before, 7) ^ rotate(before, 18) ^ before >> 3;
        uint32_t small1 = rotate(late, 17) ^ rotate(late, 19) ^ late >> 10;
        schedule[i] = schedule[i - 16] + small0 + schedule[i - 7] + small1;
    }
}

static void add_block(yoke_sha256 *hash, const uint8_t *block) {
    uint32_t schedule[64], w[8]; /* w: a .. h of the standard */
    expand(block, schedule);
    memcpy(w, hash->words, sizeof w);
    for (int i = 0; i < 64; i++) {
        uint32_t big1 = rotate(w[4], 6) ^ rotate(w[4], 11) ^ rotate(w[4], 25);
        uint32_t choice = (w[4] & w[5]) ^ (~w[4] & w[6]);
        uint32_t first = w[7] + big1 + choice + constants[i] + schedule[i];
        uint32_t big0 = rotate(w[0], 2) ^ rotate(w[0], 13) ^ rotate(w[0], 22);
        uint32_t majority = (w[0] & w[1]) ^ (w[0] & w[2]) ^ (w[1] & w[2]);
        memmove(w + 1, w, 7 * sizeof w[0]);
        w[4] += first;
        w[0] = first + big0 + majority;
    }
    for (int i = 0; i < 8; i++)
        hash->words[i] += w[i];
}

void yoke_sha256_begin(yoke_sha256 *hash) {
    *hash = (yoke_sha256){.words = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f,
                                    0x9b05688c, 0x1f83d9ab, 0x5be0cd19}};
}

void yoke_sha256_add(yoke_sha256 *hash, const void *data, size_t bytes) {
    const uint8_t *next = data;
    while (bytes > 0) {
        size_t used = hash->bytes % YOKE_SHA256_BLOCK, part = YOKE_SHA256_BLOCK - used;
        if (part > bytes) part = bytes;
        memcpy(hash->block + used, next, part);
        hash->bytes += part;
        next += part;
        bytes -= part;
        if (used + part == YOKE_SHA256_BLOCK) add_block(hash, hash->block);
    }
}

void yoke_sha256_end(yoke_sha256 *hash, uint8_t digest[YOKE_SHA256_BYTES]) {
    static const uint8_t padding[YOKE_SHA256_BLOCK] = {0x80};
    uint64_t bits = hash->bytes * 8;
    size_t used = hash->bytes % YOKE_SHA256_BLOCK;
    yoke_sha256_add(hash, padding, (used < 56 ? 56 : 120) - used);
    uint8_t length[8];
    for (int i = 0; i < 8; i++)
        length[i] = (uint8_t)(bits >> (56 - 8 * i));
    yoke_sha256_add(hash, length, sizeof length);
    for (int i = 0; i < YOKE_SHA256_BYTES; i++)
        digest[i] = (uint8_t)(hash->words[i / 4] >> (24 - 8 * (i % 4)));
    explicit_bzero(hash, sizeof *hash);
}

void yoke_hmac_begin(yoke_hmac *hmac, const void *key, size_t bytes) {
    uint8_t pad[YOKE_SHA256_BLOCK] = {0};
    yoke_sha256_begin(&hmac->inner);
    if (bytes > sizeof pad) {
        yoke_sha256_add(&hmac->inner, key, bytes);
        yoke_sha256_end(&hmac->inner, pad);
        yoke_sha256_begin(&hmac->inner);
    } else if (bytes > 0) {
        memcpy(pad, key, bytes);
    }
    for (size_t i = 0; i < sizeof pad; i++)
        pad[i] ^= 0x36;
    yoke_sha256_add(&hmac->inner, pad, sizeof pad);
    for (size_t i = 0; i < sizeof pad; i++)
        pad[i] ^= 0x36 ^ 0x5c;
    yoke_sha256_begin(&hmac->outer);
    yoke_sha256_add(&hmac->outer, pad, sizeof pad);
    explicit_bzero(pad, sizeof pad);
}

void yoke_hmac_add(yoke_hmac *hmac, const void *data, size_t bytes) {
    yoke_sha256_add(&hmac->inner, data, bytes);
}

void yoke_hmac_end(yoke_hmac *hmac, uint8_t digest[YOKE_SHA256_BYTES]) {
    uint8_t inner[YOKE_SHA256_BYTES];
    yoke_sha256_end(&hmac->inner, inner);
    yoke_sha256_add(&hmac->outer, inner, sizeof inner);
    yoke_sha256_end(&hmac->outer, digest);
}

bool yoke_digest_equal(const uint8_t a[YOKE_SHA256_BYTES], const uint8_t b[YOKE_SHA256_BYTES]) {
    uint8_t difference = 0;
    for (size_t i = 0; i < YOKE_SHA256_BYTES; i++)
        difference |= a[i] ^ b[i];
    return difference == 0;
}
