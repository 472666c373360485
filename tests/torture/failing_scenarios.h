/* SPDX-License-Identifier: Apache-2.0 */
/* What test_allocator.c does while an allocation fails: short uses of every part of the library.
 * A scenario keeps all that it opens in `made`, whose owner closes it. */
#ifndef FAILING_SCENARIOS_H
#define FAILING_SCENARIOS_H

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "support/own_operation.h"
#include "yoke/yoke.h"

#define FIXTURES YOKE_SOURCE_DIR "/tests/fixtures"

typedef struct made {
    yoke_model *model, *other;
    yoke_devices *devices;
    yoke_data_parallel *engine;
    yoke_dataset *dataset, *test;
    yoke_loader *loader;
    yoke_evaluation *evaluation;
    yoke_trainer *trainer;
    yoke_generator *generator;
    yoke_tokenizer *tokenizer;
    yoke_reference *reference;
    yoke_tensor_file *file;
    yoke_checkpoint *checkpoint;
    yoke_weights_description *description;
    yoke_process_group *group;
} made;

static inline void close_all(made *m) {
    yoke_trainer_destroy(m->trainer);
    yoke_evaluation_destroy(m->evaluation);
    yoke_loader_destroy(m->loader);
    yoke_dataset_close(m->dataset);
    yoke_dataset_close(m->test);
    yoke_generator_destroy(m->generator);
    yoke_data_parallel_destroy(m->engine);
    yoke_process_group_destroy(m->group);
    yoke_devices_close(m->devices);
    yoke_reference_destroy(m->reference);
    yoke_model_destroy(m->model);
    yoke_model_destroy(m->other);
    yoke_tokenizer_close(m->tokenizer);
    yoke_tensor_file_close(m->file);
    yoke_checkpoint_close(m->checkpoint);
    yoke_weights_description_close(m->description);
    *m = (made){0};
}

static char scenario_folder[] = "/tmp/yoke-allocator-XXXXXX";

/* A path in the folder; lives until sixteen calls later, of this thread. */
static inline const char *at_path(const char *name) {
    static _Thread_local char paths[16][128];
    static _Thread_local unsigned next;
    char *path = paths[next++ % 16];
    snprintf(path, sizeof paths[0], "%s/%s", scenario_folder, name);
    return path;
}

/* SPEC with the folder in the place of each "@". */
static inline const char *spec_of(const char *spec) {
    static char text[512];
    size_t used = 0;
    for (; *spec != '\0'; spec++)
        used += (size_t)snprintf(text + used, sizeof text - used, *spec == '@' ? "%s" : "%.1s",
                                 *spec == '@' ? scenario_folder : spec);
    return text;
}

enum { IMAGE_SIDE = 8, IMAGE_CLASSES = 3, BATCH_ROWS = 4, TOKENS = 6, VOCABULARY = 7 };

static inline yoke_shape image_shape(void) {
    return yoke_shape_image(3, IMAGE_SIDE, IMAGE_SIDE);
}

static inline yoke_shape token_shape(void) {
    return (yoke_shape){TOKENS, 1, 1, true, false};
}

static inline yoke_batch image_batch(void) {
    static float inputs[BATCH_ROWS * 3 * IMAGE_SIDE * IMAGE_SIDE];
    static const int32_t labels[BATCH_ROWS] = {0, 2, 1, 0};
    for (size_t i = 0; i < sizeof inputs / sizeof inputs[0]; i++)
        inputs[i] = (float)(i % 17) / 8 - 1;
    return (yoke_batch){
        .struct_size = sizeof(yoke_batch), .rows = BATCH_ROWS, .inputs = inputs, .labels = labels};
}

static inline yoke_batch token_batch(void) {
    static float tokens[BATCH_ROWS * TOKENS];
    static int32_t labels[BATCH_ROWS * TOKENS];
    for (int i = 0; i < BATCH_ROWS * TOKENS; i++) {
        tokens[i] = (float)(i * 5 % VOCABULARY);
        labels[i] = i * 3 % VOCABULARY;
    }
    return (yoke_batch){
        .struct_size = sizeof(yoke_batch), .rows = BATCH_ROWS, .inputs = tokens, .labels = labels};
}

static inline yoke_status open_cpus(made *m, int count) {
    yoke_devices_options options = {.struct_size = sizeof options, .threads = 1, .unbound = true};
    options.list = count == 1 ? "cpu" : count == 2 ? "2xcpu" : "3xcpu";
    return yoke_devices_open(&m->devices, &options);
}

