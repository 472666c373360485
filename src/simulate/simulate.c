/* SPDX-License-Identifier: Apache-2.0 */
/* A step as events: each stage begins when what it needs is there. Devices are alike, so a bucket
 * is complete on all of them at the same time; links.h says when it has travelled. */
#include "simulate/simulate.h"

#include <math.h>

#include "base/base.h"
#include "simulate/simulate_async.h"
#include "simulate/simulated_spans.h"
#include "simulate/spread.h"

#define ALL_DEVICES (-1)
#define LINK_LANE(device) (YOKE_SIMULATED_LANES + (device))
#define NO_BUCKET (-1)
#define LONGEST_CALL_US 1e6
#define LONGEST_FACTOR 1e6
#define MOST_SPREAD 1.0
#define MOST_NS 1e18 /* times in ns fit into 64 bits */

static const struct {
    const char *name;
    yoke_route route;
    bool ranks;
} modes[] = {
#define MODE_ROW(name, text, route, ranks) {text, route, ranks},
    YOKE_SIMULATED_TABLE(MODE_ROW)
#undef MODE_ROW
};

const char *yoke_simulated_name(yoke_simulated_mode mode) {
    return modes[mode].name;
}

yoke_status yoke_simulate_check(const yoke_topology *topology, yoke_simulated_mode mode,
                                int devices) {
    int per_node = topology->per_node;
    const char *name = modes[mode].name;
    if (devices < 1 || devices > YOKE_SIMULATED_DEVICES)
        return FAIL(YOKE_ERROR_ARGUMENT, "%d devices; 1 to %d can be simulated", devices,
                    YOKE_SIMULATED_DEVICES);
    if (per_node < 0)
        return FAIL(YOKE_ERROR_ARGUMENT, "%d devices in a node; a node has 1 or more", per_node);
    if (!(topology->interpreter_us >= 0 && topology->interpreter_us <= LONGEST_CALL_US))
        return FAIL(YOKE_ERROR_ARGUMENT, "an interpreter that takes %g us for a layer; 0 to %g",
                    topology->interpreter_us, LONGEST_CALL_US);
    if (topology->straggler_factor != 0 &&
        !(topology->straggler_factor >= 1 && topology->straggler_factor <= LONGEST_FACTOR))
        return FAIL(YOKE_ERROR_ARGUMENT, "a straggler that takes %g times as long; 1 to %g",
                    topology->straggler_factor, LONGEST_FACTOR);
    if (!(topology->spread >= 0 && topology->spread <= MOST_SPREAD))
        return FAIL(YOKE_ERROR_ARGUMENT, "a spread of %g between devices; 0 to %g is possible",
                    topology->spread, MOST_SPREAD);
    if (topology->nic.bridge)
        return FAIL(YOKE_ERROR_ARGUMENT, "a network card has no bridge; leave ',bridge' out");
    if (mode == YOKE_SIMULATED_ASYNC && topology->max_staleness != 0 &&
        topology->max_staleness < devices - 1)
        return FAIL(YOKE_ERROR_ARGUMENT,
                    "a staleness of %d at most: %d devices that compute at once make pushes as "
                    "stale as %d",
                    topology->max_staleness, devices, devices - 1);
    if (per_node == 0 || devices <= per_node) return YOKE_OK;
    if (!modes[mode].ranks)
        return FAIL(YOKE_ERROR_ARGUMENT,
                    "%s is one process on one node: %d devices are more than the %d of a node",
                    name, devices, per_node);
    if (devices % per_node != 0)
        return FAIL(YOKE_ERROR_ARGUMENT, "%d devices do not fill nodes of %d", devices, per_node);
    if (!(topology->nic.bytes_per_ns > 0))
        return FAIL(YOKE_ERROR_ARGUMENT,
                    "%d devices are %d nodes of %d, and a link between nodes is missing", devices,
                    devices / per_node, per_node);
    if (topology->link.bridge)
        return FAIL(YOKE_ERROR_ARGUMENT,
                    "a bridge joins the devices of one node, %d devices are "
                    "%d nodes; use a switch",
                    devices, devices / per_node);
    return YOKE_OK;
}

