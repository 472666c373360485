/* SPDX-License-Identifier: Apache-2.0 */
/* What reading a file of weights costs at most, whoever made the file: memory, and time. */
#include "parallel/parallel.h"
#include "support/clock.h"
#include "support/engine_check.h"
#undef EXPECT_OK
#include <malloc.h>
#include <sys/wait.h>

#include "trainer_check.h"
#include "yoke/yoke.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define MEASURES false /* a sanitizer's allocator is larger */
#else
#define MEASURES true
#endif

#define HEADER ((size_t)15 << 20)
#define HOLE ((int64_t)1 << 40)

static char path[128];

/* A file of `header` and `holes` bytes behind it, which the disk does not store. */
static void write_file(const char *header, size_t length, int64_t holes) {
    FILE *file = fopen(in_folder("weights.safetensors", path), "w");
    uint64_t field = length;
    assert_non_null(file);
    assert_int_equal(fwrite(&field, 1, 8, file), 8);
    assert_int_equal(fwrite(header, 1, length, file), length);
    assert_int_equal(fflush(file), 0);
    if (holes > 0) assert_int_equal(ftruncate(fileno(file), 8 + (off_t)length + holes), 0);
    assert_int_equal(fclose(file), 0);
}

/* Memory. */

static size_t status_kib(const char *key) {
    char line[128];
    size_t kib = 0;
    FILE *status = fopen("/proc/self/status", "r");
    assert_non_null(status);
    while (fgets(line, sizeof line, status) != NULL)
        if (strncmp(line, key, strlen(key)) == 0) kib = strtoul(line + strlen(key), NULL, 10);
    assert_int_equal(fclose(status), 0);
    return kib;
}

/* In a process of its own, whose peak begins anew. Returns the bytes that `open` added to it. */
static size_t measure(yoke_status (*open)(void), yoke_status expected) {
    int results[2];
    size_t kib = 0;
    assert_int_equal(pipe(results), 0);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        malloc_trim(0); /* free memory of the parent would not count */
        FILE *reset = fopen("/proc/self/clear_refs", "w");
        if (reset == NULL || fputs("5", reset) < 0 || fclose(reset) != 0) _exit(2);
        size_t before = status_kib("VmRSS:");
        yoke_status status = open();
        if (status != expected) fprintf(stderr, "%d: %s\n", (int)status, yoke_last_error());
        kib = status_kib("VmHWM:") - before;
        _exit(write(results[1], &kib, sizeof kib) != sizeof kib || status != expected);
    }
    int ended;
    close(results[1]);
    assert_int_equal(read(results[0], &kib, sizeof kib), sizeof kib);
    close(results[0]);
    assert_int_equal(waitpid(child, &ended, 0), child);
    assert_int_equal(ended, 0);
    return kib << 10;
}

static yoke_status open_tensors(void) {
    yoke_tensor_file *file;
    yoke_status status = yoke_tensor_file_open(&file, path);
    if (status == YOKE_OK) yoke_tensor_file_close(file);
    return status;
}

static yoke_status open_description(void) {
    yoke_weights_description *description;
    yoke_status status = yoke_weights_description_open(&description, path);
    if (status == YOKE_OK) yoke_weights_description_close(description);
    return status;
}

typedef struct hostile {
    const char *what, *begin, *unit, *end; /* unit: repeated, with %d counted up */
    yoke_status (*open)(void);
    yoke_status expected;
} hostile;

static void expect_cheap(const hostile *given) {
    char *header = malloc(HEADER + 256);
    size_t length = strlen(given->begin);
    assert_non_null(header);
    memcpy(header, given->begin, length);
    for (int i = 0; length < HEADER - 128; i++)
        length += (size_t)sprintf(header + length, given->unit, i, i); // NOLINT
    length += (size_t)sprintf(header + length, "%s", given->end);
    write_file(header, length, 0);
    free(header);
    uint64_t begin = yoke_now_ns();
    size_t cost = measure(given->open, given->expected);
    double seconds = (double)(yoke_now_ns() - begin) * 1e-9;
    print_message("%-28s %5.2f headers, %.2f s\n", given->what, (double)cost / (double)length,
                  seconds);
    if (MEASURES) assert_true(cost <= 8 * length);
    assert_int_equal(unlink(path), 0);
}

#pragma GCC diagnostic ignored "-Wformat-nonliteral"

