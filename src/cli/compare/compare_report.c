/* A comparison for people: tables of what each contender learned, how fast it was and how long its
 * stages took; then sentences on what the tables say. */
#include <inttypes.h>
#include <math.h>

#include "cli/compare/compare.h"

#define SHOWN_SHARE 5e-4 /* the tables leave out a stage below it in every column */
#define NAMED_SHARE 5e-3 /* the sentences leave out a stage below it */

/* Tables. */

static void print_setup(FILE *out, const comparison *all) {
    static const char *const precisions[] = {"float32", "bfloat16", "tf32"};
    const compare_setup *setup = &all->setup;
    fprintf(out, "model    %s, %zu parameters, %s%s\n", setup->model,
            all->contenders[0].facts.parameters, precisions[setup->precision],
            setup->algorithm == YOKE_ALGORITHM_DIRECT ? ", direct algorithms" : "");
    fprintf(out, "data     %s, batches of %d, seed %" PRIu64 "\n", setup->dataset, setup->batch,
            setup->seed);
    fprintf(out, "devices  %d x %s", setup->device_count, all->processor);
    if (all->cores > 0)
        fprintf(out, ", %d thread%s each, %d core%s", setup->threads,
                setup->threads == 1 ? "" : "s", all->cores, all->cores == 1 ? "" : "s");
    fputc('\n', out);
}

static void print_name(FILE *out, const compare_contender *contender) {
    fprintf(out, "%-12s %7d", compare_kind_name(contender->kind), contender->devices);
}

static void print_equality(FILE *out, compare_equality equality) {
    if (equality.with == NULL) return;
    const char *with = compare_kind_name(equality.with->kind);
    fputs("  ", out);
    if (equality.verdict == COMPARE_SAME_BITS)
        fprintf(out, "same bits as %s", with);
    else
        fprintf(out, "%s by %.1e from %s",
                equality.verdict == COMPARE_ROUNDING ? "losses differ" : "LOSSES DIFFER",
                equality.difference, with);
}

static void print_learned(FILE *out, const comparison *all) {
    if (all->learn_steps == 0) return;
    fprintf(out, "\n%-12s %7s  %11s  %-16s  %s\n", "learned", "devices", "last loss", "weights",
            "compared");
    for (int i = 0; i < all->count; i++) {
        const compare_contender *contender = &all->contenders[i];
        const compare_learned *learned = &contender->learned;
        print_name(out, contender);
        fprintf(out, "  %11.8f  %016" PRIx64, learned->losses[learned->steps - 1], learned->hash);
        print_equality(out, compare_equality_of(all, contender));
        fputc('\n', out);
    }
}

static void print_raced(FILE *out, const comparison *all) {
    fprintf(out, "\n%-12s %7s  %9s  %-19s %9s  %8s  %10s\n", "raced", "devices", "step ms",
            "95 % interval", "img/s", "speed-up", "efficiency");
    for (int i = 0; i < all->count; i++) {
        const compare_contender *contender = &all->contenders[i];
        race_ratio times = race_times(&all->race, i, 1);
        char interval[32];
        snprintf(interval, sizeof interval, "%.2f .. %.2f", times.low, times.high);
        print_name(out, contender);
        fprintf(out, "  %9.2f  %-19s %9.0f  %8.2f  %8.0f %%\n", times.median, interval,
                compare_images(all, contender).median, compare_speedup(all, contender).median,
                100 * compare_efficiency(all, contender).median);
    }
    fprintf(out, "%d rounds of %d steps each", all->race.done, all->race.steps);
    if (all->race.noisy > 0)
        fprintf(out, "; other programs disturbed %d of them, so these figures are rough",
                all->race.noisy);
    fputc('\n', out);
}

/* The columns: single, and every contender on so many devices. */
static int choose_columns(const comparison *all, int devices,
                          const compare_contender *columns[COMPARE_KINDS]) {
    int count = 0;
    columns[count++] = &all->contenders[0];
    for (int kind = COMPARE_CLASSIC; kind < COMPARE_KINDS; kind++) {
        const compare_contender *contender = compare_find(all, (compare_kind)kind, devices);
        if (contender != NULL) columns[count++] = contender;
    }
    return count;
}

