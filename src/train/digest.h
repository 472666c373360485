/* SPDX-License-Identifier: Apache-2.0 */
/* XXH3-64 digests as 16 lower-case hexadecimal digits; and the seal, a digest of a file's header
 * inside that header. */
#ifndef TRAIN_DIGEST_H
#define TRAIN_DIGEST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define YOKE_DIGEST_TEXT 17
void yoke_digest_text(const void *data, size_t bytes, char text[YOKE_DIGEST_TEXT]);

/* The same of bytes that come in pieces: begin, add each, end. */
typedef struct yoke_digest {
    _Alignas(64) unsigned char state[640];
} yoke_digest;
void yoke_digest_begin(yoke_digest *digest);
void yoke_digest_add(yoke_digest *digest, const void *data, size_t bytes);
void yoke_digest_end(const yoke_digest *digest, char text[YOKE_DIGEST_TEXT]);

/* The key of the seal in __metadata__, and its value before it is sealed. */
#define YOKE_SEAL "xxh3.header"
#define YOKE_SEAL_BLANK "0000000000000000"

/* header[bytes]: the length field, the JSON and its padding. Replaces the seal's value by the
 * digest of the header with the blank value; without a seal it does nothing. */
void yoke_seal(char *header, size_t bytes);
/* False when the header has no seal, or is not the one that was sealed. */
bool yoke_seal_matches(const char *header, size_t bytes);

#endif
