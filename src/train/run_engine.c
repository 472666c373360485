/* SPDX-License-Identifier: Apache-2.0 */
#include "train/run_engine.h"

#include <stdio.h>

#include "trace/trace.h"
#include "train/file_work.h"
#include "train/weights.h"
#include "train/whiten.h"

/* The others wait while an engine of other shapes measures algorithms. */
#define MEASURE_SECONDS 0.2

static void on_skip(const yoke_weights_skip *skip, void *payload) {
    const yoke_trainer_options *options = payload;
    yoke_event event = {.struct_size = sizeof event,
                        .kind = YOKE_EVENT_SKIPPED,
                        .accuracy = -1,
                        .text = skip->text,
                        .skip = skip};
    if (options->on_event != NULL) options->on_event(&event, options->payload);
}

/* The first weights, which rank 0 reads. */
typedef struct first_weights {
    yoke_run *run;
    yoke_weights_source source;
} first_weights;

static yoke_status read_weights(void *context) {
    first_weights *weights = context;
    yoke_run *run = weights->run;
    yoke_trainer_options *options = &run->options;
    yoke_weights_load_options load = {.struct_size = sizeof load,
                                      .allow_missing = options->init_allow_missing,
                                      .allow_unknown = options->init_allow_unknown,
                                      .on_skip = on_skip,
                                      .payload = options,
                                      .new_head = options->init_new_head};
    const yoke_file_source from = yoke_source_path(options->init);
    return yoke_weights_open(&weights->source, run->parallel, run->model, &from, &load);
}

static yoke_status create_engine(yoke_run *run) {
    const yoke_trainer_options *options = &run->options;
    yoke_data_parallel_options *engine = &run->engine;
    engine->batch = options->batch;
    engine->seed = options->seed;
    engine->process_group = run->ranks;
    /* Training rows as crops arrive as pixels where their colours change, test rows do not. */
    engine->pixels = yoke_loader_pixels(run->training.loader) &&
                     !yoke_dataset_has_crops(run->training.rows) &&
                     !yoke_dataset_has_crops(options->test_rows);
    yoke_data_parallel_options own = *engine;
    /* Devices that train apart have engines of their own: this one is not slowed down. */
    if (run->is_apart) own.straggler_factor = own.straggler = 0;
    return yoke_data_parallel_create(&run->parallel, run->model, run->devices, options->optimizer,
                                     &own);
}

yoke_status yoke_run_build_engine(yoke_run *run) {
    first_weights weights = {.run = run};
    TRY(yoke_kept_lists_create(&run->lists, &run->engine));
    TRY(create_engine(run));
    bool gets_weights = yoke_process_group_is_newcomer(run->ranks);
    if (run->options.init == NULL && run->options.whiten != NULL && !gets_weights)
        return yoke_whiten(run);
    if (run->options.init == NULL || gets_weights) return YOKE_OK;
    yoke_status status = yoke_run_file_work(run, read_weights, &weights);
    if (status == YOKE_OK && yoke_run_writes(run))
        status = yoke_weights_give(&weights.source, run->parallel);
    yoke_weights_close(&weights.source);
    TRY(status);
    return yoke_data_parallel_broadcast(run->parallel);
}

/* GPUs compute equally many shards each. */
static void keep_spares(const yoke_run *run) {
    int count = yoke_devices_count(run->devices), used = 1;
    if (run->engine.shards == 0 || yoke_devices_share_memory(run->devices)) return;
    while (2 * used <= count)
        used *= 2;
    yoke_devices_use(run->devices, used);
}

/* why: "cpu:1 was lost", for the name of the next trace. */
static void keep_trace(yoke_run *run, const char *why) {
    yoke_past_traces *past = &run->past;
    if (run->options.trace == NULL || run->parallel == NULL || past->count == YOKE_DEVICES_LIMIT)
        return;
    if (past->count == 0) snprintf(past->names[0], sizeof past->names[0], "yoke");
    past->traces[past->count++] = yoke_data_parallel_take_trace(run->parallel);
    snprintf(past->names[past->count], sizeof past->names[0], "yoke, after %s", why);
}

void yoke_run_drop_engine(yoke_run *run) {
    yoke_data_parallel_destroy(run->parallel);
    run->parallel = NULL;
}

yoke_status yoke_run_rebuild_engine(yoke_run *run) {
    int audit = run->engine.audit;
    run->engine.measure_seconds = MEASURE_SECONDS;
    if (yoke_devices_count(run->devices) == 1) run->engine.audit = 0; /* nobody is left for it */
    yoke_status status = create_engine(run);
    run->engine.audit = audit;
    TRY(status);
    return yoke_data_parallel_bind(run->parallel);
}

yoke_status yoke_run_leave_out(yoke_run *run, int device) {
    char why[48];
    snprintf(why, sizeof why, "%s was lost",
             yoke_device_name(yoke_devices_at(run->devices, device)));
    keep_trace(run, why);
    yoke_run_drop_engine(run);
    yoke_devices_leave_out(run->devices, device);
    keep_spares(run);
    yoke_kept_lists_leave_out(run->lists, &run->engine, device);
    return yoke_run_rebuild_engine(run);
}

void yoke_run_change_devices(yoke_run *run, yoke_devices *devices) {
    char why[48];
    snprintf(why, sizeof why, "step %llu", (unsigned long long)run->at.step);
    if (run->parallel != NULL) (void)yoke_data_parallel_trace(run->parallel); /* reads its clocks */
    keep_trace(run, why);
    yoke_run_drop_engine(run);
    run->devices = devices;
    keep_spares(run);
}

void yoke_run_close_engine(yoke_run *run) {
    yoke_data_parallel_destroy(run->parallel);
    for (int i = 0; i < run->past.count && !yoke_devices_are_kept(run->devices); i++)
        yoke_trace_destroy(run->past.traces[i]);
    for (int i = 0; i < run->mark_count; i++)
        yoke_free(run->marks[i].text);
    yoke_free(run->marks);
    yoke_kept_lists_destroy(run->lists);
}
