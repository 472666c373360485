/* SPDX-License-Identifier: Apache-2.0 */
/* The diagnosis as a table with sentences, and as JSON. */
#include <math.h>
#include <string.h>

#include "cli/doctor/doctor_runs.h"

static const char *const runs_named[] = {[YOKE_DOCTOR_SINGLE] = "one device",
                                         [YOKE_DOCTOR_DP] = "nn.DataParallel",
                                         [YOKE_DOCTOR_DDP] = "DistributedDataParallel"};
static const char *const origins[] = {[YOKE_DOCTOR_MEASURED] = "measured",
                                      [YOKE_DOCTOR_STATED] = "stated",
                                      [YOKE_DOCTOR_ASSUMED] = "assumed"};

/* On a CPU everything that no span covers counts as Python's. */
static const char *name_of(const yoke_doctor *doctor, int stage) {
    return !doctor->gpu && stage == YOKE_STAGE_PYTHON ? "python, idle" : yoke_account_name(stage);
}

static int longest_stage(const yoke_doctor *doctor) {
    int longest = 0;
    for (int stage = 1; stage < YOKE_ACCOUNT_STAGES; stage++)
        if (doctor->stage_ms[stage] > doctor->stage_ms[longest]) longest = stage;
    return longest;
}

static void print_head(FILE *out, const yoke_doctor *doctor) {
    fprintf(out, "%-8s ", "trace");
    cli_print_text(out, doctor->profile.model, 0);
    fprintf(out, ": %s", runs_named[doctor->run]);
    if (doctor->backend[0] != '\0') {
        fprintf(out, " over ");
        cli_print_text(out, doctor->backend, 0);
    }
    if (doctor->run == YOKE_DOCTOR_DP)
        fprintf(out, ", %d GPUs", doctor->traced_devices);
    else if (doctor->rank >= 0)
        fprintf(out, ", rank %d", doctor->rank);
    fprintf(out, ", on ");
    cli_print_text(out, doctor->device, 0);
    fprintf(out, "\n%-8s %d of %.2f ms (%.2f to %.2f), found by %s\n", "steps", doctor->steps,
            doctor->step_ms, doctor->shortest_ms, doctor->longest_ms, doctor->steps_from);
    if (doctor->cut[0] != '\0')
        fprintf(out, "%-8s the file was not read to its end: %s\n", "note", doctor->cut);
    for (int i = 0; i < doctor->note_count; i++)
        fprintf(out, "%-8s %s\n", "note", doctor->notes[i]);
}

static void print_stages(FILE *out, const yoke_doctor *doctor) {
    fprintf(out, "\n%-14s %10s %7s   measured%s\n", "stage", "ms a step", "share",
            doctor->traced_devices > 1 ? ", on the root" : "");
    for (int stage = 0; stage < YOKE_ACCOUNT_STAGES; stage++) {
        double ms = doctor->stage_ms[stage];
        if (!(ms > 0)) continue;
        fprintf(out, "%-14s %10.3f %5.1f %%", name_of(doctor, stage), ms,
                100 * ms / doctor->step_ms);
        if (stage == YOKE_STAGE_ALL_REDUCE && doctor->travel_ms > 0)
            fprintf(out, "   not hidden; %.3f ms run, %.3f of them behind computation",
                    doctor->travel_ms, doctor->hidden_ms);
        fputc('\n', out);
    }
    fprintf(out, "%-14s %10.3f\n", "step", doctor->step_ms);
}

static void print_figure(FILE *out, const char *name, const yoke_doctor_figure *figure) {
    fprintf(out, "%-8s %-9s %s\n", name, origins[figure->origin], figure->text);
}

