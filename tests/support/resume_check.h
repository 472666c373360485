/* SPDX-License-Identifier: Apache-2.0 */
/* The state of an engine in a file, and DDP that goes on from it. */
#ifndef TESTS_RESUME_CHECK_H
#define TESTS_RESUME_CHECK_H

#include <dirent.h>
#include <unistd.h>

#include "support/ddp_check.h"
#include "train/checkpoint.h"

static char folder[] = "/tmp/yoke-checkpoint-XXXXXX";

static inline int make_folder(void **state) {
    (void)state;
    return mkdtemp(folder) == NULL;
}

static inline int remove_folder(void **state) {
    (void)state;
    DIR *directory = opendir(folder);
    if (directory == NULL) return -1;
    for (struct dirent *entry; (entry = readdir(directory)) != NULL;)
        unlinkat(dirfd(directory), entry->d_name, 0);
    closedir(directory);
    return rmdir(folder);
}

static inline const char *file_of(int step) {
    static _Thread_local char path[80];
    snprintf(path, sizeof path, "%s/%d", folder, step);
    return path;
}

static inline yoke_status step_on(yoke_data_parallel *parallel, const ddp_setting *s, int step,
                                  int world, int rank) {
    check_batch whole = check_batch_make(rows_of(s, step), (uint32_t)step);
    yoke_batch batch = part_of(s, &whole, world, rank);
    yoke_status status =
        yoke_data_parallel_step(parallel, &batch, YOKE_OPTIMIZER_LEARNING_RATE, NULL);
    check_batch_free(&whole);
    return status;
}

/* Steps first .. STEPS - 1; saves after each of them when asked. */
static inline yoke_status go_on(yoke_data_parallel *parallel, const ddp_setting *s, int first,
                                bool saves, int world, int rank) {
    for (int step = first; step < STEPS; step++) {
        if (saves) TRY(yoke_state_save(parallel, file_of(step)));
        TRY(step_on(parallel, s, step, world, rank));
    }
    return saves ? yoke_state_save(parallel, file_of(STEPS)) : YOKE_OK;
}

/* The digests of two files' tensors, which are equal when all bytes are. */
static inline void expect_same_tensors(const char *left, const char *right) {
    yoke_checkpoint *a, *b;
    EXPECT_OK(yoke_checkpoint_open(&a, left));
    EXPECT_OK(yoke_checkpoint_open(&b, right));
    assert_int_equal(a->file.count, b->file.count);
    for (int i = 0; i < a->file.count; i++) {
        yoke_checkpoint_tensor_info one = {.struct_size = sizeof one}, two = one;
        EXPECT_OK(yoke_checkpoint_tensor(a, i, &one));
        EXPECT_OK(yoke_checkpoint_tensor(b, i, &two));
        assert_string_equal(one.name, two.name);
        if (strcmp(one.digest, two.digest) != 0) fail_msg("%s differs", one.name);
    }
    yoke_checkpoint_close(a);
    yoke_checkpoint_close(b);
}

/* DDP. */

typedef struct rank_plan {
    course course;
    int resume; /* the step to go on after; 0: from the start, saving after every step */
    uint64_t hashes[RANKS];
} rank_plan;

static inline yoke_status play_rank(yoke_process_group *group, const script *play) {
    const course *plan = play->detail;
    rank_plan *ranks = (rank_plan *)plan;
    rank_rig rig = {0};
    yoke_status status = begin_rank(&rig, plan, play, group);
    if (status == YOKE_OK && ranks->resume > 0)
        status = yoke_state_load(rig.parallel, file_of(ranks->resume), NULL);
    if (status == YOKE_OK)
        status = go_on(rig.parallel, plan->setting, ranks->resume, ranks->resume == 0, group->world,
                       group->rank);
    if (status == YOKE_OK)
        status = yoke_data_parallel_hash(rig.parallel, &ranks->hashes[group->rank]);
    if (status == YOKE_OK && ranks->resume > 0) {
        char end[80];
        snprintf(end, sizeof end, "%s/end", folder);
        status = yoke_state_save(rig.parallel, end);
    }
    return end_rank(&rig, status);
}

static inline void play_resumed(rank_plan *ranks, int world) {
    script play = {
        .world = world, .timeout_ms = TIMEOUT_MS, .scene = play_rank, .detail = &ranks->course};
    outcome *outcomes = play_ranks(&play);
    expect_all_well(outcomes, world);
    free(outcomes);
}

/* Ranks that stop after a step and go on from the file end with the bits of those that did not. */
static inline void check_ranks_resume(const ddp_setting *s, int world) {
    yoke_model *model = check_model(s->norm, s->dropout);
    rank_plan whole = {.course = {.setting = s, .model = model}};
    play_resumed(&whole, world);
    for (int k = 1; k <= STEPS; k += 3) {
        rank_plan resumed = {.course = whole.course, .resume = k};
        char end[80];
        play_resumed(&resumed, world);
        snprintf(end, sizeof end, "%s/end", folder);
        assert_true(resumed.hashes[0] == whole.hashes[0]);
        if (!s->norm) assert_true(resumed.hashes[world - 1] == whole.hashes[world - 1]);
        expect_same_tensors(end, file_of(STEPS));
    }
    yoke_model_destroy(model);
}

#endif
