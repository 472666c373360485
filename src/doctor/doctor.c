/* SPDX-License-Identifier: Apache-2.0 */
/* Reads a trace and gathers what the other files of the room find in it. */
#include "doctor/doctor.h"

#include <stdio.h>
#include <string.h>

#include "base/base.h"
#include "doctor/analysis.h"
#include "doctor/json_pieces.h"
#include "doctor/printable.h"

void yoke_doctor_clear(yoke_doctor *doctor) {
    yoke_profile_clear(&doctor->profile);
    *doctor = (yoke_doctor){0};
}

/* nn.DataParallel of one GPU, or without any, calls the model as it is. */
static yoke_doctor_run run_of(const analysis *found) {
    unsigned marks = found->trace->marks;
    if (marks & DOCTOR_DDP) return YOKE_DOCTOR_DDP;
    if (marks & DOCTOR_DP) return found->device_count > 1 ? YOKE_DOCTOR_DP : YOKE_DOCTOR_SINGLE;
    return found->trace->world > 1 ? YOKE_DOCTOR_DDP : YOKE_DOCTOR_SINGLE;
}

static void describe(const analysis *found, const device_times *root, yoke_doctor *doctor) {
    const kineto_trace *trace = found->trace;
    doctor->run = run_of(found);
    doctor->gpu = found->gpu;
    doctor->traced_devices = found->device_count;
    doctor->rank = trace->rank;
    snprintf(doctor->backend, sizeof doctor->backend, "%s", trace->backend);
    snprintf(doctor->device, sizeof doctor->device, "%s",
             trace->device[0] != '\0' ? trace->device
             : found->gpu             ? "a GPU"
                                      : "a CPU");
    doctor->steps = found->window_count;
    doctor->steps_from = found->windows_from;
    doctor->step_ms = root->step_ms;
    doctor->shortest_ms = root->shortest_ms;
    doctor->longest_ms = root->longest_ms;
    memcpy(doctor->stage_ms, root->stage_ms, sizeof doctor->stage_ms);
    doctor->travel_ms = root->travel_ms;
    doctor->hidden_ms = root->hidden_ms;
    memcpy(doctor->cut, trace->end, sizeof doctor->cut);
    doctor->events = trace->events;
    doctor->spans = trace->count;
}

static yoke_status diagnose(const analysis *found, const yoke_doctor_options *options,
                            yoke_doctor *doctor) {
    size_t devices = (size_t)found->device_count;
    if (devices == 0) return FAIL(YOKE_ERROR_DATA, "no GPU computes in the steps of the trace");
    device_times *times = yoke_calloc(devices, sizeof *times);
    if (times == NULL) return FAIL_MEMORY(devices * sizeof *times, "the devices of a trace");
    yoke_status status = YOKE_OK;
    for (size_t i = 0; i < devices && status == YOKE_OK; i++)
        status = analysis_times(found, found->devices[i], &times[i]);
    if (status == YOKE_OK) {
        describe(found, &times[0], doctor);
        status = analysis_profile(found, times, options, doctor);
    }
    yoke_free(times);
    return status;
}

static const char *base_of(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash != NULL && slash[1] != '\0' ? slash + 1 : path;
}

static yoke_status read_pieces(yoke_doctor *doctor, json_pieces *pieces, const char *name,
                               const yoke_doctor_options *options) {
    kineto_trace trace = {0};
    analysis found = {0};
    yoke_status status = kineto_trace_read(&trace, pieces, name);
    if (status == YOKE_OK) status = analysis_open(&found, &trace, name);
    if (status == YOKE_OK) status = diagnose(&found, options, doctor);
    analysis_close(&found);
    kineto_trace_clear(&trace);
    if (status != YOKE_OK)
        yoke_doctor_clear(doctor);
    else
        doctor_copy_printable(doctor->profile.model, sizeof doctor->profile.model, base_of(name));
    return status;
}

yoke_status yoke_doctor_read(yoke_doctor *doctor, const char *path,
                             const yoke_doctor_options *options) {
    json_pieces pieces;
    *doctor = (yoke_doctor){0};
    yoke_status status = json_pieces_open(&pieces, path);
    if (status == YOKE_OK) status = read_pieces(doctor, &pieces, path, options);
    json_pieces_close(&pieces);
    return status;
}

yoke_status yoke_doctor_read_bytes(yoke_doctor *doctor, const char *name, const char *bytes,
                                   size_t count, const yoke_doctor_options *options) {
    json_pieces pieces;
    *doctor = (yoke_doctor){0};
    yoke_status status = json_pieces_open_bytes(&pieces, bytes, count);
    if (status == YOKE_OK) status = read_pieces(doctor, &pieces, name, options);
    json_pieces_close(&pieces);
    return status;
}
