/* SPDX-License-Identifier: Apache-2.0 */
/* 200 random graphs of elementary operations equal PyTorch's in double: their outputs, and the
 * gradients of their input and of every parameter; and so do the layers and losses composed of
 * them, and convolutions of every form. make_graphs_fixture.py, make_composed_fixture.py and
 * make_convolutions_fixture.py in tests/fixtures write what is wanted. */
#include <string.h>

#include "fixtures/fill.h"
#include "fixtures/fixture.h"
#include "replica_rig.h"
#include "yoke/attention.h"
#include "yoke/composed.h"
#include "yoke/convolution.h"
#include "yoke/losses.h"
#include "yoke/recurrent.h"
#include "yoke/volume.h"

#define TOLERANCE 2e-5

enum { INPUT_STREAM = 1000, TARGET_STREAM = 2000, OUTPUT_STREAM = 5000 };

static const char *text_of(const json_t *object, const char *key) {
    return json_string_value(json_object_get(object, key));
}

static yoke_shape shape_of(const char *kind, const json_t *lengths) {
    int n[3] = {1, 1, 1};
    for (size_t i = 0; i < json_array_size(lengths); i++)
        n[i] = (int)json_integer_value(json_array_get(lengths, i));
    if (strcmp(kind, "image") == 0) return yoke_shape_image(n[0], n[1], n[2]);
    return strcmp(kind, "sequence") == 0 ? yoke_shape_sequence(n[0], n[1])
                                         : yoke_shape_vector(n[0]);
}

static yoke_value add_parameter(yoke_model *model, const json_t *operation, int index) {
    char name[16];
    snprintf(name, sizeof name, "p%d", index);
    yoke_parameter_options options = YOKE_PARAMETER_OPTIONS_INIT;
    options.name = name;
    options.shape = shape_of(text_of(operation, "into"), json_object_get(operation, "shape"));
    return yoke_parameter_value(model, &options);
}

static yoke_value add_function(yoke_model *model, const json_t *operation, const yoke_value *in) {
    const char *name = text_of(operation, "op");
    for (int f = 0; f < YOKE_FUNCTIONS; f++)
        if (strcmp(yoke_function_name((yoke_function)f), name) == 0)
            return yoke_elementary(model, (yoke_function)f, in, real(operation, "p"),
                                   real(operation, "q"));
    fail_msg("no operation %s", name);
    return (yoke_value){-1};
}

static yoke_value add_ctc(yoke_model *model, const json_t *operation, const yoke_value *in) {
    yoke_ctc_options options = YOKE_CTC_OPTIONS_INIT;
    if (in[2].index >= 0) options.input_length = &in[2];
    if (in[3].index >= 0) options.target_length = &in[3];
    options.blank = integer(operation, "blank");
    return yoke_ctc_loss(model, in[0], in[1], &options);
}

/* A loss; index -1: it is none. */
static yoke_value add_loss(yoke_model *model, const json_t *operation, const yoke_value *in) {
    const char *name = text_of(operation, "op");
    if (strcmp(name, "l1_loss") == 0) return yoke_l1_loss(model, in[0], in[1]);
    if (strcmp(name, "kl_loss") == 0) return yoke_kl_loss(model, in[0], in[1]);
    if (strcmp(name, "dice_loss") == 0) return yoke_dice_loss(model, in[0], in[1]);
    if (strcmp(name, "nll_loss") == 0) return yoke_nll_loss(model, in[0], in[1]);
    if (strcmp(name, "focal_loss") == 0)
        return yoke_focal_loss(model, in[0], in[1], real(operation, "alpha"),
                               real(operation, "gamma"));
    if (strcmp(name, "triplet_loss") == 0)
        return yoke_triplet_loss(model, in[0], in[1], in[2], real(operation, "margin"));
    if (strcmp(name, "ctc_loss") == 0) return add_ctc(model, operation, in);
    return (yoke_value){-1};
}

