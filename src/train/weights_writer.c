/* SPDX-License-Identifier: Apache-2.0 */
/* A file of weights is its header and one block for each tensor, in the reference writer's order. A
 * writer that is apart holds all blocks as they will lie in the file; others hold one at a time. */
#include "train/weights_writer.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "model/model.h"
#include "train/weights_match.h"

#define TRIES 3

struct yoke_weights_writer {
    yoke_data_parallel *parallel;
    char *path; /* of the target */
    yoke_file_target target;
    yoke_file_tensor *tensors; /* in the file's order; names are the model's */
    int count;
    char *header;
    size_t header_bytes, block_bytes; /* block_bytes: of all tensors */
    bool apart;
    unsigned char *blocks; /* of all tensors, or of the largest */
    const yoke_state *best;
    yoke_file_writer file;
};

/* Preparing. */

static yoke_status list_tensors(yoke_weights_writer *writer, const yoke_model *model) {
    writer->count = yoke_model_tensor_count(model);
    writer->tensors = yoke_calloc((size_t)writer->count + 1, sizeof *writer->tensors);
    if (writer->tensors == NULL)
        return FAIL_MEMORY((size_t)writer->count * sizeof *writer->tensors, "the table of a file");
    for (int i = 0; i < writer->count; i++) {
        yoke_tensor_info info = {.struct_size = sizeof info};
        TRY(yoke_model_tensor(model, i, &info));
        writer->tensors[i] = yoke_weights_file_tensor(&info);
    }
    return yoke_safetensors_arrange(writer->tensors, writer->count);
}

static yoke_status build(yoke_weights_writer *writer, const yoke_model *model,
                         const yoke_weights_writer_options *options) {
    yoke_file_note items[YOKE_DESCRIPTION_NOTES + 1];
    size_t bytes = 1;
    int count = options->notes != NULL ? yoke_notes_list(options->notes, items) : 0;
    const char *path = options->target.path;
    writer->path = path != NULL ? yoke_strdup(path) : NULL;
    if (path != NULL && writer->path == NULL) return FAIL_MEMORY(strlen(path) + 1, "a file's name");
    writer->target = (yoke_file_target){.path = writer->path, .sink = options->target.sink};
    writer->apart = options->apart;
    TRY(list_tensors(writer, model));
    TRY(yoke_safetensors_header(&writer->header, &writer->header_bytes, writer->tensors,
                                writer->count, items, count));
    for (int i = 0; i < writer->count; i++) {
        writer->block_bytes += writer->tensors[i].bytes;
        if (writer->tensors[i].bytes > bytes) bytes = writer->tensors[i].bytes;
    }
    if (writer->apart && writer->block_bytes > bytes) bytes = writer->block_bytes;
    writer->blocks = yoke_malloc(bytes);
    if (writer->blocks == NULL) return FAIL_MEMORY(bytes, "weights on their way to a file");
    memset(writer->blocks, 0, bytes); /* touches the pages now */
    return YOKE_OK;
}

yoke_status yoke_weights_writer_create(yoke_weights_writer **writer, yoke_data_parallel *parallel,
                                       const yoke_model *model,
                                       const yoke_weights_writer_options *options) {
    *writer = NULL;
    yoke_weights_writer *made = yoke_calloc(1, sizeof *made);
    if (made == NULL) return FAIL_MEMORY(sizeof *made, "the writer of weights");
    made->parallel = parallel;
    yoke_status status = build(made, model, options);
    if (status != YOKE_OK) {
        yoke_weights_writer_destroy(made);
        return status;
    }
    *writer = made;
    return YOKE_OK;
}

void yoke_weights_writer_destroy(yoke_weights_writer *writer) {
    if (writer == NULL) return;
    yoke_file_abort(&writer->file);
    yoke_free(writer->blocks);
    yoke_free(writer->header);
    yoke_free(writer->tensors);
    yoke_free(writer->path);
    yoke_free(writer);
}

void yoke_weights_writer_follow(yoke_weights_writer *writer, yoke_data_parallel *parallel) {
    writer->parallel = parallel;
}

