/* SPDX-License-Identifier: Apache-2.0 */
/* Prints a run: its plan, its result, and what to do next. */
#include "cli/result.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>
#include <unistd.h>

#include "cli/cli.h"
#include "cli/staleness.h"

#define SENSELESS 10 /* times a guess's loss, or the training loss */

yoke_status device_view_read(device_view *view, const yoke_devices *devices) {
    yoke_status status = YOKE_OK;
    view->count = yoke_devices_count(devices);
    for (int i = 0; i < view->count && i < CLI_DEVICES_MAX && status == YOKE_OK; i++) {
        view->devices[i].struct_size = sizeof view->devices[i];
        status = yoke_devices_describe(devices, i, &view->devices[i]);
    }
    if (status != YOKE_OK) return status;
    return yoke_devices_imbalance(devices, view->imbalance, sizeof view->imbalance);
}

yoke_status device_view_open(device_view *view, const yoke_devices_options *options) {
    yoke_devices *devices = NULL;
    view->count = 0;
    yoke_status status = yoke_devices_open(&devices, options);
    if (status != YOKE_OK) return status;
    status = device_view_read(view, devices);
    yoke_devices_close(devices);
    return status;
}

yoke_status device_view_choose(device_view *view, yoke_devices_options *options, int cores) {
    bool chosen = options->list != NULL;
    if (!chosen) options->list = "auto";
    view->automatic = strcmp(options->list, "auto") == 0;
    yoke_status status = device_view_open(view, options);
    if (status != YOKE_OK || chosen || cores < 0 || view->count > 1) return status;
    const yoke_device_info *only = &view->devices[0];
    if (only->capability > 0 || only->core_count < cores) return YOKE_OK;
    options->list = "2xcpu";
    return device_view_open(view, options);
}

const char *rate_unit(const yoke_model *model) {
    yoke_shape row = yoke_model_input_shape(model);
    return row.flat || row.sequence ? "rows/s" : "img/s";
}

/* Before. */

/* Memory of each device by what holds it. */
static void print_memory(FILE *out, const yoke_data_parallel *engine, const device_view *view) {
    static const char *const columns[] = {"weights", "gradients", "optimizer", "activations",
                                          "other"};
    fprintf(out, "memory %10s", "total");
    for (size_t i = 0; i < sizeof columns / sizeof columns[0]; i++)
        fprintf(out, " %11s", columns[i]);
    for (int i = 0; i < yoke_data_parallel_device_count(engine) && i < CLI_DEVICES_MAX; i++) {
        yoke_memory_report report = {.struct_size = sizeof report};
        char text[16];
        if (yoke_data_parallel_memory(engine, i, &report) != YOKE_OK) break;
        const size_t parts[] = {report.parameters + report.buffers, report.gradients,
                                report.optimizer, report.activations,
                                report.scratch + report.batch};
        fprintf(out, "\n%-6s %10s", view->devices[i].name,
                yoke_text_bytes((double)report.total, text, sizeof text));
        for (size_t p = 0; p < sizeof parts / sizeof parts[0]; p++)
            fprintf(out, " %11s", yoke_text_bytes((double)parts[p], text, sizeof text));
    }
    fputc('\n', out);
}

/* What the devices report of themselves, and why `auto` found no GPU. */
static void print_notes(FILE *out, const device_view *view) {
    yoke_backend_info info = {.struct_size = sizeof info};
    for (int i = 0; i < view->count && i < CLI_DEVICES_MAX; i++) {
        if (view->devices[i].note[0] != '\0')
            fprintf(out, "         %s: %s\n", view->devices[i].name, view->devices[i].note);
    }
    if (view->imbalance[0] != '\0') fprintf(out, "         %s\n", view->imbalance);
    if (!view->automatic || view->devices[0].capability > 0) return;
    for (int i = 0; yoke_backend_describe(i, &info); i++) {
        int cause = (int)strcspn(info.detail, ";"); /* a remedy may follow */
        if (info.available) continue;
        fprintf(out, "         %s: %.*s%s\n", info.name, cause, info.detail,
                info.detail[cause] != '\0' ? " (yoke devices says more)" : "");
    }
}

static void print_exchange(FILE *out, const yoke_trainer_summary *summary) {
    if (summary->devices == 1)
        fprintf(out, "; nothing to exchange\n");
    else if (summary->transport != NULL)
        fprintf(out, "; one rank each, gradients over %s\n", summary->transport);
    else
        fprintf(out, "; %s\n", summary->schedule);
    if (summary->link != NULL && summary->devices > 1)
        fprintf(out, "link     %s, modelled: transfers take their time, and stages wait for them\n",
                summary->link);
}

