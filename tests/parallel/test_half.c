/* SPDX-License-Identifier: Apache-2.0 */
/* Training in float16 and bfloat16 stays as near to float64 as PyTorch's autocast, with its
 * GradScaler in float16, does (fixtures/make_half_fixture.py): within twice its distance. */
#include "pytorch_rig.h"

enum { ROWS = 5, CONTEXT = 8, VOCABULARY = 11, TOKEN_STREAM = 4000, TRAINED_ROWS = 8 };
#define FACTOR 2.0
/* Under autocast the sums of residual blocks stay float32 in these models; here every value between
 * operations is of the precision, and bfloat16 has 8 bits. */
#define FACTOR_OF_SUMS 4.0
/* A ReLU whose input is nearly 0 opens or not by the last bit. In step 4 of mlp, one of fc1 is 8e-5
 * from 0: in float64 its other choice moves the losses by 3.4e-3 and the weights by 6.6e-3. GPUs
 * round a product before they add the bias, and there it does. */
#define ONE_RELU 1e-2
/* AdamW makes a whole step of a gradient's sign. In gpt2 that of one weight in 170 (wpe.weight,
 * number 25) is nearly 0 at first: where scores round to 16 bits, it ends two steps of 0.003 away.
 */
#define ONE_SIGN 6e-4

/* One run of a subject: its batches, and how far it went astray. */
typedef struct half_run {
    test_rig *rig;
    bool tokens;
    float ids[ROWS * CONTEXT];
    int32_t labels[ROWS * CONTEXT];
    double factor, floor, squares;
    size_t count;
} half_run;

static yoke_batch sentences(half_run *run, int step) {
    for (int i = 0; i < ROWS * CONTEXT; i++) {
        uint32_t at = (uint32_t)(i / CONTEXT * (CONTEXT + 1) + i % CONTEXT);
        uint32_t stream = TOKEN_STREAM + (uint32_t)step;
        run->ids[i] = (float)(int)((number(stream, at) + 1) / 2 * VOCABULARY);
        run->labels[i] = (int32_t)((number(stream, at + 1) + 1) / 2 * VOCABULARY);
    }
    return (yoke_batch){
        .struct_size = sizeof(yoke_batch), .rows = ROWS, .inputs = run->ids, .labels = run->labels};
}

static void add(half_run *run, double value, double exact) {
    run->squares += (value - exact) * (value - exact);
    run->count++;
}

static void expect_within(half_run *run, double allowed, const char *what) {
    double distance = sqrt(run->squares / (double)run->count);
    print_message("%s: %.2e from float64, PyTorch %.2e\n", what, distance, allowed);
    if (!(distance <= fmax(run->factor * allowed, run->floor)))
        fail_msg("%s: %g from float64, PyTorch's autocast %g", what, distance, allowed);
    run->squares = 0;
    run->count = 0;
}

static void add_weights(half_run *run, const json_t *wanted) {
    const char *name;
    json_t *entries;
    json_object_foreach((json_t *)(uintptr_t)wanted, name, entries) {
        yoke_tensor_info info = {.struct_size = sizeof info};
        for (int i = 0; i < yoke_model_tensor_count(run->rig->model); i++) {
            must(yoke_model_tensor(run->rig->model, i, &info));
            if (strcmp(info.name, name) == 0) break;
        }
        assert_string_equal(info.name, name);
        float *values = malloc(info.count * sizeof *values);
        assert_non_null(values);
        must(yoke_data_parallel_read(run->rig->parallel, name, values, info.count));
        size_t i;
        const json_t *entry;
        json_array_foreach(entries, i, entry)
            add(run, (double)values[json_integer_value(json_array_get(entry, 0))],
                json_number_value(json_array_get(entry, 1)));
        free(values);
    }
}

