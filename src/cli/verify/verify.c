/* SPDX-License-Identifier: Apache-2.0 */
/* yoke verify: trains one configuration in every mode and compares every tensor after every step.
 */
#include "cli/verify/verify.h"

#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/progress.h"
#include "cli/result.h"
#include "cli/shared_options.h"
#include "cli/verify/own_exchange.h"
#include "cli/verify/verify_record.h"

/* Multiplications of a step; the float64 reference needs about a nanosecond for each. */
#define REFERENCE_WORK 2e9

typedef struct verify_flags {
    compare_setup setup; /* optimizer: kind and learning rate, NaN: the default of the kind */
    const char *model, *dataset, *devices, *record, *against, *exchange;
    unsigned reference; /* a word */
    int threads, steps, record_every;
    double tolerance;
    bool json, quiet;
} verify_flags;

#define AT(field) CLI_FIELD(verify_flags, field)
enum { FOLLOW, FREE, NO }; /* of --reference */

static const cli_option options[] = {
    {"model", "NAME", "as in yoke train (resnet20)", AT(model)},
    {"dataset", "SPEC", "as in yoke train (synthetic:3x16x16)", AT(dataset)},
    CLI_OPTION_LIMIT_ROWS(AT(setup.limit_rows)),
    CLI_OPTION_SKIP_BAD(AT(setup.skip_bad)),
    {"devices", "LIST", "2xcpu, 4xcuda, ...; one device: single alone (every GPU, or 2xcpu)",
     AT(devices)},
    CLI_OPTION_THREADS(AT(threads)),
    CLI_OPTION_BATCH(AT(setup.batch), "16"),
    CLI_OPTION_SHARDS(AT(setup.shards)),
    {"steps", "N", "steps of every mode (5)", AT(steps), 1, 1e5},
    CLI_OPTION_OPTIMIZER(AT(setup.optimizer.kind),
                         "with momentum and weight decay as in yoke train (sgd)"),
    CLI_OPTION_LR(AT(setup.optimizer.learning_rate), "learning rate", "0.01"),
    CLI_OPTION_SEED(AT(setup.seed), "weights, row order and dropout"),
    CLI_OPTION_ALGORITHM(
        AT(setup.algorithm),
        "fastest by measurement, which differs between modes, or the same in all (direct)"),
    {"reference", "follow|free|no",
     "the float64 reference: starts each step from single's weights, trains alone, or none "
     "(follow)",
     AT(reference)},
    {"tolerance", "X", "allowed difference by rounding, relative to the norm of a tensor (0.1)",
     AT(tolerance), 0, 1},
    {"record", "FILE", "write batches, gradients and weights of single as safetensors", AT(record)},
    {"record-every", "N", "record the tensors of every Nth step, and of the last (1)",
     AT(record_every), 1, 1e5},
    {"against", "FILE", "compare with a recorded run, of yoke or of another program", AT(against)},
    {"exchange", "FILE", "an exchange of your own, C or Python with all_reduce: docs/lesson.md",
     AT(exchange)},
    CLI_OPTION_JSON(AT(json)),
    CLI_OPTION_QUIET(AT(quiet)),
};

const cli_verb verify_verb = {
    .name = "verify",
    .summary = "prove that all ways to train give the same weights",
    .options = options,
    .option_count = CLI_OPTION_COUNT(options),
    .more = "The modes: single (the first device), classic, overlap and sharded (DataParallel on "
            "all\ndevices), ddp (one process for each), and the float64 reference. All train on "
            "the same batches\nfrom the same weights; after every step verify compares every "
            "tensor. Modes on as many devices\nmust agree bit for bit, with --shards all modes; "
            "others up to --tolerance. With --algorithm\nmeasured all agree up to the tolerance "
            "only. The exit code is 1 when modes differ by more.\ndocs/verify.md explains it.\n"};

static const verify_flags defaults = {
    .setup = {.batch = 16, .algorithm = YOKE_ALGORITHM_DIRECT, .optimizer.learning_rate = NAN},
    .model = "resnet20",
    .dataset = "synthetic:3x16x16",
    .steps = 5,
    .tolerance = 0.1,
    .record_every = 1};

/* A run of verify: what it compares, and what it needs for that. */
typedef struct session {
    verification all;
    const verify_flags *flags;
    verify_run run;
    device_view view;
    compare_meeting meeting;
    yoke_dataset *dataset;
    yoke_loader *loader; /* batches in host memory, for the reference and the record */
    uint64_t epoch;
    yoke_batch batch;
    yoke_tensor_file *record, *against;
    own_exchange own;
    progress progress;
} session;

