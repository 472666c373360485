/* SPDX-License-Identifier: Apache-2.0 */
/* Simulations as a table and as JSON. */
#include "cli/simulate/simulate_setup.h"

#include <string.h>

#define TERMINAL_COLUMNS 80
#define LISTED_LINKS 64

static double ms(uint64_t ns) {
    return 1e-6 * (double)ns;
}

static const char *name_of(const yoke_simulation *found) {
    return found->devices == 1 ? "single" : yoke_simulated_name(found->mode);
}

/* Breaks lines between words. */
static void print_wrapped(FILE *out, const char *text) {
    int column = 0;
    for (const char *word = text; *word != '\0';) {
        int length = (int)strcspn(word, " ");
        bool breaks = column > 0 && column + 1 + length > TERMINAL_COLUMNS;
        fprintf(out, "%s%.*s", breaks ? "\n" : column > 0 ? " " : "", length, word);
        column = (breaks || column == 0 ? 0 : column + 1) + length;
        word += length + (word[length] == ' ');
    }
    fputc('\n', out);
}

/* Where the time goes in the slowest and the fastest mode on the most devices. */
static void print_sentences(FILE *out, const simulate_setup *setup, const simulate_runs *runs) {
    const yoke_simulation *last = &runs->list[runs->count - 1], *slowest = last, *fastest = last;
    for (const yoke_simulation *found = runs->list; found < last; found++) {
        if (found->devices != last->devices) continue;
        if (found->step_ns > slowest->step_ns) slowest = found;
        if (found->step_ns < fastest->step_ns) fastest = found;
    }
    const yoke_simulation *shown[] = {slowest, fastest};
    for (int i = 0; i < (slowest == fastest ? 1 : 2); i++) {
        char sentence[YOKE_SIMULATION_TEXT_BYTES], text[64 + YOKE_SIMULATION_TEXT_BYTES];
        yoke_simulation_describe(shown[i], &setup->profile, &setup->topology, sentence);
        snprintf(text, sizeof text, "%s on %d: %s.", name_of(shown[i]), shown[i]->devices,
                 sentence);
        fputc('\n', out);
        print_wrapped(out, text);
    }
}

static bool is_async(const yoke_simulation *found) {
    return found->devices > 1 && found->mode == YOKE_SIMULATED_ASYNC;
}

static void print_staleness(FILE *out, const simulate_runs *runs) {
    const char *line = "\n";
    for (int i = 0; i < runs->count; i++) {
        const yoke_simulation *found = &runs->list[i];
        if (!is_async(found)) continue;
        fprintf(out, "%sdp-async on %d: a push is %.1f updates behind, %llu at most\n", line,
                found->devices, found->mean_staleness,
                (unsigned long long)found->largest_staleness);
        line = "";
    }
}

void simulate_print_table(FILE *out, const simulate_setup *setup, const simulate_runs *runs) {
    simulate_print_head(out, setup);
    fprintf(out, "\n%7s %5s %-16s %9s %8s %8s %5s %7s %7s\n", "devices", "nodes", "mode", "step ms",
            "rows/s", "speed-up", "eff.", "comm ms", "wait ms");
    for (int i = 0; i < runs->count; i++) {
        const yoke_simulation *found = &runs->list[i];
        fprintf(out, "%7d %5d %-16s %9.2f %8.0f %8.2f %3.0f %% %7.2f %7.2f\n", found->devices,
                found->nodes, name_of(found), ms(found->step_ns),
                simulate_rows_per_second(&setup->profile, found),
                found->efficiency * found->devices, 100 * found->efficiency,
                ms(found->communicate_ns), ms(found->wait_ns));
    }
    print_sentences(out, setup, runs);
    print_staleness(out, runs);
    fprintf(out, "\nspeed-up  rows/s, divided by those of one device\n"
                 "eff.      speed-up / devices\n"
                 "comm      time in which the root communicates and does not compute\n"
                 "wait      time in which the root waits for its link or another device\n"
                 "Simulated from a profile: docs/simulate.md says what that leaves out.\n");
}

