/* The ranks of a DDP contender: processes of this very program that sleep until they are asked. */
#ifndef CLI_COMPARE_RANKS_H
#define CLI_COMPARE_RANKS_H

#include "compare_engine.h"
#include "launch_guard.h"

/* Where ranks meet: a folder of this user's alone, which is gone when this process is. */
typedef struct compare_meeting {
    char folder[32];
    launch_guard guard;
} compare_meeting;

/* -1; otherwise the exit code, all said. */
int compare_meeting_open(compare_meeting *meeting);
void compare_meeting_close(compare_meeting *meeting);

typedef struct compare_ranks compare_ranks;

/* Starts `world` processes, each with an engine of its own. A rank that ends, in this or a later
 * call, is PEER with its number and cause; none is left running. NULL on failure. */
yoke_status compare_ranks_start(compare_ranks **ranks, const compare_meeting *meeting,
                                const compare_setup *setup, int world);
/* They are asked to go, and killed when they don't. */
void compare_ranks_end(compare_ranks *ranks);
void compare_ranks_describe(const compare_ranks *ranks, compare_facts *facts);

/* As compare_engine.h has them. Losses, weights and stages are rank 0's, the time is that of the
 * slowest. Without batch norm, weights that are not equal on all are INTERNAL. */
yoke_status compare_ranks_learn(compare_ranks *ranks, int steps, compare_learned *learned);
yoke_status compare_ranks_run(compare_ranks *ranks, int steps, bool fresh, double *milliseconds);
yoke_status compare_ranks_stages(compare_ranks *ranks, compare_stages *stages);
/* Processor time of all, in seconds. */
double compare_ranks_seconds(const compare_ranks *ranks);

/* The other end, as `yoke compare --rank-worker`; the exit code. */
int compare_worker(void);

/* What they say to each other, a message each, as it lies in memory: both are one program. */
#define COMPARE_WORKER_SOCKET 3
typedef enum compare_word {
    COMPARE_BUILD, /* the first; the others take no setup and no role */
    COMPARE_LEARN,
    COMPARE_RUN,
    COMPARE_STAGES
} compare_word;

typedef struct compare_request {
    compare_word word;
    int steps;
    bool fresh;
    compare_setup setup;
    compare_role role;
} compare_request;

typedef struct compare_answer {
    yoke_status status;
    char text[1024]; /* of a failure */
    double milliseconds;
    compare_facts facts;
    compare_learned learned;
    compare_stages stages;
} compare_answer;

#endif
