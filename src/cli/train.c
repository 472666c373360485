/* SPDX-License-Identifier: Apache-2.0 */
/* yoke train: one run, from the command line to its result. */
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "cli/augment_flags.h"
#include "cli/choices_place.h"
#include "cli/cli.h"
#include "cli/config.h"
#include "cli/data_flags.h"
#include "cli/launch/launch_environment.h"
#include "cli/live/live.h"
#include "cli/loss_flags.h"
#include "cli/parameter_groups.h"
#include "cli/progress.h"
#include "cli/range_test.h"
#include "cli/result.h"
#include "cli/saving_flags.h"
#include "cli/shared_options.h"
#include "cli/stop_signals.h"
#include "cli/straggler_flag.h"
#include "cli/train_page.h"
#include "cli/tuning_flags.h"

#define SYNTHETIC "synthetic"

typedef struct train_flags {
    const char *model, *dataset, *devices, *init, *save, *metrics, *trace, *report;
    const char *allow_missing, *allow_unknown, *straggler;
    choices_flags choices;
    group_flags groups;
    saving_flags saving;
    config_flags config;
    const char *link;
    int threads, mode, schedule, batch, epochs, optimizer, lr_schedule, precision, algorithm;
    int collectives, transport, timeout, broadcast_buffers, loss_mean;
    double bucket_mb;
    augment_flags augment;
    data_flags data;
    tuning_flags tuning;
    loss_flags loss;
    int shuffle, accumulate, shards, evaluate_every, log_every;
    uint64_t steps, warmup_steps, seed;
    double lr, momentum, weight_decay, clip_norm, interpreter_us;
    bool nesterov, sync_batch_norm, live, json, quiet, force;
} train_flags;

#define AT(field) offsetof(train_flags, field)
#define NO 1 /* of "yes|no" */

