/* SPDX-License-Identifier: Apache-2.0 */
/* The options of yoke train, by groups; what contradicts itself; and what they mean for a trainer.
 */
#include "cli/train_options.h"

#include <math.h>
#include <stddef.h>
#include <string.h>

#include "cli/shared_options.h"
#include "cli/train_page.h"

#define AT(field) CLI_FIELD(train_setup, field)

static const cli_option options[] = {
    CLI_HEADING("used most"),
    {"dataset", "SPEC",
     "images:DIR, npy:X,Y, npz:FILE, csv:FILE,label=COLUMN, text:FILE, cifar10:DIR, cifar100:DIR, "
     "mnist:DIR or synthetic[:...] (synthetic)",
     AT(run.dataset)},
    {"model", "NAME[:OPTIONS]",
     "one of the models below; yoke model show describes them (resnet20)", AT(run.model)},
    {"init", "FILE", "start from the weights in this safetensors file", AT(run.init)},
    {"devices", "LIST",
     "auto, cpu, 4xcpu, 2xcuda, 4xcuda:0, ...; the first is the root (every GPU, or 2xcpu)",
     AT(run.devices)},
    CLI_OPTION_BATCH(AT(run.batch), "64"),
    {"epochs", "N", "passes over the training rows (3)", AT(run.epochs), 1, 1 << 20},
    CLI_OPTION_OPTIMIZER(AT(optimizer.kind), "update rule, with PyTorch's arithmetic (sgd)"),
    CLI_OPTION_LR(AT(optimizer.learning_rate), "learning rate, or the peak of its schedule",
                  "0.05"),
    {"augment", "none|crop-flip|crop-flip-cutout|resized-crop-flip",
     "change training images at random (none)", AT(run.augment)},
    {"save", "FILE", "write the weights as safetensors, also when a signal ends the run",
     AT(run.save)},
    CLI_HEADING("data"),
    CLI_OPTION_LIMIT_ROWS(AT(run.limit_rows)),
    {"shuffle", "yes|no", "new row order in each epoch (yes)", CLI_IF_SECOND,
     offsetof(train_setup, run.no_shuffle)},
    {"sampling", "each|balanced|by-length",
     "each row once in an epoch; rows drawn so that each class is equally likely; or each once, in "
     "batches of about one length (each)",
     AT(run.sampling)},
    {"length-buckets", "N",
     "of rows of different length: cut each batch to the shortest of N lengths that holds it (1)",
     AT(run.length_buckets), 1, YOKE_LENGTH_BUCKETS_LIMIT},
    {"drop-last", NULL, "leave out the last batch of an epoch where it is short",
     AT(run.drop_last)},
    {"crop-padding", "N", "pixels around an image before the random crop of --augment (4)",
     AT(run.crop_flip.padding), 1, YOKE_CROP_PADDING_LIMIT},
    {"crop-edge", "black|reflect", "what is beyond the edges of a cropped image (black)",
     CLI_IF_SECOND, offsetof(train_setup, run.crop_flip.reflect)},
    {"flip", "random|alternate",
     "which images --augment mirrors: at random in each epoch; or each in every other epoch "
     "(random)",
     CLI_IF_SECOND, offsetof(train_setup, run.crop_flip.alternate)},
    {"color-jitter", "B[,C[,S[,H]]]",
     "change brightness, contrast, saturation and hue of training images: 0.4,0.4,0.4,0.1",
     AT(color_jitter)},
    {"random-erasing", "P", "probability to cover a box of a training image (0)", AT(run.erasing),
     0, 1},
    {"mixup", "ALPHA",
     "mix each training row with the row before it, by a share from Beta(ALPHA, ALPHA) "
     "(0)",
     AT(run.mixup), 0, 1000},
    CLI_OPTION_LOADER_THREADS(AT(loader_threads)),
    CLI_OPTION_SKIP_BAD(AT(run.skip_bad)),
    CLI_HEADING("weights to begin with"),
    {"new-head", NULL, "start the last linear layer anew, whatever --init has: for other classes",
     AT(run.init_new_head)},
    {"allow-missing", "PATTERN[,...]",
     "tensors that keep their initial values if --init lacks them or has another shape: fc.*",
     AT(run.init_allow_missing)},
    {"allow-unknown", "PATTERN[,...]", "tensors of --init to ignore if the model lacks them",
     AT(run.init_allow_unknown)},
    {"whiten", "LAYER|none",
     "begin with filters of this first convolution that whiten patches of the training rows (none)",
     AT(run.whiten)},
    {"freeze", "PATTERN[,...]", "parameters that do not train, as in conv1.*,layer1.*",
     AT(groups.freeze)},
    {"activation-checkpointing", NULL,
     "less memory: backward computes values again instead of keeping them; the same weights",
     AT(engine.activation_checkpointing)},
    {"freeze-statistics", "PATTERN[,...]",
     "batch norms that keep and use their running statistics: layer1.*, or * for all",
     AT(engine.freeze_statistics)},
    CLI_HEADING("optimizer and learning rate"),
    {"momentum", "X", "momentum of sgd (0.9), rmsprop (0), muon (0.95) or muon-filters (0.6)",
     AT(optimizer.momentum), 0, 1},
    {"nesterov", NULL, "use Nesterov's momentum, as both muons do in any case",
     AT(optimizer.nesterov)},
    {"weight-decay", "X", "weight decay (0.0005 for sgd, 0.01 for adamw, otherwise 0)",
     AT(optimizer.weight_decay), 0, INFINITY},
    {"no-decay", "norms-and-biases|PATTERN[,...]",
     "parameters without weight decay that no --group matches", AT(groups.no_decay)},
    {"group", "PATTERN[,...]:lr=X,decay=X,momentum=X,steps=N[;...]",
     "for these parameters: learning rate times X, weight decay X, momentum X, and rest after N "
     "steps; the first match counts",
     AT(groups.group)},
    {"clip-norm", "X", "limit the norm of the gradient; 0: no limit (0)", AT(optimizer.clip_norm),
     0, INFINITY},
    {"accumulate", "N", "compute a batch as N micro-batches (1)", AT(engine.accumulate), 1,
     1 << 20},
    {"ema", "DECAY",
     "average the weights over the steps, as in 0.999; evaluations and --save use it",
     AT(engine.ema_decay), 0, 0.9999999},
    {"lr-schedule", "constant|step|cosine|onecycle|exponential|plateau|linear",
     "course of the learning rate (constant)", AT(run.lr_schedule)},
    {"warmup-steps", "N", "steps of linear warm-up; not with onecycle (0)", AT(run.warmup_steps), 0,
     1e15},
    {"lr-gamma", "X", "exponential: factor of each epoch (0.95); plateau: of each reduction (0.1)",
     AT(run.lr_gamma), 1e-12, 1},
    {"lr-patience", "N", "plateau: evaluations without a better test loss before a reduction (10)",
     AT(run.lr_patience), 0, 1 << 20},
    {"lr-find", "[STEPS=100]",
     "do not train: try rates from 1e-7 to 10 in so many steps, and suggest one for --lr",
     AT(lr_find), 20, 1000000},
    CLI_HEADING("loss"),
    {"loss", "auto|cross-entropy|mse|bce|huber",
     "auto: cross-entropy for classes, mse for targets; bce is that of logits (auto)",
     AT(loss_word)},
    {"label-smoothing", "X", "share of the target spread over all classes (0)",
     AT(loss.label_smoothing), 0, 0.999},
    {"class-weights", "balanced|W,W,...",
     "weights of the classes in the loss; balanced: rare classes weigh more, and all the same",
     AT(class_weights)},
    {"ignore-index", "N", "rows with this label do not count", AT(ignore_index)},
    {"huber-delta", "X", "the error up to which huber is a square (1)", AT(loss.huber_delta), 1e-30,
     INFINITY},
    {"loss-scale", "N|dynamic",
     "factor of the loss's gradient, a power of two; dynamic: steps whose gradient overflows "
     "change "
     "nothing and halve it (float16: dynamic; otherwise 1)",
     AT(loss_scale)},
    {"loss-scale-interval", "N",
     "a dynamic loss scale doubles after N steps without overflow (2000)",
     AT(engine.loss_scale_interval), 1, INT_MAX},
    CLI_HEADING("length of the run and evaluations"),
    {"steps", "N", "steps of the run, instead of --epochs", AT(run.steps), 1, 1e15},
    {"evaluate-every", "N",
     "evaluate every N epochs; 0: at the end, -1: never (1; of a run of --steps: 0)",
     AT(run.evaluate_every), -1, 1 << 20},
    {"test-views", "1|2|6",
     "evaluate the mean output of views of an image: 2: as it is and mirrored; 6: both shifted by "
     "a "
     "pixel, too (1)",
     AT(test_views)},
    {"patience", "N",
     "stop after N evaluations without a better test loss, with the best weights (never)",
     AT(run.patience), 1, 1 << 20},
    {"min-delta", "X", "for --patience: how much lower a better test loss is (0)",
     AT(run.min_delta), 0, INFINITY},
    CLI_HEADING("files of the run"),
    {"force", NULL, "let --save replace a file that exists", AT(force)},
    {"checkpoint-dir", "DIR",
     "write checkpoints there, also when the run ends or a signal stops it",
     AT(run.checkpoint_dir)},
    {"checkpoint-every", "N[s|m|steps|epochs]",
     "seconds, minutes, steps or epochs between checkpoints; N alone: steps (1epochs)",
     AT(checkpoint_every)},
    {"keep", "K", "newest checkpoints to keep (3)", AT(run.keep), 1, 1 << 30},
    {"keep-best", NULL,
     "also keep the checkpoint of the best evaluation (--evaluate-every 1), best.safetensors",
     AT(run.keep_best)},
    {"resume", "auto|FILE",
     "go on from a checkpoint; auto: the newest undamaged one in --checkpoint-dir, if any",
     AT(run.resume)},
    {"resume-anyway", "FIELD[,FIELD]",
     "options that may differ from the checkpoint's, by the names in the refusal",
     AT(run.resume_anyway)},
    {"metrics", "FILE", "write one line of JSON for each step and evaluation", AT(run.metrics)},
    {"trace", "FILE", "write a timeline of all stages for https://ui.perfetto.dev", AT(run.trace)},
    {"report", "FILE",
     "write one HTML page: learning curves, accuracy by class, confusions, misclassified rows",
     AT(report)},
    CLI_HEADING("devices and what they exchange"),
    CLI_OPTION_THREADS(AT(run.threads)),
    {"mode", "dp|single|ddp|async|local",
     "dp: one process for all devices; single: the first device alone; ddp: a process each; async, "
     "local: devices that do not wait for each other in each step (dp)",
     AT(run.mode)},
    {"schedule", "overlap|classic|sharded|python",
     "order of the stages of a step; classic and python only with --mode dp (overlap)",
     AT(engine.schedule)},
    CLI_OPTION_PRECISION(AT(engine.precision)),
    CLI_OPTION_ALGORITHM(AT(engine.algorithm),
                         "of convolutions and products; with fastest, runs may differ (measured)"),
    ALGORITHM_CACHE_OPTION_FILE(AT(algorithm_cache.file)),
    ALGORITHM_CACHE_OPTION_NO_CACHE(AT(algorithm_cache.no_cache)),
    CLI_OPTION_COLLECTIVES(AT(engine.collectives)),
    CLI_OPTION_BUCKET_MB(AT(bucket_mb), "the first 1, then 4 on CPUs and 25 on GPUs"),
    CLI_OPTION_SHARDS(AT(engine.shards)),
    {"shares", "auto|A:B...",
     "how much of each batch the devices compute, 2:1:1; auto: by measured speed, again and again; "
     "with --shards whole shards, and the same bits (equal)",
     AT(shares)},
    {"sync-batch-norm", NULL,
     "batch norm over the rows of all devices and ranks, not of each alone",
     AT(engine.synchronize_batch_norm)},
    CLI_OPTION_LINK(AT(engine.link)),
    CLI_OPTION_STRAGGLER(AT(straggler), ""),
    CLI_OPTION_INTERPRETER(AT(engine.interpreter_us), "--schedule python"),
    CLI_HEADING("failures"),
    {"survive", NULL, "go on without a device that fails; with --shards, to the same weights",
     AT(run.survive)},
    {"audit", "EVERY",
     "with --shards: every so many steps a second device computes a shard again, bit for bit; one "
     "that computes wrong is named, and with --survive left out (never)",
     AT(engine.audit), 1, 1 << 30},
    {"deadline", "SECONDS",
     "the longest that a device may take for a stage of a step; one that hangs is an error (none)",
     AT(engine.deadline), 0, 1e6},
    {"fault", "KIND:K@STEP[:STAGE],...",
     "to see what happens: device (ddp: rank) K has an error or no memory, hangs, flips bits, or "
     "kills its process, as in error:1@20",
     AT(engine.fault)},
    CLI_HEADING("devices that do not wait for each other, with --mode async or local"),
    {"max-staleness", "N", "async: no gradient is staler; devices that are ahead wait (no bound)",
     AT(async.max_staleness), 1, 1 << 20},
    {"stale-rate", "whole|divided",
     "async: divide the learning rate of a stale gradient by its staleness (whole)", CLI_IF_SECOND,
     offsetof(train_setup, async.divide_rate)},
    {"compensation", "X", "async: correct stale gradients as DC-ASGD, with this lambda (0)",
     AT(async.compensation), 0, INFINITY},
    {"record-order", "FILE", "async: write there in which order the gradients came",
     AT(async.record_order)},
    {"replay-order", "FILE", "async: take them in the order of that run: the same weights",
     AT(async.replay_order)},
    {"sync-every", "K", "local: devices take K steps alone, then all get the mean (1)",
     AT(local.every), 1, 1 << 30},
    {"sync-from", "STEP", "local: until this step the mean follows each step (0)", AT(local.from),
     0, 1e15},
    {"outer-lr", "X", "local: rate of an outer optimizer towards the mean (1)",
     AT(local.outer_rate), 1e-12, INFINITY},
    {"outer-momentum", "X", "local: its Nesterov momentum, 0.9 as in DiLoCo (0)",
     AT(local.outer_momentum), 0, 0.9999999},
    CLI_HEADING("processes, with --mode ddp"),
    {"transport", "auto|shared-memory|mpi|nccl", "ddp: how ranks exchange gradients (auto)",
     AT(group.transport)},
    {"broadcast-buffers", "yes|no",
     "ddp: all ranks evaluate with the batch norm statistics of rank 0 (yes)", CLI_IF_SECOND,
     offsetof(train_setup, engine.own_buffers)},
    {"loss-mean", "rows|ranks",
     "ddp: mean over all rows, or over the ranks' means as in PyTorch (rows)", CLI_IF_SECOND,
     offsetof(train_setup, engine.mean_of_ranks)},
    {"timeout", "SECONDS", "ddp: longest wait for another rank (60)", AT(timeout_s), 1, 1 << 20},
    CLI_HEADING("options from elsewhere, and what the run prints"),
    {"recipe", "NAME", "options for a usual task: " CONFIG_RECIPES "; others of the command win",
     AT(config.recipe)},
    {"config", "FILE",
     "options as a JSON object, {\"lr\": 0.1, \"nesterov\": true}; the command's win",
     AT(config.file)},
    {"print-config", NULL, "print the options in force as such an object, and do not train",
     AT(config.print)},
    CLI_OPTION_SEED(AT(run.seed), "weights, row order, augmentation and dropout"),
    {"log-every", "N", "print a line every N steps (every 5 seconds or so)", AT(log_every), 0,
     1 << 30},
    {"live", NULL, "draw progress, devices, stages and losses in the terminal while training",
     AT(live)},
    CLI_OPTION_JSON(AT(json)),
    CLI_OPTION_QUIET(AT(quiet)),
};

