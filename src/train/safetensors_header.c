/* SPDX-License-Identifier: Apache-2.0 */
/* Reads the header by its grammar: an object of tensors, each an object of dtype, shape and
 * data_offsets, and one object of texts. What else JSON could hold is refused where it begins, so
 * that a header costs its own bytes and its tables, whatever is in it. */
#include "train/safetensors_header.h"

#include <stdlib.h>
#include <string.h>

#define METADATA "__metadata__"

typedef struct reader {
    yoke_safetensors *file;
    yoke_json_scan scan;
    int capacity, note_capacity;
    bool has_metadata;
} reader;

/* The JSON is broken at this place, or is right and of another form: then `status` says what. */
static yoke_status refuse(const reader *from, yoke_status status) {
    if (from->scan.error == NULL) return status;
    return FAIL(YOKE_ERROR_DATA, "%s: the header is not valid JSON at offset %zu: %s",
                from->file->path, YOKE_HEADER_AT + from->scan.next, from->scan.error);
}

bool yoke_file_tensor_measure(yoke_file_tensor *tensor) {
    size_t elements = 1, bits;
    for (int i = 0; i < tensor->ndim; i++)
        if (__builtin_mul_overflow(elements, (uint64_t)tensor->shape[i], &elements)) return false;
    if (__builtin_mul_overflow(elements, yoke_dtype_bits(tensor->dtype), &bits) || bits % 8 != 0)
        return false;
    tensor->elements = elements;
    tensor->bytes = bits / 8;
    return true;
}

/* A tensor. */

static yoke_status read_dtype(reader *from, yoke_file_tensor *tensor) {
    const char *path = from->file->path, *name;
    if (!yoke_json_scan_text(&from->scan, &name))
        return refuse(from,
                      FAIL(YOKE_ERROR_DATA, "%s: tensor %s has no dtype", path, tensor->name));
    for (int i = 0; i < YOKE_DTYPE_COUNT; i++) {
        if (strcmp(yoke_dtype_name((yoke_dtype)i), name) != 0) continue;
        tensor->dtype = (yoke_dtype)i;
        return YOKE_OK;
    }
    return FAIL(YOKE_ERROR_DATA, "%s: tensor %s has the unknown dtype '%.20s'", path, tensor->name,
                name);
}

static yoke_status refuse_shape(const reader *from, const yoke_file_tensor *tensor) {
    return refuse(from, FAIL(YOKE_ERROR_DATA, "%s: tensor %s has no shape of at most %d dimensions",
                             from->file->path, tensor->name, YOKE_FILE_TENSOR_DIMS));
}

/* A size or an offset. */
static bool read_size(reader *from, int64_t *value) {
    double real;
    return yoke_json_scan_number(&from->scan, value, &real) == YOKE_JSON_INTEGER && *value >= 0;
}

static yoke_status read_shape(reader *from, yoke_file_tensor *tensor) {
    yoke_json_scan *scan = &from->scan;
    size_t dims = 0;
    if (!yoke_json_scan_mark(scan, '[')) return refuse_shape(from, tensor);
    for (; yoke_json_scan_more(scan, dims, ']'); dims++) {
        if (dims == YOKE_FILE_TENSOR_DIMS) return refuse_shape(from, tensor);
        if (!read_size(from, &tensor->shape[dims]))
            return refuse(from,
                          FAIL(YOKE_ERROR_DATA, "%s: dimension %zu of tensor %s is not a size",
                               from->file->path, dims, tensor->name));
    }
    tensor->ndim = (int)dims;
    return scan->error == NULL ? YOKE_OK : refuse_shape(from, tensor);
}

static yoke_status read_offsets(reader *from, yoke_file_tensor *tensor, size_t *end) {
    yoke_json_scan *scan = &from->scan;
    int64_t first = 0, last = -1;
    bool right = yoke_json_scan_mark(scan, '[') && read_size(from, &first) &&
                 yoke_json_scan_mark(scan, ',') && read_size(from, &last) &&
                 yoke_json_scan_mark(scan, ']') && last >= first;
    if (!right)
        return refuse(from, FAIL(YOKE_ERROR_DATA, "%s: tensor %s has no data_offsets [begin, end]",
                                 from->file->path, tensor->name));
    tensor->begin = (size_t)first;
    *end = (size_t)last;
    return YOKE_OK;
}

