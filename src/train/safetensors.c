/* SPDX-License-Identifier: Apache-2.0 */
/* Reads safetensors with every check of the specification, and writes files as the reference writer
 * does. */
#include "train/safetensors.h"

#include <stdlib.h>
#include <string.h>

#include "train/digest.h"
#include "train/safetensors_header.h"

#define SPECIFIED_LIMIT 100000000u /* of a header */
#define PIECE_BYTES 16384u         /* a multiple of every type's bytes */
#define METADATA "__metadata__"
#define FORMAT "format" /* of a loader's framework */

static const struct {
    const char *name;
    unsigned bits;
} dtypes[] = {
#define DTYPE_ROW(enumerator, text, bits) {text, bits},
    YOKE_DTYPE_TABLE(DTYPE_ROW)
#undef DTYPE_ROW
};

const char *yoke_dtype_name(yoke_dtype dtype) {
    return dtypes[dtype].name;
}

unsigned yoke_dtype_bits(yoke_dtype dtype) {
    return dtypes[dtype].bits;
}

bool yoke_dtype_is_float(yoke_dtype dtype) {
    return dtype == YOKE_DTYPE_F32 || dtype == YOKE_DTYPE_F16 || dtype == YOKE_DTYPE_BF16 ||
           dtype == YOKE_DTYPE_F64;
}

static uint64_t little_endian(const unsigned char *bytes, int count) {
    uint64_t value = 0;
    for (int i = count - 1; i >= 0; i--)
        value = value << 8 | bytes[i];
    return value;
}

/* Reading. */

static yoke_status read_at(const yoke_safetensors *file, size_t offset, void *bytes, size_t count) {
    return yoke_file_read_at(&file->reader, file->path, offset, bytes, count);
}

/* The first eight bytes decide whether another one is read. */
static yoke_status read_length(const yoke_safetensors *file, size_t *header_bytes) {
    unsigned char field[YOKE_HEADER_AT];
    if (file->bytes < YOKE_HEADER_AT)
        return FAIL(YOKE_ERROR_DATA, "%s: %zu bytes are too few for a safetensors file", file->path,
                    file->bytes);
    TRY(read_at(file, 0, field, YOKE_HEADER_AT));
    uint64_t length = little_endian(field, YOKE_HEADER_AT);
    /* torch.save writes a zip archive, before PyTorch 1.6 a pickle of protocol 2. */
    bool zip = memcmp(field, "PK\003\004", 4) == 0;
    const char *name = yoke_file_is_memory(&file->reader) ? "FILE" : file->path;
    bool pickle = field[0] == 0x80 && field[1] >= 2 && field[1] <= 5;
    if (length > SPECIFIED_LIMIT && (zip || pickle))
        return FAIL(YOKE_ERROR_DATA,
                    "%s: a file of torch.save, not safetensors. Convert it: python3 -c \"import "
                    "torch; from safetensors.torch import save_file; d = torch.load('%s', "
                    "map_location='cpu', weights_only=True); save_file({k: v.clone().contiguous() "
                    "for k, v in d.get('state_dict', d).items()}, '%s.safetensors')\"",
                    file->path, name, name);
    if (length > SPECIFIED_LIMIT || length > file->bytes - YOKE_HEADER_AT)
        return FAIL(YOKE_ERROR_DATA,
                    "%s: not a safetensors file, or cut off: it declares a header of %llu bytes "
                    "and has %zu bytes after offset 8",
                    file->path, (unsigned long long)length, file->bytes - YOKE_HEADER_AT);
    if (length > YOKE_HEADER_LIMIT)
        return FAIL(YOKE_ERROR_DATA,
                    "%s: declares a header of %llu bytes; at most %zu are read: save fewer tensors "
                    "to one file",
                    file->path, (unsigned long long)length, YOKE_HEADER_LIMIT);
    *header_bytes = (size_t)length;
    return YOKE_OK;
}

