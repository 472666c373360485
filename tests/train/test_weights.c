/* SPDX-License-Identifier: Apache-2.0 */
/* Files of a run: weights, metrics, and disks that refuse them. */
#include "parallel/parallel.h"
#include "support/file_place.h"
#include "trainer_check.h"
#include "yoke/transformer.h"
#include "yoke/volume.h"

#include <jansson.h>
#include <sys/resource.h>

static void weights_saved_and_loaded_are_the_same_bits(void **state) {
    (void)state;
    char path[128], again[128];
    log_of_run run = {0}, next = {0};
    yoke_trainer_options options = small(&run);
    options.model = "resnet20"; /* batch norm: running statistics and a counter */
    options.dataset = "synthetic:3x8x8,classes=3,rows=20";
    options.batch = 8;
    options.steps = 2;
    options.save = in_folder("weights.safetensors", path);
    EXPECT_OK(train(&run, &options));
    assert_int_equal(run.saved, 1);
    options.init = path;
    options.save = in_folder("again.safetensors", again);
    options.seed = 99;
    options.payload = &next;
    options.devices = devices_of(2);
    EXPECT_OK(yoke_trainer_create(&next.trainer, &options));
    assert_true(hash_of(next.trainer) == hash_of(run.trainer));
    yoke_safetensors file;
    int64_t batches;
    EXPECT_OK(yoke_safetensors_open(&file, FROM(path)));
    EXPECT_OK(yoke_safetensors_integer(
        &file, yoke_safetensors_find(&file, "bn1.num_batches_tracked"), &batches));
    assert_int_equal(batches, 2);
    yoke_safetensors_close(&file);
    yoke_trainer_destroy(run.trainer);
    yoke_trainer_destroy(next.trainer);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(access(again, F_OK), -1); /* only run saves */
}

/* All tensors, in the order of the file. */
static void write_data(yoke_file_writer *writer, const yoke_safetensors *file) {
    for (int i = 0; i < file->count; i++) {
        char *bytes = malloc(file->tensors[i].bytes + 1);
        assert_non_null(bytes);
        EXPECT_OK(
            yoke_safetensors_bytes(file, &file->tensors[i], 0, bytes, file->tensors[i].bytes));
        EXPECT_OK(yoke_file_write(writer, bytes, file->tensors[i].bytes));
        free(bytes);
    }
}

/* Writes a tensor table as nn.DataParallel saves it: every name with "module." before it. */
static void write_with_prefix(const char *from, const char *to) {
    yoke_safetensors file;
    yoke_file_tensor tensors[32];
    char names[32][64];
    yoke_file_writer writer;
    EXPECT_OK(yoke_safetensors_open(&file, FROM(from)));
    assert_true(file.count <= 32);
    for (int i = 0; i < file.count; i++) {
        tensors[i] = file.tensors[i];
        snprintf(names[i], sizeof names[i], "module.%s", file.tensors[i].name);
        tensors[i].name = names[i];
    }
    EXPECT_OK(yoke_safetensors_arrange(tensors, file.count));
    EXPECT_OK(yoke_safetensors_create(&writer, TO(to), tensors, file.count, NULL, 0));
    write_data(&writer, &file);
    EXPECT_OK(yoke_file_commit(&writer));
    yoke_safetensors_close(&file);
}

static void a_module_prefix_is_accepted(void **state) {
    (void)state;
    char path[128], prefixed[128];
    log_of_run run = {0}, next = {0};
    yoke_trainer_options options = small(&run);
    options.save = in_folder("plain", path);
    EXPECT_OK(train(&run, &options));
    write_with_prefix(path, in_folder("prefixed", prefixed));
    options.save = NULL;
    options.init = prefixed;
    options.seed = 99;
    EXPECT_OK(yoke_trainer_create(&next.trainer, &options));
    assert_true(hash_of(next.trainer) == hash_of(run.trainer));
    yoke_trainer_destroy(run.trainer);
    yoke_trainer_destroy(next.trainer);
    assert_int_equal(unlink(path) + unlink(prefixed), 0);
}

