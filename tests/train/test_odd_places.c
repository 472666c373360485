/* SPDX-License-Identifier: Apache-2.0 */
/* Paths that lead to no file in a folder: what is saved there is refused or reaches whoever reads
 * it, never lost with OK; and what is read from there is read whole, or refused with the remedy. */
#include <fcntl.h>
#include <sys/mman.h>

#include "trainer_check.h"
#include "yoke/yoke.h"

typedef enum place { MEMORY, UNLINKED, PIPE, FULL, FOLDER, PLACES } place;

static const char *const names[PLACES] = {"a memfd", "an unlinked file", "a pipe", "/dev/full",
                                          "a folder"};

typedef struct opened {
    int descriptor;
    char path[128];
} opened;

static opened open_place(place kind) {
    opened made = {.descriptor = -1};
    char name[128];
    in_folder("odd", name);
    if (kind == MEMORY) made.descriptor = memfd_create("odd", MFD_CLOEXEC);
    if (kind == UNLINKED) made.descriptor = open(name, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (kind == UNLINKED) assert_int_equal(unlink(name), 0);
    if (kind == PIPE) assert_int_equal(mkfifo(name, 0600), 0);
    if (kind == MEMORY || kind == UNLINKED) {
        assert_true(made.descriptor >= 0);
        snprintf(made.path, sizeof made.path, "/proc/self/fd/%d", made.descriptor);
    } else {
        snprintf(made.path, sizeof made.path, "%s",
                 kind == FULL     ? "/dev/full"
                 : kind == FOLDER ? folder
                                  : name);
    }
    return made;
}

static void close_place(opened *made, place kind) {
    char name[128];
    if (made->descriptor >= 0) close(made->descriptor);
    if (kind == PIPE) assert_int_equal(unlink(in_folder("odd", name)), 0);
    assert_int_equal(access("/memfd:odd (deleted)", F_OK), -1);
    assert_int_equal(rmdir(folder), 0); /* nothing was left in it */
    assert_int_equal(mkdir(folder, 0700), 0);
}

/* A small engine and what else is saved. */
typedef struct rig {
    yoke_model *model;
    yoke_devices *devices;
    yoke_data_parallel *parallel;
    yoke_tensor_file *tensors;
} rig;

static rig make_rig(void) {
    rig made = {0};
    yoke_devices_options devices = YOKE_DEVICES_OPTIONS_INIT;
    yoke_data_parallel_options options = YOKE_DATA_PARALLEL_OPTIONS_INIT;
    double value = 1;
    yoke_tensor_file_entry entry = {
        .struct_size = sizeof entry, .name = "one", .type = YOKE_TENSOR_FLOAT64};
    devices.list = "cpu";
    devices.threads = 1;
    options.batch = 2;
    options.algorithm = YOKE_ALGORITHM_DIRECT;
    EXPECT_OK(yoke_model_preset(&made.model, "mlp:width=4", yoke_shape_image(1, 4, 4), 3, NULL));
    EXPECT_OK(yoke_devices_open(&made.devices, &devices));
    EXPECT_OK(yoke_data_parallel_create(&made.parallel, made.model, made.devices, NULL, &options));
    EXPECT_OK(yoke_tensor_file_create(&made.tensors));
    EXPECT_OK(yoke_tensor_file_add(made.tensors, &entry, &value));
    return made;
}

static void free_rig(rig *made) {
    yoke_tensor_file_close(made->tensors);
    yoke_data_parallel_destroy(made->parallel);
    yoke_devices_close(made->devices);
    yoke_model_destroy(made->model);
}

/* Saves. */

static yoke_status save_weights(rig *from, const char *path) {
    return yoke_weights_save(from->parallel, from->model, path);
}

static yoke_status save_described(rig *from, const char *path) {
    yoke_weights_info info = {.struct_size = sizeof info, .model = "mlp"};
    return yoke_weights_save_described(from->parallel, from->model, &info, path);
}

static yoke_status save_onnx(rig *from, const char *path) {
    return yoke_weights_save_onnx(from->parallel, from->model, path);
}

static yoke_status save_state(rig *from, const char *path) {
    return yoke_state_save(from->parallel, path);
}

static yoke_status save_tensors(rig *from, const char *path) {
    return yoke_tensor_file_save(from->tensors, path);
}

static yoke_status write_trace(rig *from, const char *path) {
    return yoke_trace_save(yoke_data_parallel_trace(from->parallel), path);
}

static int warnings; /* of the last run: it goes on where a line of metrics cannot be written */

/* A run of one step with `path` at the option's offset. */
static yoke_status run_with(size_t offset, const char *path) {
    log_of_run run = {0};
    yoke_trainer_options options = small(&run);
    options.steps = 1;
    warnings = 0;
    memcpy((char *)&options + offset, &path, sizeof path);
    yoke_status status = train(&run, &options);
    yoke_trainer_destroy(run.trainer);
    warnings = run.warnings;
    return status;
}

static yoke_status run_saves(rig *from, const char *path) {
    (void)from;
    return run_with(offsetof(yoke_trainer_options, save), path);
}

static yoke_status run_traces(rig *from, const char *path) {
    (void)from;
    return run_with(offsetof(yoke_trainer_options, trace), path);
}

static yoke_status run_measures(rig *from, const char *path) {
    (void)from;
    return run_with(offsetof(yoke_trainer_options, metrics), path);
}

static yoke_status run_records(rig *from, const char *path) {
    log_of_run run = {0};
    yoke_trainer_options options = small(&run);
    yoke_async_options asynchronous = YOKE_ASYNC_OPTIONS_INIT;
    (void)from;
    asynchronous.record_order = path;
    options.asynchronous = &asynchronous;
    options.mode = YOKE_MODE_ASYNC;
    options.devices = "2xcpu";
    options.steps = 1;
    yoke_status status = train(&run, &options);
    yoke_trainer_destroy(run.trainer);
    return status;
}

static const struct {
    const char *name;
    yoke_status (*save)(rig *from, const char *path);
    bool appends; /* to what is open already */
} saves[] = {{"yoke_weights_save", save_weights, false},
             {"yoke_weights_save_described", save_described, false},
             {"yoke_weights_save_onnx", save_onnx, false},
             {"yoke_state_save", save_state, false},
             {"yoke_tensor_file_save", save_tensors, false},
             {"yoke_trace_save", write_trace, false},
             {"yoke_trainer_options.save", run_saves, false},
             {"yoke_trainer_options.trace", run_traces, false},
             {"yoke_trainer_options.metrics", run_measures, true},
             {"yoke_async_options.record_order", run_records, true}};

static void no_save_is_lost(void **state) {
    (void)state;
    rig from = make_rig();
    int wrong = 0;
    for (size_t s = 0; s < sizeof saves / sizeof saves[0]; s++)
        for (place kind = 0; kind < PLACES; kind++) {
            opened to = open_place(kind);
            struct stat file = {0};
            yoke_status status = saves[s].save(&from, to.path);
            if (to.descriptor >= 0) assert_int_equal(fstat(to.descriptor, &file), 0);
            bool warned = saves[s].save == run_measures && warnings > 0;
            bool kept = saves[s].appends && status == YOKE_OK && file.st_size > 0;
            bool refused = status == YOKE_ERROR_ARGUMENT || status == YOKE_ERROR_IO ||
                           status == YOKE_ERROR_DEVICE; /* without ONNX */
            if (!kept && !refused && !warned) {
                print_error("%s to %s: %s, %ld bytes\n", saves[s].name, names[kind],
                            yoke_status_name(status), (long)file.st_size);
                wrong++;
            }
            close_place(&to, kind);
        }
    assert_int_equal(wrong, 0);
    free_rig(&from);
}

/* Loads. */

static void weights_are_read_from_what_has_no_name(void **state) {
    (void)state;
    rig from = make_rig();
    char path[128], way[64];
    unsigned char bytes[16384];
    EXPECT_OK(yoke_weights_save(from.parallel, from.model, in_folder("odd", path)));
    int file = open(path, O_RDONLY | O_CLOEXEC), memory = memfd_create("odd", MFD_CLOEXEC);
    ssize_t count = read(file, bytes, sizeof bytes);
    assert_true(count > 0 && count < (ssize_t)sizeof bytes);
    assert_int_equal(write(memory, bytes, (size_t)count), count);
    assert_int_equal(unlink(path), 0);
    for (int i = 0; i < 2; i++) {
        snprintf(way, sizeof way, "/proc/self/fd/%d", i == 0 ? file : memory);
        EXPECT_OK(yoke_weights_load(from.parallel, from.model, way));
        EXPECT_OK(yoke_weights_check(from.model, way));
    }
    close(file);
    close(memory);
    free_rig(&from);
}

static yoke_status load_weights(rig *to, const char *path) {
    return yoke_weights_load(to->parallel, to->model, path);
}

static yoke_status load_state(rig *to, const char *path) {
    return yoke_state_load(to->parallel, path, NULL);
}

static yoke_status load_description(rig *to, const char *path) {
    yoke_weights_description *description = NULL;
    (void)to;
    return yoke_weights_description_open(&description, path);
}

static yoke_status load_checkpoint(rig *to, const char *path) {
    yoke_checkpoint *checkpoint = NULL;
    (void)to;
    return yoke_checkpoint_open(&checkpoint, path);
}

static yoke_status load_tensors(rig *to, const char *path) {
    yoke_tensor_file *file = NULL;
    (void)to;
    return yoke_tensor_file_open(&file, path);
}

static yoke_status load_onnx(rig *to, const char *path) {
    yoke_model *model = NULL;
    (void)to;
    return yoke_model_load_onnx(&model, path, NULL);
}

/* A pipe with a name and without a writer, an open one through /proc, and a folder. */
static void what_has_no_size_is_refused_with_the_remedy(void **state) {
    (void)state;
    static yoke_status (*const loads[])(rig *, const char *) = {
        load_weights, load_state, load_description, load_checkpoint, load_tensors, load_onnx};
    rig to = make_rig();
    char path[128], way[64];
    int pair[2];
    assert_int_equal(mkfifo(in_folder("odd", path), 0600), 0);
    assert_int_equal(pipe(pair), 0);
    snprintf(way, sizeof way, "/proc/self/fd/%d", pair[0]);
    for (size_t i = 0; i < sizeof loads / sizeof loads[0]; i++)
        for (int kind = 0; kind < 3; kind++) {
            const char *from = kind == 0 ? path : kind == 1 ? way : folder;
            yoke_status status = loads[i](&to, from);
            if (status == YOKE_ERROR_DEVICE) continue; /* without ONNX */
            assert_int_equal(status, YOKE_ERROR_IO);
            assert_non_null(strstr(yoke_last_error(), from));
            assert_non_null(strstr(yoke_last_error(), kind < 2 ? "is a pipe" : "is a folder"));
            if (kind < 2)
                assert_non_null(strstr(yoke_last_error(), "the call that reads from memory"));
        }
    close(pair[0]);
    close(pair[1]);
    assert_int_equal(unlink(path), 0);
    free_rig(&to);
}

int main(void) {
    alarm(600); /* a call that waits for a pipe's other end fails the test */
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_save_is_lost),
        cmocka_unit_test(weights_are_read_from_what_has_no_name),
        cmocka_unit_test(what_has_no_size_is_refused_with_the_remedy),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
