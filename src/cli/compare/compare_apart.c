/* SPDX-License-Identifier: Apache-2.0 */
/* A trainer as a way to train, for devices that have weights of their own. It is stopped at the end
 * of each round, and goes on in the next one. The server records stages, its devices do not. */
#include <math.h>
#include <stdlib.h>

#include "cli/cli.h"
#include "cli/compare/compare_way.h"

#define LARGEST_FACTOR 1000         /* of a straggler, for the length of a round */
#define ENDLESS ((uint64_t)1 << 53) /* steps: more than any race has */

/* Steps of a run, counted as events come. */
typedef struct apart_count {
    int seen, first, last; /* the clock runs from the end of step `first` to that of `last` */
    uint64_t begin_ns, end_ns;
    double *losses; /* [COMPARE_LEARN_STEPS]; NULL: not wanted */
} apart_count;

typedef struct compare_apart {
    yoke_trainer *trainer;
    apart_count count;
    int warming; /* steps of a round before the clock starts */
    int unit;    /* steps in which every device has its part: a round times a multiple of it */
} compare_apart;

static void on_event(const yoke_event *event, void *payload) {
    compare_apart *apart = payload;
    apart_count *count = &apart->count;
    if (event->kind != YOKE_EVENT_STEP) return;
    if (count->losses != NULL) count->losses[count->seen] = event->loss;
    count->seen++;
    if (count->seen == count->first) count->begin_ns = yoke_now_ns();
    if (count->seen != count->last) return;
    count->end_ns = yoke_now_ns();
    yoke_trainer_stop(apart->trainer);
}

static bool has_straggler(const compare_entry *entry) {
    int devices = entry->role.devices;
    return devices > 1 && entry->setup->straggler_factor > 0 && entry->setup->straggler < devices;
}

/* While the slow device pushes once, each other one does so `factor` times: fewer pushes could all
 * be of the fast ones, or have one too many of the slow one. */
static int pushes_of_all(const compare_entry *entry) {
    int devices = entry->role.devices;
    double factor = fmin(entry->setup->straggler_factor, LARGEST_FACTOR);
    return has_straggler(entry) ? (int)ceil((devices - 1) * factor) + 1 : devices;
}

static yoke_status create_trainer(compare_apart *apart, const compare_entry *entry) {
    const compare_setup *setup = entry->setup;
    const compare_role *role = &entry->role;
    bool learns = setup->learn_steps > 0;
    bool slow = has_straggler(entry);
    char list[COMPARE_LIST_BYTES];
    compare_setup_list(setup, role->devices, list);
    yoke_optimizer_options optimizer = setup->optimizer;
    if (!learns) optimizer.learning_rate = COMPARE_RACE_RATE;
    yoke_local_options local = YOKE_LOCAL_OPTIONS_INIT;
    local.every = setup->sync_every;
    yoke_data_parallel_options engine = YOKE_DATA_PARALLEL_OPTIONS_INIT;
    engine.precision = setup->precision;
    engine.algorithm = setup->algorithm;
    engine.algorithm_cache = setup->algorithm_cache[0] != '\0' ? setup->algorithm_cache : NULL;
    engine.replace_broken_cache = setup->replace_broken_cache;
    if (slow) engine.straggler = setup->straggler;
    if (slow) engine.straggler_factor = setup->straggler_factor;
    yoke_trainer_options options = {.struct_size = sizeof options,
                                    .model = setup->model,
                                    .dataset = setup->dataset,
                                    .limit_rows = setup->limit_rows,
                                    .skip_bad = setup->skip_bad,
                                    .devices = list,
                                    .threads = role->threads > 0 ? role->threads : setup->threads,
                                    .mode = entry->mode,
                                    .engine = &engine,
                                    .batch = setup->batch,
                                    .steps = learns ? (uint64_t)setup->learn_steps : ENDLESS,
                                    .optimizer = &optimizer,
                                    .seed = setup->seed,
                                    .drop_last = true,
                                    .evaluate_every = -1,
                                    .on_event = on_event,
                                    .payload = apart,
                                    .local = &local};
    return yoke_trainer_create(&apart->trainer, &options);
}

static void clear(void *inside) {
    compare_apart *apart = inside;
    if (apart == NULL) return;
    yoke_trainer_destroy(apart->trainer);
    free(apart);
}

static yoke_status build(void **inside, const compare_entry *entry) {
    compare_apart *apart = calloc(1, sizeof *apart);
    *inside = NULL;
    if (apart == NULL) return cli_refuse(YOKE_ERROR_MEMORY, "no memory for a trainer");
    bool pushes = entry->mode == YOKE_MODE_ASYNC;
    apart->warming = pushes ? entry->role.devices : 1;
    apart->unit = pushes ? pushes_of_all(entry) : entry->setup->sync_every;
    yoke_status status = create_trainer(apart, entry);
    if (status == YOKE_OK)
        *inside = apart;
    else
        clear(apart);
    return status;
}

/* The trainer has as many steps, and settles behind the last one. */
static yoke_status learn(void *inside, int steps, compare_learned *learned) {
    compare_apart *apart = inside;
    learned->steps = steps;
    apart->count = (apart_count){.losses = learned->losses};
    yoke_status status = yoke_trainer_run(apart->trainer);
    if (status != YOKE_OK) return status;
    return yoke_data_parallel_hash(yoke_trainer_engine(apart->trainer), &learned->hash);
}

/* The clock starts at the end of a step, when all devices are at work, and stops at the end of
 * another one: rows that a device has begun before, or has not pushed then, count as those of the
 * other end. */
static yoke_status run(void *inside, int steps, bool fresh, double *milliseconds) {
    compare_apart *apart = inside;
    int timed = (steps + apart->unit - 1) / apart->unit * apart->unit;
    (void)fresh; /* no trace */
    apart->count = (apart_count){.first = apart->warming, .last = apart->warming + timed};
    yoke_status status = yoke_trainer_run(apart->trainer);
    uint64_t took_ns = apart->count.end_ns - apart->count.begin_ns;
    *milliseconds = 1e-6 * (double)took_ns / timed;
    return status == YOKE_ERROR_CANCELLED && apart->count.end_ns > 0 ? YOKE_OK : status;
}

/* In mode local nothing is pushed. */
static void staleness(const void *inside, compare_staleness *found) {
    const compare_apart *apart = inside;
    uint64_t counts[YOKE_STALENESS_LIMIT];
    double sum = 0;
    if (yoke_trainer_staleness(apart->trainer, counts) != YOKE_OK) return;
    for (int i = 0; i < YOKE_STALENESS_LIMIT; i++) {
        sum += (double)i * (double)counts[i];
        found->pushes += counts[i];
        if (counts[i] > 0) found->most = i;
    }
    if (found->pushes > 0) found->mean = sum / (double)found->pushes;
}

const compare_way compare_by_trainer = {
    .build = build, .clear = clear, .learn = learn, .run = run, .staleness = staleness};
