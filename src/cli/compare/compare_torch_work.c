/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/compare/compare_torch_work.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/base.h"
#include "cli/cli.h"

extern const char compare_torch_script[], compare_torch_models[]; /* cmake/embed.cmake makes them */

static const char *const files[] = {COMPARE_TORCH_PROGRAM, "pytorch_models.py", "work.json",
                                    "weights", "batch"};
#define FILE_COUNT ((int)(sizeof files / sizeof files[0]))

bool compare_torch_has_cuda(const compare_setup *setup) {
    return strncmp(setup->names[0], "cpu", 3) != 0;
}

void compare_torch_path(char path[COMPARE_TORCH_PATH], const char *folder, const char *name) {
    snprintf(path, COMPARE_TORCH_PATH, "%s/%s", folder, name);
}

static yoke_status open_file(FILE **file, const char *folder, const char *name) {
    char path[COMPARE_TORCH_PATH];
    compare_torch_path(path, folder, name);
    *file = fopen(path, "w");
    if (*file != NULL) return YOKE_OK;
    return cli_refuse(YOKE_ERROR_IO, "cannot write %s: %s", path, strerror(errno));
}

static yoke_status close_file(FILE *file, const char *folder, const char *name) {
    bool written = !ferror(file);
    if (fclose(file) == 0 && written) return YOKE_OK;
    return cli_refuse(YOKE_ERROR_IO, "cannot write %s/%s: %s", folder, name, strerror(errno));
}

static yoke_status write_text(const char *folder, const char *name, const char *text) {
    FILE *file;
    TRY(open_file(&file, folder, name));
    fputs(text, file);
    return close_file(file, folder, name);
}

/* One CPU device whose weights and batches are those of every contender. */
static yoke_status open_source(compare_torch_work *work, const compare_setup *from) {
    compare_setup setup = *from;
    const compare_role role = {.devices = 1,
                               .threads = from->threads > 0 ? from->threads : 1,
                               .schedule = YOKE_SCHEDULE_OVERLAP,
                               .rank = {.struct_size = sizeof role.rank}};
    snprintf(setup.names[0], sizeof setup.names[0], "cpu:0");
    setup.variants[0] = setup.link[0] = '\0';
    setup.precision = YOKE_FLOAT32;
    setup.algorithm = YOKE_ALGORITHM_DIRECT;
    setup.collectives = YOKE_COLLECTIVES_AUTO;
    setup.interpreter_us = NAN;
    setup.straggler_factor = 0;
    return compare_engine_create(&work->source, &setup, &role);
}

static yoke_status check_rows(const yoke_dataset_info *rows, const yoke_batch *batch) {
    if (batch->more_input_count == 0 && !rows->unlabelled) return YOKE_OK;
    return cli_refuse(YOKE_ERROR_ARGUMENT,
                      "--with-torch: the rows of %s have %s, which the PyTorch side does not read",
                      rows->name, rows->unlabelled ? "no labels in part" : "several inputs");
}

static yoke_status add_array(yoke_tensor_file *file, const char *name, const int64_t shape[4],
                             const void *values, yoke_tensor_type type) {
    yoke_tensor_file_entry entry = {
        .struct_size = sizeof entry, .name = name, .type = type, .ndim = 4};
    memcpy(entry.shape, shape, 4 * sizeof *shape);
    return yoke_tensor_file_add(file, &entry, values);
}

static yoke_status save_batch(const char *path, const yoke_batch *batch,
                              const yoke_dataset_info *rows) {
    const yoke_shape *shape = &rows->shape;
    bool regression = rows->classes == 0;
    int64_t wanted = regression ? rows->target_count : rows->label_count;
    const int64_t input_shape[] = {batch->rows, shape->channels, shape->height, shape->width};
    const int64_t wanted_shape[] = {batch->rows, wanted, 1, 1};
    yoke_tensor_file *file;
    TRY(yoke_tensor_file_create(&file));
    yoke_status status = add_array(file, "inputs", input_shape, batch->inputs, YOKE_TENSOR_FLOAT32);
    if (status == YOKE_OK && regression)
        status = add_array(file, "wanted", wanted_shape, batch->targets, YOKE_TENSOR_FLOAT32);
    else if (status == YOKE_OK)
        status = add_array(file, "wanted", wanted_shape, batch->labels, YOKE_TENSOR_INT32);
    if (status == YOKE_OK) status = yoke_tensor_file_save(file, path);
    yoke_tensor_file_close(file);
    return status;
}

yoke_status compare_torch_work_next(compare_torch_work *work) {
    const yoke_batch *batch;
    const yoke_dataset_info *rows = compare_engine_rows(work->source);
    char path[COMPARE_TORCH_PATH];
    TRY(compare_engine_next(work->source, &batch));
    TRY(check_rows(rows, batch));
    compare_torch_path(path, work->folder, "batch");
    return save_batch(path, batch, rows);
}

