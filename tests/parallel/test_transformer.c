/* SPDX-License-Identifier: Apache-2.0 */
/* The preset transformer trains as in PyTorch (fixtures/make_transformer_fixture.py) on rows of
 * different length, on any number of devices and in every schedule. */
#include "pytorch_rig.h"

enum {
    ROWS = 5,
    POSITIONS = 7,
    VOCABULARY = 9,
    SOURCE_STREAM = 5000,
    TARGETS_STREAM = 6000,
    LENGTH_STREAM = 7000
};

typedef struct pairs {
    yoke_batch batch;
    float sources[ROWS * POSITIONS], targets[ROWS * POSITIONS], lengths[ROWS];
    int32_t labels[ROWS * POSITIONS];
    const float *more_inputs[2];
} pairs;

static int whole(int stream, int index, int below) {
    return (int)((number((uint32_t)stream, (uint32_t)index) + 1) / 2 * below);
}

static void make_pairs(pairs *made, int step) {
    for (int i = 0; i < ROWS * POSITIONS; i++) {
        int row = i / POSITIONS, place = i % POSITIONS, at = row * (POSITIONS + 1) + place;
        int length = 1 + whole(LENGTH_STREAM + step, ROWS + row, POSITIONS);
        made->sources[i] = (float)whole(SOURCE_STREAM + step, i, VOCABULARY);
        made->targets[i] = (float)whole(TARGETS_STREAM + step, at, VOCABULARY);
        made->labels[i] =
            place < length ? whole(TARGETS_STREAM + step, at + 1, VOCABULARY) : YOKE_NO_LABEL;
        made->lengths[row] = (float)(1 + whole(LENGTH_STREAM + step, row, POSITIONS));
    }
    made->more_inputs[0] = made->lengths;
    made->more_inputs[1] = made->targets;
    made->batch = (yoke_batch){.struct_size = sizeof made->batch,
                               .rows = ROWS,
                               .inputs = made->sources,
                               .labels = made->labels,
                               .more_inputs = made->more_inputs,
                               .more_input_count = 2};
}

static void compare_outputs(const test_rig *rig, const yoke_batch *batch, const json_t *wanted) {
    float outputs[ROWS * POSITIONS * VOCABULARY];
    size_t i;
    const json_t *entry;
    must(yoke_data_parallel_forward(rig->parallel, batch, false, outputs));
    json_array_foreach(wanted, i, entry) {
        size_t at = (size_t)json_integer_value(json_array_get(entry, 0));
        near((double)outputs[at], json_number_value(json_array_get(entry, 1)), VALUE_TOLERANCE, 1,
             "output");
    }
    assert_true(i > 0);
}

static void train_as_pytorch(const json_t *fixture, int devices, yoke_schedule schedule) {
    test_rig *rig = calloc(1, sizeof *rig);
    yoke_devices_options open = {
        .struct_size = sizeof open, .list = devices_of(devices), .threads = 1, .unbound = true};
    yoke_loss_options loss = YOKE_LOSS_OPTIONS_INIT;
    yoke_optimizer_options optimizer = optimizer_of(fixture);
    yoke_data_parallel_options options = {.struct_size = sizeof options,
                                          .schedule = schedule,
                                          .algorithm = YOKE_ALGORITHM_DIRECT,
                                          .batch = ROWS,
                                          .first_bucket_bytes = 4096,
                                          .bucket_bytes = 8192};
    loss.set_ignore_index = true;
    must(yoke_devices_open(&rig->devices, &open));
    must(yoke_model_preset(&rig->model, json_string_value(json_object_get(fixture, "model")),
                           yoke_shape_vector(POSITIONS), VOCABULARY, &loss));
    must(yoke_data_parallel_create(&rig->parallel, rig->model, rig->devices, &optimizer, &options));
    write_weights(rig, json_object_get(fixture, "tensors"));
    for (int step = 0; step < (int)json_array_size(json_object_get(fixture, "losses")); step++) {
        pairs given;
        yoke_step_result result = {.struct_size = sizeof result};
        make_pairs(&given, step);
        if (step == 0) compare_outputs(rig, &given.batch, json_object_get(fixture, "outputs"));
        must(yoke_data_parallel_step(rig->parallel, &given.batch, YOKE_OPTIMIZER_LEARNING_RATE,
                                     &result));
        near(result.loss, real_at(fixture, "losses", (size_t)step), LOSS_TOLERANCE, 0, "loss");
        assert_int_equal(result.correct, (int)real_at(fixture, "correct", (size_t)step));
        if (step == 0 && schedule == YOKE_SCHEDULE_CLASSIC)
            compare_tensors(rig, json_object_get(fixture, "gradients"),
                            yoke_data_parallel_read_gradient);
    }
    compare_tensors(rig, json_object_get(fixture, "weights"), yoke_data_parallel_read);
    close_engine(rig);
    free(rig);
}

