/* SPDX-License-Identifier: Apache-2.0 */
/* Weights that plans read in 16 bits alone travel between GPUs as those 16 bits: 2 bytes a weight,
 * and the bits of replicas that get them all in float32 before every step and round them
 * themselves. Counted on simulated GPUs. */
#include "device/backend.h"
#include "simcuda/control.h"
#include "support/preferring.h"
#include "support/unrecorded.h"

enum { ROWS = 12, STEPS = 5, TOKENS = 11, LENGTH = 9 };
#define COUNT(array) (sizeof(array) / sizeof(array)[0])

/* The devices' backend; a copy of it counts what goes from device to device, and spoils a gradient.
 */
static const yoke_backend *whole;
static yoke_backend watched;
static const yoke_device *root;
static size_t copied, of_root; /* of_root: from it or to it */
static bool spoils;

/* Losses, gates and what checks find are smaller than the smallest range. */
static yoke_status watched_copy(yoke_device *to_device, yoke_stream stream, void *to,
                                yoke_device *from_device, const void *from, size_t bytes) {
    if (to_device != from_device && stream == YOKE_STREAM_COMMUNICATION && bytes >= 64) {
        copied += bytes;
        if (to_device == root || from_device == root) of_root += bytes;
    }
    return whole->copy(to_device, stream, to, from_device, from, bytes);
}

static yoke_status watched_check(yoke_device *device, yoke_stream stream, const float *values,
                                 size_t elements, size_t offset, uint64_t *first_bad) {
    const float nan = NAN;
    if (spoils && elements > 0)
        TRY(yoke_device_upload(device, stream, (float *)values, &nan, sizeof nan));
    return whole->check_finite(device, stream, values, elements, offset, first_bad);
}

static void watch(yoke_devices *devices) {
    root = yoke_devices_at(devices, 0);
    whole = root->backend;
    watched = *whole;
    watched.copy = watched_copy;
    watched.check_finite = watched_check;
    for (int k = 0; k < yoke_devices_count(devices); k++)
        yoke_devices_at(devices, k)->backend = &watched;
}

/* Models. */

/* Its embedding is read in float32 and, as the last layer's weight, in 16 bits. */
static yoke_model *language_model(void) {
    yoke_model *model = NULL;
    EXPECT_OK(yoke_model_create(&model, "language", (yoke_shape){LENGTH, 1, 1, true, false}));
    yoke_embedding_options words = YOKE_EMBEDDING_OPTIONS_INIT;
    words.name = "wte", words.count = TOKENS, words.features = 24, words.std = 0.2;
    yoke_linear_options block = YOKE_LINEAR_OPTIONS_INIT, head = block;
    block.name = "block", block.out_features = 24, block.transposed = true;
    head.name = "fc", head.out_features = TOKENS, head.shared_with = "wte", head.no_bias = true;
    yoke_value x = yoke_embedding(model, yoke_model_input(model), &words);
    x = yoke_add(model, x, yoke_relu(model, yoke_linear(model, x, &block)));
    EXPECT_OK(yoke_model_finish(model, yoke_linear(model, x, &head), NULL));
    return model;
}

/* Between two linear layers a pass may add the bias in 16 bits. */
static yoke_model *perceptron(void) {
    yoke_model *model = NULL;
    EXPECT_OK(yoke_model_create(&model, "perceptron",
                                yoke_shape_image(CHECK_CHANNELS, CHECK_SIDE, CHECK_SIDE)));
    yoke_linear_options hidden = YOKE_LINEAR_OPTIONS_INIT, out = hidden;
    hidden.name = "hidden", hidden.out_features = 64;
    out.name = "fc", out.out_features = CHECK_CLASSES;
    yoke_value x = yoke_flatten(model, yoke_model_input(model));
    x = yoke_relu(model, yoke_linear(model, x, &hidden));
    EXPECT_OK(yoke_model_finish(model, yoke_linear(model, x, &out), NULL));
    return model;
}

static yoke_model *convolutions(void) {
    return check_model(true, 0.2);
}

/* Engines. */

typedef struct course {
    yoke_model *(*model)(void);
    const char *list;
    yoke_collectives collectives;
    yoke_schedule schedule;
    yoke_optimizer_kind kind;
    double clip_norm;
    yoke_precision precision;
    int accumulate;
    bool is_scaled; /* the loss, as steps go: one with a bad gradient is skipped */
} course;

