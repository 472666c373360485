/* SPDX-License-Identifier: Apache-2.0 */
/* Uses every sized struct of include/yoke and prints what the library answers. abi.py builds it
 * against today's headers, and against structs that have grown by a field or lack their last one.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <yoke/yoke.h>

enum { ROWS = 12, INPUTS = 64, CLASSES = 3, BATCH = 4 };
static const yoke_shape image = {.channels = 1, .height = 8, .width = 8};

static void must(yoke_status status) {
    if (status == YOKE_OK) return;
    printf("%s\n", yoke_last_error());
    exit(1);
}

/* Rubbish that a result must overwrite, to the end of what this program knows. */
#define RESULT(type, name)                                                                         \
    type name;                                                                                     \
    memset(&name, 0x5a, sizeof name);                                                              \
    name.struct_size = sizeof name
#ifdef GROWN
#define CHECK_TAIL(name)                                                                           \
    if (name.yoke_grown != 0 || name.struct_size != sizeof name)                                   \
    printf("line %d: the library leaves a field that it does not know as it was\n", __LINE__)
#else
#define CHECK_TAIL(name) (void)name
#endif
static const char *no_variable(const char *name, void *payload) {
    (void)name, (void)payload;
    return NULL;
}

#include "abi_exchange.h"
#include "abi_memory.h"

static void use_ranks(void) {
    RESULT(yoke_rank_info, rank);
    must(yoke_rank_detect(&rank, no_variable, NULL));
    CHECK_TAIL(rank);
    yoke_process_group_options meet = YOKE_PROCESS_GROUP_OPTIONS_INIT;
    yoke_process_group *group = NULL;
    meet.rank = &rank;
    meet.timeout_ms = 5000;
    must(yoke_process_group_create(&group, &meet));
    printf("rank %d of %d, %s\n", rank.rank, yoke_process_group_world(group), rank.source);
    yoke_process_group_destroy(group);
}

static yoke_devices *use_devices(void) {
    yoke_devices_options list = {.struct_size = sizeof list, .list = "2xcpu", .threads = 1};
    yoke_devices *devices = NULL;
    must(yoke_devices_open(&devices, &list));
    RESULT(yoke_device_info, info);
    must(yoke_devices_describe(devices, 1, &info));
    CHECK_TAIL(info);
    RESULT(yoke_peer_info, peer);
    must(yoke_devices_peer(devices, 0, 1, &peer));
    CHECK_TAIL(peer);
    RESULT(yoke_backend_info, backend);
    bool found = yoke_backend_describe(0, &backend);
    CHECK_TAIL(backend);
    printf("%s", yoke_devices_note(devices)[0] != '\0' ? "" : "no note, ");
    printf("%s, %d threads, path %d, backend %s %d\n", info.name, info.threads, (int)peer.path,
           backend.name, found);
    return devices;
}

static void fill(size_t row, float *input) {
    for (size_t i = 0; i < INPUTS; i++)
        input[i] = (float)((row * 31 + i * 7) % 17) / 8 - 1;
}

static yoke_status read_row(void *payload, size_t row, float *input, int32_t *label,
                            float *targets) {
    (void)payload;
    (void)targets;
    fill(row, input);
    *label = (int32_t)(row % CLASSES);
    return YOKE_OK;
}

static size_t streamed;

static yoke_status next_rows(void *payload, int room, float *inputs, int32_t *labels,
                             float *targets, int *count) {
    for (*count = 0; *count < room && streamed < ROWS; ++*count, ++streamed)
        read_row(payload, streamed, inputs + *count * INPUTS, labels + *count, targets);
    return YOKE_OK;
}

static yoke_status rewind_rows(void *payload, uint64_t epoch) {
    (void)payload;
    (void)epoch;
    streamed = 0;
    return YOKE_OK;
}

