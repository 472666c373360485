/* SPDX-License-Identifier: Apache-2.0 */
/* The state of ranks: one that has no memory for it keeps no other waiting. The wrapped call
 * (-Wl,--wrap) fails on that rank's thread. */
#include <unistd.h>

#include "parallel/parallel.h"
#include "support/ddp_check.h"

static char path[64];
static _Thread_local bool fails;

yoke_status __real_yoke_state_create(yoke_state **state, const yoke_data_parallel *parallel,
                                     bool best);
yoke_status __wrap_yoke_state_create(yoke_state **state, const yoke_data_parallel *parallel,
                                     bool best);
yoke_status __wrap_yoke_state_create(yoke_state **state, const yoke_data_parallel *parallel,
                                     bool best) {
    *state = NULL;
    return fails ? FAIL(YOKE_ERROR_MEMORY, "planted")
                 : __real_yoke_state_create(state, parallel, best);
}

static yoke_status save_without_memory(yoke_process_group *group, const script *play) {
    rank_rig rig = {0};
    yoke_status status = begin_rank(&rig, play->detail, play, group);
    fails = group->rank == 1;
    if (status == YOKE_OK) status = yoke_state_save(rig.parallel, path);
    return end_rank(&rig, status);
}

/* The file is there: rank 0 alone reads it. */
static yoke_status load_without_memory(yoke_process_group *group, const script *play) {
    rank_rig rig = {0};
    yoke_status status = begin_rank(&rig, play->detail, play, group);
    if (status == YOKE_OK) status = yoke_state_save(rig.parallel, path);
    fails = group->rank == 1;
    if (status == YOKE_OK) status = yoke_state_load(rig.parallel, path, NULL);
    return end_rank(&rig, status);
}

/* In the sharded schedule all ranks own a part of the optimizer's state. */
static void expect_refusal(scene act_of_rank) {
    const ddp_setting s = {.batch = 8, .accumulate = 1, .sharded = true};
    yoke_model *model = check_model(false, 0);
    course plan = {.setting = &s, .model = model};
    script play = {.world = 3, .timeout_ms = TIMEOUT_MS, .scene = act_of_rank, .detail = &plan};
    snprintf(path, sizeof path, "/tmp/yoke-test-state-%d", (int)getpid());
    outcome *outcomes = play_threads(&play);
    for (int rank = 0; rank < play.world; rank++) {
        const yoke_error *error = &outcomes[rank].error;
        if (error->status != YOKE_ERROR_MEMORY || strstr(error->text, "planted") == NULL)
            fail_msg("rank %d: %s: %s", rank, yoke_status_name(error->status), error->text);
    }
    unlink(path);
    free(outcomes);
    yoke_model_destroy(model);
}

static void a_rank_without_memory_for_a_state_ends_the_saving_of_all(void **state) {
    (void)state;
    expect_refusal(save_without_memory);
}

static void a_rank_without_memory_for_a_state_ends_the_loading_of_all(void **state) {
    (void)state;
    expect_refusal(load_without_memory);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_rank_without_memory_for_a_state_ends_the_saving_of_all),
        cmocka_unit_test(a_rank_without_memory_for_a_state_ends_the_loading_of_all),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
