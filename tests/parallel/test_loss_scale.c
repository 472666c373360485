/* SPDX-License-Identifier: Apache-2.0 */
/* The scale of the loss: a power of two changes no bit, and a dynamic one goes the way of
 * torch.amp.GradScaler (fixtures/make_half_fixture.py), on every schedule. */
#include "parallel/parallel.h"
#include "pytorch_rig.h"

enum { ROWS = 8 };
#define HUGE_TARGET                                                                                \
    1e6f /* the gradient of its squared error is no float16, at any scale above 1                  \
          */

static test_rig *open_rig(const subject_model *subject, const char *kind, int devices,
                          yoke_data_parallel_options options) {
    json_t *fixture = read_fixture("half");
    json_t *test_case = json_object_get(json_object_get(fixture, "subjects"), subject->name);
    test_rig *rig = calloc(1, sizeof *rig);
    assert_non_null(rig);
    rig->subject = subject;
    json_t *own = json_deep_copy(test_case);
    if (strcmp(kind, "adamw") == 0)
        json_object_set_new(
            own, "optimizer",
            json_pack("{s:s,s:f,s:f}", "kind", kind, "learning_rate", 0.003, "weight_decay", 0.05));
    if (strcmp(kind, "clipped") == 0) json_object_set_new(own, "clip_norm", json_real(0.5));
    open_engine(rig, json_object_get(own, "tensors"), own, devices_of(devices), options);
    json_decref(own);
    json_decref(fixture);
    return rig;
}

static void close_rig(test_rig *rig) {
    close_engine(rig);
    free(rig);
}

static uint64_t hash_of(const test_rig *rig) {
    uint64_t hash = 0;
    must(yoke_data_parallel_hash(rig->parallel, &hash));
    return hash;
}

static yoke_loss_scale_report scale_of(const test_rig *rig) {
    yoke_loss_scale_report report = {.struct_size = sizeof report};
    must(yoke_data_parallel_loss_scale(rig->parallel, &report));
    return report;
}

static void take_step(test_rig *rig, int step, bool bad) {
    yoke_batch batch = make_batch(rig, ROWS, (uint32_t)step);
    yoke_step_result result = {.struct_size = sizeof result};
    for (int i = 0; bad && i < ROWS * 3; i++)
        rig->targets[i] = HUGE_TARGET;
    must(yoke_data_parallel_step(rig->parallel, &batch, YOKE_OPTIMIZER_LEARNING_RATE, &result));
    assert_true(isfinite(result.loss));
}

static bool is_bad(const json_t *scaler, int step) {
    const json_t *bad = json_object_get(scaler, "bad");
    for (size_t i = 0; i < json_array_size(bad); i++)
        if (json_integer_value(json_array_get(bad, i)) == step) return true;
    return false;
}

/* Powers of two. */

static void train_float32(const subject_model *subject, const char *kind, int devices,
                          yoke_schedule schedule, double scale, uint64_t *hash, double *norm) {
    test_rig *rig =
        open_rig(subject, kind, devices,
                 (yoke_data_parallel_options){
                     .schedule = schedule, .loss_scale = scale, .loss_scale_interval = 3});
    for (int step = 0; step < 20; step++) {
        yoke_batch batch = make_batch(rig, ROWS, (uint32_t)step);
        yoke_step_result result = {.struct_size = sizeof result};
        must(yoke_data_parallel_step(rig->parallel, &batch, YOKE_OPTIMIZER_LEARNING_RATE, &result));
        *norm = result.gradient_norm;
    }
    *hash = hash_of(rig);
    assert_true(scale_of(rig).scale == (scale < 0 ? 65536 * 64 : scale));
    close_rig(rig);
}

/* Nor does one that doubles six times. */
static void a_power_of_two_changes_no_bit(void **state) {
    static const subject_model *const subjects[] = {&mlp, &resnet, &vit};
    static const char *const kinds[] = {"sgd", "adamw", "clipped", "adamw"};
    (void)state;
    for (int i = 0; i < 12; i++) {
        uint64_t plain, scaled;
        double norm, scaled_norm;
        yoke_schedule schedule = (yoke_schedule)(i / 3 % 3);
        train_float32(subjects[i % 3], kinds[i / 3], 1 + i % 3, schedule, 1, &plain, &norm);
        for (int dynamic = 0; dynamic < 2; dynamic++) {
            train_float32(subjects[i % 3], kinds[i / 3], 1 + i % 3, schedule,
                          dynamic ? YOKE_LOSS_SCALE_DYNAMIC : 1024, &scaled, &scaled_norm);
            if (plain != scaled) fail_msg("%s, %s", subjects[i % 3]->name, kinds[i / 3]);
            assert_true(norm == scaled_norm);
        }
    }
}

