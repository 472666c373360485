/* SPDX-License-Identifier: Apache-2.0 */
/* Flat arithmetic on the CPU gives a plain loop's bits, whatever the instruction set, the number
 * of threads and the cut of the range. */
#include <float.h>

#include "operation_check.h"
#include "optimizer/optimizer.h"

/* Large enough to be shared by threads, odd enough to have tails everywhere. */
enum { COUNT = 70001, BUFFERS = 11 };

/* The compiler may not keep more than float holds, nor contract: this is the plain loop. */
static float plain(float value) {
    volatile float stored = value;
    return stored;
}

static float *draw(double low, double high, uint64_t seed) {
    float *values = test_malloc(COUNT * sizeof *values);
    yoke_random_uniform(values, COUNT, low, high, seed, YOKE_RANDOM_PROBE, 0);
    return values;
}

static float *copy(const float *values) {
    float *copied = test_malloc(COUNT * sizeof *copied);
    memcpy(copied, values, COUNT * sizeof *copied);
    return copied;
}

static void assert_same_bits(const float *actual, const float *expected) {
    for (size_t i = 0; i < COUNT; i++) {
        if (memcmp(&actual[i], &expected[i], sizeof *actual) != 0)
            fail_msg("element %zu: %a, expected %a", i, (double)actual[i], (double)expected[i]);
    }
}

/* What a test does with elements begin .. end - 1 of its arrays. */
typedef void (*ranged)(yoke_device *device, void *context, size_t begin, size_t end);

/* As a whole, on two threads, and in uneven pieces: the context must come out right each time. */
static void for_every_cut(ranged body, void *context, void (*check)(void *context)) {
    for (int way = 0; way < 3; way++) {
        yoke_devices *devices = check_devices(way == 1 ? 2 : 1);
        yoke_device *device = yoke_devices_at(devices, 0);
        if (way < 2) {
            body(device, context, 0, COUNT);
        } else {
            for (size_t begin = 0, size = 1; begin < COUNT; begin += size, size = size * 3 + 2) {
                size = begin + size < COUNT ? size : COUNT - begin;
                body(device, context, begin, begin + size);
            }
        }
        check(context);
        yoke_devices_close(devices);
    }
}

/* Sum. */

typedef struct sum_case {
    float *from[BUFFERS], *to, *expected;
    int count;
} sum_case;

static void sum_range(yoke_device *device, void *context, size_t begin, size_t end) {
    sum_case *sum = context;
    const float *from[BUFFERS];
    for (int k = 0; k < sum->count; k++) {
        from[k] = sum->from[k] + begin;
    }
    CHECK(yoke_device_sum(device, YOKE_STREAM_COMPUTE, sum->to + begin, from, sum->count,
                          end - begin));
}

static void sum_check(void *context) {
    sum_case *sum = context;
    assert_same_bits(sum->to, sum->expected);
    memset(sum->to, 0xff, COUNT * sizeof *sum->to);
}

/* Element i of the sum: neighbours first, then pairs of pairs. */
static float tree_of(float *const *from, int count, size_t i) {
    float sums[BUFFERS];
    for (int k = 0; k < count; k++)
        sums[k] = from[k][i];
    for (int apart = 1; apart < count; apart *= 2)
        for (int k = 0; k + apart < count; k += 2 * apart)
            sums[k] = plain(sums[k] + sums[k + apart]);
    return sums[0];
}

static void sum_is_a_tree_in_the_given_order(void **state) {
    (void)state;
    sum_case sum = {.to = draw(0, 1, 9), .expected = draw(0, 1, 9)};
    for (int k = 0; k < BUFFERS; k++) {
        sum.from[k] = draw(-1, 1, (uint64_t)k);
    }
    for (sum.count = 1; sum.count <= BUFFERS; sum.count++) {
        for (size_t i = 0; i < COUNT; i++) {
            sum.expected[i] = tree_of(sum.from, sum.count, i);
        }
        for_every_cut(sum_range, &sum, sum_check);
    }
    for (int k = 0; k < BUFFERS; k++) {
        test_free(sum.from[k]);
    }
    test_free(sum.to);
    test_free(sum.expected);
}

static void sum_may_be_left_in_the_first_buffer(void **state) {
    (void)state;
    yoke_devices *devices = check_devices(1);
    float *left = draw(-1, 1, 1), *right = draw(-1, 1, 2), *expected = copy(left);
    for (size_t i = 0; i < COUNT; i++) {
        expected[i] = plain(plain(expected[i] + right[i]) + right[i]);
    }
    const float *from[] = {left, right, right};
    CHECK(yoke_device_sum(yoke_devices_at(devices, 0), YOKE_STREAM_COMPUTE, left, from, 3, COUNT));
    assert_same_bits(left, expected);
    test_free(left);
    test_free(right);
    test_free(expected);
    yoke_devices_close(devices);
}