bool verify_compared(const verification *all) {
    bool compared = false;
    for (int i = 0; i < all->pair_count; i++)
        compared = compared || (all->pairs[i].bar != VERIFY_NOTHING && all->pairs[i].steps > 0);
    return compared;
}

bool verify_passes(const verification *all) {
    for (int i = 0; i < all->pair_count; i++)
        if (!verify_pair_passes(&all->pairs[i], all->tolerance)) return false;
    return verify_compared(all);
}

/* Modes and pairs. */

static verify_mode *add_mode(session *now, verify_kind kind, int devices) {
    verify_mode *mode = &now->all.modes[now->all.mode_count++];
    *mode = (verify_mode){.kind = kind, .devices = devices};
    return mode;
}

static void add_pair(session *now, const verify_mode *mode, const verify_mode *with,
                     verify_bar bar) {
    if (mode == NULL || with == NULL) return;
    if (bar == VERIFY_BITS && now->all.setup.algorithm != YOKE_ALGORITHM_DIRECT)
        bar = VERIFY_TOLERANCE;
    now->all.pairs[now->all.pair_count++] =
        (verify_pair){.mode = mode, .with = with, .bar = bar, .gradient_relative = -1};
}

/* A reference for another mode; NULL: it would take too long. */
static verify_mode *add_reference(session *now, const verify_mode *leader) {
    double work = yoke_reference_work(now->all.model, now->all.setup.batch);
    if (now->flags->reference == NO) return NULL;
    if (work <= REFERENCE_WORK) {
        verify_mode *reference = add_mode(now, VERIFY_REFERENCE, leader->devices);
        reference->leader = leader;
        return reference;
    }
    snprintf(now->all.left_out[0], sizeof now->all.left_out[0],
             "No float64 reference: a step has %.1e multiplications, the limit is %.0e; take a "
             "smaller --batch.",
             work, REFERENCE_WORK);
    return NULL;
}

/* Its order of sums is its own: it agrees with a built-in one up to rounding. */
static void plan_own(session *now, const verify_mode *classic) {
    if (now->own.exchange.all_reduce == NULL) return;
    verify_mode *own = add_mode(now, VERIFY_OWN, classic->devices);
    own->exchange = &now->own.exchange;
    add_pair(now, own, classic, VERIFY_TOLERANCE);
    add_pair(now, own, add_reference(now, own), VERIFY_TOLERANCE);
}

/* Batch norm normalizes the rows of each device alone, or of each shard. */
static void plan_devices(session *now, const verify_mode *single) {
    int devices = now->view.count;
    bool shards = now->all.setup.shards > 0, batch_norm = now->all.batch_norm && !shards;
    const verify_mode *classic = add_mode(now, VERIFY_CLASSIC, devices);
    const verify_mode *reference = batch_norm ? add_reference(now, classic) : NULL;
    verify_bar bar = batch_norm ? VERIFY_NOTHING : VERIFY_TOLERANCE;
    add_pair(now, classic, single, shards ? VERIFY_BITS : bar);
    add_pair(now, classic, reference, VERIFY_TOLERANCE);
    add_pair(now, add_mode(now, VERIFY_OVERLAP, devices), classic, VERIFY_BITS);
    add_pair(now, add_mode(now, VERIFY_SHARDED, devices), classic, VERIFY_BITS);
    plan_own(now, classic);
    if (!compare_share_a_gpu(&now->view, devices))
        add_pair(now, add_mode(now, VERIFY_DDP, devices), classic, VERIFY_BITS);
    else
        snprintf(now->all.left_out[1], sizeof now->all.left_out[1],
                 "No ddp where devices share a GPU: NCCL allows one rank for each GPU.");
}

/* single is open already. */
static void plan(session *now) {
    const verify_mode *single = &now->all.modes[0], *reference = add_reference(now, single);
    add_pair(now, single, reference, VERIFY_TOLERANCE);
    if (now->against != NULL) {
        verify_mode *file = add_mode(now, VERIFY_FILE, 1);
        add_pair(now, single, file, verify_is_own(now->against) ? VERIFY_BITS : VERIFY_TOLERANCE);
        add_pair(now, reference, file, VERIFY_TOLERANCE);
    }
    if (now->view.count > 1) plan_devices(now, single);
}

