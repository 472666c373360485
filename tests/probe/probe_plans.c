/* SPDX-License-Identifier: Apache-2.0 */
/* Convolutions by cuDNN's backend: an operation graph of one node, the engine configurations that
 * heuristics offer for it, and a plan of each. */
#include "probe/probe.h"

#ifndef YOKE_HAS_CUDNN

yoke_status probe_plans_create(const cuda_problem *problem, cuda_direction direction,
                               probe_plan *plans[PROBE_PLANS], int *count, const char **reason) {
    (void)problem, (void)direction, (void)plans;
    *count = 0;
    *reason = "cuDNN is not in this build";
    return YOKE_OK;
}

void probe_plan_destroy(probe_plan *plan) {
    (void)plan;
}

size_t probe_plan_workspace(const probe_plan *plan) {
    (void)plan;
    return 0;
}

const char *probe_plan_name(const probe_plan *plan) {
    (void)plan;
    return "";
}

int64_t probe_plan_engine(const probe_plan *plan) {
    (void)plan;
    return -1;
}

yoke_status probe_plan_bind(probe_plan *plan, const cuda_operands *operands) {
    (void)plan, (void)operands;
    return YOKE_OK;
}

yoke_status probe_plan_run(const probe_plan *plan) {
    (void)plan;
    return YOKE_OK;
}

#else

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

typedef cudnnBackendDescriptor_t object;

/* The library has opened cuDNN; under the simulator it is linked in. */
typedef struct backend_calls {
    __typeof__(cudnnBackendCreateDescriptor) *create;
    __typeof__(cudnnBackendDestroyDescriptor) *destroy;
    __typeof__(cudnnBackendSetAttribute) *set;
    __typeof__(cudnnBackendGetAttribute) *get;
    __typeof__(cudnnBackendFinalize) *finalize;
    __typeof__(cudnnBackendExecute) *execute;
} backend_calls;

struct probe_plan {
    cuda_device *device;
    backend_calls calls;
    object plan, pack;
    char name[24];
    int64_t engine, workspace_bytes;
};

enum { X_UID = 1, W_UID, Y_UID };

/* What a pass is described by; destroyed once its plans exist. */
typedef struct description {
    const cuda_problem *problem;
    cuda_direction direction;
    backend_calls calls;
    object x, w, y, convolution, operation, graph;
} description;

static bool find_calls(backend_calls *calls) {
#ifdef YOKE_SIMCUDA
    *calls = (backend_calls){cudnnBackendCreateDescriptor, cudnnBackendDestroyDescriptor,
                             cudnnBackendSetAttribute,     cudnnBackendGetAttribute,
                             cudnnBackendFinalize,         cudnnBackendExecute};
    return true;
#else
    static const char *const names[] = {
        "cudnnBackendCreateDescriptor", "cudnnBackendDestroyDescriptor", "cudnnBackendSetAttribute",
        "cudnnBackendGetAttribute",     "cudnnBackendFinalize",          "cudnnBackendExecute"};
    void *library = dlopen("libcudnn.so.9", RTLD_NOW | RTLD_NOLOAD);
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        void *address = library != NULL ? dlsym(library, names[i]) : NULL;
        if (address == NULL) return false;
        memcpy((char *)calls + i * sizeof address, &address, sizeof address);
    }
    return true;
#endif
}

/* Attributes. */

typedef struct attribute {
    cudnnBackendAttributeName_t name;
    cudnnBackendAttributeType_t type;
    int64_t count;
    const void *values;
} attribute;

static cudnnStatus_t make(const backend_calls *calls, cudnnBackendDescriptorType_t type,
                          const attribute *attributes, size_t count, object *made) {
    cudnnStatus_t status = calls->create(type, made);
    for (size_t i = 0; i < count && status == CUDNN_STATUS_SUCCESS; i++)
        status = calls->set(*made, attributes[i].name, attributes[i].type, attributes[i].count,
                            attributes[i].values);
    return status == CUDNN_STATUS_SUCCESS ? calls->finalize(*made) : status;
}
#define MAKE(calls, type, attributes, made)                                                        \
    make(calls, type, attributes, sizeof(attributes) / sizeof(attributes)[0], made)

static void drop(const backend_calls *calls, object *made) {
    if (*made != NULL) calls->destroy(*made);
    *made = NULL;
}

/* Descriptions: dims [n, c, h, w], in memory channels last. */

static cudnnStatus_t make_tensor(const description *of, int64_t uid, const int64_t dims[4],
                                 object *made) {
    const int64_t strides[4] = {dims[1] * dims[2] * dims[3], 1, dims[3] * dims[1], dims[1]};
    const int64_t alignment = 16;
    const cudnnDataType_t type =
        of->problem->type == CUDA_BFLOAT16 ? CUDNN_DATA_BFLOAT16 : CUDNN_DATA_FLOAT;
    const attribute attributes[] = {
        {CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &type},
        {CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 4, dims},
        {CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, 4, strides},
        {CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, &uid},
        {CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, 1, &alignment}};
    return MAKE(&of->calls, CUDNN_BACKEND_TENSOR_DESCRIPTOR, attributes, made);
}