static void json_optimizer(yoke_json *json, const yoke_optimizer_options *optimizer) {
    yoke_json_open(json, "optimizer", '{');
    yoke_json_text(json, "kind", yoke_optimizer_name(optimizer->kind));
    yoke_json_real(json, "learning_rate", optimizer->learning_rate);
    yoke_json_real(json, "momentum", optimizer->momentum);
    yoke_json_boolean(json, "nesterov", optimizer->nesterov);
    yoke_json_real(json, "weight_decay", optimizer->weight_decay);
    yoke_json_real(json, "beta1", optimizer->beta1);
    yoke_json_real(json, "beta2", optimizer->beta2);
    yoke_json_real(json, "epsilon", optimizer->epsilon);
    yoke_json_real(json, "alpha", optimizer->alpha);
    yoke_json_close(json, '}');
}

static void json_rows(yoke_json *json, const yoke_dataset_info *rows) {
    bool regression = rows->classes == 0;
    yoke_json_integer(json, "channels", rows->shape.channels);
    yoke_json_integer(json, "height", rows->shape.height);
    yoke_json_integer(json, "width", rows->shape.width);
    yoke_json_boolean(json, "regression", regression);
    yoke_json_integer(json, "classes", regression ? rows->target_count : rows->classes);
}

static void json_work(yoke_json *json, const compare_entry *entry, int ranks) {
    const compare_setup *setup = entry->setup;
    yoke_json_text(json, "way", entry->torch);
    yoke_json_integer(json, "ranks", ranks);
    yoke_json_open(json, "rows", '[');
    for (int i = 0; i < ranks; i++)
        yoke_json_integer(json, NULL, compare_setup_rows(setup, ranks, i).count);
    yoke_json_close(json, ']');
    yoke_json_integer(json, "devices", entry->role.devices);
    yoke_json_boolean(json, "cuda", compare_torch_has_cuda(setup));
    yoke_json_integer(json, "threads", setup->threads);
    yoke_json_text(json, "model", setup->model);
    yoke_json_text(json, "precision", yoke_precision_names[setup->precision]);
    yoke_json_real(json, "bucket_mb", setup->bucket_mb);
    yoke_json_real(json, "race_rate", COMPARE_RACE_RATE);
    yoke_json_real(json, "deadline_s", setup->torch_deadline);
    json_optimizer(json, &setup->optimizer);
}

static yoke_status write_work(const compare_torch_work *work, const compare_entry *entry,
                              int ranks) {
    FILE *file;
    yoke_json json;
    TRY(open_file(&file, work->folder, "work.json"));
    yoke_json_begin(&json);
    yoke_json_open(&json, NULL, '{');
    json_work(&json, entry, ranks);
    json_rows(&json, compare_engine_rows(work->source));
    yoke_json_close(&json, '}');
    yoke_status printed = cli_print_json(&json, file);
    yoke_status closed = close_file(file, work->folder, "work.json");
    return printed == YOKE_OK ? closed : printed;
}

static yoke_status make_folder(compare_torch_work *work, const compare_meeting *meeting) {
    snprintf(work->folder, sizeof work->folder, "%s/torch-XXXXXX", meeting->folder);
    if (mkdtemp(work->folder) != NULL) return YOKE_OK;
    work->folder[0] = '\0';
    return cli_refuse(YOKE_ERROR_IO, "cannot make a folder in %s: %s", meeting->folder,
                      strerror(errno));
}

static yoke_status check_precision(const compare_setup *setup) {
    if (setup->precision != YOKE_FLOAT16) return YOKE_OK;
    return cli_refuse(YOKE_ERROR_ARGUMENT,
                      "--with-torch: --precision float16 scales its loss, and PyTorch by other "
                      "numbers; use float32 or bfloat16");
}

static yoke_status save_weights(const compare_torch_work *work) {
    char path[COMPARE_TORCH_PATH];
    compare_torch_path(path, work->folder, "weights");
    return compare_engine_save(work->source, path);
}

static void close_source(compare_torch_work *work) {
    compare_engine_destroy(work->source);
    work->source = NULL;
}

yoke_status compare_torch_work_open(compare_torch_work *work, const compare_entry *entry,
                                    int ranks) {
    TRY(check_precision(entry->setup));
    TRY(make_folder(work, entry->meeting));
    TRY(write_text(work->folder, COMPARE_TORCH_PROGRAM, compare_torch_script));
    TRY(write_text(work->folder, "pytorch_models.py", compare_torch_models));
    TRY(open_source(work, entry->setup));
    TRY(save_weights(work));
    TRY(write_work(work, entry, ranks));
    if (entry->setup->learn_steps > 0) return YOKE_OK;
    yoke_status status = compare_torch_work_next(work); /* of all steps of the race */
    close_source(work);
    return status;
}

void compare_torch_work_close(compare_torch_work *work) {
    char path[COMPARE_TORCH_PATH];
    close_source(work);
    for (int i = 0; i < FILE_COUNT && work->folder[0] != '\0'; i++) {
        compare_torch_path(path, work->folder, files[i]);
        unlink(path);
    }
}
