/* SPDX-License-Identifier: Apache-2.0 */
/* Three processes train; one dies in a step, and while the others meet again a second one dies, at
 * every point of that: each step of the protocol, each call of the store, each collective. Whoever
 * is left ends with the weights and metrics of a run in which nothing happened. The linker sends
 * the calls that count through this file (--wrap). YOKE_TEST_POINTS=all tries every point, by day
 * every seventh. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "distributed/roll/roll.h"
#include "distributed/shared_memory/shared_memory.h"
#include "yoke/yoke.h"

enum { RANKS = 3, STEPS_OF_RUN = 9, DIES_AT = 4, BY_DAY = 7 };

/* How many points this process has passed. */
static struct {
    bool meets_again; /* from the first step of a second meeting on */
    int points, last; /* so far; dies at the last, 0: never */
} own;

static void pass(void) {
    if (own.meets_again && ++own.points == own.last) raise(SIGKILL);
}

yoke_roll_state __real_yoke_roll_step(yoke_roll_meeting *meeting);
yoke_roll_state __wrap_yoke_roll_step(yoke_roll_meeting *meeting);
yoke_roll_state __wrap_yoke_roll_step(yoke_roll_meeting *meeting) {
    own.meets_again |= meeting->generation > 0;
    /* seats that nobody has, and waiting, are no points of their own */
    if (meeting->state != YOKE_ROLL_WAITS && meeting->at <= RANKS) pass();
    return __real_yoke_roll_step(meeting);
}

yoke_status __real_yoke_store_set(yoke_store *store, const char *key, const void *value,
                                  size_t bytes);
yoke_status __wrap_yoke_store_set(yoke_store *store, const char *key, const void *value,
                                  size_t bytes);
yoke_status __wrap_yoke_store_set(yoke_store *store, const char *key, const void *value,
                                  size_t bytes) {
    pass();
    yoke_status status = __real_yoke_store_set(store, key, value, bytes);
    pass();
    return status;
}

uint32_t __real_shm_announce(shm_group *shm, const shm_call *call);
uint32_t __wrap_shm_announce(shm_group *shm, const shm_call *call);
uint32_t __wrap_shm_announce(shm_group *shm, const shm_call *call) {
    pass();
    uint32_t operation = __real_shm_announce(shm, call);
    pass();
    return operation;
}

yoke_status __real_shm_step(shm_group *shm);
yoke_status __wrap_shm_step(shm_group *shm);
yoke_status __wrap_shm_step(shm_group *shm) {
    pass();
    return __real_shm_step(shm);
}

/* What the processes tell the test. */
typedef struct told {
    uint64_t hashes[RANKS];
    int points[RANKS];
} told;

typedef struct play {
    char roll[64], metrics[64];
    int first, second, last; /* first: dies in step DIES_AT; second: at point `last` */
    bool is_sharded;
    told *told;
} play;

static yoke_trainer_options options_of(const play *one, yoke_data_parallel_options *engine) {
    *engine = (yoke_data_parallel_options)YOKE_DATA_PARALLEL_OPTIONS_INIT;
    engine->shards = 4;
    engine->schedule = one->is_sharded ? YOKE_SCHEDULE_SHARDED : YOKE_SCHEDULE_OVERLAP;
    yoke_trainer_options options = YOKE_TRAINER_OPTIONS_INIT;
    options.model = "mlp:width=16";
    options.dataset = "synthetic:1x8x8,rows=64";
    options.devices = "cpu"; /* also where GPUs are simulated */
    options.batch = 13;
    options.steps = STEPS_OF_RUN;
    options.threads = 1;
    options.metrics = one->metrics[0] != '\0' ? one->metrics : NULL;
    options.engine = engine;
    return options;
}

static int run_rank(const play *one, int rank) {
    char fault[32];
    yoke_data_parallel_options engine;
    yoke_trainer_options options = options_of(one, &engine);
    const yoke_rank_info info = {
        .struct_size = sizeof info, .rank = rank, .world = RANKS, .local_world = RANKS};
    const yoke_process_group_options group = {.struct_size = sizeof group,
                                              .rank = &info,
                                              .transport = YOKE_TRANSPORT_SHARED_MEMORY,
                                              .roll = one->roll,
                                              .timeout_ms = 20000};
    yoke_trainer *trainer = NULL;
    snprintf(fault, sizeof fault, "kill:%d@%d", one->first, DIES_AT);
    if (one->first >= 0) engine.fault = fault;
    options.mode = YOKE_MODE_DISTRIBUTED_DATA_PARALLEL;
    options.process_group = &group;
    options.survive = true;
    if (rank == one->second) own.last = one->last;
    yoke_status status = yoke_trainer_create(&trainer, &options);
    if (status == YOKE_OK) status = yoke_trainer_run(trainer);
    if (status != YOKE_OK) fprintf(stderr, "rank %d: %s\n", rank, yoke_last_error());
    if (status == YOKE_OK)
        yoke_data_parallel_hash(yoke_trainer_engine(trainer), &one->told->hashes[rank]);
    one->told->points[rank] = own.points;
    yoke_trainer_destroy(trainer);
    return status == YOKE_OK ? 0 : 1;
}

