/* SPDX-License-Identifier: Apache-2.0 */
/* Times the calls of a step without the engine: by the host's clock where calls finish before they
 * return, by the device's events around recordings where calls are queued. Restores the running
 * statistics. */
#include <stdlib.h>

#include "bench/floor/kernel_time.h"

/* Recordings: the device never waits for the host to launch a kernel. */

static yoke_status replay_timed(yoke_recording *recording, yoke_device_event *const marks[2],
                                int replays, double *best_ms) {
    for (int i = 0; i < replays; i++) {
        double milliseconds = 0;
        TRY(yoke_device_event_record(marks[0], YOKE_STREAM_COMPUTE));
        TRY(yoke_recording_run(recording));
        TRY(yoke_device_event_record(marks[1], YOKE_STREAM_COMPUTE));
        TRY(yoke_device_event_synchronize(marks[1]));
        TRY(yoke_device_event_elapsed(marks[0], marks[1], &milliseconds));
        if (i == 0 || milliseconds < *best_ms) *best_ms = milliseconds;
    }
    return YOKE_OK;
}

static yoke_status time_recorded(yoke_device *device, yoke_status (*queue)(void *), void *context,
                                 int replays, double *best_ms) {
    yoke_device_event *marks[2] = {NULL, NULL};
    yoke_recording *recording = NULL;
    yoke_status status = yoke_device_event_create_timed(&marks[0], device);
    if (status == YOKE_OK) status = yoke_device_event_create_timed(&marks[1], device);
    if (status == YOKE_OK) status = yoke_recording_begin(device);
    if (status == YOKE_OK) status = yoke_recording_end(device, queue(context), &recording);
    if (status == YOKE_OK) status = replay_timed(recording, marks, replays, best_ms);
    yoke_recording_destroy(recording);
    yoke_device_event_destroy(marks[1]);
    yoke_device_event_destroy(marks[0]);
    return status;
}

yoke_status bench_time_calls(yoke_device *device, yoke_status (*queue)(void *), void *context,
                             int repeat, double *best_ms) {
    if (yoke_device_records(device)) return time_recorded(device, queue, context, repeat, best_ms);
    for (int i = 0; i < repeat; i++) {
        TRY(yoke_device_synchronize(device));
        uint64_t begin = yoke_now_ns();
        TRY(queue(context));
        TRY(yoke_device_synchronize(device));
        double spent = (double)(yoke_now_ns() - begin) * 1e-6;
        if (i == 0 || spent < *best_ms) *best_ms = spent;
    }
    return YOKE_OK;
}

/* Single calls. */

/* One call of a step. Before each repetition the memory that it changes in place is restored, so
 * that values neither grow nor vanish. */
typedef struct timed_call {
    yoke_plan *plan; /* NULL: the subject's action has no plan */
    bench_call_subject subject;
    void *changed;
    size_t changed_bytes;
} timed_call;

/* Times either one pass over the calls with many runs of each, or many passes with one run of
 * each. */
typedef struct stopwatch {
    yoke_program *program;
    yoke_plan_step step;
    int passes, runs;
    void *backup;
    double *best_ms; /* per call, in the order of a step */
    int call_count;  /* in this pass so far */
    bool queues;     /* calls are only queued: the whole pass is one recording, timed as one */
    bench_kernel_call *listed; /* [capacity]: the calls, where backward is timed in its parts */
    int capacity;
    bool lists, describes; /* describes: no call runs */
    const yoke_replica_memory *memory;
} stopwatch;

static yoke_status run_call(const stopwatch *watch, const timed_call *call) {
    const bench_call_subject *subject = &call->subject;
    if (call->plan == NULL)
        return yoke_program_action(watch->program, subject->action, &watch->step);
    if (!subject->backward) return yoke_plan_forward(call->plan, &watch->step);
    return subject->part == YOKE_FORWARD ? yoke_plan_backward(call->plan, &watch->step)
                                         : yoke_plan_backward_part(call->plan, subject->part);
}

static yoke_status time_on_host(const stopwatch *watch, const timed_call *call, double *best) {
    yoke_device *device = watch->program->device;
    bool restores = call->changed_bytes > 0 && watch->runs > 1;
    if (restores)
        TRY(yoke_device_copy(device, YOKE_STREAM_COMPUTE, watch->backup, device, call->changed,
                             call->changed_bytes));
    for (int i = 0; i < watch->runs; i++) {
        if (restores)
            TRY(yoke_device_copy(device, YOKE_STREAM_COMPUTE, call->changed, device, watch->backup,
                                 call->changed_bytes));
        TRY(yoke_device_synchronize(device));
        uint64_t begin = yoke_now_ns();
        TRY(run_call(watch, call));
        TRY(yoke_device_synchronize(device));
        double spent = (double)(yoke_now_ns() - begin) * 1e-6;
        if (*best == 0 || spent < *best) *best = spent;
    }
    return YOKE_OK;
}