/* The lists that the engine runs. */
static void print_stages_of(FILE *out, const char *name, yoke_schedule schedule) {
    yoke_stage stages[YOKE_STAGE_COUNT];
    int count = yoke_schedule_stages(schedule, stages, YOKE_STAGE_COUNT);
    fprintf(out, "  %-10s", name);
    for (int i = 0; i < count; i++)
        fprintf(out, "%s%s", i > 0 ? ", " : "", yoke_stage_name(stages[i]));
    fputc('\n', out);
}

static void print_models_and_stages(FILE *out) {
    cli_print_models(out);
    fprintf(out, "\nstages of a step:\n");
    print_stages_of(out, "overlap", YOKE_SCHEDULE_OVERLAP);
    print_stages_of(out, "classic", YOKE_SCHEDULE_CLASSIC);
    fprintf(out, "sharded has those of overlap, python those of classic. In DDP, all_reduce and "
                 "update take the place\nof exchange.\n");
}

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
    .print_more = print_models_and_stages};

#define EVERY_UNSET -2 /* of evaluate_every: what evaluations() says */

/* NaN: the default depends on another option. */
const train_setup train_defaults = {
    .run = {.struct_size = sizeof(yoke_trainer_options),
            .model = "resnet20",
            .dataset = "synthetic",
            .batch = 64,
            .epochs = 3,
            .evaluate_every = EVERY_UNSET,
            .lr_patience = 10},
    .engine = {.struct_size = sizeof(yoke_data_parallel_options), .interpreter_us = NAN},
    .optimizer = {.learning_rate = NAN, .momentum = NAN, .weight_decay = NAN},
    .loss = {.struct_size = sizeof(yoke_loss_options), .huber_delta = NAN},
    .async = YOKE_ASYNC_OPTIONS_INIT,
    .local = {.struct_size = sizeof(yoke_local_options), .every = 1, .outer_rate = 1},
    .group = {.struct_size = sizeof(yoke_process_group_options)}};

