/* SPDX-License-Identifier: Apache-2.0 */
/* DDP with threads as ranks: n ranks learn what n devices of one engine learn, and what one
 * device learns. */
#include "model/model.h"
#include "support/ddp_check.h"

/* DDP(n) = DP(n) to the bit; = one device to rounding, unless batch norm sees each shard. */
static void check_equality(const ddp_setting *s, int world) {
    record ranks[RANKS] = {0};
    yoke_model *model = check_model(s->norm, s->dropout);
    run_ranks(s, model, world, ranks);
    record several = run_devices(s, model, world), one = run_devices(s, model, 1);
    for (int rank = 1; rank < world; rank++)
        expect_same(&ranks[0], &ranks[rank], s->steps);
    expect_same(&ranks[0], &several, s->steps);
    if (s->float16) assert_true(several.scale.skipped_steps > 1);
    if (!s->norm && !s->float16) expect_near(&ranks[0], &one, 1e-6, s->steps);
    free_records(ranks, world);
    free_records(&several, 1);
    free_records(&one, 1);
    yoke_model_destroy(model);
}

static void ranks_learn_what_as_many_devices_and_one_alone_learn(void **state) {
    (void)state;
    const ddp_setting plain = {.batch = 16, .accumulate = 1, .steps = STEPS};
    for (int world = 1; world <= 8; world++)
        check_equality(&plain, world);
}

static void ranks_that_share_the_update_learn_the_same(void **state) {
    (void)state;
    const ddp_setting settings[] = {
        {.batch = 16, .accumulate = 1, .steps = STEPS, .sharded = true},
        {.batch = 16, .accumulate = 1, .steps = 6, .sharded = true, .norm = true},
        {.batch = 16, .accumulate = 1, .steps = 6, .sharded = true, .clip = true},
        {.batch = 16, .accumulate = 1, .steps = 6, .sharded = true, .adamw = true},
        {.batch = 5, .accumulate = 1, .steps = 6, .sharded = true},
    };
    for (size_t i = 0; i < sizeof settings / sizeof settings[0]; i++)
        for (int world = 1; world <= 8; world += i > 0 ? 3 : 1)
            check_equality(&settings[i], world);
}

static void ranks_without_rows_take_part(void **state) {
    (void)state;
    const ddp_setting few = {.batch = 5, .accumulate = 1, .steps = 6};
    const ddp_setting norm = {.batch = 5, .accumulate = 1, .steps = 6, .norm = true};
    for (int world = 3; world <= 7; world += 2)
        check_equality(&few, world);
    check_equality(&norm, 4); /* one has never had any when all evaluate */
}

static void batch_norm_dropout_clipping_and_accumulation_change_nothing_about_it(void **state) {
    (void)state;
    const ddp_setting settings[] = {
        {.batch = 16, .accumulate = 1, .steps = 6, .norm = true},
        {.batch = 16, .accumulate = 1, .steps = 6, .dropout = 0.4},
        {.batch = 16, .accumulate = 1, .steps = 6, .clip = true},
        {.batch = 16, .accumulate = 1, .steps = 6, .adamw = true},
        {.batch = 16, .accumulate = 1, .steps = 6, .uncounted = true},
    };
    for (size_t i = 0; i < sizeof settings / sizeof settings[0]; i++)
        check_equality(&settings[i], 2 + (int)i % 3);
}

static void a_loss_scale_that_overflows_changes_nothing_about_it(void **state) {
    (void)state;
    const ddp_setting settings[] = {
        {.batch = 16, .accumulate = 1, .steps = STEPS, .float16 = true, .norm = true},
        {.batch = 16, .accumulate = 1, .steps = STEPS, .float16 = true, .adamw = true},
        {.batch = 16, .accumulate = 1, .steps = STEPS, .float16 = true, .clip = true},
        {.batch = 16, .accumulate = 1, .steps = STEPS, .float16 = true, .sharded = true},
        {.batch = 5, .accumulate = 1, .steps = STEPS, .float16 = true, .ema_decay = 0.9},
    };
    for (size_t i = 0; i < sizeof settings / sizeof settings[0]; i++)
        check_equality(&settings[i], 2 + (int)i % 3);
}

