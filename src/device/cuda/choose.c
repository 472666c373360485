/* SPDX-License-Identifier: Apache-2.0 */
/* Measures which of several algorithms for a pass is fastest on this GPU: times all candidates
 * shortly, then the fastest few again. The GPU works first, since an idle one lowers its clocks,
 * and each timing has two heats, the second in the opposite order; the shorter time counts. */
#include <assert.h>
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "device/cuda/cuda.h"

#define KEY_BYTES 320
#define CONTEST_LIMIT 4 /* candidates of a room above */
#define SHORT_RUNS 2
#define LONG_RUNS 10
#define HEATS 2
#define SHORTEST_MS 1e-6f /* for what events do not resolve */
#define CLOSE 1.25f       /* times the fastest short run: candidates up to here run again */

/* The longest warm-up before a contest; simulated clocks are always the same. */
#ifdef YOKE_SIMCUDA
#define WARM_UP_NS 0.0
#else
#define WARM_UP_NS 1e8
#endif

/* A run that may take every algorithm records what it measures apart from one that refuses some. */
static void write_key(char key[KEY_BYTES], const cuda_tuning *tuning) {
    bool all = tuning->request->algorithm == YOKE_ALGORITHM_FASTEST;
    snprintf(key, KEY_BYTES, "%s %s%s", tuning->key,
             yoke_precision_name(tuning->request->precision), all ? " fastest" : "");
}

static const char *candidate_name(const void *context, int candidate) {
    const cuda_tuning *tuning = context;
    return candidate < tuning->count ? tuning->candidates[candidate].name : NULL;
}

yoke_status cuda_chosen(const cuda_tuning *tuning, bool *chosen, int *best) {
    const yoke_plan_request *request = tuning->request;
    bool fewer_rows = request->most_rows > request->rows;
    const yoke_algorithm_names names = {.name_of = candidate_name,
                                        .context = tuning,
                                        .take = tuning->take,
                                        .taker = tuning->taker,
                                        .follows = fewer_rows || tuning->device->base.index > 0};
    int known = yoke_algorithms_preferred(request->algorithms, &names);
    *best = known > 0 ? known : 0;
    *chosen = request->algorithm == YOKE_ALGORITHM_DIRECT || request->algorithms == NULL;
    if (*chosen) return YOKE_OK;
    char key[KEY_BYTES];
    write_key(key, tuning);
    TRY(yoke_algorithms_find(request->algorithms, key, &names, &known));
    *chosen = known >= 0 || known == YOKE_ALGORITHM_GONE;
    if (known >= 0) *best = known;
    return YOKE_OK;
}

yoke_status cuda_assume(const cuda_tuning *tuning, const char *name) {
    char key[KEY_BYTES];
    write_key(key, tuning);
    return yoke_algorithms_assume(tuning->request->algorithms, key, 0, name);
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
    *time = fmaxf(*time, SHORTEST_MS);
    return YOKE_OK;
}

static yoke_status replay_for(const stopwatch *watch, const cuda_tuning *tuning,
                              yoke_recording *recording, double wanted_ns) {
    uint64_t begin = yoke_now_ns();
    float milliseconds;
    do {
        TRY(yoke_algorithms_go_on(tuning->request->algorithms));
        TRY(time_replay(watch, recording, &milliseconds));
    } while ((double)(yoke_now_ns() - begin) < wanted_ns);
    return YOKE_OK;
}

/* Lowers the times of the candidates that are left. One heat goes from the first to the last, the
 * next one back: clocks that rise or fall meanwhile favour no candidate. */
static yoke_status run_heats(const stopwatch *watch, const cuda_tuning *tuning, int runs,
                             float *times) {
    for (int k = 0; k < HEATS * tuning->count; k++) {
        int place = k % tuning->count;
        int i = k / tuning->count % 2 == 0 ? place : tuning->count - 1 - place;
        float milliseconds;
        if (times[i] <= 0) continue;
        TRY(yoke_algorithms_go_on(tuning->request->algorithms));
        TRY(time_runs(watch, tuning, i, runs, &milliseconds));
        times[i] = fminf(times[i], fmaxf(milliseconds, SHORTEST_MS));
    }
    return YOKE_OK;
}

/* Drops the candidates that are too slow; returns how many are left, whose times begin anew. */
static int keep_closest(float *times, int count) {
    float slowest = CLOSE * times[best_of(times, count)];
    int close_count = 0;
    for (int i = 0; i < count; i++) {
        if (times[i] > slowest) times[i] = 0;
        close_count += times[i] > 0;
    }
    for (int i = 0; close_count > 1 && i < count; i++)
        if (times[i] > 0) times[i] = FLT_MAX;
    return close_count;
}

