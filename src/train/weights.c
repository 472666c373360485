/* SPDX-License-Identifier: Apache-2.0 */
/* Saves and loads weights as safetensors, with PyTorch's names. Loading compares the whole file
 * with the model before it changes a weight. */
#include "train/weights.h"

#include "model/model.h"
#include "parallel/parallel.h"
#include "train/checkpoint.h"
#include "train/train.h"
#include "train/weights_match.h"
#include "train/weights_writer.h"

/* Saving. */

static yoke_status check_pointers(const yoke_data_parallel *parallel, const yoke_model *model) {
    TRY(yoke_pointer_check(parallel, "parallel"));
    return yoke_pointer_check(model, "model");
}

static yoke_status write_to(yoke_data_parallel *parallel, const yoke_model *model,
                            const yoke_notes *notes, const yoke_file_target *target) {
    yoke_weights_writer *writer;
    yoke_weights_writer_options options = {.target = *target, .notes = notes};
    TRY(yoke_weights_writer_create(&writer, parallel, model, &options));
    yoke_status status = yoke_weights_writer_take(writer, NULL);
    if (status == YOKE_OK) status = yoke_weights_writer_write(writer);
    yoke_weights_writer_destroy(writer);
    return status;
}

yoke_status yoke_weights_save(yoke_data_parallel *parallel, const yoke_model *model,
                              const char *path) {
    const yoke_file_target target = yoke_target_path(path);
    TRY(check_pointers(parallel, model));
    TRY(yoke_pointer_check(path, "path"));
    return write_to(parallel, model, NULL, &target);
}

static yoke_status write_described(yoke_data_parallel *parallel, const yoke_model *model,
                                   const yoke_weights_info *info, const yoke_file_target *target) {
    yoke_weights_info own;
    yoke_notes notes = {0};
    if (info == NULL) return write_to(parallel, model, NULL, target);
    TRY(yoke_options_load(&own, sizeof own, info, "yoke_weights_info"));
    yoke_status status = yoke_notes_write(&notes, &own);
    if (status == YOKE_OK) status = write_to(parallel, model, &notes, target);
    yoke_notes_clear(&notes);
    return status;
}

yoke_status yoke_weights_save_described(yoke_data_parallel *parallel, const yoke_model *model,
                                        const yoke_weights_info *info, const char *path) {
    const yoke_file_target target = yoke_target_path(path);
    TRY(check_pointers(parallel, model));
    TRY(yoke_pointer_check(path, "path"));
    return write_described(parallel, model, info, &target);
}

yoke_status yoke_weights_write(yoke_data_parallel *parallel, const yoke_model *model,
                               const yoke_weights_info *info, const yoke_sink *sink) {
    yoke_sink own;
    const yoke_file_target target = {.sink = &own};
    TRY(check_pointers(parallel, model));
    TRY(yoke_sink_load(&own, sink));
    return write_described(parallel, model, info, &target);
}

/* Loading. */

/* The engine's model, whose tensors are written, decides; the caller's must fit the file, too. */
static yoke_status check_other_model(const yoke_weights_match *of_engine, const yoke_model *model) {
    yoke_weights_match match = {
        .file = of_engine->file, .model = model, .options = of_engine->options};
    if (model == of_engine->model) return YOKE_OK;
    yoke_status status = yoke_weights_match_open(&match);
    yoke_weights_match_close(&match);
    return status;
}

yoke_status yoke_weights_check(const yoke_model *model, const char *path) {
    yoke_safetensors file = {0};
    yoke_weights_match match = {.file = &file, .model = model};
    TRY(yoke_pointer_check(model, "model"));
    TRY(yoke_pointer_check(path, "path"));
    const yoke_file_source from = yoke_source_path(path);
    TRY(yoke_safetensors_open(&file, &from));
    yoke_status status = yoke_weights_match_open(&match);
    yoke_weights_match_close(&match);
    yoke_safetensors_close(&file);
    return status;
}

