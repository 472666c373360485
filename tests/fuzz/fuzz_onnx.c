/* SPDX-License-Identifier: Apache-2.0 */
/* Files of ONNX: what is read is a finished model, which can be written again; what is refused has
 * a text without control characters, and neither takes much memory or time. */
#include "fuzz/fuzz.h"
#include "yoke/yoke.h"

static void check_text(void) {
    const char *text = yoke_last_error();
    if (text[0] == '\0') abort();
    for (; *text != '\0'; text++)
        if ((unsigned char)*text < 0x20 || *text == 0x7f) abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    yoke_model *model = NULL;
    fuzz_cost before = fuzz_cost_now();
    char *own = fuzz_copy(data, size);
    yoke_status status = yoke_model_read_onnx(&model, own, size, NULL);
    free(own);
    if (status == YOKE_OK && yoke_model_layer_count(model) < 1) abort();
    if ((status == YOKE_OK) != (model != NULL)) abort();
    if (status != YOKE_OK) check_text();
    yoke_model_destroy(model);
    fuzz_cost_check(&before, (fuzz_cost){3000, 20});
    return 0;
}