static void use_dataset(const char *name, const yoke_dataset *dataset, bool raw) {
    RESULT(yoke_dataset_info, info);
    must(yoke_dataset_describe(dataset, &info));
    CHECK_TAIL(info);
    yoke_loader_options options = YOKE_LOADER_OPTIONS_INIT;
    yoke_loader *loader = NULL;
    options.batch = BATCH;
    options.raw = raw;
    must(yoke_loader_create(&loader, dataset, &options));
    must(yoke_loader_begin(loader, 0));
    double sum = 0;
    for (;;) {
        RESULT(yoke_batch, batch);
        must(yoke_loader_next(loader, &batch, NULL));
        CHECK_TAIL(batch);
        if (batch.rows == 0) break;
        for (int i = 0; i < batch.rows * INPUTS; i++)
            sum += batch.inputs ? batch.inputs[i] * (i % 5) : batch.pixels[i];
        if (batch.decoding && batch.first_row == 0) sum += batch.decoding->std[0];
        sum += batch.labels[0];
    }
    printf("%s: %zu rows of %d, sum %.9g\n", name, info.rows, info.classes, sum);
    yoke_loader_destroy(loader);
}

static void use_datasets(void) {
    static float inputs[ROWS * INPUTS];
    static uint8_t pixels[ROWS * INPUTS];
    static int32_t labels[ROWS];
    for (size_t row = 0; row < ROWS; row++) {
        read_row(NULL, row, inputs + row * INPUTS, labels + row, NULL);
        pixels[row] = (uint8_t)(row * 9);
    }
    yoke_arrays arrays = {.struct_size = sizeof arrays, .rows = ROWS, .shape = image};
    yoke_row_source source = {.struct_size = sizeof source, .rows = ROWS, .shape = image};
    yoke_row_stream stream = {.struct_size = sizeof stream, .shape = image, .next = next_rows};
    yoke_dataset *datasets[4];
    arrays.inputs = inputs;
    arrays.labels = labels;
    arrays.classes = source.classes = stream.classes = CLASSES;
    source.read = read_row;
    stream.rewind = rewind_rows;
    must(yoke_dataset_from_arrays(&datasets[0], &arrays));
    must(yoke_dataset_from_callback(&datasets[1], &source));
    must(yoke_dataset_from_stream(&datasets[2], &stream));
    arrays.inputs = NULL;
    arrays.pixels = pixels;
    must(yoke_dataset_from_arrays(&datasets[3], &arrays));
    use_dataset("arrays", datasets[0], false);
    use_dataset("callback", datasets[1], false);
    use_dataset("stream", datasets[2], false);
    use_dataset("pixels", datasets[3], true);
    for (int i = 0; i < 4; i++)
        yoke_dataset_close(datasets[i]);
    yoke_sampler sampler = {.struct_size = sizeof sampler, .rows = 5, .world = 1, .shuffle = true};
    int64_t order[5];
    must(yoke_sampler_indices(&sampler, order));
    printf("sampler: %zu, %" PRId64 " %" PRId64 "\n", yoke_sampler_count(&sampler), order[0],
           order[1]);
}

static void skip_row(const yoke_bad_row *bad, void *payload) {
    (void)payload;
    printf("bad row %zu, size %s\n", bad->row, bad->struct_size >= sizeof(size_t) ? "set" : "0");
}

static void use_images(const char *folder, const char *picture) {
    yoke_image_options how = {.struct_size = sizeof how, .shape = image, .mean = {0.5f}};
    float inputs[INPUTS];
    how.std[0] = 1;
    yoke_status status = yoke_image_read(picture, &how, inputs);
    if (status == YOKE_OK) printf("picture: %.9g\n", inputs[9]);
    yoke_dataset *dataset = NULL;
    must(yoke_dataset_open(&dataset, folder, YOKE_SPLIT_TRAIN));
    must(yoke_dataset_skip_bad(dataset, 1, skip_row, NULL));
    yoke_dataset_close(dataset);
}

static yoke_status halve(void *payload, const yoke_host_call *call) {
    size_t count = (size_t)call->rows * call->output_elements;
    (void)payload;
    for (size_t i = 0; i < count; i++)
        call->output[i] = call->inputs[0].values[i] / 2;
    return YOKE_OK;
}

static yoke_status halve_back(void *payload, const yoke_host_call *call) {
    size_t count = (size_t)call->rows * call->output_elements;
    (void)payload;
    for (size_t i = 0; i < count; i++)
        call->inputs[0].gradient[i] = call->output_gradient[i] / 2;
    return YOKE_OK;
}

