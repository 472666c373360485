/* SPDX-License-Identifier: Apache-2.0 */
/* The rows of each device or rank in a batch. */
#include <math.h>

#include "cli/compare/compare_setup.h"

static int least(int a, int b) {
    return a < b ? a : b;
}

static int begin_by_shares(const compare_setup *setup, int participants, int index) {
    double sum = 0, below = 0;
    int begin = 0;
    for (int i = 0; i < participants; i++)
        sum += setup->shares[i];
    for (int k = 1; k <= index; k++) {
        below += setup->shares[k - 1];
        double part = k == participants ? 1 : below / sum;
        int wanted = (int)lround(setup->batch * part);
        begin = least(wanted > begin ? wanted : begin + 1, setup->batch - (participants - k));
    }
    return begin;
}

compare_rows compare_setup_rows(const compare_setup *setup, int participants, int index) {
    int chunk = (setup->batch + participants - 1) / participants;
    int first = least(index * chunk, setup->batch);
    int end = least(first + chunk, setup->batch);
    if (setup->share_count > 0) {
        first = begin_by_shares(setup, participants, index);
        end = begin_by_shares(setup, participants, index + 1);
    }
    return (compare_rows){.first = first, .count = end - first};
}