/* As PyTorch saves a convolution over volumes: [3, 2 * 2, 3, 3] is [3, 2, 2, 3, 3]. */
static void write_as_volume(const char *path, const float *values, int64_t planes) {
    yoke_file_tensor tensors[] = {
        {.name = "conv.bias", .dtype = YOKE_DTYPE_F32, .ndim = 1, .shape = {3}},
        {.name = "conv.weight",
         .dtype = YOKE_DTYPE_F32,
         .ndim = 5,
         .shape = {3, 4 / planes, planes, 3, 3}}};
    yoke_file_writer writer;
    EXPECT_OK(yoke_safetensors_arrange(tensors, 2));
    EXPECT_OK(yoke_safetensors_create(&writer, TO(path), tensors, 2, NULL, 0));
    EXPECT_OK(yoke_file_write(&writer, values, (3 + 108) * sizeof *values));
    EXPECT_OK(yoke_file_commit(&writer));
}

static void a_weight_over_volumes_has_five_dimensions_in_pytorchs_files(void **state) {
    (void)state;
    char path[128];
    float values[3 + 108], read[108];
    yoke_conv3d_options conv = YOKE_CONV3D_OPTIONS_INIT;
    yoke_model *model = NULL;
    yoke_devices *devices = NULL;
    yoke_data_parallel *parallel = NULL;
    yoke_devices_options open = {.struct_size = sizeof open, .list = devices_of(1)};
    yoke_data_parallel_options options = YOKE_DATA_PARALLEL_OPTIONS_INIT;
    conv.name = "conv", conv.depth = 3, conv.out_channels = 3;
    conv.kernel[0] = 2, conv.kernel[1] = conv.kernel[2] = 3;
    for (int i = 0; i < 3 + 108; i++)
        values[i] = (float)i;
    EXPECT_OK(yoke_model_create(&model, "film", yoke_shape_image(2, 12, 4)));
    yoke_value made = yoke_conv3d(model, yoke_model_input(model), &conv);
    EXPECT_OK(yoke_model_finish(model, yoke_flatten(model, made), NULL));
    options.batch = 2;
    EXPECT_OK(yoke_devices_open(&devices, &open));
    EXPECT_OK(yoke_data_parallel_create(&parallel, model, devices, NULL, &options));
    write_as_volume(in_folder("volume", path), values, 2);
    EXPECT_OK(yoke_weights_load(parallel, model, path));
    EXPECT_OK(yoke_data_parallel_read(parallel, "conv.weight", read, 108));
    assert_memory_equal(read, values + 3, sizeof read);
    assert_int_equal(unlink(path), 0);
    yoke_data_parallel_destroy(parallel);
    yoke_devices_close(devices);
    yoke_model_destroy(model);
}

