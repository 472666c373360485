/* SPDX-License-Identifier: Apache-2.0 */
/* Losses are PyTorch's: the mean divides by what counts in the whole batch, however many devices or
 * ranks share it, and wherever the rows that are ignored lie. Values come from
 * fixtures/make_losses_fixture.py and, of mixed rows, make_mixup_fixture.py. */
#include "base/chunk.h"
#include "data/data.h"
#include "pytorch_rig.h"
#include "support/process_ranks.h"

enum { GRADIENT_STEP = 1 };

static const subject_model *subject_of(const json_t *test_case) {
    bool is_mlp = strcmp(json_string_value(json_object_get(test_case, "model")), "mlp") == 0;
    return is_mlp ? &mlp : &convnet;
}

/* Row i and row i - 1, of the whole batch: inputs, and labels or targets. */
static void mix_rows(test_rig *rig, const json_t *shares, yoke_batch *batch,
                     yoke_label_mix *mixes) {
    const yoke_shape *shape = &rig->subject->input;
    size_t values = (size_t)(shape->channels * shape->height * shape->width),
           last = (size_t)batch->rows - 1;
    float first_inputs[3 * 12 * 12], first_targets[3];
    memcpy(first_inputs, rig->inputs + last * values, values * sizeof(float));
    memcpy(first_targets, rig->targets + last * 3, sizeof first_targets);
    for (size_t row = last + 1; row-- > 0;) {
        size_t before = row > 0 ? row - 1 : last;
        float share = (float)json_number_value(json_array_get(shares, row));
        yoke_mixup_values(rig->inputs + row * values,
                          row > 0 ? rig->inputs + before * values : first_inputs, values, share);
        yoke_mixup_values(rig->targets + row * 3,
                          row > 0 ? rig->targets + before * 3 : first_targets, 3, share);
        mixes[row] = (yoke_label_mix){rig->labels[before], share};
    }
    if (batch->labels != NULL) batch->mixes = mixes;
}

static yoke_batch batch_of(test_rig *rig, const json_t *test_case, size_t step,
                           yoke_label_mix *mixes) {
    yoke_batch batch = make_batch(rig, (int)real_at(test_case, "rows", step), (uint32_t)step);
    const json_t *loss = json_object_get(test_case, "loss");
    const json_t *labels = json_array_get(json_object_get(test_case, "labels"), step);
    bool is_bce = strcmp(json_string_value(json_object_get(loss, "kind")), "bce") == 0;
    for (int i = 0; i < 3 * batch.rows && is_bce; i++)
        rig->targets[i] = (float)(((double)rig->targets[i] + 1) / 2);
    for (int row = 0; row < batch.rows && labels != NULL; row++)
        rig->labels[row] = (int32_t)json_integer_value(json_array_get(labels, (size_t)row));
    const json_t *shares = json_array_get(json_object_get(test_case, "shares"), step);
    if (shares != NULL) mix_rows(rig, shares, &batch, mixes);
    return batch;
}

/* Where no label counts PyTorch's loss is NaN, null in the file, and Yoke's is 0; the gradients are
 * 0 in both. */
static void train(test_rig *rig, const json_t *test_case, int world, int rank, bool gradients) {
    size_t steps = json_array_size(json_object_get(test_case, "losses"));
    assert_in_range(steps, 10, 10);
    for (size_t step = 0; step < steps; step++) {
        yoke_label_mix mixes[MAX_ROWS];
        yoke_batch whole = batch_of(rig, test_case, step, mixes);
        yoke_batch batch = pytorch_part_of(rig, whole, world, rank);
        yoke_step_result result = {.struct_size = sizeof result};
        must(yoke_data_parallel_step(rig->parallel, &batch, -1, &result));
        near(result.loss, real_at(test_case, "losses", step), LOSS_TOLERANCE, 0, "loss");
        assert_int_equal(result.rows, whole.rows);
        if (rig->subject->classes > 0)
            assert_int_equal(result.correct, (int)real_at(test_case, "correct", step));
        if (step == GRADIENT_STEP && gradients)
            compare_tensors(rig, json_object_get(test_case, "gradients"),
                            yoke_data_parallel_read_gradient);
    }
    compare_tensors(rig, json_object_get(test_case, "tensors"), yoke_data_parallel_read);
}

static void run_case(const json_t *fixture, const json_t *test_case, int devices,
                     yoke_data_parallel_options options) {
    test_rig *rig = calloc(1, sizeof *rig);
    assert_non_null(rig);
    rig->subject = subject_of(test_case);
    open_engine(rig, json_object_get(json_object_get(fixture, "tensors"), rig->subject->name),
                test_case, devices_of(devices), options);
    train(rig, test_case, 1, 0, options.schedule == YOKE_SCHEDULE_CLASSIC);
    close_engine(rig);
    free(rig);
}

