/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/range_test.h"

#include <langinfo.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/live/live_picture.h"

#define TABLE_ROWS 12
#define PLOT_ROWS 8
#define PLOT_COLUMNS 80

/* What contradicts --lr-find. */

typedef struct clash {
    const char *option, *why;
} clash;

#define OWN_RATE "the test sets the rate of every step itself"
#define OWN_STEPS "--lr-find N says how many steps the test takes"
#define NO_FILES "the test keeps nothing of what it trains"
#define NO_EVALUATION "the test evaluates nothing"

static const clash clashes[] = {
    {"lr", OWN_RATE},
    {"lr-schedule", OWN_RATE},
    {"warmup-steps", OWN_RATE},
    {"lr-gamma", OWN_RATE},
    {"lr-patience", OWN_RATE},
    {"epochs", OWN_STEPS},
    {"steps", OWN_STEPS},
    {"save", NO_FILES},
    {"force", NO_FILES},
    {"checkpoint-dir", NO_FILES},
    {"checkpoint-every", NO_FILES},
    {"keep", NO_FILES},
    {"keep-best", NO_FILES},
    {"resume", "the test begins with --init or with new weights"},
    {"resume-anyway", "the test begins with --init or with new weights"},
    {"metrics", NO_FILES},
    {"trace", NO_FILES},
    {"ema", NO_FILES},
    {"evaluate-every", NO_EVALUATION},
    {"patience", NO_EVALUATION},
    {"min-delta", NO_EVALUATION},
    {"print-config", "it is a test, and no option of a run"},
};

int range_test_check(int argc, char **argv) {
    for (size_t i = 0; i < sizeof clashes / sizeof clashes[0]; i++)
        for (int k = 1; k < argc; k++)
            if (cli_names_option(argv[k], clashes[i].option))
                return cli_usage_error("train",
                                       "--lr-find does not go with --%s: %s; leave one out",
                                       clashes[i].option, clashes[i].why);
    return -1;
}

void range_test_fill(yoke_trainer_options *run, yoke_data_parallel_options *engine) {
    run->save = run->metrics = run->trace = NULL;
    run->checkpoint_dir = run->resume = run->resume_anyway = NULL;
    run->keep_best = false;
    run->lr_schedule = YOKE_LR_CONSTANT;
    run->warmup_steps = 0;
    engine->ema_decay = 0;
    run->patience = 0;
    run->evaluate_every = -1;
    run->misclassified = 0;
}

yoke_status range_test_run(yoke_trainer *trainer, int steps, yoke_lr_find_result *found) {
    yoke_lr_find_options options = YOKE_LR_FIND_OPTIONS_INIT;
    options.steps = steps;
    *found = (yoke_lr_find_result){.struct_size = sizeof *found, .suggested = -1, .text = ""};
    return yoke_trainer_find_lr(trainer, &options, found);
}

/* The result. */

/* The smoothed losses, cut off where they diverge. */
static void cut_off(const yoke_lr_find_result *found, double *losses) {
    double low = INFINITY, high = -INFINITY;
    for (int i = 0; i < found->count; i++) {
        low = fmin(low, found->smoothed[i]);
        if (i <= found->suggested) high = fmax(high, found->smoothed[i]);
    }
    double top = isinf(high) ? INFINITY : high + (high - low) / 2;
    for (int i = 0; i < found->count; i++)
        losses[i] = fmin(found->smoothed[i], top);
}

/* The curve of the live view. Its steps are evenly spaced in the logarithm of the rate. */
static void print_curve(FILE *out, const yoke_lr_find_result *found) {
    live_canvas canvas = {.columns = PLOT_COLUMNS,
                          .rows = PLOT_ROWS + 1,
                          .style.unicode = strcmp(nl_langinfo(CODESET), "UTF-8") == 0};
    live_picture *picture = calloc(1, sizeof *picture);
    double *losses = calloc((size_t)found->count + 1, sizeof *losses);
    if (picture != NULL && losses != NULL && found->count > 1) {
        cut_off(found, losses);
        uint64_t done = (uint64_t)found->count;
        live_evaluation mark = {.step = (uint64_t)(found->suggested + 1)};
        if (found->suggested >= 0) mark.loss = losses[found->suggested];
        live_curve_draw(&(live_numbers){.losses = losses,
                                        .loss_count = found->count,
                                        .done = done,
                                        .evaluations = &mark,
                                        .evaluation_count = found->suggested >= 0},
                        &canvas, PLOT_ROWS, picture);
        fprintf(out, "\nsmoothed loss against the logarithm of the rate%s\n",
                found->suggested >= 0 ? "; o: the suggestion" : "");
        for (int i = 0; i < picture->count; i++)
            fprintf(out, "%s\n", picture->lines[i]);
        fprintf(out, "%9s%-9.3g%*.3g\n", "", found->learning_rates[0], PLOT_COLUMNS - 19,
                found->learning_rates[found->count - 1]);
    }
    free(losses);
    free(picture);
}

