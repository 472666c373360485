/* SPDX-License-Identifier: Apache-2.0 */
/* Parameters that the loss does not reach: weight decay leaves them alone in every mode, as PyTorch
 * leaves parameters whose .grad is None, and changes nothing for the others. */
#include "parallel/parallel.h"
#include "siamese.h"
#include "support/process_ranks.h"

enum { STEPS = 10, SIDE = PAIR_SIDE * PAIR_HIDDEN };

static const yoke_optimizer_options sgd = {.struct_size = sizeof sgd,
                                           .learning_rate = 0.05,
                                           .momentum = 0.9,
                                           .nesterov = true,
                                           .weight_decay = 0.1};
static const yoke_optimizer_options adamw = {.struct_size = sizeof adamw,
                                             .kind = YOKE_ADAMW,
                                             .learning_rate = 0.05,
                                             .weight_decay = 0.1,
                                             .beta1 = 0.9,
                                             .beta2 = 0.999,
                                             .epsilon = 1e-8};
/* Without momentum, which would carry what earlier steps did. */
static const yoke_optimizer_options plain = {
    .struct_size = sizeof plain, .learning_rate = 0.5, .weight_decay = 0.1};

typedef struct weights {
    float conv[6 * 2 * 9], fc[PAIR_HIDDEN * 6], head[PAIR_CLASSES * PAIR_HIDDEN], side[SIDE],
        side_bias[PAIR_SIDE];
} weights;

#define READ(parallel, name, to)                                                                   \
    must(yoke_data_parallel_read(parallel, name, to, sizeof(to) / sizeof *(to)))

static weights read_weights(yoke_data_parallel *parallel) {
    weights read;
    READ(parallel, "conv.weight", read.conv);
    READ(parallel, "fc.weight", read.fc);
    READ(parallel, "head.weight", read.head);
    READ(parallel, "side.weight", read.side);
    READ(parallel, "side.bias", read.side_bias);
    return read;
}

static void train(yoke_data_parallel *parallel, int steps) {
    for (int step = 0; step < steps; step++) {
        pair_batch batch;
        pair_batch_make(&batch, pair_rows(step), (uint32_t)step);
        must(yoke_data_parallel_step(parallel, &batch.batch, YOKE_OPTIMIZER_LEARNING_RATE, NULL));
    }
}

/* With the model's loss, which reads output 0 alone. */

static void expect_side_at_rest(const weights *before, const weights *after, const char *what) {
    if (memcmp(before->side, after->side, sizeof before->side) != 0 ||
        memcmp(before->side_bias, after->side_bias, sizeof before->side_bias) != 0)
        fail_msg("%s: side.weight[0] was %.9g and is %.9g", what, (double)before->side[0],
                 (double)after->side[0]);
    assert_memory_not_equal(before->head, after->head, sizeof before->head);
}

/* The others learn the bits that they learn where the head is frozen, which has no gradient and no
 * decay at all. */
static void train_with_a_head_at_rest(const yoke_model *model, int devices,
                                      yoke_data_parallel_options options,
                                      const yoke_optimizer_options *optimizer, const char *what) {
    const yoke_parameter_group frozen = {.struct_size = sizeof frozen,
                                         .pattern = "side.*",
                                         .learning_rate_scale = 1,
                                         .frozen = true};
    weights learned[2];
    for (int freezes = 0; freezes < 2; freezes++) {
        options.groups = &frozen;
        options.group_count = freezes;
        check_engine engine = check_engine_make(model, devices, options, optimizer);
        weights before = read_weights(engine.parallel);
        train(engine.parallel, STEPS);
        learned[freezes] = read_weights(engine.parallel);
        expect_side_at_rest(&before, &learned[freezes], what);
        check_engine_free(&engine);
    }
    if (memcmp(&learned[0], &learned[1], sizeof learned[0]) != 0)
        fail_msg("%s: what the loss reaches learns other bits", what);
}