/* The state of a run. Times in ns since the begin of the step. */
typedef struct simulator {
    const yoke_profile *profile;
    yoke_simulation *result;
    yoke_links *links;                        /* NULL: one device has nothing to transfer */
    uint64_t *times;                          /* of the bucket clock */
    size_t *bytes;                            /* [segments]; in classic [devices] */
    uint64_t *ends_ns;                        /* [devices] */
    uint64_t now_ns;                          /* of the slowest device */
    uint64_t ahead_ns[YOKE_SIMULATED_LANES];  /* of each device shown */
    yoke_paces paces;                         /* of forward and backward */
    uint64_t call_ns, handover_ns, thread_ns; /* dp-python */
    yoke_timeline timeline;
} simulator;

static uint64_t ns_of_ms(double ms) {
    return (uint64_t)(1e6 * ms);
}

/* Spans. */

static yoke_status add_span(simulator *run, int lane, yoke_stage stage, int bucket,
                            uint64_t begin_ns, uint64_t end_ns) {
    return yoke_timeline_add(&run->timeline, &(yoke_span_info){.lane = lane,
                                                               .stage = stage,
                                                               .bucket = bucket,
                                                               .begin_ns = begin_ns,
                                                               .end_ns = end_ns});
}

/* The time that a device has reached. */
static uint64_t clock_of(const simulator *run, int device) {
    return run->now_ns - run->ahead_ns[device];
}

/* From a device's own time to `end_ns`. */
static yoke_status note(simulator *run, int lane, yoke_stage stage, int bucket, uint64_t end_ns) {
    return add_span(run, lane, stage, bucket, clock_of(run, lane), end_ns);
}

/* What the device's link has carried since the last note. */
static yoke_status note_link(simulator *run, int device, yoke_stage stage, int bucket,
                             uint64_t begin_ns, uint64_t end_ns) {
    yoke_link_bytes carried = yoke_links_take(run->links, device);
    run->result->links[device].sent += carried.sent;
    run->result->links[device].received += carried.received;
    return yoke_timeline_add(&run->timeline,
                             &(yoke_span_info){.lane = LINK_LANE(device),
                                               .stage = stage,
                                               .bucket = bucket,
                                               .begin_ns = begin_ns,
                                               .end_ns = end_ns,
                                               .bytes = carried.sent + carried.received});
}

static int shown(const simulator *run) {
    int devices = run->result->devices;
    return devices < YOKE_SIMULATED_LANES ? devices : YOKE_SIMULATED_LANES;
}

/* A collective: every link has its part in it. */
static yoke_status note_links(simulator *run, yoke_stage stage, int bucket, uint64_t begin_ns,
                              uint64_t end_ns) {
    for (int k = 0; k < shown(run); k++)
        TRY(note_link(run, k, stage, bucket, begin_ns, end_ns));
    return YOKE_OK;
}

/* Stages. */

/* On one device, when all are at the same time and the others wait for it, or on all. */
static yoke_status compute(simulator *run, int lane, yoke_stage stage, int bucket, uint64_t ns) {
    for (int k = 0; k < shown(run); k++) {
        bool own = lane == ALL_DEVICES || lane == k;
        TRY(note(run, k, own ? stage : YOKE_STAGE_WAIT, bucket, clock_of(run, k) + ns));
    }
    run->now_ns += ns;
    return YOKE_OK;
}

/* Forward, or a segment of backward. */
static yoke_status compute_slowly(simulator *run, yoke_stage stage, int bucket, double ms) {
    uint64_t slowest_ns = ns_of_ms(yoke_pace_slowest(&run->paces) * ms);
    uint64_t own_ns[YOKE_SIMULATED_LANES];
    for (int k = 0; k < shown(run); k++) {
        own_ns[k] = ns_of_ms(yoke_pace_of(&run->paces, k) * ms);
        TRY(note(run, k, stage, bucket, clock_of(run, k) + own_ns[k]));
    }
    run->now_ns += slowest_ns;
    for (int k = 0; k < shown(run); k++)
        run->ahead_ns[k] += slowest_ns - own_ns[k];
    return YOKE_OK;
}