/* Square sum. */

static void square_sum_adds_blocks_of_4096_in_order(void **state) {
    (void)state;
    float *values = draw(-2, 2, 3);
    long double exact = 0;
    double by_block = 0;
    yoke_devices *one = check_devices(1), *two = check_devices(2);
    for (size_t begin = 0; begin < COUNT; begin += 4096) {
        size_t count = COUNT - begin < 4096 ? COUNT - begin : 4096;
        double block = NAN;
        CHECK(yoke_device_square_sum(yoke_devices_at(one, 0), YOKE_STREAM_COMPUTE, values + begin,
                                     count, &block));
        by_block += block;
        for (size_t i = begin; i < begin + count; i++) {
            exact += (long double)values[i] * (long double)values[i];
        }
    }
    double whole = NAN, threaded = NAN;
    CHECK(yoke_device_square_sum(yoke_devices_at(one, 0), YOKE_STREAM_COMPUTE, values, COUNT,
                                 &whole));
    CHECK(yoke_device_square_sum(yoke_devices_at(two, 0), YOKE_STREAM_COMPUTE, values, COUNT,
                                 &threaded));
    assert_true(whole == by_block);
    assert_true(threaded == by_block);
    assert_true(fabs(whole - (double)exact) <= 1e-13 * (double)exact);
    yoke_devices_close(one);
    yoke_devices_close(two);
    test_free(values);
}

/* The largest float is finite; on several threads the first of all bad elements counts. */
static void a_check_finds_the_first_element_that_is_not_finite(void **state) {
    (void)state;
    enum { ELEMENTS = 300001, OFFSET = 1000 };
    static const size_t places[] = {0, 1, 17, 65535, 150000, ELEMENTS - 1};
    const float bad[] = {NAN, -NAN, INFINITY, -INFINITY};
    float *finite = malloc(ELEMENTS * sizeof *finite);
    for (size_t i = 0; i < ELEMENTS; i++)
        finite[i] = i % 3 == 0 ? FLT_MAX : i % 3 == 1 ? -FLT_MAX : FLT_MIN / 8;
    for (int threads = 1; threads <= 3; threads++) {
        yoke_devices *devices = NULL;
        yoke_devices_options open = {
            .struct_size = sizeof open, .list = "cpu", .threads = threads, .unbound = true};
        CHECK(yoke_devices_open(&devices, &open));
        yoke_device *device = yoke_devices_at(devices, 0);
        uint64_t first = YOKE_ALL_FINITE;
        CHECK(yoke_device_check_finite(device, YOKE_STREAM_COMPUTE, finite, ELEMENTS, OFFSET,
                                       &first));
        assert_true(first == YOKE_ALL_FINITE);
        for (size_t i = 0; i < sizeof places / sizeof places[0]; i++) {
            float before = finite[places[i]], last = finite[ELEMENTS - 1];
            finite[ELEMENTS - 1] = NAN;
            finite[places[i]] = bad[i % 4];
            first = YOKE_ALL_FINITE;
            CHECK(yoke_device_check_finite(device, YOKE_STREAM_COMPUTE, finite, ELEMENTS, OFFSET,
                                           &first));
            assert_int_equal(first, OFFSET + places[i]);
            finite[places[i]] = before;
            finite[ELEMENTS - 1] = last;
        }
        first = 7; /* an earlier range's */
        finite[3] = NAN;
        CHECK(yoke_device_check_finite(device, YOKE_STREAM_COMPUTE, finite, ELEMENTS, OFFSET,
                                       &first));
        assert_int_equal(first, 7);
        finite[3] = 1;
        yoke_devices_close(devices);
    }
    free(finite);
}

static void square_sum_of_large_floats_does_not_overflow(void **state) {
    (void)state;
    yoke_devices *devices = check_devices(1);
    const float values[] = {3e30f, 4e30f};
    double sum = NAN;
    CHECK(
        yoke_device_square_sum(yoke_devices_at(devices, 0), YOKE_STREAM_COMPUTE, values, 2, &sum));
    assert_true(fabs(sqrt(sum) - 5e30) < 1e24);
    CHECK(
        yoke_device_square_sum(yoke_devices_at(devices, 0), YOKE_STREAM_COMPUTE, values, 0, &sum));
    assert_true(sum == 0);
    yoke_devices_close(devices);
}

