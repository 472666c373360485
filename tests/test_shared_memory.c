/* Collectives over shared memory equal a plain loop, bit for bit, whoever runs them. */
#include <math.h>

#include "process_ranks.h"

/* Values: element i of rank r, and the left fold over the ranks, by another road than the
 * library's.
 */

static size_t bytes_of(yoke_element element) {
    return element == YOKE_ELEMENT_INT64 ? 8 : element == YOKE_ELEMENT_FLOAT32 ? 4 : 2;
}

static float from_bfloat16(uint16_t stored) {
    uint32_t bits = (uint32_t)stored << 16;
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static uint16_t to_bfloat16(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    uint32_t low = bits & 0xffffu, high = bits >> 16;
    return (uint16_t)(high + (low > 0x8000u || (low == 0x8000u && (high & 1u))));
}

static double raw_value(int rank, size_t i) {
    return (double)((i * 37 + (size_t)rank * 101 + 11) % 1009) - 504;
}

static void put(void *data, size_t i, yoke_element element, double value) {
    if (element == YOKE_ELEMENT_INT64)
        ((int64_t *)data)[i] = (int64_t)value;
    else if (element == YOKE_ELEMENT_FLOAT32)
        ((float *)data)[i] = (float)(value / 7);
    else
        ((uint16_t *)data)[i] = to_bfloat16((float)(value / 7));
}

static void fill(void *data, size_t count, yoke_element element, int rank, size_t first) {
    for (size_t i = 0; i < count; i++)
        put(data, i, element, raw_value(rank, first + i));
}

static int64_t fold_integers(yoke_reduction reduction, int64_t left, int64_t right) {
    if (reduction == YOKE_MIN) return left < right ? left : right;
    if (reduction == YOKE_MAX) return left > right ? left : right;
    return left + right;
}

static float fold_floats(yoke_reduction reduction, float left, float right) {
    if (reduction == YOKE_MIN) return fminf(left, right);
    if (reduction == YOKE_MAX) return fmaxf(left, right);
    return left + right;
}

/* Writes the expected element to `to`. */
static void expect_fold(void *to, size_t i, yoke_element element, yoke_reduction reduction,
                        int world) {
    int64_t integer = 0;
    float real = 0;
    for (int rank = 0; rank < world; rank++) {
        unsigned char stored[8];
        put(stored, 0, element, raw_value(rank, i));
        int64_t other = 0;
        float value = 0;
        if (element == YOKE_ELEMENT_INT64) memcpy(&other, stored, sizeof other);
        if (element == YOKE_ELEMENT_FLOAT32) memcpy(&value, stored, sizeof value);
        if (element == YOKE_ELEMENT_BFLOAT16) value = from_bfloat16(*(uint16_t *)(void *)stored);
        integer = rank == 0 ? other : fold_integers(reduction, integer, other);
        real = rank == 0 ? value : fold_floats(reduction, real, value);
    }
    if (reduction == YOKE_MEAN) {
        integer /= world;
        real /= (float)world;
    }
    uint16_t small = to_bfloat16(real);
    if (element == YOKE_ELEMENT_INT64) memcpy(to, &integer, sizeof integer);
    if (element == YOKE_ELEMENT_FLOAT32) memcpy(to, &real, sizeof real);
    if (element == YOKE_ELEMENT_BFLOAT16) memcpy(to, &small, sizeof small);
}

/* One setting of the grid, as every rank runs it. */
typedef struct setting {
    size_t count;
    yoke_element element;
    yoke_reduction reduction;
} setting;

typedef struct rank_memory { /* of one rank, for every collective */
    char *whole, *part;      /* [world x count], [count] */
} rank_memory;

static yoke_status expect_bytes(const char *what, const void *found, const void *expected,
                                size_t bytes) {
    if (memcmp(found, expected, bytes) == 0) return YOKE_OK;
    return FAIL(YOKE_ERROR_INTERNAL, "%s: other bits than the loop's, of %zu bytes", what, bytes);
}

static yoke_status expect_folded(const char *what, const void *found, const setting *s, int world,
                                 size_t first) {
    size_t bytes = s->count * bytes_of(s->element);
    char *expected = malloc(bytes + 1);
    for (size_t i = 0; i < s->count; i++)
        expect_fold(expected + i * bytes_of(s->element), first + i, s->element, s->reduction,
                    world);
    yoke_status status = expect_bytes(what, found, expected, bytes);
    free(expected);
    return status;
}

static yoke_status expect_filled(const char *what, const void *found, const setting *s, int rank,
                                 size_t first) {
    size_t bytes = s->count * bytes_of(s->element);
    char *expected = malloc(bytes + 1);
    fill(expected, s->count, s->element, rank, first);
    yoke_status status = expect_bytes(what, found, expected, bytes);
    free(expected);
    return status;
}

static yoke_status check_reductions(yoke_process_group *group, const setting *s,
                                    rank_memory memory) {
    int world = group->world, rank = group->rank, root = (world - 1) / 2;
    yoke_reduce_call call = {s->count, s->element, s->reduction, -1};
    fill(memory.part, s->count, s->element, rank, 0);
    TRY(group->reduce(group, memory.part, &call));
    TRY(expect_folded("all_reduce", memory.part, s, world, 0));

    call.root = root;
    fill(memory.part, s->count, s->element, rank, 0);
    TRY(group->reduce(group, memory.part, &call));
    TRY(rank == root ? expect_folded("reduce", memory.part, s, world, 0)
                     : expect_filled("reduce elsewhere", memory.part, s, rank, 0));

    call.root = -1;
    fill(memory.whole, s->count * (size_t)world, s->element, rank, 0);
    TRY(group->reduce_scatter(group, memory.part, memory.whole, &call));
    return expect_folded("reduce_scatter", memory.part, s, world, s->count * (size_t)rank);
}

static yoke_status check_moves(yoke_process_group *group, const setting *s, rank_memory memory) {
    int world = group->world, rank = group->rank, root = (world - 1) / 2;
    size_t bytes = s->count * bytes_of(s->element);
    yoke_reduce_call call = {s->count, s->element, YOKE_SUM, root};
    fill(memory.part, s->count, s->element, rank, 0);
    TRY(group->broadcast(group, memory.part, &call));
    TRY(expect_filled("broadcast", memory.part, s, root, 0));

    for (int gather = 0; gather < 2; gather++) {
        call.root = gather ? root : -1;
        memset(memory.whole, 0x5a, bytes * (size_t)world);
        fill(memory.part, s->count, s->element, rank, 0);
        TRY(group->all_gather(group, memory.whole, memory.part, &call));
        if (gather && rank != root) continue;
        for (int other = 0; other < world; other++)
            TRY(expect_filled("all_gather", memory.whole + (size_t)other * bytes, s, other, 0));
    }

    call.root = root;
    fill(memory.whole, s->count * (size_t)world, s->element, rank, 0);
    TRY(group->scatter(group, memory.part, rank == root ? memory.whole : NULL, &call));
    return expect_filled("scatter", memory.part, s, root, s->count * (size_t)rank);
}

static yoke_status check_setting(yoke_process_group *group, const setting *s, bool shared) {
    size_t bytes = s->count * bytes_of(s->element), world = (size_t)group->world;
    rank_memory memory;
    void *whole, *part;
    if (shared) {
        TRY(group->allocate(group, bytes * world, &whole));
        TRY(group->allocate(group, bytes, &part));
    } else {
        whole = malloc(bytes * world + 1);
        part = malloc(bytes + 1);
    }
    memory = (rank_memory){.whole = whole, .part = part};
    yoke_status status = check_reductions(group, s, memory);
    if (status == YOKE_OK && s->reduction == YOKE_SUM) status = check_moves(group, s, memory);
    if (!shared) {
        free(whole);
        free(part);
    }
    return status;
}

static yoke_status check_grid(yoke_process_group *group, const script *play) {
    static const size_t counts[] = {0, 1, 4, 64, 100, 1000, 10000};
    (void)play;
    TRY(group->barrier(group));
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
        for (int kind = 0; kind < 12; kind++) {
            setting s = {counts[i], (yoke_element)(kind % 3), (yoke_reduction)(kind / 3)};
            TRY(check_setting(group, &s, false));
        }
        setting s = {counts[i], (yoke_element)(i % 3), YOKE_SUM};
        TRY(check_setting(group, &s, true));
    }
    return YOKE_OK;
}

