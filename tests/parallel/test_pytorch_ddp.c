/* SPDX-License-Identifier: Apache-2.0 */
/* The engines of a process group compute what PyTorch's DistributedDataParallel computes, uneven
 * ranks included, against values that fixtures/make_ddp_fixture.py took from it over gloo. Ranks
 * are threads. */
#include "base/chunk.h"
#include "pytorch_rig.h"
#include "support/process_ranks.h"

typedef struct ddp_case {
    const json_t *fixture, *test_case;
} ddp_case;

static const subject_model *subject_of(const json_t *test_case) {
    const subject_model *const subjects[] = {&convnet, &resnet, &mlp};
    const char *name = json_string_value(json_object_get(test_case, "model"));
    for (size_t i = 0; i < sizeof subjects / sizeof subjects[0]; i++)
        if (strcmp(subjects[i]->name, name) == 0) return subjects[i];
    fail_msg("%s: no such model", name);
    return NULL;
}

static void train(test_rig *rig, const json_t *test_case, int world, int rank) {
    bool clipped = json_object_get(test_case, "clip_norm") != NULL;
    double rate = real(json_object_get(test_case, "optimizer"), "learning_rate");
    size_t steps = json_array_size(json_object_get(test_case, "losses"));
    for (size_t step = 0; step < steps; step++) {
        yoke_batch whole = make_batch(rig, (int)real_at(test_case, "rows", step), (uint32_t)step);
        yoke_batch batch = pytorch_part_of(rig, whole, world, rank);
        yoke_step_result result = {.struct_size = sizeof result};
        must(yoke_data_parallel_step(rig->parallel, &batch, rate, &result));
        near(result.loss, real_at(test_case, "losses", step), LOSS_TOLERANCE, 0, "loss");
        if (clipped)
            near(result.gradient_norm, real_at(test_case, "norms", step), LOSS_TOLERANCE, 0,
                 "gradient norm");
    }
}

static yoke_status train_rank(yoke_process_group *group, const script *play) {
    const ddp_case *given = play->detail;
    test_rig *rig = calloc(1, sizeof *rig);
    if (rig == NULL) return FAIL_MEMORY(sizeof *rig, "a rig");
    rig->subject = subject_of(given->test_case);
    open_engine(rig,
                json_object_get(json_object_get(given->fixture, "tensors"), rig->subject->name),
                given->test_case, "cpu",
                (yoke_data_parallel_options){.process_group = group, .mean_of_ranks = true});
    train(rig, given->test_case, group->world, group->rank);
    /* The running statistics of the fixture are rank 0's. */
    if (group->rank == 0)
        compare_tensors(rig, json_object_get(given->test_case, "tensors"), yoke_data_parallel_read);
    close_engine(rig);
    free(rig);
    return YOKE_OK;
}

static void ranks_train_as_under_pytorchs_ddp(void **state) {
    (void)state;
    json_t *fixture = read_fixture("ddp");
    size_t index;
    const json_t *test_case;
    json_array_foreach(json_object_get(fixture, "cases"), index, test_case) {
        const ddp_case given = {fixture, test_case};
        script play = {.world = integer(test_case, "ranks"),
                       .timeout_ms = TIMEOUT_MS,
                       .scene = train_rank,
                       .detail = &given};
        outcome *outcomes = play_threads(&play);
        expect_all_well(outcomes, play.world);
        free(outcomes);
    }
    assert_int_equal(index, 4);
    json_decref(fixture);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranks_train_as_under_pytorchs_ddp),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