static void a_file_costs_at_most_eight_times_its_header(void **state) {
    (void)state;
    static const hostile files[] = {
        {"lists in a shape", "{\"a\":{\"shape\":[", "[],", "1]}}", open_tensors, YOKE_ERROR_DATA},
        {"lists in __metadata__", "{\"__metadata__\":{\"a\":[", "[],", "1]}}", open_tensors,
         YOKE_ERROR_DATA},
        {"lists", "[", "[],", "[]]", open_tensors, YOKE_ERROR_DATA},
        {"brackets", "", "[[[[[[[[", "", open_tensors, YOKE_ERROR_DATA},
        {"objects", "", "{\"a\":", "", open_tensors, YOKE_ERROR_DATA},
        {"empty tensors", "{", "\"%x\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]},",
         "\"_\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]}}", open_tensors, YOKE_OK},
        {"texts", "{\"__metadata__\":{", "\"%x\":\"\",", "\"_\":\"\"}}", open_tensors, YOKE_OK},
        {"texts twice", "{\"__metadata__\":{", "\"\":\"\",", "\"_\":\"\"}}", open_tensors,
         YOKE_ERROR_DATA},
        {"escapes", "{\"__metadata__\":{\"a\":\"", "\\u00e4", "\"}}", open_tensors, YOKE_OK},
        {"class names", "{\"__metadata__\":{\"yoke.class_names\":\"[", "\\\"\\\",", "\\\"\\\"]\"}}",
         open_description, YOKE_ERROR_DATA},
        {"lists of class names", "{\"__metadata__\":{\"yoke.class_names\":\"[", "[],", "[]]\"}}",
         open_description, YOKE_ERROR_DATA},
        {"means", "{\"__metadata__\":{\"yoke.mean\":\"[", "0,", "0]\"}}", open_description,
         YOKE_ERROR_DATA},
        {"loss weights", "{\"__metadata__\":{\"yoke.loss\":\"bce\",\"yoke.loss_weights\":\"[", "0,",
         "0]\"}}", open_description, YOKE_OK},
    };
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++)
        expect_cheap(&files[i]);
}

static void a_header_above_the_limit_is_refused_by_its_length(void **state) {
    (void)state;
    static const uint64_t lengths[] = {YOKE_HEADER_LIMIT + 1, 100000000};
    for (int i = 0; i < 2; i++) {
        FILE *file = fopen(in_folder("weights.safetensors", path), "w");
        assert_non_null(file);
        assert_int_equal(fwrite(&lengths[i], 1, 8, file), 8);
        assert_int_equal(fclose(file), 0);
        assert_int_equal(truncate(path, HOLE), 0);
        if (MEASURES) assert_true(measure(open_tensors, YOKE_ERROR_DATA) < (1 << 20));
        assert_int_equal(open_tensors(), YOKE_ERROR_DATA);
        assert_non_null(strstr(yoke_last_error(), "at most 16777216 are read"));
        assert_int_equal(unlink(path), 0);
    }
}

static check_engine engine;
static yoke_model *model;

/* Memory that calls with a sink, and with bytes, take beside the engine's: the largest tensor. */

enum { SIDE = 1024, LAYERS = 12 };
#define LARGEST ((size_t)SIDE * SIDE * sizeof(float))

static unsigned char *bytes;
static size_t byte_count;

static yoke_status count_bytes(void *payload, const void *data, size_t count) {
    (void)payload, (void)data;
    byte_count += count;
    return YOKE_OK;
}

static yoke_status keep_bytes(void *payload, const void *data, size_t count) {
    (void)payload;
    memcpy(bytes + byte_count, data, count);
    byte_count += count;
    return YOKE_OK;
}

static yoke_status write_to(yoke_status (*write)(void *, const void *, size_t)) {
    yoke_sink sink = YOKE_SINK_INIT;
    sink.write = write;
    byte_count = 0;
    return yoke_weights_write(engine.parallel, model, NULL, &sink);
}

static yoke_status write_bytes(void) {
    return write_to(count_bytes);
}

static yoke_status read_bytes(void) {
    return yoke_weights_read(engine.parallel, model, bytes, byte_count, NULL);
}

/* A process that has forked has no engine: the peak of this one begins anew. */
static size_t measure_here(yoke_status (*call)(void)) {
    malloc_trim(0);
    FILE *reset = fopen("/proc/self/clear_refs", "w");
    assert_non_null(reset);
    assert_true(fputs("5", reset) >= 0);
    assert_int_equal(fclose(reset), 0);
    size_t before = status_kib("VmRSS:");
    EXPECT_OK(call());
    return (status_kib("VmHWM:") - before) << 10;
}