static const char *const joined[] = {"joined", NULL};

static check_engine open_engine(const yoke_model *model, const course *of) {
    yoke_data_parallel_options options = {.schedule = of->schedule,
                                          .precision = of->precision,
                                          .loss_scale = of->is_scaled ? 0 : 1,
                                          .algorithm = YOKE_ALGORITHM_DIRECT,
                                          .collectives = of->collectives,
                                          .batch = ROWS,
                                          .accumulate = of->accumulate,
                                          .seed = 3,
                                          .first_bucket_bytes = 1024,
                                          .bucket_bytes = 16384};
    const yoke_optimizer_options optimizer = {.struct_size = sizeof optimizer,
                                              .kind = of->kind,
                                              .learning_rate = 0.05,
                                              .beta1 = 0.9,
                                              .beta2 = 0.999,
                                              .epsilon = 1e-8,
                                              .momentum = 0.9,
                                              .clip_norm = of->clip_norm};
    check_engine engine = check_engine_preferring(model, of->list, options, &optimizer, joined);
    watch(engine.devices);
    return engine;
}

static yoke_status take(const check_engine *engine, const course *of, int rows, uint32_t seed,
                        double *loss) {
    float ids[ROWS * LENGTH];
    int32_t labels[ROWS * LENGTH];
    check_batch batch = check_batch_make(rows, seed);
    yoke_step_result result = {.struct_size = sizeof result};
    for (int i = 0; i < ROWS * LENGTH; i++) {
        ids[i] = (float)((int)((check_noise((uint32_t)i + 31u * seed) + 0.5) * TOKENS) % TOKENS);
        labels[i] = ((int)ids[i] + 3) % TOKENS;
    }
    const yoke_batch words = {
        .struct_size = sizeof words, .rows = rows, .inputs = ids, .labels = labels};
    const yoke_batch *given = of->model == language_model ? &words : &batch.batch;
    yoke_status status = loss != NULL
                             ? yoke_data_parallel_step(engine->parallel, given, -1, &result)
                             : yoke_data_parallel_evaluate(engine->parallel, given, &result);
    check_batch_free(&batch);
    if (loss != NULL) *loss = result.loss;
    return status;
}

/* Makes every replica's weights old: the next step sends them all in float32. */
static void write_a_weight(const check_engine *engine) {
    yoke_tensor_info info = {.struct_size = sizeof info};
    const yoke_model *model = engine->parallel->step.model;
    float values[4096];
    EXPECT_OK(yoke_model_tensor(model, yoke_model_tensor_count(model) - 1, &info));
    assert_true(info.count <= COUNT(values));
    EXPECT_OK(yoke_data_parallel_read(engine->parallel, info.name, values, info.count));
    EXPECT_OK(yoke_data_parallel_write(engine->parallel, info.name, values, info.count));
}

static uint64_t hash_of(const check_engine *engine) {
    uint64_t hash;
    EXPECT_OK(yoke_data_parallel_hash(engine->parallel, &hash));
    return hash;
}

/* Bits. */

/* A step whose gradient is bad changes nothing, whoever received what of it. */
static void spoil_a_step(const check_engine *engine, const course *of) {
    double loss;
    uint64_t before = hash_of(engine), hash;
    check_engine_unrecorded(engine->parallel);
    spoils = true;
    yoke_status status = take(engine, of, ROWS, 60, &loss);
    spoils = false;
    if (status == YOKE_OK) status = yoke_data_parallel_hash(engine->parallel, &hash);
    assert_int_equal(status, YOKE_ERROR_NUMERIC);
    assert_true(hash_of(engine) == before);
}

static void expect_step(const check_engine *published, const check_engine *sent, const course *of,
                        int rows, uint32_t seed) {
    double a, b;
    EXPECT_OK(take(published, of, rows, seed, &a));
    write_a_weight(sent);
    EXPECT_OK(take(sent, of, rows, seed, &b));
    if (a != b)
        fail_msg("%s, schedule %d, optimizer %d, step %u: loss %.9g, by float32 %.9g", of->list,
                 (int)of->schedule, (int)of->kind, seed, a, b);
}

