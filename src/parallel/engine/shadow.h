/* SPDX-License-Identifier: Apache-2.0 */
/* Who writes the root's weights in bfloat16 or float16 on devices with streams, whose plans of that
 * precision read them: a pass of forward over all weights, or the update that writes them in
 * float32. The bits are the same. Where memory is shared the exchange writes them
 * (exchange_memory.c). */
#ifndef PARALLEL_SHADOW_H
#define PARALLEL_SHADOW_H

#include "base/base.h"
#include "parallel/step/step.h"

/* A yoke_replica_job, whose context is the step, for the root's worker: measures which is faster,
 * and sets exchange->writes_shadow. With several replicas updates always write it, and it travels
 * (exchange->publishes_shadow), unless several owners update an averaged model. */
yoke_status yoke_shadow_choose(int lane, void *context);
/* What it chose: a static text; NULL: forward writes the shadow, or there is none. */
const char *yoke_shadow_algorithm(const yoke_step *step);

#endif
