/* SPDX-License-Identifier: Apache-2.0 */
/* Graphs of cuDNN's backend on a simulated GPU: which plans the rules leave, plans by their text,
 * what the library refuses, and each call failing. */
#include "device/cuda/weighted.h"
#include "gpu_rig.h"
#include "simcuda/control.h"

#ifndef YOKE_HAS_CUDNN

int main(void) {
    return DEVICES_SKIPPED;
}

#else

#include "layer_graphs.h"

enum { X = 1, W, Y, MIDDLE };
enum { CHANNELS = 8, SIDE = 5, ROWS = 2, VALUES = ROWS * CHANNELS * SIDE * SIDE };

static const cuda_graph_rules strict = {.workspace_limit = 1 << 20, .float32 = true};
static const cuda_graph_rules tf32 = {.workspace_limit = 1 << 20, .float32 = true, .tf32 = true};
static const cuda_graph_rules shorter = {.workspace_limit = 1 << 20};
static const cuda_graph_rules any_order = {.workspace_limit = 1 << 20, .atomics = true};

/* Descriptions: square images that a filter leaves as large as they are. */

static cuda_graph_object add_image(cuda_graph *graph, int64_t uid, cudnnDataType_t type,
                                   bool is_virtual) {
    const cuda_graph_values values = {
        .uid = uid,
        .type = type,
        .ndim = 4,
        .dims = {ROWS, CHANNELS, SIDE, SIDE},
        .strides = {SIDE * SIDE * CHANNELS, 1, SIDE * CHANNELS, CHANNELS},
        .is_virtual = is_virtual};
    return cuda_graph_tensor(graph, &values);
}

static cuda_graph_object add_filter(cuda_graph *graph, cudnnDataType_t type, int kernel) {
    const cuda_graph_values values = {
        .uid = W,
        .type = type,
        .ndim = 4,
        .dims = {CHANNELS, CHANNELS, kernel, kernel},
        .strides = {(int64_t)kernel * kernel * CHANNELS, 1, (int64_t)kernel * CHANNELS, CHANNELS}};
    return cuda_graph_tensor(graph, &values);
}

static cuda_graph_object add_window(cuda_graph *graph, int64_t padding, int64_t dilation) {
    const int64_t axes = 2, paddings[] = {padding, padding}, ones[] = {1, 1},
                  dilations[] = {dilation, dilation};
    const cudnnDataType_t sums = CUDNN_DATA_FLOAT;
    const cudnnConvolutionMode_t mode = CUDNN_CROSS_CORRELATION;
    const cuda_graph_attribute attributes[] = {
        {CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, CUDNN_TYPE_INT64, 1, &axes},
        {CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &sums},
        {CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE, 1, &mode},
        {CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, CUDNN_TYPE_INT64, 2, paddings},
        {CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, CUDNN_TYPE_INT64, 2, paddings},
        {CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, CUDNN_TYPE_INT64, 2, ones},
        {CUDNN_ATTR_CONVOLUTION_DILATIONS, CUDNN_TYPE_INT64, 2, dilations}};
    return cuda_graph_part(graph, CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR, attributes,
                           COUNT(attributes));
}

static void add_forward(cuda_graph *graph, cuda_graph_object window, cuda_graph_object w,
                        cuda_graph_object x, cuda_graph_object y) {
    static const float one = 1, zero = 0;
    const cuda_graph_attribute attributes[] = {
        {CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA, CUDNN_TYPE_FLOAT, 1, &one},
        {CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA, CUDNN_TYPE_FLOAT, 1, &zero},
        {CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1,
         &window},
        {CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &w},
        {CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &x},
        {CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &y}};
    cuda_graph_node(graph, CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR, attributes,
                    COUNT(attributes));
}

static void add_filter_gradient(cuda_graph *graph, cuda_graph_object window, cuda_graph_object dw,
                                cuda_graph_object x, cuda_graph_object dy) {
    static const float one = 1, zero = 0;
    const cuda_graph_attribute attributes[] = {
        {CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA, CUDNN_TYPE_FLOAT, 1, &one},
        {CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA, CUDNN_TYPE_FLOAT, 1, &zero},
        {CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1,
         &window},
        {CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &dw},
        {CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &x},
        {CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &dy}};
    cuda_graph_node(graph, CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR,
                    attributes, COUNT(attributes));
}