static yoke_status check_head(const yoke_model *model) {
    for (int i = 0; i < yoke_model_tensor_count(model); i++)
        if (yoke_model_is_head(model, i)) return YOKE_OK;
    return FAIL(YOKE_ERROR_ARGUMENT,
                "new_head: %s does not end with a linear layer that has weights of its own; name "
                "the tensors to start anew in allow_missing",
                yoke_model_name(model));
}

/* Finds everything that reading may find wrong, before a weight changes. */
yoke_status yoke_weights_open(yoke_weights_source *source, const yoke_data_parallel *parallel,
                              const yoke_model *model, const yoke_file_source *from,
                              const yoke_weights_load_options *options) {
    *source = (yoke_weights_source){
        .match = {.file = &source->file, .model = yoke_data_parallel_model(parallel)}};
    yoke_weights_load_options *own = &source->match.options;
    TRY(yoke_options_load(own, sizeof *own, options, "yoke_weights_load_options"));
    TRY(yoke_safetensors_open(&source->file, from));
    if (own->new_head) TRY(check_head(source->match.model));
    TRY(check_other_model(&source->match, model));
    TRY(yoke_weights_match_open(&source->match)); /* before a byte of a tensor is read */
    /* A checkpoint has digests; plain weights have none. */
    if (yoke_safetensors_note(&source->file, YOKE_FORMAT_KEY) != NULL)
        TRY(yoke_checkpoint_verify(&source->file));
    return yoke_weights_match_values(&source->match);
}

static yoke_status write_all(const yoke_weights_match *match, yoke_data_parallel *parallel) {
    for (int i = 0; i < yoke_model_tensor_count(match->model); i++) {
        const yoke_file_tensor *tensor = match->sources[i];
        yoke_tensor_info info = {.struct_size = sizeof info};
        int64_t batches = -1;
        TRY(yoke_model_tensor(match->model, i, &info));
        if (tensor == NULL) continue;
        if (info.integer) {
            TRY(yoke_safetensors_integer(match->file, tensor, &batches));
            if (batches >= 0) yoke_data_parallel_set_batches_tracked(parallel, (uint64_t)batches);
        } else {
            TRY(yoke_safetensors_floats(match->file, tensor, match->values));
            TRY(yoke_data_parallel_write(parallel, info.name, match->values, info.count));
        }
    }
    return YOKE_OK;
}

/* In one call of the engine: a thread that predicts meets all the old weights or all the new. */
yoke_status yoke_weights_give(const yoke_weights_source *source, yoke_data_parallel *parallel) {
    yoke_weights_match_report(&source->match);
    TRY(yoke_enter_settled(parallel, "yoke_weights_load"));
    return yoke_leave(parallel, write_all(&source->match, parallel));
}

void yoke_weights_close(yoke_weights_source *source) {
    yoke_weights_match_close(&source->match);
    yoke_safetensors_close(&source->file);
}

static yoke_status load_from(yoke_data_parallel *parallel, const yoke_model *model,
                             const yoke_file_source *from,
                             const yoke_weights_load_options *options) {
    yoke_weights_source source;
    yoke_status status = yoke_weights_open(&source, parallel, model, from, options);
    if (status == YOKE_OK) status = yoke_weights_give(&source, parallel);
    yoke_weights_close(&source);
    return status;
}

yoke_status yoke_weights_load_partial(yoke_data_parallel *parallel, const yoke_model *model,
                                      const char *path, const yoke_weights_load_options *options) {
    const yoke_file_source from = yoke_source_path(path);
    TRY(check_pointers(parallel, model));
    TRY(yoke_pointer_check(path, "path"));
    return load_from(parallel, model, &from, options);
}

yoke_status yoke_weights_read(yoke_data_parallel *parallel, const yoke_model *model,
                              const void *bytes, size_t count,
                              const yoke_weights_load_options *options) {
    yoke_file_source from;
    TRY(check_pointers(parallel, model));
    TRY(yoke_source_bytes(&from, bytes, count));
    return load_from(parallel, model, &from, options);
}

yoke_status yoke_weights_load(yoke_data_parallel *parallel, const yoke_model *model,
                              const char *path) {
    return yoke_weights_load_partial(parallel, model, path, NULL);
}