static inline yoke_data_parallel_options engine_options(void) {
    yoke_data_parallel_options options = YOKE_DATA_PARALLEL_OPTIONS_INIT;
    options.algorithm = YOKE_ALGORITHM_DIRECT;
    options.batch = BATCH_ROWS;
    return options;
}

static inline yoke_status open_engine(made *m, const char *preset, yoke_shape shape, int classes,
                                      int devices, const yoke_data_parallel_options *options) {
    TRY(yoke_model_preset(&m->model, preset, shape, classes, NULL));
    TRY(open_cpus(m, devices));
    yoke_optimizer_options adamw = YOKE_ADAMW_OPTIONS_INIT;
    return yoke_data_parallel_create(&m->engine, m->model, m->devices, &adamw, options);
}

/* Two steps, an evaluation, and every way to read and write tensors. */
static inline yoke_status use_engine(made *m, const yoke_batch *batch) {
    yoke_step_result result = {.struct_size = sizeof result};
    for (int i = 0; i < 2; i++)
        TRY(yoke_data_parallel_step(m->engine, batch, -1, &result));
    yoke_batch less = *batch;
    less.rows = 2;
    TRY(yoke_data_parallel_evaluate(m->engine, &less, &result));
    TRY(yoke_data_parallel_step(m->engine, &less, 0.01, &result));
    yoke_tensor_info info = {.struct_size = sizeof info};
    static float values[1 << 16];
    TRY(yoke_model_tensor(m->model, 0, &info));
    TRY(yoke_data_parallel_read(m->engine, info.name, values, info.count));
    TRY(yoke_data_parallel_write(m->engine, info.name, values, info.count));
    TRY(yoke_data_parallel_forward(m->engine, &less, false, values));
    uint64_t hash = 0;
    TRY(yoke_data_parallel_hash(m->engine, &hash));
    yoke_memory_report memory = {.struct_size = sizeof memory};
    TRY(yoke_data_parallel_memory(m->engine, 0, &memory));
    (void)yoke_data_parallel_unreached(m->engine);
    (void)yoke_data_parallel_algorithms_warning(m->engine);
    return YOKE_OK;
}

static inline yoke_status use_images(made *m, const char *preset, int devices,
                                     const yoke_data_parallel_options *options) {
    yoke_batch batch = image_batch();
    TRY(open_engine(m, preset, image_shape(), IMAGE_CLASSES, devices, options));
    return use_engine(m, &batch);
}

static inline yoke_status use_tokens(made *m, const char *preset, int devices) {
    yoke_batch batch = token_batch();
    yoke_data_parallel_options options = engine_options();
    TRY(open_engine(m, preset, token_shape(), VOCABULARY, devices, &options));
    return use_engine(m, &batch);
}

/* Devices and models. */

static inline yoke_status devices_alone(made *m) {
    yoke_device_info info = {.struct_size = sizeof info};
    yoke_peer_info peer = {.struct_size = sizeof peer};
    char text[192];
    TRY(open_cpus(m, 2));
    TRY(yoke_devices_describe(m->devices, 1, &info));
    TRY(yoke_devices_peer(m->devices, 0, 1, &peer));
    TRY(yoke_devices_imbalance(m->devices, text, sizeof text));
    return yoke_devices_synchronize(m->devices);
}

/* One preset; which one is the runner's to say. */
static int preset_index;

static inline yoke_status one_preset(made *m) {
    yoke_preset_info info = {.struct_size = sizeof info};
    TRY(yoke_model_preset_describe(preset_index, &info));
    TRY(yoke_model_preset(&m->model, info.name, info.input, info.classes, NULL));
    for (int i = 0; i < yoke_model_layer_count(m->model); i++) {
        yoke_layer_info layer = {.struct_size = sizeof layer};
        TRY(yoke_model_describe_layer(m->model, i, &layer));
    }
    return YOKE_OK;
}

/* Engines. */

static inline yoke_status convolutions_on_one(made *m) {
    yoke_data_parallel_options options = engine_options();
    return use_images(m, "resnet20", 1, &options);
}

static inline yoke_status convolutions_on_two(made *m) {
    yoke_data_parallel_options options = engine_options();
    options.input_gradients = true;
    return use_images(m, "resnet20", 2, &options);
}

