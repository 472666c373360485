/* SPDX-License-Identifier: Apache-2.0 */
/* --link auto: the link between the devices of this machine. */
#ifndef CLI_SIMULATE_FOUND_LINK_H
#define CLI_SIMULATE_FOUND_LINK_H

#include <stdbool.h>
#include <stddef.h>

#include "base/base.h"
#include "simulate/simulate.h"

/* Measures copies between neighbours and takes the slowest. Between GPUs it is a switch; CPU
 * devices share their memory, a bridge. `origin` gets a text in brackets that says so. ARGUMENT:
 * this machine has no device like `profiled`, or only one GPU. */
yoke_status found_link(yoke_link *link, const char *profiled, char *origin, size_t size);

/* Whether a profile's device is this machine's processor. */
bool found_processor(const char *profiled);

#endif
