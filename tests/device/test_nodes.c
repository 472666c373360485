/* SPDX-License-Identifier: Apache-2.0 */
/* Memory nodes: what made-up trees of /sys say, which cores teams take on machines that this one is
 * not, and what devices show there. */
#include <errno.h>
#include <ftw.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/cli.h"
#include "device/cpu/nodes.h"
#include "support/devices.h"

/* Made-up machines. */

static char root[64];

static void put(const char *path, const char *text) {
    char whole[256];
    snprintf(whole, sizeof whole, "%s/%s", root, path);
    for (char *at = whole + strlen(root) + 1; (at = strchr(at, '/')) != NULL; at++) {
        *at = '\0';
        if (mkdir(whole, 0700) != 0) assert_int_equal(errno, EEXIST);
        *at = '/';
    }
    FILE *file = fopen(whole, "w");
    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    assert_int_equal(fclose(file), 0);
}

static int make_root(void **state) {
    (void)state;
    strcpy(root, "/tmp/yoke-nodes-XXXXXX");
    return mkdtemp(root) == NULL;
}

static int remove_entry(const char *path, const struct stat *info, int kind, struct FTW *at) {
    (void)info, (void)kind, (void)at;
    return remove(path);
}

static int remove_root(void **state) {
    (void)state;
    return nftw(root, remove_entry, 8, FTW_DEPTH | FTW_PHYS);
}

/* nodes[i]: the list of cores of node i, NULL: there is none; siblings: of core i, likewise. */
static void put_machine(const char *const *nodes, int node_count, const char *const *siblings,
                        int core_count) {
    char path[64];
    for (int i = 0; i < node_count; i++) {
        if (nodes[i] == NULL) continue;
        snprintf(path, sizeof path, "node/node%d/cpulist", i);
        put(path, nodes[i]);
    }
    for (int i = 0; i < core_count; i++) {
        if (siblings[i] == NULL) continue;
        snprintf(path, sizeof path, "cpu/cpu%d/topology/thread_siblings_list", i);
        put(path, siblings[i]);
    }
}

static cpu_set_t cores_of(const char *list) {
    cpu_set_t cores;
    assert_true(yoke_core_list_parse(list, &cores));
    return cores;
}

static void expect_cores(const cpu_set_t *cores, const char *expected) {
    char text[256];
    yoke_core_list_write(cores, text, sizeof text);
    assert_string_equal(text, expected);
}

static cpu_nodes read_nodes(const char *allowed) {
    cpu_nodes nodes;
    cpu_set_t cores = cores_of(allowed);
    cpu_nodes_read(&nodes, root, &cores);
    return nodes;
}

static void expect_deal(const cpu_nodes *nodes, const char *allowed, int teams, int threads,
                        const char *const *expected) {
    cpu_set_t cores = cores_of(allowed), own;
    for (int team = 0; team < teams; team++) {
        cpu_teams_deal(&(cpu_teams){teams, threads}, team, nodes, &cores, &own);
        expect_cores(&own, expected[team]);
    }
}

#define EXPECT_DEAL(nodes, allowed, threads, ...)                                                  \
    do {                                                                                           \
        const char *const expected_[] = {__VA_ARGS__};                                             \
        expect_deal(nodes, allowed, (int)(sizeof expected_ / sizeof expected_[0]), threads,        \
                    expected_);                                                                    \
    } while (0)

/* Lists. */

static void a_list_reads_and_writes(void **state) {
    (void)state;
    static const char *const rows[][2] = {
        {"0\n", "0"},     {"0-3,8,10-11\n", "0-3,8,10-11"}, {"\n", ""}, {"", ""}, {"5-5", "5"},
        {"3,1,2", "1-3"}, {"1022-5000000", "1022-1023"}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        cpu_set_t cores = cores_of(rows[i][0]);
        expect_cores(&cores, rows[i][1]);
    }
}

static void what_is_no_list_is_refused(void **state) {
    (void)state;
    static const char *const rows[] = {"a", "0-", "-1", "0,,1", "3-1", "0-3x", "0 1", "1,\n", ","};
    cpu_set_t cores;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        if (yoke_core_list_parse(rows[i], &cores)) fail_msg("\"%s\" was read", rows[i]);
}

