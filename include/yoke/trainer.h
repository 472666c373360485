/* SPDX-License-Identifier: Apache-2.0 */
/** @file
 * Training from a dataset to a checkpoint with one call. A callback reports everything; the library
 * prints nothing.
 */
#ifndef YOKE_TRAINER_H
#define YOKE_TRAINER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "yoke/asynchronous.h"
#include "yoke/data_parallel.h"
#include "yoke/dataset.h"
#include "yoke/distributed.h"
#include "yoke/host_parts.h"
#include "yoke/optimizer.h"
#include "yoke/status.h"
#include "yoke/weights.h"

#ifdef __cplusplus
extern "C" {
#endif

/** A run: dataset, devices, model and engine. */
typedef struct yoke_trainer yoke_trainer;

/** How a run uses devices. */
typedef enum yoke_mode {
    YOKE_MODE_DATA_PARALLEL,             /**< All devices of the list, from this process. */
    YOKE_MODE_SINGLE,                    /**< The first device of the list alone. */
    YOKE_MODE_DISTRIBUTED_DATA_PARALLEL, /**< DDP: this process is one of several, a device each. */
    YOKE_MODE_ASYNC, /**< Asynchronous SGD on the devices of the list: `asynchronous`. */
    YOKE_MODE_LOCAL  /**< Local SGD on the devices of the list: `local`. */
} yoke_mode;

/** What an event reports. */
typedef enum yoke_event_kind {
    YOKE_EVENT_READY,      /**< Plans are made, memory is known, training begins. */
    YOKE_EVENT_STEP,       /**< After every update. */
    YOKE_EVENT_EVALUATION, /**< After an evaluation. */
    YOKE_EVENT_SAVED,      /**< A file was written; `text` is its path. */
    YOKE_EVENT_WARNING,    /**< Something failed but training goes on (a full disk), or, after the
                              first    step, yoke_data_parallel_unreached; `text` says it. */
    YOKE_EVENT_SKIPPED, /**< During yoke_trainer_create: a tensor of `init` was left out; `skip` and
                             `text` say which. */
    YOKE_EVENT_RESUMED, /**< `text` says which checkpoint the run goes on from, or that there is
                             none. WARNING and RESUMED may come while the trainer is created. */
    YOKE_EVENT_EPOCH,   /**< After every epoch and its evaluation, and after a last part of one:
                             means over the rows that this run trained on in it. */
    YOKE_EVENT_STOPPED, /**< `patience` ends the run; `text` says why. */
    YOKE_EVENT_LOST, /**< `survive`: the run goes on without a device, or rank, that failed; `text`
                          says which, why, and from which step. yoke_trainer_engine is a new one,
                          and `rank` may be. */
    YOKE_EVENT_JOINED, /**< `survive`: another rank trains along; as LOST. */
    YOKE_EVENT_RESIZED /**< yoke_trainer_resize: the run goes on with other devices; auto_shares of
                            ranks: with other shares. `text` says which. yoke_trainer_engine is a
                            new one. */
} yoke_event_kind;

/** What counts the time between two checkpoints. */
typedef enum yoke_checkpoint_unit {
    YOKE_CHECKPOINT_EPOCHS, /**< Epochs. */
    YOKE_CHECKPOINT_STEPS,  /**< Steps. */
    YOKE_CHECKPOINT_SECONDS /**< Seconds, by the clock of rank 0. */
} yoke_checkpoint_unit;

/** What the trainer reports. It, and its text, live until the callback returns. */
typedef struct yoke_event {
    size_t struct_size;            /**< sizeof(yoke_event) of the library. */
    yoke_event_kind kind;          /**< What happened. */
    uint64_t step;                 /**< Updates done. */
    uint64_t steps;                /**< Updates of the whole run; 0: unknown, of a row stream. */
    uint64_t epoch;                /**< Counted from 0. */
    double loss;                   /**< The loss of the batch or of the evaluation; EPOCH: the mean
                                        over its training rows. */
    double accuracy;               /**< Likewise, 0 to 1; -1: none. */
    double learning_rate;          /**< STEP: the rate used. EPOCH: that of its last step. */
    int rows;                      /**< In the batch or the evaluation; EPOCH: trained on. 0: a
                                        resumed run only evaluated. */
    double step_ms;                /**< STEP: with the wait for the loader. */
    double seconds_elapsed;        /**< Since yoke_trainer_run began to train. */
    const char *text;              /**< Path, warning or what was skipped; NULL otherwise. */
    const yoke_weights_skip *skip; /**< SKIPPED; NULL otherwise. */
    double test_loss;              /**< EPOCH: of the evaluation that ended it; NaN: none did. */
    double test_accuracy;          /**< EPOCH: likewise, 0 to 1; -1: none. */
    double images_per_second;      /**< EPOCH: rows per second of its steps; 0: unknown. */
    const yoke_metric_value *metrics; /**< EVALUATION: [metric_count] of custom_metrics. */
    int metric_count;                 /**< 0 in other events. */
    int rank;          /**< This process's number now; 0 without ranks. Rank 0 writes the files. */
    double loss_scale; /**< STEP: the next step's, with a dynamic one; otherwise 0. On GPUs what the
                            step before has come to. */
    uint64_t skipped_steps; /**< STEP: so far, likewise. */
} yoke_event;

/** How to train. yoke_trainer_create copies it with all texts, and what `engine` and `optimizer`
 * point to; it reads what `process_group` and `engine->groups` point to during the call only.
 * `payload` must outlive the trainer. */
typedef struct yoke_trainer_options {
    size_t struct_size;  /**< sizeof(yoke_trainer_options). */
    const char *model;   /**< A preset; NULL: "resnet20". */
    const char *dataset; /**< SPEC of yoke_dataset_open; NULL: "synthetic", or
                              training_rows. */
    const char *devices; /**< As yoke_devices_options.list; NULL: "auto". In DDP
                              those of a machine: each rank takes its own. */
    int threads;         /**< Compute threads per device; 0: cores / devices. */
    yoke_mode mode;      /**< How to use devices. */
    /** How the engine trains; NULL: YOKE_DATA_PARALLEL_OPTIONS_INIT. The trainer sets batch, seed,
     * process_group and pixels of it, which stay 0 here, as do input_gradients and inference.
     * With `shards` and threads 0 a CPU device gets cores / shards threads, at least 1, whatever
     * the number of devices; without `algorithm_cache` the trainer then takes
     * YOKE_ALGORITHM_DIRECT: measurements could end differently on another number of devices. In
     * DDP all ranks give `algorithm_cache`, or none does; what keeps its file from being written,
     * and what `measure_seconds` leaves unmeasured, is a WARNING. With `ema_decay` evaluations and
     * `save` use the average of the weights; checkpoints have both. */
    const yoke_data_parallel_options *engine;
    int batch;                               /**< Rows of the whole batch, of all ranks; 0: 64. */
    int epochs;                              /**< 0: 1. Ignored when steps > 0. */
    uint64_t steps;                          /**< Updates; 0: epochs decide. */
    const yoke_optimizer_options *optimizer; /**< NULL: YOKE_SGD_OPTIONS_INIT. */
    yoke_lr_schedule_kind lr_schedule;       /**< From the optimizer's learning rate. */
    uint64_t warmup_steps;                   /**< As yoke_lr_schedule. */
    double label_smoothing;                  /**< As yoke_loss_options. */
    uint64_t seed;                           /**< Seeds weights, order, augmentation and dropout. */
    bool no_shuffle;                         /**< Read rows in the dataset's order. */
    yoke_augment augment;                    /**< What to do to images. */
    int evaluate_every;                      /**< Epochs; 0: at the end only; -1: never. */
    const char *init;                        /**< A safetensors file to start from; NULL: none. */
    const char *save;                        /**< A safetensors file to write at the end and when
                                                  stopped; NULL: none. It is open, with its space
                                                  reserved, before the first step. If it cannot be
                                                  written after the last one, yoke_trainer_run tries
                                                  again, then writes elsewhere: its IO error says
                                                  where, and the event SAVED has that path.
                                                  After a loss that is not finite, or losses that
                                                  rose far above the first, a file that exists
                                                  stays: the weights go beside it, and the status
                                                  is NUMERIC (docs/errors.md). */
    const char *metrics;                     /**< A file of JSON lines to write, which
                                                  the first line replaces; NULL: none. */
    const char *trace;                       /**< A FILE for a Chrome trace; NULL: none. In DDP rank
                                                  0 writes that of all ranks; after a failure, rank
                                                  1 writes its own to FILE.rank-1, and so on, which
                                                  the next run with this FILE removes. */
    void (*on_event)(const yoke_event *event, void *payload); /**< May be NULL. */
    void *payload;                                            /**< Passed to on_event. */
    /** DDP: how to meet the other ranks; required. The trainer sets `devices` itself. Rank 0 alone
     * writes files. */
    const yoke_process_group_options *process_group;
    const char *init_allow_missing; /**< As yoke_weights_load_options.allow_missing. */
    const char *init_allow_unknown; /**< As yoke_weights_load_options.allow_unknown. */
    /** A folder of checkpoints, `step-00001234.safetensors`; made if its parent exists. NULL: none.
     * The run also writes one when it ends or is stopped. Without `resume` the folder must hold
     * none of a later step. A thread of its own writes them; where that thread is still busy, the
     * next checkpoint waits for the first step after it. */
    const char *checkpoint_dir;
    double checkpoint_every; /**< How many units lie between two checkpoints; 0: one. Only seconds
                                  may have a fraction. */
    yoke_checkpoint_unit checkpoint_unit; /**< What `checkpoint_every` counts. */
    int keep;                             /**< Newest checkpoints to keep; 0: 3. */
    bool keep_best;     /**< Also keep the one of the best evaluation, as `best.safetensors`; not
                             with evaluate_every -1. */
    const char *resume; /**< A checkpoint to go on from, or "auto": the newest in `checkpoint_dir`
                             that verifies, or from `init` or from scratch where there is none. A
                             file excludes `init`. NULL: from scratch. */
    const char *resume_anyway; /**< Options that may differ from the checkpoint's, as
                                    yoke_state_load's `anyway`. Needs `resume`. */
    int misclassified; /**< After each evaluation yoke_trainer_predictions has the predictions of
                            each class, and yoke_trainer_misclassified this many wrong rows, those
                          of the largest loss. 0: neither. Alike on all ranks. */
    /** Rows of the host program to train on (yoke_dataset_from_arrays, yoke_dataset_from_callback),
     * instead of `dataset`, which is then NULL. Borrowed: they must outlive the trainer. NULL:
     * `dataset` names them. A row stream (yoke_dataset_from_stream) needs no_shuffle; one without
     * `rewind` ends the run where it ends. */
    const yoke_dataset *training_rows;
    const yoke_dataset *test_rows;  /**< Likewise, to evaluate on: of the same shape and classes.
                                         NULL beside training_rows needs evaluate_every -1. */
    yoke_color_jitter color_jitter; /**< As yoke_loader_options, */
    double erasing;                 /**< likewise. */
    size_t limit_rows;      /**< Rows of each split at most, as yoke_dataset_limit; 0: all. */
    bool drop_last;         /**< As yoke_loader_options; of training rows. */
    yoke_sampling sampling; /**< As yoke_loader_options; of training rows. */
    int loader_threads;     /**< As yoke_loader_options.threads. */
    bool skip_bad; /**< Leave out files that cannot be read, as yoke_dataset_skip_bad; each is a
                        WARNING while the trainer is created. Like limit_rows, not with
                        training_rows. */
    bool init_new_head; /**< As yoke_weights_load_options.new_head, of `init`. */
    double lr_gamma;    /**< As yoke_lr_schedule.gamma, or yoke_lr_plateau.factor; 0: 0.95 with
                             YOKE_LR_EXPONENTIAL and 0.1 with YOKE_LR_PLATEAU. */
    int lr_patience;    /**< As yoke_lr_plateau.patience, in evaluations. */
    int patience;       /**< Stop after so many evaluations in a row without a better test loss; the
                             run then ends as after its last step. It ends with the weights of the
                             best evaluation, which `save` gets, too; checkpoints have both. Needs
                             evaluate_every above 0. 0: never. */
    double min_delta;   /**< How much lower a better test loss is at least. */
    /** The preset's loss; read during yoke_trainer_create. NULL: cross-entropy with label_smoothing
     * for classes, MSE for targets. */
    const yoke_loss_options *loss;
    /** Weigh class c in the cross-entropy by rows / (classes * rows of c), over the training rows,
     * as scikit-learn's "balanced" does. Not for rows of a callback. */
    bool balanced_class_weights;
    /** A finished model of the host program, with a loss of its own, instead of `model` and `loss`,
     * which are then NULL. Its first input takes the dataset's rows. Borrowed: it must outlive the
     * trainer. */
    const yoke_model *custom_model;
    /** A loss of the host program instead of the model's. Copied. The step then takes its phases
     * one after the other, and evaluations report no accuracy. Not with shards, nor in DDP's
     * sharded schedule. */
    const yoke_custom_loss *custom_loss;
    const yoke_metric *custom_metrics; /**< [metric_count] metrics of the host program; copied. */
    int metric_count;                  /**< 0: none. */
    double mixup; /**< As yoke_loader_options. Training accuracy then counts the label with the
                       larger share. */
    /** Rows of different length, of a preset that reads tokens: make so many models, of rows of the
     * same share of the positions more each, and give every batch to the shortest that holds its
     * rows (yoke_loader_shorten). A custom_model brings its own in engine->other_models. 0 or 1:
     * rows have one number of positions. */
    int length_buckets;
    /** Go on when a device fails: with DEVICE, MEMORY or SYSTEM in its own work, or TIMEOUT where
     * it hangs for longer than engine->deadline. Now and then the run keeps its state on the host,
     * for less than a hundredth of its time; an engine of the devices that are left takes it, and
     * the steps since are done again from the same rows, without events. With engine->shards the
     * weights end as if nothing had happened, bit for bit. In DDP: go on when another rank fails,
     * where process_group->roll lets the ranks agree. docs/failures.md. */
    bool survive;
    const yoke_async_options *asynchronous; /**< YOKE_MODE_ASYNC; NULL: defaults. */
    const yoke_local_options *local;        /**< YOKE_MODE_LOCAL; NULL: defaults. */
    yoke_crop_flip crop_flip;               /**< As yoke_loader_options. */
    /** A convolution that reads the rows, by the name of its layer: it begins with filters that
     * whiten patches of the training rows, the eigenvectors of the covariance of up to 5,000 rows'
     * patches, each divided by the root of its eigenvalue, and then their negatives (Page 2018).
     * Its filters are twice as many as a patch has values, or fewer: those of the largest
     * eigenvalues. Let a group freeze them, or they train. With `init` or a checkpoint that
     * brings weights: not. NULL: none. */
    const char *whiten;
    /** Evaluate the mean of the outputs of so many views of each test row: 1 or 0: the row; 2: and
     * mirrored; 6: and both shifted by a pixel up and left, and down and right, which count half
     * (airbench's test-time augmentation). For images of a model whose only loss is cross-entropy
     * of one label a row. */
    int test_views;
} yoke_trainer_options;

#define YOKE_LENGTH_BUCKETS_LIMIT 16 /**< length_buckets, at most. */

/** The defaults: resnet20 on synthetic images, on every usable GPU or the CPU. */
#define YOKE_TRAINER_OPTIONS_INIT                                                                  \
    {                                                                                              \
        sizeof(yoke_trainer_options), NULL, NULL, NULL, 0, YOKE_MODE_DATA_PARALLEL, NULL, 0, 0, 0, \
            NULL, YOKE_LR_CONSTANT, 0, 0, 0, false, YOKE_AUGMENT_NONE, 0, NULL, NULL, NULL, NULL,  \
            NULL, NULL, NULL, NULL, NULL, NULL, 0, YOKE_CHECKPOINT_EPOCHS, 0, false, NULL, NULL,   \
            0, NULL, NULL, {0, 0, 0, 0}, 0, 0, false, YOKE_SAMPLING_EACH, 0, false, false, 0,      \
            10 /* lr_patience */, 0, 0, NULL, false, NULL, NULL, NULL, 0, 0, 0, false, NULL, NULL, \
            {0, false, false}, NULL, 0                                                             \
    }

/** Opens dataset, devices and engine, without training. In DDP it meets the other ranks.
 *
 * @param[out] trainer  The trainer; destroy it with yoke_trainer_destroy. NULL on failure.
 * @param options       NULL: YOKE_TRAINER_OPTIONS_INIT.
 * @return ARGUMENT: the text names the offending option. PEER: the ranks train different things.
 *         Otherwise the errors of yoke_dataset_open, yoke_devices_open, yoke_process_group_create
 *         and yoke_data_parallel_create.
 */
YOKE_API yoke_status yoke_trainer_create(yoke_trainer **trainer,
                                         const yoke_trainer_options *options);

/** Destroys a trainer with all it opened.
 *
 * @param trainer  May be NULL. In a forked child of the process that made it, nothing happens.
 */
YOKE_API void yoke_trainer_destroy(yoke_trainer *trainer);

/** Trains to the end, evaluates and saves. A checkpoint that cannot be written is a WARNING, and
 * training goes on; only the last one's failure is the run's. In DDP all ranks call it together.
 *
 * While it runs, the trainer and its engine are the calling thread's: callbacks on that thread may
 * read them, and every other thread gets ARGUMENT, except from yoke_trainer_progress,
 * yoke_trainer_stop and yoke_trainer_resize. No question of another thread ends a run. A run that
 * fails also saves what the options say: the weights after the last whole step.
 *
 * @param trainer  The trainer.
 * @return ARGUMENT: another thread uses the trainer, or a callback of its run calls this.
 *         CANCELLED: a rank called yoke_trainer_stop; the step was finished and the file saved, and
 *         another run continues from there. NUMERIC: as yoke_data_parallel_step; the file has the
 *         weights before that step. PEER, TIMEOUT: another rank has ended; the text says of which
 *         whole step the file has the weights. Otherwise the earliest error.
 */
YOKE_API yoke_status yoke_trainer_run(yoke_trainer *trainer);

/** Asks a running trainer to stop after its step. A signal handler or another thread may call it.
 *
 * @param trainer  The trainer. NULL: nothing happens.
 */
YOKE_API void yoke_trainer_stop(yoke_trainer *trainer);

/** Asks a trainer to go on with other devices from the next step of yoke_trainer_run. Another
 * thread or a callback may call it. The engine of the other devices takes weights, running
 * statistics and the optimizer's state: with `shards` the run ends with the same bits, on any
 * devices. After the change the event RESIZED comes; where an engine of these devices cannot be
 * made, a WARNING, and the run goes on with those that it had. yoke_trainer_engine is a new one in
 * both cases.
 *
 * @param trainer  The trainer, of mode DATA_PARALLEL. It must not be destroyed meanwhile.
 * @param devices  As options.devices. Another call before the next step replaces it.
 * @return ARGUMENT: as yoke_devices_open; another mode; options.engine->shares, which belong to
 *         the devices that the run had; a row stream of one pass, which cannot begin again. DEVICE:
 * as yoke_devices_open.
 */
YOKE_API yoke_status yoke_trainer_resize(yoke_trainer *trainer, const char *devices);

/** How far a trainer is. */
typedef struct yoke_progress {
    size_t struct_size;   /**< sizeof(yoke_progress). */
    bool running;         /**< In yoke_trainer_run or yoke_trainer_find_lr. */
    uint64_t step;        /**< Updates done. */
    uint64_t steps;       /**< When the run ends; 0: unknown. */
    uint64_t epoch;       /**< Counted from 0. */
    double seconds;       /**< From the start of the latest run to the latest step, evaluation or
                               end. */
    double loss;          /**< In the latest step; NaN: none. */
    double test_loss;     /**< In the latest evaluation; NaN: none. */
    double test_accuracy; /**< Likewise, 0 to 1; -1: none. */
} yoke_progress;

/** All zero but the size. */
#define YOKE_PROGRESS_INIT                                                                         \
    { sizeof(yoke_progress), false, 0, 0, 0, 0, 0, 0, 0 }

/** Tells how far a trainer is: after the latest step or evaluation. Any thread and any signal
 * handler may call it at any time from yoke_trainer_create to yoke_trainer_destroy; it neither
 * waits for the run nor delays it.
 *
 * @param trainer        The trainer.
 * @param[out] progress  Set struct_size first.
 * @return ARGUMENT: a pointer or struct_size is wrong.
 */
YOKE_API yoke_status yoke_trainer_progress(const yoke_trainer *trainer, yoke_progress *progress);

/** How stale the pushes of an asynchronous run were.
 *
 * @param trainer      The trainer.
 * @param[out] counts  [YOKE_STALENESS_LIMIT]: pushes of staleness 0, 1, ...; the last one also of
 * all above. Zeros in other modes.
 * @return ARGUMENT: a pointer is NULL.
 */
YOKE_API yoke_status yoke_trainer_staleness(const yoke_trainer *trainer, uint64_t *counts);

/** One pass over the test split: every row once. In DDP all ranks call it together.
 *
 * @param trainer      The trainer.
 * @param[out] result  Of all rows. Set struct_size first.
 * @return As yoke_data_parallel_evaluate. ARGUMENT: another thread uses the trainer.
 */
YOKE_API yoke_status yoke_trainer_evaluate(yoke_trainer *trainer, yoke_step_result *result);

/** What a run was and did. Texts live as long as the trainer. */
typedef struct yoke_trainer_summary {
    size_t struct_size;       /**< sizeof(yoke_trainer_summary). */
    const char *mode;         /**< "dp", "single" or "ddp". */
    const char *schedule;     /**< "overlap", "classic", "sharded" or "python". */
    const char *model;        /**< The preset. */
    const char *dataset;      /**< The SPEC; of training_rows yoke_dataset_info.name. */
    const char *precision;    /**< "float32", "bfloat16", "tf32" or "float16". */
    int devices;              /**< In all ranks together. */
    size_t parameters;        /**< Scalars of all parameters, frozen ones too. */
    int batch;                /**< Rows of the whole batch. */
    uint64_t steps;           /**< Updates done. */
    double images_per_second; /**< batch / median step time. */
    double step_ms_median;    /**< Median step time, with the wait for the loader. */
    double step_ms_p90;       /**< Its 90th percentile. */
    double load_wait_share;   /**< Share of the run's time in which devices waited for data. */
    double loss;              /**< In the last evaluation, or without one in the last step. */
    double accuracy;          /**< 0 to 1; -1: not evaluated. */
    size_t peak_bytes;        /**< Memory of the largest device of this process. */
    uint64_t weights_hash;    /**< yoke_data_parallel_hash. */
    int rank;                 /**< DDP: this rank; 0 otherwise. */
    int world;                /**< DDP: the number of ranks; 1 otherwise. */
    const char *transport;    /**< DDP: its name; NULL otherwise. */
    const char *link;         /**< The modelled links, as in the options; NULL: none. */
    double train_loss;        /**< Mean over the rows trained on in the last epoch; NaN: none. */
    double train_accuracy;    /**< Likewise, 0 to 1; -1: none. */
    double test_loss;         /**< In the last evaluation; NaN: none. */
    double test_accuracy;     /**< Likewise, 0 to 1; -1: none. */
    int lost;                 /**< Devices that failed, and that the run went on without. */
    double lost_seconds;      /**< From each failure until the steps before it were done again. */
    double kept_seconds;      /**< Spent on keeping states, for `survive` or an audit. */
    double loss_scale;        /**< A dynamic one, at the end; otherwise 0. */
    uint64_t skipped_steps;   /**< Steps that it has left out. */
} yoke_trainer_summary;

/** All zero but the size. */
#define YOKE_TRAINER_SUMMARY_INIT                                                                  \
    {                                                                                              \
        sizeof(yoke_trainer_summary), NULL, NULL, NULL, NULL, NULL, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,  \
            0, 0, 0, 0, NULL, NULL, 0, 0, 0, 0, 0, 0, 0, 0, 0                                      \
    }

/** Summarizes a run, for its last line.
 *
 * @param trainer       The trainer; not running in another thread.
 * @param[out] summary  Set struct_size first.
 * @return ARGUMENT: a pointer or struct_size is wrong, or another thread uses the trainer.
 */
YOKE_API yoke_status yoke_trainer_summarize(yoke_trainer *trainer, yoke_trainer_summary *summary);

/** What the model took the rows of the test split for, in the last evaluation that came to its end.
 * Arrays live until the next evaluation. */
typedef struct yoke_predictions {
    size_t struct_size;    /**< sizeof(yoke_predictions). */
    uint64_t step;         /**< Updates done before that evaluation. */
    size_t rows;           /**< 0: no evaluation was complete, or the model does not classify. */
    int classes;           /**< In the dataset; 0: the model does not classify. */
    const int64_t *counts; /**< [classes, classes]: rows by true class, then by predicted class,
                              that of the largest output. NULL: rows is 0, or there are more
                              classes than YOKE_COUNTS_CLASSES. */
    int misclassified; /**< What yoke_trainer_misclassified has: options.misclassified, or all wrong
                       rows if they are fewer. */
    yoke_shape shape;  /**< The shape of one row. */
    const char *const *class_names; /**< [classes]; NULL: the dataset has none. */
} yoke_predictions;

/** All zero but the size. */
#define YOKE_PREDICTIONS_INIT                                                                      \
    { sizeof(yoke_predictions), 0, 0, 0, NULL, 0, {0, 0, 0, false, false}, NULL }

/** The predictions of the last complete evaluation; the same on all ranks.
 *
 * @param trainer           The trainer; not running.
 * @param[out] predictions  Set struct_size first.
 * @return ARGUMENT: a pointer or struct_size is wrong, or options.misclassified was 0.
 */
YOKE_API yoke_status yoke_trainer_predictions(const yoke_trainer *trainer,
                                              yoke_predictions *predictions);

/** A row of the test split that the model took for another class. */
typedef struct yoke_misclassified {
    size_t struct_size;    /**< sizeof(yoke_misclassified). */
    size_t row;            /**< In the test split, counted from 0. */
    int label;             /**< Its class. */
    int predicted;         /**< The class of its largest output. */
    double probability;    /**< Softmax of that output. */
    double loss;           /**< Cross entropy of the row, without label smoothing. */
    const uint8_t *pixels; /**< [channels, height, width], as the dataset has them; NULL: it has
                                other values, or the image's file is gone. They live until the
                              trainer runs again or ends. */
} yoke_misclassified;

/** All zero but the size. */
#define YOKE_MISCLASSIFIED_INIT                                                                    \
    { sizeof(yoke_misclassified), 0, 0, 0, 0, 0, NULL }

/** One of those rows.
 *
 * @param trainer             The trainer; not running.
 * @param index               From 0, the largest loss, to yoke_predictions.misclassified - 1.
 * @param[out] misclassified  Set struct_size first.
 * @return ARGUMENT: there is no such row, or a pointer or struct_size is wrong.
 */
YOKE_API yoke_status yoke_trainer_misclassified(const yoke_trainer *trainer, int index,
                                                yoke_misclassified *misclassified);

/** The engine of a trainer.
 *
 * @param trainer  The trainer. NULL: NULL.
 * @return Borrowed from the trainer.
 */
YOKE_API yoke_data_parallel *yoke_trainer_engine(yoke_trainer *trainer);

/** The model of a trainer: the names and shapes of its tensors.
 *
 * @param trainer  The trainer. NULL: NULL.
 * @return Borrowed from the trainer.
 */
YOKE_API const yoke_model *yoke_trainer_model(const yoke_trainer *trainer);

/** The rows of a trainer.
 *
 * @param trainer    The trainer.
 * @param split      The part; YOKE_SPLIT_TEST is open if the run evaluates.
 * @param[out] info  Set struct_size first. Texts live as long as the trainer.
 * @return ARGUMENT: a pointer or struct_size is wrong, or the test split is not open.
 */
YOKE_API yoke_status yoke_trainer_dataset(const yoke_trainer *trainer, yoke_split split,
                                          yoke_dataset_info *info);

#ifdef __cplusplus
}
#endif

#endif
