/* SPDX-License-Identifier: Apache-2.0 */
/* Eigenvalues and eigenvectors of a symmetric matrix. */
#ifndef TRAIN_EIGENVECTORS_H
#define TRAIN_EIGENVECTORS_H

#include <stddef.h>

/* By Jacobi's rotations. matrix: [n, n] symmetric; on return its diagonal has the eigenvalues, from
 * the largest to the smallest. vectors: [n, n]; row i is the eigenvector of value i, of length 1.
 */
void yoke_eigenvectors(double *matrix, size_t n, double *vectors);

#endif