typedef struct repeated_call {
    const stopwatch *watch;
    const timed_call *call;
} repeated_call;

static yoke_status queue_repeated(void *context) {
    const repeated_call *repeated = context;
    for (int i = 0; i < repeated->watch->runs; i++)
        TRY(run_call(repeated->watch, repeated->call));
    return YOKE_OK;
}

/* A GPU's time does not depend on the values, so memory changed in place is restored once, at the
 * end. */
static yoke_status time_on_device(const stopwatch *watch, const timed_call *call, double *best) {
    yoke_device *device = watch->program->device;
    repeated_call repeated = {watch, call};
    if (call->changed_bytes > 0)
        TRY(yoke_device_copy(device, YOKE_STREAM_COMPUTE, watch->backup, device, call->changed,
                             call->changed_bytes));
    TRY(time_recorded(device, queue_repeated, &repeated, 2, best));
    *best /= watch->runs;
    if (call->changed_bytes == 0) return YOKE_OK;
    return yoke_device_copy(device, YOKE_STREAM_COMPUTE, call->changed, device, watch->backup,
                            call->changed_bytes);
}

static yoke_status time_call(stopwatch *watch, const timed_call *call) {
    if (watch->call_count < watch->capacity)
        bench_call_describe(watch->program, &call->subject, &watch->listed[watch->call_count]);
    double *best = &watch->best_ms[watch->call_count++];
    if (watch->describes) return YOKE_OK;
    if (watch->queues) return run_call(watch, call);
    return yoke_device_records(watch->program->device) ? time_on_device(watch, call, best)
                                                       : time_on_host(watch, call, best);
}

static timed_call action_call(const yoke_program *program, const yoke_replica_memory *memory,
                              const yoke_action *action) {
    timed_call call = {.subject = {.node = action->node, .action = action}};
    if (action->kind == YOKE_ACTION_ACCUMULATE || action->kind == YOKE_ACTION_SUM) {
        bool sum = action->kind == YOKE_ACTION_SUM;
        call.changed = action->to_address;
        call.changed_bytes =
            sum ? action->elements * sizeof(float) : program->layouts[action->value].bytes;
    }
    if (action->kind != YOKE_ACTION_BACKWARD) return call;
    const yoke_node_places *places = &program->places[action->node];
    call.plan = program->plans[action->node];
    call.subject = (bench_call_subject){.node = action->node, .backward = true};
    int output = program->model->nodes[action->node].output;
    yoke_place written = places->input_gradients[0];
    if (places->adds_input_gradient) {
        int input = program->model->nodes[action->node].inputs[0];
        call.changed = yoke_program_address(program, memory, written);
        call.changed_bytes = program->layouts[input].bytes;
        return call;
    }
    bool over_output = written == program->values[output];
    if (written >= 0 && (over_output || written == places->output_gradient)) {
        call.changed = yoke_program_address(program, memory, written);
        call.changed_bytes = program->layouts[output].bytes;
    }
    return call;
}

/* The parts in the order of backward. */
static yoke_status time_parts(stopwatch *watch, timed_call *call) {
    static const yoke_direction parts[] = {YOKE_BACKWARD_WEIGHTS, YOKE_BACKWARD_DATA};
    for (int i = 0; i < 2; i++) {
        call->subject.part = parts[i];
        if (yoke_plan_algorithm(call->plan, parts[i]) != NULL) TRY(time_call(watch, call));
    }
    return YOKE_OK;
}

static yoke_status time_backward(stopwatch *watch, const yoke_replica_memory *memory) {
    for (int i = 0; i < watch->program->action_count; i++) {
        timed_call call = action_call(watch->program, memory, &watch->program->actions[i]);
        bool parts = watch->lists && call.plan != NULL && yoke_plan_has_parts(call.plan);
        TRY(parts ? time_parts(watch, &call) : time_call(watch, &call));
    }
    return YOKE_OK;
}

/* A node's plan may have computed it. */
static yoke_status time_loss(stopwatch *watch) {
    timed_call call = {.plan = watch->program->loss, .subject.node = YOKE_NONE};
    if (watch->program->loss_node != YOKE_NONE) return YOKE_OK;
    TRY(time_call(watch, &call));
    call.subject.backward = true;
    return time_call(watch, &call);
}

