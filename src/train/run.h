/* SPDX-License-Identifier: Apache-2.0 */
/* The inside of a trainer, for the files of this room only. */
#ifndef TRAIN_RUN_H
#define TRAIN_RUN_H

#include <pthread.h>
#include <stdatomic.h>

#include "distributed/distributed.h"
#include "parallel/parallel.h"
#include "train/checkpoint_writer.h"
#include "train/description.h"
#include "train/digest.h"
#include "train/lr_curve.h"
#include "train/own_metrics.h"
#include "train/predictions.h"
#include "train/train.h"
#include "train/weights_writer.h"

/* Sums over the steps that this run took in the latest epoch. */
typedef struct yoke_epoch_sums {
    bool is_over;                  /* the next step begins another */
    double loss, weight;           /* loss: times weight */
    int64_t rows, labels, correct; /* correct: -1 for regression */
    uint64_t ns;
    double learning_rate; /* of the last step */
} yoke_epoch_sums;

/* The best evaluation: accuracy, or minus the loss where there is no accuracy. */
typedef struct yoke_best {
    bool exists;
    double value;
} yoke_best;

/* What evaluations lead to, watch.c; the same on all ranks. */
typedef struct yoke_watch {
    yoke_lr_plateau plateau;
    bool has_best; /* the state has the best weights */
    double best_loss, best_rows, best_labels, best_correct;
    uint64_t best_epoch; /* from 0 */
    int bad;             /* evaluations since the best one */
    uint64_t step;       /* of the last evaluation that counted */
} yoke_watch;

/* The checkpoints of a run: saving.c writes them, resume.c reads them. */
typedef struct yoke_checkpoints {
    yoke_state *state;              /* NULL: the run neither writes nor reads any */
    yoke_folder folder;             /* of rank 0, as is all of the best */
    yoke_checkpoint_writer *writer; /* of rank 0 */
    uint64_t step, epoch, time_ns;  /* of the last one, or of the start */
    bool resumed;
    yoke_best best, on_disk; /* on_disk: the last that was written whole */
} yoke_checkpoints;

/* The first and the last losses of a run's steps, save_place.c. */
#define YOKE_COURSE_STEPS 16
typedef struct yoke_course {
    uint64_t steps;
    double first, last[YOKE_COURSE_STEPS]; /* last: a ring */
} yoke_course;

/* Who uses a trainer, turns.c. */
typedef struct yoke_turns {
    pthread_mutex_t turn;    /* held by the thread that works, or asks */
    _Atomic pthread_t owner; /* the thread that works; 0: none */
    atomic_bool is_working;  /* a thread works, or waits for its turn to */
} yoke_turns;

/* What yoke_trainer_progress reads, trainer_progress.c. */
enum {
    YOKE_PUBLISHED_RUNNING,
    YOKE_PUBLISHED_STEP,
    YOKE_PUBLISHED_STEPS,
    YOKE_PUBLISHED_EPOCH,
    YOKE_PUBLISHED_SECONDS,
    YOKE_PUBLISHED_LOSS,
    YOKE_PUBLISHED_TEST_LOSS,
    YOKE_PUBLISHED_TEST_ACCURACY,
    YOKE_PUBLISHED_WORDS
};
typedef struct yoke_published {
    _Atomic uint32_t newest; /* modulo 2, the copy to read */
    _Atomic uint64_t copies[2][YOKE_PUBLISHED_WORDS];
} yoke_published;

struct yoke_trainer {
    pid_t process;                /* that made it */
    yoke_trainer_options options; /* defaults filled in; points to what follows */
    yoke_data_parallel_options engine;
    char *texts[14];
    yoke_optimizer_options optimizer;
    yoke_devices *devices;
    yoke_process_group *ranks; /* DDP; NULL otherwise */
    int node;                  /* DDP: the number of this machine */
    yoke_dataset *opened[2];   /* by SPEC, training and test; NULL: the host's */
    const yoke_dataset *training_rows, *test_rows; /* test_rows NULL: not opened yet */
    yoke_dataset_info dataset, test_dataset;
    char labels[YOKE_DIGEST_TEXT]; /* of the training rows */
    yoke_notes description;        /* of the weights, for every file that has them */
    yoke_model *preset;            /* NULL: the model is the host's */
    const yoke_model *model;
    yoke_own_loss own_loss; /* compute NULL: the model's */
    yoke_own_metrics own_metrics;
    yoke_output_rows host_rows; /* what the host's loss and metrics and the tally read */
    yoke_data_parallel *parallel;
    yoke_loader *loader, *test_loader;
    yoke_metrics metrics;
    bool metrics_failed; /* warned once */
    yoke_lr_schedule schedule;

