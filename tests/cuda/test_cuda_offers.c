/* SPDX-License-Identifier: Apache-2.0 */
/* What the real cuDNN says of Yoke's graphs for an H100, on a machine without a GPU: the library
 * knows the device by its properties instead of a handle. It offers plans for ResNet-50's layers in
 * every direction and precision, adds where Yoke asks it to, and makes each plan again by its text.
 * In float16 it offers plans that join a convolution with its batch norm. Nothing runs. */
#include "device/cuda/weighted.h"
#include "support/devices.h"

#if !defined(YOKE_HAS_CUDNN) || defined(YOKE_SIMCUDA)

int main(void) {
    return DEVICES_SKIPPED;
}

#elif CUDNN_VERSION < 90800

int main(void) {
    return DEVICES_SKIPPED; /* it has no such properties */
}

#else

#include "layer_graphs.h"

static const char h100[] =
    "{\"cudaDeviceId\": 0, \"deviceVer\": 900, \"driverVer\": 13000, \"totalGlobalMem\": "
    "85017755648, \"maxGridSize\": [2147483647, 65535, 65535], \"maxBlockSize\": [1024, 1024, 64], "
    "\"regsPerBlock\": 65536, \"multiProcessorCount\": 132, \"warpSize\": 32, "
    "\"maxSharedMemoryPerBlock\": 49152, \"maxSharedMemoryPerBlockOptin\": 232448, "
    "\"reservedSharedMemoryPerBlock\": 1024, \"maxRegistersPerSM\": 65536, \"maxCtasPerSM\": 32, "
    "\"maxThreadsPerBlock\": 1024, \"maxThreadsPerSM\": 2048, \"pciDeviceId\": 0, \"isTccDriver\": "
    "0, \"supportCoopLaunch\": 1, \"smClockRateKHz\": 1980000, \"memClockRateKHz\": 2619000, "
    "\"l2CacheSize\": 52428800, \"deviceName\": \"NVIDIA H100 80GB HBM3\"}";

/* The library's calls, and what they are called with in place of a handle. */
static cuda_cudnn_graph_calls real;
static cudnnBackendDescriptor_t properties;

/* Heuristics and engines that are not finalized yet: they lack the device's properties. */
enum { OPEN_LIMIT = 64 };
static struct {
    cudnnBackendDescriptor_t descriptor;
    cudnnBackendAttributeName_t lacks;
} open[OPEN_LIMIT];

static cudnnStatus_t create(cudnnBackendDescriptorType_t type, cudnnBackendDescriptor_t *made) {
    cudnnStatus_t status = real.cudnnBackendCreateDescriptor(type, made);
    bool heuristics = type == CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR;
    if (status != CUDNN_STATUS_SUCCESS) return status;
    if (!heuristics && type != CUDNN_BACKEND_ENGINE_DESCRIPTOR) return status;
    int i = 0;
    while (i < OPEN_LIMIT && open[i].descriptor != NULL)
        i++;
    assert_true(i < OPEN_LIMIT);
    open[i].descriptor = *made;
    open[i].lacks = heuristics ? CUDNN_ATTR_ENGINEHEUR_DEVICEPROP : CUDNN_ATTR_ENGINE_DEVICEPROP;
    return status;
}

static cudnnStatus_t set_properties(cudnnBackendDescriptor_t to, cudnnBackendAttributeName_t name) {
    return real.cudnnBackendSetAttribute(to, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &properties);
}

static cudnnStatus_t set(cudnnBackendDescriptor_t to, cudnnBackendAttributeName_t name,
                         cudnnBackendAttributeType_t type, int64_t count, const void *values) {
    if (name == CUDNN_ATTR_OPERATIONGRAPH_HANDLE) return CUDNN_STATUS_SUCCESS;
    if (name == CUDNN_ATTR_EXECUTION_PLAN_HANDLE)
        return set_properties(to, CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP);
    return real.cudnnBackendSetAttribute(to, name, type, count, values);
}

static cudnnStatus_t finalize(cudnnBackendDescriptor_t of) {
    for (int i = 0; i < OPEN_LIMIT; i++) {
        if (open[i].descriptor != of) continue;
        cudnnStatus_t status = set_properties(of, open[i].lacks);
        open[i].descriptor = NULL;
        if (status != CUDNN_STATUS_SUCCESS) return status;
    }
    return real.cudnnBackendFinalize(of);
}

