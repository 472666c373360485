/* SPDX-License-Identifier: Apache-2.0 */
/* The points of F(4x4, 3x3): 0, +-P, +-Q and infinity, which are more accurate in float32 than 0,
 * +-1, +-2 (Barabasz and others 2020). OVER_: 1 / the product of (point - other) over the other
 * finite points, equal for a point and its negative. */
#ifndef DEVICE_CPU_WINOGRAD_POINTS_H
#define DEVICE_CPU_WINOGRAD_POINTS_H

#define P 0.625f
#define Q 1.5f
#define P2 (P * P)
#define Q2 (Q * Q)
#define OVER_0 (1 / (P2 * Q2))
#define OVER_P (1 / (2 * P2 * (P2 - Q2)))
#define OVER_Q (1 / (2 * Q2 * (Q2 - P2)))

#endif