/* The first batch gives the last device no rows. */
static void expect_same_bits(const course *of) {
    static const int rows[STEPS] = {1, ROWS, 7, ROWS, 2};
    yoke_model *model = of->model();
    check_engine published = open_engine(model, of), sent = open_engine(model, of);
    for (uint32_t i = 0; i < STEPS; i++)
        expect_step(&published, &sent, of, rows[i], i);
    assert_true(hash_of(&published) == hash_of(&sent));
    if (of->schedule != YOKE_SCHEDULE_CLASSIC) {
        spoil_a_step(&published, of);
        spoil_a_step(&sent, of);
    }
    for (uint32_t i = 0; i < 3; i++)
        expect_step(&published, &sent, of, ROWS, 70 + i);
    EXPECT_OK(take(&published, of, ROWS, 80, NULL));
    assert_true(hash_of(&published) == hash_of(&sent));
    check_engine_free(&published);
    check_engine_free(&sent);
    yoke_model_destroy(model);
}

/* A step that changes nothing is no failure: the next one begins with what it has left behind. */
static void skipped_steps_leave_no_shadow(void **state) {
    (void)state;
    static const yoke_schedule those[] = {YOKE_SCHEDULE_OVERLAP, YOKE_SCHEDULE_SHARDED};
    for (size_t i = 0; i < COUNT(those); i++) {
        const course of = {perceptron,   "3xcuda:0", YOKE_COLLECTIVES_COPY,
                           those[i],     YOKE_ADAMW, 0,
                           YOKE_FLOAT16, 1,          true};
        yoke_model *model = of.model();
        check_engine published = open_engine(model, &of), sent = open_engine(model, &of);
        check_engine_unrecorded(published.parallel);
        check_engine_unrecorded(sent.parallel);
        for (uint32_t k = 0; k < STEPS; k++) {
            spoils = k == 2;
            expect_step(&published, &sent, &of, ROWS, k);
        }
        assert_true(hash_of(&published) == hash_of(&sent));
        assert_int_equal(published.parallel->step.scaler.now.skipped, 1);
        assert_int_equal(published.parallel->step.steps, sent.parallel->step.steps);
        check_engine_free(&published);
        check_engine_free(&sent);
        yoke_model_destroy(model);
    }
}

