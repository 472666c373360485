/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks with a GPU each disagree, fail to come or share a GPU: every rank ends with an error
 * that says why. */
#include "device/collectives.h"
#include "gpu_ranks.h"

/* Ranks that differ. */

typedef struct refusal {
    yoke_status (*mistake)(yoke_process_group *group, float *gpu, float *host);
    const char *left, *right; /* in every rank's text */
} refusal;

static yoke_status other_count(yoke_process_group *group, float *gpu, float *host) {
    (void)host;
    return yoke_process_group_all_reduce(group, gpu, group->rank == 1 ? 99 : 100,
                                         YOKE_ELEMENT_FLOAT32, YOKE_SUM);
}

static yoke_status other_call(yoke_process_group *group, float *gpu, float *host) {
    (void)host;
    if (group->rank == 1) return yoke_process_group_barrier(group);
    return yoke_process_group_broadcast(group, gpu, 100, YOKE_ELEMENT_FLOAT32, 0);
}

static yoke_status other_memory(yoke_process_group *group, float *gpu, float *host) {
    return yoke_process_group_all_reduce(group, group->rank == 1 ? host : gpu, 100,
                                         YOKE_ELEMENT_FLOAT32, YOKE_SUM);
}

static yoke_status mixed_memory(yoke_process_group *group, float *gpu, float *host) {
    return yoke_process_group_all_gather(group, gpu, group->rank == 1 ? host : gpu + 500, 10,
                                         YOKE_ELEMENT_FLOAT32);
}

static yoke_status another_start(yoke_process_group *group, float *gpu, float *host) {
    (void)host;
    TRY(yoke_process_group_all_reduce_async(group, gpu, 0));
    if (group->rank == 1) TRY(yoke_process_group_all_reduce_async(group, gpu, 0));
    return yoke_process_group_barrier(group);
}

static yoke_status make_mistake(yoke_process_group *group, const script *play) {
    const refusal *expected = play->detail;
    yoke_device *device = gpu_of(play, group->rank);
    float host[1000] = {0};
    void *gpu = NULL;
    TRY(yoke_device_allocate(device, sizeof host, "a test", &gpu));
    yoke_status status = expected->mistake(group, gpu, host);
    yoke_error first = yoke_error_take(status);
    if (status != YOKE_ERROR_ARGUMENT || yoke_process_group_barrier(group) != YOKE_ERROR_PEER)
        first = yoke_error_take(FAIL(YOKE_ERROR_INTERNAL, "a mistake ended with %s: %s",
                                     yoke_status_name(status), first.text));
    yoke_device_free(device, gpu);
    return yoke_error_restore(&first);
}

static void every_rank_reports_a_difference_between_ranks(void **state) {
    (void)state;
    static const refusal refusals[] = {
        {other_count, "rank 0 called all_reduce of 100 float32, sum",
         "rank 1 called all_reduce of 99 float32, sum"},
        {other_call, "rank 0 called broadcast of 100 float32, root 0", "rank 1 called barrier"},
        {other_memory, "rank 0 called all_reduce with device memory", "rank 1 with host memory"},
        {mixed_memory, "rank 1 called all_gather", "two kinds"},
        {another_start, "rank 0 made 1 calls", "rank 1 2 calls with 0"},
    };
    if (most_gpu_ranks() < 2) skip();
    int world = most_gpu_ranks() < 3 ? 2 : 3;
    for (size_t i = 0; i < sizeof refusals / sizeof refusals[0]; i++) {
        outcome *outcomes = play_gpus((script){.world = world,
                                               .timeout_ms = TIMEOUT_MS,
                                               .scene = make_mistake,
                                               .detail = &refusals[i]});
        for (int rank = 0; rank < world; rank++) {
            if (outcomes[rank].error.status != YOKE_ERROR_ARGUMENT ||
                strstr(outcomes[rank].error.text, refusals[i].left) == NULL ||
                strstr(outcomes[rank].error.text, refusals[i].right) == NULL)
                fail_msg("%zu, rank %d: %s", i, rank, outcomes[rank].error.text);
        }
        free(outcomes);
    }
}

