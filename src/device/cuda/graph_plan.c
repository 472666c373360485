/* SPDX-License-Identifier: Apache-2.0 */
/* Plans of a graph. An engine configuration is an engine's number and the choices of its knobs.
 * Yoke records these as text, and makes every plan from the text, so that what was measured is what
 * a record makes again. */
#include "device/cuda/operation_graph.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define KNOBS_LIMIT 32

typedef struct configuration {
    int64_t engine;
    int knob_count;
    struct {
        int64_t type, value;
    } knobs[KNOBS_LIMIT]; /* types ascend */
} configuration;

/* Texts. */

static bool parse_knob(const char *text, configuration *read) {
    char copy[CUDA_GRAPH_TEXT_BYTES];
    int i = read->knob_count;
    snprintf(copy, sizeof copy, "%s", text);
    char *value = strchr(copy, '=');
    if (copy[0] != 'k' || value == NULL || i == KNOBS_LIMIT) return false;
    *value++ = '\0';
    if (!yoke_text_integer(copy + 1, 0, INT32_MAX, &read->knobs[i].type) ||
        !yoke_text_integer(value, INT32_MIN, INT32_MAX, &read->knobs[i].value))
        return false;
    read->knob_count++;
    return i == 0 || read->knobs[i].type > read->knobs[i - 1].type;
}

static bool parse(const char *text, configuration *read) {
    char copy[CUDA_GRAPH_TEXT_BYTES], *rest = copy;
    *read = (configuration){0};
    if (strlen(text) >= sizeof copy || strncmp(text, "eng", 3) != 0) return false;
    memcpy(copy, text + 3, strlen(text + 3) + 1);
    if (!yoke_text_integer(strsep(&rest, "_"), 0, INT32_MAX, &read->engine)) return false;
    while (rest != NULL)
        if (!parse_knob(strsep(&rest, "_"), read)) return false;
    return true;
}

bool cuda_is_graph_text(const char *text) {
    configuration read;
    return parse(text, &read);
}

#ifdef YOKE_HAS_CUDNN

/* What a plan was made of lives as long as the plan does: the library does not say what it copies.
 */
struct cuda_graph_plan {
    cuda_device *device;
    cuda_graph_object engine, knobs[KNOBS_LIMIT], configuration, plan;
    int64_t workspace_bytes;
    char text[CUDA_GRAPH_TEXT_BYTES];
};

/* False: too long, so that no record could hold it. */
static bool write_text(const configuration *from, char text[CUDA_GRAPH_TEXT_BYTES]) {
    int length = snprintf(text, CUDA_GRAPH_TEXT_BYTES, "eng%lld", (long long)from->engine);
    for (int i = 0; i < from->knob_count && length < CUDA_GRAPH_TEXT_BYTES; i++)
        length += snprintf(text + length, CUDA_GRAPH_TEXT_BYTES - (size_t)length, "_k%lld=%lld",
                           (long long)from->knobs[i].type, (long long)from->knobs[i].value);
    return length < CUDA_GRAPH_TEXT_BYTES;
}

/* Reading what the library made. `call` is the last call. */

static void drop(cuda_graph_object *objects, int count) {
    for (int i = count - 1; i >= 0; i--) {
        if (objects[i] != NULL) cuda_cudnn_graph()->cudnnBackendDestroyDescriptor(objects[i]);
        objects[i] = NULL;
    }
}

static cudnnStatus_t get(cuda_graph_object from, cuda_graph_attribute *attribute, void *values,
                         const char **call) {
    int64_t most = attribute->count;
    *call = "cudnnBackendGetAttribute";
    attribute->count = 0;
    cudnnStatus_t status = cuda_cudnn_graph()->cudnnBackendGetAttribute(
        from, attribute->name, attribute->type, most, &attribute->count, values);
    if (attribute->count > most) attribute->count = most; /* it may count more than it wrote */
    return status;
}

static cudnnStatus_t get_one(cuda_graph_object from, cudnnBackendAttributeName_t name,
                             cudnnBackendAttributeType_t type, void *value, const char **call) {
    cuda_graph_attribute attribute = {name, type, 1, NULL};
    return get(from, &attribute, value, call);
}

