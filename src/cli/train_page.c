/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/train_page.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/shared_options.h"

static void add_command(yoke_report *report, const train_page *page) {
    char *text = NULL;
    size_t bytes = 0;
    FILE *out = open_memstream(&text, &bytes);
    report->failed |= out == NULL;
    if (out == NULL) return;
    for (int i = 0; page->command[i] != NULL; i++) {
        if (i > 0) fputc(' ', out);
        cli_print_word(out, page->command[i]);
    }
    if (fclose(out) == 0) yoke_report_add_fact(report, "command", "%s", text);
    free(text);
}

static void add_devices(yoke_report *report, const train_page *page,
                        const yoke_trainer_summary *summary) {
    const yoke_device_info *device = &page->view->devices[0];
    char threads[48] = "";
    if (device->capability == 0)
        snprintf(threads, sizeof threads, ", %d thread%s each", device->threads,
                 device->threads == 1 ? "" : "s");
    yoke_report_add_fact(report, "devices", "%d x %s%s", summary->devices, device->description,
                         threads);
    bool ddp = summary->transport != NULL;
    yoke_report_add_fact(report, "mode", "%s, %s%s%s", summary->mode, summary->schedule,
                         ddp ? ", gradients over " : "", ddp ? summary->transport : "");
    if (summary->link != NULL) yoke_report_add_fact(report, "link", "%s, modelled", summary->link);
}

static void add_optimizer(yoke_report *report, const train_page *page) {
    const yoke_optimizer_options *optimizer = &page->setup->optimizer;
    char momentum[64] = "", rate[64] = "";
    if (page->found == NULL)
        snprintf(rate, sizeof rate, ", learning rate %g", optimizer->learning_rate);
    if (cli_has_momentum(optimizer->kind))
        snprintf(momentum, sizeof momentum, ", momentum %g%s", optimizer->momentum,
                 optimizer->nesterov ? " (Nesterov)" : "");
    yoke_report_add_fact(report, "optimizer", "%s%s%s, weight decay %g",
                         yoke_optimizer_name(optimizer->kind), rate, momentum,
                         optimizer->weight_decay);
}

static const char *duration_text(double seconds, char text[32]) {
    unsigned long whole = (unsigned long)(seconds + 0.5);
    if (whole >= 3600)
        snprintf(text, 32, "%lu h %02lu min", whole / 3600, whole / 60 % 60);
    else if (whole >= 60)
        snprintf(text, 32, "%lu min %02lu s", whole / 60, whole % 60);
    else
        snprintf(text, 32, "%.1f s", seconds);
    return text;
}

/* The library of the devices. */
static const char *backend_text(const device_view *view) {
    const char *wanted = view->devices[0].capability > 0 ? "cuda" : "cpu";
    yoke_backend_info info = {.struct_size = sizeof info};
    for (int i = 0; yoke_backend_describe(i, &info); i++)
        if (strcmp(info.name, wanted) == 0) return info.detail;
    return wanted;
}

/* Says how many rows each device had in the end, if the user gave --shares. */
static void add_rows(yoke_report *report, const train_page *page) {
    const device_shares *shares = &page->setup->shares;
    const yoke_data_parallel *engine = yoke_trainer_engine(page->trainer);
    char rows[512] = "";
    size_t used = 0;
    if (shares->text == NULL) return;
    for (int i = 0; yoke_data_parallel_device_rows(engine, i) > 0 && used < 400; i++)
        used += (size_t)snprintf(rows + used, sizeof rows - used, "%s%d", i > 0 ? " + " : "",
                                 yoke_data_parallel_device_rows(engine, i));
    yoke_report_add_fact(report, "rows of devices", "%s, %s", rows,
                         shares->measured ? "by measured speed" : "as given");
}