static bool is_shown(yoke_stage stage, const compare_contender *const *columns, int count) {
    bool shown = false;
    for (int i = 0; i < count; i++)
        shown = shown || compare_stage_share(&columns[i]->stages, stage) >= SHOWN_SHARE;
    return shown && stage != YOKE_STAGE_EVALUATE;
}

static void print_stage(FILE *out, yoke_stage stage, const compare_contender *const *columns,
                        int count) {
    fprintf(out, "%-12s", yoke_stage_name(stage));
    for (int i = 0; i < count; i++) {
        double share = 100 * compare_stage_share(&columns[i]->stages, stage);
        if (share > 0)
            fprintf(out, " %8.2f %5.1f", compare_stage_ms(&columns[i]->stages, stage), share);
        else
            fprintf(out, " %8s %5s", "-", "-");
    }
    fputc('\n', out);
}

static void print_stages(FILE *out, const comparison *all, int devices) {
    const compare_contender *columns[COMPARE_KINDS];
    int count = choose_columns(all, devices, columns);
    char head[32];
    snprintf(head, sizeof head, "%d devices", devices);
    fprintf(out, "\n%-12s", head);
    for (int i = 0; i < count; i++)
        fprintf(out, " %14s", compare_kind_name(columns[i]->kind));
    fprintf(out, "\n%-12s", "stage");
    for (int i = 0; i < count; i++)
        fprintf(out, " %8s %5s", "ms", "%");
    fputc('\n', out);
    for (int stage = 0; stage < YOKE_STAGE_COUNT; stage++)
        if (is_shown((yoke_stage)stage, columns, count))
            print_stage(out, (yoke_stage)stage, columns, count);
}

/* Sentences. Only what lies outside the interval counts as a difference. */

/* Over the contenders compared with single, or over those compared with as many devices. */
static double most_different(const comparison *all, bool single, bool *same_bits) {
    double most = 0;
    *same_bits = true;
    for (int i = 0; i < all->count; i++) {
        compare_equality equality = compare_equality_of(all, &all->contenders[i]);
        if (equality.with == NULL || (equality.with->kind == COMPARE_SINGLE) != single) continue;
        most = fmax(most, equality.difference);
        *same_bits = *same_bits && equality.verdict == COMPARE_SAME_BITS;
    }
    return most;
}

static void print_learning(FILE *out, const comparison *all) {
    bool same_bits, single_bits;
    double among = most_different(all, false, &same_bits);
    double single = most_different(all, true, &single_bits);
    if (!compare_all_equal(all))
        fprintf(out, "NOT ALL LEARNED THE SAME: losses differ by %.1e; the tolerance is %g.\n",
                fmax(among, single), all->tolerance);
    else if (same_bits)
        fprintf(out, "Contenders on as many devices learned the same weights, bit for bit.\n");
    else
        fprintf(out,
                "Contenders on as many devices learned the same up to rounding: losses differ "
                "by\n%.1e at most.\n",
                among);
    if (all->contenders[0].facts.batch_norm)
        fprintf(out, "Batch norm normalizes the rows of each device alone, so another number of "
                     "devices computes\nsomething else: the losses of single stand alone.\n");
    else if (compare_all_equal(all))
        fprintf(out, "Their losses differ from those of single by %.1e at most.\n", single);
}

typedef struct pair {
    const compare_contender *one, *other;
} pair;

