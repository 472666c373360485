/* What a host program may look at: tensors by name, memory, hash, floor, choices. */
#include <stdlib.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "parallel/engine.h"
#include "yoke/bench.h"

const yoke_model *yoke_data_parallel_model(const yoke_data_parallel *parallel) {
    return parallel->model;
}

uint64_t yoke_data_parallel_batches_tracked(const yoke_data_parallel *parallel) {
    return parallel->batches_tracked;
}

void yoke_data_parallel_set_batches_tracked(yoke_data_parallel *parallel, uint64_t count) {
    parallel->batches_tracked = count;
}

uint64_t yoke_data_parallel_steps(const yoke_data_parallel *parallel) {
    return parallel->steps;
}

yoke_trace *yoke_data_parallel_trace(yoke_data_parallel *parallel) {
    (void)yoke_spans_read(parallel); /* what can't be read is not there */
    return parallel->trace;
}

int yoke_data_parallel_device_count(const yoke_data_parallel *parallel) {
    return parallel->count;
}

bool yoke_data_parallel_choice(const yoke_data_parallel *parallel, int index,
                               const char **layer_and_pass, const char **algorithm,
                               double *milliseconds) {
    return yoke_choices_at(parallel->choices, index, layer_and_pass, algorithm, milliseconds);
}

/* Tensors by name. */

static yoke_status find_tensor(const yoke_data_parallel *parallel, const char *name, size_t count,
                               int *tensor) {
    const char *near = NULL;
    TRY(yoke_pointer_check(parallel, "parallel"));
    TRY(yoke_pointer_check(name, "name"));
    *tensor = yoke_model_find_tensor(parallel->model, name, &near);
    if (*tensor < 0)
        return FAIL(YOKE_ERROR_ARGUMENT, "%s has no tensor \"%s\"%s%s%s",
                    yoke_model_name(parallel->model), name, near ? "; did you mean \"" : "",
                    near ? near : "", near ? "\"?" : "");
    yoke_tensor_info info = {.struct_size = sizeof info};
    TRY(yoke_model_tensor(parallel->model, *tensor, &info));
    if (info.integer)
        return FAIL(YOKE_ERROR_ARGUMENT, "%s is an integer counter, kept by the engine", name);
    if (info.count != count)
        return FAIL(YOKE_ERROR_ARGUMENT, "%s has %zu elements, not %zu", name, info.count, count);
    return YOKE_OK;
}

yoke_status yoke_data_parallel_read(yoke_data_parallel *parallel, const char *name, float *values,
                                    size_t count) {
    int tensor = -1;
    TRY(find_tensor(parallel, name, count, &tensor));
    TRY(yoke_pointer_check(values, "values"));
    TRY(yoke_queues_synchronize(parallel));
    return yoke_replica_read(parallel->replicas[0], tensor, false, values);
}

yoke_status yoke_data_parallel_write(yoke_data_parallel *parallel, const char *name,
                                     const float *values, size_t count) {
    int tensor = -1;
    TRY(find_tensor(parallel, name, count, &tensor));
    TRY(yoke_pointer_check(values, "values"));
    TRY(yoke_queues_synchronize(parallel));
    TRY(yoke_replica_write(parallel->replicas[0], tensor, false, values));
    parallel->weights_version++;
    parallel->buffers_version++;
    return YOKE_OK;
}

static yoke_status find_gradient(yoke_data_parallel *parallel, const char *name, size_t count,
                                 int *tensor) {
    TRY(find_tensor(parallel, name, count, tensor));
    yoke_tensor_info info = {.struct_size = sizeof info};
    TRY(yoke_model_tensor(parallel->model, *tensor, &info));
    if (!info.trainable)
        return FAIL(YOKE_ERROR_ARGUMENT, "%s is a running statistic: it has no gradient", name);
    if (!parallel->gradient_on_root)
        return FAIL(YOKE_ERROR_ARGUMENT,
                    "no reduced gradient is on the root: call yoke_data_parallel_backward or "
                    "yoke_reduce first");
    return YOKE_OK;
}

