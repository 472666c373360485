/* yoke compare: trains one configuration on one device, on several by threads and on several by
 * processes. Do all learn the same, and how fast is each? */
#include "cli/compare/compare.h"

#include <math.h>
#include <stddef.h>
#include <stdlib.h>

#include "cli/cli.h"
#include "cli/launch/launch_environment.h"
#include "cli/progress.h"
#include "cli/result.h"
#include "cli/shared_options.h"

typedef struct compare_flags {
    const char *model, *dataset, *devices;
    int threads, counts, batch, precision, algorithm, collectives, ddp, optimizer;
    int learn_steps, rounds, steps;
    uint64_t seed;
    double lr, tolerance, seconds;
    bool json, quiet, rank_worker;
} compare_flags;

#define AT(field) offsetof(compare_flags, field)
#define DOUBLING 1 /* of "all|doubling" */

static const cli_option options[] = {
    {"model", "NAME", "as in yoke train (resnet20)", CLI_TEXT, AT(model), 0, 0},
    {"dataset", "SPEC", "as in yoke train (synthetic)", CLI_TEXT, AT(dataset), 0, 0},
    {"devices", "LIST", "2xcpu, 4xcuda, ...; single uses the first one (every GPU, or 2xcpu)",
     CLI_TEXT, AT(devices), 0, 0},
    {"counts", "all|doubling", "race on 2, 3, 4 ... or on 2, 4, 8 ... devices (all)", CLI_CHOICE,
     AT(counts), 0, 0},
    CLI_OPTION_THREADS(AT(threads)),
    CLI_OPTION_BATCH(AT(batch), "64"),
    CLI_OPTION_PRECISION(AT(precision)),
    CLI_OPTION_ALGORITHM(
        AT(algorithm), "of the race: fastest by measurement, or the same in every run (measured)"),
    {"ddp", "overlap|sharded", "each rank updates all weights, or its own part (overlap)",
     CLI_CHOICE, AT(ddp), 0, 0},
    CLI_OPTION_COLLECTIVES(AT(collectives)),
    CLI_OPTION_OPTIMIZER(AT(optimizer), "with momentum and weight decay as in yoke train (sgd)"),
    CLI_OPTION_LR(AT(lr), "learning rate", "0.05"),
    CLI_OPTION_SEED(AT(seed), "weights, row order and dropout"),
    {"learn-steps", "N", "steps that each contender trains before the race; 0: none (10)",
     CLI_INTEGER, AT(learn_steps), 0, COMPARE_LEARN_STEPS},
    {"tolerance", "X", "allowed relative difference of losses (1e-3; bfloat16, tf32: 5e-2)",
     CLI_REAL, AT(tolerance), 0, 1},
    {"rounds", "N", "rounds of the race (9)", CLI_INTEGER, AT(rounds), 3, RACE_ROUNDS},
    {"steps", "N", "steps of each contender in a round (half a second of single)", CLI_INTEGER,
     AT(steps), 1, 1e6},
    {"seconds", "X", "time limit of the race (30)", CLI_REAL, AT(seconds), 0.1, 86400},
    CLI_OPTION_JSON(AT(json)),
    CLI_OPTION_QUIET(AT(quiet)),
    {"rank-worker", NULL, NULL, CLI_FLAG, AT(rank_worker), 0, 0},
};

const cli_verb compare_verb = {
    .name = "compare",
    .summary = "race one device, DataParallel and DDP, side by side",
    .options = options,
    .option_count = CLI_OPTION_COUNT(options),
    .more =
        "The contenders: single (the first device alone), dp classic, dp overlap and dp sharded\n"
        "(threads), ddp (one process for each device). Each trains on the same batches from the\n"
        "same seed with direct algorithms, and compare checks losses and weights. Then they race,\n"
        "warmed up, in rounds of random order. The batch is the same for all, so more devices get\n"
        "fewer rows each. The exit code is 1 when losses differ by more than --tolerance.\n"};

static const compare_flags defaults = {.model = "resnet20",
                                       .dataset = "synthetic",
                                       .batch = 64,
                                       .learn_steps = 10,
                                       .rounds = 9,
                                       .seconds = 30,
                                       .lr = NAN,
                                       .tolerance = NAN};

static int fill_setup(compare_setup *setup, const compare_flags *flags) {
    setup->batch = flags->batch;
    setup->seed = flags->seed;
    setup->precision = (yoke_precision)flags->precision;
    setup->algorithm = (yoke_algorithm)flags->algorithm;
    setup->collectives = (yoke_collectives)flags->collectives;
    setup->ddp_schedule = flags->ddp == 0 ? YOKE_SCHEDULE_OVERLAP : YOKE_SCHEDULE_SHARDED;
    setup->optimizer = cli_optimizer((yoke_optimizer_kind)flags->optimizer, flags->lr);
    return compare_setup_names(setup, "compare", flags->model, flags->dataset);
}

static yoke_status open_devices(device_view *view, const compare_flags *flags) {
    yoke_status status = compare_open_devices(view, flags->devices, flags->threads);
    if (status == YOKE_OK && view->count == 1)
        return cli_refuse(
            YOKE_ERROR_ARGUMENT,
            "%s is one device, and compare needs two at least: --devices 2xcpu, for example",
            view->devices[0].name);
    return status;
}

static void describe_devices(comparison *all, const compare_flags *flags, const device_view *view) {
    compare_setup_devices(&all->setup, view, flags->threads);
    all->cores = view->devices[0].capability == 0 ? launch_core_count() : 0;
    snprintf(all->processor, sizeof all->processor, "%s", view->devices[0].description);
}

