/* SPDX-License-Identifier: Apache-2.0 */
/* Products of matrices that no plan describes: those of an optimizer. A device keeps cuBLASLt's
 * description of each shape. */
#include <stdlib.h>

#include "device/cuda/cuda.h"

typedef struct cuda_kept_product {
    struct cuda_kept_product *next;
    size_t rows, inner, columns;
    bool transpose_a, transpose_b;
    cuda_product *product;
} cuda_kept_product;

static cuda_product *find(const cuda_device *device, const yoke_product *like) {
    for (const cuda_kept_product *at = device->products; at != NULL; at = at->next)
        if (at->rows == like->rows && at->inner == like->inner && at->columns == like->columns &&
            at->transpose_a == like->transpose_a && at->transpose_b == like->transpose_b)
            return at->product;
    return NULL;
}

static yoke_status keep(cuda_device *device, const yoke_product *like) {
    const cuda_product_shape shape = {.m = (int64_t)like->rows,
                                      .n = (int64_t)like->columns,
                                      .k = (int64_t)like->inner,
                                      .a = {CUDA_FLOAT32, like->transpose_a, 0},
                                      .b = {CUDA_FLOAT32, like->transpose_b, 0},
                                      .output = {CUDA_FLOAT32, false, 0},
                                      .beside = true};
    cuda_kept_product *kept = yoke_calloc(1, sizeof *kept);
    if (kept == NULL) return FAIL_MEMORY(sizeof *kept, "a matrix product");
    yoke_status status = cuda_product_create(&kept->product, device, &shape);
    if (status != YOKE_OK) {
        yoke_free(kept);
        return status;
    }
    kept->rows = like->rows, kept->inner = like->inner, kept->columns = like->columns;
    kept->transpose_a = like->transpose_a, kept->transpose_b = like->transpose_b;
    kept->next = device->products;
    device->products = kept;
    return YOKE_OK;
}

yoke_status cuda_multiply(yoke_device *device, yoke_stream stream, const yoke_product *product) {
    cuda_device *cuda = cuda_of(device);
    TRY(cuda_use(device));
    if (find(cuda, product) == NULL) TRY(keep(cuda, product));
    const cuda_combination of = {product->alpha, product->c != NULL ? product->beta : 0, product->a,
                                 product->b, product->c != NULL ? product->c : product->to};
    return cuda_product_combine(find(cuda, product), stream, &of, product->to);
}

void cuda_products_clear(cuda_device *device) {
    while (device->products != NULL) {
        cuda_kept_product *kept = device->products;
        device->products = kept->next;
        cuda_product_destroy(kept->product);
        yoke_free(kept);
    }
}
