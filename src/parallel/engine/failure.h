/* SPDX-License-Identifier: Apache-2.0 */
/* How a failed step ends. */
#ifndef PARALLEL_ENGINE_FAILURE_H
#define PARALLEL_ENGINE_FAILURE_H

#include "parallel/engine/engine.h"

/* After NUMERIC the text names the first layer whose output is not finite, or the parameter. */
yoke_status yoke_step_failed(yoke_data_parallel *parallel, yoke_status status);

#endif