/* What the engine gives of gradients, and takes, is without the scale. */
static void gradients_by_hand_are_without_it(void **state) {
    enum { PIXELS = 3 * 8 * 8 };
    float input[2][ROWS * PIXELS], weight[2][8 * 3 * 9], own[ROWS * 5];
    (void)state;
    fill(own, ROWS * 5, 77, 1, 0);
    for (int given = 0; given < 2; given++) { /* gradients of outputs, or those of the loss */
        uint64_t hashes[2];
        for (int i = 0; i < 2; i++) {
            test_rig *rig = open_rig(&resnet, "sgd", 2,
                                     (yoke_data_parallel_options){.loss_scale = i == 0 ? 1 : 512,
                                                                  .input_gradients = true});
            yoke_batch batch = make_batch(rig, ROWS, 0);
            must(yoke_data_parallel_forward(rig->parallel, &batch, true, NULL));
            must(yoke_data_parallel_backward(rig->parallel, given ? own : NULL));
            must(yoke_data_parallel_read_input_gradients(rig->parallel, input[i]));
            must(yoke_data_parallel_read_gradient(rig->parallel, "conv1.weight", weight[i],
                                                  8 * 3 * 9));
            for (int k = 0; k < 8 * 3 * 9; k++)
                weight[i][k] *= 2;
            must(yoke_data_parallel_write_gradient(rig->parallel, "conv1.weight", weight[i],
                                                   8 * 3 * 9));
            must(yoke_data_parallel_update(rig->parallel, 0.1));
            hashes[i] = hash_of(rig);
            close_rig(rig);
        }
        assert_memory_equal(input[0], input[1], sizeof input[0]);
        assert_memory_equal(weight[0], weight[1], sizeof weight[0]);
        assert_int_equal(hashes[0], hashes[1]);
        assert_true(weight[0][0] != 0);
    }
}

/* Dynamic. */

static void follow(const char *kind, int devices, yoke_data_parallel_options options) {
    json_t *fixture = read_fixture("half");
    const json_t *scaler = json_object_get(fixture, "scaler");
    options.precision = YOKE_FLOAT16;
    options.loss_scale_interval = integer(scaler, "interval");
    test_rig *rig = open_rig(&mlp, kind, devices, options);
    uint64_t skipped = 0;
    int steps = (int)json_array_size(json_object_get(scaler, "scales"));
    for (int step = 0; step < steps; step++) {
        bool bad = is_bad(scaler, step);
        yoke_loss_scale_report before = scale_of(rig);
        uint64_t hash = hash_of(rig);
        if (before.scale != real_at(scaler, "scales", (size_t)step))
            fail_msg("step %d: scale %g, GradScaler %g", step, before.scale,
                     real_at(scaler, "scales", (size_t)step));
        take_step(rig, step, bad);
        assert_int_equal(hash_of(rig) == hash, bad);
        skipped += bad;
        assert_int_equal(scale_of(rig).skipped_steps, skipped);
    }
    assert_int_equal(steps, 40);
    close_rig(rig);
    json_decref(fixture);
}

static void it_follows_gradscaler(void **state) {
    (void)state;
    for (int schedule = YOKE_SCHEDULE_OVERLAP; schedule <= YOKE_SCHEDULE_SHARDED; schedule++) {
        yoke_data_parallel_options options = {.schedule = (yoke_schedule)schedule};
        follow("sgd", 1, options);
        follow("adamw", 2, options);
        follow("clipped", 3, options);
    }
    follow("sgd", 2, (yoke_data_parallel_options){.accumulate = 2});
    follow("adamw", 2, (yoke_data_parallel_options){.shards = 4});
    follow("adamw", 2, (yoke_data_parallel_options){.ema_decay = 0.9});
}

/* A run of 30 steps with 9 skipped ones, or, of models with classes, where every scale that is well
 * doubles; and what it leaves. asks: after each step, a call waits for the devices. */
typedef struct course {
    double losses[30], scale;
    uint64_t good, skipped, weights, average, batches, correct, rows;
} course;

