/* torch.chunk: every part has ceil(rows / parts) rows, except the last ones, which may be shorter
 * or empty. */
#ifndef BASE_CHUNK_H
#define BASE_CHUNK_H

#include <stdint.h>

typedef struct yoke_chunk {
    int first, rows;
} yoke_chunk;

static inline yoke_chunk yoke_chunk_of(int rows, int parts, int index) {
    yoke_chunk chunk = {0, 0};
    if (rows <= 0 || parts <= 0 || index < 0) return chunk;
    int whole = rows / parts + (rows % parts != 0);
    int64_t first = (int64_t)whole * index;
    chunk.first = first < rows ? (int)first : rows;
    chunk.rows = rows - chunk.first < whole ? rows - chunk.first : whole;
    return chunk;
}

#endif
