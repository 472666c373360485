/* SPDX-License-Identifier: Apache-2.0 */
/* A generator that keeps keys and values continues texts as one that reads them whole: of any
 * length, side by side, past the context, and on any number of devices. */
#include "support/engine_check.h"

#include "model/model.h"
#include "yoke/attention.h"
#include "yoke/generator.h"
#include "yoke/recurrent.h"
#include "yoke/transformer.h"

enum { CONTEXT = 24, CLASSES = 31, ROWS = 3, TOKENS = 60 };

static const int prompts[ROWS][17] = {
    {3}, {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17}, {30, 0, 12}};
static const size_t lengths[ROWS] = {1, 17, 3};

static yoke_model *make_model(const char *name) {
    yoke_model *model = NULL;
    EXPECT_OK(
        yoke_model_preset(&model, name, (yoke_shape){CONTEXT, 1, 1, true, false}, CLASSES, NULL));
    return model;
}

/* Weights large enough that the likeliest token changes from place to place. */
static void write_weights(yoke_generator *generator, const yoke_model *model) {
    for (int i = 0; i < yoke_model_tensor_count(model); i++) {
        yoke_tensor_info info = {.struct_size = sizeof info};
        EXPECT_OK(yoke_model_tensor(model, i, &info));
        float *values = malloc(info.count * sizeof *values);
        assert_non_null(values);
        yoke_random_normal(values, info.count, info.ndim > 1 ? 0.4 : 0.2, 5, YOKE_RANDOM_INIT,
                           (uint64_t)i);
        if (strstr(info.name, "ln_") != NULL && strstr(info.name, ".weight") != NULL)
            for (size_t k = 0; k < info.count; k++)
                values[k] += 1;
        EXPECT_OK(yoke_data_parallel_write(yoke_generator_engine(generator), info.name, values,
                                           info.count));
        free(values);
    }
}

typedef struct setting {
    const char *model, *devices;
    int drop, chunk;
    bool whole;
} setting;

/* tokens[TOKENS][ROWS], and what the generator said of itself. */
static yoke_generator_info run(setting of, const yoke_token_sampling *drawing,
                               int tokens[TOKENS][ROWS]) {
    yoke_devices_options open = {
        .struct_size = sizeof open, .list = of.devices, .threads = 2, .unbound = true};
    yoke_generator_options options = YOKE_GENERATOR_OPTIONS_INIT;
    yoke_generator_info info = {.struct_size = sizeof info};
    yoke_devices *devices = NULL;
    yoke_generator *generator = NULL;
    yoke_model *model = make_model(of.model);
    options.rows = ROWS, options.drop = of.drop, options.chunk = of.chunk, options.whole = of.whole;
    options.algorithm = YOKE_ALGORITHM_DIRECT;
    EXPECT_OK(yoke_devices_open(&devices, &open));
    EXPECT_OK(yoke_generator_create(&generator, model, devices, &options));
    write_weights(generator, model);
    for (int row = 0; row < ROWS; row++)
        EXPECT_OK(yoke_generator_begin(generator, row, prompts[row], lengths[row]));
    for (int i = 0; i < TOKENS; i++)
        EXPECT_OK(yoke_generator_next(generator, drawing, tokens[i]));
    EXPECT_OK(yoke_generator_describe(generator, &info));
    info.reason = NULL; /* gone with the generator */
    yoke_generator_destroy(generator);
    yoke_devices_close(devices);
    yoke_model_destroy(model);
    return info;
}

static int kinds_of(int tokens[TOKENS][ROWS]) {
    bool seen[CLASSES] = {false};
    int kinds = 0;
    for (int i = 0; i < TOKENS; i++)
        for (int row = 0; row < ROWS; row++) {
            kinds += !seen[tokens[i][row]];
            seen[tokens[i][row]] = true;
        }
    return kinds;
}

#define GPT2 "gpt2:layers=2,width=48,heads=3"