static void weight_decay_leaves_an_unreached_head_alone(void **state) {
    (void)state;
    yoke_model *model = siamese_model((siamese_options){0});
    int schedules = devices_are_cpus() ? YOKE_SCHEDULE_PYTHON : YOKE_SCHEDULE_SHARDED;
    for (int devices = 1; devices <= 3; devices++)
        for (int schedule = 0; schedule <= schedules; schedule++)
            for (int cut = 0; cut < 4; cut++) {
                char what[80];
                yoke_data_parallel_options options = pair_options((yoke_schedule)schedule);
                if (schedule == YOKE_SCHEDULE_PYTHON && cut > 1) continue; /* refuses both */
                if (cut == 2) options.accumulate = 2;
                if (cut == 3 && devices < 3) options.shards = 4;
                snprintf(what, sizeof what, "%d devices, schedule %d, case %d", devices, schedule,
                         cut);
                train_with_a_head_at_rest(model, devices, options, cut == 1 ? &adamw : &sgd, what);
            }
    yoke_model_destroy(model);
}

/* PyTorch's optimizers pass over a parameter whose .grad is None. */
static void an_unreached_head_keeps_what_it_keeps_in_pytorch(void **state) {
    (void)state;
    json_t *fixture = read_fixture("several");
    json_t *wanted = json_object_get(fixture, "first_alone");
    yoke_optimizer_options heavy = sgd;
    heavy.nesterov = false;
    heavy.learning_rate = real(fixture, "learning_rate");
    heavy.weight_decay = real(fixture, "weight_decay");
    for (int devices = 1; devices <= 3; devices++)
        for (int kind = 0; kind < 2; kind++) {
            test_rig rig = {.model = siamese_model((siamese_options){0})};
            check_engine engine = check_engine_make(
                rig.model, devices, pair_options(YOKE_SCHEDULE_OVERLAP), kind ? &adamw : &heavy);
            rig.parallel = engine.parallel;
            write_weights(&rig, json_object_get(fixture, "tensors"));
            train(rig.parallel, 6);
            compare_tensors_within(&rig, json_object_get(wanted, kind ? "adamw" : "sgd"),
                                   yoke_data_parallel_read, kind ? 1e-4 : VALUE_TOLERANCE, 0);
            check_engine_free(&engine);
            yoke_model_destroy(rig.model);
        }
    json_decref(fixture);
}

static void the_float64_reference_leaves_it_alone_too(void **state) {
    (void)state;
    const yoke_reference_options options = {.struct_size = sizeof options, .batch = MAX_ROWS};
    yoke_model *model = siamese_model((siamese_options){0});
    for (int kind = 0; kind < 2; kind++) {
        const yoke_optimizer_options *optimizer = kind == 0 ? &sgd : &adamw;
        yoke_reference *reference = NULL;
        double before[SIDE], after[SIDE], head[2][PAIR_CLASSES * PAIR_HIDDEN];
        must(yoke_reference_create(&reference, model, optimizer, &options));
        for (int i = 0; i < SIDE; i++)
            before[i] = head[0][i] = check_noise((uint32_t)i);
        for (int i = SIDE; i < PAIR_CLASSES * PAIR_HIDDEN; i++)
            head[0][i] = check_noise((uint32_t)i);
        must(yoke_reference_write(reference, "side.weight", before, SIDE));
        must(yoke_reference_write(reference, "head.weight", head[0], PAIR_CLASSES * PAIR_HIDDEN));
        for (int step = 0; step < STEPS; step++) {
            pair_batch batch;
            pair_batch_make(&batch, pair_rows(step), (uint32_t)step);
            must(yoke_reference_step(reference, &batch.batch, YOKE_OPTIMIZER_LEARNING_RATE, NULL));
        }
        must(yoke_reference_read(reference, "side.weight", after, SIDE));
        must(yoke_reference_read(reference, "head.weight", head[1], PAIR_CLASSES * PAIR_HIDDEN));
        assert_memory_equal(before, after, sizeof before);
        assert_memory_not_equal(head[0], head[1], sizeof head[0]);
        yoke_reference_destroy(reference);
    }
    yoke_model_destroy(model);
}

