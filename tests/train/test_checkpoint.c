/* The state of an engine in a file: another engine goes on with it bit for bit. */
#include <dirent.h>
#include <unistd.h>

#include "support/ddp_check.h"
#include "train/checkpoint.h"

static char folder[] = "/tmp/yoke-checkpoint-XXXXXX";

static int make_folder(void **state) {
    (void)state;
    return mkdtemp(folder) == NULL;
}

static int remove_folder(void **state) {
    (void)state;
    DIR *directory = opendir(folder);
    if (directory == NULL) return -1;
    for (struct dirent *entry; (entry = readdir(directory)) != NULL;)
        unlinkat(dirfd(directory), entry->d_name, 0);
    closedir(directory);
    return rmdir(folder);
}

static const char *file_of(int step) {
    static _Thread_local char path[80];
    snprintf(path, sizeof path, "%s/%d", folder, step);
    return path;
}

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

static yoke_status step_on(yoke_data_parallel *parallel, const ddp_setting *s, int step, int world,
                           int rank) {
    check_batch whole = check_batch_make(rows_of(s, step), (uint32_t)step);
    yoke_batch batch = part_of(s, &whole, world, rank);
    yoke_status status =
        yoke_data_parallel_step(parallel, &batch, YOKE_OPTIMIZER_LEARNING_RATE, NULL);
    check_batch_free(&whole);
    return status;
}

/* Steps first .. STEPS - 1; saves after each of them when asked. */
static yoke_status go_on(yoke_data_parallel *parallel, const ddp_setting *s, int first, bool saves,
                         int world, int rank) {
    for (int step = first; step < STEPS; step++) {
        if (saves) TRY(yoke_state_save(parallel, file_of(step)));
        TRY(step_on(parallel, s, step, world, rank));
    }
    return saves ? yoke_state_save(parallel, file_of(STEPS)) : YOKE_OK;
}

/* The digests of two files' tensors, which are equal when all bytes are. */
static void expect_same_tensors(const char *left, const char *right) {
    yoke_checkpoint *a, *b;
    EXPECT_OK(yoke_checkpoint_open(&a, left));
    EXPECT_OK(yoke_checkpoint_open(&b, right));
    assert_int_equal(a->file.count, b->file.count);
    for (int i = 0; i < a->file.count; i++) {
        yoke_checkpoint_tensor_info one = {.struct_size = sizeof one}, two = one;
        EXPECT_OK(yoke_checkpoint_tensor(a, i, &one));
        EXPECT_OK(yoke_checkpoint_tensor(b, i, &two));
        assert_string_equal(one.name, two.name);
        if (strcmp(one.digest, two.digest) != 0) fail_msg("%s differs", one.name);
    }
    yoke_checkpoint_close(a);
    yoke_checkpoint_close(b);
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

/* DDP: ranks as threads. */

typedef struct rank_plan {
    course course;
    int resume; /* the step to go on after; 0: from the start, saving after every step */
    uint64_t hashes[RANKS];
} rank_plan;

static yoke_status play_rank(yoke_process_group *group, const script *play) {
    const course *plan = play->detail;
    rank_plan *ranks = (rank_plan *)plan;
    rank_rig rig = {0};
    yoke_status status = begin_rank(&rig, plan, play, group);
    if (status == YOKE_OK && ranks->resume > 0)
        status = yoke_state_load(rig.parallel, file_of(ranks->resume), NULL);
    if (status == YOKE_OK)
        status = go_on(rig.parallel, plan->setting, ranks->resume, ranks->resume == 0, group->world,
                       group->rank);
    if (status == YOKE_OK)
        status = yoke_data_parallel_hash(rig.parallel, &ranks->hashes[group->rank]);
    if (status == YOKE_OK && ranks->resume > 0) {
        char end[80];
        snprintf(end, sizeof end, "%s/end", folder);
        status = yoke_state_save(rig.parallel, end);
    }
    return end_rank(&rig, status);
}

static void play_resumed(rank_plan *ranks, int world) {
    script play = {
        .world = world, .timeout_ms = TIMEOUT_MS, .scene = play_rank, .detail = &ranks->course};
    outcome *outcomes = play_ranks(&play);
    expect_all_well(outcomes, world);
    free(outcomes);
}

static void ranks_resume_after_any_step(void **state) {
    (void)state;
    if (!devices_are_cpus()) skip(); /* tests/cuda has ranks over NCCL */
    for (int i = 0; i < 2 * SETTINGS; i++) {
        ddp_setting s = settings[i / 2];
        s.sharded = i % 2 == 1;
        int world = 2 + i % 3;
        s.accumulate = 1;
        yoke_model *model = check_model(s.norm, s.dropout);
        rank_plan whole = {.course = {.setting = &s, .model = model}};
        play_resumed(&whole, world);
        for (int k = 1; k <= STEPS; k += 3) {
            rank_plan resumed = {.course = whole.course, .resume = k};
            char end[80];
            play_resumed(&resumed, world);
            snprintf(end, sizeof end, "%s/end", folder);
            assert_true(resumed.hashes[0] == whole.hashes[0]);
            if (!s.norm) assert_true(resumed.hashes[world - 1] == whole.hashes[world - 1]);
            expect_same_tensors(end, file_of(STEPS));
        }
        yoke_model_destroy(model);
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
        yoke_safetensors_create(&writer, file_of(to), tensors, file->count, notes, note_count));
    for (int i = 0; i < file->count; i++) {
        char plain[96];
        size_t kept = strncmp(tensors[i].name, "optimizer.", 10) == 0 ? 10 : 0;
        snprintf(plain, sizeof plain, "%.*s%s", (int)kept, tensors[i].name,
                 tensors[i].name + kept + strlen(prefix));
        const yoke_file_tensor *tensor = yoke_safetensors_find(file, plain);
        assert_non_null(tensor);
        unsigned char *data = malloc(tensor->bytes);
        assert_non_null(data);
        memcpy(data, file->buffer + tensor->begin, tensor->bytes);
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
    };
    return RUN_ON_DEVICES(tests, make_folder, remove_folder);
}