static double given_or(double given, double otherwise) {
    return isnan(given) ? otherwise : given;
}

/* Epochs between evaluations: 0 at the end, -1 never. A run of some steps may pass many short
 * epochs. */
static int evaluations(const yoke_trainer_options *run) {
    bool watches = run->patience > 0 || run->lr_schedule == YOKE_LR_PLATEAU;
    if (run->evaluate_every != EVERY_UNSET) return run->evaluate_every;
    return run->steps == 0 || watches;
}

bool train_setup_is_auto(const train_setup *setup) {
    return setup->run.resume != NULL && strcmp(setup->run.resume, "auto") == 0;
}

/* Contradictions. */

static int check_optimizer(const train_setup *setup) {
    const yoke_optimizer_options *optimizer = &setup->optimizer;
    bool looks_ahead = optimizer->kind == YOKE_SGD || optimizer->kind == YOKE_MUON ||
                       optimizer->kind == YOKE_MUON_FILTERS;
    if (!cli_has_momentum(optimizer->kind) && given_or(optimizer->momentum, 0) > 0)
        return cli_usage_error(
            "train", "--momentum needs --optimizer sgd, rmsprop, muon or muon-filters; %s has none",
            yoke_optimizer_name(optimizer->kind));
    if (!looks_ahead && optimizer->nesterov)
        return cli_usage_error(
            "train", "--nesterov needs --optimizer sgd, muon or muon-filters; %s has no such form",
            yoke_optimizer_name(optimizer->kind));
    if (optimizer->nesterov && given_or(optimizer->momentum, 0.9) == 0)
        return cli_usage_error("train", "--nesterov needs a --momentum above 0");
    if (setup->run.warmup_steps > 0 && setup->run.lr_schedule == YOKE_LR_ONECYCLE)
        return cli_usage_error(
            "train",
            "--warmup-steps: --lr-schedule onecycle has a warm-up of its own; leave one out");
    return -1;
}

