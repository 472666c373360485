/* SPDX-License-Identifier: Apache-2.0 */
/* A rank of a group with a roll: it goes from one group to the next as others come and go. */
#ifndef DISTRIBUTED_MEMBERSHIP_H
#define DISTRIBUTED_MEMBERSHIP_H

#include "distributed/roll/roll.h"
#include "distributed/transport.h"

/* options: complete. Meets the others in the roll, and forms a group with them. */
yoke_status yoke_membership_create(yoke_process_group **group,
                                   const yoke_process_group_options *options);
void yoke_membership_close(yoke_membership *membership); /* takes NULL */
/* Nobody awaits this rank any more. Takes NULL. */
void yoke_membership_quit(yoke_membership *membership);

/* process_group.c: one group, with its store and transport. roll: where the store is; NULL: as the
 * options say. */
yoke_status yoke_group_form(yoke_process_group **group, const yoke_process_group_options *options,
                            yoke_roll *roll);
void yoke_group_leave(yoke_process_group *group);

#endif
