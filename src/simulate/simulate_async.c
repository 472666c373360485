/* SPDX-License-Identifier: Apache-2.0 */
/* Asynchronous SGD as train/async.c runs it: the server, on the root, gives an idle device the
 * weights; the device computes and pushes its gradients over the root's link; the server updates in
 * the order of pushes. Nothing happens between two events, and each device waits for one. */
#include "simulate/simulate_async.h"

#include "base/base.h"
#include "simulate/spread.h"

#define NOBODY (-1)
#define NO_BUCKET (-1)
/* The slowest device's pushes before and in the time that is measured. */
#define WARM_UP 3
#define MEASURED 8
#define MOST_PUSHES 1000000 /* where a device is slower than others by orders of magnitude */

typedef enum worker_event {
    EVENT_COMPUTED, /* gradients, on the device */
    EVENT_ARRIVED,  /* at the server */
    EVENT_APPLIED
} worker_event;

typedef struct worker {
    bool busy; /* and then it is in the queue */
    worker_event event;
    uint64_t when_ns;   /* of its event; idle: since */
    uint64_t version;   /* updates when it pulled */
    uint64_t pushed_ns; /* when its last push was applied */
    int older, younger; /* the busy device that pulled before, and after */
} worker;

typedef struct async_run {
    const yoke_profile *profile;
    yoke_links *links; /* NULL: one device */
    int devices, count /* in the queue */;
    worker *workers; /* [devices] */
    int *queue;      /* [devices]: a heap of busy devices, the next event first */
    int oldest, youngest;
    uint64_t max_staleness; /* 0: no bound */
    uint64_t updates, server_free_ns, update_ns, bytes;
    uint64_t stale_sum, stale_most; /* since the time that is measured began */
    yoke_paces paces;
    /* The timeline, and the time it shows; NULL: it is not known yet. */
    yoke_timeline *timeline;
    uint64_t shown_from_ns, shown_until_ns;
    double compute_ms; /* forward and backward */
} async_run;

static uint64_t ns_of_ms(double ms) {
    return (uint64_t)(1e6 * ms);
}

/* The queue. Of events at one time, the lowest device's comes first. */

static bool before(const async_run *run, int a, int b) {
    uint64_t x = run->workers[a].when_ns, y = run->workers[b].when_ns;
    return x < y || (x == y && a < b);
}

static void push_event(async_run *run, int device, worker_event event, uint64_t when_ns) {
    int at = run->count++;
    run->workers[device].event = event;
    run->workers[device].when_ns = when_ns;
    for (int up; at > 0 && before(run, device, run->queue[up = (at - 1) / 2]); at = up)
        run->queue[at] = run->queue[up];
    run->queue[at] = device;
}

static int take_event(async_run *run) {
    int first = run->queue[0], last = run->queue[--run->count], at = 0;
    for (int down; (down = 2 * at + 1) < run->count; at = down) {
        if (down + 1 < run->count && before(run, run->queue[down + 1], run->queue[down])) down++;
        if (!before(run, run->queue[down], last)) break;
        run->queue[at] = run->queue[down];
    }
    run->queue[at] = last;
    return first;
}

/* Busy devices in the order of their pulls. */

static void join(async_run *run, int device) {
    worker *own = &run->workers[device];
    own->busy = true;
    own->older = run->youngest;
    own->younger = NOBODY;
    *(run->youngest != NOBODY ? &run->workers[run->youngest].younger : &run->oldest) = device;
    run->youngest = device;
}

static void leave(async_run *run, int device) {
    worker *own = &run->workers[device];
    own->busy = false;
    *(own->older != NOBODY ? &run->workers[own->older].younger : &run->oldest) = own->younger;
    *(own->younger != NOBODY ? &run->workers[own->younger].older : &run->youngest) = own->older;
}

/* The timeline. */

static bool is_shown(const async_run *run, uint64_t begin_ns, uint64_t end_ns) {
    return run->timeline != NULL && begin_ns < run->shown_until_ns && end_ns > run->shown_from_ns;
}

static yoke_status note(async_run *run, int lane, yoke_stage stage, int bucket, uint64_t begin_ns,
                        uint64_t end_ns) {
    bool link = lane >= YOKE_SIMULATED_LANES;
    if (!is_shown(run, begin_ns, end_ns)) return YOKE_OK;
    yoke_span_info span = {.lane = lane,
                           .stage = stage,
                           .bucket = bucket,
                           .begin_ns = begin_ns,
                           .end_ns = end_ns,
                           .bytes = link ? run->bytes : 0};
    return yoke_timeline_add(run->timeline, &span);
}

