/* SPDX-License-Identifier: Apache-2.0 */
#include "base/base.h"
#include "yoke/onnx.h"
yoke_status yoke_model_write_onnx(const yoke_model *model, yoke_onnx_weights weights, void *payload,
                                  const char *path) {
    (void)model; (void)weights; (void)payload; (void)path;
    return FAIL(YOKE_ERROR_ARGUMENT, "not yet");
}