static int check_loss(const train_setup *setup) {
    bool entropy = setup->loss_word == 0 || setup->loss_word == 1 + YOKE_LOSS_CROSS_ENTROPY;
    if (!entropy && (setup->class_weights.text != NULL || setup->ignore_index.text != NULL ||
                     setup->loss.label_smoothing > 0))
        return cli_usage_error("train",
                               "--class-weights, --ignore-index and --label-smoothing need "
                               "--loss cross-entropy");
    if (!isnan(setup->loss.huber_delta) && setup->loss_word != 1 + YOKE_LOSS_HUBER)
        return cli_usage_error("train", "--huber-delta needs --loss huber");
    return -1;
}

/* Options of one of the modes async and local. */
static int check_apart(const train_setup *setup) {
    const yoke_async_options *async = &setup->async;
    const yoke_local_options *local = &setup->local;
    bool of_async = async->max_staleness > 0 || async->divide_rate || async->compensation > 0 ||
                    async->record_order != NULL || async->replay_order != NULL;
    bool of_local =
        local->every > 1 || local->from > 0 || local->outer_rate != 1 || local->outer_momentum > 0;
    if (of_async && setup->run.mode != YOKE_MODE_ASYNC)
        return cli_usage_error("train", "--max-staleness, --stale-rate, --compensation, "
                                        "--record-order and --replay-order need --mode async");
    if (of_local && setup->run.mode != YOKE_MODE_LOCAL)
        return cli_usage_error("train", "--sync-every, --sync-from, --outer-lr and "
                                        "--outer-momentum need --mode local");
    return -1;
}