static void a_file_in_memory_costs_one_tensor(void **state) {
    (void)state;
    yoke_linear_options fc = YOKE_LINEAR_OPTIONS_INIT;
    EXPECT_OK(yoke_model_create(&model, "wide", (yoke_shape){SIDE, 1, 1, true, false}));
    yoke_value x = yoke_model_input(model);
    for (int i = 0; i < LAYERS; i++) {
        char name[16];
        snprintf(name, sizeof name, "fc%d", i);
        fc.name = name;
        fc.out_features = SIDE;
        x = yoke_linear(model, x, &fc);
    }
    EXPECT_OK(yoke_model_finish(model, x, NULL));
    engine = check_engine_make(model, 1, check_options(1, YOKE_SCHEDULE_OVERLAP), NULL);
    size_t writing = measure_here(write_bytes);
    assert_true(byte_count > LAYERS * LARGEST);
    bytes = malloc(byte_count);
    assert_non_null(bytes);
    EXPECT_OK(write_to(keep_bytes));
    size_t reading = measure_here(read_bytes);
    print_message("%zu bytes: writing takes %.2f tensors, reading %.2f\n", byte_count,
                  (double)writing / (double)LARGEST, (double)reading / (double)LARGEST);
    if (MEASURES) assert_true(writing < 2 * LARGEST && reading < 2 * LARGEST);
    free(bytes);
    check_engine_free(&engine);
    yoke_model_destroy(model);
}

/* Time. */

static yoke_status load_weights(void) {
    return yoke_weights_load(engine.parallel, model, path);
}

static yoke_status load_state(void) {
    return yoke_state_load(engine.parallel, path, NULL);
}

/* The best of some tries: others use this machine, too. */
static void expect_fast_refusal(yoke_status (*open)(void), yoke_status expected, const char *word) {
    double best = 1e9;
    for (int i = 0; i < 10; i++) {
        uint64_t begin = yoke_now_ns();
        yoke_status status = open();
        double ms = (double)(yoke_now_ns() - begin) * 1e-6;
        if (status != expected || strstr(yoke_last_error(), word) == NULL)
            fail_msg("%d and no '%s': %s", (int)status, word, yoke_last_error());
        best = ms < best ? ms : best;
    }
    print_message("%-28s refused in %.2f ms\n", word, best);
    if (judges_clock()) assert_true(best < 50);
}

static void a_sparse_tebibyte_is_refused_in_50_ms(void **state) {
    (void)state;
    char header[256];
    FILE *file = fopen(in_folder("weights.safetensors", path), "w");
    assert_non_null(file);
    assert_int_equal(fclose(file), 0);
    assert_int_equal(truncate(path, HOLE), 0); /* zeros: a header of 0 bytes */
    expect_fast_refusal(open_tensors, YOKE_ERROR_DATA, "not valid JSON");
    write_file("{}", 2, HOLE);
    expect_fast_refusal(open_tensors, YOKE_ERROR_DATA, "belong to no tensor");
    snprintf(header, sizeof header,
             "{\"a\":{\"dtype\":\"F32\",\"shape\":[%lld],\"data_offsets\":"
             "[0,%lld]}}",
             (long long)HOLE / 4, (long long)HOLE);
    write_file(header, strlen(header), HOLE);
    assert_int_equal(open_tensors(), YOKE_OK); /* the header is right */
    model = check_model(true, 0);
    engine = check_engine_make(model, 1, check_options(4, YOKE_SCHEDULE_OVERLAP), NULL);
    expect_fast_refusal(load_weights, YOKE_ERROR_DATA, "not the weights of this");
    snprintf(header, sizeof header,
             "{\"__metadata__\":{\"yoke.format\":\"unsealed\"},\"a\":"
             "{\"dtype\":\"F32\",\"shape\":[%lld],\"data_offsets\":[0,%lld]}}",
             (long long)HOLE / 4, (long long)HOLE);
    write_file(header, strlen(header), HOLE);
    expect_fast_refusal(load_weights, YOKE_ERROR_DATA, "not the weights of this ");
    expect_fast_refusal(load_state, YOKE_ERROR_DATA, "weights of this");
    check_engine_free(&engine);
    yoke_model_destroy(model);
    assert_int_equal(unlink(path), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_file_costs_at_most_eight_times_its_header),
        cmocka_unit_test(a_header_above_the_limit_is_refused_by_its_length),
        cmocka_unit_test(a_file_in_memory_costs_one_tensor),
        cmocka_unit_test(a_sparse_tebibyte_is_refused_in_50_ms),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