static void ten_steps_equal_pytorch(void **state) {
    (void)state;
    json_t *fixture = read_fixture("transformer");
    assert_int_equal(json_array_size(json_object_get(fixture, "losses")), 10);
    for (int devices = 1; devices <= 3; devices++)
        for (int schedule = YOKE_SCHEDULE_OVERLAP; schedule <= YOKE_SCHEDULE_SHARDED; schedule++)
            train_as_pytorch(fixture, devices, (yoke_schedule)schedule);
    json_decref(fixture);
}

/* What lies behind the end of a row changes neither loss nor weights. */
static void padding_changes_nothing(void **state) {
    (void)state;
    double losses[2];
    for (int filler = 0; filler < 2; filler++) {
        yoke_model *model = NULL;
        yoke_devices *devices = NULL;
        yoke_data_parallel *parallel = NULL;
        yoke_loss_options loss = YOKE_LOSS_OPTIONS_INIT;
        yoke_devices_options open = {.struct_size = sizeof open, .list = devices_of(2)};
        yoke_data_parallel_options options = YOKE_DATA_PARALLEL_OPTIONS_INIT;
        pairs given;
        loss.set_ignore_index = true;
        options.batch = ROWS;
        options.algorithm = YOKE_ALGORITHM_DIRECT;
        must(yoke_devices_open(&devices, &open));
        must(yoke_model_preset(&model, "transformer:layers=1,width=8,heads=2",
                               yoke_shape_vector(POSITIONS), VOCABULARY, &loss));
        must(yoke_data_parallel_create(&parallel, model, devices, NULL, &options));
        for (int step = 0; step < 3; step++) {
            yoke_step_result result = {.struct_size = sizeof result};
            make_pairs(&given, step);
            for (int i = 0; i < ROWS * POSITIONS; i++) {
                int place = i % POSITIONS;
                if (place >= (int)given.lengths[i / POSITIONS]) given.sources[i] = (float)filler;
                if (given.labels[i] == YOKE_NO_LABEL && place > 0) {
                    bool behind = given.labels[i - 1] == YOKE_NO_LABEL;
                    if (behind) given.targets[i] = (float)filler;
                }
            }
            must(yoke_data_parallel_step(parallel, &given.batch, 0.1, &result));
            losses[filler] = result.loss;
        }
        yoke_data_parallel_destroy(parallel);
        yoke_model_destroy(model);
        yoke_devices_close(devices);
    }
    assert_true(losses[0] == losses[1]);
}

static void a_model_that_cannot_be_is_refused(void **state) {
    (void)state;
    yoke_model *model = NULL;
    assert_int_equal(yoke_model_preset(&model, "transformer:width=10,heads=4",
                                       yoke_shape_vector(POSITIONS), VOCABULARY, NULL),
                     YOKE_ERROR_ARGUMENT);
    if (strstr(yoke_last_error(), "4 heads must divide the width, 10") == NULL)
        fail_msg("it says: %s", yoke_last_error());
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ten_steps_equal_pytorch),
        cmocka_unit_test(padding_changes_nothing),
        cmocka_unit_test(a_model_that_cannot_be_is_refused),
    };
    return RUN_ON_DEVICES(tests, NULL, NULL);
}
