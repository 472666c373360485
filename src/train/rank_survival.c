/* SPDX-License-Identifier: Apache-2.0 */
#include "train/rank_survival.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "train/last_weights.h"
#include "train/rank_shares.h"
#include "train/record.h"
#include "train/run_engine.h"
#include "train/run_ranks.h"
#include "train/splits.h"
#include "train/trainer_parts.h"

#define TRIES YOKE_PEERS_LIMIT /* each loses a rank at least, or the run ends */

/* Agreeing. */

/* A rank's kept states, the newer one first: 1 + the step, or 0 where there is none; the digest. */
typedef struct kept_facts {
    int64_t steps[2], digests[2];
} kept_facts;
#define FACT_WORDS (sizeof(kept_facts) / sizeof(int64_t))

static kept_facts facts_of(const yoke_survival *survival) {
    kept_facts facts = {0};
    for (int i = 0; i < 2 && survival->newest >= 0; i++) {
        const yoke_kept *kept = &survival->kept[i == 0 ? survival->newest : !survival->newest];
        if (!kept->is_whole) continue;
        facts.steps[i] = 1 + (int64_t)kept->at.step;
        facts.digests[i] = (int64_t)yoke_state_digest(kept->state);
    }
    return facts;
}

static int find_step(const kept_facts *facts, int64_t step) {
    return facts->steps[0] == step ? 0 : facts->steps[1] == step ? 1 : -1;
}

/* The newest state that all ranks have which have any: rank 0 has. */
static yoke_status choose_state(const kept_facts *all, int world, int64_t *step) {
    *step = all[0].steps[0];
    if (*step == 0)
        return FAIL(YOKE_ERROR_PEER, "no rank has a state to go on from: the ranks that trained "
                                     "have ended");
    for (int rank = 1; rank < world; rank++)
        if (all[rank].steps[0] > 0 && all[rank].steps[0] < *step) *step = all[rank].steps[0];
    int first = find_step(&all[0], *step);
    for (int rank = 0; rank < world; rank++) {
        int found = find_step(&all[rank], *step);
        if (all[rank].steps[0] == 0) continue; /* a newcomer */
        if (first < 0 || found < 0)
            return FAIL(YOKE_ERROR_INTERNAL,
                        "rank %d has not kept step %lld, which the ranks would go "
                        "on from",
                        found < 0 ? rank : 0, (long long)*step - 1);
        if (all[rank].digests[found] != all[0].digests[first])
            return FAIL(YOKE_ERROR_DEVICE,
                        "ranks 0 and %d have kept different states of step %lld: "
                        "one of them computes wrong; go on from a checkpoint",
                        rank, (long long)*step - 1);
    }
    return YOKE_OK;
}

static yoke_status agree(yoke_trainer *trainer, int64_t *step) {
    yoke_survival *survival = &trainer->survival;
    yoke_process_group *ranks = trainer->run.ranks;
    kept_facts own = facts_of(survival), all[YOKE_PEERS_LIMIT];
    TRY(yoke_process_group_all_gather(ranks, all, &own, FACT_WORDS, YOKE_ELEMENT_INT64));
    TRY(choose_state(all, yoke_process_group_world(ranks), step));
    if (find_step(&own, *step) == 1) survival->newest = !survival->newest;
    return YOKE_OK;
}

/* Everyone has rank 0's state now. */
static yoke_status compare_states(const yoke_trainer *trainer) {
    const yoke_survival *survival = &trainer->survival;
    yoke_process_group *ranks = trainer->run.ranks;
    int64_t all[YOKE_PEERS_LIMIT];
    int64_t own = (int64_t)yoke_state_digest(survival->kept[survival->newest].state);
    TRY(yoke_process_group_all_gather(ranks, all, &own, 1, YOKE_ELEMENT_INT64));
    for (int rank = 1; rank < yoke_process_group_world(ranks); rank++)
        if (all[rank] != all[0])
            return FAIL(YOKE_ERROR_DEVICE, "rank %d got another state than rank 0 gave", rank);
    return YOKE_OK;
}

/* Sharing. */

/* What the next steps depend on beside the engine's state: rank 0's. */
typedef struct shared_place {
    yoke_position at;
    yoke_lr_schedule schedule;
    yoke_epoch_sums epoch;
    yoke_loss_trend trend;
    yoke_best best, on_disk;
    uint64_t saved_step, saved_epoch, reported, epochs, evaluated;
    int64_t lost;
} shared_place;
#define PLACE_WORDS ((sizeof(shared_place) + sizeof(int64_t) - 1) / sizeof(int64_t))

