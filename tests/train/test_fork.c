/* SPDX-License-Identifier: Apache-2.0 */
/* A process that forks in the middle of a run: the child gets ARGUMENT from every object that it
 * inherits, destroys them without a wait, and leaves the parent's run and files alone. */
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include "rank_runs.h"
#include "saves_check.h"
#include "train/trainer_parts.h"

enum { FORK_STEP = 3, CHILD_SECONDS = 900 };

static char metrics[128];

static bool refused(yoke_status status) {
    return status == YOKE_ERROR_ARGUMENT && strstr(yoke_last_error(), "forked child") != NULL;
}

/* The first call that the child is not refused; 0: none. The parent is inside the engine. */
static int use_trainer(yoke_trainer *trainer, yoke_process_group *group) {
    yoke_step_result result = {.struct_size = sizeof result};
    yoke_lr_find_result found = {.struct_size = sizeof found};
    yoke_data_parallel *engine = yoke_trainer_engine(trainer);
    uint64_t hash;
    if (!refused(yoke_trainer_run(trainer))) return 1;
    if (!refused(yoke_trainer_evaluate(trainer, &result))) return 2;
    if (!refused(yoke_trainer_find_lr(trainer, NULL, &found))) return 3;
    if (!refused(yoke_data_parallel_hash(engine, &hash))) return 4;
    if (!refused(yoke_data_parallel_broadcast(engine))) return 5;
    if (!refused(yoke_state_save(engine, metrics))) return 6;
    if (!refused(yoke_weights_save(engine, yoke_trainer_model(trainer), metrics))) return 7;
    if (group != NULL && !refused(yoke_process_group_barrier(group))) return 8;
    yoke_process_group_destroy(group);
    yoke_trainer_destroy(trainer);
    return 0;
}

/* Ends the child, and answers for the parent that it ended well. */
static void fork_child(yoke_trainer *trainer, yoke_process_group *group) {
    pid_t pid = fork();
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        alarm(CHILD_SECONDS); /* a call that hangs */
        _exit(use_trainer(trainer, group));
    }
    int status = 0;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
        fail_msg("the child ended with %x", (unsigned)status);
}

static void on_event_with_a_fork(const yoke_event *event, void *payload) {
    log_of_run *run = payload;
    on_event(event, payload);
    if (event->kind == YOKE_EVENT_STEP && event->step == FORK_STEP) fork_child(run->trainer, NULL);
}

static int count_lines(const char *path) {
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    int lines = 0;
    for (int c; (c = fgetc(file)) != EOF;)
        lines += c == '\n';
    fclose(file);
    return lines;
}

/* With a thread that writes checkpoints, metrics and the loader's threads. */
static void a_fork_inside_a_run_leaves_it_alone(void **state) {
    (void)state;
    int lines[2];
    uint64_t hashes[2];
    in_folder("metrics", metrics);
    for (int forks = 0; forks < 2; forks++) {
        log_of_run run = {0};
        clear_saves();
        yoke_trainer_options options = small(&run);
        options.steps = RUN_STEPS;
        options.checkpoint_dir = saves;
        options.checkpoint_unit = YOKE_CHECKPOINT_STEPS;
        options.metrics = metrics;
        if (forks) options.on_event = on_event_with_a_fork;
        assert_int_equal(train(&run, &options), YOKE_OK);
        assert_int_equal(run.warnings, 0);
        assert_true(has_save(RUN_STEPS));
        hashes[forks] = hash_of(run.trainer);
        yoke_trainer_destroy(run.trainer);
        lines[forks] = count_lines(metrics);
        unlink(metrics);
    }
    assert_int_equal(lines[0], lines[1]);
    assert_true(hashes[0] == hashes[1]);
    clear_saves();
}

static void on_event_of_a_forking_rank(const yoke_event *event, void *payload) {
    log_of_run *run = payload;
    on_event(event, payload);
    if (event->kind == YOKE_EVENT_STEP && event->step == FORK_STEP)
        fork_child(run->trainer, run->trainer->run.ranks);
}

static void a_fork_of_a_rank_leaves_the_others_alone(void **state) {
    (void)state;
    rank_run ranks[RANK_RUNS] = {0};
    in_folder("metrics", metrics);
    for (int k = 0; k < RANK_RUNS; k++) {
        ranks[k].options = small(&ranks[k].run);
        ranks[k].options.steps = RUN_STEPS;
    }
    ranks[0].options.on_event = on_event_of_a_forking_rank;
    run_ranks(ranks);
    expect_all_well(ranks);
    assert_true(ranks[0].hash == ranks[1].hash);
}

int main(void) {
    alarm(1500);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_fork_inside_a_run_leaves_it_alone),
        cmocka_unit_test(a_fork_of_a_rank_leaves_the_others_alone),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