static yoke_status describe(cuda_graph **graph, cuda_device *device, cudnnDataType_t type,
                            bool *serves) {
    TRY(cuda_graph_create(graph, device));
    assert_non_null(*graph);
    cuda_graph_object x = add_image(*graph, X, type, false), w = add_filter(*graph, type, 3);
    cuda_graph_object y = add_image(*graph, Y, type, false);
    add_forward(*graph, add_window(*graph, 1, 1), w, x, y);
    return cuda_graph_finish(*graph, serves);
}

static cuda_graph *forward_graph(cuda_device *device, cudnnDataType_t type) {
    cuda_graph *graph;
    bool serves;
    CHECK(describe(&graph, device, type, &serves));
    assert_true(serves);
    return graph;
}

static cuda_graph *filter_graph(cuda_device *device) {
    cuda_graph *graph;
    bool serves;
    CHECK(cuda_graph_create(&graph, device));
    cuda_graph_object x = add_image(graph, X, CUDNN_DATA_FLOAT, false);
    cuda_graph_object w = add_filter(graph, CUDNN_DATA_FLOAT, 3);
    cuda_graph_object y = add_image(graph, Y, CUDNN_DATA_FLOAT, false);
    add_filter_gradient(graph, add_window(graph, 1, 1), w, x, y);
    CHECK(cuda_graph_finish(graph, &serves));
    assert_true(serves);
    return graph;
}

/* Tests. */

static void texts_are_canonical(void **state) {
    (void)state;
    static const char *const good[] = {"eng0", "eng34_k2=9", "eng34_k2=9_k6=0_k43=-1"};
    static const char *const bad[] = {
        "",          "eng",           "34",           "eng-1",          "eng1_",
        "eng1_k2",   "eng1_k2=",      "eng1_2=3",     "eng1_k6=0_k2=1", "eng1_k2=1_k2=1",
        "eng1 k2=1", "eng1_k2=1_k3=", "engine1_k2=1", "eng1_k2=x",      "21:20:35:1:0:0:0:0:0"};
    for (size_t i = 0; i < COUNT(good); i++)
        assert_true(cuda_is_graph_text(good[i]));
    for (size_t i = 0; i < COUNT(bad); i++)
        assert_false(cuda_is_graph_text(bad[i]));
    char long_text[2 * CUDA_GRAPH_TEXT_BYTES];
    memset(long_text, '0', sizeof long_text);
    memcpy(long_text, "eng", 3);
    long_text[sizeof long_text - 1] = '\0';
    assert_false(cuda_is_graph_text(long_text));
}

static void expect_offers(const cuda_graph *graph, const cuda_graph_rules *rules, int enough,
                          const char *const *texts, int count) {
    cuda_graph_list list;
    CHECK(cuda_graph_offers(graph, rules, enough, &list));
    assert_int_equal(list.count, count);
    for (int i = 0; i < count; i++)
        assert_string_equal(list.texts[i], texts[i]);
}
#define EXPECT_OFFERS(graph, rules, enough, ...)                                                   \
    expect_offers(graph, rules, enough, (const char *const[]){__VA_ARGS__},                        \
                  (int)COUNT(((const char *const[]){__VA_ARGS__})))

/* The simulator's engines: 0 plain, 1 with tensor cores, 2 atomic, 3 rounds its inputs, 4 its sums,
 * 5 by FFT in a large workspace. A offers 1 2 1 5, B 1 3 4 1, the fallback 0. */
static void rules_refuse_engines_by_their_notes(void **state) {
    cuda_device *device = ((rig *)*state)->device;
    cuda_graph *graph = filter_graph(device);
    EXPECT_OFFERS(graph, &strict, 8, "eng5", "eng0");
    EXPECT_OFFERS(graph, &tf32, 8, "eng1_k2=0_k14=2", "eng1_k2=2_k14=3", "eng5", "eng1_k2=1_k14=4",
                  "eng0");
    EXPECT_OFFERS(graph, &shorter, 8, "eng1_k2=0_k14=2", "eng1_k2=2_k14=3", "eng5", "eng3",
                  "eng1_k2=1_k14=4", "eng0");
    EXPECT_OFFERS(graph, &any_order, 8, "eng1_k2=0_k14=2", "eng2_k17=4", "eng1_k2=2_k14=3", "eng5",
                  "eng3", "eng1_k2=1_k14=4", "eng0");
    cuda_graph_destroy(graph);
}

