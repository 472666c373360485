/* SPDX-License-Identifier: Apache-2.0 */
/* Products of matrices that no plan describes: those of an optimizer. A block of rows is one
 * thread's, so that the bits do not depend on the threads. */
#include <string.h>

#include "device/cpu/cpu.h"

#define ROWS 64 /* of the output that a thread computes at a time */

static dnnl_status_t multiply_rows(const yoke_product *product, size_t first) {
    size_t left = product->rows - first, rows = left < ROWS ? left : ROWS;
    size_t inner = product->inner, columns = product->columns;
    float *to = product->to + first * columns;
    if (product->c != NULL) memcpy(to, product->c + first * columns, rows * columns * sizeof *to);
    return dnnl_sgemm(product->transpose_a ? 'T' : 'N', product->transpose_b ? 'T' : 'N',
                      (dnnl_dim_t)rows, (dnnl_dim_t)columns, (dnnl_dim_t)inner, product->alpha,
                      product->a + (product->transpose_a ? first : first * inner),
                      (dnnl_dim_t)(product->transpose_a ? product->rows : inner), product->b,
                      (dnnl_dim_t)(product->transpose_b ? inner : columns),
                      product->c != NULL ? product->beta : 0, to, (dnnl_dim_t)columns);
}

yoke_status cpu_product(yoke_device *device, yoke_stream stream, const yoke_product *product) {
    dnnl_status_t status = dnnl_success;
    (void)stream;
#pragma omp parallel for num_threads(device->threads)
    for (size_t first = 0; first < product->rows; first += ROWS) {
        cpu_keep_failure(&status, multiply_rows(product, first));
    }
    TRY_DNNL(status);
    return YOKE_OK;
}
