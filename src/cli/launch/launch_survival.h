/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks that go on when others fail or leave: --min-ranks. */
#ifndef CLI_LAUNCH_SURVIVAL_H
#define CLI_LAUNCH_SURVIVAL_H

#include "cli/launch/launch_session.h"

/* Makes the memory in which the ranks agree, for a run that --min-ranks lets go on; nothing
 * otherwise. -1, or the exit code behind a printed error. */
int launch_roll_make(launch_plan *plan);
/* A worker has failed: whether enough others go on. It may be started again. */
bool launch_goes_on(launch_session *session, launch_worker *worker, const char *how);
/* Whether yoke resize ended the worker. */
bool launch_left(launch_session *session, const launch_worker *worker);
/* Answers a process that asks for another number of ranks, and starts or ends some. */
void launch_resize(launch_session *session);
/* Starts those again that have failed and may. */
void launch_start_again(launch_session *session);

#endif
