/* SPDX-License-Identifier: Apache-2.0 */
/* A replica's forward, loss and backward equal plain loops in double, for every kind of layer
 * and every way of sharing values and parameters. */
#include "bench/floor/kernel_time.h"
#include "networks.h"

/* Against the reference. */

static void every_layer_equals_the_reference_under_cross_entropy(void **state) {
    (void)state;
    yoke_loss_options loss = {.struct_size = sizeof loss, .label_smoothing = 0.1};
    struct rig rig;
    rig_create(&rig, everything(&loss), 5, 1);
    assert_step_near(&rig, ROUNDING);
    rig_batch(&rig, 2);
    assert_step_near(&rig, ROUNDING);
    rig_destroy(&rig);
}

static void every_layer_equals_the_reference_under_mse(void **state) {
    (void)state;
    yoke_loss_options loss = {.struct_size = sizeof loss, .kind = YOKE_LOSS_MSE};
    struct rig rig;
    rig_create(&rig, everything(&loss), 5, 3);
    assert_step_near(&rig, ROUNDING);
    rig_destroy(&rig);
}

static void activations_equal_the_reference(void **state) {
    (void)state;
    struct rig rig;
    rig_create(&rig, activations(NULL), 5, 1);
    assert_step_near(&rig, ROUNDING);
    rig_destroy(&rig);
}

static void every_loss_equals_the_reference(void **state) {
    (void)state;
    static const float weights[] = {0.5f, 2, 0, 1, 3, 0.25f, 1.5f};
    const yoke_loss_options losses[] = {
        {.class_weights = weights, .weight_count = 7, .label_smoothing = 0.1},
        {.class_weights = weights, .weight_count = 7, .set_ignore_index = true, .ignore_index = 3},
        {.kind = YOKE_LOSS_BCE, .positive_weights = weights, .weight_count = 7},
        {.kind = YOKE_LOSS_HUBER, .huber_delta = 0.7}};
    for (size_t i = 0; i < sizeof losses / sizeof losses[0]; i++) {
        yoke_loss_options loss = losses[i];
        struct rig rig;
        loss.struct_size = sizeof loss;
        rig_create(&rig, everything(&loss), 5, 3);
        assert_step_near(&rig, ROUNDING);
        rig_destroy(&rig);
    }
}

static void layers_over_channels_equal_the_reference(void **state) {
    (void)state;
    struct rig rig;
    rig_create(&rig, over_channels(NULL), 5, 1);
    assert_step_near(&rig, ROUNDING);
    rig_destroy(&rig);
}

static void joined_images_equal_the_reference(void **state) {
    (void)state;
    struct rig rig;
    rig_create(&rig, joined(NULL), 5, 1);
    assert_step_near(&rig, ROUNDING);
    rig_destroy(&rig);
}

static void sequences_equal_the_reference(void **state) {
    (void)state;
    struct rig rig;
    rig_create(&rig, sequence(NULL), 5, 1);
    assert_step_near(&rig, ROUNDING);
    rig_destroy(&rig);
    yoke_loss_options losses[] = {{.struct_size = sizeof losses[0], .label_smoothing = 0.1},
                                  {.struct_size = sizeof losses[0], .kind = YOKE_LOSS_MSE}};
    for (int i = 0; i < 4; i++) {
        rig_create(&rig, tokens(&losses[i / 2], i % 2 == 0), 5, 2);
        assert_step_near(&rig, ROUNDING);
        rig_destroy(&rig);
    }
}

static void windows_equal_the_reference(void **state) {
    (void)state;
    struct rig rig;
    rig_create(&rig, windows(NULL), 5, 1);
    assert_step_near(&rig, 1e-5);
    rig_destroy(&rig);
    rig_create(&rig, convolutions(NULL), 5, 1);
    assert_step_near(&rig, 1e-5);
    rig_destroy(&rig);
}

static void attention_equals_the_reference(void **state) {
    (void)state;
    struct rig rig;
    rig_create(&rig, attention(NULL), 5, 1);
    assert_step_near(&rig, ROUNDING);
    rig_destroy(&rig);
}

static void resnet20_equals_the_reference(void **state) {
    (void)state;
    struct rig rig;
    rig_create(&rig, resnet20(16), 4, 4);
    assert_step_near(&rig, ROUNDING);
    rig_destroy(&rig);
}

