/* SPDX-License-Identifier: Apache-2.0 */
/* A row stream over arrays, and what the loader did with it. */
#ifndef SUPPORT_ARRAY_STREAM_H
#define SUPPORT_ARRAY_STREAM_H

#include <pthread.h>
#include <string.h>

#include "yoke/dataset.h"
#include "yoke/status.h"

typedef struct array_stream {
    const float *inputs; /* [rows, values] */
    const int32_t *labels;
    size_t rows, values;
    bool endless;           /* begins again behind the last row */
    int at_once;            /* rows of a call at most; 0: as many as there is room for */
    size_t fails_at;        /* row; 0: never */
    yoke_status fails_with; /* OK: IO */
    int wrong_count;        /* what `next` sets *count to; 0: the right number */
    bool cannot_rewind;
    size_t at, read;   /* the next row; rows that `next` gave in all passes */
    int passes, skips; /* calls of rewind and of skip */
    uint64_t epoch;    /* of the last rewind */
    pthread_t thread;  /* of the first call */
    bool called, other_thread;
} array_stream;

static inline void note_thread(array_stream *own) {
    if (!own->called) own->thread = pthread_self();
    own->called = true;
    if (!pthread_equal(own->thread, pthread_self())) own->other_thread = true;
}

static inline yoke_status array_stream_next(void *payload, int room, float *inputs, int32_t *labels,
                                            float *targets, int *count) {
    array_stream *own = payload;
    size_t left = own->endless ? (size_t)room : own->rows - own->at, given = (size_t)room;
    (void)targets;
    note_thread(own);
    if (own->fails_at > 0 && own->at >= own->fails_at)
        return yoke_error_raise(own->fails_with != YOKE_OK ? own->fails_with : YOKE_ERROR_IO,
                                "the socket closed behind %zu rows", own->at);
    if (left < given) given = left;
    if (own->at_once > 0 && (size_t)own->at_once < given) given = (size_t)own->at_once;
    if (own->fails_at > 0 && own->at + given > own->fails_at) given = own->fails_at - own->at;
    for (size_t i = 0; i < given; i++, own->at++, own->read++) {
        size_t row = own->at % own->rows;
        memcpy(inputs + i * own->values, own->inputs + row * own->values,
               own->values * sizeof *inputs);
        labels[i] = own->labels[row];
    }
    *count = own->wrong_count != 0 ? own->wrong_count : (int)given;
    return YOKE_OK;
}

static inline yoke_status array_stream_rewind(void *payload, uint64_t epoch) {
    array_stream *own = payload;
    note_thread(own);
    if (own->cannot_rewind) return yoke_error_raise(YOKE_ERROR_IO, "the tape is torn");
    own->at = 0;
    own->passes++;
    own->epoch = epoch;
    return YOKE_OK;
}

static inline yoke_status array_stream_skip(void *payload, size_t rows) {
    array_stream *own = payload;
    note_thread(own);
    own->at = !own->endless && rows > own->rows ? own->rows : rows;
    own->skips++;
    return YOKE_OK;
}

#endif
