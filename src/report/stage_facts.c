/* SPDX-License-Identifier: Apache-2.0 */
#include "report/stage_facts.h"

#include <stdio.h>
#include <string.h>

#include "report/html.h"

static const char *const sources[YOKE_STAGE_COUNT] = {
    [YOKE_STAGE_LOAD] = "src/data/loader.c",
    [YOKE_STAGE_SCATTER] = "src/parallel/scatter.c",
    [YOKE_STAGE_REPLICATE] = "src/parallel/replicate.c",
    [YOKE_STAGE_PYTHON] = "src/parallel/interpreter.c",
    [YOKE_STAGE_FORWARD] = "src/parallel/lane.c",
    [YOKE_STAGE_LOSS] = "src/parallel/root_loss.c",
    [YOKE_STAGE_BACKWARD] = "src/parallel/lane.c",
    [YOKE_STAGE_REDUCE] = "src/parallel/exchange_threads.c",
    [YOKE_STAGE_UPDATE] = "src/parallel/exchange.c",
    [YOKE_STAGE_EXCHANGE] = "src/parallel/exchange.c",
    [YOKE_STAGE_ALL_REDUCE] = "src/parallel/exchange_all_reduce.c",
    [YOKE_STAGE_WAIT] = "src/parallel/waits.c",
    [YOKE_STAGE_GATHER] = "src/parallel/gather.c",
    [YOKE_STAGE_STEP] = "src/parallel/data_parallel.c",
    [YOKE_STAGE_EVALUATE] = "src/parallel/data_parallel.c",
};

static const char *const meanings[] = {
#define STAGE_MEANING(name, text, what) what,
    YOKE_STAGE_TABLE(STAGE_MEANING)
#undef STAGE_MEANING
};

stage_fact yoke_stage_fact(int stage) {
    if (stage == YOKE_REPORT_WAITING)
        return (stage_fact){"wait", "no stage runs here, and another device works", NULL};
    if (stage == YOKE_REPORT_IDLE)
        return (stage_fact){
            "idle", "no stage runs here: the device waits for another one, or for the host", NULL};
    return (stage_fact){yoke_stage_name((yoke_stage)stage), meanings[stage], sources[stage]};
}

static bool is_in_style(const char *name) {
    for (const char *const *part = yoke_html_style(); *part != NULL; part++)
        if (strstr(*part, name) != NULL) return true;
    return false;
}

yoke_svg_part yoke_stage_part(int stage) {
    yoke_svg_part part = {.name = yoke_stage_fact(stage).name};
    snprintf(part.style, sizeof part.style, "s-%s", part.name);
    if (!is_in_style(part.style)) snprintf(part.style, sizeof part.style, "s-other");
    return part;
}

bool yoke_stage_waits(int stage) {
    return stage == YOKE_STAGE_LOAD || stage == YOKE_STAGE_WAIT || stage == YOKE_REPORT_WAITING ||
           stage == YOKE_REPORT_IDLE;
}
