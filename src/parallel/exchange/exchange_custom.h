/* SPDX-License-Identifier: Apache-2.0 */
/* An exchange of the host program. */
#ifndef PARALLEL_EXCHANGE_CUSTOM_H
#define PARALLEL_EXCHANGE_CUSTOM_H

#include "parallel/exchange/exchange.h"

/* Whether the step's options allow their custom_exchange. */
yoke_status yoke_custom_exchange_check(const yoke_step *step);

#endif