/* The check calls both. */
static void use_own_operation(void) {
    yoke_operation_options own = YOKE_OPERATION_OPTIONS_INIT;
    yoke_gradient_check_options how = YOKE_GRADIENT_CHECK_OPTIONS_INIT;
    yoke_linear_options fc = YOKE_LINEAR_OPTIONS_INIT;
    RESULT(yoke_gradient_check, found);
    yoke_model *model = NULL;
    must(yoke_model_create(&model, "own", yoke_shape_vector(4)));
    yoke_value input = yoke_model_input(model);
    own.name = "halve";
    own.shape = yoke_shape_vector(4);
    own.inputs = &input;
    own.input_count = 1;
    own.forward = halve;
    own.backward = halve_back;
    fc.name = "fc", fc.out_features = CLASSES;
    yoke_value value = yoke_linear(model, yoke_model_add_operation(model, &own), &fc);
    must(yoke_model_finish(model, value, NULL));
    must(yoke_model_check_gradients(model, &how, &found));
    printf("gradients: %s\n", found.tensor);
    yoke_model_destroy(model);
}

static yoke_value add_volume(yoke_model *model, yoke_value value) {
    yoke_conv3d_options volume = YOKE_CONV3D_OPTIONS_INIT;
    yoke_pool3d_options planes = YOKE_POOL3D_OPTIONS_INIT;
    volume.name = "volume";
    volume.out_channels = volume.depth = planes.depth = 1;
    for (int axis = 0; axis < 3; axis++)
        volume.kernel[axis] = planes.kernel[axis] = 1;
    return yoke_max_pool3d(model, yoke_conv3d(model, value, &volume), &planes);
}

static yoke_model *build_images(void) {
    yoke_conv2d_options conv = YOKE_CONV2D_OPTIONS_INIT;
    yoke_conv_transpose2d_options up = YOKE_CONV_TRANSPOSE2D_OPTIONS_INIT;
    yoke_conv1d_options line = YOKE_CONV1D_OPTIONS_INIT;
    yoke_batch_norm_options norm = YOKE_BATCH_NORM_OPTIONS_INIT;
    yoke_layer_norm_options layer = YOKE_LAYER_NORM_OPTIONS_INIT;
    yoke_group_norm_options groups = YOKE_GROUP_NORM_OPTIONS_INIT;
    yoke_recurrent_options recurrent = YOKE_RECURRENT_OPTIONS_INIT;
    yoke_parameter_options scale = YOKE_PARAMETER_OPTIONS_INIT;
    yoke_pool_options pool = YOKE_POOL_OPTIONS_INIT;
    yoke_linear_options fc = YOKE_LINEAR_OPTIONS_INIT;
    yoke_loss_options loss = YOKE_LOSS_OPTIONS_INIT;
    yoke_model *model = NULL;
    conv.name = "conv", up.name = "up", line.name = "line";
    conv.out_channels = conv.kernel = 3;
    conv.no_bias = true;
    up.out_channels = up.kernel = line.out_channels = line.kernel = 3;
    norm.name = "norm", layer.name = "layer", recurrent.name = "recurrent";
    recurrent.hidden = 2;
    groups.name = "groups", scale.name = "scale";
    groups.groups = 1;
    scale.shape = yoke_shape_vector(1);
    scale.value = 1;
    pool.kernel = 2;
    fc.name = "fc", fc.out_features = CLASSES;
    loss.label_smoothing = 0.1;
    must(yoke_model_create(&model, "images", image));
    yoke_value value = yoke_conv2d(model, yoke_model_input(model), &conv);
    value = yoke_relu(model, yoke_batch_norm(model, value, &norm));
    value = yoke_multiply(model, yoke_group_norm(model, value, &groups),
                          yoke_parameter_value(model, &scale));
    value = yoke_max_pool(model, yoke_conv_transpose2d(model, value, &up), &pool);
    value = add_volume(model, value);
    value = yoke_conv1d(model, yoke_sequence(model, value), &line);
    value = yoke_flatten(model, yoke_gru(model, value, &recurrent));
    value = yoke_layer_norm(model, value, &layer);
    must(yoke_model_finish(model, yoke_linear(model, value, &fc), &loss));
    return model;
}

