/* SPDX-License-Identifier: Apache-2.0 */
/* A window of the text slides over it. A value ends where its brackets close; what stands in it is
 * for others to read. */
#include "doctor/json_pieces.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>

#define WINDOW_BYTES ((size_t)256 << 10)
#define PIECE_MOST ((size_t)16 << 20)

/* Bytes. */

static yoke_status read_more(json_pieces *pieces) {
    if (pieces->begin > 0 && pieces->begin < pieces->end)
        memmove(pieces->buffer, pieces->buffer + pieces->begin, pieces->end - pieces->begin);
    pieces->end -= pieces->begin;
    pieces->begin = 0;
    if (pieces->end == pieces->capacity) {
        size_t capacity = 2 * pieces->capacity;
        char *larger = yoke_realloc(pieces->buffer, capacity);
        if (larger == NULL) return FAIL_MEMORY(capacity, "an event of a trace");
        pieces->buffer = larger;
        pieces->capacity = capacity;
    }
    size_t room = pieces->capacity - pieces->end, got;
    if (pieces->file != NULL) {
        int count = gzread(pieces->file, pieces->buffer + pieces->end, (unsigned)room);
        int code = Z_OK;
        (void)gzerror(pieces->file, &code);
        pieces->damaged = code == Z_DATA_ERROR || code == Z_STREAM_ERROR;
        if (code == Z_ERRNO) return FAIL(YOKE_ERROR_IO, "cannot read: %s", strerror(errno));
        got = count > 0 ? (size_t)count : 0;
    } else {
        got = room < pieces->memory_bytes ? room : pieces->memory_bytes;
        if (got > 0) memcpy(pieces->buffer + pieces->end, pieces->memory, got);
        pieces->memory += got;
        pieces->memory_bytes -= got;
    }
    pieces->over = got == 0;
    pieces->end += got;
    return YOKE_OK;
}

static yoke_status begin(json_pieces *pieces) {
    pieces->buffer = yoke_malloc(WINDOW_BYTES);
    if (pieces->buffer == NULL) return FAIL_MEMORY(WINDOW_BYTES, "a part of a trace");
    pieces->capacity = WINDOW_BYTES;
    return read_more(pieces);
}

yoke_status json_pieces_open(json_pieces *pieces, const char *path) {
    int descriptor;
    *pieces = (json_pieces){0};
    TRY(yoke_file_open_stream(path, &descriptor));
    pieces->file = gzdopen(descriptor, "rb"); /* reads a plain file as it is */
    if (pieces->file == NULL) {
        close(descriptor);
        return FAIL_MEMORY(WINDOW_BYTES, "reading a trace");
    }
    (void)gzbuffer(pieces->file, (unsigned)WINDOW_BYTES);
    return begin(pieces);
}

yoke_status json_pieces_open_bytes(json_pieces *pieces, const char *bytes, size_t count) {
    *pieces = (json_pieces){.memory = bytes, .memory_bytes = count};
    return begin(pieces);
}

void json_pieces_close(json_pieces *pieces) {
    if (pieces->file != NULL) (void)gzclose(pieces->file);
    yoke_free(pieces->buffer);
    *pieces = (json_pieces){0};
}

size_t json_pieces_peek(const json_pieces *pieces, const char **text) {
    *text = pieces->buffer + pieces->begin;
    return pieces->end - pieces->begin;
}

static void consume(json_pieces *pieces, size_t bytes) {
    pieces->begin += bytes;
    pieces->offset += bytes;
}

static bool is_blank(char byte) {
    return byte == ' ' || byte == '\n' || byte == '\t' || byte == '\r';
}

/* The next character that is no blank, which stays; '\0': the text is over. */
static yoke_status next_mark(json_pieces *pieces, char *mark) {
    for (;;) {
        while (pieces->begin < pieces->end && is_blank(pieces->buffer[pieces->begin]))
            consume(pieces, 1);
        if (pieces->begin < pieces->end || pieces->over) break;
        TRY(read_more(pieces));
    }
    *mark = pieces->begin < pieces->end ? pieces->buffer[pieces->begin] : '\0';
    return YOKE_OK;
}

/* Values. */

typedef struct value_end {
    int64_t depth;
    bool in_text, escaped, begun;
} value_end;

/* Reads on over text[from .. to); the place behind the value, or `to` + 1: it goes on. */
static size_t find_end(value_end *state, const char *text, size_t from, size_t to) {
    for (size_t at = from; at < to; at++) {
        char byte = text[at];
        if (state->in_text) {
            if (state->escaped)
                state->escaped = false;
            else if (byte == '\\')
                state->escaped = true;
            else if (byte == '"')
                state->in_text = false;
            if (!state->in_text && state->depth == 0) return at + 1;
        } else if (byte == '"') {
            state->in_text = true;
        } else if (byte == '{' || byte == '[') {
            state->depth++;
        } else if (byte == '}' || byte == ']') {
            if (state->depth == 0) return at; /* of what holds a number or a word */
            if (--state->depth == 0) return at + 1;
        } else if (state->depth == 0 && (byte == ',' || is_blank(byte))) {
            return at;
        }
    }
    return to + 1;
}