/* The library fills descriptors that its caller created. */
static cudnnStatus_t get_objects(cuda_graph_object from, cudnnBackendAttributeName_t name,
                                 cudnnBackendDescriptorType_t type, cuda_graph_object *objects,
                                 int *count, const char **call) {
    cuda_graph_attribute attribute = {name, CUDNN_TYPE_BACKEND_DESCRIPTOR, *count, NULL};
    cudnnStatus_t status = CUDNN_STATUS_SUCCESS;
    *call = "cudnnBackendCreateDescriptor";
    for (int i = 0; i < *count && status == CUDNN_STATUS_SUCCESS; i++) {
        status = cuda_cudnn_graph()->cudnnBackendCreateDescriptor(type, &objects[i]);
        if (status != CUDNN_STATUS_SUCCESS) objects[i] = NULL;
    }
    if (status == CUDNN_STATUS_SUCCESS) status = get(from, &attribute, objects, call);
    *count = (int)attribute.count;
    return status;
}

/* Whether an engine's numbers are those that the rules ask for. Yoke sums in float32. */
static cudnnStatus_t obeys(cuda_graph_object engine, const cuda_graph_rules *rules, bool *obeyed,
                           const char **call) {
    bool refused[CUDNN_NUMERICAL_NOTE_TYPE_COUNT] = {
        [CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC] = !rules->atomics,
        [CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION] = true,
        [CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS] = rules->float32,
        [CUDNN_NUMERICAL_NOTE_TENSOR_CORE] = rules->float32 && !rules->tf32};
    cudnnBackendNumericalNote_t notes[CUDNN_NUMERICAL_NOTE_TYPE_COUNT];
    cuda_graph_attribute attribute = {CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE,
                                      CUDNN_NUMERICAL_NOTE_TYPE_COUNT, NULL};
    cudnnStatus_t status = get(engine, &attribute, notes, call);
    *obeyed = status == CUDNN_STATUS_SUCCESS;
    for (int i = 0; i < attribute.count && *obeyed; i++) {
        unsigned note = (unsigned)notes[i]; /* a newer library may know more */
        *obeyed = note >= CUDNN_NUMERICAL_NOTE_TYPE_COUNT || !refused[note];
    }
    return status;
}

static void insert_knob(configuration *to, int64_t type, int64_t value) {
    int i = to->knob_count++;
    for (; i > 0 && to->knobs[i - 1].type > type; i--)
        to->knobs[i] = to->knobs[i - 1];
    to->knobs[i].type = type;
    to->knobs[i].value = value;
}

static cudnnStatus_t read_knobs(cuda_graph_object from, configuration *to, const char **call) {
    cuda_graph_object choices[KNOBS_LIMIT] = {NULL};
    int count = KNOBS_LIMIT;
    cudnnStatus_t status = get_objects(from, CUDNN_ATTR_ENGINECFG_KNOB_CHOICES,
                                       CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR, choices, &count, call);
    for (int i = 0; i < count && status == CUDNN_STATUS_SUCCESS; i++) {
        cudnnBackendKnobType_t type;
        int64_t value;
        status = get_one(choices[i], CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE, CUDNN_TYPE_KNOB_TYPE, &type,
                         call);
        if (status == CUDNN_STATUS_SUCCESS)
            status = get_one(choices[i], CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE, CUDNN_TYPE_INT64,
                             &value, call);
        if (status == CUDNN_STATUS_SUCCESS) insert_knob(to, (int64_t)type, value);
    }
    drop(choices, KNOBS_LIMIT);
    return status;
}

static cudnnStatus_t read_configuration(cuda_graph_object from, const cuda_graph_rules *rules,
                                        configuration *to, bool *obeyed, const char **call) {
    cuda_graph_object engine = NULL;
    int count = 1;
    *to = (configuration){0};
    *obeyed = false;
    cudnnStatus_t status = get_objects(from, CUDNN_ATTR_ENGINECFG_ENGINE,
                                       CUDNN_BACKEND_ENGINE_DESCRIPTOR, &engine, &count, call);
    if (status == CUDNN_STATUS_SUCCESS)
        status =
            get_one(engine, CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64, &to->engine, call);
    if (status == CUDNN_STATUS_SUCCESS) status = obeys(engine, rules, obeyed, call);
    drop(&engine, 1);
    return status == CUDNN_STATUS_SUCCESS && *obeyed ? read_knobs(from, to, call) : status;
}

/* Offers. */