static void parameter_groups_change_nothing_about_it(void **state) {
    (void)state;
    const ddp_setting settings[] = {
        {.batch = 16, .accumulate = 1, .steps = 10, .groups = 3},
        {.batch = 16, .accumulate = 1, .steps = 10, .groups = 3, .adamw = true, .clip = true},
        {.batch = 16, .accumulate = 1, .steps = 10, .groups = 3, .sharded = true, .norm = true},
        {.batch = 16, .accumulate = 1, .steps = 10, .groups = 3, .sharded = true, .adamw = true},
    };
    for (size_t i = 0; i < sizeof settings / sizeof settings[0]; i++)
        for (int world = 2; world <= 4; world += 2)
            check_equality(&settings[i], world);
}

/* Micro-batches are cut from each rank's rows, DP's from the whole batch: equal to rounding. */
static void accumulated_gradients_travel_once(void **state) {
    (void)state;
    const ddp_setting s = {.batch = 17, .accumulate = 3, .steps = 9};
    yoke_model *model = check_model(false, 0);
    record ranks[3] = {0};
    run_ranks(&s, model, 3, ranks);
    record one = run_devices(&s, model, 1);
    expect_same(&ranks[0], &ranks[2], s.steps);
    expect_near(&ranks[0], &one, 1e-6, s.steps);
    free_records(ranks, 3);
    free_records(&one, 1);
    yoke_model_destroy(model);
}

/* Unlike NCCL, which chooses an algorithm by size: ranks are summed in their order. */
static void the_size_of_buckets_changes_no_bit(void **state) {
    (void)state;
    static const size_t sizes[] = {64, 1024, (size_t)1 << 20};
    yoke_model *model = check_model(true, 0);
    record first[3] = {0};
    for (int i = 0; i < 3; i++) {
        const ddp_setting s = {
            .batch = 16, .accumulate = 1, .steps = 6, .norm = true, .bucket_bytes = sizes[i]};
        record ranks[3] = {0};
        run_ranks(&s, model, 3, i == 0 ? first : ranks);
        if (i > 0) expect_same(&ranks[0], &first[0], s.steps);
        free_records(ranks, 3);
    }
    free_records(first, 3);
    yoke_model_destroy(model);
}

/* The others do nothing meanwhile: with whole_rows said, a forward asks no other rank. */
static yoke_status predict_alone(yoke_process_group *group, const script *play) {
    const course *plan = play->detail;
    rank_rig rig = {0};
    float outputs[8 * CHECK_CLASSES];
    check_batch rows = check_batch_make(8, 3);
    rows.batch.whole_rows = 8;
    yoke_status status = begin_rank(&rig, plan, play, group);
    if (status == YOKE_OK && group->rank == 1) {
        status = yoke_data_parallel_forward(rig.parallel, &rows.batch, false, outputs);
        bool trains =
            status == YOKE_OK && yoke_data_parallel_forward_replicas(rig.parallel, true) == YOKE_OK;
        if (trains && yoke_model_weighs_labels(plan->model))
            status = FAIL(YOKE_ERROR_INTERNAL, "what divides this loss? nobody counted labels");
    }
    status = end_rank(&rig, status);
    check_batch_free(&rows);
    return status;
}

