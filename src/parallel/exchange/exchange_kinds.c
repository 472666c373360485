/* SPDX-License-Identifier: Apache-2.0 */
/* Which kind of exchange an engine has. */
#include "parallel/exchange/exchange.h"

const yoke_exchange_kind *yoke_exchange_kind_for(const yoke_step *step) {
    if (step->options.custom_exchange != NULL) return &yoke_exchange_custom;
    if (step->queued) return &yoke_exchange_queued;
    if (step->ranks.process_group == NULL)
        return yoke_exchange_nodes.fits(step) ? &yoke_exchange_nodes : &yoke_exchange_threads;
    return step->options.schedule == YOKE_SCHEDULE_SHARDED ? &yoke_exchange_shared
                                                           : &yoke_exchange_all_reduce;
}