static const cli_option options[] = {
    {"model", "NAME[:OPTIONS]",
     "one of the models below; yoke model show describes them (resnet20)", CLI_TEXT, AT(model), 0,
     0},
    {"dataset", "SPEC",
     "images:DIR, npy:X,Y, npz:FILE, csv:FILE,label=COLUMN, text:FILE, cifar10:DIR, cifar100:DIR, "
     "mnist:DIR or synthetic[:...] (synthetic)",
     CLI_TEXT, AT(dataset), 0, 0},
    {"devices", "LIST",
     "auto, cpu, 4xcpu, 2xcuda, 4xcuda:0, ...; the first is the root (every GPU, or 2xcpu)",
     CLI_TEXT, AT(devices), 0, 0},
    CLI_OPTION_THREADS(AT(threads)),
    {"mode", "dp|single|ddp",
     "dp: one process for all devices; single: the first device alone; ddp: a process each (dp)",
     CLI_CHOICE, AT(mode), 0, 0},
    {"schedule", "overlap|classic|sharded|python",
     "order of the stages of a step; classic and python only with --mode dp (overlap)", CLI_CHOICE,
     AT(schedule), 0, 0},
    CLI_OPTION_INTERPRETER(AT(interpreter_us), "--schedule python"),
    CLI_OPTION_BATCH(AT(batch), "64"),
    {"epochs", "N", "passes over the training rows (3)", CLI_INTEGER, AT(epochs), 1, 1 << 20},
    {"steps", "N", "steps of the run, instead of --epochs", CLI_UNSIGNED, AT(steps), 1, 1e15},
    CLI_OPTION_OPTIMIZER(AT(optimizer), "update rule, with PyTorch's arithmetic (sgd)"),
    CLI_OPTION_LR(AT(lr), "learning rate, or the peak of its schedule", "0.05"),
    {"momentum", "X", "momentum of sgd (0.9)", CLI_REAL, AT(momentum), 0, 1},
    {"nesterov", NULL, "use Nesterov's momentum", CLI_FLAG, AT(nesterov), 0, 0},
    {"weight-decay", "X", "weight decay (0.0005 for sgd, 0.01 for adamw)", CLI_REAL,
     AT(weight_decay), 0, INFINITY},
    {"freeze", "PATTERN[,...]", "parameters that do not train, as in conv1.*,layer1.*", CLI_TEXT,
     AT(groups.freeze), 0, 0},
    {"group", "PATTERN[,...]:lr=X,decay=X[;...]",
     "for these parameters: learning rate times X, weight decay X; the first match counts",
     CLI_TEXT, AT(groups.group), 0, 0},
    {"no-decay", "norms-and-biases|PATTERN[,...]",
     "parameters without weight decay that no --group matches", CLI_TEXT, AT(groups.no_decay), 0,
     0},
    {"lr-schedule", "constant|step|cosine|onecycle|exponential|plateau",
     "course of the learning rate (constant)", CLI_CHOICE, AT(lr_schedule), 0, 0},
    {"warmup-steps", "N", "steps of linear warm-up; not with onecycle (0)", CLI_UNSIGNED,
     AT(warmup_steps), 0, 1e15},
    {"loss", "auto|cross-entropy|mse|bce|huber",
     "auto: cross-entropy for classes, mse for targets; bce is that of logits (auto)", CLI_CHOICE,
     AT(loss.loss), 0, 0},
    {"label-smoothing", "X", "share of the target spread over all classes (0)", CLI_REAL,
     AT(loss.label_smoothing), 0, 0.999},
    {"class-weights", "balanced|W,W,...",
     "weights of the classes in the loss; balanced: rare classes weigh more, and all the same",
     CLI_TEXT, AT(loss.class_weights), 0, 0},
    {"ignore-index", "N", "rows with this label do not count", CLI_TEXT, AT(loss.ignore_index), 0,
     0},
    {"huber-delta", "X", "the error up to which huber is a square (1)", CLI_REAL,
     AT(loss.huber_delta), 1e-30, INFINITY},
    CLI_OPTION_PRECISION(AT(precision)),
    CLI_OPTION_COLLECTIVES(AT(collectives)),
    CLI_OPTION_BUCKET_MB(AT(bucket_mb), "the first 1, then 4 on CPUs and 25 on GPUs"),
    {"transport", "auto|shared-memory|mpi|nccl", "ddp: how ranks exchange gradients (auto)",
     CLI_CHOICE, AT(transport), 0, 0},
    CLI_OPTION_LINK(AT(link)),
    {"broadcast-buffers", "yes|no",
     "ddp: all ranks evaluate with the batch norm statistics of rank 0 (yes)", CLI_CHOICE,
     AT(broadcast_buffers), 0, 0},
    {"sync-batch-norm", NULL,
     "batch norm over the rows of all devices and ranks, not of each alone; CPU devices", CLI_FLAG,
     AT(sync_batch_norm), 0, 0},
    {"loss-mean", "rows|ranks",
     "ddp: mean over all rows, or over the ranks' means as in PyTorch (rows)", CLI_CHOICE,
     AT(loss_mean), 0, 0},
    {"timeout", "SECONDS", "ddp: longest wait for another rank (60)", CLI_INTEGER, AT(timeout), 1,
     1 << 20},
    CLI_OPTION_ALGORITHM(AT(algorithm),
                         "of convolutions and products; with fastest, runs may differ (measured)"),
    CHOICES_OPTION_FILE(AT(choices)),
    CHOICES_OPTION_NO_CACHE(AT(choices)),
    CLI_OPTION_SEED(AT(seed), "weights, row order, augmentation and dropout"),
    {"shuffle", "yes|no", "new row order in each epoch (yes)", CLI_CHOICE, AT(shuffle), 0, 0},
    {"sampling", "each|balanced",
     "each row once in an epoch, or rows drawn so that each class is equally likely (each)",
     CLI_CHOICE, AT(data.sampling), 0, 0},
    {"drop-last", NULL, "leave out the last batch of an epoch where it is short", CLI_FLAG,
     AT(data.drop_last), 0, 0},
    CLI_OPTION_LIMIT_ROWS(AT(data.limit_rows)),
    CLI_OPTION_LOADER_THREADS(AT(data.loader_threads)),
    CLI_OPTION_SKIP_BAD(AT(data.skip_bad)),
    CLI_OPTIONS_AUGMENT(AT(augment)),
    {"accumulate", "N", "compute a batch as N micro-batches (1)", CLI_INTEGER, AT(accumulate), 1,
     1 << 20},
    CLI_OPTION_SHARDS(AT(shards)),
    {"clip-norm", "X", "limit the norm of the gradient; 0: no limit (0)", CLI_REAL, AT(clip_norm),
     0, INFINITY},
    {"init", "FILE", "start from the weights in this safetensors file", CLI_TEXT, AT(init), 0, 0},
    {"allow-missing", "PATTERN[,...]",
     "tensors that keep their initial values if --init lacks them or has another shape: fc.*",
     CLI_TEXT, AT(allow_missing), 0, 0},
    {"allow-unknown", "PATTERN[,...]", "tensors of --init to ignore if the model lacks them",
     CLI_TEXT, AT(allow_unknown), 0, 0},
    {"save", "FILE", "write the weights as safetensors, also when a signal ends the run", CLI_TEXT,
     AT(save), 0, 0},
    {"force", NULL, "let --save replace a file that exists", CLI_FLAG, AT(force), 0, 0},
    {"checkpoint-dir", "DIR",
     "write checkpoints there, also when the run ends or a signal stops it", CLI_TEXT,
     AT(saving.dir), 0, 0},
    {"checkpoint-every", "N[s|m|steps|epochs]",
     "seconds, minutes, steps or epochs between checkpoints; N alone: steps (1epochs)", CLI_TEXT,
     AT(saving.every), 0, 0},
    {"keep", "K", "newest checkpoints to keep (3)", CLI_INTEGER, AT(saving.keep), 1, 1 << 30},
    {"keep-best", NULL,
     "also keep the checkpoint of the best evaluation (--evaluate-every 1), best.safetensors",
     CLI_FLAG, AT(saving.keep_best), 0, 0},
    {"resume", "auto|FILE",
     "go on from a checkpoint; auto: the newest undamaged one in --checkpoint-dir, if any",
     CLI_TEXT, AT(saving.resume), 0, 0},
    {"resume-anyway", "FIELD[,FIELD]",
     "options that may differ from the checkpoint's, by the names in the refusal", CLI_TEXT,
     AT(saving.resume_anyway), 0, 0},
    {"evaluate-every", "N",
     "evaluate every N epochs; 0: at the end, -1: never (1; of a run of --steps: 0)", CLI_INTEGER,
     AT(evaluate_every), -1, 1 << 20},
    {"metrics", "FILE", "write one line of JSON for each step and evaluation", CLI_TEXT,
     AT(metrics), 0, 0},
    {"trace", "FILE", "write a timeline of all stages for https://ui.perfetto.dev", CLI_TEXT,
     AT(trace), 0, 0},
    {"report", "FILE",
     "write one HTML page: learning curves, accuracy by class, confusions, worst mistakes",
     CLI_TEXT, AT(report), 0, 0},
    CLI_OPTION_STRAGGLER(AT(straggler), ""),
    {"log-every", "N", "print a line every N steps (every 5 seconds or so)", CLI_INTEGER,
     AT(log_every), 0, 1 << 30},
    {"live", NULL, "draw progress, devices, stages and losses in the terminal while training",
     CLI_FLAG, AT(live), 0, 0},
    CLI_OPTIONS_TUNING(AT(tuning)),
    CLI_OPTIONS_CONFIG(AT(config.recipe), AT(config.file), AT(config.print)),
    CLI_OPTION_JSON(AT(json)),
    CLI_OPTION_QUIET(AT(quiet)),
};