static void one_rank_can_predict_while_the_others_do_not(void **state) {
    (void)state;
    static const float weights[CHECK_CLASSES] = {1, 2, 3, 4, 5};
    yoke_loss_options weighted = YOKE_LOSS_OPTIONS_INIT;
    weighted.class_weights = weights;
    weighted.weight_count = CHECK_CLASSES;
    for (int i = 0; i < 2; i++) {
        yoke_model *model = check_model_with(true, 0, i == 0 ? NULL : &weighted);
        const ddp_setting s = {.batch = 16, .accumulate = 1, .norm = true};
        course plan = {.setting = &s, .model = model};
        script play = {
            .world = 2, .timeout_ms = TIMEOUT_MS, .scene = predict_alone, .detail = &plan};
        outcome *outcomes = play_threads(&play);
        expect_all_well(outcomes, play.world);
        free(outcomes);
        yoke_model_destroy(model);
    }
}

/* A step by hand over two parts of a batch, the ranks' gradients all-reduced behind the second. */
static yoke_status add_up_two_parts(yoke_process_group *group, const script *play) {
    const course *plan = play->detail;
    record *result = &plan->records[group->rank];
    rank_rig rig = {0};
    check_batch whole = check_batch_make(plan->setting->batch, 3);
    yoke_status status = begin_rank(&rig, plan, play, group);
    for (int part = 0; part < 2 && status == YOKE_OK; part++) {
        yoke_chunk of_whole = yoke_chunk_of(whole.batch.rows, 2, part);
        yoke_chunk own = yoke_chunk_of(of_whole.rows, group->world, group->rank);
        yoke_batch batch = whole.batch;
        batch.rows = own.rows;
        batch.first_row = of_whole.first + own.first;
        batch.whole_rows = whole.batch.rows;
        batch.inputs += (size_t)batch.first_row * CHECK_ROW;
        batch.labels += batch.first_row;
        status = yoke_data_parallel_no_sync(rig.parallel, part == 0);
        if (status == YOKE_OK)
            status = yoke_data_parallel_forward(rig.parallel, &batch, true, NULL);
        if (status == YOKE_OK) status = yoke_data_parallel_backward(rig.parallel, NULL);
        result->losses[part] = check_bytes(rig.parallel, YOKE_STAGE_ALL_REDUCE);
    }
    if (status == YOKE_OK)
        result->weights = check_read_all(rig.parallel, plan->model, true, &result->count);
    status = end_rank(&rig, status);
    check_batch_free(&whole);
    return status;
}

static void no_sync_all_reduces_once(void **state) {
    (void)state;
    const ddp_setting s = {.batch = 9, .accumulate = 1};
    yoke_optimizer_options optimizer = optimizer_of(&s);
    yoke_model *model = check_model(false, 0.25);
    check_batch whole = check_batch_make(s.batch, 3);
    check_engine one = check_engine_make(model, 1, options_of(&s), &optimizer);
    size_t count;
    EXPECT_OK(yoke_data_parallel_forward(one.parallel, &whole.batch, true, NULL));
    EXPECT_OK(yoke_data_parallel_backward(one.parallel, NULL));
    float *gradient = check_read_all(one.parallel, model, true, &count);
    for (int world = 2; world <= 6; world += 2) { /* of 6 ranks one never has rows */
        record ranks[6] = {0};
        course plan = {.setting = &s, .model = model, .records = ranks};
        script play = {
            .world = world, .timeout_ms = TIMEOUT_MS, .scene = add_up_two_parts, .detail = &plan};
        outcome *outcomes = play_threads(&play);
        expect_all_well(outcomes, world);
        free(outcomes);
        for (int rank = 0; rank < world; rank++) {
            assert_true(check_relative(ranks[rank].weights, gradient, count) < 1e-6);
            assert_true(ranks[rank].losses[0] == 0 && ranks[rank].losses[1] > 0);
        }
        free_records(ranks, world);
    }
    free(gradient);
    check_engine_free(&one);
    check_batch_free(&whole);
    yoke_model_destroy(model);
}