/* "0.485 0.456 0.406" */
static void print_channels(FILE *out, const float values[4], int channels) {
    for (int i = 0; i < channels && i < 4; i++)
        fprintf(out, " %.3f", (double)values[i]);
}

/* Rows of both splits, classes, and what the loader makes of pixels. */
static void print_data(FILE *out, const yoke_trainer *trainer, const char *name) {
    yoke_dataset_info rows = {.struct_size = sizeof rows}, test = {.struct_size = sizeof test};
    if (yoke_trainer_dataset(trainer, YOKE_SPLIT_TRAIN, &rows) != YOKE_OK) return;
    bool tests = yoke_trainer_dataset(trainer, YOKE_SPLIT_TEST, &test) == YOKE_OK;
    fprintf(out, "data     %s: %zu rows to train on", name, rows.rows);
    if (tests) fprintf(out, ", %zu to test", test.rows);
    if (rows.classes > 0)
        fprintf(out, ", %d classes\n", rows.classes);
    else
        fprintf(out, ", %d target%s\n", rows.target_count, rows.target_count == 1 ? "" : "s");
    fprintf(out, "         %dx%dx%d, ", rows.shape.channels, rows.shape.height, rows.shape.width);
    if (rows.feature_names != NULL) {
        fprintf(out, "each column normalised by its mean and std\n");
        return;
    }
    if (rows.mean[0] == 0 && rows.std[0] == 1) {
        fprintf(out, "not normalised\n");
        return;
    }
    fprintf(out, "normalised by mean");
    print_channels(out, rows.mean, rows.shape.channels);
    fprintf(out, ", std");
    print_channels(out, rows.std, rows.shape.channels);
    fputc('\n', out);
}

void print_rows(FILE *out, const yoke_data_parallel *engine) {
    for (int i = 0; i < 8 && yoke_data_parallel_device_rows(engine, i) > 0; i++)
        fprintf(out, "%s%d", i > 0 ? " + " : "", yoke_data_parallel_device_rows(engine, i));
    fprintf(out, "%s\n", yoke_data_parallel_device_rows(engine, 8) > 0 ? " + ..." : "");
}

void print_plan(FILE *out, yoke_trainer *trainer, const device_view *view) {
    yoke_data_parallel *engine = yoke_trainer_engine(trainer);
    yoke_trainer_summary summary = {.struct_size = sizeof summary};
    if (yoke_trainer_summarize(trainer, &summary) != YOKE_OK) return;
    fprintf(out, "model    %s, %zu parameters, %s\n", summary.model, summary.parameters,
            summary.precision);
    print_data(out, trainer, summary.dataset);
    fprintf(out, "devices  %d x %s", summary.devices, view->devices[0].description);
    if (view->devices[0].capability == 0)
        fprintf(out, ", %d thread%s each", view->devices[0].threads,
                view->devices[0].threads == 1 ? "" : "s");
    print_exchange(out, &summary);
    print_notes(out, view);
    fprintf(out, "batch    %d rows a step: ", summary.batch); /* 64 rows a step: 32 + 32 */
    print_rows(out, engine);
    print_memory(out, engine, view);
}

/* Epochs. */

static void print_scores(FILE *out, double loss, double accuracy) {
    if (isnan(loss))
        fprintf(out, " %10s", "-");
    else
        fprintf(out, " %10.4f", loss);
    if (accuracy < 0)
        fprintf(out, " %9s", "-");
    else
        fprintf(out, " %7.2f %%", 100 * accuracy);
}

void print_epoch(FILE *out, const yoke_event *epoch, bool tests, const char *head) {
    char name[32];
    if (head != NULL)
        fprintf(out, "%-10s %10s %9s%s %9s %7s\n", "", "train loss", "accuracy",
                tests ? "  test loss  accuracy" : "", "lr", head);
    snprintf(name, sizeof name, "epoch %" PRIu64, epoch->epoch + 1);
    fprintf(out, "%-10s", name);
    print_scores(out, epoch->loss, epoch->accuracy);
    if (tests) print_scores(out, epoch->test_loss, epoch->test_accuracy);
    if (epoch->rows > 0)
        fprintf(out, " %9.3g %7.0f\n", epoch->learning_rate, epoch->images_per_second);
    else
        fprintf(out, " %9s %7s\n", "-", "-");
}