static cudnnStatus_t make_tensors(description *of) {
    const yoke_operation *o = of->problem->operation;
    const int64_t x[4] = {of->problem->rows, o->input.channels, o->input.height, o->input.width};
    const int64_t w[4] = {o->output.channels, o->input.channels / o->groups, o->kernel, o->kernel};
    const int64_t y[4] = {of->problem->rows, o->output.channels, o->output.height, o->output.width};
    cudnnStatus_t status = make_tensor(of, X_UID, x, &of->x);
    if (status == CUDNN_STATUS_SUCCESS) status = make_tensor(of, W_UID, w, &of->w);
    return status == CUDNN_STATUS_SUCCESS ? make_tensor(of, Y_UID, y, &of->y) : status;
}

static cudnnStatus_t make_convolution(description *of) {
    const yoke_operation *o = of->problem->operation;
    const int64_t two = 2, padding[2] = {o->padding, o->padding},
                  stride[2] = {o->stride, o->stride}, dilation[2] = {o->dilation, o->dilation};
    const cudnnDataType_t sums = CUDNN_DATA_FLOAT;
    const cudnnConvolutionMode_t mode = CUDNN_CROSS_CORRELATION;
    const attribute attributes[] = {
        {CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, CUDNN_TYPE_INT64, 1, &two},
        {CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &sums},
        {CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE, 1, &mode},
        {CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, CUDNN_TYPE_INT64, 2, padding},
        {CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, CUDNN_TYPE_INT64, 2, padding},
        {CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, CUDNN_TYPE_INT64, 2, stride},
        {CUDNN_ATTR_CONVOLUTION_DILATIONS, CUDNN_TYPE_INT64, 2, dilation}};
    return MAKE(&of->calls, CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR, attributes, &of->convolution);
}

/* One node; its attributes have the same order in each direction: alpha, beta, the convolution, w,
 * x, y. */
static cudnnStatus_t make_operation(description *of) {
    static const struct {
        cudnnBackendDescriptorType_t type;
        cudnnBackendAttributeName_t names[6];
    } kinds[CUDA_DIRECTIONS] = {
        {CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
         {CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA,
          CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA,
          CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC,
          CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X,
          CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y}},
        {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
         {CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA,
          CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA,
          CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC,
          CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX,
          CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY}},
        {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR,
         {CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA,
          CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA,
          CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC,
          CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW,
          CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X,
          CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY}}};
    static const float one = 1, zero = 0;
    const cudnnBackendAttributeName_t *names = kinds[of->direction].names;
    const attribute attributes[] = {{names[0], CUDNN_TYPE_FLOAT, 1, &one},
                                    {names[1], CUDNN_TYPE_FLOAT, 1, &zero},
                                    {names[2], CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &of->convolution},
                                    {names[3], CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &of->w},
                                    {names[4], CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &of->x},
                                    {names[5], CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &of->y}};
    return MAKE(&of->calls, kinds[of->direction].type, attributes, &of->operation);
}

static cudnnStatus_t make_graph(description *of) {
    const cudnnHandle_t handle = of->problem->device->cudnn;
    const attribute attributes[] = {
        {CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1, &handle},
        {CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &of->operation}};
    return MAKE(&of->calls, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR, attributes, &of->graph);
}

static cudnnStatus_t describe(description *of) {
    cudnnStatus_t status = make_tensors(of);
    if (status == CUDNN_STATUS_SUCCESS) status = make_convolution(of);
    if (status == CUDNN_STATUS_SUCCESS) status = make_operation(of);
    return status == CUDNN_STATUS_SUCCESS ? make_graph(of) : status;
}

static void forget(description *of) {
    object *const all[] = {&of->graph, &of->operation, &of->convolution, &of->y, &of->w, &of->x};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        drop(&of->calls, all[i]);
}

/* Plans. */

void probe_plan_destroy(probe_plan *plan) {
    if (plan == NULL) return;
    drop(&plan->calls, &plan->pack);
    drop(&plan->calls, &plan->plan);
    free(plan);
}

size_t probe_plan_workspace(const probe_plan *plan) {
    return (size_t)plan->workspace_bytes;
}

const char *probe_plan_name(const probe_plan *plan) {
    return plan->name;
}

int64_t probe_plan_engine(const probe_plan *plan) {
    return plan->engine;
}

static int64_t engine_of(const backend_calls *calls, object configuration) {
    object engine = NULL;
    int64_t count = 0, index = -1;
    if (calls->create(CUDNN_BACKEND_ENGINE_DESCRIPTOR, &engine) == CUDNN_STATUS_SUCCESS &&
        calls->get(configuration, CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1,
                   &count, &engine) == CUDNN_STATUS_SUCCESS)
        calls->get(engine, CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64, 1, &count, &index);
    drop(calls, &engine);
    return index;
}

