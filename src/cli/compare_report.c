/* The tables of a comparison: what each contender learned, how fast it was, and in which stages its
 * time went. */
#include <inttypes.h>

#include "compare.h"

#define SHOWN_SHARE 5e-4 /* a stage below it in every column is left out */

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
        fprintf(out, "as %s, to the bit", with);
    else
        fprintf(out, "%s by %.1e from %s",
                equality.verdict == COMPARE_ROUNDING ? "losses off" : "LOSSES DIFFER",
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
        fprintf(out, "; %d of them disturbed by other programs: these figures are rough",
                all->race.noisy);
    fputc('\n', out);
}

/* single, and all that ran on `devices`. */
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

void compare_print(FILE *out, const comparison *all) {
    print_setup(out, all);
    print_learned(out, all);
    print_raced(out, all);
    for (int i = 0; i < all->count; i++)
        if (all->contenders[i].kind == COMPARE_CLASSIC)
            print_stages(out, all, all->contenders[i].devices);
}
