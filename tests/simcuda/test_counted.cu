/* SPDX-License-Identifier: Apache-2.0 */
/* The count of a launch: kernels and graphs whose loads and stores are known. It runs in the preset
 * simcount, which compiles this file as it compiles kernels. */
#include "device/cuda/kernel.h"
#include "simcuda/counted.h"
#include "simcuda/cudnn_layer_graphs.h"

using rig::Array;

static const cudaStream_t STREAM = nullptr;

constexpr size_t COUNT = (size_t)1 << 24; /* of floats: 64 MiB, more than the cache holds */
constexpr double BYTES = 4.0 * COUNT;
constexpr unsigned BLOCKS = 1024; /* of which some run */

static __global__ void copy_values(const float *from, float *to, size_t count) {
    GRID_STRIDE(i, count) to[i] = from[i];
}

static __global__ void copy_packs(const float *from, float *to, size_t count) {
    GRID_STRIDE(i, count / 4) {
        float values[4];
        cuda_pack<float, 4> pack = cuda_load<4>(from + 4 * i);
        for (int k = 0; k < 4; k++)
            values[k] = pack.at[k] + 1;
        cuda_store<float, 4>(to + 4 * i, values);
    }
}

/* One float of each sector. */
static __global__ void read_eighths(const float *from, float *to, size_t count) {
    GRID_STRIDE(i, count / 8) to[i] = from[8 * i];
}

/* Each block goes twice over its own part; the second time the cache has lost it. */
static __global__ void read_twice(const float *from, float *to, size_t count) {
    size_t part = count / gridDim.x;
    const float *own = from + blockIdx.x * part;
    float sum = 0;
    for (int pass = 0; pass < 2; pass++)
        for (size_t i = threadIdx.x; i < part; i += blockDim.x)
            sum += own[i] * (float)(pass + 1);
    to[(size_t)blockIdx.x * blockDim.x + threadIdx.x] = sum;
}

/* All blocks read the same. */
static __global__ void read_shared_table(const float *table, float *to, size_t count) {
    __shared__ float own[256];
    own[threadIdx.x] = table[threadIdx.x];
    __syncthreads();
    GRID_STRIDE(i, count) to[i] = own[i / 4 % 256];
}

static simcuda_counted count_one(void (*launch)(const float *, float *)) {
    Array<float> from(COUNT), to(COUNT);
    simcuda_count_begin();
    launch(from.get(), to.get());
    rig::check(cudaDeviceSynchronize());
    const simcuda_counted *list;
    assert_int_equal(simcuda_count_end(&list), 1);
    assert_int_equal(list[0].blocks, BLOCKS);
    assert_true(list[0].sampled < BLOCKS);
    return list[0];
}

#define COUNTED(launch, kernel)                                                                    \
    count_one([](const float *from, float *to) {                                                   \
        launch(kernel, BLOCKS, CUDA_THREADS, STREAM, from, to, COUNT);                             \
    })

static void near(double value, double wanted, double relative) {
    if (value < wanted * (1 - relative) || value > wanted * (1 + relative))
        fail_msg("%.0f instead of %.0f", value, wanted);
}

static void copy_moves_each_value_twice(void **) {
    for (simcuda_counted one : {COUNTED(LAUNCH, copy_values), COUNTED(LAUNCH, copy_packs)}) {
        near(one.requested_bytes, 2 * BYTES, 0);
        near(one.unique_bytes, 2 * BYTES, 0);
        near(one.l2_bytes, 2 * BYTES, 0);
        near(one.memory_bytes, 2 * BYTES, 0.2); /* the last values written are still in the cache */
        near(one.shared_bytes, 0, 0);
    }
}

static void unused_parts_of_a_sector_move(void **) {
    simcuda_counted one = COUNTED(LAUNCH, read_eighths);
    near(one.requested_bytes, BYTES / 4, 0);
    near(one.unique_bytes, BYTES + BYTES / 8, 0);
}

static void a_second_pass_reads_memory_again(void **) {
    simcuda_counted one = COUNTED(LAUNCH, read_twice);
    near(one.requested_bytes, 2 * BYTES + 4.0 * BLOCKS * CUDA_THREADS, 0);
    near(one.unique_bytes, BYTES + 4.0 * BLOCKS * CUDA_THREADS, 0);
    near(one.memory_bytes, 2 * BYTES, 0.05);
}