static int check_checkpoints(const train_setup *setup) {
    const yoke_trainer_options *run = &setup->run;
    bool wants_folder = setup->checkpoint_every.text != NULL || run->keep > 0 || run->keep_best;
    if (run->checkpoint_dir == NULL && wants_folder)
        return cli_usage_error("train", "--checkpoint-every, --keep and --keep-best need "
                                        "--checkpoint-dir");
    if (run->keep_best && evaluations(run) < 0)
        return cli_usage_error("train", "--keep-best compares evaluations, and --evaluate-every -1 "
                                        "means none; --evaluate-every 1: after each epoch");
    if (train_setup_is_auto(setup) && run->checkpoint_dir == NULL)
        return cli_usage_error("train", "--resume auto needs --checkpoint-dir");
    if (run->resume != NULL && !train_setup_is_auto(setup) && run->init != NULL)
        return cli_usage_error("train",
                               "--resume %s and --init %s both bring weights: leave one out "
                               "(--resume auto takes --init where there is no checkpoint)",
                               run->resume, run->init);
    if (run->resume_anyway != NULL && run->resume == NULL)
        return cli_usage_error("train", "--resume-anyway %s needs --resume", run->resume_anyway);
    return -1;
}

int train_setup_check(const train_setup *setup) {
    const yoke_trainer_options *run = &setup->run;
    int code = check_optimizer(setup);
    if (code >= 0) return code;
    if (!isnan(setup->engine.interpreter_us) && setup->engine.schedule != YOKE_SCHEDULE_PYTHON)
        return cli_usage_error("train", "--interpreter-us needs --schedule python");
    if (run->init == NULL &&
        (run->init_allow_missing != NULL || run->init_allow_unknown != NULL || run->init_new_head))
        return cli_usage_error("train", "--allow-missing, --allow-unknown and --new-head need "
                                        "--init");
    if (setup->live && setup->quiet)
        return cli_usage_error("train", "--live draws and --quiet draws nothing; leave one out");
    code = algorithm_cache_check(&setup->algorithm_cache, "train");
    if (code >= 0) return code;
    if (run->min_delta > 0 && run->patience == 0)
        return cli_usage_error("train", "--min-delta needs --patience");
    code = check_loss(setup);
    if (code < 0) code = check_apart(setup);
    return code >= 0 ? code : check_checkpoints(setup);
}

