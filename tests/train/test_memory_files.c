/* SPDX-License-Identifier: Apache-2.0 */
/* Weights and states to a sink and from bytes in memory: the same bytes as in a file, the same
 * checks, and nothing changed unless all fits. */
#include "support/memory_file.h"
#include "support/resume_check.h"

#include "base/base.h"

static const ddp_setting setting = {.norm = true, .batch = 16, .steps = STEPS};

typedef struct rig {
    yoke_model *model;
    check_engine engine;
} rig;

static rig make_rig(uint64_t seed) {
    rig made = {.model = check_model(true, 0)};
    yoke_optimizer_options sgd = optimizer_of(&setting);
    yoke_data_parallel_options options = options_of(&setting);
    options.seed = seed;
    made.engine = check_engine_make(made.model, 1, options, &sgd);
    return made;
}

static void free_rig(rig *made) {
    check_engine_free(&made->engine);
    yoke_model_destroy(made->model);
}

static void step(rig *on, int number) {
    EXPECT_OK(step_on(on->engine.parallel, &setting, number, 1, 0));
}

static void assert_file(const char *path, const memory_file *file) {
    unsigned char *data = NULL;
    size_t bytes = 0;
    EXPECT_OK(yoke_file_read(path, SIZE_MAX, &data, &bytes));
    assert_int_equal(bytes, file->bytes);
    assert_memory_equal(data, file->data, bytes);
    free(data);
}

static void assert_says(const char *words) {
    if (strstr(yoke_last_error(), words) == NULL)
        fail_msg("'%s' is not in: %s", words, yoke_last_error());
}

static yoke_weights_info info_of_test(void) {
    static const char *const names[CHECK_CLASSES] = {"a", "b", "c", "d", "e"};
    return (yoke_weights_info){.struct_size = sizeof(yoke_weights_info),
                               .model = "small",
                               .input = {CHECK_CHANNELS, CHECK_SIDE, CHECK_SIDE, false, false},
                               .classes = CHECK_CLASSES,
                               .class_names = names};
}

/* Weights. */

static void weights_in_memory_are_the_bytes_of_a_file(void **state) {
    (void)state;
    rig from = make_rig(1), to = make_rig(2);
    yoke_weights_info info = info_of_test();
    memory_file plain = {0}, described = {0};
    yoke_sink sink = memory_file_sink(&plain);
    size_t largest = 0;
    step(&from, 0);
    EXPECT_OK(yoke_weights_write(from.engine.parallel, from.model, NULL, &sink));
    EXPECT_OK(yoke_weights_save(from.engine.parallel, from.model, file_of(0)));
    assert_file(file_of(0), &plain);
    sink.payload = &described;
    EXPECT_OK(yoke_weights_write(from.engine.parallel, from.model, &info, &sink));
    EXPECT_OK(yoke_weights_save_described(from.engine.parallel, from.model, &info, file_of(0)));
    assert_file(file_of(0), &described);
    assert_true(described.bytes > plain.bytes);
    for (int i = 0; i < yoke_model_tensor_count(from.model); i++) {
        yoke_tensor_info tensor = {.struct_size = sizeof tensor};
        EXPECT_OK(yoke_model_tensor(from.model, i, &tensor));
        if (tensor.count * sizeof(float) > largest) largest = tensor.count * sizeof(float);
    }
    assert_true(plain.calls == 1 + yoke_model_tensor_count(from.model));
    assert_true(plain.largest <= (largest > 4096 ? largest : 4096)); /* the header, or a tensor */

    assert_true(check_hash(to.engine.parallel) != check_hash(from.engine.parallel));
    EXPECT_OK(yoke_weights_read(to.engine.parallel, to.model, plain.data, plain.bytes, NULL));
    assert_true(check_hash(to.engine.parallel) == check_hash(from.engine.parallel));
    yoke_weights_description *description = NULL;
    yoke_weights_info read = {.struct_size = sizeof read};
    EXPECT_OK(yoke_weights_description_read(&description, described.data, described.bytes));
    memset(described.data, 0, described.bytes); /* the description has its own copy */
    EXPECT_OK(yoke_weights_describe(description, &read));
    assert_string_equal(read.model, "small");
    assert_int_equal(read.classes, CHECK_CLASSES);
    assert_string_equal(read.class_names[4], "e");
    yoke_weights_description_close(description);
    memory_file_free(&plain);
    memory_file_free(&described);
    free_rig(&from);
    free_rig(&to);
}