static yoke_status read_header(yoke_safetensors *file) {
    size_t length = 0;
    TRY(read_length(file, &length));
    file->data_at = YOKE_HEADER_AT + length;
    char *header = yoke_malloc(file->data_at + 1);
    if (header == NULL) return FAIL_MEMORY(length, "the header of a weight file");
    file->header = header;
    TRY(read_at(file, 0, header, file->data_at));
    file->is_sealed = yoke_seal_matches(header, file->data_at);
    return yoke_safetensors_read_header(file, length);
}

yoke_status yoke_safetensors_open(yoke_safetensors *file, const yoke_file_source *source) {
    *file = (yoke_safetensors){0};
    TRY(yoke_file_open_source(&file->reader, source));
    file->bytes = file->reader.bytes;
    file->path = yoke_strdup(source->path);
    yoke_status status =
        file->path != NULL ? read_header(file) : FAIL_MEMORY(strlen(source->path) + 1, "a path");
    if (status != YOKE_OK) yoke_safetensors_close(file);
    return status;
}

void yoke_safetensors_close(yoke_safetensors *file) {
    yoke_free(file->by_key);
    yoke_free(file->by_name);
    yoke_free(file->notes);
    yoke_free(file->tensors);
    yoke_free(file->header);
    yoke_file_close(&file->reader);
    yoke_free(file->path);
    *file = (yoke_safetensors){0};
}

/* Names. */

/* As strcmp of `text` and prefix + name. */
static int compare(const char *text, const char *prefix, const char *name) {
    size_t length = strlen(prefix);
    int order = strncmp(text, prefix, length);
    return order != 0 ? order : strcmp(text + length, name);
}

const char *yoke_safetensors_note_of(const yoke_safetensors *file, const char *prefix,
                                     const char *key) {
    for (int low = 0, high = file->note_count; low < high;) {
        int middle = low + (high - low) / 2;
        const yoke_file_note *note = &file->notes[file->by_key[middle]];
        int order = compare(note->key, prefix, key);
        if (order == 0) return note->value;
        *(order < 0 ? &low : &high) = order < 0 ? middle + 1 : middle;
    }
    return NULL;
}

const char *yoke_safetensors_note(const yoke_safetensors *file, const char *key) {
    return yoke_safetensors_note_of(file, "", key);
}

const yoke_file_tensor *yoke_safetensors_find_of(const yoke_safetensors *file, const char *prefix,
                                                 const char *name) {
    for (int low = 0, high = file->count; low < high;) {
        int middle = low + (high - low) / 2;
        const yoke_file_tensor *tensor = &file->tensors[file->by_name[middle]];
        int order = compare(tensor->name, prefix, name);
        if (order == 0) return tensor;
        *(order < 0 ? &low : &high) = order < 0 ? middle + 1 : middle;
    }
    return NULL;
}

const yoke_file_tensor *yoke_safetensors_find(const yoke_safetensors *file, const char *name) {
    return yoke_safetensors_find_of(file, "", name);
}

/* Values. */

