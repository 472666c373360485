/* SPDX-License-Identifier: Apache-2.0 */
/* What moves the data of an exchange between GPUs: nothing for one, the device group of several, or
 * the process group of ranks. Calls queue work on the communication streams. */
#ifndef PARALLEL_EXCHANGE_CARRIER_H
#define PARALLEL_EXCHANGE_CARRIER_H

#include "device/collectives.h"
#include "parallel/exchange/exchange.h"

/* NULL: nothing to do. group: of the lanes; NULL where the carrier uses none. */
typedef struct yoke_carrier {
    yoke_status (*reduce)(yoke_exchange *exchange, yoke_device_group *group, int bucket);
    yoke_status (*publish)(yoke_exchange *exchange, yoke_device_group *group, int bucket);
    /* Makes the root's `gate` as requested and adds to the request whether another process closed
     * its own. */
    yoke_status (*ask)(yoke_exchange *exchange, yoke_gate *gate, yoke_gate_request *request);
    yoke_status (*finish)(yoke_exchange *exchange);
    yoke_status (*reduce_all)(yoke_exchange *exchange, yoke_device_group *group); /* by hand */
} yoke_carrier;

const yoke_carrier *yoke_carrier_for(const yoke_exchange *exchange);

#endif