static void weights_of_another_model_are_refused_by_name_and_change_nothing(void **state) {
    (void)state;
    char path[128];
    log_of_run run = {0}, next = {0};
    yoke_trainer_options options = small(&run);
    options.save = in_folder("mlp", path);
    EXPECT_OK(train(&run, &options));
    yoke_trainer_destroy(run.trainer);
    options.save = NULL;
    options.payload = &next;
    options.dataset = "synthetic:1x8x8,classes=4,rows=50"; /* the last layer has another shape */
    EXPECT_OK(yoke_trainer_create(&next.trainer, &options));
    uint64_t before = hash_of(next.trainer);
    yoke_model *model;
    EXPECT_OK(yoke_model_preset(&model, MODEL, (yoke_shape){1, 8, 8, false}, 4, NULL));
    assert_int_equal(yoke_weights_load(yoke_trainer_engine(next.trainer), model, path),
                     YOKE_ERROR_DATA);
    assert_non_null(strstr(yoke_last_error(), "2 of a different shape"));
    assert_non_null(strstr(yoke_last_error(), "[3]"));
    assert_true(hash_of(next.trainer) == before);
    yoke_model_destroy(model);
    /* A model that fits the file and not the engine. */
    EXPECT_OK(yoke_model_preset(&model, MODEL, (yoke_shape){1, 8, 8, false}, 3, NULL));
    assert_int_equal(yoke_weights_load(yoke_trainer_engine(next.trainer), model, path),
                     YOKE_ERROR_DATA);
    assert_true(hash_of(next.trainer) == before);
    yoke_trainer_destroy(next.trainer);
    yoke_model_destroy(model);
    options.model = "resnet20";
    options.dataset = "synthetic:3x8x8,classes=3,rows=50";
    options.init = path;
    assert_int_equal(yoke_trainer_create(&next.trainer, &options), YOKE_ERROR_DATA);
    assert_null(next.trainer);
    assert_non_null(strstr(yoke_last_error(), "missing (conv1.weight"));
    assert_non_null(strstr(yoke_last_error(), "unknown ("));
    assert_int_equal(unlink(path), 0);
}

/* Partial loading. */

/* Trains three classes, saves, and opens a trainer of four classes; both have seeds of their own.
 */
static void open_with_other_classes(log_of_run *run, log_of_run *next, const char *path) {
    yoke_trainer_options options = small(run);
    options.save = path;
    EXPECT_OK(train(run, &options));
    options.save = NULL;
    options.payload = next;
    options.seed = 99;
    options.dataset = "synthetic:1x8x8,classes=4,rows=50";
    options.init = path;
    options.init_allow_missing = "fc3.*";
    EXPECT_OK(yoke_trainer_create(&next->trainer, &options));
}

static bool same_tensor(yoke_trainer *one, yoke_trainer *other, const char *name, size_t count) {
    float *a = malloc(count * sizeof *a), *b = malloc(count * sizeof *b);
    EXPECT_OK(yoke_data_parallel_read(yoke_trainer_engine(one), name, a, count));
    EXPECT_OK(yoke_data_parallel_read(yoke_trainer_engine(other), name, b, count));
    bool same = memcmp(a, b, count * sizeof *a) == 0;
    free(a);
    free(b);
    return same;
}

static void a_replaced_layer_keeps_its_initial_values_and_the_rest_is_loaded(void **state) {
    (void)state;
    char path[128];
    log_of_run run = {0}, next = {0}, fresh = {0};
    open_with_other_classes(&run, &next, in_folder("three", path));
    assert_int_equal(next.skipped, 2);
    assert_string_equal(next.warning,
                        "fc3.bias is [3] in the file and [4] in the model, which keeps its own");
    yoke_trainer_options options = small(&fresh);
    options.seed = 99;
    options.dataset = "synthetic:1x8x8,classes=4,rows=50";
    EXPECT_OK(yoke_trainer_create(&fresh.trainer, &options));
    assert_true(same_tensor(next.trainer, fresh.trainer, "fc3.weight", 4 * WIDTH));
    assert_true(same_tensor(next.trainer, fresh.trainer, "fc3.bias", 4));
    assert_true(same_tensor(next.trainer, run.trainer, "fc1.weight", WIDTH * 64));
    assert_true(same_tensor(next.trainer, run.trainer, "fc2.bias", WIDTH));
    assert_false(same_tensor(next.trainer, fresh.trainer, "fc1.weight", WIDTH * 64));
    yoke_trainer_destroy(run.trainer);
    yoke_trainer_destroy(next.trainer);
    yoke_trainer_destroy(fresh.trainer);
    assert_int_equal(unlink(path), 0);
}

