/* SPDX-License-Identifier: Apache-2.0 */
/* The elements of tensors: in the file, as raw bytes or as numbers of protobuf, or in another file
 * of its folder. Files are little-endian, as Yoke's machines. */
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "model/onnx/onnx_file.h"

#define CHUNK 4096 /* elements that are read at a time */

static size_t bytes_of(int type) {
    switch (type) {
    case YOKE_ONNX_UINT8:
    case YOKE_ONNX_INT8:
    case YOKE_ONNX_BOOL:
        return 1;
    case YOKE_ONNX_INT16:
    case YOKE_ONNX_FLOAT16:
    case YOKE_ONNX_BFLOAT16:
        return 2;
    case YOKE_ONNX_FLOAT:
    case YOKE_ONNX_INT32:
        return 4;
    case YOKE_ONNX_DOUBLE:
    case YOKE_ONNX_INT64:
        return 8;
    default:
        return 0;
    }
}

bool yoke_onnx_type_known(int type) {
    return bytes_of(type) > 0;
}

bool yoke_onnx_type_whole(int type) {
    return type != YOKE_ONNX_FLOAT && type != YOKE_ONNX_FLOAT16 && type != YOKE_ONNX_DOUBLE &&
           type != YOKE_ONNX_BFLOAT16;
}

static const char *name_of(const Yoke__Onnx__Tensor *tensor) {
    return tensor->name != NULL && tensor->name[0] != '\0' ? tensor->name : "a constant";
}

yoke_status yoke_onnx_tensor_count(const Yoke__Onnx__Tensor *tensor, size_t *count) {
    *count = 1;
    for (size_t i = 0; i < tensor->n_dims; i++) {
        if (tensor->dims[i] < 0 || __builtin_mul_overflow(*count, (size_t)tensor->dims[i], count) ||
            *count > SIZE_MAX / 16)
            return FAIL(YOKE_ERROR_DATA, "%s: size %zu is %lld, and a tensor cannot be so large",
                        name_of(tensor), i, (long long)tensor->dims[i]);
    }
    return YOKE_OK;
}

/* Elements from one place, in order. */
typedef struct source {
    const Yoke__Onnx__Tensor *tensor;
    yoke_file_reader reader;
    const char *path; /* of the other file; NULL: they are in this one */
    size_t offset;
} source;

static double element_of(int type, const unsigned char *at) {
    union {
        float real;
        double wide;
        int64_t long_whole;
        int32_t whole;
        int16_t half;
        uint16_t bits;
    } one = {0};
    memcpy(&one, at, bytes_of(type));
    switch (type) {
    case YOKE_ONNX_FLOAT:
        return (double)one.real;
    case YOKE_ONNX_DOUBLE:
        return one.wide;
    case YOKE_ONNX_INT64:
        return (double)one.long_whole;
    case YOKE_ONNX_INT32:
        return one.whole;
    case YOKE_ONNX_INT16:
        return one.half;
    case YOKE_ONNX_INT8:
        return (int8_t)at[0];
    case YOKE_ONNX_FLOAT16:
        return (double)yoke_float16_widen(one.bits);
    case YOKE_ONNX_BFLOAT16:
        return (double)yoke_bfloat16_widen(one.bits);
    case YOKE_ONNX_BOOL:
        return at[0] != 0;
    default:
        return at[0];
    }
}

/* How many elements protobuf's numbers hold for this type. */
static size_t numbers_of(const Yoke__Onnx__Tensor *tensor) {
    switch (tensor->data_type) {
    case YOKE_ONNX_FLOAT:
        return tensor->n_float_data;
    case YOKE_ONNX_DOUBLE:
        return tensor->n_double_data;
    case YOKE_ONNX_INT64:
        return tensor->n_int64_data;
    default:
        return tensor->n_int32_data;
    }
}

static double number_of(const Yoke__Onnx__Tensor *tensor, size_t i) {
    switch (tensor->data_type) {
    case YOKE_ONNX_FLOAT:
        return (double)tensor->float_data[i];
    case YOKE_ONNX_DOUBLE:
        return tensor->double_data[i];
    case YOKE_ONNX_INT64:
        return (double)tensor->int64_data[i];
    case YOKE_ONNX_FLOAT16:
        return (double)yoke_float16_widen((uint16_t)tensor->int32_data[i]);
    case YOKE_ONNX_BFLOAT16:
        return (double)yoke_bfloat16_widen((uint16_t)tensor->int32_data[i]);
    default:
        return tensor->int32_data[i];
    }
}

