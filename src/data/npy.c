/* SPDX-License-Identifier: Apache-2.0 */
/* NumPy's .npy format (numpy.lib.format): a magic string, a version, the length of a header, the
 * header, which is a Python dictionary, and the values. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "data/arrays.h"

#define HEADER_LIMIT 65536

typedef struct npy_file {
    const char *name;
    const uint8_t *data;
    size_t bytes, begin; /* of the values */
    char header[HEADER_LIMIT + 1];
} npy_file;

static yoke_status read_header(npy_file *file) {
    static const uint8_t magic[] = {0x93, 'N', 'U', 'M', 'P', 'Y'};
    if (file->bytes < 10 || memcmp(file->data, magic, sizeof magic) != 0)
        return FAIL(YOKE_ERROR_DATA,
                    "%s: no .npy file: it does not begin with \\x93NUMPY and a header; "
                    "numpy.save writes one",
                    file->name);
    int version = file->data[6];
    if (version < 1 || version > 3)
        return FAIL(YOKE_ERROR_DATA,
                    "%s: version %d.%d of the .npy format at byte 6, expected 1 to 3; save the "
                    "array with numpy.save",
                    file->name, version, file->data[7]);
    size_t head = version == 1 ? 10 : 12;
    size_t length = (size_t)file->data[8] | (size_t)file->data[9] << 8;
    if (version > 1 && file->bytes >= head)
        length |= (size_t)file->data[10] << 16 | (size_t)file->data[11] << 24;
    if (file->bytes < head || length > file->bytes - head)
        return FAIL(YOKE_ERROR_DATA,
                    "%s: ends at byte %zu, in a header of %zu bytes; copy or save the file again",
                    file->name, file->bytes, length);
    if (length > HEADER_LIMIT)
        return FAIL(YOKE_ERROR_DATA, "%s: a header of %zu bytes, at most %d are supported",
                    file->name, length, HEADER_LIMIT);
    memcpy(file->header, file->data + head, length);
    file->header[length] = '\0';
    file->begin = head + length;
    return YOKE_OK;
}

/* What stands behind 'key': in the dictionary. */
static yoke_status find_value(const npy_file *file, const char *key, const char **value) {
    char quoted[32];
    snprintf(quoted, sizeof quoted, "'%s'", key);
    const char *found = strstr(file->header, quoted);
    if (found != NULL) found += strlen(quoted);
    if (found != NULL) found += strspn(found, " ");
    if (found == NULL || *found != ':')
        return FAIL(YOKE_ERROR_DATA, "%s: the header has no %s; save the array with numpy.save",
                    file->name, quoted);
    found++;
    *value = found + strspn(found, " ");
    return YOKE_OK;
}

/* "'<f4'": byte order, kind, bytes of an item. */
static yoke_status read_type(yoke_npy *array, const npy_file *file) {
    static const char *const known[] = {"|u1", "|i1", "|b1", "<u2", "<i2", "<u4", "<i4",
                                        "<u8", "<i8", "<f2", "<f4", "<f8", NULL};
    const char *value;
    TRY(find_value(file, "descr", &value));
    if (*value == '[')
        return FAIL(YOKE_ERROR_DATA,
                    "%s: an array of records; save one field, numpy.save(FILE, X['field'])",
                    file->name);
    char quote[2] = {*value, '\0'};
    size_t length = *value == '\'' || *value == '"' ? strcspn(value + 1, quote) : 0;
    char type[16];
    snprintf(type, sizeof type, "%.*s", (int)(length < 15 ? length : 15), value + 1);
    if (type[0] == '>')
        return FAIL(YOKE_ERROR_DATA,
                    "%s: type '%s' is big-endian; numpy.save(FILE, X.astype('<%s')) converts it",
                    file->name, type, type + 1);
    if (strcmp(type, "|O") == 0)
        return FAIL(YOKE_ERROR_DATA,
                    "%s: an array of Python objects (rows of different lengths?); "
                    "numpy.save(FILE, numpy.stack(X)) makes numbers of rows of one shape",
                    file->name);
    for (size_t i = 0; known[i] != NULL; i++) {
        if (strcmp(type, known[i]) != 0) continue;
        array->kind = type[1];
        array->item_bytes = type[2] - '0';
        return YOKE_OK;
    }
    return FAIL(YOKE_ERROR_DATA,
                "%s: type '%s'; expected uint8, float32, float64 or integers: "
                "numpy.save(FILE, X.astype('float32')) converts numbers",
                file->name, type);
}

