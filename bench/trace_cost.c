/* SPDX-License-Identifier: Apache-2.0 */
/* What tracing costs: the time to record one span, the clock readings included, and the share of a
 * step that all its spans take, lane by lane.
 *
 *   trace_cost [model] [devices]     resnet20, 2xcpu
 */
#include <stdio.h>
#include <stdlib.h>

#include "parallel/parallel.h"
#include "trace/spans.h"
#include "yoke/yoke.h"

enum { PASSES = 9, SPANS = 1000000, STEPS = 30 };

static int fail(void) {
    fprintf(stderr, "%s\n", yoke_last_error());
    return 1;
}

static int compare_reals(const void *left, const void *right) {
    double a = *(const double *)left, b = *(const double *)right;
    return (a > b) - (a < b);
}

static void print_lanes(yoke_data_parallel *engine, double each_ns, double step_ms) {
    const yoke_trace *trace = yoke_data_parallel_trace(engine);
    for (int lane = 0; lane < trace->lane_count; lane++) {
        double spans = (double)yoke_lane_count(trace, lane) / STEPS;
        printf("%s  %.1f spans a step, %.2f us of %.2f ms: %.4f %%\n", trace->lanes[lane].name,
               spans, spans * each_ns / 1e3, step_ms, spans * each_ns / (step_ms * 1e4));
    }
}

int main(int argc, char **argv) {
    const char *lane = "cpu:0";
    yoke_trace_options options = {.lanes = &lane, .lane_count = 1};
    yoke_trainer_options run = YOKE_TRAINER_OPTIONS_INIT;
    yoke_trainer_summary summary = {.struct_size = sizeof summary};
    yoke_trace *trace = NULL;
    yoke_trainer *trainer = NULL;
    run.model = argc > 1 ? argv[1] : "resnet20";
    run.devices = argc > 2 ? argv[2] : "2xcpu";
    run.steps = STEPS;
    run.evaluate_every = -1;
    if (yoke_trace_create(&trace, &options) != YOKE_OK) return fail();
    /* The median over passes; the ring is as large as an engine's, so that its memory is as cold.
     */
    double passes[PASSES];
    for (int pass = 0; pass < PASSES; pass++) {
        uint64_t begin = yoke_trace_now();
        for (uint64_t i = 0; i < SPANS; i++)
            yoke_trace_span(trace, 0, YOKE_STAGE_BACKWARD, i, yoke_trace_now(), 0);
        passes[pass] = (double)(yoke_trace_now() - begin) / SPANS;
    }
    qsort(passes, PASSES, sizeof *passes, compare_reals);
    double each_ns = passes[PASSES / 2];
    yoke_trace_destroy(trace);
    printf("one span  %.1f ns\n", each_ns);
    if (yoke_trainer_create(&trainer, &run) != YOKE_OK || yoke_trainer_run(trainer) != YOKE_OK ||
        yoke_trainer_summarize(trainer, &summary) != YOKE_OK)
        return fail();
    print_lanes(yoke_trainer_engine(trainer), each_ns, summary.step_ms_median);
    yoke_trainer_destroy(trainer);
    return 0;
}
