/* SPDX-License-Identifier: Apache-2.0 */
/* The state of an engine in a file: another engine goes on with it bit for bit. */
#include "support/file_place.h"
#include "support/resume_check.h"

/* A setting, and where it runs. */
typedef struct course_of_state {
    const ddp_setting *s;
    const yoke_model *model;
    int devices;
    yoke_schedule schedule;
    uint64_t hashes[STEPS + 1]; /* [k]: at the end of the run that was resumed after step k */
} run_plan;

static check_engine engine_of(const run_plan *plan, const ddp_setting *s) {
    yoke_data_parallel_options options = options_of(s);
    yoke_optimizer_options optimizer = optimizer_of(s);
    options.schedule = plan->schedule;
    return check_engine_make(plan->model, plan->devices, options, &optimizer);
}

static void check_every_step(const ddp_setting *s, int devices, yoke_schedule schedule) {
    yoke_model *model = check_model(s->norm, s->dropout);
    run_plan plan = {.model = model, .devices = devices, .schedule = schedule};
    check_engine whole = engine_of(&plan, s);
    EXPECT_OK(go_on(whole.parallel, s, 0, true, 1, 0));
    for (int k = 0; k <= STEPS; k++) {
        check_engine resumed = engine_of(&plan, s);
        char end[80];
        EXPECT_OK(yoke_state_load(resumed.parallel, file_of(k), NULL));
        EXPECT_OK(go_on(resumed.parallel, s, k, false, 1, 0));
        snprintf(end, sizeof end, "%s/end", folder);
        EXPECT_OK(yoke_state_save(resumed.parallel, end));
        expect_same_tensors(end, file_of(STEPS));
        check_engine_free(&resumed);
    }
    check_engine_free(&whole);
    yoke_model_destroy(model);
}

static const ddp_setting settings[] = {
    {.batch = 12, .accumulate = 1},
    {.batch = 12, .accumulate = 1, .adamw = true, .dropout = 0.4},
    {.batch = 12, .accumulate = 3, .norm = true, .clip = true},
};
enum { SETTINGS = sizeof settings / sizeof settings[0] };

static void a_run_resumed_after_any_step_equals_the_uninterrupted_one(void **state) {
    (void)state;
    static const yoke_schedule schedules[] = {YOKE_SCHEDULE_OVERLAP, YOKE_SCHEDULE_CLASSIC,
                                              YOKE_SCHEDULE_SHARDED};
    for (int i = 0; i < SETTINGS; i++)
        for (int devices = 1; devices <= 3; devices++)
            check_every_step(&settings[i], devices, schedules[(i + devices) % 3]);
}

/* Of two files, the second is what an engine of another kind saved after loading the first. */
static void a_state_moves_between_schedules_and_numbers_of_devices(void **state) {
    (void)state;
    static const struct {
        int devices;
        yoke_schedule schedule;
    } kinds[] = {{3, YOKE_SCHEDULE_SHARDED},
                 {1, YOKE_SCHEDULE_OVERLAP},
                 {2, YOKE_SCHEDULE_CLASSIC},
                 {2, YOKE_SCHEDULE_SHARDED}};
    for (int i = 0; i < SETTINGS; i++) {
        const ddp_setting *s = &settings[i];
        yoke_model *model = check_model(s->norm, s->dropout);
        for (int kind = 0; kind < 4; kind++) {
            run_plan plan = {
                .model = model, .devices = kinds[kind].devices, .schedule = kinds[kind].schedule};
            check_engine engine = engine_of(&plan, s);
            if (kind > 0) EXPECT_OK(yoke_state_load(engine.parallel, file_of(kind - 1), NULL));
            for (int step = 0; kind == 0 && step < 3; step++)
                EXPECT_OK(step_on(engine.parallel, s, step, 1, 0));
            EXPECT_OK(yoke_state_save(engine.parallel, file_of(kind)));
            if (kind > 0) expect_same_tensors(file_of(kind), file_of(kind - 1));
            check_engine_free(&engine);
        }
        yoke_model_destroy(model);
    }
}