/* Whatever the plans measure to be fastest, Winograd included. */
static void measured_algorithms_equal_the_reference(void **state) {
    (void)state;
    struct rig rig = {.model = resnet20(8), .rows = 4, .algorithm = YOKE_ALGORITHM_MEASURED};
    rig_devices(&rig);
    rig_replica(&rig, 4);
    assert_step_near(&rig, 1e-3);
    rig_destroy(&rig);
}

/* bfloat16 keeps 8 bits: errors of 1/256 at every value, grown over fifteen layers and where a ReLU
 * or a maximum decides otherwise. A contribution lost or counted twice would be far outside. */
static void check_bfloat16(yoke_model *(*network)(const yoke_loss_options *)) {
    yoke_loss_options loss = {.struct_size = sizeof loss, .kind = YOKE_LOSS_MSE};
    struct rig rig = {.model = network(&loss),
                      .rows = 5,
                      .precision = YOKE_BFLOAT16,
                      .algorithm = YOKE_ALGORITHM_DIRECT,
                      .input_gradients = true};
    rig_devices(&rig);
    bool supported = yoke_device_supports(rig.device, YOKE_BFLOAT16);
    if (supported) {
        rig_replica(&rig, 1);
        assert_step_near(&rig, 0.3);
    }
    rig_destroy(&rig);
    if (!supported) skip();
}

static void bfloat16_stays_close_to_the_reference(void **state) {
    (void)state;
    check_bfloat16(everything);
}

static void bfloat16_activations_stay_close_to_the_reference(void **state) {
    (void)state;
    check_bfloat16(activations);
}

static yoke_model *tokens_at_positions(const yoke_loss_options *loss) {
    return tokens(loss, true);
}

static void bfloat16_layers_over_channels_stay_close_to_the_reference(void **state) {
    (void)state;
    check_bfloat16(over_channels);
}

static void bfloat16_joined_images_stay_close_to_the_reference(void **state) {
    (void)state;
    check_bfloat16(joined);
}

static void bfloat16_sequences_stay_close_to_the_reference(void **state) {
    (void)state;
    check_bfloat16(sequence);
    check_bfloat16(tokens_at_positions);
}

static void bfloat16_attention_stays_close_to_the_reference(void **state) {
    (void)state;
    check_bfloat16(attention);
}

static void mlp_equals_the_reference(void **state) {
    (void)state;
    yoke_model *model = NULL;
    assert_ok(yoke_model_preset(&model, "mlp", (yoke_shape){5, 3, 2, false}, 4, NULL));
    struct rig rig;
    rig_create(&rig, model, 3, 5);
    assert_step_near(&rig, ROUNDING);
    rig_destroy(&rig);
}

/* Rows, modes, replicas. */

static void fewer_rows_than_the_primary_shard_are_right_too(void **state) {
    (void)state;
    struct rig rig;
    rig_create(&rig, everything(NULL), 6, 6);
    for (int rows = 5; rows >= 2; rows--) {
        rig.rows = rows;
        assert_step_near(&rig, ROUNDING);
    }
    yoke_plan_step step = rig_step(&rig);
    assert_int_equal(yoke_replica_forward(rig.replica, 7, true, &step), YOKE_ERROR_ARGUMENT);
    assert_int_equal(yoke_replica_prepare(rig.replica, 0, true), YOKE_OK);
    rig_destroy(&rig);
}

static void evaluation_uses_running_statistics_and_changes_nothing(void **state) {
    (void)state;
    struct rig rig;
    rig_create(&rig, everything(NULL), 5, 7);
    yoke_plan_step step = rig_step(&rig);
    yoke_float64_model *reference = NULL;
    assert_ok(yoke_float64_create(&reference, rig.model, rig.rows));
    load_reference(reference, rig.replica);
    reference->labels = rig.labels;
    reference->step = step;
    reference->training = false;
    yoke_float64_forward(reference, (const float *const *)rig.inputs);
    yoke_float64_loss(reference);
    assert_ok(yoke_replica_forward(rig.replica, rig.rows, false, &step));
    assert_ok(yoke_replica_loss(rig.replica, &step));
    assert_outputs_near(&rig, reference, 1e-4);
    assert_tensors_near(&rig, reference, false, 0);
    assert_int_equal(yoke_replica_backward_segment(rig.replica, 0, &step), YOKE_ERROR_ARGUMENT);
    yoke_float64_destroy(reference);
    rig_destroy(&rig);
}

