/* SPDX-License-Identifier: Apache-2.0 */
/* The options of yoke train, by groups; what contradicts itself; and what they mean for a trainer.
 */
#include "cli/train_options.h"

#include <math.h>
#include <stddef.h>
#include <string.h>

#include "cli/shared_options.h"
#include "cli/train_page.h"

#define NO 1 /* of "yes|no" */

#define AT(field) offsetof(train_flags, field)

static const cli_option options[] = {
    CLI_HEADING("used most"),
    {"dataset", "SPEC",
     "images:DIR, npy:X,Y, npz:FILE, csv:FILE,label=COLUMN, text:FILE, cifar10:DIR, cifar100:DIR, "
     "mnist:DIR or synthetic[:...] (synthetic)",
     CLI_TEXT, AT(dataset), 0, 0},
    {"model", "NAME[:OPTIONS]",
     "one of the models below; yoke model show describes them (resnet20)", CLI_TEXT, AT(model), 0,
     0},
    {"init", "FILE", "start from the weights in this safetensors file", CLI_TEXT, AT(init), 0, 0},
    {"devices", "LIST",
     "auto, cpu, 4xcpu, 2xcuda, 4xcuda:0, ...; the first is the root (every GPU, or 2xcpu)",
     CLI_TEXT, AT(devices), 0, 0},
    CLI_OPTION_BATCH(AT(batch), "64"),
    {"epochs", "N", "passes over the training rows (3)", CLI_INTEGER, AT(epochs), 1, 1 << 20},
    CLI_OPTION_OPTIMIZER(AT(optimizer), "update rule, with PyTorch's arithmetic (sgd)"),
    CLI_OPTION_LR(AT(lr), "learning rate, or the peak of its schedule", "0.05"),

    {"augment", "none|crop-flip|crop-flip-cutout|resized-crop-flip",
     "change training images at random (none)", CLI_CHOICE, AT(augment.augment), 0, 0},
    {"save", "FILE", "write the weights as safetensors, also when a signal ends the run", CLI_TEXT,
     AT(save), 0, 0},
    CLI_HEADING("data"),
    CLI_OPTION_LIMIT_ROWS(AT(data.limit_rows)),
    {"shuffle", "yes|no", "new row order in each epoch (yes)", CLI_CHOICE, AT(shuffle), 0, 0},
    {"sampling", "each|balanced",
     "each row once in an epoch, or rows drawn so that each class is equally likely (each)",
     CLI_CHOICE, AT(data.sampling), 0, 0},
    {"drop-last", NULL, "leave out the last batch of an epoch where it is short", CLI_FLAG,
     AT(data.drop_last), 0, 0},

    {"color-jitter", "B[,C[,S[,H]]]",
     "change brightness, contrast, saturation and hue of training images: 0.4,0.4,0.4,0.1",
     CLI_TEXT, AT(augment.color_jitter), 0, 0},

    {"random-erasing", "P", "probability to cover a box of a training image (0)", CLI_REAL,
     AT(augment.random_erasing), 0, 1},

    {"mixup", "ALPHA",
     "mix each training row with the row before it, by a share from Beta(ALPHA, ALPHA) "
     "(0)",
     CLI_REAL, AT(augment.mixup), 0, 1000},
    CLI_OPTION_LOADER_THREADS(AT(data.loader_threads)),
    CLI_OPTION_SKIP_BAD(AT(data.skip_bad)),
    CLI_HEADING("weights to begin with"),

    {"new-head", NULL, "start the last linear layer anew, whatever --init has: for other classes",
     CLI_FLAG, AT(tuning.new_head), 0, 0},
    {"allow-missing", "PATTERN[,...]",
     "tensors that keep their initial values if --init lacks them or has another shape: fc.*",
     CLI_TEXT, AT(allow_missing), 0, 0},
    {"allow-unknown", "PATTERN[,...]", "tensors of --init to ignore if the model lacks them",
     CLI_TEXT, AT(allow_unknown), 0, 0},
    {"freeze", "PATTERN[,...]", "parameters that do not train, as in conv1.*,layer1.*", CLI_TEXT,
     AT(groups.freeze), 0, 0},
    CLI_HEADING("optimizer and learning rate"),
    {"momentum", "X", "momentum of sgd (0.9)", CLI_REAL, AT(momentum), 0, 1},
    {"nesterov", NULL, "use Nesterov's momentum", CLI_FLAG, AT(nesterov), 0, 0},
    {"weight-decay", "X", "weight decay (0.0005 for sgd, 0.01 for adamw)", CLI_REAL,
     AT(weight_decay), 0, INFINITY},
    {"no-decay", "norms-and-biases|PATTERN[,...]",
     "parameters without weight decay that no --group matches", CLI_TEXT, AT(groups.no_decay), 0,
     0},
    {"group", "PATTERN[,...]:lr=X,decay=X[;...]",
     "for these parameters: learning rate times X, weight decay X; the first match counts",
     CLI_TEXT, AT(groups.group), 0, 0},
    {"clip-norm", "X", "limit the norm of the gradient; 0: no limit (0)", CLI_REAL, AT(clip_norm),
     0, INFINITY},
    {"accumulate", "N", "compute a batch as N micro-batches (1)", CLI_INTEGER, AT(accumulate), 1,
     1 << 20},

    {"ema", "DECAY",
     "average the weights over the steps, as in 0.999; evaluations and --save use it", CLI_REAL,
     AT(tuning.ema), 0, 0.9999999},
    {"lr-schedule", "constant|step|cosine|onecycle|exponential|plateau",
     "course of the learning rate (constant)", CLI_CHOICE, AT(lr_schedule), 0, 0},
    {"warmup-steps", "N", "steps of linear warm-up; not with onecycle (0)", CLI_UNSIGNED,
     AT(warmup_steps), 0, 1e15},

    {"lr-gamma", "X", "exponential: factor of each epoch (0.95); plateau: of each reduction (0.1)",
     CLI_REAL, AT(tuning.lr_gamma), 1e-12, 1},

    {"lr-patience", "N", "plateau: evaluations without a better test loss before a reduction (10)",
     CLI_INTEGER, AT(tuning.lr_patience), 0, 1 << 20},

    {"lr-find", "[STEPS=100]",
     "do not train: try rates from 1e-7 to 10 in so many steps, and suggest one for --lr",
     CLI_INTEGER, AT(tuning.lr_find), 20, 1000000},
    CLI_HEADING("loss"),
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
    CLI_HEADING("length of the run and evaluations"),
    {"steps", "N", "steps of the run, instead of --epochs", CLI_UNSIGNED, AT(steps), 1, 1e15},
    {"evaluate-every", "N",
     "evaluate every N epochs; 0: at the end, -1: never (1; of a run of --steps: 0)", CLI_INTEGER,
     AT(evaluate_every), -1, 1 << 20},

    {"patience", "N",
     "stop after N evaluations without a better test loss, with the best weights (never)",
     CLI_INTEGER, AT(tuning.patience), 1, 1 << 20},

    {"min-delta", "X", "for --patience: how much lower a better test loss is (0)", CLI_REAL,
     AT(tuning.min_delta), 0, INFINITY},
    CLI_HEADING("files of the run"),
    {"force", NULL, "let --save replace a file that exists", CLI_FLAG, AT(saving.force), 0, 0},
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
    {"metrics", "FILE", "write one line of JSON for each step and evaluation", CLI_TEXT,
     AT(metrics), 0, 0},
    {"trace", "FILE", "write a timeline of all stages for https://ui.perfetto.dev", CLI_TEXT,
     AT(trace), 0, 0},
    {"report", "FILE",
     "write one HTML page: learning curves, accuracy by class, confusions, worst mistakes",
     CLI_TEXT, AT(report), 0, 0},
    CLI_HEADING("devices and what they exchange"),
    CLI_OPTION_THREADS(AT(threads)),
    {"mode", "dp|single|ddp",
     "dp: one process for all devices; single: the first device alone; ddp: a process each (dp)",
     CLI_CHOICE, AT(mode), 0, 0},
    {"schedule", "overlap|classic|sharded|python",
     "order of the stages of a step; classic and python only with --mode dp (overlap)", CLI_CHOICE,
     AT(schedule), 0, 0},
    CLI_OPTION_PRECISION(AT(precision)),
    CLI_OPTION_ALGORITHM(AT(algorithm),
                         "of convolutions and products; with fastest, runs may differ (measured)"),
    CHOICES_OPTION_FILE(AT(choices)),
    CHOICES_OPTION_NO_CACHE(AT(choices)),
    CLI_OPTION_COLLECTIVES(AT(collectives)),
    CLI_OPTION_BUCKET_MB(AT(bucket_mb), "the first 1, then 4 on CPUs and 25 on GPUs"),
    CLI_OPTION_SHARDS(AT(shards)),
    {"sync-batch-norm", NULL,
     "batch norm over the rows of all devices and ranks, not of each alone; CPU devices", CLI_FLAG,
     AT(sync_batch_norm), 0, 0},
    CLI_OPTION_LINK(AT(link)),
    CLI_OPTION_STRAGGLER(AT(straggler), ""),
    CLI_OPTION_INTERPRETER(AT(interpreter_us), "--schedule python"),
    CLI_HEADING("processes, with --mode ddp"),
    {"transport", "auto|shared-memory|mpi|nccl", "ddp: how ranks exchange gradients (auto)",
     CLI_CHOICE, AT(transport), 0, 0},
    {"broadcast-buffers", "yes|no",
     "ddp: all ranks evaluate with the batch norm statistics of rank 0 (yes)", CLI_CHOICE,
     AT(broadcast_buffers), 0, 0},
    {"loss-mean", "rows|ranks",
     "ddp: mean over all rows, or over the ranks' means as in PyTorch (rows)", CLI_CHOICE,
     AT(loss_mean), 0, 0},
    {"timeout", "SECONDS", "ddp: longest wait for another rank (60)", CLI_INTEGER, AT(timeout), 1,
     1 << 20},
    CLI_HEADING("options from elsewhere, and what the run prints"),

    {"recipe", "NAME", "options for a usual task: " CONFIG_RECIPES "; others of the command win",
     CLI_TEXT, AT(config.recipe), 0, 0},

    {"config", "FILE",
     "options as a JSON object, {\"lr\": 0.1, \"nesterov\": true}; the command's win", CLI_TEXT,
     AT(config.file), 0, 0},

    {"print-config", NULL, "print the options in force as such an object, and do not train",
     CLI_FLAG, AT(config.print), 0, 0},
    CLI_OPTION_SEED(AT(seed), "weights, row order, augmentation and dropout"),
    {"log-every", "N", "print a line every N steps (every 5 seconds or so)", CLI_INTEGER,
     AT(log_every), 0, 1 << 30},
    {"live", NULL, "draw progress, devices, stages and losses in the terminal while training",
     CLI_FLAG, AT(live), 0, 0},
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

#define EVERY_UNSET -2 /* of evaluate_every: what train_evaluations says */

/* NaN: the default depends on the optimizer. */
const train_flags train_defaults = {.evaluate_every = EVERY_UNSET,
                                    .model = "resnet20",
                                    .dataset = "synthetic",
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

/* A run of some steps may pass many short epochs. */
int train_evaluations(const train_flags *flags) {
    if (flags->evaluate_every != EVERY_UNSET) return flags->evaluate_every;
    return flags->steps == 0 || tuning_flags_watch(&flags->tuning, flags->lr_schedule);
}

int train_flags_check(const train_flags *flags) {
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
    return saving_flags_check(&flags->saving,
                              &(saving_context){flags->init, train_evaluations(flags)});
}

void train_flags_fill_optimizer(yoke_optimizer_options *optimizer, const train_flags *flags) {
    *optimizer = cli_optimizer((yoke_optimizer_kind)flags->optimizer, flags->lr);
    optimizer->momentum = given_or(flags->momentum, optimizer->momentum);
    optimizer->nesterov = flags->nesterov;
    optimizer->weight_decay = given_or(flags->weight_decay, optimizer->weight_decay);
    optimizer->clip_norm = flags->clip_norm;
}

void train_flags_fill(yoke_trainer_options *run, const train_flags *flags) {
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
