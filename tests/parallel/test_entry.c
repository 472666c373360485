/* SPDX-License-Identifier: Apache-2.0 */
/* Who may be inside an engine, and with how many threads: one thread of the process that made it;
 * no public call leaves a thread of OpenMP behind or ends the process for want of one. */
#include <dlfcn.h>
#include <errno.h>
#include <omp.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "support/engine_check.h"

enum { SECONDS = 900, ROWS = 8 };

static int count_threads(void) {
    struct stat tasks;
    assert_int_equal(stat("/proc/self/task", &tasks), 0);
    return (int)tasks.st_nlink - 2;
}

/* The library calls this one, and libgomp: as under RLIMIT_NPROC, which does not bind root. */
static _Atomic int threads_limit; /* of the process; 0: none */

int pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*start)(void *),
                   void *argument) {
    static int (*real)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
    if (real == NULL) *(void **)&real = dlsym(RTLD_NEXT, "pthread_create");
    int limit = atomic_load(&threads_limit);
    if (limit > 0 && count_threads() >= limit) return EAGAIN;
    return real(thread, attributes, start, argument);
}

/* A thread is listed for a moment after its end. */
static int settled_threads(int expected) {
    for (int look = 0; look < 2000 && count_threads() != expected; look++)
        usleep(1000);
    return count_threads();
}

typedef struct rig {
    yoke_model *model;
    yoke_devices *devices;
    yoke_data_parallel *parallel;
    check_batch batch;
} rig;

static const yoke_data_parallel_options options = {.struct_size = sizeof options,
                                                   .algorithm = YOKE_ALGORITHM_DIRECT,
                                                   .schedule = YOKE_SCHEDULE_CLASSIC,
                                                   .batch = ROWS,
                                                   .input_gradients = true};

static rig make_rig(const char *list, int threads) {
    rig made = {.model = check_model(true, 0), .batch = check_batch_make(ROWS, 1)};
    yoke_devices_options open = {
        .struct_size = sizeof open, .list = list, .threads = threads, .unbound = true};
    EXPECT_OK(yoke_devices_open(&made.devices, &open));
    EXPECT_OK(yoke_data_parallel_create(&made.parallel, made.model, made.devices, NULL, &options));
    return made;
}

static void free_rig(rig *made) {
    yoke_data_parallel_destroy(made->parallel);
    yoke_devices_close(made->devices);
    check_batch_free(&made->batch);
    yoke_model_destroy(made->model);
}