static void json_span(yoke_json *json, const yoke_span_info *span) {
    yoke_json_open(json, NULL, '{');
    bool link = span->lane >= YOKE_SIMULATED_LANES;
    yoke_json_integer(json, link ? "link" : "lane",
                      link ? span->lane - YOKE_SIMULATED_LANES : span->lane);
    yoke_json_text(json, "stage", yoke_stage_name(span->stage));
    if (span->bucket >= 0) yoke_json_integer(json, "bucket", span->bucket);
    yoke_json_real(json, "begin_ms", ms(span->begin_ns));
    yoke_json_real(json, "end_ms", ms(span->end_ns));
    if (link) yoke_json_integer(json, "bytes", (int64_t)span->bytes);
    yoke_json_close(json, '}');
}

static void json_link(yoke_json *json, const char *name, const yoke_simulation *found, int device) {
    yoke_json_open(json, name, '{');
    yoke_json_integer(json, "device", device);
    yoke_json_integer(json, "sent", (int64_t)found->links[device].sent);
    yoke_json_integer(json, "received", (int64_t)found->links[device].received);
    yoke_json_close(json, '}');
}

/* The root's link, the one of the others that carries most, and those of the first devices. */
static void json_links(yoke_json *json, const yoke_simulation *found) {
    int most = 1;
    if (found->devices < 2) return;
    for (int k = 2; k < found->devices; k++) {
        const yoke_link_bytes *own = &found->links[k], *best = &found->links[most];
        if (own->sent + own->received > best->sent + best->received) most = k;
    }
    json_link(json, "root_link", found, 0);
    json_link(json, "busiest_other_link", found, most);
    yoke_json_open(json, "first_links", '[');
    for (int k = 0; k < found->devices && k < LISTED_LINKS; k++)
        json_link(json, NULL, found, k);
    yoke_json_close(json, ']');
}

static void json_run(yoke_json *json, const simulate_setup *setup, const yoke_simulation *found) {
    const yoke_profile *profile = &setup->profile;
    char text[YOKE_SIMULATION_TEXT_BYTES];
    yoke_json_open(json, NULL, '{');
    yoke_json_integer(json, "devices", found->devices);
    yoke_json_integer(json, "nodes", found->nodes);
    yoke_json_text(json, "mode", name_of(found));
    yoke_json_real(json, "step_ms", ms(found->step_ns));
    yoke_json_real(json, "rows_per_second", simulate_rows_per_second(profile, found));
    yoke_json_real(json, "speedup", found->efficiency * found->devices);
    yoke_json_real(json, "efficiency", found->efficiency);
    yoke_json_real(json, "communicate_ms", ms(found->communicate_ns));
    yoke_json_real(json, "wait_ms", ms(found->wait_ns));
    yoke_json_real(json, "travel_ms", ms(found->travel_ns));
    yoke_json_real(json, "update_ms", ms(found->update_ns));
    yoke_json_real(json, "python_ms", ms(found->python_ns));
    yoke_json_text(json, "sentence",
                   yoke_simulation_describe(found, profile, &setup->topology, text));
    if (is_async(found)) {
        yoke_json_real(json, "mean_staleness", found->mean_staleness);
        yoke_json_integer(json, "largest_staleness", (int64_t)found->largest_staleness);
    }
    json_links(json, found);
    yoke_json_open(json, "spans", '[');
    for (int i = 0; i < found->span_count; i++)
        json_span(json, &found->spans[i]);
    yoke_json_close(json, ']');
    yoke_json_close(json, '}');
}

yoke_status simulate_print_json(FILE *out, const simulate_setup *setup, const simulate_runs *runs) {
    const yoke_profile *profile = &setup->profile;
    char text[96];
    yoke_json json;
    yoke_json_begin(&json);
    yoke_json_open(&json, NULL, '{');
    yoke_json_text(&json, "model", profile->model);
    yoke_json_text(&json, "device", profile->device);
    yoke_json_text(&json, "precision", profile->precision);
    yoke_json_text(&json, "source", profile->source);
    yoke_json_text(&json, "links", setup->link_text);
    simulate_straggler_text(setup, text, sizeof text);
    if (text[0] != '\0') yoke_json_text(&json, "straggler", text);
    yoke_json_real(&json, "spread", setup->topology.spread);
    yoke_json_integer(&json, "rows_per_device", profile->rows);
    yoke_json_real(&json, "profile_step_ms", yoke_profile_step_ms(profile));
    yoke_json_open(&json, "runs", '[');
    for (int i = 0; i < runs->count; i++)
        json_run(&json, setup, &runs->list[i]);
    yoke_json_close(&json, ']');
    yoke_json_close(&json, '}');
    return cli_print_json(&json, out);
}