/* A convolution; index -1: it is none. */
static yoke_value add_convolution(yoke_model *model, const json_t *operation, yoke_value in) {
    const char *name = text_of(operation, "op");
    int channels = integer(operation, "channels");
    const yoke_conv2d_options conv = {.struct_size = sizeof conv,
                                      .name = "conv",
                                      .out_channels = channels,
                                      .kernel = integer(operation, "kernel"),
                                      .stride = integer(operation, "stride"),
                                      .padding = integer(operation, "padding"),
                                      .groups = integer(operation, "groups"),
                                      .no_bias = truth(operation, "no_bias"),
                                      .dilation = integer(operation, "dilation"),
                                      .kernel_width = integer(operation, "kernel_width"),
                                      .stride_width = integer(operation, "stride_width"),
                                      .padding_width = integer(operation, "padding_width"),
                                      .dilation_width = integer(operation, "dilation_width")};
    const yoke_conv_transpose2d_options transposed = {
        .struct_size = sizeof transposed,
        .name = "conv",
        .out_channels = channels,
        .kernel = conv.kernel,
        .stride = conv.stride,
        .padding = conv.padding,
        .output_padding = integer(operation, "output_padding"),
        .groups = conv.groups,
        .no_bias = conv.no_bias,
        .dilation = conv.dilation,
        .kernel_width = conv.kernel_width,
        .stride_width = conv.stride_width,
        .padding_width = conv.padding_width,
        .output_padding_width = integer(operation, "output_padding_width"),
        .dilation_width = conv.dilation_width};
    const yoke_conv1d_options line = {.struct_size = sizeof line,
                                      .name = "conv",
                                      .out_channels = channels,
                                      .kernel = conv.kernel,
                                      .stride = conv.stride,
                                      .padding = conv.padding,
                                      .groups = conv.groups,
                                      .no_bias = conv.no_bias,
                                      .dilation = conv.dilation};
    const yoke_pool_options pool = {.struct_size = sizeof pool,
                                    .kernel = conv.kernel,
                                    .stride = conv.stride,
                                    .padding = conv.padding,
                                    .kernel_width = conv.kernel_width,
                                    .stride_width = conv.stride_width,
                                    .padding_width = conv.padding_width};
    if (strcmp(name, "max_pool") == 0) return yoke_max_pool(model, in, &pool);
    if (strcmp(name, "average_pool") == 0) return yoke_average_pool(model, in, &pool);
    if (strcmp(name, "conv2d") == 0) return yoke_conv2d(model, in, &conv);
    if (strcmp(name, "conv_transpose2d") == 0) return yoke_conv_transpose2d(model, in, &transposed);
    if (strcmp(name, "conv1d") == 0) return yoke_conv1d(model, in, &line);
    if (strcmp(name, "pixel_shuffle") == 0)
        return yoke_pixel_shuffle(model, in, integer(operation, "factor"));
    if (strcmp(name, "pixel_unshuffle") == 0)
        return yoke_pixel_unshuffle(model, in, integer(operation, "factor"));
    return (yoke_value){-1};
}

static void take_triple(const json_t *operation, const char *name, int triple[3]) {
    for (size_t i = 0; i < 3; i++)
        triple[i] = (int)json_integer_value(json_array_get(json_object_get(operation, name), i));
}

/* A layer over volumes; index -1: it is none. */
static yoke_value add_volume(yoke_model *model, const json_t *operation, yoke_value in) {
    const char *name = text_of(operation, "op");
    yoke_conv3d_options conv = YOKE_CONV3D_OPTIONS_INIT;
    yoke_pool3d_options pool = YOKE_POOL3D_OPTIONS_INIT;
    conv.name = "conv";
    conv.depth = pool.depth = integer(operation, "depth");
    conv.out_channels = integer(operation, "channels");
    conv.no_bias = truth(operation, "no_bias");
    take_triple(operation, "kernel_of_volume", conv.kernel);
    take_triple(operation, "stride_of_volume", conv.stride);
    take_triple(operation, "padding_of_volume", conv.padding);
    memcpy(pool.kernel, conv.kernel, sizeof pool.kernel);
    memcpy(pool.stride, conv.stride, sizeof pool.stride);
    memcpy(pool.padding, conv.padding, sizeof pool.padding);
    if (strcmp(name, "conv3d") == 0) return yoke_conv3d(model, in, &conv);
    if (strcmp(name, "max_pool3d") == 0) return yoke_max_pool3d(model, in, &pool);
    if (strcmp(name, "average_pool3d") == 0) return yoke_average_pool3d(model, in, &pool);
    return (yoke_value){-1};
}

