/* SPDX-License-Identifier: Apache-2.0 */
/* What the flags of fine-tuning mean for a trainer. */
#include "cli/tuning_flags.h"

#include "cli/cli.h"

int tuning_flags_check(const tuning_flags *flags) {
    if (flags->min_delta > 0 && flags->patience == 0)
        return cli_usage_error("train", "--min-delta needs --patience");
    return -1;
}

bool tuning_flags_watch(const tuning_flags *flags, int lr_schedule) {
    return flags->patience > 0 || lr_schedule == YOKE_LR_PLATEAU;
}

void tuning_flags_fill(yoke_trainer_options *run, const tuning_flags *flags) {
    run->init_new_head = flags->new_head;
    run->lr_gamma = flags->lr_gamma;
    run->lr_patience = flags->lr_patience;
    run->patience = flags->patience;
    run->min_delta = flags->min_delta;
    run->ema_decay = flags->ema;
}
