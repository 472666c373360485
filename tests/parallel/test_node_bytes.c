/* SPDX-License-Identifier: Apache-2.0 */
/* Memory nodes that this machine has not: whose thread allocates a lane's memory, which writes it
 * first; how many bytes of the exchange cross nodes, counted from the calls that move them; how
 * often lanes meet; and that sums within nodes change no bit. */
#include <pthread.h>
#include <unistd.h>

#include "base/workers.h"
#include "support/engine_check.h"

/* Too small for factors in place of gradients. */
enum { IN = 64, HIDDEN = 48, OUT = 16, WEIGHTS = IN * HIDDEN + HIDDEN * OUT };
enum { MOST_ROWS = 64, MOST_RECORDS = 4096, MOST_DEVICES = 16 };

/* The calls, in the linker's --wrap form. */

typedef struct record {
    const char *pointer;
    size_t bytes;
    int device;
    pid_t thread;
    char what[32];
} record;

static struct {
    pthread_mutex_t mutex;
    record records[MOST_RECORDS];
    int count;
    const int *told;   /* [device] the node that the engine sees; NULL: all are on one */
    const int *counts; /* [device] the node that crossing is counted by; NULL: nothing counts */
    size_t crossed;    /* bytes */
    _Atomic int jobs, signals, waits, barriers;
} machine = {.mutex = PTHREAD_MUTEX_INITIALIZER};

int __wrap_yoke_device_node(const yoke_device *device);
yoke_status __real_yoke_device_allocate(yoke_device *device, size_t bytes, const char *what,
                                        void **pointer);
yoke_status __wrap_yoke_device_allocate(yoke_device *device, size_t bytes, const char *what,
                                        void **pointer);
void __real_yoke_device_free(yoke_device *device, void *pointer);
void __wrap_yoke_device_free(yoke_device *device, void *pointer);
yoke_status __real_yoke_device_sum(yoke_device *device, yoke_stream stream, float *to,
                                   const float *const *from, int count, size_t elements);
yoke_status __wrap_yoke_device_sum(yoke_device *device, yoke_stream stream, float *to,
                                   const float *const *from, int count, size_t elements);
yoke_status __real_yoke_device_copy(yoke_device *to_device, yoke_stream stream, void *to,
                                    yoke_device *from_device, const void *from, size_t bytes);
yoke_status __wrap_yoke_device_copy(yoke_device *to_device, yoke_stream stream, void *to,
                                    yoke_device *from_device, const void *from, size_t bytes);
yoke_status __real_yoke_device_update(yoke_device *device, yoke_stream stream,
                                      const yoke_update_step *step, float *weights,
                                      const float *gradients,
                                      float *const states[YOKE_UPDATE_STATES], size_t elements);
yoke_status __wrap_yoke_device_update(yoke_device *device, yoke_stream stream,
                                      const yoke_update_step *step, float *weights,
                                      const float *gradients,
                                      float *const states[YOKE_UPDATE_STATES], size_t elements);

int __wrap_yoke_device_node(const yoke_device *device) {
    return machine.told != NULL ? machine.told[yoke_device_number(device)] : 0;
}

yoke_status __wrap_yoke_device_allocate(yoke_device *device, size_t bytes, const char *what,
                                        void **pointer) {
    yoke_status status = __real_yoke_device_allocate(device, bytes, what, pointer);
    if (status != YOKE_OK) return status;
    pthread_mutex_lock(&machine.mutex);
    record *added = machine.count < MOST_RECORDS ? &machine.records[machine.count++] : NULL;
    if (added != NULL) {
        *added = (record){*pointer, bytes, yoke_device_number(device), gettid(), ""};
        snprintf(added->what, sizeof added->what, "%s", what);
    }
    pthread_mutex_unlock(&machine.mutex);
    return added != NULL ? status : YOKE_ERROR_INTERNAL;
}

static record *find(const void *pointer) {
    for (int i = 0; i < machine.count; i++) {
        record *at = &machine.records[i];
        if ((const char *)pointer >= at->pointer && (const char *)pointer < at->pointer + at->bytes)
            return at;
    }
    return NULL;
}

void __wrap_yoke_device_free(yoke_device *device, void *pointer) {
    pthread_mutex_lock(&machine.mutex);
    record *found = pointer != NULL ? find(pointer) : NULL;
    if (found != NULL) *found = machine.records[--machine.count];
    pthread_mutex_unlock(&machine.mutex);
    __real_yoke_device_free(device, pointer);
}

