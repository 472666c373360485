/* SPDX-License-Identifier: Apache-2.0 */
/* Index lists, shard sizes and learning rates equal the vectors that fixtures/make_fixtures.py
 * took from PyTorch. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "fixtures/fixture.h"

static yoke_lr_schedule_kind schedule_kind(const char *name) {
    if (strcmp(name, "onecycle") == 0) return YOKE_LR_ONECYCLE;
    if (strcmp(name, "cosine") == 0) return YOKE_LR_COSINE;
    return strcmp(name, "step") == 0 ? YOKE_LR_STEP : YOKE_LR_CONSTANT;
}

static void learning_rates_follow_pytorchs_schedulers(void **state) {
    (void)state;
    json_t *fixture = read_fixture("schedules");
    size_t index;
    const json_t *given;
    json_array_foreach(fixture, index, given) {
        const char *kind = json_string_value(json_object_get(given, "kind"));
        yoke_lr_schedule schedule = {.struct_size = sizeof schedule,
                                     .kind = schedule_kind(kind),
                                     .learning_rate = real(given, "learning_rate"),
                                     .steps = (uint64_t)integer(given, "steps"),
                                     .warmup_steps = (uint64_t)integer(given, "warmup_steps")};
        for (uint64_t step = 0; step < schedule.steps; step++)
            near(yoke_lr_schedule_rate(&schedule, step), real_at(given, "rates", step), 1e-9, 1e-6,
                 kind);
    }
    assert_int_equal(index, 5);
    json_decref(fixture);
}

static void an_exponential_rate_is_pytorchs(void **state) {
    (void)state;
    json_t *fixture = read_fixture("tuning");
    yoke_lr_schedule schedule = {.struct_size = sizeof schedule,
                                 .kind = YOKE_LR_EXPONENTIAL,
                                 .learning_rate = real(fixture, "learning_rate"),
                                 .gamma = real(fixture, "gamma"),
                                 .epoch_steps = 3};
    for (uint64_t step = 0; step < 36; step++)
        near(yoke_lr_schedule_rate(&schedule, step), real_at(fixture, "exponential", step / 3),
             1e-14, 0, "exponential");
    json_decref(fixture);
}

static void a_plateau_is_pytorchs(void **state) {
    (void)state;
    json_t *fixture = read_fixture("tuning");
    size_t index;
    const json_t *given;
    json_array_foreach(json_object_get(fixture, "plateaus"), index, given) {
        yoke_lr_plateau plateau = YOKE_LR_PLATEAU_INIT;
        plateau.learning_rate = real(fixture, "learning_rate");
        plateau.factor = real(given, "factor");
        plateau.patience = integer(given, "patience");
        for (size_t i = 0; i < json_array_size(json_object_get(fixture, "losses")); i++)
            near(yoke_lr_plateau_update(&plateau, real_at(fixture, "losses", i)),
                 real_at(given, "rates", i), 1e-14, 0, "plateau");
    }
    assert_int_equal(index, 3);
    json_decref(fixture);
}

static yoke_sampler sampler_of(const json_t *given) {
    return (yoke_sampler){.struct_size = sizeof(yoke_sampler),
                          .rows = (size_t)integer(given, "rows"),
                          .world = integer(given, "replicas"),
                          .rank = integer(given, "rank"),
                          .shuffle = truth(given, "shuffle"),
                          .drop_last = truth(given, "drop_last"),
                          .seed = (uint64_t)json_integer_value(json_object_get(given, "seed")),
                          .epoch = (uint64_t)integer(given, "epoch")};
}

static void samplers_list_the_rows_distributed_sampler_lists(void **state) {
    (void)state;
    json_t *fixture = read_fixture("sampling");
    size_t index;
    const json_t *given;
    json_array_foreach(json_object_get(fixture, "samplers"), index, given) {
        yoke_sampler sampler = sampler_of(given);
        const json_t *indices = json_object_get(given, "indices");
        int64_t order[32];
        assert_int_equal(yoke_sampler_count(&sampler), json_array_size(indices));
        must(yoke_sampler_indices(&sampler, order));
        for (size_t i = 0; i < json_array_size(indices); i++)
            assert_int_equal(order[i], json_integer_value(json_array_get(indices, i)));
    }
    assert_true(index > 0);
    json_decref(fixture);
}

static void permutations_are_torch_randperm(void **state) {
    (void)state;
    json_t *fixture = read_fixture("sampling");
    size_t index;
    const json_t *given;
    json_array_foreach(json_object_get(fixture, "permutations"), index, given) {
        yoke_sampler sampler = sampler_of(given);
        sampler.world = 1;
        sampler.shuffle = true;
        int64_t *order = malloc(sampler.rows * sizeof *order);
        must(yoke_sampler_indices(&sampler, order));
        const json_t *first = json_object_get(given, "first");
        for (size_t i = 0; i < json_array_size(first); i++)
            assert_int_equal(order[i], json_integer_value(json_array_get(first, i)));
        uint32_t digest = 0;
        for (size_t i = 0; i < sampler.rows; i++)
            digest = digest * 1000003u + (uint32_t)order[i];
        assert_int_equal(digest, json_integer_value(json_object_get(given, "digest")));
        free(order);
    }
    assert_true(index > 0);
    json_decref(fixture);
}

static void shards_are_torch_chunk(void **state) {
    (void)state;
    json_t *fixture = read_fixture("sampling");
    size_t index;
    const json_t *given;
    json_array_foreach(json_object_get(fixture, "chunks"), index, given) {
        int devices = integer(given, "devices");
        for (int device = 0; device < devices; device++)
            assert_int_equal(yoke_shard_rows(integer(given, "rows"), devices, device),
                             (int)real_at(given, "sizes", (size_t)device));
    }
    assert_true(index > 0);
    json_decref(fixture);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(learning_rates_follow_pytorchs_schedulers),
        cmocka_unit_test(an_exponential_rate_is_pytorchs),
        cmocka_unit_test(a_plateau_is_pytorchs),
        cmocka_unit_test(samplers_list_the_rows_distributed_sampler_lists),
        cmocka_unit_test(permutations_are_torch_randperm),
        cmocka_unit_test(shards_are_torch_chunk),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