static void add_offer(cuda_graph_list *list, const configuration *offered) {
    char text[CUDA_GRAPH_TEXT_BYTES];
    if (list->count == CUDA_GRAPH_PLANS || !write_text(offered, text)) return;
    for (int i = 0; i < list->count; i++)
        if (strcmp(list->texts[i], text) == 0) return;
    memcpy(list->texts[list->count++], text, sizeof text);
}

static cudnnStatus_t read_offers(cuda_graph_object heuristics, const cuda_graph_rules *rules,
                                 cuda_graph_list *list, const char **call) {
    cuda_graph_object offered[CUDA_GRAPH_PLANS] = {NULL};
    int count = CUDA_GRAPH_PLANS;
    cudnnStatus_t status = get_objects(heuristics, CUDNN_ATTR_ENGINEHEUR_RESULTS,
                                       CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, offered, &count, call);
    for (int i = 0; i < count && status == CUDNN_STATUS_SUCCESS; i++) {
        configuration read;
        bool obeyed;
        status = read_configuration(offered[i], rules, &read, &obeyed, call);
        if (status == CUDNN_STATUS_SUCCESS && obeyed) add_offer(list, &read);
    }
    drop(offered, CUDA_GRAPH_PLANS);
    return status;
}

static cudnnStatus_t ask(const cuda_graph *graph, cudnnBackendHeurMode_t mode,
                         const cuda_graph_rules *rules, cuda_graph_list *list, const char **call) {
    const cuda_graph_object operations = cuda_graph_operations(graph);
    const cuda_graph_attribute attributes[] = {
        {CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &operations},
        {CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &mode}};
    cuda_graph_object heuristics;
    cudnnStatus_t status =
        cuda_graph_make(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR, attributes,
                        sizeof attributes / sizeof attributes[0], &heuristics, call);
    if (status == CUDNN_STATUS_SUCCESS) status = read_offers(heuristics, rules, list, call);
    drop(&heuristics, 1);
    return status;
}

yoke_status cuda_graph_offers(const cuda_graph *graph, const cuda_graph_rules *rules, int enough,
                              cuda_graph_list *list) {
    static const cudnnBackendHeurMode_t modes[] = {CUDNN_HEUR_MODE_A, CUDNN_HEUR_MODE_B,
                                                   CUDNN_HEUR_MODE_FALLBACK};
    list->count = 0;
    for (size_t i = 0; i < sizeof modes / sizeof modes[0] && list->count < enough; i++) {
        const char *call;
        cudnnStatus_t status = ask(graph, modes[i], rules, list, &call);
        if (status != CUDNN_STATUS_SUCCESS && !cuda_graph_refuses(status))
            return cuda_cudnn_failed(cuda_graph_device(graph), status, call);
    }
    return YOKE_OK;
}

/* Making. `call` is the last call. */

static cudnnStatus_t make_engine(cuda_graph_plan *self, const cuda_graph *graph, int64_t number,
                                 const char **call) {
    const cuda_graph_object operations = cuda_graph_operations(graph);
    const cuda_graph_attribute attributes[] = {
        {CUDNN_ATTR_ENGINE_OPERATION_GRAPH, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &operations},
        {CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64, 1, &number}};
    return cuda_graph_make(CUDNN_BACKEND_ENGINE_DESCRIPTOR, attributes, 2, &self->engine, call);
}

static cudnnStatus_t make_configuration(cuda_graph_plan *self, const configuration *from,
                                        const char **call) {
    cudnnStatus_t status = CUDNN_STATUS_SUCCESS;
    for (int i = 0; i < from->knob_count && status == CUDNN_STATUS_SUCCESS; i++) {
        const cudnnBackendKnobType_t type = (cudnnBackendKnobType_t)from->knobs[i].type;
        const cuda_graph_attribute choice[] = {
            {CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE, CUDNN_TYPE_KNOB_TYPE, 1, &type},
            {CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE, CUDNN_TYPE_INT64, 1, &from->knobs[i].value}};
        status =
            cuda_graph_make(CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR, choice, 2, &self->knobs[i], call);
    }
    const cuda_graph_attribute attributes[] = {
        {CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &self->engine},
        {CUDNN_ATTR_ENGINECFG_KNOB_CHOICES, CUDNN_TYPE_BACKEND_DESCRIPTOR, from->knob_count,
         self->knobs}};
    if (status != CUDNN_STATUS_SUCCESS) return status;
    return cuda_graph_make(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, attributes,
                           from->knob_count > 0 ? 2 : 1, &self->configuration, call);
}