static void print_words(FILE *out, const yoke_lr_find_result *found, bool quiet) {
    if (!quiet && found->count > 0) {
        /* About as many rows as TABLE_ROWS, with the suggestion and the last point among them. */
        int stride = 1 + (found->count - 1) / TABLE_ROWS;
        fprintf(out, "rate           loss  smoothed\n");
        for (int i = 0; i < found->count; i++)
            if (i % stride == 0 || i == found->suggested || i == found->count - 1)
                fprintf(out, "%-9.3g %9.4g %9.4g%s\n", found->learning_rates[i], found->losses[i],
                        found->smoothed[i], i == found->suggested ? "  <- suggestion" : "");
        print_curve(out, found);
        fputc('\n', out);
    }
    if (found->suggested < 0) {
        fprintf(out, "%s\n", found->text);
        return;
    }
    fprintf(out, "suggestion %.3g, where the smoothed loss falls fastest\n", found->suggestion);
    if (found->cautious < found->suggestion)
        fprintf(out, "cautious   %.3g, a tenth of the rate of the lowest smoothed loss\n",
                found->cautious);
}

static yoke_status print_json(FILE *out, yoke_trainer *trainer, const yoke_lr_find_result *found) {
    yoke_trainer_summary summary = {.struct_size = sizeof summary};
    yoke_status status = yoke_trainer_summarize(trainer, &summary);
    if (status != YOKE_OK) return status;
    bool none = found->suggested < 0;
    yoke_json json;
    yoke_json_begin(&json);
    yoke_json_open(&json, NULL, '{');
    yoke_json_text(&json, "mode", summary.mode);
    yoke_json_integer(&json, "devices", summary.devices);
    yoke_json_text(&json, "model", summary.model);
    yoke_json_text(&json, "dataset", summary.dataset);
    yoke_json_integer(&json, "batch", summary.batch);
    yoke_json_integer(&json, "steps", found->count);
    yoke_json_boolean(&json, "diverged", found->diverged);
    yoke_json_real(&json, "suggestion", none ? (double)NAN : found->suggestion);
    yoke_json_real(&json, "cautious", none ? (double)NAN : found->cautious);
    yoke_json_text(&json, "text", found->text);
    yoke_json_open(&json, "points", '[');
    for (int i = 0; i < found->count; i++) {
        yoke_json_open(&json, NULL, '{');
        yoke_json_real(&json, "lr", found->learning_rates[i]);
        yoke_json_real(&json, "loss", found->losses[i]);
        yoke_json_real(&json, "smoothed", found->smoothed[i]);
        yoke_json_close(&json, '}');
    }
    yoke_json_close(&json, ']');
    yoke_json_close(&json, '}');
    return cli_print_json(&json, out);
}

yoke_status range_test_report(yoke_trainer *trainer, const yoke_lr_find_result *found, bool json,
                              bool quiet) {
    if (!json || !quiet) print_words(json ? stderr : stdout, found, quiet);
    yoke_status status = json ? print_json(stdout, trainer, found) : YOKE_OK;
    fflush(stdout); /* the advice on stderr comes after it, also in one file */
    return status;
}

/* Next. */

/* The command without the test, and without the test's page. */
static void print_command(FILE *out, char *const *command, double rate) {
    fprintf(out, "    ");
    for (int i = 0; command[i] != NULL; i++) {
        bool dropped =
            cli_names_option(command[i], "lr-find") || cli_names_option(command[i], "report");
        bool apart = dropped && strchr(command[i], '=') == NULL && command[i + 1] != NULL &&
                     strncmp(command[i + 1], "--", 2) != 0;
        if (!dropped) {
            cli_print_word(out, command[i]);
            fputc(' ', out);
        }
        i += apart;
    }
    fprintf(out, "--lr %.3g\n", rate);
}

void range_test_print_next(FILE *out, const yoke_lr_find_result *found, char *const *command,
                           bool launched) {
    if (found->suggested < 0) return;
    fprintf(out, "\nNext:\n  train at this rate%s:\n",
            launched ? ", with the same launcher before it" : "");
    print_command(out, command, found->suggestion);
    if (!(found->cautious < found->suggestion)) return;
    fprintf(out, "  or, where that run diverges:\n");
    print_command(out, command, found->cautious);
}