static void every_collective_equals_a_loop(void **state) {
    (void)state;
    for (int world = 1; world <= RANKS; world++) {
        outcome *outcomes =
            play_threads(&(script){.world = world, .timeout_ms = TIMEOUT_MS, .scene = check_grid});
        expect_all_well(outcomes, world);
        free(outcomes);
    }
}

static void processes_do_what_threads_do(void **state) {
    (void)state;
    static const int worlds[] = {2, 5};
    for (size_t i = 0; i < sizeof worlds / sizeof worlds[0]; i++) {
        script play = {.world = worlds[i], .timeout_ms = TIMEOUT_MS, .scene = check_grid};
        outcome *outcomes = start_processes(&play);
        join_processes(worlds[i]);
        expect_all_well(outcomes, worlds[i]);
        munmap(outcomes, RANKS * sizeof *outcomes);
    }
}

static yoke_status check_large(yoke_process_group *group, const script *play) {
    (void)play;
    setting sum = {700001, YOKE_ELEMENT_FLOAT32, YOKE_SUM};
    setting mean = {300007, YOKE_ELEMENT_BFLOAT16, YOKE_MEAN};
    TRY(check_setting(group, &sum, false));
    TRY(check_setting(group, &sum, true));
    TRY(check_setting(group, &mean, false));
    return check_setting(group, &mean, true);
}

