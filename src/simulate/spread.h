/* SPDX-License-Identifier: Apache-2.0 */
/* Devices that are not equally fast: how much longer than the mean each one computes. */
#ifndef SIMULATE_SPREAD_H
#define SIMULATE_SPREAD_H

#include "simulate/simulate.h"

/* The expected largest of so many numbers from the standard normal distribution: 0.56 of 2, 1.42
 * of 8. */
double yoke_largest_deviate(int count);

typedef struct yoke_paces {
    int slow, straggler;   /* devices; -1: none */
    double slowest, other; /* of the device `slow`, and of the others */
    double straggler_factor;
} yoke_paces;

/* One device is as slow as the slowest is expected to be; the mean of all is 1. It is the last one
 * of the timeline. */
yoke_paces yoke_paces_of(const yoke_topology *topology, int devices);
/* Forward and backward take this device so many times as long as the profile's. */
double yoke_pace_of(const yoke_paces *paces, int device);
/* That of the device that all others wait for. */
double yoke_pace_slowest(const yoke_paces *paces);

#endif
