/* SPDX-License-Identifier: Apache-2.0 */
/* What files of weights say of themselves. */
#include "parallel/parallel.h"
#include "support/engine_check.h"
#undef EXPECT_OK
#include "trainer_check.h"

#include "yoke/yoke.h"

static yoke_weights_description *open_description(const char *path, yoke_weights_info *info) {
    yoke_weights_description *description = NULL;
    *info = (yoke_weights_info){.struct_size = sizeof *info};
    EXPECT_OK(yoke_weights_description_open(&description, path));
    EXPECT_OK(yoke_weights_describe(description, info));
    return description;
}

static void expect_run(const char *path) {
    yoke_weights_info info;
    yoke_weights_description *description = open_description(path, &info);
    assert_string_equal(info.model, "resnet20");
    assert_string_equal(info.dataset, "synthetic");
    assert_string_equal(info.version, yoke_version());
    assert_int_equal(info.input.channels, 3);
    assert_int_equal(info.input.height, 8);
    assert_int_equal(info.input.width, 12);
    assert_false(info.input.flat);
    assert_int_equal(info.classes, 4);
    assert_int_equal(info.target_count, 0);
    assert_null(info.class_names);
    assert_true(info.mean[0] == 0.5f && info.std[2] == 0.28f);
    assert_int_equal(info.resize, 0);
    yoke_weights_description_close(description);
}

static void a_run_describes_its_weights_and_its_best_checkpoint(void **state) {
    (void)state;
    char weights[128], saves[128], best[160], lock[160];
    log_of_run run = {0};
    yoke_trainer_options options = small(&run);
    options.model = "resnet20";
    options.dataset = "synthetic:3x8x12,classes=4,rows=20";
    options.batch = 8;
    options.steps = 2;
    options.keep_best = true;
    options.save = in_folder("weights.safetensors", weights);
    options.checkpoint_dir = in_folder("saves", saves);
    EXPECT_OK(train(&run, &options));
    yoke_trainer_destroy(run.trainer);
    snprintf(best, sizeof best, "%s/best.safetensors", saves);
    expect_run(weights);
    expect_run(best);
    snprintf(lock, sizeof lock, "rm -rf '%s'", saves);
    assert_int_equal(system(lock), 0);
    assert_int_equal(unlink(weights), 0);
}

/* An engine of check_model, whose weights a test saves. */
typedef struct rig {
    yoke_model *model;
    check_engine engine;
    char path[128];
} rig;

static rig make_rig(void) {
    rig made = {.model = check_model(true, 0)};
    made.engine = check_engine_make(made.model, 1, check_options(4, YOKE_SCHEDULE_OVERLAP), NULL);
    in_folder("weights.safetensors", made.path);
    return made;
}

static void free_rig(rig *made) {
    check_engine_free(&made->engine);
    yoke_model_destroy(made->model);
    assert_int_equal(unlink(made->path), 0);
}

static void names_and_numbers_come_back_as_they_were(void **state) {
    (void)state;
    rig made = make_rig();
    const char *const names[] = {"Katze \xc3\xa4", "\"quoted\", [1]", "", "a\nb", "\\"};
    yoke_weights_info given = {.struct_size = sizeof given,
                               .model = "vit:depth=2",
                               .input = {.channels = 7, .height = 5, .width = 1, .sequence = true},
                               .classes = 5,
                               .class_names = names,
                               .dataset = "images",
                               .mean = {0.485f, 0.456f, 0.406f, 0.406f},
                               .std = {0.229f, 0.224f, 0.225f, 1e-7f},
                               .resize = 146,
                               .exact = true},
                      info;
    EXPECT_OK(yoke_weights_save_described(made.engine.parallel, made.model, &given, made.path));
    yoke_weights_description *description = open_description(made.path, &info);
    assert_string_equal(info.model, given.model);
    assert_string_equal(info.dataset, given.dataset);
    assert_memory_equal(&info.input, &given.input, sizeof given.input);
    assert_memory_equal(info.mean, given.mean, sizeof given.mean);
    assert_memory_equal(info.std, given.std, sizeof given.std);
    assert_int_equal(info.resize, 146);
    assert_true(info.exact);
    for (int i = 0; i < 5; i++)
        assert_string_equal(info.class_names[i], names[i]);
    yoke_weights_description_close(description);
    EXPECT_OK(yoke_weights_load(made.engine.parallel, made.model, made.path));
    free_rig(&made);
}

