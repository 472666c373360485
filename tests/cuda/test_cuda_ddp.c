/* SPDX-License-Identifier: Apache-2.0 */
/* DDP with a GPU per rank, over NCCL: all ranks hold the same bits, and learn what one engine
 * learns on as many GPUs, up to rounding, because NCCL adds in its own order. */
#include "support/ddp_check.h"
#undef EXPECT_OK
#include "gpu_ranks.h"

static outcome *play_on_gpus(const script *play) {
    return play_gpus(*play);
}

static void check_near(const ddp_setting *s, int world) {
    record ranks[GPU_RANKS] = {0};
    if (world > most_gpu_ranks()) return;
    yoke_model *model = check_model(s->norm, s->dropout);
    run_ranks(s, model, world, ranks);
    record several = run_devices(s, model, world);
    for (int rank = 1; rank < world; rank++)
        expect_same(&ranks[0], &ranks[rank], s->steps);
    expect_near(&ranks[0], &several, 2e-6, s->steps);
    free_records(ranks, world);
    free_records(&several, 1);
    yoke_model_destroy(model);
}

static void ranks_learn_what_as_many_gpus_of_one_engine_learn(void **state) {
    (void)state;
    const ddp_setting plain = {.batch = 16, .accumulate = 1, .steps = 6};
    for (int world = 1; world <= GPU_RANKS; world++)
        check_near(&plain, world);
}

static void ranks_without_rows_take_part(void **state) {
    (void)state;
    const ddp_setting few = {.batch = 5, .accumulate = 1, .steps = 6};
    check_near(&few, 3);
    check_near(&few, 4);
}

static void batch_norm_dropout_clipping_and_accumulation_change_nothing_about_it(void **state) {
    (void)state;
    const ddp_setting settings[] = {
        {.batch = 16, .accumulate = 1, .steps = 6, .norm = true},
        {.batch = 16, .accumulate = 1, .steps = 6, .norm = true, .synchronized = true},
        {.batch = 16, .accumulate = 1, .steps = 6, .dropout = 0.4},
        {.batch = 16, .accumulate = 1, .steps = 6, .clip = true},
        {.batch = 16, .accumulate = 1, .steps = 6, .groups = 3},
        {.batch = 16, .accumulate = 1, .steps = 6, .adamw = true},
        {.batch = 12, .accumulate = 2, .steps = 6},
    };
    for (size_t i = 0; i < sizeof settings / sizeof settings[0]; i++)
        check_near(&settings[i], 2 + (int)i % 2);
}

static void no_rank_learns_from_a_nonfinite_loss_of_one(void **state) {
    (void)state;
    if (most_gpu_ranks() < 2) skip();
    expect_spoilt_batch_refused(&(ddp_setting){.batch = 8, .accumulate = 1});
    expect_spoilt_batch_refused(&(ddp_setting){.batch = 8, .accumulate = 1, .norm = true});
    expect_spoilt_batch_refused(
        &(ddp_setting){.batch = 8, .accumulate = 2}); /* in the first of two micro-batches */
}

static yoke_status ask_for_shards(yoke_process_group *group, const script *play) {
    const course *plan = play->detail;
    yoke_data_parallel_options options = options_of(plan->setting);
    yoke_data_parallel *parallel = NULL;
    options.process_group = group;
    options.shards = 4;
    return yoke_data_parallel_create(&parallel, plan->model, play->devices[group->rank], NULL,
                                     &options);
}

static void shards_over_nccl_are_refused_with_the_reason(void **state) {
    (void)state;
    const ddp_setting s = {.batch = 16, .accumulate = 1};
    if (most_gpu_ranks() < 2) skip();
    yoke_model *model = check_model(false, 0);
    course plan = {.setting = &s, .model = model};
    outcome *outcomes = play_on_gpus(
        &(script){.world = 2, .timeout_ms = TIMEOUT_MS, .scene = ask_for_shards, .detail = &plan});
    for (int rank = 0; rank < 2; rank++) {
        assert_int_not_equal(outcomes[rank].error.status, YOKE_OK);
        assert_non_null(strstr(outcomes[rank].error.text, "NCCL picks the order of its sums"));
    }
    free(outcomes);
    yoke_model_destroy(model);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranks_learn_what_as_many_gpus_of_one_engine_learn),
        cmocka_unit_test(ranks_without_rows_take_part),
        cmocka_unit_test(batch_norm_dropout_clipping_and_accumulation_change_nothing_about_it),
        cmocka_unit_test(no_rank_learns_from_a_nonfinite_loss_of_one),
        cmocka_unit_test(shards_over_nccl_are_refused_with_the_reason),
    };
    play_ranks = play_on_gpus;
    return RUN_ON_DEVICES(tests, NULL, NULL);
}
