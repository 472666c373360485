/* SPDX-License-Identifier: Apache-2.0 */
/* One rank dies, stops or never comes, in any stage of a run: within the deadline every other
 * rank ends with an error that names it, and nothing stays behind. Wrapped calls (-Wl,--wrap) mark
 * the stages; ranks are processes. */
#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <time.h>

#include "model/model.h"
#include "optimizer/optimizer.h"
#include "support/process_ranks.h"
#include "train/weights_writer.h"
#include "yoke/yoke.h"

enum { WORLD = 3, STEPS_RUN = 4, STEP_OF_DEATH = 2, STOP_TIMEOUT_MS = 5000, SLACK_MS = 600000 };
enum { LONG_MS = 7000 }; /* longer than that deadline */

typedef enum moment {
    NEVER_STARTED,
    AT_THE_MEETING,
    WHILE_MEASURING,
    IN_FORWARD,
    IN_BACKWARD,
    IN_ALL_REDUCE,
    IN_UPDATE,
    WHILE_SAVING,
    MOMENTS
} moment;

static const char *const moment_names[] = {"never started", "at the meeting", "while measuring",
                                           "in forward",    "in backward",    "in all-reduce",
                                           "in update",     "while saving"};

/* What rank 0 does alone. */
static bool is_of_rank_0(moment where) {
    return where == WHILE_MEASURING || where == WHILE_SAVING;
}

/* What this process does to itself, and where: set in the victim alone. */
static int own_signal;
static moment own_moment;
static int calls;
static bool measures_long; /* the second time */

static void pass(moment where, int nth) {
    if (own_signal == 0 || where != own_moment || ++calls != nth) return;
    kill(getpid(), own_signal);
}

#define WRAP(name) __wrap_##name
#define REAL(name) __real_##name

yoke_status REAL(yoke_rendezvous)(yoke_store *store, const yoke_rank_info *rank, yoke_peer *peers,
                                  int timeout_ms);
yoke_status WRAP(yoke_rendezvous)(yoke_store *store, const yoke_rank_info *rank, yoke_peer *peers,
                                  int timeout_ms);
yoke_status WRAP(yoke_rendezvous)(yoke_store *store, const yoke_rank_info *rank, yoke_peer *peers,
                                  int timeout_ms) {
    pass(AT_THE_MEETING, 1);
    return REAL(yoke_rendezvous)(store, rank, peers, timeout_ms);
}

yoke_status REAL(yoke_algorithms_add)(yoke_algorithms *algorithms, const char *key, int candidate,
                                      const char *candidate_name, double milliseconds);
yoke_status WRAP(yoke_algorithms_add)(yoke_algorithms *algorithms, const char *key, int candidate,
                                      const char *candidate_name, double milliseconds);
yoke_status WRAP(yoke_algorithms_add)(yoke_algorithms *algorithms, const char *key, int candidate,
                                      const char *candidate_name, double milliseconds) {
    static int measured;
    pass(WHILE_MEASURING, 2);
    if (++measured == 2 && measures_long) usleep(1000 * LONG_MS);
    return REAL(yoke_algorithms_add)(algorithms, key, candidate, candidate_name, milliseconds);
}

yoke_status REAL(yoke_replica_forward)(yoke_replica *replica, int rows, bool training,
                                       const yoke_plan_step *step);
yoke_status WRAP(yoke_replica_forward)(yoke_replica *replica, int rows, bool training,
                                       const yoke_plan_step *step);
yoke_status WRAP(yoke_replica_forward)(yoke_replica *replica, int rows, bool training,
                                       const yoke_plan_step *step) {
    pass(IN_FORWARD, STEP_OF_DEATH);
    return REAL(yoke_replica_forward)(replica, rows, training, step);
}

yoke_status REAL(yoke_replica_backward_segment)(yoke_replica *replica, int segment,
                                                const yoke_plan_step *step);
yoke_status WRAP(yoke_replica_backward_segment)(yoke_replica *replica, int segment,
                                                const yoke_plan_step *step);
