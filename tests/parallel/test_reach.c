/* SPDX-License-Identifier: Apache-2.0 */
/* What a loss reaches: of the gradients that a program makes by hand, and in the engine's words. */
#include "parallel/parallel.h"
#include "siamese.h"

enum { SIDE = PAIR_SIDE * PAIR_HIDDEN };

static const yoke_optimizer_options plain = {
    .struct_size = sizeof plain, .learning_rate = 0.5, .weight_decay = 0.1};
static const yoke_optimizer_options undecayed = {.struct_size = sizeof undecayed,
                                                 .learning_rate = 0.5};

/* By hand. */

/* Whether an update of the gradient on the root shrinks side.weight. A twin without weight decay
 * has the same gradient. */
typedef struct twins {
    yoke_model *model;
    check_engine engines[2];
    pair_batch batch;
} twins;

static void twins_make(twins *made) {
    made->model = siamese_model((siamese_options){0});
    for (int k = 0; k < 2; k++)
        made->engines[k] = check_engine_make(made->model, 2, pair_options(YOKE_SCHEDULE_OVERLAP),
                                             k == 0 ? &plain : &undecayed);
    pair_batch_make(&made->batch, 5, 1);
}

static void twins_free(twins *made) {
    check_engine_free(&made->engines[0]);
    check_engine_free(&made->engines[1]);
    yoke_model_destroy(made->model);
}

static void expect_decay(const twins *pair, bool decays, const char *what) {
    float before[SIDE], after[2][SIDE];
    must(yoke_data_parallel_read(pair->engines[0].parallel, "side.weight", before, SIDE));
    for (int k = 0; k < 2; k++)
        must(yoke_data_parallel_read(pair->engines[k].parallel, "side.weight", after[k], SIDE));
    assert_memory_equal(before, after[1], sizeof before);
    for (int k = 0; k < 2; k++) {
        must(yoke_data_parallel_update(pair->engines[k].parallel, YOKE_OPTIMIZER_LEARNING_RATE));
        must(yoke_data_parallel_read(pair->engines[k].parallel, "side.weight", after[k], SIDE));
    }
    for (int i = 0; i < SIDE; i++)
        near((double)after[1][i] - (double)after[0][i],
             decays ? 0.5 * 0.1 * (double)before[i] : 0.0, 1e-4, 1e-2, what);
}

#define ON_BOTH(pair, call)                                                                        \
    for (int twin = 0; twin < 2; twin++) {                                                         \
        yoke_data_parallel *engine = (pair).engines[twin].parallel;                                \
        call;                                                                                      \
    }

static void it_decays_in_the_steps_whose_gradients_reach_it(void **state) {
    (void)state;
    for (unsigned outputs = 1; outputs <= 3; outputs++) {
        twins pair;
        twins_make(&pair);
        ON_BOTH(pair, pair_backward(engine, &pair.batch, outputs));
        expect_decay(&pair, outputs != 1, "a backward of some outputs");
        twins_free(&pair);
    }
    twins pair;
    twins_make(&pair);
    ON_BOTH(pair, {
        must(yoke_data_parallel_forward(engine, &pair.batch.batch, true, NULL));
        must(yoke_data_parallel_backward(engine, NULL));
    });
    expect_decay(&pair, false, "the model's own loss by hand");
    twins_free(&pair);
}

static void gradients_that_add_up_reach_what_each_of_them_does(void **state) {
    (void)state;
    for (unsigned first = 1; first <= 2; first++) {
        twins pair;
        twins_make(&pair);
        ON_BOTH(pair, {
            must(yoke_data_parallel_no_sync(engine, true));
            pair_backward(engine, &pair.batch, first);
            must(yoke_data_parallel_no_sync(engine, false));
            pair_backward(engine, &pair.batch, 3 - first);
        });
        expect_decay(&pair, true, "two backwards");
        twins_free(&pair);
    }
    twins pair;
    twins_make(&pair);
    ON_BOTH(pair, {
        must(yoke_data_parallel_no_sync(engine, true));
        pair_backward(engine, &pair.batch, 2);
        must(yoke_data_parallel_no_sync(engine, false));
        must(yoke_data_parallel_zero_grad(engine));
        pair_backward(engine, &pair.batch, 1);
    });
    expect_decay(&pair, false, "behind zero_grad");
    twins_free(&pair);
}

