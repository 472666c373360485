/* SPDX-License-Identifier: Apache-2.0 */
/* yoke compare: trains one configuration on one device, on several by threads and on several by
 * processes. Do all learn the same, and how fast is each? */
#include "cli/compare/compare.h"

#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "cli/algorithm_cache.h"
#include "cli/cli.h"
#include "cli/launch/launch_environment.h"
#include "cli/option_values.h"
#include "cli/progress.h"
#include "cli/result.h"
#include "cli/shared_options.h"

typedef struct compare_flags {
    compare_setup setup; /* optimizer: kind and learning rate, NaN: the default of the kind */
    const char *model, *dataset, *devices, *link, *html, *with_torch;
    algorithm_cache_flags algorithm_cache;
    straggler straggler;
    device_shares shares;
    unsigned counts, ddp, also; /* words */
    int threads, learn_steps, rounds, steps;
    double tolerance, seconds, torch_deadline;
    bool lesson, json, quiet, rank_worker;
} compare_flags;

#define AT(field) CLI_FIELD(compare_flags, field)
#define DOUBLING 1                                     /* of "all|doubling" */
enum { ALSO_NONE, ALSO_ASYNC, ALSO_LOCAL, ALSO_BOTH }; /* of "none|async|local|both" */

static const cli_option options[] = {
    {"lesson", NULL, "why PyTorch recommends DDP: see below", AT(lesson)},
    {"model", "NAME", "as in yoke train (resnet20)", AT(model)},
    {"dataset", "SPEC", "as in yoke train (synthetic)", AT(dataset)},
    CLI_OPTION_LIMIT_ROWS(AT(setup.limit_rows)),
    CLI_OPTION_SKIP_BAD(AT(setup.skip_bad)),
    {"devices", "LIST", "2xcpu, 4xcuda, ...; single uses the first one (every GPU, or 2xcpu)",
     AT(devices)},
    {"counts", "all|doubling", "race on 2, 3, 4 ... or on 2, 4, 8 ... devices (all)", AT(counts)},
    CLI_OPTION_THREADS(AT(threads)),
    CLI_OPTION_BATCH(AT(setup.batch), "64"),
    CLI_OPTION_PRECISION(AT(setup.precision)),
    CLI_OPTION_ALGORITHM(
        AT(setup.algorithm),
        "of the race: fastest by measurement, or the same in every run (measured)"),
    ALGORITHM_CACHE_OPTION_FILE(AT(algorithm_cache.file)),
    ALGORITHM_CACHE_OPTION_NO_CACHE(AT(algorithm_cache.no_cache)),
    {"ddp", "overlap|sharded", "each rank updates all weights, or its own part (overlap)", AT(ddp)},
    {"also", "none|async|local|both", "race these modes of yoke train, too, on CPU devices (none)",
     AT(also)},
    {"sync-every", "K", "local: steps from one mean of the weights to the next (4)",
     AT(setup.sync_every), 1, 1 << 16},
    {"with-torch", "[PYTHON=python3]",
     "race PyTorch itself, in this interpreter: eager, and DDP over gloo or nn.DataParallel",
     AT(with_torch)},
    {"torch-deadline", "S", "seconds in which PyTorch must answer (120)", AT(torch_deadline), 0.1,
     86400},
    CLI_OPTION_COLLECTIVES(AT(setup.collectives)),
    CLI_OPTION_BUCKET_MB(AT(setup.bucket_mb), "as in yoke train"),
    CLI_OPTION_LINK(AT(link)),
    CLI_OPTION_INTERPRETER(AT(setup.interpreter_us), "--lesson"),
    CLI_OPTION_OPTIMIZER(AT(setup.optimizer.kind),
                         "with momentum and weight decay as in yoke train (sgd)"),
    CLI_OPTION_LR(AT(setup.optimizer.learning_rate), "learning rate", "0.05"),
    CLI_OPTION_STRAGGLER(AT(straggler), "; not in single"),
    {"shares", "A:B...", "rows of each CPU device or rank: 2:1:1, the first gets half (equal)",
     AT(shares)},
    CLI_OPTION_SEED(AT(setup.seed), "weights, row order and dropout"),
    {"learn-steps", "N", "steps that each contender trains before the race; 0: none (10)",
     AT(learn_steps), 0, COMPARE_LEARN_STEPS},
    {"tolerance", "X", "allowed relative difference of losses (1e-3; but for float32 5e-2)",
     AT(tolerance), 0, 1},
    {"rounds", "N", "rounds of the race; an interval needs 6 (9)", AT(rounds), RACE_FEWEST,
     RACE_ROUNDS},
    {"steps", "N", "steps of each contender in a round (at most half a second of single)",
     AT(steps), 1, 1e6},
    {"seconds", "X", "time limit of the whole command; 3 rounds run in any case (60)", AT(seconds),
     0.1, 86400},
    {"html", "FILE", "write figures of the result to one HTML page", AT(html)},
    CLI_OPTION_JSON(AT(json)),
    CLI_OPTION_QUIET(AT(quiet)),
    {"rank-worker", NULL, NULL, AT(rank_worker)},
};