static yoke_status note_device(async_run *run, int device, yoke_stage stage, int bucket,
                               uint64_t begin_ns, uint64_t end_ns) {
    if (device >= YOKE_SIMULATED_LANES) return YOKE_OK;
    return note(run, device, stage, bucket, begin_ns, end_ns);
}

/* Between the root and the device. The root's server shares the root's memory. */
static yoke_status transfer(async_run *run, int device, bool to_root, uint64_t *now_ns) {
    yoke_stage stage = to_root ? YOKE_STAGE_REDUCE : YOKE_STAGE_REPLICATE;
    uint64_t begin_ns = *now_ns;
    if (device == 0) return YOKE_OK;
    uint64_t end_ns = *now_ns = yoke_links_transfer(run->links, to_root ? device : 0,
                                                    to_root ? 0 : device, run->bytes, begin_ns);
    uint64_t own_ns = end_ns - yoke_links_span(run->links, run->bytes);
    TRY(note(run, YOKE_SIMULATED_LANES, stage, NO_BUCKET, own_ns, end_ns));
    if (device >= YOKE_SIMULATED_LANES) return YOKE_OK;
    TRY(note(run, YOKE_SIMULATED_LANES + device, stage, NO_BUCKET, own_ns, end_ns));
    TRY(note(run, device, YOKE_STAGE_WAIT, NO_BUCKET, begin_ns, own_ns));
    return note(run, device, stage, NO_BUCKET, own_ns, end_ns);
}

/* Each part ends when its share of the whole has passed, so roundings do not add up. */
static yoke_status note_parts(async_run *run, int device, double factor, uint64_t begin_ns) {
    const yoke_profile *profile = run->profile;
    uint64_t loss_ns = ns_of_ms(profile->loss_ms);
    double ms = profile->forward_ms;
    uint64_t forward_ns = begin_ns + ns_of_ms(factor * ms), at_ns = forward_ns + loss_ns;
    TRY(note_device(run, device, YOKE_STAGE_FORWARD, NO_BUCKET, begin_ns, forward_ns));
    TRY(note_device(run, device, YOKE_STAGE_LOSS, NO_BUCKET, forward_ns, at_ns));
    for (int s = 0; s < profile->segment_count; s++) {
        ms += profile->segments[s].backward_ms;
        uint64_t end_ns = begin_ns + loss_ns + ns_of_ms(factor * ms);
        TRY(note_device(run, device, YOKE_STAGE_BACKWARD, s, at_ns, end_ns));
        at_ns = end_ns;
    }
    return YOKE_OK;
}

static yoke_status compute(async_run *run, int device, uint64_t *now_ns) {
    double factor = yoke_pace_of(&run->paces, device);
    uint64_t begin_ns = *now_ns + ns_of_ms(run->profile->host_ms);
    *now_ns = begin_ns + ns_of_ms(run->profile->loss_ms) + ns_of_ms(factor * run->compute_ms);
    bool shown = device < YOKE_SIMULATED_LANES && is_shown(run, begin_ns, *now_ns);
    return shown ? note_parts(run, device, factor, begin_ns) : YOKE_OK;
}

/* The rules of train/async.c. */

/* Each of the others may push once more before the oldest one does. */
static bool may_pull(const async_run *run) {
    uint64_t others = (uint64_t)run->devices - 1;
    uint64_t lag = run->oldest != NOBODY ? run->updates - run->workers[run->oldest].version : 0;
    return run->max_staleness == 0 || lag + others <= run->max_staleness;
}

static int find_idle(const async_run *run) {
    for (int k = 0; k < run->devices && run->count < run->devices; k++)
        if (!run->workers[k].busy) return k;
    return NOBODY;
}

/* The lowest idle device pulls first. */
static yoke_status give(async_run *run, uint64_t now_ns) {
    for (int k; may_pull(run) && (k = find_idle(run)) != NOBODY;) {
        uint64_t at_ns = now_ns;
        TRY(note_device(run, k, YOKE_STAGE_WAIT, NO_BUCKET, run->workers[k].when_ns, now_ns));
        run->workers[k].version = run->updates;
        join(run, k);
        TRY(transfer(run, k, false, &at_ns));
        TRY(compute(run, k, &at_ns));
        push_event(run, k, EVENT_COMPUTED, at_ns);
    }
    return YOKE_OK;
}

