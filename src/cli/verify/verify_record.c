/* SPDX-License-Identifier: Apache-2.0 */
/* Writes and reads the files of runs. */
#include "cli/verify/verify_record.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "cli/cli.h"

#define MEMORY_LIMIT ((double)(4ull << 30))

bool verify_is_recorded(const verify_run *run, int step) {
    return step % run->every == 0 || step == run->steps;
}

/* The configuration. */

enum { TEXTS = 14, TEXT_BYTES = 1024 };
typedef struct configuration {
    const char *keys[TEXTS];
    char values[TEXTS][TEXT_BYTES];
    int count;
} configuration;

static void add_text(configuration *all, const char *key, const char *value) {
    all->keys[all->count] = key;
    snprintf(all->values[all->count++], TEXT_BYTES, "%s", value);
}

static void add_number(configuration *all, const char *key, double value) {
    char text[32];
    snprintf(text, sizeof text, "%.17g", value);
    add_text(all, key, text);
}

/* What two runs must share, in words that another program can read. */
static void configure(configuration *all, const verify_run *run) {
    const yoke_optimizer_options *optimizer = &run->setup->optimizer;
    char seed[32], rows[TEXT_BYTES];
    all->count = 0;
    snprintf(seed, sizeof seed, "%" PRIu64, run->setup->seed);
    add_text(all, "model", run->setup->model);
    snprintf(rows, sizeof rows, "%.960s --limit-rows %" PRIu64, run->setup->dataset,
             run->setup->limit_rows);
    add_text(all, "dataset", run->setup->limit_rows > 0 ? rows : run->setup->dataset);
    add_text(all, "seed", seed);
    add_number(all, "batch", run->setup->batch);
    add_number(all, "shards", run->setup->shards);
    add_number(all, "steps", run->steps);
    add_text(all, "optimizer", yoke_optimizer_name(optimizer->kind));
    add_number(all, "learning_rate", optimizer->learning_rate);
    add_number(all, "momentum", optimizer->momentum);
    add_number(all, "weight_decay", optimizer->weight_decay);
    add_number(all, "beta1", optimizer->beta1);
    add_number(all, "beta2", optimizer->beta2);
    add_number(all, "epsilon", optimizer->epsilon);
    if (optimizer->kind == YOKE_RMSPROP) add_number(all, "alpha", optimizer->alpha);
}

/* Writing. */

static yoke_status note_all(yoke_tensor_file *file, const verify_run *run) {
    configuration all;
    char every[16], writer[64];
    configure(&all, run);
    yoke_status status = YOKE_OK;
    for (int i = 0; i < all.count && status == YOKE_OK; i++)
        status = yoke_tensor_file_note(file, all.keys[i], all.values[i]);
    snprintf(every, sizeof every, "%d", run->every);
    snprintf(writer, sizeof writer, "yoke %s", yoke_version());
    if (status == YOKE_OK) status = yoke_tensor_file_note(file, "every", every);
    if (status == YOKE_OK) status = yoke_tensor_file_note(file, "writer", writer);
    return status;
}

static size_t inputs_of(const yoke_model *model) {
    yoke_shape shape = yoke_model_input_shape(model);
    return (size_t)shape.channels * (size_t)shape.height * (size_t)shape.width;
}

static yoke_status check_memory(const verify_run *run, const yoke_model *model) {
    double recorded = 2;
    for (int step = 1; step < run->steps; step++)
        recorded += verify_is_recorded(run, step);
    double tensors = recorded * 2 * (double)compare_weights_count(model);
    double batches = (double)run->steps * run->setup->batch * (double)inputs_of(model);
    double bytes = sizeof(float) * (tensors + batches);
    if (bytes <= MEMORY_LIMIT) return YOKE_OK;
    return cli_refuse(YOKE_ERROR_ARGUMENT,
                      "--record would hold %.1f GiB, the limit is %.0f GiB: take fewer --steps, a "
                      "smaller --batch or a larger --record-every",
                      bytes / (1 << 30), MEMORY_LIMIT / (1 << 30));
}

yoke_status verify_record_begin(yoke_tensor_file **file, const verify_run *run,
                                const compare_engine *engine) {
    char algorithms[COMPARE_ALGORITHMS_BYTES];
    *file = NULL;
    yoke_status status = check_memory(run, compare_engine_model(engine));
    if (status == YOKE_OK) status = yoke_tensor_file_create(file);
    if (status == YOKE_OK) status = note_all(*file, run);
    compare_engine_algorithms(engine, algorithms);
    return status == YOKE_OK ? yoke_tensor_file_note(*file, "algorithms", algorithms) : status;
}

