/* SPDX-License-Identifier: Apache-2.0 */
/* How stale the gradients of an asynchronous run were. */
#ifndef CLI_STALENESS_H
#define CLI_STALENESS_H

#include <stdio.h>

#include "cli/cli.h"

/* "staleness 0: 2 %, 1: 97 %, 2: 1 %"; nothing in other modes. */
void print_staleness(FILE *out, const yoke_trainer *trainer);
/* "staleness": [2, 97, 1], the pushes of each; nothing in other modes. */
void staleness_json(yoke_json *json, const yoke_trainer *trainer);

#endif