/* The server takes pushes in the order in which they arrive. It updates beside the root's own
 * computation, and does not slow it down. */
static yoke_status apply(async_run *run, int device, uint64_t now_ns) {
    uint64_t begin_ns = now_ns > run->server_free_ns ? now_ns : run->server_free_ns;
    uint64_t end_ns = run->server_free_ns = begin_ns + run->update_ns;
    TRY(note_device(run, device, YOKE_STAGE_WAIT, NO_BUCKET, now_ns, end_ns));
    TRY(note(run, 0, YOKE_STAGE_UPDATE, NO_BUCKET, begin_ns, end_ns));
    push_event(run, device, EVENT_APPLIED, end_ns);
    return YOKE_OK;
}

/* *pushed: the device whose gradients are applied by now, or NOBODY. */
static yoke_status next_event(async_run *run, int *pushed) {
    int device = take_event(run);
    worker *own = &run->workers[device];
    uint64_t now_ns = own->when_ns;
    *pushed = NOBODY;
    if (own->event == EVENT_COMPUTED) {
        TRY(transfer(run, device, true, &now_ns));
        push_event(run, device, EVENT_ARRIVED, now_ns);
        return YOKE_OK;
    }
    if (own->event == EVENT_ARRIVED) return apply(run, device, now_ns);
    uint64_t staleness = run->updates++ - own->version;
    run->stale_sum += staleness;
    if (staleness > run->stale_most) run->stale_most = staleness;
    leave(run, device);
    *pushed = device;
    return give(run, now_ns);
}

/* A run from its begin. */

static void close_run(async_run *run) {
    yoke_links_destroy(run->links);
    yoke_free(run->queue);
    yoke_free(run->workers);
}

static yoke_status open_run(async_run *run, const yoke_profile *profile,
                            const yoke_topology *topology, int devices) {
    size_t count = (size_t)devices;
    *run = (async_run){.profile = profile,
                       .devices = devices,
                       .oldest = NOBODY,
                       .youngest = NOBODY,
                       .max_staleness = (uint64_t)topology->max_staleness,
                       .bytes = yoke_profile_bytes(profile),
                       .paces = yoke_paces_of(topology, devices)};
    run->compute_ms = profile->forward_ms;
    for (int s = 0; s < profile->segment_count; s++)
        run->compute_ms += profile->segments[s].backward_ms;
    run->update_ns = (uint64_t)(profile->update_ns_per_byte * (double)run->bytes);
    run->workers = yoke_calloc(count, sizeof *run->workers);
    run->queue = yoke_calloc(count, sizeof *run->queue);
    if (run->workers == NULL || run->queue == NULL)
        return FAIL_MEMORY(count * (sizeof *run->workers + sizeof *run->queue), "a simulation");
    return devices > 1 ? yoke_links_create(&run->links, &topology->link, devices) : YOKE_OK;
}

/* The time that is measured: from a push of the slowest device to another. */
typedef struct steady_time {
    uint64_t begin_ns, end_ns;
    uint64_t updates; /* of the run at its end */
    double pushes;
} steady_time;

/* The part of the device's time since its push before this one that lies in what is measured. */
static double share_of_push(const async_run *run, int device, const steady_time *steady,
                            uint64_t now_ns) {
    uint64_t before_ns = run->workers[device].pushed_ns;
    uint64_t from_ns = before_ns > steady->begin_ns ? before_ns : steady->begin_ns;
    uint64_t to_ns = now_ns < steady->end_ns ? now_ns : steady->end_ns;
    if (to_ns <= from_ns) return now_ns == before_ns ? 1 : 0;
    return (double)(to_ns - from_ns) / (double)(now_ns - before_ns);
}

static int slowest_device(const async_run *run) {
    int slowest = run->devices - 1;
    for (int k = 0; k < run->devices; k++)
        if (yoke_pace_of(&run->paces, k) > yoke_pace_of(&run->paces, slowest)) slowest = k;
    return slowest;
}

/* Until the device has pushed so often, or all have pushed `most` times. *now_ns: when. */
static yoke_status run_until(async_run *run, int device, int pushes, uint64_t most,
                             steady_time *steady, uint64_t *now_ns) {
    while (pushes > 0 && run->updates < most) {
        int pushed;
        *now_ns = run->workers[run->queue[0]].when_ns;
        TRY(next_event(run, &pushed));
        if (pushed == NOBODY) continue;
        steady->pushes += share_of_push(run, pushed, steady, *now_ns);
        run->workers[pushed].pushed_ns = *now_ns;
        if (pushed == device) pushes--;
    }
    return YOKE_OK;
}

