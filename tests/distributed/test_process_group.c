/* SPDX-License-Identifier: Apache-2.0 */
/* A process group consists of ranks that met, checks its arguments, and once broken says why.
 * The transports' own tests check what they compute. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "distributed/transports.h"

#define PATIENT_MS 600000

/* A transport that counts its calls and fails when told to. */
static int calls;
static yoke_status answer;

static yoke_status reply(void) {
    calls++;
    return answer == YOKE_OK ? YOKE_OK : FAIL(answer, "rank 2 did not come");
}

static yoke_status fake_barrier(yoke_process_group *group) {
    (void)group;
    return reply();
}

static yoke_status fake_one(yoke_process_group *group, void *buffer, const yoke_reduce_call *call) {
    (void)group, (void)buffer, (void)call;
    return reply();
}

static yoke_status fake_two(yoke_process_group *group, void *to, const void *from,
                            const yoke_reduce_call *call) {
    (void)group, (void)to, (void)from, (void)call;
    return reply();
}

static yoke_status fake_allocate(yoke_process_group *group, size_t bytes, void **memory) {
    (void)group, (void)bytes, (void)memory;
    return reply();
}

static yoke_status fake_all_reduce_async(yoke_process_group *group, float *buffer, size_t count,
                                         const yoke_rank_blocks *blocks) {
    (void)group, (void)buffer, (void)count, (void)blocks;
    return reply();
}

static yoke_status fake_progress(yoke_process_group *group, bool wait) {
    (void)group, (void)wait;
    return reply();
}

static yoke_process_group fake_group(void) {
    calls = 0;
    answer = YOKE_OK;
    return (yoke_process_group){.rank = 1,
                                .process = getpid(),
                                .world = 3,
                                .barrier = fake_barrier,
                                .broadcast = fake_one,
                                .reduce = fake_one,
                                .all_gather = fake_two,
                                .reduce_scatter = fake_two,
                                .scatter = fake_two,
                                .allocate = fake_allocate,
                                .all_reduce_async = fake_all_reduce_async,
                                .progress = fake_progress};
}

enum { CALLS = 12 };

/* Every call of the door, with one buffer, count, element and root. */
static yoke_status call_with(int which, yoke_process_group *group, void *data, yoke_element element,
                             int root) {
    void *memory;
    switch (which) {
    case 0:
        return yoke_process_group_barrier(group);
    case 1:
        return yoke_process_group_broadcast(group, data, 2, element, root);
    case 2:
        return yoke_process_group_all_reduce(group, data, 2, element, YOKE_SUM);
    case 3:
        return yoke_process_group_reduce(group, data, 2, element, YOKE_MAX, root);
    case 4:
        return yoke_process_group_all_gather(group, data, data, 2, element);
    case 5:
        return yoke_process_group_reduce_scatter(group, data, data, 2, element, YOKE_MEAN);
    case 6:
        return yoke_process_group_gather(group, data, data, 2, element, root);
    case 7:
        return yoke_process_group_scatter(group, data, data, 2, element, root);
    case 8:
        return yoke_process_group_allocate(group, 8, &memory);
    case 9:
        return yoke_process_group_all_reduce_async(group, data, 2);
    case 10:
        return yoke_process_group_progress(group);
    default:
        return yoke_process_group_wait(group);
    }
}

static yoke_status call(int which, yoke_process_group *group, float *data, int root) {
    return call_with(which, group, data, YOKE_ELEMENT_FLOAT32, root);
}

static void every_call_reaches_the_transport(void **state) {
    (void)state;
    yoke_process_group group = fake_group();
    float data[6] = {0};
    for (int which = 0; which < CALLS; which++)
        assert_int_equal(call(which, &group, data, 1), YOKE_OK);
    assert_int_equal(calls, CALLS);
}

static void a_broken_group_returns_its_cause_from_every_call(void **state) {
    (void)state;
    float data[6] = {0};
    for (int first = 0; first < CALLS; first++) {
        yoke_process_group group = fake_group();
        answer = YOKE_ERROR_IO;
        assert_int_equal(call(first, &group, data, 1), YOKE_ERROR_IO);
        answer = YOKE_OK;
        for (int which = 0; which < CALLS; which++) {
            FAIL(YOKE_ERROR_DATA, "another text");
            assert_int_equal(call(which, &group, data, 1), YOKE_ERROR_PEER);
            assert_string_equal(yoke_last_error(),
                                "the process group is broken: rank 2 did not come");
        }
        assert_int_equal(calls, 1);
    }
}