static void heuristics_are_asked_until_there_are_enough(void **state) {
    cuda_device *device = ((rig *)*state)->device;
    cuda_graph *graph = filter_graph(device);
    EXPECT_OFFERS(graph, &tf32, 1, "eng1_k2=0_k14=2", "eng1_k2=2_k14=3", "eng5");
    EXPECT_OFFERS(graph, &tf32, 4, "eng1_k2=0_k14=2", "eng1_k2=2_k14=3", "eng5", "eng1_k2=1_k14=4");
    cuda_graph_destroy(graph);
}

/* The simulator has an engine of forward and of the filter's gradient, 6, and one of the
 * image's, 7.
 */
static void engines_join_a_convolution_with_its_batch_norm(void **state) {
    cuda_device *device = ((rig *)*state)->device;
    const layer_shape shape = {ROWS, CHANNELS, SIDE, CHANNELS, 3, 1, 1};
    for (int kind = 0; kind < LAYER_GRAPHS; kind++) {
        cuda_graph *graph = layer_graph_of(device, (layer_graph_kind)kind, &shape);
        if (kind == LAYER_NORMED_IMAGE)
            EXPECT_OFFERS(graph, &shorter, 8, "eng7_k2=1", "eng7_k2=2", "eng7_k2=0");
        else
            EXPECT_OFFERS(graph, &shorter, 8, "eng6_k2=3_k24=0", "eng6_k2=5_k24=1",
                          "eng6_k2=1_k24=0", "eng6_k2=0_k24=0");
        cuda_graph_plan *plan;
        const char *text = kind == LAYER_NORMED_IMAGE ? "eng7_k2=2" : "eng6_k2=1_k24=0";
        CHECK(cuda_graph_plan_create(&plan, graph, &shorter, text));
        assert_non_null(plan);
        assert_int_equal(cuda_graph_plan_workspace(plan),
                         kind == LAYER_NORMED_FILTER ? 0 : CHANNELS * 2 * sizeof(float));
        cuda_graph_plan_destroy(plan);
        cuda_graph_destroy(graph);
    }
}

static bool serves_by(const cuda_graph *graph, const cuda_graph_rules *rules, const char *text) {
    cuda_graph_plan *plan;
    CHECK(cuda_graph_plan_create(&plan, graph, rules, text));
    bool made = plan != NULL;
    if (made) assert_string_equal(cuda_graph_plan_text(plan), text);
    cuda_graph_plan_destroy(plan);
    return made;
}

static void a_text_makes_a_plan_within_the_rules(void **state) {
    cuda_device *device = ((rig *)*state)->device;
    cuda_graph *graph = filter_graph(device);
    assert_true(serves_by(graph, &strict, "eng0"));
    assert_true(serves_by(graph, &tf32, "eng1_k2=3_k14=1"));
    assert_true(serves_by(graph, &tf32, "eng1"));
    assert_false(serves_by(graph, &strict, "eng1_k2=3_k14=1")); /* rounds to TF32 */
    assert_false(serves_by(graph, &tf32, "eng2_k17=4"));        /* in any order */
    const cuda_graph_rules fastest = {
        .workspace_limit = 1 << 20, .atomics = true, .float32 = true, .tf32 = true};
    assert_true(serves_by(graph, &fastest, "eng2_k17=4"));
    assert_false(serves_by(graph, &tf32, "eng3"));            /* rounds to bfloat16 */
    assert_false(serves_by(graph, &shorter, "eng4"));         /* sums shorter than float32 */
    assert_false(serves_by(graph, &strict, "eng5"));          /* the workspace */
    assert_false(serves_by(graph, &strict, "eng77"));         /* there is none */
    assert_false(serves_by(graph, &tf32, "eng1_k2=9_k14=1")); /* beyond the knob */
    assert_false(serves_by(graph, &tf32, "eng1_k17=4"));      /* another engine's knob */
    assert_false(serves_by(graph, &tf32, "eng0_"));
    const cuda_graph_rules narrow = {.workspace_limit = 4095, .float32 = true, .tf32 = true};
    assert_false(serves_by(graph, &narrow, "eng1_k2=3_k14=1"));
    cuda_graph_destroy(graph);
}

