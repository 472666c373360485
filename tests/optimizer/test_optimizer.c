/* SPDX-License-Identifier: Apache-2.0 */
/* Optimizers equal the formulas of torch.optim, written here again in double. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "optimizer/optimizer.h"
#include "support/devices.h"

#define CHECK(call)                                                                                \
    do {                                                                                           \
        if ((call) != YOKE_OK) fail_msg("%s: %s", #call, yoke_last_error());                       \
    } while (0)

enum { ELEMENTS = 1003, STEPS = 12, PARTS = 4 };

static yoke_devices *devices;

static int open_devices(void **state) {
    (void)state;
    yoke_devices_options options = {
        .struct_size = sizeof options, .list = devices_of(PARTS), .threads = 1, .unbound = true};
    return yoke_devices_open(&devices, &options) == YOKE_OK ? 0 : -1;
}

static int close_devices(void **state) {
    (void)state;
    yoke_devices_close(devices);
    return 0;
}

static yoke_device *root(void) {
    return yoke_devices_at(devices, 0);
}

static float weights[ELEMENTS], gradients[ELEMENTS];

static void draw_weights(void) {
    yoke_random_normal(weights, ELEMENTS, 1, 5, YOKE_RANDOM_PROBE, 0);
}

/* Gradients of one step: over six orders of magnitude, some of them exactly zero. */
static void draw_gradients(uint64_t step) {
    yoke_random_normal(gradients, ELEMENTS, 1, 6, YOKE_RANDOM_PROBE, step);
    for (size_t i = 0; i < ELEMENTS; i++)
        gradients[i] *= i % 11 == 0 ? 0 : powf(10, (float)(i % 7) - 4);
}

static yoke_optimizer_step step_at(uint64_t step) {
    return (yoke_optimizer_step){
        .step = step, .learning_rate = 0.05 / (1 + (double)step), .gradient_scale = 1};
}

static yoke_optimizer *create(const yoke_optimizer_options *options, size_t offset,
                              size_t elements) {
    yoke_optimizer *optimizer = NULL;
    CHECK(yoke_optimizer_create(&optimizer, options, NULL, root(), offset, elements));
    return optimizer;
}

/* One update of values of the host, carried to the device and back. */
static yoke_status update(yoke_optimizer *optimizer, const yoke_optimizer_step *step, size_t offset,
                          size_t elements, float *of, const float *by) {
    size_t bytes = elements * sizeof(float);
    float *on_device = device_copy_of(root(), of, bytes),
          *gradient = device_copy_of(root(), by, bytes);
    CHECK(yoke_device_synchronize(root()));
    yoke_status status =
        yoke_optimizer_update(optimizer, step, root(), offset, elements, on_device, gradient);
    CHECK(yoke_device_synchronize(root()));
    device_take(root(), of, on_device, bytes);
    yoke_device_free(root(), on_device);
    yoke_device_free(root(), gradient);
    return status;
}

/* The state of one weight in the reference. */
typedef struct exact {
    double weight, velocity, moment1, moment2;
} exact;
typedef void (*exact_update)(exact *at, const yoke_optimizer_options *options, uint64_t step,
                             double rate, double gradient);

static void exact_sgd(exact *at, const yoke_optimizer_options *options, uint64_t step, double rate,
                      double gradient) {
    double direction = gradient + options->weight_decay * at->weight;
    if (options->momentum != 0) {
        at->velocity = step == 0 ? direction : options->momentum * at->velocity + direction;
        direction = options->nesterov ? direction + options->momentum * at->velocity : at->velocity;
    }
    at->weight -= rate * direction;
}

static void exact_adam(exact *at, const yoke_optimizer_options *options, uint64_t step, double rate,
                       double gradient) {
    double beta1 = options->beta1, beta2 = options->beta2, epsilon = options->epsilon;
    double updates = (double)(step + 1);
    if (options->kind == YOKE_ADAMW)
        at->weight -= rate * options->weight_decay * at->weight;
    else
        gradient += options->weight_decay * at->weight;
    at->moment1 = beta1 * at->moment1 + (1 - beta1) * gradient;
    at->moment2 = beta2 * at->moment2 + (1 - beta2) * gradient * gradient;
    double mean = at->moment1 / (1 - pow(beta1, updates));
    double variance = at->moment2 / (1 - pow(beta2, updates));
    at->weight -= rate * mean / (sqrt(variance) + epsilon);
}

