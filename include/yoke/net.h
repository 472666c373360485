/* SPDX-License-Identifier: Apache-2.0 */
/** @file
 * The short road: a model with its weights, which learns from arrays, predicts for several threads
 * at once, and goes to memory and back. It lies over the engine (data_parallel.h) and needs no
 * other object but the model.
 *
 *     yoke_net_open(&net, model, NULL);
 *     yoke_net_fit(net, &inputs, &labels, NULL, &result);
 *     yoke_net_predict(net, &inputs, &outputs);
 *     yoke_net_save(net, "weights.safetensors");
 *     yoke_net_close(net);
 *
 * **Threads.** yoke_net_predict, yoke_net_query and yoke_net_cancel may be called by any thread at
 * any time. The other calls take turns: each waits until the one before it has returned. A callback
 * of a net may query and cancel it, and predict but for the first time; its other calls to that net
 * return ARGUMENT.
 *
 * **Which weights predict.** Those after the latest yoke_net_open, step, fit or read that has
 * returned; while a fit runs, those after its latest epoch. A prediction of any number of rows uses
 * one set of weights from its first row to its last.
 *
 * **Arrays.** Inputs: one array for each input of the model, in its order; elements float32,
 * float64, bfloat16, uint8 (pixels, divided by 255), or int32 and int64 (tokens). Targets: labels
 * in int32 or int64, [rows] or [rows, positions]; or numbers in float32 or float64; NULL where the
 * model computes its loss (YOKE_LOSS_OUTPUT). Outputs: one float32 array for each output. Axes of
 * length 1 may be left out or added, and all axes behind the first may be one.
 */
#ifndef YOKE_NET_H
#define YOKE_NET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "yoke/array.h"
#include "yoke/cancellation.h"
#include "yoke/data_parallel.h"
#include "yoke/dataset.h"
#include "yoke/model.h"
#include "yoke/optimizer.h"
#include "yoke/sink.h"
#include "yoke/status.h"
#include "yoke/weights.h"