static void copy_on_device(const struct rig *rig, void *to, const void *from, size_t bytes) {
    assert_ok(yoke_device_copy(rig->device, YOKE_STREAM_COMPUTE, to, rig->device, from, bytes));
}

static void a_second_replica_takes_the_roots_layout_and_gives_the_same_bits(void **state) {
    (void)state;
    struct rig rig;
    rig_create(&rig, everything(NULL), 4, 9);
    yoke_replica_options options = rig_options(&rig);
    yoke_replica *second = NULL, *root = rig.replica;
    options.flat = yoke_replica_flat(root);
    assert_ok(yoke_replica_create(&second, rig.model, &options));
    assert_ok(yoke_replica_allocate(second, NULL, NULL));
    assert_ptr_equal(yoke_replica_flat(second), yoke_replica_flat(root));
    const yoke_replica_memory *from = yoke_replica_memory_of(root);
    const yoke_replica_memory *to = yoke_replica_memory_of(second);
    size_t bytes = options.flat->elements * sizeof(float);
    copy_on_device(&rig, to->parameters, from->parameters, bytes);
    copy_on_device(&rig, to->buffers, from->buffers, options.flat->buffer_elements * sizeof(float));
    yoke_plan_step step = rig_step(&rig);
    assert_ok(yoke_replica_forward(root, rig.rows, true, &step));
    assert_ok(yoke_replica_loss(root, &step));
    rig_backward(&rig, &step);
    rig.replica = second;
    rig_batch(&rig, 9);
    assert_ok(yoke_replica_forward(second, rig.rows, true, &step));
    assert_ok(yoke_replica_loss(second, &step));
    rig_backward(&rig, &step);
    float *first_gradients = device_values(rig.device, from->gradients, bytes);
    float *second_gradients = device_values(rig.device, to->gradients, bytes);
    assert_memory_equal(first_gradients, second_gradients, bytes);
    free(first_gradients);
    free(second_gradients);
    yoke_replica_destroy(second);
    rig.replica = root;
    rig_destroy(&rig);
}

/* Looking closely. */

/* Memory of the device holds the bits of `before`, which is freed. */
static void assert_kept(const struct rig *rig, const void *memory, void *before, size_t bytes) {
    void *now = device_values(rig->device, memory, bytes);
    assert_memory_equal(before, now, bytes);
    free(before);
    free(now);
}

/* A batch norm may refuse what is not finite: the forward need not succeed. */
static const char *name_after_forward(const struct rig *rig, const yoke_plan_step *step) {
    yoke_status status = yoke_replica_forward(rig->replica, rig->rows, true, step);
    assert_true(status == YOKE_OK || status == YOKE_ERROR_NUMERIC);
    const char *name = yoke_replica_first_nonfinite(rig->replica);
    assert_non_null(name);
    return name;
}

static void the_first_layer_that_is_not_finite_is_named(void **state) {
    (void)state;
    struct rig rig;
    rig_create(&rig, everything(NULL), 3, 10);
    yoke_plan_step step = rig_step(&rig);
    assert_ok(yoke_replica_forward(rig.replica, rig.rows, true, &step));
    const yoke_replica_memory *memory = yoke_replica_memory_of(rig.replica);
    size_t bytes = yoke_replica_flat(rig.replica)->buffer_elements * sizeof(float);
    float *statistics = device_values(rig.device, memory->buffers, bytes);
    assert_null(yoke_replica_first_nonfinite(rig.replica));
    assert_kept(&rig, memory->buffers, statistics, bytes);

    int tensor = yoke_model_find_tensor(rig.model, "three.weight", NULL);
    float *weights = malloc(rig.model->tensors[tensor].count * sizeof *weights);
    assert_ok(yoke_replica_read(rig.replica, tensor, false, weights));
    weights[17] = INFINITY;
    assert_ok(yoke_replica_write(rig.replica, tensor, false, weights));
    free(weights);
    assert_string_equal(name_after_forward(&rig, &step), "three");
    device_put(rig.device, memory->inputs[0] + 5, &(float){NAN}, sizeof(float));
    assert_string_equal(name_after_forward(&rig, &step), "input");
    rig_destroy(&rig);
}

