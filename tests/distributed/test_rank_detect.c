/* SPDX-License-Identifier: Apache-2.0 */
/* Every launcher's variables become the same few facts; an incomplete set becomes a message that
 * says what to do. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/base.h"
#include "distributed/rendezvous/slurm.h"
#include "yoke/distributed.h"

/* "NAME=value" words, as in an environment. */
typedef const char *const *variables;

static const char *find(const char *name, void *payload) {
    size_t length = strlen(name);
    for (variables each = payload; *each != NULL; each++) {
        if (strncmp(*each, name, length) == 0 && (*each)[length] == '=') return *each + length + 1;
    }
    return NULL;
}

static yoke_status detect(yoke_rank_info *info, variables given) {
    *info = (yoke_rank_info){.struct_size = sizeof *info};
    void *payload;
    memcpy(&payload, &given, sizeof payload);
    return yoke_rank_detect(info, find, payload);
}

typedef struct told_case {
    const char *words[20];
    const char *source;
    int numbers[6]; /* rank, world, local rank, local world, node rank, nodes */
    const char *address;
    int port;
    const char *run_id;
} told_case;

static const told_case told[] = {
    {{NULL}, "", {0, 1, 0, 1, 0, 1}, "", 0, ""},
    {{"HOME=/root", "RANK=", NULL}, "", {0, 1, 0, 1, 0, 1}, "", 0, ""},
    {{"YOKE_RANK=5", "YOKE_WORLD_SIZE=8", "YOKE_LOCAL_RANK=1", "YOKE_LOCAL_WORLD_SIZE=4",
      "YOKE_NODE_RANK=1", "YOKE_NODES=2", "YOKE_MASTER_ADDR=head", "YOKE_MASTER_PORT=29500",
      "YOKE_RUN_ID=abc", "RANK=7", "WORLD_SIZE=9"},
     "yoke launch",
     {5, 8, 1, 4, 1, 2},
     "head",
     29500,
     "abc"},
    {{"YOKE_RANK=2", "YOKE_WORLD_SIZE=3"}, "yoke launch", {2, 3, 2, 3, 0, 1}, "", 0, ""},
    {{"YOKE_RANK=4", "YOKE_WORLD_SIZE=5", "YOKE_NODES=2"},
     "yoke launch",
     {4, 5, 1, 2, 1, 2},
     "",
     0,
     ""},
    {{"RANK=3", "WORLD_SIZE=4", "LOCAL_RANK=1", "LOCAL_WORLD_SIZE=2", "GROUP_RANK=1",
      "GROUP_WORLD_SIZE=2", "ROLE_RANK=3", "ROLE_WORLD_SIZE=4", "MASTER_ADDR=10.0.0.1",
      "MASTER_PORT=29500", "TORCHELASTIC_RUN_ID=none", "TORCHELASTIC_RESTART_COUNT=2",
      "TORCHELASTIC_USE_AGENT_STORE=False", "OMPI_COMM_WORLD_RANK=0", "OMPI_COMM_WORLD_SIZE=1"},
     "torchrun",
     {3, 4, 1, 2, 1, 2},
     "10.0.0.1",
     29500,
     "29500-2-none"},
    /* The agent listens at the port it tells: nobody else can. */
    {{"RANK=0", "WORLD_SIZE=2", "LOCAL_RANK=0", "LOCAL_WORLD_SIZE=2", "GROUP_RANK=0",
      "MASTER_ADDR=127.0.0.1", "MASTER_PORT=29500", "TORCHELASTIC_RUN_ID=none",
      "TORCHELASTIC_USE_AGENT_STORE=True"},
     "torchrun",
     {0, 2, 0, 2, 0, 1},
     "127.0.0.1",
     0,
     "29500-0-none"},
    {{"RANK=0", "WORLD_SIZE=1"}, "torchrun", {0, 1, 0, 1, 0, 1}, "", 0, ""},
    {{"OMPI_COMM_WORLD_RANK=3", "OMPI_COMM_WORLD_SIZE=4", "OMPI_COMM_WORLD_LOCAL_RANK=1",
      "OMPI_COMM_WORLD_LOCAL_SIZE=2", "OMPI_COMM_WORLD_NODE_RANK=1", "PMIX_RANK=3",
      "PMIX_NAMESPACE=1483276289", "OMPI_MCA_orte_hnp_uri=148.0;tcp://10.0.0.5,172.17.0.1:43219"},
     "Open MPI",
     {3, 4, 1, 2, 1, 2},
     "10.0.0.5",
     0,
     "1483276289"},
    {{"OMPI_COMM_WORLD_RANK=1", "OMPI_COMM_WORLD_SIZE=2", "OMPI_COMM_WORLD_LOCAL_RANK=1",
      "OMPI_COMM_WORLD_LOCAL_SIZE=2", "WORLD_SIZE=2", "MASTER_ADDR=head", "MASTER_PORT=4000",
      "OMPI_MCA_orte_hnp_uri=148.0;tcp://10.0.0.5:43219"},
     "Open MPI",
     {1, 2, 1, 2, 0, 1},
     "head",
     4000,
     ""},
    {{"PMIX_RANK=1", "PMIX_NAMESPACE=slurm.pmix.7.0", "SLURM_STEP_NUM_TASKS=2", "SLURM_PROCID=1",
      "SLURM_LOCALID=0", "SLURM_NODEID=1", "SLURM_STEP_NUM_NODES=2",
      "SLURM_STEP_TASKS_PER_NODE=1(x2)", "SLURM_STEP_NODELIST=n[1-2]", "SLURM_JOB_ID=7",
      "SLURM_STEP_ID=0"},
     "PMIx",
     {1, 2, 0, 1, 1, 2},
     "n1",
     0,
     "slurm.pmix.7.0"},
    {{"PMI_RANK=1", "PMI_SIZE=3", "MPI_LOCALRANKID=1", "MPI_LOCALNRANKS=3"},
     "Hydra",
     {1, 3, 1, 3, 0, 1},
     "",
     0,
     ""},
    /* Hydra's proxies are a step of SLURM, one task a node: not the ranks. */
    {{"PMI_RANK=5", "PMI_SIZE=8", "MPI_LOCALRANKID=1", "MPI_LOCALNRANKS=4",
      "SLURM_STEP_NUM_TASKS=2", "SLURM_PROCID=1", "SLURM_LOCALID=0", "SLURM_NODEID=1"},
     "Hydra",
     {5, 8, 1, 4, 1, 2},
     "",
     0,
     ""},
    {{"PMI_RANK=2", "PMI_SIZE=3", "PMI_JOBID=7.0", "SLURM_STEP_NUM_TASKS=3", "SLURM_PROCID=2",
      "SLURM_LOCALID=0", "SLURM_NODEID=1", "SLURM_STEP_TASKS_PER_NODE=2,1",
      "SLURM_STEP_NODELIST=a,b"},
     "Hydra",
     {2, 3, 0, 1, 1, 2},
     "a",
     0,
     "7.0"},
    {{"SLURM_PROCID=9", "SLURM_STEP_NUM_TASKS=11", "SLURM_NTASKS=11", "SLURM_LOCALID=1",
      "SLURM_NODEID=2", "SLURM_STEP_NUM_NODES=3", "SLURM_STEP_TASKS_PER_NODE=4(x2),3",
      "SLURM_STEP_NODELIST=gpu[03-05]", "SLURM_JOB_ID=12", "SLURM_STEP_ID=1", "WORLD_SIZE=11",
      "MASTER_PORT=29999"},
     "SLURM",
     {9, 11, 1, 3, 2, 3},
     "gpu03",
     29999,
     "slurm-12.1"},
    {{"SLURM_PROCID=0", "SLURM_STEP_NUM_TASKS=1", "SLURM_LOCALID=0", "SLURM_NODEID=0",
      "SLURM_JOB_NODELIST=n7", "SLURM_JOB_ID=12"},
     "SLURM",
     {0, 1, 0, 1, 0, 1},
     "n7",
     0,
     "slurm-12.0"},
    /* A person's shell in an allocation, and a batch script of one task. */
    {{"SLURM_PROCID=0", "SLURM_NTASKS=4", "SLURM_JOB_ID=3", "SLURM_JOB_NAME=bash"},
     "",
     {0, 1, 0, 1, 0, 1},
     "",
     0,
     ""},
    {{"SLURM_PROCID=0", "SLURM_NTASKS=1", "SLURM_JOB_ID=3", "SLURM_JOB_NAME=train"},
     "",
     {0, 1, 0, 1, 0, 1},
     "",
     0,
     ""},
    {{"FLUX_TASK_RANK=3", "FLUX_JOB_SIZE=4", "FLUX_TASK_LOCAL_ID=1", "FLUX_JOB_NNODES=2",
      "FLUX_JOB_ID=f7"},
     "Flux",
     {3, 4, 1, 2, 1, 2},
     "",
     0,
     "f7"},
    {{"PALS_RANKID=1", "PMI_SIZE=2", "PALS_LOCAL_RANKID=1"}, "PALS", {1, 2, 1, 2, 0, 1}, "", 0, ""},
    {{"JSM_NAMESPACE_RANK=1", "JSM_NAMESPACE_SIZE=2", "JSM_NAMESPACE_LOCAL_RANK=1",
      "JSM_NAMESPACE_LOCAL_SIZE=2"},
     "LSF",
     {1, 2, 1, 2, 0, 1},
     "",
     0,
     ""},
};

