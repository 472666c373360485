/* SPDX-License-Identifier: Apache-2.0 */
/* Backward's list of actions: gradients of values and parameters with any number of readers, and
 * its segments. */
#include "model/program.h"
#include "networks.h"

static void random_graphs_equal_the_reference(void **state) {
    (void)state;
    for (uint32_t seed = 1; seed <= 120; seed++) {
        struct rig rig;
        rig_create(&rig, random_graph(seed, false, false), 3, seed);
        assert_step_near(&rig, ROUNDING);
        rig_destroy(&rig);
    }
}

static void random_graphs_of_several_inputs_and_outputs_equal_the_reference(void **state) {
    (void)state;
    for (uint32_t seed = 1; seed <= 80; seed++) {
        struct rig rig;
        rig_create(&rig, random_graph(seed, seed % 2 == 0, true), 3, seed);
        assert_step_near(&rig, 5e-4); /* gradients of up to eight outputs cancel */
        rig_destroy(&rig);
    }
}

/* Backward that goes on to the model's input, whichever layers read it. */
static void check_input_gradients(yoke_model *model, yoke_algorithm algorithm, uint64_t seed) {
    struct rig rig = {.model = model, .rows = 3, .algorithm = algorithm, .input_gradients = true};
    rig_devices(&rig);
    rig_replica(&rig, seed);
    assert_step_near(&rig, ROUNDING);
    rig_destroy(&rig);
}

static void gradients_of_the_inputs_equal_the_reference(void **state) {
    (void)state;
    for (uint32_t seed = 1; seed <= 40; seed++) {
        check_input_gradients(random_graph(seed, true, false), YOKE_ALGORITHM_DIRECT, seed);
        check_input_gradients(random_graph(seed, true, true), YOKE_ALGORITHM_DIRECT, seed);
    }
    check_input_gradients(everything(NULL), YOKE_ALGORITHM_MEASURED, 1);
    check_input_gradients(sequence(NULL), YOKE_ALGORITHM_MEASURED, 1);
    check_input_gradients(tokens(NULL, true), YOKE_ALGORITHM_MEASURED, 1);
    check_input_gradients(attention(NULL), YOKE_ALGORITHM_MEASURED, 1);
}

/* The layers before the first parameter run behind the last bucket. */
static void layers_without_parameters_lead_to_the_inputs_too(void **state) {
    (void)state;
    yoke_model *model = NULL, *vector = NULL;
    assert_ok(yoke_model_create(&model, "front", (yoke_shape){6, 5, 5, false}));
    yoke_value value =
        yoke_dropout(model, yoke_relu(model, pooled(model, yoke_model_input(model))), 0.2);
    value = yoke_flatten(model, yoke_add(model, value, value));
    assert_ok(yoke_model_finish(model, linear(model, value, "fc", 4, NULL), NULL));
    check_input_gradients(model, YOKE_ALGORITHM_DIRECT, 3);
    assert_ok(yoke_model_create(&vector, "vector", (yoke_shape){9, 1, 1, true}));
    assert_ok(
        yoke_model_finish(vector, linear(vector, yoke_model_input(vector), "fc", 4, NULL), NULL));
    check_input_gradients(vector, YOKE_ALGORITHM_DIRECT, 4);
}

static void gradients_of_the_inputs_cost_nothing_unless_asked_for(void **state) {
    (void)state;
    struct rig rig;
    const float *gradients = NULL;
    rig_create(&rig, everything(NULL), 3, 1);
    assert_int_equal(yoke_replica_program(rig.replica, 3, true)->gradients_of_inputs[0],
                     YOKE_PLACE_NOWHERE);
    assert_step_near(&rig, ROUNDING);
    assert_int_equal(yoke_replica_input_gradients(rig.replica, 0, &gradients), YOKE_ERROR_ARGUMENT);
    rig_destroy(&rig);
}

/* The input of a block is read by its first convolution and by the join: two contributions, one
 * sum. */