static yoke_status start_on_host(yoke_process_group *group, const script *play) {
    float host[10] = {0};
    (void)play;
    return yoke_process_group_all_reduce_async(group, host, 10);
}

static void a_start_of_host_memory_is_refused(void **state) {
    (void)state;
    outcome *outcomes =
        play_gpus((script){.world = 1, .timeout_ms = TIMEOUT_MS, .scene = start_on_host});
    assert_int_equal(outcomes[0].error.status, YOKE_ERROR_ARGUMENT);
    assert_non_null(strstr(outcomes[0].error.text, "memory of cuda:0"));
    free(outcomes);
}

/* Each rank reduces the memory at its place in `shared`. */
static yoke_status reduce_anothers(yoke_process_group *group, const script *play) {
    float *const *memory = play->shared;
    return yoke_process_group_all_reduce(group, memory[group->rank], 100, YOKE_ELEMENT_FLOAT32,
                                         YOKE_SUM);
}

static void memory_of_another_gpu_is_refused(void **state) {
    (void)state;
    if (most_gpu_ranks() < 2) skip();
    gpu_ranks gpus;
    float *memory[2];
    float zeros[100] = {0};
    open_gpus(&gpus, 2);
    for (int rank = 0; rank < 2; rank++)
        memory[1 - rank] = device_copy_of(yoke_devices_at(gpus.devices[rank], 0), zeros, 400);
    outcome *outcomes = play_threads(&(script){.world = 2,
                                               .timeout_ms = TIMEOUT_MS,
                                               .scene = reduce_anothers,
                                               .devices = gpus.devices,
                                               .shared = memory});
    for (int rank = 0; rank < 2; rank++) {
        assert_int_equal(outcomes[rank].error.status, YOKE_ERROR_ARGUMENT);
        yoke_device_free(yoke_devices_at(gpus.devices[rank], 0), memory[1 - rank]);
    }
    free(outcomes);
    close_gpus(&gpus);
}

/* Ranks that do not come. */

static yoke_status stay_away(yoke_process_group *group, const script *play) {
    const bool *started = play->detail;
    yoke_device *device = gpu_of(play, group->rank);
    void *gpu = NULL;
    if (group->rank == 1) {
        usleep(1500000);
        return YOKE_OK;
    }
    TRY(yoke_device_allocate(device, 400, "a test", &gpu));
    yoke_status status =
        *started ? yoke_process_group_all_reduce_async(group, gpu, 100)
                 : yoke_process_group_all_reduce(group, gpu, 100, YOKE_ELEMENT_FLOAT32, YOKE_SUM);
    if (status == YOKE_OK) status = yoke_process_group_synchronize(group);
    yoke_error error = yoke_error_take(status);
    yoke_device_free(device, gpu);
    return yoke_error_restore(&error);
}

static void the_deadline_names_those_who_did_not_come(void **state) {
    (void)state;
    if (most_gpu_ranks() < 2) skip();
    int world = most_gpu_ranks() < 3 ? 2 : 3;
    for (int started = 0; started < 2; started++) {
        bool detail = started == 1;
        uint64_t begin = yoke_now_ns();
        outcome *outcomes = play_gpus((script){.world = world,
                                               .timeout_ms = 500,
                                               .joining_ms = detail ? TIMEOUT_MS : 500,
                                               .scene = stay_away,
                                               .detail = &detail});
        assert_true(yoke_now_ns() - begin < TIMEOUT_MS / 2 * UINT64_C(1000000));
        for (int rank = 0; rank < world; rank += 2) {
            if (outcomes[rank].error.status != YOKE_ERROR_TIMEOUT ||
                strstr(outcomes[rank].error.text, "500 ms for rank 1 (") == NULL)
                fail_msg("rank %d: %s", rank, outcomes[rank].error.text);
        }
        free(outcomes);
    }
}