static void ranks_resume_after_any_step(void **state) {
    (void)state;
    if (!devices_are_cpus()) skip(); /* tests/cuda has ranks over NCCL */
    for (int i = 0; i < 2 * SETTINGS; i++) {
        ddp_setting s = settings[i / 2];
        s.sharded = i % 2 == 1;
        s.accumulate = 1;
        check_ranks_resume(&s, 2 + i % 3);
    }
}

/* Refusals. */

static check_engine plain_engine(const yoke_model *model, const ddp_setting *s, uint64_t seed) {
    yoke_data_parallel_options options = options_of(s);
    yoke_optimizer_options optimizer = optimizer_of(s);
    options.seed = seed;
    return check_engine_make(model, 1, options, &optimizer);
}

static void expect_refused(yoke_data_parallel *parallel, const char *anyway, yoke_status status,
                           const char *const *words) {
    uint64_t before, after;
    EXPECT_OK(yoke_data_parallel_hash(parallel, &before));
    assert_int_equal(yoke_state_load(parallel, file_of(0), anyway), status);
    for (; *words != NULL; words++)
        if (strstr(yoke_last_error(), *words) == NULL)
            fail_msg("'%s' is not in: %s", *words, yoke_last_error());
    EXPECT_OK(yoke_data_parallel_hash(parallel, &after));
    assert_true(before == after);
}

static void options_that_differ_are_named_with_both_values(void **state) {
    (void)state;
    const ddp_setting first = {.batch = 12, .accumulate = 1}, other = {.batch = 8, .accumulate = 2};
    const ddp_setting adamw = {.batch = 12, .accumulate = 1, .adamw = true};
    yoke_model *model = check_model(false, 0);
    check_engine engine = plain_engine(model, &first, 7);
    EXPECT_OK(step_on(engine.parallel, &first, 0, 1, 0));
    EXPECT_OK(yoke_state_save(engine.parallel, file_of(0)));
    check_engine_free(&engine);
    engine = plain_engine(model, &other, 9);
    expect_refused(engine.parallel, NULL, YOKE_ERROR_ARGUMENT,
                   (const char *[]){"seed is 9 here and 7 there", "batch is 8 here and 12 there",
                                    "accumulate is 2 here and 1", "seed,batch,accumulate", NULL});
    expect_refused(engine.parallel, "batch,seed", YOKE_ERROR_ARGUMENT,
                   (const char *[]){"resume-anyway accumulate", NULL});
    expect_refused(engine.parallel, "batch,sede,accumulate", YOKE_ERROR_ARGUMENT,
                   (const char *[]){"'sede' is no option that a resume compares", "seed, ", NULL});
    EXPECT_OK(yoke_state_load(engine.parallel, file_of(0), "accumulate,seed,batch"));
    check_engine_free(&engine);
    engine = plain_engine(model, &adamw, 7);
    expect_refused(engine.parallel, NULL, YOKE_ERROR_ARGUMENT,
                   (const char *[]){"optimizer is adamw here and sgd there", NULL});
    expect_refused(engine.parallel, "learning_rate", YOKE_ERROR_ARGUMENT,
                   (const char *[]){"optimizer is adamw", NULL});
    EXPECT_OK(yoke_state_load(engine.parallel, file_of(0), "learning_rate,optimizer"));
    check_engine_free(&engine);
    yoke_model_destroy(model);
}