static cudnnStatus_t destroy(cudnnBackendDescriptor_t of) {
    for (int i = 0; i < OPEN_LIMIT; i++)
        if (open[i].descriptor == of) open[i].descriptor = NULL;
    return real.cudnnBackendDestroyDescriptor(of);
}

static void check(cudnnStatus_t status) {
    if (status != CUDNN_STATUS_SUCCESS) fail_msg("%s", cuda_cudnn()->cudnnGetErrorString(status));
}

static int replace_calls(void **state) {
    (void)state;
    if (cuda_libraries_open() != YOKE_OK || cuda_cudnn_graph() == NULL)
        fail_msg("%s", cuda_library_detail("cudnn"));
    /* The library's own table, which is not const. */
    cuda_cudnn_graph_calls *calls = (cuda_cudnn_graph_calls *)cuda_cudnn_graph();
    real = *calls;
    calls->cudnnBackendCreateDescriptor = create;
    calls->cudnnBackendSetAttribute = set;
    calls->cudnnBackendFinalize = finalize;
    calls->cudnnBackendDestroyDescriptor = destroy;
    check(real.cudnnBackendCreateDescriptor(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR, &properties));
    check(real.cudnnBackendSetAttribute(properties, CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION,
                                        CUDNN_TYPE_CHAR, sizeof h100, h100));
    check(real.cudnnBackendFinalize(properties));
    return 0;
}

static int restore_calls(void **state) {
    (void)state;
    real.cudnnBackendDestroyDescriptor(properties);
    *(cuda_cudnn_graph_calls *)cuda_cudnn_graph() = real;
    return 0;
}

/* in, size, out, kernel, stride, padding */
static const int layers[][6] = {{3, 224, 64, 7, 2, 3},   {8, 224, 64, 7, 2, 3},
                                {64, 56, 64, 3, 1, 1},   {64, 56, 256, 1, 1, 0},
                                {256, 56, 512, 1, 2, 0}, {512, 7, 512, 3, 1, 1}};

static yoke_operation operation_of(const int layer[6]) {
    int size = (layer[1] + 2 * layer[5] - layer[3]) / layer[4] + 1;
    return (yoke_operation){.kind = YOKE_OP_CONV2D,
                            .name = "layer",
                            .input = {layer[0], layer[1], layer[1], false},
                            .output = {layer[2], size, size, false},
                            .kernel = layer[3],
                            .stride = layer[4],
                            .padding = layer[5],
                            .groups = 1,
                            .dilation = 1};
}

/* How many plans a pass has; each is made again by its text. */
static int count_plans(const cuda_problem *problem, cuda_direction direction) {
    int count = 0;
    for (int rank = 0; rank < 8; rank++) {
        cuda_pass *pass = NULL, *again = NULL;
        if (cuda_graph_pass(&pass, problem, direction, rank) != YOKE_OK)
            fail_msg("%s", yoke_last_error());
        if (pass == NULL) continue;
        count++;
        cuda_problem known = *problem;
        known.configuration = pass->configuration;
        assert_int_equal(cuda_graph_pass(&again, &known, direction, 0), YOKE_OK);
        assert_non_null(again);
        assert_string_equal(again->configuration, pass->configuration);
        assert_int_equal(again->scratch_bytes, pass->scratch_bytes);
        again->destroy(again);
        pass->destroy(pass);
    }
    return count;
}

static void every_pass_has_plans(void **state) {
    (void)state;
    static char handle; /* never read */
    static cuda_device device = {.cudnn = (cudnnHandle_t)(void *)&handle};
    int plans = 0, passes = 0;
    for (size_t i = 0; i < 3 * sizeof layers / sizeof layers[0]; i++) {
        const yoke_operation operation = operation_of(layers[i / 3]);
        cuda_problem problem = {.device = &device,
                                .operation = &operation,
                                .rows = 256,
                                .type = i % 3 == 2 ? CUDA_BFLOAT16 : CUDA_FLOAT32,
                                .tf32 = i % 3 == 1};
        for (int k = 0; k <= CUDA_DIRECTIONS; k++) {
            problem.adds = k == CUDA_DIRECTIONS;
            cuda_direction direction = problem.adds ? CUDA_BACKWARD_DATA : (cuda_direction)k;
            int count = count_plans(&problem, direction);
            if (count == 0) print_error("layer %d, direction %d: no plan\n", (int)i, k);
            assert_true(count > 0);
            plans += count;
            passes++;
        }
    }
    print_message("%d plans of %d passes\n", plans, passes);
}

