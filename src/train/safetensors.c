/* Reads safetensors with every check of the specification, and writes files as the reference writer
 * does. */
#include "train/safetensors.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "train/digest.h"

#define HEADER_LIMIT 100000000u /* of the specification */
#define LENGTH_BYTES 8u
#define METADATA "__metadata__"
#define FORMAT "format" /* of a loader's framework */
#define FILE_LIMIT ((size_t)1 << 40)

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

/* Computes elements and bytes of a tensor from its shape and type; false if they overflow or are
 * not whole bytes. */
static bool measure(yoke_file_tensor *tensor) {
    size_t elements = 1, bits;
    for (int i = 0; i < tensor->ndim; i++)
        if (__builtin_mul_overflow(elements, (uint64_t)tensor->shape[i], &elements)) return false;
    if (__builtin_mul_overflow(elements, dtypes[tensor->dtype].bits, &bits) || bits % 8 != 0)
        return false;
    tensor->elements = elements;
    tensor->bytes = bits / 8;
    return true;
}

static yoke_status read_dtype(const char *path, yoke_file_tensor *tensor, const json_t *value) {
    const char *name = json_string_value(value);
    if (name == NULL)
        return FAIL(YOKE_ERROR_DATA, "%s: tensor %s has no dtype", path, tensor->name);
    for (int i = 0; i < YOKE_DTYPE_COUNT; i++) {
        if (strcmp(dtypes[i].name, name) != 0) continue;
        tensor->dtype = (yoke_dtype)i;
        return YOKE_OK;
    }
    return FAIL(YOKE_ERROR_DATA, "%s: tensor %s has the unknown dtype '%.20s'", path, tensor->name,
                name);
}

static yoke_status read_shape(const char *path, yoke_file_tensor *tensor, const json_t *value) {
    size_t dims = json_array_size(value);
    if (!json_is_array(value) || dims > YOKE_FILE_TENSOR_DIMS)
        return FAIL(YOKE_ERROR_DATA, "%s: tensor %s has no shape of at most %d dimensions", path,
                    tensor->name, YOKE_FILE_TENSOR_DIMS);
    tensor->ndim = (int)dims;
    for (size_t i = 0; i < dims; i++) {
        const json_t *extent = json_array_get(value, i);
        if (!json_is_integer(extent) || json_integer_value(extent) < 0)
            return FAIL(YOKE_ERROR_DATA, "%s: dimension %zu of tensor %s is not a size", path, i,
                        tensor->name);
        tensor->shape[i] = json_integer_value(extent);
    }
    if (!measure(tensor))
        return FAIL(YOKE_ERROR_DATA, "%s: the shape of tensor %s is too large", path, tensor->name);
    return YOKE_OK;
}

static yoke_status read_offsets(const char *path, yoke_file_tensor *tensor, const json_t *value) {
    const json_t *first = json_array_get(value, 0), *last = json_array_get(value, 1);
    if (json_array_size(value) != 2 || !json_is_integer(first) || !json_is_integer(last) ||
        json_integer_value(first) < 0 || json_integer_value(last) < json_integer_value(first))
        return FAIL(YOKE_ERROR_DATA, "%s: tensor %s has no data_offsets [begin, end]", path,
                    tensor->name);
    size_t bytes = (size_t)(json_integer_value(last) - json_integer_value(first));
    if (bytes != tensor->bytes)
        return FAIL(YOKE_ERROR_DATA,
                    "%s: tensor %s has %zu bytes, but its shape and dtype %s need %zu", path,
                    tensor->name, bytes, dtypes[tensor->dtype].name, tensor->bytes);
    tensor->begin = (size_t)json_integer_value(first);
    return YOKE_OK;
}

static yoke_status read_tensor(const char *path, yoke_file_tensor *tensor, const json_t *entry) {
    if (!json_is_object(entry) || json_object_size(entry) != 3)
        return FAIL(YOKE_ERROR_DATA,
                    "%s: the entry of tensor %s must have dtype, shape and data_offsets only", path,
                    tensor->name);
    TRY(read_dtype(path, tensor, json_object_get(entry, "dtype")));
    TRY(read_shape(path, tensor, json_object_get(entry, "shape")));
    return read_offsets(path, tensor, json_object_get(entry, "data_offsets"));
}