const cli_verb train_verb = {
    .name = "train",
    .summary = "train a model with data parallelism",
    .options = options,
    .option_count = CLI_OPTION_COUNT(options),
    .more =
        "The defaults, in brackets, train resnet20 on synthetic images in under a minute.\n"
        "--mode ddp needs a launcher: yoke launch --nproc-per-node 2 -- train --mode ddp ...\n"
        "Ctrl-C finishes the step, writes --save, --report and a checkpoint, and exits with 130; a "
        "second Ctrl-C exits at once. So do SIGTERM, SIGHUP, SIGUSR1, SIGPIPE and their like.\n"
        "Ranks that yoke launch --max-restarts starts again go on from the newest checkpoint in "
        "--checkpoint-dir.\n",
    .print_more = cli_print_models};

#define EVERY_UNSET -2 /* of evaluate_every: what `evaluations` says */

/* NaN: the default depends on the optimizer. */
static const train_flags defaults = {.evaluate_every = EVERY_UNSET,
                                     .model = "resnet20",
                                     .dataset = SYNTHETIC,
                                     .batch = 64,
                                     .epochs = 3,
                                     .lr = NAN,
                                     .tuning = {.lr_patience = 10},
                                     .interpreter_us = NAN,
                                     .loss.huber_delta = NAN,
                                     .momentum = NAN,
                                     .weight_decay = NAN};

