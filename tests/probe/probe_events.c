/* SPDX-License-Identifier: Apache-2.0 */
/* Events that a graph records for work outside of it: what a stream that waits for one sees, and
 * what their times are when the graph runs again; and what launching a graph costs the host. */
#include <stdlib.h>

#include "probe/probe.h"

#define LAUNCHES 20
#define NODES 400
#define HOST_LAUNCHES 30
#define MOST_EVENTS 8
#define LONG_ROUNDS 400000
#define SHORT_ROUNDS 40000

typedef struct event_scene {
    gpu_probe *probe;
    cudaStream_t stream, other;
    cudaEvent_t marks[MOST_EVENTS], back;
    cudaGraphExec_t graph;
    /* device memory */
    float *value;
    int *numbers; /* [0]: rounds, [1]: counter, [2 ..]: what was seen */
    cuda_device *device;
} event_scene;

static yoke_status open_scene(event_scene *scene, gpu_probe *probe) {
    *scene = (struct event_scene){.probe = probe, .device = probe->device};
    scene->stream = probe->device->streams[YOKE_STREAM_COMPUTE];
    scene->other = probe->device->streams[YOKE_STREAM_COPY];
    for (int i = 0; i < MOST_EVENTS; i++)
        TRY_CUDA(scene->device, cudaEventCreate(&scene->marks[i]));
    TRY_CUDA(scene->device, cudaEventCreateWithFlags(&scene->back, cudaEventDisableTiming));
    TRY(yoke_device_allocate(&scene->device->base, sizeof(float), "the probe",
                             (void **)&scene->value));
    return yoke_device_allocate(&scene->device->base, (2 + LAUNCHES) * sizeof(int), "the probe",
                                (void **)&scene->numbers);
}

static void close_graph(event_scene *scene) {
    if (scene->graph != NULL) cudaGraphExecDestroy(scene->graph);
    scene->graph = NULL;
}

static void close_scene(event_scene *scene) {
    close_graph(scene);
    yoke_device_free(&scene->device->base, scene->numbers);
    yoke_device_free(&scene->device->base, scene->value);
    if (scene->back != NULL) cudaEventDestroy(scene->back);
    for (int i = 0; i < MOST_EVENTS; i++)
        if (scene->marks[i] != NULL) cudaEventDestroy(scene->marks[i]);
}

static yoke_status end_capture(event_scene *scene, yoke_status status) {
    cudaGraph_t graph = NULL;
    TRY_CUDA(scene->device, cudaStreamEndCapture(scene->stream, &graph));
    cudaError_t error =
        status == YOKE_OK ? cudaGraphInstantiate(&scene->graph, graph, 0) : cudaSuccess;
    cudaGraphDestroy(graph);
    TRY(status);
    TRY_CUDA(scene->device, error);
    return YOKE_OK;
}

static yoke_status begin_capture(event_scene *scene) {
    close_graph(scene);
    TRY_CUDA(scene->device, cudaStreamBeginCapture(scene->stream, cudaStreamCaptureModeRelaxed));
    return YOKE_OK;
}

static yoke_status set_rounds(event_scene *scene, int rounds) {
    int number = scene->probe->tiny ? rounds / 100 : rounds;
    TRY_CUDA(scene->device, cudaMemcpyAsync(scene->numbers, &number, sizeof number,
                                            cudaMemcpyHostToDevice, scene->stream));
    TRY_CUDA(scene->device, cudaStreamSynchronize(scene->stream));
    return YOKE_OK;
}

static yoke_status record_mark(const event_scene *scene, int mark) {
    TRY_CUDA(scene->device,
             cudaEventRecordWithFlags(scene->marks[mark], scene->stream, cudaEventRecordExternal));
    return YOKE_OK;
}

static yoke_status work(const event_scene *scene) {
    TRY_CUDA(scene->device, probe_run_work(scene->value, scene->numbers, scene->stream));
    return YOKE_OK;
}

static yoke_status count(const event_scene *scene) {
    TRY_CUDA(scene->device, probe_run_count(scene->numbers + 1, scene->stream));
    return YOKE_OK;
}

/* Order: each launch works long, counts, and records; the other stream waits for the record of the
 * latest launch and keeps what it sees. */

static yoke_status queue_order(const event_scene *scene) {
    TRY(work(scene));
    TRY(count(scene));
    TRY(record_mark(scene, 0));
    return work(scene);
}

static yoke_status launch_and_look(const event_scene *scene, int launch) {
    TRY_CUDA(scene->device, cudaGraphLaunch(scene->graph, scene->stream));
    TRY_CUDA(scene->device, cudaStreamWaitEvent(scene->other, scene->marks[0], 0));
    TRY_CUDA(scene->device,
             probe_run_keep(scene->numbers + 2 + launch, scene->numbers + 1, scene->other));
    TRY_CUDA(scene->device, cudaEventRecord(scene->back, scene->other));
    TRY_CUDA(scene->device, cudaStreamWaitEvent(scene->stream, scene->back, 0));
    return YOKE_OK;
}

static yoke_status probe_order(event_scene *scene) {
    int seen[2 + LAUNCHES], stale = 0;
    TRY(begin_capture(scene));
    TRY(end_capture(scene, queue_order(scene)));
    TRY(set_rounds(scene, SHORT_ROUNDS));
    for (int i = 0; i < LAUNCHES; i++)
        TRY(launch_and_look(scene, i));
    TRY_CUDA(scene->device, cudaStreamSynchronize(scene->stream));
    TRY_CUDA(scene->device, cudaMemcpy(seen, scene->numbers, sizeof seen, cudaMemcpyDeviceToHost));
    for (int i = 0; i < LAUNCHES; i++)
        stale += seen[2 + i] != i + 1;
    probe_row row = PROBE_ROW_INIT;
    row.section = "events";
    row.what = "a wait queued after a graph's launch sees what the launch did before its record";
    row.verdict = stale == 0 ? "yes" : "NO";
    row.value = stale;
    row.unit = "of 20 launches seen too early";
    probe_print(scene->probe, &row);
    scene->probe->wrong += stale;
    return YOKE_OK;
}