static course run_steps(const subject_model *subject, const char *kind, int devices,
                        yoke_data_parallel_options options, bool asks) {
    json_t *fixture = read_fixture("half");
    const json_t *scaler = json_object_get(fixture, "scaler");
    course taken = {.correct = 0};
    options.precision = YOKE_FLOAT16;
    options.loss_scale_interval = subject->classes > 0 ? 1 : 3;
    test_rig *rig = open_rig(subject, kind, devices, options);
    for (int step = 0; step < 30; step++) {
        yoke_step_result result = {.struct_size = sizeof result};
        yoke_batch batch = make_batch(rig, ROWS, (uint32_t)step);
        for (int i = 0; is_bad(scaler, step) && i < ROWS * 3; i++)
            rig->targets[i] = HUGE_TARGET;
        must(yoke_data_parallel_step(rig->parallel, &batch, YOKE_OPTIMIZER_LEARNING_RATE, &result));
        taken.losses[step] = result.loss;
        taken.correct += (uint64_t)result.correct;
        taken.rows += (uint64_t)result.rows;
        if (asks) (void)scale_of(rig);
    }
    yoke_loss_scale_report report = scale_of(rig);
    taken.scale = report.scale;
    taken.good = report.good_steps;
    taken.skipped = report.skipped_steps;
    taken.weights = hash_of(rig);
    taken.batches = yoke_data_parallel_batches_tracked(rig->parallel);
    if (options.ema_decay > 0) must(yoke_data_parallel_use_average(rig->parallel, true));
    taken.average = hash_of(rig);
    close_rig(rig);
    json_decref(fixture);
    return taken;
}

/* On GPUs the step behind a skipped one begins before the host knows, and once more then. */
static void steps_one_after_the_other_go_the_same_way(void **state) {
    static const struct {
        const subject_model *subject;
        const char *kind;
        int devices;
        yoke_data_parallel_options options;
    } runs[] = {
        {&mlp, "adamw", 1, {0}},
        {&mlp, "adamw", 2, {0}},
        {&mlp, "adamw", 3, {.schedule = YOKE_SCHEDULE_SHARDED}},
        {&mlp, "sgd", 1, {.ema_decay = 0.9}},
        {&mlp, "adamw", 2, {.accumulate = 3, .ema_decay = 0.9}},
        {&mlp, "adamw", 2, {.shards = 4}},
        {&mlp, "clipped", 1, {.ema_decay = 0.9}},
        {&mlp, "adamw", 2, {.schedule = YOKE_SCHEDULE_CLASSIC}},
        {&resnet, "sgd", 1, {0}}, /* with running statistics */
        {&resnet, "adamw", 2, {.synchronize_batch_norm = true}},
        {&vit, "adamw", 1, {.ema_decay = 0.5}},
    };
    (void)state;
    for (size_t i = 0; i < sizeof runs / sizeof runs[0]; i++) {
        course asked =
            run_steps(runs[i].subject, runs[i].kind, runs[i].devices, runs[i].options, true);
        course taken =
            run_steps(runs[i].subject, runs[i].kind, runs[i].devices, runs[i].options, false);
        if (runs[i].subject == &mlp ? asked.skipped != 9 : asked.skipped < 3)
            fail_msg("run %zu skips %llu steps", i, (unsigned long long)asked.skipped);
        if (memcmp(&asked, &taken, sizeof asked) != 0) fail_msg("run %zu", i);
    }
}

/* As if the batch had never come: AdamW counts no update, and running statistics stay. */
static void a_skipped_step_leaves_no_trace(void **state) {
    (void)state;
    uint64_t hashes[2];
    for (int i = 0; i < 2; i++) {
        test_rig *rig =
            open_rig(&mlp, "adamw", 2, (yoke_data_parallel_options){.precision = YOKE_FLOAT16});
        for (int step = 0; step < 8; step++) {
            bool bad = step == 0 || step == 4;
            if (!bad || i == 0) take_step(rig, step, bad);
        }
        assert_int_equal(scale_of(rig).skipped_steps, i == 0 ? 2 : 0);
        hashes[i] = hash_of(rig);
        close_rig(rig);
    }
    assert_int_equal(hashes[0], hashes[1]);
}

static void by_hand_an_update_is_skipped_too(void **state) {
    float gradients[ROWS * 3];
    (void)state;
    test_rig *rig = open_rig(&mlp, "adamw", 2,
                             (yoke_data_parallel_options){.loss_scale = YOKE_LOSS_SCALE_DYNAMIC});
    for (int step = 0; step < 4; step++) {
        bool bad = step % 2 == 1;
        uint64_t before = hash_of(rig);
        yoke_batch batch = make_batch(rig, ROWS, (uint32_t)step);
        for (int i = 0; i < ROWS * 3; i++)
            gradients[i] = bad ? INFINITY : 0.1f;
        must(yoke_data_parallel_forward(rig->parallel, &batch, true, NULL));
        must(yoke_data_parallel_backward(rig->parallel, gradients));
        must(yoke_data_parallel_update(rig->parallel, 0.01));
        assert_int_equal(hash_of(rig) == before, bad);
    }
    yoke_loss_scale_report scale = scale_of(rig);
    assert_true(scale.scale == 65536 / 4 && scale.skipped_steps == 2 && scale.good_steps == 0);
    close_rig(rig);
}