static void the_loss_comes_back_with_its_numbers(void **state) {
    (void)state;
    rig made = make_rig();
    const float weights[] = {0.1f, 0, 3, 1e-7f, 2};
    const yoke_loss_options losses[] = {
        {.struct_size = sizeof losses[0],
         .kind = YOKE_LOSS_CROSS_ENTROPY,
         .label_smoothing = 0.1,
         .class_weights = weights,
         .weight_count = 5,
         .set_ignore_index = true},
        {.struct_size = sizeof losses[0], .kind = YOKE_LOSS_MSE},
        {.struct_size = sizeof losses[0],
         .kind = YOKE_LOSS_BCE,
         .positive_weights = weights,
         .weight_count = 5},
        {.struct_size = sizeof losses[0], .kind = YOKE_LOSS_HUBER, .huber_delta = 0.3},
        {.struct_size = sizeof losses[0], .kind = YOKE_LOSS_HUBER, .huber_delta = 1e-300},
        {.struct_size = sizeof losses[0], .kind = YOKE_LOSS_HUBER, .huber_delta = 1e300},
    };
    for (size_t i = 0; i < sizeof losses / sizeof losses[0]; i++) {
        yoke_weights_info given = {.struct_size = sizeof given, .model = "mlp", .loss = &losses[i]},
                          info;
        *(i == 0 ? &given.classes : &given.target_count) = 5;
        EXPECT_OK(yoke_weights_save_described(made.engine.parallel, made.model, &given, made.path));
        yoke_weights_description *description = open_description(made.path, &info);
        assert_int_equal(info.loss->kind, losses[i].kind);
        assert_true(info.loss->label_smoothing == 0);
        assert_true(info.loss->huber_delta == (i < 3 ? 0 : losses[i].huber_delta));
        assert_int_equal(info.loss->set_ignore_index, i == 0);
        assert_int_equal(info.loss->ignore_index, i == 0 ? 0 : -100);
        assert_int_equal(info.loss->weight_count, losses[i].weight_count);
        assert_int_equal(info.loss->class_weights != NULL, i == 0);
        assert_int_equal(info.loss->positive_weights != NULL, i == 2);
        if (i == 0) assert_memory_equal(info.loss->class_weights, weights, sizeof weights);
        if (i == 2) assert_memory_equal(info.loss->positive_weights, weights, sizeof weights);
        yoke_weights_description_close(description);
    }
    free_rig(&made);
}

static void columns_come_back_with_their_names_and_numbers(void **state) {
    (void)state;
    rig made = make_rig();
    const char *const names[] = {"a", "b,c", "", "d", "\"e\"", "f"};
    const float means[] = {0.1f, -2, 3e8f, 0, 5, 6}, stds[] = {1, 1e-30f, 3, 4, 5, 0.6f};
    yoke_weights_info given = {.struct_size = sizeof given,
                               .input = {.channels = 6, .height = 1, .width = 1, .flat = true},
                               .feature_names = names,
                               .means = means},
                      info;
    assert_int_equal(
        yoke_weights_save_described(made.engine.parallel, made.model, &given, made.path),
        YOKE_ERROR_ARGUMENT);
    assert_non_null(strstr(yoke_last_error(), "stds is NULL"));
    given.stds = stds;
    EXPECT_OK(yoke_weights_save_described(made.engine.parallel, made.model, &given, made.path));
    yoke_weights_description *description = open_description(made.path, &info);
    for (int i = 0; i < 6; i++)
        assert_string_equal(info.feature_names[i], names[i]);
    assert_memory_equal(info.means, means, sizeof means);
    assert_memory_equal(info.stds, stds, sizeof stds);
    assert_null(info.loss);
    yoke_weights_description_close(description);
    free_rig(&made);
}

