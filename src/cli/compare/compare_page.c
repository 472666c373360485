/* SPDX-License-Identifier: Apache-2.0 */
/* A comparison as a page: its result becomes the model of a report. Stages, timeline, memory and
 * bytes are those of one device and of all devices. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/base.h"
#include "cli/compare/compare.h"
#include "links/links.h"
#include "report/report.h"

#define TEXT_BYTES 256

static void add_shares(yoke_report *report, const compare_setup *setup) {
    char text[TEXT_BYTES] = "";
    for (int i = 0; i < setup->device_count && setup->share_count > 0; i++) {
        size_t length = strlen(text);
        snprintf(text + length, sizeof text - length, "%s%d", i == 0 ? "" : " + ",
                 compare_setup_rows(setup, setup->device_count, i).count);
    }
    yoke_report_add_fact(report, "rows of devices", "%s", text);
}

static yoke_status add_facts(yoke_report *report, const compare_result *result) {
    const compare_setup *setup = &result->setup;
    yoke_link link;
    yoke_report_add_fact(report, "model", "%s, %zu parameters", setup->model, result->parameters);
    yoke_report_add_fact(report, "dataset", "%s", setup->dataset);
    yoke_report_add_fact(report, "batch", "%d rows on all devices together", setup->batch);
    yoke_report_add_fact(report, "processor", "%s", result->processor);
    if (result->cores > 0)
        yoke_report_add_fact(report, "cores", "%d, shared by CPU devices of %d thread%s each",
                             result->cores, setup->threads, setup->threads == 1 ? "" : "s");
    if (setup->bucket_mb > 0)
        yoke_report_add_fact(report, "buckets", "%g MiB of gradients", setup->bucket_mb);
    if (setup->link[0] != '\0') {
        TRY(yoke_link_parse(&link, setup->link));
        yoke_report_add_fact(report, "link", "%s, modelled",
                             yoke_link_describe(&link, report->link));
    }
    yoke_report_add_fact(report, "PyTorch", "%s", result->torch);
    if (compare_find(result, COMPARE_PYTHON, setup->device_count) != NULL)
        yoke_report_add_fact(
            report, "Python",
            "in dp python: %g us to call a layer or to copy it, one thread at a time",
            setup->interpreter_us);
    if (setup->straggler_factor > 0)
        yoke_report_add_fact(report, "straggler",
                             "device or rank %d computes %g times as long; not in single",
                             setup->straggler, setup->straggler_factor);
    add_shares(report, setup);
    if (compare_find(result, COMPARE_ASYNC, setup->device_count) != NULL)
        yoke_report_add_fact(report, "async", "a step is a push, of %d rows by one device",
                             setup->batch);
    if (compare_find(result, COMPARE_LOCAL, setup->device_count) != NULL)
        yoke_report_add_fact(report, "local", "a mean of the weights every %d step%s",
                             setup->sync_every, setup->sync_every == 1 ? "" : "s");
    yoke_report_add_fact(report, "race", "%d rounds of %d steps", result->rounds, result->steps);
    return YOKE_OK;
}

/* Where so few steps were recorded that none of the right length is there. */
static void note_order(yoke_report *report, const compare_result *result, const compare_mode *one) {
    for (int i = 0; i < result->mode_count; i++) {
        const compare_mode *other = &result->modes[i];
        if (one->parts == NULL || other->parts == NULL) continue;
        if (one->step_ms.median < other->step_ms.median &&
            one->step.milliseconds > other->step.milliseconds)
            yoke_report_add_note(report,
                                 "The timeline shows a longer step of %s than of %s: too "
                                 "few steps were recorded. Their medians count.",
                                 compare_kind_name(one->kind), compare_kind_name(other->kind));
    }
}

static void note_apart(yoke_report *report, const compare_result *result) {
    char names[COMPARE_NAMES_BYTES];
    if (compare_apart_names(result, names)[0] != '\0')
        yoke_report_add_note(report,
                             "What %s learned is compared with nothing: another method ends "
                             "with other weights, by design.",
                             names);
    if (compare_unrecorded_names(result, names)[0] != '\0')
        yoke_report_add_note(report,
                             "The figures of stages, memory and bytes leave %s out: nothing "
                             "records them.",
                             names);
}

static void note_mode(yoke_report *report, const compare_result *result, const compare_mode *mode) {
    const char *name = compare_kind_name(mode->kind);
    if (!compare_pays(result, mode))
        yoke_report_add_note(report,
                             "%s knows no %s: it does not pay what the others pay, and its speed "
                             "is compared with nobody's.",
                             name, compare_unknown(result));
    note_order(report, result, mode);
    if (mode->step.left_out > 0)
        yoke_report_add_note(report,
                             "%s on %d: the timeline leaves out %d spans: it keeps %d of a step "
                             "for each device.",
                             name, mode->devices, mode->step.left_out, COMPARE_LANE_SPANS);
}

