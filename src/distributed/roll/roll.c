/* SPDX-License-Identifier: Apache-2.0 */
/* A process's place in the roll: the file that all map, its seat, and who the others are. */
#include "distributed/roll/roll.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "distributed/process_state.h"

#define PAUSE_NS 500000 /* between two looks at the others */

struct yoke_roll {
    yoke_roll_page *page;
    size_t bytes;
    int seat, world;     /* world: of the first generation */
    uint32_t generation; /* that was met; UINT32_MAX: none yet */
    uint64_t members;    /* of it */
};

static size_t page_bytes(void) {
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    return (sizeof(yoke_roll_page) + page - 1) / page * page;
}

static yoke_status map(yoke_roll *roll, const char *path) {
    struct stat file;
    roll->bytes = page_bytes() + YOKE_ROLL_GENERATIONS * YOKE_ROLL_REGION;
    int descriptor = open(path, O_RDWR | O_CLOEXEC);
    if (descriptor < 0)
        return FAIL(YOKE_ERROR_IO, "%s: cannot open the roll of the ranks: %s", path,
                    strerror(errno));
    bool grown = fstat(descriptor, &file) == 0 && (size_t)file.st_size < roll->bytes;
    if (grown && ftruncate(descriptor, (off_t)roll->bytes) != 0) {
        int cause = errno;
        close(descriptor);
        return FAIL(YOKE_ERROR_IO, "%s: cannot grow the roll of the ranks: %s", path,
                    strerror(cause));
    }
    void *base = mmap(NULL, roll->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
    int cause = errno;
    close(descriptor);
    if (base == MAP_FAILED)
        return FAIL(YOKE_ERROR_MEMORY, "%s: cannot map the roll of the ranks: %s", path,
                    strerror(cause));
    roll->page = base;
    return YOKE_OK;
}

static yoke_process_state state_of(const yoke_roll_page *page, int seat) {
    const yoke_roll_seat *own = &page->seats[seat];
    int pid = atomic_load(&own->pid);
    if (pid == 0) return YOKE_PROCESS_ENDED;
    return yoke_process_state_of(pid, atomic_load(&own->start_time));
}

static yoke_process_state look(const yoke_roll_meeting *meeting, int seat) {
    return state_of(meeting->page, seat);
}

/* The seat of a process that has ended is free. */
static yoke_status sit(yoke_roll *roll) {
    yoke_roll_seat *own = &roll->page->seats[roll->seat];
    int pid = atomic_load(&own->pid);
    bool taken =
        pid != 0 && pid != getpid() && state_of(roll->page, roll->seat) != YOKE_PROCESS_ENDED;
    if (taken || !atomic_compare_exchange_strong(&own->pid, &pid, -1))
        return FAIL(YOKE_ERROR_PEER,
                    "two processes claim rank %d: pid %d and pid %d; did both get the same "
                    "launcher variables?",
                    roll->seat, pid, (int)getpid());
    atomic_store(&own->wants, 0);
    atomic_store(&own->since, 0);
    atomic_store(&own->start_time, yoke_process_start_time(getpid()));
    atomic_store(&own->pid, getpid());
    return YOKE_OK;
}

yoke_status yoke_roll_open(yoke_roll **roll, const char *path, int seat, int world) {
    *roll = NULL;
    if (seat < 0 || seat >= YOKE_ROLL_SEATS)
        return FAIL(YOKE_ERROR_ARGUMENT,
                    "rank %d of a roll: at most %d ranks can go on without "
                    "others",
                    seat, YOKE_ROLL_SEATS);
    yoke_roll *own = yoke_calloc(1, sizeof *own);
    if (own == NULL) return FAIL_MEMORY(sizeof *own, "the roll of the ranks");
    own->seat = seat;
    own->world = world;
    own->generation = UINT32_MAX;
    yoke_status status = map(own, path);
    if (status == YOKE_OK) status = sit(own);
    if (status != YOKE_OK) {
        if (own->page != NULL) munmap(own->page, own->bytes);
        yoke_free(own);
        return status;
    }
    *roll = own;
    return YOKE_OK;
}

void yoke_roll_quit(yoke_roll *roll) {
    atomic_store(&roll->page->seats[roll->seat].wants, 0);
}

void yoke_roll_close(yoke_roll *roll) {
    if (roll == NULL) return;
    yoke_roll_quit(roll);
    atomic_store(&roll->page->seats[roll->seat].pid, 0);
    munmap(roll->page, roll->bytes);
    yoke_free(roll);
}

/* Meeting. */

static void rest(void) {
    nanosleep(&(struct timespec){.tv_nsec = PAUSE_NS}, NULL);
}

/* A pidfd stays with its process: nobody else gets the signal. */
static void kill_seat(const yoke_roll_page *page, int seat) {
    const yoke_roll_seat *own = &page->seats[seat];
    int pid = atomic_load(&own->pid);
    if (pid <= 0 || pid == getpid()) return;
    int descriptor = (int)syscall(SYS_pidfd_open, pid, 0);
    if (descriptor < 0) return;
    if (yoke_process_start_time(pid) == atomic_load(&own->start_time))
        (void)syscall(SYS_pidfd_send_signal, descriptor, SIGKILL, NULL, 0);
    close(descriptor);
}

static void kill_left_out(const yoke_roll_meeting *meeting) {
    for (int seat = 0; seat < YOKE_ROLL_SEATS && meeting->was_member; seat++) {
        uint64_t only = meeting->before & ~meeting->members & ((uint64_t)1 << seat);
        uint32_t wants = atomic_load(&meeting->page->seats[seat].wants);
        if (only != 0 && wants == meeting->generation) kill_seat(meeting->page, seat);
    }
}

/* "rank 1, rank 3": those of the first generation that have not come. */
static yoke_status fail_absent(const yoke_roll_meeting *meeting, int timeout_ms) {
    char list[256] = "";
    size_t length = 0;
    for (int seat = 0; seat < meeting->world && length < sizeof list - 16; seat++)
        if ((meeting->awaited >> seat & 1) != 0)
            length += (size_t)snprintf(list + length, sizeof list - length, "%srank %d",
                                       length == 0 ? "" : ", ", seat);
    return FAIL(YOKE_ERROR_TIMEOUT, "%s did not join within %d ms; were they started?", list,
                timeout_ms);
}

static bool is_over(yoke_roll_state state) {
    return state == YOKE_ROLL_IS_MEMBER || state == YOKE_ROLL_IS_LEFT_OUT;
}

static yoke_status meet(yoke_roll_meeting *meeting, int patience_ms) {
    uint64_t end = yoke_now_ns() + (uint64_t)patience_ms * 1000000u;
    yoke_roll_begin(meeting);
    while (!is_over(yoke_roll_step(meeting))) {
        if (meeting->state != YOKE_ROLL_WAITS) continue;
        meeting->impatient = yoke_now_ns() >= end;
        if (meeting->impatient && meeting->generation == 0)
            return fail_absent(meeting, patience_ms);
        rest();
    }
    return YOKE_OK;
}

yoke_status yoke_roll_meet(yoke_roll *roll, int patience_ms) {
    yoke_roll_seat *own = &roll->page->seats[roll->seat];
    bool was_member = roll->generation != UINT32_MAX;
    yoke_roll_meeting meeting = {.page = roll->page,
                                 .seat = roll->seat,
                                 .world = roll->world,
                                 .was_member = was_member,
                                 .look = look};
    do { /* a newcomer may come too late to a generation, and comes to the next one */
        meeting.generation = was_member ? roll->generation + 1 : yoke_roll_next(roll->page);
        if (meeting.generation >= YOKE_ROLL_GENERATIONS)
            return FAIL(YOKE_ERROR_PEER,
                        "the ranks have met %d times: start the run again, from "
                        "its newest checkpoint",
                        YOKE_ROLL_GENERATIONS);
        if (!was_member) atomic_store(&own->since, meeting.generation + 1);
        TRY(meet(&meeting, patience_ms));
    } while (meeting.state == YOKE_ROLL_IS_LEFT_OUT && !was_member);
    if (meeting.state == YOKE_ROLL_IS_LEFT_OUT)
        return FAIL(YOKE_ERROR_PEER,
                    "the other ranks have gone on without rank %d, which came too "
                    "late",
                    yoke_roll_rank(roll));
    kill_left_out(&meeting);
    roll->generation = meeting.generation;
    roll->members = meeting.members;
    return YOKE_OK;
}

/* Answers. */

static uint32_t since(const yoke_roll *roll, int seat) {
    return atomic_load(&roll->page->seats[seat].since);
}

int yoke_roll_seat_of(const yoke_roll *roll) {
    return roll->seat;
}

/* Rank 0 stays rank 0 as long as it is a member: ranks follow the order in which they came. */
int yoke_roll_rank(const yoke_roll *roll) {
    uint32_t own = since(roll, roll->seat);
    int before = 0;
    for (int seat = 0; seat < YOKE_ROLL_SEATS; seat++) {
        if ((roll->members >> seat & 1) == 0) continue;
        uint32_t other = since(roll, seat);
        before += other < own || (other == own && seat < roll->seat);
    }
    return before;
}

int yoke_roll_world(const yoke_roll *roll) {
    return __builtin_popcountll(roll->members);
}

bool yoke_roll_is_newcomer(const yoke_roll *roll) {
    return roll->generation > 0 && since(roll, roll->seat) == roll->generation + 1;
}

bool yoke_roll_is_asked(const yoke_roll *roll) {
    for (int seat = 0; seat < YOKE_ROLL_SEATS; seat++)
        if (atomic_load(&roll->page->seats[seat].wants) == roll->generation + 2 &&
            state_of(roll->page, seat) != YOKE_PROCESS_ENDED)
            return true;
    return false;
}

int yoke_roll_lost(const yoke_roll *roll) {
    for (int seat = 0; seat < YOKE_ROLL_SEATS; seat++) {
        if ((roll->members >> seat & 1) == 0) continue;
        bool is_here = atomic_load(&roll->page->seats[seat].wants) == roll->generation + 1;
        if (!is_here || state_of(roll->page, seat) == YOKE_PROCESS_ENDED) return seat;
    }
    return -1;
}

void *yoke_roll_region(const yoke_roll *roll) {
    return (char *)roll->page + page_bytes() + roll->generation * YOKE_ROLL_REGION;
}
