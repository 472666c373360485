/* SPDX-License-Identifier: Apache-2.0 */
/* The public face of safetensors files: tensors of any program, by name. */
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "train/safetensors_header.h"
#include "yoke/verify.h"

#define NOTES 64

/* A tensor that waits for save. */
typedef struct added {
    yoke_file_tensor tensor;
    char *name;
    void *values;
} added;

struct yoke_tensor_file {
    bool read;
    yoke_safetensors source; /* of a file that was read */
    added *tensors;          /* of one to write */
    int count, capacity;
    yoke_file_note notes[NOTES];
    int note_count;
};

static const struct {
    yoke_dtype dtype;
    size_t bytes;
} types[YOKE_TENSOR_OTHER] = {[YOKE_TENSOR_FLOAT32] = {YOKE_DTYPE_F32, 4},
                              [YOKE_TENSOR_FLOAT64] = {YOKE_DTYPE_F64, 8},
                              [YOKE_TENSOR_INT32] = {YOKE_DTYPE_I32, 4},
                              [YOKE_TENSOR_INT64] = {YOKE_DTYPE_I64, 8}};

/* Life. */

yoke_status yoke_tensor_file_create(yoke_tensor_file **file) {
    TRY(yoke_pointer_check(file, "file"));
    *file = yoke_calloc(1, sizeof **file);
    return *file != NULL ? YOKE_OK : FAIL_MEMORY(sizeof **file, "a file of tensors");
}

yoke_status yoke_tensor_file_open(yoke_tensor_file **file, const char *path) {
    const yoke_file_source from = yoke_source_path(path);
    TRY(yoke_pointer_check(path, "path"));
    TRY(yoke_tensor_file_create(file));
    yoke_status status = yoke_safetensors_open(&(*file)->source, &from);
    (*file)->read = true;
    if (status == YOKE_OK) return YOKE_OK;
    yoke_tensor_file_close(*file);
    *file = NULL;
    return status;
}

void yoke_tensor_file_close(yoke_tensor_file *file) {
    if (file == NULL) return;
    yoke_safetensors_close(&file->source);
    for (int i = 0; i < file->count; i++) {
        yoke_free(file->tensors[i].name);
        yoke_free(file->tensors[i].values);
    }
    for (int i = 0; i < file->note_count; i++) {
        yoke_free((char *)file->notes[i].key);
        yoke_free((char *)file->notes[i].value);
    }
    yoke_free(file->tensors);
    yoke_free(file);
}

/* Writing. */

static yoke_status check_new(const yoke_tensor_file *file) {
    TRY(yoke_pointer_check(file, "file"));
    if (file->read)
        return FAIL(YOKE_ERROR_ARGUMENT,
                    "%s was read: nothing can be added to it, so begin with "
                    "yoke_tensor_file_create",
                    file->source.path);
    return YOKE_OK;
}

static yoke_status check_entry(const yoke_tensor_file_entry *entry) {
    TRY(yoke_pointer_check(entry->name, "entry->name"));
    if (entry->type < YOKE_TENSOR_FLOAT32 || entry->type >= YOKE_TENSOR_OTHER)
        return FAIL(YOKE_ERROR_ARGUMENT, "%s: type is %d, must be 0 to %d", entry->name,
                    (int)entry->type, YOKE_TENSOR_OTHER - 1);
    if (entry->ndim < 0 || entry->ndim > YOKE_FILE_TENSOR_DIMS)
        return FAIL(YOKE_ERROR_ARGUMENT, "%s: ndim is %d, must be 0 to %d", entry->name,
                    entry->ndim, YOKE_FILE_TENSOR_DIMS);
    for (int i = 0; i < entry->ndim; i++)
        if (entry->shape[i] < 0 || entry->shape[i] > INT32_MAX)
            return FAIL(YOKE_ERROR_ARGUMENT, "%s: shape[%d] is %lld, must be 0 to %d", entry->name,
                        i, (long long)entry->shape[i], INT32_MAX);
    return YOKE_OK;
}

yoke_status yoke_tensor_file_add(yoke_tensor_file *file, const yoke_tensor_file_entry *entry,
                                 const void *values) {
    yoke_tensor_file_entry own = {0};
    size_t bytes;
    TRY(check_new(file));
    TRY(yoke_pointer_check(entry, "entry"));
    TRY(yoke_pointer_check(values, "values"));
    TRY(yoke_options_load(&own, sizeof own, entry, "yoke_tensor_file_entry"));
    TRY(check_entry(&own));
    TRY(yoke_table_grow((void **)&file->tensors, file->count, &file->capacity,
                        sizeof *file->tensors, "the tensors of a file"));
    added one = {.tensor = {.dtype = types[own.type].dtype, .ndim = own.ndim}};
    bytes = types[own.type].bytes;
    for (int i = 0; i < own.ndim; i++) {
        one.tensor.shape[i] = own.shape[i];
        if (__builtin_mul_overflow(bytes, (size_t)own.shape[i], &bytes))
            return FAIL(YOKE_ERROR_ARGUMENT, "%s: the shape is too large", own.name);
    }
    one.name = yoke_strdup(own.name);
    one.values = yoke_malloc(bytes > 0 ? bytes : 1);
    if (one.name == NULL || one.values == NULL) {
        yoke_free(one.name);
        yoke_free(one.values);
        return FAIL_MEMORY(bytes, own.name);
    }
    memcpy(one.values, values, bytes);
    one.tensor.name = one.name;
    file->tensors[file->count++] = one;
    return YOKE_OK;
}