const cli_verb compare_verb = {
    .name = "compare",
    .summary = "race one device, DataParallel and DDP, side by side",
    .options = options,
    .option_count = CLI_OPTION_COUNT(options),
    .more =
        "The contenders: single (the first device alone), all cores (one CPU device with the\n"
        "cores of all), dp classic, dp overlap and dp sharded (threads), ddp (one process for\n"
        "each device). Each trains on the same batches from the same seed with direct\n"
        "algorithms, and compare checks losses and weights. Then they race, warmed up, in\n"
        "rounds of random order. The batch is the same for all, so more devices get fewer rows\n"
        "each. The exit code is 1 when losses differ by more than --tolerance.\n"
        "--also adds asynchronous and local SGD, whose devices have weights of their own: they "
        "are\n"
        "timed beside the others, and their losses are compared with nobody's.\n"
        "--with-torch adds torch eager on one device and, on all, torch ddp over gloo or, on\n"
        "GPUs, torch dp (nn.DataParallel): the same model, batches and first weights, in the\n"
        "same rounds. It needs an interpreter of Python that has torch.\n"
        "--lesson races dp python (nn.DataParallel without NCCL, with what Python costs it),\n"
        "dp classic (the same without Python), dp nccl (likewise, with NCCL), dp overlap and ddp\n"
        "on 4 CPU devices of one thread, with a batch of 8, a learning rate of 0.01, buckets of\n"
        "0.25 MiB and modelled links, 0.6,20. Options beside it change any of these.\n"};

static const compare_flags defaults = {
    .setup = {.batch = 64, .optimizer.learning_rate = NAN, .interpreter_us = NAN},
    .model = "resnet20",
    .dataset = "synthetic",
    .learn_steps = 10,
    .rounds = 9,
    .seconds = 60,
    .torch_deadline = 120,
    .tolerance = NAN};

/* Small shards and slow links: what the schedules differ in is as large as what they compute. The
 * model is small, so its buckets are: several travel while backward goes on. */
static void set_lesson(compare_flags *flags) {
    *flags = defaults;
    flags->devices = "4xcpu";
    flags->threads = 1;
    flags->setup.batch = 8;
    flags->setup.optimizer.learning_rate = 0.01;
    flags->link = "0.6,20";
    flags->setup.bucket_mb = 0.25;
    flags->setup.interpreter_us = YOKE_INTERPRETER_US;
}

static int fill_algorithm_cache(compare_setup *setup, const compare_flags *flags) {
    algorithm_cache_place place;
    int code = algorithm_cache_check(&flags->algorithm_cache, "compare");
    if (code >= 0 || setup->algorithm == YOKE_ALGORITHM_DIRECT) return code;
    if (!flags->quiet) algorithm_note_fastest(setup->algorithm);
    algorithm_cache_find(&place, &flags->algorithm_cache, !flags->quiet);
    if (place.path == NULL) return -1;
    setup->replace_broken_cache = place.replace_broken;
    int length = snprintf(setup->algorithm_cache, sizeof setup->algorithm_cache, "%s", place.path);
    if (length < (int)sizeof setup->algorithm_cache) return -1;
    return cli_usage_error("compare", "--algorithm-cache has more than %zu bytes",
                           sizeof setup->algorithm_cache - 1);
}

