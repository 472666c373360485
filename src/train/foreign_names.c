/* SPDX-License-Identifier: Apache-2.0 */
#include "train/foreign_names.h"

#include <string.h>

#define HEAD "lm_head.weight"
#define TOKENS "wte.weight"
#define PART_BYTES 4096

const char *yoke_foreign_plain_name(const yoke_model *model, const char *name) {
    size_t length = strlen(YOKE_FOREIGN_PREFIX);
    bool prefixed = strncmp(name, YOKE_FOREIGN_PREFIX, length) == 0;
    return prefixed && yoke_model_find_tensor(model, name, NULL) < 0 ? name + length : name;
}

static bool ends_with(const char *name, const char *end) {
    size_t length = strlen(name), wanted = strlen(end);
    return length >= wanted && strcmp(name + length - wanted, end) == 0;
}

bool yoke_foreign_is_mask(const yoke_file_tensor *tensor) {
    bool is_matrix = tensor->ndim == 4 && tensor->shape[0] == 1 && tensor->shape[1] == 1 &&
                     tensor->shape[2] == tensor->shape[3];
    return (is_matrix && ends_with(tensor->name, ".attn.bias")) ||
           (tensor->elements == 1 && ends_with(tensor->name, ".attn.masked_bias"));
}

const yoke_file_tensor *yoke_foreign_tied(const yoke_weights_match *match,
                                          const yoke_file_tensor *tensor) {
    int own = yoke_model_find_tensor(match->model, TOKENS, NULL);
    bool is_head = strcmp(yoke_weights_plain_name(tensor->name), HEAD) == 0;
    if (!is_head || own < 0 || yoke_model_find_tensor(match->model, HEAD, NULL) >= 0) return NULL;
    const yoke_file_tensor *tied = yoke_weights_find(match->file, TOKENS);
    bool alike = tied != NULL && tied->dtype == tensor->dtype && tied->bytes == tensor->bytes;
    return alike ? tied : NULL;
}

static yoke_status compare(const yoke_safetensors *file, const yoke_file_tensor *tensor,
                           const yoke_file_tensor *tied) {
    unsigned char own[PART_BYTES], other[PART_BYTES];
    for (size_t at = 0; at < tensor->bytes; at += PART_BYTES) {
        size_t bytes = tensor->bytes - at < PART_BYTES ? tensor->bytes - at : PART_BYTES;
        TRY(yoke_safetensors_bytes(file, tensor, at, own, bytes));
        TRY(yoke_safetensors_bytes(file, tied, at, other, bytes));
        if (memcmp(own, other, bytes) != 0)
            return FAIL(YOKE_ERROR_DATA,
                        "%s: %s is not %s, which this model takes for both: the weights are of a "
                        "network whose last layer has a weight of its own",
                        file->path, tensor->name, tied->name);
    }
    return YOKE_OK;
}

yoke_status yoke_foreign_check_tied(const yoke_weights_match *match) {
    for (int i = 0; i < match->file->count; i++) {
        const yoke_file_tensor *tensor = &match->file->tensors[i];
        const yoke_file_tensor *tied = yoke_foreign_tied(match, tensor);
        if (tied != NULL) TRY(compare(match->file, tensor, tied));
    }
    return YOKE_OK;
}
