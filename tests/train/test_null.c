/* SPDX-License-Identifier: Apache-2.0 */
/* NULL in place of each pointer of the public API, one at a time: a call with a status answers
 * ARGUMENT, a call that returns a value 0, -1, NULL, "" or false, and none crashes. The calls are
 * made from the headers, which also say where NULL is allowed. */
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "support/engine_check.h"

enum { SIDE = 8, INPUTS = SIDE * SIDE, CLASSES = 10, VALUES = INPUTS * CLASSES, ROWS = 4 };

typedef struct file_bytes {
    unsigned char *data;
    size_t bytes;
} file_bytes;

typedef struct kit {
    /* What calls read. */
    yoke_model *model, *draft, *text_model;
    yoke_devices *devices;
    yoke_data_parallel *parallel, *other;
    yoke_dataset *dataset, *loose, *table; /* the first has a loader */
    yoke_loader *loader;
    yoke_trainer *trainer;
    yoke_process_group *group;
    yoke_reference *reference;
    yoke_checkpoint *checkpoint;
    yoke_evaluation *evaluation;
    yoke_tensor_file *tensor_file, *read_file;
    yoke_weights_description *description;
    yoke_generator *generator;
    yoke_tokenizer *tokenizer;
    yoke_net *net;
    yoke_array net_inputs, net_targets, net_outputs;
    yoke_trace *trace;
    yoke_replica_job job;
    yoke_lookup lookup;
    void (*on_bad)(const yoke_bad_row *bad, void *payload);
    yoke_batch batch;
    yoke_shape shape;
    yoke_value operands[YOKE_FUNCTION_ARGUMENTS];
    char folder[32], path[64], state_path[64], scratch_path[64], tensors_path[64], onnx_path[64];
    const char *image_path, *nothing;
    file_bytes weights, state, onnx; /* onnx: no more than a byte without ONNX */
    /* What calls write, or create. */
    struct {
        yoke_data_parallel *parallel;
        yoke_model *model;
        yoke_devices *devices;
        yoke_dataset *dataset;
        yoke_loader *loader;
        yoke_checkpoint *checkpoint;
        yoke_evaluation *evaluation;
        yoke_process_group *group;
        yoke_trainer *trainer;
        yoke_reference *reference;
        yoke_tensor_file *tensor_file;
        yoke_weights_description *description;
        yoke_generator *generator;
        yoke_tokenizer *tokenizer;
        yoke_net *net;
    } made;
    yoke_batch lent;
    float values[VALUES], ones[VALUES], *shared, *value_arrays[YOKE_OUTPUTS_LIMIT];
    const float *const_arrays[YOKE_OUTPUTS_LIMIT];
    double doubles[VALUES];
    int64_t order[VALUES];
    size_t sizes[8];
    uint64_t number;
    int count;
    int32_t labels[ROWS];
    char bytes[8 * VALUES], text[256];
    const char *word;
    void *memory;
    yoke_status status;
    bool neutral;
    /* Structs of the caller, each named by its type. */
    yoke_allocator allocator;
    yoke_arrays arrays;
    yoke_cancellation cancellation;
    yoke_net_options net_options;
    yoke_net_info net_info;
    yoke_fit_options fit_options;
    yoke_fit_result fit_result;
    yoke_sink sink;
    yoke_attention_options attention_options;
    yoke_backend_info backend_info;
    yoke_batch_norm_options batch_norm_options;
    yoke_checkpoint_tensor_info checkpoint_tensor_info;
    yoke_conv2d_options conv2d_options;
    yoke_onnx_options onnx_options;
    yoke_conv1d_options conv1d_options;
    yoke_conv_transpose2d_options conv_transpose2d_options;
    yoke_conv3d_options conv3d_options;
    yoke_pool3d_options pool3d_options;
    yoke_data_parallel_options data_parallel_options;
    yoke_dataset_info dataset_info;
    yoke_device_info device_info;
    yoke_devices_options devices_options;
    yoke_token_sampling token_sampling;
    yoke_embedding_options embedding_options;
    yoke_evaluation_info evaluation_info;
    yoke_generator_info generator_info;
    yoke_generator_options generator_options;
    yoke_gradient_check gradient_check;
    yoke_gradient_check_options gradient_check_options;
    yoke_ctc_options ctc_options;
    yoke_group_norm_options group_norm_options;
    yoke_group_report group_report;
    yoke_image_options image_options;
    yoke_layer_info layer_info;
    yoke_layer_norm_options layer_norm_options;
    yoke_linear_options linear_options;
    yoke_loader_options loader_options;
    yoke_loss_options loss_options;
    yoke_loss_scale_report loss_scale_report;
    yoke_lr_find_options lr_find_options;
    yoke_lr_find_result lr_find_result;
    yoke_lr_plateau lr_plateau;
    yoke_lr_schedule lr_schedule;
    yoke_memory_report memory_report;
    yoke_misclassified misclassified;
    yoke_model_segment model_segment;
    yoke_parameter_options parameter_options;
    yoke_recurrent_options recurrent_options;
    yoke_operation_options operation_options;
    yoke_optimizer_options optimizer_options;
    yoke_peer_info peer_info;
    yoke_pool_options pool_options;
    yoke_predictions predictions;
    yoke_preset_info preset_info;
    yoke_process_group_options process_group_options;
    yoke_rank_info rank_info;
    yoke_reference_options reference_options;
    yoke_row_source row_source;
    yoke_row_stream row_stream;
    yoke_sampler sampler;
    yoke_span_info span_info;
    yoke_stage_summary stage_summary;
    yoke_step_result step_result;
    yoke_tensor_file_entry tensor_file_entry;
    yoke_tensor_info tensor_info;
    yoke_trainer_options trainer_options;
    yoke_trainer_summary trainer_summary;
    yoke_progress progress;
    yoke_value_info value_info;
    yoke_weights_info weights_info;
    yoke_weights_load_options weights_load_options;
} kit;

