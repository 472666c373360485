/* SPDX-License-Identifier: Apache-2.0 */
/* Words of PyTorch, torchvision's and timm's scripts, torchrun, Lightning, Keras and Hugging Face,
 * and former ones of Yoke. cmake/make_layout.py reads both tables for the Python module: a row is
 * texts and NULL only. */
#include "cli/other_words.h"

#include <ctype.h>
#include <string.h>

#include "cli/cli.h"

/* words: separated by a bar, in lower case, with - and not _. option: the tool's; NULL: none does
 * this. python: the Trainer's; NULL: it has none. note: more to know, for both; NULL: nothing. */
static const struct {
    const char *words, *option, *python, *note;
} other_options[] = {
    {"b|batch-size|train-batch-size|global-batch-size|per-device-train-batch-size|batchsize",
     "batch", "batch", "the whole batch, over all devices"},
    {"learning-rate|base-lr|max-lr|lr", "lr", "learning_rate", NULL},
    {"max-epochs|num-epochs|nb-epochs|n-epochs|num-train-epochs", "epochs", "epochs", NULL},
    {"max-steps|num-steps|iterations|max-iter|iters|steps-per-epoch", "steps", "steps",
     "all steps of the run"},
    {"j|workers|num-workers|dataloader-num-workers|data-workers|num-threads-loader",
     "loader-threads", "loader_threads", "threads of this process; left out, it chooses"},
    {"gpus|gpu|num-gpus|n-gpu|ngpus|ngpu|num-devices|device|gpu-id|gpu-ids|device-ids|accelerator|"
     "cuda|no-cuda|cpu|use-gpu",
     "devices", "devices", "2xcuda: two GPUs; cuda:0,cuda:1: these two; cpu: no GPU"},
    {"strategy|distributed|distributed-strategy|ddp|multiprocessing-distributed|world-size", "mode",
     "mode", "dp: one process for all devices; ddp: one for each, which yoke launch starts"},
    {"nproc-per-node|nproc", "nproc-per-node", NULL,
     "yoke launch --nproc-per-node 2 -- train --mode ddp starts two"},
    {"nnodes|num-nodes", "nnodes", NULL,
     "yoke launch --nproc-per-node 2 -- train --mode ddp starts two"},
    {"node-rank|machine-rank", "node-rank", NULL,
     "yoke launch --nproc-per-node 2 -- train --mode ddp starts two"},
    {"rdzv-endpoint|master-addr|dist-url|main-process-ip", "master-addr", NULL,
     "a host; --master-port is its port"},
    {"master-port|main-process-port", "master-port", NULL, NULL},
    {"rdzv-backend|rdzv-conf|rdzv-c10d", NULL, NULL, "the launcher has a rendezvous of its own"},
    {"rank|local-rank", NULL, NULL, "each process learns its rank from the launcher"},
    {"dist-backend|ddp-backend|process-group-backend", "transport", NULL, NULL},
    {"bucket-cap-mb", "bucket-mb", NULL, NULL},
    {"data|data-path|data-dir|data-root|dataset-name|dataset-path|train-dir|root|train-file",
     "dataset", "dataset", "images:DIR, csv:FILE,label=COLUMN, npz:FILE, text:FILE, ..."},
    {"a|arch|architecture|net|network|backbone|model-name|model-name-or-path", "model", "model",
     NULL},
    {"wd|decay|l2", "weight-decay", "weight_decay", NULL},
    {"amp|use-amp|no-amp|fp16|bf16|half|mixed-precision|mixed|autocast", "precision", "precision",
     "bfloat16, which needs no scaling of the loss; or float16"},
    {"resume-from|resume-from-checkpoint|ckpt-path|ckpt|checkpoint|load-checkpoint|restore",
     "resume", "resume", "goes on with a run; --init begins a new one with the weights of a file"},
    {"weights|pretrained|pretrained-weights|load-weights|initial-checkpoint|finetune", "init",
     "init", "a safetensors file"},
    {"opt|optim|optimiser", "optimizer", "optimizer",
     "sgd, adamw, adam, rmsprop, lion, adagrad, lamb, muon or muon-filters"},
    {"lr-scheduler|lr-scheduler-type|scheduler|sched|lr-policy|lr-decay", "lr-schedule",
     "lr_schedule", NULL},
    {"step-size|lr-step-size|lr-steps|milestones|lr-milestones|decay-epochs", "lr-schedule",
     "lr_schedule", "step: a tenth of the rate after 1/2 and 3/4 of the run"},
    {"warmup|warmup-epochs|lr-warmup-epochs|lr-warmup-steps|num-warmup-steps|warmup-ratio",
     "warmup-steps", "warmup_steps", "steps, not epochs"},
    {"gamma|decay-rate", "lr-gamma", "lr_gamma", NULL},
    {"seed-everything|random-seed|random-state|manual-seed", "seed", "seed", NULL},
    {"deterministic|use-deterministic-algorithms|benchmark|cudnn-benchmark", "algorithm",
     "algorithm", "direct measures nothing: the same bits in every run"},
    {"output-dir|save-dir|default-root-dir|out-dir|checkpoint-path|save-checkpoint|workdir|"
     "work-dir",
     "checkpoint-dir", "checkpoint_dir", "checkpoints; save writes the last weights alone"},
    {"output|out|save-path|save-model|output-file", "save", "save", "a safetensors file"},
    {"save-every|save-freq|save-interval|save-steps|every-n-epochs", "checkpoint-every",
     "checkpoint_every", NULL},
    {"save-best|save-best-only|load-best-model-at-end", "keep-best", "keep_best", NULL},
    {"save-top-k|save-total-limit|max-to-keep", "keep", "keep", "the newest checkpoints"},
    {"log-every|print-freq|log-interval|log-every-n-steps|logging-steps|log-freq|verbose",
     "log-every", NULL, "steps"},
    {"eval-every|eval-freq|eval-interval|eval-steps|check-val-every-n-epoch|validation-freq|"
     "val-every|val-interval",
     "evaluate-every", "evaluate_every", "epochs"},
    {"test-only|eval|evaluate|eval-only|validate", NULL, NULL,
     "yoke evaluate does it, with the file that train saved"},
    {"validation-split|val-split|test-size", NULL, NULL,
     "the dataset takes it: csv:FILE,label=COLUMN,validation=0.1"},
    {"accum|grad-accum|accumulation-steps|gradient-accumulation-steps|accumulate-grad-batches|"
     "micro-batches",
     "accumulate", "accumulate", NULL},
    {"clip-grad-norm|gradient-clip-val|max-grad-norm|clip-grad|clipnorm|grad-clip|global-clipnorm",
     "clip-norm", "clip_norm", NULL},
    {"auto-augment|augmentation|aug|data-augmentation", "augment", "augment", NULL},
    {"smoothing", "label-smoothing", "label_smoothing", NULL},
    {"mixup-alpha", "mixup", "mixup", NULL},
    {"random-erase|reprob", "random-erasing", "erasing", NULL},
    {"criterion|loss-fn", "loss", NULL, NULL},
    {"class-weight", "class-weights", "balanced_class_weights", NULL},
    {"sync-bn|sync-batchnorm|convert-sync-batchnorm", "sync-batch-norm", "synchronize_batch_norm",
     NULL},
    {"model-ema|model-ema-decay|ema-decay|ema", "ema", "ema_decay", NULL},
    {"early-stopping|early-stopping-patience|early-stop", "patience", "patience",
     "evaluations without a better test loss"},
    {"limit-train-batches|max-train-samples|max-samples|subset|num-samples", "limit-rows",
     "limit_rows", "rows, not batches"},
    {"freeze-layers|freeze-backbone", "freeze", NULL, "names of parameters: conv1.*,layer1.*"},
    {"log-dir|logger|tensorboard|log-file|csv-logger", "metrics", "metrics",
     "a line of JSON for each step"},
    {"profiler|profile|profile-dir", "trace", "trace", "a file for https://ui.perfetto.dev"},
    {"html", "report", NULL, NULL},
    {"choices", "algorithm-cache", "algorithm_cache", NULL},
    {"no-shuffle|shuffle", "shuffle", "no_shuffle", NULL},
    {"new-head", "new-head", "init_new_head", NULL},
    {"allow-missing", "allow-missing", "init_allow_missing", NULL},
    {"allow-unknown", "allow-unknown", "init_allow_unknown", NULL},
    {"loss-mean", "loss-mean", "mean_of_ranks", NULL},
    {"sync-batch-norm", "sync-batch-norm", "synchronize_batch_norm", NULL},
    {"random-erasing", "random-erasing", "erasing", NULL},
    {"num-classes", NULL, "classes", "the dataset says how many classes it has"},
    {"compile|jit|channels-last|pin-memory|prefetch-factor", NULL, NULL,
     "leave it out; the library decides it"},
};

