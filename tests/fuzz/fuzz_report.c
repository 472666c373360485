/* SPDX-License-Identifier: Apache-2.0 */
/* Traces and metrics: the stages of what was read add up to the step, and it makes a page. */
#include <math.h>

#include "fuzz/fuzz.h"
#include "report/report.h"

static void check_sums(const yoke_report_mode *mode) {
    for (int i = 0; i < mode->lane_count; i++) {
        double sum = 0;
        if (mode->lanes[i].kind != YOKE_LANE_DEVICE) continue; /* counts as a part of its device */
        for (int stage = 0; stage < YOKE_ACCOUNT_STAGES; stage++)
            sum += mode->lanes[i].stage_ms[stage];
        if (isfinite(mode->mean_step_ms) &&
            fabs(sum - mode->mean_step_ms) > 1e-6 * mode->mean_step_ms)
            abort();
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    yoke_report report = {0};
    char *own = fuzz_copy(data, size), *page = NULL;
    size_t bytes;
    if (yoke_report_read(&report, "fuzzed", own, size) == YOKE_OK) {
        for (int i = 0; i < report.mode_count; i++)
            check_sums(&report.modes[i]);
        if (yoke_report_page(&report, &page, &bytes) != YOKE_OK) abort();
    }
    free(page);
    free(own);
    yoke_report_clear(&report);
    return 0;
}
