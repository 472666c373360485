/* Many float32 matrix products of one shape, by oneDNN: product[i] = left[i] * right[i], or added
 * to what is in product[i]. */
#ifndef DEVICE_CPU_BATCHED_PRODUCT_H
#define DEVICE_CPU_BATCHED_PRODUCT_H

#include <dnnl.h>
#include <stdbool.h>
#include <stddef.h>

/* In floats: from matrix to matrix, row to row, column to column. */
typedef struct cpu_product_strides {
    size_t matrix, row, column;
} cpu_product_strides;

typedef struct cpu_product_shape {
    int count, rows, depth, columns;
    cpu_product_strides left, right, product;
} cpu_product_shape;

typedef struct cpu_batched_product {
    dnnl_primitive_desc_t description;
    dnnl_primitive_t primitive;
    dnnl_exec_arg_t arguments[4];
    size_t scratch_bytes;
} cpu_batched_product;

/* `product` is zero; destroying takes zeroed and half-built ones. */
dnnl_status_t cpu_batched_product_create(cpu_batched_product *product, dnnl_engine_t engine,
                                         const cpu_product_shape *shape, bool add);
void cpu_batched_product_destroy(cpu_batched_product *product);

dnnl_status_t cpu_batched_product_bind(cpu_batched_product *product, float *left, float *right,
                                       float *to, void *scratch);
dnnl_status_t cpu_batched_product_run(const cpu_batched_product *product, dnnl_stream_t stream);

#endif