static void frozen_parameters_have_no_state_and_groups_are_compared(void **state) {
    (void)state;
    const ddp_setting s = {.batch = 12, .accumulate = 1};
    yoke_parameter_group groups[2] = {YOKE_PARAMETER_GROUP_INIT, YOKE_PARAMETER_GROUP_INIT};
    yoke_data_parallel_options options = options_of(&s);
    yoke_optimizer_options optimizer = optimizer_of(&s);
    yoke_model *model = check_model(true, 0);
    yoke_checkpoint *checkpoint;
    groups[0].pattern = "conv1.*";
    groups[0].frozen = true;
    groups[1].pattern = "fc.*";
    groups[1].learning_rate_scale = 0.5;
    options.groups = groups;
    options.group_count = 2;
    options.schedule = YOKE_SCHEDULE_SHARDED;
    check_engine whole = check_engine_make(model, 2, options, &optimizer);
    EXPECT_OK(go_on(whole.parallel, &s, 0, true, 1, 0));
    check_engine resumed = check_engine_make(model, 2, options, &optimizer);
    EXPECT_OK(yoke_state_load(resumed.parallel, file_of(7), NULL));
    EXPECT_OK(go_on(resumed.parallel, &s, 7, false, 1, 0));
    EXPECT_OK(yoke_state_save(resumed.parallel, file_of(0)));
    expect_same_tensors(file_of(0), file_of(STEPS));
    EXPECT_OK(yoke_checkpoint_open(&checkpoint, file_of(0)));
    assert_null(yoke_safetensors_find(&checkpoint->file, "optimizer.conv1.weight.momentum_buffer"));
    assert_non_null(
        yoke_safetensors_find(&checkpoint->file, "optimizer.conv2.weight.momentum_buffer"));
    yoke_checkpoint_close(checkpoint);
    check_engine_free(&whole);
    check_engine_free(&resumed);
    check_engine plain = plain_engine(model, &s, 7);
    expect_refused(plain.parallel, NULL, YOKE_ERROR_ARGUMENT,
                   (const char *[]){"groups is none here and group conv1.*", NULL});
    check_engine_free(&plain);
    yoke_model_destroy(model);
}

static void another_models_state_lists_missing_unknown_and_misshapen_names(void **state) {
    (void)state;
    const ddp_setting s = {.batch = 12, .accumulate = 1};
    yoke_model *with = check_model(true, 0), *without = check_model(false, 0);
    check_engine engine = plain_engine(with, &s, 7);
    EXPECT_OK(yoke_state_save(engine.parallel, file_of(0)));
    check_engine_free(&engine);
    engine = plain_engine(without, &s, 7);
    expect_refused(engine.parallel, NULL, YOKE_ERROR_DATA,
                   (const char *[]){"unknown (bn1.", file_of(0), NULL});
    EXPECT_OK(yoke_state_save(engine.parallel, file_of(0)));
    check_engine_free(&engine);
    engine = plain_engine(with, &s, 7);
    expect_refused(engine.parallel, NULL, YOKE_ERROR_DATA,
                   (const char *[]){"missing (bn1.weight, bn1.bias", NULL});
    check_engine_free(&engine);
    yoke_model_destroy(with);
    yoke_model_destroy(without);
}

static void a_checkpoint_initialises_weights_and_weights_are_no_checkpoint(void **state) {
    (void)state;
    const ddp_setting s = {.batch = 12, .accumulate = 1};
    yoke_model *model = check_model(true, 0);
    check_engine engine = plain_engine(model, &s, 7);
    uint64_t saved, loaded;
    EXPECT_OK(step_on(engine.parallel, &s, 0, 1, 0));
    EXPECT_OK(yoke_data_parallel_hash(engine.parallel, &saved));
    EXPECT_OK(yoke_state_save(engine.parallel, file_of(1)));
    EXPECT_OK(yoke_weights_save(engine.parallel, model, file_of(0)));
    expect_refused(engine.parallel, NULL, YOKE_ERROR_DATA, (const char *[]){"no checkpoint", NULL});
    check_engine_free(&engine);
    engine = plain_engine(model, &s, 8);
    EXPECT_OK(yoke_weights_load(engine.parallel, model, file_of(1)));
    EXPECT_OK(yoke_data_parallel_hash(engine.parallel, &loaded));
    assert_true(saved == loaded);
    check_engine_free(&engine);
    yoke_model_destroy(model);
}

