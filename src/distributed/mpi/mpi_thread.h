/* SPDX-License-Identifier: Apache-2.0 */
/* MPI's start and end. Both wait for all ranks and know no deadline, so a thread of their own calls
 * them: one thread for both, as MPI wants. The caller waits beside it. */
#ifndef DISTRIBUTED_MPI_THREAD_H
#define DISTRIBUTED_MPI_THREAD_H

#include "distributed/mpi/module/module.h"
#include "distributed/watchdog.h"

typedef struct yoke_mpi_thread yoke_mpi_thread;

/* Starts MPI, as an operation that the watchdog has begun. *code is MPI's. On failure *self is
 * NULL; where MPI did not return in time, its thread stays until the process ends. */
yoke_status yoke_mpi_thread_begin(yoke_mpi_thread **self, const yoke_mpi_calls *calls,
                                  yoke_watchdog *watchdog, int *code);
/* Ends MPI; frees `self`. Takes NULL. */
void yoke_mpi_thread_end(yoke_mpi_thread *self);

#endif
