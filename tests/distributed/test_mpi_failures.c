/* SPDX-License-Identifier: Apache-2.0 */
/* A rank of test_mpi_failures.py's scenes, in which ranks disagree, fail to come or die. Prints the
 * error it gets, "rank R: STATUS: text", then stays until the others have printed theirs: mpirun
 * ends them all when one leaves without finalizing MPI.
 * usage: test_mpi_failures SCENE STORE */
#include <dlfcn.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "distributed/transports.h"

static const char *look_up(const char *name, void *payload) {
    (void)payload;
    return getenv(name);
}

static yoke_status sum(yoke_process_group *group, size_t count) {
    float values[200] = {0};
    return yoke_process_group_all_reduce(group, values, count, YOKE_ELEMENT_FLOAT32, YOKE_SUM);
}

static yoke_status other_count(yoke_process_group *group) {
    return sum(group, group->rank == 1 ? 99 : 100);
}

static yoke_status other_call(yoke_process_group *group) {
    return group->rank == 1 ? yoke_process_group_barrier(group) : sum(group, 100);
}

static yoke_status other_start(yoke_process_group *group) {
    static float values[200];
    TRY(yoke_process_group_all_reduce_async(group, values, 10));
    TRY(yoke_process_group_all_reduce_async(group, values, group->rank == 1 ? 150 : 200));
    return yoke_process_group_wait(group);
}

/* The others wait in vain; it comes when they are gone, and hears why. */
static yoke_status late(yoke_process_group *group) {
    group->timeout_ms = 500;
    if (group->rank == 1) usleep(1200000);
    return sum(group, 100);
}

static yoke_status late_start(yoke_process_group *group) {
    static float values[100];
    group->timeout_ms = 500;
    if (group->rank == 1) {
        usleep(1200000);
        return YOKE_OK;
    }
    TRY(yoke_process_group_all_reduce_async(group, values, 100));
    return yoke_process_group_wait(group);
}

/* Rank 0 comes later than the deadline, which it may where it runs. */
static yoke_status patient(yoke_process_group *group) {
    group->timeout_ms = 500;
    if (group->rank == 0) usleep(1200000);
    yoke_process_group_patience(group, group->rank > 0);
    return sum(group, 100);
}

/* Rank 1 stops between the last call and MPI_Finalize, in which the others would wait for ever. */
static yoke_status stopped_at_the_end(yoke_process_group *group) {
    group->timeout_ms = 1000;
    TRY(sum(group, 100));
    if (group->rank == 1) raise(SIGSTOP);
    return YOKE_OK;
}

/* MPI's own function, found in the program first: rank 1 stops on its way into MPI. */

static bool stops_in_start;

__attribute__((visibility("default"))) int MPI_Init_thread(int *count, char ***arguments, int level,
                                                           int *provided);

int MPI_Init_thread(int *count, char ***arguments, int level, int *provided) {
    int (*start)(int *, char ***, int, int *);
    void *address = dlsym(RTLD_DEFAULT, "PMPI_Init_thread");
    memcpy(&start, &address, sizeof address);
    if (stops_in_start) raise(SIGSTOP);
    return start(count, arguments, level, provided);
}

static yoke_status killed(yoke_process_group *group) {
    for (int round = 0;; round++) {
        if (round == 100 && group->rank == 1) raise(SIGKILL);
        TRY(sum(group, 100));
    }
}

static yoke_status nothing(yoke_process_group *group) {
    return yoke_process_group_barrier(group);
}

static const struct {
    const char *name;
    yoke_status (*run)(yoke_process_group *group);
} scenes[] = {{"other_count", other_count},
              {"other_call", other_call},
              {"other_start", other_start},
              {"late", late},
              {"late_start", late_start},
              {"patient", patient},
              {"stopped_at_the_end", stopped_at_the_end},
              {"killed", killed},
              {"stopped_in_start", nothing},
              {"wrong_rank", nothing},
              {"alone", nothing}};

/* As a launcher tells it, or not as MPI does. */
static yoke_status detect(const char *scene, yoke_process_group_options *options,
                          yoke_rank_info *rank) {
    TRY(yoke_rank_detect(rank, look_up, NULL));
    options->rank = rank;
    if (strcmp(scene, "wrong_rank") == 0) rank->rank = rank->world - 1 - rank->rank;
    if (strcmp(scene, "stopped_in_start") == 0) {
        options->timeout_ms = 2000;
        stops_in_start = rank->rank == 1;
    }
    if (strcmp(scene, "alone") == 0) {
        options->store = "tcp://127.0.0.1:0";
        *rank = (yoke_rank_info){.struct_size = sizeof *rank, .world = 1};
    }
    return YOKE_OK;
}

static void tell(int rank, yoke_status status) {
    printf("rank %d: %s: %s\n", rank, yoke_status_name(status), yoke_last_error());
    fflush(stdout);
}

static yoke_status play(const char *scene, const char *store) {
    yoke_rank_info rank = {.struct_size = sizeof rank};
    yoke_process_group_options options = {.struct_size = sizeof options,
                                          .transport = YOKE_TRANSPORT_MPI,
                                          .store = store,
                                          .timeout_ms = 10000};
    yoke_process_group *group = NULL;
    TRY(detect(scene, &options, &rank));
    yoke_status status = yoke_process_group_create(&group, &options);
    for (size_t i = 0; i < sizeof scenes / sizeof scenes[0] && status == YOKE_OK; i++) {
        if (strcmp(scenes[i].name, scene) == 0) status = scenes[i].run(group);
    }
    tell(rank.rank, status); /* whoever keeps the store waits in the end for all others */
    yoke_process_group_destroy(group);
    return YOKE_OK;
}

int main(int count, char **arguments) {
    if (yoke_mpi_check() != YOKE_OK) return 77;
    yoke_status status = count > 2 ? play(arguments[1], arguments[2]) : YOKE_ERROR_ARGUMENT;
    if (status != YOKE_OK) tell(-1, status);
    usleep(400000);
    return 0;
}
