/* SPDX-License-Identifier: Apache-2.0 */
/* What a comparison found: the tables, the JSON object and the page are printed from this one model
 * of the data. It holds no engine and no process. */
#ifndef CLI_COMPARE_RESULT_H
#define CLI_COMPARE_RESULT_H

#include "cli/compare/compare_engine.h"
#include "cli/compare/rounds.h"

typedef enum compare_kind {
    COMPARE_SINGLE,    /* the first device alone */
    COMPARE_ALL_CORES, /* one CPU device with the cores of all devices */
    COMPARE_PYTHON,
    COMPARE_CLASSIC,
    COMPARE_NCCL, /* classic over the chains of NCCL, modelled */
    COMPARE_OVERLAP,
    COMPARE_SHARDED,
    COMPARE_DDP,
    COMPARE_ASYNC, /* asynchronous SGD with a server */
    COMPARE_LOCAL, /* local SGD */
    COMPARE_TORCH_EAGER,
    COMPARE_TORCH_DP,  /* nn.DataParallel */
    COMPARE_TORCH_DDP, /* DistributedDataParallel over gloo */
    COMPARE_KINDS
} compare_kind;
const char *compare_kind_name(compare_kind kind); /* "dp overlap" */
/* Whether its devices have weights of their own: by design it learns something else. */
bool compare_is_apart(compare_kind kind);
/* Whether PyTorch trains it: its weights stay in another process, and have no hash. */
bool compare_is_torch(compare_kind kind);

/* Did two modes learn the same? With batch norm only modes on the same number of several devices
 * can, because it normalizes each shard alone. */
typedef enum compare_verdict {
    COMPARE_REFERENCE, /* compared with nobody */
    COMPARE_SAME_BITS, /* all weights are equal; a loss may differ by the order of its sum */
    COMPARE_ROUNDING,  /* losses within the tolerance */
    COMPARE_DIFFERENT,
    COMPARE_ANOTHER /* another method computes something else: compared with nobody */
} compare_verdict;
const char *compare_verdict_name(compare_verdict verdict); /* "same bits" */

/* Device k of one process, or rank k. */
typedef struct compare_device {
    char name[32];        /* "cpu:0"; 0 is the root */
    yoke_account account; /* its step_ms is the mode's median */
    compare_memory memory;
} compare_device;

/* Updates between the pull and the push of a device. */
typedef struct compare_staleness {
    double mean; /* over `pushes` */
    int most;    /* YOKE_STALENESS_LIMIT - 1: or more */
    uint64_t pushes;
} compare_staleness;

/* One way to train: a row of the tables. */
typedef struct compare_mode {
    compare_kind kind;
    int devices;
    int threads;        /* of each device; 0: GPUs */
    char transport[32]; /* of ranks; "": devices of one process */

    /* The first steps. */
    double *losses;        /* [compare_result.learn_steps] */
    uint64_t weights_hash; /* after them */
    compare_verdict verdict;
    int compared_with;  /* index of a mode; -1: a reference, or another method */
    int compared_steps; /* the first ones */
    double difference;  /* the largest of their losses, relative */

    /* The race. Each figure is formed from the medians over the rounds, so step_ms of one mode
     * divided by that of another is exactly the quotient of their speed-ups. low and high: see
     * compare_result.interval. */
    double round_ms[RACE_ROUNDS]; /* [rounds]: mean time of a step */
    race_ratio step_ms;
    race_ratio images_per_second;
    race_ratio speedup;           /* single's step_ms / this one's */
    race_ratio speedup_all_cores; /* all cores' step_ms / this one's; NaN: it did not race */
    race_ratio efficiency;        /* speedup / devices */

    compare_device *parts;       /* [devices]; NULL: the mode records no stages and no memory */
    compare_staleness staleness; /* of pushes in the race; 0 pushes: the mode has none */

    /* The recorded step that is closest to the median, of all rounds. Its spans come by device (the
     * lane, or the rank) and begin. Without parts there is none. */
    compare_step step;
} compare_mode;

typedef struct compare_result {
    compare_setup setup;
    char processor[96]; /* or the model of the GPU */
    char torch[96];     /* compare_facts.torch; "": PyTorch does not race */
    int cores;          /* shared by CPU devices; 0: GPUs */
    size_t parameters;
    bool batch_norm;
    bool ddp_left_out; /* where devices share a GPU */

    int learn_steps;
    double tolerance; /* of losses, relative */

    int steps;     /* of each mode in a round */
    int rounds;    /* in round_ms */
    int repeated;  /* disturbed rounds thrown away */
    int disturbed; /* disturbed rounds among `rounds`: then only disjoint intervals say something */
    bool interval; /* low and high bound a 95 % interval; false: the range of the rounds */
    double seconds_limit, seconds_learning, seconds_preparing, seconds_racing;

    compare_mode *modes; /* [mode_count]: single, all cores, those on 2 devices, on 3 ... */
    int mode_count;
} compare_result;

/* Frees what the result holds. */
void compare_result_clear(compare_result *result);
/* NULL: no such mode. */
const compare_mode *compare_find(const compare_result *result, compare_kind kind, int devices);
/* Whether the mode pays for its exchange what the others pay: PyTorch's ranks know neither the
 * modelled link nor the straggler. */
bool compare_pays(const compare_result *result, const compare_mode *mode);
const char *compare_unknown(const compare_result *result); /* which of the two: "straggler" */
/* Whether every figure of `slow` lies above those of `fast`: the intervals are disjoint. */
bool compare_is_slower(const compare_mode *slow, const compare_mode *fast);
/* The modes on so many devices whose intervals are disjoint, and that the others cannot be told
 * apart, in one sentence. */
void compare_order(const compare_result *result, int devices, char *text, size_t size);
/* "async", "async and local", "local": those that race; "": none. */
#define COMPARE_NAMES_BYTES 64
const char *compare_apart_names(const compare_result *result, char text[COMPARE_NAMES_BYTES]);
/* Likewise those of PyTorch, and all that record no stages. */
const char *compare_torch_names(const compare_result *result, char text[COMPARE_NAMES_BYTES]);
const char *compare_unrecorded_names(const compare_result *result, char text[COMPARE_NAMES_BYTES]);
/* The mean over the devices of a mode with parts. */
yoke_account compare_mean_account(const compare_mode *mode);
/* PyTorch rounds otherwise from the first step on, and with batch norm a difference grows a
 * hundredfold from step to step. The second loss is that of weights after a whole step. */
#define COMPARE_TORCH_STEPS 2
/* Sets verdict, compared_with, compared_steps and difference of every mode. */
void compare_judge(compare_result *result);
bool compare_all_equal(const compare_result *result);
/* Bytes that a device moves in a step to exchange rows, gradients and weights: over its modelled
 * link, in both directions, if it has one, and in memory otherwise. */
double compare_moved(const yoke_account *account);

#endif
