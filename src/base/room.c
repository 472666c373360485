/* SPDX-License-Identifier: Apache-2.0 */
#include "base/room.h"

#include <stdio.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include "base/text.h"

const char *yoke_room_advice(char *buffer, size_t size) {
    struct rlimit limit;
    char bytes[32];
    if (getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return "";
    snprintf(buffer, size, "; raise the limit on address space, %s (ulimit -v)",
             yoke_text_bytes((double)limit.rlim_cur, bytes, sizeof bytes));
    return buffer;
}

yoke_status yoke_room_check(void) {
    char bytes[32], advice[128];
    void *room = mmap(NULL, YOKE_ROOM_BYTES, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (room == MAP_FAILED)
        return FAIL(YOKE_ERROR_MEMORY,
                    "out of memory: less than %s of address space are left, which libraries may "
                    "need in a step%s",
                    yoke_text_bytes((double)YOKE_ROOM_BYTES, bytes, sizeof bytes),
                    yoke_room_advice(advice, sizeof advice));
    munmap(room, YOKE_ROOM_BYTES);
    return YOKE_OK;
}
