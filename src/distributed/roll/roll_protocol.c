/* SPDX-License-Identifier: Apache-2.0 */
/* The protocol of the roll, as a table of states. */
#include "distributed/roll/roll.h"

static uint64_t bit(int seat) {
    return (uint64_t)1 << seat;
}

uint32_t yoke_roll_next(const yoke_roll_page *page) {
    uint32_t generation = 0;
    while (generation < YOKE_ROLL_GENERATIONS && atomic_load(&page->members[generation]) != 0)
        generation++;
    return generation;
}

void yoke_roll_begin(yoke_roll_meeting *meeting) {
    uint32_t generation = meeting->generation;
    meeting->before = generation > 0 ? atomic_load(&meeting->page->members[generation - 1]) : 0;
    meeting->state = YOKE_ROLL_COMES;
    meeting->impatient = false;
    meeting->members = 0;
}

static yoke_roll_state come(yoke_roll_meeting *meeting) {
    atomic_store(&meeting->page->seats[meeting->seat].wants, meeting->generation + 1);
    return YOKE_ROLL_READS;
}

static yoke_roll_state read_members(yoke_roll_meeting *meeting) {
    meeting->members = atomic_load(&meeting->page->members[meeting->generation]);
    meeting->at = 0;
    meeting->come = meeting->awaited = 0;
    if (meeting->members == 0) return YOKE_ROLL_COUNTS;
    bool is_member = (meeting->members & bit(meeting->seat)) != 0;
    return is_member ? YOKE_ROLL_IS_MEMBER : YOKE_ROLL_IS_LEFT_OUT;
}

/* Whether this process waits for one that has not come; wants: its latest generation. A seat of the
 * generation before may have a newcomer, who has come to none yet. */
static bool awaits(const yoke_roll_meeting *meeting, int seat, uint32_t wants) {
    if (meeting->generation == 0) return seat < meeting->world && wants == 0;
    if ((meeting->before & bit(seat)) == 0 || wants != meeting->generation) return false;
    yoke_process_state state = meeting->look(meeting, seat);
    bool leaves_out = meeting->was_member && (meeting->impatient || state == YOKE_PROCESS_STOPPED);
    return state != YOKE_PROCESS_ENDED && !leaves_out;
}

static yoke_roll_state count(yoke_roll_meeting *meeting) {
    int seat = meeting->at++;
    uint32_t wants = atomic_load(&meeting->page->seats[seat].wants);
    bool has_come = wants == meeting->generation + 1;
    if (has_come && meeting->look(meeting, seat) != YOKE_PROCESS_ENDED) meeting->come |= bit(seat);
    if (!has_come && awaits(meeting, seat, wants)) meeting->awaited |= bit(seat);
    if (meeting->at < YOKE_ROLL_SEATS) return YOKE_ROLL_COUNTS;
    return meeting->awaited != 0 ? YOKE_ROLL_WAITS : YOKE_ROLL_DECIDES;
}

static yoke_roll_state decide(yoke_roll_meeting *meeting) {
    uint64_t undecided = 0;
    atomic_compare_exchange_strong(&meeting->page->members[meeting->generation], &undecided,
                                   meeting->come);
    return YOKE_ROLL_READS;
}

static yoke_roll_state wait_for(yoke_roll_meeting *meeting) {
    return read_members(meeting);
}

static yoke_roll_state stay(yoke_roll_meeting *meeting) {
    return meeting->state;
}

typedef yoke_roll_state (*roll_action)(yoke_roll_meeting *meeting);

static const roll_action actions[] = {
    [YOKE_ROLL_COMES] = come,       [YOKE_ROLL_READS] = read_members, [YOKE_ROLL_COUNTS] = count,
    [YOKE_ROLL_DECIDES] = decide,   [YOKE_ROLL_WAITS] = wait_for,     [YOKE_ROLL_IS_MEMBER] = stay,
    [YOKE_ROLL_IS_LEFT_OUT] = stay,
};

yoke_roll_state yoke_roll_step(yoke_roll_meeting *meeting) {
    meeting->state = actions[meeting->state](meeting);
    return meeting->state;
}
