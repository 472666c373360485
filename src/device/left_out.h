/* SPDX-License-Identifier: Apache-2.0 */
/* Devices of a list that failed. */
#ifndef DEVICE_LEFT_OUT_H
#define DEVICE_LEFT_OUT_H

#include <stdbool.h>

#include "yoke/device.h"

/* Takes a device that failed out of the list; those behind it, and spares, move up. Nothing may use
 * it any more; it is closed with the list. */
void yoke_devices_leave_out(yoke_devices *devices, int index);
/* Makes all but the first `count` devices spares, until one is left out. */
void yoke_devices_use(yoke_devices *devices, int count);
/* A thread may be in a call of a device for good: yoke_devices_close closes none from now on. kept:
 * what that thread may also use; NULL: nothing. */
void yoke_devices_stay_open(yoke_devices *devices, const void *kept);
bool yoke_devices_are_kept(const yoke_devices *devices);

#endif
