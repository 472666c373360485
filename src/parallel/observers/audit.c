/* SPDX-License-Identifier: Apache-2.0 */
/* options.audit: every so many steps a second device computes a shard, too, and the step compares
 * the digests of its two gradients. Where they differ the step fails, and a trainer does the steps
 * again from a kept state. In that step all devices then compute the shard: the device whose
 * digest, then or before, is not that of the others computes wrong. */
#include <stdlib.h>
#include <string.h>

#include <xxhash.h>

#include "parallel/observers/observers.h"

#define NO_SHARD (-1)

struct yoke_audit {
    int shard, owner; /* of this step; NO_SHARD: it is not audited */
    int second;       /* the lane that computes it again; -1: all do */
    uint64_t digests[YOKE_DEVICES_LIMIT];
    bool suspects;
    yoke_suspicion suspicion; /* of the step that failed last */
    bool judges;
    yoke_suspicion judged; /* to be decided in its step */
};

yoke_status yoke_audit_create(yoke_step *step) {
    const yoke_data_parallel_options *options = &step->options;
    const char *needs = NULL;
    if (options->audit == 0) return YOKE_OK;
    if (options->audit < 0)
        return FAIL(YOKE_ERROR_ARGUMENT, "audit is %d: steps from one to the next, or 0 for none",
                    options->audit);
    if (options->shards == 0) needs = "shards, whose gradients have the same bits on any device";
    if (step->count < 2) needs = "two devices, of which one computes what the other did";
    if (step->queued) needs = "CPU devices";
    if (options->process_group != NULL) needs = "the devices of one process, not ranks";
    if (yoke_steps_by_phases(step)) needs = "schedule overlap or sharded";
    if (needs != NULL) return FAIL(YOKE_ERROR_ARGUMENT, "audit %d needs %s", options->audit, needs);
    step->watch.audit = yoke_calloc(1, sizeof *step->watch.audit);
    if (step->watch.audit == NULL) return FAIL_MEMORY(sizeof *step->watch.audit, "audits");
    step->watch.audit->shard = NO_SHARD;
    return YOKE_OK;
}

bool yoke_audit_suspects(const yoke_step *step, yoke_suspicion *suspicion) {
    const struct yoke_audit *audit = step->watch.audit;
    if (audit == NULL || !audit->suspects) return false;
    *suspicion = audit->suspicion;
    return true;
}

void yoke_audit_judge(yoke_step *step, const yoke_suspicion *suspicion) {
    step->watch.audit->judges = true;
    step->watch.audit->judged = *suspicion;
}

/* Which shard. */

static int owner_of(const yoke_step *step, int shard) {
    int lane = 0;
    while (yoke_deal_first_shard(step, lane) + yoke_deal_shards(step, lane) <= shard)
        lane++;
    return lane;
}

/* All shards in turn, and with each turn of them another second device. */
static void before_step(yoke_step *step) {
    struct yoke_audit *audit = step->watch.audit;
    uint64_t every = (uint64_t)step->options.audit, shards = (uint64_t)step->options.shards;
    uint64_t number = step->steps / every, others = (uint64_t)step->count - 1;
    audit->shard = NO_SHARD;
    audit->suspects = false;
    memset(audit->digests, 0, sizeof audit->digests);
    if (audit->judges && audit->judged.step == step->steps) {
        audit->shard = audit->judged.shard;
        audit->owner = owner_of(step, audit->shard);
        audit->second = -1;
    } else if (step->steps % every == 0) {
        audit->shard = (int)(number % shards);
        audit->owner = owner_of(step, audit->shard);
        audit->second = (audit->owner + 1 + (int)(number / shards % others)) % step->count;
    }
}

int yoke_audited_shard(const yoke_step *step, int lane) {
    const struct yoke_audit *audit = step->watch.audit;
    if (audit == NULL || audit->shard == NO_SHARD || lane == audit->owner) return NO_SHARD;
    return audit->second < 0 || audit->second == lane ? audit->shard : NO_SHARD;
}

/* Digests. */