/* As all-reducing by hand writes gradients, those of zeros, too. */
static void a_written_gradient_reaches_its_parameter(void **state) {
    (void)state;
    float written[SIDE] = {0}, head[PAIR_CLASSES] = {1};
    twins pair;
    twins_make(&pair);
    for (int round = 0; round < 2; round++) {
        ON_BOTH(pair, {
            pair_backward(engine, &pair.batch, 1);
            must(yoke_data_parallel_write_gradient(engine, "head.bias", head, PAIR_CLASSES));
            must(yoke_data_parallel_write_gradient(engine, "side.weight", written, SIDE));
        });
        if (round == 0) {
            expect_decay(&pair, false, "a written gradient of zeros");
            written[SIDE - 1] = 1;
            continue;
        }
        expect_decay(&pair, true, "a written gradient");
    }
    twins_free(&pair);
}

/* The text. */

static yoke_value dense(yoke_model *model, yoke_value value, const char *name) {
    return linear(model, value, name, 3, NULL);
}

/* Four outputs; the value of the second one is read by two layers more. */
static yoke_model *branching_model(void) {
    const yoke_shape row = {5, 1, 1, true};
    yoke_model *model = NULL;
    must(yoke_model_create(&model, "branching", row));
    yoke_value trunk = dense(model, yoke_model_input(model), "trunk");
    yoke_value shared = dense(model, trunk, "middle");
    yoke_model_add_output(model, "middle", shared);
    yoke_model_add_output(model, "left", dense(model, shared, "left"));
    yoke_model_add_output(model, "right", dense(model, shared, "right"));
    must(yoke_model_finish(model, dense(model, trunk, "head"), NULL));
    return model;
}

static void expect_text(const yoke_parameter_group *groups, int count, const char *words) {
    yoke_model *model = branching_model();
    yoke_data_parallel_options options = pair_options(YOKE_SCHEDULE_OVERLAP);
    float inputs[4 * 5] = {1, 2, 3};
    int32_t labels[4] = {0, 1, 2, 0};
    yoke_batch batch = {.struct_size = sizeof batch, .rows = 4, .inputs = inputs, .labels = labels};
    options.groups = groups;
    options.group_count = count;
    check_engine engine = check_engine_make(model, 2, options, &plain);
    assert_null(yoke_data_parallel_unreached(engine.parallel));
    must(yoke_data_parallel_step(engine.parallel, &batch, YOKE_OPTIMIZER_LEARNING_RATE, NULL));
    const char *text = yoke_data_parallel_unreached(engine.parallel);
    if (words == NULL)
        assert_null(text);
    else
        assert_string_equal(text, words);
    check_engine_free(&engine);
    yoke_model_destroy(model);
}

#define REST                                                                                       \
    ": the gradients are zero, and weight decay leaves them alone; freeze them, or set "           \
    "weight_decay in a group of theirs to let it move them"

static void unreached_parameters_are_named(void **state) {
    (void)state;
    yoke_parameter_group group = {
        .struct_size = sizeof group, .pattern = "left.*,middle.*", .learning_rate_scale = 1};
    expect_text(NULL, 0,
                "no loss has reached middle.weight, middle.bias, left.weight, left.bias and 2 "
                "more (6 parameters, 36 values)" REST);
    group.set_weight_decay = true; /* to 0 */
    expect_text(&group, 1,
                "no loss has reached middle.weight, middle.bias, left.weight, left.bias and 2 "
                "more (6 parameters, 36 values)" REST);
    group.weight_decay = 0.1;
    expect_text(&group, 1,
                "no loss has reached right.weight, right.bias (2 parameters, 12 values)" REST);
    group.set_weight_decay = false;
    group.frozen = true;
    group.pattern = "left.*,middle.*,right.bias";
    expect_text(&group, 1, "no loss has reached right.weight (1 parameter, 9 values)" REST);
    group.pattern = "left.*,middle.*,right.*";
    expect_text(&group, 1, NULL);
    assert_null(yoke_data_parallel_unreached(NULL));
}

/* Of a backward from the middle: what lies before it. */
static void an_output_reaches_what_lies_before_it(void **state) {
    (void)state;
    yoke_model *model = branching_model();
    unsigned outputs[10] = {0};
    static const unsigned wanted[] = {15, 15, 14, 14, 4, 4, 8, 8, 1, 1};
    assert_int_equal(yoke_model_tensor_count(model), 10);
    must(yoke_model_reach(model, outputs));
    assert_memory_equal(outputs, wanted, sizeof wanted);
    yoke_model_destroy(model);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(it_decays_in_the_steps_whose_gradients_reach_it),
        cmocka_unit_test(gradients_that_add_up_reach_what_each_of_them_does),
        cmocka_unit_test(a_written_gradient_reaches_its_parameter),
        cmocka_unit_test(unreached_parameters_are_named),
        cmocka_unit_test(an_output_reaches_what_lies_before_it),
    };
    return RUN_ON_DEVICES(tests, NULL, NULL);
}
