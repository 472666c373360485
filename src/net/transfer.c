/* SPDX-License-Identifier: Apache-2.0 */
/* Weights, state and graph, to and from memory and files. */
#include "net/net.h"
#include "yoke/checkpoint.h"
#include "yoke/onnx.h"
#include "yoke/weights.h"

/* Parts. */

typedef struct part_kind {
    const char *name;
    yoke_status (*write)(yoke_net *net, const yoke_sink *sink);
    yoke_status (*read)(yoke_net *net, const void *bytes, size_t count); /* NULL: not possible */
    bool trains; /* a net that only predicts has none */
} part_kind;

static yoke_status write_weights(yoke_net *net, const yoke_sink *sink) {
    return yoke_weights_write(net->engine, net->model, NULL, sink);
}

static yoke_status read_weights(yoke_net *net, const void *bytes, size_t count) {
    return yoke_weights_read(net->engine, net->model, bytes, count, NULL);
}

static yoke_status write_state(yoke_net *net, const yoke_sink *sink) {
    return yoke_state_write(net->engine, sink);
}

static yoke_status read_state(yoke_net *net, const void *bytes, size_t count) {
    TRY(yoke_state_read(net->engine, bytes, count, NULL));
    net->now.step = yoke_data_parallel_steps(net->engine);
    return YOKE_OK;
}

static yoke_status write_graph(yoke_net *net, const yoke_sink *sink) {
    return yoke_weights_write_onnx(net->engine, net->model, sink);
}

static const part_kind parts[] = {
    [YOKE_NET_WEIGHTS] = {"weights", write_weights, read_weights, false},
    [YOKE_NET_STATE] = {"state", write_state, read_state, true},
    [YOKE_NET_GRAPH] = {"graph", write_graph, NULL, false},
};

static yoke_status find(const yoke_net *net, yoke_net_part part, const part_kind **kind) {
    if (part < 0 || (size_t)part >= sizeof parts / sizeof parts[0])
        return FAIL(YOKE_ERROR_ARGUMENT, "part %d: it is one of yoke_net_part", (int)part);
    *kind = &parts[part];
    return (*kind)->trains ? yoke_net_check_trains(net, (*kind)->name) : YOKE_OK;
}

/* Calls. */

static yoke_status write_part(yoke_net *net, yoke_net_part part, const yoke_sink *sink) {
    const part_kind *kind = NULL;
    TRY(find(net, part, &kind));
    return kind->write(net, sink);
}

yoke_status yoke_net_write(yoke_net *net, yoke_net_part part, const yoke_sink *sink) {
    yoke_net_call call;
    TRY(yoke_pointer_check(sink, "sink"));
    TRY(yoke_net_begin(net, "yoke_net_write", YOKE_NET_TRANSFER, &call));
    return yoke_net_end(net, &call, write_part(net, part, sink));
}

static yoke_status read_part(yoke_net *net, yoke_net_part part, const void *bytes, size_t count) {
    const part_kind *kind = NULL;
    TRY(find(net, part, &kind));
    if (kind->read == NULL)
        return FAIL(YOKE_ERROR_ARGUMENT,
                    "a net has its model already: yoke_model_load_onnx makes one of a graph");
    TRY(kind->read(net, bytes, count));
    yoke_net_changed(net);
    return YOKE_OK;
}

yoke_status yoke_net_read(yoke_net *net, yoke_net_part part, const void *bytes, size_t count) {
    yoke_net_call call;
    TRY(yoke_pointer_check(bytes, "bytes"));
    TRY(yoke_net_begin(net, "yoke_net_read", YOKE_NET_TRANSFER, &call));
    return yoke_net_end(net, &call, read_part(net, part, bytes, count));
}

yoke_status yoke_net_save(yoke_net *net, const char *path) {
    yoke_net_call call;
    TRY(yoke_pointer_check(path, "path"));
    TRY(yoke_net_begin(net, "yoke_net_save", YOKE_NET_TRANSFER, &call));
    return yoke_net_end(net, &call, yoke_weights_save(net->engine, net->model, path));
}

static yoke_status load(yoke_net *net, const char *path) {
    TRY(yoke_weights_load(net->engine, net->model, path));
    yoke_net_changed(net);
    return YOKE_OK;
}

yoke_status yoke_net_load(yoke_net *net, const char *path) {
    yoke_net_call call;
    TRY(yoke_pointer_check(path, "path"));
    TRY(yoke_net_begin(net, "yoke_net_load", YOKE_NET_TRANSFER, &call));
    return yoke_net_end(net, &call, load(net, path));
}
