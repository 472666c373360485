/* SPDX-License-Identifier: Apache-2.0 */
/* A comparison for people: tables of what each mode learned, how fast it was, where its time went
 * and what memory it took, at most 80 columns wide; then what the tables say. */
#include <inttypes.h>
#include <math.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/base.h"
#include "cli/compare/compare.h"

#define WIDTH 80
#define SHOWN_SHARE 5e-4 /* the tables leave out a stage below it in every column */
#define MEBIBYTE 1048576.0
#define GIBIBYTE (1024 * MEBIBYTE)
#define COLUMNS 5 /* in a line: single, and every mode on so many devices */

/* A terminal too narrow would tear every line. */
static void print_width(FILE *out) {
    struct winsize window = {0};
    if (!isatty(fileno(out)) || ioctl(fileno(out), TIOCGWINSZ, &window) != 0) return;
    if (window.ws_col > 0 && window.ws_col < WIDTH)
        fprintf(out, "The tables need %d columns; this terminal has %d.\n\n", WIDTH, window.ws_col);
}

static const char *plural(int count) {
    return count == 1 ? "" : "s";
}

static void print_torch(FILE *out, const compare_result *result) {
    int threads = result->setup.threads;
    fprintf(out, "PyTorch  %s", result->torch);
    if (threads > 0) fprintf(out, "; gloo; %d thread%s each", threads, plural(threads));
    fputc('\n', out);
}

static void print_shares(FILE *out, const compare_setup *setup) {
    fprintf(out, "shares   rows of %d devices or ranks:", setup->device_count);
    for (int i = 0; i < setup->device_count; i++)
        fprintf(out, "%s%d", i == 0 ? " " : " + ",
                compare_setup_rows(setup, setup->device_count, i).count);
    fputc('\n', out);
}

static void print_setup(FILE *out, const compare_result *result) {
    const compare_setup *setup = &result->setup;
    fprintf(out, "model    %s, %zu parameters, %s%s\n", setup->model, result->parameters,
            yoke_precision_names[setup->precision],
            setup->algorithm == YOKE_ALGORITHM_DIRECT ? ", direct algorithms" : "");
    fprintf(out, "data     %s, batches of %d, seed %" PRIu64 "\n", setup->dataset, setup->batch,
            setup->seed);
    fprintf(out, "devices  %d x %s\n", setup->device_count, result->processor);
    if (result->cores > 0)
        fprintf(out, "         of %d thread%s each; this machine has %d core%s\n", setup->threads,
                plural(setup->threads), result->cores, plural(result->cores));
    if (setup->bucket_mb > 0) fprintf(out, "buckets  %g MiB of gradients\n", setup->bucket_mb);
    if (setup->link[0] != '\0') fprintf(out, "link     %.54s, modelled\n", setup->link);
    if (result->torch[0] != '\0') print_torch(out, result);
    if (!isnan(setup->interpreter_us))
        fprintf(out, "python   %g us for each call or copy of a layer\n", setup->interpreter_us);
    if (setup->share_count > 0) print_shares(out, setup);
    if (setup->straggler_factor > 0)
        fprintf(out, "slow     device or rank %d computes %g times as long; not in single\n",
                setup->straggler, setup->straggler_factor);
}

/* "2 x 1": two devices of one thread. */
static void print_name(FILE *out, const compare_mode *mode) {
    char devices[16];
    if (mode->threads > 0)
        snprintf(devices, sizeof devices, "%d x %d", mode->devices, mode->threads);
    else
        snprintf(devices, sizeof devices, "%d", mode->devices);
    fprintf(out, "%-11s %6s", compare_kind_name(mode->kind), devices);
}

/* What each learned. */

static void print_equality(FILE *out, const compare_result *result, const compare_mode *mode) {
    if (mode->verdict == COMPARE_ANOTHER) fprintf(out, "  %s", compare_verdict_name(mode->verdict));
    if (mode->compared_with < 0) return;
    const char *with = compare_kind_name(result->modes[mode->compared_with].kind);
    if (mode->verdict == COMPARE_SAME_BITS)
        fprintf(out, "  same bits as %s", with);
    else if (mode->verdict == COMPARE_ROUNDING && mode->compared_steps < result->learn_steps)
        fprintf(out, "  first %d: %.1e to %s", mode->compared_steps, mode->difference, with);
    else if (mode->verdict == COMPARE_ROUNDING)
        fprintf(out, "  losses %.1e from %s", mode->difference, with);
    else
        fprintf(out, "  LOSSES DIFFER by %.1e", mode->difference);
}