/* Damage. */

static void write_bytes(const char *path, const unsigned char *data, size_t bytes) {
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(data, 1, bytes, file), bytes);
    fclose(file);
}

static yoke_model *tiny_model(void) {
    yoke_model *model = NULL;
    EXPECT_OK(yoke_model_create(&model, "tiny",
                                (yoke_shape){CHECK_CHANNELS, CHECK_SIDE, CHECK_SIDE, false}));
    yoke_value x = yoke_flatten(model, yoke_global_average_pool(model, yoke_model_input(model)));
    yoke_linear_options fc = {.struct_size = sizeof fc, .name = "fc", .out_features = 5};
    EXPECT_OK(yoke_model_finish(model, yoke_linear(model, x, &fc), NULL));
    return model;
}

static void damaged_checkpoints_initialise_no_weights(void **state) {
    (void)state;
    const ddp_setting s = {.batch = 12, .accumulate = 1};
    yoke_model *model = tiny_model();
    check_engine engine = plain_engine(model, &s, 7);
    unsigned char *data;
    size_t bytes;
    uint64_t before, after;
    EXPECT_OK(yoke_state_save(engine.parallel, file_of(1)));
    EXPECT_OK(yoke_file_read(file_of(1), 1 << 20, &data, &bytes));
    data[bytes - 4] ^= 1; /* of the last tensor */
    write_bytes(file_of(0), data, bytes);
    EXPECT_OK(yoke_data_parallel_hash(engine.parallel, &before));
    assert_int_equal(yoke_weights_load(engine.parallel, model, file_of(0)), YOKE_ERROR_DATA);
    assert_non_null(strstr(yoke_last_error(), "altered: tensor"));
    EXPECT_OK(yoke_data_parallel_hash(engine.parallel, &after));
    assert_true(before == after);
    free(data);
    check_engine_free(&engine);
    yoke_model_destroy(model);
}

static void every_flipped_bit_and_every_cut_is_noticed(void **state) {
    (void)state;
    const ddp_setting s = {.batch = 12, .accumulate = 1};
    yoke_model *model = tiny_model();
    check_engine engine = plain_engine(model, &s, 7);
    unsigned char *data;
    size_t bytes;
    yoke_checkpoint *checkpoint;
    EXPECT_OK(step_on(engine.parallel, &s, 0, 1, 0));
    EXPECT_OK(yoke_state_save(engine.parallel, file_of(1)));
    EXPECT_OK(yoke_file_read(file_of(1), 1 << 20, &data, &bytes));
    for (size_t i = 0; i < 8 * bytes; i++) {
        data[i / 8] ^= (unsigned char)(1u << i % 8);
        write_bytes(file_of(0), data, bytes);
        yoke_status status = yoke_checkpoint_open(&checkpoint, file_of(0));
        if (status != YOKE_ERROR_DATA) fail_msg("bit %zu: %s", i, yoke_status_name(status));
        if (strstr(yoke_last_error(), file_of(0)) == NULL) fail_msg("%s", yoke_last_error());
        if (i % 97 == 0)
            expect_refused(engine.parallel, NULL, YOKE_ERROR_DATA, (const char *[]){NULL});
        data[i / 8] ^= (unsigned char)(1u << i % 8);
    }
    for (size_t length = 0; length < bytes; length++) {
        write_bytes(file_of(0), data, length);
        assert_int_equal(yoke_checkpoint_open(&checkpoint, file_of(0)), YOKE_ERROR_DATA);
    }
    print_message("%zu bits flipped and %zu lengths cut one by one\n", 8 * bytes, bytes);
    free(data);
    check_engine_free(&engine);
    yoke_model_destroy(model);
}

