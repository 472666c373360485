/* yoke compare: one configuration on one device, on several by threads, and on several by
 * processes: do they learn the same, and how fast? */
#include "compare.h"

#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"
#include "launch.h"
#include "progress.h"
#include "rank_options.h"
#include "result.h"

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
    {"model", "NAME", "as yoke train's (resnet20)", CLI_TEXT, AT(model), 0, 0},
    {"dataset", "SPEC", "as yoke train's (synthetic)", CLI_TEXT, AT(dataset), 0, 0},
    {"devices", "LIST", "2xcpu, 4xcuda, ...; the first is alone in single (every GPU, or 2xcpu)",
     CLI_TEXT, AT(devices), 0, 0},
    {"counts", "all|doubling", "numbers of devices: 2, 3, 4 ... or 2, 4, 8 ... (all)", CLI_CHOICE,
     AT(counts), 0, 0},
    {"threads", "N", "compute threads of each device, also of single's (cores / devices)",
     CLI_INTEGER, AT(threads), 0, 1024},
    {"batch", "N", "rows of a step, over all devices (64)", CLI_INTEGER, AT(batch), 1, 1 << 20},
    {"precision", "float32|bfloat16|tf32", "(float32)", CLI_CHOICE, AT(precision), 0, 0},
    {"algorithm", "measured|direct",
     "of the race: the fastest, or the same in every run (measured)", CLI_CHOICE, AT(algorithm), 0,
     0},
    {"ddp", "overlap|sharded", "ranks update all weights each, or a part each (overlap)",
     CLI_CHOICE, AT(ddp), 0, 0},
    {"collectives", "auto|nccl|copy", "of dp between GPUs (auto)", CLI_CHOICE, AT(collectives), 0,
     0},
    {"optimizer", "sgd|adamw", "with yoke train's momentum and weight decay (sgd)", CLI_CHOICE,
     AT(optimizer), 0, 0},
    {"lr", "X", "learning rate (0.05 for sgd, 0.001 for adamw)", CLI_REAL, AT(lr), 0, INFINITY},
    {"seed", "N", "of weights, order, dropout (0)", CLI_UNSIGNED, AT(seed), 0, 0},
    {"learn-steps", "N", "steps each learns before the race; 0: none (10)", CLI_INTEGER,
     AT(learn_steps), 0, COMPARE_LEARN_STEPS},
    {"tolerance", "X", "largest relative difference of losses (1e-3; bfloat16, tf32: 5e-2)",
     CLI_REAL, AT(tolerance), 0, 1},
    {"rounds", "N", "of the race (9)", CLI_INTEGER, AT(rounds), 3, RACE_ROUNDS},
    {"steps", "N", "of a contender in a round (half a second of single's)", CLI_INTEGER, AT(steps),
     1, 1e6},
    {"seconds", "X", "longest race (30)", CLI_REAL, AT(seconds), 0.1, 86400},
    {"json", NULL, "print the result as one JSON object", CLI_FLAG, AT(json), 0, 0},
    {"quiet", NULL, "print the result only", CLI_FLAG, AT(quiet), 0, 0},
    {"rank-worker", NULL, NULL, CLI_FLAG, AT(rank_worker), 0, 0},
};

const cli_verb compare_verb = {
    .name = "compare",
    .summary = "race one device, DataParallel and DDP, side by side",
    .options = options,
    .option_count = CLI_OPTION_COUNT(options),
    .more = "Each contender learns the same batches from the same seed, with direct algorithms; "
            "losses\n"
            "and weights are then compared. Then fresh ones race, warmed up, in rounds of random "
            "order:\n"
            "single (the first device alone), dp classic, overlap and sharded (threads), ddp (a "
            "process\n"
            "for each device). The batch is the same for all: more devices get fewer rows each.\n"
            "1 is the exit code when what they learned differs by more than rounding.\n"};

static const compare_flags defaults = {.model = "resnet20",
                                       .dataset = "synthetic",
                                       .batch = 64,
                                       .learn_steps = 10,
                                       .rounds = 9,
                                       .seconds = 30,
                                       .lr = NAN,
                                       .tolerance = NAN};

/* The configuration. */

static bool copy_text(char *to, size_t size, const char *text) {
    return (size_t)snprintf(to, size, "%s", text) < size;
}

static int check_launcher(void) {
    yoke_rank_info rank;
    int code = rank_info_read(&rank);
    if (code >= 0) return code;
    if (rank.world > 1)
        return cli_usage_error("compare",
                               "%s started %d processes, but compare starts its ranks itself: "
                               "start one",
                               rank.source, rank.world);
    return -1;
}