static void what_the_library_does_not_support_is_no_error(void **state) {
    cuda_device *device = ((rig *)*state)->device;
    cuda_graph *graph;
    bool serves = true;
    CHECK(describe(&graph, device, CUDNN_DATA_INT32, &serves));
    assert_false(serves);
    cuda_graph_destroy(graph);
    /* A graph that no engine computes. */
    CHECK(cuda_graph_create(&graph, device));
    cuda_graph_object x = add_image(graph, X, CUDNN_DATA_FLOAT, false);
    cuda_graph_object w = add_filter(graph, CUDNN_DATA_FLOAT, 3);
    cuda_graph_object y = add_image(graph, Y, CUDNN_DATA_FLOAT, false);
    add_forward(graph, add_window(graph, 2, 2), w, x, y);
    CHECK(cuda_graph_finish(graph, &serves));
    assert_true(serves);
    assert_false(serves_by(graph, &strict, "eng0"));
    cuda_graph_destroy(graph);
}

static void expect_refused(cuda_graph *graph, const char *why) {
    bool serves = true;
    assert_int_equal(cuda_graph_finish(graph, &serves), YOKE_ERROR_DEVICE);
    assert_false(serves);
    if (strstr(yoke_last_error(), why) == NULL) fail_msg("%s", yoke_last_error());
    cuda_graph_destroy(graph);
}

static void bad_descriptions_are_errors_that_name_the_first(void **state) {
    cuda_device *device = ((rig *)*state)->device;
    const cuda_graph_values flat = {.uid = X, .ndim = 1, .dims = {0}, .strides = {1}};
    cuda_graph *graph;
    CHECK(cuda_graph_create(&graph, device));
    assert_null(cuda_graph_tensor(graph, &flat));
    assert_null(add_image(graph, Y, CUDNN_DATA_FLOAT, false)); /* nothing after it is made */
    expect_refused(graph, "below 1");
    CHECK(cuda_graph_create(&graph, device));
    expect_refused(graph, "number of values"); /* no nodes */
    CHECK(cuda_graph_create(&graph, device));
    cuda_graph_object w = add_filter(graph, CUDNN_DATA_FLOAT, 3), window = add_window(graph, 0, 1);
    cuda_graph_object x = add_image(graph, X, CUDNN_DATA_FLOAT, false);
    cuda_graph_object y = add_image(graph, Y, CUDNN_DATA_FLOAT, false);
    add_forward(graph, window, w, x, y); /* without padding the output is smaller */
    expect_refused(graph, "do not belong together");
    CHECK(cuda_graph_create(&graph, device));
    x = add_image(graph, X, CUDNN_DATA_FLOAT, false);
    w = add_filter(graph, CUDNN_DATA_FLOAT, 3);
    y = add_image(graph, Y, CUDNN_DATA_FLOAT, true); /* nobody reads it */
    add_forward(graph, add_window(graph, 1, 1), w, x, y);
    expect_refused(graph, "virtual");
}

static void a_graph_has_room_for_so_many_nodes(void **state) {
    cuda_device *device = ((rig *)*state)->device;
    cuda_graph *graph;
    bool serves;
    CHECK(cuda_graph_create(&graph, device));
    for (int i = 1; i < 200; i++)
        add_image(graph, i, CUDNN_DATA_FLOAT, false);
    assert_int_equal(cuda_graph_finish(graph, &serves), YOKE_ERROR_INTERNAL);
    cuda_graph_destroy(graph);
}

/* Running. */

typedef struct buffers {
    cuda_device *device;
    void *x, *w, *y, *workspace;
} buffers;

static float *whole_numbers(size_t count, int modulus) {
    float *values = test_malloc(count * sizeof(float));
    for (size_t i = 0; i < count; i++)
        values[i] = (float)((int)(i * 7 % (size_t)modulus) - modulus / 2);
    return values;
}

static void *upload(cuda_device *device, float *values, size_t count) {
    void *memory;
    CHECK(yoke_device_allocate(&device->base, count * sizeof(float), "a test", &memory));
    CHECK(yoke_device_upload(&device->base, YOKE_STREAM_COMPUTE, memory, values,
                             count * sizeof(float)));
    test_free(values);
    return memory;
}

static buffers open_buffers(cuda_device *device) {
    buffers all = {.device = device};
    all.x = upload(device, whole_numbers(VALUES, 5), VALUES);
    all.w = upload(device, whole_numbers(9 * CHANNELS * CHANNELS, 3), 9 * CHANNELS * CHANNELS);
    all.y = upload(device, whole_numbers(VALUES, 11), VALUES);
    all.workspace = upload(device, whole_numbers(4096, 11), 4096);
    return all;
}

