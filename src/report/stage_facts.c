/* SPDX-License-Identifier: Apache-2.0 */
#include "report/stage_facts.h"

static const char *const sources[YOKE_STAGE_COUNT] = {
    [YOKE_STAGE_LOAD] = "src/data/loader.c",
    [YOKE_STAGE_SCATTER] = "src/parallel/stages/scatter.c",
    [YOKE_STAGE_REPLICATE] = "src/parallel/stages/replicate.c",
    [YOKE_STAGE_PYTHON] = "src/parallel/observers/interpreter.c",
    [YOKE_STAGE_FORWARD] = "src/parallel/stages/forward.c",
    [YOKE_STAGE_LOSS] = "src/parallel/stages/loss.c",
    [YOKE_STAGE_BACKWARD] = "src/parallel/stages/backward.c",
    [YOKE_STAGE_REDUCE] = "src/parallel/exchange/exchange_threads.c",
    [YOKE_STAGE_UPDATE] = "src/parallel/exchange/exchange.c",
    [YOKE_STAGE_EXCHANGE] = "src/parallel/exchange/exchange.c",
    [YOKE_STAGE_ALL_REDUCE] = "src/parallel/exchange/exchange_all_reduce.c",
    [YOKE_STAGE_WAIT] = "src/parallel/observers/waits.c",
    [YOKE_STAGE_GATHER] = "src/parallel/stages/gather.c",
    [YOKE_STAGE_STEP] = "src/parallel/engine/data_parallel.c",
    [YOKE_STAGE_EVALUATE] = "src/parallel/engine/data_parallel.c",
};

static const char *const meanings[] = {
#define STAGE_MEANING(name, text, what) what,
    YOKE_STAGE_TABLE(STAGE_MEANING)
#undef STAGE_MEANING
};

stage_fact yoke_stage_fact(int stage) {
    if (stage == YOKE_STAGE_IDLE)
        return (stage_fact){yoke_account_name(stage),
                            "no stage runs here, and the device is not known to wait", NULL};
    return (stage_fact){yoke_account_name(stage), meanings[stage], sources[stage]};
}