static void use_tokens(void) {
    yoke_embedding_options tokens = YOKE_EMBEDDING_OPTIONS_INIT;
    yoke_attention_options heads = YOKE_ATTENTION_OPTIONS_INIT;
    yoke_linear_options fc = YOKE_LINEAR_OPTIONS_INIT;
    yoke_shape ids = {.channels = 6, .height = 1, .width = 1, .flat = true};
    yoke_model *model = NULL;
    tokens.name = "tokens";
    tokens.count = 5, tokens.features = 12;
    heads.heads = 2;
    fc.name = "fc", fc.out_features = CLASSES;
    must(yoke_model_create(&model, "tokens", ids));
    yoke_value value = yoke_embedding(model, yoke_model_input(model), &tokens);
    value = yoke_select(model, yoke_attention(model, value, &heads), 0);
    must(yoke_model_finish(model, yoke_linear(model, value, &fc), NULL));
    printf("tokens: %zu parameters\n", yoke_model_parameter_count(model));
    yoke_model_destroy(model);
}

/* A transcription, whose loss the model computes. */
static void use_ctc(void) {
    yoke_ctc_options ctc = YOKE_CTC_OPTIONS_INIT;
    yoke_linear_options fc = YOKE_LINEAR_OPTIONS_INIT;
    yoke_loss_options loss = YOKE_LOSS_OPTIONS_INIT;
    yoke_model *model = NULL;
    fc.name = "fc", fc.out_features = CLASSES;
    loss.kind = YOKE_LOSS_OUTPUT;
    must(yoke_model_create(&model, "ctc", yoke_shape_sequence(6, 4)));
    yoke_value value = yoke_linear(model, yoke_model_input(model), &fc);
    value = yoke_log_softmax_along(model, value, YOKE_AXIS_CHANNELS);
    yoke_value ids = yoke_model_add_input(model, "ids", yoke_shape_vector(2));
    must(yoke_model_finish(model, yoke_ctc_loss(model, value, ids, &ctc), &loss));
    printf("ctc: %d layers\n", yoke_model_layer_count(model));
    yoke_model_destroy(model);
}

static void use_model(const yoke_model *model) {
    RESULT(yoke_value_info, value);
    RESULT(yoke_layer_info, layer);
    RESULT(yoke_tensor_info, tensor);
    RESULT(yoke_preset_info, preset);
    must(yoke_model_describe_output(model, 0, &value));
    must(yoke_model_describe_layer(model, 1, &layer));
    must(yoke_model_tensor(model, 0, &tensor));
    must(yoke_model_preset_describe(0, &preset));
    CHECK_TAIL(value);
    CHECK_TAIL(layer);
    CHECK_TAIL(tensor);
    CHECK_TAIL(preset);
    printf("model: output %d, layer %s, tensor %s of %zu, preset %s\n", value.shape.channels,
           layer.name, tensor.name, tensor.count, preset.name);
}

