/* SPDX-License-Identifier: Apache-2.0 */
/* What participants make of the numbers that they have gathered: all of them the same, to the bit
 * (Chan, Golub and LeVeque 1983). */
#include "device/norm_group.h"

#include <string.h>

yoke_status yoke_norm_gather(const yoke_norm_group *group, bool alone, bool idle, double *own,
                             size_t count, yoke_norm_gathered *gathered) {
    *gathered = (yoke_norm_gathered){own, alone ? 1 : group->participants, count};
    if (alone) return YOKE_OK;
    if (idle) memset(own, 0, count * sizeof *own);
    return group->all_gather(group->context, own, count, &gathered->all);
}

static const double *of_participant(const yoke_norm_gathered *from, int k) {
    return from->all + (size_t)k * from->count;
}

yoke_status yoke_norm_total(const yoke_norm_gathered *from, bool alone, double *total) {
    *total = 0;
    for (int k = 0; k < from->participants; k++)
        *total += of_participant(from, k)[0];
    if (*total == 1 && !alone)
        return FAIL(
            YOKE_ERROR_ARGUMENT,
            "batch norm in training needs more than 1 value per channel, got 1 row of [%zu, "
            "1, 1] on all devices together; give the batch at least 2 rows",
            (from->count - 1) / 2);
    return YOKE_OK;
}

void yoke_norm_combine(const yoke_norm_gathered *from, double total, float *mean, float *variance) {
    size_t channels = (from->count - 1) / 2;
    for (size_t c = 0; c < channels; c++) {
        double sum = 0, deviations = 0;
        for (int k = 0; k < from->participants; k++) {
            const double *own = of_participant(from, k);
            if (own[0] > 0) sum += own[0] * own[1 + c];
        }
        double whole = sum / total;
        for (int k = 0; k < from->participants; k++) {
            const double *own = of_participant(from, k);
            double apart = own[1 + c] - whole;
            if (own[0] > 0) deviations += own[1 + channels + c] + own[0] * apart * apart;
        }
        mean[c] = (float)whole;
        variance[c] = (float)(deviations / total);
    }
}

double yoke_norm_sum(const yoke_norm_gathered *from, size_t at) {
    double sum = 0;
    for (int k = 0; k < from->participants; k++)
        sum += of_participant(from, k)[at];
    return sum;
}