static yoke_status hold_contest(const stopwatch *watch, const cuda_tuning *tuning, float *times) {
    /* A first time of each candidate that serves at all. */
    for (int i = 0; i < tuning->count; i++) {
        if (tuning->candidates[i].run == NULL) continue;
        TRY(yoke_algorithms_go_on(tuning->request->algorithms));
        yoke_status status = time_short(watch, tuning, i, &times[i]);
        if (status == YOKE_ERROR_DEVICE && !cuda_poisoned(watch->device))
            times[i] = 0;
        else
            TRY(status);
    }
    int first = best_of(times, tuning->count);
    if (first < 0) return YOKE_OK;
    /* Keep the GPU at work for as long as it was idle since the last contest, up to WARM_UP_NS. */
    cuda_device *device = watch->device;
    double idle_ns = (double)(yoke_now_ns() - device->contest_ended_ns);
    yoke_recording *recording = NULL;
    TRY(yoke_recording_begin(&device->base));
    TRY(yoke_recording_end(&device->base, queue_runs(tuning, first, LONG_RUNS), &recording));
    yoke_status status = replay_for(watch, tuning, recording, fmin(idle_ns, WARM_UP_NS));
    yoke_recording_destroy(recording);
    TRY(status);
    TRY(run_heats(watch, tuning, SHORT_RUNS, times));
    if (keep_closest(times, tuning->count) > 1) TRY(run_heats(watch, tuning, LONG_RUNS, times));
    watch->device->contest_ended_ns = yoke_now_ns();
    return YOKE_OK;
}

static yoke_status measure_candidates(const cuda_tuning *tuning, float *times, int *best) {
    stopwatch watch = {.device = tuning->device};
    yoke_status status = open_stopwatch(&watch);
    if (status == YOKE_OK) status = hold_contest(&watch, tuning, times);
    if (watch.stop != NULL) cudaEventDestroy(watch.stop);
    if (watch.start != NULL) cudaEventDestroy(watch.start);
    TRY(status);
    *best = best_of(times, tuning->count);
    if (*best >= 0) return YOKE_OK;
    return FAIL(YOKE_ERROR_DEVICE, "%s: no algorithm for %s", tuning->device->base.name,
                tuning->key);
}

yoke_status cuda_measure(const cuda_tuning *tuning, int *best) {
    size_t bytes = (size_t)tuning->count * sizeof(float);
    float *times = yoke_calloc(1, bytes);
    if (times == NULL) return FAIL_MEMORY(bytes, "measured times");
    yoke_status status = measure_candidates(tuning, times, best);
    if (status == YOKE_OK) {
        char key[KEY_BYTES];
        write_key(key, tuning);
        status = yoke_algorithms_add(tuning->request->algorithms, key, *best,
                                     tuning->candidates[*best].name, (double)times[*best]);
    }
    yoke_free(times);
    return status;
}

yoke_status cuda_settled(const cuda_tuning *tuning, bool *settled, int *best) {
    TRY(cuda_chosen(tuning, settled, best));
    if (*settled || !yoke_algorithms_late(tuning->request->algorithms)) return YOKE_OK;
    *settled = true;
    return cuda_assume(tuning, tuning->candidates[*best].name);
}

yoke_status cuda_choose(const cuda_tuning *tuning, int *best) {
    bool settled;
    TRY(cuda_settled(tuning, &settled, best));
    return settled ? YOKE_OK : cuda_measure(tuning, best);
}

yoke_status cuda_choose_for(yoke_device *device, const yoke_contest *contest, int *best) {
    cuda_candidate candidates[CONTEST_LIMIT] = {{0}};
    const yoke_plan_request request = {.precision = contest->precision,
                                       .algorithm = contest->algorithm,
                                       .algorithms = contest->algorithms};
    bool settled;
    assert(contest->count <= CONTEST_LIMIT);
    for (int i = 0; i < contest->count; i++)
        candidates[i] = (cuda_candidate){contest->names[i], contest->run};
    const cuda_tuning tuning = {cuda_of(device), &request,       contest->key,
                                candidates,      contest->count, contest->context};
    TRY(cuda_settled(&tuning, &settled, best));
    if (settled) return YOKE_OK;
    TRY(contest->prepare(contest->context));
    return cuda_measure(&tuning, best);
}