static void use_engine(yoke_devices *devices, const yoke_model *model) {
    yoke_optimizer_options sgd = YOKE_SGD_OPTIONS_INIT;
    yoke_parameter_group groups[2] = {YOKE_PARAMETER_GROUP_INIT, YOKE_PARAMETER_GROUP_INIT};
    yoke_data_parallel_options options = YOKE_DATA_PARALLEL_OPTIONS_INIT;
    yoke_data_parallel *engine = NULL;
    static float inputs[BATCH * INPUTS];
    int32_t labels[BATCH] = {0, 1, 2, 1};
    for (size_t i = 0; i < BATCH; i++)
        fill(i, inputs + i * INPUTS);
    sgd.momentum = 0.9;
    groups[0].pattern = "conv.*";
    groups[0].learning_rate_scale = 0.5;
    groups[1].pattern = "fc.*";
    groups[1].learning_rate_scale = 2;
    options.groups = groups;
    options.group_count = 2;
    options.batch = BATCH;
    options.algorithm = YOKE_ALGORITHM_DIRECT;
    must(yoke_data_parallel_create(&engine, model, devices, &sgd, &options));
    yoke_batch batch = {.struct_size = sizeof batch, .rows = BATCH, .inputs = inputs};
    RESULT(yoke_step_result, result);
    batch.labels = labels;
    for (int step = 0; step < 3; step++)
        must(yoke_data_parallel_step(engine, &batch, YOKE_OPTIMIZER_LEARNING_RATE, &result));
    CHECK_TAIL(result);
    uint64_t hash = 0;
    must(yoke_data_parallel_hash(engine, &hash));
    printf("engine: loss %.9g, %d rows, weights %016" PRIx64 "\n", result.loss, result.rows, hash);
    RESULT(yoke_group_report, group);
    RESULT(yoke_memory_report, memory);
    RESULT(yoke_loss_scale_report, scale);
    must(yoke_data_parallel_group(engine, 1, &group));
    must(yoke_data_parallel_memory(engine, 0, &memory));
    CHECK_TAIL(group);
    CHECK_TAIL(memory);
    must(yoke_data_parallel_loss_scale(engine, &scale));
    CHECK_TAIL(scale);
    printf("reports: %d tensors, %zu bytes\n", group.tensors, memory.parameters);
    yoke_stage_summary rows[YOKE_STAGE_COUNT] = {{.struct_size = sizeof rows[0]}};
    yoke_span_info spans[64] = {{.struct_size = sizeof spans[0]}};
    int stages = yoke_trace_summarize(yoke_data_parallel_trace(engine), rows, YOKE_STAGE_COUNT);
    size_t count = yoke_trace_read(yoke_data_parallel_trace(engine), spans, 64);
    printf("trace: %d stages, the last %d times %zu; a span %s\n", stages,
           (int)rows[stages - 1].stage, rows[stages - 1].count,
           count > 20 && spans[9].step < 3 && spans[9].begin_ns < spans[9].end_ns ? "ends" : "?");
    must(yoke_state_save(engine, "state"));
    yoke_data_parallel_destroy(engine);
}

static void skip_weight(const yoke_weights_skip *skip, void *payload) {
    (void)payload;
    printf("skipped %s, reason %d\n", skip->name, (int)skip->reason);
}

static void use_files(yoke_devices *devices, const yoke_model *model) {
    yoke_data_parallel_options options = YOKE_DATA_PARALLEL_OPTIONS_INIT;
    yoke_data_parallel *engine = NULL;
    options.batch = BATCH;
    options.algorithm = YOKE_ALGORITHM_DIRECT;
    must(yoke_data_parallel_create(&engine, model, devices, NULL, &options));
    yoke_weights_load_options load = {.struct_size = sizeof load, .on_skip = skip_weight};
    load.allow_missing = load.allow_unknown = "*";
    must(yoke_weights_load_partial(engine, model, "numbers", &load));
    use_memory_files(engine, model);
    yoke_weights_info info = {.struct_size = sizeof info, .model = "images", .input = image};
    info.classes = CLASSES;
    must(yoke_weights_save_described(engine, model, &info, "described"));
    yoke_weights_description *description = NULL;
    must(yoke_weights_description_open(&description, "described"));
    RESULT(yoke_weights_info, described);
    must(yoke_weights_describe(description, &described));
    CHECK_TAIL(described);
    printf("weights of %s, %d classes\n", described.model, described.classes);
    yoke_weights_description_close(description);
    yoke_data_parallel_destroy(engine);
    yoke_checkpoint *checkpoint = NULL;
    RESULT(yoke_checkpoint_tensor_info, tensor);
    must(yoke_checkpoint_open(&checkpoint, "state"));
    must(yoke_checkpoint_tensor(checkpoint, 0, &tensor));
    CHECK_TAIL(tensor);
    printf("tensor %s, %zu bytes\n", tensor.name, tensor.bytes);
    yoke_checkpoint_close(checkpoint);
}