/* 5 rows on 2 ranks are 3 and 2: a mean of means weighs the two more. */
static void the_mean_of_rank_means_is_pytorchs(void **state) {
    (void)state;
    ddp_setting s = {.batch = 5 + RAGGED, .accumulate = 1, .steps = 3};
    yoke_model *model = check_model(false, 0);
    record rows[2] = {0}, means[2] = {0};
    run_ranks(&s, model, 2, rows);
    s.mean_of_ranks = true;
    run_ranks(&s, model, 2, means);
    assert_true(rows[0].losses[1] == means[0].losses[1]); /* 4 and 4 rows: no difference yet */
    assert_true(rows[0].hash != means[0].hash);
    expect_same(&means[0], &means[1], s.steps);
    free_records(rows, 2);
    free_records(means, 2);
    yoke_model_destroy(model);
}

static void running_statistics_are_rank_0s_unless_kept_apart(void **state) {
    (void)state;
    ddp_setting s = {.batch = 16, .accumulate = 1, .steps = 3, .norm = true};
    yoke_model *model = check_model(true, 0);
    record shared[2] = {0}, own[2] = {0};
    run_ranks(&s, model, 2, shared);
    s.own_buffers = true;
    run_ranks(&s, model, 2, own);
    assert_int_equal(shared[0].hash, shared[1].hash);
    assert_true(own[0].hash != own[1].hash);
    assert_memory_equal(own[0].weights, own[1].weights, own[0].count * sizeof(float));
    assert_true(shared[0].evaluation != own[0].evaluation);
    free_records(shared, 2);
    free_records(own, 2);
    yoke_model_destroy(model);
}

/* Every rank has weights of its own until synchronize gives all of them rank 0's. */
static yoke_status begin_with_own_weights(yoke_process_group *group, const script *play) {
    const course *plan = play->detail;
    record *result = &plan->records[group->rank];
    rank_rig rig = {0};
    float bias[CHECK_CLASSES], variance[8];
    uint64_t before = 0;
    for (int i = 0; i < 8; i++)
        variance[i] = 1 + (float)(i + group->rank);
    for (int i = 0; i < CHECK_CLASSES; i++)
        bias[i] = (float)(i - 3 * group->rank);
    yoke_status status = begin_rank(&rig, plan, play, group);
    if (status == YOKE_OK)
        status = yoke_data_parallel_write(rig.parallel, "fc.bias", bias, CHECK_CLASSES);
    if (status == YOKE_OK)
        status = yoke_data_parallel_write(rig.parallel, "bn1.running_var", variance, 8);
    if (status == YOKE_OK) status = yoke_data_parallel_hash(rig.parallel, &before);
    result->losses[0] = (double)before;
    if (status == YOKE_OK) status = yoke_data_parallel_broadcast(rig.parallel);
    if (status == YOKE_OK) status = yoke_data_parallel_hash(rig.parallel, &result->hash);
    return end_rank(&rig, status);
}

static void ranks_with_weights_of_their_own_take_rank_0s(void **state) {
    (void)state;
    yoke_model *model = check_model(true, 0);
    const ddp_setting s = {.batch = 16, .accumulate = 1, .norm = true};
    record ranks[4] = {0};
    course plan = {.setting = &s, .model = model, .records = ranks};
    script play = {
        .world = 4, .timeout_ms = TIMEOUT_MS, .scene = begin_with_own_weights, .detail = &plan};
    outcome *outcomes = play_threads(&play);
    expect_all_well(outcomes, play.world);
    free(outcomes);
    for (int rank = 0; rank < play.world; rank++) {
        assert_true((double)ranks[rank].hash == ranks[0].losses[0]);
        assert_true((ranks[rank].losses[0] == ranks[0].losses[0]) == (rank == 0));
    }
    yoke_model_destroy(model);
}

/* What must not be trained together. */

typedef struct quarrel {
    ddp_setting settings[2];
    const yoke_model *models[2]; /* of rank 0 and of the others */
    const char *expected;
} quarrel;

static yoke_status disagree(yoke_process_group *group, const script *play) {
    const quarrel *two = play->detail;
    int side = group->rank == 1;
    course plan = {.setting = &two->settings[side], .model = two->models[side]};
    rank_rig rig = {0};
    return end_rank(&rig, begin_rank(&rig, &plan, play, group));
}