#ifdef __cplusplus
extern "C" {
#endif

/** A model with its weights. */
typedef struct yoke_net yoke_net;

/** How much a line of the log matters. */
typedef enum yoke_log_level {
    YOKE_LOG_DEBUG,  /**< How the library works: which algorithm it chose. */
    YOKE_LOG_INFO,   /**< What it does: devices, memory, epochs. */
    YOKE_LOG_WARNING /**< Something is not as it should be; the work goes on. */
} yoke_log_level;

/** What a net is doing. */
typedef enum yoke_net_activity {
    YOKE_NET_IDLE,       /**< Nothing. */
    YOKE_NET_FITTING,    /**< A fit or a step. */
    YOKE_NET_EVALUATING, /**< An evaluation, also that of a fit. */
    YOKE_NET_TRANSFER    /**< Reading or writing weights or state. */
} yoke_net_activity;

/** How far a net is, and what it holds. */
typedef struct yoke_net_info {
    size_t struct_size;         /**< sizeof(yoke_net_info). */
    yoke_net_activity activity; /**< What it does now, predictions apart. */
    uint64_t step;              /**< Updates of the weights, over all calls. */
    uint64_t steps;             /**< Those at the end of the running fit; 0: unknown, or none. */
    uint64_t epoch;             /**< Of the latest fit, counted from 0. */
    double loss;                /**< Of the latest step; NaN: none. */
    double test_loss;           /**< Of the latest evaluation; NaN: none. */
    double test_accuracy;       /**< Likewise, 0 to 1; -1: none. */
    double seconds;             /**< Of the latest fit, up to its latest step. */
    uint64_t weights;           /**< How often the weights that predict have changed. */
    uint64_t predictions;       /**< Rows predicted. */
    int devices;                /**< That train, or evaluate where the net only predicts. */
    int predictors;             /**< Threads that can predict at once without waiting. */
    int plans;                  /**< Numbers of rows that predictions have plans for. */
    size_t training_bytes;      /**< Memory of the devices that train. */
    size_t predicting_bytes;    /**< For predictions: weights, plans and their values. */
} yoke_net_info;

/** All zero but the size. */
#define YOKE_NET_INFO_INIT                                                                         \
    { sizeof(yoke_net_info), YOKE_NET_IDLE, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 }

/** How to open a net. Zeroed fields mean the default; yoke_net_open copies what it needs, and
 * `cancellation` and `payload` must outlive the net. */
typedef struct yoke_net_options {
    size_t struct_size;  /**< sizeof(yoke_net_options). */
    const char *devices; /**< As yoke_devices_options.list; NULL: "auto". */
    const char *cores;   /**< As yoke_devices_options.cores; NULL: every core of the process. */
    int threads;         /**< Compute threads of a CPU device; 0: cores / devices. */
    int batch;           /**< Rows of a training step, at most; 0: 64. */
    yoke_precision precision;                /**< What devices compute in. */
    const yoke_optimizer_options *optimizer; /**< NULL: YOKE_SGD_OPTIONS_INIT. */
    uint64_t seed;  /**< Of initial weights, order, augmentation and dropout. */
    bool inference; /**< The net only predicts: no gradients, no optimizer's state. */
    int predictors; /**< Threads that predict at once; more wait. 0: the cores. */
    int plans;      /**< Numbers of rows that predictions keep plans for, at most; those
                         longest unused go. 0: 16. */
    const char *algorithm_cache;     /**< As yoke_data_parallel_options; NULL: none. */
    double measure_seconds;          /**< As yoke_data_parallel_options; 0: no limit. */
    yoke_cancellation *cancellation; /**< What ends calls of this net but predictions, beside
                                          yoke_net_cancel; it works while the net is opened, too.
                                          NULL: none. */
    const yoke_data_parallel_options *engine; /**< Everything else of training, for experts and
                                                   lessons: schedule, shards, links. Its batch,
                                                   precision, seed, algorithm_cache,
                                                   measure_seconds and inference stay 0. NULL:
                                                   YOKE_DATA_PARALLEL_OPTIONS_INIT. */
    /** Gets a line without a newline. The thread of the call, or a worker, calls it; not several at
     * once. NULL: no log. */
    void (*log)(void *payload, yoke_log_level level, const char *line);
    void *payload; /**< Passed to `log`. */
} yoke_net_options;

/** The defaults: the same as zeroed. */
#define YOKE_NET_OPTIONS_INIT                                                                      \
    {                                                                                              \
        sizeof(yoke_net_options), NULL, NULL, 0, 0, YOKE_FLOAT32, NULL, 0, false, 0, 0, NULL, 0,   \
            NULL, NULL, NULL, NULL                                                                 \
    }

/** Opens devices, plans, and gives the model initial weights.
 *
 * @param[out] net  The net; close it with yoke_net_close. NULL on failure.
 * @param model     A finished model; must outlive the net.
 * @param options   NULL: YOKE_NET_OPTIONS_INIT.
 * @return The errors of yoke_devices_open and yoke_data_parallel_create. CANCELLED.
 */
YOKE_API yoke_status yoke_net_open(yoke_net **net, const yoke_model *model,
                                   const yoke_net_options *options);

/** Closes a net. No other thread may be in a call of it.
 *
 * @param net  May be NULL.
 */
YOKE_API void yoke_net_close(yoke_net *net);

/** How to fit. Zeroed fields mean the default. */
typedef struct yoke_fit_options {
    size_t struct_size;                /**< sizeof(yoke_fit_options). */
    int epochs;                        /**< Passes over the rows; 0: 1. Ignored when steps > 0. */
    uint64_t steps;                    /**< Updates; 0: epochs decide. */
    int batch;                         /**< Rows of a step; 0: the net's. */
    bool no_shuffle;                   /**< Take the rows in their order. */
    bool drop_last;                    /**< Leave a short last batch out. */
    double learning_rate;              /**< 0: the optimizer's. */
    yoke_lr_schedule_kind lr_schedule; /**< From this learning rate. */
    uint64_t warmup_steps;             /**< As yoke_lr_schedule. */
    yoke_augment augment;              /**< What to do to images, with labels only. */
    const yoke_array *test_inputs;     /**< Rows to evaluate after each epoch; NULL: none. */
    const yoke_array *test_targets;    /**< Their targets. */
    const yoke_dataset *test_rows;     /**< The same as a dataset; NULL: none. */
    int patience; /**< Stop after so many epochs in a row without a better test loss, with the
                       weights of the best; 0: never. */
    /** Called after each step, evaluation and epoch, on the calling thread. false ends the fit,
     * which then returns OK. NULL: none. */
    bool (*progress)(void *payload, const yoke_net_info *info);
    void *payload; /**< Passed to `progress`. */
} yoke_fit_options;

/** The defaults: the same as zeroed. */
#define YOKE_FIT_OPTIONS_INIT                                                                      \
    {                                                                                              \
        sizeof(yoke_fit_options), 0, 0, 0, false, false, 0, YOKE_LR_CONSTANT, 0,                   \
            YOKE_AUGMENT_NONE, NULL, NULL, NULL, 0, NULL, NULL                                     \
    }

/** What a fit did. */
typedef struct yoke_fit_result {
    size_t struct_size;   /**< sizeof(yoke_fit_result). */
    uint64_t steps;       /**< Updates. */
    double seconds;       /**< That they took. */
    double loss;          /**< Mean over the rows of the last epoch, or of a part of it. */
    double accuracy;      /**< Likewise, 0 to 1; -1: the model does not classify. */
    double test_loss;     /**< After the last epoch, or the best with `patience`; NaN: none. */
    double test_accuracy; /**< Likewise, 0 to 1; -1: none. */
} yoke_fit_result;

/** All zero but the size. */
#define YOKE_FIT_RESULT_INIT                                                                       \
    { sizeof(yoke_fit_result), 0, 0, 0, 0, 0, 0 }

/** Trains on arrays of the host.
 *
 * @param net          The net.
 * @param inputs       [inputs of the model].
 * @param targets      One array; NULL: the model needs none.
 * @param options      NULL: YOKE_FIT_OPTIONS_INIT.
 * @param[out] result  Set struct_size first; also set when the fit is cancelled. May be NULL.
 * @return ARGUMENT: an array does not fit the model, or a label no class; the text names both.
 *         CANCELLED: the weights are those after the last whole step. NUMERIC: as
 *         yoke_data_parallel_step.
 */
YOKE_API yoke_status yoke_net_fit(yoke_net *net, const yoke_array *inputs,
                                  const yoke_array *targets, const yoke_fit_options *options,
                                  yoke_fit_result *result);

/** Trains on a dataset: files, a callback or a stream of the host program.
 *
 * @param net          The net.
 * @param rows         Rows of the model's shape; no other thread closes it meanwhile.
 * @param options      NULL: YOKE_FIT_OPTIONS_INIT.
 * @param[out] result  Set struct_size first; also set when the fit is cancelled. May be NULL.
 * @return As yoke_net_fit; also the errors of yoke_loader_create and yoke_loader_next.
 */
YOKE_API yoke_status yoke_net_fit_rows(yoke_net *net, const yoke_dataset *rows,
                                       const yoke_fit_options *options, yoke_fit_result *result);

/** One update from one batch.
 *
 * @param net          The net.
 * @param inputs       [inputs of the model], at most options.batch rows; on a GPU of the net too.
 * @param targets      One array; NULL: the model needs none.
 * @param learning_rate Of this step; negative: the optimizer's.
 * @param[out] result  Set struct_size first. May be NULL.
 * @return As yoke_net_fit. CANCELLED: the step has changed nothing.
 */
YOKE_API yoke_status yoke_net_step(yoke_net *net, const yoke_array *inputs,
                                   const yoke_array *targets, double learning_rate,
                                   yoke_step_result *result);

/** Loss and accuracy over any number of rows of the host, without learning.
 *
 * @param net          The net.
 * @param inputs       [inputs of the model].
 * @param targets      One array; NULL: the model needs none.
 * @param[out] result  Set struct_size first.
 * @return As yoke_net_fit.
 */
YOKE_API yoke_status yoke_net_evaluate(yoke_net *net, const yoke_array *inputs,
                                       const yoke_array *targets, yoke_step_result *result);

/** The same over a dataset.
 *
 * @param net          The net.
 * @param rows         Rows of the model's shape; no other thread closes it meanwhile.
 * @param[out] result  Set struct_size first.
 * @return As yoke_net_fit_rows.
 */
YOKE_API yoke_status yoke_net_evaluate_rows(yoke_net *net, const yoke_dataset *rows,
                                            yoke_step_result *result);

/** Predicts for any number of rows. Several threads may call it at once: they share one copy of the
 * weights, and none waits for another as long as no more than yoke_net_options.predictors predict.
 *
 * @param net      The net.
 * @param inputs   [inputs of the model].
 * @param outputs  [outputs of the model]: float32 arrays of as many rows; data NULL: not wanted.
 * @return ARGUMENT: an array does not fit the model; the text names both.
 */
YOKE_API yoke_status yoke_net_predict(yoke_net *net, const yoke_array *inputs,
                                      const yoke_array *outputs);

/** What of a net goes to memory or a file. */
typedef enum yoke_net_part {
    YOKE_NET_WEIGHTS, /**< Weights and running statistics: a safetensors file with PyTorch's names.
                       */
    YOKE_NET_STATE,   /**< All that training needs to go on bit for bit: a checkpoint
                           (checkpoint.h). */
    YOKE_NET_GRAPH    /**< Layers and weights: a file of ONNX (onnx.h). Write only. */
} yoke_net_part;

/** Writes a part of a net.
 *
 * @param net   The net.
 * @param part  Which.
 * @param sink  Gets the bytes of the file, in order.
 * @return The sink's error; ARGUMENT: a net that only predicts has no state.
 */
YOKE_API yoke_status yoke_net_write(yoke_net *net, yoke_net_part part, const yoke_sink *sink);

/** Reads weights or state. Nothing changes unless all of it fits. Predictions see the old or the
 * new weights, never a mixture.
 *
 * @param net    The net.
 * @param part   Which; not the graph (yoke_model_load_onnx).
 * @param bytes  [count] the bytes of a file.
 * @param count  Of bytes.
 * @return As yoke_weights_load and yoke_state_load.
 */
YOKE_API yoke_status yoke_net_read(yoke_net *net, yoke_net_part part, const void *bytes,
                                   size_t count);

/** Saves the weights to a file.
 *
 * @param net   The net.
 * @param path  As in yoke_weights_save.
 * @return As yoke_weights_save.
 */
YOKE_API yoke_status yoke_net_save(yoke_net *net, const char *path);

/** Loads the weights from a file, as yoke_net_read does from memory.
 *
 * @param net   The net.
 * @param path  As in yoke_weights_load.
 * @return As yoke_weights_load.
 */
YOKE_API yoke_status yoke_net_load(yoke_net *net, const char *path);

/** Tells how far a net is. Any thread may call it at any time; it waits for no step.
 *
 * @param net        The net.
 * @param[out] info  Set struct_size first.
 * @return ARGUMENT: a pointer or struct_size is wrong.
 */
YOKE_API yoke_status yoke_net_query(const yoke_net *net, yoke_net_info *info);

/** Ends the calls of a net but predictions, as yoke_cancel does, until yoke_net_resume. Any thread
 * and any signal handler may call it.
 *
 * @param net  NULL: nothing happens.
 */
YOKE_API void yoke_net_cancel(yoke_net *net);

/** Withdraws yoke_net_cancel.
 *
 * @param net  NULL: nothing happens.
 */
YOKE_API void yoke_net_resume(yoke_net *net);

/** The engine that trains, for what the short road lacks. It must not be used while a call of the
 * net runs. Weights that it changes reach predictions with the next yoke_net_step, fit, read or
 * load.
 *
 * @param net  The net. NULL: NULL.
 * @return Borrowed from the net.
 */
YOKE_API yoke_data_parallel *yoke_net_engine(yoke_net *net);

#ifdef __cplusplus
}
#endif

#endif