/* Time: two events in a graph around work, against two outside around the same work. */

static yoke_status queue_marked_work(const event_scene *scene) {
    TRY(record_mark(scene, 0));
    TRY(work(scene));
    return record_mark(scene, 1);
}

static yoke_status elapsed(const event_scene *scene, int from, int to, double *milliseconds) {
    float value = 0;
    TRY_CUDA(scene->device, cudaStreamSynchronize(scene->stream));
    TRY_CUDA(scene->device, cudaEventElapsedTime(&value, scene->marks[from], scene->marks[to]));
    *milliseconds = (double)value;
    return YOKE_OK;
}

static yoke_status time_plain(const event_scene *scene, double *milliseconds) {
    TRY_CUDA(scene->device, cudaEventRecord(scene->marks[2], scene->stream));
    TRY(work(scene));
    TRY_CUDA(scene->device, cudaEventRecord(scene->marks[3], scene->stream));
    return elapsed(scene, 2, 3, milliseconds);
}

static yoke_status time_launch(event_scene *scene, int rounds, double *plain_ms, double *graph_ms) {
    TRY(set_rounds(scene, rounds));
    TRY(time_plain(scene, plain_ms));
    TRY_CUDA(scene->device, cudaGraphLaunch(scene->graph, scene->stream));
    return elapsed(scene, 0, 1, graph_ms);
}

static void print_time(const event_scene *scene, const char *what, const char *way,
                       double milliseconds) {
    probe_row row = PROBE_ROW_INIT;
    row.section = "events";
    row.what = what;
    row.way = way;
    row.milliseconds = milliseconds;
    probe_print(scene->probe, &row);
}

static yoke_status probe_times(event_scene *scene) {
    static const char first[] = "time of a graph's work", second[] = "the same, launched again";
    double plain = 0, graph = 0;
    TRY(begin_capture(scene));
    TRY(end_capture(scene, queue_marked_work(scene)));
    TRY(time_launch(scene, LONG_ROUNDS, &plain, &graph)); /* loads the kernel */
    TRY(time_launch(scene, LONG_ROUNDS, &plain, &graph));
    print_time(scene, first, "events outside, no graph", plain);
    print_time(scene, first, "events in the graph", graph);
    TRY(time_launch(scene, SHORT_ROUNDS, &plain, &graph));
    print_time(scene, second, "events outside, a tenth of the work", plain);
    print_time(scene, second, "events in the graph, a tenth of the work", graph);
    return YOKE_OK;
}

yoke_status probe_events(gpu_probe *probe) {
    event_scene scene;
    yoke_status status = open_scene(&scene, probe);
    if (status == YOKE_OK) status = probe_order(&scene);
    if (status == YOKE_OK) status = probe_times(&scene);
    close_scene(&scene);
    return status;
}

/* Launches. */

static yoke_status queue_nodes(const event_scene *scene, int events) {
    int recorded = 0;
    for (int i = 0; i < NODES; i++) {
        TRY(count(scene));
        if (recorded * NODES < events * (i + 1)) TRY(record_mark(scene, recorded++));
    }
    return YOKE_OK;
}

static int ascending(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static yoke_status time_launches(const event_scene *scene, double *host_us, double *whole_us) {
    double host[HOST_LAUNCHES], whole[HOST_LAUNCHES];
    for (int i = 0; i < HOST_LAUNCHES; i++) {
        uint64_t begin = yoke_now_ns();
        TRY_CUDA(scene->device, cudaGraphLaunch(scene->graph, scene->stream));
        host[i] = (double)(yoke_now_ns() - begin) * 1e-3;
        TRY_CUDA(scene->device, cudaStreamSynchronize(scene->stream));
        whole[i] = (double)(yoke_now_ns() - begin) * 1e-3;
    }
    qsort(host, HOST_LAUNCHES, sizeof *host, ascending);
    qsort(whole, HOST_LAUNCHES, sizeof *whole, ascending);
    *host_us = host[HOST_LAUNCHES / 2];
    *whole_us = whole[HOST_LAUNCHES / 2];
    return YOKE_OK;
}

static yoke_status probe_launch(event_scene *scene, int events) {
    char what[64];
    double host_us = 0, whole_us = 0;
    TRY(begin_capture(scene));
    TRY(end_capture(scene, queue_nodes(scene, events)));
    TRY(time_launches(scene, &host_us, &whole_us));
    snprintf(what, sizeof what, "a graph of %d kernels and %d event nodes", NODES, events);
    probe_row row = PROBE_ROW_INIT;
    row.section = "launch";
    row.what = what;
    row.way = "the host's launch call";
    row.value = host_us;
    row.unit = "us";
    probe_print(scene->probe, &row);
    row.way = "from launch to end";
    row.value = whole_us;
    probe_print(scene->probe, &row);
    return YOKE_OK;
}

yoke_status probe_launches(gpu_probe *probe) {
    static const int events[] = {0, 4, 8};
    event_scene scene;
    yoke_status status = open_scene(&scene, probe);
    for (int i = 0; i < 3 && status == YOKE_OK; i++)
        status = probe_launch(&scene, events[i]);
    close_scene(&scene);
    return status;
}
