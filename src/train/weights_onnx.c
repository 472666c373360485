/* SPDX-License-Identifier: Apache-2.0 */
/* An engine's model and weights as a file of ONNX. */
#include "model/model.h"
#include "parallel/parallel.h"
#include "yoke/onnx.h"
#include "yoke/weights.h"

typedef struct source {
    yoke_data_parallel *parallel;
    const yoke_model *model;
} source;

static yoke_status read_tensor(void *payload, int index, float *values, size_t count) {
    const source *from = payload;
    yoke_tensor_info info = {.struct_size = sizeof info};
    TRY(yoke_model_tensor(from->model, index, &info));
    return yoke_data_parallel_read(from->parallel, info.name, values, count);
}

yoke_status yoke_weights_write_onnx(yoke_data_parallel *parallel, const yoke_model *model,
                                    const yoke_sink *sink) {
    source from = {parallel, model};
    TRY(yoke_pointer_check(parallel, "parallel"));
    return yoke_model_write_onnx(model, read_tensor, &from, sink);
}

yoke_status yoke_weights_save_onnx(yoke_data_parallel *parallel, const yoke_model *model,
                                   const char *path) {
    source from = {parallel, model};
    TRY(yoke_pointer_check(parallel, "parallel"));
    TRY(yoke_pointer_check(model, "model"));
    TRY(yoke_pointer_check(path, "path"));
    return yoke_model_save_onnx(model, read_tensor, &from, path);
}
