/* SPDX-License-Identifier: Apache-2.0 */
/* An engine whose steps run call by call, so that a test's own backend sees each of them. */
#ifndef TESTS_UNRECORDED_H
#define TESTS_UNRECORDED_H

#include "yoke/data_parallel.h"

void check_engine_unrecorded(yoke_data_parallel *parallel);

#endif
