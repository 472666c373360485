/* SPDX-License-Identifier: Apache-2.0 */
/* Flat arithmetic on a GPU gives the CPU's bits, whatever the length and alignment of a
 * range. */
#include <math.h>

#include "support/devices.h"

#include "base/base.h"
#include "optimizer/optimizer.h"

#define EXPECT_OK(call)                                                                            \
    do {                                                                                           \
        yoke_status expect_status_ = (call);                                                       \
        if (expect_status_ != YOKE_OK)                                                             \
            fail_msg("%s: %s: %s", #call, yoke_status_name(expect_status_), yoke_last_error());    \
    } while (0)
#define COUNT(array) (sizeof(array) / sizeof(array)[0])
#define STREAM YOKE_STREAM_COMPUTE

enum { LONGEST = 100001, SHIFTS = 4 };
static const size_t lengths[] = {0, 1, 3, 4, 5, 16, 17, 1000, 4095, 4096, 4097, LONGEST};

typedef struct both_devices {
    yoke_devices *cpus, *gpus;
    yoke_device *cpu, *gpu;
} both_devices;

static yoke_devices *open_list(const char *list) {
    yoke_devices *devices = NULL;
    yoke_devices_options options = {
        .struct_size = sizeof options, .list = list, .threads = 1, .unbound = true};
    EXPECT_OK(yoke_devices_open(&devices, &options));
    return devices;
}

static int open_both(void **state) {
    static both_devices both;
    both.cpus = open_list("cpu");
    both.gpus = open_list("cuda:0");
    both.cpu = yoke_devices_at(both.cpus, 0);
    both.gpu = yoke_devices_at(both.gpus, 0);
    *state = &both;
    return 0;
}

static int close_both(void **state) {
    both_devices *both = *state;
    yoke_devices_close(both->gpus);
    yoke_devices_close(both->cpus);
    return 0;
}

/* The same values on the host and on the GPU, `shift` elements behind where memory begins, and with
 * one element behind the range that must stay. */
typedef struct twin {
    yoke_device *gpu;
    size_t elements;
    float *host_base, *gpu_base, *host, *there;
} twin;

static twin twin_new(yoke_device *gpu, size_t elements, size_t shift, uint32_t salt) {
    size_t count = shift + elements + 1;
    twin made = {.gpu = gpu, .elements = elements, .host_base = malloc(count * sizeof(float))};
    assert_non_null(made.host_base);
    for (size_t i = 0; i < count; i++) {
        uint32_t hash = (uint32_t)i * 2654435761u ^ salt * 40503u;
        hash = (hash ^ hash >> 15) * 2246822519u;
        hash ^= hash >> 13;
        made.host_base[i] = ((float)hash / 4294967296.0f - 0.5f) * ldexpf(1, (int)(hash % 24) - 12);
    }
    made.gpu_base = device_copy_of(gpu, made.host_base, count * sizeof(float));
    made.host = made.host_base + shift;
    made.there = made.gpu_base + shift;
    return made;
}

static void twin_free(twin *values) {
    yoke_device_free(values->gpu, values->gpu_base);
    free(values->host_base);
}

static void expect_twins(const twin *pair, const char *what) {
    size_t count = (size_t)(pair->host - pair->host_base) + pair->elements + 1;
    float *values = device_values(pair->gpu, pair->gpu_base, count * sizeof(float));
    for (size_t i = 0; i < count; i++) {
        if (memcmp(&values[i], &pair->host_base[i], sizeof(float)) == 0) continue;
        fail_msg("%s of %zu elements: %.9g at %zu, the CPU has %.9g", what, pair->elements,
                 (double)values[i], i, (double)pair->host_base[i]);
    }
    free(values);
}

/* Sum. */

static void check_sum(const both_devices *both, int count, size_t elements, size_t shift) {
    twin sources[YOKE_DEVICES_LIMIT], to = twin_new(both->gpu, elements, shift, 99);
    const float *on_host[YOKE_DEVICES_LIMIT], *there[YOKE_DEVICES_LIMIT];
    for (int k = 0; k < count; k++) {
        sources[k] = twin_new(both->gpu, elements, shift, (uint32_t)k + 1);
        on_host[k] = sources[k].host;
        there[k] = sources[k].there;
    }
    EXPECT_OK(yoke_device_sum(both->cpu, STREAM, to.host, on_host, count, elements));
    EXPECT_OK(yoke_device_sum(both->gpu, STREAM, to.there, there, count, elements));
    expect_twins(&to, "a sum");
    int own = count / 2; /* any of the sources may be the sum */
    EXPECT_OK(yoke_device_sum(both->gpu, STREAM, sources[own].there, there, count, elements));
    memcpy(sources[own].host, to.host, elements * sizeof(float));
    for (int k = 0; k < count; k++) {
        expect_twins(&sources[k], k == own ? "a sum in place" : "a source");
        twin_free(&sources[k]);
    }
    twin_free(&to);
}

static void a_sum_is_the_tree_of_the_cpu_to_the_bit(void **state) {
    static const int counts[] = {1, 2, 3, 8};
    for (size_t c = 0; c < COUNT(counts); c++)
        for (size_t i = 0; i < COUNT(lengths); i++)
            check_sum(*state, counts[c], lengths[i], i % SHIFTS);
    check_sum(*state, YOKE_DEVICES_LIMIT, 1000, 0);
}

static void a_sum_of_no_buffers_or_too_many_is_refused(void **state) {
    const both_devices *both = *state;
    const float *none[1] = {NULL};
    assert_int_equal(yoke_device_sum(both->gpu, STREAM, NULL, none, 0, 1), YOKE_ERROR_ARGUMENT);
    assert_int_equal(yoke_device_sum(both->gpu, STREAM, NULL, none, YOKE_DEVICES_LIMIT + 1, 1),
                     YOKE_ERROR_ARGUMENT);
}

/* Square sum. */

static void a_square_sum_is_the_cpus_to_the_bit(void **state) {
    const both_devices *both = *state;
    static const size_t more[] = {15, 8192,
                                  300 * 4096 + 17}; /* more blocks than a fold's threads */
    for (size_t i = 0; i < COUNT(lengths) + COUNT(more); i++) {
        size_t elements = i < COUNT(lengths) ? lengths[i] : more[i - COUNT(lengths)];
        twin values = twin_new(both->gpu, elements, i % SHIFTS, 7);
        double expected = -1, *sum = NULL, *work = NULL;
        size_t bytes = yoke_square_sum_doubles(elements) * sizeof(double);
        EXPECT_OK(yoke_device_allocate(both->gpu, bytes, "a test", (void **)&work));
        EXPECT_OK(yoke_device_square_sum(both->cpu, STREAM, values.host, elements, &expected));
        EXPECT_OK(yoke_device_square_sum(both->gpu, STREAM, values.there, elements, work));
        sum = device_values(both->gpu, work, sizeof *sum);
        if (memcmp(sum, &expected, sizeof expected) != 0)
            fail_msg("the squares of %zu elements sum up to %.17g, on the CPU to %.17g", elements,
                     *sum, expected);
        free(sum);
        yoke_device_free(both->gpu, work);
        twin_free(&values);
    }
}

/* Check. */

static void a_check_finds_what_the_cpu_finds_and_closes_the_gate(void **state) {
    const both_devices *both = *state;
    for (size_t i = 0; i < COUNT(lengths); i++) {
        size_t elements = lengths[i];
        for (int bad = 0; bad < (elements > 0 ? 3 : 1); bad++) {
            twin values = twin_new(both->gpu, elements, i % SHIFTS, 9);
            uint64_t words[2] = {YOKE_ALL_FINITE, YOKE_ALL_FINITE}, expected = YOKE_ALL_FINITE;
            if (bad > 0) values.host[elements - 1] = NAN;
            if (bad > 1) values.host[elements / 2] = -INFINITY;
            if (elements > 0)
                device_put(both->gpu, values.there, values.host, elements * sizeof(float));
            uint64_t *there = device_copy_of(both->gpu, words, sizeof words);
            EXPECT_OK(
                yoke_device_check_finite(both->cpu, STREAM, values.host, elements, 50, &expected));
            EXPECT_OK(
                yoke_device_check_finite(both->gpu, STREAM, values.there, elements, 50, there + 1));
            device_take(both->gpu, words, there, sizeof words);
            assert_true(words[0] == YOKE_ALL_FINITE && words[1] == expected);
            assert_true((expected == YOKE_ALL_FINITE) == (bad == 0));
            yoke_gate gate, *gate_there = NULL;
            EXPECT_OK(yoke_device_allocate(both->gpu, sizeof gate, "a test", (void **)&gate_there));
            yoke_gate_request request = {.first_bad = there, .first_bad_count = 2};
            EXPECT_OK(yoke_device_gate(both->gpu, STREAM, gate_there, &request));
            device_take(both->gpu, &gate, gate_there, sizeof gate);
            assert_true(gate.closed == (bad > 0) && gate.first_bad == expected);
            request = (yoke_gate_request){.stays_closed = true};
            EXPECT_OK(yoke_device_gate(both->gpu, STREAM, gate_there, &request));
            device_take(both->gpu, &gate, gate_there, sizeof gate);
            assert_true(gate.closed == (bad > 0));
            yoke_device_free(both->gpu, gate_there);
            yoke_device_free(both->gpu, there);
            twin_free(&values);
        }
    }
}

/* Gate. */

typedef struct gate_case {
    double losses[2], square_sums[3], clip_norm;
    yoke_gate expected;
    double scale; /* of the loss, and so of the gradient; 0: 1 */
} gate_case;

static yoke_gate gate_of(yoke_device *gpu, const gate_case *c) {
    double *losses = device_copy_of(gpu, c->losses, sizeof c->losses);
    double *square_sums = device_copy_of(gpu, c->square_sums, sizeof c->square_sums);
    yoke_gate *there = NULL;
    EXPECT_OK(yoke_device_allocate(gpu, sizeof *there, "a test", (void **)&there));
    yoke_gate_request request = {.losses = losses,
                                 .square_sums = square_sums,
                                 .loss_count = 2,
                                 .square_sum_count = 3,
                                 .clip_norm = c->clip_norm,
                                 .unscale = c->scale > 0 ? 1 / c->scale : 1};
    EXPECT_OK(yoke_device_gate(gpu, STREAM, there, &request));
    yoke_gate gate, again;
    device_take(gpu, &gate, there, sizeof gate);
    request = (yoke_gate_request){
        .found_nonfinite = &there->found_nonfinite}; /* its own, as if others had added none */
    EXPECT_OK(yoke_device_gate(gpu, STREAM, there, &request));
    device_take(gpu, &again, there, sizeof again);
    assert_int_equal(again.closed, gate.closed);
    request = (yoke_gate_request){.losses = losses, .loss_count = 0, .closed = true};
    EXPECT_OK(yoke_device_gate(gpu, STREAM, there, &request)); /* the host knows of a bad loss */
    device_take(gpu, &again, there, sizeof again);
    assert_true(again.closed && isnan(again.found_nonfinite));
    yoke_device_free(gpu, losses);
    yoke_device_free(gpu, square_sums);
    yoke_device_free(gpu, there);
    return gate;
}

static void a_gate_closes_on_what_is_not_finite_and_clips_to_the_norm(void **state) {
    const both_devices *both = *state;
    const double nan = (double)NAN, inf = (double)INFINITY;
    const float clipped = (float)(2 / (6 + 1e-6));
    const gate_case cases[] = {
        {{1, 2}, {4, 16, 16}, 0, {1, 0, 0, 0, 0}},  /* no clipping: the squares do not matter */
        {{1, 2}, {4, nan, 16}, 0, {1, 0, 0, 0, 0}}, /* not even then */
        {{1, 2}, {4, 16, 16}, 2, {clipped, 0, 0, 6, 0}},           /* longer than allowed */
        {{1, 2}, {4, 16, 16}, 7, {1, 0, 0, 6, 0}},                 /* short enough */
        {{1, 2}, {0, 0, 0}, 2, {1, 0, 0, 0, 0}},                   /* no gradient at all */
        {{1, 2}, {64, 256, 256}, 2, {clipped / 4, 0, 0, 6, 0}, 4}, /* of a scaled gradient */
        {{1, 2}, {64, 256, 256}, 0, {0.25, 0, 0, 0, 0}, 4},        /* the scale alone */
        {{1e308, -1e308}, {4, 16, 16}, 7, {1, 0, 0, 6, 0}},        /* large is finite */
        {{nan, 2}, {4, 16, 16}, 0, {1, 1, 0, 0, 0}},
        {{1, inf}, {4, 16, 16}, 0, {1, 1, 0, 0, 0}},
        {{1, -inf}, {4, 16, 16}, 7, {1, 1, 0, 6, 0}},
        {{1, 2}, {4, inf, 16}, 7, {0, 1, 0, inf, 0}},
        {{1, 2}, {4, 16, nan}, 7, {0, 1, 0, nan, 0}},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        const yoke_gate *expected = &cases[i].expected;
        yoke_gate gate = gate_of(both->gpu, &cases[i]);
        assert_int_equal(gate.closed, expected->closed);
        assert_true(expected->closed ? isnan(gate.found_nonfinite) : gate.found_nonfinite == 0);
        assert_true(gate.norm == expected->norm || (isnan(gate.norm) && isnan(expected->norm)));
        if (!gate.closed) assert_true(gate.gradient_scale == expected->gradient_scale);
    }
}

/* Updates. */

typedef struct update_rig {
    const both_devices *both;
    size_t elements;
    twin weights, gradients, states[2];
    yoke_gate *gate;
    uint16_t *shadows, *shadow; /* zero, with room on both sides; that of the weights */
} update_rig;

static update_rig update_new(const both_devices *both, size_t elements, size_t shift,
                             yoke_gate gate) {
    update_rig made = {.both = both, .elements = elements};
    made.weights = twin_new(both->gpu, elements, shift, 1);
    made.gradients = twin_new(both->gpu, elements, shift, 2);
    made.states[0] = twin_new(both->gpu, elements, shift, 3);
    made.states[1] = twin_new(both->gpu, elements, shift, 4);
    for (int k = 0; k < 2; k++) { /* a mean of squares is no less than 0 */
        for (size_t i = 0; i < elements; i++)
            made.states[k].host[i] = fabsf(made.states[k].host[i]);
        device_put(both->gpu, made.states[k].there, made.states[k].host, elements * sizeof(float));
    }
    made.gate = device_copy_of(both->gpu, &gate, sizeof gate);
    EXPECT_OK(yoke_device_allocate(both->gpu, (elements + SHIFTS) * sizeof *made.shadows, "a test",
                                   (void **)&made.shadows));
    made.shadow = made.shadows + elements % (SHIFTS - 1);
    return made;
}

static void expect_shadow(const update_rig *rig, bool written) {
    size_t elements = rig->elements + SHIFTS, before = (size_t)(rig->shadow - rig->shadows);
    uint16_t *taken = device_values(rig->both->gpu, rig->shadows, elements * sizeof *taken);
    for (size_t i = 0; i < elements; i++) {
        bool own = written && i >= before && i < before + rig->elements;
        assert_int_equal(taken[i], own ? yoke_bfloat16_round(rig->weights.host[i - before]) : 0);
    }
    free(taken);
}

static void update_check_and_free(update_rig *rig) {
    expect_twins(&rig->weights, "weights");
    expect_twins(&rig->gradients, "gradients");
    expect_twins(&rig->states[0], "the first state");
    expect_twins(&rig->states[1], "the second state");
    twin_free(&rig->weights);
    twin_free(&rig->gradients);
    twin_free(&rig->states[0]);
    twin_free(&rig->states[1]);
    yoke_device_free(rig->both->gpu, rig->shadows);
    yoke_device_free(rig->both->gpu, rig->gate);
}

/* Update `step`, from 0, of an optimizer. */
static yoke_update_step step_of(const yoke_optimizer_options *options, uint64_t step,
                                float gradient_scale) {
    return (yoke_update_step){.rule = yoke_optimizer_update_rule(options),
                              .scalars = yoke_optimizer_scalars(
                                  options, step, options->learning_rate, options->weight_decay),
                              .gradient_scale = gradient_scale};
}

static void update_on(yoke_device *device, const update_rig *rig, const yoke_update_step *step) {
    bool on_host = device == rig->both->cpu;
    float *const states[YOKE_UPDATE_STATES] = {on_host ? rig->states[0].host : rig->states[0].there,
                                               on_host ? rig->states[1].host
                                                       : rig->states[1].there};
    EXPECT_OK(yoke_device_update(
        device, STREAM, step, on_host ? rig->weights.host : rig->weights.there,
        on_host ? rig->gradients.host : rig->gradients.there, states, rig->elements));
}

/* Three steps; the GPU takes its scale from the gate when there is one, the CPU from the step. */
static void check_updates(const both_devices *both, const yoke_optimizer_options *options,
                          size_t elements, bool gated) {
    update_rig rig =
        update_new(both, elements, elements % SHIFTS, (yoke_gate){.gradient_scale = 0.75f});
    for (uint64_t i = 0; i < 3; i++) {
        yoke_update_step step = step_of(options, i, 0.5f), on_cpu = step;
        step.gate = gated ? rig.gate : NULL;
        step.shadow = rig.shadow;
        if (gated) on_cpu.gradient_scale = step.gradient_scale * 0.75f;
        update_on(both->cpu, &rig, &on_cpu);
        update_on(both->gpu, &rig, &step);
        expect_shadow(&rig, true);
    }
    update_check_and_free(&rig);
}

static void every_rule_takes_the_steps_of_the_cpu_to_the_bit(void **state) {
    yoke_optimizer_options options[] = {
        YOKE_SGD_OPTIONS_INIT,     YOKE_SGD_OPTIONS_INIT,  YOKE_SGD_OPTIONS_INIT,
        YOKE_ADAMW_OPTIONS_INIT,   YOKE_ADAM_OPTIONS_INIT, YOKE_RMSPROP_OPTIONS_INIT,
        YOKE_RMSPROP_OPTIONS_INIT, YOKE_LION_OPTIONS_INIT, YOKE_ADAGRAD_OPTIONS_INIT};
    options[1].momentum = options[2].momentum = options[6].momentum = 0.9;
    options[2].nesterov = true;
    for (size_t s = 0; s < COUNT(options); s++) {
        if (s > 0) options[s].weight_decay = 0.01;
        for (size_t i = 0; i < COUNT(lengths); i++)
            check_updates(*state, &options[s], lengths[i], (s + i) % 2 == 1);
    }
}

static void the_first_step_of_sgd_forgets_the_velocity(void **state) {
    const both_devices *both = *state;
    update_rig rig = update_new(both, 17, 0, (yoke_gate){.gradient_scale = 1});
    const yoke_optimizer_options options = {.learning_rate = 0.1, .momentum = 0.9};
    yoke_update_step step = step_of(&options, 0, 1);
    float nans[17];
    for (size_t i = 0; i < COUNT(nans); i++)
        nans[i] = NAN;
    device_put(both->gpu, rig.states[0].there, nans, sizeof nans);
    update_on(both->cpu, &rig, &step);
    update_on(both->gpu, &rig, &step);
    update_check_and_free(&rig);
}

static void a_closed_gate_lets_nothing_change(void **state) {
    const both_devices *both = *state;
    update_rig rig = update_new(both, 1001, 0, (yoke_gate){.gradient_scale = NAN, .closed = 1});
    for (int rule = 0; rule < YOKE_UPDATE_RULES; rule++) {
        yoke_update_step step = {.rule = (yoke_update_rule)rule,
                                 .scalars = {.rate = 1, .correction2_root = 1},
                                 .gradient_scale = 1,
                                 .gate = rig.gate,
                                 .shadow = rig.shadow};
        update_on(both->gpu, &rig, &step);
    }
    expect_shadow(&rig, false);
    update_check_and_free(&rig);
}

/* Keep and undo. */

typedef struct keep_case {
    yoke_optimizer_options options;
    bool closed;
    uint64_t step;
} keep_case;

static void update_both(const update_rig *rig, const keep_case *c, int states, const twin kept[2]) {
    yoke_update_step step = step_of(&c->options, c->step, 1);
    if (!c->closed) update_on(rig->both->cpu, rig, &step);
    step.gate = rig->gate;
    step.kept_weights = rig->gradients.there;
    for (int i = 0; i < states; i++)
        step.kept_states[i] = kept[i].there;
    update_on(rig->both->gpu, rig, &step);
}

static void undo_update(const update_rig *rig, bool closed, int states, const twin kept[2]) {
    yoke_gate gate = {.gradient_scale = 1, .closed = closed};
    yoke_device *gpu = rig->both->gpu;
    device_put(gpu, rig->gate, &gate, sizeof gate);
    EXPECT_OK(yoke_device_undo(gpu, STREAM, rig->gate, rig->weights.there, rig->gradients.there,
                               rig->elements));
    for (int i = 0; i < states; i++)
        EXPECT_OK(yoke_device_undo(gpu, STREAM, rig->gate, rig->states[i].there, kept[i].there,
                                   rig->elements));
}

/* The gradients' place gets the old weights, whether the gate lets the update pass or not. */
static void check_keep(const both_devices *both, size_t elements, const keep_case *c) {
    size_t shift = elements % SHIFTS, bytes = elements * sizeof(float);
    update_rig rig =
        update_new(both, elements, shift,
                   (yoke_gate){.gradient_scale = c->closed ? NAN : 1, .closed = c->closed});
    twin kept[2] = {twin_new(both->gpu, elements, shift, 5),
                    twin_new(both->gpu, elements, shift, 6)};
    int states = yoke_optimizer_state_count(&c->options);
    float *old = malloc(bytes + 1);
    memcpy(old, rig.weights.host, bytes);
    for (int i = 0; i < states; i++)
        memcpy(kept[i].host, rig.states[i].host, bytes);
    update_both(&rig, c, states, kept);
    memcpy(rig.gradients.host, old, bytes);
    undo_update(&rig, false, states, kept);
    expect_twins(&rig.weights, "updated weights");
    expect_twins(&rig.states[0], "the updated state");
    expect_twins(&kept[0], "the first kept state");
    expect_twins(&kept[1], "the second kept state");
    undo_update(&rig, true, states, kept);
    memcpy(rig.weights.host, old, bytes);
    for (int i = 0; i < states; i++)
        memcpy(rig.states[i].host, kept[i].host, bytes);
    update_check_and_free(&rig);
    twin_free(&kept[0]);
    twin_free(&kept[1]);
    free(old);
}

static void a_closed_gate_undoes_an_update_to_the_bit_and_an_open_one_nothing(void **state) {
    yoke_optimizer_options options[] = {YOKE_SGD_OPTIONS_INIT, YOKE_ADAMW_OPTIONS_INIT,
                                        YOKE_LION_OPTIONS_INIT};
    options[0].momentum = 0.9;
    for (size_t i = 0; i < COUNT(lengths); i++)
        for (size_t kind = 0; kind < 4 * COUNT(options); kind++)
            check_keep(*state, lengths[i],
                       &(keep_case){.options = options[kind / 4],
                                    .closed = (kind & 1) != 0,
                                    .step = kind & 2 ? 0 : 1});
}

/* Shadow. */

static void check_shadow(const both_devices *both, const float *values, size_t elements) {
    float *there = device_copy_of(both->gpu, values, elements * sizeof *there);
    uint16_t *shadow = NULL;
    EXPECT_OK(yoke_device_allocate(both->gpu, (elements + 1) * sizeof *shadow, "a test",
                                   (void **)&shadow));
    EXPECT_OK(yoke_device_shadow(both->gpu, YOKE_BFLOAT16, shadow, there, elements));
    uint16_t *taken = device_values(both->gpu, shadow, (elements + 1) * sizeof *taken);
    for (size_t i = 0; i < elements; i++) {
        if (isnan(values[i]))
            assert_true(isnan(yoke_bfloat16_widen(taken[i])));
        else
            assert_int_equal(taken[i], yoke_bfloat16_round(values[i]));
    }
    assert_int_equal(taken[elements], 0);
    free(taken);
    yoke_device_free(both->gpu, shadow);
    yoke_device_free(both->gpu, there);
}

static void a_shadow_is_rounded_to_the_nearest_even(void **state) {
    const both_devices *both = *state;
    const float edges[] = {
        0,        -0.0f,     1,   1.00390625f, 1.01171875f, -1.00390625f, 3.3961776e38f,
        INFINITY, -INFINITY, NAN, 1e-40f,      65535.5f,    0x1.fffffep0f};
    check_shadow(both, edges, COUNT(edges));
    for (size_t i = 1; i < COUNT(lengths); i++) {
        twin values = twin_new(both->gpu, lengths[i], 0, 5);
        check_shadow(both, values.host, lengths[i]);
        twin_free(&values);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_sum_is_the_tree_of_the_cpu_to_the_bit),
        cmocka_unit_test(a_sum_of_no_buffers_or_too_many_is_refused),
        cmocka_unit_test(a_square_sum_is_the_cpus_to_the_bit),
        cmocka_unit_test(a_check_finds_what_the_cpu_finds_and_closes_the_gate),
        cmocka_unit_test(a_gate_closes_on_what_is_not_finite_and_clips_to_the_norm),
        cmocka_unit_test(every_rule_takes_the_steps_of_the_cpu_to_the_bit),
        cmocka_unit_test(the_first_step_of_sgd_forgets_the_velocity),
        cmocka_unit_test(a_closed_gate_lets_nothing_change),
        cmocka_unit_test(a_closed_gate_undoes_an_update_to_the_bit_and_an_open_one_nothing),
        cmocka_unit_test(a_shadow_is_rounded_to_the_nearest_even),
    };
    if (devices_gpus() == 0) {
        print_message("skipped: no usable GPU\n");
        return DEVICES_SKIPPED;
    }
    return cmocka_run_group_tests(tests, open_both, close_both);
}
