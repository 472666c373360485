/* SPDX-License-Identifier: Apache-2.0 */
/* Faults on purpose: options.fault lets a device, or a rank, fail in one step, to show what a run
 * does then. A bar of that stage on that device then fails, or never ends; a rank's process is
 * killed; or a device computes wrong gradients, in one step or from then on. */
#include "parallel/observers/observers.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define FAULTS_MOST 16
#define FORM                                                                                       \
    "KIND:DEVICE@STEP or KIND:DEVICE@STEP:STAGE, with commas between several, where KIND is "      \
    "error, memory, hang, kill, flip or flip-once, as in error:1@20:backward"

typedef struct planned_fault planned_fault;

typedef struct fault_kind {
    const char *name;
    yoke_status (*happen)(const yoke_step *step, int lane); /* before a bar; NULL: it spoils */
    bool lasts;                                             /* it spoils later gradients, too */
} fault_kind;

struct planned_fault {
    const fault_kind *kind;
    int device; /* its number in the list of devices; with ranks, the rank */
    uint64_t step;
    yoke_stage stage;
    bool is_over;
};

struct yoke_faults {
    int count;
    planned_fault list[FAULTS_MOST];
};

/* Kinds. */

static yoke_status fail(const yoke_step *step, int lane) {
    return FAIL(YOKE_ERROR_DEVICE, "%s failed, as options.fault asks",
                yoke_device_name(step->lanes[lane].device));
}

static yoke_status run_out_of_memory(const yoke_step *step, int lane) {
    return FAIL(YOKE_ERROR_MEMORY, "%s has no memory left, as options.fault asks",
                yoke_device_name(step->lanes[lane].device));
}

static _Noreturn void sleep_for_good(void) {
    for (;;)
        nanosleep(&(struct timespec){.tv_sec = 3600}, NULL);
}

static yoke_status hang(const yoke_step *step, int lane) {
    (void)step;
    (void)lane;
    sleep_for_good();
}

static yoke_status kill_process(const yoke_step *step, int lane) {
    (void)step;
    (void)lane;
    kill(getpid(), SIGKILL);
    sleep_for_good();
}

static const fault_kind kinds[] = {{"error", fail},      {"memory", run_out_of_memory},
                                   {"hang", hang},       {"kill", kill_process},
                                   {"flip", NULL, true}, {"flip-once", NULL}};

/* Options. */

static bool read_kind(const char **text, planned_fault *fault) {
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        size_t length = strlen(kinds[i].name);
        if (strncmp(*text, kinds[i].name, length) != 0 || (*text)[length] != ':') continue;
        fault->kind = &kinds[i];
        *text += length + 1;
        return true;
    }
    return false;
}

static bool read_number(const char **text, uint64_t most, uint64_t *number) {
    char *end;
    if (**text < '0' || **text > '9') return false;
    *number = strtoull(*text, &end, 10);
    *text = end;
    return *number <= most;
}

static bool read_stage(const char **text, planned_fault *fault) {
    size_t length = strcspn(*text, ",");
    for (int i = 0; i < YOKE_STAGE_COUNT; i++) {
        const char *name = yoke_stage_name((yoke_stage)i);
        if (strlen(name) != length || strncmp(*text, name, length) != 0) continue;
        fault->stage = (yoke_stage)i;
        *text += length;
        return true;
    }
    return false;
}

static bool read_fault(const char **text, planned_fault *fault) {
    uint64_t device;
    fault->stage = YOKE_STAGE_BACKWARD;
    if (!read_kind(text, fault) || !read_number(text, YOKE_AGREE_RANKS, &device)) return false;
    fault->device = (int)device;
    if (**text != '@') return false;
    ++*text;
    if (!read_number(text, UINT64_MAX, &fault->step)) return false;
    if (**text != ':') return true;
    ++*text;
    return read_stage(text, fault);
}

static yoke_status read_all(struct yoke_faults *faults, const char *given) {
    for (const char *text = given;; text++) {
        if (faults->count == FAULTS_MOST || !read_fault(&text, &faults->list[faults->count++]) ||
            (*text != ',' && *text != '\0'))
            return FAIL(YOKE_ERROR_ARGUMENT, "fault '%s': %s; %d at most", given, FORM,
                        FAULTS_MOST);
        if (*text == '\0') return YOKE_OK;
    }
}

yoke_status yoke_faults_create(yoke_step *step) {
    const char *given = step->options.fault;
    step->options.fault = NULL; /* may be gone after create */
    /* A rank that was started again does not fail again. */
    if (given == NULL || step->ranks.is_newcomer) return YOKE_OK;
    step->watch.faults = yoke_calloc(1, sizeof *step->watch.faults);
    if (step->watch.faults == NULL) return FAIL_MEMORY(sizeof *step->watch.faults, "faults");
    return read_all(step->watch.faults, given);
}

/* Happening. */

/* What a fault calls a lane: devices keep their numbers when others are left out. */
static int number_of(const yoke_step *step, int lane) {
    bool ranks = step->ranks.process_group != NULL;
    return ranks ? step->ranks.seat : yoke_device_number(step->lanes[lane].device);
}

static yoke_status before_bar(yoke_step *step, int lane, yoke_open_bar *open) {
    const struct yoke_faults *faults = step->watch.faults;
    yoke_stage stage = step->flight.training ? open->span.stage : YOKE_STAGE_EVALUATE;
    for (int i = 0; i < faults->count; i++) {
        const planned_fault *fault = &faults->list[i];
        bool happens = fault->kind->happen != NULL && fault->step == step->steps;
        if (happens && fault->stage == stage && fault->device == number_of(step, lane))
            return fault->kind->happen(step, lane);
    }
    return YOKE_OK;
}

/* The lowest bit of one element: too little to see in a loss. */
static yoke_status flip(const yoke_step *step, int index, size_t element) {
    const yoke_lane *lane = &step->lanes[index];
    float *at = lane->memory->gradients + element, value;
    uint32_t bits;
    TRY(yoke_device_download(lane->device, YOKE_STREAM_COMPUTE, &value, at, sizeof value));
    TRY(yoke_device_synchronize(lane->device));
    memcpy(&bits, &value, sizeof bits);
    bits ^= 1;
    memcpy(&value, &bits, sizeof bits);
    TRY(yoke_device_upload(lane->device, YOKE_STREAM_COMPUTE, at, &value, sizeof value));
    return yoke_device_synchronize(lane->device);
}

/* Spoils one bucket of each shard, the one that backward completes first. */
static yoke_status after_gradient(yoke_step *step, int lane, yoke_bucket bucket) {
    struct yoke_faults *faults = step->watch.faults;
    if (bucket.offset != step->flat->buckets[0].offset) return YOKE_OK;
    for (int i = 0; i < faults->count; i++) {
        planned_fault *fault = &faults->list[i];
        bool begun = fault->kind->lasts ? step->steps >= fault->step : step->steps == fault->step;
        bool spoils = fault->kind->happen == NULL && fault->device == number_of(step, lane);
        if (!spoils || !begun || fault->is_over) continue;
        if (!fault->kind->lasts) fault->is_over = yoke_lane_is_last(step, lane);
        TRY(flip(step, lane, bucket.offset));
    }
    return YOKE_OK;
}

const yoke_observer yoke_observe_faults = {.before_bar = before_bar,
                                           .after_gradient = after_gradient};