static void expect_quarrel(const quarrel *two) {
    script play = {.world = 3, .timeout_ms = TIMEOUT_MS, .scene = disagree, .detail = two};
    outcome *outcomes = play_threads(&play);
    for (int rank = 0; rank < play.world; rank++) {
        assert_int_equal(outcomes[rank].error.status, YOKE_ERROR_PEER);
        if (strstr(outcomes[rank].error.text, two->expected) == NULL)
            fail_msg("\"%s\" does not tell \"%s\"", outcomes[rank].error.text, two->expected);
    }
    free(outcomes);
}

static void ranks_that_differ_are_refused_with_both_sides_named(void **state) {
    (void)state;
    yoke_model *plain = check_model(false, 0), *other = check_model(true, 0);
    const ddp_setting s = {.batch = 16, .accumulate = 1};
    quarrel options = {{s, s}, {plain, plain}, "rank 0 has \"batch 16\", rank 1 has \"batch 24\""};
    options.settings[1].batch = 24;
    expect_quarrel(&options);
    quarrel groups = {{s, s},
                      {plain, plain},
                      "rank 0 has \"group conv1.bias learning_rate_scale 0 frozen\", rank 1 has "};
    groups.settings[0].groups = 3;
    groups.settings[1].groups = 1;
    expect_quarrel(&groups);
    options.settings[1] = s;
    options.settings[1].synchronized = true;
    options.expected = "\"synchronize_batch_norm no\", rank 1 has \"synchronize_batch_norm yes\"";
    expect_quarrel(&options);
    options.settings[1] = s;
    options.settings[1].ema_decay = 0.5;
    options.expected = "\"ema_decay 0\", rank 1 has \"ema_decay 0.5\"";
    expect_quarrel(&options);
    const quarrel models = {
        {s, s}, {plain, other}, "rank 0 has \"conv2.weight [8, 8, 3, 3]\", rank 1 has \"bn1."};
    expect_quarrel(&models);
    yoke_model_destroy(other);
    yoke_model_destroy(plain);
}

static void no_rank_learns_from_a_nonfinite_loss_of_one(void **state) {
    (void)state;
    expect_spoilt_batch_refused(&(ddp_setting){.batch = 8, .accumulate = 1, .norm = true});
    expect_spoilt_batch_refused(
        &(ddp_setting){.batch = 8, .accumulate = 1, .norm = true, .sharded = true});
    expect_spoilt_batch_refused(&(ddp_setting){
        .batch = 8, .accumulate = 2, .norm = true}); /* in the first of two micro-batches */
}

/* Memory. */

static yoke_status report_memory(yoke_process_group *group, const script *play) {
    const course *plan = play->detail;
    rank_rig rig = {0};
    yoke_memory_report report = {.struct_size = sizeof report};
    yoke_status status = begin_rank(&rig, plan, play, group);
    if (status == YOKE_OK) status = yoke_data_parallel_memory(rig.parallel, 0, &report);
    plan->records[0].count = report.total;
    return end_rank(&rig, status);
}

static void what_lies_with_the_group_is_counted_as_the_devices(void **state) {
    (void)state;
    yoke_model *model = check_model(false, 0);
    for (int sharded = 0; sharded < 2; sharded++) {
        const ddp_setting s = {.batch = 8, .accumulate = 1, .sharded = sharded == 1};
        const yoke_optimizer_options optimizer = optimizer_of(&s);
        record total = {0};
        course plan = {.setting = &s, .model = model, .records = &total};
        script play = {
            .world = 1, .timeout_ms = TIMEOUT_MS, .scene = report_memory, .detail = &plan};
        outcome *outcomes = play_threads(&play);
        expect_all_well(outcomes, play.world);
        free(outcomes);
        yoke_memory_report alone = {.struct_size = sizeof alone};
        check_engine engine = check_engine_make(model, 1, options_of(&s), &optimizer);
        EXPECT_OK(yoke_data_parallel_memory(engine.parallel, 0, &alone));
        check_engine_free(&engine);
        assert_int_equal(total.count, alone.total);
    }
    yoke_model_destroy(model);
}

