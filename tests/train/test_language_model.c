/* SPDX-License-Identifier: Apache-2.0 */
/* The trainer on a text: from a file to the loss of its next bytes. */
#include "saves_check.h"

enum { LINES = 120 };

/* A text with a rule: the letters of a line follow one another. */
static const char *write_text(void) {
    static char spec[192];
    char path[128];
    FILE *file = fopen(in_folder("text", path), "w");
    assert_non_null(file);
    for (int i = 0; i < LINES; i++)
        for (int k = 0; k <= 9; k++)
            fputc(k == 9 ? '\n' : 'a' + (i * i + k) % 12, file);
    fclose(file);
    snprintf(spec, sizeof spec, "text:%s,context=16", path);
    return spec;
}

static void remove_text(void) {
    char path[128];
    unlink(in_folder("text", path));
}

static yoke_trainer_options language(log_of_run *run, const char *dataset) {
    static const yoke_optimizer_options adamw = {.struct_size = sizeof adamw,
                                                 .kind = YOKE_ADAMW,
                                                 .learning_rate = 0.01,
                                                 .beta1 = 0.9,
                                                 .beta2 = 0.999,
                                                 .epsilon = 1e-8};
    yoke_trainer_options options = small(run);
    options.model = "gpt2:layers=1,width=32,heads=2";
    options.dataset = dataset;
    options.optimizer = &adamw;
    options.misclassified = 3; /* rows of several labels have none */
    return options;
}

static void a_language_model_learns_the_next_byte_on_any_number_of_devices(void **state) {
    (void)state;
    const char *text = write_text();
    double losses[2];
    for (int devices = 1; devices <= 2; devices++) {
        log_of_run run = {0};
        yoke_trainer_options options = language(&run, text);
        options.devices = devices_of(devices);
        options.epochs = 12;
        EXPECT_OK(train(&run, &options));
        assert_int_equal(run.evaluations, 1);
        assert_true(fabs(run.losses[0] - log(13)) < 0.3); /* 13 tokens, and nothing known */
        assert_true(run.evaluation.loss < 0.8);
        assert_true(run.evaluation.accuracy > 0.75 && run.evaluation.accuracy <= 1);
        assert_true(run.epoch.accuracy > 0.5 && run.epoch.accuracy <= 1); /* of labels, not rows */
        losses[devices - 1] = run.evaluation.loss;
        yoke_trainer_destroy(run.trainer);
    }
    assert_true(fabs(losses[1] - losses[0]) <= 1e-4 * losses[0]);
    remove_text();
}

static void a_resumed_run_gives_the_bits_of_the_whole_one(void **state) {
    (void)state;
    const char *text = write_text();
    uint64_t hashes[2];
    for (int i = 0; i < 2; i++) {
        log_of_run whole = {0}, run = {0};
        yoke_trainer_options options = language(&run, text);
        options.checkpoint_dir = in_folder("saves", saves);
        options.checkpoint_unit = YOKE_CHECKPOINT_STEPS;
        options.steps = i == 0 ? 7 : 12; /* an epoch has 4 or 5 steps, and windows of its own */
        options.resume = i == 0 ? NULL : "auto";
        EXPECT_OK(train(&run, &options));
        hashes[1] = hash_of(run.trainer);
        yoke_trainer_destroy(run.trainer);
        if (i == 0) continue;
        assert_int_equal(run.resumed, 1);
        options = language(&whole, text);
        options.steps = 12;
        EXPECT_OK(train(&whole, &options));
        hashes[0] = hash_of(whole.trainer);
        yoke_trainer_destroy(whole.trainer);
    }
    assert_true(hashes[0] == hashes[1]);
    clear_saves();
    remove_text();
}

static void expect_refused(const char *model, const char *dataset, const char *words) {
    log_of_run run = {0};
    yoke_trainer_options options = language(&run, dataset);
    options.model = model;
    assert_int_equal(yoke_trainer_create(&run.trainer, &options), YOKE_ERROR_ARGUMENT);
    if (strstr(yoke_last_error(), words) == NULL)
        fail_msg("\"%s\" does not say \"%s\"", yoke_last_error(), words);
}

static void models_and_rows_that_do_not_go_together_are_refused(void **state) {
    (void)state;
    const char *text = write_text();
    expect_refused("mlp", text, "has 16 labels a row, and mlp predicts 1");
    expect_refused("resnet20", text, "resnet20 reads images, and these rows are vectors of 16");
    expect_refused("gpt2", SMALL, "it reads token ids, a flat input of the model");
    expect_refused(
        "gpt2:context=8", text,
        "16 positions, there are embeddings of 8: cut shorter rows, as text:FILE,context=8");
    remove_text();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_language_model_learns_the_next_byte_on_any_number_of_devices),
        cmocka_unit_test(a_resumed_run_gives_the_bits_of_the_whole_one),
        cmocka_unit_test(models_and_rows_that_do_not_go_together_are_refused),
    };
    return RUN_ON_DEVICES(tests, make_folder, remove_folder);
}