static void bytes_may_lie_at_any_address(void **state) {
    (void)state;
    rig from = make_rig(1);
    memory_file file = {0};
    yoke_sink sink = memory_file_sink(&file);
    EXPECT_OK(yoke_weights_write(from.engine.parallel, from.model, NULL, &sink));
    for (size_t shift = 0; shift < 8; shift++) {
        rig to = make_rig(2);
        unsigned char *moved = malloc(file.bytes + shift);
        assert_non_null(moved);
        memcpy(moved + shift, file.data, file.bytes);
        EXPECT_OK(yoke_weights_read(to.engine.parallel, to.model, moved + shift, file.bytes, NULL));
        assert_true(check_hash(to.engine.parallel) == check_hash(from.engine.parallel));
        free(moved);
        free_rig(&to);
    }
    memory_file_free(&file);
    free_rig(&from);
}

static void partial_loads_skip_as_from_a_file(void **state) {
    (void)state;
    rig from = make_rig(1), to = make_rig(2);
    memory_file file = {0};
    yoke_sink sink = memory_file_sink(&file);
    yoke_weights_load_options options = YOKE_WEIGHTS_LOAD_OPTIONS_INIT;
    float before[CHECK_CLASSES], after[CHECK_CLASSES];
    options.new_head = true;
    step(&from, 0);
    step(&to, 1);
    EXPECT_OK(yoke_weights_write(from.engine.parallel, from.model, NULL, &sink));
    EXPECT_OK(yoke_data_parallel_read(to.engine.parallel, "fc.bias", before, CHECK_CLASSES));
    EXPECT_OK(yoke_weights_read(to.engine.parallel, to.model, file.data, file.bytes, &options));
    EXPECT_OK(yoke_data_parallel_read(to.engine.parallel, "fc.bias", after, CHECK_CLASSES));
    assert_memory_equal(before, after, sizeof before);
    options.new_head = false;
    options.allow_missing = "nothing.*";
    assert_int_equal(
        yoke_weights_read(to.engine.parallel, to.model, file.data, file.bytes, &options),
        YOKE_ERROR_ARGUMENT);
    memory_file_free(&file);
    free_rig(&from);
    free_rig(&to);
}

/* Sinks. */

typedef yoke_status (*writing)(rig *from, const yoke_sink *sink);

static yoke_status write_weights(rig *from, const yoke_sink *sink) {
    return yoke_weights_write(from->engine.parallel, from->model, NULL, sink);
}

static yoke_status write_state(rig *from, const yoke_sink *sink) {
    return yoke_state_write(from->engine.parallel, sink);
}

static const writing writings[] = {write_weights, write_state};
enum { WRITINGS = (int)(sizeof writings / sizeof writings[0]) };

/* IO, too, which a save to a file tries again. */
static void a_sink_that_fails_ends_the_call_at_once(void **state) {
    (void)state;
    rig from = make_rig(1);
    for (int w = 0; w < WRITINGS; w++) {
        memory_file whole = {0};
        yoke_sink sink = memory_file_sink(&whole);
        EXPECT_OK(writings[w](&from, &sink));
        assert_true(whole.calls > 2);
        for (int call = 1; call <= whole.calls; call++) {
            memory_file file = {.fail_at = call,
                                .fails_with = call % 2 ? YOKE_ERROR_IO : YOKE_ERROR_CANCELLED};
            char words[64];
            sink = memory_file_sink(&file);
            snprintf(words, sizeof words, "the sink's write: the store is full at call %d", call);
            assert_int_equal(writings[w](&from, &sink), file.fails_with);
            assert_says(words);
            assert_int_equal(file.calls, call);
            assert_true(file.bytes == 0 || memcmp(file.data, whole.data, file.bytes) == 0);
            memory_file_free(&file);
        }
        memory_file silent = {.fail_at = 2, .fails_with = YOKE_ERROR_TIMEOUT, .wordless = true};
        sink = memory_file_sink(&silent);
        assert_int_equal(writings[w](&from, &sink), YOKE_ERROR_TIMEOUT);
        assert_says("the sink's write returned YOKE_ERROR_TIMEOUT");
        memory_file_free(&silent);
        memory_file again = {0};
        sink = memory_file_sink(&again);
        EXPECT_OK(writings[w](&from, &sink));
        assert_int_equal(again.bytes, whole.bytes);
        assert_memory_equal(again.data, whole.data, whole.bytes);
        memory_file_free(&again);
        memory_file_free(&whole);
    }
    free_rig(&from);
}