/* Opens a file below the folder of the model, part by part, without following links. */
static yoke_status open_below(const yoke_onnx_file *file, const char *location, source *from) {
    char part[256];
    const char *slash = strrchr(file->path, '/');
    char *folder = slash == NULL         ? yoke_strdup(".")
                   : slash == file->path ? yoke_strdup("/")
                                         : yoke_strndup(file->path, (size_t)(slash - file->path));
    if (folder == NULL) return FAIL_MEMORY(strlen(file->path), "a folder's name");
    int at = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int cause = errno;
    yoke_free(folder);
    for (const char *rest = location; at >= 0 && *rest != '\0';) {
        size_t length = strcspn(rest, "/");
        bool last = rest[length] == '\0';
        int next = -1;
        cause = ENAMETOOLONG;
        if (length < sizeof part) {
            memcpy(part, rest, length);
            part[length] = '\0';
            next = openat(at, part,
                          O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY |
                              (last ? 0 : O_DIRECTORY));
            cause = errno;
        }
        close(at);
        at = next;
        rest += length + !last;
    }
    if (at < 0)
        return FAIL(cause == ENOENT ? YOKE_ERROR_MISSING : YOKE_ERROR_IO,
                    "%s: cannot open '%s', where its folder should have elements of %s: %s%s",
                    file->path, location, name_of(from->tensor), strerror(cause),
                    cause == ELOOP || cause == ENOTDIR ? " (links are not followed)" : "");
    struct stat found;
    if (fstat(at, &found) != 0 || !S_ISREG(found.st_mode)) {
        close(at);
        return FAIL(YOKE_ERROR_IO, "%s: '%s', with elements of %s, is no regular file", file->path,
                    location, name_of(from->tensor));
    }
    from->reader = yoke_file_adopt(at, (size_t)found.st_size);
    from->path = location;
    return YOKE_OK;
}

static bool leads_out(const char *location) {
    if (location[0] == '/' || location[0] == '\0') return true;
    for (const char *part = location; *part != '\0';) {
        size_t length = strcspn(part, "/");
        if (length == 0 || (length == 2 && part[0] == '.' && part[1] == '.')) return true;
        part += length;
        if (*part == '/') part++;
        if (*part == '\0' && part[-1] == '/') return true;
    }
    return false;
}

static bool is_printable(const char *text) {
    for (size_t i = 0; text[i] != '\0'; i++)
        if ((unsigned char)text[i] < 0x20 || text[i] == 0x7f || i > 400) return false;
    return true;
}

/* The place of external elements, by the words of the tensor. */
static yoke_status open_external(const yoke_onnx_file *file, size_t bytes, source *from) {
    const Yoke__Onnx__Tensor *tensor = from->tensor;
    const char *location = "";
    int64_t offset = 0, length = (int64_t)bytes;
    for (size_t i = 0; i < tensor->n_external_data; i++) {
        const char *key = tensor->external_data[i]->key, *value = tensor->external_data[i]->value;
        if (key == NULL || value == NULL) continue;
        bool good = true;
        if (strcmp(key, "location") == 0) location = value;
        if (strcmp(key, "offset") == 0) good = yoke_text_integer(value, 0, INT64_MAX, &offset);
        if (strcmp(key, "length") == 0) good = yoke_text_integer(value, 0, INT64_MAX, &length);
        if (!good)
            return FAIL(YOKE_ERROR_DATA, "%s: %s: its %s in another file is no number", file->path,
                        name_of(tensor), key);
    }
    if (!is_printable(location))
        return FAIL(YOKE_ERROR_DATA, "%s: the file with elements of %s has no printable name",
                    file->path, name_of(tensor));
    if (file->in_memory)
        return FAIL(YOKE_ERROR_DATA,
                    "%s: the elements of %s are in the file '%s', and bytes have no folder: export "
                    "the model with all weights in one file",
                    file->path, name_of(tensor), location);
    if (leads_out(location))
        return FAIL(YOKE_ERROR_DATA,
                    "%s: it places the elements of %s in '%s': only files in the model's own "
                    "folder are read",
                    file->path, name_of(tensor), location);
    if ((size_t)length != bytes)
        return FAIL(YOKE_ERROR_DATA, "%s: %s has %lld bytes in %s, its sizes need %zu", file->path,
                    name_of(tensor), (long long)length, location, bytes);
    TRY(open_below(file, location, from));
    from->offset = (size_t)offset;
    if (from->offset <= from->reader.bytes && bytes <= from->reader.bytes - from->offset)
        return YOKE_OK;
    size_t have = from->reader.bytes;
    yoke_file_close(&from->reader);
    from->path = NULL;
    return FAIL(YOKE_ERROR_DATA, "%s: %s is at %lld to %lld of %s, which has %zu bytes", file->path,
                name_of(tensor), (long long)offset, (long long)offset + length, location, have);
}

