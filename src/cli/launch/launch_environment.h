/* SPDX-License-Identifier: Apache-2.0 */
/* The environment between a launcher and its ranks: the variables that launch sets, and those that
 * a verb reads to learn which rank it is. */
#ifndef CLI_LAUNCH_ENVIRONMENT_H
#define CLI_LAUNCH_ENVIRONMENT_H

#include "cli/launch/launch.h"
#include "yoke/distributed.h"

/* One variable of a worker; an empty value removes the name. */
typedef struct launch_variable {
    char name[32], value[256];
} launch_variable;
#define LAUNCH_VARIABLES 28
/* torchrun's variables and Yoke's; returns their number. */
int launch_variables(const launch_plan *plan, int rank, launch_variable list[LAUNCH_VARIABLES]);

/* Which rank this process is, by the variables of any launcher; sets struct_size. -1, or the exit
 * code behind a printed error. */
int rank_info_read(yoke_rank_info *info);

/* YOKE_ROLL and YOKE_MIN_RANKS of --min-ranks; without them nothing. Returns as above. */
int rank_roll_read(yoke_process_group_options *group);

#define RANK_TOKEN_BYTES 1024
typedef struct rank_token {
    char text[RANK_TOKEN_BYTES];
    const char *given; /* text; NULL: no secret, so the store stays on this machine */
} rank_token;

/* The secret of a store that other machines can reach: YOKE_RDZV_TOKEN, or the first line of the
 * file in YOKE_RDZV_TOKEN_FILE, which only its owner may read. Returns as above. */
int rank_token_read(rank_token *token, const char *verb);

#endif
