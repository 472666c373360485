/* SPDX-License-Identifier: Apache-2.0 */
/* Encodes and decodes the store's wire format. */
#include "distributed/store/frame.h"

#define MAGIC 0x594f4b45u /* "YOKE" */

static void put(uint8_t *bytes, uint64_t value, int count) {
    for (int i = 0; i < count; i++)
        bytes[i] = (uint8_t)(value >> (8 * (count - 1 - i)));
}

static uint64_t take(const uint8_t *bytes, int count) {
    uint64_t value = 0;
    for (int i = 0; i < count; i++)
        value = value << 8 | bytes[i];
    return value;
}

void yoke_frame_write(uint8_t header[YOKE_FRAME_HEADER_BYTES], yoke_frame frame) {
    put(header, MAGIC, 4);
    put(header + 4, YOKE_FRAME_VERSION, 2);
    put(header + 6, frame.type, 2);
    put(header + 8, frame.sequence, 4);
    put(header + 12, frame.length, 4);
}

bool yoke_frame_read(const uint8_t header[YOKE_FRAME_HEADER_BYTES], yoke_frame *frame) {
    frame->version = (uint16_t)take(header + 4, 2);
    frame->type = (uint16_t)take(header + 6, 2);
    frame->sequence = (uint32_t)take(header + 8, 4);
    frame->length = (uint32_t)take(header + 12, 4);
    return take(header, 4) == MAGIC && frame->length <= YOKE_FRAME_LIMIT;
}

void yoke_int64_write(uint8_t bytes[8], int64_t value) {
    put(bytes, (uint64_t)value, 8);
}

int64_t yoke_int64_read(const uint8_t bytes[8]) {
    return (int64_t)take(bytes, 8);
}
