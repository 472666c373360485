/* SPDX-License-Identifier: Apache-2.0 */
/* A build without ONNX: CMakeLists.txt takes this file or all others of the folder. */
#include "base/base.h"
#include "yoke/onnx.h"

static yoke_status absent(const char *path) {
    return FAIL(YOKE_ERROR_DEVICE,
                "%s: this build of Yoke has no ONNX: install protobuf-c and its compiler "
                "(scripts/install-deps.sh --onnx), then build again; YOKE_WITH_ONNX=ON insists on "
                "it",
                path != NULL ? path : "ONNX");
}

yoke_status yoke_model_load_onnx(yoke_model **model, const char *path,
                                 const yoke_onnx_options *options) {
    yoke_onnx_options own;
    if (model == NULL) return FAIL(YOKE_ERROR_ARGUMENT, "yoke_model_load_onnx: `model` is NULL");
    *model = NULL;
    if (path == NULL) return FAIL(YOKE_ERROR_ARGUMENT, "yoke_model_load_onnx: `path` is NULL");
    TRY(yoke_options_load(&own, sizeof own, options, "yoke_onnx_options"));
    return absent(path);
}

yoke_status yoke_model_read_onnx(yoke_model **model, const void *bytes, size_t count,
                                 const yoke_onnx_options *options) {
    yoke_onnx_options own;
    yoke_file_source from;
    TRY(yoke_pointer_check(model, "model"));
    *model = NULL;
    TRY(yoke_source_bytes(&from, bytes, count));
    TRY(yoke_options_load(&own, sizeof own, options, "yoke_onnx_options"));
    return absent(from.path);
}

yoke_status yoke_model_write_onnx(const yoke_model *model, yoke_onnx_weights weights, void *payload,
                                  const yoke_sink *sink) {
    yoke_sink own;
    (void)weights, (void)payload;
    TRY(yoke_pointer_check(model, "model"));
    TRY(yoke_sink_load(&own, sink));
    return absent(NULL);
}

yoke_status yoke_model_save_onnx(const yoke_model *model, yoke_onnx_weights weights, void *payload,
                                 const char *path) {
    (void)weights, (void)payload;
    if (model == NULL || path == NULL)
        return FAIL(YOKE_ERROR_ARGUMENT, "yoke_model_save_onnx needs a model and a path");
    return absent(path);
}