/* The device's worker reads or writes these bytes. Memory of no device is its own stack's. */
static void touch(const yoke_device *device, const void *pointer, size_t bytes) {
    if (machine.counts == NULL || pointer == NULL) return;
    pthread_mutex_lock(&machine.mutex);
    const record *found = find(pointer);
    if (found != NULL &&
        machine.counts[found->device] != machine.counts[yoke_device_number(device)])
        machine.crossed += bytes;
    pthread_mutex_unlock(&machine.mutex);
}

yoke_status __wrap_yoke_device_sum(yoke_device *device, yoke_stream stream, float *to,
                                   const float *const *from, int count, size_t elements) {
    touch(device, to, elements * sizeof *to);
    for (int i = 0; i < count; i++)
        touch(device, from[i], elements * sizeof *to);
    return __real_yoke_device_sum(device, stream, to, from, count, elements);
}

/* Copies of the exchange run on the lane that they are called with. What it reads it has just
 * written, or it is of its own node: see below. */
yoke_status __wrap_yoke_device_copy(yoke_device *to_device, yoke_stream stream, void *to,
                                    yoke_device *from_device, const void *from, size_t bytes) {
    touch(to_device, to, bytes);
    return __real_yoke_device_copy(to_device, stream, to, from_device, from, bytes);
}

yoke_status __wrap_yoke_device_update(yoke_device *device, yoke_stream stream,
                                      const yoke_update_step *step, float *weights,
                                      const float *gradients,
                                      float *const states[YOKE_UPDATE_STATES], size_t elements) {
    size_t bytes = elements * sizeof *weights;
    touch(device, gradients, bytes);
    touch(device, weights, 2 * bytes);
    for (int i = 0; i < YOKE_UPDATE_STATES; i++)
        touch(device, states[i], 2 * bytes);
    return __real_yoke_device_update(device, stream, step, weights, gradients, states, elements);
}

yoke_status __real_yoke_workers_run(yoke_workers *workers, int count, yoke_worker_job job,
                                    void *context, int *failed);
yoke_status __wrap_yoke_workers_run(yoke_workers *workers, int count, yoke_worker_job job,
                                    void *context, int *failed);
void __real_yoke_workers_signal(yoke_workers *workers, uint32_t *counter);
void __wrap_yoke_workers_signal(yoke_workers *workers, uint32_t *counter);
yoke_status __real_yoke_workers_await(yoke_workers *workers, const uint32_t *counter,
                                      uint32_t target);
yoke_status __wrap_yoke_workers_await(yoke_workers *workers, const uint32_t *counter,
                                      uint32_t target);
yoke_status __real_yoke_workers_barrier(yoke_workers *workers);
yoke_status __wrap_yoke_workers_barrier(yoke_workers *workers);

yoke_status __wrap_yoke_workers_run(yoke_workers *workers, int count, yoke_worker_job job,
                                    void *context, int *failed) {
    machine.jobs += count > 1;
    return __real_yoke_workers_run(workers, count, job, context, failed);
}

void __wrap_yoke_workers_signal(yoke_workers *workers, uint32_t *counter) {
    machine.signals++;
    __real_yoke_workers_signal(workers, counter);
}

yoke_status __wrap_yoke_workers_await(yoke_workers *workers, const uint32_t *counter,
                                      uint32_t target) {
    machine.waits++;
    return __real_yoke_workers_await(workers, counter, target);
}

yoke_status __wrap_yoke_workers_barrier(yoke_workers *workers) {
    machine.barriers++;
    return __real_yoke_workers_barrier(workers);
}

/* Engines. */

static yoke_model *flat_model(void) {
    yoke_model *model = NULL;
    yoke_linear_options fc1 = YOKE_LINEAR_OPTIONS_INIT, fc2 = YOKE_LINEAR_OPTIONS_INIT;
    fc1.name = "fc1";
    fc1.out_features = HIDDEN;
    fc2.name = "fc2";
    fc2.out_features = OUT;
    fc1.no_bias = fc2.no_bias = true;
    EXPECT_OK(yoke_model_create(&model, "flat", (yoke_shape){IN, 1, 1, true}));
    yoke_value value = yoke_relu(model, yoke_linear(model, yoke_model_input(model), &fc1));
    EXPECT_OK(yoke_model_finish(model, yoke_linear(model, value, &fc2), NULL));
    assert_int_equal(yoke_model_parameter_count(model), WEIGHTS);
    return model;
}

typedef struct flat_batch {
    float inputs[MOST_ROWS * IN];
    int32_t labels[MOST_ROWS];
    yoke_batch batch;
} flat_batch;