static void a_file_of_other_programs_says_nothing(void **state) {
    (void)state;
    rig made = make_rig();
    yoke_weights_info info;
    EXPECT_OK(yoke_weights_save(made.engine.parallel, made.model, made.path));
    yoke_weights_description *description = open_description(made.path, &info);
    assert_null(info.model);
    assert_null(info.version);
    assert_int_equal(info.input.channels, 0);
    assert_int_equal(info.classes, 0);
    assert_true(info.std[0] == 0);
    assert_null(info.loss);
    assert_null(info.means);
    assert_null(info.feature_names);
    yoke_weights_description_close(description);
    free_rig(&made);
}

static void a_wrong_description_is_refused_by_its_key(void **state) {
    (void)state;
    static const struct {
        const char *key, *value;
    } wrong[] = {
        {"yoke.input", "3x8x8"},
        {"yoke.input", "[3,8]]"},
        {"yoke.input", "[3,8,8,8]"},
        {"yoke.input", "[3,-8,8]"},
        {"yoke.input", "[3,99999999999,8]"},
        {"yoke.classes", "ten"},
        {"yoke.classes", "-1"},
        {"yoke.mean", "[1,2,3,4,5]"},
        {"yoke.mean", "[]"},
        {"yoke.mean", "[1e400,0,0,0]"},
        {"yoke.deviation", "[0,1,1,1]"},
        {"yoke.class_names", "{}"},
        {"yoke.class_names", "[\"one\",\"two\"]"}, /* of no classes */
        {"yoke.resize", "1e3"},
        {"yoke.loss", "focal"},
        {"yoke.feature_names", "[\"one\"]"}, /* of no channels */
    };
    char path[128];
    in_folder("wrong.safetensors", path);
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        yoke_tensor_file *file;
        yoke_weights_description *description = NULL;
        EXPECT_OK(yoke_tensor_file_create(&file));
        EXPECT_OK(yoke_tensor_file_note(file, wrong[i].key, wrong[i].value));
        EXPECT_OK(yoke_tensor_file_save(file, path));
        yoke_tensor_file_close(file);
        assert_int_equal(yoke_weights_description_open(&description, path), YOKE_ERROR_DATA);
        assert_null(description);
        assert_non_null(strstr(yoke_last_error(), wrong[i].key));
        assert_non_null(strstr(yoke_last_error(), path));
    }
    assert_int_equal(unlink(path), 0);
}

static void a_wrong_loss_is_refused_by_its_key(void **state) {
    (void)state;
    static const struct {
        const char *loss, *key, *value;
    } wrong[] = {
        {"huber", "yoke.huber_delta", "0"},
        {"huber", "yoke.huber_delta", "nan"},
        {"mse", "yoke.classes", "3"},
        {"cross-entropy", "yoke.targets", "3"},
        {"cross-entropy", "yoke.ignore_index", "1.5"},
        {"cross-entropy", "yoke.loss_weights", "[1,-1]"},
        {"mse", "yoke.loss_weights", "[1,1]"},
        {"bce", "yoke.ignore_index", "1"},
    };
    char path[128];
    in_folder("wrong.safetensors", path);
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        yoke_tensor_file *file;
        yoke_weights_description *description = NULL;
        EXPECT_OK(yoke_tensor_file_create(&file));
        EXPECT_OK(yoke_tensor_file_note(file, "yoke.loss", wrong[i].loss));
        EXPECT_OK(yoke_tensor_file_note(file, wrong[i].key, wrong[i].value));
        EXPECT_OK(yoke_tensor_file_save(file, path));
        yoke_tensor_file_close(file);
        assert_int_equal(yoke_weights_description_open(&description, path), YOKE_ERROR_DATA);
        assert_non_null(strstr(yoke_last_error(), "yoke."));
        assert_non_null(strstr(yoke_last_error(), path));
    }
    assert_int_equal(unlink(path), 0);
}