/* A mistake of one rank. */

static yoke_status give_a_bad_label(yoke_process_group *group, const script *play) {
    const course *plan = play->detail;
    rank_rig rig = {0};
    check_batch rows = check_batch_make(8, 3);
    yoke_status status = begin_rank(&rig, plan, play, group);
    if (group->rank == 1) rows.labels[5] = CHECK_CLASSES;
    yoke_batch batch = part_of(plan->setting, &rows, group->world, group->rank);
    if (status == YOKE_OK)
        status = yoke_data_parallel_step(rig.parallel, &batch, YOKE_OPTIMIZER_LEARNING_RATE, NULL);
    status = end_rank(&rig, status);
    check_batch_free(&rows);
    return status;
}

static void an_error_of_one_rank_ends_the_others_at_once_with_its_text(void **state) {
    (void)state;
    yoke_model *model = check_model(false, 0);
    const ddp_setting s = {.batch = 8, .accumulate = 1};
    course plan = {.setting = &s, .model = model};
    script play = {
        .world = 2, .timeout_ms = TIMEOUT_MS, .scene = give_a_bad_label, .detail = &plan};
    uint64_t begin = yoke_now_ns();
    outcome *outcomes = play_threads(&play);
    assert_true(yoke_now_ns() - begin < TIMEOUT_MS / 2 * UINT64_C(1000000));
    for (int rank = 0; rank < play.world; rank++)
        assert_int_equal(outcomes[rank].error.status, YOKE_ERROR_ARGUMENT);
    assert_non_null(strstr(outcomes[0].error.text, "rank 1: row 1 of the batch has label 5"));
    free(outcomes);
    yoke_model_destroy(model);
}

/* An engine that refuses its options never meets the other ranks: they must not wait for it. */
static yoke_status refuse_options(yoke_process_group *group, const script *play) {
    const course *plan = play->detail;
    yoke_devices *devices = NULL;
    yoke_data_parallel *parallel = NULL;
    yoke_devices_options open = {.struct_size = sizeof open, .list = "cpu", .threads = 1};
    yoke_data_parallel_options options = options_of(plan->setting);
    options.process_group = group;
    if (group->rank == 1) options.batch = 0;
    TRY(yoke_devices_open(&devices, &open));
    yoke_status status = yoke_data_parallel_create(&parallel, plan->model, devices, NULL, &options);
    yoke_error error = yoke_error_take(status);
    yoke_data_parallel_destroy(parallel);
    yoke_devices_close(devices);
    return yoke_error_restore(&error);
}

static void options_that_one_rank_refuses_end_the_others_at_once(void **state) {
    (void)state;
    yoke_model *model = check_model(false, 0);
    const ddp_setting s = {.batch = 8, .accumulate = 1};
    course plan = {.setting = &s, .model = model};
    script play = {.world = 2, .timeout_ms = TIMEOUT_MS, .scene = refuse_options, .detail = &plan};
    uint64_t begin = yoke_now_ns();
    outcome *outcomes = play_threads(&play);
    assert_true(yoke_now_ns() - begin < TIMEOUT_MS / 2 * UINT64_C(1000000));
    assert_non_null(strstr(outcomes[0].error.text, "rank 1: batch is 0"));
    free(outcomes);
    yoke_model_destroy(model);
}

/* A rank without rows brings no arrays at all. */
static yoke_status bring_nothing(yoke_process_group *group, const script *play) {
    const course *plan = play->detail;
    rank_rig rig = {0};
    check_batch rows = check_batch_make(1, 3);
    yoke_batch none = {.struct_size = sizeof none, .first_row = 1, .whole_rows = 1};
    yoke_batch all = rows.batch;
    all.whole_rows = 1;
    yoke_status status = begin_rank(&rig, plan, play, group);
    if (status == YOKE_OK)
        status = yoke_data_parallel_step(rig.parallel, group->rank == 0 ? &all : &none,
                                         YOKE_OPTIMIZER_LEARNING_RATE, NULL);
    status = end_rank(&rig, status);
    check_batch_free(&rows);
    return status;
}

