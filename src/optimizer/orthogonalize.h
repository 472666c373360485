/* SPDX-License-Identifier: Apache-2.0 */
/* Muon's direction. */
#ifndef OPTIMIZER_ORTHOGONALIZE_H
#define OPTIMIZER_ORTHOGONALIZE_H

#include "optimizer/optimizer.h"

/* Nearly the orthogonal matrix next to `values`, by steps of Newton and Schulz: after five every
 * singular value comes to about 1, after three the large ones. work: device memory. */
size_t yoke_orthogonalize_bytes(const yoke_matrix *matrix); /* of work */
yoke_status yoke_orthogonalize(yoke_device *device, yoke_stream stream, const yoke_matrix *matrix,
                               int steps, float *values, void *work);

#endif