yoke_status yoke_tensor_file_note(yoke_tensor_file *file, const char *key, const char *value) {
    TRY(check_new(file));
    TRY(yoke_pointer_check(key, "key"));
    TRY(yoke_pointer_check(value, "value"));
    if (file->note_count == NOTES)
        return FAIL(YOKE_ERROR_ARGUMENT, "a file has %d texts at most", NOTES);
    char *own_key = yoke_strdup(key), *own_value = yoke_strdup(value);
    if (own_key == NULL || own_value == NULL) {
        yoke_free(own_key);
        yoke_free(own_value);
        return FAIL_MEMORY(strlen(key) + strlen(value) + 2, "a text of a file");
    }
    file->notes[file->note_count++] = (yoke_file_note){.key = own_key, .value = own_value};
    return YOKE_OK;
}

static const added *find_added(const yoke_tensor_file *file, const char *name) {
    for (int i = 0; i < file->count; i++)
        if (file->tensors[i].name == name) return &file->tensors[i]; /* the pointer itself */
    return NULL;
}

static yoke_status write_all(const yoke_tensor_file *file, yoke_file_tensor *table,
                             const char *path) {
    yoke_file_writer writer;
    const yoke_file_target target = yoke_target_path(path);
    TRY(yoke_safetensors_arrange(table, file->count));
    TRY(yoke_safetensors_create(&writer, &target, table, file->count, file->notes,
                                file->note_count));
    for (int i = 0; i < file->count; i++) {
        yoke_status status =
            yoke_file_write(&writer, find_added(file, table[i].name)->values, table[i].bytes);
        if (status == YOKE_OK) continue;
        yoke_file_abort(&writer);
        return status;
    }
    return yoke_file_commit(&writer);
}

yoke_status yoke_tensor_file_save(const yoke_tensor_file *file, const char *path) {
    TRY(check_new(file));
    TRY(yoke_pointer_check(path, "path"));
    yoke_file_tensor *table = yoke_calloc((size_t)file->count + 1, sizeof *table);
    if (table == NULL)
        return FAIL_MEMORY((size_t)file->count * sizeof *table, "the table of a file");
    for (int i = 0; i < file->count; i++)
        table[i] = file->tensors[i].tensor;
    yoke_status status = write_all(file, table, path);
    yoke_free(table);
    return status;
}

/* Reading. */

const char *yoke_tensor_file_noted(const yoke_tensor_file *file, const char *key) {
    bool is_read = file != NULL && key != NULL && file->read;
    return is_read ? yoke_safetensors_note(&file->source, key) : NULL;
}

static yoke_status find(const yoke_tensor_file *file, const char *name,
                        const yoke_file_tensor **tensor) {
    TRY(yoke_pointer_check(file, "file"));
    TRY(yoke_pointer_check(name, "name"));
    *tensor = yoke_safetensors_find(&file->source, name);
    if (*tensor != NULL) return YOKE_OK;
    return FAIL(YOKE_ERROR_MISSING, "%s has no tensor %s", file->read ? file->source.path : "",
                name);
}

yoke_status yoke_tensor_file_find(const yoke_tensor_file *file, const char *name,
                                  yoke_tensor_file_entry *entry) {
    const yoke_file_tensor *tensor;
    TRY(find(file, name, &tensor));
    yoke_tensor_file_entry own = {.struct_size = sizeof own,
                                  .name = tensor->name,
                                  .type = YOKE_TENSOR_OTHER,
                                  .ndim = tensor->ndim};
    for (int type = 0; type < YOKE_TENSOR_OTHER; type++)
        if (types[type].dtype == tensor->dtype) own.type = (yoke_tensor_type)type;
    memcpy(own.shape, tensor->shape, sizeof own.shape);
    return yoke_options_store(entry, &own, sizeof own, "yoke_tensor_file_entry");
}

yoke_status yoke_tensor_file_read(const yoke_tensor_file *file, const char *name, double *values,
                                  size_t count) {
    const yoke_file_tensor *tensor;
    TRY(find(file, name, &tensor));
    TRY(yoke_pointer_check(values, "values"));
    if (tensor->elements != count)
        return FAIL(YOKE_ERROR_ARGUMENT, "%s: %s has %zu elements, not %zu", file->source.path,
                    name, tensor->elements, count);
    return yoke_safetensors_doubles(&file->source, tensor, values);
}
