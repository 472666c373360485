/* SPDX-License-Identifier: Apache-2.0 */
/* Opens and closes a net; who has the turn; what other threads ask. */
#include "net/net.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define LINE_BYTES 512
#define DEFAULT_BATCH 64

/* The log. */

void yoke_net_log(yoke_net *net, yoke_log_level level, const char *format, ...) {
    char line[LINE_BYTES];
    va_list arguments;
    if (net->options.log == NULL) return;
    va_start(arguments, format);
    vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    pthread_mutex_lock(&net->log_turn);
    net->options.log(net->options.payload, level, line);
    pthread_mutex_unlock(&net->log_turn);
}

static void log_devices(yoke_net *net) {
    const char *note = yoke_devices_note(net->devices);
    if (note != NULL && note[0] != '\0') yoke_net_log(net, YOKE_LOG_DEBUG, "%s", note);
    for (int i = 0; i < yoke_devices_count(net->devices); i++) {
        yoke_device_info info = {.struct_size = sizeof info};
        if (yoke_devices_describe(net->devices, i, &info) == YOKE_OK)
            yoke_net_log(net, YOKE_LOG_INFO, "%s: %s, %d threads", info.name, info.description,
                         info.threads);
    }
}

static void log_algorithms(yoke_net *net) {
    const char *layer, *algorithm, *warning = yoke_data_parallel_algorithms_warning(net->engine);
    double milliseconds;
    for (int i = 0; net->options.log != NULL &&
                    yoke_data_parallel_algorithm(net->engine, i, &layer, &algorithm, &milliseconds);
         i++)
        yoke_net_log(net, YOKE_LOG_DEBUG, "%s: %s, %.3g ms", layer, algorithm, milliseconds);
    if (warning != NULL) yoke_net_log(net, YOKE_LOG_WARNING, "%s", warning);
}

static size_t training_bytes(const yoke_net *net) {
    size_t bytes = 0;
    for (int i = 0; i < yoke_data_parallel_device_count(net->engine); i++) {
        yoke_memory_report report = {.struct_size = sizeof report};
        if (yoke_data_parallel_memory(net->engine, i, &report) == YOKE_OK) bytes += report.total;
    }
    return bytes;
}

/* Options. */

static yoke_status keep_texts(yoke_net *net) {
    yoke_net_options *options = &net->options;
    const char **fields[] = {&options->devices, &options->cores, &options->algorithm_cache};
    for (size_t i = 0; i < sizeof fields / sizeof fields[0]; i++) {
        if (*fields[i] == NULL) continue;
        net->texts[i] = yoke_strdup(*fields[i]);
        if (net->texts[i] == NULL) return FAIL_MEMORY(strlen(*fields[i]) + 1, "an option");
        *fields[i] = net->texts[i];
    }
    return YOKE_OK;
}

static yoke_status load_engine_options(yoke_net *net) {
    static const yoke_data_parallel_options defaults = YOKE_DATA_PARALLEL_OPTIONS_INIT;
    const yoke_net_options *options = &net->options;
    yoke_data_parallel_options *engine = &net->engine_options;
    TRY(yoke_options_load(engine, sizeof *engine,
                          options->engine != NULL ? options->engine : &defaults,
                          "yoke_data_parallel_options"));
    if (engine->batch != 0 || engine->precision != YOKE_FLOAT32 || engine->seed != 0 ||
        engine->algorithm_cache != NULL || engine->measure_seconds != 0 || engine->inference)
        return FAIL(YOKE_ERROR_ARGUMENT,
                    "engine: the net sets batch, precision, seed, algorithm_cache, measure_seconds "
                    "and inference itself, from yoke_net_options: leave them 0");
    engine->batch = options->batch;
    engine->precision = options->precision;
    engine->seed = options->seed;
    engine->algorithm_cache = options->algorithm_cache;
    engine->measure_seconds = options->measure_seconds;
    engine->inference = options->inference;
    return YOKE_OK;
}