static void add_notes(yoke_report *report, const compare_result *result) {
    char order[1024] = "Their number is too small to tell which mode is faster.";
    int most = result->modes[result->mode_count - 1].devices;
    if (result->interval) compare_order(result, most, order, sizeof order);
    if (result->disturbed > 0)
        yoke_report_add_note(report, "Other programs disturbed %d of the %d rounds. %s",
                             result->disturbed, result->rounds, order);
    if (!compare_all_equal(result)) yoke_report_add_note(report, "Not all modes learned the same.");
    if (result->ddp_left_out)
        yoke_report_add_note(
            report, "No ddp where devices share a GPU: NCCL allows one rank for each GPU.");
    note_apart(report, result);
    for (int i = 0; i < result->mode_count; i++)
        note_mode(report, result, &result->modes[i]);
}

static yoke_report_interval interval_of(race_ratio figure) {
    return (yoke_report_interval){figure.median, figure.low, figure.high};
}

static yoke_status add_bytes(yoke_report_mode *mode, const char *name, const yoke_account *account,
                             bool linked) {
    TRY(yoke_report_add_link(mode, name, account->sent, account->received));
    for (int stage = 0; stage < YOKE_STAGE_COUNT && !linked; stage++)
        if (account->bytes[stage] > 0)
            TRY(yoke_report_add_amount(&mode->moved, name, yoke_stage_name((yoke_stage)stage),
                                       account->bytes[stage]));
    return YOKE_OK;
}

static yoke_status add_device(yoke_report_mode *mode, const compare_mode *from, int index,
                              bool linked) {
    const compare_device *device = &from->parts[index];
    char name[TEXT_BYTES];
    yoke_report_lane *lane;
    if (from->kind == COMPARE_DDP)
        snprintf(name, sizeof name, "rank %d %s", index, device->name);
    else
        snprintf(name, sizeof name, "%s", device->name);
    TRY(yoke_report_add_lane(mode, name, &lane));
    TRY(add_bytes(mode, name, &device->account, linked));
    memcpy(lane->stage_ms, device->account.stage_ms, sizeof lane->stage_ms);
    TRY(yoke_report_cut(lane, from->step.spans, (size_t)from->step.count, index,
                        from->step.begin_ns, from->step.end_ns));
    const compare_memory *memory = &device->memory;
    if (!(memory->total > 0)) return YOKE_OK;
    TRY(yoke_report_add_amount(&mode->memory, name, "weights", memory->weights));
    TRY(yoke_report_add_amount(&mode->memory, name, "gradients", memory->gradients));
    TRY(yoke_report_add_amount(&mode->memory, name, "optimizer", memory->optimizer));
    TRY(yoke_report_add_amount(&mode->memory, name, "activations", memory->activations));
    return yoke_report_add_amount(&mode->memory, name, "other", memory->other);
}

static yoke_status add_devices(yoke_report_mode *mode, const compare_mode *from, bool linked) {
    for (int i = 0; i < from->devices; i++)
        TRY(add_device(mode, from, i, linked));
    yoke_report_find_causes(mode);
    for (int i = 0; i < from->devices; i++)
        TRY(yoke_report_add_link_lane(mode, mode->lanes[i].name, from->step.spans, from->step.count,
                                      COMPARE_LINK_OF(i), from->step.begin_ns, from->step.end_ns));
    mode->mean_step_ms = from->parts[0].account.step_ms;
    mode->median_ms = from->step_ms.median;
    mode->shown_ms = from->step.milliseconds;
    return YOKE_OK;
}

static yoke_status add_mode(yoke_report *report, const compare_result *result,
                            const compare_mode *from) {
    yoke_report_mode *mode;
    TRY(yoke_report_add_mode(report, compare_kind_name(from->kind), &mode));
    mode->devices = from->devices;
    mode->unlike = !compare_pays(result, from);
    mode->step_ms = interval_of(from->step_ms);
    mode->images_per_second = interval_of(from->images_per_second);
    mode->speedup = interval_of(from->speedup);
    for (int i = 0; i < result->learn_steps; i++)
        TRY(yoke_report_add_point(&mode->curves[YOKE_REPORT_LOSS], i + 1, from->losses[i]));
    if (result->learn_steps > 0 && !compare_is_torch(from->kind))
        snprintf(mode->weights_hash, sizeof mode->weights_hash, "%016" PRIx64, from->weights_hash);
    /* The fewest that show the result. */
    mode->first = from->devices == result->setup.device_count && from->parts != NULL &&
                  (from->kind == COMPARE_CLASSIC || from->kind == COMPARE_OVERLAP ||
                   from->kind == COMPARE_DDP);
    bool shown = from->devices == 1 || from->devices == result->setup.device_count;
    return shown && from->parts != NULL ? add_devices(mode, from, result->setup.link[0] != '\0')
                                        : YOKE_OK;
}

static yoke_status fill(yoke_report *report, const compare_result *result) {
    snprintf(report->subject, sizeof report->subject,
             "%.24s on %d devices, %.24s: DataParallel and DDP", result->setup.model,
             result->setup.device_count, result->setup.dataset);
    snprintf(report->interval, sizeof report->interval, "%s",
             result->interval ? "95 % interval" : "range of the rounds");
    report->no_verdict = !result->interval;
    TRY(add_facts(report, result));
    add_notes(report, result);
    for (int i = 0; i < result->mode_count; i++)
        TRY(add_mode(report, result, &result->modes[i]));
    return YOKE_OK;
}

yoke_status compare_write_page(const char *path, const compare_result *result) {
    yoke_report report = {0};
    return yoke_report_finish(&report, fill(&report, result), path);
}