yoke_status WRAP(yoke_replica_backward_segment)(yoke_replica *replica, int segment,
                                                const yoke_plan_step *step) {
    if (segment == 1) pass(IN_BACKWARD, STEP_OF_DEATH);
    return REAL(yoke_replica_backward_segment)(replica, segment, step);
}

yoke_status REAL(yoke_process_group_wait)(yoke_process_group *group);
yoke_status WRAP(yoke_process_group_wait)(yoke_process_group *group);
yoke_status WRAP(yoke_process_group_wait)(yoke_process_group *group) {
    pass(IN_ALL_REDUCE, STEP_OF_DEATH);
    return REAL(yoke_process_group_wait)(group);
}

yoke_status REAL(yoke_optimizer_update)(yoke_optimizer *optimizer, const yoke_optimizer_step *step,
                                        yoke_device *device, size_t offset, size_t elements,
                                        float *weights, const float *gradients);
yoke_status WRAP(yoke_optimizer_update)(yoke_optimizer *optimizer, const yoke_optimizer_step *step,
                                        yoke_device *device, size_t offset, size_t elements,
                                        float *weights, const float *gradients);
yoke_status WRAP(yoke_optimizer_update)(yoke_optimizer *optimizer, const yoke_optimizer_step *step,
                                        yoke_device *device, size_t offset, size_t elements,
                                        float *weights, const float *gradients) {
    pass(IN_UPDATE, STEP_OF_DEATH);
    return REAL(yoke_optimizer_update)(optimizer, step, device, offset, elements, weights,
                                       gradients);
}

yoke_status REAL(yoke_weights_writer_take)(yoke_weights_writer *writer, const yoke_state *best);
yoke_status WRAP(yoke_weights_writer_take)(yoke_weights_writer *writer, const yoke_state *best);
yoke_status WRAP(yoke_weights_writer_take)(yoke_weights_writer *writer, const yoke_state *best) {
    pass(WHILE_SAVING, 1);
    return REAL(yoke_weights_writer_take)(writer, best);
}

/* A play: WORLD ranks train, one of them meets its end. */

typedef struct play {
    moment moment;
    int signal, victim, timeout_ms;
    yoke_schedule schedule;
    char store[64], folder[32], save[64];
    outcome *outcomes; /* [WORLD] */
} play;

static yoke_status train(const play *now, int rank) {
    yoke_process_group_options group = {
        .struct_size = sizeof group,
        .rank =
            &(yoke_rank_info){.struct_size = sizeof(yoke_rank_info), .rank = rank, .world = WORLD},
        .transport = YOKE_TRANSPORT_SHARED_MEMORY,
        .store = now->store,
        .timeout_ms = now->timeout_ms};
    const yoke_data_parallel_options engine = {.struct_size = sizeof engine,
                                               .schedule = now->schedule,
                                               .algorithm = now->moment == WHILE_MEASURING
                                                                ? YOKE_ALGORITHM_MEASURED
                                                                : YOKE_ALGORITHM_DIRECT,
                                               .first_bucket_bytes = 16384,
                                               .bucket_bytes = 16384};
    yoke_trainer_options options = {.struct_size = sizeof options,
                                    /* linear layers may have nothing to measure */
                                    .model = now->moment == WHILE_MEASURING ? "resnet20" : "mlp",
                                    .dataset = "synthetic:1x8x8,classes=4,rows=96",
                                    .devices = "cpu",
                                    .threads = 1,
                                    .mode = YOKE_MODE_DISTRIBUTED_DATA_PARALLEL,
                                    .engine = &engine,
                                    .batch = 24,
                                    .steps = STEPS_RUN,
                                    .evaluate_every = -1,
                                    .save = now->save,
                                    .process_group = &group};
    yoke_trainer *trainer = NULL;
    yoke_status status = yoke_trainer_create(&trainer, &options);
    if (status == YOKE_OK) status = yoke_trainer_run(trainer);
    yoke_error error = yoke_error_take(status);
    yoke_trainer_destroy(trainer);
    return yoke_error_restore(&error);
}

