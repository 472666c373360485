/* SPDX-License-Identifier: Apache-2.0 */
/* Names of a graph, and memory that a reader frees at its end. */
#include <stdlib.h>
#include <string.h>

#include "model/onnx/onnx_reader.h"

yoke_status yoke_onnx_take(yoke_onnx_reader *reader, size_t bytes, const char *what,
                           void **memory) {
    void **grown = yoke_grow(reader->memory, &reader->memory_capacity, reader->memory_count,
                             sizeof *grown, what);
    if (grown == NULL) return YOKE_ERROR_MEMORY;
    reader->memory = grown;
    *memory = yoke_calloc(1, bytes > 0 ? bytes : 1);
    if (*memory == NULL) return FAIL_MEMORY(bytes, what);
    reader->memory[reader->memory_count++] = *memory;
    return YOKE_OK;
}

int yoke_onnx_by_text(const void *a, const void *b) {
    return strcmp(((const yoke_onnx_name *)a)->text, ((const yoke_onnx_name *)b)->text);
}

yoke_onnx_name *yoke_onnx_find(const yoke_onnx_reader *reader, const char *text) {
    const yoke_onnx_name wanted = {.text = text};
    if (text == NULL || reader->name_count == 0) return NULL;
    return bsearch(&wanted, reader->names, (size_t)reader->name_count, sizeof wanted,
                   yoke_onnx_by_text);
}
