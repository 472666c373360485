/* What the tables say, in sentences; only what lies outside the interval is called a difference. */
#include <math.h>
#include <string.h>

#define NAMED_SHARE 5e-3 /* of a step; shorter stages are not worth a word */
#include "compare.h"

/* Learning. */

/* Of those compared with single, or of those compared with as many devices. */
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

static void tell_learning(FILE *out, const comparison *all) {
    bool same_bits, single_bits;
    double among = most_different(all, false, &same_bits);
    double single = most_different(all, true, &single_bits);
    if (!compare_all_equal(all))
        fprintf(out, "NOT ALL LEARNED THE SAME: losses differ by %.1e, %g is allowed.\n",
                fmax(among, single), all->tolerance);
    else if (same_bits)
        fprintf(out, "The same number of devices learned the same weights, to the bit.\n");
    else
        fprintf(out,
                "The same number of devices learned the same, to rounding: losses within %.1e.\n",
                among);
    if (all->contenders[0].facts.batch_norm)
        fprintf(out, "Batch norm normalises each device's rows by themselves: another number of "
                     "devices is\nanother computation, and single's losses are its own.\n");
    else if (compare_all_equal(all))
        fprintf(out, "Their losses are single's within %.1e.\n", single);
}

/* Speed. */

typedef struct pair {
    const compare_contender *one, *other;
} pair;

static void tell_faster(FILE *out, const comparison *all, pair who) {
    race_ratio ratio =
        race_compare(&all->race, compare_index(all, who.one), compare_index(all, who.other), 100);
    const char *one = compare_kind_name(who.one->kind), *other = compare_kind_name(who.other->kind);
    if (ratio.low <= 100 && ratio.high >= 100)
        fprintf(out, "%d rounds cannot tell %s from %s on %d devices: ", all->race.done, one, other,
                who.one->devices);
    else
        fprintf(out, "On %d devices %s is %s than %s: ", who.one->devices, one,
                ratio.median > 100 ? "faster" : "slower", other);
    fprintf(out, "%.1f %% of its speed\n(95 %% interval %.1f .. %.1f).\n", ratio.median, ratio.low,
            ratio.high);
}

/* In these stages no device computes its rows. */
static void tell_lost_time(FILE *out, const compare_contender *classic) {
    static const yoke_stage idle[] = {YOKE_STAGE_SCATTER, YOKE_STAGE_REPLICATE, YOKE_STAGE_REDUCE,
                                      YOKE_STAGE_UPDATE, YOKE_STAGE_GATHER};
    const char *comma = "";
    double percent = 0;
    for (size_t i = 0; i < sizeof idle / sizeof idle[0]; i++)
        percent += 100 * compare_stage_share(&classic->stages, idle[i]);
    fprintf(out, "In dp classic neither forward nor backward runs for %.1f %% of a step", percent);
    for (size_t i = 0; i < sizeof idle / sizeof idle[0]; i++) {
        if (compare_stage_share(&classic->stages, idle[i]) < NAMED_SHARE) continue;
        fprintf(out, "%s%s %.2f ms", comma[0] == '\0' ? ":\n" : comma, yoke_stage_name(idle[i]),
                compare_stage_ms(&classic->stages, idle[i]));
        comma = ", ";
    }
    fprintf(out, ".\n");
}

/* What ddp does beyond the same forward and backward. */
static void tell_ranks(FILE *out, const compare_contender *ddp, const compare_contender *overlap) {
    if (compare_stage_share(&ddp->stages, YOKE_STAGE_UPDATE) >= NAMED_SHARE)
        fprintf(out,
                "Each ddp rank updates all weights (%.2f ms of a step); the devices of dp overlap "
                "share that\n(%.2f ms, with the reduction: exchange).\n",
                compare_stage_ms(&ddp->stages, YOKE_STAGE_UPDATE),
                compare_stage_ms(&overlap->stages, YOKE_STAGE_EXCHANGE));
    fprintf(
        out,
        "A ddp rank spends %.1f %% of its time waiting for gradients that backward did not hide "
        "(median\n%.2f ms of a step).\n",
        100 * compare_stage_share(&ddp->stages, YOKE_STAGE_WAIT),
        compare_stage_ms(&ddp->stages, YOKE_STAGE_WAIT));
}

void compare_interpret(FILE *out, const comparison *all) {
    int devices = all->contenders[all->count - 1].devices;
    const compare_contender *classic = compare_find(all, COMPARE_CLASSIC, devices);
    const compare_contender *overlap = compare_find(all, COMPARE_OVERLAP, devices);
    const compare_contender *ddp = compare_find(all, COMPARE_DDP, devices);
    fputc('\n', out);
    if (all->learn_steps > 0) tell_learning(out, all);
    if (ddp != NULL) tell_faster(out, all, (pair){ddp, overlap});
    tell_faster(out, all, (pair){classic, overlap});
    tell_lost_time(out, classic);
    if (ddp != NULL) tell_ranks(out, ddp, overlap);
    if (all->ddp_left_out)
        fprintf(out, "ddp was left out where devices share a GPU: NCCL takes one rank of each.\n");
    if (all->cores > 0 && all->setup.threads * devices > all->cores)
        fprintf(out, "%d devices share %d core%s: they take turns, so speed-up ends there.\n",
                devices, all->cores, all->cores == 1 ? "" : "s");
}