static flat_batch *batch_of(int rows, uint32_t seed) {
    static flat_batch made;
    for (uint32_t i = 0; i < MOST_ROWS * IN; i++)
        made.inputs[i] = (float)check_noise(i + seed * 7919u);
    for (int i = 0; i < MOST_ROWS; i++)
        made.labels[i] = (i + (int)seed) % OUT;
    made.batch = (yoke_batch){.struct_size = sizeof made.batch,
                              .rows = rows,
                              .inputs = made.inputs,
                              .labels = made.labels};
    return &made;
}

static const yoke_optimizer_options sgd = {
    .struct_size = sizeof sgd, .kind = YOKE_SGD, .learning_rate = 0.1};
static const yoke_optimizer_options momentum = {
    .struct_size = sizeof momentum, .kind = YOKE_SGD, .learning_rate = 0.1, .momentum = 0.9};
static const yoke_optimizer_options clipped = {.struct_size = sizeof clipped,
                                               .kind = YOKE_SGD,
                                               .learning_rate = 0.1,
                                               .momentum = 0.9,
                                               .clip_norm = 0.01};
static const yoke_optimizer_options adamw = {.struct_size = sizeof adamw,
                                             .kind = YOKE_ADAMW,
                                             .learning_rate = 0.01,
                                             .beta1 = 0.9,
                                             .beta2 = 0.999,
                                             .epsilon = 1e-8,
                                             .weight_decay = 0.1};
static const yoke_optimizer_options lamb = {.struct_size = sizeof lamb,
                                            .kind = YOKE_LAMB,
                                            .learning_rate = 0.01,
                                            .beta1 = 0.9,
                                            .beta2 = 0.999,
                                            .epsilon = 1e-8};

static yoke_data_parallel_options options_of(yoke_schedule schedule) {
    return (yoke_data_parallel_options){.struct_size = sizeof(yoke_data_parallel_options),
                                        .schedule = schedule,
                                        .algorithm = YOKE_ALGORITHM_DIRECT,
                                        .batch = MOST_ROWS,
                                        .first_bucket_bytes = 256,
                                        .bucket_bytes = 1024};
}

/* Their threads meet on this machine's cores, bound as they would be there. */
static check_engine open_engine(const yoke_model *model, int devices,
                                const yoke_data_parallel_options *options,
                                const yoke_optimizer_options *optimizer) {
    char list[16];
    snprintf(list, sizeof list, "%dxcpu", devices);
    return check_engine_on(model, list, *options, optimizer);
}

static void train(const check_engine *engine, int rows, int steps) {
    for (int step = 0; step < steps; step++)
        EXPECT_OK(yoke_data_parallel_step(engine->parallel, &batch_of(rows, (uint32_t)step)->batch,
                                          YOKE_OPTIMIZER_LEARNING_RATE, NULL));
}

static void close_engine(check_engine *engine) {
    check_engine_free(engine);
    machine.told = machine.counts = NULL;
    machine.crossed = 0;
}

/* First touch. */

static yoke_status note_thread(int replica, void *context) {
    pid_t *threads = context;
    threads[replica] = gettid();
    return YOKE_OK;
}

static void a_lane_s_worker_allocates_all_its_memory(void **state) {
    (void)state;
    static const yoke_optimizer_options *const rules[] = {&sgd, &momentum, &adamw, &lamb};
    static const yoke_schedule schedules[] = {YOKE_SCHEDULE_OVERLAP, YOKE_SCHEDULE_SHARDED,
                                              YOKE_SCHEDULE_CLASSIC};
    yoke_model *models[] = {flat_model(), check_model(true, 0.5)};
    for (int i = 0; i < 2 * 4 * 3 * 3; i++) {
        const yoke_model *model = models[i % 2];
        yoke_data_parallel_options options = options_of(schedules[i / 8 % 3]);
        options.accumulate = i / 24 == 1 ? 2 : 0;
        options.shards = i / 24 == 2 ? 16 : 0;
        check_engine engine = open_engine(model, 3, &options, rules[i / 2 % 4]);
        check_batch images = check_batch_make(MOST_ROWS, 1);
        yoke_batch *batch = i % 2 == 0 ? &batch_of(MOST_ROWS, 1)->batch : &images.batch;
        pid_t threads[3] = {0};
        bool seen[3] = {false};
        EXPECT_OK(
            yoke_data_parallel_step(engine.parallel, batch, YOKE_OPTIMIZER_LEARNING_RATE, NULL));
        EXPECT_OK(yoke_parallel_apply(engine.parallel, note_thread, threads));
        assert_true(threads[1] != threads[0] && threads[2] != threads[1]);
        for (int k = 0; k < machine.count; k++) {
            const record *at = &machine.records[k];
            seen[at->device] = true;
            if (at->thread != threads[at->device])
                fail_msg("%s of device %d was allocated by another lane's thread", at->what,
                         at->device);
        }
        assert_true(seen[0] && seen[1] && seen[2]);
        check_batch_free(&images);
        close_engine(&engine);
        assert_int_equal(machine.count, 0);
    }
    yoke_model_destroy(models[0]);
    yoke_model_destroy(models[1]);
}

