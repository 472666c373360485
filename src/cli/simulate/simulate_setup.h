/* SPDX-License-Identifier: Apache-2.0 */
/* What yoke simulate and yoke advise read: a profile, and the links of devices. */
#ifndef CLI_SIMULATE_SIMULATE_SETUP_H
#define CLI_SIMULATE_SIMULATE_SETUP_H

#include <stdio.h>

#include "cli/cli.h"
#include "simulate/simulate.h"

typedef struct simulate_flags {
    const char *link, *nic;     /* NULL: pcie4; none */
    int per_node;               /* 0: all devices are in one node */
    int rows;                   /* of each device; 0: the profile's */
    const char *model, *device; /* what the profile must be of; NULL: anything */
    double spread;              /* NOT_STATED: that of published machines, else 0 */
} simulate_flags;

#define NOT_STATED (-1.0)

/* Rows of an option table; AT is the macro that finds a field of the simulate_flags. */
// clang-format off
#define SIMULATE_OPTIONS(AT)                                                                       \
    {"link", "auto|pcie3|pcie4|pcie5|nvlink2|nvlink3|nvlink4|GB/s,US[,switch|bridge]",             \
     "link of each device; auto measures this machine's (a published machine's, or pcie4)",        \
     AT(link)},                                                                                    \
    {"nic", "GB/s,US", "network card of each node: 25,10 say, GB/s and microseconds", AT(nic)},    \
    {"devices-per-node", "N", "devices of a node (all)", AT(per_node), 1, YOKE_SIMULATED_DEVICES}, \
    {"rows", "N", "rows of each device; computing scales in proportion (the profile's)",          \
     AT(rows), 1, YOKE_PROFILE_MOST_ROWS},                                                         \
    {"model", "NAME", "refuse a profile of another model", AT(model)},                             \
    {"device", "TEXT", "refuse a profile of a device without TEXT in its name", AT(device)},       \
    {"spread", "X",                                                                                \
     "standard deviation of the time that devices compute, by its mean (published profiles: "      \
     "0.054, others: 0)",                                                                          \
     AT(spread), 0, 1}
// clang-format on

typedef struct simulate_setup {
    yoke_profile profile; /* yoke_profile_clear frees it */
    yoke_topology topology;
    bool found;          /* the link is this machine's, and so is the kind of device */
    bool published;      /* the profile is computed from published figures (published.h) */
    bool nobody_waits;   /* the only mode is dp-async */
    char link_text[128]; /* "12.3 GB/s, 5 us, switch" */
} simulate_setup;

/* name: one of published.h, or the path of a file. ARGUMENT: neither, an impossible link, or a
 * profile of another model or device. */
yoke_status simulate_setup_read(simulate_setup *setup, const simulate_flags *flags,
                                const char *name);
/* "0.054 between devices; all wait for the slowest"; "": all are alike. */
void simulate_spread_text(const simulate_setup *setup, char *text, size_t size);
/* Who straggles, and how much; "" nobody does. */
void simulate_straggler_text(const simulate_setup *setup, char *text, size_t size);
void simulate_print_head(FILE *out, const simulate_setup *setup);

/* Rows of all devices in a second. */
double simulate_rows_per_second(const yoke_profile *profile, const yoke_simulation *found);

/* All simulations of a run, in the order of devices. */
typedef struct simulate_runs {
    yoke_simulation *list; /* [count] */
    int count;
} simulate_runs;

void simulate_print_table(FILE *out, const simulate_setup *setup, const simulate_runs *runs);
yoke_status simulate_print_json(FILE *out, const simulate_setup *setup, const simulate_runs *runs);
yoke_status simulate_write_page(const char *path, const simulate_setup *setup,
                                const simulate_runs *runs);

#endif
