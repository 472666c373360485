/* SPDX-License-Identifier: Apache-2.0 */
/* A checkpoint with any metadata: sealed again, so that its content is looked at, then verified and
 * read into the state of a small model whether its digests are right or not. */
#include <stdio.h>

#include "fuzz/fuzz.h"
#include "support/file_place.h"
#include "train/checkpoint.h"
#include "train/digest.h"

static yoke_model *model;
static yoke_state *state;
static yoke_facts facts;

static yoke_status prepare(void) {
    yoke_devices *devices = NULL;
    yoke_data_parallel *parallel = NULL;
    yoke_devices_options list = {.struct_size = sizeof list, .list = "cpu", .threads = 1};
    yoke_optimizer_options sgd = {.struct_size = sizeof sgd, .learning_rate = 0.1, .momentum = 0.9};
    yoke_data_parallel_options options = {
        .struct_size = sizeof options, .algorithm = YOKE_ALGORITHM_DIRECT, .batch = 1};
    yoke_linear_options fc = {.struct_size = sizeof fc, .name = "fc", .out_features = 2};
    TRY(yoke_model_create(&model, "tiny", (yoke_shape){2, 1, 1, true}));
    TRY(yoke_model_finish(model, yoke_linear(model, yoke_model_input(model), &fc), NULL));
    TRY(yoke_devices_open(&devices, &list));
    TRY(yoke_data_parallel_create(&parallel, model, devices, &sgd, &options));
    TRY(yoke_state_create(&state, parallel, false));
    yoke_facts_add_table(&facts, &yoke_engine_options, parallel);
    yoke_data_parallel_destroy(parallel);
    yoke_devices_close(devices);
    return YOKE_OK;
}

static void seal(char *data, size_t size) {
    uint64_t length = 0;
    if (size < 8) return;
    memcpy(&length, data, 8);
    if (length <= size - 8) yoke_seal(data, 8 + (size_t)length);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (state == NULL && prepare() != YOKE_OK) {
        fprintf(stderr, "%s\n", yoke_last_error());
        abort();
    }
    yoke_checkpoint checkpoint = {.is_verified = true}; /* so that wrong digests are read on, too */
    char *own = fuzz_copy(data, size);
    seal(own, size);
    if (yoke_safetensors_open(&checkpoint.file, FROM_BYTES(own, size)) != YOKE_OK) {
        free(own);
        return 0;
    }
    (void)yoke_checkpoint_verify(&checkpoint.file);
    (void)yoke_checkpoint_read(&checkpoint, model, &facts, NULL, state);
    (void)yoke_checkpoint_read(&checkpoint, model, &facts, "optimizer,batch,seed,model", state);
    uint64_t step;
    (void)yoke_checkpoint_number(&checkpoint, "step", YOKE_STEPS_LIMIT, &step);
    yoke_safetensors_close(&checkpoint.file);
    free(own);
    return 0;
}