static inline yoke_status measured_algorithms(made *m) {
    yoke_data_parallel_options options = engine_options();
    options.algorithm = YOKE_ALGORITHM_MEASURED;
    options.algorithm_cache = at_path("algorithms");
    options.measure_seconds = 0.001;
    (void)unlink(options.algorithm_cache);
    return use_images(m, "layers:conv=4x3,relu,global_pool,linear=3", 2, &options);
}

static inline yoke_status schedule_of(made *m, yoke_schedule schedule) {
    yoke_data_parallel_options options = engine_options();
    options.schedule = schedule;
    return use_images(m, "mlp-dropout:width=8", 2, &options);
}

static inline yoke_status schedule_classic(made *m) {
    return schedule_of(m, YOKE_SCHEDULE_CLASSIC);
}

static inline yoke_status schedule_sharded(made *m) {
    return schedule_of(m, YOKE_SCHEDULE_SHARDED);
}

static inline yoke_status schedule_python(made *m) {
    return schedule_of(m, YOKE_SCHEDULE_PYTHON);
}

static inline yoke_status parts_of_batches(made *m) {
    yoke_data_parallel_options options = engine_options();
    yoke_parameter_group group = {
        .struct_size = sizeof group, .pattern = "*.bias", .learning_rate_scale = 1, .frozen = true};
    options.groups = &group, options.group_count = 1;
    options.shards = 4;
    options.ema_decay = 0.5;
    options.activation_checkpointing = true;
    options.auto_shares = true;
    options.link = "12.5,3";
    TRY(use_images(m, "resnet20", 2, &options));
    TRY(yoke_data_parallel_use_average(m->engine, true));
    yoke_group_report report = {.struct_size = sizeof report};
    return yoke_data_parallel_group(m->engine, 0, &report);
}

static inline yoke_status bfloat16_and_accumulation(made *m) {
    yoke_data_parallel_options options = engine_options();
    options.precision = YOKE_BFLOAT16;
    options.accumulate = 2;
    options.synchronize_batch_norm = true;
    options.loss_scale = YOKE_LOSS_SCALE_DYNAMIC;
    return use_images(m, "resnet20", 2, &options);
}

static inline yoke_status only_predicts(made *m) {
    yoke_data_parallel_options options = engine_options();
    yoke_batch batch = image_batch();
    yoke_step_result result = {.struct_size = sizeof result};
    float outputs[BATCH_ROWS * IMAGE_CLASSES];
    options.inference = true;
    TRY(open_engine(m, "resnet20", image_shape(), IMAGE_CLASSES, 2, &options));
    TRY(yoke_data_parallel_prepare(m->engine, 2, false));
    TRY(yoke_data_parallel_evaluate(m->engine, &batch, &result));
    return yoke_data_parallel_forward(m->engine, &batch, false, outputs);
}

static inline yoke_status attention_on_two(made *m) {
    return use_tokens(m, "gpt2:layers=1,width=8,heads=2", 2);
}

static inline yoke_status recurrence_on_one(made *m) {
    return use_tokens(m, "lstm-char:width=8", 1);
}

static inline yoke_status own_operation(made *m) {
    static own_fault none = OWN_RIGHT;
    yoke_gradient_check found = {.struct_size = sizeof found};
    yoke_gradient_check_options check = YOKE_GRADIENT_CHECK_OPTIONS_INIT;
    yoke_data_parallel_options options = engine_options();
    yoke_batch batch = image_batch();
    TRY(yoke_model_create(&m->model, "own", image_shape()));
    yoke_value x = yoke_flatten(m->model, yoke_model_input(m->model));
    yoke_linear_options linear = YOKE_LINEAR_OPTIONS_INIT;
    linear.name = "a", linear.out_features = IMAGE_CLASSES;
    yoke_value a = yoke_linear(m->model, x, &linear);
    linear.name = "b";
    yoke_value b = yoke_linear(m->model, x, &linear);
    x = own_gate(m->model, a, b, yoke_shape_vector(IMAGE_CLASSES), &none);
    TRY(yoke_model_finish(m->model, x, NULL));
    TRY(yoke_model_check_gradients(m->model, &check, &found));
    TRY(open_cpus(m, 2));
    TRY(yoke_data_parallel_create(&m->engine, m->model, m->devices, NULL, &options));
    return use_engine(m, &batch);
}

/* Files. */

