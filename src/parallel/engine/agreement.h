/* SPDX-License-Identifier: Apache-2.0 */
/* DDP: ranks that train one model. Without a process group there is one, and nothing is sent. */
#ifndef PARALLEL_ENGINE_AGREEMENT_H
#define PARALLEL_ENGINE_AGREEMENT_H

#include "parallel/step/step.h"

/* Joins the ranks of options.process_group. ARGUMENT: this engine's devices or schedule do not fit
 * DDP. PEER: options or model differ between ranks. */
yoke_status yoke_ranks_join(yoke_step *step);
/* PEER when the layouts of the flat buffers differ. */
yoke_status yoke_ranks_compare_layouts(const yoke_step *step);

/* The other ranks wait for rank 0's algorithms; rank 0 begins to tell them that it goes
 * on measuring. Then it sends them. */
yoke_status yoke_ranks_await_algorithms(yoke_step *step);
yoke_status yoke_ranks_send_algorithms(yoke_step *step);

#endif
