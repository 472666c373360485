/* SPDX-License-Identifier: Apache-2.0 */
/* Serves the requests of another program's race. */
#include "bench/tool/bench_drive.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/floor/floor.h"
#include "bench/tool/bench_ranks.h"
#include "cli/cli.h"

#define ENGINES 16
#define WORD_BYTES 64
#define WORDS 12
#define MOST_RANKS 64
#define MOST_CLASSES 65536 /* random tokens and labels have 16 bits */

typedef struct drive_engine {
    char name[WORD_BYTES], model[WORD_BYTES], list[WORD_BYTES];
    bench_engine *engine; /* this or ranks */
    bench_ranks *ranks;
} drive_engine;

typedef struct drive_request {
    char *words[WORDS];
    int count;
    drive_engine *slot;  /* of the engine it names; for open a free one */
    const char *mistake; /* in the request; NULL: yoke_last_error has the text */
} drive_request;

typedef yoke_status (*drive_function)(drive_request *request, yoke_json *answer);

static yoke_status refuse(drive_request *request, const char *text) {
    request->mistake = text;
    return YOKE_ERROR_ARGUMENT;
}

/* The value of a "key=value" word; NULL: not given. */
static const char *value_of(const drive_request *request, const char *key) {
    size_t length = strlen(key);
    for (int i = 2; i < request->count; i++) {
        const char *word = request->words[i];
        if (strncmp(word, key, length) == 0 && word[length] == '=') return word + length + 1;
    }
    return NULL;
}

static int number_of(const drive_request *request, const char *key) {
    const char *value = value_of(request, key);
    return value ? atoi(value) : 0;
}

static int choice_of(const drive_request *request, const char *key, const char *const *names,
                     int count) {
    const char *value = value_of(request, key);
    for (int i = 0; value && i < count; i++)
        if (strcmp(value, names[i]) == 0) return i;
    return value ? -1 : 0;
}

static yoke_status open_engine(drive_request *request, yoke_json *answer) {
    static const char *const schedules[] = {"overlap", "classic", "sharded"};
    static const char *const algorithms[] = {"measured", "direct", "fastest"};
    drive_engine *slot = request->slot;
    const char *model = value_of(request, "model"), *list = value_of(request, "devices");
    static const char *const collectives[] = {"auto", "nccl", "copy"};
    const char *rate = value_of(request, "learning_rate");
    int precision = choice_of(request, "precision", yoke_precision_names, yoke_precision_count);
    int schedule = choice_of(request, "schedule", schedules, 3);
    int algorithm = choice_of(request, "algorithm", algorithms, 3);
    int way = choice_of(request, "collectives", collectives, 3);
    int ranks = number_of(request, "ranks");
    if (!model || !list == !ranks || ranks < 0 || ranks > MOST_RANKS ||
        number_of(request, "rows") < 1)
        return refuse(request, "open needs model=, rows= and devices= or ranks=");
    int classes = number_of(request, "classes");
    if (classes < 0 || classes > MOST_CLASSES)
        return refuse(request, "classes= is a number from 1 to 65536");
    if (precision < 0 || schedule < 0 || algorithm < 0 || way < 0)
        return refuse(request,
                      "precision, schedule, algorithm or collectives has an unknown value");
    snprintf(slot->name, sizeof slot->name, "%s", request->words[1]);
    snprintf(slot->model, sizeof slot->model, "%s", model);
    snprintf(slot->list, sizeof slot->list, "%s", list ? list : "");
    bench_setup setup = {.model = slot->model,
                         .list = slot->list,
                         .devices = ranks,
                         .threads = number_of(request, "threads"),
                         .rows = number_of(request, "rows"),
                         .side = number_of(request, "side"),
                         .classes = classes,
                         .precision = (yoke_precision)precision,
                         .schedule = (yoke_schedule)schedule,
                         .collectives = (yoke_collectives)way,
                         .learning_rate = rate ? atof(rate) : 0,
                         .algorithm = (yoke_algorithm)algorithm,
                         .inference = number_of(request, "inference") != 0};
    if (ranks > 0) return bench_ranks_create(&slot->ranks, &setup);
    yoke_status status = bench_engine_create(&slot->engine, &setup);
    if (status != YOKE_OK) return status;
    yoke_json_integer(answer, "devices", slot->engine->setup.devices);
    yoke_json_integer(answer, "rows", slot->engine->batch.rows);
    yoke_json_real(answer, "made_ms", slot->engine->made_ms);
    return YOKE_OK;
}

static void clear(drive_engine *slot) {
    bench_engine_destroy(slot->engine);
    bench_ranks_destroy(slot->ranks);
    slot->engine = NULL;
    slot->ranks = NULL;
}

static yoke_status close_engine(drive_request *request, yoke_json *answer) {
    (void)answer;
    clear(request->slot);
    return YOKE_OK;
}