static yoke_status check_order(const npy_file *file) {
    const char *value;
    TRY(find_value(file, "fortran_order", &value));
    if (strncmp(value, "False", 5) == 0) return YOKE_OK;
    if (strncmp(value, "True", 4) == 0)
        return FAIL(YOKE_ERROR_DATA,
                    "%s: the array is in Fortran order; numpy.save(FILE, "
                    "numpy.ascontiguousarray(X)) converts it",
                    file->name);
    return FAIL(YOKE_ERROR_DATA, "%s: fortran_order is neither True nor False in the header",
                file->name);
}

/* "(3, 4)", "(3,)" or "()". */
static yoke_status read_shape(yoke_npy *array, const npy_file *file) {
    const char *next;
    TRY(find_value(file, "shape", &next));
    bool valid = *next++ == '(', counted = true;
    array->count = 1;
    while (valid && *next != ')') {
        char *end;
        valid = *next >= '0' && *next <= '9' && array->dimensions < YOKE_NPY_DIMENSIONS;
        if (!valid) break;
        size_t extent = array->shape[array->dimensions++] = strtoull(next, &end, 10);
        counted = counted && !__builtin_mul_overflow(array->count, extent, &array->count);
        next = end + strspn(end, " ");
        valid = *next == ',' || *next == ')';
        if (*next == ',') next += 1 + strspn(next + 1, " ");
    }
    if (!valid)
        return FAIL(YOKE_ERROR_DATA, "%s: the shape in the header is no list of at most %d numbers",
                    file->name, YOKE_NPY_DIMENSIONS);
    size_t bytes, rest = file->bytes - file->begin;
    counted = counted && !__builtin_mul_overflow(array->count, (size_t)array->item_bytes, &bytes);
    if (counted && bytes == rest) return YOKE_OK;
    char text[YOKE_NPY_TEXT];
    return FAIL(YOKE_ERROR_DATA,
                "%s: %zu bytes of values; shape %s of %d bytes each %s; copy or save the file "
                "again",
                file->name, rest, yoke_npy_shape_text(array, text), array->item_bytes,
                counted && bytes < rest ? "has fewer" : "has more");
}

yoke_status yoke_npy_parse(yoke_npy *array, const char *name, const uint8_t *data, size_t bytes) {
    *array = (yoke_npy){.name = name};
    npy_file *file = yoke_malloc(sizeof *file);
    if (file == NULL) return FAIL_MEMORY(sizeof *file, name);
    file->name = name;
    file->data = data;
    file->bytes = bytes;
    yoke_status status = read_header(file);
    if (status == YOKE_OK) status = read_type(array, file);
    if (status == YOKE_OK) status = check_order(file);
    if (status == YOKE_OK) status = read_shape(array, file);
    array->values = data + (status == YOKE_OK ? file->begin : 0);
    yoke_free(file);
    return status;
}

static uint64_t word_at(const yoke_npy *array, size_t i) {
    uint64_t word = 0;
    memcpy(&word, array->values + i * (size_t)array->item_bytes, (size_t)array->item_bytes);
    return word;
}

double yoke_npy_value(const yoke_npy *array, size_t i) {
    uint64_t word = word_at(array, i);
    uint32_t half = (uint32_t)word;
    double wide;
    float narrow;
    if (array->kind != 'f') return (double)yoke_npy_integer(array, i);
    memcpy(&wide, &word, sizeof wide);
    memcpy(&narrow, &half, sizeof narrow);
    return array->item_bytes == 8 ? wide : (double)narrow;
}

int64_t yoke_npy_integer(const yoke_npy *array, size_t i) {
    uint64_t word = word_at(array, i);
    int unused = 64 - 8 * array->item_bytes;
    if (array->kind == 'i') return (int64_t)(word << unused) >> unused;
    return word > INT64_MAX ? INT64_MAX : (int64_t)word;
}

const char *yoke_npy_shape_text(const yoke_npy *array, char text[YOKE_NPY_TEXT]) {
    int used = snprintf(text, YOKE_NPY_TEXT, "(");
    for (int i = 0; i < array->dimensions; i++)
        used += snprintf(text + used, YOKE_NPY_TEXT - (size_t)used, "%s%zu", i > 0 ? ", " : "",
                         array->shape[i]);
    snprintf(text + used, YOKE_NPY_TEXT - (size_t)used, array->dimensions == 1 ? ",)" : ")");
    return text;
}