static void describe_place(const yoke_trainer *trainer, shared_place *place) {
    const yoke_survival *survival = &trainer->survival;
    const yoke_saving *saving = &trainer->saving;
    const yoke_kept *kept = &survival->kept[survival->newest];
    *place = (shared_place){.at = kept->at,
                            .schedule = trainer->run.schedule,
                            .epoch = kept->epoch,
                            .trend = kept->trend,
                            .best = saving->best,
                            .on_disk = saving->on_disk,
                            .saved_step = saving->step,
                            .saved_epoch = saving->epoch,
                            .reported = survival->reported,
                            .epochs = survival->epochs,
                            .evaluated = survival->evaluated,
                            .lost = survival->lost};
}

static void take_place(yoke_trainer *trainer, const shared_place *place) {
    yoke_survival *survival = &trainer->survival;
    yoke_saving *saving = &trainer->saving;
    yoke_run *run = &trainer->run;
    run->at = place->at;
    run->schedule = place->schedule;
    run->in_step = false;
    trainer->sums.epoch = place->epoch;
    trainer->trend = place->trend;
    saving->best = place->best;
    saving->on_disk = place->on_disk;
    saving->step = place->saved_step;
    saving->epoch = place->saved_epoch;
    survival->lost = (int)place->lost;
    if (survival->newest >= 0) return;
    survival->reported = place->reported;
    survival->epochs = place->epochs;
    survival->evaluated = place->evaluated;
    saving->time_ns = yoke_now_ns();
}

static yoke_status share_place(yoke_trainer *trainer) {
    int64_t words[PLACE_WORDS] = {0};
    shared_place place;
    yoke_run *run = &trainer->run;
    if (yoke_run_writes(run)) {
        describe_place(trainer, &place);
        memcpy(words, &place, sizeof place);
    }
    TRY(yoke_process_group_broadcast(run->ranks, words, PLACE_WORDS, YOKE_ELEMENT_INT64, 0));
    memcpy(&place, words, sizeof place);
    take_place(trainer, &place);
    TRY(yoke_watch_share(&trainer->watch, run));
    bool has_best = trainer->watch.has_best && trainer->saving.state != NULL;
    return has_best ? yoke_state_share_best(trainer->saving.state, run->parallel) : YOKE_OK;
}

/* Rank 0's work. */

/* The process that had the folder may still be on its way to its end. */
static yoke_status open_folder(yoke_folder *folder, const char *path) {
    yoke_status status = yoke_folder_open(folder, path);
    for (int tries = 0; status != YOKE_OK && tries < 50; tries++) {
        nanosleep(&(struct timespec){.tv_nsec = 100000000}, NULL);
        status = yoke_folder_open(folder, path);
    }
    return status;
}

static yoke_status take_over_files(yoke_trainer *trainer) {
    yoke_run *run = &trainer->run;
    yoke_saving *saving = &trainer->saving;
    const yoke_trainer_options *options = &run->options;
    /* A state kept at the end of a run is one behind its evaluation. */
    bool evaluates = !yoke_run_is_over(run) && yoke_run_evaluates_first(run);
    const yoke_metrics_place place = {.step = run->at.step, .evaluates = evaluates};
    TRY(yoke_metrics_open(&trainer->metrics, options->metrics));
    TRY(yoke_metrics_go_on(&trainer->metrics, &place));
    /* The lines behind the step are written again. */
    trainer->survival.reported = run->at.step;
    trainer->survival.evaluated = run->at.step + !evaluates;
    if (options->checkpoint_dir == NULL) return YOKE_OK;
    TRY(open_folder(&saving->folder, options->checkpoint_dir));
    return yoke_checkpoint_writer_create(&saving->writer, saving->state, &saving->folder,
                                         options->keep);
}

/* A rank 0 that cannot write goes on: the run itself is worth more. */
static void take_over(yoke_trainer *trainer) {
    yoke_survival *survival = &trainer->survival;
    bool begins = yoke_run_writes(&trainer->run) && !survival->writes;
    survival->writes |= begins;
    if (begins && take_over_files(trainer) != YOKE_OK) yoke_run_warn(&trainer->run);
}

/* Meeting. */

static yoke_status share_state(yoke_trainer *trainer, int64_t *step) {
    yoke_survival *survival = &trainer->survival;
    yoke_run *run = &trainer->run;
    TRY(agree(trainer, step));
    TRY(share_place(trainer));
    int kept = survival->newest >= 0 ? survival->newest : 0;
    TRY(yoke_state_give(run->parallel, survival->kept[kept].state));
    TRY(yoke_survival_keep(trainer));
    TRY(compare_states(trainer));
    take_over(trainer);
    return YOKE_OK;
}

static yoke_status meet(yoke_trainer *trainer, bool hangs, int64_t *step) {
    yoke_run *run = &trainer->run;
    if (run->parallel != NULL) TRY(yoke_survival_let_go(&trainer->survival, run->parallel));
    yoke_run_drop_engine(run);
    yoke_rank_shares_forget(run);
    yoke_rows_unload(&run->training);
    yoke_rows_unload(&trainer->test.rows);
    TRY(yoke_run_rejoin(run, hangs));
    TRY(yoke_rows_reload(&run->training, run));
    TRY(yoke_rows_reload(&trainer->test.rows, run));
    TRY(yoke_run_check_ranks(run, trainer->test.rows.info.rows));
    TRY(yoke_run_rebuild_engine(run));
    TRY(share_state(trainer, step));
    return yoke_last_weights_prepare(&trainer->last_weights, run);
}

