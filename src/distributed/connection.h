/* One connection as its keeper sees it: a frame comes in, piece by piece, then its answer goes out.
 */
#ifndef DISTRIBUTED_CONNECTION_H
#define DISTRIBUTED_CONNECTION_H

#include "distributed/frame.h"
#include "yoke/status.h"

typedef struct yoke_connection {
    int socket;
    bool proven;       /* a rank; a stranger otherwise */
    bool last;         /* goes when its answer is sent */
    uint64_t deadline; /* of what has begun: greeting, frame, answer; 0: none */
    uint64_t frame_ns; /* how long one may take */
    uint8_t nonce[YOKE_NONCE_BYTES];

    uint8_t header[YOKE_FRAME_HEADER_BYTES];
    yoke_frame frame;
    uint8_t *payload; /* [frame.length + 1], ends with 0 */
    size_t got;       /* of header and payload */

    uint8_t *answer; /* NULL: none is under way */
    size_t answer_bytes, sent;

    char *waits; /* the key it was promised; NULL: none */
    uint32_t waits_sequence;
} yoke_connection;

/* The socket becomes the connection's; NULL when memory is short (the socket is closed then). */
yoke_connection *yoke_connection_create(int socket, uint64_t frame_ns);
void yoke_connection_destroy(yoke_connection *connection);

typedef enum yoke_progress {
    YOKE_PROGRESS_WAIT,
    YOKE_PROGRESS_DONE,
    YOKE_PROGRESS_LOST
} yoke_progress;

/* Reads what is there; DONE: a whole frame is. LOST: closed, failed or not fit to be heard. */
yoke_progress yoke_connection_receive(yoke_connection *connection);
/* Makes room for the next frame. */
void yoke_connection_next(yoke_connection *connection);

typedef struct yoke_answer {
    uint16_t type;
    uint32_t sequence;
    const void *data;
    size_t bytes;
} yoke_answer;

/* Begins to send; false: lost. */
bool yoke_connection_answer(yoke_connection *connection, yoke_answer answer);
bool yoke_connection_send(yoke_connection *connection);

#endif