static void add_facts(yoke_report *report, const train_page *page,
                      const yoke_trainer_summary *summary) {
    static const char *const algorithms[] = {"measured", "direct", "fastest"};
    const yoke_data_parallel_options *engine = &page->setup->engine;
    bool fixed = engine->shards > 0 && engine->algorithm_cache == NULL;
    char text[32];
    yoke_report_add_fact(report, "model", "%s, %zu parameters, %s", summary->model,
                         summary->parameters, summary->precision);
    yoke_report_add_fact(report, "dataset", "%s", summary->dataset);
    add_devices(report, page, summary);
    if (summary->lost > 0)
        yoke_report_add_fact(report, summary->transport != NULL ? "lost ranks" : "lost devices",
                             "%d, and %.2f s to do their steps again", summary->lost,
                             summary->lost_seconds);
    yoke_report_add_fact(report, "batch", "%d rows on all devices together", summary->batch);
    add_rows(report, page);
    yoke_report_add_fact(report, "steps", "%" PRIu64 " of %" PRIu64, summary->steps, page->steps);
    add_optimizer(report, page);
    yoke_report_add_fact(report, "algorithms", "%s",
                         algorithms[fixed ? YOKE_ALGORITHM_DIRECT : engine->algorithm]);
    yoke_report_add_fact(report, "seed", "%" PRIu64, page->setup->run.seed);
    yoke_report_add_fact(report, "duration", "%s%s", duration_text(page->seconds, text),
                         page->found != NULL ? "" : ", with evaluations");
    if (page->found == NULL)
        yoke_report_add_fact(report, "weights hash", "%016" PRIx64, summary->weights_hash);
    yoke_report_add_fact(report, "versions", "yoke %s, %s", yoke_version(),
                         backend_text(page->view));
    add_command(report, page);
}

static void add_notes(yoke_report *report, const train_page *page,
                      const yoke_trainer_summary *summary) {
    uint64_t first = page->curves->first_step;
    if (page->ended != NULL)
        yoke_report_add_note(report,
                             "The run ended early, after step %" PRIu64 " of %" PRIu64 ": %s",
                             summary->steps, page->steps, page->ended);
    if (page->found == NULL && first > 1)
        yoke_report_add_note(report,
                             "The run went on from a checkpoint after step %" PRIu64
                             "; its curves begin there.",
                             first - 1);
}

static yoke_status add_mode(yoke_report *report, const train_page *page,
                            const yoke_trainer_summary *summary) {
    yoke_report_mode *mode;
    char name[64];
    bool ddp = summary->transport != NULL;
    snprintf(name, sizeof name, "%s%s%s", summary->mode, ddp ? "" : " ",
             ddp ? "" : summary->schedule);
    TRY(yoke_report_add_mode(report, name, &mode));
    mode->devices = summary->devices;
    mode->step_ms.value = summary->step_ms_median;
    mode->images_per_second.value = summary->images_per_second;
    snprintf(mode->weights_hash, sizeof mode->weights_hash, "%016" PRIx64, summary->weights_hash);
    return train_curves_fill(page->curves, mode);
}

/* Why there are no counts of classes; NULL: there are. */
static const char *absent_text(const train_page *page, const yoke_predictions *found) {
    if (found->counts != NULL) return NULL;
    if (found->classes == 0) return "The model does not classify: there are no classes to count.";
    if (found->rows > 0)
        return "The dataset has too many classes to count the predictions of each.";
    if (page->setup->run.evaluate_every < 0)
        return "The run evaluates nothing (--evaluate-every -1): there are no predictions of the "
               "test split.";
    return "The run ended before an evaluation was complete: there are no predictions of the test "
           "split.";
}

static yoke_status fill_predictions(yoke_report *report, yoke_predictions *found,
                                    yoke_misclassified *wrong, const train_page *page) {
    TRY(yoke_trainer_predictions(page->trainer, found));
    for (int i = 0; i < found->misclassified; i++) {
        wrong[i] = (yoke_misclassified)YOKE_MISCLASSIFIED_INIT;
        TRY(yoke_trainer_misclassified(page->trainer, i, &wrong[i]));
    }
    report->predictions = found;
    report->misclassified = wrong;
    report->no_counts = absent_text(page, found);
    return YOKE_OK;
}

static yoke_status fill(yoke_report *report, yoke_predictions *found, yoke_misclassified *wrong,
                        const train_page *page) {
    yoke_trainer_summary summary = {.struct_size = sizeof summary};
    TRY(yoke_trainer_summarize(page->trainer, &summary));
    if (page->found != NULL) summary.steps = (uint64_t)page->found->count;
    snprintf(report->subject, sizeof report->subject, "%.30s on %.40s: a %s", summary.model,
             summary.dataset, page->found != NULL ? "range test" : "training run");
    add_facts(report, page, &summary);
    add_notes(report, page, &summary);
    report->rates = page->found;
    if (page->found != NULL) return YOKE_OK;
    TRY(add_mode(report, page, &summary));
    return fill_predictions(report, found, wrong, page);
}

yoke_status train_page_write(const char *path, const train_page *page) {
    yoke_report report = {0};
    yoke_predictions found = YOKE_PREDICTIONS_INIT;
    yoke_misclassified wrong[TRAIN_PAGE_MISCLASSIFIED];
    return yoke_report_finish(&report, fill(&report, &found, wrong, page), path);
}