static void print_runs(FILE *out, const yoke_doctor *doctor, const doctor_runs *runs) {
    fprintf(out, "\nFor the simulator:\n");
    print_figure(out, "devices", &doctor->count);
    print_figure(out, "bytes", &doctor->bytes);
    print_figure(out, "link", &doctor->link);
    print_figure(out, "rows", &doctor->rows);
    fprintf(out, "%-8s %-9s 13 us a layer, 48 us a thread (dp-python)\n", "Python", "assumed");
    if (runs->count == 0) return;
    fprintf(out, "\n%-12s %10s %7s   simulated on %d devices\n", "mode", "step ms", "speed",
            doctor->devices);
    for (int i = 0; i < runs->count; i++) {
        const doctor_run *run = &runs->list[i];
        fprintf(out, "%-12s %10.3f %7.2f", yoke_simulated_name(run->found.mode), run->step_ms,
                run->speed);
        if (i == runs->ran)
            fprintf(out, "   ran: %.3f ms measured, error %+.1f %%", doctor->step_ms,
                    100 * runs->error);
        fputc('\n', out);
    }
    if (runs->ran >= 0 && doctor->outside_ms > 0)
        fprintf(out, "%s includes %.3f ms of Python's, as measured\n",
                yoke_simulated_name(doctor->mode), doctor->outside_ms);
}

/* Sentences. */

static void say_stages(char *text, size_t size, const yoke_doctor *doctor) {
    int longest = longest_stage(doctor);
    size_t used = (size_t)snprintf(text, size, "A step takes %.2f ms; most of it is %s, %.0f %%.",
                                   doctor->step_ms, name_of(doctor, longest),
                                   100 * doctor->stage_ms[longest] / doctor->step_ms);
    double load = doctor->stage_ms[YOKE_STAGE_LOAD] / doctor->step_ms;
    if (load >= 0.1 && longest != YOKE_STAGE_LOAD && used < size)
        used += (size_t)snprintf(text + used, size - used,
                                 " Loading takes %.0f %%, which no schedule changes.", 100 * load);
    if (doctor->travel_ms > 0 && used < size)
        snprintf(text + used, size - used, " Of %.2f ms of all-reduces %.0f %% hide behind %s.",
                 doctor->travel_ms, 100 * doctor->hidden_ms / doctor->travel_ms, "computation");
}

static void say_gain(char *text, size_t size, const yoke_doctor *doctor, const doctor_runs *runs) {
    text[0] = '\0';
    if (runs->best < 0) return;
    const doctor_run *best = &runs->list[runs->best];
    const char *name = yoke_simulated_name(best->found.mode);
    if (runs->ran < 0)
        snprintf(text, size,
                 "On %d devices %s would be the fastest, %.2f times one device, by the simulator; "
                 "no schedule of several devices ran, so its error is unknown.",
                 doctor->devices, name, best->speed);
    else if (best->speed - 1 <= fabs(runs->error))
        snprintf(text, size,
                 "No schedule is clearly faster than %s: %s would be %.2f times as fast, and the "
                 "simulator's error on the step that ran is %+.1f %%.",
                 yoke_simulated_name(doctor->mode), name, best->speed, 100 * runs->error);
    else
        snprintf(text, size,
                 "%s would be %.2f times as fast as %s, by the simulator, whose error on the step "
                 "that ran is %+.1f %%.",
                 name, best->speed, yoke_simulated_name(doctor->mode), 100 * runs->error);
}

void doctor_print_table(FILE *out, const yoke_doctor *doctor, const doctor_runs *runs) {
    char text[512];
    print_head(out, doctor);
    print_stages(out, doctor);
    print_runs(out, doctor, runs);
    say_stages(text, sizeof text, doctor);
    fprintf(out, "\n%s\n", text);
    say_gain(text, sizeof text, doctor, runs);
    if (text[0] != '\0') fprintf(out, "%s\n", text);
}

/* JSON. */

static void json_figure(yoke_json *json, const char *key, const yoke_doctor_figure *figure) {
    yoke_json_open(json, key, '{');
    yoke_json_text(json, "origin", origins[figure->origin]);
    yoke_json_text(json, "text", figure->text);
    yoke_json_close(json, '}');
}

