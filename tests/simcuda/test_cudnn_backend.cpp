/* SPDX-License-Identifier: Apache-2.0 */
/* cuDNN's backend: a graph of nodes equals the same passes one after the other; the library refuses
 * descriptors that contradict. */
#include "simcuda/cudnn_rig.h"

using namespace rig;

namespace {

/* relu(x * scale + bias), the scale by value, the bias once for each column. */
const Dims SHAPE{2, 3, 4}, ROW{1, 1, 4}, ONE{1, 1, 1};
enum { X = 1, SCALE, SCALED, BIAS, SHIFTED, Y };
Descriptor scaled_graph(Objects &objects, const Handle &handle) {
    Descriptor x = tensor(objects, X, SHAPE), scale = tensor(objects, SCALE, ONE, Is::value);
    Descriptor scaled = tensor(objects, SCALED, SHAPE, Is::between);
    Descriptor bias = tensor(objects, BIAS, ROW);
    Descriptor shifted = tensor(objects, SHIFTED, SHAPE, Is::between);
    Descriptor y = tensor(objects, Y, SHAPE);
    Descriptor graph =
        open_graph(objects, handle,
                   {pointwise(objects, CUDNN_POINTWISE_RELU_FWD, shifted, nullptr, y),
                    pointwise(objects, CUDNN_POINTWISE_ADD, scaled, bias, shifted),
                    pointwise(objects, CUDNN_POINTWISE_MUL, x, scale, scaled)});
    check(cudnnBackendFinalize(graph));
    return graph;
}

/* Tests. */

void a_graph_of_nodes_reads_values_when_it_is_queued(void **) {
    Objects objects;
    Handle handle;
    std::vector<float> x = rig::values(24, 1), bias = rig::values(4, 2), wanted(24);
    Array<float> xs(x), biases(bias), ys(24), workspace(1024);
    Descriptor running = plan(objects, handle, scaled_graph(objects, handle), 1);
    float scale = 3;
    Descriptor with = pack(objects, {Y, BIAS, SCALE, X}, {ys.get(), biases.get(), &scale, xs.get()},
                           workspace.get());
    check(cudnnBackendExecute(handle.handle, running, with));
    scale = 77; /* too late */
    for (size_t i = 0; i < wanted.size(); i++)
        wanted[i] = std::max(0.0f, x[i] * 3 + bias[i % 4]);
    std::vector<float> is = ys.read();
    for (size_t i = 0; i < wanted.size(); i++)
        if (is[i] != wanted[i]) fail_msg("%zu: %g, not %g", i, (double)is[i], (double)wanted[i]);
}

void a_pack_names_each_tensor_that_is_not_virtual(void **) {
    Objects objects;
    Handle handle;
    Array<float> all(64), workspace(1024);
    Descriptor running = plan(objects, handle, scaled_graph(objects, handle), 1);
    float scale = 3;
    void *const p = all.get();
    refused(cudnnBackendExecute(handle.handle, running,
                                pack(objects, {Y, SCALE, X}, {p, &scale, p}, workspace.get())),
            CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "no pointer");
    refused(cudnnBackendExecute(
                handle.handle, running,
                pack(objects, {Y, BIAS, SCALE, X, SCALED}, {p, p, &scale, p, p}, workspace.get())),
            CUDNN_STATUS_BAD_PARAM, "a virtual tensor");
    refused(cudnnBackendExecute(handle.handle, running,
                                pack(objects, {Y, BIAS, SCALE, X}, {p, p, &scale, p}, nullptr)),
            CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "workspace");
    refused(cudnnBackendExecute(handle.handle, running,
                                pack(objects, {Y, BIAS, SCALE, X},
                                     {p, p, &scale, all.get() + 1}, workspace.get())),
            CUDNN_STATUS_BAD_PARAM_MISALIGNED_POINTER, "aligned");
    Descriptor twice = objects.create(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
    set(twice, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, Dims{X, X});
    set(twice, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR,
        std::vector<void *>{p, p});
    set(twice, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, std::vector<void *>{p});
    refused(cudnnBackendFinalize(twice), CUDNN_STATUS_BAD_PARAM_DUPLICATED_ENTRIES, "twice");
}

void attributes_have_their_types(void **) {
    Objects objects;
    Descriptor made = objects.create(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
    const int64_t number = 1;
    const int32_t shorter = 1;
    refused(cudnnBackendSetAttribute(made, CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64, 1,
                                     &number),
            CUDNN_STATUS_NOT_SUPPORTED, "no such attribute");
    refused(cudnnBackendSetAttribute(made, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT32, 1,
                                     &shorter),
            CUDNN_STATUS_BAD_PARAM_ATTRIBUTE_TYPE, "type is another");
    const int64_t many[9] = {1, 1, 1, 1, 1, 1, 1, 1, 1};
    refused(cudnnBackendSetAttribute(made, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 9, many),
            CUDNN_STATUS_BAD_PARAM, "number of values");
    refused(cudnnBackendFinalize(made), CUDNN_STATUS_BAD_PARAM, "missing");
    describe(made, X, SHAPE);
    check(cudnnBackendFinalize(made));
    refused(
        cudnnBackendSetAttribute(made, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, &number),
        CUDNN_STATUS_BAD_PARAM, "was changed");
    Descriptor none = nullptr;
    refused(cudnnBackendCreateDescriptor(CUDNN_BACKEND_RNG_DESCRIPTOR, &none),
            CUDNN_STATUS_NOT_SUPPORTED, "no such descriptor");
}

void references_are_to_finished_descriptors(void **) {
    Objects objects;
    Descriptor made = objects.create(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
    Descriptor node = objects.create(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
    refused(cudnnBackendSetAttribute(node, CUDNN_ATTR_OPERATION_POINTWISE_XDESC,
                                     CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &made),
            CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED, "not finalized");
    made = nullptr;
    refused(cudnnBackendSetAttribute(node, CUDNN_ATTR_OPERATION_POINTWISE_XDESC,
                                     CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &made),
            CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "missing");
}

void tensors_have_one_writer_and_one_meaning(void **) {
    Objects objects;
    Handle handle;
    Descriptor x = tensor(objects, X, SHAPE), y = tensor(objects, Y, SHAPE);
    Descriptor other = tensor(objects, X, ROW);
    Descriptor between = tensor(objects, SCALED, SHAPE, Is::between);
    Descriptor value = tensor(objects, SCALE, ONE, Is::value);
    const auto relu = CUDNN_POINTWISE_RELU_FWD;
    const Descriptor none = nullptr;
    auto finish = [&](std::vector<Descriptor> nodes) {
        return cudnnBackendFinalize(open_graph(objects, handle, nodes));
    };
    refused(finish({pointwise(objects, CUDNN_POINTWISE_ADD, x, other, y)}),
            CUDNN_STATUS_BAD_PARAM_DUPLICATED_ENTRIES, "one identity");
    refused(finish({pointwise(objects, relu, x, none, y), pointwise(objects, relu, x, none, y)}),
            CUDNN_STATUS_BAD_PARAM, "two nodes write");
    refused(finish({pointwise(objects, relu, x, none, between)}), CUDNN_STATUS_BAD_PARAM,
            "joins no two");
    refused(finish({pointwise(objects, relu, between, none, y)}), CUDNN_STATUS_BAD_PARAM,
            "joins no two");
    refused(finish({pointwise(objects, relu, x, none, y), pointwise(objects, relu, y, none, x)}),
            CUDNN_STATUS_BAD_PARAM, "wait for each other");
    refused(finish({pointwise(objects, relu, value, none, value)}), CUDNN_STATUS_BAD_PARAM,
            "a value");
    refused(finish({x}), CUDNN_STATUS_BAD_PARAM_DESCRIPTOR_TYPE, "not an operation");
}

void engines_take_their_own_knobs_and_graphs(void **) {
    Objects objects;
    Handle handle;
    Descriptor graph = scaled_graph(objects, handle);
    auto engine = [&](int64_t number) { return engine_of(objects, graph, number); };
    refused(cudnnBackendFinalize(engine(8)), CUDNN_STATUS_BAD_PARAM_OUT_OF_BOUND, "no such engine");
    refused(cudnnBackendFinalize(engine(0)), CUDNN_STATUS_NOT_SUPPORTED_GRAPH_PATTERN,
            "does not compute"); /* several nodes */
    Descriptor one = engine(1);
    check(cudnnBackendFinalize(one));
    Descriptor choice = objects.create(CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR);
    set(choice, CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE, CUDNN_TYPE_KNOB_TYPE,
        std::vector<cudnnBackendKnobType_t>{CUDNN_KNOB_TYPE_STAGES});
    set(choice, CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE, CUDNN_TYPE_INT64, Dims{5});
    check(cudnnBackendFinalize(choice));
    Descriptor configuration = objects.create(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
    refer(configuration, CUDNN_ATTR_ENGINECFG_ENGINE, {one});
    refer(configuration, CUDNN_ATTR_ENGINECFG_KNOB_CHOICES, {choice});
    refused(cudnnBackendFinalize(configuration), CUDNN_STATUS_BAD_PARAM, "knobs lack");
}

/* A replay after the plan's end runs code that is gone. */
SCENARIO(replays_a_destroyed_plan) {
    Handle handle;
    Array<float> all(64), workspace(1024);
    float scale = 3;
    cudaStream_t stream = rig::make_stream();
    cudaGraph_t recorded;
    cudaGraphExec_t replay;
    check(cudnnSetStream(handle.handle, stream));
    {
        Objects objects;
        Descriptor running = plan(objects, handle, scaled_graph(objects, handle), 1);
        float *p = all.get();
        Descriptor with =
            pack(objects, {Y, BIAS, SCALE, X}, {p + 24, p + 48, &scale, p}, workspace.get());
        rig::check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
        check(cudnnBackendExecute(handle.handle, running, with));
        rig::check(cudaStreamEndCapture(stream, &recorded));
        rig::check(cudaGraphInstantiate(&replay, recorded, 0));
        rig::check(cudaGraphLaunch(replay, stream));
        rig::check(cudaStreamSynchronize(stream));
    }
    rig::check(cudaGraphLaunch(replay, stream));
    rig::check(cudaStreamSynchronize(stream));
}

void a_recording_needs_its_plan(void **) {
    rig::assert_violation("a plan of cuDNN runs that was destroyed", "replays_a_destroyed_plan");
}

} // namespace

int main(int count, char **arguments) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_graph_of_nodes_reads_values_when_it_is_queued),
        cmocka_unit_test(a_pack_names_each_tensor_that_is_not_virtual),
        cmocka_unit_test(attributes_have_their_types),
        cmocka_unit_test(references_are_to_finished_descriptors),
        cmocka_unit_test(tensors_have_one_writer_and_one_meaning),
        cmocka_unit_test(engines_take_their_own_knobs_and_graphs),
        cmocka_unit_test(a_recording_needs_its_plan),
    };
    return RUN_TESTS(count, arguments, tests);
}