static double given_or(double given, double otherwise) {
    return isnan(given) ? otherwise : given;
}

/* Epochs between evaluations: 0 at the end, -1 never. A run of some steps may pass many short
 * epochs. */
static int evaluations(const train_flags *flags) {
    if (flags->evaluate_every != EVERY_UNSET) return flags->evaluate_every;
    return flags->steps == 0 || tuning_flags_watch(&flags->tuning, flags->lr_schedule);
}

static int check_flags(const train_flags *flags) {
    bool sgd = flags->optimizer == YOKE_SGD;
    if (!sgd && (flags->nesterov || given_or(flags->momentum, 0) > 0))
        return cli_usage_error("train",
                               "--momentum and --nesterov need --optimizer sgd; adamw has neither");
    if (flags->nesterov && given_or(flags->momentum, 0.9) == 0)
        return cli_usage_error("train", "--nesterov needs a --momentum above 0");
    if (flags->warmup_steps > 0 && flags->lr_schedule == YOKE_LR_ONECYCLE)
        return cli_usage_error(
            "train",
            "--warmup-steps: --lr-schedule onecycle has a warm-up of its own; leave one out");
    if (!isnan(flags->interpreter_us) && flags->schedule != YOKE_SCHEDULE_PYTHON)
        return cli_usage_error("train", "--interpreter-us needs --schedule python");
    if (flags->init == NULL &&
        (flags->allow_missing != NULL || flags->allow_unknown != NULL || flags->tuning.new_head))
        return cli_usage_error("train", "--allow-missing, --allow-unknown and --new-head need "
                                        "--init");
    if (flags->live && flags->quiet)
        return cli_usage_error("train", "--live draws and --quiet draws nothing; leave one out");
    int code = choices_flags_check(&flags->choices, "train");
    if (code < 0) code = augment_flags_check(&flags->augment);
    if (code < 0) code = data_flags_check(&flags->data, "train");
    if (code < 0) code = tuning_flags_check(&flags->tuning);
    if (code < 0) code = loss_flags_check(&flags->loss);
    if (code >= 0) return code;
    return saving_flags_check(&flags->saving, &(saving_context){flags->init, evaluations(flags)});
}

static void fill_optimizer(yoke_optimizer_options *optimizer, const train_flags *flags) {
    *optimizer = cli_optimizer((yoke_optimizer_kind)flags->optimizer, flags->lr);
    optimizer->momentum = given_or(flags->momentum, optimizer->momentum);
    optimizer->nesterov = flags->nesterov;
    optimizer->weight_decay = given_or(flags->weight_decay, optimizer->weight_decay);
    optimizer->clip_norm = flags->clip_norm;
}