yoke_status yoke_data_parallel_read_gradient(yoke_data_parallel *parallel, const char *name,
                                             float *values, size_t count) {
    int tensor = -1;
    TRY(find_gradient(parallel, name, count, &tensor));
    TRY(yoke_pointer_check(values, "values"));
    TRY(yoke_queues_synchronize(parallel));
    return yoke_replica_read(parallel->replicas[0], tensor, true, values);
}

yoke_status yoke_data_parallel_write_gradient(yoke_data_parallel *parallel, const char *name,
                                              const float *values, size_t count) {
    int tensor = -1;
    TRY(find_gradient(parallel, name, count, &tensor));
    TRY(yoke_pointer_check(values, "values"));
    TRY(yoke_queues_synchronize(parallel));
    return yoke_replica_write(parallel->replicas[0], tensor, true, values);
}

/* Record. */

static yoke_status hash_tensors(yoke_data_parallel *parallel, XXH3_state_t *state) {
    float *values = NULL;
    yoke_status status = YOKE_OK;
    for (int i = 0; i < yoke_model_tensor_count(parallel->model) && status == YOKE_OK; i++) {
        yoke_tensor_info info = {.struct_size = sizeof info};
        TRY(yoke_model_tensor(parallel->model, i, &info));
        if (info.integer) continue;
        size_t bytes = info.count * sizeof *values;
        values = malloc(bytes);
        if (values == NULL) return FAIL_MEMORY(bytes, info.name);
        status = yoke_replica_read(parallel->replicas[0], i, false, values);
        if (status == YOKE_OK) XXH3_64bits_update(state, values, bytes);
        free(values);
    }
    return status;
}

yoke_status yoke_data_parallel_hash(yoke_data_parallel *parallel, uint64_t *hash) {
    TRY(yoke_pointer_check(parallel, "parallel"));
    TRY(yoke_pointer_check(hash, "hash"));
    XXH3_state_t *state = XXH3_createState();
    if (state == NULL) return FAIL_MEMORY(sizeof *state, "hash");
    XXH3_64bits_reset(state);
    yoke_status status = yoke_queues_synchronize(parallel);
    if (status == YOKE_OK) status = hash_tensors(parallel, state);
    if (status == YOKE_OK) *hash = XXH3_64bits_digest(state);
    XXH3_freeState(state);
    return status;
}

yoke_status yoke_data_parallel_memory(const yoke_data_parallel *parallel, int replica,
                                      yoke_memory_report *report) {
    TRY(yoke_pointer_check(parallel, "parallel"));
    if (replica < 0 || replica >= parallel->count)
        return FAIL(YOKE_ERROR_ARGUMENT, "replica %d: this engine has 0 to %d", replica,
                    parallel->count - 1);
    const yoke_replica_memory *memory = yoke_replica_memory_of(parallel->replicas[replica]);
    size_t flat = parallel->flat->elements * sizeof(float);
    yoke_memory_report own = {
        .struct_size = sizeof own,
        .parameters = flat,
        .gradients = flat * (parallel->accumulated[replica] != NULL ? 2 : 1),
        .buffers = parallel->flat->buffer_elements * sizeof(float) * (replica == 0 ? 2 : 1),
        .activations = memory->activation_bytes,
        .scratch = memory->scratch_bytes + YOKE_EXCHANGE_BLOCK * sizeof(float),
        .batch = memory->batch_bytes,
    };
    for (int b = 0; b < parallel->flat->bucket_count && replica < parallel->optimizer_homes; b++)
        own.optimizer += yoke_optimizer_bytes(yoke_optimizer_of(parallel, replica, b));
    own.total = yoke_device_allocated(yoke_devices_at(parallel->devices, replica));
    if (parallel->ranks != NULL && !parallel->queued) /* what the group holds for this rank */
        own.total += flat * (yoke_shares_update(parallel) ? 2 : 1);
    return yoke_options_store(report, &own, sizeof own, "yoke_memory_report");
}

