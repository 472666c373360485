/* SPDX-License-Identifier: Apache-2.0 */
/* A whole run, from options to files, in which each allocation fails once. */
#include "support/failing_allocator.h"
#include "trainer_check.h"

static char first[128], saved[128], metrics[128], trace[128], saves[128], checkpoint[192];

static yoke_trainer_options whole_run(log_of_run *run) {
    yoke_trainer_options options = small(run);
    options.dataset = "synthetic:1x8x8,classes=2,rows=10";
    options.devices = devices_of(2);
    options.batch = 4;
    options.steps = 1;
    options.save = in_folder("saved", saved);
    options.metrics = in_folder("metrics", metrics);
    options.trace = in_folder("trace", trace);
    options.checkpoint_dir = in_folder("saves", saves);
    snprintf(checkpoint, sizeof checkpoint, "%s/step-00000001.safetensors", saves);
    return options;
}

static yoke_status run_and_close(const yoke_trainer_options *options, log_of_run *run) {
    yoke_status status = train(run, options);
    yoke_trainer_summary summary = {.struct_size = sizeof summary};
    if (status == YOKE_OK) status = yoke_trainer_summarize(run->trainer, &summary);
    yoke_trainer_destroy(run->trainer);
    return status;
}

static void every_failing_allocation_of_a_run_is_an_error_that_leaves_nothing(void **state) {
    (void)state;
    if (!COUNTS) skip();
    char remove_rescued[256];
    log_of_run run = {0};
    yoke_trainer_options options = whole_run(&run);
    options.save = in_folder("first", first);
    EXPECT_OK(run_and_close(&options, &run)); /* libraries keep what they allocate once */
    options.save = saved;
    options.init = first;
    unsigned long site = 0, end;
    do {
        log_of_run failing = {0};
        options.payload = &failing;
        long living = __atomic_load_n(&own_living, __ATOMIC_SEQ_CST);
        end = counted(&own_allocations) + ++site;
        __atomic_store_n(&fail_at, end, __ATOMIC_SEQ_CST);
        (void)unlink(checkpoint);
        yoke_status status = run_and_close(&options, &failing);
        __atomic_store_n(&fail_at, 0, __ATOMIC_SEQ_CST);
        if (status != YOKE_OK && status != YOKE_ERROR_MEMORY)
            fail_msg("allocation %lu: %s: %s", site, yoke_status_name(status), yoke_last_error());
        long left = __atomic_load_n(&own_living, __ATOMIC_SEQ_CST) - living;
        if (left != 0) fail_msg("allocation %lu: %ld blocks left", site, left);
    } while (counted(&own_allocations) >= end);
    assert_true(site > 200);
    print_message("%lu allocations failed one by one\n", site - 1);
    assert_int_equal(unlink(first) + unlink(saved) + unlink(metrics) + unlink(trace), 0);
    /* Checkpoints whose own place failed. */
    snprintf(remove_rescued, sizeof remove_rescued, "rm -rf %s/yoke-rescued-*", saves);
    assert_int_equal(system(remove_rescued), 0);
    assert_int_equal(unlink(checkpoint) + rmdir(saves), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_failing_allocation_of_a_run_is_an_error_that_leaves_nothing),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