static void print_learned(FILE *out, const compare_result *result) {
    if (result->learn_steps == 0) return;
    fprintf(out, "\n%-10s %7s %11s  %-16s  %s\n", "learned", "devices", "last loss", "weights",
            "compared");
    for (int i = 0; i < result->mode_count; i++) {
        const compare_mode *mode = &result->modes[i];
        print_name(out, mode);
        fprintf(out, " %11.8f", mode->losses[result->learn_steps - 1]);
        if (compare_is_torch(mode->kind))
            fprintf(out, "  %-16s", "-");
        else
            fprintf(out, "  %016" PRIx64, mode->weights_hash);
        print_equality(out, result, mode);
        fputc('\n', out);
    }
}

/* How fast each was. */

static void print_raced_row(FILE *out, const compare_mode *mode, bool all_cores) {
    char interval[32];
    snprintf(interval, sizeof interval, "%.2f .. %.2f", mode->step_ms.low, mode->step_ms.high);
    print_name(out, mode);
    fprintf(out, " %8.2f  %-18s %7.0f %8.2f", mode->step_ms.median, interval,
            mode->images_per_second.median, mode->speedup.median);
    if (all_cores) fprintf(out, " %8.2f", mode->speedup_all_cores.median);
    fprintf(out, " %4.0f %%\n", 100 * mode->efficiency.median);
}

static void print_rounds(FILE *out, const compare_result *result) {
    fprintf(out, "  step ms: the median of %d round%s of %d steps", result->rounds,
            plural(result->rounds), result->steps);
    if (result->disturbed > 0)
        fprintf(out, ", %d of them disturbed: rough figures", result->disturbed);
    fputc('\n', out);
    if (result->interval)
        fprintf(out, "  low .. high: 95 %% interval of that median\n");
    else
        fprintf(out,
                "  low .. high: range, the fastest and the slowest round; an interval needs %d\n",
                RACE_INTERVAL_ROUNDS);
}

static void print_apart(FILE *out, const compare_result *result) {
    const compare_setup *setup = &result->setup;
    int most = setup->device_count;
    if (compare_find(result, COMPARE_ASYNC, most) != NULL)
        fprintf(out,
                "  async: a step is a push, of %d rows by one device; img/s counts all of them\n",
                setup->batch);
    if (compare_find(result, COMPARE_LOCAL, most) != NULL)
        fprintf(out, "  local: all devices get the mean of their weights every %d step%s\n",
                setup->sync_every, plural(setup->sync_every));
}

static void print_raced(FILE *out, const compare_result *result) {
    const compare_mode *all_cores = compare_find(result, COMPARE_ALL_CORES, 1);
    const compare_mode *single = &result->modes[0];
    fprintf(out, "\n%-10s %7s %8s  %-18s %7s %8s%s %6s\n", "raced", "devices", "step ms",
            "low .. high", "img/s", "speed-up", all_cores != NULL ? " of cores" : "", "eff.");
    for (int i = 0; i < result->mode_count; i++)
        print_raced_row(out, &result->modes[i], all_cores != NULL);
    print_rounds(out, result);
    if (single->threads > 0) fprintf(out, "  devices: 2 x 1 are two devices of one thread each\n");
    fprintf(out, "  speed-up: step ms of single divided by this one's");
    if (single->threads > 0)
        fprintf(out, "; single has %d thread%s", single->threads, plural(single->threads));
    fprintf(out, "\n");
    if (all_cores != NULL)
        fprintf(out, "  of cores: the same with all cores, one device with %d threads\n",
                all_cores->threads);
    fprintf(out, "  eff.: efficiency, the speed-up divided by the number of devices\n");
    print_apart(out, result);
}

/* Where the time goes. */

