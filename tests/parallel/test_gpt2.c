/* SPDX-License-Identifier: Apache-2.0 */
/* The presets gpt2 and lstm-char train as in PyTorch (fixtures/make_gpt2_fixture.py,
 * make_lstm_char_fixture.py), on any number of devices; gpt2 has the tensors of
 * openai-community/gpt2. */
#include "model/graph.h"
#include "pytorch_rig.h"

enum { ROWS = 5, CONTEXT = 8, VOCABULARY = 11, TOKEN_STREAM = 4000 };

typedef struct sentences {
    yoke_batch batch;
    float ids[ROWS * CONTEXT];
    int32_t labels[ROWS * CONTEXT];
} sentences;

static void make_sentences(sentences *made, int step) {
    for (int i = 0; i < ROWS * CONTEXT; i++) {
        uint32_t at = (uint32_t)(i / CONTEXT * (CONTEXT + 1) + i % CONTEXT);
        uint32_t stream = TOKEN_STREAM + (uint32_t)step;
        made->ids[i] = (float)(int)((number(stream, at) + 1) / 2 * VOCABULARY);
        made->labels[i] = (int32_t)((number(stream, at + 1) + 1) / 2 * VOCABULARY);
    }
    made->batch = (yoke_batch){.struct_size = sizeof made->batch,
                               .rows = ROWS,
                               .inputs = made->ids,
                               .labels = made->labels};
}

static yoke_model *model_of(const json_t *fixture) {
    yoke_model *model = NULL;
    yoke_shape row = {CONTEXT, 1, 1, true, false};
    must(yoke_model_preset(&model, json_string_value(json_object_get(fixture, "model")), row,
                           VOCABULARY, NULL));
    return model;
}

static void compare_outputs(const test_rig *rig, const yoke_batch *batch, const json_t *wanted) {
    float outputs[ROWS * CONTEXT * VOCABULARY];
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
    assert_non_null(rig);
    yoke_devices_options open = {
        .struct_size = sizeof open, .list = devices_of(devices), .threads = 1, .unbound = true};
    yoke_optimizer_options optimizer = optimizer_of(fixture);
    yoke_data_parallel_options options = {.struct_size = sizeof options,
                                          .schedule = schedule,
                                          .algorithm = YOKE_ALGORITHM_DIRECT,
                                          .batch = ROWS,
                                          .first_bucket_bytes = 4096,
                                          .bucket_bytes = 8192};
    must(yoke_devices_open(&rig->devices, &open));
    rig->model = model_of(fixture);
    must(yoke_data_parallel_create(&rig->parallel, rig->model, rig->devices, &optimizer, &options));
    write_weights(rig, json_object_get(fixture, "tensors"));
    for (int step = 0; step < (int)json_array_size(json_object_get(fixture, "losses")); step++) {
        sentences given;
        yoke_step_result result = {.struct_size = sizeof result};
        make_sentences(&given, step);
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

static void train_everywhere(const char *name) {
    json_t *fixture = read_fixture(name);
    assert_int_equal(json_array_size(json_object_get(fixture, "losses")), 20);
    for (int devices = 1; devices <= 3; devices++)
        for (int schedule = YOKE_SCHEDULE_OVERLAP; schedule <= YOKE_SCHEDULE_SHARDED; schedule++)
            train_as_pytorch(fixture, devices, (yoke_schedule)schedule);
    json_decref(fixture);
}

static void twenty_steps_equal_pytorch(void **state) {
    (void)state;
    train_everywhere("gpt2");
}

static void twenty_steps_of_an_lstm_equal_pytorch(void **state) {
    (void)state;
    train_everywhere("lstm_char");
}

/* The file of openai-community/gpt2: 124,439,808 parameters. */
static void the_tensors_are_those_of_gpt2(void **state) {
    (void)state;
    static const struct {
        const char *name;
        int64_t shape[2];
    } some[] = {{"wte.weight", {50257, 768}},
                {"wpe.weight", {1024, 768}},
                {"h.0.ln_1.weight", {768}},
                {"h.0.ln_1.bias", {768}},
                {"h.0.attn.c_attn.weight", {768, 2304}},
                {"h.0.attn.c_attn.bias", {2304}},
                {"h.3.attn.c_proj.weight", {768, 768}},
                {"h.11.ln_2.bias", {768}},
                {"h.11.mlp.c_fc.weight", {768, 3072}},
                {"h.11.mlp.c_proj.weight", {3072, 768}},
                {"h.11.mlp.c_proj.bias", {768}},
                {"ln_f.weight", {768}},
                {"ln_f.bias", {768}}};
    yoke_model *model = NULL;
    must(yoke_model_preset(&model, "gpt2:layers=12,width=768,heads=12,context=1024",
                           (yoke_shape){64, 1, 1, true, false}, 50257, NULL));
    assert_int_equal(yoke_model_parameter_count(model), 124439808);
    assert_int_equal(yoke_model_tensor_count(model), 2 + 12 * 12 + 2);
    for (size_t i = 0; i < sizeof some / sizeof some[0]; i++) {
        int at = yoke_model_find_tensor(model, some[i].name, NULL);
        if (at < 0) fail_msg("%s is missing", some[i].name);
        for (int k = 0; k < 2; k++)
            assert_int_equal(model->tensors[at].shape[k], some[i].shape[k]);
    }
    yoke_model_destroy(model);
}

static void rows_that_do_not_fit_are_refused(void **state) {
    (void)state;
    static const struct {
        const char *name, *words;
        yoke_shape row;
    } cases[] = {
        {"gpt2", "it reads token ids", {3, 32, 32, false, false}},
        {"gpt2:context=8", "9 positions, there are embeddings of 8", {9, 1, 1, true, false}},
        {"gpt2:width=10,heads=4", "4 heads", {9, 1, 1, true, false}}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        yoke_model *model = NULL;
        assert_int_equal(yoke_model_preset(&model, cases[i].name, cases[i].row, 7, NULL),
                         YOKE_ERROR_ARGUMENT);
        if (strstr(yoke_last_error(), cases[i].words) == NULL)
            fail_msg("\"%s\" does not say \"%s\"", yoke_last_error(), cases[i].words);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(twenty_steps_equal_pytorch),
        cmocka_unit_test(twenty_steps_of_an_lstm_equal_pytorch),
        cmocka_unit_test(the_tensors_are_those_of_gpt2),
        cmocka_unit_test(rows_that_do_not_fit_are_refused),
    };
    return RUN_ON_DEVICES(tests, NULL, NULL);
}