static void close_buffers(const buffers *all) {
    void *const memory[] = {all->x, all->w, all->y, all->workspace};
    for (size_t i = 0; i < COUNT(memory); i++)
        yoke_device_free(&all->device->base, memory[i]);
}

static yoke_status run(const buffers *with, const cuda_graph_plan *plan) {
    static const int64_t uids[] = {X, W, Y};
    void *const pointers[] = {with->x, with->w, with->y};
    return cuda_graph_plan_run(plan, uids, pointers, 3, with->workspace);
}

static cuda_graph_plan *plan_by(const cuda_graph *graph, const cuda_graph_rules *rules,
                                const char *text) {
    cuda_graph_plan *plan;
    CHECK(cuda_graph_plan_create(&plan, graph, rules, text));
    assert_non_null(plan);
    return plan;
}

static void read_back(const buffers *from, float values[VALUES]) {
    CHECK(yoke_device_download(&from->device->base, YOKE_STREAM_COMPUTE, values, from->y,
                               VALUES * sizeof(float)));
    CHECK(yoke_device_synchronize(&from->device->base));
}

/* Whole numbers, whose sums are exact: each engine gives the same ones. */
static void plans_outlive_their_graph_and_agree(void **state) {
    cuda_device *device = ((rig *)*state)->device;
    static const char *const texts[] = {"eng0", "eng1_k2=0_k14=2", "eng1_k2=3_k14=4"};
    buffers with = open_buffers(device);
    static float first[VALUES], values[VALUES];
    for (size_t i = 0; i < COUNT(texts); i++) {
        cuda_graph *graph = forward_graph(device, CUDNN_DATA_FLOAT);
        cuda_graph_plan *plan = plan_by(graph, &tf32, texts[i]);
        cuda_graph_destroy(graph);
        CHECK(run(&with, plan));
        read_back(&with, i == 0 ? first : values);
        if (i > 0) assert_memory_equal(values, first, sizeof values);
        cuda_graph_plan_destroy(plan);
    }
    close_buffers(&with);
}

/* y = conv(conv(x)): what lies between the two is nobody's to give. */
static void virtual_tensors_join_two_nodes(void **state) {
    cuda_device *device = ((rig *)*state)->device;
    cuda_graph *graph;
    bool serves;
    CHECK(cuda_graph_create(&graph, device));
    cuda_graph_object x = add_image(graph, X, CUDNN_DATA_FLOAT, false);
    cuda_graph_object w = add_filter(graph, CUDNN_DATA_FLOAT, 3);
    cuda_graph_object middle = add_image(graph, MIDDLE, CUDNN_DATA_FLOAT, true);
    cuda_graph_object y = add_image(graph, Y, CUDNN_DATA_FLOAT, false);
    cuda_graph_object window = add_window(graph, 1, 1);
    add_forward(graph, window, w, middle, y); /* the library orders the nodes */
    add_forward(graph, window, w, x, middle);
    CHECK(cuda_graph_finish(graph, &serves));
    assert_true(serves);
    buffers with = open_buffers(device);
    static float joined[VALUES], apart[VALUES];
    cuda_graph_plan *plan = plan_by(graph, &tf32, "eng1_k2=0_k14=2");
    CHECK(run(&with, plan));
    read_back(&with, joined);
    cuda_graph_plan_destroy(plan);
    cuda_graph_destroy(graph);
    graph = forward_graph(device, CUDNN_DATA_FLOAT);
    plan = plan_by(graph, &tf32, "eng1_k2=0_k14=2");
    CHECK(run(&with, plan));
    buffers second = with;
    second.x = with.y, second.y = with.x;
    CHECK(run(&second, plan));
    read_back(&second, apart);
    assert_memory_equal(joined, apart, sizeof joined);
    cuda_graph_plan_destroy(plan);
    cuda_graph_destroy(graph);
    close_buffers(&with);
}

static void a_run_needs_all_pointers(void **state) {
    cuda_device *device = ((rig *)*state)->device;
    buffers with = open_buffers(device), without = with, askew = with;
    cuda_graph *graph = forward_graph(device, CUDNN_DATA_FLOAT);
    cuda_graph_plan *plan = plan_by(graph, &tf32, "eng1_k2=0_k14=2");
    without.workspace = NULL;
    assert_int_equal(run(&without, plan), YOKE_ERROR_DEVICE);
    without.x = NULL;
    assert_int_equal(run(&without, plan), YOKE_ERROR_DEVICE);
    askew.x = (char *)with.x + 4;
    assert_int_equal(run(&askew, plan), YOKE_ERROR_DEVICE);
    assert_non_null(strstr(yoke_last_error(), "less aligned"));
    CHECK(run(&with, plan));
    CHECK(yoke_device_synchronize(&device->base));
    cuda_graph_plan_destroy(plan);
    cuda_graph_destroy(graph);
    close_buffers(&with);
}