/* Copies a file of weights; `change` may rename a tensor or spoil its values. */
static void copy_changed(const char *from, const char *to,
                         void (*change)(yoke_file_tensor *tensor, char name[64], float *values)) {
    yoke_safetensors file;
    yoke_file_tensor tensors[16];
    char names[16][64];
    void *bytes[16];
    yoke_file_writer writer;
    EXPECT_OK(yoke_safetensors_open(&file, FROM(from)));
    assert_true(file.count <= 16);
    for (int i = 0; i < file.count; i++) {
        tensors[i] = file.tensors[i];
        snprintf(names[i], sizeof names[i], "%s", file.tensors[i].name);
        tensors[i].name = names[i];
        bytes[i] = malloc(tensors[i].bytes + 1);
        assert_non_null(bytes[i]);
        EXPECT_OK(yoke_safetensors_bytes(&file, &tensors[i], 0, bytes[i], tensors[i].bytes));
        change(&tensors[i], names[i], bytes[i]);
    }
    EXPECT_OK(yoke_safetensors_arrange(tensors, file.count));
    EXPECT_OK(yoke_safetensors_create(&writer, TO(to), tensors, file.count, NULL, 0));
    for (int i = 0; i < file.count; i++) /* sorted anew */
        for (int k = 0; k < file.count; k++)
            if (strcmp(names[k], tensors[i].name) == 0)
                EXPECT_OK(yoke_file_write(&writer, bytes[k], file.tensors[k].bytes));
    EXPECT_OK(yoke_file_commit(&writer));
    for (int i = 0; i < file.count; i++)
        free(bytes[i]);
    yoke_safetensors_close(&file);
}

static void rename_last(yoke_file_tensor *tensor, char name[64], float *values) {
    (void)tensor;
    (void)values;
    if (strncmp(name, "fc3", 3) == 0) memcpy(name, "top", 3);
}

static void spoil_fc2(yoke_file_tensor *tensor, char name[64], float *values) {
    (void)tensor;
    if (strcmp(name, "fc2.weight") == 0) values[5] = NAN;
}

/* Refused as it is; loaded with the patterns, and then `skips` tensors are left out. */
static void check_changed(void (*change)(yoke_file_tensor *, char[64], float *), const char *error,
                          const char *missing, const char *unknown, int skips) {
    char path[128], changed[128];
    log_of_run run = {0}, next = {0};
    yoke_trainer_options options = small(&run);
    options.save = in_folder("whole", path);
    EXPECT_OK(train(&run, &options));
    copy_changed(path, in_folder("changed", changed), change);
    options.save = NULL;
    options.seed = 99;
    options.payload = &next;
    EXPECT_OK(yoke_trainer_create(&next.trainer, &options));
    yoke_data_parallel *engine = yoke_trainer_engine(next.trainer);
    const yoke_model *model = yoke_data_parallel_model(engine);
    uint64_t before = hash_of(next.trainer);
    assert_int_equal(yoke_weights_load(engine, model, changed), YOKE_ERROR_DATA);
    assert_non_null(strstr(yoke_last_error(), error));
    assert_true(hash_of(next.trainer) == before);
    yoke_trainer_destroy(next.trainer);
    options.init = changed;
    options.init_allow_missing = missing;
    options.init_allow_unknown = unknown;
    EXPECT_OK(yoke_trainer_create(&next.trainer, &options));
    assert_int_equal(next.skipped, skips);
    assert_true(same_tensor(next.trainer, run.trainer, "fc1.weight", WIDTH * 64));
    yoke_trainer_destroy(next.trainer);
    yoke_trainer_destroy(run.trainer);
    assert_int_equal(unlink(path) + unlink(changed), 0);
}

static void unknown_tensors_are_ignored_if_allowed(void **state) {
    (void)state;
    check_changed(rename_last, "2 missing (fc3.weight, fc3.bias); 2 unknown (top.", "fc3.*",
                  "nothing,top.*", 4);
}