    atomic_bool stopping;
    bool running;                  /* a run, or a range test, takes steps */
    bool in_step;                  /* a step failed in its update: the weights are undefined */
    uint64_t step, epoch, batches; /* batches: done in this epoch */
    uint64_t steps, epochs;        /* either ends the run; UINT64_MAX: the other does */
    yoke_checkpoints checkpoints;
    uint64_t begin_ns, computed_ns, waited_ns; /* of run; sums over its steps */
    yoke_step_times times;
    yoke_epoch_sums sums;
    yoke_watch watch;
    yoke_course course;
    yoke_weights_writer *weights;                /* of rank 0, from the begin of a run that saves */
    yoke_workers *file_workers;                  /* of rank 0 in DDP, from the first file on */
    yoke_step_result last_step, last_evaluation; /* rows = 0: none yet */
    yoke_tally tally;                            /* of the evaluation that goes on */
    yoke_tally predictions;                      /* of the last complete one */
    uint8_t *mistake_pixels; /* [mistakes] rows, where the dataset decodes files */
    yoke_lr_curve lr_curve;  /* of the last range test */
    yoke_turns turns;
    yoke_published published;
};

/* host_parts.c: the model, loss and metrics of the host program, or what takes their place. check:
 * what contradicts what, before anything is opened. open_model: the host's, or the preset.
 * open_host_rows: host memory for outputs, once the model is known. */
yoke_status yoke_trainer_check_host_parts(yoke_trainer *trainer);
yoke_status yoke_trainer_open_model(yoke_trainer *trainer);
yoke_status yoke_trainer_open_host_rows(yoke_trainer *trainer);
void yoke_trainer_close_host_parts(yoke_trainer *trainer);

/* trainer_options.c: compares what the ranks train on. */
yoke_status yoke_trainer_check_ranks(const yoke_trainer *trainer);

/* trainer_ranks.c. join: opens this rank's device and joins the other ranks. set_shard: the loader
 * loads this rank's rows. writes: whether this process writes the files. poll: what was requested
 * on any rank. Without ranks the last four are trivial. any: whether the value is true on any rank;
 * all ranks together. */
yoke_status yoke_trainer_join(yoke_trainer *trainer);
void yoke_trainer_set_shard(const yoke_trainer *trainer, yoke_loader_options *loader);
bool yoke_trainer_writes(const yoke_trainer *trainer);
typedef struct yoke_requests {
    bool stop, save;
} yoke_requests;
yoke_status yoke_trainer_poll(yoke_trainer *trainer, yoke_requests *asked);
yoke_status yoke_trainer_any(yoke_trainer *trainer, bool *value);

/* turns.c. Around a call that trains or evaluates: work owns trainer and engine, waits for the
 * question of another thread, and refuses later ones; ARGUMENT: another thread works, or this one
 * does already. Around a call that reads: ARGUMENT while another thread uses the trainer. is_mine:
 * whether this thread works, and a callback of the host program makes the call. */
bool yoke_trainer_is_mine(const yoke_trainer *trainer);
void yoke_trainer_begin_turns(yoke_trainer *trainer);
void yoke_trainer_end_turns(yoke_trainer *trainer);
yoke_status yoke_trainer_begin_work(yoke_trainer *trainer, const char *call);
void yoke_trainer_end_work(yoke_trainer *trainer);
yoke_status yoke_trainer_begin_question(yoke_trainer *trainer, const char *call);
void yoke_trainer_end_question(yoke_trainer *trainer);
/* Of a call that reads what only work changes: ARGUMENT while another thread works. */
yoke_status yoke_trainer_check_idle(const yoke_trainer *trainer, const char *call);