static void every_launcher_is_understood(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof told / sizeof told[0]; i++) {
        const told_case *wanted = &told[i];
        yoke_rank_info info;
        if (detect(&info, wanted->words) != YOKE_OK)
            fail_msg("case %zu (%s): %s", i, wanted->source, yoke_last_error());
        const int numbers[6] = {info.rank,        info.world,     info.local_rank,
                                info.local_world, info.node_rank, info.nodes};
        for (size_t k = 0; k < 6; k++) {
            if (numbers[k] != wanted->numbers[k])
                fail_msg("case %zu (%s): number %zu is %d, not %d", i, wanted->source, k,
                         numbers[k], wanted->numbers[k]);
        }
        assert_string_equal(info.source, wanted->source);
        assert_string_equal(info.address, wanted->address);
        assert_int_equal(info.port, wanted->port);
        assert_string_equal(info.run_id, wanted->run_id);
    }
}

typedef struct wrong_case {
    const char *words[8];
    const char *says[3];
} wrong_case;

static const wrong_case wrong[] = {
    {{"YOKE_RANK=0"}, {"YOKE_RANK is set", "YOKE_WORLD_SIZE is not"}},
    {{"YOKE_WORLD_SIZE=2"}, {"YOKE_WORLD_SIZE is 2", "YOKE_RANK is not set"}},
    {{"RANK=0"}, {"RANK is set", "WORLD_SIZE is not"}},
    {{"WORLD_SIZE=2"}, {"WORLD_SIZE is 2", "RANK is not set"}},
    {{"RANK=0", "WORLD_SIZE=2"}, {"MASTER_ADDR is not"}},
    {{"RANK=0", "WORLD_SIZE=2", "MASTER_ADDR=head"}, {"MASTER_PORT is not"}},
    {{"RANK=one", "WORLD_SIZE=2"}, {"RANK is \"one\""}},
    {{"RANK=-1", "WORLD_SIZE=2"}, {"RANK is \"-1\""}},
    {{"RANK=0", "WORLD_SIZE=2", "MASTER_ADDR=a", "MASTER_PORT=70000"},
     {"MASTER_PORT is \"70000\""}},
    {{"RANK=2", "WORLD_SIZE=2", "MASTER_ADDR=a", "MASTER_PORT=1"},
     {"RANK is 2", "WORLD_SIZE is 2"}},
    {{"YOKE_RANK=0", "YOKE_WORLD_SIZE=0"}, {"YOKE_WORLD_SIZE is 0"}},
    {{"YOKE_RANK=1", "YOKE_WORLD_SIZE=4", "YOKE_LOCAL_RANK=2", "YOKE_LOCAL_WORLD_SIZE=2"},
     {"YOKE_LOCAL_RANK is 2", "YOKE_LOCAL_WORLD_SIZE is 2"}},
    {{"YOKE_RANK=1", "YOKE_WORLD_SIZE=2", "YOKE_LOCAL_WORLD_SIZE=0"},
     {"YOKE_LOCAL_WORLD_SIZE is 0"}},
    {{"YOKE_RANK=1", "YOKE_WORLD_SIZE=2", "YOKE_NODES=0"}, {"YOKE_NODES is 0"}},
    {{"YOKE_RANK=1", "YOKE_WORLD_SIZE=2", "YOKE_LOCAL_WORLD_SIZE=3"},
     {"YOKE_LOCAL_WORLD_SIZE is 3", "YOKE_WORLD_SIZE is 2"}},
    {{"YOKE_RANK=1", "YOKE_WORLD_SIZE=2", "YOKE_NODE_RANK=1", "YOKE_NODES=1"},
     {"YOKE_NODE_RANK is 1", "YOKE_NODES is 1"}},
    {{"YOKE_RANK=1", "YOKE_WORLD_SIZE=2",
      "YOKE_RUN_ID=0123456789012345678901234567890123456789012345678901234567890123"},
     {"YOKE_RUN_ID has 64 bytes", "63"}},
    {{"OMPI_COMM_WORLD_RANK=0"}, {"Open MPI", "OMPI_COMM_WORLD_SIZE is not"}},
    {{"PMIX_RANK=0"}, {"PMIx", "YOKE_WORLD_SIZE"}},
    {{"PMI_RANK=0"}, {"Hydra", "PMI_SIZE is not"}},
    {{"SLURM_STEP_NUM_TASKS=2"}, {"SLURM", "SLURM_PROCID is not"}},
    {{"SLURM_PROCID=1", "SLURM_STEP_NUM_TASKS=2", "WORLD_SIZE=3"},
     {"WORLD_SIZE is 3", "SLURM started 2"}},
    {{"SLURM_PROCID=1", "SLURM_STEP_NUM_TASKS=2", "SLURM_STEP_TASKS_PER_NODE=2(y1)"},
     {"SLURM_STEP_TASKS_PER_NODE is \"2(y1)\"", "4(x2),3"}},
    {{"SLURM_PROCID=1", "SLURM_STEP_NUM_TASKS=2", "SLURM_STEP_TASKS_PER_NODE=2(x2)"},
     {"4 tasks in all", "SLURM_STEP_NUM_TASKS says 2"}},
    {{"SLURM_PROCID=1", "SLURM_STEP_NUM_TASKS=2", "SLURM_NODEID=2",
      "SLURM_STEP_TASKS_PER_NODE=1(x2)"},
     {"2 nodes", "SLURM_NODEID is 2"}},
    {{"SLURM_PROCID=1", "SLURM_STEP_NUM_TASKS=2", "SLURM_STEP_NODELIST=n[1"}, {"\"n[1\""}},
    {{"SLURM_PROCID=0", "SLURM_NTASKS=4", "SLURM_JOB_NAME=train", "WORLD_SIZE=4"},
     {"srun is missing", "SLURM_NTASKS is 4", "--ntasks=1"}},
};

