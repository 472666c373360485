/* SPDX-License-Identifier: Apache-2.0 */
/* The ways in which a contender trains: an engine of this process, ranks, or a trainer. Each is a
 * table of functions; the contender calls them and knows no way. */
#ifndef CLI_COMPARE_WAY_H
#define CLI_COMPARE_WAY_H

#include "cli/compare/compare_ranks.h"
#include "cli/compare/compare_result.h"

/* What a contender is made of. */
typedef struct compare_entry {
    const compare_setup *setup;
    const compare_meeting *meeting; /* of ranks */
    compare_role role;
    yoke_mode mode;    /* of a trainer */
    const char *name;  /* of the contender */
    const char *torch; /* "eager", "dp" or "ddp" */
} compare_entry;

/* `inside` is what build made. */
typedef struct compare_way {
    yoke_status (*build)(void **inside, const compare_entry *entry); /* NULL on failure */
    void (*clear)(void *inside);                                     /* takes NULL */
    void (*describe)(const void *inside, compare_facts *facts);      /* NULL: as single's */
    /* As compare_engine_learn and compare_engine_run. */
    yoke_status (*learn)(void *inside, int steps, compare_learned *learned);
    yoke_status (*run)(void *inside, int steps, bool fresh, double *milliseconds);
    /* What it records of every device, as in compare_engine.h. All five are NULL: nothing. */
    yoke_status (*memory)(const void *inside, compare_memory *devices);
    yoke_status (*account)(void *inside, yoke_account *lanes);
    yoke_status (*stages)(void *inside, compare_stages *stages);
    yoke_status (*steps)(void *inside, yoke_span_info *steps, int capacity, int *count);
    yoke_status (*step)(void *inside, compare_step *step, int capacity);
    /* Processor time of other processes. NULL: there are none. */
    double (*seconds)(const void *inside);
    /* How stale the pushes so far were. NULL: this way has no pushes. */
    void (*staleness)(const void *inside, compare_staleness *staleness);
} compare_way;

extern const compare_way compare_by_engine, compare_by_ranks; /* compare_way.c */
extern const compare_way compare_by_trainer;                  /* compare_apart.c */
extern const compare_way compare_by_torch;                    /* compare_torch.c */

#endif