/* The scale may double in between: a gradient has that of its batch. */
static void a_gradient_keeps_the_scale_of_its_batch(void **state) {
    enum { COUNT = 8 * 3 * 9 };
    float before[COUNT], after[COUNT];
    uint64_t hashes[2];
    (void)state;
    for (int dynamic = 0; dynamic < 2; dynamic++) {
        test_rig *rig = open_rig(
            &resnet, "sgd", 2,
            (yoke_data_parallel_options){.loss_scale = dynamic ? YOKE_LOSS_SCALE_DYNAMIC : 1,
                                         .loss_scale_interval = 1});
        yoke_batch batch = make_batch(rig, ROWS, 0);
        must(yoke_data_parallel_forward(rig->parallel, &batch, true, NULL));
        must(yoke_data_parallel_backward(rig->parallel, NULL));
        must(yoke_data_parallel_read_gradient(rig->parallel, "conv1.weight", before, COUNT));
        must(yoke_data_parallel_forward(rig->parallel, &batch, true, NULL));
        must(yoke_data_parallel_loss_replicas(rig->parallel));
        must(yoke_data_parallel_update(rig->parallel, 0.1));
        must(yoke_data_parallel_read_gradient(rig->parallel, "conv1.weight", after, COUNT));
        assert_memory_equal(before, after, sizeof before);
        must(yoke_data_parallel_backward_replicas(rig->parallel));
        must(yoke_data_parallel_reduce(rig->parallel));
        must(yoke_data_parallel_update(rig->parallel, 0.1));
        if (dynamic) assert_true(scale_of(rig).scale == 4 * 65536.0);
        hashes[dynamic] = hash_of(rig);
        close_rig(rig);
    }
    assert_true(before[0] != 0);
    assert_int_equal(hashes[0], hashes[1]);
}

static void a_state_has_the_scale_and_its_counts(void **state) {
    static const char path[] = "loss_scale_state.safetensors";
    json_t *fixture = read_fixture("half");
    const json_t *scaler = json_object_get(fixture, "scaler");
    yoke_data_parallel_options options = {.precision = YOKE_FLOAT16, .loss_scale_interval = 3};
    (void)state;
    test_rig *whole = open_rig(&mlp, "adamw", 2, options);
    for (int step = 0; step < 14; step++)
        take_step(whole, step, is_bad(scaler, step));
    must(yoke_state_save(whole->parallel, path));
    options.schedule = YOKE_SCHEDULE_SHARDED;
    test_rig *resumed = open_rig(&mlp, "adamw", 2, options);
    must(yoke_state_load(resumed->parallel, path, NULL));
    yoke_loss_scale_report a = scale_of(whole), b = scale_of(resumed);
    assert_true(a.scale == b.scale && a.good_steps == b.good_steps);
    assert_int_equal(a.skipped_steps, 6);
    assert_int_equal(b.skipped_steps, 6);
    for (int step = 14; step < 30; step++) {
        take_step(whole, step, is_bad(scaler, step));
        take_step(resumed, step, is_bad(scaler, step));
        assert_int_equal(hash_of(whole), hash_of(resumed));
    }
    assert_true(scale_of(whole).scale == scale_of(resumed).scale);
    close_rig(resumed);
    close_rig(whole);
    remove(path);
    json_decref(fixture);
}

/* Refused, or an error. */

static void a_gradient_that_no_scale_helps_is_an_error(void **state) {
    (void)state;
    test_rig *rig = open_rig(&mlp, "sgd", 1,
                             (yoke_data_parallel_options){.loss_scale = YOKE_LOSS_SCALE_DYNAMIC});
    float gradients[ROWS * 3];
    yoke_status status = YOKE_OK;
    int updates = 0;
    for (int i = 0; i < ROWS * 3; i++)
        gradients[i] = NAN;
    uint64_t before = hash_of(rig);
    for (; status == YOKE_OK && updates < 100; updates++) {
        yoke_batch batch = make_batch(rig, ROWS, 0);
        must(yoke_data_parallel_forward(rig->parallel, &batch, true, NULL));
        must(yoke_data_parallel_backward(rig->parallel, gradients));
        status = yoke_data_parallel_update(rig->parallel, 0.01);
    }
    assert_int_equal(status, YOKE_ERROR_NUMERIC);
    assert_int_equal(updates, 33); /* 65536 halves 32 times to 2^-16 */
    assert_non_null(strstr(yoke_last_error(), "even with a loss scale"));
    assert_int_equal(hash_of(rig), before);
    close_rig(rig);
}