static void use_tensor_file(void) {
    yoke_tensor_file_entry entry = {.struct_size = sizeof entry, .name = "pi"};
    yoke_tensor_file *file = NULL;
    double pi = 3.25;
    entry.type = YOKE_TENSOR_FLOAT64;
    must(yoke_tensor_file_create(&file));
    must(yoke_tensor_file_add(file, &entry, &pi));
    must(yoke_tensor_file_save(file, "numbers"));
    yoke_tensor_file_close(file);
    must(yoke_tensor_file_open(&file, "numbers"));
    RESULT(yoke_tensor_file_entry, found);
    must(yoke_tensor_file_find(file, "pi", &found));
    CHECK_TAIL(found);
    printf("file: %s, type %d, %d dimensions\n", found.name, (int)found.type, found.ndim);
    yoke_tensor_file_close(file);
}

static void use_reference(void) {
    yoke_reference_options options = {.struct_size = sizeof options, .batch = BATCH, .shards = 1};
    yoke_reference *reference = NULL;
    yoke_linear_options fc = YOKE_LINEAR_OPTIONS_INIT;
    yoke_loss_options huber = YOKE_LOSS_OPTIONS_INIT;
    yoke_model *model = NULL;
    static float inputs[BATCH * INPUTS], targets[BATCH] = {1, 2, 3, 4};
    for (size_t i = 0; i < BATCH; i++)
        fill(i, inputs + i * INPUTS);
    fc.name = "fc";
    fc.out_features = 1;
    huber.kind = YOKE_LOSS_HUBER;
    must(yoke_model_create(&model, "numbers", image));
    yoke_value value = yoke_flatten(model, yoke_model_input(model));
    must(yoke_model_finish(model, yoke_linear(model, value, &fc), &huber));
    must(yoke_reference_create(&reference, model, NULL, &options));
    yoke_batch batch = {.struct_size = sizeof batch, .rows = BATCH, .inputs = inputs};
    batch.targets = targets;
    RESULT(yoke_step_result, result);
    must(yoke_reference_step(reference, &batch, 0.1, &result));
    CHECK_TAIL(result);
    printf("reference: loss %.9g\n", result.loss);
    yoke_reference_destroy(reference);
    yoke_model_destroy(model);
}

static yoke_status custom_loss(void *payload, const yoke_outputs *rows, double *loss) {
    (void)payload;
    *loss = 0;
    for (int i = 0; i < rows->batch->rows * rows->count; i++)
        *loss += (double)rows->outputs[0][i];
    return YOKE_OK;
}

static yoke_status add_rows(void *payload, const yoke_outputs *rows, double *sums) {
    (void)payload;
    sums[0] += rows->batch->rows;
    return YOKE_OK;
}

static double double_rows(void *payload, const double *sums) {
    (void)payload;
    return 2 * sums[0];
}

static void see_event(const yoke_event *event, void *payload) {
    ++*(int *)payload;
    if (event->kind == YOKE_EVENT_EVALUATION)
        printf("event: step %" PRIu64 ", %s %.9g\n", event->step, event->metrics->name,
               event->metrics->value);
}

static void use_evaluation(yoke_data_parallel *engine) {
    yoke_row_source source = {.struct_size = sizeof source, .rows = ROWS, .shape = image};
    yoke_loader_options options = {.struct_size = sizeof options, .batch = BATCH};
    yoke_dataset *dataset = NULL;
    yoke_loader *loader = NULL;
    yoke_evaluation *evaluation = NULL;
    RESULT(yoke_evaluation_info, info);
    source.classes = CLASSES;
    source.read = read_row;
    must(yoke_dataset_from_callback(&dataset, &source));
    must(yoke_loader_create(&loader, dataset, &options));
    must(yoke_loader_begin(loader, 0));
    must(yoke_evaluation_run(&evaluation, engine, loader));
    must(yoke_evaluation_describe(evaluation, &info));
    CHECK_TAIL(info);
    printf("evaluation: %zu rows, loss %.9g\n", info.rows, info.loss);
    yoke_evaluation_destroy(evaluation);
    yoke_loader_destroy(loader);
    yoke_dataset_close(dataset);
}

