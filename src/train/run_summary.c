/* SPDX-License-Identifier: Apache-2.0 */
/* What a run was and did. */
#include <math.h>

#include "train/trainer_parts.h"

static yoke_status peak_bytes(const yoke_data_parallel *parallel, size_t *bytes) {
    *bytes = 0;
    for (int i = 0; i < yoke_data_parallel_device_count(parallel); i++) {
        yoke_memory_report report = {.struct_size = sizeof report};
        TRY(yoke_data_parallel_memory(parallel, i, &report));
        if (report.total > *bytes) *bytes = report.total;
    }
    return YOKE_OK;
}

static void describe_setting(const yoke_run *run, yoke_trainer_summary *summary) {
    const yoke_trainer_options *options = &run->options;
    const yoke_data_parallel_options *engine = &run->engine;
    static const char *const schedules[] = {"overlap", "classic", "sharded", "python"};
    summary->mode = yoke_step_kind_of(options->mode)->name;
    summary->schedule = schedules[engine->schedule];
    summary->world = 1;
    if (run->ranks != NULL) {
        summary->rank = yoke_process_group_rank(run->ranks);
        summary->world = yoke_process_group_world(run->ranks);
        summary->transport = yoke_process_group_transport(run->ranks);
    }
    summary->link = engine->link;
    summary->model = options->model;
    summary->dataset = options->dataset;
    summary->precision = yoke_precision_name(engine->precision);
    summary->devices = yoke_data_parallel_device_count(run->parallel) * summary->world;
    summary->parameters = yoke_model_parameter_count(run->model);
    summary->batch = options->batch;
}

static void describe_result(const yoke_trainer *trainer, yoke_trainer_summary *summary) {
    const yoke_step_sums *sums = &trainer->sums;
    const yoke_step_result *test = &trainer->test.last;
    uint64_t all_ns = sums->computed_ns + sums->waited_ns;
    bool evaluated = test->rows > 0;
    summary->steps = trainer->run.at.step;
    summary->step_ms_median = yoke_step_times_quantile(&sums->times, 0.5);
    summary->step_ms_p90 = yoke_step_times_quantile(&sums->times, 0.9);
    if (summary->step_ms_median > 0)
        summary->images_per_second = 1e3 * summary->batch / summary->step_ms_median;
    if (all_ns > 0) summary->load_wait_share = (double)sums->waited_ns / (double)all_ns;
    summary->loss = evaluated ? test->loss : sums->last.loss;
    summary->accuracy = evaluated ? yoke_step_accuracy(test) : -1;
    summary->train_loss = yoke_epoch_loss(&sums->epoch);
    summary->train_accuracy = yoke_epoch_accuracy(&sums->epoch);
    summary->test_loss = evaluated ? test->loss : (double)NAN;
    summary->test_accuracy = summary->accuracy;
    summary->lost = trainer->survival.lost;
    if (trainer->apart.crew != NULL) {
        summary->devices = trainer->apart.crew->count;
        if (all_ns > 0) /* a step may be a push, of which some come at once */
            summary->images_per_second =
                1e9 * (double)summary->steps * summary->batch / (double)all_ns;
    }
    summary->kept_seconds = (double)trainer->survival.all_ns * 1e-9;
    summary->lost_seconds = (double)trainer->survival.lost_ns * 1e-9;
}

static yoke_status summarize(const yoke_trainer *trainer, yoke_trainer_summary *summary) {
    yoke_trainer_summary own = {.struct_size = sizeof own};
    yoke_data_parallel *parallel = trainer->run.parallel;
    bool is_dynamic;
    describe_setting(&trainer->run, &own);
    describe_result(trainer, &own);
    TRY(peak_bytes(parallel, &own.peak_bytes));
    TRY(yoke_data_parallel_hash(parallel, &own.weights_hash));
    yoke_scale_state scale = yoke_data_parallel_scale(parallel, &is_dynamic);
    own.loss_scale = is_dynamic ? scale.scale : 0;
    own.skipped_steps = scale.skipped;
    return yoke_options_store(summary, &own, sizeof own, "yoke_trainer_summary");
}

yoke_status yoke_trainer_summarize(yoke_trainer *trainer, yoke_trainer_summary *summary) {
    TRY(yoke_trainer_begin_question(trainer, "yoke_trainer_summarize"));
    yoke_status status = summarize(trainer, summary);
    yoke_trainer_end_question(trainer);
    return status;
}
