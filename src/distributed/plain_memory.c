/* The list's links lie before the memory, a cache line long. */
#include "distributed/plain_memory.h"

#include <stdlib.h>
#include <string.h>

enum { LINE = 64 };

struct yoke_plain_memory {
    yoke_plain_memory *next;
};

yoke_status yoke_plain_memory_add(yoke_plain_memory **list, size_t bytes, void **memory) {
    *memory = NULL;
    if (bytes > SIZE_MAX / 2) return FAIL_MEMORY(bytes, "a group's memory");
    size_t whole = LINE + (bytes + LINE - 1) / LINE * LINE;
    yoke_plain_memory *added = aligned_alloc(LINE, whole);
    if (added == NULL) return FAIL_MEMORY(bytes, "a group's memory");
    memset(added, 0, whole);
    added->next = *list;
    *list = added;
    *memory = (char *)added + LINE;
    return YOKE_OK;
}

void yoke_plain_memory_free(yoke_plain_memory *list) {
    while (list != NULL) {
        yoke_plain_memory *next = list->next;
        free(list);
        list = next;
    }
}