static void a_file_of_torch_save_is_told_from_damage(void **state) {
    (void)state;
    static const struct {
        const char bytes[20];
        bool torch;
    } files[] = {
        {"PK\x03\x04\x00\x00\x08\x08\x00\x00\x00\x00", true},       /* a zip archive */
        {"\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8", true}, /* before PyTorch 1.6 */
        {"\x80\x02\x00\x00\x00\x00\x00\x00{}", false}, /* 640 bytes of header, cut off */
        {"GIF89a,,,,,,,,", false},
    };
    char path[128];
    in_folder("net.pth", path);
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        yoke_weights_description *description = NULL;
        FILE *file = fopen(path, "wb");
        assert_int_equal(fwrite(files[i].bytes, 1, 14, file), 14);
        assert_int_equal(fclose(file), 0);
        assert_int_equal(yoke_weights_description_open(&description, path), YOKE_ERROR_DATA);
        bool converts = strstr(yoke_last_error(), "torch.load('") != NULL &&
                        strstr(yoke_last_error(), "net.pth.safetensors')\"") != NULL;
        assert_int_equal(converts, files[i].torch);
    }
    assert_int_equal(unlink(path), 0);
}

static void what_a_reader_would_refuse_is_not_written(void **state) {
    (void)state;
    static const float numbers[4] = {1, 2, 0, 4}, infinite[4] = {INFINITY, 0, 0, 0};
    static const char *const names[] = {"a", "b"};
    const yoke_shape input = {.channels = 4, .height = 1, .width = 1, .flat = true};
    const yoke_weights_info wrong[] = {
        {.classes = -3},
        {.target_count = 1000001},
        {.resize = -1},
        {.input = {.channels = 1 << 21, .height = 1, .width = 1, .flat = true}},
        {.input = input, .means = numbers, .stds = numbers}, /* a std of 0 */
        {.input = input, .means = infinite, .stds = numbers},
        {.classes = 2,
         .class_names = names,
         .loss =
             &(yoke_loss_options){.struct_size = sizeof(yoke_loss_options), .kind = YOKE_LOSS_MSE}},
    };
    rig made = make_rig();
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        yoke_weights_info info = wrong[i];
        info.struct_size = sizeof info;
        yoke_status status =
            yoke_weights_save_described(made.engine.parallel, made.model, &info, made.path);
        if (status != YOKE_ERROR_ARGUMENT) fail_msg("%zu: %s", i, yoke_status_name(status));
        if (strstr(yoke_last_error(), "the description of the weights: __metadata__ yoke.") == NULL)
            fail_msg("%zu: %s", i, yoke_last_error());
        assert_int_equal(access(made.path, F_OK), -1);
    }
    yoke_weights_info info = {.struct_size = sizeof info, .classes = 2, .class_names = names};
    EXPECT_OK(yoke_weights_save_described(made.engine.parallel, made.model, &info, made.path));
    free_rig(&made);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_run_describes_its_weights_and_its_best_checkpoint),
        cmocka_unit_test(names_and_numbers_come_back_as_they_were),
        cmocka_unit_test(the_loss_comes_back_with_its_numbers),
        cmocka_unit_test(columns_come_back_with_their_names_and_numbers),
        cmocka_unit_test(a_file_of_other_programs_says_nothing),
        cmocka_unit_test(a_wrong_loss_is_refused_by_its_key),
        cmocka_unit_test(a_wrong_description_is_refused_by_its_key),
        cmocka_unit_test(what_a_reader_would_refuse_is_not_written),
        cmocka_unit_test(a_file_of_torch_save_is_told_from_damage),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