static void enter(comparison *all, compare_kind kind, int devices) {
    if (all->count < RACE_CONTENDERS)
        all->contenders[all->count] = (compare_contender){.kind = kind, .devices = devices};
    all->count++;
}

static bool is_counted(int devices, int most, int counts) {
    return counts != DOUBLING || devices == most || (devices & (devices - 1)) == 0;
}

static int enter_all(comparison *all, const compare_flags *flags, const device_view *view) {
    enter(all, COMPARE_SINGLE, 1);
    for (int devices = 2; devices <= view->count; devices++) {
        if (!is_counted(devices, view->count, flags->counts)) continue;
        enter(all, COMPARE_CLASSIC, devices);
        enter(all, COMPARE_OVERLAP, devices);
        enter(all, COMPARE_SHARDED, devices);
        if (compare_share_a_gpu(view, devices))
            all->ddp_left_out = true;
        else
            enter(all, COMPARE_DDP, devices);
    }
    if (all->count <= RACE_CONTENDERS) return -1;
    return cli_usage_error("compare",
                           "%d devices make %d contenders, but %d can race; use --counts doubling "
                           "or fewer --devices",
                           view->count, all->count, RACE_CONTENDERS);
}

static int prepare(comparison *all, const compare_flags *flags) {
    static const double tolerances[] = {
        [YOKE_FLOAT32] = 1e-3, [YOKE_BFLOAT16] = 5e-2, [YOKE_TF32] = 5e-2};
    static device_view view;
    int code = compare_check_launcher("compare");
    if (code < 0) code = fill_setup(&all->setup, flags);
    if (code >= 0) return code;
    yoke_status status = open_devices(&view, flags);
    if (status != YOKE_OK) return cli_fail(status);
    describe_devices(all, flags, &view);
    all->learn_steps = flags->learn_steps;
    all->tolerance = isnan(flags->tolerance) ? tolerances[flags->precision] : flags->tolerance;
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

/* With direct algorithms: the fastest ones differ with the size of a shard, and their rounding
 * errors grow with every step. */
static yoke_status learn(comparison *all, const compare_meeting *meeting, progress *view) {
    compare_setup direct = all->setup;
    yoke_status status = YOKE_OK;
    direct.algorithm = YOKE_ALGORITHM_DIRECT;
    for (int i = 0; i < all->count && all->learn_steps > 0 && status == YOKE_OK; i++) {
        compare_contender *contender = &all->contenders[i];
        note(view, "training", contender);
        status = compare_contender_build(contender, &direct, meeting);
        if (status == YOKE_OK) status = compare_contender_learn(contender, all->learn_steps);
        compare_contender_clear(contender);
    }
    return status;
}

static yoke_status build(comparison *all, const compare_meeting *meeting, progress *view) {
    yoke_status status = YOKE_OK;
    for (int i = 0; i < all->count && status == YOKE_OK; i++) {
        note(view, "preparing", &all->contenders[i]);
        status = compare_contender_build(&all->contenders[i], &all->setup, meeting);
    }
    return status;
}

static double rank_seconds(void *context) {
    const comparison *all = context;
    double seconds = 0;
    for (int i = 0; i < all->count; i++)
        if (all->contenders[i].ranks != NULL)
            seconds += compare_ranks_seconds(all->contenders[i].ranks);
    return seconds;
}

static yoke_status race(comparison *all, const compare_flags *flags) {
    all->race = (rounds){.title = flags->quiet ? NULL : "race",
                         .count = all->count,
                         .rounds = flags->rounds,
                         .steps = flags->steps,
                         .seconds = flags->seconds,
                         .helpers = rank_seconds,
                         .context = all};
    for (int i = 0; i < all->count; i++)
        all->race.contenders[i] = (race_contender){compare_contender_run, &all->contenders[i]};
    yoke_status status = race_run(&all->race);
    for (int i = 0; i < all->count && status == YOKE_OK; i++)
        status = compare_contender_look(&all->contenders[i]);
    return status;
}

static yoke_status report(const comparison *all, const compare_flags *flags) {
    if (!flags->json || !flags->quiet) compare_print(flags->json ? stderr : stdout, all);
    return flags->json ? compare_print_json(stdout, all) : YOKE_OK;
}

static int run(comparison *all, const compare_flags *flags) {
    compare_meeting meeting;
    progress view;
    int code = compare_meeting_open(&meeting);
    if (code >= 0) return code;
    progress_begin(&view, 0, 0, flags->quiet);
    yoke_status status = learn(all, &meeting, &view);
    if (status == YOKE_OK) status = build(all, &meeting, &view);
    progress_clear(&view);
    if (status == YOKE_OK) status = race(all, flags);
    if (status == YOKE_OK) status = report(all, flags);
    if (status != YOKE_OK) code = cli_fail(status);
    for (int i = 0; i < all->count; i++)
        compare_contender_clear(&all->contenders[i]);
    compare_meeting_close(&meeting);
    return code >= 0 ? code : compare_all_equal(all) ? 0 : 1;
}

int compare_main(int argc, char **argv) {
    compare_flags flags = defaults;
    int code = cli_parse(&compare_verb, argc, argv, &flags, NULL);
    if (code >= 0) return code;
    if (flags.rank_worker) return compare_worker();
    comparison *all = calloc(1, sizeof *all);
    if (all == NULL) return cli_system_error("no memory for the contenders");
    code = prepare(all, &flags);
    if (code < 0) code = run(all, &flags);
    free(all);
    return code;
}
