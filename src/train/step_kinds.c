/* SPDX-License-Identifier: Apache-2.0 */
#include "train/step_kinds.h"

#include "train/epochs.h"

static const yoke_step_kind together = {
    .load = yoke_trainer_load, .update = yoke_trainer_update, .name = "dp"};
static const yoke_step_kind alone = {
    .load = yoke_trainer_load, .update = yoke_trainer_update, .name = "single"};
static const yoke_step_kind ranks = {
    .load = yoke_trainer_load, .update = yoke_trainer_update, .name = "ddp"};

const yoke_step_kind *yoke_step_kind_of(yoke_mode mode) {
    static const yoke_step_kind *const kinds[] = {
        [YOKE_MODE_DATA_PARALLEL] = &together,          [YOKE_MODE_SINGLE] = &alone,
        [YOKE_MODE_DISTRIBUTED_DATA_PARALLEL] = &ranks, [YOKE_MODE_ASYNC] = &yoke_steps_apart_async,
        [YOKE_MODE_LOCAL] = &yoke_steps_apart_local,
    };
    bool known = mode >= 0 && (size_t)mode < sizeof kinds / sizeof kinds[0];
    return known ? kinds[mode] : NULL;
}

/* Options that would need the state of every device, or a step of all of them. */
yoke_status yoke_step_kind_check(const yoke_run *run) {
    const yoke_trainer_options *options = &run->options;
    const yoke_data_parallel_options *engine = &run->engine;
    const yoke_step_kind *kind = yoke_step_kind_of(options->mode);
    if (!kind->is_apart) return YOKE_OK;
    const struct {
        bool is_set;
        const char *name;
    } rows[] = {
        {engine->shards > 0, "shards"},
        {engine->accumulate > 1, "accumulate"},
        {engine->shares != NULL || engine->auto_shares, "shares"},
        {engine->synchronize_batch_norm, "synchronize_batch_norm"},
        {engine->audit > 0, "audit"},
        {engine->precision == YOKE_FLOAT16, "precision float16"},
        {engine->loss_scale != 0 && engine->loss_scale != 1, "loss_scale"},
        {engine->fault != NULL, "fault"},
        {engine->link != NULL, "link"},
        {engine->schedule != YOKE_SCHEDULE_OVERLAP, "schedule"},
        {options->survive, "survive"},
        {options->checkpoint_dir != NULL || options->resume != NULL, "checkpoint_dir and resume"},
        {options->custom_loss != NULL, "custom_loss"},
        {options->length_buckets > 1, "length_buckets"},
        {options->mixup > 0, "mixup"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        if (rows[i].is_set)
            return FAIL(YOKE_ERROR_ARGUMENT,
                        "mode %s does not go together with %s: devices have weights of their own, "
                        "and no step is that of all",
                        kind->name, rows[i].name);
    return YOKE_OK;
}