static int fill_setup(compare_setup *setup, const compare_flags *flags) {
    if (!copy_text(setup->model, sizeof setup->model, flags->model))
        return cli_usage_error("compare", "--model: '%.80s...' is no model", flags->model);
    if (!copy_text(setup->dataset, sizeof setup->dataset, flags->dataset))
        return cli_usage_error("compare", "--dataset is longer than %zu bytes",
                               sizeof setup->dataset - 1);
    setup->batch = flags->batch;
    setup->seed = flags->seed;
    setup->precision = (yoke_precision)flags->precision;
    setup->algorithm = (yoke_algorithm)flags->algorithm;
    setup->collectives = (yoke_collectives)flags->collectives;
    setup->ddp_schedule = flags->ddp == 0 ? YOKE_SCHEDULE_OVERLAP : YOKE_SCHEDULE_SHARDED;
    static const yoke_optimizer_options sgd = YOKE_SGD_OPTIONS_INIT,
                                        adamw = YOKE_ADAMW_OPTIONS_INIT;
    setup->optimizer = flags->optimizer == YOKE_SGD ? sgd : adamw;
    if (flags->optimizer == YOKE_SGD) {
        setup->optimizer.learning_rate = 0.05;
        setup->optimizer.momentum = 0.9;
        setup->optimizer.weight_decay = 5e-4;
    }
    if (!isnan(flags->lr)) setup->optimizer.learning_rate = flags->lr;
    return -1;
}

static yoke_status look_at(device_view *view, const char *list, int threads) {
    yoke_devices *devices = NULL;
    yoke_devices_options asked = {.struct_size = sizeof asked, .list = list, .threads = threads};
    yoke_status status = yoke_devices_open(&devices, &asked);
    if (status == YOKE_OK) status = device_view_read(view, devices);
    yoke_devices_close(devices);
    return status;
}

/* The list asked for; otherwise every GPU, or the processor as two devices. */
static yoke_status choose_devices(comparison *all, const compare_flags *flags, device_view *view) {
    compare_setup *setup = &all->setup;
    yoke_status status =
        look_at(view, flags->devices != NULL ? flags->devices : "auto", flags->threads);
    bool cpu = status == YOKE_OK && view->devices[0].capability == 0;
    if (cpu && view->count == 1 && flags->devices == NULL)
        status = look_at(view, "2xcpu", flags->threads);
    if (status != YOKE_OK) return status;
    if (view->count == 1)
        return cli_refuse(YOKE_ERROR_ARGUMENT,
                          "%s alone has nothing to be compared with: --devices 2xcpu, say, are two",
                          view->devices[0].name);
    all->cores = cpu ? launch_core_count() : 0;
    setup->threads = cpu ? view->devices[0].threads : flags->threads;
    setup->device_count = view->count;
    for (int i = 0; i < view->count && i < CLI_DEVICES_MAX; i++)
        memcpy(setup->names[i], view->devices[i].name, sizeof setup->names[i]);
    snprintf(all->processor, sizeof all->processor, "%s", view->devices[0].description);
    return YOKE_OK;
}

/* NCCL takes one rank of a GPU. */
static bool share_a_gpu(const device_view *view, int count) {
    for (int i = 0; i < count; i++)
        for (int k = 0; k < i && view->devices[i].uuid[0] != '\0'; k++)
            if (strcmp(view->devices[i].uuid, view->devices[k].uuid) == 0) return true;
    return false;
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
        if (share_a_gpu(view, devices))
            all->ddp_left_out = true;
        else
            enter(all, COMPARE_DDP, devices);
    }
    if (all->count <= RACE_CONTENDERS) return -1;
    return cli_usage_error("compare",
                           "%d devices make %d contenders, %d can race: --counts doubling has "
                           "fewer, or name fewer --devices",
                           view->count, all->count, RACE_CONTENDERS);
}

static int prepare(comparison *all, const compare_flags *flags) {
    static const double tolerances[] = {
        [YOKE_FLOAT32] = 1e-3, [YOKE_BFLOAT16] = 5e-2, [YOKE_TF32] = 5e-2};
    static device_view view;
    int code = check_launcher();
    if (code < 0) code = fill_setup(&all->setup, flags);
    if (code >= 0) return code;
    yoke_status status = choose_devices(all, flags, &view);
    if (status != YOKE_OK) return cli_fail(status);
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

/* With direct algorithms: those measured to be fastest are others for other shards, and what
 * rounding makes of that grows with every step. */
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

static void report(const comparison *all, const compare_flags *flags) {
    FILE *words = flags->json ? stderr : stdout;
    if (!flags->json || !flags->quiet) {
        compare_print(words, all);
        compare_interpret(words, all);
    }
    if (flags->json) compare_emit(stdout, all);
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
    if (status == YOKE_OK)
        report(all, flags);
    else
        code = cli_fail(status);
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
    if (all == NULL) return cli_system_error("cannot keep track of the contenders");
    code = prepare(all, &flags);
    if (code < 0) code = run(all, &flags);
    free(all);
    return code;
}