static int fill_setup(compare_setup *setup, const compare_flags *flags) {
    *setup = flags->setup;
    setup->ddp_schedule = flags->ddp == 0 ? YOKE_SCHEDULE_OVERLAP : YOKE_SCHEDULE_SHARDED;
    setup->optimizer = cli_optimizer(setup->optimizer.kind, setup->optimizer.learning_rate);
    if (setup->sync_every == 0) setup->sync_every = 4;
    const char *link = flags->link != NULL ? flags->link : "";
    if (flags->lesson && flags->counts == DOUBLING)
        return cli_usage_error("compare", "--counts: --lesson races on all devices alone");
    if (!flags->lesson && !isnan(setup->interpreter_us))
        return cli_usage_error("compare", "--interpreter-us needs --lesson");
    if (strlen(link) >= sizeof setup->link)
        return cli_usage_error("compare", "--link: '%.40s...' is no link", link);
    strcpy(setup->link, link);
    const char *torch = flags->with_torch != NULL ? flags->with_torch : "";
    if (strlen(torch) >= sizeof setup->torch)
        return cli_usage_error("compare", "--with-torch: '%.40s' is no program", torch);
    strcpy(setup->torch, torch);
    setup->torch_deadline = flags->torch_deadline;
    int code = fill_algorithm_cache(setup, flags);
    return code >= 0 ? code : compare_setup_names(setup, "compare", flags->model, flags->dataset);
}

static int set_straggler(compare_setup *setup, const compare_flags *flags) {
    const straggler *slow = &flags->straggler;
    setup->straggler = slow->index;
    setup->straggler_factor = slow->factor;
    if (slow->index < setup->device_count) return -1;
    return cli_usage_error("compare", "--straggler %s: the devices are 0 to %d", slow->text,
                           setup->device_count - 1);
}

static int set_shares(compare_setup *setup, const compare_flags *flags, bool gpus) {
    const device_shares *given = &flags->shares;
    if (given->text == NULL) return -1;
    if (given->measured)
        return cli_usage_error("compare", "--shares auto: each mode would get rows by its own "
                                          "measure, and learn something else; give numbers");
    if (gpus)
        return cli_usage_error("compare", "--shares: ranks with GPUs have equal ones; leave it "
                                          "out, or use --devices 2xcpu");
    if (flags->also != ALSO_NONE)
        return cli_usage_error("compare", "--shares: async and local give every device a batch of "
                                          "its own; leave out --shares or --also");
    if (given->count != setup->device_count)
        return cli_usage_error("compare", "--shares %s: give one share for each of %d devices",
                               given->text, setup->device_count);
    setup->share_count = given->count;
    memcpy(setup->shares, given->shares, (size_t)given->count * sizeof *setup->shares);
    return -1;
}

/* threads: of each device; 0: as the setup says. */
static void enter(comparison *all, compare_kind kind, int devices, int threads) {
    if (all->count < RACE_CONTENDERS)
        all->contenders[all->count] =
            (compare_contender){.kind = kind, .devices = devices, .threads = threads};
    all->count++;
}

/* They learn something else by design, and have no links. */
static int check_also(const compare_flags *flags, const device_view *view) {
    bool local = flags->also == ALSO_LOCAL || flags->also == ALSO_BOTH;
    if (flags->setup.sync_every > 0 && !local)
        return cli_usage_error("compare", "--sync-every needs --also local");
    if (flags->also == ALSO_NONE) return -1;
    if (view->devices[0].capability > 0)
        return cli_usage_error("compare",
                               "--also: async and local are for CPU devices, and %s is a GPU; "
                               "leave it out, or use --devices 2xcpu",
                               view->devices[0].name);
    if (flags->lesson || (flags->link != NULL && flags->link[0] != '\0'))
        return cli_usage_error("compare",
                               "--also: async and local have no modelled link, and would race "
                               "without what the others pay; leave out --also, or %s",
                               flags->lesson ? "--lesson" : "--link");
    return -1;
}

static void enter_also(comparison *all, unsigned also, int devices) {
    if (also == ALSO_ASYNC || also == ALSO_BOTH) enter(all, COMPARE_ASYNC, devices, 0);
    if (also == ALSO_LOCAL || also == ALSO_BOTH) enter(all, COMPARE_LOCAL, devices, 0);
}

/* Each has processes of its own, so it races on all devices alone. */
static void enter_torch_on_all(comparison *all, int devices) {
    bool gpus = all->result.cores == 0;
    if (all->result.setup.torch[0] == '\0') return;
    enter(all, gpus ? COMPARE_TORCH_DP : COMPARE_TORCH_DDP, devices, 0);
}

static void enter_torch_on_one(comparison *all) {
    if (all->result.setup.torch[0] != '\0') enter(all, COMPARE_TORCH_EAGER, 1, 0);
}

