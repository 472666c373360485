/* SPDX-License-Identifier: Apache-2.0 */
/* From owners of weights to the other devices of a group. Calls queue work on the communication
 * streams. */
#ifndef PARALLEL_EXCHANGE_PUBLISH_H
#define PARALLEL_EXCHANGE_PUBLISH_H

#include "device/collectives.h"
#include "parallel/exchange/exchange.h"

/* The group of the lanes, to which all is registered that it will move. */
yoke_status yoke_publish_group(const yoke_exchange *exchange, yoke_device_group **group);
/* The owners' new weights of a bucket, in the forms that plans read. */
yoke_status yoke_publish_bucket(yoke_exchange *exchange, yoke_device_group *group, int bucket);
/* What exchange->stale says, from the root. *bytes: read and written. */
yoke_status yoke_publish_stale(yoke_exchange *exchange, yoke_device_group *group, size_t *bytes);
/* The other owners' weights in float32 go to the root. */
yoke_status yoke_publish_collect(yoke_exchange *exchange);

#endif
