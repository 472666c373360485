/* SPDX-License-Identifier: Apache-2.0 */
/* The roll of a run whose ranks may come and go: memory that all of them map, in which they agree
 * who is a member of each generation of the process group. Nobody leads: whoever first sees that
 * all have come writes down the members of the generation, once.
 *
 * Each process has a seat. It says there that it comes to the next generation. Then it waits until
 * each member of the present generation has come, too, or its process has ended. The members of the
 * next one are those that have come; a process that comes later is left out. */
#ifndef DISTRIBUTED_ROLL_H
#define DISTRIBUTED_ROLL_H

#include <stdatomic.h>

#include "distributed/distributed.h"
#include "distributed/store/store.h"

#define YOKE_ROLL_SEATS YOKE_PEERS_LIMIT
#define YOKE_ROLL_GENERATIONS 4096

typedef struct yoke_roll_seat {
    _Alignas(64) _Atomic int pid;  /* 0: nobody has sat here yet */
    _Atomic uint64_t start_time;   /* yoke_process_start_time */
    _Atomic uint32_t since, wants; /* the first and the latest generation that it came to, counted
                                      from 1; 0: none */
} yoke_roll_seat;

/* What the processes share. All zero: a new roll. */
typedef struct yoke_roll_page {
    _Atomic uint64_t members[YOKE_ROLL_GENERATIONS]; /* as bits, seats; 0: not decided */
    yoke_roll_seat seats[YOKE_ROLL_SEATS];
} yoke_roll_page;

/* One process's way into a generation, a step at a time: each step reads or writes the page once,
 * so that a test can try every order. */
typedef enum yoke_roll_state {
    YOKE_ROLL_COMES,   /* says so */
    YOKE_ROLL_READS,   /* whether the generation is decided */
    YOKE_ROLL_COUNTS,  /* who has come, a seat at a time */
    YOKE_ROLL_DECIDES, /* everybody has come: writes the members down, unless another did */
    YOKE_ROLL_WAITS,   /* for somebody; then reads again */
    YOKE_ROLL_IS_MEMBER,
    YOKE_ROLL_IS_LEFT_OUT
} yoke_roll_state;

typedef struct yoke_roll_meeting {
    yoke_roll_page *page;
    int seat, world;     /* world: seats of generation 0 */
    uint32_t generation; /* counted from 0 */
    uint64_t before;     /* the members of the generation before */
    bool was_member;     /* of that one; a newcomer leaves nobody out who runs */
    bool impatient;      /* a member has waited long enough for those that have not come */
    yoke_roll_state state;
    int at; /* the seat that it counts next */
    uint64_t come, awaited, members;
    yoke_process_state (*look)(const struct yoke_roll_meeting *meeting, int seat);
} yoke_roll_meeting;

void yoke_roll_begin(yoke_roll_meeting *meeting); /* page to was_member and look are set */
yoke_roll_state yoke_roll_step(yoke_roll_meeting *meeting);
/* The next generation without members. */
uint32_t yoke_roll_next(const yoke_roll_page *page);

/* A process's place in the roll of its run. */
typedef struct yoke_roll yoke_roll;

/* path: a file that all ranks of the run, and of no other, can write; it may be empty. world: of
 * the first generation. */
yoke_status yoke_roll_open(yoke_roll **roll, const char *path, int seat, int world);
void yoke_roll_close(yoke_roll *roll); /* gives the seat back; takes NULL */
/* Comes to the next generation and waits for it: at most patience_ms for members of the present one
 * that run and do not come. Kills those that it leaves out: a process that goes on later would
 * write files of a run that went on without it. */
yoke_status yoke_roll_meet(yoke_roll *roll, int patience_ms);
/* In the generation that was met. */
int yoke_roll_seat_of(const yoke_roll *roll);
int yoke_roll_rank(const yoke_roll *roll);
int yoke_roll_world(const yoke_roll *roll);
bool yoke_roll_is_newcomer(const yoke_roll *roll);
/* Whether a process has come to the next generation. */
bool yoke_roll_is_asked(const yoke_roll *roll);
/* This process comes to no further generation, and nobody awaits it. */
void yoke_roll_quit(yoke_roll *roll);
/* A store of the present generation, in the roll. Waits end with PEER when a member has ended or
 * gone on without this one. */
yoke_status yoke_roll_store(yoke_store **store, yoke_roll *roll);

/* For the store. */
#define YOKE_ROLL_REGION ((size_t)131072) /* of a generation; a page of it exists once written */
void *yoke_roll_region(const yoke_roll *roll);
/* A member that does not come to this generation's collectives any more; -1: none. */
int yoke_roll_lost(const yoke_roll *roll);

#endif