/* A composed layer or loss; index -1: it is none. */
static yoke_value add_composed(yoke_model *model, const json_t *operation, const yoke_value *in) {
    const char *name = text_of(operation, "op");
    yoke_axis axis = (yoke_axis)integer(operation, "axis");
    yoke_group_norm_options norm = YOKE_GROUP_NORM_OPTIONS_INIT;
    norm.name = "norm";
    norm.groups = integer(operation, "groups");
    norm.not_affine = !truth(operation, "affine");
    yoke_recurrent_options recurrent = YOKE_RECURRENT_OPTIONS_INIT;
    recurrent.name = "rnn";
    recurrent.hidden = integer(operation, "hidden");
    recurrent.layers = integer(operation, "layers");
    recurrent.bidirectional = truth(operation, "bidirectional");
    recurrent.no_bias = truth(operation, "no_bias");
    if (in[1].index >= 0) recurrent.lengths = &in[1];
    if (strcmp(name, "lstm") == 0) return yoke_lstm(model, in[0], &recurrent);
    if (strcmp(name, "gru") == 0) return yoke_gru(model, in[0], &recurrent);
    if (strcmp(name, "group_norm") == 0) return yoke_group_norm(model, in[0], &norm);
    if (strcmp(name, "rms_norm") == 0) return yoke_rms_norm(model, in[0], "norm", 1e-5);
    if (strcmp(name, "prelu") == 0)
        return yoke_prelu(model, in[0], "prelu", truth(operation, "per_channel"));
    if (strcmp(name, "upsample") == 0)
        return yoke_upsample(model, in[0], integer(operation, "height"),
                             integer(operation, "width"),
                             (yoke_upsample_mode)integer(operation, "mode"));
    if (strcmp(name, "rotary") == 0) return yoke_rotary(model, in[0], 10000);
    if (strcmp(name, "attend") == 0) {
        yoke_value q = yoke_split_heads(model, in[0], 2), k = yoke_split_heads(model, in[1], 2);
        bool causal = truth(operation, "causal");
        yoke_value mask =
            causal ? yoke_causal_mask(model, integer(operation, "positions")) : yoke_no_mask();
        return yoke_merge_heads(model, yoke_attend(model, q, k, k, mask));
    }
    if (strcmp(name, "hard_swish") == 0) return yoke_hard_swish(model, in[0]);
    if (strcmp(name, "mish") == 0) return yoke_mish(model, in[0]);
    if (strcmp(name, "glu") == 0) return yoke_glu(model, in[0]);
    if (strcmp(name, "softmax_along") == 0) return yoke_softmax_along(model, in[0], axis);
    if (strcmp(name, "log_softmax_along") == 0) return yoke_log_softmax_along(model, in[0], axis);
    if (strcmp(name, "layer_norm_along") == 0)
        return yoke_layer_norm_along(model, in[0], (unsigned)integer(operation, "axes"), "norm",
                                     1e-5);
    if (strcmp(name, "attend_heads") == 0)
        return yoke_attend(model, in[0], in[1], in[1], yoke_no_mask());
    if (strcmp(name, "index_select") == 0) return yoke_index_select(model, in[0], in[1]);
    return add_loss(model, operation, in);
}

static yoke_value add_operation(yoke_model *model, const json_t *operation, const yoke_value *in,
                                int parameters) {
    static const char *const reductions[] = {"sum", "mean", "max"};
    const char *name = text_of(operation, "op");
    yoke_axis axis = (yoke_axis)integer(operation, "axis");
    for (int i = 0; i < 3; i++)
        if (strcmp(name, reductions[i]) == 0)
            return yoke_reduce_axes(model, in[0], (yoke_reduce_kind)i,
                                    (unsigned)integer(operation, "axes"));
    if (strcmp(name, "parameter") == 0) return add_parameter(model, operation, parameters);
    if (strcmp(name, "reshape") == 0)
        return yoke_reshape(
            model, in[0],
            shape_of(text_of(operation, "into"), json_object_get(operation, "shape")));
    if (strcmp(name, "transpose") == 0)
        return yoke_transpose(model, in[0], (yoke_axis)integer(operation, "first"),
                              (yoke_axis)integer(operation, "second"));
    if (strcmp(name, "slice") == 0)
        return yoke_slice(model, in[0], axis, integer(operation, "begin"),
                          integer(operation, "end"), real(operation, "fill"));
    if (strcmp(name, "concat") == 0) return yoke_concat_along(model, in[0], in[1], axis);
    if (strcmp(name, "matmul") == 0)
        return yoke_matmul(model, in[0], in[1], truth(operation, "transpose_left"),
                           truth(operation, "transpose_right"));
    yoke_value convolution = add_convolution(model, operation, in[0]);
    if (convolution.index >= 0) return convolution;
    yoke_value volume = add_volume(model, operation, in[0]);
    if (volume.index >= 0) return volume;
    yoke_value composed = add_composed(model, operation, in);
    return composed.index >= 0 ? composed : add_function(model, operation, in);
}