static cudnnStatus_t make_plan(cuda_graph_plan *self, const char **call) {
    const cuda_graph_attribute attributes[] = {
        {CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, 1, &self->device->cudnn},
        {CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1,
         &self->configuration}};
    cudnnStatus_t status =
        cuda_graph_make(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, attributes, 2, &self->plan, call);
    if (status != CUDNN_STATUS_SUCCESS) return status;
    return get_one(self->plan, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64,
                   &self->workspace_bytes, call);
}

static cudnnStatus_t make_all(cuda_graph_plan *self, const cuda_graph *graph,
                              const configuration *from, const cuda_graph_rules *rules,
                              bool *obeyed, const char **call) {
    *obeyed = false;
    cudnnStatus_t status = make_engine(self, graph, from->engine, call);
    if (status == CUDNN_STATUS_SUCCESS) status = obeys(self->engine, rules, obeyed, call);
    if (status != CUDNN_STATUS_SUCCESS || !*obeyed) return status;
    status = make_configuration(self, from, call);
    if (status == CUDNN_STATUS_SUCCESS) status = make_plan(self, call);
    *obeyed = status == CUDNN_STATUS_SUCCESS && self->workspace_bytes >= 0 &&
              (uint64_t)self->workspace_bytes <= rules->workspace_limit;
    return status;
}

/* A number that another version of the library wrote may be a bad parameter of this one. */
static bool is_refusal(cudnnStatus_t status) {
    return cuda_graph_refuses(status) || CUDNN_STATUS_CATEGORY(status) == CUDNN_STATUS_BAD_PARAM;
}

yoke_status cuda_graph_plan_create(cuda_graph_plan **plan, const cuda_graph *graph,
                                   const cuda_graph_rules *rules, const char *text) {
    configuration from;
    const char *call;
    bool obeyed;
    *plan = NULL;
    if (!parse(text, &from)) return YOKE_OK;
    cuda_graph_plan *self = yoke_calloc(1, sizeof *self);
    if (self == NULL) return FAIL_MEMORY(sizeof *self, "a plan of a graph");
    self->device = cuda_graph_device(graph);
    memcpy(self->text, text, strlen(text) + 1);
    cudnnStatus_t status = make_all(self, graph, &from, rules, &obeyed, &call);
    if (status == CUDNN_STATUS_SUCCESS && obeyed) {
        *plan = self;
        return YOKE_OK;
    }
    cuda_graph_plan_destroy(self);
    if (status == CUDNN_STATUS_SUCCESS || is_refusal(status)) return YOKE_OK;
    return cuda_cudnn_failed(cuda_graph_device(graph), status, call);
}

void cuda_graph_plan_destroy(cuda_graph_plan *plan) {
    if (plan == NULL) return;
    drop(&plan->plan, 1);
    drop(&plan->configuration, 1);
    drop(plan->knobs, KNOBS_LIMIT);
    drop(&plan->engine, 1);
    yoke_free(plan);
}

const char *cuda_graph_plan_text(const cuda_graph_plan *plan) {
    return plan->text;
}

size_t cuda_graph_plan_workspace(const cuda_graph_plan *plan) {
    return (size_t)plan->workspace_bytes;
}

yoke_status cuda_graph_plan_run(const cuda_graph_plan *plan, const int64_t *uids,
                                void *const *pointers, int count, void *workspace) {
    const cuda_graph_attribute attributes[] = {
        {CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, count, uids},
        {CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, count, pointers},
        {CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1, &workspace}};
    cuda_graph_object pack;
    const char *call;
    cudnnStatus_t status = cuda_graph_make(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, attributes,
                                           sizeof attributes / sizeof attributes[0], &pack, &call);
    if (status == CUDNN_STATUS_SUCCESS) {
        call = "cudnnBackendExecute";
        status = cuda_cudnn_graph()->cudnnBackendExecute(plan->device->cudnn, plan->plan, pack);
    }
    drop(&pack, 1);
    return status == CUDNN_STATUS_SUCCESS ? YOKE_OK : cuda_cudnn_failed(plan->device, status, call);
}

#endif