static void a_value_that_is_not_finite_is_refused_by_name_and_element(void **state) {
    (void)state;
    check_changed(spoil_fc2, "element 5 of fc2.weight is nan", "*.weight", NULL, 1);
}

static void patterns_for_no_tensor_of_the_model_are_refused(void **state) {
    (void)state;
    char path[128];
    log_of_run run = {0}, next = {0};
    yoke_trainer_options options = small(&run);
    options.save = in_folder("whole", path);
    EXPECT_OK(train(&run, &options));
    yoke_trainer_destroy(run.trainer);
    options.init = path;
    options.init_allow_missing = "fc3.*,fc3.wieght";
    options.payload = &next;
    assert_int_equal(yoke_trainer_create(&next.trainer, &options), YOKE_ERROR_ARGUMENT);
    assert_non_null(strstr(yoke_last_error(), "did you mean \"fc3.weight\"?"));
    assert_int_equal(unlink(path), 0);
}

static void every_line_of_metrics_is_a_whole_object(void **state) {
    (void)state;
    char path[128], line[512];
    log_of_run run = {0};
    yoke_trainer_options options = small(&run);
    options.epochs = 2;
    options.evaluate_every = 1;
    options.metrics = in_folder("metrics.jsonl", path);
    EXPECT_OK(train(&run, &options));
    yoke_trainer_destroy(run.trainer);
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    int steps = 0, evaluations = 0;
    while (fgets(line, sizeof line, file) != NULL) {
        json_int_t step, epoch, rows;
        double loss, rate, milliseconds, accuracy;
        json_t *object = json_loads(line, JSON_REJECT_DUPLICATES, NULL);
        assert_non_null(object);
        if (json_object_get(object, "test_accuracy") != NULL) {
            assert_int_equal(json_unpack(object, "{s:I,s:I,s:F,s:F,s:I!}", "step", &step, "epoch",
                                         &epoch, "test_accuracy", &accuracy, "test_loss", &loss,
                                         "rows", &rows),
                             0);
            assert_int_equal(rows, 10);
            evaluations++;
        } else {
            assert_int_equal(json_unpack(object, "{s:I,s:I,s:F,s:F,s:I,s:F!}", "step", &step,
                                         "epoch", &epoch, "train_loss", &loss, "lr", &rate, "rows",
                                         &rows, "step_ms", &milliseconds),
                             0);
            assert_int_equal(step, steps + 1);
            assert_int_equal(epoch, 1 + steps / 4);
            assert_true(loss == run.losses[steps] && rate == 0.05 && milliseconds > 0);
            steps++;
        }
        json_decref(object);
    }
    fclose(file);
    assert_int_equal(steps, 8);
    assert_int_equal(evaluations, 2);
    assert_int_equal(unlink(path), 0);
}

/* A full disk, reached through a link: a writer that replaced the file would hurt the link only. */
static const char *full_disk(char path[128]) {
    assert_int_equal(symlink("/dev/full", in_folder("full", path)), 0);
    return path;
}

static void a_full_disk_costs_the_metrics_one_warning_and_not_the_run(void **state) {
    (void)state;
    char path[128];
    log_of_run run = {0};
    yoke_trainer_options options = small(&run);
    options.metrics = full_disk(path);
    EXPECT_OK(train(&run, &options));
    assert_int_equal(run.steps, 4);
    assert_int_equal(run.warnings, 1);
    assert_non_null(strstr(run.warning, path));
    yoke_trainer_destroy(run.trainer);
    assert_int_equal(unlink(path), 0);
}

/* Somebody removes the folder during the run. */
static char lost[128];

static void on_event_removing_the_folder(const yoke_event *event, void *payload) {
    if (event->kind == YOKE_EVENT_READY) assert_int_equal(rmdir(lost), 0);
    on_event(event, payload);
}

