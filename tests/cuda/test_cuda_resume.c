/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks with a GPU each, over NCCL, that go on from a file: the bits of the run that did not stop,
 * because NCCL adds in the same order for the same ranks. */
#include "support/resume_check.h"
#undef EXPECT_OK
#include "gpu_ranks.h"

static outcome *play_on_gpus(const script *play) {
    return play_gpus(*play);
}

static void ranks_over_nccl_resume_after_a_step_bit_for_bit(void **state) {
    (void)state;
    const ddp_setting settings[] = {
        {.batch = 12, .accumulate = 1},
        {.batch = 12, .accumulate = 1, .adamw = true, .dropout = 0.4},
        {.batch = 12, .accumulate = 1, .norm = true, .clip = true},
    };
    for (int i = 0; i < 3; i++)
        if (2 + i <= most_gpu_ranks()) check_ranks_resume(&settings[i], 2 + i);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranks_over_nccl_resume_after_a_step_bit_for_bit),
    };
    play_ranks = play_on_gpus;
    return RUN_ON_DEVICES(tests, make_folder, remove_folder);
}