/* The graph as a model; streams: [parameters] of its weights. */
static yoke_model *build(const json_t *graph, uint32_t *streams) {
    enum { VALUES = 256 };
    yoke_model *model = NULL;
    yoke_value values[VALUES];
    const json_t *operations = json_object_get(graph, "operations"), *operation;
    size_t i, k;
    int parameters = 0;
    must(yoke_model_create(&model, "graph",
                           shape_of(text_of(graph, "kind"), json_object_get(graph, "shape"))));
    values[0] = yoke_model_input(model);
    json_array_foreach(operations, i, operation) {
        const json_t *arguments = json_object_get(operation, "in"), *argument;
        yoke_value in[4] = {{-1}, {-1}, {-1}, {-1}};
        json_array_foreach(arguments, k, argument) in[k] = values[json_integer_value(argument)];
        assert_true(i + 1 < VALUES);
        values[i + 1] = add_operation(model, operation, in, parameters);
        const json_t *own = json_object_get(operation, "streams"), *stream;
        json_array_foreach(own, k, stream) streams[parameters++] =
            (uint32_t)json_integer_value(stream);
    }
    const json_t *others = json_object_get(graph, "others"), *other;
    json_array_foreach(others, k, other) {
        char name[16];
        snprintf(name, sizeof name, "other %zu", k);
        yoke_model_add_output(model, name, values[json_integer_value(other)]);
    }
    yoke_loss_options loss = YOKE_LOSS_OPTIONS_INIT;
    loss.kind = YOKE_LOSS_MSE;
    must(yoke_model_finish(model, values[integer(graph, "output")], &loss));
    return model;
}

static double norm_in(const json_t *digest) {
    return json_number_value(json_array_get(digest, 0));
}

/* What digest() of the script takes of a tensor: its norm, a weighted sum, and elements. `scale`:
 * the size of the numbers that it is a sum or a difference of, and so of its rounding. */
static void check_tensor(const float *values, size_t count, const json_t *wanted, double scale,
                         const char *what) {
    double square = 0, weighted = 0, norm = fmax(norm_in(wanted), scale);
    for (size_t i = 0; i < count; i++) {
        square += (double)values[i] * (double)values[i];
        weighted += (double)values[i] * cos((double)i);
    }
    near(sqrt(square), norm_in(wanted), TOLERANCE, norm, what);
    near(weighted, json_number_value(json_array_get(wanted, 1)), TOLERANCE, norm, what);
    for (size_t i = 2; i < json_array_size(wanted); i++) {
        const json_t *entry = json_array_get(wanted, i);
        size_t at = (size_t)json_integer_value(json_array_get(entry, 0));
        near((double)values[at], json_number_value(json_array_get(entry, 1)), TOLERANCE, norm,
             what);
    }
}

static void check_outputs(struct rig *rig, const json_t *graph) {
    const yoke_replica_memory *memory = yoke_replica_memory_of(rig->replica);
    for (int k = 0; k < rig->model->output_count; k++) {
        size_t count = (size_t)rig->rows * yoke_model_output_elements(rig->model, k);
        float *values = device_values(rig->device, memory->outputs[k], count * sizeof *values);
        check_tensor(values, count, json_array_get(json_object_get(graph, "outputs"), (size_t)k),
                     0.1, rig->model->outputs[k].name);
        free(values);
    }
}

