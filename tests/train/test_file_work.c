/* SPDX-License-Identifier: Apache-2.0 */
/* Files that rank 0 reads and writes for longer than the deadline of the other ranks; traces of
 * ranks that fail. Wrapped calls (-Wl,--wrap) are slow, or fail. */
#include "rank_runs.h"
#include "saves_check.h"
#include "trace/trace.h"

/* The next calls that are slow. */
static atomic_int slow_reads, slow_syncs;

static void be_slow(atomic_int *calls) {
    if (atomic_load(calls) <= 0) return;
    atomic_fetch_sub(calls, 1);
    usleep(SLOW_US);
}

int __real_fsync(int descriptor);
int __wrap_fsync(int descriptor);
int __wrap_fsync(int descriptor) {
    be_slow(&slow_syncs);
    return __real_fsync(descriptor);
}

yoke_status __real_yoke_file_read_at(const yoke_file_reader *reader, const char *path,
                                     size_t offset, void *data, size_t bytes);
yoke_status __wrap_yoke_file_read_at(const yoke_file_reader *reader, const char *path,
                                     size_t offset, void *data, size_t bytes);
yoke_status __wrap_yoke_file_read_at(const yoke_file_reader *reader, const char *path,
                                     size_t offset, void *data, size_t bytes) {
    if (offset > YOKE_HEADER_AT) be_slow(&slow_reads); /* of a tensor */
    return __real_yoke_file_read_at(reader, path, offset, data, bytes);
}

/* The trace that cannot be packed. */
static const yoke_trace *unpackable;

yoke_status __real_yoke_trace_pack(const yoke_trace *trace, int64_t **words, size_t *count);
yoke_status __wrap_yoke_trace_pack(const yoke_trace *trace, int64_t **words, size_t *count);
yoke_status __wrap_yoke_trace_pack(const yoke_trace *trace, int64_t **words, size_t *count) {
    if (trace == unpackable) return FAIL(YOKE_ERROR_MEMORY, "planted: no room to pack");
    return __real_yoke_trace_pack(trace, words, count);
}

static void set_options(rank_run ranks[RANK_RUNS]) {
    for (int k = 0; k < RANK_RUNS; k++) {
        ranks[k].options = small(&ranks[k].run);
        ranks[k].options.steps = 3;
        ranks[k].options.evaluate_every = -1;
    }
}

/* --init, --save and --trace. */
static void a_slow_file_of_weights_or_a_slow_trace_fails_no_rank(void **state) {
    (void)state;
    char weights[128], trace[128];
    in_folder("weights.safetensors", weights);
    in_folder("trace.json", trace);
    for (int round = 0; round < 2; round++) {
        rank_run ranks[RANK_RUNS] = {0};
        set_options(ranks);
        for (int k = 0; k < RANK_RUNS; k++) {
            ranks[k].options.init = round > 0 ? weights : NULL;
            ranks[k].options.save = round == 0 ? weights : NULL;
            ranks[k].options.trace = trace;
        }
        atomic_store(&slow_syncs, round == 0 ? 2 : 0); /* of the weights and of the folder */
        atomic_store(&slow_reads, round);
        run_ranks(ranks);
        expect_all_well(ranks);
        assert_int_equal(atomic_load(&slow_syncs) + atomic_load(&slow_reads), 0);
        assert_int_equal(access(trace, R_OK), 0);
    }
    rank_run ranks[RANK_RUNS] = {0};
    set_options(ranks);
    for (int k = 0; k < RANK_RUNS; k++)
        ranks[k].options.trace = trace;
    atomic_store(&slow_syncs, 1);
    run_ranks(ranks);
    expect_all_well(ranks);
    assert_int_equal(atomic_load(&slow_syncs), 0);
    unlink(weights);
    unlink(trace);
}

static void a_checkpoint_that_is_slow_to_read_fails_no_rank(void **state) {
    (void)state;
    clear_saves();
    for (int part = 0; part < 2; part++) {
        rank_run ranks[RANK_RUNS] = {0};
        set_options(ranks);
        for (int k = 0; k < RANK_RUNS; k++) {
            ranks[k].options.checkpoint_dir = saves;
            ranks[k].options.resume = "auto";
            ranks[k].options.steps = part == 0 ? 2 : 4;
        }
        ranks[1].options.on_event = NULL; /* rank 0 alone reports that it goes on */
        atomic_store(&slow_reads, part);
        run_ranks(ranks);
        expect_all_well(ranks);
        assert_int_equal(atomic_load(&slow_reads), 0);
        assert_int_equal(ranks[0].run.first_step, part == 0 ? 0 : 2);
        assert_int_equal(ranks[0].run.steps, part == 0 ? 2 : 4);
        assert_int_equal(ranks[0].run.resumed, 1);
    }
    clear_saves();
}

/* Traces of ranks that fail. */

static void on_event_planting(const yoke_event *event, void *payload) {
    log_of_run *run = payload;
    on_event(event, payload);
    if (event->kind == YOKE_EVENT_READY)
        unpackable = yoke_data_parallel_trace(yoke_trainer_engine(run->trainer));
}

/* Rank 1 can neither send its spans nor write them. */
static void the_first_failure_of_a_trace_is_reported(void **state) {
    (void)state;
    char trace[128];
    rank_run ranks[RANK_RUNS] = {0};
    set_options(ranks);
    ranks[0].options.trace = in_folder("trace.json", trace);
    ranks[1].options.trace = "/nonexistent/trace.json";
    ranks[1].options.on_event = on_event_planting;
    run_ranks(ranks);
    unpackable = NULL;
    assert_int_equal(ranks[1].error.status, YOKE_ERROR_MEMORY);
    assert_non_null(strstr(ranks[1].error.text, "planted"));
    assert_non_null(strstr(ranks[1].run.warning, "/nonexistent/trace.json.rank-1"));
    assert_int_not_equal(ranks[0].error.status, YOKE_OK);
    unlink(trace);
}

static void plant(const char *name) {
    char path[128];
    FILE *file = fopen(in_folder(name, path), "w");
    assert_non_null(file);
    fclose(file);
}

static bool is_left(const char *name) {
    char path[128];
    bool left = access(in_folder(name, path), F_OK) == 0;
    unlink(path);
    return left;
}

/* Nobody takes what an earlier run's ranks wrote after a failure for a part of this run. */
static void traces_of_ranks_of_an_earlier_run_are_removed(void **state) {
    (void)state;
    char trace[128];
    log_of_run run = {0};
    yoke_trainer_options options = small(&run);
    options.steps = 1;
    options.trace = in_folder("trace.json", trace);
    plant("trace.json.rank-1");
    plant("trace.json.rank-12");
    plant("trace.json.rank-1.mine");
    plant("other.json.rank-1");
    EXPECT_OK(train(&run, &options));
    yoke_trainer_destroy(run.trainer);
    assert_true(is_left("trace.json"));
    assert_false(is_left("trace.json.rank-1"));
    assert_false(is_left("trace.json.rank-12"));
    assert_true(is_left("trace.json.rank-1.mine"));
    assert_true(is_left("other.json.rank-1"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_slow_file_of_weights_or_a_slow_trace_fails_no_rank),
        cmocka_unit_test(a_checkpoint_that_is_slow_to_read_fails_no_rank),
        cmocka_unit_test(the_first_failure_of_a_trace_is_reported),
        cmocka_unit_test(traces_of_ranks_of_an_earlier_run_are_removed),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