static void a_value_that_is_not_finite_is_not_saved(void **state) {
    (void)state;
    const ddp_setting s = {.batch = 12, .accumulate = 1};
    yoke_model *model = tiny_model();
    check_engine engine = plain_engine(model, &s, 7);
    float bias[5] = {0, 1, INFINITY, 0, 0};
    EXPECT_OK(yoke_data_parallel_write(engine.parallel, "fc.bias", bias, 5));
    unlink(file_of(0));
    assert_int_equal(yoke_state_save(engine.parallel, file_of(0)), YOKE_ERROR_NUMERIC);
    assert_non_null(strstr(yoke_last_error(), "element 2 of fc.bias"));
    assert_int_equal(access(file_of(0), F_OK), -1);
    check_engine_free(&engine);
    yoke_model_destroy(model);
}

/* States of other programs. */

/* Copies a state as a program without digests saves it; `prefix` is that of nn.DataParallel, and
 * the second element of `broken`, unless NULL, becomes NaN. */
static void copy_unsealed(int from, int to, const char *prefix, const char *broken) {
    yoke_checkpoint *source;
    yoke_file_writer writer;
    yoke_file_tensor tensors[64];
    yoke_file_note notes[64] = {{"yoke.format", "unsealed"}};
    char names[64][96];
    int note_count = 1;
    EXPECT_OK(yoke_checkpoint_open(&source, file_of(from)));
    const yoke_safetensors *file = &source->file;
    assert_true(file->count <= 64);
    for (int i = 0; i < file->note_count && note_count < 64; i++)
        if (strcmp(file->notes[i].key, "format") != 0 &&
            strncmp(file->notes[i].key, "yoke.", 5) != 0 &&
            strncmp(file->notes[i].key, "xxh3.", 5) != 0)
            notes[note_count++] = file->notes[i];
    for (int i = 0; i < file->count; i++) {
        const char *name = file->tensors[i].name;
        size_t kept = strncmp(name, "optimizer.", 10) == 0 ? 10 : 0;
        snprintf(names[i], sizeof names[i], "%.*s%s%s", (int)kept, name, prefix, name + kept);
        tensors[i] = file->tensors[i];
        tensors[i].name = names[i];
    }
    EXPECT_OK(yoke_safetensors_arrange(tensors, file->count));
    EXPECT_OK(
        yoke_safetensors_create(&writer, TO(file_of(to)), tensors, file->count, notes, note_count));
    for (int i = 0; i < file->count; i++) {
        char plain[96];
        size_t kept = strncmp(tensors[i].name, "optimizer.", 10) == 0 ? 10 : 0;
        snprintf(plain, sizeof plain, "%.*s%s", (int)kept, tensors[i].name,
                 tensors[i].name + kept + strlen(prefix));
        const yoke_file_tensor *tensor = yoke_safetensors_find(file, plain);
        assert_non_null(tensor);
        unsigned char *data = malloc(tensor->bytes);
        assert_non_null(data);
        EXPECT_OK(yoke_safetensors_bytes(file, tensor, 0, data, tensor->bytes));
        if (broken != NULL && strcmp(plain, broken) == 0)
            memcpy(data + 4, &(float){NAN}, sizeof(float));
        EXPECT_OK(yoke_file_write(&writer, data, tensor->bytes));
        free(data);
    }
    EXPECT_OK(yoke_file_commit(&writer));
    yoke_checkpoint_close(source);
}