/* The ranks of a group, by their processes. */
typedef struct members {
    int count, pids[YOKE_PEERS_LIMIT];
} members;

static members members_of(const yoke_process_group *ranks) {
    members list = {.count = yoke_process_group_world(ranks)};
    for (int rank = 0; rank < list.count; rank++)
        list.pids[rank] = yoke_process_group_pid(ranks, rank);
    return list;
}

/* "rank 1 (pid 1234), rank 2 (pid 1235)": those of `list` that are not in `other`. */
static int list_missing(const members *list, const members *other, char *text, size_t size) {
    int missing = 0;
    size_t length = 0;
    text[0] = '\0';
    for (int rank = 0; rank < list->count; rank++) {
        bool found = false;
        for (int i = 0; i < other->count; i++)
            found |= other->pids[i] == list->pids[rank];
        if (found) continue;
        if (length < size)
            length += (size_t)snprintf(text + length, size - length, "%srank %d (pid %d)",
                                       missing == 0 ? "" : ", ", rank, list->pids[rank]);
        missing++;
    }
    return missing;
}

static void report(yoke_trainer *trainer, yoke_event_kind kind, const char *text) {
    yoke_event event = {.kind = kind, .accuracy = -1, .text = text};
    yoke_trainer_record(trainer, &event);
}

/* Says who is lost and who has come. OK, or the status of a failure that lost nobody and comes
 * again. */
static yoke_status report_change(yoke_trainer *trainer, const members *before, yoke_error *cause,
                                 int64_t step) {
    yoke_survival *survival = &trainer->survival;
    const members now = members_of(trainer->run.ranks);
    char names[400], text[1400];
    int lost = list_missing(before, &now, names, sizeof names);
    survival->lost += lost;
    if (lost > 0) {
        snprintf(text, sizeof text,
                 "lost %s after step %llu: %.700s. %d of %d ranks go on from step %lld", names,
                 (unsigned long long)survival->reported, cause->text, now.count, before->count,
                 (long long)step - 1);
        report(trainer, YOKE_EVENT_LOST, text);
    }
    int come = list_missing(&now, before, names, sizeof names);
    if (come > 0) {
        snprintf(text, sizeof text, "%s joined after step %lld: %d ranks go on", names,
                 (long long)step - 1, now.count);
        report(trainer, YOKE_EVENT_JOINED, text);
    }
    bool again = lost + come == 0 && survival->met_step == step;
    survival->met_step = step;
    return again ? yoke_error_restore(cause) : YOKE_OK;
}

static yoke_status check_least(const yoke_run *run) {
    int world = yoke_process_group_world(run->ranks), least = yoke_process_group_least(run->ranks);
    if (world >= least) return YOKE_OK;
    return FAIL(YOKE_ERROR_PEER, "%d rank%s left, fewer than min_ranks, %d", world,
                world == 1 ? " is" : "s are", least);
}

/* Another rank failed, and this one did not. */
static bool goes_on(const yoke_run *run, yoke_status status) {
    return !yoke_status_is_common(status) && run->ranks != NULL &&
           yoke_process_group_goes_on(run->ranks) && yoke_process_group_is_whole(run->ranks);
}

yoke_status yoke_ranks_survive(yoke_trainer *trainer, yoke_status status) {
    yoke_run *run = &trainer->run;
    yoke_survival *survival = &trainer->survival;
    int64_t step = 0;
    if (!goes_on(run, status)) return status;
    const members before = members_of(run->ranks);
    yoke_error cause = yoke_error_take(status);
    if (survival->failed_ns == 0 && !survival->admits) survival->failed_ns = yoke_now_ns();
    survival->admits = false;
    for (int tries = 0; tries < TRIES && goes_on(run, status); tries++) {
        status = meet(trainer, status == YOKE_ERROR_TIMEOUT, &step);
        status = yoke_process_group_abort(run->ranks, status); /* another group by now */
    }
    TRY(status);
    TRY(report_change(trainer, &before, &cause, step));
    return check_least(run);
}

yoke_status yoke_ranks_admit(yoke_trainer *trainer) {
    trainer->survival.admits = true;
    return FAIL(YOKE_ERROR_PEER, "another rank joins");
}

yoke_status yoke_ranks_come(yoke_trainer *trainer) {
    if (!yoke_process_group_is_newcomer(trainer->run.ranks)) return YOKE_OK;
    return share_state(trainer, &trainer->survival.met_step);
}