static void a_list_that_is_too_long_ends_with_dots(void **state) {
    (void)state;
    cpu_set_t cores = cores_of("0,2,4,6,8,10,12,14,16,18");
    char text[96];
    for (size_t size = 8; size < sizeof text; size++) {
        yoke_core_list_write(&cores, text, size);
        assert_true(strlen(text) < size);
        bool whole = strcmp(text, "0,2,4,6,8,10,12,14,16,18") == 0;
        assert_true(whole || strcmp(text + strlen(text) - 4, ",...") == 0);
    }
}

/* Reading. */

static void a_machine_without_files_has_one_node(void **state) {
    (void)state;
    cpu_nodes nodes = read_nodes("0-7");
    char text[32];
    cpu_set_t all = cores_of("0-7");
    assert_int_equal(nodes.count, 1);
    cpu_nodes_write(&nodes, &all, text, sizeof text);
    assert_string_equal(text, "");
    EXPECT_DEAL(&nodes, "0-7", 4, "0-3", "4-7");
}

/* Node 2 has memory alone, node 9 a broken list, and node 12 cores that this process may not use;
 * core 6 is on no list. */
static void only_nodes_with_cores_that_we_may_use_count(void **state) {
    (void)state;
    static const char *const lists[] = {"0-1,8\n", NULL, "\n", NULL,      NULL, NULL,       NULL,
                                        NULL,      NULL, "x",  "4-5,9\n", NULL, "100-107\n"};
    put_machine(lists, 13, NULL, 0);
    put("node/possible", "0-15\n");
    put("node/node3x/cpulist", "0-9\n");
    cpu_nodes nodes = read_nodes("1,4-6,8");
    assert_int_equal(nodes.count, 2);
    assert_int_equal(nodes.numbers[0], 0);
    assert_int_equal(nodes.numbers[1], 10);
    assert_int_equal(nodes.node_of[1], 0);
    assert_int_equal(nodes.node_of[8], 0);
    assert_int_equal(nodes.node_of[4], 1);
    assert_int_equal(nodes.node_of[6], 0);
    char text[32];
    cpu_set_t one = cores_of("4-5"), both = cores_of("5,8");
    cpu_nodes_write(&nodes, &one, text, sizeof text);
    assert_string_equal(text, "10");
    cpu_nodes_write(&nodes, &both, text, sizeof text);
    assert_string_equal(text, "0,10");
}

/* The first sibling that we may use stands for its core. */
static void siblings_are_those_that_we_may_use(void **state) {
    (void)state;
    static const char *const lists[] = {"0-7"};
    static const char *const siblings[] = {"0,4", "1,5", "2,6", NULL, "0,4", "1,5", "2,6", "x"};
    put_machine(lists, 1, siblings, 8);
    cpu_nodes nodes = read_nodes("1-7");
    assert_int_equal(nodes.first_of[4], 4);
    assert_int_equal(nodes.first_of[5], 1);
    assert_int_equal(nodes.first_of[6], 2);
    assert_int_equal(nodes.first_of[7], 7);
}

/* Dealing. */

static void two_nodes_get_half_the_teams_each(void **state) {
    (void)state;
    static const char *const lists[] = {"0-7", "8-15"};
    put_machine(lists, 2, NULL, 0);
    cpu_nodes nodes = read_nodes("0-15");
    EXPECT_DEAL(&nodes, "0-15", 16, "0-15");
    EXPECT_DEAL(&nodes, "0-15", 8, "0-7", "8-15");
    EXPECT_DEAL(&nodes, "0-15", 4, "0-3", "4-7", "8-11", "12-15");
    EXPECT_DEAL(&nodes, "0-15", 2, "0-1", "8-9"); /* not both on node 0 */
    EXPECT_DEAL(&nodes, "0-15", 1, "0", "1", "8");
    EXPECT_DEAL(&nodes, "0-15", 3, "0-2", "3-5", "8-10", "11-13");
}

/* Even and odd cores, as some firmware numbers them. */
static void nodes_may_have_any_cores(void **state) {
    (void)state;
    static const char *const lists[] = {"0,2,4,6", "1,3,5,7"};
    put_machine(lists, 2, NULL, 0);
    cpu_nodes nodes = read_nodes("0-7");
    EXPECT_DEAL(&nodes, "0-7", 4, "0,2,4,6", "1,3,5,7");
    EXPECT_DEAL(&nodes, "0-7", 2, "0,2", "4,6", "1,3", "5,7");
}

/* 3 + 3 cores, two each: the third team gets what the others leave. */
static void a_team_crosses_nodes_only_where_no_node_has_room(void **state) {
    (void)state;
    static const char *const lists[] = {"0-2", "3-5"};
    put_machine(lists, 2, NULL, 0);
    cpu_nodes nodes = read_nodes("0-5");
    EXPECT_DEAL(&nodes, "0-5", 2, "0-1", "3-4", "2,5");
    EXPECT_DEAL(&nodes, "0-5", 4, "0-3"); /* larger than a node */
}

