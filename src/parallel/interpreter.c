/* SPDX-License-Identifier: Apache-2.0 */
/* Python's lock is a mutex; a thread that holds it spins for the time that Python would take. It
 * spins, as Python does, because a sleeping thread wakes up later than a layer's time. */
#include "parallel/interpreter.h"

#include <math.h>
#include <pthread.h>
#include <stdlib.h>

#include "parallel/engine.h"

#define LONGEST 1e6 /* us */

/* Of one lane. */
typedef struct python_thread {
    yoke_data_parallel *parallel;
    int lane;
    yoke_device_scope scope;  /* of the thread of this forward */
    yoke_stage_span *forward; /* in progress; NULL: none */
} python_thread;

struct yoke_interpreter {
    pthread_mutex_t lock;
    uint64_t call_ns; /* for which a layer's call holds the lock */
    python_thread threads[];
};

/* Life. */

static yoke_status check(const yoke_data_parallel *parallel) {
    const yoke_data_parallel_options *options = &parallel->options;
    if (!(options->interpreter_us >= 0 && options->interpreter_us <= LONGEST))
        return FAIL(YOKE_ERROR_ARGUMENT, "interpreter_us is %g: 0 to %g microseconds",
                    options->interpreter_us, LONGEST);
    if (parallel->queued)
        return FAIL(YOKE_ERROR_ARGUMENT,
                    "the python schedule is for CPU devices, and %s is a GPU; the classic schedule "
                    "runs nn.DataParallel's stages there, without Python's costs",
                    yoke_device_name(yoke_devices_at(parallel->devices, 0)));
    if (options->synchronize_batch_norm)
        return FAIL(YOKE_ERROR_ARGUMENT,
                    "synchronize_batch_norm with the python schedule: nn.DataParallel has none; "
                    "take another schedule");
    if (options->shards > 0)
        return FAIL(YOKE_ERROR_ARGUMENT,
                    "shards %d with the python schedule: nn.DataParallel cuts a batch into as many "
                    "shards as devices; take another schedule",
                    options->shards);
    return YOKE_OK;
}

yoke_status yoke_interpreter_create(yoke_data_parallel *parallel) {
    if (parallel->options.schedule != YOKE_SCHEDULE_PYTHON) return YOKE_OK;
    TRY(check(parallel));
    size_t count = (size_t)parallel->count;
    yoke_interpreter *made = calloc(1, sizeof *made + count * sizeof made->threads[0]);
    if (made == NULL) return FAIL_MEMORY(sizeof *made, "the interpreter's lock");
    pthread_mutex_init(&made->lock, NULL);
    made->call_ns = (uint64_t)(1e3 * parallel->options.interpreter_us);
    for (int k = 0; k < parallel->count; k++)
        made->threads[k] = (python_thread){.parallel = parallel, .lane = k};
    parallel->interpreter = made;
    return YOKE_OK;
}

void yoke_interpreter_destroy(yoke_interpreter *interpreter) {
    if (interpreter == NULL) return;
    pthread_mutex_destroy(&interpreter->lock);
    free(interpreter);
}

/* The lock. */

static void spin(uint64_t ns) {
    uint64_t until = yoke_now_ns() + ns;
    while (yoke_now_ns() < until)
        continue;
}

static void record(const yoke_data_parallel *parallel, int lane, uint64_t begin_ns) {
    yoke_trace_span(parallel->trace, lane, YOKE_STAGE_PYTHON, parallel->steps, begin_ns, 0);
}

/* The span of the call ends before the next thread can take the lock: it is the cause of that
 * thread's wait. */
static void call_layers(const python_thread *thread, int layers) {
    const yoke_data_parallel *parallel = thread->parallel;
    yoke_interpreter *interpreter = parallel->interpreter;
    yoke_wait wait = {yoke_trace_now(), YOKE_STAGE_PYTHON, YOKE_NO_BUCKET};
    if (pthread_mutex_trylock(&interpreter->lock) != 0) {
        pthread_mutex_lock(&interpreter->lock);
        yoke_wait_end(parallel, thread->lane, &wait);
    }
    uint64_t begin_ns = yoke_trace_now();
    spin((uint64_t)layers * interpreter->call_ns);
    record(parallel, thread->lane, begin_ns);
    pthread_mutex_unlock(&interpreter->lock);
}