static yoke_status run_pass(void *context) {
    stopwatch *watch = context;
    watch->call_count = 0;
    const yoke_program *program = watch->program;
    for (int i = 0; i < program->model->node_count; i++) {
        const yoke_node *node = &program->model->nodes[i];
        timed_call call = {.plan = program->plans[i], .subject.node = i};
        if (!yoke_program_computes(program, i)) continue;
        if (program->values[node->output] == program->values[node->inputs[0]]) {
            call.changed =
                yoke_program_address(program, watch->memory, program->values[node->output]);
            call.changed_bytes = program->layouts[node->output].bytes;
        }
        TRY(time_call(watch, &call));
    }
    TRY(time_loss(watch));
    return time_backward(watch, watch->memory);
}

/* For timing in order on a device that records, the whole step is one recording. */
static yoke_status time_all(stopwatch *watch, bool in_order) {
    if (in_order && yoke_device_records(watch->program->device)) {
        watch->queues = true;
        TRY(time_recorded(watch->program->device, run_pass, watch, watch->passes,
                          &watch->best_ms[0]));
        watch->call_count = 1;
        return YOKE_OK;
    }
    for (int pass = 0; pass < watch->passes; pass++)
        TRY(run_pass(watch));
    return YOKE_OK;
}

/* The size of the largest value or parameter, which a call could change in place. */
static size_t backup_bytes(const yoke_program *program) {
    size_t largest = 0;
    for (int i = 0; i < program->model->value_count; i++)
        if (program->layouts[i].bytes > largest) largest = program->layouts[i].bytes;
    for (int i = 0; i < program->model->tensor_count; i++)
        if (program->parameters[i].bytes > largest) largest = program->parameters[i].bytes;
    return largest;
}

static yoke_status open_stopwatch(stopwatch *watch, yoke_replica *replica) {
    const yoke_program *program = watch->program;
    size_t calls = (size_t)(program->model->node_count + 2 + 2 * program->action_count);
    watch->best_ms = calloc(calls, sizeof *watch->best_ms);
    if (watch->best_ms == NULL) return FAIL_MEMORY(calls * sizeof *watch->best_ms, "a stopwatch");
    return yoke_device_allocate(replica->options.device, backup_bytes(program),
                                "a backup of a value", &watch->backup);
}

static yoke_status time_replica(yoke_replica *replica, int rows, stopwatch *watch, bool in_order) {
    if (rows < 1 || watch->passes < 1 || watch->runs < 1)
        return FAIL(YOKE_ERROR_ARGUMENT, "timing %d rows %d times: both must be at least 1", rows,
                    watch->passes < 1 ? watch->passes : watch->runs);
    watch->step =
        (yoke_plan_step){.loss_scale = 1.0f / (float)rows, .alone = true, .loss_only = true};
    watch->memory = &replica->memory;
    TRY(yoke_replica_prepare(replica, rows, true));
    replica->current = watch->program = yoke_replica_program(replica, rows, true);
    replica->last_step = watch->step;
    float *saved = NULL;
    yoke_status status = yoke_replica_save_buffers(replica, &saved);
    if (status == YOKE_OK) status = open_stopwatch(watch, replica);
    if (status == YOKE_OK) status = yoke_device_begin_step(replica->options.device, &watch->step);
    if (status == YOKE_OK) status = time_all(watch, in_order);
    if (status == YOKE_OK) status = yoke_replica_restore_buffers(replica, saved);
    yoke_device_free(replica->options.device, watch->backup);
    free(saved);
    return status;
}

yoke_status bench_replica_time(yoke_replica *replica, int rows, bench_timing timing, int repeat,
                               double *milliseconds) {
    bool in_order = timing == BENCH_KERNELS_IN_ORDER;
    stopwatch watch = {.passes = in_order ? repeat : 1, .runs = in_order ? 1 : repeat};
    yoke_status status = time_replica(replica, rows, &watch, in_order);
    *milliseconds = 0;
    for (int i = 0; i < watch.call_count; i++)
        *milliseconds += watch.best_ms[i];
    free(watch.best_ms);
    return status;
}

yoke_status bench_replica_calls(yoke_replica *replica, int rows, int repeat,
                                bench_kernel_call *calls, int capacity, int *count) {
    stopwatch watch = {.passes = 1,
                       .runs = repeat > 0 ? repeat : 1,
                       .lists = true,
                       .describes = repeat == 0,
                       .listed = calls,
                       .capacity = capacity};
    yoke_status status = time_replica(replica, rows, &watch, false);
    *count = watch.call_count;
    for (int i = 0; i < watch.call_count && i < capacity; i++)
        calls[i].milliseconds = watch.best_ms[i];
    free(watch.best_ms);
    return status;
}