/* Optimizers. */

typedef struct update_case {
    yoke_update_step step;
    float *gradients;
    float *start[3], *now[3], *expected[3]; /* weights, then the optimizer's own */
} update_case;

/* Tensors from `squares` on hold sums of squares. */
static update_case prepare_update(int squares) {
    update_case update = {.gradients = draw(-1, 1, 20)};
    for (int i = 0; i < 3; i++) {
        update.start[i] = draw(i >= squares ? 0 : -1, 1, (uint64_t)i + 21);
        update.now[i] = copy(update.start[i]);
        update.expected[i] = copy(update.start[i]);
    }
    return update;
}

static void free_update(update_case *update) {
    test_free(update->gradients);
    for (int i = 0; i < 3; i++) {
        test_free(update->start[i]);
        test_free(update->now[i]);
        test_free(update->expected[i]);
    }
}

static void update_check(void *context) {
    update_case *update = context;
    for (int i = 0; i < 3; i++) {
        assert_same_bits(update->now[i], update->expected[i]);
        memcpy(update->now[i], update->start[i], COUNT * sizeof *update->start[i]);
    }
}

static void update_range(yoke_device *device, void *context, size_t begin, size_t end) {
    update_case *update = context;
    float *const states[YOKE_UPDATE_STATES] = {update->now[1] + begin, update->now[2] + begin};
    CHECK(yoke_device_update(device, YOKE_STREAM_COMPUTE, &update->step, update->now[0] + begin,
                             update->gradients + begin, states, end - begin));
}

/* Update `step`, from 0, of an optimizer. */
static yoke_update_step step_of(const yoke_optimizer_options *options, uint64_t step,
                                float gradient_scale) {
    return (yoke_update_step){.rule = yoke_optimizer_update_rule(options),
                              .scalars = yoke_optimizer_scalars(
                                  options, step, options->learning_rate, options->weight_decay),
                              .gradient_scale = gradient_scale};
}

/* One weight under torch.optim's single-tensor functions, one float32 operation after the other;
 * scalars are Python's doubles, rounded where they meet a tensor. */
typedef struct one_weight {
    float weight, gradient, state[2];
} one_weight;

static void add_decay(one_weight *e, const yoke_optimizer_options *o) {
    e->gradient = plain(e->gradient + plain((float)o->weight_decay * e->weight));
}

static void expect_sgd(one_weight *e, const yoke_optimizer_options *o, uint64_t step) {
    float momentum = (float)o->momentum, direction;
    add_decay(e, o);
    direction = e->gradient;
    if (momentum != 0) {
        e->state[0] = step == 0 ? e->gradient : plain(plain(momentum * e->state[0]) + e->gradient);
        direction = o->nesterov ? plain(e->gradient + plain(momentum * e->state[0])) : e->state[0];
    }
    e->weight = plain(e->weight - plain((float)o->learning_rate * direction));
}

/* Adds `share` of the gradient's square to a mean of squares that has decayed. */
static float square_mean(float mean, double decay, float share, float gradient) {
    return plain(plain(mean * (float)decay) + plain(plain(share * gradient) * gradient));
}

static void expect_adam(one_weight *e, const yoke_optimizer_options *o, uint64_t step) {
    double updates = (double)step + 1;
    if (o->kind == YOKE_ADAM)
        add_decay(e, o);
    else
        e->weight = plain(e->weight * (float)(1 - o->learning_rate * o->weight_decay));
    float risen = plain((float)(1 - o->beta1) * plain(e->gradient - e->state[0]));
    e->state[0] = plain(e->state[0] + risen);
    e->state[1] = square_mean(e->state[1], o->beta2, (float)(1 - o->beta2), e->gradient);
    float root = plain(plain(sqrtf(e->state[1])) / (float)sqrt(1 - pow(o->beta2, updates)));
    float step_size = (float)(o->learning_rate / (1 - pow(o->beta1, updates)));
    float denominator = plain(root + (float)o->epsilon);
    e->weight = plain(e->weight - plain(plain(step_size * e->state[0]) / denominator));
}

static void expect_rmsprop(one_weight *e, const yoke_optimizer_options *o, uint64_t step) {
    float rate = (float)o->learning_rate;
    (void)step;
    add_decay(e, o);
    e->state[0] = square_mean(e->state[0], o->alpha, (float)(1 - o->alpha), e->gradient);
    float average = plain(plain(sqrtf(e->state[0])) + (float)o->epsilon);
    if (o->momentum > 0) {
        float moved = plain((float)o->momentum * e->state[1]);
        e->state[1] = plain(moved + plain(e->gradient / average));
        e->weight = plain(e->weight - plain(rate * e->state[1]));
    } else {
        e->weight = plain(e->weight - plain(plain(rate * e->gradient) / average));
    }
}