/* After. */

void print_stages(FILE *out, const yoke_trace *trace) {
    yoke_stage_summary rows[YOKE_STAGE_COUNT];
    bool waits = false, timed = false, starved = false;
    for (int i = 0; i < YOKE_STAGE_COUNT; i++)
        rows[i].struct_size = sizeof rows[i];
    int count = yoke_trace_summarize(trace, rows, YOKE_STAGE_COUNT);
    if (count == 0) return;
    fprintf(out, "\nStages of a step, on the device that is slowest in each:\n"
                 "stage          median    share       bytes      GB/s\n");
    for (int i = 0; i < count; i++) {
        char bytes[16];
        if (rows[i].stage == YOKE_STAGE_EVALUATE) continue; /* not part of a step */
        waits |= rows[i].stage == YOKE_STAGE_WAIT;
        timed |= rows[i].stage == YOKE_STAGE_FORWARD;
        starved |= rows[i].stage == YOKE_STAGE_LOAD && rows[i].share > 1;
        fprintf(out, "%-10s %7.2f ms  %5.1f %%", yoke_stage_name(rows[i].stage), rows[i].median_ms,
                100 * rows[i].share);
        if (rows[i].bytes > 0)
            fprintf(out, "  %10s", yoke_text_bytes(rows[i].bytes, bytes, sizeof bytes));
        if (rows[i].gigabytes_per_second > 0)
            fprintf(out, "  %8.*f", rows[i].gigabytes_per_second < 1 ? 3 : 1,
                    rows[i].gigabytes_per_second);
        fputc('\n', out);
    }
    fprintf(out, "  share: of the time of all steps; long steps count in it, not in the median\n");
    if (waits) fprintf(out, "  wait: a device waits for another one, or for its link\n");
    if (starved)
        fprintf(out, "  load: the wait for a batch, before the step and not a part of it; here the "
                     "longer one\n");
    if (!timed)
        fprintf(out,
                "  gather: until the GPUs are done; with --trace or --live they time their own "
                "stages\n");
}

/* A line, where there is a loss. */
static void print_score(FILE *out, const char *split, double loss, double accuracy) {
    if (isnan(loss)) return;
    fprintf(out, "%s loss %.4f", split, loss);
    if (accuracy >= 0) fprintf(out, ", accuracy %.2f %%", 100 * accuracy);
    fputc('\n', out);
}

void print_result(FILE *out, const yoke_trainer_summary *summary, const char *unit) {
    fprintf(out, "\n%s on %d device%s: %" PRIu64 " steps, ", summary->model, summary->devices,
            summary->devices == 1 ? "" : "s", summary->steps);
    if (summary->step_ms_median > 0)
        fprintf(out, "%.0f %s (step %.2f ms, p90 %.2f ms", summary->images_per_second, unit,
                summary->step_ms_median, summary->step_ms_p90);
    else
        fprintf(out, "nothing left to do (the checkpoint is of the whole run");
    if (summary->load_wait_share >= 0.01)
        fprintf(out, ", %.0f %% of it waits for data", 100 * summary->load_wait_share);
    fprintf(out, ")\n");
    print_score(out, "train", summary->train_loss, summary->train_accuracy);
    print_score(out, "test", summary->test_loss, summary->test_accuracy);
    if (summary->lost > 0)
        fprintf(out, "%d %s%s lost on the way, and %.2f s to do their steps again\n", summary->lost,
                summary->transport != NULL ? "rank" : "device", summary->lost == 1 ? "" : "s",
                summary->lost_seconds);
    fprintf(out, "weights_hash %016" PRIx64 "\n", summary->weights_hash);
}

void warn_of_result(const yoke_trainer *trainer, const yoke_trainer_summary *summary) {
    yoke_dataset_info rows = {.struct_size = sizeof rows};
    if (yoke_trainer_dataset(trainer, YOKE_SPLIT_TRAIN, &rows) != YOKE_OK || rows.classes < 2)
        return;
    double guessing = log(rows.classes);
    if (!(summary->test_loss > SENSELESS * guessing) ||
        summary->test_loss < SENSELESS * summary->train_loss)
        return;
    fprintf(stderr,
            "yoke: warning: the test loss is %.1f, and a guess among %d classes costs %.2f: what "
            "this model says of new rows means nothing. After few steps at a high learning rate "
            "batch norm knows little of the data: train longer (--epochs), at a lower --lr (yoke "
            "train --lr-find suggests one), or from trained weights (--recipe "
            "imagefolder-finetune, docs/fine-tuning.md)\n",
            summary->test_loss, rows.classes, guessing);
}

