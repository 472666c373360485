/* SPDX-License-Identifier: Apache-2.0 */
/* The probe's clock: a few calls recorded, replayed, and the median taken. */
#include <stdlib.h>

#include "probe/probe.h"

#define BATCH 4          /* calls of a recording */
#define SPAN_MS 4.0      /* of replays of a variant */
#define LEAST_REPLAYS 3  /* of them */
#define MOST_REPLAYS 15  /* of them */
#define WARM_UP_MS 100.0 /* of work before the first timing */

typedef struct repeated {
    yoke_status (*queue)(void *context);
    void *context;
} repeated;

static yoke_status record(const gpu_probe *probe, const repeated *calls,
                          yoke_recording **recording) {
    yoke_status status = YOKE_OK;
    TRY(yoke_recording_begin(&probe->device->base));
    for (int i = 0; i < BATCH && status == YOKE_OK; i++)
        status = calls->queue(calls->context);
    return yoke_recording_end(&probe->device->base, status, recording);
}

typedef struct marks {
    yoke_device_event *begin, *end;
} marks;

static yoke_status replay(yoke_recording *recording, const marks *at, double *milliseconds) {
    TRY(yoke_device_event_record(at->begin, YOKE_STREAM_COMPUTE));
    TRY(yoke_recording_run(recording));
    TRY(yoke_device_event_record(at->end, YOKE_STREAM_COMPUTE));
    TRY(yoke_device_event_synchronize(at->end));
    TRY(yoke_device_event_elapsed(at->begin, at->end, milliseconds));
    *milliseconds /= BATCH;
    return YOKE_OK;
}

static int ascending(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static int replays_of(double first_ms, bool quick) {
    if (quick) return 0;
    int wanted = first_ms > 0 ? (int)(SPAN_MS / (BATCH * first_ms)) : MOST_REPLAYS;
    if (wanted < LEAST_REPLAYS) return LEAST_REPLAYS;
    return wanted > MOST_REPLAYS ? MOST_REPLAYS : wanted;
}

static yoke_status time_recording(yoke_recording *recording, const marks *at, bool quick,
                                  double *milliseconds) {
    double times[MOST_REPLAYS];
    TRY(replay(recording, at, milliseconds)); /* the first one uploads it */
    TRY(replay(recording, at, milliseconds));
    int count = replays_of(*milliseconds, quick);
    for (int i = 0; i < count; i++)
        TRY(replay(recording, at, &times[i]));
    qsort(times, (size_t)count, sizeof *times, ascending);
    if (count > 0) *milliseconds = times[count / 2];
    return YOKE_OK;
}

yoke_status probe_time(const gpu_probe *probe, yoke_status (*queue)(void *context), void *context,
                       bool quick, double *milliseconds) {
    yoke_device *device = &probe->device->base;
    const repeated calls = {queue, context};
    yoke_recording *recording = NULL;
    marks at = {NULL, NULL};
    yoke_status status = record(probe, &calls, &recording);
    if (status == YOKE_OK) status = yoke_device_event_create_timed(&at.begin, device);
    if (status == YOKE_OK) status = yoke_device_event_create_timed(&at.end, device);
    if (status == YOKE_OK) status = time_recording(recording, &at, quick, milliseconds);
    yoke_device_event_destroy(at.end);
    yoke_device_event_destroy(at.begin);
    yoke_recording_destroy(recording);
    return status;
}

static yoke_status clear_workspace(void *context) {
    const gpu_probe *probe = context;
    return yoke_device_clear(&probe->device->base, YOKE_STREAM_COMPUTE, probe->device->workspace,
                             CUDA_WORKSPACE_BYTES);
}

/* An idle GPU lowers its clocks. */
yoke_status probe_warm_up(gpu_probe *probe) {
    uint64_t begin = yoke_now_ns();
    double wanted_ns = probe->tiny ? 0 : WARM_UP_MS * 1e6, milliseconds;
    do
        TRY(probe_time(probe, clear_workspace, probe, false, &milliseconds));
    while ((double)(yoke_now_ns() - begin) < wanted_ns);
    return YOKE_OK;
}