static int enter_lesson(comparison *all, int devices) {
    if (all->result.cores == 0)
        return cli_usage_error("compare",
                               "--lesson: GPUs have links of their own, and no schedule python; "
                               "leave it out, or use CPU devices");
    enter(all, COMPARE_SINGLE, 1, 0);
    enter_torch_on_one(all);
    enter(all, COMPARE_PYTHON, devices, 0);
    enter(all, COMPARE_CLASSIC, devices, 0);
    enter(all, COMPARE_NCCL, devices, 0);
    enter(all, COMPARE_OVERLAP, devices, 0);
    enter(all, COMPARE_DDP, devices, 0);
    enter_torch_on_all(all, devices);
    return -1;
}

static int enter_all(comparison *all, const compare_flags *flags, const device_view *view) {
    if (flags->lesson) return enter_lesson(all, view->count);
    enter(all, COMPARE_SINGLE, 1, 0);
    /* Single has a part of the machine only: a speed-up over it says nothing about the machine. */
    const compare_setup *setup = &all->result.setup;
    int used = setup->threads * setup->device_count;
    if (used > all->result.cores) used = all->result.cores;
    if (used > setup->threads) enter(all, COMPARE_ALL_CORES, 1, used);
    enter_torch_on_one(all);
    for (int devices = 2; devices <= view->count; devices++) {
        bool doubled = (devices & (devices - 1)) == 0 || devices == view->count;
        if (flags->counts == DOUBLING && !doubled) continue;
        enter(all, COMPARE_CLASSIC, devices, 0);
        enter(all, COMPARE_OVERLAP, devices, 0);
        enter(all, COMPARE_SHARDED, devices, 0);
        if (compare_share_a_gpu(view, devices))
            all->result.ddp_left_out = true;
        else
            enter(all, COMPARE_DDP, devices, 0);
        enter_also(all, flags->also, devices);
    }
    enter_torch_on_all(all, view->count);
    if (all->count <= RACE_CONTENDERS) return -1;
    return cli_usage_error("compare",
                           "%d devices make %d contenders, but %d can race; use --counts doubling "
                           "or fewer --devices",
                           view->count, all->count, RACE_CONTENDERS);
}

static int prepare(comparison *all, const compare_flags *flags) {
    static device_view view;
    int code = compare_check_launcher("compare");
    if (code < 0) code = fill_setup(&all->result.setup, flags);
    if (code >= 0) return code;
    yoke_status status = compare_open_devices(&view, flags->devices, flags->threads);
    if (status == YOKE_OK && view.count == 1)
        status = cli_refuse(
            YOKE_ERROR_ARGUMENT,
            "%s is one device, and compare needs two at least: --devices 2xcpu, for example",
            view.devices[0].name);
    if (status != YOKE_OK) return cli_fail(status);
    compare_setup_devices(&all->result.setup, &view, flags->threads);
    all->result.cores = view.devices[0].capability == 0 ? launch_core_count() : 0;
    snprintf(all->result.processor, sizeof all->result.processor, "%s",
             view.devices[0].description);
    code = set_straggler(&all->result.setup, flags);
    if (code < 0) code = set_shares(&all->result.setup, flags, view.devices[0].capability > 0);
    if (code < 0) code = check_also(flags, &view);
    if (code >= 0) return code;
    all->result.learn_steps = flags->learn_steps;
    all->result.seconds_limit = flags->seconds;
    all->result.tolerance = !isnan(flags->tolerance)                 ? flags->tolerance
                            : flags->setup.precision == YOKE_FLOAT32 ? 1e-3
                                                                     : 5e-2;
    return enter_all(all, flags, &view);
}

/* The run. */

static void note(progress *view, const char *doing, const compare_contender *contender) {
    char text[96];
    snprintf(text, sizeof text, "%s %s on %d device%s ...", doing,
             compare_kind_name(contender->kind), contender->devices,
             contender->devices == 1 ? "" : "s");
    progress_clear(view);
    progress_note(view, text);
}

/* PyTorch comes first: where it refuses, nobody has waited for the others. */
static void choose_order(const comparison *all, int order[RACE_CONTENDERS]) {
    int count = 0;
    for (int i = 0; i < all->count; i++)
        if (compare_is_torch(all->contenders[i].kind)) order[count++] = i;
    for (int i = 0; i < all->count; i++)
        if (!compare_is_torch(all->contenders[i].kind)) order[count++] = i;
}

/* With direct algorithms: the fastest ones differ with the size of a shard, and their rounding
 * errors grow with every step. */
