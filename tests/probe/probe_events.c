/* SPDX-License-Identifier: Apache-2.0 */
/* Events that a graph records for work outside of it: what a host that asks for one sees, what a
 * stream that waits for one sees, and what their times are when the graph runs again; and what
 * launching a graph costs the host. */
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
    volatile int *pinned; /* a copy of the counter, on the host */
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
    TRY(yoke_device_allocate(&scene->device->base, (2 + LAUNCHES) * sizeof(int), "the probe",
                             (void **)&scene->numbers));
    TRY_CUDA(scene->device, cudaMallocHost((void **)&scene->pinned, sizeof *scene->pinned));
    *scene->pinned = 0;
    TRY_CUDA(scene->device, cudaMemsetAsync(scene->value, 0, sizeof *scene->value, scene->stream));
    TRY_CUDA(scene->device,
             cudaMemsetAsync(scene->numbers, 0, (2 + LAUNCHES) * sizeof(int), scene->stream));
    return YOKE_OK;
}

static void close_graph(event_scene *scene) {
    if (scene->graph != NULL) cudaGraphExecDestroy(scene->graph);
    scene->graph = NULL;
}

static void close_scene(event_scene *scene) {
    close_graph(scene);
    if (scene->pinned != NULL) cudaFreeHost((void *)scene->pinned);
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

/* Queries by the host: each launch works long, counts, copies the count to the host, records, and
 * works long again. An event is over too early if the host sees it so before it sees the count. */

#define QUERIES "a host asks for an event that a graph records"
#define NEVER_SECONDS 2.0

static yoke_status queue_counted_work(const event_scene *scene) {
    TRY(work(scene));
    TRY(count(scene));
    TRY_CUDA(scene->device, cudaMemcpyAsync((void *)scene->pinned, scene->numbers + 1, sizeof(int),
                                            cudaMemcpyDeviceToHost, scene->stream));
    TRY(record_mark(scene, 0));
    return work(scene);
}

/* What the launches of one variant came to. */
typedef struct answers {
    int launches; /* so far, of the whole scene */
    int open;     /* the first query said not ready */
    int early;    /* over before the count of the latest launch was seen */
    int before;   /* over before the graph was */
    int never;    /* not over within 2 s */
} answers;

static void note_end(const event_scene *scene, answers *sum) {
    sum->early += *scene->pinned < sum->launches;
    sum->before += cudaStreamQuery(scene->stream) == cudaErrorNotReady;
}

static yoke_status poll(const event_scene *scene, answers *sum) {
    uint64_t begin = yoke_now_ns();
    cudaError_t error = cudaEventQuery(scene->marks[0]);
    sum->open += error == cudaErrorNotReady;
    while (error == cudaErrorNotReady && (double)(yoke_now_ns() - begin) * 1e-9 < NEVER_SECONDS)
        error = cudaEventQuery(scene->marks[0]);
    if (error != cudaErrorNotReady) TRY_CUDA(scene->device, error);
    sum->never += error == cudaErrorNotReady;
    if (error == cudaSuccess) note_end(scene, sum);
    return YOKE_OK;
}

static yoke_status synchronize(const event_scene *scene, answers *sum) {
    sum->open += cudaEventQuery(scene->marks[0]) == cudaErrorNotReady;
    TRY_CUDA(scene->device, cudaEventSynchronize(scene->marks[0]));
    note_end(scene, sum);
    return YOKE_OK;
}

/* `queued`: launches before the host asks. */
static yoke_status ask_host(event_scene *scene, const char *variant, int queued,
                            yoke_status (*ask)(const event_scene *, answers *), answers *sum) {
    char detail[128];
    sum->open = sum->early = sum->before = sum->never = 0;
    for (int i = 0; i < LAUNCHES; i++) {
        for (int k = 0; k < queued; k++, sum->launches++)
            TRY_CUDA(scene->device, cudaGraphLaunch(scene->graph, scene->stream));
        TRY(ask(scene, sum));
        TRY_CUDA(scene->device, cudaStreamSynchronize(scene->stream));
    }
    snprintf(detail, sizeof detail,
             "of %d: not ready at first %d, over before the graph %d, never over %d", LAUNCHES,
             sum->open, sum->before, sum->never);
    probe_row row = PROBE_ROW_INIT;
    row.section = "queries";
    row.what = QUERIES;
    row.variant = variant;
    row.detail = detail;
    row.expected = "over only after the latest launch's work before its record";
    row.verdict = sum->early + sum->never == 0 ? "yes" : PROBE_NO;
    row.value = sum->early;
    row.unit = "of 20 over too early";
    probe_print(scene->probe, &row);
    scene->probe->wrong += sum->early + sum->never;
    return YOKE_OK;
}

static yoke_status ask_queries(event_scene *scene) {
    answers sum = {0};
    TRY(begin_capture(scene));
    TRY(end_capture(scene, queue_counted_work(scene)));
    TRY(set_rounds(scene, SHORT_ROUNDS));
    TRY(ask_host(scene, "cudaEventQuery", 1, poll, &sum));
    TRY(ask_host(scene, "cudaEventSynchronize", 1, synchronize, &sum));
    TRY(ask_host(scene, "cudaEventQuery, two launches queued", 2, poll, &sum));
    return ask_host(scene, "cudaEventSynchronize, two launches queued", 2, synchronize, &sum);
}

/* Asks about one thing on a scene of its own. */
static yoke_status ask_item(gpu_probe *probe, const char *section, const char *what,
                            yoke_status (*ask)(event_scene *)) {
    event_scene scene;
    if (!probe_ask(probe, section, what, NULL)) return YOKE_OK;
    yoke_status status = open_scene(&scene, probe);
    if (status == YOKE_OK) status = ask(&scene);
    close_scene(&scene);
    if (status == YOKE_OK) probe_answered(probe, section, what, NULL);
    return status;
}

yoke_status probe_queries(gpu_probe *probe) {
    return ask_item(probe, "queries", QUERIES, ask_queries);
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

#define ORDER "a wait queued after a graph's launch sees what the launch did before its record"

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
    row.what = ORDER;
    row.verdict = stale == 0 ? "yes" : PROBE_NO;
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

#define TIMES "time of a graph's work"

static void print_time(const event_scene *scene, const char *variant, double milliseconds) {
    probe_row row = PROBE_ROW_INIT;
    row.section = "events";
    row.what = TIMES;
    row.variant = variant;
    row.milliseconds = milliseconds;
    probe_print(scene->probe, &row);
}

static yoke_status probe_times(event_scene *scene) {
    double plain = 0, graph = 0;
    TRY(begin_capture(scene));
    TRY(end_capture(scene, queue_marked_work(scene)));
    TRY(time_launch(scene, LONG_ROUNDS, &plain, &graph)); /* loads the kernel */
    TRY(time_launch(scene, LONG_ROUNDS, &plain, &graph));
    print_time(scene, "events outside, no graph", plain);
    print_time(scene, "events in the graph", graph);
    TRY(time_launch(scene, SHORT_ROUNDS, &plain, &graph));
    print_time(scene, "events outside, a tenth of the work", plain);
    print_time(scene, "events in the graph, launched again with a tenth of the work", graph);
    return YOKE_OK;
}

yoke_status probe_events(gpu_probe *probe) {
    TRY(ask_item(probe, "events", ORDER, probe_order));
    return ask_item(probe, "events", TIMES, probe_times);
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

#define LAUNCH_COST "a graph of 400 kernels"

static yoke_status probe_launch(event_scene *scene, int events) {
    char variant[64];
    double host_us = 0, whole_us = 0;
    TRY(begin_capture(scene));
    TRY(end_capture(scene, queue_nodes(scene, events)));
    TRY(time_launches(scene, &host_us, &whole_us));
    probe_row row = PROBE_ROW_INIT;
    row.section = "launch";
    row.what = LAUNCH_COST;
    row.variant = variant;
    snprintf(variant, sizeof variant, "%d events, the host's launch call", events);
    row.value = host_us;
    row.unit = "us";
    probe_print(scene->probe, &row);
    snprintf(variant, sizeof variant, "%d events, from launch to end", events);
    row.value = whole_us;
    probe_print(scene->probe, &row);
    return YOKE_OK;
}

static yoke_status ask_launches(event_scene *scene) {
    static const int events[] = {0, 4, 8};
    for (int i = 0; i < 3; i++)
        TRY(probe_launch(scene, events[i]));
    return YOKE_OK;
}

yoke_status probe_launches(gpu_probe *probe) {
    return ask_item(probe, "launch", LAUNCH_COST, ask_launches);
}