/* Creates the file that the third word names; NULL on failure. */
static FILE *create_file(drive_request *request) {
    FILE *file = request->count > 2 ? fopen(request->words[2], "wb") : NULL;
    if (!file) request->mistake = "the request needs a file that it can write";
    return file;
}

static yoke_status write_tensor(drive_request *request, const yoke_tensor_info *info, FILE *file) {
    yoke_data_parallel *parallel = request->slot->engine->parallel;
    float *values = malloc(info->count * sizeof *values);
    if (!values) return YOKE_ERROR_MEMORY;
    yoke_status status = yoke_data_parallel_read(parallel, info->name, values, info->count);
    if (status == YOKE_OK && fwrite(values, sizeof *values, info->count, file) != info->count)
        status = refuse(request, "cannot write the weights");
    free(values);
    return status;
}

static yoke_status write_weights(drive_request *request, yoke_json *answer) {
    bench_engine *engine = request->slot->engine;
    FILE *file = create_file(request);
    if (!file) return YOKE_ERROR_IO;
    yoke_json_open(answer, "tensors", '[');
    yoke_status status = YOKE_OK;
    for (int i = 0; i < yoke_model_tensor_count(engine->model) && status == YOKE_OK; i++) {
        yoke_tensor_info info = {.struct_size = sizeof info};
        status = yoke_model_tensor(engine->model, i, &info);
        if (status != YOKE_OK || info.integer) continue;
        yoke_json_open(answer, NULL, '[');
        yoke_json_text(answer, NULL, info.name);
        yoke_json_integer(answer, NULL, (int64_t)info.count);
        yoke_json_open(answer, NULL, '[');
        for (int j = 0; j < info.ndim; j++)
            yoke_json_integer(answer, NULL, info.shape[j]);
        yoke_json_close(answer, ']');
        yoke_json_close(answer, ']');
        status = write_tensor(request, &info, file);
    }
    yoke_json_close(answer, ']');
    if (fclose(file) != 0 && status == YOKE_OK)
        status = refuse(request, "cannot write the weights");
    return status;
}

static yoke_status write_batch(drive_request *request, yoke_json *answer) {
    const bench_engine *engine = request->slot->engine;
    yoke_shape shape = yoke_model_input_shape(engine->model);
    size_t rows = (size_t)engine->batch.rows;
    size_t values = rows * (size_t)shape.channels * (size_t)shape.height * (size_t)shape.width;
    size_t labels = engine->batch.labels_count;
    FILE *file = create_file(request);
    if (!file) return YOKE_ERROR_IO;
    bool written = fwrite(engine->batch.inputs, sizeof(float), values, file) == values &&
                   fwrite(engine->batch.labels, sizeof(int32_t), labels, file) == labels;
    written = fclose(file) == 0 && written;
    yoke_json_integer(answer, "values", (int64_t)values);
    return written ? YOKE_OK : refuse(request, "cannot write the batch");
}

static yoke_status run_steps(drive_request *request, yoke_json *answer) {
    bench_engine *engine = request->slot->engine;
    int count = request->count > 2 ? atoi(request->words[2]) : 0;
    if (count < 1) return refuse(request, "steps needs a number of steps");
    double wall_ms = 0;
    if (request->slot->ranks) {
        yoke_status status =
            compare_contender_run(&request->slot->ranks->contender, count, &wall_ms);
        if (status == YOKE_OK) yoke_json_real(answer, "ms", wall_ms);
        return status;
    }
    yoke_status status = bench_engine_steps(engine, count, &wall_ms);
    if (status != YOKE_OK) return status;
    yoke_json_real(answer, "ms", wall_ms);
    yoke_json_real(answer, "processor_ms", engine->processor_ms);
    yoke_json_real(answer, "loss", engine->loss);
    return YOKE_OK;
}

/* Also writes the outputs, if the request has a fourth word. */
static yoke_status run_forwards(drive_request *request, yoke_json *answer) {
    bench_engine *engine = request->slot->engine;
    int count = request->count > 2 ? atoi(request->words[2]) : 0;
    if (count < 1) return refuse(request, "forward needs a number of forwards");
    yoke_shape shape = yoke_model_output_shape(engine->model);
    size_t values = (size_t)engine->batch.rows * (size_t)shape.channels * (size_t)shape.height *
                    (size_t)shape.width;
    float *outputs = malloc(values * sizeof *outputs);
    if (outputs == NULL) return refuse(request, "no memory for the outputs");
    double milliseconds = 0;
    yoke_status status = bench_engine_forward(engine, count, outputs, &milliseconds);
    if (status == YOKE_OK && request->count > 3) {
        FILE *file = fopen(request->words[3], "wb");
        bool written = file != NULL && fwrite(outputs, sizeof *outputs, values, file) == values;
        if (file == NULL || fclose(file) != 0 || !written)
            status = refuse(request, "cannot write the outputs");
    }
    free(outputs);
    yoke_json_real(answer, "ms", milliseconds);
    return status;
}