/* All devices wait, for their links or for the slowest one. */
static yoke_status await(simulator *run, uint64_t until_ns) {
    if (until_ns < run->now_ns) until_ns = run->now_ns;
    for (int k = 0; k < shown(run); k++)
        TRY(note(run, k, YOKE_STAGE_WAIT, NO_BUCKET, until_ns));
    run->now_ns = until_ns;
    for (int k = 0; k < shown(run); k++)
        run->ahead_ns[k] = 0;
    return YOKE_OK;
}

/* All devices wait until the last transfer is over. */
static yoke_status transfer(simulator *run, yoke_stage stage, bool to_root, size_t bytes) {
    int devices = run->result->devices;
    if (devices < 2) return YOKE_OK;
    for (int k = 0; k < devices; k++)
        run->bytes[k] = k == 0 ? 0 : bytes;
    uint64_t begin_ns = run->now_ns;
    uint64_t end_ns =
        yoke_links_root_stage(run->links, to_root, run->bytes, begin_ns, run->ends_ns);
    uint64_t span_ns = yoke_links_span(run->links, bytes);
    TRY(note_link(run, 0, stage, NO_BUCKET, run->ends_ns[1] - span_ns, end_ns));
    for (int k = 1; k < shown(run); k++) {
        uint64_t own_ns = run->ends_ns[k] - span_ns;
        TRY(note_link(run, k, stage, NO_BUCKET, own_ns, run->ends_ns[k]));
        TRY(add_span(run, k, YOKE_STAGE_WAIT, NO_BUCKET, begin_ns, own_ns));
        TRY(add_span(run, k, stage, NO_BUCKET, own_ns, run->ends_ns[k]));
        TRY(add_span(run, k, YOKE_STAGE_WAIT, NO_BUCKET, run->ends_ns[k], end_ns));
    }
    TRY(note(run, 0, stage, NO_BUCKET, end_ns));
    run->result->travel_ns += end_ns - begin_ns;
    run->now_ns = end_ns;
    return YOKE_OK;
}

/* All parameters from the root to the others, or all gradients to it: one copy after the other, or
 * over NCCL's chain, in which all devices take part until its end. */
static yoke_status travel_whole(simulator *run, yoke_stage stage, bool to_root) {
    size_t bytes = yoke_profile_bytes(run->profile);
    if (run->result->mode != YOKE_SIMULATED_NCCL || run->links == NULL)
        return transfer(run, stage, to_root, bytes);
    uint64_t begin_ns = run->now_ns;
    uint64_t end_ns =
        yoke_links_collective(run->links, modes[run->result->mode].route,
                              to_root ? YOKE_HALF_SUM : YOKE_HALF_PUBLISH, bytes, begin_ns);
    for (int k = 0; k < shown(run); k++)
        TRY(note(run, k, stage, NO_BUCKET, end_ns));
    TRY(note_links(run, stage, NO_BUCKET, begin_ns, end_ns));
    run->result->travel_ns += end_ns - begin_ns;
    run->now_ns = end_ns;
    return YOKE_OK;
}

static uint64_t update_ns(const yoke_profile *profile, int parts) {
    return (uint64_t)(profile->update_ns_per_byte * (double)yoke_profile_bytes(profile) / parts);
}

/* dp-python: a thread for each device; each takes the interpreter's lock for every layer's call and
 * runs the layer's kernels without it. Threads take turns; one that has to wait gets the lock
 * later than it becomes free. */