/* Algorithm 2 of Chen et al. 2023. */
static void expect_lion(one_weight *e, const yoke_optimizer_options *o, uint64_t step) {
    float rate = (float)o->learning_rate,
          shares[2] = {(float)(1 - o->beta1), (float)(1 - o->beta2)};
    (void)step;
    e->weight = plain(e->weight * (float)(1 - o->learning_rate * o->weight_decay));
    float between = plain(plain(e->state[0] * (float)o->beta1) + plain(shares[0] * e->gradient));
    if (between > 0) e->weight = plain(e->weight - rate);
    if (between < 0) e->weight = plain(e->weight + rate);
    e->state[0] = plain(plain(e->state[0] * (float)o->beta2) + plain(shares[1] * e->gradient));
}

static void expect_adagrad(one_weight *e, const yoke_optimizer_options *o, uint64_t step) {
    (void)step;
    add_decay(e, o);
    e->state[0] = plain(e->state[0] + plain(e->gradient * e->gradient));
    float root = plain(plain(sqrtf(e->state[0])) + (float)o->epsilon);
    e->weight = plain(e->weight - plain(plain((float)o->learning_rate * e->gradient) / root));
}

static void check_updates(const yoke_optimizer_options *options, uint64_t step, float scale,
                          void (*expect)(one_weight *, const yoke_optimizer_options *, uint64_t)) {
    bool one_square = options->kind == YOKE_RMSPROP || options->kind == YOKE_ADAGRAD;
    update_case update = prepare_update(one_square ? 1 : 2);
    update.step = step_of(options, step, scale);
    for (size_t i = 0; i < COUNT; i++) {
        one_weight e = {.weight = update.start[0][i],
                        .gradient = plain(update.gradients[i] * scale),
                        .state = {update.start[1][i], update.start[2][i]}};
        expect(&e, options, step);
        update.expected[0][i] = e.weight;
        update.expected[1][i] = e.state[0];
        update.expected[2][i] = e.state[1];
    }
    for_every_cut(update_range, &update, update_check);
    free_update(&update);
}

static void sgd_is_torchs_in_every_form(void **state) {
    (void)state;
    for (int form = 0; form < 16; form++) {
        yoke_optimizer_options options = {.kind = YOKE_SGD,
                                          .learning_rate = 0.1,
                                          .momentum = form & 1 ? 0.9 : 0,
                                          .weight_decay = form & 2 ? 5e-4 : 0,
                                          .nesterov = (form & 4) != 0};
        check_updates(&options, (form & 8) == 0, form & 2 ? 0.7f : 1, expect_sgd);
    }
}

static void the_first_sgd_step_forgets_what_velocity_held(void **state) {
    (void)state;
    yoke_devices *devices = check_devices(1);
    yoke_optimizer_options options = {.learning_rate = 0.1, .momentum = 0.9};
    float weight = 1, gradient = 0.5f, velocity = NAN;
    float *const states[YOKE_UPDATE_STATES] = {&velocity};
    yoke_update_step step = step_of(&options, 0, 1);
    CHECK(yoke_device_update(yoke_devices_at(devices, 0), YOKE_STREAM_COMPUTE, &step, &weight,
                             &gradient, states, 1));
    assert_true(velocity == 0.5f);
    assert_true(weight == 1 - 0.1f * 0.5f);
    yoke_devices_close(devices);
}

static void adamw_is_torchs(void **state) {
    (void)state;
    const yoke_optimizer_options options = YOKE_ADAMW_OPTIONS_INIT;
    for (uint64_t updates = 1; updates <= 1000; updates *= 10)
        check_updates(&options, updates - 1, 0.5f, expect_adam);
}

static void adam_is_torchs(void **state) {
    (void)state;
    yoke_optimizer_options options = YOKE_ADAM_OPTIONS_INIT;
    for (uint64_t updates = 1; updates <= 1000; updates *= 10) {
        options.weight_decay = updates == 10 ? 0 : 0.05;
        check_updates(&options, updates - 1, 0.5f, expect_adam);
    }
}

static void rmsprop_is_torchs_with_and_without_momentum(void **state) {
    (void)state;
    yoke_optimizer_options options = YOKE_RMSPROP_OPTIONS_INIT;
    for (int form = 0; form < 4; form++) {
        options.momentum = form & 1 ? 0.9 : 0;
        options.weight_decay = form & 2 ? 0.05 : 0;
        check_updates(&options, 3, 0.5f, expect_rmsprop);
    }
}