static yoke_status run_kernels(drive_request *request, yoke_json *answer) {
    int count = request->count > 3 ? atoi(request->words[3]) : 0;
    if (count < 1)
        return refuse(request, "kernel_time needs alone or in-order, and a number of runs");
    bool alone = strcmp(request->words[2], "alone") == 0;
    race_run_function run = alone ? bench_engine_kernels_alone : bench_engine_kernels_in_order;
    double milliseconds = 0;
    yoke_status status = run(request->slot->engine, count, &milliseconds);
    if (status == YOKE_OK) yoke_json_real(answer, "ms", milliseconds);
    return status;
}

/* The calls of a step that have several algorithms, each with the one that serves it. */
static yoke_status write_algorithms(drive_request *request, yoke_json *answer) {
    yoke_data_parallel *parallel = request->slot->engine->parallel;
    int count = 0;
    yoke_status status = bench_kernel_calls(parallel, 1, NULL, 0, &count);
    if (status != YOKE_OK) return status;
    bench_kernel_call *calls = calloc((size_t)count + 1, sizeof *calls);
    if (calls == NULL) return refuse(request, "no memory for the algorithms");
    status = bench_kernel_calls(parallel, 1, calls, count, &count);
    yoke_json_open(answer, "algorithms", '[');
    for (int i = 0; i < count && status == YOKE_OK; i++) {
        if (calls[i].algorithm == NULL) continue;
        yoke_json_open(answer, NULL, '[');
        yoke_json_text(answer, NULL, calls[i].layer);
        yoke_json_text(answer, NULL, calls[i].operation);
        yoke_json_text(answer, NULL, calls[i].direction);
        yoke_json_text(answer, NULL, calls[i].algorithm);
        yoke_json_close(answer, ']');
    }
    yoke_json_close(answer, ']');
    free(calls);
    return status;
}

static const struct {
    const char *word;
    drive_function function;
    bool of_ranks; /* ranks serve it, too */
} functions[] = {{"open", open_engine, true},
                 {"weights", write_weights, false},
                 {"batch", write_batch, false},
                 {"steps", run_steps, true},
                 {"forward", run_forwards, false},
                 {"kernel_time", run_kernels, false},
                 {"algorithms", write_algorithms, false},
                 {"close", close_engine, true}};

static drive_engine *find_slot(drive_engine *engines, const char *name, bool opens) {
    drive_engine *unused = NULL;
    for (int i = 0; i < ENGINES; i++) {
        bool used = engines[i].engine || engines[i].ranks;
        if (used && strcmp(engines[i].name, name) == 0) return opens ? NULL : &engines[i];
        if (!used) unused = &engines[i];
    }
    return opens ? unused : NULL;
}

static yoke_status serve(drive_engine *engines, drive_request *request, yoke_json *answer) {
    if (request->count < 2) return refuse(request, "a request is a word and the name of an engine");
    bool opens = strcmp(request->words[0], "open") == 0;
    request->slot = find_slot(engines, request->words[1], opens);
    if (!request->slot)
        return refuse(request, opens ? "the name is taken, or too many engines are open"
                                     : "no engine of that name is open");
    for (size_t i = 0; i < sizeof functions / sizeof functions[0]; i++)
        if (strcmp(request->words[0], functions[i].word) == 0)
            return request->slot->ranks && !functions[i].of_ranks
                       ? refuse(request, "ranks serve steps and close only")
                       : functions[i].function(request, answer);
    return refuse(request, "a request begins with open, weights, batch, steps, forward, "
                           "kernel_time, algorithms or close");
}

int bench_drive(void) {
    drive_engine engines[ENGINES] = {0};
    char *line = NULL;
    size_t room = 0;
    while (getline(&line, &room, stdin) > 0) {
        drive_request request = {0};
        yoke_json answer;
        char *rest = NULL;
        for (char *word = strtok_r(line, " \t\r\n", &rest); word && request.count < WORDS;
             word = strtok_r(NULL, " \t\r\n", &rest))
            request.words[request.count++] = word;
        yoke_json_begin(&answer);
        yoke_json_open(&answer, NULL, '{');
        yoke_status status = serve(engines, &request, &answer);
        if (status != YOKE_OK)
            yoke_json_text(&answer, "error", request.mistake ? request.mistake : yoke_last_error());
        yoke_json_close(&answer, '}');
        status = cli_print_json(&answer, stdout);
        fflush(stdout);
        if (status != YOKE_OK) break;
    }
    free(line);
    for (int i = 0; i < ENGINES; i++)
        clear(&engines[i]);
    return 0;
}
