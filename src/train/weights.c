/* Saves and loads weights as safetensors, with PyTorch's names. Loading compares the whole table
 * with the model before it changes a weight. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/model.h"
#include "parallel/parallel.h"
#include "train/train.h"

/* Saving. */

static yoke_status describe_tensors(const yoke_model *model, yoke_file_tensor *tensors, int count,
                                    size_t *largest) {
    *largest = 1;
    for (int i = 0; i < count; i++) {
        yoke_tensor_info info = {.struct_size = sizeof info};
        TRY(yoke_model_tensor(model, i, &info));
        tensors[i].name = info.name;
        tensors[i].dtype = info.integer ? YOKE_DTYPE_I64 : YOKE_DTYPE_F32;
        tensors[i].ndim = info.ndim;
        memcpy(tensors[i].shape, info.shape, sizeof info.shape);
        if (info.count > *largest) *largest = info.count;
    }
    return YOKE_OK;
}

/* Weights that are not finite must not replace the last good ones. */
static yoke_status check_finite(const yoke_file_tensor *tensor, const float *values) {
    for (size_t i = 0; i < tensor->elements; i++)
        if (!isfinite(values[i]))
            return FAIL(YOKE_ERROR_NUMERIC,
                        "element %zu of %s is not finite: not saving these weights", i,
                        tensor->name);
    return YOKE_OK;
}

static yoke_status write_tensor(yoke_file_writer *writer, yoke_data_parallel *parallel,
                                const yoke_file_tensor *tensor, float *values) {
    if (tensor->dtype == YOKE_DTYPE_F32) {
        TRY(yoke_data_parallel_read(parallel, tensor->name, values, tensor->elements));
        TRY(check_finite(tensor, values));
        return yoke_file_write(writer, values, tensor->bytes);
    }
    int64_t batches = (int64_t)yoke_data_parallel_batches_tracked(parallel);
    return yoke_file_write(writer, &batches, sizeof batches);
}

static yoke_status write_tensors(yoke_data_parallel *parallel, const char *path,
                                 yoke_file_tensor *tensors, int count, float *values) {
    yoke_file_writer writer;
    TRY(yoke_safetensors_create(&writer, path, tensors, count));
    for (int i = 0; i < count; i++) {
        yoke_status status = write_tensor(&writer, parallel, &tensors[i], values);
        if (status != YOKE_OK) {
            yoke_file_abort(&writer);
            return status;
        }
    }
    return yoke_file_commit(&writer);
}

static yoke_status check_pointers(const yoke_data_parallel *parallel, const yoke_model *model,
                                  const char *path) {
    TRY(yoke_pointer_check(parallel, "parallel"));
    TRY(yoke_pointer_check(model, "model"));
    return yoke_pointer_check(path, "path");
}

yoke_status yoke_weights_save(yoke_data_parallel *parallel, const yoke_model *model,
                              const char *path) {
    TRY(check_pointers(parallel, model, path));
    int count = yoke_model_tensor_count(model);
    size_t largest;
    yoke_file_tensor *tensors = calloc((size_t)count + 1, sizeof *tensors);
    if (tensors == NULL)
        return FAIL_MEMORY((size_t)count * sizeof *tensors, "the table of a weight file");
    yoke_status status = describe_tensors(model, tensors, count, &largest);
    float *values = malloc(largest * sizeof *values);
    if (values == NULL && status == YOKE_OK)
        status = FAIL_MEMORY(largest * sizeof *values, "a tensor on its way to a file");
    if (status == YOKE_OK) status = write_tensors(parallel, path, tensors, count, values);
    free(values);
    free(tensors);
    return status;
}

/* Loading. */

/* Mismatches of one kind: how many, and the first two as text. */
typedef struct mismatch {
    int count;
    char text[192];
} mismatch;

static void add_mismatch(mismatch *list, const char *what) {
    size_t used = strlen(list->text);
    list->count++;
    if (list->count <= 2)
        snprintf(list->text + used, sizeof list->text - used, "%s%.88s", used > 0 ? ", " : "",
                 what);
    else if (list->count == 3)
        snprintf(list->text + used, sizeof list->text - used, ", ...");
}

static void print_shape(char *text, size_t size, const int64_t *shape, int ndim) {
    size_t used = (size_t)snprintf(text, size, "[");
    for (int i = 0; i < ndim && used < size; i++)
        used += (size_t)snprintf(text + used, size - used, "%s%lld", i > 0 ? "," : "",
                                 (long long)shape[i]);
    if (used < size) snprintf(text + used, size - used, "]");
}

static const char *plain_name(const char *name) {
    return strncmp(name, "module.", 7) == 0 ? name + 7 : name;
}

/* Finds a tensor by name; nn.DataParallel saves it with the prefix "module.". */
static const yoke_file_tensor *find(const yoke_safetensors *file, const char *name) {
    for (int i = 0; i < file->count; i++)
        if (strcmp(plain_name(file->tensors[i].name), name) == 0) return &file->tensors[i];
    return NULL;
}

typedef struct comparison {
    mismatch missing, unknown, shapes, types;
} comparison;

