/* Measures which of several algorithms for a pass is fastest on this GPU: times all candidates
 * shortly, then the fastest few again. */
#include <stdio.h>
#include <stdlib.h>

#include "device/cuda/cuda.h"

#define KEY_BYTES 192
#define SHORT_RUNS 2
#define LONG_RUNS 10
#define CLOSE 1.25f /* times the fastest short run: candidates up to here run again */

static const char *const precision_names[] = {
    [YOKE_FLOAT32] = "float32", [YOKE_BFLOAT16] = "bfloat16", [YOKE_TF32] = "tf32"};

static void write_key(char key[KEY_BYTES], const cuda_tuning *tuning) {
    snprintf(key, KEY_BYTES, "%s %s", tuning->key, precision_names[tuning->request->precision]);
}

yoke_status cuda_chosen(const cuda_tuning *tuning, bool *chosen, int *best) {
    const yoke_plan_request *request = tuning->request;
    *best = 0;
    *chosen = request->algorithm == YOKE_ALGORITHM_DIRECT || request->choices == NULL;
    if (*chosen) return YOKE_OK;
    char key[KEY_BYTES];
    write_key(key, tuning);
    int known = yoke_choices_find(request->choices, key);
    *chosen = known >= 0;
    if (!*chosen) return YOKE_OK;
    *best = known;
    return yoke_choices_check(request->choices, key,
                              known < tuning->count ? tuning->candidates[known].name : NULL);
}

/* Timing. */

typedef struct stopwatch {
    cuda_device *device;
    cudaEvent_t start, stop;
} stopwatch;

static yoke_status open_stopwatch(stopwatch *watch) {
    TRY_CUDA(watch->device, cudaEventCreate(&watch->start));
    TRY_CUDA(watch->device, cudaEventCreate(&watch->stop));
    return YOKE_OK;
}

static void close_stopwatch(stopwatch *watch) {
    if (watch->stop != NULL) cudaEventDestroy(watch->stop);
    if (watch->start != NULL) cudaEventDestroy(watch->start);
}

static yoke_status queue_runs(const cuda_tuning *tuning, int candidate, int runs) {
    for (int i = 0; i < runs; i++)
        TRY(tuning->candidates[candidate].run(tuning->context, candidate));
    return YOKE_OK;
}

static yoke_status time_replay(const stopwatch *watch, yoke_recording *recording,
                               float *milliseconds) {
    cudaStream_t stream = watch->device->streams[YOKE_STREAM_COMPUTE];
    TRY_CUDA(watch->device, cudaEventRecord(watch->start, stream));
    TRY(yoke_recording_run(recording));
    TRY_CUDA(watch->device, cudaEventRecord(watch->stop, stream));
    TRY_CUDA(watch->device, cudaEventSynchronize(watch->stop));
    TRY_CUDA(watch->device, cudaEventElapsedTime(milliseconds, watch->start, watch->stop));
    return YOKE_OK;
}

/* Times a recording, as training runs one: the time excludes the library's work on the host, which
 * often takes longer than the kernel, and a candidate that cannot be recorded fails. */
static yoke_status time_runs(const stopwatch *watch, const cuda_tuning *tuning, int candidate,
                             int runs, float *milliseconds) {
    yoke_device *device = &watch->device->base;
    yoke_recording *recording = NULL;
    TRY(yoke_recording_begin(device));
    TRY(yoke_recording_end(device, queue_runs(tuning, candidate, runs), &recording));
    yoke_status status = time_replay(watch, recording, milliseconds);
    yoke_recording_destroy(recording);
    *milliseconds /= (float)runs;
    return status;
}

/* Choosing. times: 0 for a candidate that does not exist or was dropped. */

static int best_of(const float *times, int count) {
    int fastest = -1;
    for (int i = 0; i < count; i++)
        if (times[i] > 0 && (fastest < 0 || times[i] < times[fastest])) fastest = i;
    return fastest;
}

/* The first run of a kernel loads its code, and shows whether the candidate works at all. */
static yoke_status time_short(const stopwatch *watch, const cuda_tuning *tuning, int candidate,
                              float *time) {
    TRY(tuning->candidates[candidate].run(tuning->context, candidate));
    TRY(time_runs(watch, tuning, candidate, SHORT_RUNS, time));
    if (*time <= 0) *time = 1e-6f; /* below the resolution of events */
    return YOKE_OK;
}

static yoke_status time_all(const stopwatch *watch, const cuda_tuning *tuning, float *times) {
    for (int i = 0; i < tuning->count; i++) {
        if (tuning->candidates[i].run == NULL) continue;
        TRY(yoke_choices_go_on(tuning->request->choices));
        yoke_status status = time_short(watch, tuning, i, &times[i]);
        if (status == YOKE_ERROR_DEVICE && !cuda_poisoned(watch->device))
            times[i] = 0;
        else
            TRY(status);
    }
    return YOKE_OK;
}

static yoke_status time_closest(const stopwatch *watch, const cuda_tuning *tuning, float *times) {
    int fastest = best_of(times, tuning->count), close_count = 0;
    float slowest = fastest < 0 ? 0 : CLOSE * times[fastest];
    for (int i = 0; i < tuning->count; i++) {
        if (times[i] > slowest) times[i] = 0;
        close_count += times[i] > 0;
    }
    for (int i = 0; close_count > 1 && i < tuning->count; i++) {
        if (times[i] <= 0) continue;
        TRY(yoke_choices_go_on(tuning->request->choices));
        TRY(time_runs(watch, tuning, i, LONG_RUNS, &times[i]));
    }
    return YOKE_OK;
}

static yoke_status measure(const cuda_tuning *tuning, float *times, int *best) {
    stopwatch watch = {.device = tuning->device};
    yoke_status status = open_stopwatch(&watch);
    if (status == YOKE_OK) status = time_all(&watch, tuning, times);
    if (status == YOKE_OK) status = time_closest(&watch, tuning, times);
    close_stopwatch(&watch);
    TRY(status);
    *best = best_of(times, tuning->count);
    if (*best >= 0) return YOKE_OK;
    return FAIL(YOKE_ERROR_DEVICE, "%s: no algorithm for %s", tuning->device->base.name,
                tuning->key);
}

yoke_status cuda_choose(const cuda_tuning *tuning, int *best) {
    bool chosen;
    TRY(cuda_chosen(tuning, &chosen, best));
    if (chosen) return YOKE_OK;
    size_t bytes = (size_t)tuning->count * sizeof(float);
    float *times = calloc(1, bytes);
    if (times == NULL) return FAIL_MEMORY(bytes, "measured times");
    yoke_status status = measure(tuning, times, best);
    if (status == YOKE_OK) {
        char key[KEY_BYTES];
        write_key(key, tuning);
        status = yoke_choices_add(tuning->request->choices, key, *best,
                                  tuning->candidates[*best].name, (double)times[*best]);
    }
    free(times);
    return status;
}
