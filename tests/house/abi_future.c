/* SPDX-License-Identifier: Apache-2.0 */
/* A host program of a later version that sets a field which this library does not know, in each
 * struct that the library reads: prints the struct's name and the refusal. abi.py builds it against
 * headers whose structs have grown. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <yoke/yoke.h>

/* `call` sees `given`, in which only the unknown field is set. */
#define REFUSED(type, call)                                                                        \
    do {                                                                                           \
        type given;                                                                                \
        memset(&given, 0, sizeof given);                                                           \
        given.struct_size = sizeof given;                                                          \
        given.yoke_grown = 1;                                                                      \
        yoke_status status = (call);                                                               \
        printf(#type ": %s: %s\n", yoke_status_name(status), yoke_last_error());                   \
    } while (0)

static const yoke_shape image = {.channels = 1, .height = 8, .width = 8};
static yoke_devices *devices;
static yoke_model *model;

static void must(yoke_status status) {
    if (status == YOKE_OK) return;
    printf("%s\n", yoke_last_error());
    exit(1);
}

/* Arrays of two inputs. */
static yoke_status rows_of(const yoke_row_input *given) {
    static const float values[64];
    yoke_dataset *dataset = NULL;
    yoke_arrays arrays = {.struct_size = sizeof arrays, .rows = 1, .shape = image};
    arrays.inputs = values;
    arrays.more_inputs = given;
    arrays.more_input_count = 1;
    return yoke_dataset_from_arrays(&dataset, &arrays);
}

/* A layer's options: yoke_model_finish reports what its builder found. */
typedef enum layer {
    CONV,
    LINEAR,
    BATCH_NORM,
    LAYER_NORM,
    POOL,
    GROUP_NORM,
    CTC,
    PARAMETER,
    LSTM,
    CONV1D,
    CONV_TRANSPOSE,
    CONV3D,
    POOL3D,
    OPERATION,
    EMBEDDING,
    ATTENTION
} layer;

static yoke_status build(layer kind, const void *given) {
    yoke_model *built = NULL;
    yoke_shape ids = {.channels = 6, .height = 1, .width = 1, .flat = true};
    yoke_embedding_options tokens = YOKE_EMBEDDING_OPTIONS_INIT;
    tokens.name = "tokens";
    tokens.count = tokens.features = 12;
    must(yoke_model_create(&built, "layer", kind >= EMBEDDING ? ids : image));
    yoke_value value = yoke_model_input(built);
    if (kind == CONV) value = yoke_conv2d(built, value, given);
    if (kind == LINEAR) value = yoke_linear(built, value, given);
    if (kind == BATCH_NORM) value = yoke_batch_norm(built, value, given);
    if (kind == LAYER_NORM) value = yoke_layer_norm(built, value, given);
    if (kind == POOL) value = yoke_max_pool(built, value, given);
    if (kind == CTC) value = yoke_ctc_loss(built, value, value, given);
    if (kind == GROUP_NORM) value = yoke_group_norm(built, value, given);
    if (kind == PARAMETER) value = yoke_parameter_value(built, given);
    if (kind == LSTM) value = yoke_lstm(built, yoke_sequence(built, value), given);
    if (kind == CONV1D) value = yoke_conv1d(built, yoke_sequence(built, value), given);
    if (kind == CONV_TRANSPOSE) value = yoke_conv_transpose2d(built, value, given);
    if (kind == CONV3D) value = yoke_conv3d(built, value, given);
    if (kind == POOL3D) value = yoke_max_pool3d(built, value, given);
    if (kind == OPERATION) value = yoke_model_add_operation(built, given);
    if (kind == EMBEDDING) value = yoke_embedding(built, value, given);
    if (kind == ATTENTION)
        value = yoke_attention(built, yoke_embedding(built, value, &tokens), given);
    yoke_status status = yoke_model_finish(built, value, NULL);
    yoke_model_destroy(built);
    return status;
}

static void refuse_layers(void) {
    yoke_model *preset = NULL;
    REFUSED(yoke_conv2d_options, build(CONV, &given));
    REFUSED(yoke_conv1d_options, build(CONV1D, &given));
    REFUSED(yoke_conv_transpose2d_options, build(CONV_TRANSPOSE, &given));
    REFUSED(yoke_conv3d_options, build(CONV3D, &given));
    REFUSED(yoke_pool3d_options, build(POOL3D, &given));
    REFUSED(yoke_linear_options, build(LINEAR, &given));
    REFUSED(yoke_batch_norm_options, build(BATCH_NORM, &given));
    REFUSED(yoke_layer_norm_options, build(LAYER_NORM, &given));
    REFUSED(yoke_pool_options, build(POOL, &given));
    REFUSED(yoke_group_norm_options, build(GROUP_NORM, &given));
    REFUSED(yoke_ctc_options, build(CTC, &given));
    REFUSED(yoke_parameter_options, build(PARAMETER, &given));
    REFUSED(yoke_recurrent_options, build(LSTM, &given));
    REFUSED(yoke_operation_options, build(OPERATION, &given));
    REFUSED(yoke_gradient_check_options, yoke_model_check_gradients(model, &given, NULL));
    REFUSED(yoke_embedding_options, build(EMBEDDING, &given));
    REFUSED(yoke_attention_options, build(ATTENTION, &given));
    REFUSED(yoke_onnx_options, yoke_model_load_onnx(&preset, "net.onnx", &given));
    REFUSED(yoke_loss_options, yoke_model_preset(&preset, "mlp", image, 3, &given));
}

static yoke_status meet(const yoke_rank_info *rank) {
    yoke_process_group_options options = YOKE_PROCESS_GROUP_OPTIONS_INIT;
    yoke_process_group *group = NULL;
    options.rank = rank;
    return yoke_process_group_create(&group, &options);
}

static void refuse_rows(void) {
    yoke_process_group *group = NULL;
    yoke_devices *opened = NULL;
    yoke_dataset *dataset = NULL;
    yoke_loader *loader = NULL;
    int64_t order[1];
    float inputs[1];
    REFUSED(yoke_allocator, yoke_set_allocator(&given));
    REFUSED(yoke_devices_options, yoke_devices_open(&opened, &given));
    REFUSED(yoke_process_group_options, yoke_process_group_create(&group, &given));
    REFUSED(yoke_rank_info, meet(&given));
    REFUSED(yoke_arrays, yoke_dataset_from_arrays(&dataset, &given));
    REFUSED(yoke_row_input, rows_of(&given));
    REFUSED(yoke_row_source, yoke_dataset_from_callback(&dataset, &given));
    REFUSED(yoke_row_stream, yoke_dataset_from_stream(&dataset, &given));
    REFUSED(yoke_sampler, yoke_sampler_indices(&given, order));
    REFUSED(yoke_image_options, yoke_image_read("picture", &given, inputs));
    must(yoke_dataset_open(&dataset, "synthetic:1x8x8,classes=3,rows=8", YOKE_SPLIT_TRAIN));
    REFUSED(yoke_loader_options, yoke_loader_create(&loader, dataset, &given));
    yoke_dataset_close(dataset);
}

static yoke_status create(const yoke_optimizer_options *optimizer,
                          const yoke_parameter_group *group) {
    yoke_data_parallel_options options = YOKE_DATA_PARALLEL_OPTIONS_INIT;
    yoke_data_parallel *engine = NULL;
    options.batch = 4;
    options.groups = group;
    options.group_count = group != NULL;
    return yoke_data_parallel_create(&engine, model, devices, optimizer, &options);
}

static yoke_status exchange_by(const yoke_custom_exchange *exchange) {
    yoke_data_parallel_options options = YOKE_DATA_PARALLEL_OPTIONS_INIT;
    yoke_data_parallel *engine = NULL;
    options.batch = 4;
    options.custom_exchange = exchange;
    return yoke_data_parallel_create(&engine, model, devices, NULL, &options);
}

static void refuse_engines(void) {
    yoke_data_parallel_options options = YOKE_DATA_PARALLEL_OPTIONS_INIT;
    yoke_data_parallel *engine = NULL, *none = NULL;
    yoke_reference *reference = NULL;
    yoke_tensor_file *file = NULL;
    options.batch = 4;
    options.algorithm = YOKE_ALGORITHM_DIRECT;
    must(yoke_data_parallel_create(&engine, model, devices, NULL, &options));
    must(yoke_tensor_file_create(&file));
    REFUSED(yoke_data_parallel_options,
            yoke_data_parallel_create(&none, model, devices, NULL, &given));
    REFUSED(yoke_optimizer_options, create(&given, NULL));
    REFUSED(yoke_parameter_group, create(NULL, &given));
    REFUSED(yoke_custom_exchange, exchange_by(&given));
    REFUSED(yoke_batch, yoke_data_parallel_evaluate(engine, &given, NULL));
    REFUSED(yoke_weights_load_options, yoke_weights_load_partial(engine, model, "none", &given));
    REFUSED(yoke_sink, yoke_state_write(engine, &given));
    REFUSED(yoke_weights_info, yoke_weights_save_described(engine, model, &given, "none"));
    REFUSED(yoke_reference_options, yoke_reference_create(&reference, model, NULL, &given));
    REFUSED(yoke_tensor_file_entry, yoke_tensor_file_add(file, &given, ""));
    yoke_tensor_file_close(file);
    yoke_data_parallel_destroy(engine);
}

static void refuse_generators(void) {
    const float outputs[] = {0, 1};
    yoke_generator *none = NULL;
    int token = 0;
    REFUSED(yoke_generator_options, yoke_generator_create(&none, model, devices, &given));
    REFUSED(yoke_token_sampling, yoke_sample_token(outputs, 2, &given, 0, 0, &token));
}

static yoke_status train(const yoke_custom_loss *loss, const yoke_metric *metric) {
    yoke_trainer_options options = YOKE_TRAINER_OPTIONS_INIT;
    yoke_trainer *trainer = NULL;
    options.dataset = "synthetic:1x8x8,classes=3,rows=64";
    options.devices = "cpu";
    options.custom_model = model;
    options.custom_loss = loss;
    options.custom_metrics = metric;
    options.metric_count = metric != NULL;
    yoke_status status = yoke_trainer_create(&trainer, &options);
    yoke_trainer_destroy(trainer);
    return status;
}

static yoke_status find_lr(const yoke_lr_find_options *given) {
    yoke_data_parallel_options direct = YOKE_DATA_PARALLEL_OPTIONS_INIT;
    yoke_trainer_options options = YOKE_TRAINER_OPTIONS_INIT;
    yoke_lr_find_result result = {.struct_size = sizeof result};
    yoke_trainer *trainer = NULL;
    options.dataset = "synthetic:1x8x8,classes=3,rows=64";
    options.devices = "cpu";
    options.custom_model = model;
    direct.algorithm = YOKE_ALGORITHM_DIRECT;
    options.engine = &direct;
    must(yoke_trainer_create(&trainer, &options));
    yoke_status status = yoke_trainer_find_lr(trainer, given, &result);
    yoke_trainer_destroy(trainer);
    return status;
}

static yoke_status train_apart(const yoke_async_options *async, const yoke_local_options *local) {
    yoke_trainer_options options = YOKE_TRAINER_OPTIONS_INIT;
    yoke_trainer *trainer = NULL;
    options.dataset = "synthetic:1x8x8,classes=3,rows=64";
    options.devices = "cpu";
    options.custom_model = model;
    options.asynchronous = async;
    options.local = local;
    yoke_status status = yoke_trainer_create(&trainer, &options);
    yoke_trainer_destroy(trainer);
    return status;
}

/* These return the rate, which is NaN. */
static yoke_status rate_status(double rate) {
    return rate != rate ? YOKE_ERROR_ARGUMENT : YOKE_OK;
}

static yoke_status fit(const yoke_fit_options *options) {
    static float pixels[64];
    static const int labels[1];
    yoke_net_options one = {.struct_size = sizeof one, .devices = "cpu", .threads = 1, .batch = 1};
    yoke_array inputs = yoke_array_of_rows(pixels, YOKE_ELEMENT_FLOAT32, 1, image);
    yoke_array targets = yoke_array_of_numbers(labels, YOKE_ELEMENT_INT32, 1);
    yoke_net *net = NULL;
    must(yoke_net_open(&net, model, &one));
    yoke_status status = yoke_net_fit(net, &inputs, &targets, options, NULL);
    yoke_net_close(net);
    return status;
}

static void refuse_nets(void) {
    yoke_net *net = NULL;
    REFUSED(yoke_net_options, yoke_net_open(&net, model, &given));
    REFUSED(yoke_fit_options, fit(&given));
}

static void refuse_trainers(void) {
    yoke_trainer *trainer = NULL;
    REFUSED(yoke_trainer_options, yoke_trainer_create(&trainer, &given));
    REFUSED(yoke_custom_loss, train(&given, NULL));
    REFUSED(yoke_metric, train(NULL, &given));
    REFUSED(yoke_async_options, train_apart(&given, NULL));
    REFUSED(yoke_local_options, train_apart(NULL, &given));
    REFUSED(yoke_lr_find_options, find_lr(&given));
    REFUSED(yoke_lr_schedule, rate_status(yoke_lr_schedule_rate(&given, 0)));
    REFUSED(yoke_lr_plateau, rate_status(yoke_lr_plateau_update(&given, 1)));
}

int main(void) {
    yoke_devices_options list = {.struct_size = sizeof list, .list = "cpu", .threads = 1};
    must(yoke_devices_open(&devices, &list));
    must(yoke_model_preset(&model, "mlp", image, 3, NULL));
    refuse_layers();
    refuse_rows();
    refuse_engines();
    refuse_generators();
    refuse_nets();
    refuse_trainers();
    yoke_model_destroy(model);
    yoke_devices_close(devices);
    return 0;
}