static void print_faster(FILE *out, const comparison *all, pair who) {
    race_ratio ratio =
        race_compare(&all->race, compare_index(all, who.one), compare_index(all, who.other), 100);
    const char *one = compare_kind_name(who.one->kind), *other = compare_kind_name(who.other->kind);
    fprintf(out, "On %d devices ", who.one->devices);
    if (ratio.low <= 100 && ratio.high >= 100)
        fprintf(out, "%d rounds show no difference between %s and %s", all->race.done, one, other);
    else
        fprintf(out, "%s is %s than %s", one, ratio.median > 100 ? "faster" : "slower", other);
    fprintf(out, ": %.1f %% of the speed\n(95 %% interval %.1f .. %.1f).\n", ratio.median,
            ratio.low, ratio.high);
}

/* The stages in which no device computes its rows. */
static void print_lost_time(FILE *out, const compare_contender *classic) {
    static const yoke_stage idle[] = {YOKE_STAGE_SCATTER, YOKE_STAGE_REPLICATE, YOKE_STAGE_REDUCE,
                                      YOKE_STAGE_UPDATE, YOKE_STAGE_GATHER};
    const char *comma = "";
    double percent = 0;
    for (size_t i = 0; i < sizeof idle / sizeof idle[0]; i++)
        percent += 100 * compare_stage_share(&classic->stages, idle[i]);
    fprintf(out, "In dp classic, no device runs forward or backward for %.1f %% of a step",
            percent);
    for (size_t i = 0; i < sizeof idle / sizeof idle[0]; i++) {
        if (compare_stage_share(&classic->stages, idle[i]) < NAMED_SHARE) continue;
        fprintf(out, "%s%s %.2f ms", comma[0] == '\0' ? ":\n" : comma, yoke_stage_name(idle[i]),
                compare_stage_ms(&classic->stages, idle[i]));
        comma = ", ";
    }
    fprintf(out, ".\n");
}

/* What ddp does besides forward and backward. */
static void print_ranks(FILE *out, const compare_contender *ddp, const compare_contender *overlap) {
    if (compare_stage_share(&ddp->stages, YOKE_STAGE_UPDATE) >= NAMED_SHARE)
        fprintf(out,
                "Each ddp rank updates all weights (%.2f ms of a step); the devices of dp overlap "
                "share the\nupdate (%.2f ms with the reduction, as stage exchange).\n",
                compare_stage_ms(&ddp->stages, YOKE_STAGE_UPDATE),
                compare_stage_ms(&overlap->stages, YOKE_STAGE_EXCHANGE));
    fprintf(
        out,
        "A ddp rank waits %.1f %% of its time for gradients: all-reduces that backward does not "
        "hide (median\n%.2f ms of a step).\n",
        100 * compare_stage_share(&ddp->stages, YOKE_STAGE_WAIT),
        compare_stage_ms(&ddp->stages, YOKE_STAGE_WAIT));
}

static void print_sentences(FILE *out, const comparison *all) {
    int devices = all->contenders[all->count - 1].devices;
    const compare_contender *classic = compare_find(all, COMPARE_CLASSIC, devices);
    const compare_contender *overlap = compare_find(all, COMPARE_OVERLAP, devices);
    const compare_contender *ddp = compare_find(all, COMPARE_DDP, devices);
    fputc('\n', out);
    if (all->learn_steps > 0) print_learning(out, all);
    if (ddp != NULL) print_faster(out, all, (pair){ddp, overlap});
    print_faster(out, all, (pair){classic, overlap});
    print_lost_time(out, classic);
    if (ddp != NULL) print_ranks(out, ddp, overlap);
    if (all->ddp_left_out)
        fprintf(out, "No ddp where devices share a GPU: NCCL allows one rank for each GPU.\n");
    if (all->cores > 0 && all->setup.threads * devices > all->cores)
        fprintf(out,
                "%d devices share %d core%s and take turns: more devices bring no more speed.\n",
                devices, all->cores, all->cores == 1 ? "" : "s");
}

void compare_print(FILE *out, const comparison *all) {
    print_setup(out, all);
    print_learned(out, all);
    print_raced(out, all);
    for (int i = 0; i < all->count; i++)
        if (all->contenders[i].kind == COMPARE_CLASSIC)
            print_stages(out, all, all->contenders[i].devices);
    print_sentences(out, all);
}