static void fill_options(yoke_trainer_options *run, const train_flags *flags) {
    *run = (yoke_trainer_options){.struct_size = sizeof *run,
                                  .model = flags->model,
                                  .dataset = flags->dataset,
                                  .devices = flags->devices,
                                  .threads = flags->threads,
                                  .mode = (yoke_mode)flags->mode,
                                  .schedule = (yoke_schedule)flags->schedule,
                                  .precision = (yoke_precision)flags->precision,
                                  .algorithm = (yoke_algorithm)flags->algorithm,
                                  .collectives = (yoke_collectives)flags->collectives,
                                  .batch = flags->batch,
                                  .epochs = flags->epochs,
                                  .steps = flags->steps,
                                  .lr_schedule = (yoke_lr_schedule_kind)flags->lr_schedule,
                                  .warmup_steps = flags->warmup_steps,
                                  .seed = flags->seed,
                                  .no_shuffle = flags->shuffle == NO,
                                  .accumulate = flags->accumulate,
                                  .init = flags->init,
                                  .init_allow_missing = flags->allow_missing,
                                  .init_allow_unknown = flags->allow_unknown,
                                  .save = flags->save,
                                  .bucket_bytes = (size_t)(flags->bucket_mb * 1048576),
                                  .broadcast_buffers = flags->broadcast_buffers != NO,
                                  .mean_of_ranks = flags->loss_mean == NO,
                                  .synchronize_batch_norm = flags->sync_batch_norm,
                                  .link = flags->link,
                                  .interpreter_us =
                                      given_or(flags->interpreter_us, YOKE_INTERPRETER_US),
                                  .evaluate_every = flags->evaluate_every,
                                  .metrics = flags->metrics,
                                  .trace = flags->trace,
                                  .mistakes = flags->report != NULL ? TRAIN_PAGE_MISTAKES : 0,
                                  .shards = flags->shards};
    augment_flags_fill(run, &flags->augment);
    data_flags_fill(run, &flags->data);
    tuning_flags_fill(run, &flags->tuning);
    saving_flags_fill(run, &flags->saving);
}

/* The run. */

typedef struct session {
    const train_flags *flags;
    char *const *command; /* the tool, then argv */
    device_view view;
    yoke_trainer *trainer;
    yoke_optimizer_options optimizer;
    progress progress;
    train_curves curves; /* for --report */
    uint64_t steps;      /* of the whole run */
    double seconds;      /* since training began, at the last event */
    live_view *live;     /* NULL: none */
    yoke_rank_info rank;
    rank_token token;
    yoke_process_group_options group;
    group_list groups;
    loss_choice loss;
    straggler straggler;
    yoke_lr_find_result found; /* with --lr-find */
    skipped_list skipped;
    choices_place choices;
    bool speaks;    /* rank 0; the others print failures only */
    bool has_table; /* the heads of the epochs' columns are printed */
} session;

static void on_event(const yoke_event *event, void *payload) {
    session *now = payload;
    now->steps = event->steps;
    now->seconds = event->seconds_elapsed;
    if (now->flags->report != NULL && now->speaks) train_curves_add(&now->curves, event);
    if (now->live != NULL) live_add(now->live, event);
    if (event->kind == YOKE_EVENT_STEP) {
        if (now->speaks) progress_step(&now->progress, event);
        return;
    }
    if (event->kind == YOKE_EVENT_EVALUATION) return; /* EPOCH has its numbers */
    /* A row above the picture would cost a new picture, and wait for a stopped terminal. */
    bool has_picture = now->live != NULL && now->progress.begun && !now->progress.no_room;
    if (event->kind == YOKE_EVENT_EPOCH && has_picture) return;
    progress_clear(&now->progress);
    if (event->kind == YOKE_EVENT_SKIPPED) skipped_add(&now->skipped, event->skip);
    if (event->kind == YOKE_EVENT_WARNING) fprintf(stderr, "yoke: warning: %s\n", event->text);
    if (now->flags->quiet || !now->speaks) return;
    if (event->kind == YOKE_EVENT_READY) {
        print_plan(stderr, now->trainer, &now->view);
        print_groups(stderr, now->trainer, &now->groups);
        if (now->live != NULL) live_ready(now->live, now->trainer, &now->view);
    }
    if (event->kind == YOKE_EVENT_SKIPPED) {
        fputs("init     ", stderr);
        cli_print_text(stderr, event->text, 0);
        fputc('\n', stderr);
    }
    if (event->kind == YOKE_EVENT_SAVED) fprintf(stderr, "wrote %s\n", event->text);
    if (event->kind == YOKE_EVENT_RESUMED || event->kind == YOKE_EVENT_STOPPED)
        fprintf(stderr, "%s\n", event->text);
    if (event->kind != YOKE_EVENT_EPOCH) return;
    print_epoch(stderr, event, now->flags->evaluate_every >= 0, !now->has_table);
    now->has_table = true;
}