static void a_rank_that_never_joins_is_named(void **state) {
    (void)state;
    gpu_ranks gpus;
    char address[64];
    yoke_peer peers[2] = {{.host = "here", .pid = 1}, {.host = "there", .pid = 2}};
    yoke_store *store;
    yoke_process_group *group;
    open_gpus(&gpus, 1);
    name_store(address, sizeof address);
    EXPECT_OK(yoke_store_create(
        &store,
        &(yoke_store_options){.address = address, .serve = true, .timeout_ms = TIMEOUT_MS}));
    const yoke_process_group_options options = {
        .rank = &(yoke_rank_info){.struct_size = sizeof(yoke_rank_info), .world = 2},
        .devices = gpus.devices[0],
        .timeout_ms = 400};
    const yoke_transport_request request = {.options = &options, .store = store, .peers = peers};
    assert_int_equal(yoke_nccl_group(&group, &request), YOKE_ERROR_TIMEOUT);
    assert_null(group);
    assert_string_equal(yoke_last_error(), "joining: rank 0 waited 400 ms for rank 1 (there:2, on "
                                           "another machine)");
    yoke_store_destroy(store);
    close_gpus(&gpus);
}

static void a_communicator_alone_waits_until_its_own_deadline(void **state) {
    (void)state;
    gpu_ranks gpus;
    uint8_t id[YOKE_COMMUNICATOR_ID_BYTES];
    yoke_communicator *communicator;
    open_gpus(&gpus, 1);
    yoke_device *device = yoke_devices_at(gpus.devices[0], 0);
    EXPECT_OK(yoke_communicator_id(device, id));
    const yoke_communicator_request request = {
        .device = device, .id = id, .world = 2, .timeout_ms = 400};
    uint64_t begin = yoke_now_ns();
    assert_int_equal(yoke_communicator_create(&communicator, &request), YOKE_ERROR_DEVICE);
    assert_true(yoke_now_ns() - begin >= 300000000u);
    assert_null(communicator);
    assert_non_null(strstr(yoke_last_error(), "no answer after 400 ms"));
    close_gpus(&gpus);
}

/* A rank's process gets a signal while another rank waits inside NCCL. The ranks are threads, whose
 * processes seem to be others. */

typedef struct hit_rank {
    int rank, signal;
    pid_t process;
    const char *store;
    yoke_devices *devices;
    pthread_barrier_t *joined, *left;
    yoke_error error;
    pthread_t thread;
} hit_rank;

static yoke_status wait_for_the_hit(const hit_rank *self, yoke_process_group *group) {
    void *gpu = NULL;
    TRY(yoke_device_allocate(yoke_devices_at(self->devices, 0), 400, "a test", &gpu));
    yoke_status status = group->all_reduce_async(group, gpu, 100, NULL);
    if (status == YOKE_OK) status = group->synchronize(group);
    yoke_error error = yoke_error_take(status);
    yoke_device_free(yoke_devices_at(self->devices, 0), gpu);
    group->broken = true;
    return yoke_error_restore(&error);
}

static yoke_status join_and_be_hit(const hit_rank *self) {
    const yoke_store_options options = {
        .address = self->store, .serve = self->rank == 0, .timeout_ms = TIMEOUT_MS};
    const yoke_peer peers[] = {{.host = "here", .pid = getpid()},
                               {.host = "here", .pid = self->process}};
    const yoke_process_group_options group_options = {
        .rank = &(
            yoke_rank_info){.struct_size = sizeof(yoke_rank_info), .rank = self->rank, .world = 2},
        .devices = self->devices,
        .timeout_ms = TIMEOUT_MS};
    yoke_store *store;
    yoke_process_group *group = NULL;
    TRY(yoke_store_create(&store, &options));
    yoke_status status = yoke_nccl_group(
        &group,
        &(yoke_transport_request){.options = &group_options, .store = store, .peers = peers});
    pthread_barrier_wait(self->joined);
    if (status == YOKE_OK) group->timeout_ms = self->signal == SIGKILL ? TIMEOUT_MS : 1500;
    if (status == YOKE_OK && self->rank == 0) status = wait_for_the_hit(self, group);
    if (self->rank == 1) kill(self->process, self->signal);
    yoke_error error = yoke_error_take(status);
    pthread_barrier_wait(self->left); /* a process that is hit leaves nothing in order */
    if (group != NULL) group->destroy(group);
    yoke_store_destroy(store);
    return yoke_error_restore(&error);
}

static void *be_hit(void *context) {
    hit_rank *self = context;
    self->error = yoke_error_take(join_and_be_hit(self));
    return NULL;
}

