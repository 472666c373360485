/* Looking closely at a replica: where values stop being finite, and how long each call takes alone.
 * Both run plans one by one and leave the running statistics as they were. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "model/program.h"

/* Running statistics, put aside. */

static yoke_status save_buffers(const yoke_replica *replica, float **saved) {
    size_t bytes = replica->flat->buffer_elements * sizeof **saved;
    *saved = malloc(bytes + 1);
    if (*saved == NULL) return FAIL_MEMORY(bytes, "a copy of the running statistics");
    if (bytes == 0) return YOKE_OK;
    return yoke_device_download(replica->options.device, YOKE_STREAM_COMPUTE, *saved,
                                replica->memory.buffers, bytes);
}

static yoke_status restore_buffers(const yoke_replica *replica, const float *saved) {
    size_t bytes = replica->flat->buffer_elements * sizeof *saved;
    if (bytes == 0) return YOKE_OK;
    return yoke_device_upload(replica->options.device, YOKE_STREAM_COMPUTE, replica->memory.buffers,
                              saved, bytes);
}

/* The first value that is not finite. */

struct probe {
    const yoke_replica *replica;
    void *plain; /* on the device */
    float *host;
};

static size_t value_elements(const yoke_replica *replica, yoke_dims dims) {
    return (size_t)replica->current->rows * (size_t)dims.channels * (size_t)dims.height *
           (size_t)dims.width;
}

static yoke_status is_finite(const struct probe *probe, int value, yoke_dims dims, bool *finite) {
    const yoke_replica *replica = probe->replica;
    const yoke_program *program = replica->current;
    const int64_t shape[] = {program->rows, dims.channels, dims.height, dims.width};
    size_t count = value_elements(replica, dims);
    const void *from = yoke_program_address(program, &replica->memory, program->values[value]);
    yoke_layout plain;
    TRY(yoke_layout_plain(program->device, shape, 4, &plain));
    TRY(yoke_layout_convert(program->device, &plain, probe->plain, &program->layouts[value], from));
    TRY(yoke_device_download(program->device, YOKE_STREAM_COMPUTE, probe->host, probe->plain,
                             count * sizeof(float)));
    *finite = true;
    for (size_t i = 0; i < count; i++)
        *finite = *finite && isfinite(probe->host[i]);
    return YOKE_OK;
}

/* Runs forward again: an activation lives in the arena only until its last reader. */
static yoke_status search(const struct probe *probe, const char **name) {
    const yoke_replica *replica = probe->replica;
    const yoke_program *program = replica->current;
    const yoke_model *model = replica->model;
    bool finite;
    TRY(is_finite(probe, 0, yoke_dims_of(model->input), &finite));
    if (!finite) *name = "input";
    for (int i = 0; i < model->node_count && *name == NULL; i++) {
        const yoke_node *node = &model->nodes[i];
        yoke_status status = yoke_plan_forward(program->plans[i], &replica->last_step);
        finite = status != YOKE_ERROR_NUMERIC; /* a batch norm's statistics can overflow */
        if (status == YOKE_OK)
            status = is_finite(probe, node->output, node->operation.output, &finite);
        if (!finite)
            *name = node->operation.name;
        else if (status != YOKE_OK)
            return status;
    }
    return YOKE_OK;
}

static size_t largest_value(const yoke_replica *replica) {
    const yoke_model *model = replica->model;
    size_t largest = value_elements(replica, yoke_dims_of(model->input));
    for (int i = 0; i < model->node_count; i++) {
        size_t elements = value_elements(replica, model->nodes[i].operation.output);
        if (elements > largest) largest = elements;
    }
    return largest;
}

const char *yoke_replica_first_nonfinite(yoke_replica *replica) {
    if (replica->current == NULL) return NULL;
    const char *name = NULL;
    float *saved = NULL;
    struct probe probe = {.replica = replica};
    size_t bytes = largest_value(replica) * sizeof(float);
    probe.host = malloc(bytes);
    yoke_status status =
        yoke_device_allocate(replica->options.device, bytes, "a look at a value", &probe.plain);
    if (status == YOKE_OK) status = save_buffers(replica, &saved);
    if (status == YOKE_OK && probe.host != NULL) {
        if (search(&probe, &name) != YOKE_OK) name = NULL;
        restore_buffers(replica, saved);
    }
    free(saved);
    yoke_device_free(replica->options.device, probe.plain);
    free(probe.host);
    return name;
}

/* Every call by itself. */

/* One call of a step. What it changes in place is put back before every repetition, so that values
 * neither grow nor vanish. */
typedef struct timed_call {
    yoke_plan *plan; /* NULL: an action that is no plan's */
    bool backward;
    const yoke_action *action;
    void *changed;
    size_t changed_bytes;
} timed_call;

/* Either one pass over the calls, each run many times in a row, or many passes with one run each.
 */
typedef struct stopwatch {
    yoke_program *program;
    yoke_plan_step step;
    int passes, runs;
    void *backup;
    uint64_t *best_ns; /* per call, in the order of a step */
    int call_count;    /* so far in this pass */
} stopwatch;

static yoke_status run_call(const stopwatch *watch, const timed_call *call) {
    if (call->plan == NULL) return yoke_program_action(watch->program, call->action, &watch->step);
    return call->backward ? yoke_plan_backward(call->plan, &watch->step)
                          : yoke_plan_forward(call->plan, &watch->step);
}