/* Bytes. */

static void fill_nodes(int *nodes, int devices, int count) {
    for (int k = 0; k < devices; k++)
        nodes[k] = k * count / devices;
}

static size_t crossed_by(int devices, int rows, const int *told, const int *counts,
                         yoke_schedule schedule, const yoke_optimizer_options *optimizer) {
    yoke_model *model = flat_model();
    yoke_data_parallel_options options = options_of(schedule);
    machine.told = told;
    check_engine engine = open_engine(model, devices, &options, optimizer);
    train(&engine, rows, 1);
    machine.counts = counts;
    train(&engine, rows, 1);
    size_t crossed = machine.crossed;
    close_engine(&engine);
    yoke_model_destroy(model);
    return crossed;
}

/* The formulas of docs/performance.md, "More cores": floats that cross for each weight, times the
 * nodes, so that they are whole numbers. */
typedef struct count_row {
    int devices, nodes;
} count_row;

static const count_row count_rows[] = {{4, 1}, {2, 2}, {4, 2}, {8, 2}, {16, 2}, {8, 4}, {16, 4}};
enum { COUNT_ROWS = sizeof count_rows / sizeof count_rows[0] };

static void expect_crossed(const count_row *row, yoke_schedule schedule, int states, bool by_nodes,
                           int floats) {
    static const yoke_optimizer_options *const rules[] = {&sgd, &momentum, &adamw};
    int nodes[MOST_DEVICES];
    fill_nodes(nodes, row->devices, row->nodes);
    size_t crossed = crossed_by(row->devices, MOST_ROWS, by_nodes ? nodes : NULL, nodes, schedule,
                                rules[states]);
    size_t expected = (size_t)floats * WEIGHTS * sizeof(float) / (size_t)row->nodes;
    if (crossed != expected)
        fail_msg("%d devices on %d nodes, %d states, schedule %d, %s: %zu bytes cross, not %zu",
                 row->devices, row->nodes, states, (int)schedule, by_nodes ? "by nodes" : "flat",
                 crossed, expected);
}

static void flat_slices_cross_as_counted(void **state) {
    (void)state;
    for (int i = 0; i < COUNT_ROWS; i++)
        for (int states = 0; states <= 2; states++) {
            int n = count_rows[i].devices, k = count_rows[i].nodes;
            expect_crossed(&count_rows[i], YOKE_SCHEDULE_SHARDED, states, false,
                           (k - 1) * (2 * n + 2));
            expect_crossed(&count_rows[i], YOKE_SCHEDULE_OVERLAP, states, false,
                           (k - 1) * (2 * n + 3 + 2 * states));
        }
}

static void sums_within_nodes_cross_as_counted(void **state) {
    (void)state;
    for (int i = 0; i < COUNT_ROWS; i++)
        for (int states = 0; states <= 2; states++) {
            int k = count_rows[i].nodes;
            expect_crossed(&count_rows[i], YOKE_SCHEDULE_SHARDED, states, true,
                           (k - 1) * (2 * k + 2));
            expect_crossed(&count_rows[i], YOKE_SCHEDULE_OVERLAP, states, true,
                           (k - 1) * (2 * k + 3 + 2 * states));
        }
}

/* Meetings. */

/* How often, in a step of overlap without clipping: docs/performance.md has the table. */
static void expect_meetings(int devices, bool by_nodes, const yoke_optimizer_options *optimizer,
                            int barriers) {
    enum { BUCKETS = 2 };
    int nodes[MOST_DEVICES], levels = by_nodes ? 2 : 1;
    yoke_model *model = flat_model();
    yoke_data_parallel_options options = options_of(YOKE_SCHEDULE_OVERLAP);
    fill_nodes(nodes, devices, 2);
    machine.told = by_nodes ? nodes : NULL;
    check_engine engine = open_engine(model, devices, &options, optimizer);
    train(&engine, MOST_ROWS, 1);
    machine.jobs = machine.signals = machine.waits = machine.barriers = 0;
    train(&engine, MOST_ROWS, 1);
    assert_int_equal(machine.jobs, 2);
    assert_int_equal(machine.signals, levels * devices * BUCKETS);
    assert_true(machine.waits <= levels * devices * BUCKETS);
    assert_int_equal(machine.barriers, devices * barriers);
    close_engine(&engine);
    yoke_model_destroy(model);
}