static yoke_trainer_options losing(log_of_run *run, char path[192]) {
    yoke_trainer_options options = small(run);
    assert_int_equal(mkdir(in_folder("lost", lost), 0700), 0);
    snprintf(path, 192, "%s/weights", lost);
    assert_int_equal(chdir(folder), 0);
    options.save = path;
    options.on_event = on_event_removing_the_folder;
    return options;
}

/* What the text says to be in the working directory has the weights of the run's end. */
static void expect_rescued(const log_of_run *run, const char *text) {
    static const char says[] = "; the weights are in ";
    char path[160], *end = path + sizeof "./yoke-rescued-XXXXXX" - 1;
    const char *place = strstr(text, says);
    assert_non_null(place);
    snprintf(path, sizeof path, "%s", place + strlen(says));
    assert_memory_equal(path, "./yoke-rescued-", sizeof "./yoke-rescued-" - 1);
    assert_string_equal(end, "/weights");
    assert_int_equal(run->saved, 1);
    yoke_data_parallel *engine = yoke_trainer_engine(run->trainer);
    uint64_t ended = hash_of(run->trainer);
    EXPECT_OK(yoke_weights_load(engine, yoke_data_parallel_model(engine), path));
    assert_true(hash_of(run->trainer) == ended);
    assert_int_equal(unlink(path), 0);
    *end = '\0';
    assert_int_equal(rmdir(path), 0);
}

static void weights_whose_folder_is_gone_are_elsewhere_and_the_error_says_where(void **state) {
    (void)state;
    char path[192];
    log_of_run run = {0};
    yoke_trainer_options options = losing(&run, path);
    assert_int_equal(train(&run, &options), YOKE_ERROR_IO);
    assert_int_equal(run.steps, 4);
    assert_non_null(strstr(yoke_last_error(), path));
    expect_rescued(&run, yoke_last_error());
    yoke_trainer_destroy(run.trainer);
}

static void weights_are_elsewhere_after_a_stop_or_a_bad_loss_too(void **state) {
    (void)state;
    char path[192];
    log_of_run stopped = {.stop_after = 2}, exploded = {0};
    yoke_trainer_options options = losing(&stopped, path);
    options.epochs = 100;
    assert_int_equal(train(&stopped, &options), YOKE_ERROR_IO);
    assert_non_null(strstr(yoke_last_error(), path));
    expect_rescued(&stopped, yoke_last_error());
    const yoke_optimizer_options steep = {
        .struct_size = sizeof steep, .learning_rate = 1e30, .momentum = 0.9};
    options = losing(&exploded, path);
    options.epochs = 100;
    options.optimizer = &steep;
    assert_int_equal(train(&exploded, &options), YOKE_ERROR_NUMERIC);
    assert_non_null(strstr(yoke_last_error(), "not finite"));
    assert_int_equal(exploded.warnings, 1);
    assert_non_null(strstr(exploded.warning, path));
    expect_rescued(&exploded, exploded.warning);
    yoke_trainer_destroy(stopped.trainer);
    yoke_trainer_destroy(exploded.trainer);
}

/* A limit on the size of files stands in for a full disk; SIGXFSZ would kill this process. */
static void a_save_that_would_not_fit_is_refused_before_the_first_step(void **state) {
    (void)state;
    char path[128];
    struct rlimit before, limit;
    log_of_run run = {0};
    yoke_trainer_options options = small(&run);
    options.save = in_folder("large", path);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    limit = before;
    limit.rlim_cur = 10000;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
    yoke_status status = train(&run, &options);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    assert_int_equal(status, YOKE_ERROR_IO);
    assert_non_null(strstr(yoke_last_error(), path));
    assert_non_null(strstr(yoke_last_error(), "ulimit -f"));
    assert_int_equal(run.ready + run.steps, 0);
    yoke_trainer_destroy(run.trainer);
    assert_int_equal(access(path, F_OK), -1);
}

