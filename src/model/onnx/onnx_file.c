/* SPDX-License-Identifier: Apache-2.0 */
/* Parses a file of ONNX, which anyone may have written, within a bound on memory. */
#include "model/onnx/onnx_file.h"

#include <stdlib.h>
#include <string.h>

#define FILE_BYTES ((size_t)2 << 30) /* protobuf's limit */
#define OWN_BYTES ((size_t)64 << 20) /* for small files */
#define TIMES 12                     /* what a byte of the file may become in memory */

/* The parser's memory. A message of two bytes takes a hundred times as much, so that a file could
 * ask for all there is. */
typedef struct block {
    size_t bytes;
    size_t padding;
} block;

static void *take(void *owner, size_t bytes) {
    yoke_onnx_file *file = owner;
    file->full = file->full || bytes > file->limit - file->taken;
    if (file->full) return NULL;
    block *made = yoke_malloc(sizeof *made + bytes);
    if (made == NULL) file->missing = sizeof *made + bytes;
    if (made == NULL) return NULL;
    made->bytes = bytes;
    file->taken += bytes;
    return made + 1;
}

static void give_back(void *owner, void *memory) {
    yoke_onnx_file *file = owner;
    if (memory == NULL) return;
    block *made = (block *)memory - 1;
    file->taken -= made->bytes;
    yoke_free(made);
}

/* A name or a word must be text that may be printed, and not too long for a line. */
static bool is_text(const char *text) {
    size_t length = 0;
    for (size_t step; text != NULL && *text != '\0'; text += step, length += step) {
        step = yoke_text_utf8_bytes(text);
        if (step == 0 || (unsigned char)*text < 0x20 || *text == 0x7f || length > 512) return false;
        if (step == 2 && (unsigned char)text[0] == 0xc2 && (unsigned char)text[1] < 0xa0)
            return false; /* control characters of Latin-1 */
    }
    return true;
}

static yoke_status text_check(const yoke_onnx_file *file, const char *text, const char *what,
                              size_t index) {
    if (is_text(text)) return YOKE_OK;
    return FAIL(YOKE_ERROR_DATA,
                "%s: the name of %s %zu is no printable UTF-8 of at most 512 bytes", file->path,
                what, index);
}

static yoke_status node_check(const yoke_onnx_file *file, const Yoke__Onnx__Node *node,
                              size_t index) {
    TRY(text_check(file, node->name, "node", index));
    TRY(text_check(file, node->op_type, "the operator of node", index));
    TRY(text_check(file, node->domain, "the domain of node", index));
    for (size_t i = 0; i < node->n_input; i++)
        TRY(text_check(file, node->input[i], "an input of node", index));
    for (size_t i = 0; i < node->n_output; i++)
        TRY(text_check(file, node->output[i], "an output of node", index));
    for (size_t i = 0; i < node->n_attribute; i++)
        TRY(text_check(file, node->attribute[i]->name, "an attribute of node", index));
    if (node->op_type != NULL && node->op_type[0] != '\0') return YOKE_OK;
    return FAIL(YOKE_ERROR_DATA, "%s: node %zu has no operator", file->path, index);
}

static yoke_status names_check(const yoke_onnx_file *file) {
    const Yoke__Onnx__Graph *graph = file->model->graph;
    for (size_t i = 0; i < graph->n_node; i++)
        TRY(node_check(file, graph->node[i], i));
    for (size_t i = 0; i < graph->n_initializer; i++)
        TRY(text_check(file, graph->initializer[i]->name, "initializer", i));
    for (size_t i = 0; i < graph->n_input; i++)
        TRY(text_check(file, graph->input[i]->name, "input", i));
    for (size_t i = 0; i < graph->n_output; i++)
        TRY(text_check(file, graph->output[i]->name, "output", i));
    for (size_t i = 0; i < file->model->n_opset_import; i++)
        TRY(text_check(file, file->model->opset_import[i]->domain, "the set of operators", i));
    return YOKE_OK;
}

static yoke_status parse(yoke_onnx_file *file, const unsigned char *data, size_t bytes) {
    const char *path = file->path;
    file->limit = OWN_BYTES + TIMES * bytes;
    ProtobufCAllocator memory = {take, give_back, file};
    file->model = yoke__onnx__model__unpack(&memory, bytes, data);
    if (file->full)
        return FAIL(YOKE_ERROR_DATA, "%s: its %zu bytes would take more than %zu bytes of memory",
                    path, bytes, file->limit);
    if (file->missing > 0) return FAIL_MEMORY(file->missing, path);
    if (file->model == NULL)
        return FAIL(YOKE_ERROR_DATA,
                    "%s: its %zu bytes are no model of ONNX: it is cut off, or another kind of "
                    "file",
                    path, bytes);
    if (file->model->graph == NULL || file->model->graph->n_node == 0)
        return FAIL(YOKE_ERROR_DATA, "%s: it is no model of ONNX: it has no graph with nodes",
                    path);
    if (file->model->graph->n_node > INT32_MAX / 2 || file->model->graph->n_initializer > INT32_MAX)
        return FAIL(YOKE_ERROR_DATA, "%s: it has too many nodes", path);
    return names_check(file);
}

yoke_status yoke_onnx_file_open(yoke_onnx_file *file, const yoke_file_source *from) {
    unsigned char *data = NULL;
    size_t bytes = 0;
    *file = (yoke_onnx_file){.path = from->path, .in_memory = from->bytes != NULL};
    if (file->in_memory && from->count > FILE_BYTES)
        return FAIL(YOKE_ERROR_IO, "%s: %zu bytes long, the limit is %zu", file->path, from->count,
                    FILE_BYTES);
    if (file->in_memory) return parse(file, from->bytes, from->count);
    TRY(yoke_file_read_regular(from->path, FILE_BYTES, &data, &bytes));
    yoke_status status = parse(file, data, bytes);
    yoke_free(data);
    return status;
}

void yoke_onnx_file_close(yoke_onnx_file *file) {
    ProtobufCAllocator memory = {take, give_back, file};
    if (file->model != NULL) yoke__onnx__model__free_unpacked(file->model, &memory);
    file->model = NULL;
}