static size_t one_to_four_devices_train_as(json_t *fixture) {
    size_t index;
    const json_t *test_case;
    json_array_foreach(json_object_get(fixture, "cases"), index, test_case) {
        for (int devices = 1; devices <= 4; devices++)
            for (int schedule = YOKE_SCHEDULE_OVERLAP; schedule <= YOKE_SCHEDULE_SHARDED;
                 schedule++)
                run_case(fixture, test_case, devices,
                         (yoke_data_parallel_options){.schedule = (yoke_schedule)schedule});
        run_case(fixture, test_case, 2, (yoke_data_parallel_options){.accumulate = 3});
        run_case(fixture, test_case, 2, (yoke_data_parallel_options){.shards = 4});
    }
    json_decref(fixture);
    return index;
}

static void one_to_four_devices_train_as_pytorch_in_every_schedule(void **state) {
    (void)state;
    assert_int_equal(one_to_four_devices_train_as(read_fixture("losses")), 8);
}

static void mixed_rows_train_as_pytorch_in_every_schedule(void **state) {
    (void)state;
    assert_int_equal(one_to_four_devices_train_as(read_fixture("mixup")), 5);
}

typedef struct ddp_case {
    const json_t *fixture, *test_case;
} ddp_case;

static yoke_status train_rank(yoke_process_group *group, const script *play) {
    const ddp_case *given = play->detail;
    test_rig *rig = calloc(1, sizeof *rig);
    if (rig == NULL) return FAIL_MEMORY(sizeof *rig, "a rig");
    rig->subject = subject_of(given->test_case);
    open_engine(rig,
                json_object_get(json_object_get(given->fixture, "tensors"), rig->subject->name),
                given->test_case, "cpu", (yoke_data_parallel_options){.process_group = group});
    train(rig, given->test_case, group->world, group->rank, false);
    close_engine(rig);
    free(rig);
    return YOKE_OK;
}

static void ranks_train_as(json_t *fixture) {
    size_t index;
    const json_t *test_case;
    json_array_foreach(json_object_get(fixture, "cases"), index, test_case) {
        for (int world = 2; world <= 3; world++) {
            const ddp_case given = {fixture, test_case};
            script play = {
                .world = world, .timeout_ms = TIMEOUT_MS, .scene = train_rank, .detail = &given};
            outcome *outcomes = play_threads(&play);
            expect_all_well(outcomes, play.world);
            free(outcomes);
        }
    }
    json_decref(fixture);
}

static void ranks_train_as_one_process(void **state) {
    (void)state;
    ranks_train_as(read_fixture("losses"));
    ranks_train_as(read_fixture("mixup"));
}

static void expect_refused(test_rig *rig, const yoke_batch *batch, const char *words) {
    yoke_step_result result = {.struct_size = sizeof result};
    assert_int_equal(yoke_data_parallel_step(rig->parallel, batch, -1, &result),
                     YOKE_ERROR_ARGUMENT);
    if (strstr(yoke_last_error(), words) == NULL)
        fail_msg("\"%s\" lacks \"%s\"", yoke_last_error(), words);
}

/* Of cases 0, without, and 2, with ignore_index; case 4 compares with targets. */
static void second_labels_that_do_not_fit_are_refused(void **state) {
    (void)state;
    static const struct {
        size_t test_case;
        yoke_label_mix mix;
        const char *words;
    } rows[] = {
        {0, {5, 0.5f}, "row 2 of the batch has the second label 5: this model's classes are 0 to"},
        {0, {-1, 0.5f}, "row 2 of the batch has the second label -1"},
        {0, {1, 1.5f}, "row 2 of the batch gives its label a share of 1.5: must be 0 to 1"},
        {0, {1, NAN}, "a share of nan"},
        {2, {1, 0.5f}, "mixed labels with ignore_index"},
        {4, {1, 0.5f}, "the batch has mixes, which are second labels, but the BCE loss reads"}};
    json_t *fixture = read_fixture("losses");
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const json_t *test_case =
            json_array_get(json_object_get(fixture, "cases"), rows[i].test_case);
        test_rig *rig = calloc(1, sizeof *rig);
        assert_non_null(rig);
        rig->subject = subject_of(test_case);
        open_engine(rig, json_object_get(json_object_get(fixture, "tensors"), rig->subject->name),
                    test_case, devices_of(2), (yoke_data_parallel_options){.batch = MAX_ROWS});
        yoke_label_mix mixes[3] = {{0, 1}, {0, 1}, rows[i].mix};
        yoke_batch batch = make_batch(rig, 3, 0);
        batch.mixes = mixes;
        expect_refused(rig, &batch, rows[i].words);
        close_engine(rig);
        free(rig);
    }
    json_decref(fixture);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_to_four_devices_train_as_pytorch_in_every_schedule),
        cmocka_unit_test(mixed_rows_train_as_pytorch_in_every_schedule),
        cmocka_unit_test(ranks_train_as_one_process),
        cmocka_unit_test(second_labels_that_do_not_fit_are_refused),
    };
    return RUN_ON_DEVICES(tests, NULL, NULL);
}