/* PyTorch's DataParallel has a gradient of zeros for it, and every step shrinks it. */
static void a_group_of_its_own_lets_weight_decay_move_it(void **state) {
    (void)state;
    const yoke_parameter_group groups[] = {
        {.struct_size = sizeof groups[0],
         .pattern = "side.weight",
         .learning_rate_scale = 1,
         .weight_decay = 0.2,
         .set_weight_decay = true},
        {.struct_size = sizeof groups[0], .pattern = "side.*", .learning_rate_scale = 0.5}};
    yoke_model *model = siamese_model((siamese_options){0});
    for (int schedule = 0; schedule <= YOKE_SCHEDULE_SHARDED; schedule++) {
        yoke_data_parallel_options options = pair_options((yoke_schedule)schedule);
        options.groups = groups;
        options.group_count = 2;
        check_engine engine = check_engine_make(model, 2, options, &plain);
        weights before = read_weights(engine.parallel);
        train(engine.parallel, STEPS);
        weights after = read_weights(engine.parallel);
        for (int i = 0; i < SIDE; i++)
            near((double)after.side[i], (double)before.side[i] * pow(1 - 0.5 * 0.2, STEPS), 1e-5, 1,
                 "a decayed weight");
        assert_memory_equal(after.side_bias, before.side_bias, sizeof after.side_bias);
        check_engine_free(&engine);
    }
    yoke_model_destroy(model);
}

/* A loss of the host. */

typedef struct changing_loss {
    int reads; /* as bits, the outputs */
} changing_loss;

static yoke_status compute(void *payload, const yoke_outputs *rows, double *loss) {
    const changing_loss *own = payload;
    size_t counts[] = {(size_t)rows->batch->rows * PAIR_CLASSES,
                       (size_t)rows->batch->rows * PAIR_SIDE};
    *loss = 1;
    for (int k = 0; k < 2; k++)
        for (size_t i = 0; i < counts[k] && own->reads >> k & 1; i++)
            rows->gradients[k][i] = 1e-6f;
    return YOKE_OK;
}

/* Later steps reach what the first ones did not, and the other way round. */
static void a_loss_of_the_host_reaches_what_it_gives_a_gradient(void **state) {
    (void)state;
    static const int reads[] = {1, 1, 3, 1, 2};
    changing_loss own = {0};
    const yoke_custom_loss loss = {sizeof loss, compute, &own};
    pair_outputs outputs, gradients;
    yoke_output_rows rows = {{outputs.head, outputs.side}, {gradients.head, gradients.side}};
    yoke_model *model = siamese_model((siamese_options){0});
    for (int accumulate = 1; accumulate <= 3; accumulate += 2) {
        yoke_data_parallel_options options = pair_options(YOKE_SCHEDULE_OVERLAP);
        options.accumulate = accumulate;
        check_engine engine = check_engine_make(model, 2, options, &plain);
        for (size_t step = 0; step < sizeof reads / sizeof reads[0]; step++) {
            pair_batch batch;
            weights before = read_weights(engine.parallel);
            own.reads = reads[step];
            pair_batch_make(&batch, pair_rows((int)step), (uint32_t)step);
            must(yoke_data_parallel_step_own(engine.parallel, &batch.batch,
                                             YOKE_OPTIMIZER_LEARNING_RATE, &loss, &rows, NULL));
            weights after = read_weights(engine.parallel);
            for (int i = 0; i < SIDE; i++)
                near((double)after.side[i], (double)before.side[i] * (own.reads & 2 ? 0.95 : 1),
                     1e-4, 1e-1, "side.weight");
            for (int i = 0; i < PAIR_CLASSES * PAIR_HIDDEN; i++)
                near((double)after.head[i], (double)before.head[i] * (own.reads & 1 ? 0.95 : 1),
                     1e-4, 1e-1, "head.weight");
            const char *text = yoke_data_parallel_unreached(engine.parallel);
            assert_true(step < 2 ? text != NULL : text == NULL);
        }
        check_engine_free(&engine);
    }
    yoke_model_destroy(model);
}

/* Ranks. */