/* Gives up a file that is open and not written: its space may be needed for this one. */
static yoke_status open_at(yoke_weights_writer *writer, const yoke_file_target *target) {
    yoke_file_abort(&writer->file);
    TRY(yoke_file_create_target(&writer->file, target));
    return yoke_file_reserve(&writer->file, writer->header_bytes + writer->block_bytes);
}

yoke_status yoke_weights_writer_open(yoke_weights_writer *writer) {
    return writer->file.kind != NULL ? YOKE_OK : open_at(writer, &writer->target);
}

/* Taking. */

static const float *best_of(const yoke_state *best, const char *name) {
    for (int i = 0; i < best->count; i++) {
        const yoke_state_tensor *kept = &best->tensors[i];
        if (kept->part == YOKE_STATE_BEST &&
            strcmp(best->tensors[kept->copy_of].info.name, name) == 0)
            return kept->values;
    }
    return NULL;
}

static yoke_status read_block(const yoke_weights_writer *writer, const yoke_file_tensor *tensor,
                              unsigned char *block) {
    float *values = (float *)(void *)block;
    int64_t batches = (int64_t)yoke_data_parallel_batches_tracked(writer->parallel);
    const float *best = writer->best != NULL ? best_of(writer->best, tensor->name) : NULL;
    if (tensor->dtype == YOKE_DTYPE_I64) {
        memcpy(block, &batches, sizeof batches);
        return YOKE_OK;
    }
    if (best != NULL)
        memcpy(values, best, tensor->bytes);
    else
        TRY(yoke_data_parallel_read(writer->parallel, tensor->name, values, tensor->elements));
    /* Weights that are not finite must not replace the last good ones. */
    size_t finite = yoke_count_finite(values, tensor->elements);
    if (finite == tensor->elements) return YOKE_OK;
    return FAIL(YOKE_ERROR_NUMERIC, "element %zu of %s is not finite: not saving these weights",
                finite, tensor->name);
}

yoke_status yoke_weights_writer_take(yoke_weights_writer *writer, const yoke_state *best) {
    writer->best = best;
    for (int i = 0; writer->apart && i < writer->count; i++)
        TRY(read_block(writer, &writer->tensors[i], writer->blocks + writer->tensors[i].begin));
    return YOKE_OK;
}

/* Writing. */

static yoke_status write_blocks(yoke_weights_writer *writer) {
    if (writer->apart) return yoke_file_write(&writer->file, writer->blocks, writer->block_bytes);
    for (int i = 0; i < writer->count; i++) {
        TRY(read_block(writer, &writer->tensors[i], writer->blocks));
        TRY(yoke_file_write(&writer->file, writer->blocks, writer->tensors[i].bytes));
    }
    return YOKE_OK;
}

/* The file is closed afterwards. */
static yoke_status write_open_file(yoke_weights_writer *writer) {
    yoke_status status = yoke_file_write(&writer->file, writer->header, writer->header_bytes);
    if (status == YOKE_OK) status = write_blocks(writer);
    if (status == YOKE_OK) status = yoke_file_commit(&writer->file);
    yoke_file_abort(&writer->file); /* what write_blocks could not read */
    return status;
}

yoke_status yoke_weights_writer_write_to(yoke_weights_writer *writer, const char *path) {
    const yoke_file_target target = yoke_target_path(path);
    TRY(open_at(writer, &target));
    return write_open_file(writer);
}

yoke_status yoke_weights_writer_write(yoke_weights_writer *writer) {
    const struct timespec pause = {.tv_nsec = 200000000};
    yoke_status status = yoke_weights_writer_open(writer);
    if (status == YOKE_OK) status = write_open_file(writer);
    bool again = writer->path != NULL; /* a sink has the bytes of the first try */
    for (int tries = 1; again && tries < TRIES && status == YOKE_ERROR_IO; tries++) {
        nanosleep(&pause, NULL);
        status = yoke_weights_writer_write_to(writer, writer->path);
    }
    return status;
}