/* option: of a choice; in Python with _. words: as above. word: what it is here. */
static const struct {
    const char *option, *words, *word, *note;
} other_values[] = {
    {"optimizer", "momentum|sgd-nesterov|nesterov", "sgd", NULL},
    {"optimizer", "adadelta|adamax|nadam|lars|adafactor", "adamw",
     "there are sgd, adamw, adam, rmsprop, lion, adagrad, lamb, muon and muon-filters"},
    {"precision", "bf16|bf16-mixed|bf16-true|amp|mixed", "bfloat16",
     "it needs no scaling of the loss"},
    {"precision", "fp16|half|16|16-mixed|16-true|mixed-float16", "float16",
     "its loss scale is dynamic"},
    {"precision", "32|32-true|fp32|float|single|full", "float32", NULL},
    {"precision", "high|medium|tensorfloat32", "tf32", NULL},
    {"lr-schedule", "cosineannealinglr|cosine-annealing|cosineannealing|cosinedecay", "cosine",
     NULL},
    {"lr-schedule", "steplr|multisteplr|multistep|multi-step", "step", NULL},
    {"lr-schedule", "onecyclelr|one-cycle|1cycle", "onecycle", NULL},
    {"lr-schedule", "exponentiallr|exponentialdecay|exp", "exponential", NULL},
    {"lr-schedule", "reducelronplateau|reduce-on-plateau|reduce-lr-on-plateau", "plateau", NULL},
    {"lr-schedule", "none|constantlr|fixed", "constant", NULL},
    {"loss",
     "crossentropyloss|crossentropy|ce|nll|nllloss|categorical-crossentropy|"
     "sparse-categorical-crossentropy",
     "cross-entropy", NULL},
    {"loss", "bcewithlogitsloss|bce-with-logits|binary-crossentropy|bceloss", "bce",
     "it takes logits"},
    {"loss", "mseloss|mean-squared-error|l2", "mse", NULL},
    {"loss", "smoothl1loss|smooth-l1|smoothl1|huberloss|l1|mae", "huber",
     "with huber-delta 1 it is smooth L1"},
    {"devices", "1|2|3|4|5|6|7|8", "2xcuda", "two GPUs; 2xcpu: two CPU devices"},
    {"mode", "ddp-spawn|distributed|ddp-notebook|distributeddataparallel|multi-gpu", "ddp", NULL},
    {"mode", "dataparallel|data-parallel|mirrored", "dp", NULL},
    {"transport", "gloo", "auto", NULL},
    {"augment", "randomcrop|random-crop|crop|flip|randomhorizontalflip", "crop-flip", NULL},
    {"augment", "randomresizedcrop|random-resized-crop|imagenet", "resized-crop-flip", NULL},
    {"shuffle", "true|1|on", "yes", NULL},
    {"shuffle", "false|0|off", "no", NULL},
};

