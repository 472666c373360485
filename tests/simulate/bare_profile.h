/* SPDX-License-Identifier: Apache-2.0 */
/* A profile in which nothing but transfers takes time, and its simulations. */
#ifndef TESTS_BARE_PROFILE_H
#define TESTS_BARE_PROFILE_H

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/base.h"
#include "simulate/simulate.h"

#define EXPECT_OK(call)                                                                            \
    do {                                                                                           \
        if ((call) != YOKE_OK) fail_msg("%s: %s", #call, yoke_last_error());                       \
    } while (0)

enum { SEGMENTS = 3, ROWS = 16, INPUT = 3000, OUTPUT = 40 };
static yoke_profile_segment segments[SEGMENTS] = {{0, 1000000}, {0, 4000000}, {0, 3000000}};
static const double p = 8e6, alpha = 5e3, beta = 0.5; /* bytes, ns, bytes / ns */
#define LINK "0.5,5"

static inline yoke_profile bare_profile(void) {
    return (yoke_profile){.model = "m",
                          .device = "d",
                          .precision = "float32",
                          .source = "s",
                          .rows = ROWS,
                          .layers = 1,
                          .input_bytes = INPUT,
                          .output_bytes = OUTPUT,
                          .segments = segments,
                          .segment_count = SEGMENTS};
}

static inline yoke_topology topology_of(const char *link, int per_node, const char *nic) {
    yoke_topology topology = {.per_node = per_node};
    EXPECT_OK(yoke_link_parse(&topology.link, link));
    if (nic != NULL) EXPECT_OK(yoke_link_parse(&topology.nic, nic));
    return topology;
}

static inline yoke_simulation simulate(const yoke_profile *profile, const yoke_topology *topology,
                                       yoke_simulated_mode mode, int devices) {
    yoke_simulation found;
    EXPECT_OK(yoke_simulate(&found, profile, topology, mode, devices));
    return found;
}

static inline void expect_refused(const yoke_topology *topology, yoke_simulated_mode mode,
                                  int devices, const char *word) {
    yoke_profile profile = bare_profile();
    yoke_simulation found;
    assert_int_equal(yoke_simulate(&found, &profile, topology, mode, devices), YOKE_ERROR_ARGUMENT);
    if (strstr(yoke_last_error(), word) == NULL)
        fail_msg("\"%s\" lacks \"%s\"", yoke_last_error(), word);
}

#endif