/* trainer_progress.c: what yoke_trainer_progress answers from now on. */
void yoke_trainer_publish(yoke_trainer *trainer);

/* trainer.c. ARGUMENT: the trainer is NULL, or this process is a fork of the trainer's. */
yoke_status yoke_trainer_check(const yoke_trainer *trainer);

/* run.c. begin: makes plans, prepares the save of a run that saves, and reports that the run is
 * ready. next_batch: rows and whole_rows are 0 at the end of the epoch. check_epoch: at that end,
 * DATA where there was no batch. update: one step of the engine. is_common: whether all ranks get
 * this result after the same step. emit: calls the host program's on_event, outside the engine;
 * fills in the fields that all events share. warn: reports the last error as a warning.
 */
yoke_status yoke_trainer_begin(yoke_trainer *trainer, bool saves);
yoke_status yoke_trainer_next_batch(yoke_trainer *trainer, yoke_batch *batch, uint64_t *waited_ns);
yoke_status yoke_trainer_check_epoch(const yoke_trainer *trainer);
yoke_status yoke_trainer_update(yoke_trainer *trainer, const yoke_batch *batch, double rate,
                                yoke_step_result *result);
bool yoke_trainer_is_common(yoke_status status);
void yoke_trainer_emit(yoke_trainer *trainer, yoke_event *event);
void yoke_trainer_warn(yoke_trainer *trainer);
void yoke_trainer_emit_saved(yoke_trainer *trainer, const char *path);

/* last_weights.c; both without options.save: nothing to do. prepare_save: by all ranks together, so
 * that the save needs nothing new; a failure ends the other ranks. save: the best weights so far,
 * or the present ones, to `path`; elsewhere where it must, with an IO error that says where.
 * together: the other ranks wait; otherwise they have failed, or rank 0 has. */
yoke_status yoke_trainer_prepare_save(yoke_trainer *trainer);
yoke_status yoke_trainer_save(yoke_trainer *trainer, const char *path, bool together);

/* save_place.c. add: the loss of a step. place: options.save, or `beside` it, where a file of an
 * earlier run stays because this one diverged or `ended` with NUMERIC. report: says so in the error
 * that ended the run, or returns one. */
void yoke_course_add(yoke_course *course, double loss);
const char *yoke_trainer_save_place(const yoke_trainer *trainer, yoke_status ended,
                                    char beside[PATH_MAX]);
yoke_status yoke_trainer_report_place(const yoke_trainer *trainer, const char *place,
                                      yoke_error *ended);

/* epochs.c. add: a step of this epoch. report: the event EPOCH; evaluated: an evaluation ended it.
 * sum: means as a result, whose loss is NaN without rows. */
void yoke_epoch_add(yoke_epoch_sums *sums, const yoke_step_result *step, double rate, uint64_t ns);
void yoke_trainer_report_epoch(yoke_trainer *trainer, bool evaluated);
double yoke_epoch_loss(const yoke_epoch_sums *sums);
double yoke_epoch_accuracy(const yoke_epoch_sums *sums);

/* unknown_length.c: runs on a row stream, whose info says 0 rows; on other rows plan and agree have
 * nothing to do. plan: how many epochs end the run, where the number of steps is not known;
 * ARGUMENT: an option needs that number, or more passes than there are. is_over: whether all steps,
 * or epochs, are done. of_steps: " of 120", or "" where the number is unknown. agree: all ranks,
 * after each batch of these rows; PEER: their streams differ. */
yoke_status yoke_trainer_plan_stream(yoke_trainer *trainer);
bool yoke_trainer_is_over(const yoke_trainer *trainer);
const char *yoke_trainer_of_steps(const yoke_trainer *trainer, char text[32]);
yoke_status yoke_trainer_agree(yoke_trainer *trainer, const yoke_dataset_info *rows,
                               const yoke_loader *loader, const yoke_batch *batch);