static void json_trace(yoke_json *json, const yoke_doctor *doctor) {
    yoke_json_text(json, "trace", doctor->profile.model);
    yoke_json_text(json, "run", runs_named[doctor->run]);
    yoke_json_text(json, "backend", doctor->backend);
    yoke_json_text(json, "device", doctor->device);
    if (doctor->rank >= 0) yoke_json_integer(json, "rank", doctor->rank);
    yoke_json_integer(json, "traced_devices", doctor->traced_devices);
    yoke_json_integer(json, "events", (int64_t)doctor->events);
    yoke_json_integer(json, "spans", (int64_t)doctor->spans);
    if (doctor->cut[0] != '\0') yoke_json_text(json, "cut", doctor->cut);
    yoke_json_open(json, "notes", '[');
    for (int i = 0; i < doctor->note_count; i++)
        yoke_json_text(json, NULL, doctor->notes[i]);
    yoke_json_close(json, ']');
    yoke_json_integer(json, "steps", doctor->steps);
    yoke_json_text(json, "steps_from", doctor->steps_from);
    yoke_json_real(json, "step_ms", doctor->step_ms);
    yoke_json_real(json, "shortest_ms", doctor->shortest_ms);
    yoke_json_real(json, "longest_ms", doctor->longest_ms);
    yoke_json_open(json, "stage_ms", '{');
    for (int stage = 0; stage < YOKE_ACCOUNT_STAGES; stage++)
        if (doctor->stage_ms[stage] > 0)
            yoke_json_real(json, yoke_account_name(stage), doctor->stage_ms[stage]);
    yoke_json_close(json, '}');
    yoke_json_real(json, "all_reduce_ms", doctor->travel_ms);
    yoke_json_real(json, "hidden_ms", doctor->hidden_ms);
}

static void json_profile(yoke_json *json, const yoke_doctor *doctor) {
    const yoke_profile *profile = &doctor->profile;
    json_figure(json, "devices", &doctor->count);
    json_figure(json, "bytes", &doctor->bytes);
    json_figure(json, "link", &doctor->link);
    json_figure(json, "rows", &doctor->rows);
    yoke_json_real(json, "gigabytes_per_second", doctor->topology.link.bytes_per_ns);
    yoke_json_integer(json, "layers", profile->layers);
    yoke_json_open(json, "segments", '[');
    for (int s = 0; s < profile->segment_count; s++) {
        yoke_json_open(json, NULL, '{');
        yoke_json_real(json, "backward_ms", profile->segments[s].backward_ms);
        yoke_json_integer(json, "bytes", (int64_t)profile->segments[s].bytes);
        yoke_json_close(json, '}');
    }
    yoke_json_close(json, ']');
}

static void json_runs(yoke_json *json, const yoke_doctor *doctor, const doctor_runs *runs) {
    if (runs->ran >= 0) {
        yoke_json_text(json, "mode", yoke_simulated_name(doctor->mode));
        yoke_json_real(json, "error", runs->error);
        yoke_json_real(json, "outside_ms", doctor->outside_ms);
    }
    yoke_json_integer(json, "simulated_devices", doctor->devices);
    yoke_json_open(json, "runs", '[');
    for (int i = 0; i < runs->count; i++) {
        yoke_json_open(json, NULL, '{');
        yoke_json_text(json, "mode", yoke_simulated_name(runs->list[i].found.mode));
        yoke_json_real(json, "step_ms", runs->list[i].step_ms);
        yoke_json_real(json, "speed", runs->list[i].speed);
        yoke_json_close(json, '}');
    }
    yoke_json_close(json, ']');
}

yoke_status doctor_print_json(FILE *out, const yoke_doctor *doctor, const doctor_runs *runs) {
    char text[512];
    yoke_json json;
    yoke_json_begin(&json);
    yoke_json_open(&json, NULL, '{');
    json_trace(&json, doctor);
    json_profile(&json, doctor);
    json_runs(&json, doctor, runs);
    yoke_json_open(&json, "says", '[');
    say_stages(text, sizeof text, doctor);
    yoke_json_text(&json, NULL, text);
    say_gain(text, sizeof text, doctor, runs);
    if (text[0] != '\0') yoke_json_text(&json, NULL, text);
    yoke_json_close(&json, ']');
    yoke_json_close(&json, '}');
    return cli_print_json(&json, out);
}