static yoke_status forward_with_lock(simulator *run) {
    const yoke_profile *profile = run->profile;
    int devices = run->result->devices, layers = profile->layers;
    uint64_t call_ns = run->call_ns, begin_ns = run->now_ns, free_ns = begin_ns, last_ns = begin_ns;
    for (int k = 0; k < devices; k++)
        run->ends_ns[k] = begin_ns;
    for (int layer = 0; layer < layers; layer++) {
        double part = (layer + 1.0) / layers, before = (double)layer / layers;
        uint64_t kernel_ns =
            ns_of_ms(part * profile->forward_ms) - ns_of_ms(before * profile->forward_ms);
        for (int k = 0; k < devices; k++) {
            double factor = yoke_pace_of(&run->paces, k);
            bool waits = run->ends_ns[k] < free_ns;
            free_ns = (waits ? free_ns + run->handover_ns : run->ends_ns[k]) + call_ns;
            run->ends_ns[k] = free_ns + (uint64_t)(factor * (double)kernel_ns);
            last_ns = run->ends_ns[k] > last_ns ? run->ends_ns[k] : last_ns;
        }
    }
    for (int k = 0; k < devices && k < YOKE_SIMULATED_LANES; k++) {
        run->now_ns = begin_ns;
        TRY(note(run, k, YOKE_STAGE_FORWARD, NO_BUCKET, run->ends_ns[k]));
        run->now_ns = run->ends_ns[k];
        TRY(note(run, k, YOKE_STAGE_WAIT, NO_BUCKET, last_ns));
    }
    run->now_ns = last_ns;
    uint64_t kernels_ns = ns_of_ms(profile->forward_ms * yoke_pace_slowest(&run->paces));
    if (last_ns - begin_ns > kernels_ns) run->result->python_ns += last_ns - begin_ns - kernels_ns;
    return YOKE_OK;
}

/* The calling thread copies every module for every replica, and starts and joins a thread for each.
 * A single replica needs neither. */
static yoke_status rebuild_replicas(simulator *run) {
    int devices = run->result->devices;
    if (devices < 2) return YOKE_OK;
    uint64_t each_ns = (uint64_t)run->profile->layers * run->call_ns + run->thread_ns;
    uint64_t ns = (uint64_t)devices * each_ns;
    run->result->python_ns += ns;
    return compute(run, 0, YOKE_STAGE_PYTHON, NO_BUCKET, ns);
}

/* nn.DataParallel, stage by stage: no stage begins before the one before it is over everywhere. */
static yoke_status run_classic(simulator *run) {
    const yoke_profile *profile = run->profile;
    size_t rows = (size_t)profile->rows;
    yoke_simulation *result = run->result;
    bool python = result->mode == YOKE_SIMULATED_PYTHON && profile->layers > 0;
    TRY(transfer(run, YOKE_STAGE_SCATTER, false, rows * profile->input_bytes));
    TRY(travel_whole(run, YOKE_STAGE_REPLICATE, false));
    TRY(python ? rebuild_replicas(run) : YOKE_OK);
    TRY(python ? forward_with_lock(run)
               : compute_slowly(run, YOKE_STAGE_FORWARD, NO_BUCKET, profile->forward_ms));
    TRY(await(run, run->now_ns));
    TRY(transfer(run, YOKE_STAGE_GATHER, true, rows * profile->output_bytes));
    result->loss_ns = ns_of_ms(profile->loss_ms * result->devices); /* of all rows */
    TRY(compute(run, 0, YOKE_STAGE_LOSS, NO_BUCKET, result->loss_ns));
    TRY(transfer(run, YOKE_STAGE_SCATTER, false, rows * profile->output_bytes));
    for (int s = 0; s < profile->segment_count; s++)
        TRY(compute_slowly(run, YOKE_STAGE_BACKWARD, s, profile->segments[s].backward_ms));
    TRY(await(run, run->now_ns));
    TRY(travel_whole(run, YOKE_STAGE_REDUCE, true));
    result->update_ns = update_ns(profile, 1);
    return compute(run, 0, YOKE_STAGE_UPDATE, NO_BUCKET, result->update_ns);
}