typedef enum answer {
    STATUS,  /* ARGUMENT */
    VALUE,   /* a neutral one */
    NOTHING, /* there is none */
    ALLOWED  /* the header says that NULL has a meaning */
} answer;

typedef struct null_call {
    const char *function, *parameter;
    answer answer;
    void (*call)(kit *k);
} null_call;

static bool no_number(double value) {
    return value == 0 || value == -1;
}

static bool no_count(size_t value) {
    return value == 0;
}

static bool no_text(const char *text) {
    return text == NULL || text[0] == '\0';
}

static bool no_object(const void *object) {
    return object == NULL;
}

static bool no_value(yoke_value value) {
    return value.index == -1;
}

static bool no_shape(yoke_shape shape) {
    return shape.channels == 0 && shape.height == 0 && shape.width == 0;
}

#define IS_NEUTRAL(value)                                                                          \
    _Generic((value), bool                                                                         \
             : no_number, int                                                                      \
             : no_number, size_t                                                                   \
             : no_count, double                                                                    \
             : no_number, const char *                                                             \
             : no_text, yoke_value                                                                 \
             : no_value, yoke_shape                                                                \
             : no_shape, default                                                                   \
             : no_object)(value)

static yoke_status zero_weights(void *payload, int index, float *values, size_t count) {
    (void)payload, (void)index;
    memset(values, 0, count * sizeof *values);
    return YOKE_OK;
}

#include "null_calls.h"

static yoke_status job(int replica, void *context) {
    (void)replica, (void)context;
    return YOKE_OK;
}

static yoke_status take_bytes(void *payload, const void *bytes, size_t count) {
    (void)payload, (void)bytes, (void)count;
    return YOKE_OK;
}

static const char *lookup(const char *name, void *payload) {
    (void)name, (void)payload;
    return NULL;
}

static void on_bad(const yoke_bad_row *bad, void *payload) {
    (void)bad, (void)payload;
}