/* *bytes: of the value that begins here; 0: it was longer than a piece, and is skipped. *ended:
 * false where the text is over before. */
static yoke_status find_value(json_pieces *pieces, size_t *bytes, bool *ended) {
    value_end state = {0};
    size_t seen = 0;
    bool skipping = false;
    *bytes = 0;
    for (*ended = true;;) {
        size_t held = pieces->end - pieces->begin;
        size_t found = find_end(&state, pieces->buffer + pieces->begin, seen, held);
        if (found <= held) {
            if (skipping)
                consume(pieces, found);
            else
                *bytes = found;
            return YOKE_OK;
        }
        seen = held;
        skipping = skipping || held >= PIECE_MOST;
        if (skipping) {
            consume(pieces, held);
            seen = 0;
        }
        if (pieces->over) break;
        TRY(read_more(pieces));
    }
    *ended = false;
    return YOKE_OK;
}

static yoke_status take_value(json_pieces *pieces, json_piece *piece, json_piece_kind kind) {
    bool ended;
    size_t bytes;
    TRY(find_value(pieces, &bytes, &ended));
    piece->kind = ended ? kind : JSON_PIECE_CUT;
    piece->text = pieces->buffer + pieces->begin;
    piece->bytes = bytes;
    if (ended) consume(pieces, bytes);
    return YOKE_OK;
}

/* The name of a member and its colon. */
static yoke_status take_key(json_pieces *pieces, json_piece *piece) {
    char mark;
    TRY(take_value(pieces, piece, JSON_PIECE_MEMBER));
    if (piece->kind == JSON_PIECE_CUT) return YOKE_OK;
    size_t length = piece->bytes > 2 ? piece->bytes - 2 : 0;
    if (length >= sizeof piece->key) length = sizeof piece->key - 1;
    if (length > 0) memcpy(piece->key, piece->text + 1, length);
    piece->key[length] = '\0';
    TRY(next_mark(pieces, &mark));
    if (mark == ':')
        consume(pieces, 1);
    else
        piece->kind = mark == '\0' ? JSON_PIECE_CUT : JSON_PIECE_BROKEN;
    return YOKE_OK;
}

static yoke_status end_here(const json_pieces *pieces, json_piece *piece, json_piece_kind kind) {
    piece->kind = pieces->damaged ? JSON_PIECE_BROKEN : kind;
    piece->text = NULL;
    piece->bytes = 0;
    return YOKE_OK;
}

/* In the outermost object. */
static yoke_status next_member(json_pieces *pieces, json_piece *piece, char mark) {
    if (mark == '}') return end_here(pieces, piece, JSON_PIECE_END);
    if (mark != '"') return end_here(pieces, piece, JSON_PIECE_BROKEN);
    TRY(take_key(pieces, piece));
    if (piece->kind != JSON_PIECE_MEMBER) return YOKE_OK;
    TRY(next_mark(pieces, &mark));
    if (mark == '\0') return end_here(pieces, piece, JSON_PIECE_CUT);
    if (mark != '[' || strcmp(piece->key, "traceEvents") != 0)
        return take_value(pieces, piece, JSON_PIECE_MEMBER);
    consume(pieces, 1);
    pieces->in_events = true;
    return json_pieces_next(pieces, piece);
}

/* In the list of events. */
static yoke_status next_event(json_pieces *pieces, json_piece *piece, char mark) {
    if (mark == '{') return take_value(pieces, piece, JSON_PIECE_EVENT);
    if (mark != ']') return end_here(pieces, piece, JSON_PIECE_BROKEN);
    if (!pieces->in_object) return end_here(pieces, piece, JSON_PIECE_END);
    consume(pieces, 1);
    pieces->in_events = false;
    return json_pieces_next(pieces, piece);
}

yoke_status json_pieces_next(json_pieces *pieces, json_piece *piece) {
    char mark;
    TRY(next_mark(pieces, &mark));
    if (!pieces->opened) {
        pieces->opened = pieces->in_object = mark == '{';
        if (mark == '[') pieces->opened = pieces->in_events = true;
        if (!pieces->opened)
            return end_here(pieces, piece, mark == '\0' ? JSON_PIECE_CUT : JSON_PIECE_BROKEN);
        consume(pieces, 1);
        TRY(next_mark(pieces, &mark));
    }
    if (mark == ',') {
        consume(pieces, 1);
        TRY(next_mark(pieces, &mark));
    }
    if (mark == '\0') return end_here(pieces, piece, JSON_PIECE_CUT);
    return pieces->in_events ? next_event(pieces, piece, mark) : next_member(pieces, piece, mark);
}
