/* SPDX-License-Identifier: Apache-2.0 */
/* Sizes of tensors and of their rows, and what becomes of the batch where a shape changes. */
#include <limits.h>

#include "model/onnx/onnx_reader.h"

size_t yoke_onnx_count(const yoke_onnx_sizes *sizes, int begin, int end) {
    size_t count = 1;
    for (int i = begin; i < end && i < sizes->rank; i++)
        count *= (size_t)sizes->at[i];
    return count;
}

bool yoke_onnx_same(const yoke_onnx_sizes *a, const yoke_onnx_sizes *b) {
    if (a->rank != b->rank) return false;
    for (int i = 0; i < a->rank; i++)
        if (a->at[i] != b->at[i]) return false;
    return true;
}

yoke_status yoke_onnx_sizes_check(const yoke_onnx_sizes *sizes) {
    size_t count = 1;
    if (sizes->rank > YOKE_ONNX_RANK)
        return FAIL(YOKE_ERROR_ARGUMENT, "a tensor of %d dimensions, Yoke takes at most %d",
                    sizes->rank, YOKE_ONNX_RANK);
    for (int i = 0; i < sizes->rank; i++)
        if (sizes->at[i] < 0 || __builtin_mul_overflow(count, (size_t)sizes->at[i], &count) ||
            count > (size_t)1 << 46)
            return FAIL(YOKE_ERROR_ARGUMENT, "dimension %d of a tensor would be %lld", i,
                        (long long)sizes->at[i]);
    return YOKE_OK;
}

yoke_onnx_sizes yoke_onnx_row(const yoke_onnx_sizes *sizes, yoke_onnx_batch batch) {
    yoke_onnx_sizes row = {0};
    for (int i = 0; i < sizes->rank; i++) {
        if (i != batch.at) {
            row.at[row.rank++] = sizes->at[i];
            continue;
        }
        if (batch.before > 1) row.at[row.rank++] = batch.before;
        if (batch.after > 1) row.at[row.rank++] = batch.after;
    }
    return row;
}

yoke_status yoke_onnx_row_axis(const yoke_onnx_value *value, int dim, int *axis) {
    const yoke_onnx_batch *batch = &value->batch;
    *axis = dim;
    if (batch->at < 0 || dim < batch->at) return YOKE_OK;
    if (dim == batch->at)
        return FAIL(YOKE_ERROR_ARGUMENT,
                    "it works along dimension %d, which %s the batch: rows cannot see each other",
                    dim, batch->before * batch->after == 1 ? "is" : "holds");
    *axis = dim - 1 + (batch->before > 1) + (batch->after > 1);
    return YOKE_OK;
}

yoke_status yoke_onnx_reshaped_batch(const yoke_onnx_reader *reader, const yoke_onnx_value *value,
                                     const yoke_onnx_sizes *sizes, yoke_onnx_batch *batch) {
    *batch = value->batch;
    if (value->batch.at < 0) return YOKE_OK;
    int at = value->batch.at;
    int64_t before = (int64_t)yoke_onnx_count(&value->sizes, 0, at) * value->batch.before;
    int64_t after = (int64_t)yoke_onnx_count(&value->sizes, at + 1, value->sizes.rank);
    after *= value->batch.after;
    for (int dim = 0; dim < sizes->rank; dim++) {
        int64_t ahead = (int64_t)yoke_onnx_count(sizes, 0, dim);
        if (ahead == 0 || before % ahead != 0) break;
        int64_t left = before / ahead, folded = left * reader->rows;
        int64_t behind = (int64_t)yoke_onnx_count(sizes, dim + 1, sizes->rank);
        if (sizes->at[dim] % folded != 0 || sizes->at[dim] / folded * behind != after) continue;
        *batch = (yoke_onnx_batch){dim, left, sizes->at[dim] / folded};
        return YOKE_OK;
    }
    return FAIL(YOKE_ERROR_ARGUMENT, "it gives a tensor a shape in which rows of the batch mix");
}

yoke_status yoke_onnx_broadcast_sizes(const yoke_onnx_sizes *a, const yoke_onnx_sizes *b,
                                      yoke_onnx_sizes *sizes) {
    const yoke_onnx_sizes one = *a, other = *b;
    sizes->rank = one.rank > other.rank ? one.rank : other.rank;
    for (int i = 0; i < sizes->rank; i++) {
        int k = i - (sizes->rank - one.rank), l = i - (sizes->rank - other.rank);
        int64_t left = k < 0 ? 1 : one.at[k], right = l < 0 ? 1 : other.at[l];
        if (left != right && left != 1 && right != 1)
            return FAIL(YOKE_ERROR_ARGUMENT,
                        "dimension %d has %lld elements on one side and %lld on the other", i,
                        (long long)left, (long long)right);
        sizes->at[i] = left == 1 ? right : left;
    }
    return yoke_onnx_sizes_check(sizes);
}

/* Lengths that no value can have stay such: the model refuses them. */
static int length_of(size_t length) {
    return length > INT_MAX ? INT_MAX : (int)length;
}

yoke_shape yoke_onnx_natural(const yoke_onnx_sizes *row) {
    int rank = row->rank;
    if (rank == 0) return yoke_shape_vector(1);
    int last = length_of((size_t)row->at[rank - 1]);
    if (rank == 1) return yoke_shape_vector(last);
    int middle = length_of((size_t)row->at[rank - 2]);
    if (rank == 2) return yoke_shape_sequence(middle, last);
    return yoke_shape_image(length_of(yoke_onnx_count(row, 0, rank - 2)), middle, last);
}