/* A mode alone proves nothing; it may write a record. */
static yoke_status check_plan(const session *now) {
    const char *reason = now->all.left_out[0];
    if (now->all.pair_count > 0 || now->flags->record != NULL) return YOKE_OK;
    if (reason[0] == '\0') reason = "--reference no leaves out the float64 reference.";
    return cli_refuse(YOKE_ERROR_ARGUMENT,
                      "nothing to compare with one device: %s Take --devices 2xcpu, --against FILE "
                      "or --record FILE",
                      reason);
}

static bool has_batch_norm(const yoke_model *model) {
    bool found = false;
    for (int i = 0; i < yoke_model_tensor_count(model); i++) {
        yoke_tensor_info info = {.struct_size = sizeof info};
        found = found || (yoke_model_tensor(model, i, &info) == YOKE_OK && info.integer);
    }
    return found; /* num_batches_tracked */
}

/* Preparing. */

static yoke_status open_batches(session *now) {
    const compare_setup *setup = &now->all.setup;
    yoke_loader_options wanted = {.struct_size = sizeof wanted,
                                  .batch = setup->batch,
                                  .shuffle = true,
                                  .drop_last = true,
                                  .seed = setup->seed};
    now->batch.struct_size = sizeof now->batch;
    yoke_status status = compare_setup_open(setup, false, &now->dataset);
    if (status == YOKE_OK) status = yoke_loader_create(&now->loader, now->dataset, &wanted);
    if (status == YOKE_OK) status = yoke_loader_select_inputs(now->loader, now->all.model);
    return status == YOKE_OK ? yoke_loader_begin(now->loader, 0) : status;
}

static void note(session *now, const char *text) {
    progress_clear(&now->progress);
    progress_note(&now->progress, text);
}

static yoke_status open_mode(session *now, verify_mode *mode) {
    char text[64];
    snprintf(text, sizeof text, "preparing %s ...", verify_mode_name(mode));
    note(now, text);
    yoke_status status = verify_mode_open(mode, &now->all.setup, &now->meeting, now->all.model);
    if (status == YOKE_OK && mode->kind == VERIFY_FILE) mode->file = now->against;
    return status;
}

static yoke_status open_single(session *now) {
    verify_mode *single = add_mode(now, VERIFY_SINGLE, 1);
    yoke_status status = open_mode(now, single);
    if (status != YOKE_OK) return status;
    now->all.model = compare_engine_model(single->engine);
    now->all.batch_norm = has_batch_norm(now->all.model);
    return verify_mode_read(single, now->all.model, 0);
}

static yoke_status open_all(session *now) {
    yoke_status status = yoke_file_check(now->flags->record);
    if (status == YOKE_OK && now->flags->exchange != NULL)
        status = own_exchange_open(&now->own, now->flags->exchange);
    if (status == YOKE_OK && now->flags->against != NULL)
        status = verify_against_open(&now->against, now->flags->against, &now->run);
    if (status == YOKE_OK) status = open_single(now);
    if (status == YOKE_OK) status = open_batches(now);
    if (status == YOKE_OK && now->flags->record != NULL)
        status = verify_record_begin(&now->record, &now->run, now->all.modes[0].engine);
    if (status == YOKE_OK) plan(now);
    if (status == YOKE_OK) status = check_plan(now);
    for (int i = 1; i < now->all.mode_count && status == YOKE_OK; i++)
        status = open_mode(now, &now->all.modes[i]);
    return status;
}

/* The run. */

static yoke_status next_batch(session *now) {
    yoke_status status = yoke_loader_next(now->loader, &now->batch, NULL);
    if (status != YOKE_OK || now->batch.rows > 0) return status;
    status = yoke_loader_begin(now->loader, ++now->epoch);
    return status == YOKE_OK ? yoke_loader_next(now->loader, &now->batch, NULL) : status;
}

/* A reference has no weights before the first step. */
static bool is_compared(const session *now, const verify_mode *mode, int step) {
    if (mode->kind == VERIFY_REFERENCE) return step > 0;
    return mode->kind != VERIFY_FILE || verify_is_recorded(&now->run, step);
}

/* Before the step: it starts where its leader does. A free one does so only once. */
static yoke_status lead_references(session *now, int step) {
    yoke_status status = YOKE_OK;
    for (int i = 0; i < now->all.mode_count && status == YOKE_OK; i++) {
        bool led = now->all.modes[i].leader != NULL;
        if (led && (step == 1 || now->flags->reference == FOLLOW))
            status = verify_mode_follow(&now->all.modes[i], now->all.model);
    }
    return status;
}