/* The two collectives of a bucket. */
static yoke_status note_travel(simulator *run, const yoke_bucket_clock *clock, int bucket,
                               uint64_t *free_ns) {
    uint64_t begin_ns = run->now_ns > *free_ns ? run->now_ns : *free_ns;
    yoke_stage stage = clock->all_reduces ? YOKE_STAGE_ALL_REDUCE : YOKE_STAGE_EXCHANGE;
    *free_ns = clock->published_ns[bucket];
    run->result->travel_ns += *free_ns - begin_ns;
    return note_links(run, stage, bucket, begin_ns, *free_ns);
}

static yoke_status backward_and_travel(simulator *run, const yoke_bucket_clock *clock) {
    uint64_t free_ns = 0;
    for (int s = 0; s < run->profile->segment_count; s++) {
        const yoke_profile_segment *segment = &run->profile->segments[s];
        run->bytes[s] = segment->bytes;
        TRY(compute_slowly(run, YOKE_STAGE_BACKWARD, s, segment->backward_ms));
        if (run->links == NULL) continue;
        yoke_bucket_clock_run(clock, s, run->now_ns);
        TRY(note_travel(run, clock, s, &free_ns));
    }
    return YOKE_OK;
}

/* Buckets travel behind backward; only what backward does not hide shows as waiting. The update
 * follows the last sum and does not delay the weights, as in the engine's clock. */
static yoke_status run_buckets(simulator *run) {
    const yoke_profile *profile = run->profile;
    yoke_simulation *result = run->result;
    int count = profile->segment_count, last = count - 1;
    bool sharded = result->mode == YOKE_SIMULATED_SHARDED;
    yoke_bucket_clock clock = {.links = run->links,
                               .route = modes[result->mode].route,
                               .all_reduces = modes[result->mode].ranks,
                               .count = count,
                               .bytes = run->bytes,
                               .summed_ns = run->times,
                               .published_ns = run->times + count};
    TRY(compute_slowly(run, YOKE_STAGE_FORWARD, NO_BUCKET, profile->forward_ms));
    result->loss_ns = ns_of_ms(profile->loss_ms);
    TRY(compute(run, ALL_DEVICES, YOKE_STAGE_LOSS, NO_BUCKET, result->loss_ns));
    TRY(backward_and_travel(run, &clock));
    if (run->links != NULL) TRY(await(run, clock.summed_ns[last]));
    result->update_ns = update_ns(profile, sharded ? result->devices : 1);
    int updates = sharded || clock.all_reduces ? ALL_DEVICES : 0;
    TRY(compute(run, updates, YOKE_STAGE_UPDATE, NO_BUCKET, result->update_ns));
    return run->links != NULL ? await(run, clock.published_ns[last]) : YOKE_OK;
}

/* More than any schedule takes: everything one after the other, over the slower kind of link. */
static double longest_ns(const yoke_profile *profile, const yoke_topology *topology, int devices) {
    const yoke_link *link = &topology->link, *nic = &topology->nic;
    double bytes = (double)yoke_profile_bytes(profile), transfers = 2.0 * profile->segment_count;
    bytes += ((double)profile->input_bytes + 2 * (double)profile->output_bytes) * profile->rows;
    double ns = transfers * link->latency_ns + 2 * bytes / link->bytes_per_ns;
    if (nic->bytes_per_ns > 0) ns += transfers * nic->latency_ns + 2 * bytes / nic->bytes_per_ns;
    double layer_us = 2 * topology->interpreter_us + topology->handover_us;
    double python_ns = 1e3 * (layer_us * profile->layers + topology->thread_us);
    /* The slowest of any number of devices is less than 4 deviations behind. */
    double slow = fmax(1 + 4 * topology->spread, topology->straggler_factor);
    double step_ns = 1e6 * slow * yoke_profile_step_ms(profile);
    return devices * (5 * link->latency_ns + ns + python_ns + step_ns);
}