/* The cpuset has one core of node 0 and six of node 1. */
static void unequal_nodes_get_teams_by_their_cores(void **state) {
    (void)state;
    static const char *const lists[] = {"0-7", "8-15"};
    put_machine(lists, 2, NULL, 0);
    cpu_nodes nodes = read_nodes("3,10-15");
    EXPECT_DEAL(&nodes, "3,10-15", 2, "10-11", "12-13", "14-15");
    EXPECT_DEAL(&nodes, "3,10-15", 1, "3", "10", "11", "12");
}

/* Teams that share cores stay on a node, too, neighbours on the same one. */
static void too_many_teams_share_cores_of_one_node(void **state) {
    (void)state;
    static const char *const lists[] = {"0-1", "2-3"};
    put_machine(lists, 2, NULL, 0);
    cpu_nodes nodes = read_nodes("0-3");
    EXPECT_DEAL(&nodes, "0-3", 1, "0", "1", "0", "1", "2", "3", "2", "3");
    EXPECT_DEAL(&nodes, "0-3", 2, "0-1", "0-1", "2-3");
    EXPECT_DEAL(&nodes, "0-3", 3, "0-2", "0-1,3");
    EXPECT_DEAL(&nodes, "0-3", 9, "0-3", "0-3");
}

static void siblings_come_last_and_then_beside_their_core(void **state) {
    (void)state;
    static const char *const lists[] = {"0-3,8-11", "4-7,12-15"};
    static const char *const siblings[] = {"0,8",  "1,9",  "2,10", "3,11",
                                           "4,12", "5,13", "6,14", "7,15"};
    put_machine(lists, 2, siblings, 8);
    cpu_nodes nodes = read_nodes("0-15");
    EXPECT_DEAL(&nodes, "0-15", 4, "0-3", "4-7");
    EXPECT_DEAL(&nodes, "0-15", 1, "0", "1", "2", "3", "4", "5", "6", "7");
    EXPECT_DEAL(&nodes, "0-15", 4, "0-1,8-9", "2-3,10-11", "4-5,12-13", "6-7,14-15");
    EXPECT_DEAL(&nodes, "0-15", 8, "0-3,8-11", "4-7,12-15");
}

/* One program opens "cpu:0", others "cpu:1" and "cpu:9": they meet on no core. */
static void lists_that_leave_numbers_out_do_not_meet(void **state) {
    (void)state;
    static const char *const lists[] = {"0-7", "8-15"};
    put_machine(lists, 2, NULL, 0);
    cpu_nodes nodes = read_nodes("0-15");
    cpu_set_t allowed = cores_of("0-15"), own;
    static const struct {
        int team;
        const char *cores;
    } rows[] = {{0, "0"}, {1, "1"}, {9, "9"}, {15, "15"}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        cpu_teams_deal(&(cpu_teams){1, 1}, rows[i].team, &nodes, &allowed, &own);
        expect_cores(&own, rows[i].cores);
    }
}

/* The rule before there were nodes. */
static void on_one_node_positions_follow_each_other(void **state) {
    (void)state;
    cpu_nodes nodes = read_nodes("0-31");
    static const int all[] = {0, 1, 3, 4, 6, 7, 11, 12, 13, 20, 31};
    for (int count = 1; count <= 11; count++) {
        cpu_set_t allowed, own, expected;
        CPU_ZERO(&allowed);
        for (int i = 0; i < count; i++)
            CPU_SET((size_t)all[i], &allowed);
        for (int teams = 1; teams <= 12; teams++)
            for (int threads = 1; threads <= 13; threads++)
                for (int team = 0; team < 14; team++) {
                    CPU_ZERO(&expected);
                    for (int i = 0; i < threads && i < count; i++)
                        CPU_SET((size_t)all[(team * threads + i) % count], &expected);
                    cpu_teams_deal(&(cpu_teams){teams, threads}, team, &nodes, &allowed, &own);
                    assert_true(CPU_EQUAL(&expected, &own));
                }
    }
}

static int nodes_of(const cpu_nodes *nodes, const cpu_set_t *cores) {
    bool on[CPU_SETSIZE] = {false};
    int count = 0;
    for (int core = 0; core < CPU_SETSIZE; core++) {
        if (!CPU_ISSET((size_t)core, cores)) continue;
        count += !on[nodes->node_of[core]];
        on[nodes->node_of[core]] = true;
    }
    return count;
}