static yoke_status load_options(yoke_net *net, const yoke_net_options *given) {
    static const yoke_net_options defaults = YOKE_NET_OPTIONS_INIT;
    yoke_net_options *options = &net->options;
    TRY(yoke_options_load(options, sizeof *options, given != NULL ? given : &defaults,
                          "yoke_net_options"));
    if (options->batch < 0 || options->predictors < 0 || options->plans < 0)
        return FAIL(YOKE_ERROR_ARGUMENT, "batch %d, predictors %d, plans %d: none may be negative",
                    options->batch, options->predictors, options->plans);
    if (options->batch == 0) options->batch = DEFAULT_BATCH;
    TRY(load_engine_options(net));
    return keep_texts(net);
}

/* Life. */

static yoke_status open_engine(yoke_net *net) {
    yoke_devices_options list = {.struct_size = sizeof list,
                                 .list = net->options.devices,
                                 .threads = net->options.threads,
                                 .shards = net->engine_options.shards,
                                 .cores = net->options.cores};
    TRY(yoke_devices_open(&net->devices, &list));
    log_devices(net);
    TRY(yoke_data_parallel_create(&net->engine, net->model, net->devices, &net->optimizer,
                                  &net->engine_options));
    log_algorithms(net);
    return YOKE_OK;
}

/* What ends the net's calls. */
static yoke_cancel_scope use_requests(yoke_net *net) {
    yoke_cancel_scope before = yoke_cancel_add(&net->cancellation);
    (void)yoke_cancel_add(net->options.cancellation);
    return before;
}

static yoke_status build(yoke_net *net, const yoke_net_options *options) {
    TRY(yoke_pointer_check(net->model, "model"));
    TRY(load_options(net, options));
    TRY(yoke_optimizer_options_load(&net->optimizer, net->options.optimizer));
    net->options.optimizer = &net->optimizer;
    yoke_cancel_scope before = use_requests(net);
    yoke_status status = yoke_check_cancelled();
    if (status == YOKE_OK) status = open_engine(net);
    (void)yoke_cancel_enter(&before);
    return status;
}

yoke_status yoke_net_open(yoke_net **net, const yoke_model *model,
                          const yoke_net_options *options) {
    TRY(yoke_pointer_check(net, "net"));
    *net = NULL;
    yoke_net *made = yoke_calloc(1, sizeof *made);
    if (made == NULL) return FAIL_MEMORY(sizeof *made, "a net");
    made->process = getpid();
    made->model = model;
    pthread_mutex_init(&made->door, NULL); /* none of these can fail on Linux */
    pthread_cond_init(&made->passed, NULL);
    pthread_mutex_init(&made->log_turn, NULL);
    made->now =
        (yoke_net_progress){.loss = (double)NAN, .test_loss = (double)NAN, .test_accuracy = -1};
    atomic_init(&made->version, 1);
    yoke_status status = build(made, options);
    if (status != YOKE_OK) {
        yoke_error error = yoke_error_take(status);
        yoke_net_close(made);
        return yoke_error_restore(&error);
    }
    made->now.training_bytes = training_bytes(made);
    yoke_net_tell(made);
    *net = made;
    return YOKE_OK;
}

void yoke_net_close(yoke_net *net) {
    if (net == NULL || net->process != getpid()) return;
    yoke_net_close_predictors(net);
    yoke_data_parallel_destroy(net->engine);
    yoke_devices_close(net->devices);
    pthread_mutex_destroy(&net->log_turn);
    pthread_cond_destroy(&net->passed);
    pthread_mutex_destroy(&net->door);
    for (size_t i = 0; i < sizeof net->texts / sizeof net->texts[0]; i++)
        yoke_free(net->texts[i]);
    yoke_free(net);
}

/* Turns. */

bool yoke_net_try_turn(yoke_net *net) {
    pthread_mutex_lock(&net->door);
    bool is_mine = !net->is_taken;
    net->is_taken = true;
    pthread_mutex_unlock(&net->door);
    return is_mine;
}