/* channels, size, outputs, kernel, stride, padding: all of ResNet-50's but the first */
static const int joined_layers[][6] = {
    {64, 56, 64, 1, 1, 0},    {64, 56, 64, 3, 1, 1},     {64, 56, 256, 1, 1, 0},
    {256, 56, 64, 1, 1, 0},   {256, 56, 128, 1, 1, 0},   {128, 56, 128, 3, 2, 1},
    {128, 28, 512, 1, 1, 0},  {256, 56, 512, 1, 2, 0},   {512, 28, 128, 1, 1, 0},
    {128, 28, 128, 3, 1, 1},  {512, 28, 256, 1, 1, 0},   {256, 28, 256, 3, 2, 1},
    {256, 14, 1024, 1, 1, 0}, {512, 28, 1024, 1, 2, 0},  {1024, 14, 256, 1, 1, 0},
    {256, 14, 256, 3, 1, 1},  {1024, 14, 512, 1, 1, 0},  {512, 14, 512, 3, 2, 1},
    {512, 7, 2048, 1, 1, 0},  {1024, 14, 2048, 1, 2, 0}, {2048, 7, 512, 1, 1, 0},
    {512, 7, 512, 3, 1, 1}};

static const cuda_graph_rules joined_rules = {.workspace_limit = 32 << 20};

/* How many of a few plans the library makes; it must make each again for a graph described anew. */
static int count_joined(cuda_device *device, layer_graph_kind kind, const layer_shape *shape) {
    enum { FEW = 3 };
    cuda_graph *graph = layer_graph_of(device, kind, shape);
    cuda_graph *again = layer_graph_of(device, kind, shape);
    cuda_graph_list list;
    int count = 0;
    CHECK(cuda_graph_offers(graph, &joined_rules, FEW, &list));
    for (int i = 0; i < list.count && i < FEW; i++) {
        cuda_graph_plan *plan, *same;
        CHECK(cuda_graph_plan_create(&plan, graph, &joined_rules, list.texts[i]));
        if (plan == NULL) continue;
        CHECK(cuda_graph_plan_create(&same, again, &joined_rules, cuda_graph_plan_text(plan)));
        assert_non_null(same);
        assert_string_equal(cuda_graph_plan_text(same), list.texts[i]);
        assert_int_equal(cuda_graph_plan_workspace(same), cuda_graph_plan_workspace(plan));
        cuda_graph_plan_destroy(same);
        cuda_graph_plan_destroy(plan);
        count++;
    }
    cuda_graph_destroy(again);
    cuda_graph_destroy(graph);
    return count;
}

static void float16_layers_have_plans_with_their_batch_norm(void **state) {
    (void)state;
    static char handle; /* never read */
    static cuda_device device = {.cudnn = (cudnnHandle_t)(void *)&handle};
    int plans = 0, graphs = 0;
    for (size_t i = 0; i < COUNT(joined_layers); i++) {
        const int *of = joined_layers[i];
        const layer_shape shape = {256, of[0], of[1], of[2], of[3], of[4], of[5]};
        for (int kind = 0; kind < LAYER_GRAPHS; kind++) {
            int count = count_joined(&device, (layer_graph_kind)kind, &shape);
            if (count == 0) print_error("layer %d, graph %d: no plan\n", (int)i, kind);
            assert_true(count > 0);
            plans += count;
            graphs++;
        }
    }
    print_message("%d plans of %d graphs\n", plans, graphs);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_pass_has_plans),
        cmocka_unit_test(float16_layers_have_plans_with_their_batch_norm)};
    return cmocka_run_group_tests(tests, replace_calls, restore_calls);
}

#endif
