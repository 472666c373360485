/* SPDX-License-Identifier: Apache-2.0 */
/* What several verbs mean by the same option: its row in their tables, and its default. */
#ifndef CLI_SHARED_OPTIONS_H
#define CLI_SHARED_OPTIONS_H

#include <math.h>

#include "cli/arguments.h"
#include "yoke/yoke.h"

/* Rows; `at` is CLI_FIELD of the field, `otherwise` the default as help shows it. */
#define CLI_OPTION_THREADS(at)                                                                     \
    { "threads", "N", "compute threads of each device (cores / devices)", at, 0, 1024 }
#define CLI_OPTION_BATCH(at, otherwise)                                                            \
    { "batch", "N", "rows of a step, over all devices (" otherwise ")", at, 1, 1 << 20 }
#define CLI_OPTION_SHARDS(at)                                                                      \
    {                                                                                              \
        "shards", "V",                                                                             \
            "cut each batch into V shards, a power of two: the same bits on 1, 2, 4 ... V "        \
            "devices",                                                                             \
            at, 1, YOKE_SHARDS_LIMIT                                                               \
    }
#define CLI_OPTION_OPTIMIZER(at, help)                                                             \
    { "optimizer", "sgd|adamw|adam|rmsprop|lion|adagrad|lamb|muon|muon-filters", help, at }
#define CLI_OPTION_LR(at, what, of_sgd)                                                            \
    {                                                                                              \
        "lr", "X",                                                                                 \
            what " (sgd " of_sgd                                                                   \
                 ", lion 0.0001, rmsprop and adagrad 0.01, muon-filters 0.24, others 0.001)",      \
            at, 0, INFINITY                                                                        \
    }
#define CLI_OPTION_PRECISION(at)                                                                   \
    {                                                                                              \
        "precision", YOKE_PRECISION_WORDS,                                                         \
            "precision of the computation; weights stay float32; tf32 needs GPUs (float32)", at    \
    }
#define CLI_OPTION_COLLECTIVES(at)                                                                 \
    { "collectives", "auto|nccl|copy", "dp: library that sums gradients between GPUs (auto)", at }
#define CLI_OPTION_LINK(at)                                                                        \
    {                                                                                              \
        "link", "pcie3|pcie4|pcie5|nvlink2|nvlink3|nvlink4|GB/s,US[,switch|bridge]",               \
            "model links between CPU devices, 12.5,3 say: GB/s and microseconds", at               \
    }
#define CLI_OPTION_BUCKET_MB(at, otherwise)                                                        \
    { "bucket-mb", "X", "MiB of a gradient bucket (" otherwise ")", at, 1e-3, 1 << 20 }
#define CLI_OPTION_INTERPRETER(at, of)                                                             \
    {                                                                                              \
        "interpreter-us", "X",                                                                     \
            of ": microseconds in which Python calls one layer, or copies it (13)", at, 0, 1e6     \
    }
#define CLI_OPTION_ALGORITHM(at, help)                                                             \
    { "algorithm", "measured|direct|fastest", help, at }
#define CLI_OPTION_SEED(at, of)                                                                    \
    { "seed", "N", "seed of " of " (0)", at }
#define CLI_OPTION_STRAGGLER(at, but)                                                              \
    { "straggler", "K:X", "CPU device (ddp: rank) K, from 0, takes X times as long: 1:2.0" but, at }
#define CLI_OPTION_LIMIT_ROWS(at)                                                                  \
    {                                                                                              \
        "limit-rows", "N", "read N rows of each split at most, the same ones in every run (all)",  \
            at, 1, UINT32_MAX                                                                      \
    }
#define CLI_OPTION_LOADER_THREADS(at)                                                              \
    {                                                                                              \
        "loader-threads", "N|auto",                                                                \
            "threads that prepare batches; auto: 1, and for images a thread per core, at most 8 "  \
            "(auto)",                                                                              \
            at                                                                                     \
    }
#define CLI_OPTION_SKIP_BAD(at)                                                                    \
    {                                                                                              \
        "skip-bad", NULL,                                                                          \
            "images: read every file first, name those that are damaged, go on without", at        \
    }
#define CLI_OPTION_JSON(at)                                                                        \
    { "json", NULL, "print the result as one JSON object", at }
#define CLI_OPTION_QUIET(at)                                                                       \
    { "quiet", NULL, "print the result only", at }

/* Below the options of a verb: the models that --model knows. */
void cli_print_models(FILE *out);

bool cli_has_momentum(yoke_optimizer_kind kind);
/* The optimizer that the tool trains with unless the user says otherwise; learning_rate NaN: its
 * default, too. */
yoke_optimizer_options cli_optimizer(yoke_optimizer_kind kind, double learning_rate);

#endif