/* One of three members; seen: a bit for each that came. */
static yoke_status read_member(reader *from, yoke_file_tensor *tensor, unsigned *seen,
                               size_t *end) {
    static const char *const keys[] = {"dtype", "shape", "data_offsets"};
    const char *key;
    unsigned member = 0;
    if (!yoke_json_scan_key(&from->scan, &key)) return refuse(from, YOKE_ERROR_DATA);
    while (member < 3 && strcmp(keys[member], key) != 0)
        member++;
    if (member == 3)
        return FAIL(YOKE_ERROR_DATA,
                    "%s: the entry of tensor %s must have dtype, shape and data_offsets only",
                    from->file->path, tensor->name);
    if ((*seen & 1u << member) != 0)
        return FAIL(YOKE_ERROR_DATA, "%s: the entry of tensor %s has a duplicate %s",
                    from->file->path, tensor->name, key);
    *seen |= 1u << member;
    if (member == 0) return read_dtype(from, tensor);
    return member == 1 ? read_shape(from, tensor) : read_offsets(from, tensor, end);
}

static yoke_status read_tensor(reader *from, yoke_file_tensor *tensor) {
    const char *path = from->file->path;
    unsigned seen = 0;
    size_t end = 0;
    if (!yoke_json_scan_mark(&from->scan, '{'))
        return refuse(from, FAIL(YOKE_ERROR_DATA, "%s: the entry of tensor %s is not an object",
                                 path, tensor->name));
    while (yoke_json_scan_more(&from->scan, seen, '}'))
        TRY(read_member(from, tensor, &seen, &end));
    if (from->scan.error != NULL) return refuse(from, YOKE_ERROR_DATA);
    if (seen != 7)
        return FAIL(YOKE_ERROR_DATA,
                    "%s: the entry of tensor %s must have dtype, shape and data_offsets only", path,
                    tensor->name);
    if (!yoke_file_tensor_measure(tensor))
        return FAIL(YOKE_ERROR_DATA, "%s: the shape of tensor %s is too large", path, tensor->name);
    if (end - tensor->begin != tensor->bytes)
        return FAIL(
            YOKE_ERROR_DATA, "%s: tensor %s has %zu bytes, but its shape and dtype %s need %zu",
            path, tensor->name, end - tensor->begin, yoke_dtype_name(tensor->dtype), tensor->bytes);
    return YOKE_OK;
}

/* Tables. */

yoke_status yoke_table_grow(void **table, int count, int *capacity, size_t entry_bytes,
                            const char *what) {
    if (count < *capacity) return YOKE_OK;
    int more = *capacity > 0 ? 2 * *capacity : 32;
    void *grown = yoke_realloc(*table, (size_t)more * entry_bytes);
    if (grown == NULL) return FAIL_MEMORY((size_t)more * entry_bytes, what);
    *table = grown;
    *capacity = more;
    return YOKE_OK;
}

static yoke_status add_tensor(reader *from, const char *name) {
    yoke_safetensors *file = from->file;
    TRY(yoke_table_grow((void **)&file->tensors, file->count, &from->capacity,
                        sizeof *file->tensors, "the table of a weight file"));
    yoke_file_tensor *tensor = &file->tensors[file->count];
    *tensor = (yoke_file_tensor){.name = name};
    TRY(read_tensor(from, tensor));
    file->count++;
    return YOKE_OK;
}

static yoke_status add_notes(reader *from) {
    yoke_safetensors *file = from->file;
    yoke_json_scan *scan = &from->scan;
    if (from->has_metadata) return FAIL(YOKE_ERROR_DATA, "%s: a duplicate " METADATA, file->path);
    from->has_metadata = true;
    if (!yoke_json_scan_mark(scan, '{'))
        return refuse(from, FAIL(YOKE_ERROR_DATA, "%s: __metadata__ is not an object", file->path));
    while (yoke_json_scan_more(scan, (size_t)file->note_count, '}')) {
        yoke_file_note note;
        TRY(yoke_table_grow((void **)&file->notes, file->note_count, &from->note_capacity,
                            sizeof *file->notes, "the table of a weight file"));
        if (!yoke_json_scan_key(scan, &note.key)) return refuse(from, YOKE_ERROR_DATA);
        if (!yoke_json_scan_text(scan, &note.value))
            return refuse(from, FAIL(YOKE_ERROR_DATA, "%s: __metadata__ %.60s is not text",
                                     file->path, note.key));
        file->notes[file->note_count++] = note;
    }
    return scan->error == NULL ? YOKE_OK : refuse(from, YOKE_ERROR_DATA);
}