/* Floor. */

typedef struct floor_job {
    yoke_data_parallel *parallel;
    yoke_kernel_timing floor;
    int repeat;
    double milliseconds;
    float *weights, *gradients;
    yoke_optimizer *optimizer;
} floor_job;

static yoke_status queue_update(void *context) {
    floor_job *floor = context;
    const yoke_data_parallel *parallel = floor->parallel;
    yoke_optimizer_step step = {.step = 1, .learning_rate = 1e-3, .gradient_scale = 1};
    return yoke_optimizer_update(floor->optimizer, &step, yoke_devices_at(parallel->devices, 0), 0,
                                 parallel->flat->elements, floor->weights, floor->gradients);
}

static yoke_status time_update_on_host(floor_job *floor, yoke_device *root, double *best) {
    for (int i = 0; i < floor->repeat; i++) {
        TRY(yoke_device_synchronize(root));
        uint64_t begin = yoke_now_ns();
        TRY(queue_update(floor));
        TRY(yoke_device_synchronize(root));
        double ms = (double)(yoke_now_ns() - begin) * 1e-6;
        if (i == 0 || ms < *best) *best = ms;
    }
    return YOKE_OK;
}

/* The update alone, on buffers of its own so that nothing of the model changes. */
static yoke_status time_update(floor_job *floor, yoke_device *root, double *best) {
    yoke_data_parallel *parallel = floor->parallel;
    size_t elements = parallel->flat->elements, bytes = elements * sizeof(float);
    TRY(yoke_device_allocate(root, bytes, "floor weights", (void **)&floor->weights));
    TRY(yoke_device_allocate(root, bytes, "floor gradients", (void **)&floor->gradients));
    TRY(yoke_optimizer_create(&floor->optimizer, &parallel->optimizer_options, root, 0, elements));
    if (yoke_device_records(root))
        return yoke_time_recorded(root, queue_update, floor, floor->repeat, best);
    return time_update_on_host(floor, root, best);
}

static yoke_status floor_worker(int worker, void *context) {
    floor_job *floor = context;
    if (worker != 0) return YOKE_OK;
    yoke_data_parallel *parallel = floor->parallel;
    yoke_device *root = yoke_devices_at(parallel->devices, 0);
    int rows = yoke_shard_rows(parallel->micro_rows, parallel->count, 0);
    double plans = 0, update = 0;
    TRY(yoke_replica_kernel_time(parallel->replicas[0], rows, floor->floor, floor->repeat, &plans));
    yoke_status status = time_update(floor, root, &update);
    yoke_optimizer_destroy(floor->optimizer);
    yoke_device_free(root, floor->gradients);
    yoke_device_free(root, floor->weights);
    floor->milliseconds = plans + update;
    return status;
}

yoke_status yoke_data_parallel_kernel_time(yoke_data_parallel *parallel, yoke_kernel_timing floor,
                                           int repeat, double *milliseconds) {
    TRY(yoke_pointer_check(parallel, "parallel"));
    TRY(yoke_pointer_check(milliseconds, "milliseconds"));
    if (repeat < 1) return FAIL(YOKE_ERROR_ARGUMENT, "repeat is %d: at least 1", repeat);
    if (floor != YOKE_KERNELS_ALONE && floor != YOKE_KERNELS_IN_ORDER)
        return FAIL(YOKE_ERROR_ARGUMENT, "floor is %d: it is one of yoke_kernel_timing",
                    (int)floor);
    floor_job job = {.parallel = parallel, .floor = floor, .repeat = repeat};
    parallel->progress = YOKE_STAGE_LOAD; /* its calls run on the batch's memory */
    parallel->gradient_on_root = parallel->input_gradients = false;
    TRY(yoke_guard_begin(parallel));
    yoke_status status = yoke_parallel_apply(parallel, floor_worker, &job);
    yoke_status restored = yoke_guard_restore(parallel);
    *milliseconds = job.milliseconds;
    return status != YOKE_OK ? status : restored;
}