static yoke_status read_row(void *payload, size_t row, float *input, int32_t *label,
                            float *targets) {
    (void)payload, (void)row, (void)targets;
    memset(input, 0, INPUTS * sizeof *input);
    *label = 0;
    return YOKE_OK;
}

static yoke_status next_rows(void *payload, int room, float *inputs, int32_t *labels,
                             float *targets, int *count) {
    (void)payload, (void)room, (void)inputs, (void)labels, (void)targets;
    *count = 0;
    return YOKE_OK;
}

static yoke_model *make_draft(const kit *k) {
    yoke_model *model = NULL;
    EXPECT_OK(yoke_model_create(&model, "small", k->shape));
    return model;
}

static yoke_model *make_model(const kit *k) {
    yoke_model *model = make_draft(k);
    yoke_linear_options fc = YOKE_LINEAR_OPTIONS_INIT;
    fc.name = "fc", fc.out_features = CLASSES;
    yoke_value rows = yoke_flatten(model, yoke_model_input(model));
    EXPECT_OK(yoke_model_finish(model, yoke_linear(model, rows, &fc), NULL));
    return model;
}

static yoke_status call_host(void *payload, const yoke_host_call *call) {
    (void)payload, (void)call;
    return YOKE_OK;
}

/* Options that a call with all its pointers accepts. */
static void fill_options(kit *k) {
    k->arrays = (yoke_arrays){sizeof k->arrays, 1, k->shape, NULL, k->values, CLASSES, k->labels};
    k->allocator.struct_size = sizeof k->allocator;
    k->sink = (yoke_sink){.struct_size = sizeof k->sink, .write = take_bytes};
    k->net_options = (yoke_net_options){
        .struct_size = sizeof k->net_options, .devices = "cpu", .threads = 1, .batch = ROWS};
    k->fit_options = (yoke_fit_options)YOKE_FIT_OPTIONS_INIT;
    k->attention_options = (yoke_attention_options){sizeof k->attention_options, 1, false};
    k->batch_norm_options = (yoke_batch_norm_options)YOKE_BATCH_NORM_OPTIONS_INIT;
    k->batch_norm_options.name = "bn";
    k->onnx_options = (yoke_onnx_options)YOKE_ONNX_OPTIONS_INIT;
    k->conv2d_options = (yoke_conv2d_options)YOKE_CONV2D_OPTIONS_INIT;
    k->conv2d_options.name = "conv", k->conv2d_options.out_channels = 1;
    k->conv2d_options.kernel = 1;
    k->conv1d_options = (yoke_conv1d_options)YOKE_CONV1D_OPTIONS_INIT;
    k->conv1d_options.name = "line", k->conv1d_options.out_channels = 1;
    k->conv1d_options.kernel = 1;
    k->conv3d_options = (yoke_conv3d_options)YOKE_CONV3D_OPTIONS_INIT;
    k->conv3d_options.name = "volume", k->conv3d_options.out_channels = 1;
    k->pool3d_options = (yoke_pool3d_options)YOKE_POOL3D_OPTIONS_INIT;
    k->conv3d_options.depth = k->pool3d_options.depth = 1;
    for (int axis = 0; axis < 3; axis++)
        k->conv3d_options.kernel[axis] = k->pool3d_options.kernel[axis] = 1;
    k->conv_transpose2d_options = (yoke_conv_transpose2d_options)YOKE_CONV_TRANSPOSE2D_OPTIONS_INIT;
    k->conv_transpose2d_options.name = "up", k->conv_transpose2d_options.out_channels = 1;
    k->conv_transpose2d_options.kernel = 1;
    k->data_parallel_options = (yoke_data_parallel_options)YOKE_DATA_PARALLEL_OPTIONS_INIT;
    k->data_parallel_options.batch = ROWS;
    k->data_parallel_options.algorithm = YOKE_ALGORITHM_DIRECT;
    k->data_parallel_options.input_gradients = true;
    k->data_parallel_options.ema_decay = 0.5;
    k->devices_options = (yoke_devices_options)YOKE_DEVICES_OPTIONS_INIT;
    k->devices_options.list = "2xcpu", k->devices_options.threads = 1;
    k->devices_options.unbound = true;
    k->embedding_options = (yoke_embedding_options){sizeof k->embedding_options, "e", 1, 1, 1};
    k->image_options = (yoke_image_options){
        .struct_size = sizeof k->image_options, .shape = {3, SIDE, SIDE}, .std = {1, 1, 1, 1}};
    k->token_sampling = (yoke_token_sampling)YOKE_TOKEN_SAMPLING_INIT;
    k->generator_options = (yoke_generator_options)YOKE_GENERATOR_OPTIONS_INIT;
    k->generator_options.algorithm = YOKE_ALGORITHM_DIRECT;
    k->layer_norm_options = (yoke_layer_norm_options)YOKE_LAYER_NORM_OPTIONS_INIT;
    k->layer_norm_options.name = "ln";
    k->recurrent_options = (yoke_recurrent_options)YOKE_RECURRENT_OPTIONS_INIT;
    k->recurrent_options.name = "rnn", k->recurrent_options.hidden = 1;
    k->ctc_options = (yoke_ctc_options)YOKE_CTC_OPTIONS_INIT;
    k->group_norm_options = (yoke_group_norm_options)YOKE_GROUP_NORM_OPTIONS_INIT;
    k->group_norm_options.name = "gn", k->group_norm_options.groups = 1;
    k->parameter_options = (yoke_parameter_options)YOKE_PARAMETER_OPTIONS_INIT;
    k->parameter_options.name = "p", k->parameter_options.shape = k->shape;
    k->operation_options = (yoke_operation_options){.struct_size = sizeof k->operation_options,
                                                    .name = "o",
                                                    .shape = k->shape,
                                                    .inputs = k->operands,
                                                    .input_count = 1,
                                                    .forward = call_host,
                                                    .backward = call_host};
    k->gradient_check_options = (yoke_gradient_check_options)YOKE_GRADIENT_CHECK_OPTIONS_INIT;
    k->linear_options = (yoke_linear_options)YOKE_LINEAR_OPTIONS_INIT;
    k->linear_options.name = "linear", k->linear_options.out_features = 1;
    k->loader_options = (yoke_loader_options)YOKE_LOADER_OPTIONS_INIT;
    k->loader_options.batch = ROWS;
    k->loss_options = (yoke_loss_options)YOKE_LOSS_OPTIONS_INIT;
    k->lr_find_options = (yoke_lr_find_options)YOKE_LR_FIND_OPTIONS_INIT;
    k->optimizer_options = (yoke_optimizer_options)YOKE_SGD_OPTIONS_INIT;
    k->pool_options = (yoke_pool_options){sizeof k->pool_options, 1, 1, 0};
    k->process_group_options.struct_size = sizeof k->process_group_options;
    k->reference_options = (yoke_reference_options){sizeof k->reference_options, ROWS, 1, 0};
    k->row_source =
        (yoke_row_source){.struct_size = sizeof k->row_source, 1, k->shape, CLASSES, 0, read_row};
    k->row_stream = (yoke_row_stream){
        .struct_size = sizeof k->row_stream, k->shape, CLASSES, .next = next_rows};
    k->sampler = (yoke_sampler){.struct_size = sizeof k->sampler, .rows = 1, .world = 1};
    k->tensor_file_entry = (yoke_tensor_file_entry){
        .struct_size = sizeof k->tensor_file_entry, "fc.weight", YOKE_TENSOR_FLOAT64, 1, {VALUES}};
    k->trainer_options = (yoke_trainer_options)YOKE_TRAINER_OPTIONS_INIT;
    k->trainer_options.model = "mlp:width=4";
    k->trainer_options.dataset = "synthetic:1x8x8,rows=8";
    k->trainer_options.devices = "cpu", k->trainer_options.threads = 1;
    k->trainer_options.batch = ROWS, k->trainer_options.misclassified = 1;
    k->trainer_options.steps = 1;
    k->weights_info = (yoke_weights_info){
        .struct_size = sizeof k->weights_info, .model = "mlp", .input = k->shape};
    k->weights_info.classes = CLASSES;
    k->weights_load_options = (yoke_weights_load_options)YOKE_WEIGHTS_LOAD_OPTIONS_INIT;
}