static yoke_status read_entries(reader *from) {
    const char *key;
    yoke_json_scan *scan = &from->scan;
    if (!yoke_json_scan_mark(scan, '{'))
        return refuse(
            from, FAIL(YOKE_ERROR_DATA, "%s: the header is not a JSON object", from->file->path));
    for (size_t entries = 0; yoke_json_scan_more(scan, entries, '}'); entries++) {
        if (!yoke_json_scan_key(scan, &key)) return refuse(from, YOKE_ERROR_DATA);
        TRY(strcmp(key, METADATA) == 0 ? add_notes(from) : add_tensor(from, key));
    }
    (void)yoke_json_scan_is_over(scan);
    return scan->error == NULL ? YOKE_OK : refuse(from, YOKE_ERROR_DATA);
}

/* Order. */

static int by_begin(const void *left, const void *right) {
    const yoke_file_tensor *a = left, *b = right;
    if (a->begin != b->begin) return a->begin < b->begin ? -1 : 1;
    return (a->bytes > b->bytes) -
           (a->bytes < b->bytes); /* an empty tensor before the one at the same offset */
}

static int by_name(const void *left, const void *right, void *context) {
    const yoke_file_tensor *tensors = context;
    return strcmp(tensors[*(const int *)left].name, tensors[*(const int *)right].name);
}

static int by_key(const void *left, const void *right, void *context) {
    const yoke_file_note *notes = context;
    return strcmp(notes[*(const int *)left].key, notes[*(const int *)right].key);
}

/* The caller frees *order. */
static yoke_status sort(int **order, int count, int (*compare)(const void *, const void *, void *),
                        void *entries) {
    *order = yoke_malloc(((size_t)count + 1) * sizeof **order);
    if (*order == NULL)
        return FAIL_MEMORY(((size_t)count + 1) * sizeof **order, "the names of a weight file");
    for (int i = 0; i < count; i++)
        (*order)[i] = i;
    qsort_r(*order, (size_t)count, sizeof **order, compare, entries);
    return YOKE_OK;
}

/* Each tensor must begin where the previous one ends, and the last must end with the file. */
static yoke_status check_cover(const yoke_safetensors *file, size_t data_bytes) {
    size_t end = 0;
    for (int i = 0; i < file->count; i++) {
        const yoke_file_tensor *tensor = &file->tensors[i];
        if (tensor->begin != end)
            return FAIL(YOKE_ERROR_DATA,
                        "%s: tensor %s begins at byte %zu, %s the byte %zu where "
                        "the one before it ends",
                        file->path, tensor->name, tensor->begin,
                        tensor->begin < end ? "before" : "behind", end);
        if (tensor->bytes > data_bytes - end)
            return FAIL(YOKE_ERROR_DATA,
                        "%s: tensor %s ends at byte %zu of the data, but the file has only %zu",
                        file->path, tensor->name, end + tensor->bytes, data_bytes);
        end += tensor->bytes;
    }
    if (end != data_bytes)
        return FAIL(YOKE_ERROR_DATA, "%s: %zu bytes after the last tensor belong to no tensor",
                    file->path, data_bytes - end);
    return YOKE_OK;
}

yoke_status yoke_safetensors_read_header(yoke_safetensors *file, size_t bytes) {
    reader from = {.file = file, .scan = {.text = file->header + YOKE_HEADER_AT, .bytes = bytes}};
    TRY(read_entries(&from));
    if (file->count > 0) qsort(file->tensors, (size_t)file->count, sizeof *file->tensors, by_begin);
    TRY(check_cover(file, file->bytes - file->data_at));
    TRY(sort(&file->by_name, file->count, by_name, file->tensors));
    TRY(sort(&file->by_key, file->note_count, by_key, file->notes));
    for (int i = 1; i < file->count; i++)
        if (by_name(&file->by_name[i - 1], &file->by_name[i], file->tensors) == 0)
            return FAIL(YOKE_ERROR_DATA, "%s: a duplicate tensor %s", file->path,
                        file->tensors[file->by_name[i]].name);
    for (int i = 1; i < file->note_count; i++)
        if (by_key(&file->by_key[i - 1], &file->by_key[i], file->notes) == 0)
            return FAIL(YOKE_ERROR_DATA, "%s: a duplicate __metadata__ %.60s", file->path,
                        file->notes[file->by_key[i]].key);
    return YOKE_OK;
}
