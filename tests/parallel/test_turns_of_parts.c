/* SPDX-License-Identifier: Apache-2.0 */
/* Two networks learn in turn from the same batch, as with two optimizers of PyTorch
 * (fixtures/make_gan_fixture.py), in every schedule and on any number of devices. */
#include "pytorch_rig.h"

#include "yoke/elementary.h"

enum { ROWS = 6, NOISE = 3, POINT = 2, WIDTH = 8, STEPS = 10 };

typedef struct rows_of_step {
    float noise[ROWS * NOISE], real[ROWS * POINT];
    const float *more_inputs[1];
    yoke_batch batch;
} rows_of_step;

static void make_rows(rows_of_step *made, int step) {
    fill(made->noise, ROWS * NOISE, (uint32_t)(INPUT_STREAM + step), 1, 0);
    fill(made->real, ROWS * POINT, (uint32_t)(TARGET_STREAM + step), 0.5f, 1);
    made->more_inputs[0] = made->real;
    made->batch = (yoke_batch){.struct_size = sizeof made->batch,
                               .rows = ROWS,
                               .inputs = made->noise,
                               .more_inputs = made->more_inputs,
                               .more_input_count = 1};
}

/* own: the first use of its parameters. */
static yoke_value network(yoke_model *model, yoke_value value, const char *prefix, int outputs,
                          bool own) {
    char first[16], second[16], names[2][16];
    snprintf(first, sizeof first, "%s.fc1", prefix);
    snprintf(second, sizeof second, "%s.fc2", prefix);
    snprintf(names[0], sizeof names[0], "%s.again1", prefix);
    snprintf(names[1], sizeof names[1], "%s.again2", prefix);
    value = linear(model, value, own ? first : names[0], WIDTH, own ? NULL : first);
    value = yoke_tanh(model, value);
    return linear(model, value, own ? second : names[1], outputs, own ? NULL : second);
}

static yoke_value softplus_of(yoke_model *model, yoke_value value, double sign) {
    return yoke_map(model, YOKE_FN_SOFTPLUS, yoke_map_with(model, YOKE_FN_SCALE, value, sign, 0));
}

/* Both have all parameters; the second model's loss is the generator's. */
static yoke_model *make_model(bool generator) {
    yoke_model *model = NULL;
    yoke_loss_options loss = YOKE_LOSS_OPTIONS_INIT;
    loss.kind = YOKE_LOSS_OUTPUT;
    must(yoke_model_create(&model, generator ? "generator" : "discriminator",
                           yoke_shape_vector(NOISE)));
    yoke_value real = {-1};
    if (!generator) real = yoke_model_add_input(model, "real", yoke_shape_vector(POINT));
    yoke_value fake = network(model, yoke_model_input(model), "g", POINT, true);
    yoke_value value = network(model, fake, "d", 1, true);
    if (generator)
        value = softplus_of(model, value, -1);
    else
        value = yoke_add(model, softplus_of(model, network(model, real, "d", 1, false), -1),
                         softplus_of(model, value, 1));
    must(yoke_model_finish(model, value, &loss));
    return model;
}

static void train(const json_t *fixture, int devices, yoke_schedule schedule, int accumulate) {
    static const char *const trained[] = {"d.*", "g.*"};
    test_rig *rig = calloc(1, sizeof *rig);
    yoke_model *generator = make_model(true);
    const yoke_model *const others[] = {generator};
    yoke_devices_options open = {
        .struct_size = sizeof open, .list = devices_of(devices), .threads = 1, .unbound = true};
    yoke_optimizer_options adam = YOKE_ADAM_OPTIONS_INIT;
    yoke_data_parallel_options options = {.struct_size = sizeof options,
                                          .schedule = schedule,
                                          .algorithm = YOKE_ALGORITHM_DIRECT,
                                          .batch = ROWS,
                                          .accumulate = accumulate,
                                          .first_bucket_bytes = 128,
                                          .bucket_bytes = 256,
                                          .other_models = others,
                                          .other_model_count = 1,
                                          .trained = trained};
    adam.learning_rate = real(fixture, "rate");
    adam.beta1 = 0.5;
    adam.weight_decay = 0.01;
    rig->model = make_model(false);
    must(yoke_devices_open(&rig->devices, &open));
    must(yoke_data_parallel_create(&rig->parallel, rig->model, rig->devices, &adam, &options));
    write_weights(rig, json_object_get(fixture, "tensors"));
    size_t taken[2] = {0, 0};
    for (int step = 0; step < STEPS; step++) {
        rows_of_step given;
        make_rows(&given, step);
        for (int turn = 0; turn < (step == 4 ? 3 : 2); turn++) {
            yoke_step_result result = {.struct_size = sizeof result};
            int which = turn < 2 ? turn : 0;
            given.batch.model = which;
            must(yoke_data_parallel_step(rig->parallel, &given.batch, YOKE_OPTIMIZER_LEARNING_RATE,
                                         &result));
            near(result.loss,
                 real_at(fixture, which == 0 ? "d_losses" : "g_losses", taken[which]++), 1e-5, 0,
                 "loss");
        }
    }
    assert_int_equal(taken[0], STEPS + 1);
    compare_tensors(rig, json_object_get(fixture, "weights"), yoke_data_parallel_read);
    close_engine(rig);
    yoke_model_destroy(generator);
    free(rig);
}

