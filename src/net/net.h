/* SPDX-License-Identifier: Apache-2.0 */
/* The door of net: what a net is made of. */
#ifndef NET_NET_H
#define NET_NET_H

#include <pthread.h>
#include <stdatomic.h>
#include <sys/types.h>

#include "base/base.h"
#include "parallel/parallel.h"
#include "yoke/net.h"

/* What a net says of itself while it works. Times are 0 outside of a fit. */
typedef struct yoke_net_progress {
    uint64_t activity, step, steps, epoch, begin_ns, step_ns, training_bytes;
    double loss, test_loss, test_accuracy;
} yoke_net_progress;

struct yoke_net {
    pid_t process; /* that opened it */
    const yoke_model *model;
    yoke_net_options options; /* its texts are the net's own */
    char *texts[3];
    yoke_data_parallel_options engine_options;
    yoke_optimizer_options optimizer;
    yoke_devices *devices;
    yoke_data_parallel *engine; /* trains, evaluates, reads and writes */
    yoke_cancellation cancellation;
    /* One call at a time, but for predictions and questions. */
    pthread_mutex_t door;  /* of `is_taken` */
    pthread_cond_t passed; /* the turn is free */
    bool is_taken;
    _Atomic pthread_t owner; /* the thread that has the turn; 0: none */
    /* What the thread that has the turn knows, and what any thread may read. */
    yoke_net_progress now;
    YOKE_PUBLISHED(sizeof(yoke_net_progress)) published;
    uint64_t epochs; /* of all fits: each has an order of its own */
    pthread_mutex_t log_turn;
    /* Predictions: predicting.c. */
    struct yoke_predictors *_Atomic predictors; /* NULL until the first prediction */
    atomic_uint_least64_t version;              /* grows when the weights of the engine change */
    atomic_uint_least64_t shown;                /* the version of the weights that predict */
    atomic_bool is_read; /* a prediction has read the weights that are shown */
};

/* net.c */

/* Around a call that needs the turn, which it waits for. ARGUMENT: `net` is NULL, in a fork, or a
 * callback of the call that has the turn makes this one. CANCELLED: while it waited. */
typedef struct yoke_net_call {
    yoke_cancel_scope before;
} yoke_net_call;
yoke_status yoke_net_begin(yoke_net *net, const char *name, yoke_net_activity activity,
                           yoke_net_call *call);
yoke_status yoke_net_end(yoke_net *net, const yoke_net_call *call, yoke_status status);
/* The turn alone. wait: until it is free, or it is time to look for something else. */
bool yoke_net_try_turn(yoke_net *net);
void yoke_net_wait_for_turn(yoke_net *net);
void yoke_net_pass_turn(yoke_net *net);
/* ARGUMENT: the net only predicts. */
yoke_status yoke_net_check_trains(const yoke_net *net, const char *name);
bool yoke_net_has_gpus(const yoke_net *net);
/* Says what `now` holds to other threads. */
void yoke_net_tell(yoke_net *net);
void yoke_net_log(yoke_net *net, yoke_log_level level, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* array.c */

/* The rows of a call: the arrays of the host program, checked. */
typedef struct yoke_net_rows {
    const yoke_model *model;
    const yoke_array *inputs;  /* [inputs of the model] */
    const yoke_array *targets; /* NULL: none */
    size_t rows;
} yoke_net_rows;
/* ARGUMENT: an array does not fit the model; the text has both shapes. on_gpus: arrays may lie on
 * GPUs, too. needs_targets: without them, ARGUMENT where the model's loss reads some. */
yoke_status yoke_net_rows_check(yoke_net_rows *rows, bool on_gpus, bool needs_targets);
yoke_status yoke_net_outputs_check(const yoke_model *model, const yoke_array *outputs, size_t rows);
/* Numbers of rows first ... first + count - 1 of the array, `elements` each, as floats. */
void yoke_array_floats(const yoke_array *array, size_t first, size_t count, size_t elements,
                       float *to);
/* The numbers of all rows: the array's own if they are floats, otherwise *copy, which the caller
 * frees. */
yoke_status yoke_array_take_floats(const yoke_array *array, size_t elements, void **copy,
                                   const float **taken);
/* Labels as yoke_array_floats gives numbers. */
void yoke_array_labels(const yoke_array *array, size_t first, size_t count, size_t elements,
                       int32_t *to);
/* The stream of arrays, which is one for all of a call: `*stream` is that of earlier ones, or NULL.
 * ARGUMENT: they have different ones. */
yoke_status yoke_array_take_stream(const yoke_array *array, void **stream);
/* Rows of arrays as a dataset, which reads `rows` as long as it is open. */
yoke_status yoke_net_rows_open(yoke_dataset **dataset, const yoke_net_rows *rows);

/* predicting.c */

/* The weights of the engine have changed. The caller has the turn. */
void yoke_net_changed(yoke_net *net);
/* Shows weights to a first prediction that waits for some. Likewise. */
void yoke_net_show_first(yoke_net *net);
void yoke_net_describe_predictors(const yoke_net *net, yoke_net_info *info);
void yoke_net_close_predictors(yoke_net *net);

#endif