static yoke_status time_call(stopwatch *watch, const timed_call *call) {
    yoke_device *device = watch->program->device;
    uint64_t *best = &watch->best_ns[watch->call_count++];
    bool put_back = call->changed_bytes > 0 && watch->runs > 1;
    if (put_back)
        TRY(yoke_device_copy(device, YOKE_STREAM_COMPUTE, watch->backup, device, call->changed,
                             call->changed_bytes));
    for (int i = 0; i < watch->runs; i++) {
        if (put_back)
            TRY(yoke_device_copy(device, YOKE_STREAM_COMPUTE, call->changed, device, watch->backup,
                                 call->changed_bytes));
        TRY(yoke_device_synchronize(device));
        uint64_t begin = yoke_now_ns();
        TRY(run_call(watch, call));
        TRY(yoke_device_synchronize(device));
        uint64_t spent = yoke_now_ns() - begin;
        if (*best == 0 || spent < *best) *best = spent;
    }
    return YOKE_OK;
}

static yoke_status time_forward(stopwatch *watch, const yoke_replica_memory *memory) {
    const yoke_program *program = watch->program;
    for (int i = 0; i < program->model->node_count; i++) {
        const yoke_node *node = &program->model->nodes[i];
        timed_call call = {.plan = program->plans[i]};
        if (program->values[node->output] == program->values[node->inputs[0]]) {
            call.changed = yoke_program_address(program, memory, program->values[node->output]);
            call.changed_bytes = program->layouts[node->output].bytes;
        }
        TRY(time_call(watch, &call));
    }
    return YOKE_OK;
}

static yoke_status time_loss(stopwatch *watch) {
    yoke_plan *loss = watch->program->loss;
    TRY(time_call(watch, &(timed_call){.plan = loss}));
    return time_call(watch, &(timed_call){.plan = loss, .backward = true});
}

static timed_call action_call(const yoke_program *program, const yoke_replica_memory *memory,
                              const yoke_action *action) {
    timed_call call = {.action = action};
    if (action->kind == YOKE_ACTION_ACCUMULATE || action->kind == YOKE_ACTION_SUM) {
        bool sum = action->kind == YOKE_ACTION_SUM;
        call.changed = action->to_address;
        call.changed_bytes =
            sum ? action->elements * sizeof(float) : program->layouts[action->value].bytes;
    }
    if (action->kind != YOKE_ACTION_BACKWARD) return call;
    const yoke_node_places *places = &program->places[action->node];
    call.plan = program->plans[action->node];
    call.backward = true;
    if (places->output_gradient >= 0 && places->output_gradient == places->input_gradients[0]) {
        call.changed = yoke_program_address(program, memory, places->output_gradient);
        call.changed_bytes = program->layouts[program->model->nodes[action->node].output].bytes;
    }
    return call;
}

static yoke_status time_backward(stopwatch *watch, const yoke_replica_memory *memory) {
    for (int i = 0; i < watch->program->action_count; i++) {
        timed_call call = action_call(watch->program, memory, &watch->program->actions[i]);
        TRY(time_call(watch, &call));
    }
    return YOKE_OK;
}

static yoke_status time_all(stopwatch *watch, const yoke_replica_memory *memory) {
    for (int pass = 0; pass < watch->passes; pass++) {
        watch->call_count = 0;
        TRY(time_forward(watch, memory));
        TRY(time_loss(watch));
        TRY(time_backward(watch, memory));
    }
    return YOKE_OK;
}

static double sum_ms(const stopwatch *watch) {
    double sum = 0;
    for (int i = 0; i < watch->call_count; i++)
        sum += (double)watch->best_ns[i] * 1e-6;
    return sum;
}

/* The largest thing a call can change in place. */
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
    size_t calls = (size_t)(program->model->node_count + 2 + program->action_count);
    watch->best_ns = calloc(calls, sizeof *watch->best_ns);
    if (watch->best_ns == NULL) return FAIL_MEMORY(calls * sizeof *watch->best_ns, "a stopwatch");
    return yoke_device_allocate(replica->options.device, backup_bytes(program), "a value put aside",
                                &watch->backup);
}

yoke_status yoke_replica_time_calls(yoke_replica *replica, int rows, yoke_floor floor, int repeat,
                                    double *milliseconds) {
    if (rows < 1 || repeat < 1)
        return FAIL(YOKE_ERROR_ARGUMENT, "timing %d rows %d times: both must be at least 1", rows,
                    repeat);
    bool in_order = floor == YOKE_FLOOR_IN_ORDER;
    stopwatch watch = {.step = {.loss_scale = 1.0f / (float)rows},
                       .passes = in_order ? repeat : 1,
                       .runs = in_order ? 1 : repeat};
    TRY(yoke_replica_prepare(replica, rows, true));
    replica->current = watch.program = yoke_replica_program(replica, rows, true);
    replica->last_step = watch.step;
    float *saved = NULL;
    yoke_status status = save_buffers(replica, &saved);
    if (status == YOKE_OK) status = open_stopwatch(&watch, replica);
    if (status == YOKE_OK) status = yoke_device_begin_step(replica->options.device, &watch.step);
    if (status == YOKE_OK) status = time_all(&watch, &replica->memory);
    if (status == YOKE_OK) status = restore_buffers(replica, saved);
    *milliseconds = sum_ms(&watch);
    yoke_device_free(replica->options.device, watch.backup);
    free(watch.best_ns);
    free(saved);
    return status;
}
