/* SPDX-License-Identifier: Apache-2.0 */
/* The TCP store's wire format: frames, and the handshake that opens a connection. The server sends
 * a challenge, the client answers hello with its proof, the server answers welcome with its own.
 * Both have then proved that they know the token and the run id, and neither sent the token. The
 * handshake authenticates; later frames are not encrypted. */
#ifndef DISTRIBUTED_FRAME_H
#define DISTRIBUTED_FRAME_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define YOKE_FRAME_VERSION 2
#define YOKE_FRAME_LIMIT 65536u
#define YOKE_FRAME_HEADER_BYTES 16
#define YOKE_RUN_ID_LIMIT 64

typedef enum yoke_frame_type {
    YOKE_FRAME_CHALLENGE = 1, /* nonce */
    YOKE_FRAME_HELLO,         /* nonce, proof, run id */
    YOKE_FRAME_WELCOME,       /* proof */
    YOKE_FRAME_SET,           /* key, 0, value */
    YOKE_FRAME_WAIT,          /* key, 0; the reply comes when the key is set */
    YOKE_FRAME_PEEK,          /* key, 0; the reply comes at once */
    YOKE_FRAME_ADD,           /* key, 0, int64 */
    YOKE_FRAME_VALUE,         /* the reply */
    YOKE_FRAME_ABSENT,
    YOKE_FRAME_REFUSED /* the reason; empty before the client's proof */
} yoke_frame_type;

/* Big-endian on the wire: magic, version, type, sequence, length. A reply has the sequence number
 * of its request. */
typedef struct yoke_frame {
    uint16_t version, type;
    uint32_t sequence, length;
} yoke_frame;

void yoke_frame_write(uint8_t header[YOKE_FRAME_HEADER_BYTES], yoke_frame frame);
/* False: the bytes are not a frame's header. */
bool yoke_frame_read(const uint8_t header[YOKE_FRAME_HEADER_BYTES], yoke_frame *frame);

void yoke_int64_write(uint8_t bytes[8], int64_t value);
int64_t yoke_int64_read(const uint8_t bytes[8]);

#endif