/* watch.c. check: options. begin: fills the schedule. evaluation: after each one. is_over: whether
 * patience ends the run. end: gives the engine the best weights, if any were kept. describe, read,
 * share: in checkpoints, and from rank 0 to the others. */
yoke_status yoke_watch_check(const yoke_trainer_options *options);
void yoke_watch_begin(yoke_trainer *trainer);
yoke_status yoke_watch_evaluation(yoke_trainer *trainer);
bool yoke_watch_is_over(const yoke_trainer *trainer);
yoke_status yoke_watch_end(yoke_trainer *trainer);
void yoke_watch_describe(const yoke_trainer *trainer, yoke_facts *facts);
yoke_status yoke_watch_read(yoke_trainer *trainer, const yoke_checkpoint *checkpoint);
yoke_status yoke_watch_share(yoke_trainer *trainer);

/* file_work.c. Rank 0 does the work, on a thread of its own; the other ranks wait for its end, and
 * all ranks call it. The work uses neither the engine nor the process group and emits no event.
 * Rank 0, or a run without ranks, gets the work's status. */
typedef yoke_status yoke_file_work(void *context);
yoke_status yoke_trainer_file_work(yoke_trainer *trainer, yoke_file_work *work, void *context);

/* resume.c. threads: of rank 0's first device; 0: a GPU. resume: opens the folder, and goes on from
 * a checkpoint where the options say so; all ranks together. */
yoke_status yoke_trainer_threads(const yoke_trainer *trainer, uint64_t *threads);
yoke_status yoke_trainer_resume(yoke_trainer *trainer);

/* saving.c; all of these without a folder: nothing to do. is_due: on rank 0, whether a checkpoint
 * is due and can begin. await: waits for the file in progress. begin: copies the state, by all
 * ranks together, and lets it be written. best: the same after an evaluation that is the best so
 * far. collect: reports what was written. end: writes the last one, if wanted, and waits for what
 * is being written. */
bool yoke_trainer_save_is_due(const yoke_trainer *trainer);
yoke_status yoke_trainer_begin_save(yoke_trainer *trainer);
yoke_status yoke_trainer_await_saves(yoke_trainer *trainer);
yoke_status yoke_trainer_save_best(yoke_trainer *trainer);
void yoke_trainer_collect_saves(yoke_trainer *trainer);
yoke_status yoke_trainer_end_saves(yoke_trainer *trainer, bool with_last);

/* Whether a run that goes on from a checkpoint begins with an evaluation: of a run that is
 * complete, or of an epoch that the checkpoint ends. */
bool yoke_trainer_evaluates_first(const yoke_trainer *trainer);

/* trainer_predictions.c. open: allocates the tallies, if the options want them and the rows have
 * classes. end: adds up the ranks' tallies, which become the trainer's predictions. */
yoke_status yoke_trainer_open_tallies(yoke_trainer *trainer);
yoke_status yoke_trainer_end_tally(yoke_trainer *trainer);

/* trace_file.c. together: all ranks call it, and rank 0 writes one file; otherwise each rank writes
 * its own. forget: removes what ranks of an earlier run wrote on their own. */
void yoke_trainer_forget_traces(const yoke_trainer *trainer);
yoke_status yoke_trainer_write_trace(yoke_trainer *trainer, bool together);

/* splits.c. open_split: opens a split of the dataset that the options name, with the rows that they
 * want. labels_text: a digest of the training rows' labels or targets, "none" of a callback's. */
yoke_status yoke_trainer_open_split(yoke_trainer *trainer, yoke_split split);
yoke_status yoke_trainer_labels_text(const yoke_dataset *rows, char text[YOKE_DIGEST_TEXT]);
/* Opens the test split and its loader unless they are open. */
yoke_status yoke_trainer_open_test(yoke_trainer *trainer);
/* A stop ends the decoders of this loader, but in DDP. */
void yoke_trainer_stop_loader(const yoke_trainer *trainer, yoke_loader *loader);
/* The share of rows classified correctly; -1 for regression. */
double yoke_trainer_accuracy(const yoke_step_result *result);

#endif
