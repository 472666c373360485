/* SPDX-License-Identifier: Apache-2.0 */
/* The door of serve: predictions by several threads with one copy of the weights. */
#ifndef SERVE_SERVE_H
#define SERVE_SERVE_H

#include "serve/predictors.h"

#endif