/* Answers what rank 0 reports when the process of rank 1 gets the signal. */
static yoke_error hit(int signal) {
    gpu_ranks gpus;
    char store[64];
    pthread_barrier_t joined, left;
    hit_rank ranks[2];
    pid_t process = fork();
    if (process == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        for (;;)
            pause();
    }
    open_gpus(&gpus, 2);
    name_store(store, sizeof store);
    pthread_barrier_init(&joined, NULL, 2);
    pthread_barrier_init(&left, NULL, 2);
    for (int rank = 0; rank < 2; rank++) {
        ranks[rank] = (hit_rank){.rank = rank,
                                 .signal = signal,
                                 .process = process,
                                 .store = store,
                                 .devices = gpus.devices[rank],
                                 .joined = &joined,
                                 .left = &left};
        assert_int_equal(pthread_create(&ranks[rank].thread, NULL, be_hit, &ranks[rank]), 0);
    }
    for (int rank = 0; rank < 2; rank++)
        pthread_join(ranks[rank].thread, NULL);
    pthread_barrier_destroy(&joined);
    pthread_barrier_destroy(&left);
    kill(process, SIGKILL);
    assert_int_equal(waitpid(process, NULL, 0), process);
    close_gpus(&gpus);
    return ranks[0].error;
}

static void a_killed_rank_ends_a_wait_inside_nccl_long_before_the_deadline(void **state) {
    (void)state;
    if (most_gpu_ranks() < 2) skip();
    uint64_t begin = yoke_now_ns();
    yoke_error error = hit(SIGKILL);
    assert_true(yoke_now_ns() - begin < TIMEOUT_MS * 1000000ull / 2);
    if (error.status != YOKE_ERROR_PEER ||
        strstr(error.text, "all_reduce_async: rank 0 cannot go on without rank 1 (here:") == NULL)
        fail_msg("%s", error.text);
}

static void a_stopped_rank_ends_a_wait_inside_nccl_at_the_deadline(void **state) {
    (void)state;
    if (most_gpu_ranks() < 2) skip();
    yoke_error error = hit(SIGSTOP);
    if (error.status != YOKE_ERROR_TIMEOUT ||
        strstr(error.text, "waited 1500 ms for rank 1 (here:") == NULL ||
        strstr(error.text, "is stopped") == NULL)
        fail_msg("%s", error.text);
}

static yoke_status never_played(yoke_process_group *group, const script *play) {
    (void)group, (void)play;
    return FAIL(YOKE_ERROR_INTERNAL, "a group was made");
}

static void two_ranks_on_one_gpu_are_refused(void **state) {
    (void)state;
    gpu_ranks gpus;
    open_gpus(&gpus, 1);
    yoke_devices *const same[] = {gpus.devices[0], gpus.devices[0]};
    outcome *outcomes = play_threads(
        &(script){.world = 2, .timeout_ms = TIMEOUT_MS, .scene = never_played, .devices = same});
    for (int rank = 0; rank < 2; rank++) {
        if (outcomes[rank].error.status != YOKE_ERROR_ARGUMENT ||
            strstr(outcomes[rank].error.text, "ranks 0 and 1 of ") == NULL ||
            strstr(outcomes[rank].error.text, " both have GPU-") == NULL)
            fail_msg("rank %d: %s", rank, outcomes[rank].error.text);
    }
    free(outcomes);
    close_gpus(&gpus);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_rank_reports_a_difference_between_ranks),
        cmocka_unit_test(a_start_of_host_memory_is_refused),
        cmocka_unit_test(memory_of_another_gpu_is_refused),
        cmocka_unit_test(the_deadline_names_those_who_did_not_come),
        cmocka_unit_test(a_rank_that_never_joins_is_named),
        cmocka_unit_test(a_communicator_alone_waits_until_its_own_deadline),
        cmocka_unit_test(a_killed_rank_ends_a_wait_inside_nccl_long_before_the_deadline),
        cmocka_unit_test(a_stopped_rank_ends_a_wait_inside_nccl_at_the_deadline),
        cmocka_unit_test(two_ranks_on_one_gpu_are_refused),
    };
    return RUN_ON_DEVICES(tests, NULL, NULL);
}
