/* SPDX-License-Identifier: Apache-2.0 */
/* The door of distributed: what the other rooms call beside yoke/distributed.h. This room knows
 * devices only where NCCL needs one, and neither models nor training. */
#ifndef DISTRIBUTED_DISTRIBUTED_H
#define DISTRIBUTED_DISTRIBUTED_H

#include "base/base.h"
#include "distributed/process_state.h"
#include "yoke/distributed.h"

/* yoke_process_group_wait; over NCCL the host then also waits, up to the group's deadline, until
 * the rank's GPU has run its communication stream. Any other wait for that stream hangs if another
 * rank is missing. */
yoke_status yoke_process_group_synchronize(yoke_process_group *group);

/* all_reduce_async will take ranges of this memory, until forget, which is called before it is
 * freed: NCCL registers it. */
void yoke_process_group_expect(yoke_process_group *group, void *memory, size_t bytes);
void yoke_process_group_forget(yoke_process_group *group, void *memory);

/* Ranks of a group with shared memory, so the most that yoke_process_group_peers returns. */
#define YOKE_PEERS_LIMIT 64
/* `memory` is this rank's part of a yoke_process_group_allocate; peers[world] receives the address
 * of each rank's part in this process. DEVICE: the transport has no shared memory. */
yoke_status yoke_process_group_peers(yoke_process_group *group, const void *memory, void **peers);

/* Every later all_reduce_async of the group adds in the order of base/tree.h, on every transport.
 * DEVICE: NCCL picks its own. */
yoke_status yoke_process_group_fix_order(yoke_process_group *group);

/* Sums of several contributors each, which the ranks have made before an all-reduce: subtrees, in
 * their order, of the sum over all contributors. */
#define YOKE_RANK_BLOCKS 1024
typedef struct yoke_rank_blocks {
    int ranks[YOKE_RANK_BLOCKS];      /* whose it is */
    int sizes[YOKE_RANK_BLOCKS];      /* contributors: a power of two */
    size_t offsets[YOKE_RANK_BLOCKS]; /* floats behind the rank's buffer of the all-reduce */
    int count;
} yoke_rank_blocks;
/* yoke_process_group_all_reduce_async of the blocks' sum. A buffer and its rank's blocks lie in one
 * yoke_process_group_allocate; `blocks` stay until the sum is complete. Shared memory only. */
yoke_status yoke_process_group_all_reduce_blocks(yoke_process_group *group, float *buffer,
                                                 size_t count, const yoke_rank_blocks *blocks);
bool yoke_process_group_takes_blocks(const yoke_process_group *group);

/* Rank 0 works for long, and this rank hears of it between the parts of that work: while `patient`,
 * a wait for rank 0 lasts up to 20 deadlines as long as rank 0 runs on this machine. A rank 0 that
 * is stopped, or on another machine, has the usual deadline. */
void yoke_process_group_patience(yoke_process_group *group, bool patient);
/* How long a wait may last, in ms. */
int yoke_process_group_timeout(const yoke_process_group *group);

/* What the process of a rank of this machine does. */
yoke_process_state yoke_process_group_state(const yoke_process_group *group, int rank);

/* This rank failed by itself and will not call the collective that the others wait in. Breaks the
 * group; the other ranks report this thread's error at once. Returns `status` with its text. Takes
 * NULL. */
yoke_status yoke_process_group_abort(yoke_process_group *group, yoke_status status);

/* Groups with a roll, whose ranks go on when others fail, and take in others. */

bool yoke_process_group_goes_on(const yoke_process_group *group); /* NULL: false */
/* Whether this process came to a run that had begun. */
bool yoke_process_group_is_newcomer(const yoke_process_group *group);
/* The number with which the process was started, whatever its rank is now. */
int yoke_process_group_seat(const yoke_process_group *group);
int yoke_process_group_pid(const yoke_process_group *group, int rank);
int yoke_process_group_least(const yoke_process_group *group); /* options.min_ranks */
/* Whether a process waits to be taken in: then all ranks go to the next group. */
bool yoke_process_group_is_asked(const yoke_process_group *group);
/* After a failure of another rank: whether this one did not fail itself. */
bool yoke_process_group_is_whole(const yoke_process_group *group);
/* Leaves *group and meets the others in the next one, with the same options but `devices`; ranks
 * have other numbers there. hangs: members that run have had their deadline. *group is NULL after a
 * failure. PEER: the others went on without this rank. */
yoke_status yoke_process_group_next(yoke_process_group **group, bool hangs);

/* Ranks that can agree, and so train together. */
#define YOKE_AGREE_RANKS 1024

/* Every rank calls it with its facts, one per line; every line ends with a newline. If the facts
 * differ, every rank fails with PEER and the first line in which some rank differs from rank 0. */
yoke_status yoke_ranks_agree(yoke_process_group *group, const char *facts);

/* Rank 0's text replaces *text on every rank: heap memory, or NULL before the call, that the caller
 * frees. */
yoke_status yoke_ranks_share_text(yoke_process_group *group, char **text);

#endif