static void a_table_of_all_blocks_is_read_once(void **) {
    simcuda_counted one = COUNTED(LAUNCH_BLOCK, read_shared_table);
    near(one.unique_bytes, BYTES + 4 * 256, 0);
    near(one.l2_bytes, BYTES + 4.0 * 256 * BLOCKS, 0);
    near(one.shared_bytes, 4.0 * 256 * BLOCKS + BYTES, 0);
}

/* What one launch has written, the next one finds, if the cache held it. */
static void the_next_launch_finds_what_the_cache_holds(void **) {
    constexpr size_t SMALL = (size_t)1 << 21; /* 8 MiB each */
    Array<float> from(SMALL), to(SMALL);
    for (int pass = 0; pass < 2; pass++) {
        simcuda_count_begin();
        LAUNCH(copy_values, BLOCKS, CUDA_THREADS, STREAM, from.get(), to.get(), SMALL);
        rig::check(cudaDeviceSynchronize());
        const simcuda_counted *list;
        assert_int_equal(simcuda_count_end(&list), 1);
        near(list[0].requested_bytes, 8.0 * SMALL, 0);
        if (pass == 1) near(list[0].memory_bytes, 0, 0);
    }
}

/* A graph runs with one pointer for all of its tensors. */
static simcuda_counted count_graph(rig::LayerGraph &of, cudnnBackendDescriptor_t graph,
                                   int64_t engine, const rig::Dims &uids) {
    Array<float> all(COUNT), workspace((size_t)1 << 16);
    cudnnBackendDescriptor_t running = rig::plan(of.objects(), of.handle(), graph, engine);
    cudnnBackendDescriptor_t pack =
        rig::pack(of.objects(), uids, std::vector<void *>(uids.size(), all.get()), workspace.get());
    simcuda_count_begin();
    rig::check(cudnnBackendExecute(of.handle().handle, running, pack));
    rig::check(cudaDeviceSynchronize());
    const simcuda_counted *list;
    assert_int_equal(simcuda_count_end(&list), 1);
    assert_int_equal(list[0].kind, SIMCUDA_LIBRARY);
    return list[0];
}

static void expect_graph(const simcuda_counted &one, double halves, double floats,
                         double products) {
    near(one.unique_bytes, 2 * halves + 4 * floats, 0);
    near(one.operations, 2 * products, 0);
    assert_int_equal(one.arithmetic, SIMCUDA_BFLOAT16);
}

/* What several nodes read, or read of another, moves once; what lies between them does not. */
static void graphs_move_their_operands_once(void **) {
    using namespace rig;
    const Layer layer{4, 32, 16, 64, 3, 2, 1};
    const double x = 4 * 16 * 16 * 32, y = 4 * 8 * 8 * 64, w = 64 * 9 * 32;
    const double products = y * 9 * 32;
    LayerGraph plain(layer), normed(layer), filter(layer), image(layer);
    expect_graph(count_graph(plain, plain.forward(false), 6, {X, W, Y, SUMS, SQUARES}), x + w + y,
                 2 * 64, products);
    expect_graph(
        count_graph(normed, normed.forward(true), 6, {X, W, Y, SCALE, SHIFT, SUMS, SQUARES}),
        x + w + y + 2 * 32, 2 * 64, products);
    expect_graph(count_graph(filter, filter.filter_gradient(), 6, {X, W, Y, SCALE, SHIFT}),
                 x + w + y + 2 * 32, 0, products);
    expect_graph(count_graph(image, image.image_gradient(), 7,
                             {X, W, Y, MASKED, SCALE, SHIFT, MEAN, INVSTD, DSCALE, DSHIFT,
                              EQ_DY_SCALE, EQ_X_SCALE, EQ_BIAS}),
                 2 * x + w + y, 9 * 32, products);
}

int main(void) {
    if (!simcuda_count_open()) return 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(copy_moves_each_value_twice),
        cmocka_unit_test(unused_parts_of_a_sector_move),
        cmocka_unit_test(a_second_pass_reads_memory_again),
        cmocka_unit_test(a_table_of_all_blocks_is_read_once),
        cmocka_unit_test(the_next_launch_finds_what_the_cache_holds),
        cmocka_unit_test(graphs_move_their_operands_once),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