static inline yoke_status open_mlp(made *m) {
    yoke_data_parallel_options options = engine_options();
    return open_engine(m, "mlp:width=8", image_shape(), IMAGE_CLASSES, 2, &options);
}

static inline yoke_status weights_to_files_and_back(made *m) {
    static const char *const names[] = {"cat", "dog", "owl"};
    yoke_weights_info info = {.struct_size = sizeof info};
    yoke_weights_load_options partial = YOKE_WEIGHTS_LOAD_OPTIONS_INIT;
    const char *path = at_path("weights.safetensors");
    TRY(open_mlp(m));
    TRY(yoke_weights_save(m->engine, m->model, path));
    TRY(yoke_weights_load(m->engine, m->model, path));
    info.model = "mlp:width=8", info.input = image_shape(), info.classes = IMAGE_CLASSES;
    info.class_names = names, info.dataset = "synthetic";
    TRY(yoke_weights_save_described(m->engine, m->model, &info, path));
    partial.new_head = true;
    TRY(yoke_weights_load_partial(m->engine, m->model, path, &partial));
    TRY(yoke_weights_check(m->model, path));
    TRY(yoke_weights_description_open(&m->description, path));
    return yoke_weights_describe(m->description, &info);
}

static inline yoke_status state_to_a_file_and_back(made *m) {
    const char *path = at_path("state.safetensors"), *key, *value;
    yoke_batch batch = image_batch();
    yoke_step_result result = {.struct_size = sizeof result};
    yoke_checkpoint_tensor_info info = {.struct_size = sizeof info};
    static float values[1 << 14];
    TRY(open_mlp(m));
    TRY(yoke_data_parallel_step(m->engine, &batch, -1, &result));
    TRY(yoke_state_save(m->engine, path));
    TRY(yoke_state_load(m->engine, path, "seed"));
    TRY(yoke_checkpoint_open(&m->checkpoint, path));
    for (int i = 0; yoke_checkpoint_fact(m->checkpoint, i, &key, &value); i++) {
    }
    TRY(yoke_checkpoint_tensor(m->checkpoint, 0, &info));
    return yoke_checkpoint_values(m->checkpoint, 0, values, info.count);
}

static inline yoke_status zero_values(void *payload, int index, float *values, size_t count) {
    (void)payload, (void)index;
    memset(values, 0, count * sizeof *values);
    return YOKE_OK;
}

static inline yoke_status onnx_written_and_read(made *m) {
    yoke_onnx_options options = YOKE_ONNX_OPTIONS_INIT;
    const char *path = at_path("model.onnx");
    TRY(yoke_model_preset(&m->model, "resnet20", image_shape(), IMAGE_CLASSES, NULL));
    TRY(yoke_model_save_onnx(m->model, zero_values, NULL, path));
    return yoke_model_load_onnx(&m->other, path, &options);
}

typedef struct kept_bytes {
    unsigned char data[1 << 16];
    size_t count;
} kept_bytes;

static inline yoke_status keep_bytes(void *payload, const void *bytes, size_t count) {
    kept_bytes *kept = payload;
    if (count > sizeof kept->data - kept->count) return YOKE_ERROR_INTERNAL;
    memcpy(kept->data + kept->count, bytes, count);
    kept->count += count;
    return YOKE_OK;
}

static inline yoke_status files_in_memory(made *m) {
    static kept_bytes weights, state;
    yoke_weights_info info = {.struct_size = sizeof info};
    yoke_sink sink = YOKE_SINK_INIT;
    weights.count = state.count = 0;
    sink.write = keep_bytes;
    TRY(open_mlp(m));
    sink.payload = &weights;
    info.model = "mlp:width=8", info.input = image_shape(), info.classes = IMAGE_CLASSES;
    TRY(yoke_weights_write(m->engine, m->model, &info, &sink));
    TRY(yoke_weights_read(m->engine, m->model, weights.data, weights.count, NULL));
    TRY(yoke_weights_description_read(&m->description, weights.data, weights.count));
    sink.payload = &state;
    TRY(yoke_state_write(m->engine, &sink));
    return yoke_state_read(m->engine, state.data, state.count, "seed");
}