static void timing_alone_leaves_the_model_as_it_was(void **state) {
    (void)state;
    struct rig rig;
    rig_create(&rig, everything(NULL), 3, 11);
    const yoke_flat *flat = yoke_replica_flat(rig.replica);
    const yoke_replica_memory *memory = yoke_replica_memory_of(rig.replica);
    size_t bytes = flat->buffer_elements * sizeof(float);
    float *kept = device_values(rig.device, memory->buffers, bytes);
    double sum_ms = 0;
    assert_ok(bench_replica_time(rig.replica, 3, BENCH_KERNELS_IN_ORDER, 2, &sum_ms));
    assert_true(sum_ms > 0);
    assert_ok(bench_replica_time(rig.replica, 3, BENCH_KERNELS_ALONE, 2, &sum_ms));
    assert_true(sum_ms > 0);
    assert_kept(&rig, memory->buffers, kept, bytes);
    assert_step_near(&rig, ROUNDING);
    rig_destroy(&rig);
}

static void tensors_read_back_as_written(void **state) {
    (void)state;
    struct rig rig;
    rig_create(&rig, everything(NULL), 2, 12);
    for (int i = 0; i < rig.model->tensor_count; i++) {
        const yoke_tensor *tensor = &rig.model->tensors[i];
        float *values = malloc(tensor->count * sizeof *values);
        float *again = malloc(tensor->count * sizeof *again);
        yoke_random_uniform(values, tensor->count, -1, 1, 1, YOKE_RANDOM_PROBE, (uint64_t)i);
        yoke_status expected = tensor->integer ? YOKE_ERROR_ARGUMENT : YOKE_OK;
        assert_int_equal(yoke_replica_write(rig.replica, i, false, values), expected);
        assert_int_equal(yoke_replica_read(rig.replica, i, false, again), expected);
        if (!tensor->integer) assert_memory_equal(values, again, tensor->count * sizeof *values);
        free(values);
        free(again);
    }
    assert_int_equal(yoke_replica_read(rig.replica, -1, false, NULL), YOKE_ERROR_ARGUMENT);
    rig_destroy(&rig);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_layer_equals_the_reference_under_cross_entropy),
        cmocka_unit_test(every_layer_equals_the_reference_under_mse),
        cmocka_unit_test(activations_equal_the_reference),
        cmocka_unit_test(every_loss_equals_the_reference),
        cmocka_unit_test(layers_over_channels_equal_the_reference),
        cmocka_unit_test(joined_images_equal_the_reference),
        cmocka_unit_test(sequences_equal_the_reference),
        cmocka_unit_test(windows_equal_the_reference),
        cmocka_unit_test(attention_equals_the_reference),
        cmocka_unit_test(bfloat16_attention_stays_close_to_the_reference),
        cmocka_unit_test(resnet20_equals_the_reference),
        cmocka_unit_test(measured_algorithms_equal_the_reference),
        cmocka_unit_test(bfloat16_activations_stay_close_to_the_reference),
        cmocka_unit_test(bfloat16_layers_over_channels_stay_close_to_the_reference),
        cmocka_unit_test(bfloat16_joined_images_stay_close_to_the_reference),
        cmocka_unit_test(bfloat16_sequences_stay_close_to_the_reference),
        cmocka_unit_test(bfloat16_stays_close_to_the_reference),
        cmocka_unit_test(mlp_equals_the_reference),
        cmocka_unit_test(fewer_rows_than_the_primary_shard_are_right_too),
        cmocka_unit_test(evaluation_uses_running_statistics_and_changes_nothing),
        cmocka_unit_test(a_second_replica_takes_the_roots_layout_and_gives_the_same_bits),
        cmocka_unit_test(the_first_layer_that_is_not_finite_is_named),
        cmocka_unit_test(timing_alone_leaves_the_model_as_it_was),
        cmocka_unit_test(tensors_read_back_as_written),
    };
    return RUN_ON_DEVICES(tests, NULL, NULL);
}