/* Single, which moves nothing, gives way where the others fill the line. */
static int choose_columns(const compare_result *result, int devices,
                          const compare_mode *columns[COLUMNS]) {
    const compare_mode *found[COMPARE_KINDS] = {&result->modes[0]};
    int count = 1;
    for (int kind = COMPARE_PYTHON; kind < COMPARE_KINDS; kind++) {
        const compare_mode *mode = compare_find(result, (compare_kind)kind, devices);
        if (mode != NULL && mode->parts != NULL) found[count++] = mode;
    }
    int first = count > COLUMNS ? 1 : 0;
    for (int i = first; i < count; i++)
        columns[i - first] = found[i];
    return count - first;
}

static bool is_shown(int stage, const yoke_account *accounts, int count) {
    for (int i = 0; i < count; i++)
        if (accounts[i].stage_ms[stage] >= SHOWN_SHARE * accounts[i].step_ms) return true;
    return false;
}

static void print_cell(FILE *out, double milliseconds, double step_ms) {
    if (milliseconds > 0)
        fprintf(out, " %7.2f %5.1f", milliseconds, 100 * milliseconds / step_ms);
    else
        fprintf(out, " %7s %5s", "-", "-");
}

/* kind: of the figures, "mean". */
static void print_head(FILE *out, int devices, const char *kind, const compare_mode *const *columns,
                       int count, const char *units) {
    char head[32];
    snprintf(head, sizeof head, "%d devices", devices);
    fprintf(out, "\n%-10s", head);
    for (int i = 0; i < count; i++)
        fprintf(out, " %13s", compare_kind_name(columns[i]->kind));
    fprintf(out, "\n%-10s", kind);
    for (int i = 0; i < count; i++)
        fputs(units, out);
    fputc('\n', out);
}

static void print_stages(FILE *out, const compare_result *result, int devices,
                         bool shown[YOKE_ACCOUNT_STAGES]) {
    const compare_mode *columns[COLUMNS];
    yoke_account accounts[COLUMNS];
    int count = choose_columns(result, devices, columns);
    for (int i = 0; i < count; i++)
        accounts[i] = compare_mean_account(columns[i]);
    print_head(out, devices, "mean", columns, count, "      ms     %");
    for (int stage = 0; stage < YOKE_ACCOUNT_STAGES; stage++) {
        if (stage != YOKE_STAGE_IDLE && !is_shown(stage, accounts, count)) continue;
        shown[stage] = true;
        fprintf(out, "%-10s", yoke_account_name(stage));
        for (int i = 0; i < count; i++)
            print_cell(out, accounts[i].stage_ms[stage], accounts[i].step_ms);
        fputc('\n', out);
    }
    fprintf(out, "%-10s", "step");
    for (int i = 0; i < count; i++)
        print_cell(out, accounts[i].step_ms, accounts[i].step_ms);
    fputc('\n', out);
}

static void print_stage_meanings(FILE *out, const bool shown[YOKE_ACCOUNT_STAGES]) {
    fprintf(out, "  Each figure is a mean over the devices; the rows add up to the step. Where\n"
                 "  stages overlap, computation counts before communication, and that before a\n"
                 "  wait.\n");
    for (int stage = 0; stage < YOKE_STAGE_COUNT; stage++)
        if (shown[stage])
            fprintf(out, "  %s: %s\n", yoke_stage_name((yoke_stage)stage),
                    yoke_account_meaning(stage));
    fprintf(out, "  idle: no stage runs, and the device is not known to wait\n"
                 "  step: step ms of the table above\n");
}

static void print_unrecorded(FILE *out, const compare_result *result) {
    char names[COMPARE_NAMES_BYTES];
    if (compare_unrecorded_names(result, names)[0] == '\0') return;
    fprintf(out, "  %s: -, here and below;\n", names);
    fprintf(out, "  no stages, memory or bytes of them are recorded\n");
}

/* What memory it takes and what it moves. */

typedef double figure_function(const compare_device *device);

static double weights_of(const compare_device *device) {
    return device->memory.weights;
}

static double gradients_of(const compare_device *device) {
    return device->memory.gradients;
}

static double optimizer_of(const compare_device *device) {
    return device->memory.optimizer;
}

static double activations_of(const compare_device *device) {
    return device->memory.activations;
}

static double other_of(const compare_device *device) {
    return device->memory.other;
}

