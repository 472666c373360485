/* SPDX-License-Identifier: Apache-2.0 */
/* cuDNN's backend: the engines, what heuristics offer of them, and running a plan. */
#include <algorithm>

#include "simcuda/cudnn_backend.h"

namespace sim::backend {
namespace {

struct Knob {
    int64_t type, least, most;
};
/* Engines by their global index. Each computes any graph but what it does not serve. */
struct Engine {
    std::vector<cudnnBackendNumericalNote_t> notes;
    std::vector<Knob> knobs;
    size_t workspace;
    double cost;   /* times the arithmetic's */
    bool adds;     /* to a result */
    bool joins;    /* several nodes */
    bool floats;   /* float operands alone */
    bool compiles; /* code of its own for each plan */
    std::vector<Pattern> patterns; /* none: any graph of no pattern */
};
const Engine engines[] = {
    {{}, {}, 0, 1.5, true, false, false, false, {}},
    {{CUDNN_NUMERICAL_NOTE_TENSOR_CORE},
     {{CUDNN_KNOB_TYPE_TILE_SIZE, 0, 3}, {CUDNN_KNOB_TYPE_STAGES, 1, 4}},
     4096,
     0.95,
     true,
     true,
     false,
     true,
     {}},
    {{CUDNN_NUMERICAL_NOTE_TENSOR_CORE, CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC},
     {{CUDNN_KNOB_TYPE_SPLIT_K_SLC, 1, 8}},
     0,
     ATOMICS_COST,
     false,
     false,
     false,
     false,
     {}},
    {{CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS}, {}, 0, 0.5, false, false, true, false, {}},
    {{CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION}, {}, 0, 0.5, false, false, false, false, {}},
    {{CUDNN_NUMERICAL_NOTE_FFT}, {}, (size_t)1 << 40, 0.5, false, false, false, false, {}},
    {{},
     {{CUDNN_KNOB_TYPE_TILE_SIZE, 0, 5}, {CUDNN_KNOB_TYPE_KERNEL_CFG, 0, 1}},
     0,
     1,
     false,
     true,
     false,
     false,
     {Pattern::forward, Pattern::filter}},
    {{},
     {{CUDNN_KNOB_TYPE_TILE_SIZE, 0, 2}},
     0,
     1,
     false,
     true,
     false,
     false,
     {Pattern::data}},
};
constexpr int64_t ENGINES = sizeof engines / sizeof engines[0];

/* What a heuristic recommends; not all of it serves. Choices come in no order. */
struct Offer {
    int64_t engine;
    std::vector<Choice> choices;
};
using Offers = std::vector<Offer>;
const Offers &offers(cudnnBackendHeurMode_t mode, const Offers &a, const Offers &b,
                     const Offers &fallback) {
    static const Offers none;
    return mode == CUDNN_HEUR_MODE_A          ? a
           : mode == CUDNN_HEUR_MODE_B        ? b
           : mode == CUDNN_HEUR_MODE_FALLBACK ? fallback
                                              : none;
}

const Offers &general_offers(cudnnBackendHeurMode_t mode) {
    static const Offers
        a{{1, {{CUDNN_KNOB_TYPE_STAGES, 2}, {CUDNN_KNOB_TYPE_TILE_SIZE, 0}}},
          {2, {{CUDNN_KNOB_TYPE_SPLIT_K_SLC, 4}}},
          {1, {{CUDNN_KNOB_TYPE_TILE_SIZE, 2}, {CUDNN_KNOB_TYPE_STAGES, 3}}},
          {5, {}}},
        b{{1, {{CUDNN_KNOB_TYPE_TILE_SIZE, 0}, {CUDNN_KNOB_TYPE_STAGES, 2}}},
          {3, {}},
          {4, {}},
          {1, {{CUDNN_KNOB_TYPE_STAGES, 4}, {CUDNN_KNOB_TYPE_TILE_SIZE, 1}}}},
        fallback{{0, {}}};
    return offers(mode, a, b, fallback);
}

const Offers &forward_offers(cudnnBackendHeurMode_t mode) {
    static const Offers a{{6, {{CUDNN_KNOB_TYPE_KERNEL_CFG, 0}, {CUDNN_KNOB_TYPE_TILE_SIZE, 3}}},
                          {6, {{CUDNN_KNOB_TYPE_TILE_SIZE, 5}, {CUDNN_KNOB_TYPE_KERNEL_CFG, 1}}}},
        b{{6, {{CUDNN_KNOB_TYPE_TILE_SIZE, 3}, {CUDNN_KNOB_TYPE_KERNEL_CFG, 0}}},
          {6, {{CUDNN_KNOB_TYPE_TILE_SIZE, 1}, {CUDNN_KNOB_TYPE_KERNEL_CFG, 0}}}},
        fallback{{6, {{CUDNN_KNOB_TYPE_TILE_SIZE, 0}, {CUDNN_KNOB_TYPE_KERNEL_CFG, 0}}}};
    return offers(mode, a, b, fallback);
}

const Offers &data_offers(cudnnBackendHeurMode_t mode) {
    static const Offers a{{7, {{CUDNN_KNOB_TYPE_TILE_SIZE, 1}}}},
        b{{7, {{CUDNN_KNOB_TYPE_TILE_SIZE, 1}}}, {7, {{CUDNN_KNOB_TYPE_TILE_SIZE, 2}}}},
        fallback{{7, {{CUDNN_KNOB_TYPE_TILE_SIZE, 0}}}};
    return offers(mode, a, b, fallback);
}

const Offers &offers_for(const Graph &graph, cudnnBackendHeurMode_t mode) {
    static const Offers none;
    switch (graph.pattern) {
    case Pattern::any:
        return general_offers(mode);
    case Pattern::forward:
    case Pattern::filter:
        return forward_offers(mode);
    case Pattern::data:
        return data_offers(mode);
    default:
        return none;
    }
}

bool notes(const Engine &engine, cudnnBackendNumericalNote_t note) {
    return std::find(engine.notes.begin(), engine.notes.end(), note) != engine.notes.end();
}

/* Engines for patterns serve nothing else, and nothing else serves these. */
bool knows(const Engine &engine, Pattern pattern) {
    if (engine.patterns.empty()) return pattern == Pattern::any;
    return std::find(engine.patterns.begin(), engine.patterns.end(), pattern) !=
           engine.patterns.end();
}

bool serves(const Engine &engine, const Graph &graph) {
    if (!knows(engine, graph.pattern)) return false;
    if (graph.pattern != Pattern::any) return true;
    if (graph.nodes.size() > 1 && !engine.joins) return false;
    for (const Node &node : graph.nodes) {
        if (node.dilated || node.mixed) return false;
        if (engine.floats && node.reads[0].type != CUDNN_DATA_FLOAT) return false;
        if (notes(engine, CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC) && !node.reordered) return false;
        for (const Tensor &written : node.writes)
            for (const Tensor &read : node.reads)
                if (read.uid == written.uid && !engine.adds) return false;
    }
    return true;
}

/* Completing. */

cudnnStatus_t take_graph(Backend &backend, int name) {
    const Backend *from = follow(backend, name);
    if (from->graph == nullptr)
        return cudnn_refuse(CUDNN_STATUS_BAD_PARAM_DESCRIPTOR_TYPE, "not a graph, or of none");
    backend.graph = from->graph;
    backend.engine = from->engine;
    backend.choices = from->choices;
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t complete_heuristics(Backend &backend) {
    return take_graph(backend, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH);
}

cudnnStatus_t complete_engine(Backend &backend) {
    if (cudnnStatus_t status = take_graph(backend, CUDNN_ATTR_ENGINE_OPERATION_GRAPH))
        return status;
    backend.engine = read<int64_t>(backend, CUDNN_ATTR_ENGINE_GLOBAL_INDEX, -1);
    if (backend.engine < 0 || backend.engine >= ENGINES)
        return cudnn_refuse(CUDNN_STATUS_BAD_PARAM_OUT_OF_BOUND, "there is no such engine");
    if (serves(engines[backend.engine], *backend.graph)) return CUDNN_STATUS_SUCCESS;
    return cudnn_refuse(CUDNN_STATUS_NOT_SUPPORTED_GRAPH_PATTERN,
                        "the engine does not compute this graph");
}

cudnnStatus_t complete_choice(Backend &backend) {
    backend.choices = {
        {read(backend, CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE, CUDNN_KNOB_TYPE_COUNTS),
         read<int64_t>(backend, CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE, -1)}};
    return CUDNN_STATUS_SUCCESS;
}

/* An engine's knob takes the value. */
bool takes(const Engine &engine, const Choice &choice) {
    return std::any_of(engine.knobs.begin(), engine.knobs.end(), [&](const Knob &knob) {
        return knob.type == choice.type && choice.value >= knob.least && choice.value <= knob.most;
    });
}

cudnnStatus_t complete_configuration(Backend &backend) {
    if (cudnnStatus_t status = take_graph(backend, CUDNN_ATTR_ENGINECFG_ENGINE)) return status;
    if (backend.engine < 0) return cudnn_refuse(CUDNN_STATUS_BAD_PARAM, "not an engine");
    for (const Backend *choice :
         read_all<const Backend *>(backend, CUDNN_ATTR_ENGINECFG_KNOB_CHOICES)) {
        if (choice->choices.size() != 1 || !takes(engines[backend.engine], choice->choices[0]))
            return cudnn_refuse(CUDNN_STATUS_BAD_PARAM, "a choice that the engine's knobs lack");
        backend.choices.push_back(choice->choices[0]);
    }
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t complete_plan(Backend &backend) {
    if (cudnnStatus_t status = take_graph(backend, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG))
        return status;
    if (backend.engine < 0 || !serves(engines[backend.engine], *backend.graph))
        return cudnn_refuse(CUDNN_STATUS_NOT_SUPPORTED, "the engine does not compute this graph");
    if (engines[backend.engine].compiles) backend.code = std::make_shared<int>(0);
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t complete_pack(Backend &backend) {
    std::vector<int64_t> uids = read_all<int64_t>(backend, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS);
    if (uids.size() != read_all<void *>(backend, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS).size())
        return cudnn_refuse(CUDNN_STATUS_BAD_PARAM, "a pointer for each identity");
    std::sort(uids.begin(), uids.end());
    if (std::adjacent_find(uids.begin(), uids.end()) != uids.end())
        return cudnn_refuse(CUDNN_STATUS_BAD_PARAM_DUPLICATED_ENTRIES, "an identity comes twice");
    return CUDNN_STATUS_SUCCESS;
}

/* Answers. */

template <typename T>
cudnnStatus_t answer(const std::vector<T> &values, int64_t most, int64_t *count, void *to) {
    *count = (int64_t)values.size(); /* also of those that there is no room for */
    size_t fit = std::min(values.size(), (size_t)most);
    if (fit > 0) std::memcpy(to, values.data(), fit * sizeof(T));
    return CUDNN_STATUS_SUCCESS;
}

/* Fills descriptors that the caller created. */
cudnnStatus_t fill(const std::vector<Backend> &made, int64_t most, int64_t *count, void *to) {
    Backend *const *results = static_cast<Backend *const *>(to);
    *count = (int64_t)made.size();
    for (size_t i = 0; i < made.size() && i < (size_t)most; i++) {
        if (results[i] == nullptr || results[i]->type != made[i].type)
            return cudnn_refuse(CUDNN_STATUS_BAD_PARAM_DESCRIPTOR_TYPE, "another descriptor");
        *results[i] = made[i];
        results[i]->final = true;
    }
    return CUDNN_STATUS_SUCCESS;
}

Backend made_of(const Backend &from, cudnnBackendDescriptorType_t type) {
    Backend made;
    made.type = type;
    made.graph = from.graph;
    made.engine = from.engine;
    return made;
}

std::vector<Backend> offered(const Backend &heuristics) {
    std::vector<Backend> made;
    for (const Offer &offer :
         offers_for(*heuristics.graph,
                    read(heuristics, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_HEUR_MODES_COUNT))) {
        made.push_back(made_of(heuristics, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR));
        made.back().engine = offer.engine;
        made.back().choices = offer.choices;
    }
    return made;
}

std::vector<Backend> chosen(const Backend &configuration) {
    std::vector<Backend> made;
    for (const Choice &choice : configuration.choices) {
        made.push_back(made_of(configuration, CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR));
        made.back().choices = {choice};
    }
    return made;
}

/* Running. */

/* The pack's pointers by identity; of values, copies. */
struct Pointers {
    Memory memory;
    std::vector<std::shared_ptr<std::vector<char>>> owned;
    void *workspace;
};

void *own(Pointers *pointers, size_t size) {
    pointers->owned.push_back(std::make_shared<std::vector<char>>(size));
    return pointers->owned.back()->data();
}

cudnnStatus_t read_pack(const Graph &graph, const Backend &pack, Pointers *pointers) {
    std::vector<int64_t> uids = read_all<int64_t>(pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS);
    std::vector<void *> given = read_all<void *>(pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS);
    for (const auto &[uid, tensor] : graph.tensors) {
        auto found = std::find(uids.begin(), uids.end(), uid);
        void *pointer = found == uids.end() ? nullptr : given[(size_t)(found - uids.begin())];
        if (!tensor.is_virtual && pointer == nullptr)
            return cudnn_refuse(CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "a tensor has no pointer");
        if (tensor.is_virtual && found != uids.end())
            return cudnn_refuse(CUDNN_STATUS_BAD_PARAM, "a virtual tensor has a pointer");
        if ((uintptr_t)pointer % (uintptr_t)tensor.alignment != 0 && !tensor.by_value)
            return cudnn_refuse(CUDNN_STATUS_BAD_PARAM_MISALIGNED_POINTER,
                                "a pointer is less aligned than its tensor");
        if (tensor.is_virtual) pointer = own(pointers, bytes(tensor));
        if (tensor.by_value) pointer = std::memcpy(own(pointers, bytes(tensor)), pointer, bytes(tensor));
        pointers->memory[uid] = pointer;
    }
    pointers->workspace = read<void *>(pack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, nullptr);
    return CUDNN_STATUS_SUCCESS;
}

bool has(const std::vector<Tensor> &tensors, int64_t uid) {
    return std::any_of(tensors.begin(), tensors.end(),
                       [uid](const Tensor &tensor) { return tensor.uid == uid; });
}

/* Each once, however many nodes read it; what a node writes is not read for another one. */
std::vector<Operand> operands_of(const Graph &graph, const Pointers &pointers) {
    std::vector<Operand> operands;
    for (const auto &[uid, tensor] : graph.tensors) {
        if (tensor.is_virtual || tensor.by_value) continue;
        bool written = false, read = false, added = false;
        for (const Node &node : graph.nodes) {
            bool writes = has(node.writes, uid), reads = has(node.reads, uid);
            written = written || writes;
            read = read || reads;
            added = added || (reads && writes);
        }
        const Operand operand{pointers.memory.at(uid), bytes(tensor), false, "cudnnBackendExecute"};
        if (added || !written) operands.push_back(operand);
        if (written) operands.push_back({operand.pointer, operand.bytes, true, operand.what});
    }
    return operands;
}

/* Of a pattern the convolution's: what its neighbours add is not worth counting. */
double operations_of(const Graph &graph) {
    double operations = 0;
    for (const Node &node : graph.nodes)
        if (graph.pattern == Pattern::any || is_convolution(node)) operations += node.operations;
    return operations;
}

size_t workspace_bytes(const Engine &engine, const Graph &graph) {
    return engine.workspace + graph.partial_bytes;
}

Arithmetic arithmetic_of(const Engine &engine) {
    bool rounds = notes(engine, CUDNN_NUMERICAL_NOTE_TENSOR_CORE) ||
                  notes(engine, CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS);
    bool any = notes(engine, CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC);
    return {rounds, any ? any_order() : 0};
}

/* For the count: how the products are computed. */
simcuda_arithmetic counted_as(const Graph &graph, const Engine &engine) {
    cudnnDataType_t type = graph.nodes[0].reads[0].type;
    if (type == CUDNN_DATA_BFLOAT16 || type == CUDNN_DATA_HALF) return SIMCUDA_BFLOAT16;
    return arithmetic_of(engine).tf32 ? SIMCUDA_TF32 : SIMCUDA_FLOAT32;
}

} // namespace

cudnnStatus_t get(Backend &from, cudnnBackendAttributeName_t name, int64_t most, int64_t *count,
                  void *values) {
    switch (name) {
    case CUDNN_ATTR_ENGINEHEUR_RESULTS:
        return fill(offered(from), most, count, values);
    case CUDNN_ATTR_ENGINECFG_ENGINE:
        return fill({made_of(from, CUDNN_BACKEND_ENGINE_DESCRIPTOR)}, most, count, values);
    case CUDNN_ATTR_ENGINECFG_KNOB_CHOICES:
        return fill(chosen(from), most, count, values);
    case CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE:
        return answer<cudnnBackendKnobType_t>({(cudnnBackendKnobType_t)from.choices.at(0).type},
                                              most, count, values);
    case CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE:
        return answer<int64_t>({from.choices.at(0).value}, most, count, values);
    case CUDNN_ATTR_ENGINE_GLOBAL_INDEX:
        return answer<int64_t>({from.engine}, most, count, values);
    case CUDNN_ATTR_ENGINE_NUMERICAL_NOTE:
        return answer(engines[from.engine].notes, most, count, values);
    case CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE:
        return answer<int64_t>(
            {(int64_t)workspace_bytes(engines[from.engine], *from.graph)}, most, count, values);
    default:
        return cudnn_refuse(CUDNN_STATUS_NOT_SUPPORTED, "the simulator answers no such attribute");
    }
}

/* The workspace is left dirty, as a GPU leaves it. Code that was compiled for a plan goes with it.
 */
cudnnStatus_t execute(const cudnnContext &handle, const Backend &plan, const Backend &pack) {
    const Engine &engine = engines[plan.engine];
    std::shared_ptr<const Graph> graph = plan.graph;
    Pointers to;
    if (cudnnStatus_t status = read_pack(*graph, pack, &to)) return status;
    const size_t workspace = workspace_bytes(engine, *graph);
    if (workspace > 0 && to.workspace == nullptr)
        return cudnn_refuse(CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "no workspace");
    std::vector<Operand> operands = operands_of(*graph, to);
    const double operations = operations_of(*graph);
    if (workspace > 0) operands.push_back({to.workspace, workspace, true, "cuDNN workspace"});
    double cost_ns = engine.cost * (double)library_cost_ns(operations, 0);
    std::weak_ptr<int> code = plan.code;
    bool compiles = engine.compiles;
    cudaError_t error = enqueue_on(
        handle.stream, "cudnnBackendExecute", (uint64_t)cost_ns, operands,
        {operations, counted_as(*graph, engine)},
        [graph, to = std::move(to), code, compiles, workspace, &engine] {
            if (compiles && code.expired())
                violation("a plan of cuDNN runs that was destroyed, with the code compiled for it");
            if (workspace > 0) std::memset(to.workspace, 0xff, workspace);
            for (const Node &node : graph->nodes)
                node.compute(to.memory, arithmetic_of(engine));
        });
    if (error == cudaSuccess) return CUDNN_STATUS_SUCCESS;
    return cudnn_refuse(CUDNN_STATUS_EXECUTION_FAILED, cudaGetErrorName(error));
}

std::vector<Kind> engine_kinds() {
    return {{CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR,
             {{CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, 1},
              {CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, 1}},
             complete_heuristics},
            {CUDNN_BACKEND_ENGINE_DESCRIPTOR,
             {{CUDNN_ATTR_ENGINE_OPERATION_GRAPH, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, 1},
              {CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64, 1, 1}},
             complete_engine},
            {CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR,
             {{CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE, CUDNN_TYPE_KNOB_TYPE, 1, 1},
              {CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE, CUDNN_TYPE_INT64, 1, 1}},
             complete_choice},
            {CUDNN_BACKEND_ENGINECFG_DESCRIPTOR,
             {{CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, 1},
              {CUDNN_ATTR_ENGINECFG_KNOB_CHOICES, CUDNN_TYPE_BACKEND_DESCRIPTOR, 0, 32}},
             complete_configuration},
            {CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR,
             {{CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, 1, 1},
              {CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, 1}},
             complete_plan},
            {CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR,
             {{CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, 1, 64},
              {CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, 1, 64},
              {CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1, 1}},
             complete_pack}};
}

} // namespace sim::backend
