/* SPDX-License-Identifier: Apache-2.0 */
/* Two runs with one algorithm cache compute the same bits, although the libraries offer algorithms
 * that add in another order in each run. Skipped without a GPU. */
#include "support/devices.h"
#include "support/engine_check.h"

#include <unistd.h>

static char path[] = "/tmp/yoke_same_bits_XXXXXX";

static check_engine make_engine(const yoke_model *model, yoke_algorithm algorithm) {
    yoke_optimizer_options sgd = {.struct_size = sizeof sgd, .learning_rate = 0.1, .momentum = 0.9};
    yoke_data_parallel_options options = {
        .batch = 16, .seed = 3, .algorithm = algorithm, .algorithm_cache = path};
    return check_engine_make(model, 1, options, &sgd);
}

static uint64_t hash_of_run(const yoke_model *model, yoke_algorithm algorithm) {
    check_engine engine = make_engine(model, algorithm);
    check_train(engine.parallel, 4);
    uint64_t hash = check_hash(engine.parallel);
    check_engine_free(&engine);
    return hash;
}

static void runs_with_one_algorithm_cache_compute_the_same_bits(void **state) {
    (void)state;
    yoke_model *model = check_model(true, 0);
    uint64_t first = hash_of_run(model, YOKE_ALGORITHM_MEASURED);
    for (int run = 0; run < 4; run++)
        assert_int_equal(hash_of_run(model, YOKE_ALGORITHM_MEASURED), first);
    yoke_model_destroy(model);
}

/* The fastest of the simulated libraries add atomically: this is what the runs above refuse. */
static void what_the_fastest_chose_is_nothing_for_another_run(void **state) {
    (void)state;
    yoke_model *model = check_model(true, 0);
    uint64_t exact = hash_of_run(model, YOKE_ALGORITHM_MEASURED);
    int others = 0;
    for (int run = 0; run < 4; run++)
        others += hash_of_run(model, YOKE_ALGORITHM_FASTEST) != exact;
    assert_int_equal(hash_of_run(model, YOKE_ALGORITHM_MEASURED), exact);
#ifdef YOKE_SIMCUDA
    assert_true(others > 0);
#endif
    yoke_model_destroy(model);
}

static int make_file(void **state) {
    (void)state;
    int descriptor = mkstemp(path);
    return descriptor < 0 ? -1 : close(descriptor);
}

static int remove_file(void **state) {
    (void)state;
    char lock[sizeof path + 8];
    snprintf(lock, sizeof lock, "%s.lock", path);
    unlink(lock);
    return unlink(path);
}

int main(void) {
    if (devices_gpus() == 0) return DEVICES_SKIPPED;
    setenv("YOKE_TEST_BACKEND", "cuda", 1);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(runs_with_one_algorithm_cache_compute_the_same_bits),
        cmocka_unit_test(what_the_fastest_chose_is_nothing_for_another_run),
    };
    return cmocka_run_group_tests(tests, make_file, remove_file);
}