/* What the options mean. */

static void complete_optimizer(yoke_optimizer_options *optimizer) {
    yoke_optimizer_options given = *optimizer;
    *optimizer = cli_optimizer(given.kind, given.learning_rate);
    optimizer->momentum = given_or(given.momentum, optimizer->momentum);
    optimizer->nesterov = (optimizer->nesterov || given.nesterov) && optimizer->momentum > 0;
    optimizer->weight_decay = given_or(given.weight_decay, optimizer->weight_decay);
    optimizer->clip_norm = given.clip_norm;
}

/* Without a loss the trainer takes that of the dataset. */
static void complete_loss(train_setup *setup) {
    yoke_loss_options *loss = &setup->loss;
    class_weights *weights = &setup->class_weights;
    if (setup->loss_word == 0 && weights->text == NULL && setup->ignore_index.text == NULL) {
        setup->run.label_smoothing = loss->label_smoothing;
        return;
    }
    loss->kind =
        setup->loss_word > 0 ? (yoke_loss_kind)(setup->loss_word - 1) : YOKE_LOSS_CROSS_ENTROPY;
    loss->class_weights = weights->count > 0 ? weights->weights : NULL;
    loss->weight_count = weights->count;
    loss->set_ignore_index = setup->ignore_index.text != NULL;
    loss->ignore_index = setup->ignore_index.number;
    loss->huber_delta = given_or(loss->huber_delta, 1);
    setup->run.loss = loss;
    setup->run.balanced_class_weights = weights->balanced;
}