static void before_operation(void *context, int layers) {
    python_thread *thread = context;
    yoke_stage_span *forward = thread->forward;
    if (forward == NULL) return;
    yoke_straggle(thread->parallel, thread->lane, forward->begin_ns);
    (void)yoke_stage_end(thread->parallel, forward); /* where devices share memory: cannot fail */
    call_layers(thread, layers);
    forward->begin_ns = yoke_trace_now();
}

yoke_operation_hook yoke_interpreter_hook(const yoke_data_parallel *parallel, int lane) {
    if (parallel->interpreter == NULL) return (yoke_operation_hook){NULL, NULL};
    return (yoke_operation_hook){before_operation, &parallel->interpreter->threads[lane]};
}

void yoke_interpreter_begin(const yoke_data_parallel *parallel, yoke_stage_span *forward) {
    if (parallel->interpreter == NULL) return;
    parallel->interpreter->threads[forward->lane].forward = forward;
}

void yoke_interpreter_end(const yoke_data_parallel *parallel, int lane) {
    if (parallel->interpreter == NULL) return;
    parallel->interpreter->threads[lane].forward = NULL;
}

/* Replicas. */

int yoke_interpreter_replicas(const yoke_data_parallel *parallel) {
    int replicas = 0;
    if (parallel->interpreter == NULL) return 0;
    for (int k = 0; k < parallel->count; k++)
        replicas += parallel->lanes[k].shard.rows > 0;
    return replicas;
}

void yoke_interpreter_forget(yoke_data_parallel *parallel) {
    for (int k = 1; parallel->interpreter != NULL && k < parallel->count; k++)
        parallel->lanes[k].weights_version = parallel->lanes[k].buffers_version = 0;
}

/* replicate() of PyTorch makes a copy of every module for every replica, the root's included. The
 * calling thread does so, and no other thread of Python runs. */
void yoke_interpreter_rebuild(yoke_data_parallel *parallel) {
    int replicas = yoke_interpreter_replicas(parallel);
    uint64_t begin_ns = yoke_trace_now();
    if (replicas < 2) return;
    int layers = yoke_model_layer_count(parallel->model);
    spin((uint64_t)replicas * (uint64_t)layers * parallel->interpreter->call_ns);
    record(parallel, 0, begin_ns);
}

/* Threads. Worker 0 of the crew is the caller: worker k runs the job of lane k - 1. */

typedef struct crew_job {
    yoke_data_parallel *parallel;
    yoke_worker_job job;
    void *context;
} crew_job;

static yoke_status enter_thread(int worker, void *context) {
    python_thread *thread = &((yoke_interpreter *)context)->threads[worker - 1];
    yoke_device *device = thread->parallel->lanes[thread->lane].device;
    TRY(yoke_device_start_team(device));
    return yoke_device_enter(device, true, &thread->scope);
}

static void leave_thread(int worker, void *context) {
    python_thread *thread = &((yoke_interpreter *)context)->threads[worker - 1];
    yoke_device_leave(thread->parallel->lanes[thread->lane].device, &thread->scope);
}

static yoke_status run_job(int worker, void *context) {
    const crew_job *crew = context;
    return worker > 0 ? crew->job(worker - 1, crew->context) : YOKE_OK;
}

yoke_status yoke_interpreter_run(yoke_data_parallel *parallel, int lanes, yoke_worker_job job,
                                 void *context, int *failed) {
    crew_job own = {parallel, job, context};
    yoke_workers *crew = NULL;
    yoke_workers_options options = {.count = lanes + 1,
                                    .spare_cores = -1, /* the caller shares the root's cores */
                                    .enter = enter_thread,
                                    .leave = leave_thread,
                                    .context = parallel->interpreter};
    uint64_t begin_ns = yoke_trace_now();
    TRY(yoke_workers_create(&crew, &options));
    record(parallel, 0, begin_ns);
    yoke_status status = yoke_workers_run(crew, lanes + 1, run_job, &own, failed);
    if (failed != NULL && *failed > 0) --*failed;
    yoke_error error = yoke_error_take(status);
    yoke_idle_end(parallel, 0); /* the root's lane has waited for the last thread */
    begin_ns = yoke_trace_now();
    yoke_workers_destroy(crew);
    record(parallel, 0, begin_ns);
    return yoke_error_restore(&error);
}