static void lanes_meet_as_often_as_counted(void **state) {
    (void)state;
    for (int devices = 4; devices <= MOST_DEVICES; devices *= 2) {
        expect_meetings(devices, false, &momentum, 1);
        expect_meetings(devices, false, &clipped, 2);
        expect_meetings(devices, true, &momentum, 2);
        expect_meetings(devices, true, &clipped, 3);
    }
}

/* Bits. */

static const float *weights_of(int device) {
    for (int i = 0; i < machine.count; i++)
        if (machine.records[i].device == device &&
            strcmp(machine.records[i].what, "parameters") == 0)
            return (const float *)(const void *)machine.records[i].pointer;
    fail_msg("device %d has no weights", device);
    return NULL;
}

typedef struct bits_row {
    int devices, rows;
    const int nodes[MOST_DEVICES];
    bool sums_by_node; /* some block has several lanes */
} bits_row;

static const bits_row bits_rows[] = {
    {2, 64, {0, 1}, false},
    {3, 64, {0, 0, 1}, false},
    {4, 64, {0, 0, 1, 1}, true},
    {4, 3, {0, 0, 1, 1}, false}, /* one device is idle */
    {4, 64, {7, 7, 7, 7}, false},
    {6, 64, {0, 0, 0, 0, 1, 1}, true},
    {6, 60, {0, 0, 0, 1, 1, 1}, false},
    {8, 64, {0, 0, 0, 0, 1, 1, 1, 1}, true},
    {8, 61, {0, 0, 0, 0, 2, 2, 1, 1}, true},
    {8, 64, {0, 0, -1, 0, 1, 1, 1, 1}, false},
    {12, 60, {0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2}, true},
};

typedef struct outcome {
    uint64_t hash;
    double loss, norm;
} outcome;

static outcome outcome_of(const yoke_model *model, const bits_row *row, const int *told,
                          const yoke_data_parallel_options *options,
                          const yoke_optimizer_options *optimizer) {
    machine.told = told;
    check_engine engine = open_engine(model, row->devices, options, optimizer);
    yoke_step_result result = {.struct_size = sizeof result};
    for (int step = 0; step < 4; step++)
        EXPECT_OK(yoke_data_parallel_step(engine.parallel,
                                          &batch_of(row->rows, (uint32_t)step)->batch,
                                          YOKE_OPTIMIZER_LEARNING_RATE, &result));
    for (int k = 1; k < row->devices; k++)
        assert_memory_equal(weights_of(k), weights_of(0), WEIGHTS * sizeof(float));
    outcome found = {check_hash(engine.parallel), result.loss, result.gradient_norm};
    close_engine(&engine);
    return found;
}

static void sums_within_nodes_change_no_bit(void **state) {
    (void)state;
    static const yoke_optimizer_options *const rules[] = {&momentum, &clipped, &adamw, &lamb};
    yoke_model *model = flat_model();
    for (size_t i = 0; i < sizeof bits_rows / sizeof bits_rows[0]; i++)
        for (int variant = 0; variant < 16; variant++) {
            const bits_row *row = &bits_rows[i];
            yoke_data_parallel_options options =
                options_of(variant % 2 == 0 ? YOKE_SCHEDULE_OVERLAP : YOKE_SCHEDULE_SHARDED);
            options.skip_finite_check = variant / 8 == 1;
            options.accumulate = variant % 8 == 4 ? 2 : 0;
            options.shards = variant % 8 == 5 ? 16 : 0;
            const yoke_optimizer_options *rule = rules[variant / 2 % 4];
            outcome flat = outcome_of(model, row, NULL, &options, rule);
            outcome by_nodes = outcome_of(model, row, row->nodes, &options, rule);
            assert_memory_equal(&flat, &by_nodes, sizeof flat);
        }
    yoke_model_destroy(model);
}

