/* SPDX-License-Identifier: Apache-2.0 */
#include "train/resize.h"

#include <stdio.h>

#include "train/record.h"
#include "train/run_engine.h"
#include "train/splits.h"
#include "train/trainer_parts.h"

/* Asking: from any thread, so that it reads only what no run changes. */

static yoke_status check(const yoke_run *run) {
    if (run->ranks != NULL)
        return FAIL(YOKE_ERROR_ARGUMENT, "each rank of DDP has one device: yoke launch --min-ranks "
                                         "takes in other ranks");
    if (run->options.mode != YOKE_MODE_DATA_PARALLEL)
        return FAIL(YOKE_ERROR_ARGUMENT, "only a run of mode dp can go on with other devices");
    if (run->training.info.rows == 0 && !yoke_dataset_rewinds(run->training.rows))
        return FAIL(YOKE_ERROR_ARGUMENT, "the row stream has one pass, and other devices would "
                                         "begin it again: set its `rewind`");
    if (run->engine.shares == NULL) return YOKE_OK;
    return FAIL(YOKE_ERROR_ARGUMENT, "the run's shares are those of its own devices, by number: "
                                     "begin it with shares auto, or without");
}

yoke_status yoke_trainer_resize(yoke_trainer *trainer, const char *devices) {
    TRY(yoke_pointer_check(trainer, "trainer"));
    TRY(yoke_pointer_check(devices, "devices"));
    const yoke_run *run = &trainer->run;
    TRY(check(run));
    yoke_devices *opened = NULL;
    yoke_devices_options options = {.struct_size = sizeof options,
                                    .list = devices,
                                    .threads = run->options.threads,
                                    .shards = run->engine.shards};
    TRY(yoke_devices_open(&opened, &options));
    yoke_devices_close(atomic_exchange(&trainer->resize.asked, opened));
    return YOKE_OK;
}

bool yoke_resize_is_asked(const yoke_resize *resize) {
    return atomic_load(&resize->asked) != NULL;
}

void yoke_resize_close(yoke_resize *resize) {
    yoke_devices_close(atomic_exchange(&resize->asked, NULL));
}

/* Changing. */

static yoke_status take_state(yoke_state **state, yoke_trainer *trainer) {
    yoke_data_parallel *parallel = trainer->run.parallel;
    TRY(yoke_state_create(state, parallel, false));
    TRY(yoke_state_take(*state, parallel));
    return yoke_survival_let_go(&trainer->survival, parallel);
}

/* Loaders come first: they say in which form rows reach the engine. */
static yoke_status make(yoke_trainer *trainer, yoke_devices *devices) {
    yoke_run *run = &trainer->run;
    yoke_run_change_devices(run, devices);
    TRY(yoke_rows_reload(&run->training, run));
    TRY(yoke_rows_reload(&trainer->test.rows, run));
    return yoke_run_rebuild_engine(run);
}

/* in_step: until the state is given the weights are none of the run's. */
static yoke_status use(yoke_trainer *trainer, yoke_devices *devices, yoke_state *state) {
    yoke_run *run = &trainer->run;
    yoke_survival *survival = &trainer->survival;
    run->in_step = true;
    yoke_rows_unload(&run->training);
    yoke_rows_unload(&trainer->test.rows);
    pthread_mutex_lock(&survival->engine);
    yoke_status status = make(trainer, devices);
    pthread_mutex_unlock(&survival->engine);
    TRY(status);
    TRY(yoke_state_give(run->parallel, state));
    run->in_step = false;
    return YOKE_OK;
}

/* "3 devices go on from step 20: cpu:0, cpu:1, cpu:2" */
static void report(yoke_trainer *trainer) {
    const yoke_run *run = &trainer->run;
    int count = yoke_devices_count(run->devices);
    trainer->survival.devices = count;
    char text[80 + YOKE_DEVICES_LIMIT * 34];
    int length = snprintf(text, sizeof text, "%d device%s on from step %llu: ", count,
                          count == 1 ? " goes" : "s go", (unsigned long long)run->at.step);
    for (int i = 0; i < count; i++)
        length += snprintf(text + length, sizeof text - (size_t)length, "%s%s", i == 0 ? "" : ", ",
                           yoke_device_name(yoke_devices_at(run->devices, i)));
    yoke_event event = {.kind = YOKE_EVENT_RESIZED, .accuracy = -1, .text = text};
    yoke_trainer_record(trainer, &event);
}

yoke_status yoke_resize_engine(yoke_trainer *trainer) {
    yoke_state *state = NULL;
    yoke_status status = take_state(&state, trainer);
    if (status == YOKE_OK) status = use(trainer, trainer->run.devices, state);
    yoke_error error = yoke_error_take(status);
    yoke_state_destroy(state);
    return yoke_error_restore(&error);
}

/* Where the run can use neither these devices nor its own, the first failure is the run's. */
static yoke_status change(yoke_trainer *trainer, yoke_devices *devices, yoke_state *state) {
    yoke_devices *before = trainer->run.devices;
    yoke_status status = use(trainer, devices, state);
    if (status == YOKE_OK) {
        yoke_devices_close(before);
        report(trainer);
        return YOKE_OK;
    }
    yoke_error error = yoke_error_take(status);
    (void)use(trainer, before, state);
    yoke_devices_close(devices);
    return yoke_error_restore(&error);
}

static yoke_status try_change(yoke_trainer *trainer, yoke_devices *devices, yoke_state **state) {
    yoke_status status = take_state(state, trainer);
    if (status == YOKE_OK) return change(trainer, devices, *state);
    yoke_devices_close(devices);
    return status;
}

yoke_status yoke_resize_run(yoke_trainer *trainer) {
    yoke_run *run = &trainer->run;
    yoke_devices *devices = atomic_exchange(&trainer->resize.asked, NULL);
    yoke_state *state = NULL;
    if (yoke_devices_are_kept(run->devices)) { /* the thread may read rows and devices yet */
        yoke_devices_close(devices);
        yoke_run_say(run, YOKE_EVENT_WARNING,
                     "no other devices: a thread hangs in one of those "
                     "that the run has had");
        return YOKE_OK;
    }
    yoke_error error = yoke_error_take(try_change(trainer, devices, &state));
    yoke_state_destroy(state);
    yoke_status status = yoke_error_restore(&error);
    if (status == YOKE_OK || run->parallel == NULL || run->in_step) return status;
    yoke_run_warn(run);
    return YOKE_OK;
}
