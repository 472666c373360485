/* SPDX-License-Identifier: Apache-2.0 */
/* Traces and metrics: the stages of what was read add up to the step, and it makes a page, whose
 * model is JSON that no name can end. */
#include <jansson.h>
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

/* The page has a model and a script, and no other; page.js has no such word. */
static void check_page(const char *page) {
    static const char begin[] = "<script type=\"application/json\" id=\"yoke-page\">";
    const char *model = strstr(page, begin);
    const char *end = model != NULL ? strstr(model, "</script>") : NULL;
    int scripts = 0;
    for (const char *at = page; (at = strstr(at, "<script")) != NULL; at++)
        scripts++;
    if (end == NULL || scripts != 2) abort();
    model += sizeof begin - 1;
    json_t *json = json_loadb(model, (size_t)(end - model), JSON_REJECT_DUPLICATES, NULL);
    if (!json_is_array(json_object_get(json, "modes"))) abort();
    json_decref(json);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    yoke_report report = {0};
    char *own = fuzz_copy(data, size), *page = NULL;
    size_t bytes;
    if (yoke_report_read(&report, "fuzzed", own, size) == YOKE_OK) {
        for (int i = 0; i < report.mode_count; i++)
            check_sums(&report.modes[i]);
        if (yoke_report_page(&report, &page, &bytes) != YOKE_OK) abort();
        check_page(page);
    }
    free(page);
    free(own);
    yoke_report_clear(&report);
    return 0;
}