#define SIZE(field) k->field.struct_size = sizeof k->field

/* Structs that the library writes. */
static void fill_results(kit *k) {
    SIZE(backend_info), SIZE(checkpoint_tensor_info), SIZE(dataset_info), SIZE(device_info);
    SIZE(evaluation_info), SIZE(generator_info), SIZE(gradient_check), SIZE(group_report),
        SIZE(layer_info), SIZE(lr_find_result);
    SIZE(lr_plateau), SIZE(lr_schedule), SIZE(memory_report), SIZE(misclassified), SIZE(peer_info),
        SIZE(loss_scale_report);
    SIZE(predictions), SIZE(preset_info), SIZE(progress), SIZE(rank_info), SIZE(span_info),
        SIZE(stage_summary);
    SIZE(step_result), SIZE(tensor_info), SIZE(trainer_summary), SIZE(value_info), SIZE(lent),
        SIZE(net_info), SIZE(fit_result);
}

/* A build may have no ONNX: then its calls answer so. */
static bool is_without_onnx(yoke_status status) {
    return status == YOKE_ERROR_DEVICE && strstr(yoke_last_error(), "has no ONNX") != NULL;
}

static void make_files(kit *k) {
    snprintf(k->folder, sizeof k->folder, "/tmp/yoke-null-XXXXXX");
    assert_non_null(mkdtemp(k->folder));
    snprintf(k->path, sizeof k->path, "%s/weights", k->folder);
    snprintf(k->state_path, sizeof k->state_path, "%s/state", k->folder);
    snprintf(k->scratch_path, sizeof k->scratch_path, "%s/scratch", k->folder);
    snprintf(k->tensors_path, sizeof k->tensors_path, "%s/tensors", k->folder);
    snprintf(k->onnx_path, sizeof k->onnx_path, "%s/net.onnx", k->folder);
    yoke_status written = yoke_weights_save_onnx(k->parallel, k->model, k->onnx_path);
    assert_true(written == YOKE_OK || is_without_onnx(written));
    if (written != YOKE_OK) k->onnx = (file_bytes){calloc(1, 1), 1};
    if (written == YOKE_OK)
        EXPECT_OK(yoke_file_read(k->onnx_path, SIZE_MAX, &k->onnx.data, &k->onnx.bytes));
    FILE *table = fopen(k->scratch_path, "w");
    assert_non_null(table);
    fputs("x,y\n1,a\n2,b\n1,a\n2,b\n", table);
    fclose(table);
    char spec[96];
    snprintf(spec, sizeof spec, "csv:%s,label=y", k->scratch_path);
    EXPECT_OK(yoke_dataset_open(&k->table, spec, YOKE_SPLIT_TRAIN));
    k->image_path = YOKE_SOURCE_DIR "/tests/fixtures/images/color.png";
    EXPECT_OK(yoke_weights_save_described(k->parallel, k->model, &k->weights_info, k->path));
    EXPECT_OK(yoke_state_save(k->parallel, k->state_path));
    EXPECT_OK(yoke_file_read(k->path, SIZE_MAX, &k->weights.data, &k->weights.bytes));
    EXPECT_OK(yoke_file_read(k->state_path, SIZE_MAX, &k->state.data, &k->state.bytes));
    EXPECT_OK(yoke_tensor_file_create(&k->tensor_file));
    EXPECT_OK(yoke_tensor_file_add(k->tensor_file, &k->tensor_file_entry, k->bytes));
    EXPECT_OK(yoke_tensor_file_save(k->tensor_file, k->tensors_path));
    yoke_tensor_file_close(k->tensor_file);
    k->tensor_file = NULL;
    EXPECT_OK(yoke_tensor_file_create(&k->tensor_file));
    EXPECT_OK(yoke_tensor_file_open(&k->read_file, k->tensors_path));
    EXPECT_OK(yoke_checkpoint_open(&k->checkpoint, k->state_path));
    EXPECT_OK(yoke_weights_description_open(&k->description, k->path));
}

