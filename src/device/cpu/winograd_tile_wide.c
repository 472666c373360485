/* SPDX-License-Identifier: Apache-2.0 */
/* The same transforms in vectors of AVX-512. */
#define WINOGRAD_LANES 16
#define TRANSFORMS winograd_wide
#include "device/cpu/winograd_tile.c"
