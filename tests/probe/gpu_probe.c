/* SPDX-License-Identifier: Apache-2.0 */
/* The probe's program: options, lines and clocks. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "probe/probe.h"

#define SKIPPED 77
#define BATCH 4          /* calls of a recording */
#define SPAN_MS 4.0      /* of replays of a way */
#define LEAST_REPLAYS 3  /* of them */
#define MOST_REPLAYS 15  /* of them */
#define WARM_UP_MS 100.0 /* of work before the first timing */

/* Lines. */

static void json_text(yoke_json *json, const char *key, const char *value) {
    if (value != NULL) yoke_json_text(json, key, value);
}

static void write_json(const gpu_probe *probe, const probe_row *row) {
    yoke_json json;
    yoke_json_begin(&json);
    yoke_json_open(&json, NULL, '{');
    json_text(&json, "section", row->section);
    json_text(&json, "what", row->what);
    json_text(&json, "direction", row->direction);
    json_text(&json, "way", row->way);
    json_text(&json, "detail", row->detail);
    json_text(&json, "verdict", row->verdict);
    if (row->milliseconds >= 0) yoke_json_real(&json, "ms", row->milliseconds);
    if (row->error >= 0) yoke_json_real(&json, "error", row->error);
    if (row->value >= 0) yoke_json_real(&json, "value", row->value);
    json_text(&json, "unit", row->unit);
    yoke_json_close(&json, '}');
    if (!json.failed) fprintf(probe->json, "%s\n", json.text);
    fflush(probe->json);
    yoke_json_end(&json);
}

void probe_print(const gpu_probe *probe, const probe_row *row) {
    const char *const words[] = {row->section, row->what,   row->direction,
                                 row->way,     row->detail, row->verdict};
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
        if (words[i] != NULL) printf("%s%s", i > 0 ? " | " : "", words[i]);
    if (row->milliseconds >= 0) printf(" | %.4f ms", row->milliseconds);
    if (row->error >= 0) printf(" | error %.1e", row->error);
    if (row->value >= 0) printf(" | %.4g %s", row->value, row->unit != NULL ? row->unit : "");
    printf("\n");
    fflush(stdout);
    if (probe->json != NULL) write_json(probe, row);
}

/* Clocks. */

static double seconds_of(const gpu_probe *probe) {
    return (double)(yoke_now_ns() - probe->begin_ns) * 1e-9;
}

bool probe_late(const gpu_probe *probe) {
    return seconds_of(probe) > probe->seconds;
}

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
static yoke_status warm_up(gpu_probe *probe) {
    uint64_t begin = yoke_now_ns();
    double wanted_ns = probe->tiny ? 0 : WARM_UP_MS * 1e6, milliseconds;
    do
        TRY(probe_time(probe, clear_workspace, probe, false, &milliseconds));
    while ((double)(yoke_now_ns() - begin) < wanted_ns);
    return YOKE_OK;
}

/* The program. */

static yoke_status describe(gpu_probe *probe) {
    char facts[512];
    probe_row row = PROBE_ROW_INIT;
    yoke_device_facts(&probe->device->base, facts, sizeof facts);
    row.section = "device";
    row.what = facts;
    row.detail = cuda_library_detail("cudnn");
    row.way = cuda_library_detail("cublasLt");
    probe_print(probe, &row);
    return YOKE_OK;
}

static yoke_status run_sections(gpu_probe *probe) {
    static yoke_status (*const sections[])(struct gpu_probe *) = {
        describe, warm_up, probe_events, probe_launches, probe_epilogues, probe_convolutions};
    for (size_t i = 0; i < sizeof sections / sizeof sections[0]; i++)
        TRY(sections[i](probe));
    return YOKE_OK;
}