/* Finds the elements and checks that they are all there. */
static yoke_status source_open(const yoke_onnx_file *file, const Yoke__Onnx__Tensor *tensor,
                               size_t count, source *from) {
    *from = (source){.tensor = tensor};
    size_t each = bytes_of(tensor->data_type);
    if (each == 0)
        return FAIL(YOKE_ERROR_DATA, "%s: %s has elements of type %d, which Yoke does not read",
                    file->path, name_of(tensor), tensor->data_type);
    if (tensor->has_data_location && tensor->data_location == 1)
        return open_external(file, count * each, from);
    size_t have = tensor->has_raw_data ? tensor->raw_data.len / each : numbers_of(tensor);
    if (have == count && (!tensor->has_raw_data || tensor->raw_data.len % each == 0))
        return YOKE_OK;
    return FAIL(YOKE_ERROR_DATA, "%s: %s has %zu elements, its sizes need %zu", file->path,
                name_of(tensor), have, count);
}

static void source_close(source *from) {
    if (from->path != NULL) yoke_file_close(&from->reader);
}

/* Elements first .. first + count - 1, at most CHUNK. */
static yoke_status source_read(source *from, size_t first, size_t count, double *values) {
    unsigned char bytes[CHUNK * 8];
    int type = from->tensor->data_type;
    size_t each = bytes_of(type);
    const unsigned char *at = bytes;
    if (from->path != NULL)
        TRY(yoke_file_read_at(&from->reader, from->path, from->offset + first * each, bytes,
                              count * each));
    else if (from->tensor->has_raw_data)
        at = from->tensor->raw_data.data + first * each;
    else
        at = NULL;
    for (size_t i = 0; i < count; i++)
        values[i] =
            at != NULL ? element_of(type, at + i * each) : number_of(from->tensor, first + i);
    return YOKE_OK;
}

yoke_status yoke_onnx_tensor_check(const yoke_onnx_file *file, const Yoke__Onnx__Tensor *tensor,
                                   size_t count) {
    source from;
    TRY(source_open(file, tensor, count, &from));
    source_close(&from);
    return YOKE_OK;
}

yoke_status yoke_onnx_tensor_doubles(const yoke_onnx_file *file, const Yoke__Onnx__Tensor *tensor,
                                     size_t count, double *values) {
    source from;
    TRY(source_open(file, tensor, count, &from));
    yoke_status status = YOKE_OK;
    for (size_t i = 0; i < count && status == YOKE_OK; i += CHUNK)
        status = source_read(&from, i, count - i < CHUNK ? count - i : CHUNK, values + i);
    source_close(&from);
    return status;
}

yoke_status yoke_onnx_tensor_floats(const yoke_onnx_file *file, const Yoke__Onnx__Tensor *tensor,
                                    size_t count, float *values) {
    double part[CHUNK];
    source from;
    TRY(source_open(file, tensor, count, &from));
    yoke_status status = YOKE_OK;
    for (size_t i = 0; i < count && status == YOKE_OK; i += CHUNK) {
        size_t some = count - i < CHUNK ? count - i : CHUNK;
        status = source_read(&from, i, some, part);
        for (size_t k = 0; k < some; k++)
            values[i + k] = (float)part[k];
    }
    source_close(&from);
    return status;
}