static void a_sink_must_be_able_to_write(void **state) {
    (void)state;
    rig from = make_rig(1);
    for (int w = 0; w < WRITINGS; w++) {
        yoke_sink sink = YOKE_SINK_INIT;
        assert_int_equal(writings[w](&from, NULL), YOKE_ERROR_ARGUMENT);
        assert_int_equal(writings[w](&from, &sink), YOKE_ERROR_ARGUMENT);
        assert_says("write is NULL");
        sink.write = memory_file_take;
        sink.struct_size = 0;
        assert_int_equal(writings[w](&from, &sink), YOKE_ERROR_ARGUMENT);
    }
    free_rig(&from);
}

static void values_that_are_not_finite_are_not_written(void **state) {
    (void)state;
    rig from = make_rig(1);
    float bias[CHECK_CLASSES] = {0, 0, (float)INFINITY, 0, 0};
    EXPECT_OK(yoke_data_parallel_write(from.engine.parallel, "fc.bias", bias, CHECK_CLASSES));
    for (int w = 0; w < WRITINGS; w++) {
        memory_file file = {0};
        yoke_sink sink = memory_file_sink(&file);
        assert_int_equal(writings[w](&from, &sink), YOKE_ERROR_NUMERIC);
        if (writings[w] == write_state) assert_int_equal(file.calls, 0);
        memory_file_free(&file);
    }
    free_rig(&from);
}

/* State. */

static void a_state_in_memory_is_the_bytes_of_a_file(void **state) {
    (void)state;
    rig from = make_rig(1), to = make_rig(1);
    memory_file file = {0};
    yoke_sink sink = memory_file_sink(&file);
    for (int i = 0; i < 3; i++)
        step(&from, i);
    EXPECT_OK(yoke_state_write(from.engine.parallel, &sink));
    EXPECT_OK(yoke_state_save(from.engine.parallel, file_of(0)));
    assert_file(file_of(0), &file);
    EXPECT_OK(yoke_state_read(to.engine.parallel, file.data, file.bytes, NULL));
    assert_true(check_hash(to.engine.parallel) == check_hash(from.engine.parallel));
    for (int i = 3; i < 6; i++) {
        step(&from, i);
        step(&to, i);
    }
    assert_true(check_hash(to.engine.parallel) == check_hash(from.engine.parallel));
    memory_file_free(&file);
    free_rig(&from);
    free_rig(&to);
}

static void the_options_of_a_state_are_compared(void **state) {
    (void)state;
    rig from = make_rig(1), to = make_rig(2);
    memory_file file = {0};
    yoke_sink sink = memory_file_sink(&file);
    EXPECT_OK(yoke_state_write(from.engine.parallel, &sink));
    assert_int_equal(yoke_state_read(to.engine.parallel, file.data, file.bytes, NULL),
                     YOKE_ERROR_ARGUMENT);
    assert_says("seed");
    EXPECT_OK(yoke_state_read(to.engine.parallel, file.data, file.bytes, "seed"));
    memory_file_free(&file);
    free_rig(&from);
    free_rig(&to);
}