/* Cores of the largest part of a node that no team uses. */
static int free_of_a_node(const cpu_nodes *nodes, const cpu_set_t *allowed, const cpu_set_t *used) {
    int left[CPU_SETSIZE] = {0}, most = 0;
    for (int core = 0; core < CPU_SETSIZE; core++)
        if (CPU_ISSET((size_t)core, allowed) && !CPU_ISSET((size_t)core, used)) {
            int own = ++left[nodes->node_of[core]];
            if (own > most) most = own;
        }
    return most;
}

/* Whatever the machine: every team has as many cores as threads; teams share cores only where there
 * are too few; and a team of two nodes is one that no node had room for. */
static void every_deal_keeps_the_rules(void **state) {
    (void)state;
    static const char *const lists[] = {"0-6", "7-11,40", "12-31"};
    put_machine(lists, 3, NULL, 0);
    static const char *const allowed_lists[] = {"0-31,40", "0-5,8,12-16", "6-7,12-30", "0,7,12"};
    for (size_t i = 0; i < 4; i++) {
        cpu_nodes nodes = read_nodes(allowed_lists[i]);
        cpu_set_t allowed = cores_of(allowed_lists[i]), own;
        int cores = CPU_COUNT(&allowed);
        for (int teams = 1; teams <= 40; teams++)
            for (int threads = 1; threads <= cores; threads++) {
                cpu_set_t used, of_one_node, both, none;
                bool shares = teams * threads > cores, crosses = false;
                CPU_ZERO(&none);
                CPU_ZERO(&used);
                CPU_ZERO(&of_one_node);
                for (int team = 0; team < teams; team++) {
                    cpu_teams_deal(&(cpu_teams){teams, threads}, team, &nodes, &allowed, &own);
                    CPU_AND(&both, &own, &allowed);
                    assert_int_equal(CPU_COUNT(&both), threads);
                    CPU_AND(&both, &own, &used);
                    if (!shares) assert_int_equal(CPU_COUNT(&both), 0);
                    CPU_OR(&used, &used, &own);
                    if (nodes_of(&nodes, &own) > 1)
                        crosses = true;
                    else
                        CPU_OR(&of_one_node, &of_one_node, &own);
                }
                const cpu_set_t *taken = shares ? &none : &of_one_node;
                if (crosses) assert_true(free_of_a_node(&nodes, &allowed, taken) < threads);
            }
    }
}

/* Devices. --wrap lets the library see the made-up machine, with the cores of `pretended`. */

static const char *pretended;

void __real_cpu_nodes_read(cpu_nodes *nodes, const char *folder, const cpu_set_t *allowed);
void __wrap_cpu_nodes_read(cpu_nodes *nodes, const char *folder, const cpu_set_t *allowed);
int __real_yoke_cores_allowed(cpu_set_t *cores);
int __wrap_yoke_cores_allowed(cpu_set_t *cores);

void __wrap_cpu_nodes_read(cpu_nodes *nodes, const char *folder, const cpu_set_t *allowed) {
    __real_cpu_nodes_read(nodes, pretended != NULL ? root : folder, allowed);
}

int __wrap_yoke_cores_allowed(cpu_set_t *cores) {
    if (pretended == NULL) return __real_yoke_cores_allowed(cores);
    *cores = cores_of(pretended);
    return CPU_COUNT(cores);
}

static yoke_devices *open_devices(const yoke_devices_options *options) {
    yoke_devices *devices = NULL;
    yoke_status status = yoke_devices_open(&devices, options);
    if (status != YOKE_OK) fail_msg("%s", yoke_last_error());
    return devices;
}

static void expect_device(const yoke_devices *devices, int index, const char *cores,
                          const char *nodes) {
    yoke_device_info info = {.struct_size = sizeof info};
    assert_int_equal(yoke_devices_describe(devices, index, &info), YOKE_OK);
    assert_string_equal(info.cores, cores);
    assert_string_equal(info.nodes, nodes);
}

static void pretend_two_nodes(void) {
    static const char *const lists[] = {"0-2,6-8", "3-5,9-11"};
    put_machine(lists, 2, NULL, 0);
    pretended = "0-11";
}

