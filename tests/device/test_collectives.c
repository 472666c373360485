/* SPDX-License-Identifier: Apache-2.0 */
/* Every collective over 1 to 8 devices, each a GPU of its own or several on one, equals a plain
 * loop. Values arrive on the communication streams just before the collective and vanish right
 * behind it: a device that reads too early or too late reads something else. SIMCUDA_SEED changes
 * the order in which simulated streams run. */
#include "support/devices.h"

#include "device/collectives.h"

#define EXPECT_OK(call)                                                                            \
    do {                                                                                           \
        yoke_status expect_status_ = (call);                                                       \
        if (expect_status_ != YOKE_OK)                                                             \
            fail_msg("%s: %s: %s", #call, yoke_status_name(expect_status_), yoke_last_error());    \
    } while (0)
#define COUNT(array) (sizeof(array) / sizeof(array)[0])

enum {
    MOST = 8,
    EDGE = 16, /* elements before and behind a range, which nobody may touch */
    ROOM = 2 * EDGE + 100000 + 16 * MOST,
    SCRATCH = 4096 /* small: the longer ranges go through it in several pieces */
};

typedef struct group_rig {
    yoke_devices *devices;
    int count;
    yoke_device_group *group;
    bool exact_in_any_order; /* values whose sums are, for NCCL's own order */
    uint32_t round;
    float *memory[MOST];              /* of the devices, [ROOM] */
    float *given[MOST], *taken[MOST]; /* pinned, [ROOM] */
} group_rig;

typedef struct group_job {
    size_t offset, elements;
    int contributors;
} group_job;

/* Life. */

static yoke_status create_group(group_rig *rig, yoke_collectives kind) {
    yoke_device *devices[MOST];
    for (int k = 0; k < rig->count; k++)
        devices[k] = yoke_devices_at(rig->devices, k);
    yoke_device_group_request request = {
        .devices = devices, .count = rig->count, .kind = kind, .scratch_elements = SCRATCH};
    return yoke_device_group_create(&rig->group, &request);
}

static void open_devices(group_rig *rig, const char *list) {
    *rig = (group_rig){0};
    yoke_devices_options options = {
        .struct_size = sizeof options, .list = list, .threads = 1, .unbound = true};
    EXPECT_OK(yoke_devices_open(&rig->devices, &options));
    rig->count = yoke_devices_count(rig->devices);
    assert_in_range(rig->count, 1, MOST);
}

static void open_rig(group_rig *rig, const char *list, yoke_collectives kind) {
    size_t bytes = ROOM * sizeof(float);
    open_devices(rig, list);
    rig->exact_in_any_order = kind == YOKE_COLLECTIVES_NCCL;
    EXPECT_OK(create_group(rig, kind));
    for (int k = 0; k < rig->count; k++) {
        yoke_device *device = yoke_devices_at(rig->devices, k);
        EXPECT_OK(
            yoke_device_allocate_collective(device, bytes, "a test", (void **)&rig->memory[k]));
        EXPECT_OK(yoke_device_allocate_host(device, bytes, "a test", (void **)&rig->given[k]));
        EXPECT_OK(yoke_device_allocate_host(device, bytes, "a test", (void **)&rig->taken[k]));
    }
    yoke_device_group_register(rig->group, rig->memory, bytes);
}

static void close_rig(group_rig *rig) {
    yoke_device_group_destroy(rig->group);
    for (int k = 0; k < rig->count; k++) {
        yoke_device *device = yoke_devices_at(rig->devices, k);
        yoke_device_free(device, rig->memory[k]);
        yoke_device_free_host(device, rig->given[k]);
        yoke_device_free_host(device, rig->taken[k]);
    }
    yoke_devices_close(rig->devices);
}

/* Data. */

static float value(const group_rig *rig, int k, size_t i) {
    uint32_t hash = (uint32_t)i * 2654435761u ^ ((uint32_t)k + 1) * 40503u ^ rig->round * 977u;
    hash = (hash ^ hash >> 15) * 2246822519u;
    hash ^= hash >> 13;
    if (rig->exact_in_any_order) return (float)(hash % 4096) - 2048;
    return ((float)hash / 4294967296.0f - 0.5f) * (float)(1u << hash % 16);
}

static void give(group_rig *rig, const group_job *job) {
    size_t span = job->offset + job->elements + EDGE;
    rig->round++;
    for (int k = 0; k < rig->count; k++) {
        for (size_t i = 0; i < span; i++)
            rig->given[k][i] = value(rig, k, i);
        EXPECT_OK(yoke_device_upload(yoke_devices_at(rig->devices, k), YOKE_STREAM_COMMUNICATION,
                                     rig->memory[k], rig->given[k], span * sizeof(float)));
    }
}

static void take(group_rig *rig, const group_job *job) {
    size_t bytes = (job->offset + job->elements + EDGE) * sizeof(float);
    for (int k = 0; k < rig->count; k++) {
        yoke_device *device = yoke_devices_at(rig->devices, k);
        EXPECT_OK(yoke_device_download(device, YOKE_STREAM_COMMUNICATION, rig->taken[k],
                                       rig->memory[k], bytes));
        EXPECT_OK(yoke_device_clear(device, YOKE_STREAM_COMMUNICATION, rig->memory[k], bytes));
    }
    for (int k = 0; k < rig->count; k++)
        EXPECT_OK(yoke_device_synchronize(yoke_devices_at(rig->devices, k)));
}

/* Neighbours first, then pairs of pairs. */
static float tree(const group_rig *rig, int contributors, size_t i) {
    float sums[YOKE_DEVICES_LIMIT];
    for (int k = 0; k < contributors; k++)
        sums[k] = rig->given[k][i];
    for (int apart = 1; apart < contributors; apart *= 2)
        for (int k = 0; k + apart < contributors; k += 2 * apart)
            sums[k] += sums[k + apart];
    return sums[0];
}

static void expect_element(const group_rig *rig, const group_job *job, int k, size_t i,
                           float expected) {
    if (memcmp(&rig->taken[k][i], &expected, sizeof expected) == 0) return;
    fail_msg("%s, %d devices, %zu elements at %zu, %d contributors: device %d holds %.9g at %zu, "
             "not %.9g",
             yoke_device_group_name(rig->group), rig->count, job->elements, job->offset,
             job->contributors, k, (double)rig->taken[k][i], i, (double)expected);
}

static void expect_edges(const group_rig *rig, const group_job *job) {
    size_t end = job->offset + job->elements;
    for (int k = 0; k < rig->count; k++) {
        for (size_t i = 0; i < job->offset; i++)
            expect_element(rig, job, k, i, rig->given[k][i]);
        for (size_t i = end; i < end + EDGE; i++)
            expect_element(rig, job, k, i, rig->given[k][i]);
    }
}

/* One collective, and what must be true then. */

typedef struct collective_case {
    yoke_status (*sum)(yoke_device_group *group, const yoke_range *range,
                       int contributors); /* or */
    yoke_status (*spread)(yoke_device_group *group, const yoke_range *range);
    void (*expect)(const group_rig *rig, const group_job *job);
    bool in_parts; /* ranges are cut into one part a device */
} collective_case;

static void expect_reduced(const group_rig *rig, const group_job *job) {
    for (size_t i = job->offset; i < job->offset + job->elements; i++)
        expect_element(rig, job, 0, i, tree(rig, job->contributors, i));
}

static void expect_broadcast(const group_rig *rig, const group_job *job) {
    for (int k = 0; k < rig->count; k++)
        for (size_t i = job->offset; i < job->offset + job->elements; i++)
            expect_element(rig, job, k, i, rig->given[0][i]);
}

static void expect_scattered(const group_rig *rig, const group_job *job) {
    size_t part = job->elements / (size_t)rig->count;
    for (int k = 0; k < rig->count; k++)
        for (size_t i = 0; i < part; i++) {
            size_t at = job->offset + (size_t)k * part + i;
            expect_element(rig, job, k, at, tree(rig, job->contributors, at));
        }
}

static void expect_gathered(const group_rig *rig, const group_job *job) {
    size_t part = job->elements / (size_t)rig->count;
    for (int k = 0; k < rig->count; k++)
        for (size_t i = 0; i < job->elements; i++)
            expect_element(rig, job, k, job->offset + i, rig->given[i / part][job->offset + i]);
}

/* Parts grow with the square of the device's number, and small ranges leave the first ones none. */
static void cut_unequally(int count, size_t elements, size_t *cuts) {
    size_t devices = (size_t)count;
    for (size_t k = 0; k <= devices; k++)
        cuts[k] = elements * k * k / (devices * devices);
}

static yoke_status gather_unequal(yoke_device_group *group, const yoke_range *range) {
    size_t cuts[MOST + 1];
    yoke_range unequal = *range;
    cut_unequally(group->count, range->elements, cuts);
    unequal.cuts = cuts;
    return yoke_device_group_all_gather(group, &unequal);
}

static void expect_gathered_unequally(const group_rig *rig, const group_job *job) {
    size_t cuts[MOST + 1];
    cut_unequally(rig->count, job->elements, cuts);
    for (int k = 0; k < rig->count; k++)
        for (int from = 0; from < rig->count; from++)
            for (size_t at = job->offset + cuts[from]; at < job->offset + cuts[from + 1]; at++)
                expect_element(rig, job, k, at, rig->given[from][at]);
}

static const collective_case reduce = {yoke_device_group_reduce, NULL, expect_reduced, false};
static const collective_case broadcast = {NULL, yoke_device_group_broadcast, expect_broadcast,
                                          false};
static const collective_case reduce_scatter = {yoke_device_group_reduce_scatter, NULL,
                                               expect_scattered, true};
static const collective_case all_gather = {NULL, yoke_device_group_all_gather, expect_gathered,
                                           true};

static const collective_case unequal_gather = {NULL, gather_unequal, expect_gathered_unequally,
                                               false};

static void check(group_rig *rig, const collective_case *collective, group_job job) {
    if (collective->in_parts) {
        size_t unit = 16 * (size_t)rig->count;
        job.elements = (job.elements + unit - 1) / unit * unit;
    }
    yoke_range range = {.buffers = rig->memory, .offset = job.offset, .elements = job.elements};
    give(rig, &job);
    EXPECT_OK(collective->sum != NULL ? collective->sum(rig->group, &range, job.contributors)
                                      : collective->spread(rig->group, &range));
    take(rig, &job);
    collective->expect(rig, &job);
    expect_edges(rig, &job);
}

static void check_sizes(group_rig *rig, const collective_case *collective) {
    static const size_t sizes[] = {0, 1, 16, 1000, 100000};
    for (size_t i = 0; i < COUNT(sizes); i++) {
        size_t offset = i % 2 == 0 || collective->in_parts ? EDGE : 3;
        check(rig, collective, (group_job){offset, sizes[i], rig->count});
    }
    for (int contributors = 1; collective->sum != NULL && contributors < rig->count;
         contributors += 2)
        check(rig, collective, (group_job){EDGE, 1000, contributors});
}

static void check_list(const collective_case *collective, const char *list, yoke_collectives kind) {
    group_rig rig;
    open_rig(&rig, list, kind);
    check_sizes(&rig, collective);
    close_rig(&rig);
}

static void check_own_gpus(const collective_case *collective, yoke_collectives kind) {
    for (int count = 1; count <= MOST && count <= devices_gpus(); count++) {
        char list[24];
        snprintf(list, sizeof list, "%dxcuda", count);
        check_list(collective, list, kind);
    }
}

static void check_copy(const collective_case *collective) {
    static const char *const shared[] = {"2xcuda:0", "5xcuda:0", "8xcuda:0"};
    check_own_gpus(collective, YOKE_COLLECTIVES_COPY);
    for (size_t i = 0; i < COUNT(shared); i++)
        check_list(collective, shared[i], YOKE_COLLECTIVES_COPY);
    if (devices_gpus() > 1)
        check_list(collective, "cuda:0,cuda:1,2xcuda:0,cuda:1", YOKE_COLLECTIVES_COPY);
}

static void require_nccl(void) {
    group_rig rig;
    open_devices(&rig, "cuda:0");
    yoke_status status = create_group(&rig, YOKE_COLLECTIVES_NCCL);
    bool missing = status == YOKE_ERROR_DEVICE && strstr(yoke_last_error(), "NCCL_ROOT") != NULL;
    if (status != YOKE_OK && !missing) fail_msg("%s", yoke_last_error());
    close_rig(&rig);
    if (missing) skip();
}

static void check_nccl(const collective_case *collective) {
    require_nccl();
    check_own_gpus(collective, YOKE_COLLECTIVES_NCCL);
}

/* Promises. */

static void copies_reduce_by_a_tree_to_the_bit(void **state) {
    (void)state;
    check_copy(&reduce);
}

static void copies_broadcast_what_the_root_holds(void **state) {
    (void)state;
    check_copy(&broadcast);
}

static void copies_reduce_each_part_by_a_tree_to_the_bit(void **state) {
    (void)state;
    check_copy(&reduce_scatter);
}

static void copies_gather_every_part(void **state) {
    (void)state;
    check_copy(&all_gather);
    check_copy(&unequal_gather);
}

static void nccl_reduces_to_the_sum(void **state) {
    (void)state;
    check_nccl(&reduce);
}

static void nccl_broadcasts_what_the_root_holds(void **state) {
    (void)state;
    check_nccl(&broadcast);
}

static void nccl_reduces_each_part_to_the_sum(void **state) {
    (void)state;
    check_nccl(&reduce_scatter);
}

static void nccl_gathers_every_part(void **state) {
    (void)state;
    check_nccl(&all_gather);
    check_nccl(&unequal_gather);
}

/* Reduce, update, broadcast of one bucket while the next waits: as a step queues them. */
static void collectives_follow_each_other_without_the_host(void **state) {
    (void)state;
    enum { BUCKETS = 6, ELEMENTS = 16 * MOST * 20 };
    group_rig rig;
    open_rig(&rig, devices_gpus() >= 4 ? "4xcuda" : "4xcuda:0", YOKE_COLLECTIVES_COPY);
    group_job all = {EDGE, BUCKETS * ELEMENTS, rig.count};
    give(&rig, &all);
    for (size_t bucket = 0; bucket < BUCKETS; bucket++) {
        yoke_range range = {
            .buffers = rig.memory, .offset = EDGE + bucket * ELEMENTS, .elements = ELEMENTS};
        if (bucket % 2 == 0) {
            EXPECT_OK(yoke_device_group_reduce(rig.group, &range, rig.count));
            EXPECT_OK(yoke_device_group_broadcast(rig.group, &range));
        } else {
            EXPECT_OK(yoke_device_group_reduce_scatter(rig.group, &range, rig.count));
            EXPECT_OK(yoke_device_group_all_gather(rig.group, &range));
        }
    }
    take(&rig, &all);
    for (int k = 0; k < rig.count; k++)
        for (size_t i = EDGE; i < EDGE + all.elements; i++)
            expect_element(&rig, &all, k, i, tree(&rig, rig.count, i));
    expect_edges(&rig, &all);
    close_rig(&rig);
}

static void nccl_refuses_a_gpu_that_is_listed_twice(void **state) {
    (void)state;
    require_nccl();
    group_rig rig;
    open_devices(&rig, devices_gpus() > 1 ? "cuda:0,cuda:1,cuda:0" : "2xcuda:0");
    assert_int_equal(create_group(&rig, YOKE_COLLECTIVES_NCCL), YOKE_ERROR_DEVICE);
    assert_null(rig.group);
    assert_non_null(strstr(yoke_last_error(), "both GPU 0"));
    assert_non_null(strstr(yoke_last_error(), "\"copy\""));
    close_rig(&rig);
}

static void auto_takes_nccl_only_for_two_gpus_or_more_of_their_own(void **state) {
    (void)state;
    require_nccl();
    static const struct {
        const char *list, *name;
        int gpus;
    } rows[] = {
        {"cuda:0", "copy", 1},  {"3xcuda:0", "copy", 1},       {"cuda:0,cuda:1,cuda:0", "copy", 2},
        {"2xcuda", "nccl ", 2}, {"cuda:1,cuda:0", "nccl ", 2},
    };
    for (size_t i = 0; i < COUNT(rows) && rows[i].gpus <= devices_gpus(); i++) {
        group_rig rig;
        open_devices(&rig, rows[i].list);
        EXPECT_OK(create_group(&rig, YOKE_COLLECTIVES_AUTO));
        assert_memory_equal(yoke_device_group_name(rig.group), rows[i].name, strlen(rows[i].name));
        close_rig(&rig);
    }
}

static void a_range_or_a_number_of_contributors_that_cannot_be_is_refused(void **state) {
    (void)state;
    group_rig rig;
    open_rig(&rig, "3xcuda:0", YOKE_COLLECTIVES_COPY);
    yoke_range range = {.buffers = rig.memory, .elements = 48};
    assert_int_equal(yoke_device_group_reduce(rig.group, &range, 0), YOKE_ERROR_ARGUMENT);
    assert_int_equal(yoke_device_group_reduce(rig.group, &range, 4), YOKE_ERROR_ARGUMENT);
    assert_int_equal(yoke_device_group_reduce_scatter(rig.group, &range, 4), YOKE_ERROR_ARGUMENT);
    EXPECT_OK(yoke_device_group_all_gather(rig.group, &range));
    range.elements = 50;
    assert_int_equal(yoke_device_group_reduce_scatter(rig.group, &range, 3), YOKE_ERROR_ARGUMENT);
    assert_non_null(strstr(yoke_last_error(), "multiple of 48"));
    assert_int_equal(yoke_device_group_all_gather(rig.group, &range), YOKE_ERROR_ARGUMENT);
    assert_non_null(strstr(yoke_last_error(), "multiple of 3"));
    close_rig(&rig);
}

static void devices_that_share_their_memory_have_no_group(void **state) {
    (void)state;
    static const yoke_collectives kinds[] = {YOKE_COLLECTIVES_AUTO, YOKE_COLLECTIVES_NCCL,
                                             YOKE_COLLECTIVES_COPY};
    group_rig rig;
    open_devices(&rig, "2xcpu");
    for (size_t i = 0; i < COUNT(kinds); i++) {
        assert_int_equal(create_group(&rig, kinds[i]), YOKE_ERROR_DEVICE);
        assert_null(rig.group);
    }
    yoke_device_group_destroy(NULL);
    close_rig(&rig);
}

int main(void) {
    const struct CMUnitTest on_cpus[] = {
        cmocka_unit_test(devices_that_share_their_memory_have_no_group),
    };
    const struct CMUnitTest on_gpus[] = {
        cmocka_unit_test(copies_reduce_by_a_tree_to_the_bit),
        cmocka_unit_test(copies_broadcast_what_the_root_holds),
        cmocka_unit_test(copies_reduce_each_part_by_a_tree_to_the_bit),
        cmocka_unit_test(copies_gather_every_part),
        cmocka_unit_test(nccl_reduces_to_the_sum),
        cmocka_unit_test(nccl_broadcasts_what_the_root_holds),
        cmocka_unit_test(nccl_reduces_each_part_to_the_sum),
        cmocka_unit_test(nccl_gathers_every_part),
        cmocka_unit_test(collectives_follow_each_other_without_the_host),
        cmocka_unit_test(nccl_refuses_a_gpu_that_is_listed_twice),
        cmocka_unit_test(auto_takes_nccl_only_for_two_gpus_or_more_of_their_own),
        cmocka_unit_test(a_range_or_a_number_of_contributors_that_cannot_be_is_refused),
    };
    if (devices_are_cpus()) return cmocka_run_group_tests(on_cpus, NULL, NULL);
    return RUN_ON_DEVICES(on_gpus, NULL, NULL);
}
