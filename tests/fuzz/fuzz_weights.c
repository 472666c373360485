/* SPDX-License-Identifier: Apache-2.0 */
/* A file of weights in memory, loaded into an engine that lives: it is refused, or the engine has
 * finite weights. */
#include <math.h>
#include <stdio.h>

#include "fuzz/fuzz.h"
#include "yoke/yoke.h"

enum { WEIGHTS = 16 };

static yoke_model *model;
static yoke_data_parallel *parallel;

static yoke_status prepare(void) {
    yoke_devices *devices = NULL;
    yoke_devices_options list = {
        .struct_size = sizeof list, .list = "cpu", .threads = 1, .unbound = true};
    yoke_data_parallel_options options = {
        .struct_size = sizeof options, .algorithm = YOKE_ALGORITHM_DIRECT, .batch = 1};
    yoke_conv2d_options conv = {
        .struct_size = sizeof conv, .name = "conv", .out_channels = 2, .kernel = 1};
    yoke_batch_norm_options norm = YOKE_BATCH_NORM_OPTIONS_INIT;
    yoke_linear_options fc = {.struct_size = sizeof fc, .name = "fc", .out_features = 2};
    norm.name = "bn";
    yoke_status status = yoke_model_create(&model, "tiny", (yoke_shape){2, 2, 2, false});
    if (status != YOKE_OK) return status;
    yoke_value x = yoke_conv2d(model, yoke_model_input(model), &conv);
    x = yoke_flatten(model, yoke_batch_norm(model, x, &norm));
    status = yoke_model_finish(model, yoke_linear(model, x, &fc), NULL);
    if (status == YOKE_OK) status = yoke_devices_open(&devices, &list);
    if (status != YOKE_OK) return status;
    return yoke_data_parallel_create(&parallel, model, devices, NULL, &options);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (parallel == NULL && prepare() != YOKE_OK) {
        fprintf(stderr, "%s\n", yoke_last_error());
        abort();
    }
    yoke_weights_load_options some = YOKE_WEIGHTS_LOAD_OPTIONS_INIT;
    some.allow_missing = "bn.*,fc.*";
    some.allow_unknown = "*";
    yoke_weights_description *description = NULL;
    yoke_weights_info info = {.struct_size = sizeof info};
    float weights[WEIGHTS];
    char *own = fuzz_copy(data, size);
    (void)yoke_weights_read(parallel, model, own, size, NULL);
    (void)yoke_weights_read(parallel, model, own, size, &some);
    if (yoke_weights_description_read(&description, own, size) == YOKE_OK)
        (void)yoke_weights_describe(description, &info);
    yoke_weights_description_close(description);
    free(own);
    if (yoke_data_parallel_read(parallel, "fc.weight", weights, WEIGHTS) != YOKE_OK) abort();
    for (int i = 0; i < WEIGHTS; i++)
        if (!isfinite(weights[i])) abort();
    return 0;
}
