/* SPDX-License-Identifier: Apache-2.0 */
/* The reader of safetensors: a file that it accepts is covered by its tensors, and jansson accepts
 * its header. */
#include <jansson.h>

#include "fuzz/fuzz.h"
#include "support/file_place.h"
#include "train/train.h"

static void read_tensor(const yoke_safetensors *file, const yoke_file_tensor *tensor) {
    int64_t integer;
    float *values = malloc(tensor->elements * sizeof *values + 1);
    if (values == NULL) return;
    (void)yoke_safetensors_floats(file, tensor, values);
    (void)yoke_safetensors_integer(file, tensor, &integer);
    free(values);
}

static void check_json(const uint8_t *data, size_t header_bytes) {
    json_error_t error;
    json_t *header = json_loadb((const char *)data + YOKE_HEADER_AT, header_bytes,
                                JSON_REJECT_DUPLICATES, &error);
    if (header == NULL && json_error_code(&error) != json_error_out_of_memory) abort();
    json_decref(header);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    yoke_safetensors file;
    unsigned char *own = (unsigned char *)fuzz_copy(data, size);
    if (yoke_safetensors_open(&file, FROM_BYTES(own, size)) != YOKE_OK) {
        free(own);
        return 0;
    }
    check_json(data, file.data_at - YOKE_HEADER_AT);
    size_t covered = 0;
    for (int i = 0; i < file.count; i++) {
        covered += file.tensors[i].bytes;
        if (yoke_safetensors_find(&file, file.tensors[i].name) != &file.tensors[i]) abort();
        read_tensor(&file, &file.tensors[i]);
    }
    if (covered != file.bytes - file.data_at) abort();
    yoke_safetensors_close(&file);
    free(own);
    return 0;
}
