/* SPDX-License-Identifier: Apache-2.0 */
#include "base/precision.h"

#define NAME(name) name,

const char *const yoke_precision_names[] = {YOKE_PRECISION_LIST(NAME, NAME)};
const int yoke_precision_count = sizeof yoke_precision_names / sizeof yoke_precision_names[0];
