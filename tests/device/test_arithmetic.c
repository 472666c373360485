/* SPDX-License-Identifier: Apache-2.0 */
/* Flat arithmetic on the CPU gives a plain loop's bits, whatever the instruction set, the number
 * of threads and the cut of the range. */
#include <float.h>

#include "operation_check.h"

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
    yoke_sgd_step sgd;
    yoke_adamw_step adamw;
    float *gradients;
    float *start[3], *now[3], *expected[3]; /* weights, then the optimizer's own */
} update_case;

static update_case prepare_update(void) {
    update_case update = {.gradients = draw(-1, 1, 20)};
    for (int i = 0; i < 3; i++) {
        update.start[i] = draw(i == 2 ? 0 : -1, 1, (uint64_t)i + 21);
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

static void sgd_range(yoke_device *device, void *context, size_t begin, size_t end) {
    update_case *update = context;
    float *velocity = update->sgd.momentum == 0 ? NULL : update->now[1] + begin;
    CHECK(yoke_device_sgd(device, YOKE_STREAM_COMPUTE, &update->sgd, update->now[0] + begin,
                          update->gradients + begin, velocity, end - begin));
}

/* torch.optim.SGD, _single_tensor_sgd, one float32 operation after the other. */
static void expect_sgd(update_case *update) {
    const yoke_sgd_step *step = &update->sgd;
    for (size_t i = 0; i < COUNT; i++) {
        float weight = update->start[0][i], velocity = update->start[1][i];
        float gradient = plain(update->gradients[i] * step->gradient_scale);
        gradient = plain(gradient + plain(step->weight_decay * weight));
        float direction = gradient;
        if (step->momentum != 0) {
            velocity = step->first ? gradient : plain(plain(step->momentum * velocity) + gradient);
            direction =
                step->nesterov ? plain(gradient + plain(step->momentum * velocity)) : velocity;
        }
        update->expected[0][i] = plain(weight - plain(step->learning_rate * direction));
        update->expected[1][i] = velocity;
    }
}

static void sgd_is_torchs_in_every_form(void **state) {
    (void)state;
    update_case update = prepare_update();
    for (int form = 0; form < 16; form++) {
        update.sgd = (yoke_sgd_step){.learning_rate = 0.1f,
                                     .momentum = form & 1 ? 0.9f : 0,
                                     .weight_decay = form & 2 ? 5e-4f : 0,
                                     .gradient_scale = form & 2 ? 0.7f : 1,
                                     .nesterov = (form & 4) != 0,
                                     .first = (form & 8) != 0};
        expect_sgd(&update);
        for_every_cut(sgd_range, &update, update_check);
    }
    free_update(&update);
}

static void the_first_sgd_step_forgets_what_velocity_held(void **state) {
    (void)state;
    yoke_devices *devices = check_devices(1);
    float weight = 1, gradient = 0.5f, velocity = NAN;
    yoke_sgd_step step = {
        .learning_rate = 0.1f, .momentum = 0.9f, .gradient_scale = 1, .first = true};
    CHECK(yoke_device_sgd(yoke_devices_at(devices, 0), YOKE_STREAM_COMPUTE, &step, &weight,
                          &gradient, &velocity, 1));
    assert_true(velocity == 0.5f);
    assert_true(weight == 1 - 0.1f * 0.5f);
    yoke_devices_close(devices);
}

static void adamw_range(yoke_device *device, void *context, size_t begin, size_t end) {
    update_case *update = context;
    float *const moments[2] = {update->now[1] + begin, update->now[2] + begin};
    CHECK(yoke_device_adamw(device, YOKE_STREAM_COMPUTE, &update->adamw, update->now[0] + begin,
                            update->gradients + begin, moments, end - begin));
}

/* torch.optim.AdamW, _single_tensor_adamw, one float32 operation after the other; scalars are
 * Python's doubles, rounded where they meet a tensor. */
static void expect_adamw(update_case *update) {
    const yoke_adamw_step *step = &update->adamw;
    float shrink = (float)(1 - step->learning_rate * step->weight_decay);
    float rise1 = (float)(1 - step->beta1), rise2 = (float)(1 - step->beta2);
    float step_size = (float)(step->learning_rate / step->correction1);
    for (size_t i = 0; i < COUNT; i++) {
        float weight = plain(update->start[0][i] * shrink);
        float gradient = plain(update->gradients[i] * step->gradient_scale);
        float moment1 = update->start[1][i], moment2 = update->start[2][i];
        moment1 = plain(moment1 + plain(rise1 * plain(gradient - moment1)));
        float squared = plain(plain(rise2 * gradient) * gradient);
        moment2 = plain(plain(moment2 * (float)step->beta2) + squared);
        float root = plain(plain(sqrtf(moment2)) / (float)step->correction2_root);
        float denominator = plain(root + (float)step->epsilon);
        update->expected[0][i] = plain(weight - plain(plain(step_size * moment1) / denominator));
        update->expected[1][i] = moment1;
        update->expected[2][i] = moment2;
    }
}

static void adamw_is_torchs(void **state) {
    (void)state;
    update_case update = prepare_update();
    for (int updates = 1; updates <= 1000; updates *= 10) {
        update.adamw = (yoke_adamw_step){.learning_rate = 1e-3,
                                         .beta1 = 0.9,
                                         .beta2 = 0.999,
                                         .epsilon = 1e-8,
                                         .weight_decay = 0.01,
                                         .correction1 = 1 - pow(0.9, updates),
                                         .correction2_root = sqrt(1 - pow(0.999, updates)),
                                         .gradient_scale = 0.5f};
        expect_adamw(&update);
        for_every_cut(adamw_range, &update, update_check);
    }
    free_update(&update);
}

/* From zero moments, whatever the gradient, the first update is the learning rate's size: the
 * corrections and the moments' shares must agree to the last digit of a float. */
static void the_first_adamw_step_is_the_learning_rate(void **state) {
    (void)state;
    yoke_devices *devices = check_devices(1);
    yoke_adamw_step step = {.learning_rate = 1e-3,
                            .beta1 = 0.9,
                            .beta2 = 0.999,
                            .epsilon = 1e-12,
                            .correction1 = 1 - 0.9,
                            .correction2_root = sqrt(1 - 0.999),
                            .gradient_scale = 1};
    float weight = 0, gradient = 0.37f, held[2] = {0, 0};
    float *const moments[2] = {&held[0], &held[1]};
    CHECK(yoke_device_adamw(yoke_devices_at(devices, 0), YOKE_STREAM_COMPUTE, &step, &weight,
                            &gradient, moments, 1));
    assert_true(fabs((double)weight / -1e-3 - 1) < 5e-7);
    yoke_devices_close(devices);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sum_is_a_tree_in_the_given_order),
        cmocka_unit_test(sum_may_be_left_in_the_first_buffer),
        cmocka_unit_test(square_sum_adds_blocks_of_4096_in_order),
        cmocka_unit_test(square_sum_of_large_floats_does_not_overflow),
        cmocka_unit_test(a_check_finds_the_first_element_that_is_not_finite),
        cmocka_unit_test(sgd_is_torchs_in_every_form),
        cmocka_unit_test(the_first_sgd_step_forgets_what_velocity_held),
        cmocka_unit_test(adamw_is_torchs),
        cmocka_unit_test(the_first_adamw_step_is_the_learning_rate),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