static void buffers_larger_than_a_slot_go_in_chunks(void **state) {
    (void)state;
    for (int world = 2; world <= 3; world++) {
        outcome *outcomes =
            play_threads(&(script){.world = world, .timeout_ms = TIMEOUT_MS, .scene = check_large});
        expect_all_well(outcomes, world);
        free(outcomes);
    }
}

/* Odd ranks reduce private memory, the others memory that all can read. */
static yoke_status mix_memories(yoke_process_group *group, const script *play) {
    (void)play;
    setting s = {200003, YOKE_ELEMENT_FLOAT32, YOKE_SUM};
    yoke_reduce_call call = {s.count, s.element, s.reduction, -1};
    void *shared;
    TRY(group->allocate(group, s.count * 4, &shared));
    void *own = malloc(s.count * 4);
    void *buffer = group->rank % 2 == 1 ? own : shared;
    yoke_status status = YOKE_OK;
    for (int round = 0; round < 3 && status == YOKE_OK; round++) {
        fill(buffer, s.count, s.element, group->rank, 0);
        status = group->reduce(group, buffer, &call);
        if (status == YOKE_OK) status = expect_folded("mixed", buffer, &s, group->world, 0);
    }
    free(own);
    return status;
}

static void private_and_shared_buffers_meet(void **state) {
    (void)state;
    for (int world = 2; world <= 5; world += 3) {
        outcome *outcomes = play_threads(
            &(script){.world = world, .timeout_ms = TIMEOUT_MS, .scene = mix_memories});
        expect_all_well(outcomes, world);
        free(outcomes);
    }
}

/* Buckets are started while the rank computes; some ranks look in between, some never. More are
 * started than the transport keeps in flight. */