void yoke_net_wait_for_turn(yoke_net *net) {
    struct timespec look = yoke_clock_after(YOKE_CANCEL_LOOK_NS);
    pthread_mutex_lock(&net->door);
    if (net->is_taken)
        (void)pthread_cond_clockwait(&net->passed, &net->door, CLOCK_MONOTONIC, &look);
    pthread_mutex_unlock(&net->door);
}

void yoke_net_pass_turn(yoke_net *net) {
    pthread_mutex_lock(&net->door);
    net->is_taken = false;
    pthread_cond_signal(&net->passed);
    pthread_mutex_unlock(&net->door);
}

static yoke_status await_turn(yoke_net *net) {
    while (!yoke_net_try_turn(net)) {
        TRY(yoke_check_cancelled());
        yoke_net_wait_for_turn(net);
    }
    atomic_store(&net->owner, pthread_self());
    return YOKE_OK;
}

yoke_status yoke_net_begin(yoke_net *net, const char *name, yoke_net_activity activity,
                           yoke_net_call *call) {
    if (net == NULL) return FAIL(YOKE_ERROR_ARGUMENT, "%s: the net is NULL", name);
    TRY(yoke_process_check(net->process, "this net"));
    if (atomic_load(&net->owner) == pthread_self())
        return FAIL(YOKE_ERROR_ARGUMENT,
                    "%s: a callback of this net calls it; let it call yoke_net_query and "
                    "yoke_net_cancel alone, or return first",
                    name);
    call->before = use_requests(net);
    yoke_status status = yoke_check_cancelled();
    if (status == YOKE_OK) status = await_turn(net);
    if (status != YOKE_OK) {
        (void)yoke_cancel_enter(&call->before);
        return status;
    }
    net->now.activity = activity;
    yoke_net_tell(net);
    return YOKE_OK;
}

yoke_status yoke_net_end(yoke_net *net, const yoke_net_call *call, yoke_status status) {
    net->now.activity = YOKE_NET_IDLE;
    net->now.training_bytes = training_bytes(net);
    net->now.steps = 0;
    yoke_net_tell(net);
    atomic_store(&net->owner, 0);
    yoke_net_pass_turn(net);
    (void)yoke_cancel_enter(&call->before);
    return status;
}

yoke_status yoke_net_check_trains(const yoke_net *net, const char *name) {
    if (!net->options.inference) return YOKE_OK;
    return FAIL(YOKE_ERROR_ARGUMENT,
                "%s: this net only predicts: open one without options.inference to train", name);
}

bool yoke_net_has_gpus(const yoke_net *net) {
    return !yoke_devices_share_memory(net->devices);
}

/* Questions. */

void yoke_net_tell(yoke_net *net) {
    YOKE_PUBLISH(&net->published, &net->now);
}

yoke_status yoke_net_query(const yoke_net *net, yoke_net_info *info) {
    yoke_net_progress now;
    TRY(yoke_pointer_check(net, "net"));
    YOKE_PUBLISHED_READ(&net->published, &now);
    yoke_net_info own = {.struct_size = sizeof own,
                         .activity = (yoke_net_activity)now.activity,
                         .step = now.step,
                         .steps = now.steps,
                         .epoch = now.epoch,
                         .loss = now.loss,
                         .test_loss = now.test_loss,
                         .test_accuracy = now.test_accuracy,
                         .seconds = (double)(now.step_ns - now.begin_ns) * 1e-9,
                         .devices = yoke_data_parallel_device_count(net->engine),
                         .training_bytes = (size_t)now.training_bytes};
    yoke_net_describe_predictors(net, &own);
    return yoke_options_store(info, &own, sizeof own, "yoke_net_info");
}

void yoke_net_cancel(yoke_net *net) {
    if (net != NULL) yoke_cancel(&net->cancellation);
}

void yoke_net_resume(yoke_net *net) {
    if (net != NULL) yoke_cancellation_reset(&net->cancellation);
}

yoke_data_parallel *yoke_net_engine(yoke_net *net) {
    return net != NULL ? net->engine : NULL;
}
