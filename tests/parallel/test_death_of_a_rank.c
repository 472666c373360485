/* SPDX-License-Identifier: Apache-2.0 */
/* A rank is killed at every call of a step in turn: rank 0 saves the weights of a whole step, bit
 * for bit those of a run of as many steps. Wrapped calls (-Wl,--wrap) count; ranks are processes.
 */
#include <sys/stat.h>

#include "model/model.h"
#include "optimizer/optimizer.h"
#include "support/process_ranks.h"
#include "yoke/yoke.h"

enum { WORLD = 3, STEPS_RUN = 4, STEP_OF_DEATH = 2, CALLS_MAX = 100, FILE_BYTES = 1 << 21 };
enum { SLOW_MS = 2000 };

typedef enum call_kind { ANY, FORWARD, UPDATE, BARRIER } call_kind;

typedef struct play {
    yoke_schedule schedule;
    int rounds;     /* forwards of a step; above 1: by shards, of a model with running statistics */
    int slow;       /* the rank whose first update in the step of death lasts SLOW_MS; 0: none */
    call_kind kind; /* where the victim dies: at the call number death_at of this kind */
    int steps, victim, death_at;
    char store[64], save[64];
} play;

/* Of this rank: calls since the first forward of the step in which the victim dies. */
static const play *own;
static int own_rank, forwards, calls;

static void pass(call_kind kind) {
    forwards += kind == FORWARD;
    if (own == NULL || (forwards + own->rounds - 1) / own->rounds != STEP_OF_DEATH) return;
    if (kind == UPDATE && own->slow > 0 && own_rank == own->slow) {
        usleep(calls++ == 0 ? 1000 * SLOW_MS : 0);
        return;
    }
    if (own_rank != own->victim || (own->kind != ANY && own->kind != kind)) return;
    if (++calls == own->death_at) kill(getpid(), SIGKILL);
}

#define WRAP(name) __wrap_##name
#define REAL(name) __real_##name
#define MARKED(kind, name, arguments, passed)                                                      \
    yoke_status REAL(name) arguments;                                                              \
    yoke_status WRAP(name) arguments;                                                              \
    yoke_status WRAP(name) arguments {                                                             \
        pass(kind);                                                                                \
        return REAL(name) passed;                                                                  \
    }

MARKED(FORWARD, yoke_replica_forward,
       (yoke_replica * replica, int rows, bool training, const yoke_plan_step *step),
       (replica, rows, training, step))
MARKED(ANY, yoke_replica_backward_segment,
       (yoke_replica * replica, int segment, const yoke_plan_step *step), (replica, segment, step))
MARKED(UPDATE, yoke_optimizer_update,
       (yoke_optimizer * optimizer, const yoke_optimizer_step *step, yoke_device *device,
        size_t offset, size_t elements, float *weights, const float *gradients),
       (optimizer, step, device, offset, elements, weights, gradients))
MARKED(ANY, yoke_process_group_wait, (yoke_process_group * group), (group))
MARKED(BARRIER, yoke_process_group_barrier, (yoke_process_group * group), (group))
MARKED(ANY, yoke_process_group_all_gather,
       (yoke_process_group * group, void *to, const void *from, size_t count, yoke_element element),
       (group, to, from, count, element))

/* Shards are a power of two. */
static int world_of(const play *now) {
    return now->rounds > 1 ? 2 : WORLD;
}