static void devices_name_their_cores_and_nodes(void **state) {
    (void)state;
    pretend_two_nodes();
    yoke_devices *devices = open_devices(
        &(yoke_devices_options){.struct_size = sizeof(yoke_devices_options), .list = "2xcpu"});
    expect_device(devices, 0, "0-2,6-8", "0");
    expect_device(devices, 1, "3-5,9-11", "1");
    yoke_devices_close(devices);
    devices = open_devices(&(yoke_devices_options){
        .struct_size = sizeof(yoke_devices_options), .list = "cpu", .unbound = true});
    expect_device(devices, 0, "", "");
    yoke_devices_close(devices);
    devices = open_devices(
        &(yoke_devices_options){.struct_size = sizeof(yoke_devices_options), .list = "cpu"});
    expect_device(devices, 0, "0-11", "0-1");
    yoke_devices_close(devices);
    pretended = NULL;
}

/* Ranks deal the machine's cores among them, each on its own. */
static void ranks_take_the_cores_of_devices(void **state) {
    (void)state;
    static const char *const cores[] = {"0-2", "6-8", "3-5", "9-11"};
    pretend_two_nodes();
    for (int rank = 0; rank < 4; rank++) {
        yoke_devices *devices =
            open_devices(&(yoke_devices_options){.struct_size = sizeof(yoke_devices_options),
                                                 .list = "cpu",
                                                 .local_rank = rank,
                                                 .local_world = 4});
        expect_device(devices, 0, cores[rank], rank < 2 ? "0" : "1");
        yoke_devices_close(devices);
    }
    pretended = NULL;
}

/* What `yoke devices` prints; lives until the next call. */
static const char *shown_by(int argc, char **argv) {
    static char text[8192];
    FILE *file = tmpfile();
    assert_non_null(file);
    assert_int_equal(fflush(stdout), 0);
    int terminal = dup(STDOUT_FILENO);
    assert_true(terminal >= 0 && dup2(fileno(file), STDOUT_FILENO) >= 0);
    int code = devices_main(argc, argv);
    fflush(stdout);
    dup2(terminal, STDOUT_FILENO);
    close(terminal);
    rewind(file);
    text[fread(text, 1, sizeof text - 1, file)] = '\0';
    fclose(file);
    assert_int_equal(code, 0);
    return text;
}

static void the_tool_shows_nodes_where_there_are_several(void **state) {
    (void)state;
    char *words[] = {"devices", "--devices", "2xcpu", NULL};
    char *json[] = {"devices", "--devices", "2xcpu", "--json", NULL};
    pretended = "0-11"; /* without a file */
    assert_null(strstr(shown_by(3, words), "node"));
    assert_null(strstr(shown_by(4, json), "nodes"));
    pretend_two_nodes();
    const char *text = shown_by(3, words);
    assert_non_null(strstr(text, "device    threads  cores      node  "));
    assert_non_null(strstr(text, "cpu:1           6  3-5,9-11   1     "));
    text = shown_by(4, json);
    assert_non_null(strstr(text, "\"cores\":\"0-2,6-8\""));
    assert_non_null(strstr(text, "\"nodes\":\"1\""));
    pretended = NULL;
}

#define ON_A_MACHINE(test) cmocka_unit_test_setup_teardown(test, make_root, remove_root)

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_list_reads_and_writes),
        cmocka_unit_test(what_is_no_list_is_refused),
        cmocka_unit_test(a_list_that_is_too_long_ends_with_dots),
        ON_A_MACHINE(a_machine_without_files_has_one_node),
        ON_A_MACHINE(only_nodes_with_cores_that_we_may_use_count),
        ON_A_MACHINE(siblings_are_those_that_we_may_use),
        ON_A_MACHINE(two_nodes_get_half_the_teams_each),
        ON_A_MACHINE(nodes_may_have_any_cores),
        ON_A_MACHINE(a_team_crosses_nodes_only_where_no_node_has_room),
        ON_A_MACHINE(unequal_nodes_get_teams_by_their_cores),
        ON_A_MACHINE(too_many_teams_share_cores_of_one_node),
        ON_A_MACHINE(siblings_come_last_and_then_beside_their_core),
        ON_A_MACHINE(lists_that_leave_numbers_out_do_not_meet),
        ON_A_MACHINE(on_one_node_positions_follow_each_other),
        ON_A_MACHINE(every_deal_keeps_the_rules),
        ON_A_MACHINE(devices_name_their_cores_and_nodes),
        ON_A_MACHINE(ranks_take_the_cores_of_devices),
        ON_A_MACHINE(the_tool_shows_nodes_where_there_are_several),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
