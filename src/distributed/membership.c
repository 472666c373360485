/* SPDX-License-Identifier: Apache-2.0 */
#include "distributed/membership.h"

#include <stdlib.h>

/* A rank that goes on: what it needs to make the next group. */
struct yoke_membership {
    yoke_roll *roll;
    yoke_process_group_options options; /* rank points to the field below */
    yoke_rank_info rank;
};

void yoke_membership_close(yoke_membership *own) {
    if (own == NULL) return;
    yoke_roll_close(own->roll);
    yoke_free(own);
}

void yoke_membership_quit(yoke_membership *own) {
    if (own != NULL) yoke_roll_quit(own->roll);
}

/* Members may be lost while they meet: those that are left meet again. */
static yoke_status meet(yoke_process_group **group, yoke_membership *own, int patience_ms) {
    yoke_status status = YOKE_ERROR_PEER;
    int tries = 0;
    while (status == YOKE_ERROR_PEER || status == YOKE_ERROR_TIMEOUT) {
        if (++tries > YOKE_ROLL_SEATS) return status;
        TRY(yoke_roll_meet(own->roll, patience_ms));
        own->rank.rank = own->rank.local_rank = yoke_roll_rank(own->roll);
        own->rank.world = own->rank.local_world = yoke_roll_world(own->roll);
        status = yoke_group_form(group, &own->options, own->roll);
        patience_ms = own->options.timeout_ms;
    }
    TRY(status);
    (*group)->membership = own;
    return YOKE_OK;
}

yoke_status yoke_membership_create(yoke_process_group **group,
                                   const yoke_process_group_options *options) {
    yoke_membership *own = yoke_calloc(1, sizeof *own);
    if (own == NULL) return FAIL_MEMORY(sizeof *own, "a rank's membership");
    own->rank = *options->rank;
    own->options = *options;
    own->options.rank = &own->rank;
    yoke_status status = yoke_roll_open(&own->roll, options->roll, own->rank.rank, own->rank.world);
    if (status == YOKE_OK) status = meet(group, own, own->options.timeout_ms);
    if (status == YOKE_OK) return YOKE_OK;
    yoke_error error = yoke_error_take(status);
    yoke_membership_close(own);
    return yoke_error_restore(&error);
}

bool yoke_process_group_goes_on(const yoke_process_group *group) {
    return group != NULL && group->membership != NULL;
}

bool yoke_process_group_is_newcomer(const yoke_process_group *group) {
    return yoke_process_group_goes_on(group) && yoke_roll_is_newcomer(group->membership->roll);
}

bool yoke_process_group_is_asked(const yoke_process_group *group) {
    return yoke_process_group_goes_on(group) && yoke_roll_is_asked(group->membership->roll);
}

int yoke_process_group_seat(const yoke_process_group *group) {
    return group->membership != NULL ? yoke_roll_seat_of(group->membership->roll) : group->rank;
}

int yoke_process_group_pid(const yoke_process_group *group, int rank) {
    return group->peers[rank].pid;
}

int yoke_process_group_least(const yoke_process_group *group) {
    return group->membership->options.min_ranks;
}

bool yoke_process_group_is_whole(const yoke_process_group *group) {
    return !group->at_fault;
}

/* A member that runs and has had its deadline gets a little more, in which it may hear that the
 * group is broken. */
#define LAST_MS 1000

yoke_status yoke_process_group_next(yoke_process_group **group, bool hangs) {
    yoke_membership *own = (*group)->membership;
    int patience_ms = own->options.timeout_ms;
    (*group)->membership = NULL;
    yoke_group_leave(*group);
    *group = NULL;
    yoke_status status = meet(group, own, hangs && patience_ms > LAST_MS ? LAST_MS : patience_ms);
    if (status == YOKE_OK) return YOKE_OK;
    yoke_error error = yoke_error_take(status);
    yoke_membership_close(own);
    return yoke_error_restore(&error);
}
