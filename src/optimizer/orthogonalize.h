/* SPDX-License-Identifier: Apache-2.0 */
/* Muon's direction. */
#ifndef OPTIMIZER_ORTHOGONALIZE_H
#define OPTIMIZER_ORTHOGONALIZE_H

#include "optimizer/optimizer.h"

/* Nearly the orthogonal matrix next to `values`, by five steps of Newton and Schulz: every singular
 * value comes to about 1. work: device memory. */
size_t yoke_orthogonalize_bytes(const yoke_matrix *matrix); /* of work */
yoke_status yoke_orthogonalize(yoke_device *device, yoke_stream stream, const yoke_matrix *matrix,
                               float *values, void *work);

#endif