static void impossible_calls_reach_nobody_and_break_nothing(void **state) {
    (void)state;
    yoke_process_group group = fake_group();
    float data[6] = {0};
    const int rooted[] = {1, 3, 6, 7}, buffered[] = {1, 2, 3, 4, 5, 7, 9};
    enum { FIRST_WITH_ELEMENT = 1, LAST_WITH_ELEMENT = 7, FOREIGN = 4 };
    const int foreign[FOREIGN] = {YOKE_ELEMENT_INT32, YOKE_ELEMENT_UINT8, YOKE_ELEMENT_UINT8 + 1,
                                  -1};
    for (int i = 0; i < 4; i++) {
        assert_int_equal(call(rooted[i], &group, data, 3), YOKE_ERROR_ARGUMENT);
        assert_non_null(strstr(yoke_last_error(), "root is 3"));
        assert_int_equal(call(rooted[i], &group, data, -1), YOKE_ERROR_ARGUMENT);
    }
    for (int i = 0; i < 7; i++)
        assert_int_equal(call(buffered[i], &group, NULL, 1), YOKE_ERROR_ARGUMENT);
    for (int which = 0; which < CALLS; which++)
        assert_int_equal(call(which, NULL, data, 1), YOKE_ERROR_ARGUMENT);
    assert_int_equal(
        yoke_process_group_all_reduce(&group, data, SIZE_MAX / 8, YOKE_ELEMENT_INT64, YOKE_SUM),
        YOKE_ERROR_ARGUMENT);
    for (int i = 0; i < FOREIGN; i++) {
        for (int which = FIRST_WITH_ELEMENT; which <= LAST_WITH_ELEMENT; which++) {
            char expected[40];
            snprintf(expected, sizeof expected, "element is %d: collectives", foreign[i]);
            yoke_status status = call_with(which, &group, data, (yoke_element)foreign[i], 1);
            assert_int_equal(status, YOKE_ERROR_ARGUMENT);
            assert_non_null(strstr(yoke_last_error(), expected));
        }
    }
    assert_int_equal(
        yoke_process_group_all_reduce(&group, data, 1, YOKE_ELEMENT_INT64, (yoke_reduction)4),
        YOKE_ERROR_ARGUMENT);
    assert_int_equal(calls, 0);
    /* No element, no buffer. */
    assert_int_equal(yoke_process_group_all_reduce(&group, NULL, 0, YOKE_ELEMENT_INT64, YOKE_SUM),
                     YOKE_OK);
    /* The root's side alone is looked at where it alone is used. */
    assert_int_equal(yoke_process_group_gather(&group, NULL, data, 1, YOKE_ELEMENT_FLOAT32, 0),
                     YOKE_OK);
    assert_int_equal(yoke_process_group_scatter(&group, data, NULL, 1, YOKE_ELEMENT_FLOAT32, 0),
                     YOKE_OK);
    assert_int_equal(calls, 3);
}

/* Where the ranks meet. */

typedef struct place_case {
    yoke_process_group_options options;
    const char *begins;
} place_case;