/* Faults. */

typedef struct fault_run {
    yoke_status status;
    bool finished;   /* a plan of the whole list ran */
    char failed[64]; /* the call that did; "": the run makes fewer calls */
} fault_run;

static void note_failed(fault_run *of) {
    const char *name = simcuda_failed_call();
    if (name != NULL) snprintf(of->failed, sizeof of->failed, "%s", name);
}

/* Call number `fail` of making, running and destroying a plan fails; 0: none. */
static fault_run fail_call(const buffers *with, uint64_t fail) {
    fault_run of = {.status = YOKE_OK};
    cuda_graph *graph = NULL;
    cuda_graph_plan *plan = NULL;
    cuda_graph_list list = {0};
    bool serves = false;
    simcuda_fail_call(fail);
    of.status = describe(&graph, with->device, CUDNN_DATA_FLOAT, &serves);
    if (of.status == YOKE_OK && serves) of.status = cuda_graph_offers(graph, &tf32, 8, &list);
    if (of.status == YOKE_OK && list.count > 0)
        of.status = cuda_graph_plan_create(&plan, graph, &tf32, list.texts[0]);
    if (of.status == YOKE_OK && plan != NULL) of.status = run(with, plan);
    of.finished = of.status == YOKE_OK && plan != NULL && list.count == 5;
    uint64_t made = simcuda_calls_so_far();
    note_failed(&of);
    simcuda_fail_call(0);
    CHECK(yoke_device_synchronize(&with->device->base));
    if (fail > made) simcuda_fail_call(fail - made);
    cuda_graph_plan_destroy(plan);
    cuda_graph_destroy(graph);
    if (fail > made) note_failed(&of);
    simcuda_fail_call(0);
    return of;
}

/* A call that fails as the library does where it lacks something leaves a plan, a heuristic or the
 * graph out; a failing run is an error; nothing leaks. */
static void every_failing_call_is_an_error_or_leaves_something_out(void **state) {
    cuda_device *device = ((rig *)*state)->device;
    buffers with = open_buffers(device);
    assert_true(fail_call(&with, 0).finished);
    size_t before = simcuda_outstanding();
    int untold = 0, told = 0;
    for (uint64_t call = 1;; call++) {
        fault_run of = fail_call(&with, call);
        if (simcuda_outstanding() > before) simcuda_print_outstanding();
        assert_int_equal(simcuda_outstanding(), before);
        assert_false(cuda_poisoned(device));
        if (of.failed[0] == '\0') break;
        if (of.finished != (strstr(of.failed, "Destroy") != NULL))
            fail_msg("call %d, %s, failed, and it %s", (int)call, of.failed,
                     of.finished ? "went well" : "did harm");
        if (strcmp(of.failed, "cudnnBackendExecute") == 0)
            assert_int_equal(of.status, YOKE_ERROR_DEVICE);
        untold += of.finished;
        told += !of.finished;
    }
    assert_true(told > 100 && untold > 20);
    close_buffers(&with);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(texts_are_canonical),
        cmocka_unit_test(rules_refuse_engines_by_their_notes),
        cmocka_unit_test(heuristics_are_asked_until_there_are_enough),
        cmocka_unit_test(engines_join_a_convolution_with_its_batch_norm),
        cmocka_unit_test(a_text_makes_a_plan_within_the_rules),
        cmocka_unit_test(what_the_library_does_not_support_is_no_error),
        cmocka_unit_test(bad_descriptions_are_errors_that_name_the_first),
        cmocka_unit_test(a_graph_has_room_for_so_many_nodes),
        cmocka_unit_test(plans_outlive_their_graph_and_agree),
        cmocka_unit_test(virtual_tensors_join_two_nodes),
        cmocka_unit_test(a_run_needs_all_pointers),
        cmocka_unit_test(every_failing_call_is_an_error_or_leaves_something_out),
    };
    return cmocka_run_group_tests(tests, open_rig, close_rig);
}

#endif
