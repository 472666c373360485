/* Which of several ways to compute the same pass is fastest on this GPU: everybody runs once, the
 * best few run again. */
#include <stdio.h>
#include <stdlib.h>

#include "device/cuda/cuda.h"

#define KEY_BYTES 192
#define SHORT_RUNS 2
#define LONG_RUNS 10
#define CLOSE 1.25f /* times the best of the short runs: worth a long one */

static const char *const precision_names[] = {
    [YOKE_FLOAT32] = "float32", [YOKE_BFLOAT16] = "bfloat16", [YOKE_TF32] = "tf32"};

static void write_key(char key[KEY_BYTES], const cuda_contest *contest) {
    snprintf(key, KEY_BYTES, "%s %s", contest->key, precision_names[contest->request->precision]);
}

bool cuda_chosen(const cuda_contest *contest, int *winner) {
    const yoke_plan_request *request = contest->request;
    *winner = 0;
    if (request->algorithm == YOKE_ALGORITHM_DIRECT || request->choices == NULL) return true;
    char key[KEY_BYTES];
    write_key(key, contest);
    int known = yoke_choices_find(request->choices, key);
    if (known >= 0) *winner = known;
    return known >= 0;
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

static yoke_status queue_runs(const cuda_contest *contest, int candidate, int runs) {
    for (int i = 0; i < runs; i++)
        TRY(contest->candidates[candidate].run(contest->context, candidate));
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

/* Recorded, as training runs it: what a library does on the host at every call, often longer than
 * its kernel, is not in the time, and who cannot be recorded does not win. */
static yoke_status time_runs(const stopwatch *watch, const cuda_contest *contest, int candidate,
                             int runs, float *milliseconds) {
    yoke_device *device = &watch->device->base;
    yoke_recording *recording = NULL;
    TRY(yoke_recording_begin(device));
    TRY(yoke_recording_end(device, queue_runs(contest, candidate, runs), &recording));
    yoke_status status = time_replay(watch, recording, milliseconds);
    yoke_recording_destroy(recording);
    *milliseconds /= (float)runs;
    return status;
}

/* The contest. times: 0 for a candidate that is not there, or no longer. */

static int best_of(const float *times, int count) {
    int best = -1;
    for (int i = 0; i < count; i++)
        if (times[i] > 0 && (best < 0 || times[i] < times[best])) best = i;
    return best;
}

/* The first run of a kernel loads its code, and tells of a candidate that only promised to serve.
 */
static yoke_status run_heat(const stopwatch *watch, const cuda_contest *contest, int candidate,
                            float *time) {
    TRY(contest->candidates[candidate].run(contest->context, candidate));
    TRY(time_runs(watch, contest, candidate, SHORT_RUNS, time));
    if (*time <= 0) *time = 1e-6f; /* below what events resolve */
    return YOKE_OK;
}

static yoke_status run_heats(const stopwatch *watch, const cuda_contest *contest, float *times) {
    for (int i = 0; i < contest->count; i++) {
        if (contest->candidates[i].run == NULL) continue;
        yoke_status status = run_heat(watch, contest, i, &times[i]);
        if (status == YOKE_ERROR_DEVICE && !cuda_poisoned(watch->device))
            times[i] = 0;
        else
            TRY(status);
    }
    return YOKE_OK;
}

static yoke_status run_final(const stopwatch *watch, const cuda_contest *contest, float *times) {
    int best = best_of(times, contest->count), finalists = 0;
    float slowest = best < 0 ? 0 : CLOSE * times[best];
    for (int i = 0; i < contest->count; i++) {
        if (times[i] > slowest) times[i] = 0;
        finalists += times[i] > 0;
    }
    for (int i = 0; finalists > 1 && i < contest->count; i++) {
        if (times[i] > 0) TRY(time_runs(watch, contest, i, LONG_RUNS, &times[i]));
    }
    return YOKE_OK;
}

static yoke_status measure(const cuda_contest *contest, float *times, int *winner) {
    stopwatch watch = {.device = contest->device};
    yoke_status status = open_stopwatch(&watch);
    if (status == YOKE_OK) status = run_heats(&watch, contest, times);
    if (status == YOKE_OK) status = run_final(&watch, contest, times);
    close_stopwatch(&watch);
    TRY(status);
    *winner = best_of(times, contest->count);
    if (*winner >= 0) return YOKE_OK;
    return FAIL(YOKE_ERROR_DEVICE, "%s: no algorithm for %s", contest->device->base.name,
                contest->key);
}

yoke_status cuda_choose(const cuda_contest *contest, int *winner) {
    if (cuda_chosen(contest, winner)) return YOKE_OK;
    size_t bytes = (size_t)contest->count * sizeof(float);
    float *times = calloc(1, bytes);
    if (times == NULL) return FAIL_MEMORY(bytes, "measured times");
    yoke_status status = measure(contest, times, winner);
    if (status == YOKE_OK) {
        char key[KEY_BYTES];
        write_key(key, contest);
        status = yoke_choices_add(contest->request->choices, key, *winner,
                                  contest->candidates[*winner].name, (double)times[*winner]);
    }
    free(times);
    return status;
}