static void a_residual_join_costs_one_accumulate(void **state) {
    (void)state;
    struct rig rig;
    rig_create(&rig, resnet20(8), 2, 1);
    const yoke_program *program = yoke_replica_program(rig.replica, 2, true);
    int counts[YOKE_ACTION_SUM + 1] = {0};
    for (int i = 0; i < program->action_count; i++)
        counts[program->actions[i].kind]++;
    assert_int_equal(counts[YOKE_ACTION_ACCUMULATE], 9);
    assert_int_equal(counts[YOKE_ACTION_COPY], 0);
    assert_int_equal(counts[YOKE_ACTION_SUM], 0);
    rig_destroy(&rig);
}

/* Every parameter of the bucket, poisoned before, must be whole after its segment. */
static void assert_bucket_complete(const struct rig *rig, const float *gradients,
                                   const yoke_bucket *bucket) {
    const yoke_flat *flat = yoke_replica_flat(rig->replica);
    for (int i = 0; i < flat->parameter_count; i++) {
        const yoke_parameter *parameter = &flat->parameters[i];
        if (parameter->offset < bucket->offset ||
            parameter->offset >= bucket->offset + bucket->elements)
            continue;
        for (size_t k = 0; k < parameter->layout.bytes / sizeof(float); k++)
            assert_true(isfinite(gradients[parameter->offset + k]));
    }
}

static void a_segment_completes_its_bucket_for_good(void **state) {
    (void)state;
    yoke_model *models[] = {everything(NULL), resnet20(8)};
    for (size_t m = 0; m < 2; m++) {
        struct rig rig;
        rig_create(&rig, models[m], 3, 8);
        const yoke_flat *flat = yoke_replica_flat(rig.replica);
        float *on_device = yoke_replica_memory_of(rig.replica)->gradients;
        size_t bytes = flat->elements * sizeof(float);
        float *kept = malloc(bytes), *gradients = malloc(bytes);
        yoke_plan_step step = rig_step(&rig);
        assert_true(flat->bucket_count > 2);
        assert_ok(yoke_replica_forward(rig.replica, rig.rows, true, &step));
        assert_ok(yoke_replica_loss(rig.replica, &step));
        for (size_t i = 0; i < flat->elements; i++)
            gradients[i] = NAN;
        device_put(rig.device, on_device, gradients, bytes);
        for (int s = 0; s < flat->bucket_count; s++) {
            assert_ok(yoke_replica_backward_segment(rig.replica, s, &step));
            const yoke_bucket *bucket = &flat->buckets[s];
            device_take(rig.device, gradients, on_device, bytes);
            assert_bucket_complete(&rig, gradients, bucket);
            memcpy(kept + bucket->offset, gradients + bucket->offset,
                   bucket->elements * sizeof *kept);
        }
        assert_memory_equal(kept, gradients, bytes);
        free(kept);
        free(gradients);
        rig_destroy(&rig);
    }
}

/* Frozen parameters. */

/* Any parameters may be frozen: the gradients of the others are the same. */
static void frozen_parameters_change_no_other_gradient(void **state) {
    (void)state;
    for (uint32_t seed = 1; seed <= 80; seed++) {
        bool frozen[64] = {false}, several = seed % 4 > 1;
        struct rig rig = {.model = random_graph(seed, seed % 2 == 0, several),
                          .rows = 3,
                          .algorithm = YOKE_ALGORITHM_DIRECT,
                          .input_gradients = seed % 5 == 0,
                          .frozen = frozen};
        assert_in_range(rig.model->tensor_count, 1, 64);
        for (int i = 1; i < rig.model->tensor_count; i++) /* one at least trains */
            frozen[i] = rig.model->tensors[i].trainable && (seed * 31u + (uint32_t)i * 7u) % 3 > 0;
        rig_devices(&rig);
        rig_replica(&rig, seed);
        assert_step_near(&rig, several ? 5e-4 : ROUNDING);
        rig_destroy(&rig);
    }
}