static yoke_status read_metadata(yoke_safetensors *file, json_t *metadata) {
    const char *key;
    json_t *value;
    if (!json_is_object(metadata))
        return FAIL(YOKE_ERROR_DATA, "%s: __metadata__ is not an object", file->path);
    size_t capacity = json_object_size(metadata) + 1;
    file->notes = calloc(capacity, sizeof *file->notes);
    if (file->notes == NULL)
        return FAIL_MEMORY(capacity * sizeof *file->notes, "the metadata of a weight file");
    json_object_foreach(metadata, key, value) {
        if (!json_is_string(value))
            return FAIL(YOKE_ERROR_DATA, "%s: __metadata__ %.60s is not text", file->path, key);
        file->notes[file->note_count++] = (yoke_file_note){key, json_string_value(value)};
    }
    return YOKE_OK;
}

static int by_begin(const void *left, const void *right) {
    const yoke_file_tensor *a = left, *b = right;
    if (a->begin != b->begin) return a->begin < b->begin ? -1 : 1;
    return (a->bytes > b->bytes) -
           (a->bytes < b->bytes); /* an empty tensor before the one at the same offset */
}

/* Each tensor must begin where the previous one ends, and the last must end with the file. */
static yoke_status check_cover(const yoke_safetensors *file, size_t buffer_bytes) {
    size_t end = 0;
    for (int i = 0; i < file->count; i++) {
        const yoke_file_tensor *tensor = &file->tensors[i];
        if (tensor->begin != end)
            return FAIL(YOKE_ERROR_DATA,
                        "%s: tensor %s begins at byte %zu, %s the byte %zu where "
                        "the one before it ends",
                        file->path, tensor->name, tensor->begin,
                        tensor->begin < end ? "before" : "behind", end);
        if (tensor->bytes > buffer_bytes - end)
            return FAIL(YOKE_ERROR_DATA,
                        "%s: tensor %s ends at byte %zu of the data, but the file has only %zu",
                        file->path, tensor->name, end + tensor->bytes, buffer_bytes);
        end += tensor->bytes;
    }
    if (end != buffer_bytes)
        return FAIL(YOKE_ERROR_DATA, "%s: %zu bytes after the last tensor belong to no tensor",
                    file->path, buffer_bytes - end);
    return YOKE_OK;
}

static yoke_status read_entries(yoke_safetensors *file) {
    const char *key;
    json_t *entry;
    size_t capacity = json_object_size(file->header);
    file->tensors = calloc(capacity + 1, sizeof *file->tensors);
    if (file->tensors == NULL)
        return FAIL_MEMORY((capacity + 1) * sizeof *file->tensors, "the table of a weight file");
    json_object_foreach(file->header, key, entry) {
        if (strcmp(key, METADATA) == 0) {
            TRY(read_metadata(file, entry));
            continue;
        }
        file->tensors[file->count].name = key;
        TRY(read_tensor(file->path, &file->tensors[file->count], entry));
        file->count++;
    }
    return YOKE_OK;
}

/* torch.save writes a zip archive, before PyTorch 1.6 a pickle of protocol 2. */
static bool is_of_torch_save(const unsigned char *data) {
    bool zip = memcmp(data, "PK\003\004", 4) == 0;
    bool pickle = data[0] == 0x80 && data[1] >= 2 && data[1] <= 5;
    return zip || pickle;
}

static yoke_status refuse_torch_save(const char *path) {
    return FAIL(YOKE_ERROR_DATA,
                "%s: a file of torch.save, not safetensors. Convert it: python3 -c \"import torch; "
                "from safetensors.torch import save_file; d = torch.load('%s', "
                "map_location='cpu', weights_only=True); save_file({k: v.clone().contiguous() for "
                "k, v in d.get('state_dict', d).items()}, '%s.safetensors')\"",
                path, path, path);
}

static yoke_status read_header(yoke_safetensors *file) {
    if (file->bytes < LENGTH_BYTES)
        return FAIL(YOKE_ERROR_DATA, "%s: %zu bytes are too few for a safetensors file", file->path,
                    file->bytes);
    uint64_t length = little_endian(file->data, LENGTH_BYTES);
    if (length > HEADER_LIMIT || length > file->bytes - LENGTH_BYTES) {
        if (length > HEADER_LIMIT && is_of_torch_save(file->data))
            return refuse_torch_save(file->path);
        return FAIL(YOKE_ERROR_DATA,
                    "%s: not a safetensors file, or cut off: it declares a header of %llu bytes "
                    "and has %zu bytes after offset 8",
                    file->path, (unsigned long long)length, file->bytes - LENGTH_BYTES);
    }
    json_error_t error;
    file->header = json_loadb((const char *)file->data + LENGTH_BYTES, (size_t)length,
                              JSON_REJECT_DUPLICATES, &error);
    /* jansson gives no text when it is out of memory. */
    if (file->header == NULL &&
        (json_error_code(&error) == json_error_out_of_memory || error.text[0] == '\0'))
        return FAIL_MEMORY(length, "the header of a weight file");
    if (file->header == NULL)
        return FAIL(YOKE_ERROR_DATA, "%s: the header is not valid JSON at offset %d: %.120s",
                    file->path, error.position + (int)LENGTH_BYTES, error.text);
    if (!json_is_object(file->header))
        return FAIL(YOKE_ERROR_DATA, "%s: the header is not a JSON object", file->path);
    file->buffer = file->data + LENGTH_BYTES + length;
    return YOKE_OK;
}