static void make_batch(kit *k) {
    k->batch = (yoke_batch){
        .struct_size = sizeof k->batch, .rows = ROWS, .inputs = k->values, .labels = k->labels};
    for (int i = 0; i < VALUES; i++)
        k->ones[i] = 1;
    for (int i = 0; i < YOKE_OUTPUTS_LIMIT; i++) {
        k->value_arrays[i] = k->values;
        k->const_arrays[i] = k->values;
    }
}

static int make_kit(void **state) {
    kit *k = calloc(1, sizeof *k);
    assert_non_null(k);
    *state = k;
    k->shape = (yoke_shape){1, SIDE, SIDE};
    k->job = job, k->lookup = lookup, k->on_bad = on_bad;
    fill_options(k);
    fill_results(k);
    make_batch(k);
    k->model = make_model(k);
    k->net_inputs = yoke_array_of_rows(k->values, YOKE_ELEMENT_FLOAT32, 1, k->shape);
    k->net_targets = yoke_array_of_numbers(k->labels, YOKE_ELEMENT_INT32, 1);
    k->net_outputs =
        yoke_array_of_rows(k->values, YOKE_ELEMENT_FLOAT32, 1, yoke_shape_vector(CLASSES));
    EXPECT_OK(yoke_net_open(&k->net, k->model, &k->net_options));
    EXPECT_OK(yoke_devices_open(&k->devices, &k->devices_options));
    EXPECT_OK(yoke_data_parallel_create(&k->parallel, k->model, k->devices, NULL,
                                        &k->data_parallel_options));
    EXPECT_OK(yoke_data_parallel_create(&k->other, k->model, k->devices, NULL,
                                        &k->data_parallel_options));
    EXPECT_OK(yoke_dataset_open(&k->dataset, "synthetic:1x8x8,rows=8", YOKE_SPLIT_TRAIN));
    EXPECT_OK(yoke_dataset_open(&k->loose, "synthetic:1x8x8,rows=8", YOKE_SPLIT_TRAIN));
    EXPECT_OK(yoke_loader_create(&k->loader, k->dataset, &k->loader_options));
    EXPECT_OK(yoke_trainer_create(&k->trainer, &k->trainer_options));
    EXPECT_OK(yoke_trainer_run(k->trainer));
    EXPECT_OK(yoke_process_group_create(&k->group, NULL));
    void *shared = NULL;
    EXPECT_OK(yoke_process_group_allocate(k->group, sizeof k->values, &shared));
    k->shared = shared;
    EXPECT_OK(yoke_reference_create(&k->reference, k->model, NULL, &k->reference_options));
    EXPECT_OK(yoke_evaluation_run(&k->evaluation, k->parallel, k->loader));
    EXPECT_OK(yoke_model_preset(&k->text_model, "gpt2:layers=1,width=8,heads=1",
                                (yoke_shape){8, 1, 1, true, false}, CLASSES, NULL));
    EXPECT_OK(
        yoke_generator_create(&k->generator, k->text_model, k->devices, &k->generator_options));
    EXPECT_OK(yoke_tokenizer_open(&k->tokenizer, YOKE_SOURCE_DIR "/tests/fixtures/tokenizer"));
    make_files(k);
    k->trace = yoke_data_parallel_trace(k->parallel);
    return 0;
}

