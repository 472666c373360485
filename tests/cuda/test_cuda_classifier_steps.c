/* SPDX-License-Identifier: Apache-2.0 */
/* Steps of a model whose linear layer computes the loss: every schedule learns the same bits,
 * whether its steps have outputs (classic) or not, in one recording or stage by stage; evaluations
 * with and without outputs agree, in any order. Skipped without a GPU. */
#include <string.h>

#include "model/model.h"
#include "support/engine_check.h"
#include "yoke/losses.h"

enum { ROWS = 6, LENGTH = 3, WORDS = 515, FEATURES = 16, STEPS = 4 };

static yoke_model *language(void) {
    yoke_model *model = NULL;
    EXPECT_OK(yoke_model_create(&model, "language", (yoke_shape){LENGTH, 1, 1, true, false}));
    yoke_embedding_options words = YOKE_EMBEDDING_OPTIONS_INIT;
    words.name = "wte", words.count = WORDS, words.features = FEATURES, words.std = 0.2;
    yoke_linear_options block = YOKE_LINEAR_OPTIONS_INIT, head = block;
    block.name = "block", block.out_features = FEATURES;
    head.name = "lm_head", head.out_features = WORDS, head.shared_with = "wte";
    head.no_bias = true;
    yoke_value x = yoke_embedding(model, yoke_model_input(model), &words);
    x = yoke_relu(model, yoke_linear(model, x, &block));
    EXPECT_OK(yoke_model_finish(model, yoke_linear(model, x, &head), NULL));
    return model;
}

typedef struct sentences {
    yoke_batch batch;
    float ids[ROWS * LENGTH];
    int32_t labels[ROWS * LENGTH];
} sentences;

static void make_sentences(sentences *made, int rows, uint32_t seed) {
    for (int i = 0; i < ROWS * LENGTH; i++) {
        int id = (int)((check_noise((uint32_t)i + 7919u * seed) + 0.5) * WORDS) % WORDS;
        made->ids[i] = (float)id;
        made->labels[i] = (id + 3) % WORDS;
    }
    made->batch = (yoke_batch){.struct_size = sizeof made->batch,
                               .rows = rows,
                               .inputs = made->ids,
                               .labels = made->labels};
}

typedef struct record {
    double losses[STEPS];
    int correct[STEPS];
    uint64_t hash;
} record;

static const yoke_optimizer_options sgd = {
    .struct_size = sizeof sgd, .learning_rate = 0.3, .momentum = 0.9};

static check_engine open_engine(const yoke_model *model, int devices, yoke_schedule schedule,
                                int accumulate) {
    const yoke_data_parallel_options options = {.schedule = schedule,
                                                .precision = YOKE_BFLOAT16,
                                                .algorithm = YOKE_ALGORITHM_DIRECT,
                                                .collectives = YOKE_COLLECTIVES_COPY,
                                                .batch = ROWS,
                                                .accumulate = accumulate};
    return check_engine_make(model, devices, options, &sgd);
}

/* Shorter batches between long ones. An engine that accumulates computes parts of a batch at once.
 */
static record train(int devices, yoke_schedule schedule, int accumulate, bool evaluates) {
    yoke_model *model = language();
    check_engine engine = open_engine(model, devices, schedule, accumulate);
    record gave;
    memset(&gave, 0, sizeof gave);
    for (int i = 0; i < STEPS; i++) {
        sentences given;
        yoke_step_result result = {.struct_size = sizeof result};
        make_sentences(&given, i == 1 ? ROWS - 2 : ROWS, (uint32_t)i);
        EXPECT_OK(yoke_data_parallel_step(engine.parallel, &given.batch,
                                          YOKE_OPTIMIZER_LEARNING_RATE, &result));
        gave.losses[i] = result.loss;
        gave.correct[i] = result.correct;
        if (!evaluates) continue;
        float outputs[ROWS * LENGTH * WORDS];
        yoke_step_result before = {.struct_size = sizeof before}, after = before;
        EXPECT_OK(yoke_data_parallel_evaluate(engine.parallel, &given.batch, &before));
        EXPECT_OK(yoke_data_parallel_forward(engine.parallel, &given.batch, false, outputs));
        EXPECT_OK(yoke_data_parallel_evaluate(engine.parallel, &given.batch, &after));
        assert_true(before.loss == after.loss && before.correct == after.correct);
        double loss = 0;
        for (int k = 0; k < given.batch.rows * LENGTH; k++) {
            double sum = 0;
            for (int j = 0; j < WORDS; j++)
                sum += exp((double)outputs[k * WORDS + j]);
            loss += log(sum) - (double)outputs[k * WORDS + given.labels[k]];
        }
        loss /= given.batch.rows * LENGTH;
        assert_true(fabs(loss - after.loss) < 1e-5 * loss);
    }
    EXPECT_OK(yoke_data_parallel_hash(engine.parallel, &gave.hash));
    check_engine_free(&engine);
    yoke_model_destroy(model);
    return gave;
}

static void every_schedule_learns_the_same(void **state) {
    (void)state;
    static const yoke_schedule schedules[] = {YOKE_SCHEDULE_OVERLAP, YOKE_SCHEDULE_CLASSIC,
                                              YOKE_SCHEDULE_SHARDED};
    for (int devices = 1; devices <= 2; devices++)
        for (int accumulate = 1; accumulate <= 2; accumulate++) {
            const record wanted = train(devices, schedules[0], accumulate, false);
            for (int i = 0; i < 6; i++) {
                const record gave =
                    train(devices, schedules[i % 3], accumulate, i >= 3 && accumulate == 1);
                for (int k = 0; k < STEPS; k++) {
                    /* classic adds all rows on the root, the others those of each device */
                    assert_true(fabs(gave.losses[k] - wanted.losses[k]) < 1e-12);
                    assert_int_equal(gave.correct[k], wanted.correct[k]);
                }
                assert_true(gave.hash == wanted.hash);
            }
        }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_schedule_learns_the_same),
    };
    if (devices_gpus() == 0) return DEVICES_SKIPPED;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