static void incomplete_or_contradicting_variables_are_named(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        yoke_rank_info info;
        if (detect(&info, wrong[i].words) != YOKE_ERROR_ARGUMENT)
            fail_msg("case %zu, %s, was accepted", i, wrong[i].words[0]);
        for (size_t k = 0; k < 3 && wrong[i].says[k] != NULL; k++) {
            if (strstr(yoke_last_error(), wrong[i].says[k]) == NULL)
                fail_msg("case %zu: \"%s\" does not say \"%s\"", i, yoke_last_error(),
                         wrong[i].says[k]);
        }
        assert_int_equal(info.world, 0);
    }
}

static void every_row_of_texts_is_its_own(void **state) {
    (void)state;
    static char texts[sizeof wrong / sizeof wrong[0]][YOKE_ERROR_TEXT_BYTES];
    yoke_rank_info info;
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        detect(&info, wrong[i].words);
        strcpy(texts[i], yoke_last_error());
        for (size_t k = 0; k < i; k++)
            assert_string_not_equal(texts[i], texts[k]);
    }
}

static void slurms_run_lengths_are_read(void **state) {
    (void)state;
    yoke_slurm_tasks tasks;
    const int on_node[] = {4, 4, 3, 1, 0};
    for (int node = 0; node < 5; node++) {
        assert_true(yoke_slurm_tasks_parse("4(x2),3,1", node, &tasks));
        assert_int_equal(tasks.nodes, 4);
        assert_int_equal(tasks.tasks, 12);
        assert_int_equal(tasks.on_node, on_node[node]);
    }
    static const char *const refused[] = {"",       "x",    "4(",         "4(x",     "4(x2",
                                          "4(x2)3", "4,",   "0",          "4(x0)",   " 4",
                                          "-1",     "4(2)", "9999999999", "4(x2),a", "1000000,1"};
    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++)
        assert_false(yoke_slurm_tasks_parse(refused[i], 0, &tasks));
}