static void free_made(kit *k) {
    yoke_generator_destroy(k->made.generator);
    yoke_net_close(k->made.net);
    yoke_tokenizer_close(k->made.tokenizer);
    yoke_trainer_destroy(k->made.trainer);
    yoke_evaluation_destroy(k->made.evaluation);
    yoke_checkpoint_close(k->made.checkpoint);
    yoke_reference_destroy(k->made.reference);
    yoke_process_group_destroy(k->made.group);
    yoke_loader_destroy(k->made.loader);
    yoke_dataset_close(k->made.dataset);
    yoke_data_parallel_destroy(k->made.parallel);
    yoke_devices_close(k->made.devices);
    yoke_model_destroy(k->made.model);
    yoke_tensor_file_close(k->made.tensor_file);
    yoke_weights_description_close(k->made.description);
    memset(&k->made, 0, sizeof k->made);
}

static int free_kit(void **state) {
    kit *k = *state;
    yoke_generator_destroy(k->generator);
    yoke_model_destroy(k->text_model);
    yoke_net_close(k->net);
    yoke_tokenizer_close(k->tokenizer);
    yoke_evaluation_destroy(k->evaluation);
    yoke_trainer_destroy(k->trainer);
    yoke_reference_destroy(k->reference);
    yoke_loader_destroy(k->loader);
    yoke_dataset_close(k->dataset);
    yoke_dataset_close(k->loose);
    yoke_dataset_close(k->table);
    yoke_data_parallel_destroy(k->parallel);
    yoke_data_parallel_destroy(k->other);
    yoke_devices_close(k->devices);
    yoke_model_destroy(k->model);
    yoke_process_group_destroy(k->group);
    yoke_checkpoint_close(k->checkpoint);
    yoke_weights_description_close(k->description);
    yoke_tensor_file_close(k->tensor_file);
    yoke_tensor_file_close(k->read_file);
    free(k->weights.data);
    free(k->state.data);
    free(k->onnx.data);
    unlink(k->onnx_path);
    for (int i = 0; i < 4; i++)
        unlink((const char *[]){k->path, k->state_path, k->scratch_path, k->tensors_path}[i]);
    int left = rmdir(k->folder);
    free(k);
    return left;
}