static yoke_status run(gpu_probe *probe, yoke_devices *devices) {
    yoke_device_scope scope;
    probe->device = cuda_of(yoke_devices_at(devices, 0));
    TRY(yoke_device_enter(&probe->device->base, false, &scope));
    yoke_status status = run_sections(probe);
    yoke_device_leave(&probe->device->base, &scope);
    return status;
}

static int usage(const char *given) {
    fprintf(stderr,
            "gpu_probe: %s\nusage: gpu_probe [--json FILE] [--device cuda:N] [--rows N] "
            "[--precision float32|tf32|bfloat16] [--seconds X] [--tiny]\n"
            "FILE gets one JSON object a line. --rows: of the convolutions of ResNet-50 (256). "
            "--seconds: when no more\nmeasurements begin (50). --tiny: shapes for a simulated "
            "GPU.\n",
            given);
    return 64;
}

typedef struct settings {
    const char *device, *json;
} settings;

static bool read_precision(gpu_probe *probe, const char *text) {
    static const yoke_precision all[] = {YOKE_FLOAT32, YOKE_TF32, YOKE_BFLOAT16};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        if (strcmp(text, yoke_precision_name(all[i])) == 0) {
            probe->precision = all[i];
            return true;
        }
    return false;
}

/* Takes an option's value; false: it has no such value. */
static bool take(gpu_probe *probe, settings *given, const char *name, const char *value) {
    int64_t rows;
    if (strcmp(name, "--json") == 0) {
        given->json = value;
    } else if (strcmp(name, "--device") == 0) {
        given->device = value;
    } else if (strcmp(name, "--precision") == 0) {
        return read_precision(probe, value);
    } else if (strcmp(name, "--seconds") == 0) {
        return yoke_text_real(value, 0.1, 86400, &probe->seconds);
    } else if (strcmp(name, "--rows") == 0) {
        bool known = yoke_text_integer(value, 1, 4096, &rows);
        if (known) probe->rows = (int)rows;
        return known;
    } else {
        return false;
    }
    return true;
}

static const char *verdict_of(const gpu_probe *probe, yoke_status status) {
    if (status != YOKE_OK) return "failed";
    if (probe->wrong > 0) return "wrong results";
    return probe->left_out > 0 ? "no time for all of it; more: --seconds" : "complete";
}

static int finish(gpu_probe *probe, yoke_status status) {
    probe_row row = PROBE_ROW_INIT;
    char failure[512];
    snprintf(failure, sizeof failure, "%s", status == YOKE_OK ? "" : yoke_last_error());
    row.section = "end";
    row.detail = status == YOKE_OK ? NULL : failure;
    row.verdict = verdict_of(probe, status);
    row.value = seconds_of(probe);
    row.unit = "s";
    probe_print(probe, &row);
    if (probe->json != NULL && fclose(probe->json) != 0) return 1;
    return status == YOKE_OK && probe->wrong == 0 ? 0 : 1;
}

int main(int argc, char **argv) {
    gpu_probe probe = {.rows = 256, .seconds = 50, .precision = YOKE_BFLOAT16};
    settings given = {.device = "cuda:0"};
    yoke_devices *devices = NULL;
    probe.begin_ns = yoke_now_ns();
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--tiny") == 0) {
            probe.tiny = true;
            continue;
        }
        if (i + 1 == argc || !take(&probe, &given, argv[i], argv[i + 1])) return usage(argv[i]);
        i++;
    }
    yoke_devices_options options = {.struct_size = sizeof options, .list = given.device};
    if (yoke_devices_open(&devices, &options) != YOKE_OK) {
        fprintf(stderr, "gpu_probe: %s\n", yoke_last_error());
        return SKIPPED;
    }
    if (given.json != NULL && (probe.json = fopen(given.json, "w")) == NULL) {
        fprintf(stderr, "gpu_probe: %s: %s; name a file that can be written\n", given.json,
                strerror(errno));
        yoke_devices_close(devices);
        return 73;
    }
    int code = finish(&probe, run(&probe, devices));
    yoke_devices_close(devices);
    return code;
}