static void ranks_meet_where_they_can_all_find(void **state) {
    (void)state;
    const place_case cases[] = {
        {{.store = "file:///a/b",
          .rank = &(yoke_rank_info){.world = 2, .local_world = 2, .port = 1}},
         "file:///a/b"},
        {{.rank = &(yoke_rank_info){.world = 1, .local_world = 1, .address = "head", .port = 7}},
         "alone://"},
        {{.rank = &(yoke_rank_info){.world = 2, .local_world = 2, .address = "head", .port = 7}},
         "meet://yoke-"},
        {{.rank = &(yoke_rank_info){.world = 2, .local_world = 2, .address = "head", .port = 7},
          .token = "secret"},
         "tcp://head:7"},
        {{.rank = &(yoke_rank_info){.world = 4, .local_world = 2, .address = "head", .port = 7}},
         "tcp://head:7"},
        {{.rank = &(yoke_rank_info){.world = 4, .local_world = 2, .address = "fe80::1", .port = 7}},
         "tcp://[fe80::1]:7"},
        {{.rank =
              &(yoke_rank_info){.world = 4, .local_world = 2, .address = "head", .run_id = "r"}},
         "tcp://head:2"},
        {{.rank = &(yoke_rank_info){.world = 2, .local_world = 2, .address = "file:///run/a"}},
         "file:///run/a"},
        {{.rank = &(yoke_rank_info){.world = 2, .local_world = 2, .run_id = "r"}}, "meet://yoke-"},
        {{.rank = &(yoke_rank_info){.world = 2, .local_world = 2}}, "meet://yoke-"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        yoke_store_place place, again;
        assert_int_equal(yoke_store_place_choose(&place, &cases[i].options), YOKE_OK);
        if (strncmp(place.address, cases[i].begins, strlen(cases[i].begins)) != 0)
            fail_msg("case %zu: %s", i, place.address);
        yoke_process_group_options other = cases[i].options;
        yoke_rank_info rank = *other.rank;
        rank.rank = 1;
        other.rank = &rank;
        assert_int_equal(yoke_store_place_choose(&again, &other), YOKE_OK);
        assert_string_equal(place.address, again.address);
        assert_string_equal(place.run_id, again.run_id);
    }
}

static void runs_meet_apart(void **state) {
    (void)state;
    yoke_rank_info ranks[2] = {{.world = 2, .local_world = 2, .run_id = "one"},
                               {.world = 2, .local_world = 2, .run_id = "two"}};
    const yoke_process_group_options one = {.rank = &ranks[0]}, two = {.rank = &ranks[1]};
    yoke_store_place places[2];
    for (int i = 0; i < 2; i++) {
        assert_int_equal(yoke_store_place_choose(&places[0], &one), YOKE_OK);
        assert_int_equal(yoke_store_place_choose(&places[1], &two), YOKE_OK);
        assert_string_not_equal(places[0].address, places[1].address);
        ranks[0].local_world = ranks[1].local_world = 1;
        strcpy(ranks[0].address, "head");
        strcpy(ranks[1].address, "head");
    }
}

static void a_missing_store_address_is_reported(void **state) {
    (void)state;
    yoke_rank_info rank = {.world = 4, .local_world = 2};
    const yoke_process_group_options options = {.rank = &rank};
    yoke_store_place place;
    assert_int_equal(yoke_store_place_choose(&place, &options), YOKE_ERROR_ARGUMENT);
    assert_non_null(strstr(yoke_last_error(), "MASTER_ADDR"));
    strcpy(rank.address, "head");
    assert_int_equal(yoke_store_place_choose(&place, &options), YOKE_ERROR_ARGUMENT);
    assert_non_null(strstr(yoke_last_error(), "MASTER_PORT"));
}

/* Groups. */

static void a_missing_transport_is_reported_before_any_rank_waits(void **state) {
    (void)state;
    const yoke_devices_options cpu = {.struct_size = sizeof cpu, .list = "cpu"};
    yoke_devices *some;
    assert_int_equal(yoke_devices_open(&some, &cpu), YOKE_OK);
    const struct {
        yoke_transport transport;
        yoke_devices *devices;
        yoke_status status;
        const char *says;
    } cases[] = {
        {YOKE_TRANSPORT_MPI, NULL, YOKE_ERROR_DEVICE, "no MPI"},
        {YOKE_TRANSPORT_NCCL, NULL, YOKE_ERROR_ARGUMENT, "options.devices"},
        {YOKE_TRANSPORT_NCCL, some, YOKE_ERROR_DEVICE, "cpu:0: only GPUs have communicators"},
        {(yoke_transport)9, NULL, YOKE_ERROR_ARGUMENT, "transport is 9"}};
    const yoke_rank_info rank = {.struct_size = sizeof rank, .rank = 1, .world = 2};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        if (cases[i].transport == YOKE_TRANSPORT_MPI && yoke_mpi_check() == YOKE_OK) continue;
        yoke_process_group_options options = {.struct_size = sizeof options,
                                              .rank = &rank,
                                              .transport = cases[i].transport,
                                              .devices = cases[i].devices};
        yoke_process_group *group;
        assert_int_equal(yoke_process_group_create(&group, &options), cases[i].status);
        assert_null(group);
        assert_non_null(strstr(yoke_last_error(), cases[i].says));
    }
    yoke_devices_close(some);
}

static void impossible_options_are_refused(void **state) {
    (void)state;
    yoke_process_group *group;
    yoke_rank_info rank = {.struct_size = sizeof rank, .rank = 2, .world = 2};
    yoke_process_group_options options = {.struct_size = sizeof options, .rank = &rank};
    assert_int_equal(yoke_process_group_create(&group, &options), YOKE_ERROR_ARGUMENT);
    assert_non_null(strstr(yoke_last_error(), "rank 2 of a world of 2"));
    rank.struct_size = 0;
    assert_int_equal(yoke_process_group_create(&group, &options), YOKE_ERROR_ARGUMENT);
    assert_non_null(strstr(yoke_last_error(), "yoke_rank_info.struct_size"));
    options.rank = NULL;
    options.timeout_ms = -1;
    assert_int_equal(yoke_process_group_create(&group, &options), YOKE_ERROR_ARGUMENT);
    options = (yoke_process_group_options){0};
    assert_int_equal(yoke_process_group_create(&group, &options), YOKE_ERROR_ARGUMENT);
    assert_non_null(strstr(yoke_last_error(), "struct_size"));
    assert_int_equal(yoke_process_group_create(NULL, &options), YOKE_ERROR_ARGUMENT);
    yoke_process_group_destroy(NULL);
}