static void kept_keys_and_values_give_the_tokens_of_whole_texts(void **state) {
    (void)state;
    static const int drops[] = {0, 1, 23, 24};
    static const int chunks[] = {0, 1, 5, 24};
    static const yoke_token_sampling drawings[] = {YOKE_TOKEN_SAMPLING_INIT,
                                                   {sizeof(yoke_token_sampling), 1.5, 0, 0.95, 7}};
    for (int d = 0; d < 2; d++)
        for (int i = 0; i < 4; i++) {
            int whole[TOKENS][ROWS], kept[TOKENS][ROWS];
            setting of = {GPT2, "cpu", drops[i], chunks[i], true};
            yoke_generator_info info = run(of, &drawings[d], whole);
            assert_false(info.keeps);
            assert_int_equal(info.kept_bytes, 0);
            assert_true(kinds_of(whole) > 5); /* it can fail */
            of.whole = false;
            info = run(of, &drawings[d], kept);
            assert_true(info.keeps);
            assert_int_equal(info.kept_bytes, ROWS * 2 * 2 * CONTEXT * 48 * sizeof(float));
            assert_memory_equal(kept, whole, sizeof kept);
        }
}

static void devices_share_the_texts(void **state) {
    (void)state;
    int one[TOKENS][ROWS], other[TOKENS][ROWS];
    run((setting){GPT2, "cpu"}, NULL, one);
    run((setting){GPT2, "2xcpu"}, NULL, other);
    assert_memory_equal(one, other, sizeof one);
    run((setting){GPT2, "4xcpu"}, NULL, other); /* one of them has no text */
    assert_memory_equal(one, other, sizeof one);
}

static void a_model_that_cannot_be_continued_reads_whole_texts(void **state) {
    (void)state;
    int tokens[TOKENS][ROWS];
    yoke_generator_info info =
        run((setting){"lstm-char:width=16,embedding=8", "cpu"}, NULL, tokens);
    assert_false(info.keeps);
    yoke_model *model = make_model("lstm-char:width=16,embedding=8"), *continued = NULL;
    assert_int_equal(yoke_model_continue(&continued, model, 1), YOKE_ERROR_ARGUMENT);
    assert_null(continued);
    assert_non_null(strstr(yoke_last_error(), "recurrence"));
    yoke_model_destroy(model);
}

/* Which layers of a network of a program's own may be continued. */
typedef yoke_value (*layers)(yoke_model *model, yoke_value value);

static yoke_value feed_forward(yoke_model *model, yoke_value value) {
    yoke_linear_options up = YOKE_LINEAR_OPTIONS_INIT, down = up;
    up.name = "up", up.out_features = 12, down.name = "down", down.out_features = 6;
    value = yoke_linear(model, yoke_silu(model, yoke_linear(model, value, &up)), &down);
    return yoke_add(model, yoke_map_with(model, YOKE_FN_SCALE, value, 0.5, 0),
                    yoke_dropout(model, value, 0.5));
}

static yoke_value look(yoke_model *model, yoke_value value, bool back) {
    yoke_linear_options project = YOKE_LINEAR_OPTIONS_INIT;
    yoke_attention_options options = YOKE_ATTENTION_OPTIONS_INIT;
    project.name = "qkv", project.out_features = 18;
    options.heads = 2, options.causal = back;
    return yoke_attention(model, yoke_linear(model, value, &project), &options);
}

static yoke_value look_back(yoke_model *model, yoke_value value) {
    return feed_forward(model, look(model, value, true));
}

static yoke_value look_everywhere(yoke_model *model, yoke_value value) {
    return look(model, value, false);
}

static yoke_value average(yoke_model *model, yoke_value value) {
    yoke_value mean = yoke_reduce_axes(model, value, YOKE_REDUCE_MEAN, YOKE_AXIS_HEIGHT);
    return yoke_add(model, value, mean);
}

static yoke_value shift(yoke_model *model, yoke_value value) {
    return yoke_slice(model, value, YOKE_AXIS_HEIGHT, 1, CONTEXT + 1, 0);
}

static yoke_status try_layers(layers add) {
    yoke_model *model = NULL, *continued = NULL;
    yoke_embedding_options tokens = YOKE_EMBEDDING_OPTIONS_INIT;
    yoke_linear_options head = YOKE_LINEAR_OPTIONS_INIT;
    tokens.name = "tokens", tokens.count = CLASSES, tokens.features = 6;
    head.name = "head", head.out_features = CLASSES;
    EXPECT_OK(yoke_model_create(&model, "own", (yoke_shape){CONTEXT, 1, 1, true, false}));
    yoke_value value = add(model, yoke_embedding(model, yoke_model_input(model), &tokens));
    EXPECT_OK(yoke_model_finish(model, yoke_linear(model, value, &head), NULL));
    yoke_status status = yoke_model_continue(&continued, model, 4);
    yoke_model_destroy(continued);
    yoke_model_destroy(model);
    return status;
}

