/* SPDX-License-Identifier: Apache-2.0 */
/* A rank as an outside program writes it: adds 10^rank + the argument over all ranks; rank 0
 * prints the sum. tests/cli/test_launch.py starts it. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "yoke/distributed.h"

static const char *look_up(const char *name, void *payload) {
    (void)payload;
    return getenv(name);
}

static yoke_status add(int64_t own, int *rank, int64_t *sum) {
    yoke_rank_info info = {.struct_size = sizeof info};
    yoke_process_group_options options = {.struct_size = sizeof options,
                                          .rank = &info,
                                          .token = getenv("YOKE_RDZV_TOKEN"),
                                          .timeout_ms = 20000};
    yoke_process_group *group = NULL;
    yoke_status status = yoke_rank_detect(&info, look_up, NULL);
    if (status == YOKE_OK) status = yoke_process_group_create(&group, &options);
    if (status != YOKE_OK) return status;
    *rank = info.rank;
    *sum = own + 1;
    for (int i = 0; i < *rank; i++)
        *sum += 9 * (*sum - own);
    status = yoke_process_group_all_reduce(group, sum, 1, YOKE_ELEMENT_INT64, YOKE_SUM);
    yoke_process_group_destroy(group);
    return status;
}

int main(int count, char **words) {
    int rank = 0;
    int64_t sum = 0;
    yoke_status status = add(count > 1 ? atoll(words[1]) : 0, &rank, &sum);
    if (status != YOKE_OK) fprintf(stderr, "%s\n", yoke_last_error());
    if (status == YOKE_OK && rank == 0) printf("%" PRId64 "\n", sum);
    return yoke_status_exit_code(status);
}