/* Returns the ranks that ended well, as bits. */
static int run_all(play *one) {
    pid_t children[RANKS];
    int well = 0, status;
    int memory = memfd_create("roll", 0);
    assert_true(memory >= 0);
    snprintf(one->roll, sizeof one->roll, "/proc/%d/fd/%d", (int)getpid(), memory);
    memset(one->told, 0, sizeof *one->told);
    for (int rank = 0; rank < RANKS; rank++) {
        children[rank] = fork();
        assert_true(children[rank] >= 0);
        if (children[rank] == 0) _exit(run_rank(one, rank));
    }
    for (int rank = 0; rank < RANKS; rank++) {
        assert_int_equal(waitpid(children[rank], &status, 0), children[rank]);
        bool died = WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
        bool may_die = rank == one->first || rank == one->second;
        if (!died && (!WIFEXITED(status) || WEXITSTATUS(status) != 0))
            fail_msg("rank %d ended with %#x", rank, status);
        if (died && !may_die) fail_msg("rank %d was killed", rank);
        well |= died ? 0 : 1 << rank;
    }
    close(memory);
    return well;
}

/* The steps and losses in the metrics, but not the lines that say who was lost. */
static void read_metrics(const char *path, char *text, size_t size) {
    char line[2048];
    size_t length = 0;
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    while (fgets(line, sizeof line, file) != NULL) {
        if (strstr(line, "\"lost\"") != NULL) continue;
        char *times = strstr(line, ",\"step_ms\"");
        if (times != NULL) snprintf(times, sizeof line - (size_t)(times - line), "\n");
        length += (size_t)snprintf(text + length, size - length, "%s", line);
        assert_true(length < size);
    }
    fclose(file);
}

typedef struct expected {
    uint64_t hash;
    char metrics[8192];
} expected;

/* One process with one device. */
static expected undisturbed(bool is_sharded) {
    expected found;
    play one = {.is_sharded = is_sharded};
    yoke_data_parallel_options engine;
    yoke_trainer *trainer;
    snprintf(one.metrics, sizeof one.metrics, "/tmp/yoke-survivors-%d-alone", (int)getpid());
    yoke_trainer_options options = options_of(&one, &engine);
    if (yoke_trainer_create(&trainer, &options) != YOKE_OK) fail_msg("%s", yoke_last_error());
    if (yoke_trainer_run(trainer) != YOKE_OK) fail_msg("%s", yoke_last_error());
    assert_int_equal(yoke_data_parallel_hash(yoke_trainer_engine(trainer), &found.hash), YOKE_OK);
    yoke_trainer_destroy(trainer);
    read_metrics(one.metrics, found.metrics, sizeof found.metrics);
    unlink(one.metrics);
    return found;
}

static void expect(const play *one, const expected *wanted, int well) {
    char metrics[8192];
    assert_int_not_equal(well, 0);
    for (int rank = 0; rank < RANKS; rank++)
        if ((well >> rank & 1) != 0 && one->told->hashes[rank] != wanted->hash)
            fail_msg("%d dies, %d at point %d: rank %d has other weights", one->first, one->second,
                     one->last, rank);
    read_metrics(one->metrics, metrics, sizeof metrics);
    if (strcmp(metrics, wanted->metrics) != 0)
        fail_msg("%d dies, %d at point %d: other metrics:\n%s\nwanted:\n%s", one->first,
                 one->second, one->last, metrics, wanted->metrics);
}

static play play_make(bool is_sharded) {
    play one = {.first = -1, .second = -1, .is_sharded = is_sharded};
    one.told =
        mmap(NULL, sizeof *one.told, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(one.told != MAP_FAILED);
    snprintf(one.metrics, sizeof one.metrics, "/tmp/yoke-survivors-%d", (int)getpid());
    return one;
}

static void play_free(play *one) {
    unlink(one->metrics);
    munmap(one->told, sizeof *one->told);
}

static void a_rank_dies(bool is_sharded) {
    expected wanted = undisturbed(is_sharded);
    play one = play_make(is_sharded);
    for (one.first = -1; one.first < RANKS; one.first++) {
        int well = run_all(&one);
        assert_int_equal(well, 7 & ~(one.first < 0 ? 0 : 1 << one.first));
        expect(&one, &wanted, well);
        unlink(one.metrics);
    }
    play_free(&one);
}

static void the_others_go_on(void **state) {
    (void)state;
    a_rank_dies(false);
    a_rank_dies(true);
}

/* The point at which a process dies has to exist in the run, so each run that nobody dies in a
 * second time says how many there are. */
static void another_dies_while_they_meet(void **state) {
    (void)state;
    bool all = getenv("YOKE_TEST_POINTS") != NULL;
    expected wanted = undisturbed(false);
    play one = play_make(false);
    int tried = 0;
    for (one.first = 0; one.first < RANKS; one.first++) {
        for (one.second = 0; one.second < RANKS; one.second++) {
            if (one.second == one.first) continue;
            one.last = 0;
            expect(&one, &wanted, run_all(&one));
            int points = one.told->points[one.second];
            assert_true(points > 20);
            for (one.last = all ? 1 : 1 + (one.first + one.second) % BY_DAY; one.last <= points;
                 one.last += all ? 1 : BY_DAY) {
                unlink(one.metrics);
                expect(&one, &wanted, run_all(&one));
                tried++;
            }
        }
    }
    printf("%d second deaths while others meet\n", tried);
    play_free(&one);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_others_go_on),
        cmocka_unit_test(another_dies_while_they_meet),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