static inline yoke_status onnx_in_memory(made *m) {
    static kept_bytes graph;
    yoke_sink sink = YOKE_SINK_INIT;
    graph.count = 0;
    sink.write = keep_bytes, sink.payload = &graph;
    TRY(open_mlp(m));
    TRY(yoke_weights_write_onnx(m->engine, m->model, &sink));
    return yoke_model_read_onnx(&m->other, graph.data, graph.count, NULL);
}

static inline yoke_status tensor_files(made *m) {
    const double values[6] = {1, 2, 3, 4, 5, 6};
    double read[6];
    yoke_tensor_file_entry entry = {
        .struct_size = sizeof entry, "x.weight", YOKE_TENSOR_FLOAT64, 2, {2, 3}};
    const char *path = at_path("tensors.safetensors");
    TRY(yoke_tensor_file_create(&m->file));
    TRY(yoke_tensor_file_add(m->file, &entry, values));
    TRY(yoke_tensor_file_note(m->file, "key", "value"));
    TRY(yoke_tensor_file_save(m->file, path));
    yoke_tensor_file_close(m->file);
    m->file = NULL;
    TRY(yoke_tensor_file_open(&m->file, path));
    TRY(yoke_tensor_file_find(m->file, "x.weight", &entry));
    return yoke_tensor_file_read(m->file, "x.weight", read, 6);
}

static inline yoke_status traces(made *m) {
    yoke_batch batch = image_batch();
    yoke_step_result result = {.struct_size = sizeof result};
    yoke_stage_summary rows[32] = {{.struct_size = sizeof rows[0]}};
    TRY(open_mlp(m));
    TRY(yoke_data_parallel_step(m->engine, &batch, -1, &result));
    const yoke_trace *trace = yoke_data_parallel_trace(m->engine);
    (void)yoke_trace_summarize(trace, rows, 32);
    return yoke_trace_save(trace, at_path("trace.json"));
}

static inline yoke_status texts_and_tokens(made *m) {
    int tokens[32];
    char text[64];
    size_t count = 0, bytes = 0;
    TRY(yoke_tokenizer_open(&m->tokenizer, FIXTURES "/tokenizer"));
    TRY(yoke_tokenizer_encode(m->tokenizer, "the end, 12", 11, tokens, &count));
    return yoke_tokenizer_decode(m->tokenizer, tokens, count, text, sizeof text, &bytes);
}

static inline yoke_status float64_steps(made *m) {
    yoke_batch batch = image_batch();
    yoke_step_result result = {.struct_size = sizeof result};
    yoke_reference_options options = {
        .struct_size = sizeof options, .batch = BATCH_ROWS, .shards = 2};
    TRY(yoke_model_preset(&m->model, "resnet20", image_shape(), IMAGE_CLASSES, NULL));
    TRY(yoke_reference_create(&m->reference, m->model, NULL, &options));
    for (int i = 0; i < yoke_model_tensor_count(m->model); i++) {
        yoke_tensor_info info = {.struct_size = sizeof info};
        TRY(yoke_model_tensor(m->model, i, &info));
        double *values = malloc(info.count * sizeof *values);
        for (size_t k = 0; k < info.count; k++)
            values[k] = 0.1;
        yoke_status status = yoke_reference_write(m->reference, info.name, values, info.count);
        free(values);
        TRY(status);
    }
    return yoke_reference_step(m->reference, &batch, 0.01, &result);
}

static inline yoke_status generated_text(made *m) {
    static const int prompt[] = {1, 2};
    yoke_generator_options options = YOKE_GENERATOR_OPTIONS_INIT;
    yoke_token_sampling sampling = YOKE_TOKEN_SAMPLING_INIT;
    yoke_generator_info info = {.struct_size = sizeof info};
    int tokens[2];
    options.rows = 2, options.algorithm = YOKE_ALGORITHM_DIRECT;
    sampling.temperature = 1, sampling.top_k = 3, sampling.top_p = 0.9;
    TRY(yoke_model_preset(&m->model, "gpt2:layers=1,width=8,heads=2", token_shape(), VOCABULARY,
                          NULL));
    TRY(open_cpus(m, 2));
    TRY(yoke_generator_create(&m->generator, m->model, m->devices, &options));
    TRY(yoke_generator_begin(m->generator, 0, prompt, 2));
    TRY(yoke_generator_begin(m->generator, 1, prompt, 1));
    for (int i = 0; i < TOKENS + 2; i++)
        TRY(yoke_generator_next(m->generator, &sampling, tokens));
    return yoke_generator_describe(m->generator, &info);
}

#endif
