/* SPDX-License-Identifier: Apache-2.0 */
/* A race's clock stops when the GPUs, real or simulated, are idle: a step returns when its loss is
 * known, long before backward and the update are done. */
#include "bench/tool/bench_engine.h"
#include "gpu_rig.h"

static bench_engine *create_engine(const char *list) {
    bench_setup setup = {.model = "resnet20", .list = list, .rows = 4};
    bench_engine *engine = NULL;
    CHECK(bench_engine_create(&engine, &setup));
    return engine;
}

static void expect_idle(const bench_engine *engine) {
    for (int i = 0; i < yoke_devices_count(engine->devices); i++) {
        const cuda_device *device = cuda_of(yoke_devices_at(engine->devices, i));
        assert_int_equal(cudaSetDevice(device->ordinal), cudaSuccess);
        for (int k = 0; k < YOKE_STREAMS; k++)
            assert_int_equal(cudaStreamQuery(device->streams[k]), cudaSuccess);
    }
}

static void after_a_mean_of_steps_every_stream_is_empty(void **state) {
    (void)state;
    bench_engine *engine = create_engine("2xcuda:0");
    double milliseconds = 0;
    for (int round = 0; round < 3; round++) {
        CHECK(bench_engine_steps(engine, 2, &milliseconds));
        expect_idle(engine);
    }
    assert_true(milliseconds > 0 && engine->processor_ms > 0);
    bench_engine_destroy(engine);
}

static void after_the_fastest_of_steps_every_stream_is_empty(void **state) {
    (void)state;
    bench_engine *engine = create_engine("cuda:0");
    double milliseconds = 0;
    CHECK(bench_engine_fastest(engine, 2, &milliseconds));
    expect_idle(engine);
    assert_true(milliseconds > 0);
    bench_engine_destroy(engine);
}

int main(void) {
    setenv("YOKE_TEST_BACKEND", "cuda", 1);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(after_a_mean_of_steps_every_stream_is_empty),
        cmocka_unit_test(after_the_fastest_of_steps_every_stream_is_empty),
    };
    return RUN_ON_DEVICES(tests, NULL, NULL);
}