static yoke_status overlap(yoke_process_group *group, const script *play) {
    enum { BUCKETS = 150, COUNT = 999 };
    (void)play;
    setting s = {COUNT, YOKE_ELEMENT_FLOAT32, YOKE_SUM};
    void *memory;
    TRY(group->allocate(group, BUCKETS * COUNT * sizeof(float), &memory));
    float *buckets = memory;
    for (int step = 0; step < 3; step++) {
        for (size_t i = 0; i < BUCKETS; i++) {
            fill(buckets + i * COUNT, COUNT, YOKE_ELEMENT_FLOAT32, group->rank, i);
            TRY(group->start(group, buckets + i * COUNT, COUNT));
            if (group->rank % 2 == 0) TRY(group->progress(group, false));
        }
        TRY(group->progress(group, true));
        for (size_t i = 0; i < BUCKETS; i++)
            TRY(expect_folded("a bucket", buckets + i * COUNT, &s, group->world, i));
        TRY(group->barrier(group));
    }
    /* A collective in between waits for what was started before. */
    fill(buckets, COUNT, YOKE_ELEMENT_FLOAT32, group->rank, 0);
    TRY(group->start(group, buckets, COUNT));
    yoke_reduce_call call = {COUNT, YOKE_ELEMENT_FLOAT32, YOKE_MAX, -1};
    TRY(group->reduce(group, buckets, &call));
    return expect_folded("sum, then max", buckets, &s, group->world, 0);
}

static void started_reductions_go_on_behind_the_computation(void **state) {
    (void)state;
    for (int world = 1; world <= 4; world++) {
        outcome *outcomes =
            play_threads(&(script){.world = world, .timeout_ms = TIMEOUT_MS, .scene = overlap});
        expect_all_well(outcomes, world);
        free(outcomes);
    }
}

/* Rank 0 starts; progress of a rank alone returns at once. */
static yoke_status progress_alone(yoke_process_group *group, const script *play) {
    void *memory;
    (void)play;
    TRY(group->allocate(group, 4000, &memory));
    TRY(group->barrier(group));
    if (group->rank != 0) usleep(100000);
    uint64_t begin = yoke_now_ns();
    ((float *)memory)[0] = 1;
    TRY(group->start(group, memory, 1000));
    TRY(group->progress(group, false));
    if (group->rank == 0 && yoke_now_ns() - begin > 80000000)
        return FAIL(YOKE_ERROR_INTERNAL, "progress waited %llu ns",
                    (unsigned long long)(yoke_now_ns() - begin));
    TRY(group->progress(group, true));
    if (((float *)memory)[0] == (float)group->world) return YOKE_OK;
    return FAIL(YOKE_ERROR_INTERNAL, "a sum of ones is %g", (double)((float *)memory)[0]);
}

static void progress_never_waits(void **state) {
    (void)state;
    outcome *outcomes =
        play_threads(&(script){.world = 2, .timeout_ms = TIMEOUT_MS, .scene = progress_alone});
    expect_all_well(outcomes, 2);
    free(outcomes);
}

static yoke_status keep_nan(yoke_process_group *group, const script *play) {
    (void)play;
    for (int reduction = YOKE_MIN; reduction <= YOKE_MAX; reduction++) {
        for (int victim = 0; victim < group->world; victim++) {
            float values[3] = {1, group->rank == victim ? NAN : 2, 3};
            yoke_reduce_call call = {3, YOKE_ELEMENT_FLOAT32, (yoke_reduction)reduction, -1};
            TRY(group->reduce(group, values, &call));
            if (!isnan(values[1]) || values[0] != 1 || values[2] != 3)
                return FAIL(YOKE_ERROR_INTERNAL, "%g %g %g", (double)values[0], (double)values[1],
                            (double)values[2]);
        }
    }
    return YOKE_OK;
}

static void a_nan_is_not_lost_in_a_minimum(void **state) {
    (void)state;
    outcome *outcomes =
        play_threads(&(script){.world = 3, .timeout_ms = TIMEOUT_MS, .scene = keep_nan});
    expect_all_well(outcomes, 3);
    free(outcomes);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_collective_equals_a_loop),
        cmocka_unit_test(processes_do_what_threads_do),
        cmocka_unit_test(buffers_larger_than_a_slot_go_in_chunks),
        cmocka_unit_test(private_and_shared_buffers_meet),
        cmocka_unit_test(started_reductions_go_on_behind_the_computation),
        cmocka_unit_test(progress_never_waits),
        cmocka_unit_test(a_nan_is_not_lost_in_a_minimum),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