void train_setup_complete(train_setup *setup) {
    yoke_trainer_options *run = &setup->run;
    yoke_data_parallel_options *engine = &setup->engine;
    complete_optimizer(&setup->optimizer);
    complete_loss(setup);
    setup->group.timeout_ms = 1000 * setup->timeout_s;
    run->engine = engine;
    run->optimizer = &setup->optimizer;
    run->asynchronous = &setup->async;
    run->local = &setup->local;
    run->evaluate_every = evaluations(run);
    run->color_jitter = setup->color_jitter.strengths;
    run->loader_threads = setup->loader_threads.count;
    run->checkpoint_every = setup->checkpoint_every.amount;
    run->checkpoint_unit = setup->checkpoint_every.unit;
    engine->auto_shares = setup->shares.measured;
    engine->share_count = setup->shares.count;
    engine->shares = setup->shares.count > 0 ? setup->shares.shares : NULL;
    engine->loss_scale = setup->loss_scale.value;
    engine->straggler = setup->straggler.index;
    engine->straggler_factor = setup->straggler.factor;
    engine->first_bucket_bytes = engine->bucket_bytes = (size_t)(setup->bucket_mb * 1048576);
    engine->interpreter_us = given_or(engine->interpreter_us, YOKE_INTERPRETER_US);
    run->test_views = (const int[]){1, 2, 6}[setup->test_views];
    if (run->whiten != NULL && strcmp(run->whiten, "none") == 0) run->whiten = NULL;
    run->misclassified = setup->report != NULL ? TRAIN_PAGE_MISCLASSIFIED : 0;
}