static double total_of(const compare_device *device) {
    return device->memory.total;
}

static double moved_of(const compare_device *device) {
    return compare_moved(&device->account);
}

static double sent_of(const compare_device *device) {
    return device->account.sent;
}

static double received_of(const compare_device *device) {
    return device->account.received;
}

/* Modelled links replace memory as the way that bytes take. */
typedef enum row_kind { ALWAYS, IN_MEMORY, ON_LINKS } row_kind;

static const struct {
    const char *name, *meaning;
    figure_function *figure;
    row_kind kind;
} memory_rows[] = {
    {"weights", "weights: with running statistics", weights_of, ALWAYS},
    {"gradients", "gradients: with the sums of several rounds or backward calls", gradients_of,
     ALWAYS},
    {"optimizer", "optimizer: momenta or moments", optimizer_of, ALWAYS},
    {"activ.", "activ.: activations, the values of forward and backward", activations_of, ALWAYS},
    {"other", "other: scratch memory of operations, and the batch", other_of, ALWAYS},
    {"total", "total: all that the device has allocated; it does not grow later", total_of, ALWAYS},
    {"moved", "moved: read and written in a step outside forward, loss and backward", moved_of,
     IN_MEMORY},
    {"sent", "sent: over the device's link in a step", sent_of, ON_LINKS},
    {"received", "received: likewise", received_of, ON_LINKS},
};
#define MEMORY_ROWS (sizeof memory_rows / sizeof memory_rows[0])

static bool is_row_shown(const compare_result *result, size_t row) {
    row_kind kind = memory_rows[row].kind;
    return kind == ALWAYS || (kind == ON_LINKS) == (result->setup.link[0] != '\0');
}

static void print_amount(FILE *out, double bytes, double unit, int width) {
    if (bytes > 0)
        fprintf(out, " %*.*f", width, bytes < 10 * unit ? 2 : 1, bytes / unit);
    else
        fprintf(out, " %*s", width, "-");
}

static double largest_other(const compare_mode *mode, figure_function *figure) {
    double largest = 0;
    for (int i = 1; i < mode->devices; i++)
        largest = fmax(largest, figure(&mode->parts[i]));
    return largest;
}

static void print_memory(FILE *out, const compare_result *result, int devices) {
    const compare_mode *columns[COLUMNS];
    int count = choose_columns(result, devices, columns);
    double most = 0;
    for (int i = 0; i < count; i++)
        most = fmax(most, fmax(total_of(&columns[i]->parts[0]), moved_of(&columns[i]->parts[0])));
    double unit = most < 1000 * MEBIBYTE ? MEBIBYTE : GIBIBYTE;
    print_head(out, devices, "", columns, count, "   root others");
    for (size_t row = 0; row < MEMORY_ROWS; row++) {
        if (!is_row_shown(result, row)) continue;
        fprintf(out, "%-10s", memory_rows[row].name);
        for (int i = 0; i < count; i++) {
            print_amount(out, memory_rows[row].figure(&columns[i]->parts[0]), unit, 7);
            print_amount(out, largest_other(columns[i], memory_rows[row].figure), unit, 5);
        }
        fputc('\n', out);
    }
    fprintf(out, "  In %s. root: device or rank 0; others: the largest of them\n",
            unit < GIBIBYTE ? "MiB" : "GiB");
}

void compare_print(FILE *out, const compare_result *result) {
    bool shown[YOKE_ACCOUNT_STAGES] = {false};
    print_width(out);
    print_setup(out, result);
    print_learned(out, result);
    print_raced(out, result);
    for (int i = 0; i < result->mode_count; i++)
        if (result->modes[i].kind == COMPARE_CLASSIC)
            print_stages(out, result, result->modes[i].devices, shown);
    print_stage_meanings(out, shown);
    print_unrecorded(out, result);
    for (int i = 0; i < result->mode_count; i++)
        if (result->modes[i].kind == COMPARE_CLASSIC)
            print_memory(out, result, result->modes[i].devices);
    for (size_t row = 0; row < MEMORY_ROWS; row++)
        if (is_row_shown(result, row)) fprintf(out, "  %s\n", memory_rows[row].meaning);
    compare_print_sentences(out, result);
}