static void print_advice(const session *now) {
    const train_flags *flags = now->flags;
    if (flags->tuning.lr_find > 0) {
        range_test_print_next(stderr, &now->found, now->command, now->rank.world > 1);
        return;
    }
    print_train_advice(stderr, &(train_advice){.command = now->command,
                                               .model = flags->model,
                                               .dataset = flags->dataset,
                                               .save = flags->save,
                                               .trace = flags->trace,
                                               .checkpoints = flags->saving.dir != NULL,
                                               .resumes = saving_flags_are_auto(&flags->saving),
                                               .force = flags->force,
                                               .repeatable = now->rank.world <= 1});
}

/* The result of a run of one step at least. */
static yoke_status report(session *now) {
    const train_flags *flags = now->flags;
    if (flags->tuning.lr_find > 0)
        return range_test_report(now->trainer, &now->found, flags->json, flags->quiet);
    FILE *words = flags->json ? stderr : stdout;
    yoke_trainer_summary summary = {.struct_size = sizeof summary};
    yoke_status status = yoke_trainer_summarize(now->trainer, &summary);
    if (status != YOKE_OK || summary.steps == 0) return status;
    if (!flags->quiet)
        print_stages(words, yoke_data_parallel_trace(yoke_trainer_engine(now->trainer)));
    if (!flags->json || !flags->quiet) print_result(words, &summary);
    if (flags->json) status = print_result_json(stdout, now->trainer, &summary, &now->skipped);
    fflush(stdout); /* the advice on stderr comes after it, also in one file */
    return status;
}

/* After the result, which is then out even if the page cannot be written. ended: why the run ended
 * early; NULL: it did not. */
static yoke_status write_page(const session *now, const char *ended) {
    const train_flags *flags = now->flags;
    train_page page = {.trainer = now->trainer,
                       .view = &now->view,
                       .curves = &now->curves,
                       .command = now->command,
                       .optimizer = &now->optimizer,
                       .seed = flags->seed,
                       .steps = now->steps,
                       .algorithm = flags->algorithm,
                       .fixed = flags->shards > 0 && now->choices.path == NULL,
                       .evaluates = flags->evaluate_every >= 0,
                       .seconds = now->seconds,
                       .ended = ended,
                       .found = flags->tuning.lr_find > 0 ? &now->found : NULL};
    if (flags->report == NULL || !now->speaks) return YOKE_OK;
    yoke_status status = train_page_write(flags->report, &page);
    if (status == YOKE_OK && !flags->quiet) fprintf(stderr, "wrote %s\n", flags->report);
    return status;
}

static int run(session *now) {
    const train_flags *flags = now->flags;
    bool tests = flags->tuning.lr_find > 0;
    char ended[512] = "";
    stop_signals_begin(now->trainer, now->rank.world > 1);
    yoke_status status = tests ? range_test_run(now->trainer, flags->tuning.lr_find, &now->found)
                               : yoke_trainer_run(now->trainer);
    progress_end(&now->progress, status == YOKE_OK || status == YOKE_ERROR_CANCELLED);
    int code = status != YOKE_OK ? cli_fail(status) : 0;
    if (status != YOKE_OK) snprintf(ended, sizeof ended, "%s", cli_failure(status));
    if (status != YOKE_ERROR_NUMERIC && now->speaks) {
        yoke_status reported = report(now);
        if (reported != YOKE_OK && code == 0) code = cli_fail(reported);
    }
    yoke_status written = write_page(now, status != YOKE_OK ? ended : NULL);
    if (written != YOKE_OK) code = cli_fail(written);
    if (code == 0 && !flags->quiet && !flags->json && now->speaks) print_advice(now);
    bool stopped = (status == YOKE_OK || status == YOKE_ERROR_CANCELLED) && written == YOKE_OK;
    int caught = stop_signals_caught();
    stop_signals_end();
    return caught != 0 && stopped ? 128 + caught : code;
}

