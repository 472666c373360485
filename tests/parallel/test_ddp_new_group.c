/* SPDX-License-Identifier: Apache-2.0 */
/* After a failure that breaks their process group, the same processes meet again in a new group and
 * go on with the weights they have. */
#include "support/ddp_check.h"

enum { STEPS_BEFORE = 3, STEPS_AFTER = 4, LABEL_OUT_OF_RANGE = CHECK_CLASSES };

static const ddp_setting setting = {.batch = 16, .accumulate = 1, .norm = true};

/* Where the ranks meet again: a store of its own. */
typedef struct meeting {
    yoke_model *model;
    char store[64];
} meeting;

static yoke_status meet(yoke_process_group **group, const meeting *place, int rank, int world) {
    yoke_process_group_options options = {
        .struct_size = sizeof options,
        .rank =
            &(yoke_rank_info){.struct_size = sizeof(yoke_rank_info), .rank = rank, .world = world},
        .transport = YOKE_TRANSPORT_SHARED_MEMORY,
        .store = place->store,
        .timeout_ms = TIMEOUT_MS};
    return yoke_process_group_create(group, &options);
}

static yoke_status run_steps(yoke_data_parallel *parallel, int first, int count, int world,
                             int rank, bool spoil) {
    yoke_status status = YOKE_OK;
    for (int step = first; step < first + count && status == YOKE_OK; step++) {
        check_batch whole = check_batch_make(setting.batch, (uint32_t)step);
        yoke_batch batch = part_of(&setting, &whole, world, rank);
        if (spoil && rank == 1) whole.labels[batch.first_row] = LABEL_OUT_OF_RANGE;
        status = yoke_data_parallel_step(parallel, &batch, YOKE_OPTIMIZER_LEARNING_RATE, NULL);
        check_batch_free(&whole);
    }
    return status;
}

/* All tensors, running statistics too, from one engine to the next. */
static yoke_status copy_state(yoke_data_parallel *to, yoke_data_parallel *from,
                              const yoke_model *model) {
    float values[4096];
    for (int i = 0; i < yoke_model_tensor_count(model); i++) {
        yoke_tensor_info info = {.struct_size = sizeof info};
        TRY(yoke_model_tensor(model, i, &info));
        if (info.integer) continue;
        assert_in_range(info.count, 1, 4096);
        TRY(yoke_data_parallel_read(from, info.name, values, info.count));
        TRY(yoke_data_parallel_write(to, info.name, values, info.count));
    }
    return YOKE_OK;
}

/* In the same process: train, fail, meet again with an engine of its own, go on. */
static yoke_status fail_and_go_on(yoke_process_group *first, const script *play) {
    const meeting *place = play->detail;
    uint64_t *hashes = play->shared;
    const course plan = {.setting = &setting, .model = place->model};
    int rank = first->rank, world = first->world;
    rank_rig old = {0}, again = {0};
    yoke_process_group *second = NULL;
    yoke_status status = begin_rank(&old, &plan, play, first);
    if (status == YOKE_OK) status = run_steps(old.parallel, 0, STEPS_BEFORE, world, rank, false);
    if (status == YOKE_OK && run_steps(old.parallel, STEPS_BEFORE, 1, world, rank, true) == YOKE_OK)
        status = FAIL(YOKE_ERROR_INTERNAL, "the step with a bad label passed");
    if (status == YOKE_OK && yoke_data_parallel_step(old.parallel, NULL, 0.1, NULL) == YOKE_OK)
        status = FAIL(YOKE_ERROR_INTERNAL, "the broken group works");
    if (status == YOKE_OK) status = meet(&second, place, rank, world);
    if (status == YOKE_OK) status = begin_rank(&again, &plan, play, second);
    if (status == YOKE_OK) status = copy_state(again.parallel, old.parallel, place->model);
    if (status == YOKE_OK) status = yoke_data_parallel_broadcast(again.parallel);
    if (status == YOKE_OK)
        status = run_steps(again.parallel, STEPS_BEFORE, STEPS_AFTER, world, rank, false);
    if (status == YOKE_OK) status = yoke_data_parallel_broadcast(again.parallel); /* statistics */
    if (status == YOKE_OK) status = yoke_data_parallel_hash(again.parallel, &hashes[rank]);
    status = end_rank(&again, end_rank(&old, status));
    yoke_error error = yoke_error_take(status);
    yoke_process_group_destroy(second);
    return yoke_error_restore(&error);
}

/* As many devices of one engine, and a second engine with the first one's weights. */
static uint64_t undisturbed(const yoke_model *model, int devices) {
    uint64_t hash;
    yoke_optimizer_options optimizer = optimizer_of(&setting);
    check_engine old = check_engine_make(model, devices, options_of(&setting), &optimizer);
    check_engine again = check_engine_make(model, devices, options_of(&setting), &optimizer);
    EXPECT_OK(run_steps(old.parallel, 0, STEPS_BEFORE, 1, 0, false));
    EXPECT_OK(copy_state(again.parallel, old.parallel, model));
    EXPECT_OK(run_steps(again.parallel, STEPS_BEFORE, STEPS_AFTER, 1, 0, false));
    EXPECT_OK(yoke_data_parallel_hash(again.parallel, &hash));
    check_engine_free(&again);
    check_engine_free(&old);
    return hash;
}

static void a_new_group_in_the_same_processes_goes_on(void **state) {
    (void)state;
    meeting place = {.model = check_model(true, 0)};
    for (int world = 2; world <= 4; world++)
        for (int processes = 0; processes < 2; processes++) {
            snprintf(place.store, sizeof place.store, "file:///tmp/yoke-again-%d-%d-%d",
                     (int)getpid(), world, processes);
            uint64_t *hashes = share_bytes(RANKS * sizeof *hashes);
            script play = {.world = world,
                           .timeout_ms = TIMEOUT_MS,
                           .scene = fail_and_go_on,
                           .detail = &place,
                           .shared = hashes};
            outcome *outcomes = processes ? start_processes(&play) : play_threads(&play);
            if (processes) assert_int_equal(join_processes(world), 0);
            expect_all_well(outcomes, world);
            for (int rank = 1; rank < world; rank++)
                assert_true(hashes[rank] == hashes[0]);
            assert_true(hashes[0] == undisturbed(place.model, world));
            if (processes)
                munmap(outcomes, RANKS * sizeof *outcomes);
            else
                free(outcomes);
            munmap(hashes, RANKS * sizeof *hashes);
        }
    yoke_model_destroy(place.model);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_new_group_in_the_same_processes_goes_on),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
