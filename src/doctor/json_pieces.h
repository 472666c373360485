/* SPDX-License-Identifier: Apache-2.0 */
/* Cuts a JSON text of any length into pieces: the members of its outermost object, and the elements
 * of its list "traceEvents", one after the other. Memory holds one piece. The text is that of a
 * file, plain or .gz, or bytes. For the files of this room only. */
#ifndef DOCTOR_JSON_PIECES_H
#define DOCTOR_JSON_PIECES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/base.h"

typedef enum json_piece_kind {
    JSON_PIECE_MEMBER, /* of the outermost object */
    JSON_PIECE_EVENT,
    JSON_PIECE_END,   /* of a complete text */
    JSON_PIECE_CUT,   /* the text ends within a value */
    JSON_PIECE_BROKEN /* what follows is no JSON, or its .gz is damaged */
} json_piece_kind;

#define JSON_PIECE_KEY_BYTES 48

typedef struct json_piece {
    json_piece_kind kind;
    char key[JSON_PIECE_KEY_BYTES]; /* of a member; cut off where it is longer */
    char *text;                     /* [bytes], until the next call; may be changed */
    size_t bytes; /* 0: the value is longer than a piece may be, and was skipped */
} json_piece;

typedef struct json_pieces {
    void *file; /* gzFile; NULL: the text is in memory */
    const char *memory;
    size_t memory_bytes;
    char *buffer;
    size_t begin, end, capacity; /* what of it is unread */
    uint64_t offset;             /* of buffer[begin] in the text */
    bool over, damaged;          /* no more bytes come */
    bool opened, in_object, in_events;
} json_pieces;

/* MISSING, IO, MEMORY. */
yoke_status json_pieces_open(json_pieces *pieces, const char *path);
yoke_status json_pieces_open_bytes(json_pieces *pieces, const char *bytes, size_t count);
void json_pieces_close(json_pieces *pieces); /* takes a zeroed struct */

/* The first bytes, at most; before the first call of next. */
size_t json_pieces_peek(const json_pieces *pieces, const char **text);
yoke_status json_pieces_next(json_pieces *pieces, json_piece *piece);

#endif
