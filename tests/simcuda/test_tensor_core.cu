/* SPDX-License-Identifier: Apache-2.0 */
/* Products by a warp and copies beside it do what device/cuda/tensor_core.h promises, whatever the
 * order of the lanes; what reads too early reads what was there before. */
#include "device/cuda/tensor_core.h"
#include "simcuda/rig.h"

using rig::Array;

static const cudaStream_t STREAM = nullptr; /* the legacy one */

/* c [16, 16] = a [16, 16] b, where b is given as [16 rows, 16 columns] or as its transpose. */
template <typename T, bool TRANSPOSED>
static __global__ void multiply(const T *a, const T *b, float *c, float *packed) {
    alignas(16) __shared__ T shared[2 * 256];
    unsigned lane = threadIdx.x, g = lane / 4, t = lane % 4;
    for (unsigned i = lane; i < 32; i += 32) {
        copy_async(shared + 8 * i, a + 8 * i);
        copy_async(shared + 256 + 8 * i, b + 8 * i);
    }
    copy_wait();
    __syncthreads();
    uint32_t left[4], right[4];
    float sums[2][4] = {};
    tensor_load(left, shared + lane % 16 * 16 + lane / 16 * 8);
    if (TRANSPOSED) /* rows are b's columns */
        tensor_load(right, shared + 256 + (lane / 16 * 8 + lane % 8) * 16 + lane / 8 % 2 * 8);
    else
        tensor_load_transposed(right, shared + 256 + lane % 16 * 16 + lane / 16 * 8);
    tensor_multiply<T>(sums[0], left, right[0], right[1]);
    tensor_multiply<T>(sums[1], left, right[2], right[3]);
    for (unsigned n = 0; n < 2; n++)
        for (unsigned i = 0; i < 4; i++)
            c[(g + i / 2 * 8) * 16 + n * 8 + 2 * t + i % 2] += sums[n][i];
    uint32_t again[4];
    tensor_pack<T>(again, sums[0], sums[1]);
    for (unsigned i = 0; i < 4; i++) {
        float *to = packed + (g + i % 2 * 8) * 16 + i / 2 * 8 + 2 * t;
        to[0] = tensor_pair<T>::low(again[i]);
        to[1] = tensor_pair<T>::high(again[i]);
    }
}

static void round_to(__nv_bfloat16 *to, float value) {
    *to = __float2bfloat16_rn(value);
}
static void round_to(__half *to, float value) {
    *to = __float2half_rn(value);
}

static float whole_number(size_t i, size_t seed) {
    return (float)((i * 37 + seed * 11) % 23) - 11;
}

template <typename T> static std::vector<T> whole_numbers(size_t seed) {
    std::vector<T> values(256);
    for (size_t i = 0; i < values.size(); i++)
        round_to(&values[i], whole_number(i, seed));
    return values;
}

template <typename T> static void check_products(bool transposed) {
    Array<T> left(whole_numbers<T>(1)), right(whole_numbers<T>(2));
    Array<float> c((size_t)256), packed((size_t)256);
    auto kernel = transposed ? multiply<T, true> : multiply<T, false>;
    LAUNCH_BLOCK(kernel, 1, 32, STREAM, left.get(), right.get(), c.get(), packed.get());
    std::vector<float> is = c.read(), narrow = packed.read();
    for (size_t m = 0; m < 16; m++)
        for (size_t n = 0; n < 16; n++) {
            float sum = 0;
            for (size_t k = 0; k < 16; k++)
                sum += whole_number(m * 16 + k, 1) *
                       whole_number(transposed ? n * 16 + k : k * 16 + n, 2);
            assert_true(is[m * 16 + n] == sum);
            assert_true(narrow[m * 16 + n] == tensor_pair<T>::low(tensor_pair<T>::pack(sum, 0)));
        }
}

static void products_of_matrices_are_exact_where_numbers_are_whole(void **) {
    for (bool transposed : {false, true}) {
        check_products<__nv_bfloat16>(transposed);
        check_products<__half>(transposed);
    }
}

template <bool WAITS> static __global__ void copy_through(const float *from, float *to) {
    alignas(16) __shared__ float shared[4];
    for (int i = 0; i < 4; i++)
        shared[i] = -1;
    copy_async(shared, from);
    if (WAITS) copy_wait();
    for (int i = 0; i < 4; i++)
        to[i] = shared[i];
}

static void a_copy_is_there_after_a_wait_and_not_before(void **) {
    Array<float> from(std::vector<float>{1, 2, 3, 4}), waited((size_t)4), early((size_t)4);
    LAUNCH_BLOCK(copy_through<true>, 1, 1, STREAM, from.get(), waited.get());
    LAUNCH_BLOCK(copy_through<false>, 1, 1, STREAM, from.get(), early.get());
    std::vector<float> is = waited.read(), was = early.read();
    for (size_t i = 0; i < 4; i++)
        assert_true(is[i] == (float)i + 1 && was[i] == -1);
}

static __global__ void copy_from_the_second_value(const float *from, float *to) {
    alignas(16) __shared__ float shared[4];
    copy_async(shared, from + 1);
    copy_wait();
    *to = shared[0];
}

SCENARIO(crooked_copy) {
    Array<float> from((size_t)8), to((size_t)1);
    LAUNCH_BLOCK(copy_from_the_second_value, 1, 1, STREAM, from.get(), to.get());
    cudaDeviceSynchronize();
}

static void a_copy_between_addresses_that_are_not_aligned_is_a_violation(void **) {
    rig::assert_violation("which are not aligned to them", "crooked_copy");
}

int main(int count, char **arguments) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(products_of_matrices_are_exact_where_numbers_are_whole),
        cmocka_unit_test(a_copy_is_there_after_a_wait_and_not_before),
        cmocka_unit_test(a_copy_between_addresses_that_are_not_aligned_is_a_violation),
    };
    return RUN_TESTS(count, arguments, tests);
}