static void exact_rmsprop(exact *at, const yoke_optimizer_options *options, uint64_t step,
                          double rate, double gradient) {
    (void)step;
    gradient += options->weight_decay * at->weight;
    at->moment2 = options->alpha * at->moment2 + (1 - options->alpha) * gradient * gradient;
    double direction = gradient / (sqrt(at->moment2) + options->epsilon);
    at->velocity = options->momentum * at->velocity + direction;
    at->weight -= rate * at->velocity;
}

static void exact_lion(exact *at, const yoke_optimizer_options *options, uint64_t step, double rate,
                       double gradient) {
    (void)step;
    double direction = options->beta1 * at->moment1 + (1 - options->beta1) * gradient;
    double sign = direction > 0 ? 1 : direction < 0 ? -1 : 0;
    at->weight -= rate * (sign + options->weight_decay * at->weight);
    at->moment1 = options->beta2 * at->moment1 + (1 - options->beta2) * gradient;
}

static void exact_adagrad(exact *at, const yoke_optimizer_options *options, uint64_t step,
                          double rate, double gradient) {
    (void)step;
    gradient += options->weight_decay * at->weight;
    at->moment2 += gradient * gradient;
    at->weight -= rate * gradient / (sqrt(at->moment2) + options->epsilon);
}

/* Trains both for STEPS steps; they may differ by the rounding of each float update. */
static void compare_with_reference(const yoke_optimizer_options *options, exact_update exact_step) {
    static exact reference[ELEMENTS];
    draw_weights();
    for (size_t i = 0; i < ELEMENTS; i++)
        reference[i] = (exact){.weight = (double)weights[i]};
    yoke_optimizer *optimizer = create(options, 0, ELEMENTS);
    for (uint64_t t = 0; t < STEPS; t++) {
        yoke_optimizer_step step = step_at(t);
        draw_gradients(t);
        CHECK(update(optimizer, &step, 0, ELEMENTS, weights, gradients));
        for (size_t i = 0; i < ELEMENTS; i++)
            exact_step(&reference[i], options, t, step.learning_rate, (double)gradients[i]);
    }
    yoke_optimizer_destroy(optimizer);
    for (size_t i = 0; i < ELEMENTS; i++) {
        double difference = fabs((double)weights[i] - reference[i].weight);
        double size = fmax(fabs(reference[i].weight), 1);
        if (!(difference <= 2e-6 * size))
            fail_msg("weight %zu is %.9g, the reference %.9g", i, (double)weights[i],
                     reference[i].weight);
    }
}

static void sgd_is_torch_sgd(void **state) {
    (void)state;
    static const struct {
        double momentum, weight_decay;
        bool nesterov;
    } forms[] = {{0, 0, false},  {0, 0.01, false},   {0.9, 0, false},
                 {0.9, 0, true}, {0.9, 0.05, false}, {0.5, 0.05, true}};
    for (size_t i = 0; i < sizeof forms / sizeof forms[0]; i++) {
        yoke_optimizer_options options = {.struct_size = sizeof options,
                                          .kind = YOKE_SGD,
                                          .momentum = forms[i].momentum,
                                          .weight_decay = forms[i].weight_decay,
                                          .nesterov = forms[i].nesterov};
        compare_with_reference(&options, exact_sgd);
    }
}

static void adam_and_adamw_are_torchs(void **state) {
    (void)state;
    static const struct {
        double beta1, beta2, epsilon, weight_decay;
    } forms[] = {
        {0.9, 0.999, 1e-8, 0}, {0.9, 0.999, 1e-8, 0.1}, {0.8, 0.95, 1e-4, 0.01}, {0, 0, 1e-2, 0}};
    for (size_t i = 0; i < sizeof forms / sizeof forms[0]; i++) {
        yoke_optimizer_options options = {.struct_size = sizeof options,
                                          .kind = YOKE_ADAMW,
                                          .beta1 = forms[i].beta1,
                                          .beta2 = forms[i].beta2,
                                          .epsilon = forms[i].epsilon,
                                          .weight_decay = forms[i].weight_decay};
        compare_with_reference(&options, exact_adam);
        options.kind = YOKE_ADAM;
        compare_with_reference(&options, exact_adam);
    }
}