typedef struct course {
    const yoke_model *model;
    yoke_schedule schedule;
    bool by_hand;
    weights *before, *after; /* [world] */
} course;

/* Rank 1 alone uses output 1. */
static void step_by_hand(yoke_data_parallel *parallel, pair_batch *batch, int rank) {
    pair_backward(parallel, batch, rank == 1 ? 3 : 1);
    must(yoke_data_parallel_update(parallel, YOKE_OPTIMIZER_LEARNING_RATE));
}

static yoke_status train_rank(yoke_process_group *group, const script *play) {
    const course *plan = play->detail;
    int rank = group->rank;
    yoke_devices_options open = {
        .struct_size = sizeof open, .list = "cpu", .threads = 1, .unbound = true};
    yoke_data_parallel_options options = pair_options(plan->schedule);
    yoke_devices *devices = NULL;
    yoke_data_parallel *parallel = NULL;
    options.process_group = group;
    must(yoke_devices_open(&devices, &open));
    must(yoke_data_parallel_create(&parallel, plan->model, devices, plan->by_hand ? &plain : &sgd,
                                   &options));
    plan->before[rank] = read_weights(parallel);
    for (int step = 0; step < STEPS; step++) {
        pair_batch batch;
        pair_batch_make(&batch, pair_rows(step), (uint32_t)step);
        pair_batch_cut(&batch, group->world, rank);
        if (plan->by_hand)
            step_by_hand(parallel, &batch, rank);
        else
            must(yoke_data_parallel_step(parallel, &batch.batch, YOKE_OPTIMIZER_LEARNING_RATE,
                                         NULL));
    }
    plan->after[rank] = read_weights(parallel);
    yoke_data_parallel_destroy(parallel);
    yoke_devices_close(devices);
    return YOKE_OK;
}

static void train_ranks(course *plan, int world) {
    script play = {.world = world, .timeout_ms = TIMEOUT_MS, .scene = train_rank, .detail = plan};
    outcome *outcomes = play_threads(&play);
    expect_all_well(outcomes, world);
    free(outcomes);
    for (int rank = 1; rank < world; rank++)
        assert_memory_equal(&plan->after[rank], &plan->after[0], sizeof plan->after[0]);
}

static void ranks_leave_an_unreached_head_alone(void **state) {
    (void)state;
    if (!devices_are_cpus()) skip();
    yoke_model *model = siamese_model((siamese_options){0});
    weights before[3], after[3];
    static const yoke_schedule schedules[] = {YOKE_SCHEDULE_OVERLAP, YOKE_SCHEDULE_SHARDED};
    for (int i = 0; i < 4; i++) {
        course plan = {model, schedules[i % 2], false, before, after};
        train_ranks(&plan, 2 + i / 2);
        expect_side_at_rest(&before[0], &after[0], "ranks");
    }
    yoke_model_destroy(model);
}

/* As DDP with find_unused_parameters: every rank decays it then. */
static void what_one_rank_reaches_all_ranks_do(void **state) {
    (void)state;
    if (!devices_are_cpus()) skip();
    yoke_model *model = siamese_model((siamese_options){0});
    weights before[3], after[3];
    course plan = {model, YOKE_SCHEDULE_OVERLAP, true, before, after};
    train_ranks(&plan, 3);
    assert_memory_not_equal(before[0].side, after[0].side, sizeof before[0].side);
    yoke_model_destroy(model);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(weight_decay_leaves_an_unreached_head_alone),
        cmocka_unit_test(an_unreached_head_keeps_what_it_keeps_in_pytorch),
        cmocka_unit_test(the_float64_reference_leaves_it_alone_too),
        cmocka_unit_test(a_group_of_its_own_lets_weight_decay_move_it),
        cmocka_unit_test(a_loss_of_the_host_reaches_what_it_gives_a_gradient),
        cmocka_unit_test(ranks_leave_an_unreached_head_alone),
        cmocka_unit_test(what_one_rank_reaches_all_ranks_do),
    };
    return RUN_ON_DEVICES(tests, NULL, NULL);
}
