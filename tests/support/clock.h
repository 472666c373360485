/* SPDX-License-Identifier: Apache-2.0 */
/* Claims about measured times hold on a machine that does nothing else: scripts/nightly.sh alone
 * checks them. */
#ifndef YOKE_TESTS_CLOCK_H
#define YOKE_TESTS_CLOCK_H

#include <stdbool.h>
#include <stdlib.h>

static inline bool judges_clock(void) {
    return getenv("YOKE_TEST_CLOCK") != NULL;
}

#endif