static yoke_status move_modes(session *now, int step) {
    yoke_status status = step > 0 ? lead_references(now, step) : YOKE_OK;
    if (status == YOKE_OK && step > 0) status = next_batch(now);
    for (int i = 0; i < now->all.mode_count && status == YOKE_OK; i++) {
        verify_mode *mode = &now->all.modes[i];
        if (step > 0) status = verify_mode_step(mode, &now->batch);
        if (status == YOKE_OK && is_compared(now, mode, step))
            status = verify_mode_read(mode, now->all.model, step);
    }
    return status;
}

static yoke_status record(session *now, int step) {
    yoke_status status = YOKE_OK;
    if (now->record == NULL) return YOKE_OK;
    if (step > 0) status = verify_record_batch(now->record, step, &now->batch, now->all.model);
    if (status != YOKE_OK || !verify_is_recorded(&now->run, step)) return status;
    return verify_record_step(now->record, step, &now->all.modes[0], now->all.model);
}

static yoke_status run_steps(session *now) {
    yoke_status status = YOKE_OK;
    for (int step = 0; step <= now->all.steps && status == YOKE_OK; step++) {
        char text[64];
        snprintf(text, sizeof text, "step %d of %d ...", step, now->all.steps);
        note(now, text);
        status = move_modes(now, step);
        for (int i = 0; i < now->all.pair_count && status == YOKE_OK; i++)
            if (is_compared(now, now->all.pairs[i].mode, step) &&
                is_compared(now, now->all.pairs[i].with, step))
                verify_pair_compare(&now->all.pairs[i], now->all.model, step);
        if (status == YOKE_OK) status = record(now, step);
    }
    if (status == YOKE_OK && now->record != NULL)
        status = yoke_tensor_file_save(now->record, now->flags->record);
    return status;
}

static int run(session *now) {
    int code = compare_meeting_open(&now->meeting);
    if (code >= 0) return code;
    progress_begin(&now->progress, 0, 0, now->flags->quiet);
    yoke_status status = open_all(now);
    if (status == YOKE_OK) status = run_steps(now);
    progress_clear(&now->progress);
    const verify_flags *flags = now->flags;
    if (status == YOKE_OK && (!flags->json || !flags->quiet))
        verify_print(flags->json ? stderr : stdout, &now->all);
    if (status == YOKE_OK && flags->json) status = verify_print_json(stdout, &now->all);
    if (status != YOKE_OK) code = cli_fail(status);
    /* A record without a comparison is a success. */
    if (code < 0) code = verify_passes(&now->all) || now->all.pair_count == 0 ? 0 : 1;
    for (int i = now->all.mode_count - 1; i >= 0; i--)
        verify_mode_close(&now->all.modes[i]);
    yoke_tensor_file_close(now->record);
    yoke_tensor_file_close(now->against);
    yoke_loader_destroy(now->loader);
    yoke_dataset_close(now->dataset);
    compare_meeting_close(&now->meeting);
    own_exchange_close(&now->own);
    return code;
}

/* -1, or the exit code behind a printed error. */
static int prepare(session *now) {
    const verify_flags *flags = now->flags;
    compare_setup *setup = &now->all.setup;
    yoke_optimizer_options *optimizer = &setup->optimizer;
    int code = compare_check_launcher("verify");
    *setup = flags->setup;
    if (code < 0) code = compare_setup_names(setup, "verify", flags->model, flags->dataset);
    if (code >= 0) return code;
    bool sgd_default = optimizer->kind == YOKE_SGD && isnan(optimizer->learning_rate);
    *optimizer = cli_optimizer(optimizer->kind, sgd_default ? 0.01 : optimizer->learning_rate);
    now->all.steps = flags->steps;
    now->all.tolerance = flags->tolerance;
    now->all.against = flags->against;
    now->run = (verify_run){.setup = setup, .steps = flags->steps, .every = flags->record_every};
    yoke_status status = compare_open_devices(&now->view, flags->devices, flags->threads);
    if (status != YOKE_OK) return cli_fail(status);
    compare_setup_devices(setup, &now->view, flags->threads);
    return -1;
}

int verify_main(int argc, char **argv) {
    verify_flags flags = defaults;
    int code = cli_parse(&verify_verb, argc, argv, &flags, NULL);
    if (code >= 0) return code;
    session *now = calloc(1, sizeof *now);
    if (now == NULL) return cli_system_error("no memory for the modes");
    now->flags = &flags;
    code = prepare(now);
    if (code < 0) code = run(now);
    free(now);
    return code;
}