static void weights_need_a_file_and_no_pipe_or_device(void **state) {
    (void)state;
    char path[128];
    assert_int_equal(mkfifo(in_folder("pipe", path), 0600), 0);
    for (int i = 0; i < 2; i++) {
        log_of_run run = {0};
        yoke_trainer_options options = small(&run);
        options.save = i == 0 ? path : "/dev/null";
        assert_int_equal(train(&run, &options), YOKE_ERROR_ARGUMENT);
        assert_non_null(strstr(yoke_last_error(), options.save));
        assert_null(run.trainer);
    }
    assert_int_equal(unlink(path), 0);
}

static void files_that_cannot_be_written_are_refused_before_training(void **state) {
    (void)state;
    for (int i = 0; i < 3; i++) {
        log_of_run run = {0};
        yoke_trainer_options options = small(&run);
        const char *path = "/no-such-folder/file";
        *(i == 0 ? &options.save : i == 1 ? &options.trace : &options.metrics) = path;
        assert_int_equal(train(&run, &options), YOKE_ERROR_IO);
        assert_non_null(strstr(yoke_last_error(), path));
        assert_null(run.trainer);
    }
}

static void spoiled_weights_do_not_replace_good_ones(void **state) {
    (void)state;
    char path[128];
    log_of_run run = {0};
    yoke_trainer_options options = small(&run);
    options.save = in_folder("good.safetensors", path);
    EXPECT_OK(train(&run, &options));
    yoke_data_parallel *engine = yoke_trainer_engine(run.trainer);
    const yoke_model *model = yoke_data_parallel_model(engine);
    yoke_tensor_info info = {.struct_size = sizeof info};
    EXPECT_OK(yoke_model_tensor(model, 0, &info));
    uint64_t good, loaded;
    EXPECT_OK(yoke_data_parallel_hash(engine, &good));
    float *values = calloc(info.count, sizeof *values);
    values[info.count - 1] = INFINITY;
    EXPECT_OK(yoke_data_parallel_write(engine, info.name, values, info.count));
    assert_int_equal(yoke_weights_save(engine, model, path), YOKE_ERROR_NUMERIC);
    assert_non_null(strstr(yoke_last_error(), info.name));
    EXPECT_OK(yoke_weights_load(engine, model, path));
    EXPECT_OK(yoke_data_parallel_hash(engine, &loaded));
    assert_true(good == loaded);
    free(values);
    yoke_trainer_destroy(run.trainer);
    assert_int_equal(unlink(path), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(weights_saved_and_loaded_are_the_same_bits),
        cmocka_unit_test(a_module_prefix_is_accepted),
        cmocka_unit_test(a_weight_over_volumes_has_five_dimensions_in_pytorchs_files),
        cmocka_unit_test(weights_of_another_model_are_refused_by_name_and_change_nothing),
        cmocka_unit_test(a_replaced_layer_keeps_its_initial_values_and_the_rest_is_loaded),
        cmocka_unit_test(unknown_tensors_are_ignored_if_allowed),
        cmocka_unit_test(a_value_that_is_not_finite_is_refused_by_name_and_element),
        cmocka_unit_test(patterns_for_no_tensor_of_the_model_are_refused),
        cmocka_unit_test(every_line_of_metrics_is_a_whole_object),
        cmocka_unit_test(a_full_disk_costs_the_metrics_one_warning_and_not_the_run),
        cmocka_unit_test(weights_whose_folder_is_gone_are_elsewhere_and_the_error_says_where),
        cmocka_unit_test(weights_are_elsewhere_after_a_stop_or_a_bad_loss_too),
        cmocka_unit_test(a_save_that_would_not_fit_is_refused_before_the_first_step),
        cmocka_unit_test(weights_need_a_file_and_no_pipe_or_device),
        cmocka_unit_test(spoiled_weights_do_not_replace_good_ones),
        cmocka_unit_test(files_that_cannot_be_written_are_refused_before_training),
    };
    return RUN_ON_DEVICES(tests, make_folder, remove_folder);
}