static void slurms_first_host_is_read(void **state) {
    (void)state;
    static const char *const pairs[][2] = {
        {"n7", "n7"},      {"n[1-2]", "n1"},         {"n[001-010,5]", "n001"},
        {"a,b[1-2]", "a"}, {"r[1-2]n[3-4]", "r1n3"}, {"gpu[9,11]-ib,x", "gpu9-ib"},
        {"n[7]", "n7"},
    };
    char host[16];
    for (size_t i = 0; i < sizeof pairs / sizeof pairs[0]; i++) {
        assert_true(yoke_slurm_first_host(pairs[i][0], host, sizeof host));
        assert_string_equal(host, pairs[i][1]);
    }
    assert_false(yoke_slurm_first_host("", host, sizeof host));
    assert_false(yoke_slurm_first_host("n[1-2", host, sizeof host));
    assert_false(yoke_slurm_first_host("n[", host, sizeof host));
    assert_false(yoke_slurm_first_host("0123456789abcdef", host, sizeof host));
    assert_true(yoke_slurm_first_host("0123456789abcde", host, sizeof host));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_launcher_is_understood),
        cmocka_unit_test(incomplete_or_contradicting_variables_are_named),
        cmocka_unit_test(every_row_of_texts_is_its_own),
        cmocka_unit_test(slurms_run_lengths_are_read),
        cmocka_unit_test(slurms_first_host_is_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