static void json_lists(yoke_json *json, yoke_data_parallel *engine) {
    yoke_stage_summary rows[YOKE_STAGE_COUNT];
    for (int i = 0; i < YOKE_STAGE_COUNT; i++)
        rows[i].struct_size = sizeof rows[i];
    int count = yoke_trace_summarize(yoke_data_parallel_trace(engine), rows, YOKE_STAGE_COUNT);
    yoke_json_open(json, "stage_ms", '{');
    for (int i = 0; i < count; i++)
        yoke_json_real(json, yoke_stage_name(rows[i].stage), rows[i].median_ms);
    yoke_json_close(json, '}');
    yoke_json_open(json, "stage_bytes", '{');
    for (int i = 0; i < count; i++)
        if (rows[i].bytes > 0) yoke_json_real(json, yoke_stage_name(rows[i].stage), rows[i].bytes);
    yoke_json_close(json, '}');
    yoke_json_open(json, "peak_bytes", '[');
    for (int i = 0; i < yoke_data_parallel_device_count(engine); i++) {
        yoke_memory_report report = {.struct_size = sizeof report};
        if (yoke_data_parallel_memory(engine, i, &report) == YOKE_OK)
            yoke_json_integer(json, NULL, (int64_t)report.total);
    }
    yoke_json_close(json, ']');
}

/* How many rows each device has now; auto_shares changes them between steps. */
static void rows_json(yoke_json *json, const yoke_data_parallel *engine) {
    yoke_json_open(json, "rows_of_devices", '[');
    for (int i = 0; yoke_data_parallel_device_rows(engine, i) > 0; i++)
        yoke_json_integer(json, NULL, yoke_data_parallel_device_rows(engine, i));
    yoke_json_close(json, ']');
}

/* NaN becomes null. */
static double known(double value) {
    return value >= 0 ? value : (double)NAN;
}

yoke_status print_result_json(FILE *out, yoke_trainer *trainer, const yoke_trainer_summary *summary,
                              const skipped_list *skipped) {
    yoke_json json;
    yoke_json_begin(&json);
    yoke_json_open(&json, NULL, '{');
    yoke_json_text(&json, "mode", summary->mode);
    yoke_json_text(&json, "schedule", summary->schedule);
    yoke_json_integer(&json, "devices", summary->devices);
    yoke_json_text(&json, "model", summary->model);
    yoke_json_text(&json, "dataset", summary->dataset);
    if (summary->link != NULL) yoke_json_text(&json, "link", summary->link);
    yoke_json_text(&json, "precision", summary->precision);
    yoke_json_integer(&json, "parameters", (int64_t)summary->parameters);
    yoke_json_integer(&json, "batch", summary->batch);
    yoke_json_integer(&json, "steps", (int64_t)summary->steps);
    yoke_json_real(&json, "images_per_second", summary->images_per_second);
    yoke_json_open(&json, "step_ms", '{');
    yoke_json_real(&json, "median", summary->step_ms_median);
    yoke_json_real(&json, "p90", summary->step_ms_p90);
    yoke_json_close(&json, '}');
    yoke_json_real(&json, "load_wait_share", summary->load_wait_share);
    json_lists(&json, yoke_trainer_engine(trainer));
    rows_json(&json, yoke_trainer_engine(trainer));
    skipped_json(&json, skipped);
    yoke_json_real(&json, "train_loss", summary->train_loss);
    yoke_json_real(&json, "train_accuracy", known(summary->train_accuracy));
    yoke_json_real(&json, "test_loss", summary->test_loss);
    yoke_json_real(&json, "test_accuracy", known(summary->test_accuracy));
    staleness_json(&json, trainer);
    if (summary->kept_seconds > 0) yoke_json_real(&json, "kept_seconds", summary->kept_seconds);
    if (summary->lost > 0) yoke_json_integer(&json, "lost", summary->lost);
    if (summary->lost > 0) yoke_json_real(&json, "lost_seconds", summary->lost_seconds);
    if (summary->loss_scale > 0) {
        yoke_json_real(&json, "loss_scale", summary->loss_scale);
        yoke_json_integer(&json, "skipped_steps", (int64_t)summary->skipped_steps);
    }
    yoke_json_hash(&json, "weights_hash", summary->weights_hash);
    yoke_json_close(&json, '}');
    return cli_print_json(&json, out);
}
