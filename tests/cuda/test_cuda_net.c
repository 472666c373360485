/* SPDX-License-Identifier: Apache-2.0 */
/* A net learns from arrays of a GPU, which a stream of the host program writes, and predicts into
 * such an array: with the bits of arrays on the host, and no wait of the host in between. */
#include <cuda_runtime_api.h>

#include "simcuda/control.h"
#include "support/net_check.h"

#define CUDA_OK(call) assert_int_equal(call, cudaSuccess)

enum { INPUTS = BATCH * CHECK_ROW, OUTPUTS = BATCH * CHECK_CLASSES };

/* Pinned memory that a stream may read late. */
static void *pinned_memory[3];
static int pinned_count;

/* A copy of an array on GPU 0, which the stream makes. */
static yoke_array on_gpu(const yoke_array *array, size_t bytes, cudaStream_t stream) {
    yoke_array copy = *array;
    void *pinned = NULL;
    CUDA_OK(cudaSetDevice(0));
    CUDA_OK(cudaMalloc(&copy.data, bytes));
    CUDA_OK(cudaHostAlloc(&pinned, bytes, cudaHostAllocPortable));
    memcpy(pinned, array->data, bytes);
    CUDA_OK(cudaMemcpyAsync(copy.data, pinned, bytes, cudaMemcpyHostToDevice, stream));
    copy.place = YOKE_ARRAY_CUDA;
    copy.stream = stream;
    pinned_memory[pinned_count++] = pinned;
    return copy;
}

static void arrays_of_a_gpu_are_read_there(void **state) {
    (void)state;
    for (int devices = 1; devices <= 2; devices++) {
        rig own, other;
        cudaStream_t stream;
        static float wanted[BATCH][CHECK_CLASSES], found[BATCH][CHECK_CLASSES];
        open_rig(&own, options_of(devices_of(devices)));
        open_rig(&other, options_of(devices_of(devices)));
        CUDA_OK(cudaSetDevice(0));
        CUDA_OK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
        own.inputs.shape[0] = own.labels.shape[0] = BATCH;
        yoke_array inputs = on_gpu(&own.inputs, INPUTS * sizeof(float), stream);
        yoke_array labels = on_gpu(&own.labels, BATCH * sizeof(int32_t), stream);
        for (int step = 0; step < 3; step++) {
            EXPECT_OK(yoke_net_step(own.net, &own.inputs, &own.labels, 0.1, NULL));
            EXPECT_OK(yoke_net_step(other.net, &inputs, &labels, 0.1, NULL));
        }
        assert_true(hash_of(yoke_net_engine(own.net)) == hash_of(yoke_net_engine(other.net)));
        yoke_array to = yoke_array_of_rows(wanted, YOKE_ELEMENT_FLOAT32, BATCH,
                                           yoke_model_output_shape(own.model));
        EXPECT_OK(yoke_net_predict(own.net, &own.inputs, &to));
        to.data = found;
        yoke_array outputs = on_gpu(&to, OUTPUTS * sizeof(float), stream);
        EXPECT_OK(yoke_net_predict(other.net, &inputs, &outputs));
        CUDA_OK(cudaMemcpyAsync(found, outputs.data, sizeof found, cudaMemcpyDeviceToHost, stream));
        CUDA_OK(cudaStreamSynchronize(stream));
        assert_memory_equal(found, wanted, sizeof found);
        yoke_net_close(other.net);
        other.net = NULL;
        CUDA_OK(cudaFree(inputs.data));
        CUDA_OK(cudaFree(labels.data));
        CUDA_OK(cudaFree(outputs.data));
        CUDA_OK(cudaStreamDestroy(stream));
        while (pinned_count > 0)
            CUDA_OK(cudaFreeHost(pinned_memory[--pinned_count]));
        close_rig(&own);
        close_rig(&other);
    }
}

static void arrays_that_a_gpu_cannot_give_are_refused(void **state) {
    (void)state;
    rig own;
    static double wide[BATCH * CHECK_ROW];
    open_rig(&own, options_of(devices_of(1)));
    own.inputs.shape[0] = own.labels.shape[0] = BATCH;
    yoke_array inputs = own.inputs;
    inputs.data = wide;
    inputs.element = YOKE_ELEMENT_FLOAT64;
    inputs.place = YOKE_ARRAY_CUDA;
    REFUSED(yoke_net_step(own.net, &inputs, &own.labels, 0.1, NULL),
            "elements are float32 there, not float64");
    inputs = own.inputs;
    inputs.stream = &own; /* of an array on the host */
    REFUSED(yoke_net_step(own.net, &inputs, &own.labels, 0.1, NULL), "with a stream");
    yoke_array labels = own.labels;
    inputs.place = labels.place = YOKE_ARRAY_CUDA;
    labels.stream = &inputs;
    REFUSED(yoke_net_step(own.net, &inputs, &labels, 0.1, NULL), "different streams");
    close_rig(&own);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(arrays_of_a_gpu_are_read_there),
        cmocka_unit_test(arrays_that_a_gpu_cannot_give_are_refused),
    };
    return RUN_ON_DEVICES(tests, NULL, NULL);
}