static void compare_tensor(comparison *found, const yoke_file_tensor *tensor,
                           const yoke_tensor_info *info) {
    char text[200], file_shape[64], model_shape[64];
    size_t shape_bytes = (size_t)info->ndim * sizeof info->shape[0];
    if (tensor == NULL) {
        /* Checkpoints older than PyTorch 0.4.1 have no num_batches_tracked. */
        if (!info->integer) add_mismatch(&found->missing, info->name);
    } else if (tensor->ndim != info->ndim || memcmp(tensor->shape, info->shape, shape_bytes) != 0) {
        print_shape(file_shape, sizeof file_shape, tensor->shape, tensor->ndim);
        print_shape(model_shape, sizeof model_shape, info->shape, info->ndim);
        snprintf(text, sizeof text, "%.40s %s, not %s", info->name, file_shape, model_shape);
        add_mismatch(&found->shapes, text);
    } else if (info->integer ? tensor->dtype != YOKE_DTYPE_I64 && tensor->dtype != YOKE_DTYPE_I32
                             : !yoke_dtype_is_float(tensor->dtype)) {
        snprintf(text, sizeof text, "%.40s %s", info->name, yoke_dtype_name(tensor->dtype));
        add_mismatch(&found->types, text);
    }
}

static yoke_status report(const comparison *found, const char *path, const yoke_model *model) {
    const struct {
        const mismatch *list;
        const char *kind;
    } parts[] = {{&found->missing, "missing"},
                 {&found->unknown, "unknown"},
                 {&found->shapes, "of a different shape"},
                 {&found->types, "of a type that cannot be read"}};
    char text[YOKE_ERROR_TEXT_BYTES] = "";
    size_t used = 0;
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        if (parts[i].list->count == 0 || used >= sizeof text) continue;
        used +=
            (size_t)snprintf(text + used, sizeof text - used, "%s%d %s (%s)", used > 0 ? "; " : "",
                             parts[i].list->count, parts[i].kind, parts[i].list->text);
    }
    if (used == 0) return YOKE_OK;
    return FAIL(YOKE_ERROR_DATA, "%s: not the weights of this %s: %s", path, yoke_model_name(model),
                text);
}

/* Whether the model lacks this name of the file, or the file has it twice, with and without
 * prefix. */
static bool is_unknown(const yoke_safetensors *file, const yoke_model *model, int index) {
    const char *name = plain_name(file->tensors[index].name);
    return yoke_model_find_tensor(model, name, NULL) < 0 ||
           find(file, name) != &file->tensors[index];
}

static yoke_status compare(const yoke_safetensors *file, const yoke_model *model) {
    comparison found = {0};
    for (int i = 0; i < yoke_model_tensor_count(model); i++) {
        yoke_tensor_info info = {.struct_size = sizeof info};
        TRY(yoke_model_tensor(model, i, &info));
        compare_tensor(&found, find(file, info.name), &info);
    }
    for (int i = 0; i < file->count; i++)
        if (is_unknown(file, model, i)) add_mismatch(&found.unknown, file->tensors[i].name);
    return report(&found, file->path, model);
}

static yoke_status apply_tensor(yoke_data_parallel *parallel, const yoke_safetensors *file,
                                const yoke_tensor_info *info, float *values) {
    const yoke_file_tensor *tensor = find(file, info->name);
    if (tensor == NULL) return YOKE_OK;
    if (!info->integer) {
        TRY(yoke_safetensors_floats(file, tensor, values));
        return yoke_data_parallel_write(parallel, info->name, values, info->count);
    }
    int64_t batches;
    TRY(yoke_safetensors_integer(file, tensor, &batches));
    if (batches >= 0) yoke_data_parallel_set_batches_tracked(parallel, (uint64_t)batches);
    return YOKE_OK;
}

/* Everything matches and all memory is allocated. */
static yoke_status apply(yoke_data_parallel *parallel, const yoke_model *model,
                         const yoke_safetensors *file, float *values) {
    for (int i = 0; i < yoke_model_tensor_count(model); i++) {
        yoke_tensor_info info = {.struct_size = sizeof info};
        TRY(yoke_model_tensor(model, i, &info));
        TRY(apply_tensor(parallel, file, &info, values));
    }
    return YOKE_OK;
}

static yoke_status load(yoke_data_parallel *parallel, const yoke_model *model,
                        const yoke_safetensors *file) {
    const yoke_model *own = yoke_data_parallel_model(parallel);
    TRY(compare(file, model));
    if (own != model) TRY(compare(file, own)); /* the engine's model, whose tensors are written */
    size_t largest = 1;
    for (int i = 0; i < file->count; i++)
        if (file->tensors[i].elements > largest) largest = file->tensors[i].elements;
    float *values = malloc(largest * sizeof *values);
    if (values == NULL)
        return FAIL_MEMORY(largest * sizeof *values, "a tensor on its way from a file");
    yoke_status status = apply(parallel, model, file, values);
    free(values);
    return status;
}

yoke_status yoke_weights_load(yoke_data_parallel *parallel, const yoke_model *model,
                              const char *path) {
    TRY(check_pointers(parallel, model, path));
    yoke_safetensors file;
    TRY(yoke_safetensors_open(&file, path));
    yoke_status status = load(parallel, model, &file);
    yoke_safetensors_close(&file);
    return status;
}