static yoke_status parse(yoke_safetensors *file, const char *path) {
    file->path = strdup(path);
    if (file->path == NULL) return FAIL_MEMORY(strlen(path) + 1, "a path");
    TRY(read_header(file));
    TRY(read_entries(file));
    qsort(file->tensors, (size_t)file->count, sizeof *file->tensors, by_begin);
    return check_cover(file, (size_t)(file->data + file->bytes - file->buffer));
}

yoke_status yoke_safetensors_parse(yoke_safetensors *file, const char *path, unsigned char *data,
                                   size_t bytes) {
    *file = (yoke_safetensors){.data = data, .bytes = bytes};
    yoke_status status = parse(file, path);
    if (status != YOKE_OK) yoke_safetensors_close(file);
    return status;
}

yoke_status yoke_safetensors_open(yoke_safetensors *file, const char *path) {
    unsigned char *data;
    size_t bytes;
    *file = (yoke_safetensors){0};
    TRY(yoke_file_read(path, FILE_LIMIT, &data, &bytes));
    return yoke_safetensors_parse(file, path, data, bytes);
}

void yoke_safetensors_close(yoke_safetensors *file) {
    free(file->notes);
    free(file->tensors);
    json_decref(file->header);
    free(file->data);
    free(file->path);
    *file = (yoke_safetensors){0};
}

const char *yoke_safetensors_note(const yoke_safetensors *file, const char *key) {
    for (int i = 0; i < file->note_count; i++)
        if (strcmp(file->notes[i].key, key) == 0) return file->notes[i].value;
    return NULL;
}

const yoke_file_tensor *yoke_safetensors_find(const yoke_safetensors *file, const char *name) {
    for (int i = 0; i < file->count; i++)
        if (strcmp(file->tensors[i].name, name) == 0) return &file->tensors[i];
    return NULL;
}

/* Values. */