yoke_status verify_record_batch(yoke_tensor_file *file, int step, const yoke_batch *batch,
                                const yoke_model *model) {
    char name[VERIFY_NAME_BYTES];
    yoke_shape shape = yoke_model_input_shape(model);
    yoke_tensor_file_entry inputs = {
        .struct_size = sizeof inputs,
        .name = name,
        .type = YOKE_TENSOR_FLOAT32,
        .ndim = 4,
        .shape = {batch->rows, shape.channels, shape.height, shape.width}};
    yoke_tensor_file_entry labels = {.struct_size = sizeof labels,
                                     .name = name,
                                     .type = YOKE_TENSOR_INT32,
                                     .ndim = 1,
                                     .shape = {batch->rows}};
    snprintf(name, sizeof name, "batch_%06d/inputs", step);
    yoke_status status = yoke_tensor_file_add(file, &inputs, batch->inputs);
    snprintf(name, sizeof name, "batch_%06d/labels", step);
    return status == YOKE_OK ? yoke_tensor_file_add(file, &labels, batch->labels) : status;
}

static yoke_status add_tensor(yoke_tensor_file *file, const char *name,
                              const yoke_tensor_info *info, const double *values, float *narrow) {
    yoke_tensor_file_entry entry = {
        .struct_size = sizeof entry, .name = name, .type = YOKE_TENSOR_FLOAT32, .ndim = info->ndim};
    memcpy(entry.shape, info->shape, sizeof info->shape);
    for (size_t i = 0; i < info->count; i++)
        narrow[i] = (float)values[i]; /* exact: an engine's numbers are float32 */
    return yoke_tensor_file_add(file, &entry, narrow);
}

yoke_status verify_record_step(yoke_tensor_file *file, int step, const verify_mode *mode,
                               const yoke_model *model) {
    char name[VERIFY_NAME_BYTES];
    yoke_tensor_info info;
    yoke_status status = YOKE_OK;
    size_t offset = 0;
    for (int next = 0; status == YOKE_OK && compare_next_tensor(model, &next, &info);) {
        status = add_tensor(file, verify_weight_name(name, step, info.name), &info,
                            mode->weights + offset, mode->narrow);
        if (status == YOKE_OK && mode->has_gradients && info.trainable)
            status = add_tensor(file, verify_gradient_name(name, step, info.name), &info,
                                mode->gradients + offset, mode->narrow);
        offset += info.count;
    }
    return status;
}

/* Reading. */

static yoke_status check_text(const yoke_tensor_file *file, const char *path, const char *key,
                              const char *own) {
    const char *theirs = yoke_tensor_file_noted(file, key);
    if (theirs == NULL)
        return cli_refuse(YOKE_ERROR_DATA,
                          "%s is no recorded run: its metadata has no '%s'; yoke verify --record "
                          "and scripts/verify_pytorch.py write such files",
                          path, key);
    if (strcmp(theirs, own) == 0) return YOKE_OK;
    return cli_refuse(YOKE_ERROR_ARGUMENT,
                      "%s holds a run with %s %.200s, this one has %.200s: give both the same "
                      "options",
                      path, key, theirs, own);
}

static yoke_status check_all(const yoke_tensor_file *file, const char *path, verify_run *run) {
    configuration own;
    configure(&own, run);
    yoke_status status = YOKE_OK;
    for (int i = 0; i < own.count && status == YOKE_OK; i++)
        status = check_text(file, path, own.keys[i], own.values[i]);
    if (status != YOKE_OK) return status;
    const char *text = yoke_tensor_file_noted(file, "every");
    int64_t every;
    if (text == NULL || !yoke_text_integer(text, 1, INT32_MAX, &every))
        return cli_refuse(YOKE_ERROR_DATA,
                          "%s is no recorded run: 'every' of its metadata is not a whole number "
                          "above 0",
                          path);
    run->every = (int)every;
    return YOKE_OK;
}

yoke_status verify_against_open(yoke_tensor_file **file, const char *path, verify_run *run) {
    yoke_status status = yoke_tensor_file_open(file, path);
    return status == YOKE_OK ? check_all(*file, path, run) : status;
}

bool verify_is_own(const yoke_tensor_file *file) {
    const char *writer = yoke_tensor_file_noted(file, "writer");
    return writer != NULL && strncmp(writer, "yoke ", 5) == 0;
}
