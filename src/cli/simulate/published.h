/* SPDX-License-Identifier: Apache-2.0 */
/* Profiles that come with Yoke: of GPUs whose training throughput somebody has published. */
#ifndef CLI_SIMULATE_PUBLISHED_H
#define CLI_SIMULATE_PUBLISHED_H

#include "simulate/simulate.h"

/* yoke_topology.spread of these machines: with it the simulated throughput of several devices is
 * nearest to the published one, on six of the nine rows (bench/fit_spread.py). */
#define PUBLISHED_SPREAD 0.054

typedef struct published {
    const char *name; /* "h100:resnet50": the device, and a preset for 3x224x224 and 1000 classes */
    const char *device; /* as its driver calls it */
    const char *precision;
    int rows;                /* of a step on each device */
    double rows_per_second;  /* of one device */
    int devices;             /* of one node, with */
    double all_per_second;   /* rows of all of them */
    const char *link;        /* of these devices, as --link takes it */
    double memory_bandwidth; /* of the device's data sheet, GB/s */
    const char *source;      /* address of the figures */
} published;

/* NULL past the last one. */
const published *published_at(int index);
/* NULL: none has this name. */
const published *published_find(const char *name);

/* The profile: computed, not measured. The step is rows / rows_per_second. Bytes give the update
 * and the loss; forward gets a third of the rest, and each segment of backward its share, by
 * multiplications, of two thirds. */
yoke_status published_profile(const published *figures, yoke_profile *profile);

void published_print(FILE *out);

#endif
