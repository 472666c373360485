/* SPDX-License-Identifier: Apache-2.0 */
/* Compares a file of weights with a model, tensor by tensor, before anything changes. */
#include "train/weights_match.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "train/checkpoint.h"
#include "train/foreign_names.h"

#define PREFIX "module." /* of nn.DataParallel */

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

void yoke_weights_shape_text(char *text, size_t size, const int64_t *shape, int ndim) {
    size_t used = (size_t)snprintf(text, size, "[");
    for (int i = 0; i < ndim && used < size; i++)
        used += (size_t)snprintf(text + used, size - used, "%s%lld", i > 0 ? "," : "",
                                 (long long)shape[i]);
    if (used < size) snprintf(text + used, size - used, "]");
}

const char *yoke_weights_plain_name(const char *name) {
    return strncmp(name, PREFIX, strlen(PREFIX)) == 0 ? name + strlen(PREFIX) : name;
}

/* Where both are in the file, the first one there. */
static const yoke_file_tensor *first_of(const yoke_file_tensor *a, const yoke_file_tensor *b) {
    if (a == NULL || b == NULL) return a != NULL ? a : b;
    return a < b ? a : b;
}

const yoke_file_tensor *yoke_weights_find(const yoke_safetensors *file, const char *name) {
    const yoke_file_tensor *prefixed = yoke_safetensors_find_of(file, PREFIX, name);
    if (strncmp(name, PREFIX, strlen(PREFIX)) == 0) return prefixed;
    const yoke_file_tensor *own = first_of(yoke_safetensors_find(file, name), prefixed);
    return own != NULL ? own : yoke_safetensors_find_of(file, YOKE_FOREIGN_PREFIX, name);
}

typedef struct comparison {
    mismatch missing, unknown, shapes, types;
    int heads; /* shapes of the head */
} comparison;

static bool may_be_missing(const yoke_weights_match *match, int index) {
    return match->missing != NULL && match->missing[index] >= 0;
}

/* PyTorch's weight of a convolution over volumes: [out, in, depth, height, width] for [out, in *
 * depth, height, width], with the numbers in the same order. */
static bool is_volume_of(const yoke_file_tensor *tensor, const yoke_tensor_info *info) {
    const int64_t *file = tensor->shape, *own = info->shape;
    return tensor->ndim == 5 && info->ndim == 4 && file[0] == own[0] && file[1] > 0 &&
           own[1] % file[1] == 0 && own[1] / file[1] == file[2] && file[3] == own[2] &&
           file[4] == own[3];
}

bool yoke_weights_shape_fits(const yoke_file_tensor *tensor, const yoke_tensor_info *info) {
    if (is_volume_of(tensor, info)) return true;
    size_t bytes = (size_t)info->ndim * sizeof info->shape[0];
    return tensor->ndim == info->ndim && memcmp(tensor->shape, info->shape, bytes) == 0;
}

yoke_file_tensor yoke_weights_file_tensor(const yoke_tensor_info *info) {
    yoke_file_tensor tensor = {.name = info->name,
                               .dtype = info->integer ? YOKE_DTYPE_I64 : YOKE_DTYPE_F32,
                               .ndim = info->ndim};
    memcpy(tensor.shape, info->shape, sizeof info->shape);
    return tensor;
}

size_t yoke_count_finite(const float *values, size_t count) {
    size_t finite = 0;
    while (finite < count && isfinite(values[finite]))
        finite++;
    return finite;
}

static bool has_type(const yoke_file_tensor *tensor, const yoke_tensor_info *info) {
    if (!info->integer) return yoke_dtype_is_float(tensor->dtype);
    return tensor->dtype == YOKE_DTYPE_I64 || tensor->dtype == YOKE_DTYPE_I32;
}

static void add_shapes(mismatch *list, const yoke_file_tensor *tensor,
                       const yoke_tensor_info *info) {
    char text[200], file_shape[64], model_shape[64];
    yoke_weights_shape_text(file_shape, sizeof file_shape, tensor->shape, tensor->ndim);
    yoke_weights_shape_text(model_shape, sizeof model_shape, info->shape, info->ndim);
    snprintf(text, sizeof text, "%.40s %s, not %s", info->name, file_shape, model_shape);
    add_mismatch(list, text);
}