static void rmsprop_lion_and_adagrad_are_their_formulas(void **state) {
    (void)state;
    for (int form = 0; form < 4; form++) {
        yoke_optimizer_options rmsprop = YOKE_RMSPROP_OPTIONS_INIT, lion = YOKE_LION_OPTIONS_INIT,
                               adagrad = YOKE_ADAGRAD_OPTIONS_INIT;
        rmsprop.momentum = form & 1 ? 0.9 : 0;
        rmsprop.epsilon = adagrad.epsilon = 1e-4;
        rmsprop.weight_decay = lion.weight_decay = adagrad.weight_decay = form & 2 ? 0.1 : 0;
        compare_with_reference(&rmsprop, exact_rmsprop);
        compare_with_reference(&lion, exact_lion);
        compare_with_reference(&adagrad, exact_adagrad);
    }
}

/* Two steps worked out by hand: w = 1, gradients 0.5 and -1, rate 0.1. */
static void two_steps_are_as_worked_out_by_hand(void **state) {
    (void)state;
    const float given[2] = {0.5f, -1.0f};
    static const struct {
        yoke_optimizer_options options;
        double after[2];
    } cases[] = {
        /* v = 0.5, w = 0.95; v = 0.45 - 1 = -0.55, w = 1.005 */
        {{.kind = YOKE_SGD, .momentum = 0.9}, {0.95, 1.005}},
        /* d = 0.95, w = 0.905; v = -0.55, d = -1 - 0.495, w = 1.0545 */
        {{.kind = YOKE_SGD, .momentum = 0.9, .nesterov = true}, {0.905, 1.0545}},
        /* w = 0.99 - 0.1 * 1; m^ = (0.045 - 0.1) / 0.19, v^ = (0.00024975 + 0.001) / 0.001999,
         * w = 0.89 * 0.99 + 0.1 * 0.28947368 / 0.79068842 */
        {{.kind = YOKE_ADAMW, .weight_decay = 0.1, .beta1 = 0.9, .beta2 = 0.999, .epsilon = 1e-8},
         {0.89, 0.91771036}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        yoke_optimizer_options options = cases[i].options;
        options.struct_size = sizeof options;
        yoke_optimizer *optimizer = create(&options, 0, 1);
        float weight = 1;
        for (uint64_t t = 0; t < 2; t++) {
            yoke_optimizer_step step = {.step = t, .learning_rate = 0.1, .gradient_scale = 1};
            CHECK(update(optimizer, &step, 0, 1, &weight, &given[t]));
            if (fabs((double)weight - cases[i].after[t]) > 2e-7)
                fail_msg("case %zu step %d: %.9g", i, (int)t, (double)weight);
        }
        yoke_optimizer_destroy(optimizer);
    }
}

static const yoke_optimizer_options momentum = {.struct_size = sizeof momentum,
                                                .kind = YOKE_SGD,
                                                .momentum = 0.9,
                                                .weight_decay = 1e-3,
                                                .nesterov = true};
static const yoke_optimizer_options adamw = {.struct_size = sizeof adamw,
                                             .kind = YOKE_ADAMW,
                                             .weight_decay = 1e-2,
                                             .beta1 = 0.9,
                                             .beta2 = 0.999,
                                             .epsilon = 1e-8};
static const yoke_optimizer_options lion = YOKE_LION_OPTIONS_INIT;
static const yoke_optimizer_options *const kinds[] = {&momentum, &adamw, &lion};
enum { KINDS = sizeof kinds / sizeof kinds[0] };

static const size_t cuts[PARTS + 1] = {0, 1, 334, 1000, ELEMENTS};

static void train_whole(const yoke_optimizer_options *options) {
    draw_weights();
    yoke_optimizer *optimizer = create(options, 0, ELEMENTS);
    for (uint64_t t = 0; t < STEPS; t++) {
        yoke_optimizer_step step = step_at(t);
        draw_gradients(t);
        CHECK(update(optimizer, &step, 0, ELEMENTS, weights, gradients));
    }
    yoke_optimizer_destroy(optimizer);
}

/* Ranges in any order, of one optimizer or of one each. */
static void train_in_parts(const yoke_optimizer_options *options, bool own_optimizers) {
    draw_weights();
    yoke_optimizer *optimizers[PARTS];
    for (size_t k = 0; k < PARTS; k++) {
        if (own_optimizers)
            optimizers[k] = create(options, cuts[k], cuts[k + 1] - cuts[k]);
        else
            optimizers[k] = k == 0 ? create(options, 0, ELEMENTS) : optimizers[0];
    }
    for (uint64_t t = 0; t < STEPS; t++) {
        yoke_optimizer_step step = step_at(t);
        draw_gradients(t);
        for (size_t k = PARTS; k-- > 0;)
            CHECK(update(optimizers[k], &step, cuts[k], cuts[k + 1] - cuts[k], weights + cuts[k],
                         gradients + cuts[k]));
    }
    for (size_t k = 0; k < PARTS; k++) {
        if (own_optimizers || k == 0) yoke_optimizer_destroy(optimizers[k]);
    }
}

static void any_cut_of_the_buffer_gives_the_same_bits(void **state) {
    (void)state;
    for (size_t kind = 0; kind < KINDS; kind++) {
        float whole[ELEMENTS];
        train_whole(kinds[kind]);
        memcpy(whole, weights, sizeof whole);
        train_in_parts(kinds[kind], false);
        assert_memory_equal(weights, whole, sizeof whole);
        train_in_parts(kinds[kind], true);
        assert_memory_equal(weights, whole, sizeof whole);
    }
}

/* Every range trains as an optimizer of its own with these settings, wherever updates are cut. */
static void ranges_train_as_optimizers_of_their_own(void **state) {
    (void)state;
    static const yoke_optimizer_range settings[PARTS] = {
        {0, 0.5, 0.2}, {1, 1, 0}, {334, 0, 0.3}, {1000, 3, 0.01}};
    static const size_t elsewhere[] = {0, 200, 1002, ELEMENTS};
    for (size_t kind = 0; kind < KINDS; kind++) {
        float apart[ELEMENTS];
        yoke_optimizer *own[PARTS], *one = NULL;
        yoke_optimizer_range items[PARTS];
        memcpy(items, settings, sizeof items);
        const yoke_optimizer_ranges ranges = {items, PARTS};
        for (size_t k = 0; k < PARTS; k++) {
            yoke_optimizer_options options = *kinds[kind];
            options.weight_decay = settings[k].weight_decay;
            own[k] = create(&options, cuts[k], cuts[k + 1] - cuts[k]);
        }
        CHECK(yoke_optimizer_create(&one, kinds[kind], &ranges, root(), 0, ELEMENTS));
        draw_weights();
        for (uint64_t t = 0; t < STEPS; t++)
            for (size_t k = 0; k < PARTS; k++) {
                yoke_optimizer_step step = step_at(t);
                step.learning_rate *= settings[k].learning_rate_scale;
                draw_gradients(t);
                CHECK(update(own[k], &step, cuts[k], cuts[k + 1] - cuts[k], weights + cuts[k],
                             gradients + cuts[k]));
            }
        memcpy(apart, weights, sizeof apart);
        draw_weights();
        for (uint64_t t = 0; t < STEPS; t++)
            for (size_t k = 0; k < 3; k++) {
                yoke_optimizer_step step = step_at(t);
                size_t begin = elsewhere[k];
                draw_gradients(t);
                CHECK(update(one, &step, begin, elsewhere[k + 1] - begin, weights + begin,
                             gradients + begin));
            }
        assert_memory_equal(weights, apart, sizeof apart);
        yoke_optimizer_destroy(one);
        for (size_t k = 0; k < PARTS; k++)
            yoke_optimizer_destroy(own[k]);
    }
}

typedef struct crew_step {
    yoke_optimizer *optimizer;
    yoke_optimizer_step step;
} crew_step;

static yoke_status update_part(int worker, void *context) {
    const crew_step *shared = context;
    size_t begin = cuts[worker];
    return yoke_optimizer_update(shared->optimizer, &shared->step, yoke_devices_at(devices, worker),
                                 begin, cuts[worker + 1] - begin, weights + begin,
                                 gradients + begin);
}

static void workers_may_update_ranges_at_the_same_time(void **state) {
    (void)state;
    if (!yoke_devices_share_memory(devices)) skip(); /* there each device updates its own */
    yoke_workers *crew = NULL;
    yoke_workers_options options = {.count = PARTS, .spare_cores = -1};
    CHECK(yoke_workers_create(&crew, &options));
    for (size_t kind = 0; kind < KINDS; kind++) {
        float whole[ELEMENTS];
        train_whole(kinds[kind]);
        memcpy(whole, weights, sizeof whole);
        draw_weights();
        crew_step shared = {.optimizer = create(kinds[kind], 0, ELEMENTS)};
        for (uint64_t t = 0; t < STEPS; t++) {
            shared.step = step_at(t);
            draw_gradients(t);
            CHECK(yoke_workers_run(crew, PARTS, update_part, &shared, NULL));
        }
        yoke_optimizer_destroy(shared.optimizer);
        assert_memory_equal(weights, whole, sizeof whole);
    }
    yoke_workers_destroy(crew);
}

static void clipping_scales_the_gradient_and_not_the_decay(void **state) {
    (void)state;
    yoke_optimizer_options options = {
        .struct_size = sizeof options, .kind = YOKE_SGD, .weight_decay = 0.5};
    yoke_optimizer *optimizer = create(&options, 0, 1);
    float weight = 2, gradient = 8;
    yoke_optimizer_step step = {.learning_rate = 0.5, .gradient_scale = 0.25f};
    CHECK(update(optimizer, &step, 0, 1, &weight, &gradient));
    assert_true(weight == 0.5f); /* 2 - 0.5 * (2 + 1) */
    yoke_optimizer_destroy(optimizer);
}

static void a_new_run_does_not_remember_the_old_velocity(void **state) {
    (void)state;
    yoke_optimizer *optimizer = create(&momentum, 0, 1);
    float first[2];
    for (int run = 0; run < 2; run++) {
        float weight = 1, gradient = 3;
        for (uint64_t t = 0; t < 3; t++) {
            yoke_optimizer_step step = step_at(t);
            CHECK(update(optimizer, &step, 0, 1, &weight, &gradient));
        }
        first[run] = weight;
    }
    assert_true(first[0] == first[1]);
    yoke_optimizer_destroy(optimizer);
}

static void state_is_device_memory_and_no_more_than_needed(void **state) {
    (void)state;
    yoke_optimizer_options plain = {.struct_size = sizeof plain, .kind = YOKE_SGD};
    const yoke_optimizer_options *options[] = {&plain, &momentum, &adamw};
    size_t before = yoke_device_allocated(root());
    for (size_t floats = 0; floats < 3; floats++) {
        yoke_optimizer *optimizer = create(options[floats], 100, ELEMENTS);
        assert_int_equal(yoke_optimizer_bytes(optimizer), floats * ELEMENTS * sizeof(float));
        size_t held = yoke_device_allocated(root()) - before;
        assert_true(held >= yoke_optimizer_bytes(optimizer));
        assert_int_equal(held == 0, floats == 0);
        yoke_optimizer_destroy(optimizer);
        assert_int_equal(yoke_device_allocated(root()), before);
    }
    yoke_optimizer_destroy(NULL);
}

/* A device may own nothing: a shard of a model with fewer elements than devices. */
static void an_empty_range_needs_no_state(void **state) {
    (void)state;
    size_t before = yoke_device_allocated(root());
    yoke_optimizer *optimizer = create(&adamw, 50, 0);
    assert_int_equal(yoke_device_allocated(root()), before);
    yoke_optimizer_step step = step_at(0);
    CHECK(update(optimizer, &step, 50, 0, weights, gradients));
    yoke_optimizer_destroy(optimizer);
}

static void clipping_follows_clip_grad_norm(void **state) {
    (void)state;
    assert_true(yoke_clip_scale(1, 0.5) == 1);
    assert_true(yoke_clip_scale(1, 0) == 1);
    assert_true(yoke_clip_scale(1, 4) == (float)(1 / (4 + 1e-6)));
    assert_true(yoke_clip_scale(5, 5) == (float)(5 / (5 + 1e-6)));
    assert_true(yoke_clip_scale(1, (double)INFINITY) == 0);
    /* A broken gradient is not hidden. */
    assert_true(isnan(yoke_clip_scale(1, (double)NAN)));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sgd_is_torch_sgd),
        cmocka_unit_test(adam_and_adamw_are_torchs),
        cmocka_unit_test(rmsprop_lion_and_adagrad_are_their_formulas),
        cmocka_unit_test(two_steps_are_as_worked_out_by_hand),
        cmocka_unit_test(any_cut_of_the_buffer_gives_the_same_bits),
        cmocka_unit_test(ranges_train_as_optimizers_of_their_own),
        cmocka_unit_test(workers_may_update_ranges_at_the_same_time),
        cmocka_unit_test(clipping_scales_the_gradient_and_not_the_decay),
        cmocka_unit_test(a_new_run_does_not_remember_the_old_velocity),
        cmocka_unit_test(state_is_device_memory_and_no_more_than_needed),
        cmocka_unit_test(an_empty_range_needs_no_state),
        cmocka_unit_test(clipping_follows_clip_grad_norm),
    };
    return RUN_ON_DEVICES(tests, open_devices, close_devices);
}
