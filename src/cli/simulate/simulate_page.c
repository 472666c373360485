/* SPDX-License-Identifier: Apache-2.0 */
/* Simulations as a page: they become the model of a report. */
#include <stdio.h>

#include "base/base.h"
#include "cli/simulate/simulate_setup.h"
#include "report/report.h"

static void add_facts(yoke_report *report, const simulate_setup *setup) {
    const yoke_profile *profile = &setup->profile;
    char text[96];
    yoke_report_add_fact(report, "model", "%s", profile->model);
    yoke_report_add_fact(report, "rows", "%d on each device", profile->rows);
    yoke_report_add_fact(report, "device of the profile", "%s", profile->device);
    yoke_report_add_fact(report, "profile", "%s", profile->source);
    yoke_report_add_fact(report, "links", "%s", setup->link_text);
    simulate_spread_text(setup, text, sizeof text);
    yoke_report_add_fact(report, "spread", "%s", text);
    simulate_straggler_text(setup, text, sizeof text);
    yoke_report_add_fact(report, "straggler", "%s", text);
    yoke_report_add_note(report, "Simulated, not measured: the step of a profile of one "
                                 "device, and links by a formula. Every device keeps the "
                                 "profile's rows.");
}

/* The devices shown, then their links. Where nothing travels, no lane. */
static yoke_status add_lanes(yoke_report_mode *mode, const yoke_simulation *found) {
    int shown = found->devices < YOKE_SIMULATED_LANES ? found->devices : YOKE_SIMULATED_LANES;
    char name[24];
    for (int k = 0; k < shown; k++) {
        yoke_report_lane *lane;
        snprintf(name, sizeof name, "device %d", k);
        TRY(yoke_report_add_lane(mode, name, &lane));
        TRY(yoke_report_cut(lane, found->spans, (size_t)found->span_count, k, 0, found->step_ns));
        for (int i = 0; i < lane->span_count; i++)
            lane->stage_ms[lane->spans[i].span.stage] += yoke_report_span_ms(&lane->spans[i]);
        if (k < found->link_count)
            TRY(yoke_report_add_link(mode, name, (double)found->links[k].sent,
                                     (double)found->links[k].received));
    }
    for (int k = 0; k < shown; k++)
        TRY(yoke_report_add_link_lane(mode, mode->lanes[k].name, found->spans, found->span_count,
                                      YOKE_SIMULATED_LANES + k, 0, found->step_ns));
    yoke_report_find_causes(mode);
    return YOKE_OK;
}

/* Timelines of one device, and of the largest number of devices. */
static yoke_status add_mode(yoke_report *report, const simulate_setup *setup,
                            const yoke_simulation *found, int most) {
    yoke_report_mode *mode;
    TRY(yoke_report_add_mode(
        report, found->devices == 1 ? "single" : yoke_simulated_name(found->mode), &mode));
    mode->devices = found->devices;
    mode->step_ms.value = 1e-6 * (double)found->step_ns;
    mode->images_per_second.value = simulate_rows_per_second(&setup->profile, found);
    mode->speedup.value = found->efficiency * found->devices;
    if (found->devices != 1 && found->devices != most) return YOKE_OK;
    TRY(add_lanes(mode, found));
    mode->mean_step_ms = mode->shown_ms = mode->step_ms.value;
    mode->steps = 1;
    return YOKE_OK;
}

static yoke_status fill(yoke_report *report, const simulate_setup *setup,
                        const simulate_runs *runs) {
    int most = runs->list[runs->count - 1].devices;
    char text[YOKE_SIMULATION_TEXT_BYTES];
    report->simulated = true;
    snprintf(report->subject, sizeof report->subject, "%.40s on up to %d devices, simulated",
             setup->profile.model, most);
    for (int i = 0; i < runs->count; i++)
        TRY(add_mode(report, setup, &runs->list[i], most));
    yoke_report_mark_ends(report);
    for (int i = 0; i < runs->count; i++) /* where the time goes */
        if (report->modes[i].first)
            yoke_report_add_fact(
                report, report->modes[i].name, "%s.",
                yoke_simulation_describe(&runs->list[i], &setup->profile, &setup->topology, text));
    add_facts(report, setup);
    return YOKE_OK;
}

yoke_status simulate_write_page(const char *path, const simulate_setup *setup,
                                const simulate_runs *runs) {
    yoke_report report = {0};
    return yoke_report_finish(&report, fill(&report, setup, runs), path);
}