static yoke_status after_gradient(yoke_step *step, int index, yoke_bucket bucket) {
    struct yoke_audit *audit = step->watch.audit;
    const yoke_lane *lane = &step->lanes[index];
    bool owns = index == audit->owner && !lane->audits &&
                yoke_deal_first_shard(step, index) + lane->round == audit->shard;
    if (audit->shard == NO_SHARD || !(owns || lane->audits)) return YOKE_OK;
    audit->digests[index] =
        XXH3_64bits_withSeed(lane->memory->gradients + bucket.offset,
                             bucket.elements * sizeof(float), audit->digests[index]);
    return YOKE_OK;
}

/* Verdicts. */

static const char *name_of(const yoke_step *step, int lane) {
    return yoke_device_name(step->lanes[lane].device);
}

static int number_of(const yoke_step *step, int lane) {
    return yoke_device_number(step->lanes[lane].device);
}

static yoke_status compare(yoke_step *step) {
    struct yoke_audit *audit = step->watch.audit;
    int one = audit->owner, other = audit->second;
    uint64_t *digests = audit->digests;
    if (digests[one] == digests[other]) return YOKE_OK;
    audit->suspects = true;
    audit->suspicion = (yoke_suspicion){.step = step->steps,
                                        .shard = audit->shard,
                                        .devices = {number_of(step, one), number_of(step, other)},
                                        .digests = {digests[one], digests[other]}};
    return FAIL(YOKE_ERROR_DEVICE,
                "audit of step %llu: %s and %s computed different gradients of shard %d. One of "
                "them computes wrong",
                (unsigned long long)step->steps, name_of(step, one), name_of(step, other),
                audit->shard);
}

/* How many lanes have the digest. */
static int agreeing(const yoke_step *step, uint64_t digest) {
    int count = 0;
    for (int k = 0; k < step->count; k++)
        count += step->watch.audit->digests[k] == digest;
    return count;
}

static int lane_with(const yoke_step *step, int number) {
    for (int k = 0; k < step->count; k++)
        if (number_of(step, k) == number) return k;
    return -1;
}

/* The lane that computes wrong; -1: none does, or it cannot be said. truth: what most have. */
static int find_guilty(const yoke_step *step, uint64_t truth) {
    const struct yoke_audit *audit = step->watch.audit;
    for (int k = 0; k < step->count; k++)
        if (audit->digests[k] != truth) return k;
    for (int i = 0; i < 2; i++)
        if (audit->judged.digests[i] != truth) return lane_with(step, audit->judged.devices[i]);
    return -1;
}

static yoke_status judge(yoke_step *step) {
    struct yoke_audit *audit = step->watch.audit;
    int most = 0;
    for (int k = 0; k < step->count; k++)
        if (agreeing(step, audit->digests[k]) > agreeing(step, audit->digests[most])) most = k;
    audit->judges = false;
    if (2 * agreeing(step, audit->digests[most]) <= step->count)
        return FAIL(YOKE_ERROR_DEVICE,
                    "audit of step %llu: the devices computed different gradients of shard %d "
                    "again, and most of them do not agree: with three or more devices it shows "
                    "which computes wrong",
                    (unsigned long long)step->steps, audit->shard);
    int guilty = find_guilty(step, audit->digests[most]);
    if (guilty < 0) return YOKE_OK;
    step->failed_lane = guilty;
    return FAIL(YOKE_ERROR_DEVICE,
                "audit of step %llu: %s computed another gradient of shard %d than the other "
                "devices",
                (unsigned long long)step->steps, name_of(step, guilty), audit->shard);
}

static yoke_status after_stage(yoke_step *step, const yoke_stage_def *stage) {
    const struct yoke_audit *audit = step->watch.audit;
    bool computed = stage->stage == YOKE_STAGE_BACKWARD && step->flight.training;
    if (!computed || audit->shard == NO_SHARD) return YOKE_OK;
    return audit->second < 0 ? judge(step) : compare(step);
}

/* Stages by hand are no step: nothing of them is audited. */
static void after_step(yoke_step *step, uint64_t number) {
    (void)number;
    step->watch.audit->shard = NO_SHARD;
}

const yoke_observer yoke_observe_audit = {.before_step = before_step,
                                          .after_step = after_step,
                                          .after_stage = after_stage,
                                          .after_gradient = after_gradient};