static void two_networks_learn_as_with_two_optimizers(void **state) {
    (void)state;
    json_t *fixture = read_fixture("gan");
    for (int devices = 1; devices <= 3; devices++)
        for (int schedule = YOKE_SCHEDULE_OVERLAP; schedule <= YOKE_SCHEDULE_SHARDED; schedule++)
            train(fixture, devices, (yoke_schedule)schedule, 1);
    train(fixture, 2, YOKE_SCHEDULE_OVERLAP, 3);
    json_decref(fixture);
}

/* Many steps of one part: what the other one had for a gradient does not add up. */
static void a_part_that_rests_stays(void **state) {
    (void)state;
    static const char *const trained[] = {"d.*", "g.*"};
    yoke_model *model = make_model(false), *generator = make_model(true);
    const yoke_model *const others[] = {generator};
    yoke_devices *devices = NULL;
    yoke_data_parallel *parallel = NULL;
    rows_of_step given;
    float before[WIDTH * NOISE], after[WIDTH * NOISE];
    yoke_devices_options open = {.struct_size = sizeof open, .list = devices_of(3)};
    yoke_optimizer_options sgd = YOKE_SGD_OPTIONS_INIT;
    yoke_data_parallel_options options = YOKE_DATA_PARALLEL_OPTIONS_INIT;
    options.batch = ROWS;
    options.other_models = others, options.other_model_count = 1;
    options.trained = trained;
    sgd.momentum = 0.9;
    sgd.weight_decay = 0.1;
    must(yoke_devices_open(&devices, &open));
    must(yoke_data_parallel_create(&parallel, model, devices, &sgd, &options));
    make_rows(&given, 0);
    given.batch.model = 1;
    must(yoke_data_parallel_step(parallel, &given.batch, 0.1, NULL)); /* it has momentum now */
    must(yoke_data_parallel_read(parallel, "g.fc1.weight", before, WIDTH * NOISE));
    given.batch.model = 0;
    for (int step = 0; step < 200; step++)
        must(yoke_data_parallel_step(parallel, &given.batch, 0.01, NULL));
    must(yoke_data_parallel_read(parallel, "g.fc1.weight", after, WIDTH * NOISE));
    assert_memory_equal(before, after, sizeof before);
    yoke_data_parallel_destroy(parallel);
    yoke_devices_close(devices);
    yoke_model_destroy(model);
    yoke_model_destroy(generator);
}

static void expect_refused(const char *const *trained, double clip_norm, const char *words) {
    yoke_model *model = make_model(false), *generator = make_model(true);
    const yoke_model *const others[] = {generator};
    yoke_devices *devices = NULL;
    yoke_data_parallel *parallel = NULL;
    yoke_devices_options open = {.struct_size = sizeof open, .list = devices_of(1)};
    yoke_optimizer_options sgd = YOKE_SGD_OPTIONS_INIT;
    yoke_data_parallel_options options = YOKE_DATA_PARALLEL_OPTIONS_INIT;
    options.batch = ROWS;
    options.other_models = others, options.other_model_count = 1;
    options.trained = trained;
    sgd.clip_norm = clip_norm;
    must(yoke_devices_open(&devices, &open));
    assert_int_equal(yoke_data_parallel_create(&parallel, model, devices, &sgd, &options),
                     YOKE_ERROR_ARGUMENT);
    if (strstr(yoke_last_error(), words) == NULL)
        fail_msg("'%s' should contain '%s'", yoke_last_error(), words);
    yoke_devices_close(devices);
    yoke_model_destroy(model);
    yoke_model_destroy(generator);
}

static void parts_that_cannot_be_are_refused(void **state) {
    (void)state;
    static const char *const wrong[] = {"d.*", "generator.*"}, *const right[] = {"d.*", "g.*"};
    expect_refused(wrong, 0, "parameters to train \"generator.*\" matches no name");
    expect_refused(right, 1, "clip_norm with models that train a part");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(two_networks_learn_as_with_two_optimizers),
        cmocka_unit_test(a_part_that_rests_stays),
        cmocka_unit_test(parts_that_cannot_be_are_refused),
    };
    return RUN_ON_DEVICES(tests, NULL, NULL);
}
