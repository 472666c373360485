/* What the environment tells a verb that may be one of several ranks. */
#ifndef CLI_RANK_OPTIONS_H
#define CLI_RANK_OPTIONS_H

#include "yoke/distributed.h"

#define RANK_TOKEN_BYTES 1024

typedef struct rank_token {
    char text[RANK_TOKEN_BYTES];
    const char *given; /* text; NULL: there is none, stores stay on this machine */
} rank_token;

/* The secret that guards a store others can reach: YOKE_RDZV_TOKEN, or the content of the file that
 * YOKE_RDZV_TOKEN_FILE names, which must be this user's alone. -1: read; otherwise the exit code,
 * all said. */
int rank_token_read(rank_token *token, const char *verb);

/* Which rank this process is (struct_size is set here), by the launcher's variables. The exit code
 * as above. */
int rank_info_read(yoke_rank_info *info);

#endif