/* Reads the rank that a launcher gave this process. -1, or the exit code. */
static int find_rank(session *now) {
    const train_flags *flags = now->flags;
    bool ddp = flags->mode == YOKE_MODE_DISTRIBUTED_DATA_PARALLEL;
    int code = rank_info_read(&now->rank);
    if (code >= 0) return code;
    const yoke_rank_info *rank = &now->rank;
    if (!ddp && rank->world > 1)
        return cli_usage_error("train",
                               "%s started %d processes, but --mode %s is one process for all "
                               "devices: start one, or add --mode ddp",
                               rank->source, rank->world,
                               flags->mode == YOKE_MODE_SINGLE ? "single" : "dp");
    if (!ddp) return -1;
    code = rank_token_read(&now->token, "train");
    if (code >= 0) return code;
    now->group = (yoke_process_group_options){.struct_size = sizeof now->group,
                                              .rank = rank,
                                              .transport = (yoke_transport)flags->transport,
                                              .token = now->token.given,
                                              .timeout_ms = 1000 * flags->timeout};
    now->speaks = rank->rank == 0;
    if (!now->speaks || flags->quiet) return -1;
    if (rank->source[0] == '\0')
        fprintf(stderr, "yoke: without a launcher this is the only rank; "
                        "yoke launch --nproc-per-node 2 -- train --mode ddp starts two\n");
    else
        fprintf(stderr, "ranks    %d started by %s, on %d machine%s\n", rank->world, rank->source,
                rank->nodes, rank->nodes == 1 ? "" : "s");
    return -1;
}

/* A rank of DDP sees its own device. */
static yoke_status choose_devices(train_flags *flags, device_view *view,
                                  const yoke_rank_info *rank) {
    yoke_devices_options wanted = {.struct_size = sizeof wanted,
                                   .list = flags->devices,
                                   .threads = flags->threads,
                                   .shards = flags->shards};
    if (flags->mode == YOKE_MODE_DISTRIBUTED_DATA_PARALLEL) {
        wanted.local_rank = rank->local_rank;
        wanted.local_world = rank->local_world;
    }
    yoke_status status =
        device_view_choose(view, &wanted, flags->mode == YOKE_MODE_DATA_PARALLEL ? 2 : -1);
    flags->devices = wanted.list;
    return status;
}

/* Measurements end differently on another number of devices: without a file that keeps them,
 * shards take the fixed rule, as the trainer does. */
static void choose_algorithms(session *now, yoke_trainer_options *run) {
    const train_flags *flags = now->flags;
    bool speaks = now->speaks && flags->shards == 0;
    if (flags->algorithm == YOKE_ALGORITHM_DIRECT) return;
    if (now->speaks && !flags->quiet) choices_note_fastest(flags->algorithm);
    choices_place_find(&now->choices, &flags->choices, speaks);
    run->choices = now->choices.path;
    run->cache_choices = now->choices.cache;
    if (now->choices.cache && flags->shards == 0) run->measure_seconds = CHOICES_SECONDS_TRAINING;
    if (flags->shards == 0 || run->choices != NULL || !now->speaks || flags->quiet) return;
    fprintf(stderr, "yoke: --shards without a file of choices takes --algorithm direct, because "
                    "measured algorithms may differ between numbers of devices\n");
}

static void note_single_evaluation(const session *now) {
    const train_flags *flags = now->flags;
    if (!flags->saving.keep_best || flags->evaluate_every > 0 || !now->speaks || flags->quiet)
        return;
    fprintf(stderr, "yoke: --keep-best has one evaluation to compare, at the end of the run; "
                    "--evaluate-every 1 evaluates after each epoch\n");
}