static yoke_status exchange_state(yoke_process_group *group, const script *play) {
    memory_file file = {0};
    yoke_sink sink = memory_file_sink(&file);
    yoke_optimizer_options sgd = optimizer_of(&setting);
    yoke_data_parallel_options options = options_of(&setting);
    yoke_devices *devices = NULL;
    yoke_data_parallel *parallel = NULL;
    yoke_devices_options open = {.struct_size = sizeof open, .list = "cpu", .threads = 1};
    uint64_t saved = 0, loaded = 0;
    int rank = yoke_process_group_rank(group), world = yoke_process_group_world(group);
    options.process_group = group;
    TRY(yoke_devices_open(&devices, &open));
    TRY(yoke_data_parallel_create(&parallel, play->detail, devices, &sgd, &options));
    TRY(step_on(parallel, &setting, 0, world, rank));
    TRY(yoke_data_parallel_hash(parallel, &saved));
    TRY(yoke_state_write(parallel, &sink));
    if ((file.calls > 0) != (rank == 0)) return FAIL(YOKE_ERROR_INTERNAL, "%d calls", file.calls);
    TRY(step_on(parallel, &setting, 1, world, rank));
    TRY(yoke_state_read(parallel, file.data, file.bytes, NULL));
    TRY(yoke_data_parallel_hash(parallel, &loaded));
    if (loaded != saved) return FAIL(YOKE_ERROR_INTERNAL, "rank %d has another state", rank);
    yoke_status none = yoke_state_read(parallel, NULL, 0, NULL); /* of rank 0, which tells all */
    if (none != YOKE_ERROR_ARGUMENT) return FAIL(YOKE_ERROR_INTERNAL, "NULL: %d", (int)none);
    memory_file_free(&file);
    yoke_data_parallel_destroy(parallel);
    yoke_devices_close(devices);
    return YOKE_OK;
}

static void rank_0_writes_and_all_ranks_receive(void **state) {
    (void)state;
    yoke_model *model = check_model(false, 0); /* ranks have running statistics of their own */
    const script play = {.world = 2, .scene = exchange_state, .detail = model};
    outcome *outcomes = play_threads(&play);
    expect_all_well(outcomes, play.world);
    free(outcomes);
    yoke_model_destroy(model);
}

/* Bytes that anyone may have written. */

typedef yoke_status (*reading)(rig *to, const void *bytes, size_t count);

static yoke_status read_weights(rig *to, const void *bytes, size_t count) {
    return yoke_weights_read(to->engine.parallel, to->model, bytes, count, NULL);
}

static yoke_status read_state(rig *to, const void *bytes, size_t count) {
    return yoke_state_read(to->engine.parallel, bytes, count, NULL);
}

static yoke_status read_description(rig *to, const void *bytes, size_t count) {
    yoke_weights_description *description = NULL;
    (void)to;
    yoke_status status = yoke_weights_description_read(&description, bytes, count);
    assert_true((status == YOKE_OK) == (description != NULL));
    yoke_weights_description_close(description);
    return status;
}

static const reading readings[] = {read_weights, read_state, read_description};
enum { READINGS = (int)(sizeof readings / sizeof readings[0]) };

/* In memory of exactly so many bytes, so that a sanitizer sees what reads behind them. */
static yoke_status read_exactly(int which, rig *to, const unsigned char *bytes, size_t count) {
    unsigned char *own = malloc(count > 0 ? count : 1);
    assert_non_null(own);
    memcpy(own, bytes, count);
    yoke_status status = readings[which](to, count > 0 ? own : own + 1, count);
    free(own);
    return status;
}

static void bytes_cut_off_anywhere_change_nothing(void **state) {
    (void)state;
    rig from = make_rig(1), to = make_rig(1);
    for (int r = 0; r < READINGS; r++) {
        memory_file file = {0};
        yoke_sink sink = memory_file_sink(&file);
        EXPECT_OK(writings[r == 1](&from, &sink));
        step(&to, r);
        uint64_t before = check_hash(to.engine.parallel);
        for (size_t length = 0; length < file.bytes; length++) {
            assert_int_equal(read_exactly(r, &to, file.data, length), YOKE_ERROR_DATA);
            assert_says(YOKE_BYTES_NAME ": ");
        }
        assert_true(check_hash(to.engine.parallel) == before);
        memory_file_free(&file);
    }
    free_rig(&from);
    free_rig(&to);
}

/* A state has digests: every flip is found. Plain weights have none: a flip of a value is another
 * value, or not finite. */