static float float_of_bits(uint32_t bits) {
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static double value_of(const unsigned char *bytes, yoke_dtype dtype) {
    uint64_t bits;
    double value;
    switch (dtype) {
    case YOKE_DTYPE_F32:
        return (double)float_of_bits((uint32_t)little_endian(bytes, 4));
    case YOKE_DTYPE_F16:
        return (double)yoke_float16_widen((uint16_t)little_endian(bytes, 2));
    case YOKE_DTYPE_BF16:
        return (double)float_of_bits((uint32_t)little_endian(bytes, 2) << 16);
    default:
        bits = little_endian(bytes, 8);
        memcpy(&value, &bits, sizeof value);
        return value;
    }
}

yoke_status yoke_safetensors_bytes(const yoke_safetensors *file, const yoke_file_tensor *tensor,
                                   size_t offset, void *bytes, size_t count) {
    return read_at(file, file->data_at + tensor->begin + offset, bytes, count);
}

/* Values as floats, or as doubles: the other is NULL. */
static yoke_status read_values(const yoke_safetensors *file, const yoke_file_tensor *tensor,
                               float *floats, double *doubles) {
    unsigned char bytes[PIECE_BYTES];
    size_t width = dtypes[tensor->dtype].bits / 8;
    if (!yoke_dtype_is_float(tensor->dtype))
        return FAIL(YOKE_ERROR_DATA, "%s: tensor %s is %s; F32, F16, BF16 or F64 is needed",
                    file->path, tensor->name, dtypes[tensor->dtype].name);
    for (size_t first = 0, count; first < tensor->elements; first += count) {
        size_t left = tensor->elements - first, most = PIECE_BYTES / width;
        count = left < most ? left : most;
        TRY(yoke_safetensors_bytes(file, tensor, width * first, bytes, width * count));
        for (size_t i = 0; i < count; i++) {
            double value = value_of(bytes + i * width, tensor->dtype);
            if (floats != NULL) floats[first + i] = (float)value;
            if (doubles != NULL) doubles[first + i] = value;
        }
    }
    return YOKE_OK;
}

yoke_status yoke_safetensors_floats(const yoke_safetensors *file, const yoke_file_tensor *tensor,
                                    float *values) {
    return read_values(file, tensor, values, NULL);
}

yoke_status yoke_safetensors_doubles(const yoke_safetensors *file, const yoke_file_tensor *tensor,
                                     double *values) {
    return read_values(file, tensor, NULL, values);
}

yoke_status yoke_safetensors_integer(const yoke_safetensors *file, const yoke_file_tensor *tensor,
                                     int64_t *value) {
    unsigned char bytes[8];
    if (tensor->elements != 1 ||
        (tensor->dtype != YOKE_DTYPE_I64 && tensor->dtype != YOKE_DTYPE_I32))
        return FAIL(YOKE_ERROR_DATA, "%s: tensor %s is not one I64 or I32", file->path,
                    tensor->name);
    TRY(yoke_safetensors_bytes(file, tensor, 0, bytes, tensor->bytes));
    *value = tensor->dtype == YOKE_DTYPE_I64 ? (int64_t)little_endian(bytes, 8)
                                             : (int32_t)(uint32_t)little_endian(bytes, 4);
    return YOKE_OK;
}

/* Writing. */

/* The reference writer's order: largest type first, then by name. */
static int by_writing_order(const void *left, const void *right) {
    const yoke_file_tensor *a = left, *b = right;
    if (a->dtype != b->dtype) return a->dtype > b->dtype ? -1 : 1;
    return strcmp(a->name, b->name);
}

static int by_text(const void *left, const void *right) {
    return strcmp(*(const char *const *)left, *(const char *const *)right);
}

/* Sorts the names. The last of them is the one that the format needs itself. */
static yoke_status check_names(const char **names, size_t count, const char *what) {
    const char *own = names[count - 1];
    qsort(names, count, sizeof *names, by_text);
    for (size_t i = 1; i < count; i++) {
        if (strcmp(names[i - 1], names[i]) != 0) continue;
        if (strcmp(names[i], own) == 0)
            return FAIL(YOKE_ERROR_ARGUMENT, "%s '%.80s': safetensors needs this name itself", what,
                        own);
        return FAIL(YOKE_ERROR_ARGUMENT, "two %ss have the name '%.80s'", what, names[i]);
    }
    return YOKE_OK;
}

/* A reader refuses a header with one name twice. */
static yoke_status check_all_names(const yoke_file_tensor *tensors, int count,
                                   const yoke_file_note *notes, int note_count) {
    size_t most = (size_t)(count > note_count ? count : note_count) + 1;
    const char **names = yoke_malloc(most * sizeof *names);
    if (names == NULL) return FAIL_MEMORY(most * sizeof *names, "the names of a file");
    for (int i = 0; i < count; i++)
        names[i] = tensors[i].name;
    names[count] = METADATA;
    yoke_status status = check_names(names, (size_t)count + 1, "tensor");
    for (int i = 0; i < note_count; i++)
        names[i] = notes[i].key;
    names[note_count] = FORMAT;
    if (status == YOKE_OK) status = check_names(names, (size_t)note_count + 1, "text");
    yoke_free(names);
    return status;
}

/* Length, JSON, and spaces up to a multiple of eight; sealed if it has a seal. */
static yoke_status pad_header(char **header, size_t *bytes, const yoke_json *json) {
    size_t length = (json->length + 7) / 8 * 8;
    if (json->failed) return FAIL_MEMORY(json->capacity, "the header of a weight file");
    if (length > YOKE_HEADER_LIMIT)
        return FAIL(YOKE_ERROR_ARGUMENT,
                    "the names and texts of the file need a header of %zu bytes; readers take at "
                    "most %zu: shorten or leave out lists of names",
                    length, YOKE_HEADER_LIMIT);
    *bytes = YOKE_HEADER_AT + length;
    *header = yoke_malloc(*bytes);
    if (*header == NULL) return FAIL_MEMORY(*bytes, "the header of a weight file");
    for (unsigned i = 0; i < YOKE_HEADER_AT; i++)
        (*header)[i] = (char)(unsigned char)(length >> 8 * i);
    memcpy(*header + YOKE_HEADER_AT, json->text, json->length);
    memset(*header + YOKE_HEADER_AT + json->length, ' ', length - json->length);
    yoke_seal(*header, *bytes);
    return YOKE_OK;
}

yoke_status yoke_safetensors_header(char **header, size_t *bytes, const yoke_file_tensor *tensors,
                                    int count, const yoke_file_note *notes, int note_count) {
    yoke_json json;
    *header = NULL;
    TRY(check_all_names(tensors, count, notes, note_count));
    yoke_json_begin(&json);
    yoke_json_open(&json, NULL, '{');
    yoke_json_open(&json, METADATA, '{');
    yoke_json_text(&json, FORMAT, "pt"); /* some loaders require it */
    for (int i = 0; i < note_count; i++)
        yoke_json_text(&json, notes[i].key, notes[i].value);
    yoke_json_close(&json, '}');
    for (int i = 0; i < count; i++) {
        const yoke_file_tensor *tensor = &tensors[i];
        yoke_json_open(&json, tensor->name, '{');
        yoke_json_text(&json, "dtype", dtypes[tensor->dtype].name);
        yoke_json_open(&json, "shape", '[');
        for (int d = 0; d < tensor->ndim; d++)
            yoke_json_integer(&json, NULL, tensor->shape[d]);
        yoke_json_close(&json, ']');
        yoke_json_open(&json, "data_offsets", '[');
        yoke_json_integer(&json, NULL, (int64_t)tensor->begin);
        yoke_json_integer(&json, NULL, (int64_t)(tensor->begin + tensor->bytes));
        yoke_json_close(&json, ']');
        yoke_json_close(&json, '}');
    }
    yoke_json_close(&json, '}');
    yoke_status status = pad_header(header, bytes, &json);
    yoke_json_end(&json);
    return status;
}

yoke_status yoke_safetensors_arrange(yoke_file_tensor *tensors, int count) {
    size_t end = 0;
    qsort(tensors, (size_t)count, sizeof *tensors, by_writing_order);
    for (int i = 0; i < count; i++) {
        if (!yoke_file_tensor_measure(&tensors[i]))
            return FAIL(YOKE_ERROR_ARGUMENT, "tensor %s is too large", tensors[i].name);
        tensors[i].begin = end;
        end += tensors[i].bytes;
    }
    return YOKE_OK;
}

yoke_status yoke_safetensors_create(yoke_file_writer *writer, const yoke_file_target *target,
                                    const yoke_file_tensor *tensors, int count,
                                    const yoke_file_note *notes, int note_count) {
    char *header;
    size_t header_bytes, block_bytes = 0;
    TRY(yoke_safetensors_header(&header, &header_bytes, tensors, count, notes, note_count));
    for (int i = 0; i < count; i++)
        block_bytes += tensors[i].bytes;
    yoke_status status = yoke_file_create_target(writer, target);
    if (status == YOKE_OK) status = yoke_file_reserve(writer, header_bytes + block_bytes);
    if (status == YOKE_OK) status = yoke_file_write(writer, header, header_bytes);
    yoke_free(header);
    return status;
}
