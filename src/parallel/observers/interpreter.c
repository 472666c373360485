/* SPDX-License-Identifier: Apache-2.0 */
/* What Python adds to the algorithm of nn.DataParallel: replicas that are rebuilt, and threads that
 * are started, in every forward; and the interpreter's lock, which one thread at a time holds to
 * call a layer. Kernels run without it, and so does backward, which PyTorch runs in C++. With this
 * observer alone a step allocates memory: for its threads.
 *
 * Python's lock is a mutex; a thread that holds it spins for the time that Python would take. It
 * spins, as Python does, because a sleeping thread wakes up later than a layer's time. */
#include <pthread.h>
#include <stdlib.h>

#include "parallel/observers/observers.h"

#define LONGEST 1e6 /* us */

/* The thread that runs the forward of one lane. */
typedef struct python_thread {
    yoke_step *step;
    int lane;
    yoke_device_scope scope;
    int layers; /* of the operation that is called next */
} python_thread;

struct yoke_interpreter {
    pthread_mutex_t lock;
    uint64_t call_ns; /* for which a layer's call holds the lock */
    python_thread threads[];
};

/* Life. */

static yoke_status check(const yoke_step *step) {
    const yoke_data_parallel_options *options = &step->options;
    if (!(options->interpreter_us >= 0 && options->interpreter_us <= LONGEST))
        return FAIL(YOKE_ERROR_ARGUMENT, "interpreter_us is %g: 0 to %g microseconds",
                    options->interpreter_us, LONGEST);
    if (step->queued)
        return FAIL(YOKE_ERROR_ARGUMENT,
                    "the python schedule is for CPU devices, and %s is a GPU; the classic schedule "
                    "runs nn.DataParallel's stages there, without Python's costs",
                    yoke_device_name(yoke_devices_at(step->devices, 0)));
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

yoke_status yoke_interpreter_create(yoke_step *step) {
    if (step->options.schedule != YOKE_SCHEDULE_PYTHON) return YOKE_OK;
    TRY(check(step));
    size_t count = (size_t)step->count;
    struct yoke_interpreter *made = yoke_calloc(1, sizeof *made + count * sizeof made->threads[0]);
    if (made == NULL) return FAIL_MEMORY(sizeof *made, "the interpreter's lock");
    pthread_mutex_init(&made->lock, NULL);
    made->call_ns = (uint64_t)(1e3 * step->options.interpreter_us);
    for (int k = 0; k < step->count; k++)
        made->threads[k] = (python_thread){.step = step, .lane = k};
    step->watch.interpreter = made;
    return YOKE_OK;
}

void yoke_interpreter_destroy(struct yoke_interpreter *interpreter) {
    if (interpreter == NULL) return;
    pthread_mutex_destroy(&interpreter->lock);
    yoke_free(interpreter);
}

/* The lock. */

static void spin(uint64_t ns) {
    uint64_t until = yoke_now_ns() + ns;
    while (yoke_now_ns() < until)
        continue;
}

/* A bar of Python ends now. */
static void record(const yoke_step *step, int lane, uint64_t begin_ns) {
    yoke_trace_span(step->watch.trace, lane, YOKE_STAGE_PYTHON, step->steps, begin_ns, 0);
}

/* The span of the call ends before the next thread can take the lock: it is the cause of that
 * thread's wait. */
static void call_layers(void *context) {
    const python_thread *thread = context;
    yoke_step *step = thread->step;
    struct yoke_interpreter *interpreter = step->watch.interpreter;
    yoke_span wait = yoke_wait_begin(YOKE_STAGE_PYTHON, YOKE_NO_BUCKET);
    if (pthread_mutex_trylock(&interpreter->lock) != 0) {
        pthread_mutex_lock(&interpreter->lock);
        yoke_wait_end(step, thread->lane, &wait);
    }
    uint64_t begin_ns = yoke_trace_now();
    spin((uint64_t)thread->layers * interpreter->call_ns);
    record(step, thread->lane, begin_ns);
    pthread_mutex_unlock(&interpreter->lock);
}

/* The lock cuts the forward's bar in pieces. */
static void before_operation(void *context, int layers) {
    python_thread *thread = context;
    const yoke_open_bar *open = thread->step->lanes[thread->lane].open;
    if (open == NULL || open->bar->stage != YOKE_STAGE_FORWARD) return;
    thread->layers = layers;
    yoke_cut_bar(thread->step, thread->lane, call_layers, thread);
}

yoke_operation_hook yoke_interpreter_hook(const yoke_step *step, int lane) {
    if (step->watch.interpreter == NULL) return (yoke_operation_hook){NULL, NULL};
    return (yoke_operation_hook){before_operation, &step->watch.interpreter->threads[lane]};
}

/* Replicas. */

/* Those that the batch in flight gives rows to: lanes 0 to this number. One runs without threads.
 */
static int replicas_with_rows(const yoke_step *step) {
    int count = 0;
    for (int k = 0; k < step->count; k++)
        count += step->lanes[k].shard.rows > 0;
    return count >= 2 ? count : 0;
}

/* replicate() of PyTorch copies all weights, whatever the replicas hold, */
static void before_stage(yoke_step *step, const yoke_stage_def *stage) {
    yoke_watch *watch = &step->watch;
    watch->crew_lanes = stage->place == YOKE_ON_REPLICAS ? replicas_with_rows(step) : 0;
    watch->crew = watch->crew_lanes > 0 ? &yoke_observe_interpreter : NULL;
    if (stage->stage != YOKE_STAGE_REPLICATE) return;
    for (int k = 1; k < step->count; k++)
        step->lanes[k].weights_version = step->lanes[k].buffers_version = 0;
}

/* and makes a copy of every module for every replica, the root's included. The calling thread does
 * so, and no other thread of Python runs. */
static yoke_status after_stage(yoke_step *step, const yoke_stage_def *stage) {
    uint64_t begin_ns = yoke_trace_now();
    int replicas = replicas_with_rows(step), layers = yoke_model_layer_count(step->model);
    if (stage->stage != YOKE_STAGE_REPLICATE || replicas == 0) return YOKE_OK;
    spin((uint64_t)replicas * (uint64_t)layers * step->watch.interpreter->call_ns);
    record(step, 0, begin_ns);
    return YOKE_OK;
}

/* Threads. Worker 0 of the crew is the caller: worker k runs the job of lane k - 1. */

typedef struct crew_job {
    yoke_step *step;
    yoke_worker_job job;
    void *context;
} crew_job;

static yoke_status enter_thread(int worker, void *context) {
    python_thread *thread = &((struct yoke_interpreter *)context)->threads[worker - 1];
    yoke_device *device = thread->step->lanes[thread->lane].device;
    TRY(yoke_device_start_team(device));
    return yoke_device_enter(device, true, &thread->scope);
}

static void leave_thread(int worker, void *context) {
    python_thread *thread = &((struct yoke_interpreter *)context)->threads[worker - 1];
    yoke_device_leave(thread->step->lanes[thread->lane].device, &thread->scope);
}

static yoke_status run_job(int worker, void *context) {
    const crew_job *crew = context;
    return worker > 0 ? crew->job(worker - 1, crew->context) : YOKE_OK;
}

/* Starts a thread for each lane, runs the job in them, and joins them. The caller only waits. */
static yoke_status run_in_threads(yoke_step *step, int lanes, yoke_worker_job job, void *context,
                                  int *failed) {
    crew_job own = {step, job, context};
    yoke_workers *crew = NULL;
    yoke_workers_options options = {.count = lanes + 1,
                                    .spare_cores = -1, /* the caller shares the root's cores */
                                    .enter = enter_thread,
                                    .leave = leave_thread,
                                    .context = step->watch.interpreter};
    uint64_t begin_ns = yoke_trace_now();
    TRY(yoke_workers_create(&crew, &options));
    record(step, 0, begin_ns);
    yoke_status status = yoke_workers_run(crew, lanes + 1, run_job, &own, failed);
    if (failed != NULL && *failed > 0) --*failed;
    yoke_error error = yoke_error_take(status);
    yoke_idle_end(step, 0); /* the root's lane has waited for the last thread */
    begin_ns = yoke_trace_now();
    yoke_workers_destroy(crew);
    record(step, 0, begin_ns);
    return yoke_error_restore(&error);
}

const yoke_observer yoke_observe_interpreter = {
    .before_stage = before_stage, .after_stage = after_stage, .run = run_in_threads};