static void lion_is_the_papers(void **state) {
    (void)state;
    yoke_optimizer_options options = YOKE_LION_OPTIONS_INIT;
    options.learning_rate = 0.03;
    check_updates(&options, 3, 0.5f, expect_lion);
    options.weight_decay = 0.1;
    check_updates(&options, 0, 1, expect_lion);
}

static void adagrad_is_torchs(void **state) {
    (void)state;
    yoke_optimizer_options options = YOKE_ADAGRAD_OPTIONS_INIT;
    check_updates(&options, 3, 0.5f, expect_adagrad);
    options.weight_decay = 0.05;
    check_updates(&options, 3, 1, expect_adagrad);
}

/* From zero moments, whatever the gradient, the first update is the learning rate's size: the
 * corrections and the moments' shares must agree to the last digit of a float. */
static void the_first_adamw_step_is_the_learning_rate(void **state) {
    (void)state;
    yoke_devices *devices = check_devices(1);
    yoke_optimizer_options options = YOKE_ADAMW_OPTIONS_INIT;
    options.epsilon = 1e-12;
    options.weight_decay = 0;
    yoke_update_step step = step_of(&options, 0, 1);
    float weight = 0, gradient = 0.37f, held[2] = {0, 0};
    float *const moments[2] = {&held[0], &held[1]};
    CHECK(yoke_device_update(yoke_devices_at(devices, 0), YOKE_STREAM_COMPUTE, &step, &weight,
                             &gradient, moments, 1));
    assert_true(fabs((double)weight / -1e-3 - 1) < 5e-7);
    yoke_devices_close(devices);
}

static void a_shadow_is_each_weight_rounded(void **state) {
    (void)state;
    enum { MOST = 200003 };
    static const uint32_t special[] = {0,          0x80000000, 1,          0x00008000, 0x00018000,
                                       0x3f808000, 0x3f818000, 0x3f808001, 0x7f7fffff, 0x7f800000,
                                       0xff800000, 0x7fc00000, 0x7f800001, 0x7fffffff, 0xffffffff};
    float *weights = malloc(MOST * sizeof *weights);
    uint16_t *shadow = malloc(MOST * sizeof *shadow);
    for (size_t i = 0; i < MOST; i++) {
        uint32_t bits = (uint32_t)i * 2654435761u;
        if (i % 7 == 0) bits = special[i / 7 % (sizeof special / sizeof special[0])];
        memcpy(&weights[i], &bits, sizeof bits);
    }
    for (int threads = 1; threads <= 2; threads++) {
        yoke_devices *devices = NULL;
        yoke_devices_options open = {
            .struct_size = sizeof open, .list = "cpu", .threads = threads, .unbound = true};
        CHECK(yoke_devices_open(&devices, &open));
        for (size_t count = 1; count <= MOST; count = count < 40 ? count + 1 : count * 9 - 1) {
            memset(shadow, 0x11, MOST * sizeof *shadow);
            CHECK(yoke_device_shadow(yoke_devices_at(devices, 0), YOKE_BFLOAT16, shadow, weights,
                                     count));
            for (size_t i = 0; i < count; i++)
                assert_int_equal(shadow[i], yoke_bfloat16_round(weights[i]));
            if (count < MOST) assert_int_equal(shadow[count], 0x1111);
        }
        yoke_devices_close(devices);
    }
    free(shadow);
    free(weights);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sum_is_a_tree_in_the_given_order),
        cmocka_unit_test(sum_may_be_left_in_the_first_buffer),
        cmocka_unit_test(square_sum_adds_blocks_of_4096_in_order),
        cmocka_unit_test(square_sum_of_large_floats_does_not_overflow),
        cmocka_unit_test(a_check_finds_the_first_element_that_is_not_finite),
        cmocka_unit_test(a_shadow_is_each_weight_rounded),
        cmocka_unit_test(sgd_is_torchs_in_every_form),
        cmocka_unit_test(the_first_sgd_step_forgets_what_velocity_held),
        cmocka_unit_test(adamw_is_torchs),
        cmocka_unit_test(adam_is_torchs),
        cmocka_unit_test(rmsprop_is_torchs_with_and_without_momentum),
        cmocka_unit_test(lion_is_the_papers),
        cmocka_unit_test(adagrad_is_torchs),
        cmocka_unit_test(the_first_adamw_step_is_the_learning_rate),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