static void a_layer_that_reads_other_positions_is_named(void **state) {
    (void)state;
    assert_int_equal(try_layers(look_back), YOKE_OK);
    static const struct {
        layers add;
        const char *name;
    } refused[] = {{look_everywhere, "attention"},
                   {average, "reduce"},
                   {shift, "move"},
                   {feed_forward, "no layer"}};
    for (size_t i = 0; i < 4; i++) {
        assert_int_equal(try_layers(refused[i].add), YOKE_ERROR_ARGUMENT);
        if (strstr(yoke_last_error(), refused[i].name) == NULL)
            fail_msg("'%s' does not name %s", yoke_last_error(), refused[i].name);
    }
}

static void wrong_texts_and_options_are_refused(void **state) {
    (void)state;
    yoke_devices_options open = {
        .struct_size = sizeof open, .list = "cpu", .threads = 1, .unbound = true};
    yoke_generator_options options = YOKE_GENERATOR_OPTIONS_INIT;
    yoke_devices *devices = NULL;
    yoke_generator *generator = NULL;
    yoke_model *model = make_model(GPT2), *images = NULL;
    EXPECT_OK(yoke_devices_open(&devices, &open));
    options.algorithm = YOKE_ALGORITHM_DIRECT;
    options.drop = CONTEXT + 1;
    assert_int_equal(yoke_generator_create(&generator, model, devices, &options),
                     YOKE_ERROR_ARGUMENT);
    assert_null(generator);
    options.drop = 0, options.rows = -1;
    assert_int_equal(yoke_generator_create(&generator, model, devices, &options),
                     YOKE_ERROR_ARGUMENT);
    options.rows = 0; /* the default */
    EXPECT_OK(yoke_model_preset(&images, "mlp", (yoke_shape){1, 8, 8}, 3, NULL));
    assert_int_equal(yoke_generator_create(&generator, images, devices, &options),
                     YOKE_ERROR_ARGUMENT);
    assert_non_null(strstr(yoke_last_error(), "mlp"));
    EXPECT_OK(yoke_generator_create(&generator, model, devices, &options));
    int tokens[] = {0, CLASSES, -1};
    assert_int_equal(yoke_generator_begin(generator, 1, tokens, 1), YOKE_ERROR_ARGUMENT);
    assert_int_equal(yoke_generator_begin(generator, 0, tokens, 0), YOKE_ERROR_ARGUMENT);
    assert_int_equal(yoke_generator_begin(generator, 0, tokens, 2), YOKE_ERROR_ARGUMENT);
    assert_int_equal(yoke_generator_begin(generator, 0, tokens + 2, 1), YOKE_ERROR_ARGUMENT);
    assert_int_equal(yoke_generator_append(generator, 0, CLASSES), YOKE_ERROR_ARGUMENT);
    yoke_generator_destroy(generator);
    yoke_devices_close(devices);
    yoke_model_destroy(images);
    yoke_model_destroy(model);
}

/* Drawing. */

static int draws(const float *outputs, int classes, yoke_token_sampling drawing, int counts[]) {
    int kinds = 0;
    memset(counts, 0, (size_t)classes * sizeof *counts);
    drawing.struct_size = sizeof drawing;
    for (int i = 0; i < 4000; i++) {
        int token = -1;
        EXPECT_OK(yoke_sample_token(outputs, classes, &drawing, 0, (uint64_t)i, &token));
        assert_in_range(token, 0, classes - 1);
        kinds += counts[token]++ == 0;
    }
    return kinds;
}