#define BY_COPY(list, schedule, kind, ...)                                                         \
    { convolutions, list, YOKE_COLLECTIVES_COPY, YOKE_SCHEDULE_##schedule, kind, __VA_ARGS__ }

static void published_weights_train_as_those_sent_in_float32(void **state) {
    (void)state;
    static const course courses[] = {
        BY_COPY("2xcuda:0", OVERLAP, YOKE_SGD, 0, YOKE_BFLOAT16, 1),
        BY_COPY("3xcuda:0", SHARDED, YOKE_ADAMW, 0, YOKE_BFLOAT16, 1),
        BY_COPY("3xcuda:0", CLASSIC, YOKE_SGD, 0, YOKE_BFLOAT16, 1),
        BY_COPY("2xcuda:0", SHARDED, YOKE_SGD, 0.5, YOKE_FLOAT16, 2),
        BY_COPY("2xcuda:0", OVERLAP, YOKE_MUON, 0, YOKE_FLOAT16, 1),
        {language_model, "2xcuda:0", YOKE_COLLECTIVES_COPY, YOKE_SCHEDULE_OVERLAP, YOKE_ADAMW, 0,
         YOKE_BFLOAT16, 1},
        {language_model, "3xcuda:0", YOKE_COLLECTIVES_COPY, YOKE_SCHEDULE_SHARDED, YOKE_ADAMW, 0,
         YOKE_BFLOAT16, 1},
        {perceptron, "3xcuda:0", YOKE_COLLECTIVES_COPY, YOKE_SCHEDULE_SHARDED, YOKE_SGD, 0,
         YOKE_BFLOAT16, 1},
        {perceptron, "cuda:0,cuda:1,cuda:2", YOKE_COLLECTIVES_AUTO, YOKE_SCHEDULE_SHARDED, YOKE_SGD,
         0, YOKE_BFLOAT16, 1},
        {perceptron, "cuda:0,cuda:1", YOKE_COLLECTIVES_AUTO, YOKE_SCHEDULE_OVERLAP, YOKE_ADAMW, 0.5,
         YOKE_BFLOAT16, 1},
    };
    for (size_t i = 0; i < COUNT(courses); i++)
        expect_same_bits(&courses[i]);
}

/* Bytes. */

typedef struct traffic {
    size_t wide, narrow; /* elements */
    size_t copied, of_root, collective;
    uint64_t hash; /* of the weights after it */
} traffic;

/* Of a step behind others. */
static traffic traffic_of(const course *of) {
    traffic found = {0};
    double loss;
    yoke_model *model = of->model();
    check_engine engine = open_engine(model, of);
    const yoke_flat *flat = engine.parallel->step.flat;
    for (int b = 0; b < flat->bucket_count; b++) {
        size_t narrow = 0;
        for (int i = 0; i < flat->trainable_count; i++)
            if (flat->parameters[i].forms == YOKE_FORM_SHADOW &&
                flat->parameters[i].offset >= flat->buckets[b].offset &&
                flat->parameters[i].offset < flat->buckets[b].offset + flat->buckets[b].elements)
                narrow += flat->parameters[i].elements;
        found.narrow += narrow;
        found.wide += flat->buckets[b].elements - narrow;
    }
    for (uint32_t i = 0; i < 3; i++) {
        copied = of_root = 0;
        found.collective = simcuda_collective_bytes();
        EXPECT_OK(take(&engine, of, ROWS, i, &loss));
        EXPECT_OK(yoke_lanes_synchronize(&engine.parallel->step));
    }
    found.collective = simcuda_collective_bytes() - found.collective;
    found.copied = copied;
    found.of_root = of_root;
    found.hash = hash_of(&engine);
    check_engine_free(&engine);
    yoke_model_destroy(model);
    return found;
}

static course of_bytes(const char *list, yoke_collectives collectives, yoke_schedule schedule,
                       yoke_precision precision) {
    return (course){perceptron, list, collectives, schedule, YOKE_SGD, 0, precision, 1};
}

static const yoke_schedule schedules[] = {YOKE_SCHEDULE_OVERLAP, YOKE_SCHEDULE_CLASSIC,
                                          YOKE_SCHEDULE_SHARDED};

/* Replicas of one GPU read gradients in place, so all that is copied are weights. */
static void copies_carry_two_bytes_a_weight(void **state) {
    (void)state;
    for (size_t i = 0; i < COUNT(schedules); i++) {
        const course narrow =
            of_bytes("3xcuda:0", YOKE_COLLECTIVES_COPY, schedules[i], YOKE_BFLOAT16);
        course wide = narrow;
        wide.precision = YOKE_FLOAT32;
        traffic before = traffic_of(&wide), after = traffic_of(&narrow);
        print_message("schedule %d: %zu bytes copied in a step, in float32 %zu\n",
                      (int)schedules[i], after.copied, before.copied);
        assert_true(after.narrow > 10 * after.wide);
        assert_int_equal(before.narrow, 0);
        assert_int_equal(before.copied, 2 * 4 * before.wide);
        /* Of a bucket with little in float32 sharded publishes all in 16 bits, too. */
        size_t exact = 2 * (4 * after.wide + 2 * after.narrow);
        assert_in_range(after.copied, exact, exact + 2 * 2 * after.wide);
    }
}

/* sharded scatters a bucket's sum to the owners of its parts, and gathers their weights, where
 * overlap reduces it to the root and broadcasts. By copies both add in one order. */
static void sharded_spares_the_root_and_keeps_the_bits(void **state) {
    (void)state;
    static const yoke_precision precisions[] = {YOKE_FLOAT32, YOKE_BFLOAT16, YOKE_FLOAT16};
    static const yoke_optimizer_kind kinds[] = {YOKE_SGD, YOKE_ADAMW, YOKE_RMSPROP};
    for (size_t i = 0; i < COUNT(precisions); i++) {
        course overlap =
            of_bytes("4xcuda:0", YOKE_COLLECTIVES_COPY, YOKE_SCHEDULE_OVERLAP, precisions[i]);
        overlap.model = i == 1 ? convolutions : perceptron;
        overlap.kind = kinds[i];
        course sharded = overlap;
        sharded.schedule = YOKE_SCHEDULE_SHARDED;
        traffic broadcast = traffic_of(&overlap), gathered = traffic_of(&sharded);
        assert_true(broadcast.hash == gathered.hash);
        print_message("root's links: overlap %zu bytes of weights in a step, sharded %zu\n",
                      broadcast.of_root, gathered.of_root);
        /* 3 P out; or 3 P / 4 out and 3 P / 4 in, and what rounds buckets and tails up */
        assert_in_range(gathered.of_root, 1, broadcast.of_root * 2 / 3);
    }
}

/* NCCL's reduce takes 4 bytes a gradient; of reduce-scatter and all-gather the part of one of two
 * counts. */
static void nccl_carries_two_bytes_a_weight(void **state) {
    (void)state;
    for (size_t i = 0; i < COUNT(schedules); i++) {
        const course of =
            of_bytes("cuda:0,cuda:1", YOKE_COLLECTIVES_NCCL, schedules[i], YOKE_BFLOAT16);
        traffic found = traffic_of(&of);
        size_t parts = schedules[i] == YOKE_SCHEDULE_SHARDED ? 2 : 1;
        size_t gradients = 4 * (found.wide + found.narrow) / parts;
        size_t least = gradients + 2 * found.narrow / parts + 4 * found.wide / parts;
        print_message("schedule %d: %zu bytes by NCCL in a step\n", (int)schedules[i],
                      found.collective);
        assert_in_range(found.collective, least, least + 2 * found.wide + 4 * found.wide);
        assert_true(found.collective < gradients + 3 * found.narrow / parts);
    }
}

/* As they lie on the root. */
static float *root_weights(const check_engine *engine, size_t *bytes) {
    const yoke_step *step = &engine->parallel->step;
    *bytes = step->flat->trainable_elements * sizeof(float);
    float *values = malloc(*bytes);
    EXPECT_OK(yoke_lanes_synchronize(&engine->parallel->step));
    EXPECT_OK(yoke_device_download(step->lanes[0].device, YOKE_STREAM_COMPUTE, values,
                                   step->lanes[0].memory->parameters, *bytes));
    return values;
}

/* Between two steps of sharded the root lacks the other owners' weights in float32: whoever reads
 * or writes weights, saves, or takes a step with a loss of the host gets them first. */
static void whoever_asks_the_root_gets_all_weights(void **state) {
    (void)state;
    course of = of_bytes("3xcuda:0", YOKE_COLLECTIVES_COPY, YOKE_SCHEDULE_SHARDED, YOKE_BFLOAT16);
    yoke_model *model = of.model();
    check_engine engine = open_engine(model, &of);
    double loss;
    size_t bytes;
    EXPECT_OK(take(&engine, &of, ROWS, 1, &loss));
    EXPECT_OK(take(&engine, &of, ROWS, 2, &loss));
    float *behind = root_weights(&engine, &bytes);
    uint64_t hash = hash_of(&engine);
    float *all = root_weights(&engine, &bytes);
    assert_memory_not_equal(behind, all, bytes);
    free(behind);
    free(all);
    yoke_state *taken = NULL;
    EXPECT_OK(take(&engine, &of, ROWS, 3, &loss));
    uint64_t later = hash_of(&engine);
    assert_true(later != hash);
    EXPECT_OK(take(&engine, &of, ROWS, 4, &loss));
    EXPECT_OK(yoke_state_create(&taken, engine.parallel, false));
    EXPECT_OK(yoke_state_take(taken, engine.parallel));
    EXPECT_OK(take(&engine, &of, ROWS, 5, &loss));
    uint64_t last = hash_of(&engine);
    EXPECT_OK(yoke_state_give(engine.parallel, taken));
    double again;
    EXPECT_OK(take(&engine, &of, ROWS, 5, &again));
    assert_true(again == loss);
    assert_true(hash_of(&engine) == last);
    yoke_state_destroy(taken);
    check_engine_free(&engine);
    yoke_model_destroy(model);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(published_weights_train_as_those_sent_in_float32),
        cmocka_unit_test(skipped_steps_leave_no_shadow),
        cmocka_unit_test(copies_carry_two_bytes_a_weight),
        cmocka_unit_test(sharded_spares_the_root_and_keeps_the_bits),
        cmocka_unit_test(nccl_carries_two_bytes_a_weight),
        cmocka_unit_test(whoever_asks_the_root_gets_all_weights),
    };
    setenv("YOKE_TEST_BACKEND", "cuda", 1);
    return RUN_ON_DEVICES(tests, NULL, NULL);
}