static void act_rank(const play *now, int rank, outcome *end) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    measures_long = now->victim < 0;
    if (rank == now->victim) {
        if (now->moment == NEVER_STARTED) _exit(0);
        own_signal = now->signal;
        own_moment = now->moment;
    }
    end->error = yoke_error_take(train(now, rank));
    _exit(0);
}

static void prepare(play *now) {
    static int plays;
    snprintf(now->folder, sizeof now->folder, "/tmp/yoke-fail-%d-%d", (int)getpid(), plays++);
    assert_int_equal(mkdir(now->folder, 0700), 0);
    snprintf(now->store, sizeof now->store, "file://%s/store", now->folder);
    snprintf(now->save, sizeof now->save, "%s/weights", now->folder);
}

static double seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* All but the victim, which may be stopped for ever. */
static void await_survivors(const play *now) {
    const outcome *outcomes = now->outcomes;
    double deadline = seconds() + (now->timeout_ms + SLACK_MS) / 1e3;
    for (int rank = 0; rank < WORLD; rank++) {
        if (rank == now->victim) continue;
        while (waitpid(atomic_load(&outcomes[rank].pid), NULL, WNOHANG) == 0) {
            if (seconds() > deadline)
                fail_msg("rank %d hangs; rank %d was to end %s by signal %d", rank, now->victim,
                         moment_names[now->moment], now->signal);
            usleep(2000);
        }
    }
    kill(atomic_load(&outcomes[now->victim].pid), SIGKILL);
    waitpid(atomic_load(&outcomes[now->victim].pid), NULL, 0);
}

static void expect_named(const play *now) {
    char name[16];
    snprintf(name, sizeof name, "rank %d", now->victim);
    for (int rank = 0; rank < WORLD; rank++) {
        const yoke_error *error = &now->outcomes[rank].error;
        if (rank == now->victim) continue;
        if (error->status == YOKE_OK || strstr(error->text, name) == NULL)
            fail_msg("rank %d of a run whose rank %d ended %s by signal %d: %s: %s", rank,
                     now->victim, moment_names[now->moment], now->signal,
                     yoke_status_name(error->status), error->text);
    }
}

/* Whatever lies in `folder` under a name of ours; fuzz targets run at the same time. */
static int count_names(const char *folder, const char *word) {
    DIR *open = opendir(folder);
    int count = 0;
    for (struct dirent *entry = open ? readdir(open) : NULL; entry; entry = readdir(open)) {
        if (entry->d_name[0] == '.' || strstr(entry->d_name, word) == NULL) continue;
        if (strncmp(entry->d_name, "yoke-fuzz-", 10) == 0) continue;
        print_message("left: %s/%s\n", folder, entry->d_name);
        count++;
    }
    if (open) closedir(open);
    return count;
}

/* What other programs of the machine put there goes away. */
static void expect_no_shared_memory(void) {
    int names = 1;
    for (int try = 0; try < 50 && names > 0; try++) {
        if (try > 0) usleep(100000);
        names = count_names("/dev/shm", "yoke");
    }
    assert_int_equal(names, 0);
}

/* The store's own folder may outlive a keeper that was killed: the next run takes it over. */
static void clear(const play *now) {
    char command[160];
    expect_no_shared_memory();
    if (now->victim > 0) (void)remove(now->save); /* of whole steps: test_death_of_a_rank */
    assert_int_equal(count_names(now->folder, "weights"), 0); /* nor half a file */
    snprintf(command, sizeof command, "rm -rf %s", now->folder);
    assert_int_equal(system(command), 0);
}

static play begin_play(moment where, int signal, int victim, yoke_schedule schedule) {
    play now = {.moment = where,
                .signal = signal,
                .victim = victim,
                .timeout_ms = 60000,
                .schedule = schedule};
    bool knows = signal != SIGSTOP && where > AT_THE_MEETING;
    if (!knows || (victim < 0 && where == WHILE_MEASURING)) /* the deadline tells */
        now.timeout_ms = STOP_TIMEOUT_MS;
    now.outcomes = share_bytes(WORLD * sizeof *now.outcomes);
    prepare(&now);
    for (int rank = 0; rank < WORLD; rank++) {
        pid_t pid = fork();
        if (pid == 0) act_rank(&now, rank, &now.outcomes[rank]);
        assert_true(pid > 0);
        atomic_store(&now.outcomes[rank].pid, pid);
    }
    return now;
}