static void draws_follow_the_shares_of_what_is_left(void **state) {
    (void)state;
    /* Shares 0.4, 0.1, 0.3, 0.2; infinitely unlikely ones are never drawn. */
    const float outputs[] = {logf(0.4f), logf(0.1f), logf(0.3f), logf(0.2f), -INFINITY};
    int counts[5];
    assert_int_equal(draws(outputs, 5, (yoke_token_sampling){.temperature = 1}, counts), 4);
    for (int i = 0; i < 4; i++)
        assert_true(fabs(counts[i] / 4000.0 - exp((double)outputs[i])) < 0.03);
    assert_int_equal(draws(outputs, 5, (yoke_token_sampling){.temperature = 1, .top_k = 2}, counts),
                     2);
    assert_true(fabs(counts[0] / 4000.0 - 4.0 / 7) < 0.03 && counts[2] > 0);
    assert_int_equal(
        draws(outputs, 5, (yoke_token_sampling){.temperature = 1, .top_p = 0.69}, counts), 2);
    assert_int_equal(
        draws(outputs, 5, (yoke_token_sampling){.temperature = 1, .top_p = 0.71}, counts), 3);
    assert_int_equal(
        draws(outputs, 5, (yoke_token_sampling){.temperature = 1, .top_p = 1e-9}, counts), 1);
    assert_int_equal(counts[0], 4000);
    /* top_p is of the shares that top_k leaves: 4/7 and 3/7. */
    assert_int_equal(draws(outputs, 5,
                           (yoke_token_sampling){.temperature = 1, .top_k = 2, .top_p = 0.5},
                           counts),
                     1);
    assert_int_equal(draws(outputs, 5, (yoke_token_sampling){.temperature = 0}, counts), 1);
    assert_int_equal(draws(outputs, 5, (yoke_token_sampling){.temperature = 0.05}, counts), 2);
    const float equal[] = {1, 2, 2, 2, 0};
    assert_int_equal(draws(equal, 5, (yoke_token_sampling){.temperature = 1, .top_k = 2}, counts),
                     3); /* ties stay */
    assert_int_equal(draws(equal, 5, (yoke_token_sampling){.temperature = 1, .top_p = 0.2}, counts),
                     1);
    assert_int_equal(counts[1], 4000); /* of equal ones the first */
}

static void a_draw_depends_on_seed_row_and_index(void **state) {
    (void)state;
    float outputs[1000] = {0};
    int tokens[4] = {0}, again = 0;
    yoke_token_sampling drawing = {.struct_size = sizeof drawing, .temperature = 1, .top_p = 1};
    EXPECT_OK(yoke_sample_token(outputs, 1000, &drawing, 0, 0, &tokens[0]));
    EXPECT_OK(yoke_sample_token(outputs, 1000, &drawing, 1, 0, &tokens[1]));
    EXPECT_OK(yoke_sample_token(outputs, 1000, &drawing, 0, 1, &tokens[2]));
    drawing.seed = 1;
    EXPECT_OK(yoke_sample_token(outputs, 1000, &drawing, 0, 0, &tokens[3]));
    for (int i = 0; i < 4; i++)
        for (int k = 0; k < i; k++)
            assert_int_not_equal(tokens[i], tokens[k]);
    EXPECT_OK(yoke_sample_token(outputs, 1000, &drawing, 0, 0, &again));
    assert_int_equal(again, tokens[3]);
}

static void outputs_and_options_that_give_no_token_are_refused(void **state) {
    (void)state;
    const float nan[] = {0, NAN}, none[] = {-INFINITY, -INFINITY}, fine[] = {0, 1};
    static const yoke_token_sampling wrong[] = {{sizeof(yoke_token_sampling), -1},
                                                {sizeof(yoke_token_sampling), NAN},
                                                {sizeof(yoke_token_sampling), 1, -1},
                                                {sizeof(yoke_token_sampling), 1, 0, 1.5},
                                                {sizeof(yoke_token_sampling), 1, 0, NAN}};
    int token = 0;
    assert_int_equal(yoke_sample_token(nan, 2, NULL, 0, 0, &token), YOKE_ERROR_NUMERIC);
    assert_int_equal(yoke_sample_token(none, 2, NULL, 0, 0, &token), YOKE_ERROR_NUMERIC);
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++)
        assert_int_equal(yoke_sample_token(fine, 2, &wrong[i], 0, 0, &token), YOKE_ERROR_ARGUMENT);
    assert_int_equal(yoke_sample_token(fine, 0, NULL, 0, 0, &token), YOKE_ERROR_ARGUMENT);
    EXPECT_OK(yoke_sample_token(fine, 2, NULL, 0, 0, &token));
    assert_int_equal(token, 1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(kept_keys_and_values_give_the_tokens_of_whole_texts),
        cmocka_unit_test(devices_share_the_texts),
        cmocka_unit_test(a_model_that_cannot_be_continued_reads_whole_texts),
        cmocka_unit_test(a_layer_that_reads_other_positions_is_named),
        cmocka_unit_test(wrong_texts_and_options_are_refused),
        cmocka_unit_test(draws_follow_the_shares_of_what_is_left),
        cmocka_unit_test(a_draw_depends_on_seed_row_and_index),
        cmocka_unit_test(outputs_and_options_that_give_no_token_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