static void check_gradients(struct rig *rig, const json_t *graph) {
    const json_t *gradients = json_object_get(graph, "gradients"), *digest;
    double largest = norm_in(json_object_get(graph, "input_gradient"));
    const float *from = NULL;
    size_t i, count = (size_t)rig->rows * yoke_model_input_elements(rig->model, 0);
    json_array_foreach(gradients, i, digest) largest = fmax(largest, norm_in(digest));
    must(yoke_replica_input_gradients(rig->replica, 0, &from));
    float *values = device_values(rig->device, from, count * sizeof *values);
    check_tensor(values, count, json_object_get(graph, "input_gradient"), largest,
                 "the input's gradient");
    free(values);
    json_array_foreach(gradients, i, digest) {
        const yoke_tensor *tensor = &rig->model->tensors[i];
        values = malloc(tensor->count * sizeof *values);
        must(yoke_replica_read(rig->replica, (int)i, true, values));
        check_tensor(values, tensor->count, digest, largest, tensor->name);
        free(values);
    }
}

/* A stream's numbers in the memory of a device. */
static void put_stream(const struct rig *rig, float *to, size_t count, uint32_t stream) {
    float *values = malloc(count * sizeof *values);
    fill(values, count, stream, 1, 0);
    device_put(rig->device, to, values, count * sizeof *values);
    free(values);
}

static void load_streams(struct rig *rig, uint32_t seed, const uint32_t *streams) {
    const yoke_replica_memory *memory = yoke_replica_memory_of(rig->replica);
    size_t rows = (size_t)rig->rows;
    put_stream(rig, memory->inputs[0], rows * yoke_model_input_elements(rig->model, 0),
               INPUT_STREAM + seed);
    must(yoke_replica_decode(rig->replica, &(yoke_decode_request){.rows = rig->rows}));
    put_stream(rig, memory->targets, rows * yoke_model_output_elements(rig->model, 0),
               TARGET_STREAM + seed);
    for (int i = 0; i < rig->model->tensor_count; i++) {
        float *values = malloc(rig->model->tensors[i].count * sizeof *values);
        fill(values, rig->model->tensors[i].count, streams[i], 1, 0);
        must(yoke_replica_write(rig->replica, i, false, values));
        free(values);
    }
}

/* recomputes: with activation checkpointing. */
static void check_graph(const json_t *graph, int rows, bool recomputes) {
    uint32_t streams[64] = {0}, seed = (uint32_t)integer(graph, "seed");
    struct rig rig = {.model = build(graph, streams),
                      .rows = rows,
                      .algorithm = YOKE_ALGORITHM_DIRECT,
                      .input_gradients = true,
                      .recomputes = recomputes};
    rig_devices(&rig);
    rig_replica(&rig, 1);
    load_streams(&rig, seed, streams);
    const yoke_plan_step step = {.seed = 1, .step = 1, .loss_scale = 1.0f / (float)rows};
    must(yoke_replica_forward(rig.replica, rows, true, &step));
    must(yoke_replica_loss(rig.replica, &step));
    const yoke_replica_memory *memory = yoke_replica_memory_of(rig.replica);
    for (int k = 1; k < rig.model->output_count; k++)
        put_stream(&rig, memory->output_gradients[k],
                   (size_t)rows * yoke_model_output_elements(rig.model, k),
                   OUTPUT_STREAM + 10 * seed + (uint32_t)k);
    rig_backward(&rig, &step);
    check_outputs(&rig, graph);
    check_gradients(&rig, graph);
    rig_destroy(&rig);
}

static void check_fixture(const char *name, size_t least) {
    json_t *fixture = read_fixture(name);
    const json_t *graphs = json_object_get(fixture, "graphs"), *graph;
    size_t i;
    assert_true(json_array_size(graphs) >= least);
    json_array_foreach(graphs, i, graph) {
        print_message("graph %zu\n", i);
        check_graph(graph, integer(fixture, "rows"), false);
        check_graph(graph, integer(fixture, "rows"), true);
    }
    json_decref(fixture);
}

static void random_graphs_equal_pytorch(void **state) {
    (void)state;
    check_fixture("graphs", 200);
}

static void composed_layers_and_losses_equal_pytorch(void **state) {
    (void)state;
    check_fixture("composed", 50);
}

static void convolutions_equal_pytorch(void **state) {
    (void)state;
    check_fixture("convolutions", 27);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_graphs_equal_pytorch),
        cmocka_unit_test(composed_layers_and_losses_equal_pytorch),
        cmocka_unit_test(convolutions_equal_pytorch),
    };
    return RUN_ON_DEVICES(tests, NULL, NULL);
}