static void end_play(const play *now) {
    await_survivors(now);
    expect_named(now);
    clear(now);
    munmap(now->outcomes, WORLD * sizeof *now->outcomes);
}

/* Side by side, since most of them wait: every moment with one victim, or with each in turn when
 * YOKE_TEST_ALL is set. Rank 0 alone saves. */
static void run_moments(int signal) {
    bool all = getenv("YOKE_TEST_ALL") != NULL;
    play plays[MOMENTS * WORLD];
    int count = 0;
    for (moment at = AT_THE_MEETING; at < MOMENTS; at++) {
        for (int victim = 0; victim < WORLD; victim++) {
            if (is_of_rank_0(at) ? victim > 0 : !all && victim != (int)at % WORLD) continue;
            plays[count++] = begin_play(at, signal, victim, YOKE_SCHEDULE_OVERLAP);
        }
    }
    for (int i = 0; i < count; i++)
        end_play(&plays[i]);
    print_message("%d plays\n", count);
}

static void a_killed_rank_is_named_by_all_others(void **state) {
    (void)state;
    run_moments(SIGKILL);
}

static void a_stopped_rank_is_named_by_all_others_at_the_deadline(void **state) {
    (void)state;
    run_moments(SIGSTOP);
}

static void a_rank_that_never_came_is_named_by_all_others(void **state) {
    (void)state;
    play plays[WORLD];
    for (int victim = 1; victim < WORLD; victim++)
        plays[victim] = begin_play(NEVER_STARTED, SIGKILL, victim, YOKE_SCHEDULE_OVERLAP);
    for (int victim = 1; victim < WORLD; victim++)
        end_play(&plays[victim]);
}

/* Whose weights the others then never get. */
static void a_rank_killed_while_it_updates_the_part_of_all_is_named(void **state) {
    (void)state;
    play plays[] = {begin_play(IN_BACKWARD, SIGKILL, 0, YOKE_SCHEDULE_SHARDED),
                    begin_play(IN_UPDATE, SIGKILL, 1, YOKE_SCHEDULE_SHARDED),
                    begin_play(IN_UPDATE, SIGSTOP, 2, YOKE_SCHEDULE_SHARDED)};
    for (size_t i = 0; i < sizeof plays / sizeof plays[0]; i++)
        end_play(&plays[i]);
}

static void play_without_victim(moment where) {
    play now = begin_play(where, 0, -1, YOKE_SCHEDULE_OVERLAP);
    for (int rank = 0; rank < WORLD; rank++)
        assert_true(wait(NULL) > 0);
    expect_all_well(now.outcomes, WORLD);
    assert_int_equal(access(now.save, R_OK), 0);
    assert_int_equal(remove(now.save), 0);
    assert_int_equal(count_names(now.folder, ""), 0);
    clear(&now);
    munmap(now.outcomes, WORLD * sizeof *now.outcomes);
}

static void without_a_victim_the_ranks_train_and_save(void **state) {
    (void)state;
    play_without_victim(MOMENTS);
}

static void a_measurement_longer_than_the_deadline_ends_no_run(void **state) {
    (void)state;
    play_without_victim(WHILE_MEASURING);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(without_a_victim_the_ranks_train_and_save),
        cmocka_unit_test(a_measurement_longer_than_the_deadline_ends_no_run),
        cmocka_unit_test(a_killed_rank_is_named_by_all_others),
        cmocka_unit_test(a_stopped_rank_is_named_by_all_others_at_the_deadline),
        cmocka_unit_test(a_rank_that_never_came_is_named_by_all_others),
        cmocka_unit_test(a_rank_killed_while_it_updates_the_part_of_all_is_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