static void one_process_alone_is_a_group(void **state) {
    (void)state;
    yoke_process_group *group;
    float value = 3;
    if (yoke_process_group_create(&group, NULL) != YOKE_OK) fail_msg("%s", yoke_last_error());
    assert_int_equal(yoke_process_group_rank(group), 0);
    assert_int_equal(yoke_process_group_world(group), 1);
    assert_string_equal(yoke_process_group_transport(group), "shared memory");
    assert_int_equal(
        yoke_process_group_all_reduce(group, &value, 1, YOKE_ELEMENT_FLOAT32, YOKE_SUM), YOKE_OK);
    assert_true(value == 3);
    yoke_process_group_destroy(group);
}

typedef struct member {
    yoke_rank_info rank;
    yoke_process_group_options options;
    pthread_t thread;
    int64_t sum;
    yoke_error error;
} member;

static void *run_member(void *context) {
    member *one = context;
    yoke_process_group *group;
    one->sum = one->rank.rank + 1;
    yoke_status status = yoke_process_group_create(&group, &one->options);
    if (status == YOKE_OK)
        status = yoke_process_group_all_reduce(group, &one->sum, 1, YOKE_ELEMENT_INT64, YOKE_SUM);
    one->error = yoke_error_take(status);
    yoke_process_group_destroy(group);
    return NULL;
}

static void run_members(member *members, int count) {
    for (int i = 0; i < count; i++)
        assert_int_equal(pthread_create(&members[i].thread, NULL, run_member, &members[i]), 0);
    for (int i = 0; i < count; i++)
        pthread_join(members[i].thread, NULL);
}

static void ranks_of_one_machine_become_a_group_without_a_port(void **state) {
    (void)state;
    member members[3] = {0};
    for (int i = 0; i < 3; i++) {
        members[i].rank =
            (yoke_rank_info){.struct_size = sizeof(yoke_rank_info), .rank = i, .world = 3};
        members[i].options = (yoke_process_group_options){.struct_size = sizeof members[i].options,
                                                          .rank = &members[i].rank,
                                                          .timeout_ms = PATIENT_MS};
        snprintf(members[i].rank.run_id, sizeof members[i].rank.run_id, "test-%ld", (long)getpid());
    }
    run_members(members, 3);
    for (int i = 0; i < 3; i++) {
        if (members[i].error.status != YOKE_OK) fail_msg("%s", members[i].error.text);
        assert_int_equal(members[i].sum, 6);
    }
    yoke_store_place place;
    members[0].rank.local_world = 3;
    assert_int_equal(yoke_store_place_choose(&place, &members[0].options), YOKE_OK);
    assert_int_equal(access(place.address + strlen("file://"), F_OK), -1);
}

static void a_group_that_never_fills_names_who_is_missing(void **state) {
    (void)state;
    char folder[64] = "/tmp/yoke-group-XXXXXX", address[80];
    assert_non_null(mkdtemp(folder));
    snprintf(address, sizeof address, "file://%s", folder);
    member members[2] = {0};
    for (int i = 0; i < 2; i++) {
        members[i].rank =
            (yoke_rank_info){.struct_size = sizeof(yoke_rank_info), .rank = i, .world = 3};
        members[i].options = (yoke_process_group_options){.struct_size = sizeof members[i].options,
                                                          .rank = &members[i].rank,
                                                          .store = address,
                                                          .timeout_ms = 2000};
    }
    run_members(members, 2);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(members[i].error.status, YOKE_ERROR_TIMEOUT);
        if (strstr(members[i].error.text, "rank 2; were they started?") == NULL)
            fail_msg("%s", members[i].error.text);
    }
    assert_int_equal(access(folder, F_OK), -1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_call_reaches_the_transport),
        cmocka_unit_test(a_broken_group_returns_its_cause_from_every_call),
        cmocka_unit_test(impossible_calls_reach_nobody_and_break_nothing),
        cmocka_unit_test(ranks_meet_where_they_can_all_find),
        cmocka_unit_test(runs_meet_apart),
        cmocka_unit_test(a_missing_store_address_is_reported),
        cmocka_unit_test(a_missing_transport_is_reported_before_any_rank_waits),
        cmocka_unit_test(impossible_options_are_refused),
        cmocka_unit_test(one_process_alone_is_a_group),
        cmocka_unit_test(ranks_of_one_machine_become_a_group_without_a_port),
        cmocka_unit_test(a_group_that_never_fills_names_who_is_missing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