static yoke_status train(const play *now, int rank) {
    yoke_rank_info place = {.struct_size = sizeof place, .rank = rank, .world = world_of(now)};
    yoke_process_group_options group = {.struct_size = sizeof group,
                                        .rank = &place,
                                        .transport = YOKE_TRANSPORT_SHARED_MEMORY,
                                        .store = now->store,
                                        .timeout_ms = 60000};
    const yoke_data_parallel_options engine = {
        .struct_size = sizeof engine,
        .schedule = now->schedule,
        .algorithm = YOKE_ALGORITHM_DIRECT,
        .first_bucket_bytes = 16384,
        .bucket_bytes = 16384,
        .shards = now->rounds > 1 ? world_of(now) * now->rounds : 0};
    yoke_trainer_options options = {.struct_size = sizeof options,
                                    .model = now->rounds > 1 ? "resnet20" : "mlp:width=96",
                                    .dataset = now->rounds > 1
                                                   ? "synthetic:3x8x8,classes=4,rows=96"
                                                   : "synthetic:1x16x16,classes=4,rows=96",
                                    .devices = "cpu",
                                    .threads = 1,
                                    .mode = YOKE_MODE_DISTRIBUTED_DATA_PARALLEL,
                                    .engine = &engine,
                                    .batch = 24,
                                    .steps = (uint64_t)now->steps,
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

/* Returns rank 0's error. */
static yoke_error run_ranks(play *now) {
    int world = world_of(now);
    outcome *outcomes = share_bytes((size_t)world * sizeof *outcomes);
    pid_t pids[WORLD];
    name_store(now->store, sizeof now->store);
    snprintf(now->save, sizeof now->save, "/tmp/yoke-death-%d", (int)getpid());
    for (int rank = 0; rank < world; rank++) {
        pids[rank] = fork();
        assert_true(pids[rank] >= 0);
        if (pids[rank] > 0) continue;
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        own = now->victim > 0 ? now : NULL;
        own_rank = rank;
        outcomes[rank].error = yoke_error_take(train(now, rank));
        _exit(0);
    }
    for (int rank = 0; rank < world; rank++)
        assert_int_equal(waitpid(pids[rank], NULL, 0), pids[rank]);
    yoke_error error = outcomes[0].error;
    munmap(outcomes, (size_t)world * sizeof *outcomes);
    return error;
}

static size_t take_file(const play *now, char *bytes) {
    FILE *file = fopen(now->save, "rb");
    if (file == NULL) return 0;
    size_t count = fread(bytes, 1, FILE_BYTES, file);
    assert_true(count > 0 && count < FILE_BYTES);
    fclose(file);
    assert_int_equal(remove(now->save), 0);
    return count;
}

/* The files of undisturbed runs of 1 step and of 2. */
static char whole[STEP_OF_DEATH][FILE_BYTES], saved[FILE_BYTES];
static size_t whole_bytes[STEP_OF_DEATH];

static void make_references(const play *like) {
    for (int i = 0; i < STEP_OF_DEATH; i++) {
        play now = *like;
        now.steps = i + 1;
        now.victim = -1;
        yoke_error error = run_ranks(&now);
        if (error.status != YOKE_OK) fail_msg("%s", error.text);
        whole_bytes[i] = take_file(&now, whole[i]);
        assert_true(whole_bytes[i] > 0);
    }
    assert_memory_not_equal(whole[0], whole[1], whole_bytes[0]);
}

/* Returns the step that the file has. */
static int check_saved(const play *now, const yoke_error *error) {
    const char *said = strstr(error->text, "has the weights after step ");
    int step = said != NULL ? (int)strtol(strrchr(said, ' '), NULL, 10) : 0;
    if (step < 1 || step > STEP_OF_DEATH)
        fail_msg("rank %d died at call %d: %s", now->victim, now->death_at, error->text);
    size_t bytes = take_file(now, saved);
    if (bytes != whole_bytes[step - 1] || memcmp(saved, whole[step - 1], bytes) != 0)
        fail_msg("rank %d died at call %d: the file differs from that of %d steps", now->victim,
                 now->death_at, step);
    return step;
}

static void run_deaths(yoke_schedule schedule) {
    int found[STEP_OF_DEATH + 1] = {0};
    play now = {.schedule = schedule, .rounds = 1, .steps = STEPS_RUN};
    make_references(&now);
    for (now.death_at = 1; now.death_at < CALLS_MAX; now.death_at++) {
        now.victim = 1 + now.death_at % (WORLD - 1);
        yoke_error error = run_ranks(&now);
        if (error.status == YOKE_OK) break; /* the step has fewer calls */
        found[check_saved(&now, &error)]++;
    }
    assert_int_equal(remove(now.save), 0);
    print_message("%d deaths: %d saved step 1, %d step 2\n", now.death_at - 1, found[1], found[2]);
    assert_true(found[1] > 0 && found[2] > 0 && now.death_at < CALLS_MAX);
}

static void a_rank_that_dies_while_ranks_all_reduce_leaves_rank_0_a_whole_step(void **state) {
    (void)state;
    run_deaths(YOKE_SCHEDULE_OVERLAP);
}

static void a_rank_that_dies_while_ranks_share_the_update_leaves_rank_0_a_whole_step(void **state) {
    (void)state;
    run_deaths(YOKE_SCHEDULE_SHARDED);
}

static void
a_rank_that_dies_behind_the_last_shard_leaves_rank_0_its_running_statistics(void **state) {
    (void)state;
    play now = {.schedule = YOKE_SCHEDULE_SHARDED,
                .rounds = 2,
                .kind = BARRIER,
                .steps = STEPS_RUN,
                .victim = 1,
                .death_at = 3}; /* behind its update */
    make_references(&now);
    yoke_error error = run_ranks(&now);
    assert_int_equal(check_saved(&now, &error), STEP_OF_DEATH);
}

static void rank_0_waits_for_a_rank_that_still_updates(void **state) {
    (void)state;
    play now = {.schedule = YOKE_SCHEDULE_SHARDED,
                .rounds = 1,
                .slow = 2,
                .kind = UPDATE,
                .steps = STEPS_RUN,
                .victim = 1,
                .death_at = 1};
    make_references(&now);
    yoke_error error = run_ranks(&now);
    assert_int_equal(check_saved(&now, &error), STEP_OF_DEATH - 1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_rank_that_dies_while_ranks_all_reduce_leaves_rank_0_a_whole_step),
        cmocka_unit_test(a_rank_that_dies_while_ranks_share_the_update_leaves_rank_0_a_whole_step),
        cmocka_unit_test(
            a_rank_that_dies_behind_the_last_shard_leaves_rank_0_its_running_statistics),
        cmocka_unit_test(rank_0_waits_for_a_rank_that_still_updates),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