static yoke_status learn(comparison *all, const compare_meeting *meeting, progress *view) {
    compare_setup direct = all->result.setup;
    yoke_status status = YOKE_OK;
    int order[RACE_CONTENDERS];
    choose_order(all, order);
    direct.algorithm = YOKE_ALGORITHM_DIRECT;
    direct.learn_steps = all->result.learn_steps;
    for (int i = 0; i < all->count && all->result.learn_steps > 0 && status == YOKE_OK; i++) {
        compare_contender *contender = &all->contenders[order[i]];
        note(view, "training", contender);
        status = compare_contender_build(contender, &direct, meeting);
        if (status == YOKE_OK) status = compare_contender_learn(contender, all->result.learn_steps);
        compare_contender_clear(contender);
    }
    return status;
}

static yoke_status build(comparison *all, const compare_meeting *meeting, progress *view) {
    yoke_status status = YOKE_OK;
    int order[RACE_CONTENDERS];
    choose_order(all, order);
    for (int i = 0; i < all->count && status == YOKE_OK; i++) {
        compare_contender *contender = &all->contenders[order[i]];
        note(view, "preparing", contender);
        status = compare_contender_build(contender, &all->result.setup, meeting);
        if (status == YOKE_OK) status = compare_contender_record(contender);
    }
    return status;
}

static double other_seconds(void *context) {
    const comparison *all = context;
    double seconds = 0;
    for (int i = 0; i < all->count; i++)
        seconds += compare_contender_seconds(&all->contenders[i]);
    return seconds;
}

static yoke_status race(comparison *all, const compare_flags *flags, double seconds) {
    all->race = (rounds){.title = flags->quiet ? NULL : "race",
                         .count = all->count,
                         .rounds = flags->rounds,
                         .steps = flags->steps,
                         .seconds = fmax(seconds, 0),
                         .helpers = other_seconds,
                         .context = all};
    for (int i = 0; i < all->count; i++)
        all->race.contenders[i] = (race_contender){compare_contender_run, &all->contenders[i]};
    return race_run(&all->race);
}

/* Learns, prepares and races; notes how long each of the three took. */
static yoke_status run_all(comparison *all, const compare_flags *flags, double begin,
                           const compare_meeting *meeting, progress *view) {
    compare_result *result = &all->result;
    yoke_status status = learn(all, meeting, view);
    double learned = race_clock();
    if (status == YOKE_OK) status = build(all, meeting, view);
    double prepared = race_clock();
    progress_clear(view);
    if (status == YOKE_OK) status = race(all, flags, flags->seconds - (prepared - begin));
    result->seconds_learning = learned - begin;
    result->seconds_preparing = prepared - learned;
    result->seconds_racing = race_clock() - prepared;
    return status == YOKE_OK ? compare_fill(all) : status;
}

static yoke_status report(const compare_result *result, const compare_flags *flags) {
    if (!flags->json || !flags->quiet) compare_print(flags->json ? stderr : stdout, result);
    yoke_status status = flags->json ? compare_print_json(stdout, result) : YOKE_OK;
    fflush(stdout); /* the result is out, even if the page cannot be written */
    if (status == YOKE_OK && flags->html != NULL) status = compare_write_page(flags->html, result);
    return status;
}

static int run(comparison *all, const compare_flags *flags, double begin) {
    compare_meeting meeting;
    progress view;
    int code = compare_meeting_open(&meeting);
    if (code >= 0) return code;
    progress_begin(&view, 0, 0, flags->quiet);
    yoke_status status = run_all(all, flags, begin, &meeting, &view);
    if (status == YOKE_OK) status = report(&all->result, flags);
    if (status != YOKE_OK) code = cli_fail(status);
    for (int i = 0; i < all->count; i++)
        compare_contender_clear(&all->contenders[i]);
    compare_meeting_close(&meeting);
    return code >= 0 ? code : compare_all_equal(&all->result) ? 0 : 1;
}

int compare_main(int argc, char **argv) {
    compare_flags flags = defaults;
    double begin = race_clock();
    int code = cli_parse(&compare_verb, argc, argv, &flags, NULL);
    if (code < 0 && flags.lesson) {
        set_lesson(&flags);
        code = cli_parse(&compare_verb, argc, argv, &flags, NULL);
    }
    if (code >= 0) return code;
    if (flags.rank_worker) return compare_worker();
    comparison *all = calloc(1, sizeof *all);
    if (all == NULL) return cli_system_error("no memory for the contenders");
    code = prepare(all, &flags);
    if (code < 0) code = run(all, &flags, begin);
    compare_result_clear(&all->result);
    free(all);
    return code;
}