/* A network of linear layers; `frozen` names those whose weight and bias are. */
static void open_frozen_chain(struct rig *rig, bool frozen[8], const char *names) {
    yoke_model *model = NULL;
    assert_ok(yoke_model_create(&model, "chain", (yoke_shape){9, 1, 1, true}));
    yoke_value value = yoke_relu(model, linear(model, yoke_model_input(model), "a", 8, NULL));
    value = yoke_relu(model, linear(model, value, "b", 8, NULL));
    value = yoke_relu(model, linear(model, value, "c", 8, NULL));
    assert_ok(yoke_model_finish(model, linear(model, value, "d", 4, NULL), NULL));
    for (int i = 0; i < model->tensor_count; i++)
        frozen[i] = strchr(names, model->tensors[i].name[0]) != NULL;
    *rig = (struct rig){
        .model = model, .rows = 3, .algorithm = YOKE_ALGORITHM_DIRECT, .frozen = frozen};
    rig_devices(rig);
    rig_replica(rig, 1);
}

static int count_backwards(const struct rig *rig) {
    const yoke_program *program = yoke_replica_program(rig->replica, rig->rows, true);
    int count = 0;
    for (int i = 0; i < program->action_count; i++)
        count += program->actions[i].kind == YOKE_ACTION_BACKWARD;
    return count;
}

/* Four linear layers, three ReLUs and the output. */
static void backward_stops_behind_the_first_layer_that_trains(void **state) {
    (void)state;
    static const struct {
        const char *frozen;
        int backwards;
    } cases[] = {{"", 8}, {"b", 8}, {"a", 6}, {"ab", 4}, {"abc", 2}, {"bcd", 8}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct rig rig;
        bool frozen[8];
        open_frozen_chain(&rig, frozen, cases[i].frozen);
        assert_int_equal(count_backwards(&rig), cases[i].backwards);
        assert_step_near(&rig, ROUNDING);
        rig_destroy(&rig);
    }
}

/* What a poisoned gradient still holds after backward, nobody computed. */
static void a_frozen_layer_computes_no_gradient_of_its_weights(void **state) {
    (void)state;
    struct rig rig;
    bool frozen[8];
    open_frozen_chain(&rig, frozen, "bd");
    const yoke_flat *flat = yoke_replica_flat(rig.replica);
    float *on_device = yoke_replica_memory_of(rig.replica)->gradients;
    size_t bytes = flat->elements * sizeof(float);
    float *gradients = malloc(bytes);
    yoke_plan_step step = rig_step(&rig);
    for (size_t i = 0; i < flat->elements; i++)
        gradients[i] = NAN;
    device_put(rig.device, on_device, gradients, bytes);
    assert_ok(yoke_replica_forward(rig.replica, rig.rows, true, &step));
    assert_ok(yoke_replica_loss(rig.replica, &step));
    rig_backward(&rig, &step);
    device_take(rig.device, gradients, on_device, bytes);
    assert_int_equal(flat->trainable_count, 4);
    for (int i = 0; i < flat->parameter_count; i++) {
        const yoke_parameter *parameter = &flat->parameters[i];
        assert_int_equal(parameter->frozen, i >= flat->trainable_count);
        for (size_t k = 0; k < parameter->layout.bytes / sizeof(float); k++)
            assert_int_equal(isnan(gradients[parameter->offset + k]) != 0, parameter->frozen);
    }
    free(gradients);
    rig_destroy(&rig);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_graphs_equal_the_reference),
        cmocka_unit_test(random_graphs_of_several_inputs_and_outputs_equal_the_reference),
        cmocka_unit_test(gradients_of_the_inputs_equal_the_reference),
        cmocka_unit_test(layers_without_parameters_lead_to_the_inputs_too),
        cmocka_unit_test(gradients_of_the_inputs_cost_nothing_unless_asked_for),
        cmocka_unit_test(a_residual_join_costs_one_accumulate),
        cmocka_unit_test(a_segment_completes_its_bucket_for_good),
        cmocka_unit_test(frozen_parameters_change_no_other_gradient),
        cmocka_unit_test(backward_stops_behind_the_first_layer_that_trains),
        cmocka_unit_test(a_frozen_layer_computes_no_gradient_of_its_weights),
    };
    return RUN_ON_DEVICES(tests, NULL, NULL);
}