static void names_with_the_prefix_of_data_parallel_are_read(void **state) {
    (void)state;
    const ddp_setting s = {.batch = 12, .accumulate = 1, .adamw = true};
    yoke_model *model = check_model(true, 0);
    check_engine engine = plain_engine(model, &s, 7);
    EXPECT_OK(go_on(engine.parallel, &s, 0, true, 1, 0));
    check_engine_free(&engine);
    copy_unsealed(3, 0, "module.", NULL);
    engine = plain_engine(model, &s, 7);
    EXPECT_OK(yoke_state_load(engine.parallel, file_of(0), NULL));
    EXPECT_OK(go_on(engine.parallel, &s, 3, false, 1, 0));
    EXPECT_OK(yoke_state_save(engine.parallel, file_of(0)));
    expect_same_tensors(file_of(0), file_of(STEPS));
    check_engine_free(&engine);
    yoke_model_destroy(model);
}

static void a_state_that_is_not_finite_is_refused(void **state) {
    (void)state;
    const ddp_setting s = {.batch = 12, .accumulate = 1, .adamw = true};
    yoke_model *model = tiny_model();
    check_engine engine = plain_engine(model, &s, 7);
    EXPECT_OK(step_on(engine.parallel, &s, 0, 1, 0));
    EXPECT_OK(yoke_state_save(engine.parallel, file_of(1)));
    copy_unsealed(1, 0, "", "fc.bias");
    expect_refused(engine.parallel, NULL, YOKE_ERROR_DATA,
                   (const char *[]){"element 1 of fc.bias is", NULL});
    copy_unsealed(1, 0, "", "optimizer.fc.weight.exp_avg");
    expect_refused(engine.parallel, NULL, YOKE_ERROR_DATA,
                   (const char *[]){"element 1 of optimizer.fc.weight.exp_avg is", NULL});
    check_engine_free(&engine);
    yoke_model_destroy(model);
}

static void numbers_are_read_strictly(void **state) {
    (void)state;
    const ddp_setting s = {.batch = 12, .accumulate = 1};
    static const struct {
        const char *key, *value, *word;
    } cases[] = {{"step", "-3", "step is '-3', not an integer from 0 to"},
                 {"step", "3x", "step is '3x'"},
                 {"step", " 3", "step is ' 3'"},
                 {"step", "99999999999999999999", "step is '9999"},
                 {"batches_tracked", "1e3", "batches_tracked is '1e3'"}};
    yoke_model *model = tiny_model();
    check_engine engine = plain_engine(model, &s, 7);
    yoke_state *taken;
    EXPECT_OK(yoke_state_create(&taken, engine.parallel, false));
    EXPECT_OK(yoke_state_take(taken, engine.parallel));
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        yoke_facts facts = {0};
        yoke_facts_add(&facts, cases[i].key, "%s", cases[i].value);
        EXPECT_OK(yoke_checkpoint_write(taken, &facts, TO(file_of(0))));
        expect_refused(engine.parallel, NULL, YOKE_ERROR_DATA,
                       (const char *[]){cases[i].word, NULL});
    }
    yoke_state_destroy(taken);
    check_engine_free(&engine);
    yoke_model_destroy(model);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_run_resumed_after_any_step_equals_the_uninterrupted_one),
        cmocka_unit_test(a_state_moves_between_schedules_and_numbers_of_devices),
        cmocka_unit_test(ranks_resume_after_any_step),
        cmocka_unit_test(options_that_differ_are_named_with_both_values),
        cmocka_unit_test(frozen_parameters_have_no_state_and_groups_are_compared),
        cmocka_unit_test(another_models_state_lists_missing_unknown_and_misshapen_names),
        cmocka_unit_test(a_checkpoint_initialises_weights_and_weights_are_no_checkpoint),
        cmocka_unit_test(every_flipped_bit_and_every_cut_is_noticed),
        cmocka_unit_test(damaged_checkpoints_initialise_no_weights),
        cmocka_unit_test(a_value_that_is_not_finite_is_not_saved),
        cmocka_unit_test(names_with_the_prefix_of_data_parallel_are_read),
        cmocka_unit_test(a_state_that_is_not_finite_is_refused),
        cmocka_unit_test(numbers_are_read_strictly),
    };
    return RUN_ON_DEVICES(tests, make_folder, remove_folder);
}