#define ROWS(table) (sizeof(table) / sizeof((table)[0]))

/* Whether "a|b-c" has the word of `length` characters, in any case. */
static bool has_word(const char *words, const char *given, size_t length) {
    for (const char *at = words;; at++) {
        size_t own = strcspn(at, "|"), same = 0;
        while (same < own && same < length &&
               at[same] == (given[same] == '_' ? '-' : tolower((unsigned char)given[same])))
            same++;
        if (same == own && same == length) return true;
        at += own;
        if (*at == '\0') return false;
    }
}

/* The first verb that has the option; NULL: none. */
static const cli_verb *verb_with(const char *option) {
    const cli_verb *verb;
    for (int i = 0; (verb = cli_verb_at(i)) != NULL; i++)
        if (cli_find_option(verb, option) != NULL) break;
    return verb;
}

static void write_hint(char *text, const char *before, const char *word, const char *note) {
    bool both = word != NULL && note != NULL;
    snprintf(text, OTHER_WORDS_BYTES, ": %s%s%s%s%s", word != NULL ? before : "",
             word != NULL ? word : "", both ? " (" : "", note != NULL ? note : "", both ? ")" : "");
}

const char *other_option_hint(const cli_verb *verb, const char *given,
                              char text[OTHER_WORDS_BYTES]) {
    size_t length = strcspn(given, "=");
    char before[64] = "use --", word[64];
    for (size_t i = 0; i < ROWS(other_options); i++) {
        const char *option = other_options[i].option;
        if (!has_word(other_options[i].words, given, length)) continue;
        const cli_verb *other =
            option != NULL && cli_find_option(verb, option) == NULL ? verb_with(option) : NULL;
        if (other != NULL) snprintf(before, sizeof before, "yoke %s has --", other->name);
        write_hint(text, before, option, other_options[i].note);
        return text;
    }
    snprintf(word, sizeof word, "%.*s", (int)(length < 63 ? length : 63), given);
    const char *near = cli_nearest_option(verb, word);
    text[0] = '\0';
    if (near != NULL) snprintf(text, OTHER_WORDS_BYTES, "; did you mean --%s?", near);
    return text;
}

const char *other_value_hint(const char *option, const char *given, char text[OTHER_WORDS_BYTES]) {
    text[0] = '\0';
    for (size_t i = 0; i < ROWS(other_values) && text[0] == '\0'; i++)
        if (strcmp(other_values[i].option, option) == 0 &&
            has_word(other_values[i].words, given, strlen(given)))
            write_hint(text, "use ", other_values[i].word, other_values[i].note);
    return text;
}
