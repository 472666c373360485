/* SPDX-License-Identifier: Apache-2.0 */
/* What a stage moves between the root and the lanes, on modelled links: the stage lasts until its
 * last transfer would be over, and the timeline shows the transfers in place of the copies in
 * memory. exchange_links.c does so for buckets. */
#include "links/links.h"

#include "parallel/observers/observers.h"

yoke_status yoke_modelled_links_create(yoke_step *step) {
    yoke_link link;
    if (step->options.link == NULL) return YOKE_OK;
    TRY(yoke_link_parse(&link, step->options.link));
    if (step->queued)
        return FAIL(YOKE_ERROR_ARGUMENT,
                    "link %s: GPUs have links of their own; leave link out, or use CPU devices",
                    step->options.link);
    int devices = step->ranks.world > 1 ? step->ranks.world : step->count;
    return devices > 1 ? yoke_links_create(&step->watch.links, &link, devices) : YOKE_OK;
}

static void before_stage(yoke_step *step, const yoke_stage_def *stage) {
    yoke_watch *watch = &step->watch;
    if (stage->bytes == NULL || (stage->travels != NULL && !stage->travels(step))) return;
    watch->modelled = stage;
    watch->modelled_begin_ns = yoke_trace_now();
    watch->modelled_bytes[0] = 0;
    for (int k = 1; k < step->count; k++)
        watch->modelled_bytes[k] = stage->bytes(step, k);
}

static void record(yoke_step *step, int lane, uint64_t begin_ns, uint64_t end_ns) {
    const yoke_watch *watch = &step->watch;
    yoke_link_bytes carried = yoke_links_take(watch->links, lane);
    yoke_span span = {.begin_ns = begin_ns,
                      .end_ns = end_ns,
                      .step = step->steps,
                      .bytes = watch->modelled_bytes[lane],
                      .sent = carried.sent,
                      .received = carried.received,
                      .stage = watch->modelled->stage,
                      .bucket = YOKE_NO_BUCKET};
    yoke_trace_past_span(watch->trace, lane, &span);
    span.track = YOKE_TRACK_LINK;
    span.bytes = carried.sent + carried.received;
    span.sent = span.received = 0; /* so that nobody counts them twice */
    yoke_trace_past_span(watch->trace, lane, &span);
}

/* All devices take part in a chain from its begin to its end. */
static uint64_t pass_chain(yoke_step *step, const yoke_stage_def *stage, uint64_t *ends_ns) {
    const yoke_watch *watch = &step->watch;
    size_t bytes = 0;
    for (int k = 1; k < step->count; k++)
        if (watch->modelled_bytes[k] > bytes) bytes = watch->modelled_bytes[k];
    if (bytes == 0) return watch->modelled_begin_ns;
    uint64_t end_ns = yoke_links_collective(watch->links, YOKE_ROUTE_CHAIN,
                                            stage->to_root ? YOKE_HALF_SUM : YOKE_HALF_PUBLISH,
                                            bytes, watch->modelled_begin_ns);
    for (int k = 0; k < step->count; k++)
        ends_ns[k] = end_ns;
    return end_ns;
}

/* Between two jobs: sleeps until the last transfer is over. Every lane has its transfer, with its
 * bytes, and the root the whole stage. */
static yoke_status after_stage(yoke_step *step, const yoke_stage_def *stage) {
    yoke_watch *watch = &step->watch;
    uint64_t ends_ns[YOKE_DEVICES_LIMIT];
    if (watch->modelled != stage) return YOKE_OK;
    /* NCCL has no scatter and no gather of outputs: those stay copies. */
    bool chain = step->options.collectives == YOKE_COLLECTIVES_NCCL &&
                 (stage->stage == YOKE_STAGE_REPLICATE || stage->stage == YOKE_STAGE_REDUCE);
    uint64_t last_ns =
        chain ? pass_chain(step, stage, ends_ns)
              : yoke_links_root_stage(watch->links, stage->to_root, watch->modelled_bytes,
                                      watch->modelled_begin_ns, ends_ns);
    for (int k = 1; k < step->count; k++) {
        if (watch->modelled_bytes[k] == 0) continue;
        uint64_t span_ns = yoke_links_span(watch->links, watch->modelled_bytes[k]);
        uint64_t begin_ns = chain ? watch->modelled_begin_ns : ends_ns[k] - span_ns;
        record(step, k, begin_ns, ends_ns[k]);
        /* Spans of a lane lie in each other or apart: a wait that began during the transfer, and
         * would end behind it, begins at its end. */
        uint64_t *idle_ns = &step->lanes[k].idle_ns;
        if (begin_ns <= *idle_ns && *idle_ns < ends_ns[k]) *idle_ns = ends_ns[k];
    }
    if (last_ns > yoke_trace_now()) yoke_links_await(last_ns);
    record(step, 0, watch->modelled_begin_ns, yoke_trace_now());
    watch->modelled = NULL;
    return YOKE_OK;
}

const yoke_observer yoke_observe_links = {.before_stage = before_stage, .after_stage = after_stage};
