/* SPDX-License-Identifier: Apache-2.0 */
/* What ranks read of each other and of launchers: frames of the store, its table of values,
 * addresses, SLURM's lists. */
#include "distributed/rendezvous/slurm.h"
#include "distributed/store/frame.h"
#include "distributed/store/store_table.h"
#include "distributed/store/tcp.h"
#include "fuzz/fuzz.h"

/* Each request of the bytes: a frame's header and its body, key, 0, value. */
static void read_frames(const uint8_t *data, size_t size) {
    yoke_store_table table = {0};
    yoke_frame frame;
    uint8_t again[YOKE_FRAME_HEADER_BYTES];
    while (size >= YOKE_FRAME_HEADER_BYTES && yoke_frame_read(data, &frame)) {
        yoke_frame_write(again, frame);
        if (frame.version == YOKE_FRAME_VERSION && memcmp(again, data, sizeof again) != 0) abort();
        data += sizeof again;
        size -= sizeof again;
        size_t body = frame.length < size ? frame.length : size;
        const uint8_t *end = body > 0 ? memchr(data, 0, body) : NULL;
        if (end != NULL) {
            const char *key = (const char *)data;
            size_t bytes = body - (size_t)(end + 1 - data);
            if (frame.type == YOKE_FRAME_SET)
                (void)yoke_store_table_set(&table, key, end + 1, bytes);
            if (frame.type == YOKE_FRAME_ADD && bytes == 8)
                (void)yoke_store_table_add(&table, key, yoke_int64_read(end + 1));
            (void)yoke_store_table_find(&table, key);
        }
        data += body;
        size -= body;
    }
    yoke_store_table_clear(&table);
}

/* Of an address that begins with tcp:// only, as the store asks. */
static void read_address(const char *text) {
    static const char scheme[] = "tcp://";
    yoke_tcp_address address;
    size_t length = strlen(text);
    if (strncmp(text, scheme, strlen(scheme)) == 0) {
        (void)yoke_tcp_parse(&address, text);
        return;
    }
    char *whole = malloc(sizeof scheme + length);
    if (whole == NULL) abort();
    memcpy(whole, scheme, sizeof scheme);
    memcpy(whole + strlen(scheme), text, length + 1);
    (void)yoke_tcp_parse(&address, whole);
    free(whole);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    char *text = fuzz_copy(data, size), host[64];
    yoke_slurm_tasks tasks;
    read_address(text);
    (void)yoke_slurm_tasks_parse(text, 1, &tasks);
    (void)yoke_slurm_first_host(text, host, sizeof host);
    free(text);
    uint8_t *own = (uint8_t *)fuzz_copy(data, size);
    read_frames(own, size);
    free(own);
    return 0;
}