static yoke_status prepare(simulator *run, const yoke_topology *topology) {
    int devices = run->result->devices, segments = run->profile->segment_count;
    size_t most = (size_t)(devices > segments ? devices : segments);
    run->times = yoke_calloc(2 * (size_t)segments, sizeof *run->times);
    run->bytes = yoke_calloc(most, sizeof *run->bytes);
    run->ends_ns = yoke_calloc((size_t)devices, sizeof *run->ends_ns);
    run->result->links = yoke_calloc((size_t)devices, sizeof *run->result->links);
    run->result->link_count = devices;
    if (run->times == NULL || run->bytes == NULL || run->ends_ns == NULL ||
        run->result->links == NULL)
        return FAIL_MEMORY(6 * most * sizeof(uint64_t), "a simulation");
    if (devices < 2) return YOKE_OK;
    TRY(yoke_links_create(&run->links, &topology->link, devices));
    if (run->result->nodes > 1)
        yoke_links_set_nodes(run->links, topology->per_node, &topology->nic);
    return YOKE_OK;
}

static yoke_status run_step(simulator *run, const yoke_topology *topology) {
    yoke_simulation *result = run->result;
    TRY(prepare(run, topology));
    if (result->mode == YOKE_SIMULATED_ASYNC)
        return yoke_simulate_async(result, &run->timeline, run->profile, topology);
    run->now_ns = ns_of_ms(run->profile->host_ms);
    run->call_ns = (uint64_t)(1e3 * topology->interpreter_us);
    run->handover_ns = (uint64_t)(1e3 * topology->handover_us);
    run->thread_ns = (uint64_t)(1e3 * topology->thread_us);
    TRY(result->mode <= YOKE_SIMULATED_NCCL ? run_classic(run) : run_buckets(run));
    result->step_ns = run->now_ns > 0 ? run->now_ns : 1; /* rates divide by it */
    for (int k = 0; k < result->devices && run->links != NULL; k++) {
        yoke_link_bytes carried = yoke_links_take(run->links, k);
        result->links[k].sent += carried.sent;
        result->links[k].received += carried.received;
    }
    return yoke_timeline_cut(&run->timeline, 2 * YOKE_SIMULATED_LANES, 0, result->step_ns);
}

/* What the root does in the timeline. */
static void sum_up_root(yoke_simulation *result) {
    for (int i = 0; i < result->span_count && result->spans[i].lane == 0; i++) {
        uint64_t ns = result->spans[i].end_ns - result->spans[i].begin_ns;
        yoke_activity activity = yoke_activity_of((int)result->spans[i].stage);
        if (activity == YOKE_COMMUNICATES) result->communicate_ns += ns;
        if (activity == YOKE_WAITS) result->wait_ns += ns;
    }
}

yoke_status yoke_simulate(yoke_simulation *simulation, const yoke_profile *profile,
                          const yoke_topology *topology, yoke_simulated_mode mode, int devices) {
    *simulation = (yoke_simulation){.mode = mode, .devices = devices, .nodes = 1};
    TRY(yoke_simulate_check(topology, mode, devices));
    if (!(longest_ns(profile, topology, devices) < MOST_NS))
        return FAIL(YOKE_ERROR_ARGUMENT,
                    "a step on %d devices would take decades: faster links, or fewer bytes",
                    devices);
    if (topology->per_node > 0 && devices > topology->per_node)
        simulation->nodes = devices / topology->per_node;
    simulator run = {
        .profile = profile, .result = simulation, .paces = yoke_paces_of(topology, devices)};
    yoke_status status = run_step(&run, topology);
    simulation->spans = run.timeline.spans;
    simulation->span_count = run.timeline.count;
    simulation->efficiency = 1e6 * yoke_profile_step_ms(profile) / (double)simulation->step_ns;
    sum_up_root(simulation);
    yoke_links_destroy(run.links);
    yoke_free(run.ends_ns);
    yoke_free(run.bytes);
    yoke_free(run.times);
    if (status != YOKE_OK) yoke_simulation_clear(simulation);
    return status;
}

void yoke_simulation_clear(yoke_simulation *simulation) {
    yoke_free(simulation->links);
    yoke_free(simulation->spans);
    *simulation = (yoke_simulation){0};
}