static void a_fixed_scale_reports_an_overflow(void **state) {
    (void)state;
    test_rig *rig =
        open_rig(&mlp, "sgd", 2,
                 (yoke_data_parallel_options){.precision = YOKE_FLOAT16, .loss_scale = 1024});
    uint64_t before = hash_of(rig);
    yoke_batch batch = make_batch(rig, ROWS, 0);
    for (int i = 0; i < ROWS * 3; i++)
        rig->targets[i] = HUGE_TARGET;
    yoke_status status = yoke_data_parallel_step(rig->parallel, &batch, 0.1, NULL);
    if (status == YOKE_OK) /* GPUs say so with the next call */
        status = yoke_data_parallel_loss_scale(
            rig->parallel,
            &(yoke_loss_scale_report){.struct_size = sizeof(yoke_loss_scale_report)});
    assert_int_equal(status, YOKE_ERROR_NUMERIC);
    assert_int_equal(hash_of(rig), before);
    close_rig(rig);
}

static void a_loss_that_is_not_finite_stays_an_error(void **state) {
    (void)state;
    test_rig *rig =
        open_rig(&vit, "sgd", 2, (yoke_data_parallel_options){.precision = YOKE_FLOAT16});
    yoke_batch batch = make_batch(rig, ROWS, 0);
    rig->inputs[3] = 1e30f; /* no float16: infinity */
    uint64_t before = hash_of(rig);
    assert_int_equal(yoke_data_parallel_step(rig->parallel, &batch, 0.1, NULL), YOKE_ERROR_NUMERIC);
    assert_int_equal(hash_of(rig), before);
    assert_int_equal(scale_of(rig).skipped_steps, 0);
    close_rig(rig);
}

static void wrong_options_are_refused(void **state) {
    static const struct {
        yoke_data_parallel_options options;
        const char *words;
    } cases[] = {{{.loss_scale = 3}, "loss_scale is 3: a power of two"},
                 {{.loss_scale = 0.5}, "loss_scale is 0.5"},
                 {{.loss_scale = NAN}, "loss_scale is nan"},
                 {{.loss_scale = -2}, "loss_scale is -2"},
                 {{.loss_scale_interval = -1}, "loss_scale_interval is -1"},
                 {{.precision = YOKE_FLOAT16, .skip_finite_check = true}, "skip_finite_check"}};
    yoke_devices *devices = NULL;
    yoke_devices_options open = {.struct_size = sizeof open, .list = devices_of(1)};
    yoke_model *model = NULL;
    (void)state;
    must(yoke_devices_open(&devices, &open));
    must(yoke_model_preset(&model, "mlp", (yoke_shape){.channels = 1, .height = 4, .width = 4}, 3,
                           NULL));
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        yoke_data_parallel *parallel = NULL;
        yoke_data_parallel_options options = cases[i].options;
        options.struct_size = sizeof options;
        options.batch = 4;
        assert_int_equal(yoke_data_parallel_create(&parallel, model, devices, NULL, &options),
                         YOKE_ERROR_ARGUMENT);
        if (strstr(yoke_last_error(), cases[i].words) == NULL) fail_msg("%s", yoke_last_error());
    }
    yoke_model_destroy(model);
    yoke_devices_close(devices);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_power_of_two_changes_no_bit),
        cmocka_unit_test(gradients_by_hand_are_without_it),
        cmocka_unit_test(it_follows_gradscaler),
        cmocka_unit_test(steps_one_after_the_other_go_the_same_way),
        cmocka_unit_test(a_skipped_step_leaves_no_trace),
        cmocka_unit_test(by_hand_an_update_is_skipped_too),
        cmocka_unit_test(a_gradient_keeps_the_scale_of_its_batch),
        cmocka_unit_test(a_state_has_the_scale_and_its_counts),
        cmocka_unit_test(a_gradient_that_no_scale_helps_is_an_error),
        cmocka_unit_test(a_fixed_scale_reports_an_overflow),
        cmocka_unit_test(a_loss_that_is_not_finite_stays_an_error),
        cmocka_unit_test(wrong_options_are_refused),
    };
    return RUN_ON_DEVICES(tests, NULL, NULL);
}