static yoke_status create_plan(const description *of, object configuration, const char *name,
                               probe_plan **plan) {
    const cudnnHandle_t handle = of->problem->device->cudnn;
    const attribute attributes[] = {
        {CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, 1, &handle},
        {CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1,
         &configuration}};
    int64_t count = 0;
    *plan = calloc(1, sizeof **plan);
    if (*plan == NULL) return FAIL_MEMORY(sizeof **plan, "a plan");
    (*plan)->device = of->problem->device;
    (*plan)->calls = of->calls;
    (*plan)->engine = engine_of(&of->calls, configuration);
    snprintf((*plan)->name, sizeof(*plan)->name, "%s", name);
    cudnnStatus_t status =
        MAKE(&of->calls, CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, attributes, &(*plan)->plan);
    if (status == CUDNN_STATUS_SUCCESS)
        status = of->calls.get((*plan)->plan, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE,
                               CUDNN_TYPE_INT64, 1, &count, &(*plan)->workspace_bytes);
    if (status == CUDNN_STATUS_SUCCESS) return YOKE_OK;
    probe_plan_destroy(*plan);
    *plan = NULL;
    return YOKE_OK;
}

/* A configuration that does not serve is passed over. */
static yoke_status add_plans(const description *of, const object *configurations, int64_t found,
                             probe_plan **plans, int *count) {
    for (int64_t i = 0; i < found; i++) {
        char name[24];
        snprintf(name, sizeof name, "plan %d", (int)i);
        TRY(create_plan(of, configurations[i], name, &plans[*count]));
        *count += plans[*count] != NULL;
    }
    return YOKE_OK;
}

/* By heuristic A, cuDNN's own recommendation. */
static yoke_status offer(const description *of, probe_plan **plans, int *count) {
    const cudnnBackendHeurMode_t mode = CUDNN_HEUR_MODE_A;
    object heuristics = NULL, configurations[PROBE_PLANS] = {NULL};
    const attribute attributes[] = {
        {CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &of->graph},
        {CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &mode}};
    int64_t found = 0;
    cudnnStatus_t status =
        MAKE(&of->calls, CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR, attributes, &heuristics);
    for (int i = 0; i < PROBE_PLANS && status == CUDNN_STATUS_SUCCESS; i++)
        status = of->calls.create(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, &configurations[i]);
    if (status == CUDNN_STATUS_SUCCESS)
        status = of->calls.get(heuristics, CUDNN_ATTR_ENGINEHEUR_RESULTS,
                               CUDNN_TYPE_BACKEND_DESCRIPTOR, PROBE_PLANS, &found, configurations);
    if (found > PROBE_PLANS) found = PROBE_PLANS; /* cuDNN may count more than it wrote */
    yoke_status done = status == CUDNN_STATUS_SUCCESS
                           ? add_plans(of, configurations, found, plans, count)
                           : YOKE_OK;
    for (int i = 0; i < PROBE_PLANS; i++)
        drop(&of->calls, &configurations[i]);
    drop(&of->calls, &heuristics);
    return done;
}

yoke_status probe_plans_create(const cuda_problem *problem, cuda_direction direction,
                               probe_plan *plans[PROBE_PLANS], int *count, const char **reason) {
    description of = {.problem = problem, .direction = direction};
    *count = 0;
    *reason = NULL;
    if (problem->device->cudnn == NULL)
        *reason = cuda_library_detail("cudnn");
    else if (!find_calls(&of.calls))
        *reason = "this cuDNN has no backend functions";
    if (*reason != NULL) return YOKE_OK;
    cudnnStatus_t described = describe(&of);
    yoke_status status = described == CUDNN_STATUS_SUCCESS ? offer(&of, plans, count) : YOKE_OK;
    forget(&of);
    if (described != CUDNN_STATUS_SUCCESS)
        *reason = cuda_cudnn()->cudnnGetErrorString(described);
    else if (*count == 0)
        *reason = "heuristic A offers no plan that serves";
    return status;
}

/* Running. */

static cudnnStatus_t fill_pack(probe_plan *plan, const cuda_operands *operands) {
    static const int64_t uids[] = {X_UID, W_UID, Y_UID};
    void *const pointers[] = {operands->input, operands->weights, operands->output};
    const attribute attributes[] = {
        {CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, 3, uids},
        {CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, 3, pointers},
        {CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1, &operands->scratch}};
    return MAKE(&plan->calls, CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, attributes, &plan->pack);
}

yoke_status probe_plan_bind(probe_plan *plan, const cuda_operands *operands) {
    TRY_CUDNN(plan->device, fill_pack(plan, operands));
    return YOKE_OK;
}

yoke_status probe_plan_run(const probe_plan *plan) {
    TRY_CUDNN(plan->device, plan->calls.execute(plan->device->cudnn, plan->plan, plan->pack));
    return YOKE_OK;
}

#endif