/* Without this, the test above could compare flat sums with flat sums. */
static void blocks_are_those_that_lie_on_a_node(void **state) {
    (void)state;
    yoke_model *model = flat_model();
    for (size_t i = 0; i < sizeof bits_rows / sizeof bits_rows[0]; i++) {
        const bits_row *row = &bits_rows[i];
        int counts[MOST_DEVICES];
        for (int k = 0; k < row->devices; k++)
            counts[k] = row->nodes[k] < 0 ? 9 : row->nodes[k];
        size_t flat =
            crossed_by(row->devices, row->rows, NULL, counts, YOKE_SCHEDULE_SHARDED, &momentum);
        size_t by_nodes = crossed_by(row->devices, row->rows, row->nodes, counts,
                                     YOKE_SCHEDULE_SHARDED, &momentum);
        if (row->sums_by_node ? by_nodes >= flat : by_nodes != flat)
            fail_msg("row %zu: %zu bytes cross, %zu without nodes", i, by_nodes, flat);
    }
    yoke_model_destroy(model);
}

/* By hand nothing is summed within nodes; a step behind it is. */
static void steps_and_stages_by_hand_may_alternate(void **state) {
    (void)state;
    static const int nodes[] = {0, 0, 1, 1};
    uint64_t hashes[2];
    yoke_model *model = flat_model();
    for (int by_nodes = 0; by_nodes < 2; by_nodes++) {
        yoke_data_parallel_options options = options_of(YOKE_SCHEDULE_OVERLAP);
        machine.told = by_nodes ? nodes : NULL;
        check_engine engine = open_engine(model, 4, &options, &momentum);
        for (int round = 0; round < 3; round++) {
            train(&engine, MOST_ROWS, 1);
            yoke_data_parallel *parallel = engine.parallel;
            EXPECT_OK(yoke_data_parallel_scatter(parallel, &batch_of(MOST_ROWS, 9)->batch));
            EXPECT_OK(yoke_data_parallel_replicate(parallel));
            EXPECT_OK(yoke_data_parallel_forward_replicas(parallel, true));
            EXPECT_OK(yoke_data_parallel_loss_replicas(parallel));
            EXPECT_OK(yoke_data_parallel_backward_replicas(parallel));
            EXPECT_OK(yoke_data_parallel_reduce(parallel));
            EXPECT_OK(yoke_data_parallel_update(parallel, YOKE_OPTIMIZER_LEARNING_RATE));
        }
        hashes[by_nodes] = check_hash(engine.parallel);
        close_engine(&engine);
    }
    assert_true(hashes[0] == hashes[1]);
    yoke_model_destroy(model);
}

/* On every node the weights are those before the step. */
static void a_gradient_that_is_not_finite_changes_no_replica(void **state) {
    (void)state;
    static const int nodes[] = {0, 0, 1, 1};
    yoke_model *model = flat_model();
    yoke_data_parallel_options options = options_of(YOKE_SCHEDULE_SHARDED);
    machine.told = nodes;
    check_engine engine = open_engine(model, 4, &options, &momentum);
    train(&engine, MOST_ROWS, 2);
    float *before = malloc(WEIGHTS * sizeof *before);
    memcpy(before, weights_of(0), WEIGHTS * sizeof *before);
    flat_batch *bad = batch_of(MOST_ROWS, 3);
    for (int k = 0; k < IN; k++)
        bad->inputs[40 * IN + k] = NAN; /* a row of lane 2: ReLU hides it from the loss */
    assert_int_equal(
        yoke_data_parallel_step(engine.parallel, &bad->batch, YOKE_OPTIMIZER_LEARNING_RATE, NULL),
        YOKE_ERROR_NUMERIC);
    for (int k = 0; k < 4; k++)
        assert_memory_equal(weights_of(k), before, WEIGHTS * sizeof *before);
    train(&engine, MOST_ROWS, 2);
    for (int k = 1; k < 4; k++)
        assert_memory_equal(weights_of(k), weights_of(0), WEIGHTS * sizeof *before);
    free(before);
    close_engine(&engine);
    yoke_model_destroy(model);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_lane_s_worker_allocates_all_its_memory),
        cmocka_unit_test(flat_slices_cross_as_counted),
        cmocka_unit_test(sums_within_nodes_cross_as_counted),
        cmocka_unit_test(lanes_meet_as_often_as_counted),
        cmocka_unit_test(sums_within_nodes_change_no_bit),
        cmocka_unit_test(blocks_are_those_that_lie_on_a_node),
        cmocka_unit_test(steps_and_stages_by_hand_may_alternate),
        cmocka_unit_test(a_gradient_that_is_not_finite_changes_no_replica),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
