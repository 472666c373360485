/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/staleness.h"

#include <inttypes.h>

/* Up to the stalest push; 0: there were none. */
static int read_counts(const yoke_trainer *trainer, uint64_t counts[YOKE_STALENESS_LIMIT],
                       uint64_t *all) {
    int used = 0;
    *all = 0;
    if (yoke_trainer_staleness(trainer, counts) != YOKE_OK) return 0;
    for (int i = 0; i < YOKE_STALENESS_LIMIT; i++) {
        *all += counts[i];
        if (counts[i] > 0) used = i + 1;
    }
    return used;
}

void print_staleness(FILE *out, const yoke_trainer *trainer) {
    uint64_t counts[YOKE_STALENESS_LIMIT], all;
    int used = read_counts(trainer, counts, &all);
    const char *between = "staleness ";
    for (int i = 0; i < used; i++) {
        double share = 100 * (double)counts[i] / (double)all;
        if (counts[i] == 0) continue;
        fprintf(out, "%s%d%s: %.*f %%", between, i,
                i == YOKE_STALENESS_LIMIT - 1 ? " and more" : "", share < 1 ? 2 : 0, share);
        between = ", ";
    }
    if (used > 0) fputc('\n', out);
}

void staleness_json(yoke_json *json, const yoke_trainer *trainer) {
    uint64_t counts[YOKE_STALENESS_LIMIT], all;
    int used = read_counts(trainer, counts, &all);
    if (used == 0) return;
    yoke_json_open(json, "staleness", '[');
    for (int i = 0; i < used; i++)
        yoke_json_integer(json, NULL, (int64_t)counts[i]);
    yoke_json_close(json, ']');
}
