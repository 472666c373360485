/* SPDX-License-Identifier: Apache-2.0 */
/* Devices of one list that are too unequal for equal shards. */
#ifndef DEVICE_IMBALANCE_H
#define DEVICE_IMBALANCE_H

#include <stddef.h>

#include "yoke/device.h"

/* What yoke_devices_imbalance says of devices with these descriptions. */
void yoke_imbalance_write(const yoke_device_info *infos, int count, char *text, size_t bytes);

#endif