#define EXPECT_SAME_THREADS(call)                                                                  \
    do {                                                                                           \
        EXPECT_OK(call);                                                                           \
        int found_ = settled_threads(before);                                                      \
        if (found_ != before) fail_msg("%s: %d threads, not %d", #call, found_, before);           \
    } while (0)

static yoke_status nothing(int replica, void *context) {
    (void)replica, (void)context;
    return YOKE_OK;
}

/* 16 is what OpenMP would take: the tests' own environment says so in main. */
static void public_calls_leave_no_thread_behind(void **state) {
    (void)state;
    assert_int_equal(omp_get_max_threads(), 16);
    int before = count_threads();
    rig own = make_rig("cpu", 1);
    yoke_data_parallel *parallel = own.parallel;
    const yoke_batch *batch = &own.batch.batch;
    float weight[8 * 2 * 9], outputs[ROWS * CHECK_CLASSES];
    float *inputs = malloc(ROWS * CHECK_ROW * sizeof *inputs);
    uint64_t hash;
    yoke_step_result result = {.struct_size = sizeof result};
    yoke_memory_report memory = {.struct_size = sizeof memory};
    yoke_peer_info peer = {.struct_size = sizeof peer};
    assert_int_equal(settled_threads(before), before);
    EXPECT_SAME_THREADS(yoke_data_parallel_step(parallel, batch, 0.1, &result));
    EXPECT_SAME_THREADS(yoke_data_parallel_evaluate(parallel, batch, &result));
    EXPECT_SAME_THREADS(yoke_data_parallel_forward(parallel, batch, true, outputs));
    EXPECT_SAME_THREADS(yoke_data_parallel_backward(parallel, NULL));
    EXPECT_SAME_THREADS(
        yoke_data_parallel_read_gradient(parallel, "conv1.weight", weight, 8 * 2 * 9));
    EXPECT_SAME_THREADS(
        yoke_data_parallel_write_gradient(parallel, "conv1.weight", weight, 8 * 2 * 9));
    EXPECT_SAME_THREADS(yoke_data_parallel_read_input_gradients(parallel, inputs));
    EXPECT_SAME_THREADS(yoke_data_parallel_update(parallel, 0.1));
    EXPECT_SAME_THREADS(yoke_data_parallel_read(parallel, "conv1.weight", weight, 8 * 2 * 9));
    EXPECT_SAME_THREADS(yoke_data_parallel_write(parallel, "conv1.weight", weight, 8 * 2 * 9));
    EXPECT_SAME_THREADS(yoke_data_parallel_hash(parallel, &hash));
    EXPECT_SAME_THREADS(yoke_data_parallel_scatter(parallel, batch));
    EXPECT_SAME_THREADS(yoke_data_parallel_replicate(parallel));
    EXPECT_SAME_THREADS(yoke_data_parallel_forward_replicas(parallel, true));
    EXPECT_SAME_THREADS(yoke_data_parallel_loss_replicas(parallel));
    EXPECT_SAME_THREADS(yoke_data_parallel_backward_replicas(parallel));
    EXPECT_SAME_THREADS(yoke_data_parallel_reduce(parallel));
    EXPECT_SAME_THREADS(yoke_data_parallel_gather(parallel, &result));
    EXPECT_SAME_THREADS(yoke_parallel_apply(parallel, nothing, NULL));
    EXPECT_SAME_THREADS(yoke_data_parallel_prepare(parallel, 3, true));
    EXPECT_SAME_THREADS(yoke_data_parallel_broadcast(parallel));
    EXPECT_SAME_THREADS(yoke_data_parallel_memory(parallel, 0, &memory));
    EXPECT_SAME_THREADS(yoke_data_parallel_bind(parallel));
    EXPECT_SAME_THREADS(yoke_devices_peer(own.devices, 0, 0, &peer));
    yoke_data_parallel_unbind(parallel);
    char path[] = "/tmp/yoke-entry-XXXXXX";
    int file = mkstemp(path);
    assert_true(file >= 0);
    close(file);
    EXPECT_SAME_THREADS(yoke_weights_save(parallel, own.model, path));
    EXPECT_SAME_THREADS(yoke_weights_load(parallel, own.model, path));
    unlink(path);
    free(inputs);
    free_rig(&own);
    assert_int_equal(settled_threads(before), before);
    assert_int_equal(omp_get_max_threads(), 16);
}

/* ThreadSanitizer runs without OpenMP's teams, whose synchronisation it cannot see. */
#define NEEDS_TEAMS()                                                                              \
    if (omp_get_thread_limit() < 3) skip()

/* The team of the calling thread ends with the engine. */
static void destroy_ends_the_compute_threads(void **state) {
    (void)state;
    NEEDS_TEAMS();
    int before = count_threads();
    for (int devices = 1; devices <= 2; devices++) {
        rig own = make_rig(devices == 1 ? "cpu" : "2xcpu", 3);
        EXPECT_OK(yoke_data_parallel_step(own.parallel, &own.batch.batch, 0.1, NULL));
        int inside = before + 3 * devices - 1;
        assert_int_equal(settled_threads(inside), inside);
        free_rig(&own);
        assert_int_equal(settled_threads(before), before);
    }
}

/* libgomp would end the process. One worker and two teams of three make five threads more. */
static void a_thread_that_cannot_start_is_a_status(void **state) {
    (void)state;
    NEEDS_TEAMS();
    int before = count_threads(), needed = 5;
    for (int more = 0; more <= needed; more++) {
        rig own = {.model = check_model(true, 0)};
        yoke_devices_options open = {
            .struct_size = sizeof open, .list = "2xcpu", .threads = 3, .unbound = true};
        EXPECT_OK(yoke_devices_open(&own.devices, &open));
        atomic_store(&threads_limit, before + more);
        yoke_status status =
            yoke_data_parallel_create(&own.parallel, own.model, own.devices, NULL, &options);
        atomic_store(&threads_limit, 0);
        if (status != (more < needed ? YOKE_ERROR_SYSTEM : YOKE_OK))
            fail_msg("%d threads more: %s: %s", more, yoke_status_name(status), yoke_last_error());
        if (more < needed) assert_non_null(strstr(yoke_last_error(), "cannot start"));
        if (more == needed) own.batch = check_batch_make(ROWS, 1);
        if (more == needed)
            EXPECT_OK(yoke_data_parallel_step(own.parallel, &own.batch.batch, 0.1, NULL));
        free_rig(&own);
        assert_int_equal(settled_threads(before), before);
    }
}

/* A thread that steps for the first time starts compute threads of its own. */
static void *step_without_threads(void *context) {
    rig *own = context;
    atomic_store(&threads_limit, count_threads());
    yoke_status status = yoke_data_parallel_step(own->parallel, &own->batch.batch, 0.1, NULL);
    bool named = strstr(yoke_last_error(), "cannot start compute thread") != NULL;
    atomic_store(&threads_limit, 0);
    return status == YOKE_ERROR_SYSTEM && named ? own : NULL;
}

static void *step_well(void *context) {
    rig *own = context;
    return yoke_data_parallel_step(own->parallel, &own->batch.batch, 0.1, NULL) == YOKE_OK ? own
                                                                                           : NULL;
}

/* Answers the thread's number, which depends on its stack: all threads of this kind have one. */
static pthread_t run_thread(void *(*visitor)(void *), rig *own) {
    enum { STACK_BYTES = 8 << 20 };
    static _Alignas(4096) char stack[STACK_BYTES];
    pthread_attr_t attributes;
    pthread_t thread;
    void *well = NULL;
    assert_int_equal(pthread_attr_init(&attributes), 0);
    assert_int_equal(pthread_attr_setstack(&attributes, stack, sizeof stack), 0);
    assert_int_equal(pthread_create(&thread, &attributes, visitor, own), 0);
    pthread_attr_destroy(&attributes);
    pthread_join(thread, &well);
    assert_non_null(well);
    return thread;
}

static void another_caller_without_threads_gets_a_status(void **state) {
    (void)state;
    NEEDS_TEAMS();
    rig own = make_rig("cpu", 3);
    run_thread(step_without_threads, &own);
    EXPECT_OK(yoke_data_parallel_step(own.parallel, &own.batch.batch, 0.1, NULL));
    free_rig(&own);
}

static void a_thread_with_the_number_of_an_ended_one_has_no_threads_yet(void **state) {
    (void)state;
    NEEDS_TEAMS();
    rig own = make_rig("cpu", 3);
    int before = count_threads();
    pthread_t first = run_thread(step_well, &own);
    assert_int_equal(settled_threads(before), before);
    pthread_t second = run_thread(step_without_threads, &own);
    assert_true(pthread_equal(first, second));
    free_rig(&own);
}

/* Both engines compute with the threads of the caller, which end with the first of the two. */
static void an_engine_survives_the_end_of_another_on_its_thread(void **state) {
    (void)state;
    NEEDS_TEAMS();
    rig one = make_rig("cpu", 3), other = make_rig("cpu", 3);
    EXPECT_OK(yoke_data_parallel_step(other.parallel, &other.batch.batch, 0.1, NULL));
    int before = count_threads();
    free_rig(&one);
    assert_int_equal(settled_threads(before - 2), before - 2);
    assert_non_null(step_without_threads(&other));
    EXPECT_OK(yoke_data_parallel_step(other.parallel, &other.batch.batch, 0.1, NULL));
    free_rig(&other);
}

/* Signals. */

/* Threads of the team, the caller among them, that take SIGALRM. */
static int count_open(int threads) {
    int open = 0;
#pragma omp parallel num_threads(threads) reduction(+ : open)
    {
        sigset_t blocked;
        pthread_sigmask(SIG_SETMASK, NULL, &blocked);
        open += sigismember(&blocked, SIGALRM) == 0;
    }
    return open;
}

static yoke_status look_at_team(int replica, void *open) {
    ((int *)open)[replica] = count_open(3);
    return YOKE_OK;
}

/* First the program's own OpenMP threads, then a smaller and a larger team of its own in between,
 * which ends the library's threads and starts others. */
static void no_thread_that_computes_takes_a_signal_and_the_programs_own_do_again(void **state) {
    (void)state;
    NEEDS_TEAMS();
    assert_int_equal(count_open(3), 3);
    rig own = make_rig("2xcpu", 3);
    for (int round = 0; round < 3; round++) {
        int inside[2] = {-1, -1};
        EXPECT_OK(yoke_parallel_apply(own.parallel, look_at_team, inside));
        assert_int_equal(inside[0], 0);
        assert_int_equal(inside[1], 0);
        if (round != 1) assert_int_equal(count_open(3), 3);
        (void)count_open(2);
        (void)count_open(4);
    }
    free_rig(&own);
    assert_int_equal(count_open(3), 3);
}

static volatile sig_atomic_t handled;

static void handle(int number) {
    (void)number;
    handled++;
}

/* To this thread: one for the process could go to OpenMP's threads of an earlier test. */
static yoke_status send_signal(int replica, void *seen) {
    if (replica > 0) return YOKE_OK;
    raise(SIGUSR1);
    *(int *)seen = handled;
    return YOKE_OK;
}

static void a_signal_within_a_call_is_handled_at_its_end(void **state) {
    (void)state;
    struct sigaction action = {.sa_handler = handle}, before;
    rig own = make_rig("2xcpu", 1);
    int seen = -1;
    handled = 0;
    sigaction(SIGUSR1, &action, &before);
    EXPECT_OK(yoke_parallel_apply(own.parallel, send_signal, &seen));
    sigaction(SIGUSR1, &before, NULL);
    assert_int_equal(seen, 0);
    assert_int_equal(handled, 1);
    free_rig(&own);
}

static void a_mask_that_blocks_everything_stays_as_it_is(void **state) {
    (void)state;
    sigset_t all, before, after;
    rig own = make_rig("cpu", 1);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    yoke_status status = yoke_data_parallel_step(own.parallel, &own.batch.batch, 0.1, NULL);
    pthread_sigmask(SIG_SETMASK, &before, &after);
    EXPECT_OK(status);
    assert_int_equal(sigismember(&after, SIGSEGV), 1);
    assert_int_equal(sigismember(&after, SIGALRM), 1);
    free_rig(&own);
}

/* Two threads. */

typedef struct visit {
    rig *own;
    atomic_bool inside, seen;
    yoke_status status;
    char text[200];
} visit;

static yoke_status hold(int replica, void *context) {
    visit *v = context;
    if (replica > 0) return YOKE_OK;
    atomic_store(&v->inside, true);
    while (!atomic_load(&v->seen))
        sched_yield();
    return YOKE_OK;
}

static void *intrude(void *context) {
    visit *v = context;
    while (!atomic_load(&v->inside))
        sched_yield();
    v->status = yoke_data_parallel_step(v->own->parallel, &v->own->batch.batch, 0.1, NULL);
    snprintf(v->text, sizeof v->text, "%s", yoke_last_error());
    atomic_store(&v->seen, true);
    return NULL;
}

static void a_second_thread_inside_an_engine_is_refused(void **state) {
    (void)state;
    for (int devices = 1; devices <= 2; devices++) {
        rig own = make_rig(devices == 1 ? "cpu" : "2xcpu", 1);
        visit v = {.own = &own};
        pthread_t second;
        uint64_t before, after;
        EXPECT_OK(yoke_data_parallel_hash(own.parallel, &before));
        assert_int_equal(pthread_create(&second, NULL, intrude, &v), 0);
        EXPECT_OK(yoke_parallel_apply(own.parallel, hold, &v));
        pthread_join(second, NULL);
        assert_int_equal(v.status, YOKE_ERROR_ARGUMENT);
        assert_non_null(strstr(v.text, "another thread is inside this engine"));
        EXPECT_OK(yoke_data_parallel_hash(own.parallel, &after));
        assert_true(before == after);
        free_rig(&own);
    }
}

static void *visit_later(void *context) {
    visit *v = context;
    v->status = yoke_data_parallel_step(v->own->parallel, &v->own->batch.batch, 0.1, NULL);
    return NULL;
}

static void threads_may_take_turns(void **state) {
    (void)state;
    rig own = make_rig("2xcpu", 2);
    for (int turn = 0; turn < 3; turn++) {
        visit v = {.own = &own};
        pthread_t other;
        assert_int_equal(pthread_create(&other, NULL, visit_later, &v), 0);
        pthread_join(other, NULL);
        assert_int_equal(v.status, YOKE_OK);
        EXPECT_OK(yoke_data_parallel_step(own.parallel, &own.batch.batch, 0.1, NULL));
    }
    free_rig(&own);
}

/* The engine is bound to the test's thread. */
static void a_bound_engine_refuses_other_threads_until_released(void **state) {
    (void)state;
    rig own = make_rig("2xcpu", 1);
    visit v = {.own = &own};
    pthread_t other;
    EXPECT_OK(yoke_data_parallel_bind(own.parallel));
    assert_int_equal(pthread_create(&other, NULL, visit_later, &v), 0);
    pthread_join(other, NULL);
    assert_int_equal(v.status, YOKE_ERROR_ARGUMENT);
    EXPECT_OK(yoke_data_parallel_step(own.parallel, &own.batch.batch, 0.1, NULL));
    yoke_data_parallel_unbind(own.parallel);
    assert_int_equal(pthread_create(&other, NULL, visit_later, &v), 0);
    pthread_join(other, NULL);
    assert_int_equal(v.status, YOKE_OK);
    free_rig(&own);
}

/* A forked child. */

static bool refused(yoke_status status) {
    return status == YOKE_ERROR_ARGUMENT && strstr(yoke_last_error(), "forked child") != NULL;
}

static int child(rig *own, yoke_loader *loader) {
    uint64_t hash;
    yoke_batch batch = {.struct_size = sizeof batch};
    if (!refused(yoke_data_parallel_step(own->parallel, &own->batch.batch, 0.1, NULL))) return 1;
    if (!refused(yoke_data_parallel_hash(own->parallel, &hash))) return 2;
    if (!refused(yoke_data_parallel_bind(own->parallel))) return 3;
    if (!refused(yoke_loader_begin(loader, 1))) return 4;
    if (!refused(yoke_loader_next(loader, &batch, NULL))) return 5;
    yoke_loader_destroy(loader);
    yoke_data_parallel_destroy(own->parallel);
    return 0;
}

/* OpenMP would wait for threads that the child has not. */
static int child_with_an_engine_of_its_own(rig *own, int threads) {
    yoke_devices_options open = {
        .struct_size = sizeof open, .list = "cpu", .threads = threads, .unbound = true};
    rig made = *own;
    if (yoke_devices_open(&made.devices, &open) != YOKE_OK) return 6;
    yoke_status status =
        yoke_data_parallel_create(&made.parallel, made.model, made.devices, NULL, &options);
    if (threads > 1 && (status != YOKE_ERROR_SYSTEM || !strstr(yoke_last_error(), "threads 1")))
        return 7;
    if (threads == 1 && status != YOKE_OK) return 8;
    if (threads == 1 && step_well(&made) == NULL) return 9;
    yoke_data_parallel_destroy(made.parallel);
    yoke_devices_close(made.devices);
    return 0;
}

static void expect_child_to_end_well(int threads) {
    rig own = make_rig("2xcpu", threads);
    yoke_dataset *dataset = NULL;
    yoke_loader *loader = NULL;
    yoke_loader_options load = {.struct_size = sizeof load, .batch = 4, .threads = 2};
    EXPECT_OK(yoke_dataset_open(&dataset, "synthetic:1x8x8", YOKE_SPLIT_TRAIN));
    EXPECT_OK(yoke_loader_create(&loader, dataset, &load));
    EXPECT_OK(yoke_loader_begin(loader, 0));
    /* Until the loader has filled its buffers: AddressSanitizer's allocator, unlike glibc's, stays
     * locked in the child when another thread allocates during the fork. */
    usleep(300000);
    pid_t pid = fork();
    if (pid == 0) {
        alarm(SECONDS / 2);
        int failed = child(&own, loader);
        _exit(failed ? failed : child_with_an_engine_of_its_own(&own, threads));
    }
    int status = 0;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
    EXPECT_OK(yoke_data_parallel_step(own.parallel, &own.batch.batch, 0.1, NULL));
    yoke_loader_destroy(loader);
    yoke_dataset_close(dataset);
    free_rig(&own);
}

static void a_forked_child_gets_a_status(void **state) {
    (void)state;
    expect_child_to_end_well(1);
}

static void a_forked_child_of_several_compute_threads_gets_a_status(void **state) {
    (void)state;
    NEEDS_TEAMS();
    expect_child_to_end_well(2);
}

/* Its one thread has the number of the thread that is inside the engine. */
static yoke_status fork_inside(int replica, void *context) {
    rig *own = context;
    uint64_t hash;
    if (replica > 0) return YOKE_OK;
    pid_t pid = fork();
    if (pid == 0) {
        alarm(SECONDS / 2);
        _exit(refused(yoke_data_parallel_hash(own->parallel, &hash)) ? 0 : 1);
    }
    int status = 0;
    bool ended = waitpid(pid, &status, 0) == pid && WIFEXITED(status);
    return ended && WEXITSTATUS(status) == 0 ? YOKE_OK : YOKE_ERROR_INTERNAL;
}

static void a_fork_inside_a_callback_gets_a_status(void **state) {
    (void)state;
    rig own = make_rig("2xcpu", 1);
    EXPECT_OK(yoke_parallel_apply(own.parallel, fork_inside, &own));
    EXPECT_OK(yoke_data_parallel_step(own.parallel, &own.batch.batch, 0.1, NULL));
    free_rig(&own);
}

int main(int count, char **words) {
    (void)count;
    if (getenv("OMP_NUM_THREADS") == NULL) { /* OpenMP reads it once, before main */
        setenv("OMP_NUM_THREADS", "16", 1);
        execv("/proc/self/exe", words);
        return 1;
    }
    omp_set_num_threads(16);
    alarm(SECONDS); /* a deadlock ends the test */
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(public_calls_leave_no_thread_behind),
        cmocka_unit_test(destroy_ends_the_compute_threads),
        cmocka_unit_test(a_thread_that_cannot_start_is_a_status),
        cmocka_unit_test(another_caller_without_threads_gets_a_status),
        cmocka_unit_test(a_thread_with_the_number_of_an_ended_one_has_no_threads_yet),
        cmocka_unit_test(an_engine_survives_the_end_of_another_on_its_thread),
        cmocka_unit_test(no_thread_that_computes_takes_a_signal_and_the_programs_own_do_again),
        cmocka_unit_test(a_signal_within_a_call_is_handled_at_its_end),
        cmocka_unit_test(a_mask_that_blocks_everything_stays_as_it_is),
        cmocka_unit_test(a_bound_engine_refuses_other_threads_until_released),
        cmocka_unit_test(a_second_thread_inside_an_engine_is_refused),
        cmocka_unit_test(threads_may_take_turns),
        cmocka_unit_test(a_forked_child_gets_a_status),
        cmocka_unit_test(a_forked_child_of_several_compute_threads_gets_a_status),
        cmocka_unit_test(a_fork_inside_a_callback_gets_a_status),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