/* The source of tensor `index`, the reason to skip it, or a mismatch. */
static void find_source(yoke_weights_match *match, int index, const yoke_tensor_info *info,
                        comparison *found) {
    const yoke_file_tensor *tensor = yoke_weights_find(match->file, info->name);
    bool allowed = may_be_missing(match, index);
    char type[100];
    if (match->options.new_head && yoke_model_is_head(match->model, index)) {
        match->reasons[index] = YOKE_SKIP_NEW_HEAD;
    } else if (tensor == NULL) {
        /* Checkpoints older than PyTorch 0.4.1 have no num_batches_tracked. */
        if (!info->integer && allowed) match->reasons[index] = YOKE_SKIP_MISSING;
        if (!info->integer && !allowed) add_mismatch(&found->missing, info->name);
    } else if (!yoke_weights_shape_fits(tensor, info)) {
        if (allowed)
            match->reasons[index] = YOKE_SKIP_SHAPE;
        else
            add_shapes(&found->shapes, tensor, info);
        if (!allowed && yoke_model_is_head(match->model, index)) found->heads++;
    } else if (!has_type(tensor, info)) {
        snprintf(type, sizeof type, "%.40s %s", info->name, yoke_dtype_name(tensor->dtype));
        add_mismatch(&found->types, type);
    } else {
        match->sources[index] = tensor;
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
    bool only_head = found->heads > 0 && found->heads == found->shapes.count &&
                     found->missing.count + found->unknown.count + found->types.count == 0;
    return FAIL(YOKE_ERROR_DATA, "%s: not the weights of this %s: %s%s", path,
                yoke_model_name(model), text,
                only_head ? "; --new-head starts this last layer anew" : "");
}

/* Whether the model lacks this name of the file; the optimizer's state of a checkpoint is no
 * weight. */
static bool is_lacking(const yoke_weights_match *match, int index) {
    const yoke_file_tensor *tensor = &match->file->tensors[index];
    const char *name = yoke_weights_plain_name(tensor->name);
    if (yoke_checkpoint_has_state(match->file, name)) return false;
    name = yoke_foreign_plain_name(match->model, name);
    if (yoke_model_find_tensor(match->model, name, NULL) >= 0) return false;
    return !yoke_foreign_is_mask(tensor) && yoke_foreign_tied(match, tensor) == NULL;
}

/* What the options allow. */

/* Marks those of `count` names that the list matches. */
static yoke_status allow(yoke_names *names, int count, const char *list, int **marks,
                         const char **unmatched) {
    size_t bytes = ((size_t)count + 1) * sizeof **marks;
    *marks = yoke_malloc(bytes);
    if (*marks == NULL) return FAIL_MEMORY(bytes, "what a file may lack");
    for (int i = 0; i < count; i++)
        (*marks)[i] = -1;
    yoke_names_sort(names);
    return yoke_patterns_mark(names, list, 0, *marks, unmatched);
}

static yoke_status allow_missing(yoke_weights_match *match) {
    int count = yoke_model_tensor_count(match->model);
    const char *unmatched = NULL;
    yoke_names names;
    if (match->options.allow_missing == NULL) return YOKE_OK;
    TRY(yoke_names_create(&names, count));
    for (int i = 0; i < count; i++) {
        yoke_tensor_info info = {.struct_size = sizeof info};
        if (yoke_model_tensor(match->model, i, &info) == YOKE_OK)
            yoke_names_add(&names, info.name, i);
    }
    yoke_status status =
        allow(&names, count, match->options.allow_missing, &match->missing, &unmatched);
    yoke_names_destroy(&names);
    if (status != YOKE_OK || unmatched == NULL) return status;
    return yoke_patterns_fail(match->model, "allow_missing", unmatched);
}

/* Patterns may match nothing. */
static yoke_status allow_unknown(yoke_weights_match *match) {
    const yoke_safetensors *file = match->file;
    const char *unmatched = NULL;
    yoke_names names;
    if (match->options.allow_unknown == NULL) return YOKE_OK;
    TRY(yoke_names_create(&names, file->count));
    for (int i = 0; i < file->count; i++)
        if (is_lacking(match, i))
            yoke_names_add(&names, yoke_weights_plain_name(file->tensors[i].name), i);
    yoke_status status =
        allow(&names, file->count, match->options.allow_unknown, &match->unknown, &unmatched);
    yoke_names_destroy(&names);
    return status;
}

static yoke_status find_sources(yoke_weights_match *match) {
    const yoke_safetensors *file = match->file;
    comparison found = {0};
    for (int i = 0; i < yoke_model_tensor_count(match->model); i++) {
        yoke_tensor_info info = {.struct_size = sizeof info};
        TRY(yoke_model_tensor(match->model, i, &info));
        find_source(match, i, &info, &found);
    }
    for (int i = 0; i < file->count; i++) {
        const char *name = file->tensors[i].name;
        /* The file may also have a tensor twice, with and without prefix. */
        const char *plain = yoke_foreign_plain_name(match->model, yoke_weights_plain_name(name));
        bool twice = yoke_weights_find(file, plain) != &file->tensors[i];
        bool may_be = match->unknown != NULL && match->unknown[i] >= 0;
        if (twice || (is_lacking(match, i) && !may_be)) add_mismatch(&found.unknown, name);
    }
    return report(&found, file->path, match->model);
}

yoke_status yoke_weights_match_open(yoke_weights_match *match) {
    size_t tensors = (size_t)yoke_model_tensor_count(match->model), largest = 1;
    match->sources = yoke_calloc(tensors, sizeof *match->sources);
    match->reasons = yoke_calloc(tensors, sizeof *match->reasons);
    if (match->sources == NULL || match->reasons == NULL)
        return FAIL_MEMORY(tensors * sizeof *match->sources, "the tensors of a file");
    TRY(allow_missing(match));
    TRY(allow_unknown(match));
    TRY(find_sources(match));
    for (size_t i = 0; i < tensors; i++)
        if (match->sources[i] != NULL && match->sources[i]->elements > largest)
            largest = match->sources[i]->elements;
    match->values = yoke_malloc(largest * sizeof *match->values);
    if (match->values == NULL)
        return FAIL_MEMORY(largest * sizeof *match->values, "a tensor on its way from a file");
    return YOKE_OK;
}

void yoke_weights_match_close(yoke_weights_match *match) {
    yoke_free(match->values);
    yoke_free(match->unknown);
    yoke_free(match->missing);
    yoke_free(match->reasons);
    yoke_free(match->sources);
}

/* Values. */

yoke_status yoke_weights_match_values(yoke_weights_match *match) {
    TRY(yoke_foreign_check_tied(match));
    for (int k = 0; k < yoke_model_tensor_count(match->model); k++) {
        const yoke_file_tensor *tensor = match->sources[k];
        if (tensor == NULL || !yoke_dtype_is_float(tensor->dtype)) continue;
        TRY(yoke_safetensors_floats(match->file, tensor, match->values));
        size_t i = yoke_count_finite(match->values, tensor->elements);
        if (i == tensor->elements) continue;
        if (!may_be_missing(match, k))
            return FAIL(YOKE_ERROR_DATA,
                        "%s: element %zu of %s is %g: weights must be finite; take an older file, "
                        "or allow this tensor to be missing",
                        match->file->path, i, tensor->name, (double)match->values[i]);
        match->reasons[k] = YOKE_SKIP_NOT_FINITE;
        match->sources[k] = NULL;
    }
    return YOKE_OK;
}

/* Reports. */

static void tell(const yoke_weights_match *match, yoke_skip_reason reason, const char *name,
                 const char *what) {
    char text[256];
    snprintf(text, sizeof text, "%s %s", name, what);
    yoke_weights_skip skip = {
        .struct_size = sizeof skip, .reason = reason, .name = name, .text = text};
    match->options.on_skip(&skip, match->options.payload);
}

static void tell_tensor(const yoke_weights_match *match, int index) {
    yoke_tensor_info info = {.struct_size = sizeof info};
    yoke_skip_reason reason = match->reasons[index];
    char shape[64], own[64], what[200];
    if (yoke_model_tensor(match->model, index, &info) != YOKE_OK) return;
    const yoke_file_tensor *tensor = yoke_weights_find(match->file, info.name);
    yoke_weights_shape_text(own, sizeof own, info.shape, info.ndim);
    if (reason == YOKE_SKIP_NEW_HEAD) {
        snprintf(what, sizeof what, "%s is not loaded: the new head begins with random values",
                 own);
    } else if (reason == YOKE_SKIP_SHAPE) {
        yoke_weights_shape_text(shape, sizeof shape, tensor->shape, tensor->ndim);
        snprintf(what, sizeof what, "is %s in the file and %s in the model, which keeps its own",
                 shape, own);
    } else {
        snprintf(what, sizeof what, "is not %s the file: the model keeps its own",
                 reason == YOKE_SKIP_MISSING ? "in" : "finite in");
    }
    tell(match, reason, info.name, what);
}

void yoke_weights_match_report(const yoke_weights_match *match) {
    if (match->options.on_skip == NULL) return;
    for (int i = 0; i < yoke_model_tensor_count(match->model); i++)
        if (match->reasons[i] != 0) tell_tensor(match, i);
    for (int i = 0; i < match->file->count; i++)
        if (is_lacking(match, i))
            tell(match, YOKE_SKIP_UNKNOWN, yoke_weights_plain_name(match->file->tensors[i].name),
                 "is not in the model: ignored");
}