static void use_trainer(const yoke_model *model) {
    yoke_data_parallel_options direct = YOKE_DATA_PARALLEL_OPTIONS_INIT;
    yoke_trainer_options options = YOKE_TRAINER_OPTIONS_INIT;
    yoke_optimizer_options adamw = YOKE_ADAMW_OPTIONS_INIT;
    yoke_lr_find_options find = YOKE_LR_FIND_OPTIONS_INIT;
    yoke_metric metrics[2] = {{.struct_size = sizeof metrics[0]},
                              {.struct_size = sizeof metrics[0]}};
    yoke_trainer *trainer = NULL;
    int events = 0;
    for (int i = 0; i < 2; i++) {
        metrics[i].name = i ? "again" : "rows";
        metrics[i].add = add_rows;
        metrics[i].value = double_rows;
    }
    options.custom_model = model;
    options.dataset = "synthetic:1x8x8,classes=3,rows=64";
    options.devices = "2xcpu";
    options.threads = 1;
    options.batch = 8;
    options.steps = 4;
    direct.algorithm = YOKE_ALGORITHM_DIRECT;
    use_exchange(&direct);
    options.engine = &direct;
    options.optimizer = &adamw;
    options.on_event = see_event;
    options.payload = &events;
    options.misclassified = 2;
    options.custom_metrics = metrics;
    options.metric_count = 2;
    must(yoke_trainer_create(&trainer, &options));
    RESULT(yoke_lr_find_result, found);
    find.steps = 20;
    find.lowest = 1e-5;
    find.highest = 1e-3;
    must(yoke_trainer_find_lr(trainer, &find, &found));
    CHECK_TAIL(found);
    must(yoke_trainer_run(trainer));
    RESULT(yoke_trainer_summary, summary);
    RESULT(yoke_progress, progress);
    RESULT(yoke_predictions, predictions);
    RESULT(yoke_misclassified, misclassified);
    must(yoke_trainer_summarize(trainer, &summary));
    must(yoke_trainer_progress(trainer, &progress));
    must(yoke_trainer_predictions(trainer, &predictions));
    must(yoke_trainer_misclassified(trainer, 0, &misclassified));
    CHECK_TAIL(summary);
    CHECK_TAIL(progress);
    CHECK_TAIL(predictions);
    CHECK_TAIL(misclassified);
    printf("trainer: %d rates, %d events, weights %016" PRIx64 ", %zu predicted, row %zu\n",
           found.count, events, summary.weights_hash, predictions.rows, misclassified.row);
    use_evaluation(yoke_trainer_engine(trainer));
    yoke_trainer_destroy(trainer);
}

static void use_custom_loss(const yoke_model *model) {
    yoke_data_parallel_options direct = YOKE_DATA_PARALLEL_OPTIONS_INIT;
    yoke_trainer_options options = YOKE_TRAINER_OPTIONS_INIT;
    yoke_custom_loss loss = {.struct_size = sizeof loss, .compute = custom_loss};
    yoke_trainer *trainer = NULL;
    RESULT(yoke_trainer_summary, summary);
    options.custom_model = model;
    options.custom_loss = &loss;
    options.dataset = "synthetic:1x8x8,classes=3,rows=64";
    options.devices = "cpu";
    options.threads = 1, options.batch = 8, options.steps = 2;
    direct.algorithm = YOKE_ALGORITHM_DIRECT;
    options.engine = &direct;
    must(yoke_trainer_create(&trainer, &options));
    must(yoke_trainer_run(trainer));
    must(yoke_trainer_summarize(trainer, &summary));
    printf("own loss: %" PRIu64 " steps\n", summary.steps);
    yoke_trainer_destroy(trainer);
}

#include "abi_models.h"
#include "abi_net.h"

int main(int count, char **words) {
    if (count != 3) return 2;
    use_allocator();
    use_ranks();
    yoke_devices *devices = use_devices();
    use_datasets();
    use_images(words[1], words[2]);
    use_tokens();
    use_ctc();
    yoke_model *model = build_images();
    use_model(model);
    use_own_operation();
    use_engine(devices, model);
    use_tensor_file();
    use_files(devices, model);
    use_models(devices);
    use_reference();
    use_net(model);
    use_trainer(model);
    use_custom_loss(model);
    use_schedules();
    yoke_model_destroy(model);
    yoke_devices_close(devices);
    return abi_allocations == 0;
}