/* Each call gets a model to add layers to: one that failed keeps its error. */
static void make_call(kit *k, const null_call *call) {
    k->status = YOKE_ERROR_ARGUMENT;
    k->neutral = true;
    k->draft = make_draft(k);
    fill_options(k);
    fill_results(k);
    call->call(k);
    free_made(k);
    yoke_model_destroy(k->draft);
    k->draft = NULL;
}

static void null_is_refused_in_place_of_every_pointer(void **state) {
    kit *k = *state;
    int wrong = 0, count = (int)(sizeof null_calls / sizeof null_calls[0]);
    for (int i = 0; i < count; i++) {
        const null_call *call = &null_calls[i];
        make_call(k, call);
        bool well = call->answer == ALLOWED || (k->status == YOKE_ERROR_ARGUMENT && k->neutral);
        if (well) continue;
        wrong++;
        print_error("%s with %s NULL: %s\n", call->function, call->parameter,
                    call->answer == STATUS ? yoke_status_name(k->status) : "not neutral");
    }
    print_message("%d functions, %d pointer positions, 0 crashes\n", FUNCTION_COUNT, count);
    assert_int_equal(wrong, 0);
}

/* Otherwise ARGUMENT could come from something else than the NULL. */
static void the_same_calls_without_a_null_succeed(void **state) {
    kit *k = *state;
    int wrong = 0;
    for (size_t i = 0; i < sizeof whole_calls / sizeof whole_calls[0]; i++) {
        make_call(k, &whole_calls[i]);
        if (k->status == YOKE_OK || is_without_onnx(k->status)) continue;
        wrong++;
        print_error("%s: %s: %s\n", whole_calls[i].function, yoke_status_name(k->status),
                    yoke_last_error());
    }
    assert_int_equal(wrong, 0);
}

int main(void) {
    alarm(900); /* a deadlock ends the test */
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(null_is_refused_in_place_of_every_pointer),
        cmocka_unit_test(the_same_calls_without_a_null_succeed),
    };
    return cmocka_run_group_tests(tests, make_kit, free_kit);
}