/* Where nothing can be drawn, a line says so, and plain lines take the place of the view. */
static void begin_live(session *now) {
    const char *cause = NULL;
    if (!now->flags->live || !now->speaks) return;
    if (now->flags->json)
        cause = "--json prints plain lines";
    else if (!now->progress.bar)
        cause = "stderr is no terminal that can draw";
    else if ((now->live = live_open(&now->progress)) == NULL)
        cause = "the terminal does not open";
    if (cause == NULL) return;
    now->progress.bar = false;
    fprintf(stderr, "yoke: no live view: %s\n", cause);
}

/* Opens the trainer and runs it. Returns the exit code. */
static int open_and_run(session *now, train_flags *flags) {
    yoke_trainer_options run_options;
    yoke_status status = now->speaks ? yoke_file_check(flags->report) : YOKE_OK;
    if (status == YOKE_OK) status = choose_devices(flags, &now->view, &now->rank);
    if (status != YOKE_OK) return cli_fail(status);
    note_single_evaluation(now);
    fill_optimizer(&now->optimizer, flags);
    fill_options(&run_options, flags);
    choose_algorithms(now, &run_options);
    loss_flags_fill(&run_options, &flags->loss, &now->loss);
    run_options.optimizer = &now->optimizer;
    run_options.straggler = now->straggler.index;
    run_options.straggler_factor = now->straggler.factor;
    run_options.groups = now->groups.groups;
    run_options.group_count = now->groups.count;
    if (flags->mode == YOKE_MODE_DISTRIBUTED_DATA_PARALLEL) run_options.process_group = &now->group;
    if (flags->tuning.lr_find > 0) range_test_fill(&run_options);
    run_options.on_event = on_event;
    run_options.payload = now;
    bool counts_steps = flags->steps > 0 || flags->tuning.lr_find > 0;
    progress_begin(&now->progress, counts_steps ? 0 : flags->epochs, flags->log_every,
                   flags->quiet || !now->speaks);
    begin_live(now);
    progress_note(&now->progress, "measuring the fastest algorithms ...");
    status = yoke_trainer_create(&now->trainer, &run_options);
    progress_clear(&now->progress);
    if (status != YOKE_OK) return cli_fail(status);
    int code = run(now);
    yoke_trainer_destroy(now->trainer);
    return code;
}

int train_main(int argc, char **argv) {
    train_flags flags = defaults;
    session now = {.flags = &flags, .command = argv - 1, .speaks = true};
    config_place place = {&train_verb, &flags, &defaults, sizeof flags, &flags.config};
    int code = cli_parse(&train_verb, argc, argv, &flags, NULL);
    if (code < 0) code = config_apply(&place, argc, argv);
    if (code < 0 && flags.tuning.lr_find > 0) code = range_test_check(argc, argv);
    if (code < 0) code = check_flags(&flags);
    if (code < 0 && flags.config.print) code = config_print(&place);
    flags.evaluate_every = evaluations(&flags);
    if (code < 0) code = find_rank(&now);
    if (code < 0 && now.speaks && !flags.quiet) config_print_recipe(&place, stderr);
    saving_files files = {.save = flags.save,
                          .metrics = flags.metrics,
                          .trace = flags.trace,
                          .report = flags.report,
                          .init = flags.init,
                          .choices = flags.choices.file,
                          .config = flags.config.file,
                          .dataset = flags.dataset};
    if (code < 0) code = saving_flags_check_apart(&flags.saving, &files, now.speaks);
    if (code < 0 && flags.tuning.lr_find == 0)
        code = saving_flags_check_file(&flags.saving, flags.save, flags.force, now.speaks);
    if (code < 0) code = straggler_read(&now.straggler, "train", flags.straggler);
    if (code < 0) code = group_list_read(&now.groups, &flags.groups);
    if (code < 0) code = open_and_run(&now, &flags);
    train_curves_clear(&now.curves);
    live_close(now.live);
    skipped_free(&now.skipped);
    group_list_free(&now.groups);
    config_close(&flags.config);
    return code;
}