static void a_rank_without_rows_needs_no_arrays(void **state) {
    (void)state;
    yoke_model *model = check_model(false, 0);
    const ddp_setting s = {.batch = 8, .accumulate = 1};
    course plan = {.setting = &s, .model = model};
    script play = {.world = 2, .timeout_ms = TIMEOUT_MS, .scene = bring_nothing, .detail = &plan};
    outcome *outcomes = play_threads(&play);
    expect_all_well(outcomes, play.world);
    free(outcomes);
    yoke_model_destroy(model);
}

/* A group has one device a rank and one schedule. */

static yoke_status ask_for_too_much(yoke_process_group *group, const script *play) {
    const course *plan = play->detail;
    yoke_devices *devices = NULL;
    yoke_data_parallel *parallel = NULL;
    yoke_devices_options open = {.struct_size = sizeof open, .list = "2xcpu", .threads = 1};
    yoke_data_parallel_options options = options_of(plan->setting);
    options.process_group = group;
    TRY(yoke_devices_open(&devices, &open));
    yoke_status status = yoke_data_parallel_create(&parallel, plan->model, devices, NULL, &options);
    yoke_error error = yoke_error_take(status);
    yoke_devices_close(devices);
    return yoke_error_restore(&error);
}

static void a_rank_has_one_device(void **state) {
    (void)state;
    yoke_model *model = check_model(false, 0);
    const ddp_setting s = {.batch = 8, .accumulate = 1};
    course plan = {.setting = &s, .model = model};
    script play = {
        .world = 1, .timeout_ms = TIMEOUT_MS, .scene = ask_for_too_much, .detail = &plan};
    outcome *outcomes = play_threads(&play);
    assert_int_equal(outcomes[0].error.status, YOKE_ERROR_ARGUMENT);
    assert_non_null(strstr(outcomes[0].error.text, "2 devices in rank 0"));
    free(outcomes);
    yoke_model_destroy(model);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranks_learn_what_as_many_devices_and_one_alone_learn),
        cmocka_unit_test(ranks_that_share_the_update_learn_the_same),
        cmocka_unit_test(ranks_without_rows_take_part),
        cmocka_unit_test(batch_norm_dropout_clipping_and_accumulation_change_nothing_about_it),
        cmocka_unit_test(a_loss_scale_that_overflows_changes_nothing_about_it),
        cmocka_unit_test(parameter_groups_change_nothing_about_it),
        cmocka_unit_test(accumulated_gradients_travel_once),
        cmocka_unit_test(the_size_of_buckets_changes_no_bit),
        cmocka_unit_test(one_rank_can_predict_while_the_others_do_not),
        cmocka_unit_test(no_sync_all_reduces_once),
        cmocka_unit_test(the_mean_of_rank_means_is_pytorchs),
        cmocka_unit_test(running_statistics_are_rank_0s_unless_kept_apart),
        cmocka_unit_test(ranks_with_weights_of_their_own_take_rank_0s),
        cmocka_unit_test(ranks_that_differ_are_refused_with_both_sides_named),
        cmocka_unit_test(no_rank_learns_from_a_nonfinite_loss_of_one),
        cmocka_unit_test(what_lies_with_the_group_is_counted_as_the_devices),
        cmocka_unit_test(an_error_of_one_rank_ends_the_others_at_once_with_its_text),
        cmocka_unit_test(options_that_one_rank_refuses_end_the_others_at_once),
        cmocka_unit_test(a_rank_without_rows_needs_no_arrays),
        cmocka_unit_test(a_rank_has_one_device),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