/* The others' pushes under way at the end: each counts with the part of its time before it. */
static yoke_status finish_pushes(async_run *run, steady_time *steady) {
    int missing = 0;
    for (int k = 0; k < run->devices; k++)
        missing += run->workers[k].pushed_ns < steady->end_ns;
    while (missing > 0 && run->updates < MOST_PUSHES + MOST_PUSHES / 4) {
        int pushed;
        uint64_t now_ns = run->workers[run->queue[0]].when_ns;
        TRY(next_event(run, &pushed));
        if (pushed == NOBODY || run->workers[pushed].pushed_ns >= steady->end_ns) continue;
        steady->pushes += share_of_push(run, pushed, steady, now_ns);
        run->workers[pushed].pushed_ns = now_ns;
        missing -= now_ns >= steady->end_ns;
    }
    return YOKE_OK;
}

static void take_links(async_run *run, yoke_link_bytes *links, double share) {
    for (int k = 0; k < run->devices && run->links != NULL; k++) {
        yoke_link_bytes carried = yoke_links_take(run->links, k);
        links[k].sent = (uint64_t)(share * (double)carried.sent + 0.5);
        links[k].received = (uint64_t)(share * (double)carried.received + 0.5);
    }
}

static yoke_status measure(async_run *run, yoke_simulation *result, steady_time *steady) {
    int slowest = slowest_device(run);
    TRY(give(run, 0));
    TRY(run_until(run, slowest, WARM_UP, MOST_PUSHES / 4, steady, &steady->begin_ns));
    uint64_t before_it = run->updates;
    run->stale_sum = run->stale_most = 0;
    take_links(run, result->links, 0);
    steady->pushes = 0;
    uint64_t end_ns = steady->begin_ns;
    steady->end_ns = UINT64_MAX;
    TRY(run_until(run, slowest, MEASURED, MOST_PUSHES, steady, &end_ns));
    steady->end_ns = end_ns;
    steady->updates = run->updates;
    double whole = (double)(run->updates - before_it);
    result->mean_staleness = (double)run->stale_sum / whole;
    result->largest_staleness = run->stale_most;
    take_links(run, result->links, run->devices / whole);
    TRY(finish_pushes(run, steady));
    double span_ns = (double)(end_ns - steady->begin_ns);
    result->step_ns = (uint64_t)(run->devices * span_ns / steady->pushes);
    if (result->step_ns == 0) result->step_ns = 1; /* rates divide by it */
    return YOKE_OK;
}

/* The same run again, from which a round is shown. */
static yoke_status show(async_run *run, const steady_time *steady) {
    TRY(give(run, 0));
    while (run->workers[run->queue[0]].when_ns < run->shown_until_ns &&
           run->updates < steady->updates) {
        int pushed;
        TRY(next_event(run, &pushed));
    }
    for (int k = 0; k < run->devices; k++)
        if (!run->workers[k].busy)
            TRY(note_device(run, k, YOKE_STAGE_WAIT, NO_BUCKET, run->workers[k].when_ns,
                            run->shown_until_ns));
    return yoke_timeline_cut(run->timeline, 2 * YOKE_SIMULATED_LANES, run->shown_from_ns,
                             run->shown_until_ns);
}

yoke_status yoke_simulate_async(yoke_simulation *result, yoke_timeline *timeline,
                                const yoke_profile *profile, const yoke_topology *topology) {
    async_run run;
    steady_time steady = {0};
    yoke_status status = open_run(&run, profile, topology, result->devices);
    if (status == YOKE_OK) status = measure(&run, result, &steady);
    result->update_ns = (uint64_t)result->devices * run.update_ns;
    result->loss_ns = ns_of_ms(profile->loss_ms);
    if (run.links != NULL)
        result->travel_ns =
            2 * (uint64_t)(result->devices - 1) * yoke_links_span(run.links, run.bytes);
    close_run(&run);
    if (status != YOKE_OK) return status;
    status = open_run(&run, profile, topology, result->devices);
    run.timeline = timeline;
    run.shown_from_ns = steady.begin_ns;
    run.shown_until_ns = steady.begin_ns + result->step_ns;
    if (status == YOKE_OK) status = show(&run, &steady);
    close_run(&run);
    return status;
}