static float float_of_bits(uint32_t bits) {
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* IEEE 754 binary16; every half is a float, so nothing is rounded. */
static float float_of_half(uint32_t half) {
    uint32_t sign = (half & 0x8000u) << 16, exponent = half >> 10 & 0x1fu, fraction = half & 0x3ffu;
    if (exponent == 0x1f) return float_of_bits(sign | 0x7f800000u | fraction << 13);
    if (exponent != 0) return float_of_bits(sign | (exponent + 112) << 23 | fraction << 13);
    float magnitude = (float)fraction * 0x1p-24f;
    return sign != 0 ? -magnitude : magnitude;
}

static double double_of_bits(uint64_t bits) {
    double value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static double value_of(const unsigned char *bytes, yoke_dtype dtype) {
    switch (dtype) {
    case YOKE_DTYPE_F32:
        return (double)float_of_bits((uint32_t)little_endian(bytes, 4));
    case YOKE_DTYPE_F16:
        return (double)float_of_half((uint32_t)little_endian(bytes, 2));
    case YOKE_DTYPE_BF16:
        return (double)float_of_bits((uint32_t)little_endian(bytes, 2) << 16);
    default:
        return double_of_bits(little_endian(bytes, 8));
    }
}

static yoke_status check_float(const yoke_safetensors *file, const yoke_file_tensor *tensor) {
    if (yoke_dtype_is_float(tensor->dtype)) return YOKE_OK;
    return FAIL(YOKE_ERROR_DATA, "%s: tensor %s is %s; F32, F16, BF16 or F64 is needed", file->path,
                tensor->name, dtypes[tensor->dtype].name);
}

yoke_status yoke_safetensors_floats(const yoke_safetensors *file, const yoke_file_tensor *tensor,
                                    float *values) {
    const unsigned char *bytes = file->buffer + tensor->begin;
    size_t width = dtypes[tensor->dtype].bits / 8;
    TRY(check_float(file, tensor));
    for (size_t i = 0; i < tensor->elements; i++)
        values[i] = (float)value_of(bytes + width * i, tensor->dtype);
    return YOKE_OK;
}

yoke_status yoke_safetensors_doubles(const yoke_safetensors *file, const yoke_file_tensor *tensor,
                                     double *values) {
    const unsigned char *bytes = file->buffer + tensor->begin;
    size_t width = dtypes[tensor->dtype].bits / 8;
    TRY(check_float(file, tensor));
    for (size_t i = 0; i < tensor->elements; i++)
        values[i] = value_of(bytes + width * i, tensor->dtype);
    return YOKE_OK;
}

yoke_status yoke_safetensors_integer(const yoke_safetensors *file, const yoke_file_tensor *tensor,
                                     int64_t *value) {
    const unsigned char *bytes = file->buffer + tensor->begin;
    if (tensor->elements != 1 ||
        (tensor->dtype != YOKE_DTYPE_I64 && tensor->dtype != YOKE_DTYPE_I32))
        return FAIL(YOKE_ERROR_DATA, "%s: tensor %s is not one I64 or I32", file->path,
                    tensor->name);
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
    const char **names = malloc(most * sizeof *names);
    if (names == NULL) return FAIL_MEMORY(most * sizeof *names, "the names of a file");
    for (int i = 0; i < count; i++)
        names[i] = tensors[i].name;
    names[count] = METADATA;
    yoke_status status = check_names(names, (size_t)count + 1, "tensor");
    for (int i = 0; i < note_count; i++)
        names[i] = notes[i].key;
    names[note_count] = FORMAT;
    if (status == YOKE_OK) status = check_names(names, (size_t)note_count + 1, "text");
    free(names);
    return status;
}

static void emit_notes(yoke_json *json, const yoke_file_note *notes, int count) {
    yoke_json_open(json, METADATA, '{');
    yoke_json_text(json, FORMAT, "pt"); /* some loaders require it */
    for (int i = 0; i < count; i++)
        yoke_json_text(json, notes[i].key, notes[i].value);
    yoke_json_close(json, '}');
}

static void emit_tensors(yoke_json *json, const yoke_file_tensor *tensors, int count) {
    for (int i = 0; i < count; i++) {
        const yoke_file_tensor *tensor = &tensors[i];
        yoke_json_open(json, tensor->name, '{');
        yoke_json_text(json, "dtype", dtypes[tensor->dtype].name);
        yoke_json_open(json, "shape", '[');
        for (int d = 0; d < tensor->ndim; d++)
            yoke_json_integer(json, NULL, tensor->shape[d]);
        yoke_json_close(json, ']');
        yoke_json_open(json, "data_offsets", '[');
        yoke_json_integer(json, NULL, (int64_t)tensor->begin);
        yoke_json_integer(json, NULL, (int64_t)(tensor->begin + tensor->bytes));
        yoke_json_close(json, ']');
        yoke_json_close(json, '}');
    }
}

/* Length, JSON, and spaces up to a multiple of eight; sealed if it has a seal. */
static yoke_status write_header(yoke_file_writer *writer, const yoke_json *json) {
    size_t length = (json->length + 7) / 8 * 8, bytes = LENGTH_BYTES + length;
    char *header = malloc(bytes);
    if (header == NULL) return FAIL_MEMORY(bytes, "the header of a weight file");
    for (unsigned i = 0; i < LENGTH_BYTES; i++)
        header[i] = (char)(unsigned char)(length >> 8 * i);
    memcpy(header + LENGTH_BYTES, json->text, json->length);
    memset(header + LENGTH_BYTES + json->length, ' ', length - json->length);
    yoke_seal(header, bytes);
    yoke_status status = yoke_file_write(writer, header, bytes);
    free(header);
    return status;
}

yoke_status yoke_safetensors_arrange(yoke_file_tensor *tensors, int count) {
    size_t end = 0;
    qsort(tensors, (size_t)count, sizeof *tensors, by_writing_order);
    for (int i = 0; i < count; i++) {
        if (!measure(&tensors[i]))
            return FAIL(YOKE_ERROR_ARGUMENT, "tensor %s is too large", tensors[i].name);
        tensors[i].begin = end;
        end += tensors[i].bytes;
    }
    return YOKE_OK;
}

yoke_status yoke_safetensors_create(yoke_file_writer *writer, const char *path,
                                    const yoke_file_tensor *tensors, int count,
                                    const yoke_file_note *notes, int note_count) {
    yoke_json json;
    TRY(check_all_names(tensors, count, notes, note_count));
    yoke_json_begin(&json);
    yoke_json_open(&json, NULL, '{');
    emit_notes(&json, notes, note_count);
    emit_tensors(&json, tensors, count);
    yoke_json_close(&json, '}');
    yoke_status status = json.failed ? FAIL_MEMORY(json.capacity, "the header of a weight file")
                                     : yoke_file_create_whole(writer, path);
    if (status == YOKE_OK) {
        status = write_header(writer, &json);
        if (status != YOKE_OK) yoke_file_abort(writer);
    }
    yoke_json_end(&json);
    return status;
}
