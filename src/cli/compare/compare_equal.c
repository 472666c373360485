/* Whether contenders learned the same, and their speeds. */
#include <math.h>
#include <string.h>

#include "cli/compare/compare.h"

const compare_contender *compare_find(const comparison *all, compare_kind kind, int devices) {
    for (int i = 0; i < all->count; i++)
        if (all->contenders[i].kind == kind && all->contenders[i].devices == devices)
            return &all->contenders[i];
    return NULL;
}

int compare_index(const comparison *all, const compare_contender *contender) {
    return (int)(contender - all->contenders);
}

const char *compare_verdict_name(compare_verdict verdict) {
    static const char *const names[] = {"reference", "same bits", "rounding", "different"};
    return names[verdict];
}

/* Contenders on as many devices are compared with dp overlap, and that with single; not with batch
 * norm, where the result depends on the number of devices. */
static const compare_contender *reference_of(const comparison *all,
                                             const compare_contender *contender) {
    if (contender->kind == COMPARE_SINGLE) return contender;
    if (contender->kind != COMPARE_OVERLAP)
        return compare_find(all, COMPARE_OVERLAP, contender->devices);
    return contender->facts.batch_norm ? contender : &all->contenders[0];
}

static double largest_difference(const compare_learned *a, const compare_learned *b) {
    double largest = 0;
    for (int i = 0; i < a->steps; i++) {
        double difference = fabs(a->losses[i] - b->losses[i]) / fabs(b->losses[i]);
        if (a->losses[i] != b->losses[i]) largest = fmax(largest, difference);
    }
    return largest;
}

compare_equality compare_equality_of(const comparison *all, const compare_contender *contender) {
    const compare_contender *with = reference_of(all, contender);
    if (with == contender) return (compare_equality){.verdict = COMPARE_REFERENCE};
    compare_equality found = {
        .with = with, .difference = largest_difference(&contender->learned, &with->learned)};
    bool close = found.difference <= all->tolerance;
    bool same = contender->learned.hash == with->learned.hash;
    found.verdict = !close ? COMPARE_DIFFERENT : same ? COMPARE_SAME_BITS : COMPARE_ROUNDING;
    return found;
}

bool compare_all_equal(const comparison *all) {
    for (int i = 0; i < all->count; i++)
        if (compare_equality_of(all, &all->contenders[i]).verdict == COMPARE_DIFFERENT)
            return false;
    return true;
}

race_ratio compare_images(const comparison *all, const compare_contender *contender) {
    race_ratio times = race_times(&all->race, compare_index(all, contender), 1);
    double rows_a_second = 1e3 * all->setup.batch;
    return (race_ratio){.median = rows_a_second / times.median,
                        .low = rows_a_second / times.high,
                        .high = rows_a_second / times.low};
}

race_ratio compare_speedup(const comparison *all, const compare_contender *contender) {
    return race_compare(&all->race, compare_index(all, contender), 0, 1);
}

race_ratio compare_efficiency(const comparison *all, const compare_contender *contender) {
    return race_compare(&all->race, compare_index(all, contender), 0, 1.0 / contender->devices);
}
