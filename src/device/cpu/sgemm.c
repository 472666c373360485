/* SPDX-License-Identifier: Apache-2.0 */
#include "device/cpu/sgemm.h"

#include <string.h>

enum {
    LINE = 16,         /* floats of a cache line */
    CROWDED = 512 / 4, /* floats */
    COPIED_ROWS = 256  /* at a time: the copies stay in the caches */
};

dnnl_status_t cpu_sgemm_run(const cpu_sgemm *p) {
    return dnnl_sgemm(p->transpose_a ? 'T' : 'N', p->transpose_b ? 'T' : 'N', (dnnl_dim_t)p->rows,
                      (dnnl_dim_t)p->columns, (dnnl_dim_t)p->depth, p->scale == 0 ? 1 : p->scale,
                      p->a, (dnnl_dim_t)p->a_row, p->b, (dnnl_dim_t)p->b_row, p->add ? 1 : 0, p->to,
                      (dnnl_dim_t)p->to_row);
}

size_t cpu_sgemm_pitch(size_t columns) {
    return columns % CROWDED == 0 ? columns + LINE : columns;
}

size_t cpu_sgemm_scratch_floats(size_t rows, size_t columns) {
    return COPIED_ROWS * (cpu_sgemm_pitch(rows) + cpu_sgemm_pitch(columns));
}

typedef struct rows {
    const float *at;
    size_t row, count, columns;
} rows;

/* Where they lie, or padded in `copy`. */
static rows uncrowd(rows from, int threads, float *copy) {
    size_t pitch = cpu_sgemm_pitch(from.row);
    if (pitch == from.row) return from;
    pitch = cpu_sgemm_pitch(from.columns);
#pragma omp parallel for num_threads(                                                              \
    threads) if (cpu_is_parallel(threads, from.count * from.columns))
    for (size_t i = 0; i < from.count; i++)
        memcpy(copy + i * pitch, from.at + i * from.row, from.columns * sizeof *copy);
    return (rows){copy, pitch, from.count, from.columns};
}

dnnl_status_t cpu_sgemm_over_rows(const cpu_sgemm *product, int threads, float *scratch) {
    cpu_sgemm part = *product;
    size_t most = COPIED_ROWS;
    if (cpu_sgemm_pitch(part.a_row) == part.a_row && cpu_sgemm_pitch(part.b_row) == part.b_row)
        most = part.depth;
    for (size_t first = 0; first < product->depth; first += most) {
        part.depth = product->depth - first < most ? product->depth - first : most;
        rows a = {product->a + first * product->a_row, product->a_row, part.depth, part.rows};
        rows b = {product->b + first * product->b_row, product->b_row, part.depth, part.columns};
        a = uncrowd(a, threads, scratch);
        b = uncrowd(b, threads, scratch + COPIED_ROWS * cpu_sgemm_pitch(part.rows));
        part.a = a.at, part.a_row = a.row;
        part.b = b.at, part.b_row = b.row;
        dnnl_status_t status = cpu_sgemm_run(&part);
        if (status != dnnl_success) return status;
        part.add = true;
    }
    return dnnl_success;
}
