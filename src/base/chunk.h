/* SPDX-License-Identifier: Apache-2.0 */
/* torch.chunk: every part has ceil(rows / parts) rows, except the last ones, which may be shorter
 * or empty. */
#ifndef BASE_CHUNK_H
#define BASE_CHUNK_H

#include <stddef.h>
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

/* Parts first .. first + count - 1 together. */
static inline yoke_chunk yoke_chunk_span(int rows, int parts, int first, int count) {
    yoke_chunk span = yoke_chunk_of(rows, parts, first);
    yoke_chunk last = yoke_chunk_of(rows, parts, first + count - 1);
    span.rows = last.first + last.rows - span.first;
    return span;
}

/* `parts` parts dealt to `owners` owners as evenly as they can be: the first ones get one more. */
static inline yoke_chunk yoke_chunk_spread(int parts, int owners, int owner) {
    int each = parts / owners, more = parts % owners;
    yoke_chunk own = {each * owner + (owner < more ? owner : more), each + (owner < more)};
    return own;
}

/* Where part `part` of `parts` begins when `count` elements are cut at cache lines of `line`
 * elements, so that no two parts write to one line; part + 1 begins where it ends. */
static inline size_t yoke_line_cut(size_t count, size_t line, int parts, int part) {
    size_t lines = (count + line - 1) / line;
    size_t begin = lines * (size_t)part / (size_t)parts * line;
    return begin < count ? begin : count;
}

#endif