static void open_tokens(test_rig *rig, const json_t *fixture, const json_t *test_case,
                        yoke_data_parallel_options options) {
    yoke_devices_options open = {
        .struct_size = sizeof open, .list = devices_of(1), .threads = 1, .unbound = true};
    yoke_optimizer_options optimizer = optimizer_of(test_case);
    yoke_shape row = {CONTEXT, 1, 1, true, false};
    const char *name =
        json_string_value(json_object_get(json_object_get(fixture, "gpt2"), "model"));
    must(yoke_devices_open(&rig->devices, &open));
    must(yoke_model_preset(&rig->model, name, row, VOCABULARY, NULL));
    options.struct_size = sizeof options;
    options.algorithm = YOKE_ALGORITHM_DIRECT;
    options.batch = ROWS;
    must(yoke_data_parallel_create(&rig->parallel, rig->model, rig->devices, &optimizer, &options));
    write_weights(rig, json_object_get(test_case, "tensors"));
}

/* subject NULL: gpt2. */
static void train(const char *name, const subject_model *subject, yoke_precision precision) {
    static const char *const words[] = {[YOKE_BFLOAT16] = "bfloat16", [YOKE_FLOAT16] = "float16"};
    json_t *fixture = read_fixture("half");
    const json_t *test_case = json_object_get(json_object_get(fixture, "subjects"), name);
    const json_t *autocast = json_object_get(test_case, words[precision]);
    yoke_data_parallel_options options = {.precision = precision};
    half_run run = {.rig = calloc(1, sizeof *run.rig), .tokens = subject == NULL};
    bool sums = precision == YOKE_BFLOAT16 && (run.tokens || subject == &vit);
    char what[64];
    run.factor = sums ? FACTOR_OF_SUMS : FACTOR;
    run.floor = devices_are_cpus() || subject == &vit ? 0 : run.tokens ? ONE_SIGN : ONE_RELU;
    assert_non_null(run.rig);
    run.rig->subject = subject;
    if (run.tokens)
        open_tokens(run.rig, fixture, test_case, options);
    else
        open_engine(run.rig, json_object_get(test_case, "tensors"), test_case, devices_of(1),
                    options);
    for (int step = 0; step < integer(fixture, "steps"); step++) {
        yoke_batch batch =
            run.tokens ? sentences(&run, step) : make_batch(run.rig, TRAINED_ROWS, (uint32_t)step);
        yoke_step_result result = {.struct_size = sizeof result};
        must(yoke_data_parallel_step(run.rig->parallel, &batch, YOKE_OPTIMIZER_LEARNING_RATE,
                                     &result));
        add(&run, result.loss, real_at(test_case, "losses", (size_t)step));
    }
    assert_int_equal(run.count, 20);
    snprintf(what, sizeof what, "%s in %s, losses", name, words[precision]);
    expect_within(&run, real(autocast, "loss_distance"), what);
    add_weights(&run, json_object_get(test_case, "weights"));
    snprintf(what, sizeof what, "%s in %s, weights", name, words[precision]);
    expect_within(&run, real(autocast, "weight_distance"), what);
    if (precision == YOKE_FLOAT16) {
        yoke_loss_scale_report scale = {.struct_size = sizeof scale};
        must(yoke_data_parallel_loss_scale(run.rig->parallel, &scale));
        assert_true(scale.dynamic && scale.skipped_steps == 0);
        assert_true(scale.scale == real(autocast, "scale"));
    }
    close_engine(run.rig);
    free(run.rig);
    json_decref(fixture);
}

static void train_all(yoke_precision precision) {
    train("mlp", &mlp, precision);
    train("convnet", &convnet, precision);
    train("resnet", &resnet, precision);
    train("vit", &vit, precision);
    train("gpt2", NULL, precision);
}

static void float16_stays_as_near_to_float64_as_autocast(void **state) {
    (void)state;
    train_all(YOKE_FLOAT16);
}

static void bfloat16_stays_as_near_to_float64_as_autocast(void **state) {
    (void)state;
    yoke_devices *devices = NULL;
    yoke_devices_options open = {.struct_size = sizeof open, .list = devices_of(1)};
    must(yoke_devices_open(&devices, &open));
    bool supported = yoke_device_supports(yoke_devices_at(devices, 0), YOKE_BFLOAT16);
    yoke_devices_close(devices);
    if (!supported) {
        print_message("skipped: this processor does not compute in bfloat16\n");
        skip();
    }
    train_all(YOKE_BFLOAT16);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(float16_stays_as_near_to_float64_as_autocast),
        cmocka_unit_test(bfloat16_stays_as_near_to_float64_as_autocast),
    };
    return RUN_ON_DEVICES(tests, NULL, NULL);
}