static void flipped_bytes_are_refused_or_loaded_whole(void **state) {
    (void)state;
    rig from = make_rig(1), to = make_rig(1);
    memory_file file = {0};
    yoke_sink sink = memory_file_sink(&file);
    step(&to, 0);
    EXPECT_OK(yoke_state_write(from.engine.parallel, &sink));
    uint64_t before = check_hash(to.engine.parallel);
    for (size_t i = 0; i < file.bytes; i++) {
        file.data[i] ^= (unsigned char)(1u << i % 8);
        assert_int_not_equal(read_exactly(1, &to, file.data, file.bytes), YOKE_OK);
        file.data[i] ^= (unsigned char)(1u << i % 8);
    }
    assert_true(check_hash(to.engine.parallel) == before);
    memory_file_free(&file);
    sink = memory_file_sink(&file);
    EXPECT_OK(yoke_weights_write(from.engine.parallel, from.model, NULL, &sink));
    for (size_t i = 0; i < file.bytes; i++) {
        before = check_hash(to.engine.parallel);
        file.data[i] ^= (unsigned char)(1u << i % 8);
        yoke_status status = read_exactly(0, &to, file.data, file.bytes);
        assert_true(status == YOKE_OK || status == YOKE_ERROR_DATA);
        if (status != YOKE_OK) assert_true(check_hash(to.engine.parallel) == before);
        file.data[i] ^= (unsigned char)(1u << i % 8);
    }
    memory_file_free(&file);
    free_rig(&from);
    free_rig(&to);
}

static void a_header_longer_than_the_bytes_is_refused(void **state) {
    (void)state;
    static const unsigned char lengths[][8] = {
        {0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff},
        {0, 0, 0, 0, 0, 0, 0, 0x80},
        {0x01, 0xe1, 0xf5, 0x05, 0, 0, 0, 0},
        {3, 0, 0, 0, 0, 0, 0, 0},
    };
    rig to = make_rig(1);
    for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++)
        for (int r = 0; r < READINGS; r++) {
            unsigned char bytes[10] = "........{}";
            memcpy(bytes, lengths[i], 8);
            assert_int_equal(read_exactly(r, &to, bytes, sizeof bytes), YOKE_ERROR_DATA);
            assert_says(YOKE_BYTES_NAME ": not a safetensors file, or cut off: it declares");
        }
    unsigned char zip[16] = "PK\003\004abcdefgh";
    assert_int_equal(read_exactly(0, &to, zip, sizeof zip), YOKE_ERROR_DATA);
    assert_says("torch.load('FILE'");
    free_rig(&to);
}

static void offsets_are_those_of_the_bytes(void **state) {
    (void)state;
    rig from = make_rig(1);
    memory_file file = {0};
    char words[80];
    yoke_sink sink = memory_file_sink(&file);
    EXPECT_OK(yoke_state_write(from.engine.parallel, &sink));
    file.data[file.bytes - 1] ^= 1;
    snprintf(words, sizeof words, "to %zu, does not match its digest", file.bytes - 1);
    assert_int_equal(yoke_state_read(from.engine.parallel, file.data, file.bytes, NULL),
                     YOKE_ERROR_DATA);
    assert_says(YOKE_BYTES_NAME ": altered: tensor ");
    assert_says(words);
    memory_file_free(&file);
    free_rig(&from);
}

int main(void) {
    alarm(900);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(weights_in_memory_are_the_bytes_of_a_file),
        cmocka_unit_test(bytes_may_lie_at_any_address),
        cmocka_unit_test(partial_loads_skip_as_from_a_file),
        cmocka_unit_test(a_sink_that_fails_ends_the_call_at_once),
        cmocka_unit_test(a_sink_must_be_able_to_write),
        cmocka_unit_test(values_that_are_not_finite_are_not_written),
        cmocka_unit_test(a_state_in_memory_is_the_bytes_of_a_file),
        cmocka_unit_test(the_options_of_a_state_are_compared),
        cmocka_unit_test(rank_0_writes_and_all_ranks_receive),
        cmocka_unit_test(bytes_cut_off_anywhere_change_nothing),
        cmocka_unit_test(flipped_bytes_are_refused_or_loaded_whole),
        cmocka_unit_test(a_header_longer_than_the_bytes_is_refused),
        cmocka_unit_test(offsets_are_those_of_the_bytes),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
